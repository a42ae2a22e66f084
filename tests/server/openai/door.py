"""A server behind OpenAI's paths, asked in few words.

Every answer is held to the types of OpenAI's SDK, and to those that Open Responses publishes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from openai.types.conversations import Conversation, ConversationItemList
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_item_list import ResponseItemList
from pydantic import TypeAdapter

from tests.server.openai import published
from tests.server.scripted_server import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FUNCTION", "HOSTED", "Door", "check_event", "check_response", "read_events", "text_of"]

FUNCTION: Final = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
HOSTED: Final = {"type": "mcp", "server_label": "palaver", "allowed_tools": ["calculate"]}
_EVENT: Final[TypeAdapter[Any]] = TypeAdapter(ResponseStreamEvent)


def check_response(found: Mapping[str, Any]) -> None:
    """Check that a response is one by the SDK's types and by the published ones."""
    Response.model_validate(found, strict=False)
    assert isinstance(found["created_at"], int)
    published.check_object(found)


def check_event(found: Mapping[str, Any]) -> None:
    """Check that an event is one by the SDK's types and by the published ones."""
    _EVENT.validate_python(found)
    published.check_event(found)
    if "response" in found:
        check_response(found["response"])


def read_events(text: str) -> list[dict[str, Any]]:
    """The events of a stream; each is named as its type says."""
    found: list[dict[str, Any]] = []
    for block in text.split("\n\n"):
        fields: dict[str, str] = {}
        for line in block.splitlines():
            name, colon, value = line.partition(": ")
            if colon:
                fields[name] = value
        if "data" in fields:
            event = json.loads(fields["data"])
            assert event["type"] == fields["event"]
            found.append(event)
    return found


class Door(ScriptedServer):
    """A scripted server, asked as OpenAI's clients ask."""

    def create(self, given: Any = "Hi", **body: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """A whole response."""
        answer = self.ask.post("/v1/responses", json={"input": given, **body})
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        check_response(found)
        return found

    def stream(self, given: Any = "Hi", **body: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
        """The events of a response, checked one by one."""
        answer = self.ask.post("/v1/responses", json={"input": given, "stream": True, **body})
        assert answer.is_success, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        return self.checked(answer.text)

    def again(self, name: str, after: int | None = None) -> list[dict[str, Any]]:
        """The events of a response from one on."""
        query = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
        answer = self.ask.get(f"/v1/responses/{name}", params=query)
        assert answer.is_success, answer.text
        return self.checked(answer.text)

    @staticmethod
    def checked(text: str) -> list[dict[str, Any]]:
        """The events of a stream, checked one by one."""
        events = read_events(text)
        for event in events:
            check_event(event)
        return events

    def good(self, method: str, path: str, body: Any = None, **query: Any) -> Any:  # noqa: ANN401 - JSON
        """What a request that is granted answers."""
        answer = self.ask.request(method, f"/v1/{path}", json=body, params=query)
        assert answer.is_success, answer.text
        found = answer.json()
        kind = found.get("object")
        if kind in ("response", "response.compaction") and "output" in found:
            published.check_object(found)
        if path.endswith(("/input_items", "/items")) and "data" in found:
            for item in found["data"]:
                published.check_item(item)
        if path.endswith("/input_items"):
            ResponseItemList.model_validate(found)
        elif path.endswith("/items") and found["data"]:
            ConversationItemList.model_validate(found)
        elif found.get("object") == "conversation":
            Conversation.model_validate(found)
        return found

    def refused(self, path: str, body: Any, method: str = "POST") -> tuple[int, Any, str]:  # noqa: ANN401 - JSON
        """The status, the field and the code of a refusal in OpenAI's form."""
        answer = self.ask.request(method, f"/v1/{path}", json=body)
        assert not answer.is_success, answer.text
        error = answer.json()["error"]
        assert {"message", "type", "param", "code"} == error.keys()
        assert error["param"] is None or error["param"] in error["message"]
        return answer.status_code, error["param"], error["code"]

    def forget(self) -> None:
        """Forget what this process knows of responses that are over: the store has to know it."""
        self.app.door.responses.forget_finished()

    def asked(self, index: int = -1) -> list[Any]:
        """The messages of a request to the model."""
        actor: Any = self.app.service.models.get()
        messages: list[Any] = actor.asked[index].body["messages"]
        return messages


def text_of(response: Mapping[str, Any]) -> str:
    """What a response says."""
    return "".join(
        block["text"]
        for item in response["output"]
        if item["type"] == "message"
        for block in item["content"]
    )
