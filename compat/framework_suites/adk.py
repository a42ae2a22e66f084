"""ADK: its tests with `PalaverSessionService` for its services in memory, in SQLite and in SQL."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Self

import palaver
from compat.framework_suites.suites import CannotPass, InPlace, Suite
from palaver.adapters.adk import PalaverSessionService

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["SUITES"]


class InMemorySessionService(PalaverSessionService):
    """Takes what ADK's service in memory takes."""

    def __init__(self) -> None:
        super().__init__(palaver.open(":memory:"))

    def create_session_sync(self, **session: Any) -> Any:
        return _run(self.create_session(**session))

    def get_session_sync(self, **session: Any) -> Any:
        return _run(self.get_session(**session))


def _run(call: Coroutine[Any, Any, Any]) -> Any:
    """Run a call to its end, also where a loop is running: in a loop of another thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, call).result()


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


_IN_MEMORY: Final[dict[str, object]] = {
    "google.adk.sessions.in_memory_session_service:InMemorySessionService": InMemorySessionService,
}
_STORED: Final[dict[str, object]] = {
    "google.adk.sessions.database_session_service:DatabaseSessionService": StoredSessionService,
    "google.adk.sessions.sqlite_session_service:SqliteSessionService": StoredSessionService,
}
_CONTRACT: Final = (
    r"(?<!_dialect)\[(SessionServiceType\.\w+|in_memory|in_memory_light_copy|database|sqlite)\]"
)
"""Tests of the contract run once for each service."""

_INSIDE: Final = CannotPass(
    "tables, engines, addresses and modes of databases are looked into",
    {
        "test_session_service.py": (
            "test_append_event_calls_rollback_on_commit_failure",
            "test_append_event_raises_if_app_state_row_missing",
            "test_append_event_raises_if_user_state_row_missing",
            "test_append_event_reads_storage_revision_before_commit",
            "test_concurrent_prepare_tables_no_race_condition",
            "test_create_session_calls_rollback_on_commit_failure",
            "test_create_session_reads_storage_revision_before_commit",
            "test_database_session_service_caller_owned_engine_not_disposed_on_close",
            "test_database_session_service_creates_read_only_engine_for_other_dialects",
            "test_database_session_service_creates_read_only_engine_for_spanner",
            "test_database_session_service_enables_pool_pre_ping_by_default",
            "test_database_session_service_get_session_uses_read_only_factory",
            "test_database_session_service_keeps_timezone_for_spanner",
            "test_database_session_service_list_sessions_uses_read_only_factory",
            "test_database_session_service_requires_one_argument",
            "test_database_session_service_respects_pool_pre_ping_override",
            "test_database_session_service_sqlite_file_timestamp_read_after_reopen",
            "test_database_session_service_uses_naive_datetime_for_dialect",
            "test_database_session_service_with_db_engine",
            "test_delete_session_calls_rollback_on_commit_failure",
            "test_get_or_create_state_creates_new_row",
            "test_get_or_create_state_handles_race_condition",
            "test_get_or_create_state_returns_existing_row",
            "test_prepare_tables_idempotent_after_creation",
            "test_prepare_tables_serializes_schema_detection_and_creation",
            "test_public_prepare_tables_eager_initialization",
            "test_service_recovers_after_multiple_failures",
            "test_sqlite_session_service_preserves_uri_query_parameters",
        ),
    },
)
_STALE: Final = CannotPass(
    "a new question is refused if the session has changed; here it is appended",
    {
        "test_session_service.py": (
            "test_append_event_concurrent_stale_sessions_reject_stale_writer",
            "test_append_event_to_stale_session",
        ),
    },
)
_HELD: Final = CannotPass(
    "events that the service in memory still holds are changed; it fails with ADK's SQLite"
    " service, too",
    {
        "test_functions_long_running.py": (
            "test_async_function",
            "test_async_function_with_none_response",
        ),
    },
)

SUITES: Final = (
    Suite(
        title="ADK: what every session service owes",
        folder="adk-python",
        files=("tests/unittests/sessions/test_session_service.py",),
        only=_CONTRACT,
        in_place=(InPlace("PalaverSessionService, for three services", {**_IN_MEMORY, **_STORED}),),
    ),
    Suite(
        title="ADK: its database and SQLite services",
        folder="adk-python",
        files=("tests/unittests/sessions/test_session_service.py",),
        only=rf"^(?!.*({_CONTRACT}|vertex))",
        in_place=(InPlace("PalaverSessionService, for both", _STORED, (_INSIDE, _STALE)),),
    ),
    Suite(
        title="ADK: agents, runners, flows, workflows",
        folder="adk-python",
        files=tuple(
            f"tests/unittests/{name}"
            for name in ("agents", "runners", "flows", "workflow", "test_runners.py")
        ),
        # what the fixture of these finds in ADK 2.13 depends on which loops Python has freed
        only="^(?!.*test_functions_thread_pool)",
        in_place=(InPlace("PalaverSessionService, for the one in memory", _IN_MEMORY, (_HELD,)),),
    ),
)
