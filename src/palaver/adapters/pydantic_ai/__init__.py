"""Pydantic AI: its message history, loaded from and saved to a conversation in a store.

    result = agent.run_sync("Tea?", message_history=load(history))
    save(history, result.new_messages())

What was not edited comes back exactly as it was saved; the next run sees what was edited.
"""

from palaver.adapters.pydantic_ai.history import load, save

__all__ = ["load", "save"]
