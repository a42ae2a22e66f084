"""The Claude Agent SDK's sessions in a palaver store.

    from palaver.adapters.claude_agent_sdk import PalaverSessionStore

    options = ClaudeAgentOptions(session_store=PalaverSessionStore(palaver.open("chat.db")))

`session_store` holds the SDK's interface; `convert` turns a line of a transcript into messages and
back, writes the transcript as it is now, and repairs one that was edited.
"""

from palaver.errors import needs_extra

with needs_extra("claude-agent-sdk"):
    from palaver.adapters.claude_agent_sdk.session_store import PalaverSessionStore

__all__ = ["PalaverSessionStore"]
