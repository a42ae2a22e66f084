from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import ValidationError
from palaver.messages import (
    NIL_ID,
    Message,
    UnknownPart,
    complete,
    fail,
    file_part,
    is_file_part,
    is_tool_part,
    is_unknown_part,
    new_id,
    parse_message,
    parse_messages,
    pending,
    reasoning_part,
    start,
    to_content,
    tool_part,
    user,
)

SESSION, MESSAGE = new_id(), new_id()
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


def test_a_result_in_an_answer_is_kept_and_not_understood() -> None:
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


def test_what_the_list_has_no_words_for_is_named() -> None:
    thought = reasoning_part(SESSION, MESSAGE, "hm")
    pdf = file_part(SESSION, MESSAGE, "application/pdf", "data:,")
    odd = UnknownPart({"type": "hologram"})
    assert ([], (thought, pdf, odd)) == to_content(user([thought, pdf, odd]))
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
