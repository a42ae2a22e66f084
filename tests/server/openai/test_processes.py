"""Several processes on one store: a follow-up finds its parent, and a killed stream goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from palaver.server.openai.ids import read_response_id
from palaver.testing.servers import ProviderServer
from tests.profiles import scaled
from tests.server.openai.door import check_response, read_events, text_of
from tests.server.process import run_process
from tests.server.scripted_server import wait_for

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

CHAIN = 20


def ask(client: httpx.Client, given: Any, **body: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    answer = client.post("/v1/responses", json={"input": given, **body})
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    check_response(found)
    return found


@pytest.mark.parametrize("count", [50, pytest.param(scaled(1_000), marks=pytest.mark.faults)])
def test_a_follow_up_sent_at_once_finds_its_parent_in_another_process(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    with ProviderServer("openai-chat") as upstream, ExitStack() as stack:
        monkeypatch.setenv("OPENAI_BASE_URL", upstream.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        clients = [
            stack.enter_context(run_process(tmp_path, postgres, "--model", "openai:echo")).client
            for _ in range(2)
        ]
        found, parent, conversations = 0, None, set[str]()
        for number in range(count):
            first = number % CHAIN == 0
            before = {} if first else {"previous_response_id": parent}
            response = ask(clients[number % 2], f"say {number}", **before)
            assert f"say {number}" == text_of(response)
            sent = upstream.requests[-1].body["messages"]
            assert 2 * (number % CHAIN) + 1 == len(sent), "everything before it was there"
            parent = response["id"]
            found += 1
            name = read_response_id(parent)
            assert name is not None
            conversations.add(name.conversation)
        assert count == found
        assert -(-count // CHAIN) == len(conversations), "none was forked"
        assert [] == upstream.failures


@contextmanager
def slow_server(folder: Path) -> Generator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """A server whose model never ends, with short leases."""
    token = folder / "token"
    command = [
        sys.executable, "-m", "tests.server.slow_server", "serve", "--json", "--port", "0",
        "--store", str(folder / "talks.db"), "--token-file", str(token), "--model", "slow:actor",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    address = json.loads(process.stdout.readline())["address"]
    bearer = {"authorization": f"Bearer {token.read_text().strip()}"}
    with httpx.Client(base_url=address, headers=bearer, timeout=60) as client:
        wait_for(lambda: _is_up(client))
        try:
            yield client, process
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/api/health").is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("kills", [1, pytest.param(scaled(50), marks=pytest.mark.faults)])
def test_a_stream_that_was_killed_is_marked_and_the_chain_goes_on(
    tmp_path: Path, kills: int
) -> None:
    name = ""
    for kill in range(kills + 1):
        with slow_server(tmp_path) as (client, process):
            if name:
                whole = ask(client, "answer", previous_response_id=name)
                assert "Whole." == text_of(whole)
                broken = client.get(f"/v1/responses/{name}").json()
                check_response(broken)
                assert ("failed", "server_error") == (broken["status"], broken["error"]["code"])
                for item in broken["output"]:
                    assert ("incomplete", "message") == (item["status"], item["type"])
                again = read_events(client.get(f"/v1/responses/{name}?stream=true").text)
                assert "response.failed" == again[-1]["type"]
            if kill == kills:
                break
            body = {"input": "talk", "stream": True}
            read = 0
            with client.stream("POST", "/v1/responses", json=body) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data:"):
                        event = json.loads(line[5:])
                        name = event["response"]["id"] if "response" in event else name
                        read += 1
                    if read > kill * 3:
                        break
                process.send_signal(signal.SIGKILL)
                process.wait()
