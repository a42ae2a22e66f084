"""What a provider answered, taken from its response: what to add to the conversation, and usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from palaver.messages.gate import is_list, is_object
from palaver.messages.parts import ModelRef
from palaver.wire.transcripts.fields import (
    count_in,
    list_in,
    name_in,
    object_in,
    text_in,
    token_counts,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.messages.parts import TokenCounts

__all__ = ["Reply", "reply_of"]


class Reply(NamedTuple):
    """What came back: elements of the conversation in the provider's form, and what it says."""

    items: tuple[Any, ...]
    model: ModelRef | None
    tokens: TokenCounts | None
    finish: str | None


def reply_of(form: str, body: Mapping[str, Any]) -> Reply | None:
    """Read a response; None where there is none, or an error.

    >>> reply_of("anthropic", {"content": [{"type": "text", "text": "hi"}]}).items[0]["role"]
    'assistant'
    """
    if form == "anthropic":
        return _anthropic(body)
    if form == "openai-responses":
        return _responses(body)
    return _gemini(body) if form == "gemini" else _chat(body)


def _chat(body: Mapping[str, Any]) -> Reply | None:
    choice = _first(body, "choices")
    message = object_in(choice, "message")
    if not message:
        return None
    usage = object_in(body, "usage")
    tokens = token_counts(
        count_in(usage, "prompt_tokens"),
        count_in(usage, "completion_tokens"),
        read=count_in(object_in(usage, "prompt_tokens_details"), "cached_tokens"),
        reasoning=count_in(object_in(usage, "completion_tokens_details"), "reasoning_tokens"),
    )
    said = {"role": "assistant", **message}
    return Reply((said,), _model("openai", body), tokens, text_in(choice, "finish_reason") or None)


def _anthropic(body: Mapping[str, Any]) -> Reply | None:
    content = body.get("content")
    if not is_list(content):
        return None
    usage = object_in(body, "usage")
    read = count_in(usage, "cache_read_input_tokens")
    write = count_in(usage, "cache_creation_input_tokens")
    prompt = count_in(usage, "input_tokens") + read + write
    tokens = token_counts(prompt, count_in(usage, "output_tokens"), read=read, write=write)
    said = {"role": "assistant", "content": content}
    finish = text_in(body, "stop_reason") or None
    return Reply((said,), _model("anthropic", body), tokens, finish)


def _responses(body: Mapping[str, Any]) -> Reply | None:
    output = list_in(body, "output")
    if not output:
        return None
    usage = object_in(body, "usage")
    tokens = token_counts(
        count_in(usage, "input_tokens"),
        count_in(usage, "output_tokens"),
        read=count_in(object_in(usage, "input_tokens_details"), "cached_tokens"),
        reasoning=count_in(object_in(usage, "output_tokens_details"), "reasoning_tokens"),
    )
    return Reply(tuple(output), _model("openai", body), tokens, text_in(body, "status") or None)


def _gemini(body: Mapping[str, Any]) -> Reply | None:
    candidate = _first(body, "candidates")
    content = object_in(candidate, "content")
    if not content:
        return None
    usage = object_in(body, "usageMetadata")
    thought = count_in(usage, "thoughtsTokenCount")
    tokens = token_counts(
        count_in(usage, "promptTokenCount"),
        count_in(usage, "candidatesTokenCount") + thought,
        read=count_in(usage, "cachedContentTokenCount"),
        reasoning=thought,
    )
    said = {"role": "model", **content}
    finish = text_in(candidate, "finishReason") or None
    return Reply((said,), _model("google", body, "modelVersion"), tokens, finish)


def _first(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = list_in(body, name)
    return found[0] if found and is_object(found[0]) else {}


def _model(provider: str, body: Mapping[str, Any], name: str = "model") -> ModelRef | None:
    model = name_in(body, name)
    return None if model is None else ModelRef(provider, model)
