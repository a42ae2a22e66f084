"""The command palette: everything that can be done, by name and with the keyboard alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from playwright.sync_api import expect

from tests.page.accessibility import violations

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer


def options(page: Page) -> list[str]:
    """What the palette offers."""
    return page.locator("pv-palette [role=option] .clip:first-of-type").all_inner_texts()


def test_the_palette_does_and_opens_by_name(open_page: OpenPage, server: PageServer) -> None:
    for number in range(60):  # more than the list on the left has loaded
        server.store.create(title=f"Palette sample {number}")
    said = [{"role": "user", "content": "First."}, {"role": "assistant", "content": "Second."}]
    server.store.create(said, id="palette-home", title="Home of the palette")
    page = open_page("#/c/palette-home")
    page.locator("#say").focus()
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Commands and conversations")
    expect(field).to_be_focused()
    page.keyboard.type("hist")
    first = page.locator("pv-palette [aria-selected=true]")
    expect(first).to_contain_text("History")
    assert ["g", "h"] == first.locator("kbd").all_inner_texts()
    page.keyboard.press("Enter")
    expect(page.locator("pv-history")).to_be_visible()
    expect(page.locator("pv-palette")).to_have_count(0)
    # the letters of a name, in order; the conversation is not in the list on the left
    page.keyboard.press("Control+k")
    page.keyboard.type("plt smpl 7")
    expect(first).to_contain_text("Palette sample 7")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Palette sample 7")
    page.go_back()
    expect(page.locator("h1")).to_have_text("Home of the palette")
    # actions on the message that has the focus, with their keys
    page.locator("pv-message[data-index='1']").click()
    page.keyboard.press("Control+k")
    page.keyboard.type("edit")
    expect(first).to_contain_text("Edit")
    expect(first.locator("kbd")).to_have_text("e")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator("pv-editor")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("zzzz")
    expect(page.get_by_text("Nothing found")).to_be_visible()
    field.fill("rename")
    page.keyboard.press("Enter")
    page.keyboard.type("A better name")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("A better name")
    page.keyboard.press("Control+k")
    page.keyboard.press("Control+k")
    expect(page.locator("pv-palette")).to_have_count(0)


def test_the_palette_can_be_read_by_everyone(open_page: OpenPage, server: PageServer) -> None:
    server.store.create([{"role": "user", "content": "Hi."}], id="palette-axe", title="Axe")
    looks: list[tuple[Literal["light", "dark"], str, str]] = [
        ("light", "en-US", "Dark"),
        ("dark", "zh-CN", "浅色"),
    ]
    for scheme, language, theme in looks:
        page = open_page("#/c/palette-axe", scheme=scheme, language=language)
        page.keyboard.press("Control+k")
        expect(page.locator("pv-palette [role=option]").first).to_be_visible()
        expect(page.get_by_role("option", name="Axe")).to_be_visible()
        assert theme in options(page)
        assert [] == violations(page)
