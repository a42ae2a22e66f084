"""Async twins: `acreate` awaits in the event loop what `create` does in a worker thread.

There is one implementation of everything, the synchronous one. A twin is a line in the class body,
`acreate = in_thread(create)`, with the parameters and the result of its method.
"""

from __future__ import annotations

from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["in_thread"]

_Self = TypeVar("_Self")
_P = ParamSpec("_P")
_T = TypeVar("_T")


def in_thread(
    method: Callable[Concatenate[_Self, _P], _T],
) -> Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]]:
    """Return the async twin of a method: the same, in a worker thread.

    A task that is cancelled meanwhile raises once the method has returned: what it changes is
    changed completely, or was not begun. A subclass that overrides the method has its own twin.

    >>> import anyio, palaver
    >>> store = palaver.open(":memory:")
    >>> async def main():
    ...     history = await store.acreate([palaver.user("hello")])
    ...     return (await history.amessages())[0].text
    >>> anyio.run(main)
    'hello'
    """
    name = method.__name__

    async def twin(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        from palaver.stores.lease import run_shielded  # noqa: PLC0415 - loads asyncio

        return await run_shielded(partial(getattr(self, name), *args, **kwargs))

    update_wrapper(twin, method)
    twin.__name__ = f"a{name.lstrip('_')}"
    twin.__qualname__ = method.__qualname__.removesuffix(name) + twin.__name__
    if not name.startswith("_"):
        twin.__doc__ = f"Do what `{name}` does, in a worker thread."
    return twin
