"""Files of messages, parts and turns: what kind of file it is, and what is wrong in it, by line.

A file is one JSON document (a list, one value, or an export `{info, messages}`) or JSON lines; its
first lines tell which. JSON lines are read one by one, so a file may be longer than the memory.
The quick way comes first: only what it refuses is looked at closely.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from palaver.errors import PartValidationError, ValidationError
from palaver.messages import MAX_DOCUMENT, parse_message, parse_messages, validate
from palaver.messages.codec import load_json
from palaver.messages.gate import freeze_mapping
from palaver.messages.scan import offsets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Checker", "Problem"]

_BOM: Final = b"\xef\xbb\xbf"
_GOES_ON: Final = (b"[", b"{", b":", b",")


class Problem(NamedTuple):
    """What is wrong, and on which line."""

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


class Checker:
    """One walk over a file. `checked` counts the values as it goes."""

    def __init__(self, stream: BinaryIO, progress: Callable[[int], object] | None = None) -> None:
        self.checked = 0
        self._stream = stream
        self._progress = progress
        self._messages_so_far = True

    def problems(self) -> Iterator[Problem]:
        """Everything that is wrong, in the order of the file."""
        first, second = self._opening()
        if not first:
            yield Problem(1, ValidationError("is empty", rule="json"))
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
                rest = self._stream.readline(MAX_DOCUMENT + 1)  # too long to be let in: skipped
            if self._progress:
                self._progress(len(line))
            yield line

    def _lines(self, lines: Iterable[bytes]) -> Iterator[Problem]:
        for number, line in enumerate(lines, 1):
            if line.strip():
                self.checked += 1
                yield from (Problem(number, error) for error in self._line(line))

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
        return validate(value).problems

    def _document(self, data: bytes) -> Iterator[Problem]:
        if data.lstrip()[:1] == b"[":
            try:
                self.checked = len(parse_messages(data, unique=True))
            except ValidationError:
                pass
            else:
                return
        errors = list(self._closely(data))
        lines = _line_numbers(data, {error.path for error in errors})
        yield from (Problem(lines[error.path], error) for error in errors)

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
            yield from (error.under(path) for error in validate(item).problems)


def _load(data: bytes) -> Any:  # noqa: ANN401 - whatever the text holds
    """Read JSON; of text in another encoding say just that, for the rest follows from it."""
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
    """The line of the value at each path; the lines are counted once, whatever the paths."""
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
