"""Events that were read before, and fresh copies of them.

A message never changes, and the event of a message that ADK wrote depends on that message alone. So
the event that pydantic's validators make of it when it is read the second time is remembered, never
given away, and copied from then on. A copy has its own models, lists, dicts and sets, and shares
with the original only what nobody can change: texts, numbers, bytes, members of an enum. An event
that holds anything else is not remembered, and made of its message every time.

What a copy has to make anew is found once, from the event itself: no field of ADK's is named here.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from palaver.adapters.adk.convert import original_event, to_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from google.adk.events.event import Event

    from palaver.messages.message import Message

__all__ = ["EventCache", "copier"]

_MOST: Final = 64
"""So many events of a conversation are remembered, of 8 kilobytes each if they say a text."""
_SHARED: Final = frozenset((str, int, float, bool, bytes, NoneType))

# What pydantic keeps in a model, written without the model's own `__setattr__`, as its
# `model_construct` and `__setstate__` do.
_new: Final = object.__new__
_set_fields: Final = BaseModel.__dict__["__dict__"].__set__
_set_given: Final = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra: Final = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private: Final = BaseModel.__dict__["__pydantic_private__"].__set__


_Known = dict[int, tuple["Message", "Callable[[], Event] | None"]]
"""What makes the event of a message, None if it was read once: that may have been all.

By the identity of the message, which is held here: no other can have it meanwhile.
"""


class EventCache:
    """The events of one conversation that were read last."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: _Known = {}

    def clear(self) -> None:
        """Forget all events: some may have been erased."""
        self._known = {}

    def events(self, messages: Sequence[Message], author: str) -> list[Event]:
        """Return the events of messages; those that were erased are left out.

        `author` is the agent that answers of other programs are taken for, until one has spoken.
        """
        known = self._known
        first = len(messages) - _MOST  # of more than that, the last are remembered
        found: list[Event] = []
        invocation = ""
        for index, message in enumerate(messages):
            _, copy = known.get(id(message), (message, None))
            event = original_event(message) if copy is None else copy()
            if event is None:
                event = to_event(message, author=author, invocation_id=invocation)
                if event is None:
                    continue
            elif copy is None and index >= first:
                event = _remember(known, message, event)
            invocation = event.invocation_id
            author = author if event.author == "user" else event.author
            found.append(event)
        return found


def _remember(known: _Known, message: Message, event: Event) -> Event:
    """Remember the event of a message that was read before; return what may be given away."""
    copy: Callable[[], Any] | None = None
    if id(message) in known:
        with suppress(TypeError):
            copy = copier(event)
    elif len(known) >= _MOST:
        for oldest in list(known)[: len(known) - _MOST + 1]:
            known.pop(oldest, None)
    known[id(message)] = message, copy
    return event if copy is None else copy()


def copier(value: Any) -> Callable[[], Any] | None:  # noqa: ANN401 - of any kind
    """Return what makes a copy of a value, as often as it is called; None if it can be shared.

    The value itself must not be changed from then on. Raises `TypeError` for a value of a kind that
    is not known.

    >>> from google.adk.events.event import Event
    >>> first = Event(author="ada")
    >>> copy = copier(first)
    >>> copy() == first, copy().actions is first.actions
    (True, False)
    """
    kind = type(value)
    if kind in _SHARED or isinstance(value, Enum):
        return None
    if isinstance(value, BaseModel):
        return _model_copier(value)
    if kind is dict:
        return _container_copier(value, value.items())
    if kind is list:
        return _container_copier(value, enumerate(value))
    if kind is set and all(copier(each) is None for each in value):
        return value.copy  # type: ignore[no-any-return]
    raise TypeError(f"{kind.__name__} is not copied")


def _copiers(items: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Callable[[], Any]]]:
    """Return the copiers of those that can't be shared, by key or index."""
    return [(key, copy) for key, value in items if (copy := copier(value)) is not None]


def _container_copier(value: Any, items: Iterable[tuple[Any, Any]]) -> Callable[[], Any]:  # noqa: ANN401 - a dict or a list
    parts = _copiers(items)
    shallow: Callable[[], Any] = value.copy
    if not parts:
        return shallow

    def make() -> Any:  # noqa: ANN401 - a dict or a list
        made = shallow()
        for key, copy in parts:
            made[key] = copy()
        return made

    return make


def _model_copier(model: BaseModel) -> Callable[[], BaseModel]:
    kind = type(model)
    if model.__pydantic_private__ is not None or model.__pydantic_extra__ is not None:
        raise TypeError(f"{kind.__name__} has more than fields")
    parts = _copiers(model.__dict__.items())
    copy_fields, copy_given = model.__dict__.copy, model.__pydantic_fields_set__.copy

    def make() -> BaseModel:
        made = _new(kind)
        fields = copy_fields()
        for name, copy in parts:
            fields[name] = copy()
        _set_fields(made, fields)
        _set_given(made, copy_given())
        _set_extra(made, None)
        _set_private(made, None)
        return made

    return make
