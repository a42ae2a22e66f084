"""OpenAI Chat Completions, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from palaver import wire
from palaver.messages import (
    AssistantInfo,
    FilePart,
    Message,
    ModelRef,
    TextPart,
    ToolCallPart,
    UnknownPart,
    assistant,
    fail,
    file_part,
    pending,
    start,
    system,
    text_part,
    tool_part,
    user,
)
from palaver.messages.parts import compaction_part, step_start_part, subtask_part
from palaver.testing import check_request
from palaver.wire import Target
from tests.wire.pieces import PDF, PIXEL, S, block, call, calling, judged, result, rules, thought

if TYPE_CHECKING:
    from palaver.wire import ParsedConversation, Request

FORM: Final = "openai-chat"
PNG = f"data:image/png;base64,{PIXEL}"


def sent(*talk: Message, **target: Any) -> Request:  # noqa: ANN401 - a Target's
    """What goes out, which OpenAI must take."""
    return judged(FORM, talk, Target(**target))


def read(*elements: dict[str, Any], **fields: Any) -> ParsedConversation:  # noqa: ANN401 - of the body
    """What is read, which must give the very same again."""
    body = {"messages": list(elements), **fields}
    assert () == check_request(FORM, body)
    parsed = wire.from_(FORM, body)
    assert list(elements) == wire.to(FORM, parsed.messages).items
    return parsed


def said(text: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": text}


def test_words_go_out_as_they_are() -> None:
    talk = [system("s"), user("a"), user(""), assistant("b"), system("again"), assistant(" ")]

    assert [{"role": one.role, "content": one.content} for one in talk] == sent(*talk).items


def test_parts_of_a_user_become_blocks() -> None:
    talk = user(
        [
            text_part(S, S, "look"),
            text_part(S, S, ""),
            text_part(S, S, "hidden", ignored=True),
            file_part(S, S, "image/png", PNG),
            file_part(S, S, "image/gif", "https://example.org/a.gif"),
            file_part(S, S, "application/pdf", f"data:application/pdf;base64,{PDF}"),
            file_part(S, S, "audio/x-wav", "data:audio/x-wav;base64,aGk="),
            file_part(S, S, "text/css", "data:text/css,a%20b"),
            subtask_part(S, S, "dig", "d", "mole"),
            compaction_part(S, S, auto=True),
        ]
    )
    request = sent(talk)

    assert [
        said("look"),
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.gif"}},
        {
            "type": "file",
            "file": {
                "filename": "file.pdf",
                "file_data": f"data:application/pdf;base64,{PDF}",
            },
        },
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        said("a b"),
        said("Task for mole: dig"),
        said("What did we do so far?"),
    ] == request.items[0]["content"]
    assert ["media"] == rules(request)


@pytest.mark.parametrize(
    ("mime", "url"),
    [
        ("application/pdf", "https://example.org/a.pdf"),
        ("image/tiff", "data:image/tiff;base64,aGk="),
        ("text/plain", "data:text/plain;base64,/w=="),
        ("text/plain", "data:text/plain,"),
        ("application/zip", "file:///etc/passwd"),
    ],
)
def test_a_file_that_can_not_go_is_named(mime: str, url: str) -> None:
    request = sent(user([file_part(S, S, mime, url, filename="a.bin")]))

    assert [said(f"[a file 'a.bin' of type {mime} is not included]")] == request.items[0]["content"]
    assert ["media"] == rules(request)


def test_files_are_only_a_users_and_only_for_whom_takes_them() -> None:
    picture, paper = file_part(S, S, "image/png", PNG), file_part(S, S, "text/plain", "data:,hi")
    stays = [said("[a file of type image/png is not included]")]

    assert stays == sent(system([picture])).items[0]["content"]
    assert stays == sent(user([picture]), images=False).items[0]["content"]
    assert (
        "[a file of type image/png is not included]"
        == sent(assistant([picture])).items[0]["content"]
    )
    words = sent(user([paper]), files=False).items[0]["content"]
    assert [said("[a file of type text/plain is not included]")] == words


def test_an_answer_is_words_and_calls_and_its_results_follow() -> None:
    both = calling(text_part(S, S, "Let"), text_part(S, S, " me."), call("c1"), call("c2"))
    request = sent(user("x"), both, result("c2", "two"), result("c1", "one"))

    answer, two, one = request.items[1:]
    assert "Let me." == answer["content"]
    assert ["c1", "c2"] == [asked["id"] for asked in answer["tool_calls"]]
    assert {"name": "ls", "arguments": '{"path":"/"}'} == answer["tool_calls"][0]["function"]
    assert {"role": "tool", "tool_call_id": "c2", "content": "two"} == two
    assert {"role": "tool", "tool_call_id": "c1", "content": "one"} == one
    assert () == request.notes


def test_what_is_ignored_in_an_answer_stays_at_home() -> None:
    hidden = text_part(S, S, "hidden", ignored=True)
    request = sent(user("x"), calling(hidden, text_part(S, S, "shown"), call()), result())

    assert "shown" == request.items[1]["content"]


def test_what_another_format_said_in_a_result_is_noted() -> None:
    kept = {"wire": {"anthropic": {"items": {"0": ["print", [["cache_control"], {}]]}}}}
    outcome = Message("tool", result().parts, metadata=kept)
    request = sent(user("x"), calling(), outcome)

    assert [("foreign-detail", outcome.id)] == [(n.rule, n.message_id) for n in request.losses]


def test_a_file_by_its_id_is_only_a_users() -> None:
    stored = block(FORM, {"type": "file", "file": {"file_id": "file-1"}})
    request = sent(system([text_part(S, S, "s"), stored]), user([stored]))

    assert [[said("s")], [{"type": "file", "file": {"file_id": "file-1"}}]] == [
        item["content"] for item in request.items
    ]
    assert ["unknown-part"] == rules(request)


def test_words_after_a_call_move_before_it_and_that_is_said_once() -> None:
    late = calling(call(), text_part(S, S, "a"), call("c2"), text_part(S, S, "b"))
    request = sent(user("x"), late, result(), result("c2"))

    assert "ab" == request.items[1]["content"]
    assert ["order"] == rules(request)


@pytest.mark.parametrize(
    ("raw", "expected", "told"),
    [
        ('{ "path" : "/" }', '{ "path" : "/" }', []),
        ("", '{"path":"/"}', []),
        ("[1]", '{"path":"/"}', ["call-arguments"]),
        ("{", '{"path":"/"}', ["call-arguments"]),
    ],
)
def test_arguments_go_back_to_the_letter_where_they_are_an_object(
    raw: str, expected: str, told: list[str]
) -> None:
    request = sent(user("x"), calling(call(raw=raw)), result())

    assert expected == request.items[1]["tool_calls"][0]["function"]["arguments"]
    assert told == rules(request)


def test_a_tool_that_takes_free_text_gets_it_to_the_letter() -> None:
    free = call(raw="ls -l", metadata={"openai": {"custom": True}})
    request = sent(user("x"), calling(free), result())

    wanted = {"id": "c1", "type": "custom", "custom": {"name": "ls", "input": "ls -l"}}
    assert [wanted] == request.items[1]["tool_calls"]


def test_that_a_call_failed_and_what_it_made_is_noted_as_far_as_it_can_be() -> None:
    failed = fail(start(pending({}, "")), "no such file")
    broken = Message("tool", (tool_part(S, S, "c1", "ls", failed),))
    picture = result("c2", "done", file_part(S, S, "image/png", PNG))
    request = sent(user("x"), calling(call(), call("c2")), broken, picture)

    assert ["no such file", "done"] == [item["content"] for item in request.items[2:]]
    assert ["failed-result", "media"] == rules(request)


def test_thoughts_go_back_only_to_the_server_that_named_its_field() -> None:
    model = ModelRef("openai", "deepthought")
    kept = {"openai": {"field": "reasoning_content"}}
    answer = calling(thought(kept, "hm"), text_part(S, S, "42"), info=AssistantInfo(model=model))
    same = wire.to(FORM, [user("x"), answer], Target(model))

    assert "hm" == same.items[1]["reasoning_content"]
    for target in (Target(), Target(ModelRef("openai", "gpt-5"))):
        other = wire.to(FORM, [user("x"), answer], target)
        assert {"role": "assistant", "content": "42"} == other.items[1]
        assert ["foreign-reasoning"] == rules(other)
    odd = calling(thought({"openai": {"field": "content"}}), info=AssistantInfo(model=model))
    assert ["foreign-reasoning", "empty-text"] == rules(
        wire.to(FORM, [user("x"), odd], Target(model))
    )


def test_what_was_said_aloud_goes_back_by_its_id() -> None:
    sound = {"audio": {"id": "audio_1", "data": "aGk=", "transcript": "hi"}, "role": "system"}
    request = sent(user("x"), assistant([block(FORM, sound)]))

    assert {"role": "assistant", "content": None, "audio": {"id": "audio_1"}} == request.items[1]


@pytest.mark.parametrize("raw", [{}, {"audio": 5}, {"audio": {"id": " "}}, {"content": "x"}])
def test_nothing_else_gets_into_an_answer(raw: dict[str, Any]) -> None:
    request = sent(user("x"), assistant([block(FORM, raw), text_part(S, S, "y")]))

    assert {"role": "assistant", "content": "y"} == request.items[1]
    assert ["unknown-part"] == rules(request)


def test_messages_with_nothing_to_send_are_left_out() -> None:
    step = step_start_part(S, S)
    request = sent(user("x"), user([step]), user([call()]))

    assert [{"role": "user", "content": "x"}] == request.items
    assert 2 == rules(request).count("empty-text")
    assert 2 == rules(request).count("unknown-part")


def test_an_answer_of_nothing_but_its_step_is_an_empty_answer() -> None:
    request = sent(user("x"), assistant([step_start_part(S, S)]))

    assert sent(user("x"), assistant("")).items == request.items
    assert [] == rules(request)


def test_roles_and_words_are_read() -> None:
    parsed = read(
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hello", "name": "ada"},
        {"role": "assistant", "content": "Hi."},
        model="gpt-5",
        temperature=1,
    )

    assert ["system", "user", "assistant"] == [message.role for message in parsed.messages]
    assert ["Be brief.", "Hello", "Hi."] == [message.content for message in parsed.messages]
    assert AssistantInfo(model=ModelRef("openai", "gpt-5")) == parsed.messages[2].info
    assert {"model": "gpt-5", "request": {"model": "gpt-5", "temperature": 1}} == parsed.about
    assert () == parsed.notes


def test_calls_and_results_are_read() -> None:
    function = {"name": "ls", "arguments": '{ "path": "/" }'}
    free = {"name": "sh", "input": "ls -l"}
    parsed = read(
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": function},
                {"id": "c2", "type": "custom", "custom": free},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a"},
        {"role": "tool", "tool_call_id": "c2", "content": [said("b"), said("c")]},
    )

    words, first, second = parsed.messages[1].parts
    assert isinstance(words, TextPart)
    assert isinstance(first, ToolCallPart)
    assert isinstance(second, ToolCallPart)
    assert ("ls", {"path": "/"}, '{ "path": "/" }') == (first.tool, first.input, first.raw)
    assert ("sh", {}, "ls -l") == (second.tool, second.input, second.raw)
    outcomes: list[Any] = [message.parts[0] for message in parsed.messages[2:]]
    assert [("ls", "a"), ("sh", "b\nc")] == [(part.tool, part.state.output) for part in outcomes]


def test_an_answer_without_content_is_read_and_written_as_it_was() -> None:
    asked = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    outcome = {"role": "tool", "tool_call_id": "c1", "content": ""}
    opening = {"role": "user", "content": "x"}

    for content in ({"content": None}, {}, {"content": ""}):
        read(opening, {"role": "assistant", **content, "tool_calls": [asked]}, outcome)


def test_files_are_read() -> None:
    pdf = f"data:application/pdf;base64,{PDF}"
    parsed = read(
        {
            "role": "user",
            "content": [
                said("look"),
                {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
                {"type": "file", "file": {"file_data": pdf, "filename": "a.pdf"}},
                {"type": "file", "file": {"file_id": "file-1"}},
            ],
        }
    )
    look, picture, sound, paper, stored = parsed.messages[0].parts

    assert isinstance(look, TextPart)
    assert isinstance(stored, UnknownPart)
    files = [part for part in (picture, sound, paper) if isinstance(part, FilePart)]
    assert ["image/png", "audio/mpeg", "application/pdf"] == [file.mime for file in files]
    assert [None, None, "a.pdf"] == [file.filename for file in files]


def test_a_refusal_and_a_sound_are_read() -> None:
    opening = {"role": "user", "content": "x"}
    refused = read(opening, {"role": "assistant", "content": None, "refusal": "No."})
    listed = read(
        opening, {"role": "assistant", "content": [said("a"), {"type": "refusal", "refusal": "b"}]}
    )
    heard = read(opening, {"role": "assistant", "content": None, "audio": {"id": "audio_1"}})

    (no,) = refused.messages[1].parts
    assert isinstance(no, TextPart)
    assert ("No.", {"openai": {"refusal": True}}) == (no.text, no.metadata)
    assert "ab" == listed.messages[1].text
    assert isinstance(heard.messages[1].parts[0], UnknownPart)


def test_what_is_damaged_is_reported_and_the_rest_is_read() -> None:
    body = {
        "messages": [
            5,
            {"role": "narrator", "content": "Once"},
            {"role": "user", "content": [5, said("a"), {"type": "image_url", "image_url": 5}]},
            {
                "role": "assistant",
                "tool_calls": [5, {"type": "function"}, {"function": {"name": 5}}],
            },
            {"role": "user", "content": None},
        ]
    }
    parsed = wire.from_(FORM, body)

    assert ["role", "role", "unknown-part", "call", "call", "inexact"] == [
        note.rule for note in parsed.notes
    ]
    (asked,) = parsed.messages[1].parts
    assert isinstance(asked, ToolCallPart)
    assert ("5", {}) == (asked.tool, asked.input)
    assert () == check_request(FORM, wire.to(FORM, parsed.messages).body)
