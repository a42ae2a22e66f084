"""The OpenAI Agents SDK: its `Session` over a conversation in a store.

    session = Session(palaver.open("chat.db"), "talk-1")
    await Runner.run(agent, "Tea?", session=session)

What the model made in one go is one answer, a call's output is a tool message, and what nobody
edited comes back to the SDK exactly as it wrote it.
"""

from palaver.adapters.openai_agents.session import Session

__all__ = ["Session"]
