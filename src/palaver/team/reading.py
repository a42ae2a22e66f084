r"""Team files: YAML or JSON, and where in the file something is wrong.

>>> team = read_team("members: [{kind: human, id: user}, {kind: command, id: max, argv: [cat]}]")
>>> [member.id for member in team.members]
['user', 'max']
>>> read_team("members:\n  - kind: human\n    id: user\n")
Traceback (most recent call last):
palaver.errors.ValidationError: $.members: line 1, column 1: a team has at least two ... [TM-05]

A file is data and never code: only plain values are read, no tags become types, and aliases, which
can blow a small file up to any size, are refused. YAML needs the extra `team`; JSON is read without
it too, then without line numbers.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from palaver.errors import ValidationError
from palaver.messages.decoding import convert
from palaver.messages.duplicates import check_unique
from palaver.messages.gate import is_list, path_step
from palaver.team.roster import Team

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["load_team", "read_team", "read_text"]

MAX_FILE: Final = 1024 * 1024
MAX_DEPTH: Final = 50
_AT: Final = re.compile(r"(.*?)(?: - at `(?:key in )?(\$.*)`)?", re.DOTALL)
_FIELD: Final = re.compile(r"unknown field `(.*)`")


class Place(NamedTuple):
    """Where something stands in a file, from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        """As people count."""
        return f"line {self.line}, column {self.column}"


Places = dict[str, Place]


def load_team(file: str | Path) -> Team:
    """Read a team from a file; `-` is not taken, since paths are as seen from its folder."""
    path = Path(file)
    size = path.stat().st_size
    if size > MAX_FILE:
        raise _wrong(f"the file has {size:,} bytes; {MAX_FILE:,} is the most", "$")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _wrong(f"the file is not UTF-8 at byte {error.start}", "$") from None
    return read_team(text)


def read_team(text: str) -> Team:
    """Read a team from the text of a file."""
    value, places = read_text(text)
    try:
        return convert(value, Team)
    except msgspec.ValidationError as error:
        cause = error.__cause__  # msgspec wraps what a value refuses of itself
        if isinstance(cause, ValidationError):
            raise _placed(cause.detail, cause.path, places) from None
        raise _from_schema(str(error), places) from None


def read_text(text: str) -> tuple[object, Places]:
    """The plain values in a text, YAML or JSON, and where each of them stands."""
    return _json(text) if text.lstrip()[:1] == "{" else _yaml(text)


def _from_schema(words: str, places: Places) -> ValidationError:
    found = _AT.fullmatch(words)
    detail, path = (found[1], found[2] or "$") if found else (words, "$")
    unknown = _FIELD.search(detail)
    if unknown is not None:
        path += path_step(unknown[1])
        detail = "no such field"
    return _placed(detail[:1].lower() + detail[1:], path, places)


def _placed(detail: str, path: str, places: Places) -> ValidationError:
    """The error with the place of the innermost thing that is in the file."""
    where = path
    while where not in places and len(where) > 1:
        where = where[: max(where.rfind("."), where.rfind("["))]
    place = places.get(where)
    return _wrong(detail if place is None else f"{place}: {detail}", path)


def _wrong(detail: str, path: str) -> ValidationError:
    return ValidationError(detail, path=path, rule="TM-05")


# ── syntax ──────────────────────────────────────────────────────────────────────────────────────


def _json(text: str) -> tuple[object, Places]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if text.lstrip()[1:2] not in {'"', "}"}:  # a flow mapping of YAML: {members: …}
            return _yaml(text)
        raise _wrong(f"{Place(error.lineno, error.colno)}: {error.msg}", "$") from None
    except (RecursionError, ValueError) as error:
        raise _wrong(f"the file can't be read: {error}", "$") from None
    try:
        # raw tabs stand only between the values of JSON, where YAML wants none
        node = _composed(text.replace("\t", " "))
    except ValidationError:  # no PyYAML, or something that it reads in another way
        check_unique(text.encode())
        return value, {}
    return value, dict(_walk(node, "$"))


def _yaml(text: str) -> tuple[object, Places]:
    node = _composed(text)
    places = dict(_walk(node, "$"))
    yaml = importlib.import_module("yaml")
    try:
        return yaml.SafeLoader("").construct_document(node), places
    except yaml.MarkedYAMLError as error:
        raise _marked(error) from None
    except (RecursionError, ValueError) as error:
        raise _wrong(f"the file can't be read: {error}", "$") from None


def _composed(text: str) -> Any:  # noqa: ANN401 - a node of PyYAML's
    try:
        yaml = importlib.import_module("yaml")
    except ModuleNotFoundError:
        detail = "YAML needs one more package: pip install 'palaver[team]'"
        raise _wrong(detail, "$") from None
    try:
        _check_tokens(yaml, text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _marked(error) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise _wrong(f"the file can't be read: {error}", "$") from None
    if node is None:
        raise _wrong("the file is empty", "$")
    return node


def _check_tokens(yaml: Any, text: str) -> None:  # noqa: ANN401 - the module
    """Refuse what makes a small file take long: aliases, and brackets in brackets without end."""
    depth = 0
    for token in yaml.scan(text):
        opens = isinstance(token, yaml.FlowSequenceStartToken | yaml.FlowMappingStartToken)
        closes = isinstance(token, yaml.FlowSequenceEndToken | yaml.FlowMappingEndToken)
        depth += opens - closes
        if depth > MAX_DEPTH or isinstance(token, yaml.AliasToken):
            what = "too many brackets in brackets" if depth > MAX_DEPTH else "aliases are not taken"
            place = Place(token.start_mark.line + 1, token.start_mark.column + 1)
            raise _wrong(f"{place}: {what}", "$")


def _marked(error: Any) -> ValidationError:  # noqa: ANN401 - an error of PyYAML's
    mark = error.problem_mark or error.context_mark
    place = f"{Place(mark.line + 1, mark.column + 1)}: " if mark else ""
    return _wrong(f"{place}{error.problem or error.context}", "$")


def _walk(node: Any, path: str) -> Iterator[tuple[str, Place]]:  # noqa: ANN401 - a node of PyYAML's
    """Every path of a document, and where its value or its key stands."""
    yield path, Place(node.start_mark.line + 1, node.start_mark.column + 1)
    if not is_list(node.value):
        return
    seen: set[str] = set()
    for index, item in enumerate(node.value):
        if not isinstance(item, tuple):
            yield from _walk(item, f"{path}[{index}]")
            continue
        key, value = item
        name = str(key.value)
        place = Place(key.start_mark.line + 1, key.start_mark.column + 1)
        if name in seen:
            raise _wrong(f"{place}: {name!r} stands twice in one mapping", path)
        seen.add(name)
        inside = f"{path}{path_step(name)}"
        yield from _walk(value, inside)
        yield inside, place
