"""Errors as `application/problem+json` (RFC 9457), with one table of statuses for all of them.

A problem has a status, a text and, where they are known, the path and the rule. An unexpected
exception is logged here and answered with a bare 500, never with a traceback.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from litestar import Response
from litestar.exceptions import HTTPException, ValidationException
from msgspec import UNSET, Struct, UnsetType

from palaver import errors
from palaver.server.requests import BodyDTO, missing_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litestar import Request

__all__ = [
    "PROBLEM_JSON",
    "STATUSES",
    "ProblemDetails",
    "RequestRefused",
    "describe_error",
    "error_response",
]


PROBLEM_JSON: Final = "application/problem+json"
_BLANK: Final = "about:blank"
_log = logging.getLogger("palaver.server")

STATUSES: Final[tuple[tuple[type[errors.PalaverError], int], ...]] = (
    (errors.ValidationError, 422),
    (errors.UnsupportedOperation, 422),
    (errors.InvalidStateTransition, 409),
    (errors.UnknownMessage, 404),
    (errors.AmbiguousMessage, 409),
    (errors.NothingToUndo, 409),
    (errors.VersionMismatch, 412),
    (errors.Conflict, 409),
    (errors.BudgetExceeded, 409),
    (errors.DoesNotFit, 422),
    (errors.CompactionRefused, 409),
    (errors.TooManySteps, 409),
    (errors.ToolFailed, 424),
    (errors.CallChanged, 409),
    (errors.MemberFailed, 424),
    (errors.UnknownConversation, 404),
    (errors.AlreadyExists, 409),
    (errors.LeaseTaken, 409),
    (errors.LeaseLost, 409),
    (errors.StoreDamaged, 503),
    (errors.Stale, 409),
    (errors.EncryptionError, 409),
    (errors.StoreError, 503),
    (errors.RateLimited, 429),
    (errors.BadRequest, 422),
    (errors.ModelError, 424),
    (errors.PalaverError, 422),
)
"""The status of each error; the first match counts."""

_NOT_JSON: Final = frozenset(("json", "text.utf8"))
_BUSY: Final = "1"


class ClashDetails(Struct, frozen=True):
    """One message that both sides changed, and what each side did."""

    what: str
    ours: str
    theirs: str


class ProblemDetails(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is wrong: `path` says where, `rule` which rule was broken, `clashes` has both sides."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    name: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    rule: str | UnsetType = UNSET
    clashes: list[ClashDetails] | UnsetType = UNSET
    version: int | UnsetType = UNSET
    facts: dict[str, Any] | UnsetType = UNSET


class RequestRefused(Exception):  # noqa: N818 - as palaver's other errors
    """A request that the server itself refuses, with a status of its own."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,  # noqa: ANN401 - fields of a problem
    ) -> None:
        """Take the status and the text; `more` are further fields of the problem."""
        super().__init__(detail)
        self.problem = ProblemDetails(
            title=HTTPStatus(status).phrase, status=status, detail=detail, **more
        )
        self.headers = dict(headers or {})


def describe_error(error: Exception) -> tuple[ProblemDetails, dict[str, str]]:
    """The problem document of an error, and the headers of its response.

    >>> problem, _ = describe_error(errors.UnknownConversation("there is no such conversation"))
    >>> problem.status, problem.detail
    (404, 'there is no such conversation')
    """
    if isinstance(error, RequestRefused):
        return error.problem, error.headers
    if isinstance(error, errors.PalaverError):
        return _describe_palaver_error(error)
    if isinstance(error, HTTPException):
        return _describe_http_error(error)
    _log.error("a request failed", exc_info=error)
    detail = "something went wrong here; the server's log has more"
    return ProblemDetails(title=_title(500), status=500, detail=detail), {}


def error_response(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The response for any exception."""
    problem, headers = describe_error(_with_missing_body(request, error))
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type=PROBLEM_JSON,
        headers=headers,
    )


def _with_missing_body(request: Request[Any, Any, Any], error: Exception) -> Exception:
    """Replace litestar's error about a missing body by one that names the fields."""
    if isinstance(error, ValidationException) and isinstance(error.extra, list):
        kind = BodyDTO.kinds.get(request.route_handler.handler_id)
        if kind is not None and [one.get("key") for one in error.extra] == ["data"]:
            return missing_body(kind)
    return error


def _title(status: int) -> str:
    return HTTPStatus(status).phrase


def _status(error: errors.PalaverError) -> int:
    if isinstance(error, errors.ValidationError) and error.rule in _NOT_JSON:
        return 400
    kinds = type(error).__mro__
    return next(status for kind, status in STATUSES if kind in kinds)


def _describe_palaver_error(error: errors.PalaverError) -> tuple[ProblemDetails, dict[str, str]]:
    status, said = _status(error), error.to_dict()
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        _log.error("the store failed: %s", error)
    known = {key: said.pop(key) for key in ("path", "rule", "clashes", "version") if key in said}
    if "clashes" in known:
        known["clashes"] = [ClashDetails(**clash) for clash in known["clashes"]]
    name, detail = said.pop("name"), said.pop("detail", said.pop("message"))
    facts: Any = said or UNSET
    problem = ProblemDetails(
        title=_title(status), status=status, detail=detail, name=name, facts=facts, **known
    )
    headers: dict[str, str] = {}
    wait = getattr(error, "retry_after", None)
    if isinstance(error, errors.LeaseTaken):
        wait = 1
    if wait is not None:
        headers["Retry-After"] = str(max(1, round(wait)))
    return problem, headers


def _describe_http_error(error: HTTPException) -> tuple[ProblemDetails, dict[str, str]]:
    status, detail = error.status_code, error.detail
    where: Any = UNSET
    if isinstance(error, ValidationException) and isinstance(error.extra, list) and error.extra:
        first = error.extra[0]
        detail, where = str(first.get("message", detail)), str(first.get("key", "$"))
    headers = dict(error.headers or {})
    return ProblemDetails(title=_title(status), status=status, detail=detail, path=where), headers
