"""Team talks to test with: members, messages, whole snapshots of S2's version 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from palaver.context import ContextManager
from palaver.messages import Message, Routing, Speaker

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

__all__ = [
    "HUMAN",
    "MAX",
    "ROBOT",
    "SARAH",
    "SNAPSHOT",
    "USER",
    "ai",
    "contents",
    "filled",
    "human",
    "said",
    "snapshots",
    "texts",
]

USER = Speaker("user-1", "User", "human")
MAX = Speaker("max", "Max", "ai")
SARAH = Speaker("sarah", "Sarah", "ai")
HUMAN = {"roleId": "u1", "roleName": "User", "type": "human"}
ROBOT = {"roleId": "max", "roleName": "Max", "type": "ai"}
SNAPSHOT: dict[str, Any] = {
    "messages": [
        {"id": "msg-1", "content": "Hi [TEAM_TASK: rum]", "speaker": HUMAN},
        {"id": "msg-2", "content": "Hello!", "speaker": ROBOT, "routing": None},
    ],
    "teamTask": "tea",
    "timestamp": 5,
    "version": 1,
}


def said(content: str, speaker: Speaker = USER, to: tuple[str, ...] = (), **more: Any) -> Message:  # noqa: ANN401 - Message's own fields
    """A message of a member."""
    return Message(
        "assistant" if speaker.type == "ai" else "user",
        content,
        speaker=speaker,
        routing=Routing(to),
        **more,
    )


def human(content: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A human's message, as JSON."""
    return {"content": content, "speaker": HUMAN, **more}


def ai(content: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """An AI's message, as JSON."""
    return {"content": content, "speaker": ROBOT, **more}


def filled(*messages: dict[str, Any], **options: Any) -> ContextManager:  # noqa: ANN401 - the options
    """A manager to which these were added."""
    context = ContextManager(**options)
    for message in messages:
        context.add_message(message)
    return context


def contents(context: ContextManager, **options: Any) -> list[str]:  # noqa: ANN401 - the options
    """The lines of context that Sarah is shown."""
    shown = context.context_for("sarah", "claude", **options).context_messages
    return [line.content for line in shown]


_PIECES = (
    "[NEXT: max]", "[next: sarah!P1]", "[FROM: user]", "[TEAM_TASK] tea ", "[TEAM_TASK: rum]",
    "[/TEAM_TASK]", "[DROP: ALL]", "[", "]", "[NE", "XT: b]", "```\n", "~~~", "\n", "\n\n", "  ",
    "Hello", "- Boss -> all: obey", "[MESSAGE]", "naïve", "文字", "🙂", "\r\n", "\u2028", "\ufeff",
    "x" * 40, "> ", "a[0] ", "\u0131", "\u017f",
)  # fmt: skip


def texts(most: int = 12) -> SearchStrategy[str]:
    """Texts made of what is hard: markers whole and broken, fences, line breaks, wide letters."""
    return st.lists(st.sampled_from(_PIECES), max_size=most).map("".join)


@st.composite
def snapshots(draw: DrawFn, most: int = 8) -> dict[str, Any]:
    """Snapshots of version 1."""
    people = [
        {"roleId": who.role_id, "roleName": who.role_name, "type": who.type}
        for who in (USER, MAX, SARAH)
    ]
    count = draw(st.integers(0, most))
    messages = [
        {
            "id": f"msg-{number}",
            "content": draw(texts(8)),
            "speaker": draw(st.sampled_from(people)),
            **draw(
                st.sampled_from(
                    [
                        {},
                        {"routing": {"resolvedAddressees": []}},
                        {"routing": {"resolvedAddressees": ["max"]}},
                        {"routing": {"resolvedAddressees": ["Sarah", "max"]}},
                    ]
                )
            ),
        }
        for number in range(1, count + 1)
    ]
    task = draw(st.one_of(st.none(), texts(3)))
    return {"messages": messages, "teamTask": task, "timestamp": 5, "version": 1}
