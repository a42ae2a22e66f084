"""Short ways to say what the tests of histories say all the time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from palaver.history import BaseHistory, History
from palaver.messages import Message, to_dict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.messages import Role

LETTERS: dict[str, Role] = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


def talk(spelled: str) -> list[Message]:
    """Messages from a line of names: `u1 a2` is a user's message u1, then an assistant's a2."""
    return [
        Message(LETTERS[name[0]], f"says {name}", id=name, timestamp=number)
        for number, name in enumerate(spelled.split())
    ]


def one(name: str, text: str | None = None, **fields: Any) -> Message:  # noqa: ANN401 - Message's
    """One message, its role told by the first letter of its name."""
    said = f"says {name}" if text is None else text
    fields = {"timestamp": 0, **fields}
    return Message(LETTERS[name[0]], said, id=name, **fields)


def begin(spelled: str = "") -> BaseHistory:
    """A history of such messages, with a clock that stands still."""
    return History(talk(spelled), id="h", clock=lambda: 1_000)


def line(messages: Iterable[Message]) -> str:
    """The names of messages, in one line."""
    return " ".join(message.id for message in messages)


def everything(history: BaseHistory) -> bytes:
    """All that can be seen of a history, as bytes."""
    state = {
        "state": history.state.to_dict(),
        "stats": to_dict(history.stats),
        "version": history.version,
        "log": to_dict(list(history.log)),
        "markMap": to_dict(history.mark_map()),
        "marks": dict(history.marks),
        "teamTask": history.team_task,
        "versions": [history.at(v).state.to_dict() for v in range(history.version + 1)],
    }
    return json.dumps(state).encode()
