r"""Teams and team files: the members, who may call whom, and the limits.

A `Team` is checked when it is made, so that everybody who holds one can rely on it: names differ
however they are spelled, every member that is mentioned exists, and there is a human. A team file
is YAML or JSON; an error says where in the file it is.

>>> team = read_team("members: [{kind: human, id: user}, {kind: command, id: max, argv: [cat]}]")
>>> [member.id for member in team.members]
['user', 'max']
>>> read_team("members:\n  - kind: human\n    id: user\n")
Traceback (most recent call last):
palaver.errors.ValidationError: $.members: line 1, column 1: a team has at least two members...

A file is data and never code: tags don't become types, and aliases, which can expand a small file
to any size, are refused. YAML needs the extra `team`; JSON is read without it too, then without
line numbers.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from palaver.context import MAX_BYTES, WINDOW, Visibility, fold_name, normalize_agent_type
from palaver.errors import ValidationError
from palaver.messages import Speaker
from palaver.messages.decode import check_unique_names, convert
from palaver.messages.limits import check_argument, is_list, path_step
from palaver.models.base import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "FLAG_FORMAT",
    "PLAIN_FORMAT",
    "PROFILES",
    "SCHEMA",
    "Agent",
    "CommandMember",
    "Human",
    "Member",
    "ModelMember",
    "Profile",
    "Team",
    "TeamLimits",
    "load_team",
    "read_document",
    "read_team",
    "schema",
]

TIMEOUT: Final = 600.0
MAX_OUTPUT: Final = 1024 * 1024
_EVERYBODY: Final = "all"
_RESERVED: Final = re.compile(r"[\[\],!\r\n]")

_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100)]
_Variable: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$|^\*$")]
_Count: TypeAlias = Annotated[int, Meta(ge=0)]
_Positive: TypeAlias = Annotated[int, Meta(ge=1)]
_Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
_MAX_FILE: Final = 1024 * 1024
_MAX_DEPTH: Final = 50
_ERROR_PATH: Final = re.compile(r"(.*?)(?: - at `(?:key in )?(\$.*)`)?", re.DOTALL)
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(.*)`")


# ── known programs ────────────────────────────────────────────────────────────────────────────────


FLAG_FORMAT: Final = "claude-code"
"""The prompt format whose system text goes beside the prompt, as an argument."""
PLAIN_FORMAT: Final = "plain"
"""The prompt format of programs without a profile."""


class Profile(Struct, frozen=True):
    """How a program is called: its arguments, the format of its prompt, its system flags.

    `variables` name the folder of the program's login and settings, where that is not in HOME.
    """

    argv: tuple[str, ...]
    format: str
    system_flag: str | None = None
    system_file_flag: str | None = None
    variables: tuple[str, ...] = ()


PROFILES: Final[Mapping[str, Profile]] = {
    # `--append-system-prompt-file` is not in the list of options, only in the text on `--bare`;
    # the program accepts it, and reports a file that is missing
    "claude": Profile(
        ("claude", "-p", "--output-format", "text"),
        FLAG_FORMAT,
        "--append-system-prompt",
        "--append-system-prompt-file",
        ("CLAUDE_CONFIG_DIR",),
    ),
    # `-` is standard input; the answer is on standard output, progress on standard error
    "codex": Profile(
        ("codex", "exec", "--skip-git-repo-check", "--color", "never", "-"),
        "openai-codex",
        variables=("CODEX_HOME",),
    ),
    # without a terminal it runs headless, and `-p TEXT` would only be added to standard input
    "gemini": Profile(("gemini", "--output-format", "text"), "google-gemini"),
}
"""The programs that palaver knows how to call, by name.

Each was checked against the program's own help: claude 2.1.327, codex-cli 0.169.0, gemini 0.61.0.
All read the prompt on standard input, so that no prompt is too long for an argument.
"""


# ── members and the team ──────────────────────────────────────────────────────────────────────────


class _Base(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel",
    omit_defaults=True, tag_field="kind",
):  # fmt: skip
    """The fields of every member."""

    id: _Name
    name: _Name | None = None

    @property
    def shown(self) -> str:
        """The name that others see."""
        return self.name or self.id

    @property
    def speaker(self) -> Speaker:
        """The speaker of the member's messages."""
        kind: Literal["human", "ai"] = "human" if isinstance(self, Human) else "ai"
        return Speaker(self.id, self.shown, kind)


class Human(_Base, frozen=True, kw_only=True, tag="human"):
    """A person, whose answers the team waits for."""


class Agent(_Base, frozen=True, kw_only=True):
    """The fields of every agent: its instructions, what it sees, how long it may take.

    `instructions` is a file whose text follows the system text. `format` is the format of its
    prompt, by the name of an assembler. `rerun` says what happens to a turn that was running when
    the process ended: it is taken again, or recorded as a failure.
    """

    system: str = ""
    instructions: str | None = None
    format: str | None = None
    window: _Count = WINDOW
    visibility: Visibility = "all"
    max_bytes: _Positive = MAX_BYTES
    max_tokens: _Positive | None = None
    timeout: _Seconds = TIMEOUT
    rerun: bool = True


class ModelMember(Agent, frozen=True, kw_only=True, tag="model"):
    """A model, by its name: `local:smollm2`, `anthropic:claude-…`.

    `tools` are what it may call: names of tools that the team was given, or `MODULE:ATTR` for what
    a Python module has, such as `my_tools:weather`.
    """

    model: Annotated[str, Meta(min_length=1)]
    format: str | None = FLAG_FORMAT
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    tools: list[_Name] = field(default_factory=list[str])


class CommandMember(Agent, frozen=True, kw_only=True, tag="command"):
    """A program that reads its prompt on standard input and answers on standard output.

    A `profile` knows the program and its flags; `argv` names any other program, or the same one
    at another path; `args` are added to either. Of palaver's own environment it gets a few basic
    variables (`PATH`, `HOME`, the language, …) and those that `passEnv` names, where `*` at the end
    of a name stands for anything; with `inheritEnv: false` it gets none. `env` is added to that.
    Paths are relative to the folder of the team file.
    """

    profile: str | None = None
    argv: Annotated[list[str], Meta(min_length=1)] | None = None
    args: list[str] = field(default_factory=list[str])
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict[str, str])
    pass_env: list[_Variable] = field(default_factory=list[str])
    inherit_env: bool = True
    system_flag: str | None = None
    system_file_flag: str | None = None
    max_output: _Positive = MAX_OUTPUT

    @property
    def known(self) -> Profile:
        """The member's profile, with the member's own fields in place of the profile's."""
        base = Profile((), PLAIN_FORMAT) if self.profile is None else PROFILES[self.profile]
        own_flag = bool(self.system_flag or self.system_file_flag)
        return Profile(
            (*(self.argv or base.argv), *self.args),
            normalize_agent_type(self.format or (FLAG_FORMAT if own_flag else base.format)),
            self.system_flag if own_flag else base.system_flag,
            self.system_file_flag if own_flag else base.system_file_flag,
            base.variables,
        )


Member: TypeAlias = Human | ModelMember | CommandMember


class TeamLimits(
    Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """The limits of a team: agents' turns in a row, and turns that wait."""

    turns: _Positive = 20
    queue: _Positive = 50


class Team(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel",
    omit_defaults=True,
):  # fmt: skip
    """The members of a team, and who may call whom.

    `routes` restricts whom a member may call; a member that is not in it may call everybody.
    `default` gets the messages in which a human calls nobody. `task` is the first team task.

    >>> team = Team(members=[Human(id="user"), ModelMember(id="max", model="local:smollm2")])
    >>> team.find("MAX").model, team.find("nobody")
    ('local:smollm2', None)
    """

    name: str | None = None
    task: str | None = None
    members: list[Member]
    routes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    default: str | None = None
    limits: TeamLimits = TeamLimits()

    def __post_init__(self) -> None:
        """Check what a schema can't express."""
        known: dict[str, int] = {}
        check_argument(self.members, (list, tuple), "$.members", "a list of members")
        for index, member in enumerate(self.members):
            _check_member(member, f"$.members[{index}]")
            _check_names(member, index, known)
            if isinstance(member, CommandMember):
                _check_command(member, f"$.members[{index}]")
            elif isinstance(member, ModelMember):
                _check_options(member, f"$.members[{index}].options")
        if len(self.members) < 2:  # noqa: PLR2004 - the message says it
            raise _error("a team has at least two members", "$.members")
        if not self.humans:
            raise _error("a team has at least one human", "$.members")
        self._check_mentions()

    def _check_mentions(self) -> None:
        for origin, targets in self.routes.items():
            path = f"$.routes{path_step(origin)}"
            if self.find(origin) is None:
                raise _error(f"{origin!r} is not in the team", path)
            for index, target in enumerate(targets):
                if self.find(target) is None:
                    raise _error(f"{target!r} is not in the team", f"{path}[{index}]")
        if self.default is not None and self.find(self.default) is None:
            raise _error(f"{self.default!r} is not in the team", "$.default")

    @property
    def humans(self) -> list[Human]:
        """The humans, in order."""
        return [member for member in self.members if isinstance(member, Human)]

    def find(self, name: str) -> Member | None:
        """Return a member by its id or name, regardless of case, spaces, `-` and `_`."""
        return self.names().get(fold_name(name))

    def names(self) -> dict[str, Member]:
        """The members by each of their names, as `fold_name` spells them."""
        return {
            fold_name(name): member for member in self.members for name in (member.id, member.shown)
        }

    def may_call(self, origin: Member, target: Member) -> bool:
        """Tell whether a member may give another one a turn."""
        for name, targets in self.routes.items():
            if self.find(name) == origin:
                return any(self.find(other) == target for other in targets)
        return True


def _check_member(member: object, path: str) -> None:
    """Check what was made in Python as what is read from a file is checked."""
    kinds = (Human, ModelMember, CommandMember)
    check_argument(member, kinds, path, "Human(…), ModelMember(…) or CommandMember(…)")
    try:
        convert(msgspec.to_builtins(member), type(member))
    except msgspec.ValidationError as error:
        detail, _, where = str(error).partition(" - at `")
        raise _error(detail, path + where.strip("`").removeprefix("$")) from None


def _check_names(member: Member, index: int, known: dict[str, int]) -> None:
    path = f"$.members[{index}]"
    for label, name in (("id", member.id), ("name", member.shown)):
        where = f"{path}.{label}"
        if _RESERVED.search(name) or name != name.strip():
            detail = "must not have brackets, commas, !, line breaks, or spaces at its ends"
            raise _error(detail, where)
        folded = fold_name(name)
        if folded == _EVERYBODY:
            raise _error(f"{name!r} is reserved for [DROP: ALL]", where)
        owner = known.setdefault(folded, index)
        if owner != index:
            raise _error(f"{name!r} is taken by another member", where)


def _check_command(member: CommandMember, path: str) -> None:
    if member.profile is not None and member.profile not in PROFILES:
        names = ", ".join(PROFILES)
        detail = f"there is no profile {member.profile!r}; there are {names}"
        raise _error(detail, f"{path}.profile")
    if member.profile is None and member.argv is None:
        raise _error("a command needs a profile or an argv", path)
    if member.pass_env and not member.inherit_env:
        raise _error("says what is inherited, and inheritEnv is false", f"{path}.passEnv")
    known = member.known
    beside = known.format == FLAG_FORMAT
    if (
        beside
        and (member.system or member.instructions)
        and not (known.system_flag or known.system_file_flag)
    ):
        raise _error(
            f"{FLAG_FORMAT} puts it beside the prompt: systemFlag is missing", f"{path}.system"
        )
    if not beside and (member.system_flag or member.system_file_flag):
        raise _error(f"with systemFlag the format is {FLAG_FORMAT}", f"{path}.format")


def _check_options(member: ModelMember, path: str) -> None:
    for name in member.options:
        if name not in OPTIONS:
            known = ", ".join(sorted(OPTIONS))
            raise _error(f"no such option; there are {known}", f"{path}{path_step(name)}")


def _error(detail: str, path: str) -> ValidationError:
    return ValidationError(detail, path=path, rule="team")


# ── team files ────────────────────────────────────────────────────────────────────────────────────


def load_team(file: str | Path) -> Team:
    """Read a team from a file. Paths in it are relative to the file's folder."""
    path = Path(file)
    size = path.stat().st_size
    if size > _MAX_FILE:
        raise _error(f"the file has {size:,} bytes; {_MAX_FILE:,} is the most", "$")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _error(f"the file is not UTF-8 at byte {error.start}", "$") from None
    return read_team(text)


def read_team(text: str) -> Team:
    """Read a team from the text of a file."""
    value, positions = read_document(text)
    try:
        return convert(value, Team)
    except msgspec.ValidationError as error:
        cause = error.__cause__  # msgspec wraps the error of __post_init__
        if isinstance(cause, ValidationError):
            raise _positioned_error(cause.detail, cause.path, positions) from None
        raise _schema_error(str(error), positions) from None


def read_document(text: str) -> tuple[object, FilePositions]:
    """Read a YAML or JSON document as plain values; return them and their positions."""
    return _read_json(text) if text.lstrip()[:1] == "{" else _read_yaml(text)


def _schema_error(text: str, positions: FilePositions) -> ValidationError:
    found = _ERROR_PATH.fullmatch(text)
    detail, path = (found[1], found[2] or "$") if found else (text, "$")
    unknown = _UNKNOWN_FIELD.search(detail)
    if unknown is not None:
        path += path_step(unknown[1])
        detail = "no such field"
    return _positioned_error(detail[:1].lower() + detail[1:], path, positions)


def _positioned_error(detail: str, path: str, positions: FilePositions) -> ValidationError:
    """Name the position of the innermost value on the path that is in the file."""
    where = path
    while where not in positions and len(where) > 1:
        where = where[: max(where.rfind("."), where.rfind("["))]
    position = positions.get(where)
    return _error(detail if position is None else f"{position}: {detail}", path)


class FilePosition(NamedTuple):
    """A line and column of a file, from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        """Write the position as text."""
        return f"line {self.line}, column {self.column}"


FilePositions = dict[str, FilePosition]


# ── YAML and JSON ─────────────────────────────────────────────────────────────────────────────────


def _read_json(text: str) -> tuple[object, FilePositions]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if text.lstrip()[1:2] not in {'"', "}"}:  # a flow mapping of YAML: {members: …}
            return _read_yaml(text)
        raise _error(f"{FilePosition(error.lineno, error.colno)}: {error.msg}", "$") from None
    except (RecursionError, ValueError) as error:
        raise _error(f"the file can't be read: {error}", "$") from None
    try:
        # a raw tab is only allowed between the values of JSON, where YAML allows none
        node = _compose(text.replace("\t", " "))
    except ValidationError:  # no PyYAML, or a text that YAML reads in another way
        check_unique_names(text.encode())
        return value, {}
    return value, dict(_walk(node, "$"))


def _read_yaml(text: str) -> tuple[object, FilePositions]:
    node = _compose(text)
    positions = dict(_walk(node, "$"))
    yaml = importlib.import_module("yaml")
    try:
        return yaml.SafeLoader("").construct_document(node), positions
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(error) from None
    except (RecursionError, ValueError) as error:
        raise _error(f"the file can't be read: {error}", "$") from None


def _compose(text: str) -> Any:  # noqa: ANN401 - a node of PyYAML's
    try:
        yaml = importlib.import_module("yaml")
    except ModuleNotFoundError:
        detail = "YAML needs one more package: pip install 'palaver[team]'"
        raise _error(detail, "$") from None
    try:
        _check_tokens(yaml, text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(error) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise _error(f"the file can't be read: {error}", "$") from None
    if node is None:
        raise _error("the file is empty", "$")
    return node


def _check_tokens(yaml: Any, text: str) -> None:  # noqa: ANN401 - the module
    """Refuse what makes a small file slow to read: aliases and deeply nested brackets."""
    depth = 0
    for token in yaml.scan(text):
        opens = isinstance(token, yaml.FlowSequenceStartToken | yaml.FlowMappingStartToken)
        closes = isinstance(token, yaml.FlowSequenceEndToken | yaml.FlowMappingEndToken)
        depth += opens - closes
        if depth > _MAX_DEPTH or isinstance(token, yaml.AliasToken):
            what = (
                "too many brackets in brackets" if depth > _MAX_DEPTH else "aliases are not taken"
            )
            position = FilePosition(token.start_mark.line + 1, token.start_mark.column + 1)
            raise _error(f"{position}: {what}", "$")


def _yaml_error(error: Any) -> ValidationError:  # noqa: ANN401 - an error of PyYAML's
    mark = error.problem_mark or error.context_mark
    position = f"{FilePosition(mark.line + 1, mark.column + 1)}: " if mark else ""
    return _error(f"{position}{error.problem or error.context}", "$")


def _walk(node: Any, path: str) -> Iterator[tuple[str, FilePosition]]:  # noqa: ANN401 - a node of PyYAML's
    """Iterate over the paths of a document with the position of the value or its key."""
    yield path, FilePosition(node.start_mark.line + 1, node.start_mark.column + 1)
    if not is_list(node.value):
        return
    seen: set[str] = set()
    for index, item in enumerate(node.value):
        if not isinstance(item, tuple):
            yield from _walk(item, f"{path}[{index}]")
            continue
        key, value = item
        name = str(key.value)
        position = FilePosition(key.start_mark.line + 1, key.start_mark.column + 1)
        if name in seen:
            raise _error(f"{position}: {name!r} occurs twice in one mapping", path)
        seen.add(name)
        inside = f"{path}{path_step(name)}"
        yield from _walk(value, inside)
        yield inside, position


# ── the JSON Schema ───────────────────────────────────────────────────────────────────────────────


SCHEMA: Final = Path(__file__).with_name("schema.json")
"""The file that is shipped, for editors; `palaver schema team` writes it."""


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a team file, as JSON-ready data.

    >>> schema()["$defs"]["Team"]["required"]
    ['members']
    """
    made: dict[str, Any] = msgspec.json.schema(Team)
    for definition in made["$defs"].values():
        summary = definition["description"].split("\n\n")[0]
        definition["description"] = " ".join(summary.split())
    made["$defs"]["Team"]["properties"]["members"]["minItems"] = 2
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
