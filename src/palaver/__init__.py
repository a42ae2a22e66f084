"""palaver: the conversation-state engine for LLM agents.

It keeps what was said, what became of every tool call, what each agent sees next, and the way back.
Names are loaded when they are first used, so that `import palaver` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palaver import errors, history, messages, stores
    from palaver.history import History
    from palaver.messages import Message, assistant, parse_message, parse_messages, system, user
    from palaver.stores import Store
    from palaver.stores import open_store as open  # noqa: A004 - palaver.open reads well

__all__ = [
    "History",
    "Message",
    "Store",
    "__version__",
    "assistant",
    "errors",
    "history",
    "messages",
    "open",
    "parse_message",
    "parse_messages",
    "stores",
    "system",
    "user",
]
__version__ = "0.1.0"

_MODULES = ("errors", "history", "messages", "stores")
_HOMES = {
    "History": "palaver.history",
    "Message": "palaver.messages",
    "Store": "palaver.stores",
    "assistant": "palaver.messages",
    "open": "palaver.stores:open_store",
    "parse_message": "palaver.messages",
    "parse_messages": "palaver.messages",
    "system": "palaver.messages",
    "user": "palaver.messages",
}


def __getattr__(name: str) -> object:
    """Load a public name from where it lives, once."""
    if name in _MODULES:
        return importlib.import_module(f"palaver.{name}")
    if name not in _HOMES:
        msg = f"module 'palaver' has no attribute {name!r}"
        raise AttributeError(msg)
    home, _, inner = _HOMES[name].partition(":")
    value: object = getattr(importlib.import_module(home), inner or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)
