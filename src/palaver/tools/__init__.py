"""Tools: Python functions, JSON schemas and MCP servers, with checked arguments."""

from __future__ import annotations

from palaver.tools.function import FunctionTool, SchemaTool, tool
from palaver.tools.runner import Executor, Tool, Toolbox, ToolContext, ToolOutput

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
