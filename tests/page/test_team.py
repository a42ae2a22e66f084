"""A team at work: who is in it, who waits, who spoke to whom, and what each would see."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, Literal

import pytest
from playwright.sync_api import expect

from tests.conversation.scripted import saying
from tests.page.accessibility import violations
from tests.page.conftest import NARROW, WIDE
from tests.page.histories import said, team_history
from tests.page.server import MODEL

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

_numbers = itertools.count()
ROSTER: dict[str, Any] = {
    "name": "crew",
    "members": [
        {"kind": "human", "id": "lee", "name": "Lee"},
        {"kind": "model", "id": "planner", "name": "Planner", "model": MODEL},
        {"kind": "model", "id": "critic", "name": "Critic", "model": MODEL, "window": 2},
    ],
    "default": "planner",
}


@pytest.fixture
def name(server: PageServer) -> str:
    """A conversation of three, which no other test knows."""
    conversation = f"crew-{next(_numbers)}"
    team_history(server.store, conversation)
    return conversation


def test_who_spoke_to_whom_and_how_often(open_page: OpenPage, name: str) -> None:
    page = open_page(f"#/c/{name}/team")
    table = page.get_by_role("table", name="Who spoke to whom")
    expect(table).to_be_visible()
    names = table.locator("thead th").all_inner_texts()[1:]
    assert names == ["Lee", "Planner", "Critic", "everyone"]
    found = [
        [cell.strip() for cell in row.locator("th, td").all_inner_texts()]
        for row in table.locator("tbody tr").all()
    ]
    assert found == [
        ["Lee", "0", "1", "0", "1"],
        ["Planner", "0", "0", "2", "0"],
        ["Critic", "1", "1", "0", "0"],
    ]
    expect(page.locator("pv-team")).to_contain_text("Release 2.1 without surprises.")


def test_what_a_member_would_see_and_why(
    open_page: OpenPage, server: PageServer, name: str
) -> None:
    server.ask("PUT", f"conversations/{name}/team", {"document": ROSTER})
    page = open_page(f"#/c/{name}/team")
    page.get_by_role("button", name="Critic model").click()
    view = page.locator(".g-sight")
    expect(view).to_contain_text("What Critic would see now")
    expect(view).to_contain_text("window of 2 messages")
    expect(view).to_contain_text("3 kept, 0 dropped")
    expect(view).to_contain_text("3 older messages are beyond the window.")
    expect(view.locator(".x-entry").last).to_contain_text("the current message")
    view.get_by_text("The prompt, word for word").click()
    expect(view.locator("pre").last).to_contain_text("Release 2.1 without surprises.")


def test_how_it_differs_from_its_last_prompt(
    open_page: OpenPage, server: PageServer, name: str
) -> None:
    server.ask("PUT", f"conversations/{name}/team", {"document": ROSTER})
    page = open_page(f"#/c/{name}/team")
    page.get_by_role("button", name="Planner model").click()
    since = page.locator("section.x-since")
    expect(since).to_contain_text("Since its last prompt")
    expect(since).to_contain_text("+3 new")
    since.get_by_text("Compare the two prompts word by word").click()
    expect(since.locator("ins").first).to_be_visible()
    assert "everyone knows" in " ".join(since.locator("ins").all_inner_texts())
    page.get_by_role("button", name="Planner model").click()
    expect(page.locator(".g-sight")).to_have_count(0)


def test_it_follows_what_is_said(open_page: OpenPage, server: PageServer, name: str) -> None:
    page = open_page(f"#/c/{name}/team")
    page.get_by_role("button", name="Planner").click()
    expect(page.locator(".g-sight")).to_contain_text("Done: everyone knows.")
    server.store.get(name).append(said("user", "A word from outside."))
    expect(page.locator(".g-sight")).to_contain_text("A word from outside.")


def test_the_team_is_run_paused_and_called_off(
    open_page: OpenPage, server: PageServer, name: str
) -> None:
    held = threading.Event()
    server.ask("PUT", f"conversations/{name}/team", {"document": ROSTER})
    text = "Plan it again. [NEXT: planner, critic]"
    server.ask("POST", f"conversations/{name}/team/say", {"text": text, "as": "lee"})
    page = open_page(f"#/c/{name}/team")
    queue = page.locator(".g-queue li")
    expect(queue).to_have_count(2)
    expect(queue.first).to_contain_text("Planner")
    expect(queue.first).to_contain_text("P2")
    server.say([held, *saying("Again, then.")])
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".g-state")).to_contain_text("Planner is speaking.")
    expect(queue).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".g-state")).to_contain_text("The team is paused")
    held.set()
    expect(page.get_by_text("Again, then.").first).to_be_visible()
    page.locator("pv-team").get_by_role("button", name="Cancel").click()
    expect(queue).to_have_count(0)
    expect(page.locator("pv-team")).to_contain_text("Nobody waits.")


def test_a_human_speaks_to_the_team_as_one_of_it(
    open_page: OpenPage, server: PageServer, name: str
) -> None:
    held = threading.Event()
    server.model.lines.clear()
    members = [*ROSTER["members"], {"kind": "human", "id": "ann", "name": "Ann"}]
    roster = {**ROSTER, "members": members}
    server.ask("PUT", f"conversations/{name}/team", {"document": roster})
    page = open_page(f"#/c/{name}")
    box = page.locator("pv-composer")
    expect(box.get_by_label("As")).to_have_value("lee")
    expect(box.get_by_role("button", name="Tools")).to_have_count(0)
    box.get_by_label("As").select_option("Ann")
    box.get_by_label("To", exact=True).select_option("Critic")
    server.say([held, *saying("It may rain. [NEXT: planner]")], saying("Then umbrellas."))
    page.get_by_role("textbox", name="Say something").fill("What can go wrong?")
    page.keyboard.press("Enter")
    asked = page.locator("pv-message[data-index='6']")
    expect(asked.locator(".who")).to_have_text("Ann")
    expect(asked.locator(".to")).to_contain_text("critic")
    expect(box).to_contain_text("Critic is speaking.")
    assert [] == violations(page, "pv-composer")
    held.set()
    expect(page.locator("pv-message[data-index='8']")).to_contain_text("Then umbrellas.")
    expect(page.locator("pv-message[data-index='7'] .who")).to_have_text("Critic")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.get_by_role("textbox", name="Say something")).to_have_value("")


def test_without_a_team_it_says_how_to_have_one(open_page: OpenPage, server: PageServer) -> None:
    server.store.create(id="alone", title="Alone").append(said("user", "Hello?"))
    page = open_page("#/c/alone/team")
    expect(page.locator("pv-team")).to_contain_text("No team works here")
    expect(page.locator("pv-team")).to_contain_text("palaver serve --team team.yaml")


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_everyone_can_use_it(
    open_page: OpenPage, name: str, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    page: Page = open_page(f"#/c/{name}/team", size=size, scheme=scheme)
    page.get_by_role("button", name="Planner").click()
    expect(page.locator(".g-sight")).to_contain_text("Since its last prompt")
    page.get_by_text("The prompt, word for word").click()
    assert violations(page, "pv-team") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
