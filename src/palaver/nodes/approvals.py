"""Decisions of people about tool calls, kept beside the log until the calls have run.

A decision is on disk before anything is run by it, by the id of its call, so that a crash in
between neither loses it nor lets a call run that nobody allowed. What was decided then stands in
the result: the model is told of a refusal and of other arguments, and the metadata say who.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import StoreDamaged, ToolFailed, ValidationError
from palaver.messages.decoding import convert, decode
from palaver.messages.gate import path_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.conversation import Conversation, ToolContext, ToolOutput
    from palaver.conversation.tools.base import Around
    from palaver.messages import ToolCallPart

__all__ = ["Decision", "decided", "decisions", "keep_decisions", "read_answer"]

APPROVAL: Final = "approval"
ASKED: Final = "asked"
_WORDS: Final = {"approve": True, "yes": True, "deny": False, "no": False}


class Decision(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """What somebody decided about a call: it runs, it does not, or it runs with other arguments."""

    verdict: Literal["approve", "deny", "edit"]
    reason: str = ""
    arguments: dict[str, Any] | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        """Check that arguments are there when they are changed, and only then."""
        if (self.verdict == "edit") != (self.arguments is not None):
            detail = 'is needed with "edit"' if self.verdict == "edit" else 'goes with "edit" only'
            raise ValidationError(detail, path="$.arguments", rule="ND-01")


def decisions(conversation: Conversation) -> dict[str, Decision]:
    """What was decided, by the ids of the calls."""
    kept = conversation.store.keeper.records(conversation.id, APPROVAL)
    try:
        return {name: decode(value, Decision) for name, value in kept.items()}
    except msgspec.DecodeError as error:
        msg = f"what was decided about tool calls can't be read: {error}"
        raise StoreDamaged(msg) from None


def keep_decisions(
    conversation: Conversation, made: Mapping[str, Decision], *, key: str | None = None
) -> None:
    """Keep decisions; the question that they answer is settled."""
    records = [(APPROVAL, name, msgspec.json.encode(one)) for name, one in made.items()]
    settled = [] if key is None else [(ASKED, key, None)]
    conversation.store.keeper.keep(conversation.id, [*records, *settled])


def forget_decisions(conversation: Conversation, names: Iterable[str]) -> None:
    """Take decisions away whose calls have run."""
    records = [(APPROVAL, name, None) for name in names]
    if records:
        conversation.store.keeper.keep(conversation.id, records)


def shown_before(
    conversation: Conversation, calls: Sequence[ToolCallPart], key: str | None
) -> list[ToolCallPart]:
    """The calls that the question of a key is about: those it showed when it was first asked.

    Nobody approves what came to wait after the question was put.
    """
    if key is None:
        return list(calls)
    keeper = conversation.store.keeper
    kept = keeper.records(conversation.id, ASKED).get(key)
    if kept is None:
        names = [call.id for call in calls]
        keeper.keep(conversation.id, [(ASKED, key, msgspec.json.encode(names))])
        return list(calls)
    shown = msgspec.json.decode(kept, type=list[str])
    return [call for call in calls if call.id in shown]


def read_answer(answer: object, calls: Sequence[ToolCallPart]) -> dict[str, Decision]:
    """What an answer decides about calls, by their ids.

    For all of them alike: true, false, "approve", "deny", or a decision. For each by itself: an
    object of any of these, by the calls' ids or callIDs.

    >>> from palaver.messages import new_id, tool_call_part
    >>> call = tool_call_part(new_id(), new_id(), "pay", {}, call_id="c1")
    >>> read_answer({"c1": {"verdict": "deny", "reason": "too dear"}}, [call])[call.id].reason
    'too dear'
    """
    if not isinstance(answer, Mapping) or "verdict" in answer:
        same = _decision(answer, "$")
        return {call.id: same for call in calls}
    names = {name: call.id for call in calls for name in (call.call_id, call.id)}
    made: dict[str, Decision] = {}
    for name, value in answer.items():
        path = f"${path_step(str(name))}"
        if name not in names:
            raise ValidationError("no such call waits", path=path, rule="ND-01")
        made[names[name]] = _decision(value, path)
    for call in calls:
        if call.id not in made:
            path = f"${path_step(call.call_id)}"
            raise ValidationError("is not decided", path=path, rule="ND-01")
    return made


def _decision(value: object, path: str) -> Decision:
    word = _WORDS.get(value.strip().lower()) if isinstance(value, str) else value
    if isinstance(word, bool):
        return Decision("approve" if word else "deny")
    if isinstance(value, Decision):
        return value
    try:
        return convert(value, Decision)
    except msgspec.ValidationError as error:
        inner = error.__cause__
        if isinstance(inner, ValidationError):
            raise inner.under(path) from None
        detail = f"must be true, false, approve, deny or a decision: {error}"
        raise ValidationError(detail, path=path, rule="ND-01") from None


def decided(made: Mapping[str, Decision]) -> Around:
    """What stands around every call: what was refused never reaches its tool."""

    async def around(
        call: ToolCallPart,
        context: ToolContext,
        run: Callable[[ToolCallPart], Awaitable[ToolOutput]],
    ) -> ToolOutput:
        del context
        decision = made.get(call.id)
        if decision is None:
            return await run(call)
        if decision.verdict == "deny":
            by = f" by {decision.by}" if decision.by else ""
            why = f": {decision.reason}" if decision.reason else ""
            raise ToolFailed(f"not run: the call was denied{by}{why}")
        told = ""
        if decision.arguments is not None:
            raw = msgspec.json.encode(decision.arguments).decode()
            call = replace(call, input=decision.arguments, raw=raw)
            told = f"[run with other arguments, as a person decided: {raw}]\n"
        output = await run(call)
        metadata = {**output.metadata, "approval": msgspec.to_builtins(decision)}
        return replace(output, text=told + output.text, metadata=metadata)

    return around
