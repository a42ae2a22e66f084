"""Strands: its tests with `PalaverSessionRepository` and `PalaverSessionManager`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from strands.session.repository_session_manager import RepositorySessionManager

import palaver
from compat.framework_suites.suites import CannotPass, InPlace, Suite
from palaver.adapters.strands import PalaverSessionManager, PalaverSessionRepository

__all__ = ["SUITES"]


class MockedSessionRepository(PalaverSessionRepository):
    """Takes what the repository of Strands' tests takes: nothing."""

    def __init__(self) -> None:
        super().__init__(palaver.open(":memory:"))


class RepositoryManager(PalaverSessionManager):
    """Takes what Strands' manager takes: the repository has the store."""

    def __init__(self, session_id: str, session_repository: object) -> None:
        if not isinstance(session_repository, PalaverSessionRepository):  # a mock
            session_repository = MockedSessionRepository()
        super().__init__(session_id, session_repository.store)
        self.repository = self.session_repository = session_repository  # the tests look into it


class FileRepositoryManager(RepositorySessionManager, PalaverSessionRepository):
    """Takes a folder, as Strands' file manager does, and is a repository as that is."""

    def __init__(self, session_id: str, storage_dir: str | None = None, **_more: Any) -> None:
        PalaverSessionRepository.__init__(self, _open_in(storage_dir))
        RepositorySessionManager.__init__(self, session_id, self)


class FileManager(PalaverSessionManager):
    """Takes a folder, as Strands' file manager does, and hands a repository's calls to its own."""

    def __init__(self, session_id: str, storage_dir: str | None = None, **_more: Any) -> None:
        super().__init__(session_id, _open_in(storage_dir))

    def create_agent(self, *values: Any) -> None:
        self.repository.create_agent(*values)

    def read_agent(self, *values: Any) -> Any:
        return self.repository.read_agent(*values)

    def create_message(self, *values: Any) -> None:
        self.repository.create_message(*values)

    def read_multi_agent(self, *values: Any) -> Any:
        return self.repository.read_multi_agent(*values)


def _open_in(storage_dir: str | None) -> palaver.Store:
    """Open the store in a folder, which is made as Strands makes it."""
    if storage_dir is None:
        return palaver.open(":memory:")
    Path(storage_dir).mkdir(parents=True, exist_ok=True)
    return palaver.open(Path(storage_dir) / "chat.db")


_REPOSITORY: Final = "tests.fixtures.mock_session_repository:MockedSessionRepository"
_MANAGER: Final = "strands.session.repository_session_manager:RepositorySessionManager"
_FILES: Final = "strands.session.file_session_manager:FileSessionManager"
_UPDATES: Final = CannotPass(
    "calls of `update_agent` are counted, which it does without",
    {
        "test_repository_session_manager.py": (
            "test_sync_agent_calls_update_when_conversation_manager_state_changed",
            "test_sync_agent_calls_update_when_internal_state_changed",
            "test_sync_agent_calls_update_when_model_state_changed",
            "test_sync_agent_calls_update_when_state_is_dirty",
            "test_sync_agent_first_sync_always_updates",
            "test_sync_agent_retries_on_failure",
            "test_sync_agent_skips_update_when_state_not_dirty_and_internal_state_unchanged",
            "test_sync_agent_tracks_version_after_successful_sync",
            "test_sync_agent_with_bidi",
        ),
    },
)
_READS: Final = CannotPass(
    "a new session must not be read; here it is, because another process may have created it"
    " meanwhile",
    {
        "test_repository_session_manager.py": (
            "test_initialize_skips_read_agent_for_new_session",
            "test_initialize_with_bidi_skips_read_agent_for_new_session",
        ),
    },
)
_REPAIRS: Final = CannotPass(
    "a missing result is in Strands' words, and in a message by itself; here it is joined to the"
    " question that follows, so that roles alternate",
    {
        "test_repository_session_manager.py": (
            "test_fix_broken_tool_use_adds_missing_tool_results",
            "test_fix_broken_tool_use_extends_partial_tool_results",
            "test_fix_broken_tool_use_handles_multiple_orphaned_tools",
        ),
    },
)
_PATHS: Final = CannotPass(
    "files and links are looked for, or their paths are asked for",
    {
        "test_file_session_manager.py": (
            "test__get_agent_path_invalid_agent_id",
            "test__get_message_path_invalid_message_id",
            "test__get_session_path_invalid_session_id",
            "test_create_agent",
            "test_create_message",
            "test_create_multi_agent",
            "test_create_session",
            "test_create_session_multi_agent_directory_structure",
            "test_delete_session",
            "test_message_durable_id_persists",
        ),
        "test_file_session_manager_symlink_protection.py": (
            "TestAtomicWrite",
            "TestDefaultStorageDir",
            "TestSymlinkProtection",
        ),
    },
)
_DAMAGED: Final = CannotPass(
    "a file is damaged", {"test_file_session_manager.py": ("test_corrupted_json_file",)}
)
_WARNING: Final = CannotPass(
    "a warning has the name of Strands' own class in it",
    {
        "test_agent_storage.py": (
            "TestRepositorySessionManagerWarnOnce::test_warns_when_agent_has_storage",
            "TestRepositorySessionManagerWarnOnce::test_warns_when_bidi_agent_has_storage",
        ),
    },
)

SUITES: Final = (
    Suite(
        title="Strands: the session manager, over a repository",
        folder="sdk-python",
        files=("tests/strands/session/test_repository_session_manager.py",),
        in_place=(
            InPlace("PalaverSessionRepository", {_REPOSITORY: MockedSessionRepository}),
            InPlace(
                "PalaverSessionManager, too",
                {_REPOSITORY: MockedSessionRepository, _MANAGER: RepositoryManager},
                (_UPDATES, _READS, _REPAIRS),
            ),
        ),
    ),
    Suite(
        title="Strands: sessions in files",
        folder="sdk-python",
        files=(
            "tests/strands/session/test_file_session_manager.py",
            "tests/strands/session/test_file_session_manager_symlink_protection.py",
        ),
        in_place=(
            InPlace(
                "PalaverSessionRepository", {_FILES: FileRepositoryManager}, (_PATHS, _DAMAGED)
            ),
        ),
    ),
    Suite(
        title="Strands: agents, swarms, graphs",
        folder="sdk-python",
        files=(
            "tests/strands/agent",
            "tests/strands/multiagent",
            "tests/strands/middleware/test_agent_stream_middleware.py",
            "tests/strands/models/routing/test_router.py",
            "tests/strands/test_tracking_id_history_invariant.py",
        ),
        in_place=(
            InPlace(
                "PalaverSessionRepository",
                {_REPOSITORY: MockedSessionRepository, _FILES: FileRepositoryManager},
            ),
            InPlace(
                "PalaverSessionManager",
                {
                    _REPOSITORY: MockedSessionRepository,
                    _MANAGER: RepositoryManager,
                    _FILES: FileManager,
                },
                (_WARNING,),
            ),
        ),
    ),
)
