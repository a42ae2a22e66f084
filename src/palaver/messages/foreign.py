"""Turns in the JSON of another program, opencode's export, read and written without loss.

Reading changes what palaver's rules do not allow (`ses_…` ids, an empty output, fields that only
opencode has) and notes each difference; writing undoes the differences, each only where the value
has not been changed since. Turns that palaver made itself are written in the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, TypeGuard, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from palaver.errors import ValidationError
from palaver.messages.codec import PART_TYPES, load_json, parse_part, to_dict, translate_error
from palaver.messages.decode import convert
from palaver.messages.ids import NIL_ID, uuid_for
from palaver.messages.limits import (
    EMPTY,
    MAX_NAME,
    freeze_mapping,
    is_list,
    is_object,
    is_plain,
    kind_of,
)
from palaver.messages.message import AssistantInfo, UserInfo, own_parts
from palaver.messages.part_base import PartBase
from palaver.messages.parts import Part, StepFinishPart, TextTime, ToolPart, UnknownPart
from palaver.messages.tool_state import CompletedTime, ToolCompleted, ToolError, ToolTime, stand_in
from palaver.messages.turns import TurnInfo, WithParts, object_at, session_of, tool_message_id

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Export",
    "difference",
    "fit_fields",
    "known_fields",
    "parse_export",
    "parse_turn",
    "restore",
    "write_export",
    "write_turn",
]


class Export(Struct, frozen=True):
    """An exported session: its turns, and the object around them if there was one."""

    turns: tuple[WithParts, ...]
    envelope: Mapping[str, Any] | None = None

    @property
    def session(self) -> Mapping[str, Any]:
        """The exporter's own data about the session."""
        found = (self.envelope or EMPTY).get("info")
        return found if is_object(found) else EMPTY


def parse_export(data: object) -> Export:
    """Read an export: `{info, messages}`, a list of `{info, parts}`, or a single one.

    >>> turn = {"info": {"id": "msg_1", "sessionID": "ses_1", "role": "user",
    ...                  "time": {"created": 5}, "shoe": 44}, "parts": []}
    >>> write_export(parse_export([turn])) == [turn]
    True
    """
    value = load_json(data) if isinstance(data, bytes | str) else data
    envelope, path = None, "$"
    if is_object(value) and "messages" in value:
        envelope = freeze_mapping({key: value[key] for key in value if key != "messages"})
        value, path = value["messages"], "$.messages"
    elif is_object(value):
        value = [value]
    if not is_list(value):
        raise ValidationError(f"must be a list of turns, not {kind_of(value)}", path=path)
    turns = tuple(_parse_turn(item, f"{path}[{index}]") for index, item in enumerate(value))
    return Export(turns, envelope)


def write_export(export: Export) -> Any:  # noqa: ANN401 - an object, or a list where there is none
    """Return an export as plain dicts and lists, as it was read; a single turn becomes a list.

    >>> write_export(Export((), {"info": {"title": "Tea"}}))
    {'info': {'title': 'Tea'}, 'messages': []}
    """
    turns = [write_turn(turn) for turn in export.turns]
    return turns if export.envelope is None else {**to_dict(export.envelope), "messages": turns}


def parse_turn(data: object) -> WithParts:
    """Read one `{info, parts}`.

    >>> info = {"id": "msg_1", "role": "user", "time": {"created": 5}}
    >>> parse_turn({"info": info, "parts": []}).info.id
    'msg_1'
    """
    return _parse_turn(load_json(data) if isinstance(data, bytes | str) else data, "$")


def write_turn(turn: WithParts) -> dict[str, Any]:
    """Return a turn as `{info, parts}`, as it was before it was read.

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
        _restore(written, object_at(foreign, name))
    return written


def _restore(written: dict[str, Any], noted: Mapping[str, Any]) -> None:
    envelope = object_at(noted, "turn")
    written.update({key: envelope[key] for key in envelope if key not in written})
    restore(written["info"], noted.get("info"))
    by_part = object_at(noted, "parts")
    for part in written["parts"]:
        # the ids of parts are never changed, so they find their notes
        restore(part, by_part.get(str(part.get("id"))))


def _parse_turn(value: object, path: str) -> WithParts:
    if not is_object(value) or not {"info", "parts"} <= value.keys():
        raise ValidationError("must be an object with info and parts", path=path, rule="turn")
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
    parts = own_parts(parts, info.id)
    noted = _differences_of(info, parts, value)
    if noted:
        known = object_at(info.keep, "foreign")
        both = {
            name: {**object_at(known, name), **object_at(noted, name)}
            for name in {**known, **noted}
        }
        info = msgspec.structs.replace(info, keep={**info.keep, "foreign": both})
    try:
        return WithParts(info, parts)
    except ValidationError as error:
        raise error.under(path) from None


def _differences_of(
    info: TurnInfo, parts: tuple[Part, ...], value: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the differences by the id of the message that they belong to."""
    noted: dict[str, dict[str, Any]] = {}
    own = noted.setdefault(info.id, {})
    envelope = {key: value[key] for key in value if key not in {"info", "parts"}}
    if envelope:
        own["turn"] = envelope
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
    return tool_message_id(part, info.keep) if final else info.id


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
            raise ValidationError("is missing", path=f"{path}.{name}", rule="turn")
    if isinstance(fields.get("sessionID"), str):
        fields["sessionID"] = uuid_for(fields["sessionID"])
    elif session != NIL_ID and "session" not in object_at(fields, "keep"):
        fields["sessionID"] = session  # the parts have it
    if fields.get("cost") == 0 and "costComputed" not in fields:
        del fields["cost"]  # opencode writes 0 for an unknown cost
    if isinstance(fields.get("summary"), bool) is (role == "user"):
        fields.pop("summary", None)  # an answer has a flag here, a user's message an object
    if role == "assistant" and "modelID" in raw and "providerID" in raw:
        fields["model"] = {"providerID": raw["providerID"], "modelID": raw["modelID"]}
    try:
        return convert(fields, TurnInfo)
    except msgspec.ValidationError as error:
        raise translate_error(error, {}).under(path) from None


def _read_part(raw: object, path: str) -> Part:
    kind = raw.get("type") if is_object(raw) else None
    known = PART_TYPES.get(kind) if isinstance(kind, str) else None
    try:
        return parse_part(fit_fields(raw, known) if is_object(raw) and known else raw)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # parse_part says what is wrong
    except ValidationError as error:
        raise error.under(path) from None


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what must change in our form to get theirs.

    In a change, a missing `now` or `was` means that the value is absent.

    >>> difference({"id": "u1", "a": 1}, {"id": "ses_1", "a": 1, "b": 2})
    [{'path': ['id'], 'now': 'u1', 'was': 'ses_1'}, {'path': ['b'], 'was': 2}]
    """
    return list(_differences(ours, theirs, []))


def _differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], path: list[str]
) -> Iterator[dict[str, Any]]:
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        here = [*path, key]
        if key not in theirs:
            yield {"path": here, "now": ours[key]}
        elif key not in ours:
            yield {"path": here, "was": theirs[key]}
        elif _is_dict(ours[key]) and _is_dict(theirs[key]):
            yield from _differences(ours[key], theirs[key], here)
        elif not _same(ours[key], theirs[key]):
            yield {"path": here, "now": ours[key], "was": theirs[key]}


def _same(one: object, other: object) -> bool:
    # 1, 1.0 and true are equal in Python and different in JSON
    return one == other and repr(one) == repr(other)


def restore(ours: dict[str, Any], changes: object) -> dict[str, Any]:
    """Undo noted changes in our form, where the value is still `now`, and return it.

    Anything in `changes` that is not a change as `difference` makes it is ignored.

    >>> restore({"id": "u1", "a": 9}, [{"path": ["id"], "now": "u1", "was": "ses_1"}])
    {'id': 'ses_1', 'a': 9}
    """
    for change in filter(_is_note, changes if is_list(changes) else ()):
        *parents, key = change["path"]
        place: Any = ours
        for parent in parents:
            place = place.get(parent) if _is_dict(place) else None
        if not _is_dict(place):
            continue
        if "now" in change and not (key in place and place[key] == change["now"]):
            continue
        if "now" not in change and key in place:
            continue
        if "was" in change:
            place[key] = change["was"]
        else:
            place.pop(key, None)
    return ours


def _is_note(change: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value has the form of a change; what is read back may be anything."""
    path = change.get("path") if is_object(change) else None
    return is_list(path) and bool(path) and all(isinstance(step, str) for step in path)


def _is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


_NO_ERROR: Final = "(no description)"
_Kinds = tuple[type[Struct], ...]


_SPANS: Final = (TextTime, ToolTime, CompletedTime)


def fit_fields(raw: Mapping[str, Any], kind: type[Struct]) -> dict[str, Any]:
    """Return the known fields of a JSON object, with ids and empty texts changed to fit.

    >>> fit_fields({"type": "step-finish", "reason": "stop", "cost": 0, "shoe": 44}, StepFinishPart)
    {'type': 'step-finish', 'reason': 'stop'}
    """
    tag = kind.__struct_config__.tag_field
    made = {tag: raw[tag]} if tag is not None and tag in raw else {}
    made |= known_fields(raw, kind)
    if issubclass(kind, PartBase):
        for name in ("sessionID", "messageID"):
            if _is_id(made.get(name)):
                made[name] = uuid_for(made[name])
    if kind is StepFinishPart and made.get("cost") == 0 and "costComputed" not in made:
        del made["cost"]  # opencode writes 0 for an unknown cost
    if kind is ToolCompleted and made.get("output") == "":
        files = raw.get("attachments")
        mimes = (
            [f"{file.get('mime')}" for file in files if is_object(file)] if is_list(files) else ()
        )
        made["output"] = stand_in(mimes)
        metadata = made.get("metadata")
        made["metadata"] = {**(metadata if is_object(metadata) else {}), "rawOutput": ""}
    if kind is ToolError and isinstance(made.get("error"), str) and not made["error"].strip():
        made["error"] = _NO_ERROR
    if kind in _SPANS:
        begun, ended = made.get("start"), made.get("end")
        if isinstance(begun, int) and isinstance(ended, int) and ended < begun:
            made["end"] = begun
    return made


def known_fields(raw: Mapping[str, Any], kind: type[Struct]) -> dict[str, Any]:
    """Return the fields that palaver knows, at every level."""
    return {name: _fit(raw[name], kinds) for name, kinds in _fields_of(kind).items() if name in raw}


def _fit(value: object, kinds: _Kinds) -> object:
    if kinds and is_list(value):
        return [_fit(item, kinds) for item in value]
    if not is_object(value):
        return value
    for kind in kinds:
        config = kind.__struct_config__
        if config.tag_field is None or value.get(config.tag_field) == config.tag:
            return fit_fields(value, kind)
    return value


@cache
def _fields_of(kind: type[Struct]) -> dict[str, _Kinds]:
    """Return the JSON name of each field, and the structs it may hold, alone or in a list."""
    return {field.encode_name: _structs(field.type) for field in fields(kind)}


def _structs(annotation: Any) -> _Kinds:  # noqa: ANN401 - any annotation
    if isinstance(annotation, UnionType) or get_origin(annotation) is tuple:
        return tuple(kind for part in get_args(annotation) for kind in _structs(part))
    is_struct = isinstance(annotation, type) and issubclass(annotation, Struct)
    return (annotation,) if is_struct else ()


def _is_id(value: object) -> bool:
    # the part refuses any other value
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and is_plain(value)
