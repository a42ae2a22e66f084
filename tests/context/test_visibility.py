# CX-06
"""Who sees what."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palaver
from palaver.context import fold_name
from palaver.context.visibility import (
    VisibilityIndex,
    context_messages,
    format_addressees,
    is_visible,
    speaker_name,
)
from palaver.history import BaseHistory, History
from palaver.messages import (
    Message,
    Speaker,
    assistant,
    new_id,
    system,
    text_part,
    tool_call_part,
    user,
)
from tests.context.conversations import MAX, SARAH, USER, said
from tests.profiles import at_least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def texts(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


TALK = [
    said("to all", USER),
    said("to max", USER, ("max",)),
    said("to sarah", USER, ("Sarah",)),
    said("from max to sarah", MAX, ("sarah",)),
    said("from sarah to the user", SARAH, ("user-1",)),
    said("to both", USER, ("MAX", "sarah")),
]


@pytest.mark.parametrize(
    ("names", "seen"),
    [
        (["max"], ["to both", "from max to sarah", "to max", "to all"]),
        (["sarah"],
         ["to both", "from sarah to the user", "from max to sarah", "to sarah", "to all"]),
        (["user-1", "User"], ["to both", "from sarah to the user", "to sarah", "to max", "to all"]),
        (["carol"], ["to all"]),
        (["s9", "SARAH"],
         ["to both", "from sarah to the user", "from max to sarah", "to sarah", "to all"]),
    ],
)  # fmt: skip
def test_a_member_sees_what_it_sent_what_is_to_it_and_what_is_to_all(
    names: list[str], seen: list[str]
) -> None:
    assert seen == texts(VisibilityIndex().visible_to(names, History(TALK).view))


def test_system_and_tool_messages_are_no_context() -> None:
    history = History([system("Be brief."), user("hi"), Message("tool", "[NEXT: admin]")])
    assert (
        ["hi"]
        == texts(context_messages(history.view))
        == texts(VisibilityIndex().visible_to(["max"], history.view))
    )


def test_a_message_that_only_calls_tools_says_nothing() -> None:
    call = tool_call_part(new_id(), new_id(), "ls", {})
    text = text_part(new_id(), new_id(), "Look:")
    history = History([user(""), assistant([call]), assistant([text, call])])
    assert ["Look:", ""] == texts(context_messages(history.view))


def test_what_was_erased_is_not_shown() -> None:
    history = History(TALK)
    index = VisibilityIndex()
    assert "to max" in texts(index.visible_to(["max"], history.view))
    history.erase(1)
    shown = ["to both", "from max to sarah", "to all"]
    assert shown == texts(index.visible_to(["max"], history.view))
    assert 5 == len(list(context_messages(history.view)))


def test_a_name_is_not_part_of_another() -> None:
    message = said("psst", USER, ("maxim",))
    assert (False, True) == (is_visible(message, ["max"]), is_visible(message, ["Max-Im"]))


def many(count: int) -> list[Message]:
    """One in a hundred is for Carol, the others for Max and Sarah in turn."""
    carol = Speaker("carol", "Carol", "human")
    return [
        said(f"m{number}", USER, ("carol",))
        if number % 100 == 0
        else said(f"m{number}", carol if number % 7 == 0 else MAX, ("sarah",))
        if number % 2
        else said(f"m{number}", SARAH, ("max",))
        for number in range(count)
    ]


def naive(history: BaseHistory, names: list[str]) -> list[str]:
    return [m.text for m in reversed(history.view) if is_visible(m, names)]


@pytest.mark.parametrize("make", [History, lambda talk: palaver.open(":memory:").create(talk)])
def test_the_index_follows_the_log_at_both_ends(
    make: Callable[[list[Message]], BaseHistory],
) -> None:
    talk = many(10_000)
    history = make(talk[:9_000])
    index = VisibilityIndex()
    assert ["m8999"] == texts(islice(index.visible_to(["sarah"], history.view), 1))
    assert naive(history, ["carol"])[:5] == texts(
        islice(index.visible_to(["carol"], history.view), 5)
    )
    history.extend(talk[9_000:])
    assert naive(history, ["carol"]) == texts(index.visible_to(["carol"], history.view))
    assert [] == list(index.visible_to(["nobody"], history.view))


def test_it_looks_no_further_than_it_is_asked() -> None:
    """The last few are found without reading the rest."""
    history = palaver.open(":memory:").create(many(10_000))
    read: list[int] = []
    log = history.view.log
    between = log.between

    def counted(start: int, stop: int) -> list[Message]:
        read.append(stop - start)
        return between(start, stop)

    log.between = counted  # type: ignore[method-assign]
    assert 5 == len(list(islice(VisibilityIndex().visible_to(["sarah"], history.view), 5)))
    assert sum(read) < 200


def test_what_was_said_long_before_many_tool_results_is_found() -> None:
    history = History([user("one"), user("two")])
    history.extend([Message("tool", "output") for _ in range(500)])
    assert ["two", "one"] == texts(context_messages(history.view))
    assert ["two"] == texts(islice(context_messages(history.view), 1))


_edits = st.lists(
    st.tuples(st.sampled_from(["insert", "replace", "keep", "restore", "append", "erase"]),
              st.integers(0, 200)),
    max_size=6,
)  # fmt: skip


@at_least(100)
@given(st.integers(0, 90), _edits, st.sampled_from([["max"], ["carol"], ["sarah", "u"], ["x"]]))
def test_whatever_is_edited_the_index_agrees_with_a_plain_look(
    count: int, edits: list[tuple[str, int]], names: list[str]
) -> None:
    history, index = History(many(count)), VisibilityIndex()
    for number, (what, place) in enumerate(edits):
        where = place % (len(history) or 1)
        new = said(f"new {number}", USER, (("carol",), ("max",), ())[place % 3])
        if what == "insert":
            history.insert(where, [new])
        elif what == "keep":
            history.truncate(keep_last=where)
        elif what == "append" or not len(history):
            history.append(new)
        elif what == "replace":
            history.replace(where, new)
        elif what == "erase":
            history.erase(where)
        else:
            history.restore(place % (history.version + 1))
        alive = [
            m.text
            for m in reversed(history.view)
            if is_visible(m, names) and "palaver.erased" not in m.metadata
        ]
        assert alive == texts(index.visible_to(names, history.view))


# ── names ───────────────────────────────────────────────────────────────────────────────────────


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
    assert text == format_addressees(names)


@pytest.mark.parametrize("name", ["max power", "Max-Power", "MAX_POWER", "maxpower", " Max Power "])
def test_one_name_in_many_spellings(name: str) -> None:
    assert "maxpower" == fold_name(name)


def test_a_name_of_nothing_but_dashes_is_still_a_name() -> None:
    assert ("-", "_ _") == (fold_name("-"), fold_name("_ _"))


def test_who_speaks() -> None:
    assert ("Max", "assistant") == (speaker_name(said("Hi", MAX)), speaker_name(assistant("Hi")))
