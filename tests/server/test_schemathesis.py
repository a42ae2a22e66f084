"""The API does what its description says: requests made up from it, right and wrong ones.

Half of what is made up fits the description, half breaks it on purpose. Nothing may end in a 5xx,
in a status or a body that the description does not know, and nothing that breaks it may be taken.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import palaver
from palaver.server import Settings, make_app
from palaver.server.openapi import openapi_document
from tests.profiles import steps
from tests.server.client import ADDRESS, TOKEN, APIClient

if TYPE_CHECKING:
    from collections.abc import Generator

    Case: TypeAlias = schemathesis.Case[Any]

CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ENDLESS: Final = "/api/events"  # a stream has no end that a request could wait for


def described() -> dict[str, Any]:
    """The API; lists of messages are made up short, since each takes its time."""
    found: dict[str, Any] = json.loads(openapi_document())
    shapes = found["components"]["schemas"]
    for name in ("AppendRequest", "CreateRequest"):
        shapes[name]["properties"]["messages"]["maxItems"] = 2
    return found


SCHEMA: Final = schemathesis.openapi.from_dict(
    described(),
    config=SchemathesisConfig.from_dict({"generation": {"with-security-parameters": False}}),
)
OPERATIONS: Final[dict[str, Any]] = {
    f"{operation.method.upper()} {operation.path}": operation
    for operation in (cast("Any", found).ok() for found in SCHEMA.get_all_operations())
    if operation.path != ENDLESS
}
REQUESTS: Final = steps(600, in_faults=6_000)


@pytest.fixture(scope="module")
def served() -> Generator[APIClient]:
    with palaver.open(":memory:") as store:
        app = make_app(store, Settings(token=TOKEN, rate=0, steps=0))
        with APIClient(app, base_url=ADDRESS) as asker:
            asker.headers["authorization"] = f"Bearer {TOKEN}"
            yield asker


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_api_does_what_its_description_says(served: APIClient, name: str) -> None:
    operation = OPERATIONS[name]
    modes = st.sampled_from(schemathesis.GenerationMode)

    @settings(
        max_examples=-(-REQUESTS // len(OPERATIONS)),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        phases=[Phase.generate],  # what fails is told as it came: making it smaller takes minutes
        database=None,
    )
    @given(modes.flatmap(operation.as_strategy), st.booleans())
    def asked(case: Case, known: bool) -> None:  # noqa: FBT001 - drawn
        is_wrong = case.meta is not None and case.meta.generation.mode.is_negative
        if known and "conversation" in case.path_parameters and not _path_is_wrong(case):
            case.path_parameters["conversation"] = _conversation(served)
        answer = _sent(case, served)
        checks = [*CHECKS, negative_data_rejection] if is_wrong else CHECKS
        case.validate_response(answer, checks=checks)

    asked()


def _path_is_wrong(case: Case) -> bool:
    path = None if case.meta is None else case.meta.components.get(ParameterLocation.PATH)
    return path is not None and path.mode.is_negative


def _conversation(served: APIClient) -> str:
    """A conversation with something in it, made anew where it was deleted."""
    name = "known"
    if served.get(f"/api/conversations/{name}").status_code == 404:
        served.begun("one", "two", "three", id=name)
    return name


def _sent(case: Case, served: APIClient) -> Any:  # noqa: ANN401 - JSON, or whatever is asked for
    sent = case.as_transport_kwargs(base_url=ADDRESS)
    sent.pop("cookies", None)
    if "data" in sent:
        sent["content"] = sent.pop("data")
    sent["headers"] = {**sent.get("headers", {}), "authorization": f"Bearer {TOKEN}"}
    return served.request(**sent)
