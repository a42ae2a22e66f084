"""Coming in, being shut out, losing the way: the token, a server that only shows, a lost line."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from playwright.sync_api import expect

import palaver
from tests.cluster.free_ports import free_ports
from tests.conversation.scripted import saying
from tests.page import samples
from tests.page.server import TOKEN, running_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer


def test_the_printed_address_lets_in_and_forgets_the_token(
    open_page: OpenPage, server: PageServer
) -> None:
    page = open_page(f"#token={TOKEN}", signed_in=False)
    expect(page.locator("pv-sidebar nav")).to_be_visible()
    assert f"{server.address}/#/" == page.url
    assert TOKEN not in str(page.evaluate("[document.cookie, JSON.stringify(localStorage)]"))
    page.reload()
    expect(page.locator("pv-sidebar nav")).to_be_visible()


def test_the_printed_address_works_where_the_page_is_open_already(
    open_page: OpenPage, server: PageServer, expected: list[str]
) -> None:
    expected.append("401")
    page = open_page(signed_in=False)
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto(server.entrance)
    expect(page.locator("pv-sidebar nav")).to_be_visible()
    assert TOKEN not in page.url


def test_without_a_cookie_the_page_asks_for_the_token(
    open_page: OpenPage, expected: list[str]
) -> None:
    expected.append("401")
    page = open_page(signed_in=False)
    field = page.get_by_label("Token")
    expect(field).to_be_focused()
    field.fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("That is not this server's token.")
    field.fill(f"http://127.0.0.1:7007/#token={TOKEN}")  # the whole line may be pasted
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("pv-sidebar nav")).to_be_visible()


def test_signing_out_asks_for_the_token_again(open_page: OpenPage, expected: list[str]) -> None:
    expected.append("401")
    page = open_page()
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_server_that_only_shows_offers_nothing_that_writes(
    open_page: OpenPage, tmp_path: Path
) -> None:
    with palaver.open(tmp_path / "shown.db") as store:
        samples.rich(store)
        with running_server(store, read_only=True) as shown:
            page = open_page("#/c/rich", at=shown)
            expect(page.locator("pv-head")).to_contain_text("Read-only")
            expect(page.locator("pv-composer")).to_be_hidden()
            for name in ("New", "Import a file…", "Undo", "Redo"):
                expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
            row = page.locator("pv-message[data-index='8']")
            row.hover()
            row.get_by_role("button", name="More for this message").click()
            expect(page.get_by_role("menuitem", name="Copy").first).to_be_visible()
            entries = page.get_by_role("menuitem").all_inner_texts()
            assert not {"Edit", "Delete", "Erase"} & {entry.split("\n")[0] for entry in entries}
            page.keyboard.press("Escape")
            page.keyboard.press("n")
            page.keyboard.press("u")
            expect(page.locator(".toast")).to_have_count(0)
            page.context.close()


def test_a_server_that_comes_back_is_joined_again(
    open_page: OpenPage, tmp_path: Path, expected: list[str]
) -> None:
    """The stream goes on where it ended: nothing is missed, nothing comes twice."""
    expected.append("ERR_|Failed to load resource")
    with palaver.open(tmp_path / "back.db") as store:
        store.create(id="back", title="Back")
        port = free_ports(1)  # one that is given to nobody while the server is away
        with running_server(store, port=port) as first:
            page = open_page("#/c/back", at=first)
        history = store.get("back")
        history.append({"role": "user", "content": "while it was away"})
        expect(page.get_by_text("The connection is lost. Trying again…")).to_be_visible()
        with running_server(store, port=port) as second:
            expect(page.locator("pv-message[data-index='0']")).to_contain_text("while it was away")
            second.say(saying("Here again."))
            page.get_by_role("textbox", name="Say something").fill("Hello?")
            page.keyboard.press("Enter")
            expect(page.locator("pv-message[data-index='2']")).to_contain_text("Here again.")
            expect(page.get_by_text("The connection is lost")).to_be_hidden()
            page.context.close()


def test_another_browser_sees_it_as_it_arrives(open_page: OpenPage, server: PageServer) -> None:
    server.store.create(id="shared", title="Shared")
    gate = threading.Event()
    server.model.lines.clear()
    events = saying("Word by ", "word.")
    server.say([events[0], gate, *events[1:]])
    ours, theirs = open_page("#/c/shared"), open_page("#/c/shared")
    ours.get_by_role("textbox", name="Say something").fill("Both of us")
    ours.keyboard.press("Enter")
    expect(theirs.locator("pv-draft")).to_contain_text("Word by")
    gate.set()
    expect(theirs.locator("pv-message[data-index='1']")).to_contain_text("Word by word.")
