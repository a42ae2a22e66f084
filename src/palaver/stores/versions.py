"""The versions of a kept conversation: frames are at hand, where each tail ended is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palaver.stores.protocol import Keeper

__all__ = ["StoredStops"]


class StoredStops:
    """Where the tail ended at each version: the latest are known, older ones are looked up."""

    __slots__ = ("_first", "_keeper", "_known", "_name")

    def __init__(self, keeper: Keeper, name: str, version: int, stop: int) -> None:
        """Know one version, the last."""
        self._keeper = keeper
        self._name = name
        self._first = version
        self._known = [stop]

    def __len__(self) -> int:
        """How many versions there are."""
        return self._first + len(self._known)

    def __getitem__(self, version: int) -> int:
        """Where the tail ended at a version."""
        if version >= self._first:
            return self._known[version - self._first]
        return self._keeper.stop(self._name, version)

    def append(self, stop: int) -> None:
        """The next version."""
        self._known.append(stop)

    def catch_up(self, version: int, stop: int) -> None:
        """Others have made versions meanwhile."""
        self._first, self._known = version, [stop]
