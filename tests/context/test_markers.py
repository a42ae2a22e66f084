# CX-02 # CX-03
"""Markers: found, stripped, and never left behind."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.context.markers import (
    clean_whitespace,
    find_markers,
    find_team_task,
    split_fences,
    strip_markers,
)
from tests.context.conversations import texts
from tests.profiles import at_least

LARGE = 768 * 1024
BLANK = "[\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"


def cleaned(text: str) -> str:
    """S2's `cleanupWhitespace`, word for word."""
    lines = [re.sub(BLANK + "{2,}", " ", line) for line in text.split("\n")]
    trimmed = [re.sub(f"^{BLANK}+|{BLANK}+$", "", line) for line in lines]
    return "\n".join(line for line in trimmed if line)


def stripped(text: str) -> str:
    """S2's `stripAllMarkers`, word for word."""
    for pattern in (r"\[FROM:[^\]]+\]", r"\[TEAM_TASK\][\s\S]*?(?=\[|\Z)", r"\[NEXT:[^\]]*\]"):
        text = re.sub(pattern, "", text, flags=re.IGNORECASE | re.ASCII)
    return cleaned(text)


def marked(text: str) -> bool:
    """Whether a whole marker stands outside fenced code."""
    whole = r"\[(?:FROM:[^\]]|(?:NEXT|DROP|TEAM_TASK):)[^\]]*\]|\[/?TEAM_TASK\]"
    return any(
        re.search(whole, text[start:stop], re.IGNORECASE | re.ASCII)
        for start, stop, is_code in split_fences(text)
        if not is_code
    )


# ── stripping ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("", ""),
        ("nothing to do", "nothing to do"),
        ("[FROM: max] Hello!  [NEXT: sarah]", "Hello!"),
        ("[from: max][Next: a, b!P1][nExT:]", ""),
        ("[FROM:] stays, it names nobody", "[FROM:] stays, it names nobody"),
        ("a [DROP: ALL] b", "a b"),
        ("[TEAM_TASK] tea for all [NEXT: max] now", "now"),
        ("[TEAM_TASK] to the end", ""),
        ("[TEAM_TASK: tea] now", "now"),
        ("[TEAM_TASK] tea [/TEAM_TASK] now", "now"),
        ("[team_task]a list[int] is fine[/team_task] now", "now"),
        ("a [/TEAM_TASK] b", "a b"),
        ("[NEXT: over\ntwo lines] b", "b"),
        ("[NEXT: never closed", "[NEXT: never closed"),
        ("[NEXT : a] [ NEXT: a] (NEXT: a)", "[NEXT : a] [ NEXT: a] (NEXT: a)"),
        ("[NE[NEXT: a]XT: b]", ""),
        ("[FR[NE[FR[NEXT: a]OM: x]XT: b]OM: z] t", "t"),
        ("[TEAM_[FROM: x]TASK] gone [x", "[x"),
        ("[NE[TEAM_TASK: x]XT: a] b", "b"),
        ("[/TEAM_[NEXT: a]TASK] b", "b"),
        ("[FR[NEXT: a]OM:] b", "[FROM:] b"),
        ("[TEAM_TA[NEXT: q]SK] gone ] too [y", "[y"),
        ("[NEXT: a [NEXT: b] c]", "c]"),
        ("[TEAM_TASK:[TEAM_TASK: a] b", "b"),
        ("[TEAM_TASK: never closed", "[TEAM_TASK: never closed"),
        ("] [NEXT: a] [", "] ["),
        ("a] [TEAM_TASK: never closed", "a] [TEAM_TASK: never closed"),
        ("[NE[NEXT: a]XT: x [NE[NEXT: b]XT: y] z", "z"),
        ("[a long text [NE[NEXT: a]XT: b] and more", "[a long text and more"),
    ],
)  # fmt: skip
def test_markers_are_taken_out(text: str, left: str) -> None:
    assert left == strip_markers(text)


@pytest.mark.parametrize(
    "text",
    [
        "[\uff2e\uff25\uff38\uff34: a]",  # full-width letters
        "[NEXT\uff1a a]",  # a full-width colon
        "\uff3bNEXT: a\uff3d",  # full-width brackets
        "[TEAM_TA\u017fK] long s",
        "[TEAM_TAS\u212a] Kelvin",
        "[F\u0420OM: a] Cyrillic",
        "[D\u0280OP: a]",
    ],
)
def test_only_letters_of_ascii_count(text: str) -> None:
    """A Turkish dotless i has no capital here, nor has any other letter from elsewhere."""
    assert (text, []) == (strip_markers(text), find_markers(text))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\n```\n[NEXT:  b]\n\n  x  \n```\n[NEXT: c]", "a\n```\n[NEXT:  b]\n\n  x  \n```"),
        ("  ```\n  [FROM: x]  ", "  ```\n  [FROM: x]  "),
        ("~~~ py\n[TEAM_TASK] x\n~~~", "~~~ py\n[TEAM_TASK] x\n~~~"),
        ("[TEAM_TASK] do\n```\ncode\n```\nmore", "```\ncode\n```\nmore"),
        ("[NEXT: a\n```\nb]\n```\nc]", "[NEXT: a\n```\nb]\n```\nc]"),
        ("`[NEXT: a]` in a line", "`` in a line"),
    ],
)
def test_in_a_fence_nothing_is_touched(text: str, left: str) -> None:
    assert left == strip_markers(text)


def test_taking_a_marker_out_does_not_bring_another_out_of_its_fence() -> None:
    """Where lines turn into fences, what was code before is none any more."""
    text = "[NEXT: a]```\nx\n```\n[NEXT: b]\n```\n"
    assert not marked(strip_markers(text))
    assert not marked(strip_markers("[NEXT: a]~~~\n```\n" + text))
    deep = "[NEXT: a]```\n```\n[NEXT: c]~~~\n~~~\n[NEXT: a]```"
    assert "```\n```\n~~~\n~~~\n```" == strip_markers(deep)


@at_least(1_000)
@given(texts(30))
def test_no_marker_is_left(text: str) -> None:
    left = strip_markers(text)
    assert not marked(left)


PLAIN = ("[FROM: a]", "[NEXT: b]", "[next:]", "[TEAM_TASK]", "[FROM:", "[NEXT:", "[", "]", "tea",
         " ", "  ", "\n", "\t", "\u3000", "\ufeff", "[0]")  # fmt: skip


@at_least(1_000)
@given(st.lists(st.sampled_from(PLAIN), max_size=16).map("".join))
def test_it_is_the_documents_own_function(text: str) -> None:
    """Word for word, wherever the document's own leaves no marker behind."""
    expected = stripped(text)
    if not marked(expected):
        assert expected == strip_markers(text)


@given(st.text(alphabet=st.sampled_from("ab \t\n\r\v\f\u00a0\u2003\u2028\u3000\ufeff\x1c\x85")))
def test_white_space_is_cleaned_as_the_document_does(text: str) -> None:
    assert cleaned(text) == clean_whitespace(text) == strip_markers(text)


@pytest.mark.parametrize(
    "unit",
    [
        "[FROM:", "[NEXT:", "[TEAM_TASK]", "[TEAM_TASK:", "[/TEAM_TASK]", "[TEAM_TASK", "[", "]",
        "[]", "][", "[NE[NEXT: a]XT: b]", "[FROM:]", "[NEXT: a]", "```\n[NEXT: a]\n", "`", "\n",
        "[NEXT: a]```\n", " ", "> [NEXT: a]\n", "[FR[NE",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", "]"])
def test_hostile_text_takes_no_longer_than_its_length(unit: str, end: str) -> None:
    """Eight times the text, about eight times the time: never sixty-four times."""

    def spent(size: int) -> float:
        text = unit * (size // len(unit)) + end
        begun = time.process_time()
        strip_markers(text)
        find_markers(text)
        return time.process_time() - begun

    short = min(spent(LARGE // 64) for _ in range(3))
    assert min(spent(LARGE // 8) for _ in range(2)) < short * 8 * 4 + 0.02


def test_768_kb_of_an_opening_marker_take_a_moment() -> None:
    text = "[FROM:" * (LARGE // 6)
    begun = time.process_time()
    assert text == strip_markers(text)
    assert time.process_time() - begun < 0.5  # about 0.01 s; the guard is for a busy machine


def test_nested_as_deep_as_you_like() -> None:
    depth = 20_000
    text = "[FR[NE" * depth + "[NEXT: a]" + "XT: b]OM: x]" * depth
    assert "" == strip_markers(text)


# ── finding ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("[NEXT: max]", [("next", "max")]),
        ("[next:  Max , sarah!P1 ]", [("next", "Max , sarah!P1")]),
        ("[NEXT:]", [("next", "")]),
        ("[FROM:]", []),
        ("[FROM: a] [DROP: ALL] [NEXT: b]", [("from", "a"), ("drop", "ALL"), ("next", "b")]),
        ("[NEXT: a,\n b]", [("next", "a,\n b")]),
        ("[TEAM_TASK] tea [NEXT: max]", [("team_task", "tea"), ("next", "max")]),
        ("[TEAM_TASK: tea]", [("team_task", "tea")]),
        ("[TEAM_TASK] tea [/TEAM_TASK] b", [("team_task", "tea")]),
        ("[TEAM_TASK] list[int] [/TEAM_TASK] b", [("team_task", "list[int]")]),
        ("[TEAM_TASK] list[int] b", [("team_task", "list")]),
        ("[/TEAM_TASK]", []),
        ("[NEXT: never closed", []),
        ("see a[0], then [NEXT: max]", [("next", "max")]),
        ("a stray [ and then [NEXT: max]", [("next", "max")]),
        ("[\n[NEXT: max]\n]", [("next", "max")]),
        ("] [NEXT: max]", [("next", "max")]),
        ("[x [NEXT: a,\nb] ]", [("next", "a,\nb")]),
    ],
)
def test_what_a_speaker_means(text: str, found: list[tuple[str, str]]) -> None:
    assert found == [(marker.kind, marker.body) for marker in find_markers(text)]


@pytest.mark.parametrize(
    "text",
    [
        "[NE[NEXT: a]XT: b]",
        "[NEXT: [NEXT: a]]",
        "[see [NEXT: a] there]",
        "```\n[NEXT: a]\n```",
        "```\n[NEXT: a]",
        "> [NEXT: a]",
        "  > quoted [NEXT: a]",
        "[NEXT: a [FROM: b",
    ],
)
def test_nothing_is_meant_inside_brackets_quotes_and_code(text: str) -> None:
    assert [] == find_markers(text)


@given(texts(30))
def test_a_marker_is_where_it_says(text: str) -> None:
    for marker in find_markers(text):
        there = text[marker.start : marker.stop]
        assert there.startswith("[")
        assert marker.body in there


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("nothing", None),
        ("[TEAM_TASK]", None),
        ("[TEAM_TASK:  ]", None),
        ("[TEAM_TASK] tea", "tea"),
        ("[TEAM_TASK: tea] and [TEAM_TASK] rum\n", "rum"),
        ("[TEAM_TASK: tea] and [TEAM_TASK]", "tea"),
        ("> [TEAM_TASK: tea]", None),
    ],
)
def test_the_last_team_task_wins(text: str, task: str | None) -> None:
    assert task == find_team_task(text)


# ── fenced code ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("no code", []),
        ("```\ncode\n```", ["```\ncode\n```"]),
        ("a\n```py\ncode\n```\nb", ["```py\ncode\n```"]),
        ("   ```\ncode\n  ```  \nb", ["   ```\ncode\n  ```  "]),
        ("    ```\nset in too far", []),
        ("```\nnever closed", ["```\nnever closed"]),
        ("````\n```\n````\nb", ["````\n```\n````"]),
        ("```\ncode\n`````\nb", ["```\ncode\n`````"]),
        ("~~~\n```\n~~~\nb", ["~~~\n```\n~~~"]),
        ("```\n~~~\n```\nb", ["```\n~~~\n```"]),
        ("``` not `code`\nb", []),
        ("~~~ a `b` c\nd", ["~~~ a `b` c\nd"]),
        ("```\ncode\n``` no end\n```\nb", ["```\ncode\n``` no end\n```"]),
        ("a ```\nb", []),
        ("```\r\ncode\r\n```\r\nb", ["```\r\ncode\r\n```\r"]),
    ],
)
def test_what_is_code(text: str, code: list[str]) -> None:
    assert code == [text[start:stop] for start, stop, is_code in split_fences(text) if is_code]


@given(texts(30))
def test_the_spans_are_the_text(text: str) -> None:
    found = split_fences(text)
    assert text == "".join(text[start:stop] for start, stop, _ in found)
    assert all(start < stop for start, stop, _ in found)
