"""Tool calls at work: at most once, side by side, in order, with a record at every turn."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from palaver.conversation import Conversation, ToolContext, ToolLimits, ToolOutput, tool
from palaver.errors import ToolFailed, ValidationError
from palaver.messages import ToolCallPart, ToolPart, assistant, new_id, tool_call_part, user
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver import Store

pytestmark = pytest.mark.anyio


async def asked(store: Store, *calls: tuple[str, Any], **fields: Any) -> Conversation:  # noqa: ANN401
    """A conversation whose last answer makes these calls."""
    conversation = Conversation(store, **fields)
    conversation.add(user("go"))
    await conversation.step(Scripted(calling(*calls)))
    return conversation


def open_calls(conversation: Conversation) -> list[ToolCallPart]:
    """The calls of the last answer."""
    found = [message for message in conversation.messages if message.role == "assistant"]
    return [part for part in found[-1].parts if isinstance(part, ToolCallPart)]


def results(conversation: Conversation) -> list[tuple[str, str, str]]:
    """What the log says became of the calls."""
    parts = [part for message in conversation.messages for part in message.parts]
    return [
        (
            part.call_id,
            part.state.status,
            str(getattr(part.state, "output", getattr(part.state, "error", ""))),
        )
        for part in parts
        if isinstance(part, ToolPart)
    ]


async def test_results_stand_in_the_order_of_the_calls(store: Store) -> None:
    """CV-05: whatever order they finish in; all in one change."""

    async def wait(seconds: float) -> str:
        await anyio.sleep(seconds)
        return f"{seconds}"

    conversation = await asked(
        store, ("wait", {"seconds": 0.06}), ("wait", {"seconds": 0.0}), tools=[wait]
    )
    before = conversation.history.version
    outcomes = await conversation.run_tools(open_calls(conversation))

    assert [("call_0", "completed", "0.06"), ("call_1", "completed", "0.0")] == results(
        conversation
    )
    assert ["0.06", "0.0"] == [outcome.text for outcome in outcomes]
    assert conversation.history.version == before + 1
    assert {} == conversation.ledger()


async def test_calls_run_side_by_side_up_to_a_limit(store: Store) -> None:
    """CV-05: a concurrency limit."""
    at_work, most = 0, 0

    async def work() -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await anyio.sleep(0.01)
        at_work -= 1

    calls: list[tuple[str, Any]] = [("work", {})] * 6
    conversation = await asked(store, *calls, tools=[work], limits=ToolLimits(at_once=2))
    await conversation.run_tools(open_calls(conversation))

    assert most == 2


async def test_running_is_written_down_before_the_tool_is_touched(store: Store) -> None:
    """CV-06: after a crash nobody has to guess."""
    seen: list[str] = []

    def look() -> None:
        kept = store.records(conversation.id, "call")
        seen.extend("running" for value in kept.values() if b'"status":"running"' in value)

    conversation = await asked(store, ("look", {}), tools=[look])
    await conversation.run_tools(open_calls(conversation))

    assert seen == ["running"]


def _raise() -> None:
    msg = "the disk is full"
    raise OSError(msg)


async def _hang() -> None:
    await anyio.sleep_forever()


def _hang_in_a_thread() -> None:
    time.sleep(0.3)


def _refuse() -> None:
    msg = "no such city"
    raise LookupError(msg)


@pytest.mark.parametrize(
    ("function", "status", "said"),
    [
        (_raise, "error", "OSError: the tool failed; the reason is in the program's log"),
        (_hang, "error", "timed out after 50 ms"),
        (_hang_in_a_thread, "error", "timed out after 50 ms"),
        (_refuse, "error", "LookupError: no such city"),
        (lambda: None, "completed", "(no output)"),
        (lambda: "", "completed", "(no output)"),
        (lambda: b"plain", "completed", "plain"),
        (lambda: {"a": [1]}, "completed", '{"a":[1]}'),
        (lambda: "nul \0 here", "completed", "nul \ufffd here"),
        (lambda: object, "completed", "<class 'object'>"),
    ],
)
async def test_whatever_a_tool_does_becomes_its_result(
    store: Store, function: Callable[[], Any], status: str, said: str
) -> None:
    """CV-05: errors become results; bytes, nothing and odd values too."""
    one = tool(name="one")(function)
    limits = ToolLimits(seconds=0.05) if "timed out" in said else ToolLimits()
    conversation = await asked(store, ("one", {}), tools=[one], limits=limits)
    await conversation.run_tools(open_calls(conversation))

    assert [("call_0", status, said)] == results(conversation)


async def test_an_output_of_50_megabytes_is_cut(store: Store) -> None:
    """The model is told how much is missing."""
    conversation = await asked(
        store, ("big", {}), tools=[tool(name="big")(lambda: "x" * 50_000_000)]
    )
    (outcome,) = await conversation.run_tools(open_calls(conversation))

    assert outcome.text.endswith("[… 49,000,000 more characters were left out]")
    assert len(outcome.text) < 1_000_100


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{not json", "the arguments are no JSON"),
        ("[1, 2]", "must be a JSON object"),
        ('{"a": "x"}', "Expected `int`, got `str`"),
        ('{"b": 1}', "unknown field `b`"),
        ("", "missing required field `a`"),
    ],
)
async def test_arguments_are_checked_before_the_call(
    store: Store, arguments: str, said: str
) -> None:
    """CV-05: the tool is not touched, the model is told what is wrong."""
    touched: list[int] = []

    def one(a: int) -> None:
        touched.append(a)

    conversation = await asked(store, ("one", arguments), tools=[one])
    (outcome,) = await conversation.run_tools(open_calls(conversation))

    assert outcome.failed
    assert said in outcome.text
    assert [] == touched


async def test_a_call_to_an_unknown_tool(store: Store) -> None:
    """The model is told which there are."""

    def known() -> None:
        """Nothing."""

    conversation = await asked(store, ("unknown", {}), tools=[known])
    (outcome,) = await conversation.run_tools(open_calls(conversation))

    assert "there is no tool 'unknown'; there are: known" in outcome.text


async def test_a_call_is_never_run_twice(store: Store) -> None:
    """Running it again is refused; so is a call that nobody made, and one that is given twice."""
    conversation = await asked(store, ("one", {}), tools=[tool(name="one")(lambda: "x")])
    calls = open_calls(conversation)
    with pytest.raises(ValidationError, match="is given twice"):
        await conversation.run_tools([*calls, *calls])
    await conversation.run_tools(calls)
    with pytest.raises(ValidationError, match="is not open"):
        await conversation.run_tools(calls)
    with pytest.raises(ValidationError, match="is not open"):
        await conversation.run_tool(tool_call_part(new_id(), new_id(), "one", {}))

    assert len(results(conversation)) == 1


async def test_calls_of_messages_that_came_by_another_way_run_too(store: Store) -> None:
    """An imported or added answer has no entry in the ledger; it gets one."""
    conversation = Conversation(store, tools=[tool(name="one")(lambda: "x")])
    call = tool_call_part(new_id(), new_id(), "one", {}, call_id="theirs")
    conversation.add(user("go"))
    conversation.add(assistant([call]))

    assert (await conversation.run_tool(call)).text == "x"
    assert [("theirs", "completed", "x")] == results(conversation)


async def test_a_result_whose_call_has_left_the_view_is_not_appended(store: Store) -> None:
    """CV-06: it is kept in the ledger and reported."""

    def roll_back() -> str:
        conversation.history.rollback(0)
        conversation.history.truncate(remove_last=1)
        return "too late"

    conversation = await asked(store, ("roll_back", {}), tools=[roll_back])
    (outcome,) = await conversation.run_tools(open_calls(conversation))

    assert outcome.message is None
    assert outcome.text == "too late"
    assert [] == results(conversation)
    (entry,) = conversation.ledger().values()
    assert (entry.stray, entry.state.status) == (True, "completed")
    assert (await conversation.step(Scripted(saying("on")))).text == "on"


async def test_another_process_may_take_the_call_away_meanwhile(store: Store) -> None:
    """The condition is asked of what is there when the results are written, whoever wrote it."""

    def elsewhere() -> str:
        store.get(conversation.id).truncate(remove_last=1)
        return "too late"

    conversation = await asked(store, ("elsewhere", {}), tools=[elsewhere])
    (outcome,) = await conversation.run_tools(open_calls(conversation))

    assert outcome.message is None


async def test_a_cancelled_call_says_so(store: Store) -> None:
    """Cancellation is recorded; the history stays valid."""
    begun = anyio.Event()

    async def endless() -> None:
        begun.set()
        await anyio.sleep_forever()

    conversation = await asked(
        store, ("endless", {}), ("quick", {}), tools=[endless, tool(name="quick")(lambda: "done")]
    )
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                await begun.wait()
                await anyio.sleep(0.05)
                scope.cancel()

            group.start_soon(stop)
            await conversation.run_tools(open_calls(conversation))

    assert [("call_0", "error", "cancelled"), ("call_1", "completed", "done")] == results(
        conversation
    )


async def test_states_are_seen_live_with_progress(store: Store) -> None:
    """tool.pending → tool.running (with progress, also from a thread) → tool.completed."""
    seen: list[tuple[str, str]] = []

    def slow(context: ToolContext) -> ToolOutput:
        context.progress("half way", {"percent": 50})
        return ToolOutput("done", title="Slow work")

    conversation = Conversation(store, tools=[slow])
    conversation.events.on(
        "*", lambda event: seen.append((event.name, str(event.data.get("title", ""))))
    )
    conversation.add(user("go"))
    step = await conversation.step(Scripted(calling(("slow", {}))))
    await conversation.run_tools(step.calls)

    assert [
        ("tool.pending", ""),
        ("tool.running", ""),
        ("tool.running", "half way"),
        ("tool.completed", ""),
    ] == [event for event in seen if event[0].startswith("tool.")]


async def test_an_executor_takes_the_place_of_the_tools(store: Store) -> None:
    """S4's extension point."""

    async def execute(call: ToolCallPart, context: ToolContext) -> ToolOutput:
        return ToolOutput(f"{call.tool} of {context.conversation[:4]}")

    conversation = await asked(store, ("anything", {}), executor=execute)
    outcome = await conversation.run_tool(open_calls(conversation)[0])

    assert outcome.text == f"anything of {conversation.id[:4]}"


async def test_plain_functions_run_in_threads(store: Store) -> None:
    """They do not block the loop."""
    main, found = threading.get_ident(), list[int]()
    one = tool(name="one")(lambda: found.append(threading.get_ident()))
    conversation = await asked(store, ("one", {}), tools=[one])
    await conversation.run_tools(open_calls(conversation))

    assert found[0] != main


# ── what the model is told of an error ──────────────────────────────────────────────────────────


async def test_a_hook_decides_what_the_model_is_told_of_an_error(store: Store) -> None:
    seen: list[object] = []

    def on_tool_error(call: ToolCallPart, error: BaseException) -> str | None:
        seen.append((call.tool, type(error)))
        return "Try later: Bearer abcdefghijklmnop1234" if call.call_id == "call_0" else None

    tools = [tool(name="one")(_raise), tool(name="two")(_refuse)]
    conversation = await asked(
        store, ("one", {}), ("two", {}), tools=tools, on_tool_error=on_tool_error
    )
    first, _ = await conversation.run_tools(open_calls(conversation))

    assert [("one", OSError), ("two", LookupError)] == sorted(seen, key=str)
    assert ["Try later: Bearer [redacted]", "LookupError: no such city"] == [
        text for _, _, text in results(conversation)
    ]
    assert "the disk is full" in first.traceback


@pytest.mark.parametrize("broken", [lambda *_: 1 / 0, lambda *_: 5])
async def test_a_hook_that_fails_leaves_the_usual_text(
    store: Store,
    broken: Any,  # noqa: ANN401 - a wrong one
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = tool(name="one")(_refuse)
    conversation = await asked(store, ("one", {}), tools=[one], on_tool_error=broken)
    await conversation.run_tools(open_calls(conversation))

    assert [("call_0", "error", "LookupError: no such city")] == results(conversation)
    assert "on_tool_error" in caplog.text


# ── errors of what wraps a call ─────────────────────────────────────────────────────────────────


class Refusal(Exception):  # noqa: N818 - the caller's own
    pass


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_error_of_around_is_raised_and_nothing_runs_twice(store: Store, when: str) -> None:
    """A call that was not begun waits again; the others have their results."""
    ran: list[int] = []

    def work(n: int) -> str:
        ran.append(n)
        return "done"

    async def around(call: ToolCallPart, _: ToolContext, run: Any) -> Any:  # noqa: ANN401
        if when == "before" and call.input["n"] == 1:
            raise Refusal
        output = await run(call)
        if call.input["n"] == 1:
            raise Refusal
        return output

    conversation = await asked(store, ("work", {"n": 1}), ("work", {"n": 2}), tools=[work])
    with pytest.raises(Refusal):
        await conversation.run_tools(open_calls(conversation), around=around)

    began = when == "after"
    assert ([1, 2] if began else [2]) == sorted(ran)
    (*failed, done) = results(conversation)
    assert ("call_1", "completed", "done") == done
    assert began == bool(failed) == (not conversation.waiting())
    if began:
        assert "it may have run" in failed[0][2]
    else:
        await conversation.run_tools(conversation.waiting())
        assert [2, 1] == ran
    assert {} == conversation.ledger()


async def test_around_refuses_a_call_with_tool_failed(store: Store) -> None:
    async def around(call: ToolCallPart, _: ToolContext, run: Any) -> Any:  # noqa: ANN401
        del run
        raise ToolFailed(f"{call.tool} is closed today")

    conversation = await asked(store, ("one", {}), tools=[tool(name="one")(_refuse)])
    (outcome,) = await conversation.run_tools(open_calls(conversation), around=around)

    assert "one is closed today" == outcome.text


async def test_an_error_of_the_tool_stays_the_tools_behind_around(store: Store) -> None:
    async def around(call: ToolCallPart, _: ToolContext, run: Any) -> Any:  # noqa: ANN401
        return await run(call)

    conversation = await asked(store, ("one", {}), tools=[tool(name="one")(_refuse)])
    (outcome,) = await conversation.run_tools(open_calls(conversation), around=around)

    assert "LookupError: no such city" == outcome.text


async def test_around_that_is_not_async_is_told_so(store: Store) -> None:
    conversation = await asked(store, ("one", {}), tools=[tool(name="one")(_refuse)])
    with pytest.raises(ValidationError, match=r"^\$\.around: must be an async function"):
        await conversation.run_tools(open_calls(conversation), around=lambda *_: "done")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert 1 == len(conversation.waiting())
