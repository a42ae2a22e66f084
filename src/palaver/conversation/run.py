"""The agent loop: ask the model, run its tools, ask again, until there is an answer.

`Conversation` takes single steps and never decides to take another. This loop does, for everyone
without an engine of their own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from anyio import to_thread

from palaver.conversation.conversation import Conversation
from palaver.errors import TooManySteps
from palaver.messages.limits import EMPTY, check_argument, check_callable, check_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from palaver.conversation.step import OnDelta, Step
    from palaver.messages import ToolCallPart
    from palaver.models import AnyModel
    from palaver.tools import Tool, Toolbox

__all__ = ["ChooseOptions", "run_until_answer"]

_log: Final = logging.getLogger("palaver.conversation")

ChooseOptions: TypeAlias = (
    "Callable[[Sequence[ToolCallPart], Sequence[ToolCallPart]], Mapping[str, Any]]"
)
"""Returns the options of a step, given the calls that were just run and the calls before them."""


async def run_until_answer(
    conversation: Conversation,
    model: AnyModel | None = None,
    *,
    tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None = None,
    options: Mapping[str, Any] | ChooseOptions = EMPTY,
    needs_approval: Callable[[ToolCallPart], bool] | None = None,
    max_steps: int = 20,
    on_delta: OnDelta | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Step:
    """Run the waiting calls, then take steps until an answer makes no calls; return the last step.

    With `tools`, only the waiting calls of these tools are run. `options` are those of every step,
    or a function that chooses them. A call for which
    `needs_approval` returns True is not run: when a step makes such a call, the others are run and
    that step is returned, with its calls. `on_step` gets every step; if it fails, that is logged.
    Raises `TooManySteps` after
    `max_steps` steps without an answer.
    """
    check_argument(conversation, Conversation, "$.conversation", "a Conversation")
    check_number(max_steps, "$.max_steps", least=1, whole=True)
    check_callable(on_step, "$.on_step", "a function that takes a step")
    check_callable(needs_approval, "$.needs_approval", "a function that takes a call")
    box = conversation.toolbox(tools)

    async def run(calls: Sequence[ToolCallPart]) -> None:
        ready = [call for call in calls if needs_approval is None or not needs_approval(call)]
        if ready:
            await conversation.run_tools(ready, tools=box)

    before: Sequence[ToolCallPart] = ()
    calls: Sequence[ToolCallPart] = await to_thread.run_sync(conversation.waiting)
    if tools is not None:
        calls = [call for call in calls if call.tool in box]
    for _ in range(max_steps):
        await run(calls)
        chosen = options(calls, before) if callable(options) else options
        step = await conversation.step(model, tools=box, options=chosen, on_delta=on_delta)
        _report(on_step, step)
        before, calls = calls, step.calls
        if not calls:
            return step
        if needs_approval is not None and any(map(needs_approval, calls)):
            await run(calls)
            return step
    await run(calls)
    msg = f"{max_steps} steps and no answer without tool calls"
    raise TooManySteps(msg)


def _report(on_step: Callable[[Step], object] | None, step: Step) -> None:
    """Call `on_step`; what it raises is logged, since the step is stored."""
    try:
        if on_step is not None:
            on_step(step)
    except Exception:  # noqa: BLE001 - who watches the steps must not stop them
        _log.exception("on_step failed")
