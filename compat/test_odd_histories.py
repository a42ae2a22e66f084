"""Histories that a provider refuses as they are, through each framework's own client of a provider.

What is stored stays as it was; what the model is sent, the servers take, which are as strict as the
providers. All that was said is there.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from google.adk.events import Event
from google.genai.types import Content
from google.genai.types import Part as ContentPart
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
from palaver.adapters.adk import from_event
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
    from palaver.messages import Part
    from palaver.stores import Store

IDS: Final = (new_id(), new_id())
text, thought = partial(text_part, *IDS), partial(reasoning_part, *IDS)
SCRIPT: Final[list[Any]] = [
    Answer("", calls=(Call("weather", {"city": "Bari"}, id="c9"),)), "Sunny.",
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
LONG: Final = "toolu_" + "x" * 80
CALLS: dict[str, list[Message]] = {
    "a long id": [user("Look."), said("assistant", call(LONG)), result(LONG), assistant("Seen.")],
    "an id of other letters": [
        user("Look."), said("assistant", call("functions.weather:0")),
        result("functions.weather:0"), assistant("Seen."),
    ],
    "an id that comes again": [
        user("Look."), said("assistant", call()), result(), assistant("Seen."),
        user("Again."), said("assistant", call(city="Rome")), result(output="Sun there."),
        assistant("Seen."),
    ],
    "a name of other letters": [
        user("Look."), said("assistant", call(tool="my.weather ö")),
        result(tool="my.weather ö"), assistant("Seen."),
    ],
    "a failure": [user("Look."), said("assistant", call()), failed(), assistant("Seen.")],
    "results in another order": [
        user("Look."), said("assistant", call(), call("c2")), result("c2", "Sun there."), result(),
        assistant("Seen."),
    ],
    "a result before its call": [user("Look."), result(), said("assistant", call()), user("Well?")],
    "no result": [user("Look."), said("assistant", call()), user("Well?"), assistant("Seen.")],
    "no result yet": [user("Look."), said("assistant", call())],
    "a file that nobody takes": [
        said("user", text("What is it?"), file("application/zip", filename="a.zip")),
        assistant("A zip."),
    ],
    "a text file": [said("user", text("What?"), file("text/csv", filename="a.csv"))],
    "two questions": [user("Tea?"), user("Rum?"), assistant("No.")],
    "two answers": [user("Tea?"), assistant("Yes."), assistant("No.")],
    "a question last": [user("Tea?"), assistant("Yes."), user("Rum?")],
    "the system in the middle": [user("Tea?"), assistant("Yes."), system("Be kind.")],
}  # fmt: skip
HISTORIES: Final = {**FILES, **GREETINGS, **BLANKS, **CALLS}

# ── the clients ─────────────────────────────────────────────────────────────────────────────────


def ask(which: str, store: Store) -> str:
    """Ask with one of the frameworks' clients; return the body of the last request."""
    framework, _, form = which.partition(": ")
    if framework == "LlamaIndex":
        return llama_index_clients.ask_twice(store, "gemini")
    if framework in ("LangChain", "LangGraph"):
        way = langchain_clients.WAYS[framework == "LangGraph"]
        return langchain_clients.ask_twice(store, cast("Any", form), way)
    client = CLIENTS[which]
    with ProviderServer(client.form, SCRIPT) as server:
        assert "Sunny." == client.ask(store, server.url, "Weather?")
        assert [] == server.failures
        return json.dumps(server.requests[-1].body, ensure_ascii=False)


WHICH: Final = [
    *CLIENTS,
    *(
        f"{each}: {form}"
        for each in ("LangChain", "LangGraph")
        for form in langchain_clients.CLIENTS
    ),
    "LlamaIndex: gemini",
]
NO_SYSTEM: Final = {
    *(which for which in CLIENTS if which.startswith("Strands")),
    "LangChain: gemini", "LangGraph: gemini",
}  # fmt: skip
"""Strands has no system messages, and LangChain's client of Gemini sends only the first ones."""
NOT_MENDED: Final = {
    ("LangGraph: openai-chat", "a long id"), ("LangGraph: openai-responses", "a long id"),
    ("LangGraph: openai-responses", "an id that comes again"),
    ("LangGraph: anthropic", "an id that comes again"),
    ("OpenAI Agents: chat", "an id that comes again"),
    ("Strands: OpenAI", "a question with a picture"),  # it says what format the image has
    ("OpenAI Agents: chat", "a text file"),
}  # fmt: skip
"""What docs/howto/frameworks.md says of them."""


OF_OPENAI: Final = ("openai", "OpenAI", "Responses", "chat")
"""How the names of OpenAI's clients end or go on: it takes greetings and blank texts."""
TRIED: Final = [
    (which, name)
    for which in WHICH
    for name in HISTORIES
    if not any(each in which.partition(": ")[2] for each in OF_OPENAI)
    or not (name in GREETINGS or name in BLANKS)
]


@pytest.mark.parametrize(("which", "name"), TRIED)
def test_the_provider_takes_it_and_what_is_stored_stays(here: Store, which: str, name: str) -> None:
    if (which, name) in NOT_MENDED:
        with pytest.raises(Exception, match="400"):
            check(here, which, name)
    else:
        check(here, which, name)


def check(here: Store, which: str, name: str) -> None:
    here.create(id="talk").extend(HISTORIES[name])
    before = dump([*here.get("talk")])
    last = ask(which, here)
    history = here.get("talk")
    assert before == dump([*history][: len(HISTORIES[name])])
    assert [] == [*here.verify()]
    new = [message.role for message in history][len(HISTORIES[name]) :]
    if which.startswith("Strands") and name == "no result yet":
        assert "tool" == new.pop(0)  # Strands stores the one that is missing
    assert ["user", "assistant", "tool", "assistant"] == new[:4], new
    assert new[4:] in ([], ["user", "assistant"])
    shown = ("user", "assistant") if which in NO_SYSTEM else ("user", "assistant", "system")
    for message in HISTORIES[name]:
        if message.role in shown and (words := message.text.strip()):
            assert words in last, (words, last)
    assert "Foreign" not in last


# ── what a framework wrote itself ───────────────────────────────────────────────────────────────

OWN: Final = [
    ("Strands: OpenAI", "Strands: Anthropic"),
    ("Agent Framework: OpenAI", "Agent Framework: Anthropic"),
]


@pytest.mark.parametrize(("first", "then"), OWN, ids=[then for _, then in OWN])
def test_an_answer_of_white_space_that_the_framework_stored_is_left_out(
    here: Store, first: str, then: str
) -> None:
    with ProviderServer(CLIENTS[first].form, [" \n"]) as server:
        CLIENTS[first].ask(here, server.url, "Tea?")
    before = dump([*here.get("talk")])
    ask(then, here)
    assert before == dump([*here.get("talk")][:2])
    assert " \n" == here.get("talk")[1].text


def test_a_text_of_white_space_in_an_event_is_left_out_by_a_callback(here: Store) -> None:
    """ADK takes such an answer for an error, and stores the event."""
    said = Content(role="model", parts=[ContentPart(text=" \n")])
    here.create(id="talk").extend([user("Tea?"), from_event(Event(author="ada", content=said))])
    ask("ADK: Claude", here)
    assert " \n" == here.get("talk")[1].text


def test_what_pydantic_ai_wrote_comes_back_as_it_was_and_can_be_repaired(here: Store) -> None:
    history = here.create(id="talk")
    wrote: list[Any] = [
        ModelResponse([TextPart("Hello!")], model_name="any"),
        ModelRequest.user_text_prompt("Tea?"),
        ModelResponse([TextPart(" \n")], model_name="any"),
        ModelRequest.user_text_prompt("Well?"),
        ModelResponse([TextPart("\n"), TextPart("Yes.")], model_name="any"),
    ]  # fmt: skip
    save(history, wrote)
    assert wrote == load(history)
    with ProviderServer("anthropic", ["Sunny."]) as server:
        provider = AnthropicProvider(anthropic_client=claude(server.url))
        agent = Agent(AnthropicModel(CLAUDE, provider=provider))
        done = agent.run_sync("Weather?", message_history=repair_pydantic_ai(load(history)))
        assert [] == server.failures
    save(history, done.new_messages())
    texts = ["Hello!", "Tea?", " \n", "Well?", "\nYes.", "Weather?", "Sunny."]
    assert texts == [message.text for message in history]


@pytest.mark.parametrize("form", ["anthropic", "gemini"])
def test_a_chain_repairs_a_greeting_between_its_prompt_and_its_model(
    here: Store, form: Any
) -> None:
    chat = PalaverChatMessageHistory(here, "talk")
    chat.add_messages([AIMessage("Hello!")])
    prompt = ChatPromptTemplate.from_messages([("system", "Be kind."), ("placeholder", "{said}")])
    with ProviderServer(form, ["Sunny."]) as server:
        chain = prompt | repair_messages | langchain_clients.CLIENTS[form](server.url)
        answer = chain.invoke({"said": [*chat.messages, HumanMessage("Weather?")]})
        assert [] == server.failures
    assert "Sunny." == answer.text
    assert ["Hello!"] == [message.content for message in chat.messages]


@pytest.mark.parametrize("form", ["anthropic", "gemini"])
def test_a_thread_whose_first_question_was_removed_goes_on(here: Store, form: Any) -> None:
    def edit(history: Any) -> None:
        history.truncate(remove_first=1)

    last = langchain_clients.ask_twice(here, form, langchain_clients.with_graph, edit)
    assert BEGIN in last
    assert PalaverSaver(here).get_tuple({"configurable": {"thread_id": "talk"}}) is not None
    assert BEGIN not in [message.text for message in here.get("talk")]
