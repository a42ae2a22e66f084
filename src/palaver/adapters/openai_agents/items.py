"""Items of the SDK to messages and back: what was not edited comes back exactly equal.

Items are read as `palaver.wire` reads those of OpenAI Responses: thoughts, words and calls that
stand together are one answer. Each message is written again at once, and where that differs from
its items, the difference is kept in its metadata, with a fingerprint of our own writing. A message
that still has that fingerprint gives its items back; an edited one is written from what it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from palaver.adapters.openai_agents.plain import KEY, Item, kept_as, plain_messages
from palaver.errors import ValidationError
from palaver.history.erasing import ERASED
from palaver.messages.factories import tool_call_part
from palaver.messages.gate import is_list, is_object
from palaver.messages.ids import new_id
from palaver.messages.message import Message
from palaver.messages.parts import ToolPart, UnknownPart
from palaver.messages.replacement import replace_refused
from palaver.messages.toolstate import ToolCompleted
from palaver.wire.items import CALLS, OTHERS, RESULTS, Items, pair_of
from palaver.wire.memory import changed, changes, fingerprint
from palaver.wire.mending import Mender
from palaver.wire.pen import Pen, block_of
from palaver.wire.reading import Source
from palaver.wire.responses import RESPONSES
from palaver.wire.target import ANYONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.messages.message import Role
    from palaver.messages.parts import Part

__all__ = ["KEY", "Item", "items_of", "messages_of", "read_with_care"]

_SPEAKERS: Final = frozenset(("user", "assistant", "system", "developer"))


def messages_of(
    items: Sequence[Any], session: str, tools: Mapping[str, str] | None = None
) -> list[tuple[Message, Sequence[Any]]]:
    """The messages of some items, each with its own; `tools` names those of earlier calls.

    What a store refuses (NUL, half characters, numbers beyond JSON's) is replaced: an agent's run
    does not fail for a stray byte in a tool's output.
    """
    known = tools or {}
    try:
        return plain_messages(items, session, known) or read_with_care(items, session, known)
    except ValidationError:
        replaced = replace_refused(items)
        return read_with_care(replaced if is_list(replaced) else (), session, known)


def read_with_care(
    items: Sequence[Any], session: str, tools: Mapping[str, str]
) -> list[tuple[Message, Sequence[Any]]]:
    """The messages of any items: each is written again, to see what that leaves out."""
    source = Source(RESPONSES, session=session, model=None, names={})
    source.tools.update(tools)
    reader = Items(source, ())
    for place, item in enumerate(items):
        if not is_object(item):
            raise ValidationError("must be an object", path=f"$.items[{place}]", rule="schema")
        if _is_understood(item):
            reader.take(item, place)
        else:
            reader.close()
            role: Role = "tool" if str(item.get("type")).endswith("_output") else "assistant"
            source.add(role, [source.unknown(item)], place, new_id())
    reader.close()
    found: list[tuple[Message, Sequence[Any]]] = []
    end = len(items)
    for message, place in zip(reversed(source.messages), reversed(source.places), strict=True):
        theirs = items[place:end]
        found.append((_remembering(message, theirs), theirs))
        end = place
    return found[::-1]


def _is_understood(item: Mapping[str, Any]) -> bool:
    """Tell whether the reader of the wire format keeps an item, whatever came before it.

    An output of a computer, a shell and the like is kept whole: its call may be of another batch.
    """
    kind = item.get("type")
    if kind in (None, "message") and "role" in item:
        return item["role"] in _SPEAKERS
    if kind in OTHERS:
        return (pair_of(item) or ("call", ""))[0] == "call"
    return kind == "reasoning" or kind in CALLS or kind in RESULTS


def _remembering(message: Message, theirs: Sequence[Any]) -> Message:
    ours = _written(message)
    if _is_plain(ours) and ours == theirs:
        return message
    steps = changes(ours, list(theirs))
    if not steps:
        return message
    return replace(message, metadata={**message.metadata, KEY: kept_as(ours, steps)})


def _is_plain(items: list[Item]) -> bool:
    """Tell whether it is one item of nothing but texts, where equal is the same (1 == True)."""
    return len(items) == 1 and all(type(value) is str for value in items[0].values())


def items_of(message: Message) -> list[Item]:
    """The items of a message: as the SDK wrote them, or what an edited one says now.

    >>> from palaver.messages import user
    >>> items_of(user("Tea?"))
    [{'role': 'user', 'content': 'Tea?'}]
    """
    ours = _written(message)
    kept = message.metadata.get(KEY) if message.metadata else None
    if isinstance(kept, str):
        then, _, steps = kept.partition(" ")
        if then == fingerprint(ours):
            return _changed(ours, steps)
    return ours


def _changed(ours: list[Item], steps: str) -> list[Item]:
    """Our writing with what was kept; metadata may come from anywhere, and then it is not used."""
    try:
        theirs = changed(ours, msgspec.json.decode(steps))
    except msgspec.DecodeError:
        return ours
    return [*theirs] if is_list(theirs) and all(map(is_object, theirs)) else ours


def _written(message: Message) -> list[Item]:
    """The items of a message in palaver's own writing."""
    content, role = message.content, message.role
    if isinstance(content, str):
        silent = role == "tool" or ERASED in message.metadata
        return [] if silent else [{"role": role, "content": content}]
    if len(content) == 1 and type(content[0]) is UnknownPart:
        return [block_of(content[0])] if content[0].type == RESPONSES.name else []
    given, calls = [message], 0
    if role == "tool" and len(content) == 1 and (output := _plain_output(content[0])):
        return [output]
    if role == "tool":  # a result is written with its call, and the call left out
        parts = [part for part in content if type(part) is ToolPart]
        calls = len(parts)
        given.insert(0, Message("assistant", tuple(map(_call_of, parts))))
    mender = Mender()
    mender.extend(given)
    turn = mender.turns[0]
    elements = [element for element, _ in RESPONSES.write(turn, Pen(RESPONSES, ANYONE, (), mender))]
    if role == "tool":
        return elements[calls:]
    return elements[: len(elements) - len(turn.calls)]  # the words for missing results


def _plain_output(part: Part) -> Item | None:
    """The common case without detours: a call gave a text."""
    if type(part) is not ToolPart or not RESPONSES.call_ids.fits(part.call_id):
        return None
    state = part.state
    if type(state) is not ToolCompleted or state.attachments or state.time.compacted is not None:
        return None
    return {"type": "function_call_output", "call_id": part.call_id, "output": state.output}


def _call_of(part: ToolPart) -> Any:  # noqa: ANN401 - a part
    return tool_call_part(part.session_id, part.message_id, part.tool, {}, call_id=part.call_id)
