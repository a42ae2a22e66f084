"""Agent Framework: its tests with `PalaverHistoryProvider` and `PalaverCheckpointStorage`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import palaver
from compat.framework_suites.suites import CannotPass, InPlace, Suite
from palaver.adapters.agent_framework import PalaverCheckpointStorage, PalaverHistoryProvider

__all__ = ["SUITES"]


class InMemoryHistoryProvider(PalaverHistoryProvider):
    """Takes what the framework's provider takes."""

    def __init__(self, source_id: str | None = None, **more: Any) -> None:
        super().__init__(palaver.open(":memory:"), source_id or self.DEFAULT_SOURCE_ID, **more)


class FileHistoryProvider(PalaverHistoryProvider):
    """Takes a folder, as the framework's provider does."""

    def __init__(
        self, storage_path: str | Path, *, source_id: str | None = None, **more: Any
    ) -> None:
        Path(storage_path).mkdir(parents=True, exist_ok=True)
        super().__init__(
            palaver.open(Path(storage_path) / "chat.db"),
            source_id or self.DEFAULT_SOURCE_ID,
            **more,
        )


class _TestClasses(frozenset[str]):
    """The names of all classes, also of those that a test makes."""

    def __contains__(self, name: object) -> bool:
        return True

    def __or__(self, more: object) -> _TestClasses:
        return self


class InMemoryCheckpointStorage(PalaverCheckpointStorage):
    """Takes what the framework's storage takes: nothing. It allows the classes of the tests."""

    def __init__(self) -> None:
        super().__init__(palaver.open(":memory:"))
        self._allowed = _TestClasses()


class FileCheckpointStorage(PalaverCheckpointStorage):
    """Takes a folder, as the framework's storage does."""

    def __init__(
        self, storage_path: str | Path, *, allowed_checkpoint_types: list[str] | None = None
    ) -> None:
        Path(storage_path).mkdir(parents=True, exist_ok=True)
        super().__init__(
            palaver.open(Path(storage_path) / "checkpoints.db"),
            allowed_checkpoint_types=allowed_checkpoint_types or (),
        )


_FOLDER: Final = "agent-framework/python/packages/core"
_PROVIDERS: Final = {
    "agent_framework._sessions:InMemoryHistoryProvider": InMemoryHistoryProvider,
}
_FILES: Final = {"agent_framework._sessions:FileHistoryProvider": FileHistoryProvider}
_STORAGES: Final = {
    "agent_framework._workflows._checkpoint:InMemoryCheckpointStorage": InMemoryCheckpointStorage,
    "agent_framework._workflows._checkpoint:FileCheckpointStorage": FileCheckpointStorage,
}
_STATE: Final = CannotPass(
    "the messages are looked for, or put, in the session's state",
    {
        "test_agents.py": (
            "test_chat_client_agent_prepare_session_and_messages",
            "test_chat_client_agent_streaming_session_history_saved_without_get_final_response",
            "test_chat_client_agent_update_session_messages",
        ),
        "test_compaction.py": ("test_in_memory_history_provider_default_loads_all",),
        "test_harness_agent.py": (
            "test_before_strategy_compaction_fires_on_loaded_history*",
            "test_before_strategy_compaction_multi_turn_keeps_persisted_history_coherent",
        ),
        "test_middleware_with_agent.py": (
            "TestChatAgentSessionBehavior::test_agent_context_session_behavior_across*",
        ),
        "test_sessions.py": ("TestInMemoryHistoryProvider::test_state_is_serializable",),
    },
)
_EXCLUDED: Final = CannotPass(
    "messages that a compaction has marked are left out, which loses them",
    {
        "test_compaction.py": ("test_in_memory_history_provider_skip_excluded",),
        "test_sessions.py": (
            "TestFileHistoryProvider::test_skip_excluded_omits_excluded_messages",
        ),
    },
)
_MOCKS: Final = CannotPass(
    "the answers have mocks in them, which can't be stored as JSON",
    {"test_agents.py": ("test_shared_local_storage_cross_provider_responses_history*",)},
)
_CHECKPOINT_FILES: Final = CannotPass(
    "files are looked for",
    {
        "test_checkpoint.py": (
            "test_file_checkpoint_storage_delete",
            "test_file_checkpoint_storage_directory_creation",
            "test_file_checkpoint_storage_json_serialization",
            "test_file_checkpoint_storage_save_and_load",
        ),
    },
)
_HISTORY_FILES: Final = CannotPass(
    "files are looked into, or their folder is asked for",
    {
        "test_sessions.py": (
            "TestFileHistoryProvider::test_concurrent_writes_for_same_session_are_locked",
            "TestFileHistoryProvider::test_creates_storage_directory",
            "TestFileHistoryProvider::test_invalid_jsonl_line_raises",
            "TestFileHistoryProvider::test_non_mapping_jsonl_line_raises",
            "TestFileHistoryProvider::test_reads_existing_stdlib_non_finite_json",
            "TestFileHistoryProvider::test_stores_and_loads_messages",
            "TestFileHistoryProvider::test_truncated_msgpack_record_raises",
            "TestFileHistoryProvider::test_uses_encoded_filename_for_unsafe_session_id",
        ),
    },
)
_SERIALIZERS: Final = CannotPass(
    "a serializer is given, or asked for",
    {
        "test_sessions.py": (
            "TestFileHistoryProvider::test_allows_custom_serializers_returning_bytes",
            "TestFileHistoryProvider::test_custom_json_codecs_are_deprecated",
            "TestFileHistoryProvider::test_msgpack_rejects_custom_json_codecs",
            "TestFileHistoryProvider::test_serializer_must_return_single_line_json",
            "TestFileHistoryProvider::test_stores_and_loads_length_prefixed_msgpack",
            "TestFileHistoryProvider::test_uses_msgspec_json_by_default",
        ),
    },
)
_EXPERIMENTAL: Final = CannotPass(
    "the class is asked whether it is experimental",
    {"test_sessions.py": ("TestFileHistoryProvider::test_is_marked_experimental",)},
)
_NO_ID: Final = CannotPass(
    "all sessions without an id are stored as one",
    {"test_sessions.py": ("TestFileHistoryProvider::test_none_session_id_uses_default*",)},
)

SUITES: Final = (
    Suite(
        title="Agent Framework: sessions, compaction, agents",
        folder=_FOLDER,
        files=tuple(
            f"tests/core/test_{name}.py"
            for name in (
                "agents",
                "compaction",
                "function_invocation_logic",
                "harness_agent",
                "harness_memory",
                "middleware_with_agent",
                "sessions",
            )
        ),
        only="^(?!.*TestFileHistoryProvider)",
        in_place=(
            InPlace(
                "PalaverHistoryProvider, for the one in memory",
                _PROVIDERS,
                (_STATE, _EXCLUDED, _MOCKS),
            ),
        ),
    ),
    Suite(
        title="Agent Framework: checkpoints, workflows",
        folder=_FOLDER,
        files=("tests/workflow",),
        in_place=(InPlace("PalaverCheckpointStorage", _STORAGES, (_CHECKPOINT_FILES,)),),
    ),
    Suite(
        title="Agent Framework: the history in files",
        folder=_FOLDER,
        files=("tests/core/test_sessions.py", "tests/core/test_harness_tool_approval.py"),
        only="TestFileHistoryProvider|harness_tool_approval",
        in_place=(
            InPlace(
                "PalaverHistoryProvider",
                _FILES,
                (_HISTORY_FILES, _SERIALIZERS, _EXPERIMENTAL, _NO_ID, _EXCLUDED),
            ),
        ),
    ),
)
