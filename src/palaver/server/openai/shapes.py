"""What clients of OpenAI's API send and get: the fields of a request, a response, and an error.

Every field that OpenAI documents is either carried out, or accepted and given back, or refused by
its name; a field that is not here is refused as unknown. docs/howto/openai-clients.md lists them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import msgspec
from litestar import Response
from msgspec import Meta, Struct, field

from palaver.errors import ValidationError
from palaver.messages.limits import EMPTY
from palaver.server.errors import describe_error
from palaver.server.requests import convert_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litestar import Request

    from palaver.server.errors import ProblemDetails

__all__ = [
    "SERVER_LABEL",
    "CompactRequest",
    "ConversationRequest",
    "CustomShape",
    "FunctionShape",
    "HostedShape",
    "ItemsRequest",
    "MetadataRequest",
    "NamespaceShape",
    "ResponseRecord",
    "ResponseRequest",
    "ToolDefinition",
    "check_item",
    "check_supported",
    "encode_error",
    "item_type",
    "join_name",
    "refuse",
    "respond_to_error",
    "response_object",
    "split_name",
    "usage_object",
]

CUSTOM: Final = "custom"
SERVER_LABEL: Final = "palaver"
"""The label of the server's own tools and MCP servers among a request's tools."""

_Metadata = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_ToolName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]
_Tokens = Annotated[int, Meta(ge=1, le=10_000_000)]
_Items: TypeAlias = list[dict[str, Any]]


class _Shape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all requests: unknown fields are refused."""


# ── tools ───────────────────────────────────────────────────────────────────────────────────────


class FunctionShape(_Shape, frozen=True, tag_field="type", tag="function"):
    """A function that the client runs."""

    name: _ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _AnyText(_Shape, frozen=True, tag_field="type", tag="text"):
    pass


class _Grammar(_Shape, frozen=True, tag_field="type", tag="grammar"):
    syntax: Literal["lark", "regex"]
    definition: str


class CustomShape(_Shape, frozen=True, tag_field="type", tag=CUSTOM):
    """A tool of the client that takes free text."""

    name: _ToolName
    description: str | None = None
    format: _AnyText | _Grammar | None = None

    @property
    def grammar(self) -> str | None:
        """The grammar that the text has to fit."""
        return self.format.definition if isinstance(self.format, _Grammar) else None


class _AllowedTools(_Shape, frozen=True):
    """The names of the tools that may be used."""

    tool_names: list[_Name]
    read_only: bool | None = None


class HostedShape(_Shape, frozen=True, tag_field="type", tag="mcp"):
    """The tools that this server runs itself: its own, and those of its MCP servers."""

    server_label: _Name
    server_description: str | None = None
    allowed_tools: list[_Name] | _AllowedTools | None = None
    require_approval: Literal["always", "never"] | dict[str, Any] | None = None
    server_url: str | None = None
    connector_id: str | None = None
    authorization: str | None = None
    headers: dict[str, str] | None = None

    @property
    def names(self) -> list[str] | None:
        """The tools that may be used; None for all."""
        given = self.allowed_tools
        return given.tool_names if isinstance(given, _AllowedTools) else given


class NamespaceShape(_Shape, frozen=True, tag_field="type", tag="namespace"):
    """Tools that the client runs, under a name that they share."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str
    tools: Annotated[list[FunctionShape | CustomShape], Meta(min_length=1)]


ToolDefinition: TypeAlias = FunctionShape | CustomShape | HostedShape | NamespaceShape
_BETWEEN: Final = "/"
"""What stands between a namespace and the name of a tool; no name of a client's tool has it."""


def join_name(name: str, namespace: object = None) -> str:
    """The name under which a tool is known here.

    >>> join_name("lookup", "crm")
    'crm/lookup'
    """
    return f"{namespace}{_BETWEEN}{name}" if namespace else name


def split_name(tool: str) -> dict[str, str]:
    """The fields of a call that name its tool.

    >>> split_name("crm/lookup")
    {'name': 'lookup', 'namespace': 'crm'}
    """
    namespace, _, name = tool.rpartition(_BETWEEN)
    return {"name": name, "namespace": namespace} if namespace else {"name": tool}


class _FunctionChoice(_Shape, frozen=True, tag_field="type", tag="function"):
    name: _Name


class _CustomChoice(_Shape, frozen=True, tag_field="type", tag="custom"):
    name: _Name


class _McpChoice(_Shape, frozen=True, tag_field="type", tag="mcp"):
    server_label: _Name
    name: _Name | None = None


class _AllowedChoice(_Shape, frozen=True, tag_field="type", tag="allowed_tools"):
    mode: Literal["auto", "required"]
    tools: _Items


ToolChoice: TypeAlias = _FunctionChoice | _CustomChoice | _McpChoice | _AllowedChoice


# ── a request for a response ────────────────────────────────────────────────────────────────────


class _TextFormat(_Shape, frozen=True, tag_field="type", tag="text"):
    pass


class _JsonFormat(_Shape, frozen=True, tag_field="type", tag="json_object"):
    pass


class _SchemaFormat(_Shape, frozen=True, tag_field="type", tag="json_schema"):
    name: _Name
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class _Text(_Shape, frozen=True):
    format: _TextFormat | _JsonFormat | _SchemaFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class _Reasoning(_Shape, frozen=True):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None


class _ConversationRef(_Shape, frozen=True):
    id: _Name


class _StreamOptions(_Shape, frozen=True):
    include_obfuscation: bool | None = None


class ResponseRequest(_Shape, frozen=True):
    """The body of `POST /v1/responses`."""

    model: _Name | None = None
    input: str | _Items | None = None
    instructions: str | None = None
    previous_response_id: _Name | None = None
    conversation: _Name | _ConversationRef | None = None
    tools: list[ToolDefinition] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: _Reasoning | None = None
    text: _Text | None = None
    max_output_tokens: _Tokens | None = None
    max_tool_calls: int | None = None
    truncation: Literal["auto", "disabled"] | None = None
    background: bool | None = None
    metadata: _Metadata | None = None
    include: list[str] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    service_tier: str | None = None
    user: str | None = None
    safety_identifier: Annotated[str, Meta(max_length=128)] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    client_metadata: dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    context_management: list[Any] | None = None
    moderation: dict[str, Any] | None = None

    @property
    def stored(self) -> bool:
        """Whether the response is stored; it is unless a client asks for the contrary."""
        return self.store is not False

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation that is named."""
        given = self.conversation
        return given.id if isinstance(given, _ConversationRef) else given

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON schema that the answer has to fit."""
        wanted = None if self.text is None else self.text.format
        if isinstance(wanted, _SchemaFormat):
            return wanted.schema
        return {"type": "object"} if isinstance(wanted, _JsonFormat) else None

    def echo(self) -> dict[str, Any]:
        """What a response gives back of its request, where it is not the default."""
        found = msgspec.to_builtins(self)
        return {
            name: value
            for name, value in found.items()
            if value not in (None, [], {}) and name in _ECHOED
        }


_ECHOED: Final = (
    *("model", "instructions", "previous_response_id", "tools", "tool_choice", "reasoning", "text"),
    *("parallel_tool_calls", "max_output_tokens", "truncation", "background", "metadata", "store"),
    *("temperature", "top_p", "user", "safety_identifier", "prompt_cache_key", "include"),
)


class CompactRequest(_Shape, frozen=True):
    """The body of `POST /v1/responses/compact`."""

    model: _Name
    input: str | _Items | None = None
    instructions: str | None = None
    previous_response_id: _Name | None = None
    prompt_cache_key: str | None = None


class ConversationRequest(_Shape, frozen=True):
    """The body of `POST /v1/conversations`."""

    items: Annotated[_Items, Meta(max_length=20)] | None = None
    metadata: _Metadata | None = None


class MetadataRequest(_Shape, frozen=True):
    """The body of `POST /v1/conversations/{id}`."""

    metadata: _Metadata | None


class ItemsRequest(_Shape, frozen=True):
    """The body of `POST /v1/conversations/{id}/items`."""

    items: Annotated[_Items, Meta(min_length=1, max_length=20)]


# ── items of an input ───────────────────────────────────────────────────────────────────────────


class _Block(_Shape, frozen=True, tag_field="type"):
    """A part of a message."""


class _InputText(_Block, frozen=True, kw_only=True, tag="input_text"):
    text: str
    prompt_cache_breakpoint: dict[str, Any] | None = None


class _InputImage(_Block, frozen=True, kw_only=True, tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None
    detail: Literal["low", "high", "auto", "original"] | None = None
    prompt_cache_breakpoint: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not (self.image_url or self.file_id):
            raise ValidationError("needs image_url or file_id", rule="invalid_value")


class _InputFile(_Block, frozen=True, kw_only=True, tag="input_file"):
    filename: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    file_id: str | None = None
    detail: Literal["low", "high", "auto"] | None = None
    prompt_cache_breakpoint: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not (self.file_data or self.file_url or self.file_id):
            raise ValidationError("needs file_data, file_url or file_id", rule="invalid_value")


class _OutputText(_Block, frozen=True, kw_only=True, tag="output_text"):
    text: str
    annotations: _Items | None = None
    logprobs: _Items | None = None
    parsed: Any = None  # the SDKs' helpers leave it in an answer


class _Refusal(_Block, frozen=True, kw_only=True, tag="refusal"):
    refusal: str


class _SummaryText(_Block, frozen=True, kw_only=True, tag="summary_text"):
    text: str


class _ReasoningText(_Block, frozen=True, kw_only=True, tag="reasoning_text"):
    text: str


_Given = _InputText | _InputImage | _InputFile


class _Item(_Shape, frozen=True):
    """The base of all items: what says nothing about what was said."""

    type: str | None = None
    id: str | None = None
    status: str | None = None
    created_by: str | None = None
    internal_chat_message_metadata_passthrough: Any = None


class _Message(_Item, frozen=True, kw_only=True):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[_Given | _OutputText | _Refusal]
    phase: Literal["commentary", "final_answer"] | None = None


class _Call(_Item, frozen=True, kw_only=True):
    call_id: str
    name: str
    namespace: str | None = None
    caller: dict[str, Any] | None = None
    asynchronous: bool | None = field(name="async", default=None)


class _FunctionCall(_Call, frozen=True, kw_only=True):
    arguments: str
    parsed_arguments: Any = None  # as above


class _CustomCall(_Call, frozen=True, kw_only=True):
    input: str


class _CallOutput(_Item, frozen=True, kw_only=True):
    call_id: str
    output: str | list[_Given]
    name: str | None = None
    namespace: str | None = None
    caller: dict[str, Any] | None = None


class _ReasoningItem(_Item, frozen=True, kw_only=True):
    summary: list[_SummaryText]
    content: list[_ReasoningText] | None = None
    encrypted_content: str | None = None


class _Compaction(_Item, frozen=True, kw_only=True):
    encrypted_content: str


class _Reference(_Shape, frozen=True):
    id: str
    type: str | None = None


class _HostedRequest(_Item, frozen=True, kw_only=True):
    name: str
    arguments: str
    server_label: str


class _HostedCall(_HostedRequest, frozen=True, kw_only=True):
    output: str | None = None
    error: str | dict[str, Any] | None = None
    approval_request_id: str | None = None


class _HostedAnswer(_Item, frozen=True, kw_only=True):
    approval_request_id: str
    approve: bool
    reason: str | None = None


class _HostedList(_Item, frozen=True, kw_only=True):
    server_label: str
    tools: _Items
    error: Any = None


_ITEM_TYPES: Final[Mapping[str, type[_Shape]]] = {
    "message": _Message,
    "function_call": _FunctionCall,
    "function_call_output": _CallOutput,
    "custom_tool_call": _CustomCall,
    "custom_tool_call_output": _CallOutput,
    "reasoning": _ReasoningItem,
    "compaction": _Compaction,
    "item_reference": _Reference,
    "mcp_call": _HostedCall,
    "mcp_approval_request": _HostedRequest,
    "mcp_approval_response": _HostedAnswer,
    "mcp_list_tools": _HostedList,
}


def item_type(item: Mapping[str, Any]) -> object:
    """The type of an item: a message may leave it out, and so may a reference.

    >>> item_type({"role": "user", "content": "Hi"}), item_type({"id": "msg_1"})
    ('message', 'item_reference')
    """
    kind = item.get("type")
    if kind is None:
        return "item_reference" if item.keys() <= {"id", "type"} else "message"
    return kind


def check_item(item: Mapping[str, Any], path: str) -> None:
    """Refuse an item with a field that is unknown or wrong, by its path.

    What other programs ran (`web_search_call` and the like) is left to `palaver.wire`.
    """
    kind = item_type(item)
    if not isinstance(kind, str):
        raise refuse("must be a string", f"{path}.type", "invalid_type")
    shape = _ITEM_TYPES.get(kind)
    if shape is not None:
        convert_at(item, shape, f"$.{path}")


_LOGPROBS: Final = "message.output_text.logprobs"
_INCLUDABLE: Final = frozenset(
    (
        *("reasoning.encrypted_content", "message.input_image.image_url", _LOGPROBS),
        *("file_search_call.results", "web_search_call.results", "web_search_call.action.sources"),
        *("code_interpreter_call.outputs", "computer_call_output.output.image_url"),
    )
)


def refuse(detail: str, param: str, rule: str = "unsupported") -> ValidationError:
    """Return the error for a field that can't be carried out."""
    return ValidationError(detail, path=f"$.{param}", rule=rule)


def check_supported(request: ResponseRequest) -> None:
    """Refuse what this server can't carry out, by its name."""
    for name, why in (
        ("prompt", "prompt templates are OpenAI's own; send instructions and input"),
        ("context_management", "compact with POST /v1/responses/compact, or on the page"),
        ("moderation", "no moderation is run here"),
        ("max_tool_calls", "the number of calls is not limited here"),
        ("prompt_cache_options", "the provider's cache is its own"),
        ("top_logprobs", "log probabilities are not stored"),
        ("presence_penalty", "not every provider has penalties"),
        ("frequency_penalty", "not every provider has penalties"),
    ):
        if getattr(request, name) not in (None, 0, [], {}):
            raise refuse(f"is not supported: {why}", name)
    if request.service_tier not in (None, "auto", "default"):
        detail = f"must be auto or default, not {request.service_tier!r}: there is one tier"
        raise refuse(detail, "service_tier")
    for index, name in enumerate(request.include or ()):
        if name not in _INCLUDABLE or name == _LOGPROBS:
            raise refuse(f"{name!r} can't be included", f"include[{index}]")
    _check_together(request)
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, HostedShape):
            _check_mcp(tool, f"tools[{index}]")


def _check_together(request: ResponseRequest) -> None:
    """Refuse fields that do not go together."""
    if request.stream_options is not None and request.stream_options.include_obfuscation:
        detail = "must be false: events carry no padding here"
        raise refuse(detail, "stream_options.include_obfuscation")
    if request.previous_response_id and request.conversation is not None:
        detail = "goes without previous_response_id: both say what comes before"
        raise refuse(detail, "conversation", "mutually-exclusive")
    if request.background and not request.stored:
        raise refuse("must be true for a response in the background", "store")
    if request.conversation is not None and not request.stored:
        raise refuse("must be true for a response of a conversation", "store")


def _check_mcp(tool: HostedShape, where: str) -> None:
    for name in ("server_url", "connector_id", "authorization", "headers"):
        if getattr(tool, name) is not None:
            detail = "can't be given: the server runs its own MCP servers (palaver serve --tools)"
            raise refuse(detail, f"{where}.{name}")
    if tool.server_label != SERVER_LABEL:
        detail = f"must be {SERVER_LABEL!r}, under which this server's own tools are"
        raise refuse(detail, f"{where}.server_label")
    if isinstance(tool.require_approval, dict):
        raise refuse('must be "always" or "never"', f"{where}.require_approval")


# ── a response ──────────────────────────────────────────────────────────────────────────────────


class ResponseRecord(Struct, omit_defaults=True, frozen=True, kw_only=True):
    """What is stored of a response beside its conversation's log.

    `base` is the version that its input followed, `start` the version with its input, `end` the one
    after its output. `outputs` are the positions of its messages in the log. `pieces` are the
    lengths of the pieces in which its items were streamed, so that a stream can be repeated with
    the same numbers; they are not known of a response that was `killed` with its process.
    """

    request: dict[str, Any]
    model: str
    base: int
    start: int
    created: int
    status: str = "in_progress"
    end: int | None = None
    completed: int | None = None
    outputs: tuple[int, ...] = ()
    pieces: list[list[int]] = field(default_factory=list[list[int]])
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    reason: str | None = None
    hosted: tuple[str, ...] = ()
    conversation: str | None = None
    killed: bool = False

    @property
    def over(self) -> bool:
        """Whether the response has ended."""
        return self.status not in ("in_progress", "queued")

    @property
    def custom(self) -> list[str]:
        """The tools of the client that take free text."""
        return [
            join_name(tool["name"], group and group["name"])
            for given in self.request.get("tools", ())
            for group, tools in [(given, given["tools"]) if "tools" in given else (None, [given])]
            for tool in tools
            if tool["type"] == CUSTOM
        ]

    @property
    def encrypted(self) -> bool:
        """Whether reasoning is given with its encrypted content."""
        return "reasoning.encrypted_content" in self.request.get("include", ())


def response_object(
    name: str, record: ResponseRecord, output: list[dict[str, Any]]
) -> dict[str, Any]:
    """A response as clients get it."""
    given: Mapping[str, Any] = record.request
    completed = record.completed if record.status == "completed" else None
    return {
        "id": name,
        "object": "response",
        "created_at": record.created // 1000,
        "completed_at": None if completed is None else completed // 1000,
        "status": record.status,
        "background": given.get("background", False),
        "conversation": None if record.conversation is None else {"id": record.conversation},
        "error": record.error,
        "incomplete_details": None if record.reason is None else {"reason": record.reason},
        "instructions": given.get("instructions"),
        "max_output_tokens": given.get("max_output_tokens"),
        "max_tool_calls": None,
        "metadata": given.get("metadata", {}),
        "model": record.model,
        "output": output,
        "parallel_tool_calls": given.get("parallel_tool_calls", True),
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "previous_response_id": given.get("previous_response_id"),
        "prompt_cache_key": given.get("prompt_cache_key"),
        "reasoning": {"effort": None, "summary": None, **_given(given.get("reasoning"))},
        "safety_identifier": given.get("safety_identifier"),
        "service_tier": "default",
        "store": given.get("store", True),
        "temperature": given.get("temperature", 1.0),
        "text": _text(given.get("text")),
        "tool_choice": given.get("tool_choice", "auto"),
        "tools": given.get("tools", []),
        "top_logprobs": 0,
        "top_p": given.get("top_p", 1.0),
        "truncation": given.get("truncation", "disabled"),
        "usage": record.usage,
        "user": given.get("user"),
    }


def _text(given: Mapping[str, Any] | None) -> dict[str, Any]:
    found = {"format": {"type": "text"}, **_given(given)}
    if found["format"]["type"] == "json_schema":
        found["format"] = {**found["format"], "strict": bool(found["format"].get("strict"))}
    return found


def _given(value: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: each for name, each in (value or EMPTY).items() if each is not None}


def usage_object(
    prompt: int, completion: int, *, cached: int = 0, written: int = 0, reasoning: int = 0
) -> dict[str, Any]:
    """The usage of a response.

    >>> usage_object(10, 3)["total_tokens"]
    13
    """
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": prompt + completion,
    }


# ── errors ──────────────────────────────────────────────────────────────────────────────────────

_NOT_FOUND: Final = 404
_KINDS: Final = {
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "forbidden"),
    404: ("invalid_request_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
_NO_FIELD: Final = "is not a field of it"
_TOOL_TYPE: Final = re.compile(r"tools\[\d+\]\.type")
_STATUS: Final = {422: 400, 424: 502, 412: 409}
"""The statuses that this API does not use, and those in their place."""


def encode_error(problem: ProblemDetails) -> tuple[int, bytes]:
    """The status and the body of an error in OpenAI's form."""
    status = _STATUS.get(problem.status, problem.status)
    kind, code = _KINDS.get(
        status,
        ("server_error", "server_error") if status >= 500 else ("invalid_request_error", ""),  # noqa: PLR2004 - the server's own
    )
    path = problem.path if isinstance(problem.path, str) else None
    rule = problem.rule if isinstance(problem.rule, str) else None
    detail = problem.detail
    param = None if path is None else path.removeprefix("$").removeprefix(".") or None
    if rule == "schema":
        rule = "invalid_type"
        if detail == _NO_FIELD:
            rule, detail = "unknown_parameter", "is not known here, or not supported"
        elif detail.startswith("Invalid value") and _TOOL_TYPE.fullmatch(param or ""):
            detail += "; this server takes function, custom, namespace and mcp (its own tools)"
    named = f"{param}: {detail}" if param else detail
    error = {
        "message": named,
        "type": kind,
        "param": param,
        "code": _code(status, code, rule),
    }
    return status, msgspec.json.encode({"error": error})


def _code(status: int, usual: str, rule: str | None) -> str:
    """The code of an error: the rule that was broken, or what is usual for its status."""
    if usual and not (rule and status == _NOT_FOUND):
        return usual
    return (rule or "invalid_request").replace("-", "_").replace(".", "_")


def respond_to_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The response for any exception under `/v1`."""
    del request
    problem, headers = describe_error(error)
    status, body = encode_error(problem)
    if problem.status == 424:  # noqa: PLR2004 - the model failed, after palaver's own retries
        headers["x-should-retry"] = "false"
    return Response(body, status_code=status, media_type="application/json", headers=headers)
