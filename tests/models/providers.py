"""The four providers, as tests see them: a server, a model that asks it, and a question."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
from msgspec import Struct

from palaver.models import ModelRequest, RetryPolicy, model
from palaver.testing.providers import FormatName
from palaver.testing.servers import ProviderServer
from palaver.wire import ToolSpec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from palaver.models import Model
    from palaver.testing.servers import Scripted

__all__ = ["KEYS", "PROVIDERS", "QUICK", "TOOLS", "Provider", "asking", "gathered", "until"]

KEYS: Final = {
    "OPENAI_API_KEY": "sk-secret-of-openai",
    "ANTHROPIC_API_KEY": "sk-ant-secret-of-anthropic",
    "GEMINI_API_KEY": "AIza-secret-of-google",
}
QUICK: Final = RetryPolicy(shortest=0.01)
TOOLS: Final = (
    ToolSpec(
        "weather.get",
        "The weather of a city.",
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    ),
    ToolSpec("clock"),
)


class Provider(Struct, frozen=True):
    """A provider."""

    format: FormatName
    name: str
    id: str
    key: str
    body: Mapping[str, Any]

    def ask(self, **options: object) -> ModelRequest:
        """A question without tools."""
        return ModelRequest(self.body, options=options)


_WORDS = {"role": "user", "content": "Tea?"}
PROVIDERS: Final = (
    Provider("openai-chat", "openai:gpt-5", "openai", "OPENAI_API_KEY", {"messages": [_WORDS]}),
    Provider(
        "openai-responses", "responses:gpt-5", "openai", "OPENAI_API_KEY", {"input": [_WORDS]}
    ),
    Provider(
        "anthropic", "anthropic:claude", "anthropic", "ANTHROPIC_API_KEY", {"messages": [_WORDS]}
    ),
    Provider(
        "gemini",
        "gemini:gemini-3-pro",
        "google",
        "GEMINI_API_KEY",
        {"contents": [{"role": "user", "parts": [{"text": "Tea?"}]}]},
    ),
)


@asynccontextmanager
async def asking(
    provider: Provider, *script: Scripted, **options: object
) -> AsyncGenerator[tuple[Model, ProviderServer]]:
    """A server with a script, and a model that asks it."""
    with ProviderServer(provider.format, script) as server:
        given: dict[str, Any] = {
            "base_url": server.url,
            "timeout": 20.0,
            "retries": QUICK,
            **options,
        }
        asked = model(provider.name, **given)
        try:
            yield asked, server
        finally:
            await asked.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - another thread has no event for us
            await anyio.sleep(0.01)


async def gathered(asked: Model, ask: ModelRequest) -> list[Mapping[str, Any]]:
    """All the events of a stream."""
    return [event async for event in asked.stream(ask)]
