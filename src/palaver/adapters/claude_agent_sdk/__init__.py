"""The Claude Agent SDK's sessions in a palaver store.

    from palaver.adapters.claude_agent_sdk import PalaverSessionStore

    options = ClaudeAgentOptions(session_store=PalaverSessionStore(palaver.open("chat.db")))

`entries` turns a line of a transcript into messages and back, `transcript` writes the whole of it
as it is now, `mending` makes an edited one whole, and `store` is the SDK's own interface.
"""

from palaver.adapters.claude_agent_sdk.session_store import PalaverSessionStore

__all__ = ["PalaverSessionStore"]
