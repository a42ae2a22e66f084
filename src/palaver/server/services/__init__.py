"""The `Service`: everything that the routes of one server share.

There is one service for each application. It has the store, the settings, the live events and the
services behind the routes, each as an attribute; a route asks for it as `service`. The service owns
no logic of its own beyond starting and stopping its parts in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from anyio import CapacityLimiter
from litestar.di import NamedDependency

from palaver.server.live import Live
from palaver.server.security import Gate
from palaver.server.services.compaction import Compactor
from palaver.server.services.conversations import ConversationNames, OpenConversations
from palaver.server.services.costs import Costs
from palaver.server.services.models import ModelRegistry
from palaver.server.services.steps import StepRunner
from palaver.server.services.teams import Teams
from palaver.server.services.tools import ServerTools, builtin_tools

if TYPE_CHECKING:
    from palaver.server.run import ClientConnections
    from palaver.server.settings import Settings
    from palaver.stores import Store


class Service:
    """A store that is being served, with everything that the routes need."""

    def __init__(self, store: Store, settings: Settings) -> None:
        """Create all parts; nothing runs before `start`."""
        self.store = store
        self.settings = settings
        self.live = Live(store, heartbeat=settings.heartbeat, streams=settings.streams)
        self.gate = Gate(settings.token, settings.allow_hosts, guesses=settings.guesses)
        self.connections: ClientConnections | None = None  # set by `serve`
        self.models = ModelRegistry(() if settings.model is None else (settings.model,))
        self.tools = ServerTools(builtin_tools(store))
        self.conversations = OpenConversations(store, self.live)
        self.names = ConversationNames(store)
        self.costs = Costs(store)
        self.steps = StepRunner(self)
        self.compactor = Compactor(self)
        self.teams = Teams(self)
        # Markdown is parsed in pure Python: more than one thread would only slow the others down
        self.parsing = CapacityLimiter(1)
        self.brought_in: dict[str, tuple[int, int]] = {}
        """Transcripts that were brought in since the start, by key, with their size and date."""

    @property
    def reads_inline(self) -> bool:
        """Whether the store is on this machine, so that a small read is faster than a thread."""
        return self.store.kind in {"sqlite", "memory"}

    async def start(self) -> None:
        """Begin to follow the store, open the tools, recover steps, and load the team file."""
        await self.live.start()
        await self.steps.start()
        await self.teams.start()

    async def stop(self) -> None:
        """End what would never end by itself: running steps and live streams."""
        await self.steps.close()
        await self.live.stop()


ServiceDependency: TypeAlias = NamedDependency[Service]
"""The service as a route asks for it."""
