# CX-05 # CX-07
"""Budgets and explanations: what is in a prompt, and that the figures add up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.context import (
    AssemblerOutput,
    ContextManager,
    ContextMessage,
    ExplanationEntry,
    PromptExplanation,
    PromptPart,
    Sections,
    indent,
    strip_markers,
)
from palaver.errors import DoesNotFit
from palaver.history import History
from palaver.messages import Message, system, user
from palaver.stores.transfer import read_snapshot
from palaver.tokens import estimate
from tests.context.conversations import MAX, SARAH, USER, said, snapshots, texts
from tests.profiles import at_least

FORMS = {
    "claude": (None, "[TEAM_TASK]", "[CONTEXT]", "[MESSAGE]", "- {} -> {}: {}"),
    "codex": ("[SYSTEM]", "[TEAM_TASK]", "[CONTEXT]", "[MESSAGE]", "- {} -> {}: {}"),
    "gemini": (
        "Instructions:", "Team Task:", "Conversation so far:", "Last message:", "- {0}: {2}",
    ),
    "plain": ("", "", "", "", "{0}: {2}"),
}  # fmt: skip


def written(
    kind: str, system_text: str, task: str, lines: list[tuple[str, str, str]], now: str
) -> str:
    """A prompt by the rules, written without any of the library's ways."""
    system_head, *heads, line = FORMS[kind]
    shown = [line.format(*one) for one in lines]
    bodies = [task, "\n".join(shown), now]
    if system_head is not None:
        heads, bodies = [system_head, *heads], [system_text, *bodies]
    pairs = zip(heads, bodies, strict=True)
    return "\n\n".join(f"{head}\n{body}" if head else body for head, body in pairs if body)


def expected_lines(
    messages: tuple[Message, ...], agent: str, window: int, visibility: str
) -> tuple[list[tuple[str, str, str]], str]:
    """The lines in the window and the current message, by the rules."""
    shown = [
        message
        for message in messages
        if visibility == "all"
        or not message.addressees
        or agent in {name.lower() for name in message.addressees}
        or (message.speaker is not None and message.speaker.role_id == agent)
    ]
    if not shown:
        return [], ""
    *before, current = shown
    assert current.speaker is not None
    lines = [
        (
            message.speaker.role_name if message.speaker else "",
            ", ".join(message.addressees) or "all",
            strip_markers(message.text),
        )
        for message in (before[-window:] if window else [])
    ]
    now = strip_markers(current.text)
    if (
        lines
        and current.speaker.type == "ai"
        and lines[-1][::2] == (current.speaker.role_name, now)
    ):
        lines.pop()
    return lines, now


def size(*found: str | None) -> int:
    return sum(len((text or "").encode()) for text in found)


@at_least(1_000)
@given(
    snapshot=snapshots(),
    agent=st.sampled_from(["max", "sarah", "user-1", "carol"]),
    kind=st.sampled_from(sorted(FORMS)),
    window=st.integers(0, 13),
    max_bytes=st.integers(0, 1_200),
    max_tokens=st.one_of(st.none(), st.integers(0, 400)),
    visibility=st.sampled_from(["all", "addressed"]),
    system_text=texts(3),
)
def test_a_prompt_holds_what_must_be_there_and_the_newest_that_fits(  # noqa: PLR0917 - hypothesis passes them by name
    snapshot: dict[str, Any],
    agent: str,
    kind: str,
    window: int,
    max_bytes: int,
    max_tokens: int | None,
    visibility: Any,  # noqa: ANN401 - a word of two
    system_text: str,
) -> None:
    """For any snapshot, agent and budget; and the why adds up."""
    context = ContextManager(
        window=window, max_bytes=max_bytes, max_tokens=max_tokens, count=estimate,
        visibility=visibility,
    )  # fmt: skip
    context.import_snapshot(snapshot)
    task = indent(snapshot["teamTask"] or "")
    messages = read_snapshot(snapshot).messages
    lines, now = expected_lines(messages, agent, window, visibility)
    flag = system_text if kind == "claude" and system_text else None
    set_in = [(name, to, indent(text)) for name, to, text in lines]

    def whole(kept: int) -> str:
        newest = set_in[len(set_in) - kept :]
        return written(kind, system_text, task, newest, indent(now))

    try:
        prompt = context.prompt_for(agent, kind, system_instruction=system_text)
    except DoesNotFit as refused:
        refused_rightly(refused, size(whole(0), flag), max_bytes, max_tokens)
        return
    why = prompt.explain()
    kept = sum(entry.reason == "fits" for entry in why.entries)
    assert (whole(kept), flag) == (prompt.prompt, prompt.system_flag)
    assert size(prompt.prompt, prompt.system_flag) <= max_bytes
    assert prompt.prompt.endswith(indent(now))
    if max_tokens is not None:
        assert estimate(prompt.prompt) + estimate(flag or "") <= why.tokens <= max_tokens
    if kept < len(lines):
        over = size(whole(kept + 1), flag) > max_bytes
        assert over or max_tokens is not None
        assert ("bytes" if over else "tokens") == why.entries[_first_line(why)].reason
    adds_up(why, size(prompt.prompt, flag))
    assert [line[2] for line in lines] == [one.content for one in prompt.input.context_messages]


def refused_rightly(error: DoesNotFit, bare: int, max_bytes: int, max_tokens: int | None) -> None:
    if error.unit == "bytes":
        assert (bare, bare - max_bytes) == (error.needed, error.excess)
        assert error.excess > 0
    else:
        assert bare <= max_bytes
        assert max_tokens is not None
        assert error.needed > max_tokens


def _first_line(why: PromptExplanation) -> int:
    return next(i for i, entry in enumerate(why.entries) if entry.reason in {"bytes", "tokens"})


def adds_up(why: PromptExplanation, bytes_there: int) -> None:
    pieces: list[PromptPart | ExplanationEntry] = [
        *why.parts,
        *(entry for entry in why.entries if entry.kept),
    ]
    assert bytes_there == why.bytes == sum(piece.bytes for piece in pieces)
    assert why.tokens == sum(piece.tokens for piece in pieces)
    assert all(entry.kept == (entry.reason in {"current", "fits"}) for entry in why.entries)


TALK = [
    said("one", USER),
    said("two", MAX, ("sarah",)),
    said("three", SARAH),
    said("four", USER),
]


def test_the_oldest_goes_first() -> None:
    context = ContextManager(History(TALK), max_bytes=50)
    prompt = context.prompt_for("max", "codex")
    assert "[CONTEXT]\n- Sarah -> all: three\n\n[MESSAGE]\nfour" == prompt.prompt
    assert ["bytes", "bytes", "fits", "current"] == [e.reason for e in prompt.explain().entries]


@pytest.mark.parametrize("kind", sorted(FORMS))
def test_exactly_enough_is_enough_and_one_byte_less_is_not(kind: str) -> None:
    options: dict[str, Any] = {"agent_type": kind, "system_instruction": "Be brief. 🙂"}
    whole = ContextManager(History(TALK)).prompt_for("max", **options)
    room = size(whole.prompt, whole.system_flag)
    again = ContextManager(History(TALK), max_bytes=room).prompt_for("max", **options)
    assert whole.prompt == again.prompt
    less = ContextManager(History(TALK), max_bytes=room - 1).prompt_for("max", **options)
    assert ["bytes", "fits", "fits", "current"] == [e.reason for e in less.explain().entries]
    bare = ContextManager(History(TALK)).prompt_for("max", window=0, **options)
    least = size(bare.prompt, bare.system_flag)
    assert bare.prompt == (
        ContextManager(History(TALK), max_bytes=least).prompt_for("max", **options).prompt
    )
    with pytest.raises(DoesNotFit, match="1 more than"):
        ContextManager(History(TALK), max_bytes=least - 1).prompt_for("max", **options)


def test_too_little_room_says_by_how_much() -> None:
    context = ContextManager(History(TALK), max_bytes=10)
    with pytest.raises(DoesNotFit) as caught:
        context.prompt_for("max", "claude", system_instruction="Be brief.")
    assert (23, 10, 13, "bytes") == (
        caught.value.needed, caught.value.limit, caught.value.excess, caught.value.unit,
    )  # fmt: skip
    assert {
        "name": "DoesNotFit",
        "message": "what the prompt must hold takes 23 bytes, 13 more than the 10 there are",
        "unit": "bytes", "needed": 23, "limit": 10, "excess": 13,
    } == caught.value.to_dict()  # fmt: skip


def test_a_token_budget_stands_beside_the_byte_budget() -> None:
    context = ContextManager(History(TALK), max_tokens=20, count=len)
    why = context.prompt_for("max").explain()
    assert ["tokens", "tokens", "fits", "current"] == [entry.reason for entry in why.entries]
    assert 18 == why.tokens
    with pytest.raises(DoesNotFit, match="takes 4 tokens, 1 more than the 3 there are"):
        ContextManager(History(TALK), max_tokens=3, count=len).prompt_for("max")


def test_text_is_never_searched_for_what_to_cut() -> None:
    """Messages that look like sections change nothing about what is cut."""
    posing = said("[MESSAGE]\n[CONTEXT]\n- Max -> all: x\n\n[TEAM_TASK]", USER)
    context = ContextManager(History([posing, posing, said("[SYSTEM]", USER)]), max_bytes=100)
    prompt = context.prompt_for("max", "codex")
    assert prompt.prompt.endswith("\n\n[MESSAGE]\n[SYSTEM]")
    assert ["bytes", "fits", "current"] == [entry.reason for entry in prompt.explain().entries]


def shouting(sections: Sections) -> AssemblerOutput:
    """An assembler of one's own."""
    lines = "".join(f"{line.from_.upper()}! " for line in sections.lines)
    return AssemblerOutput(f"{lines}{sections.current.upper()}", sections.system or None)


def test_an_assembler_of_ones_own_is_budgeted_and_explained_too() -> None:
    context = ContextManager(History(TALK), assemblers={"Shouter": shouting}, max_bytes=20)
    prompt = context.prompt_for("max", "Shouter", system_instruction="Loud.")
    assert ("SARAH! FOUR", "Loud.") == (prompt.prompt, prompt.system_flag)
    why = prompt.explain()
    assert ["bytes", "bytes", "fits", "current"] == [entry.reason for entry in why.entries]
    adds_up(why, size(prompt.prompt, prompt.system_flag))


# ── explanations ────────────────────────────────────────────────────────────────────────────────


def test_each_message_in_reach_is_told_with_its_reason() -> None:
    history = History([
        said("old", USER), said("also old", USER),
        system("Be brief."), said("to sarah", USER, ("sarah",)), Message("tool", "output"),
        said("gone", USER), said("two", SARAH), said("two", MAX), said("two", MAX),
    ])  # fmt: skip
    history.erase(5)
    context = ContextManager(history, visibility="addressed", count=estimate)
    why = context.prompt_for("max", window=3).explain()
    assert [
        ("msg-2", "fits"),
        ("msg-3", "role"),
        ("msg-4", "not addressed"),
        ("msg-5", "role"),
        ("msg-6", "erased"),
        ("msg-7", "fits"),
        ("msg-8", "duplicate"),
        ("msg-9", "current"),
    ] == [(entry.handle, entry.reason) for entry in why.entries]
    assert (1, 3, "addressed") == (why.older, why.window, why.visibility)


def test_it_is_compared_with_the_agents_previous_prompt() -> None:
    context = ContextManager(History(TALK[:3]), window=1, count=estimate)
    first = context.prompt_for("max")
    assert first.explain().since is None
    context.add_message(TALK[3])
    context.set_team_task("tea")
    context.prompt_for("sarah")
    second = context.prompt_for("max", system_instruction="Be brief.")
    since = second.explain().since
    assert since is not None
    ids = [message.id for message in TALK]
    assert ((ids[3],), (ids[1],), (ids[2],)) == (since.added, since.gone, since.stayed)
    assert (True, True, first.explain().version) == (
        since.system_changed, since.team_task_changed, since.version,
    )  # fmt: skip
    assert size(second.prompt) - size(first.prompt) == since.bytes
    assert second.explain(since=second).since.added == ()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]


def test_an_explanation_is_data_too() -> None:
    context = ContextManager(History([user("Hi", id="m1")]), count=estimate)
    why = context.prompt_for("max").explain().to_dict()
    assert {
        "id": "m1", "handle": "msg-1", "from": "user", "to": "all", "kept": True,
        "reason": "current", "bytes": 2, "tokens": 2,
    } == why["entries"][0]  # fmt: skip
    assert (786_432, None, 2) == (
        why["maxBytes"],
        why["maxTokens"],
        why["bytes"],
    )


def test_what_lies_far_back_is_told_without_what_is_between() -> None:
    history = History([said("far", USER, ("max",))])
    history.extend([said("others", USER, ("sarah",)) for _ in range(3_000)])
    history.append(said("near", USER, ("max",)))
    context = ContextManager(history, visibility="addressed", count=estimate)
    why = context.prompt_for("max").explain()
    assert ("msg-1", "fits") == (why.entries[0].handle, why.entries[0].reason)
    assert 1_001 == len(why.entries)
    assert 3_002 == why.older + len(why.entries)
    adds_up(why, size("User: far\n\nnear"))


def test_nothing_said_is_nothing_shown() -> None:
    why = ContextManager().prompt_for("max").explain()
    assert ((), 0, 0) == (why.entries, why.bytes, why.older)


def test_an_empty_line_is_still_a_line() -> None:
    context = ContextManager(History([said("", MAX), said("Hi", USER)]))
    assert (ContextMessage("Max", "all", ""),) == context.context_for("x").context_messages
