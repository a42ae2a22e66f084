"""What a page with nothing open offers: transcripts on the machine, the examples, a new start."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import palaver
from palaver.server import demo
from tests.cli.commands.test_import_discover import home
from tests.page.accessibility import violations
from tests.page.conftest import NARROW
from tests.page.server import running_server
from tests.transcripts.test_discover import ROLLOUT, SESSION

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

__all__ = ["home"]  # a fixture, found here by pytest


@pytest.fixture
def near(home: Path) -> Generator[PageServer]:
    """A server that may look at the files of its machine; its store is empty."""
    with palaver.open(home / "near.db") as store, running_server(store, discover=True) as running:
        yield running


def test_transcripts_on_the_machine_are_shown_unread_and_the_chosen_ones_imported(
    near: PageServer, open_page: OpenPage
) -> None:
    page = open_page(at=near)
    offers = page.locator("pv-welcome .offer")
    expect(offers).to_have_count(3)
    expect(offers.first).to_contain_text("Import your Claude Code sessions, and others")
    expect(offers.first).to_contain_text("Claude Code: 1 transcript, 14 kB · Codex: 1 transcript")
    expect(offers.first).to_contain_text("nothing was read")
    assert [] == violations(page)
    offers.first.click()
    dialog = page.get_by_role("dialog", name="Transcripts on this machine")
    expect(dialog.get_by_role("button", name=re.compile("^Import 3 "))).to_be_focused()
    dialog.get_by_role("checkbox", name=re.compile("^llm")).uncheck()
    dialog.get_by_text("Choose one by one").first.click()
    one = dialog.get_by_role("checkbox", name=re.compile(SESSION))
    one.uncheck()
    whole = dialog.get_by_role("checkbox", name=re.compile("^Claude Code"))
    expect(whole).not_to_be_checked()
    expect(dialog.get_by_role("button", name=re.compile("^Import 1 "))).to_be_visible()
    whole.check()
    expect(one).to_be_checked()
    assert [] == violations(page)
    assert [] == list(near.store)
    dialog.get_by_role("button", name=re.compile("^Import 2 ")).click()
    expect(page.get_by_text("3 conversations were imported")).to_be_visible()
    expect(page).to_have_url(re.compile(f"#/c/{ROLLOUT[-36:]}/history$"))
    assert {SESSION, f"{SESSION}:a7", ROLLOUT[-36:]} == {head.id for head in near.store}
    page.get_by_role("button", name="Import a file…").click()
    page.get_by_role("menuitem", name="Find transcripts on this machine…").click()
    expect(dialog).to_contain_text("1 here already")
    whole.check()
    dialog.get_by_role("checkbox", name=re.compile("^llm")).uncheck()
    dialog.get_by_role("button", name=re.compile("^Import 1 ")).click()
    expect(page.get_by_text("All of it is here already")).to_be_visible()
    page.goto(f"{near.address}/#/")
    expect(offers.first).to_contain_text("Import your llm sessions")
    expect(offers).to_have_count(2)  # the store is not empty any more


HEAR = """async ([name, conversation, version]) => {
  const loaded = performance.getEntriesByType("resource").map((one) => one.name);
  const { live } = await import(loaded.find((one) => one.includes("/core/live-events.js")));
  for (const listener of live.listeners.get(name)) listener({ conversation, version });
}"""


def test_the_example_is_opened_with_its_guide(near: PageServer, open_page: OpenPage) -> None:
    page = open_page(at=near, size=NARROW, scheme="dark")
    example = page.get_by_role("button", name="Open the example")
    expect(example).to_be_visible()
    assert [] == violations(page)
    example.click()
    expect(page).to_have_url(re.compile(f"#/c/{demo.START}$"))  # the panel would cover it
    guide = page.get_by_role("region", name="The first minute")
    expect(guide).to_contain_text("0 of 5")
    page.evaluate(HEAR, ["history.edited", demo.START, 1])  # of how it was written, told late
    page.evaluate(HEAR, ["history.rolled_back", demo.START, 10_000])
    expect(guide).to_contain_text("1 of 5")
    assert demo.TEAM in near.store
    expect(page.locator("pv-panel")).to_be_hidden()


def test_where_nothing_is_found_it_says_so(
    near: PageServer, open_page: OpenPage, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home / "nowhere"))
    page = open_page(at=near, language="zh-CN")
    expect(page.locator("pv-welcome .offer")).to_have_count(2)
    page.get_by_role("button", name="导入文件…").click()
    page.get_by_role("menuitem", name="查找本机上的会话记录…").click()
    expect(page.get_by_role("dialog")).to_contain_text("在常用位置没有找到")
    page.keyboard.press("Escape")
    page.locator("pv-welcome .offer", has_text="开始").click()
    expect(page.get_by_text("还没有任何消息")).to_be_visible()
