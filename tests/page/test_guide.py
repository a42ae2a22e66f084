"""The first minute: where a newcomer lands, what the guide says, and how it is put away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import palaver
from palaver.server import demo
from tests.conversation.scripted import saying
from tests.page.accessibility import violations
from tests.page.conftest import NARROW
from tests.page.server import running_server

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playwright.sync_api import Locator, Page

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
    expect(page).to_have_url(re.compile(f"#/c/{demo.START}$"))
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


def test_it_is_put_away_by_the_keyboard_for_good(sown: PageServer, open_page: OpenPage) -> None:
    page = open_page(f"#/c/{demo.TEA}", at=sown, size=NARROW)
    expect(guide(page)).to_be_visible()
    guide(page).locator("summary").focus()
    page.keyboard.press("Enter")
    expect(guide(page).get_by_role("listitem").first).to_be_hidden()
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
    expect(page.get_by_text("Pick a conversation")).to_be_visible()
    expect(guide(page)).to_be_hidden()


def test_it_is_there_in_chinese(sown: PageServer, open_page: OpenPage) -> None:
    page = open_page(f"#/c/{demo.START}", at=sown, language="zh-CN")
    told = page.get_by_role("region", name="第一分钟")
    expect(told).to_contain_text("0 / 5")
    expect(told.get_by_role("listitem").first).to_contain_text("提问。")
    expect(page.get_by_role("group", name="建议").get_by_role("button")).to_have_count(3)
