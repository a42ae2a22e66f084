"""Tools that misbehave: each call gets a recorded result, and the conversation stays valid."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import pytest

from palaver import wire
from palaver.conversation import (
    Conversation,
    Tool,
    ToolContext,
    ToolLimits,
    ToolOutcome,
    ToolOutput,
    tool,
)
from palaver.errors import ToolFailed
from palaver.messages import ToolCompleted, ToolError, user
from palaver.testing.providers import check_request
from palaver.tools import SchemaTool
from tests.conversation.scripted import Scripted, calling

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver import Store
    from palaver.events import Event
    from palaver.messages import ToolCallPart

pytestmark = pytest.mark.anyio


async def outcome(
    store: Store,
    function: Any,  # noqa: ANN401 - a function or a tool
    arguments: Any = None,  # noqa: ANN401 - an object, or what a model wrote instead
    *,
    name: str = "work",
    limits: ToolLimits | None = None,
    watch: Callable[[Event], None] | None = None,
) -> ToolOutcome:
    """Have a model call a tool; the conversation must be valid for every provider after it."""
    made = function if isinstance(function, Tool) else tool(name=name)(function)
    conversation = Conversation(store, tools=[made], limits=limits)
    if watch is not None:
        conversation.events.on("*", watch)
    conversation.add(user("go"))
    given = {} if arguments is None else arguments
    step = await conversation.step(Scripted(calling(("work", given))))
    done = await conversation.run_tool(step.calls[0])
    assert {} == conversation.ledger()
    assert done.message == store.get(conversation.id).view[-1]
    for form in wire.FORMATS:
        request = wire.to(form, conversation.messages)
        extra = {"max_tokens": 9} if form == "anthropic" else {}
        model = {} if form == "gemini" else {"model": "m"}
        assert () == check_request(form, {**model, **extra, **request.body})
    return done


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def work() -> NoReturn:
        raise error

    return work


_HIDDEN = "the tool failed; the reason is in the program's log"


class Mute(Exception):  # noqa: N818 - it says nothing
    pass


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no such city"), "ValueError: no such city"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError("a\0b\ud800"), "ValueError: a\ufffdb\ufffd"),
        (Mute(), f"Mute: {_HIDDEN}"),
        (ToolFailed("the printer is on fire"), "the printer is on fire"),
        (ToolFailed(" "), f"ToolFailed: {_HIDDEN}"),
        (ValueError(), "ValueError"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (SystemExit(3), f"SystemExit: {_HIDDEN}"),
        (StopIteration(), f"RuntimeError: {_HIDDEN}"),
        (TimeoutError("of its own"), f"TimeoutError: {_HIDDEN}"),
        (ExceptionGroup("both", [ValueError("a")]), f"ExceptionGroup: {_HIDDEN}"),
    ],
)
async def test_what_a_tool_raises_becomes_its_result(
    store: Store, error: BaseException, words: str
) -> None:
    """CV-05."""
    done = await outcome(store, raising(error))

    assert isinstance(done.state, ToolError)
    assert words == done.state.error.splitlines()[0]


async def test_a_tool_that_raises_a_book_is_cut_short(store: Store) -> None:
    done = await outcome(store, raising(ValueError("x" * 5_000)), limits=ToolLimits(output=100))

    assert len(done.text) < 200
    assert done.text.endswith("more characters were left out]")


async def test_a_tool_that_hangs_runs_into_its_time_limit(store: Store) -> None:
    """PT-04, CV-05: sync and async; the conversation's limit or the tool's own."""

    async def asleep() -> None:
        await anyio.sleep_forever()

    free = threading.Event()

    def hangs() -> None:
        free.wait(120)

    began = time.monotonic()
    try:
        for function in (asleep, hangs):
            limited = await outcome(store, function, limits=ToolLimits(seconds=0.05))
            own = await outcome(store, tool(name="work", timeout=0.05)(function))
            for done in (limited, own):
                assert isinstance(done.state, ToolError)
                assert "timed out after 50 ms" == done.text
                assert done.state.metadata["timedOut"] is True
                assert 50 <= done.state.time.end - done.state.time.start < 60_000
    finally:
        free.set()

    assert time.monotonic() - began < 60


async def test_tools_that_hang_do_not_keep_the_store_waiting(store: Store) -> None:
    """More of them than there are threads to share: each has one of its own."""
    free = threading.Event()

    @tool(timeout=0.2)
    def hangs() -> None:
        free.wait(120)

    conversation = Conversation(store, tools=[hangs], limits=ToolLimits(at_once=60))
    conversation.add(user("go"))
    step = await conversation.step(Scripted(calling(*[("hangs", {})] * 60)))
    began = time.monotonic()
    try:
        done = await conversation.run_tools(step.calls)
    finally:
        free.set()

    assert time.monotonic() - began < 60
    assert {"timed out after 200 ms"} == {one.text for one in done}


async def test_threads_are_used_again_and_not_hoarded(store: Store) -> None:
    @tool
    def work() -> None:
        time.sleep(0.01)

    def threads() -> int:
        return sum(thread.name == "palaver tool" for thread in threading.enumerate())

    conversation = Conversation(store, tools=[work], limits=ToolLimits(at_once=60))
    for count in (60, 4, 4):
        before = threads()
        conversation.add(user("go"))
        step = await conversation.step(Scripted(calling(*[("work", {})] * count)))
        await conversation.run_tools(step.calls)
        for _ in range(100):
            if threads() <= max(before, 32):
                break
            await anyio.sleep(0.05)

        assert threads() <= max(before, 32)


async def test_a_tool_may_return_nothing(store: Store) -> None:
    """BR-09: stored as S3 demands, with its rawness kept."""
    done = await outcome(store, lambda: None)

    assert isinstance(done.state, ToolCompleted)
    assert ("(no output)", "") == (done.state.output, done.state.metadata["rawOutput"])


@pytest.mark.parametrize(
    "value",
    ["\u00e9" * 50_000_000, b"x" * 50_000_000, b"\xff" * 50_000_000, ["x" * 1_000_000] * 50],
    ids=["text", "bytes of text", "bytes", "JSON"],
)
async def test_a_tool_may_return_50_mb(store: Store, value: object) -> None:
    done = await outcome(store, lambda: value, limits=ToolLimits(output=1_000))

    assert isinstance(done.state, ToolCompleted)
    assert len(done.text) < 1_100
    assert "left out]" in done.text or "[50,000,000 bytes of application" in done.text


async def test_bytes_become_a_file_in_the_conversation(store: Store) -> None:
    done = await outcome(store, lambda: b"\x89PNG\r\n\x1a\n\x00")

    assert isinstance(done.state, ToolCompleted)
    assert ["image/png"] == [part.mime for part in done.state.attachments or ()]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("{not json", "$.arguments: the arguments are no JSON: JSON is malformed"),
        ('["a"]', "$.arguments: the arguments must be a JSON object [tool-arguments]"),
        ('"a"', "the arguments must be a JSON object"),
        ('{"a": ', "the arguments are no JSON"),
        ('{"b": 1}', "$.arguments: Object contains unknown field `b` [tool-arguments]"),
    ],
)
async def test_arguments_that_can_not_be_are_never_run(
    store: Store, written: str, words: str
) -> None:
    """CV-05."""

    def work() -> None:
        pytest.fail("it ran")

    done = await outcome(store, work, written)

    assert isinstance(done.state, ToolError)
    assert words in done.text


async def test_a_call_of_an_unknown_tool_says_which_there_are(store: Store) -> None:
    done = await outcome(store, lambda: None, name="other")

    assert isinstance(done.state, ToolError)
    assert "$: there is no tool 'work'; there are: other [schema]" == done.text


async def test_metadata_that_no_store_can_keep_is_made_fit_or_refused(store: Store) -> None:
    fine = await outcome(store, lambda: ToolOutput("x", "t\0", {"nan": float("nan"), "o": sys}))
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"a": deep}
    refused = await outcome(store, lambda: ToolOutput("x", metadata=deep))

    assert isinstance(fine.state, ToolCompleted)
    assert ("t\ufffd", None) == (fine.state.title, fine.state.metadata["nan"])
    assert isinstance(refused.state, ToolError)
    assert "nested deeper" in refused.text


async def test_an_executors_output_is_made_fit_too(store: Store) -> None:
    async def execute(call: ToolCallPart, _: ToolContext) -> ToolOutput:
        await anyio.lowlevel.checkpoint()
        return ToolOutput(call.tool + "\0")

    conversation = Conversation(store, executor=execute)
    conversation.add(user("go"))
    step = await conversation.step(Scripted(calling(("any", {}))))

    assert "any\ufffd" == (await conversation.run_tool(step.calls[0])).text


async def test_progress_from_a_thread_is_heard_in_the_loop(store: Store) -> None:
    """CV-05, CV-08."""
    heard: list[tuple[str, Any, int]] = []

    def watch(event: Event) -> None:
        if "title" in event.data:
            heard.append((event.data["title"], event.data["metadata"], threading.get_ident()))

    def plain(about: ToolContext) -> str:
        about.progress("half\0", {"nan": float("nan")})
        own = threading.Thread(target=about.progress, args=("of its own",))
        own.start()
        own.join()
        return "done"

    async def later(about: ToolContext) -> str:
        await anyio.lowlevel.checkpoint()
        about.progress("soon")
        return "done"

    await outcome(store, plain, watch=watch)
    await outcome(store, later, watch=watch)

    here = threading.get_ident()
    assert [("half\ufffd", {"nan": None}, here), ("of its own", {}, here)] == heard[:2]
    assert [("soon", {}, here)] == heard[2:]


async def test_a_call_that_was_given_up_is_not_heard_any_more(store: Store) -> None:
    names: list[str] = []
    free, over = threading.Event(), threading.Event()

    def slow(about: ToolContext) -> None:
        about.progress("begun")
        free.wait(120)
        about.progress("too late")
        over.set()

    made = tool(name="work", timeout=0.5)(slow)
    await outcome(
        store, made, watch=lambda event: names.append(event.data.get("title", event.name))
    )
    free.set()
    await anyio.to_thread.run_sync(over.wait, 60)

    assert "begun" in names
    assert "too late" not in names


async def test_a_schema_tool_is_checked_before_it_runs(store: Store) -> None:
    made = SchemaTool("work", "W.", {"required": ["a"]}, lambda _: pytest.fail("it ran"))
    done = await outcome(store, made, {"b": 1})

    assert "$.a: is missing [tool-arguments]" == done.text
