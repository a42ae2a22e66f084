"""palaver: the conversation-state engine for LLM agents.

It stores what was said, what became of every tool call and what each agent sees next, and every
earlier state can be restored. What a first program needs is importable from here; each name is
loaded when it is first used, so that `import palaver` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palaver import (
        context,
        conversation,
        errors,
        events,
        history,
        messages,
        models,
        nodes,
        stores,
        team,
        tokens,
        tools,
        transcripts,
        wire,
    )
    from palaver.context import ContextManager
    from palaver.conversation import (
        Conversation,
        Limits,
        ReasoningDelta,
        RunResult,
        TextDelta,
        compact,
    )
    from palaver.conversation import run_until_answer as run
    from palaver.history import History
    from palaver.messages import Message, assistant, parse_message, parse_messages, system, user
    from palaver.models import model
    from palaver.stores import Key, Store, StoredHistory
    from palaver.stores import open_store as open  # noqa: A004 - palaver.open reads well
    from palaver.team import Coordinator, Team, load_team
    from palaver.tools import Toolbox, tool

__all__ = [
    "ContextManager",
    "Conversation",
    "Coordinator",
    "History",
    "Key",
    "Limits",
    "Message",
    "ReasoningDelta",
    "RunResult",
    "Store",
    "StoredHistory",
    "Team",
    "TextDelta",
    "Toolbox",
    "__version__",
    "assistant",
    "compact",
    "context",
    "conversation",
    "errors",
    "events",
    "history",
    "load_team",
    "messages",
    "model",
    "models",
    "nodes",
    "open",
    "parse_message",
    "parse_messages",
    "run",
    "stores",
    "system",
    "team",
    "tokens",
    "tool",
    "tools",
    "transcripts",
    "user",
    "wire",
]
__version__ = "0.1.0"

_HOMES = {
    "TextDelta": "palaver.conversation",
    "ReasoningDelta": "palaver.conversation",
    "Limits": "palaver.conversation",
    "RunResult": "palaver.conversation",
    "ContextManager": "palaver.context",
    "Conversation": "palaver.conversation",
    "Coordinator": "palaver.team",
    "History": "palaver.history",
    "Key": "palaver.stores",
    "Message": "palaver.messages",
    "Store": "palaver.stores",
    "StoredHistory": "palaver.stores",
    "Team": "palaver.team",
    "Toolbox": "palaver.tools",
    "assistant": "palaver.messages",
    "compact": "palaver.conversation",
    "load_team": "palaver.team",
    "model": "palaver.models",
    "open": "palaver.stores:open_store",
    "parse_message": "palaver.messages",
    "parse_messages": "palaver.messages",
    "run": "palaver.conversation:run_until_answer",
    "system": "palaver.messages",
    "tool": "palaver.tools",
    "user": "palaver.messages",
}


def __getattr__(name: str) -> object:
    """Load a public name from where it lives, once."""
    if name not in __all__:
        msg = f"module 'palaver' has no attribute {name!r}"
        raise AttributeError(msg)
    if name not in _HOMES:
        return importlib.import_module(f"palaver.{name}")
    home, _, inner = _HOMES[name].partition(":")
    value: object = getattr(importlib.import_module(home), inner or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted(__all__)
