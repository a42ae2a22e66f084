"""What a program writes, without its prompt and without what would steer a terminal."""

from __future__ import annotations

import time

import pytest

from palaver.team.processes import EchoFilter, plain_text, strip_echo

LONG = "Write a poem about the sea, in eight lines, and let it have a ship in it that comes home."


@pytest.mark.parametrize(
    ("output", "prompt", "expected"),
    [
        ("Yes.\n", "Tea?", "Yes."),
        ("Tea?\nYes.", "Tea?", "Yes."),
        ("\n Tea?\n\nYes.", "Tea?\n", "Yes."),
        ("Tea?", "Tea?", ""),
        ("Tea? Yes.", "Tea?", "Tea? Yes."),
        ("Well.\nTea?\nYes.", "Tea?", "Well.\nTea?\nYes."),
        (f"user\n{LONG}\n\nBlue.", LONG, "user\nBlue."),
        (f"You say: {LONG}\nBlue.", LONG, f"You say: {LONG}\nBlue."),
        ("a\nb\nYes.", "a\r\nb", "Yes."),
        ("Yes.", "", "Yes."),
    ],
)
def test_the_prompt_is_left_out(output: str, prompt: str, expected: str) -> None:
    assert expected == strip_echo(output, prompt)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x\x1b]8;;u\x1b\\y", "xy"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\x1b[NEXT: max]", "EXT: max]"),
        ("nul\0", "nul\ufffd"),
    ],
)
def test_what_steers_a_terminal_is_left_out(text: str, expected: str) -> None:
    assert expected == plain_text(text)


def test_half_sequences_without_end_take_no_time() -> None:
    started = time.monotonic()
    plain_text("\x1b]" * 400_000)
    plain_text("\x1b[" + "0;" * 400_000)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize(
    ("output", "expected"),
    [("Tea?\nYes, please.", "Yes, please."), ("Tea is nice.", "Tea is nice."), ("Tea?", "")],
)
def test_an_echo_is_held_back_while_it_comes(size: int, output: str, expected: str) -> None:
    heard: list[str] = []
    tell = EchoFilter("Tea?", heard.append)
    for place in range(0, len(output), size):
        tell(output[place : place + size])
    assert expected == "".join(heard)
