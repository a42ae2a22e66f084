"""Random requests over the four providers: each object and event is as Open Responses publishes it.

Whole, streamed, in the background or cancelled; with images, files, tools, structured output,
reasoning and instructions; after a response, in a conversation or alone; answered, refused, cut off
or broken in the middle. The door's checks (`door.py`) hold everything that comes back.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from pydantic import ValidationError

from palaver.models import model
from palaver.testing.servers import Answer, Call, ProviderServer, Refusal
from tests.conversation.scripted import Scripted
from tests.models.providers import KEYS, PROVIDERS, QUICK
from tests.profiles import steps
from tests.server.openai import published
from tests.server.openai.door import FUNCTION, HOSTED, Door, check_response
from tests.server.openai.test_schema import without_encrypted
from tests.server.scripted_server import wait_for

if TYPE_CHECKING:
    from collections.abc import Generator

NAMES = [provider.name for provider in PROVIDERS]
OTHER = {"type": "function", "name": "clock", "strict": True}
CUSTOM = {"type": "custom", "name": "patch"}
TOOLS = [FUNCTION, OTHER, HOSTED, CUSTOM]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
FILE = {
    "type": "input_file",
    "filename": "a.pdf",
    "file_data": "data:application/pdf;base64,aGk=",
}
Mode = Literal["whole", "stream", "background", "cancel"]
texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)


class Turn(Struct, frozen=True):
    """One request, and what the provider answers to it."""

    provider: str
    content: Any
    script: list[Any]
    fields: dict[str, Any]
    mode: Mode
    follows: Literal["previous", "conversation", "nothing"]


def maybe(**choices: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these fields."""
    return st.fixed_dictionaries({}, optional=choices)


def messages() -> st.SearchStrategy[Any]:
    """What a user says: a text, or parts."""
    text = st.builds(lambda text: {"type": "input_text", "text": text}, texts)
    detailed = st.sampled_from([{**IMAGE, "detail": each} for each in ("low", "high", "auto")])
    parts = st.lists(text | st.just(IMAGE) | detailed | st.just(FILE), max_size=2)
    content = texts | st.builds(lambda first, rest: [first, *rest], text, parts)
    said = st.builds(
        lambda content: {"type": "message", "role": "user", "content": content}, content
    )
    before = st.sampled_from(
        [
            {"type": "message", "role": "developer", "content": "Be brief."},
            {"role": "system", "content": [{"type": "input_text", "text": "Be kind."}]},
            {"role": "assistant", "content": "Well.", "phase": "commentary"},
        ]
    )
    return texts | st.builds(
        lambda before, said: [*before, said], st.lists(before, max_size=2), said
    )


def answers() -> st.SearchStrategy[Any]:
    """What a provider says, or how it fails."""
    calls = st.lists(
        st.sampled_from(
            [("weather", {"city": "Rome"}), ("weather", {}), ("clock", {}),
             ("calculate", {"expression": "6*7"}), ("calculate", {"expression": "?"}),
             ("patch", {"freeform_input": "+x"})]
        ),
        max_size=2,
    )  # fmt: skip
    said = st.builds(
        lambda text, reasoning, calls, piece: Answer(
            text,
            reasoning=reasoning,
            calls=[Call(name, given) for name, given in calls],
            piece=piece,
        ),
        texts | st.just('{"a": "b"}'),
        st.just("") | texts,
        calls,
        st.integers(1, 9),
    )
    failing = st.sampled_from(
        [
            Answer("I won't say that.", refused=True),
            Answer("Half an answer, or so", cut_after=4),
            Answer("Half an answer", reasoning="Let me think about it", cut_after=3),
            Refusal(400, "no such thing"),
            Refusal(429, "slowly", retry_after=0.01),
            Refusal(500),
        ]
    )
    return st.one_of(said, said, said, failing)


def fields() -> st.SearchStrategy[dict[str, Any]]:
    """What a request may say beside its input."""
    named = {"type": "function", "name": "clock"}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [named]}
    schema = {"type": "json_schema", "name": "a", "schema": SCHEMA}
    formats = [{"type": "text"}, {"type": "json_object"}, schema,
               {**schema, "strict": True, "description": "An a."}]  # fmt: skip
    return maybe(
        instructions=texts,
        tool_choice=st.sampled_from(["none", "auto", named, allowed]),
        parallel_tool_calls=st.booleans(),
        text=maybe(format=st.sampled_from(formats), verbosity=st.sampled_from(["low", "high"])),
        reasoning=maybe(
            effort=st.sampled_from(["low", "high", None]),
            summary=st.sampled_from(["auto", "concise", "detailed", None]),
        ),
        metadata=st.just({}) | st.just({"topic": "tea"}),
        max_output_tokens=st.integers(16, 4_000),
        temperature=st.sampled_from([0, 0.5, 1]),
        top_p=st.sampled_from([1, 0.9]),
        truncation=st.sampled_from(["auto", "disabled"]),
        include=st.just(["reasoning.encrypted_content"]),
        service_tier=st.sampled_from(["auto", "default"]),
        safety_identifier=texts,
        prompt_cache_key=texts,
        user=texts,
        store=st.sampled_from([True, None]),
    )


def turns() -> st.SearchStrategy[Turn]:
    """A request with everything that goes with it."""
    modes: list[Mode] = ["whole", "stream", "stream", "background", "cancel"]
    return st.builds(
        Turn,
        st.sampled_from(NAMES),
        messages(),
        st.lists(answers(), min_size=1, max_size=2),
        fields(),
        st.sampled_from(modes),
        st.sampled_from(["previous", "previous", "conversation", "nothing"]),
    )


class Client:
    """Sends one turn after the other, and looks at everything that there is afterwards."""

    def __init__(self, door: Door, servers: dict[str, ProviderServer]) -> None:
        self.door, self.servers = door, servers

    def run(self, script: list[Turn]) -> None:
        """Take the turns; what an answer asks for is sent with the next one."""
        conversation = self.door.good("POST", "conversations", {})["id"]
        last: dict[str, Any] = {}
        waiting: list[dict[str, Any]] = []
        for turn in script:
            body = {"model": turn.provider, "input": turn.content, "tools": TOOLS, **turn.fields}
            if last and (turn.follows == "previous" or waiting):
                body["previous_response_id"] = last["id"]
                said = turn.content
                said = [{"role": "user", "content": said}] if isinstance(said, str) else said
                body["input"] = [*waiting, *said]
            elif turn.follows == "conversation":
                body["conversation"] = conversation
            self.servers[turn.provider]._script = [*turn.script]
            found = self._send(turn.mode, body)
            if found is None:
                continue
            self._look(found)
            if "conversation" in body:
                self._look_into(conversation)
                conversation = self.door.good("POST", "conversations", {})["id"]
            last = found
            waiting = [
                {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "ok"}
                for item in found["output"]
                if item["type"] in ("function_call", "custom_tool_call")
            ]
        for name, server in self.servers.items():
            assert [] == server.failures, name

    def _send(self, mode: Mode, body: dict[str, Any]) -> dict[str, Any] | None:
        """Send a request; None if it was refused, in OpenAI's form and with a field of its own."""
        body |= {"stream": True} if mode == "stream" else {}
        body |= {"background": True} if mode in ("background", "cancel") else {}
        answer = self.door.ask.post("/v1/responses", json=body)
        if not answer.is_success:
            error = answer.json()["error"]
            assert {"message", "type", "param", "code"} == error.keys()
            assert answer.status_code in (400, 429, 502), error
            named = (error["param"] or "").partition(".")[0].partition("[")[0]
            assert error["param"] is None or named in body
            assert (
                answer.status_code != 400 or error["param"] or "no such thing" in error["message"]
            )
            return None
        if mode == "stream":
            events = self.door.checked(answer.text)
            assert list(range(len(events))) == [event["sequence_number"] for event in events]
            found: dict[str, Any] = events[-1]["response"]
            self.door.forget()
            again = self.door.again(found["id"])
            assert [*map(without_encrypted, events)] == [*map(without_encrypted, again)]
            return found
        found = answer.json()
        check_response(found)
        path = f"responses/{found['id']}"
        if mode == "cancel":
            self.door.good("POST", f"{path}/cancel")
        if mode in ("background", "cancel"):
            over = ("completed", "failed", "incomplete", "cancelled")
            found = wait_for(lambda: (got := self.door.good("GET", path))["status"] in over and got)
        return found

    def _look(self, response: dict[str, Any]) -> None:
        """Read a response and its stream again, and what it was given."""
        path = f"responses/{response['id']}"
        for _ in range(2):  # what this process knows, then what the store knows
            assert response == self.door.good("GET", path)
            events = self.door.again(response["id"])
            assert response == events[-1]["response"]
            assert events[3:] == self.door.again(response["id"], 2)
            self.door.forget()
        self.door.good("GET", f"{path}/input_items", limit=100)

    def _look_into(self, conversation: str) -> None:
        """Read the items of a conversation, in a list and one by one."""
        for item in self.door.good("GET", f"conversations/{conversation}/items", limit=100)["data"]:
            path = f"conversations/{conversation}/items/{item['id']}"
            published.check_item(self.door.good("GET", path))


@pytest.fixture(scope="module")
def client() -> Generator[Client]:
    """A server in front of all four providers."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        servers = {
            each.name: stack.enter_context(ProviderServer(each.format)) for each in PROVIDERS
        }
        door = stack.enter_context(Door(Scripted(), model=None))
        registry = door.app.service.models
        made = {name: model(name, base_url=servers[name].url, retries=QUICK) for name in NAMES}
        patch.setattr(registry, "_make", made.__getitem__)
        yield Client(door, servers)


@settings(max_examples=steps(40, in_faults=1_000), deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(script=st.lists(turns(), min_size=1, max_size=4))
def test_every_object_and_event_is_as_published(client: Client, script: list[Turn]) -> None:
    client.run(script)


def test_a_compaction_is_as_published(client: Client) -> None:
    for name in NAMES:
        client.servers[name]._script = [Answer("They meet on Monday.", reasoning="Hm")]
        body = {"model": name, "input": "We meet on Monday.", "instructions": "Be brief."}
        found = client.door.good("POST", "responses/compact", body)
        assert "response.compaction" == found["object"]
        client.servers[name]._script = [Answer("Monday.")]
        given = [*found["output"], {"role": "user", "content": "When?"}]
        shown = client.door.create(given, model=name)
        client.door.good("GET", f"responses/{shown['id']}/input_items")


# ── the checks themselves ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"created_at": "5"}, "created_at"),
        ({"temperature": None}, "temperature"),
        ({"text": {"format": {"type": "text"}, "verbosity": None}}, "verbosity"),
        ({"truncation": "sometimes"}, "truncation"),
        ({"output": [{"type": "message", "id": "m", "role": "user", "content": []}]}, "status"),
        ({"output": [{"type": "reasoning", "id": "r", "summary": [], "encrypted_content": None}]},
         "encrypted_content"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)  # fmt: skip
def test_what_is_not_as_published_is_found(
    client: Client, change: dict[str, Any], where: str
) -> None:
    client.servers[NAMES[0]]._script = [Answer("Yes.")]
    good = client.door.create("Hi", model=NAMES[0])
    with pytest.raises((AssertionError, ValidationError), match=where):
        published.check_object({**good, **change})


def test_every_event_of_the_specification_is_known() -> None:
    assert {"response.created", "response.output_text.delta", "error"} < published.EVENTS.keys()
    assert 24 == len(published.EVENTS)
