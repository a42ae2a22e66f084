"""Tools: Python functions, JSON schemas and MCP servers, with checked arguments."""

from __future__ import annotations

from palaver.tools.base import Executor, Tool, Toolbox, ToolContext, ToolOutput
from palaver.tools.function import FunctionTool, tool
from palaver.tools.json_schema import SchemaTool

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
