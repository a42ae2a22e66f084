"""Pydantic AI: its message history out of a conversation in a store, and into it.

    result = agent.run_sync("Tea?", message_history=load(history))
    save(history, result.new_messages())

What nobody edited comes back exactly as Pydantic AI would have stored it; what was edited is what
the next run sees.
"""

from palaver.adapters.pydantic_ai.history import load, save

__all__ = ["load", "save"]
