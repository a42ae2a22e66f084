"""The first minute: where a newcomer lands, what the guide says, and how it is put away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import palaver
from palaver.server import demo
from tests.conversation.scripted import calling, saying
from tests.page.accessibility import violations
from tests.page.conftest import NARROW
from tests.page.server import running_server

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playwright.sync_api import Locator, Page, Route

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer


@pytest.fixture
def sown(tmp_path: Path) -> Generator[PageServer]:
    """A server with the example; named before `look`, so that pages are closed before it is."""
    with palaver.open(tmp_path / "sown.db") as store:
        demo.seed(store)
        with running_server(store) as running:
            yield running


def guide(page: Page) -> Locator:
    return page.get_by_role("region", name="The first minute")


def test_a_newcomer_lands_where_it_begins_and_is_not_sent_there_again(
    sown: PageServer, open_page: OpenPage
) -> None:
    page = open_page(at=sown)
    expect(page).to_have_url(re.compile(f"#/c/{demo.START}/history$"))
    expect(page.get_by_role("tab", name="History", selected=True)).to_be_visible()
    expect(page.locator("pv-history")).to_contain_text("Went back: as in version 0")
    expect(guide(page)).to_contain_text("0 of 5")
    expect(guide(page).get_by_role("listitem")).to_have_count(5)
    expect(page.locator(".suggested button")).to_have_count(3)
    assert [] == violations(page)
    page.goto(f"{sown.address}/#/")
    page.reload()
    expect(page.get_by_text("Pick a conversation")).to_be_visible()
    expect(guide(page)).to_be_visible()
    guide(page).get_by_role("link", name="Ask.").click()
    expect(page).to_have_url(re.compile(f"#/c/{demo.START}$"))
    views = page.get_by_role("navigation", name="Views").get_by_role("button")
    expect(views).to_contain_text(["History", "Tokens", "Request", "Team", "Explain"])
    views.nth(1).click()
    expect(page.get_by_role("tab", name="Tokens", selected=True)).to_be_visible()


@pytest.mark.parametrize("by", ["clicks", "keys"])
def test_it_is_done_by_clicks_or_keys_and_ends_in_a_rollback_and_an_explanation(
    by: str, sown: PageServer, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.server.services.tools._ROLL_SECONDS", 0)
    sown.say(saying("Water."), calling(("roll_dice", {})), saying("Nine."))
    page = open_page(at=sown)

    def step(label: str) -> None:
        button = guide(page).get_by_role("button", name=label)
        expect(button).to_be_enabled()
        if by == "clicks":
            button.click()
        else:
            page.keyboard.press(".")

    step("Ask about rain")
    expect(guide(page)).to_contain_text("1 of 5")
    step("Roll two dice")
    expect(guide(page)).to_contain_text("2 of 5")
    assert [[], ["roll_dice"]] == [
        [spec.name for spec in asked.tools] for asked in sown.model.asked[:2]
    ]
    expect(page.locator("pv-message").last).to_contain_text("Nine.")
    step("Cut it…")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("4 messages")
    if by == "clicks":
        dialog.get_by_role("button", name="Delete").click()
    else:
        page.keyboard.press("Enter")
    expect(guide(page)).to_contain_text("3 of 5")
    expect(page.locator("pv-message").last).to_contain_text("Water.")
    step("Look back")
    expect(page.locator("pv-head")).to_contain_text("You are looking at version")
    expect(page.locator("pv-message").last).to_contain_text("Nine.")
    step("Roll back to it")
    expect(guide(page)).to_contain_text("4 of 5")
    expect(page.locator("pv-head .notice")).to_have_count(0)
    expect(page.locator("pv-message").last).to_contain_text("Nine.")
    step("Explain")
    expect(guide(page)).to_contain_text("5 of 5")
    expect(page.locator("pv-explain .x-entries li").first).to_be_visible()
    step("New")
    expect(page.get_by_text("Nothing was said yet")).to_be_visible()
    assert 7 == len(sown.store.get(demo.START))  # all of it is there again


def test_what_is_done_is_ticked_and_the_next_thing_is_named(
    sown: PageServer, open_page: OpenPage
) -> None:
    """Also after the page was closed; tools are offered until one was used."""
    sown.say(saying("Water."))
    page = open_page(f"#/c/{demo.START}", at=sown)
    page.get_by_role("button", name="What is rain, in one sentence?").click()
    expect(page.locator("pv-message[data-index='2']")).to_contain_text("Water.")
    expect(guide(page)).to_contain_text("1 of 5")
    expect(guide(page).locator("summary")).to_contain_text("Watch a call.")
    expect(guide(page).get_by_role("listitem").first).to_be_hidden()  # one line is enough now
    expect(page.locator(".suggested button")).to_have_text(["Roll two dice."])
    cut = {"operation": {"operation": "TRUNCATE", "removeLast": 1}}
    sown.ask("POST", f"conversations/{demo.START}/operations", cut)
    expect(guide(page)).to_contain_text("2 of 5")
    sown.ask("POST", f"conversations/{demo.START}/undo")
    expect(guide(page)).to_contain_text("3 of 5")
    guide(page).locator("summary").click()
    guide(page).get_by_role("link", name="See why.").click()
    expect(page.locator("pv-explain .x-entries li").first).to_be_visible()
    expect(guide(page)).to_contain_text("4 of 5")
    page.reload()
    expect(guide(page)).to_contain_text("4 of 5")
    expect(page.locator("pv-message .message-body").first).to_be_visible()
    assert [] == violations(page)


def test_tools_are_off_for_the_very_small_model_until_they_are_switched_on(
    sown: PageServer, open_page: OpenPage
) -> None:
    def only_small(route: Route) -> None:
        info = route.fetch().json()
        small = {"name": "local:smollm2", "label": "smollm2", "ready": True, "isDefault": True}
        route.fulfill(json={**info, "models": [small]})

    page = open_page(f"#/c/{demo.START}", at=sown)
    tools = page.get_by_role("button", name="Tools", exact=True)
    expect(tools).to_have_attribute("aria-pressed", "true")
    page.route("**/api/info", only_small)
    page.reload()
    expect(tools).to_have_attribute("aria-pressed", "false")
    tools.click()
    expect(tools).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(tools).to_have_attribute("aria-pressed", "true")


def test_it_is_put_away_by_the_keyboard_for_good(sown: PageServer, open_page: OpenPage) -> None:
    page = open_page(f"#/c/{demo.TEA}", at=sown, size=NARROW)
    expect(guide(page)).to_be_visible()
    guide(page).locator("summary").focus()
    page.keyboard.press("Enter")
    expect(guide(page).get_by_role("listitem").first).to_be_hidden()
    page.keyboard.press("Tab")
    expect(guide(page).get_by_role("button", name="Ask about rain")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(guide(page)).to_be_hidden()
    page.reload()
    expect(page.locator("pv-message").first).to_be_visible()
    expect(guide(page)).to_be_hidden()


def test_it_keeps_out_of_ones_own_conversations(sown: PageServer, open_page: OpenPage) -> None:
    sown.store.create([palaver.user("mine")], id="mine")
    page = open_page("#/c/mine", at=sown)
    expect(page.locator("pv-message")).to_contain_text("mine")
    expect(guide(page)).to_be_hidden()


def test_without_the_example_there_is_no_guide(page: Page) -> None:
    expect(page.locator("pv-welcome h1")).to_be_visible()
    expect(guide(page)).to_be_hidden()


def test_it_is_there_in_chinese(sown: PageServer, open_page: OpenPage) -> None:
    page = open_page(f"#/c/{demo.START}", at=sown, language="zh-CN")
    told = page.get_by_role("region", name="第一分钟")
    expect(told).to_contain_text("0 / 5")
    expect(told.get_by_role("listitem").first).to_contain_text("提问。")
    expect(page.get_by_role("group", name="建议").get_by_role("button")).to_have_count(3)
