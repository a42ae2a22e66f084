from __future__ import annotations

import base64
import io
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palaver
from palaver.errors import (
    AlreadyExists,
    Conflict,
    NothingToUndo,
    StoreDamaged,
    StoreError,
    ValidationError,
)
from palaver.messages import assistant, to_dict, user
from palaver.stores.transfer import FORMS, Form, export_conversation, import_conversation
from tests.profiles import at_least
from tests.stores.programs import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores import Store, StoredHistory

    Opener = Callable[[], Store]

WHOLE: tuple[Form, ...] = ("lines", "document")


def exported(store: Store, name: str, form: Form = "lines") -> bytes:
    stream = io.BytesIO()
    export_conversation(store, name, stream, form=form)
    return stream.getvalue()


def imported(store: Store, data: bytes, name: str | None = None) -> StoredHistory:
    return import_conversation(store, io.BytesIO(data), id=name)


def small() -> tuple[Store, str]:
    """A conversation with a little of everything."""
    store = palaver.open(":memory:")
    history = store.create([user("one"), assistant("two")], id="talk", title="Talk", tags=["t"])
    history.append(user("three"), key="once")
    history.replace(0, user("uno"))
    history.mark(1, "good")
    history.undo()
    store.backend.put("talk", "draft", "d", b"\x00")
    return store, history.id


def everything(history: StoredHistory) -> Any:  # noqa: ANN401 - to be compared
    """Everything that can be read of a conversation, at every version."""
    views = [history.at(version) for version in range(history.version + 1)]
    return (
        history.title,
        history.tags,
        [to_dict(message) for message in history.log],
        [
            (
                [message.id for message in view],
                view.team_task,
                dict(view.marks),
                view.batch_index,
                [snapshot.to_dict(messages=False) for snapshot in view.batch_snapshots()],
                view.mark_map().original_indices,
            )
            for view in views
        ],
    )


def ways(history: StoredHistory) -> list[list[str]]:
    """Where undo and redo lead from here, as far as they go."""
    found: list[list[str]] = []
    for step in (history.undo, history.redo, history.redo):
        while len(found) < 100:
            try:
                step()
            except NothingToUndo:
                break
            found.append([message.id for message in history])
    return found


@at_least(15)
@given(seed=st.integers(0, 2**32), form=st.sampled_from(WHOLE))
def test_what_comes_in_is_what_went_out(seed: int, form: Form) -> None:
    """Every version, batch, mark and way back; and what goes out again is the same file."""
    store = palaver.open(":memory:")
    for name in run(store, random.Random(seed), 30):  # noqa: S311 - a repeatable chance
        written = exported(store, name, form)
        other = palaver.open(":memory:")
        history = imported(other, written)
        assert everything(store.get(name)) == everything(history)
        assert written == exported(other, name, form)
        assert [] == list(other.verify())
        assert ways(store.get(name)) == ways(history)


@pytest.mark.parametrize("form", WHOLE)
def test_a_fork_goes_out_with_all_it_has_from_its_parent(form: Form, open_store: Opener) -> None:
    with open_store() as store:
        parent = store.create([user("a"), user("b"), user("c")])
        parent.truncate(keep_last=2)
        parent.truncate(keep_last=1)
        fork = parent.fork()
        fork.append(user("d"))
        fork.insert(0, [user("e")])
        written = exported(store, fork.id, form)
        history = imported(store, written, "alone")
        assert everything(store.get(fork.id)) == everything(history)
        assert history.origin is None
        assert ["a", "b", "c"] == [message.text for message in history.rollback(0).state.messages]
        assert [] == list(store.verify())


def test_what_came_in_goes_on_like_any_other(open_store: Opener) -> None:
    source, name = small()
    with open_store() as store:
        history = imported(store, exported(source, name))
        history.redo()
        history.append(user("four"))
        other = history.fork()
        other.replace(0, user("zero"))
        history.merge(other)
        assert ["zero", "two", "three", "four"] == [message.text for message in history]
        assert [] == list(store.verify())
    with open_store() as store:
        assert 4 == len(store.get(name))
        assert {"d": b"\x00"} == store.backend.records(name, "draft")


def test_a_key_that_was_used_stays_used(open_store: Opener) -> None:
    source, name = small()
    with open_store() as store:
        history = imported(store, exported(source, name))
        version = history.version
        history.append(user("three again"), key="once")
        assert version == history.version


# ── nothing changes where anything is wrong ─────────────────────────────────────────────────────


def unchanged(store: Store, data: bytes, error: type[Exception] = ValidationError) -> str:
    """Import what is refused, and prove that nothing has changed; answer what was said."""
    before = [(head, exported(store, head.id)) for head in store]
    cursor = store.backend.newest()
    with pytest.raises(error) as refusal:
        imported(store, data)
    assert before == [(head, exported(store, head.id)) for head in store]
    assert cursor == store.backend.newest()
    return str(refusal.value)


def test_a_file_that_was_cut_off_changes_nothing(open_store: Opener) -> None:
    source, name = small()
    written = exported(source, name)
    lines = written.splitlines(keepends=True)
    with open_store() as store:
        for count in range(1, len(lines)):
            assert "cut off" in unchanged(store, b"".join(lines[:count]))
        for length in range(0, len(written) - 1, 97):
            unchanged(store, written[:length])
        document = exported(source, name, "document")
        for length in range(0, len(document) - 2, 97):
            unchanged(store, document[:length])


@pytest.mark.parametrize("form", WHOLE)
def test_a_damaged_file_changes_nothing_or_is_harmless(form: Form) -> None:
    """One byte after the other is another: it is refused, or what comes in is whole."""
    source, name = small()
    written = bytearray(exported(source, name, form))
    chance = random.Random(7)  # noqa: S311 - a repeatable chance
    for _ in range(400):
        place = chance.randrange(len(written))
        damaged = bytearray(written)
        damaged[place] = chance.choice(b'0123456789{}[],:"axz \n')
        store = palaver.open(":memory:")
        try:
            history = imported(store, bytes(damaged))
        except (ValidationError, StoreError):
            assert [] == list(store)
        else:
            assert [] == list(store.verify())
            everything(history)


def edited(data: bytes, line: int, *steps: str | int, value: object) -> bytes:
    """A file with one value in one line put in place of another; None takes it out."""
    lines = data.splitlines(keepends=True)
    found = json.loads(lines[line])
    inner = found
    for step in steps[:-1]:
        inner = inner[step]
    inner[steps[-1]] = value
    lines[line] = json.dumps(found).encode() + b"\n"
    return b"".join(lines)


@pytest.mark.parametrize(
    ("line", "steps", "value", "text"),
    [
        (0, ("version",), 3, "Invalid snapshot format"),
        (0, ("palaver",), "song", "Invalid snapshot format"),
        (0, ("id",), "", "$.id"),
        (0, ("created",), -1, "$.created"),
        (0, ("more",), 1, "$.more"),
        (0, ("title",), "a\0b", "$.title"),
        (0, ("tags",), ["\n"], "$.tags[0]"),
        (1, ("record", "value"), "?", "base64"),
        (2, ("message", "role"), "robot", "$[2].message.role"),
        (2, ("more",), 1, "nothing else"),
        (4, ("change", "version"), 1, "must be 0"),
        (4, ("change", "count"), 3, "must be 2"),
        (4, ("change", "at"), "now", "$[4].change.at"),
        (4, ("change", "stop"), 9, "ends beyond the log"),
        (4, ("change", "frame"), {"r": [0, 9, 9]}, "can't be read"),
        (4, ("change", "frame"), {"r": [0, 0, 0], "n": [[0, 9, 0, 9, 0]]}, "selects"),
        (4, ("change", "frame"), {"r": [0, 0, 0], "n": [[0, 2, 2, 0, 0]]}, "counts roles"),
        (4, ("change", "frame"), {"g": 7}, "a longer log"),
        (4, ("change", "frame"), {"g": 2, "b": 0}, "goes back"),
        (4, ("change", "frame"), {"g": 2, "d": [4, False]}, "redo"),
        (4, ("change", "frame"), {"g": 2, "o": 3}, "opened"),
        (4, ("change", "frame"), {"g": 2, "t": "a\0"}, "$[4].change.frame.t"),
        (4, ("change", "replaces"), {"0": 9}, "names no message"),
        (4, ("change", "replaces"), {"x": 0}, "names no message"),
        (6, ("change", "frame"), {"p": []}, "$[6].change"),
        (6, ("change", "kind"), "insert", "is missing"),
        (6, ("change", "stop"), 2, "must be 3"),
        (-1, ("end", "messages"), 3, "another number"),
        (-1, ("end",), {}, "$["),
    ],
)
def test_what_is_wrong_is_named(
    line: int, steps: tuple[str, ...], value: object, text: str
) -> None:
    source, name = small()
    data = edited(exported(source, name), line, *steps, value=value)
    if steps == ("change", "frame") and value == {"p": []}:
        data = edited(exported(source, name), line, "change", "frame", value={"p": [[0] * 11]})
    assert text in unchanged(palaver.open(":memory:"), data)


def test_a_rope_that_folds_into_itself_is_refused() -> None:
    """Sixty nodes, each twice the one before, would be more messages than there are atoms."""
    source, name = small()
    nodes: list[list[Any]] = [[0, 1, 0, 1, 0]]
    nodes += [[[0, 0, place], [0, 0, place]] for place in range(60)]
    frame = {"r": [0, 0, 60], "n": nodes, "g": 2, "s": 2}
    data = edited(exported(source, name), 4, "change", "frame", value=frame)
    assert "more than the log has" in unchanged(palaver.open(":memory:"), data)


def test_lines_after_the_end_are_refused() -> None:
    source, name = small()
    data = exported(source, name)
    assert "after the end" in unchanged(palaver.open(":memory:"), data + b'{"end": {}}\n')


def test_a_record_twice_or_late_is_refused() -> None:
    source, name = small()
    lines = exported(source, name).splitlines(keepends=True)
    twice = b"".join([*lines[:2], lines[1], *lines[2:]])
    assert "twice" in unchanged(palaver.open(":memory:"), twice)
    late = b"".join([*lines[:3], lines[1], *lines[3:]])
    assert "before the messages" in unchanged(palaver.open(":memory:"), late)


DAMAGED_NAMES = [
    b"\xc7\xff",
    b'{"a":',
    b"5",
    b"null",
    b"[[1]]",
    b'[["x", "y"]]',
    b"[[-1, 0]]",
    b"[[0, 2]]",
    b"[[0, 99999]]",
    b"[" * 100_000,
]


def merged() -> tuple[Store, str]:
    """A conversation of two messages, one of which it has from a fork."""
    store = palaver.open(":memory:")
    history = store.create([user("one")], id="talk")
    fork = history.fork(id="fork")
    fork.append(user("two"))
    history.merge(fork)
    return store, history.id


@pytest.mark.parametrize("names", DAMAGED_NAMES, ids=lambda value: repr(value[:12]))
@pytest.mark.parametrize("form", WHOLE)
def test_a_damaged_record_of_a_merge_changes_nothing(form: Form, names: bytes) -> None:
    source, name = merged()
    (good,) = source.backend.records(name, "names").values()
    data = exported(source, name, form)
    old, new = base64.b64encode(good), base64.b64encode(names)
    assert 1 == data.count(old)
    store = palaver.open(":memory:")
    with pytest.raises(ValidationError) as caught:
        imported(store, data.replace(old, new), "new")
    assert "$[1].record.value" == caught.value.path
    assert [] == store.named("")
    assert ["one", "two"] == [message.text for message in imported(store, data, "new")]


@pytest.mark.parametrize("names", [*DAMAGED_NAMES[:7], DAMAGED_NAMES[-1]], ids=range(8))
def test_a_damaged_record_of_a_merge_is_reported_and_can_be_removed(
    names: bytes, open_store: Opener
) -> None:
    with open_store() as store:
        store.create([user("one")], id="talk")
        store.backend.put("talk", "names", "fork", names)
        with pytest.raises(StoreDamaged, match="which messages talk has from elsewhere"):
            store.get("talk")
        (problem,) = store.verify("talk")
        assert problem.startswith("talk: which messages talk has from elsewhere can't be read")
        store.delete("talk")
        assert "talk" not in store
        assert [] == list(store.verify())


def test_an_id_that_is_taken_changes_nothing(open_store: Opener) -> None:
    source, name = small()
    written = exported(source, name)
    with open_store() as store:
        imported(store, written)
        assert name in unchanged(store, written, AlreadyExists)
        assert 3 == len(imported(store, written, "another"))


def test_an_error_while_storing_leaves_nothing(open_store: Opener) -> None:
    """The store itself is all or nothing, whatever `changes` raises half way."""
    source, name = small()
    from palaver.stores.transfer.copy import first_head  # noqa: PLC0415 - only here
    from palaver.stores.transfer.export import read_changes  # noqa: PLC0415 - the same

    head = source.backend.head(name)
    changes = list(read_changes(source.backend, head))

    def breaking() -> Any:  # noqa: ANN401 - a generator of changes
        yield from changes[:2]
        raise OSError

    with open_store() as store:
        with pytest.raises(OSError):  # noqa: PT011 - whatever was raised
            store.backend.adopt(first_head(head, changes[0]), breaking())
        assert [] == list(store)
        assert [] == list(store.verify())
        imported(store, exported(source, name))
        with pytest.raises(StoreError):
            store.backend.adopt(None, changes[1:])
        assert head.version == store.backend.head(name).version


# ── files ───────────────────────────────────────────────────────────────────────────────────────


class Pipe(io.BytesIO):
    """A stream that can be read only once."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: object) -> int:
        raise OSError


@pytest.mark.parametrize("form", FORMS)
def test_a_pipe_is_as_good_as_a_file(form: Form) -> None:
    source, name = small()
    store = palaver.open(":memory:")
    history = import_conversation(store, Pipe(exported(source, name, form)), id=name)
    assert exported(source, name, form) == exported(store, history.id, form)


@pytest.mark.parametrize("form", WHOLE)
def test_a_mark_of_byte_order_and_blank_lines_do_no_harm(form: Form) -> None:
    source, name = small()
    data = exported(source, name, form)
    if form == "lines":
        data = b"\xef\xbb\xbf" + data.replace(b"\n", b"\n\n")
    assert len(source.get(name)) == len(imported(palaver.open(":memory:"), data))


def test_progress_is_reported() -> None:
    source, name = small()
    out: list[tuple[int, int | None]] = []
    back: list[tuple[int, int | None]] = []
    stream = io.BytesIO()
    export_conversation(source, name, stream, progress=lambda *told: out.append(told))
    stream.seek(0)
    other = palaver.open(":memory:")
    import_conversation(other, stream, progress=lambda *told: back.append(told))
    assert (4, 4) == out[-1]
    assert (8, 8) == back[-1]
    assert sorted(back) == back


def test_a_form_that_nobody_knows_is_refused() -> None:
    source, name = small()
    with pytest.raises(ValidationError, match="lines, document, version-1"):
        export_conversation(source, name, io.BytesIO(), form="xml")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ── into a conversation that is there ───────────────────────────────────────────────────────────

SNAPSHOT: dict[str, Any] = {
    "messages": [
        {
            "id": f"msg-{number}",
            "content": text,
            "speaker": {"roleId": role, "roleName": role, "type": kind},
        }
        for number, (text, role, kind) in enumerate([("Hi", "u", "human"), ("Hello", "max", "ai")])
    ],
    "teamTask": "Greet.",
    "timestamp": 1_700_000_000_000,
    "version": 1,
}


def into(store: Store, name: str, value: object) -> StoredHistory:
    return import_conversation(store, io.BytesIO(json.dumps(value).encode()), into=name)


def test_a_snapshot_into_a_conversation_can_be_rolled_back(open_store: Opener) -> None:  # CX-08
    with open_store() as store:
        history = store.create([user("one"), assistant("two")], id="talk")
        history.set_team_task("Count.")
        version = history.version
        history = into(store, "talk", SNAPSHOT)
        assert version + 1 == history.version
        assert (["Hi", "Hello"], "Greet.") == ([m.text for m in history], history.team_task)
        out = io.BytesIO()
        export_conversation(store, "talk", out, form="version-1")
        assert SNAPSHOT["messages"] == json.loads(out.getvalue())["messages"]
        assert [] == list(store.verify())
    with open_store() as store:
        history = store.get("talk")
        snapshot = history.batch_snapshot(0)
        assert snapshot is not None
        assert "Before IMPORT" == snapshot.description
        history.undo()
        assert (["one", "two"], "Count.") == ([m.text for m in history], history.team_task)
        history.redo()
        history.append(user("three"))
        history.rollback(0)
        assert ["one", "two"] == [m.text for m in history]
        assert [] == list(store.verify())


def test_an_empty_snapshot_leaves_nothing_and_can_be_undone(store: Store) -> None:
    store.create([user("one")], id="talk")
    history = into(store, "talk", {**SNAPSHOT, "messages": [], "teamTask": None})
    assert [] == list(history)
    history.undo()
    assert ["one"] == [m.text for m in history]


@pytest.mark.parametrize("wrong", ["twice", "lines", "document", "none", "id"])
def test_what_is_wrong_with_a_snapshot_leaves_the_conversation_as_it_is(
    store: Store, wrong: str
) -> None:
    store.create([user("one")], id="talk")
    data = json.dumps(SNAPSHOT).encode()
    if wrong == "twice":
        messages = SNAPSHOT["messages"]
        data = json.dumps({**SNAPSHOT, "messages": [*messages, messages[0]]}).encode()
    elif wrong in WHOLE:
        data = exported(store, "talk", "lines" if wrong == "lines" else "document")
    elif wrong == "none":
        data = b"[]"
    with pytest.raises(ValidationError):
        import_conversation(
            store, io.BytesIO(data), into="talk", id="other" if wrong == "id" else None
        )
    assert (0, ["one"]) == (store.get("talk").version, [m.text for m in store.get("talk")])


def test_a_snapshot_does_not_overrun_what_others_write(store: Store) -> None:
    mine = store.create([user("one")], id="talk")
    store.get("talk").append(user("two"))
    with pytest.raises(Conflict):
        mine.replace_all([], team_task=None)
    assert ["one", "two"] == [m.text for m in store.get("talk")]
