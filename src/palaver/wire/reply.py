"""Replies: a provider's answer, whole or as a stream of events, becomes a message.

A `ReplyReader` understands one provider's events and hands what they say to a `ReplyBuilder`, which
has blocks that grow, in their order, and can make a message of them at any moment. However a stream
is cut into pieces, the message is the same; an answer that came whole is one that came in one
piece. What had arrived when an answer broke off stays; a call that broke off is no call, but its
text is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from palaver.errors import ValidationError
from palaver.messages.ids import NIL_ID, new_id, now_ms
from palaver.messages.limits import MAX_NAME, is_object, kind_of, replace_refused
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import (
    CacheCounts,
    ModelRef,
    TextPart,
    TokenCounts,
    UnknownPart,
    file_part,
    read_arguments,
    reasoning_part,
    text_part,
    tool_call_part,
)
from palaver.messages.redaction import redact
from palaver.wire.notes import Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.messages.parts import Part, ToolCallPart

__all__ = [
    "BlockKey",
    "CallDelta",
    "CallReady",
    "CallStarted",
    "Delta",
    "Failed",
    "FinishReason",
    "Finished",
    "ReasoningDelta",
    "ReplyBuilder",
    "ReplyReader",
    "TextDelta",
    "UsageDelta",
    "metadata_of_call",
    "split_tokens",
    "token_count",
]


# ── deltas ───────────────────────────────────────────────────────────────────────────────────────


class TextDelta(Struct, frozen=True, tag=True, omit_defaults=True, repr_omit_defaults=True):
    """More of the model's text; `refused`, if it is how the model says that it won't answer."""

    text: str
    refused: bool = False


class ReasoningDelta(Struct, frozen=True, tag=True):
    """More of the model's reasoning."""

    text: str


class CallStarted(Struct, frozen=True, tag=True):
    """The model begins to call a tool; `index` tells the calls of an answer apart."""

    index: int
    call_id: str
    tool: str


class CallDelta(Struct, frozen=True, tag=True):
    """More of a call's arguments."""

    index: int
    text: str


class CallReady(Struct, frozen=True, tag=True):
    """A call is complete, with its arguments as the model wrote them."""

    index: int
    call_id: str
    tool: str
    raw: str


class UsageDelta(Struct, frozen=True, tag=True):
    """The tokens used so far, by the provider's count."""

    tokens: TokenCounts


class Finished(Struct, frozen=True, tag=True):
    """The answer is over: `stop`, `tool-calls`, `length`, `content-filter`, `error` or `other`."""

    reason: str


class Failed(Struct, frozen=True, tag=True):
    """The provider broke off, and says why."""

    name: str
    message: str


Delta: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | CallStarted
    | CallDelta
    | CallReady
    | UsageDelta
    | Finished
    | Failed
)
"""What came in with one event of a stream, the same for every provider."""


# ── building a message ───────────────────────────────────────────────────────────────────────────

BlockKey: TypeAlias = tuple[int, ...]
"""A block's position in the answer."""
FinishReason: TypeAlias = Literal[
    "stop", "tool-calls", "length", "content-filter", "error", "other"
]
_COMPLETE: Final = ("stop", "tool-calls")
"""How an answer ends that nothing broke off: its calls are as the model meant them."""


class _Block(Struct):
    kind: Literal["text", "reasoning", "call", "file", "unknown"]
    pieces: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    call_id: str = ""
    name: str = ""
    index: int = 0
    started: bool = False
    ready: bool = False
    at: int = field(default_factory=now_ms)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class ReplyBuilder:
    """Builds the message of one answer; `deltas` has what came in since it was last emptied.

    >>> builder = ReplyBuilder("openai-chat", "openai")
    >>> builder.text((0,), "Moun")
    >>> builder.text((0,), "tain")
    >>> builder.finish("stop")
    >>> builder.message().text
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
        """Build an answer of this format; parts have what the provider wants back under its name.

        `limit` is how many bytes of text, reasoning and arguments it takes: the rest is dropped.
        """
        self.deltas: list[Delta] = []
        self.about: dict[str, Any] = {}
        self._form, self._provider = form, provider
        self._session, self._model, self._names = session, model, names or {}
        self._id, self._at = new_id(), now_ms()
        self._blocks: dict[BlockKey, _Block] = {}
        self._calls = 0
        self._limit = limit
        self.size = 0
        self.over_limit = False
        self._usage: Mapping[str, Any] | None = None
        self._tokens: TokenCounts | None = None
        self._cost: float | None = None
        self._finish: FinishReason | None = None
        self._error: dict[str, Any] | None = None

    @property
    def id(self) -> str:
        """The id that the message has, or will have."""
        return self._id

    @property
    def finished(self) -> bool:
        """Whether the provider said that the answer is over."""
        return self._finish is not None

    def model(self, name: object) -> None:
        """Set the model that answers, unless the caller has named one."""
        if self._model is None and isinstance(name, str) and name:
            self._model = ModelRef(self._provider, str(replace_refused(name)))

    def text(self, key: BlockKey, piece: str, **metadata: Any) -> None:  # noqa: ANN401 - JSON, here and below
        """Add to a text; `metadata` is what the provider wants to see again."""
        self._grow(self._block(key, "text", metadata), piece)

    def reasoning(self, key: BlockKey, piece: str, **metadata: Any) -> None:  # noqa: ANN401
        """Add to the reasoning."""
        self._grow(self._block(key, "reasoning", metadata), piece)

    def settle(self, key: BlockKey, text: str) -> None:
        """Set a block's text: the provider has repeated it whole."""
        block = self._blocks[key]
        known = block.text
        if text == known:
            return
        rest = text[len(known) :] if text.startswith(known) else ""
        if not rest:
            self.size -= _utf8_length(known)
            block.pieces = [self.cut_to_limit(text)]
        elif block.kind == "call":
            self._grow_call(block, rest)
        else:
            self._grow(block, rest)

    def call(
        self,
        key: BlockKey,
        *,
        call_id: str | None = None,
        name: str | None = None,
        piece: str = "",
        **metadata: Any,  # noqa: ANN401
    ) -> None:
        """Add to a call; its id and its name may come with any piece, and the first one counts."""
        block = self._block(key, "call", metadata)
        block.call_id = block.call_id or (call_id or "")
        block.name = block.name or (name or "")
        if block.name and (block.call_id or piece):
            self._start(block)
        self._grow_call(block, piece)

    def ready(self, key: BlockKey) -> None:
        """Mark a call as complete."""
        block = self._blocks.get(key)
        if block is not None and block.kind == "call" and not block.ready:
            self._start(block)
            block.ready = True
            raw, tool = block.text, self._tool(block)
            self.deltas.append(CallReady(block.index, block.call_id, tool, raw))

    def file(self, key: BlockKey, mime: str, url: str) -> None:
        """Add a file."""
        self._block(key, "file", {"mime": mime, "url": url})

    def unknown(self, key: BlockKey, block: Mapping[str, Any], **context: Any) -> None:  # noqa: ANN401
        """Add a block that palaver stores without understanding it, or replace it."""
        self._block(key, "unknown", {**context, "block": block})

    def usage(self, raw: Mapping[str, Any], tokens: TokenCounts | None, cost: float | None) -> None:
        """Set what was used, None where the report does not say; the last report counts."""
        if tokens is not None and tokens != self._tokens:
            self.deltas.append(UsageDelta(tokens))
        self._usage, self._tokens, self._cost = raw, tokens, cost

    def finish(self, reason: FinishReason) -> None:
        """Mark the answer as over, with the reason."""
        if self._finish is None:
            calls = [key for key, block in self._blocks.items() if block.kind == "call"]
            for key in sorted(calls):
                complete = reason in _COMPLETE and not self.over_limit
                if complete or _is_complete(self._blocks[key].text):
                    self.ready(key)
            self._finish = "tool-calls" if calls and reason == "stop" else reason
            self.deltas.append(Finished(self._finish))

    def fail(self, name: object, message: object) -> None:
        """Mark the answer as broken off by the provider."""
        said = redact(str(message or "the provider gave no reason"))
        self._error = {"name": str(name or "error"), "message": said}
        self._finish = None
        self.deltas.append(Failed(self._error["name"], said))
        self.finish("error")

    def cut(self, name: str, message: str) -> None:
        """Mark the answer as cut off on this side; what had arrived stays."""
        self._error = {"name": name, "message": message}
        self._finish = None

    def message(self, *, interrupted: bool | None = None) -> Message:
        """Return the answer so far; interrupted unless the provider said that it is over."""
        cut = not self.finished if interrupted is None else interrupted
        finish = "interrupted" if cut else self._finish
        done = finish in _COMPLETE
        over = finish not in ("interrupted", "error")
        parts, broken = list[Any](), list[Any]()
        for _, block in sorted(self._blocks.items()):
            if block.kind == "call" and not (done or block.ready or _is_complete(block.text)):
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

    def cut_to_limit(self, piece: str) -> str:
        """Return as much of a piece as the limit allows, and count it."""
        size = _utf8_length(piece)
        if self._limit is not None and self.size + size > self._limit:
            self.over_limit = True
            data = piece.encode("utf-8", "surrogatepass")[: max(0, self._limit - self.size)]
            piece = data.decode("utf-8", "ignore")
            size = _utf8_length(piece)
        self.size += size
        return piece

    def _block(self, key: BlockKey, kind: Any, metadata: Mapping[str, Any]) -> _Block:  # noqa: ANN401
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = _Block(kind)
            if kind == "call":
                block.index = self._calls
                self._calls += 1
        block.metadata.update(metadata)
        return block

    def _grow(self, block: _Block, piece: str) -> None:
        piece = self.cut_to_limit(piece)
        if piece:
            block.pieces.append(piece)
            refused = block.metadata.get("refusal") is True
            said = block.kind == "text"
            self.deltas.append(TextDelta(piece, refused) if said else ReasoningDelta(piece))

    def _grow_call(self, block: _Block, piece: str) -> None:
        piece = self.cut_to_limit(piece)
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
        stored = block.metadata
        where = (self._session, self._id)
        metadata = _clean({self._provider: stored}) if stored else {}
        text = str(replace_refused(block.text))
        if block.kind == "text":
            if text or stored:
                yield text_part(*where, text, metadata=metadata)
        elif block.kind == "reasoning":
            if text or stored:
                ours = {self._provider: _clean(stored)}  # also where nothing is to be sent back
                yield reasoning_part(*where, text, start=block.at, metadata=ours)
        elif block.kind == "call":
            yield self._call(block, text)
        elif block.kind == "file":
            yield file_part(*where, stored["mime"], stored["url"])
        else:
            yield UnknownPart(_clean({"type": self._form, "id": new_id(), **stored}))

    def _call(self, block: _Block, raw: str) -> ToolCallPart:
        given, stored = read_arguments(raw), _clean(block.metadata)
        return tool_call_part(
            self._session,
            self._id,
            _printable(self._tool(block)),
            given.input,
            call_id=_printable(block.call_id) or new_id(),
            raw=given.raw,
            metadata=metadata_of_call(self._provider, stored, wrapped=given.wrapped),
        )


def _content(parts: list[Part]) -> Any:  # noqa: ANN401 - text or parts
    """Return a text alone where there is nothing else."""
    only = parts[0] if len(parts) == 1 else None
    if not parts:
        return ""
    return only.text if isinstance(only, TextPart) and not only.metadata else tuple(parts)


def _is_complete(raw: str) -> bool:
    """Tell whether a call's arguments are a complete JSON object."""
    try:
        return is_object(msgspec.json.decode(raw))
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False


def _clean(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object without what messages refuse."""
    found = replace_refused(value)
    return dict(found) if is_object(found) else {}


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _printable(name: str) -> str:
    """Return a name that messages accept."""
    return "".join(letter if letter.isprintable() else "_" for letter in name)[:MAX_NAME]


def metadata_of_call(
    provider: str, stored: Mapping[str, Any], *, wrapped: bool = False
) -> dict[str, Any]:
    """Return the metadata of a call: what its provider wants back, and that it took free text.

    OpenAI has calls for free text; with any other provider, what was wrapped was such a call.
    """
    found: dict[str, Any] = {provider: stored} if stored else {}
    return {**found, "openai": {"custom": True}} if wrapped and provider != "openai" else found


# ── reading a provider's reply ───────────────────────────────────────────────────────────────────


class ReplyReader:
    """Reads one reply of a provider into a message; each provider has one subclass.

    `feed` takes the events of a stream as JSON objects, one by one, and returns what each brought;
    `message` returns the answer so far. An event that is not understood is noted, once for its
    kind.
    """

    form: ClassVar[str]
    provider: ClassVar[str]
    finish_reasons: ClassVar[Mapping[str, FinishReason]] = {}
    """The provider's words for why an answer ended; any other word is `other`."""

    def __init__(
        self,
        *,
        session: str = NIL_ID,
        model: ModelRef | None = None,
        names: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> None:
        """Read for a session.

        `model` is the one that was asked: what an answer stores for its model goes back to that
        name only, and a provider may answer under a longer one. `names` are the request's. `limit`
        is how many bytes of text, reasoning and arguments are stored.
        """
        self.answer = ReplyBuilder(
            self.form, self.provider, session=session, model=model, names=names, limit=limit
        )
        self._notes: dict[str, Note] = {}
        self._usage: dict[str, Any] = {}

    @property
    def finished(self) -> bool:
        """Whether the provider said that the answer is over."""
        return self.answer.finished

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was not kept."""
        return tuple(self._notes.values())

    def feed(self, event: object) -> list[Delta]:
        """Take the next event; return what it brought."""
        if is_object(event):
            self.read_event(event)
        else:
            detail = f"an event that is {kind_of(event)} is not understood"
            self.note_loss("event", "shape", detail)
        found, self.answer.deltas = self.answer.deltas, []
        return found

    def read(self, body: object) -> Message:
        """Return the message of a reply that came whole; `ValidationError` where it is none."""
        if not is_object(body) or not self.read_body(body):
            detail = f"is no reply of {self.form}"
            raise ValidationError(detail, path="$", rule="schema")
        return self.message()

    def message(self, *, interrupted: bool | None = None) -> Message:
        """Return the answer so far; interrupted unless the provider said that it is over."""
        return self.answer.message(interrupted=interrupted)

    def read_event(self, event: Mapping[str, Any]) -> None:
        """Read an event of a stream."""
        raise NotImplementedError

    def read_body(self, body: Mapping[str, Any]) -> bool:
        """Read a whole reply; return False where it is none."""
        raise NotImplementedError

    @staticmethod
    def count_tokens(usage: Mapping[str, Any]) -> TokenCounts | None:
        """Return the provider's count as five counts that do not overlap.

        A usage without a figure above 0 says nothing: then it is None.
        """
        raise NotImplementedError

    @classmethod
    def finish_reason(cls, reason: str, *, calls: bool = False) -> FinishReason:
        """Return why an answer ended, in the words that are the same for every provider.

        `calls` says that the answer has calls: then it ended with them.

        >>> from palaver.wire.anthropic.reply import AnthropicReply
        >>> AnthropicReply.finish_reason("end_turn")
        'stop'
        """
        found = cls.finish_reasons.get(reason, "other")
        return "tool-calls" if calls and found == "stop" else found

    def add_usage(self, usage: object) -> None:
        """Take what was used; a count that is not repeated stands."""
        if not is_object(usage) or not usage:
            return
        for key, value in usage.items():
            if value is not None or key not in self._usage:
                self._usage[key] = value
        cost: Any = self._usage.get("cost")
        price = float(cost) if type(cost) in (int, float) and cost >= 0 else None
        self.answer.usage(dict(self._usage), self.count_tokens(self._usage), price)

    def add_about(self, **facts: object) -> None:
        """Store what the reply says of itself."""
        self.answer.about.update({key: value for key, value in facts.items() if value})

    def finish(self, reason: str) -> None:
        """Take the provider's word for why the answer ended."""
        self.add_about(finish=reason)
        self.answer.finish(self.finish_reason(reason))

    def add_error(self, error: object) -> None:
        """Take an error that came in place of an answer, or in the middle of one."""
        found = error if is_object(error) else {"message": error}
        self.answer.fail(found.get("type") or found.get("code"), found.get("message"))

    def note_loss(self, where: str, rule: str, detail: str) -> None:
        """Note what was not kept, once for its kind."""
        self._notes.setdefault(detail, Note("lost", where, rule, detail))


def token_count(usage: Mapping[str, Any], *path: str) -> int | None:
    """Return the count of tokens at this path; None where there is none."""
    found: Any = usage
    for key in path:
        found = found.get(key) if is_object(found) else None
    return found if type(found) is int and found >= 0 else None


def split_tokens(
    *,
    prompt: int | None,
    completion: int | None,
    total: int | None,
    read: int | None,
    write: int | None,
    reasoning: int | None,
    beside: bool = False,
) -> TokenCounts | None:
    """Return five counts that do not overlap; None where nothing was counted.

    The prompt includes what the cache had, the completion includes the reasoning unless that is
    counted `beside` it. A missing figure follows from the total; a total alone is stored as such,
    and as input.

    >>> split_tokens(prompt=100, completion=20, total=None, read=60, write=None, reasoning=5)
    TokenCounts(input=40, output=15, reasoning=5, cache=CacheCounts(read=60, write=0), total=None)
    """
    only_total = prompt is None and completion is None and bool(total)
    read, write, reasoning = read or 0, write or 0, reasoning or 0
    apart = reasoning if beside else 0
    if total is not None:
        prompt = total - (completion or 0) - apart if prompt is None else prompt
        completion = total - prompt - apart if completion is None else completion
    fresh = max((prompt or 0) - read - write, 0)
    output = max((completion or 0) - (0 if beside else reasoning), 0)
    if not (fresh or output or reasoning or read or write):
        return None
    cache = CacheCounts(read, write)
    return TokenCounts(fresh, output, reasoning, cache, total if only_total else None)
