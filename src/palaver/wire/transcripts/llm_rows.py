"""What the older and the newer tables of llm's `logs.db` share: models, tokens, attachments."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from palaver.messages.gate import MAX_INT, MAX_NAME
from palaver.messages.message import AssistantInfo
from palaver.messages.parts import ModelRef
from palaver.wire.transcripts.databases import text_of
from palaver.wire.transcripts.fields import count_in, parsed_input, token_counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.wire.transcripts.databases import Database

__all__ = ["attached", "attachment", "info_of", "metadata_of", "model_of"]

_MAKERS: Final = (
    ("claude", "anthropic"), ("anthropic", "anthropic"), ("gemini", "google"), ("gpt", "openai"),
    ("chatgpt", "openai"), ("o1", "openai"), ("o3", "openai"), ("o4", "openai"),
    ("openai", "openai"),
)  # fmt: skip
"""How a model's name begins, and who makes it: llm itself does not say."""


def model_of(name: str) -> ModelRef | None:
    """A model by its name; its provider where the name tells, else llm.

    >>> model_of("gpt-4o-mini").provider_id, model_of("orca-mini").provider_id
    ('openai', 'llm')
    """
    if not (0 < len(name) <= MAX_NAME and name.isprintable()):
        return None
    maker = next((maker for begin, maker in _MAKERS if name.lower().startswith(begin)), "llm")
    return ModelRef(maker, name)


def info_of(row: Mapping[str, Any], at: int) -> AssistantInfo:
    """What a row says of the call: which model, how many tokens, how long it took."""
    details = parsed_input(text_of(row["token_details"]))
    flat = {name: item for key in details for name, item in _flat(key, details[key]).items()}
    took = count_in(row, "duration_ms")
    return AssistantInfo(
        model=model_of(text_of(row["resolved_model"]) or text_of(row["model"])),
        tokens=token_counts(
            count_in(row, "input_tokens"),
            count_in(row, "output_tokens"),
            read=count_in(flat, "cached_tokens", "cache_read_input_tokens"),
            reasoning=count_in(flat, "reasoning_tokens"),
        ),
        completed=at + took if at + took <= MAX_INT else None,
    )


def _flat(name: str, value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {name: value}


def metadata_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What else a row says: options, the schema's name, details of the tokens."""
    named = {"options": "options_json", "tokenDetails": "token_details"}
    found: dict[str, Any] = {
        name: value
        for name, column in named.items()
        if (value := parsed_input(text_of(row[column])))
    }
    if schema := text_of(row["schema_id"]):
        found["schema"] = schema
    return {"llm": found} if found else {}


def attached(
    database: Database, table: str, column: str, owner: object
) -> list[tuple[str, str, str | None]]:
    """What is attached to a prompt or a result, as type, url and name."""
    if table not in database:
        return []
    where = f'where "{column}" = ? order by "order"'
    ids = [
        row["attachment_id"] for row in database.rows(table, ("attachment_id",), where, (owner,))
    ]
    return [file for name in ids if (file := attachment(database, text_of(name)))]


def attachment(database: Database, name: str) -> tuple[str, str, str | None] | None:
    """An attachment as type, url and name; palaver opens neither the path nor the url."""
    columns = ("type", "path", "url", "content")
    for row in database.rows("attachments", columns, "where id = ?", (name,)):
        mime = text_of(row["type"]) or "application/octet-stream"
        if path := text_of(row["path"]):
            return mime, f"file://{quote(path)}", path.rpartition("/")[2] or None
        if url := text_of(row["url"]):
            return mime, url, None
        content = row["content"]
        if isinstance(content, bytes):
            return mime, f"data:{mime};base64,{base64.b64encode(content).decode()}", None
    database.notes.lost(f"attachment {name}", "transcript.damaged", "is not there")
    return None
