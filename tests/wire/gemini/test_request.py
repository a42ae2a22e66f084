"""Gemini contents: each rule by name."""

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

PRO: Final = ModelRef("google", "gemini-3-pro")
OLD: Final = ModelRef("google", "gemini-2.5-pro")
SIGNED: Final = {"google": {"thoughtSignature": "c2ln"}}
STAND_IN: Final = "skip_thought_signature_validator"


def sent(*messages: Message, target: Target = ANYONE, open_calls: tuple[str, ...] = ()) -> Request:
    """Write, and have the result judged."""
    return judged("gemini", messages, target, open_calls)


def parts(request: Request) -> list[Any]:
    return [element["parts"] for element in request.items]


def said(words: str, **fields: object) -> dict[str, Any]:
    return {"text": words, **fields}


def asked(tool: str = "ls", signature: str | None = "c2ln", **fields: object) -> dict[str, Any]:
    found: dict[str, Any] = {"functionCall": {"name": tool, "args": {"path": "/"}, **fields}}
    return found if signature is None else {**found, "thoughtSignature": signature}


def given(output: str = "a b", tool: str = "ls", **fields: object) -> dict[str, Any]:
    return {"functionResponse": {"name": tool, "response": {"output": output}, **fields}}


def failed(error: str, tool: str = "ls") -> dict[str, Any]:
    return {"functionResponse": {"name": tool, "response": {"error": error}}}


CALL: Final = call(metadata=SIGNED)


def test_a_plain_conversation_is_written_plainly() -> None:
    request = sent(system("Be brief."), user("Tea?"), assistant("Yes."), user("How?"))

    assert {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Tea?"}]},
            {"role": "model", "parts": [{"text": "Yes."}]},
            {"role": "user", "parts": [{"text": "How?"}]},
        ],
    } == request.body
    assert () == request.notes


def test_several_leading_system_messages_are_one_instruction() -> None:
    image = file_part(S, S, "image/png", "https://example.org/a.png")
    second = system([text_part(S, S, "Two."), image, CALL])
    request = sent(system("One."), system(""), second, user("x"))

    word = said("[a file of type image/png is not included]")
    assert [said("One."), said("Two."), word] == request.body["systemInstruction"]["parts"]
    assert ["media", "unknown-part"] == rules(request)


def test_an_orphan_result_is_left_out() -> None:
    request = sent(user("x"), result("c9"))

    assert [[said("x")]] == parts(request)
    assert ["result-without-call"] == rules(request)


def test_an_orphan_call_gets_a_response_that_says_so() -> None:
    request = sent(user("x"), calling(CALL), user("y"))

    missing = failed("(no result: the call was interrupted)")
    assert [[said("x")], [asked()], [missing], [said("y")]] == parts(request)
    assert ["call-without-result"] == rules(request)


def test_a_call_still_at_work_keeps_its_place() -> None:
    request = sent(user("x"), calling(CALL), open_calls=("c1",))

    assert [failed("(no result yet: the call is still running)")] == parts(request)[2]


def test_two_results_for_one_call_leave_one() -> None:
    request = sent(user("x"), calling(CALL), result(), result(output="again"))

    assert [given()] == parts(request)[2]
    assert ["duplicate-result"] == rules(request)


def test_a_result_before_its_call_moves_behind_it() -> None:
    request = sent(user("x"), result(), calling(CALL))

    assert [[said("x")], [asked()], [given()]] == parts(request)
    assert ["result-out-of-order"] == rules(request)


def test_a_late_result_goes_to_its_call_and_what_was_said_since_stays() -> None:
    request = sent(user("x"), calling(CALL), user("and?"), assistant("Wait."), user("ok"), result())

    assert [
        [said("x")],
        [asked()],
        [given()],
        [said("and?")],
        [said("Wait.")],
        [said("ok")],
    ] == parts(request)
    assert ["result-out-of-order"] == rules(request)


def test_an_empty_tool_output_is_said_in_words() -> None:
    assert [given("(no output)")] == parts(sent(user("x"), calling(CALL), result(output="")))[2]


def test_a_whitespace_only_answer_is_taken_and_an_empty_one_left_out() -> None:
    request = sent(user("x"), assistant(" \n"), user("y"), assistant(""), user("z"))

    assert [[said("x")], [said(" \n")], [said("y"), said("z")]] == parts(request)
    assert ["empty-text"] == rules(request)


def test_empty_texts_are_left_out_unless_they_carry_a_signature() -> None:
    answer = assistant([text_part(S, S, ""), text_part(S, S, "", metadata=SIGNED)])
    request = sent(user([text_part(S, S, "")]), user("x"), answer, user("y"))

    assert [[said("x")], [said("", thoughtSignature="c2ln")], [said("y")]] == parts(request)
    assert ["empty-text", "empty-text", "empty-text"] == rules(request)


def test_a_system_message_in_the_middle_stays_there_as_words() -> None:
    request = sent(user("x"), assistant("y"), system("Be kind."), user("z"), system(" "))

    assert [said("<system>\nBe kind.\n</system>"), said("z")] == parts(request)[2]
    assert ["system-placement", "empty-text"] == rules(request)


def test_an_answer_first_gets_an_opening() -> None:
    request = sent(assistant("Hello!"), user("Hi."))

    assert [said("(the conversation begins here)")] == parts(request)[0]
    assert ["first-role"] == rules(request)


def test_an_answer_last_gets_a_closing_unless_it_is_to_be_continued() -> None:
    assert [said("(please continue)")] == parts(sent(user("x"), assistant("So ")))[2]
    request = sent(user("x"), assistant("So "), target=Target(prefill=True))
    assert [[said("x")], [said("So ")]] == parts(request)


def test_five_parallel_calls_with_one_missing() -> None:
    ids = ["c1", "c2", "c3", "c4", "c5"]
    calls = [call(name, metadata=SIGNED if name == "c1" else {}) for name in ids]
    results = [result(name, name) for name in ("c5", "c1", "c2", "c4")]
    request = sent(user("x"), calling(*calls), *results, user("y"))

    missing = failed("(no result: the call was interrupted)")
    expected = [given("c1"), given("c2"), missing, given("c4"), given("c5")]
    assert expected == parts(request)[2]  # of one name: only their order tells them apart
    assert [asked(), *[asked(signature=None)] * 4] == parts(request)[1]
    assert ["call-without-result"] == rules(request)


def test_results_that_names_or_ids_tell_apart_stay_in_the_order_they_came() -> None:
    named = calling(CALL, call("c2", "cat"))
    request = sent(user("x"), named, result("c2"), result("c1"))
    assert [given(tool="cat"), given()] == parts(request)[2]

    ids = [{"google": {"id": name, "thoughtSignature": "c2ln"}} for name in ("f1", "f2")]
    told = calling(call("f1", metadata=ids[0]), call("f2", metadata=ids[1]))
    request = sent(user("x"), told, result("f2"), result("f1"))
    assert [given(id="f2"), given(id="f1")] == parts(request)[2]


def test_an_interrupted_call_says_so() -> None:
    broken = tool_part(S, S, "c1", "ls", fail(start(pending({}, "")), "interrupted"))

    request = sent(user("x"), calling(CALL), Message("tool", (broken,)))
    assert [failed("interrupted")] == parts(request)[2]


def test_a_call_id_of_200_characters_is_sent_only_where_gemini_gave_it() -> None:
    own = {"google": {"id": "x" * 200, "thoughtSignature": "c2ln"}}
    request = sent(user("x"), calling(call("x" * 200, metadata=own)), result("x" * 200))
    assert [asked(id="x" * 200)] == parts(request)[1]
    assert [given(id="x" * 200)] == parts(request)[2]

    foreign = calling(call("x" * 200, metadata=SIGNED))
    assert [asked()] == parts(sent(user("x"), foreign, result("x" * 200)))[1]


def test_the_same_id_twice_in_one_answer_is_noted_apart() -> None:
    own = {"google": {"id": "f1", "thoughtSignature": "c2ln"}}
    both = calling(call("f1", metadata=own), call("f1", metadata=own))
    request = sent(user("x"), both, result("f1", "one"), result("f1", "two"))

    assert [given("one", id="f1"), given("two", id="f1#2")] == parts(request)[2]
    assert ["duplicate-call-id"] == rules(request)


def test_a_tool_name_with_a_dot_is_fine_and_one_with_a_space_is_mapped() -> None:
    request = sent(user("x"), calling(call(tool="disk.ls", metadata=SIGNED)), result())
    assert [asked("disk.ls")] == parts(request)[1]
    assert () == request.notes

    request = sent(user("x"), calling(call(tool="1 ls", metadata=SIGNED)), result())
    spelled = parts(request)[1][0]["functionCall"]["name"]
    assert spelled == parts(request)[2][0]["functionResponse"]["name"]
    parsed = wire.from_("gemini", request.body, names=request.names)
    assert "1 ls" == part(parsed.messages[1]).tool
    assert ["tool-name"] == rules(request)


def test_arguments_that_are_no_object_are_sent_in_one() -> None:
    broken = tool_call_part(S, S, "ls", {}, call_id="c1", raw="[1]", metadata=SIGNED)
    request = sent(user("x"), calling(broken), result())

    assert {"freeform_input": "[1]"} == parts(request)[1][0]["functionCall"]["args"]
    assert ["freeform-input"] == rules(request)


@pytest.mark.parametrize(
    ("mime", "url", "expected"),
    [
        (
            "image/png",
            f"data:image/png;base64,{PIXEL}",
            {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
        ),
        (
            "text/plain; charset=utf-8",
            "data:text/plain,hi",
            {"inlineData": {"mimeType": "text/plain", "data": "aGk="}},
        ),
        (
            "video/mp4",
            "gs://bucket/a.mp4",
            {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/a.mp4"}},
        ),
        ("image/*", "https://example.org/a", {"fileData": {"fileUri": "https://example.org/a"}}),
    ],
)
def test_files_go_as_data_or_by_reference(mime: str, url: str, expected: dict[str, Any]) -> None:
    request = sent(user([file_part(S, S, mime, url)]))

    assert [[expected]] == parts(request)
    assert () == request.notes


@pytest.mark.parametrize(
    ("mime", "url"),
    [
        ("image/gif", "data:image/gif;base64,aGk="),
        ("image/gif", "https://example.org/a.gif"),
        ("image/png", "http://example.org/a.png"),
        ("image/png", "data:image/png;base64,***"),
        ("text/x-empty", "data:text/x-empty,"),
        ("application/zip", "file:///etc/passwd"),
    ],
)
def test_a_file_that_cannot_go_is_named(mime: str, url: str) -> None:
    request = sent(user([file_part(S, S, mime, url)]))

    assert [[said(f"[a file of type {mime} is not included]")]] == parts(request)
    assert ["media"] == rules(request)


def test_a_text_of_a_type_that_gemini_does_not_know_goes_as_words() -> None:
    request = sent(user([file_part(S, S, "text/yaml", "data:text/yaml,a%3A%201")]))

    assert [[said("a: 1")]] == parts(request)
    assert ["media"] == rules(request)


def test_an_image_the_model_cant_take_is_named() -> None:
    image = file_part(S, S, "image/png", f"data:image/png;base64,{PIXEL}")
    blind = Target(images=False)
    request = sent(user([image]), calling(CALL), result("c1", "x", image), target=blind)

    assert [said("[a file of type image/png is not included]")] == parts(request)[0]
    assert [given("x")] == parts(request)[2]
    assert ["media", "media"] == rules(request)


def test_files_of_a_result_go_with_it_to_models_that_take_them() -> None:
    files = [
        file_part(S, S, "image/png", f"data:image/png;base64,{PIXEL}"),
        file_part(S, S, "application/pdf", f"data:application/pdf;base64,{PDF}"),
    ]
    talk = [user("x"), calling(CALL), result("c1", "see", *files)]

    held = [
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
        {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
    ]
    assert [given("see", parts=held)] == parts(sent(*talk))[2]
    old = sent(*talk, target=Target(OLD))
    assert [given("see")] == parts(old)[2]
    assert ["foreign-reasoning", "media", "media"] == rules(old)


def test_thoughts_and_signatures_go_back_to_the_model_that_made_them() -> None:
    answer = calling(
        thought(SIGNED),
        thought({"google": {}}),
        thought({"google": {}}, ""),
        text_part(S, S, "y", metadata=SIGNED),
        CALL,
        info=AssistantInfo(model=PRO),
    )

    for target in (ANYONE, Target(PRO)):
        request = sent(user("x"), answer, result(), target=target)
        assert [
            said("hm", thought=True, thoughtSignature="c2ln"),
            said("hm", thought=True),
            said("y", thoughtSignature="c2ln"),
            asked(),
        ] == parts(request)[1]
        assert () == request.notes


def test_a_reasoning_block_after_a_model_switch_stays_at_home() -> None:
    made = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "c2ln"}
    answer = calling(thought(SIGNED), block("gemini", made), CALL, info=AssistantInfo(model=OLD))
    request = sent(user("x"), answer, result(), target=Target(PRO))

    code = {"executableCode": {"language": "PYTHON", "code": "1"}}
    assert [code, asked(signature=STAND_IN)] == parts(request)[1]
    assert ["foreign-reasoning"] * 3 + ["missing-signature"] == rules(request)


def test_a_call_of_another_provider_gets_the_signature_that_google_names() -> None:
    talk = [user("x"), calling(call(), call("c2", "cat")), result(), result("c2")]

    for target in (ANYONE, Target(PRO), Target(ModelRef("google", "gemini-flash-latest"))):
        request = sent(*talk, target=target)
        assert [asked(signature=STAND_IN), asked("cat", None)] == parts(request)[1]
        assert ["missing-signature"] == rules(request)
    old = wire.to("gemini", talk, Target(OLD))
    assert [asked(signature=None), asked("cat", None)] == parts(old)[1]
    assert () == old.notes


def test_a_signature_that_is_none_is_not_sent() -> None:
    broken = call(metadata={"google": {"thoughtSignature": "*"}})
    request = sent(user("x"), calling(broken), result())

    assert [asked(signature=STAND_IN)] == parts(request)[1]


def test_parts_without_a_place_are_reported() -> None:
    odd = user([subtask_part(S, S, "dig", "d", "mole"), step_start_part(S, S), CALL])
    alien = assistant([thought({"anthropic": {"signature": "a"}})])
    request = sent(odd, alien)

    assert [[said("Task for mole: dig")]] == parts(request)
    assert ["unknown-part", "unknown-part", "foreign-reasoning", "empty-text"] == rules(request)


@pytest.mark.parametrize("raw", [{}, {"text": 5}, {"thought": True}, {"functionCall": {}}])
def test_a_unknown_part_that_could_not_stand_is_reported(raw: dict[str, Any]) -> None:
    request = sent(user("x"), assistant([block("gemini", raw), text_part(S, S, "y")]), user("z"))

    assert [said("y")] == parts(request)[1]
    assert ["unknown-part"] == rules(request)


@pytest.mark.parametrize("field", ["thought", "thoughtSignature", "partMetadata"])
def test_a_field_of_a_unknown_part_that_is_null_is_not_sent(field: str) -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}}
    request = sent(user("x"), assistant([block("gemini", {**code, field: None})]), user("z"))

    assert [code] == parts(request)[1]
    assert [] == rules(request)


def test_what_only_a_model_may_say_is_not_put_into_the_mouth_of_a_user() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}}
    request = sent(user([block("gemini", code), text_part(S, S, "y")]))

    assert [[said("y")]] == parts(request)
    assert ["unknown-part"] == rules(request)


def test_a_request_handed_out_never_changes_and_a_prefix_stays_the_same() -> None:
    converter = wire.converter("gemini")
    talk = [user("x"), user("y"), assistant("v"), calling(), calling(call("c2")), result("c2")]
    handed = []
    for message in [*talk, user("z"), assistant("w")]:
        converter.extend([message])
        request = converter.request()
        handed.append((request, msgspec.json.encode(request.body)))

    assert all(written == msgspec.json.encode(request.body) for request, written in handed)
    assert parts(handed[-1][0])[:5] == parts(handed[5][0])[:5]
