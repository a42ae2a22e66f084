from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from palaver import nodes, team
from palaver.cli.app import app


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nodes"], nodes.schema()),
        (["nodes", "--node", "context"], nodes.schema("context")),
        (["team"], team.schema()),
    ],
)
def test_it_prints_the_schema_that_is_used(arguments: list[str], expected: Any) -> None:  # noqa: ANN401 - JSON
    done = CliRunner().invoke(app, ["schema", *arguments])
    assert (0, expected) == (done.exit_code, json.loads(done.stdout))


def test_a_team_has_no_nodes() -> None:
    done = CliRunner().invoke(app, ["schema", "team", "--node", "llm"])
    assert 2 == done.exit_code
    assert "--node goes with nodes" in done.output
