"""Conversion of a conversation from one format to another, with a note for all that it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver import wire
from palaver.messages import ModelRef, to_dict
from palaver.wire.notes import Note, notes_report
from palaver.wire.request import Target

if TYPE_CHECKING:
    from palaver.wire.notes import ParsedConversation

__all__ = ["PALAVER", "TARGETS", "ConversionResult", "convert"]

PALAVER: Final = "palaver"
"""palaver's own format: a list of messages."""
TARGETS: Final = (*wire.FORMATS, PALAVER)
"""The formats that a conversation can be written in."""


class ConversionResult(Struct, frozen=True):
    """A converted conversation, and every note on the way: of reading, then of writing."""

    result: Any
    notes: tuple[Note, ...]
    names: Mapping[str, str]

    def report(self, parsed: ParsedConversation) -> dict[str, Any]:
        """Return the report for programs; `names` are the tools' own, by those that were sent."""
        about = {name: item for name, item in parsed.about.items() if name != "request"}
        return {
            "about": to_dict(about),
            "messages": len(parsed.messages),
            **notes_report(self.notes),
            "names": dict(self.names),
        }


def convert(
    parsed: ParsedConversation, origin: str, form: str, model: str | None = None
) -> ConversionResult:
    """Write a conversation that was read in one format in another.

    Between requests of one format, the other fields of the request are put back.

    >>> from palaver.messages import user
    >>> convert(wire.ParsedConversation((user("Tea?"),)), "messages", "anthropic").result
    {'messages': [{'role': 'user', 'content': 'Tea?'}]}
    """
    about = parsed.about
    settings: Mapping[str, Any] = about.get("request", {})
    if form == PALAVER:
        result = [to_dict(message) for message in parsed.messages]
        return ConversionResult(result, (*parsed.notes, *_lost_settings(settings, form)), {})
    same = form == about.get("format", origin)
    if model is None and same:
        model = about.get("model")
    provider = wire.FORMATS[form].provider
    target = Target(None if model is None else ModelRef(provider, model), prefill=True)
    request = wire.to(form, parsed.messages, target)
    carried: dict[str, Any] = to_dict(settings) if same else {}
    if model is not None:
        carried["model"] = model
    lost = {name: item for name, item in settings.items() if name not in carried}
    notes = (*parsed.notes, *_lost_settings(lost, form), *request.notes)
    return ConversionResult({**carried, **request.body}, notes, request.names)


def _lost_settings(settings: Mapping[str, Any], form: str) -> tuple[Note, ...]:
    """Return a note for each field of a request that is no part of the conversation."""
    detail = f"is a setting of the request; it is not carried to {form}"
    return tuple(Note("lost", f"$.{name}", "request-field", detail) for name in settings)
