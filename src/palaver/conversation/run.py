"""The agent loop: ask the model, run its tools, ask again, until there is an answer.

`Conversation` takes single steps and never decides to take another. `run_until_answer` does, for
everyone without an engine of their own, within `Limits`. `ask` adds a message and runs the loop;
`RunStream` does the same and yields everything that happens meanwhile.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NoReturn,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    cast,
    get_origin,
)

import anyio
import msgspec
from anyio import to_thread
from anyio.lowlevel import current_token
from msgspec import Struct

from palaver.conversation.step import Step
from palaver.conversation.usage import Usage
from palaver.errors import (
    BadAnswer,
    BudgetExceeded,
    ContentFiltered,
    LimitExceeded,
    TooManySteps,
    ValidationError,
)
from palaver.messages import Message, TextPart, ToolCallPart, user
from palaver.messages.decode import convert, explain_mismatch, is_pydantic, refuse_meta
from palaver.messages.limits import (
    EMPTY,
    MAX_NAME,
    NamedFields,
    check_argument,
    check_callable,
    check_name,
    describe_argument,
    is_object,
    not_pickled,
    short_repr,
    unexpected_keyword,
)
from palaver.models.base import LOCAL_PROVIDER, check_options
from palaver.stores.lease import run_shielded
from palaver.tools.approval import (
    VERDICTS,
    Decision,
    find_decisions,
    forget_decisions,
    parse_answer,
    save_decisions,
)
from palaver.tools.approval import needs_approval as tool_needs_approval
from palaver.tools.function import explain_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from anyio.streams.memory import MemoryObjectSendStream

    from palaver.conversation.conversation import Conversation
    from palaver.conversation.step import OnDelta, ToolOutcome
    from palaver.messages import Part
    from palaver.models import AnyModel
    from palaver.models.base import Model
    from palaver.tools import Tool, Toolbox
    from palaver.tools.runner import ToolMiddleware
    from palaver.wire.reply import Delta

__all__ = [
    "Approve",
    "ChooseOptions",
    "Limits",
    "RunEvent",
    "RunResult",
    "RunSettings",
    "RunStream",
    "ask",
    "decide",
    "options_after",
    "run_decided",
    "run_until_answer",
    "sort_calls",
]

_T = TypeVar("_T")
_log: Final = logging.getLogger("palaver.conversation")
_REPAIRS: Final = 2
"""How often a model is asked again for an answer that fits the wanted type."""
_MAX_KEY: Final = MAX_NAME - 24
"""Characters of a key: the keys of a run's steps are made of it."""
_SHOWN: Final = 500
"""Characters of an answer that an error shows."""
_VALUE: Final = "value"
"""The field of an answer that is no object by itself: providers take schemas of objects only."""
_FENCED: Final = re.compile(r"```\w*\s*(.*?)```", re.DOTALL)
"""JSON as some models write it: in a fence of Markdown, with words around it."""
_AGAIN: Final = (
    "That answer does not fit: {error}. Answer again, with nothing but JSON that fits the schema."
)

AROUND: Final = "an async function of a call, its context, and a function that runs the call"
"""What `around` is."""

ChooseOptions: TypeAlias = (
    "Callable[[Sequence[ToolCallPart], Sequence[ToolCallPart]], Mapping[str, Any]]"
)
"""Returns the options of a step, given the calls that were just run and the calls before them."""
Approve: TypeAlias = "Callable[[ToolCallPart], object | Awaitable[object]]"
"""Decides about a call: returns True, False, a reason to deny it, or a `Decision`; may be async."""
RunEvent: TypeAlias = "Delta | Step | ToolOutcome | RunResult"
"""What happens in a run: a piece of an answer, a finished step, the outcome of a call, the end."""


class Limits(Struct, frozen=True, kw_only=True, metaclass=NamedFields):
    """How much one run may use. What is None has no limit.

    >>> Limits(cost=-1)
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.limits.cost: must be a number above 0, not -1 [limits]
    """

    steps: int | None = 20
    tool_calls: int | None = None
    total_tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Check that each limit is a number above 0."""
        for name in self.__struct_fields__:
            value: object = getattr(self, name)
            whole = name in ("steps", "tool_calls", "total_tokens")
            fits = type(value) is int or (type(value) is float and not whole)
            if value is None or (fits and 0 < cast("float", value) < math.inf):
                continue
            detail = f"must be a {'whole ' if whole else ''}number above 0, not {value!r}"
            raise ValidationError(detail, path=f"$.limits.{name}", rule="limits")


SYSTEM_TEXT: Final[Mapping[str, str]] = dict.fromkeys(
    ("system", "system_prompt", "instructions"), "a system text is a message: talk.add(system('…'))"
)
"""What to write in place of these keywords."""


class RunSettings(TypedDict, total=False):
    """What a run takes beside its message."""

    model: AnyModel | None
    tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None
    options: Mapping[str, Any] | ChooseOptions
    limits: Limits
    approve: Approve | None
    around: ToolMiddleware | None
    key: str | None


class RunResult(Struct, frozen=True):
    """The answer of a run, what it took, and the calls that wait for an approval.

    `waiting` has calls where the run stopped before its answer: nobody was there to approve them.
    """

    message: Message
    usage: Usage
    steps: int = 1
    tokens: int = 0
    cost: float | None = None
    waiting: tuple[ToolCallPart, ...] = ()

    __repr__ = short_repr

    @property
    def text(self) -> str:
        """The text of the answer."""
        return self.message.text

    def __str__(self) -> str:
        """Return the text of the answer."""
        return self.message.text

    def _repr_html_(self) -> str:
        """Return the answer as a notebook shows it."""
        return self.message._repr_html_()

    def __rich__(self) -> Any:  # noqa: ANN401 - a table of rich
        """Return the answer as `rich` shows it."""
        return self.message.__rich__()


async def run_until_answer(
    conversation: Conversation,
    model: AnyModel | None = None,
    *,
    tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None = None,
    options: Mapping[str, Any] | ChooseOptions = EMPTY,
    needs_approval: Callable[[ToolCallPart], bool] | None = None,
    approve: Approve | None = None,
    around: ToolMiddleware | None = None,
    limits: Limits = Limits(),  # noqa: B008 - it is frozen
    key: str | None = None,
    on_delta: OnDelta | None = None,
    on_step: Callable[[Step], object] | None = None,
    on_outcome: Callable[[ToolOutcome], object] | None = None,
    on_begin: Callable[[str], object] | None = None,
) -> Step:
    """Run the waiting calls, then take steps until an answer makes no calls; return the last step.

    With `tools`, only the waiting calls of these tools are run. `options` are those of every step,
    or a function that chooses them. A call needs an approval if its tool says so, or if
    `needs_approval` does, which is asked in the tools' place. `approve` decides about such a call;
    without it, the other calls are run and the step is returned with the calls that wait. With a
    `key`, a run that was cut off goes on where it was, and one that is over is not repeated. Raises
    `LimitExceeded` when a limit is reached.
    """
    run = _Run(
        conversation, model, tools=tools, options=options, needs_approval=needs_approval,
        approve=approve, around=around, limits=limits, key=key, on_delta=on_delta, on_step=on_step,
        on_outcome=on_outcome, on_begin=on_begin,
    )  # fmt: skip
    return await conversation.hold(run.until_answer)


class _Run:
    """One run: what it was given, how much it has used, and how its calls are approved and run."""

    def __init__(
        self,
        conversation: Conversation,
        model: AnyModel | None,
        *,
        tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None = None,
        options: Mapping[str, Any] | ChooseOptions = EMPTY,
        needs_approval: Callable[[ToolCallPart], bool] | None = None,
        approve: Approve | None = None,
        around: ToolMiddleware | None = None,
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
        key: str | None = None,
        on_delta: OnDelta | None = None,
        on_step: Callable[[Step], object] | None = None,
        on_outcome: Callable[[ToolOutcome], object] | None = None,
        on_begin: Callable[[str], object] | None = None,
    ) -> None:
        if not hasattr(conversation, "run_tools"):
            detail = f"must be a Conversation, not {describe_argument(conversation)}"
            raise ValidationError(detail, path="$.conversation", rule="argument")
        check_argument(limits, Limits, "$.limits", "Limits(…)")
        check_callable(on_step, "$.on_step", "a function that takes a step", takes=1)
        wanted = "a function that takes a call"
        check_callable(approve, "$.approve", wanted, takes=1)
        check_callable(needs_approval, "$.needs_approval", wanted, takes=1, plain=True)
        check_callable(around, "$.around", AROUND, takes=3)
        if key is not None:
            check_name(key, "$.key")
            if len(key) > _MAX_KEY:
                detail = f"is longer than {_MAX_KEY} characters"
                raise ValidationError(detail, path="$.key", rule="size")
        chosen = conversation.model if model is None else conversation.find_model(model)
        if chosen is None:
            detail = "no model: give one to the run or to the conversation"
            raise ValidationError(detail, path="$.model", rule="no-model")
        self._conversation, self._model = conversation, chosen
        self._box = conversation.toolbox(tools)
        if callable(options):
            wanted = "a function of the last calls and of those before them"
            check_callable(options, "$.options", wanted, takes=2, plain=True)
        else:
            check_argument(options, Mapping, "$.options", "an object, such as {'temperature': 0}")
            check_options(chosen, self._box.specs, options)
        if limits.cost is not None:
            limit = f"a cost of at most {limits.cost}"
            conversation.check_price(chosen.ref, limit, "$.limits.cost")
        self._only_these = tools is not None
        self._options, self._limits, self.key = options, limits, key
        self._needs = needs_approval or partial(tool_needs_approval, self._box)
        self._approve, self._around = approve, around
        self._on_delta, self._on_step, self._on_outcome = on_delta, on_step, on_outcome
        self._on_begin = on_begin
        self._steps = self._calls = 0
        self._counted = 0  # tokens of answers that came without their usage
        self._before: Usage | None = None
        self._deadline: float | None = None

    async def until_answer(self) -> Step:
        """Run until there is an answer, or until the time is over.

        It may be called again, to go on after an answer that did not fit: the limits are those of
        all calls together.
        """
        seconds = self._limits.seconds
        if self._deadline is None:
            self._deadline = math.inf if seconds is None else anyio.current_time() + seconds
            if self._limits.cost is not None or self._limits.total_tokens is not None:
                self._before = await to_thread.run_sync(lambda: self._conversation.usage)
        with anyio.CancelScope(deadline=self._deadline):
            return await self._loop()
        detail = f"no answer after {seconds:g} seconds; what had arrived is stored"
        raise LimitExceeded(detail, limit="seconds")

    async def _loop(self) -> Step:
        conversation = self._conversation
        before: Sequence[ToolCallPart] = ()
        calls: Sequence[ToolCallPart] = await to_thread.run_sync(conversation.waiting)
        if self._only_these:
            calls = [call for call in calls if call.tool in self._box]
        waiting = await self.run_calls(calls)
        if waiting:
            unanswered = await to_thread.run_sync(self._message_of, waiting)
            if unanswered is not None:
                usage = await to_thread.run_sync(lambda: conversation.usage)
                step = Step(unanswered, usage, notes=(), again=True)
                await _report(self._on_step, step)
                return step
        while True:
            number = await self.next_step()
            step = await conversation.step(
                self._model,
                tools=self._box,
                options=self.next_options(calls, before),
                on_delta=self._on_delta,
                key=None if self.key is None else f"{self.key}/{number}",
                on_begin=self._on_begin,
            )
            if self._before is not None and not step.again and not _is_reported(step.message):
                self._counted += await to_thread.run_sync(conversation.count_messages)
            await _report(self._on_step, step)
            before, calls = calls, step.calls
            if not calls:
                return step
            if step.again:  # some of its calls may have run before the run was cut off
                waits = {call.id for call in await to_thread.run_sync(conversation.waiting)}
                calls = [call for call in calls if call.id in waits]
            if await self.run_calls(calls):
                return step

    def _message_of(self, waiting: Sequence[ToolCallPart]) -> Message | None:
        """Return the message that made these calls, if nothing but results came after it.

        A model that is asked then would be told that its calls have no results. Where somebody has
        spoken since, it has to answer that.
        """
        waits = {call.id for call in waiting}
        last = next(
            (one for one in reversed(self._conversation.messages) if one.role != "tool"), None
        )
        made = last is not None and any(part.id in waits for part in last.parts)
        return last if made else None

    async def next_step(self) -> int:
        """Return the number of the next step; raise `LimitExceeded` if there may be none."""
        await self.check_limits()
        self._steps += 1
        return self._steps

    async def check_limits(self) -> None:
        """Raise `LimitExceeded` if no further step may be taken."""
        limits = self._limits
        if self._steps == limits.steps:
            msg = f"{limits.steps} steps and no answer without tool calls"
            raise TooManySteps(msg)
        if self._before is not None and self._steps:
            usage = await to_thread.run_sync(lambda: self._conversation.usage)
            used = _tokens(usage) - _tokens(self._before) + self._counted
            cost = (usage.cost or 0.0) - (self._before.cost or 0.0)
            if limits.total_tokens is not None and used >= limits.total_tokens:
                detail = f"{used:,} of {limits.total_tokens:,} tokens are used: no further step"
                raise LimitExceeded(detail, limit="total_tokens")
            if limits.cost is not None and cost >= limits.cost:
                detail = f"{cost:.4f} of {limits.cost:.4f} are spent: no further step is begun"
                raise BudgetExceeded(detail)

    def next_options(
        self, calls: Sequence[ToolCallPart], before: Sequence[ToolCallPart]
    ) -> Mapping[str, Any]:
        """Return the options of the next step, after these calls and those before them."""
        given = self._options
        if callable(given):
            return given(calls, before)
        if not calls:
            return given
        return options_after(given, self._model, calls, before)

    async def run_calls(self, calls: Sequence[ToolCallPart]) -> list[ToolCallPart]:
        """Run the calls that may run; return those that wait for an approval."""
        decisions, waiting = await sort_calls(self._conversation, calls, self._needs)
        if waiting and self._approve is not None:
            decisions |= await decide(self._conversation, waiting, self._approve, self._box)
            waiting = []
        ready = [call for call in calls if call not in waiting]
        most = self._limits.tool_calls
        allowed = ready if most is None else ready[: most - self._calls]
        outcomes = await run_decided(
            self._conversation, allowed, decisions, tools=self._box, around=self._around
        )
        for outcome in outcomes:
            await _report(self._on_outcome, outcome)
        self._calls += len(ready)
        if len(allowed) < len(ready):  # the next run begins with the others
            detail = f"{self._calls} tool calls, and {most} are allowed: the last ones were not run"
            raise LimitExceeded(detail, limit="tool_calls")
        return waiting


def options_after(
    given: Mapping[str, Any],
    model: Model,
    calls: Sequence[ToolCallPart],
    before: Sequence[ToolCallPart],
) -> Mapping[str, Any]:
    """Return the options of a step after some calls.

    A forced call has been made, so no further call is forced. A model that repeats the same calls
    would repeat them for ever, and a small model on this machine rarely makes better calls the
    second time: both are asked for text.
    """
    same = [_signature(call) for call in calls] == [_signature(call) for call in before]
    small = model.ref.provider_id == LOCAL_PROVIDER
    if same or small or given.get("tool_choice") == "none":
        return {**given, "tool_choice": "none"}
    return {name: value for name, value in given.items() if name != "tool_choice"}


# ── approvals ───────────────────────────────────────────────────────────────────────────────────


async def sort_calls(
    conversation: Conversation,
    calls: Sequence[ToolCallPart],
    needs_approval: Callable[[ToolCallPart], bool],
) -> tuple[dict[str, Decision], list[ToolCallPart]]:
    """Return what was decided about calls, here or elsewhere, and those that wait for a decision.

    Decisions about calls that have changed since do not count.
    """
    asking = [call for call in calls if needs_approval(call)]

    # what a person has denied does not run, even if its tool would not ask any more
    found = await to_thread.run_sync(find_decisions, conversation, calls, asking) if calls else {}
    return found, [call for call in asking if call.id not in found]


async def decide(
    conversation: Conversation,
    calls: Sequence[ToolCallPart],
    approve: Approve,
    tools: Mapping[str, Tool] = EMPTY,
) -> dict[str, Decision]:
    """Ask about each call; what was decided about one is stored before the next is shown.

    Raises `ValidationError` if `approve` decides nothing, or chooses arguments that the tool
    refuses.
    """
    digests = await to_thread.run_sync(conversation.digests, calls)
    decisions: dict[str, Decision] = {}
    for call in calls:
        verdict = await _ask_about(call, approve)
        try:
            if isinstance(verdict, str) and verdict.strip().lower() not in VERDICTS:
                verdict = Decision("deny", reason=verdict)
            decided = parse_answer({call.id: verdict}, [call], digests, tools)
        except ValidationError as error:
            detail = f"returned {describe_argument(verdict)} for a call of {call.tool}, which "
            raise ValidationError(
                detail + error.detail, path="$.approve", rule="argument"
            ) from None
        await to_thread.run_sync(save_decisions, conversation, decided)
        decisions |= decided
    return decisions


async def run_decided(
    conversation: Conversation,
    calls: Sequence[ToolCallPart],
    decisions: Mapping[str, Decision],
    *,
    tools: Toolbox,
    around: ToolMiddleware | None = None,
) -> list[ToolOutcome]:
    """Run calls as it was decided about them; decisions that were followed are forgotten."""
    if not calls:
        return []
    decided = {call.id: decisions[call.id] for call in calls if call.id in decisions}
    outcomes = await conversation.run_tools(calls, tools=tools, around=around, approved=decided)
    if decided:
        await to_thread.run_sync(forget_decisions, conversation, list(decided))
    return outcomes


async def _ask_about(call: ToolCallPart, approve: Approve) -> object:
    """Return what `approve` says; a plain function may wait for a person, so it has a thread."""
    if inspect.iscoroutinefunction(approve):
        return await approve(call)
    verdict = await to_thread.run_sync(approve, call)
    return await verdict if inspect.isawaitable(verdict) else verdict


def _signature(call: ToolCallPart) -> tuple[str, str]:
    return call.tool, call.raw


def _is_reported(message: Message) -> bool:
    """Tell whether an answer came with its usage."""
    return getattr(message.info, "tokens", None) is not None


def _tokens(usage: Usage) -> int:
    """Return the tokens of all requests and answers together."""
    return usage.total.prompt + usage.total.completion


async def _report(function: Callable[[Any], object] | None, value: object) -> None:
    """Call who watches; what it raises is logged, since what it watches is stored."""
    try:
        if function is not None:
            await _call(function, value)
    except Exception:  # noqa: BLE001 - who watches a run must not stop it
        _log.exception("who watches a run failed")


async def _call(function: Callable[[Any], Any], value: object) -> Any:  # noqa: ANN401 - its own
    found = function(value)
    return await found if inspect.isawaitable(found) else found


# ── questions ───────────────────────────────────────────────────────────────────────────────────


async def ask(
    conversation: Conversation,
    message: Message | None = None,
    *,
    settings: RunSettings,
    on_event: Callable[[RunEvent], object] | None = None,
    output: OutputType[Any] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> tuple[RunResult, Any]:
    """Add a message, run until there is an answer, and return it with its value."""
    work = partial(_ask, conversation, message, settings, on_event, output)
    return await conversation.hold(work, cancelled=cancelled)


async def _ask(
    conversation: Conversation,
    message: Message | None,
    settings: RunSettings,
    on_event: Callable[[RunEvent], object] | None,
    output: OutputType[Any] | None,
) -> tuple[RunResult, Any]:
    rest: dict[str, Any] = dict(settings)
    if output is not None:
        rest["options"] = output.with_schema(rest.get("options", EMPTY))
    steps = 0

    async def on_step(step: Step) -> None:
        nonlocal steps
        steps += 1
        if on_event is not None:
            await _call(on_event, step)

    watchers: Any = {"on_delta": on_event, "on_step": on_step, "on_outcome": on_event}
    run = _new_run(conversation, {**rest, **watchers})
    key = run.key
    await run_shielded(conversation.recover_if_needed)
    await to_thread.run_sync(_add_question, conversation, message, key)
    before = await to_thread.run_sync(lambda: conversation.usage)

    async def answered() -> RunResult:
        step = await run.until_answer()
        after = step.usage
        return RunResult(
            step.message,
            after,
            steps,
            _tokens(after) - _tokens(before),
            None if after.cost is None else after.cost - (before.cost or 0.0),
            tuple(await to_thread.run_sync(conversation.waiting)) if step.calls else (),
        )

    answer = await answered()
    for repair in range(_REPAIRS + 1):
        if output is None or answer.waiting:
            break
        try:
            return answer, output.read(answer.message)
        except ValidationError as error:
            if repair == _REPAIRS:
                detail = f"no answer fits the wanted type: {error.detail}; the last was: "
                raise BadAnswer(detail + answer.text[:_SHOWN]) from None
            await run.check_limits()
            words = user(_AGAIN.format(error=error.detail))
            run.key = None if key is None else f"{key}/repair-{repair + 1}"
            await to_thread.run_sync(partial(conversation.add, words, key=run.key))
        answer = await answered()
    return answer, None


def _new_run(conversation: Conversation, settings: dict[str, Any]) -> _Run:
    """Return a run; a schema that the model's provider does not take is that of the type."""
    try:
        return _Run(conversation, settings.pop("model", None), **settings)
    except ValidationError as error:
        path = error.path.replace("$.options.schema", "$.output")
        raise ValidationError(error.detail, path=path, rule=error.rule) from None


def _add_question(conversation: Conversation, wanted: Message | None, key: str | None) -> None:
    """Add a message once for its key; raise `ValidationError` if the key is that of another.

    Without a message there must be one already.
    """
    if wanted is None:
        if not conversation:
            detail = "is missing, and the conversation has no messages to answer; ask('…')"
            raise ValidationError(detail, path="$.message", rule="empty-message")
        return
    found = conversation.add(wanted, key=key)
    if key is not None and found.text and (found.role, found.text) != (wanted.role, wanted.text):
        detail = f"is the key of another message, {found.text[:_SHOWN]!r}; a new one needs its own"
        raise ValidationError(detail, path="$.key", rule="key")


def check_settings(conversation: Conversation, settings: RunSettings, of: str) -> None:
    """Raise an error for settings that a run can't have, before it begins."""
    known = RunSettings.__optional_keys__
    for name in settings:
        if name not in known:
            takes = {*known, "output"} if of == "ask" else known
            raise unexpected_keyword(of, name, takes, SYSTEM_TEXT)
    rest: dict[str, Any] = dict(settings)
    _Run(conversation, rest.pop("model", None), **rest)


class OutputType(Generic[_T]):
    """The type of a structured answer: its JSON schema, and how an answer becomes a value.

    It is a class that msgspec knows (a `Struct`, a dataclass, a `TypedDict`, a `NamedTuple`), a
    pydantic model, or any other type that JSON can have, as `list[int]`.
    """

    def __init__(self, kind: type[_T]) -> None:
        """Take the type; raise `ValidationError` if JSON can't have it."""
        if not _is_type(kind):
            wanted = "a type, such as a dataclass or list[str]"
            detail = f"must be {wanted}, not {describe_argument(kind)}"
            raise ValidationError(detail, path="$.output", rule="output-type")
        self._kind = kind
        self._validate: Callable[[Any], _T] = lambda value: convert(value, kind)
        try:
            if is_pydantic(kind):
                refuse_meta(kind)
                adapter = importlib.import_module("pydantic").TypeAdapter(kind)
                self.schema: dict[str, Any] = _inline(adapter.json_schema())
                self._validate = lambda value: adapter.validate_json(msgspec.json.encode(value))
            else:
                self.schema = _inline(msgspec.json.schema(kind))
        except (TypeError, ValueError, RuntimeError, ImportError) as error:  # two are of pydantic
            detail = f"{_name(kind)} can't be the type of an answer: {explain_type(error)}; give a "
            detail += "dataclass, a pydantic model or a type such as list[str], or leave it out"
            raise ValidationError(detail, path="$.output", rule="output-type") from None
        self._wrapped = self.schema.get("type") != "object"
        if self._wrapped:  # providers take objects only
            definitions = self.schema.pop("$defs", None)
            self.schema = {
                "type": "object",
                "properties": {_VALUE: self.schema},
                "required": [_VALUE],
                **({"$defs": definitions} if definitions else {}),
            }

    def with_schema(self, options: object) -> Mapping[str, Any] | ChooseOptions:
        """Return the options of a run with this type's schema."""
        if not callable(options):
            return {**cast("Mapping[str, Any]", options), "schema": self.schema}
        choose = cast("ChooseOptions", options)
        return lambda calls, before: {**choose(calls, before), "schema": self.schema}

    def read(self, message: Message) -> _T:
        """Return the value of an answer; raise `ValidationError` if the answer does not fit."""
        finish = getattr(message.info, "finish", None)
        if finish == "content-filter" or any(map(_is_refusal, message.parts)):
            detail = f"the model refused to answer: {message.text[:_SHOWN]}"
            raise ContentFiltered(detail)
        text = message.text.strip()
        fenced = _FENCED.search(text)
        try:
            try:
                value = msgspec.json.decode(text)
            except ValueError:
                if self._kind is str and text:
                    return cast("_T", text)
                if fenced is None:
                    raise
                value = msgspec.json.decode(fenced[1])
            if self._wrapped and isinstance(value, dict) and [*value] == [_VALUE]:
                value = value[_VALUE]
            return self._validate(value)
        except (ValueError, RecursionError) as error:  # of msgspec, and of pydantic
            detail = explain_mismatch(error) or type(error).__name__
            if finish == "length":
                detail += " (it was cut off: be shorter, or allow more max_tokens)"
            raise ValidationError(detail, path="$", rule="output-type") from None


def _is_refusal(part: Part) -> bool:
    """Tell whether a provider marked a text as the model's refusal."""
    metadata = part.metadata if isinstance(part, TextPart) else EMPTY
    return any(is_object(one) and one.get("refusal") is True for one in metadata.values())


def _is_type(value: object) -> bool:
    """Tell whether a value is a class, or a type that is none, such as `list[str]` or `Any`."""
    typing = type(value).__module__ in ("typing", "types", "typing_extensions")
    return typing or isinstance(value, type) or get_origin(value) is not None


def _name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else repr(kind)


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that is an object at its top, not a reference to a definition."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    definitions = dict(schema.get("$defs", {}))
    name = reference.rpartition("/")[2]
    found = dict(definitions[name])
    if f'"{reference}"' not in msgspec.json.encode(definitions).decode():  # not recursive
        del definitions[name]
    return {**found, "$defs": definitions} if definitions else found


# ── streams ─────────────────────────────────────────────────────────────────────────────────────


StreamedRun: TypeAlias = (
    "Callable[[Callable[[RunEvent], None], Callable[[], bool]], Awaitable[RunResult]]"
)


class RunStream(AsyncIterator[RunEvent]):
    """The events of a run as they happen; the last one is the `RunResult`.

        async for event in talk.stream("Tea?"):
            if isinstance(event, TextDelta):
                print(event.text, end="")

    The run begins with the first event that is asked for. What was received is stored as it
    arrives. Who leaves the loop early cancels the run; `async with` waits until it is cancelled.
    """

    __reduce_ex__ = not_pickled("send what it yields instead")

    def __init__(self, run: StreamedRun) -> None:
        """Take the run: a function of where to send events, and of whether it is to end."""
        self._run = run
        self._scope: anyio.CancelScope | None = None  # of the run, once it has begun
        self._events, self._received = anyio.create_memory_object_stream[Any](math.inf)
        self._done = anyio.Event()
        self.answer: RunResult | None = None

    def __aiter__(self) -> RunStream:
        """Return itself."""
        return self

    async def __anext__(self) -> RunEvent:
        """Return the next event; raise what the run raised."""
        if self._scope is None:
            self._scope = anyio.CancelScope()
            _spawn(partial(_feed, self._run, self._events, self._scope, self._done))
        try:
            event: RunEvent | BaseException = await self._received.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise StopAsyncIteration from None
        if isinstance(event, BaseException):
            raise event
        if isinstance(event, RunResult):
            self.answer = event
        return event

    if not TYPE_CHECKING:  # the type checkers find these mistakes themselves

        def __await__(self) -> NoReturn:
            """Say how a stream is read."""
            msg = "a stream is not awaited: write `async for event in talk.stream(…)`, or talk.ask"
            raise TypeError(msg)

        def __iter__(self) -> NoReturn:
            """Say how a stream is read."""
            msg = "a stream is read in an event loop: write `async for event in talk.stream(…)`"
            raise TypeError(msg)

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cancel the run if it is not over, and wait until it is."""
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the run if it is not over, and wait until what had arrived is stored."""
        if self._scope is not None:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._done.wait()
        self._received.close()
        self._events.close()

    def __del__(self) -> None:
        """Cancel a run that nobody listens to any more."""
        if self._scope is not None:
            with suppress(RuntimeError):  # its event loop has ended, and the run with it
                self._scope.cancel()
        self._received.close()
        self._events.close()


async def _feed(
    run: StreamedRun,
    events: MemoryObjectSendStream[Any],
    scope: anyio.CancelScope,
    done: anyio.Event,
) -> None:
    """Run, and send what happens; this holds no reference to the stream, which may be left."""

    def send(event: object) -> None:
        try:
            events.send_nowait(event)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            scope.cancel()

    try:
        with scope:
            try:
                send(await run(send, lambda: scope.cancel_called))
            except Exception as error:  # noqa: BLE001 - raised where the events are received
                send(error)
    finally:
        events.close()
        done.set()


def _spawn(work: Callable[[], Awaitable[None]]) -> None:
    """Begin a task of its own, that outlives the call that begins it."""
    loop: Any = current_token().native_token
    if not hasattr(loop, "create_task"):
        trio: Any = importlib.import_module("trio")  # pragma: no cover - whoever runs it has it
        trio.lowlevel.spawn_system_task(work)  # pragma: no cover - the same
        return  # pragma: no cover - the same
    task = loop.create_task(work())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


_tasks: Final = set[Any]()
"""The tasks of streams: asyncio holds only weak references to them."""
