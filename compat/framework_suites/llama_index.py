"""LlamaIndex: its tests with `PalaverChatStore` and `PalaverMemory`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from compat.framework_suites.suites import CannotPass, InPlace, Suite
from palaver.adapters.llama_index import PalaverChatStore, PalaverMemory

if TYPE_CHECKING:
    from palaver.stores import Store

__all__ = ["SUITES"]

_STORE_IS_THIRD: Final = 3
"""The place of the store among the arguments."""
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="palaver-llama-index-")


class SimpleChatStore(PalaverChatStore):
    """Takes nothing, as LlamaIndex's store does, and is on disk."""

    def __init__(
        self, store: Store | None = None, *, path: str | None = None, **dumped: object
    ) -> None:
        if store is None and path is None:
            handle, path = tempfile.mkstemp(".db", dir=_FOLDER.name)
            os.close(handle)
            Path(path).unlink()
        super().__init__(store, path=path, **dumped)


class ChatMemoryBuffer(PalaverMemory):
    """Takes what LlamaIndex's buffer takes; its store is on disk, so that a dump can find it."""

    @classmethod
    def from_defaults(cls, *values: Any, **more: Any) -> PalaverMemory:
        if len(values) < _STORE_IS_THIRD:
            more.setdefault("chat_store", SimpleChatStore())
        return super().from_defaults(*values, **more)


_STORE: Final = {
    "llama_index.core.storage.chat_store.simple_chat_store:SimpleChatStore": SimpleChatStore,
}
_BUFFER: Final = {"llama_index.core.memory.chat_memory_buffer:ChatMemoryBuffer": ChatMemoryBuffer}

_PERSIST: Final = CannotPass(
    "`persist` is called, which is not needed: what was added is on disk",
    {"test_simple_chat_store.py": ("test_persist_non_ascii_unescaped",)},
)
_TO_STRING: Final = CannotPass(
    "`to_string` is called, which only the buffers have; `to_dict` is there",
    {"test_chat_memory_buffer.py": ("test_string_save_load",)},
)
_IN_PLACE: Final = CannotPass(
    "an agent changes the stored question in place; it fails with LlamaIndex's own `Memory`, too",
    {"test_multi_agent_workflow.py": ("test_workflow_with_state",)},
)

SUITES: Final = (
    Suite(
        title="LlamaIndex: the chat store, and both buffers over it",
        folder="llama_index/llama-index-core",
        files=(
            "tests/storage/chat_store/test_simple_chat_store.py",
            "tests/memory/test_chat_memory_buffer.py",
            "tests/memory/test_chat_summary_memory_buffer.py",
        ),
        in_place=(InPlace("PalaverChatStore(path=…)", _STORE, (_PERSIST,)),),
    ),
    Suite(
        title="LlamaIndex: the chat memory buffer",
        folder="llama_index/llama-index-core",
        files=("tests/memory/test_chat_memory_buffer.py",),
        in_place=(InPlace("PalaverMemory", _BUFFER, (_TO_STRING,)),),
    ),
    Suite(
        title="LlamaIndex: agents, engines, memories",
        folder="llama_index/llama-index-core",
        files=("tests/agent", "tests/chat_engine", "tests/memory"),
        only="^(?!.*(test_chat_memory_buffer|test_chat_summary))",
        in_place=(
            InPlace("PalaverMemory", _BUFFER, (_IN_PLACE,)),
            InPlace("PalaverChatStore(path=…)", _STORE, (_IN_PLACE,)),
        ),
    ),
)
