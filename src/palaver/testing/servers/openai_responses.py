"""OpenAI Responses, as a server speaks it: named events, each with its number, and no `[DONE]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.messages.gate import is_list
from palaver.testing.servers.openai_chat import CREATED, OpenAITongue, text_in
from palaver.testing.servers.script import pieces
from palaver.testing.servers.tongue import event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.testing.servers.script import Turn

__all__ = ["RESPONSES"]


class Responses(OpenAITongue):
    """Responses."""

    def knows(self, path: str) -> bool:
        """One path."""
        return path == "/v1/responses"

    def said(self, body: Mapping[str, Any]) -> str:
        """The last item's text."""
        given = body["input"]
        if is_list(given) and given:
            return text_in(given[-1].get("content", given[-1].get("output")))
        return str(given)

    def whole(self, turn: Turn) -> dict[str, Any]:
        """A response."""
        return _response(turn, done=True)

    def stream(self, turn: Turn) -> Iterator[bytes]:
        """Events from `response.created` to `response.completed`."""
        for number, (name, fields) in enumerate(_events(turn)):
            yield event(name, {"type": name, "sequence_number": number, **fields})


def _events(turn: Turn) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in ("response.created", "response.in_progress"):
        yield name, {"response": _response(turn, done=False)}
    writers = {"reasoning": _thinking, "message": _saying, "function_call": _calling}
    for place, item in enumerate(_items(turn)):
        at = {"item_id": item["id"], "output_index": place}
        opened = {**item, "status": "in_progress"}
        if item["type"] == "function_call":
            opened["arguments"] = ""
        elif item["type"] == "message":
            opened["content"] = []
        else:
            opened = {**item, "summary": []}
        yield "response.output_item.added", {"output_index": place, "item": opened}
        yield from writers[item["type"]](turn, item, at)
        yield "response.output_item.done", {"output_index": place, "item": item}
    last = _response(turn, done=True)
    yield f"response.{last['status']}", {"response": last}


def _thinking(turn: Turn, item: dict[str, Any], at: dict[str, Any]) -> Iterator[Any]:
    at = {**at, "summary_index": 0}
    part = item["summary"][0]
    prefix = "response.reasoning_summary"
    yield f"{prefix}_part.added", {**at, "part": {"type": "summary_text", "text": ""}}
    for piece in pieces(part["text"], turn.answer.piece):
        yield f"{prefix}_text.delta", {**at, "delta": piece, "obfuscation": "pQ"}
    yield f"{prefix}_text.done", {**at, "text": part["text"]}
    yield f"{prefix}_part.done", {**at, "part": part}


def _saying(turn: Turn, item: dict[str, Any], at: dict[str, Any]) -> Iterator[Any]:
    at = {**at, "content_index": 0}
    part = item["content"][0]
    yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
    for piece in pieces(part["text"], turn.answer.piece):
        fields = {**at, "delta": piece, "logprobs": [], "obfuscation": "aZ3"}
        yield "response.output_text.delta", fields
    yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**at, "part": part}


def _calling(turn: Turn, item: dict[str, Any], at: dict[str, Any]) -> Iterator[Any]:
    prefix = "response.function_call_arguments"
    for piece in pieces(item["arguments"], turn.answer.piece):
        yield f"{prefix}.delta", {**at, "delta": piece, "obfuscation": "m"}
    yield f"{prefix}.done", {**at, "name": item["name"], "arguments": item["arguments"]}


def _items(turn: Turn) -> list[dict[str, Any]]:
    answer, number = turn.answer, turn.number
    items: list[dict[str, Any]] = []
    if answer.reasoning:
        items.append(
            {
                "id": f"rs_{number}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": answer.reasoning}],
                "encrypted_content": f"sealed-{number}",
            }
        )
    if answer.text:
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": answer.text}
        items.append(
            {
                "id": f"msg_{number}",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [part],
            }
        )
    items += [
        {
            "id": f"fc_{number}_{place}",
            "type": "function_call",
            "status": "completed",
            "call_id": turn.call_id(place, "call_"),
            "name": call.name,
            "arguments": call.raw,
        }
        for place, call in enumerate(answer.calls)
    ]
    return items


def _response(turn: Turn, *, done: bool) -> dict[str, Any]:
    usage, finish = turn.usage, turn.answer.finish
    status = ("completed" if finish is None else "incomplete") if done else "in_progress"
    return {
        "id": f"resp_{turn.number}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": finish} if done and finish else None,
        "instructions": turn.body.get("instructions"),
        "model": turn.model,
        "output": _items(turn) if done else [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": turn.body.get("store", True),
        "tools": turn.body.get("tools", []),
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        }
        if done
        else None,
    }


RESPONSES: Final = Responses()
