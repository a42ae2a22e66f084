"""The models of an agent: names, clients, options, structured answers, and what is refused."""

from __future__ import annotations

import base64
import json
import os
import re
import struct
import subprocess
import sys
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    get_args,
    get_type_hints,
)

import annotated_types
import anthropic
import anyio
import anyio.lowlevel
import httpx2
import msgspec
import openai
import pydantic
import pytest
from anthropic.lib.bedrock import AsyncAnthropicBedrock
from anthropic.lib.vertex import AsyncAnthropicVertex
from click.testing import CliRunner
from google import genai
from google.oauth2.credentials import Credentials

import palaver
from palaver import Conversation, tool
from palaver.cli.app import app
from palaver.errors import (
    AuthError,
    BadAnswer,
    ContentFiltered,
    ModelError,
    NetworkError,
    Unavailable,
    ValidationError,
)
from palaver.messages import new_id, tool_call_part
from palaver.models import ModelRequest, RetryPolicy
from palaver.testing.servers import Answer, Call, ProviderServer, Refusal, Silence
from tests.markdown import blocks
from tests.models.conftest import keys, provider, smollm2
from tests.models.providers import PROVIDERS, Provider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver import Store
    from palaver.models import ClosingModel, Model
    from palaver.testing.providers import FormatName
    from palaver.testing.servers import Exchange, Scripted

__all__ = ["keys", "provider", "smollm2"]  # fixtures

pytestmark = pytest.mark.anyio
ROOT: Final = Path(__file__).resolve().parents[2]
COLD: Final = '{"coat": true, "degrees": -3}'


@dataclass
class Forecast:
    """What is to be worn."""

    coat: bool
    degrees: int


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"Snow in {city}."


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with palaver.open(tmp_path / "chat.db") as opened:
        yield opened


def asked(provider: Provider, server: ProviderServer, **more: Any) -> ClosingModel:  # noqa: ANN401
    given = {"base_url": server.url, "retries": RetryPolicy(shortest=0.01), **more}
    return palaver.model(provider.name, **given)


# ── the ten lines ───────────────────────────────────────────────────────────────────────────────

ADDRESSES: Final = {
    "openai": "OPENAI_BASE_URL",
    "anthropic": "ANTHROPIC_BASE_URL",
    "google": "GOOGLE_GEMINI_BASE_URL",
}


def ten_lines(readme: str) -> str:
    """The agent of README, which has only the name of its model changed."""
    found = blocks((ROOT / readme).read_text("utf-8"))
    (code,) = [one.code for one in found if "ask_sync" in one.code]
    lines = [line for line in code.splitlines() if line]
    assert 10 >= len(lines)
    return code


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_ten_lines_run_with_every_provider(
    readme: str,
    provider: Provider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = ten_lines(readme)
    call = Answer(calls=(Call("weather", {"city": "Oslo"}),))
    monkeypatch.chdir(tmp_path)
    with ProviderServer(provider.format, [call, "Take a coat."]) as server:
        monkeypatch.setenv(ADDRESSES[provider.id], server.url)
        exec(code.replace("local:smollm2", provider.name), {"__name__": "example"})  # noqa: S102
        assert ([], 2) == (server.failures, len(server.requests))
        assert "Snow in Oslo" in json.dumps(server.requests[1].body)
    assert "Take a coat.\n" == capsys.readouterr().out


@pytest.mark.usefixtures("smollm2")
def test_the_ten_lines_run_with_the_embedded_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    exec(ten_lines("README.md"), names)  # noqa: S102 - our own docs
    assert "Oslo" in capsys.readouterr().out
    answer = names["answer"]
    assert ("stop", 1) == (answer.message.info.finish, answer.text.count("."))  # not cut off


# ── options ─────────────────────────────────────────────────────────────────────────────────────

SENT: Final[dict[str, dict[str, Any]]] = {
    "openai-chat": {"temperature": 0, "max_tokens": 70, "reasoning_effort": "low"},
    "openai-responses": {
        "temperature": 0,
        "max_output_tokens": 70,
        "reasoning": {"effort": "low"},
    },
    "anthropic": {"temperature": 0, "max_tokens": 70, "output_config": {"effort": "low"}},
    "gemini": {
        "generationConfig": {
            "temperature": 0,
            "maxOutputTokens": 70,
            "thinkingConfig": {"thinkingLevel": "LOW"},
        }
    },
}


async def test_a_model_has_default_options(provider: Provider, store: Store) -> None:
    with ProviderServer(provider.format, ["One.", "Two."]) as server:
        options: dict[str, Any] = {"temperature": 0, "max_tokens": 70, "effort": "low"}
        whole: Any = asked(provider, server, **options, extra={"x": {"a": 1}})
        assert {**options, "extra": {"x": {"a": 1}}} == whole.defaults
        assert {"a": 1, "b": 2} == whole.request(provider.ask(extra={"x": {"b": 2}}))["x"]
        async with asked(provider, server, **options) as model:
            talk = Conversation(store, model=model)
            await talk.ask("Tea?")
            await talk.ask("Tea?", options={"temperature": 1, "effort": None})
        assert [] == server.failures
        first, second = [exchange.body for exchange in server.requests]
    expected = SENT[provider.format]
    assert expected == {name: first.get(name) for name in expected}
    text = json.dumps(second)
    assert '"temperature": 1' in text
    assert "70" in text
    assert "low" not in text.lower()


@pytest.mark.usefixtures("smollm2")
def test_the_embedded_model_has_default_options_too() -> None:
    model: Any = palaver.model("local:smollm2", temperature=0.5, stop="x")
    body = model.request(ModelRequest({"messages": []}, options={"stop": None}))
    assert (0.5, 120, None) == (body["temperature"], body["max_tokens"], body.get("stop"))


BESIDE: Final[dict[str, Any]] = {
    "api_key": "k",
    "base_url": "http://localhost",
    "http_client": httpx2.AsyncClient,
}
WRONG: Final[list[tuple[str, dict[str, Any], str]]] = [
    ("openai:x", {"temperature": "hot"}, r"^\$\.temperature: must be a number from 0 on, not 'ho"),
    ("openai:x", {"temperature": -1}, r"^\$\.temperature: must be a number from 0 on, not -1"),
    ("openai:x", {"temperature": True}, r"^\$\.temperature: must be a number from 0 on, not True"),
    ("openai:x", {"top_p": 2}, r"^\$\.top_p: must be a number from 0 to 1, not 2"),
    ("openai:x", {"max_tokens": 0}, r"^\$\.max_tokens: must be a whole number from 1 on, not 0"),
    ("openai:x", {"max_tokens": 1.5}, r"^\$\.max_tokens: must be a whole number"),
    ("openai:x", {"stop": [""]}, r"^\$\.stop: must be text or a list of texts, none of them empty"),
    ("openai:x", {"effort": "hard"}, r"^\$\.effort: must be one of none, minimal, low, .*'hard'"),
    ("openai:x", {"schema": Forecast}, r"^\$\.schema: must be a JSON schema.*the class Forecast"),
    ("openai:x", {"extra": []}, r"^\$\.extra: must be an object with fields of the provider's own"),
    ("openai:x", {"tool_choice": "auto"}, r"^\$\.tool_choice: can't be a default.*to a question"),
    ("responses:x", {"stop": "."}, r"^\$\.stop: the Responses API has no stop sequences"),
    ("anthropic:x", {"effort": "none"}, r"^\$\.effort: anthropic has no effort 'none'; it has low"),
    ("gemini:x", {"effort": "max"}, r"^\$\.effort: google has no effort 'max'; it has minimal"),
    ("local:smollm2", {"effort": "low"}, r"^\$\.effort: a model on this machine has no reasoning"),
    ("openai:x", {"base_url": "localhost:80"}, r"^\$\.base_url: must be an address such as https:"),
    ("openai:x", {"base_url": "http://[::"}, r"^\$\.base_url: must be an address such as https:"),
    ("openai:x", {"base_url": 80}, r"^\$\.base_url: must be an address such as https://.*not 80"),
    ("openai:x", {"timeout": 0}, r"^\$\.timeout: must be a number from 0\.001 on, not 0"),
    ("openai:x", {"timeout": "1s"}, r"^\$\.timeout: must be a number from 0\.001 on, not '1s'"),
    ("openai:x", {"retries": -1}, r"^\$\.retries: must be a whole number from 0 on, or Retry"),
    ("openai:x", {"retries": True}, r"^\$\.retries: must be a whole number from 0 on.*not True"),
    ("openai:x", {"retries": 2.5}, r"^\$\.retries: must be a whole number from 0 on.*not 2\.5"),
    ("openai:x", {"default_headers": ["a"]}, r"^\$\.default_headers: must be an object, such as"),
    ("openai:x", {"default_headers": {"a b": "1"}}, r"^\$\.default_headers: 'a b' can't be the"),
    ("openai:x", {"default_headers": {"a": 1}}, r"^\$\.default_headers\.a: must be a text of"),
    ("openai:x", {"default_headers": {"a": "1\n"}}, r"^\$\.default_headers\.a: must be a text of"),
    ("openai:x", {"client": openai.OpenAI(api_key="k")}, r"^\$\.client: must be AsyncOpenAI\(…\)"),
    ("anthropic:x", {"client": "me"}, r"^\$\.client: must be AsyncAnthropic\(…\) or .*not 'me'"),
    ("gemini:x", {"client": 5}, r"^\$\.client: must be Client\(…\) of the provider's SDK.*not 5"),
    ("openai:x", {"http_client": httpx2.Client()}, r"^\$\.http_client: must be httpx2\.Async"),
    ("anthropic:x", {"http_client": 5}, r"^\$\.http_client: must be httpx2\.AsyncClient\(…\),"),
    ("anthropic:x", {"cache": "yes"}, r"^\$\.cache: must be True or False, '5m' or '1h', not 'y"),
    *(
        ("openai:x", {"client": openai.AsyncOpenAI, name: value}, rf"{name}: can't be given beside")
        for name, value in BESIDE.items()
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "told"), WRONG)
def test_a_wrong_argument_is_refused_where_it_is_given(
    name: str, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValidationError, match=told):
        palaver.model(name, **given)


def test_a_provider_has_the_efforts_that_its_sdk_names() -> None:
    anthropics = get_type_hints(anthropic.types.OutputConfigParam)["effort"]
    geminis = [level.value.lower() for level in genai.types.ThinkingLevel]
    expected = {
        "openai:x": get_args(get_args(openai.types.ReasoningEffort)[0]),
        "anthropic:x": get_args(get_args(anthropics)[0]),
        "gemini:x": tuple(geminis[1:]),  # without "unspecified"
    }
    models: dict[str, Any] = {name: palaver.model(name, api_key="k") for name in expected}
    assert expected == {name: model.efforts for name, model in models.items()}


@pytest.mark.parametrize("name", ["openai:x", "anthropic:x", "gemini:x", "local:smollm2"])
def test_an_unknown_argument_is_named_with_those_that_there_are(name: str) -> None:
    told = r"unexpected keyword argument 'temprature'; did you mean 'temperature'\? It takes .*stop"
    with pytest.raises(TypeError, match=told):
        palaver.model(name, temprature=1)


@pytest.mark.usefixtures("smollm2")
async def test_a_wrong_option_of_a_question_is_refused_before_it_is_stored(
    provider: Provider, store: Store
) -> None:
    talk = Conversation(store, model=provider.name)
    with pytest.raises(ValidationError, match=r"^\$\.options\.temperature: must be a number"):
        await talk.ask("Tea?", options={"temperature": "hot"})
    with pytest.raises(ValidationError, match=r"^\$\.options\.effort: must be one of"):
        await talk.ask("Tea?", options={"effort": "hard"})
    with pytest.raises(ValidationError, match="a model on this machine has no reasoning effort"):
        await talk.ask("Tea?", model="local:smollm2", options={"effort": "low"})
    assert [] == list(talk.messages)
    await talk.close()


# ── connections ─────────────────────────────────────────────────────────────────────────────────


async def test_headers_go_out_with_every_request_and_are_never_shown(provider: Provider) -> None:
    def refuse(exchange: Exchange) -> Refusal:
        return Refusal(400, f"bad header {exchange.headers['x-team']}")

    headers = {"X-Team": "the-tea-people"}
    with ProviderServer(provider.format, [refuse, "Yes."]) as server:
        async with asked(provider, server, default_headers=headers) as model:
            with pytest.raises(ModelError, match="bad header …"):
                await model.complete(provider.ask())
            await model.complete(provider.ask())
        assert ["the-tea-people"] * 2 == [one.headers["x-team"] for one in server.requests]


async def test_a_number_of_retries_is_enough(provider: Provider) -> None:
    with ProviderServer(provider.format, [Refusal(503), "Yes.", Refusal(503)]) as server:
        async with asked(provider, server, retries=1) as model:
            await model.complete(provider.ask())
        async with asked(provider, server, retries=0) as model:
            with pytest.raises(Unavailable):
                await model.complete(provider.ask())
        assert 3 == len(server.requests)


async def test_a_time_limit_is_that_of_the_model_or_else_of_its_client(provider: Provider) -> None:
    makers: dict[str, Callable[..., Any]] = {
        "openai": lambda url: openai.AsyncOpenAI(base_url=url, timeout=0.2, max_retries=5),
        "anthropic": lambda url: anthropic.AsyncAnthropic(base_url=url, timeout=0.2, max_retries=5),
        "google": lambda url: genai.Client(
            http_options=genai.types.HttpOptions(base_url=url, timeout=200)
        ),
    }
    with ProviderServer(provider.format, [Silence(), Silence(), Silence()]) as server:
        async with asked(provider, server, timeout=0.2) as model:
            with pytest.raises(NetworkError, match=r"nothing came within 0\.2 s"):
                await model.complete(provider.ask())
        make = partial(makers[provider.id], server.url)
        async with palaver.model(provider.name, client=make) as model:
            with pytest.raises(NetworkError, match="nothing came within the time that its client"):
                await model.complete(provider.ask())
        async with palaver.model(provider.name, client=make, timeout=0.1) as model:
            with pytest.raises(NetworkError, match=r"nothing came within 0\.1 s"):
                await model.complete(provider.ask())
        assert 3 == len(server.requests)  # the SDK's own retries are off


async def test_an_http_client_is_used_and_stays_open(provider: Provider) -> None:
    seen: list[httpx2.Request] = []

    async def look(request: httpx2.Request) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(request)

    made: list[httpx2.AsyncClient] = []

    def make() -> httpx2.AsyncClient:
        made.append(httpx2.AsyncClient(event_hooks={"request": [look]}))
        return made[-1]

    with ProviderServer(provider.format) as server:
        async with make() as own:
            async with asked(provider, server, http_client=own) as model:
                await model.complete(provider.ask())
            assert (1, False) == (len(seen), own.is_closed)
        async with asked(provider, server, http_client=make) as model:
            await model.complete(provider.ask())
            assert (2, False) == (len(seen), made[-1].is_closed)
        assert made[-1].is_closed
        async with asked(provider, server, http_client=lambda: 5) as model:
            with pytest.raises(ModelError, match=r"http_client\(\) returned 5; expected httpx2\."):
                await model.complete(provider.ask())


def test_a_client_belongs_to_one_event_loop_and_a_function_to_none(tmp_path: Path) -> None:
    with ProviderServer("openai-chat", ["One.", "Two."]) as server:
        nowhere = httpx2.MockTransport(lambda _: httpx2.Response(401))
        client = openai.AsyncOpenAI(
            api_key="any", http_client=httpx2.AsyncClient(transport=nowhere)
        )
        talk = Conversation(tmp_path / "a.db", model=palaver.model("openai:x", client=client))
        with pytest.raises(AuthError):
            talk.ask_sync("Tea?")
        told = r"client was used in another event loop.*: client=lambda: AsyncOpenAI\(…\)"
        with pytest.raises(ModelError, match=told):
            talk.ask_sync("Tea?")
        talk.model = palaver.model(
            "openai:x", client=lambda: openai.AsyncOpenAI(base_url=server.url, api_key="any")
        )
        assert "One." == talk.ask_sync("Tea?").text
        assert "Two." == talk.ask_sync("Tea?").text
        talk.store.close()


async def test_a_server_that_speaks_the_protocol_needs_a_url_and_no_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with ProviderServer("openai-chat", ["Yes."]) as server:
        async with palaver.model("openai:llama3:8b", base_url=server.url, max_tokens=9) as model:
            assert "Yes." == (await Conversation(store, model=model).ask("Tea?")).text
        (exchange,) = server.requests
    assert ("llama3:8b", 9) == (exchange.body["model"], exchange.body["max_tokens"])


# ── clouds: the SDKs' own clients ───────────────────────────────────────────────────────────────


class Cloud(httpx2.AsyncHTTPTransport):
    """The way to a cloud: what arrives there is noted, and answered by a strict server."""

    def __init__(self, server: ProviderServer, path: str, model: str) -> None:
        super().__init__()
        self._url = httpx2.URL(server.url).join(path)
        self._model = model
        self.seen: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.append(request)
        body = json.loads(await request.aread())
        body.pop("anthropic_version", None)
        if self._model:
            body["model"] = self._model
        keys = {"authorization": "Bearer k", "x-api-key": "k", "x-goog-api-key": "k"}
        kept = {"anthropic-version": "2023-06-01", "content-type": "application/json"}
        return await super().handle_async_request(
            httpx2.Request(
                "POST",
                self._url,
                headers={**keys, **kept},
                content=json.dumps(body).encode(),
            )
        )


def azure(http: httpx2.AsyncClient) -> openai.AsyncAzureOpenAI:
    return openai.AsyncAzureOpenAI(
        azure_endpoint="https://tea.openai.azure.com",
        api_version="2025-04-01-preview",
        api_key="a-key-of-azure",
        http_client=http,
    )


def vertex(http: httpx2.AsyncClient) -> AsyncAnthropicVertex:
    return AsyncAnthropicVertex(
        region="europe-west1",
        project_id="tea",
        access_token="a-token",  # noqa: S106 - of nobody
        http_client=http,
    )


def bedrock(http: httpx2.AsyncClient) -> AsyncAnthropicBedrock:
    return AsyncAnthropicBedrock(
        aws_region="eu-west-1", api_key="a-key-of-bedrock", http_client=http
    )


def gemini_on_vertex(http: httpx2.AsyncClient) -> genai.Client:
    return genai.Client(
        enterprise=True,
        project="tea",
        location="europe-west1",
        credentials=Credentials(token="a-token"),  # type: ignore[no-untyped-call]  # noqa: S106
        http_options=genai.types.HttpOptions(httpx_async_client=http),
    )


VERTEX = "https://europe-west1-aiplatform.googleapis.com"
PROJECT = "projects/tea/locations/europe-west1"
CHAT = "/v1/chat/completions"
GOOGLE = "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
CLOUDS: Final[dict[str, tuple[str, Callable[..., Any], FormatName, str, str]]] = {
    "Azure OpenAI, Chat Completions": (
        "openai:gpt-5", azure, "openai-chat", CHAT,
        "https://tea.openai.azure.com/openai/deployments/gpt-5/chat/completions?api-version=2025",
    ),
    "Azure OpenAI, Responses": (
        "responses:gpt-5", azure, "openai-responses", "/v1/responses",
        "https://tea.openai.azure.com/openai/responses?api-version=2025",
    ),
    "Claude on Vertex": (
        "anthropic:claude", vertex, "anthropic", "/v1/messages",
        f"{VERTEX}/v1/{PROJECT}/publishers/anthropic/models/claude:streamRawPredict",
    ),
    "Gemini on Vertex": (
        "gemini:gemini-3-pro", gemini_on_vertex, "gemini", GOOGLE,
        f"{VERTEX}/v1beta1/{PROJECT}/publishers/google/models/gemini-3-pro:streamGenerateContent",
    ),
}  # fmt: skip


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_cloud_is_reached_through_the_sdks_own_client(cloud: str, store: Store) -> None:
    name, make, form, path, url = CLOUDS[cloud]
    call = Answer(calls=(Call("weather", {"city": "Oslo"}),))
    with ProviderServer(form, [call, "Take a coat."]) as server:
        way = Cloud(server, path, "" if form == "gemini" else name.partition(":")[2])
        given = {"default_headers": {"X-Team": "tea"}, "max_tokens": 9}
        async with httpx2.AsyncClient(transport=way) as http:
            model = palaver.model(name, client=make(http), **given)
            answer = await Conversation(store, model=model, tools=[weather]).ask("Oslo?")
        assert ("Take a coat.", []) == (answer.text, server.failures)
        assert [] == [one.url for one in way.seen if not str(one.url).startswith(url)]
        assert ["tea"] * 2 == [one.headers["x-team"] for one in way.seen]
        if form == "openai-chat":
            assert 9 == server.requests[0].body["max_completion_tokens"]


async def test_bedrock_is_reached_and_says_what_its_streams_need(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProviderServer("anthropic", ["Yes.", Refusal(403, "no: a-key-of-bedrock")]) as server:
        way = Cloud(server, "/v1/messages", "claude")
        async with httpx2.AsyncClient(transport=way) as http:
            model = palaver.model("anthropic:claude", client=bedrock(http))
            answer = await model.complete(PROVIDERS[2].ask())
            assert "Yes." == answer["content"][0]["text"]
            url = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/claude/invoke"
            assert [url] == [str(one.url) for one in way.seen]
            with pytest.raises(ModelError, match="no: …"):
                await model.complete(PROVIDERS[2].ask())
            for missing in ("botocore", "botocore.parsers", "boto3"):
                monkeypatch.setitem(sys.modules, missing, None)
            with pytest.raises(ModelError, match=r"pip install 'palaver\[bedrock\]'"):
                await Conversation(store, model=model).ask("Tea?")


class EventStream(Cloud):
    """Bedrock's way to stream: Anthropic's events, each in a message of AWS's own binary form."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = {**json.loads(await request.aread()), "stream": True}
        asked = httpx2.Request("POST", request.url, content=json.dumps(body).encode())
        answer = await super().handle_async_request(asked)
        lines = (await answer.aread()).decode().splitlines()
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return httpx2.Response(200, content=b"".join(map(self.frame, data)))

    @staticmethod
    def frame(data: str) -> bytes:
        """Return an event as a message: lengths, their checksum, headers, payload, checksum."""
        payload = json.dumps({"bytes": base64.b64encode(data.encode()).decode()}).encode()
        pairs = {b":event-type": b"chunk", b":message-type": b"event"}
        headers = b"".join(
            bytes([len(name)]) + name + b"\x07" + len(value).to_bytes(2, "big") + value
            for name, value in pairs.items()
        )
        sizes = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
        head = sizes + struct.pack(">I", zlib.crc32(sizes)) + headers + payload
        return head + struct.pack(">I", zlib.crc32(head))


async def test_bedrock_streams(store: Store) -> None:
    call = Answer(calls=(Call("weather", {"city": "Oslo"}),))
    with ProviderServer("anthropic", [call, "Take a coat."]) as server:
        way = EventStream(server, "/v1/messages", "claude")
        async with httpx2.AsyncClient(transport=way) as http:
            model = palaver.model("anthropic:claude", client=bedrock(http))
            talk = Conversation(store, model=model, tools=[weather])
            assert "Take a coat." == (await talk.ask("Oslo?")).text
        assert ([], 2) == (server.failures, len(way.seen))


async def test_vertex_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    monkeypatch.delattr("google.auth")
    client = AsyncAnthropicVertex(region="europe-west1", project_id="tea")
    async with palaver.model("anthropic:claude", client=client) as model:
        with pytest.raises(ModelError, match=r"pip install 'palaver\[vertex\]'"):
            await model.complete(PROVIDERS[2].ask())


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("adapters.langchain", "langchain_core", "langchain"),
        ("adapters.langgraph", "langgraph", "langgraph"),
        ("adapters.openai_agents", "agents", "openai-agents"),
        ("adapters.pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("adapters.claude_agent_sdk", "claude_agent_sdk", "claude-agent-sdk"),
        ("nodes.langgraph", "langgraph", "langgraph"),
        ("mcp.server", "mcp", "mcp"),
        ("server", "litestar", "server"),
    ],
)
def test_an_extra_that_is_missing_is_named_with_its_command(
    module: str, package: str, extra: str
) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = sys.modules['langchain_core'] = None\n"
        f"import palaver.{module}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert re.fullmatch(
        rf"ModuleNotFoundError: No module named '\S+': pip install 'palaver\[{extra}\]'", last
    )


# ── answers of a type ───────────────────────────────────────────────────────────────────────────


class Layer(pydantic.BaseModel):
    """A pydantic model, with a limit, a choice and a default."""

    name: Literal["shirt", "coat"]
    warmth: int = pydantic.Field(ge=1, le=5)
    note: str | None = None


async def test_an_answer_is_a_value_on_every_format(provider: Provider, store: Store) -> None:
    call = Answer(calls=(Call("weather", {"city": "Oslo"}),))
    layers = '{"value": [{"name": "coat", "warmth": 4}]}'
    with ProviderServer(provider.format, [call, COLD, layers]) as server:
        async with asked(provider, server) as model:
            talk = Conversation(store, model=model, tools=[weather])
            assert Forecast(coat=True, degrees=-3) == await talk.ask("Oslo?", output=Forecast)
            assert [Layer(name="coat", warmth=4)] == await talk.ask("And?", output=list[Layer])
        assert ([], 3) == (server.failures, len(server.requests))
        bodies = [json.dumps(exchange.body) for exchange in server.requests]
    assert all("degrees" in body for body in bodies[:2])
    assert "warmth" in bodies[2]
    if provider.id == "openai":  # held to it where every field is required
        assert [True, True, False] == ['"strict": true' in body for body in bodies]


async def test_an_answer_that_does_not_fit_is_repaired_on_every_format(
    provider: Provider, store: Store
) -> None:
    with ProviderServer(provider.format, ["It is cold.", '{"coat": 1}', COLD]) as server:
        async with asked(provider, server) as model:
            talk = Conversation(store, model=model)
            assert -3 == (await talk.ask("Oslo?", output=Forecast)).degrees
        assert ([], 3) == (server.failures, len(server.requests))
        assert "That answer does not fit" in json.dumps(server.requests[1].body)
        assert "Expected `bool`, got `int` - at `$.coat`" in json.dumps(server.requests[2].body)


async def test_a_refusal_is_an_error_and_no_repair_on_every_format(
    provider: Provider, store: Store
) -> None:
    refusal = Answer("I can't help with that.", refused=True)
    with ProviderServer(provider.format, [refusal]) as server:
        async with asked(provider, server) as model:
            talk = Conversation(store, model=model)
            with pytest.raises(ContentFiltered, match=r"refused to answer: I can't help with that"):
                await talk.ask("How?", output=Forecast)
            whole = palaver.wire.reply(
                provider.format, await refused(model, provider, server), model=model.ref
            )
            assert "I can't help with that." == whole.text
        assert [] == server.failures
        assert 2 == len(server.requests)


async def refused(model: Model, provider: Provider, server: ProviderServer) -> Any:  # noqa: ANN401
    """The same refusal, complete and not as a stream."""
    server.then(Answer("I can't help with that.", refused=True))
    return await model.complete(provider.ask())


async def test_a_type_that_a_provider_can_not_be_held_to_is_refused_before_it_is_asked(
    store: Store,
) -> None:
    anything: Any = Any
    talk = Conversation(store, model="anthropic:claude")
    told = r"^\$\.output: Anthropic takes objects with named fields"
    with pytest.raises(ValidationError, match=told):
        await talk.ask("How many?", output=dict[str, int])
    told = r"^\$\.output: Anthropic can't hold a model to this schema: Schema must have"
    with pytest.raises(ValidationError, match=told):
        await talk.ask("How many?", output=anything)
    assert [] == list(talk.messages)
    await talk.close()


@dataclass
class Tree:
    """A type that has itself inside, and a choice without a type."""

    kind: Literal["ash", "oak"]
    age: Literal[1, 2] | None
    branches: list[Tree]


@dataclass
class Loose:
    """A type whose field is of any kind."""

    value: Any


@dataclass
class Bounded:
    """A type with a limit."""

    warmth: Annotated[int, msgspec.Meta(ge=1)]


class Open(pydantic.BaseModel, extra="allow"):
    """A type that may have fields beside its own."""

    warmth: int


class Rain(pydantic.BaseModel):
    """One of two objects that begin alike."""

    litres: int


class Snow(pydantic.BaseModel):
    """The other one."""

    litres: int


HELD: Final = [Forecast, list[Forecast], Tree, int, bool | None, str]
NOT_HELD: Final = [
    dict,
    dict[str, int],
    list,
    list[dict[str, int]],
    Layer,
    Loose,
    Bounded,
    Open,
    Any,
]


@pytest.mark.parametrize("kind", [*HELD, *NOT_HELD, list[Rain | Snow]], ids=str)
async def test_openai_holds_a_model_to_a_schema_that_leaves_nothing_open(
    kind: Any,  # noqa: ANN401 - a type
    store: Store,
) -> None:
    with ProviderServer("openai-chat", [Answer("No.", refused=True)]) as server:
        async with asked(PROVIDERS[0], server) as model:
            with pytest.raises(ContentFiltered):
                await Conversation(store, model=model).ask("Well?", output=kind)
        assert [] == server.failures
        form = server.requests[0].body["response_format"]["json_schema"]
    assert (kind in HELD) == form.get("strict", False)


async def test_an_answer_that_was_cut_off_says_so(store: Store) -> None:
    cut = Answer('{"coat": tr', finish="length")
    with ProviderServer("openai-chat", [cut] * 3) as server:
        async with asked(PROVIDERS[0], server) as model:
            with pytest.raises(BadAnswer, match="it was cut off: be shorter, or allow more"):
                await Conversation(store, model=model).ask("Oslo?", output=Forecast)


class Free(pydantic.BaseModel):
    """A type whose rule no grammar knows."""

    number: int

    @pydantic.field_validator("number")
    @classmethod
    def check(cls, number: int) -> int:
        """Refuse the first answer."""
        SEEN.append(number)
        if len(SEEN) == 1:
            msg = "that number is taken, choose another one"
            raise ValueError(msg)
        return number


SEEN: list[int] = []


@pytest.mark.usefixtures("smollm2")
async def test_the_embedded_model_gives_values_with_and_without_tools_and_repairs_them(
    store: Store,
) -> None:
    async with palaver.model("local:smollm2") as model:
        talk = Conversation(store, model=model, tools=[weather])
        cold = await talk.ask("The weather in Oslo: is a coat needed?", output=Forecast)
        assert isinstance(cold, Forecast)
        SEEN.clear()
        again = Conversation(store, model=model)
        found = await again.ask("Say a number.", output=Free)
        assert (2, SEEN[-1]) == (len(SEEN), found.number)
        assert "that number is taken" in again.messages[2].text
        with pytest.raises(BadAnswer, match="it was cut off"):
            await again.ask("And one more?", output=Free, options={"max_tokens": 3})


# ── types of tools and answers ──────────────────────────────────────────────────────────────────


class Street(pydantic.BaseModel):
    zip: Annotated[str, pydantic.Field(pattern="^[0-9]{4}$")]


@dataclass
class Parcel:
    weight: pydantic.PositiveInt
    to: Street | None = None


def count(number: pydantic.PositiveInt) -> int:
    return number


def counts(numbers: list[Annotated[int, annotated_types.Gt(0)]]) -> int:
    return sum(numbers)


def field(number: int = pydantic.Field(gt=0, description="how many")) -> int:
    return number


def parcel(parcel: Parcel) -> int:
    return parcel.weight


@pytest.mark.parametrize(
    ("function", "wrong", "right"),
    [
        (count, {"number": -1}, {"number": 1}),
        (counts, {"numbers": [1, -1]}, {"numbers": [1]}),
        (field, {"number": -1}, {"number": 1}),
        (field, {}, {"number": 1}),
        (parcel, {"parcel": {"weight": -1}}, {"parcel": {"weight": 1}}),
        (parcel, {"parcel": {"weight": 1, "to": {"zip": "x"}}}, {"parcel": {"weight": 1}}),
    ],
)
def test_no_constraint_of_an_argument_is_dropped(
    function: Callable[..., int], wrong: dict[str, Any], right: dict[str, Any]
) -> None:
    made = tool(function)

    assert 1 == made(**made.check(right))
    with pytest.raises(ValidationError):
        made.check(wrong)
    schema = json.dumps(made.spec.parameters)
    assert "exclusiveMinimum" in schema
    assert ("how many" in schema) is (function is field)


def test_meta_of_msgspec_is_refused_where_pydantic_would_ignore_it() -> None:
    def send(street: Street, number: Annotated[int, msgspec.Meta(ge=1)]) -> None: ...

    with pytest.raises(ValidationError, match=r"send can't be a tool.*Meta.*pydantic\.Field"):
        tool(send)
    with pytest.raises(ValidationError, match=r"Meta.*pydantic\.Field"):
        Conversation(":memory:", model="local:smollm2").ask_sync(
            "Tea?", output=tuple[Street, Annotated[int, msgspec.Meta(ge=1)]]
        )


def test_a_struct_with_types_of_pydantic_is_refused_where_it_is_given() -> None:
    class Sent(msgspec.Struct):
        weight: pydantic.PositiveInt

    with pytest.raises(ValidationError, match="Sent can't be the type of an answer: Unable to"):
        Conversation(":memory:", model="local:smollm2").ask_sync("How heavy?", output=Sent)


async def test_an_answer_is_held_to_pydantics_constraints_inside_a_dataclass() -> None:
    with ProviderServer("openai-chat", ['{"weight": -1}', '{"weight": 2}']) as server:
        async with palaver.model("openai:gpt-5", base_url=server.url) as gpt:
            found = await Conversation(":memory:", model=gpt).ask("How heavy?", output=Parcel)
    repair = server.requests[1].body["messages"][-1]["content"]

    assert Parcel(weight=2) == found
    assert "Input should be greater than 0 - at `$.weight`" in repair
    assert "http" not in repair


def test_a_model_is_told_what_is_wrong_with_its_arguments_and_no_more() -> None:
    with pytest.raises(ValidationError) as refused:
        tool(parcel).check({"parcel": {"weight": -1, "to": {"zip": "x"}}, "more": 1})

    assert (
        "$.arguments: Input should be greater than 0 - at `$.parcel.weight`; String should match "
        "pattern '^[0-9]{4}$' - at `$.parcel.to.zip`; Extra inputs are not permitted - at `$.more` "
        "[tool-arguments]"
    ) == str(refused.value)


async def test_pydantic_models_that_a_tool_returns_are_json_to_the_model() -> None:
    def find() -> dict[str, Any]:
        return {"streets": [Street(zip="0150")], "file": Path("a.txt")}

    def one() -> Street:
        return Street(zip="0150")

    script: list[Scripted] = [Answer(calls=(Call("find"), Call("one"))), "Found."]
    with ProviderServer("openai-chat", script) as server:
        async with palaver.model("openai:gpt-5", base_url=server.url) as gpt:
            await Conversation(":memory:", model=gpt, tools=[find, one]).ask("Where?")
    results = [said["content"] for said in server.requests[1].body["messages"][-2:]]

    assert ['{"streets":[{"zip":"0150"}],"file":"a.txt"}', '{"zip":"0150"}'] == results


# ── what is shown of an answer ──────────────────────────────────────────────────────────────────


async def test_an_answer_is_shown_as_what_was_said_called_and_returned() -> None:
    def look(at: str) -> str:
        return f"{at} is blue"

    script: list[Scripted] = [
        Answer(calls=(Call("look", {"at": "sky"}), Call("look", {}))),
        "Blue.",
        Answer(finish="length"),
    ]
    with ProviderServer("openai-chat", script) as server:
        async with palaver.model("openai:gpt-5", base_url=server.url) as gpt:
            talk = Conversation(":memory:", model=gpt, tools=[look])
            await talk.ask("What colour?")
            await talk.ask("And now?")
    _, call, done, failed, answer, _, empty = map(repr, talk.messages)

    assert '\'[tool-call look {"at":"sky"}] [tool-call look {}]\'' in call
    assert "'[tool look completed sky is blue]'" in done
    assert "'[tool look error $.arguments: " in failed
    assert "'Blue.'" in answer
    assert "'[step-finish length]'" in empty
    assert "step-" not in f"{call}{done}{failed}{answer}"


def test_the_command_shows_calls_and_results(tmp_path: Path) -> None:
    store = palaver.open(tmp_path / "chat.db")
    call = tool_call_part(new_id(), new_id(), "look", {"at": "sky"})
    talk = store.create([palaver.user("What colour?"), palaver.assistant([call])])
    store.close()
    shown = CliRunner().invoke(app, ["show", talk.id, "--store", str(tmp_path / "chat.db")])

    assert 'assistant  [tool-call look {"at":"sky"}]' in shown.stdout
