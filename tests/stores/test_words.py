"""What is indexed of a message, and how a query is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.messages import (
    Message,
    new_id,
    parse_message,
    reasoning_part,
    step_start_part,
    text_part,
)
from palaver.stores.words import has, indexed_text, phrases, plain, snippet, token, words_of


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
    assert expected == phrases(query)


def test_characters_that_are_words_are_set_apart() -> None:
    assert ["喝", "tea", "吗"] == words_of("喝Tea吗")
    assert ["plain", "text"] == words_of("plain text")


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
    assert expected == plain(text)
    assert expected == plain(expected)


@given(st.text(max_size=40))
def test_what_is_plain_stays_as_it_is_and_its_tokens_are_one_word_each(text: str) -> None:
    assert plain(text) == plain(plain(text))
    for word in words_of(text):
        assert [token(word)] == words_of(token(word))
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
    assert expected is has(text, phrases(query))


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
