"""The OpenAI Agents SDK: its session, over a conversation in a store.

    session = PalaverSession(palaver.open("chat.db"), "talk-1")
    await Runner.run(agent, "Tea?", session=session)

The items of one answer are one message, an output is a tool message, and what was not edited comes
back to the SDK exactly as it was written.
"""

from palaver.adapters.openai_agents.session import PalaverSession

__all__ = ["PalaverSession"]
