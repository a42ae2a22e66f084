"""What a request for a response asks for, checked: the model, its tools and its options.

A tool of the client is one whose calls always wait. Instructions are put in front of the request
to the model, in whatever form its provider has for them, and are not stored in the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from palaver.conversation import Toolbox
from palaver.errors import ValidationError
from palaver.messages import system
from palaver.messages.parts import FREEFORM
from palaver.models.base import LOCAL_PROVIDER, Model, ModelRequest, check_options
from palaver.server.errors import RequestRefused
from palaver.server.openai.shapes import (
    CustomShape,
    FunctionShape,
    HostedShape,
    NamespaceShape,
    ResponseRequest,
    check_supported,
    join_name,
    refuse,
)
from palaver.server.services.models import default_options
from palaver.wire import ToolSpec
from palaver.wire import to as write_request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator
    from typing import TypeAlias

    from palaver.server.openai.shapes import ToolDefinition
    from palaver.server.services import Service
    from palaver.tools import Tool, ToolContext
    from palaver.tools.runner import ToolOutput

    _SingleTool: TypeAlias = FunctionShape | CustomShape | HostedShape

__all__ = ["ClientTool", "Instructed", "Plan", "Planner"]

_PATHS: Final = {
    "$.options.max_tokens": "$.max_output_tokens",
    "$.options.effort": "$.reasoning.effort",
    "$.options.schema": "$.text.format.schema",
}


class ClientTool(Struct, frozen=True):
    """A tool that the client runs: the response ends with its call."""

    spec: ToolSpec
    idempotent: bool = False
    timeout: float | None = None

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run nothing: a call of this tool always waits for the client."""
        raise NotImplementedError  # pragma: no cover - such a call is never started


class Instructed:
    """A model that gets instructions in front of the conversation; they are not stored in it."""

    def __init__(self, model: Model, instructions: str) -> None:
        """Give these instructions with every request."""
        self._model = model
        self._written = write_request(model.format, [system(instructions)])
        self.ref, self.format = model.ref, model.format
        self.window, self.target = model.window, model.target

    def stream(self, request: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        """Ask with the instructions."""
        return self._model.stream(replace(request, body=self._instruct(request.body)))

    async def complete(self, request: ModelRequest) -> Mapping[str, Any]:
        """Ask with the instructions."""
        return await self._model.complete(replace(request, body=self._instruct(request.body)))

    async def close(self) -> None:
        """Close nothing: the model is the server's."""

    def _instruct(self, body: Mapping[str, Any]) -> dict[str, Any]:
        written = self._written
        if not written.head:
            return {**body, written.field: [written.items[0], *body[written.field]]}
        merged = dict(body)
        for name, text in written.head.items():
            merged[name] = _join(text, body.get(name))
        return merged


def _join(first: Any, second: Any) -> Any:  # noqa: ANN401 - JSON of a provider
    """Join two system texts in whatever form the provider has for them."""
    if second is None:
        return first
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    if isinstance(first, dict):
        return {**first, "parts": [*first["parts"], *second["parts"]]}
    blocks = [
        [{"type": "text", "text": each}] if isinstance(each, str) else list(each)
        for each in (first, second)
    ]
    return [*blocks[0], *blocks[1]]


class Plan(Struct, frozen=True):
    """What a request asks for, checked: the model, its tools and options."""

    request: ResponseRequest
    name: str
    model: Model
    tools: Toolbox
    hosted: frozenset[str]
    custom: frozenset[str]
    always_ask: bool
    options: Mapping[str, Any]


class Planner:
    """Checks requests against the models and the tools of a service."""

    def __init__(self, service: Service) -> None:
        """Use the models and the tools of a service."""
        self._service = service

    def plan(self, request: ResponseRequest) -> Plan:
        """Check a request; raise what is wrong with it before anything is stored."""
        check_supported(request)
        service = self._service
        name = request.model or service.models.default
        model = self.find_model(name)
        tools: dict[str, Tool] = {}
        hosted: set[str] = set()
        custom: set[str] = set()
        always_ask = False
        for path, each, namespace in _flatten(request.tools or ()):
            if isinstance(each, HostedShape):
                found = service.tools.select(True if each.names is None else each.names)
                always_ask = always_ask or each.require_approval == "always"
                hosted.update(found)
                added: Mapping[str, Tool] = found
            else:
                spec = _spec(each, namespace)
                added = {spec.name: ClientTool(spec)}
                custom |= {spec.name} if isinstance(each, CustomShape) else set()
            for tool in added:
                if tool in tools:
                    detail = f"there are two tools called {tool!r}"
                    raise refuse(detail, f"{path}.name", "duplicate_tool")
            tools.update(added)
        choice, allowed = _read_choice(request, tools, hosted)
        box = Toolbox(tools[each] for each in tools if each in allowed)
        options = self._options(request, model, choice)
        self.check_options(model, box, options, _PATHS)
        if request.instructions:
            model = Instructed(model, request.instructions)
        return Plan(
            request, name, model, box, frozenset(hosted), frozenset(custom), always_ask, options
        )

    def find_model(self, name: str) -> Model:
        """The model of a name; refused as OpenAI refuses a model that it does not have."""
        try:
            return self._service.steps.get_model(name)
        except ValidationError as error:
            detail = error.detail.replace("/api/info", "/v1/models")
            raise RequestRefused(404, detail, path="$.model", rule="model_not_found") from None

    @staticmethod
    def check_options(
        model: Model, tools: Toolbox, options: Mapping[str, Any], paths: Mapping[str, str]
    ) -> None:
        """Refuse options that a model does not take, under the names that clients know."""
        try:
            ModelRequest({}, tools=tools.specs, options=options).check()
            check_options(model, tools.specs, options)
        except ValidationError as error:
            path = paths.get(error.path, error.path.replace("$.options.", "$."))
            raise ValidationError(error.detail, path=path, rule=error.rule) from None

    @staticmethod
    def one_call_at_a_time(model: Model, choice: str | None) -> dict[str, Any]:
        """The options with which a model makes one call at a time, where its provider has them."""
        if model.ref.provider_id == LOCAL_PROVIDER or choice == "none":
            return {}
        if model.format in ("openai-chat", "openai-responses"):
            return {"extra": {"parallel_tool_calls": False}}
        if model.format == "anthropic":
            kind = {"type": "auto"} if choice in (None, "auto") else {}
            return {"extra": {"tool_choice": {**kind, "disable_parallel_tool_use": True}}}
        return {}

    def _options(
        self, request: ResponseRequest, model: Model, choice: str | None
    ) -> dict[str, Any]:
        effort = None if request.reasoning is None else request.reasoning.effort
        given = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_tokens": request.max_output_tokens,
            "effort": effort,
            "schema": request.schema,
            "tool_choice": choice,
        }
        found = {name: value for name, value in given.items() if value is not None}
        if request.parallel_tool_calls is False and request.tools:
            found |= self.one_call_at_a_time(model, choice)
        forced = choice not in (None, "auto", "none")
        return {**default_options(model, forced=forced), **found}


def _flatten(
    tools: Iterable[ToolDefinition],
) -> Iterator[tuple[str, _SingleTool, NamespaceShape | None]]:
    """Yield each tool with its path in the request and the namespace that it is in."""
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        if isinstance(tool, NamespaceShape):
            for inner, each in enumerate(tool.tools):
                yield f"{path}.tools[{inner}]", each, tool
        else:
            yield path, tool, None


def _spec(tool: FunctionShape | CustomShape, namespace: NamespaceShape | None) -> ToolSpec:
    name = join_name(tool.name, namespace and namespace.name)
    text = tool.description or ""
    if namespace is not None:
        text = f"{text}\n\n{namespace.description}".strip()
    if isinstance(tool, FunctionShape):
        return ToolSpec(name, text, tool.parameters or {})
    if tool.grammar:
        text += f"\n\nThe text has to fit this grammar:\n{tool.grammar}"
    free = {"type": "string", "description": "the text, as it is"}
    schema = {"type": "object", "properties": {FREEFORM: free}, "required": [FREEFORM]}
    return ToolSpec(name, text, schema)


def _read_choice(
    request: ResponseRequest, tools: Mapping[str, Tool], hosted: set[str]
) -> tuple[str | None, set[str]]:
    """Return the choice as an option of models, and the tools that may be used."""
    choice, everything = request.tool_choice, set(tools)
    if choice is None or isinstance(choice, str):
        if choice == "required" and not tools:
            raise refuse("needs tools", "tool_choice")
        return (None if choice == "auto" else choice), everything
    kind = type(choice).__struct_config__.tag
    if kind == "allowed_tools":
        listed: list[dict[str, Any]] = getattr(choice, "tools", [])
        allowed: set[str] = set()
        for index, each in enumerate(listed):
            named: set[str] = {str(each.get("name"))}
            if each.get("type") == "mcp" and "name" not in each:
                named = hosted
            if not named <= everything:
                detail = f"{each.get('name')!r} is not among the tools"
                raise refuse(detail, f"tool_choice.tools[{index}]", "unknown_tool")
            allowed |= named
        mode = getattr(choice, "mode", "auto")
        return (None if mode == "auto" else mode), allowed
    name = getattr(choice, "name", None)
    if name is None:
        return "required", hosted
    if name not in tools:
        raise refuse(f"{name!r} is not among the tools", "tool_choice.name", "unknown_tool")
    return name, everything
