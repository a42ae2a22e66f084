"""LangChain's messages through palaver's and back, and a chat history that is a conversation."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from msgspec.structs import replace
from pydantic import SecretStr

from palaver import wire
from palaver.adapters.langchain import PalaverChatMessageHistory, from_langchain, to_langchain
from palaver.errors import ValidationError
from palaver.messages import (
    AssistantInfo,
    FilePart,
    Message,
    Speaker,
    ToolCallPart,
    ToolPart,
    assistant,
    complete,
    dump,
    fail,
    file_part,
    parse_message,
    pending,
    reasoning_part,
    start,
    system,
    text_part,
    tool_call_part,
    tool_part,
    user,
)
from palaver.messages.ids import NIL_ID
from palaver.testing.servers import ProviderServer
from palaver.wire.request import BEGIN

if TYPE_CHECKING:
    from palaver.stores import Store

IDS = (NIL_ID, NIL_ID)


def there_and_back(message: BaseMessage, **some: Any) -> BaseMessage:
    """Through the bytes of a store."""
    (back,) = to_langchain(parse_message(dump(from_langchain(message, **some))), **some)
    return back


# ── every message comes back as it was ──────────────────────────────────────────────────────────

TEXTS = st.text(max_size=20) | st.sampled_from(["", "a\0b", "\ud800", "x" * 2_000, "\U0001f375"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
BLOCKS = st.one_of(
    TEXTS,
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
    st.builds(lambda text: {"type": "reasoning", "reasoning": text}, TEXTS),
    st.builds(lambda text: {"type": "refusal", "refusal": text}, TEXTS),
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}, TEXTS),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, TEXTS),
    st.builds(lambda url: {"type": "image_url", "image_url": url}, TEXTS),
    st.builds(lambda url: {"type": "image", "url": url}, TEXTS),
    st.just({"type": "image", "base64": "aGk=", "mime_type": "image/png"}),
    st.just({"type": "tool_use", "id": "c1", "name": "f", "input": {}}),
    st.builds(lambda more: {"type": "odd", **more}, OBJECTS),
    OBJECTS,
)
COMMON: dict[str, Any] = {
    "content": TEXTS | st.lists(BLOCKS, max_size=3),
    "id": st.none() | TEXTS,
    "name": st.none() | TEXTS,
    "additional_kwargs": OBJECTS | TEXTS.map(lambda text: {"refusal": text}),
    "response_metadata": OBJECTS
    | st.just({"model_name": "m-1", "finish_reason": "stop", "model_provider": "them"}),
}
CALLS = st.lists(
    st.fixed_dictionaries(
        {"name": TEXTS, "args": OBJECTS, "id": st.none() | TEXTS, "type": st.just("tool_call")}
    ),
    max_size=2,
)
INVALID = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.none() | TEXTS, "args": st.none() | TEXTS, "id": st.none() | TEXTS,
            "error": st.none() | TEXTS, "type": st.just("invalid_tool_call"),
        }
    ),
    max_size=2,
)  # fmt: skip
COUNTS = st.integers(0, 50)
USAGE = st.none() | st.fixed_dictionaries(
    {"input_tokens": COUNTS, "output_tokens": COUNTS, "total_tokens": COUNTS},
    optional={
        "input_token_details": st.dictionaries(
            st.sampled_from(["audio", "cache_read", "cache_creation"]), COUNTS
        ),
        "output_token_details": st.dictionaries(st.sampled_from(["audio", "reasoning"]), COUNTS),
    },
)
NAMED = COMMON | {"name": TEXTS}
MESSAGES = st.one_of(
    st.builds(HumanMessage, **COMMON),
    st.builds(SystemMessage, **COMMON),
    st.builds(
        AIMessage, **COMMON, tool_calls=CALLS, invalid_tool_calls=INVALID, usage_metadata=USAGE
    ),
    st.builds(
        ToolMessage,
        **COMMON,
        tool_call_id=TEXTS,
        artifact=JSON,
        status=st.sampled_from(["success", "error"]),
    ),
    st.builds(FunctionMessage, **NAMED),
    st.builds(ChatMessage, **COMMON, role=TEXTS | st.sampled_from(["user", "developer", "ai"])),
    st.builds(AIMessageChunk, content=TEXTS, id=st.none() | TEXTS),
    st.builds(HumanMessage, content=TEXTS, something=JSON, hard=JSON, of=JSON),
)


@given(MESSAGES)
def test_a_message_comes_back_as_it_was(message: BaseMessage) -> None:
    back = there_and_back(message)
    assert (type(message), message) == (type(back), back)
    assert message.__pydantic_extra__ == back.__pydantic_extra__


@pytest.mark.parametrize(
    "block",
    [
        {"type": "file", "base64": "QUJD", "mime_type": "application/pdf"},
        {"type": "file", "url": "https://example.org/a", "extras": {"title": "A"}},
        {"type": "file", "file_id": "f1"},
        {"type": "image", "file_id": "f1"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
        {"type": "image", "url": ""},
        {"type": "tool_result", "tool_use_id": "c1", "content": "4"},
        {"type": "text", "text": None},
        {"type": "compaction", "content": "So far."},
        {"type": ""},
    ],
)
@pytest.mark.parametrize("kind", [HumanMessage, AIMessage])
def test_a_block_whose_type_is_a_parts_too_can_be_read_again(block: Any, kind: Any) -> None:
    message = kind([{"type": "text", "text": "See."}, block])
    assert message == there_and_back(message)
    files = [part.url for part in from_langchain(message).parts if isinstance(part, FilePart)]
    expected = {"base64": "data:application/pdf;base64,QUJD", "extras": "https://example.org/a"}
    assert [url for key, url in expected.items() if key in block] == files


@given(MESSAGES, TEXTS)
def test_an_edit_wins_over_what_was_kept(message: BaseMessage, text: str) -> None:
    """Whatever was kept with a message, its text is what palaver says it is."""
    made = from_langchain(message)
    words = text.replace("\0", "").encode(errors="ignore").decode() + "!"
    (back,) = to_langchain(replace(made, content=words))
    assert words == back.content
    kept, found = dict(message.additional_kwargs), dict(back.additional_kwargs)
    if made.role == "assistant":  # it was the text, or led to it
        assert not found.pop("refusal", None)
        kept.pop("refusal", None)
    assert kept == found


class Thing:
    """Something that is no JSON."""


def test_what_is_no_json_takes_a_serializer() -> None:
    with pytest.raises(ValidationError, match="artifact"):
        from_langchain(ToolMessage("x", tool_call_id="c", artifact=Thing()))
    serializer: Any = JsonPlusSerializer()
    for artifact in ({3: "three"}, {1, 2}, b"bytes", math.inf, [float("-inf")]):
        message = ToolMessage("x", tool_call_id="c", artifact=artifact)
        assert message == there_and_back(message, serializer=serializer)
    message = ToolMessage("x", tool_call_id="c", artifact=b"bytes")
    (bare,) = to_langchain(from_langchain(message, serializer=serializer))
    assert getattr(bare, "artifact", ...) is None  # kept, but not to be read without the serializer


@pytest.mark.parametrize("message", [RemoveMessage(id="x"), Thing()])
def test_what_is_no_message_of_theirs_is_refused(message: Any) -> None:
    message.__dict__.setdefault("type", "thing")
    with pytest.raises(ValidationError, match="one of LangChain's own messages"):
        from_langchain(message)


# ── what palaver makes of them ──────────────────────────────────────────────────────────────────


def test_an_answer_is_made_of_parts_and_figures() -> None:
    answer = AIMessage(
        "Let me see.",
        tool_calls=[{"name": "look", "args": {"at": 1}, "id": "c1"}],
        invalid_tool_calls=[{"name": "f", "args": "{", "id": "c2", "error": "no JSON"}],
        usage_metadata={
            "input_tokens": 9, "output_tokens": 5, "total_tokens": 14,
            "input_token_details": {"cache_read": 4}, "output_token_details": {"reasoning": 2},
        },
        response_metadata={"model_name": "m-1", "model_provider": "them", "finish_reason": "stop"},
    )  # fmt: skip
    made = from_langchain(answer, session="talk")
    assert ("assistant", "Let me see.") == (made.role, made.text)
    calls = [part for part in made.parts if isinstance(part, ToolCallPart)]
    assert [("look", {"at": 1}, "c1"), ("f", {}, "c2")] == [
        (part.tool, part.input, part.call_id) for part in calls
    ]
    info = made.info
    assert isinstance(info, AssistantInfo)
    assert info.tokens is not None
    assert info.model is not None
    assert ("them", "m-1", "stop") == (info.model.provider_id, info.model.model_id, info.finish)
    tokens = info.tokens
    assert (5, 3, 2, 4) == (tokens.input, tokens.output, tokens.reasoning, tokens.cache.read)
    assert "usage_metadata" not in made.metadata["langchain"]  # said by the figures alone


@pytest.mark.parametrize(
    "refused",
    [
        AIMessage([{"type": "refusal", "refusal": "I can't help with that."}]),
        AIMessage("", additional_kwargs={"refusal": "I can't help with that.", "more": 1}),
    ],
    ids=["Responses", "Chat Completions"],
)
def test_a_refusal_is_text_that_is_marked(refused: AIMessage) -> None:
    """It is found by a search and goes to every provider; for LangChain it is a refusal again."""
    made = from_langchain(refused)
    assert "I can't help with that." == made.text
    anthropic = wire.to("anthropic", [user("How?"), made]).body["messages"][1]["content"]
    assert [{"type": "text", "text": "I can't help with that."}] == anthropic
    assert refused.__dict__ == {**there_and_back(refused).__dict__, "id": refused.id}
    (edited,) = to_langchain(replace(made, content="Like this."))
    assert ("Like this.", None) == (edited.content, edited.additional_kwargs.get("refusal"))


def test_a_result_has_its_state() -> None:
    done = from_langchain(ToolMessage("21 degrees", tool_call_id="c1", name="weather"))
    failed = from_langchain(ToolMessage("no such city", tool_call_id="c1", status="error"))
    mixed = from_langchain(ToolMessage(["a", {"type": "text", "text": "b"}], tool_call_id="c1"))
    (part,), (error,), (both,) = done.parts, failed.parts, mixed.parts
    assert isinstance(part, ToolPart)
    assert ("weather", "c1", "completed") == (part.tool, part.call_id, part.state.status)
    assert isinstance(error, ToolPart)
    assert "no such city" == getattr(error.state, "error", None)
    assert isinstance(both, ToolPart)
    assert "a\nb" == getattr(both.state, "output", None)


def test_palavers_own_messages_are_langchains() -> None:
    """What was never LangChain's: parts, several results in one message, speakers."""
    state = start(pending({}, ""), at=1)
    done = tool_part(*IDS, "c1", "look", complete(state, "seen", tool="look", at=2))
    failed = tool_part(*IDS, "c2", "look", fail(state, "dark", at=2))
    made = [
        user("hi", speaker=Speaker("u", "Ada", "human")),
        system("Be brief."),
        assistant(
            [
                reasoning_part(*IDS, "hm", start=1),
                text_part(*IDS, "Yes."),
                text_part(*IDS, "unseen", ignored=True),
                tool_call_part(*IDS, "look", {"at": [1]}, call_id="c1"),
            ]
        ),
        Message("tool", (done, failed), id="t"),
        Message("tool", "bare"),
        user([done, text_part(*IDS, "and this")], id="u"),
        user(
            [
                file_part(*IDS, "image/png", "https://example.org/a.png"),
                file_part(*IDS, "text/plain", "data:text/plain;base64,aGk="),
                file_part(*IDS, "text/plain", "https://example.org/a.txt"),
            ]
        ),
    ]
    found = [one for message in made for one in to_langchain(message)]
    assert ["human", "system", "ai", "tool", "tool", "tool", "tool", "human", "human"] == [
        one.type for one in found
    ]
    assert "Ada" == found[0].name
    assert "Yes." == found[2].content
    assert [{"name": "look", "args": {"at": [1]}, "id": "c1", "type": "tool_call"}] == getattr(
        found[2], "tool_calls", None
    )
    assert [("t", "seen", "success"), ("t:1", "dark", "error")] == [
        (one.id, one.content, getattr(one, "status", None)) for one in found[3:5]
    ]
    assert ["bare", "seen", "and this"] == [one.content for one in found[5:8]]
    assert ["u", "u:1"] == [one.id for one in found[6:8]]
    assert ["image_url", "text", "file"] == [
        block["type"] for block in found[8].content if isinstance(block, dict)
    ]


@pytest.mark.parametrize(
    "kept",
    [
        {"type": "martian"},
        {"additional_kwargs": 5},
        {"type": "tool", "tool_call_id": None},
        {"hard": "broken"},
        {"hard": ["text", "{"]},
    ],
)
def test_what_was_forged_is_refused(kept: Any) -> None:
    forged = user("hi", metadata={"langchain": kept})
    with pytest.raises(ValidationError, match="langchain"):
        to_langchain(forged)


def test_metadata_of_another_kind_is_left_alone() -> None:
    (message,) = to_langchain(user("hi", id="m", metadata={"langchain": "mine"}))
    assert HumanMessage("hi", id="m") == message


# ── the chat history ────────────────────────────────────────────────────────────────────────────


def test_a_chain_with_a_history(store: Store) -> None:
    """A real chain over a real protocol; what is edited between turns is what is sent."""
    with ProviderServer("openai-chat", ["Darjeeling.", "Milk."]) as server:
        model = ChatOpenAI(model="gpt-test", base_url=server.url, api_key=SecretStr("any"))
        prompt = ChatPromptTemplate([MessagesPlaceholder("past"), ("user", "{words}")])
        chain = RunnableWithMessageHistory(
            prompt | model,
            lambda session_id: PalaverChatMessageHistory(store, session_id),
            input_messages_key="words",
            history_messages_key="past",
        )
        config: Any = {"configurable": {"session_id": "tea"}}
        assert "Darjeeling." == chain.invoke({"words": "Which tea?"}, config).content
        store.get("tea").replace(0, user("Which Indian tea?"))
        assert "Milk." == chain.invoke({"words": "And with it?"}, config).content
        sent = [item["content"] for item in server.requests[-1].body["messages"]]
        assert ["Which Indian tea?", "Darjeeling.", "And with it?"] == sent
        assert [] == server.failures
    assert ["Milk."] == [hit.message.text for hit in store.search("milk")]


def test_a_history_is_shared_cleared_and_brought_back(store: Store) -> None:
    one, other = PalaverChatMessageHistory(store, "tea"), PalaverChatMessageHistory(store, "tea")
    one.add_messages([HumanMessage("a", id="1"), AIMessage("b", id="2")])
    other.add_messages([HumanMessage("c", id="3")])
    assert ["a", "b", "c"] == [message.content for message in one.messages]
    other.clear()
    assert [] == one.messages
    one.history.undo()
    assert [HumanMessage("a", id="1"), AIMessage("b", id="2"), HumanMessage("c", id="3")] == (
        other.messages
    )


def test_what_was_erased_is_left_out(store: Store) -> None:
    """Some providers refuse a message that says nothing."""
    kept = PalaverChatMessageHistory(store, "talk")
    call = {"name": "look", "args": {}, "id": "c1"}
    said = [
        HumanMessage("4711"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("seen", tool_call_id="c1"),
        AIMessage("Yes."),
    ]
    kept.add_messages(said)
    kept.history.erase(1)
    assert [said[0], said[3]] == [m.model_copy(update={"id": None}) for m in kept.messages]
    kept.history.erase(0)
    assert [BEGIN, "Yes."] == [message.content for message in kept.messages]
    assert [] == to_langchain(kept.history[0])


def test_the_same_asynchronously(store: Store) -> None:
    async def talk() -> list[BaseMessage]:
        chat = PalaverChatMessageHistory(store, "tea")
        await chat.aadd_messages([HumanMessage("a"), HumanMessage("b")])
        found = await chat.aget_messages()
        await chat.aclear()
        return found + await chat.aget_messages()

    assert [HumanMessage("a"), HumanMessage("b")] == asyncio.run(talk())
