"""Why an agent would see what it sees, for any name and any limit."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect

from tests.page.accessibility import violations
from tests.page.conftest import NARROW, WIDE
from tests.page.histories import said, team_history

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

_numbers = itertools.count()


@pytest.fixture
def name(server: PageServer) -> str:
    """A conversation of three, which no other test knows."""
    conversation = f"explain-{next(_numbers)}"
    team_history(server.store, conversation)
    return conversation


@pytest.fixture
def page(open_page: OpenPage, name: str) -> Page:
    """The page with it explained."""
    return open_page(f"#/c/{name}/explain")


def test_it_begins_with_who_spoke_last_among_the_agents(page: Page) -> None:
    expect(page.get_by_label("Agent")).to_have_value("Critic")
    expect(page.locator(".x-result")).to_contain_text("6 kept, 0 dropped")


def test_the_limits_decide_what_is_kept_and_the_reason_is_said(page: Page) -> None:
    result = page.locator(".x-result")
    page.get_by_label("Window, in messages").fill("2")
    expect(result).to_contain_text("3 kept, 0 dropped")
    expect(result).to_contain_text("3 older messages are beyond the window.")
    page.get_by_label("Window, in messages").fill("5")
    page.get_by_label("It sees").select_option("addressed")
    expect(result).to_contain_text("It sees what it said, what is addressed to it")
    page.get_by_label("It sees").select_option("all")
    page.get_by_label("Most bytes").fill("150")
    dropped = result.locator(".x-entry.dropped").first
    expect(dropped).to_contain_text("no room: bytes")
    expect(dropped).to_contain_text("Plan the release of 2.1.")


def test_limits_that_can_not_be_kept_are_said(page: Page, expected: list[str]) -> None:
    expected.append("status of 4")
    page.get_by_label("Most bytes").fill("3")
    expect(page.locator(".x-result").get_by_role("alert")).to_be_visible()
    page.get_by_label("Most bytes").fill("")
    expect(page.locator(".x-result")).to_contain_text("6 kept, 0 dropped")


def test_another_agent_and_another_assembler(page: Page) -> None:
    page.get_by_label("Agent").fill("planner")
    result = page.locator(".x-result")
    expect(result).to_contain_text("+3 new")
    page.get_by_label("Assembled for").select_option("claude-code")
    expect(result).to_contain_text("Assembled for claude-code")
    result.get_by_text("The prompt, word for word").click()
    expect(result.locator("pre").last).to_contain_text("[CONTEXT]")
    expect(page.get_by_label("Agent")).to_have_value("planner")


def test_without_a_name_it_asks_for_one(open_page: OpenPage, server: PageServer) -> None:
    server.store.create(id="nameless", title="Nameless").append(said("user", "Hello?"))
    page = open_page("#/c/nameless/explain")
    expect(page.locator(".x-result")).to_contain_text("Whose eyes?")
    page.get_by_label("Agent").fill("max")
    expect(page.locator(".x-result")).to_contain_text("1 kept, 0 dropped")


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "dark"), (NARROW, "light")])
def test_everyone_can_use_it(
    open_page: OpenPage, name: str, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    page = open_page(f"#/c/{name}/explain", size=size, scheme=scheme)
    expect(page.locator(".x-result")).to_contain_text("6 kept, 0 dropped")
    assert violations(page, "pv-explain") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
