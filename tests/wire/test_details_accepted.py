"""Details that come back, and those that must not: a memory is no way around a provider's rules."""

from __future__ import annotations

from typing import Any

import pytest

from palaver import wire
from palaver.testing import check_request
from tests.wire.pieces import PIXEL
from tests.wire.sdk_types import check_types

PNG = f"data:image/png;base64,{PIXEL}"
PICTURE = {"type": "image_url", "image_url": {"url": PNG}}
LINKED = {"type": "image", "source": {"type": "url", "url": "https://e.org/a"}}
LISTED = {"name": "ls", "arguments": "{}"}
ASKED = {"id": "c1", "type": "function", "function": LISTED}
CALLING = {"role": "assistant", "content": None, "tool_calls": [ASKED]}
OUTPUT = {"role": "tool", "tool_call_id": "c1", "content": "x"}
USED = {"type": "tool_use", "id": "c1", "name": "ls", "input": {}}
CALLED = {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"}
GAVE = {"type": "function_call_output", "call_id": "c1", "output": "x"}


def chat(role: str, content: Any, **more: Any) -> Any:  # noqa: ANN401 - JSON
    """A message of OpenAI Chat or Responses, or of Anthropic."""
    return {"role": role, "content": content, **more}


def said(text: str, **more: Any) -> Any:  # noqa: ANN401 - JSON
    """A block of text."""
    return {"type": "text", "text": text, **more}


def gave(content: Any) -> Any:  # noqa: ANN401 - JSON
    """A call to Anthropic's taste, and what it gave."""
    outcome = {"type": "tool_result", "tool_use_id": "c1", "content": content}
    return [chat("user", "x"), chat("assistant", [USED]), chat("user", [outcome])]


KEPT: list[tuple[str, Any]] = [
    ("openai-chat", [chat("system", [said("a"), said("b")])]),
    ("openai-chat", [chat("user", "x", name="ada")]),
    ("openai-chat", [chat("user", [said(""), said("a", prompt_cache_breakpoint={})])]),
    ("openai-chat", [chat("assistant", [said("a"), {"type": "refusal", "refusal": "b"}])]),
    ("openai-chat", [chat("assistant", "a", refusal=None, audio=None)]),
    ("openai-chat", [CALLING, OUTPUT | {"content": [said("x")]}]),
    ("openai-responses", [chat("user", [{"type": "input_text", "text": "a"}], status="completed")]),
    ("openai-responses", [CALLED, {**GAVE, "output": [{"type": "input_text", "text": "x"}]}]),
    ("openai-responses", [CALLED | {"status": "completed"}, GAVE | {"id": "fc_2"}]),
    ("anthropic", [chat("user", [said("a", cache_control={"type": "ephemeral", "ttl": "1h"})])]),
    ("anthropic", gave([said("a"), said("b")])),
    ("anthropic", gave([LINKED, said("b")])),
    ("gemini", [{"role": "user", "parts": [{"text": "a", "partMetadata": {"b": [1]}}]}]),
]  # fmt: skip

SPOILED: list[tuple[str, Any]] = [
    ("openai-chat", [chat("user", [5, said("a")])]),
    ("openai-chat", [chat("user", [{"type": "hologram"}, said("a")])]),
    ("openai-chat", [chat("user", [said("a"), {"type": "image_url", "image_url": {"url": "x"}}])]),
    ("openai-chat", [chat("user", "x", name="ada lovelace")]),
    ("openai-chat", [chat("assistant", "x", tool_calls=[])]),
    ("openai-chat", [chat("assistant", "x", audio=5)]),
    ("openai-chat", [chat("system", [said("a"), PICTURE])]),
    ("openai-chat", [chat("assistant", [], tool_calls=[ASKED]), OUTPUT]),
    (
        "openai-chat",
        [chat("assistant", None, tool_calls=[ASKED]), {**OUTPUT, "content": [said("x"), 5]}],
    ),
    (
        "openai-chat",
        [
            chat("assistant", None, tool_calls=[{**ASKED, "function": {**LISTED, "name": "l s"}}]),
            OUTPUT,
        ],
    ),
    ("openai-responses", [chat("user", "x", status="hologram")]),
    ("openai-responses", [chat("user", [{"type": None, "image_url": PNG}])]),
    ("openai-responses", [CALLED, GAVE | {"output": [5]}]),
    ("openai-responses", [CALLED, GAVE | {"id": "hologram"}]),
    ("openai-responses", [{**chat("assistant", "x"), "id": "hologram"}]),
    ("anthropic", [chat("user", [said("a"), said(" ")])]),
    ("anthropic", [chat("user", [said("a", cache_control={"type": "hologram"})])]),
    ("anthropic", [chat("user", [said("a", cache_control=5)])]),
    ("anthropic", gave([said("a"), said(" ")])),
    ("anthropic", gave([said("a"), {"type": "hologram"}])),
    ("gemini", [{"parts": [{"text": "a"}]}]),
    ("gemini", [{"role": "user", "parts": [{"text": "a"}, {"text": ""}]}]),
    ("gemini", [{"role": "user", "parts": [{"text": "a", "thought": "yes"}]}]),
    ("gemini", [{"role": "user", "parts": [{"text": "a"}, {"hologram": 1}]}]),
]  # fmt: skip


@pytest.mark.parametrize(("form", "elements"), KEPT)
def test_what_the_provider_takes_comes_back_to_the_letter(form: str, elements: Any) -> None:  # noqa: ANN401 - JSON
    parsed = wire.from_(form, elements)
    target = wire.Target(prefill=True)

    assert () == parsed.notes
    assert elements == wire.to(form, parsed.messages, target).items


@pytest.mark.parametrize(("form", "elements"), SPOILED)
def test_what_it_refuses_is_said_and_does_not_come_back(form: str, elements: Any) -> None:  # noqa: ANN401 - JSON
    """The rest of the message does: what is wrong in it must not cost the words."""
    parsed = wire.from_(form, elements)
    body = wire.to(form, parsed.messages).body

    assert () != parsed.notes
    assert () == check_request(form, body)
    assert () == check_types(form, body)
    assert elements != body[wire.FORMATS[form].items][: len(elements)]


def test_the_samples_are_what_they_are_said_to_be() -> None:
    """The judges take the first ones and refuse the others."""
    for samples, valid in ((KEPT, True), (SPOILED, False)):
        for form, elements in samples:
            field = wire.FORMATS[form].items
            answered = elements[-1]["role"] == "assistant" if form == "anthropic" else False
            ends = wire.to(form, []).items if answered else []
            found = check_request(form, {field: [*elements, *ends]})
            assert valid is (() == found), (elements, found)
