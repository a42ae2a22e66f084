"""Loading the model before anybody asks: the first answer then comes as quickly as the second.

It is done beside everything else and promises nothing: a model that can't be loaded is a line in
the log, and whoever asks it is told why. Only models of this machine are loaded; asking another
would cost somebody money.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from anyio import to_thread

from palaver.conversation.models.base import Ask
from palaver.server.shelf import LOCAL

if TYPE_CHECKING:
    from palaver.server.shelf import Shelf

__all__ = ["warm"]

_LEAST: Final = Ask({"messages": [{"role": "user", "content": "Hi"}]}, options={"max_tokens": 1})
"""The shortest question: it is the answering for the first time that takes long."""
_log: Final = logging.getLogger("palaver.server")


async def warm(shelf: Shelf) -> None:
    """Load the default model of a shelf, if it is on this machine and lacks nothing."""
    default = next(offer for offer in shelf.offers() if offer.is_default)
    if not default.ready:
        return
    try:
        model = await to_thread.run_sync(shelf.get)
        if model.ref.provider_id == LOCAL:
            await model.whole(_LEAST)
    except Exception as error:  # noqa: BLE001 - whatever it is, the server goes on without
        _log.warning("%s could not be loaded: %s", default.name, error)
