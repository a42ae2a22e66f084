"""Making room: ready strategies that an engine may plug in, and `compact` to run one by hand.

Each is an ordinary edit: one batch, priced before, undone like any other. What is marked, what is
open and the roles asked for stay to the letter. Nothing runs twice on the same state.
"""

from __future__ import annotations

from palaver.conversation.compaction.clearing import ClearOutputs
from palaver.conversation.compaction.compacting import (
    Compaction,
    Plan,
    Preview,
    Strategy,
    compact,
    compacting,
    preview,
)
from palaver.conversation.compaction.dropping import DropOldest
from palaver.conversation.compaction.summarising import Summarise

__all__ = [
    "ClearOutputs",
    "Compaction",
    "DropOldest",
    "Plan",
    "Preview",
    "Strategy",
    "Summarise",
    "compact",
    "compacting",
    "preview",
]
