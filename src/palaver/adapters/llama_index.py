"""LlamaIndex: its chat store and its memory over conversations in a store, and message conversion.

    memory = PalaverMemory(palaver.open("chat.db"), "tea-talk", token_limit=3_000)
    await agent.run("Which tea?", memory=memory)

A chat message becomes a message of the log: its text can be searched, its tool calls and results
are parts. What it says beyond that is stored in the message's metadata as the difference from what
`to_llama_index` would write, so that it comes back as it was put. The difference of the blocks is
used only while the content is unchanged: LlamaIndex sees what was edited with palaver. The role and
`additional_kwargs` outlive an edit.

The chat store stores and never repairs: what it returns is what was added or edited, at the same
indexes. The memory is what a model is shown: the newest messages that fit a number of tokens, each
call with its result. Messages are counted once; a read counts what is new.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from palaver.errors import (
    AlreadyExists,
    Conflict,
    UnknownConversation,
    UnknownMessage,
    ValidationError,
    needs_extra,
)
from palaver.history.erase import ERASED
from palaver.history.operations import Insert
from palaver.messages.codec import image_mime
from palaver.messages.ids import NIL_ID, new_id, now_ms, uuid_for
from palaver.messages.limits import (
    EMPTY,
    is_list,
    is_name,
    is_object,
    replace_refused,
    unexpected_keyword,
)
from palaver.messages.message import Message
from palaver.messages.part_base import FilePart
from palaver.messages.parts import (
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    file_part,
    read_arguments,
    reasoning_part,
    text_part,
    tool_call_part,
    tool_part,
)
from palaver.messages.tool_state import (
    ToolCompleted,
    ToolError,
    complete,
    pending,
    raw_output,
    start,
)
from palaver.stores import Store, open_store
from palaver.stores.open import database_path
from palaver.stores.store import check_store
from palaver.tokens import RunningTotal, Weights
from palaver.wire.pairing import INTERRUPTED
from palaver.wire.repair import begin_with_user, pair_results
from palaver.wire.round_trip import apply_changes, diff, fingerprint

with needs_extra("llama-index"):
    from llama_index.core.base.llms.types import (
        ChatMessage,
        ContentBlock,
        MessageRole,
        TextBlock,
        ToolCallBlock,
    )
    from llama_index.core.memory.chat_memory_buffer import (
        DEFAULT_TOKEN_LIMIT,
        DEFAULT_TOKEN_LIMIT_RATIO,
    )
    from llama_index.core.memory.memory import BaseMemoryBlock
    from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY, BaseMemory
    from llama_index.core.storage.chat_store.base import BaseChatStore
    from llama_index.core.utils import get_tokenizer
    from pydantic import Field, PrivateAttr, TypeAdapter
    from pydantic import ValidationError as Refused
    from pydantic_core import PydanticSerializationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from llama_index.core.llms.llm import LLM

    from palaver.history.view import View
    from palaver.messages import Part, Role
    from palaver.stores import StoredHistory

__all__ = [
    "PalaverChatStore",
    "PalaverMemory",
    "PalaverMemoryBlock",
    "from_llama_index",
    "repair_messages",
    "to_llama_index",
]

Fields: TypeAlias = dict[str, Any]
"""A chat message as JSON: its role, its `additional_kwargs` and its blocks."""

METADATA_KEY: Final = "llama_index"
"""The metadata key."""
UNKNOWN_TOOL: Final = "unknown"
"""The tool of a call or result that does not say."""
_ROLES: Final[dict[str, Role]] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant",
    "chatbot": "assistant", "model": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip
_THEIR_ROLES: Final = {role: MessageRole(role) for role in _ROLES.values()}
_RESULTS: Final = (MessageRole.TOOL, MessageRole.FUNCTION)
_MEDIA: Final[dict[str, tuple[str, str]]] = {
    "image": ("image", "image_mimetype"),
    "audio": ("audio", "format"),
    "video": ("video", "video_mimetype"),
    "document": ("data", "document_mimetype"),
}
"""By the type of a block: the fields of its data and of its media type."""
_ANY_BLOCK: Final[TypeAdapter[ContentBlock]] = TypeAdapter(ContentBlock)


# ── messages both ways ──────────────────────────────────────────────────────────────────────────


def from_llama_index(
    message: ChatMessage, *, session: str = NIL_ID, tools: Mapping[str, str] = EMPTY
) -> Message:
    """Convert a chat message, such that `to_llama_index` returns it as it was.

    `session` is the id of the conversation, and `tools` names the tools of earlier calls by their
    ids. Objects in `additional_kwargs` are stored as LlamaIndex's own stores do: a pydantic model
    as a dict, bytes as base64. What is no JSON then is refused.

    >>> from llama_index.core.llms import ChatMessage
    >>> from_llama_index(ChatMessage("Tea?")).text
    'Tea?'
    """
    if not isinstance(cast("object", message), ChatMessage):
        detail = f"must be a ChatMessage of LlamaIndex's, not {type(message).__name__}"
        raise ValidationError(detail, path="$.message", rule="schema")
    try:
        theirs = _dump(message)
        made = _make_message(theirs, session, tools)
        (ours,) = _write(made)
        about = diff(_about(ours), _about(theirs))
        blocks = diff(ours["blocks"], theirs["blocks"])
        if not about and not blocks:
            return made
        of = fingerprint(ours["blocks"])
        text = json.dumps({"about": about, "blocks": blocks, "of": of})  # escapes any character
    except (PydanticSerializationError, TypeError, RecursionError, UnicodeDecodeError) as error:
        detail = f"holds what is no JSON and could not be read back: {error}"
        raise ValidationError(detail, path="$.message", rule="schema") from None
    return replace(made, metadata={METADATA_KEY: text})


def to_llama_index(message: Message) -> list[ChatMessage]:
    """Convert a message to chat messages: one, or one for each of several tool results.

    An erased message gives none.

    >>> from palaver.messages import user
    >>> [str(message) for message in to_llama_index(user("Tea?"))]
    ['user: Tea?']
    """
    if _is_plain(message):  # the usual case, without detours
        role, blocks = _THEIR_ROLES[message.role], [TextBlock(text=cast("str", message.content))]
        return [ChatMessage.model_construct(role=role, additional_kwargs={}, blocks=blocks)]
    if ERASED in message.metadata:
        return []
    made = _write(message)
    stored = message.metadata.get(METADATA_KEY)
    if made and isinstance(stored, str):
        made[0] = _apply(made[0], stored)
    return [_load(fields) for fields in made]


def _is_plain(message: Message) -> bool:
    """Tell whether a message is nothing but a text: it has no calls and is no result."""
    return not message.metadata and isinstance(message.content, str)


def _about(fields: Fields) -> Fields:
    return {"role": fields["role"], "additional_kwargs": fields["additional_kwargs"]}


def _apply(ours: Fields, stored: str) -> Fields:
    """Apply a stored difference; what is not valid, or of other content, is ignored."""
    try:
        left = json.loads(stored)
        edited = left["of"] != fingerprint(ours["blocks"])
        older = ["additional_kwargs", "tool_calls"] if edited else None  # they are blocks by now
        made = apply_changes(_about(ours), [each for each in left["about"] if each[0] != older])
        blocks = ours["blocks"] if edited else apply_changes(ours["blocks"], left["blocks"])
        role = MessageRole(made["role"]).value
        given = made["additional_kwargs"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return ours
    if not (is_object(given) and is_list(blocks)):
        return ours
    return {"role": role, "additional_kwargs": given, "blocks": blocks}


def _load(fields: Fields) -> ChatMessage:
    """Make a chat message of JSON; it is not validated, which would add to its blocks."""
    return ChatMessage.model_construct(
        role=MessageRole(fields["role"]),
        additional_kwargs=fields["additional_kwargs"],
        blocks=[*map(_load_block, fields["blocks"])],
    )


def _load_block(fields: Any) -> ContentBlock:  # noqa: ANN401 - JSON
    """Make a block; one that LlamaIndex refuses, such as of a file that is gone, says so."""
    try:
        if fields["block_type"] == "text":
            return TextBlock(text=fields["text"])
        return _ANY_BLOCK.validate_python(fields)
    except (Refused, TypeError, KeyError):
        return TextBlock(text=f"[could not be read: {fields!s:.200}]")


# ── a chat message as JSON ──────────────────────────────────────────────────────────────────────


def _dump(message: ChatMessage) -> Fields:
    given = message.additional_kwargs and message.model_dump(include={"additional_kwargs"})
    return {
        "role": MessageRole(message.role).value,
        "additional_kwargs": given.get("additional_kwargs", {}),
        "blocks": [*map(_dump_block, message.blocks)],
    }


def _dump_block(block: ContentBlock) -> Fields:
    if type(block) is TextBlock:
        return {"block_type": "text", "text": block.text}
    if isinstance(block, ToolCallBlock):
        fields = {"tool_call_id": block.tool_call_id, "tool_name": block.tool_name,
                  "tool_kwargs": block.tool_kwargs}  # fmt: skip
    elif block.block_type in (*_MEDIA, "thinking"):
        fields = block.model_dump(mode="json", exclude_defaults=True)
    else:
        fields = block.model_dump(mode="json")
    return {"block_type": block.block_type, **fields}


# ── from their fields to ours ───────────────────────────────────────────────────────────────────


def _make_message(fields: Fields, session: str, tools: Mapping[str, str]) -> Message:
    """The message without what palaver has no field for."""
    name, role, blocks = new_id(), _ROLES[fields["role"]], fields["blocks"]
    ids = uuid_for(session), uuid_for(name)
    if role == "tool":
        return Message("tool", (_read_result(fields, name, ids, tools),), id=name)
    parts = [_read_block(block, ids) for block in blocks]
    known = {part.call_id for part in parts if isinstance(part, ToolCallPart)}
    calls = _older_calls(fields["additional_kwargs"])
    parts += [_call_part(ids, *call) for call in calls if (call[0] or call[1]) not in known]
    if not parts:
        return Message(role, "", id=name)
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return Message(role, parts[0].text, id=name)
    return Message(role, tuple(parts), id=name)


def _older_calls(given: Fields) -> Iterator[tuple[object, object, object]]:
    """Calls where older integrations keep them: the id, the tool and the arguments of each."""
    calls = given.get("tool_calls")
    for call in calls if is_list(calls) else ():
        inner = call.get("function") if is_object(call) else None
        if is_object(call) and is_object(inner):
            yield call.get("id"), inner.get("name"), inner.get("arguments")


def _read_result(
    fields: Fields, name: str, ids: tuple[str, str], tools: Mapping[str, str]
) -> ToolPart:
    given = fields["additional_kwargs"]
    call = _name(given.get("tool_call_id"), name)
    tool = _name(given.get("name"), tools.get(call, UNKNOWN_TOOL))
    texts = [block["text"] for block in fields["blocks"] if block["block_type"] == "text"]
    output, now = _clean_text("\n".join(texts)), now_ms()
    running = start(pending({}, ""), at=now)
    return tool_part(*ids, call, tool, complete(running, output, tool=tool, at=now))


def _read_block(block: Fields, ids: tuple[str, str]) -> Part:
    kind = block["block_type"]
    if kind == "text":
        return text_part(*ids, _clean_text(block["text"]))
    if kind == "thinking":
        return reasoning_part(*ids, _clean_text(block.get("content")))
    if kind == "tool_call":
        return _call_part(ids, block["tool_call_id"], block["tool_name"], block["tool_kwargs"])
    file = _read_file(kind, block) if kind in _MEDIA else None
    if file is not None:
        return file_part(*ids, *file)
    return UnknownPart(cast("Fields", replace_refused({"type": f"llama-index-{kind}", **block})))


def _call_part(ids: tuple[str, str], call: object, tool: object, given: object) -> Part:
    read = read_arguments(replace_refused(given))
    named = _name(tool, UNKNOWN_TOOL)
    return tool_call_part(*ids, named, read.input, call_id=_name(call, named), raw=read.raw)


def _read_file(kind: str, block: Fields) -> tuple[str, str] | None:
    """The media type and the URL of a file; None if it says only where on this disk it is."""
    data_field, mime_field = _MEDIA[kind]
    data, url, mime = block.get(data_field), block.get("url"), block.get(mime_field)
    otherwise = image_mime(url or "") if kind == "image" else f"{kind}/*"
    if kind == "document":
        otherwise = "application/octet-stream"
    mime = mime if isinstance(mime, str) and "/" in mime else otherwise
    if data:
        return mime, f"data:{mime};base64,{data}"
    return (mime, str(replace_refused(url))) if url else None


def _name(name: object, otherwise: str) -> str:
    return name if is_name(name) else otherwise


def _clean_text(text: object) -> str:
    return cast("str", replace_refused(text)) if isinstance(text, str) else ""


# ── from our message to their fields ────────────────────────────────────────────────────────────


def _write(message: Message) -> list[Fields]:
    """Write a message as chat messages, without the stored difference."""
    if isinstance(message.content, str):
        return [_fields(message.role, [_text_block(message.content)])]
    if message.role == "tool":
        return [_write_result(part) for part in message.parts if isinstance(part, ToolPart)]
    return [_fields(message.role, [_write_part(part) for part in message.sendable_parts])]


def _fields(role: str, blocks: list[Fields], given: Fields | None = None) -> Fields:
    return {"role": role, "additional_kwargs": given or {}, "blocks": blocks}


def _text_block(text: str) -> Fields:
    return {"block_type": "text", "text": text}


def _write_result(part: ToolPart) -> Fields:
    state = part.state
    failed = state.error if isinstance(state, ToolError) else ""
    output = raw_output(state) if isinstance(state, ToolCompleted) else failed
    return _fields("tool", [_text_block(output)], {"tool_call_id": part.call_id})


def _write_part(part: Part) -> Fields:
    if isinstance(part, TextPart):
        return _text_block(part.text)
    if isinstance(part, ReasoningPart):
        return {"block_type": "thinking", "content": part.text}
    if isinstance(part, ToolCallPart):
        return {"block_type": "tool_call", "tool_call_id": part.call_id, "tool_name": part.tool,
                "tool_kwargs": msgspec.to_builtins(part.arguments)}  # fmt: skip
    if isinstance(part, FilePart):
        return _write_file(part)
    raw = msgspec.to_builtins(part.raw) if isinstance(part, UnknownPart) else {}
    if "block_type" in raw:
        raw.pop("type", None)
        return cast("Fields", raw)
    return _text_block("")  # of another provider, and nothing that a block could say


def _write_file(part: FilePart) -> Fields:
    kind = part.mime.partition("/")[0]
    kind = kind if kind in _MEDIA else "document"
    data_field, mime_field = _MEDIA[kind]
    head, _, data = part.url.partition(";base64,")
    fields: Fields = {"block_type": kind}
    fields |= {data_field: data} if head.startswith("data:") else {"url": part.url}
    mime = part.mime.partition("/")[2] if kind == "audio" else part.mime
    return fields if mime.endswith("*") else {**fields, mime_field: mime}


# ── calls and their results ─────────────────────────────────────────────────────────────────────


def repair_messages(
    messages: Sequence[ChatMessage], *, resuming: bool = False
) -> list[ChatMessage]:
    """Drop results without a call, and give calls without a result one that says so.

    `resuming` leaves the calls of the last answer open, for callers that will run them.

    >>> result = ChatMessage("4", role="tool", additional_kwargs={"tool_call_id": "c1"})
    >>> repair_messages([result])
    []
    >>> call = ChatMessage([ToolCallBlock(tool_call_id="c1", tool_name="add")], role="assistant")
    >>> [message.role.value for message in repair_messages([call])]
    ['assistant', 'tool']
    """
    return pair_results(
        messages,
        calls=_open_calls,
        answers=_answered_call,
        missing=_interrupted_result,
        keep_open=resuming,
    )


def _calls(message: ChatMessage) -> list[tuple[object, object]]:
    """Return the id and the tool of each call of a message."""
    blocks = (block for block in message.blocks if isinstance(block, ToolCallBlock))
    calls: list[tuple[object, object]] = [(each.tool_call_id, each.tool_name) for each in blocks]
    older = (each[:2] for each in _older_calls(message.additional_kwargs))
    return calls + [each for each in older if each not in calls]


def _open_calls(message: ChatMessage) -> list[str]:
    """Return the ids of a message's calls; by the tool's name such without one are answered."""
    return [str(call or tool) for call, tool in _calls(message) if call or tool]


def _answered_call(message: ChatMessage) -> str | None:
    call = message.additional_kwargs.get("tool_call_id") if message.role in _RESULTS else None
    return call if isinstance(call, str) and call else None


def _interrupted_result(message: ChatMessage, call: str) -> ChatMessage | None:
    if call not in (name for name, _ in _calls(message)):
        return None  # nobody waits for the result of a call without an id
    return _load(_fields("tool", [_text_block(INTERRUPTED)], {"tool_call_id": call}))


# ── the chat store ──────────────────────────────────────────────────────────────────────────────

_MAX_OPEN: Final = 256
"""So many conversations of a chat store stay open."""
_MAX_LOOKBACK: Final = 40
"""How many messages are searched for the call of a result that comes by itself."""


class _Talk(NamedTuple):
    """An open conversation, and what tells whether counts of its messages are still valid."""

    history: StoredHistory
    created: int
    erased: int


class PalaverChatStore(BaseChatStore):
    """The conversations of a store as a chat store: a key is the id of a conversation.

    Every call reads the conversation as it is now, with the changes of other processes and edits
    made with palaver. What is set or deleted only leaves the view: `history(key).undo()` restores
    it. One that was made with the path of a SQLite file can be pickled and dumped.

    >>> import palaver
    >>> from llama_index.core.llms import ChatMessage
    >>> store = palaver.open(":memory:")
    >>> chats = PalaverChatStore(store)
    >>> chats.add_message("tea-talk", ChatMessage("Which tea?"))
    >>> [message.content for message in chats.get_messages("tea-talk")]
    ['Which tea?']
    >>> [hit.message.text for hit in store.search("tea")]
    ['Which tea?']
    """

    path: str | None = Field(default=None, description="The SQLite file, if it opened that.")
    _store: Store = PrivateAttr()
    _lock: threading.RLock = PrivateAttr(default_factory=threading.RLock)
    _talks: OrderedDict[str, _Talk] = PrivateAttr(default_factory=OrderedDict)

    def __init__(
        self, store: Store | None = None, *, path: str | None = None, **_dumped: object
    ) -> None:
        """Use a store; or open the SQLite file at a path, as a dumped chat store does."""
        if store is None and path is None:
            detail = (
                "a chat store needs a store, such as palaver.open('chat.db'); one that was dumped "
                "is opened again only if it was made with path='chat.db'"
            )
            raise ValidationError(detail, path="$.store", rule="argument")
        if store is not None and path is not None:
            raise ValidationError("takes a store or a path", path="$.path", rule="argument")
        if store is None:
            path = database_path(str(path))
            store = open_store(Path(path))
        check_store(store)
        super().__init__(**cast("Fields", {"path": path}))
        self._store = store

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex dumps it."""
        return "PalaverChatStore"

    def history(self, key: str) -> StoredHistory:
        """Return the conversation itself, to query, edit and roll back; it is created if new."""
        return self.open_or_create(key).history

    def open(self, key: str) -> _Talk | None:
        """Return a conversation as it is now; None if it does not exist."""
        try:
            head = self._store.head(key)
        except UnknownConversation:
            return None
        with self._lock:
            talk = self._talks.pop(key, None)
            if talk is None or talk.created != head.created or talk.history.version > head.version:
                talk = _Talk(self._store.get(key), head.created, head.erased)
            elif talk.history.version != head.version or talk.erased != head.erased:
                talk = _Talk(talk.history.refresh(), head.created, head.erased)
            self._talks[key] = talk
            if len(self._talks) > _MAX_OPEN:
                self._talks.popitem(last=False)
            return talk

    def open_or_create(self, key: str) -> _Talk:
        """Return a conversation as it is now, or a new one."""
        talk = self.open(key)
        if talk is None:
            with suppress(AlreadyExists):
                self._store.create(id=key)
            talk = self.open(key)
        assert talk is not None  # noqa: S101 - it was just made
        return talk

    # ── what LlamaIndex calls; the asynchronous ones do the same on a thread ────────────────────

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace all messages in one change; those at the beginning that are the same stay."""
        history = self.open_or_create(key).history
        while True:
            view = history.view
            kept = _common_prefix(view, messages)
            new = read_messages(messages[kept:], history)
            try:
                if kept < len(view):
                    history.rewrite([range(kept), *new], reason="SET", expect=history.version)
                elif new:
                    history.extend(new, expect=history.version)
            except Conflict:
                history.refresh()
            else:
                return

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return all messages, as they are now."""
        talk = self.open(key)
        return [] if talk is None else _expand(talk.history.view)

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Add a message at the end, or before the one at an index."""
        known = self._talks.get(key)
        history = (known or self.open_or_create(key)).history
        new = read_messages([message], history)
        if idx is None:
            try:
                history.append(new[0])
            except UnknownConversation:  # deleted since
                self.open_or_create(key).history.append(new[0])
            return
        history = self.history(key)
        places = _places(history.view)
        at = max(len(places) + idx, 0) if idx < 0 else idx
        history.insert(places[at][0] if at < len(places) else len(history.view), new)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Remove all messages from the view and return them; None if there is no such key."""
        talk = self.open(key)
        if talk is None:
            return None
        gone = _expand(talk.history.view)
        if len(talk.history.view):
            talk.history.clear(keep_system_message=False)
        return gone

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message at an index from the view and return it; None if there is none."""
        while (talk := self.open(key)) is not None:
            view, version = talk.history.view, talk.history.version
            places = _places(view)
            if not -len(places) <= idx < len(places):
                return None
            index, nth = places[idx]
            message = view[index]
            left = _without_result(message, nth)
            with suppress(Conflict):  # then another one was first, and the index may be another's
                pieces: list[range | Message] = [range(index), *left, range(index + 1, len(view))]
                talk.history.rewrite(pieces, reason="DELETE", expect=version)
                return to_llama_index(message)[nth]
        return None

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Remove the last message from the view and return it; None if there is none."""
        return self.delete_message(key, -1)

    def get_keys(self) -> list[str]:
        """Return the ids of all conversations that have messages, in the order of creation."""
        found = sorted((head.created, head.id) for head in self._store if head.size)
        return [name for _, name in found]


def read_messages(messages: Iterable[ChatMessage], history: StoredHistory) -> list[Message]:
    """Convert chat messages that are added to a conversation; a result gets its tool's name."""
    tools: dict[str, str] = {}
    made: list[Message] = []
    for message in messages:
        call = _answered_call(message) if hasattr(message, "role") else None  # refused below
        if call is not None and call not in tools:
            tools = _tools_of(history.view[-_MAX_LOOKBACK:]) | tools
        new = from_llama_index(message, session=history.id, tools=tools)
        tools |= _tools_of([new])
        made.append(new)
    return made


def _tools_of(messages: Iterable[Message]) -> dict[str, str]:
    return {
        part.call_id: part.tool
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCallPart)
    }


def _expand(messages: Iterable[Message]) -> list[ChatMessage]:
    return [made for message in messages for made in to_llama_index(message)]


def _common_prefix(view: View, messages: Sequence[ChatMessage]) -> int:
    """Return how many messages of a view are the first of some chat messages, one by one."""
    pairs = zip(view, messages, strict=False)
    return sum(1 for _ in takewhile(lambda pair: to_llama_index(pair[0]) == [pair[1]], pairs))


def _places(view: View) -> list[tuple[int, int]]:
    """Where each chat message is: the index of its message, and which one of that it is."""
    return [
        (index, nth)
        for index, message in enumerate(view)
        for nth in range(0 if ERASED in message.metadata else len(_write(message)))
    ]


def _without_result(message: Message, nth: int) -> list[Message]:
    """What is left of a message without one of its chat messages: its other results."""
    rest = [part for part in message.parts if isinstance(part, ToolPart)]
    del rest[nth : nth + 1]
    return [replace(message, content=tuple(rest), id=new_id())] if rest else []


# ── the memory ──────────────────────────────────────────────────────────────────────────────────

_WEIGHTS: Final = Weights(message=0, call=0, image=256, file=2_048)
"""What is not text counts what it counts in LlamaIndex's `Memory`."""


class PalaverMemory(BaseMemory):
    """The newest messages of a conversation that fit a number of tokens, for agents and engines.

    It takes what `ChatMemoryBuffer` takes and answers as that does, without reading or counting the
    rest: the first message is no answer and no result, and at least the last message is returned.
    Each message is counted by itself, once, with its tool calls. A result whose call is gone is
    left out, and a call without a result gets one that says so; `resuming` leaves the calls of the
    last answer open.

    Give each run a memory of its own: what one memory puts stays together. An answer follows the
    question that it belongs to, even if another run has put its question meanwhile.

    >>> import palaver
    >>> from llama_index.core.llms import ChatMessage
    >>> memory = PalaverMemory(palaver.open(":memory:"), "tea-talk", token_limit=4)
    >>> memory.put_messages([ChatMessage("Which tea?"), ChatMessage("Rum!", role="assistant")])
    >>> memory.put(ChatMessage("No, tea."))
    >>> [message.content for message in memory.get()], len(memory.get_all())
    (['No, tea.'], 3)
    """

    chat_store: PalaverChatStore
    chat_store_key: str = Field(default=DEFAULT_CHAT_STORE_KEY)
    token_limit: int = Field(default=DEFAULT_TOKEN_LIMIT)
    resuming: bool = Field(default=False)
    tokenizer_fn: Any = Field(default_factory=get_tokenizer, exclude=True)
    _lock: threading.RLock = PrivateAttr(default_factory=threading.RLock)
    _counted: tuple[tuple[int, int], RunningTotal] | None = PrivateAttr(default=None)
    _last: str | None = PrivateAttr(default=None)

    def __init__(
        self,
        store: Store | PalaverChatStore | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        *,
        token_limit: int = DEFAULT_TOKEN_LIMIT,
        **more: Any,  # noqa: ANN401 - the fields
    ) -> None:
        """Use a conversation of a store, which may be new.

        `token_limit` is counted by `tokenizer_fn`, LlamaIndex's own by default.
        """
        if type(token_limit) is not int or token_limit < 1:
            detail = f"must be a whole number from 1 on, not {token_limit!r}"
            raise ValidationError(detail, path="$.token_limit", rule="argument")
        chats = more.pop("chat_store", None) if store is None else store
        for name in more:
            if name not in self.__class__.model_fields and name != "class_name":  # as it was dumped
                raise unexpected_keyword("PalaverMemory", name, self.__class__.model_fields)
        if not isinstance(chats, PalaverChatStore | dict):
            chats = PalaverChatStore(cast("Store | None", chats))
        if more.get("tokenizer_fn", ...) is None:
            del more["tokenizer_fn"]
        more |= {"chat_store": chats, "chat_store_key": chat_store_key, "token_limit": token_limit}
        super().__init__(**more)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex dumps it."""
        return "PalaverMemory"

    @classmethod
    def from_defaults(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  # noqa: PLR0917 - as theirs
        cls,
        chat_history: list[ChatMessage] | None = None,
        llm: LLM | None = None,
        chat_store: PalaverChatStore | Store | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        token_limit: int | None = None,
        tokenizer_fn: Callable[[str], Sequence[object]] | None = None,
    ) -> PalaverMemory:
        """Make a memory as `ChatMemoryBuffer.from_defaults` does.

        With an `llm`, the limit is three quarters of its context window. Without a `chat_store`
        the conversation is in the memory of this process, and `chat_history` replaces what there
        is.
        """
        if token_limit is None:
            window = None if llm is None else llm.metadata.context_window
            token_limit = int(window * DEFAULT_TOKEN_LIMIT_RATIO) if window else DEFAULT_TOKEN_LIMIT
        memory = cls(
            open_store(":memory:") if chat_store is None else chat_store,
            chat_store_key,
            token_limit=token_limit,
            tokenizer_fn=tokenizer_fn,
        )
        if chat_history is not None:
            memory.set(chat_history)
        return memory

    @property
    def history(self) -> StoredHistory:
        """The conversation itself, to query, edit and roll back; it is created if new."""
        return self.chat_store.history(self.chat_store_key)

    # ── what LlamaIndex calls; the asynchronous ones do the same on a thread ────────────────────

    def get(
        self,
        input: str | None = None,  # noqa: A002, ARG002 - their name for it
        initial_token_count: int = 0,
        **_more: Any,  # noqa: ANN401 - as theirs
    ) -> list[ChatMessage]:
        """Return the newest messages that fit in what `initial_token_count` leaves of the limit."""
        if initial_token_count > self.token_limit:
            raise ValueError("Initial token count exceeds token limit")  # whose text they promise
        talk = self.chat_store.open(self.chat_store_key)
        if talk is None:
            return []
        view = talk.history.view
        first = self._count(talk).first_fitting(view, self.token_limit - initial_token_count)
        found = _from_question(view, first)
        made = _expand(found)
        if not all(map(_is_plain, found)):
            made = repair_messages(made, resuming=self.resuming)
        if first:  # the limit has cut it there, and at least the last message is shown
            return made
        return begin_with_user(made, view, role=lambda each: each.role.value, made=ChatMessage)

    def get_all(self) -> list[ChatMessage]:
        """Return all messages, as they are now."""
        return self.chat_store.get_messages(self.chat_store_key)

    def put(self, message: ChatMessage) -> None:
        """Add a message: an answer after the last message of this memory, others at the end."""
        self.put_messages([message])

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Add messages in one change, all of them or none."""
        if not messages:
            return
        with self._lock:
            history = self.chat_store.open_or_create(self.chat_store_key).history
            new = read_messages(messages, history)
            while True:
                try:
                    _add(history, new, self._last)
                except Conflict:
                    history.refresh()
                else:
                    break
            self._last = new[-1].id

    def set(self, messages: list[ChatMessage]) -> None:
        """Replace all messages in one change; those at the beginning that are the same stay."""
        self.chat_store.set_messages(self.chat_store_key, messages)

    def reset(self) -> None:
        """Remove all messages from the view; `history.undo()` restores them."""
        self.chat_store.delete_messages(self.chat_store_key)

    def _count(self, talk: _Talk) -> RunningTotal:
        """The counts of a conversation's messages; they begin anew when one was erased."""
        with self._lock:
            state = talk.created, talk.erased
            if self._counted is None or self._counted[0] != state:
                count = self.tokenizer_fn
                self._counted = state, RunningTotal(lambda text: len(count(text)), _WEIGHTS)
            return self._counted[1]


def _add(history: StoredHistory, new: list[Message], last: str | None) -> None:
    """Add messages: an answer after the message `last`, if that is in the view."""
    view = history.view
    after = len(view)
    if last is not None and new[0].role in ("assistant", "tool"):
        if after and view[-1].id == last:
            history.extend(new, expect=history.version)
            return
        with suppress(UnknownMessage):
            index = view.index_of(view.find(last))
            after = after if index is None else index + 1
    if after == len(view):
        history.extend(new)
    else:
        history.execute(Insert(after, tuple(new)), expect=history.version)


def _from_question(view: View, first: int) -> list[Message]:
    """The messages from an index on, without answers and results at the beginning.

    If nothing is left, it is the last message, and with a result the call before it.
    """
    messages = view[first:]
    if first == 0:
        return messages
    for index, message in enumerate(messages):
        if message.role not in ("assistant", "tool"):
            return messages[index:]
    last = len(view) - 1
    while last > 0 and view[last].role == "tool":
        last -= 1
    return view[last:]


class PalaverMemoryBlock(BaseMemoryBlock[list[ChatMessage]]):
    """A block of LlamaIndex's `Memory` that keeps what leaves its queue, and gives the newest.

    What `Memory` flushes is put into the conversation of a `PalaverMemory`; what fits the limit of
    that stands before the queue, as messages.

    >>> import palaver
    >>> from llama_index.core.memory import Memory
    >>> older = PalaverMemory(palaver.open(":memory:"), "tea-talk", token_limit=2_000)
    >>> memory = Memory.from_defaults("tea-talk", memory_blocks=[PalaverMemoryBlock(memory=older)])
    """

    name: str = Field(default="palaver")
    priority: int = Field(default=1)
    memory: PalaverMemory

    async def _aget(
        self,
        messages: list[ChatMessage] | None = None,  # noqa: ARG002 - as theirs
        **_more: Any,  # noqa: ANN401 - as theirs
    ) -> list[ChatMessage]:
        return await self.memory.aget()

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Put messages, without the id of the session, which a model would be sent."""
        plain = [message.model_copy() for message in messages]
        for message in plain:
            given = message.additional_kwargs
            message.additional_kwargs = {k: v for k, v in given.items() if k != "session_id"}
        await self.memory.aput_messages(plain)

    async def atruncate(
        self, content: list[ChatMessage], tokens_to_truncate: int
    ) -> list[ChatMessage] | None:
        """Return the newest of the messages, without the oldest that have so many tokens."""
        left = list(content)
        while left and (
            tokens_to_truncate > 0 or left[0].role in (MessageRole.ASSISTANT, *_RESULTS)
        ):
            message = left.pop(0)
            tokens_to_truncate -= len(self.memory.tokenizer_fn(message.content or ""))
        return left or None
