"""A team is killed with -9 again and again, at any moment, and comes to the same end."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

import palaver
from palaver.team import Coordinator, load_team
from tests.patience import within
from tests.profiles import scaled
from tests.team.members import WORKER, who

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = [f"a{place}" for place in range(8)]


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(scaled(10)))
def test_no_turn_is_lost_or_doubled_however_often_it_is_killed(
    seed: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Each calls the next, and at the end all of them once more in their order."""
    chance = random.Random(seed)  # noqa: S311 - which moment, and no secret
    file, store = tmp_path / "team.json", tmp_path / "chat.db"
    members = [
        {"kind": "command", "id": name, "argv": ["sh", "-c", f"sleep 0.05; echo '{said}'"]}
        for name, said in zip(
            NAMES, [*(f"[NEXT: {name}]" for name in NAMES[1:]), "Done."], strict=True
        )
    ]
    file.write_text(json.dumps({"members": [{"kind": "human", "id": "u"}, *members]}), "utf-8")
    with palaver.open(str(store)) as opened:
        coordinator = Coordinator(load_team(file), opened)
        conversation = coordinator.id
        anyio.run(coordinator.say, f"[NEXT: a0, {', '.join(f'{n}!P3' for n in NAMES[5:])}]")
        argv = [sys.executable, "-c", WORKER, str(file), str(store), conversation, str(tmp_path)]
        killed = 0
        with within(300):
            while True:
                process = subprocess.Popen(argv)
                try:
                    # too short for all turns at first, and then a little longer each time
                    assert 0 == process.wait(0.2 + chance.random() / 2 + killed / 20)
                    break
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    killed += 1
        record_property("killed", killed)
        assert killed
        # the three that wait with P3 each end the chain anew: a5 calls a6 and a7, a6 calls a7
        expected = ["u", *NAMES, "a5", "a6", "a7", "a6", "a7", "a7"]
        history = opened.get(conversation)
        assert sorted(expected) == sorted(map(who, history))
        assert expected[:9] == [who(message) for message in history][:9]
        assert [] == list(opened.verify())
