"""Gemini generateContent."""

from __future__ import annotations

from tests.testing.providers.case import PDF, PNG, Case, Json

SIGNATURE = "c2ln"


def body(*contents: object, **more: object) -> Json:
    return {"contents": list(contents), **more}


def user(*parts: object) -> Json:
    return {"role": "user", "parts": list(parts)}


def model(*parts: object) -> Json:
    return {"role": "model", "parts": list(parts)}


def call(
    tool: str = "weather", *, args: object = None, sign: str = SIGNATURE, **more: object
) -> Json:
    made = {"name": tool, "args": {} if args is None else args, **more}
    return {"functionCall": made, **({"thoughtSignature": sign} if sign else {})}


def result(tool: str = "weather", **more: object) -> Json:
    return {"functionResponse": {"name": tool, "response": {"output": "9 °C"}, **more}}


HELLO: Json = user({"text": "Hello"})
HI: Json = model({"text": "Hi"})
FIVE = [f"tool_{n}" for n in range(5)]


def declared(*names: str) -> list[Json]:
    return [{"functionDeclarations": [{"name": name} for name in names]}]


CASES = [
    Case(
        "orphan call",
        body(HELLO, model(call()), user(result())),
        body(HELLO, model(call()), HELLO),
        {"contents[1].parts[0]": "call-without-result"},
    ),
    Case(
        "an open call at the end",
        body(HELLO, model(call()), user(result())),
        body(HELLO, model(call())),
        {"contents[1].parts[0]": "call-without-result", "contents[1]": "last-role"},
    ),
    Case(
        "five parallel calls with one missing",
        body(HELLO, model(*map(call, FIVE)), user(*map(result, reversed(FIVE)))),
        body(HELLO, model(*map(call, FIVE)), user(*map(result, FIVE[:4]))),
        {"contents[1].parts[4]": "call-without-result"},
    ),
    Case(
        "one function called twice",
        body(HELLO, model(call(), call()), user(result(), result())),
        body(HELLO, model(call(), call()), user(result())),
        {"contents[1].parts[1]": "call-without-result"},
    ),
    Case(
        "orphan response",
        body(HELLO, model(call()), user(result())),
        body(HELLO, HI, user(result())),
        {"contents[2].parts[0]": "result-without-call"},
    ),
    Case(
        "two responses for one call",
        body(HELLO, model(call(id="a")), user(result(id="a"))),
        body(HELLO, model(call(id="a")), user(result(id="a"), result(id="a"))),
        {"contents[2].parts[1]": "duplicate-result"},
    ),
    Case(
        "response before its call",
        body(HELLO, model(call(id="a")), user(result(id="a")), HI, HELLO),
        body(user(result(id="a")), model(call(id="a")), HELLO),
        {
            "contents[0].parts[0]": "result-out-of-order",
            "contents[1].parts[0]": "call-without-result",
        },
    ),
    Case(
        "words before a response",
        body(HELLO, model(call(id="a")), user(result(id="a")), HELLO),
        body(HELLO, model(call(id="a")), HELLO, user(result(id="a"))),
        {
            "contents[3].parts[0]": "result-out-of-order",
            "contents[1].parts[0]": "call-without-result",
        },
    ),
    Case(
        "words beside a response",
        body(HELLO, model(call()), user(result()), HELLO),
        body(HELLO, model(call()), user(result(), {"text": "Go on."})),
        {"contents[2]": "result-not-alone"},
    ),
    Case(
        "two calls of one id",
        body(HELLO, model(call(id="a"), call(id="b")), user(result(id="a"), result(id="b"))),
        body(HELLO, model(call(id="a"), call(id="a")), user(result(id="a"))),
        {"contents[1].parts[1]": "duplicate-call-id"},
    ),
    Case(
        "the response of another function",
        body(HELLO, model(call("a", id="1")), user(result("a", id="1"))),
        body(HELLO, model(call("a", id="1")), user(result("b", id="1"))),
        {"contents[2].parts[0]": "tool-name"},
    ),
    Case(
        "a tool name with a slash",
        body(HELLO, model(call("maps.find:1")), user(result("maps.find:1"))),
        body(HELLO, model(call("maps/find")), user(result("maps/find"))),
        {
            "contents[1].parts[0].functionCall.name": "tool-name",
            "contents[2].parts[0].functionResponse.name": "tool-name",
        },
    ),
    Case(
        "a tool name that begins with a digit",
        body(HELLO, tools=[*declared("_" + "1" * 127), {"googleSearch": {}}]),
        body(HELLO, tools=declared("21st")),
        {"tools[0].functionDeclarations[0].name": "tool-name"},
    ),
    Case(
        "two tools of one name",
        body(HELLO, tools=declared("a", "b")),
        body(HELLO, tools=declared("a", "a")),
        {"tools[0].functionDeclarations[1]": "duplicate-tool"},
    ),
    Case(
        "arguments that are no object",
        body(HELLO, model(call(args={"at": 1})), user(result())),
        body(HELLO, model(call(args="{}")), user(result())),
        {"contents[1].parts[0].functionCall.args": "call-arguments"},
    ),
    Case(
        "a call without its signature",
        body(HELLO, model(call("a"), call("b", sign="")), user(result("a"), result("b"))),
        body(HELLO, model(call("a", sign=""), call("b")), user(result("a"), result("b"))),
        {"contents[1].parts[0]": "missing-signature"},
    ),
    Case(
        "a call of an earlier turn without its signature",
        body(HELLO, model(call(sign="")), user(result()), HI, HELLO),
        body(HELLO, model(call()), user(result()), model(call(sign="")), user(result())),
        {"contents[3].parts[0]": "missing-signature"},
    ),
    Case(
        "a call without a signature, for an older model",
        body(HELLO, model(call(sign="")), user(result()), model="gemini-2.5-pro"),
        body(HELLO, model(call(sign="")), user(result()), model="gemini-3-pro"),
        {"contents[1].parts[0]": "missing-signature"},
    ),
    Case(
        "a signature that is no base64",
        body(
            HELLO,
            model({"text": "Hi", "thoughtSignature": "skip_thought_signature_validator"}),
            HELLO,
        ),
        body(HELLO, model({"text": "Hi", "thoughtSignature": "sig 1"}), HELLO),
        {"contents[1].parts[0].thoughtSignature": "foreign-reasoning"},
    ),
    Case(
        "thoughts of the user",
        body(HELLO, model({"text": "Hm.", "thought": True}, {"text": "Hi"}), HELLO),
        body(user({"text": "Hm.", "thought": True})),
        {"contents[0].parts[0]": "reasoning-placement"},
    ),
    Case(
        "an empty text",
        body(HELLO, model({"text": "", "thoughtSignature": SIGNATURE}), HELLO),
        body(HELLO, model({"text": ""}), HELLO),
        {"contents[1].parts[0]": "empty-text"},
    ),
    Case(
        "a part with nothing in it",
        body(HELLO, model({"text": " "}), HELLO),
        body(HELLO, model({"thoughtSignature": SIGNATURE}), HELLO),
        {"contents[1].parts[0]": "empty-content"},
    ),
    Case("no parts", body(HELLO), body(user()), {"contents[0].parts": "empty-content"}),
    Case("no contents", body(HELLO), body(), {"contents": "empty-content"}),
    Case("model first", body(HELLO, HI, HELLO), body(HI, HELLO), {"contents[0]": "first-role"}),
    Case("model last", body(HELLO), body(HELLO, HI), {"contents[1]": "last-role"}),
    Case(
        "two of the model's in a row",
        body(HELLO, HI, HELLO),
        body(HELLO, HI, HI, HELLO),
        {"contents[2]": "alternation"},
    ),
    Case(
        "two of the user's in a row",
        body(HELLO, model(call()), user(result()), HELLO),
        body(HELLO, HELLO),
        {"contents[1]": "alternation"},
    ),
    Case(
        "a system turn",
        body(HELLO, systemInstruction={"parts": [{"text": "Be brief."}]}),
        body({"role": "system", "parts": [{"text": "Be brief."}]}, HELLO),
        {"contents[0].role": "role"},
    ),
    Case(
        "an image as system text",
        body(HELLO, systemInstruction={"role": "user", "parts": [{"text": "Be brief."}]}),
        body(HELLO, systemInstruction={"parts": [{"fileData": {"fileUri": "gs://a/b"}}]}),
        {"systemInstruction.parts[0]": "part-placement"},
    ),
    Case(
        "a call of the user's",
        body(HELLO, model({"executableCode": {"code": "1", "language": "PYTHON"}}), HELLO),
        body(user({"executableCode": {"code": "1", "language": "PYTHON"}})),
        {"contents[0].parts[0]": "part-placement"},
    ),
    Case(
        "an image the model can't take",
        body(user({"inlineData": {"mimeType": "image/png", "data": PNG}})),
        body(user({"inlineData": {"mimeType": "image/gif", "data": PNG}})),
        {"contents[0].parts[0].inlineData.mimeType": "media"},
    ),
    Case(
        "names in snake_case, as Google's SDK sends some",
        body(
            user({"inline_data": {"mime_type": "image/png", "data": PNG}}),
            tools=[{"function_declarations": [{"name": "f", "parameters_json_schema": {}}]}],
        ),
        body(user({"inline_data": {"mime_type": "image/gif", "mimeType": "image/gif"}})),
        {
            "contents[0].parts[0].inlineData.data": "shape",
            "contents[0].parts[0].inlineData.mimeType": "media",
            "contents[0].parts[0].inlineData.mime_type": "unknown-field",
        },
    ),
    Case(
        "an image that is no base64",
        body(user({"inlineData": {"mimeType": "application/pdf", "data": PDF.rstrip("=")}})),
        body(user({"inlineData": {"mimeType": "application/pdf", "data": "%PDF"}})),
        {"contents[0].parts[0].inlineData.data": "media"},
    ),
    Case(
        "a file from a disk",
        body(user({"fileData": {"fileUri": "gs://bucket/a.pdf", "mimeType": "application/pdf"}})),
        body(user({"fileData": {"fileUri": "file:///tmp/a.pdf", "mimeType": "application/pdf"}})),
        {"contents[0].parts[0].fileData.fileUri": "media"},
    ),
    Case(
        "an unknown part",
        body(user({"text": "Hello"})),
        body(user({"type": "text"})),
        {"contents[0].parts[0].type": "unknown-field", "contents[0].parts[0]": "unknown-part"},
    ),
    Case(
        "two things in one part",
        body(user({"text": "Hello"}, {"inlineData": {"mimeType": "image/png", "data": PNG}})),
        body(user({"text": "Hello", "inlineData": {"mimeType": "image/png", "data": PNG}})),
        {"contents[0].parts[0]": "shape"},
    ),
    Case(
        "a role that is the assistant's",
        body(HELLO, HI, HELLO),
        body(HELLO, {**HI, "role": "assistant"}, HELLO),
        {"contents[1].role": "role"},
    ),
    Case(
        "half of a surrogate pair",
        body(user({"text": "\N{CAT FACE}"})),
        body(user({"text": "\ud83d"})),
        {"contents[0].parts[0].text": "text-encoding"},
    ),
]
