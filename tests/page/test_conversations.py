"""The list of conversations: find one, begin one, name it, tag it, delete it, see what goes on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from playwright.sync_api import expect

import palaver
from tests.conversation.scripted import saying
from tests.page import samples
from tests.page.server import running_server

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer


def menu(page: Page, name: str, entry: str) -> None:
    """Choose something from a conversation's menu."""
    place = page.locator(f".conversation[data-id='{name}']")
    place.hover()
    place.locator(".row-menu").click()
    page.get_by_role("menuitem", name=entry).click()


def test_search_finds_titles_and_what_was_said(open_page: OpenPage, server: PageServer) -> None:
    store = server.store
    store.create(id="alps", title="Walks in the Alps")
    said = [{"role": "user", "content": f"line {n}"} for n in range(120)]
    said[60] = {"role": "user", "content": "Bring the purple umbrella, please."}
    store.create(said, id="rain", title="Weather")
    page = open_page()
    field = page.get_by_role("searchbox", name="Search titles and texts")
    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.type("in the alps")
    expect(page.locator(".conversation .name")).to_have_text(["Walks in the Alps"])
    field.fill("purple umbrella")
    hit = page.locator(".hit")
    expect(hit).to_contain_text("Weather")
    expect(hit.locator("mark")).to_have_text(["purple", "umbrella"])
    hit.get_by_role("button").click()
    found = page.locator("pv-message[data-index='60']")
    expect(found).to_be_in_viewport()
    expect(found).to_be_focused()
    field.fill("no such words anywhere")
    expect(page.get_by_text("Nothing found")).to_be_visible()


def test_a_search_in_an_encrypted_store_says_that_it_is_off(
    open_page: OpenPage, tmp_path: Path, expected: list[str]
) -> None:
    expected.append("409")
    with palaver.open(tmp_path / "sealed.db", key=palaver.Key.generate()) as store:
        store.create([{"role": "user", "content": "Tea?"}], title="Drinks")
        with running_server(store) as encrypted:
            page = open_page(at=encrypted)
            expect(page.locator(".conversation .name")).to_have_text(["Drinks"])
            page.get_by_role("searchbox", name="Search titles and texts").fill("tea")
            expect(page.locator(".toast")).to_contain_text("search is off")
            page.context.close()


def test_what_is_no_longer_there_is_found_where_it_was(
    open_page: OpenPage, server: PageServer
) -> None:
    history = server.store.create(id="search-gone", title="Gone")
    history.append({"role": "user", "content": "Bring the vermilion kettle."})
    history.append({"role": "assistant", "content": "I shall."})
    history.execute({"operation": "TRUNCATE", "keepLast": 1})
    page = open_page()
    page.get_by_role("searchbox", name="Search titles and texts").fill("vermilion kettle")
    hit = page.locator(".hit")
    expect(hit).to_contain_text("in version 2")
    hit.get_by_role("button").click()
    expect(page.get_by_text("You are looking at version 2")).to_be_visible()
    expect(page.locator("pv-message[data-index='0']")).to_contain_text("vermilion kettle")


def test_the_arrows_walk_through_what_was_found(open_page: OpenPage, server: PageServer) -> None:
    for name in ("lynx-one", "lynx-two"):
        said = {"role": "user", "content": "The lynx sleeps."}
        server.store.create([said], id=name, title=name)
    page = open_page()
    page.keyboard.press("/")
    page.keyboard.type("lynx")
    expect(page.locator(".hit")).to_have_count(2)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".conversation > a").first).to_be_focused()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(page.locator(".hit > button").last).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.locator(".hit > button").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("pv-thread")).to_contain_text("The lynx sleeps.")


def test_a_conversation_is_called_by_its_first_user_line_and_a_fork_says_so(
    open_page: OpenPage, server: PageServer
) -> None:
    said = [
        ("system", "Be brief."),
        ("user", "Which tea goes with fog?\nThink."),
        ("assistant", "Assam."),
    ]
    history = server.store.create(
        [{"role": role, "content": text} for role, text in said], id="called-so"
    )
    page = open_page(f"#/c/{history.id}")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Which tea goes with fog?")
    row = page.locator(".conversation[data-id='called-so']")
    expect(row.locator(".name")).to_have_text("Which tea goes with fog?")
    for title in ("Which tea goes with fog? (fork)", "Which tea goes with fog? (fork 2)"):
        message = page.locator("pv-message[data-index='2']")
        message.hover()
        message.get_by_role("button", name="More for this message").click()
        page.get_by_role("menuitem", name="Fork here").click()
        expect(heading).to_have_text(title)


def test_a_new_conversation_is_ready_to_be_written_to(page: Page) -> None:
    page.keyboard.press("n")
    expect(page.get_by_text("Nothing was said yet")).to_be_visible()
    expect(page.get_by_role("textbox", name="Say something")).to_be_focused()
    expect(page.locator(".conversation a[aria-current]")).to_have_count(1)


def test_a_conversation_is_renamed_everywhere(open_page: OpenPage, server: PageServer) -> None:
    server.store.create(id="renamed", title="Before")
    page = open_page("#/c/renamed")
    menu(page, "renamed", "Rename…")
    dialog = page.get_by_role("dialog", name="Rename…")
    expect(dialog.get_by_role("textbox")).to_have_value("Before")
    dialog.get_by_role("textbox").fill("After")
    page.keyboard.press("Enter")
    expect(page.locator("pv-head h1")).to_have_text("After")
    expect(page.locator(".conversation[data-id='renamed'] .name")).to_have_text("After")
    assert "After" == server.ask("GET", "conversations/renamed")["title"]


def test_tags_are_given_and_narrow_the_list(open_page: OpenPage, server: PageServer) -> None:
    server.store.create(id="tagged", title="Tagged")
    page = open_page("#/c/tagged")
    menu(page, "tagged", "Tags…")
    page.get_by_role("dialog").get_by_role("textbox").fill("urgent, home,urgent")
    page.keyboard.press("Enter")
    place = page.locator(".conversation[data-id='tagged']")
    expect(place.locator(".chip.tag")).to_have_text(["urgent", "home"])
    place.get_by_role("button", name="Only those tagged urgent").click()
    expect(page.locator(".conversation")).to_have_count(1)
    page.locator(".conversations > .chip").click()
    expect(page.locator(".conversation").nth(1)).to_be_visible()


def test_an_owner_is_shown_and_narrows_the_list(open_page: OpenPage, server: PageServer) -> None:
    for name, owner in (("hers", "anna"), ("his", "jim"), ("nobodys", None)):
        server.store.create(id=name, title=name, owner=owner)
    page = open_page("#/c/hers")
    rows = page.locator(".conversation")
    place = page.locator(".conversation[data-id='hers']")
    expect(page.locator(".conversation[data-id='nobodys']")).to_be_visible()
    expect(page.locator(".conversation[data-id='nobodys'] .chip.tag")).to_have_count(0)
    expect(place.locator(".chip.tag")).to_have_text(["@anna"])
    place.get_by_role("button", name="Only those of anna").click()
    expect(page.locator(".conversation[data-id='his']")).to_have_count(0)
    expect(rows).to_have_count(1)
    page.locator(".conversations > .chip.accent").click()
    expect(page.locator(".conversation[data-id='his']")).to_be_visible()


def test_deleting_asks_first(open_page: OpenPage, server: PageServer) -> None:
    server.store.create([{"role": "user", "content": "keep me"}], id="doomed", title="Doomed")
    page = open_page("#/c/doomed")
    menu(page, "doomed", "Delete…")
    dialog = page.get_by_role("dialog", name="Delete…")
    expect(dialog).to_contain_text("“Doomed” with 1 message and all its versions will be gone.")
    dialog.get_by_role("button", name="Cancel").click()
    assert "doomed" in server.store
    menu(page, "doomed", "Delete…")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.locator(".toast")).to_contain_text("Deleted “Doomed”")
    expect(page.locator(".conversation[data-id='doomed']")).to_have_count(0)
    expect(page.get_by_role("heading", name="Pick a conversation")).to_be_visible()
    assert "doomed" not in server.store


def test_one_that_others_hang_on_is_kept_and_the_page_says_why(
    open_page: OpenPage, server: PageServer, expected: list[str]
) -> None:
    expected.append("409")
    history = server.store.create([{"role": "user", "content": "a"}], id="parent", title="Parent")
    history.fork(id="child")
    page = open_page("#/c/parent")
    menu(page, "parent", "Delete…")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".toast.error")).to_contain_text("child")
    expect(page.locator(".conversation[data-id='parent']")).to_be_visible()


def test_what_others_do_appears_by_itself(open_page: OpenPage, server: PageServer) -> None:
    server.store.create(id="live", title="Live")
    page = open_page("#/c/live")
    said = {"messages": [{"role": "user", "content": "from somewhere else"}]}
    server.ask("POST", "conversations/live/messages", said)
    expect(page.locator("pv-message[data-index='0']")).to_contain_text("from somewhere else")
    expect(page.locator(".conversation[data-id='live']")).to_contain_text("from somewhere else")
    server.ask("POST", "conversations", {"id": "another", "title": "Another one"})
    expect(page.locator(".conversation[data-id='another'] .name")).to_have_text("Another one")
    server.ask("DELETE", "conversations/another")
    expect(page.locator(".conversation[data-id='another']")).to_have_count(0)


def test_a_running_answer_shows_in_the_list(open_page: OpenPage, server: PageServer) -> None:
    gate = threading.Event()
    server.model.lines.clear()
    server.say([gate, *saying("Done.")])
    server.store.create(id="busy", title="Busy")
    page = open_page()
    server.ask("POST", "conversations/busy/step", {"text": "go"})
    dot = page.locator(".conversation[data-id='busy'] .dot.busy")
    expect(dot).to_be_visible()
    gate.set()
    expect(dot).to_be_hidden()


def test_a_step_that_runs_already_is_joined(open_page: OpenPage, server: PageServer) -> None:
    gate = threading.Event()
    server.model.lines.clear()
    events = saying("Half of it, ", "and the rest.")
    server.say([events[0], gate, *events[1:]])
    server.store.create(id="joined", title="Joined")
    server.ask("POST", "conversations/joined/step", {"text": "go"})
    page = open_page("#/c/joined")
    expect(page.locator("pv-draft")).to_contain_text("Half of it,")
    gate.set()
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("Half of it, and the rest.")


def test_more_conversations_come_as_the_list_is_scrolled(
    open_page: OpenPage, server: PageServer
) -> None:
    for n in range(70):
        server.store.create(id=f"many-{n}", title=f"Many {n}")
    page = open_page()
    expect(page.locator(".conversation[data-id='many-69']")).to_be_visible()
    page.locator(".conversation[data-id='many-69']").hover()
    _scroll_until(page, ".conversation[data-id='many-0']")


def test_a_list_that_is_read_again_still_goes_on(open_page: OpenPage, server: PageServer) -> None:
    for n in range(120):
        server.store.create(id=f"lot-{n}", title=f"Lot {n}")
    page = open_page()
    page.locator(".conversation[data-id='lot-119']").hover()
    _scroll_until(page, ".conversation[data-id='lot-30']")  # on the second page
    server.store.create(id="one-more-lot", title="One more")
    page.locator(".conversations").evaluate("(list) => (list.scrollTop = 0)")
    expect(page.locator(".conversation[data-id='one-more-lot']")).to_be_attached()
    _scroll_until(page, ".conversation[data-id='lot-0']")


def test_of_a_long_list_only_what_is_near_is_in_the_page(
    open_page: OpenPage, tmp_path: Path
) -> None:
    """Some have a second line, of tags; keys and what others do reach those that are far off."""
    with palaver.open(tmp_path / "many.db") as store:
        for n in range(400):
            store.create(id=f"far-{n}", title=f"Far {n}", tags=("far",) if n % 3 == 0 else ())
        with running_server(store) as many:
            page = open_page(at=many)
            rows = page.locator(".conversation")
            page.locator(".conversation[data-id='far-399']").hover()
            _scroll_until(page, ".conversation[data-id='far-0']")
            page.locator(".conversation[data-id='far-0']").scroll_into_view_if_needed()
            expect(page.locator(".conversation[data-id='far-0']")).to_be_in_viewport()
            assert rows.count() <= 150
            expect(page.locator(".conversation[data-id='far-399']")).to_have_count(0)
            page.locator(".conversation[data-id='far-0'] > a").focus()
            for _ in range(120):
                page.keyboard.press("ArrowUp")
            expect(page.locator(".conversation[data-id='far-120'] > a")).to_be_focused()
            expect(page.locator(".conversation[data-id='far-120']")).to_be_in_viewport()
            assert rows.count() <= 150
            store.create(id="newest", title="Newest")
            page.locator(".conversations").evaluate("(list) => (list.scrollTop = 0)")
            expect(rows.first).to_contain_text("Newest")
            expect(rows.first).to_be_in_viewport()
            expect(rows.nth(1)).to_contain_text("Far 399")
            page.close()


def _scroll_until(page: Page, wanted: str) -> None:
    for _ in range(1_000):
        page.mouse.wheel(0, 2_000)
        if page.locator(wanted).count():
            break
        page.wait_for_timeout(50)
    expect(page.locator(wanted)).to_be_attached()


def test_a_conversation_that_others_delete_is_left(
    open_page: OpenPage, server: PageServer, expected: list[str]
) -> None:
    expected.append("404")  # what was asked for just before
    server.store.create(id="leaving", title="Leaving")
    page = open_page("#/c/leaving")
    server.ask("DELETE", "conversations/leaving")
    expect(page.get_by_role("heading", name="Pick a conversation")).to_be_visible()
    expect(page.locator(".toast")).to_contain_text("is not there, or no longer")


def test_one_that_never_was_leads_to_the_list(open_page: OpenPage, expected: list[str]) -> None:
    expected.append("404")
    page = open_page("#/c/nowhere/history")
    expect(page.get_by_role("heading", name="Pick a conversation")).to_be_visible()
    assert page.url.endswith("#/")


def test_pin_archive_and_trash_can_each_be_taken_back(open_page: OpenPage, tmp_path: Path) -> None:
    with palaver.open(tmp_path / "state.db") as store, running_server(store) as running:
        for name in ("alder", "birch", "cedar"):
            store.create([{"role": "user", "content": f"The {name}."}], id=name, title=name)
        page = open_page("#/c/alder", at=running)
        names = page.locator(".conversation .name")
        expect(names).to_have_text(["cedar", "birch", "alder"])
        menu(page, "alder", "Pin")
        expect(page.get_by_role("heading", name="Pinned")).to_be_visible()
        expect(names).to_have_text(["alder", "cedar", "birch"])
        menu(page, "alder", "Unpin")
        expect(names).to_have_text(["cedar", "birch", "alder"])
        page.locator(".toast", has_text="No longer pinned").get_by_role(
            "button", name="Undo"
        ).click()
        expect(names).to_have_text(["alder", "cedar", "birch"])
        menu(page, "cedar", "Archive")
        expect(names).to_have_text(["alder", "birch"])
        # what is open leaves the page; undo brings it back
        menu(page, "alder", "Move to the trash")
        expect(names).to_have_text(["birch"])
        expect(page).to_have_url(f"{running.address}/#/")
        page.get_by_role("button", name="Archive").click()
        expect(names).to_have_text(["cedar"])
        menu(page, "cedar", "Put back in the list")
        expect(page.get_by_text("Nothing is archived")).to_be_visible()
        page.get_by_role("button", name="Trash").click()
        expect(names).to_have_text(["alder"])
        page.locator(".toast", has_text="Moved to the trash").get_by_role(
            "button", name="Undo"
        ).click()
        expect(page.get_by_text("The trash is empty")).to_be_visible()
        expect(page.locator("h1")).to_have_text("alder")
        assert ("active", True) == (store.head("alder").status, store.head("alder").pinned)
        # only an explicit act empties the trash
        menu_of_trash = page.get_by_role("button", name="Empty the trash…")
        running.ask("PATCH", "conversations/birch", {"status": "trashed"})
        menu_of_trash.click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        assert "birch" in store
        menu_of_trash.click()
        page.get_by_role("dialog").get_by_role("button", name="Empty the trash…").click()
        expect(page.locator(".toast", has_text="1 conversation was deleted")).to_be_visible()
        page.get_by_role("button", name="Back to the conversations").click()
        expect(names).to_have_text(["alder", "cedar"])
        assert "birch" not in store
        page.context.close()


def test_a_conversation_is_exported_in_the_format_that_is_chosen(
    open_page: OpenPage, server: PageServer
) -> None:
    samples.mischief(server.store, name="export-mischief")
    page = open_page("#/c/export-mischief")
    text = ""
    for label, beginning in (
        ("Markdown", "# "),
        ("Gemini", '{"'),
        ("palaver, one document", '{"version":2'),
        ("HTML", "<!doctype html>"),
    ):
        page.keyboard.press("Control+k")
        page.keyboard.type("export")
        page.keyboard.press("Enter")
        with page.expect_download() as waiting:
            page.get_by_role("dialog").get_by_role("link", name=label, exact=True).click()
        text = waiting.value.path().read_text("utf-8")
        assert text.startswith(beginning)
        expect(page.get_by_role("dialog")).to_have_count(0)
    # the file as a browser sees it: nothing in it runs
    alone = page.context.new_page()
    alone.set_content(text)
    expect(alone.locator("article").first).to_be_visible()
    assert not alone.evaluate("Object.keys(window).some((key) => key.startsWith('__pwned'))")
    assert 0 == alone.locator("script, iframe, svg").count()
