"""Tools: Python functions, JSON schemas, MCP servers; checked before they run, safe to watch."""

from __future__ import annotations

from palaver.conversation.tools.base import Executor, Tool, ToolContext, ToolOutput
from palaver.conversation.tools.function import FunctionTool, tool
from palaver.conversation.tools.schema import SchemaTool
from palaver.conversation.tools.toolbox import Toolbox

__all__ = [
    "Executor",
    "FunctionTool",
    "SchemaTool",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "Toolbox",
    "tool",
]
