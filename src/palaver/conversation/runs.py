"""The runs of a conversation: its turns, the requests of each turn, and the calls of each request.

A turn begins with a user's message. Its steps are the requests to models that its answers report,
its calls those of these answers, joined with their results or, where there is none, with the
ledger. All of it is read from what is stored: a time or a figure that was not stored is None, and
nothing is estimated. A page of runs is made from a bounded number of messages, however many the
conversation has.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from palaver.conversation.prompt_cache import PROMPT_CACHE
from palaver.conversation.usage import RequestUsage, requests_of
from palaver.messages import AssistantInfo, Part, Role, TokenCounts, ToolCallPart, ToolPart
from palaver.messages.limits import EMPTY, is_object
from palaver.messages.part_base import json_name
from palaver.messages.parts import RetryPart, StepFinishPart, StepStartPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from palaver.conversation.ledger import LedgerEntry
    from palaver.history import View
    from palaver.messages import Message, ToolState

__all__ = [
    "CallStatus",
    "RunCache",
    "RunCall",
    "RunPage",
    "RunRetry",
    "RunStep",
    "RunTurn",
    "read_runs",
]

CallStatus: TypeAlias = Literal[
    "pending", "running", "completed", "error", "missing", "incomplete", "orphan"
]
"""The state of a call. One without a result that the ledger does not know is `missing`, one whose
arguments had not arrived when its answer broke off `incomplete`, a result without a call `orphan`.
"""
_TEXT_LENGTH: Final = 200
_TURN_START: Final = "user"


class _Run(Struct, frozen=True, kw_only=True, gc=False, rename=json_name):
    """What all values of a run share: names in JSON as messages have them."""


class RunRetry(_Run, frozen=True):
    """A request that failed and was repeated; `attempt` counts from 1, `at` is when it failed."""

    attempt: int
    at: int
    error: str


class RunCall(_Run, frozen=True):
    """A tool call: when it started and ended, and how. `index` is that of its result's message."""

    call_id: str
    tool: str
    status: CallStatus
    start: int | None = None
    end: int | None = None
    index: int | None = None
    error: str | None = None


class RunCache(_Run, frozen=True):
    """How many tokens of a prompt the provider read from its cache, and wrote to it.

    `expected` is how many it was expected to read, None if that was not stored; where it read
    clearly less, `lost` is how many less, and `cause` why.
    """

    read: int
    written: int
    expected: int | None = None
    lost: int = 0
    cause: str | None = None


class RunStep(_Run, frozen=True):
    """One request to a model, and the calls of its answer.

    `index` and `id` are those of the answer's message. `start` is when the model was asked, `end`
    when the answer was complete; an interrupted step has none. Tokens and a cache of None were not
    reported.
    """

    index: int
    id: str
    start: int
    end: int | None
    outcome: Literal["finished", "interrupted", "failed"]
    finish: str | None
    error: str | None
    agent: str | None
    model: str | None
    tokens: TokenCounts | None
    cost: float | None
    cost_computed: bool
    cache: RunCache | None
    retries: tuple[RunRetry, ...]
    calls: tuple[RunCall, ...]


class RunTurn(_Run, frozen=True):
    """A user's message and all that follows up to the next one, from index `start` to `stop`.

    `partial` means that it began before the page. `results` are those whose calls are not in it.
    """

    start: int
    stop: int
    role: Role
    at: int
    text: str
    partial: bool
    steps: tuple[RunStep, ...]
    results: tuple[RunCall, ...]


class RunPage(_Run, frozen=True):
    """The turns of the messages from `start` to before `stop`; `length` is that of the view.

    The page before this one ends where this one starts.
    """

    version: int
    length: int
    start: int
    stop: int
    turns: tuple[RunTurn, ...]


def read_runs(
    view: View,
    ledger: Mapping[str, LedgerEntry] = EMPTY,
    *,
    stop: int | None = None,
    limit: int = 200,
) -> RunPage:
    """Return the turns of a view's last messages before `stop`; at most `limit` are read.

    `ledger` has the calls that have no result yet. A page begins with a turn where it can, and
    with an answer of one where a turn is longer than a page.

    >>> from palaver import History, user
    >>> [turn.text for turn in read_runs(History([user("Tea?")]).view).turns]
    ['Tea?']
    """
    stop = len(view) if stop is None else min(stop, len(view))
    start = max(0, stop - limit)
    messages = view[start:stop]
    if start:
        skipped = _first_of_page([message.role for message in messages])
        start, messages = start + skipped, messages[skipped:]
    turns = tuple(_turns(messages, start, ledger))
    return RunPage(version=view.version, length=len(view), start=start, stop=stop, turns=turns)


def _first_of_page(roles: Sequence[Role]) -> int:
    """Return where a page shall begin, so that no answer is apart from its results."""
    early = roles[: len(roles) // 2]
    wanted = (_TURN_START, "assistant")
    return next((early.index(role) for role in wanted if role in early), 0)


def _turns(
    messages: Sequence[Message], first: int, ledger: Mapping[str, LedgerEntry]
) -> Iterator[RunTurn]:
    starts = [at for at, message in enumerate(messages) if message.role == _TURN_START]
    if messages and starts[:1] != [0]:
        starts.insert(0, 0)
    for start, stop in pairwise([*starts, len(messages)]):
        own = list(enumerate(messages[start:stop], first + start))
        head = messages[start]
        begun = head.role == _TURN_START
        results = _Results(own, ledger)
        steps = tuple(
            step for index, message in own if message.role == "assistant"
            for step in _steps(index, message, results)
        )  # fmt: skip
        if begun or steps or results.left:
            yield RunTurn(
                start=first + start,
                stop=first + stop,
                role=head.role,
                at=head.timestamp,
                text=" ".join(head.text[: 2 * _TEXT_LENGTH].split())[:_TEXT_LENGTH],
                partial=not begun and first + start > 0,
                steps=steps,
                results=tuple(results.left),
            )


# ── calls ───────────────────────────────────────────────────────────────────────────────────────


class _Results:
    """The results of a turn's calls: those of its messages, and the states of the ledger."""

    def __init__(
        self, messages: Iterable[tuple[int, Message]], ledger: Mapping[str, LedgerEntry]
    ) -> None:
        self._ledger = ledger
        self._found: dict[str, list[RunCall]] = {}
        for index, message in messages:
            for part in message.parts:
                if isinstance(part, ToolPart):
                    call = _call(part.call_id, part.tool, part.state, index)
                    self._found.setdefault(part.call_id, []).append(call)

    def take(self, part: ToolCallPart) -> RunCall:
        """Return a call with its result, or with what the ledger says of it."""
        found = self._found.get(part.call_id)
        if found:
            return found.pop(0)
        entry = self._ledger.get(part.id)
        if entry is None:
            return RunCall(call_id=part.call_id, tool=part.tool, status="missing")
        return _call(part.call_id, part.tool, entry.state, None)

    @property
    def left(self) -> list[RunCall]:
        """The results that no call has taken."""
        left = [call for calls in self._found.values() for call in calls]
        return [replace(call, status="orphan") for call in left]


def _call(call_id: str, tool: str, state: ToolState, index: int | None) -> RunCall:
    time: Any = getattr(state, "time", None)
    return RunCall(
        call_id=call_id,
        tool=tool,
        status=state.status,
        start=getattr(time, "start", None),
        end=getattr(time, "end", None),
        index=index,
        error=_short(getattr(state, "error", None)),
    )


def _incomplete_calls(message: Message) -> Iterator[RunCall]:
    """Yield the calls that were being written when an answer broke off."""
    broken = message.metadata.get("incompleteCalls") or ()
    for call in filter(is_object, broken):
        yield RunCall(
            call_id=str(call.get("callID", "")), tool=str(call.get("tool", "")), status="incomplete"
        )


# ── steps ───────────────────────────────────────────────────────────────────────────────────────


def _steps(index: int, message: Message, results: _Results) -> Iterator[RunStep]:
    """Yield the steps of an answer; one that was imported may have several."""
    info = message.info if isinstance(message.info, AssistantInfo) else AssistantInfo()
    used = {request.id: request for request in requests_of(message)}
    split = list(_split(message.parts))
    start = message.timestamp
    for number, parts in enumerate(split, 1):
        last = number == len(split)
        calls = [results.take(part) for part in parts if isinstance(part, ToolCallPart)]
        if last:
            calls += _incomplete_calls(message)
        known = last and info.completed is not None and info.completed >= start
        finish = _finish_part(parts)
        yield RunStep(
            index=index,
            id=message.id,
            start=start,
            end=info.completed if known else None,
            outcome=_outcome(info) if last else "finished",
            finish=info.finish if finish is None else finish.reason,
            error=_error(info.error) if last else None,
            agent=info.agent if message.speaker is None else message.speaker.role_name,
            model=None if info.model is None else f"{info.model.provider_id}:{info.model.model_id}",
            retries=tuple(_retry(part) for part in parts if isinstance(part, RetryPart)),
            calls=tuple(calls),
            **_figures(used.get(message.id if finish is None else finish.id), message.metadata),
        )
        start = max([start, *(call.end or 0 for call in calls)])


def _split(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield the parts of each step, with the `step-finish` at its end."""
    own = list[Part]()
    none = True
    for part in parts:
        own.append(part)
        if isinstance(part, StepFinishPart):
            yield own
            own, none = [], False
    if none or any(not isinstance(part, StepStartPart) for part in own):
        yield own


def _finish_part(parts: Sequence[Part]) -> StepFinishPart | None:
    last = parts[-1] if parts else None
    return last if isinstance(last, StepFinishPart) else None


def _figures(used: RequestUsage | None, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of what was used; tokens of which there are none were not reported."""
    if used is None:
        return {"tokens": None, "cost": None, "cost_computed": False, "cache": None}
    reported = used.tokens.prompt or used.tokens.completion
    tokens = used.tokens if reported else None
    cache = None if tokens is None else _cache(tokens, metadata.get(PROMPT_CACHE))
    return {
        "tokens": tokens, "cost": used.cost, "cost_computed": used.computed, "cache": cache,
    }  # fmt: skip


def _cache(tokens: TokenCounts, noted: object) -> RunCache:
    """Return what was read from the cache and written to it, with what was noted about it."""
    cache, about = tokens.cache, noted if is_object(noted) else EMPTY
    expected, lost, cause = about.get("expected"), about.get("lost"), about.get("cause")
    return RunCache(
        read=cache.read,
        written=cache.write,
        expected=expected if isinstance(expected, int) else None,
        lost=lost if isinstance(lost, int) else 0,
        cause=cause[:_TEXT_LENGTH] if isinstance(cause, str) else None,
    )


def _outcome(info: AssistantInfo) -> Literal["finished", "interrupted", "failed"]:
    if info.finish == "interrupted":
        return "interrupted"
    return "failed" if info.error is not None or info.finish == "error" else "finished"


def _retry(part: RetryPart) -> RunRetry:
    error = _error(part.error) or "unknown"
    return RunRetry(attempt=part.attempt, at=part.time.created, error=error)


def _error(error: Mapping[str, Any] | None) -> str | None:
    """Return the text of an error, or else its name."""
    if error is None:
        return None
    data = error.get("data")
    inner = data.get("message") if is_object(data) else None
    return _short(error.get("message") or inner or error.get("name") or "unknown")


def _short(text: object) -> str | None:
    return None if text is None else str(text)[:_TEXT_LENGTH]
