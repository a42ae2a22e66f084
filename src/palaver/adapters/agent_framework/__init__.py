"""Microsoft Agent Framework: its history provider and its checkpoint storage, over a store.

    history = PalaverHistoryProvider(palaver.open("chat.db"))
    agent = Agent(client=client, context_providers=[history],
                  require_per_service_call_history_persistence=True)
    await agent.run("Tea?", session=agent.create_session(session_id="tea-talk"))

A session is the conversation of its id, and what was not edited comes back to the framework exactly
as it was written. What an edit has separated is repaired before a request: each call has its
result. With `require_per_service_call_history_persistence` every step of a run is stored when it
is made, and every request has the edits that were made before it; without, a run is read at its
beginning and stored at its end, as a whole.

`history_provider` holds the provider, `checkpoint_storage` the storage, and `convert` the messages
both ways.
"""

from palaver.errors import needs_extra

with needs_extra("agent-framework"):
    from palaver.adapters.agent_framework.checkpoint_storage import PalaverCheckpointStorage
    from palaver.adapters.agent_framework.convert import (
        from_agent_framework,
        repair_messages,
        to_agent_framework,
    )
    from palaver.adapters.agent_framework.history_provider import PalaverHistoryProvider

__all__ = [
    "PalaverCheckpointStorage",
    "PalaverHistoryProvider",
    "from_agent_framework",
    "repair_messages",
    "to_agent_framework",
]
