"""The frameworks' own clients with palaver's history, and servers that refuse what is invalid."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from compat.provider_clients import CLIENTS
from palaver import wire
from palaver.messages import dump
from palaver.testing.servers import Answer, Call, ProviderServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.messages import Message
    from palaver.stores import Store, StoredHistory

PNG, PDF = "iVBORw0KGgoAAAANSUhEUgAA", "JVBERi0xLjQKJSVFT0Y="
SCRIPT: list[Any] = [
    Answer("", "Own thought.", calls=(Call("weather", {"city": "Bari"}, id="c9"),)),
    Answer("Sunny.", "Second thought."),
    "I said so.",
]
NO_REASONING = {
    "Strands: OpenAI", "Strands: Responses", "OpenAI Agents: chat", "Agent Framework: OpenAI",
    "Agent Framework: Gemini",
}  # fmt: skip
"""The clients that send no reasoning, not even their own."""
NO_IMAGES = {"OpenAI Agents: chat", "Agent Framework: OpenAI", "Agent Framework: Gemini"}
"""The clients that send no images of results; they send the texts."""
ODD_IMAGES = {"Strands: OpenAI"}
"""The client that says more of an image than the endpoint documents: its format."""


def conversation(store: Store, which: str, question: str, *more: str) -> str:
    """Ask with new objects each time; return the conversation of the last request."""
    client = CLIENTS[which]
    with ProviderServer(client.form, SCRIPT) as server:
        assert "Sunny." == client.ask(store, server.url, question)
        for each in more:
            assert "I said so." == client.ask(store, server.url, each, stream=True)
        assert [] == server.failures
        assert [] == list(store.verify())
        body = server.requests[-1].body
        asked = ("messages", "input", "contents", "system", "systemInstruction", "instructions")
        return json.dumps({key: body[key] for key in asked if key in body}, ensure_ascii=False)


@pytest.mark.parametrize("which", CLIENTS)
def test_a_run_and_a_streamed_run_of_a_new_process(here: Store, which: str) -> None:
    last = conversation(here, which, "Weather?", "And what did you say?")
    for said in ('"Weather?"', "21 degrees and sunny", "Sunny.", "And what did you say?"):
        assert 1 == last.count(said), (said, last)
    own = [last.count(thought) for thought in ("Own thought.", "Second thought.")]
    assert own == ([0, 0] if which in NO_REASONING else [1, 1])
    signed = {"gemini": "thoughtSignature", "anthropic": '"signed-1"'}
    assert signed.get(CLIENTS[which].form, "") in last
    roles = [message.role for message in here.get("talk")]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


# ── what others wrote ───────────────────────────────────────────────────────────────────────────


def of_anthropic(*, image: bool) -> tuple[Message, ...]:
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    picture: list[Any] = [{"type": "image", "source": source}] if image else []
    thought = {"type": "thinking", "thinking": "Foreign hm.", "signature": "Zm9yZWlnbg=="}
    calls: list[Any] = [
        {"type": "tool_use", "id": f"toolu_{city}", "name": "weather", "input": {"city": city}}
        for city in ("Oslo", "Bergen", "Narnia")
    ]
    results: list[Any] = [
        {"type": "tool_result", "tool_use_id": "toolu_Bergen",
         "content": [{"type": "text", "text": "A picture."}, *picture]},
        {"type": "tool_result", "tool_use_id": "toolu_Oslo", "content": "Rain there."},
        {"type": "tool_result", "tool_use_id": "toolu_Narnia", "content": "None.",
         "is_error": True},
    ]  # fmt: skip
    sealed = {"type": "redacted_thinking", "data": "Zm9yZWlnbg=="}
    return wire.from_("anthropic", {"messages": [
        {"role": "user", "content": "Weather in the north?"},
        {"role": "assistant", "content": [thought, sealed, {"type": "text", "text": "I look."},
                                          *calls]},
        {"role": "user", "content": results},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "It rains."}]},
    ]}).messages  # fmt: skip


def of_responses(*, image: bool) -> tuple[Message, ...]:
    del image
    thought = {"type": "reasoning", "id": "rs_f1", "encrypted_content": "foreign-seal",
               "summary": [{"type": "summary_text", "text": "Foreign hm."}]}  # fmt: skip
    text = {"type": "output_text", "text": "It rains.", "annotations": []}
    return wire.from_("openai-responses", {"input": [
        {"role": "user", "content": "Weather in Rome?"},
        thought,
        {"type": "function_call", "id": "fc_f1", "call_id": "call_1", "name": "weather",
         "arguments": '{"city":"Rome"}', "status": "completed"},
        {"type": "function_call_output", "call_id": "call_1", "output": "Rain there."},
        {"type": "message", "id": "msg_f1", "role": "assistant", "status": "completed",
         "content": [text]},
    ]}).messages  # fmt: skip


def of_gemini(*, image: bool) -> tuple[Message, ...]:
    picture: list[Any] = [{"inlineData": {"mimeType": "image/png", "data": PNG}}] if image else []
    call = {"name": "weather", "args": {"city": "Rome"}}
    return wire.from_("gemini", {"contents": [
        {"role": "user", "parts": [{"text": "Weather here?"}, *picture]},
        {"role": "model", "parts": [{"text": "Foreign hm.", "thought": True},
                                    {"functionCall": call, "thoughtSignature": "Zm9yZWlnbg=="}]},
        {"role": "user", "parts": [{"functionResponse": {
            "name": "weather", "response": {"output": "Rain there."}}}]},
        {"role": "model", "parts": [{"text": "It rains."}]},
    ]}).messages  # fmt: skip


def of_chat(*, image: bool) -> tuple[Message, ...]:
    del image
    data = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    call = {"name": "weather", "arguments": '{"city": "Rome"}'}
    return wire.from_("openai-chat", {"messages": [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"},
                                     {"type": "file", "file": data}]},
        {"role": "assistant", "content": "It rains.",
         "tool_calls": [{"id": "call_1", "type": "function", "function": call}]},
    ]}).messages  # fmt: skip


HISTORIES = (of_anthropic, of_responses, of_gemini, of_chat)
OTHERS = [(which, history) for which in CLIENTS for history in HISTORIES]
OTHERS.remove(("OpenAI Agents: Responses", of_responses))  # what that client itself writes


@pytest.mark.parametrize(("which", "history"), OTHERS)
def test_what_others_wrote_goes_to_the_model_without_their_reasoning(
    here: Store, which: str, history: Callable[..., tuple[Message, ...]]
) -> None:
    here.create(id="talk").extend(history(image=which not in ODD_IMAGES))
    stored = here.get("talk")
    before = dump(list(stored)).decode()
    said = [message.text for message in stored if message.role != "tool" and message.text]
    results = [text for text in ("Rain there.", "A picture.", "None.") if text in before]
    last = conversation(here, which, "Weather now?")
    for text in (*said, *results, "Weather now?", "Bari: 21 degrees and sunny"):
        assert 1 == last.count(text), (text, last)
    assert "Foreign" not in last
    assert "foreign-" not in last
    if history is not of_gemini or CLIENTS[which].form != "gemini":  # Google's call keeps its own
        assert "Zm9yZWln" not in last
    if which not in NO_IMAGES or history is of_gemini:
        assert before.count(PNG) == last.count(PNG)


# ── after an edit ───────────────────────────────────────────────────────────────────────────────


def insert(history: StoredHistory) -> None:
    history.rewrite([range(2), palaver.user("Hurry."), range(2, len(history))])


EDITS: dict[str, Callable[[StoredHistory], Any]] = {
    "an answer is left first": lambda history: history.truncate(keep_last=1),
    "without the result": lambda history: history.rewrite([range(2), range(3, 4)]),
    "a question before the result": insert,
}


@pytest.mark.parametrize("which", CLIENTS)
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_what_an_edit_left_goes_to_the_model(
    here: Store, which: str, edit: Callable[[StoredHistory], Any]
) -> None:
    client = CLIENTS[which]
    with ProviderServer(client.form, [*SCRIPT, "Indeed."]) as server:
        client.ask(here, server.url, "Weather?")
        edit(here.get("talk"))
        texts = [message.text for message in here.get("talk") if message.text]
        assert "I said so." == client.ask(here, server.url, "And now?")
        assert "Indeed." == client.ask(here, server.url, "Sure?")
        assert [] == server.failures
        last = json.dumps(server.requests[-1].body)
        for text in (*texts, "And now?", "Sure?"):
            assert 1 == last.count(text), (text, last)
    assert [] == list(here.verify())
    assert texts == [message.text for message in here.get("talk") if message.text][: len(texts)]
