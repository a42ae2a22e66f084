"""`kill -9` amid a step, and a new server on the same store: recovered, and nothing doubled."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from tests.server.client import text_of
from tests.server.scripted_server import wait_for

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


class Served:
    """A running `palaver serve`."""

    def __init__(self, folder: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.server.slow_server",
            "serve",
            "--json",
            "--port",
            "0",
        ]
        command += ["--store", str(folder / "talks.db"), "--token-file", str(folder / "token")]
        command += ["--model", "slow:actor", "--tools", "tests.server.slow_server:dawdle"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        token = (folder / "token").read_text().strip()
        self.client = httpx.Client(
            base_url=f"{told['address']}/api/",
            headers={"authorization": f"Bearer {token}"},
            timeout=60,
        )
        wait_for(self._is_up)

    def _is_up(self) -> bool:
        try:
            return self.client.get("health").is_success
        except httpx.TransportError:
            return False

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON, or whatever is asked for
        """What a request answers."""
        answer = self.client.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def texts(self, talk: str) -> list[Any]:
        """What the messages say."""
        items = self.ask("GET", f"conversations/{talk}/messages")["items"]
        return [text_of(item["message"]) for item in items]


@contextmanager
def served(folder: Path) -> Generator[Served]:
    server = Served(folder)
    try:
        yield server
    finally:
        server.client.close()
        server.process.kill()
        server.process.wait()
        assert server.process.stdout is not None
        server.process.stdout.close()


def test_an_answer_that_was_cut_off_by_a_kill_is_kept_once(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        talk = server.ask("POST", "conversations", {})["id"]
        step = f"conversations/{talk}/step"
        server.ask("POST", step, {"text": "talk"})
        wait_for(lambda: len(server.ask("GET", step)["draft"]["text"]) > 60)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    with served(tmp_path) as server:
        wait_for(lambda: len(server.texts(talk)) == 2)
        asked, kept = server.texts(talk)
        assert "talk" == asked
        assert kept.startswith("word 0 word 1 ")
        items = server.ask("GET", f"conversations/{talk}/messages")["items"]
        assert "interrupted" == items[1]["message"]["info"]["finish"]
        assert not server.ask("GET", step)["running"]
        server.ask("POST", step, {"text": "answer"})
        wait_for(lambda: len(server.texts(talk)) == 4)
        assert ["talk", kept, "answer", "Whole."] == server.texts(talk)


def test_a_tool_that_was_running_is_not_run_again(tmp_path: Path) -> None:
    """CV-06: it may have had effects, and the model is told so."""
    with served(tmp_path) as server:
        talk = server.ask("POST", "conversations", {})["id"]
        step, calls = f"conversations/{talk}/step", f"conversations/{talk}/calls"
        server.ask("POST", step, {"text": "call", "tools": ["dawdle"]})
        wait_for(
            lambda: ["running"] == [c["state"]["status"] for c in server.ask("GET", calls)["items"]]
        )
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    with served(tmp_path) as server:
        wait_for(lambda: len(server.texts(talk)) == 3)
        (result,) = server.texts(talk)[2]
        assert "error" == result["state"]["status"]
        assert result["state"]["error"].startswith("interrupted:")
        assert [] == server.ask("GET", calls)["items"]


def test_a_server_that_is_told_to_stop_settles_its_steps(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        talk = server.ask("POST", "conversations", {})["id"]
        step = f"conversations/{talk}/step"
        server.ask("POST", step, {"text": "talk"})
        wait_for(lambda: server.ask("GET", step)["draft"]["text"])
        server.process.send_signal(signal.SIGTERM)
        assert 0 == server.process.wait(20)
    with served(tmp_path) as server:
        assert 2 == len(server.texts(talk))
