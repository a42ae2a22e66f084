"""What holds for every conversation, every format, every model: CV-03 as properties."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from palaver import wire
from palaver.messages import (
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCompleted,
    ToolPart,
    complete,
    new_id,
    pending,
    start,
    tool_call_part,
    tool_part,
    user,
)
from palaver.messages.tool_state import NO_OUTPUT, stand_in
from palaver.testing import check_request
from palaver.wire import FORMATS, Target, ToolSpec
from palaver.wire.anthropic.request import mark_breakpoints
from palaver.wire.format import CLEARED
from palaver.wire.pairing import INTERRUPTED
from tests.profiles import at_least
from tests.wire.conversations import MODELS, SESSION, histories, sayings
from tests.wire.sdk_types import check_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from palaver.history import BaseHistory

targets = st.builds(
    Target,
    model=st.none() | st.sampled_from(MODELS),
    images=st.booleans(),
    files=st.booleans(),
    prefill=st.just(value=False),
)


@pytest.mark.parametrize("form", FORMATS)
@at_least(250, in_faults=25_000)
@given(history=histories(), target=targets)
def test_whatever_was_edited_the_request_is_valid(
    form: str, history: BaseHistory, target: Target
) -> None:
    """CV-03: each of the four formats, after any operations, passes the provider's rules."""
    body = wire.to(form, history.view, target).body

    assert () == check_request(form, body)
    assert () == check_types(form, body)


@pytest.mark.parametrize("form", FORMATS)
@at_least(50)
@given(talk=st.lists(sayings(), max_size=14), target=targets, cuts=st.sets(st.integers(0, 14)))
def test_a_growing_conversation_is_written_as_one_that_is_whole(
    form: str, talk: list[Message], target: Target, cuts: set[int]
) -> None:
    """Step by step or at once: the same request, and requests made before stay as they were."""
    whole = wire.to(form, talk, target)
    growing = wire.converter(form, target)
    earlier = []
    for index, message in enumerate(talk):
        if index in cuts:
            request = growing.request()
            earlier.append((request, msgspec.json.encode(request.body)))
        growing.extend([message])

    assert whole.body == growing.request().body
    assert set(whole.notes) == set(growing.request().notes)
    assert all(told == msgspec.json.encode(request.body) for request, told in earlier)


@pytest.mark.parametrize("form", FORMATS)
@at_least(40, in_faults=2_000)
@given(
    talk=st.lists(sayings(), min_size=1, max_size=8),
    more=st.lists(sayings(), min_size=1, max_size=5),
    target=targets,
)
def test_what_was_sent_is_the_beginning_of_what_is_sent_later(
    form: str, talk: list[Message], more: list[Message], target: Target
) -> None:
    """Whatever is said next, a request that was complete comes again byte for byte."""
    calls = [part for one in talk for part in one.parts if isinstance(part, ToolCallPart)]
    done = complete(start(pending({}, ""), at=1), "9 °C", tool="t", at=2)
    parts = [tool_part(SESSION, new_id(), call.call_id, call.tool, done) for call in calls]
    talk = [*talk, *(Message("tool", (part,)) for part in parts), user("so?")]
    sent, later = wire.to(form, talk, target), wire.to(form, [*talk, *more], target)
    # a call without its result is written otherwise when that comes
    assume("call-without-result" not in {note.rule for note in sent.notes})

    before, after = blocks(form, sent.body), blocks(form, later.body)
    assert before == after[: len(before)]


def blocks(form: str, body: Mapping[str, Any]) -> list[bytes]:
    """The blocks of a request in the order in which the provider reads them, each as bytes."""
    head = {name: body.get(name) for name in FORMATS[form].heads}
    turns = [*head.items()]
    for element in body[FORMATS[form].items]:
        content = element.get("content", element.get("parts"))
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        rest = {name: each for name, each in element.items() if name not in ("content", "parts")}
        turns.append((str(rest), content))
    return [
        msgspec.json.encode([role, block])
        for role, content in turns
        for block in ([content] if not isinstance(content, list) else content)
    ]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("form", FORMATS)
def test_tools_are_sent_in_one_order_however_they_were_given(form: str, order: int) -> None:
    tools = [ToolSpec(name, "What for.") for name in ("b.c", "a", "b")]
    written = wire.write_tools(form, tools[::order])
    assert msgspec.json.encode(wire.write_tools(form, tools)) == msgspec.json.encode(written)


@at_least(60, in_faults=5_000)
@given(history=histories(), tools=st.integers(0, 2), compacted=st.integers(0, 30))
def test_breakpoints_change_nothing_that_is_said_and_are_never_refused(
    history: BaseHistory, tools: int, compacted: int
) -> None:
    """With the prompt cache on: the same text, at most four breakpoints, valid for Anthropic."""
    body = wire.to("anthropic", history.view).body
    body["tools"] = wire.write_tools("anthropic", [ToolSpec(f"t{n}") for n in range(tools)])
    count = min(compacted, len(body["messages"]))
    marked = mark_breakpoints(body, compacted=count, ttl="1h")

    assert () == check_request("anthropic", marked)
    assert () == check_types("anthropic", marked)
    assert unmarked(body) == unmarked(marked)
    assert 1 <= msgspec.json.encode(marked).count(b'"cache_control":') <= 4


def unmarked(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A body without breakpoints; a text is a list of one."""
    if isinstance(value, list):
        return [unmarked(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: unmarked(each) for name, each in value.items() if name != "cache_control"}
    for name in ("content", "system"):
        if isinstance(found.get(name), str) and value.get("type") != "tool_result":
            found[name] = [{"type": "text", "text": found[name]}]
    return found


@pytest.mark.parametrize("form", FORMATS)
@at_least(50)
@given(history=histories())
def test_what_was_written_reads_back_to_what_is_written_again(
    form: str, history: BaseHistory
) -> None:
    """Format → messages → the same format is the identity on what the provider accepts."""
    body = wire.to(form, history.view).body
    parsed = wire.from_(form, body)

    assert body == wire.to(form, parsed.messages).body
    assert [] == [note for note in parsed.notes if note.rule == "inexact"]


@at_least(60)
@given(history=histories(), one=st.sampled_from(list(FORMATS)), two=st.sampled_from(list(FORMATS)))
def test_there_and_back_again_loses_nothing_unreported(
    history: BaseHistory, one: str, two: str
) -> None:
    """A → messages → B → messages → A gives what A said, or a note says what was lost."""
    first = wire.from_(one, wire.to(one, history.view).body).messages
    there = wire.to(two, first)
    back = wire.to(one, wire.from_(two, there.body).messages)
    again = wire.from_(one, back.body).messages

    if not (there.notes or back.notes):
        assert gist(first) == gist(again)


LOSSES = {
    "text": (
        *("empty-text", "system-placement", "media", "unknown-part", "first-role", "last-role"),
        *("order", "trailing-space", "result-without-call"),
    ),
    "reasoning": ("foreign-reasoning", "missing-signature", "reasoning-placement"),
    "call": (),
    "result": ("result-without-call", "duplicate-result", "media"),
}
"""The rules of the notes that may tell that something of a kind is not read again."""


@pytest.mark.parametrize("form", FORMATS)
@at_least(150)
@given(history=histories(), target=targets)
def test_all_that_is_written_is_read_or_noted(
    form: str, history: BaseHistory, target: Target
) -> None:
    """Text, reasoning, calls and results: `from_` reads what `to` writes, whatever the format."""
    request = wire.to(form, history.view, target)
    model = {} if target.model is None else {"model": target.model.model_id}
    parsed = wire.from_(form, {**request.body, **model}, names=request.names)
    said, read = contents(history.view), contents(parsed.messages)
    rules = {note.rule for note in request.notes}

    for kind, noted in LOSSES.items():
        if rules.isdisjoint(noted):
            assert not said[kind] - read[kind], (kind, rules)


def contents(messages: Iterable[Message]) -> dict[str, Counter[str]]:
    """How often each text, thought, call and result is there; texts are one for each speaker."""
    texts: dict[str, str] = dict.fromkeys(("user", "assistant"), "")
    found: dict[str, Counter[str]] = {kind: Counter() for kind in LOSSES}
    for message in messages:
        for part in message.parts or [message.text]:
            if isinstance(part, str | TextPart) and message.role in texts:
                ignored = isinstance(part, TextPart) and part.ignored
                texts[message.role] += (
                    "" if ignored else part if isinstance(part, str) else part.text
                )
            elif isinstance(part, ReasoningPart) and part.text and message.role == "assistant":
                found["reasoning"][part.text] += 1
            elif isinstance(part, ToolCallPart) and message.role == "assistant":
                if (given := given_to(part)) is not None:
                    found["call"][f"{part.tool} {given}"] += 1
            elif isinstance(part, ToolPart) and message.role == "tool":
                found["result"][result_of(part)] += 1
    found["text"].update(texts.values())
    return found


def given_to(call: ToolCallPart) -> str | None:
    """What a call was given; None where it says two things, of which a format takes one."""
    said = tool_call_part(call.session_id, call.message_id, call.tool, {}, raw=call.raw).arguments
    if call.metadata.get("openai") == {"custom": True}:
        return call.raw or msgspec.json.encode(call.input).decode()
    if "freeform_input" in said:
        return str(sorted(call.input.items())) if call.input else call.raw
    return None if call.raw and call.input != said else str(sorted(call.input.items()))


def result_of(part: ToolPart) -> str:
    """The text of a result, as the model is given it."""
    state = part.state
    if isinstance(state, ToolCompleted) and state.time.compacted is not None:
        return CLEARED
    text = str(getattr(state, "output", getattr(state, "error", INTERRUPTED)))
    if text.strip() and text != NO_OUTPUT:
        return text
    return stand_in(file.mime for file in getattr(state, "attachments", None) or ())


def gist(messages: Iterable[Message]) -> list[tuple[str, ...]]:
    """What was said, called and answered, in order; where one message ends is not part of it.

    Calls go by number, since a format may have no ids.
    """
    said: list[tuple[str, ...]] = []
    numbers: dict[str, str] = {}
    for message in messages:
        for part in message.parts or [message.text]:
            words = part if isinstance(part, str) else getattr(part, "text", "")
            if isinstance(part, str | TextPart):
                if said and said[-1][:2] == ("text", message.role):
                    words = said.pop()[2] + words
                said.append(("text", message.role, words))
            elif isinstance(part, ToolCallPart):
                numbers[part.call_id] = str(len(numbers))
                said.append(("call", numbers[part.call_id], part.tool, str(dict(part.input))))
            elif isinstance(part, ToolPart):
                output = str(getattr(part.state, "output", getattr(part.state, "error", "")))
                said.append(("result", numbers[part.call_id], output))
            elif isinstance(part, FilePart):
                said.append(("file", part.mime, part.url))
    return [one for one in said if one[0] != "text" or one[2].strip()]
