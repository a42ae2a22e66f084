"""Contents of each provider's format, and every way in which palaver comes to read them.

A content is what a provider says once; a way is where it stands: a reply that came whole, a stream,
the body of a later request, a log of requests, a transcript. `readings` gives what each way makes
of a content, so that a test can compare them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palaver import wire
from palaver.messages import AssistantInfo, Message, ToolPart, to_dict
from palaver.transcripts import read_transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["ANSWERS", "RESULTS", "USAGES", "Reading", "ends", "read_answer", "read_result"]

Json = dict[str, Any]
_PNG: Final = "data:image/png;base64,aGk="
_SOURCE: Final = {"type": "base64", "media_type": "image/png", "data": "aGk="}


class Reading(NamedTuple):
    """What one way makes of a content: the parts, and of an answer its tokens and its end."""

    said: list[Any]
    tokens: Any = None
    finish: str | None = None
    cost: float | None = None


# ── contents ─────────────────────────────────────────────────────────────────────────────────────

_CITED: Final = {"type": "char_location", "cited_text": "tea", "document_index": 0}
_LINK: Final = {"type": "url_citation", "url": "https://example.org", "title": "Tea"}


def _tool_use(given: Any, **fields: Any) -> Json:  # noqa: ANN401 - JSON
    return {"type": "tool_use", "id": "c1", "name": "pour", "input": given, **fields}


def _function(given: Any, **fields: Any) -> Json:  # noqa: ANN401 - JSON
    called = {"name": "pour", "arguments": given}
    return {"id": "c1", "type": "function", "function": called, **fields}


def _item(kind: str, **fields: Any) -> Json:  # noqa: ANN401 - JSON
    return {"type": kind, **fields}


def _output(*blocks: Json, **fields: Any) -> Json:  # noqa: ANN401 - JSON
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": list(blocks),
        **fields,
    }


def _said(text: str, **fields: Any) -> Json:  # noqa: ANN401 - JSON
    return {"type": "output_text", "text": text, "annotations": [], **fields}


_THOUGHT: Final = _item(
    "reasoning", id="rs_1", summary=[{"type": "summary_text", "text": "Hm."}], encrypted_content="c"
)
_CALLED: Final = {"call_id": "c1", "name": "pour"}

ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "anthropic": {
        "a text": [{"type": "text", "text": "Tea."}],
        "two texts": [{"type": "text", "text": "Tea."}, {"type": "text", "text": " Hot."}],
        "an empty text": [{"type": "text", "text": ""}, {"type": "text", "text": "Tea."}],
        "a citation": [{"type": "text", "text": "Tea.", "citations": [_CITED]}],
        "null citations": [{"type": "text", "text": "Tea.", "citations": None}],
        "signed thinking": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "text", "text": "Tea."},
        ],
        "unsigned thinking": [
            {"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "text", "text": "Tea."},
        ],
        "hidden thinking": [
            {"type": "thinking", "thinking": "", "signature": "c2ln"},
            {"type": "text", "text": "Tea."},
        ],
        "redacted thinking": [
            {"type": "redacted_thinking", "data": "c2VhbGVk"},
            {"type": "text", "text": "Tea."},
        ],
        "a call": [_tool_use({"cups": 2})],
        "a call without arguments": [_tool_use({})],
        "a call with a caller": [_tool_use({"cups": 2}, caller={"type": "direct"})],
        "a call with text as input": [_tool_use("two cups")],
        "a wrapped call": [_tool_use({"freeform_input": "*** Begin"})],
        "a call in letters of its own": [_tool_use({"cups": "zwei \U0001f375"})],
        "two calls": [_tool_use({"cups": 2}), _tool_use({"cups": 3}, id="c2")],
        "text and call": [{"type": "text", "text": "Tea."}, _tool_use({"cups": 2})],
        "everything": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "c2VhbGVk"},
            {"type": "text", "text": "Tea.", "citations": [_CITED]},
            _tool_use({"cups": 2}, caller={"type": "direct"}),
        ],
        "a file": [
            {"type": "text", "text": "Tea."},
            {"type": "document", "source": {**_SOURCE, "media_type": "application/pdf"}},
        ],
        "an image": [{"type": "image", "source": _SOURCE}],
        "a server's call": [
            {
                "type": "server_tool_use",
                "id": "srvtoolu_1",
                "name": "web_search",
                "input": {"query": "tea"},
            },
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            {"type": "text", "text": "Tea."},
        ],
        "a block of the future": [
            {"type": "hologram", "beam": 1},
            {"type": "text", "text": "Tea."},
        ],
    },
    "openai-chat": {
        "a text": {"content": "Tea."},
        "a text in blocks": {"content": [{"type": "text", "text": "Tea."}]},
        "two texts": {"content": [{"type": "text", "text": t} for t in ("Tea.", " Hot.")]},
        "a refusal": {"content": None, "refusal": "No coffee."},
        "text and refusal": {"content": "Tea.", "refusal": "No coffee."},
        "a refusal in blocks": {"content": [{"type": "refusal", "refusal": "No coffee."}]},
        "text and refusal in blocks": {
            "content": [
                {"type": "text", "text": "Tea."},
                {"type": "refusal", "refusal": "No coffee."},
            ]
        },
        "a citation": {"content": "Tea.", "annotations": [_LINK]},
        "a citation in blocks": {
            "content": [{"type": "text", "text": "Tea."}],
            "annotations": [_LINK],
        },
        "no citation": {"content": "Tea.", "annotations": []},
        "reasoning_content": {"content": "Tea.", "reasoning_content": "Hm."},
        "reasoning": {"content": "Tea.", "reasoning": "Hm."},
        "reasoning in both": {"content": "Tea.", "reasoning": "Hm.", "reasoning_content": "Hm."},
        "reasoning details": {
            "content": "Tea.",
            "reasoning": "Hm.",
            "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "index": 0}],
        },
        "only reasoning details": {
            "content": "Tea.",
            "reasoning_details": [{"type": "reasoning.encrypted", "data": "c2", "index": 0}],
        },
        "thinking in blocks": {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
                {"type": "text", "text": "Tea."},
            ]
        },
        "a call": {"content": None, "tool_calls": [_function('{"cups": 2}')]},
        "an empty text and a call": {"content": "", "tool_calls": [_function('{"cups": 2}')]},
        "a call without arguments": {"content": None, "tool_calls": [_function("")]},
        "a call with an object": {"content": None, "tool_calls": [_function({"cups": 2})]},
        "a call with null": {"content": None, "tool_calls": [_function(None)]},
        "a call with broken arguments": {"content": None, "tool_calls": [_function('{"cups": ')]},
        "a call with a list": {"content": None, "tool_calls": [_function("[1]")]},
        "a wrapped call": {
            "content": None,
            "tool_calls": [_function('{"freeform_input": "*** Begin"}')],
        },
        "a call with a key twice": {"content": None, "tool_calls": [_function('{"a":1,"a":2}')]},
        "a call without an id": {"content": None, "tool_calls": [_function("{}", id=None)]},
        "a call of an older kind": {
            "content": None,
            "function_call": {"name": "pour", "arguments": '{"cups": 2}'},
        },
        "a custom call": {
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
            ],
        },
        "two calls": {
            "content": "Tea.",
            "tool_calls": [_function("{}"), _function('{"cups": 2}', id="c2")],
        },
        "everything": {
            "reasoning_content": "Hm.",
            "content": "Tea.",
            "refusal": "No coffee.",
            "annotations": [_LINK],
            "tool_calls": [_function("{}")],
        },
        "sound": {
            "content": None,
            "audio": {"id": "audio_1", "transcript": "Tea.", "data": "aGk=", "expires_at": 9},
        },
        "an image": {
            "content": [
                {"type": "image_url", "image_url": {"url": _PNG}},
                {"type": "text", "text": "Tea."},
            ]
        },
        "a damaged block": {"content": [5, {"type": "text", "text": "Tea."}]},
        "sound by its id": {"content": "Tea.", "audio": {"id": "audio_1"}},
        "a block of the future": {"content": [{"type": "text", "text": "Tea."}, {"type": "beam"}]},
    },
    "openai-responses": {
        "a text": [_output(_said("Tea."))],
        "two texts": [_output(_said("Tea."), _said(" Hot."))],
        "an empty text": [_output(_said(""))],
        "a refusal": [_output({"type": "refusal", "refusal": "No coffee."})],
        "text and refusal": [_output(_said("Tea."), {"type": "refusal", "refusal": "No."})],
        "a citation": [_output(_said("Tea.", annotations=[_LINK]))],
        "a phase": [_output(_said("Tea."), phase="commentary")],
        "unfinished": [_output(_said("Te"), status="incomplete")],
        "reasoning": [_THOUGHT, _output(_said("Tea."))],
        "reasoning in the open": [
            {**_THOUGHT, "content": [{"type": "reasoning_text", "text": "Tea or coffee?"}]},
            _output(_said("Tea.")),
        ],
        "sealed reasoning": [{**_THOUGHT, "summary": []}, _output(_said("Tea."))],
        "two summaries": [
            {**_THOUGHT, "summary": [{"type": "summary_text", "text": t} for t in ("a", "b")]},
            _output(_said("Tea.")),
        ],
        "a call": [_item("function_call", id="fc_1", **_CALLED, arguments='{"cups": 2}')],
        "a call without arguments": [_item("function_call", **_CALLED, arguments="")],
        "a call with broken arguments": [_item("function_call", **_CALLED, arguments='{"cups": ')],
        "a wrapped call": [
            _item("function_call", **_CALLED, arguments='{"freeform_input": "*** Begin"}')
        ],
        "a call with a key twice": [_item("function_call", **_CALLED, arguments='{"a":1,"a":2}')],
        "a call after reasoning": [
            _THOUGHT,
            _item("function_call", id="fc_1", **_CALLED, arguments="{}"),
        ],
        "a custom call": [_item("custom_tool_call", id="ctc_1", **_CALLED, input="*** Begin")],
        "a custom call with JSON": [_item("custom_tool_call", **_CALLED, input='{ "cups": 2}')],
        "text and call": [
            _output(_said("Tea.")),
            _item("function_call", **_CALLED, arguments="{}"),
        ],
        "everything": [
            {**_THOUGHT, "content": [{"type": "reasoning_text", "text": "Tea or coffee?"}]},
            _output(_said("Tea.", annotations=[_LINK]), {"type": "refusal", "refusal": "No."}),
            _item("custom_tool_call", id="ctc_1", **_CALLED, input="*** Begin"),
        ],
        "a search": [
            _item("web_search_call", id="ws_1", status="completed", action={"type": "search"}),
            _output(_said("Tea.")),
        ],
    },
    "gemini": {
        "a text": [{"text": "Tea."}],
        "a thought": [{"text": "Hm.", "thought": True}, {"text": "Tea."}],
        "a signed thought": [
            {"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"},
            {"text": "Tea."},
        ],
        "a signed text": [{"text": "Tea.", "thoughtSignature": "c2ln"}],
        "a call": [{"functionCall": {"name": "pour", "args": {"cups": 2}}}],
        "a call with an id": [{"functionCall": {"id": "c1", "name": "pour", "args": {"cups": 2}}}],
        "a call without arguments": [{"functionCall": {"name": "pour"}}],
        "a wrapped call": [
            {"functionCall": {"name": "pour", "args": {"freeform_input": "*** Begin"}}}
        ],
        "a signed call": [
            {"functionCall": {"name": "pour", "args": {}}, "thoughtSignature": "c2ln"}
        ],
        "two calls": [
            {"functionCall": {"name": "pour", "args": {"cups": cups}}} for cups in (2, 3)
        ],
        "text and call": [{"text": "Tea."}, {"functionCall": {"name": "pour", "args": {}}}],
        "an image": [{"text": "Tea."}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}],
        "a linked file": [
            {"text": "Tea."},
            {"fileData": {"mimeType": "image/png", "fileUri": "https://example.org/a.png"}},
        ],
        "everything": [
            {"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"},
            {"text": "Tea."},
            {"functionCall": {"id": "c1", "name": "pour", "args": {"cups": 2}}},
            {"fileData": {"mimeType": "image/png", "fileUri": "https://example.org/a.png"}},
            {"executableCode": {"code": "1", "language": "PYTHON"}},
        ],
        "code": [
            {"executableCode": {"code": "1", "language": "PYTHON"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
            {"text": "Tea."},
        ],
    },
}
"""What a model says, in each format."""

USAGES: Final[dict[str, dict[str, Any]]] = {
    "anthropic": {
        "plain": {"input_tokens": 5, "output_tokens": 9},
        "cached": {
            "input_tokens": 5,
            "output_tokens": 9,
            "cache_read_input_tokens": 7,
            "cache_creation_input_tokens": 2,
        },
        "cache writes by their life": {
            "input_tokens": 5,
            "output_tokens": 9,
            "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
        },
        "thinking": {
            "input_tokens": 5,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 4},
        },
        "zeros": {"input_tokens": 0, "output_tokens": 0},
        "nulls": {"input_tokens": None, "output_tokens": None},
        "nothing": {},
        "absent": None,
    },
    "openai-chat": {
        "plain": {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29},
        "cached": {
            "prompt_tokens": 20,
            "completion_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 2},
        },
        "deepseek": {
            "prompt_tokens": 20,
            "completion_tokens": 9,
            "prompt_cache_hit_tokens": 8,
            "prompt_cache_miss_tokens": 12,
        },
        "reasoning": {
            "prompt_tokens": 20,
            "completion_tokens": 9,
            "total_tokens": 29,
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
        "xai": {
            "prompt_tokens": 20,
            "completion_tokens": 9,
            "total_tokens": 32,
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
        "openrouter": {"prompt_tokens": 20, "completion_tokens": 9, "cost": 0.25},
        "only a total": {"total_tokens": 29},
        "zeros": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        "nulls": {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None},
        "absent": None,
    },
    "openai-responses": {
        "plain": {"input_tokens": 20, "output_tokens": 9, "total_tokens": 29},
        "detailed": {
            "input_tokens": 20,
            "output_tokens": 9,
            "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 2},
            "output_tokens_details": {"reasoning_tokens": 3},
        },
        "only a total": {"total_tokens": 29},
        "zeros": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
        "nulls": {"input_tokens": None, "output_tokens": None, "total_tokens": None},
        "absent": None,
    },
    "gemini": {
        "plain": {"promptTokenCount": 20, "candidatesTokenCount": 9, "totalTokenCount": 29},
        "detailed": {
            "promptTokenCount": 20,
            "cachedContentTokenCount": 8,
            "toolUsePromptTokenCount": 2,
            "candidatesTokenCount": 9,
            "thoughtsTokenCount": 3,
        },
        "in snake_case": {"prompt_token_count": 20, "candidates_token_count": 9},
        "only a total": {"totalTokenCount": 29},
        "zeros": {"promptTokenCount": 0, "totalTokenCount": 0},
        "nulls": {"promptTokenCount": None, "candidatesTokenCount": None},
        "absent": None,
    },
}
"""What an answer cost, in each format."""


def ends(form: str) -> list[str]:
    """The words of a format for why an answer ended, and one that it does not know."""
    words = [*wire.FORMATS[form].reply_reader.finish_reasons, "tomorrow"]
    return [word for word in words if word not in ("failed", "error")]


def _texts(kind: str) -> list[Json]:
    return [{"type": kind, "text": "a"}, {"type": kind, "text": "b"}]


_IMAGE: Final = {"type": "image", "source": _SOURCE}
_INPUT_IMAGE: Final = {"type": "input_image", "image_url": _PNG, "detail": "auto"}

RESULTS: Final[dict[str, dict[str, Any]]] = {
    "anthropic": {
        f"{name}{failed}": {"content": content, **fields}
        for failed, fields in (("", {}), (", failed", {"is_error": True}))
        for name, content in (
            ("a text", "9 °C"),
            ("two texts", _texts("text")),
            ("nothing", ""),
            ("null", None),
            ("no blocks", []),
            ("an empty text", [{"type": "text", "text": ""}]),
            ("an image", [_IMAGE]),
            ("text and image", [*_texts("text"), _IMAGE]),
            ("a reference", [{"type": "tool_reference", "tool_name": "pour"}]),
            (
                "a found page",
                [
                    {
                        "type": "search_result",
                        "source": "s",
                        "title": "t",
                        "content": _texts("text"),
                    }
                ],
            ),
        )
    },
    "openai-chat": {
        name: {"content": content}
        for name, content in (
            ("a text", "9 °C"),
            ("two texts", _texts("text")),
            ("nothing", ""),
            ("null", None),
            ("an image", [{"type": "image_url", "image_url": {"url": _PNG}}]),
        )
    },
    "openai-responses": {
        name: {"output": content}
        for name, content in (
            ("a text", "9 °C"),
            ("two texts", _texts("input_text")),
            ("nothing", ""),
            ("null", None),
            ("an image", [_INPUT_IMAGE]),
            ("text and image", [*_texts("input_text"), _INPUT_IMAGE]),
            ("an object", {"content": "9 °C", "success": True}),
            ("a failure", {"content": "no such file", "success": False}),
            ("an empty failure", {"content": "", "success": False}),
            ("a file by its id", [{"type": "input_file", "file_id": "file_1"}]),
        )
    },
    "gemini": {
        name: {"response": response}
        for name, response in (
            ("a text", {"output": "9 °C"}),
            ("an object", {"cold": True}),
            ("nothing", {"output": ""}),
            ("a failure", {"error": "no such file"}),
            ("an empty failure", {"error": ""}),
        )
    },
}
"""What a tool gave, in each format."""


# ── ways to read an answer ───────────────────────────────────────────────────────────────────────


def read_answer(
    form: str,
    content: Any,  # noqa: ANN401 - JSON, here and below
    usage: Any,  # noqa: ANN401
    end: str,
) -> dict[str, Reading]:
    """Read an answer in every way that there is; each way by its name, the whole reply first."""
    reply = _REPLIES[form](content, usage, end)
    reader = wire.reply_reader(form)
    for event in _STREAMS[form](reply):
        reader.feed(event)
    asked = _ASKED[form]
    items = wire.FORMATS[form].items
    body = {"model": _MODELS[form], items: [asked, *_ELEMENTS[form](content)]}
    readings = {
        "reply": _reading(wire.reply(form, reply)),
        "stream": _reading(reader.message()),
        "body": Reading(_said_by(wire.from_(form, body).messages[-1])),
        "log": _reading(_logged({**body, items: [asked]}, reply)),
        "later log": _reading(_logged_later({**body, items: [asked]}, body, items, reply)),
    }
    if form == "anthropic":
        line = {"type": "assistant", "uuid": "u1", "sessionId": "s1", "message": reply}
        readings["claude-code"] = _reading(_transcribed("claude-code", line))
    if form == "openai-responses":
        lines = [{"type": "response_item", "payload": item} for item in content]
        readings["codex"] = Reading(_said_by(_transcribed("codex", *lines)))
    return readings


def _reading(message: Message) -> Reading:
    info = message.info if isinstance(message.info, AssistantInfo) else AssistantInfo()
    return Reading(_said_by(message), info.tokens, info.finish, info.cost)


def _said_by(message: Message) -> list[Any]:
    """What the parts of a message say, without ids and times, which differ."""
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}] if message.content else []
    return [_plain(to_dict(part)) for part in message.parts]


def _plain(part: Json) -> Json:
    for name in ("id", "sessionID", "messageID", "time"):
        part.pop(name, None)
    if part.get("callID") not in ("c1", "c2"):
        part.pop("callID", None)  # made here, where the provider gave none
    metadata = part.get("metadata", {})
    google = metadata.get("google", {})
    if google.pop("unsigned", None) and not google:  # tells where a call stands, not what it says
        del metadata["google"]
    if not metadata:
        part.pop("metadata", None)
    return part


def _anthropic_reply(content: Any, usage: Any, end: str) -> Json:  # noqa: ANN401 - JSON
    reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x"}
    more = {} if usage is None else {"usage": usage}
    return {**reply, "content": content, "stop_reason": end, **more}


def _chat_reply(content: Any, usage: Any, end: str) -> Json:  # noqa: ANN401 - JSON
    choice = {"index": 0, "message": {"role": "assistant", **content}, "finish_reason": end}
    more = {} if usage is None else {"usage": usage}
    return {"id": "chatcmpl-1", "model": "m", "choices": [choice], **more}


def _responses_reply(content: Any, usage: Any, end: str) -> Json:  # noqa: ANN401 - JSON
    status: Json = {"status": "completed"}
    if end != "completed":
        status = {"status": "incomplete", "incomplete_details": {"reason": end}}
    more = {} if usage is None else {"usage": usage}
    return {"id": "resp_1", "model": "m", "output": content, **status, **more}


def _gemini_reply(content: Any, usage: Any, end: str) -> Json:  # noqa: ANN401 - JSON
    candidate = {"content": {"role": "model", "parts": content}, "finishReason": end}
    more = {} if usage is None else {"usageMetadata": usage}
    return {"modelVersion": "m", "candidates": [candidate], **more}


_REPLIES: Final = {
    "anthropic": _anthropic_reply,
    "openai-chat": _chat_reply,
    "openai-responses": _responses_reply,
    "gemini": _gemini_reply,
}
_MODELS: Final = {**dict.fromkeys(ANSWERS, "m"), "anthropic": "claude-x"}
"""A log tells Anthropic's requests from OpenAI's by the model."""
_ASKED: Final[dict[str, Json]] = {
    **{form: {"role": "user", "content": "Well?"} for form in ANSWERS},
    "gemini": {"role": "user", "parts": [{"text": "Well?"}]},
}
_ELEMENTS: Final[dict[str, Callable[[Any], list[Any]]]] = {
    "anthropic": lambda content: [{"role": "assistant", "content": content}],
    "openai-chat": lambda content: [{"role": "assistant", **content}],
    "openai-responses": lambda content: content,
    "gemini": lambda content: [{"role": "model", "parts": content}],
}


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def _anthropic_stream(reply: Json) -> Iterator[Json]:
    begin = {**reply, "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": begin}
    for index, block in enumerate(reply["content"]):
        kind = block.get("type")
        place = {"type": "content_block_delta", "index": index}
        begun, deltas = block, []
        if kind == "text":
            begun = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": text} for text in _halves(block["text"])]
            deltas += [
                {"type": "citations_delta", "citation": one} for one in block.get("citations") or ()
            ]
        elif kind == "thinking":
            begun = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                *({"type": "thinking_delta", "thinking": t} for t in _halves(block["thinking"])),
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        elif kind in {"tool_use", "server_tool_use"}:
            begun = {**block, "input": {}}
            given = block["input"]
            raw = json.dumps(given, separators=(",", ":"), ensure_ascii=False) if given else ""
            deltas = [{"type": "input_json_delta", "partial_json": text} for text in _halves(raw)]
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        yield from ({**place, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": reply["stop_reason"]}
    usage = {"usage": reply["usage"]} if "usage" in reply else {}
    yield {"type": "message_delta", "delta": delta, **usage}
    yield {"type": "message_stop"}


def _chat_stream(reply: Json) -> Iterator[Json]:
    choice = reply["choices"][0]
    said = choice["message"]
    about = {"id": reply["id"], "model": reply["model"]}
    yield {**about, "choices": [{"index": 0, "delta": {"role": "assistant"}}]}
    if "reasoning" in said and "reasoning_content" in said:  # servers send both side by side
        both = {name: said[name] for name in ("reasoning", "reasoning_content")}
        yield {**about, "choices": [{"index": 0, "delta": both}]}
        said = {name: value for name, value in said.items() if name not in both}
    for name, value in said.items():
        if name in ("role", "tool_calls"):
            continue
        pieces = _halves(value) if isinstance(value, str) else [value]
        for piece in pieces:
            yield {**about, "choices": [{"index": 0, "delta": {name: piece}}]}
    for index, call in enumerate(said.get("tool_calls", ())):
        inner = "custom" if "custom" in call else "function"
        field = "input" if inner == "custom" else "arguments"
        given = call[inner][field]
        first, *rest = _halves(given) if isinstance(given, str) else [given]
        begun = {**call, "index": index, inner: {**call[inner], field: first}}
        yield {**about, "choices": [{"index": 0, "delta": {"tool_calls": [begun]}}]}
        for piece in rest:
            more = {"index": index, inner: {field: piece}}
            yield {**about, "choices": [{"index": 0, "delta": {"tool_calls": [more]}}]}
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    yield {**about, "choices": [end]}
    if "usage" in reply:
        yield {**about, "choices": [], "usage": reply["usage"]}


_ARGUMENTS: Final = {
    "arguments": "function_call_arguments",
    "input": "custom_tool_call_input",
}


def _responses_stream(reply: Json) -> Iterator[Json]:
    about = {"id": reply["id"], "model": reply["model"]}
    yield {"type": "response.created", "response": {**about, "status": "in_progress"}}
    for index, item in enumerate(reply["output"]):
        place = {"output_index": index}
        bare = {**item}
        if item["type"] == "message":
            bare |= {"content": [], "status": "in_progress"}
        yield {"type": "response.output_item.added", **place, "item": bare}
        for inner, block in enumerate(item.get("content", ()) if "role" in item else ()):
            kind = "output_text" if "text" in block else "refusal"
            for text in _halves(block.get("text", block.get("refusal"))):
                where = {**place, "content_index": inner}
                yield {"type": f"response.{kind}.delta", **where, "delta": text}
        for inner, block in enumerate(item.get("summary", ())):
            where = {**place, "summary_index": inner}
            for text in _halves(block["text"]):
                yield {"type": "response.reasoning_summary_text.delta", **where, "delta": text}
        for field, kind in _ARGUMENTS.items():
            for text in _halves(item[field]) if field in item else ():
                yield {"type": f"response.{kind}.delta", **place, "delta": text}
        yield {"type": "response.output_item.done", **place, "item": item}
    kind = "completed" if reply["status"] == "completed" else "incomplete"
    yield {"type": f"response.{kind}", "response": reply}


def _gemini_stream(reply: Json) -> Iterator[Json]:
    candidate = reply["candidates"][0]
    for part in candidate["content"]["parts"]:
        pieces = [part]
        if set(part) in ({"text"}, {"text", "thought"}):
            pieces = [{**part, "text": text} for text in _halves(part["text"])]
        for piece in pieces:
            content = {"role": "model", "parts": [piece]}
            yield {"modelVersion": "m", "candidates": [{"content": content}]}
    end = {"content": {"role": "model", "parts": []}, "finishReason": candidate["finishReason"]}
    yield {**reply, "candidates": [end]}


_STREAMS: Final = {
    "anthropic": _anthropic_stream,
    "openai-chat": _chat_stream,
    "openai-responses": _responses_stream,
    "gemini": _gemini_stream,
}


def _logged(request: Json, response: Json) -> Message:
    """The answer in a log of one request."""
    row = json.dumps({"request": request, "response": response}).encode()
    (found,) = read_transcript(row, "requests")
    return found.messages[-1]


def _logged_later(first: Json, second: Json, items: str, response: Json) -> Message:
    """The answer in a log whose next request repeats it."""
    further = {**second, items: [*second[items], first[items][0]]}
    rows = [{"request": first, "response": response}, {"request": further}]
    data = "\n".join(json.dumps(row) for row in rows).encode()
    (found,) = read_transcript(data, "requests")
    return next(message for message in found.messages if message.role == "assistant")


def _transcribed(form: str, *lines: Mapping[str, Any]) -> Message:
    (found,) = read_transcript("\n".join(json.dumps(line) for line in lines).encode(), form)
    return found.messages[-1]


# ── ways to read a result ────────────────────────────────────────────────────────────────────────


def read_result(form: str, content: Json) -> dict[str, Reading]:
    """Read a result in every way that there is; each way by its name, the body first."""
    calls, results = _CALLS[form]
    asked, answers = _ASKED[form], [*calls, *results(content)]
    items = wire.FORMATS[form].items
    body = {"model": _MODELS[form], items: [asked, *answers]}
    (logged,) = read_transcript(json.dumps({"request": body}).encode(), "requests")
    readings = {
        "body": _result(wire.from_(form, body).messages),
        "log": _result(logged.messages),
    }
    if form == "anthropic":
        about = {"sessionId": "s1"}
        lines = [
            {"type": item["role"], "uuid": f"u{index}", "message": item, **about}
            for index, item in enumerate(answers)
        ]
        data = "\n".join(json.dumps(line) for line in lines).encode()
        (session,) = read_transcript(data, "claude-code")
        readings["claude-code"] = _result(session.messages)
    if form == "openai-responses":
        rows = [{"type": "response_item", "payload": item} for item in answers]
        data = "\n".join(json.dumps(row) for row in rows).encode()
        (session,) = read_transcript(data, "codex")
        readings["codex"] = _result(session.messages)
    return readings


def _result(messages: tuple[Message, ...]) -> Reading:
    (part,) = (part for message in messages for part in message.parts if isinstance(part, ToolPart))
    found = _plain(to_dict(part))
    state = found["state"]
    for name in ("time", "input"):
        state.pop(name, None)
    files = state.pop("attachments", None) or found.get("metadata", {}).pop("attachments", ())
    found["files"] = [file["url"] for file in files]
    return Reading([found])


_CALLS: Final[dict[str, Any]] = {
    "anthropic": (
        [{"role": "assistant", "content": [_tool_use({})]}],
        lambda content: [
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", **content}],
            }
        ],
    ),
    "openai-chat": (
        [{"role": "assistant", "content": None, "tool_calls": [_function("{}")]}],
        lambda content: [{"role": "tool", "tool_call_id": "c1", **content}],
    ),
    "openai-responses": (
        [_item("function_call", **_CALLED, arguments="{}")],
        lambda content: [_item("function_call_output", call_id="c1", **content)],
    ),
    "gemini": (
        [{"role": "model", "parts": [{"functionCall": {"name": "pour", "args": {}}}]}],
        lambda content: [
            {"role": "user", "parts": [{"functionResponse": {"name": "pour", **content}}]}
        ],
    ),
}
