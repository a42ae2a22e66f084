"""Bodies of requests: what is missing is named, and no name stands twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from palaver.server.openapi import openapi_document

if TYPE_CHECKING:
    from palaver.stores import Store
    from tests.server.client import APIClient

DESCRIBED: dict[str, Any] = json.loads(openapi_document())
JSON = "application/json"


def _shape(operation: dict[str, Any]) -> dict[str, Any]:
    name = operation["requestBody"]["content"][JSON]["schema"]["$ref"].rpartition("/")[2]
    found: dict[str, Any] = DESCRIBED["components"]["schemas"][name]
    return found


def _bodies() -> list[tuple[str, str, dict[str, Any]]]:
    """Every route that takes JSON, and the schema of what it takes."""
    return [
        (method, path, _shape(operation))
        for path, operations in DESCRIBED["paths"].items()
        for method, operation in operations.items()
        if JSON in operation.get("requestBody", {}).get("content", {})
    ]


@pytest.mark.parametrize("body", [b"", b" \n"])
@pytest.mark.parametrize(("method", "path", "shape"), _bodies(), ids=lambda one: str(one)[:60])
def test_an_empty_body_says_what_it_must_have(
    ask: APIClient, method: str, path: str, shape: dict[str, Any], body: bytes
) -> None:
    """By name and type; where nothing must be there, what may be."""
    name = ask.begun("hello")
    url = path.replace("{conversation}", name).replace("{name}", "m").replace("{call}", "c")
    answer = ask.request(method.upper(), url, content=body)
    assert 400 == answer.status_code, answer.text
    problem = answer.json()
    assert ("$", "json") == (problem["path"], problem["rule"])
    assert "the body is empty; it must be a JSON object" in problem["detail"]
    for field in shape["required"] or shape["properties"]:
        assert f" {field} (" in problem["detail"]
    assert version_of(ask, name) == 0


def version_of(ask: APIClient, name: str) -> int:
    found: dict[str, Any] = ask.good("GET", f"conversations/{name}")
    return int(found["version"])


def test_types_are_named_as_json_has_them(ask: APIClient) -> None:
    name = ask.begun("hello")
    for route, words in {
        "rollback": "a JSON object with batch (integer)",
        "messages": "a JSON object with messages (array)",
        "merge": "a JSON object with other (string)",
        "fork": "{} at least; it may have at (integer or null), id (string or null)",
    }.items():
        answer = ask.post(f"/api/conversations/{name}/{route}", content=b"")
        assert words in answer.json()["detail"]
    problem = ask.refused("POST", f"conversations/{name}/rollback", {})
    assert (422, "$.batch") == (problem["status"], problem["path"])
    assert "is missing; the body needs batch (integer)" == problem["detail"]


@pytest.mark.parametrize(
    ("route", "body", "path"),
    [
        (
            "messages",
            '{"messages": [], "messages": [{"role": "user", "content": "a"}]}',
            "$.messages",
        ),
        (
            "messages",
            '{"messages": [{"role": "user", "content": "a", "role": "system"}]}',
            "$.messages[0].role",
        ),
        (
            "operations",
            '{"operation": {"operation": "CLEAR", "operation": "CLEAR"}}',
            "$.operation.operation",
        ),
        ("rollback", '{"batch": 1, "\\u0062atch": 0}', "$.batch"),
        ("erase", '{"message": 0, "message": 0}', "$.message"),
    ],
)
def test_a_name_that_stands_twice_is_refused(
    ask: APIClient, store: Store, route: str, body: str, path: str
) -> None:
    name = ask.begun("a", "b")
    answer = ask.post(f"/api/conversations/{name}/{route}", content=body)
    problem = answer.json()
    assert (422, path, "json.duplicate") == (
        answer.status_code,
        problem["path"],
        problem["rule"],
    )
    assert 0 == store.get(name).version
