from __future__ import annotations

import gc
import importlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bench
from bench.__main__ import main
from bench.cache_replay import main as replay
from bench.corpus import session
from bench.crowd import together
from bench.harness import (
    AtLeast,
    AtMost,
    Below,
    Row,
    Run,
    against_floor,
    against_peer,
    fsync_time,
    medians,
    middle,
    paired,
    save,
    table,
    timed,
)
from bench.turns import for_agents, for_palaver, turns
from palaver.messages import ToolCompleted, ToolPart, parse_messages

if TYPE_CHECKING:
    from collections.abc import Callable

FIELDS = {"name", "palaver", "ratio", "n", "unit", "goal", "met", "note", "load"}
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


def test_a_pair_takes_turns_and_gets_ready_outside_the_clock() -> None:
    seen: list[str] = []
    now = 0.0

    def contender(name: str, seconds: float) -> Callable[[int], Callable[[], object]]:
        def prepare(number: int) -> Callable[[], object]:
            seen.append(f"{name} gets ready for {number}")

            def go() -> None:
                nonlocal now
                assert not gc.isenabled()
                seen.append(name)
                now += seconds * (number + 1)

            return go

        return prepare

    took = paired(3, contender("a", 1), contender("b", 5), lambda: now, repeats=2)
    assert (2_000, 10_000) == took  # milliseconds of one, in the round in the middle
    assert ["b", "b", "a", "a"] == seen[2:6]
    assert ["a", "a", "b", "b"] == seen[8:12]
    assert gc.isenabled()


def test_the_middle_is_that_of_the_ratios() -> None:
    assert (4, 8) == middle([(1, 1), (4, 8), (1, 90)])


def test_an_fsync_takes_time(tmp_path: Path) -> None:
    assert 0 < fsync_time(tmp_path)


def test_a_busy_machine_is_said() -> None:
    busy = against_peer("a", 1, 2, n=1)._replace(load=1_000)
    assert "(on a busy machine: load 1000.0)" in table([busy])
    assert "busy" not in table([busy._replace(load=0.1)])


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
        "goal": "at most 3x", "met": True, "note": "why", "load": 0,
    }  # fmt: skip
    assert ("b", 6, 2) == (second["name"], second["peer"], second["ratio"])


def test_the_corpus_is_the_same_every_time_and_right() -> None:
    assert session(8) == session(8) != session(8, seed=8)
    roles = [message.role for message in parse_messages(session(8))]
    assert ["user", "assistant", "tool", "assistant"] * 2 == roles


def test_everyone_is_given_the_same_turns() -> None:
    said = turns(8)
    kept = for_palaver(said)
    assert [one.role for one in said] == [message.role for message in kept]
    assert [one.text for one in said if one.role != "tool"] == [
        message.text for message in kept if message.role != "tool"
    ]
    items = for_agents(said)
    assert [1, 2, 1, 1] * 2 == [len(added) for added in items]
    assert said[1].call is not None
    assert said[1].call.input == json.loads(items[1][1]["arguments"])
    assert said[2].text == items[2][0]["output"]
    part = kept[2].parts[0]
    assert isinstance(part, ToolPart)
    assert isinstance(part.state, ToolCompleted)
    assert (said[2].text, said[1].call.id) == (part.state.output, part.call_id)


def a_job(address: str, number: int) -> Callable[[], object]:
    """Something for a crowd to do: leave a line in a file."""

    def step() -> None:
        with Path(address).open("a", encoding="utf-8") as file:
            file.write(f"{number}\n")

    return step


@pytest.mark.parametrize("count", [20, None])
def test_a_crowd_works_together(tmp_path: Path, count: int | None) -> None:
    path = tmp_path / "lines"
    spell = together(str(path), a_job, 2, count=count, seconds=0.05)
    lines = path.read_text("utf-8").split()
    assert {"0", "1"} == {*lines}
    assert len(lines) == len(spell.steps) + 2 * 5  # five of each to warm up
    if count is not None:
        assert 2 * count == len(spell.steps)
    assert len(spell.steps) / spell.seconds == spell.rate
    assert min(spell.steps) <= spell.percentile(50) <= spell.percentile(99) <= max(spell.steps)


def test_every_topic_has_rows() -> None:
    for topic in bench.TOPICS:
        assert callable(importlib.import_module(topic).rows)


def test_the_values_topic_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.values._COUNT", 50)
    path = tmp_path / "results.json"
    assert 0 == main(["--quick", "--only", "values", "--output", str(path)])
    assert "bare structs" in capsys.readouterr().out
    check(path)


def test_a_quick_look_does_not_change_what_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.__main__.RESULTS", tmp_path / "results.json")
    monkeypatch.setattr("bench.values.rows", lambda _run: [against_peer("a", 1, 2, n=1)])
    assert 0 == main(["--quick", "--only", "values"])
    assert [] == list(tmp_path.iterdir())
    assert 0 == main(["--only", "values"])
    check(tmp_path / "results.json")


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


def test_a_transcript_is_replayed_through_the_caches_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both programs' sessions; the causes agree with the usage, and cleanups are judged."""

    def said(number: int, read: int, written: int, seconds: int) -> list[Any]:
        at = datetime.fromtimestamp(1_800_000_000 + seconds, UTC).isoformat()
        usage = {"input_tokens": 3, "cache_read_input_tokens": read,
                 "cache_creation_input_tokens": written}  # fmt: skip
        call = {"type": "tool_use", "id": f"t{number}", "name": "ls", "input": {}}
        answer = {"id": f"m{number}", "model": "claude-opus-4-6", "usage": usage, "content": [call]}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "file " * 4_000}
        return [
            {"type": "assistant", "uuid": f"a{number}", "parentUuid": f"u{number - 1}",
             "timestamp": at, "message": answer},
            {"type": "user", "uuid": f"u{number}", "parentUuid": f"a{number}",
             "message": {"content": [result]}},
        ]  # fmt: skip

    rows: list[Any] = [
        {"type": "user", "uuid": "u-1", "parentUuid": None, "message": {"content": "Go."}}
    ]
    rows += [row for n in range(20) for row in said(n, 20_000 + 5_000 * n, 5_000, 10 * n)]
    rows += said(20, 20_000, 105_000, 4_000)
    text = "\n".join(json.dumps(row) for row in [*rows, *rows[:2]])
    (tmp_path / "claude.jsonl").write_text(f"{text}\nno json\n", encoding="utf-8")
    meta = {"type": "session_meta", "payload": {"id": "x"}}
    lines: list[Any] = [meta, {"type": "turn_context", "payload": {"model": "gpt-5"}}]
    for n in range(21):
        item = {"type": "message", "role": "user", "content": f"{n}"}
        usage = {"input_tokens": 20_000 + n, "cached_input_tokens": 19_968 if n else 0}
        info = {"total_token_usage": {"input_tokens": n}, "last_token_usage": usage}
        lines += [
            {"type": "response_item", "payload": item},
            {"type": "event_msg", "timestamp": f"2026-01-01T00:00:{n:02}Z",
             "payload": {"type": "token_count", "info": info}},
        ]  # fmt: skip
    codex = "\n".join(map(json.dumps, lines))
    (tmp_path / "codex.jsonl").write_text(codex, encoding="utf-8")
    assert 0 == replay([str(tmp_path)])
    told = capsys.readouterr().out
    assert "2 sessions, 42 requests, 1 breaks by the usage" in told
    assert "right: 1 of 1 (100.0 %)" in told
    assert "deferred $" in told
    assert 1 == replay([str(tmp_path / "nothing")])
