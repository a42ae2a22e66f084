"""What every route of one server shares: the store, the settings, the live stream, the counts.

There is one `Service` for each application, and routes ask for it by the name `service`. A part of
the server that needs a memory of its own (the steps at work, say) is a class made from a service,
and `service.part(Class)` is the one of this server.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

from litestar.di import NamedDependency

from palaver.server.limits import Rate
from palaver.server.live import Live
from palaver.server.metrics import Metrics
from palaver.server.security import Gate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver.server.connections import Connections
    from palaver.server.settings import Settings
    from palaver.stores import Store

__all__ = ["Served", "Service"]

Kind: TypeAlias = Literal["sqlite", "postgres", "memory", "other"]

_Part = TypeVar("_Part")
_KEEPERS: Final[dict[str, Kind]] = {
    "SQLiteKeeper": "sqlite",
    "PostgresKeeper": "postgres",
    "MemoryKeeper": "memory",
}


class Service:
    """A store that is being served."""

    def __init__(self, store: Store, settings: Settings) -> None:
        """Begin with nobody listening."""
        self.store = store
        self.kind: Kind = _KEEPERS.get(type(store.keeper).__name__, "other")
        self.settings = settings
        self.live = Live(store, heartbeat=settings.heartbeat, streams=settings.streams)
        self.metrics = Metrics()
        self.gate = Gate(settings.token, settings.allow_hosts)
        self.connections: Connections | None = None  # under `serve`
        self._guesses = Rate(settings.guesses)
        self._parts: dict[type[Any], Any] = {}
        self._stopping: list[Callable[[], Awaitable[None]]] = []
        self._lock = threading.Lock()

    @property
    def near(self) -> bool:
        """Whether the store is on this machine: a small read is then quicker than a thread is."""
        return self.kind in {"sqlite", "memory"}

    def part(self, kind: Callable[[Service], _Part]) -> _Part:
        """The one object of a class that this service has; it is made when first asked for."""
        key = cast("type[Any]", kind)
        with self._lock:
            if key not in self._parts:
                self._parts[key] = kind(self)
            return cast("_Part", self._parts[key])

    def guessed(self, client: tuple[str, int] | None) -> None:
        """Somebody had no right token: whoever tries many is slowed down."""
        self._guesses.check(client[0] if client else "")

    def on_stop(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have something done when the server stops, before it waits for the last requests."""
        self._stopping.append(work)

    async def start(self) -> None:
        """Begin to follow the store."""
        await self.live.start()

    async def stop(self) -> None:
        """End what would never end by itself: the streams, and the steps at work."""
        for work in self._stopping:
            await work()
        self._stopping.clear()
        await self.live.stop()


Served: TypeAlias = NamedDependency[Service]
"""The service, as a route asks for it."""
