"""OpenAI Responses: what the endpoint refuses in `input`, `instructions` and `tools`.

`input` is a flat list of items. A result may come any time after its call, once; items that the
API made keep their ids, each once; a reasoning item is followed by what it led to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.testing.providers import openai_parts as openai
from palaver.testing.providers.naming import unique_names
from palaver.testing.providers.responses_items import ITEMS, given, tool
from palaver.testing.providers.values import (
    Form,
    anything,
    at,
    boolean,
    filled,
    items,
    listing,
    look,
    number,
    optional,
    word,
)
from palaver.testing.providers.whole import whole

if TYPE_CHECKING:
    from palaver.testing.providers.findings import Findings

__all__ = ["check"]

LARGEST = 50_000_000

BODY = Form(
    {"input": given},
    {
        "model": filled,
        "instructions": optional(openai.text),
        "tools": listing(tool),
        "store": optional(boolean),
        "max_output_tokens": optional(number),
        **dict.fromkeys(
            [
                "access_programs",
                "background",
                "context_management",
                "conversation",
                "image",
                "include",
                "max_tool_calls",
                "metadata",
                "moderation",
                "parallel_tool_calls",
                "previous_response_id",
                "prompt",
                "prompt_cache_key",
                "prompt_cache_options",
                "prompt_cache_retention",
                "reasoning",
                "safety_identifier",
                "service_tier",
                "stream",
                "stream_options",
                "temperature",
                "text",
                "tool_choice",
                "top_logprobs",
                "top_p",
                "truncation",
                "user",
            ],
            anything,
        ),
    },
)

OUTCOMES = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
"""Which item answers which."""

MADE = frozenset(ITEMS) - {"function_call_output", "custom_tool_call_output", "item_reference"}


def check(found: Findings, body: object) -> None:
    """Note everything that the endpoint would refuse."""
    whole(found, body, limit=LARGEST)
    BODY(found, "$", body)
    unique_names(found, items(look(body, "tools"), "tools"))
    line = list(items(look(body, "input"), "input"))
    stored = any(look(body, name) is not None for name in ("previous_response_id", "conversation"))
    pairs(found, line, stored=stored)
    unique_ids(found, line)
    reasoning(found, line, stateless=look(body, "store") is False)


def pairs(found: Findings, line: list[tuple[str, object]], *, stored: bool) -> None:
    """Hold each result against the calls before it, and each call against all results.

    `stored` says that the API knows calls which are not in the input.
    """
    for call_type, result_type in OUTCOMES.items():
        pairs_of(
            found,
            [
                (path, key, word(value, "type") == call_type)
                for path, value in line
                if word(value, "type") in {call_type, result_type}
                and (key := word(value, "call_id")) is not None
            ],
            stored=stored,
        )


def pairs_of(found: Findings, line: list[tuple[str, str, bool]], *, stored: bool) -> None:
    """The same for one kind of call: each entry has a path, an id, and whether it is a call."""
    known = {key for _, key, is_call in line if is_call}
    calls: dict[str, str] = {}
    answered: set[str] = set()
    for path, key, is_call in line:
        if is_call:
            if key in calls:
                found.add(path, "duplicate-call-id", f"another call has the id {key[:80]}")
            calls.setdefault(key, path)
            continue
        if key in answered:
            found.add(path, "duplicate-result", f"{key[:80]} has a result already")
        elif key not in calls and key in known:
            found.add(path, "result-out-of-order", f"{key[:80]} is called only after this")
        elif key not in calls and not stored:
            found.add(path, "result-without-call", f"no call has the id {key[:80]}")
        answered.add(key)
    for key, path in calls.items():
        if key not in answered:
            found.add(path, "call-without-result", f"no output was given for {key[:80]}")


def unique_ids(found: Findings, line: list[tuple[str, object]]) -> None:
    """Want no item's id twice."""
    seen: set[str] = set()
    for path, value in line:
        name = word(value, "id")
        if name is not None and name in seen:
            found.add(at(path, "id"), "item-id", f"another item has the id {name[:80]}")
        seen.add(name or "")


def reasoning(found: Findings, line: list[tuple[str, object]], *, stateless: bool) -> None:
    """Want each reasoning item to lead to something the model did, and to be readable."""
    for (path, value), following in zip(line, [*line[1:], ("", None)], strict=False):
        kind_ = word(value, "type")
        if kind_ == "item_reference" and stateless:
            found.add(path, "item-id", "nothing is stored, so no item can be referred to")
        if kind_ != "reasoning":
            continue
        if stateless and not word(value, "encrypted_content"):
            found.add(path, "foreign-reasoning", "where nothing is stored, its content is needed")
        after = following[1]
        spoken = word(after, "role") == "assistant"
        if not spoken and (word(after, "type") not in MADE or word(after, "role") is not None):
            found.add(path, "reasoning-placement", "the item that the reasoning led to is missing")
