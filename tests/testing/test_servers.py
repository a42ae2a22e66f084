"""The servers of `palaver.testing` speak as the providers do, byte by byte, and judge like them."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from palaver.testing.servers import (
    Answer,
    Call,
    Exchange,
    Garbage,
    HangUp,
    ProviderServer,
    Refusal,
    ReportedUsage,
)

if TYPE_CHECKING:
    from palaver.testing.providers import FormatName
    from palaver.testing.servers import Scripted

HEADERS = {
    "authorization": "Bearer any",
    "x-api-key": "any",
    "x-goog-api-key": "any",
    "anthropic-version": "2023-06-01",
    "content-type": "application/json",
}
WORDS = {"role": "user", "content": "Tea?"}
BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {"model": "m", "messages": [WORDS]},
    "openai-responses": {"model": "m", "input": [WORDS]},
    "anthropic": {"model": "m", "max_tokens": 9, "messages": [WORDS]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Tea?"}]}]},
}
PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/m:generateContent",
}
FORMATS: list[FormatName] = ["openai-chat", "openai-responses", "anthropic", "gemini"]


def post(
    server: ProviderServer,
    *,
    stream: bool = False,
    path: str | None = None,
    headers: dict[str, str] | None = None,
    body: object = None,
    method: str = "POST",
) -> tuple[int, bytes, dict[str, str]]:
    """Ask as a plain client would: the status, the bytes, the headers."""
    form = server.format
    given: Any = BODIES[form] if body is None else body
    where = path or PATHS[form]
    if stream and form == "gemini":
        where = where.replace("generateContent", "streamGenerateContent?alt=sse")
    elif stream:
        given = {**given, "stream": True}
    address = urlsplit(server.url)
    line = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    try:
        data = given if isinstance(given, bytes) else json.dumps(given)
        line.request(method, where, data, HEADERS if headers is None else headers)
        answer = line.getresponse()
        return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
    finally:
        line.close()


def events(data: bytes) -> list[tuple[str | None, Any]]:
    """The events of a stream, each with its name."""
    found: list[tuple[str | None, Any]] = []
    for block in data.replace(b"\r\n", b"\n").strip().split(b"\n\n"):
        name, value = None, None
        for line in block.split(b"\n"):
            field, _, rest = line.partition(b": ")
            if field == b"event":
                name = rest.decode()
            elif rest != b"[DONE]":
                value = json.loads(rest)
        found.append((name, value))
    return found


RICH = Answer("Yes, tea.", reasoning="Hm.", calls=(Call("a", {"x": 1}), Call("b")), piece=4)


def test_chat_ends_with_its_mark_and_counts_only_when_asked() -> None:
    with ProviderServer("openai-chat", [RICH, RICH]) as server:
        status, data, headers = post(server, stream=True)
        body = {**BODIES["openai-chat"], "stream_options": {"include_usage": True}}
        _, counted, _ = post(server, stream=True, body=body)
    assert (200, "text/event-stream; charset=utf-8") == (status, headers["content-type"])
    assert data.endswith(b"data: [DONE]\n\n")
    chunks = [value for _, value in events(data)[:-1]]
    assert [None] * len(chunks) == [name for name, _ in events(data)[:-1]]
    assert all("usage" not in chunk for chunk in chunks)
    *before, last = [value for _, value in events(counted)[:-1]]
    assert all(chunk["usage"] is None for chunk in before)
    assert ([], True) == (last["choices"], last["usage"]["total_tokens"] > 0)
    starts = [
        call
        for chunk in chunks
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", [])
        if "id" in call
    ]
    assert [(0, "a"), (1, "b")] == [(call["index"], call["function"]["name"]) for call in starts]


def test_responses_numbers_its_events_and_names_each() -> None:
    with ProviderServer("openai-responses", [RICH]) as server:
        _, data, _ = post(server, stream=True)
    found = events(data)
    assert all(name == value["type"] for name, value in found)
    assert list(range(len(found))) == [value["sequence_number"] for _, value in found]
    assert ("response.created", "response.completed") == (found[0][0], found[-1][0])
    items = [value["item"] for name, value in found if name == "response.output_item.done"]
    assert ["reasoning", "message", "function_call", "function_call"] == [i["type"] for i in items]
    assert items == found[-1][1]["response"]["output"]


def test_anthropic_sends_a_ping_and_signs_its_thoughts() -> None:
    with ProviderServer("anthropic", [RICH]) as server:
        _, data, _ = post(server, stream=True)
    found = events(data)
    names = [name for name, _ in found]
    assert ["message_start", "content_block_start", "ping"] == names[:3]
    assert ["message_delta", "message_stop"] == names[-2:]
    assert all(name == value["type"] for name, value in found)
    deltas = [value["delta"]["type"] for name, value in found if name == "content_block_delta"]
    expected = ["thinking_delta", "signature_delta", "text_delta", "input_json_delta"]
    assert expected == list(dict.fromkeys(deltas))


def test_gemini_ends_its_lines_as_google_does() -> None:
    with ProviderServer("gemini", [RICH]) as server:
        _, data, _ = post(server, stream=True)
    assert data.endswith(b"}\r\n\r\n")
    candidates = [value["candidates"][0] for _, value in events(data)]
    assert "STOP" == candidates[-1]["finishReason"]
    assert all("finishReason" not in candidate for candidate in candidates[:-1])


FIGURES: dict[str, tuple[str, ...]] = {
    "openai-chat": ("prompt_tokens_details", "cached_tokens"),
    "openai-responses": ("input_tokens_details", "cached_tokens"),
    "anthropic": ("cache_read_input_tokens",),
    "gemini": ("cachedContentTokenCount",),
}


@pytest.mark.parametrize("form", FORMATS)
def test_usage_is_what_the_judge_of_caching_says(form: FormatName) -> None:
    words = "tea " * 8_000
    body: dict[str, Any] = {**BODIES[form], "model": "gpt-5.6"}
    if form == "gemini":
        body = {"contents": [{"role": "user", "parts": [{"text": words}]}]}
    else:
        body["input" if "input" in body else "messages"] = [{"role": "user", "content": words}]
    if form == "anthropic":
        body["cache_control"] = {"type": "ephemeral"}
    times = iter((0.0, 60.0, 10_000.0))
    with ProviderServer(form, clock=lambda: next(times)) as server:
        found: list[Any] = []
        for _ in range(3):
            answer = json.loads(post(server, body=body)[1])
            found.append(answer.get("usage") or answer["usageMetadata"])
    path = FIGURES[form]
    read = [each[path[0]][path[1]] if path[1:] else each.get(path[0], 0) for each in found]
    assert (0, 0) == (read[0], read[2])
    assert read[1] > 8_000
    if form == "anthropic":
        written = [each["cache_creation_input_tokens"] for each in found]
        assert [read[1], 0, read[1]] == written
        assert read[1] == found[0]["cache_creation"]["ephemeral_5m_input_tokens"]
    if form.startswith("openai"):
        assert read[1] == found[0][FIGURES[form][0]]["cache_write_tokens"]


@pytest.mark.parametrize("form", FORMATS)
def test_usage_is_what_the_script_says(form: FormatName) -> None:
    with ProviderServer(form, [Answer("Yes.", usage=ReportedUsage(100, 50, 40, 10))]) as server:
        _, data, _ = post(server)
    expected: dict[str, dict[str, Any]] = {
        "openai-chat": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150},
        "openai-responses": {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150},
        "anthropic": {"input_tokens": 60, "cache_read_input_tokens": 40, "output_tokens": 50},
        "gemini": {
            "promptTokenCount": 100,
            "candidatesTokenCount": 40,
            "thoughtsTokenCount": 10,
            "cachedContentTokenCount": 40,
        },
    }
    answer = json.loads(data)
    usage = answer.get("usage") or answer["usageMetadata"]
    assert expected[form] == {name: usage.get(name) for name in expected[form]}


@pytest.mark.parametrize("form", FORMATS)
def test_without_a_script_it_repeats_what_it_was_told(form: FormatName) -> None:
    with ProviderServer(form) as server:
        _, data, _ = post(server)
        _, streamed, _ = post(server, stream=True)
    assert b"Tea?" in data
    assert b"Tea?" in streamed


@pytest.mark.parametrize(
    ("form", "body", "said"),
    [
        ("openai-responses", {"model": "m", "input": "Plain?"}, b"Plain?"),
        (
            "openai-chat",
            {
                "model": "m",
                "messages": [{"role": "user", "content": [{"type": "text", "text": "P"}]}],
            },
            b'"P"',
        ),
    ],
)
def test_it_finds_the_last_words_wherever_they_are(
    form: FormatName, body: dict[str, Any], said: bytes
) -> None:
    with ProviderServer(form) as server:
        _, data, _ = post(server, body=body)
    assert said in data


@pytest.mark.parametrize("form", FORMATS)
def test_what_a_provider_would_refuse_is_refused_and_noted(form: FormatName) -> None:
    with ProviderServer(form, ["never said"]) as server:
        status, data, _ = post(server, body={"messages": []})
        assert 400 == status
        assert server.failures
        assert server.failures == list(server.requests[0].problems)
        assert server.failures[0].partition(":")[2][1:9] in data.decode()
        status, data, _ = post(server)
        assert (200, True) == (status, b"never said" in data)


@pytest.mark.parametrize("form", FORMATS)
def test_who_brings_no_key_is_refused(form: FormatName) -> None:
    with ProviderServer(form) as server:
        status, _, _ = post(server, headers={"content-type": "application/json"})
        assert (401, ["the request carries no key"]) == (status, server.failures)


def test_anthropic_also_wants_the_version_of_its_api() -> None:
    with ProviderServer("anthropic") as server:
        assert 401 == post(server, headers={"x-api-key": "any"})[0]


def test_anthropic_takes_those_who_ask_for_betas() -> None:
    """As `claude` does; what else stands behind the path is not understood."""
    with ProviderServer("anthropic") as server:
        assert 200 == post(server, path="/v1/messages?beta=true")[0]
        assert 404 == post(server, path="/v1/messages?alpha=true")[0]


@pytest.mark.parametrize("form", FORMATS)
def test_a_path_of_another_provider_is_unknown(form: FormatName) -> None:
    with ProviderServer(form) as server:
        assert 404 == post(server, path="/v1/other")[0]
        assert 404 == post(server, method="GET")[0]
        assert 2 == len(server.failures)


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        (
            "openai-chat",
            {"error": {"message": "no", "type": "requests", "param": None, "code": "c"}},
        ),
        (
            "anthropic",
            {"type": "error", "error": {"type": "c", "message": "no"}, "request_id": "req_palaver"},
        ),
        (
            "gemini",
            {
                "error": {
                    "code": 429,
                    "message": "no",
                    "status": "c",
                    "details": [
                        {
                            "@type": "type.googleapis.com/google.rpc.RetryInfo",
                            "retryDelay": "1.5s",
                        }
                    ],
                }
            },
        ),
    ],
)
def test_a_refusal_has_the_providers_form(form: FormatName, fields: object) -> None:
    with ProviderServer(form, [Refusal(429, "no", code="c", retry_after=1.5)]) as server:
        status, data, headers = post(server)
    assert (429, fields) == (status, json.loads(data))
    assert (None if form == "gemini" else "1.5") == headers.get("retry-after")


def test_a_finish_is_the_providers_own_word() -> None:
    cases: list[tuple[FormatName, str, bytes]] = [
        ("openai-chat", "length", b'"finish_reason":"length"'),
        ("openai-responses", "max_output_tokens", b'"status":"incomplete"'),
        ("anthropic", "max_tokens", b'"stop_reason":"max_tokens"'),
        ("gemini", "MAX_TOKENS", b'"finishReason":"MAX_TOKENS"'),
    ]
    for form, word, found in cases:
        with ProviderServer(form, [Answer("x", finish=word)] * 2) as server:
            assert found in post(server)[1]
            assert found in post(server, stream=True)[1]


def test_a_script_may_look_at_the_request() -> None:
    def said(exchange: Exchange) -> Scripted:
        return f"You asked for {exchange.body['model']}."

    with ProviderServer("openai-chat") as server:
        server.then(said)
        assert b"You asked for m." in post(server)[1]


def test_arguments_go_out_to_the_letter() -> None:
    odd = Answer(calls=(Call("a", '{ "x" :1'),))
    with ProviderServer("openai-chat", [odd]) as server:
        made = json.loads(post(server)[1])["choices"][0]["message"]["tool_calls"]
    assert '{ "x" :1' == made[0]["function"]["arguments"]
    with ProviderServer("anthropic", [odd]) as server:
        assert b'{ \\"x\\" ' in post(server, stream=True)[1]


def test_bytes_that_are_no_answer() -> None:
    with ProviderServer("openai-chat", [Garbage(b"\xff\x00")]) as server:
        assert (200, b"\xff\x00") == post(server)[:2]


def test_the_connection_is_closed_where_the_script_says_so() -> None:
    with ProviderServer("openai-chat", [HangUp()]) as server:
        with pytest.raises(http.client.RemoteDisconnected):
            post(server)
        server.then(Answer("x" * 100, cut_after=2))
        with pytest.raises(http.client.IncompleteRead):
            post(server, stream=True)
        server.then(Answer("x" * 100, cut_after=2, cleanly=True))
        assert 2 == len(events(post(server, stream=True)[1]))
        server.then(Answer("x" * 100, cut_after=2))
        with pytest.raises(http.client.IncompleteRead):
            post(server)


def test_an_empty_answer_is_still_a_stream() -> None:
    with ProviderServer("gemini", [Answer()]) as server:
        assert 1 == len(events(post(server, stream=True)[1]))


def test_a_line_is_used_again_and_one_that_speaks_nonsense_is_closed() -> None:
    with ProviderServer("openai-chat", ["One.", "Two."]) as server:
        address = urlsplit(server.url)
        line = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
        for word in (b"One.", b"Two."):
            line.request("POST", PATHS["openai-chat"], json.dumps(BODIES["openai-chat"]), HEADERS)
            assert word in line.getresponse().read()
        line.close()
        with socket.create_connection((address.hostname or "", address.port or 0)) as plain:
            plain.sendall(b"nonsense\r\n\r\n")
            assert b"" == plain.recv(10)
        assert 400 == post(server, body=b"not json")[0]


def test_a_client_that_goes_away_is_noticed() -> None:
    with ProviderServer("openai-chat", [Answer("x" * 1_000, delay=0.05)]) as server:
        address = urlsplit(server.url)
        line = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
        body = {**BODIES["openai-chat"], "stream": True}
        line.request("POST", PATHS["openai-chat"], json.dumps(body), HEADERS)
        line.getresponse().read(10)
        line.close()
        deadline = time.monotonic() + 30
        while not server.requests[0].aborted:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_text_is_no_script() -> None:
    with pytest.raises(TypeError, match=r"^a script is a list; write \['Yes\.'\]$"):
        ProviderServer("anthropic", "Yes.")


def test_a_format_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown format 'morse'"):
        ProviderServer("morse")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
