"""Looking at the past: an old version says that it is one, and leads back to now or there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Locator, Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer


@pytest.fixture
def cut(open_page: OpenPage, server: PageServer, request: pytest.FixtureRequest) -> Page:
    """A conversation of six messages of which two are left."""
    name = f"cut-{request.node.name}"
    said = [{"role": "user", "content": f"message {n}"} for n in range(6)]
    history = server.store.create(said, id=name, title="Cut")
    history.execute({"operation": "TRUNCATE", "keepLast": 2})
    page = open_page(f"#/c/{name}")
    expect(page.locator("pv-message")).to_have_count(2)
    return page


def at(page: Page, version: int) -> None:
    """Go to a version, as the history's picture does."""
    page.evaluate(f"location.hash = location.hash.split('?')[0] + '?at={version}'")


def test_an_old_version_says_so_and_leads_back_to_now(cut: Page) -> None:
    at(cut, 0)
    expect(cut.locator("pv-message")).to_have_count(6)
    expect(cut.get_by_text("You are looking at version 0 of 1.")).to_be_visible()
    expect(cut.locator("pv-composer")).to_be_hidden()
    cut.get_by_role("button", name="Back to now").click()
    expect(cut.locator("pv-message")).to_have_count(2)
    expect(cut.locator("pv-composer")).to_be_visible()
    cut.go_back()
    expect(cut.locator("pv-message")).to_have_count(6)


def test_rolling_back_makes_it_the_newest(cut: Page) -> None:
    at(cut, 0)
    cut.get_by_role("button", name="Roll back to it").click()
    expect(cut.get_by_text("You are looking at")).to_be_hidden()
    expect(cut.locator("pv-message")).to_have_count(6)
    expect(cut.locator("pv-head")).to_contain_text("version 2")


def test_undo_and_redo_by_key_and_button(cut: Page) -> None:
    cut.keyboard.press("u")
    expect(cut.locator("pv-message")).to_have_count(6)
    cut.keyboard.press("r")
    expect(cut.locator("pv-message")).to_have_count(2)
    cut.locator("pv-head").get_by_role("button", name="Undo").click()
    expect(cut.locator("pv-message")).to_have_count(6)


def test_a_version_that_is_not_there_is_refused_in_words(cut: Page, expected: list[str]) -> None:
    expected.append("404|422")
    at(cut, 99)
    expect(cut.locator(".toast.error")).to_contain_text("99")


def at_rest(page: Page, row: Locator) -> FloatRect | None:
    """Where a row is, once it has stayed there for a while."""
    before, box = None, row.bounding_box()
    while before != box:
        page.wait_for_timeout(150)
        before, box = box, row.bounding_box()
    return box


def test_an_edit_elsewhere_keeps_what_is_unfolded_and_in_sight(
    open_page: OpenPage, server: PageServer
) -> None:
    said = [{"role": "user", "content": f"message {n}\n" + "more\n" * 12} for n in range(60)]
    server.store.create(said, id="kept-place", title="Place")
    page = open_page("#/c/kept-place")
    page.evaluate("document.querySelector('pv-thread').reveal(20)")
    row = page.locator("pv-message[data-index='20']")
    expect(row).to_contain_text("message 20")
    before = at_rest(page, row)
    new = {"role": "user", "content": "new"}
    edit = {"operation": {"operation": "REPLACE", "index": 40, "message": new}}
    server.ask("POST", "conversations/kept-place/operations", edit)
    expect(page.locator("pv-head")).to_contain_text("version 1")
    assert before == at_rest(page, row)
