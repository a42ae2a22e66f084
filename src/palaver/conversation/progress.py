"""How far a call is: told by its tool from any thread, heard in the loop, while the call runs."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
from anyio import from_thread
from anyio.lowlevel import current_token

from palaver.conversation.tools.outputs import fit_metadata, fit_text
from palaver.messages.gate import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Progress"]


class Progress:
    """What a tool is given to say how far it is; made in the loop, called from anywhere."""

    def __init__(self, tell: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Hand on what is said to `tell`, in the loop."""
        self._tell = tell
        self._loop = current_token()
        self._thread = threading.get_ident()
        self._running = True

    def __call__(self, title: str, metadata: Mapping[str, Any] = EMPTY, /) -> None:
        """Say how far it is; a call that was given up may go on saying so, and nobody hears it."""
        if threading.get_ident() == self._thread:
            self._heard(title, metadata)
        elif self._running:
            with suppress(anyio.RunFinishedError):
                from_thread.run_sync(self._heard, title, metadata, token=self._loop)

    def _heard(self, title: str, metadata: Mapping[str, Any]) -> None:
        if self._running:
            self._tell(fit_text(title), fit_metadata(metadata))

    def stop(self) -> None:
        """The call is over."""
        self._running = False
