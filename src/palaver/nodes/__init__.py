"""Workflow nodes: model, tool, human, context and compression, for any engine.

Each is an async function over one shared `Conversation`, with settings that check themselves, and
answers with a `Done` that an engine can branch on. The engine owns the loop and its end; the
conversation owns the messages. `palaver.nodes.langgraph` has the same as nodes of a LangGraph
graph.
"""

from __future__ import annotations

from palaver.nodes.approvals import Decision
from palaver.nodes.compress import answering, make_room
from palaver.nodes.configs import (
    Approve,
    Choose,
    ClearingRoom,
    CompressConfig,
    DroppingRoom,
    Edit,
    HumanConfig,
    LLMConfig,
    Reply,
    SummarisingRoom,
    ToolConfig,
)
from palaver.nodes.context import ContextConfig, edit_context, parse_context
from palaver.nodes.hosting import Host
from palaver.nodes.human import Ask, ask_human
from palaver.nodes.llm import ask_model
from palaver.nodes.reading import read_config
from palaver.nodes.results import CallAsked, Done, Question, Standing, look
from palaver.nodes.schema import SCHEMA, schema
from palaver.nodes.tools import run_calls

__all__ = [
    "SCHEMA",
    "Approve",
    "Ask",
    "CallAsked",
    "Choose",
    "ClearingRoom",
    "CompressConfig",
    "ContextConfig",
    "Decision",
    "Done",
    "DroppingRoom",
    "Edit",
    "Host",
    "HumanConfig",
    "LLMConfig",
    "Question",
    "Reply",
    "Standing",
    "SummarisingRoom",
    "ToolConfig",
    "answering",
    "ask_human",
    "ask_model",
    "edit_context",
    "look",
    "make_room",
    "parse_context",
    "read_config",
    "run_calls",
    "schema",
]
