"""Approval of tool calls by people: which tools need it, what was decided, and what follows.

A decision is stored beside the log, by the id of its call, before the call runs, so that a crash
neither loses it nor lets a call run that nobody allowed. It names the digest of the call that was
shown: if the call has changed since, the decision is void and a person is asked again.
`Conversation.run_tools` follows decisions, and stores each with the call before its tool is called:
whatever becomes of the call, the metadata of its result say what was decided, by whom and when. The
model is told of a refusal and of other arguments.

The verdict "always" approves a call and every further call of its tool in the conversation. It is
stored by the name of the tool when the call is started, and holds until it is withdrawn; each call
that runs because of it says in its result who approved the tool, and when.
"""

from __future__ import annotations

import getpass
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import StoreDamaged, ToolFailed, ValidationError
from palaver.messages.decode import convert, decode
from palaver.messages.ids import now_ms
from palaver.messages.limits import (
    EMPTY,
    NamedFields,
    check_text,
    freeze_mapping,
    path_step,
    quote_value,
)
from palaver.stores.records import ALLOWED, APPROVAL
from palaver.tools.runner import to_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.messages import ToolCallPart
    from palaver.stores.records import Record
    from palaver.stores.store import Store
    from palaver.tools.runner import Tool, ToolContext, ToolMiddleware, ToolOutput
    from palaver.wire import ToolSpec

__all__ = [
    "ApprovalRequired",
    "Decision",
    "account_name",
    "allowances",
    "apply_decisions",
    "calls_to_ask",
    "check_decision",
    "find_decisions",
    "forget_decisions",
    "gate_calls",
    "load_allowed",
    "load_decisions",
    "needs_approval",
    "parse_answer",
    "save_decisions",
    "valid_decisions",
    "withdraw_allowed",
]

ASKED: Final = "asked"
"""The kind of record that holds the digests of the calls that a question showed."""
ANSWERED: Final = "answered"
"""The kind of record that holds when a question was answered."""
GATED: Final = "gated"
"""The kind of record that holds which calls a tool node did not run without an approval."""
_NO_KEY: Final = ""
"""The record's name of a question without a key."""
_MAX_ANSWERED: Final = 64
"""How many keys of answered questions are remembered; an engine that replays one does so soon."""
_log: Final = logging.getLogger("palaver.tools")
VERDICTS: Final[Mapping[str, Literal["approve", "deny", "always"]]] = {
    "approve": "approve", "yes": "approve", "always": "always", "deny": "deny", "no": "deny",
}  # fmt: skip
_BY_TOOL: Final = "its tool was approved for the whole conversation"


class Decision(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel",
               metaclass=NamedFields):  # fmt: skip
    """What a person decided about a call: approve it, deny it, or run it with other arguments.

    "always" approves the call and all further calls of its tool in this conversation. `by` is who
    decided, `at` when, in milliseconds. `digest` is that of the call which was shown.
    An answer may leave out the last two; a stored decision has them.
    """

    verdict: Literal["approve", "deny", "edit", "always"]
    reason: str = ""
    arguments: dict[str, Any] | None = None
    by: str | None = None
    digest: str | None = None
    at: int | None = None

    def __post_init__(self) -> None:
        """Check the verdict, that there are arguments with "edit" only, and that stores take it."""
        if self.verdict not in ("approve", "deny", "edit", "always"):
            detail = f"must be approve, deny, edit or always, not {quote_value(self.verdict)}"
            raise ValidationError(detail, path="$.verdict", rule="node-answer")
        if (self.verdict == "edit") != (self.arguments is not None):
            detail = 'is needed with "edit"' if self.verdict == "edit" else 'goes with "edit" only'
            raise ValidationError(detail, path="$.arguments", rule="node-answer")
        if self.arguments is not None:
            freeze_mapping(self.arguments, "$.arguments")
        check_text(self.reason, "$.reason")
        for name, value in (("by", self.by), ("digest", self.digest)):
            if value is not None:
                check_text(value, f"$.{name}")

    def record(self) -> dict[str, Any]:
        """Return the decision as the metadata of a result hold it."""
        decided: dict[str, Any] = msgspec.to_builtins(replace(self, at=self.at or now_ms()))
        return decided


class ApprovalRequired:
    """A tool whose calls wait until a person has approved them.

    >>> from palaver.tools import tool
    >>> def send(text: str) -> str:
    ...     "Send a message."
    ...     return "sent"
    >>> ApprovalRequired(tool(send)).spec.name
    'send'
    """

    needs_approval: bool = True

    def __init__(self, inner: Tool) -> None:
        """Wrap a tool."""
        self.spec: ToolSpec = inner.spec
        self.idempotent: bool = inner.idempotent
        self.timeout: float | None = inner.timeout
        self._inner = inner

    def check(self, arguments: Mapping[str, Any]) -> object:
        """Check arguments as the tool does."""
        return _check_arguments(self._inner, arguments)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run the tool: whoever calls this has the approval."""
        return await self._inner.call(arguments, context)


def needs_approval(tools: Mapping[str, Tool], call: ToolCallPart) -> bool:
    """Tell whether a call has to be approved: its tool says so, for all arguments or for these.

    A tool's `needs_approval` is a bool, or a function of the arguments. If that raises, the call
    needs an approval.
    """
    wanted: object = getattr(tools.get(call.tool), "needs_approval", False)
    if not callable(wanted):
        return bool(wanted)
    try:
        return bool(wanted(call.input))
    except Exception:  # noqa: BLE001 - then a person decides
        _log.exception("whether a call of %s needs an approval can't be told", call.tool)
        return True


def check_decision(tools: Mapping[str, Tool], call: ToolCallPart, decision: Decision) -> None:
    """Raise `ValidationError` if a decision has arguments that the call's tool would refuse."""
    if decision.arguments is not None:
        _check_arguments(tools.get(call.tool), decision.arguments)


def _check_arguments(tool: Tool | None, arguments: Mapping[str, Any]) -> object:
    check: Callable[[Mapping[str, Any]], object] | None = getattr(tool, "check", None)
    return None if check is None else check(arguments)


def account_name() -> str:
    """Return the name of the account that this program runs under: who decides, if nobody says."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # an account without a name, as in some containers
        return "unknown"


def apply_decisions(
    decisions: Mapping[str, Decision], inner: ToolMiddleware | None = None
) -> ToolMiddleware:
    """Return a middleware that follows decisions: a denied call never reaches its tool.

    `inner` wraps the calls that run, with the arguments that were chosen.
    """

    async def middleware(
        call: ToolCallPart,
        context: ToolContext,
        run: Callable[[ToolCallPart], Awaitable[ToolOutput]],
    ) -> ToolOutput:
        decision = decisions.get(call.id)
        note = ""
        if decision is not None and decision.verdict == "deny":
            reason = f": {decision.reason}" if decision.reason else ""
            raise ToolFailed(f"not run: the call was denied{reason}")
        if decision is not None and decision.arguments is not None:
            raw = msgspec.json.encode(decision.arguments).decode()
            call = replace(call, input=decision.arguments, raw=raw)
            note = f"[run with other arguments, as a person decided: {raw}]\n"
        output = await (run(call) if inner is None else inner(call, context, run))
        if not note:
            return output
        output = to_output(output, context)
        return replace(output, text=note + output.text)

    return middleware


# ── stored decisions ────────────────────────────────────────────────────────────────────────────


class _Conversation(Protocol):
    """The part of a `Conversation` that is needed here."""

    store: Store

    @property
    def id(self) -> str: ...

    def digests(self, calls: Iterable[ToolCallPart], /) -> dict[str, str]: ...


def load_decisions(conversation: _Conversation) -> dict[str, Decision]:
    """Return the stored decisions, by the ids of the calls."""
    return _read_decisions(conversation, APPROVAL)


def _read_decisions(conversation: _Conversation, kind: str) -> dict[str, Decision]:
    stored = conversation.store.records(conversation.id, kind)
    try:
        return {name: decode(value, Decision) for name, value in stored.items()}
    except msgspec.DecodeError as error:
        msg = f"what was decided about tool calls can't be read: {error}"
        raise StoreDamaged(msg) from None


def valid_decisions(
    decisions: Mapping[str, Decision], digests: Mapping[str, str]
) -> dict[str, Decision]:
    """Return the decisions about calls that still have the digest which was shown."""
    return {
        name: decision
        for name, decision in decisions.items()
        if decision.digest == digests.get(name, "")
    }


def find_decisions(
    conversation: _Conversation, calls: Sequence[ToolCallPart], asking: Sequence[ToolCallPart]
) -> dict[str, Decision]:
    """Return what was decided about calls, by their ids.

    A decision about a call that has changed since is left out. Of the calls that are `asking`,
    those are decided whose tool was approved for the whole conversation.
    """
    stored = load_decisions(conversation) if calls else {}
    allowed = load_allowed(conversation) if asking else {}
    granted = [call for call in asking if call.tool in allowed]
    known = [call for call in calls if call.id in stored]
    if not known and not granted:
        return {}
    digests = conversation.digests([*known, *granted])
    by_tool = {
        call.id: replace(
            allowed[call.tool], verdict="approve", reason=_BY_TOOL, digest=digests[call.id]
        )
        for call in granted
        if call.id in digests
    }
    return {**by_tool, **valid_decisions({call.id: stored[call.id] for call in known}, digests)}


def save_decisions(
    conversation: _Conversation, decisions: Mapping[str, Decision], *, key: str | None = None
) -> None:
    """Store decisions, and settle the question that they answer. Each has to name its digest."""
    for name, decision in decisions.items():
        if not decision.digest:
            detail = "must be the digest of the call that was shown"
            raise ValidationError(detail, path=f"${path_step(name)}.digest", rule="node-answer")
    records: list[Record] = [
        (APPROVAL, name, msgspec.json.encode(decision)) for name, decision in decisions.items()
    ]
    settled = _settle_question(conversation, key)
    conversation.store.put_records(conversation.id, [*records, *settled])


def forget_decisions(conversation: _Conversation, names: Iterable[str]) -> None:
    """Remove the decisions about calls that have run."""
    records = [(kind, name, None) for name in names for kind in (APPROVAL, GATED)]
    if records:
        conversation.store.put_records(conversation.id, records)


def allowances(calls: Iterable[ToolCallPart], decisions: Mapping[str, Decision]) -> list[Record]:
    """Return the records that approve the tools of calls for good, where that was decided."""
    return [
        (ALLOWED, call.tool, msgspec.json.encode(decisions[call.id]))
        for call in calls
        if call.id in decisions and decisions[call.id].verdict == "always"
    ]


def load_allowed(conversation: _Conversation) -> dict[str, Decision]:
    """Return what approved tools for the whole conversation, by the names of the tools."""
    return _read_decisions(conversation, ALLOWED)


def withdraw_allowed(conversation: _Conversation, tool: str) -> bool:
    """Have the calls of a tool wait for an approval again; tell whether it had one."""
    known = tool in conversation.store.records(conversation.id, ALLOWED)
    if known:
        conversation.store.put_record(conversation.id, ALLOWED, tool, None)
    return known


def gate_calls(conversation: _Conversation, names: Iterable[str]) -> None:
    """Store which calls wait for an approval, so that a question is about these alone."""
    known = conversation.store.records(conversation.id, GATED)
    records: list[Record] = [(GATED, name, b"true") for name in names if name not in known]
    if records:
        conversation.store.put_records(conversation.id, records)


def calls_to_ask(
    conversation: _Conversation,
    calls: Sequence[ToolCallPart],
    digests: Mapping[str, str],
    key: str | None,
    *,
    anew: bool,
) -> list[ToolCallPart]:
    """Return the calls that a question is about: those that it showed at first, if unchanged.

    So nobody approves a call that came after the question, or that was changed since. With `anew`
    the question is asked again, and shows the calls as they are now. If a tool node has said which
    of the calls need an approval, the others are left out.
    """
    store, name = conversation.store, _NO_KEY if key is None else key
    gated = store.records(conversation.id, GATED)
    calls = [call for call in calls if call.id in gated] or calls
    if key is not None and key in store.records(conversation.id, ANSWERED):
        return []
    stored = store.records(conversation.id, ASKED).get(name)
    if key is None and stored is None and not anew:
        return list(calls)  # whoever answers is shown the question now
    if stored is None or (key is None and anew):
        found = list(calls)
    else:
        before = _shown_digests(stored)
        found = [
            call
            for call in calls
            if call.id in before and (anew or before[call.id] == digests[call.id])
        ]
    shown = {call.id: digests[call.id] for call in found}
    if not found:
        store.put_records(conversation.id, _settle_question(conversation, key))
    elif anew or stored is None:
        store.put_records(conversation.id, [(ASKED, name, msgspec.json.encode(shown))])
    return found


def _settle_question(conversation: _Conversation, key: str | None) -> list[Record]:
    """Return the records that settle a question: its key can't be asked again."""
    if key is None:
        return [(ASKED, _NO_KEY, None)]
    known = conversation.store.records(conversation.id, ANSWERED)
    by_age = sorted(known, key=lambda name: msgspec.json.decode(known[name], type=int))
    old = by_age[: max(0, len(by_age) - _MAX_ANSWERED + 1)]
    answered = (ANSWERED, key, msgspec.json.encode(now_ms()))
    return [(ASKED, key, None), *((ANSWERED, name, None) for name in old), answered]


def _shown_digests(stored: bytes) -> dict[str, str]:
    """Return the digests of the calls that a question showed; older records have only ids."""
    shown = msgspec.json.decode(stored, type=dict[str, str] | list[str])
    return shown if isinstance(shown, dict) else dict.fromkeys(shown, "")


# ── answers ─────────────────────────────────────────────────────────────────────────────────────


def parse_answer(
    answer: object,
    calls: Sequence[ToolCallPart],
    digests: Mapping[str, str] = EMPTY,
    tools: Mapping[str, Tool] = EMPTY,
) -> dict[str, Decision]:
    """Return what an answer decides about calls, by their ids.

    For all calls alike, the answer is true, false, "approve", "always", "deny", or a decision. For
    each call by itself it is an object of any of these, by the calls' ids or callIDs. With
    `digests`, those of the calls that were shown, each decision gets its own; one that names
    another is refused with `ValidationError`, and so are arguments that the call's tool in `tools`
    would refuse. A decision that says nothing else was made now.

    >>> from palaver.messages import new_id, tool_call_part
    >>> call = tool_call_part(new_id(), new_id(), "pay", {}, call_id="c1")
    >>> parse_answer({"c1": {"verdict": "deny", "reason": "too dear"}}, [call])[call.id].reason
    'too dear'
    """
    if not isinstance(answer, Mapping) or "verdict" in answer:
        same = _parse_decision(answer, "$")
        for call in calls:
            _check_under("$", tools, call, same)
        return {call.id: _with_digest(same, digests.get(call.id), "$") for call in calls}
    names = {name: call for call in calls for name in (call.call_id, call.id)}
    decisions: dict[str, Decision] = {}
    for name, value in answer.items():
        path = f"${path_step(str(name))}"
        if name not in names:
            raise ValidationError("no such call waits", path=path, rule="node-answer")
        call, decision = names[name], _parse_decision(value, path)
        _check_under(path, tools, call, decision)
        decisions[call.id] = _with_digest(decision, digests.get(call.id), path)
    for call in calls:
        if call.id not in decisions:
            path = f"${path_step(call.call_id)}"
            raise ValidationError("is not decided", path=path, rule="node-answer")
    return decisions


def _check_under(
    path: str, tools: Mapping[str, Tool], call: ToolCallPart, decision: Decision
) -> None:
    try:
        check_decision(tools, call, decision)
    except ValidationError as error:
        raise error.under(path) from None


def _with_digest(decision: Decision, digest: str | None, path: str) -> Decision:
    if digest is None or decision.digest == digest:
        return decision
    if decision.digest is not None:
        detail = f"is that of another call than the one that waits, which has {digest}"
        raise ValidationError(detail, path=f"{path}.digest", rule="node-answer")
    return replace(decision, digest=digest)


def _parse_decision(value: object, path: str) -> Decision:
    verdict = VERDICTS.get(value.strip().lower()) if isinstance(value, str) else value
    if isinstance(verdict, bool):
        verdict = "approve" if verdict else "deny"
    if verdict in ("approve", "always", "deny"):
        return Decision(verdict, at=now_ms())
    try:
        made = value if isinstance(value, Decision) else convert(value, Decision)
        return made if made.at is not None else replace(made, at=now_ms())
    except msgspec.ValidationError as error:
        inner = error.__cause__
        if isinstance(inner, ValidationError):
            raise inner.under(path) from None
        detail = f"must be true, false, approve, always, deny or a decision: {error}"
        raise ValidationError(detail, path=path, rule="node-answer") from None
