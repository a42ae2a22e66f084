"""The real `claude` program over palaver's stores: it runs, is killed, and resumes what was edited.

It talks to a provider on this machine that refuses whatever the real one would refuse.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import palaver
from compat.claude_agent import options, talk
from palaver.adapters.claude_agent_sdk import PalaverSessionStore
from palaver.testing.servers import Answer, Call, ProviderServer, Silence

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
WEATHER = "mcp__sky__weather"


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    """A provider, whose judgement is looked at in the end."""
    with ProviderServer("anthropic") as started:
        yield started
        assert [] == started.failures


def sent(server: ProviderServer) -> list[str]:
    """What the model was shown last, in words: without what the program itself reminds it of."""
    words: list[str] = []
    for message in server.requests[-1].body["messages"]:
        blocks: Any = message["content"]
        for block in [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks:
            words += [f"{message['role']}: {text}" for text in _words(block)]
    return words


def _words(block: dict[str, Any]) -> Iterator[str]:
    if block["type"] == "tool_result":
        for inner in block["content"]:
            yield from (f"result {text}" for text in _words(inner))
    elif block["type"] == "tool_use":
        yield f"call {json.dumps(block['input'])}"
    elif "<system-reminder>" not in block.get("text", ""):
        yield (block.get("text") or f"thought {block['thinking']}").strip()


def test_killed_in_the_middle_it_resumes_what_was_edited(
    address: str, server: ProviderServer, tmp_path: Path
) -> None:
    server.then(
        Answer("Let me look.", "Hm.", calls=(Call(WEATHER, {"city": "Oslo"}),)),
        Answer("It is sunny in Oslo.", "Fine."),
        Answer("I look again.", "Hm again.", calls=(Call(WEATHER, {"city": "Rome"}),)),
        Silence(),
    )
    program = [sys.executable, "-m", "compat.claude_agent", address, server.url]
    process = subprocess.Popen(
        [*program, str(tmp_path / "run"), "-", "Weather in Oslo?", "And in Rome?"],
        stdout=subprocess.PIPE,
        start_new_session=True,
        cwd=ROOT,
    )
    try:
        waited(lambda: len(server.requests) == 4)
        with palaver.open(address) as store:
            waited(lambda: "Sunny in Rome" in [hit.snippet[-13:] for hit in store.search("Rome")])
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    out, _ = process.communicate()
    session, _ = json.loads(out.splitlines()[0])
    shutil.rmtree(tmp_path / "run" / "home")  # all that is left is in the store

    with palaver.open(address) as store:
        history = store.get(session)
        texts = [message.text for message in history]
        assert ("Weather in Oslo?", "And in Rome?") == (texts[0], texts[7])
        assert "tool" == history[-1].role
        history.replace(6, palaver.assistant("It rains in Oslo."))
        history.insert(7, [palaver.user("I have no umbrella.")])
        history.truncate(keep_first=9)

    server.then(Answer("Take a taxi.", "Well."))
    again = [*program, str(tmp_path / "run"), session, "What now?"]
    done = subprocess.run(again, check=True, capture_output=True, cwd=ROOT, timeout=120)
    assert [session, "Take a taxi."] == json.loads(done.stdout)
    shown = sent(server)
    assert [
        "user: Weather in Oslo?",
        "assistant: thought Hm.",
        "assistant: Let me look.",
        'assistant: call {"city": "Oslo"}',
        "user: result Sunny in Oslo",
        "assistant: thought Fine.",
        "assistant: It rains in Oslo.",
        "user: I have no umbrella.",
        "user: And in Rome?",
    ] == shown[:9]
    assert "user: What now?" == shown[-1]
    with palaver.open(address) as store:
        texts = [message.text for message in store.get(session)]
        assert (texts[6:9], texts[-1]) == (
            ["It rains in Oslo.", "I have no umbrella.", "And in Rome?"],
            "Take a taxi.",
        )
        assert [] == list(store.verify())


def test_it_goes_on_from_a_fork_and_from_a_conversation_of_palavers(
    server: ProviderServer, tmp_path: Path
) -> None:
    """The fork goes back to an earlier version; the other never saw the program before."""
    server.then(*(Answer(text, "Hm.") for text in ("Red.", "Blue.", "Green.", "Hello again.")))
    with palaver.open(tmp_path / "chat.db") as store:
        adapter = PalaverSessionStore(store)
        chosen = options(adapter, server.url, tmp_path / "a")
        session = anyio.run(talk, chosen, "A colour?", "Another?")[0][0]
        history = store.get(session)
        first = next(v for v in range(history.version) if len(history.at(v)) == 3)
        fork = history.fork(at=first)
        shutil.rmtree(tmp_path / "a" / "home")  # the same project, and nothing else
        anyio.run(talk, options(adapter, server.url, tmp_path / "a", fork.id), "A third?")
        assert [
            "user: A colour?",
            "assistant: thought Hm.",
            "assistant: Red.",
            "user: A third?",
        ] == [word for word in sent(server) if "No response" not in word]
        assert "Green." == store.get(fork.id)[-1].text
        assert "Blue." == store.get(session)[-1].text

        own = store.create([palaver.user("I am Ann."), palaver.assistant("Hello, Ann.")])
        anyio.run(talk, options(adapter, server.url, tmp_path / "c", own.id), "Who am I?")
        assert ["user: I am Ann.", "assistant: Hello, Ann.", "user: Who am I?"] == sent(server)
        assert "Hello again." == store.get(own.id)[-1].text


def waited(done: Any, seconds: float = 60) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)
