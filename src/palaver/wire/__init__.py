"""Providers' formats, both ways: whatever was edited, the request is valid.

`to` writes messages as a provider takes them and says what it had to repair; `from_` reads what a
provider was sent and says what it could not keep. The rules are in docs/wire.md.

>>> from palaver import wire
>>> from palaver.messages import user
>>> wire.to("openai-chat", [user("Tea?")]).body
{'messages': [{'role': 'user', 'content': 'Tea?'}]}
>>> wire.from_("openai-chat", {"messages": [{"role": "user", "content": "Tea?"}]}).messages[0].text
'Tea?'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import ValidationError
from palaver.messages.ids import NIL_ID
from palaver.wire.anthropic import ANTHROPIC
from palaver.wire.chat import CHAT
from palaver.wire.converting import Converter, Request
from palaver.wire.gemini import GEMINI
from palaver.wire.reading import read_body
from palaver.wire.replies import FOLDS, Fold
from palaver.wire.report import Note, Reading
from palaver.wire.responses import RESPONSES
from palaver.wire.target import ANYONE, Target

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from palaver.messages.message import Message
    from palaver.messages.parts import ModelRef
    from palaver.wire.format import Format

__all__ = [
    "FORMATS",
    "Converter",
    "Fold",
    "Note",
    "Reading",
    "Request",
    "Target",
    "converter",
    "fold",
    "from_",
    "reply",
    "to",
]

FORMATS: Mapping[str, Format] = {form.name: form for form in (CHAT, RESPONSES, ANTHROPIC, GEMINI)}
"""The formats by name."""


def to(
    form: str,
    messages: Iterable[Message],
    target: Target = ANYONE,
    *,
    open_calls: Collection[str] = (),
) -> Request:
    """Write messages as a provider takes them; a history is fine too.

    `open_calls` are the ids of the calls that are still at work: their place is kept.
    """
    writer = converter(form, target, open_calls=open_calls)
    writer.extend(messages)
    return writer.request()


def from_(
    form: str, body: object, *, session: str = NIL_ID, names: Mapping[str, str] | None = None
) -> Reading:
    """Read a request's body; a list is taken for its elements.

    `names` are those of the request that was sent (`Request.names`): tools get theirs back.
    """
    return read_body(_format(form), body, session=session, names=names)


def converter(form: str, target: Target = ANYONE, *, open_calls: Collection[str] = ()) -> Converter:
    """Make a converter, which writes a conversation as it grows."""
    return Converter(_format(form), target, open_calls=open_calls)


def reply(
    form: str,
    body: object,
    *,
    session: str = NIL_ID,
    model: ModelRef | None = None,
    names: Mapping[str, str] | None = None,
) -> Message:
    """The message of a provider's reply: words, thoughts, calls, what it used and why it ended.

    `model` is the one that was asked, `names` are those of the request that was sent.

    >>> said = {"role": "assistant", "content": "Yes."}
    >>> message = reply("openai-chat", {"choices": [{"message": said, "finish_reason": "stop"}]})
    >>> message.text, message.info.finish
    ('Yes.', 'stop')
    """
    return fold(form, session=session, model=model, names=names).whole(body)


def fold(
    form: str,
    *,
    session: str = NIL_ID,
    model: ModelRef | None = None,
    names: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Fold:
    """Make a fold, which takes the events of a stream and makes the same message of them.

    `limit` is how many bytes of text, reasoning and arguments it keeps; `fold.answer.over_limit`
    tells that there was more.

    >>> folding = fold("openai-chat")
    >>> folding.feed({"choices": [{"delta": {"content": "Ye"}}]})
    [TextDelta(text='Ye')]
    >>> folding.feed({"choices": [{"delta": {"content": "s."}, "finish_reason": "stop"}]})
    [TextDelta(text='s.'), Finished(reason='stop')]
    >>> folding.message().text
    'Yes.'
    """
    _format(form)
    return FOLDS[form](session=session, model=model, names=names, limit=limit)


def _format(name: str) -> Format:
    if name not in FORMATS:
        detail = f"no such format: {name!r}; there are {', '.join(FORMATS)}"
        raise ValidationError(detail, path="$", rule="format")
    return FORMATS[name]
