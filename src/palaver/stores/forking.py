"""What a fork of the process (`os.fork`, `multiprocessing`) means for open stores.

A connection must not be used by two processes: both would speak on one socket, and SQLite takes the
parent's file locks for the child's own. And a lock that another thread held at the moment of the
fork stays locked in the child for ever, because that thread is not there.

Two kinds of objects register here. What must be at rest while the process forks (`rest_for_fork`)
is held before the fork and released on both sides of it. What only has to begin anew in the child
(`restart_in_child`) is told so there. Registering holds no object alive, and a program that never
forks pays for nothing else.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Restarting", "Resting", "leak", "rest_for_fork", "restart_in_child"]

_log: Final = logging.getLogger("palaver")
_PATIENCE: Final = 10.0
_TURN: Final = 0.25


class Resting(Protocol):
    """An object that no other thread may be using at the moment of a fork."""

    def hold_for_fork(self, seconds: float) -> bool:
        """Keep every other thread from it; False where that takes longer than this."""
        ...

    def before_fork(self) -> None:
        """Let go of what a child must not have; it is held."""
        ...

    def resume_after_fork(self) -> None:
        """Let the others go on, in the parent or where holding was given up."""
        ...

    def after_fork_in_child(self, *, held: bool) -> None:
        """Begin anew in the child; `held` is False where it was in use at the fork."""
        ...


class Restarting(Protocol):
    """An object that begins anew in a child."""

    def after_fork_in_child(self) -> None:
        """Begin anew, without the locks and connections of the parent."""
        ...


_resting: Final[WeakSet[Any]] = WeakSet()
_restarting: Final[WeakSet[Any]] = WeakSet()
_first: Final[list[Restarting]] = []
_forking: Final = threading.Lock()
_held: Final[list[Resting]] = []


def rest_for_fork(resource: Resting) -> None:
    """Hold this object while the process forks."""
    _resting.add(resource)


def restart_in_child(resource: Restarting, *, first: bool = False) -> None:
    """Tell this object when it finds itself in a child.

    One that has to be told `first`, before others let go of what they have, stays for ever.
    """
    if first:
        _first.append(resource)
    else:
        _restarting.add(resource)


class RestingCondition(threading.Condition):
    """A condition whose lock is held while the process forks: a child sees no half change."""

    def __init__(self) -> None:
        """Begin with a lock that nobody holds."""
        super().__init__(threading.RLock())
        rest_for_fork(self)

    def hold_for_fork(self, seconds: float) -> bool:
        """Keep every other thread out."""
        return self.acquire(timeout=seconds)

    def before_fork(self) -> None:
        """Nothing to let go of."""

    def resume_after_fork(self) -> None:
        """Let every other thread go on."""
        self.release()

    def after_fork_in_child(self, *, held: bool) -> None:
        """Begin with another lock that nobody holds, and with nobody who waits."""
        del held
        super().__init__(threading.RLock())


def leak(resource: object) -> None:
    """Never finalise an object: its finaliser would act on what belongs to the parent."""
    import ctypes  # noqa: PLC0415 - only in a child

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(resource))


def _before() -> None:
    """Hold everything, or give all of it back and try again: someone may wait for two of them."""
    _forking.acquire()
    end = time.monotonic() + _PATIENCE
    while True:
        for resource in _members(_resting):
            if resource.hold_for_fork(max(min(_TURN, end - time.monotonic()), 0)):
                _held.append(resource)
            elif time.monotonic() < end:
                break
        else:
            break
        while _held:
            _held.pop().resume_after_fork()
        time.sleep(0.005)
    for resource in _held:
        resource.before_fork()


def _after_in_parent() -> None:
    while _held:
        _held.pop().resume_after_fork()
    _forking.release()


def _after_in_child() -> None:
    held = [*_held]
    _held.clear()
    _forking.release()
    for early in _first:
        _restart(early.after_fork_in_child)
    for resource in _members(_resting):
        known = any(resource is each for each in held)
        _restart(partial(resource.after_fork_in_child, held=known))
    for restarting in _members(_restarting):
        _restart(restarting.after_fork_in_child)


def _restart(restart: Callable[[], None]) -> None:
    """Have one object begin anew; what goes wrong there must not keep the others from it."""
    try:
        restart()
    except Exception:  # noqa: BLE001 - whatever it is, it is logged
        _log.exception("a store could not be made ready in a forked process")


def _members(objects: WeakSet[Any]) -> list[Any]:
    """The objects that are registered; other threads may register more meanwhile."""
    while True:
        try:
            return list(objects)
        except RuntimeError:  # the set changed its size while it was read
            continue


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
