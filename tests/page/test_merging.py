"""What parted comes together: from the fork, from what was forked, and where both sides clash."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from palaver.messages import user
from tests.page.histories import story
from tests.page.sound import barriers

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import Look
    from tests.page.stand import Stand

_numbers = itertools.count()


@pytest.fixture
def name(stand: Stand) -> str:
    """A conversation with a fork, which no other test knows."""
    told = f"parted-{next(_numbers)}"
    story(stand.store, told)
    return told


def texts(stand: Stand, name: str) -> list[str]:
    return [message.text for message in stand.store.get(name)]


def merging(page: Page) -> None:
    """Look at both sides, then merge."""
    dialog = page.get_by_role("dialog", name="Bring together what parted")
    expect(dialog).to_contain_text("In the fork: hot chocolate.")
    assert [] == barriers(page, "pv-dialog")
    dialog.get_by_role("button", name="Merge").click()


def test_a_fork_is_merged_in_and_one_undo_takes_it_back(
    look: Look, stand: Stand, name: str
) -> None:
    before = texts(stand, name)
    page = look(f"#/c/{name}/history")
    page.get_by_role("button", name=f"Merge {name}-fork in").click()
    merging(page)
    expect(page.locator(".toast")).to_contain_text(f"Merged with {name}-fork.")
    expect(page.locator("pv-thread")).to_contain_text("In the fork: hot chocolate.")
    assert "In the fork: hot chocolate." in texts(stand, name)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator("pv-thread")).not_to_contain_text("In the fork: hot chocolate.")
    assert before == texts(stand, name)


def test_a_fork_goes_back_to_where_it_came_from(look: Look, stand: Stand, name: str) -> None:
    page = look(f"#/c/{name}-fork/history")
    page.get_by_role("button", name="Merge back").click()
    merging(page)
    page.wait_for_url(f"**/#/c/{name}/history")
    assert "In the fork: hot chocolate." in texts(stand, name)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator("pv-thread")).not_to_contain_text("In the fork: hot chocolate.")


def test_where_both_changed_the_same_nothing_is_merged(
    look: Look, stand: Stand, name: str, forgiven: list[str]
) -> None:
    forgiven.append("409")
    stand.store.get(f"{name}-fork").replace(3, user("Another wish for the fourth."))
    here, there = texts(stand, name), texts(stand, f"{name}-fork")
    page = look(f"#/c/{name}/history")
    page.get_by_role("button", name=f"Merge {name}-fork in").click()
    merging(page)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Both sides changed the same message, so nothing was merged.")
    dialog.get_by_role("button", name="Cancel").click()
    assert (here, there) == (texts(stand, name), texts(stand, f"{name}-fork"))
