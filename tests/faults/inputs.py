"""I/O errors and full disks: every system call of a script of fifty changes fails once.

A change that returned must be there; one that raised must not, in this process and after opening
again, and doing it once more must work, in the same store. Only errors of a store may come out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from palaver.errors import StoreError
from palaver.stores.sqlite import SQLiteBackend
from tests.faults.failing import Calls, failing_calls, failing_syncs
from tests.faults.program import Expected, Program, deleted_already, picture
from tests.faults.recording import eager_checkpoints, write_image
from tests.faults.scratch import scratch
from tests.faults.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path

    from palaver.stores.store import Store

__all__ = ["CHANGES", "NAME", "run"]

NAME: Final = "I/O error and full disk, SQLite"
GOAL: Final = "every call of a script of 50 changes, none falsely acknowledged"
CHANGES: Final = 50
_WARM: Final = 2
"""Steps that a store does before the one that fails, so that it is well under way."""


def run(every: int, seed: int, *, changes: int = CHANGES) -> Tally:
    """Fail every so-manieth call of a script: once, as a full disk, and as a sync that fails."""
    tally = Tally(NAME, "failing calls", GOAL)
    script = _Script(f"inputs/{seed}", changes)
    with scratch() as folder:
        script.take_snapshots(folder / "script.db")
        with failing_calls() as calls, eager_checkpoints():
            for full in (False, True):
                _Campaign(script, calls, folder / "store.db", tally, full=full).run(every)
        with failing_syncs() as syncs:
            path = folder / "synced.db"
            _Campaign(script, syncs, path, tally, vfs="palaver-syncs").run(every)
    return tally


class _Script:
    """A program, what a store's file is before each of its steps, and what it must look like."""

    def __init__(self, name: str, changes: int) -> None:
        self.name = name
        self.changes = changes
        self.expected = Expected(name)
        self.files: list[dict[str, bytes]] = []

    def take_snapshots(self, path: Path) -> None:
        for number in range(self.changes):
            self.files.append({"": path.read_bytes()} if path.exists() else {})
            program = Program(self.name)
            with program.open(path) as store:
                program.step(store, number)


class _Campaign:
    """One kind of failure, at every call."""

    def __init__(
        self, script: _Script, calls: Calls, path: Path, tally: Tally, *,
        full: bool = False, vfs: str | None = None,
    ) -> None:  # fmt: skip
        self.script = script
        self.calls = calls
        self.path = path
        self.tally = tally
        self.full = full
        self.vfs = vfs

    def run(self, every: int) -> None:
        called = 0
        for number in range(self.script.changes):
            opens = number in (0, self.script.changes // 2)
            for while_opening in (True, False) if opens else (False,):
                at = -called % every
                while self._trial(number, at, while_opening=while_opening):
                    at += every
                called += self.calls.seen

    def _trial(self, number: int, at: int, *, while_opening: bool) -> bool:
        """Fail one call of a step, or of opening a store before it; False beyond the last."""
        first = number if while_opening else max(number - _WARM, 0)
        write_image(self.script.files[first], self.path)
        program = Program(self.script.name)
        what = "full disk" if self.full else "I/O error"
        story = f"{self.script.name}, step {number}, call {at}, {what}: "
        failure = ""
        try:
            if while_opening:
                store = self._open_failing(program, at)
            else:
                store = self._open(program)
                for before in range(first, number):
                    program.step(store, before)
                failure = self._step_failing(program, store, number, at)
            if while_opening and self.calls.failed:
                program.step(store, number)
        except Exception as error:  # noqa: BLE001 - that it is another is what is told
            failure = f"another error: {error!r}"
            store = None
        if self.calls.failed is None and not failure:
            if store is not None:
                store.close()
            return False
        failure = failure or self._look(program, store, number)
        if failure:
            self.tally.fail(failure.partition(":")[0], f"{story}{self.calls.failed} {failure}")
        return self.calls.failed is not None

    def _open(self, program: Program) -> Store:
        return program.over(SQLiteBackend(str(self.path), vfs=self.vfs))

    def _open_failing(self, program: Program, at: int) -> Store:
        self.calls.arm(at, full=self.full)
        try:
            store = self._open(program)
        except StoreError:
            self.calls.disarm()
            self.tally.count("refused, then done")
            store = self._open(program)
        else:
            if self.calls.failed is not None:
                self.tally.count("done all the same")
        finally:
            self.calls.disarm()
        return store

    def _step_failing(self, program: Program, store: Store, number: int, at: int) -> str:
        """Do a step with a failing call, and again where it was refused."""
        before, after = self.script.expected.after(number), self.script.expected.after(number + 1)
        self.calls.arm(at, full=self.full)
        try:
            program.step(store, number)
        except StoreError:
            self.calls.disarm()
            seen = picture(store)
            if seen not in (before, after):
                return "half: it is as neither before nor after"
            done = seen != before and seen == after
            self.tally.count("refused, but there" if done else "refused, then done")
            if done:
                program.look_again()
            else:
                self._again(program, store, number)
        else:
            if self.calls.failed is not None:
                self.tally.count("done all the same")
        finally:
            self.calls.disarm()
        return ""

    def _again(self, program: Program, store: Store, number: int) -> None:
        try:
            program.step(store, number)
        except StoreError as error:
            if not deleted_already(error, self.script.expected.names[number]):
                raise

    def _look(self, program: Program, store: Store | None, number: int) -> str:
        """Nothing, or what is wrong with a store that did a step."""
        if store is None:
            return ""
        try:
            program.step(store, number + 1)
            after = self.script.expected.after(number + 2)
            if picture(store) != after:
                return "lost or doubled: in the same process"
            store.close()
            with Program(self.script.name).open(self.path) as again:
                if problems := list(again.verify()):
                    return f"corrupt: {problems[0]}"
                return "" if picture(again) == after else "lost or doubled: after opening again"
        except Exception as error:  # noqa: BLE001 - any is a store that can't be used
            return f"unusable: {error!r}"
