"""An agent as a conversation knows it: by what it said last, and by what it was shown before that.

Nothing has to be remembered for it: the prompt that an agent had is worked out again from what had
been said by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaver.context.assemblers import PLAIN_TYPE
from palaver.context.face import ContextManager
from palaver.context.names import fold_name
from palaver.errors import DoesNotFit
from palaver.history import History

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.context.prompts import Prompt
    from palaver.messages import Message

__all__ = ["Known", "prompt_before"]


class Known:
    """The agent of an id or a name, as of the last time it spoke.

    >>> from palaver.messages import Speaker, assistant
    >>> known = Known([assistant("Hi", speaker=Speaker("a1", "Max", "ai"))], "max")
    >>> known.id, known.name, known.said_last
    ('a1', 'Max', 0)
    """

    def __init__(self, messages: Sequence[Message], agent: str) -> None:
        """Look for the agent, the newest message first."""
        self.id, self.name, self.agent_type = agent, agent, PLAIN_TYPE
        self.said_last: int | None = None
        wanted = fold_name(agent)
        for index in reversed(range(len(messages))):
            speaker = messages[index].speaker
            if speaker is None:
                continue
            if wanted in {fold_name(speaker.role_id), fold_name(speaker.role_name)}:
                self.id, self.name, self.said_last = speaker.role_id, speaker.role_name, index
                kind = speaker.extra.get("agentType")
                self.agent_type = kind if isinstance(kind, str) and kind else PLAIN_TYPE
                return


def prompt_before(
    who: Known, history: History, limits: Mapping[str, Any], options: Mapping[str, Any]
) -> Prompt | None:
    """The prompt that an agent had before it last spoke, if it has spoken.

    `limits` are those of a `ContextManager`, `options` those of its `prompt_for`.
    """
    if not who.said_last:
        return None
    earlier = History(history[: who.said_last])
    earlier.set_team_task(history.team_task)
    try:
        return ContextManager(earlier, **limits).prompt_for(who.id, **options)
    except DoesNotFit:
        return None
