"""The adapter as the tests use it, and what they ask of the lines that it gives back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio

from compat.claude_lines import KEY, SESSION, ident
from palaver.adapters.claude_agent_sdk import PalaverSessionStore

if TYPE_CHECKING:
    from palaver.stores import Store, StoredHistory

__all__ = ["Sessions", "chain", "whole"]

NAMES = ["ask", "env", "think", "look", "call", "fine", "left", "sunny", "thanks", "bye"]


class Sessions:
    """The adapter, without the waiting."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.adapter = PalaverSessionStore(store)

    def append(self, *lines: Any, key: Any = KEY) -> None:
        anyio.run(self.adapter.append, key, list(lines))

    def load(self, key: Any = KEY) -> list[dict[str, Any]]:
        found: Any = anyio.run(self.adapter.load, key)
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]

    @property
    def history(self) -> StoredHistory:
        return self.store.get(SESSION)


def chain(lines: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """Which line hangs on which, by what they are called above."""
    names = {ident(name): name for name in NAMES}
    return [
        (names.get(line["uuid"], "new"), names.get(line["parentUuid"] or "", line["parentUuid"]))
        for line in lines
        if "parentUuid" in line
    ]


def whole(lines: list[dict[str, Any]]) -> bool:
    """Tell whether the way from the last line leads back to the first, and calls have results."""
    linked = [line for line in lines if "parentUuid" in line]
    by_name = {line["uuid"]: line for line in linked}
    assert len(by_name) == len(linked)
    place: dict[str, Any] | None = linked[-1]
    seen = 0
    while place is not None:
        seen += 1
        place = by_name[place["parentUuid"]] if place["parentUuid"] else None
    blocks = [
        block
        for line in lines
        if isinstance(line.get("message", {}).get("content"), list)
        for block in line["message"]["content"]
    ]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    return seen == len(linked) and calls == results
