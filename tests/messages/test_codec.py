"""Messages and parts as JSON, and the plain content list."""

from __future__ import annotations

import json
from collections import UserDict
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import PalaverError, PartValidationError, ValidationError
from palaver.messages import (
    Message,
    UnknownPart,
    complete,
    dump,
    fail,
    file_part,
    new_id,
    parse_message,
    parse_messages,
    parse_part,
    pending,
    reasoning_part,
    start,
    to_dict,
    tool_part,
    user,
)
from palaver.messages.codec import MAX_DOCUMENT, load_json, to_content
from palaver.messages.ids import NIL_ID
from palaver.messages.parts import is_file_part, is_tool_part, is_unknown_part
from tests.messages.outcome import outcome
from tests.messages.strategies import anything, json_values, messages, parts
from tests.profiles import at_least

SESSION = "0190163d-8694-739b-aea5-966c26f8ad91"
IDS = {"id": "p1", "sessionID": SESSION, "messageID": SESSION}
TEXT: dict[str, Any] = {"type": "text", **IDS, "text": "hi"}


@at_least(200)
@given(json_values)
def test_json_is_read(value: Any) -> None:  # noqa: ANN401 - JSON
    assert value == load_json(json.dumps(value))
    assert value == load_json(json.dumps(value, ensure_ascii=False).encode())


@pytest.mark.parametrize(
    ("data", "path", "rule"),
    [
        ('{"a": [1, NaN]}', "$.a[1]", "number.nan"),
        ('{"a": Infinity}', "$.a", "number.nan"),
        ("[-Infinity]", "$[0]", "number.nan"),
        ("[1e999]", "$[0]", "number.range"),
        (r'{"a": "\ud800"}', "$.a", "text.surrogate"),
        (r'{"a": "\ud800x", "b": 1}', "$.a", "text.surrogate"),
        (r'{"a": "\udc00"}', "$.a", "text.surrogate"),
        (r'{"a": "\\\ud800"}', "$.a", "text.surrogate"),
        ('{"a": "\ud800"}', "$.a", "text.surrogate"),
        (r'["\\ud800", NaN]', "$[1]", "number.nan"),
        (r'[NaN, "\ud800"]', "$[0]", "number.nan"),
        (b'{"a": "\xff"}', "$.a", "text.utf8"),
        (b'["a", {"b": "x\xc3"}]', "$[1].b", "text.utf8"),
        ('["a\0"]', "$[0]", "json"),
        ("", "$", "json"),
        ("{", "$", "json"),
        ('{"a": [1, 2', "$.a[1]", "json"),
        ("[1,]", "$[0]", "json"),
        ("nonsense", "$", "json"),
        ("[1] [2]", "$[0]", "json"),
    ],
)
def test_broken_json_says_where_it_is_broken(data: bytes | str, path: str, rule: str) -> None:
    for read in (load_json, parse_message, parse_messages, parse_part):
        with pytest.raises(ValidationError) as caught:
            read(data)
        assert (path, rule) == (caught.value.path, caught.value.rule)


def test_a_control_character_is_named() -> None:
    with pytest.raises(ValidationError, match="a control character must be escaped"):
        load_json(b'["a\x01"]')


def test_a_document_has_a_cap() -> None:
    class Long(bytes):
        __slots__ = ()

        def __len__(self) -> int:
            return MAX_DOCUMENT + 1

    for read in (
        load_json,
        parse_message,
        parse_messages,
        lambda data: parse_part(data, replace=True),
    ):
        with pytest.raises(ValidationError) as caught:
            read(Long())
        assert "size" == caught.value.rule


@at_least(300)
@given(anything, st.booleans())
def test_whatever_comes_in_only_a_typed_error_comes_out(value: Any, replace: bool) -> None:  # noqa: ANN401, FBT001
    readers = (
        lambda: parse_part(value, replace=replace),
        lambda: parse_message(value, replace=replace),
        lambda: parse_messages(value, replace=replace),
        lambda: parse_message(
            {"role": "user", "content": value, "metadata": value}, replace=replace
        ),
        lambda: parse_message({"role": value, "content": [value, TEXT]}, replace=replace),
        lambda: parse_part({**TEXT, "metadata": value, "time": value}, replace=replace),
        lambda: parse_part({"type": value, "text": value}, replace=replace),
        lambda: parse_message(
            {"role": "tool", "content": [{"type": "tool_result", "tool_result": value}]},
            replace=replace,
        ),
    )
    for read in readers:
        made = outcome(read)
        if isinstance(made, PalaverError):
            assert isinstance(made, ValidationError)
            assert made.path.startswith("$")
            assert str(made).encode()
        else:
            assert dump(made)


@at_least(300)
@given(messages() | parts, st.data())
def test_json_with_one_field_broken_is_a_typed_error_or_reads(
    value: Any,  # noqa: ANN401 - a message or a part
    data: st.DataObject,
) -> None:
    """Any field, at any depth, replaced by anything or left out."""
    written = to_dict(value)
    place, key = data.draw(st.sampled_from(list(places(written))))
    if data.draw(st.booleans()):
        place[key] = data.draw(anything)
    elif isinstance(place, dict):
        del place[key]
    read = parse_message if isinstance(value, Message) else parse_part
    made = outcome(read, written)
    if isinstance(made, PalaverError):
        assert isinstance(made, ValidationError)
        assert made.path.startswith("$")
        assert made.rule
        assert str(made).encode()
    else:
        assert made == read(dump(made))


def places(value: Any) -> Any:  # noqa: ANN401 - JSON
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield value, key
        if isinstance(item, dict | list):
            yield from places(item)


@pytest.mark.parametrize(
    ("value", "path", "rule", "part"),
    [
        ({**TEXT, "text": 5}, "$.text", "schema", "text"),
        ({**TEXT, "shoe": 44}, "$.shoe", "schema", "text"),
        ({**TEXT, "time": {"start": 1, "shoe": 44}}, "$.time.shoe", "schema", "text"),
        ({**TEXT, "metadata": {"a": "\0"}}, "$.metadata.a", "text.nul", "text"),
        (dict([*TEXT.items(), (5, 1)]), "$", "schema", "text"),
        (
            {"type": "agent", **IDS, "name": "a", "source": {"value": "\0", "start": 0, "end": 1}},
            "$.source.value",
            "text.nul",
            "agent",
        ),
        (
            {"type": "agent", **IDS, "name": "a", "source": {"value": "", "end": 1}},
            "$.source.start",
            "schema",
            "agent",
        ),
        (
            {"type": "retry", **IDS, "attempt": 1, "time": {"created": 1}},
            "$.error",
            "schema",
            "retry",
        ),
        (
            {"type": "file", **IDS, "mime": "", "url": "", "source": {"type": "cloud"}},
            "$.source.type",
            "schema",
            "file",
        ),
        (
            {
                "type": "tool",
                **IDS,
                "callID": "c",
                "tool": "t",
                "state": {"status": "odd - at `$.x`"},
            },
            "$.state.status",
            "schema",
            "tool",
        ),
        (
            {"type": "tool", **IDS, "callID": "c", "tool": "t", "state": {}},
            "$.state.status",
            "schema",
            "tool",
        ),
        ({"type": "hologram", "a": [float("nan")]}, "$.a[0]", "number.nan", "hologram"),
        ([], "$", "schema", "unknown"),
        (5, "$", "schema", "unknown"),
        ({"type": ["text"]}, "$.type", "part-type", "unknown"),
    ],
)
def test_a_part_that_is_wrong_says_how(value: Any, path: str, rule: str, part: str) -> None:  # noqa: ANN401
    with pytest.raises(PartValidationError) as caught:
        parse_part(value)
    assert (path, rule, part) == (caught.value.path, caught.value.rule, caught.value.part)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("field", ["text", "type", "time"])
def test_an_attachment_is_a_part_with_ids_too(field: str) -> None:
    state = {
        "status": "completed",
        "input": {},
        "output": "x",
        "title": "",
        "metadata": {},
        "time": {"start": 1, "end": 2},
        "attachments": [
            {"type": "file", "sessionID": SESSION, "messageID": SESSION, "mime": "", "url": field}
        ],
    }
    with pytest.raises(PartValidationError) as caught:
        parse_part({"type": "tool", **IDS, "callID": "c", "tool": "t", "state": state})
    assert ("$.state.attachments[0].id", "part-id") == (caught.value.path, caught.value.rule)


@pytest.mark.parametrize("make", [dict, MappingProxyType, UserDict])
def test_any_mapping_is_read_as_json(make: Any) -> None:  # noqa: ANN401 - a mapping
    message = parse_message(
        make({"role": "user", "content": [make(TEXT)], "metadata": make({"a": 1})})
    )
    assert "hi" == message.text
    assert {"a": 1} == message.metadata


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({}, "$.role"),
        ({"role": "user"}, "$.content"),
        ({"content": "x"}, "$.role"),
        ({"role": "user", "content": "x", "shoe": 44}, "$.shoe"),
        ({"role": "user", "content": 5}, "$.content"),
        ({"role": "user", "content": None}, "$.content"),
        ({"role": "user", "content": [5]}, "$.content[0]"),
        ({"role": "user", "content": [TEXT, {**TEXT, "id": 5}]}, "$.content[1].id"),
        ({"role": "user", "content": [], "timestamp": "now"}, "$.timestamp"),
        ({"role": "user", "content": "x", "timestamp": 1.5}, "$.timestamp"),
        (
            {"role": "user", "content": "x", "info": {"role": "user", "tools": {"a": 1}}},
            "$.info.tools[...]",
        ),
        (
            {"role": "user", "content": "x", "speaker": {"roleId": "a", "roleName": "A"}},
            "$.speaker.type",
        ),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "$.content[0].text"),
        ({"role": "user", "content": [{"type": "text", "text": "\0"}]}, "$.content[0].text"),
        ([], "$"),
        (5, "$"),
    ],
)
def test_a_message_that_is_wrong_says_where(value: Any, path: str) -> None:  # noqa: ANN401
    for form in (value, json.dumps(value)):
        with pytest.raises(ValidationError) as caught:
            parse_message(form)
        assert path == caught.value.path


def test_role_and_content_are_required() -> None:
    with pytest.raises(ValidationError) as caught:
        parse_message({"role": "user"})
    assert "Invalid message format: role and content are required" == caught.value.detail


@pytest.mark.parametrize(
    "data", ["{}", '"text"', "5", {"role": "user", "content": "x"}, 5, None, b"{}"]
)
def test_a_list_of_messages_is_a_list(data: Any) -> None:  # noqa: ANN401 - something else
    with pytest.raises(ValidationError) as caught:
        parse_messages(data)
    assert "$" == caught.value.path


def test_a_list_of_messages_says_which_is_wrong() -> None:
    good = {"role": "user", "content": "x"}
    bad = {"role": "user", "content": [TEXT, {**TEXT, "messageID": "m"}]}
    forms: list[Any] = [[good, bad], json.dumps([good, bad]), iter([good, bad])]
    for form in forms:
        with pytest.raises(ValidationError) as caught:
            parse_messages(form)
        assert "$[1].content[1].messageID" == caught.value.path


def test_a_list_may_be_any_iterable_and_hold_messages() -> None:
    message: Any = user("x")
    assert [message, message] == parse_messages(iter([message, to_dict(message)]))
    assert [message] == parse_messages(iter([to_dict(message)]), replace=True)
    assert message is parse_message(message)


def test_parts_of_one_message_share_its_session() -> None:
    message = parse_message({"role": "user", "content": [{"type": "text", "text": "a"}, TEXT]})
    assert [SESSION, SESSION] == [
        part.session_id for part in message.parts if not isinstance(part, UnknownPart)
    ]
    odd = {"type": "hologram", "sessionID": ["x"]}
    alone = parse_message({"role": "user", "content": [odd, {"type": "text", "text": "a"}]})
    assert "00000000-0000-0000-0000-000000000000" == alone.parts[1].session_id  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]


def test_bytes_that_are_no_bytes_are_refused() -> None:
    with pytest.raises(ValidationError):
        parse_message(bytearray(b"{}"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_only_values_are_written() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        dump(object())


def test_plain_data_is_plain_all_the_way_down() -> None:
    plain = to_dict(user("x", metadata={"a": [{"b": 1}]}))
    assert [dict, list, dict] == [
        type(plain["metadata"]),
        type(plain["metadata"]["a"]),
        type(plain["metadata"]["a"][0]),
    ]
    assert [] == to_dict(user(()))["content"]


MESSAGE = new_id()
RESULT = {"type": "tool_result", "tool_result": {"tool_use_id": "c1", "content": "out"}}


@pytest.mark.parametrize(
    ("url", "mime"),
    [
        ("data:image/webp;base64,AAAA", "image/webp"),
        ("data:image/svg+xml,<svg/>", "image/svg+xml"),
        ("data:text/plain,x", "image/*"),
        ("https://example.org/a.JPG", "image/jpeg"),
        ("https://example.org/a.jpeg?x=.png", "image/jpeg"),
        ("https://example.org/a.gif", "image/gif"),
        ("https://example.org/cat", "image/*"),
        ("", "image/*"),
    ],
)
def test_an_image_is_a_file_whose_type_its_url_tells(url: str, mime: str) -> None:
    item = {"type": "image", "image_url": {"url": url}}
    message = parse_message({"role": "user", "content": [item]})
    part = message.parts[0]
    assert is_file_part(part)
    assert (mime, url) == (part.mime, part.url)
    assert ([item], ()) == to_content(message)


def test_a_result_learns_its_tool_from_the_call_before_it() -> None:
    use = {"type": "tool_use", "tool_use": {"id": "c1", "name": "ls", "input": {}}}
    _, known = parse_messages(
        [{"role": "assistant", "content": [use]}, {"role": "tool", "content": [RESULT]}]
    )
    unknown = parse_message({"role": "tool", "content": [RESULT]})
    tools = [m.parts[0].tool for m in (known, unknown) if is_tool_part(m.parts[0])]
    assert ["ls", "unknown"] == tools


@pytest.mark.parametrize(
    "content",
    [
        "",
        "out",
        "(no output)",
        [],
        [{"type": "text", "text": ""}],
        [{"type": "text", "text": "a"}] * 2,
    ],
)
def test_a_result_comes_back_as_it_was(content: Any) -> None:  # noqa: ANN401 - text or pieces
    item = {"type": "tool_result", "tool_result": {"tool_use_id": "c1", "content": content}}
    message = parse_message({"role": "tool", "content": [item]})
    assert ([item], ()) == to_content(message)


def test_a_result_in_an_answer_is_an_unknown_part() -> None:
    message = parse_message({"role": "assistant", "content": [RESULT]})
    assert is_unknown_part(message.parts[0])
    assert ([RESULT], ()) == to_content(message)


def test_an_error_is_written_as_its_text() -> None:
    failed = tool_part(SESSION, MESSAGE, "c1", "t", fail(start(pending({}, "")), "no such file"))
    items, left = to_content(Message("tool", (failed,)))
    assert (
        [{"type": "tool_result", "tool_result": {"tool_use_id": "c1", "content": "no such file"}}],
        (),
    ) == (items, left)


def test_metadata_that_looks_like_ours_does_not_hide_an_output() -> None:
    done = complete(start(pending({}, "")), "out", tool="t", metadata={"rawOutput": ""})
    items, _ = to_content(Message("tool", (tool_part(SESSION, MESSAGE, "c1", "t", done),)))
    assert [RESULT] == items


def test_parts_without_a_form_in_the_list_are_named() -> None:
    reasoning = reasoning_part(SESSION, MESSAGE, "hm")
    pdf = file_part(SESSION, MESSAGE, "application/pdf", "data:,")
    odd = UnknownPart({"type": "hologram"})
    assert ([], (reasoning, pdf, odd)) == to_content(user([reasoning, pdf, odd], id=MESSAGE))
    assert ("plain", ()) == to_content(user("plain"))


def test_items_belong_to_the_message_they_are_in() -> None:
    message = parse_message(
        {"role": "user", "content": [{"type": "text", "text": "a"}], "id": MESSAGE}
    )
    part = message.parts[0]
    assert not isinstance(part, UnknownPart)
    assert (NIL_ID, MESSAGE) == (part.session_id, part.message_id)


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ({"type": "text"}, "$.content[0].text"),
        ({"type": "text", "text": "a", "shoe": 44}, "$.content[0].shoe"),
        ({"type": "image", "image_url": "http://x"}, "$.content[0].image_url"),
        ({"type": "image", "image_url": {"url": "a\0"}}, "$.content[0].url"),
        ({"type": "tool_use", "tool_use": {"name": "x", "input": {}}}, "$.content[0].tool_use.id"),
        (
            {"type": "tool_use", "tool_use": {"id": "", "name": "x", "input": {}}},
            "$.content[0].callID",
        ),
        (
            {"type": "tool_result", "tool_result": {"tool_use_id": "c"}},
            "$.content[0].tool_result.content",
        ),
    ],
)
def test_an_item_that_is_wrong_says_where(item: dict[str, Any], path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parse_message({"role": "user", "content": [item]})
    assert path == caught.value.path
