"""The conversations that a server has open, their settings, and what their agents are shown.

A conversation is identified by its id and its creation time: one that was deleted and created again
under the same id is another one. Reading one again is cheap, and its counts stay. Settings are
records beside the log: they make no version, exports have them, and no message holds them.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from palaver.context import MAX_BYTES, WINDOW, ContextManager, Visibility
from palaver.context.manager import KnownAgent, Prompt, previous_prompt, prompt_at_turn
from palaver.conversation import Conversation, Prices
from palaver.errors import UnknownConversation, ValidationError
from palaver.models.base import OPTIONS, check_option
from palaver.server.requests import Shape
from palaver.stores.records import TRASHED
from palaver.stores.transfer.documents import first_line

if TYPE_CHECKING:
    from collections.abc import Container

    from palaver.context.explain import PromptExplanation
    from palaver.events import Event
    from palaver.history import BaseHistory, View
    from palaver.server.live import Live
    from palaver.stores import Store
    from palaver.stores.records import Head, Record

__all__ = [
    "AgentContext",
    "ContextQuery",
    "ConversationNames",
    "ConversationSettings",
    "ConversationSize",
    "OpenConversations",
    "SettingsChange",
    "build_context",
    "copy_settings",
    "display_name",
    "read_settings",
    "write_settings",
]


_CAPACITY: Final = 64
_LOOKED_AT: Final = 20
"""How many messages are looked at for the first line of a user."""
_SETTINGS: Final = "settings"


class ConversationSize(Shape, frozen=True):
    """The size of a conversation."""

    messages: int
    tokens: int


class _OpenConversation:
    """A conversation and the view that was read last."""

    __slots__ = ("conversation", "created", "erased", "view")

    def __init__(self, conversation: Conversation, head: Head) -> None:
        self.conversation = conversation
        self.created = head.created
        self.erased = head.erased
        self.view: View | None = None


class OpenConversations:
    """A cache of conversations by id; the least recently used ones are dropped."""

    def __init__(self, store: Store, live: Live) -> None:
        """Open conversations of a store; the progress of their tools goes to `live`."""
        self._store = store
        self._live = live
        self._open: OrderedDict[str, _OpenConversation] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> Conversation:
        """A conversation as it is now; `UnknownConversation` if there is none."""
        head = self._store.head(name)
        with self._lock:
            known = self._open.pop(name, None)
            if known is None or known.created != head.created:
                known = _OpenConversation(self._open_new(name), head)
            erased = known.erased != head.erased
            if erased:
                known.conversation.tally.forget()
                known.view, known.erased = None, head.erased
            self._open[name] = known
            if len(self._open) > _CAPACITY:
                self._open.popitem(last=False)
        if erased or known.conversation.history.version != head.version:
            known.conversation.history.refresh()
        known.view = known.conversation.history.view
        return known.conversation

    def cached_view(self, name: str) -> View | None:
        """The view of a conversation that was read before and has not changed; None otherwise.

        It takes no lock, so it waits neither for writers nor for conversations being opened.
        """
        head, known = self._store.head(name), self._open.get(name)
        if known is None or (known.created, known.erased) != (head.created, head.erased):
            return None
        view = known.view
        return view if view is not None and view.version == head.version else None

    def _open_new(self, name: str) -> Conversation:
        conversation = Conversation(self._store, name, prices=Prices())
        conversation.events.on("tool.running", self.emit_progress)
        return conversation

    def emit_progress(self, event: Event) -> None:
        """Emit the progress of a running tool; all other events come from the journal."""
        if "title" in event.data:
            data = {"conversation": event.conversation, **event.data}
            self._live.emit("tool.progress", data)


class ContextQuery(Struct, frozen=True):
    """An agent with its limits and instructions; None leaves a value as it is known.

    `turn` asks for the prompt that the agent had at one of its turns, 1 being its first.
    """

    agent: str
    agent_type: str | None = None
    window: int | None = None
    max_bytes: int | None = None
    max_tokens: int | None = None
    visibility: Visibility | None = None
    system: str | None = None
    instructions: str | None = None
    name: str | None = None
    turn: int | None = None

    def over(self, own: ContextQuery) -> ContextQuery:
        """An agent's own query, changed by the values that this one sets.

        >>> ContextQuery("Max", window=2).over(
        ...     ContextQuery("a1", window=5, visibility="addressed")
        ... )
        ContextQuery(agent='a1', agent_type=None, window=2, ..., visibility='addressed', ...)
        """
        given = {name: value for name, value in structs.asdict(self).items() if value is not None}
        return structs.replace(own, **given | {"agent": own.agent})


class AgentContext(Struct, frozen=True):
    """The prompt of an agent; `before` is the one that it had before it last spoke."""

    prompt: Prompt
    before: Prompt | None
    version: int

    def explain(self) -> PromptExplanation:
        """Explain the prompt."""
        return self.prompt.explain(since=self.before)


def build_context(history: BaseHistory, query: ContextQuery) -> AgentContext:
    r"""Build the prompt that an agent would get of a history now, or had at a turn.

    >>> from palaver.history import History
    >>> from palaver.messages import user
    >>> build_context(History([user("one"), user("two")]), ContextQuery("max")).prompt.prompt
    'user: one\n\ntwo'
    """
    version = history.version
    who = KnownAgent(history.view, query.agent)
    options: dict[str, Any] = {
        "agent_type": query.agent_type or who.agent_type,
        "name": query.name or who.name,
        "system_instruction": query.system,
        "instruction_file_text": query.instructions,
    }
    limits: dict[str, Any] = {
        "window": WINDOW if query.window is None else query.window,
        "max_bytes": MAX_BYTES if query.max_bytes is None else query.max_bytes,
        "max_tokens": query.max_tokens,
        "visibility": query.visibility or "all",
    }
    if query.turn is not None:
        turns = [query.turn] if query.turn == 1 else [query.turn, query.turn - 1]
        prompt, *before = (prompt_at_turn(who, history, n, limits, options) for n in turns)
        return AgentContext(prompt, next(iter(before), None), prompt.fingerprint.version)
    prompt = ContextManager(history, **limits).prompt_for(who.id, **options)
    return AgentContext(prompt, previous_prompt(who, history, limits, options), version)


def display_name(store: Store, head: Head) -> str | None:
    """What to call a conversation: its title, or the first line that a user wrote in it."""
    if head.title or not head.size:
        return head.title
    plain = head.framed == 0 and head.parent is None
    first = store.messages(head.id, 0, min(head.stop, _LOOKED_AT)) if plain else None
    messages = store.get(head.id)[:_LOOKED_AT] if first is None else first
    return first_line(messages)


class ConversationNames:
    """What the conversations of a store are called, to be found by a few letters.

    A name without a title is read from the messages, so it is remembered until the conversation has
    another version.
    """

    def __init__(self, store: Store) -> None:
        """Read names from a store when they are asked for."""
        self._store = store
        self._known: dict[str, tuple[tuple[int, int, str | None], str | None]] = {}

    def find(self, text: str, limit: int) -> list[tuple[Head, str | None]]:
        """The conversations whose names have these letters in this order, the best match first.

        Among equals the one that was changed last comes first. The trash is left out.
        """
        wanted = " ".join(text.casefold().split())
        known: dict[str, tuple[tuple[int, int, str | None], str | None]] = {}
        found: list[tuple[int, Head, str | None]] = []
        for head in self._store.each(without=(TRASHED,)):
            state = (head.created, head.version, head.title)
            before = self._known.get(head.id)
            if before is None or before[0] != state:
                with suppress(UnknownConversation):  # it was deleted meanwhile
                    before = state, display_name(self._store, head)
            if before is None:
                continue
            known[head.id] = before
            score = match_letters(before[1] or "", wanted)
            if score is not None:
                found.append((score, head, before[1]))
        self._known = known
        found.sort(key=lambda one: -one[0])
        return [(head, name) for _, head, name in found[:limit]]


def match_letters(name: str, wanted: str) -> int | None:
    """How well a name has some letters in this order; None if it has not.

    The text in one piece is better than letters here and there, and the beginning of a word better
    than amid one.

    >>> [match_letters(name, "rep") for name in ("Report", "My report", "Preprint", "Rain deep")]
    [3, 2, 1, 0]
    >>> match_letters("Weather", "rep")
    """
    folded = name.casefold()
    if wanted in folded:
        at = folded.index(wanted)
        starts = [m.start() for m in re.finditer(rf"(?<!\w){re.escape(wanted)}", folded)]
        return 3 if at == 0 else 2 if starts else 1
    letters = iter(folded)
    return 0 if all(letter in letters for letter in wanted if letter != " ") else None


# ── settings ────────────────────────────────────────────────────────────────────────────────────


class ConversationSettings(Shape, frozen=True):
    """What the steps of a conversation use unless a request says otherwise.

    `options` are those of a model, such as temperature or max_tokens. `tools` are all, none, or
    some by name; None leaves them to the request.
    """

    options: dict[str, Any]
    tools: bool | list[str] | None


class SettingsChange(Shape, frozen=True):
    """New options in the place of all that were set, or new tools, or both."""

    options: dict[str, Any] | UnsetType = UNSET
    tools: bool | list[str] | UnsetType | None = UNSET

    def check(self, known: Container[str]) -> None:
        """Raise `ValidationError` for options that no model has and for tools that are not known.

        >>> SettingsChange(options={"tool_choice": "required"}).check(())
        Traceback (most recent call last):
        palaver.errors.ValidationError: $.options.tool_choice: can't be set for all steps: ...
        """
        for name, value in ({} if self.options is UNSET else self.options).items():
            path = f"$.options.{name}"
            if name == "tool_choice":
                detail = "can't be set for all steps: with it every answer would make a call"
                raise ValidationError(detail, path=path, rule="option")
            if name not in OPTIONS:
                detail = f"unknown option; known are {', '.join(sorted(OPTIONS - {'tool_choice'}))}"
                raise ValidationError(detail, path=path, rule="option")
            check_option(name, value, path)
        for index, name in enumerate(self.tools if isinstance(self.tools, list) else ()):
            if name not in known:
                detail = f"there is no tool {name!r}; GET /api/info lists those there are"
                raise ValidationError(detail, path=f"$.tools[{index}]", rule="unknown-tool")


def read_settings(store: Store, conversation: str) -> ConversationSettings:
    """The settings of a conversation; empty if nothing was set."""
    stored = store.records(conversation, _SETTINGS)
    options, tools = stored.get("options", b"{}"), stored.get("tools", b"null")
    return ConversationSettings(
        options=msgspec.json.decode(options, type=dict[str, Any]),
        tools=msgspec.json.decode(tools, type=bool | list[str] | None),
    )


def write_settings(store: Store, conversation: str, change: SettingsChange) -> None:
    """Store a checked change; each setting is a record, so that two changes do not meet."""
    options = change.options if change.options is UNSET else change.options or None
    given = {"options": options, "tools": change.tools}
    records: list[Record] = [
        (_SETTINGS, name, None if value is None else msgspec.json.encode(value))
        for name, value in given.items()
        if value is not UNSET
    ]
    store.put_records(conversation, records)


def copy_settings(store: Store, source: str, target: str) -> None:
    """Give a new fork the settings of its parent; one that has its own keeps them."""
    stored = store.records(source, _SETTINGS)
    if stored and not store.records(target, _SETTINGS):
        store.put_records(target, [(_SETTINGS, name, value) for name, value in stored.items()])
