"""Limits on values from outside: every text, number and JSON object is checked here.

A value that passes is safe in every store and on every wire, and can't be changed afterwards: text
is Unicode without NUL, numbers are finite and within ±2^53, nesting and size have a maximum, and
dicts and lists are frozen. Any other value raises `ValidationError` with its path and the rule it
breaks. `replace_refused` is for callers who prefer to lose a character over an error. A part that
is refused is logged before its error is raised.
"""

from __future__ import annotations

import inspect
import logging
import math
import reprlib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, wraps
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NoReturn,
    ParamSpec,
    Self,
    SupportsIndex,
    TypeGuard,
    TypeVar,
    cast,
    final,
    get_args,
    get_origin,
)

from msgspec import StructMeta
from msgspec.structs import fields, force_setattr

from palaver.errors import PartValidationError, ValidationError
from palaver.messages.ids import is_uuid, require_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from msgspec import Struct

    from palaver.messages.part_base import PartBase


__all__ = [
    "EMPTY",
    "MAX_ANSWER",
    "MAX_DEPTH",
    "MAX_INT",
    "MAX_NAME",
    "MAX_TEXT",
    "FrozenDict",
    "FrozenList",
    "NamedFields",
    "check_all",
    "check_argument",
    "check_callable",
    "check_fields",
    "check_ids",
    "check_name",
    "check_number",
    "check_text",
    "check_time",
    "check_value",
    "describe_argument",
    "describe_number",
    "freeze",
    "freeze_checked",
    "freeze_field",
    "freeze_mapping",
    "is_list",
    "is_name",
    "is_object",
    "is_plain",
    "is_text",
    "kind_of",
    "names_keywords",
    "not_pickled",
    "path_step",
    "quote_value",
    "refuse",
    "replace_refused",
    "short_repr",
    "shorten",
    "unexpected_keyword",
]


MAX_TEXT: Final = 64 * 1024 * 1024
"""The maximum number of characters in one text. A large image as base64 fits."""
MAX_ANSWER: Final = 16 * 1024 * 1024
"""The maximum size of one model answer: bytes of text, reasoning and arguments as UTF-8."""
MAX_DEPTH: Final = 128
"""The maximum number of nested levels in one value."""
MAX_INT: Final = 2**53
"""The largest whole number that every JSON reader reads exactly."""
MAX_NAME: Final = 1024
"""The maximum number of characters in an id or a name."""

_READABLE: Final = 64
"""Characters of a name, and bits of a number, that an error shows."""
_SHALLOW: Final = 1
"""Levels of objects within an object that the fast path accepts."""

_log = logging.getLogger("palaver.messages")
_P = ParamSpec("_P")
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
        """Check and freeze the values, so that every FrozenDict is within the limits."""
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
        """Check and freeze the values."""
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
_set_item = dict.__setitem__


def freeze_checked(checked: dict[str, Any]) -> FrozenDict[str, Any]:
    """Return a FrozenDict of keys and values that have been checked and frozen already."""
    made: FrozenDict[str, Any] = _new_dict(FrozenDict)
    _fill_dict(made, checked)
    return made


def _list(checked: list[object]) -> FrozenList[object]:
    """A FrozenList of what has been checked and frozen already."""
    made: FrozenList[object] = list.__new__(FrozenList)
    list.extend(made, checked)
    return made


EMPTY: Final[FrozenDict[str, Any]] = freeze_checked({})
"""No metadata."""


def is_plain(text: object) -> bool:
    """Return whether a value is ASCII text without NUL that is not too long.

    This is a quick test that most text passes. `check_text` checks all other text.
    """
    return type(text) is str and text.isascii() and "\0" not in text and len(text) <= MAX_TEXT


def check_text(text: object, path: str = "$") -> None:
    r"""Raise `ValidationError` unless the value is text that every store can hold.

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
    r"""Return whether a value is text that a store can hold. No other text is in any store.

    >>> is_text("文"), is_text("a\0b"), is_text("\ud800"), is_text(1.5)
    (True, False, False, False)
    """
    try:
        check_text(value)
    except ValidationError:
        return False
    return True


def is_name(value: object) -> TypeGuard[str]:
    r"""Tell whether a value can be an id or a name; `check_name` says why not.

    >>> is_name("call_1"), is_name(""), is_name("a\nb"), is_name(7)
    (True, False, False, False)
    """
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()


def check_name(name: object, path: str = "$", rule: str = "schema") -> None:
    """Raise `ValidationError` unless the value can be an id or a name.

    A name is not empty, is at most `MAX_NAME` characters long and has only printable characters.
    """
    if is_name(name):
        return
    if not isinstance(name, str):
        raise ValidationError(f"must be text, not {kind_of(name)}", path=path, rule=rule)
    if len(name) > MAX_NAME:
        raise ValidationError(f"is longer than {MAX_NAME} characters", path=path, rule="size")
    detail = "must not have unprintable characters" if name else "must not be empty"
    raise ValidationError(detail, path=path, rule=rule)


def check_time(value: object, path: str = "$", rule: str = "schema") -> None:
    """Raise `ValidationError` unless the value is a time in whole milliseconds since 1970."""
    if type(value) is not int:
        detail = f"must be a time in whole milliseconds, not {kind_of(value)}"
        raise ValidationError(detail, path=path, rule=rule)
    if not 0 <= value <= MAX_INT:
        detail = f"must be a time from 0 to 2^53 milliseconds, not {describe_number(value)}"
        raise ValidationError(detail, path=path, rule="number.range")


def check_number(value: object, path: str, *, least: float = 0, whole: bool = False) -> None:
    """Raise `ValidationError` unless the value is a number from `least` to 2^53.

    >>> check_number(-1, "$.budget")
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.budget: must be a number from 0 on, not -1 [limit]
    """
    kinds = int if whole else (int, float)
    fits = isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= MAX_INT
    if not fits:
        wanted = "a whole number" if whole else "a number"
        detail = f"must be {wanted} from {least} on, not {describe_argument(value)}"
        raise ValidationError(detail, path=path, rule="limit")


def check_argument(
    value: object, kinds: type | tuple[type, ...], path: str, wanted: str, hint: str = ""
) -> None:
    """Raise `ValidationError` unless the value is of a kind; `wanted` names what is allowed."""
    if not isinstance(value, kinds):
        detail = f"must be {wanted}, not {describe_argument(value)}"
        raise ValidationError(f"{detail}; {hint}" if hint else detail, path=path, rule="argument")


def check_callable(
    value: object, path: str, wanted: str, *, takes: int | None = None, plain: bool = False
) -> None:
    """Raise `ValidationError` unless the value is None or a function that takes so many arguments.

    A `plain` function is not async: nobody would await what it returns.

    >>> check_callable(lambda: True, "$.approve", "a function that takes a call", takes=1)
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.approve: must be a function that takes a call, ...
    """
    if value is None:
        return
    if not callable(value):
        detail = f"must be {wanted}, not {describe_argument(value)}"
        raise ValidationError(detail, path=path, rule="argument")
    if plain and inspect.iscoroutinefunction(value):
        detail = f"must be {wanted}, not an async function: write def, not async def"
        raise ValidationError(detail, path=path, rule="argument")
    if takes is None:
        return
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # a builtin does not say what it takes
        return
    try:
        signature.bind(*range(takes))
    except TypeError:
        arguments = "1 argument" if takes == 1 else f"{takes} arguments"
        name = getattr(value, "__name__", type(value).__name__)
        detail = f"must be {wanted}, and {name}{signature} can't be called with {arguments}"
        raise ValidationError(detail, path=path, rule="argument") from None


def unexpected_keyword(
    function: str, name: str, known: Iterable[str], instead: Mapping[str, str] = EMPTY
) -> TypeError:
    """Return the error of a keyword that a function does not take; it says which was meant.

    `instead` says of a keyword that belongs elsewhere what to write.

    >>> raise unexpected_keyword("Limits", "step", ["cost", "steps"])
    Traceback (most recent call last):
    TypeError: Limits() got an unexpected keyword argument 'step'; did you mean 'steps'? It takes...
    """
    takes = sorted(known)
    close = get_close_matches(name, takes, n=1, cutoff=0.7)
    meant = f"did you mean {close[0]!r}? It takes" if close else "it takes"
    if name in instead:
        meant = f"{instead[name]}. It takes"
    problem = f"{function}() got an unexpected keyword argument {name!r}"
    return TypeError(f"{problem}; {meant} {', '.join(takes)}")


def names_keywords(
    name: str, instead: Mapping[str, str] = EMPTY
) -> Callable[[Callable[_P, _V]], Callable[_P, _V]]:
    """Make a function say of an unknown keyword which was meant; `name` is what it is called.

    `instead` says of a keyword that belongs elsewhere what to write.
    """

    def decorate(function: Callable[_P, _V]) -> Callable[_P, _V]:
        known = [
            each.name
            for each in inspect.signature(function).parameters.values()
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and each.name != "self"
        ]

        @wraps(function)
        def call(*args: _P.args, **keywords: _P.kwargs) -> _V:
            for given in keywords:
                if given not in known:
                    raise unexpected_keyword(name, given, known, instead)
            return function(*args, **keywords)

        return call

    return decorate


class NamedFields(StructMeta):
    """The type of structs that people make by keyword; it does what `names_keywords` does.

    >>> from msgspec import Struct
    >>> class Size(Struct, metaclass=NamedFields):
    ...     width: int = 1
    >>> Size(widht=3)
    Traceback (most recent call last):
    TypeError: Size() got an unexpected keyword argument 'widht'; did you mean 'width'? It takes...
    """

    if not TYPE_CHECKING:  # the type checkers know the fields themselves

        def __call__(self, *values: object, **fields: object) -> Struct:
            """Make a value."""
            for name in fields:
                if name not in self.__struct_fields__:
                    raise unexpected_keyword(self.__name__, name, self.__struct_fields__)
            if len(values) > len(self.__match_args__):
                msg = f"{self.__name__}() takes keywords: {', '.join(self.__struct_fields__)}"
                raise TypeError(msg)
            return super().__call__(*values, **fields)


def not_pickled(instead: str) -> Callable[[object, SupportsIndex], NoReturn]:
    """Return a `__reduce_ex__` that refuses to pickle or copy, and says what to do instead."""

    def refuse(self: object, protocol: SupportsIndex, /) -> NoReturn:
        del protocol
        name = type(self).__name__
        article = "an" if name[:1] in "AEIOU" else "a"
        msg = f"{article} {name} can't be pickled or copied; {instead}"
        raise TypeError(msg)

    return refuse


def short_repr(self: Struct) -> str:
    """A `__repr__` of structs: the fields that are not their defaults, in one short line.

    Long texts and lists are cut, so that a value with megabytes in it can be printed.
    """
    known = [
        (one.name, getattr(self, one.name))
        for one in fields(self)
        if getattr(self, one.name) != one.default
    ]
    known.sort(key=lambda field: field[0] in _OWNERS)
    shown = ", ".join(f"{name}={_SHORT.repr(field)}" for name, field in known)
    return shorten(f"{type(self).__name__}({shown})")


def shorten(text: str, most: int = 240) -> str:
    """Return a text, cut if it is longer than so many characters.

    >>> shorten("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


_SHORT: Final = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxtuple, _SHORT.maxlist = 2, 3, 2, 2
_SHORT.maxstring, _SHORT.maxother = 72, 120
_OWNERS: Final = ("id", "session_id", "message_id")
"""The fields that a repr shows last: they are long, and say little."""


def describe_argument(value: object) -> str:
    """Return an argument of a Python call for an error message, in Python's words.

    >>> describe_argument(5), describe_argument(None), describe_argument(int), describe_argument([])
    ('5', 'None', 'the class int', 'a list')
    """
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return describe_number(value)
    if isinstance(value, str):
        return quote_value(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def freeze(value: object, path: str = "$") -> Any:  # noqa: ANN401 - JSON is any of six types
    """Check a JSON value at every level and return a frozen copy.

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
    """Check a JSON object, such as metadata or a tool's input, and return a frozen copy."""
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
    """Freeze the common case in one loop: ASCII keys, plain values, shallow objects.

    Return None for anything else, which the slower way then checks.
    """
    made: FrozenDict[str, Any] = _new_dict(FrozenDict)
    _fill_dict(made, value)
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
            inner = _plain(item, levels - 1)
            if inner is None:
                return None
            _set_item(made, key, inner)
        elif item is not None and item is not False and item is not True:
            return None
    return made


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
        return freeze_checked(_items(value, levels - 1, trail))
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
        detail = f"must be within ±2^53, not {describe_number(value)}"
        raise ValidationError(detail, rule="number.range")


def _check_float(value: float) -> None:
    if not math.isfinite(value):
        raise ValidationError(f"must be a finite number, not {value}", rule="number.nan")


_LEAVES: Final[dict[type, Callable[[Any], None]]] = {
    str: check_text,
    int: _check_int,
    float: _check_float,
}


def _check_leaf(value: object, path: str) -> None:
    """Check a text or a number; any other value is accepted."""
    leaf = _LEAVES.get(type(value))
    if leaf is None:
        return
    try:
        leaf(value)
    except ValidationError as error:
        raise ValidationError(error.detail, path=path, rule=error.rule) from None


def is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value is a mapping, which stands for a JSON object."""
    return isinstance(value, dict) or isinstance(value, Mapping)  # noqa: SIM101 - the first is quick


def is_list(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Return whether a value is a list or a tuple, which stand for a JSON array."""
    return isinstance(value, list | tuple)


def path_step(key: str | int) -> str:
    """Return one step of a path as text: `.name`, `[3]` or `['odd name']`."""
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
    """Return what a value is, in JSON's words where it has one, such as `text` or `an object`."""
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def quote_value(value: object) -> str:
    """Return a text in quotes for an error message, shortened; of other values, what they are."""
    return repr(value[:_READABLE]) if isinstance(value, str) else kind_of(value)


def describe_number(value: object) -> str:
    """Return a number as text if it is short enough to read; of other values, what they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return kind_of(value)
    if isinstance(value, int) and value.bit_length() > _READABLE:
        return f"a number of {value.bit_length()} bits"
    return str(value)


_NAMES: Final[Mapping[type, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def check_fields(value: Struct) -> None:
    """Check every field of a struct against its annotation and the limits.

    This is for values that are rarely made. `Message` and the common parts check their fields one
    by one, which is faster. Objects and lists are frozen by the struct itself.

    >>> from palaver.messages.part_base import Position
    >>> Position(line="3", character=0)
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.line: must be a whole number, not text [schema]
    """
    for name, shown, kinds in _plan(type(value)):
        item = getattr(value, name)
        kind = type(item)
        if kind not in kinds and (kind is bool or not isinstance(item, kinds)):
            wanted = next(_NAMES.get(kind, kind.__name__) for kind in kinds)
            detail = f"must be {wanted}, not {kind_of(item)}"
            raise ValidationError(detail, path=f"$.{shown}")
        _check_leaf(item, f"$.{shown}")


@cache
def _plan(kind: type[Struct]) -> tuple[tuple[str, str, tuple[type, ...]], ...]:
    """Return the name, JSON name and types of each field that is neither object nor list."""
    found = ((field.name, field.encode_name, _kinds(field.type)) for field in fields(kind))
    return tuple(row for row in found if row[2])


def _kinds(annotation: Any) -> tuple[type, ...]:  # noqa: ANN401 - any annotation
    if isinstance(annotation, UnionType):
        parts = [_kinds(part) for part in get_args(annotation)]
        return tuple(kind for part in parts for kind in part) if all(parts) else ()
    if annotation is float:
        return (float, int)
    return () if get_origin(annotation) or not isinstance(annotation, type) else (annotation,)


_AROUND: Final = 8
"""Levels that a message, its parts and their fields put around a value that is measured alone."""


def replace_refused(value: object) -> object:
    r"""Return a JSON value with a replacement for every character or number beyond the limits.

    NUL and lone surrogates become U+FFFD, NaN and the infinities become null, and whole numbers
    beyond ±2^53 become text with their digits. Values that are too deep or too large stay as they
    are, and are refused later.

    >>> replace_refused({"a": "x\0", "b": float("inf"), "c": 2**60})
    {'a': 'x�', 'b': None, 'c': '1152921504606846976'}
    """
    return _replace(value, MAX_DEPTH + _AROUND)


def _replace(value: object, levels: int) -> object:
    if isinstance(value, str):
        return _replace_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -MAX_INT <= value <= MAX_INT else _digits(value)
    if levels and is_object(value):
        return {
            _replace_text(key): _replace(item, levels - 1)  # a key that is not text is unchanged
            for key, item in value.items()
        }
    if levels and is_list(value):
        return [_replace(item, levels - 1) for item in value]
    return value  # a leaf, or too deep: `freeze` refuses that with its path


def _replace_text(text: object) -> object:
    if not isinstance(text, str):
        return text
    # surrogates side by side that make one character are joined
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return joined.replace("\0", "\ufffd")


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python does not write thousands of digits in decimal
        return hex(value)


def refuse(owner: Struct | str, detail: str, path: str, rule: str) -> NoReturn:
    """Log and raise a `PartValidationError` for a part or its type, or for a tool part's state."""
    part: str = owner if isinstance(owner, str) else getattr(owner, "type", "tool")
    error = PartValidationError(detail, path=path, rule=rule, part=part)
    _log.error("%s", error)
    raise error


def check_value(
    owner: Struct | str,
    check: Callable[[Any, str], None],
    value: object,
    path: str,
    rule: str | None = None,
) -> None:
    """Check one value of a part or a state; an error of the rule `schema` gets the given rule."""
    try:
        check(value, path)
    except ValidationError as error:
        chosen = rule if rule and error.rule == "schema" else error.rule
        refuse(owner, error.detail, error.path, chosen)


def check_all(part: PartBase) -> None:
    """Check the ids, and every other field by its annotation."""
    check_ids(part)
    try:
        check_fields(part)
    except ValidationError as error:
        refuse(part, error.detail, error.path, error.rule)


def freeze_field(owner: Struct, name: str, value: object) -> None:
    """Replace an object of a part or a state by a frozen copy."""
    try:
        frozen = freeze_mapping(value, f"$.{name}")
    except ValidationError as error:
        refuse(owner, error.detail, error.path, error.rule)
    if frozen is not value:
        force_setattr(owner, name, frozen)


def check_ids(part: PartBase) -> None:
    """Check that a part has an id and the UUIDs of its session and its message."""
    part_id = part.id
    try:
        require_uuid(part.session_id)
        require_uuid(part.message_id)
        if is_name(part_id):
            return
    except (AttributeError, TypeError, ValueError):
        pass
    _explain_ids(part)


def _explain_ids(part: PartBase) -> NoReturn:
    names = (("id", part.id), ("sessionID", part.session_id), ("messageID", part.message_id))
    for name, value in names:
        check_value(part, lambda item, path: check_name(item, path, "part-id"), value, f"$.{name}")
    name, value = names[2] if is_uuid(part.session_id) else names[1]
    refuse(part, f"must be a UUID, not {value[:80]!r}", f"$.{name}", "not-a-uuid")
