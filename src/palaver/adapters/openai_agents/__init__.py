"""The OpenAI Agents SDK: its session, over a conversation in a store.

    session = PalaverSession(palaver.open("chat.db"), "talk-1")
    config = RunConfig(call_model_input_filter=repair_input)
    await Runner.run(agent, "Tea?", session=session, run_config=config)

The items of one answer are one message, an output is a tool message, and what was not edited comes
back to the SDK exactly as it was written.

The session stores, and never repairs: what it returns is what was added or edited. `repair_input`
repairs the request: each call has its output, as providers demand, whatever was edited.

`session` holds the session, and `convert` the items both ways.
"""

from palaver.errors import needs_extra

with needs_extra("openai-agents"):
    from palaver.adapters.openai_agents.convert import repair_input
    from palaver.adapters.openai_agents.session import PalaverSession

__all__ = ["PalaverSession", "repair_input"]
