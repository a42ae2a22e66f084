"""How fast palaver is, beside its peers and beside the bare floor, measured in one run.

`python -m bench` measures every topic; `--only NAME` those whose name has NAME in it, `--quick`
with few rounds. A new topic is a file with a function `rows` and its name in `TOPICS`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TOPICS"]

TOPICS: Final = (
    "bench.imports",
    "bench.values",
    "bench.history",
    "bench.wire",
    "bench.cache",
    "bench.context",
    "bench.stores",
    "bench.peers",
    "bench.agents",
    "bench.frameworks",
    "bench.langgraph",
    "bench.postgres",
    "bench.conversation",
    "bench.tokens",
    "bench.server",
    "bench.door",
)
"""Modules with a function `rows(run)` that yields one row after the other."""
