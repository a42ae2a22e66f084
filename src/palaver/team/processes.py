"""Programs: running one with a prompt, its environment, and orphans of a killed process.

A program leads a process group of its own, so that what it starts ends with it: when its time is
up, when it is cancelled, and when it has ended but a child still holds its output open. There is
never a shell: arguments are a list. A program gets selected variables of the environment only,
since it reads what others in the conversation write, and what it doesn't have it can't give away.
"""

from __future__ import annotations

import codecs
import os
import re
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import anyio
from msgspec import Struct

from palaver.errors import ArgumentTooLong, MemberFailed
from palaver.messages import assistant
from palaver.messages.redaction import redact
from palaver.stores.holders import process_mark

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
    from pathlib import Path

    from anyio.abc import ByteReceiveStream, Process

    from palaver.context import AssemblerOutput
    from palaver.messages import Message
    from palaver.team.config import CommandMember

__all__ = [
    "BASIC_VARIABLES",
    "LONGEST_ARGUMENT",
    "PROXY_VARIABLES",
    "EchoFilter",
    "ProcessResult",
    "kill_orphan",
    "plain_text",
    "run_command_member",
    "run_program",
    "select_environment",
    "strip_echo",
]


GRACE: Final = 2.0
"""How long a program may take to end after SIGTERM, in seconds."""
_LINGER: Final = 0.5
"""How long output may still come after the program has ended, in seconds."""
_MAX_ERRORS: Final = 16 * 1024
LONGEST_ARGUMENT: Final = 128 * 1024 - 1
"""The longest argument that Linux takes, in bytes, without its terminating zero."""
_MAX_ERROR_TEXT: Final = 4_096


class ProcessResult(Struct, frozen=True):
    """The exit status and the output of a program; `left_out` counts bytes over the limit."""

    status: int
    output: str
    errors: str
    left_out: int = 0


class _Sink:
    """Reads a stream: its first bytes with `on_text`, else its last, and counts the rest."""

    def __init__(self, limit: int, on_text: Callable[[str], object] | None = None) -> None:
        self.data = bytearray()
        self.left_out = 0
        self._limit = limit
        self._on_text = on_text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def drain(self, stream: ByteReceiveStream | None) -> None:
        """Read a stream to its end."""
        if stream is None:  # pragma: no cover - it was asked for
            return
        async for chunk in stream:
            if self._on_text is None:  # of errors the end matters
                self.data += chunk
                self.left_out += max(0, len(self.data) - self._limit)
                del self.data[: -self._limit]
                continue
            taken = chunk[: self._limit - len(self.data)]
            self.data += taken
            self.left_out += len(chunk) - len(taken)
            text = self._decoder.decode(taken)
            if text:
                self._on_text(text)

    @property
    def text(self) -> str:
        return plain_text(self.data.decode(errors="replace"))


async def run_program(
    argv: Sequence[str],
    prompt: str,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    max_output: int,
    on_text: Callable[[str], object] = lambda _: None,
    on_start: Callable[[int], Awaitable[None]] | None = None,
) -> ProcessResult:
    """Run a program with a prompt on standard input; `on_text` gets its output as it comes.

    Without `env` it gets the basic variables of this process's environment. `on_start` gets the
    process id before the program gets its prompt. Raises `OSError` if the program can't be
    started. When this is cancelled, the program and all that it started are ended first.
    """
    process = await anyio.open_process(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=select_environment() if env is None else env,
        start_new_session=True,
    )
    output, errors = _Sink(max_output, on_text), _Sink(_MAX_ERRORS)
    try:
        if on_start is not None:
            await on_start(process.pid)
        async with anyio.create_task_group() as group:
            closed = anyio.Event()
            group.start_soon(_feed, process, prompt.encode())
            group.start_soon(_drain_both, process, output, errors, closed)
            await process.wait()
            with anyio.move_on_after(_LINGER):
                await closed.wait()
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    return ProcessResult(process.returncode or 0, output.text, errors.text, output.left_out)


async def _feed(process: Process, data: bytes) -> None:
    """Write the prompt; the program may close its input before it has read everything."""
    if process.stdin is None:  # pragma: no cover - it was asked for
        return
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await process.stdin.send(data)
    with suppress(OSError):
        await process.stdin.aclose()


async def _drain_both(process: Process, output: _Sink, errors: _Sink, closed: anyio.Event) -> None:
    """Read both streams to their ends."""
    async with anyio.create_task_group() as group:
        group.start_soon(output.drain, process.stdout)
        group.start_soon(errors.drain, process.stderr)
    closed.set()


async def _end(process: Process) -> None:
    """End the process group: with SIGTERM first, then with SIGKILL."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with anyio.move_on_after(GRACE):
            await process.wait()
    _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    await process.wait()
    await process.aclose()


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:  # pragma: no cover - Windows
            process.send_signal(number)


# ── the environment ─────────────────────────────────────────────────────────────────────────────

BASIC_VARIABLES: Final = (
    # a program finds its login and its settings by HOME
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TMP", "TEMP",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR",
    # language and terminal
    "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR", "COLUMNS", "LINES",
    # trusted certificates
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    # needed on Windows
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA",
    "PROGRAMDATA", "PROGRAMFILES", "USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH",
)  # fmt: skip
"""The variables that every program gets; `*` at the end stands for anything."""

PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
"""Passed on too, in upper or lower case, unless they contain a user and password."""


def select_environment(
    names: Iterable[str] = (), environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Select the basic variables of an environment, and those that are named.

    `environ` defaults to the environment of this process.

    >>> around = {"PATH": "/bin", "LC_ALL": "C", "OPENAI_API_KEY": "sk-1", "AWS_REGION": "eu"}
    >>> select_environment((), around)
    {'PATH': '/bin', 'LC_ALL': 'C'}
    >>> select_environment(["OPENAI_API_KEY", "AWS_*"], around) == around
    True
    """
    # a value that begins with () is an exported shell function
    given = os.environ if environ is None else environ
    named = tuple(names)
    return {
        name: value
        for name, value in given.items()
        if _matches(name, named)
        or (_matches(name, BASIC_VARIABLES) and not value.startswith("()"))
        or (name.upper() in PROXY_VARIABLES and "@" not in value)
    }


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


# ── orphans ─────────────────────────────────────────────────────────────────────────────────────


def kill_orphan(mark: str) -> bool:
    """Kill a program's group if it is still the program of this mark; tell whether it was.

    A turn whose process was killed is taken again only after its program is gone, so that two
    programs never work on the same turn.
    """
    pid = int(mark.split("/")[1])
    if process_mark(pid) != mark:
        return False
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    return True


_ESCAPE_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_])"
)
_LONG_PROMPT: Final = 80
"""A prompt of at least this length, on lines of its own, is an echo wherever it stands."""


def plain_text(text: str) -> str:
    r"""Convert line ends to line feeds, and remove escape sequences of terminals.

    >>> plain_text("\x1b[1mHello\x1b[0m\r\nMax\0")
    'Hello\nMax\ufffd'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text:
        text = _ESCAPE_SEQUENCE.sub("", text)
    return text.replace("\0", "\ufffd")


def strip_echo(output: str, prompt: str) -> str:
    r"""Remove the prompt from an output; a short prompt only at the beginning.

    >>> strip_echo("Tea?\nYes.", "Tea?")
    'Yes.'
    >>> strip_echo("You said:\nTea?", "Tea?")
    'You said:\nTea?'
    """
    echo = plain_text(prompt).strip()
    text = output.strip()
    if not echo:
        return text
    start = 0 if text.startswith(echo) else text.find(f"\n{echo}") + 1
    if start == 0 and not text.startswith(echo):
        return text
    if start and len(echo) < _LONG_PROMPT:
        return text
    end = start + len(echo)
    if text[end : end + 1] not in {"", "\n"}:
        return text
    return (text[:start].rstrip() + "\n" + text[end:].lstrip("\n")).strip()


class EchoFilter:
    r"""Passes on a program's output as it comes, without an echo at the beginning.

    >>> heard = []
    >>> write = EchoFilter("Tea?", heard.append)
    >>> for piece in ("Te", "a?\n", "Y", "es."):
    ...     write(piece)
    >>> heard
    ['Y', 'es.']
    """

    def __init__(self, prompt: str, on_text: Callable[[str], object]) -> None:
        """Expect an echo of `prompt`, and pass on the rest to `on_text`."""
        self._echo = plain_text(prompt).strip()
        self._on_text = on_text
        self._pending: str | None = ""

    def __call__(self, text: str) -> None:
        """Take the next piece; it is held back as long as it may be the echo."""
        if self._pending is None:
            self._on_text(plain_text(text))
            return
        self._pending += plain_text(text)
        said = self._pending.lstrip()
        if self._echo.startswith(said.rstrip()):
            return
        rest = said.removeprefix(self._echo)
        self._pending = None
        if rest.strip():
            self._on_text(rest.lstrip("\n") if rest is not said else said)


# ── members ─────────────────────────────────────────────────────────────────────────────────────


async def run_command_member(
    member: CommandMember,
    prompt: AssemblerOutput,
    folder: Path,
    on_text: Callable[[str], object],
    on_start: Callable[[int], Awaitable[None]] | None = None,
) -> Message:
    """Run a program and return its output as a message; `on_text` gets the text as it comes."""
    with _arguments(member, prompt.system_flag) as argv:
        try:
            result = await run_program(
                argv,
                prompt.prompt,
                cwd=str(folder / (member.cwd or "")),
                env=_environment(member),
                max_output=member.max_output,
                on_text=EchoFilter(prompt.prompt, on_text),
                on_start=on_start,
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            msg = f"{argv[0]} can't be started: {why}"
            raise MemberFailed(msg) from None
    if result.status:
        raise MemberFailed(_describe_failure(_describe_status(result.status), result))
    text = strip_echo(result.output, prompt.prompt)
    if not text:
        raise MemberFailed(_describe_failure("it said nothing", result))
    facts: dict[str, Any] = {"leftOut": result.left_out} if result.left_out else {}
    return assistant(text, metadata={"team": facts} if facts else {})


def _environment(member: CommandMember) -> dict[str, str]:
    """The program's environment: nothing of palaver's own that was not selected."""
    if not member.inherit_env:
        return dict(member.env)
    return {**select_environment((*member.known.variables, *member.pass_env)), **member.env}


@contextmanager
def _arguments(member: CommandMember, system_text: str | None) -> Generator[list[str]]:
    """The arguments, with the system text in the form that the program takes."""
    known = member.known
    argv = list(known.argv)
    if not system_text:
        yield argv
        return
    size = len(system_text.encode())
    if known.system_flag and size <= LONGEST_ARGUMENT:
        yield [*argv, known.system_flag, system_text]
        return
    if not known.system_file_flag:
        msg = (
            f"the system text has {size:,} bytes, an argument holds {LONGEST_ARGUMENT:,}, "
            f"and {argv[0]} takes it from no file"
        )
        raise ArgumentTooLong(msg)
    with tempfile.NamedTemporaryFile("wb", prefix="palaver-", suffix=".txt") as file:
        file.write(system_text.encode())
        file.flush()
        yield [*argv, known.system_file_flag, file.name]


def _describe_status(status: int) -> str:
    if status > 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


def _describe_failure(what: str, result: ProcessResult) -> str:
    """What happened, and the end of the program's errors, or else of its output."""
    # redact before cutting: half a secret has no recognizable form
    said = redact(result.errors.strip() or result.output.strip())[-_MAX_ERROR_TEXT:]
    return f"{what}\n{said}" if said else what
