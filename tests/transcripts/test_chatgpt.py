from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from palaver.messages import (
    AssistantInfo,
    FilePart,
    ReasoningPart,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
)
from palaver.transcripts import chatgpt
from tests.transcripts.samples import sample, sound, spoken

if TYPE_CHECKING:
    from palaver.wire.notes import ParsedConversation


def node(
    parent: str | None, role: str | None, content: object = None, **more: object
) -> dict[str, Any]:
    recipient, name = more.pop("recipient", "all"), more.pop("name", None)
    said = {
        "author": {"role": role, "name": name},
        "content": content if isinstance(content, dict) else {"parts": [content]},
        "metadata": more,
        "recipient": recipient,
    }
    return {"message": said if role else None, "parent": parent, "children": []}


def read_nodes(
    current: str, *, branches: bool = False, **nodes: object
) -> list[ParsedConversation]:
    document = {"id": "c", "current_node": current, "mapping": nodes}
    return sound(chatgpt.read(json.dumps(document).encode(), branches=branches))


def test_the_way_to_the_current_message_is_read() -> None:
    first, empty = sound(chatgpt.read(sample("chatgpt.json")))
    assert [
        ("user", "I keep cups.\n\nBe brief."),
        ("user", "How heavy is this cup?"),
        ("assistant", ""),
        ("assistant", ""),
        ("tool", "300"),
        ("assistant", "300 grams."),
        ("user", "And in ounces?"),
        ("assistant", ""),
        ("tool", "The page did not answer."),
        ("assistant", "About 10.6."),
    ] == spoken(first.messages)
    assert () == empty.messages
    assert ("A cup's weight", "gpt-5") == (first.about["title"], first.about["model"])
    rules = ["transcript.branch", "transcript.record"]
    assert rules == [note.rule for note in first.notes]


def test_thoughts_calls_and_results_are_parts() -> None:
    first = next(chatgpt.read(sample("chatgpt.json")))
    _, asked, thought, code, result, answer, _, _, failed, _ = first.messages
    assert isinstance(asked.parts[0], FilePart)
    assert isinstance(thought.parts[0], ReasoningPart)
    call, done, error = code.parts[0], result.parts[0], failed.parts[0]
    assert isinstance(call, ToolCallPart)
    assert ("code", "python", "print(2 * 150)") == (call.call_id, call.tool, call.raw)
    assert isinstance(done, ToolPart)
    assert isinstance(done.state, ToolCompleted)
    assert ("code", 1) == (done.call_id, len(done.state.attachments or ()))
    assert isinstance(error, ToolPart)
    assert isinstance(error.state, ToolError)
    assert isinstance(answer.info, AssistantInfo)
    assert "length" == answer.info.finish


def test_a_branch_is_a_conversation_of_its_own() -> None:
    _, branch, _ = sound(chatgpt.read(sample("chatgpt.json"), branches=True))
    assert "A first try." == branch.messages[-1].text
    assert ("a0", 2) == (branch.about["id"], branch.about["branch"])


def test_a_branch_that_adds_nothing_is_left_out() -> None:
    nodes = {"r": node(None, None), "u": node("r", "user", "hi"), "x": node("u", "system", "")}
    assert 1 == len(read_nodes("u", branches=True, **nodes))


def test_contents_of_every_kind() -> None:
    (parsed,) = read_nodes(
        "f",
        a=node("missing", "system", {"parts": ["", None, 7, {"odd": 1}, {"text": "spoken"}]}),
        b=node("a", "tool", {"result": "found"}, name="browser"),
        c=node(
            "b", "user", {"content_type": "thoughts", "parts": ["why?"]}, is_visually_hidden=True
        ),
        d=node("c", "critic", {"parts": [{"asset_pointer": "x", "content_type": "audio_clip"}]}),
        e=node("d", "assistant", "search()", recipient="browser"),
        f=node("e", "tool", {"parts": ["late"]}, name="other", attachments=[1]),
    )
    assert [
        ("system", '7{"odd":1}spoken'),
        ("tool", "found"),
        ("user", "why?"),
        ("user", ""),
        ("assistant", ""),
        ("tool", "late"),
    ] == spoken(parsed.messages)
    assert ["transcript.role"] == [note.rule for note in parsed.notes]


def test_damage_is_noted() -> None:
    document = [7, {"current_node": "gone", "mapping": {"a": node("b", "user", "hi"), "b": 7}}]
    wrong, parsed = sound(chatgpt.read(json.dumps(document).encode()))
    assert ["$[0]"] == [note.where for note in wrong.notes]
    assert ["hi"] == [message.text for message in parsed.messages]
    assert ["transcript.damaged"] * 2 == [note.rule for note in parsed.notes]
    assert () == next(chatgpt.read(b'{"mapping": {}, "create_time": 1}')).messages


def test_no_content_goes_without_a_note() -> None:
    shown = {"content_type": "tether_browsing_display", "result": "", "summary": "Cups, a page"}
    (found,) = read_nodes(
        "d",
        a=node(None, "tool", shown, name="browser"),
        b=node("a", "assistant", {"content_type": "note", "content": "Cups are small."}),
        c=node("b", "assistant", {"content_type": "widget", "language": "en", "state": {"x": 1}}),
        d=node("c", "assistant", {"content_type": "code", "language": "python", "text": ""}),
    )
    assert [("tool", "Cups, a page"), ("assistant", "Cups are small.")] == spoken(found.messages)
    assert ["node c: widget: is of a kind that palaver does not know (transcript.record)"] == [
        str(note) for note in found.notes
    ]
