"""Every error of palaver's has its status, and leaves as a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaver import errors
from palaver.server.errors import STATUSES, RequestRefused, describe_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from palaver.stores import Store
    from tests.server.client import APIClient


def below(kind: type[errors.PalaverError]) -> Iterator[type[errors.PalaverError]]:
    yield kind
    for one in kind.__subclasses__():
        if one.__module__ == errors.__name__:
            yield from below(one)


EXPECTED = {
    "ValidationError": 422,
    "PartValidationError": 422,
    "UnsupportedOperation": 422,
    "UnknownMessage": 404,
    "UnknownConversation": 404,
    "AlreadyExists": 409,
    "Conflict": 409,
    "VersionMismatch": 412,
    "Stale": 409,
    "LeaseTaken": 409,
    "LeaseLost": 409,
    "StoreDamaged": 503,
    "StoreError": 503,
    "RateLimited": 429,
    "Unavailable": 424,
    "ToolUnreachable": 424,
    "ArgumentTooLong": 424,
    "PalaverError": 422,
}


def test_no_error_comes_after_one_that_takes_its_place() -> None:
    kinds = [kind for kind, _ in STATUSES]
    for place, kind in enumerate(kinds):
        assert not [later for later in kinds[place + 1 :] if issubclass(later, kind)]


def test_every_error_has_a_status() -> None:
    found = {
        kind.__name__: next(status for known, status in STATUSES if issubclass(kind, known))
        for kind in below(errors.PalaverError)
    }
    assert EXPECTED == {name: found[name] for name in EXPECTED}
    assert {name for name, status in found.items() if status >= 500} == {
        "StoreError",
        "StoreDamaged",
        "StoreMoved",
    }


def test_a_problem_says_where_and_by_which_rule() -> None:
    problem, _ = describe_error(errors.ValidationError("is odd", path="$.a[0]", rule="filter"))
    assert (422, "is odd", "$.a[0]", "filter") == (
        problem.status,
        problem.detail,
        problem.path,
        problem.rule,
    )


def test_a_conflict_names_both_sides() -> None:
    clash = errors.Clash("message m1", "replaced", "removed")
    problem, _ = describe_error(errors.Conflict((clash,)))
    assert isinstance(problem.clashes, list)
    (found,) = problem.clashes
    assert ("message m1", "replaced", "removed") == (found.what, found.ours, found.theirs)


def test_whoever_is_busy_says_when_to_come_back() -> None:
    assert describe_error(errors.LeaseTaken("busy"))[1] == {"Retry-After": "1"}
    slow = errors.RateLimited("slow down", retry_after=2.6)
    assert describe_error(slow)[1] == {"Retry-After": "3"}
    assert describe_error(RequestRefused(429, "no", headers={"Retry-After": "5"}))[1] == {
        "Retry-After": "5"
    }


def test_figures_go_along() -> None:
    problem, _ = describe_error(errors.DoesNotFit(812, 512))
    assert isinstance(problem.facts, dict)
    assert problem.facts["excess"] == 300


def test_what_nobody_foresaw_is_logged_and_not_shown(
    ask: APIClient, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*args: Any, **more: Any) -> None:  # noqa: ANN401 - JSON, or whatever is asked for
        del args, more
        msg = "a secret of the inside"
        raise RuntimeError(msg)

    monkeypatch.setattr(store, "list", fails)
    problem = ask.refused("GET", "conversations")
    assert problem["status"] == 500
    assert "secret" not in str(problem)
    assert "a secret of the inside" in caplog.text


def test_a_store_that_fails_is_503(
    ask: APIClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **more: Any) -> None:  # noqa: ANN401 - JSON, or whatever is asked for
        del args, more
        msg = "the disk is full"
        raise errors.StoreError(msg)

    monkeypatch.setattr(store, "list", fails)
    problem = ask.refused("GET", "conversations")
    assert (503, "the disk is full") == (problem["status"], problem["detail"])


def test_broken_json_is_400_and_a_wrong_body_422(ask: APIClient) -> None:
    answer = ask.post("/api/conversations", content=b'{"title": ')
    assert answer.status_code == 400
    assert ask.refused("POST", "conversations", {"titel": "t"})["path"] == "$.titel"
    assert ask.refused("POST", "conversations", {"title": 3})["status"] == 422
    assert ask.post("/api/conversations", content=b"\xff").status_code == 400


def test_wrong_parameters_are_400(ask: APIClient) -> None:
    problem = ask.refused("GET", "conversations?limit=many")
    assert (400, "limit") == (problem["status"], problem["path"])
    assert ask.refused("GET", "conversations?limit=0")["status"] == 400


def test_there_is_no_such_route(ask: APIClient) -> None:
    assert ask.refused("GET", "nothing")["status"] == 404
    assert ask.refused("PATCH", "info")["status"] == 405
