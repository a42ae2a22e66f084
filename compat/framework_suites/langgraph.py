"""LangGraph: its conformance suite for checkpointers, with `PalaverSaver`.

The suite is a library that takes a checkpointer and reports on each of its checks. It is the one in
the checkout: this module runs in the checkout's folder, as a program of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks
from langgraph.checkpoint.memory import InMemorySaver

import palaver
from compat.framework_suites.suites import InPlace, Suite
from palaver.adapters.langgraph import PalaverSaver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["SUITES"]


class PalaverInMemory(PalaverSaver):
    """Takes what LangGraph's saver takes: nothing."""

    def __init__(self) -> None:
        super().__init__(palaver.open(":memory:"))


SUITES: Final = (
    Suite(
        title="LangGraph: the conformance of checkpointers",
        folder="langgraph/libs/checkpoint-conformance",
        files=(),
        program="compat.framework_suites.langgraph",
        in_place=(
            InPlace("PalaverSaver", {"langgraph.checkpoint.memory:InMemorySaver": PalaverInMemory}),
        ),
    ),
)


async def _check(saver: type) -> dict[str, str]:
    """Return the outcome of each check of a checkpointer."""
    outcomes: dict[str, str] = {}

    @checkpointer_test(name=saver.__name__)
    async def make() -> AsyncIterator[Any]:
        yield saver()

    def note(capability: str, name: str, passed: bool, _error: str | None) -> None:  # noqa: FBT001 - as theirs
        outcomes[f"{capability}::{name}"] = "passed" if passed else "failed"

    await validate(make, progress=ProgressCallbacks(on_test_result=note))
    return outcomes


def main() -> None:
    """Run the checks, and write their outcomes to a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--suite")
    parser.add_argument("--in-place")
    parser.add_argument("--outcomes", type=Path)
    asked = parser.parse_args()
    found = asyncio.run(_check(InMemorySaver if asked.in_place is None else PalaverInMemory))
    text = json.dumps({"outcomes": found, "uncollected": {}})
    asked.outcomes.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
