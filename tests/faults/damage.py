"""Damaged files: bits flipped, stretches zeroed, swapped or filled with noise, files cut off.

Opening, proving, reading and changing such a store is tried in a process of its own. Damage must be
reported (an error of a store, or a line of `verify`) or be harmless: what the store says is what it
said before. No crash, no hang, no other error.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

import palaver
from palaver.errors import NothingToUndo, StoreError
from palaver.messages import user
from tests.faults.nursery import HUNG, Ledger, Nursery
from tests.faults.program import Program, picture
from tests.faults.recording import write_image
from tests.faults.scratch import scratch
from tests.faults.tally import Tally

if TYPE_CHECKING:
    from palaver.stores.store import Store

__all__ = ["NAME", "run"]

NAME: Final = "damaged file, SQLite"
GOAL: Final = "2,000 damages, reported or harmless, no crash, no hang"
_STEPS: Final = 60
_PAGE: Final = 4096
_GROUP: Final = 25
"""Damages tried by one process."""
_LIMIT: Final = 60.0


def run(count: int, seed: int) -> Tally:
    """Try so many damages."""
    tally = Tally(NAME, "damages", GOAL)
    with scratch() as folder, Nursery() as nursery:
        whole = folder / "whole.db"
        _make(whole, seed)
        done = 0
        while done < count:
            stop = min(done + _GROUP, count)
            done = _group(nursery, whole, range(done, stop), seed, tally)
    return tally


def _make(path: Path, seed: int) -> None:
    program = Program(f"damage/{seed}")
    with program.open(path) as store:
        for number in range(_STEPS):
            program.step(store, number)
        store.search("tea")


def _group(nursery: Nursery, whole: Path, numbers: range, seed: int, tally: Tally) -> int:
    """Have a process try some damages; answer the number of the next."""
    ledger = whole.with_name("ledger")
    ledger.unlink(missing_ok=True)
    args = [str(whole), seed, numbers.start, numbers.stop]
    status = nursery.run("tests.faults.damage:child", args, ledger, limit=_LIMIT)
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    number = numbers.start
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "ok":
            tally.count(rest)
            number += 1
        elif kind == "bad":
            failure, _, story = rest.partition(": ")
            tally.fail(failure, story)
            number += 1
    if status:
        story = f"damage {number} of seed {seed}, status {status} {lines[-1:]}"
        tally.fail("hang" if status == HUNG else "crash", story)
        number += 1
    return number


def child(ledger: Ledger, whole: str, seed: int, start: int, stop: int) -> None:
    """Try damages, and tell what came of each."""
    content = Path(whole).read_bytes()
    path = Path(whole).with_name("damaged.db")
    with palaver.open(whole) as store:
        expected = picture(store)
    for number in range(start, stop):
        draw = random.Random(f"damage/{seed}/{number}")  # noqa: S311 - no secret
        kind, damaged = damage(content, draw)
        write_image({"": damaged}, path)
        try:
            outcome = _look(path, expected)
        except Exception as error:  # noqa: BLE001 - that it is another is what is told
            said = json.dumps(repr(error)[:300])
            outcome = f"another error: {said}"
        bad = ": " in outcome
        if bad:
            outcome += f" (damage {number} of seed {seed}, {kind})"
        ledger.write(f"{'bad' if bad else 'ok'} {outcome}")


def damage(content: bytes, draw: random.Random) -> tuple[str, bytes]:
    """Some damage, and what is left."""
    kind = draw.choice(["bit", "bit", "bits", "cut", "zeros", "noise", "swap", "byte"])
    left = bytearray(content)
    if kind == "cut":
        del left[draw.randrange(len(left)) :]
    elif kind == "swap":
        one, two = (draw.randrange(len(left) // _PAGE) * _PAGE for _ in "ab")
        left[one : one + _PAGE], left[two : two + _PAGE] = (
            left[two : two + _PAGE], left[one : one + _PAGE],
        )  # fmt: skip
    elif kind in ("zeros", "noise"):
        size = draw.choice([16, 512, _PAGE])
        start = draw.randrange(len(left) - size)
        left[start : start + size] = bytes(size) if kind == "zeros" else draw.randbytes(size)
    else:
        for _ in range({"bit": 1, "byte": 1, "bits": 8}[kind]):
            place = draw.randrange(len(left) if draw.random() < 0.8 else 2 * _PAGE)
            left[place] = (
                draw.randrange(256) if kind == "byte" else left[place] ^ 1 << draw.randrange(8)
            )
    return kind, bytes(left)


def _look(path: Path, expected: tuple[str, ...]) -> str:
    """What came of opening, proving, reading and changing a store."""
    try:
        store = palaver.open(path)
    except StoreError:
        return "refused"
    with store:
        lines = list(store.verify())
        try:
            seen = picture(store)
        except StoreError:
            if not lines:
                return "unproved: verify found nothing, reading failed"
            seen = ()
        _use(store)
        if lines:
            return "reported"
        if seen == expected:
            return "harmless"
        return f"unnoticed: verify found nothing amiss, {_difference(seen, expected)}"


def _difference(seen: tuple[str, ...], expected: tuple[str, ...]) -> str:
    """Where two pictures differ."""
    if len(seen) != len(expected):
        return f"{len(seen)} conversations of {len(expected)}"
    pairs = [(json.loads(one), json.loads(two)) for one, two in zip(seen, expected, strict=True)]
    return ", ".join(f"{two['id']}: {key}" for one, two in pairs for key in two
                     if one.get(key) != two[key])  # fmt: skip


def _use(store: Store) -> None:
    """Use a store in many ways; errors of a store are an answer."""
    try:
        names = [head.id for head in store]
    except StoreError:
        return
    for name in names:
        for use in (
            lambda name=name: store.get(name).append(user("more")),
            lambda name=name: store.get(name).truncate(keep_last=2),
            lambda name=name: store.get(name).undo(),
            lambda name=name: list(store.get(name).at(0)),
        ):
            try:
                use()
            except (StoreError, NothingToUndo):
                continue
    try:
        store.search("tea")
    except StoreError:
        return
