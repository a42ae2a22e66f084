"""Snapshots of version 1: `{messages, teamTask, timestamp, version: 1}`.

A message of a snapshot has an id, text, a speaker, perhaps routing, and any other fields. It is
read as a palaver message (human → user, ai → assistant) and written again exactly as it was: fields
without a counterpart are stored under `EXTRA_FIELDS` in the message's metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver.errors import ValidationError
from palaver.messages import Message, Routing, Speaker
from palaver.messages.limits import MAX_INT, check_text, check_time, is_list, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.messages import Role

__all__ = ["EXTRA_FIELDS", "Snapshot", "read_message", "read_snapshot", "write_snapshot"]

EXTRA_FIELDS: Final = "palaver.snapshot"
"""The metadata key with the other fields that a message had in a snapshot."""

_FIELDS: Final = ("messages", "teamTask", "timestamp", "version")
_ROLES: Final[dict[object, Role]] = {"human": "user", "ai": "assistant"}
_SPEAKERS: Final[dict[Role, Any]] = {"user": "human", "assistant": "ai"}


class Snapshot(Struct, frozen=True):
    """The contents of a snapshot of version 1."""

    messages: tuple[Message, ...]
    team_task: str | None
    timestamp: int


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


def read_snapshot(value: object) -> Snapshot:
    """Read a snapshot after checking all of it.

    >>> read_snapshot({"messages": [], "teamTask": None, "timestamp": 5, "version": 1}).timestamp
    5
    >>> read_snapshot({})
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.version: Invalid snapshot format [import-format]
    """
    if not isinstance(value, Mapping) or type(value.get("version")) is not int:
        raise ValidationError("Invalid snapshot format", path="$.version", rule="import-format")
    if value["version"] != 1:
        raise ValidationError("Invalid snapshot format", path="$.version", rule="import-format")
    for name in value:
        if name not in _FIELDS:
            raise ValidationError("is not a field of it", path=f"$.{name}", rule="import-format")
    for name in _FIELDS:
        if name not in value:
            raise ValidationError("is missing", path=f"$.{name}", rule="import-format")
    task, at, raw = value["teamTask"], value["timestamp"], value["messages"]
    if task is not None:
        check_text(task, "$.teamTask")
    check_time(at, "$.timestamp")
    if not is_list(raw):
        raise ValidationError(f"must be a list, not {kind_of(raw)}", path="$.messages")
    messages = tuple(
        read_message(item, at=at, path=f"$.messages[{index}]") for index, item in enumerate(raw)
    )
    _check_unique(messages)
    return Snapshot(messages, task, at)


def _check_unique(messages: Iterable[Message]) -> None:
    seen: set[str] = set()
    for index, message in enumerate(messages):
        if message.id in seen:
            detail = f"another message has the id {message.id!r}"
            raise ValidationError(detail, path=f"$.messages[{index}].id", rule="import-format")
        seen.add(message.id)


def read_message(item: object, *, at: int, path: str = "$") -> Message:
    """Read one message of a snapshot; `at` is its time where it has none.

    >>> speaker = {"roleId": "max", "roleName": "Max", "type": "ai"}
    >>> read_message({"id": "msg-1", "content": "Hi", "speaker": speaker}, at=5).role
    'assistant'
    """
    fields = _object(item, path)
    for name in ("id", "content", "speaker"):
        if name not in fields:
            raise ValidationError("is missing", path=f"{path}.{name}", rule="import-format")
    if not isinstance(fields["content"], str):
        detail = f"must be text, not {kind_of(fields['content'])}"
        raise ValidationError(detail, path=f"{path}.content", rule="import-format")
    speaker, routing = fields.pop("speaker"), fields.pop("routing", None)
    name, content = fields.pop("id"), fields.pop("content")
    timestamp = fields.get("timestamp")
    if type(timestamp) is int and 0 <= timestamp <= MAX_INT:
        at = timestamp
    extra: dict[str, Any] = {"message": fields}
    if isinstance(item, Mapping) and "routing" in item:
        extra["routing"] = _shape(routing)
    try:
        return Message(
            _role(speaker),
            content,
            id=name,
            timestamp=at,
            metadata={EXTRA_FIELDS: extra},
            speaker=_speaker(speaker),
            routing=None if routing is None else _routing(routing),
        )
    except ValidationError as error:
        raise error.under(path) from None


def _object(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValidationError(
            f"must be an object, not {kind_of(value)}", path=path, rule="import-format"
        )
    return dict(value)


def _role(speaker: object) -> Role:
    kind = speaker.get("type") if isinstance(speaker, Mapping) else None
    return _ROLES.get(kind if isinstance(kind, str) else None, "user")  # Speaker raises the error


def _speaker(value: object) -> Speaker:
    fields = _object(value, "$.speaker")
    for name in ("roleId", "roleName", "type"):
        if name not in fields:
            raise ValidationError("is missing", path=f"$.speaker.{name}", rule="import-format")
    try:
        return Speaker(
            fields.pop("roleId"), fields.pop("roleName"), fields.pop("type"), extra=fields
        )
    except ValidationError as error:
        raise error.under("$.speaker") from None


def _shape(routing: object) -> str:
    """Return what `Routing` does not hold: whether it was null, or had addressees at all."""
    if routing is None:
        return "null"
    named = isinstance(routing, Mapping) and "resolvedAddressees" in routing
    return "full" if named else "bare"


def _routing(value: object) -> Routing:
    fields = _object(value, "$.routing")
    try:
        return Routing(fields.pop("resolvedAddressees", ()), extra=fields)
    except ValidationError as error:
        raise error.under("$.routing") from None


# ── writing ─────────────────────────────────────────────────────────────────────────────────────


def write_snapshot(
    messages: Iterable[Message], *, team_task: str | None, timestamp: int
) -> dict[str, Any]:
    """Return a snapshot as JSON-ready data.

    It has users' and assistants' messages only, and of their content the text that a model may
    see: a snapshot can't say that text is ignored.

    >>> from palaver.messages import user
    >>> made = write_snapshot([user("Hi", id="msg-1", timestamp=4)], team_task=None, timestamp=5)
    >>> made["messages"][0]["speaker"]
    {'roleId': 'user', 'roleName': 'user', 'type': 'human'}
    """
    written = [message for message in messages if message.role in _SPEAKERS]
    _check_unique(written)
    return {
        "messages": [_write(message) for message in written],
        "teamTask": team_task,
        "timestamp": timestamp,
        "version": 1,
    }


def _write(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"id": message.id, "content": message.sendable_text}
    speaker = message.speaker or Speaker(message.role, message.role, _SPEAKERS[message.role])
    written["speaker"] = {
        "roleId": speaker.role_id,
        "roleName": speaker.role_name,
        "type": speaker.type,
        **speaker.extra,
    }
    extra = message.metadata.get(EXTRA_FIELDS)
    shape = "full" if message.routing is not None else "none"
    more: Any = {"timestamp": message.timestamp}
    if isinstance(extra, Mapping):
        shape, more = extra.get("routing", shape), extra.get("message", more)
    if shape == "null":
        written["routing"] = None
    elif message.routing is not None:
        addressees = {"resolvedAddressees": list(message.routing.resolved_addressees)}
        written["routing"] = {
            **(addressees if shape == "full" or message.addressees else {}),
            **message.routing.extra,
        }
    return {**written, **(more if isinstance(more, Mapping) else {})}
