"""Workflow nodes: model, tool, human, context and compression, for any engine.

Each is an async function over one shared `Conversation`, with settings that are checked when they
are read, and returns a `NodeResult` that an engine can branch on. The engine owns the loop and its
end; the conversation owns the messages. `palaver.nodes.langgraph` offers the same as nodes of a
LangGraph graph.
"""

from __future__ import annotations

from palaver.nodes.agent import ask_model, run_calls
from palaver.nodes.config import (
    SCHEMA,
    AskApproval,
    AskChoice,
    AskEdit,
    AskText,
    ClearOutputsConfig,
    CompressConfig,
    ContextConfig,
    DropOldestConfig,
    HumanConfig,
    LLMConfig,
    SummariseConfig,
    ToolConfig,
    parse_context,
    read_config,
    schema,
)
from palaver.nodes.context import compress_context, compress_handler, edit_context
from palaver.nodes.human import QuestionHandler, ask_human
from palaver.nodes.results import (
    ConversationRegistry,
    ConversationStatus,
    NodeResult,
    PendingCall,
    Question,
    read_status,
)
from palaver.tools.approval import Decision

__all__ = [
    "SCHEMA",
    "AskApproval",
    "AskChoice",
    "AskEdit",
    "AskText",
    "ClearOutputsConfig",
    "CompressConfig",
    "ContextConfig",
    "ConversationRegistry",
    "ConversationStatus",
    "Decision",
    "DropOldestConfig",
    "HumanConfig",
    "LLMConfig",
    "NodeResult",
    "PendingCall",
    "Question",
    "QuestionHandler",
    "SummariseConfig",
    "ToolConfig",
    "ask_human",
    "ask_model",
    "compress_context",
    "compress_handler",
    "edit_context",
    "parse_context",
    "read_config",
    "read_status",
    "run_calls",
    "schema",
]
