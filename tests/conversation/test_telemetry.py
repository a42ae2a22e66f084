"""Spans of the gen_ai conventions: complete, nested, and silent about what was said."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

import palaver
from palaver.conversation import Conversation, ToolLimits, tool
from palaver.conversation.telemetry import Telemetry
from palaver.errors import NetworkError, PalaverError
from palaver.messages import Message, ModelRef, assistant, file_part, new_id, system, user
from tests.conversation.scripted import Scripted, calling, saying
from tests.conversation.test_cache_ledger import cached

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

pytestmark = pytest.mark.anyio

SECRET = "the secret is 1729"  # noqa: S105 - no password


class World:
    """A conversation whose spans are kept."""

    def __init__(self, *, content: bool = False, **options: Any) -> None:  # noqa: ANN401 - a conversation's
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        telemetry = Telemetry(provider, content=content)
        self.conversation = Conversation(
            palaver.open(":memory:"), instrumentation=telemetry, **options
        )
        self.conversation.add(user(SECRET))

    @property
    def spans(self) -> list[tuple[str, dict[str, Any]]]:
        return [(span.name, dict(span.attributes or {})) for span in self.raw]

    @property
    def raw(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


async def test_a_step_is_a_span() -> None:
    world = World()
    options = {"temperature": 0.5, "max_tokens": 9}
    await world.conversation.step(Scripted(saying(SECRET, used=(10, 3))), options=options)

    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.conversation.id": world.conversation.id,
        "gen_ai.output.type": "text",
        "gen_ai.response.model": "scripted",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 0,
    }
    assert [("chat scripted", expected)] == world.spans
    assert SpanKind.CLIENT == world.raw[0].kind


async def test_an_answer_without_figures_has_none_in_its_span() -> None:
    world = World()
    model = Scripted(saying("x", used=None))
    model.ref = ModelRef("google", "gemini-x")
    await world.conversation.step(model, options={"schema": {"type": "object"}})

    ((_, about),) = world.spans
    assert ("gcp.gemini", "json") == (about["gen_ai.provider.name"], about["gen_ai.output.type"])
    assert not [name for name in about if name.startswith("gen_ai.usage")]


async def test_tool_calls_are_spans_and_what_they_do_is_inside() -> None:
    inside: list[int] = []

    @tool
    def plain() -> str:
        """Work in a thread."""
        inside.append(get_current_span().get_span_context().span_id)
        return SECRET

    @tool(timeout=0.05)
    async def hangs() -> None:
        await anyio.sleep_forever()

    world = World(tools=[plain, hangs])
    calls = calling(("plain", {}), ("hangs", {}), ("unknown", {"a": SECRET}))
    step = await world.conversation.step(Scripted(calls))
    await world.conversation.run_tools(step.calls)

    found = dict(world.spans)
    expected = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "plain",
        "gen_ai.tool.call.id": "call_0",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Work in a thread.",
        "gen_ai.conversation.id": world.conversation.id,
    }
    assert expected == found["execute_tool plain"]
    assert "timeout" == found["execute_tool hangs"]["error.type"]
    assert "tool_error" == found["execute_tool unknown"]["error.type"]
    spans = {span.name: span for span in world.raw}
    assert SpanKind.INTERNAL == spans["execute_tool plain"].kind
    context = spans["execute_tool plain"].context
    assert context is not None
    assert [context.span_id] == inside


async def test_an_error_is_told_by_its_type() -> None:
    world = World()
    with pytest.raises(NetworkError):
        await world.conversation.step(Scripted([NetworkError(SECRET)]))

    (span,) = world.raw
    assert "NetworkError" == (span.attributes or {})["error.type"]
    assert (StatusCode.ERROR, None) == (span.status.status_code, span.status.description)
    assert () == tuple(span.events)


async def test_a_cancelled_step_ends_its_span() -> None:
    world = World()
    with anyio.move_on_after(0.05):
        await world.conversation.step(Scripted([None]))

    ((_, about),) = world.spans
    assert "CancelledError" == about["error.type"]


async def test_nothing_that_was_said_is_in_a_span_unless_it_is_asked_for() -> None:
    @tool
    def repeat(words: str) -> str:
        return words

    @tool
    def fails(words: str) -> str:
        raise ValueError(words)

    for content in (False, True):
        world = World(content=content, tools=[repeat, fails], limits=ToolLimits(seconds=5))
        first = calling(("repeat", {"words": SECRET}), ("fails", {"words": SECRET}), text=SECRET)
        step = await world.conversation.step(Scripted(first))
        await world.conversation.run_tools(step.calls)
        await world.conversation.step(Scripted(saying(SECRET)))
        with pytest.raises(NetworkError):
            await world.conversation.step(Scripted([NetworkError(SECRET)]))
        everything = "".join(span.to_json() for span in world.raw)

        assert content is (SECRET in everything)
        assert content is all(SECRET in span.to_json() for span in world.raw)


async def test_parts_that_nobody_reads_are_left_out() -> None:
    world = World(content=True)
    thinking = [{"choices": [{"delta": {"reasoning_content": "hm"}}]}, *saying("yes")]
    await world.conversation.step(Scripted(thinking))
    await world.conversation.step(Scripted(saying("x")))

    asked = json.loads(world.spans[1][1]["gen_ai.input.messages"])
    kinds = [part["type"] for part in asked[1]["parts"]]
    assert {"reasoning", "text"} == set(kinds)


async def test_content_is_written_as_the_conventions_have_it() -> None:
    @tool
    def repeat(words: str) -> str:
        """Say it again."""
        return words

    world = World(content=True, tools=[repeat])
    conversation = world.conversation
    conversation.add(system("be brief"))
    message, here = new_id(), conversation.history.view[0].id
    picture = file_part(here, message, "image/png", "data:image/png;base64,AAAA")
    away = file_part(here, message, "application/pdf", "https://example.com/a.pdf")
    conversation.add(Message("user", (picture, away), id=message))
    conversation.add(assistant("fine"))
    conversation.add(user("go"))
    step = await conversation.step(Scripted(calling(("repeat", {"words": "x"}))))
    await conversation.run_tools(step.calls)
    await conversation.step(Scripted(saying("done")))

    first, called, last = (about for _, about in world.spans)
    assert ('{"words": "x"}', "x") == (
        called["gen_ai.tool.call.arguments"],
        called["gen_ai.tool.call.result"],
    )
    assert [{"type": "text", "content": "be brief"}] == json.loads(
        first["gen_ai.system_instructions"]
    )
    assert "repeat" == json.loads(first["gen_ai.tool.definitions"])[0]["function"]["name"]
    asked = json.loads(last["gen_ai.input.messages"])
    assert {"role": "user", "parts": [{"type": "text", "content": SECRET}]} == asked[0]
    assert [
        {"type": "uri", "mime_type": "image/png", "modality": "image",
         "uri": "data:image/png;base64"},
        {"type": "uri", "mime_type": "application/pdf", "modality": "application",
         "uri": "https://example.com/a.pdf"},
    ] == asked[1]["parts"]  # fmt: skip
    call = {"type": "tool_call", "id": "call_0", "name": "repeat", "arguments": {"words": "x"}}
    assert call in asked[4]["parts"]
    result = {"type": "tool_call_response", "id": "call_0", "response": "x"}
    assert [result] == asked[5]["parts"]
    (said,) = json.loads(last["gen_ai.output.messages"])
    assert ("assistant", "stop") == (said["role"], said["finish_reason"])
    assert {"type": "text", "content": "done"} in said["parts"]


def test_nothing_is_loaded_unless_it_is_used() -> None:
    code = (
        "import sys, palaver.conversation, palaver.conversation.telemetry\n"
        "sys.exit('opentelemetry' in sys.modules)"
    )
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode


def test_without_the_package_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(PalaverError, match=r"pip install 'palaver\[otel\]'"):
        Telemetry()


async def test_a_broken_cache_is_told_with_its_cause() -> None:
    """What was expected is an attribute of every request, a break an event with its cause."""
    answers = [cached("one", 8_000, 0), cached("two", 8_200, 7_936), cached("three", 8_300, 0)]
    world, model = World(), Scripted(*answers)
    for _ in range(3):
        await world.conversation.step(model)
        world.conversation.add(user("go on"))
    first, second, third = (about for _, about in world.spans)
    assert [0, 7_936, 8_192] == [
        one["palaver.cache.expected_tokens"] for one in (first, second, third)
    ]
    assert "palaver.cache.cause" not in second
    assert ("unknown", 8_192) == (
        third["palaver.cache.cause"],
        third["palaver.cache.lost_tokens"],
    )
    assert ["palaver.cache.break"] == [event.name for event in world.raw[2].events]
