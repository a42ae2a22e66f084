"""Conversations and their items, as OpenAI's API has them: any conversation of the store is one.

Adding an item appends a message, and deleting one is an edit like those made on the page: it can
be undone there, and what is left is valid for every provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.messages import ToolPart
from palaver.server.errors import RequestRefused
from palaver.server.openai.ids import new_conversation_id, read_item_id
from palaver.server.openai.items import read_input, render_items, without_item
from palaver.stores.records import decode_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.history import Piece
    from palaver.server.openai.responses import Responses
    from palaver.server.openai.shapes import ConversationRequest
    from palaver.server.services import Service
    from palaver.stores import StoredHistory

__all__ = ["Conversations"]

_KIND: Final = "openai"
_METADATA: Final = "metadata"


class Conversations:
    """The conversations of a server."""

    def __init__(self, service: Service, responses: Responses) -> None:
        """Use the store of a service; `responses` knows items and calls."""
        self._service = service
        self._responses = responses
        self._store = service.store

    def create(self, wanted: ConversationRequest) -> dict[str, Any]:
        """Create a conversation, with some items or none."""
        given = read_input(wanted.items, self._responses.resolve, "items")
        given = self._responses.check_calls(given, [], "items")
        name = new_conversation_id()
        records = [(_KIND, _METADATA, msgspec.json.encode(wanted.metadata or {}))]
        self._store.create(given.messages, id=name, records=records)
        return self.get(name)

    def get(self, name: str) -> dict[str, Any]:
        """A conversation, without its items."""
        head = self._store.head(name)
        stored = self._store.records(name, _KIND).get(_METADATA)
        metadata: dict[str, str] = {}
        if stored is not None:
            metadata = decode_record(stored, dict[str, str], f"the metadata of {name}")
        return {
            "id": head.id,
            "object": "conversation",
            "created_at": head.created // 1000,
            "metadata": metadata,
        }

    def update(self, name: str, metadata: dict[str, str] | None) -> dict[str, Any]:
        """Set the metadata of a conversation."""
        self._store.head(name)
        self._store.put_record(name, _KIND, _METADATA, msgspec.json.encode(metadata or {}))
        return self.get(name)

    def delete(self, name: str) -> dict[str, Any]:
        """Delete a conversation and everything in it; refused if it was forked."""
        self._store.delete(name)
        return {"id": name, "object": "conversation.deleted", "deleted": True}

    # ── items ───────────────────────────────────────────────────────────────────────────────────

    def add_items(self, name: str, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Append items; return them with their ids."""
        responses = self._responses
        given = read_input(items, responses.resolve, "items")
        chat = self._service.conversations.get(name)
        given = responses.check_calls(given, responses.open_calls(chat.history.view), "items")
        removed = [
            gone
            for entry in chat.ledger().values()
            if entry.call_id in given.results
            for gone in entry.removals()
        ]
        chat.history.extend(given.messages, records=removed)
        return self._render(name, given.messages)

    def items(self, name: str) -> list[dict[str, Any]]:
        """All items of a conversation as it is now, in order."""
        return self._render(name, self._history(name).view)

    def get_item(self, name: str, item: str) -> dict[str, Any]:
        """One item of a conversation."""
        self._history(name)
        found = self._responses.find_item(item, name)
        if found is None:
            raise _unknown(item)
        return found

    def delete_item(self, name: str, item: str) -> dict[str, Any]:
        """Remove an item from a conversation; the version before still has it."""
        history, wanted = self._history(name), read_item_id(item)
        view = history.view
        if wanted is None or wanted.conversation != name:
            raise _unknown(item)
        places = map(view.index_of, view.log.positions_of(wanted.message))
        place = next((each for each in places if each is not None), None)
        if place is None:
            raise _unknown(item)
        left, calls = without_item(view[place], wanted)
        gone = {place} if left is None else set[int]()
        if wanted.kind in ("mcp", "mcpr"):  # shown as one item with its output
            gone |= {
                index
                for index, message in enumerate(view[place:], place)
                if any(
                    isinstance(part, ToolPart) and part.call_id in calls for part in message.parts
                )
            }
        history.rewrite(_pieces(len(view), gone, place, left), reason="DELETE")
        return self.get(name)

    def _history(self, name: str) -> StoredHistory:
        return self._service.conversations.get(name).history

    def _render(self, name: str, messages: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - messages
        hosted = [tool.spec.name for tool in self._service.tools]
        return render_items(messages, name, hosted=hosted)


def _pieces(length: int, gone: set[int], place: int, left: Any) -> list[Piece]:  # noqa: ANN401 - a message
    """The selection without some messages, and with another in place of one."""
    pieces: list[Piece] = []
    for index in range(length):
        if index == place and left is not None:
            pieces.append((place, left))
        elif index not in gone:
            pieces.append(range(index, index + 1))
    return pieces


def _unknown(item: str) -> RequestRefused:
    return RequestRefused(404, f"there is no item {item!r} in this conversation", path="$.item_id")
