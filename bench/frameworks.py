"""ADK, Strands, LlamaIndex and Agent Framework with palaver behind their own interfaces.

Each is beside the store that it comes with and that lasts: ADK's and LlamaIndex's databases on
SQLite with WAL and `synchronous=FULL`, as palaver's; Strands' and Agent Framework's files, which
don't wait for a disk. The disk is one in memory and the clock the processor's, so that programs are
compared and not disks. The sessions have 100, 1,000 and 10,000 messages before it begins. A fork is
what a user has to do where there is none: the events or messages again in another session, or a
copy of the files.

ADK's own service reads the last 20 events alone (`LIMIT`), and the state of the session, the user
and the app, as palaver's does. It makes an event of each, which is pydantic's work; palaver copies
those that it has read before. What is added are events that its runner has made, outside the clock,
ten in a run, ten runs in a row. That counts all threads of the process: those of `aiosqlite` as
those of palaver's.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import shutil
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import palaver
from bench.harness import AtLeast, Row, Run, against_peer, paired
from bench.peers import durable_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["rows"]

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a memory disk, where there is one
_ADDED: Final = 10
"""So many messages are added in one run."""
_RUNS: Final = 10
"""So many runs of ADK are timed together: caches are as warm as in a program at work."""
_LAST: Final = 20
_LONG: Final = 10_000
_TEXT: Final = "a question or an answer " * 8
_NOTE: Final = "through the framework's own interface; a memory disk, processor time"


class Talk(NamedTuple):
    """A session of so many messages: what adds ten, reads the last 20 anew, and forks it.

    What adds ten is made ready first, with what is to be added.
    """

    append: Callable[[int], Callable[[], object]]
    last: Callable[[], list[Any]]
    fork: Callable[[], object]


def rows(run: Run) -> Iterator[Row]:
    """Three figures of each framework at three lengths."""
    with (
        tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder,
        asyncio.Runner() as runner,
    ):
        bench = _Bench(Path(folder), runner)
        for count in (100, 1_000) if run.quick else (100, 1_000, _LONG):
            for name, ours, theirs in (
                ("ADK", bench.our_adk, bench.their_adk),
                ("Strands", bench.our_strands, bench.their_strands),
                ("LlamaIndex", bench.our_llama_index, bench.their_llama_index),
                ("Agent Framework", bench.our_agent_framework, bench.their_agent_framework),
            ):
                yield from _rows(run, name, count, ours(count), theirs(count))


def _rows(run: Run, name: str, count: int, ours: Talk, theirs: Talk) -> Iterator[Row]:
    assert len(ours.last()) == len(theirs.last()) == _LAST
    append = 20.0 if name == "ADK" else 1.0
    faster = AtLeast(10) if count == _LONG else None
    forks = (3, 20) if name == "Agent Framework" else (1, 1)  # the copy of a file is soon done
    for what, goal, rounds, repeats in (
        ("append", AtLeast(append), 15, 1), ("last", faster, 9, 20), ("fork", faster, *forks)
    ):  # fmt: skip
        our, their = getattr(ours, what), getattr(theirs, what)
        if what != "append":
            our, their = partial(_ready, our), partial(_ready, their)
        took = paired(run.rounds(rounds), our, their, time.process_time, repeats)
        shown = "open and the last 20" if what == "last" else what
        added = _ADDED * _RUNS if name == "ADK" else _ADDED
        each = 1e3 / added if what == "append" else 1e3
        yield against_peer(
            f"{name}: {shown} at {count:,}", *(one * each for one in took), n=count, unit="µs",
            goal=goal, note=_NOTE,
        )  # fmt: skip


def _ready(go: Callable[[], object], _number: int) -> Callable[[], object]:
    return go


def _module(name: str) -> Any:  # noqa: ANN401 - a peer's
    return importlib.import_module(name)


def _texts(count: int) -> list[tuple[str, str]]:
    """Roles and texts of a conversation."""
    return [("assistant" if n % 2 else "user", f"{n} {_TEXT}") for n in range(count)]


class _Bench:
    """A folder for fresh files, and the loop that everything asynchronous runs in."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self.run = runner.get_loop().run_until_complete
        # not the runner's: a task's result gets written out for a signal handler, all 20 events

    def path(self) -> Path:
        """A path that was never used."""
        return self._folder / str(next(self._numbers))

    # ── ADK ─────────────────────────────────────────────────────────────────────────────────────

    def our_adk(self, count: int) -> Talk:
        """Sessions of palaver's."""
        service = _module("palaver.adapters.adk").PalaverSessionService(palaver.open(self.path()))

        async def fork() -> None:
            service.history(app_name="bench", user_id="ann", session_id="talk").fork()

        return self._adk(service, count, fork)

    def their_adk(self, count: int) -> Talk:
        """ADK's own, over a database."""
        engine = durable_engine(self.path())
        service = _module("google.adk.sessions").DatabaseSessionService(db_engine=engine)

        async def fork() -> None:
            found = await service.get_session(app_name="bench", user_id="ann", session_id="talk")
            new = await service.create_session(app_name="bench", user_id="ann")
            for event in found.events:
                copied = event.model_copy(update={"id": f"{event.id} {new.id}"})
                await service.append_event(new, copied)

        return self._adk(service, count, fork)

    def _adk(self, service: Any, count: int, fork: Callable[[], Any]) -> Talk:  # noqa: ANN401
        types, event = _module("google.genai.types"), _module("google.adk.events").Event
        recent = _module("google.adk.sessions.base_session_service").GetSessionConfig(
            num_recent_events=_LAST
        )
        owner = {"app_name": "bench", "user_id": "ann", "session_id": "talk"}

        def say(role: str, text: str) -> Any:  # noqa: ANN401
            said = types.Content(
                role="model" if role == "assistant" else "user", parts=[types.Part(text=text)]
            )
            return event(author=said.role, content=said)

        async def begin() -> Any:  # noqa: ANN401
            session = await service.create_session(**owner)
            for role, text in _texts(count):
                await service.append_event(session, say(role, text))
            await _flush(service)
            return session

        session = self.run(begin())

        async def append(events: list[Any]) -> None:
            for each in events:
                await service.append_event(session, each)
            await _flush(service)  # palaver gives its lease back, which is part of a run

        def ready(_number: int) -> Callable[[], object]:
            events = [say("user", _TEXT) for _ in range(_ADDED * _RUNS)]  # which its runner makes
            runs = [events[start : start + _ADDED] for start in range(0, len(events), _ADDED)]
            return lambda: [self.run(append(each)) for each in runs]

        async def last() -> list[Any]:
            found = await service.get_session(**owner, config=recent)
            return list(found.events)

        return Talk(ready, lambda: self.run(last()), lambda: self.run(fork()))

    # ── Strands ─────────────────────────────────────────────────────────────────────────────────

    def our_strands(self, count: int) -> Talk:
        """Sessions of palaver's, for a session manager of Strands'."""
        store = palaver.open(self.path())
        made = _module("palaver.adapters.strands").PalaverSessionRepository

        def fork() -> None:
            store.get("talk").fork()

        return self._strands(made(store), lambda: made(store), count, fork)

    def their_strands(self, count: int) -> Talk:
        """Strands' own, in files."""
        folder = self.path()
        manager = _module("strands.session").FileSessionManager

        def opened() -> Any:  # noqa: ANN401
            return manager("other", storage_dir=str(folder))

        return self._strands(opened(), opened, count, lambda: shutil.copytree(folder, self.path()))

    def _strands(
        self,
        repository: Any,  # noqa: ANN401
        opened: Callable[[], Any],
        count: int,
        fork: Callable[[], object],
    ) -> Talk:
        types = _module("strands.types.session")
        repository.create_session(types.Session("talk", types.SessionType.AGENT))
        repository.create_agent("talk", types.SessionAgent("ada", {}, {}))
        numbers = itertools.count()

        def say(role: str, text: str) -> None:
            message = {"role": role, "content": [{"text": text}]}
            stored = types.SessionMessage.from_message(message, next(numbers))
            repository.create_message("talk", "ada", stored)

        def append() -> None:
            for _ in range(_ADDED):
                say("user", _TEXT)

        for role, text in _texts(count):
            say(role, text)
        return Talk(
            partial(_ready, append),
            lambda: opened().list_messages("talk", "ada", limit=_LAST, offset=count - _LAST),
            fork,
        )

    # ── LlamaIndex ──────────────────────────────────────────────────────────────────────────────

    def our_llama_index(self, count: int) -> Talk:
        """A chat store of palaver's."""
        adapter = _module("palaver.adapters.llama_index")
        message = _module("llama_index.core.llms").ChatMessage
        store = palaver.open(self.path())
        chats = adapter.PalaverChatStore(store)
        chats.set_messages("talk", [message(text, role=role) for role, text in _texts(count)])

        def last() -> list[Any]:
            found = map(adapter.to_llama_index, store.get("talk").view[-_LAST:])
            return list(itertools.chain.from_iterable(found))

        def append() -> None:
            for _ in range(_ADDED):
                chats.add_message("talk", message(_TEXT))

        return Talk(
            partial(_ready, append),
            last,
            lambda: chats.history("talk").fork(),
        )

    def their_llama_index(self, count: int) -> Talk:
        """LlamaIndex's own, over a database."""
        message = _module("llama_index.core.llms").ChatMessage
        sql = _module("llama_index.core.storage.chat_store.sql").SQLAlchemyChatStore
        chats = sql(table_name="chat", async_engine=durable_engine(self.path()))
        said = [message(text, role=role) for role, text in _texts(count)]
        self.run(chats.add_messages("talk", said))
        forks = itertools.count()

        async def append() -> None:
            for _ in range(_ADDED):
                await chats.add_message("talk", message(_TEXT))

        async def last() -> list[Any]:
            return list(await chats.get_messages("talk", limit=_LAST, offset=count - _LAST))

        async def fork() -> None:
            found = await chats.get_messages("talk")
            await chats.add_messages(f"fork {next(forks)}", found)

        return Talk(
            partial(_ready, lambda: self.run(append())),
            lambda: self.run(last()),
            lambda: self.run(fork()),
        )

    # ── Agent Framework ─────────────────────────────────────────────────────────────────────────

    def our_agent_framework(self, count: int) -> Talk:
        """A history provider of palaver's."""
        store = palaver.open(self.path())
        made = _module("palaver.adapters.agent_framework").PalaverHistoryProvider
        provider = made(store)

        def opened() -> Any:  # noqa: ANN401
            return made(store, max_messages=_LAST)

        return self._agent_framework(
            provider, opened, count, lambda: provider.history("talk").fork()
        )

    def their_agent_framework(self, count: int) -> Talk:
        """Agent Framework's own, in files."""
        folder = self.path()
        made = _module("agent_framework").FileHistoryProvider
        return self._agent_framework(
            made(folder), lambda: made(folder), count, lambda: shutil.copytree(folder, self.path())
        )

    def _agent_framework(
        self,
        provider: Any,  # noqa: ANN401
        opened: Callable[[], Any],
        count: int,
        fork: Callable[[], object],
    ) -> Talk:
        message = _module("agent_framework").Message
        said = [message(role, [text]) for role, text in _texts(count)]
        self.run(provider.save_messages("talk", said))
        numbers = itertools.count()

        async def append() -> None:
            for _ in range(_ADDED):
                added = message("user", [f"{next(numbers)} {_TEXT}"])
                await provider.save_messages("talk", [added])

        async def last() -> list[Any]:
            return list((await opened().get_messages("talk"))[-_LAST:])

        return Talk(partial(_ready, lambda: self.run(append())), lambda: self.run(last()), fork)


async def _flush(service: Any) -> None:  # noqa: ANN401 - a peer's, or palaver's for it
    """End the turn in which the session was filled."""
    with suppress(AttributeError):
        await service.flush()
