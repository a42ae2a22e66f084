"""palaver as an MCP server: an agent searches and reads conversations, and may go back in them.

`desk` does the work on a store and knows nothing of MCP; `server` offers it as tools. It only reads
unless it is told otherwise: tools that change something are not there at all. Answers are capped,
and long ones come in pages, so that no conversation can flood a model.
"""

from palaver.mcp.desk import Desk

__all__ = ["Desk"]
