"""Anthropic Messages."""

from __future__ import annotations

from tests.testing.providers.case import PDF, PNG, Case, Json


def body(*messages: object, **more: object) -> Json:
    return {"messages": list(messages), **more}


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def user(*content: object) -> Json:
    return {"role": "user", "content": list(content)}


def assistant(*content: object) -> Json:
    return {"role": "assistant", "content": list(content)}


def call(name: str = "call_1", tool: str = "weather", arguments: object = None) -> Json:
    return {
        "type": "tool_use",
        "id": name,
        "name": tool,
        "input": {} if arguments is None else arguments,
    }


def result(name: str = "call_1", content: object = "9 °C") -> Json:
    return {"type": "tool_result", "tool_use_id": name, "content": content}


def image(**source: object) -> Json:
    return {"type": "image", "source": source}


def document(**source: object) -> Json:
    return {"type": "document", "source": source}


def tool(name: str) -> Json:
    return {"name": name, "input_schema": {"type": "object"}}


def answer(properties: Json, **more: object) -> Json:
    schema = {"type": "object", "properties": properties, **more}
    return {"format": {"type": "json_schema", "schema": schema}}


HELLO: Json = {"role": "user", "content": "Hello"}
HI: Json = {"role": "assistant", "content": "Hi"}
ORDER: Json = {"role": "system", "content": "Be brief."}
THOUGHT: Json = {"type": "thinking", "thinking": "", "signature": "c2ln"}
MARKED: Json = {**text("Hello"), "cache_control": {"type": "ephemeral"}}
OLD = "claude-sonnet-4-5"
FIVE = [f"call_{n}" for n in range(5)]
SEARCH: Json = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "cats"},
}
HITS: Json = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}

CASES = [
    Case(
        "orphan call",
        body(HELLO, assistant(call()), user(result())),
        body(HELLO, assistant(call()), HELLO),
        {"messages[1].content[0]": "call-without-result"},
    ),
    Case(
        "an open call at the end",
        body(HELLO, assistant(call()), user(result())),
        body(HELLO, assistant(call())),
        {"messages[1].content[0]": "call-without-result", "messages[1]": "last-role"},
    ),
    Case(
        "five parallel calls with one missing",
        body(HELLO, assistant(*map(call, FIVE)), user(*map(result, reversed(FIVE)))),
        body(HELLO, assistant(*map(call, FIVE)), user(*map(result, FIVE[1:]))),
        {"messages[1].content[0]": "call-without-result"},
    ),
    Case(
        "results in two messages",
        body(HELLO, assistant(call("a"), call("b")), user(result("a"), result("b"))),
        body(HELLO, assistant(call("a"), call("b")), user(result("a")), user(result("b"))),
        {
            "messages[1].content[1]": "call-without-result",
            "messages[3].content[0]": "result-out-of-order",
        },
    ),
    Case(
        "orphan result",
        body(HELLO, assistant(call()), user(result())),
        body(user(result())),
        {"messages[0].content[0]": "result-without-call"},
    ),
    Case(
        "two results for one call",
        body(HELLO, assistant(call()), user(result())),
        body(HELLO, assistant(call()), user(result(), result())),
        {"messages[2].content[1]": "duplicate-result"},
    ),
    Case(
        "result before its call",
        body(HELLO, assistant(call()), user(result())),
        body(user(result()), assistant(call()), HELLO),
        {
            "messages[0].content[0]": "result-out-of-order",
            "messages[1].content[0]": "call-without-result",
        },
    ),
    Case(
        "words before a result",
        body(HELLO, assistant(call()), user(result(), text("Go on."))),
        body(HELLO, assistant(call()), user(text("Go on."), result())),
        {"messages[2].content[1]": "result-out-of-order"},
    ),
    Case(
        "two calls of one id",
        body(HELLO, assistant(call()), user(result()), assistant(call("b")), user(result("b"))),
        body(HELLO, assistant(call()), user(result()), assistant(call()), user(result())),
        {"messages[3].content[0]": "duplicate-call-id"},
    ),
    Case(
        "a call id with a colon",
        body(HELLO, assistant(call("functions-bash_0")), user(result("functions-bash_0"))),
        body(HELLO, assistant(call("functions.bash:0")), user(result("functions.bash:0"))),
        {
            "messages[1].content[0].id": "call-id",
            "messages[2].content[0].tool_use_id": "call-id",
        },
    ),
    Case(
        "a tool name with a dot",
        body(HELLO, assistant(call(tool="maps-find")), user(result())),
        body(HELLO, assistant(call(tool="maps.find")), user(result())),
        {"messages[1].content[0].name": "tool-name"},
    ),
    Case(
        "a tool name that is too long",
        body(HELLO, tools=[tool("t" * 128), {"type": "bash_20250124", "name": "bash"}]),
        body(HELLO, tools=[tool("t" * 129)]),
        {"tools[0].name": "tool-name"},
    ),
    Case(
        "two tools of one name",
        body(HELLO, tools=[tool("a"), tool("b")]),
        body(HELLO, tools=[tool("a"), tool("a")]),
        {"tools[1]": "duplicate-tool"},
    ),
    Case(
        "five breakpoints",
        body(user(*[MARKED] * 4)),
        body(user(*[MARKED] * 5)),
        {"$": "cache-breakpoints"},
    ),
    Case(
        "arguments that are no object",
        body(HELLO, assistant(call()), user(result())),
        body(HELLO, assistant(call(arguments="{}")), user(result())),
        {"messages[1].content[0].input": "call-arguments"},
    ),
    Case(
        "an empty text",
        body(user(text("Hello"))),
        body(user(text("Hello"), text(""))),
        {"messages[0].content[1].text": "empty-text"},
    ),
    Case(
        "a whitespace-only assistant",
        body(HELLO, HI, HELLO),
        body(HELLO, {"role": "assistant", "content": " \n"}, HELLO),
        {"messages[1].content": "empty-text"},
    ),
    Case(
        "an empty tool output",
        body(HELLO, assistant(call()), user(result(content=""))),
        body(HELLO, assistant(call()), user(result(content=[text("")]))),
        {"messages[2].content[0].content[0].text": "empty-text"},
    ),
    Case(
        "an empty system text",
        body(HELLO, system=[text("Be brief.")]),
        body(HELLO, system=""),
        {"system": "empty-text"},
    ),
    Case("no blocks", body(HELLO), body(user()), {"messages[0].content": "empty-content"}),
    Case("no messages", body(HELLO), body(system="Hi"), {"messages": "empty-content"}),
    Case(
        "assistant first",
        body(HELLO, HI, HELLO),
        body(HI, HELLO),
        {"messages[0]": "first-role"},
    ),
    Case(
        "assistant last",
        body(HELLO, HI, model=OLD),
        body(HELLO, HI, model="claude-opus-5"),
        {"messages[1]": "last-role"},
    ),
    Case(
        "white space at the end of an answer begun",
        body(HELLO, assistant(text("It is")), model=OLD),
        body(HELLO, assistant(text("It is ")), model=OLD),
        {"messages[1]": "trailing-space"},
    ),
    Case(
        "users and assistants in a row",
        body(HELLO, HELLO, HI, HI, HELLO),
        body(HELLO, HELLO, HI, HI),
        {"messages[3]": "last-role"},
    ),
    Case(
        "system first",
        body(HELLO, system="Be brief."),
        body(ORDER, HELLO),
        {"messages[0]": "system-placement"},
    ),
    Case(
        "system in the middle",
        body(HELLO, ORDER, HI, HELLO, ORDER),
        body(HELLO, HI, ORDER, HELLO),
        {"messages[2]": "system-placement"},
    ),
    Case(
        "system between two of the user's",
        body(HELLO, HELLO, ORDER),
        body(HELLO, ORDER, HELLO),
        {"messages[1]": "system-placement"},
    ),
    Case(
        "system for an older model",
        body(HELLO, ORDER, model="claude-opus-4-8"),
        body(HELLO, ORDER, model="claude-opus-4-7"),
        {"messages[1]": "system-placement"},
    ),
    Case(
        "system after a server's tool",
        body(HELLO, assistant(SEARCH, HITS), ORDER, HI, HELLO),
        body(HELLO, assistant(text("Hi")), ORDER, HI, HELLO),
        {"messages[2]": "system-placement"},
    ),
    Case(
        "a server's result without its use",
        body(HELLO, assistant(SEARCH, HITS, text("Cats.")), HELLO),
        body(HELLO, assistant(HITS, text("Cats.")), HELLO),
        {"messages[1].content[0]": "result-without-call"},
    ),
    Case(
        "reasoning without a signature",
        body(HELLO, assistant(THOUGHT, text("Hi")), HELLO),
        body(HELLO, assistant({**THOUGHT, "signature": ""}, text("Hi")), HELLO),
        {"messages[1].content[0].signature": "foreign-reasoning"},
    ),
    Case(
        "redacted reasoning that is empty",
        body(HELLO, assistant({"type": "redacted_thinking", "data": "c2ln"}, text("Hi")), HELLO),
        body(HELLO, assistant({"type": "redacted_thinking", "data": " "}, text("Hi")), HELLO),
        {"messages[1].content[0].data": "foreign-reasoning"},
    ),
    Case(
        "reasoning at the end",
        body(HELLO, assistant(text("Hi"), THOUGHT, text("!")), HELLO),
        body(HELLO, assistant(text("Hi"), THOUGHT), HELLO),
        {"messages[1].content[1]": "reasoning-placement"},
    ),
    Case(
        "reasoning of the user",
        body(user(text("Hm."))),
        body(user(THOUGHT, text("Hm."))),
        {"messages[0].content[0]": "part-placement"},
    ),
    Case(
        "a call without the reasoning that is demanded",
        body(HELLO, assistant(THOUGHT, call()), user(result()), thinking={"type": "enabled"}),
        body(HELLO, assistant(call()), user(result()), thinking={"type": "enabled"}),
        {"messages[1]": "missing-signature"},
    ),
    Case(
        "an image of the assistant",
        body(user(image(type="base64", media_type="image/png", data=PNG))),
        body(HELLO, assistant(image(type="file", file_id="file_1")), HELLO),
        {"messages[1].content[0]": "part-placement"},
    ),
    Case(
        "an image the model can't take",
        body(user(image(type="base64", media_type="image/gif", data=PNG))),
        body(user(image(type="base64", media_type="image/bmp", data=PNG))),
        {"messages[0].content[0].source.media_type": "media"},
    ),
    Case(
        "an image that is no base64",
        body(user(image(type="url", url="https://example.org/a.png"))),
        body(user(image(type="base64", media_type="image/png", data="data:image/png"))),
        {"messages[0].content[0].source.data": "media"},
    ),
    Case(
        "an image over plain http",
        body(user(image(type="url", url="https://example.org/a.png"))),
        body(user(image(type="url", url="http://example.org/a.png"))),
        {"messages[0].content[0].source.url": "media"},
    ),
    Case(
        "an image that is too large",
        body(user(image(type="base64", media_type="image/png", data="A" * 5_242_880))),
        body(user(image(type="base64", media_type="image/png", data="A" * 5_242_884))),
        {"messages[0].content[0].source.data": "size"},
    ),
    Case(
        "a document of an unknown kind",
        body(
            user(
                document(type="base64", media_type="application/pdf", data=PDF),
                document(type="text", media_type="text/plain", data="Hello"),
                document(type="content", content=[text("Hello")]),
                document(type="content", content="Hello"),
            )
        ),
        body(user(document(type="text", media_type="text/html", data="Hello"))),
        {"messages[0].content[0].source.media_type": "media"},
    ),
    Case(
        "an unknown block",
        body(
            HELLO,
            assistant(call()),
            user(result(content=[{"type": "tool_reference", "tool_name": "a"}])),
        ),
        body(user({"type": "input_text", "text": "Hello"})),
        {"messages[0].content[0]": "unknown-part"},
    ),
    Case(
        "an unknown field",
        body(user({**text("Hello"), "cache_control": {"type": "ephemeral"}})),
        body(user({**text("Hello"), "id": "prt_1"})),
        {"messages[0].content[0].id": "unknown-field"},
    ),
    Case(
        "an unknown role",
        body(HELLO),
        body({"role": "tool", "content": "9 °C"}),
        {"messages[0].role": "role"},
    ),
    Case(
        "content of another shape",
        body(HELLO),
        body({"role": "user", "content": None}),
        {"messages[0].content": "shape"},
    ),
    Case(
        "a schema that leaves something open",
        body(HELLO, output_config=answer({"a": {"type": "integer"}}, additionalProperties=False)),
        body(HELLO, output_config=answer({"a": {"type": "integer", "minimum": 1}})),
        {
            "output_config.format.schema": "shape",
            "output_config.format.schema.properties.a.minimum": "shape",
        },
    ),
    Case(
        "half of a surrogate pair",
        body(HELLO, assistant(call(arguments={"\N{CAT FACE}": 1})), user(result())),
        body(HELLO, assistant(call(arguments={"\ud83d": 1})), user(result())),
        {"messages[1].content[0].input.\ud83d": "text-encoding"},
    ),
]
