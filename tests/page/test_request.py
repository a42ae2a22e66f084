"""The exact request that a provider would get, and what was repaired on the way."""

from __future__ import annotations

import itertools
import json
import shlex
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect

from tests.page import samples
from tests.page.accessibility import violations
from tests.page.conftest import NARROW, WIDE
from tests.page.histories import broken, called, said
from tests.page.server import MODEL

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

_numbers = itertools.count()


@pytest.fixture
def name(server: PageServer) -> str:
    """A conversation that every provider would refuse, which no other test knows."""
    conversation = f"request-{next(_numbers)}"
    broken(server.store, conversation)
    return conversation


FORMATS = [
    ("OpenAI Chat", "messages", "tool_call_id"),
    ("OpenAI Responses", "input", "function_call"),
    ("Anthropic", "messages", "tool_use"),
    ("Gemini", "contents", "functionCall"),
]


def test_each_of_the_four_formats_has_a_tab(open_page: OpenPage, name: str) -> None:
    page = open_page(f"#/c/{name}/request")
    for label, field, word in FORMATS:
        page.get_by_role("tab", name=label, exact=True).click()
        expect(page.locator(f"[data-path='$.{field}']")).to_be_visible()
        expect(page.locator(".j-tree")).to_contain_text(word)
        expect(page.locator(".r-note").first).to_be_visible()


def test_the_tabs_are_walked_with_the_arrows_and_the_choice_is_kept(
    open_page: OpenPage, name: str
) -> None:
    page = open_page(f"#/c/{name}/request")
    page.get_by_role("tab", name="OpenAI Chat").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", name="Gemini")).to_be_focused()
    expect(page.locator("[data-path='$.contents']")).to_be_visible()
    page.reload()
    expect(page.get_by_role("tab", name="Gemini")).to_have_attribute("aria-selected", "true")


def test_repairs_say_what_and_why_and_lead_to_their_place(open_page: OpenPage, name: str) -> None:
    page = open_page(f"#/c/{name}/request")
    expect(page.locator(".r-repairs h2")).to_have_text("1 repaired1 left out")
    expect(page.locator("pv-request")).to_contain_text("The provider would refuse the history")
    missing = page.locator(".r-note").filter(has_text="call-2")
    expect(missing).to_contain_text("message 6")
    expect(missing).to_contain_text("has no result")
    expect(missing).to_contain_text("a call that nothing answers")
    missing.click()
    place = page.locator(".j-here")
    expect(place).to_have_attribute("data-path", "$.messages[6]")
    expect(place).to_be_in_viewport()
    expect(place).to_be_focused()
    expect(page.locator("pv-message[data-index='6']")).to_be_in_viewport()
    expect(page.locator(".j-marked")).to_have_count(2)


def test_what_was_left_out_is_shown_in_the_thread(open_page: OpenPage, name: str) -> None:
    page = open_page(f"#/c/{name}/request")
    page.locator(".r-note").filter(has_text="call-1").click()
    expect(page.locator("pv-toast")).to_contain_text("It was left out of the request")
    expect(page.locator("pv-message[data-index='2']")).to_be_in_viewport()


def test_the_request_is_copied_to_the_letter(
    open_page: OpenPage, server: PageServer, name: str
) -> None:
    page = open_page(f"#/c/{name}/request")
    page.locator("pv-request").get_by_role("button", name="Copy", exact=True).click()
    expect(page.locator("pv-toast")).to_contain_text("The request is on the clipboard.")
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    sent = server.ask("GET", f"conversations/{name}/request?model={MODEL}&tools=true")["request"]
    assert copied == sent


def test_it_is_what_is_sent_with_model_tools_and_options(
    open_page: OpenPage, server: PageServer
) -> None:
    called(server.store, "request-sent")
    page = open_page("#/c/request-sent/request")
    view, tree = page.locator("pv-request"), page.locator(".j-tree")
    expect(view).to_contain_text(f"What {MODEL} would be sent now")
    expect(tree.locator("[data-path='$.model']")).to_contain_text('"actor"')
    expect(tree.locator("[data-path='$.tools']")).to_be_visible()
    page.get_by_role("button", name="Tools", exact=True).click()
    expect(tree.locator("[data-path='$.tools']")).to_have_count(0)
    page.get_by_role("button", name="Tools", exact=True).click()
    expect(tree.locator("[data-path='$.tools']")).to_be_visible()
    view.get_by_role("button", name="Copy as curl").click()
    expect(page.locator("pv-toast")).to_contain_text("The request is on the clipboard.")
    address, *headers, body = shlex.split(page.evaluate("navigator.clipboard.readText()"))[1:]
    assert "https://api.openai.com/v1/chat/completions" == address
    assert "Authorization: Bearer $OPENAI_API_KEY" in headers
    sent = server.ask("GET", f"conversations/request-sent/request?model={MODEL}&tools=true")
    assert sent["request"] == json.loads(body)
    page.get_by_role("tab", name="Anthropic", exact=True).click()
    expect(view).to_contain_text("The chosen model speaks another one")
    expect(view.get_by_role("button", name="Copy as curl")).to_have_count(0)


def test_what_has_no_field_is_no_repair_and_bookkeeping_is_no_loss(
    open_page: OpenPage, server: PageServer
) -> None:
    samples.rich(server.store, "request-rich")
    page = open_page("#/c/request-rich/request")
    heads = page.locator(".r-repairs h2 .chip")
    expect(heads).to_have_text(["2 left out", "5 not supported"])
    expect(page.locator(".r-notes")).not_to_contain_text("step-finish")
    expect(page.locator(".r-notes")).not_to_contain_text("compaction")
    server.store.get("request-rich").execute({"operation": "FILTER", "roles": ["system", "user"]})
    expect(heads).to_have_text(["1 not supported"])
    expect(page.locator("pv-request")).to_contain_text("The provider would take the history.")


def test_json_folds_and_long_texts_wait(open_page: OpenPage, server: PageServer) -> None:
    history = server.store.create(id="folding", title="Folding")
    history.append(said("user", "tea " * 1_000))
    history.extend(said("user", f"line {number}") for number in range(200))
    page = open_page("#/c/folding/request")
    expect(page.locator("pv-request")).to_contain_text("Nothing had to be repaired.")
    tree = page.locator(".j-tree")
    tree.get_by_role("button", name="more characters").click()
    expect(tree.locator("[data-path='$.messages[0].content']")).to_have_text(
        f'"content": {json.dumps("tea " * 1_000)}'
    )
    entries = tree.locator("[data-path='$.messages'] > details > .j-body > .j-line")
    expect(entries).to_have_count(60)
    tree.get_by_role("button", name="Show more").click()
    expect(entries).to_have_count(120)
    tree.locator("[data-path='$.messages'] > details > summary").click()
    expect(entries.first).to_be_hidden()
    expect(tree).to_contain_text("201 items")


def test_it_follows_what_is_said(open_page: OpenPage, server: PageServer) -> None:
    called(server.store, "request-live")
    page = open_page("#/c/request-live/request")
    expect(page.locator("pv-request")).to_contain_text("Nothing had to be repaired.")
    server.store.get("request-live").append(said("user", "And one thing more."))
    expect(page.locator(".j-tree")).to_contain_text("And one thing more.")


def test_markup_in_a_request_is_text(open_page: OpenPage, server: PageServer) -> None:
    history = server.store.create(id="request-mischief", title="Mischief")
    history.append(said("user", "<img src=x onerror=window.__pwned=1><script>1</script>"))
    page = open_page("#/c/request-mischief/request")
    expect(page.locator(".j-tree")).to_contain_text("<img src=x onerror=window.__pwned=1>")
    assert page.evaluate("window.__pwned") is None


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "dark"), (NARROW, "light")])
def test_everyone_can_use_it(
    open_page: OpenPage, name: str, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    page: Page = open_page(f"#/c/{name}/request", size=size, scheme=scheme)
    page.locator(".r-note").filter(has_text="call-2").click()
    expect(page.locator(".j-here")).to_be_visible()
    assert violations(page, "pv-request") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
