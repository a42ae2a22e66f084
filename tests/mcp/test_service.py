"""What the service returns: pages, parts of messages, and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.errors import NothingToUndo, UnknownConversation, ValidationError
from palaver.mcp.service import BUDGET, ConversationService, message_text
from palaver.messages import Message
from palaver.messages.parts import UnknownPart
from tests.mcp.conftest import answered

if TYPE_CHECKING:
    from palaver.stores import Store


@pytest.fixture
def service(store: Store) -> ConversationService:
    return ConversationService(store)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def test_a_search_says_where_a_message_stands(service: ConversationService) -> None:
    (hit,) = service.search("tea").hits
    assert ("kitchen-1", 0, "m0", "user") == (hit.conversation, hit.index, hit.id, hit.role)
    assert "1970-01-01T00:00:00+00:00" == hit.at


def test_a_search_finds_what_has_left_the_conversation(service: ConversationService) -> None:
    (hit,) = service.search("secret", conversation="kitchen").hits
    assert (None, "m3") == (hit.index, hit.id)


def test_a_search_is_limited(service: ConversationService) -> None:
    assert 5 == len(service.search("line", limit=5).hits)
    assert () == service.search("line", conversation="kitchen").hits


def test_conversations_come_in_pages(service: ConversationService) -> None:
    page = service.conversations(limit=1)
    (long,) = page.conversations
    assert ("long", 60, 0, None) == (long.id, long.messages, long.version, long.parent)
    rest = service.conversations(limit=1, after=page.next)
    (kitchen,) = rest.conversations
    assert ("Tea", ("home",), None) == (kitchen.title, kitchen.tags, rest.next)
    assert ["kitchen-1"] == [c.id for c in service.conversations(tag="home").conversations]


def test_a_page_is_the_last_messages_by_default(service: ConversationService) -> None:
    page = service.read("kitchen-1", limit=2)
    assert (2, 4, None) == (page.start, page.total, page.next)
    assert ["[boil gave] hot", "Nothing."] == [message.text for message in page.messages]


def test_a_page_goes_on_where_the_last_one_ended(service: ConversationService) -> None:
    page = service.read("kitchen", start=0, limit=3)
    assert 3 == page.next
    assert ["star"] == list(page.messages[0].marks)
    assert '[thought] It may be gone.\nLet me look.\n[calls boil] {"cup": "blue"}' == (
        page.messages[1].text
    )
    assert [3] == [message.index for message in service.read("kitchen", start=3).messages]
    assert () == service.read("kitchen", start=99).messages


def test_an_earlier_version_can_be_read(service: ConversationService) -> None:
    page = service.read("kitchen", version=1)
    assert ("A secret: the cellar.", 1) == (page.messages[-1].text, page.version)


def test_a_long_message_is_cut_and_says_so(service: ConversationService) -> None:
    page = service.read("long", start=0, limit=1, characters=10)
    assert ("line 0 xxx", 4_997) == (page.messages[0].text, page.messages[0].more)


def test_a_page_ends_before_it_is_too_long(service: ConversationService) -> None:
    page = service.read("long", start=0, limit=60, characters=20_000)
    shown = sum(len(message.text) for message in page.messages)
    assert BUDGET - 6_000 < shown <= BUDGET
    assert page.next == len(page.messages) < 60


def test_one_message_is_shown_however_long(store: Store, service: ConversationService) -> None:
    store.create([palaver.user("y" * (BUDGET + 1)), palaver.user("z")], id="one")
    page = service.read("one", start=0, characters=BUDGET * 2)
    assert [BUDGET + 1] == [len(message.text) for message in page.messages]


def test_a_long_message_is_read_in_stretches(service: ConversationService) -> None:
    first = service.text("long", "0", characters=5_000)
    rest = service.text("long", first.id, start=first.next or 0)
    assert ("line 0 " + "x" * 5_000, None) == (first.text + rest.text, rest.next)
    assert ("user", 5_000) == (rest.role, rest.start)


def test_the_versions_come_newest_first_and_in_pages(service: ConversationService) -> None:
    page = service.versions("kitchen", limit=2)
    assert (3, [(3, "replace"), (2, "mark")], 2) == (
        page.version,
        [(change.version, change.kind) for change in page.changes],
        page.next,
    )
    rest = service.versions("kitchen", before=page.next)
    assert ([(1, 1), (0, 3)], None) == (
        [(change.version, change.added) for change in rest.changes],
        rest.next,
    )
    assert () == service.versions("kitchen", before=0).changes


def test_a_diff_shows_the_last_change_by_default(service: ConversationService) -> None:
    found = service.diff("kitchen")
    assert (2, 3, 0) == (found.before, found.after, found.left_out)
    assert [(3, "A secret: the cellar.")] == [(m.index, m.text) for m in found.removed]
    assert [(3, "Nothing.")] == [(m.index, m.text) for m in found.added]
    assert [] == list(service.diff("long").added)


def test_a_diff_of_two_versions_is_cut_where_it_is_too_long(
    store: Store, service: ConversationService
) -> None:
    history = store.create(id="grown")
    history.extend([palaver.user("w" * 6_000) for _ in range(50)])
    found = service.diff("grown", before=0, after=1, characters=20_000)
    assert (16, 34) == (len(found.added), found.left_out)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (answered(failed=True), "[boil failed] no tea"),
        (Message("user", (UnknownPart({"type": "hologram"}),)), "[hologram]"),
        (palaver.user("plain"), "plain"),
    ],
)
def test_every_part_has_words(message: Message, text: str) -> None:
    assert text == message_text(message)


def test_a_time_beyond_the_calendar_is_a_number(store: Store, service: ConversationService) -> None:
    store.create([palaver.user("late", timestamp=2**53)], id="late")
    assert "9007199254740992 ms" == service.read("late").messages[0].at


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


def test_marks_come_and_go(store: Store, service: ConversationService) -> None:
    assert 4 == service.mark("kitchen", "1", "look").version
    assert ["look"] == store.get("kitchen-1").marks_of("m1")
    assert 5 == service.mark("kitchen", "m1", "look", remove=True).version
    assert [] == store.get("kitchen-1").marks_of("m1")


def test_a_fork_goes_its_own_way(store: Store, service: ConversationService) -> None:
    made = service.fork("kitchen", version=1, name="cellar")
    assert ("cellar", 0, 4) == (made.conversation, made.version, made.messages)
    assert "A secret: the cellar." == store.get("cellar")[-1].text


def test_the_way_back_and_forth(store: Store, service: ConversationService) -> None:
    assert 4 == service.undo("kitchen").version
    assert "A secret: the cellar." == store.get("kitchen-1")[-1].text
    assert 5 == service.redo("kitchen", expected=4).version
    assert "Nothing." == store.get("kitchen-1")[-1].text
    assert 3 == service.roll_back("kitchen", 0).messages


@pytest.mark.parametrize("what", ["undo", "redo"])
def test_a_conversation_that_went_on_is_left_alone(what: str, service: ConversationService) -> None:
    with pytest.raises(ValidationError, match="is 2, but the conversation is at version 3 by now"):
        getattr(service, what)("kitchen", expected=2)
    with pytest.raises(ValidationError, match="by now"):
        service.roll_back("kitchen", 0, expected=9)
    assert 3 == service.read("kitchen").version


def test_nothing_to_undo_is_an_error(service: ConversationService) -> None:
    with pytest.raises(NothingToUndo):
        service.undo("long")


# ── which conversation ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["", "cellar"])
def test_an_unknown_conversation_is_an_error(name: str, service: ConversationService) -> None:
    with pytest.raises(UnknownConversation, match="no conversation has an id that begins with"):
        service.read(name)


def test_the_beginning_of_several_ids_names_them(
    store: Store, service: ConversationService
) -> None:
    store.create(id="kitchen-2")
    with pytest.raises(ValidationError, match="several ids: kitchen-1, kitchen-2 "):
        service.read("kitchen")
    for number in range(3, 9):
        store.create(id=f"kitchen-{number}")
    with pytest.raises(ValidationError, match="kitchen-5 and more"):
        service.read("kitchen")
