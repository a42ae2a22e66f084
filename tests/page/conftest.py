"""A browser that looks at a real server. A page that complains about anything fails its test.

One Chromium serves the whole folder; every test has a fresh profile in it. What a test provokes on
purpose (a refusal, a lost connection) it names in `forgiven`.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

import palaver
from tests.page.server import TOKEN, PageServer, running_server

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playwright.sync_api import ConsoleMessage, Request

INSTALL = (
    "the tests of the page need Chromium: "
    "sudo apt-get install chromium-headless-shell fonts-noto-cjk"
)
WIDE = (1440, 900)
NARROW = (390, 844)
_PATIENCE = 60_000
"""How long something may take to be seen, in milliseconds, on a machine that is busy."""
_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""


class Addressed(Protocol):
    """A server that a page can be opened at."""

    address: str


class OpenPage(Protocol):
    """Opens the page at a place, in a profile of its own."""

    def __call__(
        self,
        place: str = "#/",
        *,
        at: Addressed | None = None,
        size: tuple[int, int] = WIDE,
        scheme: Literal["light", "dark"] = "light",
        language: str = "en-US",
        signed_in: bool = True,
    ) -> Page: ...


@pytest.fixture(scope="package")
def chromium() -> Generator[Browser]:
    """The browser. Of the whole folder and no longer: it keeps a loop in this thread."""
    # the one without windows starts twice as fast
    found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if found is None:
        pytest.fail(INSTALL)
    expect.set_options(timeout=_PATIENCE)
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        args = ["--no-sandbox"] if root else []
        browser = playwright.chromium.launch(executable_path=found, args=args)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[PageServer]:
    """A server whose store is the folder's: tests give their conversations names of their own."""
    path: Path = tmp_path_factory.mktemp("page") / "page.db"
    with palaver.open(path) as store, running_server(store) as running:
        yield running


@pytest.fixture
def expected() -> list[str]:
    """Patterns of complaints that a test expects."""
    return []


@pytest.fixture
def open_page(chromium: Browser, server: PageServer, expected: list[str]) -> Generator[OpenPage]:
    """Open pages; at the end, whatever they complained about fails the test."""
    server.model.lines.clear()  # of a test that did not hear all of them
    server.model.asked.clear()
    complaints: list[str] = []
    contexts: list[Any] = []

    def open_page(
        place: str = "#/",
        *,
        at: Addressed | None = None,
        size: tuple[int, int] = WIDE,
        scheme: Literal["light", "dark"] = "light",
        language: str = "en-US",
        signed_in: bool = True,
    ) -> Page:
        where = (at or server).address
        context = chromium.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            locale=language,
            permissions=["clipboard-read", "clipboard-write"],
            reduced_motion="reduce",
        )
        context.set_default_timeout(_PATIENCE)
        context.add_init_script(_VIOLATIONS)
        contexts.append(context)
        if signed_in:
            answer = context.request.post(f"{where}/api/session", data={"token": TOKEN})
            assert answer.ok, answer.text()
        page = context.new_page()
        _listen(page, complaints)
        page.goto(f"{where}/{place}")
        page.wait_for_selector(
            "pv-message .message-body, pv-welcome:not([hidden]) :is(h1, h2), pv-login form"
            if place.startswith("#/c/")
            else "pv-sidebar nav, pv-login form",
            state="attached",
        )
        return page

    yield open_page
    for context in contexts:
        context.close()
    left = [each for each in complaints if not any(re.search(one, each) for one in expected)]
    assert not left


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """The page, wide and light, with nothing open."""
    return open_page()


def _listen(page: Page, complaints: list[str]) -> None:
    def said(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            complaints.append(f"console: {message.text} {message.location.get('url', '')}")

    def broke(error: Error) -> None:
        complaints.append(f"error: {error.message} {error.stack}")

    def lost(request: Request) -> None:
        # what the page itself calls off (a search that was typed over) is no failure
        if request.failure != "net::ERR_ABORTED":
            complaints.append(f"request: {request.url} {request.failure}")

    page.on("console", said)
    page.on("pageerror", broke)
    page.on("requestfailed", lost)
