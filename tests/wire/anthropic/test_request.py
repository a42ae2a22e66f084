"""Anthropic Messages: each rule by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from palaver import wire
from palaver.messages import (
    AssistantInfo,
    Message,
    ModelRef,
    assistant,
    fail,
    file_part,
    pending,
    start,
    system,
    text_part,
    tool_call_part,
    tool_part,
    user,
)
from palaver.messages.parts import step_start_part, subtask_part
from palaver.wire import Target
from palaver.wire.anthropic.request import mark_breakpoints
from tests.wire.pieces import (
    ANYONE,
    PDF,
    PIXEL,
    S,
    block,
    call,
    calling,
    judged,
    part,
    result,
    rules,
    thought,
)

if TYPE_CHECKING:
    from palaver.wire import Request

OPUS: Final = ModelRef("anthropic", "claude-opus-4-8")
HAIKU: Final = ModelRef("anthropic", "claude-haiku-4-5")


def sent(*messages: Message, target: Target = ANYONE, open_calls: tuple[str, ...] = ()) -> Request:
    """Write, and have the result judged."""
    return judged("anthropic", messages, target, open_calls)


def contents(request: Request) -> list[Any]:
    return [element["content"] for element in request.items]


def answer(call_id: str = "c1", output: str = "a b", **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - the block's own
    return {"type": "tool_result", "tool_use_id": call_id, "content": output, **fields}


def text(words: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - the block's own
    return {"type": "text", "text": words, **fields}


def use(call_id: str = "c1", tool: str = "ls", **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - the block's own
    return {"type": "tool_use", "id": call_id, "name": tool, "input": {"path": "/"}, **fields}


def test_a_plain_conversation_is_written_plainly() -> None:
    request = sent(system("Be brief."), user("Tea?"), assistant("Yes."), user("How?"))

    assert {
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "Tea?"},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "How?"},
        ],
    } == request.body
    assert () == request.notes


def test_several_leading_system_messages_become_blocks() -> None:
    request = sent(
        system("One."), system([text_part(S, S, "Two."), text_part(S, S, " ")]), user("x")
    )

    assert [text("One."), text("Two.")] == request.body["system"]
    assert ["empty-text"] == rules(request)


def test_an_orphan_result_is_left_out() -> None:
    request = sent(user("x"), result("c9"))

    assert ["x"] == contents(request)
    assert ["result-without-call"] == rules(request)


def test_an_orphan_call_gets_a_result_that_says_so() -> None:
    request = sent(user("x"), calling(), user("y"))

    missing = answer(output="(no result: the call was interrupted)", is_error=True)
    assert ["x", [use()], [missing, text("y")]] == contents(request)
    assert ["call-without-result"] == rules(request)


def test_a_call_still_at_work_keeps_its_place() -> None:
    request = sent(user("x"), calling(), open_calls=("c1",))

    assert "(no result yet: the call is still running)" == contents(request)[2][0]["content"]


def test_two_results_for_one_call_leave_one() -> None:
    request = sent(user("x"), calling(), result(), result(output="again"))

    assert [answer()] == contents(request)[2]
    assert ["duplicate-result"] == rules(request)


def test_a_result_before_its_call_moves_behind_it() -> None:
    request = sent(user("x"), result(), calling())

    assert ["x", [use()], [answer()]] == contents(request)
    assert ["result-out-of-order"] == rules(request)


def test_a_late_result_goes_to_its_call_and_what_was_said_since_stays() -> None:
    request = sent(user("x"), calling(), user("and?"), assistant("Wait."), user("ok"), result())

    assert ["x", [use()], [answer(), text("and?")], "Wait.", "ok"] == contents(request)
    assert ["result-out-of-order"] == rules(request)


def test_an_empty_tool_output_is_said_in_words() -> None:
    assert [answer(output="(no output)")] == contents(
        sent(user("x"), calling(), result(output=""))
    )[2]


def test_a_whitespace_only_answer_is_left_out() -> None:
    request = sent(user("x"), assistant(" \n"), user("y"))

    assert [[text("x"), text("y")]] == contents(request)
    assert ["empty-text"] == rules(request)


def test_blank_texts_and_blank_messages_are_left_out() -> None:
    parts = [text_part(S, S, ""), text_part(S, S, "x"), text_part(S, S, "no", ignored=True)]
    request = sent(user(parts), user([text_part(S, S, " ")]), user(""))

    assert [[text("x")]] == contents(request)
    assert ["empty-text"] * 4 == rules(request)


def test_a_system_message_in_the_middle_stays_there_as_words() -> None:
    late = system([text_part(S, S, "Be"), text_part(S, S, "kind.")])
    request = sent(user("x"), assistant("y"), late, user("z"), system(""))

    assert [text("<system>\nBe\n\nkind.\n</system>"), text("z")] == contents(request)[2]
    assert ["system-placement", "empty-text"] == rules(request)


def test_an_answer_first_gets_an_opening() -> None:
    request = sent(assistant("Hello!"), user("Hi."))

    assert ["(the conversation begins here)", "Hello!", "Hi."] == contents(request)
    assert ["first-role"] == rules(request)


def test_an_answer_last_gets_a_closing_unless_it_is_to_be_continued() -> None:
    assert "(please continue)" == contents(sent(user("x"), assistant("So ")))[2]

    request = sent(user("x"), assistant("So \n"), target=Target(prefill=True))
    assert ["x", "So"] == contents(request)
    assert ["trailing-space"] == rules(request)
    cut = assistant([text_part(S, S, "So,"), text_part(S, S, " then ")])
    assert [text("So,"), text(" then")] == contents(
        sent(user("x"), cut, target=Target(prefill=True))
    )[1]
    assert () == sent(user("x"), assistant("So"), target=Target(prefill=True)).notes


def test_five_parallel_calls_with_one_missing() -> None:
    ids = ["c1", "c2", "c3", "c4", "c5"]
    results = [result(name) for name in ("c5", "c1", "c2", "c4")]
    request = sent(user("x"), calling(*(call(name) for name in ids)), *results, user("y"))

    given = contents(request)[2]
    assert ["c5", "c1", "c2", "c4", "c3", None] == [found.get("tool_use_id") for found in given]
    assert [None, None, None, None, True, None] == [found.get("is_error") for found in given]
    assert ["call-without-result"] == rules(request)


def test_an_interrupted_call_says_so() -> None:
    failed = fail(start(pending({}, "")), "interrupted")
    broken = Message("tool", (tool_part(S, S, "c1", "ls", failed),))

    assert [answer(output="interrupted", is_error=True)] == contents(
        sent(user("x"), calling(), broken)
    )[2]


def test_a_call_id_of_200_characters_is_spelled_anew_in_both_places() -> None:
    request = sent(user("x"), calling(call("x" * 200)), result("x" * 200))

    asked, given = contents(request)[1][0]["id"], contents(request)[2][0]["tool_use_id"]
    assert asked == given
    assert 64 == len(asked)
    assert ["call-id"] == rules(request)


def test_the_same_call_id_twice_is_noted_apart() -> None:
    request = sent(user("x"), calling(), result(), calling(), result(output="b"))

    assert contents(request)[1][0]["id"] != contents(request)[3][0]["id"]
    assert ["duplicate-call-id"] == rules(request)


def test_a_tool_name_with_a_dot_is_mapped_and_mapped_back() -> None:
    request = sent(user("x"), calling(call(tool="disk.ls")), result())
    parsed = wire.from_("anthropic", request.body, names=request.names)

    assert "disk.ls" in request.names.values()
    assert "disk.ls" == part(parsed.messages[1]).tool
    assert ["tool-name"] == rules(request)


def test_arguments_that_are_no_object_are_sent_in_one() -> None:
    broken = tool_call_part(S, S, "ls", {}, call_id="c1", raw="{")
    request = sent(user("x"), calling(broken), result())

    assert {"freeform_input": "{"} == contents(request)[1][0]["input"]
    assert ["freeform-input"] == rules(request)


@pytest.mark.parametrize(
    ("mime", "url", "expected"),
    [
        (
            "image/png",
            f"data:image/png;base64,{PIXEL}",
            {"type": "base64", "media_type": "image/png", "data": PIXEL},
        ),
        ("image/*", "https://example.org/a", {"type": "url", "url": "https://example.org/a"}),
        (
            "application/pdf",
            f"data:application/pdf;base64,{PDF}",
            {"type": "base64", "media_type": "application/pdf", "data": PDF},
        ),
        (
            "application/pdf",
            "https://example.org/a.pdf",
            {"type": "url", "url": "https://example.org/a.pdf"},
        ),
        (
            "text/plain",
            "data:text/plain,hello",
            {"type": "text", "media_type": "text/plain", "data": "hello"},
        ),
    ],
)
def test_files_go_as_data_or_by_reference(mime: str, url: str, expected: dict[str, Any]) -> None:
    request = sent(user([file_part(S, S, mime, url)]))

    assert expected == contents(request)[0][0]["source"]
    assert () == request.notes


@pytest.mark.parametrize(
    ("mime", "url"),
    [
        ("image/tiff", "data:image/tiff;base64,aGk="),
        ("image/png", "http://example.org/a.png"),
        ("image/png", "https:///a.png"),
        ("image/png", "data:image/png;base64," + "A" * (10 * 1024 * 1024 + 4)),
        ("text/plain", "data:text/plain,%20"),
        ("audio/mpeg", "data:audio/mpeg;base64,aGk="),
        ("text/plain", "https://example.org/a.txt"),
        ("application/zip", "file:///etc/passwd"),
    ],
)
def test_a_file_that_cannot_go_is_named(mime: str, url: str) -> None:
    request = sent(user([file_part(S, S, mime, url)]))

    assert [text(f"[a file of type {mime} is not included]")] == contents(request)[0]
    assert ["media"] == rules(request)


def test_an_image_the_model_cant_take_is_named() -> None:
    image = file_part(S, S, "image/png", f"data:image/png;base64,{PIXEL}", filename="cat.png")
    blind = Target(images=False, files=False)
    request = sent(user([image]), calling(), result("c1", " ", image), target=blind)

    word = text("[a file 'cat.png' of type image/png is not included]")
    assert [word] == contents(request)[0]
    assert [word] == contents(request)[2][0]["content"]
    assert ["media", "media"] == rules(request)


def test_a_text_file_of_another_type_goes_as_plain_text_with_its_name() -> None:
    table = file_part(S, S, "text/csv", "data:text/csv,a", filename="a.csv")
    request = sent(user([table]))

    assert {"type": "text", "media_type": "text/plain", "data": "a"} == contents(request)[0][0][
        "source"
    ]
    assert "a.csv" == contents(request)[0][0]["title"]
    assert ["media"] == rules(request)


def test_files_of_a_result_go_with_it() -> None:
    image = file_part(S, S, "image/png", f"data:image/png;base64,{PIXEL}")
    request = sent(user("x"), calling(), result("c1", "see", image))

    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    assert [text("see"), {"type": "image", "source": source}] == contents(request)[2][0]["content"]


def test_reasoning_goes_back_to_the_model_that_made_it() -> None:
    made = [
        thought({"anthropic": {"signature": "abc"}}),
        thought({"anthropic": {"redacted": "e"}}, ""),
    ]
    message = calling(*made, call(), info=AssistantInfo(model=OPUS))

    for target in (Target(), Target(OPUS)):
        request = sent(user("x"), message, result(), target=target)
        assert [
            {"type": "thinking", "thinking": "hm", "signature": "abc"},
            {"type": "redacted_thinking", "data": "e"},
            use(),
        ] == contents(request)[1]
        assert () == request.notes


def test_a_reasoning_block_after_a_model_switch_stays_at_home() -> None:
    made = thought({"anthropic": {"signature": "abc"}})
    message = calling(made, call(), info=AssistantInfo(model=OPUS))
    request = sent(user("x"), message, result(), target=Target(HAIKU))

    assert [use()] == contents(request)[1]
    assert ["foreign-reasoning"] == rules(request)


def test_reasoning_without_a_signature_or_without_an_end_is_left_out() -> None:
    unsigned = assistant([thought({"anthropic": {"signature": " "}}), text_part(S, S, "y")])
    dangling = assistant([text_part(S, S, "z"), call(), thought({"anthropic": {"signature": "a"}})])
    alone = assistant([thought({"anthropic": {"signature": "a"}})])
    request = sent(user("x"), unsigned, user("x"), dangling, result(), alone, user("x"))

    assert [text("y")] == contents(request)[1]
    assert ["thinking", "text", "tool_use"] == [found["type"] for found in contents(request)[3]]
    assert ["missing-signature", "reasoning-placement", "empty-text"] == rules(request)
    assert ["missing-signature", "reasoning-placement"] == [note.rule for note in request.losses]


def test_answers_that_become_neighbours_begin_with_a_thought() -> None:
    later = calling(thought({"anthropic": {"signature": "a"}}), call())
    request = sent(user("x"), assistant("One."), later, result())

    assert ["thinking", "text", "tool_use"] == [found["type"] for found in contents(request)[1]]


def test_parts_without_a_place_are_reported() -> None:
    odd = user([subtask_part(S, S, "dig", "d", "mole"), step_start_part(S, S), call()])
    picture = assistant([file_part(S, S, "image/png", "https://example.org/a.png")])
    request = sent(odd, picture, user("x"))

    assert [text("Task for mole: dig")] == contents(request)[0]
    assert [text("[a file of type image/png is not included]")] == contents(request)[1]
    assert ["unknown-part", "unknown-part", "media"] == rules(request)


SEARCH: Final = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND: Final = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def test_a_tool_of_the_provider_keeps_its_call_and_result_in_place() -> None:
    request = sent(
        user("x"),
        assistant([block("anthropic", SEARCH), block("anthropic", FOUND), text_part(S, S, "y")]),
        user("z"),
    )

    assert [SEARCH, FOUND, text("y")] == contents(request)[1]


def test_a_tool_of_the_provider_without_call_or_result_is_left_out() -> None:
    cut = assistant([text_part(S, S, "y"), block("anthropic", SEARCH)])
    rest = assistant([block("anthropic", FOUND), text_part(S, S, "z")])

    request = sent(user("x"), cut, user("w"), rest, user("v"))
    assert ["x", [text("y")], "w", [text("z")], "v"] == contents(request)
    assert ["call-without-result", "result-without-call"] == rules(request)
    assert [text("y"), SEARCH, FOUND, text("z")] == contents(sent(user("x"), cut, rest, user("v")))[
        1
    ]


def test_a_paused_answer_is_sent_back_to_be_continued_and_repaired_when_it_is_not() -> None:
    converter = wire.converter("anthropic", Target(prefill=True))
    converter.extend([user("x"), assistant([text_part(S, S, "y"), block("anthropic", SEARCH)])])
    paused = converter.request()
    assert [text("y"), SEARCH] == contents(paused)[1]

    converter.extend([user("never mind")])
    assert ["x", [text("y")], "never mind"] == contents(converter.request())
    assert [text("y"), SEARCH] == contents(paused)[1]


@pytest.mark.parametrize(
    "raw",
    [{}, {"type": "text"}, {"type": 5}, {"type": "container_upload", "file_id": "f"}],
)
def test_a_unknown_block_that_could_not_stand_is_reported(raw: dict[str, Any]) -> None:
    request = sent(user("x"), assistant([block("anthropic", raw), text_part(S, S, "y")]), user("z"))

    assert [text("y")] == contents(request)[1]
    assert ["unknown-part"] == rules(request)


def test_a_request_handed_out_never_changes_and_a_prefix_stays_the_same() -> None:
    converter = wire.converter("anthropic")
    talk = [user("x"), user([text_part(S, S, "y")]), calling(), result(), user("z"), assistant("w")]
    handed = []
    for message in talk:
        converter.extend([message])
        request = converter.request()
        handed.append((request, msgspec.json.encode(request.body)))

    assert all(written == msgspec.json.encode(request.body) for request, written in handed)
    assert contents(handed[-1][0])[:2] == contents(handed[3][0])[:2]


# ── the prompt cache ─────────────────────────────────────────────────────────────────────────────

MARK: Final = {"cache_control": {"type": "ephemeral"}}


def marked(body: dict[str, Any]) -> list[tuple[str, int]]:
    """Return the fields with breakpoints, each with the place in it."""
    found = [
        (field, place)
        for field in ("tools", "system")
        for place, each in enumerate(body.get(field, ()))
        if "cache_control" in each
    ]
    for place, message in enumerate(body["messages"]):
        if "cache_control" in str(message):
            assert "cache_control" in message["content"][-1]
            found.append(("messages", place))
    return found


def summary(words: str) -> list[Message]:
    info = AssistantInfo(summary=True)
    return [user("What did we do?"), assistant(words, info=info, metadata={"summaryOf": ["a"]})]


def test_breakpoints_stand_where_requests_end_and_at_the_last_summary() -> None:
    converter = wire.converter("anthropic")
    converter.extend([system("be kind"), *summary("old"), *summary("tea"), user("x"), calling()])
    converter.extend([result(), assistant("y"), user("z")])
    request = converter.request()
    tools = wire.write_tools("anthropic", [wire.ToolSpec("a"), wire.ToolSpec("b")])
    body = mark_breakpoints({**request.body, "tools": tools}, compacted=request.compacted)

    assert 4 == request.compacted
    assert [("system", 0), ("messages", 3), ("messages", 6), ("messages", 8)] == marked(body)
    assert "tea" == body["messages"][3]["content"][-1]["text"]

    plain = wire.to("anthropic", [system("be kind"), user("x"), assistant("y"), user("z")])
    body = mark_breakpoints({**plain.body, "tools": tools}, compacted=plain.compacted, ttl="1h")
    everywhere = [("tools", 1), ("system", 0), ("messages", 0), ("messages", 2)]
    assert everywhere == marked(body)
    assert {"type": "ephemeral", "ttl": "1h"} == body["tools"][1]["cache_control"]
    deferred = mark_breakpoints(
        {**plain.body, "tools": [tools[0], {**tools[1], "defer_loading": True}]}
    )
    assert ("tools", 0) == marked(deferred)[0]
    assert [] == marked(mark_breakpoints(sent(user("x")).body, grows=False))


def test_a_request_that_ended_with_a_system_message_is_found_there() -> None:
    body = {
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "system", "content": "be kind"},
            {"role": "assistant", "content": "y"},
            {"role": "user", "content": "z"},
        ]
    }
    assert [("messages", 1), ("messages", 3)] == marked(mark_breakpoints(body))


def test_a_summary_that_is_written_again_is_found_at_its_new_place() -> None:
    converter = wire.converter("anthropic")
    converter.extend([user("x"), calling(), user("so?"), *summary("tea")])
    before = converter.request().compacted
    converter.extend([result()])  # late: everything from its call on is written again

    assert (4, 4) == (before, converter.request().compacted)


def test_breakpoints_of_others_give_way_also_inside_results() -> None:
    inner = [text("4", **MARK)]
    body: dict[str, Any] = {
        "system": [text("a", **MARK), text("b", **MARK)],
        "messages": [
            {"role": "user", "content": [text("x", **MARK), text("y", **MARK)]},
            {"role": "assistant", "content": [{**use(), **MARK}]},
            {"role": "user", "content": [{**answer(), "content": inner}, text("z", **MARK)]},
        ],
    }
    written = msgspec.json.encode(body)
    again = mark_breakpoints(body)

    assert [("system", 1), ("messages", 0), ("messages", 2)] == marked(again)
    assert 3 == msgspec.json.encode(again).count(b"cache_control")
    assert written == msgspec.json.encode(body)


def test_reasoning_and_empty_texts_get_no_breakpoint() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    content = [text("x"), text(""), thinking]
    body = {
        "messages": [{"role": "user", "content": content}, {"role": "user", "content": [thinking]}]
    }
    blocks = mark_breakpoints(body, compacted=1)["messages"][0]["content"]

    assert [True, False, False] == ["cache_control" in each for each in blocks]
