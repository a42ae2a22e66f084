from __future__ import annotations

import pytest

from palaver.context.names import addressees_text, fold_name, speaker_name
from palaver.messages import assistant
from tests.context.talks import MAX, said


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (None, "all"),
        ([], "all"),
        (["max"], "max"),
        (["max", "sarah"], "max, sarah"),
        (["max", "sarah", "carol"], "max, sarah, carol"),
    ],
)
def test_addressees_row_by_row(names: list[str] | None, text: str) -> None:
    """S2 §4.6.1."""
    assert text == addressees_text(names)


@pytest.mark.parametrize("name", ["max power", "Max-Power", "MAX_POWER", "maxpower", " Max Power "])
def test_one_name_in_many_spellings(name: str) -> None:
    assert "maxpower" == fold_name(name)


def test_a_name_of_nothing_but_dashes_is_still_a_name() -> None:
    assert ("-", "_ _") == (fold_name("-"), fold_name("_ _"))


def test_who_speaks() -> None:
    assert ("Max", "assistant") == (speaker_name(said("Hi", MAX)), speaker_name(assistant("Hi")))
