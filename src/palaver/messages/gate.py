"""The gate: the one place where values from outside are let in or refused.

What passes is safe in every store and on every wire, and nobody can change it afterwards:
text is Unicode without NUL, numbers are finite and exact in every language's JSON, nesting and
size have a cap, dicts and lists are frozen. What does not pass raises `ValidationError` with the
path and the rule; `replace_refused` is the way for callers who would rather lose a character.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from palaver.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "EMPTY",
    "MAX_DEPTH",
    "MAX_INT",
    "MAX_NAME",
    "MAX_TEXT",
    "FrozenDict",
    "FrozenList",
    "check_name",
    "check_text",
    "check_time",
    "freeze",
    "freeze_mapping",
    "is_plain",
    "path_step",
    "replace_refused",
]

MAX_TEXT: Final = 64 * 1024 * 1024
"""Characters in one text: room for a large image as base64, not for a mistake."""
MAX_DEPTH: Final = 128
"""Levels of nesting in one value."""
MAX_INT: Final = 2**53
"""The largest whole number that every JSON reader keeps exact."""
MAX_NAME: Final = 1024
"""Characters in an id or a name."""

_K = TypeVar("_K")
_V = TypeVar("_V")


def _frozen(self: object, *_args: object, **_keywords: object) -> NoReturn:
    msg = f"a {type(self).__name__} can't be changed: take a copy with dict(…) or list(…)"
    raise TypeError(msg)


class FrozenDict(dict[_K, _V]):
    """A dict that can't be changed: equal to a plain one, and JSON like a plain one.

    >>> FrozenDict(a=1) == {"a": 1}
    True
    >>> FrozenDict(a=1)["b"] = 2
    Traceback (most recent call last):
    TypeError: a FrozenDict can't be changed: take a copy with dict(…) or list(…)
    """

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _frozen  # type: ignore[assignment]  # refusing is the point
    clear = pop = popitem = setdefault = update = _frozen  # type: ignore[assignment]  # likewise

    def __copy__(self) -> FrozenDict[_K, _V]:
        """Nothing to copy: it can't change."""
        return self

    def __deepcopy__(self, _memo: object) -> FrozenDict[_K, _V]:
        """Nothing to copy: it can't change."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain dict, frozen again on the way back."""
        return FrozenDict, (dict(self),)


class FrozenList(list[_V]):
    """A list that can't be changed: equal to a plain one, and JSON like a plain one."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _frozen  # type: ignore[assignment]  # as above
    append = clear = extend = insert = pop = remove = reverse = sort = _frozen  # type: ignore[assignment]  # as above

    def __copy__(self) -> FrozenList[_V]:
        """Nothing to copy: it can't change."""
        return self

    def __deepcopy__(self, _memo: object) -> FrozenList[_V]:
        """Nothing to copy: it can't change."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain list, frozen again on the way back."""
        return FrozenList, (list(self),)


EMPTY: Final[FrozenDict[str, Any]] = FrozenDict()
"""No metadata."""


def is_plain(text: object) -> bool:
    """Tell in one quick look whether a text is beyond doubt: ASCII, no NUL, not too long.

    Most text is. The rest goes to `check_text`, which looks closely and says what is wrong.
    """
    return type(text) is str and text.isascii() and "\0" not in text and len(text) <= MAX_TEXT


def check_text(text: object, path: str = "$") -> None:
    """Refuse what is not text that every store can keep.

    >>> check_text("naïve 文 🙂")
    >>> check_text("a\\0b", "$.text")
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.text: holds a NUL character at 1 [text.nul]
    """
    if not isinstance(text, str):
        raise ValidationError(f"must be text, not {_kind(text)}", path=path, rule="schema")
    if len(text) > MAX_TEXT:
        detail = f"has {len(text):,} characters; {MAX_TEXT:,} is the most"
        raise ValidationError(detail, path=path, rule="size")
    if "\0" in text:
        detail = f"holds a NUL character at {text.index(chr(0))}"
        raise ValidationError(detail, path=path, rule="text.nul")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            detail = f"holds half a character (a lone surrogate) at {error.start}"
            raise ValidationError(detail, path=path, rule="text.surrogate") from None


def check_name(name: object, path: str = "$", rule: str = "schema") -> None:
    """Refuse what can't be an id or a name: empty, too long, or with unprintable characters."""
    if isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable():
        return
    if not isinstance(name, str):
        raise ValidationError(f"must be text, not {_kind(name)}", path=path, rule=rule)
    if len(name) > MAX_NAME:
        raise ValidationError(f"is longer than {MAX_NAME} characters", path=path, rule="size")
    detail = "must not have unprintable characters" if name else "must not be empty"
    raise ValidationError(detail, path=path, rule=rule)


def check_time(value: object, path: str = "$", rule: str = "schema") -> None:
    """Refuse what is not a time in whole milliseconds."""
    if type(value) is not int:
        detail = f"must be a time in whole milliseconds, not {_kind(value)}"
        raise ValidationError(detail, path=path, rule=rule)
    if not 0 <= value <= MAX_INT:
        detail = f"must be a time from 0 to 2^53 milliseconds, not {value}"
        raise ValidationError(detail, path=path, rule="number.range")


def freeze(value: object, path: str = "$") -> Any:  # noqa: ANN401 - JSON is any of six types
    """Let a JSON value in: checked all through, and frozen.

    >>> freeze({"a": [1, 2.5, None, True, "x"]})
    {'a': [1, 2.5, None, True, 'x']}
    >>> freeze({"a": [0, float("nan")]})
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.a[1]: must be a finite number, not nan [number.nan]
    """
    trail: list[str | int] = []
    try:
        return _freeze(value, MAX_DEPTH, trail)
    except ValidationError as error:
        where = path + "".join(path_step(key) for key in reversed(trail))
        raise ValidationError(error.detail, path=where, rule=error.rule) from None


def freeze_mapping(value: object, path: str = "$") -> Mapping[str, Any]:
    """Let a JSON object in, such as metadata or a tool's input."""
    if type(value) is FrozenDict:
        return value
    if type(value) is dict and _is_flat(value):
        return FrozenDict(value) if value else EMPTY
    if not isinstance(value, Mapping):
        raise ValidationError(f"must be an object, not {_kind(value)}", path=path)
    frozen: Mapping[str, Any] = freeze(value, path) if value else EMPTY
    return frozen


def _is_flat(value: dict[object, object]) -> bool:
    # the common case in one loop: text keys, and values that hold no others
    for key, item in value.items():
        kind = type(item)
        if kind is str:
            if not is_plain(item):
                return False
        elif kind is int:
            if not -MAX_INT <= item <= MAX_INT:  # type: ignore[operator]  # it is an int
                return False
        elif item is not None and kind is not bool:
            return False
        if not is_plain(key):
            return False
    return True


def _freeze(value: object, levels: int, trail: list[str | int]) -> object:
    kind = type(value)
    leaf = _LEAVES.get(kind)
    if leaf is not None:
        leaf(value)
        return value
    if value is None or kind is bool:
        return value
    if not levels:
        raise ValidationError(f"is nested deeper than {MAX_DEPTH} levels", rule="depth")
    if isinstance(value, Mapping):
        return FrozenDict(_items(value, levels - 1, trail))
    if isinstance(value, list | tuple):
        return FrozenList(_elements(value, levels - 1, trail))
    raise ValidationError(f"must be JSON, not {_kind(value)}")


def _items(
    value: Mapping[object, object], levels: int, trail: list[str | int]
) -> dict[str, object]:
    out: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise ValidationError(f"must have text as its keys, not {_kind(key)}")
        try:
            check_text(key)
            out[key] = _freeze(item, levels, trail)
        except ValidationError:
            trail.append(key)
            raise
    return out


def _elements(
    value: list[object] | tuple[object, ...], levels: int, trail: list[str | int]
) -> list[object]:
    out: list[object] = []
    for index, item in enumerate(value):
        try:
            out.append(_freeze(item, levels, trail))
        except ValidationError:
            trail.append(index)
            raise
    return out


def _check_int(value: int) -> None:
    if not -MAX_INT <= value <= MAX_INT:
        detail = f"must be within ±2^53, not a number of {value.bit_length()} bits"
        raise ValidationError(detail, rule="number.range")


def _check_float(value: float) -> None:
    if not math.isfinite(value):
        raise ValidationError(f"must be a finite number, not {value}", rule="number.nan")


_LEAVES: Final[dict[type, Callable[[Any], None]]] = {
    str: check_text,
    int: _check_int,
    float: _check_float,
}


def path_step(key: str | int) -> str:
    """How one step into a value is written in a path: `.name`, `[3]` or `['odd name']`."""
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if key.isidentifier() else f"[{key[:80]!r}]"


def _kind(value: object) -> str:
    names = {bool: "a boolean", dict: "an object", list: "a list", type(None): "null"}
    return names.get(type(value), f"a {type(value).__name__}")


def replace_refused(value: object) -> object:
    """Put something harmless where the gate would refuse a character or a number.

    NUL and half characters become U+FFFD, NaN and the infinities null, whole numbers beyond
    ±2^53 their digits as text. Depth and size stay refused: nothing small could stand for them.

    >>> replace_refused({"a": "x\\0", "b": float("inf"), "c": 2**60})
    {'a': 'x\ufffd', 'b': None, 'c': '1152921504606846976'}
    """
    return _replace(value, MAX_DEPTH + 1)


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # thousands of digits: Python refuses to spell them out in decimal
        return hex(value)


def _replace(value: object, levels: int) -> object:
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode(
            "utf-16", "replace"
        )
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -MAX_INT <= value <= MAX_INT else _digits(value)
    if not levels:
        raise ValidationError(f"is nested deeper than {MAX_DEPTH} levels", rule="depth")
    if isinstance(value, Mapping):
        return {
            _replace(key, 0) if isinstance(key, str) else key: _replace(item, levels - 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_replace(item, levels - 1) for item in value]
    return value
