"""Live events: one thread follows the store, and every client reads from the same short memory.

A client is a place in that memory and nothing more: no thread, no queue. One that falls behind it,
or comes back with the id of an event from before it, is first told the rest from the store itself.
So each event is told once and in order, across restarts and processes; what is only true for a
moment (`step.delta`, `conversation.changed`) has no id and is not told again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec
from anyio import move_on_after, to_thread

from palaver.conversation.following import Follower
from palaver.errors import PalaverError, UnknownConversation, ValidationError
from palaver.server.problems import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping

    from palaver.events import Event
    from palaver.stores import Store

__all__ = ["Live", "Place", "read_place"]

Place: TypeAlias = tuple[int, int]
"""A change that was told whole, by its cursor, and how many events of the next one were told."""

_KEPT: Final = 10_000
_CHUNK: Final = 64 * 1024
_PAGE: Final = 500
_NAP: Final = 0.1
_REST: Final = 0.5
_CALM: Final = 0.2
_COMING: Final = 10.0
_RETRY: Final = b"retry: 500\n"
_log = logging.getLogger("palaver.server")


class _Told(NamedTuple):
    """An event as it goes over the line; one that is only true for a moment has no place."""

    place: Place | None
    conversation: str | None
    data: bytes


def read_place(text: str) -> Place:
    """The place that an event's id stands for.

    >>> read_place("41"), read_place("41.2")
    ((41, 0), (41, 2))
    """
    cursor, dot, part = text.partition(".")
    numbers = [cursor, part] if dot else [cursor, "0"]
    if not all(n.isascii() and n.isdecimal() and len(n) <= 18 for n in numbers):  # noqa: PLR2004 - 64 bits
        detail = "must be the id of an event, such as 41 or 41.2"
        raise ValidationError(detail, path="$.after", rule="cursor")
    return int(numbers[0]), int(numbers[1])


def _id(place: Place) -> bytes:
    cursor, part = place
    return f"id: {cursor}.{part}\n".encode() if part else f"id: {cursor}\n".encode()


def _written(name: str, data: Mapping[str, Any], place: Place | None) -> bytes:
    before = b"" if place is None else _id(place)
    return b"%sevent: %s\ndata: %s\n\n" % (before, name.encode(), msgspec.json.encode(data))


class _Numbering:
    """Gives events their places: the same ones, whoever follows and whenever."""

    def __init__(self, follower: Follower, after: Place) -> None:
        self._follower = follower
        self.last = after
        self._part: Place = (after[0], 0)

    def told(self) -> Iterator[_Told]:
        """What is new, with its places; what comes up to the place it began with is left out."""
        follower = self._follower
        for event in follower.news():
            cursor = event.cursor or 0
            if cursor > follower.after:  # the last event of its change
                self._part = place = (cursor, 0)
            elif event.name == "tool.running":  # seen, and not journaled: it has no place
                if self._part >= self.last:
                    yield _Told(None, event.conversation, _event(event, None))
                continue
            else:
                known, part = self._part
                self._part = place = (cursor, part + 1 if known == cursor else 1)
            if place > self.last:
                self.last = place
                yield _Told(place, event.conversation, _event(event, place))


def _event(event: Event, place: Place | None) -> bytes:
    about = {"conversation": event.conversation, "version": event.version, "at": event.at}
    return _written(event.name, {**event.data, **about}, place)


class Live:
    """What happens in a store, told to any number of clients."""

    def __init__(self, store: Store, *, heartbeat: float = 15, streams: int = 1_000) -> None:
        """Take the store; nothing is followed before `start`."""
        self.streams = 0
        self._store = store
        self._heartbeat = heartbeat
        self._most = streams
        self._coming: list[float] = []  # when clients were let in whose streams are to begin
        self._told: list[_Told] = []
        self._first = 0  # the number of the first that is remembered
        self._base: Place = (0, 0)  # everything after this place is remembered
        self._last: Place = (0, 0)
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._feeder: threading.Thread | None = None
        self._stopping = threading.Event()

    # ── running ─────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Follow the store from now on."""
        self._loop = asyncio.get_running_loop()
        self._stopping.clear()
        cursor = await to_thread.run_sync(self._store.keeper.newest)
        self._base = self._last = (cursor, 0)
        self._feeder = threading.Thread(
            target=self._follow, args=(cursor,), name="palaver-live", daemon=True
        )
        self._feeder.start()

    async def stop(self) -> None:
        """End every stream, and the following."""
        self._stopping.set()
        self._wake()
        feeder, self._feeder = self._feeder, None
        if feeder is not None:
            await to_thread.run_sync(feeder.join)

    @property
    def last(self) -> str:
        """The id of the last event: whoever goes on from there misses nothing."""
        cursor, part = self._last
        return f"{cursor}.{part}" if part else str(cursor)

    def tell(self, name: str, data: Mapping[str, Any]) -> None:
        """Tell everybody something that is true for the moment only; from any thread.

        `data` says which conversation it is about, under that name.
        """
        told = _Told(None, data.get("conversation"), _written(name, data, None))
        self._hand_over([told])

    def changed(self, conversation: str) -> None:
        """Tell everybody where a conversation stands, as lists of conversations show it."""
        try:
            head = self._store.keeper.head(conversation)
        except UnknownConversation:
            self.tell("conversation.deleted", {"id": conversation, "conversation": conversation})
            return
        data = {
            "id": head.id,
            "conversation": head.id,
            "version": head.version,
            "title": head.title,
            "updated": head.updated,
        }
        self.tell("conversation.changed", data)

    # ── the thread that follows ─────────────────────────────────────────────────────────────────

    def _follow(self, cursor: int) -> None:
        follower = Follower(self._store, None, cursor)
        numbering = _Numbering(follower, (cursor, 0))
        calm = 0.0
        while not self._stopping.is_set():
            try:
                told: list[_Told] = []
                for one in numbering.told():
                    told.append(one)
                    if len(told) >= _PAGE:
                        self._hand_over(told)
                        told = []
                if told:
                    self._hand_over(told)
                if follower.touched and time.monotonic() >= calm:
                    touched, follower.touched = follower.touched, set()
                    for conversation in sorted(touched):
                        self.changed(conversation)
                    calm = time.monotonic() + _CALM
                if not told:
                    self._store.keeper.wait(_NAP)
            except PalaverError as error:  # the store is away: go on from here when it is back
                _log.warning("live events wait for the store: %s", error)
                numbering = _Numbering(follower, numbering.last)
                self._stopping.wait(_REST)

    def _hand_over(self, told: list[_Told]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._remember, told)

    def _remember(self, told: list[_Told]) -> None:
        """Take events into the memory; only ever in the loop's own thread."""
        self._told += told
        for one in told:
            if one.place is not None:
                self._last = one.place
        if len(self._told) > 2 * _KEPT:
            gone = len(self._told) - _KEPT
            places = [one.place for one in self._told[:gone] if one.place is not None]
            self._base = max([self._base, *places])
            del self._told[:gone]
            self._first += gone
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    # ── a client ────────────────────────────────────────────────────────────────────────────────

    def check_room(self) -> None:
        """Refuse a client where there are as many as there may be, those on their way included."""
        now = time.monotonic()
        # whoever went away before its stream began is not waited for
        self._coming = [then for then in self._coming if then > now - _COMING]
        if self.streams + len(self._coming) >= self._most:
            raise Refusal(429, "too many live streams at once", headers={"Retry-After": "5"})
        self._coming.append(now)

    async def stream(
        self, conversation: str | None = None, after: Place | None = None
    ) -> AsyncGenerator[bytes, None]:
        """What a client is told: everything after a place, and then whatever comes."""
        self.streams += 1
        del self._coming[:1]
        try:
            place, number = self._last, self._first + len(self._told)
            if after is not None:
                place, number = after, -1
            yield _RETRY + _id(place) + b"\n"
            while not self._stopping.is_set():
                if number < self._first and place < self._base:
                    async for seen, chunk in self._caught_up(conversation, place):
                        place = seen
                        yield chunk
                if number < self._first:
                    number = self._after(place)
                while not self._stopping.is_set() and number >= self._first:
                    news = self._news
                    wanted, number, place = self._ready(number, place, conversation)
                    if wanted:
                        yield wanted
                    elif number == self._first + len(self._told):
                        with move_on_after(self._heartbeat) as waiting:
                            await news.wait()
                        if waiting.cancelled_caught:
                            yield b":\n" + _id(place) + b"\n"
        finally:
            self.streams -= 1

    def _after(self, place: Place) -> int:
        """The number of the first that is remembered after a place."""
        number = len(self._told)
        while number and not _is_upto(self._told[number - 1].place, place):
            number -= 1
        return self._first + number

    def _ready(
        self, number: int, place: Place, conversation: str | None
    ) -> tuple[bytes, int, Place]:
        """What there is from a number on, as far as it is wanted, up to a good size.

        A client that was told some of it from the store may be ahead of the memory: what comes up
        to its place is not told again.
        """
        found: list[bytes] = []
        size = 0
        for one in self._told[number - self._first :]:
            number += 1
            if _is_upto(one.place, place):
                continue
            place = one.place or place
            if conversation is None or one.conversation in {None, conversation}:
                found.append(one.data)
                size += len(one.data)
                if size > _CHUNK:
                    break
        return b"".join(found), number, place

    async def _caught_up(
        self, conversation: str | None, place: Place
    ) -> AsyncGenerator[tuple[Place, bytes], None]:
        """What the memory no longer has, from the store."""
        follower = Follower(self._store, None, place[0])
        told = _Numbering(follower, place).told()
        while not self._stopping.is_set():
            page = await to_thread.run_sync(_page, told)
            for one in page:
                place = one.place or place
            wanted = [one.data for one in page if conversation in {None, one.conversation}]
            yield place, b"".join(wanted)
            if len(page) < _PAGE:
                yield max(place, self._base), b""
                return


def _is_upto(place: Place | None, limit: Place) -> bool:
    return place is not None and place <= limit


def _page(told: Iterator[_Told]) -> list[_Told]:
    return [one for _, one in zip(range(_PAGE), told, strict=False)]
