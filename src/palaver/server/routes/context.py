"""What an agent would be shown of a conversation now, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from litestar import get
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, QueryParameter

from palaver.context import Visibility
from palaver.server.service import Served
from palaver.server.shapes.context import Explained, Explanation, Line, Prompted, Verdict
from palaver.server.sights import Look, Sight
from palaver.server.teams import Teams

if TYPE_CHECKING:
    from palaver.history import History

__all__ = ["ROUTES", "explained"]

_SHOWN: Final = 200
_MOST: Final = 2**31

Agent = Annotated[str, QueryParameter(min_length=1, max_length=200)]
Kind = Annotated[str | None, QueryParameter(name="type", min_length=1, max_length=100)]
Window = Annotated[int | None, QueryParameter(ge=0, le=100_000)]
MaxBytes = Annotated[int | None, QueryParameter(name="maxBytes", ge=0, le=_MOST)]
Reach = Annotated[Visibility | None, QueryParameter(name="visibility")]
MaxTokens = Annotated[int | None, QueryParameter(name="maxTokens", ge=0, le=_MOST)]


async def _looked(
    agent: Agent,
    kind: Kind = None,
    window: Window = None,
    max_bytes: MaxBytes = None,
    max_tokens: MaxTokens = None,
    visibility: Reach = None,
) -> Look:
    """Who looks, and how far; what is not said is the agent's own, or the default."""
    return Look(agent, kind, window, max_bytes, max_tokens, visibility)


_LOOK: Final = {"look": Provide(_looked)}


@get("/conversations/{conversation:str}/context", sync_to_thread=True, dependencies=_LOOK)
def context(conversation: FromPath[str], service: Served, look: NamedDependency[Look]) -> Prompted:
    """Say what an agent would be shown now; it is known by its id or its name."""
    return Prompted(**_prompted(service.part(Teams).shown(service.store.get(conversation), look)))


@get("/conversations/{conversation:str}/explain", sync_to_thread=True, dependencies=_LOOK)
def explain(conversation: FromPath[str], service: Served, look: NamedDependency[Look]) -> Explained:
    """Say why: each message in reach, kept or dropped, and what changed since it last spoke."""
    history = service.store.get(conversation)
    return explained(history, service.part(Teams).shown(history, look))


def _prompted(sight: Sight) -> dict[str, Any]:
    prompt = sight.prompt
    given = prompt.input
    return {
        "version": sight.version,
        "context_messages": [
            Line(from_=line.from_, to=line.to, content=line.content)
            for line in given.context_messages
        ],
        "current_message": given.current_message,
        "team_task": given.team_task,
        "max_bytes": given.max_bytes,
        "prompt": prompt.prompt,
        "system_flag": prompt.system_flag,
    }


def explained(history: History, sight: Sight) -> Explained:
    """A prompt with its reasons, as it is told."""
    told, view = sight.explained(), history.view
    entries = [
        Verdict(
            id=entry.id,
            handle=entry.handle,
            from_=entry.from_,
            to=entry.to,
            kept=entry.kept,
            reason=entry.reason,
            bytes=entry.bytes,
            tokens=entry.tokens,
            text=view.log[view.find(entry.id)].text[:_SHOWN],
        )
        for entry in told.entries
    ]
    why = Explanation(
        agent=told.agent,
        agent_type=told.agent_type,
        window=told.window,
        visibility=told.visibility,
        max_bytes=told.max_bytes,
        max_tokens=told.max_tokens,
        bytes=told.bytes,
        tokens=told.tokens,
        parts=list(told.parts),
        entries=entries,
        older=told.older,
        since=told.since,
    )
    before = None if sight.before is None else sight.before.prompt
    return Explained(**_prompted(sight), explain=why, previous_prompt=before)


ROUTES: Final = [context, explain]
