"""The gate: the one place where values from outside are let in or refused.

What passes is safe in every store and on every wire, and nobody can change it afterwards:
text is Unicode without NUL, numbers are finite and exact in every language's JSON, nesting and
size have a cap, dicts and lists are frozen. What does not pass raises `ValidationError` with the
path and the rule; `replace_refused` is the way for callers who would rather lose a character.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeGuard, TypeVar, cast, final

from palaver.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "EMPTY",
    "MAX_ANSWER",
    "MAX_DEPTH",
    "MAX_INT",
    "MAX_NAME",
    "MAX_TEXT",
    "FrozenDict",
    "FrozenList",
    "check_leaf",
    "check_name",
    "check_text",
    "check_time",
    "freeze",
    "freeze_mapping",
    "is_list",
    "is_object",
    "is_plain",
    "is_text",
    "kind_of",
    "number_or_kind",
    "path_step",
    "quoted",
]

MAX_TEXT: Final = 64 * 1024 * 1024
"""Characters in one text: room for a large image as base64, not for a mistake."""
MAX_ANSWER: Final = 16 * 1024 * 1024
"""Bytes of text, reasoning and arguments, as UTF-8, that a step takes of one answer."""
MAX_DEPTH: Final = 128
"""Levels of nesting in one value."""
MAX_INT: Final = 2**53
"""The largest whole number that every JSON reader keeps exact."""
MAX_NAME: Final = 1024
"""Characters in an id or a name."""

_READABLE: Final = 64
"""Characters of a name, and bits of a number, that an error spells out."""
_SHALLOW: Final = 1
"""Levels of objects within an object that are let in without detours."""

_K = TypeVar("_K")
_V = TypeVar("_V")


def _frozen(self: object, *_args: object, **_keywords: object) -> NoReturn:
    msg = f"a {type(self).__name__} can't be changed: take a copy with dict(…) or list(…)"
    raise TypeError(msg)


@final
class FrozenDict(dict[_K, _V]):
    """A dict that can't be changed: equal to a plain one, and JSON like a plain one.

    >>> FrozenDict(a=1) == {"a": 1}
    True
    >>> FrozenDict(a=1)["b"] = 2
    Traceback (most recent call last):
    TypeError: a FrozenDict can't be changed: take a copy with dict(…) or list(…)
    """

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _frozen
    clear = pop = popitem = setdefault = update = _frozen

    def __new__(cls, *args: Any, **keywords: Any) -> Self:  # noqa: ANN401 - as dict's own
        """Let the values in through the gate, so that whoever sees a FrozenDict can trust it."""
        made: Self = freeze(dict(*args, **keywords))
        return made

    def __init__(self, *_args: object, **_keywords: object) -> None:
        """All is done: calling it again must change nothing."""

    # a plain dict has no hash, for it can change
    def __hash__(self) -> int:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        """Equal values have the same hash."""
        return hash(frozenset(self.items()))

    def __copy__(self) -> FrozenDict[_K, _V]:
        """Nothing to copy: it can't change."""
        return self

    def __deepcopy__(self, _memo: object) -> FrozenDict[_K, _V]:
        """Nothing to copy: it can't change."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain dict, frozen again on the way back."""
        return FrozenDict, (dict(self),)


@final
class FrozenList(list[_V]):
    """A list that can't be changed: equal to a plain one, and JSON like a plain one."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _frozen
    append = clear = extend = insert = pop = remove = reverse = sort = _frozen

    def __new__(cls, items: Iterable[_V] = (), /) -> Self:
        """Let the values in through the gate."""
        made: Self = freeze(list(items))
        return made

    def __init__(self, _items: Iterable[_V] = (), /) -> None:
        """All is done: calling it again must change nothing."""

    # as above
    def __hash__(self) -> int:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        """Equal values have the same hash."""
        return hash(tuple(self))

    def __copy__(self) -> FrozenList[_V]:
        """Nothing to copy: it can't change."""
        return self

    def __deepcopy__(self, _memo: object) -> FrozenList[_V]:
        """Nothing to copy: it can't change."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain list, frozen again on the way back."""
        return FrozenList, (list(self),)


_new_dict = dict.__new__
_fill_dict = dict.update


def _object(checked: dict[str, Any]) -> FrozenDict[str, Any]:
    """A FrozenDict of what has been checked and frozen already."""
    made: FrozenDict[str, Any] = _new_dict(FrozenDict)
    _fill_dict(made, checked)
    return made


def _list(checked: list[object]) -> FrozenList[object]:
    """A FrozenList of what has been checked and frozen already."""
    made: FrozenList[object] = list.__new__(FrozenList)
    list.extend(made, checked)
    return made


EMPTY: Final[FrozenDict[str, Any]] = _object({})
"""No metadata."""


def is_plain(text: object) -> bool:
    """Tell in one quick look whether a text is beyond doubt: ASCII, no NUL, not too long.

    Most text is. The rest goes to `check_text`, which looks closely and says what is wrong.
    """
    return type(text) is str and text.isascii() and "\0" not in text and len(text) <= MAX_TEXT


def check_text(text: object, path: str = "$") -> None:
    r"""Refuse what is not text that every store can keep.

    >>> check_text("naïve 文 🙂")
    >>> check_text("a\0b", "$.text")
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.text: holds a NUL character at 1 [text.nul]
    """
    if not isinstance(text, str):
        raise ValidationError(f"must be text, not {kind_of(text)}", path=path, rule="schema")
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


def is_text(value: object) -> TypeGuard[str]:
    r"""Tell whether it is text that a store can keep; whatever is not was never kept anywhere.

    >>> is_text("文"), is_text("a\0b"), is_text("\ud800"), is_text(1.5)
    (True, False, False, False)
    """
    try:
        check_text(value)
    except ValidationError:
        return False
    return True


def check_name(name: object, path: str = "$", rule: str = "schema") -> None:
    """Refuse what can't be an id or a name: empty, too long, or with unprintable characters."""
    if isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable():
        return
    if not isinstance(name, str):
        raise ValidationError(f"must be text, not {kind_of(name)}", path=path, rule=rule)
    if len(name) > MAX_NAME:
        raise ValidationError(f"is longer than {MAX_NAME} characters", path=path, rule="size")
    detail = "must not have unprintable characters" if name else "must not be empty"
    raise ValidationError(detail, path=path, rule=rule)


def check_time(value: object, path: str = "$", rule: str = "schema") -> None:
    """Refuse what is not a time in whole milliseconds."""
    if type(value) is not int:
        detail = f"must be a time in whole milliseconds, not {kind_of(value)}"
        raise ValidationError(detail, path=path, rule=rule)
    if not 0 <= value <= MAX_INT:
        detail = f"must be a time from 0 to 2^53 milliseconds, not {number_or_kind(value)}"
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
    if type(value) is dict:
        made = _plain(value, _SHALLOW) if value else EMPTY
        if made is not None:
            return made
    if not is_object(value):
        raise ValidationError(f"must be an object, not {kind_of(value)}", path=path)
    frozen: Mapping[str, Any] = freeze(value, path) if value else EMPTY
    return frozen


def _plain(value: dict[Any, Any], levels: int) -> FrozenDict[str, Any] | None:
    """The common case in one loop: text keys, plain values, objects that are shallow.

    None where there is any doubt.
    """
    inner: dict[str, Any] = {}
    for key, item in value.items():
        if type(key) is not str or not key.isascii() or "\0" in key or len(key) > MAX_TEXT:
            return None
        kind = type(item)
        if kind is str:
            if not item.isascii() or "\0" in item or len(item) > MAX_TEXT:
                return None
        elif kind is int:
            if not -MAX_INT <= item <= MAX_INT:
                return None
        elif kind is dict and levels:
            made = _plain(item, levels - 1)
            if made is None:
                return None
            inner[key] = made
        elif item is not None and item is not False and item is not True:
            return None
    return _object({**value, **inner} if inner else value)


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
    if kind is dict:
        made = _plain(cast("dict[Any, Any]", value), 0)
        if made is not None:
            return made
    if is_object(value):
        return _object(_items(value, levels - 1, trail))
    if is_list(value):
        return _list(_elements(value, levels - 1, trail))
    raise ValidationError(f"must be JSON, not {kind_of(value)}")


def _items(value: Mapping[Any, Any], levels: int, trail: list[str | int]) -> dict[str, Any]:
    out: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise ValidationError(f"must have text as its keys, not {kind_of(key)}")
        try:
            check_text(key)
            out[key] = _freeze(item, levels, trail)
        except ValidationError:
            trail.append(key)
            raise
    return out


def _elements(
    value: list[Any] | tuple[Any, ...], levels: int, trail: list[str | int]
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
        detail = f"must be within ±2^53, not {number_or_kind(value)}"
        raise ValidationError(detail, rule="number.range")


def _check_float(value: float) -> None:
    if not math.isfinite(value):
        raise ValidationError(f"must be a finite number, not {value}", rule="number.nan")


_LEAVES: Final[dict[type, Callable[[Any], None]]] = {
    str: check_text,
    int: _check_int,
    float: _check_float,
}


def check_leaf(value: object, path: str = "$") -> None:
    """Refuse a text or a number that a store could not keep; anything else is not looked at."""
    leaf = _LEAVES.get(type(value))
    if leaf is None:
        return
    try:
        leaf(value)
    except ValidationError as error:
        raise ValidationError(error.detail, path=path, rule=error.rule) from None


def is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Tell whether it is a JSON object, or a dict that stands for one."""
    return isinstance(value, dict) or isinstance(value, Mapping)  # noqa: SIM101 - the first is quick


def is_list(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Tell whether it is a JSON list, or what stands for one."""
    return isinstance(value, list | tuple)


def path_step(key: str | int) -> str:
    """How one step into a value is written in a path: `.name`, `[3]` or `['odd name']`."""
    if isinstance(key, int):
        return f"[{key}]"
    plain = len(key) <= _READABLE and key.isidentifier()
    return f".{key}" if plain else f"[{key[:_READABLE]!r}]"


_KINDS: Final[dict[type, str]] = {
    bool: "a boolean",
    dict: "an object",
    float: "a number",
    int: "a whole number",
    list: "a list",
    str: "text",
    type(None): "null",
}


def kind_of(value: object) -> str:
    """What a value is, in JSON's words where it has any."""
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def quoted(value: object) -> str:
    """A value for an error's text, cut where it gets too long to read."""
    return repr(value[:_READABLE]) if isinstance(value, str) else kind_of(value)


def number_or_kind(value: object) -> str:
    """A number as it is, if it is not too long to read; of anything else, what it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return kind_of(value)
    if isinstance(value, int) and value.bit_length() > _READABLE:
        return f"a number of {value.bit_length()} bits"
    return str(value)
