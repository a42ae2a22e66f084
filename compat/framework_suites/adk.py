"""ADK: its tests with `PalaverSessionService` for its services in memory, in SQLite and in SQL."""

from __future__ import annotations

import re
from typing import Final, Self

import palaver
from compat.framework_suites.suites import CannotPass, InPlace, Suite
from palaver.adapters.adk import PalaverSessionService

__all__ = ["SUITES"]


class InMemorySessionService(PalaverSessionService):
    """Takes what ADK's service in memory takes."""

    def __init__(self) -> None:
        super().__init__(palaver.open(":memory:"))


class StoredSessionService(PalaverSessionService):
    """Takes what ADK's SQLite service and its database service take, and can be closed."""

    def __init__(self, db_url: str) -> None:
        super().__init__(palaver.open(re.sub(r"^sqlite(\+\w+)?:///", "", db_url)))

    async def close(self) -> None:
        await self.flush()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()


_IN_MEMORY: Final = {
    "google.adk.sessions.in_memory_session_service:InMemorySessionService": InMemorySessionService,
}
_STORED: Final = {
    "google.adk.sessions.database_session_service:DatabaseSessionService": StoredSessionService,
    "google.adk.sessions.sqlite_session_service:SqliteSessionService": StoredSessionService,
}
_CONTRACT: Final = r"\[(SessionServiceType\.\w+|in_memory|in_memory_light_copy|database|sqlite)\]"

SUITES: Final = (
    Suite(
        title="ADK: what every session service owes",
        folder="adk-python",
        files=("tests/unittests/sessions/test_session_service.py",),
        only=_CONTRACT,
        in_place=(InPlace("PalaverSessionService, for three services", _IN_MEMORY | _STORED),),
    ),
    Suite(
        title="ADK: its database and SQLite services",
        folder="adk-python",
        files=("tests/unittests/sessions/test_session_service.py",),
        only=rf"^(?!.*({_CONTRACT}|vertex))",
        in_place=(InPlace("PalaverSessionService, for both", _STORED),),
    ),
    Suite(
        title="ADK: agents, runners, flows, workflows",
        folder="adk-python",
        files=tuple(
            f"tests/unittests/{name}"
            for name in ("agents", "runners", "flows", "workflow", "test_runners.py")
        ),
        in_place=(InPlace("PalaverSessionService, for the one in memory", _IN_MEMORY),),
    ),
)
