"""The history as a picture: what a reader sees of the past, and how they get back to it."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect

import palaver
from tests.conversation.scripted import saying
from tests.page.accessibility import violations
from tests.page.conftest import NARROW, WIDE
from tests.page.histories import said, story
from tests.page.server import running_server

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page, Route

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

_numbers = itertools.count()


@pytest.fixture
def name(server: PageServer) -> str:
    """A conversation with a past, which no other test knows."""
    conversation = f"past-{next(_numbers)}"
    story(server.store, conversation)
    return conversation


@pytest.fixture
def page(open_page: OpenPage, name: str) -> Page:
    """The page with its history open."""
    return open_page(f"#/c/{name}/history")


def row(page: Page, version: int) -> Locator:
    """The row of a version."""
    return page.locator(f".h-button[data-version='{version}']")


def rows(page: Page) -> list[str]:
    """The numbers of the rows, from the top."""
    expect(row(page, 0)).to_be_attached()
    return page.locator(".h-number").all_inner_texts()


def test_versions_stand_newest_first_and_plain_additions_are_one(page: Page) -> None:
    assert ["16", "15", "14", "13", "12", "11", "10", "9", "8", "1\N{EN DASH}7", "0"] == rows(page)
    expect(row(page, 9)).to_contain_text("Replaced message 3")
    expect(row(page, 10)).to_contain_text("Inserted before message 5")
    expect(row(page, 7)).to_contain_text("7 messages added")
    expect(row(page, 16)).to_contain_text("now")
    expect(row(page, 15)).to_contain_text("Went back: as in version 9")


def test_a_row_says_the_first_words_of_what_was_added(page: Page) -> None:
    expect(row(page, 16)).to_contain_text("assistant Snow asks for a spiced black tea.")


def test_the_bookkeeping_of_a_step_is_not_among_what_was_said(
    page: Page, server: PageServer, name: str
) -> None:
    server.say(saying("Mint."))
    server.ask("POST", f"conversations/{name}/step", {"text": "And now?"})
    expect(row(page, 18)).to_contain_text("now")
    expect(row(page, 18).locator(".h-what")).to_have_text("assistant Mint.")


def test_what_was_left_behind_is_faded_and_drawn_beside_the_line(page: Page) -> None:
    rows(page)
    left = page.locator(".h-version.left .h-number").all_inner_texts()
    assert left == ["14", "13", "12", "11", "10"]
    expect(page.locator("svg .h-dot.left")).to_have_count(5)
    expect(page.locator("svg .h-line.left")).to_have_count(2)
    expect(page.locator("svg .h-line.back")).to_have_count(1)


def test_every_dot_stands_at_the_height_of_its_row(page: Page) -> None:
    rows(page)
    heights = page.evaluate(
        """() => [...document.querySelectorAll(".h-button")].map((button) => {
            const box = button.getBoundingClientRect();
            return box.top + box.height / 2;
        })"""
    )
    dots = page.evaluate(
        """() => [...document.querySelectorAll("svg .h-dot:not(.fork)")].map((dot) => {
            const box = dot.getBoundingClientRect();
            return box.top + box.height / 2;
        })"""
    )
    assert len(heights) == len(dots)
    assert all(abs(one - other) <= 1 for one, other in zip(heights, dots, strict=True))


def test_batches_begin_where_an_edit_was_made(page: Page) -> None:
    rows(page)
    begun = page.locator(".h-batch").all_inner_texts()
    assert begun == ["Batch 3 begins", "Batch 2 begins", "Batch 1 begins"]


def test_a_run_opens_into_its_versions(page: Page) -> None:
    row(page, 7).click()
    expect(row(page, 3)).to_be_visible()
    expect(row(page, 7)).to_be_focused()


def test_pointing_shows_what_changed_and_leaving_hides_it(page: Page) -> None:
    row(page, 9).hover()
    card = page.get_by_role("tooltip")
    expect(card).to_contain_text("+1 added")
    expect(card).to_contain_text("1 removed")
    expect(card).to_contain_text("which tea goes with heavy rain")
    page.mouse.move(400, 400)
    expect(card).to_be_hidden()


def test_the_keyboard_walks_the_versions_and_shows_what_changed(page: Page) -> None:
    rows(page)
    row(page, 16).focus()
    page.keyboard.press("ArrowLeft")
    expect(row(page, 15)).to_be_focused()
    for _ in range(6):
        page.keyboard.press("ArrowDown")
    expect(row(page, 9)).to_be_focused()
    expect(page.get_by_role("tooltip")).to_contain_text("1 removed")
    page.keyboard.press("ArrowRight")
    expect(row(page, 10)).to_be_focused()
    page.keyboard.press("End")
    expect(row(page, 0)).to_be_focused()
    page.keyboard.press("Home")
    expect(row(page, 16)).to_be_focused()


def test_a_click_shows_that_version_in_the_thread(page: Page) -> None:
    row(page, 12).click()
    expect(page.get_by_text("You are looking at version 12 of 16")).to_be_visible()
    expect(page.locator("pv-message")).to_have_count(2)
    expect(row(page, 12)).to_have_attribute("aria-current", "true")
    page.locator(".h-bar").get_by_role("button", name="Show now").click()
    expect(page.locator("pv-message")).to_have_count(9)


def test_one_button_goes_back_and_one_comes_back(page: Page, server: PageServer, name: str) -> None:
    row(page, 12).click()
    page.locator(".h-bar").get_by_role("button", name="Go back to this version").click()
    expect(row(page, 17)).to_contain_text("Went back: as in version 12")
    expect(page.locator("pv-message")).to_have_count(2)
    assert len(server.store.get(name)) == 2
    page.get_by_role("toolbar").get_by_role("button", name="Redo").click()
    expect(row(page, 18)).to_contain_text("now")
    expect(page.locator("pv-message")).to_have_count(9)
    assert len(server.store.get(name)) == 9


def test_a_press_is_a_click_though_something_happens_meanwhile(
    page: Page, server: PageServer, name: str
) -> None:
    rows(page)
    box = page.get_by_role("toolbar").get_by_role("button", name="Undo").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    with page.expect_response(re.compile("/versions")):
        server.store.get(name).append(said("user", "Said while a button was held down."))
    expect(page.locator("pv-message")).to_have_count(10)
    page.mouse.up()
    expect(row(page, 18)).to_contain_text("Undone: as in version 16")


def test_undo_and_redo(page: Page, server: PageServer, name: str) -> None:
    tools = page.get_by_role("toolbar")
    expect(tools.get_by_role("button", name="Redo")).to_be_disabled()
    tools.get_by_role("button", name="Undo").click()
    expect(row(page, 17)).to_contain_text("Undone: as in version 15")
    assert len(server.store.get(name)) == 8
    expect(row(page, 16).locator("xpath=..")).to_have_class(re.compile("left"))
    tools.get_by_role("button", name="Redo").click()
    expect(row(page, 18)).to_contain_text("now")
    assert len(server.store.get(name)) == 9


def test_a_fork_is_a_branch_that_leads_to_it_and_back(page: Page, name: str) -> None:
    branch = page.locator(".h-fork a")
    expect(branch).to_contain_text(f"{name}-fork")
    expect(page.locator("svg .h-line.fork")).to_have_count(1)
    branch.click()
    expect(page.get_by_text("In the fork: hot chocolate.").first).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("h")
    came_from = page.locator(".h-parent a")
    expect(page.locator(".h-parent")).to_contain_text("Forked at version 8 from")
    came_from.click()
    expect(page.locator("pv-message")).to_have_count(9)


def test_a_fork_begins_at_the_chosen_version(page: Page, server: PageServer, name: str) -> None:
    row(page, 12).click()
    page.locator(".h-bar").get_by_role("button", name="Fork here").click()
    page.wait_for_url(re.compile(rf"#/c/(?!{name})"))
    expect(page.locator("pv-message")).to_have_count(2)
    assert len(server.store.get(name)) == 9


def test_what_is_still_drawn_of_another_conversation_does_nothing(
    page: Page, server: PageServer, name: str
) -> None:
    fork = server.store.get(name).fork(at=3)
    held: list[Route] = []
    page.route(f"**/api/conversations/{fork.id}/versions**", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks it
    page.evaluate(
        """async id => {
            const undo = document.querySelector("pv-history [data-focus=undo]");
            const row = document.querySelector(".h-button[data-version='12']");
            const gone = new Promise(done => addEventListener("hashchange", done, {once: true}));
            location.hash = `#/c/${id}/history`;
            await gone;
            undo.click();
            row.dispatchEvent(new PointerEvent("pointerenter"));
        }""",
        fork.id,
    )
    expect(page.locator("pv-message")).to_have_count(len(fork))
    page.wait_for_timeout(300)  # longer than a card waits
    for one in held:
        one.continue_()
    expect(row(page, 12)).to_have_count(0)
    assert fork.version == server.store.get(fork.id).version


def test_two_versions_are_picked_and_compared(page: Page, name: str) -> None:
    row(page, 8).click()
    page.locator(".h-bar").get_by_role("button", name="Compare with…").click()
    expect(page.get_by_text("Choose another version to compare with version 8")).to_be_visible()
    row(page, 9).click()
    page.wait_for_url(f"**/#/c/{name}/diff/8..9**")
    expect(page.locator(".d-step")).to_have_count(1)


def test_escape_ends_the_picking(page: Page) -> None:
    row(page, 8).click()
    page.locator(".h-bar").get_by_role("button", name="Compare with…").click()
    expect(page.locator(".h-halo.picked")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".h-halo.picked")).to_have_count(0)
    expect(page.locator("pv-history")).to_be_visible()


def test_shift_and_a_click_compare_at_once(page: Page, name: str) -> None:
    row(page, 12).click(modifiers=["Shift"])
    page.wait_for_url(f"**/#/c/{name}/diff/12..16**")


def test_what_others_do_appears(page: Page, server: PageServer, name: str) -> None:
    rows(page)
    server.store.get(name).append(said("user", "I came from elsewhere."))
    expect(row(page, 17)).to_contain_text("I came from elsewhere.")
    expect(row(page, 17)).to_contain_text("now")


def test_the_reader_stays_where_they_were_when_others_write(
    page: Page, server: PageServer, name: str
) -> None:
    rows(page)
    row(page, 9).focus()
    server.store.get(name).append(said("user", "Elsewhere again."))
    expect(row(page, 17)).to_be_visible()
    expect(row(page, 9)).to_be_focused()


def test_a_long_past_stays_short_and_older_versions_can_be_had(
    open_page: OpenPage, server: PageServer
) -> None:
    history = server.store.create(id="long-past", title="Long")
    history.extend(said("user", f"line {number}") for number in range(3))
    for number in range(560):
        if number % 40 == 39:
            changed = {"role": "user", "content": f"changed {number}"}
            history.execute({"operation": "REPLACE", "index": 1, "message": changed})
        else:
            history.append(said("user", f"more {number}"))
    page = open_page("#/c/long-past/history")
    expect(row(page, history.version)).to_be_visible()
    assert page.locator(".h-button").count() < 30
    expect(row(page, 1)).to_have_count(0)
    page.get_by_role("button", name="Show older versions").click()
    expect(row(page, 0)).to_be_attached()
    expect(page.get_by_role("button", name="Show older versions")).to_have_count(0)


def test_nothing_can_be_changed_where_the_server_only_reads(
    open_page: OpenPage, tmp_path: Path
) -> None:
    with palaver.open(tmp_path / "read.db") as store:
        story(store)
        with running_server(store, read_only=True) as quiet:
            page = open_page("#/c/story/history", at=quiet)
            tools = page.get_by_role("toolbar")
            for button in ("Undo", "Redo", "Edit history…"):
                expect(tools.get_by_role("button", name=button)).to_be_disabled()
            row(page, 9).click()
            back = page.get_by_role("button", name="Go back to this version")
            expect(back).to_be_disabled()
            page.close()  # before the server goes: it would wait for the page's stream


def test_a_failure_is_said_and_can_be_tried_again(
    open_page: OpenPage, name: str, expected: list[str]
) -> None:
    expected.append("status of 500")
    page = open_page(f"#/c/{name}")
    broken = "**/versions*"
    page.route(broken, lambda route: route.fulfill(status=500, json={"detail": "out of tea"}))
    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page.get_by_role("alert")).to_contain_text("out of tea")
    page.unroute(broken)
    page.get_by_role("button", name="Try again").click()
    expect(row(page, 16)).to_be_visible()


def test_it_speaks_chinese(open_page: OpenPage, name: str) -> None:
    page = open_page(f"#/c/{name}/history", language="zh-CN")
    expect(row(page, 9)).to_contain_text("替换了消息 3")
    expect(page.get_by_role("button", name="撤销").last).to_be_visible()


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_everyone_can_use_it(
    open_page: OpenPage, name: str, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    page = open_page(f"#/c/{name}/history", size=size, scheme=scheme)
    row(page, 9).click()
    expect(page.locator(".h-bar")).to_contain_text("1 removed")
    assert violations(page, "pv-history") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
