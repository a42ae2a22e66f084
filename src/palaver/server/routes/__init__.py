"""The routes, one small file a topic. A new topic is a file beside these, and one line here.

Each file has a `ROUTES`: its handlers, with paths under `/api`. A handler that only reads though it
is no GET says so: `opt={"reads": True}`. It asks for the `service`, works in a thread where it
touches the store (`sync_to_thread=True`), and raises what palaver raises: `problems` has the
statuses.
"""

from __future__ import annotations

from typing import Final

from litestar import Router

from palaver.server.routes import (
    carrying,
    context,
    conversations,
    counting,
    events,
    forks,
    house,
    marks,
    messages,
    operations,
    requests,
    searching,
    stepping,
    teams,
    tooling,
    versions,
)

__all__ = ["ROUTES"]

ROUTES: Final = [
    Router(
        "/api",
        route_handlers=[
            *house.ROUTES,
            *conversations.ROUTES,
            *messages.ROUTES,
            *operations.ROUTES,
            *versions.ROUTES,
            *forks.ROUTES,
            *marks.ROUTES,
            *searching.ROUTES,
            *carrying.ROUTES,
            *events.ROUTES,
            *stepping.ROUTES,
            *tooling.ROUTES,
            *counting.ROUTES,
            *requests.ROUTES,
            *context.ROUTES,
            *teams.ROUTES,
        ],
    )
]
