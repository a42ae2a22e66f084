"""JSON of any kind, held against a form.

A check looks at one value and notes what is wrong with it; it never raises, whatever it is given.
Checks are put together into forms (an object with known fields) and kinds (an object whose `type`
says which form it has). The functions at the end look something up and answer nothing, rather
than complain, where it is not there: the complaint is the form's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.testing.providers.findings import Findings
    from palaver.testing.providers.rules import Rule

__all__ = [
    "Check",
    "Form",
    "Kinds",
    "anything",
    "at",
    "boolean",
    "filled",
    "items",
    "listing",
    "look",
    "mapping",
    "number",
    "one_of",
    "optional",
    "string",
    "word",
]

Check: TypeAlias = Callable[["Findings", str, object], None]

NOTHING: Mapping[str, Any] = {}


def at(path: str, step: str | int) -> str:
    """The path one step on."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return step if path == "$" else f"{path}.{step}"


_NAMES: Mapping[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def kind(value: object) -> str:
    """Say what JSON calls such a value."""
    return _NAMES.get(type(value), f"a {type(value).__name__}, which is not JSON")


def anything(found: Findings, path: str, value: object) -> None:
    """Leave a value alone: it is the provider's business and not the conversation's."""


def string(found: Findings, path: str, value: object) -> None:
    """Want a string, an empty one too."""
    if not isinstance(value, str):
        found.add(path, "shape", f"must be a string, not {kind(value)}")


def filled(found: Findings, path: str, value: object) -> None:
    """Want a string with something in it."""
    string(found, path, value)
    if value == "":
        found.add(path, "shape", "must be a string of at least one character")


def boolean(found: Findings, path: str, value: object) -> None:
    """Want true or false."""
    if not isinstance(value, bool):
        found.add(path, "shape", f"must be a boolean, not {kind(value)}")


def number(found: Findings, path: str, value: object) -> None:
    """Want a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        found.add(path, "shape", f"must be a number, not {kind(value)}")


def mapping(found: Findings, path: str, value: object) -> None:
    """Want an object, with whatever fields."""
    if not isinstance(value, dict):
        found.add(path, "shape", f"must be an object, not {kind(value)}")


def optional(check: Check) -> Check:
    """Want what the check wants, or null."""

    def run(found: Findings, path: str, value: object) -> None:
        if value is not None:
            check(found, path, value)

    return run


def one_of(*choices: str, rule: Rule = "shape") -> Check:
    """Want one of these words."""

    def run(found: Findings, path: str, value: object) -> None:
        if not isinstance(value, str) or value not in choices:
            found.add(path, rule, f"must be one of {', '.join(choices)}")

    return run


def listing(each: Check, *, at_least: int = 0, rule: Rule = "empty-content") -> Check:
    """Want an array of such values; `rule` is the one that too short an array breaks."""

    def run(found: Findings, path: str, value: object) -> None:
        if not isinstance(value, list):
            found.add(path, "shape", f"must be an array, not {kind(value)}")
            return
        if len(value) < at_least:
            found.add(path, rule, "the array is empty; at least one entry is expected")
        for place, entry in enumerate(value):
            each(found, at(path, place), entry)

    return run


class Form:
    """An object with known fields, some of them required, each with its own check."""

    def __init__(self, required: Mapping[str, Check], known: Mapping[str, Check] = NOTHING) -> None:
        """Say which fields there have to be and which there may be."""
        self._required = frozenset(required)
        self._checks = {**required, **known}

    def __call__(self, found: Findings, path: str, value: object) -> None:
        """Hold a value against the form."""
        if not isinstance(value, dict):
            found.add(path, "shape", f"must be an object, not {kind(value)}")
            return
        for name in sorted(self._required - value.keys()):
            found.add(at(path, name), "shape", "the field is required and missing")
        for name, field in value.items():
            check = self._checks.get(name)
            if check is None:
                found.add(at(path, str(name)), "unknown-field", "no such field is known here")
            else:
                check(found, at(path, name), field)


class Kinds:
    """An object that says by a word of its own which form it has.

    `elsewhere` has the words of kinds that exist but may not stand here.
    """

    def __init__(
        self, here: Mapping[str, Check], *, elsewhere: frozenset[str] = frozenset()
    ) -> None:
        """Say which kinds may stand here."""
        self._here = here
        self._elsewhere = elsewhere

    def __call__(self, found: Findings, path: str, value: object) -> None:
        """Hold a value against the form of its kind."""
        if not isinstance(value, dict):
            found.add(path, "shape", f"must be an object, not {kind(value)}")
            return
        name = value.get("type")
        if not isinstance(name, str):
            found.add(at(path, "type"), "shape", "the type is required and missing")
        elif name in self._here:
            self._here[name](found, path, value)
        elif name in self._elsewhere:
            found.add(path, "part-placement", f"{name} may not stand here")
        else:
            found.add(path, "unknown-part", f"no such type is known: {name[:60]}")


def look(value: object, *steps: str) -> object:
    """What stands at the end of these fields, or None."""
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def word(value: object, *steps: str) -> str | None:
    """The string at the end of these fields, or None."""
    found = look(value, *steps)
    return found if isinstance(found, str) else None


def items(value: object, path: str) -> Iterator[tuple[str, object]]:
    """The entries of an array, each with its path; none where it is no array."""
    if isinstance(value, list):
        yield from ((at(path, place), entry) for place, entry in enumerate(value))
