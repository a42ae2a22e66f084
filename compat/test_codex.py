"""Codex, as it is, against `palaver serve`: with its own tools, in a scratch folder."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from compat.serving import MODELS, TOKEN, Serving, run_node, server, serving
from palaver.testing.servers import Answer, Call

if TYPE_CHECKING:
    from pathlib import Path

    from palaver.testing.servers import Exchange

__all__ = ["server", "serving"]  # fixtures, found here by pytest

CODEX = "node_modules/@openai/codex/bin/codex.js"
CONFIG = """
model = "{model}"
model_provider = "palaver"
web_search = "disabled"
check_for_update_on_startup = false

[model_providers.palaver]
name = "palaver"
base_url = "{url}"
env_key = "PALAVER_TOKEN"
wire_api = "responses"

[analytics]
enabled = false

[features]
plugins = false
"""


class Codex:
    """Codex with a configuration and a folder of its own."""

    def __init__(self, serving: Serving, model: str, folder: Path) -> None:
        self.home, self.folder = folder / "home", folder / "work"
        self.home.mkdir()
        self.folder.mkdir()
        text = CONFIG.format(model=model, url=serving.url)
        self.home.joinpath("config.toml").write_text(text)

    def run(self, *arguments: str) -> list[dict[str, Any]]:
        """The items of a turn."""
        told = {"CODEX_HOME": str(self.home), "HOME": str(self.home), "PALAVER_TOKEN": TOKEN}
        options = ["--json", "--skip-git-repo-check", "--sandbox", "danger-full-access"]
        environment = {"PATH": os.environ["PATH"], **told}
        said = run_node(CODEX, "exec", *options, *arguments, cwd=self.folder, env=environment)
        events = [json.loads(line) for line in said.splitlines()]
        return [event["item"] for event in events if event["type"] == "item.completed"]


def calls_agent(exchange: Exchange) -> Answer:
    """Call a tool of a namespace; its name is written as the provider allows it."""
    texts = json.dumps(exchange.body["tools"]).split('"')
    (name,) = [text for text in texts if "multi_agent" in text and "close_agent" in text]
    return Answer(calls=[Call(name, {"target": "nobody"}, id="call_agent")])


@pytest.mark.parametrize("model", MODELS)
def test_turns_with_its_tools(serving: Serving, model: str, tmp_path: Path) -> None:
    codex = Codex(serving, model, tmp_path)
    command = {"cmd": "echo hello > hello.txt && echo written"}
    shell = Call("exec_command", command, id="call_shell")
    serving.then(
        model,
        Answer(reasoning="A shell will do.", calls=[shell]),
        calls_agent,
        "Both done.",
    )
    items = codex.run("Write hello.txt")
    assert "hello\n" == codex.folder.joinpath("hello.txt").read_text()
    assert ("agent_message", "Both done.") == (items[-1]["type"], items[-1]["text"])
    assert "written" in serving.sent(model), "what the shell said"
    assert "nobody" in serving.sent(model), "what became of the call of a namespace"
    serving.then(model, "It says hello.")
    items = codex.run("resume", "--last", "What does it say?")
    assert "It says hello." == items[-1]["text"]
    for text in ("Write hello.txt", "echo written", "Both done.", "What does it say?"):
        assert text in serving.sent(model)
    assert not serving.new_conversations(), "Codex keeps its own history, and asks to store nothing"
