"""An answer from pieces: blocks that grow, in their order, and a message of them at any moment.

Whatever the cuts, the same pieces give the same message, so an answer that came whole is only one
that came in one piece. What had arrived when an answer broke off is kept; a call that broke off is
no call, but its text is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from palaver.errors import ValidationError
from palaver.messages.factories import file_part, reasoning_part, text_part, tool_call_part
from palaver.messages.gate import MAX_NAME, freeze_mapping, is_object
from palaver.messages.ids import NIL_ID, new_id, now_ms
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import ModelRef, TextPart, UnknownPart
from palaver.messages.redaction import redact
from palaver.messages.replacement import replace_refused
from palaver.wire.deltas import (
    CallDelta,
    CallReady,
    CallStarted,
    Failed,
    Finished,
    ReasoningDelta,
    TextDelta,
    UsageDelta,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.messages.parts import Part, TokenCounts, ToolCallPart
    from palaver.wire.deltas import Delta

__all__ = ["Answer", "Finish", "Key"]

Key: TypeAlias = tuple[int, ...]
"""A block's place in the answer."""
Finish: TypeAlias = Literal["stop", "tool-calls", "length", "content-filter", "error", "other"]
_WHOLE: Final = ("stop", "tool-calls")
"""How an answer ends that nothing broke off: its calls are as the model meant them."""


class _Block(Struct):
    kind: Literal["text", "reasoning", "call", "file", "unknown"]
    pieces: list[str] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)
    call_id: str = ""
    name: str = ""
    index: int = 0
    started: bool = False
    ready: bool = False
    at: int = field(default_factory=now_ms)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Answer:
    """Builds one answer; `deltas` has what came in since it was last looked at.

    >>> answer = Answer("openai-chat", "openai")
    >>> answer.text((0,), "Moun")
    >>> answer.text((0,), "tain")
    >>> answer.finish("stop")
    >>> answer.message().text
    'Mountain'
    """

    def __init__(
        self,
        form: str,
        provider: str,
        *,
        session: str = NIL_ID,
        model: ModelRef | None = None,
        names: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> None:
        """Build an answer of this format; what parts keep of the provider is under its name.

        `limit` is how many bytes of text, reasoning and arguments it takes: the rest is not kept.
        """
        self.deltas: list[Delta] = []
        self.about: dict[str, Any] = {}
        self._form, self._provider = form, provider
        self._session, self._model, self._names = session, model, names or {}
        self._id, self._at = new_id(), now_ms()
        self._blocks: dict[Key, _Block] = {}
        self._calls = 0
        self._limit = limit
        self.size = 0
        self.over_limit = False
        self._usage: Mapping[str, Any] | None = None
        self._tokens: TokenCounts | None = None
        self._cost: float | None = None
        self._finish: Finish | None = None
        self._error: dict[str, Any] | None = None

    @property
    def finished(self) -> bool:
        """Whether the provider said that the answer is over."""
        return self._finish is not None

    def model(self, name: object) -> None:
        """Say which model answers; the one the caller named stands."""
        if self._model is None and isinstance(name, str) and name:
            self._model = ModelRef(self._provider, str(replace_refused(name)))

    def text(self, key: Key, piece: str, **kept: Any) -> None:  # noqa: ANN401 - JSON, here and below
        """Add to what is said; `kept` is what the provider wants to see again."""
        self._grow(self._block(key, "text", kept), piece, TextDelta)

    def reasoning(self, key: Key, piece: str, **kept: Any) -> None:  # noqa: ANN401
        """Add to what is thought."""
        self._grow(self._block(key, "reasoning", kept), piece, ReasoningDelta)

    def settle(self, key: Key, whole: str) -> None:
        """Make a block say just this: the provider has repeated it whole."""
        block = self._blocks[key]
        known = block.text
        if whole == known:
            return
        rest = whole[len(known) :] if whole.startswith(known) else ""
        if not rest:
            self.size -= _bytes(known)
            block.pieces = [self.within(whole)]
        elif block.kind == "call":
            self._more(block, rest)
        else:
            self._grow(block, rest, TextDelta if block.kind == "text" else ReasoningDelta)

    def call(
        self,
        key: Key,
        *,
        call_id: str | None = None,
        name: str | None = None,
        piece: str = "",
        **kept: Any,  # noqa: ANN401
    ) -> None:
        """Add to a call; its id and its name may come with any piece, the first of each stands."""
        block = self._block(key, "call", kept)
        block.call_id = block.call_id or (call_id or "")
        block.name = block.name or (name or "")
        if block.name and (block.call_id or piece):
            self._start(block)
        self._more(block, piece)

    def ready(self, key: Key) -> None:
        """Say that a call is whole."""
        block = self._blocks.get(key)
        if block is not None and block.kind == "call" and not block.ready:
            self._start(block)
            block.ready = True
            raw, tool = block.text, self._tool(block)
            self.deltas.append(CallReady(block.index, block.call_id, tool, raw))

    def file(self, key: Key, mime: str, url: str) -> None:
        """Add a file."""
        self._block(key, "file", {"mime": mime, "url": url})

    def unknown(self, key: Key, block: Mapping[str, Any], **more: Any) -> None:  # noqa: ANN401
        """Add a block that palaver keeps without understanding it, or put a newer one there."""
        self._block(key, "unknown", {**more, "block": block})

    def usage(self, raw: Mapping[str, Any], tokens: TokenCounts, cost: float | None) -> None:
        """Say what was used: the last word counts."""
        if tokens != self._tokens:
            self.deltas.append(UsageDelta(tokens))
        self._usage, self._tokens, self._cost = raw, tokens, cost

    def finish(self, reason: Finish) -> None:
        """Say that the answer is over, and why."""
        if self._finish is None:
            calls = [key for key, block in self._blocks.items() if block.kind == "call"]
            for key in sorted(calls):
                whole = reason in _WHOLE and not self.over_limit
                if whole or _is_whole(self._blocks[key].text):
                    self.ready(key)
            self._finish = "tool-calls" if calls and reason == "stop" else reason
            self.deltas.append(Finished(self._finish))

    def fail(self, name: object, message: object) -> None:
        """Say that the provider broke off."""
        said = redact(str(message or "the provider gave no reason"))
        self._error = {"name": str(name or "error"), "message": said}
        self._finish = None
        self.deltas.append(Failed(self._error["name"], said))
        self.finish("error")

    def cut(self, name: str, message: str) -> None:
        """Say why the answer was cut off on this side; what had arrived stays."""
        self._error = {"name": name, "message": message}
        self._finish = None

    def message(self, *, interrupted: bool | None = None) -> Message:
        """The answer as far as it came; cut off unless the provider said that it is over."""
        cut = not self.finished if interrupted is None else interrupted
        finish = "interrupted" if cut else self._finish
        done = finish in _WHOLE
        over = finish not in ("interrupted", "error")
        parts, broken = list[Any](), list[Any]()
        for _, block in sorted(self._blocks.items()):
            if block.kind == "call" and not (done or block.ready or _is_whole(block.text)):
                broken.append({"callID": block.call_id, "tool": block.name, "raw": block.text})
            else:
                parts.extend(self._parts(block))
        metadata = {"usage": self._usage, "reply": self.about, "incompleteCalls": broken}
        return Message(
            "assistant",
            _content(parts),
            id=self._id,
            timestamp=self._at,
            metadata=_clean({key: value for key, value in metadata.items() if value}),
            info=AssistantInfo(
                model=self._model,
                tokens=self._tokens,
                cost=self._cost,
                finish=finish,
                completed=now_ms() if over else None,
                error=_clean(self._error) if self._error else None,
            ),
        )

    def _block(self, key: Key, kind: Any, kept: Mapping[str, Any]) -> _Block:  # noqa: ANN401
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = _Block(kind)
            if kind == "call":
                block.index = self._calls
                self._calls += 1
        block.kept.update(kept)
        return block

    def within(self, piece: str) -> str:
        """As much of a piece as the limit allows; it is counted."""
        size = _bytes(piece)
        if self._limit is not None and self.size + size > self._limit:
            self.over_limit = True
            data = piece.encode("utf-8", "surrogatepass")[: max(0, self._limit - self.size)]
            piece = data.decode("utf-8", "ignore")
            size = _bytes(piece)
        self.size += size
        return piece

    def _grow(self, block: _Block, piece: str, delta: type[TextDelta | ReasoningDelta]) -> None:
        piece = self.within(piece)
        if piece:
            block.pieces.append(piece)
            self.deltas.append(delta(piece))

    def _more(self, block: _Block, piece: str) -> None:
        piece = self.within(piece)
        if piece:
            block.pieces.append(piece)
            self.deltas.append(CallDelta(block.index, piece))

    def _start(self, block: _Block) -> None:
        if not block.started:
            block.started = True
            block.call_id = block.call_id or new_id()
            self.deltas.append(CallStarted(block.index, block.call_id, self._tool(block)))

    def _tool(self, block: _Block) -> str:
        return self._names.get(block.name, block.name) or "unknown"

    def _parts(self, block: _Block) -> Iterator[Part]:
        kept = block.kept
        where = (self._session, self._id)
        metadata = _clean({self._provider: kept}) if kept else {}
        text = str(replace_refused(block.text))
        if block.kind == "text":
            if text or kept:
                yield text_part(*where, text, metadata=metadata)
        elif block.kind == "reasoning":
            if text or kept:
                yield reasoning_part(*where, text, start=block.at, metadata=metadata)
        elif block.kind == "call":
            yield self._call(block, text, metadata)
        elif block.kind == "file":
            yield file_part(*where, kept["mime"], kept["url"])
        else:
            yield UnknownPart(_clean({"type": self._form, "id": new_id(), **kept}))

    def _call(self, block: _Block, raw: str, metadata: Mapping[str, Any]) -> ToolCallPart:
        return tool_call_part(
            self._session,
            self._id,
            _printable(self._tool(block)),
            _arguments(raw) or {},
            call_id=_printable(block.call_id) or new_id(),
            raw=raw,
            metadata=metadata,
        )


def _content(parts: list[Part]) -> Any:  # noqa: ANN401 - text or parts
    """Text alone where there is nothing else."""
    only = parts[0] if len(parts) == 1 else None
    if not parts:
        return ""
    return only.text if isinstance(only, TextPart) and not only.metadata else tuple(parts)


def _arguments(raw: str) -> Mapping[str, Any] | None:
    """A call's arguments, where they are a JSON object to its end and fit to be kept."""
    try:
        found = replace_refused(msgspec.json.decode(raw))
        return freeze_mapping(found) if is_object(found) else None
    except (msgspec.DecodeError, ValidationError, RecursionError):
        return None


def _is_whole(raw: str) -> bool:
    return _arguments(raw) is not None


def _clean(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object without what the gate refuses."""
    found = replace_refused(value)
    return dict(found) if is_object(found) else {}


def _bytes(text: str) -> int:
    """How long a text is in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _printable(name: str) -> str:
    """A name as the gate takes it."""
    return "".join(letter if letter.isprintable() else "_" for letter in name)[:MAX_NAME]
