"""Every error palaver raises, in one tree.

    PalaverError
    ├── ValidationError                 a value breaks a rule; has its path and the rule
    │   └── PartValidationError         a part breaks a rule; has the part's type and the field too
    ├── InvalidStateTransition          a tool call can't go from its state to the requested one
    ├── UnsupportedOperation            the operation does not exist
    ├── UnknownMessage                  no message has this id or index
    ├── AmbiguousMessage                several messages have this id or handle; has all of them
    ├── NothingToUndo                   there is nothing to undo or to redo
    ├── Conflict                        two sides changed the same thing; has both changes
    │   └── VersionMismatch             a change expects a version that is not the newest
    ├── DoesNotFit                      the required content of a prompt exceeds the limit
    ├── CompactionRefused               compaction would not save tokens, or not safely
    ├── LimitExceeded                   a run reached one of its limits
    │   ├── TooManySteps                the number of steps
    │   └── BudgetExceeded              what it may cost
    ├── ToolFailed                      a tool reports that it failed
    │   └── ToolUnreachable             the server of a tool can't be reached
    ├── CallChanged                     a tool call is not the approved one; has its digest
    ├── MemberFailed                    a member of a team gave no answer
    │   └── ArgumentTooLong             a text is too long for a program's argument
    ├── StoreError                      a store can't do what it was asked
    │   ├── UnknownConversation         no conversation has this id
    │   ├── AlreadyExists               a conversation has this id already
    │   ├── LeaseTaken                  another worker holds the lease
    │   ├── LeaseLost                   the lease went to another worker meanwhile
    │   ├── StoreDamaged                the store's data is damaged
    │   ├── StoreMoved                  the store's file was deleted, moved or replaced
    │   ├── EncryptionError             the store is encrypted: it needs a key, or search is off
    │   └── Stale                       a change was made for a version that is not the newest
    └── ModelError                      a model gave no answer; has the provider's name
        ├── AuthError                   there is no key, or the provider refuses it
        ├── RateLimited                 too many requests; has the time to wait
        ├── Unavailable                 the provider failed or is overloaded
        ├── NetworkError                the provider can't be reached, or a timeout
        ├── BadRequest                  the provider refuses the request
        │   ├── ContextOverflow         the conversation is longer than the model's context window
        │   └── ContentFiltered         the provider's content filter refuses the request
        ├── OutputTooLong               the answer reached its length limit
        ├── BadAnswer                   the answer is malformed or incomplete
        └── Aborted                     the request was cancelled

The text of every error can be shown to a person: it says what is wrong, where, and by which rule.
`to_dict` returns the same as data, for logs and for other programs.
"""

from __future__ import annotations

import copy
import re
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

__all__ = [
    "Aborted",
    "AlreadyExists",
    "AmbiguousMessage",
    "ArgumentTooLong",
    "AuthError",
    "BadAnswer",
    "BadRequest",
    "BudgetExceeded",
    "CallChanged",
    "Clash",
    "CompactionRefused",
    "Conflict",
    "ContentFiltered",
    "ContextOverflow",
    "DoesNotFit",
    "EncryptionError",
    "InvalidStateTransition",
    "LeaseHolder",
    "LeaseLost",
    "LeaseTaken",
    "LimitExceeded",
    "MemberFailed",
    "ModelError",
    "NetworkError",
    "NothingToUndo",
    "OutputTooLong",
    "PalaverError",
    "PartValidationError",
    "RateLimited",
    "Stale",
    "StoreDamaged",
    "StoreError",
    "StoreMoved",
    "TooManySteps",
    "ToolFailed",
    "ToolUnreachable",
    "Unavailable",
    "UnknownConversation",
    "UnknownMessage",
    "UnsupportedOperation",
    "ValidationError",
    "VersionMismatch",
    "needs_extra",
]


_LONG = 160
_STEP = re.compile(r"""\.(\w+)|\[\d+\]|\['(?:[^'\\]|\\.)*'\]|\["(?:[^"\\]|\\.)*"\]""")


class PalaverError(Exception):
    """The base of all errors that palaver raises."""

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-ready data.

        >>> PalaverError("no such thing").to_dict()
        {'name': 'PalaverError', 'message': 'no such thing'}
        """
        return {"name": type(self).__name__, "message": str(self)}


class ValidationError(PalaverError, ValueError):
    """A value from outside breaks a rule.

    `path` is the position of the value, in the form `$.content[0].text`; `rule` is a word for the
    rule, such as `empty-output` or `text.nul`; `detail` says what is wrong.

    >>> str(ValidationError("must not be empty", path="$.output", rule="empty-output"))
    '$.output: must not be empty [empty-output]'
    """

    def __init__(self, detail: str, *, path: str = "$", rule: str = "schema") -> None:
        """Set `detail`, `path` and `rule`."""
        super().__init__(detail, path, rule)
        self.detail = detail
        self.path = path
        self.rule = rule

    def __str__(self) -> str:
        """Return path, detail and rule."""
        return f"{_short(self.path)}: {self.detail} [{self.rule}]"

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, so that errors can pass between processes."""
        return partial(type(self), path=self.path, rule=self.rule), (self.detail,)

    def under(self, prefix: str) -> ValidationError:
        """Return the same error with a prefix before its path.

        >>> ValidationError("is not text", path="$.text").under("$[3].content[0]").path
        '$[3].content[0].text'
        """
        return ValidationError(self.detail, path=prefix + self.path[1:], rule=self.rule)

    def moved(self, old: str, new: str) -> ValidationError:
        """Return the same error with another start of its path.

        >>> ValidationError("is odd", path="$.parts[0].text").moved("$.parts[0]", "$.parts[7]").path
        '$.parts[7].text'
        """
        bare = copy.copy(self)
        bare.path = "$" + self.path.removeprefix(old)
        return bare.under(new)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-ready data."""
        return super().to_dict() | {"detail": self.detail, "path": self.path, "rule": self.rule}


class PartValidationError(ValidationError):
    """A part breaks a rule. `part` is the part's type, `field` the field with the error."""

    def __init__(
        self, detail: str, *, path: str = "$", rule: str = "schema", part: str = "unknown"
    ) -> None:
        """Set the part's type and what every validation error has."""
        super().__init__(detail, path=path, rule=rule)
        self.part = part

    @property
    def field(self) -> str:
        """The field with the error: the last name in the path, or empty for the part itself."""
        names = [name for name in _STEP.findall(self.path) if name]
        return names[-1] if names else ""

    def __str__(self) -> str:
        """Return path, detail, part and rule."""
        return f"{_short(self.path)}: {self.detail} ({self.part} part) [{self.rule}]"

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, so that errors can pass between processes."""
        made = partial(type(self), path=self.path, rule=self.rule, part=self.part)
        return made, (self.detail,)

    def under(self, prefix: str) -> PartValidationError:
        """Return the same error with a prefix before its path."""
        path = prefix + self.path[1:]
        return PartValidationError(self.detail, path=path, rule=self.rule, part=self.part)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-ready data."""
        return {**super().to_dict(), "part": self.part, "field": self.field}


class InvalidStateTransition(PalaverError):  # noqa: N818 - the name is the design's
    """A tool call can't go from its state to the requested one.

    >>> error = InvalidStateTransition("completed", "running", ())
    >>> str(error)
    'a tool call that is completed cannot become running; it is final'
    >>> error.to_dict()["details"]["validTransitions"]
    []
    """

    def __init__(
        self, current_status: str, attempted_status: str, valid_transitions: tuple[str, ...]
    ) -> None:
        """Set the current status, the requested one, and those that are allowed."""
        super().__init__(current_status, attempted_status, valid_transitions)
        self.current_status = current_status
        self.attempted_status = attempted_status
        self.valid_transitions = valid_transitions

    def __str__(self) -> str:
        """Return what was tried and what is allowed."""
        ways = " or ".join(self.valid_transitions)
        after = f"it can only become {ways}" if ways else "it is final"
        if self.current_status == self.attempted_status:
            return f"a tool call is {self.current_status} already, with another payload; {after}"
        return (
            f"a tool call that is {self.current_status} cannot become "
            f"{self.attempted_status}; {after}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-ready data, with the statuses under `details`."""
        details = {
            "currentStatus": self.current_status,
            "attemptedStatus": self.attempted_status,
            "validTransitions": list(self.valid_transitions),
        }
        return {**super().to_dict(), "details": details}


class UnsupportedOperation(PalaverError, ValueError):  # noqa: N818 - what it is, not that it is one
    """The operation does not exist.

    >>> str(UnsupportedOperation("EXPLODE"))
    'Unsupported operation type: EXPLODE'
    """

    def __init__(self, operation: object, *, path: str = "$.operation") -> None:
        """Set the operation's name and its path."""
        super().__init__(operation)
        self.operation = operation
        self.path = path

    def __str__(self) -> str:
        """Return a text with the name."""
        return f"Unsupported operation type: {self.operation}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, so that errors can pass between processes."""
        return partial(type(self), path=self.path), (self.operation,)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-ready data, with its path."""
        return {**super().to_dict(), "path": self.path}


class UnknownMessage(PalaverError, LookupError):  # noqa: N818 - as above
    """No message has this id or this index."""


class AmbiguousMessage(PalaverError, LookupError):  # noqa: N818 - as above
    """Several messages have this id or this handle; `candidates` describes them.

    >>> str(AmbiguousMessage("msg-2", ["index 0", "index 1"]))
    "'msg-2' could mean 2 messages: index 0; index 1. Give the index or the message itself."
    """

    def __init__(self, name: str, candidates: Iterable[str]) -> None:
        """Set the name that was given, and what it could mean."""
        self.name = name
        self.candidates = tuple(candidates)
        super().__init__(name, self.candidates)

    def __str__(self) -> str:
        """Return the name and the candidates."""
        could = f"could mean {len(self.candidates)} messages: {'; '.join(self.candidates)}"
        return f"{self.name!r} {could}. Give the index or the message itself."

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-ready data, with the candidates."""
        return {**super().to_dict(), "candidates": list(self.candidates)}


class NothingToUndo(PalaverError):  # noqa: N818 - as above
    """There is nothing to undo, or nothing to redo."""


class Clash(NamedTuple):
    """One thing that two sides changed: its name, and what each side did to it."""

    what: str
    ours: str
    theirs: str


class Conflict(PalaverError):  # noqa: N818 - as above
    """Two sides changed the same thing, so applying one change would lose the other.

    >>> print(Conflict((Clash("message m1", "replaced by m2", "removed"),)))
    message m1: replaced by m2 here, removed there
    """

    def __init__(self, clashes: tuple[Clash, ...]) -> None:
        """Set the clashes."""
        super().__init__(clashes)
        self.clashes = clashes

    def __str__(self) -> str:
        """Return what each side did."""
        return "; ".join(
            f"{clash.what}: {clash.ours} here, {clash.theirs} there" for clash in self.clashes
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-ready data, with both sides."""
        return {**super().to_dict(), "clashes": [clash._asdict() for clash in self.clashes]}


class VersionMismatch(Conflict):
    """A change expects one of the versions `expected`, but the newest is `version`.

    >>> str(VersionMismatch((17,), 18))
    'the conversation is at version 18, not 17'
    """

    def __init__(self, expected: tuple[int, ...], version: int) -> None:
        """Set both versions, which are also the two sides of the conflict."""
        meant = " or ".join(map(str, expected)) or "none that exists"
        passed = bool(expected) and expected[-1] < version
        there = f"went from version {expected[-1]} to" if passed else "is at version"
        clash = Clash("the conversation", f"changed at version {meant}", f"{there} {version}")
        super().__init__((clash,))
        self.expected, self.version, self._meant = expected, version, meant

    def __str__(self) -> str:
        """Return the newest version and the expected one."""
        return f"the conversation is at version {self.version}, not {self._meant}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, so that errors can pass between processes."""
        return type(self), (self.expected, self.version)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-ready data, with both versions."""
        return {**super().to_dict(), "expected": list(self.expected), "version": self.version}


class DoesNotFit(PalaverError):  # noqa: N818 - it reads as what happened
    """The required content of a prompt exceeds the limit; required content is never shortened.

    >>> error = DoesNotFit(812, 512)
    >>> str(error), error.excess
    ('what the prompt must hold takes 812 bytes, 300 more than the 512 there are', 300)
    """

    def __init__(self, needed: int, limit: int, unit: str = "bytes") -> None:
        """Set the needed size and the limit; the unit is bytes or tokens."""
        super().__init__(needed, limit, unit)
        self.needed = needed
        self.limit = limit
        self.unit = unit

    @property
    def excess(self) -> int:
        """How much too large the content is."""
        return self.needed - self.limit

    def __str__(self) -> str:
        """Return the needed size and the limit."""
        return (
            f"what the prompt must hold takes {self.needed} {self.unit}, "
            f"{self.excess} more than the {self.limit} there are"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-ready data."""
        figures = {"needed": self.needed, "limit": self.limit, "excess": self.excess}
        return {**super().to_dict(), "unit": self.unit, **figures}


class CompactionRefused(PalaverError):  # noqa: N818 - as above
    """A compaction would not make the conversation shorter, or not safely. Nothing was changed."""


class LimitExceeded(PalaverError):  # noqa: N818 - as above
    """A run reached one of its limits; `limit` says which. What was done until then is stored."""

    def __init__(self, text: str, *, limit: str = "") -> None:
        """Take the text and the name of the limit."""
        super().__init__(text)
        self.limit = limit

    def to_dict(self) -> dict[str, Any]:
        """Return the error as data."""
        return {**super().to_dict(), "limit": self.limit}


class TooManySteps(LimitExceeded):
    """A loop reached its maximum number of steps without a final answer."""

    def __init__(self, text: str, *, limit: str = "steps") -> None:
        """Take the text."""
        super().__init__(text, limit=limit)


class BudgetExceeded(LimitExceeded):
    """The budget of a conversation or a run is spent, so no further step is started."""

    def __init__(self, text: str, *, limit: str = "cost") -> None:
        """Take the text."""
        super().__init__(text, limit=limit)


class ToolFailed(PalaverError):  # noqa: N818 - as above
    """A tool reports that it failed; the text is the tool's own."""


class ToolUnreachable(ToolFailed):
    """The server of a tool can't be reached or does not answer."""


class CallChanged(PalaverError):  # noqa: N818 - as above
    """A tool call is not the one that was approved or given to run. Nothing has run.

    `digest` is that of the call as it is now, or None if it is no longer in the conversation.
    """

    def __init__(self, detail: str, digest: str | None = None) -> None:
        """Set the digest, with which the call can be approved again."""
        super().__init__(detail)
        self.digest = digest

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-ready data."""
        return {**super().to_dict(), "digest": self.digest}


class MemberFailed(PalaverError):  # noqa: N818 - as above
    """A member of a team gave no answer. The text says why."""


class ArgumentTooLong(MemberFailed):
    """A text is too long for an argument, and the program does not take it in another way."""


class StoreError(PalaverError):
    """A store can't do what it was asked."""


class UnknownConversation(StoreError, LookupError):  # noqa: N818 - as above
    """No conversation has this id."""


class AlreadyExists(StoreError):  # noqa: N818 - as above
    """A conversation has this id already."""


class LeaseHolder(NamedTuple):
    """Who holds a lease: a name, and times in milliseconds since 1970.

    `since` is when it was taken, by the clock of the holder; None if that is not known. `until` is
    when it ends unless it is renewed.
    """

    name: str
    since: int | None
    until: int
    left: int


class LeaseTaken(StoreError):  # noqa: N818 - as above
    """Another worker holds the lease of a conversation: a run, a step or tool calls are under way.

    `holder` is the name of the worker, `since` when it took the lease and `until` when the lease
    ends unless it is renewed. Each is None if it is not known.

    >>> error = LeaseTaken(LeaseHolder("anna", None, until=1_790_000_000_000, left=3_000))
    >>> str(error).partition(" and ")[0]
    'anna has the lease for another 3.000 s (until 2026-09-21 14:13:20 UTC)'
    """

    def __init__(self, held: LeaseHolder | str) -> None:
        """Take who holds the lease, or a text."""
        super().__init__(held)
        self.holder: str | None = None
        self.since: datetime | None = None
        self.until: datetime | None = None
        if isinstance(held, LeaseHolder):
            self.holder, self.until = held.name, _utc(held.until)
            self.since = None if held.since is None else _utc(held.since)

    def __str__(self) -> str:
        """Return who holds the lease, since when and until when, and how to wait for it."""
        how = "; try again, or wait for it: Conversation(…, wait=SECONDS)"
        return f"{self.describe()}{how if self.holder is not None else ''}"

    def describe(self) -> str:
        """Return who holds the lease, since when and until when."""
        held = self.args[0]
        if not isinstance(held, LeaseHolder):
            return str(held)
        times = f"until {self.until:%Y-%m-%d %H:%M:%S} UTC"
        if self.since is not None:
            times = f"since {self.since:%Y-%m-%d %H:%M:%S}, {times}"
        return (
            f"{held.name} has the lease for another {held.left / 1_000:.3f} s ({times}) and renews "
            "it while it works"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-ready data, with who holds the lease and the times."""
        data = super().to_dict()
        if self.holder is not None:
            data["holder"] = self.holder
        for name, at in (("since", self.since), ("until", self.until)):
            if at is not None:
                data[name] = at.isoformat()
        return data


def _utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)


class LeaseLost(StoreError):  # noqa: N818 - as above
    """The lease went to another worker meanwhile, so the change is refused."""


class StoreDamaged(StoreError):  # noqa: N818 - as above
    """The store's data is damaged."""


class StoreMoved(StoreError):  # noqa: N818 - as above
    """The store's file was deleted, moved or replaced while it was open. Open the store again."""


class EncryptionError(StoreError):
    """The store is encrypted, and the key is missing, or the operation needs plain text.

    The text names the key that the content was encrypted with.
    """


class Stale(StoreError):  # noqa: N818 - as above
    """A change was made for a version that is not the newest; the history rebases it."""


class ModelError(PalaverError):
    """A model gave no answer, or not the requested one.

    `provider` is the provider's name, `status` the HTTP status if there was one, and `retry_after`
    the number of seconds to wait. The text never contains a key.

    >>> error = RateLimited("slow down", provider="openai", status=429, retry_after=2.0)
    >>> str(error)
    'openai: slow down (status 429, wait 2 s)'
    """

    def __init__(
        self,
        detail: str,
        *,
        provider: str = "",
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Set the detail, the provider, the status and the time to wait."""
        super().__init__(detail, provider, status, retry_after)
        self.detail = detail
        self.provider = provider
        self.status = status
        self.retry_after = retry_after

    def __str__(self) -> str:
        """Return the provider, the detail, and the status and time that are known."""
        figures = [f"status {self.status}"] if self.status else []
        if self.retry_after is not None:
            figures.append(f"wait {self.retry_after:g} s")
        after = f" ({', '.join(figures)})" if figures else ""
        before = f"{self.provider}: " if self.provider else ""
        return f"{before}{self.detail}{after}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, so that errors can pass between processes."""
        known = ("provider", "status", "retry_after")
        facts: dict[str, Any] = {name: getattr(self, name) for name in known}
        return partial(type(self), **facts), (self.detail,)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-ready data."""
        facts = {"status": self.status, "retryAfter": self.retry_after}
        return {**super().to_dict(), "provider": self.provider, **facts}


class AuthError(ModelError):
    """There is no key, or the provider refuses it."""


class RateLimited(ModelError):  # noqa: N818 - as above
    """There were too many requests; `retry_after` is the time to wait, if it is known."""


class Unavailable(ModelError):  # noqa: N818 - as above
    """The provider failed or is overloaded."""


class NetworkError(ModelError):
    """The provider could not be reached, or did not answer in time."""


class BadRequest(ModelError):  # noqa: N818 - as above
    """The provider refuses the request. The text is the provider's own."""


class ContextOverflow(BadRequest):
    """The conversation is longer than the model's context window."""


class ContentFiltered(BadRequest):
    """The provider's content filter refuses the request."""


class OutputTooLong(ModelError):  # noqa: N818 - as above
    """The answer reached its length limit before it was complete."""


class BadAnswer(ModelError):  # noqa: N818 - as above
    """The answer is malformed or incomplete."""


class Aborted(ModelError):  # noqa: N818 - as above
    """The request was cancelled."""


def _short(path: str) -> str:
    return path if len(path) <= _LONG else f"{path[:100]}…{path[-40:]}"


@contextmanager
def needs_extra(extra: str) -> Generator[None]:
    """Say which extra of palaver to install if a package that is imported here is missing.

    >>> with needs_extra("langchain"):
    ...     import a_missing_package
    Traceback (most recent call last):
        ...
    ModuleNotFoundError: No module named 'a_missing_package': pip install 'palaver[langchain]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("palaver"):
            raise
        msg = f"No module named {error.name!r}: pip install 'palaver[{extra}]'"
        raise ModuleNotFoundError(msg, name=error.name, path=error.path) from None
