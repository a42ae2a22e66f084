"""`palaver team`: check a team file, and run a team of humans, models and programs."""

from __future__ import annotations

import shutil
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import anyio
import click
from anyio import from_thread
from anyio.lowlevel import current_token
from msgspec.structs import replace

from palaver.cli.app import (
    INTERRUPTED,
    CommandGroup,
    Refused,
    json_option,
    print_line,
    printable,
    styled,
)
from palaver.cli.commands.chat import Undecided, ask_about_call, nobody_text, waiting_text
from palaver.cli.commands.context import print_explanation, print_prompt, prompt_json
from palaver.cli.options import (
    complete_conversation,
    find_conversation,
    import_tools,
    store_option,
    use_store,
)
from palaver.cli.output import print_json
from palaver.errors import ValidationError
from palaver.messages import ToolPart, to_dict
from palaver.team import CommandMember, Coordinator, Human, ModelMember, load_team
from palaver.tools.runner import open_tools

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from palaver.messages import Message, ToolCallPart
    from palaver.stores import Store
    from palaver.team import HumanTurn, Team
    from palaver.team.config import Member
    from palaver.tools import Tool
    from palaver.tools.approval import Decision

__all__ = ["team"]


_SHORT: Final = 200
_FILE: Final = click.Path(exists=True, dir_okay=False, readable=True)


@click.group(cls=CommandGroup, short_help="Teams of humans, models and programs.")
def team() -> None:
    """Check a team file, and run the team."""


@team.command(short_help="Check a team file.")
@click.argument("file", type=_FILE)
@json_option
def check(file: str, *, as_json: bool) -> None:
    """Check the team in FILE, YAML or JSON, and list its members."""
    loaded = _load(file)
    rows = [_row(member, Path(file).parent) for member in loaded.members]
    if as_json:
        print_json({"team": loaded.name, "members": rows})
        return
    width = max(len(row["id"]) for row in rows)
    for row in rows:
        note = styled("  (not found here)", fg="yellow") if row.get("found") is False else ""
        name, kind = styled(f"{row['id']:{width}}", bold=True), styled(f"{row['kind']:7}", dim=True)
        print_line(f"{name}  {kind}  {styled(row['what'])}{note}".rstrip())


def _row(member: Member, folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"id": member.id, "name": member.shown, "kind": "human", "what": ""}
    if isinstance(member, Human):
        return row
    if not isinstance(member, CommandMember):
        tools = f", with {', '.join(member.tools)}" if member.tools else ""
        return {**row, "kind": "model", "what": member.model + tools}
    argv = member.known.argv
    place = folder / (member.cwd or "") / argv[0] if "/" in argv[0] else argv[0]
    path = member.env.get("PATH")
    is_there = shutil.which(place, path=path) is not None
    return {**row, "kind": "command", "what": " ".join(argv), "found": is_there}


def _load(file: str) -> Team:
    try:
        return load_team(file)
    except ValidationError as error:
        msg = f"{click.format_filename(file)}: {error}"
        raise Refused(msg) from None


@team.command(short_help="Run a team; you write on standard input.")
@click.argument("file", type=_FILE)
@click.option(
    "--conversation",
    shell_complete=complete_conversation,
    help="Continue this conversation, instead of a new one.",
)
@click.option(
    "--as", "speaker", metavar="NAME", help="Which human you are.  [the one whose turn it is]"
)
@click.option(
    "--tools",
    multiple=True,
    metavar="MODULE:ATTR",
    help="Tools that members name, or an MCP server, from a Python module; can be repeated.",
)
@store_option
@json_option
def run(
    file: str,
    conversation: str | None,
    speaker: str | None,
    tools: tuple[str, ...],
    address: str | None,
    *,
    as_json: bool,
) -> None:
    """Run the team in FILE on a conversation.

    Each line of standard input is your message when it is your turn. You are asked about each tool
    call that needs an approval. Ctrl-C, or the end of the input, stops; the same command with
    --conversation continues.
    """
    loaded = _load(file)
    given = [import_tools(place) for place in tools]
    with use_store(address, create=True) as store:
        history = (
            find_conversation(store, conversation)
            if conversation
            else store.create(title=loaded.name)
        )
        session = _TeamSession(
            loaded, store, history.id, Path(file).parent, speaker, as_json=as_json
        )
        try:
            anyio.run(session.run, given)
        except KeyboardInterrupt:
            click.echo(f"\npaused; go on with --conversation {history.id}", err=True)
            click.get_current_context().exit(INTERRUPTED)


@team.command(short_help="Print what a member saw at a turn, and why.")
@click.argument("file", type=_FILE)
@click.argument("member")
@click.option(
    "--conversation",
    required=True,
    shell_complete=complete_conversation,
    help="The team's conversation.",
)
@click.option(
    "--turn",
    type=click.IntRange(min=1),
    help="A turn of the member; 1 is its first.  [what it would see now]",
)
@store_option
@json_option
def explain(
    file: str,
    member: str,
    conversation: str,
    turn: int | None,
    address: str | None,
    *,
    as_json: bool,
) -> None:
    """Print the prompt that a member of the team in FILE had at a turn, and why it was so.

    It says of each message in the member's window whether it was in the prompt, and why.
    """
    loaded = _load(file)
    members = [  # what a member sees does not depend on its tools
        replace(one, tools=[]) if isinstance(one, ModelMember) else one for one in loaded.members
    ]
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        folder = Path(file).parent
        shown = Coordinator(replace(loaded, members=members), store, history, folder=folder)
        prompt = shown.prompt(member, turn)
        explanation = prompt.explain()
    if as_json:
        print_json({**prompt_json(prompt), "explain": explanation.to_dict()})
        return
    print_prompt(prompt_json(prompt))
    print_explanation(explanation)


class _TeamSession:
    """A team with a person at a terminal, or a program at a pipe."""

    def __init__(
        self,
        loaded: Team,
        store: Store,
        conversation: str,
        folder: Path,
        speaker: str | None,
        *,
        as_json: bool,
    ) -> None:
        self._as_json = as_json
        self._speaker = speaker
        self._streaming: str | None = None
        self._line_ended = False
        self._turns = 0
        self._lines: MemoryObjectReceiveStream[str] | None = None
        self._tools: dict[str, Tool] = {}
        self._make_team = partial(
            Coordinator,
            loaded,
            store,
            conversation,
            folder=folder,
            # without a person at a terminal, the call waits
            approve=self._approve if sys.stdin.isatty() and not as_json else None,
            on_turn=self._print_turn,
            on_text=self._print_text,
            on_message=self._print_message,
        )

    async def run(self, sources: list[object]) -> None:
        """Run the team, with a line of input for each turn of the human, until the input ends."""
        async with open_tools(sources) as tools:
            team = self._make_team(tools=tools)
            for box in team.toolboxes.values():
                self._tools.update(box)
            if self._as_json:
                print_json({"event": "conversation", "id": team.id})
            else:
                click.echo(f"conversation {team.id}", err=True)
            try:
                await team.resume()
                await self._take_turns(team)
            finally:
                with anyio.CancelScope(shield=True):
                    await team.close()

    async def _take_turns(self, team: Coordinator) -> None:
        send, self._lines = anyio.create_memory_object_stream[str](1)
        reader = threading.Thread(target=_read, args=(send, current_token()), daemon=True)
        reader.start()
        with self._lines:
            heard_by = None
            while True:
                try:
                    floor = await team.run()
                except Undecided:
                    waiting = waiting_text(await team.waiting())
                    click.echo(f"{waiting}; go on with --conversation {team.id}", err=True)
                    return
                if floor.why == "approval":
                    self._refuse(team, floor)
                if floor.why == "drained" and heard_by == self._turns:
                    self._hint_at_calling(team.team)
                self._prompt(floor)
                while (line := await _line(self._lines)) is not None and not line.strip():
                    pass
                if line is None:
                    return
                heard_by = self._turns
                await team.say(line, speaker=self._speaker)

    def _hint_at_calling(self, loaded: Team) -> None:
        """Say how an agent is called, after a line that none has answered."""
        agent = next((one for one in loaded.members if not isinstance(one, Human)), None)
        if agent is not None and not self._as_json:
            hint = f'nobody was called: write "[NEXT: {agent.id}]", or set `default` in the file'
            click.echo(hint, err=True)

    async def _approve(self, call: ToolCallPart) -> Decision:
        if self._streaming is not None and not self._line_ended:
            click.echo()
        self._streaming = None
        return await ask_about_call(call, self._tools, self._read_answer)

    async def _read_answer(self, prompt: str) -> str:
        click.echo(prompt, nl=False, err=True)
        line = None if self._lines is None else await _line(self._lines)
        if line is None:
            click.echo(err=True)
            raise Undecided
        return line.strip()

    def _refuse(self, team: Coordinator, floor: HumanTurn) -> NoReturn:
        if self._as_json:
            calls = [{"id": one.id, "tool": one.tool, "input": one.input} for one in floor.calls]
            print_json({"event": "approval", "calls": calls})
        raise Refused(nobody_text(floor.calls, f"palaver team run --conversation {team.id}"))

    def _prompt(self, floor: HumanTurn) -> None:
        if self._as_json:
            print_json({"event": "floor", "human": floor.human, "why": floor.why})
        elif sys.stdin.isatty():
            click.echo(f"{floor.human}> ", nl=False)

    def _print_turn(self, member: Member) -> None:
        self._turns += 1
        if self._as_json:
            print_json({"event": "turn", "member": member.id})

    def _print_text(self, member: Member, text: str) -> None:
        if self._as_json:
            print_json({"event": "text", "member": member.id, "text": text})
            return
        if self._streaming != member.id:
            click.echo(f"{styled(member.shown, bold=True)}: ", nl=False)
            self._streaming = member.id
        click.echo("\n".join(map(printable, text.split("\n"))), nl=False)
        self._line_ended = text.endswith("\n")

    def _print_message(self, message: Message) -> None:
        streamed, self._streaming = self._streaming, None
        if self._as_json:
            print_json({"event": "message", "message": to_dict(message)})
            return
        if streamed is not None and not self._line_ended:
            click.echo()
        for part in message.parts:
            if isinstance(part, ToolPart):
                said = getattr(part.state, "output", "") or getattr(part.state, "error", "")
                words = " ".join(f"[{part.tool}] {part.state.status}: {said}".split())[:_SHORT]
                click.echo(styled(f"  {words}", dim=True))
        if message.role == "tool" or not message.text:
            return
        failed = "failed" in message.metadata.get("team", {})
        if failed or (streamed is None and message.role != "user"):
            who = message.speaker.role_name if message.speaker else "team"
            text = "\n".join(map(styled, message.text.split("\n")))
            click.echo(f"{styled(who, bold=True)}: {text}")
        for note in _notes(message):
            click.echo(styled(f"  ({note})", dim=True))


def _notes(message: Message) -> list[str]:
    """What was wrong with the names that a message called."""
    extra = message.routing.extra if message.routing else {}
    words = {
        "unknown": "nobody has the name",
        "refused": "may not call",
        "overflow": "the queue has no room for",
    }
    return [f"{words[key]} {', '.join(extra[key])}" for key in words if extra.get(key)]


def _read(send: MemoryObjectSendStream[str], token: Any) -> None:  # noqa: ANN401 - anyio's own
    """Read lines in a thread of its own, which nothing has to wait for."""
    with suppress(anyio.RunFinishedError, anyio.BrokenResourceError, ValueError):
        for line in sys.stdin:
            from_thread.run(send.send, line.rstrip("\n"), token=token)
        from_thread.run_sync(send.close, token=token)


async def _line(lines: MemoryObjectReceiveStream[str]) -> str | None:
    try:
        return await lines.receive()
    except anyio.EndOfStream:
        return None
