"""An agent of the Claude Agent SDK with a tool, as a program: it runs, and may be killed.

    python -m compat.claude_agent STORE PROVIDER FOLDER SESSION PROMPT…

SESSION is the one to resume, or - for a new one. Each answer is a line of JSON: the session, and
what was said. The bundled `claude` program talks to a provider on the loopback address with a key
that is none, and keeps its own files in FOLDER.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    create_sdk_mcp_server,
    tool,
)

import palaver
from palaver.adapters.claude_agent_sdk import PalaverSessionStore

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionStore

__all__ = ["options", "talk"]


@tool("weather", "The weather of a city", {"city": str})
async def weather(given: dict[str, Any]) -> dict[str, Any]:
    """Tell the weather: it is always fine."""
    return {"content": [{"type": "text", "text": f"Sunny in {given['city']}"}]}


def options(
    store: SessionStore, provider: str, folder: Path, session: str | None = None
) -> ClaudeAgentOptions:
    """What makes the program talk to a local provider, and leave everything else alone."""
    home = folder / "home"
    work = folder / "work"
    for made in (home, work):
        made.mkdir(parents=True, exist_ok=True)
    return ClaudeAgentOptions(
        session_store=store,
        session_store_flush="eager",
        resume=session,
        cwd=work,
        model="claude-sonnet-4-5",
        tools=[],
        setting_sources=[],
        mcp_servers={"sky": create_sdk_mcp_server("sky", tools=[weather])},
        allowed_tools=["mcp__sky__weather"],
        permission_mode="dontAsk",
        env={
            "ANTHROPIC_BASE_URL": provider,
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_AUTH_TOKEN": "",
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "HOME": str(home),
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    )


async def talk(chosen: ClaudeAgentOptions, *prompts: str) -> list[tuple[str, str]]:
    """Say something, one after the other; the session and the last words of each answer."""
    answers: list[tuple[str, str]] = []
    async with ClaudeSDKClient(chosen) as client:
        for prompt in prompts:
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    answers.append((message.session_id, message.result or ""))
                    print(json.dumps(answers[-1]), flush=True)  # noqa: T201 - a program
    return answers


def main() -> None:
    """Run as a program."""
    address, provider, folder, session, *prompts = sys.argv[1:]
    with palaver.open(address) as store:
        chosen = options(
            PalaverSessionStore(store), provider, Path(folder), None if session == "-" else session
        )
        anyio.run(talk, chosen, *prompts)


if __name__ == "__main__":
    main()
