"""The result of a node, the status of a conversation, and the registry that opens it by id.

Results and status are what an engine branches on. An engine's state is plain data: it passes an id
to its nodes, and the registry opens the conversation. The first time a conversation is opened here,
what a crash has left behind is recovered; after that, everybody in this process shares it, so that
running work is never mistaken for something a crash left behind.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio
from anyio import to_thread
from msgspec import Struct

from palaver.conversation import Conversation, Toolbox
from palaver.errors import AlreadyExists
from palaver.messages import AssistantInfo, Message, ToolCallPart, ToolPart
from palaver.messages.codec import to_dict
from palaver.messages.limits import check_callable, check_number
from palaver.stores import open_store
from palaver.stores.store import check_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from palaver.conversation import Recovered, Tool
    from palaver.history import View
    from palaver.stores import Store

__all__ = [
    "ConversationRegistry",
    "ConversationStatus",
    "NextNode",
    "NodeKind",
    "NodeOutcome",
    "NodeResult",
    "PendingCall",
    "Question",
    "read_status",
]


NodeKind: TypeAlias = Literal["llm", "tool", "human", "context", "compress"]
"""The five nodes."""

NextNode: TypeAlias = Literal["llm", "tool", "human", "compress", "end"]
"""The node that should run next, or `end`."""

NodeOutcome: TypeAlias = Literal[
    "answered",  # a model answered, without calls
    "calls",  # a model answered, and calls wait
    "ran",  # calls have run; `failed` names those that failed
    "approval",  # calls wait for a human's approval, and nothing has run
    "asked",  # a human has to be asked `question`
    "decided",  # a human has decided about calls
    "replied",  # a human's reply is in the conversation
    "edited",  # the conversation was edited
    "compacted",  # the conversation is shorter
    "refused",  # compaction would not have made it shorter
    "nothing",  # there was nothing to do
]


class NodeResult(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """The result of a node.

    `added` are the ids of messages that it added, `calls` of calls that still wait, `failed` of
    calls that failed. `again` says that the work had been done before under the same key.
    """

    node: NodeKind
    outcome: NodeOutcome
    next: NextNode
    conversation: str
    version: int
    added: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    question: Question | None = None
    again: bool = False
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON-ready data."""
        data: dict[str, Any] = to_dict(self)
        return data


class Question(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A question to a human; `problem` says why the answer before was not accepted."""

    kind: Literal["approve", "text", "choose", "edit"]
    prompt: str
    options: tuple[str, ...] = ()
    calls: tuple[PendingCall, ...] = ()
    text: str = ""
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The question as JSON-ready data.

        >>> Question("choose", "Tea?", options=("yes", "no")).to_dict()
        {'kind': 'choose', 'prompt': 'Tea?', 'options': ['yes', 'no']}
        """
        data: dict[str, Any] = to_dict(self)
        return data


class PendingCall(Struct, frozen=True, rename="camel"):
    """A tool call that a human is asked about.

    `digest` covers the tool, the arguments and the version of the call's message: a decision is
    valid for the call of this digest and for no other.
    """

    id: str
    call_id: str
    tool: str
    input: Mapping[str, Any]
    digest: str = ""


class ConversationStatus(Struct, frozen=True):
    """The version of a conversation, the calls that wait, and the node that should run next.

    `running` are calls that are being run, or that a crash interrupted. `over` says that the
    conversation is over its token limit, `wants` which node should run apart from that.
    """

    version: int
    waiting: tuple[ToolCallPart, ...]
    running: tuple[ToolCallPart, ...]
    over: bool
    wants: NextNode

    @property
    def next(self) -> NextNode:
        """The node that should run next: `compress` if the conversation is over its limit."""
        return "compress" if self.over else self.wants


def read_status(conversation: Conversation) -> ConversationStatus:
    """Read the current status of a conversation, with the changes of other processes.

    >>> import palaver
    >>> from palaver.conversation import Conversation
    >>> conversation = Conversation(palaver.open(":memory:"))
    >>> read_status(conversation).next
    'human'
    >>> _ = conversation.add({"role": "user", "content": "Tea?"})
    >>> read_status(conversation).next
    'llm'
    """
    history = conversation.history.refresh()
    view, limit = history.view, conversation.token_limit
    waiting, running = _open_calls(conversation, view)
    over = limit is not None and conversation.tokens() > limit
    wants = "tool" if waiting or running else _wanted(view)
    return ConversationStatus(view.version, waiting, running, over, wants)


def _open_calls(
    conversation: Conversation, view: View
) -> tuple[tuple[ToolCallPart, ...], tuple[ToolCallPart, ...]]:
    """Return the calls that nobody has begun, and those that are running.

    The first include calls that came with a fork or an import, calls whose message was replaced by
    one of another id, and calls that are done but whose result is not in the log yet.
    """
    known = conversation.waiting()
    last, answered = len(view) - 1, set[str]()
    while last >= 0 and view[last].role == "tool":
        answered.update(part.call_id for part in view[last].parts if isinstance(part, ToolPart))
        last -= 1
    if last < 0 or view[last].role != "assistant":
        return tuple(known), ()
    ids, ledger = {call.id for call in known}, conversation.ledger()
    others = [
        part
        for part in view[last].parts
        if isinstance(part, ToolCallPart) and part.call_id not in answered and part.id not in ids
    ]
    running = tuple(
        part for part in others if part.id in ledger and ledger[part.id].state.status == "running"
    )
    return (*known, *(part for part in others if part not in running)), running


def _wanted(view: View) -> NextNode:
    last = view[-1] if len(view) else None
    if last is None or last.role == "system":
        return "human"
    return "end" if last.role == "assistant" and not _is_interrupted(last) else "llm"


def _is_interrupted(message: Message) -> bool:
    return isinstance(message.info, AssistantInfo) and message.info.finish == "interrupted"


_WAIT: Final = 90.0
"""Longer than the lease of a worker that was killed."""
_MAX_IDLE: Final = 64
"""How many of the last used conversations stay open although nobody uses them."""


class _Recovery:
    """Whether a conversation was recovered yet, and a lock for those who open it meanwhile."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.is_done = False


class ConversationRegistry:
    """Opens the conversations of a store, with the same model, tools and limits for all.

    >>> import anyio, palaver
    >>> registry = ConversationRegistry(palaver.open(":memory:"))
    >>> conversation = anyio.run(registry.open, "trip-1")
    >>> conversation.id, anyio.run(registry.open, "trip-1") is conversation
    ('trip-1', True)
    """

    def __init__(
        self,
        store: Store,
        *,
        tools: Toolbox | Iterable[Tool | Callable[..., Any]] = (),
        wait: float = _WAIT,
        on_open: Callable[[Conversation], None] | None = None,
        **settings: Any,  # noqa: ANN401 - those of Conversation
    ) -> None:
        """Take the arguments of every `Conversation`: `tools` and `settings`.

        A conversation that another process works on is waited for, `wait` seconds at most.
        `on_open` is called with each conversation when it is opened, to subscribe to its events.
        """
        check_store(store)
        check_number(wait, "$.wait")
        check_callable(on_open, "$.on_open", "a function that takes a conversation")
        self.store = store
        self.found: dict[str, list[Recovered]] = {}
        self._tools = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        Conversation(open_store(":memory:"), tools=self._tools, **settings)  # refuses wrong ones
        self._wait = wait
        self._on_open = on_open
        self._settings = settings
        self._lock = threading.Lock()
        self._open: WeakValueDictionary[str, Conversation] = WeakValueDictionary()
        self._recoveries: WeakKeyDictionary[Conversation, _Recovery] = WeakKeyDictionary()
        self._last_used: OrderedDict[str, Conversation] = OrderedDict()

    async def open(self, conversation: str) -> Conversation:
        """Open the conversation of an id; it is created if it does not exist.

        What was recovered after a crash is in `found`, by the conversation's id.
        """
        opened, recovery = await to_thread.run_sync(self._get, conversation)
        async with recovery.lock:
            if not recovery.is_done:
                found = await opened.recover(wait=self._wait)
                if found:
                    self.found[conversation] = found
                recovery.is_done = True
        return opened

    async def branch(self, conversation: str, version: int, *, id: str | None = None) -> str:  # noqa: A002 - the word for it
        """Fork a conversation at a version, and return the id of the new conversation."""
        opened = await self.open(conversation)

        def fork() -> str:
            return opened.history.refresh().fork(at=version, id=id).id

        return await to_thread.run_sync(fork)

    def _get(self, name: str) -> tuple[Conversation, _Recovery]:
        """Return a conversation that is open already, or open it."""
        with self._lock:
            opened = self._open.get(name)
            if opened is None:
                opened = self._open[name] = self._make(name)
                self._recoveries[opened] = _Recovery()
            self._last_used[name] = opened
            self._last_used.move_to_end(name)
            while len(self._last_used) > _MAX_IDLE:
                self._last_used.popitem(last=False)
            return opened, self._recoveries[opened]

    def _make(self, name: str) -> Conversation:
        if name not in self.store:
            with suppress(AlreadyExists):  # another process may have created it meanwhile
                self.store.create(id=name)
        opened = Conversation(self.store, name, tools=self._tools, **self._settings)
        if self._on_open is not None:
            self._on_open(opened)
        return opened
