"""Whether everyone can use what is on the screen: axe's rules, on the page or a part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["violations"]


def violations(page: Page, part: str | None = None) -> list[str]:
    """What axe has against a part of the page, or all of it.

    Its copy of the styles is left out: it would write them into the page, which the page's policy
    forbids.
    """
    found = Axe().run(page, context=part, options={"preload": False}).response["violations"]
    return [f"{one['id']}: {node['html']}" for one in found for node in one["nodes"]]
