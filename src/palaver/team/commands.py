"""A program as a member: called with its prompt, and its words made a message.

Whatever goes wrong is `MemberFailed`, with the exit status and what the program said about it.
"""

from __future__ import annotations

import signal
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ArgumentTooLong, MemberFailed
from palaver.messages import Message, assistant
from palaver.messages.redaction import redact
from palaver.team.echo import Unechoed, without_echo
from palaver.team.environment import chosen_environment
from palaver.team.processes import run_program

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from pathlib import Path

    from palaver.context import AssemblerOutput
    from palaver.team.processes import Ran
    from palaver.team.roster import Command

__all__ = ["LONGEST_ARGUMENT", "answer_of_command"]

LONGEST_ARGUMENT: Final = 128 * 1024 - 1
"""How many bytes an argument may have on Linux, its end not counted."""
_SAID: Final = 4_096


async def answer_of_command(
    member: Command,
    prompt: AssemblerOutput,
    folder: Path,
    told: Callable[[str], object],
    started: Callable[[int], Awaitable[None]] | None = None,
) -> Message:
    """Run the program and make a message of its answer; `told` hears it as it comes."""
    with _arguments(member, prompt.system_flag) as argv:
        try:
            ran = await run_program(
                argv,
                prompt.prompt,
                cwd=str(folder / (member.cwd or "")),
                env=_environment(member),
                max_output=member.max_output,
                told=Unechoed(prompt.prompt, told),
                started=started,
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            msg = f"{argv[0]} can't be started: {why}"
            raise MemberFailed(msg) from None
    if ran.status:
        raise MemberFailed(_why(_ending(ran.status), ran))
    text = without_echo(ran.output, prompt.prompt)
    if not text:
        raise MemberFailed(_why("it said nothing", ran))
    facts: dict[str, Any] = {"leftOut": ran.left_out} if ran.left_out else {}
    return assistant(text, metadata={"team": facts} if facts else {})


def _environment(member: Command) -> dict[str, str]:
    """What the program gets: nothing of our own environment that was not chosen."""
    if not member.inherit_env:
        return dict(member.env)
    return {**chosen_environment((*member.known.variables, *member.pass_env)), **member.env}


@contextmanager
def _arguments(member: Command, system: str | None) -> Generator[list[str]]:
    """The arguments, with the system text where the program wants it."""
    known = member.known
    argv = list(known.argv)
    if not system:
        yield argv
        return
    size = len(system.encode())
    if known.system_flag and size <= LONGEST_ARGUMENT:
        yield [*argv, known.system_flag, system]
        return
    if not known.system_file_flag:
        msg = (
            f"the system text has {size:,} bytes, an argument holds {LONGEST_ARGUMENT:,}, "
            f"and {argv[0]} takes it from no file"
        )
        raise ArgumentTooLong(msg)
    with tempfile.NamedTemporaryFile("wb", prefix="palaver-", suffix=".txt") as file:
        file.write(system.encode())
        file.flush()
        yield [*argv, known.system_file_flag, file.name]


def _ending(status: int) -> str:
    if status > 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


def _why(what: str, ran: Ran) -> str:
    """What happened, and the last of what the program said: some complain on standard output."""
    # before it is cut: half a secret has no shape that could be told
    said = redact(ran.errors.strip() or ran.output.strip())[-_SAID:]
    return f"{what}\n{said}" if said else what
