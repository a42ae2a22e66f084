"""Strands Agents: its sessions over conversations in a store, and message conversion.

    manager = PalaverSessionManager("tea-talk", palaver.open("chat.db"))
    agent = Agent(model=model, session_manager=manager)

A session is a conversation, and what its first agent says and hears are the messages of it; each
further agent of the session has a conversation of its own. Whatever Strands does to
`agent.messages`, a sliding window, a summary, results that were cut, is one edit of the
conversation, to be undone like any other. Whatever is edited with palaver is what the agent has
before its next request, repaired so that every call is followed by its result.

`session` holds the repository and the session manager; `convert` the messages both ways.
"""

from palaver.errors import needs_extra

with needs_extra("strands"):
    from palaver.adapters.strands.convert import from_strands, repair_messages, to_strands
    from palaver.adapters.strands.session import PalaverSessionManager, PalaverSessionRepository

__all__ = [
    "PalaverSessionManager",
    "PalaverSessionRepository",
    "from_strands",
    "repair_messages",
    "to_strands",
]
