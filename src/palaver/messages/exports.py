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
from palaver.messages.codec import KNOWN_TYPES, load_json, parse_part, to_dict, translated
from palaver.messages.decoding import convert
from palaver.messages.foreign import difference, restored
from palaver.messages.gate import EMPTY, freeze_mapping, is_list, is_object, kind_of
from palaver.messages.ids import NIL_ID, uuid_for
from palaver.messages.mapping import known_fields, mapped
from palaver.messages.message import AssistantInfo, UserInfo
from palaver.messages.parts import Part, ToolPart, UnknownPart
from palaver.messages.toolstate import ToolCompleted, ToolError
from palaver.messages.turns import TurnInfo, WithParts, kept, result_id, session_of

__all__ = ["Export", "parse_export", "parse_turn", "write_export", "write_turn"]


class Export(Struct, frozen=True):
    """A whole session: its turns, and the object around them where there was one."""

    turns: tuple[WithParts, ...]
    around: Mapping[str, Any] | None = None

    @property
    def session(self) -> Mapping[str, Any]:
        """What the exporter said of the session."""
        found = (self.around or EMPTY).get("info")
        return found if is_object(found) else EMPTY


def parse_export(data: object) -> Export:
    """Read an export: `{info, messages}`, or a list of `{info, parts}`, or one of them.

    >>> turn = {"info": {"id": "msg_1", "sessionID": "ses_1", "role": "user",
    ...                  "time": {"created": 5}, "shoe": 44}, "parts": []}
    >>> write_export(parse_export([turn])) == [turn]
    True
    """
    value = load_json(data) if isinstance(data, bytes | str) else data
    around, path = None, "$"
    if is_object(value) and "messages" in value:
        around = freeze_mapping({key: value[key] for key in value if key != "messages"})
        value, path = value["messages"], "$.messages"
    elif is_object(value):
        value = [value]
    if not is_list(value):
        raise ValidationError(f"must be a list of turns, not {kind_of(value)}", path=path)
    turns = tuple(_parse_turn(item, f"{path}[{index}]") for index, item in enumerate(value))
    return Export(turns, around)


def write_export(export: Export) -> Any:  # noqa: ANN401 - an object, or a list where there is none
    """Write an export, as plain dicts and lists: as it was read, and one turn alone as a list.

    >>> write_export(Export((), {"info": {"title": "Tea"}}))
    {'info': {'title': 'Tea'}, 'messages': []}
    """
    turns = [write_turn(turn) for turn in export.turns]
    return turns if export.around is None else {**to_dict(export.around), "messages": turns}


def parse_turn(data: object) -> WithParts:
    """Read one `{info, parts}`.

    >>> info = {"id": "msg_1", "role": "user", "time": {"created": 5}}
    >>> parse_turn({"info": info, "parts": []}).info.id
    'msg_1'
    """
    return _parse_turn(load_json(data) if isinstance(data, bytes | str) else data, "$")


def write_turn(turn: WithParts) -> dict[str, Any]:
    """Write one `{info, parts}`, as it was before it was read.

    >>> from palaver.messages import fold, user
    >>> write_turn(fold([user("hi")])[0])["parts"][0]["text"]
    'hi'
    """
    written: dict[str, Any] = to_dict(turn)
    keep = written["info"].pop("keep", {})
    foreign = keep.pop("foreign", {})
    if keep:
        written["info"]["keep"] = keep
    for name in foreign if is_object(foreign) else ():
        _restore(written, kept(foreign, name))
    return written


def _restore(written: dict[str, Any], noted: Mapping[str, Any]) -> None:
    around = kept(noted, "turn")
    written.update({key: around[key] for key in around if key not in written})
    restored(written["info"], noted.get("info"))
    by_part = kept(noted, "parts")
    for part in written["parts"]:
        # by the id it has now, which is the id it had: part ids are never mapped
        restored(part, by_part.get(str(part.get("id"))))


def _parse_turn(value: object, path: str) -> WithParts:
    if not is_object(value) or not {"info", "parts"} <= value.keys():
        raise ValidationError("must be an object with info and parts", path=path, rule="PT-08")
    raw_info, raw_parts = value["info"], value["parts"]
    if not is_object(raw_info):
        detail = f"must be an object, not {kind_of(raw_info)}"
        raise ValidationError(detail, path=f"{path}.info")
    if not is_list(raw_parts):
        detail = f"must be a list of parts, not {kind_of(raw_parts)}"
        raise ValidationError(detail, path=f"{path}.parts")
    freeze_mapping({key: value[key] for key in value if key != "parts"}, path)
    parts = tuple(
        _read_part(part, f"{path}.parts[{index}]") for index, part in enumerate(raw_parts)
    )
    info = _read_info(raw_info, session_of(parts), f"{path}.info")
    noted = _noted(info, parts, value)
    if noted:
        known = kept(info.keep, "foreign")
        both = {name: {**kept(known, name), **kept(noted, name)} for name in {**known, **noted}}
        info = msgspec.structs.replace(info, keep={**info.keep, "foreign": both})
    try:
        return WithParts(info, parts)
    except ValidationError as error:
        raise error.under(path) from None


def _noted(
    info: TurnInfo, parts: tuple[Part, ...], value: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """What differs, by the message that each piece will be in."""
    noted: dict[str, dict[str, Any]] = {}
    own = noted.setdefault(info.id, {})
    around = {key: value[key] for key in value if key not in {"info", "parts"}}
    if around:
        own["turn"] = around
    ours = {key: item for key, item in to_dict(info).items() if key != "keep"}
    changes = difference(ours, {key: item for key, item in value["info"].items() if key != "keep"})
    if changes:
        own["info"] = changes
    for part, raw in zip(parts, value["parts"], strict=True):
        changes = [] if isinstance(part, UnknownPart) else difference(to_dict(part), raw)
        if changes:
            noted.setdefault(_owner(info, part), {}).setdefault("parts", {})[part.id] = changes
    if info.session_id and info.session_id != session_of(parts) and "session" not in info.keep:
        own["sessionID"] = info.session_id
    return {name: entry for name, entry in noted.items() if entry}


def _owner(info: TurnInfo, part: Part) -> str:
    if not (info.role == "assistant" and isinstance(part, ToolPart)):
        return info.id
    final = isinstance(part.state, ToolCompleted | ToolError)
    return result_id(part, info.keep) if final else info.id


_COMMON: Final = frozenset(
    ("id", "role", "time", "sessionID", "metadata", "speaker", "routing", "keep")
)
_OWN: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset(UserInfo.__struct_encode_fields__),
    "assistant": frozenset(AssistantInfo.__struct_encode_fields__) - {"completed"},
}


def _read_info(raw: Mapping[str, Any], session: str, path: str) -> TurnInfo:
    role = raw.get("role")
    names = _COMMON | (_OWN.get(role, frozenset()) if isinstance(role, str) else frozenset())
    fields = {key: item for key, item in known_fields(raw, TurnInfo).items() if key in names}
    for name in ("id", "role", "time"):
        if name not in fields:
            raise ValidationError("is missing", path=f"{path}.{name}", rule="PT-08")
    if isinstance(fields.get("sessionID"), str):
        fields["sessionID"] = uuid_for(fields["sessionID"])
    elif session != NIL_ID and "session" not in kept(fields, "keep"):
        fields["sessionID"] = session  # the parts know it
    if fields.get("cost") == 0 and "costComputed" not in fields:
        del fields["cost"]  # a cost of nothing says that nobody knew it
    if isinstance(fields.get("summary"), bool) is (role == "user"):
        fields.pop("summary", None)  # an answer says whether it is one, a user's message has one
    if role == "assistant" and "modelID" in raw and "providerID" in raw:
        fields["model"] = {"providerID": raw["providerID"], "modelID": raw["modelID"]}
    try:
        return convert(fields, TurnInfo)
    except msgspec.ValidationError as error:
        raise translated(error, {}).under(path) from None


def _read_part(raw: object, path: str) -> Part:
    kind = raw.get("type") if is_object(raw) else None
    known = KNOWN_TYPES.get(kind) if isinstance(kind, str) else None
    try:
        return parse_part(mapped(raw, known) if is_object(raw) and known else raw)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # parse_part says what is wrong
    except ValidationError as error:
        raise error.under(path) from None
