"""Turns as JSON: the `{info, parts}` of opencode's export, read and written without loss.

Reading maps what does not fit palaver's rules (`ses_…` ids, an empty output, fields that only
opencode has) and notes each difference; writing takes the differences back. What palaver made
itself is written in the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from palaver.errors import ValidationError
from palaver.messages.codec import (
    KNOWN_TYPES,
    load_json,
    parse_part,
    to_dict,
    translated,
)
from palaver.messages.foreign import difference, restored
from palaver.messages.gate import EMPTY, freeze_mapping
from palaver.messages.ids import uuid_for
from palaver.messages.parts import Part, ToolPart, UnknownPart
from palaver.messages.toolstate import (
    NO_OUTPUT,
    ToolCompleted,
    ToolError,
    ToolPending,
    ToolRunning,
)
from palaver.messages.turns import TurnInfo, WithParts, result_id

__all__ = ["Export", "parse_export", "parse_turn", "write_export", "write_turn"]

_STATES: Final[dict[str, type[Struct]]] = {
    "pending": ToolPending,
    "running": ToolRunning,
    "completed": ToolCompleted,
    "error": ToolError,
}
_NO_ERROR: Final = "(no description)"


class Export(Struct, frozen=True):
    """A whole session: what the exporter said of it, and its turns."""

    turns: tuple[WithParts, ...]
    session: Mapping[str, Any] = EMPTY


def parse_export(data: bytes | str | object) -> Export:
    """Read an export: `{info, messages}`, or a list of `{info, parts}`, or one of them.

    >>> turn = {"info": {"id": "msg_1", "sessionID": "ses_1", "role": "user",
    ...                  "time": {"created": 5}, "shoe": 44}, "parts": []}
    >>> write_export(parse_export([turn])) == [turn]
    True
    """
    value = load_json(data) if isinstance(data, bytes | str) else data
    session: Mapping[str, Any] = EMPTY
    prefix = "$"
    if isinstance(value, Mapping) and "messages" in value:
        session = freeze_mapping(value.get("info", EMPTY), "$.info")
        value, prefix = value["messages"], "$.messages"
    elif isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list | tuple):
        raise ValidationError("must be a list of turns", path=prefix)
    turns = [parse_turn(item, path=f"{prefix}[{index}]") for index, item in enumerate(value)]
    return Export(tuple(turns), session)


def write_export(export: Export) -> Any:  # noqa: ANN401 - an object, or a list where there is no session
    """Write an export, as plain dicts and lists."""
    turns = [write_turn(turn) for turn in export.turns]
    return {"info": to_dict(export.session), "messages": turns} if export.session else turns


def parse_turn(data: bytes | str | object, *, path: str = "$") -> WithParts:
    """Read one `{info, parts}`."""
    value = load_json(data) if isinstance(data, bytes | str) else data
    if not isinstance(value, Mapping) or not {"info", "parts"} <= value.keys():
        raise ValidationError("must be an object with info and parts", path=path, rule="PT-08")
    raw_info, raw_parts = value["info"], value["parts"]
    if not isinstance(raw_info, Mapping):
        raise ValidationError("must be an object", path=f"{path}.info")
    if not isinstance(raw_parts, list | tuple):
        raise ValidationError("must be a list of parts", path=f"{path}.parts")
    freeze_mapping(raw_info, f"{path}.info")
    parts = tuple(
        _read_part(part, f"{path}.parts[{index}]") for index, part in enumerate(raw_parts)
    )
    info = _read_info(raw_info, f"{path}.info")
    keep = dict(info.keep)
    foreign = _foreign(info, raw_info, parts, raw_parts)
    if foreign:
        keep["foreign"] = {**keep.get("foreign", {}), **foreign}
    return WithParts(msgspec.structs.replace(info, keep=keep), parts)


def write_turn(turn: WithParts) -> dict[str, Any]:
    """Write one `{info, parts}`, as it was before it was read."""
    written: dict[str, Any] = to_dict(turn)
    foreign = written["info"].pop("keep", {}).pop("foreign", {})
    for noted in foreign.values():
        restored(written["info"], noted.get("info", ()))
        for part in written["parts"]:
            # by the id it has now, which is the id it had: part ids are never mapped
            restored(part, noted.get("parts", {}).get(part.get("id"), ()))
    return written


def _foreign(
    info: TurnInfo,
    raw_info: Mapping[str, Any],
    parts: tuple[Part, ...],
    raw_parts: list[Any],
) -> dict[str, Any]:
    """What differs, by the message that each piece will be in."""
    ours = to_dict(info)
    ours.pop("keep", None)
    theirs = {key: value for key, value in raw_info.items() if key != "keep"}
    noted: dict[str, dict[str, Any]] = {}
    changes = difference(ours, theirs)
    if changes:
        noted.setdefault(info.id, {})["info"] = changes
    for part, raw in zip(parts, raw_parts, strict=True):
        changes = [] if isinstance(part, UnknownPart) else difference(to_dict(part), raw)
        if changes:
            owner = noted.setdefault(_owner(info, part), {})
            owner.setdefault("parts", {})[part.id] = changes
    if noted and info.session_id:
        noted.setdefault(info.id, {})["sessionID"] = info.session_id
    return noted


def _owner(info: TurnInfo, part: Part) -> str:
    final = isinstance(part, ToolPart) and isinstance(part.state, ToolCompleted | ToolError)
    return result_id(part, info.keep) if final and info.role == "assistant" else info.id  # type: ignore[arg-type]  # a ToolPart


def _read_info(raw: Mapping[str, Any], path: str) -> TurnInfo:
    fields = {key: value for key, value in raw.items() if key in _INFO_NAMES}
    for name in ("id", "role", "time"):
        if name not in fields:
            raise ValidationError("is missing", path=f"{path}.{name}", rule="PT-08")
    if isinstance(fields.get("sessionID"), str):
        fields["sessionID"] = uuid_for(fields["sessionID"])
    if fields.get("cost") == 0 and "costComputed" not in fields:
        del fields["cost"]  # a cost of nothing says that nobody knew it
    if fields["role"] == "assistant" and "modelID" in raw and "providerID" in raw:
        fields["model"] = {"providerID": raw["providerID"], "modelID": raw["modelID"]}
    try:
        return msgspec.convert(fields, TurnInfo)
    except msgspec.ValidationError as error:
        raise translated(error, {}).under(path) from None


_INFO_NAMES: Final = frozenset(field.encode_name for field in msgspec.structs.fields(TurnInfo))


def _read_part(raw: object, path: str) -> Part:
    if not isinstance(raw, Mapping):
        raise ValidationError("must be an object", path=path)
    kind = KNOWN_TYPES.get(raw["type"]) if isinstance(raw.get("type"), str) else None
    try:
        return parse_part(raw if kind is None else _mapped(raw, kind))
    except ValidationError as error:
        raise error.under(path) from None


def _mapped(raw: Mapping[str, Any], kind: type[Struct]) -> dict[str, Any]:
    """The fields that palaver knows, with ids and empty texts made to fit its rules."""
    fields = _known(raw, kind)
    fields["type"] = raw["type"]
    for name in ("sessionID", "messageID"):
        if isinstance(fields.get(name), str) and fields[name]:
            fields[name] = uuid_for(fields[name])
    if raw["type"] == "step-finish" and fields.get("cost") == 0:
        fields.pop("cost")
    state = fields.get("state")
    if isinstance(state, Mapping) and state.get("status") in _STATES:
        fields["state"] = _mapped_state(state)
    return fields


def _mapped_state(raw: Mapping[str, Any]) -> dict[str, Any]:
    state = _known(raw, _STATES[raw["status"]])
    state["status"] = raw["status"]
    if state.get("output") == "":
        state["output"] = NO_OUTPUT
        state["metadata"] = {**state.get("metadata", {}), "rawOutput": ""}
    if state.get("error") == "":
        state["error"] = _NO_ERROR
    if isinstance(state.get("attachments"), list):
        state["attachments"] = [
            _mapped(item, KNOWN_TYPES["file"]) if isinstance(item, Mapping) and item.get("type")
            else item
            for item in state["attachments"]
        ]  # fmt: skip
    return state


def _known(raw: Mapping[str, Any], kind: type[Struct]) -> dict[str, Any]:
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    return {key: value for key, value in raw.items() if key in names}
