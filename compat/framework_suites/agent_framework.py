"""Agent Framework: its tests with `PalaverHistoryProvider` and `PalaverCheckpointStorage`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

import palaver
from compat.framework_suites.suites import CannotPass, InPlace, Suite
from palaver.adapters.agent_framework import PalaverCheckpointStorage, PalaverHistoryProvider

__all__ = ["SUITES"]


class InMemoryHistoryProvider(PalaverHistoryProvider):
    """Takes what the framework's provider takes."""

    DEFAULT_SOURCE_ID: ClassVar[str] = "in_memory"

    def __init__(self, source_id: str | None = None, **more: Any) -> None:
        super().__init__(palaver.open(":memory:"), source_id or self.DEFAULT_SOURCE_ID, **more)


class FileHistoryProvider(PalaverHistoryProvider):
    """Takes a folder, as the framework's provider does."""

    DEFAULT_SOURCE_ID: ClassVar[str] = "file_history"

    def __init__(
        self, storage_path: str | Path, *, source_id: str = DEFAULT_SOURCE_ID, **more: Any
    ) -> None:
        Path(storage_path).mkdir(parents=True, exist_ok=True)
        super().__init__(palaver.open(Path(storage_path) / "chat.db"), source_id, **more)


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


_PROVIDERS: Final = {
    "agent_framework._sessions:InMemoryHistoryProvider": InMemoryHistoryProvider,
}
_FILES: Final = {"agent_framework._sessions:FileHistoryProvider": FileHistoryProvider}
_STORAGES: Final = {
    "agent_framework._workflows._checkpoint:InMemoryCheckpointStorage": InMemoryCheckpointStorage,
    "agent_framework._workflows._checkpoint:FileCheckpointStorage": FileCheckpointStorage,
}


def _of_files(*names: str) -> tuple[str, ...]:
    return tuple(f"test_sessions.py::TestFileHistoryProvider::test_{name}" for name in names)


SUITES: Final = (
    Suite(
        title="Agent Framework: sessions, compaction, agents",
        folder="agent-framework/python/packages/core",
        files=tuple(
            f"tests/core/test_{name}.py"
            for name in (
                "agents",
                "compaction",
                "function_invocation_logic",
                "harness_agent",
                "harness_memory",
                "harness_tool_approval",
                "middleware_with_agent",
                "sessions",
            )
        ),
        only="^(?!.*TestFileHistoryProvider)",
        in_place=(
            InPlace(
                "PalaverHistoryProvider, for the one in memory",
                _PROVIDERS,
                (
                    CannotPass(
                        "the messages are looked for, or put, in the session's state",
                        (
                            "test_agents.py::test_chat_client_agent_prepare_session_and_messages",
                            "test_agents.py::test_chat_client_agent_streaming_session_history_saved"
                            "_without_get_final_response",
                            "test_agents.py::test_chat_client_agent_update_session_messages",
                            "test_compaction.py::test_in_memory_history_provider_default_loads_all",
                            "test_harness_agent.py::test_before_strategy_compaction_fires_on_loaded"
                            "_history_under_per_service_call_persistence",
                            "test_harness_agent.py::test_before_strategy_compaction_multi_turn_keeps"
                            "_persisted_history_coherent",
                            "test_middleware_with_agent.py::TestChatAgentSessionBehavior::"
                            "test_agent_context_session_behavior_across_multiple_runs",
                            "test_sessions.py::TestInMemoryHistoryProvider::"
                            "test_state_is_serializable",
                        ),
                    ),
                    CannotPass(
                        "messages that a compaction has marked are left out, from the session's state",
                        ("test_compaction.py::test_in_memory_history_provider_skip_excluded",),
                    ),
                    CannotPass(
                        "the answers have mocks in them, which can't be stored as JSON",
                        (
                            "test_agents.py::test_shared_local_storage_cross_provider_responses"
                            "_history_does_not_leak_fc_id",
                        ),
                    ),
                ),
            ),
        ),
    ),
    Suite(
        title="Agent Framework: checkpoints, workflows",
        folder="agent-framework/python/packages/core",
        files=("tests/workflow",),
        in_place=(
            InPlace(
                "PalaverCheckpointStorage",
                _STORAGES,
                (
                    CannotPass(
                        "files are looked for",
                        tuple(
                            f"test_checkpoint.py::test_file_checkpoint_storage_{name}"
                            for name in (
                                "delete",
                                "directory_creation",
                                "json_serialization",
                                "save_and_load",
                            )
                        ),
                    ),
                ),
            ),
        ),
    ),
    Suite(
        title="Agent Framework: the history in files",
        folder="agent-framework/python/packages/core",
        files=("tests/core/test_sessions.py", "tests/core/test_harness_tool_approval.py"),
        only="TestFileHistoryProvider|harness_tool_approval",
        in_place=(
            InPlace(
                "PalaverHistoryProvider",
                _FILES,
                (
                    CannotPass(
                        "files are looked into, or their folder is asked for",
                        _of_files(
                            "concurrent_writes_for_same_session_are_locked",
                            "creates_storage_directory",
                            "invalid_jsonl_line_raises",
                            "non_mapping_jsonl_line_raises",
                            "reads_existing_stdlib_non_finite_json",
                            "stores_and_loads_messages",
                            "truncated_msgpack_record_raises",
                            "uses_encoded_filename_for_unsafe_session_id",
                        ),
                    ),
                    CannotPass(
                        "a serializer is given, or asked for",
                        _of_files(
                            "allows_custom_serializers_returning_bytes",
                            "custom_json_codecs_are_deprecated",
                            "msgpack_rejects_custom_json_codecs",
                            "serializer_must_return_single_line_json",
                            "stores_and_loads_length_prefixed_msgpack",
                            "uses_msgspec_json_by_default",
                        ),
                    ),
                    CannotPass(
                        "the class is asked whether it is experimental",
                        _of_files("is_marked_experimental"),
                    ),
                    CannotPass(
                        "all sessions without an id are stored as one",
                        _of_files("none_session_id_uses_default_jsonl_file"),
                    ),
                    CannotPass(
                        "messages that a compaction has marked are left out, which loses them",
                        _of_files("skip_excluded_omits_excluded_messages"),
                    ),
                ),
            ),
        ),
    ),
)
