"""Measure how the cost of every public operation grows, and write the table in the docs.

Every public operation of `History`, `StoredHistory` and `Store` is carried out on something of size
n and on the same of size 10n, for every size that it could grow with: messages in the log, ranges
in the view, edits, marks, forks, conversations, records. An operation is flat (its cost does not
follow from the size, but for a logarithm) or linear. The ratio of both costs is compared with the
limit of its kind.

A cost is processor time, the least of several runs. On SQLite it is also the number of steps of
SQLite's virtual machine, which is the same on every machine and under any load.

    python -m tools.growth            # print the table; exit status 1 where a limit is exceeded
    python -m tools.growth --write    # and put it into docs/reliability.md
    python -m tools.growth --postgres postgresql://…   # measure there, too (elapsed time)
"""

from __future__ import annotations

import argparse
import gc
import io
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

import apsw

import palaver
from palaver.history import History
from palaver.stores.transfer import copy_conversations, export_conversation, import_conversation

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from palaver.messages import Message
    from palaver.stores import Store

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reliability.md"
BEGIN: Final = "<!-- growth: made by `python -m tools.growth --write` -->"
END: Final = "<!-- growth: end -->"

Growth: TypeAlias = Literal["flat", "linear"]
LIMITS: Final[dict[Growth, float]] = {"flat": 2.5, "linear": 15.0}
"""What ten times the size may cost. A linear operation costs ten times as much, and a little more
where what it reads no longer fits the processor's caches; a flat one has a logarithm in it."""
SIZES: Final = {
    "messages": 2_000, "ranges": 1_000, "edits": 200, "appends": 500, "mark names": 200,
    "marked messages": 200, "forks": 40, "conversations": 200, "records": 400,
}  # fmt: skip
LEAST_SECONDS: Final = 500e-6
LEAST_STEPS: Final = 1_000
"""What is below these counts as these: there is no telling growth from noise."""
REPEATS: Final = 5
BACKENDS: Final = ("history", "memory", "sqlite")


# ── what is measured on ─────────────────────────────────────────────────────────────────────────


@dataclass
class World:
    """Something of a size: a history, and the store it is in, where it is in one."""

    size: int
    history: Any
    store: Store | None = None
    names: list[str] = field(default_factory=list)
    made: int = 0
    other: Any = None

    def new(self) -> str:
        """A name that was not used before."""
        self.made += 1
        return f"new-{self.made}"

    def again(self) -> None:
        """Get the history again: nothing that was read before is held in memory."""
        if self.store is not None and self.history is not None:
            self.history = self.store.get(self.history.id)

    @property
    def kept(self) -> Store:
        """The store, for what only a store can do."""
        assert self.store is not None  # noqa: S101 - rows of stores are measured on stores
        return self.store


def _said(count: int, first: int = 0) -> list[Message]:
    """Messages of two roles in turn, the first from the system."""
    return [
        palaver.user(f"tea {n}", id=f"m{n}")
        if n % 2
        else palaver.assistant(f"milk {n}", id=f"m{n}")
        if n
        else palaver.system("be kind", id="m0")
        for n in range(first, first + count)
    ]


def _begin(store: Store | None, messages: Sequence[Message]) -> Any:  # noqa: ANN401 - one of two classes
    return History(messages) if store is None else store.create(messages)


def build(dimension: str, size: int, store: Store | None) -> World:
    """Make a world in which there are so many of something."""
    messages = {"messages": size, "ranges": 2 * size, "marked messages": 2 * size}
    history = _begin(store, _said(messages.get(dimension, 50)))
    world = World(size, history, store)
    _BUILDERS[dimension](world)
    history.append(palaver.user("the last", id="last"))
    return world


def _build_ranges(world: World) -> None:
    world.history.filter(roles=["user"])


def _build_edits(world: World) -> None:
    for number in range(world.size):
        world.history.replace(number % 50, palaver.user(f"other {number}"))


def _build_appends(world: World) -> None:
    for number in range(world.size):
        world.history.append(palaver.user(f"more {number}"))


def _build_names(world: World) -> None:
    for number in range(world.size):
        world.history.mark(number % 50, f"name-{number}")


def _build_marked(world: World) -> None:
    for number in range(world.size):
        world.history.mark(2 * number, "pin")


def _build_forks(world: World) -> None:
    world.other = [world.history.fork() for _ in range(world.size)]


def _build_conversations(world: World) -> None:
    for number in range(world.size):
        made = world.kept.create([palaver.user("tea")], id=f"talk-{number}")
        world.names.append(made.id)
        if number % 4 == 0:
            made.append(palaver.assistant("milk"))


def _build_records(world: World) -> None:
    records = [("ledger", f"call-{number:06}", b"{}") for number in range(world.size)]
    world.kept.backend.keep(world.history.id, records)


_BUILDERS: Final[dict[str, Callable[[World], None]]] = {
    "messages": lambda _: None,
    "ranges": _build_ranges,
    "edits": _build_edits,
    "appends": _build_appends,
    "mark names": _build_names,
    "marked messages": _build_marked,
    "forks": _build_forks,
    "conversations": _build_conversations,
    "records": _build_records,
}


# ── what is done ────────────────────────────────────────────────────────────────────────────────

Step: TypeAlias = Callable[[World], object]


@dataclass(frozen=True)
class Operation:
    """A public operation, what it may grow with, and how to carry it out.

    `before` and `after` are not measured. `linear` has the sizes that it is linear in.
    """

    of: Literal["History", "StoredHistory", "Store"]
    name: str
    run: Step
    linear: tuple[str, ...] = ()
    label: str = ""
    before: Step | None = None
    after: Step | None = None
    sizes: tuple[str, ...] = ("messages", "ranges", "edits", "mark names")
    leaves_ranges: bool = False  # in the stored versions: it is measured after all others
    only: tuple[str, ...] = ()  # the places where it is measured; everywhere, if there are none

    @property
    def title(self) -> str:
        """How the table has it."""
        return self.label or self.name

    def growth(self, dimension: str) -> Growth:
        """What kind of growth is promised."""
        return "linear" if dimension in self.linear else "flat"


def _undo(world: World) -> object:
    return world.history.undo()


def _shadow(world: World) -> None:
    """A fork that has one message more."""
    world.other = world.history.fork()
    world.other.append(palaver.user("from the fork"))


def _drop(world: World) -> None:
    world.kept.delete(world.names.pop())


def _drop_copies(world: World) -> None:
    for number in range(1, world.made + 1):
        if f"new-{number}" in world.kept:
            world.kept.delete(f"new-{number}")


def _export(world: World) -> None:
    world.other = io.BytesIO()
    export_conversation(world.kept, world.history.id, world.other)
    world.other.seek(0)


def _tokens(message: Message) -> int:
    return len(message.text)


_ALL: Final = ("messages", "ranges")
"""What whoever reads everything is linear in."""
_MARKED: Final = ("messages", "marked messages", "mark names")


def _of_history() -> Iterator[Operation]:  # noqa: PLR0915 - a list
    def op(name: str, run: Step, *linear: str, **more: Any) -> Operation:  # noqa: ANN401 - of Operation
        return Operation("History", name, run, linear, **more)

    yield op("append", lambda w: w.history.append(palaver.user("x")),
             sizes=("messages", "ranges", "edits", "appends", "mark names", "forks"))  # fmt: skip
    yield op("extend", lambda w: w.history.extend([palaver.user("x"), palaver.user("y")]))
    yield op("at", lambda w: len(w.history.at(w.history.version // 2)),
             sizes=("messages", "ranges", "edits", "appends", "mark names"))  # fmt: skip
    yield op("batch_index", lambda w: w.history.batch_index)
    yield op("batch_snapshot", lambda w: w.history.batch_snapshot(0))
    yield op("by_role", lambda w: w.history.by_role("user"), *_ALL)
    yield op("can_undo", lambda w: w.history.can_undo)
    yield op("ends", lambda w: w.history.ends(20))
    yield op("can_redo", lambda w: w.history.can_redo)
    yield op("clear", lambda w: w.history.clear(), after=_undo)
    yield op("count", lambda w: w.history.count(role="user"), label="count(role)")
    yield op("count", lambda w: w.history.count(mark="pin"), "marked messages",
             label="count(mark)", sizes=_MARKED)  # fmt: skip
    yield op("diff", lambda w: w.history.diff(), "ranges",
             before=lambda w: w.history.append(palaver.user("x")))  # fmt: skip
    yield op("erase", lambda w: w.history.erase(-1), "messages", "ranges", "edits", "forks",
             before=lambda w: w.history.append(palaver.user("secret word")),
             sizes=("messages", "ranges", "edits", "mark names", "forks"))  # fmt: skip
    yield op("execute", lambda w: w.history.execute({"operation": "TRUNCATE", "keepLast": 9}),
             after=_undo)  # fmt: skip
    yield op("filter", lambda w: w.history.filter(roles=["user"]), *_ALL, after=_undo,
             label="filter(role)", leaves_ranges=True)  # fmt: skip
    yield op("filter", lambda w: w.history.filter(content_contains=["tea 1"]), *_ALL,
             after=_undo, label="filter(text)", leaves_ranges=True)  # fmt: skip
    yield op("fork", lambda w: w.history.fork(), only=("history",),
             sizes=("messages", "ranges", "edits", "mark names", "forks"))  # fmt: skip
    yield op("id", lambda w: w.history.id)
    yield op("index", lambda w: w.history.index(w.other), *_ALL,
             before=lambda w: setattr(w, "other", w.history[-1]))  # fmt: skip
    yield op("insert", lambda w: w.history.insert(5, [palaver.user("x")]), after=_undo)
    yield op("log", lambda w: w.history.log[-1])
    yield op("mark", lambda w: w.history.mark("last", w.new()),
             sizes=("messages", "ranges", "edits", "mark names", "marked messages"))  # fmt: skip
    yield op("unmark", lambda w: w.history.unmark("last", "x"),
             before=lambda w: w.history.mark("last", "x"),
             sizes=("messages", "ranges", "edits", "mark names", "marked messages"))  # fmt: skip
    yield op("mark_map", lambda w: w.history.mark_map(), *_ALL, "edits")
    yield op("marks", lambda w: w.history.marks, "mark names", "marked messages",
             sizes=_MARKED)  # fmt: skip
    yield op("marks_of", lambda w: w.history.marks_of("last"), "mark names", sizes=_MARKED)
    yield op("merge", lambda w: w.history.merge(w.other), "ranges", "mark names",
             before=_shadow, after=_undo)  # fmt: skip
    yield op("messages", lambda w: w.history.messages, *_ALL)
    yield op("origin", lambda w: w.history.origin)
    yield op("price", lambda w: w.history.price({"operation": "CLEAR"}, tokens=_tokens), *_ALL)
    yield op("query", lambda w: w.history.query(roles=["user", "system"]), *_ALL,
             label="query(roles)")  # fmt: skip
    yield op("query", lambda w: w.history.query(text="tea 7"), *_ALL, label="query(text)")
    yield op("query", lambda w: w.history.query(mark="name-7"), "ranges", label="query(mark)",
             sizes=("messages", "ranges", "mark names"))  # fmt: skip
    yield op("query", lambda w: w.history.query(since=1), *_ALL, "edits",
             label="query(since)")  # fmt: skip
    yield op("range", lambda w: w.history.range(5, 15, role="user"), label="range(role)")
    yield op("recent", lambda w: w.history.recent(10, role="user"), label="recent(role)")
    yield op("replace", lambda w: w.history.replace(5, palaver.user("x")), after=_undo)
    yield op("replace_all", lambda w: w.history.replace_all([], team_task=None), after=_undo)
    yield op("undo", _undo, before=lambda w: w.history.append(palaver.user("x")),
             sizes=("messages", "ranges", "edits", "appends", "mark names"))  # fmt: skip
    yield op("redo", lambda w: w.history.redo(), after=_undo,
             before=lambda w: (w.history.append(palaver.user("x")), w.history.undo()))  # fmt: skip
    yield op("restore", lambda w: w.history.restore(w.history.version // 2), after=_undo)
    yield op("rewrite", lambda w: w.history.rewrite([range(len(w.history) - 9)]), *_ALL,
             after=_undo, leaves_ranges=True)  # fmt: skip
    yield op("rollback", lambda w: w.history.rollback(0), after=_undo,
             before=lambda w: w.history.replace(0, palaver.user("x")))  # fmt: skip
    yield op("set_team_task", lambda w: w.history.set_team_task(w.new()))
    yield op("state", lambda w: w.history.state)
    yield op("state", lambda w: w.history.state.batch_snapshots, "edits",
             label="state.batch_snapshots")  # fmt: skip
    yield op("stats", lambda w: w.history.stats)
    yield op("team_task", lambda w: w.history.team_task)
    yield op("truncate", lambda w: w.history.truncate(keep_last=10), after=_undo)
    yield op("version", lambda w: w.history.version)
    yield op("view", lambda w: w.history.view)
    yield op("__len__", lambda w: len(w.history))
    yield op("__getitem__", lambda w: w.history[len(w.history) // 2])
    yield op("__iter__", lambda w: list(w.history), *_ALL)
    yield op("__reversed__", lambda w: next(reversed(w.history)))
    yield op("__contains__", lambda w: w.other in w.history, "ranges",
             before=lambda w: setattr(w, "other", w.history[0]))  # fmt: skip
    yield op("view", lambda w: w.history.view.find("last"), label="view.find(id)",
             sizes=("messages", "ranges", "edits", "appends", "mark names"))  # fmt: skip
    yield op("view", lambda w: w.history.view.handle("last"), label="view.handle")


def _of_stored_history() -> Iterator[Operation]:
    def op(name: str, run: Step, *linear: str, **more: Any) -> Operation:  # noqa: ANN401 - of Operation
        return Operation("StoredHistory", name, run, linear, **more)

    yield op("refresh", lambda w: w.history.refresh(),
             before=lambda w: w.kept.get(w.history.id).append(palaver.user("x")))  # fmt: skip
    yield op("fork", lambda w: w.history.fork(), "ranges", "edits", "mark names",
             sizes=("messages", "ranges", "edits", "mark names", "forks"))  # fmt: skip
    yield op("head", lambda w: w.history.head)
    yield op("owner", lambda w: w.history.owner)
    yield op("tags", lambda w: w.history.tags)
    yield op("title", lambda w: w.history.title)
    yield op("under", lambda w: w.history.under(None))


def _of_store() -> Iterator[Operation]:
    sizes = ("messages", "ranges", "edits", "appends", "mark names", "forks", "conversations",
             "records")  # fmt: skip

    def op(name: str, run: Step, *linear: str, **more: Any) -> Operation:  # noqa: ANN401 - of Operation
        more.setdefault("sizes", sizes)
        return Operation("Store", name, run, linear, **more)

    yield op("create", lambda w: w.kept.create([palaver.user("x")]), sizes=("conversations",))
    yield op("get", lambda w: w.kept.get(w.history.id), "ranges", "edits", "mark names")
    yield op("describe", lambda w: w.kept.describe(w.history.id, title=w.new()))
    yield op("delete", _drop, sizes=("conversations",))
    yield op("list", lambda w: w.kept.list(limit=20), sizes=("conversations",))
    yield op("list", lambda w: w.kept.list(limit=20, tag="rare"), "conversations",
             label="list(tag)", sizes=("conversations",))  # fmt: skip
    yield op("__iter__", lambda w: list(w.kept), "conversations", sizes=("conversations",))
    yield op("__contains__", lambda w: w.history.id in w.kept, sizes=("conversations",))
    yield op("named", lambda w: w.kept.named("talk-1", limit=5), sizes=("conversations",))
    yield op("prune", lambda w: w.kept.prune(w.history.id, dry_run=True, undo=5),
             "ranges", "edits", "mark names", "forks")  # fmt: skip
    yield op("search", lambda w: w.kept.search("kind", limit=5), "conversations",
             before=lambda w: w.kept.search("kind"), sizes=("conversations",))  # fmt: skip
    yield op("follow", lambda w: list(w.kept.follow(after=w.kept.backend.newest() - 5, seconds=0)),
             sizes=("messages", "edits", "appends", "conversations"))  # fmt: skip
    yield op("follow", lambda w: list(w.kept.follow(w.history.id, after=w.history.version - 5,
                                                    seconds=0)),
             label="follow(conversation)", sizes=("messages", "edits", "appends"))  # fmt: skip
    yield op("head", lambda w: w.kept.head(w.history.id))
    yield op("newest", lambda w: w.kept.newest())
    yield op("journal", lambda w: w.kept.journal(w.history.id, w.history.version - 5, 5))
    yield op("wait", lambda w: w.kept.wait(0), sizes=("conversations",))
    yield op("messages", lambda w: w.kept.messages(w.history.id, 0, 5))
    yield op("find_positions", lambda w: w.kept.find_positions(w.history.id, "none"))
    yield op("keys", lambda w: w.kept.keys(w.history.id, w.history.version - 5, w.history.version))
    yield op("family", lambda w: w.kept.family(w.history.id), "forks")
    yield op("forks", lambda w: w.kept.forks(w.history.id), "forks")
    yield op("generation", lambda w: w.kept.generation(w.history.id))
    yield op("records", lambda w: w.kept.records(w.history.id, "none"))
    yield op("kinds", lambda w: w.kept.kinds(w.history.id), "records")
    yield op("put_record", lambda w: w.kept.put_record(w.history.id, "none", "x", b"1"))
    yield op("put_records", lambda w: w.kept.put_records(w.history.id, [("none", "x", b"1")]))
    yield op("kind", lambda w: w.kept.kind, sizes=("conversations",))
    yield op("migrated", lambda w: w.kept.migrated, sizes=("conversations",))
    yield op("with_clock", lambda w: w.kept.with_clock(lambda: 0), sizes=("conversations",))
    yield op("encrypted", lambda w: w.kept.encrypted, sizes=("conversations",))
    yield op("each", lambda w: list(w.kept.each(owner="nobody")), sizes=("conversations",))
    yield op("set_owner", lambda w: w.kept.set_owner(w.history.id, "me"))
    yield op("begin_work", lambda w: w.kept.begin_work(w.history.id, "me", ["usage"]))
    yield op("lease", lambda w: w.kept.lease(w.history.id, "me"))
    yield op("release", lambda w: w.kept.release(w.other),
             before=lambda w: setattr(w, "other", w.kept.lease(w.history.id, "me")))  # fmt: skip
    yield op("verify", lambda w: list(w.kept.verify(w.history.id)),
             "messages", "ranges", "edits", "appends", "mark names", "records",
             label="verify(conversation)")  # fmt: skip
    yield op("verify", lambda w: list(w.kept.verify()), "conversations",
             sizes=("conversations",))  # fmt: skip
    yield op("notes", lambda w: list(w.kept.notes(w.history.id)), "messages", "ranges", "edits",
             "appends", label="notes(conversation)",
             sizes=("messages", "ranges", "edits", "appends"))  # fmt: skip
    yield op("notes", lambda w: list(w.kept.notes()), "conversations", sizes=("conversations",))
    yield op("close", lambda w: w.other.close(), sizes=("conversations",),
             before=lambda w: setattr(w, "other", _opened_again(w.kept)))  # fmt: skip
    yield op("export", _export, "messages", "ranges", "edits", "appends", "mark names", "records",
             label="export_conversation")  # fmt: skip
    yield op("import", lambda w: import_conversation(w.kept, w.other, id=w.new()),
             "messages", "ranges", "edits", "appends", "mark names", "records",
             label="import_conversation", before=_export,
             after=_drop_copies)  # fmt: skip
    yield op("copy", lambda w: copy_conversations(w.kept, palaver.open(":memory:"), [w.history.id]),
             "messages", "ranges", "edits", "appends", "mark names", "records", "conversations",
             label="copy", sizes=("messages", "edits", "appends", "mark names", "records",
                                  "conversations"))  # fmt: skip
    yield op("records", lambda w: w.kept.backend.records(w.history.id, "ledger", last=3),
             label="backend.records(last)", sizes=("records",))  # fmt: skip
    yield op("put", lambda w: w.kept.backend.put(w.history.id, "ledger", w.new(), b"{}"),
             label="backend.put", sizes=("records",))  # fmt: skip


def _opened_again(store: Store) -> Store:
    path = getattr(store.backend, "path", None)
    return palaver.open(":memory:" if path is None else path)


OPERATIONS: Final = (*_of_history(), *_of_stored_history(), *_of_store())


# ── measuring ───────────────────────────────────────────────────────────────────────────────────


class Steps:
    """Counts the steps of SQLite's virtual machine, on the connections of a store."""

    def __init__(self, store: Store | None) -> None:
        """Look at the connection that writes and at the one of this thread that reads."""
        self.count = 0
        backend: Any = None if store is None else store.backend
        self._lines: list[apsw.Connection] = []
        if hasattr(backend, "_writer"):
            with backend._reader() as reader:  # noqa: SLF001 - no other way to them
                self._lines = [backend._writer, reader]  # noqa: SLF001 - the same

    def __enter__(self) -> Self:
        """Begin to count."""
        for line in self._lines:
            line.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        for line in self._lines:
            line.trace_v2(0, None)

    def _note(self, event: dict[str, Any]) -> None:
        self.count += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


@dataclass(frozen=True)
class Cost:
    """What an operation cost: seconds, and steps of SQLite's where there is an SQLite."""

    seconds: float
    steps: int

    def beside(self, smaller: Cost) -> float:
        """How many times as much as another, by whatever has grown more."""
        seconds = max(self.seconds, LEAST_SECONDS) / max(smaller.seconds, LEAST_SECONDS)
        steps = max(self.steps, LEAST_STEPS) / max(smaller.steps, LEAST_STEPS)
        return max(seconds, steps)


def cost(operation: Operation, world: World, repeats: int, clock: Callable[[], float]) -> Cost:
    """Carry out an operation a few times; answer the least cost."""
    seconds, steps = float("inf"), sys.maxsize
    for number in range(repeats + 1):
        world.again()
        if operation.before is not None:
            operation.before(world)
            world.again()
        if number:  # once for the time, and once for the steps: counting them takes time
            gc.disable()  # what was made before is not to be collected now
            start = clock()
            operation.run(world)
            seconds = min(seconds, clock() - start)
            gc.enable()
        else:
            with Steps(world.store) as counter:
                operation.run(world)
            steps = min(steps, counter.count)
        if operation.after is not None:
            operation.after(world)
    return Cost(seconds, steps)


@dataclass(frozen=True)
class Measured:
    """An operation at both sizes."""

    operation: Operation
    dimension: str
    backend: str
    size: int
    small: Cost
    large: Cost

    @property
    def ratio(self) -> float:
        """How many times as much ten times the size costs."""
        return self.large.beside(self.small)

    def __str__(self) -> str:
        """What grew how much."""
        return (
            f"{self.operation.title} on {self.backend} grows {self.ratio:.1f} times"
            f" with {self.dimension} ({_time(self.small.seconds)} to {_time(self.large.seconds)},"
            f" {self.small.steps} to {self.large.steps} steps)"
        )

    @property
    def within(self) -> bool:
        """Tell whether it keeps its limit."""
        return self.ratio <= LIMITS[self.operation.growth(self.dimension)]


def measured(
    operations: Sequence[Operation],
    backends: dict[str, Callable[[], Store | None]],
    *,
    scale: float = 1.0,
    repeats: int = REPEATS,
    attempts: int = 3,
) -> Iterator[Measured]:
    """Carry out every operation in every world it may grow with, at n and at 10n."""
    for backend, opened in backends.items():
        clock = time.perf_counter if backend == "postgres" else time.thread_time
        for dimension, size in SIZES.items():
            wanted = [one for one in operations if dimension in one.sizes and _has(backend, one)]
            wanted.sort(key=lambda one: one.leaves_ranges)
            if not wanted or (backend == "history" and dimension in {"conversations", "records"}):
                continue
            small = max(round(size * scale), 2)
            worlds = [build(dimension, count, opened()) for count in (small, 10 * small)]
            for one in wanted:
                yield min(
                    _attempts(one, dimension, backend, worlds, repeats, clock, attempts),
                    key=lambda row: row.ratio,
                )
            for world in worlds:
                if world.store is not None:
                    world.store.close()


def _has(backend: str, operation: Operation) -> bool:
    if operation.only:
        return backend in operation.only
    return operation.of == "History" or backend != "history"


def _attempts(  # noqa: PLR0917 - what a measurement is of
    operation: Operation,
    dimension: str,
    backend: str,
    worlds: list[World],
    repeats: int,
    clock: Callable[[], float],
    attempts: int,
) -> Iterator[Measured]:
    """Measure; where a limit is exceeded, again, in case the machine was at fault."""
    for _ in range(attempts):
        small, large = (cost(operation, world, repeats, clock) for world in worlds)
        found = Measured(operation, dimension, backend, worlds[0].size, small, large)
        yield found
        if found.within:
            return


# ── the table ───────────────────────────────────────────────────────────────────────────────────


def table(rows: Sequence[Measured]) -> str:
    """Everything that was measured, as a table: one line for an operation and what it grows with.

    Times are those of SQLite, where the operation was measured there.
    """
    lines: dict[tuple[str, str, str], dict[str, Measured]] = {}
    for row in rows:
        key = (row.operation.of, row.operation.title, row.dimension)
        lines.setdefault(key, {})[row.backend] = row
    backends = list(dict.fromkeys(row.backend for row in rows))
    ratios = [f"ratio, {one}" for one in backends]
    head = ["operation", "grows with", "n", "at n", "at 10n", *ratios, "limit", "verdict"]
    text = [_line(head), _line(["---"] * len(head))]
    places = {f"{one.of}.{one.title}": place for place, one in enumerate(OPERATIONS)}
    for name in sorted(lines, key=lambda name: places.get(f"{name[0]}.{name[1]}", len(places))):
        (of, title, dimension), found = name, lines[name]
        shown = found.get("sqlite") or next(iter(found.values()))
        growth = shown.operation.growth(dimension)
        ratios = [f"{found[one].ratio:.1f}" if one in found else "" for one in backends]
        verdict = "kept" if all(row.within for row in found.values()) else "**exceeded**"
        text.append(_line([
            f"`{of}.{title}`", dimension, f"{shown.size:,}", _time(shown.small.seconds),
            _time(shown.large.seconds), *ratios, f"{growth}, {LIMITS[growth]:g}", verdict,
        ]))  # fmt: skip
    return "\n".join(text)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"  # noqa: PLR2004 - a millisecond


def written(page: str, text: str) -> str:
    """A page with the table between its two comments."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        msg = f"the page has no {BEGIN} … {END}"
        raise ValueError(msg)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


@contextmanager
def scratch() -> Generator[Path]:
    """A folder for stores: on a disk in memory, where there is one, since nothing waits there."""
    shared = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
    place = shared if shared.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="palaver-growth-", dir=place) as folder:
        yield Path(folder)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, and answer the exit status."""
    parser = argparse.ArgumentParser(prog="growth", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual sizes")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--only", default="", help="operations whose name has this in it")
    parser.add_argument("--backend", choices=BACKENDS, action="append", help="measure only there")
    parser.add_argument("--postgres", metavar="ADDRESS", help="a database to measure in, too")
    options = parser.parse_args(arguments)
    with scratch() as folder:
        rows: list[Measured] = []
        for row in measured(
            [one for one in OPERATIONS if options.only in one.title],
            _backends(options.backend or BACKENDS, folder, options.postgres),
            scale=options.scale,
            repeats=options.repeats,
        ):
            rows.append(row)
            if not row.within:
                print(f"growth: {row}", file=sys.stderr, flush=True)
    text = table(rows)
    print(text)
    exceeded = [row for row in rows if not row.within]
    if options.write:
        PAGE.write_text(written(PAGE.read_text("utf-8"), text), "utf-8")
    return 1 if exceeded else 0


def _backends(
    names: Sequence[str], folder: Path, postgres: str | None
) -> dict[str, Callable[[], Store | None]]:
    made = iter(range(1_000_000))
    known: dict[str, Callable[[], Store | None]] = {
        "history": lambda: None,
        "memory": lambda: palaver.open(":memory:"),
        "sqlite": lambda: palaver.open(folder / f"{next(made)}.db"),
    }
    chosen = {name: known[name] for name in names}
    if postgres is not None:
        chosen["postgres"] = lambda: palaver.open(postgres)
    return chosen


if __name__ == "__main__":
    sys.exit(main())
