"""palaver as an MCP server: an agent searches and reads conversations, and may go back in them.

`ConversationService` works on a store and knows nothing of MCP; `palaver.mcp.server` offers it as
tools. The server only reads unless `write` is given: otherwise the tools that change something
don't exist. Outputs are limited, and long ones come in pages, so that no conversation can flood a
model.
"""

from palaver.mcp.service import ConversationService

__all__ = ["ConversationService"]
