"""Decisions of people about tool calls, kept beside the log until the calls have run.

A decision is on disk before anything is run by it, by the id of its call, so that a crash in
between neither loses it nor lets a call run that nobody allowed. It names the digest of the call
that was shown: where the call is another one by then, the decision is void and a person is asked
again. What was decided then stands in the result: the model is told of a refusal and of other
arguments, and the metadata say who.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import StoreDamaged, ToolFailed, ValidationError
from palaver.messages.decoding import convert, decode
from palaver.messages.gate import EMPTY, path_step
from palaver.messages.ids import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.conversation import Conversation, ToolContext, ToolOutput
    from palaver.conversation.tools.base import Around
    from palaver.messages import ToolCallPart
    from palaver.stores.records import Record

__all__ = ["Decision", "decided", "decisions", "keep_decisions", "read_answer", "valid"]

APPROVAL: Final = "approval"
ASKED: Final = "asked"
ANSWERED: Final = "answered"
_HANDED_BACK: Final = ""
"""The name of a question without a key that was handed back to the engine."""
_ANSWERS: Final = 64
"""How many keys of answered questions are remembered; an engine that replays one does so soon."""
_WORDS: Final = {"approve": True, "yes": True, "deny": False, "no": False}


class Decision(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """What somebody decided about a call: it runs, it does not, or it runs with other arguments.

    `digest` is that of the call which was shown. An answer may leave it out; what is kept has it.
    """

    verdict: Literal["approve", "deny", "edit"]
    reason: str = ""
    arguments: dict[str, Any] | None = None
    by: str | None = None
    digest: str | None = None

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


def valid(made: Mapping[str, Decision], digests: Mapping[str, str]) -> dict[str, Decision]:
    """The decisions that hold: those about calls which still have the digest that was shown."""
    return {name: one for name, one in made.items() if one.digest == digests.get(name, "")}


def keep_decisions(
    conversation: Conversation, made: Mapping[str, Decision], *, key: str | None = None
) -> None:
    """Keep decisions; the question that they answer is settled. Each has to name its digest."""
    for name, one in made.items():
        if not one.digest:
            detail = "must be the digest of the call that was shown"
            raise ValidationError(detail, path=f"${path_step(name)}.digest", rule="ND-01")
    records: list[Record] = [
        (APPROVAL, name, msgspec.json.encode(one)) for name, one in made.items()
    ]
    conversation.store.keeper.keep(conversation.id, [*records, *_settled(conversation, key)])


def _settled(conversation: Conversation, key: str | None) -> list[Record]:
    """The records of a question that is answered: under its key no other is."""
    if key is None:
        return [(ASKED, _HANDED_BACK, None)]
    known = conversation.store.keeper.records(conversation.id, ANSWERED)
    by_age = sorted(known, key=lambda name: msgspec.json.decode(known[name], type=int))
    old = by_age[: max(0, len(by_age) - _ANSWERS + 1)]
    answered = (ANSWERED, key, msgspec.json.encode(now_ms()))
    return [(ASKED, key, None), *((ANSWERED, name, None) for name in old), answered]


def forget_decisions(conversation: Conversation, names: Iterable[str]) -> None:
    """Take decisions away whose calls have run."""
    records = [(APPROVAL, name, None) for name in names]
    if records:
        conversation.store.keeper.keep(conversation.id, records)


def shown_before(
    conversation: Conversation,
    calls: Sequence[ToolCallPart],
    digests: Mapping[str, str],
    key: str | None,
    *,
    anew: bool,
) -> list[ToolCallPart]:
    """The calls that a question is about: those it showed when it was first asked, as they were.

    Nobody approves what came to wait after the question was put, nor what was changed since. With
    `anew` the question is handed back to be put again, and shows what the calls are now.
    """
    keeper, name = conversation.store.keeper, _HANDED_BACK if key is None else key
    if key is not None and key in keeper.records(conversation.id, ANSWERED):
        return []
    kept = keeper.records(conversation.id, ASKED).get(name)
    if key is None and kept is None and not anew:
        return list(calls)  # whoever answers is shown the question now
    if kept is None or (key is None and anew):
        before, found = dict[str, str](), list(calls)
    else:
        before = _shown(kept)
        found = [call for call in calls if anew or before.get(call.id) == digests[call.id]]
        found = [call for call in found if call.id in before]
    shown = {call.id: digests[call.id] for call in found}
    if not found:
        keeper.keep(conversation.id, _settled(conversation, key))
    elif anew or kept is None:
        keeper.keep(conversation.id, [(ASKED, name, msgspec.json.encode(shown))])
    return found


def _shown(kept: bytes) -> dict[str, str]:
    """The digests of the calls that a question showed; older records have their names only."""
    shown = msgspec.json.decode(kept, type=dict[str, str] | list[str])
    return shown if isinstance(shown, dict) else dict.fromkeys(shown, "")


def read_answer(
    answer: object, calls: Sequence[ToolCallPart], digests: Mapping[str, str] = EMPTY
) -> dict[str, Decision]:
    """What an answer decides about calls, by their ids.

    For all of them alike: true, false, "approve", "deny", or a decision. For each by itself: an
    object of any of these, by the calls' ids or callIDs. With `digests`, the digests of the calls
    that were shown, each decision names its own; one that names another is refused.

    >>> from palaver.messages import new_id, tool_call_part
    >>> call = tool_call_part(new_id(), new_id(), "pay", {}, call_id="c1")
    >>> read_answer({"c1": {"verdict": "deny", "reason": "too dear"}}, [call])[call.id].reason
    'too dear'
    """
    if not isinstance(answer, Mapping) or "verdict" in answer:
        same = _decision(answer, "$")
        return {call.id: _named(same, digests.get(call.id), "$") for call in calls}
    names = {name: call.id for call in calls for name in (call.call_id, call.id)}
    made: dict[str, Decision] = {}
    for name, value in answer.items():
        path = f"${path_step(str(name))}"
        if name not in names:
            raise ValidationError("no such call waits", path=path, rule="ND-01")
        made[names[name]] = _named(_decision(value, path), digests.get(names[name]), path)
    for call in calls:
        if call.id not in made:
            path = f"${path_step(call.call_id)}"
            raise ValidationError("is not decided", path=path, rule="ND-01")
    return made


def _named(decision: Decision, digest: str | None, path: str) -> Decision:
    """The decision with the digest of the call that it is about."""
    if digest is None or decision.digest == digest:
        return decision
    if decision.digest is not None:
        detail = f"is that of another call than the one that waits, which has {digest}"
        raise ValidationError(detail, path=f"{path}.digest", rule="ND-01")
    return replace(decision, digest=digest)


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
