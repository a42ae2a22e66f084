"""Asking a server, in few words."""

from __future__ import annotations

from typing import Any, Final

from litestar.testing import TestClient

from palaver.server.app import App

__all__ = ["ADDRESS", "TOKEN", "APIClient"]

TOKEN: Final = "a-token-for-the-tests-alone"  # noqa: S105 - of no use elsewhere
ADDRESS: Final = "http://127.0.0.1:7007"


class APIClient(TestClient[App]):
    """A client whose answers are JSON, and whose refusals are checked to be problems."""

    def __init__(self, app: App, **more: Any) -> None:  # noqa: ANN401 - JSON, or whatever is asked for
        super().__init__(app, raise_server_exceptions=False, **more)

    def good(self, method: str, path: str, body: object = None, **more: Any) -> Any:  # noqa: ANN401 - JSON, or whatever is asked for
        """What a request that is granted answers."""
        answer = self.request(method, f"/api/{path}", json=body, **more)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def refused(self, method: str, path: str, body: object = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON, or whatever is asked for
        """The problem that a request ends in."""
        answer = self.request(method, f"/api/{path}", json=body, **more)
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        problem: dict[str, Any] = answer.json()
        assert problem["status"] == answer.status_code
        assert {"type", "title", "detail"} <= problem.keys()
        return problem

    def begun(self, *texts: str, **more: Any) -> str:  # noqa: ANN401 - JSON, or whatever is asked for
        """The id of a new conversation in which a user said some texts."""
        messages = [{"role": "user", "content": text} for text in texts]
        made: dict[str, Any] = self.good("POST", "conversations", {"messages": messages, **more})
        return str(made["id"])

    def texts(self, conversation: str, **query: Any) -> list[Any]:  # noqa: ANN401 - JSON, or whatever is asked for
        """What the messages of a conversation say."""
        found = self.good("GET", f"conversations/{conversation}/messages", params=query)
        return [text_of(item["message"]) for item in found["items"]]


def text_of(message: dict[str, Any]) -> Any:  # noqa: ANN401 - text, or parts that have none
    """What a message says; its parts where there is no text among them."""
    content = message["content"]
    if isinstance(content, str):
        return content
    texts = [part["text"] for part in content if part["type"] == "text"]
    return "".join(texts) if texts else content
