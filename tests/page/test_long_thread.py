"""A hundred thousand messages: the page holds a few dozen, wherever the reader goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.page import samples

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

LENGTH = 100_000
MOST_ROWS = 60
MOST_NODES = 2_500
_TOP = (
    "((index) => document.querySelector(`pv-message[data-index='${index}']`)"
    ".getBoundingClientRect().top)"
)


@pytest.fixture
def long(open_page: OpenPage, server: PageServer) -> Page:
    """The page at the end of a very long conversation."""
    if "long" not in server.store:
        samples.long_talk(server.store, length=LENGTH)
    page = open_page("#/c/long")
    expect(page.locator(f"pv-message[data-index='{LENGTH - 1}']")).to_be_in_viewport()
    return page


def state(page: Page) -> dict[str, Any]:
    """What is in the page, and whether the model of heights agrees with what is drawn."""
    found: dict[str, Any] = page.evaluate(
        """() => {
          const thread = document.querySelector("pv-thread");
          const top = thread.scroller.getBoundingClientRect().top;
          const off = [...thread.rows.all].map(([index, row]) => Math.abs(
            row.getBoundingClientRect().top - top + thread.scroller.scrollTop
            - thread.heights.before(index)));
          return { rows: thread.rows.all.size, nodes: document.querySelectorAll("*").length,
                   first: thread.first, off: Math.max(...off) };
        }"""
    )
    return found


def check(page: Page) -> int:
    """The page stays small and its rows stand where they ought to; answers the first in sight."""
    now = state(page)
    assert now["rows"] <= MOST_ROWS
    assert now["nodes"] <= MOST_NODES
    assert now["off"] < 2
    return int(now["first"])


def test_top_and_end_are_a_key_away(long: Page) -> None:
    check(long)
    long.keyboard.press("g")
    long.keyboard.press("g")
    expect(long.get_by_text("Message 0.", exact=True)).to_be_in_viewport()
    assert 0 == check(long)
    long.keyboard.press("Shift+G")
    expect(long.locator(f"pv-message[data-index='{LENGTH - 1}']")).to_be_in_viewport()
    check(long)
    long.keyboard.press("g")
    long.keyboard.press("g")
    expect(long.get_by_text("Message 0.", exact=True)).to_be_in_viewport()
    long.get_by_role("button", name="To the end").click()
    expect(long.locator(f"pv-message[data-index='{LENGTH - 1}']")).to_be_in_viewport()


def test_dragging_to_the_middle_shows_what_is_there(long: Page) -> None:
    long.evaluate(
        "(s => s.scrollTop = s.scrollHeight / 2)(document.querySelector('pv-thread .scroller'))"
    )
    row = long.locator("pv-message[data-index='50000']")
    expect(row).to_contain_text("Message 50000")
    assert abs(50_000 - check(long)) < 500


def test_the_wheel_moves_what_is_seen_by_what_was_turned(long: Page) -> None:
    """Rows that turn out higher or lower than thought do not push the text about."""
    long.evaluate("document.querySelector('pv-thread').reveal(70_000)")
    expect(long.locator("pv-message[data-index='70000']")).to_contain_text("Message 70000")
    long.locator("pv-thread").hover()
    for turn in (-200, -200, -200, -200, 300, 300):
        index = check(long)
        before = after = long.evaluate(_TOP, index)
        long.mouse.wheel(0, turn)
        for _ in range(1_000):
            long.wait_for_timeout(50)
            after = long.evaluate(_TOP, index)
            if after != before:
                break
        assert abs(before - turn - after) < 2


def test_keys_walk_from_message_to_message(long: Page) -> None:
    long.evaluate("document.querySelector('pv-thread').jump(30_000)")
    expect(long.locator("pv-message[data-index='30000']")).to_be_focused()
    for _ in range(12):
        long.keyboard.press("j")
    expect(long.locator("pv-message[data-index='30012']")).to_be_focused()
    expect(long.locator("pv-message[data-index='30012']")).to_be_in_viewport()
    for _ in range(20):
        long.keyboard.press("k")
    expect(long.locator("pv-message[data-index='29992']")).to_be_in_viewport()
    check(long)


def test_rushing_past_asks_the_server_for_little(long: Page) -> None:
    asked: list[str] = []
    long.on("request", lambda request: asked.append(request.url))
    long.evaluate(
        """async () => {
          const scroller = document.querySelector("pv-thread .scroller");
          for (let step = 0; step < 60; step++) {
            scroller.scrollTop = (scroller.scrollHeight * step) / 60;
            await new Promise(requestAnimationFrame);
          }
        }"""
    )
    index = check(long)
    expect(long.locator(f"pv-message[data-index='{index}']")).to_contain_text(f"Message {index}")
    assert (
        len([url for url in asked if "/messages" in url]) < 60
    )  # of the 120 pages that were passed, and 2,000 that there are


def test_heights_agree_with_a_plain_list(page: Page) -> None:
    """The sparse tree that knows how high the list is, against sums that anyone can follow."""
    wrong = page.evaluate(
        """async () => {
          const { Heights } = await import("/page/scripts/thread/row-heights.js");
          let seed = 7;
          const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
          const wrong = [];
          for (let round = 0; round < 40; round++) {
            let plain = Array(1 + random(70)).fill(100);
            let heights = new Heights(plain.length, 100);
            for (let step = 0; step < 60; step++) {
              if (random(10) === 0) {
                plain = [...plain, ...Array(random(40)).fill(100)];
                heights = heights.grown(plain.length);
              }
              const row = random(plain.length);
              plain[row] = 1 + random(300);
              heights.learn(row, plain[row]);
              const before = (index) => plain.slice(0, index).reduce((a, b) => a + b, 0);
              const at = random(plain.length + 1);
              const offset = random(before(plain.length));
              let found = 0;
              while (before(found + 1) <= offset) found++;
              if (heights.before(at) !== before(at)) wrong.push(["before", at]);
              if (heights.rowAt(offset) !== found) wrong.push(["rowAt", offset]);
              if (heights.total !== before(plain.length)) wrong.push(["total"]);
            }
          }
          return wrong;
        }"""
    )
    assert [] == wrong


def test_a_list_of_millions_fits_into_what_a_browser_can_draw(page: Page) -> None:
    total = page.evaluate(
        """async () => {
          const { Heights } = await import("/page/scripts/thread/row-heights.js");
          return new Heights(5_000_000, 110).total;
        }"""
    )
    assert total <= 15_000_001
