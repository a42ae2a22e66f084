"""An engine of its own with palaver's nodes: a model, tools, a person, room; no key, no network.

The engine holds no messages. It asks each node what is wanted next, and runs that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import palaver
from palaver.conversation import Conversation, model
from palaver.messages import ToolPart
from palaver.nodes import ask_human, ask_model, compress_context, run_calls
from palaver.testing.servers import Answer, Call, ProviderServer

if TYPE_CHECKING:
    from palaver.nodes import NodeResult, Question

SCRIPT = [
    Answer("Let me see.", calls=(Call("trains", {"city": "Oslo"}),)),
    Answer("There is one at nine.", calls=(Call("book", {"train": "9:00", "price": 80}),)),
    Answer("It is booked, for 60."),
]


def trains(city: str) -> str:
    """Look up the trains to a city."""
    return f"to {city}: 9:00, 80 EUR; 12:00, 60 EUR"


def book(train: str, price: int) -> str:
    """Book a train."""
    return f"booked the {train} for {price} EUR"


def person(question: Question) -> Any:  # noqa: ANN401 - whatever answers the question
    """Somebody who wants to go to Oslo, but not for 80."""
    if question.kind == "text":
        return "Book me a train to Oslo."
    cheaper = {"train": "12:00", "price": 60}
    return {"verdict": "edit", "arguments": cheaper, "by": "Ann", "reason": "too dear"}


async def engine(talk: Conversation) -> NodeResult:
    """Run one node after the other, until nothing is wanted any more."""
    done = await ask_human(talk, {"kind": "text", "prompt": "Where to?"}, ask=person)
    while done.next != "end":
        if done.next == "llm":
            done = await ask_model(talk)
        elif done.next == "tool":
            done = await run_calls(talk, {"approval": ["book"]})
        elif done.next == "human":
            done = await ask_human(talk, {"kind": "approve"}, ask=person)
        else:
            done = await compress_context(talk)
        print(f"{done.node:9} {done.outcome:9} → {done.next}")
    return done


async def main() -> None:
    """Run the engine, and show the conversation that it left behind."""
    with palaver.open(":memory:") as store, ProviderServer("openai-chat", SCRIPT) as server:
        asked = model("openai:gpt-5", base_url=server.url, api_key="any")
        talk = Conversation(store, model=asked, tools=[trains, book], token_limit=60_000)
        await engine(talk)
        await asked.close()
        for message in talk.messages:
            states = [part.state for part in message.parts if isinstance(part, ToolPart)]
            said = message.text or " ".join(getattr(state, "output", "") for state in states)
            print(f"{message.role:9} {said}")


if __name__ == "__main__":
    asyncio.run(main())
