"""A team as values: who is in it, who may call whom, and where it stops.

A `Team` is checked when it is made, so whoever holds one can trust it: names are told apart however
they are spelled, everybody who is mentioned is there, and there is a human to give the floor to.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct, field

from palaver.context import MAX_BYTES, WINDOW, Visibility, fold_name, normalize_agent_type
from palaver.conversation.models.base import OPTIONS
from palaver.errors import ValidationError
from palaver.messages import Speaker
from palaver.messages.gate import path_step
from palaver.team.profiles import BESIDE, PLAIN, PROFILES, Profile

__all__ = ["Agent", "Command", "Human", "Limits", "Member", "ModelMember", "Team"]

TIMEOUT: Final = 600.0
MAX_OUTPUT: Final = 1024 * 1024
_EVERYBODY: Final = "all"
_RESERVED: Final = re.compile(r"[\[\],!\r\n]")

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100)]
Variable: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$|^\*$")]
Whole: TypeAlias = Annotated[int, Meta(ge=0)]
Some: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]


class _Base(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel",
    omit_defaults=True, tag_field="kind",
):  # fmt: skip
    """What every member has."""

    id: Name
    name: Name | None = None

    @property
    def shown(self) -> str:
        """The name that others see."""
        return self.name or self.id

    @property
    def speaker(self) -> Speaker:
        """Who speaks, as a message has it."""
        kind: Literal["human", "ai"] = "human" if isinstance(self, Human) else "ai"
        return Speaker(self.id, self.shown, kind)


class Human(_Base, frozen=True, kw_only=True, tag="human"):
    """Somebody who is asked and waited for."""


class Agent(_Base, frozen=True, kw_only=True):
    """What every agent has: what it is told, what it sees, how long it may take.

    `instructions` is a file whose text follows the system text. `format` is the form of its prompt,
    by the name of an assembler. `rerun` says what becomes of a
    turn that was under way when the process ended: it is taken again, or recorded as a failure.
    """

    system: str = ""
    instructions: str | None = None
    format: str | None = None
    window: Whole = WINDOW
    visibility: Visibility = "all"
    max_bytes: Some = MAX_BYTES
    max_tokens: Some | None = None
    timeout: Seconds = TIMEOUT
    rerun: bool = True


class ModelMember(Agent, frozen=True, kw_only=True, tag="model"):
    """A model, by its name: `local:smollm2`, `anthropic:claude-…`."""

    model: Annotated[str, Meta(min_length=1)]
    format: str | None = BESIDE
    options: dict[str, Any] = field(default_factory=dict[str, Any])


class Command(Agent, frozen=True, kw_only=True, tag="command"):
    """A program that reads its prompt on standard input and answers on standard output.

    A `profile` knows the program and its flags; `argv` names any other, or the same one in another
    place; `args` are added to either. Of palaver's own environment it gets a few basic variables
    (`PATH`, `HOME`, the language, …) and those that `passEnv` names, where `*` at the end of a name
    stands for any rest; with `inheritEnv: false` none. `env` is added to that. Paths are as seen
    from the folder of the team file.
    """

    profile: str | None = None
    argv: Annotated[list[str], Meta(min_length=1)] | None = None
    args: list[str] = field(default_factory=list[str])
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict[str, str])
    pass_env: list[Variable] = field(default_factory=list[str])
    inherit_env: bool = True
    system_flag: str | None = None
    system_file_flag: str | None = None
    max_output: Some = MAX_OUTPUT

    @property
    def known(self) -> Profile:
        """Its profile, with what the member has of its own laid over it."""
        base = Profile((), PLAIN) if self.profile is None else PROFILES[self.profile]
        own_flag = bool(self.system_flag or self.system_file_flag)
        return Profile(
            (*(self.argv or base.argv), *self.args),
            normalize_agent_type(self.format or (BESIDE if own_flag else base.format)),
            self.system_flag if own_flag else base.system_flag,
            self.system_file_flag if own_flag else base.system_file_flag,
            base.variables,
        )


Member: TypeAlias = Human | ModelMember | Command


class Limits(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Where runaways stop: agents' turns in a row, and turns that wait."""

    turns: Some = 20
    queue: Some = 50


class Team(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel",
    omit_defaults=True,
):  # fmt: skip
    """Who works together, and how.

    `routes` restricts whom a member may call; one that is not in it may call everybody. `default`
    gets what a human says to nobody in particular. `task` is the team task to begin with.

    >>> team = Team(members=[Human(id="user"), ModelMember(id="max", model="local:smollm2")])
    >>> team.find("MAX").model, team.find("nobody")
    ('local:smollm2', None)
    """

    name: str | None = None
    task: str | None = None
    members: list[Member]
    routes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    default: str | None = None
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        """Check what no schema can say."""
        known: dict[str, int] = {}
        for index, member in enumerate(self.members):
            _check_names(member, index, known)
            if isinstance(member, Command):
                _check_command(member, f"$.members[{index}]")
            elif isinstance(member, ModelMember):
                _check_options(member, f"$.members[{index}].options")
        if len(self.members) < 2:  # noqa: PLR2004 - it says so below
            raise _wrong("a team has at least two members", "$.members")
        if not self.humans:
            raise _wrong("a team has at least one human", "$.members")
        self._check_mentions()

    def _check_mentions(self) -> None:
        for origin, targets in self.routes.items():
            path = f"$.routes{path_step(origin)}"
            if self.find(origin) is None:
                raise _wrong(f"{origin!r} is not in the team", path)
            for index, target in enumerate(targets):
                if self.find(target) is None:
                    raise _wrong(f"{target!r} is not in the team", f"{path}[{index}]")
        if self.default is not None and self.find(self.default) is None:
            raise _wrong(f"{self.default!r} is not in the team", "$.default")

    @property
    def humans(self) -> list[Human]:
        """The humans, in order."""
        return [member for member in self.members if isinstance(member, Human)]

    def find(self, name: str) -> Member | None:
        """The member of an id or a name, whatever its case, spaces, `-` and `_`."""
        return self.names().get(fold_name(name))

    def names(self) -> dict[str, Member]:
        """The members by every name they have, spelled as `fold_name` does."""
        return {
            fold_name(name): member for member in self.members for name in (member.id, member.shown)
        }

    def may_call(self, origin: Member, target: Member) -> bool:
        """Tell whether a member may give another one a turn."""
        for name, targets in self.routes.items():
            if self.find(name) == origin:
                return any(self.find(other) == target for other in targets)
        return True


def _check_names(member: Member, index: int, known: dict[str, int]) -> None:
    path = f"$.members[{index}]"
    for label, name in (("id", member.id), ("name", member.shown)):
        where = f"{path}.{label}"
        if _RESERVED.search(name) or name != name.strip():
            detail = "must not have brackets, commas, !, line breaks, or spaces at its ends"
            raise _wrong(detail, where)
        folded = fold_name(name)
        if folded == _EVERYBODY:
            raise _wrong(f"{name!r} is what [DROP: ALL] says", where)
        owner = known.setdefault(folded, index)
        if owner != index:
            raise _wrong(f"{name!r} is taken by another member", where)


def _check_command(member: Command, path: str) -> None:
    if member.profile is not None and member.profile not in PROFILES:
        names = ", ".join(PROFILES)
        detail = f"there is no profile {member.profile!r}; there are {names}"
        raise _wrong(detail, f"{path}.profile")
    if member.profile is None and member.argv is None:
        raise _wrong("a command needs a profile or an argv", path)
    if member.pass_env and not member.inherit_env:
        raise _wrong("says what is inherited, and inheritEnv is false", f"{path}.passEnv")
    known = member.known
    beside = known.format == BESIDE
    if (
        beside
        and (member.system or member.instructions)
        and not (known.system_flag or known.system_file_flag)
    ):
        raise _wrong(f"{BESIDE} puts it beside the prompt: systemFlag is missing", f"{path}.system")
    if not beside and (member.system_flag or member.system_file_flag):
        raise _wrong(f"with systemFlag the format is {BESIDE}", f"{path}.format")


def _check_options(member: ModelMember, path: str) -> None:
    for name in member.options:
        if name not in OPTIONS:
            known = ", ".join(sorted(OPTIONS))
            raise _wrong(f"no such option; there are {known}", f"{path}{path_step(name)}")


def _wrong(detail: str, path: str) -> ValidationError:
    return ValidationError(detail, path=path, rule="TM-05")
