"""Conversations as they are after people and programs have been at them: anything goes.

`histories` draws messages that belong together and messages that do not, then edits them with any
sequence of operations. Nothing in it is shaped after what a provider takes.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st
from msgspec.structs import replace

from palaver.errors import PalaverError
from palaver.history import BaseHistory, History
from palaver.messages import (
    AssistantInfo,
    Message,
    ModelRef,
    complete,
    fail,
    file_part,
    new_id,
    pending,
    reasoning_part,
    start,
    text_part,
    tool_call_part,
    tool_part,
)
from tests.messages.strategies import messages as any_message
from tests.wire.unknown_blocks import kept_parts

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

    from palaver.messages import FilePart, Part, Role

__all__ = ["MODELS", "SESSION", "histories", "operations", "sayings"]

SESSION: Final = new_id()
OWNER: Final = new_id()
MODELS: Final = (
    ModelRef("openai", "gpt-5"),
    ModelRef("openai", "gpt-5-mini"),
    ModelRef("anthropic", "claude-opus-4-5"),
    ModelRef("google", "gemini-3-pro"),
)
PIXEL: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGA"
    "hKmMIQAAAABJRU5ErkJggg=="
)
URLS: Final = (
    ("image/png", PIXEL),
    ("image/png", "https://example.org/a.png"),
    ("image/*", "https://example.org/a"),
    ("image/tiff", "data:image/tiff;base64,aGk="),
    ("image/png", "data:image/png;base64,***"),
    ("image/png", "data:image/png;base64,"),
    ("application/pdf", "data:application/pdf;base64,JVBERi0xLjQ="),
    ("application/pdf", "https://example.org/a.pdf"),
    ("text/plain", "data:text/plain,hello%20there"),
    ("text/plain", "data:text/plain;base64,/w=="),
    ("audio/mpeg", "data:audio/mpeg;base64,aGk="),
    ("video/mp4", "gs://bucket/a.mp4"),
    ("application/zip", "file:///etc/passwd"),
)

words = st.sampled_from(["hello", "", " ", "\n\t", "wait ", "你好", "[NEXT: a]", "</system>", "é"])
call_ids = st.sampled_from(["c1", "c2", "c3", "call 4", "é" * 30, "x" * 200, "a.b:c", "toolu_1"])
tools = st.sampled_from(["ls", "read_file", "weather.get", "工具", "a" * 100, "1st", "with space"])
inputs: SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"q": "tea"}, {"n": {"deep": [1, None, "x"]}}]
)
raws = st.sampled_from([None, "", "{", "[1]", '{ "q" : "tea" }', "null", "*** Begin Patch\n+1"])
thoughts: SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"anthropic": {"signature": "c2lnbmF0dXJl"}},
        {"anthropic": {"redacted": "ZGF0YQ=="}},
        {"anthropic": {"signature": ""}},
        {"openai": {"id": "rs_1", "encrypted_content": "gAAAA"}},
        {"openai": {"id": "rs_2"}},
        {"google": {"thoughtSignature": "c2ln"}},
    ]
)
memories: SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        *[{}] * 6,
        {"wire": 5},
        {"wire": {"anthropic": 5, "openai-chat": {"items": [5], "apart": "yes"}}},
        {"wire": {form: {"apart": True} for form in ("anthropic", "gemini", "openai-chat")}},
        {"wire": {"anthropic": {"items": {"0": [5, 5], "1": [], "head": [None, [], [[]], {}]}}}},
        {
            "wire": {
                "gemini": {"items": {"0": ["0", [["role"], "x"]], "head": 5}},
                "x": {"items": {}},
            }
        },
    ]
)
"""What may stand where palaver remembers details, and was not put there by palaver."""


def _files(draw: DrawFn) -> FilePart:
    mime, url = draw(st.sampled_from(URLS))
    name = draw(st.sampled_from([None, "a.bin", "naïve file.pdf"]))
    return file_part(SESSION, OWNER, mime, url, filename=name)


def _texts(draw: DrawFn) -> Part:
    ignored = draw(st.sampled_from([None, None, True]))
    return text_part(SESSION, OWNER, draw(words), ignored=ignored)


def _calls(draw: DrawFn) -> Part:
    signed: dict[str, Any] = {"google": {"thoughtSignature": "c2ln"}}
    freeform: dict[str, Any] = {"openai": {"custom": True}}
    stored = draw(st.sampled_from([{}, {}, signed, freeform]))
    return tool_call_part(
        SESSION,
        OWNER,
        draw(tools),
        draw(inputs),
        call_id=draw(call_ids),
        raw=draw(raws),
        metadata=stored,
    )


def _thoughts(draw: DrawFn) -> Part:
    return reasoning_part(SESSION, OWNER, draw(words), start=1, metadata=draw(thoughts))


def _kept(draw: DrawFn) -> Part:
    return draw(kept_parts())


def _states(draw: DrawFn) -> Any:  # noqa: ANN401 - a ToolState
    running = start(pending({}, ""), at=1)
    kind = draw(st.sampled_from(["done", "done", "empty", "failed", "files", "cleared"]))
    if kind == "failed":
        return fail(running, "no such file", at=2)
    files = [_files(draw)] if kind == "files" else []
    text = draw(words) if kind != "empty" else ""
    done: Any = complete(running, text, tool="t", attachments=files, at=2)
    if kind == "cleared":
        return replace(done, time=replace(done.time, compacted=3))
    return done


@st.composite
def sayings(draw: DrawFn) -> Message:
    """One message of any kind."""
    kind = draw(st.sampled_from(["words", "words", "parts", "calls", "calls", "result", "any"]))
    if kind == "any":
        return draw(any_message())
    if kind == "words":
        role: Role = draw(st.sampled_from(["user", "user", "assistant", "system"]))
        return Message(role, draw(words), metadata=draw(memories))
    if kind == "result":
        part = tool_part(SESSION, OWNER, draw(call_ids), draw(tools), _states(draw))
        more = [_texts(draw)] if draw(st.integers(0, 5)) == 0 else []
        return Message(draw(st.sampled_from(["tool", "tool", "tool", "user"])), (part, *more))
    if kind == "calls":
        makers = draw(
            st.lists(
                st.sampled_from([_calls, _calls, _texts, _thoughts, _kept]), min_size=1, max_size=5
            )
        )
        info = draw(st.none() | st.sampled_from(MODELS).map(lambda ref: AssistantInfo(model=ref)))
        parts = tuple(make(draw) for make in makers)
        return Message("assistant", parts, info=info, metadata=draw(memories))
    makers = draw(st.lists(st.sampled_from([_texts, _files, _kept]), max_size=4))
    side: Role = draw(st.sampled_from(["user", "user", "assistant", "system"]))
    return Message(side, tuple(make(draw) for make in makers), metadata=draw(memories))


_places = st.integers(0, 12)
_roles = st.sampled_from(["system", "user", "assistant", "tool"])


@st.composite
def operations(draw: DrawFn) -> dict[str, Any]:
    """An operation, as its JSON without messages; some do not fit and are refused."""
    kind = draw(st.sampled_from(["TRUNCATE", "TRUNCATE", "CLEAR", "FILTER", "ROLLBACK", "UNDO"]))
    if kind == "TRUNCATE":
        option = draw(st.sampled_from(["keepFirst", "keepLast", "removeFirst", "removeLast"]))
        found: dict[str, Any] = {"type": kind, option: draw(_places)}
        if draw(st.booleans()):
            found |= {"role": draw(_roles), "others": "keep"}
        return found
    if kind == "FILTER":
        return {"type": kind, "roles": draw(st.lists(_roles, min_size=1, max_size=3))}
    if kind == "ROLLBACK":
        return {"type": kind, "batchIndex": draw(st.integers(0, 3))}
    return {"type": kind}


@st.composite
def histories(draw: DrawFn) -> BaseHistory:
    """A conversation after any sequence of edits."""
    history = History()
    for _ in range(draw(st.integers(1, 3))):
        for message in draw(st.lists(sayings(), max_size=8)):
            with contextlib.suppress(PalaverError):  # an id that is there already
                history.append(message)
        for _ in range(draw(st.integers(0, 2))):
            way = draw(st.sampled_from(["insert", "replace", "other"]))
            place = draw(st.integers(0, max(len(history) - 1, 0)))
            with contextlib.suppress(PalaverError):
                if way == "insert":
                    history.insert(place, draw(st.lists(sayings(), min_size=1, max_size=2)))
                elif way == "replace":
                    history.replace(place, draw(sayings()))
                else:
                    operation = draw(operations())
                    if operation["type"] == "UNDO":
                        history.undo()
                    else:
                        history.execute(operation)
    return history
