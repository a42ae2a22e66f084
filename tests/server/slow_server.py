"""A server to be killed: `palaver serve` with a model that never ends, and short leases."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import anyio

from palaver.cli import main
from palaver.conversation import step
from palaver.models import register
from palaver.stores import lease
from palaver.tools import tool
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from palaver.models.base import ModelRequest

LEASE = float(os.environ.get("PALAVER_TEST_LEASE", "1.5"))


class Slow(Scripted):
    """Says a word every twentieth of a second, for ever; or calls a tool that never ends."""

    async def stream(self, ask: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        asked = str(ask.body["messages"][-1]["content"])
        if asked == "call":
            for event in calling(("dawdle", {})):
                yield event
            return
        if asked == "answer":
            for event in saying("Whole."):
                yield event
            return
        number = 0
        while True:
            yield {"choices": [{"delta": {"content": f"word {number} "}}]}
            number += 1
            await anyio.sleep(0.05)


@tool
async def dawdle() -> str:
    """Never come back."""
    await anyio.sleep_forever()
    return ""


if __name__ == "__main__":
    for module, name, value in (
        (lease, "LEASE_SECONDS", LEASE),
        (step, "DRAFT_SECONDS", 0.1),
    ):
        setattr(module, name, value)
    register("slow", lambda name, **_: Slow(name=name))
    main(sys.argv[1:])
