"""Teams: set one, speak in it, run, pause and cancel its turns, and see what its members see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from anyio import to_thread
from litestar import get, post, put
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType, field

from palaver.messages import Message
from palaver.server.requests import IdempotencyKey, IfMatch, Shape, check_if_match, read_if_match
from palaver.server.routes.context import ExplainedPrompt, TurnNumber, explain_context
from palaver.server.services import Service, ServiceDependency
from palaver.server.services.steps import StepStarted
from palaver.server.services.teams import count_addressed, list_speakers
from palaver.team import CommandMember, Human, Member, ModelMember, TeamTurn
from palaver.team.state import KIND, read_state

if TYPE_CHECKING:
    from palaver.messages import Speaker
    from palaver.stores import StoredHistory

__all__ = ["ROUTES"]

_TEAM: Final = "/conversations/{conversation:str}/team"


class TeamMember(Shape, frozen=True):
    """A member of a team; without a roster, somebody who spoke."""

    id: str
    name: str
    kind: Literal["human", "model", "command", "ai"]
    model: str | UnsetType = UNSET
    window: int | UnsetType = UNSET
    visibility: str | UnsetType = UNSET


class QueuedTurn(Shape, frozen=True):
    """A turn in the queue."""

    id: str
    member: str
    priority: int


class TeamStatus(Shape, frozen=True):
    """The state of a team: the current turn, the human whose turn it is, and why."""

    running: bool
    paused: bool
    turns: int
    begun: QueuedTurn | None
    floor: str | None
    why: str
    human: str | None


class AddressedCount(Shape, frozen=True):
    """How often one speaker addressed another; `all` is everybody."""

    from_: str = field(name="from")
    to: str
    count: int


class TeamReport(Shape, frozen=True):
    """A team and its state; `roster` tells whether the conversation has one."""

    version: int
    roster: bool
    name: str | None
    members: list[TeamMember]
    queue: list[QueuedTurn]
    state: TeamStatus
    spoke: list[AddressedCount]
    task: str | None


class RosterRequest(Shape, frozen=True):
    """A team, as the text of a team file (YAML or JSON) or as an object."""

    document: Annotated[str, Meta(min_length=1, max_length=1_000_000)] | dict[str, Any]


class SayRequest(Shape, frozen=True):
    """A message of a human; with `run` the turns of the team start at once."""

    text: Annotated[str, Meta(min_length=1)]
    as_: str | None = field(default=None, name="as")
    run: bool = False


class SayResult(Shape, frozen=True):
    """The message, and the step that runs the turns, if there is one."""

    version: int
    message: Message
    step: str | None


@get(_TEAM, sync_to_thread=True)
def read(conversation: FromPath[str], service: ServiceDependency) -> TeamReport:
    """Get the members of a team, its queue, its state, and who addressed whom."""
    return _report(service, conversation)


@put(_TEAM, sync_to_thread=True)
def set_team(
    conversation: FromPath[str],
    data: JSONBody[RosterRequest],
    service: ServiceDependency,
    if_match: IfMatch = None,
) -> TeamReport:
    """Set the team of a conversation: humans and models.

    Programs run only in the team of a file that the server was started with.
    """
    check_if_match(service.store, conversation, if_match)
    service.teams.set_roster(conversation, data.document)
    return _report(service, conversation)


@post(f"{_TEAM}/say")
async def say(
    conversation: FromPath[str],
    data: JSONBody[SayRequest],
    service: ServiceDependency,
    key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> SayResult:
    """Add a message of a human: of the named one, or of the one whose turn it is."""
    teams, expect = service.teams, read_if_match(if_match)
    message = await teams.say(conversation, data.text, speaker=data.as_, key=key, expect=expect)
    step = await teams.run(conversation) if data.run else None
    head = await to_thread.run_sync(service.store.head, conversation)
    return SayResult(version=head.version, message=message, step=step)


@post(f"{_TEAM}/run", status_code=202)
async def run(
    conversation: FromPath[str], service: ServiceDependency, if_match: IfMatch = None
) -> StepStarted:
    """Run the turns until it is a human's turn."""
    await to_thread.run_sync(check_if_match, service.store, conversation, if_match)
    step = await service.teams.run(conversation)
    head = await to_thread.run_sync(service.store.head, conversation)
    return StepStarted(step=step, version=head.version)


@post(f"{_TEAM}/pause", status_code=200)
async def pause(
    conversation: FromPath[str], service: ServiceDependency, if_match: IfMatch = None
) -> TeamReport:
    """Start no further turn; the current one is finished."""
    await to_thread.run_sync(check_if_match, service.store, conversation, if_match)
    await service.teams.pause(conversation)
    return await to_thread.run_sync(_report, service, conversation)


@post(f"{_TEAM}/resume", status_code=200)
async def resume(
    conversation: FromPath[str], service: ServiceDependency, if_match: IfMatch = None
) -> TeamReport:
    """Allow turns to start again; `run` goes on with them."""
    await to_thread.run_sync(check_if_match, service.store, conversation, if_match)
    await service.teams.resume(conversation)
    return await to_thread.run_sync(_report, service, conversation)


@post(f"{_TEAM}/cancel", status_code=200)
async def cancel(
    conversation: FromPath[str], service: ServiceDependency, if_match: IfMatch = None
) -> TeamReport:
    """Cancel the current turn and the queue; it is the human's turn then."""
    await to_thread.run_sync(check_if_match, service.store, conversation, if_match)
    await service.teams.cancel(conversation)
    return await to_thread.run_sync(_report, service, conversation)


@get(f"{_TEAM}/members/{{member:str}}/sees", sync_to_thread=True)
def member_context(
    conversation: FromPath[str],
    member: FromPath[str],
    service: ServiceDependency,
    turn: TurnNumber = None,
) -> ExplainedPrompt:
    """Explain the prompt that a member would get now, or had at one of its turns."""
    history = service.store.get(conversation)
    return explain_context(history, service.teams.member_context(history, member, turn))


def _report(service: Service, conversation: str) -> TeamReport:
    history = service.store.get(conversation)
    roster = service.teams.roster(conversation)
    state = read_state(service.store.records(conversation, KIND))
    members = (
        [_shape_speaker(speaker) for speaker in list_speakers(history)]
        if roster is None
        else [_shape_member(member) for member in roster.members]
    )
    running = service.steps.running(conversation)
    return TeamReport(
        version=history.version,
        roster=roster is not None,
        name=None if roster is None else roster.name,
        members=members,
        queue=[_shape_turn(turn) for turn in state.queue],
        state=TeamStatus(
            running=running is not None,
            paused=state.paused,
            turns=state.turns,
            begun=None if state.begun is None else _shape_turn(state.begun),
            floor=state.floor,
            why=state.why,
            human=state.human,
        ),
        spoke=_count_addressed(history),
        task=history.team_task,
    )


def _count_addressed(history: StoredHistory) -> list[AddressedCount]:
    pairs = count_addressed(history).items()
    return [AddressedCount(from_=speaker, to=to, count=count) for (speaker, to), count in pairs]


def _shape_turn(turn: TeamTurn) -> QueuedTurn:
    return QueuedTurn(id=turn.id, member=turn.member, priority=turn.priority)


def _shape_speaker(speaker: Speaker) -> TeamMember:
    return TeamMember(id=speaker.role_id, name=speaker.role_name, kind=speaker.type)


def _shape_member(member: Member) -> TeamMember:
    if isinstance(member, Human):
        return TeamMember(id=member.id, name=member.shown, kind="human")
    model = member.model if isinstance(member, ModelMember) else " ".join(member.known.argv)
    return TeamMember(
        id=member.id,
        name=member.shown,
        kind="command" if isinstance(member, CommandMember) else "model",
        model=model or UNSET,
        window=member.window,
        visibility=member.visibility,
    )


ROUTES: Final = [read, set_team, say, run, pause, resume, cancel, member_context]
