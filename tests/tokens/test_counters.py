"""Counters: exact where there is a vocabulary, an honest estimate where there is none."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import tokens as counters
from palaver.errors import ValidationError
from palaver.tokens import ENCODINGS, counter, estimate

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("a" * 5, 1),
        ("a" * 1_000, 400),
        ("HTTP", 2),
        ("A" * 1_000, 400),
        ("2026-11-16", 7),
        ("😀", 2),
        ("字" * 1_000, 1_000),
        ("字a", 2),
        ("한국어", 3),
        ("カナ。", 3),
    ],
)
def test_kinds_of_characters_have_their_weights(text: str, tokens: int) -> None:
    """CV-07, and the table's word on CJK: 400 for 1,000 of them is too low."""
    assert tokens == estimate(text)


@given(one=st.text(), other=st.text())
def test_more_text_never_has_fewer_tokens(one: str, other: str) -> None:
    """The estimate grows with the text."""
    assert max(estimate(one), estimate(other)) <= estimate(one + other)


@pytest.mark.parametrize(
    ("name", "text", "tokens"),
    [
        ("o200k", "hello world", 2),
        ("o200k", "<|endoftext|>", 7),
        ("cl100k", "hello world", 2),
        ("o200k", "你好世界", 2),
        ("o200k", "", 0),
    ],
)
def test_exact_counts(name: str, text: str, tokens: int) -> None:
    """Against OpenAI's own counts; a marker spelled out in a text is text."""
    assert tokens == counter(name)(text)


def test_the_best_there_is_comes_without_a_name() -> None:
    """Exact, since the extra is installed here."""
    assert counter() is counter("o200k")


def test_without_the_extra_it_is_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fails; asking for more says what to install."""
    counters.is_exact.cache_clear()
    monkeypatch.setitem(sys.modules, "splintr", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    try:
        assert counter() is estimate
        with pytest.raises(ValidationError, match=r"pip install 'palaver\[tokens\]'"):
            counter("o200k")
    finally:
        counters.is_exact.cache_clear()


def test_an_unknown_counter_is_an_error() -> None:
    """It says which there are."""
    with pytest.raises(ValidationError, match="there are o200k, cl100k, estimate"):
        counter("p50k")


def test_threads_share_one_vocabulary() -> None:
    """It is loaded once, whoever comes first."""
    exact = counters._Exact("o200k")
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(exact.count("hi"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [1] * 8 == found


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_long_text_is_counted_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same count where there are words to cut at; a few more where there are none."""
    count = counter(name)
    prose = "Tea, of course:\n  12 cups, and  more tea than   anybody's\t(hot!) 喝茶 needs. " * 200
    wide = "喝茶吗" * 3_000
    whole = count(prose), count(wide)
    assert max(len(prose), len(wide)) < counters._PIECE
    sizes: list[int] = []
    pieces = counters._pieces

    def noted(text: str) -> Iterator[str]:
        for piece in pieces(text):
            sizes.append(len(piece))
            yield piece

    monkeypatch.setattr(counters, "_PIECE", 1_000)
    monkeypatch.setattr(counters, "_pieces", noted)
    assert whole[0] == count(prose)
    assert whole[1] <= count(wide) <= whole[1] + 2 * len(wide) // 1_000
    assert 1_000 == max(sizes)
    assert len(prose) + len(wide) == sum(sizes)
