"""The OpenAI Agents SDK: its tests with `PalaverSession` for `SQLiteSession`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import palaver
from compat.framework_suites.suites import CannotPass, InPlace, Suite
from palaver.adapters.openai_agents import PalaverSession

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SUITES"]


class SQLiteSession(PalaverSession):
    """Takes what the SDK's class takes."""

    def __init__(
        self, session_id: str, db_path: str | Path = ":memory:", *_tables: str, **more: Any
    ) -> None:
        super().__init__(palaver.open(str(db_path)), session_id, **more)


_FILES: Final = (
    "memory",
    "deferred_session_writes",
    "sandbox/test_memory.py",
    "test_agent_runner.py",
    "test_agent_runner_streamed.py",
    "test_agent_runner_sync.py",
    "test_cancel_streaming.py",
    "test_hitl_session_scenario.py",
    "test_max_turns.py",
    "test_native_tool_failure_history.py",
    "test_programmatic_tool_calling.py",
    "test_run.py",
    "test_run_impl_resume_paths.py",
    "test_run_step_execution.py",
    "test_soft_cancel.py",
    "test_tool_batch_failure_history.py",
    "test_tool_failure_boundaries.py",
)
_INSIDE: Final = CannotPass(
    "tables, connections and locks of the SQLite file are looked into, or made to fail",
    {
        "test_compaction_suffix.py": (
            "test_cancelled_suffix_transaction_settles_before_newer_append[sqlite]",
            "test_failed_encrypted_suffix_transaction_preserves_original_tokens[sqlite-*]",
            "test_suffix_transaction_rolls_back_failed_insert[sqlite]",
        ),
        "test_openai_responses_compaction_session.py": (
            "TestOpenAIResponsesCompactionSession::test_settled_clear_failure_invalidates*",
            "TestOpenAIResponsesCompactionSession::test_settled_pop_failure_invalidates*",
        ),
        "test_run_impl_resume_paths.py": (
            "test_handoff_resume_after_cancelled_compaction_commits",
        ),
        "test_session.py": (
            "test_sqlite_session_close_closes_worker_thread_connections",
            "test_sqlite_session_close_retries_quarantined_connection",
            "test_sqlite_session_closes_retired_connections_before_the_next_allocation",
            "test_sqlite_session_failed_clear_session_rolls_back",
            "test_sqlite_session_failed_pop_item_releases_write_lock",
            "test_sqlite_session_file_lock_is_shared_across_instances",
            "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
            "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows",
            "test_sqlite_session_keeps_connections_of_live_worker_threads",
            "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
            "test_sqlite_session_pop_item_skips_corrupt_most_recent",
            "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome",
            "test_sqlite_session_reaps_connections_from_exited_worker_threads",
            "test_sqlite_session_rollback_failure_evicts_connection",
        ),
    },
)
_NO_JSON: Final = CannotPass(
    "an item that is no JSON raises `TypeError`; here `ValidationError`",
    {"test_session.py": ("test_sqlite_session_failed_add_items_releases_write_lock",)},
)

SUITES: Final = (
    Suite(
        title="OpenAI Agents: sessions, runs, compaction",
        folder="openai-agents-python",
        files=tuple(f"tests/{name}" for name in _FILES),
        in_place=(
            InPlace(
                "PalaverSession, for SQLiteSession",
                {"agents.memory.sqlite_session:SQLiteSession": SQLiteSession},
                (_INSIDE, _NO_JSON),
            ),
        ),
    ),
)
