from __future__ import annotations

import gc
import importlib
import json
from pathlib import Path

import pytest

import bench
from bench.__main__ import main
from bench.corpus import session
from bench.harness import (
    AtLeast,
    AtMost,
    Below,
    Row,
    Run,
    against_floor,
    against_peer,
    medians,
    save,
    table,
    timed,
)
from palaver.messages import parse_messages

FIELDS = {"name", "palaver", "ratio", "n", "unit", "goal", "met", "note"}
RESULTS = Path(bench.__file__).parent / "results.json"


def test_a_floors_ratio_is_how_much_slower_and_a_peers_how_much_faster() -> None:
    assert 1.5 == against_floor("a", 3, 2, n=1).ratio
    assert 4 == against_peer("a", 2, 8, n=1).ratio
    assert 0 == against_floor("nothing beside nothing", 0, 0, n=1).ratio


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (against_floor("a", 4, 2, n=1, goal=AtMost(2)), True),
        (against_floor("a", 5, 2, n=1, goal=AtMost(2)), False),
        (against_peer("a", 1, 5, n=1, goal=AtLeast(5)), True),
        (against_peer("a", 1, 4, n=1, goal=AtLeast(5)), False),
        (against_floor("a", 14, 2, n=1, goal=Below(15, "MB")), True),
        (against_floor("a", 15, 2, n=1, goal=Below(15, "MB")), False),
        (against_floor("a", 15, 2, n=1), None),
    ],
)
def test_goals(row: Row, met: bool | None) -> None:  # noqa: FBT001 - the expected value
    assert met is row.met


def test_the_table_says_which_goals_are_missed() -> None:
    rows = [against_floor("a", 5, 2, n=1, goal=AtMost(2)), against_peer("b", 1, 2, n=1)]
    assert ["MISSED", "1"] == [line.split()[-1] for line in table(rows).splitlines()[1:]]


def test_contenders_take_turns_with_the_collector_off() -> None:
    seen: list[tuple[str, int, bool]] = []
    took = timed(
        2,
        {
            "a": lambda number: seen.append(("a", number, gc.isenabled())),
            "b": lambda number: seen.append(("b", number, gc.isenabled())),
        },
        repeats=1,
    )
    assert [("a", 0, False), ("b", 0, False), ("b", 1, False), ("a", 1, False)] == seen
    assert {"a", "b"} == took.keys()
    assert gc.isenabled()


def test_medians() -> None:
    assert {"a": 2} == medians({"a": [9, 1, 2]})


def test_a_quick_run_has_few_rounds() -> None:
    assert (60, 6, 3) == (Run().rounds(60), Run(quick=True).rounds(60), Run(quick=True).rounds(5))


def test_saving_keeps_what_was_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    save([against_floor("a", 3, 2, n=1), against_peer("b", 3, 6, n=1)], path)
    save([against_floor("a", 4, 2, n=1, goal=AtMost(3), note="why")], path)
    first, second = json.loads(path.read_text("utf-8"))
    assert first == {
        "name": "a", "palaver": 4, "floor": 2, "ratio": 2, "n": 1, "unit": "ms",
        "goal": "at most 3x", "met": True, "note": "why",
    }  # fmt: skip
    assert ("b", 6, 2) == (second["name"], second["peer"], second["ratio"])


def test_the_corpus_is_the_same_every_time_and_right() -> None:
    assert session(8) == session(8) != session(8, seed=8)
    roles = [message.role for message in parse_messages(session(8))]
    assert ["user", "assistant", "tool", "assistant"] * 2 == roles


def test_every_topic_has_rows() -> None:
    pytest.importorskip("pydantic", reason="a peer, installed for make check and make bench")
    for topic in bench.TOPICS:
        assert callable(importlib.import_module(topic).rows)


def test_the_values_topic_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pydantic", reason="a peer, installed for make check and make bench")
    path = tmp_path / "results.json"
    assert 0 == main(["--quick", "--only", "values", "--output", str(path)])
    assert "bare structs" in capsys.readouterr().out
    check(path)


def test_an_unknown_topic_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "weather"])
    assert "there are imports, values" in capsys.readouterr().err


def test_the_results_we_publish_have_their_fields() -> None:
    check(RESULTS)


def check(path: Path) -> None:
    rows = json.loads(path.read_text("utf-8"))
    assert rows
    for row in rows:
        assert FIELDS == row.keys() - {"peer", "floor"}
        assert 1 == len(row.keys() & {"peer", "floor"})
        assert 0 < row["n"]
