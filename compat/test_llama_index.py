"""LlamaIndex's messages, chat store and memory over palaver's."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import pickle
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    AudioBlock,
    CacheControl,
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.schema import ImageDocument
from msgspec.structs import replace

import palaver
from compat.llama_agent import (
    ScriptedLLM,
    agent,
    answer,
    call,
    keep_talking,
    result,
    run,
    write_turns,
)
from palaver.adapters.llama_index import (
    PalaverChatStore,
    PalaverMemory,
    PalaverMemoryBlock,
    from_llama_index,
    repair_messages,
    to_llama_index,
)
from palaver.adapters.llama_index.convert import METADATA_KEY
from palaver.errors import UnknownConversation, ValidationError
from palaver.messages import (
    Message,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    assistant,
    complete,
    dump,
    fail,
    file_part,
    parse_message,
    pending,
    start,
    text_part,
    tool_part,
    user,
)
from palaver.messages.ids import NIL_ID
from palaver.wire.pairing import INTERRUPTED
from palaver.wire.request import BEGIN
from tests.profiles import steps

if TYPE_CHECKING:
    from palaver.stores import Store

NURSERY = multiprocessing.get_context("forkserver")
NURSERY.set_forkserver_preload(["compat.llama_agent"])
IDS = (NIL_ID, NIL_ID)
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


def there_and_back(message: ChatMessage) -> ChatMessage:
    """Through the bytes of a store."""
    (back,) = to_llama_index(parse_message(dump(from_llama_index(message))))
    return back


def texts(messages: list[ChatMessage] | None) -> list[str | None]:
    return [message.content for message in messages or ()]


# ── every message comes back as it was ──────────────────────────────────────────────────────────

TEXTS = st.text(max_size=20) | st.sampled_from(["", "a\0b", "\ud800", "x" * 2_000, "\U0001f375"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
DATA = st.binary(min_size=1, max_size=8)
BLOCKS = st.one_of(
    st.builds(TextBlock, text=TEXTS),
    st.builds(
        ThinkingBlock, content=st.none() | TEXTS, num_tokens=st.none() | st.integers(0, 9),
        additional_information=OBJECTS,
    ),
    st.builds(
        ToolCallBlock, tool_call_id=st.none() | TEXTS, tool_name=TEXTS,
        tool_kwargs=OBJECTS | TEXTS,
    ),
    st.builds(ImageBlock, image=DATA, detail=st.none() | TEXTS),
    st.sampled_from(["https://x.org", "https://x.org/a.png"]).map(lambda url: ImageBlock(url=url)),
    st.just(ImageBlock(path=Path(__file__))),
    st.builds(AudioBlock, audio=DATA, format=st.none() | st.just("mp3")),
    st.builds(VideoBlock, video=DATA, fps=st.none() | st.just(2)),
    st.builds(DocumentBlock, data=DATA, title=st.none() | TEXTS),
    st.just(DocumentBlock(url="https://x.org/a.pdf")),
    st.just(CachePoint(cache_control=CacheControl(type="ephemeral"))),
    st.builds(
        lambda text: CitableBlock(title="t", source="s", content=[TextBlock(text=text)]), TEXTS
    ),
    st.just(
        CitationBlock(
            cited_content=TextBlock(text="c"), source="s", title="t",
            additional_location_info={"page": 1},
        )
    ),
)  # fmt: skip
OLDER_CALLS = st.just(
    {"tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}]}
)
MESSAGES = st.builds(
    ChatMessage,
    st.none() | TEXTS | st.lists(BLOCKS, max_size=3),
    role=st.sampled_from(MessageRole),
    additional_kwargs=OBJECTS
    | OLDER_CALLS
    | st.fixed_dictionaries({"tool_call_id": TEXTS}, optional={"name": TEXTS}),
)


@given(MESSAGES)
def test_every_message_comes_back_as_it_was_put(message: ChatMessage) -> None:
    back = there_and_back(message)
    assert message == back
    assert repr(message) == repr(back)  # 1 is not True


def test_what_palaver_has_a_field_for_needs_no_metadata() -> None:
    plain = [
        ChatMessage("Tea?"),
        call("Rome"),
        result("sunny"),
        ChatMessage([TextBlock(text="See:"), ImageBlock(image=PNG)]),
    ]
    made = [from_llama_index(message) for message in plain]
    assert [{}] * len(plain) == [message.metadata for message in made]
    kinds = [[part.type for part in message.parts] for message in made[1:]]
    assert [["text", "tool-call"], ["tool"], ["text", "file"]] == kinds


def test_an_edit_is_what_llama_index_gets() -> None:
    """What says more than the content stays, what repeats the content goes."""
    given = {"tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}], "n": 1}
    message = from_llama_index(ChatMessage("\0", role="chatbot", additional_kwargs=given))
    assert ["text", "tool-call"] == [part.type for part in message.parts]
    (edited,) = to_llama_index(replace(message, content="No."))
    assert ("No.", MessageRole.CHATBOT, {"n": 1}) == (
        edited.content, edited.role, edited.additional_kwargs
    )  # fmt: skip
    (cut,) = to_llama_index(replace(message, content=message.parts[1:]))
    assert [ToolCallBlock(tool_call_id="c1", tool_name="f", tool_kwargs={})] == cut.blocks


@pytest.mark.parametrize(
    "stored",
    [
        "", "{", "[]", "{}", '{"of": 1, "about": 5}', '{"of": 1, "about": [[["role"], "robot"]]}',
        '{"of": 1, "about": [[["additional_kwargs"], 5]], "blocks": []}', 5,
    ],
)  # fmt: skip
def test_metadata_that_is_not_ours_is_ignored(stored: object) -> None:
    (made,) = to_llama_index(user("Tea?", metadata={METADATA_KEY: stored}))
    assert ChatMessage("Tea?") == made


def test_what_cannot_be_stored_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"no JSON"):
        from_llama_index(ChatMessage("Tea?", additional_kwargs={"x": object()}))
    with pytest.raises(ValidationError, match=r"must be a ChatMessage of LlamaIndex's, not str"):
        PalaverChatStore(palaver.open(":memory:")).add_message("a", "Tea?")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_objects_come_back_as_in_their_own_stores() -> None:
    image = ImageDocument(image="aGk=")
    message = ChatMessage("See:", additional_kwargs={"images": [image], "raw": b"hi"})
    back = there_and_back(message)
    assert message.blocks == back.blocks
    assert "aGk=" == back.additional_kwargs["raw"]
    assert isinstance(back.additional_kwargs["images"][0], dict)


def test_a_file_that_is_gone_does_not_hide_the_others(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(PNG)
    message = from_llama_index(ChatMessage([TextBlock(text="See:"), ImageBlock(path=picture)]))
    picture.unlink()
    (back,) = to_llama_index(message)
    assert "See:\n[could not be read: " == (back.content or "")[:25]
    assert str(picture) in (back.content or "")


def test_messages_of_palavers_own() -> None:
    """Several results are a message each; what is for people, or erased, is not shown."""
    done = complete(start(pending({}, "")), "4", tool="add")
    lost = fail(start(pending({}, "")), "no", at=None)
    results = (tool_part(*IDS, "c1", "add", done), tool_part(*IDS, "c2", "add", lost))
    assert [result("4", "c1"), result("no", "c2")] == to_llama_index(Message("tool", results))
    file = file_part(*IDS, "text/plain", "https://x.org/a.txt")
    odd = UnknownPart({"type": "odd"})
    (made,) = to_llama_index(Message("user", (file, odd)))
    assert ["document"] == [block.block_type for block in made.blocks]
    (note,) = to_llama_index(Message("user", (text_part(*IDS, "a", ignored=True), file)))
    assert ["document"] == [block.block_type for block in note.blocks]


# ── the chat store ──────────────────────────────────────────────────────────────────────────────

HI, HO, HA = ChatMessage("hi"), answer("ho"), ChatMessage("ha")


def test_a_chat_store(store: Store) -> None:
    chats = PalaverChatStore(store)
    assert [] == chats.get_messages("a")
    assert None is chats.delete_messages("a")
    assert None is chats.delete_message("a", 0)
    assert None is chats.delete_last_message("a")
    for key in ("a", "b"):
        chats.set_messages(key, [HI, HO])
        chats.add_message(key, HA)
    assert ["a", "b"] == chats.get_keys()
    assert [HI, HO, HA] == chats.get_messages("a")
    assert HO == chats.delete_message("a", 1)
    assert None is chats.delete_message("a", 2)
    assert HA == chats.delete_last_message("a")
    chats.add_message("a", HO, idx=0)
    chats.add_message("a", HA, idx=-1)
    chats.add_message("a", HA, idx=9)
    assert [HO, HA, HI, HA] == chats.get_messages("a")
    assert [HO, HA, HI, HA] == chats.delete_messages("a")
    assert [] == chats.delete_messages("a")
    assert None is chats.delete_last_message("a")
    assert ["b"] == chats.get_keys()
    chats.history("a").undo()
    chats.history("a").undo()
    assert [HO, HA, HI, HA][:3] == chats.get_messages("a")[:3]
    assert [] == list(store.verify())


def test_an_asynchronous_chat_store(store: Store) -> None:
    async def go() -> None:
        chats = PalaverChatStore(store)
        await chats.aset_messages("a", [HI])
        await asyncio.gather(*(chats.async_add_message("a", HO) for _ in range(9)))
        assert [HI, *[HO] * 9] == await chats.aget_messages("a")
        assert HI == await chats.adelete_message("a", 0)
        assert HO == await chats.adelete_last_message("a")
        assert ["a"] == await chats.aget_keys()
        assert [HO] * 8 == await chats.adelete_messages("a")

    asyncio.run(go())


def test_setting_what_there_is_and_more_is_an_append(here: Store) -> None:
    chats = PalaverChatStore(here)
    chats.set_messages("a", [HI, HO])
    talk = chats.history("a")
    names, version = [message.id for message in talk.view], talk.version
    chats.set_messages("a", [HI, HO])
    assert version == talk.refresh().version
    chats.set_messages("a", [HI, HO, HA])
    assert names == [message.id for message in talk.refresh().view][:2]
    chats.set_messages("a", [HI, HA])
    assert names[:1] == [message.id for message in talk.refresh().view][:1]
    assert [HI, HA] == chats.get_messages("a")


def test_edits_forks_and_rollbacks_are_what_is_seen_next(store: Store) -> None:
    chats = PalaverChatStore(store)
    chats.set_messages("a", [HI, HO, HA])
    elsewhere = store.get("a")
    elsewhere.replace(1, assistant("no"))
    assert ["hi", "no", "ha"] == texts(chats.get_messages("a"))
    elsewhere.undo()
    fork = elsewhere.fork(id="b")
    fork.truncate(keep_first=1)
    assert (3, 1) == (len(chats.get_messages("a")), len(chats.get_messages("b")))
    elsewhere.erase(0)
    assert [HO, HA] == chats.get_messages("a")
    assert HO == chats.delete_message("a", 0)
    store.delete("b")
    chats.add_message("b", HA)
    store.delete("b")
    store.create([user("new")], id="b")
    assert ["new"] == texts(chats.get_messages("b"))


def test_one_of_several_results_can_be_deleted(here: Store) -> None:
    done = complete(start(pending({}, "")), "4", tool="add")
    parts = tuple(tool_part(*IDS, name, "add", done) for name in ("c1", "c2"))
    here.create([user("Add!"), Message("tool", parts)], id="a")
    chats = PalaverChatStore(here)
    assert result("4", "c1") == chats.delete_message("a", 1)
    assert [ChatMessage("Add!"), result("4", "c2")] == chats.get_messages("a")
    assert result("4", "c2") == chats.delete_last_message("a")
    assert ["Add!"] == texts(chats.get_messages("a"))


def test_another_writer_between_reading_and_writing(
    here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = PalaverChatStore(here)
    chats.set_messages("a", [HI, HO])
    other, real = here.get("a"), palaver.stores.StoredHistory.rewrite

    def late(self: Any, *given: Any, **more: Any) -> Any:
        monkeypatch.undo()
        other.append(user("between"))
        return real(self, *given, **more)

    monkeypatch.setattr(palaver.stores.StoredHistory, "rewrite", late)
    assert "between" == (chats.delete_last_message("a") or HI).content
    monkeypatch.setattr(palaver.stores.StoredHistory, "rewrite", late)
    chats.set_messages("a", [HA])
    assert [HA] == chats.get_messages("a")


def test_many_conversations_are_not_all_kept_open(
    here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.adapters.llama_index.chat_store._MAX_OPEN", 2)
    chats = PalaverChatStore(here)
    for key in "abca":
        chats.add_message(key, HI)
    assert [1, 1, 2] == sorted(len(chats.get_messages(key)) for key in "abc")


def test_a_store_is_asked_for() -> None:
    with pytest.raises(ValidationError, match=r"palaver\.open\('chat\.db'\)"):
        PalaverChatStore()
    with pytest.raises(ValidationError, match=r"write palaver\.open\('chat\.db'\)"):
        PalaverChatStore("chat.db")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValidationError, match=r"token_limit: must be a whole number from 1 on"):
        PalaverMemory(palaver.open(":memory:"), token_limit=0)


# ── the memory ──────────────────────────────────────────────────────────────────────────────────


def both(store: Store, messages: list[ChatMessage], limit: int) -> tuple[Any, Any]:
    """A memory of theirs and one of palaver's, with the same messages."""
    ours = PalaverMemory(store, "talk", token_limit=limit, tokenizer_fn=str.split)
    ours.set(messages)
    theirs = ChatMemoryBuffer.from_defaults(
        chat_history=messages, token_limit=limit, tokenizer_fn=str.split
    )
    return ours, theirs


@given(
    st.lists(
        st.builds(
            lambda role, words: ChatMessage(" ".join("w" * words), role=role),
            st.sampled_from(["user", "assistant", "system"]),
            st.integers(1, 4),
        ),
        max_size=8,
    ),
    st.integers(1, 20),
    st.integers(0, 5),
)
def test_it_answers_as_chat_memory_buffer_does(
    messages: list[ChatMessage], limit: int, before: int
) -> None:
    with palaver.open(":memory:") as store:
        ours, theirs = both(store, messages, limit)
        if before > limit:
            with pytest.raises(ValueError, match="Initial token count exceeds token limit"):
                ours.get(initial_token_count=before)
        else:
            expected = theirs.get(initial_token_count=before)
            found = ours.get(initial_token_count=before)
            if found[:1] == [ChatMessage(BEGIN)]:  # providers refuse an answer that comes first
                del found[0]
            assert expected == found


def test_a_read_counts_only_what_fits_and_only_once(store: Store) -> None:
    counted: list[str] = []

    def count(text: str) -> list[str]:
        counted.append(text)
        return text.split()

    memory = PalaverMemory(store, "talk", token_limit=6, tokenizer_fn=count)
    memory.put_messages([ChatMessage(f"question {number}") for number in range(1_000)])
    expected = [f"question {number}" for number in (997, 998, 999)]
    assert expected == texts(memory.get())
    assert ["question 999", "question 998", "question 997", "question 996"] == counted
    counted.clear()
    assert expected == texts(memory.get())
    memory.put(HI)
    assert "hi" == texts(memory.get())[-1]
    assert ["hi"] == counted
    counted.clear()
    memory.history.erase(999)
    assert ["question 998", "hi"] == texts(memory.get())[-2:]
    assert counted


def test_a_limited_read_is_not_quadratic(here: Store) -> None:
    """Theirs counts everything again for each message that it drops: a minute for 10,000."""
    size: dict[str, int] = {"ours": 0, "theirs": 0}

    def counting(who: str) -> Any:
        def count(text: str) -> list[str]:
            size[who] += len(text)
            return text.split()

        return count

    messages = [ChatMessage(f"question {number:03}") for number in range(400)]
    theirs = ChatMemoryBuffer.from_defaults(
        messages, token_limit=20, tokenizer_fn=counting("theirs")
    )
    ours = PalaverMemory(here, "talk", token_limit=20, tokenizer_fn=counting("ours"))
    ours.set(messages)
    assert theirs.get() == ours.get() == messages[-10:]
    assert size["theirs"] > 300 * sum(len(message.content or "") for message in messages) / 2
    assert size["ours"] == 11 * len("question 000")


def tool_of(message: Message) -> str:
    part = message.parts[0]
    assert isinstance(part, ToolPart)
    return part.tool


def test_a_call_is_shown_with_its_result_and_counted(here: Store) -> None:
    memory = PalaverMemory(here, "talk", token_limit=36, tokenizer_fn=str.split)
    asked = [ChatMessage("Weather?"), call("Rome"), result(" ".join("sunny" * 6))]
    memory.put_messages(asked)
    assert asked == memory.get()
    assert "weather" == tool_of(memory.history[2])
    memory.token_limit = 35
    assert asked[1:] == memory.get()  # the last message, and what it is a result of
    memory.history.truncate(range=(1, 2))
    begin = ChatMessage(BEGIN)
    assert [begin, call("Rome"), result(INTERRUPTED)] == memory.get()
    memory.resuming = True
    assert [begin, call("Rome")] == memory.get()
    memory.put(result("sunny"))
    assert "weather" == tool_of(memory.history[1])


def test_calls_where_older_integrations_keep_them_are_paired() -> None:
    given = {"tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]}
    older = ChatMessage("", role="assistant", additional_kwargs=given)
    assert [older, result("4")] == repair_messages([older, result("4")])
    assert [older, result(INTERRUPTED), HI] == repair_messages([older, HI])
    assert [HI] == repair_messages([result("4", "c9"), HI])
    named = ChatMessage("4", role="function", additional_kwargs={"name": "f"})
    assert [named] == repair_messages([named])


def test_calls_of_one_id_or_of_none_keep_their_results(here: Store) -> None:
    """As integrations write them whose models give no ids: the tool's name, or nothing."""
    memory = PalaverMemory(here, "talk")
    done = ChatMessage("Fine.", role="assistant")
    asked: list[ChatMessage] = []
    for name in ("weather", None, ""):
        blocks: list[ContentBlock] = [
            ToolCallBlock(tool_call_id=name, tool_name="weather", tool_kwargs={"city": city})
            for city in ("Rome", "Oslo")
        ]
        asked = [ChatMessage("Weather?"), ChatMessage(blocks, role="assistant")]
        answered = [result(text, name or "weather") for text in ("sunny", "rain")]
        memory.put_messages(turn := [*asked, *answered, done])
        assert turn == memory.get()
        calls = (part for part in memory.history[1].parts if isinstance(part, ToolCallPart))
        assert ["weather", "weather"] == [part.call_id for part in calls]
        interrupted = [result(INTERRUPTED, name)] if name else []
        assert [*asked, answered[0], *interrupted] == repair_messages([*asked, answered[0]])
        memory.reset()
    nameless = [*asked, result("sunny", ""), result("rain", ""), done]
    assert nameless == repair_messages(nameless)


def test_answers_follow_the_questions_of_their_own_run(store: Store) -> None:
    """Two runs at the same time: no turn stands in the middle of another."""
    one, other = PalaverMemory(store, "talk"), PalaverMemory(store, "talk")
    one.put(ChatMessage("one?"))
    other.put(ChatMessage("other?"))
    other.put_messages([call("Oslo"), result("rain")])
    one.put_messages([call("Rome"), result("sun")])
    other.put(answer("other!"))
    one.put(answer("one!"))
    one.put_messages([])
    assert [
        "one?", "Let me see.", "sun", "one!", "other?", "Let me see.", "rain", "other!",
    ] == texts(one.get_all())  # fmt: skip
    one.reset()
    one.put(answer("late"))
    assert ["late"] == texts(other.get_all())


@pytest.mark.parametrize("begun_anew", [[], ["Tea?"]])
def test_what_was_deleted_during_a_run_stays_deleted(store: Store, begun_anew: list[str]) -> None:
    memory = PalaverMemory(store, "talk")
    memory.put(ChatMessage("And my address?"))
    store.delete("talk")
    time.sleep(0.002)  # a conversation is known by the millisecond in which it was created
    for question in begun_anew:
        PalaverMemory(store, "talk").put(ChatMessage(question))
    with pytest.raises(UnknownConversation):
        memory.put_messages([call("Rome"), result("Sunny."), answer("Via Appia.")])
    assert begun_anew == texts(memory.get_all())
    memory.put(ChatMessage("Well?"))  # a question may begin a conversation
    memory.put(answer("Well."))
    assert ["Well?", "Well."] == texts(memory.get_all())[-2:]


def test_what_is_put_meanwhile_by_another_process_moves_an_answer(
    here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = PalaverMemory(here, "talk")
    memory.put(HI)
    other, real = here.get("talk"), palaver.stores.StoredHistory.extend

    def late(self: Any, *given: Any, **more: Any) -> Any:
        monkeypatch.undo()
        other.append(user("between"))
        return real(self, *given, **more)

    monkeypatch.setattr(palaver.stores.StoredHistory, "extend", late)
    memory.put(HO)
    assert ["hi", "ho", "between"] == texts(memory.get_all())


def test_a_memory_in_a_file_can_be_dumped_and_pickled(tmp_path: Path) -> None:
    memory = PalaverMemory(PalaverChatStore(path=str(tmp_path / "chat.db")), "talk", token_limit=5)
    memory.put(HI)
    for again in (
        PalaverMemory.from_dict(memory.to_dict()),
        PalaverMemory.from_json(memory.to_json()),
        pickle.loads(pickle.dumps(memory)),  # noqa: S301 - made right here
    ):
        assert ([HI], 5, "talk") == (again.get(), again.token_limit, again.chat_store_key)
    somewhere = PalaverMemory(palaver.open(":memory:"), "talk")
    with pytest.raises(ValueError, match=r"only if it was made with path='chat\.db'"):
        PalaverMemory.from_dict(somewhere.to_dict())


def test_a_memory_with_defaults(here: Store) -> None:
    window = ScriptedLLM().metadata.context_window
    assert int(window * 0.75) == PalaverMemory.from_defaults(llm=ScriptedLLM()).token_limit
    memory = PalaverMemory.from_defaults([HI], chat_store=here, chat_store_key="a")
    assert ([HI], 3_000) == (PalaverChatStore(here).get_messages("a"), memory.token_limit)
    assert [] == PalaverMemory(PalaverChatStore(here), "b").get()


def test_a_block_of_their_memory_gives_the_newest_of_what_was_flushed(here: Store) -> None:
    async def go() -> None:
        older = PalaverMemory(here, "talk", token_limit=4, tokenizer_fn=str.split)
        memory = Memory.from_defaults(
            "talk", token_limit=20, token_flush_size=1, tokenizer_fn=str.split,
            memory_blocks=[PalaverMemoryBlock(memory=older)],
        )  # fmt: skip
        for number in range(12):
            await memory.aput(ChatMessage(f"question {number}"))
            await memory.aput(answer(f"answer {number}"))
        shown = await memory.aget()
        flushed = await older.aget_all()
        assert all("session_id" not in message.additional_kwargs for message in flushed)
        queue = await memory.aget_all()
        assert texts([*flushed[-2:], *queue[-6:]]) == texts(shown)

    asyncio.run(go())


def test_a_block_is_cut_from_its_oldest_message() -> None:
    memory = PalaverMemory(palaver.open(":memory:"), tokenizer_fn=str.split)
    block = PalaverMemoryBlock(memory=memory)
    assert [HA] == asyncio.run(block.atruncate([HI, HO, HA], 1))
    assert None is asyncio.run(block.atruncate([HI, HO], 1))


# ── agents and chat engines ─────────────────────────────────────────────────────────────────────

TURN = ["user", "assistant", "tool", "assistant"]


def roles(messages: list[ChatMessage]) -> list[str]:
    return [message.role.value for message in messages]


def test_an_agent_with_tools_sees_edits_rollbacks_and_forks(store: Store) -> None:
    memory = PalaverMemory(store, "talk")
    talk = memory.history
    assert "Sunny." == run(agent(ScriptedLLM(call("Rome"), answer("Sunny."))), "Rome?", memory)
    assert TURN == [message.role for message in talk.refresh().view]
    assert {"talk"} == {hit.conversation for hit in store.search("degrees")}

    whole = talk.version
    talk.replace(3, assistant("Rain in Rome."))
    talk.rewrite([range(1), range(2, 4)])  # a result without its call
    llm = ScriptedLLM(answer("Yes."))
    run(agent(llm), "Really?", memory)
    assert ["Rome?", "Rain in Rome.", "Really?"] == texts(llm.requests[0])

    fork = store.get("talk").fork(id="other")
    talk.refresh().restore(whole)
    llm = ScriptedLLM(answer("Sure."))
    run(agent(llm), "Really?", memory)
    assert [*TURN, "user"] == roles(llm.requests[0])
    llm = ScriptedLLM(answer("So?"))
    run(agent(llm), "And there?", PalaverMemory(store, fork.id))
    assert ["Rome?", "Rain in Rome.", "Really?", "Yes.", "And there?"] == texts(llm.requests[0])


def test_a_message_removed_in_mid_run_is_gone_in_the_next_request(store: Store) -> None:
    memory = PalaverMemory(store, "talk")
    memory.put_messages([ChatMessage("A secret."), answer("Noted.")])

    def meanwhile() -> None:
        talk = store.get("talk")
        talk.erase(0)
        talk.truncate(remove_first=2)

    llm = ScriptedLLM(call("Rome"), answer("Sunny."))
    run(agent(llm, meanwhile), "Rome?", memory)
    assert ["A secret.", "Noted.", "Rome?"] == texts(llm.requests[0])
    assert [["user", "assistant", "tool"], TURN] == [
        roles(llm.requests[1]), roles(memory.get_all())
    ]  # fmt: skip


def test_a_chat_engine_goes_on_after_an_undo(store: Store) -> None:
    memory = PalaverMemory(store, "talk")
    llm = ScriptedLLM(answer("Darjeeling."), answer("Assam."), answer("Why not."))
    engine = SimpleChatEngine.from_defaults(llm=llm, memory=memory)
    assert "Darjeeling." == str(engine.chat("Which tea?"))
    memory.history.undo()
    assert "Assam." == str(asyncio.run(engine.achat("Another one?")))
    assert ["Which tea?", "Another one?"] == texts(llm.requests[1])
    engine.reset()
    assert [] == engine.chat_history
    assert "Why not." == str(engine.chat("None?"))
    assert ["None?"] == texts(llm.requests[2])


def test_killed_at_any_moment_nothing_is_lost_and_nothing_twice(tmp_path: Path) -> None:
    address, told, asked = str(tmp_path / "chat.db"), set[str](), 0
    moments = steps(5, in_faults=50)
    for moment in range(moments):
        ours, theirs = NURSERY.Pipe()
        first = asked
        child = NURSERY.Process(target=keep_talking, args=(address, first, theirs))
        child.start()
        assert ours.poll(120)
        assert "ready" == ours.recv()
        for _ in range(moment % 3):
            told.add(ours.recv())
        ours.poll(moment * 0.037 % 0.05)  # somewhere in a turn
        child.kill()
        child.join(60)
        while ours.poll():
            told.add(ours.recv())
        with palaver.open(address) as store:
            asked = _check_turns(PalaverMemory(store, "talk"), told)
    with palaver.open(address) as store:
        llm = ScriptedLLM(answer("Still here."))
        memory = PalaverMemory(store, "talk", token_limit=10**9)
        assert "Still here." == run(agent(llm), "And now?", memory)
        assert [] == list(store.verify())


def _check_turns(memory: PalaverMemory, told: set[str]) -> int:
    """Every turn is whole, or a question that waits; every one that was told is there, once."""
    seen: list[str] = []
    whole: set[str] = set()
    left = memory.get_all()
    while left:
        name = (left[0].content or "").removeprefix("question ")
        size = 1 if len(left) == 1 or left[1].role == "user" else 4
        assert TURN[:size] == roles(left[:size])
        if size > 1:
            assert f"answer {name}" == left[3].content
            whole.add(name)
        seen.append(name)
        left = left[size:]
    assert sorted(set(seen), key=int) == seen
    assert told <= whole
    return int(seen[-1]) + 1 if seen else 0


def test_two_writers_on_one_key_never_interleave_a_turn(address: str) -> None:
    count = 12
    with palaver.open(address) as store:
        PalaverMemory(store, "talk").set([])
        children = [
            NURSERY.Process(target=write_turns, args=(address, who, count)) for who in ("a", "b")
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(120)
            assert 0 == child.exitcode
        left = PalaverMemory(store, "talk").get_all()
        seen: list[str] = []
        for at in range(0, len(left), len(TURN)):
            turn = left[at : at + len(TURN)]
            assert TURN == roles(turn)
            name = (turn[0].content or "").removesuffix(" question")
            assert f"{name} answer" == turn[3].content
            seen.append(name)
        for who in ("a", "b"):
            mine = [name for name in seen if name.startswith(who)]
            assert [f"{who}-{number}" for number in range(count)] == mine
        assert [] == list(store.verify())


def test_what_is_stored_is_plain_json(here: Store) -> None:
    chats = PalaverChatStore(here)
    chats.add_message("a", ChatMessage("Tea?", additional_kwargs={"n": [1]}))
    stored = here.get("a")[0].metadata[METADATA_KEY]
    assert [[["additional_kwargs", "n"], [1]]] == json.loads(stored)["about"]
