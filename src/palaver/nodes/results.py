"""What a node answers with, and where a conversation stands: all that an engine needs to branch on.

`next` is read off the conversation itself, never off what a node remembers: calls that wait want
their tools, a user's words or a result want the model, a whole answer is the end. So a node that is
run again after a crash gives the same advice as the first time. It is advice: the engine decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from palaver.events import Event
from palaver.messages import AssistantInfo, Message, ToolCallPart, ToolPart
from palaver.messages.codec import to_dict
from palaver.messages.gate import EMPTY

if TYPE_CHECKING:
    from palaver.conversation import Conversation
    from palaver.events import Name
    from palaver.history import View

__all__ = ["CallAsked", "Done", "Kind", "Next", "Outcome", "Question", "Standing", "look", "tell"]

Kind: TypeAlias = Literal["llm", "tool", "human", "context", "compress"]
"""The five nodes."""

Next: TypeAlias = Literal["llm", "tool", "human", "compress", "end"]
"""Which node is wanted next, or none."""

Outcome: TypeAlias = Literal[
    "answered",  # a model answered, without calls
    "calls",  # a model answered, and calls wait
    "ran",  # calls have run; `failed` says which went wrong
    "approval",  # calls wait for a human, and nothing has run
    "asked",  # a human has to be asked: `question` says what
    "decided",  # a human has decided about calls
    "replied",  # a human's words are in the conversation
    "edited",  # the conversation was edited
    "compacted",  # there is more room
    "refused",  # making room would not have made room
    "nothing",  # there was nothing to do
]


class CallAsked(Struct, frozen=True, rename="camel"):
    """A tool call that a human is asked about.

    `digest` covers the tool, the arguments and the version of the call's message: a decision holds
    for the call of this digest and for no other.
    """

    id: str
    call_id: str
    tool: str
    input: Mapping[str, Any]
    digest: str = ""


class Question(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a human is asked: `problem` says why an answer before this one was not taken."""

    kind: Literal["approve", "text", "choose", "edit"]
    prompt: str
    options: tuple[str, ...] = ()
    calls: tuple[CallAsked, ...] = ()
    text: str = ""
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The question as JSON-ready data.

        >>> Question("choose", "Tea?", options=("yes", "no")).to_dict()
        {'kind': 'choose', 'prompt': 'Tea?', 'options': ['yes', 'no']}
        """
        data: dict[str, Any] = to_dict(self)
        return data


class Done(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """What a node did.

    `added` names the messages it added, `calls` the calls that still wait, `failed` those that
    went wrong, all by their ids. `again` says that it had all been done before, under the same key.
    """

    node: Kind
    outcome: Outcome
    next: Next
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


class Standing(Struct, frozen=True):
    """Where a conversation stands: its version, the calls that wait, what it wants next.

    `running` are calls that somebody is at, or that a crash has cut off. `over` says that it is
    over its token limit, `wants` what it would want if it were not.
    """

    version: int
    waiting: tuple[ToolCallPart, ...]
    running: tuple[ToolCallPart, ...]
    over: bool
    wants: Next

    @property
    def next(self) -> Next:
        """What it wants next: first of all, room."""
        return "compress" if self.over else self.wants


def look(conversation: Conversation) -> Standing:
    """See where a conversation stands now, whoever has worked on it.

    >>> import palaver
    >>> from palaver.conversation import Conversation
    >>> conversation = Conversation(palaver.open(":memory:"))
    >>> look(conversation).next
    'human'
    >>> _ = conversation.add({"role": "user", "content": "Tea?"})
    >>> look(conversation).next
    'llm'
    """
    history = conversation.history.refresh()
    view, limit = history.view, conversation.token_limit
    waiting, running = _open_calls(conversation, view)
    over = limit is not None and conversation.tokens() > limit
    wants = "tool" if waiting or running else _wanted(view)
    return Standing(view.version, waiting, running, over, wants)


def _open_calls(
    conversation: Conversation, view: View
) -> tuple[tuple[ToolCallPart, ...], tuple[ToolCallPart, ...]]:
    """The calls that nobody has begun, and those under way.

    To the first belong those that came with a fork or from elsewhere, those whose message was
    replaced by one of another id, and those that are done and only want their place.
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


def _wanted(view: View) -> Next:
    last = view[-1] if len(view) else None
    if last is None or last.role == "system":
        return "human"
    return "end" if last.role == "assistant" and not _is_cut_off(last) else "llm"


def _is_cut_off(message: Message) -> bool:
    return isinstance(message.info, AssistantInfo) and message.info.finish == "interrupted"


async def tell(conversation: Conversation, name: Name, data: Mapping[str, Any] = EMPTY) -> None:
    """Tell whoever listens what a node has done."""
    if conversation.events.wanted(name):
        event = Event(name, conversation.id, conversation.history.version, data)
        await conversation.events.publish(event)
