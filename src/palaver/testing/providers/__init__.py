"""Validators of requests, as strict as the providers: what a provider would refuse, and why.

They know nothing of how palaver writes a request, so they can check it, and they check requests
from anywhere else as well. Where a rule depends on the model, it is the newest models' rule, unless
the body names an older model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from palaver.testing.providers import anthropic, gemini, openai_chat, openai_responses
from palaver.testing.providers.checks import RULES, Findings, Rule, Violation

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FORMAT_NAMES", "RULES", "FormatName", "Rule", "Violation", "check_request"]

FormatName = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]

FORMAT_NAMES: Final[tuple[FormatName, ...]] = get_args(FormatName)
"""The formats that can be checked."""

_CHECKS: dict[str, Callable[[Findings, object], None]] = {
    "openai-chat": openai_chat.check,
    "openai-responses": openai_responses.check,
    "anthropic": anthropic.check,
    "gemini": gemini.check,
}


def check_request(format: str, body: object) -> tuple[Violation, ...]:  # noqa: A002 - its name
    """Return everything that a provider would refuse in the body of a request.

    `body` is the JSON that would be sent, as Python's own values. It may be anything: what is no
    request at all has violations too.

    >>> check_request("anthropic", {"messages": [{"role": "user", "content": "Hello"}]})
    ()
    >>> lost = {"type": "tool_result", "tool_use_id": "call_1", "content": "9 °C"}
    >>> body = {"messages": [{"role": "user", "content": [lost]}]}
    >>> for violation in check_request("anthropic", body):
    ...     print(violation)
    messages[0].content[0]: nothing was called by call_1 (result-without-call)
    """
    if format not in _CHECKS:
        raise ValueError(f"unknown format {format!r}; known are {', '.join(_CHECKS)}")
    found = Findings()
    _CHECKS[format](found, body)
    return tuple(found)
