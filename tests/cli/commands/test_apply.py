from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from palaver.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Apply = Callable[..., Result]

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "one", "id": "m1", "timestamp": 5},
    {"role": "assistant", "content": [{"type": "text", "text": "two"}], "metadata": {}},
]
NEW: dict[str, Any] = {"role": "user", "content": "new"}


@pytest.fixture
def apply(tmp_path: Path) -> Apply:
    """Write messages and operations to files, and apply the ones to the others."""

    def run(messages: object, operations: object, *options: str) -> Result:
        files = []
        for name, value in (("messages", messages), ("operations", operations)):
            file = tmp_path / f"{name}.json"
            file.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
            files.append(str(file))
        return CliRunner().invoke(app, ["apply", files[0], "--ops", files[1], *options])

    return run


def answer(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_messages_come_back_as_they_went_in(apply: Apply) -> None:
    """No id, no time and no part is invented, and nothing is left out."""
    insert = {"operation": "INSERT", "position": 1, "messages": [NEW]}
    found = answer(apply(MESSAGES, [insert]))
    assert [MESSAGES[0], NEW, *MESSAGES[1:]] == found["state"]["messages"]
    assert MESSAGES == found["state"]["batchSnapshots"][0]["messages"]


def test_the_result_has_the_documents_own_form(apply: Apply) -> None:
    """State, stats and the affected batch, by their names."""
    found = answer(apply(MESSAGES, [{"operation": "TRUNCATE", "keepLast": 1}]))
    stats = {
        "totalMessages": 1, "currentBatchMessages": 1, "totalBatches": 2, "currentBatchIndex": 1,
    }  # fmt: skip
    assert (stats, 1) == (found["stats"], found["affectedBatchIndex"])
    (snapshot,) = found["state"]["batchSnapshots"]
    assert ("Before TRUNCATE", 3, 0) == (
        snapshot["description"], snapshot["messageCount"], snapshot["batchIndex"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "texts"),
    [
        ({"operation": "APPEND", "messages": [NEW]}, ["Be brief.", "one", "two", "new"]),
        ({"operation": "REPLACE", "index": 1, "message": NEW}, ["Be brief.", "new", "two"]),
        ({"operation": "CLEAR"}, ["Be brief."]),
        ({"operation": "FILTER", "contentExcludes": ["one"]}, ["Be brief.", "two"]),
        ({"operation": "ROLLBACK", "targetBatchIndex": 0}, ["Be brief.", "one", "two"]),
    ],
)
def test_every_operation_is_understood(
    apply: Apply, operation: dict[str, Any], texts: list[str]
) -> None:
    """Each of the operations, as JSON."""
    found = answer(apply(MESSAGES, [operation]))["state"]["messages"]
    assert texts == [_text(message) for message in found]


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


def test_snapshots_can_be_left_out(apply: Apply) -> None:
    """Only their messages: how many there were is still said."""
    found = answer(apply(MESSAGES, [{"operation": "CLEAR"}], "--no-snapshots"))
    (snapshot,) = found["state"]["batchSnapshots"]
    assert (False, 3) == ("messages" in snapshot, snapshot["messageCount"])


def test_no_operations_change_nothing(apply: Apply) -> None:
    """The state as it was."""
    found = answer(apply(MESSAGES, []))
    assert (MESSAGES, 0) == (found["state"]["messages"], found["affectedBatchIndex"])


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ({"operation": "INSERT", "position": 9, "messages": []}, "$[1].position"),
        ({"operation": "INSERT", "position": -1, "messages": []}, "$[1].position"),
        ({"operation": "INSERT", "position": True, "messages": []}, "$[1].position"),
        ({"operation": "TRUNCATE"}, "$[1]: needs one of"),
        ({"operation": "TRUNCATE", "keepLost": 1}, "$[1].keepLost"),
        ({"operation": "FILTER", "contentContains": [""]}, "$[1].contentContains[0]"),
        ({"operation": "ROLLBACK", "targetBatchIndex": 7}, "$[1].targetBatchIndex"),
        ({"operation": "APPEND", "messages": [{"role": "robot"}]}, "$[1].messages[0].role"),
        ({"operation": "EXPLODE"}, "$[1]: Unsupported operation type: EXPLODE"),
        ("CLEAR", "$[1]: must be an operation"),
    ],
)
def test_a_refused_operation_is_named_by_its_place(
    apply: Apply, operation: object, said: str
) -> None:
    """Exit status 1, one line on standard error, nothing on standard output."""
    result = apply(MESSAGES, [{"operation": "CLEAR"}, operation])
    assert (1, "") == (result.exit_code, result.stdout)
    assert said in result.stderr


def test_messages_may_be_json_lines(apply: Apply) -> None:
    """One message on each line, as logs have them."""
    lines = "\n".join(json.dumps(message) for message in MESSAGES)
    assert MESSAGES == answer(apply(lines, []))["state"]["messages"]


@pytest.mark.parametrize(
    ("messages", "said"),
    [("{", "is not JSON"), ('"text"', "must be a list"), ('{"a": 1}\n{', "$[1]"), ("[NaN]", "NaN")],
)
def test_a_file_that_is_no_list_is_refused(apply: Apply, messages: str, said: str) -> None:
    """And the file is named."""
    result = apply(messages, [])
    assert result.exit_code == 1
    assert said in result.stderr
    assert "messages.json" in result.stderr


def test_either_file_may_be_standard_input_but_not_both(tmp_path: Path) -> None:
    """Two readers of one stream would each get a part."""
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(MESSAGES), "utf-8")
    one = CliRunner().invoke(app, ["apply", str(file), "--ops", "-"], input="[]")
    assert answer(one)["stats"]["totalMessages"] == 3
    assert CliRunner().invoke(app, ["apply", "-", "--ops", "-"], input="[]").exit_code == 2


@pytest.mark.parametrize(
    ("messages", "operations", "path"),
    [
        ('[{"role": "user", "content": "a", "role": "system"}]', "[]", "$[0].role"),
        ("[]", '[\n{"operation": "CLEAR",\n"operation": "CLEAR"}\n]', "$[0].operation"),
        ('{\n"messages": [],\n"messages": []\n}', "[]", "$.messages"),
        ('{"role": "user"}\n{"role": "user", "role": "user"}\n', "[]", "$[1].role"),
    ],
)
def test_a_name_that_stands_twice_is_refused(
    apply: Apply, messages: str, operations: str, path: str
) -> None:
    result = apply(messages, operations)
    assert 0 != result.exit_code
    assert f"{path}: occurs twice in the same object" in result.stderr
