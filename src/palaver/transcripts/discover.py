"""Transcripts of other programs on this machine, found by name in the places where they are kept.

Discovery looks at names, sizes and dates, and opens no file. `title_of` reads the beginning of a
file, and is for one that the user has asked about. Where a program has an environment variable for
its folder, the variable counts. Folders that are links are not followed, except the first.
"""

from __future__ import annotations

import os
import re
import sys
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from palaver.errors import ValidationError
from palaver.stores.open import printable_path
from palaver.transcripts.opencode import TABLES
from palaver.transcripts.readers import detect, each_conversation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from palaver.messages import Message

__all__ = [
    "PROGRAMS",
    "Discovery",
    "FoundTranscript",
    "discover",
    "first_line",
    "format_of_transcript",
    "title_of",
    "transcript_at",
]

PROGRAMS: Final[Mapping[str, str]] = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "opencode": "opencode",
    "llm": "llm",
    "gemini-cli": "Gemini CLI",
    "copilot-cli": "Copilot CLI",
}
"""The programs that are looked for, by the names of their formats, with the names people use."""
MAX_FOUND: Final = 20_000
"""How many files of one program are listed; a folder with more is reported."""
_TITLE_BYTES: Final = 256 * 1024
"""How much of a file is read for its title."""
_TITLE_LENGTH: Final = 80
_PROJECT: Final = "# AGENTS.md instructions"
"""How Codex begins a message with what a project says about itself."""
_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_AGENT: Final = re.compile(r"([^/]+/[^/]+)/subagents/(?:.+/)?agent-[^/]+\.jsonl")
"""What an agent on the side of a session of Claude Code wrote; the session is before it."""


class FoundTranscript(NamedTuple):
    """A transcript that is there: a file, or a folder of older releases of opencode."""

    program: str
    path: Path
    name: str
    """The path below the program's folder, without its ending."""
    size: int
    modified: int
    """When it was written last, in milliseconds since 1970."""
    agents: tuple[Path, ...] = ()
    """Files of agents on the side, which belong to it."""

    @property
    def key(self) -> str:
        """A short name for the path, the same at every look."""
        return blake2b(os.fsencode(self.path), digest_size=8).hexdigest()

    @property
    def conversation(self) -> str | None:
        """The id that its conversation has, where the file is named after it; else None."""
        found = _UUID.findall(self.name)
        return found[-1] if found else None


class Discovery(NamedTuple):
    """What was found, the one that was written last at the end, and what could not be looked at."""

    transcripts: list[FoundTranscript]
    problems: list[str]


class _Place(NamedTuple):
    """A folder of a program's, and how the paths of transcripts look in it."""

    program: str
    folder: Path
    pattern: re.Pattern[str]
    depth: int


def discover(
    programs: Collection[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    platform: str = sys.platform,
) -> Discovery:
    """Find the transcripts of these programs, or of all; no file is opened.

    The home folder is `HOME` of `environ`. Raise `ValidationError` for an unknown program.

    >>> discover(["llm"], environ={"HOME": "/nowhere"}).transcripts
    []
    >>> discover(["tape"])
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.programs: 'tape' is no program ... [discover]
    """
    for name in programs:
        if name not in PROGRAMS:
            detail = f"{name!r} is no program that is looked for: {', '.join(PROGRAMS)}"
            raise ValidationError(detail, path="$.programs", rule="discover")
    known = os.environ if environ is None else environ
    found: dict[Path, FoundTranscript] = {}
    problems: list[str] = []
    for place in _places(known, platform):
        if not programs or place.program in programs:
            for transcript in _look(place, problems):
                found.setdefault(transcript.path, transcript)
    order = sorted(found.values(), key=lambda each: (each.modified, each.path))
    return Discovery(order, problems)


def transcript_at(path: Path, program: str) -> FoundTranscript:
    """Return a file that the user named, as if it had been found."""
    at = path.stat()
    return FoundTranscript(
        program, path.absolute(), printable_path(path.stem), at.st_size, at.st_mtime_ns // 1_000_000
    )


def format_of_transcript(found: FoundTranscript, path: Path) -> str:
    """Return the format of one of its files; this reads the file."""
    return detect(path) or found.program


def title_of(found: FoundTranscript) -> str | None:
    """Return the title, or the first line of a user; None where there is none at the beginning.

    This reads the beginning of the file. A database has many conversations, and no title.
    """
    if not found.path.is_file() or found.path.suffix == ".db":
        return None
    try:
        with found.path.open("rb") as stream:
            beginning = stream.read(_TITLE_BYTES)
        name = detect(beginning) or found.program
        for parsed in each_conversation(beginning, name):
            title = parsed.about.get("title") or first_line(parsed.messages)
            if title:
                return str(title)[:_TITLE_LENGTH]
    except (ValidationError, OSError):
        return None
    return None


def first_line(messages: Iterable[Message]) -> str:
    r"""Return the first line that a person wrote, without what programs put into tags.

    >>> from palaver.messages import user
    >>> first_line([user("<environment>\nLinux\n</environment>"), user("Tea?")])
    'Tea?'
    """
    for message in messages:
        text = message.text.strip() if message.role == "user" else ""
        if not (text.startswith("<") and text.endswith(">")) and not text.startswith(_PROJECT):
            lines = (line.strip() for line in text.splitlines())
            found = next((line for line in lines if line and not line.startswith("<")), "")
            if found:
                return found[:_TITLE_LENGTH]
    return ""


# ── where programs keep them ─────────────────────────────────────────────────────────────────────


def _places(environ: Mapping[str, str], platform: str) -> Iterator[_Place]:
    home = Path(environ.get("HOME") or Path.home())
    config = _folder(environ, "XDG_CONFIG_HOME", home / ".config")
    data = _folder(environ, "XDG_DATA_HOME", home / ".local" / "share")
    lines = re.compile(rf"[^/]+/[^/]+\.jsonl|{_AGENT.pattern}")
    claude = environ.get("CLAUDE_CONFIG_DIR")
    for folder in (Path(claude),) if claude else (home / ".claude", config / "claude"):
        yield _Place("claude-code", folder / "projects", lines, 6)
    codex = _folder(environ, "CODEX_HOME", home / ".codex")
    for name in ("sessions", "archived_sessions"):
        yield _Place("codex", codex / name, re.compile(r"(?:.+/)?rollout-[^/]+\.jsonl?"), 5)
    opencode = data / "opencode"
    yield _Place("opencode", opencode, re.compile(r"opencode(?:-[\w.-]+)?\.db|storage"), 1)
    named = Path(environ.get("OPENCODE_DB") or "")
    if named.name:
        own = opencode / named  # which an absolute path replaces
        yield _Place("opencode", own.parent, re.compile(re.escape(own.name)), 1)
    apps = home / "Library" / "Application Support" if platform == "darwin" else config
    llm = _folder(environ, "LLM_USER_PATH", apps / "io.datasette.llm")
    yield _Place("llm", llm, re.compile(r"logs\.db"), 1)
    gemini = _folder(environ, "GEMINI_CLI_HOME", home) / ".gemini"
    chats = re.compile(r"[^/]+/chats/(?:.+/)?[^/]+\.jsonl?")
    yield _Place("gemini-cli", gemini / "tmp", chats, 4)
    copilot = _folder(environ, "COPILOT_HOME", home / ".copilot")
    events = re.compile(r"[^/]+/events\.jsonl|[^/]+\.jsonl?")
    for name in ("session-state", "history-session-state"):
        yield _Place("copilot-cli", copilot / name, events, 2)


def _folder(environ: Mapping[str, str], variable: str, usual: Path) -> Path:
    return Path(environ.get(variable) or usual)


def _look(place: _Place, problems: list[str]) -> Iterator[FoundTranscript]:
    """Yield the transcripts of a place; the files of agents belong to their session."""
    sessions: dict[str, FoundTranscript] = {}
    agents: dict[str, list[FoundTranscript]] = {}
    count = 0
    for relative, entry in _entries(place.folder, place.depth, problems):
        if place.pattern.fullmatch(relative) is None:
            continue
        transcript = _transcript(place, relative, entry, problems)
        if transcript is None:
            continue
        count += 1
        if count > MAX_FOUND:
            detail = f"has more than {MAX_FOUND:,} files; the rest is left"
            problems.append(f"{printable_path(str(place.folder))}: {detail}")
            break
        side = _AGENT.fullmatch(relative) if place.program == "claude-code" else None
        if side is None:
            sessions[transcript.name] = transcript
        else:
            agents.setdefault(side[1], []).append(transcript)
    for name, session in sessions.items():
        mine = agents.pop(name, [])
        yield session._replace(
            size=session.size + sum(agent.size for agent in mine),
            modified=max(each.modified for each in (session, *mine)),
            agents=tuple(sorted(agent.path for agent in mine)),
        )
    for orphans in agents.values():
        yield from orphans


def _transcript(
    place: _Place, relative: str, entry: os.DirEntry[str], problems: list[str]
) -> FoundTranscript | None:
    path = Path(entry.path).absolute()
    try:
        if entry.is_file():
            at = entry.stat()
            size, modified = at.st_size, at.st_mtime_ns // 1_000_000
        elif all((path / table).is_dir() for table in TABLES):
            files = [inner.stat() for _, inner in _entries(path, 4, problems) if inner.is_file()]
            size = sum(at.st_size for at in files)
            modified = max((at.st_mtime_ns // 1_000_000 for at in files), default=0)
        else:
            return None
    except OSError as error:
        problems.append(f"{printable_path(str(path))}: {error.strerror or error}")
        return None
    name = relative.rpartition(".")[0] or relative
    return FoundTranscript(place.program, path, name, size, modified)


def _entries(
    folder: Path, depth: int, problems: list[str], before: str = ""
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield what is in a folder and below, with its path below it; links to folders are not."""
    try:
        with os.scandir(folder) as entries:
            here = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        problems.append(f"{printable_path(str(folder))}: {error.strerror or error}")
        return
    for entry in here:
        relative = before + printable_path(entry.name)
        yield relative, entry
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _entries(Path(entry.path), depth - 1, problems, f"{relative}/")
