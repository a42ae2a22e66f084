"""Every version of a history: the frame it belongs to, and the place where its tail ended.

Appending moves the end of the tail and leaves the frame as it is, so most versions are one number.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Protocol

from palaver.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.history.frame import Frame, Redo

__all__ = ["Stops", "Versions"]


class Stops(Protocol):
    """Where the tail ended, by version."""

    def __len__(self) -> int:
        """How many versions there are."""
        ...

    def __getitem__(self, version: int, /) -> int:
        """Where the tail ended at a version."""
        ...

    def append(self, stop: int, /) -> None:
        """Add the next version."""
        ...


class Versions:
    """Frames and stops, by version. `stops` has one entry for each version."""

    __slots__ = ("_firsts", "_frames", "stops")

    def __init__(self, frame: Frame, stop: int) -> None:
        """Begin with version 0."""
        self.stops: Stops = array("Q", [stop])
        self._frames = [frame]
        self._firsts = array("Q", [0])  # the first version of each frame

    @classmethod
    def of(cls, frames: Sequence[tuple[int, Frame]], stops: Stops) -> Versions:
        """Versions that were kept elsewhere: frames with the first version of each, and stops."""
        versions = cls(frames[0][1], 0)
        versions.stops = stops
        for version, frame in frames[1:]:
            versions.learn(frame, version)
        return versions

    def learn(self, frame: Frame, version: int) -> None:
        """Note a frame that was in force from a version on."""
        self._frames.append(frame)
        self._firsts.append(version)

    def begin(self, frame: Frame) -> None:
        """From the next version on, this is the frame."""
        self.learn(frame, len(self.stops))

    def add(self, frame: Frame, stop: int) -> None:
        """Make the next version."""
        self.begin(frame)
        self.stops.append(stop)

    def frame(self, version: int) -> Frame:
        """The frame of a version."""
        if type(version) is not int or not 0 <= version < len(self.stops):
            detail = f"must be a version from 0 to {len(self.stops) - 1}, not {version!r}"
            raise ValidationError(detail, path="$.version", rule="HI-13")
        return self._frames[self._place(version)]

    def back(self, version: int) -> int | None:
        """The version that undo returns to from this one."""
        place = self._place(version)
        return version - 1 if version > self._firsts[place] else self._frames[place].back

    def redo(self, version: int) -> Redo | None:
        """What redo brings back at this version; an append ends that."""
        place = self._place(version)
        return None if version > self._firsts[place] else self._frames[place].redo

    def _place(self, version: int) -> int:
        return bisect_right(self._firsts, version) - 1
