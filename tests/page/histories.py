"""Conversations with a past: edits, ways back, forks, tool calls, and a team that has spoken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaver.messages import Message, new_id, parse_message

if TYPE_CHECKING:
    from palaver.stores import Store, StoredHistory

__all__ = ["broken", "called", "said", "story", "team_history"]

_SESSION = new_id()


def said(role: str, text: str) -> Message:
    """A message of one text."""
    return parse_message({"role": role, "content": text})


def story(store: Store, name: str = "story", title: str = "Tea for two") -> StoredHistory:
    """Every kind of change: appends, edits, an undo, a way back, and a fork.

    Version 0 creates it, 1 to 8 add, 9 replaces message 3, 10 inserts at 5, 11 adds, 12 truncates,
    13 undoes that, 14 adds, 15 goes back to version 9, 16 adds; the fork leaves at version 8.
    """
    history = store.create(id=name, title=title)
    history.append(said("system", "You pour tea, and you are brief."))
    for number in range(1, 4):
        history.append(said("user", f"Question {number}: which tea goes with rain?"))
        history.append(said("assistant", f"Answer {number}: a smoky one, such as Lapsang."))
    history.append(said("user", "And which goes with snow?"))
    fork = history.fork(id=f"{name}-fork")
    fork.append(said("assistant", "In the fork: hot chocolate."))
    replaced = {"role": "user", "content": "Question 2: which tea goes with heavy rain and wind?"}
    history.execute({"operation": "REPLACE", "index": 3, "message": replaced})
    inserted = [{"role": "system", "content": "Never say coffee."}]
    history.execute({"operation": "INSERT", "position": 5, "messages": inserted})
    history.append(said("assistant", "A black one with spices."))
    history.execute({"operation": "TRUNCATE", "keepLast": 2})
    history.undo()
    history.append(said("user", "This way was not a good one."))
    history.restore(9)
    history.append(said("assistant", "Snow asks for a spiced black tea."))
    return history


def called(store: Store, name: str = "called") -> StoredHistory:
    """A tool call and its result, with words around them."""
    history = store.create(id=name, title="What time is it?")
    history.append(said("system", "You know the time."))
    history.append(said("user", "What time is it in Lisbon?"))
    history.append(_asking("call-1", "clock", {"city": "Lisbon"}, "Let me look."))
    history.append(_answering("call-1", "clock", "14:05, WEST. " + "The sun is out. " * 40))
    history.append(said("assistant", "It is five past two."))
    history.append(said("user", "Thank you."))
    history.append(said("assistant", "You are welcome."))
    return history


def broken(store: Store, name: str = "broken") -> StoredHistory:
    """A result that lost its call and a call that never came back: every provider refuses it."""
    history = called(store, name)
    history.append(_asking("call-2", "clock", {"city": "Oslo"}, "And Oslo."))
    history.append(said("user", "Never mind."))
    history.execute({"operation": "FILTER", "contentExcludes": ["Let me look."]})
    return history


def team_history(store: Store, name: str = "crew") -> StoredHistory:
    """Three who speak to each other."""
    history = store.create(id=name, title="Release crew", tags=("team",))
    lines = [
        ("user", "lee", "Lee", "human", ["planner"], "Plan the release of 2.1."),
        ("assistant", "planner", "Planner", "ai", ["critic"], "Two steps: freeze, then tag."),
        (
            "assistant",
            "critic",
            "Critic",
            "ai",
            ["planner"],
            "Freeze on Thursday, or docs lag.",
        ),
        ("assistant", "planner", "Planner", "ai", ["critic"], "Thursday it is."),
        ("assistant", "critic", "Critic", "ai", ["lee"], "Good. Lee, please tell everyone."),
        ("user", "lee", "Lee", "human", [], "Done: everyone knows."),
    ]
    for role, identity, who, kind, to, text in lines:
        history.append(
            parse_message(
                {
                    "role": role,
                    "content": text,
                    "speaker": {"roleId": identity, "roleName": who, "type": kind},
                    "routing": {"resolvedAddressees": to},
                }
            )
        )
    history.set_team_task("Release 2.1 without surprises.")
    return history


def _asking(call: str, tool: str, given: dict[str, Any], text: str) -> Message:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": text},
        {"type": "tool-call", "callID": call, "tool": tool, "input": given, "raw": "{}"},
    ]
    return _message("assistant", parts)


def _answering(call: str, tool: str, output: str) -> Message:
    state = {
        "status": "completed",
        "input": {},
        "output": output,
        "title": tool,
        "metadata": {},
        "time": {"start": 1, "end": 2},
    }
    return _message("tool", [{"type": "tool", "callID": call, "tool": tool, "state": state}])


def _message(role: str, parts: list[dict[str, Any]]) -> Message:
    name = new_id()
    whole = [{"id": new_id(), "sessionID": _SESSION, "messageID": name, **part} for part in parts]
    return parse_message({"role": role, "id": name, "content": whole})
