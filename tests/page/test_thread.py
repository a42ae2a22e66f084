"""Reading a thread: every kind of part, who speaks to whom, and nothing in a text that acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.page import samples

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer


@pytest.fixture
def rich(open_page: OpenPage, server: PageServer) -> Page:
    """The page with a conversation of every kind of part."""
    if "rich" not in server.store:
        samples.rich(server.store)
    page = open_page("#/c/rich")
    page.keyboard.press("g")
    page.keyboard.press("g")
    expect(page.locator("pv-message[data-index='0']")).to_be_in_viewport()
    return page


SHOWN = [
    ["System", "Be brief, and check before you act."],
    ["User", "Is the **checkout** service healthy?"],
    ["claude-sonnet-5-5", "http_get", "2,228 tokens in, 119 out · 1,024 from cache · $0.0042"],
    ["Tool", "GET /health", "completed · 342 ms", '"status": "degraded"', "trace.log"],
    ["decision", "It is degraded"],
    ["dashboard.png", "worker.py"],
    ["drain_queue", "error · 12.4 s", "permission denied: drain needs an operator"],
    ["An operator could", "Interrupted: this is what had arrived"],
    ["Compacted", "attempt 2", "Task for reader", "2 files changed", "Snapshot", "hologram"],
]


def test_every_part_is_shown(rich: Page) -> None:
    for index, texts in enumerate(SHOWN):
        rich.keyboard.press("j")
        row = rich.locator(f"pv-message[data-index='{index}']")
        expect(row).to_be_in_viewport()
        for text in texts:
            expect(row).to_contain_text(text)


def test_a_picture_that_came_with_the_message_is_drawn(rich: Page) -> None:
    picture = rich.locator("img.picture")
    picture.scroll_into_view_if_needed()
    expect(picture).to_have_js_property("naturalWidth", 240)


def test_reasoning_is_folded_until_it_is_opened(rich: Page) -> None:
    thought = rich.get_by_text("The health endpoint answers first")
    expect(thought).to_be_hidden()
    rich.get_by_text("Reasoned for 2.1 s").click()
    expect(thought).to_be_visible()


def test_code_is_set_as_code_and_can_be_copied(rich: Page) -> None:
    block = rich.locator("pv-message[data-index='4'] .code-block")
    block.scroll_into_view_if_needed()
    code = "def drain(queue):\n    while queue:\n        queue.pop().retry()"
    expect(block.locator("pre")).to_have_text(code, use_inner_text=True)
    expect(block.locator(".code-head")).to_have_text("python")
    block.get_by_role("button", name="Copy").click()
    assert code == rich.evaluate("navigator.clipboard.readText()")


def test_an_address_of_the_web_is_a_link_that_tells_nobody_where_it_came_from(rich: Page) -> None:
    link = rich.get_by_role("link", name="https://example.org/runbook")
    expect(link).to_have_attribute("href", "https://example.org/runbook")  # not the full stop
    expect(link).to_have_attribute("rel", "noreferrer noopener")
    expect(link).to_have_attribute("target", "_blank")


def test_an_image_or_file_on_disk_is_named_and_not_fetched(rich: Page) -> None:
    file = rich.locator("pv-message[data-index='5'] .file", has_text="worker.py")
    expect(file).to_be_attached()
    expect(file.locator("a, img")).to_have_count(0)


def test_a_team_talk_says_who_speaks_to_whom(open_page: OpenPage, server: PageServer) -> None:
    samples.team_talk(server.store, "talk-of-three")
    page = open_page("#/c/talk-of-three")
    rows = page.locator("pv-message .message-head")
    expect(rows.nth(0)).to_contain_text("Lee")
    expect(rows.nth(1).locator(".who")).to_have_text("Planner")
    expect(rows.nth(1).locator(".to")).to_have_text("coder, critic")
    expect(rows.nth(2).locator(".to")).to_have_count(0)


def test_mischief_is_shown_letter_by_letter(open_page: OpenPage, server: PageServer) -> None:
    samples.mischief(server.store)
    asked: list[str] = []
    page = open_page("#/c/mischief")
    page.on("request", lambda request: asked.append(request.url))
    page.keyboard.press("g")
    page.keyboard.press("g")
    thread = page.locator("pv-thread")
    for index, text in enumerate(samples.MISCHIEF[:6], 1):
        row = thread.locator(f"pv-message[data-index='{index}']")
        row.scroll_into_view_if_needed()
        expect(row.locator(".text")).to_have_text(text)
        expect(row.locator("pre")).to_have_text(text)
    page.evaluate("document.querySelectorAll('details').forEach((fold) => (fold.open = true))")
    expect(page.locator("pv-head h1")).to_have_text(samples.MISCHIEF[1])
    page.locator("textarea").fill("<b>")
    page.get_by_placeholder("Search titles and texts").fill("onerror")
    expect(page.locator(".hit").first).to_contain_text("<img src=x onerror")
    page.wait_for_timeout(200)
    assert page.evaluate("window.__pwned") is None
    expect(page.locator("pv-app :is(script, iframe, object, [onerror], [onload])")).to_have_count(0)
    expect(page.locator("a[href^='javascript'], a[href^='data']")).to_have_count(0)
    assert [] == [url for url in asked if not url.startswith(server.address)]


def test_a_huge_text_is_cut_until_the_reader_asks(open_page: OpenPage, server: PageServer) -> None:
    text = "all work and no play " * 40_000
    server.store.create([{"role": "user", "content": text}], id="huge", title="Huge")
    page = open_page("#/c/huge")
    body = page.locator("pv-message .prose")
    more = page.get_by_role("button", name="Show all 840,000 characters")
    expect(more).to_be_visible()
    assert len(body.inner_text()) < 10_000
    more.click()
    expect(more).to_be_hidden()
    assert len(text.rstrip()) == len(body.locator(".text").text_content() or "")
