"""ChatGPT's data export: `conversations.json`, in which each conversation is a tree of nodes.

A node holds a message, or nothing. The conversation is the path from `current_node` back to the
root; an edited question or another try of an answer is a branch. A call of a tool is a message to
that tool (its `recipient`), and what the tool says next is the result. An export has no ids for
calls: a call has its node's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages.codec import MAX_DOCUMENT, dump
from palaver.messages.limits import is_list, is_object, kind_of
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import ModelRef
from palaver.transcripts.builder import ConversationBuilder
from palaver.transcripts.sources import (
    get_list,
    get_name,
    get_object,
    get_text,
    load_value,
    open_source,
    parse_time,
)
from palaver.wire.format import CallContent, FileContent, ReasoningContent, TextContent
from palaver.wire.notes import NoteCollector, ParsedConversation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from palaver.messages.message import Role
    from palaver.wire.format import Content

__all__ = ["is_export", "read"]

_FORM: Final = "chatgpt"
_PROVIDER: Final = "openai"
_ALL: Final = frozenset(("", "all"))
"""The recipients of a message to everybody: it is no call."""
_FINISH: Final = {"max_tokens": "length"}
_HIDDEN: Final = ("is_visually_hidden_from_conversation", "is_visually_hidden")
_CONTEXT: Final = (
    "user_profile", "user_instructions", "model_set_context", "about_user_message",
    "about_model_message",
)  # fmt: skip
"""Texts about the user that the program put before the model."""
_RECAP: Final = "reasoning_recap"
_AROUND: Final = frozenset(
    ("content_type", "parts", "thoughts", "language", "response_format_name",
     "source_analysis_msg_id")
)  # fmt: skip
"""Fields of a content that are read, or that say nothing alone."""
_MORE: Final = (
    "attachments",
    "citations",
    "content_references",
    "search_result_groups",
    "aggregate_result",
)
"""What a message's metadata says of what was said; the rest is about the page."""


def is_export(value: object) -> bool:
    """Tell whether a value is a conversation of an export."""
    return (
        is_object(value)
        and is_object(value.get("mapping"))
        and ("current_node" in value or "create_time" in value)
    )


def read(source: bytes | Path, *, branches: bool = False) -> Iterator[ParsedConversation]:
    """Read every conversation of an export; with `branches`, each branch after its conversation."""
    notes = NoteCollector()
    with open_source(source) as stream:
        value = load_value(stream.read(MAX_DOCUMENT + 1), "$", notes)
    listed = value if is_list(value) else (value,)
    for index, item in enumerate(listed):
        if is_export(item):
            yield from _Tree(item, notes).conversations(branches=branches)
        else:
            detail = f"must be a conversation with a mapping, not {kind_of(item)}"
            notes.lost(f"$[{index}]", "transcript.damaged", detail)
            yield ParsedConversation((), notes.all())
        notes = NoteCollector()


class _Tree:
    """The nodes of one conversation."""

    def __init__(self, value: Mapping[str, Any], notes: NoteCollector) -> None:
        self.value = value
        self.notes = notes
        self.name = get_name(value, "conversation_id", "id")
        mapping = get_object(value, "mapping")
        self.nodes = {name: node for name, node in mapping.items() if is_object(node)}
        for name in mapping.keys() - self.nodes.keys():
            notes.lost(f"node {name}", "transcript.damaged", "must be an object")

    def conversations(self, *, branches: bool) -> Iterator[ParsedConversation]:
        """Yield the conversation, then its branches where they are wanted."""
        main = self._path(self._current())
        seen = set(main)
        tips = [tip for tip in self._tips(seen) if tip not in seen]
        left = self._said_off(seen)
        if left and not branches:
            detail = (
                f"{left} messages are on {len(tips)} other branches: palaver import --branches "
                "imports each as a fork"
            )
            self.notes.lost(f"conversation {self.name}", "transcript.branch", detail)
        messages = self._messages(main)
        yield ParsedConversation(messages, self.notes.all(), self._about(messages))
        for tip in tips if branches else ():
            self.notes = NoteCollector()
            path = self._path(tip)
            own = self._messages(path)
            shared = _shared(messages, own)
            if len(own) > shared:
                about = {
                    **self._about(own), "id": tip, "parent": self.name, "branch": shared
                }  # fmt: skip
                yield ParsedConversation(own, self.notes.all(), about)

    def _current(self) -> str | None:
        tip = get_text(self.value, "current_node")
        if tip in self.nodes:
            return tip
        where = f"conversation {self.name}"
        if tip:
            self.notes.lost(where, "transcript.damaged", "its current_node is not there")
        return next(reversed(self.nodes), None)

    def _path(self, tip: str | None) -> list[str]:
        """Return the nodes from the root to a tip."""
        path: dict[str, None] = {}
        while tip is not None and tip in self.nodes and tip not in path:
            path[tip] = None
            tip = get_text(self.nodes[tip], "parent") or None
        return list(path)[::-1]

    def _tips(self, on_path: set[str]) -> list[str]:
        """Return the nodes that are no parent of another, without those on the path."""
        parents = {get_text(node, "parent") for node in self.nodes.values()}
        return [name for name in self.nodes if name not in parents and name not in on_path]

    def _said_off(self, on_path: set[str]) -> int:
        rest = (node for name, node in self.nodes.items() if name not in on_path)
        return sum(bool(list(_contents(get_object(node, "message")))) for node in rest)

    def _messages(self, path: list[str]) -> tuple[Message, ...]:
        reader = _PathReader(self.name, self.notes)
        for name in path:
            try:
                reader.add(name, get_object(self.nodes[name], "message"))
            except ValidationError as error:
                self.notes.lost(f"node {name}", "transcript.damaged", str(error))
        return tuple(reader.builder.messages)

    def _about(self, messages: tuple[Message, ...]) -> dict[str, Any]:
        models = [getattr(message.info, "model", None) for message in messages]
        used = next((ref.model_id for ref in reversed(models) if ref is not None), None)
        about = {
            "id": self.name,
            "title": get_text(self.value, "title") or None,
            "created": parse_time(self.value.get("create_time")),
            "model": used or get_name(self.value, "default_model_slug"),
            "gizmo": get_name(self.value, "gizmo_id"),
        }
        return {name: item for name, item in about.items() if item is not None}


def _shared(one: tuple[Message, ...], other: tuple[Message, ...]) -> int:
    """Return how many messages two conversations begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    shortest = min(len(one), len(other))
    return next((index for index, (mine, yours) in pairs if mine != yours), shortest)


class _PathReader:
    """Reads the messages of one path, in order."""

    def __init__(self, name: str | None, notes: NoteCollector) -> None:
        self.builder = ConversationBuilder(name)
        self.notes = notes
        self.open: dict[str, str] = {}
        self.last: tuple[str, str, list[FileContent], str] | None = None

    def add(self, name: str, said: Mapping[str, Any]) -> None:
        """Add the message of a node, where it says anything."""
        contents = list(_contents(said))
        author, metadata = get_object(said, "author"), get_object(said, "metadata")
        role, recipient = get_text(author, "role"), get_text(said, "recipient")
        if not contents:
            whole = get_object(said, "content")
            kind = get_text(whole, "content_type")
            if kind == _RECAP:
                self.notes.skipped(f"node {name}", kind, "tells how long the model took")
            elif any(whole[key] for key in whole.keys() - _AROUND):
                why = "is of a kind that palaver does not know"
                self.notes.skipped(f"node {name}", kind or "no content_type", why)
            return
        at = self.builder.at(parse_time(said.get("create_time")))
        if role == "tool":
            self._result(name, get_name(author, "name") or "unknown", said, contents, at)
            return
        self.last = None
        own = self.builder.new_id(name, f"node {name}")
        message = self.builder.message(own)
        hidden = any(metadata.get(key) is True for key in _HIDDEN)
        fields = {"synthetic": True} if role == "user" and hidden else {}
        for content in contents:
            made = content
            if role == "assistant" and recipient not in _ALL and isinstance(content, TextContent):
                made = CallContent(own, recipient, content.text)
                self.open[own] = recipient
            elif isinstance(content, ReasoningContent) and role != "assistant":
                made = TextContent(content.text)
            self.builder.add(message, made, at, form=_FORM, provider=_FORM, **fields)
        more = {key: metadata[key] for key in _MORE if metadata.get(key)}
        rest = {_FORM: more} if more else {}
        if role == "assistant":
            made_by = Message(
                "assistant", message.content, id=own, timestamp=at, info=_info(said, at),
                metadata=rest,
            )  # fmt: skip
            self.builder.messages.append(made_by)
            return
        if role not in {"user", "system"}:
            detail = f"the role {role[:60]!r} is unknown: read as the user's"
            self.notes.repaired(f"node {name}", "transcript.role", detail)
        speaker: Role = "system" if role == "system" else "user"
        self.builder.messages.append(
            Message(speaker, message.content, id=own, timestamp=at, metadata=rest)
        )

    def _result(
        self, name: str, tool: str, said: Mapping[str, Any], contents: list[Content], at: int
    ) -> None:
        """Add what a tool said: the result of its call, or more of one."""
        output = "\n".join(
            content.text
            for content in contents
            if isinstance(content, TextContent | ReasoningContent)
        )
        files = [content for content in contents if isinstance(content, FileContent)]
        call_id = next((call for call, used in self.open.items() if used == tool), None)
        call_id = call_id or next(iter(self.open), None)
        again = call_id is None and self.last is not None
        if again and self.last is not None:  # one call may be answered in several messages
            call_id, before, earlier, name = self.last
            output, files = "\n".join(text for text in (before, output) if text), earlier + files
            del self.builder.messages[-1]
        elif call_id is None:
            call_id = name
        self.open.pop(call_id, None)
        own = name if again else self.builder.new_id(name, f"node {name}")
        failed = get_text(get_object(said, "content"), "content_type") == "system_error"
        made = self.builder.result(
            call_id, output, own, at, is_error=failed, tool=tool, files=files
        )  # fmt: skip
        self.builder.messages.append(made)
        self.last = (call_id, output, files, own)


def _contents(said: Mapping[str, Any]) -> Iterator[Content]:
    """Yield what a message says, whatever kind of content it has."""
    content, metadata = get_object(said, "content"), get_object(said, "metadata")
    kind = get_text(content, "content_type")
    if kind == _RECAP:
        return
    for thought in get_list(content, "thoughts"):
        if is_object(thought):
            pieces = (get_text(thought, "summary"), get_text(thought, "content"))
            yield ReasoningContent("\n".join(piece for piece in pieces if piece))
    for part in get_list(content, "parts"):
        found = _part(part)
        if found is None:
            continue
        if kind == "thoughts" and isinstance(found, TextContent):
            found = ReasoningContent(found.text)
        yield found
    for name in ("text", "result", "summary", "content"):
        if get_text(content, name):
            yield TextContent(content[name])
    data = get_object(metadata, "user_context_message_data")
    texts = [get_text(holder, name) for holder in (content, data) for name in _CONTEXT]
    if any(texts):
        yield TextContent("\n\n".join(text for text in texts if text))


def _part(part: object) -> Content | None:
    """Read one of the parts: a text, or an object such as a pointer to an image."""
    if isinstance(part, str):
        return TextContent(part) if part else None
    if not is_object(part):
        return None if part is None else TextContent(dump(part).decode())
    text, pointer = get_text(part, "text"), get_text(part, "asset_pointer")
    if pointer:
        kind = get_text(part, "content_type").partition("_")[0]
        mime = "image/*" if kind == "image" else "application/octet-stream"
        return FileContent(mime, pointer)
    return TextContent(text or dump(part).decode())


def _info(said: Mapping[str, Any], at: int) -> AssistantInfo:
    metadata = get_object(said, "metadata")
    model, finish = get_name(metadata, "model_slug"), get_object(metadata, "finish_details")
    reason = get_text(finish, "type")
    return AssistantInfo(
        model=ModelRef(_PROVIDER, model) if model else None,
        finish=_FINISH.get(reason, reason) or None,
        completed=at,
    )
