"""Whatever a tool gives back becomes text and files that every store can keep."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any

import pytest

from palaver.conversation import ToolContext, ToolOutput
from palaver.errors import ValidationError
from palaver.messages import file_part, new_id
from palaver.tools.runner import MAX_FILE, to_output

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@dataclass
class Point:
    x: int


class Colour(Enum):
    RED = "red"


class Opaque:
    def __repr__(self) -> str:
        return "<opaque \0>"


def circle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("", ""),
        ("plain", "plain"),
        ("a\0b\ud800c\u00e9", "a\ufffdb\ufffdc\u00e9"),
        (b"some bytes", "some bytes"),
        (bytearray("\u00e9t\u00e9".encode()), "\u00e9t\u00e9"),
        (memoryview(b"view"), "view"),
        (True, "true"),
        (3, "3"),
        (2**70, str(2**70)),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ((1, 2), "[1,2]"),
        (Point(1), '{"x":1}'),
        (Colour.RED, '"red"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (float("nan"), "null"),
        ({(1, 2): 3}, '{"(1, 2)":3}'),
        (Opaque(), "<opaque \ufffd>"),
        (circle(), "[[...]]"),
    ],
)
def test_anything_becomes_text(value: object, text: str, context: ToolContext) -> None:
    """CV-05."""
    assert ToolOutput(text) == to_output(value, context)


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"%PDF-1.7", "application/pdf"),
        (b"\x00\xff\x00", "application/octet-stream"),
    ],
)
def test_bytes_that_are_no_text_become_a_file(data: bytes, mime: str, context: ToolContext) -> None:
    done = to_output(data, context)

    assert f"[{len(data):,} bytes of {mime}]" == done.text
    (part,) = done.attachments
    encoded = base64.b64encode(data).decode()
    assert (mime, f"data:{mime};base64,{encoded}") == (part.mime, part.url)
    assert context.call.message_id == part.message_id


def test_of_a_file_that_is_too_large_only_its_size_is_kept(context: ToolContext) -> None:
    data = b"\xff" * (MAX_FILE + 3)
    done = to_output(data, context)

    assert "[20,000,003 bytes of application/octet-stream]" == done.text
    assert ((), {"bytes": 20_000_003}) == (done.attachments, done.metadata)
    assert to_output(data[:MAX_FILE], context).attachments


def test_a_file_part_is_attached(context: ToolContext) -> None:
    part = file_part(new_id(), new_id(), "image/png", "data:image/png;base64,")

    assert ToolOutput("[a file of type image/png]", attachments=(part,)) == to_output(part, context)


def test_an_output_is_made_fit_for_every_store(context: ToolContext) -> None:
    metadata: dict[Any, Any] = {
        "nan": float("nan"),
        "big": 2**60,
        "at": date(2026, 1, 2),
        "odd": Opaque(),
        3: "\0",
    }
    done = to_output(ToolOutput("a\0", "t\0", metadata), context)

    assert ("a\ufffd", "t\ufffd") == (done.text, done.title)
    expected = {
        "nan": None,
        "big": str(2**60),
        "at": "2026-01-02",
        "odd": "<opaque \ufffd>",
        "3": "\ufffd",
    }
    assert expected == done.metadata


def test_metadata_that_is_no_object_becomes_one(context: ToolContext) -> None:
    odd: Any = [1]

    assert {"value": [1]} == to_output(ToolOutput("x", None, odd), context).metadata


def test_metadata_without_end_is_refused(context: ToolContext) -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"a": deep}

    with pytest.raises(ValidationError, match="nested deeper"):
        to_output(ToolOutput("x", metadata=deep), context)
