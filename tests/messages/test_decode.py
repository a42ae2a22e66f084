"""`decode_messages` gives what the careful way gives: equal, frozen values or the same error.

Types are inspected for the first time by one thread alone.
"""

from __future__ import annotations

import copy
import json
import logging
import subprocess
import sys
import threading
import uuid
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palaver.errors import PalaverError, ValidationError
from palaver.messages import (
    Message,
    TextPart,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    UnknownPart,
    codec,
    dump,
    parse_messages,
)
from palaver.messages.decode import _CHECKS, _draft_types, decode_messages
from palaver.messages.limits import MAX_DEPTH, MAX_INT, MAX_NAME, FrozenDict, FrozenList
from palaver.messages.message import MAX_PARTS
from palaver.messages.parts import StepFinishPart
from tests.messages.strategies import messages
from tests.profiles import at_least

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import DrawFn


SESSION = "0190163d-8694-739b-aea5-966c26f8ad91"
IDS: dict[str, Any] = {"id": "p1", "sessionID": SESSION, "messageID": SESSION}
CALL: dict[str, Any] = {"callID": "c1", "tool": "ls", "input": {"path": ".", "depth": [1]}}
COUNTS: dict[str, Any] = {
    "input": 1, "output": 2, "reasoning": 0, "cache": {"read": 3, "write": 4}
}  # fmt: skip
FILE: dict[str, Any] = {"type": "file", **IDS, "mime": "text/plain", "url": "file:///a"}
DONE: dict[str, Any] = {
    "status": "completed", "input": CALL["input"], "output": "a", "title": "ls",
    "metadata": {"exit": 0}, "time": {"start": 1, "end": 2}, "attachments": [{**FILE, "id": "f1"}],
}  # fmt: skip
ANSWER, RESULT = str(uuid.UUID(int=2)), str(uuid.UUID(int=3))
SAID, DID = {**IDS, "messageID": ANSWER}, {**IDS, "messageID": RESULT}
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "hi", "id": "m1", "timestamp": 1, "metadata": {"a": {"b": []}}},
    {
        "role": "assistant", "id": ANSWER, "timestamp": 2,
        "info": {"role": "assistant", "model": {"providerID": "p", "modelID": "m"}, "completed": 3},
        "content": [
            {"type": "step-start", **SAID, "snapshot": "s"},
            {"type": "reasoning", **SAID, "id": "p2", "text": "hm", "time": {"start": 1, "end": 2}},
            {"type": "text", **SAID, "id": "p3", "text": "文", "time": {"start": 1}},
            {"type": "tool-call", **SAID, "id": "p4", **CALL, "raw": "{}", "metadata": {"x": 1.5}},
            {"type": "step-finish", **SAID, "id": "p5", "reason": "stop", "tokens": COUNTS,
             "cost": 0.5},
        ],
    },
    {
        "role": "tool", "id": RESULT, "timestamp": 3,
        "content": [
            {"type": "tool", **DID, "callID": "c1", "tool": "ls", "state": DONE},
            {"type": "tool", **DID, "id": "p4", "callID": "c2", "tool": "ls", "metadata": {"a": 1},
             "state": {"status": "error", "input": {}, "error": "no", "time": DONE["time"]}},
            {"type": "retry", **DID, "id": "p2", "attempt": 1, "error": {"a": 1},
             "time": {"created": 1}},
            {"type": "patch", **DID, "id": "p3", "hash": "h", "files": ["a", "b"]},
        ],
    },
]  # fmt: skip


def nested(levels: int) -> Any:  # noqa: ANN401 - JSON
    value: Any = 1
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value if levels % 2 == 0 else {"a": value}


ODD: list[Any] = [
    "", " ", "\0", "a\0b", "\x7f", "a\nb", "\u2028", "文", "\\u0000", "x" * MAX_NAME,
    "x" * (MAX_NAME + 1), -1, 0, MAX_INT, MAX_INT + 1, -MAX_INT - 1, 2**60, 2**70, 0.5, -0.5, 1e300,
    None, True, [], {}, ["\0"], {"a": "\0"}, {"\0": 1}, {"a": 2**60}, {"a": [{"b": -(2**60)}]},
    {"a": {"b": "\\u0000"}}, {"a": [True, None, 0.5, "x"]}, "robot", "assistant", "tool", "user",
    "pending", "completed", "text", "hologram", SESSION.upper(), SESSION.replace("-", ""),
    SESSION[:-1], SESSION + "\n", SESSION[:-1] + "g", "-" * 36, "0" * 36, "\uff10" * 36,
    SESSION[:-1] + "文", str(uuid.UUID(int=7)), {"start": 1}, {"start": None},
    {"start": -1, "end": 2**60}, [FILE], [{}],
    nested(MAX_DEPTH - 2), nested(MAX_DEPTH), nested(MAX_DEPTH + 2), {"a": nested(400)},
]  # fmt: skip
EDITS = [
    b"", b"\\u0000", b"\\u000", b"\\\\u0000", b"\\ud800", b"\\n", b"\x00", b"\x7f", b"\xff", b"\\",
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"1e999", b"NaN", b"9007199254740993", b" ", b"-",
]  # fmt: skip


def outcome(raw: bytes) -> tuple[object, list[str]]:
    """The values and what they are made of, or the error; and what was logged."""
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("palaver.messages")
    log.addHandler(handler)
    try:
        made = parse_messages(raw)
    except PalaverError as error:
        return (type(error), error.to_dict()), logged
    finally:
        log.removeHandler(handler)
    return [
        made_of(message, given) for message, given in zip(made, json.loads(raw), strict=True)
    ], logged


def made_of(message: Message, given: dict[str, Any]) -> object:
    """A message as its classes and fields, but for an id or a time that it was given just now."""
    fresh = {name for name in ("id", "timestamp") if given.get(name) is None}
    made = anatomy(message, fresh)
    return (
        repr(made).replace(message.id, "given just now") if "id" in fresh else made
    )  # in parts too


def anatomy(value: Any, fresh: set[str] | None = None) -> object:  # noqa: ANN401 - any value
    if isinstance(value, msgspec.Struct):
        names = [name for name in value.__struct_fields__ if name not in (fresh or ())]
        return type(value), [(name, anatomy(getattr(value, name))) for name in names]
    if isinstance(value, dict):
        return type(value), [(key, anatomy(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [anatomy(item) for item in value]
    if isinstance(value, UnknownPart):
        return UnknownPart, anatomy(value.raw)
    return type(value), repr(value)


def agree(raw: bytes) -> None:
    """Read it both ways."""
    with mock.patch.object(codec, "decode_messages", return_value=None):
        careful = outcome(raw)
    assert careful == outcome(raw)


def places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - JSON
    for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(item, dict | list):
            yield from places(item)


@st.composite
def broken(draw: DrawFn) -> bytes:
    """The JSON of messages with one or two of its places changed."""
    some = st.lists(messages(), min_size=1, max_size=2).map(lambda log: json.loads(dump(log)))
    around: dict[str, Any] = {"all": copy.deepcopy(draw(st.just(TALK) | some))}
    for _ in range(draw(st.integers(1, 2))):
        around.setdefault("all", [])
        holder, key = draw(st.sampled_from(list(places(around))))
        what = draw(st.sampled_from(["odd", "odd", "odd", "gone", "twice", "moved"]))
        if what == "odd":
            holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
        elif what == "gone":
            holder.pop(key)
        elif what == "twice" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        else:
            other, name = draw(st.sampled_from(list(places(around))))
            holder[key] = copy.deepcopy(other[name])
    return json.dumps(around.get("all"), ensure_ascii=draw(st.booleans())).encode()


@at_least(100)
@given(st.lists(messages(), max_size=4))
@example([])
def test_valid_messages_are_decoded_together(log: list[Message]) -> None:
    """All but parts of unknown types; the largest number of all may be in doubt."""
    raw = dump(log)
    unknown = any(isinstance(part, UnknownPart) for message in log for part in message.parts)
    if unknown or str(MAX_INT).encode() not in raw:
        assert (None if unknown else log) == decode_messages(raw)
    agree(raw)


@at_least(150, in_faults=5_000)
@given(broken())
def test_what_is_changed_is_read_or_refused_as_ever(raw: bytes) -> None:
    agree(raw)


@at_least(100)
@given(st.lists(messages(), max_size=2), st.data())
def test_broken_text_is_read_or_refused_as_ever(log: list[Message], data: st.DataObject) -> None:
    raw = data.draw(st.sampled_from([dump(log), json.dumps(TALK).encode()]))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(raw)))
        cut = data.draw(st.integers(0, 3))
        raw = raw[:start] + data.draw(st.sampled_from(EDITS)) + raw[start + cut :]
    agree(raw)


@pytest.mark.no_cover  # as a property: the same lines thousands of times
@pytest.mark.parametrize("first", range(len(ODD)))
def test_an_odd_value_anywhere_is_read_or_refused_alike(first: int) -> None:
    """Each place of a talk with all kinds of fields holds each of them, in one of the runs."""
    talk = copy.deepcopy(TALK)
    for index, (holder, key) in enumerate(list(places(talk))):
        right = holder[key]
        holder[key] = ODD[(first + index) % len(ODD)]
        agree(json.dumps(talk).encode())
        holder[key] = right


def test_messages_with_all_kinds_of_fields_are_decoded_together() -> None:
    made = decode_messages(json.dumps(TALK).encode())
    assert made is not None
    assert made == codec.parse_messages(TALK)
    assert TALK == json.loads(dump(made))


def test_what_was_read_is_frozen_and_of_its_own_class() -> None:
    first, answer, result = parse_messages(json.dumps(TALK).encode())
    assert {Message} == {type(first), type(answer), type(result)}
    with pytest.raises(AttributeError):
        first.role = "tool"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert FrozenDict is type(first.metadata) is type(first.metadata["a"])
    assert FrozenList is type(first.metadata["a"]["b"])
    for part in answer.parts + result.parts:
        assert type(part) in _draft_types().parts.values()
        with pytest.raises(AttributeError):
            part.id = "p9"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    tool = result.parts[0]
    assert isinstance(tool, ToolPart)
    assert ToolCompleted is type(tool.state)
    with pytest.raises(AttributeError):
        tool.state.output = ""  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_change_of_what_was_read_is_checked() -> None:
    message = parse_messages(json.dumps(TALK).encode())[1]
    for changes in ({"role": "robot"}, {"id": ""}, {"timestamp": -1}, {"content": "\0"}):
        with pytest.raises(ValidationError):
            msgspec.structs.replace(message, **changes)
    part = message.parts[2]
    assert isinstance(part, TextPart)
    with pytest.raises(ValidationError):
        msgspec.structs.replace(part, session_id="no")


def test_a_call_and_its_result_share_their_input() -> None:
    _, answer, result = parse_messages(json.dumps(TALK).encode())
    call, tool = answer.parts[3], result.parts[0]
    assert isinstance(call, ToolCallPart)
    assert isinstance(tool, ToolPart)
    assert call.input is tool.state.input


def test_values_made_meanwhile_check_themselves() -> None:
    raw = json.dumps(TALK * 200).encode()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            parse_messages(raw)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(500):
            with pytest.raises(ValidationError):
                Message("user", "\0")
            with pytest.raises(ValidationError):
                TextPart(id="p", session_id="no", message_id="no", text="")
            with pytest.raises(msgspec.ValidationError):
                msgspec.json.decode(b'{"role": "user", "content": "hi", "id": ""}', type=Message)
    finally:
        stop.set()
        for reader in readers:
            reader.join()


def test_many_parts_are_fine_and_too_many_are_refused_as_ever() -> None:
    def talk(*sizes: int) -> bytes:
        part = {"type": "text", **IDS, "text": ""}
        content = [[{**part, "id": f"p{index}"} for index in range(size)] for size in sizes]
        talk = [{"role": "user", "id": SESSION, "content": parts} for parts in content]
        return json.dumps(talk).encode()

    assert decode_messages(talk(MAX_PARTS, MAX_PARTS)) is not None
    assert decode_messages(talk(MAX_PARTS + 1)) is None
    agree(talk(2, MAX_PARTS + 1))


def test_what_is_not_plain_bytes_is_left_to_the_careful_way() -> None:
    class Odd(bytes):
        __slots__ = ()

    assert decode_messages(b"[]") == []
    assert decode_messages(Odd(b"[]")) is None


@pytest.mark.parametrize(
    "raw", [b'["\0"]', b'["\x1f"]', rb'["\ud800"]', rb'["\udc00"]', b'["\xed\xa0\x80"]', b"[NaN]",
            b"[Infinity]", b"[1e999]", b"[-1e999]"],
)  # fmt: skip
def test_the_decoder_refuses_what_is_not_looked_for(raw: bytes) -> None:
    """Drafts are not asked about half characters, NaN and raw control characters."""
    with pytest.raises((msgspec.MsgspecError, UnicodeError)):
        msgspec.json.decode(raw)


def test_every_field_is_looked_at() -> None:
    """A new field needs a check in `decode`: add it there, then here."""
    ids = {"id", "session_id", "message_id"}
    known = {
        "TextPart": {"text", "synthetic", "ignored", "time", "metadata"},
        "ReasoningPart": {"text", "time", "metadata"},
        "ToolCallPart": {"call_id", "tool", "input", "raw", "metadata"},
        "ToolPart": {"call_id", "tool", "state", "metadata"},
        "StepStartPart": {"snapshot"},
        "StepFinishPart": {"reason", "tokens", "cost", "cost_computed", "snapshot"},
    }
    assert {name: ids | fields for name, fields in known.items()} == {
        kind.__name__: set(kind.__struct_fields__) for kind in _CHECKS
    }
    inside = {
        Message: {"role", "content", "id", "timestamp", "metadata", "speaker", "routing", "info"},
        ToolCompleted: {"input", "output", "title", "metadata", "time", "attachments"},
        ToolError: {"input", "error", "metadata", "time"},
    }
    assert inside == {kind: set(kind.__struct_fields__) for kind in inside}
    tokens = msgspec.structs.fields(StepFinishPart)[4].type
    assert ("input", "output", "reasoning", "cache", "total") == tokens.__struct_fields__


RACE = """
import sys, threading
from palaver.messages import parse_message, parse_messages

sys.setswitchinterval(1e-6)
ID = "00000000-0000-7000-8000-000000000001"
part = {"type": "text", "id": ID, "sessionID": ID, "messageID": ID, "text": "hi"}
message = {"role": "assistant", "content": [part], "id": "m1", "timestamp": 5}
together = threading.Barrier(8)

def read(reader, value):
    together.wait()
    reader(value)

import json
ways = [(parse_message, json.dumps(message)), (parse_message, message),
        (parse_messages, json.dumps([message])), (parse_messages, [message])] * 2
threads = [threading.Thread(target=read, args=way) for way in ways]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("attempt", range(6))
def test_threads_may_all_read_their_first_message_at_once(attempt: int) -> None:
    """PT-06: in a fresh process; where types are not had alone, two of three of these crash."""
    del attempt
    done = subprocess.run([sys.executable, "-c", RACE], check=False, capture_output=True)
    assert (0, b"") == (done.returncode, done.stderr)
