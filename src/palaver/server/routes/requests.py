"""The exact request that a provider would get now, with its repairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, runtime_checkable

from litestar import get
from litestar.params import FromPath, FromQuery, QueryParameter
from msgspec import UNSET
from msgspec.structs import replace

from palaver import wire
from palaver.conversation.models.base import Ask, Model
from palaver.errors import ValidationError
from palaver.server.service import Served
from palaver.server.shapes.requests import Form, Repair, RequestShown
from palaver.server.shelf import usual
from palaver.server.working import Workshop
from palaver.wire import Note, Request, Target
from palaver.wire.refusals import OTHERWISE, REFUSALS, is_refused
from palaver.wire.tools import tool_names, write_tools

if TYPE_CHECKING:
    from palaver.conversation import Conversation, Toolbox

__all__ = ["ROUTES"]

_FORMATS: Final[dict[str, Form]] = {
    "openai-chat": "openai-chat",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
}


@runtime_checkable
class _Writes(Protocol):
    """A model that can show the body it would send."""

    def request(self, ask: Ask) -> dict[str, Any]:
        """The body of a request."""
        ...


@get("/conversations/{conversation:str}/request", sync_to_thread=True)
def request(
    conversation: FromPath[str],
    service: Served,
    format: FromQuery[Form | None] = None,  # noqa: A002 - the word for it
    model: Annotated[str | None, QueryParameter(min_length=1, max_length=200)] = None,
    tools: FromQuery[bool] = False,
) -> RequestShown:
    """Show what a provider would be sent now, to the letter, and what had to be repaired for it.

    For a `format`, or for a `model` in its own; without either, for the server's model.
    """
    workshop = service.part(Workshop)
    talk = workshop.talks.get(conversation)
    box = workshop.tools.chosen(tools)
    chosen = None
    if model is not None or format is None:
        chosen = workshop.model(model)
        if format is not None and chosen.format != format:
            detail = f"{model} speaks {chosen.format}, not {format}"
            raise ValidationError(detail, path="$.format", rule="format")
    form = _FORMATS[chosen.format] if chosen is not None else format or "openai-chat"
    target = Target() if chosen is None else replace(chosen.target, model=chosen.ref)
    written = _written(talk, form, target)
    notes = [_repair(note, form) for note in written.notes]
    return RequestShown(
        version=talk.history.version,
        format=form,
        model=None if chosen is None else model or workshop.shelf.default,
        request=_body(written, form, chosen, box),
        notes=notes,
        problems=[note for note in notes if note.refused],
        tokens=talk.tokens(box),
    )


def _written(talk: Conversation, form: str, target: Target) -> Request:
    """The conversation in a format; written anew, for others may be at work with `talk`."""
    open_calls = {entry.call_id for entry in talk.ledger().values() if not entry.done}
    return wire.to(form, talk.messages, target, open_calls=open_calls)


def _body(written: Request, form: str, model: Model | None, box: Toolbox) -> dict[str, Any]:
    """The whole body, with the tools and whatever the model adds."""
    names = {**tool_names(form, box.specs), **written.names}
    if model is not None and isinstance(model, _Writes):
        return model.request(Ask(written.body, tools=box.specs, names=names, options=usual(model)))
    offered = {"tools": write_tools(form, box.specs)} if box else {}
    return {**written.body, **offered}


def _repair(note: Note, form: str) -> Repair:
    return Repair(
        action=note.action,
        path=note.where,
        what=note.detail,
        why=REFUSALS.get(note.rule, OTHERWISE),
        rule=note.rule,
        refused=is_refused(note, form),
        message_id=UNSET if note.message_id is None else note.message_id,
    )


ROUTES: Final = [request]
