"""Team files: what is read, and where what is wrong stands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from palaver.errors import ValidationError
from palaver.team import (
    SCHEMA,
    CommandMember,
    Human,
    ModelMember,
    Team,
    config,
    load_team,
    read_team,
    schema,
)

HEAD = "members:\n  - {kind: human, id: user}\n"
ARGV = f"{HEAD}  - kind: command\n    id: max\n    argv: [a]\n"
EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples/team").glob("*.yaml"))

WHOLE = """\
name: all there is
task: Decide.
members:
  - kind: human
    id: user
    name: The User
  - kind: model
    id: max
    model: local:smollm2
    system: |
      Be brief.
    window: 3
    visibility: addressed
    maxBytes: 9000
    maxTokens: 2000
    timeout: 2.5
    options: {temperature: 0}
  - kind: command
    id: sarah
    profile: claude
    args: [--model, opus]
    cwd: work
    env: {TEA: green}
    inheritEnv: false
    rerun: false
routes: {Max: [sarah, the-user]}
default: MAX
limits: {turns: 5, queue: 7}
"""


def plain(text: str) -> dict[str, Any]:
    """The values of a YAML file."""
    value: Any = config._read_yaml(text)[0]
    return dict(value)


def test_everything_a_team_can_have() -> None:
    """TM-05."""
    team = read_team(WHOLE)
    user, max_, sarah = team.members
    assert isinstance(user, Human)
    assert isinstance(max_, ModelMember)
    assert isinstance(sarah, CommandMember)
    assert ("The User", "max", "Be brief.\n") == (user.shown, max_.shown, max_.system)
    assert (3, "addressed", 9000, 2000, 2.5) == (
        max_.window,
        max_.visibility,
        max_.max_bytes,
        max_.max_tokens,
        max_.timeout,
    )
    assert ({"TEA": "green"}, False, False) == (sarah.env, sarah.inherit_env, sarah.rerun)
    assert (5, 7, "Decide.") == (team.limits.turns, team.limits.queue, team.task)
    assert (True, False) == (team.may_call(max_, user), team.may_call(max_, max_))
    assert team.may_call(user, max_)


def test_json_and_yaml_say_the_same(tmp_path: Path) -> None:
    data = plain(WHOLE)
    file = tmp_path / "team.json"
    file.write_text("\ufeff" + json.dumps(data, indent="\t"), "utf-8")
    assert read_team(WHOLE) == load_team(file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "$: the file is empty [team]"),
        ("- 1", "$: line 1, column 1: expected `object`, got `array` [team]"),
        (
            "a: [",
            "$: line 1, column 5: expected the node content, but found '<stream end>' [team]",
        ),
        ("a: \x01", "$: the file can't be read: ... [team]"),
        ("a: &x 1\nb: *x", "$: line 2, column 4: aliases are not taken [team]"),
        ("a: 1\na: 2", "$: line 2, column 1: 'a' occurs twice in one mapping [team]"),
        (
            "members: !!python/name:os.system []",
            "$: line 1, column 10: could not determine a constructor ... [team]",
        ),
        ("a: 2024-99-99", "$: the file can't be read: month must be in 1..12 [team]"),
        ('{"a": 1,\n "b" 2}', "$: line 2, column 6: Expecting ':' delimiter [team]"),
        ('{"a": 1,\n "a": 2}', "$: line 2, column 2: 'a' occurs twice in one mapping [team]"),
        ("{members: [}", "$: line 1, column 12: expected the node content, but found '}' [team]"),
        ("{" * 5_000, "$: line 1, column 51: too many brackets in brackets [team]"),
        ('{"a":' * 5_000, "$: the file can't be read: ..."),
        (
            f"{HEAD}  - kind: robot\n    id: max",
            "$.members[1].kind: line 3, column 5: invalid value 'robot' [team]",
        ),
        (
            f"{HEAD}  - kind: model\n    id: max",
            "$.members[1]: line 3, column 5: object missing required field `model` [team]",
        ),
        (
            f"{HEAD}  - kind: model\n    id: max\n    model: 3",
            "$.members[1].model: line 5, column 5: expected `str`, got `int` [team]",
        ),
        (
            f"{HEAD}  - kind: model\n    id: max\n    model: x\n    timeout: 0",
            "$.members[1].timeout: line 6, column 5: expected `float` > 0.0 [team]",
        ),
        (
            f"{HEAD}  - kind: model\n    id: max\n    model: x\n    modle: x",
            "$.members[1].modle: line 6, column 5: no such field [team]",
        ),
        (
            f"{HEAD}  - kind: model\n    id: max\n    model: x\n    options: {{heat: 1}}",
            "$.members[1].options.heat: line 6, column 15: no such option; ... [team]",
        ),
        (
            f"{HEAD}  - kind: command\n    id: max\n    profile: emacs",
            "$.members[1].profile: line 5, column 5: there is no profile 'emacs'; ...",
        ),
        (
            f"{HEAD}  - kind: command\n    id: max",
            "$.members[1]: line 3, column 5: a command needs a profile or an argv [team]",
        ),
        (
            f"{ARGV}    passEnv: [TEA]\n    inheritEnv: false",
            "$.members[1].passEnv: line 6, column 5: says what is inherited, and ... [team]",
        ),
        (
            f"{ARGV}    passEnv: ['A=B']",
            "$.members[1].passEnv[0]: line 6, column 15: expected `str` matching regex ... [team]",
        ),
        (
            f"{ARGV}    format: claude\n    system: x",
            "$.members[1].system: line 7, column 5: claude-code puts it beside ... [team]",
        ),
        (
            f"{ARGV}    format: plain\n    systemFlag: x",
            "$.members[1].format: line 6, column 5: with systemFlag the format is ... [team]",
        ),
        (
            f"{HEAD}  - kind: human\n    id: U_ser",
            "$.members[1].id: line 4, column 5: 'U_ser' is taken by another member [team]",
        ),
        (
            f"{HEAD}  - kind: human\n    id: user2\n    name: User",
            "$.members[1].name: line 5, column 5: 'User' is taken by another member [team]",
        ),
        (
            f"{HEAD}  - kind: human\n    id: a,b",
            "$.members[1].id: line 4, column 5: must not have brackets, commas, ... [team]",
        ),
        (
            f"{HEAD}  - kind: human\n    id: A-ll",
            "$.members[1].id: line 4, column 5: 'A-ll' is reserved for [DROP: ALL] [team]",
        ),
        (
            f"{HEAD}  - {{kind: human, id: eve}}\nroutes:\n  eve: [user,\n    bob]",
            "$.routes.eve[1]: line 6, column 5: 'bob' is not in the team [team]",
        ),
        (
            f"{HEAD}  - {{kind: human, id: eve}}\nroutes:\n  bob: []",
            "$.routes.bob: line 5, column 3: 'bob' is not in the team [team]",
        ),
        (
            f"{HEAD}  - {{kind: human, id: eve}}\ndefault: bob",
            "$.default: line 4, column 1: 'bob' is not in the team [team]",
        ),
    ],
    ids=range(32),
)
def test_what_is_wrong_and_where(text: str, expected: str) -> None:
    with pytest.raises(ValidationError) as refused:
        read_team(text)
    said = str(refused.value)
    start, dots, end = expected.partition("...")
    assert said == expected if not dots else said.startswith(start) and said.endswith(end)


def test_without_pyyaml_json_is_read_and_yaml_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    members = [{"kind": "human", "id": "a"}, {"kind": "human", "id": "b"}]
    assert 2 == len(read_team(json.dumps({"members": members})).members)
    with pytest.raises(ValidationError, match=r"^\$\.members: a team has at least two members"):
        read_team('{"members": []}')
    with pytest.raises(ValidationError, match=r"pip install 'palaver\[team\]'"):
        read_team("members: []")


def test_a_file_must_be_text_of_a_size(tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_bytes(b"name: caf\xe9")
    with pytest.raises(ValidationError, match="not UTF-8 at byte 9"):
        load_team(file)
    file.write_bytes(b" " * (1024 * 1024 + 1))
    with pytest.raises(ValidationError, match="1,048,576 is the most"):
        load_team(file)


def test_the_schema_that_is_shipped_is_the_one_that_is_used() -> None:
    """`palaver schema team` writes it again."""
    assert schema() == json.loads(SCHEMA.read_text("utf-8"))


@pytest.mark.parametrize("text", [WHOLE, *(file.read_text("utf-8") for file in EXAMPLES)])
def test_other_programs_can_check_a_team_with_it(text: str) -> None:
    validator = Draft202012Validator(schema())
    data = plain(text)
    assert [] == list(validator.iter_errors(data))
    assert list(validator.iter_errors({**data, "members": data["members"][:1]}))
    assert isinstance(read_team(text), Team)
