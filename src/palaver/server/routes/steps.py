"""Steps and tool calls: start, watch and stop a step; run or deny a call, or run it again.

A step may bring files; before that, a client can ask which of them a model reads.
The ledger of the prompt cache says of each answer what was read from the provider's cache.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from anyio import to_thread
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import UNSET, Meta, UnsetType, field
from msgspec.structs import replace

from palaver.conversation.ledger import call_changed
from palaver.conversation.prompt_cache import CacheUse, Cause, cache_use_of
from palaver.errors import ValidationError
from palaver.messages import ToolState, pending
from palaver.messages.ids import now_ms
from palaver.server.errors import RequestRefused
from palaver.server.requests import IdempotencyKey, IfMatch, Shape, check_if_match, read_if_match
from palaver.server.routes.operations import OperationData, apply_all
from palaver.server.services import Service, ServiceDependency
from palaver.server.services.attachments import (
    MAX_FILES,
    AttachedFile,
    FileSupport,
    check_files,
    support_of,
    user_message,
)
from palaver.server.services.steps import Name, StepOptions, StepStarted, StepStatus
from palaver.tools.approval import (
    Decision,
    account_name,
    check_decision,
    load_allowed,
    withdraw_allowed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.conversation import Conversation
    from palaver.messages import ToolCallPart
    from palaver.stores import StoredHistory

__all__ = ["ROUTES"]

_Limit = Annotated[int, QueryParameter(ge=1, le=2_000)]
_Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Files = Annotated[list[AttachedFile], Meta(max_length=MAX_FILES)]


class StepRequest(StepOptions, frozen=True):
    """A step to start.

    `text` and `files` are added first, as a message of the user. Or `operations` are applied first,
    as one version: TRUNCATE before an answer for another one, REPLACE and TRUNCATE for another
    question. `tools` are all, none, or some by name; with `loop` the calls run and the model is
    asked again until it answers. Without a `model` the server's default is asked. Tools and options
    that are not given are those of the conversation's settings, and no tools where there are no
    settings.
    """

    operations: Annotated[list[OperationData], Meta(min_length=1)] | None = None
    text: Annotated[str, Meta(min_length=1)] | None = None
    files: _Files = field(default_factory=list[AttachedFile])


class FilesRequest(Shape, frozen=True):
    """Files, and the model that is to read them; without one, the server's default."""

    files: _Files
    model: Name | None = None


class FilesReport(Shape, frozen=True):
    """What a model reads of each file, in order."""

    model: str
    items: list[FileSupport]


class OpenCall(Shape, frozen=True):
    """A tool call that has no result in the conversation yet.

    `asks_first` means that a person has to allow it, and `stray` that it left the conversation. One
    that waits has a `digest` of its tool, its arguments and the version of its message, and the
    state shows the same arguments: a request to run or deny it sends the digest back.
    """

    id: str
    call_id: str = field(name="callID")
    message_id: str = field(name="messageID")
    tool: str
    state: ToolState
    asks_first: bool
    stray: bool
    digest: str | UnsetType = UNSET


class AllowedTool(Shape, frozen=True):
    """A tool whose calls need no further approval in this conversation, and who said so."""

    tool: str
    by: str | None
    at: int | None


class OpenCalls(Shape, frozen=True):
    """The calls that have no result yet, in order, and the tools that were approved for good."""

    version: int
    items: list[OpenCall]
    allowed: list[AllowedTool]


class CallTraceback(Shape, frozen=True):
    """Where a call failed, as Python prints it, without secrets; None where it is not known."""

    traceback: str | None


class StepCache(Shape, frozen=True):
    """What one answer's provider was expected to read from its cache, and what it read.

    `expected` is what the cache held after the last request, `shared` the part of it that this
    request began with; `read` and `written` are the provider's figures. A `cause` is set where
    clearly less was read than expected: `lost` tokens. `idle` is how many seconds had passed since
    the last request.
    """

    message: str
    at: int
    expected: int
    shared: int
    read: int | None
    written: int | None
    lost: int
    cause: Cause | None
    idle: int | None


class CacheLedger(Shape, frozen=True):
    """The newest answers of a conversation with what was read from the cache, the oldest first.

    `breaks` are their numbers by cause.
    """

    version: int
    items: list[StepCache]
    breaks: dict[Cause, int]


class SettleRequest(StepOptions, frozen=True, kw_only=True):
    """The decision on a call: it runs, or is denied with a reason that the model gets.

    With `arguments` it runs with these in place of the model's. With `always`, the further calls of
    its tool run without being asked about, in this conversation, until that is withdrawn. `digest`
    is that of the call as it was shown; if the call has changed since then, the request is refused
    and the call waits on. `by` is who decided; without it, that is the account that the server runs
    under. When no other call waits, the model is asked again as in a step, unless `loop` is false;
    it has all tools where neither this nor the conversation's settings say which.
    """

    action: Literal["run", "deny"]
    digest: _Digest
    reason: Annotated[str, Meta(min_length=1, max_length=2_000)] | None = None
    arguments: dict[str, Any] | None = None
    always: bool = False
    by: Name | None = None


class RerunRequest(StepOptions, frozen=True, kw_only=True):
    """A call with a result that is to run again, perhaps with other `arguments`.

    Whoever asks for it approves it: `by` and the rest are as in a request to run or deny a call.
    """

    arguments: dict[str, Any] | None = None
    by: Name | None = None


@post("/conversations/{conversation:str}/step", status_code=202)
async def start(
    conversation: FromPath[str],
    data: JSONBody[StepRequest],
    service: ServiceDependency,
    key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> StepStarted:
    """Add a message, if there is one, and let a model answer; the answer comes as live events.

    A conversation has one step at a time (409), and the server a limited number (429).
    """
    steps, expect = service.steps, read_if_match(if_match)
    edit = _read_edit(data, key)
    plan = await to_thread.run_sync(steps.plan, conversation, data)
    message = await to_thread.run_sync(user_message, conversation, data.text, data.files)
    return await steps.step(conversation, plan, message=message, edit=edit, key=key, expect=expect)


def _read_edit(data: StepRequest, key: str | None) -> Callable[[StoredHistory], object] | None:
    operations = data.operations
    if operations is None:
        return None
    if data.text is not None or data.files:
        name = "files" if data.text is None else "text"
        detail = "goes without operations; APPEND is one of them"
        raise ValidationError(detail, path=f"$.{name}", rule="step")
    if key is not None:
        detail = "go without an Idempotency-Key; send If-Match, and they are applied once"
        raise ValidationError(detail, path="$.operations", rule="step")
    return lambda history: apply_all(history, operations, history.version)


@post("/files", status_code=200, opt={"reads": True}, sync_to_thread=True)
def read_files(data: JSONBody[FilesRequest], service: ServiceDependency) -> FilesReport:
    """Tell what a model reads of files: as they are, as text, or nothing; nothing is stored."""
    check_files(data.files)
    name = service.models.default if data.model is None else data.model
    model = service.steps.get_model(name)
    return FilesReport(model=name, items=[support_of(file, model) for file in data.files])


@get("/conversations/{conversation:str}/step", sync_to_thread=True)
def status(conversation: FromPath[str], service: ServiceDependency) -> StepStatus:
    """Get the status of the running step, and what has arrived of its answer."""
    return service.steps.status(conversation)


@delete("/conversations/{conversation:str}/step")
async def stop(
    conversation: FromPath[str], service: ServiceDependency, if_match: IfMatch = None
) -> None:
    """Stop the running step; what had arrived is stored, marked as interrupted."""
    await to_thread.run_sync(service.store.head, conversation)
    await to_thread.run_sync(check_if_match, service.store, conversation, if_match)
    await service.steps.stop(conversation)


@get("/conversations/{conversation:str}/calls", sync_to_thread=True)
def list_calls(conversation: FromPath[str], service: ServiceDependency) -> OpenCalls:
    """List the calls that have no result in the conversation yet, with their states."""
    chat = service.conversations.get(conversation)
    waiting = {part.id: part for part in chat.waiting()}
    digests = chat.digests(waiting.values())
    found: list[OpenCall] = []
    for entry in chat.ledger().values():
        # a waiting call is shown as it is in the conversation now: that is what would run
        part = waiting.get(entry.id)
        shown = None if entry.state.status != "pending" else part
        tool = entry.tool if shown is None else shown.tool
        call = OpenCall(
            id=entry.id,
            call_id=entry.call_id,
            message_id=entry.message_id,
            tool=tool,
            state=entry.state if shown is None else pending(shown.input, shown.raw),
            asks_first=part is not None and service.teams.asks_first(conversation, part),
            stray=entry.stray,
            digest=UNSET if shown is None else digests.get(entry.id, UNSET),
        )
        found.append(call)
    allowed = [AllowedTool(tool=tool, by=one.by, at=one.at) for tool, one in _allowed(chat)]
    return OpenCalls(version=chat.history.version, items=found, allowed=allowed)


def _allowed(chat: Conversation) -> list[tuple[str, Decision]]:
    return sorted(load_allowed(chat).items())


@get("/conversations/{conversation:str}/cache", sync_to_thread=True)
def cache_ledger(
    conversation: FromPath[str], service: ServiceDependency, limit: _Limit = 200
) -> CacheLedger:
    """List what the newest answers were expected to read from the prompt cache, and what they did.

    An answer whose provider said nothing of a cache is left out.
    """
    history = service.conversations.get(conversation).history
    answers = history.recent(limit, role="assistant")
    items = [_step_cache(m.id, m.timestamp, use) for m in answers if (use := cache_use_of(m))]
    breaks = Counter[Cause](item.cause for item in items if item.cause is not None)
    return CacheLedger(version=history.version, items=items, breaks=dict(breaks))


def _step_cache(message: str, at: int, use: CacheUse) -> StepCache:
    return StepCache(
        message=message, at=at, expected=use.expected, shared=use.shared, read=use.read,
        written=use.written, lost=use.lost, cause=use.cause, idle=use.idle,
    )  # fmt: skip


@post("/conversations/{conversation:str}/calls/{call:str}", status_code=202)
async def settle(
    conversation: FromPath[str],
    call: FromPath[str],
    data: JSONBody[SettleRequest],
    service: ServiceDependency,
    if_match: IfMatch = None,
) -> StepStarted:
    """Run a call that waits, or deny it; then the model goes on, if no other call waits.

    What runs is what was approved: the call as it was shown, or with the `arguments` given here.
    `digest` names the call as it was shown. If the call has changed since then, this is refused
    (409) with its new digest, and the call waits on.
    """
    steps = service.steps
    await to_thread.run_sync(check_if_match, service.store, conversation, if_match)
    try:
        waiting = await to_thread.run_sync(_find_waiting, service, conversation, call, data.digest)
    except RequestRefused:  # somebody decided a moment ago: that is a newer version
        await to_thread.run_sync(check_if_match, service.store, conversation, if_match)
        raise
    decision = _read_decision(data)
    in_team = await service.teams.settle(conversation, waiting, decision)
    if in_team is not None:
        return in_team
    plan = await to_thread.run_sync(partial(steps.plan, conversation, data, tools=True))
    check_decision(service.tools.select(wanted=True), waiting, decision)
    return await steps.settle(conversation, waiting, plan, decision)


@post("/conversations/{conversation:str}/calls/{call:str}/rerun", status_code=202)
async def rerun(
    conversation: FromPath[str],
    call: FromPath[str],
    data: JSONBody[RerunRequest],
    service: ServiceDependency,
    if_match: IfMatch = None,
) -> StepStarted:
    """Run a call again that has a result, and go on from there; `call` is its id or its result's.

    What came after it leaves the view, except the results of other calls of the same message; the
    version before has everything. The result says who asked for it and when.
    """
    steps = service.steps
    if await to_thread.run_sync(service.teams.roster, conversation) is not None:
        detail = "the members of a team run their calls in turns of their own"
        raise RequestRefused(409, detail)
    plan = await to_thread.run_sync(partial(steps.plan, conversation, data, tools=True))
    tools = service.tools.select(wanted=True)

    def decide(found: ToolCallPart) -> Decision:
        if found.tool not in tools:
            known = ", ".join(tools) or "none"
            detail = f"this server has no tool {found.tool!r}; it has: {known}"
            raise RequestRefused(409, detail)
        decision = _decide_to_run(data.arguments, data.by)
        check_decision(tools, found, decision)
        return decision

    return await steps.rerun(conversation, call, plan, decide, read_if_match(if_match))


@get("/conversations/{conversation:str}/calls/{call:str}/traceback", sync_to_thread=True)
def read_traceback(
    conversation: FromPath[str], call: FromPath[str], service: ServiceDependency
) -> CallTraceback:
    """Get where a call failed, for the developer; `call` is the id of its result.

    It is not stored and no model gets it: the process that ran the call holds the newest few.
    """
    service.store.head(conversation)
    return CallTraceback(traceback=service.steps.traceback(call))


@delete("/conversations/{conversation:str}/allowed/{tool:str}", sync_to_thread=True)
def withdraw(
    conversation: FromPath[str],
    tool: FromPath[str],
    service: ServiceDependency,
    if_match: IfMatch = None,
) -> None:
    """Have the calls of a tool wait for an approval again."""
    check_if_match(service.store, conversation, if_match)
    withdraw_allowed(service.conversations.get(conversation), tool)


def _decide_to_run(arguments: dict[str, Any] | None, by: str | None) -> Decision:
    """The decision of whoever lets a call run, with the call's own arguments or with these."""
    verdict: Literal["approve", "edit"] = "approve" if arguments is None else "edit"
    return Decision(verdict, "", arguments, by or account_name(), at=now_ms())


def _read_decision(data: SettleRequest) -> Decision:
    denied, by, at = data.action == "deny", data.by or account_name(), now_ms()
    if denied and data.arguments is not None:
        raise ValidationError("go with run only", path="$.arguments", rule="decision")
    if not denied and data.reason is not None:
        raise ValidationError("goes with deny only", path="$.reason", rule="decision")
    if data.always and (denied or data.arguments is not None):
        raise ValidationError("goes with run and no arguments", path="$.always", rule="decision")
    if denied:
        return Decision("deny", data.reason or "", by=by, digest=data.digest, at=at)
    if data.always:
        return Decision("always", by=by, digest=data.digest, at=at)
    return replace(_decide_to_run(data.arguments, by), digest=data.digest)


def _find_waiting(service: Service, conversation: str, call: str, digest: str) -> ToolCallPart:
    """The call of an id, ours or the provider's, if it waits and has this digest."""
    chat = service.conversations.get(conversation)
    for part in chat.waiting():
        if call in {part.id, part.call_id}:
            now = chat.digests([part]).get(part.id)
            if now != digest:
                raise call_changed(part, now)
            return part
    if any(call in {entry.id, entry.call_id} for entry in chat.ledger().values()):
        detail = f"call {call!r} does not wait: it runs, its result is on its way, or it is gone"
        raise RequestRefused(409, detail)
    raise RequestRefused(404, f"no call {call!r} waits in this conversation")


ROUTES: Final = [
    start, status, stop, list_calls, cache_ledger, settle, rerun, read_traceback, withdraw,
    read_files,
]  # fmt: skip
