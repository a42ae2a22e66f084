"""What is stored comes back and is found: conversations, messages, records, pages, search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import (
    AlreadyExists,
    StoreError,
    UnknownConversation,
    UnknownMessage,
    ValidationError,
)
from palaver.messages import Message, new_id, parse_message, to_dict
from palaver.stores import Store
from palaver.stores.backend import Backend
from palaver.stores.text_index import MAX_QUERY_WORDS, MAX_TEXT, MAX_WORD, TRUNCATED
from palaver.testing.stores.suite import (
    Checks,
    ManualClock,
    dump_history,
    expect,
    ids_of,
    make_message,
    make_messages,
    raises,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.history.view import View
    from palaver.messages import Role
    from palaver.testing.stores.suite import Trial

__all__ = ["CHECKS"]


CHECKS = Checks()

_TEXTS = (
    "",
    "plain",
    "👩‍👩‍👧‍👦 family, é and e\u0301, \u202eright to left\u202c",
    "喝茶吗 日本語 한국어 العربية हिन्दी",
    "line\nbreaks\r\nand\ttabs \u2028 \x01\x1f\x7f \ufeff \ufffd",
    "'); DROP TABLE messages; --",
    '{"role": "user"} \\u0000 \\ " \'',
    "\U0010ffff \U0001d4b3 𠀀",
    "x" * 1_000_000,
    "茶" * 400_000,
)


@CHECKS
def it_is_a_backend(trial: Trial) -> None:
    """The store underneath has every method of the protocol."""
    promised = [name for name in dir(Backend) if not name.startswith("_")]
    missing = [name for name in promised if not hasattr(trial.store.backend, name)]
    expect([], missing, "methods that are missing")


@CHECKS
def a_conversation_is_there_once_it_is_begun(trial: Trial) -> None:
    """What was created can be got, with its title, tags and messages, also after reopening."""
    made = trial.store.create(make_messages("s1 u2 a3"), title="Tea 茶", tags=["b", "a", "b"])
    for store in trial.now_and_later():
        found = store.get(made.id)
        expect("s1 u2 a3", ids_of(found), "the messages")
        expect(("Tea 茶", ("b", "a")), (found.title, found.tags), "title and tags")
        expect((0, 0, 3), (found.version, found.batch_index, len(found.log)), "the numbers")
        expect(made.messages, found.messages, "the messages")
        expect((True, False), (made.id in store, new_id() in store), "`in`")


@CHECKS
def an_empty_conversation_is_one(trial: Trial) -> None:
    """A conversation may begin with nothing."""
    name = trial.store.create().id
    found = trial.reopen().get(name)
    expect((0, 0, None), (len(found), found.version, found.title), "what is there")
    found.append(make_message("u1"))
    expect("u1", ids_of(trial.reopen().get(name)), "the messages")


@CHECKS
def an_unknown_conversation_is_an_error(trial: Trial) -> None:
    """Every way to ask for a conversation that is not there says so."""
    store, name = trial.store, f"nobody {new_id()}"
    backend = store.backend
    ways: dict[str, Callable[[], object]] = {
        "get": lambda: store.get(name),
        "delete": lambda: store.delete(name),
        "describe": lambda: store.describe(name, title="x"),
        "lease": lambda: store.lease(name, "me"),
        "put": lambda: backend.put(name, "draft", "d", b""),
        "records": lambda: backend.records(name, "draft"),
        "family": lambda: backend.family(name),
        "journal": lambda: backend.journal(name, -1, 1),
        "erase": lambda: backend.erase(name, ["x"], 0),
        "search": lambda: backend.search("x", name, 1),
        "messages": lambda: backend.messages(name, 0, 1),
        "follow": lambda: next(store.follow(name, seconds=0), None),
    }
    for what, ask in ways.items():
        with raises(UnknownConversation, what) as caught:
            ask()
        expect(True, name in str(caught[0]), f"{what} names it")  # noqa: FBT003 - the value
    expect(1, len(list(store.verify(name))), "problems that verify names")


@CHECKS
def an_id_is_taken_once(trial: Trial) -> None:
    """A second conversation of an id is refused and leaves the first as it was."""
    name = f"taken {new_id()}"
    trial.store.create(make_messages("u1"), id=name, title="first")
    with raises(AlreadyExists, "the second"):
        trial.store.create(make_messages("u1 u2"), id=name, title="second")
    with raises(AlreadyExists, "a fork"):
        trial.store.create().fork(id=name)
    found = trial.reopen().get(name)
    expect(("first", "u1"), (found.title, ids_of(found)), "the first")
    expect([], list(trial.store.verify(name)), "problems")


@CHECKS
def bad_names_are_refused_before_anything_is_stored(trial: Trial) -> None:
    """An id, title or tag that breaks a rule leaves no trace."""
    store = trial.store
    history = store.create()
    before = store.backend.newest()
    ways: dict[str, Callable[[], object]] = {
        "an id": lambda: store.create(id=""),
        "a title": lambda: store.create(title="\0"),
        "a tag": lambda: store.create(tags=[""]),
        "an owner": lambda: store.create(owner=""),
        "a fork's id": lambda: history.fork(id=""),
        "a fork that is its own parent": lambda: history.fork(id=history.id),
    }
    for what, ask in ways.items():
        with raises(ValidationError, what):
            ask()
    expect(before, store.backend.newest(), "the cursor")


@CHECKS
def text_of_all_sorts_survives(trial: Trial) -> None:
    """Emoji, CJK, control characters, what looks like SQL or JSON, a megabyte: all as it was."""
    roles: tuple[Role, ...] = ("user", "assistant", "system", "tool")
    messages = [
        Message(roles[index % 4], text, metadata={"text": text[:100], "n": 2**53 - 1, "f": 0.1})
        for index, text in enumerate(_TEXTS)
    ]
    history = trial.store.create(messages[:4])
    history.extend(messages[4:])
    history.set_team_task(_TEXTS[2])
    history.mark(0, _TEXTS[3].replace("\n", " "))
    found = trial.reopen().get(history.id)
    for expected, stored in zip(messages, found, strict=True):
        expect(to_dict(expected), to_dict(stored), "a message")
    expect(_TEXTS[2], found.team_task, "the team task")
    expect([_TEXTS[3]], list(found.marks), "the marks")


@CHECKS
def titles_and_tags_can_change(trial: Trial) -> None:
    """`describe` sets both, and makes no version."""
    name = trial.store.create(title="old", tags=["x"]).id
    trial.store.describe(name, title="new", tags=["y", "z"])
    found = trial.reopen().get(name)
    expect(("new", ("y", "z"), 0), (found.title, found.tags, found.version), "after describe")
    trial.store.describe(name)
    found = trial.reopen().get(name)
    expect((None, ()), (found.title, found.tags), "after an empty describe")


@CHECKS
def the_conversations_of_an_owner_are_listed_and_searched_apart(trial: Trial) -> None:
    """A fork belongs to its parent's owner; the owner can change, and a listing follows."""
    mine, word = f"owner {new_id()}", f"w{new_id()}".replace("-", "")
    store = trial.store
    text = Message("user", word)
    first, other = store.create([text], owner=mine), store.create([text], owner=f"not {mine}")
    fork = first.fork()
    fork.append(text)
    expect((mine, None), (fork.owner, store.create([text]).owner), "owners")

    def listed(owner: str) -> set[str]:
        return {head.id for head in store.list(owner=owner).conversations}

    def found(owner: str) -> set[str]:
        return {hit.conversation for hit in store.search(word, owner=owner)}

    expect({first.id, fork.id}, listed(mine), "listed")
    expect({first.id, fork.id}, found(mine), "found")
    store.set_owner(other.id, mine)
    store.set_owner(first.id, None)
    expect(
        (mine, None), (store.head(other.id).owner, trial.another().get(first.id).owner), "owners"
    )
    expect({other.id, fork.id}, listed(mine), "listed then")
    expect({other.id, fork.id}, found(mine), "found then")
    expect([], list(store.verify(other.id)), "problems")


@CHECKS
def several_conversations_are_deleted_at_once(trial: Trial) -> None:
    """Each only if it is still at the version that is given, and nothing was forked from it."""
    store = trial.store
    names = [store.create(make_messages("u1"), id=f"{number} {new_id()}").id for number in range(5)]
    store.get(names[1]).append(make_message("u2"))
    store.get(names[2]).fork()
    wanted = [(name, 0) for name in (*names[:4], f"not {names[0]}")]
    gone = [names[0], names[3]]
    expect(gone, sorted(store.backend.delete_all(wanted)), "those deleted")
    there = [name for name in names if name in trial.another()]
    expect([names[1], names[2], names[4]], there, "those that are there")
    expect([], [hit for name in there for hit in store.verify(name)], "problems")
    expect([], store.backend.delete_all([]), "none of none")
    fork = store.get(names[2]).fork().id
    older = next(head.id for head in store.backend.forks(names[2]) if head.id != fork)
    family = [(fork, 0), (names[2], 0), (older, 0)]
    expect([fork, older], store.backend.delete_all(family), "forks")
    expect([names[2]], store.backend.delete_all([(names[2], 0)]), "what they were forked from")
    family = [(store.get(names[4]).fork(id=f"fork {names[4]}").id, 0), (names[4], 0)]
    expect([name for name, _ in family], store.backend.delete_all(family), "a family")


@CHECKS
def conversations_are_listed_page_by_page(trial: Trial) -> None:
    """The latest changed first, each once, whole or by a tag, also where times are the same."""
    tag, clock = f"tag {new_id()}", ManualClock()
    store = Store(trial.store.backend, clock=clock)
    names: list[str] = []
    for number in range(7):
        clock.now += number % 3  # some at the same moment
        names.append(store.create(id=f"{number} {tag}", tags=["all", tag]).id)
    clock.now += 1_000_000
    store.get(names[2]).append(make_message("u1"))
    found: list[str] = []
    after, pages = None, 0
    while True:
        page = store.list(after=after, limit=3, tag=tag)
        pages += 1
        found += [head.id for head in page.conversations]
        after = page.next
        if after is None:
            break
    expect((3, sorted(names)), (pages, sorted(found)), "pages and names")
    expect(names[2], found[0], "the latest changed")
    times = [(head.updated, head.id) for head in store.list(limit=50, tag=tag).conversations]
    expect(sorted(times, reverse=True), times, "the order")
    expect((), store.list(tag=f"no {tag}").conversations, "those of an unknown tag")
    store.describe(names[4], tags=["all", tag, "put away"])
    store.describe(names[5], tags=["all", tag, "thrown away"])
    for limit in (2, 50):
        listed: list[str] = []
        page = store.list(limit=limit, tag=tag, without=("put away", "thrown away"))
        listed += [head.id for head in page.conversations]
        while page.next is not None:
            page = store.list(
                after=page.next, limit=limit, tag=tag, without=("put away", "thrown away")
            )
            listed += [head.id for head in page.conversations]
        expect(sorted({*names} - {names[4], names[5]}), sorted(listed), "those without two tags")
    expect(set(), {*names} - {head.id for head in store}, "missing from the whole list")
    (head,) = store.list(limit=1, tag=tag).conversations
    expect((1, 1, 1), (head.version, head.length, head.size), "version, length and size")


@CHECKS
def a_page_must_make_sense(trial: Trial) -> None:
    """A limit below one and a cursor that no page gave are refused."""
    trial.store.create()
    with raises(ValidationError, "no limit"):
        trial.store.list(limit=0)
    with raises(ValidationError, "a made-up cursor"):
        trial.store.list(after="yesterday")


@CHECKS
def records_are_stored_beside_the_log(trial: Trial) -> None:
    """Records come back by kind and name, are overwritten, and can be taken away."""
    store = trial.store
    name, other = store.create().id, store.create().id
    every = bytes(range(256)) * 10
    store.backend.put(name, "draft", "one", b"1")
    store.backend.put(name, "draft", "茶", every)
    store.backend.put(name, "draft", "one", b"2")
    store.backend.put(name, "call", "one", b"")
    store.backend.put(name, "call", "gone", b"x")
    store.backend.put(name, "call", "gone", None)
    store.backend.put(name, "call", "never there", None)
    backend = trial.reopen().backend
    expect({"one": b"2", "茶": every}, backend.records(name, "draft"), "drafts")
    expect({"one": b""}, backend.records(name, "call"), "calls")
    expect({}, backend.records(name, "none of these"), "an unknown kind")
    expect({}, backend.records(other, "draft"), "another's drafts")
    expect(0, backend.head(name).version, "the version")


@CHECKS
def some_of_the_records_can_be_read(trial: Trial) -> None:
    """From one name to before another, by code points, and the last so many of those."""
    store = trial.store
    name = store.create().id
    names = ["", "A", "a", "a!", "ab", "a\x7f", "b", "é", "\uffff", "\U0001f375"]
    store.backend.keep(name, [("draft", each, each.encode()) for each in reversed(names)])
    store.backend.put(name, "call", "b", b"another kind")
    records = trial.reopen().backend.records
    expect(names, list(records(name, "draft")), "all, in order")
    expect(names[2:], list(records(name, "draft", since="a")), "since")
    expect(names[:2], list(records(name, "draft", until="a")), "until")
    expect(["a", "a!"], list(records(name, "draft", since="a", until="ab")), "between")
    expect(names[-2:], list(records(name, "draft", last=2)), "the last two")
    expect(["b"], list(records(name, "draft", since="a!", until="é", last=1)), "the last of some")
    expect(names, list(records(name, "draft", last=99)), "no more than there are")
    expect([], list(records(name, "draft", since="b", until="a")), "none")
    expect([], list(records(name, "draft", last=0)), "the last none")
    expect({"b": b"b"}, records(name, "draft", since="b", until="b\x01"), "one")


@CHECKS
def a_selection_and_records_are_one_change(trial: Trial) -> None:
    """What is stored with a rewrite is there with it; a condition is asked of what is there."""
    history = trial.store.create(make_messages("u1 a2 u3"))
    history.truncate(keep_last=1)
    other, late = trial.store.get(history.id), trial.store.get(history.id)
    history.rewrite([range(2), make_message("u4")], of_log=True, records=[("call", "x", b"1")])
    seen: list[str] = []

    def refuse(view: View) -> None:
        seen.append(ids_of(view))
        if len(view) > 1:
            msg = "too late"
            raise LookupError(msg)

    with raises(LookupError, "a condition that no longer holds"):
        other.rewrite([make_message("u5")], records=[("call", "x", None)], unless=refuse)
    expect(["u3", "u1 a2 u4"], seen, "what the condition was asked of")
    expect("u1 a2 u4", ids_of(trial.store.get(history.id)), "what is stored")
    expect({"x": b"1"}, trial.store.backend.records(history.id, "call"), "records")
    late.rewrite([range(1), make_message("u6")], records=[("call", "y", b"2")])  # it is merged
    store = trial.reopen()
    expect("u1 a2 u4 u6", ids_of(store.get(history.id)), "both")
    expect(["x", "y"], list(store.backend.records(history.id, "call")), "records of both")


@CHECKS
def a_conversation_begins_with_its_records(trial: Trial) -> None:
    """Records that are given with the first messages are stored in the same change."""
    made = trial.store.create(make_messages("u1"), records=[("origin", "about", b"{}")])
    for store in trial.now_and_later():
        expect(0, store.get(made.id).version, "the version")
        expect({"about": b"{}"}, store.backend.records(made.id, "origin"), "the records")
    with raises(AlreadyExists, "the same id again"):
        trial.store.create(id=made.id, records=[("origin", "about", b"other")])
    expect({"about": b"{}"}, trial.store.backend.records(made.id, "origin"), "the records")


@CHECKS
def a_conversation_can_be_deleted(trial: Trial) -> None:
    """Nothing of it is left: no listing, no search, no journal; others are as they were."""
    store, word = trial.store, f"w{new_id().replace('-', '')}"
    stays = store.create([make_message("u1", f"{word} stays")]).id
    gone = store.create([make_message("u1", f"{word} goes")], tags=[word])
    gone.append(make_message("u2", f"{word} goes too"))
    store.backend.put(gone.id, "draft", "d", b"x")
    expect(3, len(store.search(word)), "hits before")
    cursor = store.backend.newest()
    store.delete(gone.id)
    with raises(UnknownConversation, "an append to it"):
        gone.append(make_message("u3"))
    for now in trial.now_and_later():
        expect(False, gone.id in now, "`in`")  # noqa: FBT003 - the value
        expect((), now.list(tag=word).conversations, "listed")
        expect([stays], [hit.conversation for hit in now.search(word)], "hits")
    again = trial.store.create([make_message("u1", f"{word} again")], id=gone.id)
    expect(0, again.version, "the version of a new one of the same id")
    expect({}, trial.store.backend.records(gone.id, "draft"), "records of the new one")
    expect(2, len(trial.store.search(word)), "hits afterwards")
    reported = trial.store.backend.journal(None, cursor, 10)
    expect([gone.id], [change.conversation for change in reported], "what a follower sees")
    expect([], list(trial.store.verify(again.id)), "problems")


@CHECKS
def what_others_read_from_is_not_deleted(trial: Trial) -> None:
    """A conversation with forks stays until they are gone."""
    parent = trial.store.create(make_messages("u1 a2"))
    fork = parent.fork()
    with raises(StoreError, "the parent first") as caught:
        trial.store.delete(parent.id)
    expect(True, fork.id in str(caught[0]), "the fork is named")  # noqa: FBT003 - the value
    expect("u1 a2", ids_of(trial.reopen().get(fork.id)), "the fork")
    trial.store.delete(fork.id)
    trial.store.delete(parent.id)
    expect(False, parent.id in trial.store, "the parent is there")  # noqa: FBT003 - the value


_UNKEEPABLE: Final[tuple[Any, ...]] = ("a\0b", "\ud800", 1.5, True, float("nan"), b"k", ["k"])
_NO_NAMES: Final[tuple[Any, ...]] = (*_UNKEEPABLE, "", "k" * 1025)
_UNKNOWN: Final[tuple[Any, ...]] = (*_UNKEEPABLE, "k" * 9_000)


@CHECKS
def what_can_not_be_stored_is_refused(trial: Trial) -> None:
    """Keys, ids, holders, titles, tags, reasons and records that no store can keep."""
    store = trial.store
    history = store.create(make_messages("u1 a2"), id=new_id(), title="Tea", tags=["t"])
    before = dump_history(history)
    for bad in _NO_NAMES:
        takes_a_name: dict[str, Callable[[Any], object]] = {
            "$.id": lambda v: store.create(id=v),
            "$.key": lambda v: store.create(id=new_id(), key=v),
            "$.tags[0]": lambda v: store.create(tags=[v]),
            "$.key of append": lambda v: history.append(make_message("u3"), key=v),
            "$.key of extend": lambda v: history.extend(make_messages("u3 a4"), key=v),
            "$.key of extend with nothing": lambda v: history.extend([], key=v),
            "$.key of execute": lambda v: history.execute({"operation": "CLEAR"}, key=v),
            "$.key of fork": lambda v: history.fork(id=new_id(), key=v),
            "$.id of fork": lambda v: history.fork(id=v),
            "$.holder": lambda v: store.lease(history.id, v),
            "$.tags[0] of describe": lambda v: store.describe(history.id, tags=[v]),
            "$.reason": lambda v: history.replace_all([], team_task=None, reason=v),
            "$.reason of rewrite": lambda v: history.rewrite([], reason=v),
            "$.records[0].kind": lambda v: history.extend(
                [make_message("u3")], records=[(v, "n", b"1")]
            ),
            "$.records[0].kind of put": lambda v: store.backend.put(history.id, v, "n", b"1"),
        }
        for path, attempt in takes_a_name.items():
            _refused(path, attempt, bad)
    for bad in _UNKEEPABLE:
        takes_a_text: dict[str, Callable[[Any], object]] = {
            "$.title": lambda v: store.create(title=v),
            "$.title of describe": lambda v: store.describe(history.id, title=v),
            "$.records[0].name": lambda v: history.extend(
                [make_message("u3")], records=[("k", v, b"1")]
            ),
            "$.records[0].name of put": lambda v: store.backend.put(history.id, "k", v, b"1"),
            "$.records[1].name of keep": lambda v: store.backend.keep(
                history.id, [("k", "n", b"1"), ("k", v, b"1")]
            ),
        }
        for path, attempt in takes_a_text.items():
            _refused(path, attempt, bad)
    text: Any = "no bytes"
    _refused("$.records[0].value", lambda v: store.backend.put(history.id, "k", "n", v), text)
    store = trial.reopen()
    history = store.get(history.id)
    expect(before, dump_history(history), "what is stored")
    expect(("Tea", ("t",)), (history.title, history.tags), "title and tags")
    expect({}, store.backend.records(history.id, "k"), "records")
    expect([], list(store.verify(history.id)), "problems")
    longest = "k" * 1024
    history.append(make_message("u5"), key=longest)
    history.append(make_message("u6"), key=longest)
    expect("u1 a2 u5", ids_of(history), "after the longest key, twice")


def _refused(where: str, attempt: Callable[[Any], object], bad: object) -> None:
    what = f"{bad!r:.20} as {where}"
    with raises(ValidationError, what) as caught:
        attempt(bad)
    (error,) = caught
    expect(where.split(maxsplit=1)[0], getattr(error, "path", None), f"the path for {what}")


@CHECKS
def what_can_not_be_there_is_not_there(trial: Trial) -> None:
    """Looking for an id, a beginning or a tag that no store can keep finds nothing."""
    store = trial.store
    history = store.create(make_messages("u1 a2"), id=new_id())
    for bad in _UNKNOWN:
        kind = type(bad)
        for what, attempt in _look_ups(store, bad).items():
            with raises(UnknownConversation, f"{what} of {bad!r:.20}"):
                attempt()
        if kind is str:
            with raises(UnknownConversation, f"the head of {bad!r:.20}"):
                store.backend.head(bad)
            with raises(UnknownConversation, f"the records of {bad!r:.20}"):
                store.backend.records(bad, "call")
            with raises(UnknownConversation, f"the journal of {bad!r:.20}"):
                store.backend.journal(bad, -1, 1)
        for what, find in (
            ("erase", history.erase),
            ("mark", lambda which: history.mark(which, "good")),
            ("find", history.view.find),
        ):
            with raises(UnknownMessage, f"{what} of {bad!r:.20}"):
                find(bad)
        expect([], store.named(bad), f"ids that begin with {bad!r:.20}")
        expect(False, bad in store, f"{bad!r:.20} in the store")  # noqa: FBT003 - the value
        with raises(ValidationError, f"a page after {bad!r:.20}"):
            store.list(after=bad)
        if kind is str:
            expect((), store.list(tag=bad).conversations, f"conversations with the tag {bad!r:.20}")
            expect([], store.search(bad), f"messages with the word {bad!r:.20}")
        else:
            with raises(ValidationError, f"a list of those with the tag {bad!r}"):
                store.list(tag=bad)
            with raises(ValidationError, f"a search for {bad!r}"):
                store.search(bad)
    with raises(ValidationError, "a page after a NUL"):
        store.list(after="1:\0")
    expect("u1 a2", ids_of(trial.reopen().get(history.id)), "what is stored")


def _look_ups(store: Store, name: Any) -> dict[str, Callable[[], object]]:  # noqa: ANN401 - anything
    return {
        "get": lambda: store.get(name),
        "describe": lambda: store.describe(name, title="t"),
        "describe with a version": lambda: store.describe(name, title="t", expect=0),
        "delete": lambda: store.delete(name),
        "prune": lambda: store.prune(name),
        "search": lambda: store.search("tea", conversation=name),
        "follow": lambda: next(store.follow(name, seconds=0)),
        "lease": lambda: store.lease(name, "anna"),
        "notes": lambda: list(store.notes(name)),
    }


def _word() -> str:
    """A word that nobody has said before."""
    return "w" + new_id().replace("-", "")


def _found(store: Store, words: str, conversation: str | None = None) -> set[str]:
    return {hit.message.id for hit in store.search(words, conversation=conversation)}


@CHECKS
def words_are_found_wherever_they_are(trial: Trial) -> None:
    """All words, in any order and any case, over the whole store and within a conversation."""
    word = _word()
    one_talk = trial.store.create(
        [make_message("u1", f"Green tea, {word}!"), make_message("a2", f"{word} coffee")]
    )
    other = trial.store.create([make_message("u3", f"black TEA? ({word})")])
    one_talk.append(make_message("u4", f"tea again: {word.upper()}"))
    for store in trial.now_and_later():
        expect({"u1", "a2", "u3", "u4"}, _found(store, word), "one word")
        expect({"u1", "u3", "u4"}, _found(store, f"{word} Tea"), "two words")
        expect({"u1", "u4"}, _found(store, f"tea {word}", one_talk.id), "within a conversation")
        expect({"u3"}, _found(store, word, other.id), "within the other")
        expect(set(), _found(store, f"{word} cocoa"), "a word that is not there")
        expect(set(), _found(store, ""), "no word")
        expect(set(), _found(store, ' "" ?! * '), "no word but signs")
    (hit,) = trial.store.search(f"{word} black")
    expect((other.id, 0, "u3"), (hit.conversation, hit.position, hit.message.id), "a hit")
    expect(True, "black TEA" in hit.snippet, "its snippet")  # noqa: FBT003 - the value
    expect(2, len(trial.store.search(word, limit=2)), "no more than asked for")


@CHECKS
def a_hit_says_whether_it_is_in_the_view(trial: Trial) -> None:
    """What was edited away is found, and told from what is there; a fork has its own view."""
    word = _word()
    talk = trial.store.create([make_message(name, word) for name in ("u1", "u2", "u3")])
    fork = talk.fork()
    talk.truncate(remove_first=2)
    for store in trial.now_and_later():
        here = {hit.message.id: hit.index for hit in store.search(word, conversation=talk.id)}
        expect({"u1": None, "u2": None, "u3": 0}, here, "indexes in the view")
        there = {hit.message.id: hit.index for hit in store.search(word, conversation=fork.id)}
        expect({"u1": 0, "u2": 1, "u3": 2}, there, "indexes in the fork's")


@CHECKS
def a_phrase_is_found_in_its_order(trial: Trial) -> None:
    """Words in quotes stand one after the other."""
    word = _word()
    trial.store.create(
        [
            make_message("u1", f"{word} hot water"),
            make_message("u2", f"{word} water, hot"),
            make_message("u3", f"hot {word}"),
        ]
    )
    expect({"u1"}, _found(trial.store, f'{word} "hot water"'), "a phrase")
    expect({"u1", "u2"}, _found(trial.store, f"{word} hot water"), "without quotes")
    expect({"u2"}, _found(trial.store, f'"water hot" {word}'), "across a comma")
    expect(set(), _found(trial.store, f'"hot {word} water"'), "a phrase that nobody said")


@CHECKS
def a_long_word_is_found_by_its_beginning(trial: Trial) -> None:
    """However long it is, it is one word, and nothing else is lost for its sake."""
    word = _word()
    long = word + "x" * MAX_TEXT
    trial.store.create(
        [
            make_message("u1", f"before {long} after"),
            make_message("u2", f"{word} 茶{'茶' * MAX_WORD}杯 {word}"),
            make_message("u3", f"{word} " + "e\u0301" * MAX_WORD + "e\u0300f"),
        ]
    )
    for store in trial.now_and_later():
        expect({"u1"}, _found(store, f"before {long[: MAX_WORD + 1]}"), "its beginning and more")
        expect(set(), _found(store, long[: MAX_WORD - 1]), "less of it")
        expect({"u2"}, _found(store, f"{word} 茶杯"), "the end of a text without spaces")
        expect({"u3"}, _found(store, f"{word} {'é' * MAX_WORD}"), "a word with accents")
        expect([], list(store.verify()), "problems")


@CHECKS
def the_beginning_of_a_long_message_is_searched(trial: Trial) -> None:
    """Up to a number of characters; `notes` names the messages with more, until they are erased."""
    word, late = _word(), _word()
    filler = "tea " * (MAX_TEXT // 4)
    history = trial.store.create(
        [
            make_message("u1", f"{word} short"),
            make_message("u2", f"{word} {filler} {late}"),
            make_message("u3", word),
        ]
    )
    note = f"{history.id}: message 1: {TRUNCATED}"
    for store in trial.now_and_later():
        expect({"u1", "u2", "u3"}, _found(store, word), "the beginnings")
        expect({"u2"}, _found(store, f"tea {word}", history.id), "the filler")
        expect(set(), _found(store, late), "the end")
        expect([note], list(store.notes(history.id)), "the notes")
        expect(True, note in list(store.notes()), "the notes of all")  # noqa: FBT003 - the value
        expect([], list(store.verify()), "problems")
        (hit,) = store.search(f"{word} tea")
        expect(True, len(hit.snippet) < MAX_WORD, "a snippet is short")  # noqa: FBT003 - the value
    trial.store.get(history.id).erase("u2")
    expect({"u1", "u3"}, _found(trial.store, word), "after erasing")
    expect([], list(trial.store.notes(history.id)), "the notes after erasing")
    expect([], list(trial.store.verify()), "problems after erasing")


@CHECKS
def a_query_is_as_long_as_its_different_words(trial: Trial) -> None:
    """Repeated words count once; too many are refused, and said to be."""
    word = _word()
    words = [f"{word}{number}" for number in range(MAX_QUERY_WORDS + 1)]
    trial.store.create(
        [make_message("u1", " ".join(words)), make_message("u2", f"{word} {'喝茶' * 100}")]
    )
    store = trial.store
    expect({"u2"}, _found(store, f"{word} " * 10_000), "one word, many times")
    expect({"u1"}, _found(store, " ".join(words[:-1])), "many words")
    expect({"u1"}, _found(store, '"' + " ".join(words[:-1]) + '"'), "a long phrase")
    expect({"u2"}, _found(store, f"{word} {'喝茶' * 100}"), "a phrase without spaces")
    for name in (None, "nowhere"):
        for query in (" ".join(words), '"' + "tea " * (MAX_QUERY_WORDS + 1) + '"', "x" * 2_000_000):
            with raises(ValidationError, "too much"):
                store.search(query, conversation=name)


@CHECKS
def what_looks_like_a_query_language_is_text(trial: Trial) -> None:
    """Operators, quotes and signs are words or nothing, and never an error."""
    word = _word()
    trial.store.create(
        [
            make_message("u1", f"{word} NEAR the OR and NOT"),
            make_message("u2", f"{word} foo_bar it's"),
        ]
    )
    expect({"u1"}, _found(trial.store, f"{word} NOT"), "NOT")
    expect({"u1"}, _found(trial.store, f"{word} or NEAR"), "OR and NEAR")
    expect({"u2"}, _found(trial.store, f"{word} foo_bar"), "an underscore")
    expect({"u2"}, _found(trial.store, f"{word} it's"), "an apostrophe")
    for odd in ('"', "'", "*", "(", "a*", "text:x", "{a b}", "^a", "-a", "a AND", "\\", "%", ";"):
        trial.store.search(f"{word} {odd}")


@CHECKS
def languages_without_spaces_are_searched(trial: Trial) -> None:
    """Chinese, Japanese and Korean by any run of characters."""
    word = _word()
    trial.store.create(
        [
            make_message("u1", f"{word} 我们喝绿茶吧"),
            make_message("u2", f"{word} 茶和绿豆"),
            make_message("u3", f"{word}お茶をください"),
            make_message("u4", f"{word} 안녕하세요"),
        ]
    )
    expect({"u1"}, _found(trial.store, f"{word} 绿茶"), "绿茶")
    expect({"u1", "u2", "u3"}, _found(trial.store, f"{word} 茶"), "茶")
    expect({"u1", "u2"}, _found(trial.store, f"{word} 茶 绿"), "茶 and 绿")
    expect({"u3"}, _found(trial.store, f"{word} ください"), "ください")
    expect({"u4"}, _found(trial.store, f"{word} 안녕"), "안녕")


@CHECKS
def accents_case_and_width_make_no_other_word(trial: Trial) -> None:
    """However it is written, in the text or in the query: composed, apart, or without."""
    word = _word()
    trial.store.create(
        [
            make_message("u1", f"{word} Café, Straße"),
            make_message("u2", f"{word} CAFE\u0301 strasse"),
            make_message("u3", f"{word} cafes"),
            make_message("u4", f"{word} ΛΌΓΟΣ ЁЛКА שָׁלוֹם"),
            make_message("u5", f"{word} हिन्दी ภาษาไทย Tiếng_Việt"),
            make_message("u6", f"{word} か が \uff76\uff9e \uff34\uff25\uff21"),
        ]
    )
    for written in ("café", "cafe", "CAFÉ", "cafe\u0301", "\uff43\uff41\uff46\uff45"):
        expect({"u1", "u2"}, _found(trial.store, f"{word} {written}"), written)
    expect({"u1", "u2"}, _found(trial.store, f'{word} "CAFE STRASSE"'), "a phrase")
    for written in ("λόγος", "λογοσ", "елка", "שלום"):
        expect({"u4"}, _found(trial.store, f"{word} {written}"), written)
    for written in ("हिन्दी", "ภาษาไทย", "tieng_viet", "Tiê\u0301ng_Viê\u0323t"):
        expect({"u5"}, _found(trial.store, f"{word} {written}"), written)
    for written in ("हिन्द", "हन्दी", "tieng"):
        expect(set(), _found(trial.store, f"{word} {written}"), written)
    for written in ("か", "が", "カ\u3099", "tea"):
        expect({"u6"}, _found(trial.store, f"{word} {written}"), written)
    expect(set(), _found(trial.store, f"{word} き"), "another syllable")
    (hit,) = trial.store.search(f"cafes {word}")
    expect(True, "cafes" in hit.snippet, "a snippet")  # noqa: FBT003 - the value


@CHECKS
def tools_are_searched_too(trial: Trial) -> None:
    """What a tool was asked and what it answered."""
    word = _word()
    call = {"type": "tool_use", "tool_use": {"id": "c", "name": "brew", "input": {"leaf": word}}}
    result = {"type": "tool_result", "tool_result": {"tool_use_id": "c", "content": f"{word} done"}}
    messages = [
        {"role": "assistant", "content": [call], "id": "a1"},
        {"role": "tool", "content": [result], "id": "t2"},
    ]
    trial.store.create([parse_message(message) for message in messages])
    expect({"a1", "t2"}, _found(trial.reopen(), word), "both")
    expect({"a1"}, _found(trial.store, f"{word} brew leaf"), "the call")
    expect({"t2"}, _found(trial.store, f"{word} done"), "the result")


@CHECKS
def a_fork_is_searched_with_what_it_inherited(trial: Trial) -> None:
    """Up to where it began, and no further; the whole store names each message once."""
    word = _word()
    parent = trial.store.create([make_message("u1", f"{word} one")])
    fork = parent.fork()
    deeper = fork.fork()
    parent.append(make_message("u2", f"{word} two"))
    fork.append(make_message("u3", f"{word} three"))
    deeper.append(make_message("u4", f"{word} four"))
    store = trial.reopen()
    expect({"u1", "u2"}, _found(store, word, parent.id), "the parent")
    expect({"u1", "u3"}, _found(store, word, fork.id), "the fork")
    expect({"u1", "u4"}, _found(store, word, deeper.id), "the fork's fork")
    expect(4, len(store.search(word)), "hits in the whole store")
    hits = store.search(word, conversation=fork.id)
    expect({(fork.id, 0), (fork.id, 1)}, {(h.conversation, h.position) for h in hits}, "places")


@CHECKS
def ids_are_found_by_their_beginning(trial: Trial) -> None:
    """In order, and no more than asked for."""
    word = _word()
    for rest in ("", "-b", "-a", "-é", "-\U0001f375x", "x"):
        trial.store.create(id=f"{word}{rest}")
    store = trial.reopen()
    everyone = [word, f"{word}-a", f"{word}-b", f"{word}-é", f"{word}-\U0001f375x", f"{word}x"]
    expect(everyone, store.named(word), "all")
    expect(everyone[1:5], store.named(f"{word}-"), "some")
    expect(everyone[1:3], store.named(f"{word}-", limit=2), "two")
    expect([f"{word}x"], store.named(f"{word}x"), "one")
    expect([], store.named(f"{word}%"), "none")


@CHECKS
def what_is_erased_is_not_found(trial: Trial) -> None:
    """Neither before nor after the index has seen it."""
    word = _word()
    history = trial.store.create(
        [make_message("u1", f"{word} early"), make_message("u2", f"{word} stays")]
    )
    expect({"u1", "u2"}, _found(trial.store, word), "before")
    history.append(make_message("u3", f"{word} late"))
    history.erase("u1")
    history.erase("u3")
    expect({"u2"}, _found(trial.store, word), "after")
    history.append(make_message("u4", f"{word} more"))
    expect({"u2", "u4"}, _found(trial.reopen(), word), "after reopening")


@CHECKS
def what_left_the_view_is_still_found(trial: Trial) -> None:
    """A search goes over the log: nothing in it is lost."""
    word = _word()
    history = trial.store.create([make_message("u1", f"{word} one")])
    history.clear(keep_system_message=False)
    history.replace(
        history.insert(0, make_messages("u2")).affected_batch_index - 2,
        make_message("u3", f"{word} two"),
    )
    expect({"u1", "u3"}, _found(trial.store, word), "hits")


@CHECKS
def a_store_that_is_whole_has_no_problems(trial: Trial) -> None:
    """`verify` finds nothing wrong after everything that can be done."""
    store = trial.store
    history = store.create(make_messages("s1 u2 a3"))
    history.insert(1, make_messages("u4 a5"))
    history.mark(0, "pin")
    fork = history.fork(at=0)
    fork.extend(make_messages("u6 a7"))
    history.merge(fork)
    history.undo()
    history.erase("u2")
    history.truncate(keep_last=1)
    history.rollback(0)
    store.backend.put(history.id, "draft", "d", b"x")
    store.lease(history.id, "me")
    for now in trial.now_and_later():
        expect([], list(now.verify()), "problems of the store")
        expect([], list(now.verify(fork.id)), "problems of the fork")
        head = now.backend.head(history.id)
        expect([], list(now.backend.damaged(history.id, head.base, head.length)), "damaged rows")
        expect([], list(now.backend.check()), "what the store itself finds")
