"""The judge of prompt caching: each provider's published rules, on requests written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from palaver.testing import CacheUsage, PromptCache, check_request

if TYPE_CHECKING:
    from palaver.testing.providers import FormatName

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
LONG = "a" * 8_000


def text(said: str, mark: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "text", "text": said, **(mark or {})}


def anthropic(*blocks: dict[str, Any], **fields: object) -> dict[str, Any]:
    messages = [{"role": "user", "content": list(blocks)}]
    return {"model": "claude-sonnet-4-5", "messages": messages, **fields}


def chat(*said: str, model: str = "gpt-5.1", **fields: object) -> dict[str, Any]:
    sides = ("user", "assistant")
    messages = [{"role": sides[n % 2], "content": each} for n, each in enumerate(said)]
    return {"model": model, "messages": messages, **fields}


# ── Anthropic ────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_cached_without_a_breakpoint() -> None:
    cache = PromptCache("anthropic")
    for at in (0, 1):
        found = cache.request(anthropic(text(LONG)), at=at)
        assert (0, 0) == (found.read, found.written)
        assert found.uncached == found.total > 2_000


def test_what_was_written_is_read_and_what_came_after_is_written() -> None:
    cache = PromptCache("anthropic")
    first = cache.request(anthropic(text(LONG, MARK)), at=0)
    second = cache.request(anthropic(text(LONG), text(LONG, MARK)), at=1)
    assert (0, 0) == (first.read, first.uncached)
    assert first.written == second.read
    assert first.written == second.written


def test_the_mark_itself_is_no_part_of_the_prefix() -> None:
    cache = PromptCache("anthropic")
    written = cache.request(anthropic(text(LONG, MARK), text("b")), at=0).written
    assert written == cache.request(anthropic(text(LONG), text("b", MARK)), at=1).read


def test_a_text_and_a_list_of_one_text_are_the_same_prefix() -> None:
    cache = PromptCache("anthropic")
    plain = {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": LONG}], **MARK}
    assert (
        cache.request(plain, at=0).written == cache.request(anthropic(text(LONG, MARK)), at=1).read
    )


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"model": "claude-sonnet-4-6"}, 0),
        ({"tools": [{"name": "b", "input_schema": {}, **MARK}]}, 0),
        ({"system": [text(LONG + "!", MARK)]}, 0),
        ({"tool_choice": {"type": "none"}}, 1),
        ({"thinking": {"type": "disabled"}}, 1),
        ({}, 2),
    ],
)
def test_a_change_breaks_its_level_and_those_after_it(change: dict[str, Any], kept: int) -> None:
    cache = PromptCache("anthropic")
    body = anthropic(text(LONG, MARK), system=[text(LONG, MARK)], tools=[{"name": "a"}])
    system = cache.request(body | {"messages": []}, at=0).written
    everything = system + cache.request(body, at=1).written
    assert (0, system, everything)[kept] == cache.request(body | change, at=2).read


def test_another_order_of_keys_is_another_prefix() -> None:
    cache = PromptCache("anthropic")
    tools = {"name": LONG, "description": "b", **MARK}
    other = {"description": "b", "name": LONG, **MARK}
    assert cache.request(anthropic(text("c"), tools=[tools]), at=0).written
    assert cache.request(anthropic(text("c"), tools=[other]), at=1).read == 0


def test_an_image_anywhere_breaks_the_messages() -> None:
    cache = PromptCache("anthropic")
    image = {"type": "image", "source": {"type": "base64", "data": "QUJD"}}
    cache.request(anthropic(text(LONG, MARK)), at=0)
    assert cache.request(anthropic(text(LONG, MARK), image), at=1).read == 0


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-opus-5", 512),
        ("claude-sonnet-4-5", 1_024),
        ("claude-opus-4-20250514", 1_024),
        ("claude-opus-4-7", 2_048),
        ("claude-3-5-haiku-latest", 2_048),
        ("claude-haiku-4-5", 4_096),
    ],
)
def test_what_is_shorter_than_the_model_asks_is_not_cached(model: str, minimum: int) -> None:
    cache = PromptCache("anthropic")
    frame = 4 + len('{"type":"text","text":""}')
    for missing, written in ((4, 0), (0, minimum)):
        body = anthropic(text("a" * (4 * minimum - frame - missing), MARK), model=model)
        found = cache.request(body, at=0)
        assert (0, written) == (found.read, found.written)


@pytest.mark.parametrize(("blocks", "found"), [(19, True), (20, False)])
def test_a_breakpoint_looks_back_over_20_blocks(blocks: int, *, found: bool) -> None:
    cache = PromptCache("anthropic")
    cache.request(anthropic(text(LONG, MARK)), at=0)
    more = [text(str(number)) for number in range(blocks - 1)]
    usage = cache.request(anthropic(text(LONG), *more, text("last", MARK)), at=1)
    assert found == (usage.read > 0)


def test_each_breakpoint_looks_back_for_itself() -> None:
    cache = PromptCache("anthropic")
    cache.request(anthropic(text(LONG, MARK)), at=0)
    more = [text(str(number)) for number in range(40)]
    more[15] = text("15", MARK)
    assert cache.request(anthropic(text(LONG), *more, text("last", MARK)), at=1).read > 0


def test_entries_live_as_long_as_asked_after_their_last_use() -> None:
    for mark, life in ((MARK, 300), (HOUR, 3_600)):
        cache, body = PromptCache("anthropic"), anthropic(text(LONG, mark))
        cache.request(body, at=0)
        assert cache.request(body, at=life - 1).read
        assert cache.request(body, at=2 * life - 2).read
        assert cache.request(body, at=3 * life).read == 0


def test_what_lives_for_an_hour_is_counted_apart() -> None:
    cache = PromptCache("anthropic")
    found = cache.request(anthropic(text(LONG, HOUR), text(LONG, MARK)), at=0)
    assert found.written == 2 * found.written_1h


def test_the_requests_own_mark_is_after_its_last_block() -> None:
    cache = PromptCache("anthropic")
    body = anthropic(text(LONG), text(LONG), **MARK)
    assert cache.request(body, at=0).uncached == 0
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    late = cache.request(anthropic(text(LONG), text(LONG), text("b"), thinking, **MARK), at=1)
    assert late.uncached > 0 < late.read


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (anthropic(*[text(str(n), MARK) for n in range(5)]), "at most 4"),
        (anthropic(*[text(str(n), MARK) for n in range(4)], text("b"), **MARK), "at most 4"),
        (anthropic(text("a", MARK), text("b", HOUR)), "after one for five minutes"),
        (anthropic(text("a", MARK), **HOUR), "two lives"),
        (anthropic(text("", MARK)), "an empty text"),
        (anthropic({"type": "thinking", "thinking": "a", **MARK}), "of type thinking"),
    ],
)
def test_breakpoints_that_anthropic_refuses_are_refused(body: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        PromptCache("anthropic").request(body, at=0)
    rules = [each.rule for each in check_request("anthropic", body)]
    assert "cache-breakpoints" in rules


def test_four_breakpoints_are_allowed() -> None:
    body = anthropic(*[text(str(n), MARK) for n in range(4)], **MARK)
    assert PromptCache("anthropic").request(body, at=0).written == 0
    assert check_request("anthropic", body) == ()


# ── OpenAI ───────────────────────────────────────────────────────────────────────────────────────


def test_openai_caches_by_itself_in_steps_of_128_from_1024_on() -> None:
    cache = PromptCache("openai-chat")
    assert cache.request(chat("a" * 3_000), at=0) == CacheUsage(0, 0, 764)
    first = cache.request(chat(LONG), at=1)
    assert (0, 1_920) == (first.read, first.written)
    second = cache.request(chat(LONG, "b" * 1_000), at=2)
    assert 1_920 == second.read
    assert 0 == second.read % 128


def test_openai_reads_as_far_as_two_prompts_agree() -> None:
    cache = PromptCache("openai-chat")
    cache.request(chat("a" * 6_000 + "b" * 6_000), at=0)
    assert cache.request(chat("a" * 6_000 + "c" * 6_000), at=1).read == 1_408


def test_openai_routes_by_the_prompt_cache_key() -> None:
    cache = PromptCache("openai-responses")
    body = {"model": "gpt-5.1", "instructions": LONG, "input": "Hello", "prompt_cache_key": "a"}
    cache.request(body, at=0)
    assert cache.request(body | {"prompt_cache_key": "b"}, at=1).read == 0
    assert cache.request(body, at=2).read


@pytest.mark.parametrize(
    ("fields", "life"), [({}, 300), ({"prompt_cache_retention": "24h"}, 86_400)]
)
def test_openai_forgets_what_is_not_used(fields: dict[str, Any], life: int) -> None:
    cache, body = PromptCache("openai-chat"), chat(LONG, **fields)
    cache.request(body, at=0)
    assert cache.request(body, at=life - 1).read
    assert cache.request(body, at=2 * life - 2).read
    assert cache.request(body, at=3 * life).read == 0


def test_newer_openai_models_match_only_where_a_breakpoint_was() -> None:
    cache = PromptCache("openai-chat")
    first = cache.request(chat(LONG, model="gpt-5.6"), at=0)
    assert 0 == first.uncached
    grown = cache.request(chat(LONG, "b", "c", model="gpt-5.6"), at=1)
    assert first.written == grown.read
    assert grown.uncached == 0
    edited = cache.request(chat(LONG + "!", "b", "c", model="gpt-5.6"), at=2)
    assert edited.read == 0
    assert cache.request(chat(LONG, model="gpt-5.6"), at=1_802).read == 0


def test_an_explicit_breakpoint_keeps_the_beginning_of_a_prompt() -> None:
    cache = PromptCache("openai-chat")
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    system = {"role": "system", "content": [text(LONG, mark)]}
    for at, said in enumerate("ab"):
        body = chat(said, model="gpt-5.6")
        found = cache.request(body | {"messages": [system, *body["messages"]]}, at=at)
        assert (at == 1) == (found.read > 0)
    only = {"prompt_cache_options": {"mode": "explicit"}}
    body = chat("c", model="gpt-5.6", **only)
    found = cache.request(body | {"messages": [system, *body["messages"]]}, at=3)
    assert (True, 0) == (found.read > 0, found.written)


# ── Gemini ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "tokens", "cached"),
    [
        ("gemini-2.5-flash", 2_100, True),
        ("gemini-2.5-flash", 2_000, False),
        ("gemini-3.5-flash", 4_200, True),
        ("gemini-3.5-flash", 4_000, False),
        ("gemini-2.0-flash", 9_000, False),
    ],
)
def test_gemini_caches_a_prefix_above_the_models_minimum(
    model: str, tokens: int, *, cached: bool
) -> None:
    cache = PromptCache("gemini", model=model)
    turn = {"role": "user", "parts": [{"text": "a" * tokens * 4}]}
    first = cache.request({"contents": [turn]}, at=0)
    answer = {"role": "model", "parts": [{"text": "b"}]}
    second = cache.request({"contents": [turn, answer, turn]}, at=1)
    assert cached == (first.total == first.written == second.read)
    assert cache.request({"contents": [answer, turn]}, at=2).read == 0


def test_a_file_counts_by_its_content_and_not_by_its_length() -> None:
    cache = PromptCache("gemini", model="gemini-2.5-pro")
    files = [{"inlineData": {"mimeType": "image/png", "data": data * 100_000}} for data in "ab"]
    bodies = [{"contents": [{"role": "user", "parts": [file]}]} for file in files]
    totals = {cache.request(body, at=0).total for body in bodies}
    assert len(totals) == 1
    assert 1_500 < totals.pop() < 1_600


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown format 'morse'"):
        PromptCache(cast("FormatName", "morse"))
    assert CacheUsage(0, 0, 0).share == 0.0
    assert CacheUsage(9, 1, 0).share == 0.9
