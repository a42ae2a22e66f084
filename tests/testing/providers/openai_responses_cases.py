"""Responses."""

from __future__ import annotations

from tests.testing.providers.case import PDF, PNG, Case, Json

HELLO: Json = {"role": "user", "content": "Hello"}
HI: Json = {"role": "assistant", "content": "Hi"}


OPEN: Json = {
    "type": "json_schema",
    "name": "answer",
    "schema": {"type": "object", "properties": {"a": {"type": "null"}}},
    "strict": True,
}


def body(*items: object, **more: object) -> Json:
    return {"model": "gpt-6", "input": list(items), **more}


def user(*parts: Json) -> Json:
    return {"type": "message", "role": "user", "content": list(parts)}


def call(
    name: str = "call_1", tool: str = "weather", arguments: object = "{}", **more: object
) -> Json:
    return {
        "type": "function_call",
        "call_id": name,
        "name": tool,
        "arguments": arguments,
        **more,
    }


def result(name: str = "call_1", output: object = "9 °C") -> Json:
    return {"type": "function_call_output", "call_id": name, "output": output}


def thought(name: str = "rs_1", **more: object) -> Json:
    return {"type": "reasoning", "id": name, "summary": [], **more}


def spoken(name: str, *parts: Json) -> Json:
    return {
        "type": "message",
        "id": name,
        "role": "assistant",
        "status": "completed",
        "content": list(parts or [{"type": "output_text", "text": "Hi", "annotations": []}]),
    }


def image(**source: object) -> Json:
    return user({"type": "input_image", "detail": "auto", **source})


def file(**source: object) -> Json:
    return user({"type": "input_file", **source})


def tool(name: str) -> Json:
    return {"type": "function", "name": name, "parameters": {}, "strict": None}


FIVE = [f"call_{n}" for n in range(5)]

CASES = [
    Case(
        "orphan call",
        body(HELLO, call(), result(), HELLO),
        body(HELLO, call(), HELLO),
        {"input[1]": "call-without-result"},
    ),
    Case(
        "five parallel calls with one missing",
        body(HELLO, *map(call, FIVE), *map(result, reversed(FIVE))),
        body(HELLO, *map(call, FIVE), *map(result, FIVE[:3]), result(FIVE[4])),
        {"input[4]": "call-without-result"},
    ),
    Case(
        "orphan result",
        body(HELLO, call(), HI, result()),
        body(HELLO, result()),
        {"input[1]": "result-without-call"},
    ),
    Case(
        "a result for a stored call",
        body(result(), previous_response_id="resp_1"),
        body(result()),
        {"input[0]": "result-without-call"},
    ),
    Case(
        "two results for one call",
        body(call(), result()),
        body(call(), result(), result()),
        {"input[2]": "duplicate-result"},
    ),
    Case(
        "result before its call",
        body(call(), result()),
        body(result(), call()),
        {"input[0]": "result-out-of-order"},
    ),
    Case(
        "two calls of one id",
        body(call(), result(), call("call_2"), result("call_2")),
        body(call(), result(), call()),
        {"input[2]": "duplicate-call-id"},
    ),
    Case(
        "a call id of 200 characters",
        body(call("c" * 64), result("c" * 64)),
        body(call("c" * 200), result("c" * 200)),
        {"input[0].call_id": "call-id", "input[1].call_id": "call-id"},
    ),
    Case(
        "a tool name with a dot",
        body(call(tool="maps-find"), result()),
        body(call(tool="maps.find"), result()),
        {"input[0].name": "tool-name"},
    ),
    Case(
        "a tool name that is too long",
        body(HELLO, tools=[tool("t" * 128), {"type": "local_shell"}]),
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
        "arguments that are no text",
        body(call(arguments="{broken"), result()),
        body(call(arguments={}), result()),
        {"input[0].arguments": "call-arguments"},
    ),
    Case(
        "reasoning with nothing after it",
        body(thought(encrypted_content="gAAA"), thought("rs_2"), call(), result()),
        body(HELLO, thought(encrypted_content="gAAA")),
        {"input[1]": "reasoning-placement"},
    ),
    Case(
        "reasoning before a user's message",
        body(thought(), spoken("msg_1"), HELLO),
        body(thought(), HELLO),
        {"input[0]": "reasoning-placement"},
    ),
    Case(
        "reasoning before a result",
        body(call(), thought(), HI, result()),
        body(call(), thought(), result()),
        {"input[1]": "reasoning-placement"},
    ),
    Case(
        "sealed reasoning that is empty",
        body(thought(encrypted_content="gAAA"), HI),
        body(thought(encrypted_content=""), HI),
        {"input[0].encrypted_content": "foreign-reasoning"},
    ),
    Case(
        "reasoning that nobody stored",
        body(thought(encrypted_content="gAAA"), HI, store=False),
        body(thought(), HI, store=False),
        {"input[0]": "foreign-reasoning"},
    ),
    Case(
        "an id of another kind of item",
        body(thought(), call(id="fc_1"), result()),
        body(thought("msg_1"), call(id="call_1"), result()),
        {"input[0].id": "item-id", "input[1].id": "item-id"},
    ),
    Case(
        "an item twice",
        body(spoken("msg_1"), spoken("msg_2")),
        body(spoken("msg_1"), spoken("msg_1")),
        {"input[1].id": "item-id"},
    ),
    Case(
        "a reference to what nobody stored",
        body({"type": "item_reference", "id": "msg_1"}),
        body({"type": "item_reference", "id": "msg_1"}, store=False),
        {"input[0]": "item-id"},
    ),
    Case(
        "a reference that does not say that it is one",
        body({"id": "msg_1"}),
        body({"id": "msg_1"}, store=False),
        {"input[0]": "item-id"},
    ),
    Case(
        "input text of the assistant",
        body(spoken("msg_1", {"type": "refusal", "refusal": "No."})),
        body({"role": "assistant", "content": [{"type": "input_text", "text": "Hi"}]}),
        {"input[0].content[0]": "part-placement"},
    ),
    Case(
        "output text of the user",
        body(user({"type": "input_text", "text": ""})),
        body(user({"type": "output_text", "text": "Hi"})),
        {"input[0].content[0]": "part-placement"},
    ),
    Case(
        "an unknown item",
        body({"type": "compaction", "encrypted_content": "gAAA"}),
        body({"type": "thinking", "thinking": "Hm."}),
        {"input[0]": "unknown-part"},
    ),
    Case(
        "an unknown role",
        body({"role": "developer", "content": "Be brief."}, HELLO),
        body({"role": "tool", "content": "9 °C"}),
        {"input[0].role": "role"},
    ),
    Case(
        "an unknown field",
        body(HELLO, instructions="Be brief.", store=True),
        body({**HELLO, "name": "ann"}),
        {"input[0].name": "unknown-field"},
    ),
    Case("no items", {"input": "Hello"}, body(), {"input": "empty-content"}),
    Case("an empty input", {"input": " "}, {"input": ""}, {"input": "empty-content"}),
    Case(
        "a strict schema that leaves something open",
        body(HELLO, text={"format": {**OPEN, "strict": False}}),
        body(HELLO, text={"format": OPEN}),
        {"text.format.schema": "shape", "text.format.schema.required": "shape"},
    ),
    Case(
        "instructions that are no text",
        body(HELLO, instructions=None),
        body(HELLO, instructions=[HELLO]),
        {"instructions": "shape"},
    ),
    Case(
        "an image the model can't take",
        body(image(image_url=f"data:image/webp;base64,{PNG}")),
        body(image(image_url=f"data:image/heic;base64,{PNG}")),
        {"input[0].content[0].image_url": "media"},
    ),
    Case(
        "an image that is nowhere",
        body(image(file_id="file-1")),
        body(image()),
        {"input[0].content[0]": "media"},
    ),
    Case(
        "a file of an unknown kind",
        body(file(file_data="data:text/csv;base64,YSxi", filename="a.csv")),
        body(file(file_data="data:application/zip;base64,YSxi", filename="a.zip")),
        {"input[0].content[0].file_data": "media"},
    ),
    Case(
        "a file from a disk",
        body(file(file_url="https://example.org/a.pdf")),
        body(file(file_url="file:///tmp/a.pdf")),
        {"input[0].content[0].file_url": "media"},
    ),
    Case(
        "a picture as a result",
        body(call(), result(output=[{"type": "input_file", "file_data": PDF, "filename": "a"}])),
        body(call(), result(output=[{"type": "output_text", "text": "a"}])),
        {"input[1].output[0]": "part-placement"},
    ),
    Case(
        "half of a surrogate pair",
        body({"role": "user", "content": "\N{CAT FACE}"}),
        body({"role": "user", "content": "\udc00"}),
        {"input[0].content": "text-encoding"},
    ),
    Case(
        "a custom tool's call",
        body(
            {"type": "custom_tool_call", "call_id": "a", "name": "shell", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "a.txt"},
        ),
        body(
            {"type": "custom_tool_call", "call_id": "a", "name": "shell", "input": "ls"},
            result("a"),
        ),
        {"input[0]": "call-without-result", "input[1]": "result-without-call"},
    ),
]
