"""Histories that a provider refuses as they are, through each framework's own client of a provider.

What is stored stays as it was; what the model is sent, the servers take, which are as strict as the
providers. All that was said is there.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from compat import test_langchain_clients as langchain_clients
from compat import test_llama_index_clients as llama_index_clients
from compat.foreign_histories import PDF, PNG, SIGNED
from compat.provider_clients import CLAUDE, CLIENTS, claude
from palaver import wire
from palaver.adapters.langchain import PalaverChatMessageHistory, repair_messages
from palaver.adapters.langgraph import PalaverSaver
from palaver.adapters.pydantic_ai import load, save
from palaver.adapters.pydantic_ai import repair_messages as repair_pydantic_ai
from palaver.messages import (
    Message,
    assistant,
    dump,
    file_part,
    new_id,
    reasoning_part,
    system,
    text_part,
    tool_call_part,
    tool_part,
    user,
)
from palaver.messages.tool_state import complete, fail, pending, start
from palaver.testing.servers import Answer, Call, ProviderServer
from palaver.wire.request import BEGIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.messages import Part
    from palaver.stores import Store

IDS: Final = (new_id(), new_id())
text, thought = partial(text_part, *IDS), partial(reasoning_part, *IDS)
SCRIPT: Final = [
    Answer("", calls=(Call("weather", {"city": "Bari"}, id="c9"),)), "Sunny.", "I said so.",
]  # fmt: skip


# ── the histories ───────────────────────────────────────────────────────────────────────────────


def said(role: Any, *parts: Part) -> Message:
    return Message(role, parts)


def file(mime: str = "image/png", url: str | None = None, **fields: Any) -> Part:
    data = PNG if mime.startswith("image/") else PDF
    return file_part(*IDS, mime, url or f"data:{mime};base64,{data}", **fields)


def call(name: str = "c1", tool: str = "weather", city: str = "Oslo", **fields: Any) -> Part:
    return tool_call_part(*IDS, tool, {"city": city}, call_id=name, **fields)


def result(
    name: str = "c1", output: str = "Rain there.", tool: str = "weather", **fields: Any
) -> Message:
    state = complete(start(pending({}, ""), at=1), output, tool=tool, at=2, **fields)
    return said("tool", tool_part(*IDS, name, tool, state))


def failed(name: str = "c1") -> Message:
    state = fail(start(pending({}, ""), at=1), "No station.", at=2)
    return said("tool", tool_part(*IDS, name, "weather", state))


def of_gemini(*parts: dict[str, Any]) -> list[Message]:
    asked = {"role": "user", "parts": [{"text": "Draw."}]}
    answered = {"role": "model", "parts": [*parts]}
    return [*wire.from_("gemini", {"contents": [asked, answered]}).messages]


PICTURE: Final = {"inlineData": {"mimeType": "image/png", "data": PNG}}
LINKED: Final = {"fileData": {"mimeType": "image/png", "fileUri": "https://x.example/cat.png"}}
FILES: dict[str, list[Message]] = {
    "a picture": of_gemini({"text": "Here."}, PICTURE),
    "a signed picture": of_gemini({"text": "Here."}, {**PICTURE, "thoughtSignature": SIGNED}),
    "nothing but a picture": of_gemini(PICTURE),
    "a picture's address": of_gemini(LINKED),
    "a picture last": [*of_gemini(PICTURE), user("Another."), said("assistant", file())],
    "a picture and a call": [
        user("Draw."), said("assistant", text("Well."), file(), call()), result(), assistant("Ok."),
    ],
    "a song": [user("Sing."), said("assistant", file("audio/wav"))],
    "a paper": [user("Write."), said("assistant", text("So."), file("application/pdf"))],
}  # fmt: skip
GREETINGS: dict[str, list[Message]] = {
    "a greeting": [assistant("Hello!")],
    "a greeting, and more": [assistant("Hello!"), user("Tea?"), assistant("Yes.")],
    "a greeting after the system": [system("Be kind."), assistant("Hello!")],
    "two greetings": [assistant("Hello!"), assistant("Are you there?")],
    "a picture first": [said("assistant", file())],
    "a call first": [said("assistant", call()), result(), assistant("So it is.")],
    "a thought first": [said("assistant", thought("Foreign hm."), text("Hello!"))],
}
BLANKS: dict[str, list[Message]] = {
    "white space": [user("Tea?"), assistant("  "), user("Well?"), assistant("Yes.")],
    "a line": [user("Tea?"), assistant("\n\n")],
    "nothing": [user("Tea?"), assistant(""), user("Well?"), assistant("Yes.")],
    "no parts": [user("Tea?"), said("assistant")],
    "white space before a call": [
        user("Tea?"), said("assistant", text("\n\n"), call()), result(), assistant("Yes."),
    ],
    "nothing before a call": [
        user("Tea?"), said("assistant", text(""), call()), result(), assistant("Yes."),
    ],
    "white space after a text": [user("Tea?"), said("assistant", text("Yes."), text("  "))],
    "white space first": [assistant(" "), user("Tea?"), assistant("Yes.")],
    "nothing but white space": [assistant(" ")],
    "a signature": of_gemini({"text": "", "thoughtSignature": SIGNED}),
    "a thought": [user("Tea?"), said("assistant", thought("Foreign hm."))],
    "a question": [said("user", text(" ")), assistant("What?")],
    "a question with a picture": [said("user", text(" "), file()), assistant("What?")],
    "an output": [user("Look."), said("assistant", call()), result(output="  "), assistant("So.")],
    "no output": [user("Look."), said("assistant", call()), result(output=""), assistant("So.")],
}  # fmt: skip
HISTORIES: Final = {**FILES, **GREETINGS, **BLANKS}

# ── the clients ─────────────────────────────────────────────────────────────────────────────────


def ask(which: str, store: Store) -> str:
    """Ask with one of the frameworks' clients; return the body of the last request."""
    framework, _, form = which.partition(": ")
    if framework == "LlamaIndex":
        return llama_index_clients.ask_twice(store, "gemini")
    if framework in ("LangChain", "LangGraph"):
        way = langchain_clients.WAYS[framework == "LangGraph"]
        return langchain_clients.ask_twice(store, form, way)  # type: ignore[arg-type]
    client = CLIENTS[which]
    with ProviderServer(client.form, SCRIPT) as server:
        assert "Sunny." == client.ask(store, server.url, "Weather?")
        assert "I said so." == client.ask(store, server.url, "Sure?", stream=True)
        assert [] == server.failures
        return json.dumps(server.requests[-1].body, ensure_ascii=False)


WHICH: Final = [
    *CLIENTS,
    *(f"{each}: {form}" for each in ("LangChain", "LangGraph") for form in langchain_clients.CLIENTS),
    "LlamaIndex: gemini",
]
ODD_IMAGES: Final = {"Strands: OpenAI"}
"""The client that says more of an image than the endpoint documents: its format."""


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("which", WHICH)
def test_the_provider_takes_it_and_what_is_stored_stays(here: Store, which: str, name: str) -> None:
    if which in ODD_IMAGES and name == "a question with a picture":
        pytest.skip("its client names the format of an image")
    here.create(id="talk").extend(HISTORIES[name])
    before = dump([*here.get("talk")])
    last = ask(which, here)
    history = here.get("talk")
    assert before == dump([*history][: len(HISTORIES[name])])
    assert [] == [*here.verify()]
    stored = ["Weather?", "", "", "Sunny.", "And what did you say?", "I said so."]
    assert len(stored) == len(history) - len(HISTORIES[name]), [each.text for each in history]
    shown = "user", "assistant", *(() if which.startswith("Strands") else ("system",))
    for message in HISTORIES[name]:
        if message.role in shown and (words := message.text.strip()):
            assert words in last, (words, last)
    assert "Foreign" not in last
