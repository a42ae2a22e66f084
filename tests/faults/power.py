"""Power cuts: what the disk may hold at any moment of a program is opened, checked and compared.

A program runs on a recording file system. Its recording is cut anywhere; what was not synced by
then is lost, kept, torn at sectors, or left as holes. Every such image must open, be whole, hold
every change that was acknowledged before the cut, and the one under way entirely or not at all.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING, Final

import palaver
from palaver.errors import PalaverError
from palaver.stores.sqlite import SQLiteBackend
from tests.faults.program import Expected, Program, picture
from tests.faults.recording import Disk, Event, recording, write_image
from tests.faults.scratch import scratch
from tests.faults.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.program import Picture

__all__ = ["NAME", "record", "run"]

NAME: Final = "power cut, SQLite"
GOAL: Final = "20,000 images, none corrupt, nothing acknowledged lost, nothing half there"
_STEPS: Final = 40
_IMAGES: Final = 250
"""Of one program at most, so that many programs are run."""
_WAYS: Final = ("lost", "kept", "prefix", "torn 512", "torn 4096", "holes 512", "holes 4096")


def run(count: int, seed: int) -> Tally:
    """Check so many different images."""
    tally = Tally(NAME, "images", GOAL)
    program = 0
    with scratch() as folder:
        while tally.faults < count:
            name = f"power/{seed}/{program}"
            _cut(name, record(name, folder / "run.db"), count, folder / "image.db", tally)
            program += 1
    return tally


def record(name: str, path: Path) -> list[Event]:
    """Run a program and write down all it does to the disk, and when each step began and ended."""
    program = Program(name)
    write_image({}, path)
    with recording() as recorder:
        store = program.over(SQLiteBackend(str(path), vfs="palaver-recording"))
        for number in range(_STEPS):
            recorder.events.append(Event("begin"))
            program.step(store, number)
            recorder.events.append(Event("ack"))
            if number % 15 == 14:  # twice: closing empties the write-ahead log
                store.close()
                store = program.over(SQLiteBackend(str(path), vfs="palaver-recording"))
        store.close()
    return recorder.events


def _cut(name: str, events: list[Event], count: int, path: Path, tally: Tally) -> None:
    draw = random.Random(name)  # noqa: S311 - no secret
    expected = Expected(name)
    checked: dict[bytes, Picture | str] = {}
    often = min(_IMAGES * 2 / len(events), 1.0)
    disk = Disk()
    begun = acked = new = 0
    for number, event in enumerate(events):
        if event.kind == "begin":
            begun += 1
        elif event.kind == "ack":
            acked += 1
        else:
            disk.take(event)
        if draw.random() > often:
            continue
        for way in draw.sample(_WAYS, 2) if disk.unsure else ["kept"]:
            files = disk.image(way, draw)
            digest = _digest(files)
            is_new = digest not in checked
            if is_new:
                new += 1
                checked[digest] = _look(files, path)
            failure = _compare(checked[digest], expected, acked, begun)
            story = f"{name}, event {number} of {len(events)}, {way}; acked {acked}; {failure}"
            if failure:
                tally.fail(failure.partition(":")[0], story)
            elif is_new:
                tally.count("whole")
            if new >= _IMAGES or tally.faults >= count:
                return


def _digest(files: dict[str, bytes]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for end, content in sorted(files.items()):
        found.update(f"{end} {len(content)} ".encode() + content)
    return found.digest()


def _look(files: dict[str, bytes], path: Path) -> Picture | str:
    """The picture of the store in an image, or what is wrong with it."""
    write_image(files, path)
    try:
        with palaver.open(path) as store:
            problems = list(store.verify())
            return f"corrupt: {problems[0]}" if problems else picture(store)
    except PalaverError as error:
        return f"corrupt: {error}"


def _compare(seen: Picture | str, expected: Expected, acked: int, begun: int) -> str:
    """Nothing, or what must not be."""
    if isinstance(seen, str):
        return seen
    steps = expected.which(seen, begun)
    if any(step >= acked for step in steps):
        return ""
    return f"lost: it is as after step {steps[-1]}" if steps else "half: it is as after no step"
