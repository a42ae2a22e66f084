"""What was spent, over time: by a conversation, and by all conversations of the store.

The figures are those that stored answers report, each once: an answer that was edited, merged or
forked is the same answer, and one that was removed from the view was paid for too. Nothing is
written for it. What was read is remembered while the server runs, so a request reads only the
messages that were added since the last one. A request reads for a limited time and says how far it
came; the next one goes on from there.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palaver.conversation.usage import NOTHING, Usage, requests_of
from palaver.errors import UnknownConversation
from palaver.messages import AssistantInfo, TokenCounts
from palaver.messages.ids import now_ms
from palaver.server.requests import Shape
from palaver.server.services.conversations import display_name
from palaver.stores.records import Head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from palaver.conversation.usage import RequestUsage
    from palaver.messages import Message
    from palaver.stores import Store

__all__ = ["ConversationCost", "CostPoint", "CostReport", "Costs", "StoreCosts", "UsageTotals"]

_SECOND: Final = 1_000
_HOUR: Final = 3_600 * _SECOND
_DAY: Final = 24 * _HOUR
_WIDTHS: Final = (
    _SECOND, 5 * _SECOND, 15 * _SECOND, 60 * _SECOND, 300 * _SECOND, 900 * _SECOND,
    _HOUR, 3 * _HOUR, 12 * _HOUR, _DAY, 7 * _DAY, 28 * _DAY, 364 * _DAY, 10_000 * _DAY,
)  # fmt: skip
"""How wide the points of a conversation may be, in milliseconds."""
_MOST_POINTS: Final = 120
_SHORT_RANGE: Final = 2
"""The days up to which the points of the store are hours."""
_LONG_RANGE: Final = 120
"""The days from which on they are weeks."""
_CHUNK: Final = 1_000
"""How many messages are read at once."""
_PATIENCE: Final = 0.5
"""For how many seconds a request reads."""
_OPEN: Final = 64
"""How many conversations are remembered by themselves."""
_MOST_CONVERSATIONS: Final = 20_000
"""How many conversations, the last changed, are counted for the store."""
_TOP: Final = 5


class UsageTotals(Shape, frozen=True):
    """The usage of the last answer and of all answers; the cost is None if it is not known."""

    last: TokenCounts | None
    total: TokenCounts
    cost: float | None
    calls: int
    prompt_tokens: int
    completion_tokens: int

    @classmethod
    def of(cls, usage: Usage) -> UsageTotals:
        """The totals of a usage."""
        return cls(
            last=usage.last,
            total=usage.total,
            cost=usage.cost,
            calls=usage.calls,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
        )


class CostPoint(Shape, frozen=True):
    """What was spent from `at` on, for the width of a point.

    The cost is that of the `calls` whose cost is known; it is None if none is. `prompt` has the
    tokens that were read from the cache and written to it, too.
    """

    at: int
    calls: int
    unknown_costs: int
    cost: float | None
    prompt: int
    completion: int
    cache_read: int
    cache_write: int


class CostReport(Shape, frozen=True):
    """What a conversation spent, with all that its log has from a fork's parent.

    `usage` is what the tokens of the conversation say, too. `read` is how many messages of the log
    are counted, of `length`; where not all are, another request goes on. `bucket` is how many
    milliseconds a point is wide. `dated` is how many of the calls the points have: those of answers
    that were erased are only in the totals.
    """

    version: int
    usage: UsageTotals
    unknown_costs: int
    dated: int
    bucket: int
    points: list[CostPoint]
    read: int
    length: int
    complete: bool


class ConversationCost(Shape, frozen=True):
    """What one conversation spent."""

    id: str
    title: str | None
    calls: int
    cost: float | None


class StoreCosts(Shape, frozen=True):
    """What the conversations of the store spent from `since` to before `until`, oldest first.

    `conversations` are those that changed since then, `counted` those of them whose messages have
    all been read; where not all are, another request goes on. `older` means that there are more
    conversations than are counted, and that the least recently changed are left out. An answer that
    several conversations have, because they are forks, is counted once. `top` are the costliest.
    """

    since: int
    until: int
    bucket: int
    points: list[CostPoint]
    total: CostPoint
    top: list[ConversationCost]
    conversations: int
    counted: int
    complete: bool
    older: bool


class _Amount(Struct):
    """A sum of what requests used."""

    calls: int = 0
    unknown_costs: int = 0
    cost: float = 0.0
    prompt: int = 0
    completion: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def count(self, request: RequestUsage) -> None:
        """Add one request."""
        tokens = request.tokens
        self.calls += 1
        self.unknown_costs += request.cost is None
        self.cost += request.cost or 0.0
        self.prompt += tokens.prompt
        self.completion += tokens.completion
        self.cache_read += tokens.cache.read
        self.cache_write += tokens.cache.write

    def add(self, other: _Amount) -> None:
        """Add another sum."""
        self.calls += other.calls
        self.unknown_costs += other.unknown_costs
        self.cost += other.cost
        self.prompt += other.prompt
        self.completion += other.completion
        self.cache_read += other.cache_read
        self.cache_write += other.cache_write

    def point(self, at: int) -> CostPoint:
        """Return the sum as the point of a time."""
        return CostPoint(
            at=at,
            calls=self.calls,
            unknown_costs=self.unknown_costs,
            cost=self.known_cost,
            prompt=self.prompt,
            completion=self.completion,
            cache_read=self.cache_read,
            cache_write=self.cache_write,
        )

    @property
    def known_cost(self) -> float | None:
        """The cost; None if that of no request is known."""
        return self.cost if self.calls > self.unknown_costs else None


class _Series:
    """Sums by time, in buckets that grow wider where there would be too many."""

    def __init__(self, widths: Iterable[int], most: int | None = None) -> None:
        self._widths = iter(widths)
        self._most = most
        self.width = next(self._widths)
        self.buckets: dict[int, _Amount] = {}

    def count(self, at: int, request: RequestUsage) -> None:
        self.buckets.setdefault(at // self.width, _Amount()).count(request)
        while self._most is not None and len(self.buckets) > self._most:
            self._widen(next(self._widths))

    def _widen(self, width: int) -> None:
        narrow, self.buckets = self.buckets, {}
        for bucket, amount in narrow.items():
            self.buckets.setdefault(bucket * self.width // width, _Amount()).add(amount)
        self.width = width

    def points(self) -> list[CostPoint]:
        """All buckets, oldest first; those in which nothing was spent are left out."""
        return [amount.point(at * self.width) for at, amount in sorted(self.buckets.items())]

    def spread(self, sums: list[_Amount], since: int, until: int, width: int) -> _Amount:
        """Add the buckets of a time to sums of another width; return what they are together."""
        own = _Amount()
        for bucket, amount in self.buckets.items():
            at = bucket * self.width
            if since <= at < until:
                sums[(at - since) // width].add(amount)
                own.add(amount)
        return own


class _Tally:
    """What the messages of one conversation's log report, as far as they were read.

    `seen` are the requests that were counted, by the hashes of their ids: an edit or a merge puts
    a copy of an answer into the log. `state` tells whether what was read may still be there.
    """

    def __init__(self, head: Head, series: _Series, seen: set[int], first: int = 0) -> None:
        self.state = _state(head)
        self.series = series
        self.position = first
        self.usage = NOTHING
        self._seen = seen

    def read(self, store: Store, head: Head, over: Callable[[], bool]) -> bool:
        """Read what was added to the log; return whether all of it was read in time."""
        while self.position < head.length and not over():
            stop = min(self.position + _CHUNK, head.length)
            for message in store.messages(head.id, self.position, stop):
                if message.role == "assistant":
                    self._count(message)
            self.position = stop
        return self.position >= head.length

    def _count(self, message: Message) -> None:
        completed = message.info.completed if isinstance(message.info, AssistantInfo) else None
        at = message.timestamp if completed is None else completed
        for request in requests_of(message):
            mark = hash(request.id)
            if mark not in self._seen:
                self._seen.add(mark)
                self.usage = self.usage.plus(request.tokens, request.cost)
                self.series.count(at, request)


class Costs:
    """Counts what was spent, and remembers what it has read."""

    def __init__(self, store: Store, *, patience: float = _PATIENCE) -> None:
        """Read from a store; a request reads for so many seconds."""
        self._store = store
        self._patience = patience
        self._lock, self._store_lock = threading.Lock(), threading.Lock()
        self._open: OrderedDict[str, _Tally] = OrderedDict()
        self._own: dict[str, tuple[str, _Tally]] = {}  # with the root of its family
        self._seen: dict[str, set[int]] = {}  # by the root of a family

    # ── a conversation ──────────────────────────────────────────────────────────────────────────

    def usage(self, conversation: str, recorded: Usage) -> Usage:
        """What a conversation used: what its steps recorded, or all that its answers report.

        Answers that were imported have no record of it but themselves. All messages that were not
        counted yet are read.
        """
        with self._lock:
            tally, _, _ = self._tally(conversation, lambda: False)
            return _more(recorded, tally.usage)

    def report(self, conversation: str, recorded: Usage) -> CostReport:
        """What a conversation spent over time, as far as it can be read in a moment."""
        with self._lock:
            tally, head, complete = self._tally(conversation, _deadline(self._patience))
            usage = _more(recorded, tally.usage)
            return CostReport(
                version=head.version,
                usage=UsageTotals.of(usage),
                unknown_costs=usage.unknown_costs,
                dated=tally.usage.calls,
                bucket=tally.series.width,
                points=tally.series.points(),
                read=tally.position,
                length=head.length,
                complete=complete,
            )

    def _tally(self, conversation: str, over: Callable[[], bool]) -> tuple[_Tally, Head, bool]:
        head = self._store.head(conversation)
        tally = self._open.pop(conversation, None)
        if tally is None or tally.state != _state(head):
            tally = _Tally(head, _Series(_WIDTHS, _MOST_POINTS), set())
        self._open[conversation] = tally
        if len(self._open) > _OPEN:
            self._open.popitem(last=False)
        return tally, head, tally.read(self._store, head, over)

    # ── the store ───────────────────────────────────────────────────────────────────────────────

    def of_store(self, days: int, offset: int = 0) -> StoreCosts:
        """What all conversations spent in the last days.

        `offset` is how many minutes the reader's clock is ahead of UTC: it says when days begin.
        """
        since, until, width = _range(now_ms(), days, offset * 60 * _SECOND)
        heads, older = self._changed_since(since)
        with self._store_lock:
            self._forget_erased(heads)
            over = _deadline(self._patience)
            tallies = [self._own_tally(head) for head in heads]
            counted = sum(
                tally.read(self._store, head, over)
                for head, tally in zip(heads, tallies, strict=True)
            )
            points = [_Amount() for _ in range((until - since) // width)]
            spent = [tally.series.spread(points, since, until, width) for tally in tallies]
        total = _Amount()
        for amount in points:
            total.add(amount)
        by_cost = sorted(zip(heads, spent, strict=True), key=lambda pair: -pair[1].cost)
        return StoreCosts(
            since=since,
            until=until,
            bucket=width,
            points=[amount.point(since + at * width) for at, amount in enumerate(points)],
            total=total.point(since),
            top=[self._name(head, own) for head, own in by_cost[:_TOP] if own.cost],
            conversations=len(heads),
            counted=counted,
            complete=counted == len(heads),
            older=older,
        )

    def _changed_since(self, since: int) -> tuple[list[Head], bool]:
        """The conversations that may have spent something since a time, the last changed first."""
        heads, after = list[Head](), None
        while len(heads) < _MOST_CONVERSATIONS:
            page = self._store.list(after=after, limit=_CHUNK)
            recent = [head for head in page.conversations if head.updated >= since]
            heads += recent
            after = page.next
            if after is None or len(recent) < len(page.conversations):
                return heads, False
        return heads, True

    def _forget_erased(self, heads: Iterable[Head]) -> None:
        """Forget the families in which something was erased, or deleted and made again."""
        known = ((head, self._own.get(head.id)) for head in heads)
        gone = {own[0] for head, own in known if own is not None and own[1].state != _state(head)}
        if len(self._own) > 2 * _MOST_CONVERSATIONS:
            gone |= self._seen.keys()
        if gone:
            self._own = {name: own for name, own in self._own.items() if own[0] not in gone}
            self._seen = {root: seen for root, seen in self._seen.items() if root not in gone}

    def _own_tally(self, head: Head) -> _Tally:
        """The tally of the messages that a conversation does not have from its parent."""
        known = self._own.get(head.id)
        if known is None:
            root = head.id if head.parent is None else self._root(head.parent)
            seen = self._seen.setdefault(root, set())
            known = self._own[head.id] = (root, _Tally(head, _Series((_HOUR,)), seen, head.base))
        return known[1]

    def _root(self, name: str) -> str:
        """The first ancestor of a conversation."""
        while (known := self._own.get(name)) is None:
            parent = self._store.head(name).parent
            if parent is None:
                return name
            name = parent
        return known[0]

    def _name(self, head: Head, own: _Amount) -> ConversationCost:
        try:
            title = display_name(self._store, head)
        except UnknownConversation:  # deleted meanwhile
            title = head.title
        return ConversationCost(id=head.id, title=title, calls=own.calls, cost=own.known_cost)


def _state(head: Head) -> tuple[int, int]:
    """What changes when messages that were read may be gone."""
    return head.created, head.erased


def _more(recorded: Usage, reported: Usage) -> Usage:
    """The usage of more calls: a record has those of erased answers, answers those of imports."""
    return max(recorded, reported, key=lambda usage: usage.calls)


def _deadline(seconds: float) -> Callable[[], bool]:
    """A function that tells whether the time is over; it never is at the first question."""
    until, asked = time.monotonic() + seconds, iter((False,))
    return lambda: next(asked, time.monotonic() >= until)


def _range(now: int, days: int, offset: int) -> tuple[int, int, int]:
    """The last days up to the end of this one: from when, until when, and the width of a point."""
    width = _HOUR if days <= _SHORT_RANGE else _DAY if days <= _LONG_RANGE else 7 * _DAY
    unit = min(width, _DAY)
    until = ((now + offset) // unit + 1) * unit - offset
    return until - -(-days * _DAY // width) * width, until, width
