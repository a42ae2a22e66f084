"""Judges of requests, as strict as the providers: say what a provider would refuse, and why.

They know nothing of how palaver writes a request, so they can judge it; and they judge requests
from anywhere else as well. Where a rule depends on the model, it is the newest models' rule,
unless the body names an older model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from palaver.testing.providers import anthropic, chat, gemini, responses
from palaver.testing.providers.findings import Findings, Problem
from palaver.testing.providers.rules import RULES, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FORMATS", "RULES", "Format", "Problem", "Rule", "check_request"]

Format = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]

FORMATS: Final[tuple[Format, ...]] = get_args(Format)
"""The formats that can be judged."""

_JUDGES: dict[str, Callable[[Findings, object], None]] = {
    "openai-chat": chat.check,
    "openai-responses": responses.check,
    "anthropic": anthropic.check,
    "gemini": gemini.check,
}


def check_request(format: str, body: object) -> tuple[Problem, ...]:  # noqa: A002 - its name
    """Say everything that a provider would refuse in the body of a request.

    `body` is the JSON that would be sent, as Python's own values. Whatever it is, this does not
    raise: what is no request at all has problems too.

    >>> check_request("anthropic", {"messages": [{"role": "user", "content": "Hello"}]})
    ()
    >>> lost = {"type": "tool_result", "tool_use_id": "call_1", "content": "9 °C"}
    >>> body = {"messages": [{"role": "user", "content": [lost]}]}
    >>> for problem in check_request("anthropic", body):
    ...     print(problem)
    messages[0].content[0]: nothing was called by call_1 (result-without-call)
    """
    if format not in _JUDGES:
        raise ValueError(f"unknown format {format!r}; known are {', '.join(_JUDGES)}")
    found = Findings()
    _JUDGES[format](found, body)
    return tuple(found)
