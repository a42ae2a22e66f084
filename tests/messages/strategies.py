"""Hypothesis strategies for all of `palaver.messages`: values, and JSON as others write it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from palaver.messages import (
    ROLES,
    AssistantInfo,
    CacheCounts,
    FilePart,
    Message,
    ModelRef,
    ReasoningPart,
    Routing,
    Speaker,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolPending,
    ToolRunning,
    UnknownPart,
    UserInfo,
)
from palaver.messages.limits import MAX_INT
from palaver.messages.message import Summary, WorkingPath
from palaver.messages.part_base import (
    FileSource,
    LineRange,
    Position,
    ResourceSource,
    SourceText,
    SymbolSource,
)
from palaver.messages.parts import (
    AgentPart,
    CompactionPart,
    Created,
    PatchPart,
    RetryPart,
    SnapshotPart,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextTime,
)
from palaver.messages.tool_state import CompletedTime, RunningTime, ToolTime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy

    from palaver.messages import Part, ToolState

# --- leaves -----------------------------------------------------------------------------------

_TELLING = [
    "",
    " ",
    "a",
    "é",
    "文",
    "🙂",
    "a\nb",
    '"',
    "\\ud800",
    "</script>",
    "\x7f",
    "\ufeff",
    "🙂" * 40,
]
texts = st.sampled_from(_TELLING) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=6
)
some_texts = texts.filter(str.strip)
names = st.sampled_from(["a", "é", "文", "🙂", "read_file", "call_1", "x y", "[a]"]) | st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=6
)
ids = st.integers(0, 2**32).map(lambda number: str(uuid.UUID(int=number << 64)))
times = st.integers(0, MAX_INT)
whole_numbers = st.integers(-MAX_INT, MAX_INT)
prices = st.floats(0, 1e6, exclude_min=True)

_OBJECTS: list[dict[str, Any]] = [
    {},
    {"a": 1},
    {"a": [1, 2.5, None, True, {"b": "文"}]},
    {"": {}, "x y": "\\"},
]
leaves: SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | whole_numbers
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
json_values: SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)
objects: SearchStrategy[dict[str, Any]] = st.sampled_from(_OBJECTS) | st.dictionaries(
    texts, json_values, max_size=2
)
some_objects: SearchStrategy[dict[str, Any]] = st.dictionaries(
    texts, json_values, min_size=1, max_size=2
)

anything: SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["\0", "\ud800", "\udc00x", 2**60, float("nan"), b"bytes", object()]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
"""What a careless caller might hand over: half characters, NaN, objects that are no JSON."""


def maybe(strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """The strategy's values, or nothing."""
    return st.none() | strategy


# --- values -----------------------------------------------------------------------------------

source_texts = st.builds(SourceText, value=texts, start=whole_numbers, end=whole_numbers)
positions = st.builds(Position, line=times, character=times)
sources: SearchStrategy[Any] = st.one_of(
    st.builds(FileSource, path=texts, text=source_texts),
    st.builds(
        SymbolSource,
        path=texts,
        range=st.builds(LineRange, start=positions, end=positions),
        name=texts,
        kind=whole_numbers,
        text=source_texts,
    ),
    st.builds(ResourceSource, client_name=texts, uri=texts, text=source_texts),
)
models = st.builds(ModelRef, provider_id=texts, model_id=texts, variant=maybe(texts))
counts = st.builds(
    TokenCounts,
    input=times,
    output=times,
    reasoning=times,
    cache=st.builds(CacheCounts, read=times, write=times),
    total=maybe(times),
)


def _in_order(time: Any) -> Any:  # noqa: ANN401 - any of the times with an end
    """An end is not before its start."""
    late = time.start is None or time.end is None or time.start <= time.end
    return time if late else replace(time, start=time.end, end=time.start)


_completed_times = st.builds(CompletedTime, start=times, end=times, compacted=maybe(times)).map(
    _in_order
)
spans = st.builds(TextTime, start=maybe(times), end=maybe(times)).map(_in_order)
base: dict[str, SearchStrategy[Any]] = {"id": ids, "session_id": ids, "message_id": ids}

file_parts = st.builds(
    FilePart, **base, mime=texts, url=texts, filename=maybe(texts), source=maybe(sources)
)
open_states: SearchStrategy[ToolState] = st.one_of(
    st.builds(ToolPending, input=objects, raw=texts),
    st.builds(
        ToolRunning,
        input=objects,
        title=maybe(texts),
        metadata=objects,
        time=st.builds(RunningTime, start=times),
    ),
)
final_states: SearchStrategy[ToolState] = st.one_of(
    st.builds(
        ToolCompleted,
        input=objects,
        output=some_texts,
        title=texts,
        metadata=objects,
        time=st.builds(CompletedTime, start=times, end=times, compacted=maybe(times)).map(
            _in_order
        ),
    ),
    st.builds(
        ToolCompleted,
        input=objects,
        output=some_texts,
        title=texts,
        metadata=objects,
        time=st.builds(CompletedTime, start=times, end=times, compacted=maybe(times)).map(
            _in_order
        ),
        attachments=st.lists(file_parts, max_size=2).map(tuple),
    ),
    st.builds(
        ToolError,
        input=objects,
        error=some_texts,
        metadata=objects,
        time=st.builds(ToolTime, start=times, end=times).map(_in_order),
    ),
)
states = open_states | final_states


def tool_parts(state: SearchStrategy[ToolState]) -> SearchStrategy[ToolPart]:
    """Tool parts in such states."""
    return st.builds(ToolPart, **base, call_id=names, tool=names, state=state, metadata=objects)


unknown_parts = st.builds(
    lambda raw, kind, name: UnknownPart(
        {**raw, "type": f"x-{kind}", **({"id": name} if name else {})}
    ),
    objects,
    texts,
    maybe(ids),
)
tool_call_parts = st.builds(
    ToolCallPart, **base, call_id=names, tool=names, input=objects, raw=texts, metadata=objects
)
PARTS: Mapping[str, SearchStrategy[Any]] = {
    "text": st.builds(
        TextPart,
        **base,
        text=texts,
        synthetic=maybe(st.booleans()),
        ignored=maybe(st.booleans()),
        time=maybe(spans),
        metadata=objects,
    ),
    "reasoning": st.builds(
        ReasoningPart,
        **base,
        text=texts,
        time=st.builds(TextTime, start=times, end=maybe(times)).map(_in_order),
        metadata=objects,
    ),
    "tool-call": tool_call_parts,
    "tool": tool_parts(states),
    "step-start": st.builds(StepStartPart, **base, snapshot=maybe(texts)),
    "step-finish": st.builds(
        StepFinishPart,
        **base,
        reason=texts,
        tokens=counts,
        cost=maybe(prices),
        cost_computed=st.booleans(),
        snapshot=maybe(texts),
    ),
    "file": file_parts,
    "compaction": st.builds(
        CompactionPart,
        **base,
        auto=st.booleans(),
        overflow=maybe(st.booleans()),
        tail_start_id=maybe(names),
    ),
    "retry": st.builds(
        RetryPart,
        **base,
        attempt=times,
        error=objects,
        time=st.builds(Created, created=times),
    ),
    "subtask": st.builds(
        SubtaskPart,
        **base,
        prompt=texts,
        description=texts,
        agent=texts,
        model=maybe(models),
        command=maybe(texts),
    ),
    "agent": st.builds(AgentPart, **base, name=texts, source=maybe(source_texts)),
    "patch": st.builds(PatchPart, **base, hash=texts, files=st.lists(texts, max_size=2).map(tuple)),
    "snapshot": st.builds(SnapshotPart, **base, snapshot=texts),
    "unknown": unknown_parts,
}
parts: SearchStrategy[Any] = st.one_of(*PARTS.values())

bare_parts: SearchStrategy[Any] = st.one_of(
    *(strategy for kind, strategy in PARTS.items() if kind not in {"tool", "tool-call"})
)
"""Parts that say nothing about tool calls."""


def part_lists(
    strategy: SearchStrategy[Any], *, max_size: int = 4
) -> SearchStrategy[tuple[Part, ...]]:
    """Parts of one message: their ids differ (BR-02)."""
    return st.lists(strategy, unique_by=lambda part: part.id or object(), max_size=max_size).map(
        tuple
    )


tag_free = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S"), exclude_characters="[]"),
    min_size=1,
    max_size=8,
)
speakers = st.builds(
    Speaker,
    role_id=tag_free,
    role_name=tag_free,
    type=st.sampled_from(["human", "ai"]),
    extra=objects,
)
routings = st.builds(
    Routing, resolved_addressees=st.lists(names, max_size=2).map(tuple), extra=objects
)
summaries = st.builds(
    Summary,
    title=maybe(texts),
    body=maybe(texts),
    diffs=maybe(st.lists(objects, max_size=2).map(tuple)),
)
user_infos = st.builds(
    UserInfo,
    agent=maybe(texts),
    model=maybe(models),
    system=maybe(texts),
    tools=maybe(st.dictionaries(texts, st.booleans(), max_size=2)),
    variant=maybe(texts),
    summary=maybe(summaries),
)
assistant_infos = st.builds(
    lambda cost, computed, **rest: AssistantInfo(
        cost=cost, cost_computed=computed and cost is not None, **rest
    ),
    maybe(prices),
    st.booleans(),
    agent=maybe(texts),
    model=maybe(models),
    path=maybe(st.builds(WorkingPath, cwd=texts, root=texts)),
    tokens=maybe(counts),
    completed=maybe(times),
    finish=maybe(texts),
    error=maybe(objects),
    summary=maybe(st.booleans()),
)
envelope: dict[str, SearchStrategy[Any]] = {
    "id": ids,
    "timestamp": times,
    "metadata": objects,
    "speaker": maybe(speakers),
    "routing": maybe(routings),
}


@st.composite
def messages(draw: DrawFn, content: SearchStrategy[Any] | None = None) -> Message:
    """A message of any role, with text or parts that its role may hold."""
    role = draw(st.sampled_from(ROLES))
    kinds = bare_parts | tool_call_parts
    if role != "assistant":
        kinds |= tool_parts(final_states)
    infos = {"user": user_infos, "assistant": assistant_infos}.get(role, st.none())
    body = draw(texts | part_lists(kinds) if content is None else content)
    return Message(
        role,
        body,
        info=draw(maybe(infos)),
        **{name: draw(strategy) for name, strategy in envelope.items()},
    )


class Talk(NamedTuple):
    """Messages, and the ledger of the calls that are open."""

    messages: list[Message]
    ledger: dict[str, ToolPart]


@st.composite
def talks(draw: DrawFn) -> Talk:
    """A conversation with tool calls: answered, open, answered out of order, or never answered."""
    log: list[Message] = []
    ledger: dict[str, ToolPart] = {}
    for turn in range(draw(st.integers(0, 2))):
        if draw(st.booleans()):
            log.append(draw(messages()))
        parts = draw(part_lists(bare_parts | tool_call_parts, max_size=3))
        named = tuple(
            _with(part, call_id=f"{turn}-{index}-{part.call_id}"[:40])
            if isinstance(part, ToolCallPart)
            else part
            for index, part in enumerate(parts)
        )
        log.append(draw(messages(content=st.just(named)).map(_answering)))
        open_calls = [part for part in named if isinstance(part, ToolCallPart)]
        for call in draw(st.permutations(open_calls)):
            what = draw(st.sampled_from(["result", "result", "ledger", "nothing"]))
            if what == "result":
                log.append(draw(_results(call)))
            elif what == "ledger":
                ledger[call.call_id] = draw(_about(call, states))
    log = _unique(log)
    asked = {part.call_id for m in log for part in m.parts if isinstance(part, ToolCallPart)}
    return Talk(log, {name: part for name, part in ledger.items() if name in asked})


def _answering(message: Message) -> Message:
    info = message.info if isinstance(message.info, AssistantInfo) else None
    answer: Message = _with(message, role="assistant", info=info)
    return answer


def _results(call: ToolCallPart) -> SearchStrategy[Message]:
    def message(part: ToolPart, extra: Sequence[Part], fields: dict[str, Any]) -> Message:
        others = (other for other in extra if other.id != part.id)  # ids are unique in a message
        return Message("tool", (part, *others), **fields)

    return st.builds(
        message,
        _about(call, final_states),
        st.just(()) | part_lists(bare_parts, max_size=1),
        st.fixed_dictionaries(envelope),
    )


def _about(call: ToolCallPart, state: SearchStrategy[ToolState]) -> SearchStrategy[ToolPart]:
    return st.builds(
        lambda part, tool: _with(part, call_id=call.call_id, tool=tool),
        tool_parts(state),
        st.just(call.tool) | names,
    )


def _unique(log: list[Message]) -> list[Message]:
    seen: dict[str, Message] = {message.id: message for message in log}
    return list(seen.values())


def _with(value: Any, **changes: Any) -> Any:  # noqa: ANN401 - the same kind of value
    return type(value)(**{name: getattr(value, name) for name in value.__struct_fields__} | changes)


# --- JSON as others write it ------------------------------------------------------------------


def some(
    required: Mapping[str, Any], optional: Mapping[str, Any]
) -> SearchStrategy[dict[str, Any]]:
    """A JSON object with these fields, and perhaps those."""
    return st.fixed_dictionaries(dict(required), optional=dict(optional))


def _json_in_order(time: dict[str, Any]) -> dict[str, Any]:
    """An end is not before its start."""
    return {**time, "end": max(time["start"], time["end"])} if "end" in time else time


json_span = some({"start": times}, {"end": times}).map(_json_in_order)
json_source_text = some({"value": texts, "start": times, "end": times}, {})
json_counts = some(
    {
        "input": times,
        "output": times,
        "reasoning": times,
        "cache": some({"read": times, "write": times}, {}),
    },
    {"total": times},
)
json_model = some({"providerID": texts, "modelID": texts}, {})
json_sources = st.one_of(
    some({"type": st.just("file"), "path": texts, "text": json_source_text}, {}),
    some(
        {"type": st.just("resource"), "clientName": texts, "uri": texts, "text": json_source_text},
        {},
    ),
    some(
        {
            "type": st.just("symbol"),
            "path": texts,
            "name": texts,
            "kind": times,
            "text": json_source_text,
            "range": some(
                {
                    "start": some({"line": times, "character": times}, {}),
                    "end": some({"line": times, "character": times}, {}),
                },
                {},
            ),
        },
        {},
    ),
)


def json_file(owner: Mapping[str, Any]) -> SearchStrategy[dict[str, Any]]:
    """A file part as JSON."""
    return some(
        {"type": st.just("file"), **owner, "mime": texts, "url": texts},
        {"filename": texts, "source": json_sources},
    )


def json_states(
    owner: Mapping[str, Any], outputs: SearchStrategy[str], errors: SearchStrategy[str]
) -> SearchStrategy[dict[str, Any]]:
    """A tool state as JSON."""
    span = {"start": times, "end": times}
    return st.one_of(
        some({"status": st.just("pending"), "input": objects, "raw": texts}, {}),
        some(
            {"status": st.just("running"), "input": objects, "time": some({"start": times}, {})},
            {"title": texts, "metadata": some_objects},
        ),
        some(
            {
                "status": st.just("completed"),
                "input": objects,
                "output": outputs,
                "title": texts,
                "metadata": objects,
                "time": some(span, {"compacted": times}).map(_json_in_order),
            },
            {"attachments": st.lists(json_file(owner), max_size=2)},
        ),
        some(
            {
                "status": st.just("error"),
                "input": objects,
                "error": errors,
                "time": some(span, {}).map(_json_in_order),
            },
            {"metadata": some_objects},
        ),
    )


def json_parts(
    owner: Mapping[str, Any],
    *,
    outputs: SearchStrategy[str] = some_texts,
    errors: SearchStrategy[str] = some_texts,
    costs: SearchStrategy[Any] = prices,
) -> Mapping[str, SearchStrategy[dict[str, Any]]]:
    """Every part type as JSON, by its type; `owner` has the ids."""
    extra = {"metadata": some_objects}
    bodies: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "text": (
            {"text": texts},
            {"synthetic": st.booleans(), "ignored": st.booleans(), "time": json_span, **extra},
        ),
        "reasoning": ({"text": texts, "time": json_span}, extra),
        "tool": (
            {"callID": names, "tool": names, "state": json_states(owner, outputs, errors)},
            extra,
        ),
        "step-start": ({}, {"snapshot": texts}),
        "step-finish": (
            {"reason": texts, "cost": costs, "tokens": json_counts},
            {"snapshot": texts},
        ),
        "compaction": (
            {"auto": st.booleans()},
            {"overflow": st.booleans(), "tail_start_id": names},
        ),
        "retry": ({"attempt": times, "error": objects, "time": some({"created": times}, {})}, {}),
        "subtask": (
            {"prompt": texts, "description": texts, "agent": texts},
            {"model": json_model, "command": texts},
        ),
        "agent": ({"name": texts}, {"source": json_source_text}),
        "patch": ({"hash": texts, "files": st.lists(texts, max_size=2)}, {}),
        "snapshot": ({"snapshot": texts}, {}),
    }
    made = {
        kind: some({"type": st.just(kind), **owner, **required}, optional)
        for kind, (required, optional) in bodies.items()
    }
    return {**made, "file": json_file(owner)}


OUR_JSON: Mapping[str, SearchStrategy[dict[str, Any]]] = {
    **json_parts({"id": ids, "sessionID": ids, "messageID": ids}),
    "tool-call": some(
        {
            "type": st.just("tool-call"),
            "id": ids,
            "sessionID": ids,
            "messageID": ids,
            "callID": names,
            "tool": names,
            "input": objects,
            "raw": texts,
        },
        {"metadata": some_objects},
    ),
    "hologram": some({"type": st.just("hologram")}, {"beam": json_values, "sessionID": texts}),
}

plain_items: SearchStrategy[dict[str, Any]] = st.one_of(
    some({"type": st.just("text"), "text": texts}, {}),
    some({"type": st.just("image"), "image_url": some({"url": texts}, {})}, {}),
    some(
        {
            "type": st.just("tool_use"),
            "tool_use": some({"id": names, "name": names, "input": objects}, {}),
        },
        {},
    ),
    some(
        {
            "type": st.just("tool_result"),
            "tool_result": some(
                {
                    "tool_use_id": names,
                    "content": texts
                    | st.lists(some({"type": st.just("text"), "text": texts}, {}), max_size=2),
                },
                {},
            ),
        },
        {},
    ),
)
"""Items of the plain content list."""


# --- opencode's export ------------------------------------------------------------------------

_letters = st.text("0123456789abcdefXYZ", min_size=4, max_size=8)
ses_ids = _letters.map("ses_{}".format)
msg_ids = _letters.map("msg_{}".format)
prt_ids = _letters.map("prt_{}".format)
oddities = st.dictionaries(
    st.sampled_from(["shoe", "parentID", "mode", "x-y", "日"]), json_values, max_size=2
)
"""Fields that palaver does not know."""


@st.composite
def strewn(draw: DrawFn, value: Any, place: tuple[str, ...] = ()) -> Any:  # noqa: ANN401 - JSON
    """The value with unknown fields strewn over its objects, and some `metadata: {}`."""
    if not isinstance(value, dict):
        return value
    free = {"metadata", "input", "error", "tools"}  # these hold anything already
    out = {
        key: item if key in free else draw(strewn(item, (*place, key)))
        for key, item in value.items()
    }
    if draw(st.integers(0, 3)) == 0:
        out = {**draw(oddities), **out}
    return out


@st.composite
def opencode_turns(draw: DrawFn, session: str) -> dict[str, Any]:
    """One `{info, parts}` as opencode writes it."""
    message = draw(msg_ids)
    owner = {"id": prt_ids, "sessionID": st.just(session), "messageID": st.just(message)}
    role = draw(st.sampled_from(["user", "assistant"]))
    kinds = json_parts(
        owner,
        outputs=texts,
        errors=texts,
        costs=prices | st.just(0),
    )
    allowed = [kind for kind in kinds if kind != "tool" or role == "assistant"]
    drawn = draw(
        st.lists(
            st.sampled_from(allowed).flatmap(lambda kind: kinds[kind]),
            max_size=4,
            unique_by=lambda part: part["id"],
        )
    )
    parts_json: list[dict[str, Any]] = []
    for index, part in enumerate(drawn):
        if part["type"] == "tool":
            part["callID"] = f"call_{message}_{index}"
        odd = draw(strewn(part))
        if part["type"] in {"text", "reasoning", "tool"} and draw(st.booleans()):
            odd.setdefault("metadata", {})
        parts_json.append(odd)
    if draw(st.booleans()):
        parts_json.append({"type": "hologram", "beam": draw(json_values)})
    infos = {
        "user": some(
            {"time": some({"created": times}, {}), "agent": texts, "model": json_model},
            {
                "summary": some(
                    {}, {"title": texts, "body": texts, "diffs": st.lists(objects, max_size=2)}
                ),
                "system": texts,
                "tools": st.dictionaries(texts, st.booleans(), max_size=2),
                "variant": texts,
                "cost": prices,
            },
        ),
        "assistant": some(
            {
                "time": some({"created": times}, {"completed": times}),
                "parentID": msg_ids,
                "modelID": texts,
                "providerID": texts,
                "mode": texts,
                "agent": texts,
                "path": some({"cwd": texts, "root": texts}, {}),
                "cost": prices | st.just(0),
                "tokens": json_counts,
            },
            {"finish": texts, "error": objects, "summary": st.booleans(), "system": texts},
        ),
    }
    info = draw(strewn(draw(infos[role])))
    info |= {"id": message, "role": role}
    if draw(st.integers(0, 4)):
        info["sessionID"] = session
    turn = {"info": info, "parts": parts_json}
    return turn if draw(st.integers(0, 5)) else {**turn, "shoe": draw(json_values)}


opencode_exports: SearchStrategy[Any] = ses_ids.flatmap(
    lambda session: st.one_of(
        st.lists(opencode_turns(session), max_size=3, unique_by=lambda turn: turn["info"]["id"]),
        some(
            {
                "info": some({"id": st.just(session), "title": texts}, {"share": objects}),
                "messages": st.lists(
                    opencode_turns(session), max_size=3, unique_by=lambda turn: turn["info"]["id"]
                ),
            },
            {"version": texts},
        ),
    )
)
