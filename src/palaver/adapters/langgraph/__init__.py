"""LangGraph: its checkpoint saver, over a palaver store.

    graph = builder.compile(checkpointer=PalaverSaver(store))

A thread is a conversation of the same id, and a checkpoint is one small record beside it. Messages
are in the log once, so that N turns cost N, not N². The conversation can be read, searched, edited
and rolled back between runs, and the graph sees the result.
"""

from __future__ import annotations

from palaver.errors import needs_extra

with needs_extra("langgraph"):
    from palaver.adapters.langgraph.message_channel import MessagesState, add_messages
    from palaver.adapters.langgraph.saver import PalaverSaver

__all__ = ["MessagesState", "PalaverSaver", "add_messages"]
