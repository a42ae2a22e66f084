"""The routes of the server, one file for each topic.

Each file has the shapes of its requests and responses, its handlers, and a `ROUTES` list; paths are
relative to `/api`. A handler asks for the `service`, runs in a thread where it touches the store
(`sync_to_thread=True`), and raises palaver's own errors: `palaver.server.errors` has their
statuses. A handler that is no GET but only reads says so with `opt={"reads": True}`. To add a
topic, add a file and list it here.
"""

from __future__ import annotations

from typing import Final

from litestar import Router

from palaver.server.routes import (
    context,
    conversations,
    messages,
    operations,
    runs,
    server,
    steps,
    teams,
    transfer,
    versions,
)

__all__ = ["ROUTES"]

ROUTES: Final = [
    Router(
        "/api",
        route_handlers=[
            *server.ROUTES,
            *conversations.ROUTES,
            *messages.ROUTES,
            *operations.ROUTES,
            *versions.ROUTES,
            *transfer.ROUTES,
            *steps.ROUTES,
            *context.ROUTES,
            *runs.ROUTES,
            *teams.ROUTES,
        ],
    )
]
