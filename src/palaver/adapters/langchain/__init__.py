"""LangChain: its chat message history over a conversation in a store, and message conversion.

    history = PalaverChatMessageHistory(palaver.open("chat.db"), "tea-talk")
    history.add_messages([HumanMessage("Which tea?")])

A LangChain message becomes a message of the log: its text can be searched, its tool calls and
results are parts with a state, its usage is counted. Fields that palaver doesn't have are stored in
the message's metadata, so that `to_langchain` returns exactly what `from_langchain` was given.
`repair_messages` makes an edited list valid for a model; the chat message history does so itself.

`chat_history` holds the chat message history, `convert` the messages both ways, and `repair` what
makes a list of them valid.
"""

from palaver.errors import needs_extra

with needs_extra("langchain"):
    from palaver.adapters.langchain.chat_history import PalaverChatMessageHistory
    from palaver.adapters.langchain.convert import from_langchain, to_langchain
    from palaver.adapters.langchain.repair import repair_messages

__all__ = ["PalaverChatMessageHistory", "from_langchain", "repair_messages", "to_langchain"]
