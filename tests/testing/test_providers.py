"""The judges of requests: every rule takes one body and refuses the nearest one to it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.testing import check_request
from palaver.testing.providers import (
    FORMAT_NAMES,
    RULES,
    FormatName,
    anthropic,
    checks,
    gemini,
    openai_chat,
    openai_responses,
)
from tests.profiles import at_least
from tests.testing.providers import (
    anthropic_cases,
    gemini_cases,
    openai_chat_cases,
    openai_responses_cases,
)
from tests.wire.sdk_types import check_types

if TYPE_CHECKING:
    from types import ModuleType

    from tests.testing.providers.case import Case

CASES: dict[FormatName, list[Case]] = {
    "openai-chat": openai_chat_cases.CASES,
    "openai-responses": openai_responses_cases.CASES,
    "anthropic": anthropic_cases.CASES,
    "gemini": gemini_cases.CASES,
}
EACH = [
    pytest.param(format_, case, id=f"{format_}-{case.name.replace(' ', '-')}")
    for format_, cases in CASES.items()
    for case in cases
]


@pytest.mark.parametrize(("name", "case"), EACH)
def test_what_the_provider_takes_has_no_problem(name: FormatName, case: Case) -> None:
    assert () == check_request(name, case.accepted)


@pytest.mark.parametrize(("name", "case"), EACH)
def test_what_the_provider_refuses_has_exactly_these_problems(name: FormatName, case: Case) -> None:
    found = check_request(name, case.refused)
    assert case.problems == {problem.path: problem.rule for problem in found}
    assert len(case.problems) == len(found)


@pytest.mark.parametrize(("name", "case"), EACH)
def test_what_the_provider_takes_fits_the_sdk_too(name: FormatName, case: Case) -> None:
    assert () == check_types(name, case.accepted)


def said(text: str) -> dict[FormatName, Any]:
    """A request of one message, for each format."""
    message = {"role": "user", "content": text}
    return {
        "openai-chat": {"messages": [message]},
        "openai-responses": {"input": [message]},
        "anthropic": {"messages": [message]},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": text}]}]},
    }


JUDGES: dict[FormatName, ModuleType] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
}


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_a_request_may_not_be_too_large(name: FormatName, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only strings are counted, names of fields too: a little less than what is sent."""
    monkeypatch.setattr(JUDGES[name], "LARGEST", 1_000)
    assert () == check_request(name, said("a" * 950)[name])
    assert ["size"] == [p.rule for p in check_request(name, said("a" * 1_000)[name])]
    assert ["size"] == [p.rule for p in check_request(name, said("é" * 500)[name])]


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses"])
def test_a_text_may_not_be_too_long(name: FormatName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LONGEST_TEXT", 100)
    assert () == check_request(name, said("é" * 100)[name])
    assert ["size"] == [p.rule for p in check_request(name, said("é" * 101)[name])]


def test_messages_may_not_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anthropic, "MOST_MESSAGES", 3)
    hello = {"role": "user", "content": "Hello"}
    assert () == check_request("anthropic", {"messages": [hello] * 3})
    (problem,) = check_request("anthropic", {"messages": [hello] * 4})
    assert ("messages", "size") == (problem.path, problem.rule)


def test_the_limits_are_those_of_the_providers() -> None:
    assert [50_000_000, 50_000_000, 33_554_432, 104_857_600] == [
        judge.LARGEST for judge in JUDGES.values()
    ]
    assert 100_000 == anthropic.MOST_MESSAGES
    assert 10_485_760 == checks.LONGEST_TEXT


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_shown(rule: str) -> None:
    assert rule in {rule for cases in CASES.values() for c in cases for rule in c.problems.values()}


def test_names_of_cases_are_unique() -> None:
    for cases in CASES.values():
        assert len(cases) == len({case.name for case in cases})


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown format 'bedrock'; known are openai-chat, "):
        check_request("bedrock", {})


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_depth_is_no_problem(name: FormatName) -> None:
    deep: Any = None
    for _ in range(20_000):
        deep = [deep]
    assert check_request(name, {"messages": deep, "input": deep, "contents": deep})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(ANYTHING)
@at_least(100)
def test_whatever_it_is_given_it_does_not_raise(body: object) -> None:
    for name in FORMAT_NAMES:
        assert check_request(name, body)


SMALL: list[tuple[FormatName, Any]] = [
    (name, case.accepted)
    for name, cases in CASES.items()
    for case in cases
    if len(json.dumps(case.accepted)) < 10_000
]


def places(value: object) -> list[tuple[Any, Any]]:
    """Every place in a body at which something could stand instead."""
    steps: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        steps = [(value, name) for name in value]
    elif isinstance(value, list):
        steps = [(value, place) for place in range(len(value))]
    return steps + [place for owner, step in steps for place in places(owner[step])]


@given(st.data())
@at_least(200)
def test_a_request_with_something_else_in_it_does_not_raise(data: st.DataObject) -> None:
    """The same from close by: a sound request, with one value swapped for any other."""
    name, accepted = data.draw(st.sampled_from(SMALL))
    body = json.loads(json.dumps(accepted))
    owner, step = data.draw(st.sampled_from(places(body)))
    owner[step] = data.draw(ANYTHING)
    for problem in check_request(name, body):
        assert problem.rule in RULES
        assert str(problem).startswith(problem.path)


WRITTEN = {
    "data",
    "encrypted_content",
    "fileUri",
    "id",
    "mimeType",
    "name",
    "signature",
    "text",
    "thoughtSignature",
    "url",
}


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_a_number_in_place_of_a_text_is_seen(name: FormatName) -> None:
    for body in [json.loads(json.dumps(accepted)) for own, accepted in SMALL if own == name]:
        for owner, step in places(body):
            was = owner[step]
            if step in WRITTEN and isinstance(was, str):
                owner[step] = 7
                assert check_request(name, body), (step, body)
                owner[step] = was


TABLE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text("utf-8").splitlines()
ROWS = {
    cells[1].strip(" `"): dict(zip(FORMAT_NAMES, cells[3:7], strict=True))
    for cells in (line.split("|") for line in TABLE if line.startswith("| `"))
}


def test_the_docs_have_a_row_for_each_rule() -> None:
    assert set(RULES) == set(ROWS)


@pytest.mark.parametrize("rule", RULES)
def test_the_docs_say_which_provider_has_the_rule(rule: str) -> None:
    shown = {
        name
        for name, cases in CASES.items()
        if any(rule in case.problems.values() for case in cases) or rule == "size"
    }
    assert shown == {name for name in FORMAT_NAMES if ROWS[rule][name].strip() != "—"}


def test_every_source_in_the_docs_is_there() -> None:
    rows = [line for line in TABLE if line.startswith("| `")]
    cited = {int(found) for line in rows for found in re.findall(r"\[(\d+)\]", line)}
    listed = {int(line.partition(".")[0]) for line in TABLE if re.match(r"\d+\. ", line)}
    assert cited == listed
