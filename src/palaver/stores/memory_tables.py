"""The tables of the store in memory: one conversation with its indexes, and the order of all."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, Any, TypeAlias

from palaver.messages import ROLES
from palaver.stores.lineage import Lineage
from palaver.stores.rows import body_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.messages import Message, Role
    from palaver.stores.records import Head, Journaled, Lease

__all__ = ["ByTime", "Conversation", "Records", "Row"]


class Row:
    """A message as it is kept: what was before it, and its bytes."""

    __slots__ = ("before", "body", "id", "replaces", "role", "time")

    def __init__(self, message: Message, before: int, replaces: int | None) -> None:
        """Take a message, the packed counts before it, and the position it replaces."""
        self.before = before
        self.body = body_of(message)
        self.id = message.id
        self.role: Role = message.role
        self.time = message.timestamp
        self.replaces = replaces


class Records:
    """Records by kind and name; the names of a kind are kept in order."""

    def __init__(self) -> None:
        """Begin empty."""
        self._values: dict[str, dict[str, bytes]] = {}
        self._names: dict[str, list[str]] = {}

    def put(self, kind: str, name: str, value: bytes | None) -> None:
        """Set a record; None removes it."""
        values = self._values.setdefault(kind, {})
        names = self._names.setdefault(kind, [])
        if value is not None:
            if name not in values:
                insort(names, name)
            values[name] = value
        elif values.pop(name, None) is not None:
            del names[bisect_left(names, name)]

    def between(self, kind: str, since: str, until: str | None, last: int | None) -> dict[str, Any]:
        """The records of a kind from one name to before another, and of these the last few."""
        names, values = self._names.get(kind, []), self._values.get(kind, {})
        start = bisect_left(names, since)
        stop = len(names) if until is None else max(bisect_left(names, until), start)
        if last is not None:
            start = max(start, stop - last)
        return {name: values[name] for name in names[start:stop]}

    def kinds(self) -> list[str]:
        """The kinds there are, in order."""
        return sorted(kind for kind, names in self._names.items() if names)

    def items(self) -> Iterator[tuple[tuple[str, str], bytes]]:
        """Every record with its kind and name, in order."""
        for kind in self.kinds():
            for name in self._names[kind]:
                yield (kind, name), self._values[kind][name]

    def copy(self) -> Records:
        """Records that go their own way."""
        made = Records()
        made._values = {kind: dict(values) for kind, values in self._values.items()}
        made._names = {kind: list(names) for kind, names in self._names.items()}
        return made


Moment: TypeAlias = "tuple[Head, int, int, int, Records]"


class Conversation:
    """One conversation: its own rows, and where each id and each role stands among them."""

    def __init__(self, head: Head, serial: int, parent: Conversation | None) -> None:
        """Begin without rows; `serial` says how many conversations were begun before."""
        self.head = head
        self.serial = serial
        above = None if parent is None else parent.lineage
        self.lineage: Lineage[str] = Lineage(head.id, above, head.base, head.origin)
        self.rows: list[Row] = []
        self.ids: dict[str, list[int]] = {}
        self.roles: dict[Role, list[int]] = {role: [] for role in ROLES}
        self.journal: list[tuple[Journaled, int, bytes | None]] = []
        self.keys: dict[str, int] = {}
        self.keyed: list[tuple[int, str]] = []  # the same, by version
        self.forks: dict[str, None] = {}
        self.lease: Lease | None = None
        self.records = Records()

    def add(self, row: Row) -> None:
        """Add a row at the end."""
        position = self.head.base + len(self.rows)
        self.rows.append(row)
        self.ids.setdefault(row.id, []).append(position)
        self.roles[row.role].append(position)

    def add_key(self, key: str, version: int) -> None:
        """Note the key of a version."""
        self.keys[key] = version
        self.keyed.append((version, key))

    def keys_between(self, after: int, upto: int) -> dict[int, str]:
        """The keys of the versions after one and up to another."""
        start = bisect_right(self.keyed, after, key=_version)
        return dict(self.keyed[start : bisect_right(self.keyed, upto, key=_version)])

    def moment(self) -> Moment:
        """All it takes to return to how it is now."""
        return (
            self.head, len(self.rows), len(self.journal), len(self.keyed), self.records.copy(),
        )  # fmt: skip

    def return_to(self, moment: Moment) -> None:
        """Take back what came since."""
        self.head, rows, journal, keyed, self.records = moment
        for row in reversed(self.rows[rows:]):
            self.ids[row.id].pop()
            self.roles[row.role].pop()
        for _, key in self.keyed[keyed:]:
            del self.keys[key]
        del self.rows[rows:]
        del self.journal[journal:]
        del self.keyed[keyed:]


def _version(entry: tuple[int, str]) -> int:
    return entry[0]


class ByTime:
    """Conversations by the time of their last change; what changed is sorted in when asked for."""

    def __init__(self) -> None:
        """Begin empty."""
        self._sorted: list[tuple[int, str]] = []
        self._listed: dict[str, int] = {}
        self._changed: dict[str, int | None] = {}

    def note(self, conversation: str, updated: int | None) -> None:
        """Note when a conversation was last changed; None where it is gone."""
        self._changed[conversation] = updated

    def before(self, updated: int | None, name: str) -> Iterator[str]:
        """The conversations that stand before a place, the latest first; all of them for None."""
        self._sort()
        entries = self._sorted
        stop = len(entries) if updated is None else bisect_left(entries, (updated, name))
        return (entries[place][1] for place in range(stop - 1, -1, -1))

    def _sort(self) -> None:
        changed, self._changed = self._changed, {}
        few = len(changed) * 8 < len(self._sorted)
        for name, updated in changed.items():
            known = self._listed.pop(name, None)
            if updated == known and known is not None:
                self._listed[name] = known
                continue
            if few and known is not None:
                del self._sorted[bisect_left(self._sorted, (known, name))]
            if updated is not None:
                self._listed[name] = updated
                if few:
                    insort(self._sorted, (updated, name))
        if not few:
            self._sorted = sorted((updated, name) for name, updated in self._listed.items())
