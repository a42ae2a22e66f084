"""Providers' formats, both ways: however a history was edited, its request is valid.

`to` writes messages as a provider takes them and notes what it had to repair; `from_` reads the
body of a request and notes what it could not keep; `reply` and `reply_reader` read what a provider
answers. The rules are in docs/wire.md. Each provider's format is a folder: `request`, `blocks`,
`reply`.

>>> from palaver import wire
>>> from palaver.messages import user
>>> wire.to("openai-chat", [user("Tea?")]).body
{'messages': [{'role': 'user', 'content': 'Tea?'}]}
>>> wire.from_("openai-chat", {"messages": [{"role": "user", "content": "Tea?"}]}).messages[0].text
'Tea?'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from palaver.errors import ValidationError
from palaver.messages.ids import NIL_ID
from palaver.messages.limits import check_argument, describe_argument
from palaver.messages.message import Message
from palaver.wire.anthropic.request import ANTHROPIC
from palaver.wire.format import Format, ToolSpec
from palaver.wire.gemini.request import GEMINI
from palaver.wire.notes import Note, ParsedConversation
from palaver.wire.openai_chat.request import OPENAI_CHAT
from palaver.wire.openai_responses.request import OPENAI_RESPONSES
from palaver.wire.reply import ReplyReader
from palaver.wire.request import ANY_TARGET, Converter, Request, Target, read_body

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from palaver.messages.parts import ModelRef

__all__ = [
    "FORMATS",
    "Converter",
    "Format",
    "Note",
    "ParsedConversation",
    "ReplyReader",
    "Request",
    "Target",
    "ToolSpec",
    "converter",
    "from_",
    "reply",
    "reply_reader",
    "spell_tool",
    "to",
    "tool_names",
    "write_tools",
]

FORMATS: Mapping[str, Format] = {
    form.name: form for form in (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, GEMINI)
}
"""The formats by name."""


def to(
    form: str,
    messages: Iterable[Message],
    target: Target = ANY_TARGET,
    *,
    open_calls: Collection[str] = (),
) -> Request:
    """Write messages, or a history, as a provider takes them.

    `open_calls` are the ids of the calls that are still running: their results may still come.
    """
    writer = converter(form, target, open_calls=open_calls)
    writer.extend(_check_messages(messages))
    return writer.request()


def _check_messages(messages: object) -> Iterable[Message]:
    """Return messages or a history as they are; raise `ValidationError` for anything else."""
    wanted = "a history or a list of messages"
    if isinstance(messages, Message | str | bytes | Mapping):
        detail = f"must be {wanted}, not {describe_argument(messages)}"
        raise ValidationError(detail, path="$.messages", rule="argument")
    check_argument(messages, Iterable, "$.messages", wanted)
    if isinstance(messages, list | tuple):
        for index, message in enumerate(cast("list[object]", messages)):
            hint = "parse_messages reads a list of objects"
            check_argument(message, Message, f"$.messages[{index}]", "a Message", hint)
    return cast("Iterable[Message]", messages)


def from_(
    form: str, body: object, *, session: str = NIL_ID, names: Mapping[str, str] | None = None
) -> ParsedConversation:
    """Read a request's body; a list is taken for its elements.

    `names` are those of the request that was sent (`Request.names`): tools get theirs back.
    """
    return read_body(_format(form), body, session=session, names=names)


def converter(
    form: str, target: Target = ANY_TARGET, *, open_calls: Collection[str] = ()
) -> Converter:
    """Return a converter, which writes a conversation as it grows."""
    return Converter(_format(form), target, open_calls=open_calls)


def reply(
    form: str,
    body: object,
    *,
    session: str = NIL_ID,
    model: ModelRef | None = None,
    names: Mapping[str, str] | None = None,
) -> Message:
    """Return the message of a provider's reply: text, reasoning, calls, usage and why it ended.

    `model` is the one that was asked, `names` are those of the request that was sent.

    >>> said = {"role": "assistant", "content": "Yes."}
    >>> message = reply("openai-chat", {"choices": [{"message": said, "finish_reason": "stop"}]})
    >>> message.text, message.info.finish
    ('Yes.', 'stop')
    """
    return reply_reader(form, session=session, model=model, names=names).read(body)


def reply_reader(
    form: str,
    *,
    session: str = NIL_ID,
    model: ModelRef | None = None,
    names: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> ReplyReader:
    """Return a reader, which takes the events of a stream and makes the same message of them.

    `limit` is how many bytes of text, reasoning and arguments it stores; `reader.answer.over_limit`
    tells that there was more.

    >>> reader = reply_reader("openai-chat")
    >>> reader.feed({"choices": [{"delta": {"content": "Ye"}}]})
    [TextDelta(text='Ye')]
    >>> reader.feed({"choices": [{"delta": {"content": "s."}, "finish_reason": "stop"}]})
    [TextDelta(text='s.'), Finished(reason='stop')]
    >>> reader.message().text
    'Yes.'
    """
    reader = _format(form).reply_reader
    return reader(session=session, model=model, names=names, limit=limit)


def write_tools(form: str, specs: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Return the field `tools` of a request, in the order of their names.

    A tool's name is spelled in the letters that the provider allows, as in the calls of messages.
    The order is the same however the tools were given: a provider's prompt cache begins with them.

    >>> write_tools("anthropic", [ToolSpec("weather.get", "The weather.")])[0]["name"]
    'weather_get_...'
    """
    ordered = sorted(specs, key=lambda spec: spec.name)
    return _format(form).write_tools([(spell_tool(form, spec.name), spec) for spec in ordered])


def tool_names(form: str, specs: Iterable[ToolSpec]) -> dict[str, str]:
    """Return each tool's own name by the name it has in a request.

    >>> tool_names("openai-chat", [ToolSpec("weather.get"), ToolSpec("clock")])
    {'weather_get_...': 'weather.get', 'clock': 'clock'}
    """
    return _format(form).own_names(specs)


def spell_tool(form: str, name: str) -> str:
    """Return a tool's name as the provider takes it.

    >>> spell_tool("gemini", "weather.get")
    'weather.get'
    """
    return _format(form).tool_names.spell(name)


def _format(name: str) -> Format:
    if name not in FORMATS:
        detail = f"no such format: {name!r}; there are {', '.join(FORMATS)}"
        raise ValidationError(detail, path="$", rule="format")
    return FORMATS[name]
