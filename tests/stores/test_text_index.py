"""What is indexed of a message, and how a query is parsed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.messages import Message, new_id, parse_message, reasoning_part, text_part
from palaver.messages.parts import step_start_part
from palaver.stores.text_index import (
    MAX_TEXT,
    MAX_WORD,
    fold,
    indexed_text,
    is_truncated,
    matches,
    parse_query,
    snippet,
    split_words,
    token,
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", []),
        ("  ?! ", []),
        ("tea", [["tea"]]),
        ("tea milk", [["tea"], ["milk"]]),
        ('"hot tea" milk', [["hot", "tea"], ["milk"]]),
        ('""', []),
        ('"unclosed tea', [["unclosed"], ["tea"]]),
        ("it's", [["it", "s"]]),
        ("绿茶", [["绿", "茶"]]),
        ("喝tea吗", [["喝", "tea", "吗"]]),
        ("カタカナ", [["カ", "タ", "カ", "ナ"]]),
    ],
)
def test_a_query_is_phrases_of_words(query: str, expected: list[list[str]]) -> None:
    assert expected == parse_query(query)


def test_characters_that_are_words_are_set_apart() -> None:
    assert ["喝", "tea", "吗"] == split_words("喝Tea吗")
    assert ["plain", "text"] == split_words("plain text")


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("tea_1", "TEA_1"),
        ("cafe", "CAFÉ"),
        ("cafe", "cafe\u0301"),
        ("tea", "\uff34\uff25\uff21"),
        ("fluss", "Fluß"),
        ("i", "İ"),
        ("שלום", "שָׁלוֹם"),
        ("が", "か\u3099"),
        ("한", "\u1112\u1161\u11ab"),
        ("हिन्दी", "हिन्दी"),
    ],
)
def test_case_accents_and_width_are_not_looked_at(expected: str, text: str) -> None:
    assert expected == fold(text)
    assert expected == fold(expected)


@given(st.text(max_size=40))
def test_what_is_plain_stays_as_it_is_and_its_tokens_are_one_word_each(text: str) -> None:
    assert fold(text) == fold(fold(text))
    for word in split_words(text):
        assert [token(word)] == split_words(token(word))
        assert token(word).isascii()


def test_everything_that_was_said_is_indexed() -> None:
    session, name = new_id(), new_id()
    parts = (
        text_part(session, name, "one"),
        reasoning_part(session, name, "two"),
        step_start_part(session, name),
    )
    assert "one\ntwo" == indexed_text(Message("assistant", parts, id=name))
    assert "plain" == indexed_text(Message("user", "plain"))


def test_calls_and_results_are_indexed() -> None:
    use = {"id": "c", "name": "brew", "input": {"leaf": "green"}}
    call = parse_message(
        {"role": "assistant", "content": [{"type": "tool_use", "tool_use": use}], "id": "a"}
    )
    assert ["brew", '{"leaf":"green"}'] == indexed_text(call).split("\n")
    made = {"tool_use_id": "c", "content": "a pot"}
    result = parse_message(
        {"role": "tool", "content": [{"type": "tool_result", "tool_result": made}], "id": "t"}
    )
    assert "a pot" in indexed_text(result)


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("Green Tea", "tea green", True),
        ("teapot", "tea", False),
        ("hot, water", '"hot water"', True),
        ("hot cold water", '"hot water"', False),
        ("我们喝绿茶", "绿茶", True),
        ("茶绿", "绿茶", False),
        ("anything", "", True),
    ],
)
def test_a_text_has_phrases_or_not(text: str, query: str, *, expected: bool) -> None:
    assert expected is matches(text, parse_query(query))


def test_a_snippet_is_a_line_around_the_first_word() -> None:
    long = f"{'before ' * 50}\n\n  TEA {'after ' * 50}"
    found = snippet(long, "tea")
    assert "TEA" in found
    assert "\n" not in found
    assert (found[0], found[-1]) == ("…", "…")
    assert len(found) < 200
    assert "short" == snippet("short", "not there")
    accented = f"{'avant ' * 50} CAFÉ {'après ' * 50}"
    assert "CAFÉ" in snippet(accented, "cafe")
    assert snippet("İ" * 100 + " tea", "tea").endswith("tea")


@pytest.mark.parametrize(
    "text",
    [
        "Café ",
        "e\u0301",
        "か\u3099",
        "\uff76\uff9e",
        "\u1112\u1161\u11ab",
        "हिन्दी ",
        "שָׁלוֹם ",
        "茶",
        "\U0001f468\u200d\U0001f469\u200d\U0001f466 ",
        "\x00\ufffd\ue000 ",
    ],
)
def test_a_long_text_is_made_plain_as_its_pieces_are(text: str) -> None:
    many = 3_001
    assert fold(text) * many == fold(text * many)
    if text[-1] == " ":
        assert split_words(text) * many == split_words(text * many)


def seconds(text: str) -> float:
    """What it takes of the processor to find the words of a text, at best."""
    spent = []
    for _ in range(3):
        began = time.thread_time()
        split_words(text)
        spent.append(time.thread_time() - began)
    return min(spent)


@pytest.mark.parametrize("text", ["\u0301\u0316", "\u0f71\u0f72\u0f74", "é", "茶", "\u0e35"])
def test_time_grows_with_the_text(text: str) -> None:
    """Also for letters with more accents than anyone writes; else it would grow by thousands."""
    assert seconds("a" + text * 32_000) < 512 * seconds("a" + text * 500)


def test_a_word_is_cut_and_not_split() -> None:
    assert ["a" * MAX_WORD, "b"] == split_words("A" * 1_000 + " b")
    assert ["e" * MAX_WORD, "b"] == split_words("é" * 1_000 + " b")
    assert ["茶"] * 1_000 == split_words("茶" * 1_000)
    assert matches("x" * 1_000, parse_query("x" * MAX_WORD))
    assert not matches("x" * 1_000, parse_query("x" * (MAX_WORD - 1)))


def test_the_beginning_of_a_message_is_indexed() -> None:
    session, name = new_id(), new_id()
    half = "x" * (MAX_TEXT // 2)
    parts = (text_part(session, name, half), reasoning_part(session, name, half))
    message = Message("assistant", parts, id=name)
    assert MAX_TEXT == len(indexed_text(message))
    assert is_truncated(message)
    assert not is_truncated(Message("user", "x" * MAX_TEXT))
    assert is_truncated(Message("user", "x" * MAX_TEXT + "y"))
