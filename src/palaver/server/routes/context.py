"""Context: an agent's prompt and its explanation, a provider's request, tokens and compaction."""

from __future__ import annotations

import math
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    Protocol,
    get_args,
    runtime_checkable,
)

from litestar import get, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import UNSET, Meta, UnsetType, field
from msgspec.structs import replace

from palaver import wire
from palaver.context import Visibility
from palaver.context.assemblers import ContextMessage
from palaver.context.explain import EntryReason, PromptComparison, PromptPart
from palaver.errors import ValidationError
from palaver.messages import Role
from palaver.models.base import LOCAL_PROVIDER, Model, ModelRequest
from palaver.server.requests import IfMatch, Shape, read_if_match
from palaver.server.services import ServiceDependency
from palaver.server.services.compaction import CompactionReport, CompactionRequest
from palaver.server.services.conversations import AgentContext, ContextQuery
from palaver.server.services.costs import Costs, UsageTotals
from palaver.tokens import is_exact
from palaver.wire import Note, Request, Target, tool_names, write_tools
from palaver.wire.notes import OTHER_REFUSAL, REFUSALS, count_losses, is_refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.conversation import Conversation, Toolbox
    from palaver.history import BaseHistory, View
    from palaver.models.base import Model

__all__ = ["ROUTES", "ExplainedPrompt", "TurnNumber", "explain_context"]


_TEXT_LENGTH: Final = 200
_MAX_LIMIT: Final = 2**31

ProviderFormat = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]
_FORMATS: Final[dict[str, ProviderFormat]] = {
    "openai-chat": "openai-chat",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
}

_Agent = Annotated[str, QueryParameter(min_length=1, max_length=200)]
_AgentType = Annotated[str | None, QueryParameter(name="type", min_length=1, max_length=100)]
_Window = Annotated[int | None, QueryParameter(ge=0, le=100_000)]
_MaxBytes = Annotated[int | None, QueryParameter(name="maxBytes", ge=0, le=_MAX_LIMIT)]
_MaxTokens = Annotated[int | None, QueryParameter(name="maxTokens", ge=0, le=_MAX_LIMIT)]
_Visibility = Annotated[Visibility | None, QueryParameter(name="visibility")]
TurnNumber = Annotated[
    int | None,
    QueryParameter(ge=1, le=_MAX_LIMIT, description="a turn of the agent; 1 is its first"),
]
"""The turn of an agent whose prompt is asked for; without it, the prompt is that of now."""


class AgentPrompt(Shape, frozen=True):
    """The prompt that an agent would get now."""

    version: int
    context_messages: list[ContextMessage]
    current_message: str
    team_task: str | None
    max_bytes: int
    prompt: str
    system_flag: str | None


class ContextEntry(Shape, frozen=True):
    """Whether one message within the window is in the prompt, why, and its first characters."""

    id: str
    handle: str | None
    from_: str = field(name="from")
    to: str
    kept: bool
    reason: EntryReason
    bytes: int
    tokens: int
    text: Annotated[str, Meta(description="the first characters of it")]


class ContextExplanation(Shape, frozen=True):
    """The reasons for a prompt; `older` is how many messages lie before the window."""

    agent: str
    agent_type: str
    window: int
    visibility: str
    max_bytes: int
    max_tokens: int | None
    bytes: int
    tokens: int
    parts: list[PromptPart]
    entries: list[ContextEntry]
    older: int
    since: PromptComparison | None


class ExplainedPrompt(AgentPrompt, frozen=True):
    """A prompt with its reasons; `previous_prompt` is the one before the agent last spoke."""

    explain: ContextExplanation
    previous_prompt: str | None


class RequestNote(Shape, frozen=True):
    """One thing that is not in the request as it is in the history: where, what, and why.

    It was repaired, left out, or is not supported: the provider has no place for it. `refused`
    means that the provider would have refused it unchanged.
    """

    action: Literal["repaired", "left-out", "unsupported"]
    path: str
    what: str
    why: str
    rule: str
    refused: bool
    message_id: str | UnsetType = field(default=UNSET, name="messageID")


class ProviderRequest(Shape, frozen=True):
    """The request for a provider; `problems` are the notes on what it would have refused.

    It is what a `model` is sent, with its tools and options; without one it has none of them.
    `provider` is the provider's name of the model, where it is one behind the web.
    """

    version: int
    format: ProviderFormat
    model: str | None
    provider: str | None
    request: dict[str, Any]
    notes: list[RequestNote]
    problems: list[RequestNote]
    tokens: int


async def _read_query(
    agent: _Agent,
    kind: _AgentType = None,
    window: _Window = None,
    max_bytes: _MaxBytes = None,
    max_tokens: _MaxTokens = None,
    visibility: _Visibility = None,
    turn: TurnNumber = None,
) -> ContextQuery:
    """The agent and its limits; what is not given is the agent's own, or the default."""
    return ContextQuery(agent, kind, window, max_bytes, max_tokens, visibility, turn=turn)


_QUERY: Final = {"context_query": Provide(_read_query)}


@get("/conversations/{conversation:str}/context", sync_to_thread=True, dependencies=_QUERY)
def context(
    conversation: FromPath[str],
    service: ServiceDependency,
    context_query: NamedDependency[ContextQuery],
) -> AgentPrompt:
    """Get the prompt that an agent, named by its id or its name, would get now.

    With `turn` it is the prompt that the agent had at one of its turns.
    """
    history = service.store.get(conversation)
    return AgentPrompt(**_prompt_fields(service.teams.agent_context(history, context_query)))


@get("/conversations/{conversation:str}/explain", sync_to_thread=True, dependencies=_QUERY)
def explain(
    conversation: FromPath[str],
    service: ServiceDependency,
    context_query: NamedDependency[ContextQuery],
) -> ExplainedPrompt:
    """Explain the prompt: which messages are in it, and what changed since the agent last spoke.

    With `turn` it is the prompt that the agent had at one of its turns.
    """
    history = service.store.get(conversation)
    return explain_context(history, service.teams.agent_context(history, context_query))


@get("/conversations/{conversation:str}/request", sync_to_thread=True)
def request(
    conversation: FromPath[str],
    service: ServiceDependency,
    format: FromQuery[ProviderFormat | None] = None,  # noqa: A002 - the word for it
    model: Annotated[str | None, QueryParameter(min_length=1, max_length=200)] = None,
    tools: FromQuery[bool | None] = None,
) -> ProviderRequest:
    """Get the exact request that a provider would get now, and what had to be repaired for it.

    It is in a `format`, or in that of a `model`; without either, in that of the server's model. As
    in a step, options are those of the conversation's settings, and so are `tools` unless given.
    """
    chat = service.conversations.get(conversation)
    toolbox = service.steps.tools_of(conversation, tools)
    chosen = None
    if model is not None or format is None:
        chosen = service.steps.get_model(model)
        if format is not None and chosen.format != format:
            detail = f"{model} speaks {chosen.format}, not {format}"
            raise ValidationError(detail, path="$.format", rule="format")
    form = _FORMATS[chosen.format] if chosen is not None else format or "openai-chat"
    target = Target() if chosen is None else replace(chosen.target, model=chosen.ref)
    written = _write_request(chat, form, target)
    options = {} if chosen is None else service.steps.options_of(conversation, chosen)
    notes = [_shape_note(note, form) for note in written.notes]
    return ProviderRequest(
        version=chat.history.version,
        format=form,
        model=None if chosen is None else model or service.models.default,
        provider=None if chosen is None else _provider_name(chosen),
        request=_complete_body(written, form, chosen, toolbox, options, chat.cache_key()),
        notes=notes,
        problems=[note for note in notes if note.refused],
        tokens=chat.tokens(toolbox),
    )


def _provider_name(model: Model) -> str | None:
    return None if model.ref.provider_id == LOCAL_PROVIDER else model.ref.model_id


def _prompt_fields(found: AgentContext) -> dict[str, Any]:
    prompt = found.prompt
    given = prompt.input
    return {
        "version": found.version,
        "context_messages": list(given.context_messages),
        "current_message": given.current_message,
        "team_task": given.team_task,
        "max_bytes": given.max_bytes,
        "prompt": prompt.prompt,
        "system_flag": prompt.system_flag,
    }


def explain_context(history: BaseHistory, found: AgentContext) -> ExplainedPrompt:
    """The prompt of an agent with its explanation."""
    explanation, view = found.explain(), history.view
    entries = [
        ContextEntry(
            id=entry.id,
            handle=entry.handle,
            from_=entry.from_,
            to=entry.to,
            kept=entry.kept,
            reason=entry.reason,
            bytes=entry.bytes,
            tokens=entry.tokens,
            text=view.log[view.find(entry.id)].text[:_TEXT_LENGTH],
        )
        for entry in explanation.entries
    ]
    shape = ContextExplanation(
        agent=explanation.agent,
        agent_type=explanation.agent_type,
        window=explanation.window,
        visibility=explanation.visibility,
        max_bytes=explanation.max_bytes,
        max_tokens=explanation.max_tokens,
        bytes=explanation.bytes,
        tokens=explanation.tokens,
        parts=list(explanation.parts),
        entries=entries,
        older=explanation.older,
        since=explanation.since,
    )
    before = None if found.before is None else found.before.prompt
    return ExplainedPrompt(**_prompt_fields(found), explain=shape, previous_prompt=before)


@runtime_checkable
class _ShowsRequest(Protocol):
    """A model that can show the body it would send."""

    def request(self, ask: ModelRequest) -> dict[str, Any]:
        """The body of a request."""
        ...


def _write_request(chat: Conversation, form: str, target: Target) -> Request:
    """The conversation in a format; it is converted anew, since a step may be using `chat`."""
    open_calls = {entry.call_id for entry in chat.ledger().values() if not entry.done}
    return wire.to(form, chat.messages, target, open_calls=open_calls)


def _complete_body(
    written: Request,
    form: str,
    model: Model | None,
    toolbox: Toolbox,
    options: Mapping[str, Any],
    cache_key: str,
) -> dict[str, Any]:
    """The whole body, with the tools and what the model adds."""
    names = {**tool_names(form, toolbox.specs), **written.names}
    if model is not None and isinstance(model, _ShowsRequest):
        return model.request(
            ModelRequest(written.body, toolbox.specs, names, options, cache_key, written.compacted)
        )
    offered = {"tools": write_tools(form, toolbox.specs)} if toolbox else {}
    return {**written.body, **offered}


def _shape_note(note: Note, form: str) -> RequestNote:
    return RequestNote(
        action=_kind_of(note),
        path=note.where,
        what=note.detail,
        why=_AS_TEXT if _is_text_file(note) else REFUSALS.get(note.rule, OTHER_REFUSAL),
        rule=note.rule,
        refused=is_refused(note, form) and not _is_text_file(note),
        message_id=UNSET if note.message_id is None else note.message_id,
    )


def _kind_of(note: Note) -> Literal["repaired", "left-out", "unsupported"]:
    if note.rule in _UNSUPPORTED and note.action == "lost":
        return "unsupported"
    return "left-out" if count_losses([note]) else "repaired"


def _is_text_file(note: Note) -> bool:
    """Whether it is about a file that is sent as text: nothing is wrong with such a history."""
    return note.rule == "media" and note.action == "repaired"


_AS_TEXT: Final = "a file that is taken as text only"
_UNSUPPORTED: Final = frozenset(("media", "unknown-part"))
_FULL: Final = 0.8
"""The share of a model's window at which a conversation should be compacted."""
_MAX_SHARES: Final = 2_000
_ROLES: Final[tuple[Role, ...]] = get_args(Role)


class RoleTokens(Shape, frozen=True):
    """How many tokens each role has."""

    system: int = 0
    user: int = 0
    assistant: int = 0
    tool: int = 0


class TokenShare(Shape, frozen=True):
    """The tokens of one message, or of a range of them; a range of several roles has no role."""

    start: int
    stop: int
    tokens: int
    index: int | UnsetType = UNSET
    role: Role | UnsetType = UNSET


class TokenReport(Shape, frozen=True):
    """How full a model's window is.

    `total` is the provider's own figure, carried forward, if there is one (`source` is `api`, or
    `local` if the model ran on this machine), and else our count. `other` is what `total` has
    beside the messages, as we count them: tools, and what the provider puts around them; it is
    negative where the provider counts less. At `limit` the conversation should be compacted.
    """

    version: int
    total: int
    other: int
    source: Literal["api", "local", "tokenizer", "estimate"]
    limit: int | None
    window: int | None
    model: str
    by_role: RoleTokens
    items: list[TokenShare]
    usage: UsageTotals


@get("/conversations/{conversation:str}/tokens", sync_to_thread=True)
def tokens(
    conversation: FromPath[str],
    service: ServiceDependency,
    model: Annotated[str | None, QueryParameter(min_length=1, max_length=200)] = None,
    spent: FromQuery[bool] = True,
) -> TokenReport:
    """Count a conversation by message and by role, beside a model's window.

    With `spent` the usage of answers that were imported is read from them, which takes a while in a
    long conversation.
    """
    chat = service.conversations.get(conversation)
    name = model or service.models.default
    return _report(chat, service.steps.get_model(name), name, service.costs if spent else None)


@post("/conversations/{conversation:str}/compact", status_code=200)
async def compact(
    conversation: FromPath[str],
    data: JSONBody[CompactionRequest],
    service: ServiceDependency,
    if_match: IfMatch = None,
) -> CompactionReport:
    """Compact a conversation: clear old outputs, drop the oldest turns, or summarise them.

    It is an ordinary edit, which undo reverses. With `preview` nothing changes.
    """
    return await service.compactor.compact(conversation, data, read_if_match(if_match))


def _report(chat: Conversation, model: Model, name: str, costs: Costs | None) -> TokenReport:
    """Count a conversation against a model's window."""
    view, usage = chat.messages, chat.usage
    counts, roles = chat.tally.each(view), _list_roles(view)
    by_role = dict.fromkeys(_ROLES, 0)
    for role, tokens in zip(roles, counts, strict=True):
        by_role[role] += tokens
    window, total = model.window, chat.tokens()
    answers = [index for index, role in enumerate(roles) if role == "assistant"]
    source: Literal["api", "local", "tokenizer", "estimate"]
    if usage.reported is None:
        source = "tokenizer" if is_exact() else "estimate"
    else:
        source = "local" if _is_local(view, answers) else "api"
    if costs is not None:
        usage = costs.usage(chat.id, usage)
    return TokenReport(
        version=view.version,
        total=total,
        other=total - sum(counts),
        source=source,
        limit=None if window is None else int(window * _FULL),
        window=window,
        model=name,
        by_role=RoleTokens(**by_role),
        items=_shares(roles, counts),
        usage=UsageTotals.of(usage),
    )


def _is_local(view: View, answers: Sequence[int]) -> bool:
    """Whether the newest answer is of a model on this machine."""
    refs = (getattr(view[index].info, "model", None) for index in reversed(answers))
    ref = next((ref for ref in refs if ref is not None), None)
    return ref is not None and ref.provider_id == LOCAL_PROVIDER


def _list_roles(view: View) -> list[Role]:
    """The role of every message, without reading the messages."""
    known: dict[int, Role] = {}
    for role in _ROLES:
        known.update(dict.fromkeys(view.role_positions(role), role))
    return [known[position] for start, stop in view.ranges() for position in range(start, stop)]


def _shares(roles: Sequence[Role], counts: Sequence[int]) -> list[TokenShare]:
    """The share of each message, or of as many ranges as a page can draw."""
    if len(counts) <= _MAX_SHARES:
        return [
            TokenShare(start=index, stop=index + 1, index=index, role=role, tokens=tokens)
            for index, (role, tokens) in enumerate(zip(roles, counts, strict=True))
        ]
    size = math.ceil(len(counts) / _MAX_SHARES)
    return [_range_share(roles, counts, start, size) for start in range(0, len(counts), size)]


def _range_share(roles: Sequence[Role], counts: Sequence[int], start: int, size: int) -> TokenShare:
    stop = min(start + size, len(counts))
    tokens, there = sum(counts[start:stop]), set(roles[start:stop])
    if len(there) == 1:
        return TokenShare(start=start, stop=stop, tokens=tokens, role=there.pop())
    return TokenShare(start=start, stop=stop, tokens=tokens)


ROUTES: Final = [context, explain, request, tokens, compact]
