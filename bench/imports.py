"""What `import palaver` costs: time, memory, modules; each in fresh interpreters.

The time is taken inside the new interpreter, around the import alone, so that starting Python does
not make the ratio look better. `import palaver` loads the rest when it is first used; the row for
`palaver.messages` is what that comes to.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.harness import AtMost, Below, Row, Run, against_floor, medians

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["rows"]

_CODE: Final = """
import sys, time
name = sys.argv[1]
begin = time.perf_counter()
if name:
    __import__(name)
took = time.perf_counter() - begin
import json
try:
    with open("/proc/self/status") as file:
        memory = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
except OSError:
    import resource
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
json.dump([took * 1000, memory / 1024, len(sys.modules), "asyncio" in sys.modules], sys.stdout)
"""
_BARE: Final = ""


class _Sample(NamedTuple):
    """One fresh interpreter: the import's milliseconds, megabytes in all, modules, asyncio."""

    took: float
    memory: float
    modules: int
    asyncio: bool


def _sample(name: str) -> _Sample:
    command = [sys.executable, "-I", "-c", _CODE, name]  # -I: whatever PYTHON… says
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own Python
    return _Sample(*json.loads(done.stdout))


def rows(run: Run) -> Iterator[Row]:
    """Import palaver, palaver.messages and msgspec in turn, many times over."""
    names = (_BARE, "msgspec", "palaver", "palaver.messages")
    for name in names:
        _sample(name)  # the first writes the bytecode
    count = run.rounds(60)
    samples: dict[str, list[_Sample]] = {name: [] for name in names}
    for number in range(count):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(_sample(name))
    took = medians({name: [one.took for one in found] for name, found in samples.items()})
    memory = medians({name: [one.memory for one in found] for name, found in samples.items()})
    own = {name: value - memory[_BARE] for name, value in memory.items()}
    for name in names[2:]:
        light = not any(sample.asyncio for sample in samples[name])
        yield against_floor(
            f"import {name}",
            took[name],
            took["msgspec"],
            n=count,
            goal=AtMost(2),
            note="floor: import msgspec; median of fresh interpreters, the import alone",
        )
        yield against_floor(
            f"import {name}, memory",
            own[name],
            own["msgspec"],
            n=count,
            unit="MB",
            goal=Below(15, "MB"),
            note="resident memory above a bare interpreter; floor: import msgspec",
        )
        yield against_floor(
            f"import {name}, asyncio loaded",
            0 if light else 1,
            0,
            n=count,
            unit="count",
            goal=Below(1, "asyncio"),
            note=f"{samples[name][0].modules} modules loaded in all; "
            f"msgspec loads {samples['msgspec'][0].modules}",
        )
