"""What an agent would be shown now, and why: a prompt, its explanation, and the one before it.

Nothing is kept for it. The prompt that an agent had before it last spoke is worked out again from
what had been said by then, so it is the same after a restart and in every process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from palaver.context import MAX_BYTES, WINDOW, ContextManager, Visibility
from palaver.context.prompts import Prompt
from palaver.context.retracing import Known, prompt_before

if TYPE_CHECKING:
    from palaver.context.explaining import Explanation
    from palaver.history import History

__all__ = ["Look", "Sight", "seen"]


class Look(Struct, frozen=True):
    """Who looks, how far, and with which instructions; what is None is left as it is known."""

    agent: str
    agent_type: str | None = None
    window: int | None = None
    max_bytes: int | None = None
    max_tokens: int | None = None
    visibility: Visibility | None = None
    system: str | None = None
    instructions: str | None = None
    name: str | None = None

    def over(self, own: Look) -> Look:
        """An agent's own look, but for what this one says.

        >>> Look("Max", window=2).over(Look("a1", window=5, visibility="addressed"))
        Look(agent='a1', agent_type=None, window=2, ..., visibility='addressed', ...)
        """
        said = {name: value for name, value in structs.asdict(self).items() if value is not None}
        return structs.replace(own, **said | {"agent": own.agent})


class Sight(Struct, frozen=True):
    """What an agent is shown; `before` is the prompt that it had before it last spoke."""

    prompt: Prompt
    before: Prompt | None
    version: int

    def explained(self) -> Explanation:
        """Why it is what it is."""
        return self.prompt.explain(since=self.before)


def seen(history: History, look: Look) -> Sight:
    r"""What an agent would be shown of a history now.

    >>> from palaver.history import History
    >>> from palaver.messages import user
    >>> seen(History([user("one"), user("two")]), Look("max")).prompt.prompt
    'user: one\n\ntwo'
    """
    version = history.version
    who = Known(history.view, look.agent)
    options: dict[str, Any] = {
        "agent_type": look.agent_type or who.agent_type,
        "name": look.name or who.name,
        "system_instruction": look.system,
        "instruction_file_text": look.instructions,
    }
    limits: dict[str, Any] = {
        "window": WINDOW if look.window is None else look.window,
        "max_bytes": MAX_BYTES if look.max_bytes is None else look.max_bytes,
        "max_tokens": look.max_tokens,
        "visibility": look.visibility or "all",
    }
    prompt = ContextManager(history, **limits).prompt_for(who.id, **options)
    return Sight(prompt, prompt_before(who, history, limits, options), version)
