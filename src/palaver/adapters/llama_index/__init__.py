"""LlamaIndex: its chat store and its memory over conversations in a store, and message conversion.

    memory = PalaverMemory(palaver.open("chat.db"), "tea-talk", token_limit=3_000)
    await agent.run("Which tea?", memory=memory)

A chat message becomes a message of the log: its text can be searched, its tool calls and results
are parts. The chat store returns what was added or edited; the memory shows a model the newest
messages that fit a number of tokens, each call with its result.

`chat_store` holds the chat store, `memory` the memory and its block; `convert` the messages both
ways.
"""

from palaver.errors import needs_extra

with needs_extra("llama-index"):
    from palaver.adapters.llama_index.chat_store import PalaverChatStore
    from palaver.adapters.llama_index.convert import (
        from_llama_index,
        repair_messages,
        to_llama_index,
    )
    from palaver.adapters.llama_index.memory import PalaverMemory, PalaverMemoryBlock

__all__ = [
    "PalaverChatStore",
    "PalaverMemory",
    "PalaverMemoryBlock",
    "from_llama_index",
    "repair_messages",
    "to_llama_index",
]
