"""Every error palaver raises, in one tree.

    PalaverError
    ├── ValidationError                 a value breaks a rule; says where (path) and which (rule)
    │   └── PartValidationError         … inside a part; also names the part and the field
    ├── InvalidStateTransition          a tool call can't go from this state to that one
    ├── UnsupportedOperation            an operation that no history knows
    ├── UnknownMessage                  no message has this id, or this place
    ├── NothingToUndo                   undo or redo, with nothing to go back or on to
    ├── Conflict                        two sides changed the same thing; says what each did
    │   └── VersionMismatch             a change for a certain version that is not the newest
    ├── BudgetExceeded                  what may be spent is spent
    ├── DoesNotFit                      what must be in a prompt is too much; says by how much
    ├── CompactionRefused               making room would not make room, or not safely
    ├── TooManySteps                    a loop that does not come to an end
    ├── ToolFailed                      a tool says that it could not do what it was asked
    │   └── ToolUnreachable             the server that has the tool is gone, or was never there
    ├── CallChanged                     a tool call is not the one that was approved; has its digest
    ├── MemberFailed                    a member of a team gave no answer; says why
    │   └── ArgumentTooLong             what no argument can hold, and the program takes no file
    ├── StoreError                      something about the place where histories are kept
    │   ├── UnknownConversation         no conversation has this id
    │   ├── AlreadyExists               a conversation has this id already
    │   ├── LeaseTaken                  another worker is at this step
    │   ├── LeaseLost                   a worker that comes back late is refused
    │   ├── StoreDamaged                the file is not what it should be
    │   ├── StoreMoved                  the file is gone, or another is in its place
    │   └── Stale                       a change for a version that is no longer the last
    └── ModelError                      a model gave no answer; says whose it is
        ├── AuthError                   no key, or one that is refused
        ├── RateLimited                 too much at once; says how long to wait
        ├── Unavailable                 the provider itself failed, or has no room
        ├── NetworkError                it could not be reached, or said nothing in time
        ├── BadRequest                  the provider refuses what it was asked
        ├── ContextOverflow             the conversation is longer than the model's window
        ├── ContentFiltered             the provider will not answer this
        ├── OutputTooLong               the answer ran into its limit
        ├── BadAnswer                   what came is no answer, or only half of one
        └── Aborted                     the answer was called off

Every error can be shown to a person as it is: the text says what is wrong, where, and by which
rule. `to_dict` gives the same as data, for logs and for other programs.
"""

from __future__ import annotations

import copy
import re
from functools import partial
from typing import Any, NamedTuple

__all__ = [
    "Aborted",
    "AlreadyExists",
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
    "InvalidStateTransition",
    "LeaseLost",
    "LeaseTaken",
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
]


_LONG = 160
_STEP = re.compile(r"""\.(\w+)|\[\d+\]|\['(?:[^'\\]|\\.)*'\]|\["(?:[^"\\]|\\.)*"\]""")


class PalaverError(Exception):
    """Something palaver was asked to do can't be done."""

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-ready data.

        >>> PalaverError("no such thing").to_dict()
        {'name': 'PalaverError', 'message': 'no such thing'}
        """
        return {"name": type(self).__name__, "message": str(self)}


class ValidationError(PalaverError, ValueError):
    """A value from outside breaks a rule.

    `path` is where it is, in the form `$.content[0].text`; `rule` is which rule, such as `BR-09`
    or `text.nul`; `detail` says it in words.

    >>> str(ValidationError("must not be empty", path="$.output", rule="BR-09"))
    '$.output: must not be empty [BR-09]'
    """

    def __init__(self, detail: str, *, path: str = "$", rule: str = "schema") -> None:
        """Keep the three facts apart, so that callers need not read the text."""
        super().__init__(detail, path, rule)
        self.detail = detail
        self.path = path
        self.rule = rule

    def __str__(self) -> str:
        """Where, what, which rule."""
        return f"{_short(self.path)}: {self.detail} [{self.rule}]"

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes."""
        return partial(type(self), path=self.path, rule=self.rule), (self.detail,)

    def under(self, prefix: str) -> ValidationError:
        """The same error, seen from further out.

        >>> ValidationError("is not text", path="$.text").under("$[3].content[0]").path
        '$[3].content[0].text'
        """
        return ValidationError(self.detail, path=prefix + self.path[1:], rule=self.rule)

    def moved(self, old: str, new: str) -> ValidationError:
        """The same error, with one path in place of another at its beginning.

        >>> ValidationError("is odd", path="$.parts[0].text").moved("$.parts[0]", "$.parts[7]").path
        '$.parts[7].text'
        """
        bare = copy.copy(self)
        bare.path = "$" + self.path.removeprefix(old)
        return bare.under(new)

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-ready data."""
        return super().to_dict() | {"detail": self.detail, "path": self.path, "rule": self.rule}


class PartValidationError(ValidationError):
    """A part breaks a rule. `part` is the part's type, `field` the field at fault."""

    def __init__(
        self, detail: str, *, path: str = "$", rule: str = "schema", part: str = "unknown"
    ) -> None:
        """Take the part's type beside what every validation error has."""
        super().__init__(detail, path=path, rule=rule)
        self.part = part

    @property
    def field(self) -> str:
        """The last name in the path, the field at fault; empty where it is the part as a whole."""
        names = [name for name in _STEP.findall(self.path) if name]
        return names[-1] if names else ""

    def __str__(self) -> str:
        """Where, what, in which kind of part, which rule."""
        return f"{_short(self.path)}: {self.detail} ({self.part} part) [{self.rule}]"

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes."""
        made = partial(type(self), path=self.path, rule=self.rule, part=self.part)
        return made, (self.detail,)

    def under(self, prefix: str) -> PartValidationError:
        """The same error, seen from further out."""
        path = prefix + self.path[1:]
        return PartValidationError(self.detail, path=path, rule=self.rule, part=self.part)

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-ready data."""
        return {**super().to_dict(), "part": self.part, "field": self.field}


class InvalidStateTransition(PalaverError):  # noqa: N818 - the name is the design's
    """A tool call can't move from its state to the one asked for.

    >>> error = InvalidStateTransition("completed", "running", ())
    >>> str(error)
    'a tool call that is completed cannot become running; it is final'
    >>> error.to_dict()["details"]["validTransitions"]
    []
    """

    def __init__(
        self, current_status: str, attempted_status: str, valid_transitions: tuple[str, ...]
    ) -> None:
        """Say where the call is, where it was to go, and where it may go."""
        super().__init__(current_status, attempted_status, valid_transitions)
        self.current_status = current_status
        self.attempted_status = attempted_status
        self.valid_transitions = valid_transitions

    def __str__(self) -> str:
        """Say what was tried and what may be done instead."""
        ways = " or ".join(self.valid_transitions)
        after = f"it can only become {ways}" if ways else "it is final"
        if self.current_status == self.attempted_status:
            return f"a tool call is {self.current_status} already, with another payload; {after}"
        return (
            f"a tool call that is {self.current_status} cannot become "
            f"{self.attempted_status}; {after}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-ready data, in the design's own form."""
        details = {
            "currentStatus": self.current_status,
            "attemptedStatus": self.attempted_status,
            "validTransitions": list(self.valid_transitions),
        }
        return {**super().to_dict(), "details": details}


class UnsupportedOperation(PalaverError, ValueError):  # noqa: N818 - what it is, not that it is one
    """An operation that no history knows.

    >>> str(UnsupportedOperation("EXPLODE"))
    'Unsupported operation type: EXPLODE'
    """

    def __init__(self, operation: object, *, path: str = "$.operation") -> None:
        """Keep the name, and where it stood."""
        super().__init__(operation)
        self.operation = operation
        self.path = path

    def __str__(self) -> str:
        """Say the name."""
        return f"Unsupported operation type: {self.operation}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes."""
        return partial(type(self), path=self.path), (self.operation,)

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-ready data, with its place."""
        return {**super().to_dict(), "path": self.path}


class UnknownMessage(PalaverError, LookupError):  # noqa: N818 - as above
    """No message has this id, or stands in this place."""


class NothingToUndo(PalaverError):  # noqa: N818 - as above
    """There is nothing to undo, or nothing to redo."""


class Clash(NamedTuple):
    """One thing that two sides changed: its name, and what became of it on each side."""

    what: str
    ours: str
    theirs: str


class Conflict(PalaverError):  # noqa: N818 - as above
    """Two sides changed the same thing, so neither can be followed without losing the other.

    >>> print(Conflict((Clash("message m1", "replaced by m2", "removed"),)))
    message m1: replaced by m2 here, removed there
    """

    def __init__(self, clashes: tuple[Clash, ...]) -> None:
        """Keep every clash."""
        super().__init__(clashes)
        self.clashes = clashes

    def __str__(self) -> str:
        """Say what each side did."""
        return "; ".join(
            f"{clash.what}: {clash.ours} here, {clash.theirs} there" for clash in self.clashes
        )

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-ready data, with both sides."""
        return {**super().to_dict(), "clashes": [clash._asdict() for clash in self.clashes]}


class VersionMismatch(Conflict):
    """A change that must follow one of the versions `expected`; the newest is `version`.

    >>> str(VersionMismatch((17,), 18))
    'the conversation is at version 18, not 17'
    """

    def __init__(self, expected: tuple[int, ...], version: int) -> None:
        """Keep both numbers; they are the two sides of the conflict, too."""
        meant = " or ".join(map(str, expected)) or "none that exists"
        passed = bool(expected) and expected[-1] < version
        there = f"went from version {expected[-1]} to" if passed else "is at version"
        clash = Clash("the conversation", f"changed at version {meant}", f"{there} {version}")
        super().__init__((clash,))
        self.expected, self.version, self._meant = expected, version, meant

    def __str__(self) -> str:
        """Say which version there is, and which was expected."""
        return f"the conversation is at version {self.version}, not {self._meant}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes."""
        return type(self), (self.expected, self.version)

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-ready data, with both versions."""
        return {**super().to_dict(), "expected": list(self.expected), "version": self.version}


class BudgetExceeded(PalaverError):  # noqa: N818 - it reads as what happened
    """What may be spent on a conversation is spent: no further step is begun."""


class DoesNotFit(PalaverError):  # noqa: N818 - as above
    """What a prompt must hold takes more room than there is; nothing of it is ever cut.

    >>> error = DoesNotFit(812, 512)
    >>> str(error), error.excess
    ('what the prompt must hold takes 812 bytes, 300 more than the 512 there are', 300)
    """

    def __init__(self, needed: int, limit: int, unit: str = "bytes") -> None:
        """Keep the figures apart from the words; the unit is bytes or tokens."""
        super().__init__(needed, limit, unit)
        self.needed = needed
        self.limit = limit
        self.unit = unit

    @property
    def excess(self) -> int:
        """By how much it does not fit."""
        return self.needed - self.limit

    def __str__(self) -> str:
        """How much is needed, and how much there is."""
        return (
            f"what the prompt must hold takes {self.needed} {self.unit}, "
            f"{self.excess} more than the {self.limit} there are"
        )

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-ready data."""
        figures = {"needed": self.needed, "limit": self.limit, "excess": self.excess}
        return {**super().to_dict(), "unit": self.unit, **figures}


class CompactionRefused(PalaverError):  # noqa: N818 - as above
    """A compaction that would not make a conversation shorter, or not safely: nothing changed."""


class TooManySteps(PalaverError):  # noqa: N818 - as above
    """A loop took as many steps as it may, and there was still no answer."""


class ToolFailed(PalaverError):  # noqa: N818 - as above
    """A tool says, in its own words, that it could not do what it was asked."""


class ToolUnreachable(ToolFailed):
    """The server that has the tool could not be reached, is gone, or does not answer."""


class CallChanged(PalaverError):  # noqa: N818 - as above
    """A tool call is not the one that was approved or given to run; nothing has run.

    `digest` is that of the call as it is now; None where it has left the conversation.
    """

    def __init__(self, detail: str, digest: str | None = None) -> None:
        """Keep what the call is now, so that it can be asked about again."""
        super().__init__(detail)
        self.digest = digest

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-ready data."""
        return {**super().to_dict(), "digest": self.digest}


class MemberFailed(PalaverError):  # noqa: N818 - as above
    """A member of a team gave no answer; the text says why."""


class ArgumentTooLong(MemberFailed):
    """A text is too long for an argument, and the program takes it in no other way."""


class StoreError(PalaverError):
    """Something about the place where histories are kept."""


class UnknownConversation(StoreError, LookupError):  # noqa: N818 - as above
    """No conversation has this id."""


class AlreadyExists(StoreError):  # noqa: N818 - as above
    """A conversation has this id already."""


class LeaseTaken(StoreError):  # noqa: N818 - as above
    """Another worker is at this step; it says until when."""


class LeaseLost(StoreError):  # noqa: N818 - as above
    """The lease went to another worker meanwhile, so what this one brings is refused."""


class StoreDamaged(StoreError):  # noqa: N818 - as above
    """The file is not what it should be."""


class StoreMoved(StoreError):  # noqa: N818 - as above
    """The file was deleted, moved or replaced while the store was open: open it again."""


class Stale(StoreError):  # noqa: N818 - as above
    """A change was made for a version that is no longer the last; the history rebases it."""


class ModelError(PalaverError):
    """A model gave no answer, or not the one that was asked for.

    `provider` is whose model it is, `status` the HTTP status where there was one, `retry_after`
    how many seconds the provider wants to be left alone. No key is ever in the text.

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
        """Keep the facts apart from the words."""
        super().__init__(detail, provider, status, retry_after)
        self.detail = detail
        self.provider = provider
        self.status = status
        self.retry_after = retry_after

    def __str__(self) -> str:
        """Who, what, and the figures that are known."""
        figures = [f"status {self.status}"] if self.status else []
        if self.retry_after is not None:
            figures.append(f"wait {self.retry_after:g} s")
        after = f" ({', '.join(figures)})" if figures else ""
        before = f"{self.provider}: " if self.provider else ""
        return f"{before}{self.detail}{after}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes."""
        known = ("provider", "status", "retry_after")
        facts: dict[str, Any] = {name: getattr(self, name) for name in known}
        return partial(type(self), **facts), (self.detail,)

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-ready data."""
        facts = {"status": self.status, "retryAfter": self.retry_after}
        return {**super().to_dict(), "provider": self.provider, **facts}


class AuthError(ModelError):
    """There is no key, or the provider refuses it."""


class RateLimited(ModelError):  # noqa: N818 - as above
    """Too much was asked at once; `retry_after` says how long to wait, where that is known."""


class Unavailable(ModelError):  # noqa: N818 - as above
    """The provider itself failed, or has no room at the moment."""


class NetworkError(ModelError):
    """The provider could not be reached, or said nothing in time."""


class BadRequest(ModelError):  # noqa: N818 - as above
    """The provider refuses what it was asked; the text has its own words."""


class ContextOverflow(BadRequest):
    """The conversation is longer than the model's window."""


class ContentFiltered(BadRequest):
    """The provider will not answer this."""


class OutputTooLong(ModelError):  # noqa: N818 - as above
    """The answer ran into its limit before it was complete."""


class BadAnswer(ModelError):  # noqa: N818 - as above
    """What came is no answer, or only half of one."""


class Aborted(ModelError):  # noqa: N818 - as above
    """The answer was called off."""


def _short(path: str) -> str:
    return path if len(path) <= _LONG else f"{path[:100]}…{path[-40:]}"
