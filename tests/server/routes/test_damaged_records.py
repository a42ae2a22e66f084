"""Records that an import has brought and nobody can read: said so, and never an error of ours."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from palaver.server.openai.responses import RESPONSE
from tests.conversation.scripted import Scripted
from tests.server.openai.door import Door

if TYPE_CHECKING:
    from collections.abc import Generator

NAME = "000000000000aaaaaa"
READERS = {
    ("step", "x"): "api/conversations/{}/step",
    ("roster", "document"): "api/conversations/{}/team",
    ("openai", "metadata"): "v1/conversations/{}",
    (RESPONSE, NAME): "v1/responses/resp_AAAAAAAAqqqqAmRhbWFnZWQ",
    ("call", "x"): "api/conversations/{}/calls",
    ("annotation", "x"): "api/conversations/{}/annotations",
}


@pytest.fixture(scope="module")
def door() -> Generator[Door]:
    with Door(Scripted()) as found:
        yield found


@pytest.mark.parametrize(
    "value", [b"", b"\xff", b"[]", b"5", b"{" * 2_000], ids=lambda v: str(v[:4])
)
@pytest.mark.parametrize(("kind", "name"), READERS, ids=lambda given: given)
def test_a_record_that_cant_be_read_is_reported(
    door: Door, kind: str, name: str, value: bytes
) -> None:
    begun = door.ask.begun("Tea?")
    document: dict[str, Any] = json.loads(
        door.ask.get(f"/api/conversations/{begun}/export").content
    )
    record = {"kind": kind, "name": name, "value": b64encode(value).decode()}
    changed = json.dumps({**document, "id": "damaged", "records": [record]})
    made = door.ask.post("/api/import", content=changed)
    assert made.is_success, made.text
    try:
        found = door.ask.get("/" + READERS[kind, name].format("damaged"))
        assert found.status_code in (422, 503), found.text
        assert "something went wrong" not in found.text
        assert door.ask.get("/api/conversations/damaged/messages").is_success
    finally:
        door.ask.delete("/api/conversations/damaged")
