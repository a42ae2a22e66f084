"""What parted comes together: from the fork, from what was forked, and where both sides clash."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from palaver.messages import user
from tests.page.accessibility import violations
from tests.page.histories import story

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

_numbers = itertools.count()


@pytest.fixture
def name(server: PageServer) -> str:
    """A conversation with a fork, which no other test knows."""
    conversation = f"parted-{next(_numbers)}"
    story(server.store, conversation)
    return conversation


def texts(server: PageServer, name: str) -> list[str]:
    return [message.text for message in server.store.get(name)]


def merging(page: Page) -> None:
    """Look at both sides, then merge."""
    dialog = page.get_by_role("dialog", name="Bring together what parted")
    expect(dialog).to_contain_text("In the fork: hot chocolate.")
    assert [] == violations(page, "pv-dialog")
    dialog.get_by_role("button", name="Merge").click()


def test_a_fork_is_merged_in_and_one_undo_takes_it_back(
    open_page: OpenPage, server: PageServer, name: str
) -> None:
    before = texts(server, name)
    page = open_page(f"#/c/{name}/history")
    page.get_by_role("button", name=f"Merge {name}-fork in").click()
    merging(page)
    expect(page.locator(".toast")).to_contain_text(f"Merged with {name}-fork.")
    expect(page.locator("pv-thread")).to_contain_text("In the fork: hot chocolate.")
    assert "In the fork: hot chocolate." in texts(server, name)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator("pv-thread")).not_to_contain_text("In the fork: hot chocolate.")
    assert before == texts(server, name)


def test_a_fork_goes_back_to_where_it_came_from(
    open_page: OpenPage, server: PageServer, name: str
) -> None:
    page = open_page(f"#/c/{name}-fork/history")
    page.get_by_role("button", name="Merge back").click()
    merging(page)
    page.wait_for_url(f"**/#/c/{name}/history")
    assert "In the fork: hot chocolate." in texts(server, name)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator("pv-thread")).not_to_contain_text("In the fork: hot chocolate.")


def test_the_palette_forks_and_merges_back(
    open_page: OpenPage, server: PageServer, name: str
) -> None:
    page = open_page(f"#/c/{name}")
    page.keyboard.press("Control+k")
    page.keyboard.type("fork")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("This is the fork.")
    fork = page.evaluate("location.hash.split('/')[2]")
    assert name == server.store.head(fork).parent
    server.store.get(fork).append(user("In the fork: hot chocolate."))
    expect(page.locator("pv-thread")).to_contain_text("In the fork: hot chocolate.")
    page.keyboard.press("Control+k")
    page.keyboard.type("merge")
    page.keyboard.press("Enter")
    merging(page)
    page.wait_for_url(f"**/#/c/{name}")
    assert "In the fork: hot chocolate." in texts(server, name)


def test_where_both_changed_the_same_nothing_is_merged(
    open_page: OpenPage, server: PageServer, name: str, expected: list[str]
) -> None:
    expected.append("409")
    server.store.get(f"{name}-fork").replace(3, user("Another wish for the fourth."))
    here, there = texts(server, name), texts(server, f"{name}-fork")
    page = open_page(f"#/c/{name}/history")
    page.get_by_role("button", name=f"Merge {name}-fork in").click()
    merging(page)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Both sides changed the same message, so nothing was merged.")
    dialog.get_by_role("button", name="Cancel").click()
    assert (here, there) == (texts(server, name), texts(server, f"{name}-fork"))
