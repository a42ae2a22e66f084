"""The SQLite store beside the ones that agents keep their sessions in today, on the same turns.

Everyone writes to SQLite with WAL and `synchronous=FULL`: an append that returned is on disk, here
and there. The disk is one in memory and the clock is the processor's, so that the programs are
compared and not the disk; what a peer spends on waiting for a thread of its own is not counted
against it. A peer's objects are made, and its threads and connections warm, before that clock
starts.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import palaver
from bench.harness import AtLeast, Row, Run, against_peer, paired
from bench.turns import Said, for_adk, for_agents, for_langchain, for_palaver, turns
from palaver.tokens import estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from palaver.stores import StoredHistory

    Ready = Callable[[], object]
    Contender = Callable[[int], Ready]
    Tokenizer = Callable[[str], Sequence[object]]

__all__ = ["durable_engine", "rows"]

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a memory disk, where there is one
_DURABLE: Final = "WAL, synchronous=FULL on both; a memory disk, processor time"
_OPEN: Final = "peer: a session that stays open; palaver opens the conversation anew"
_LONG: Final = 10_000
_TEXT: Final = "a question or an answer " * 16
_FULL: Final = 2  # what SQLite calls it
_ESTIMATE: Final = "palaver's estimate"


def rows(run: Run) -> Iterator[Row]:
    """Appends, one after the other; reading and forking what is long; LlamaIndex's memory."""
    with (
        tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder,
        asyncio.Runner() as runner,
    ):
        disk = _Disk(Path(folder), runner)
        yield from _appends(disk, run)
        yield from _long_ones(disk, run)
        yield from _llama_index(disk, run)


class _Disk:
    """A folder for fresh files, and the loop that asynchronous peers run in."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self.run = runner.run

    def file(self) -> Path:
        """A file that was never used."""
        return self._folder / f"{next(self._numbers)}.db"


def _appends(disk: _Disk, run: Run) -> Iterator[Row]:
    for name, peer, count, goal in (
        ("OpenAI Agents SQLiteSession", _agents, 2_000, 5),
        ("LangChain SQLChatMessageHistory", _langchain, 1_000, 10),
        ("Google ADK DatabaseSessionService", _adk, 400, 50),
    ):
        said = turns(run.rounds(count))
        ours, theirs = paired(7, _palaver(disk, said), peer(disk, said), time.process_time)
        yield against_peer(
            f"durable append, against {name}", ours / len(said) * 1e3, theirs / len(said) * 1e3,
            n=len(said), unit="µs", goal=AtLeast(goal), note=f"peer: {name}; {_DURABLE}",
        )  # fmt: skip


def _palaver(disk: _Disk, said: list[Said]) -> Contender:
    def prepare(_number: int) -> Ready:
        history = palaver.open(disk.file()).create()
        messages = for_palaver(said)

        def go() -> None:
            for message in messages:
                history.append(message)

        return go

    return prepare


def _agents(disk: _Disk, said: list[Said]) -> Contender:
    session: Any = importlib.import_module("agents.memory").SQLiteSession
    items = for_agents(said)

    def prepare(_number: int) -> Ready:
        path = disk.file()
        kept = session("talk", path)
        _check_durable(path)

        async def add() -> None:
            for added in items:
                await kept.add_items(added)

        disk.run(kept.get_items())
        return lambda: disk.run(add())

    return prepare


def _check_durable(path: Path) -> None:
    """The peer leaves `synchronous` as it is: what the library was built with must be FULL."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (_FULL,)
    connection.close()


def _langchain(disk: _Disk, said: list[Said]) -> Contender:
    module: Any = importlib.import_module("langchain_community.chat_message_histories")
    sqlalchemy: Any = importlib.import_module("sqlalchemy")
    messages = for_langchain(said)

    def prepare(_number: int) -> Ready:
        engine = sqlalchemy.create_engine(f"sqlite:///{disk.file()}")
        sqlalchemy.event.listen(engine, "connect", _make_durable)
        kept = module.SQLChatMessageHistory("talk", connection=engine)
        assert kept.messages == []

        def go() -> None:
            for message in messages:
                kept.add_message(message)

        return go

    return prepare


def _adk(disk: _Disk, said: list[Said]) -> Contender:
    service: Any = importlib.import_module("google.adk.sessions").DatabaseSessionService

    def prepare(_number: int) -> Ready:
        engine = durable_engine(disk.file())
        kept = service(db_engine=engine)
        talk: Any = disk.run(kept.create_session(app_name="bench", user_id="someone"))
        events = for_adk(said)

        async def add() -> None:
            for event in events:
                await kept.append_event(talk, event)
            await engine.dispose()

        return lambda: disk.run(add())

    return prepare


def _make_durable(connection: Any, _record: object) -> None:  # noqa: ANN401 - a driver's own
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _long_ones(disk: _Disk, run: Run) -> Iterator[Row]:
    said = turns(_LONG)
    text = [Said("assistant" if n % 2 else "user", f"{n} {_TEXT}") for n in range(_LONG)]
    rounds = run.rounds(21)
    for name, spoken in (("turns", said), ("plain texts", text)):
        took = paired(rounds, *_reading(disk, spoken), time.process_time)
        yield against_peer(
            f"full read of {name}, against OpenAI Agents SQLiteSession", *took, n=_LONG,
            goal=AtLeast(2), note=f"{_OPEN}; palaver checks what it reads; {_DURABLE}",
        )  # fmt: skip
    talk, branched = _both(disk, said)
    for name, ours, theirs, repeats in (
        ("the last 20", _last(*talk), _their_last(disk, branched), 5),
        ("fork", _fork(*talk), _their_fork(disk, branched, said), 1),
    ):
        took = paired(rounds, ours, theirs, time.process_time, repeats)
        yield against_peer(
            f"{name}, against OpenAI Agents AdvancedSQLiteSession", *took, n=_LONG,
            goal=AtLeast(50), note=f"{_OPEN}; {_DURABLE}",
        )  # fmt: skip


def _reading(disk: _Disk, said: list[Said]) -> tuple[Contender, Contender]:
    store = palaver.open(disk.file())
    name = store.create(for_palaver(said)).id
    session: Any = importlib.import_module("agents.memory").SQLiteSession("talk", disk.file())
    items = list(itertools.chain.from_iterable(for_agents(said)))
    disk.run(session.add_items(items))
    assert items == disk.run(session.get_items())
    return (
        lambda _number: lambda: list(store.get(name)),
        lambda _number: lambda: disk.run(session.get_items()),
    )


def _both(disk: _Disk, said: list[Said]) -> tuple[tuple[palaver.Store, StoredHistory], Any]:
    """The same turns in palaver and in the session that has branches."""
    store = palaver.open(disk.file())
    talk = store, store.create(for_palaver(said))
    module: Any = importlib.import_module("agents.extensions.memory.advanced_sqlite_session")
    branched = module.AdvancedSQLiteSession(
        session_id="talk", db_path=disk.file(), create_tables=True
    )
    disk.run(branched.add_items(list(itertools.chain.from_iterable(for_agents(said)))))
    return talk, branched


def _last(store: palaver.Store, talk: StoredHistory) -> Contender:
    return lambda _number: lambda: store.get(talk.id)[-20:]


def _their_last(disk: _Disk, session: Any) -> Contender:  # noqa: ANN401 - a peer's, here and below
    return lambda _number: lambda: disk.run(session.get_items(limit=20))


def _fork(store: palaver.Store, talk: StoredHistory) -> Contender:
    return lambda _number: lambda: store.get(talk.id).fork()


def _their_fork(disk: _Disk, session: Any, said: list[Said]) -> Contender:  # noqa: ANN401
    last = sum(one.role == "user" for one in said)

    def prepare(_number: int) -> Ready:
        disk.run(session.switch_to_branch("main"))
        return lambda: disk.run(session.create_branch_from_turn(last))

    return prepare


def _llama_index(disk: _Disk, run: Run) -> Iterator[Row]:
    """Through LlamaIndex's own interface: append, the last 20, and the newest within a limit."""
    for count in (100, 1_000) if run.quick else (100, 1_000, _LONG):
        talk = _LlamaIndex(disk, count)
        took = paired(run.rounds(7), talk.append, talk.their_append, time.process_time, 20)
        yield against_peer(
            "LlamaIndex: append, against SimpleChatStore", *took, n=count,
            note="peer: a list in memory, nothing is on disk",
        )  # fmt: skip
        took = paired(run.rounds(7), talk.append, talk.their_sql_append, time.process_time, 20)
        yield against_peer(
            "LlamaIndex: append, against SQLAlchemyChatStore", *took, n=count,
            goal=AtLeast(1), note=_DURABLE,
        )  # fmt: skip
        took = paired(run.rounds(7), talk.last, talk.their_last, time.process_time, 5)
        yield against_peer(
            "LlamaIndex: the last 20, against SQLAlchemyChatStore", *took, n=count,
            goal=AtLeast(10) if count == _LONG else None, note=f"peer: with an offset; {_DURABLE}",
        )  # fmt: skip
        for whose, tokenizer in talk.tokenizers():
            if count == _LONG or whose == _ESTIMATE:
                rounds = 3 if whose == _ESTIMATE else 1  # by its own, theirs takes a minute
                took = paired(rounds, *talk.newest(tokenizer), time.process_time)
                yield against_peer(
                    f"LlamaIndex: newest in 3,000 tokens by {whose}, against ChatMemoryBuffer",
                    *took, n=count, goal=AtLeast(1_000) if count == _LONG else None,
                    note="the same tokenizer on both; palaver has counted nothing yet",
                )  # fmt: skip


class _LlamaIndex:
    """The same texts in palaver and in LlamaIndex's own stores."""

    def __init__(self, disk: _Disk, count: int) -> None:
        self._adapter: Any = importlib.import_module("palaver.adapters.llama_index")
        stores: Any = importlib.import_module("llama_index.core.storage.chat_store")
        sql: Any = importlib.import_module("llama_index.core.storage.chat_store.sql")
        memory: Any = importlib.import_module("llama_index.core.memory")
        self._message: Any = importlib.import_module("llama_index.core.llms").ChatMessage
        self._run, self._count = disk.run, count
        said = [self._said(number) for number in range(count)]
        self._store = palaver.open(disk.file())
        self._ours = self._adapter.PalaverChatStore(self._store)
        self._ours.set_messages("talk", said)
        self._simple = stores.SimpleChatStore(store={"talk": list(said)})
        self._sql = sql.SQLAlchemyChatStore("messages", async_engine=durable_engine(disk.file()))
        disk.run(self._sql.set_messages("talk", said))
        self._history = said
        self._buffer: Any = memory.ChatMemoryBuffer

    def _said(self, number: int) -> Any:  # noqa: ANN401 - a peer's message
        return self._message(f"{number} {_TEXT[:23]}", role="assistant" if number % 2 else "user")

    def append(self, number: int) -> Ready:
        """A message in palaver's chat store."""
        message = self._said(number)
        return lambda: self._ours.add_message("talk", message)

    def their_append(self, number: int) -> Ready:
        """A message in their chat store."""
        message = self._said(number)
        return lambda: self._simple.add_message("talk", message)

    def their_sql_append(self, number: int) -> Ready:
        """A message in their database."""
        message = self._said(number)
        return lambda: self._run(self._sql.add_message("talk", message))

    def last(self, _number: int) -> Ready:
        """The last 20 messages of a conversation that is opened anew, as LlamaIndex's."""
        convert = self._adapter.to_llama_index
        return lambda: [convert(message) for message in self._store.get("talk")[-20:]]

    def their_last(self, _number: int) -> Ready:
        """The last 20 of their database."""
        first = self._run(self._sql.count_messages("talk")) - 20
        return lambda: self._run(self._sql.get_messages("talk", offset=first))

    @staticmethod
    def tokenizers() -> list[tuple[str, Tokenizer]]:
        """A cheap one, and the one that LlamaIndex uses unless it is told otherwise."""
        module: Any = importlib.import_module("llama_index.core.utils")
        return [
            (_ESTIMATE, lambda text: range(estimate(text))),
            ("its own", module.get_tokenizer()),
        ]

    def newest(self, tokenizer: Tokenizer) -> tuple[Contender, Contender]:
        """The newest that fit, by a memory that has counted nothing yet, and by theirs."""
        limit = {"token_limit": 3_000, "tokenizer_fn": tokenizer}
        buffer = self._buffer.from_defaults(list(self._history), **limit)
        memory = self._adapter.PalaverMemory
        return (
            lambda _number: lambda: memory(self._store, "talk", **limit).get(),
            lambda _number: buffer.get,
        )


def durable_engine(path: Path) -> Any:  # noqa: ANN401 - a peer's
    """An asynchronous engine whose commits are on disk, as palaver's are."""
    sqlalchemy: Any = importlib.import_module("sqlalchemy")
    asynchronous: Any = importlib.import_module("sqlalchemy.ext.asyncio")
    engine = asynchronous.create_async_engine(f"sqlite+aiosqlite:///{path}")
    sqlalchemy.event.listen(engine.sync_engine, "connect", _make_durable)
    return engine
