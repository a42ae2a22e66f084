"""palaver's nodes in real LangGraph graphs: a whole agent, killed at every moment that matters."""

from __future__ import annotations

import json
import multiprocessing
import signal
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from compat.graph_agent import ASKED, MOMENTS, live, provider, slowly
from palaver.messages import ToolPart, user
from palaver.testing.servers import ProviderServer

if TYPE_CHECKING:
    from pathlib import Path

    from palaver import Store
    from palaver.stores import StoredHistory

_LIVES = multiprocessing.get_context("forkserver")
_LIVES.set_forkserver_preload(["compat.graph_agent"])  # a life begins with everything imported


@pytest.mark.parametrize("moment", ["", *MOMENTS])
def test_an_agent_that_is_killed_goes_on(tmp_path: Path, moment: str) -> None:
    """ND-01: no tool runs twice and no answer is paid for twice, wherever it is killed."""
    run(str(tmp_path / "chat.db"), tmp_path, moment, "ours")


@pytest.mark.parametrize("moment", ["answered 1", "ran 1", "decided", "put 4"])
def test_so_it_does_with_langgraphs_own_saver(tmp_path: Path, moment: str) -> None:
    run(str(tmp_path / "chat.db"), tmp_path, moment, "theirs")


@pytest.mark.parametrize("moment", ["compacted", "in pay"])
def test_so_it_does_on_postgres(tmp_path: Path, postgres: str, moment: str) -> None:
    run(postgres, tmp_path, moment, "ours")


def run(address: str, folder: Path, moment: str, saver: str) -> None:
    """Let the agent live until it is done, and look at what became of everything."""
    with palaver.open(address) as store:
        store.create([*ASKED, user("Book me a trip to Oslo.")], id="talk")
        script = [slowly if moment == "answering" else provider, *[provider] * 20]
        with ProviderServer("openai-chat", script) as server:
            where = (address, server.url, folder)
            if moment:
                killed = one_life(where, saver=saver, moment=moment)
                assert -signal.SIGKILL == killed
            assert 0 == one_life(where, saver=saver, moment="")
            check(store, server, moment)
    did = (folder / "did").read_text("utf-8").splitlines()
    assert ["look_up Oslo", "pay 5"] == did, "each tool has run once"
    *questions, state = map(json.loads, (folder / "told").read_text("utf-8").splitlines())
    shown = [(call["tool"], call["input"]) for asked in questions for call in asked["calls"]]
    assert [("pay", {"amount": 5})] * len(questions) == shown
    assert questions
    ended = {"conversation": "talk", "outcome": "answered", "next": "end"}
    assert {**ended, "version": state["version"]} == state


def one_life(where: tuple[str, str, Path], **how: Any) -> int | None:
    life = _LIVES.Process(target=live, args=(*where, how))
    life.start()
    life.join(120)
    return life.exitcode


def check(store: Store, server: ProviderServer, killed: str) -> None:
    """Everything happened once, nothing is lost, and the provider never saw nonsense."""
    history = store.get("talk")
    cut = killed.removeprefix("in ") if killed.startswith("in ") else ""
    expected = {name: "error" if name == cut else "completed" for name in ("look_up", "pay")}
    assert expected == results(history)
    said = [message.text for message in history.log if message.role == "assistant"]
    assert len(said) == len(server.requests), "every answer that was paid for is kept"
    if killed == "answering":
        assert "Let me see.".startswith(said.pop(0)), "as far as it had come"
    assert ["Let me see.", "It costs 5.", "Booked."] == said
    assert "Booked." == history[-1].text
    assert [] == list(server.failures)
    edits = [entry.kind for entry in store.journal("talk", -1, 1_000)]
    assert (0 if cut == "look_up" else 1) == edits.count("compact"), "there was one long output"
    assert [] == list(store.verify())


def results(history: StoredHistory) -> dict[str, str]:
    """What became of the calls, by their tools; each has one result."""
    parts = [part for message in history.log for part in message.parts]
    found = [part for part in parts if isinstance(part, ToolPart)]
    assert len(found) == len({part.call_id for part in found})
    return {part.tool: part.state.status for part in found}
