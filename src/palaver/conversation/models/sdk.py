"""What all models over a provider's SDK share: one client for each event loop, retries, errors.

A provider's own file says how a request is spelled, how the SDK is called and what its errors mean.
Raw JSON goes in and comes out, so nothing that a provider adds tomorrow is lost on the way. The
SDK's own retries are off: only here is it known whether something of the answer had arrived.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import anyio
from anyio.lowlevel import RunVar
from msgspec.structs import replace

from palaver.conversation.models.base import merged
from palaver.conversation.models.failures import Failure, bad_answer, of_transport, scrubbed
from palaver.conversation.models.retrying import Retries
from palaver.errors import BadAnswer, ModelError, NetworkError
from palaver.messages.gate import is_object
from palaver.messages.parts import ModelRef
from palaver.wire.target import Target
from palaver.wire.tools import spell_tool, write_tools

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from palaver.conversation.models.base import Ask

__all__ = ["CONNECT_SECONDS", "SdkModel"]

ClientT = TypeVar("ClientT")

CONNECT_SECONDS: Final = 10.0
_log: Final = logging.getLogger("palaver.models")
_HERE: Final[RunVar[object]] = RunVar("palaver.models.here")
"""A mark for each event loop: connections of one are of no use in another."""


class SdkModel(ABC, Generic[ClientT]):
    """A model that is reached through its provider's SDK.

    `timeout` is how long to wait for the next piece of an answer. The key is the SDK's to find, in
    the provider's usual environment variables, unless one is given; it is nowhere else.
    """

    provider: ClassVar[str]
    format: str

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        window: int | None = None,
        target: Target | None = None,
        timeout: float = 600.0,
        retries: Retries | None = None,
    ) -> None:
        """Nothing is connected before the first question."""
        self.ref = ModelRef(provider_id=self.provider, model_id=name)
        self.window = window
        self.target = replace(target or Target(), model=self.ref)
        self.base_url = base_url
        self.timeout = timeout
        self.retries = retries or Retries()
        self._api_key = api_key
        self._client: tuple[object, ClientT] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ref.model_id}>"

    # ── what a provider's file says ──────────────────────────────────────────────────────────────

    @abstractmethod
    def open(self) -> ClientT:
        """Make the SDK's client."""

    @abstractmethod
    async def shut(self, client: ClientT) -> None:
        """Close the SDK's client."""

    @abstractmethod
    def settings(self, ask: Ask) -> Mapping[str, Any]:
        """The fields of a request beside the conversation and the tools."""

    @abstractmethod
    async def call(self, client: ClientT, body: dict[str, Any]) -> object:
        """Ask for a whole answer."""

    @abstractmethod
    def events(self, client: ClientT, body: dict[str, Any]) -> AsyncGenerator[object]:
        """Ask for a stream."""

    @abstractmethod
    def ends(self, event: Mapping[str, Any]) -> bool:
        """Tell whether an event says that the answer is complete."""

    @abstractmethod
    def failed(self, event: Mapping[str, Any]) -> Failure | None:
        """The failure that an event speaks of, if it does."""

    @abstractmethod
    def explain(self, error: Exception) -> Failure | None:
        """What an error of the SDK means; None where it is none of its errors."""

    @abstractmethod
    def secrets(self, client: ClientT) -> Sequence[str | None]:
        """What must not be seen in any text."""

    # ── what a model does ────────────────────────────────────────────────────────────────────────

    def request(self, ask: Ask) -> dict[str, Any]:
        """The body of a request: the conversation, the tools, the settings, the extras."""
        ask.checked()
        body = {**ask.body, **self.settings(ask)}
        if ask.tools:
            body["tools"] = write_tools(self.format, ask.tools)
        return merged(body, ask.extra)

    def spelled(self, tool: str) -> str:
        """A tool's name as it stands in a request."""
        return spell_tool(self.format, tool)

    async def stream(self, ask: Ask) -> AsyncGenerator[Mapping[str, Any]]:
        """Ask, and give the provider's stream events as they arrive."""
        body = self.request(ask)
        repeats = 0
        while True:
            arrived = ended = False
            try:
                async with aclosing(self.events(self._open(), body)) as events:
                    async for event in events:
                        sound = self._sound(event)
                        arrived = True
                        ended = ended or self.ends(sound)
                        yield sound
                self._want_end(ended=ended)
                return  # noqa: TRY300 - the way out of the loop
            except Exception as error:  # noqa: BLE001 - told apart and raised again
                wait = self._after(error, repeats, arrived=arrived)
            repeats += 1
            await anyio.sleep(wait)

    async def whole(self, ask: Ask) -> Mapping[str, Any]:
        """Ask, and give the provider's whole answer."""
        body = self.request(ask)
        repeats = 0
        while True:
            try:
                return self._sound(await self.call(self._open(), body))
            except Exception as error:  # noqa: BLE001 - told apart and raised again
                wait = self._after(error, repeats, arrived=False)
            repeats += 1
            await anyio.sleep(wait)

    async def close(self) -> None:
        """Close the connections; the next question opens new ones."""
        held, self._client = self._client, None
        if held is not None and held[0] is _HERE.get(None):
            await self.shut(held[1])

    def _open(self) -> ClientT:
        here = _HERE.get(None)
        if here is None:
            here = object()
            _HERE.set(here)
        if self._client is None or self._client[0] is not here:
            self._client = (here, self.open())
        return self._client[1]

    def _sound(self, event: object) -> Mapping[str, Any]:
        if not is_object(event):
            raise BadAnswer("what came is not a JSON object", provider=self.provider)
        failed = self.failed(event)
        if failed is not None:
            raise _Refused(failed)
        return event

    def _want_end(self, *, ended: bool) -> None:
        if not ended:
            raise BadAnswer("the answer broke off", provider=self.provider)

    def _after(self, error: Exception, repeats: int, *, arrived: bool) -> float:
        """How long to wait before the question is asked again; raises where it is not."""
        failure = self._failure(error)
        if failure is None:
            raise error
        typed = failure.error
        if arrived and isinstance(typed, NetworkError):
            typed = BadAnswer(f"the answer broke off: {typed.detail}", provider=self.provider)
        again = failure.again and not arrived
        wait = self.retries.wait(repeats, typed.retry_after) if again else None
        if wait is None:
            raise typed from None  # the SDK's own error may hold more than people should see
        _log.info("%s; asking again in %.1f s", typed, wait)
        return wait

    def _failure(self, error: Exception) -> Failure | None:
        if isinstance(error, _Refused):
            failure: Failure | None = error.failure
        elif isinstance(error, ModelError):
            failure = Failure(error)
        else:
            failure = self.explain(error) or of_transport(error, self.provider, self.timeout)
            if failure is None and isinstance(error, ValueError):
                failure = bad_answer(self.provider, f"what came is not JSON: {error}")
        if failure is None:
            return None
        told = failure.error
        words = scrubbed(told.detail, self._secrets())
        clean = type(told)(
            words, provider=told.provider, status=told.status, retry_after=told.retry_after
        )
        return Failure(clean, failure.again)

    def _secrets(self) -> Sequence[str | None]:
        return (self._api_key, *(self.secrets(self._client[1]) if self._client else ()))


class _Refused(Exception):  # noqa: N818 - it never leaves this file
    """A failure that was told inside a stream."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure
