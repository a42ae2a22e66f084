"""Messages by the words in them, in one conversation or in all."""

from __future__ import annotations

from typing import Annotated, Final

from litestar import get
from litestar.params import QueryParameter

from palaver.server.service import Served
from palaver.server.shapes.searching import Hit, Hits

__all__ = ["ROUTES"]

Words = Annotated[str, QueryParameter(min_length=1, max_length=1_000)]
Name = Annotated[str | None, QueryParameter(max_length=200)]
Limit = Annotated[int, QueryParameter(ge=1, le=200)]


@get("/search", sync_to_thread=True)
def search(service: Served, q: Words, conversation: Name = None, limit: Limit = 20) -> Hits:
    """Find the messages with all these words; "in quotes" they must follow one another."""
    store = service.store
    titles: dict[str, str | None] = {}
    items: list[Hit] = []
    for hit in store.search(q, conversation=conversation, limit=limit):
        view = store.get(hit.conversation)
        titles.setdefault(hit.conversation, view.title)
        items.append(
            Hit(
                conversation=hit.conversation,
                title=titles[hit.conversation],
                index=view.view.index_of(hit.position),
                message=hit.message,
                snippet=hit.snippet,
            )
        )
    return Hits(items=items)


ROUTES: Final = [search]
