"""`palaver validate` checks messages, parts and turns; `palaver schema` prints their JSON Schemas.

A file is one JSON document (a list, one value, or an export `{info, messages}`) or JSON lines; its
first lines tell which. JSON lines are read one by one, so a file may be larger than the memory. The
fast decoder comes first: only what it refuses is examined closely.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, get_args

import click

from palaver.cli.app import (
    REFUSED,
    display_name,
    file_argument,
    is_terminal,
    json_option,
    open_input,
    print_line,
    styled,
)
from palaver.errors import PartValidationError, ValidationError
from palaver.messages import parse_message, parse_messages
from palaver.messages import validate as validate_value
from palaver.messages.codec import MAX_DOCUMENT, load_json
from palaver.messages.decode import offsets_of
from palaver.messages.limits import freeze_mapping
from palaver.nodes import schema as nodes_schema
from palaver.nodes.results import NodeKind
from palaver.team import schema as team_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

__all__ = ["schema", "validate"]


_MIN_PROGRESS_SIZE: Final = 8 * 1024 * 1024
_LONG: Final = 160


@click.command(short_help="Check a file of messages, parts or turns.")
@file_argument
@json_option
@click.pass_context
def validate(context: click.Context, file: str, *, as_json: bool) -> None:
    """Check FILE: messages, parts or turns, as JSON or as JSON lines.

    Prints each error with its line, its path and the rule it breaks. The exit status is 0 if all
    is valid, and else 1.
    """
    with open_input(file) as (stream, size), _progress(size) as progress:
        checker = FileChecker(stream, progress)
        report = _as_json if as_json else _as_text
        wrong = report(checker, display_name(file))
    context.exit(REFUSED if wrong else 0)


def _as_text(checker: FileChecker, name: str) -> int:
    count = 0
    for count, problem in enumerate(checker.problems(), 1):  # noqa: B007 - the last is the count
        print_line(_line(name, problem))
    verdict = f"{count:,} error{'' if count == 1 else 's'}" if count else "all valid"
    styles = {"fg": "red" if count else "green", "bold": True}
    print_line(
        f"{styled(name, bold=True)}: {checker.checked:,} checked, {styled(verdict, **styles)}"
    )
    return count


def _line(name: str, problem: FileProblem) -> str:
    error = problem.error
    part = f" ({error.part} part)" if isinstance(error, PartValidationError) else ""
    return (
        f"{styled(f'{name}:{problem.line}', bold=True)}: {styled(_short(error.path), fg='cyan')}: "
        f"{styled(error.detail + part)} {styled(f'[{error.rule}]', fg='yellow')}"
    )


def _short(path: str) -> str:
    return path if len(path) <= _LONG else f"{path[: _LONG // 2]}…{path[-_LONG // 2 :]}"


def _as_json(checker: FileChecker, _name: str) -> int:
    """Write each error as it is found, without collecting them."""
    count = 0
    click.echo('{"errors": [', nl=False)
    for problem in checker.problems():
        click.echo(",\n " if count else "\n ", nl=False)
        click.echo(json.dumps(problem.to_dict(), ensure_ascii=False), nl=False)
        count += 1
    click.echo(f'], "checked": {checker.checked}, "valid": {json.dumps(not count)}}}')
    return count


@contextmanager
def _progress(size: int | None) -> Generator[Callable[[int], object] | None]:
    """A progress bar on standard error for large files."""
    if size is None or size < _MIN_PROGRESS_SIZE or not is_terminal():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - it takes its time to load
    from rich.progress import Progress  # noqa: PLC0415 - the same

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checking", total=size)
        yield lambda length: bar.advance(task, length)


_BOM: Final = b"\xef\xbb\xbf"
_GOES_ON: Final = (b"[", b"{", b":", b",")


class FileProblem(NamedTuple):
    """An error and its line."""

    line: int
    error: ValidationError

    def to_dict(self) -> dict[str, Any]:
        """The problem as JSON-ready data."""
        error = self.error
        found: dict[str, Any] = {
            "line": self.line,
            "path": error.path,
            "rule": error.rule,
            "detail": error.detail,
        }
        if isinstance(error, PartValidationError):
            found["part"] = error.part
        return found


class FileChecker:
    """One pass over a file; `checked` counts the values."""

    def __init__(self, stream: BinaryIO, progress: Callable[[int], object] | None = None) -> None:
        self.checked = 0
        self._stream = stream
        self._progress = progress
        self._messages_so_far = True

    def problems(self) -> Iterator[FileProblem]:
        """All errors, in the order of the file."""
        first, second = self._opening()
        if not first:
            yield FileProblem(1, ValidationError("is empty", rule="json"))
            return
        text = b"".join(first + second)
        if _is_lines(first[-1], second[-1] if second else b""):
            yield from self._lines(chain(first, second, self._each_line()))
        else:
            rest = self._stream.read(max(MAX_DOCUMENT + 1 - len(text), 0))
            yield from self._document(text + rest)

    def _opening(self) -> tuple[list[bytes], list[bytes]]:
        """The lines up to the first that is not blank, and from there up to the second."""
        lines = self._each_line()
        first = _to_next(lines)
        if first:
            first[0] = first[0].removeprefix(_BOM)
        return first, _to_next(lines)

    def _each_line(self) -> Iterator[bytes]:
        while line := self._stream.readline(MAX_DOCUMENT + 1):
            rest = line
            while len(rest) > MAX_DOCUMENT and not rest.endswith(b"\n"):
                rest = self._stream.readline(MAX_DOCUMENT + 1)  # too long: skipped
            if self._progress:
                self._progress(len(line))
            yield line

    def _lines(self, lines: Iterable[bytes]) -> Iterator[FileProblem]:
        for number, line in enumerate(lines, 1):
            if line.strip():
                self.checked += 1
                yield from (FileProblem(number, error) for error in self._line(line))

    def _line(self, line: bytes) -> tuple[ValidationError, ...]:
        if self._messages_so_far:
            try:
                parse_message(line)
            except ValidationError:
                pass
            else:
                return ()
        try:
            value = _load(line)
        except ValidationError as error:
            return (error,)
        self._messages_so_far = isinstance(value, Mapping) and "role" in value
        return validate_value(value).problems

    def _document(self, data: bytes) -> Iterator[FileProblem]:
        if data.lstrip()[:1] == b"[":
            try:
                self.checked = len(parse_messages(data, unique=True))
            except ValidationError:
                pass
            else:
                return
        errors = list(self._closely(data))
        lines = _line_numbers(data, {error.path for error in errors})
        yield from (FileProblem(lines[error.path], error) for error in errors)

    def _closely(self, data: bytes) -> Iterator[ValidationError]:
        try:
            value = _load(data)
        except ValidationError as error:
            yield error
            return
        prefix, items = "$", [value]
        if isinstance(value, list):
            items = value
        elif isinstance(value, Mapping) and isinstance(value.get("messages"), list):
            prefix, items = "$.messages", value["messages"]
            yield from _refusals(lambda: freeze_mapping(value.get("info", {}), "$.info"))
        for index, item in enumerate(items):
            self.checked += 1
            path = prefix if items is not value and prefix == "$" else f"{prefix}[{index}]"
            yield from (error.under(path) for error in validate_value(item).problems)


def _load(data: bytes) -> Any:  # noqa: ANN401 - whatever the text holds
    """Decode JSON; text in another encoding gets one error that says so."""
    try:
        return load_json(data)
    except ValidationError as error:
        try:
            data.decode()
        except UnicodeDecodeError as wrong:
            detail = f"is not UTF-8 at byte {wrong.start}"
            raise ValidationError(detail, path=error.path, rule="text.utf8") from None
        raise


def _line_numbers(data: bytes, paths: set[str]) -> dict[str, int]:
    """The line of the value at each path; the lines are counted once."""
    line, before = 1, 0
    numbers: dict[str, int] = {}
    offsets = offsets_of(data, paths)
    for path in sorted(paths, key=offsets.__getitem__):
        line += data.count(b"\n", before, offsets[path])
        numbers[path], before = line, offsets[path]
    return numbers


def _refusals(check: Callable[[], object]) -> Iterator[ValidationError]:
    try:
        check()
    except ValidationError as error:
        yield error


def _to_next(lines: Iterator[bytes]) -> list[bytes]:
    found: list[bytes] = []
    for line in lines:
        found.append(line)
        if line.strip(b"\xef\xbb\xbf \t\r\n"):
            return found
    return []


def _is_lines(first: bytes, second: bytes) -> bool:
    """Tell JSON lines from a document by the first two lines that are not blank."""
    if not second:
        return False
    try:
        load_json(first, unique=False)
    except ValidationError:
        # no value by itself: either the beginning of a document, or a broken line before others
        return second.lstrip()[:1] == b"{" and not first.rstrip().endswith(_GOES_ON)
    return True


@click.command(short_help="Print the JSON Schema of team files or of node settings.")
@click.argument("what", type=click.Choice(["nodes", "team"]))
@click.option("--node", type=click.Choice(get_args(NodeKind)), help="Of one node's settings only.")
def schema(what: str, node: NodeKind | None) -> None:
    """Print the JSON Schema of WHAT: the settings of workflow nodes, or a team file."""
    if what == "team" and node is not None:
        raise click.UsageError("--node goes with nodes")
    made = team_schema() if what == "team" else nodes_schema(node)
    click.echo(json.dumps(made, indent=2, ensure_ascii=False))
