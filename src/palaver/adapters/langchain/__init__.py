"""LangChain's messages as palaver's and back, and a chat history that lasts.

    history = ChatHistory(palaver.open("chat.db"), "tea-talk")
    history.add_messages([HumanMessage("Which tea?")])

A LangChain message becomes a real message of the log: its text can be searched, its tool calls and
results are parts with a state, its usage is counted. What palaver has no field for is kept in the
message's metadata, and only that; so `to_langchain` gives back exactly what `from_langchain` took.
`mended` makes an edited list one that a model takes; a `ChatHistory` gives no other.
"""

from __future__ import annotations

from palaver.adapters.langchain.history import ChatHistory
from palaver.adapters.langchain.pairing import mended
from palaver.adapters.langchain.reading import from_langchain
from palaver.adapters.langchain.writing import to_langchain

__all__ = ["ChatHistory", "from_langchain", "mended", "to_langchain"]
