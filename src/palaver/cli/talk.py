"""A talk: lines in, answers out, one after the other; Ctrl-C stops the answer and not the talk.

Reading a line blocks, so it happens in a thread; the loop is free for answers, for tools and for
signals. What is said goes through a `Conversation`, so all of it is kept as it happens.
"""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import click
from anyio import to_thread

from palaver.cli.manners import Refused, printable, styled
from palaver.cli.slash import COMMANDS, Leave
from palaver.conversation import Conversation, Prices, run_until_answer
from palaver.errors import PalaverError
from palaver.messages import system as system_message
from palaver.messages import user
from palaver.wire.deltas import ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from collections.abc import Generator

    from palaver.conversation.models.base import Model
    from palaver.events import Event
    from palaver.stores import Store
    from palaver.stores.history import StoredHistory
    from palaver.wire.deltas import Delta

__all__ = ["Talk", "note"]

_PROMPT: Final = "> "
_SHORT: Final = 200
_FULL: Final = 0.8
"""The share of a model's window at which a person is told that it fills up."""


class Talk:
    """One person and one model."""

    def __init__(
        self,
        store: Store,
        history: StoredHistory | None,
        model: Model,
        tools: list[Any],
        *,
        system: str | None = None,
    ) -> None:
        """Go on with a history, or begin one with the first words."""
        self.store = store
        self.model = model
        self._tools = tools
        self._system = system
        self._conversation = None if history is None else self._made(history)
        self._answer: anyio.CancelScope | None = None
        self._failed = False
        self._inside_line = False
        self.interactive = sys.stdin.isatty()

    @property
    def conversation(self) -> Conversation:
        """The conversation; a new one begins when it is first needed."""
        if self._conversation is None:
            self._conversation = self._made(self.store.create())
            if self._system:
                self._conversation.add(system_message(self._system))
        return self._conversation

    def go_on_with(self, history: StoredHistory) -> None:
        """Talk in another conversation from here on."""
        self._conversation = self._made(history)

    def _made(self, history: StoredHistory) -> Conversation:
        window = self.model.window
        made = Conversation(
            self.store,
            history,
            model=self.model,
            tools=self._tools,
            token_limit=None if window is None else int(window * _FULL),
            prices=None if self.model.ref.provider_id == "local" else Prices(),
        )
        made.events.on("*", self._heard)
        return made

    # ── the loop ────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> bool:
        """Talk until there are no more lines; tell whether anything went wrong."""
        async with anyio.create_task_group() as group:
            if sys.platform != "win32":
                await group.start(self._watch_for_interrupts)
            if self._conversation is not None:
                for item in await self._conversation.recover():
                    note(f"{item.tool or item.kind}: {item.detail}")
            while (line := await self._line()) is not None:
                try:
                    await self._take(line.strip())
                except Leave:
                    break
            group.cancel_scope.cancel()
        if self._conversation is not None:
            size = len(self._conversation)
            note(f"{self._conversation.id}: {size:,} message{'' if size == 1 else 's'}")
        return self._failed

    async def _line(self) -> str | None:
        """The next line; None at the end."""
        if self.interactive:
            return await to_thread.run_sync(_prompted)
        return await to_thread.run_sync(sys.stdin.readline) or None

    async def _take(self, line: str) -> None:
        if not line:
            return
        try:
            if line.startswith("/") and not line.startswith("//"):
                await self._obey(line[1:])
            else:
                await self.ask(line.removeprefix("/"))
        except PalaverError as error:
            self._fail(str(error))
        except click.ClickException as error:
            self._fail(error.format_message())

    async def _obey(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        command = COMMANDS.get(name)
        if command is None:
            msg = f"there is no command /{name}; /help lists them"
            raise Refused(msg)
        with self._until_called_off():
            await command.run(self, rest.strip())

    async def ask(self, words: str) -> None:
        """Say something, and let the model answer; Ctrl-C calls it off."""
        self.conversation.add(user(words))
        with self._until_called_off():
            try:
                await run_until_answer(self.conversation, on_delta=self._show)
            finally:
                self._end_line()

    @contextmanager
    def _until_called_off(self) -> Generator[None]:
        """A block that Ctrl-C ends; of two inside one another, the inner one."""
        with anyio.CancelScope() as scope:
            outer, self._answer = self._answer, scope
            try:
                yield
            finally:
                self._answer = outer
        if scope.cancelled_caught:
            note("called off; what had arrived is kept")

    async def _watch_for_interrupts(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                if self._answer is not None:
                    self._answer.cancel()
                else:
                    note("Ctrl-D leaves")

    # ── what is shown ───────────────────────────────────────────────────────────────────────────

    def _show(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            click.echo(_lines(delta.text), nl=False)
            sys.stdout.flush()
            self._inside_line = not delta.text.endswith("\n")
        elif isinstance(delta, ReasoningDelta) and sys.stdout.isatty():
            click.echo(click.style(_lines(delta.text), dim=True), nl=False, err=True)
            self._inside_line = True

    def _end_line(self) -> None:
        if self._inside_line:
            click.echo()
            self._inside_line = False

    def _heard(self, event: Event) -> None:
        data = event.data
        if event.name == "tokens.exceeded":
            note(f"{data['tokens']:,} tokens, the limit is {data['limit']:,}: /compact makes room")
        elif event.name.startswith("tool."):
            self._end_line()
            state: dict[str, Any] = data.get("state") or {}
            said = data.get("title") or state.get("output") or state.get("error") or ""
            words = " ".join(str(said).split())[:_SHORT]
            status = event.name.removeprefix("tool.")
            note(f"[{data['tool']}] {status}{': ' if words else ''}{words}")

    def _fail(self, words: str) -> None:
        self._failed = True
        note(words)


def note(words: str) -> None:
    """Say something that is no answer."""
    click.echo(styled(words, dim=True), err=True)


def _prompted() -> str | None:
    try:
        return input(_PROMPT)
    except EOFError:
        click.echo()
        return None


def _lines(text: str) -> str:
    """Text that steers no terminal, with its line breaks and tabs."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
