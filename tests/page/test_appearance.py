"""How it looks and reads: to everybody (axe), light and dark, wide and narrow, in two languages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest
from playwright.sync_api import expect

import palaver.server
from tests.page import samples
from tests.page.accessibility import unreadable, violations
from tests.page.conftest import NARROW, WIDE
from tests.page.histories import story

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

PAGE = Path(palaver.server.__file__).parent / "page"
LOOKS = pytest.mark.parametrize(
    ("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")], ids=["wide-light", "narrow-dark"]
)
Scheme = Literal["light", "dark"]
MARKUP = r"(inner|outer)HTML|insertAdjacentHTML|setHTML|document\.write|\beval\(|new Function"


def drawer(page: Page) -> None:
    """Open the list on a phone; on a wide screen it is open."""
    button = page.get_by_role("button", name="Show conversations")
    if button.is_visible():
        button.click()
        expect(page.locator("pv-sidebar")).to_be_in_viewport()


def menu(page: Page) -> None:
    """Open a message's menu."""
    row = page.locator("pv-message[data-index='0']")
    row.hover()
    row.get_by_role("button", name="More for this message").click()
    expect(page.get_by_role("menu")).to_be_visible()


def dialog(page: Page) -> None:
    """Open the help."""
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()


def chosen(page: Page) -> None:
    """Choose two messages."""
    page.evaluate("document.querySelector('pv-thread').jump(5)")
    page.keyboard.press("x")
    page.keyboard.press("j")
    expect(page.get_by_text("2 messages selected")).to_be_visible()


def past(page: Page) -> None:
    """Look at an old version."""
    page.evaluate("location.hash = '#/c/rich?at=1'")
    expect(page.get_by_text("You are looking at version 1")).to_be_visible()


OVER: Final = {
    menu: "pv-menu",
    chosen: None,  # it changes how rows look
    drawer: "pv-sidebar",
    dialog: "pv-dialog",
    past: "pv-head",
}
"""What comes over the page or beside it, and where: the rest has been looked at."""


@LOOKS
def test_axe_finds_nothing_in_the_thread(
    open_page: OpenPage, server: PageServer, size: tuple[int, int], scheme: Scheme
) -> None:
    if "rich" not in server.store:
        samples.rich(server.store)
    page = open_page("#/c/rich", size=size, scheme=scheme)
    assert [] == violations(page)
    page.evaluate("document.querySelector('pv-thread').reveal(0)")
    expect(page.locator("pv-message[data-index='0']")).to_be_in_viewport()
    page.evaluate("document.querySelectorAll('details').forEach((fold) => (fold.open = true))")
    assert [] == violations(page)
    for show, part in OVER.items():
        show(page)
        assert [] == violations(page, part), show.__name__
        page.keyboard.press("Escape")


@LOOKS
def test_axe_finds_nothing_at_the_door_and_on_an_empty_page(
    open_page: OpenPage, size: tuple[int, int], scheme: Scheme, expected: list[str]
) -> None:
    expected.append("401")
    assert [] == violations(open_page(size=size, scheme=scheme, signed_in=False))
    assert [] == violations(open_page(size=size, scheme=scheme))


def erasing(page: Page) -> None:
    """Ask to erase a message."""
    menu(page)
    page.get_by_role("menuitem", name="Erase").click()
    expect(page.get_by_role("dialog")).to_be_visible()


def cutting(page: Page) -> None:
    """Ask to delete a message."""
    menu(page)
    page.get_by_role("menuitem", name="Delete").click()
    expect(page.locator("pv-editor")).to_be_visible()


def view(name: str, settled: str) -> Callable[[Page], None]:
    """Open a view of the panel."""

    def show(page: Page) -> None:
        page.evaluate(f"location.hash = '#/c/rich/{name}'")
        expect(page.locator(settled).first).to_be_visible()

    return show


def edited(page: Page) -> None:
    """Look at the versions of a conversation with a past: a row says who said what."""
    page.evaluate("location.hash = '#/c/looks/history'")
    expect(page.locator(".h-what").filter(has_text="Snow asks for")).to_be_visible()


def asking(entry: str) -> Callable[[Page], None]:
    """Ask again, from the menu of the last message."""

    def show(page: Page) -> None:
        row = page.locator("pv-message").last
        row.hover()
        row.get_by_role("button", name="More for this message").click()
        page.get_by_role("menuitem", name=entry).click()
        expect(page.get_by_role("dialog")).to_be_visible()

    return show


def parameters(page: Page) -> None:
    """Look at the prompt and parameters of the conversation."""
    page.get_by_role("button", name="Prompt and parameters").click()
    expect(page.get_by_role("dialog")).to_be_visible()


SCENES: Final[dict[str, tuple[Callable[[Page], object], str]]] = {
    "thread": (lambda _: None, "body"),
    "menu": (menu, "pv-menu"),
    "help": (dialog, "pv-dialog"),
    "cutting": (cutting, "pv-dialog"),
    "erasing": (erasing, "pv-dialog"),
    "history": (view("history", ".h-button"), "pv-panel"),
    "tokens": (view("tokens", ".t-way"), "pv-panel"),
    "request": (view("request", "pv-request details"), "pv-panel"),
    "team": (view("team", "pv-team :is(button, p)"), "pv-panel"),
    "explain": (view("explain", "pv-explain select"), "pv-panel"),
    "chosen": (chosen, "pv-selection"),
    "past": (past, "pv-head"),
    "run": (view("run", "pv-run .run-totals"), "pv-panel"),
    "edited": (edited, "pv-panel"),
    "compare": (asking("Compare answers"), "pv-dialog"),
    "parameters": (parameters, "pv-dialog"),
}
"""Each kind of control is in one of these."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_control_can_be_read_in_each_of_its_states(
    open_page: OpenPage, server: PageServer, scheme: Scheme
) -> None:
    if "rich" not in server.store:
        samples.rich(server.store)
    if "looks" not in server.store:
        story(server.store, "looks")
    page = open_page("#/c/rich", scheme=scheme)
    page.evaluate("document.querySelector('pv-thread').reveal(0)")
    expect(page.locator("pv-message[data-index='0']")).to_be_in_viewport()
    for name, (show, part) in SCENES.items():
        show(page)
        assert {} == unreadable(page, part), name
        page.keyboard.press("Escape")


@pytest.mark.parametrize("width", [360, 390, 768, 1440])
def test_nothing_is_wider_than_the_screen(
    open_page: OpenPage, server: PageServer, width: int
) -> None:
    if "rich" not in server.store:
        samples.rich(server.store)
    page = open_page("#/c/rich", size=(width, 800))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.evaluate(
        """() => [...document.querySelectorAll("pv-thread *, pv-head *, pv-composer *")]
          .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
          .map((one) => one.outerHTML.slice(0, 80))"""
    )
    assert [] == wide


def test_on_a_phone_fingers_find_every_button(open_page: OpenPage, server: PageServer) -> None:
    if "rich" not in server.store:
        samples.rich(server.store)
    page = open_page("#/c/rich", size=NARROW)
    small = page.evaluate(
        """() => [...document.querySelectorAll(":is(pv-thread, pv-head, pv-composer) button")]
          .filter((one) => one.offsetParent)
          .map((one) => [one.getAttribute("aria-label") ?? one.textContent,
                         Math.round(one.getBoundingClientRect().height)])
          .filter(([, height]) => height < 40)"""
    )
    assert [] == [one for one in small if one[0] not in {"Deploy at dawn", "Copy"}]


def test_the_drawer_of_a_phone_opens_and_closes(open_page: OpenPage, server: PageServer) -> None:
    if "rich" not in server.store:
        samples.rich(server.store)
    page = open_page("#/c/rich", size=NARROW)
    sidebar = page.locator("pv-sidebar")
    expect(sidebar).not_to_be_in_viewport()
    drawer(page)
    page.mouse.click(380, 400)
    expect(sidebar).not_to_be_in_viewport()
    drawer(page)
    page.keyboard.press("Escape")
    expect(sidebar).not_to_be_in_viewport()
    drawer(page)
    page.locator(".conversation[data-id='rich'] a").click()
    expect(sidebar).not_to_be_in_viewport()


def test_light_dark_or_as_the_system_has_it(open_page: OpenPage) -> None:
    page = open_page(scheme="dark")
    paper = "getComputedStyle(document.querySelector('.main')).backgroundColor"
    assert "rgb(27, 29, 33)" == page.evaluate(paper)
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("menuitemradio", name="Light").click()
    assert "rgb(255, 255, 255)" == page.evaluate(paper)
    page.reload()
    expect(page.locator("pv-sidebar nav")).to_be_visible()
    assert "rgb(255, 255, 255)" == page.evaluate(paper)


def test_chinese_for_who_prefers_it_and_english_on_request(
    open_page: OpenPage, server: PageServer
) -> None:
    if "rich" not in server.store:
        samples.rich(server.store)
    page = open_page("#/c/rich", language="zh-CN")
    expect(page.get_by_placeholder("说点什么")).to_be_visible()
    expect(page.locator("pv-head")).to_contain_text("9 条消息")
    assert "zh-CN" == page.evaluate("document.documentElement.lang")
    assert [] == violations(page)
    page.get_by_role("button", name="设置").click()
    page.get_by_role("menuitemradio", name="English").click()
    expect(page.get_by_placeholder("Say something")).to_be_visible()
    expect(page.locator("pv-thread")).to_contain_text("Interrupted: this is what had arrived")
    page.reload()
    expect(page.get_by_placeholder("Say something")).to_be_visible()


def words(language: str) -> dict[str, Any]:
    """Every text of a language, by its key."""
    files = sorted((PAGE / "scripts" / "locales" / language).glob("*.json"))
    texts = [json.loads(file.read_text("utf-8")) for file in files]
    assert sum(map(len, texts)) == len({key for each in texts for key in each})  # no key twice
    return {key: text for each in texts for key, text in each.items()}


def slots(text: str | dict[str, str]) -> set[str]:
    """What a text leaves room for."""
    forms = [text] if isinstance(text, str) else list(text.values())
    return {name for form in forms for name in re.findall(r"\{(\w+)\}", form)}


def test_both_languages_say_the_same_things() -> None:
    english, chinese = words("en"), words("zh")
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        assert slots(text) == slots(chinese[key]), key
        assert chinese[key], key


def test_every_text_that_is_asked_for_is_there_and_none_is_left_over() -> None:
    known = words("en")
    scripts = "\n".join(file.read_text("utf-8") for file in sorted(PAGE.glob("scripts/**/*.js")))
    asked = set(re.findall(r"""\bt\(\s*"([^"]+)\"""", scripts))
    assert set() == asked - known.keys()
    quoted = set(re.findall(r""""([\w.-]+)\"""", scripts))
    families = tuple(re.findall(r"`([\w.-]+[.-])\$\{", scripts))
    unused = {key for key in known if key not in quoted and not key.startswith(families)}
    assert set() == unused


def test_the_page_is_made_of_small_files_without_inline_script_or_style() -> None:
    html = (PAGE / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|\bstyle=|<style|\bon\w+=", html)
    for file in sorted(PAGE.glob("**/*.js")):
        text = file.read_text("utf-8")
        assert len(text.splitlines()) < 300, file.name
        assert not re.search(MARKUP, text), file.name
        assert text.startswith("/**"), f"{file.name} does not say what it is for"
