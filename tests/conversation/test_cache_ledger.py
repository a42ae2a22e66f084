"""The ledger of the prompt cache: what was expected, what was read, and why it was less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import wire
from palaver.conversation import Conversation, DropOldest, compact, prompt_cache
from palaver.conversation.feed import follow_events
from palaver.conversation.prompt_cache import (
    CACHE,
    BlockHashes,
    CacheUse,
    Expectation,
    Life,
    PromptPrefix,
    cache_use_of,
    expect,
    life_of,
    read_prefixes,
    reports_cache,
    tokens_kept,
    tools_digest,
)
from palaver.messages import CacheCounts, Message, ModelRef, TokenCounts, assistant, user
from palaver.stores import open_store
from palaver.tools import tool
from palaver.wire import ToolSpec
from tests.conversation.scripted import Scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stores import Store

MODEL = ModelRef("openai", "scripted")
LONG = "a stone, a leaf, an unfound door " * 400


def cached(text: str, prompt: int, read: int | None) -> list[Any]:
    """An answer whose provider says how much of the prompt it read from its cache."""
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": 5}
    if read is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": read}
    return [
        {"choices": [{"delta": {"content": text}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage},
    ]


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with open_store(":memory:") as opened:
        yield opened


async def ask(talk: Conversation, text: str = "Go on.", **more: Any) -> CacheUse:  # noqa: ANN401 - as step has them
    """Add a question, take a step, and give what it says of the cache."""
    talk.add(user(text))
    step = await talk.step(**more)
    assert step.cache is not None
    return step.cache


@tool
def clock() -> str:
    """The time of day."""
    return "noon"


@pytest.mark.anyio
async def test_a_conversation_that_only_grows_breaks_nothing(store: Store) -> None:
    """The first request expects nothing; the next what the first left in the cache."""
    model = Scripted(cached("one", 4_100, 0), cached("two", 4_300, 4_096))
    talk = Conversation(store, model=model)
    first, second = await ask(talk, LONG), await ask(talk)
    assert (0, 0, None) == (first.expected, first.read, first.cause)
    assert (4_096, 4_096, 4_096, None, 0) == (
        second.expected, second.shared, second.read, second.cause, second.lost,
    )  # fmt: skip


@pytest.mark.anyio
async def test_it_is_stored_with_the_answer_and_published(store: Store) -> None:
    """The event has the same data as the message, here and for those who follow the store."""
    talk = Conversation(store, model=Scripted(cached("one", 4_100, 0)))
    seen: list[Any] = []
    talk.events.on("cache.updated", lambda event: seen.append(event.data))
    use = await ask(talk, LONG)
    message = talk.messages[-1]
    assert use == cache_use_of(store.get(talk.id)[-1])
    assert [{"message": message.id, **msgspec.to_builtins(use)}] == seen
    followed = list(follow_events(store, talk.id, after=-1, seconds=0))
    assert seen == [e.data for e in followed if e.name == "cache.updated"]


@pytest.mark.anyio
async def test_each_cause_has_its_name(store: Store) -> None:
    """Edit, compaction, tools, options and model: each loses the cache, and says so."""
    other = Scripted(cached("x", 5_000, 0), name="other")
    model = Scripted(*(cached(f"answer {n}", 8_000, 0) for n in range(6)))
    talk = Conversation(store, model=model)
    await ask(talk, LONG)
    talk.history.replace(0, user(LONG + "!"))
    edited = await ask(talk)
    assert ("edit", 7_936, True) == (edited.cause, edited.expected, edited.shared < 1_000)
    assert edited.expected - (edited.read or 0) == edited.lost
    await compact(talk, DropOldest(keep_tokens=5))
    assert "compaction" == (await ask(talk, LONG)).cause
    assert "tools-changed" == (await ask(talk, tools=[clock])).cause
    changed = await ask(talk, tools=[clock], options={"tool_choice": "none"})
    assert "options-changed" == changed.cause
    same = {"temperature": 0.5, "tool_choice": "none"}
    assert "unknown" == (await ask(talk, tools=[clock], options=same)).cause
    assert "model-changed" == (await ask(talk, model=other)).cause


@pytest.mark.anyio
async def test_a_cache_that_nobody_used_for_an_hour_has_expired(store: Store) -> None:
    """The time of the last request decides, whatever else was changed meanwhile."""
    model = Scripted(*(cached("answer", 8_000, 0) for _ in range(3)))
    talk = Conversation(store, model=model)
    await ask(talk, LONG)
    _age(store, talk, 400)
    assert "expiry" == (await ask(talk)).cause
    _age(store, talk, 4_000)
    talk.history.replace(0, user("another"))
    late = await ask(talk)
    assert ("expiry", True) == (late.cause, (late.idle or 0) >= 4_000)


def _age(store: Store, talk: Conversation, seconds: int) -> None:
    """Make the last request so many seconds older."""
    for prefix in read_prefixes(store.records(talk.id, CACHE)):
        older = msgspec.structs.replace(prefix, at=prefix.at - seconds * 1_000)
        store.put_records(talk.id, [older.record()])


@pytest.mark.anyio
async def test_a_fork_expects_what_its_parent_left(store: Store) -> None:
    """Where it reads less, the cause is the fork; if its parent is gone, nothing is expected."""
    model = Scripted(*(cached("answer", 8_000, 0) for _ in range(4)))
    talk = Conversation(store, model=model)
    await ask(talk, LONG)
    first = Conversation(store, talk.history.fork(), model=model)
    use = await ask(first)
    assert ("fork", 7_936, 7_936) == (use.cause, use.expected, use.shared)
    early = Conversation(store, talk.history.fork(at=0), model=model)
    parted = await ask(early, "Something else.")
    assert ("fork", True) == (parted.cause, parted.shared < 100)


@pytest.mark.anyio
async def test_a_provider_that_says_nothing_is_not_judged(store: Store) -> None:
    """Without figures there is no entry, no event and no record."""
    talk = Conversation(store, model=Scripted(cached("one", 4_100, None)))
    talk.add(user(LONG))
    assert (await talk.step()).cache is None
    assert {} == store.records(talk.id, CACHE)


@pytest.mark.anyio
async def test_no_failure_keeps_an_answer_from_being_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither before the request nor after the answer; it is logged."""
    model = Scripted(*(cached(f"answer {n}", 8_000, 0) for n in range(3)))
    talk = Conversation(store, model=model)
    await ask(talk, LONG)
    (name,) = store.records(talk.id, CACHE)
    store.put_records(talk.id, [(CACHE, name, b"{not json")])
    use = await ask(talk)
    assert (0, None) == (use.expected, use.cause)
    assert "can't be read" in caplog.text

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(prompt_cache, "tokens_kept", fail)
    talk.add(user("again"))
    step = await talk.step()
    assert ("answer 2", None) == (step.text, step.cache)
    assert "could not be compared" in caplog.text
    monkeypatch.setattr(prompt_cache, "expect", fail)
    model._answers.append(cached("answer 3", 8_000, 0))
    assert "answer 3" == (await talk.step()).text
    assert "is unknown" in caplog.text


@pytest.mark.anyio
async def test_no_text_is_in_the_record(store: Store) -> None:
    """What is stored of a request are hashes and numbers, and few of them."""
    model = Scripted(*(cached("a secret answer", 8_000, 0) for _ in range(40)))
    talk = Conversation(store, model=model)
    for _ in range(40):
        await ask(talk, "a secret question " * 30)
    (value,) = store.records(talk.id, CACHE).values()
    assert b"secret" not in value
    assert 3_000 > len(value)


def test_the_order_of_tools_is_no_change() -> None:
    """They go out by their names."""
    one, other = ToolSpec("clock", "The time."), ToolSpec("calendar", "The day.")
    assert tools_digest([one, other]) == tools_digest([other, one]) != tools_digest([one])


@pytest.mark.anyio
async def test_only_the_last_models_are_remembered(store: Store) -> None:
    """A conversation with many models keeps the record of the newest few."""
    talk = Conversation(store)
    for number in range(6):
        await ask(talk, LONG, model=Scripted(cached("x", 5_000, 0), name=f"m{number}"))
    names = {prefix.model.model_id for prefix in read_prefixes(store.records(talk.id, CACHE))}
    assert {"m2", "m3", "m4", "m5"} == names


TEXTS = st.lists(st.text(max_size=8), min_size=1, max_size=40)


@given(texts=TEXTS, more=TEXTS, form=st.sampled_from(sorted(wire.FORMATS)))
def test_more_messages_never_change_the_hashes_of_those_before(
    texts: list[str], more: list[str], form: str
) -> None:
    """A chain that grew with its conversation is the chain of the whole, in every format."""
    messages = _talk([*texts, *more])
    growing, converter = BlockHashes(), wire.converter(form)
    converter.extend(messages[: len(texts)])
    growing.update(converter.request())
    before = PromptPrefix(MODEL, 0, 0, "", "", growing.marks(), 100, Life(1, 1))
    converter.extend(messages[len(texts) :])
    growing.update(converter.request())
    fresh = wire.converter(form)
    fresh.extend(messages)
    whole = BlockHashes().update(fresh.request())
    assert whole.marks() == growing.marks()
    if before.size != before.shared_size(growing):
        shared = _common(wire.to(form, messages[: len(texts)]), fresh.request())
        assert shared < len(wire.to(form, messages[: len(texts)]).items)


def _talk(texts: list[str]) -> list[Message]:
    return [user(text) if n % 2 == 0 else assistant(text) for n, text in enumerate(texts)]


def _common(one: wire.Request, other: wire.Request) -> int:
    pairs = zip(one.items, other.items, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), len(one.items))


def test_a_breakpoint_changes_no_hash() -> None:
    """Breakpoints move from request to request; what they stand at stays the same."""
    plain = [{"role": "user", "content": "hi"}]
    marked = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
        }
    ]
    blocks = prompt_cache._blocks
    assert list(blocks(plain)) == list(blocks(marked))


def test_a_chain_finds_about_where_a_request_differs() -> None:
    """The end is found exactly, the front at the next of fewer and fewer marks."""
    blocks = [f"block {n:04}".encode() for n in range(500)]
    last = PromptPrefix(
        MODEL, 0, 0, "", "", BlockHashes().extend(blocks).marks(), 5_000, Life(1, 1)
    )
    assert 100 > len(last.marks)
    assert 5_000 == last.size == last.shared_size(BlockHashes().extend([*blocks, b"more"]))
    near = BlockHashes().extend([*blocks[:498], b"other"])
    assert 4_980 == last.shared_size(near)
    far = last.shared_size(BlockHashes().extend([*blocks[:200], b"other"]))
    assert 1_400 < far <= 2_000
    assert 0 == last.shared_size(BlockHashes().extend([b"other"]))


def test_the_rules_of_the_providers() -> None:
    """Lives, minimums, and who says what."""
    tokens = TokenCounts(10, 1, 0, CacheCounts(5_000, 200))
    assert 5_200 == tokens_kept("anthropic", tokens)
    assert 0 == tokens_kept("openai-chat", TokenCounts(1_000, 1, 0, CacheCounts()))
    assert Life(300, 300) == life_of("anthropic", {})
    hour = life_of("anthropic", {"cache_creation": {"ephemeral_1h_input_tokens": 5}})
    nothing = {"cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0}}
    assert Life(3_600, 3_600) == hour == life_of("anthropic", nothing, last=hour)
    day = life_of("openai-responses", {}, {"prompt_cache_retention": "24h"})
    assert Life(3_600, 86_400) == day
    assert Life(300, 3_600) == life_of("openai-chat", {}, model="gpt-5.4")
    assert Life(1_800, 1_800) == life_of("openai-chat", {}, model="gpt-5.6-codex")
    assert life_of("another", {}) is None
    none = TokenCounts(9, 1, 0, CacheCounts())
    assert reports_cache("anthropic", none, {"cache_read_input_tokens": 0})
    assert reports_cache("gemini", none, {"promptTokenCount": 9})
    assert reports_cache("openai-chat", none, {"prompt_tokens_details": {"cached_tokens": 0}})
    assert not reports_cache("openai-responses", none, {"input_tokens_details": {}})
    assert reports_cache("openai-responses", tokens, {})


def test_a_small_difference_is_no_break() -> None:
    """Providers count in blocks: a loss must be of a thousand tokens, and of a twentieth."""
    life = Life(300, 300)
    assert Expectation(20_000, 20_000, None, 1, life).compare(19_000, 5).cause is None
    assert Expectation(100_000, 100_000, None, 1, life).compare(96_000, 5).cause is None
    assert "unknown" == Expectation(100_000, 100_000, None, 1, life).compare(90_000, 5).cause
    assert Expectation(100_000, 0, "edit", 1, life).compare(None, None).cause is None
    less = Expectation(90_000, 90_000, None, 1, life, prompt=95_000).compare(60_000, 5, 80_000)
    assert "edit" == less.cause  # the provider left something out
    assert "edit" == Expectation(90_000, 60_000, "edit", 500, life).compare(60_000, 5).cause
    assert "expiry" == Expectation(90_000, 60_000, "edit", 500, life).compare(10_000, 5).cause


def test_somebody_elses_key_is_left_alone() -> None:
    """Metadata of that name that is none of ours says nothing."""
    assert cache_use_of(assistant("x", metadata={"promptCache": "mine"})) is None
    assert cache_use_of(assistant("x")) is None


def test_nothing_is_expected_of_the_first_request() -> None:
    """Without a request before it, there is nothing to lose."""
    now = PromptPrefix(MODEL, 0, 0, "", "", (), 0, Life(0, 0))
    assert Expectation() == expect([], BlockHashes(), now, why=lambda: "edit")
