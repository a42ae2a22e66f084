"""Rules of OpenAI Chat Completions: what the endpoint refuses in `messages` and `tools`.

Every assistant message with `tool_calls` is followed at once by one `tool` message for each of
them, in any order. System and developer messages may be anywhere, and any role may be first or
last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.testing.providers.checks import (
    Form,
    Kinds,
    PairKey,
    anything,
    at,
    base64_data,
    check_json,
    filled,
    items,
    kind,
    listing,
    look,
    mapping,
    match_results,
    name_check,
    one_of,
    one_source,
    openai_answer_format,
    openai_file_data,
    openai_image_url,
    openai_text,
    optional,
    string,
    unique_calls,
    unique_names,
    word,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.testing.providers.checks import Check, Findings

__all__ = ["check"]

LARGEST = 50_000_000
"""Bytes of all the files of a request together."""

MOST_CALLS = 128
PDF = frozenset({"application/pdf"})

TOOL_NAME = name_check("tool-name", r"[a-zA-Z0-9_-]+", longest=64)
CALL_ID = name_check("call-id", r"(?s:.)+", longest=64)
SPEAKER = name_check("speaker-name", r"[a-zA-Z0-9_-]+", longest=64)

_CACHE = {"prompt_cache_breakpoint": mapping}

TEXT = Form({"type": anything, "text": openai_text}, _CACHE)
REFUSAL = Form({"type": anything, "refusal": string})
IMAGE = Form(
    {
        "type": anything,
        "image_url": Form(
            {"url": openai_image_url}, {"detail": one_of("auto", "low", "high", "original")}
        ),
    },
    _CACHE,
)
AUDIO = Form(
    {
        "type": anything,
        "input_audio": Form({"data": base64_data(), "format": one_of("wav", "mp3", rule="media")}),
    },
    _CACHE,
)


def file(found: Findings, path: str, value: object) -> None:
    """A file is an id, or data with a name."""
    Form({}, {"file_id": filled, "file_data": openai_file_data(PDF), "filename": string})(
        found, path, value
    )
    one_source(found, path, value, ("file_id", "file_data"))


FILE = Form({"type": anything, "file": file}, _CACHE)

_ELSEWHERE = frozenset({"text", "refusal", "image_url", "input_audio", "file"})
ONLY_TEXT = Kinds({"text": TEXT}, elsewhere=_ELSEWHERE)
FOR_USER = Kinds(
    {"text": TEXT, "image_url": IMAGE, "input_audio": AUDIO, "file": FILE}, elsewhere=_ELSEWHERE
)
FOR_ASSISTANT = Kinds({"text": TEXT, "refusal": REFUSAL}, elsewhere=_ELSEWHERE)


def content(parts: Check) -> Check:
    """A string, or an array of parts with at least one."""
    array = listing(parts, at_least=1)

    def run(found: Findings, path: str, value: object) -> None:
        if isinstance(value, str):
            openai_text(found, path, value)
        elif isinstance(value, list):
            array(found, path, value)
        else:
            found.add(path, "shape", f"must be a string or an array, not {kind(value)}")

    return run


def arguments(found: Findings, path: str, value: object) -> None:
    """The arguments to the letter: a string, and whether it is JSON is nobody's business."""
    if not isinstance(value, str):
        found.add(path, "call-arguments", f"must be a string, not {kind(value)}")


CALLS = listing(
    Kinds(
        {
            "function": Form(
                {
                    "id": CALL_ID,
                    "type": anything,
                    "function": Form({"name": TOOL_NAME, "arguments": arguments}),
                }
            ),
            "custom": Form(
                {
                    "id": CALL_ID,
                    "type": anything,
                    "custom": Form({"name": TOOL_NAME, "input": string}),
                }
            ),
        }
    ),
    at_least=1,
)

_NAME = {"name": SPEAKER}
_INSTRUCTION = Form({"role": anything, "content": content(ONLY_TEXT)}, _NAME)
ROLES: dict[str, Check] = {
    "system": _INSTRUCTION,
    "developer": _INSTRUCTION,
    "user": Form({"role": anything, "content": content(FOR_USER)}, _NAME),
    "assistant": Form(
        {"role": anything},
        {
            "content": optional(content(FOR_ASSISTANT)),
            "refusal": optional(string),
            "audio": optional(Form({"id": filled})),
            "tool_calls": CALLS,
            **_NAME,
        },
    ),
    "tool": Form({"role": anything, "content": content(ONLY_TEXT), "tool_call_id": CALL_ID}),
}


def message(found: Findings, path: str, value: object) -> None:
    """One message, by its role."""
    role = word(value, "role")
    if not isinstance(value, dict):
        found.add(path, "shape", f"must be an object, not {kind(value)}")
    elif role not in ROLES:
        found.add(at(path, "role"), "role", f"must be one of {', '.join(ROLES)}")
    else:
        ROLES[role](found, path, value)
        said = any(value.get(name) for name in ("tool_calls", "refusal", "audio"))
        if role == "assistant" and value.get("content") is None and not said:
            found.add(at(path, "content"), "empty-content", "must be a string, not null")


TOOL = Kinds(
    {
        "function": Form(
            {
                "type": anything,
                "function": Form(
                    {"name": TOOL_NAME},
                    {
                        "description": string,
                        "parameters": mapping,
                        "strict": optional(anything),
                    },
                ),
            }
        ),
        "custom": Form(
            {
                "type": anything,
                "custom": Form({"name": TOOL_NAME}, {"description": string, "format": mapping}),
            }
        ),
    }
)

BODY = Form(
    {"messages": listing(message, at_least=1)},
    {
        "model": filled,
        "tools": listing(TOOL),
        **dict.fromkeys(
            [
                "audio",
                "frequency_penalty",
                "logit_bias",
                "logprobs",
                "max_completion_tokens",
                "max_tokens",
                "metadata",
                "modalities",
                "moderation",
                "n",
                "parallel_tool_calls",
                "prediction",
                "presence_penalty",
                "prompt_cache_key",
                "prompt_cache_options",
                "prompt_cache_retention",
                "reasoning_effort",
                "response_format",
                "safety_identifier",
                "seed",
                "service_tier",
                "stop",
                "store",
                "stream",
                "stream_options",
                "temperature",
                "tool_choice",
                "top_logprobs",
                "top_p",
                "user",
                "verbosity",
                "web_search_options",
            ],
            anything,
        ),
    },
)


def check(found: Findings, body: object) -> None:
    """Add a violation for everything that the endpoint would refuse."""
    check_json(found, body, limit=LARGEST)
    BODY(found, "$", body)
    tools = [
        (path, look(tool, name))
        for path, tool in items(look(body, "tools"), "tools")
        for name in ("function", "custom")
    ]
    unique_names(found, tools)
    form = look(body, "response_format", "json_schema")
    openai_answer_format(found, "response_format.json_schema", form)
    pairs(found, list(items(look(body, "messages"), "messages")))


def pairs(found: Findings, messages: list[tuple[str, object]]) -> None:
    """Match each message's calls against the tool messages right after it."""
    known = {call.key for path, value in messages for call in calls_of(path, value)}
    calls: list[PairKey] = []
    results: list[PairKey] = []
    for path, value in messages:
        if word(value, "role") == "tool":
            key = word(value, "tool_call_id")
            results += [] if key is None else [PairKey(key, path)]
            continue
        match_results(found, calls, results, known)
        calls, results = list(calls_of(path, value)), []
        unique_calls(found, calls)
        if len(calls) > MOST_CALLS:
            found.add(at(path, "tool_calls"), "size", f"more than {MOST_CALLS} calls at once")
    match_results(found, calls, results, known)


def calls_of(path: str, value: object) -> Iterator[PairKey]:
    """The calls of an assistant message."""
    if word(value, "role") != "assistant":
        return
    for place, call in items(look(value, "tool_calls"), at(path, "tool_calls")):
        key = word(call, "id")
        if key is not None:
            yield PairKey(key, place)
