"""Chat Completions."""

from __future__ import annotations

from tests.testing.providers.case import PDF, PNG, Case, Json

HELLO: Json = {"role": "user", "content": "Hello"}


def body(*messages: object, **more: object) -> Json:
    return {"model": "gpt-6", "messages": list(messages), **more}


def answer(**more: object) -> Json:
    inner = {"type": "object", "properties": {"a": {"type": "null"}}, **more}
    items = {"anyOf": [inner, {"type": "null"}]}
    schema = {
        "type": "object",
        "properties": {"list": {"type": "array", "items": items}},
        "required": ["list"],
        "additionalProperties": False,
    }
    form = {"name": "answer", "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": form}


def user(*parts: Json) -> Json:
    return {"role": "user", "content": list(parts)}


def call(name: str = "call_1", tool: str = "weather", arguments: object = "{}") -> Json:
    return {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}


def calls(*made: Json) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": list(made)}


def result(name: str = "call_1", content: object = "9 °C") -> Json:
    return {"role": "tool", "tool_call_id": name, "content": content}


def image(url: str, **more: object) -> Json:
    return user({"type": "image_url", "image_url": {"url": url, **more}})


def file(**source: object) -> Json:
    return user({"type": "file", "file": source})


def tool(name: str) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


FIVE = [f"call_{n}" for n in range(5)]

CASES = [
    Case(
        "orphan call",
        body(HELLO, calls(call()), result(), HELLO),
        body(HELLO, calls(call()), HELLO),
        {"messages[1].tool_calls[0]": "call-without-result"},
    ),
    Case(
        "five parallel calls with one missing",
        body(HELLO, calls(*map(call, FIVE)), *map(result, reversed(FIVE))),
        body(HELLO, calls(*map(call, FIVE)), *map(result, FIVE[:3]), result(FIVE[4])),
        {"messages[1].tool_calls[3]": "call-without-result"},
    ),
    Case(
        "orphan result",
        body(HELLO, calls(call()), result()),
        body(HELLO, result()),
        {"messages[1]": "result-without-call"},
    ),
    Case(
        "two results for one call",
        body(HELLO, calls(call()), result()),
        body(HELLO, calls(call()), result(), result()),
        {"messages[3]": "duplicate-result"},
    ),
    Case(
        "result before its call",
        body(HELLO, calls(call()), result()),
        body(HELLO, result(), calls(call())),
        {"messages[1]": "result-out-of-order", "messages[2].tool_calls[0]": "call-without-result"},
    ),
    Case(
        "result after another message",
        body(HELLO, calls(call()), result(), HELLO),
        body(HELLO, calls(call()), HELLO, result()),
        {"messages[3]": "result-out-of-order", "messages[1].tool_calls[0]": "call-without-result"},
    ),
    Case(
        "two calls of one id",
        body(calls(call(), call("call_2")), result(), result("call_2")),
        body(calls(call(), call()), result()),
        {"messages[0].tool_calls[1]": "duplicate-call-id"},
    ),
    Case(
        "an id used again in a later turn",
        body(calls(call()), result(), calls(call()), result()),
        body(calls(call()), result(), calls(call(), call()), result()),
        {"messages[2].tool_calls[1]": "duplicate-call-id"},
    ),
    Case(
        "a call id of 200 characters",
        body(calls(call("c" * 64)), result("c" * 64)),
        body(calls(call("c" * 200)), result("c" * 200)),
        {"messages[0].tool_calls[0].id": "call-id", "messages[1].tool_call_id": "call-id"},
    ),
    Case(
        "an empty call id",
        body(calls(call("1")), result("1")),
        body(calls(call("")), result("")),
        {"messages[0].tool_calls[0].id": "call-id", "messages[1].tool_call_id": "call-id"},
    ),
    Case(
        "a tool name with a dot",
        body(calls(call(tool="maps-find")), result()),
        body(calls(call(tool="maps.find")), result()),
        {"messages[0].tool_calls[0].function.name": "tool-name"},
    ),
    Case(
        "a tool name that is too long",
        body(HELLO, tools=[tool("t" * 64)]),
        body(HELLO, tools=[tool("t" * 65)]),
        {"tools[0].function.name": "tool-name"},
    ),
    Case(
        "two tools of one name",
        body(HELLO, tools=[tool("a"), tool("b")]),
        body(HELLO, tools=[tool("a"), tool("a")]),
        {"tools[1]": "duplicate-tool"},
    ),
    Case(
        "arguments that are no text",
        body(calls(call(arguments="{broken")), result()),
        body(calls(call(arguments={})), result()),
        {"messages[0].tool_calls[0].function.arguments": "call-arguments"},
    ),
    Case(
        "an empty list of calls",
        body(HELLO, {"role": "assistant", "content": "Hi"}),
        body(HELLO, {"role": "assistant", "content": "Hi", "tool_calls": []}),
        {"messages[1].tool_calls": "empty-content"},
    ),
    Case(
        "an assistant that says nothing",
        body({"role": "assistant", "content": ""}),
        body({"role": "assistant", "content": None}),
        {"messages[0].content": "empty-content"},
    ),
    Case(
        "no parts",
        body(user({"type": "text", "text": ""})),
        body(user()),
        {"messages[0].content": "empty-content"},
    ),
    Case("no messages", body(HELLO), body(), {"messages": "empty-content"}),
    Case(
        "a role that does not exist",
        body({"role": "developer", "content": "Be brief."}, HELLO),
        body({"role": "human", "content": "Hello"}),
        {"messages[0].role": "role"},
    ),
    Case(
        "a speaker's name with a space",
        body({**HELLO, "name": "ann_lee"}),
        body({**HELLO, "name": "ann lee"}),
        {"messages[0].name": "speaker-name"},
    ),
    Case(
        "an image in a system message",
        body({"role": "system", "content": [{"type": "text", "text": "Look."}]}),
        body({**image("https://example.org/a.png"), "role": "system"}),
        {"messages[0].content[0]": "part-placement"},
    ),
    Case(
        "an image the model can't take",
        body(image(f"data:image/png;base64,{PNG}", detail="low")),
        body(image(f"data:image/tiff;base64,{PNG}")),
        {"messages[0].content[0].image_url.url": "media"},
    ),
    Case(
        "an image that is no base64",
        body(image("https://example.org/a.png")),
        body(image("data:image/png;base64,no no")),
        {"messages[0].content[0].image_url.url": "media"},
    ),
    Case(
        "an image from a disk",
        body(image("http://example.org/a.png")),
        body(image("file:///tmp/a.png")),
        {"messages[0].content[0].image_url.url": "media"},
    ),
    Case(
        "a data URL without base64",
        body(file(file_data=f"data:application/pdf;base64,{PDF}", filename="a.pdf")),
        body(file(file_data="data:application/pdf,%25PDF", filename="a.pdf")),
        {"messages[0].content[0].file.file_data": "media"},
    ),
    Case(
        "a file without a name",
        body(file(file_data=PDF, filename="a.pdf")),
        body(file(file_data=PDF)),
        {"messages[0].content[0].file": "media"},
    ),
    Case(
        "a file that is neither data nor id",
        body(file(file_id="file-1")),
        body(file(filename="a.pdf")),
        {"messages[0].content[0].file": "media"},
    ),
    Case(
        "a file that is no base64",
        body(file(file_data=PDF, filename="a.pdf")),
        body(file(file_data="%PDF-1.7", filename="a.pdf")),
        {"messages[0].content[0].file.file_data": "media"},
    ),
    Case(
        "sound of an unknown kind",
        body(user({"type": "input_audio", "input_audio": {"data": PDF, "format": "wav"}})),
        body(user({"type": "input_audio", "input_audio": {"data": PDF, "format": "ogg"}})),
        {"messages[0].content[0].input_audio.format": "media"},
    ),
    Case(
        "an unknown part",
        body({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}),
        body({"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}]}),
        {"messages[0].content[0]": "unknown-part"},
    ),
    Case(
        "reasoning of another provider",
        body({"role": "assistant", "content": "Hi"}),
        body({"role": "assistant", "content": "Hi", "reasoning_content": "Hm."}),
        {"messages[0].reasoning_content": "unknown-field"},
    ),
    Case(
        "an unknown field",
        body(HELLO, temperature=1),
        body(HELLO, temprature=1),
        {"temprature": "unknown-field"},
    ),
    Case(
        "a strict schema that leaves something open",
        body(HELLO, response_format=answer(required=["a"], additionalProperties=False)),
        body(HELLO, response_format=answer(required=[])),
        {
            "response_format.json_schema.schema.properties.list.items.anyOf[0]": "shape",
            "response_format.json_schema.schema.properties.list.items.anyOf[0].required": "shape",
        },
    ),
    Case(
        "a missing field",
        body(HELLO),
        body({"role": "user"}),
        {"messages[0].content": "shape"},
    ),
    Case(
        "half of a surrogate pair",
        body({"role": "user", "content": "\N{CAT FACE}"}),
        body({"role": "user", "content": "\ud83d"}),
        {"messages[0].content": "text-encoding"},
    ),
    Case(
        "more than 128 calls",
        body(calls(*(call(str(n)) for n in range(128))), *(result(str(n)) for n in range(128))),
        body(calls(*(call(str(n)) for n in range(129))), *(result(str(n)) for n in range(129))),
        {"messages[0].tool_calls": "size"},
    ),
    Case(
        "a custom tool's call",
        body(
            calls({"id": "a", "type": "custom", "custom": {"name": "shell", "input": "ls"}}),
            result("a"),
            tools=[{"type": "custom", "custom": {"name": "shell"}}],
        ),
        body(calls({"id": "a", "type": "custom", "custom": {"name": "shell"}}), result("a")),
        {"messages[0].tool_calls[0].custom.input": "shape"},
    ),
]
