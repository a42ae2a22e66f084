"""What a docstring tells, in each style."""

from __future__ import annotations

import inspect

import pytest

from palaver.tools.function import Docstring, read_docstring

EXPECTED = {"city": "where to look, near enough", "days": "how many"}

GOOGLE = """
    The weather in a city.

    It may rain.

    Args:
        city (str): where to look,
            near enough
        days (dict[str, tuple(int)], optional): how many

    Returns:
        words about it

    Raises:
        ValueError: no such city
"""
NUMPY = """
    The weather in a city.

    It may rain.

    Parameters
    ----------
    city : str
        where to look,
        near enough
    days : int, optional
        how many

    Returns
    -------
    str
        words about it
"""
SPHINX = """
    The weather in a city.

    It may rain.

    :param city: where to look,
        near enough
    :type city: str
    :param int days: how many
    :returns: words about it
        and more
    :raises ValueError: no such city
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_every_style_is_understood(text: str) -> None:
    found = read_docstring(inspect.cleandoc(text))

    assert Docstring("The weather in a city.\n\nIt may rain.", EXPECTED) == found


def test_what_stands_after_the_arguments_belongs_to_the_function() -> None:
    text = "Pay.\n\nArgs:\n    sum: in cents\n\nNote: there is no way back.\n"

    assert ("Pay.\n\nNote: there is no way back.", {"sum": "in cents"}) == read_docstring(text)


def test_stars_and_types_are_no_part_of_a_name() -> None:
    assert {"rest": "all others"} == read_docstring(
        "Do.\n\nArgs:\n    **rest (Any): all others"
    ).arguments
    assert {"rest": "all others"} == read_docstring(
        "Do.\n\n:param dict **rest: all others"
    ).arguments


def test_a_line_that_is_no_entry_describes_nothing() -> None:
    text = "Do.\n\nArgs:\n    whatever you like\n        and more\n    a: one\n    b:\n"

    assert ("Do.", {"a": "one"}) == read_docstring(text)


def test_a_section_of_another_name_stays() -> None:
    text = "Do.\n\nNotes\n-----\nSlow.\n\nExamples:\n    >>> 1\n    1\n"

    assert ("Do.\n\nSlow.", {}) == read_docstring(text)


@pytest.mark.parametrize("text", ["", "One line.", "Ratio a: b.\n\nSee: http://x.y/z"])
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert (text, {}) == read_docstring(text)
