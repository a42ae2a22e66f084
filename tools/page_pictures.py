"""Pictures of the page, light and dark: a real server, the example store, a real browser.

The store is sown with fixed times, so the pictures change only when the page does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from playwright.sync_api import sync_playwright

from tools.palette import reduced

if TYPE_CHECKING:
    from collections.abc import Generator

    from playwright.sync_api import Browser, Page

__all__ = ["SHOTS", "Shot", "take_all"]

_WIDE: Final = (1280, 800)
_PHONE: Final = (390, 800)
_SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
_CALM: Final = 600
"""How long a page is left alone before it is taken, in milliseconds."""


class Shot(NamedTuple):
    """One view: its name, where it is, the message at the top, the keys to press, and its size."""

    name: str
    place: str
    top: int | None = None
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = _WIDE


_NO_GUIDE: Final = """localStorage.setItem("palaver.minute", '{"done": [], "hidden": true}')"""

SHOTS: Final = (
    Shot("page", "#/c/trip-to-lisbon/history", 1),
    Shot("page-edit", "#/c/trip-to-lisbon", 2, ("x", "j", "j", "d")),
    Shot("page-tokens", "#/c/trip-to-lisbon/tokens", 1),
    Shot("page-request", "#/c/broken-history/request"),
    Shot("page-team", "#/c/review-team/team"),
    Shot("page-phone", "#/c/trip-to-lisbon", 1, size=_PHONE),
)


def take_all(folder: Path) -> None:
    """Take every picture, in both schemes."""
    with _served() as entrance, sync_playwright() as playwright:
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=found, args=args)
        desk = browser.new_page()
        for shot in SHOTS:
            for scheme in _SCHEMES:
                taken = _take(browser, entrance, shot, scheme)
                (folder / f"{shot.name}-{scheme}.png").write_bytes(reduced(desk, taken))
        browser.close()


def _take(browser: Browser, entrance: str, shot: Shot, scheme: Literal["light", "dark"]) -> bytes:
    width, height = shot.size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        locale="en-US",
        timezone_id="UTC",
        reduced_motion="reduce",
    )
    context.add_init_script(_NO_GUIDE)
    page = context.new_page()
    page.goto(entrance)
    page.wait_for_selector("pv-sidebar nav", state="attached")
    page.evaluate("place => { location.hash = place }", shot.place)
    page.wait_for_selector("pv-message .message-body")
    _act(page, shot)
    taken = page.screenshot()
    context.close()
    return taken


def _act(page: Page, shot: Shot) -> None:
    if shot.top is not None:
        go = "jump" if shot.keys else "reveal"
        page.evaluate(f"document.querySelector('pv-thread').{go}({shot.top})")
    for key in shot.keys:
        page.keyboard.press(key)
    page.wait_for_timeout(_CALM)


@contextmanager
def _served() -> Generator[str]:
    """The example store behind `palaver serve`; gives the address with the token."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        command = [
            str(Path(sys.executable).with_name("palaver")),
            *("serve", "--json", "--seed", "--cold"),
            *("--port", "0", "--store", f"{place}/example.db", "--token-file", f"{place}/token"),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                said = server.stdout.readline() if server.stdout else ""
                yield json.loads(said)["page"]
            finally:
                server.terminate()
