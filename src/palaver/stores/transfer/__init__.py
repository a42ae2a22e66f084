"""Conversations out of a store and into one: export, import, and copies between stores."""

from __future__ import annotations

from palaver.stores.transfer.archive import (
    ARCHIVES,
    Archive,
    ArchiveReport,
    import_archive,
    is_archive,
    write_archive,
)
from palaver.stores.transfer.copy import Copied, copy_conversations
from palaver.stores.transfer.export import FORMS, Form, export_conversation
from palaver.stores.transfer.import_ import import_conversation
from palaver.stores.transfer.snapshot_v1 import (
    Snapshot,
    read_message,
    read_snapshot,
    write_snapshot,
)

__all__ = [
    "ARCHIVES",
    "FORMS",
    "Archive",
    "ArchiveReport",
    "Copied",
    "Form",
    "Snapshot",
    "copy_conversations",
    "export_conversation",
    "import_archive",
    "import_conversation",
    "is_archive",
    "read_message",
    "read_snapshot",
    "write_archive",
    "write_snapshot",
]
