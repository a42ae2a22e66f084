"""Keeps open stores safe when the process forks (`os.fork`, `multiprocessing`).

Two processes must not use one connection: both would write to one socket, and SQLite takes the
parent's file locks for the child's own. And a lock that another thread held at the moment of the
fork stays locked in the child for ever, because that thread does not exist there.

Two kinds of objects register here. One that must be idle while the process forks (`rest_for_fork`)
is locked before the fork and released on both sides of it. One that only has to reset itself in the
child (`restart_in_child`) is called there. Registering keeps no object alive.
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

__all__ = [
    "ReopeningLock",
    "Restarting",
    "Resting",
    "RestingCondition",
    "leak",
    "rest_for_fork",
    "restart_in_child",
]

_log: Final = logging.getLogger("palaver")
_PATIENCE: Final = 10.0
_TURN: Final = 0.25


class Resting(Protocol):
    """An object that no other thread may be using at the moment of a fork."""

    def hold_for_fork(self, seconds: float) -> bool:
        """Keep other threads from using it; False if that takes longer than this."""
        ...

    def before_fork(self) -> None:
        """Release what a child must not have; called while it is held."""
        ...

    def resume_after_fork(self) -> None:
        """Let the other threads go on, in the parent or after holding was given up."""
        ...

    def after_fork_in_child(self, *, held: bool) -> None:
        """Reset in the child; `held` is False if it was in use at the fork."""
        ...


class Restarting(Protocol):
    """An object that resets itself in a child."""

    def after_fork_in_child(self) -> None:
        """Reset, without the locks and connections of the parent."""
        ...


class ReopeningLock:
    """Stands in for the lock of a history that was forked in the middle of a change.

    Whoever takes it first has the history read again from its store; then it has a lock again.
    """

    def __init__(self, reopen: Callable[[], threading.RLock]) -> None:
        """Take what reads the history again and returns its new lock."""
        self._reopen = reopen
        self._gate = threading.Lock()
        self._lock: threading.RLock | None = None

    def __enter__(self) -> None:
        """Take it."""
        self.acquire()

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self.release()

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take the lock of the reopened history; False if the caller may not wait for that."""
        if not blocking:
            return False
        with self._gate:
            if self._lock is None:
                self._lock = self._reopen()
        return self._lock.acquire()

    def release(self) -> None:
        """Release the lock of the reopened history."""
        if self._lock is not None:
            self._lock.release()


_resting: Final[WeakSet[Any]] = WeakSet()
_restarting: Final[WeakSet[Any]] = WeakSet()
_first: Final[list[Restarting]] = []
_forking: Final = threading.Lock()
_held: Final[list[Resting]] = []


def rest_for_fork(resource: Resting) -> None:
    """Hold this object while the process forks."""
    _resting.add(resource)


def restart_in_child(resource: Restarting, *, first: bool = False) -> None:
    """Call this object's `after_fork_in_child` in a child process.

    One that must be called `first`, before the others, stays registered for ever.
    """
    if first:
        _first.append(resource)
    else:
        _restarting.add(resource)


class RestingCondition(threading.Condition):
    """A condition whose lock is held while the process forks, so a child sees no half change."""

    def __init__(self) -> None:
        """Create the condition with a lock that nobody holds."""
        super().__init__(threading.RLock())
        rest_for_fork(self)

    def hold_for_fork(self, seconds: float) -> bool:
        """Keep other threads out."""
        return self.acquire(timeout=seconds)

    def before_fork(self) -> None:
        """Do nothing: there is nothing to release."""

    def resume_after_fork(self) -> None:
        """Let other threads go on."""
        self.release()

    def after_fork_in_child(self, *, held: bool) -> None:
        """Take a new lock that nobody holds, without waiters."""
        del held
        super().__init__(threading.RLock())


def leak(resource: object) -> None:
    """Never finalise an object: its finaliser would act on something that belongs to the parent."""
    import ctypes  # noqa: PLC0415 - only in a child

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(resource))


def _before() -> None:
    """Hold every object, or release all and try again: a thread may wait for two of them."""
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
    """Reset one object; an error there must not stop the others from being reset."""
    try:
        restart()
    except Exception:  # noqa: BLE001 - whatever it is, it is logged
        _log.exception("a store could not be made ready in a forked process")


def _members(objects: WeakSet[Any]) -> list[Any]:
    """Return the registered objects; other threads may register more meanwhile."""
    while True:
        try:
            return list(objects)
        except RuntimeError:  # the set changed its size while it was read
            continue


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
