"""Transcripts brought in and followed: what is new is appended, nothing is stored twice."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.errors import AlreadyExists, VersionMismatch
from palaver.messages import user
from palaver.stores.stored_history import StoredHistory
from palaver.transcripts.discover import FoundTranscript, discover, transcript_at
from palaver.transcripts.follow import BroughtIn, Follower, bring_in, is_brought_in
from palaver.transcripts.importer import TranscriptImport
from palaver.transcripts.readers import read_file
from tests.transcripts.samples import DATA, database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from palaver.stores import Store

SESSION = "5a1de0c4-6b1e-4c3f-9d0a-2f6f3c1b7e01"
TICK = iter(range(1_000, 10**9))


@pytest.fixture
def store() -> Iterator[Store]:
    with palaver.open(":memory:") as opened:
        yield opened
        assert [] == list(opened.verify())


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return tmp_path / ".claude" / "projects" / "-tea" / f"{SESSION}.jsonl"


def line(number: int, kind: str, text: str, *, parent: int | None = None, **more: object) -> bytes:
    """One line of a session of Claude Code."""
    said: dict[str, Any] = {"role": kind, "content": text}
    if kind == "assistant":
        said = {"id": f"m{number}", **said, "content": [{"type": "text", "text": text}]}
    above = number - 1 if parent is None else parent
    value = {
        "type": kind, "uuid": f"u{number}", "parentUuid": f"u{above}" if above else None,
        "sessionId": SESSION, "timestamp": "2026-03-01T09:00:00Z", "message": said, **more,
    }  # fmt: skip
    return json.dumps(value).encode() + b"\n"


def write(path: Path, *lines: bytes) -> None:
    """Write a file, with a date later than all before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    at = next(TICK)
    os.utime(path, (at, at))


def found_at(path: Path) -> FoundTranscript:
    return transcript_at(path, "claude-code")


def actions(results: Iterator[BroughtIn]) -> list[tuple[str, int]]:
    return [(result.action, result.added) for result in results]


def texts(store: Store, name: str = SESSION) -> list[str]:
    return [message.text for message in store.get(name)]


def test_what_a_file_has_grown_by_is_appended(store: Store, session: Path) -> None:
    lines = [line(1, "user", "Tea?"), line(2, "assistant", "Yes.")]
    write(session, *lines)
    assert [("created", 2)] == actions(bring_in(store, found_at(session)))
    assert [("unchanged", 0)] == actions(bring_in(store, found_at(session)))
    lines += [line(3, "user", "Green?"), line(4, "assistant", "As well.")]
    write(session, *lines, b'{"type":"user","uuid":"u5"')  # half a line: it is being written
    (result,) = bring_in(store, found_at(session))
    assert ("appended", 2, 4) == (result.action, result.added, result.messages)
    assert ["Tea?", "Yes.", "Green?", "As well."] == texts(store)
    assert 1 == store.head(SESSION).version  # both in one change
    assert ["transcript.damaged"] == [note.rule for note in result.notes]


def test_changes_made_here_stay_and_what_is_new_goes_after_them(
    store: Store, session: Path
) -> None:
    write(session, line(1, "user", "Tea?"))
    list(bring_in(store, found_at(session)))
    store.get(SESSION).append(user("A note of mine"))
    write(session, line(1, "user", "Tea?"), line(2, "assistant", "Yes."))
    assert [("appended", 1)] == actions(bring_in(store, found_at(session)))
    assert ["Tea?", "A note of mine", "Yes."] == texts(store)
    assert [("unchanged", 0)] == actions(bring_in(store, found_at(session)))


def test_an_answer_that_goes_on_replaces_its_beginning(store: Store, session: Path) -> None:
    question, begun = line(1, "user", "Tea?"), line(2, "assistant", "Well,")
    write(session, question, begun)
    list(bring_in(store, found_at(session)))
    rest = line(3, "assistant", " yes.").replace(b'"m3"', b'"m2"')
    write(session, question, begun, rest)
    assert [("replaced", 1)] == actions(bring_in(store, found_at(session)))
    assert ["Tea?", "Well, yes."] == texts(store)
    assert ["Tea?", "Well,"] == [message.text for message in store.get(SESSION).at(0)]


def test_going_back_in_a_session_selects_anew_unless_it_was_changed_here(
    store: Store, session: Path
) -> None:
    lines = [line(1, "user", "Tea?"), line(2, "user", "Green.")]
    write(session, *lines)
    list(bring_in(store, found_at(session)))
    lines.append(line(3, "user", "Black.", parent=1))
    write(session, *lines)
    assert [("replaced", 1)] == actions(bring_in(store, found_at(session)))
    assert ["Tea?", "Black."] == texts(store)
    store.get(SESSION).append(user("Mine"))
    write(session, *lines, line(4, "user", "White.", parent=1))
    (result,) = bring_in(store, found_at(session))
    assert ("kept", "it was changed here, and the file says something else than before") == (
        result.action, result.detail
    )  # fmt: skip
    assert ["Tea?", "Black.", "Mine"] == texts(store)


def test_a_title_that_comes_later_is_taken_unless_one_was_given_here(
    store: Store, session: Path
) -> None:
    said = line(1, "user", "Tea?")
    titled = [
        b'{"type":"summary","summary":"%s","leafUuid":"u1"}\n' % word for word in (b"A", b"B")
    ]
    write(session, said)
    list(bring_in(store, found_at(session)))
    write(session, said, titled[0])
    assert [("unchanged", 0)] == actions(bring_in(store, found_at(session)))
    assert "A" == store.head(SESSION).title
    store.describe(SESSION, title="Mine", tags=())
    write(session, said, *titled)
    list(bring_in(store, found_at(session)))
    assert "Mine" == store.head(SESSION).title


def test_what_was_imported_before_is_gone_on_with(store: Store, session: Path) -> None:
    write(session, line(1, "user", "Tea?"))
    transcript = TranscriptImport(store, lambda: read_file(session, "claude-code"))
    transcript.plan()
    transcript.run()
    write(session, line(1, "user", "Tea?"), line(2, "assistant", "Yes."))
    assert [("appended", 1)] == actions(bring_in(store, found_at(session)))
    assert ["Tea?", "Yes."] == texts(store)


def test_a_conversation_that_is_from_elsewhere_is_left_alone(store: Store, session: Path) -> None:
    store.create([user("Mine")], id=SESSION)
    write(session, line(1, "user", "Tea?"))
    (result,) = bring_in(store, found_at(session))
    assert ("kept", "the store has another of this id") == (result.action, result.detail)
    assert ["Mine"] == texts(store)


def test_a_second_file_of_the_same_session_is_a_conversation_of_its_own(
    store: Store, session: Path
) -> None:
    other = session.with_name("resumed.jsonl")
    write(session, line(1, "user", "Tea?"))
    write(other, line(1, "user", "Coffee?"))
    results: list[BroughtIn] = []
    for _ in range(2):
        results = [
            result for path in (session, other) for result in bring_in(store, found_at(path))
        ]
    first, second = (str(result.conversation) for result in results)
    assert ["unchanged", "unchanged"] == [result.action for result in results]
    assert (["Tea?"], ["Coffee?"]) == (texts(store, first), texts(store, second))
    session.unlink()  # it was moved: what is left goes on with it
    write(other, line(1, "user", "Tea?"), line(2, "user", "Milk?"))
    assert [("appended", 1)] == actions(bring_in(store, found_at(other)))
    assert ["Tea?", "Milk?"] == texts(store)


def test_agents_on_the_side_are_brought_in_with_their_session(store: Store, session: Path) -> None:
    write(session, line(1, "user", "Tea?"))
    agent = session.parent / SESSION / "subagents" / "agent-a7.jsonl"
    write(agent, line(9, "user", "Look", parent=0, isSidechain=True, agentId="a7"))
    environ = {"HOME": str(session.parents[3])}
    (found,) = discover(environ=environ).transcripts
    assert not is_brought_in(store, found)
    results = list(bring_in(store, found))
    assert [SESSION, f"{SESSION}:a7"] == [result.conversation for result in results]
    assert is_brought_in(store, found)
    write(agent, line(9, "user", "Look", parent=0, isSidechain=True, agentId="a7"), b"\n")
    (found,) = discover(environ=environ).transcripts
    assert not is_brought_in(store, found)


def test_a_database_is_brought_in_twice_and_stored_once(store: Store, tmp_path: Path) -> None:
    found = transcript_at(database(tmp_path / "logs.db", "llm.sql"), "llm")
    first, again = list(bring_in(store, found)), list(bring_in(store, found))
    assert {"created"} == {result.action for result in first}
    assert {"unchanged"} == {result.action for result in again}
    assert [one.conversation for one in first] == [one.conversation for one in again]


def test_a_file_that_cant_be_read_fails_alone(store: Store, tmp_path: Path) -> None:
    broken = tmp_path / "logs.db"
    broken.write_bytes(b"SQLite format 3\0 and no more")
    (result,) = bring_in(store, transcript_at(broken, "llm"))
    assert "failed" == result.action
    assert "is no database that can be read" in result.detail
    gone = transcript_at(broken, "llm")
    broken.unlink()
    (result,) = bring_in(store, gone)
    assert ("failed", "No such file or directory") == (result.action, result.detail)


def test_two_followers_store_nothing_twice(
    store: Store, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(session, line(1, "user", "Tea?"))
    follower = Follower(store, lambda: [found_at(session)])
    create = store.create

    def taken(*_: object, **__: object) -> None:
        raise AlreadyExists(SESSION)

    monkeypatch.setattr(store, "create", taken)
    assert [] == list(follower.look())
    assert 1 == follower.waiting
    monkeypatch.setattr(store, "create", create)
    follower = Follower(store, lambda: [found_at(session)])
    assert [("created", 1)] == actions(follower.look())

    write(session, line(1, "user", "Tea?"), line(2, "assistant", "Yes."))
    extend = StoredHistory.extend

    def beaten(*given: Any, **rest: Any) -> object:  # noqa: ANN401 - as it was called
        """Another follower appends the same just before."""
        monkeypatch.setattr(StoredHistory, "extend", extend)
        list(bring_in(store, found_at(session)))
        return extend(*given, **rest)

    monkeypatch.setattr(StoredHistory, "extend", beaten)
    (result,) = bring_in(store, found_at(session))
    assert "busy" == result.action
    assert ["Tea?", "Yes."] == texts(store)
    assert issubclass(VersionMismatch, palaver.errors.Conflict)


def test_a_follower_reads_what_changed_and_nothing_else(
    store: Store, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(session, line(1, "user", "Tea?"))
    now = 0.0
    follower = Follower(store, lambda: [found_at(session)], clock=lambda: now)
    assert [("created", 1)] == actions(follower.look())
    read: list[Path] = []
    with monkeypatch.context() as patch:
        patch.setattr("palaver.transcripts.follow.bring_in", lambda *_, **__: read.append(session))
        assert [] == list(follower.look())
        later = Follower(store, lambda: [found_at(session)])  # it was stopped, and begins again
        assert [] == list(later.look())
    assert [] == read
    write(session, line(1, "user", "Tea?"), line(2, "assistant", "Yes."))
    assert [("appended", 1)] == actions(later.look())


def test_a_look_stays_within_its_budget_and_large_files_rest(store: Store, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.jsonl" for number in range(3)]
    for number, file in enumerate(files):
        write(file, line(1, "user", "Tea?").replace(SESSION.encode(), b"s%d" % number))
    clock = iter(range(0, 10_000, 10))  # each look at it is ten seconds later
    follower = Follower(store, lambda: map(found_at, files), budget=300, clock=lambda: next(clock))
    for waiting in (2, 1, 0):
        assert [("created", 1)] == actions(follower.look())
        assert waiting == follower.waiting
    write(files[0], line(1, "user", "Milk?").replace(SESSION.encode(), b"s0"))
    assert [] == list(follower.look())  # it took ten seconds to read: it rests for 200
    assert 1 == follower.waiting
    later = [told for _ in range(30) for told in actions(follower.look())]
    assert [("replaced", 1)] == later


def test_what_fails_or_is_kept_is_told_once(store: Store, session: Path) -> None:
    store.create([user("Mine")], id=SESSION)
    write(session, line(1, "user", "Tea?"))
    follower = Follower(store, lambda: [found_at(session)], clock=lambda: 0)
    assert [("kept", 0)] == actions(follower.look())
    write(session, line(1, "user", "Tea?"), line(2, "user", "Milk?"))
    assert [] == list(follower.look())


def test_every_sample_grows_line_by_line_to_what_it_is_as_a_whole(
    store: Store, tmp_path: Path
) -> None:
    for name in ("claude-code.jsonl", "codex.jsonl", "gemini-cli.jsonl", "copilot-cli.jsonl"):
        lines = (DATA / name).read_bytes().splitlines(keepends=True)
        file = tmp_path / name
        for count in range(1, len(lines) + 1):
            write(file, *lines[:count])
            list(bring_in(store, transcript_at(file, name.removesuffix(".jsonl"))))
        whole = read_file(file, name.removesuffix(".jsonl"))
        for parsed in whole:
            if not parsed.messages:
                continue
            stored = [
                head.id for head in store
                if [m.id for m in store.get(head.id)] == [m.id for m in parsed.messages]
            ]  # fmt: skip
            assert 1 == len(stored), name
            assert list(parsed.messages) == store.get(stored[0]).messages


@pytest.mark.parametrize("value", [b"[]", b"{}", b"x", b'{"path": 5, "messages": "2"}'])
def test_a_record_that_a_file_damaged_fails_alone(
    store: Store, session: Path, tmp_path: Path, value: bytes
) -> None:
    write(session, line(1, "user", "Tea?"))
    other = tmp_path / "other.jsonl"
    write(other, line(1, "user", "Milk?", sessionId="other"))
    files = (session, other)
    follower = Follower(store, lambda: map(found_at, files), clock=lambda: 0.0)
    assert 2 == len(list(follower.look()))
    store.put_record(SESSION, "origin", "file", value)
    write(session, line(1, "user", "Tea?"), line(2, "assistant", "Yes."))
    write(other, line(1, "user", "Milk?", sessionId="other"), line(2, "assistant", "No."))
    results = {result.path: result for result in follower.look()}
    assert ("failed", "appended") == (results[session].action, results[other].action)
    assert "can't be read" in results[session].detail
