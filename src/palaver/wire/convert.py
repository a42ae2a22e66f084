"""Conversion of a conversation from one format to another, with a note for all that it cost.

A stored conversation is exported here too: this is the first place that knows both the forms of the
stores and those of the providers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages import ModelRef, dump, to_dict
from palaver.messages.limits import quote_value
from palaver.stores.annotations import read_annotations
from palaver.stores.transfer import FORMS, export_conversation
from palaver.stores.transfer.documents import write_html, write_markdown
from palaver.wire.notes import Note, notes_report
from palaver.wire.request import Target

if TYPE_CHECKING:
    from palaver.stores import Store
    from palaver.stores.transfer.documents import Render
    from palaver.stores.transfer.export import Progress
    from palaver.wire.notes import ParsedConversation

__all__ = ["EXPORTS", "PALAVER", "TARGETS", "ConversionResult", "convert", "export_as"]

PALAVER: Final = "palaver"
"""palaver's own format: a list of messages."""
TARGETS: Final = (*wire.FORMATS, PALAVER)
"""The formats that a conversation can be written in."""


_FOR_PEOPLE: Final = ("markdown", "html")
EXPORTS: Final = (*FORMS, *_FOR_PEOPLE, "messages", *wire.FORMATS)
"""What a stored conversation can be exported as: palaver's own forms, documents, requests."""


def export_as(
    store: Store,
    conversation: str,
    stream: IO[bytes],
    form: str,
    *,
    progress: Progress | None = None,
    render: Render | None = None,
) -> tuple[Note, ...]:
    """Write a stored conversation to a stream; return what a provider's format repaired and lost.

    The forms of `export_conversation`; `markdown` and `html`, for people; `messages`, a list of the
    messages as they are now; and the providers' formats, in which it may end with an answer.
    `render` is what `write_html` makes of Markdown.

    >>> import io, json, palaver
    >>> store, file = palaver.open(":memory:"), io.BytesIO()
    >>> export_as(store, store.create([palaver.user("hi")]).id, file, "anthropic")
    ()
    >>> json.loads(file.getvalue())
    {'messages': [{'role': 'user', 'content': 'hi'}]}
    """
    if form == "messages":
        stream.write(dump(store.get(conversation).messages) + b"\n")
    elif form in _FOR_PEOPLE:
        history, notes = store.get(conversation), read_annotations(store, conversation)
        if form == "html":
            write_html(history.view, stream, title=history.title, annotations=notes, render=render)
        else:
            write_markdown(history.view, stream, title=history.title, annotations=notes)
    elif form in wire.FORMATS:
        request = wire.to(form, store.get(conversation).view, Target(None, prefill=True))
        stream.write(dump(request.body) + b"\n")
        return request.notes
    elif form in FORMS:
        export_conversation(store, conversation, stream, form=form, progress=progress)
    else:
        detail = f"must be one of {', '.join(EXPORTS)}, not {quote_value(form)}"
        raise ValidationError(detail, path="$.format", rule="export-format")
    return ()


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
