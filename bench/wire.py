"""Writing a conversation for a provider, beside LangChain's and pydantic-ai's own conversion.

Every contender gets the same conversation in its own messages and must come to the same request;
what each of them checks or repairs on the way is its own business. Then one message more: the
floor is what that message costs where it is the only one.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from typing import TYPE_CHECKING, Any, Final

from bench.harness import AtLeast, AtMost, Row, Run, against_floor, against_peer, paired
from bench.turns import for_langchain, for_palaver, turns
from palaver import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.turns import Said
    from palaver.messages import Message

    Convert = Callable[[], list[Any]]

__all__ = ["rows"]

_COUNT: Final = 10_000
_STEPS: Final = 500
_BARE: Final = "pydantic-ai without repairs"
_NAMES: Final = {"openai-chat": "OpenAI Chat", "anthropic": "Anthropic"}


def rows(run: Run) -> Iterator[Row]:
    """Whole conversations against peers, and one more message against that message alone."""
    said = turns(_COUNT + 1)  # the last one is a question: a request ends with the user
    messages = for_palaver(said)
    rounds = run.rounds(9)
    for form in _NAMES:
        for peer, convert in _peers(form, said):
            ours = _ours(form, messages)
            assert _alike(ours()) == _alike(convert())
            took = paired(rounds, _ready(ours), _ready(convert), time.process_time, repeats=5)
            yield against_peer(
                f"write {_COUNT:,} messages for {_NAMES[form]}, against {peer}", *took, n=_COUNT,
                goal=None if peer == _BARE else AtLeast(5),
                note=f"peer: {peer}; the same request from both",
            )  # fmt: skip
    for form in _NAMES:
        yield _one_more(form, messages, rounds)


def _ready(convert: Convert) -> Callable[[int], Convert]:
    return lambda _number: convert


def _ours(form: str, messages: Sequence[Message]) -> Convert:
    return lambda: wire.to(form, messages).items


def _peers(form: str, said: Sequence[Said]) -> Iterator[tuple[str, Convert]]:
    """What each peer does between its messages and the SDK: there is no public way to it."""
    given = for_langchain(said)
    if form == "openai-chat":
        openai: Any = importlib.import_module("langchain_openai")
        model = openai.ChatOpenAI(model="gpt-5", api_key="none")
    else:
        anthropic: Any = importlib.import_module("langchain_anthropic")
        model = anthropic.ChatAnthropic(model="claude-opus-4-5", api_key="none")
    yield "LangChain", lambda: model._get_request_payload(given)["messages"]  # noqa: SLF001
    whole, bare = _mapping(form, _for_pydantic(said))
    yield "pydantic-ai", whole
    yield _BARE, bare


def _mapping(form: str, asked: list[Any]) -> tuple[Convert, Convert]:
    """What an agent of pydantic-ai does for a request: repair, prepare, map; and the last alone."""
    options: Any = importlib.import_module("pydantic_ai.models").ModelRequestParameters()
    repair: Any = importlib.import_module("pydantic_ai.messages").repair_messages
    run = asyncio.new_event_loop().run_until_complete
    if form == "openai-chat":
        openai: Any = importlib.import_module("pydantic_ai.models.openai")
        owner: Any = importlib.import_module("pydantic_ai.providers.openai")
        model = openai.OpenAIChatModel("gpt-5", provider=owner.OpenAIProvider(api_key="none"))

        def mapped(messages: list[Any]) -> Any:  # noqa: ANN401 - JSON
            return run(model._map_messages(messages, options))  # noqa: SLF001
    else:
        anthropic: Any = importlib.import_module("pydantic_ai.models.anthropic")
        maker: Any = importlib.import_module("pydantic_ai.providers.anthropic")
        provider = maker.AnthropicProvider(api_key="none")
        model = anthropic.AnthropicModel("claude-opus-4-5", provider=provider)

        def mapped(messages: list[Any]) -> Any:  # noqa: ANN401 - JSON
            return run(model._map_message(messages, options, {}))[1]  # noqa: SLF001

    return (
        lambda: mapped(model.prepare_messages(repair(asked), options)),
        lambda: mapped(asked),
    )


def _for_pydantic(said: Sequence[Said]) -> list[Any]:
    """As pydantic-ai's messages."""
    kinds: Any = importlib.import_module("pydantic_ai.messages")

    def message(one: Said) -> Any:  # noqa: ANN401 - a peer's type, unknown here
        if one.role == "user":
            return kinds.ModelRequest([kinds.UserPromptPart(one.text)])
        if one.role == "tool" and one.call is not None:
            result = kinds.ToolReturnPart(one.call.tool, one.text, tool_call_id=one.call.id)
            return kinds.ModelRequest([result])
        parts = [kinds.TextPart(one.text)]
        if one.call is not None:
            parts.append(kinds.ToolCallPart(one.call.tool, one.call.input, one.call.id))
        return kinds.ModelResponse(parts)

    return [message(one) for one in said]


def _alike(elements: list[Any]) -> Any:  # noqa: ANN401 - JSON
    """A request without what has two spellings: text alone or as a block, spaces in JSON."""
    return [_plain(json.loads(json.dumps(element))) for element in elements]


def _plain(element: Any) -> Any:  # noqa: ANN401 - JSON
    content = element.get("content")
    if isinstance(content, str):
        element["content"] = [{"type": "text", "text": content}]
    for block in element["content"]:
        if block["type"] == "tool_result":
            block.setdefault("is_error", False)
            block["content"] = _plain({"content": block["content"]})["content"]
    for call in element.get("tool_calls", ()):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return element


def _one_more(form: str, messages: list[Message], rounds: int) -> Row:
    """`request()` after each of the next messages, against a converter that sees only that one."""
    more = messages[:_STEPS]

    def grown(_number: int) -> Callable[[], object]:
        converter = wire.converter(form)
        converter.extend(messages)
        converter.request()

        def go() -> None:
            for message in more:
                converter.extend([message])
                converter.request()

        return go

    def alone(_number: int) -> Callable[[], object]:
        def go() -> None:
            for message in more:
                converter = wire.converter(form)
                converter.extend([message])
                converter.request()

        return go

    ours, floor = paired(rounds, grown, alone, time.process_time)
    return against_floor(
        f"one message after {_COUNT:,} for {_NAMES[form]}", ours / _STEPS * 1e3,
        floor / _STEPS * 1e3, n=_COUNT, unit="µs", goal=AtMost(2),
        note="floor: the same message alone, with a new converter",
    )  # fmt: skip
