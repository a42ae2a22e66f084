"""Whom a request is for: what decides what may go out and what must stay at home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palaver.messages.parts import ModelRef

if TYPE_CHECKING:
    from palaver.messages.message import Message

__all__ = ["ANYONE", "Target"]


class Target(Struct, frozen=True):
    """The model that will read a request, and what it can take.

    `prefill` says that the request may end with an assistant's words, to be continued: most models
    of today refuse that, and a transcript wants it. Without a `model`, reasoning goes to whoever
    is of the provider that made it; with one, only to that very model.
    """

    model: ModelRef | None = None
    images: bool = True
    files: bool = True
    prefill: bool = False

    def takes_reasoning_of(self, message: Message) -> bool:
        """Tell whether the model may get back what it thought when it wrote this message."""
        if self.model is None:
            return True
        made_by = getattr(message.info, "model", None)
        return (
            made_by is not None
            and made_by.provider_id == self.model.provider_id
            and made_by.model_id == self.model.model_id
        )


ANYONE: Final = Target()
"""A target of which nothing is known."""
