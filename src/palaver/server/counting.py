"""How full a conversation is, message by message or, where it is long, stretch by stretch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, get_args

from palaver.messages import Role
from palaver.server.shapes.tokens import ByRole, Share, Tokens, Used
from palaver.tokens.counters import is_exact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.conversation import Conversation
    from palaver.conversation.models.base import Model
    from palaver.history import View

__all__ = ["FULL", "counted"]

FULL: Final = 0.8
"""The share of a window at which one should make room."""
_MOST: Final = 2_000
_ROLES: Final[tuple[Role, ...]] = get_args(Role)


def counted(talk: Conversation, model: Model, name: str) -> Tokens:
    """What a conversation takes of a model's window."""
    view, usage = talk.messages, talk.usage
    counts, roles = talk.tally.each(view), _roles(view)
    by_role = dict.fromkeys(_ROLES, 0)
    for role, tokens in zip(roles, counts, strict=True):
        by_role[role] += tokens
    window = model.window
    own: Literal["tokenizer", "estimate"] = "tokenizer" if is_exact() else "estimate"
    return Tokens(
        version=view.version,
        total=talk.tokens(),
        source=own if usage.last is None else "api",
        limit=None if window is None else int(window * FULL),
        window=window,
        model=name,
        by_role=ByRole(**by_role),
        items=_shares(roles, counts),
        usage=Used(
            last=usage.last,
            total=usage.total,
            cost=usage.cost,
            calls=usage.calls,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
        ),
    )


def _roles(view: View) -> list[Role]:
    """The role of every message, without reading them."""
    known: dict[int, Role] = {}
    for role in _ROLES:
        known.update(dict.fromkeys(view.role_positions(role), role))
    return [known[place] for start, stop in view.ranges() for place in range(start, stop)]


def _shares(roles: Sequence[Role], counts: Sequence[int]) -> list[Share]:
    """Each message by itself, or as many stretches as a page can draw."""
    if len(counts) <= _MOST:
        return [
            Share(start=index, stop=index + 1, index=index, role=role, tokens=tokens)
            for index, (role, tokens) in enumerate(zip(roles, counts, strict=True))
        ]
    size = math.ceil(len(counts) / _MOST)
    return [_stretch(roles, counts, start, size) for start in range(0, len(counts), size)]


def _stretch(roles: Sequence[Role], counts: Sequence[int], start: int, size: int) -> Share:
    stop = min(start + size, len(counts))
    tokens, there = sum(counts[start:stop]), set(roles[start:stop])
    if len(there) == 1:
        return Share(start=start, stop=stop, tokens=tokens, role=there.pop())
    return Share(start=start, stop=stop, tokens=tokens)
