"""The events of a response's stream: the same for one that runs and for one that is repeated.

`EventWriter` writes the events of items, each with the next number. `LiveEvents` drives it with the
deltas of a model as they arrive; `replay` drives it with the items of a stored response and the
lengths of the pieces in which they came, so a client that comes back finds the numbers it knows.
One item is written at a time: what arrives of a second call waits until the first is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from palaver.messages.parts import read_arguments
from palaver.server.openai.ids import ItemId, read_item_id
from palaver.server.openai.shapes import SERVER_LABEL, join_name, split_name
from palaver.wire.reply import CallDelta, CallReady, CallStarted, ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from palaver.conversation.step import ToolOutcome
    from palaver.wire.reply import Delta

__all__ = ["EventWriter", "LiveEvents", "encode_event", "ending", "replay"]

_END: Final = {"completed": "response.completed", "failed": "response.failed"}
_INPUTS: Final = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
    "mcp_call": ("response.mcp_call_arguments", "arguments"),
}
"""The events of a call's arguments by the type of its item, and the field that holds them."""


def encode_event(event: Mapping[str, Any]) -> bytes:
    """Return an event as it is sent."""
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event))


def ending(response: Mapping[str, Any]) -> str:
    """The type of the event that ends the stream of a response."""
    return _END.get(response["status"], "response.incomplete")


class EventWriter:
    """Writes events with their numbers; `pieces` has the lengths of the deltas of each item."""

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        """Hand every event to `emit`."""
        self._emit = emit
        self._number = 0
        self.pieces: list[list[int]] = []

    def write(self, kind: str, **fields: Any) -> None:  # noqa: ANN401 - JSON
        """Write one event."""
        self._emit({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1

    def skip_to(self, number: int) -> None:
        """Give the next event at least this number."""
        self._number = max(self._number, number)

    def begin(self, response: Mapping[str, Any]) -> None:
        """Write the two events that every stream begins with."""
        self.write("response.created", response=response)
        self.write("response.in_progress", response=response)

    def open(self, item: Mapping[str, Any]) -> int:
        """Write that an item begins, and return its index."""
        index = len(self.pieces)
        self.pieces.append([])
        self.write("response.output_item.added", output_index=index, item=item)
        return index

    def close(self, index: int, item: Mapping[str, Any]) -> None:
        """Write that an item is complete."""
        self.write("response.output_item.done", output_index=index, item=item)

    def piece(self, kind: str, index: int, text: str, **fields: Any) -> None:  # noqa: ANN401 - JSON
        """Write one delta of an item."""
        self.pieces[index].append(len(text))
        self.write(f"{kind}.delta", output_index=index, delta=text, **fields)


class _TextKind(Struct, frozen=True):
    """How the texts of an item are streamed: the names of its events, and of its fields."""

    item: str
    block: str
    field: str
    events: str
    part: str
    position: str = "content_index"


_TEXTS: Final = {
    "text": _TextKind(
        "msg", "output_text", "text", "response.output_text", "response.content_part"
    ),
    "refusal": _TextKind(
        "msg", "refusal", "refusal", "response.refusal", "response.content_part"
    ),
    "reasoning": _TextKind(
        "rs", "summary_text", "text", "response.reasoning_summary_text",
        "response.reasoning_summary_part", "summary_index",
    ),
}  # fmt: skip
"""What a model says, won't say, and thinks."""


class _TextItem:
    """A message or a reasoning item that is being written."""

    def __init__(self, writer: EventWriter, name: str, kind: str) -> None:
        self._writer, self._name, self.kind = writer, name, kind
        self._how = how = _TEXTS[kind]
        self._texts: list[str] = []
        self.index = writer.open(self._item("in_progress", None))
        self._where: dict[str, Any] = {"item_id": name, how.position: 0}
        self._more: dict[str, Any] = {"logprobs": []} if kind == "text" else {}
        writer.write(
            f"{how.part}.added", output_index=self.index, part=self._block(""), **self._where
        )

    def _block(self, text: str) -> dict[str, Any]:
        block = {"type": self._how.block, self._how.field: text}
        return {**block, "annotations": [], "logprobs": []} if self.kind == "text" else block

    def _item(self, status: str, text: str | None) -> dict[str, Any]:
        blocks = [] if text is None else [self._block(text)]
        if self.kind == "reasoning":
            return {"type": "reasoning", "id": self._name, "summary": blocks}
        return {
            "type": "message",
            "id": self._name,
            "role": "assistant",
            "status": status,
            "content": blocks,
        }

    def add(self, text: str) -> None:
        self._texts.append(text)
        self._writer.piece(self._how.events, self.index, text, **self._where, **self._more)

    def close(self, done: Mapping[str, Any] | None = None, status: str = "completed") -> None:
        """Write the whole text; `done` is the item as it is stored, if it is known by now."""
        text, writer, how = "".join(self._texts), self._writer, self._how
        fields: dict[str, Any] = {how.field: text, **self._where, **self._more}
        writer.write(f"{how.events}.done", output_index=self.index, **fields)
        part = self._block(text)
        writer.write(f"{how.part}.done", output_index=self.index, part=part, **self._where)
        writer.close(self.index, done or self._item(status, text))


class _CallItem:
    """A call that is being written; what arrives before its turn is held back."""

    def __init__(self, kind: str, name: str, call_id: str, tool: str) -> None:
        self.kind, self.name, self.call_id = kind, name, call_id
        self._tool = {"name": tool} if kind == "mcp_call" else split_name(tool)
        self._texts: list[str] = []
        self._held: list[str] = []
        self.index: int | None = None
        self.ready = False

    def item(self, status: str, text: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """The item of the call."""
        field = _INPUTS[self.kind][1]
        known = {"type": self.kind, "id": self.name, **self._tool, field: text}
        if self.kind == "mcp_call":
            return {**known, "server_label": SERVER_LABEL, "status": status, **more}
        return {**known, "call_id": self.call_id, "status": status}

    def begin(self, writer: EventWriter) -> None:
        """Write that the call begins, and what was held back."""
        self.index = writer.open(self.item("in_progress", "", output=None, error=None))
        if self.kind == "mcp_call":
            writer.write(
                "response.mcp_call.in_progress", output_index=self.index, item_id=self.name
            )
        held, self._held = "".join(self._held), []
        if held:
            self.add(writer, held)

    def add(self, writer: EventWriter, text: str) -> None:
        """Add to the arguments; those of free text are wrapped, and written when they are whole."""
        if self.index is None:
            self._held.append(text)
            return
        self._texts.append(text)
        if self.kind != "custom_tool_call":
            writer.piece(_INPUTS[self.kind][0], self.index, text, item_id=self.name)

    def end(self, writer: EventWriter) -> None:
        """Write the whole arguments; a call of this server is complete when it has run."""
        assert self.index is not None  # noqa: S101 - it has begun
        events, field = _INPUTS[self.kind]
        text = "".join(self._texts)
        if self.kind == "custom_tool_call":
            text = read_arguments(text).raw
            writer.piece(events, self.index, text, item_id=self.name)
        elif not text:  # a call without arguments
            text = "{}"
            writer.piece(events, self.index, text, item_id=self.name)
        writer.write(
            f"{events}.done",
            output_index=self.index,
            item_id=self.name,
            **{field: text},
            **({"name": self._tool["name"]} if self.kind == "function_call" else {}),
        )
        if self.kind != "mcp_call":
            writer.close(self.index, self.item("completed", text))


def _close_hosted(writer: EventWriter, index: int, item: Mapping[str, Any]) -> None:
    if item["type"] == "mcp_call":
        end = "failed" if item["status"] == "failed" else "completed"
        writer.write(f"response.mcp_call.{end}", output_index=index, item_id=item["id"])
    writer.close(index, item)


class LiveEvents:
    """Turns what happens in a run into events."""

    def __init__(
        self,
        writer: EventWriter,
        conversation: str,
        hosted: Iterable[str] = (),
        custom: Iterable[str] = (),
    ) -> None:
        """Write for a response of a conversation; `hosted` and `custom` are names of tools."""
        self._writer, self._conversation = writer, conversation
        self._hosted, self._custom = frozenset(hosted), frozenset(custom)
        self._message = ""
        self._counts: dict[str, int] = {}
        self._text: _TextItem | None = None
        self._calls: dict[int, _CallItem] = {}
        self._open: _CallItem | None = None
        self._running: dict[str, _CallItem] = {}

    def begin(self, message: str) -> None:
        """Begin an answer, whose message will have this id."""
        self.end()
        self._message, self._counts = message, {}
        self._calls, self._running = {}, {}

    def add(self, delta: Delta) -> None:
        """Take one delta of the answer."""
        if isinstance(delta, TextDelta):
            self._add_text(delta.text, "refusal" if delta.refused else "text")
        elif isinstance(delta, ReasoningDelta):
            self._add_text(delta.text, "reasoning")
        elif isinstance(delta, CallStarted):
            self._start(delta)
        elif isinstance(delta, CallDelta):
            call = self._calls.get(delta.index)
            if call is not None:
                call.add(self._writer, delta.text)
        elif isinstance(delta, CallReady):
            call = self._calls.get(delta.index)
            if call is not None:
                call.ready = True
            self._advance()

    def end(self, *, whole: bool = True) -> None:
        """End the items of an answer that is over, or that broke off."""
        self._end_text("completed" if whole else "incomplete")

    def outcome(self, outcome: ToolOutcome, item: Mapping[str, Any]) -> None:
        """Write the outcome of a call that this server has run, with its item."""
        call = self._running.pop(outcome.call.call_id, None)
        if call is not None and call.index is not None:
            _close_hosted(self._writer, call.index, item)

    def wait(self, items: Iterable[Mapping[str, Any]]) -> None:
        """End the items of calls that wait for an approval."""
        waiting = {item["id"].removeprefix("mcpr"): item for item in items}
        for call in self._running.values():
            item = waiting.get(call.name.removeprefix("mcp"))
            if item is not None and call.index is not None:
                self._writer.close(call.index, item)
        self._running = {}

    def _add_text(self, text: str, kind: str) -> None:
        if self._text is None or self._text.kind != kind:
            self._end_text()
            self._text = _TextItem(self._writer, self._name(_TEXTS[kind].item), kind)
        self._text.add(text)

    def _end_text(self, status: str = "completed") -> None:
        if self._text is not None:
            self._text.close(status=status)
            self._text = None

    def _start(self, delta: CallStarted) -> None:
        self._end_text()
        kind, prefix = "function_call", "fc"
        if delta.tool in self._hosted:
            kind, prefix = "mcp_call", "mcp"
        elif delta.tool in self._custom:
            kind, prefix = "custom_tool_call", "ctc"
        call = _CallItem(kind, self._name(prefix), delta.call_id, delta.tool)
        self._calls[delta.index] = call
        if self._open is None:
            self._open = call
            call.begin(self._writer)

    def _advance(self) -> None:
        """Write what is complete, in the order of the calls."""
        while self._open is not None and self._open.ready:
            done = self._open
            done.end(self._writer)
            if done.kind == "mcp_call":
                self._running[done.call_id] = done
            calls = iter(self._calls.values())
            self._open = next((call for call in calls if call.index is None), None)
            if self._open is not None:
                self._open.begin(self._writer)

    def _name(self, kind: str) -> str:
        index = self._counts.get(kind, 0)
        self._counts[kind] = index + 1
        return str(ItemId(kind, self._conversation, self._message, index))


def replay(
    writer: EventWriter,
    items: list[dict[str, Any]],
    pieces: list[list[int]],
) -> None:
    """Write the events of the items of a response again, in the pieces in which they came."""
    running: list[tuple[int, dict[str, Any]]] = []
    message: str | None = None
    for number, item in enumerate(items):
        name = read_item_id(item.get("id", "")) if item.get("id") else None
        if name is not None and name.message != message:
            for index, done in running:
                _close_hosted(writer, index, done)
            running, message = [], name.message
        cuts = pieces[number] if number < len(pieces) else []
        kind = item["type"]
        if kind in ("message", "reasoning"):
            _replay_text(writer, item, cuts)
        elif kind in _INPUTS or kind == "mcp_approval_request":
            running += _replay_call(writer, item, cuts)
        else:
            writer.close(writer.open(item), item)
    for index, done in running:
        _close_hosted(writer, index, done)


def _cut(text: str, lengths: list[int]) -> list[str]:
    """Cut a text into pieces of these lengths; what is left is the last piece."""
    found: list[str] = []
    for length in lengths:
        if text:
            found.append(text[:length])
            text = text[length:]
    return [*found, text] if text else found


def _replay_text(writer: EventWriter, item: dict[str, Any], cuts: list[int]) -> None:
    blocks = item["summary" if item["type"] == "reasoning" else "content"]
    found = [kind for kind, how in _TEXTS.items() if blocks and how.block == blocks[0]["type"]]
    if not found:  # reasoning of which nothing is shown
        writer.close(writer.open(item), item)
        return
    text = _TextItem(writer, item["id"], found[0])
    for piece in _cut(blocks[0][_TEXTS[found[0]].field], cuts):
        text.add(piece)
    text.close(item)


def _replay_call(
    writer: EventWriter, item: dict[str, Any], cuts: list[int]
) -> list[tuple[int, dict[str, Any]]]:
    kind = "mcp_call" if item["type"] == "mcp_approval_request" else item["type"]
    name = item["id"] if kind == item["type"] else f"mcp{item['id'].removeprefix('mcpr')}"
    tool = join_name(item["name"], item.get("namespace"))
    call = _CallItem(kind, name, item.get("call_id", ""), tool)
    call.begin(writer)
    text = item[_INPUTS[kind][1]]
    if kind == "custom_tool_call":
        call.add(writer, text)
    else:
        for piece in _cut(text, cuts):
            call.add(writer, piece)
    call.end(writer)
    return [(call.index, item)] if kind == "mcp_call" and call.index is not None else []
