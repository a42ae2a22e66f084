"""Responses over a WebSocket: the compliance cases of Open Responses by name, and the gate."""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import openresponses_types as published
import pytest
from litestar.exceptions import WebSocketDisconnect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from palaver.server.openai import socket
from palaver.testing.servers import ProviderServer
from tests.conversation.scripted import Scripted, calling, saying
from tests.server.openai.door import FUNCTION, Door, check_event, text_of
from tests.server.process import run_process
from tests.server.scripted_server import wait_for

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

ENDS = ("response.completed", "response.failed", "response.incomplete", "error")


class Socket:
    """A connection, on which one response is asked for after the other."""

    def __init__(self, session: Any) -> None:  # noqa: ANN401 - litestar's
        self._session = session

    def send(self, **body: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
        """Ask for a response; its events, checked."""
        self._session.send_text(json.dumps({"type": "response.create", **body}))
        return self.events()

    def events(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] not in ENDS:
            events.append(json.loads(self._session.receive_text()))
        for event in events:
            if event["type"] == "error":
                published.WebSocketErrorEvent.model_validate_json(json.dumps(event), strict=True)
            else:
                check_event(event)
        return events

    def answer(self, **body: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """The response to a request that is granted."""
        found: dict[str, Any] = self.send(**body)[-1]["response"]
        assert "completed" == found["status"]
        return found

    def refused(self, **body: Any) -> tuple[int, Any, str]:  # noqa: ANN401 - JSON
        """The status, the field and the code of a refusal."""
        (event,) = self.send(**body)
        return event["status"], event["error"]["param"], event["error"]["code"]


@contextmanager
def opened(door: Door) -> Generator[Socket]:
    with door.ask.websocket_connect("/v1/responses") as session:
        yield Socket(session)


@pytest.fixture
def door() -> Generator[Door]:
    with Door(Scripted(saying("One."), saying("Two."), saying("Three."))) as found:
        yield found


def test_websocket_response(door: Door) -> None:
    with opened(door) as talk:
        events = talk.send(input=[{"type": "message", "role": "user", "content": "Count."}])
        assert list(range(len(events))) == [event["sequence_number"] for event in events]
        response = events[-1]["response"]
        assert "One." == text_of(response)
    assert response == door.good("GET", f"responses/{response['id']}"), "it is stored"


def test_websocket_sequential_responses(door: Door) -> None:
    with opened(door) as talk:
        found = [text_of(talk.answer(store=False, input=each)) for each in ("first", "second")]
        assert ["One.", "Two."] == found


def test_websocket_continuation(door: Door) -> None:
    with opened(door) as talk:
        first = talk.answer(store=False, input="The word is cobalt.")
        second = talk.answer(store=False, input="The word?", previous_response_id=first["id"])
        assert first["id"] == second["previous_response_id"]
        asked = [message["content"] for message in door.asked()]
        assert ["The word is cobalt.", "One.", "The word?"] == asked
        assert [] == list(door.store)


def test_tools_of_the_client_go_on_without_a_store() -> None:
    with Door(Scripted(calling(("weather", {})), saying("Sunny."))) as door, opened(door) as talk:
        first = talk.answer(store=False, input="Weather?", tools=[FUNCTION])
        output = {"type": "function_call_output", "call_id": "call_0", "output": "sun"}
        fields = {"store": False, "tools": [FUNCTION], "previous_response_id": first["id"]}
        assert "Sunny." == text_of(talk.answer(input=[output], **fields))


def test_websocket_reconnect_store_false_recovery(door: Door) -> None:
    with opened(door) as talk:
        first = talk.answer(store=False, input="The word is copper.")
    wanted = (404, "previous_response_id", "previous_response_not_found")
    with opened(door) as talk:
        fields = {"store": False, "input": "Go on."}
        assert wanted == talk.refused(**fields, previous_response_id=first["id"])
        assert "Two." == text_of(talk.answer(**fields))


def test_websocket_previous_response_not_found(door: Door) -> None:
    wanted = (404, "previous_response_id", "previous_response_not_found")
    with opened(door) as talk:
        assert wanted == talk.refused(store=False, input="x", previous_response_id="resp_missing")


def test_websocket_failed_continuation_evicts_cache(door: Door) -> None:
    with opened(door) as talk:
        first = talk.answer(store=False, input="The word is ember.")
        fields = {"store": False, "previous_response_id": first["id"]}
        output = {"type": "function_call_output", "call_id": "missing", "output": "x"}
        wanted = (400, "input[0].call_id", "call_not_found")
        assert wanted == talk.refused(input=[output], **fields)
        gone = (404, "previous_response_id", "previous_response_not_found")
        assert gone == talk.refused(input="Go on.", **fields)


def test_websocket_compact_new_chain(door: Door) -> None:
    body = {"model": "stage:actor", "input": [{"role": "user", "content": "The word is slate."}]}
    output = door.good("POST", "responses/compact", body)["output"]
    with opened(door) as talk:
        given = [*output, {"type": "message", "role": "user", "content": "Go on."}]
        assert "Two." == text_of(talk.answer(store=False, input=given, tools=[]))


@pytest.mark.parametrize(
    ("text", "status", "param"),
    [
        ("", 400, None),
        ("{", 400, None),
        ("[]", 400, None),
        ("{}", 400, "type"),
        ('{"type": "response.steer"}', 400, "type"),
        ('{"type": "response.create", "input": 5}', 400, "input"),
        ('{"type": "response.create", "input": "x", "foo": 1}', 400, "foo"),
        ('{"type": "response.create", "input": "x", "stream": true}', 400, "stream"),
        ('{"type": "response.create", "input": "x", "background": false}', 400, "background"),
        ('{"type": "response.create", "input": "x", "model": "nobody:x"}', 404, "model"),
        (json.dumps({"type": "response.create", "input": "x" * 3_000}), 413, None),
    ],
)
def test_what_is_wrong_is_refused_and_the_connection_goes_on(
    text: str, status: int, param: str | None
) -> None:
    with (
        Door(Scripted(saying("One.")), body=2_000) as door,
        door.ask.websocket_connect("/v1/responses") as session,
    ):
        talk = Socket(session)
        session.send_text(text)
        (event,) = talk.events()
        assert (status, param) == (event["status"], event["error"]["param"])
        assert "One." == text_of(talk.answer(input="Hi"))


def test_a_response_that_fails_is_an_event_and_the_connection_goes_on() -> None:
    with Door(Scripted([ConnectionError("down")], saying("Two."))) as door, opened(door) as talk:
        assert "response.failed" == talk.send(input="Hi")[-1]["type"]
        assert "Two." == text_of(talk.answer(input="Again"))


def test_a_client_that_goes_away_loses_nothing(door: Door) -> None:
    body = {"type": "response.create", "input": "Hi"}
    with door.ask.websocket_connect("/v1/responses") as session:
        session.send_text(json.dumps(body))
        begun = json.loads(session.receive_text())["response"]
    path = f"responses/{begun['id']}"
    over = wait_for(lambda: (got := door.good("GET", path))["status"] == "completed" and got)
    assert "One." == text_of(over)


def test_an_hour_is_the_end(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "_SECONDS", 0.05)
    with door.ask.websocket_connect("/v1/responses") as session:
        (event,) = Socket(session).events()
        assert "websocket_connection_limit_reached" == event["error"]["code"]
        with pytest.raises(WebSocketDisconnect):
            session.receive_text()


@pytest.mark.parametrize(
    ("path", "headers", "settings"),
    [
        ("/v1/responses", {"authorization": "Bearer wrong"}, {}),
        ("/v1/responses", {"origin": "http://evil.example"}, {}),
        ("/v1/responses", {"host": "evil.example"}, {}),
        ("/v1/responses", {}, {"read_only": True}),
        ("/v1/responses", {}, {"steps": 0}),
        ("/v1/conversations", {}, {}),
        ("/api/events", {}, {}),
    ],
)
def test_the_gate_lets_nobody_else_in(
    path: str, headers: dict[str, str], settings: dict[str, Any]
) -> None:
    with Door(Scripted(), **settings) as door:
        door.ask.headers.update(headers)
        with pytest.raises(WebSocketDisconnect), door.ask.websocket_connect(path):
            pass


def test_a_real_server_takes_a_connection_and_says_why_it_takes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProviderServer("openai-chat") as upstream:
        monkeypatch.setenv("OPENAI_BASE_URL", upstream.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        store = str(tmp_path / "talks.db")
        limits = ("--limit", "connections=4", "--model", "openai:echo")
        with run_process(tmp_path, store, *limits) as process:
            address = str(process.client.base_url).replace("http", "ws").rstrip("/")
            bearer = {"Authorization": process.client.headers["authorization"]}
            with pytest.raises(InvalidStatus) as refused:
                connect(f"{address}/v1/responses")
            assert 401 == refused.value.response.status_code
            assert b"invalid_api_key" in refused.value.response.body
            for _ in range(12):  # each connection that ends makes room for another
                with connect(f"{address}/v1/responses", additional_headers=bearer) as line:
                    line.send(json.dumps({"type": "response.create", "input": "say it"}))
                    events = [json.loads(line.recv())]
                    while events[-1]["type"] not in ENDS:
                        events.append(json.loads(line.recv()))
                    assert "say it" == text_of(events[-1]["response"])
            assert process.client.get("/v1/models").is_success
            with connect(f"{address}/v1/responses", additional_headers=bearer) as line:
                assert 0 == process.ended(signal.SIGTERM)
                with pytest.raises(ConnectionClosed):
                    line.recv(30)
