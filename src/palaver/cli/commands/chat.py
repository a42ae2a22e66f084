"""`palaver chat`: a conversation with a model, in a terminal or line by line through a pipe."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import click
import msgspec
from anyio import to_thread

from palaver.cli.app import REFUSED, Refused, print_line, printable, styled
from palaver.cli.options import (
    complete_conversation,
    find_conversation,
    import_tools,
    read_message_ref,
    store_option,
    use_store,
)
from palaver.cli.output import format_message, print_change
from palaver.conversation import (
    ClearOutputs,
    Conversation,
    DropOldest,
    Prices,
    Summarise,
    compact,
    run_until_answer,
)
from palaver.errors import PalaverError, ValidationError
from palaver.messages import Message, user
from palaver.messages import system as system_message
from palaver.models import catalog
from palaver.models import model as named_model
from palaver.tools.approval import Decision, account_name, check_decision, needs_approval
from palaver.wire.reply import ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping

    from palaver.conversation.compaction import Strategy
    from palaver.events import Event
    from palaver.messages import ToolCallPart
    from palaver.models.base import Model
    from palaver.stores import Store, StoredHistory
    from palaver.tools import Tool
    from palaver.wire.reply import Delta

__all__ = ["Undecided", "ask_about_call", "chat", "nobody_text", "waiting_text"]


_DEFAULT = "smollm2"


@click.command(short_help="Chat with a model.")
@click.option(
    "--model",
    "name",
    envvar="PALAVER_MODEL",
    metavar="NAME",
    help="The model, such as anthropic:claude-… or local:/path/file.gguf.  [local:smollm2]",
)
@click.option("--base-url", metavar="URL", help="The address of a server that speaks its protocol.")
@click.option(
    "--tools",
    multiple=True,
    metavar="MODULE:ATTR",
    help="Functions, tools or an MCP server, from a Python module; can be repeated.",
)
@click.option("--system", metavar="TEXT", help="The system message of a new conversation.")
@click.option(
    "--conversation",
    metavar="ID",
    shell_complete=complete_conversation,
    help="Continue this conversation.  [a new one]",
)
@store_option
@click.pass_context
def chat(
    context: click.Context,
    /,
    *,
    name: str | None,
    base_url: str | None,
    tools: tuple[str, ...],
    system: str | None,
    conversation: str | None,
    address: str | None,
) -> None:
    """Chat with a model. Each line is a question; a line that begins with / is a command, and
    /help lists them.

    You are asked about each call that needs an approval; one that you leave undecided waits, and
    is asked about again. Ctrl-C cancels an answer and stores what had arrived, Ctrl-D quits.
    Everything is stored.
    Answers go to standard output, all else to standard error.
    """  # noqa: D205 - the help text of the command
    model = _load_model(name, base_url)
    given = [import_tools(place) for place in tools]
    with use_store(address, create=True) as store:
        failed = anyio.run(_run_session, store, conversation, model, given, system)
    context.exit(REFUSED if failed else 0)


async def _run_session(
    store: Store, name: str | None, model: Model, given: list[object], system: str | None
) -> bool:
    from palaver.tools.runner import open_tools  # noqa: PLC0415 - loads the MCP client

    history = None if name is None else find_conversation(store, name)
    try:
        async with open_tools(given) as tools:
            return await ChatSession(store, history, model, tools, system=system).run()
    finally:
        await model.close()


def _load_model(name: str | None, base_url: str | None) -> Model:
    if name is None:
        if _DEFAULT not in catalog.installed():
            msg = (
                f"there is no model yet: palaver model install {_DEFAULT} fetches a small one, "
                "--model names another"
            )
            raise Refused(msg)
        name = f"local:{_DEFAULT}"
    return named_model(name, **({} if base_url is None else {"base_url": base_url}))


_PROMPT: Final = "> "
_SHORT: Final = 200
_LEASE_WAIT: Final = 10.0
"""Seconds to wait for the lease of a chat that was killed; longer than such a lease lasts."""
_FULL: Final = 0.8
"""The share of a model's window at which the user is told that it fills up."""


class ChatSession:
    """A chat of one user with one model: lines in, answers out.

    Reading a line blocks, so it happens in a thread; the loop is free for answers, tools and
    signals. Ctrl-C stops the answer and not the chat.
    """

    def __init__(
        self,
        store: Store,
        history: StoredHistory | None,
        model: Model,
        tools: list[Any],
        *,
        system: str | None = None,
    ) -> None:
        """Continue a history, or create one with the first message."""
        self.store = store
        self.model = model
        self._tools = tools
        self._system = system
        self._conversation = None if history is None else self._open(history)
        self._answer: anyio.CancelScope | None = None
        self._failed = False
        self._inside_line = False
        self.interactive = sys.stdin.isatty()

    @property
    def conversation(self) -> Conversation:
        """The conversation; a new one is created when it is first needed."""
        if self._conversation is None:
            self._conversation = self._open(self.store.create())
            if self._system:
                self._conversation.add(system_message(self._system))
        return self._conversation

    def switch_to(self, history: StoredHistory) -> None:
        """Continue in another conversation."""
        self._conversation = self._open(history)

    def _open(self, history: StoredHistory) -> Conversation:
        window = self.model.window
        made = Conversation(
            self.store,
            history,
            model=self.model,
            tools=self._tools,
            token_limit=None if window is None else int(window * _FULL),
            prices=None if self.model.ref.provider_id == "local" else Prices(),
        )
        made.events.on("*", self._print_event)
        return made

    # ── the loop ────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> bool:
        """Run until there are no more lines; tell whether anything failed."""
        async with anyio.create_task_group() as group:
            if sys.platform != "win32":
                await group.start(self._watch_for_interrupts)
            if self._conversation is not None:
                for item in await self._conversation.recover(wait=_LEASE_WAIT):
                    print_note(f"{item.tool or item.kind}: {item.detail}")
                if self.interactive and await self._waiting():
                    await self._guard(self._continue)
            while (line := await self._read_line()) is not None:
                try:
                    await self._handle(line.strip())
                except Quit:
                    break
            group.cancel_scope.cancel()
        if self._conversation is not None:
            size = len(self._conversation)
            print_note(f"{self._conversation.id}: {size:,} message{'' if size == 1 else 's'}")
        return self._failed

    async def _read_line(self) -> str | None:
        """The next line; None at the end."""
        if self.interactive:
            return await to_thread.run_sync(_prompt)
        return await to_thread.run_sync(sys.stdin.readline) or None

    async def _handle(self, line: str) -> None:
        if line.startswith("/") and not line.startswith("//"):
            await self._guard(partial(self._run_command, line[1:]))
        elif line:
            await self._guard(partial(self.ask, line.removeprefix("/")))

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something; what goes wrong is printed, and the chat goes on."""
        try:
            await work()
        except PalaverError as error:
            self._fail(str(error))
        except click.ClickException as error:
            self._fail(error.format_message())

    async def _run_command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        command = SLASH_COMMANDS.get(name)
        if command is None:
            msg = f"there is no command /{name}; /help lists them"
            raise Refused(msg)
        with self._cancellable():
            await command.run(self, rest.strip())

    async def ask(self, text: str) -> None:
        """Add a message and let the model answer; Ctrl-C cancels the answer."""
        self.conversation.add(user(text))
        await self._continue()

    async def _continue(self) -> None:
        """Run the calls that wait and ask the model; a person decides about calls that need it."""
        approve = self._approve if self.interactive else None
        with self._cancellable():
            try:
                step = await run_until_answer(
                    self.conversation, approve=approve, on_delta=self._show
                )
                self._end_line()
                finish = getattr(step.message.info, "finish", None)
                if finish == "length":
                    print_note("cut off: the model reached the most tokens that it may write")
                elif not (step.text or step.calls):
                    print_note(f"the model answered nothing (finish: {finish or 'unknown'})")
            except Undecided:
                pass
            finally:
                self._end_line()
        waiting = await self._waiting()
        if not waiting:
            return
        if self.interactive:
            print_note(f"{waiting_text(waiting)}: you are asked again before the next answer")
        else:
            self._fail(nobody_text(waiting, f"palaver chat --conversation {self.conversation.id}"))

    async def _approve(self, call: ToolCallPart) -> Decision:
        self._end_line()
        return await ask_about_call(call, self.conversation.tools)

    async def _waiting(self) -> list[ToolCallPart]:
        """The calls that wait for a person."""
        conversation = self.conversation
        waiting = await to_thread.run_sync(conversation.waiting)
        return [call for call in waiting if needs_approval(conversation.tools, call)]

    @contextmanager
    def _cancellable(self) -> Generator[None]:
        """A block that Ctrl-C cancels; of two nested ones, the inner one."""
        with anyio.CancelScope() as scope:
            outer, self._answer = self._answer, scope
            try:
                yield
            finally:
                self._answer = outer
        if scope.cancelled_caught:
            print_note("cancelled; what had arrived is stored")

    async def _watch_for_interrupts(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                if self._answer is not None:
                    self._answer.cancel()
                else:
                    print_note("Ctrl-D leaves")

    # ── output ──────────────────────────────────────────────────────────────────────────────────

    def _show(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            click.echo(_escape(delta.text), nl=False)
            sys.stdout.flush()
            self._inside_line = not delta.text.endswith("\n")
        elif isinstance(delta, ReasoningDelta) and sys.stdout.isatty():
            click.echo(click.style(_escape(delta.text), dim=True), nl=False, err=True)
            self._inside_line = True

    def _end_line(self) -> None:
        if self._inside_line:
            click.echo()
            self._inside_line = False

    def _print_event(self, event: Event) -> None:
        data = event.data
        if event.name == "tokens.exceeded":
            print_note(
                f"{data['tokens']:,} tokens, the limit is {data['limit']:,}: /compact makes room"
            )
        elif event.name.startswith("tool."):
            self._end_line()
            state: dict[str, Any] = data.get("state") or {}
            said = data.get("title") or state.get("output") or state.get("error") or ""
            words = " ".join(str(said).split())[:_SHORT]
            status = event.name.removeprefix("tool.")
            print_note(f"[{data['tool']}] {status}{': ' if words else ''}{words}")

    def _fail(self, words: str) -> None:
        self._failed = True
        print_note(words)


def print_note(words: str) -> None:
    """Print something that is no answer, on standard error."""
    click.echo(styled(words, dim=True), err=True)


def waiting_text(calls: Iterable[ToolCallPart]) -> str:
    """Say which calls wait."""
    return f"{', '.join(call.tool for call in calls)} waits for an approval"


def nobody_text(calls: Iterable[ToolCallPart], command: str) -> str:
    """Say which calls wait where no person can be asked, and what to do."""
    where = f"run {command} in a terminal, or decide on the page"
    return f"{waiting_text(calls)}, and nobody can be asked here: {where}"


class Undecided(Exception):  # noqa: N818 - no error
    """A person left a question about a call: the call waits."""


async def ask_about_call(
    call: ToolCallPart,
    tools: Mapping[str, Tool],
    read: Callable[[str], Awaitable[str]] | None = None,
) -> Decision:
    """Ask at the terminal whether a call may run; raise `Undecided` at the end of the input.

    `read` prints a prompt and returns a line. It may be cancelled: nothing that is typed later is
    lost.
    """
    read = read_answer if read is None else read
    arguments = msgspec.json.encode(call.input).decode() if call.input else call.raw or "{}"
    print_note(f"[{call.tool}] asks to run with {arguments}")
    while True:
        answer = (await read("yes, no, or change the arguments? [y/n/c] ")).lower()
        if answer in ("y", "yes"):
            return Decision("approve", by=account_name())
        if answer in ("n", "no"):
            return Decision("deny", await read("why not? "), by=account_name())
        if answer in ("c", "change"):
            text = await read("arguments, as JSON: ")
            try:
                made = Decision("edit", arguments=_read_object(text), by=account_name())
                check_decision(tools, call, made)
            except ValidationError as error:
                print_note(str(error))
            else:
                return made


def _read_object(text: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        detail = f"must be a JSON object, such as {{}}: {error}"
        raise ValidationError(detail, path="$.arguments", rule="tool-arguments") from None
    return found


async def read_answer(prompt: str) -> str:
    """A line of the terminal; raise `Undecided` at its end."""
    click.echo(prompt, nl=False, err=True)
    if sys.platform != "win32":
        await anyio.wait_readable(sys.stdin)  # this can be cancelled, and a thread that reads can't
    line: str = await to_thread.run_sync(sys.stdin.readline)
    if not line:
        click.echo(err=True)
        raise Undecided
    return line.strip()


def _prompt() -> str | None:
    try:
        return input(_PROMPT)
    except EOFError:
        click.echo()
        return None


def _escape(text: str) -> str:
    """Escape a text for a terminal, except for line breaks and tabs."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


_KEEP: Final = 1_000
"""How many of the newest tokens `/compact` leaves as they are."""


class Quit(Exception):  # noqa: N818 - no error
    """The user leaves the chat."""


class SlashCommand(NamedTuple):
    """A command inside a chat, such as `/undo`: a function, its usage and its help."""

    run: Callable[[ChatSession, str], Awaitable[None]]
    usage: str
    about: str


async def _help(session: ChatSession, words: str) -> None:
    del session, words
    for name, command in SLASH_COMMANDS.items():
        usage = f"/{name} {command.usage}".strip()
        print_line(f"{styled(f'{usage:22}', bold=True)}{styled(command.about)}")
    print_line(styled("//words               say something that begins with /", dim=True))


async def _undo(session: ChatSession, words: str) -> None:
    for _ in range(_number(words, 1)):
        session.conversation.history.undo()
    _print_position(session)


async def _redo(session: ChatSession, words: str) -> None:
    for _ in range(_number(words, 1)):
        session.conversation.history.redo()
    _print_position(session)


async def _rollback(session: ChatSession, words: str) -> None:
    session.conversation.history.rollback(_number(words, None))
    _print_position(session)


async def _edit(session: ChatSession, words: str) -> None:
    first, _, rest = words.partition(" ")
    history = session.conversation.history
    if first.isdecimal() and rest.strip():
        index, text = int(first), rest.strip()
    else:
        asked = [place for place, message in enumerate(history.view) if message.role == "user"]
        if not (asked and words):
            msg = "there is nothing to edit; it is written /edit [N] TEXT"
            raise Refused(msg)
        index, text = asked[-1], words
    if index >= len(history):
        msg = f"there is no message {index}: there are {len(history):,}, the first is 0"
        raise Refused(msg)
    role = history.view[index].role
    if role != "user":
        history.replace(index, Message(role, text))
        _print_position(session)
        return
    history.truncate(keep_first=index)
    await session.ask(text)


async def _tokens(session: ChatSession, words: str) -> None:
    del words
    conversation = session.conversation
    usage, window = conversation.usage, session.model.window
    last, total = usage.last, usage.total
    rows = {
        "now": f"{conversation.tokens():,}" + (f" of {window:,}" if window else ""),
        "last question": f"{last.prompt:,} in, {last.completion:,} out" if last else "unknown",
        "all questions": f"{total.prompt:,} in, {total.completion:,} out, {usage.calls:,} calls",
        "cost": "unknown" if usage.cost is None else f"${usage.cost:.4f}",
    }
    for name, value in rows.items():
        print_line(f"{styled(f'{name:15}', bold=True)}{styled(value)}")


async def _context(session: ChatSession, words: str) -> None:
    del words
    conversation = session.conversation
    for index, message in enumerate(conversation.messages):
        count = f"{conversation.tally.weigh(message):>7,}  "
        print_line(format_message(message, timed=False, before=f"{index:>5}{count}"))
    for repair in conversation.request(session.model).notes:
        print_line(styled(str(repair), fg="yellow"))


async def _compact(session: ChatSession, words: str) -> None:
    strategies: dict[str, Strategy] = {
        "summarise": Summarise(model=session.model, keep_tokens=_KEEP),
        "drop": DropOldest(keep_tokens=_KEEP),
        "clear": ClearOutputs(protect_tokens=_KEEP, least_gain=1),
    }
    strategy = strategies.get(words or "summarise")
    if strategy is None:
        msg = f"there is no way {words!r} to make room; there are: {', '.join(strategies)}"
        raise Refused(msg)
    done = await compact(session.conversation, strategy)
    if done is None:
        print_line("there is nothing to gain")
    else:
        print_line(
            f"{done.detail}: {done.before:,} tokens are now {done.after:,}; /undo brings them back"
        )


async def _fork(session: ChatSession, words: str) -> None:
    at = _number(words, None) if words else None
    session.switch_to(session.conversation.history.fork(at=at))
    _print_position(session)


async def _mark(session: ChatSession, words: str) -> None:
    name, _, place = words.partition(" ")
    history = session.conversation.history
    if not (name and len(history)):
        msg = "there is nothing to mark; it is written /mark NAME [N]"
        raise Refused(msg)
    history.mark(read_message_ref(place.strip()) if place.strip() else len(history) - 1, name)
    _print_position(session)


async def _quit(session: ChatSession, words: str) -> None:
    del session, words
    raise Quit


def _number(words: str, default: int | None) -> int:
    if not words and default is not None:
        return default
    if not words.isdecimal():
        msg = f"a number is wanted here, not {words!r}"
        raise Refused(msg)
    return int(words)


def _print_position(session: ChatSession) -> None:
    print_change(session.conversation.history, None, as_json=False)


SLASH_COMMANDS: Final = {
    "undo": SlashCommand(_undo, "[N]", "reverse the last change, or the last N"),
    "redo": SlashCommand(_redo, "[N]", "bring back what was undone"),
    "rollback": SlashCommand(_rollback, "BATCH", "go back to a batch as it ended"),
    "edit": SlashCommand(
        _edit, "[N] TEXT", "change message N, or your last; a question is asked again"
    ),
    "tokens": SlashCommand(_tokens, "", "how much there is, and what was used"),
    "context": SlashCommand(_context, "", "what the model is sent, with tokens"),
    "compact": SlashCommand(_compact, "[HOW]", "make room: summarise, drop or clear"),
    "fork": SlashCommand(_fork, "[VERSION]", "go another way from here, or from a version"),
    "mark": SlashCommand(_mark, "NAME [N]", "put a mark on message N, or on the last"),
    "help": SlashCommand(_help, "", "this list"),
    "quit": SlashCommand(_quit, "", "leave, as Ctrl-D does"),
}
"""Each command by its name, in the order of /help."""
