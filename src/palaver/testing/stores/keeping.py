"""What is kept comes back: conversations, their messages, records beside them, pages of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import AlreadyExists, StoreError, UnknownConversation, ValidationError
from palaver.messages import Message, new_id, to_dict
from palaver.stores import Store
from palaver.stores.protocol import Keeper
from palaver.testing.stores.expecting import Clock, expect, line, one, raises, said
from palaver.testing.stores.running import Checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.history.view import View
    from palaver.messages import Role
    from palaver.testing.stores.running import Trial

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
def it_is_a_keeper(trial: Trial) -> None:
    """The store underneath has every method of the protocol."""
    promised = [name for name in dir(Keeper) if not name.startswith("_")]
    missing = [name for name in promised if not hasattr(trial.store.keeper, name)]
    expect([], missing, "methods that are missing")


@CHECKS
def a_conversation_is_there_once_it_is_begun(trial: Trial) -> None:
    """What was created can be got, with its title, tags and messages, also after reopening."""
    made = trial.store.create(said("s1 u2 a3"), title="Tea 茶", tags=["b", "a", "b"])
    for store in trial.now_and_later():
        found = store.get(made.id)
        expect("s1 u2 a3", line(found), "the messages")
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
    found.append(one("u1"))
    expect("u1", line(trial.reopen().get(name)), "the messages")


@CHECKS
def an_unknown_conversation_is_an_error(trial: Trial) -> None:
    """Every way to ask for a conversation that is not there says so."""
    store, name = trial.store, f"nobody {new_id()}"
    keeper = store.keeper
    ways: dict[str, Callable[[], object]] = {
        "get": lambda: store.get(name),
        "delete": lambda: store.delete(name),
        "describe": lambda: store.describe(name, title="x"),
        "lease": lambda: store.lease(name, "me"),
        "put": lambda: keeper.put(name, "draft", "d", b""),
        "records": lambda: keeper.records(name, "draft"),
        "family": lambda: keeper.family(name),
        "journal": lambda: keeper.journal(name, -1, 1),
        "erase": lambda: keeper.erase(name, ["x"], 0),
        "search": lambda: keeper.search("x", name, 1),
        "messages": lambda: keeper.messages(name, 0, 1),
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
    trial.store.create(said("u1"), id=name, title="first")
    with raises(AlreadyExists, "the second"):
        trial.store.create(said("u1 u2"), id=name, title="second")
    with raises(AlreadyExists, "a fork"):
        trial.store.create().fork(id=name)
    found = trial.reopen().get(name)
    expect(("first", "u1"), (found.title, line(found)), "the first")
    expect([], list(trial.store.verify(name)), "problems")


@CHECKS
def bad_names_are_refused_before_anything_is_kept(trial: Trial) -> None:
    """An id, title or tag that breaks a rule leaves no trace."""
    store = trial.store
    history = store.create()
    before = store.keeper.newest()
    ways: dict[str, Callable[[], object]] = {
        "an id": lambda: store.create(id=""),
        "a title": lambda: store.create(title="\0"),
        "a tag": lambda: store.create(tags=[""]),
        "a fork's id": lambda: history.fork(id=""),
        "a fork that is its own parent": lambda: history.fork(id=history.id),
    }
    for what, ask in ways.items():
        with raises(ValidationError, what):
            ask()
    expect(before, store.keeper.newest(), "the cursor")


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
    for expected, kept in zip(messages, found, strict=True):
        expect(to_dict(expected), to_dict(kept), "a message")
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
def conversations_are_listed_page_by_page(trial: Trial) -> None:
    """The latest changed first, each once, whole or by a tag, also where times are the same."""
    tag, clock = f"tag {new_id()}", Clock()
    store = Store(trial.store.keeper, clock=clock)
    names: list[str] = []
    for number in range(7):
        clock.now += number % 3  # some at the same moment
        names.append(store.create(id=f"{number} {tag}", tags=["all", tag]).id)
    clock.now += 1_000_000
    store.get(names[2]).append(one("u1"))
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
def records_are_kept_beside_the_log(trial: Trial) -> None:
    """Records come back by kind and name, are overwritten, and can be taken away."""
    store = trial.store
    name, other = store.create().id, store.create().id
    every = bytes(range(256)) * 10
    store.keeper.put(name, "draft", "one", b"1")
    store.keeper.put(name, "draft", "茶", every)
    store.keeper.put(name, "draft", "one", b"2")
    store.keeper.put(name, "call", "one", b"")
    store.keeper.put(name, "call", "gone", b"x")
    store.keeper.put(name, "call", "gone", None)
    store.keeper.put(name, "call", "never there", None)
    keeper = trial.reopen().keeper
    expect({"one": b"2", "茶": every}, keeper.records(name, "draft"), "drafts")
    expect({"one": b""}, keeper.records(name, "call"), "calls")
    expect({}, keeper.records(name, "none of these"), "an unknown kind")
    expect({}, keeper.records(other, "draft"), "another's drafts")
    expect(0, keeper.head(name).version, "the version")


@CHECKS
def some_of_the_records_can_be_read(trial: Trial) -> None:
    """From one name to before another, by code points, and the last so many of those."""
    store = trial.store
    name = store.create().id
    names = ["", "A", "a", "a!", "ab", "a\x7f", "b", "é", "\uffff", "\U0001f375"]
    store.keeper.keep(name, [("draft", each, each.encode()) for each in reversed(names)])
    store.keeper.put(name, "call", "b", b"another kind")
    records = trial.reopen().keeper.records
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
    """What is kept with a rewrite is there with it; a condition is asked of what is there."""
    history = trial.store.create(said("u1 a2 u3"))
    history.truncate(keep_last=1)
    other, late = trial.store.get(history.id), trial.store.get(history.id)
    history.rewrite([range(2), one("u4")], of_log=True, records=[("call", "x", b"1")])
    seen: list[str] = []

    def refuse(view: View) -> None:
        seen.append(line(view))
        if len(view) > 1:
            msg = "too late"
            raise LookupError(msg)

    with raises(LookupError, "a condition that no longer holds"):
        other.rewrite([one("u5")], records=[("call", "x", None)], unless=refuse)
    expect(["u3", "u1 a2 u4"], seen, "what the condition was asked of")
    expect("u1 a2 u4", line(trial.store.get(history.id)), "what is kept")
    expect({"x": b"1"}, trial.store.keeper.records(history.id, "call"), "records")
    late.rewrite([range(1), one("u6")], records=[("call", "y", b"2")])  # it is merged
    store = trial.reopen()
    expect("u1 a2 u4 u6", line(store.get(history.id)), "both")
    expect(["x", "y"], list(store.keeper.records(history.id, "call")), "records of both")


@CHECKS
def a_conversation_begins_with_its_records(trial: Trial) -> None:
    """Records that are given with the first messages are kept in the same change."""
    made = trial.store.create(said("u1"), records=[("origin", "about", b"{}")])
    for store in trial.now_and_later():
        expect(0, store.get(made.id).version, "the version")
        expect({"about": b"{}"}, store.keeper.records(made.id, "origin"), "the records")
    with raises(AlreadyExists, "the same id again"):
        trial.store.create(id=made.id, records=[("origin", "about", b"other")])
    expect({"about": b"{}"}, trial.store.keeper.records(made.id, "origin"), "the records")


@CHECKS
def a_conversation_can_be_deleted(trial: Trial) -> None:
    """Nothing of it is left: no listing, no search, no journal; others are as they were."""
    store, word = trial.store, f"w{new_id().replace('-', '')}"
    stays = store.create([one("u1", f"{word} stays")]).id
    gone = store.create([one("u1", f"{word} goes")], tags=[word])
    gone.append(one("u2", f"{word} goes too"))
    store.keeper.put(gone.id, "draft", "d", b"x")
    expect(3, len(store.search(word)), "hits before")
    cursor = store.keeper.newest()
    store.delete(gone.id)
    with raises(UnknownConversation, "an append to it"):
        gone.append(one("u3"))
    for now in trial.now_and_later():
        expect(False, gone.id in now, "`in`")  # noqa: FBT003 - the value
        expect((), now.list(tag=word).conversations, "listed")
        expect([stays], [hit.conversation for hit in now.search(word)], "hits")
    again = trial.store.create([one("u1", f"{word} again")], id=gone.id)
    expect(0, again.version, "the version of a new one of the same id")
    expect({}, trial.store.keeper.records(gone.id, "draft"), "records of the new one")
    expect(2, len(trial.store.search(word)), "hits afterwards")
    told = trial.store.keeper.journal(None, cursor, 10)
    expect([gone.id], [change.conversation for change in told], "what a follower is told")
    expect([], list(trial.store.verify(again.id)), "problems")


@CHECKS
def what_others_read_from_is_not_deleted(trial: Trial) -> None:
    """A conversation with forks stays until they are gone."""
    parent = trial.store.create(said("u1 a2"))
    fork = parent.fork()
    with raises(StoreError, "the parent first") as caught:
        trial.store.delete(parent.id)
    expect(True, fork.id in str(caught[0]), "the fork is named")  # noqa: FBT003 - the value
    expect("u1 a2", line(trial.reopen().get(fork.id)), "the fork")
    trial.store.delete(fork.id)
    trial.store.delete(parent.id)
    expect(False, parent.id in trial.store, "the parent is there")  # noqa: FBT003 - the value
