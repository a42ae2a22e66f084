"""A conversation from one format to another, and everything that this cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver import wire
from palaver.messages import ModelRef, to_dict
from palaver.wire.report import Note, counted
from palaver.wire.target import Target

if TYPE_CHECKING:
    from palaver.wire.report import Reading

__all__ = ["OURS", "TARGETS", "Converted", "converted"]

OURS: Final = "palaver"
"""palaver's own form: a list of messages."""
TARGETS: Final = (*wire.FORMATS, OURS)
"""What a conversation can be written as."""


class Converted(Struct, frozen=True):
    """What was made of a conversation, and every note on the way: of reading, then of writing."""

    result: Any
    notes: tuple[Note, ...]
    names: Mapping[str, str]

    def report(self, reading: Reading) -> dict[str, Any]:
        """The report for programs; `names` are the tools' own, by those that were sent."""
        about = {name: item for name, item in reading.about.items() if name != "request"}
        return {
            "about": to_dict(about),
            "messages": len(reading.messages),
            **counted(self.notes),
            "names": dict(self.names),
        }


def converted(reading: Reading, origin: str, form: str, model: str | None = None) -> Converted:
    """Write a conversation that was read in one format in another.

    Between requests of one format, the other fields of the request are put back.

    >>> from palaver.messages import user
    >>> converted(wire.Reading((user("Tea?"),)), "messages", "anthropic").result
    {'messages': [{'role': 'user', 'content': 'Tea?'}]}
    """
    about = reading.about
    settings: Mapping[str, Any] = about.get("request", {})
    if form == OURS:
        result = [to_dict(message) for message in reading.messages]
        return Converted(result, (*reading.notes, *_left_behind(settings, form)), {})
    home = form == about.get("format", origin)
    if model is None and home:
        model = about.get("model")
    provider = wire.FORMATS[form].provider
    target = Target(None if model is None else ModelRef(provider, model), prefill=True)
    request = wire.to(form, reading.messages, target)
    kept: dict[str, Any] = to_dict(settings) if home else {}
    if model is not None:
        kept["model"] = model
    lost = {name: item for name, item in settings.items() if name not in kept}
    notes = (*reading.notes, *_left_behind(lost, form), *request.notes)
    return Converted({**kept, **request.body}, notes, request.names)


def _left_behind(settings: Mapping[str, Any], form: str) -> tuple[Note, ...]:
    """A note for each field of a request that is no part of the conversation."""
    detail = f"is a setting of the request; it is not carried to {form}"
    return tuple(Note("lost", f"$.{name}", "request-field", detail) for name in settings)
