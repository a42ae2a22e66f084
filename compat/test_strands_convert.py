"""Strands' messages as palaver's, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compat.strands_agent import result, use
from palaver.adapters.strands import from_strands, to_strands
from palaver.adapters.strands.convert import METADATA_KEY
from palaver.errors import ValidationError
from palaver.messages import (
    Message,
    ToolPart,
    assistant,
    dump,
    file_part,
    parse_message,
    system,
    text_part,
    user,
)
from palaver.messages.ids import NIL_ID


def there_and_back(message: Any) -> Any:
    """Through the bytes of a store."""
    return to_strands(parse_message(dump(from_strands(message))))


TEXTS = st.text(max_size=20) | st.sampled_from(["", "a\0b", "x" * 2_000, "\U0001f375"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
SOURCES = st.one_of(
    st.binary(max_size=8).map(lambda data: {"bytes": data}),
    st.just({"location": {"type": "s3", "uri": "s3://tea/leaf.png", "bucketOwner": "me"}}),
)
IMAGES = st.builds(lambda source: {"image": {"format": "png", "source": source}}, SOURCES)
DOCUMENTS = st.builds(
    lambda name, source: {"document": {"format": "pdf", "name": name, "source": source}},
    TEXTS,
    SOURCES,
)
RESULTS = st.builds(
    lambda name, status, content: {
        "toolResult": {"toolUseId": name, "status": status, "content": content}
    },
    TEXTS,
    st.sampled_from(["success", "error"]),
    st.lists(
        st.builds(lambda text: {"text": text}, TEXTS)
        | st.builds(lambda value: {"json": value}, JSON)
        | IMAGES
        | DOCUMENTS,
        max_size=2,
    ),
)
BLOCKS = st.one_of(
    st.builds(lambda text: {"text": text}, TEXTS),
    st.builds(
        lambda name, tool, given: {"toolUse": {"toolUseId": name, "name": tool, "input": given}},
        TEXTS, TEXTS, JSON,
    ),
    RESULTS,
    IMAGES,
    DOCUMENTS,
    st.builds(
        lambda text: {"reasoningContent": {"reasoningText": {"text": text, "signature": "s"}}},
        TEXTS,
    ),
    st.binary(max_size=4).map(lambda data: {"reasoningContent": {"redactedContent": data}}),
    st.just({"cachePoint": {"type": "default", "ttl": "1h"}}),
    st.just({"guardContent": {"text": {"text": "g", "qualifiers": ["query"]}}}),
    st.just({"image": {"format": "png"}}),
    st.just({"text": None}),
    st.just({}),
)  # fmt: skip
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": st.lists(BLOCKS, max_size=3)},
    optional={"tracking_id": TEXTS, "metadata": st.dictionaries(TEXTS, JSON, max_size=2)},
)


@given(MESSAGES)
def test_every_message_comes_back_as_it_was_put(message: Any) -> None:
    assert there_and_back(message) == message


def test_what_palaver_has_a_field_for_needs_no_metadata() -> None:
    asked: Any = {"role": "assistant", "content": [{"text": "Let me see."}, use("c1")]}
    made = from_strands(asked)
    assert [part.type for part in made.parts] == ["text", "tool-call"]
    assert not made.metadata
    given: Any = {"role": "user", "content": [result("c1")]}
    answered = from_strands(given, tools={"c1": "weather"})
    assert (answered.role, not answered.metadata) == ("tool", True)
    (part,) = answered.parts
    assert isinstance(part, ToolPart)
    assert (part.tool, part.call_id) == ("weather", "c1")


def test_an_edit_is_what_strands_gets() -> None:
    reasoning = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}}
    message: Any = {
        "role": "assistant",
        "content": [reasoning, {"text": "No."}],
        "metadata": {"custom": {"a": 1}},
    }
    made = from_strands(message)
    assert to_strands(made) == message
    changed = replace(made, content="Yes.")
    expected = {
        "role": "assistant",
        "content": [{"text": "Yes."}],
        "metadata": {"custom": {"a": 1}},
    }
    assert to_strands(changed) == expected


@pytest.mark.parametrize(
    "stored", [7, "no JSON", "[]", '{"about": 7}', '{"about": [[["role"], "robot"]]}', '{"of": 1}']
)
def test_metadata_that_is_not_ours_is_ignored(stored: object) -> None:
    message = replace(user("Tea?"), metadata={METADATA_KEY: stored})
    assert to_strands(message) == {"role": "user", "content": [{"text": "Tea?"}]}


@pytest.mark.parametrize("message", [7, {"role": "user"}, {"role": "user", "content": [{1, 2}]}])
def test_what_cannot_be_stored_is_refused(message: Any) -> None:
    with pytest.raises(ValidationError, match=r"\$\.message"):
        from_strands(message)


def test_messages_of_palavers_own() -> None:
    assert to_strands(system("Be kind.")) is None
    ids = (NIL_ID, NIL_ID)
    link = file_part(*ids, "image/png", "https://x.org/a.png")  # no client of Strands' sends it
    written: Any = to_strands(Message("user", (text_part(*ids, "Look:"), link)))
    assert written["content"][1] == {"text": "[a file of type image/png is at https://x.org/a.png]"}
    assert to_strands(assistant("")) is None


@pytest.mark.parametrize(
    ("mime", "name", "expected"),
    [
        ("application/pdf", None, {"document": {"format": "pdf", "name": "document"}}),
        ("text/plain", "a_1.txt", "[the file a_1.txt]\nx"),
        ("application/json", None, "[the file of type application/json]\nx"),
        ("image/jpg", "a.jpg", {"image": {"format": "jpeg"}}),
        ("audio/wav", None, {"audio": {"format": "wav"}}),
        ("application/zip", "a.zip", "[a file 'a.zip' of type application/zip is not included]"),
        ("image/svg+xml", None, "[a file of type image/svg+xml is not included]"),
    ],
)
def test_a_file_that_another_has_written_is_one_that_clients_take(
    mime: str, name: str | None, expected: Any
) -> None:
    ids = (NIL_ID, NIL_ID)
    named: Any = {} if name is None else {"filename": name}
    file = file_part(*ids, mime, f"data:{mime};base64,eA==", **named)
    written: Any = to_strands(Message("user", (file,)))
    (block,) = written["content"]
    if isinstance(expected, dict):
        ((kind, fields),) = expected.items()
        expected = {kind: {**fields, "source": {"bytes": b"x"}}}
        there: Any = from_strands({"role": "user", "content": [block]})
        assert there.content[0].mime == {
            "application/json": "text/plain",
            "image/jpg": "image/jpeg",
        }.get(mime, mime)
    else:
        expected = {"text": expected}
    assert block == expected
    said: Any = to_strands(Message("assistant", (text_part(*ids, "Here:"), file)))
    assert [[*each] for each in said["content"]] == [["text"], ["text"]]
