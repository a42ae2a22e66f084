"""LangGraph's checkpoints in a palaver store: `graph = builder.compile(checkpointer=Saver(store))`.

A thread is a conversation of the same id, and a checkpoint one small record beside it. Messages are
in the log, once; so what N turns cost is N, and not N². The conversation can be read, searched,
edited and rolled back while the graph rests, and that is what the graph sees next.
"""

from __future__ import annotations

from palaver.adapters.langgraph.reducing import MessagesState, add_messages
from palaver.adapters.langgraph.saver import Saver

__all__ = ["MessagesState", "Saver", "add_messages"]
