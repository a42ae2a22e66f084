"""A team at work in a conversation: who is in it, what it does, what each of them sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anyio import to_thread
from litestar import get, post, put
from litestar.params import FromPath, JSONBody
from msgspec import UNSET

from palaver.server.routes.context import explained
from palaver.server.routes.messages import Key, Stamp
from palaver.server.service import Served, Service
from palaver.server.shapes.context import Explained
from palaver.server.shapes.steps import StepBegun
from palaver.server.shapes.teams import (
    MemberSeen,
    Roster,
    Said,
    Saying,
    Spoke,
    StateSeen,
    TeamSeen,
    TurnSeen,
)
from palaver.server.stamps import check_stamp, expected
from palaver.server.teams import Teams, speakers, spoken
from palaver.server.working import Workshop
from palaver.team import Command, Human, Member, ModelMember, Turn
from palaver.team.state import KIND, read_state

if TYPE_CHECKING:
    from palaver.messages import Speaker
    from palaver.stores.history import StoredHistory

__all__ = ["ROUTES"]

_TEAM: Final = "/conversations/{conversation:str}/team"


@get(_TEAM, sync_to_thread=True)
def team(conversation: FromPath[str], service: Served) -> TeamSeen:
    """See who is in the team, who waits, who has the floor, and who spoke to whom."""
    return _seen(service, conversation)


@put(_TEAM, sync_to_thread=True)
def set_team(
    conversation: FromPath[str], data: JSONBody[Roster], service: Served, if_match: Stamp = None
) -> TeamSeen:
    """Give a conversation a team of humans and models.

    Programs are run only for the team of a file, which the server was started with.
    """
    check_stamp(service.store, conversation, if_match)
    service.part(Teams).set_roster(conversation, data.document)
    return _seen(service, conversation)


@post(f"{_TEAM}/say")
async def say(
    conversation: FromPath[str],
    data: JSONBody[Saying],
    service: Served,
    key: Key = None,
    if_match: Stamp = None,
) -> Said:
    """Speak as a human of the team: the one named, or who has the floor."""
    teams, expect = service.part(Teams), expected(if_match)
    message = await teams.say(conversation, data.text, speaker=data.as_, key=key, expect=expect)
    step = await teams.run(conversation) if data.run else None
    head = await to_thread.run_sync(service.store.keeper.head, conversation)
    return Said(version=head.version, message=message, step=step)


@post(f"{_TEAM}/run", status_code=202)
async def run(conversation: FromPath[str], service: Served, if_match: Stamp = None) -> StepBegun:
    """Give everybody their turns, until a human has the floor."""
    await to_thread.run_sync(check_stamp, service.store, conversation, if_match)
    step = await service.part(Teams).run(conversation)
    head = await to_thread.run_sync(service.store.keeper.head, conversation)
    return StepBegun(step=step, version=head.version)


@post(f"{_TEAM}/pause", status_code=200)
async def pause(conversation: FromPath[str], service: Served, if_match: Stamp = None) -> TeamSeen:
    """Begin no further turn; the one under way is seen through."""
    await to_thread.run_sync(check_stamp, service.store, conversation, if_match)
    await service.part(Teams).pause(conversation)
    return await to_thread.run_sync(_seen, service, conversation)


@post(f"{_TEAM}/resume", status_code=200)
async def resume(conversation: FromPath[str], service: Served, if_match: Stamp = None) -> TeamSeen:
    """Let turns begin again; `run` goes on where it was."""
    await to_thread.run_sync(check_stamp, service.store, conversation, if_match)
    await service.part(Teams).resume(conversation)
    return await to_thread.run_sync(_seen, service, conversation)


@post(f"{_TEAM}/cancel", status_code=200)
async def cancel(conversation: FromPath[str], service: Served, if_match: Stamp = None) -> TeamSeen:
    """Call off the turn under way and all that wait; the floor goes to the human."""
    await to_thread.run_sync(check_stamp, service.store, conversation, if_match)
    await service.part(Teams).cancel(conversation)
    return await to_thread.run_sync(_seen, service, conversation)


@get(f"{_TEAM}/members/{{member:str}}/sees", sync_to_thread=True)
def sees(conversation: FromPath[str], member: FromPath[str], service: Served) -> Explained:
    """Say what a member would be shown now, why, and what changed since it last spoke."""
    history = service.store.get(conversation)
    return explained(history, service.part(Teams).sees(history, member))


def _seen(service: Service, conversation: str) -> TeamSeen:
    history = service.store.get(conversation)
    roster = service.part(Teams).roster(conversation)
    state = read_state(service.store.keeper.records(conversation, KIND))
    members = (
        [_speaker(speaker) for speaker in speakers(history)]
        if roster is None
        else [_member(member) for member in roster.members]
    )
    running = service.part(Workshop).running(conversation)
    return TeamSeen(
        version=history.version,
        roster=roster is not None,
        name=None if roster is None else roster.name,
        members=members,
        queue=[_turn(turn) for turn in state.queue],
        state=StateSeen(
            running=running is not None,
            paused=state.paused,
            turns=state.turns,
            begun=None if state.begun is None else _turn(state.begun),
            floor=state.floor,
            why=state.why,
            human=state.human,
        ),
        spoke=_spoke(history),
        task=history.team_task,
    )


def _spoke(history: StoredHistory) -> list[Spoke]:
    pairs = spoken(history).items()
    return [Spoke(from_=origin, to=to, count=count) for (origin, to), count in pairs]


def _turn(turn: Turn) -> TurnSeen:
    return TurnSeen(id=turn.id, member=turn.member, priority=turn.priority)


def _speaker(speaker: Speaker) -> MemberSeen:
    return MemberSeen(id=speaker.role_id, name=speaker.role_name, kind=speaker.type)


def _member(member: Member) -> MemberSeen:
    if isinstance(member, Human):
        return MemberSeen(id=member.id, name=member.shown, kind="human")
    model = member.model if isinstance(member, ModelMember) else " ".join(member.known.argv)
    return MemberSeen(
        id=member.id,
        name=member.shown,
        kind="command" if isinstance(member, Command) else "model",
        model=model or UNSET,
        window=member.window,
        visibility=member.visibility,
    )


ROUTES: Final = [team, set_team, say, run, pause, resume, cancel, sees]
