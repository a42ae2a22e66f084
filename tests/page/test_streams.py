"""An answer on its way: readers who join late, and servers that are killed in the middle of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from playwright.sync_api import expect

import palaver
from tests.cluster.free_ports import free_ports
from tests.conversation.scripted import calling, saying
from tests.page.server import TOKEN, running_server
from tests.profiles import steps
from tests.server.client import text_of

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

JOINS = steps(8, in_faults=200)
KILLS = steps(1, in_faults=30)
WORDS = [f"{'🙂 ' if n % 7 == 0 else ''}word{n} " for n in range(200)]


def test_who_joins_late_reads_every_word(open_page: OpenPage, server: PageServer) -> None:
    server.model.lines.clear()
    page = open_page()
    whole = "".join(WORDS).strip()
    for number in range(JOINS):
        name = server.store.create(id=f"late-{number}", title=f"late {number}").id
        gate = threading.Event()
        first = [calling(("now", {}), text="Let me see. ")] if number % 2 else []
        server.say(*first, [*saying(*WORDS)[: len(WORDS)], gate, *saying("")])
        server.ask("POST", f"conversations/{name}/step", {"text": "Go on"})
        time.sleep(0.03 * (number % 13))
        page.evaluate("(name) => (location.hash = `#/c/${name}`)", name)
        expect(page.locator("pv-draft .prose").last).to_have_text(whole)
        gate.set()
        index = 3 if first else 1
        expect(page.locator(f"pv-message[data-index='{index}'] .prose")).to_have_text(whole)
        assert whole == server.store.get(name).messages[index].text.strip()
        expect(page.locator("pv-draft")).to_be_hidden()


class SlowServer:
    """`palaver serve` with a model that never ends, at an address that stays.

    Its lease outlasts a restart: the new server finds a step that may still be alive.
    """

    environment: Final = {**os.environ, "PALAVER_TEST_LEASE": "4"}

    def __init__(self, folder: Path, port: int) -> None:
        """Start it, and wait until it answers."""
        token = folder / "token"
        token.touch(0o600)
        token.write_text(TOKEN)
        command = [sys.executable, "-m", "tests.server.slow_server", "serve", "--json"]
        command += ["--port", str(port), "--store", str(folder / "talks.db")]
        command += ["--token-file", str(token), "--model", "slow:actor"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=self.environment)
        self.address = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(
            base_url=f"{self.address}/api/", headers={"authorization": f"Bearer {TOKEN}"}
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline()
        self.ask("GET", "health")

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Ask the API."""
        answer = self.client.request(method, path, json=body, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.client.close()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def slow_server(folder: Path, port: int) -> Generator[SlowServer]:
    """Such a server; killed at the end."""
    server = SlowServer(folder, port)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture
def port() -> int:
    """A port that is free, and is given to nobody while the server is away."""
    return free_ports(1)


def test_after_a_kill_amid_an_answer_the_page_goes_on(
    open_page: OpenPage, tmp_path: Path, port: int, expected: list[str]
) -> None:
    expected += ["ERR_", "Failed to load"]
    with palaver.open(tmp_path / "talks.db") as store:
        name = store.create(id="killed", title="Killed").id
    page: Page | None = None
    for turn in range(KILLS):
        with slow_server(tmp_path, port) as server:
            page = page or open_page(f"#/c/{name}", at=server)
            box = page.get_by_role("textbox", name="Say something")
            expect(page.locator(".offline")).to_be_hidden()
            box.fill("talk")
            box.press("Enter")
            expect(page.locator("pv-draft")).to_contain_text("word 9 ")
            server.kill()
        with slow_server(tmp_path, port) as server:
            answer = page.locator(f"pv-message[data-index='{4 * turn + 1}']")
            expect(answer).to_contain_text("Interrupted: this is what had arrived")
            expect(page.locator("pv-draft")).to_be_hidden()
            items = server.ask("GET", f"conversations/{name}/messages")["items"]
            stored = text_of(items[-1]["message"])
            expect(answer.locator(".prose")).to_have_text(stored.strip())
            box.fill("answer")
            box.press("Enter")
            last = page.locator(f"pv-message[data-index='{4 * turn + 3}']")
            expect(last).to_contain_text("Whole.")


def test_the_step_of_another_process_is_followed_and_can_not_be_stopped_here(
    open_page: OpenPage, tmp_path: Path, expected: list[str]
) -> None:
    expected.append("409")
    path = tmp_path / "shared.db"
    with (
        palaver.open(path) as one,
        palaver.open(path) as other,
        running_server(one) as there,
        running_server(other) as here,
    ):
        one.create(id="shared", title="Shared")
        gate = threading.Event()
        words = saying("One, ", "two, ", "three.")
        there.say([*words[:2], gate, *words[2:]])
        there.ask("POST", "conversations/shared/step", {"text": "Count"})
        page = open_page("#/c/shared", at=here)
        expect(page.locator("pv-draft")).to_contain_text("writing")
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.get_by_text("another process runs this step")).to_be_visible()
        gate.set()
        expect(page.locator("pv-message[data-index='1']")).to_contain_text("One, two, three.")
        expect(page.locator("pv-draft")).to_be_hidden()
        expect(page.get_by_role("button", name="Send")).to_be_visible()
        page.close()
