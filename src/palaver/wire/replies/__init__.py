"""Providers' replies, whole or as a stream of events, to messages: one file a format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.wire.replies.anthropic import AnthropicFold
from palaver.wire.replies.chat import ChatFold
from palaver.wire.replies.fold import Fold
from palaver.wire.replies.gemini import GeminiFold
from palaver.wire.replies.responses import ResponsesFold

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FOLDS", "Fold"]

FOLDS: Mapping[str, type[Fold]] = {
    kind.form: kind for kind in (ChatFold, ResponsesFold, AnthropicFold, GeminiFold)
}
"""How the replies of each format are folded."""
