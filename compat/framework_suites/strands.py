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

    def __init__(self, session_id: str, session_repository: PalaverSessionRepository) -> None:
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


def _of_manager(*names: str) -> tuple[str, ...]:
    return tuple(f"test_repository_session_manager.py::test_{name}" for name in names)


def _of_files(*names: str) -> tuple[str, ...]:
    return tuple(f"test_file_session_manager.py::test_{name}" for name in names)


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
                (
                    CannotPass(
                        "calls of `update_agent` are counted, which it does without",
                        _of_manager(
                            "sync_agent_calls_update_when_conversation_manager_state_changed",
                            "sync_agent_calls_update_when_internal_state_changed",
                            "sync_agent_calls_update_when_model_state_changed",
                            "sync_agent_calls_update_when_state_is_dirty",
                            "sync_agent_first_sync_always_updates",
                            "sync_agent_retries_on_failure",
                            "sync_agent_skips_update_when_state_not_dirty_and_internal_state"
                            "_unchanged",
                            "sync_agent_tracks_version_after_successful_sync",
                            "sync_agent_with_bidi",
                        ),
                    ),
                    CannotPass(
                        "a new session must not be read; here it is, because another process may"
                        " have created it meanwhile",
                        _of_manager(
                            "initialize_skips_read_agent_for_new_session",
                            "initialize_with_bidi_skips_read_agent_for_new_session",
                        ),
                    ),
                    CannotPass(
                        "a missing result is in Strands' words, and in a message by itself; here it"
                        " is joined to the question that follows, so that roles alternate",
                        _of_manager(
                            "fix_broken_tool_use_adds_missing_tool_results",
                            "fix_broken_tool_use_extends_partial_tool_results",
                            "fix_broken_tool_use_handles_multiple_orphaned_tools",
                        ),
                    ),
                ),
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
                "PalaverSessionRepository",
                {_FILES: FileRepositoryManager},
                (
                    CannotPass(
                        "files and links are looked for, or their paths are asked for",
                        (
                            *_of_files(
                                "_get_agent_path_invalid_agent_id",
                                "_get_message_path_invalid_message_id",
                                "_get_session_path_invalid_session_id",
                                "create_agent",
                                "create_message",
                                "create_multi_agent",
                                "create_session",
                                "create_session_multi_agent_directory_structure",
                                "delete_session",
                                "message_durable_id_persists",
                            ),
                            *(
                                f"test_file_session_manager_symlink_protection.py::Test{name}"
                                for name in (
                                    "AtomicWrite",
                                    "DefaultStorageDir",
                                    "SymlinkProtection",
                                )
                            ),
                        ),
                    ),
                    CannotPass("a file is damaged", _of_files("corrupted_json_file")),
                ),
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
                (
                    CannotPass(
                        "a warning has the name of Strands' own class in it",
                        ("test_agent_storage.py::TestRepositorySessionManagerWarnOnce",),
                    ),
                ),
            ),
        ),
    ),
)
