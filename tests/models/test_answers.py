"""What a model gives is what its provider sent, over the real SDK and the real protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages import ReasoningPart, ToolCallPart, new_id, system, text_part, user
from palaver.models import ModelRequest, model
from palaver.testing import PromptCache, check_request
from palaver.testing.servers import Answer, Call, ReportedUsage
from palaver.wire import spell_tool, tool_names
from tests.models.providers import PROVIDERS, TOOLS, Provider, asking, gathered

if TYPE_CHECKING:
    from palaver.messages import Message
    from palaver.testing.providers import FormatName

pytestmark = pytest.mark.anyio


def rich(provider: Provider) -> Answer:
    weather = spell_tool(provider.format, "weather.get")
    calls = (Call(weather, {"city": "Oslo"}), Call(weather, {"city": "Rome"}), Call("clock"))
    return Answer(
        "Let me see: Ö, 茶, 🫖.",
        reasoning="Two cities.",
        calls=calls,
        usage=ReportedUsage(100, 50, 40, 10),
    )


def told(message: Message) -> tuple[Any, ...]:
    calls = [(p.tool, p.input) for p in message.parts if isinstance(p, ToolCallPart)]
    tokens = getattr(message.info, "tokens", None)
    assert tokens is not None
    return message.text, calls, tokens.input, tokens.cache.read, tokens.output + tokens.reasoning


EXPECTED = (
    "Let me see: Ö, 茶, 🫖.",
    [("weather.get", {"city": "Oslo"}), ("weather.get", {"city": "Rome"}), ("clock", {})],
    60,
    40,
    50,
)


async def test_a_stream_folds_into_the_answer(provider: Provider) -> None:  # CV-02
    ask = ModelRequest(provider.body, TOOLS)
    async with asking(provider, rich(provider)) as (asked, server):
        fold = wire.reply_reader(
            provider.format, model=asked.ref, names=tool_names(provider.format, TOOLS)
        )
        for event in await gathered(asked, ask):
            fold.feed(event)
        assert [] == server.failures
    message = fold.message()
    assert told(message) == EXPECTED
    assert "Two cities." in "".join(p.text for p in message.parts if isinstance(p, ReasoningPart))


async def test_a_whole_answer_is_the_same(provider: Provider) -> None:  # CV-02
    async with asking(provider, rich(provider)) as (asked, server):
        answer = await asked.complete(ModelRequest(provider.body, TOOLS))
        assert [] == server.failures
    names = tool_names(provider.format, TOOLS)
    message = wire.reply(provider.format, answer, model=asked.ref, names=names)
    assert told(message) == EXPECTED


async def test_the_body_goes_out_as_it_was_given(provider: Provider) -> None:
    async with asking(provider, "Yes.") as (asked, server):
        await gathered(asked, provider.ask())
        sent = server.requests[0].body
    assert dict(provider.body) == {name: sent[name] for name in provider.body}


async def test_options_are_spelled_as_the_provider_wants_them(provider: Provider) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    closed = {**schema, "additionalProperties": False}
    wants: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 70, "schema": schema}
    async with asking(provider, "Yes.") as (asked, server):
        await asked.complete(provider.ask(**wants))
        sent = server.requests[0].body
        assert [] == server.failures
    expected: dict[str, dict[str, Any]] = {
        "openai-chat": {
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 70,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": schema},
            },
        },
        "openai-responses": {
            "temperature": 0.5,
            "top_p": 0.9,
            "max_output_tokens": 70,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "text": {"format": {"type": "json_schema", "name": "answer", "schema": schema}},
        },
        "anthropic": {
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 70,
            "output_config": {"format": {"type": "json_schema", "schema": closed}},
        },
        "gemini": {
            "generationConfig": {
                "temperature": 0.5,
                "topP": 0.9,
                "maxOutputTokens": 70,
                "responseMimeType": "application/json",
                "responseJsonSchema": schema,
            }
        },
    }
    fields = expected[provider.format]
    assert fields == {name: sent.get(name) for name in fields}


@pytest.mark.parametrize("choice", ["auto", "none", "required", "weather.get"])
async def test_a_choice_of_tools_is_spelled_as_the_provider_wants_it(
    provider: Provider, choice: str
) -> None:
    async with asking(provider, "Yes.") as (asked, server):
        await asked.complete(ModelRequest(provider.body, TOOLS, options={"tool_choice": choice}))
        sent = server.requests[0].body
        assert [] == server.failures
    spelled = spell_tool(provider.format, "weather.get")
    special = choice == "weather.get"
    google: dict[str, Any] = {"mode": {"auto": "AUTO", "none": "NONE"}.get(choice, "ANY")}
    if special:
        google["allowedFunctionNames"] = [spelled]
    claude = {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}}
    expected: dict[str, Any] = {
        "openai-chat": {"type": "function", "function": {"name": spelled}} if special else choice,
        "openai-responses": {"type": "function", "name": spelled} if special else choice,
        "anthropic": claude.get(choice, {"type": "tool", "name": spelled}),
        "gemini": {"functionCallingConfig": google},
    }
    assert expected[provider.format] == sent.get("tool_choice", sent.get("toolConfig"))


async def test_a_choice_without_tools_says_nothing(provider: Provider) -> None:
    async with asking(provider, "Yes.") as (asked, server):
        await asked.complete(provider.ask(tool_choice="auto"))
        assert {"tool_choice", "toolConfig", "tools"}.isdisjoint(server.requests[0].body)


async def test_stop_sequences_go_where_there_are_any(provider: Provider) -> None:
    async with asking(provider, "Yes.", "Yes.") as (asked, server):
        if provider.format == "openai-responses":
            with pytest.raises(ValidationError, match="no stop sequences"):
                await asked.complete(provider.ask(stop=["END"]))
            return
        await asked.complete(provider.ask(stop=["END"]))
        await asked.complete(provider.ask(stop="END"))
        sent = [request.body for request in server.requests]
    found = [
        body.get("stop", body.get("stop_sequences"))
        or body.get("generationConfig", {}).get("stopSequences")
        for body in sent
    ]
    alone = "END" if provider.format == "openai-chat" else ["END"]
    assert [["END"], alone] == found


async def test_a_providers_own_fields_go_beside_the_others(provider: Provider) -> None:
    extras: dict[str, dict[str, Any]] = {
        "openai-chat": {"seed": 7},
        "openai-responses": {"truncation": "auto"},
        "anthropic": {"top_k": 5},
        "gemini": {"generationConfig": {"topK": 5}},
    }
    extra = extras[provider.format]
    async with asking(provider, "Yes.") as (asked, server):
        await asked.complete(provider.ask(max_tokens=9, extra=extra))
        sent = server.requests[0].body
    name = next(iter(extra))
    both = {"maxOutputTokens": 9, "topK": 5} if provider.format == "gemini" else extra[name]
    assert both == sent[name]


async def test_openai_itself_gets_the_new_name_of_the_limit() -> None:
    asked: Any = model("openai:gpt-5")
    request = asked.request(PROVIDERS[0].ask(max_tokens=9))
    assert 9 == request["max_completion_tokens"]


@pytest.mark.parametrize(
    ("cache", "mark"),
    [
        ({}, {"type": "ephemeral"}),
        ({"cache": "5m"}, {"type": "ephemeral"}),
        ({"cache": "1h"}, {"type": "ephemeral", "ttl": "1h"}),
    ],
)
def test_anthropic_always_gets_a_limit_and_breakpoints(
    cache: dict[str, Any], mark: dict[str, str]
) -> None:
    asked: Any = model("anthropic:claude", **cache)
    request = ModelRequest({"system": "Hi.", **PROVIDERS[2].body}, tools=TOOLS, cache_key="tea")
    sent = asked.request(request)
    ends = [sent["tools"][-1], sent["system"][-1], sent["messages"][-1]["content"][-1]]
    assert 8_192 == sent["max_tokens"]
    assert [mark] * 3 == [end["cache_control"] for end in ends]


def test_a_request_of_no_conversation_has_breakpoints_after_what_others_begin_with_too() -> None:
    asked: Any = model("anthropic:claude")
    sent = asked.request(ModelRequest({"system": "Hi.", **PROVIDERS[2].body}, tools=TOOLS))
    assert PROVIDERS[2].body["messages"] == sent["messages"]
    assert all("cache_control" in end for end in (sent["tools"][-1], sent["system"][-1]))


def test_anthropic_gets_no_breakpoints_that_are_not_wanted() -> None:
    own = {"extra": {"cache_control": {"type": "ephemeral"}}}
    for made, options in (({"cache": False}, {}), ({}, own)):
        asked: Any = model("anthropic:claude", **made)
        assert (
            PROVIDERS[2].body["messages"] == asked.request(PROVIDERS[2].ask(**options))["messages"]
        )


@pytest.mark.parametrize("name", ["openai:gpt-5", "responses:gpt-5"])
def test_openai_is_told_which_requests_belong_to_one_family(name: str) -> None:
    request = ModelRequest(PROVIDERS[0].body, cache_key="tea")
    if name.startswith("responses"):
        request = ModelRequest(PROVIDERS[1].body, cache_key="tea")
    asked: Any = model(name, api_key="k")
    assert "tea" == asked.request(request)["prompt_cache_key"]
    elsewhere: Any = model(name, base_url="http://127.0.0.1:9/v1")
    assert "prompt_cache_key" not in elsewhere.request(request)


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize(
    ("form", "name"), [("openai-chat", "openai"), ("openai-responses", "responses")]
)
def test_newer_models_of_openai_keep_the_system_text_cached_whatever_follows(
    form: FormatName, name: str, *, parts: bool
) -> None:
    """They match only at breakpoints; older ones get none, nor do other servers."""
    words = "Be brief. " * 1_000
    head = system([text_part(new_id(), new_id(), words)]) if parts else system(words)
    cache = PromptCache(form)
    for at, said in enumerate(("Tea?", "Coffee?")):
        body = wire.to(form, [head, user(said)]).body
        asked: Any = model(f"{name}:gpt-5.6-mini", api_key="k")
        sent = asked.request(ModelRequest(body, tools=TOOLS))
        assert () == check_request(form, sent)
        assert (at == 1) == (cache.request(sent, at=at).read > 2_400)
        for other in ({"api_key": "k"}, {"base_url": "http://127.0.0.1:9/v1"}):
            older: Any = model(f"{name}:gpt-5{'.1' if 'api_key' in other else '.6'}", **other)
            assert "prompt_cache_breakpoint" not in str(older.request(ModelRequest(body)))
    alone: Any = model(f"{name}:gpt-5.6", api_key="k")
    asking = wire.to(form, [user("Tea?")]).body
    assert "prompt_cache_breakpoint" not in str(alone.request(ModelRequest(asking)))


async def test_a_signature_of_google_comes_back_to_the_letter() -> None:
    calls = (Call("clock"),)
    async with asking(PROVIDERS[3], Answer(calls=calls)) as (asked, _):
        answer = await asked.complete(ModelRequest(PROVIDERS[3].body, TOOLS))
    # bytes that plain base64 and the one for addresses spell differently
    assert "++++////MQ==" == answer["candidates"][0]["content"]["parts"][0]["thoughtSignature"]


async def test_one_model_serves_one_event_loop_after_the_other(provider: Provider) -> None:
    """Connections of a loop that has ended are not used again."""
    async with asking(provider, "One.", "Two.") as (asked, server):
        first = await asked.complete(provider.ask())
        await asked.close()
        second = await asked.complete(provider.ask())
        assert first != second
        assert 2 == len(server.requests)
