"""Items and messages: what a client sends becomes messages, and messages are shown as items.

`palaver.wire` reads the items, as it reads the bodies of requests to OpenAI. What it would lose is
refused here. An answer is shown as its reasoning, its texts and its calls, in their order. A call
that this server ran is one item with its output (`mcp_call`); the call of a client's function and
its output are two.

Reasoning goes back to the model that made it and to no other. For clients that store nothing it
travels in `encrypted_content`, with the name of that model and what its provider wants back.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages import (
    AssistantInfo,
    Message,
    ModelRef,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    user,
)
from palaver.messages.decode import convert
from palaver.messages.limits import is_list, is_object
from palaver.messages.parts import UnknownPart, reasoning_part
from palaver.server.openai.ids import ItemId, read_item_id
from palaver.server.openai.shapes import (
    SERVER_LABEL,
    check_item,
    item_type,
    join_name,
    refuse,
    split_name,
)
from palaver.wire.format import freeform_text, is_freeform, raw_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from palaver.messages import Part
    from palaver.wire.notes import ParsedConversation

__all__ = [
    "Approval",
    "Input",
    "is_whole",
    "read_input",
    "render_items",
    "seal_summary",
    "without_item",
]

_FORM: Final = "openai-responses"
_RAN: Final = "ran"
"""The metadata of a result that a client has sent."""
_CLIENT: Final = "client"
_WHOLE: Final = (None, "stop", "tool-calls", "other")
_SUMMARY: Final = "The conversation so far, in short:\n\n"
_DROPPED: Final = frozenset(
    (
        *("id", "status", "created_by", "internal_chat_message_metadata_passthrough"),
        *("parsed", "parsed_arguments"),
    )
)
"""Fields of an item that say nothing about what was said, or say it a second time."""
_CALLS: Final = ("function_call", "custom_tool_call")
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")


class Approval(Struct, frozen=True):
    """What a client decided about a call that waits."""

    request: str
    approve: bool
    reason: str
    where: str


class PairedItem(Struct, frozen=True):
    """A call or an output among the items of an input; `where` is its path."""

    call_id: str
    is_output: bool
    where: str


class Input(Struct, frozen=True):
    """The input of a request: the messages that it adds, and what it decides.

    `pairing` are its calls and outputs in order, as the client has sent them.
    """

    messages: tuple[Message, ...] = ()
    approvals: tuple[Approval, ...] = ()
    pairing: tuple[PairedItem, ...] = ()

    @property
    def results(self) -> dict[str, int]:
        """The calls that have an output in it and are not in it themselves, with its message."""
        calls = {part.call_id for message in self.messages for part in _calls(message)}
        return {
            part.call_id: index
            for index, message in enumerate(self.messages)
            for part in message.parts
            if isinstance(part, ToolPart) and part.call_id not in calls
        }

    def check_pairing(self, waiting: Iterable[str], *, complete: bool) -> None:
        """Refuse an output without its call, and a call that has no output if it must have one.

        `waiting` are the calls before this input that have no output.
        """
        stored, sent = set(waiting), dict[str, str]()
        for each in self.pairing:
            known = each.call_id in sent or each.call_id in stored
            if each.is_output and not known:
                detail = f"no call {each.call_id!r} waits for an output"
                raise refuse(detail, f"{each.where}.call_id", "call_not_found")
            if not each.is_output and known:
                detail = f"there is a call {each.call_id!r} already, which waits for its output"
                raise refuse(detail, f"{each.where}.call_id", "duplicate_call")
            if each.is_output:
                sent.pop(each.call_id, None)
                stored.discard(each.call_id)
            else:
                sent[each.call_id] = each.where
        for call_id, path in sent.items() if complete else ():
            detail = f"no output follows for the call {call_id!r}"
            raise refuse(detail, f"{path}.call_id", "missing_tool_output")

    def with_tools(self, names: Mapping[str, str]) -> Input:
        """Return the input with the names of the tools whose outputs it has."""
        found = list(self.messages)
        for call_id, index in self.results.items():
            parts = [
                replace(part, tool=names[call_id])
                if isinstance(part, ToolPart) and part.call_id == call_id
                else part
                for part in found[index].parts
            ]
            found[index] = replace(found[index], content=tuple(parts))
        return replace(self, messages=tuple(found))


def _calls(message: Message) -> Iterator[ToolCallPart]:
    return (part for part in message.parts if isinstance(part, ToolCallPart))


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


def read_input(
    given: str | Sequence[Mapping[str, Any]] | None,
    resolve: Callable[[str, str], list[dict[str, Any]]],
    where: str = "input",
) -> Input:
    """Read the input of a request; `resolve` returns the items that a reference names.

    Raises `ValidationError`, with the path of the item, for what can't be stored.
    """
    if given is None or isinstance(given, str):
        return Input((user(given),) if given else ())
    items: list[dict[str, Any]] = []
    places: list[int] = []
    approvals: list[Approval] = []
    pairing: list[PairedItem] = []
    shown: set[object] = set()
    for index, item in enumerate(given):
        path = f"{where}[{index}]"
        check_item(item, path)
        kind = item_type(item)
        if kind in _CALLS or kind in _OUTPUTS:
            pairing.append(PairedItem(item["call_id"], kind in _OUTPUTS, path))
        if kind == "mcp_approval_request":
            shown.add(item.get("id"))
        if kind == "mcp_approval_response":
            name, approve = item["approval_request_id"], item["approve"]
            if name not in shown:  # otherwise it is part of a history that is sent again
                approvals.append(Approval(name, approve, item.get("reason") or "", path))
            continue
        found: Sequence[Mapping[str, Any]] = [item]
        if kind == "item_reference":
            found = resolve(item["id"], path)
        for each in found:
            plain = _plain_items(each, path)
            items += plain
            places += [index] * len(plain)
    parsed = _parse(items, places, where)
    messages = _with_reasoning(list(parsed.messages), items)
    return Input(tuple(map(_mark_results, messages)), tuple(approvals), tuple(pairing))


def _parse(items: Sequence[Mapping[str, Any]], places: list[int], where: str) -> ParsedConversation:
    """Parse items; what is wrong or would be lost is refused at the path that the client knows."""
    try:
        parsed = wire.from_(_FORM, {"input": items})
    except ValidationError:
        for item, place in zip(items, places, strict=True):
            try:
                wire.from_(_FORM, {"input": [item]})
            except ValidationError as error:
                raise error.under(f"$.{where}[{place}]") from None
        raise
    for note in parsed.notes:
        if note.action == "lost":
            raise _lost(note.where, note.detail, places, where)
    return parsed


def _lost(path: str, detail: str, places: list[int], where: str) -> ValidationError:
    """The error for what messages have no place for, at the path that the client knows."""
    number, _, rest = path.removeprefix("$.input[").partition("]")
    place = places[int(number)] if number.isdecimal() else 0
    return refuse(detail, f"{where}[{place}]{rest}", "invalid_value")


def _plain_items(item: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    """Return an item as providers know it: what this server ran is a call and its output."""
    kind = item.get("type")
    if kind == "mcp_list_tools":
        return []
    if kind in ("mcp_call", "mcp_approval_request"):
        call_id = f"call_{item.get('id')}"[-64:]
        call = {
            "type": "function_call",
            "call_id": call_id,
            "name": item["name"],
            "arguments": item["arguments"],
        }
        output = item.get("output") or item.get("error")
        if output is None:
            return [call]
        text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
        return [call, {"type": "function_call_output", "call_id": call_id, "output": text}]
    if kind == "compaction":
        summary = _unseal(item["encrypted_content"]).get("summary")
        if not isinstance(summary, str):
            raise refuse("is no compaction of this server", f"{path}.encrypted_content")
        return [{"role": "user", "content": _SUMMARY + summary}]
    found = _without_dropped(item)
    if is_list(found.get("content")):
        found["content"] = [
            _without_dropped(each) if is_object(each) else each for each in found["content"]
        ]
    if kind in _CALLS and "namespace" in found:
        found["name"] = join_name(found["name"], found.pop("namespace"))
    return [found]


def _without_dropped(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in fields.items() if name not in _DROPPED and value is not None
    }


def _mark_results(message: Message) -> Message:
    """Mark the results of a client: they are shown as their own items."""
    if message.role != "tool":
        return message
    parts = tuple(
        replace(part, metadata={**part.metadata, _RAN: _CLIENT})
        if isinstance(part, ToolPart)
        else part
        for part in message.parts
    )
    return replace(message, content=parts)


# ── reasoning ───────────────────────────────────────────────────────────────────────────────────


def _seal(value: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(msgspec.json.encode(value)).decode()


def _unseal(text: object) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(urlsafe_b64decode(str(text).encode()))
    except (ValueError, msgspec.DecodeError):
        return {}
    return found if is_object(found) else {}


def seal_summary(text: str) -> str:
    """Return the content of a compaction item."""
    return _seal({"summary": text})


def _with_reasoning(messages: list[Message], items: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return messages whose reasoning has what its model wants to see again."""
    sealed = [
        _unseal(item.get("encrypted_content")) for item in items if item.get("type") == "reasoning"
    ]
    parts = [part for each in messages for part in each.parts if isinstance(part, ReasoningPart)]
    if len(parts) != len(sealed) or not any(sealed):
        return messages
    by_part = {part.id: each for part, each in zip(parts, sealed, strict=True)}
    return [
        _unsealed(message, by_part) if message.role == "assistant" else message
        for message in messages
    ]


class _Envelope(Struct, frozen=True):
    """What `encrypted_content` holds: whose reasoning it is, and the lengths of its parts."""

    by: tuple[str, str]
    parts: list[tuple[Annotated[int, Meta(ge=0)], dict[str, Any]]]


def _read_envelope(sealed: Mapping[str, Any] | None) -> _Envelope | None:
    """Read what was sealed; None where it is of another server, which only that one can read."""
    try:
        return None if sealed is None else convert(sealed, _Envelope)
    except msgspec.ValidationError:
        return None


def _unsealed(message: Message, sealed: Mapping[str, Mapping[str, Any]]) -> Message:
    model: ModelRef | None = None
    parts: list[Part] = []
    for part in message.parts:
        envelope = _read_envelope(sealed.get(part.id))
        if not isinstance(part, ReasoningPart) or envelope is None:
            parts.append(part)
            continue
        model, start = ModelRef(*envelope.by), 0
        for size, metadata in envelope.parts:
            text = part.text[start : start + size]
            parts.append(
                reasoning_part(
                    part.session_id, part.message_id, text, start=part.time.start, metadata=metadata
                )
            )
            start += size
    if model is None:
        return message
    return replace(message, content=tuple(parts), info=AssistantInfo(model=model))


# ── rendering ───────────────────────────────────────────────────────────────────────────────────


def render_items(
    messages: Iterable[Message],
    conversation: str,
    *,
    hosted: Iterable[str] = (),
    custom: Iterable[str] = (),
    encrypted: bool = False,
) -> list[dict[str, Any]]:
    """Return messages as items.

    `hosted` are the tools that this server runs, `custom` those of the client that take free text.
    """
    found = list(messages)
    results, calls = _pair(found)
    shown = _Shown(results, frozenset(hosted), frozenset(custom), encrypted)
    items: list[dict[str, Any]] = []
    for message in found:
        if message.role == "assistant":
            items += _Answer(message, conversation, shown).items()
        elif message.role == "tool":
            items += _outputs(message, conversation, calls, shown)
        else:
            items.append(_message(message, conversation))
    return items


def _pair(
    messages: Iterable[Message],
) -> tuple[dict[str, ToolPart], dict[str, ToolCallPart]]:
    """Return the results by the ids of their calls' parts, and the calls by those of the results.

    Ids of calls repeat in a conversation, since some providers count from 0 in every answer.
    """
    open_calls: dict[str, ToolCallPart] = {}
    results: dict[str, ToolPart] = {}
    calls: dict[str, ToolCallPart] = {}
    for message in messages:
        open_calls |= {part.call_id: part for part in _calls(message)}
        for part in message.parts:
            call = open_calls.get(part.call_id) if isinstance(part, ToolPart) else None
            if isinstance(part, ToolPart) and call is not None:
                results[call.id], calls[part.id] = part, call
    return results, calls


def _message(message: Message, conversation: str) -> dict[str, Any]:
    """A message of a user or a system, as wire writes it."""
    written = wire.to(_FORM, [message])
    item = written.items[0] if written.items else {}
    text = written.head.get("instructions")
    content = item.get("content", "") if text is None else text
    role = message.role if text is not None else item.get("role", message.role)
    blocks = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    name = str(ItemId("msg", conversation, message.id, 0))
    return {
        "type": "message",
        "id": name,
        "role": role,
        "status": "completed",
        "content": [_shown_block(block) for block in blocks],
    }


def _shown_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a message with everything that a client may count on."""
    if block.get("type") == "input_image":
        return {"image_url": None, "detail": "auto", **block}
    return dict(block)


def _outputs(
    message: Message, conversation: str, calls: Mapping[str, ToolCallPart], shown: _Shown
) -> Iterator[dict[str, Any]]:
    """The outputs that a client has sent; those of this server stand with their calls."""
    for index, part in enumerate(message.parts):
        if not isinstance(part, ToolPart):
            continue
        call = calls.get(part.id)
        if part.metadata.get(_RAN) != _CLIENT and call is not None:
            continue
        custom = call is not None and shown.is_custom(call)
        yield {
            "type": "custom_tool_call_output" if custom else "function_call_output",
            "id": str(ItemId("cto" if custom else "fco", conversation, message.id, index)),
            "call_id": part.call_id,
            "output": _output_text(part),
            "status": "completed",
        }


def _output_text(part: ToolPart) -> str:
    state = part.state
    if isinstance(state, ToolCompleted):
        return state.output
    return state.error if isinstance(state, ToolError) else ""


class _Shown(Struct, frozen=True):
    """What the items of a conversation depend on beside their messages."""

    results: Mapping[str, ToolPart]
    hosted: frozenset[str]
    custom: frozenset[str]
    encrypted: bool = False

    def is_custom(self, call: ToolCallPart) -> bool:
        """Tell whether a call is of a tool that takes free text."""
        return is_freeform(call) or call.tool in self.custom


class _Answer:
    """Renders one answer of a model."""

    def __init__(
        self,
        message: Message,
        conversation: str,
        shown: _Shown,
    ) -> None:
        self._message, self._conversation, self._shown = message, conversation, shown
        self._counts: dict[str, int] = {}

    def items(self) -> list[dict[str, Any]]:
        """The items, in order; only the last of an answer that broke off is incomplete."""
        message = self._message
        if isinstance(message.content, str):
            items = [self._text([message.content])] if message.content else []
        else:
            items = [item for group in _groups(message.parts) for item in self.render(group)]
        if not is_whole(message) and items and "status" in items[-1]:
            items[-1]["status"] = "incomplete"
        return items

    def render(self, group: list[Part]) -> Iterator[dict[str, Any]]:
        """The item of some parts, if they have one."""
        first = group[0]
        if isinstance(first, ReasoningPart):
            yield self._reasoning([part for part in group if isinstance(part, ReasoningPart)])
        elif isinstance(first, TextPart):
            texts = [part.text for part in group if isinstance(part, TextPart)]
            yield self._text(texts, refused=_is_refusal(first))
        elif isinstance(first, ToolCallPart):
            yield self._call(first)
        elif isinstance(first, UnknownPart) and first.type == _FORM:
            yield {**raw_block(first)}

    def _id(self, kind: str) -> str:
        index = self._counts.get(kind, 0)
        self._counts[kind] = index + 1
        return str(ItemId(kind, self._conversation, self._message.id, index))

    def _text(self, texts: list[str], *, refused: bool = False) -> dict[str, Any]:
        text = "".join(texts)
        block = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        if refused:
            block = {"type": "refusal", "refusal": text}
        return {
            "type": "message",
            "id": self._id("msg"),
            "role": "assistant",
            "status": "completed",
            "content": [block],
        }

    def _reasoning(self, parts: list[ReasoningPart]) -> dict[str, Any]:
        text = "".join(part.text for part in parts)
        item: dict[str, Any] = {
            "type": "reasoning",
            "id": self._id("rs"),
            "summary": [{"type": "summary_text", "text": text}] if text else [],
        }
        model = getattr(self._message.info, "model", None)
        if self._shown.encrypted and model is not None:
            pieces = [[len(part.text), msgspec.to_builtins(dict(part.metadata))] for part in parts]
            item["encrypted_content"] = _seal(
                {"by": [model.provider_id, model.model_id], "parts": pieces}
            )
        return item

    def _call(self, part: ToolCallPart) -> dict[str, Any]:
        result = self._shown.results.get(part.id)
        ours = part.tool in self._shown.hosted
        if result is not None:
            ours = result.metadata.get(_RAN) != _CLIENT
        if ours:
            return self._hosted_call(part, result)
        custom = self._shown.is_custom(part)
        return {
            "type": "custom_tool_call" if custom else "function_call",
            "id": self._id("ctc" if custom else "fc"),
            "call_id": part.call_id,
            **split_name(part.tool),
            **({"input": freeform_text(part)} if custom else {"arguments": part.raw or "{}"}),
            "status": "completed",
        }

    def _hosted_call(self, part: ToolCallPart, result: ToolPart | None) -> dict[str, Any]:
        name = self._id("mcp")
        call = {"name": part.tool, "arguments": part.raw or "{}", "server_label": SERVER_LABEL}
        if result is None:
            return {"type": "mcp_approval_request", "id": f"mcpr{name[3:]}", **call}
        failed = isinstance(result.state, ToolError)
        text = _output_text(result)
        error = {
            "type": "mcp_tool_execution_error",
            "content": [{"type": "text", "text": text}],
        }
        return {
            "type": "mcp_call",
            "id": name,
            **call,
            "output": None if failed else text,
            "error": error if failed else None,
            "status": "failed" if failed else "completed",
        }


def is_whole(message: Message) -> bool:
    """Tell whether an answer was not broken off, or cut."""
    return getattr(message.info, "finish", None) in _WHOLE


def without_item(message: Message, item: ItemId) -> tuple[Message | None, list[str]]:
    """Return a message without one of its items, and the calls that went with it.

    None, if nothing is left of the message.
    """
    if message.role == "tool":
        parts = [part for index, part in enumerate(message.parts) if index != item.number]
        return (replace(message, content=tuple(parts)) if parts else None), []
    if message.role != "assistant" or isinstance(message.content, str):
        return None, []
    answer = _Answer(message, item.conversation, _Shown({}, frozenset(), frozenset()))
    left: list[Part] = []
    calls: list[str] = []
    for group in _groups(message.parts):
        shown = [read_item_id(str(each.get("id"))) for each in answer.render(group)]
        named = shown[0] if shown else None
        calling = item.kind in ("ctc", "mcp", "mcpr")  # which it is depends on the tools
        wanted = ("fc" if calling else item.kind, item.number)
        if named is not None and (named.kind, named.number) == wanted:
            calls += [part.call_id for part in group if isinstance(part, ToolCallPart)]
        else:
            left += group
    if not any(isinstance(part, TextPart | ToolCallPart | ReasoningPart) for part in left):
        return None, calls
    return replace(message, content=tuple(left)), calls


def _groups(parts: Iterable[Part]) -> list[list[Part]]:
    """Group what a stream can't tell apart: neighbouring texts, refusals, and reasoning."""
    groups: list[list[Part]] = []
    last: object = None
    for part in parts:
        kind = (type(part), isinstance(part, TextPart) and _is_refusal(part))
        if kind[0] in (TextPart, ReasoningPart) and groups and last == kind:
            groups[-1].append(part)
        elif not (isinstance(part, TextPart) and not part.text):
            groups.append([part])
            last = kind
    return groups


def _is_refusal(part: TextPart) -> bool:
    stored = part.metadata.get("openai")
    return is_object(stored) and stored.get("refusal") is True
