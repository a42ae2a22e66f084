"""Live events: one thread follows the store, and every client reads from the same buffer.

A client is a position in that buffer: it has no thread and no queue. A client that falls behind the
buffer, or comes back with the id of an older event, first gets the missing events from the store.
So each event is sent once and in order, across restarts and processes. Events that are only true
for a moment (`step.delta`, `conversation.changed`) have no id and are not sent again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec
from anyio import move_on_after, to_thread

from palaver.conversation.feed import EventFeed
from palaver.errors import PalaverError, UnknownConversation, ValidationError
from palaver.server.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping

    from palaver.events import Event
    from palaver.stores import Store

__all__ = ["EventPosition", "Live", "read_event_id"]

EventPosition: TypeAlias = tuple[int, int]
"""The cursor of a change whose events were all sent, and how many of the next were sent."""

_BUFFERED: Final = 10_000
_CHUNK: Final = 64 * 1024
_PAGE: Final = 500
_NAP: Final = 0.1
_REST: Final = 0.5
_CALM: Final = 0.2
_RESERVED_SECONDS: Final = 10.0
_RETRY: Final = b"retry: 500\n"
_log = logging.getLogger("palaver.server")


class _Event(NamedTuple):
    """An event as it is sent; one that is only true for a moment has no position."""

    position: EventPosition | None
    conversation: str | None
    data: bytes


def read_event_id(text: str) -> EventPosition:
    """Read the position that an event's id stands for.

    >>> read_event_id("41"), read_event_id("41.2")
    ((41, 0), (41, 2))
    """
    cursor, dot, part = text.partition(".")
    numbers = [cursor, part] if dot else [cursor, "0"]
    if not all(n.isascii() and n.isdecimal() and len(n) <= 18 for n in numbers):  # noqa: PLR2004 - 64 bits
        detail = "must be the id of an event, such as 41 or 41.2"
        raise ValidationError(detail, path="$.after", rule="cursor")
    return int(numbers[0]), int(numbers[1])


def _format_id(position: EventPosition) -> bytes:
    cursor, part = position
    return f"id: {cursor}.{part}\n".encode() if part else f"id: {cursor}\n".encode()


def _encode(name: str, data: Mapping[str, Any], position: EventPosition | None) -> bytes:
    before = b"" if position is None else _format_id(position)
    return b"%sevent: %s\ndata: %s\n\n" % (before, name.encode(), msgspec.json.encode(data))


class _PositionedEvents:
    """Gives events their positions: the same ones for every follower at any time."""

    def __init__(self, follower: EventFeed, after: EventPosition) -> None:
        self._follower = follower
        self.last = after
        self._part: EventPosition = (after[0], 0)

    def read(self) -> Iterator[_Event]:
        """The new events with their positions; those up to the start position are left out."""
        follower = self._follower
        for event in follower.poll():
            cursor = event.cursor or 0
            if cursor > follower.after:  # the last event of its change
                self._part = position = (cursor, 0)
            elif event.name == "tool.running":  # not in the journal, so it has no position
                if self._part >= self.last:
                    yield _Event(None, event.conversation, _encode_event(event, None))
                continue
            else:
                known, part = self._part
                self._part = position = (cursor, part + 1 if known == cursor else 1)
            if position > self.last:
                self.last = position
                yield _Event(position, event.conversation, _encode_event(event, position))


def _encode_event(event: Event, position: EventPosition | None) -> bytes:
    about = {"conversation": event.conversation, "version": event.version, "at": event.at}
    return _encode(event.name, {**event.data, **about}, position)


class Live:
    """The events of a store, for any number of clients."""

    def __init__(self, store: Store, *, heartbeat: float = 15, streams: int = 1_000) -> None:
        """Take the store; it is not followed before `start`."""
        self.streams = 0
        self._store = store
        self._heartbeat = heartbeat
        self._most = streams
        self._reserved: list[float] = []  # when clients were admitted whose streams have not begun
        self._buffer: list[_Event] = []
        self._first = 0  # the number of the first event in the buffer
        self._base: EventPosition = (0, 0)  # the buffer has every event after this position
        self._last: EventPosition = (0, 0)
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._feeder: threading.Thread | None = None
        self._stopping = threading.Event()

    # ── running ─────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Follow the store from now on."""
        self._loop = asyncio.get_running_loop()
        self._stopping.clear()
        cursor = await to_thread.run_sync(self._store.newest)
        self._base = self._last = (cursor, 0)
        self._feeder = threading.Thread(
            target=self._follow, args=(cursor,), name="palaver-live", daemon=True
        )
        self._feeder.start()

    async def stop(self) -> None:
        """End every stream and stop following."""
        self._stopping.set()
        self._wake()
        feeder, self._feeder = self._feeder, None
        if feeder is not None:
            await to_thread.run_sync(feeder.join)

    @property
    def last(self) -> str:
        """The id of the last event: a client that goes on from there misses nothing."""
        cursor, part = self._last
        return f"{cursor}.{part}" if part else str(cursor)

    def emit(self, name: str, data: Mapping[str, Any]) -> None:
        """Send an event without an id to every client; may be called from any thread.

        `data["conversation"]` names the conversation that it is about.
        """
        self._add([_Event(None, data.get("conversation"), _encode(name, data, None))])

    def emit_changed(self, conversation: str) -> None:
        """Send the current head of a conversation, as lists of conversations show it."""
        try:
            head = self._store.head(conversation)
        except UnknownConversation:
            self.emit("conversation.deleted", {"id": conversation, "conversation": conversation})
            return
        data = {
            "id": head.id,
            "conversation": head.id,
            "version": head.version,
            "title": head.title,
            "updated": head.updated,
        }
        self.emit("conversation.changed", data)

    # ── the thread that follows ─────────────────────────────────────────────────────────────────

    def _follow(self, cursor: int) -> None:
        follower = EventFeed(self._store, None, cursor)
        positioned = _PositionedEvents(follower, (cursor, 0))
        calm = 0.0
        while not self._stopping.is_set():
            try:
                events: list[_Event] = []
                for event in positioned.read():
                    events.append(event)
                    if len(events) >= _PAGE:
                        self._add(events)
                        events = []
                if events:
                    self._add(events)
                if follower.touched and time.monotonic() >= calm:
                    touched, follower.touched = follower.touched, set()
                    for conversation in sorted(touched):
                        self.emit_changed(conversation)
                    calm = time.monotonic() + _CALM
                if not events:
                    self._store.wait(_NAP)
            except PalaverError as error:  # the store is unavailable: go on from here later
                _log.warning("live events wait for the store: %s", error)
                positioned = _PositionedEvents(follower, positioned.last)
                self._stopping.wait(_REST)

    def _add(self, events: list[_Event]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._extend_buffer, events)

    def _extend_buffer(self, events: list[_Event]) -> None:
        """Add events to the buffer and drop the oldest; runs only in the loop's own thread."""
        self._buffer += events
        for event in events:
            if event.position is not None:
                self._last = event.position
        if len(self._buffer) > 2 * _BUFFERED:
            dropped = len(self._buffer) - _BUFFERED
            positions = [e.position for e in self._buffer[:dropped] if e.position is not None]
            self._base = max([self._base, *positions])
            del self._buffer[:dropped]
            self._first += dropped
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    # ── a client ────────────────────────────────────────────────────────────────────────────────

    def reserve_stream(self) -> None:
        """Reserve a place for a client's stream; refuse it if there are too many already."""
        now = time.monotonic()
        # a client that went away before its stream began loses its reservation
        self._reserved = [then for then in self._reserved if then > now - _RESERVED_SECONDS]
        if self.streams + len(self._reserved) >= self._most:
            raise RequestRefused(429, "too many live streams at once", headers={"Retry-After": "5"})
        self._reserved.append(now)

    async def stream(
        self, conversation: str | None = None, after: EventPosition | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The bytes for one client: every event after a position, and then each as it comes."""
        self.streams += 1
        del self._reserved[:1]
        try:
            position, number = self._last, self._first + len(self._buffer)
            if after is not None:
                position, number = await self._find_start(after), -1
            yield _RETRY + _format_id(position) + b"\n"
            while not self._stopping.is_set():
                if number < self._first and position < self._base:
                    async for seen, chunk in self._catch_up(conversation, position):
                        position = seen
                        yield chunk
                if number < self._first:
                    number = self._find_after(position)
                while not self._stopping.is_set() and number >= self._first:
                    news = self._news
                    wanted, number, position = self._read_buffer(number, position, conversation)
                    if wanted:
                        yield wanted
                    elif number == self._first + len(self._buffer):
                        with move_on_after(self._heartbeat) as waiting:
                            await news.wait()
                        if waiting.cancelled_caught:
                            yield b":\n" + _format_id(position) + b"\n"
        finally:
            self.streams -= 1

    async def _find_start(self, after: EventPosition) -> EventPosition:
        """The position to go on from; an id beyond the newest is that of another store.

        A client that has one would wait for the ids to grow past it, and hear of nothing.
        """
        newest = await to_thread.run_sync(self._store.newest)
        return after if after[0] <= newest else (newest, 0)

    def _find_after(self, position: EventPosition) -> int:
        """The number of the first event in the buffer after a position."""
        number = len(self._buffer)
        while number and not _is_up_to(self._buffer[number - 1].position, position):
            number -= 1
        return self._first + number

    def _read_buffer(
        self, number: int, position: EventPosition, conversation: str | None
    ) -> tuple[bytes, int, EventPosition]:
        """The events from a number on that a client wants, up to a good size.

        A client that read some events from the store may be ahead of the buffer: events up to its
        position are not sent again.
        """
        wanted: list[bytes] = []
        size = 0
        for event in self._buffer[number - self._first :]:
            number += 1
            if _is_up_to(event.position, position):
                continue
            position = event.position or position
            if conversation is None or event.conversation in {None, conversation}:
                wanted.append(event.data)
                size += len(event.data)
                if size > _CHUNK:
                    break
        return b"".join(wanted), number, position

    async def _catch_up(
        self, conversation: str | None, position: EventPosition
    ) -> AsyncGenerator[tuple[EventPosition, bytes], None]:
        """Read from the store what the buffer no longer has."""
        follower = EventFeed(self._store, None, position[0])
        events = _PositionedEvents(follower, position).read()
        while not self._stopping.is_set():
            page = await to_thread.run_sync(_take_page, events)
            for event in page:
                position = event.position or position
            wanted = [e.data for e in page if conversation in {None, e.conversation}]
            yield position, b"".join(wanted)
            if len(page) < _PAGE:
                yield max(position, self._base), b""
                return


def _is_up_to(position: EventPosition | None, limit: EventPosition) -> bool:
    return position is not None and position <= limit


def _take_page(events: Iterator[_Event]) -> list[_Event]:
    return [event for _, event in zip(range(_PAGE), events, strict=False)]
