"""The rooms of the house: what stands directly under `palaver`, in order of who may use whom."""

from __future__ import annotations

from typing import Final

ORDER: Final = (
    "errors",
    "messages",
    "history",
    "stores",
    "tokens",
    "events",
    "wire",
    "transcripts",
    "models",
    "tools",
    "context",
    "conversation",
    "team",
    "nodes",
    "adapters",
    "palaver",  # the package itself: it re-exports what is above, and only what follows imports it
    "mcp",
    "server",
    "cli",
    "testing",
)
"""Each may import only from those before it, and from itself. Some are still to be built."""
