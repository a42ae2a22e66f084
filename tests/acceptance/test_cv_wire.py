"""CV-03 and CV-10 by name: each way a session gets bricked elsewhere, in each of the four formats.

Every case is what people run into: a trimmed history, a crash in a tool, a switch of models. The
request must be one that the provider takes, and what was done must be said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from palaver import wire
from palaver.messages import (
    AssistantInfo,
    Message,
    ModelRef,
    assistant,
    complete,
    fail,
    file_part,
    new_id,
    pending,
    reasoning_part,
    start,
    system,
    text_part,
    tool_call_part,
    tool_part,
    user,
)
from palaver.testing import check_request
from palaver.wire import FORMATS, Target
from palaver.wire.pairing import INTERRUPTED, PENDING
from tests.wire.sdk_types import check_types

if TYPE_CHECKING:
    from palaver.messages import ToolState
    from palaver.wire import Request

SESSION, OWNER = new_id(), new_id()

formats = pytest.mark.parametrize("form", FORMATS)


def calls(*ids: str, tool: str = "read_file", info: AssistantInfo | None = None) -> Message:
    """An answer that makes these calls."""
    parts = [tool_call_part(SESSION, OWNER, tool, {"n": 1}, call_id=name) for name in ids]
    return assistant(parts, info=info)


def result(call: str, output: str = "42", state: ToolState | None = None) -> Message:
    """A result of a call."""
    done = complete(start(pending({}, "")), output, tool="read_file") if state is None else state
    return Message("tool", (tool_part(SESSION, OWNER, call, "read_file", done),))


def sent(form: str, *messages: Message, **target: Any) -> Request:  # noqa: ANN401 - a Target's
    """The request, which the provider must take."""
    request = wire.to(form, messages, Target(**target))
    assert () == check_request(form, request.body)
    assert () == check_types(form, request.body)
    return request


def rules(request: Request) -> set[str]:
    """What was repaired or lost, by rule; Gemini wants a word about every foreign call besides."""
    return {note.rule for note in request.notes} - {"missing-signature"}


def told(request: Request) -> str:
    """The request as text, to look for words in."""
    return str(request.body)


@formats
def test_orphan_result(form: str) -> None:
    """A trimmed history: the result is there, its call is not."""
    request = sent(form, user("a"), result("c1", "SECRET"), user("b"))

    assert {"result-without-call"} == rules(request)
    assert "SECRET" not in told(request)


@formats
def test_orphan_call(form: str) -> None:
    """The call is there, its result is not."""
    request = sent(form, user("a"), calls("c1"), user("b"))

    assert {"call-without-result"} == rules(request)
    assert INTERRUPTED in told(request)


@formats
def test_two_results_for_one_call(form: str) -> None:
    """The first counts; the second is left out."""
    request = sent(form, user("a"), calls("c1"), result("c1", "FIRST"), result("c1", "SECOND"))

    assert {"duplicate-result"} == rules(request)
    assert ("FIRST" in told(request), "SECOND" in told(request)) == (True, False)


@formats
def test_result_before_call(form: str) -> None:
    """After an insert in the wrong place: the result follows its call all the same."""
    request = sent(form, user("a"), result("c1", "EARLY"), calls("c1"), user("b"))

    assert {"result-out-of-order"} == rules(request)
    assert told(request).index("read_file") < told(request).index("EARLY")


@formats
def test_empty_tool_output(form: str) -> None:
    """BR-09: nothing is sent as a word for nothing."""
    request = sent(form, user("a"), calls("c1"), result("c1", ""))

    assert "(no output)" in told(request)
    assert set() == rules(request)


@formats
def test_whitespace_only_assistant(form: str) -> None:
    """An answer of blanks, in the middle and at the end."""
    sent(form, user("a"), assistant(" \n"), user("b"), assistant("\t"))


@formats
def test_system_in_the_middle(form: str) -> None:
    """It stays in its place, so that what is cached before it stays cached."""
    request = sent(form, system("S1"), user("a"), assistant("b"), system("S2"), user("c"))
    before = wire.to(form, [system("S1"), user("a"), assistant("b")], Target(prefill=True))

    assert "S2" in told(request)
    assert before.items == request.items[: len(before.items)]
    assert before.head == request.head


@formats
def test_assistant_first(form: str) -> None:
    """A history whose beginning was cut off."""
    request = sent(form, assistant("hello"), user("b"))

    assert ("first-role" in rules(request)) == FORMATS[form].alternates


@formats
def test_five_parallel_calls_with_one_missing(form: str) -> None:
    """Four results in any order, and a word for the fifth."""
    ids = [f"c{number}" for number in range(5)]
    answers = [result(name, f"OUT-{name}") for name in ("c3", "c0", "c4", "c1")]
    request = sent(form, user("a"), calls(*ids), *answers, user("b"))

    assert {"call-without-result"} == rules(request)
    assert all(f"OUT-c{number}" in told(request) for number in (0, 1, 3, 4))


THOUGHTS = {
    "anthropic": {"anthropic": {"signature": "c2lnbmF0dXJl"}},
    "openai": {"openai": {"id": "rs_1", "encrypted_content": "gAAAAABSEALED"}},
    "google": {"google": {"thoughtSignature": "c2lnbmF0dXJl"}},
}


@formats
def test_a_reasoning_block_after_a_model_switch(form: str) -> None:
    """It goes back to the model that made it, and to no other."""
    provider = FORMATS[form].provider
    ours, other = ModelRef(provider, "one"), ModelRef(provider, "two")
    message = Message(
        "assistant",
        (
            reasoning_part(SESSION, OWNER, "HMMM", start=1, metadata=THOUGHTS[provider]),
            text_part(SESSION, OWNER, "yes"),
        ),
        info=AssistantInfo(model=ours),
    )
    same = sent(form, user("a"), message, user("b"), model=ours)
    switched = sent(form, user("a"), message, user("b"), model=other)
    unknown = [note for note in switched.losses if note.rule == "foreign-reasoning"]

    assert message.id == unknown[0].message_id
    assert "HMMM" not in told(switched)
    sealed = str(next(iter(THOUGHTS[provider][provider].values())))
    if form != "openai-chat":  # it has no place for thoughts at all
        assert sealed in told(same)
    assert sealed not in told(switched)


@formats
def test_an_interrupted_call(form: str) -> None:
    """A crash in the middle of a tool: what is known is said, as an error."""
    state = fail(start(pending({}, "")), "interrupted: the process ended")
    request = sent(form, user("a"), calls("c1"), result("c1", state=state))

    assert "interrupted: the process ended" in told(request)


@formats
def test_a_call_that_is_still_at_work(form: str) -> None:
    """Its place is kept, and the words say that it is not over."""
    messages = [user("a"), calls("c1"), user("b")]
    request = wire.to(form, messages, open_calls={"c1"})

    assert () == check_request(form, request.body)
    assert PENDING in told(request)


@formats
def test_a_call_id_of_200_characters(form: str) -> None:
    """It is spelled so that the provider takes it, the same in call and result."""
    name = "x" * 200
    request = sent(form, user("a"), calls(name), result(name, "LONG"), user("b"))

    assert name not in told(request)
    assert "LONG" in told(request)


@formats
def test_a_tool_name_with_a_dot(form: str) -> None:
    """It is spelled as allowed, and gets its own name back on the way home."""
    request = sent(form, user("a"), calls("c1", tool="fs.read"), result("c1"), user("b"))
    reading = wire.from_(form, request.body, names=request.names)
    (call,) = reading.messages[1].parts

    assert getattr(call, "tool", None) == "fs.read"


@formats
def test_an_image_the_model_cant_take(form: str) -> None:
    """A word stands for it, and a note says so; the rest of the message is sent."""
    image = file_part(SESSION, OWNER, "image/png", "data:image/png;base64,aGk=", filename="a.png")
    message = Message("user", (text_part(SESSION, OWNER, "look"), image))
    request = sent(form, message, images=False)

    assert {"media"} == rules(request)
    assert "look" in told(request)
    assert "aGk=" not in told(request)


@formats
def test_a_path_of_this_machine_never_goes_out(form: str) -> None:
    """A file by its path is not sent: nothing is read, nothing is told."""
    secret = file_part(SESSION, OWNER, "text/plain", "file:///etc/passwd")
    request = sent(form, Message("user", (text_part(SESSION, OWNER, "look"), secret)))

    assert "passwd" not in told(request)


@formats
def test_ignored_text_stays_at_home(form: str) -> None:
    """CV-03: what is marked as ignored is kept and not sent."""
    parts = (
        text_part(SESSION, OWNER, "HIDDEN", ignored=True),
        text_part(SESSION, OWNER, "shown"),
    )
    request = sent(form, Message("user", parts))

    assert ("HIDDEN" in told(request), "shown" in told(request)) == (False, True)
