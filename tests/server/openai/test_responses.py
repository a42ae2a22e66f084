"""Responses: what they follow, what is stored of them, and what is refused."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from openai.types.responses import (
    EasyInputMessageParam,
    ParsedResponseFunctionToolCall,
    ParsedResponseOutputText,
    ResponseCompactionItem,
    ResponseCustomToolCall,
    ResponseCustomToolCallOutputParam,
    ResponseFunctionToolCallItem,
    ResponseFunctionToolCallOutputItem,
    ResponseOutputMessage,
    ResponseReasoningItem,
)
from openai.types.responses import response_input_item_param as items

from palaver.messages import user
from palaver.messages.parts import FREEFORM
from palaver.server.openai import responses
from palaver.server.openai.events import LiveEvents
from palaver.server.openai.ids import read_response_id
from palaver.server.openai.shapes import _ITEM_TYPES, _OutputText
from tests.conversation.scripted import Scripted, calling, saying
from tests.server.openai.door import FUNCTION, HOSTED, Door, text_of
from tests.server.scripted_server import wait_for

if TYPE_CHECKING:
    from collections.abc import Generator


def conversation_of(response: dict[str, Any]) -> str:
    name = read_response_id(response["id"])
    assert name is not None
    return name.conversation


def texts(items: list[Any]) -> list[str]:
    return [item["content"] for item in items]


# ── what follows what ───────────────────────────────────────────────────────────────────────────


def test_a_follow_up_goes_on_in_the_same_conversation_and_sends_nothing_twice() -> None:
    with Door(Scripted(saying("One."), saying("Two."))) as door:
        first = door.create("Hi")
        second = door.create("More", previous_response_id=first["id"])
        assert conversation_of(first) == conversation_of(second)
        assert ["Hi", "One.", "More"] == texts(door.asked())
        assert "Two." == text_of(second)
        assert first["id"] == second["previous_response_id"]


def test_an_older_response_is_forked_and_shares_its_messages() -> None:
    with Door(Scripted(*map(saying, ("One.", "Two.", "Three.")))) as door:
        first = door.create("Hi")
        door.create("More", previous_response_id=first["id"])
        other = door.create("Else", previous_response_id=first["id"])
        assert conversation_of(first) != conversation_of(other)
        assert ["Hi", "One.", "Else"] == texts(door.asked())
        head = door.store.head(conversation_of(other))
        assert (conversation_of(first), 2) == (head.parent, head.base)


def test_input_items_show_forks_and_deletions() -> None:
    with Door(Scripted(*map(saying, ("One.", "Two.", "Three.", "Four.")))) as door:

        def given(response: dict[str, Any]) -> list[str]:
            path = f"responses/{response['id']}/input_items"
            found = door.good("GET", path, order="asc")["data"]
            return [item["content"][0]["text"] for item in found]

        first = door.create("Hi")
        second = door.create("More", previous_response_id=first["id"])
        other = door.create("Else", previous_response_id=first["id"])
        assert ["Hi", "One.", "More"] == given(second)
        assert ["Hi", "One.", "Else"] == given(other)
        item = first["output"][0]["id"]
        door.good("DELETE", f"conversations/{conversation_of(first)}/items/{item}")
        third = door.create("Last", previous_response_id=second["id"])
        assert ["Hi", "More", "Two.", "Last"] == given(third)
        assert ["Hi", "One.", "More"] == given(second), "it is what it was"
        assert ["Hi", "One.", "Else"] == given(other)


def test_instructions_are_those_of_one_response_only() -> None:
    with Door(Scripted(saying("Aye."), saying("Yes."))) as door:
        first = door.create("Hi", instructions="Talk like a pirate.")
        assert "Talk like a pirate." == first["instructions"]
        assert ["Talk like a pirate.", "Hi"] == texts(door.asked())
        second = door.create("And?", previous_response_id=first["id"])
        assert ["Hi", "Aye.", "And?"] == texts(door.asked())
        assert second["instructions"] is None


def test_what_was_edited_between_two_responses_holds() -> None:
    with Door(Scripted(saying("4 km"), saying("So it is."))) as door:
        first = door.create("How high?")
        history = door.store.get(conversation_of(first))
        history.replace(1, {"role": "assistant", "content": "4,810 m"})
        second = door.create("Sure?", previous_response_id=first["id"])
        assert ["How high?", "4,810 m", "Sure?"] == texts(door.asked())
        shown = door.good("GET", f"responses/{second['id']}/input_items", order="asc")["data"]
        assert ["How high?", "4,810 m", "Sure?"] == [item["content"][0]["text"] for item in shown]
        assert "4 km" == text_of(door.good("GET", f"responses/{first['id']}")), "it is what it was"


def test_an_edit_before_the_next_response_belongs_to_the_state_that_a_fork_begins_with() -> None:
    with Door(Scripted(*map(saying, ("One.", "Two.", "Three.")))) as door:
        first = door.create("Hi")
        door.store.get(conversation_of(first)).append(user("P.S."))
        door.create("More", previous_response_id=first["id"])
        door.create("Else", previous_response_id=first["id"])
        assert ["Hi", "One.", "P.S.", "Else"] == texts(door.asked())


def test_what_was_erased_is_gone_from_responses_and_their_input() -> None:
    with Door(Scripted(saying("The code is 1234."), saying("Fine."))) as door:
        first = door.create("The code?")
        second = door.create("Thanks", previous_response_id=first["id"])
        door.store.get(conversation_of(first)).erase(1)
        door.forget()
        again = door.good("GET", f"responses/{first['id']}")
        shown = door.good("GET", f"responses/{second['id']}/input_items")
        assert "1234" not in str(again) + str(shown)


def test_of_follow_ups_at_once_one_goes_on_and_the_others_fork() -> None:
    with Door(Scripted(*[saying("Yes.")] * 9)) as door:
        first = door.create("Hi")

        def follow(number: int) -> dict[str, Any]:
            return door.create(f"Follow {number}", previous_response_id=first["id"])

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(follow, range(8)))
        assert 8 == len({conversation_of(each) for each in found})
        assert conversation_of(first) in {conversation_of(each) for each in found}
        asked = sorted(texts(door.asked(index))[-1] for index in range(1, 9))
        assert [f"Follow {number}" for number in range(8)] == asked


def test_a_conversation_takes_responses_in_turn() -> None:
    with Door(Scripted(saying("One."), saying("Two."))) as door:
        name = door.good("POST", "conversations", {"metadata": {"topic": "tea"}})["id"]
        first = door.create("Hi", conversation=name)
        assert {"id": name} == first["conversation"]
        second = door.create("More", conversation={"id": name})
        assert name == conversation_of(first) == conversation_of(second)
        assert ["Hi", "One.", "More"] == texts(door.asked())


def test_a_conversation_of_the_page_can_be_answered_without_a_new_input() -> None:
    with Door(Scripted(saying("Yes."))) as door:
        name = door.ask.begun("Tea?")
        assert "Yes." == text_of(door.create([], conversation=name))
        assert ["Tea?", "Yes."] == door.ask.texts(name)


# ── tools ───────────────────────────────────────────────────────────────────────────────────────


def test_a_function_of_the_client_ends_the_response_and_its_output_begins_the_next() -> None:
    answers = (calling(("weather", {"city": "Rome"})), saying("Sunny."))
    with Door(Scripted(*answers)) as door:
        first = door.create("Weather?", tools=[FUNCTION])
        (call,) = first["output"]
        assert ("function_call", "weather") == (call["type"], call["name"])
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
        second = door.create([output], previous_response_id=first["id"], tools=[FUNCTION])
        assert "Sunny." == text_of(second)
        assert {"role": "tool", "tool_call_id": "call_0", "content": "sun"} == door.asked()[-1]
        assert [] == door.calls(conversation_of(first))
        shown = door.good("GET", f"responses/{second['id']}/input_items")["data"]
        assert ["function_call_output", "function_call", "message"] == [i["type"] for i in shown]


def test_a_call_without_its_output_is_named() -> None:
    with Door(Scripted(calling(("weather", {})))) as door:
        first = door.create("Weather?", tools=[FUNCTION])
        body = {"input": "Well?", "previous_response_id": first["id"]}
        assert (400, "input", "missing_tool_output") == door.refused("responses", body)
        body["input"] = [{"type": "function_call_output", "call_id": "call_9", "output": "sun"}]
        wanted = (400, "input[0].call_id", "call_not_found")
        assert wanted == door.refused("responses", body)


def test_tools_of_the_server_run_inside_and_are_shown_with_their_output() -> None:
    answers = (calling(("calculate", {"expression": "6*7"})), saying("42."))
    with Door(Scripted(*answers)) as door:
        response = door.create("Six by seven?", tools=[HOSTED])
        call, message = response["output"]
        assert ("mcp_call", "calculate", "completed") == (
            call["type"],
            call["name"],
            call["status"],
        )
        assert "6*7 = 42" == call["output"]
        assert "42." == message["content"][0]["text"]
        assert response == door.good("GET", f"responses/{response['id']}")


def test_a_call_of_the_server_may_wait_for_an_approval() -> None:
    answers = (calling(("calculate", {"expression": "1+1"})), saying("2."))
    with Door(Scripted(*answers)) as door:
        tools = [{**HOSTED, "require_approval": "always"}]
        first = door.create("One and one?", tools=tools)
        (asked,) = first["output"]
        assert "mcp_approval_request" == asked["type"]
        given = {
            "type": "mcp_approval_response",
            "approval_request_id": asked["id"],
            "approve": True,
        }
        second = door.create([given], previous_response_id=first["id"], tools=tools)
        assert "2." == text_of(second)
        assert [("completed", "1+1 = 2")] == door.results(conversation_of(first))


def test_a_tool_that_takes_free_text_gets_it_as_it_is() -> None:
    answers = (calling(("patch", {"freeform_input": "*** Begin\n+x"})), saying("Done."))
    with Door(Scripted(*answers)) as door:
        tools = [{"type": "custom", "name": "patch", "description": "Apply a patch."}]
        events = door.stream("Patch it", tools=tools)
        first = events[-1]["response"]
        (call,) = first["output"]
        assert ("custom_tool_call", "*** Begin\n+x") == (call["type"], call["input"])
        output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "ok"}
        assert "Done." == text_of(door.create([output], previous_response_id=first["id"]))


def test_tools_in_a_namespace_are_called_by_both_names() -> None:
    patch = {"type": "custom", "name": "patch"}
    grouped = {
        "type": "namespace",
        "name": "crm",
        "description": "Customers.",
        "tools": [FUNCTION, patch],
    }
    answers = calling(("crm/weather", {"city": "Rome"})), calling(("crm/patch", {FREEFORM: "+x"}))
    with Door(Scripted(*answers, calling(("weather", {})), saying("Done."))) as door:
        fields = {"tools": [grouped, FUNCTION]}
        events = door.stream("Go", **fields)
        first = events[-1]["response"]
        (call,) = first["output"]
        names = {"name": "weather", "namespace": "crm"}
        assert names == {name: call[name] for name in names}
        again = door.again(first["id"])
        assert events == again
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
        second = door.create([output], previous_response_id=first["id"], **fields)
        (free,) = second["output"]
        assert ("custom_tool_call", "patch", "crm") == tuple(
            free[name] for name in ("type", "name", "namespace")
        )
        given = [{"role": "user", "content": "Go"}, call, output]
        (plain,) = door.create(given, **fields)["output"]
        assert ("weather", False) == (plain["name"], "namespace" in plain)
        assert "crm_weather" in str(door.asked()), "as the provider allows names"
        twice = {"input": "Hi", "tools": [grouped, grouped]}
        assert (400, "tools[1].tools[0].name", "duplicate_tool") == door.refused("responses", twice)


def test_only_the_allowed_tools_are_offered() -> None:
    with Door(Scripted(saying("No."))) as door:
        other = {**FUNCTION, "name": "clock"}
        choice = {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "clock"}],
        }
        door.create("Hi", tools=[FUNCTION, other], tool_choice=choice)
        actor: Any = door.app.service.models.get()
        assert ["clock"] == [tool.name for tool in actor.asked[-1].tools]


# ── the model and its options ───────────────────────────────────────────────────────────────────


def test_options_reach_the_model_and_are_given_back() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    given = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 50,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}},
        "metadata": {"who": "me"},
        "tools": [FUNCTION],
        "tool_choice": {"type": "function", "name": "weather"},
        "parallel_tool_calls": False,
        "safety_identifier": "me",
        "prompt_cache_key": "k",
        "user": "me",
    }
    with Door(Scripted(saying('{"a": 1}'))) as door:
        response = door.create("Hi", **given)
        actor: Any = door.app.service.models.get()
        assert {
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 50,
            "effort": "low",
            "schema": schema,
            "tool_choice": "weather",
            "extra": {"parallel_tool_calls": False},
        } == actor.asked[-1].options
        for name in ("temperature", "top_p", "max_output_tokens", "metadata", "user"):
            assert given[name] == response[name]
        assert schema == response["text"]["format"]["schema"]
        assert "low" == response["reasoning"]["effort"]


def test_what_is_larger_than_the_window_is_truncated_if_the_client_allows_it() -> None:
    with Door(Scripted(*(saying(each, used=None) for each in ("One.", "Two.", "Three.")))) as door:
        first = door.create("long " * 9_000)
        second = door.create("Short", previous_response_id=first["id"], truncation="auto")
        assert ["One.", "Short"] == texts(door.asked())
        door.create("And?", previous_response_id=second["id"])
        before = door.store.get(conversation_of(first)).at(2)
        assert 9_000 < len(before[0].text), "the version before it has everything"


def test_an_answer_that_was_cut_off_says_so() -> None:
    with Door(Scripted(saying("Too lo", finish="length"))) as door:
        response = door.create("Hi", max_output_tokens=2)
        assert "incomplete" == response["status"]
        assert {"reason": "max_output_tokens"} == response["incomplete_details"]
        assert "incomplete" == response["output"][0]["status"]


# ── storing ─────────────────────────────────────────────────────────────────────────────────────


def test_a_stored_response_is_read_as_it_was_answered() -> None:
    with Door(Scripted(saying("Hello", "."))) as door:
        response = door.create("Hi", instructions="Be kind.", metadata={"a": "b"})
        door.forget()
        assert response == door.good("GET", f"responses/{response['id']}")


def test_a_response_that_is_not_to_be_stored_leaves_nothing() -> None:
    with Door(Scripted(saying("One."), saying("Two."))) as door:
        first = door.create("Hi")
        before = door.store.newest()
        second = door.create("Secret", store=False, previous_response_id=first["id"])
        assert second["store"] is False
        assert ["Hi", "One.", "Secret"] == texts(door.asked())
        assert before == door.store.newest()
        assert 404 == door.ask.get(f"/v1/responses/{second['id']}").status_code
        assert not [each for each in door.told if "Secret" in str(each) or "Two." in str(each)]


def test_a_deleted_response_is_gone_and_a_conversation_of_its_own_goes_with_it() -> None:
    with Door(Scripted(saying("One."), saying("Two."))) as door:
        first = door.create("Hi")
        second = door.create("More", previous_response_id=first["id"])
        gone = door.good("DELETE", f"responses/{first['id']}")
        assert {"id": first["id"], "object": "response", "deleted": True} == gone
        assert 404 == door.ask.get(f"/v1/responses/{first['id']}").status_code
        wanted = (404, "previous_response_id", "previous_response_not_found")
        body = {"input": "x", "previous_response_id": first["id"]}
        assert wanted == door.refused("responses", body)
        assert door.good("GET", f"responses/{second['id']}")
        with Door(Scripted(saying("One."))) as other:
            alone = other.create("Hi")
            other.good("DELETE", f"responses/{alone['id']}")
            assert conversation_of(alone) not in other.store


def test_input_comes_back_out_if_nothing_answered_it_so_that_it_can_be_sent_again() -> None:
    def broken() -> list[Any]:
        return [ConnectionError("the line is down")]

    with Door(Scripted(saying("One."), broken(), saying("Two."))) as door:
        name = door.good("POST", "conversations", {})["id"]
        door.create("Hi", conversation=name)
        answer = door.ask.post("/v1/responses", json={"input": "More", "conversation": name})
        assert 500 == answer.status_code
        assert ["Hi", "One."] == door.ask.texts(name)
        door.create("More", conversation=name)
        assert ["Hi", "One.", "More"] == texts(door.asked())


def test_a_failed_stream_ends_with_what_had_arrived() -> None:
    broken = [*saying("Half an ans")[:1], ConnectionError("the line is down")]
    with Door(Scripted(broken, saying("Whole."))) as door:
        events = door.stream("Hi")
        assert "response.failed" == events[-1]["type"]
        response = events[-1]["response"]
        assert ("failed", "server_error") == (response["status"], response["error"]["code"])
        assert "Half an ans" == text_of(response)
        assert "incomplete" == response["output"][0]["status"]
        assert "Whole." == text_of(door.create("Again", previous_response_id=response["id"]))


# ── background, cancel, streams ─────────────────────────────────────────────────────────────────


def test_a_response_in_the_background_is_asked_for_later() -> None:
    with Door(Scripted(saying("Done."))) as door:
        begun = door.create("Hi", background=True)
        assert "in_progress" == begun["status"]
        path = f"responses/{begun['id']}"
        over = wait_for(lambda: (got := door.good("GET", path))["status"] == "completed" and got)
        assert "Done." == text_of(over)


def test_a_cancelled_response_has_what_had_arrived() -> None:
    with Door(Scripted([*saying("Half")[:1], None])) as door:
        begun = door.create("Hi", background=True)
        conversation = conversation_of(begun)
        door.arrived(conversation, "Half")
        busy = {"input": "x", "previous_response_id": begun["id"]}
        assert (409, None, "conversation_locked") == door.refused("responses", busy)
        assert 409 == door.refused(f"responses/{begun['id']}", None, "DELETE")[0]
        over = door.good("POST", f"responses/{begun['id']}/cancel")
        assert ("cancelled", "Half") == (over["status"], text_of(over))
        assert over == door.good("POST", f"responses/{begun['id']}/cancel")


def test_a_response_that_is_cancelled_when_it_is_complete_ends_as_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Door(Scripted(saying("Done."))) as door:
        steps, wait = door.app.service.steps, LiveEvents.wait

        def cancel(events: LiveEvents, items: Any) -> None:  # noqa: ANN401 - JSON
            wait(events, items)
            for running in steps._running.values():
                running.scope.cancel()

        monkeypatch.setattr(LiveEvents, "wait", cancel)
        begun = door.create("Hi", background=True)
        path = f"responses/{begun['id']}"
        over = wait_for(lambda: (got := door.good("GET", path))["status"] == "completed" and got)
        assert "Done." == text_of(over)


def test_a_response_that_another_process_runs_can_be_looked_at_and_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(responses, "_SETTLE_SECONDS", 0.1)
    with Door(Scripted([*saying("Half")[:1], None])) as one:
        begun = one.create("Hi", background=True)
        one.arrived(conversation_of(begun), "Half")
        with Door(Scripted(saying("Whole.")), store=one.store) as two:
            path = f"responses/{begun['id']}"
            assert "in_progress" == two.good("GET", path)["status"]
            assert 409 == two.refused(f"{path}/cancel", None)[0]
            body = {"input": "x", "previous_response_id": begun["id"]}
            assert (409, None, "conversation_locked") == two.refused("responses", body)
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(two.again, begun["id"])
                one.good("POST", f"{path}/cancel")
                events = waiting.result(60)
            assert "response.incomplete" == events[-1]["type"]
            assert "Half" == text_of(events[-1]["response"])
            assert "Whole." == text_of(two.create("On", previous_response_id=begun["id"]))


def test_a_record_that_a_killed_process_left_open_is_settled_from_the_log() -> None:
    with Door(Scripted(saying("All of it."), saying("More."))) as door:
        response = door.create("Hi")
        name = read_response_id(response["id"])
        assert name is not None
        (stored,) = door.store.records(name.conversation, responses.RESPONSE).values()
        fields = {**json.loads(stored), "status": "in_progress"}
        left = {key: fields[key] for key in fields if key not in ("outputs", "usage", "end")}
        value = json.dumps(left).encode()
        door.store.put_record(name.conversation, responses.RESPONSE, name.record, value)
        door.forget()
        again = door.good("GET", f"responses/{response['id']}")
        assert response["output"] == again["output"]
        assert ("completed", response["usage"]) == (again["status"], again["usage"])


def test_a_stream_goes_on_after_any_event_with_the_same_numbers() -> None:
    answers = (calling(("calculate", {"expression": "6*7"}), text="Well."), saying("4", "2", "."))
    with Door(Scripted(*answers)) as door:
        events = door.stream("Six by seven?", tools=[HOSTED])
        assert list(range(len(events))) == [event["sequence_number"] for event in events]
        name = events[-1]["response"]["id"]
        for _ in range(2):  # from memory, then from the store
            for after in (None, 0, 4, len(events) - 2):
                start = 0 if after is None else after + 1
                assert events[start:] == door.again(name, after)
            door.forget()


def test_a_client_that_goes_away_loses_nothing() -> None:
    with Door(Scripted(saying("All ", "of ", "it."))) as door:
        body = {"input": "Hi", "stream": True}
        with door.ask.stream("POST", "/v1/responses", json=body) as answer:
            name = next(answer.iter_lines())
        assert "event: response.created" == name
        conversation = door.store.list().conversations[0].id
        wait_for(lambda: not door.look(conversation)["running"])
        assert ["Hi", "All of it."] == door.ask.texts(conversation)


# ── refusals ────────────────────────────────────────────────────────────────────────────────────

SDK_ITEMS: dict[str, list[Any]] = {
    "message": [ResponseOutputMessage, EasyInputMessageParam, items.Message],
    "function_call": [ParsedResponseFunctionToolCall, ResponseFunctionToolCallItem],
    "function_call_output": [items.FunctionCallOutput, ResponseFunctionToolCallOutputItem],
    "custom_tool_call": [ResponseCustomToolCall],
    "custom_tool_call_output": [ResponseCustomToolCallOutputParam],
    "reasoning": [ResponseReasoningItem],
    "compaction": [ResponseCompactionItem],
    "item_reference": [items.ItemReference],
    "mcp_call": [items.McpCall],
    "mcp_approval_request": [items.McpApprovalRequest],
    "mcp_approval_response": [items.McpApprovalResponse],
    "mcp_list_tools": [items.McpListTools],
}
USER = {"role": "user", "content": "x"}
CALL = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "sun"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
REFUSED: list[tuple[dict[str, Any], str | None, str]] = [
    ({"foo": 1}, "foo", "unknown_parameter"),
    ({"input": 5}, "input", "invalid_type"),
    ({"temperature": 3}, "temperature", "invalid_type"),
    ({"prompt": {"id": "p"}}, "prompt", "unsupported"),
    ({"moderation": {"model": "m"}}, "moderation", "unsupported"),
    ({"max_tool_calls": 3}, "max_tool_calls", "unsupported"),
    ({"top_logprobs": 3}, "top_logprobs", "unsupported"),
    ({"presence_penalty": 1}, "presence_penalty", "unsupported"),
    ({"service_tier": "flex"}, "service_tier", "unsupported"),
    ({"include": ["x"]}, "include[0]", "unsupported"),
    ({"include": ["message.output_text.logprobs"]}, "include[0]", "unsupported"),
    ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation",
     "unsupported"),
    ({"background": True, "store": False}, "store", "unsupported"),
    ({"conversation": "c", "store": False}, "store", "unsupported"),
    ({"conversation": "c", "previous_response_id": "r"}, "conversation", "mutually_exclusive"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "invalid_type"),
    ({"tools": [{**HOSTED, "server_url": "http://x"}]}, "tools[0].server_url", "unsupported"),
    ({"tools": [{**HOSTED, "server_label": "x"}]}, "tools[0].server_label", "unsupported"),
    ({"tools": [{**HOSTED, "require_approval": {}}]}, "tools[0].require_approval", "unsupported"),
    ({"tools": [FUNCTION, FUNCTION]}, "tools[1].name", "duplicate_tool"),
    ({"tool_choice": "required"}, "tool_choice", "unsupported"),
    ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name", "unknown_tool"),
    ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "x"}]}},
     "tool_choice.tools[0]", "unknown_tool"),
    ({"input": []}, "input", "missing"),
    ({"input": [{"type": "hologram"}]}, "input[0]", "invalid_value"),
    ({"input": [{"role": "user", "content": "x", "foo": 1}]}, "input[0].foo", "unknown_parameter"),
    ({"input": [{"type": "item_reference", "id": "msg_x"}]}, "input[0].id", "item_not_found"),
    ({"input": [{"type": "mcp_approval_response"}]}, "input[0].approval_request_id",
     "invalid_type"),
    ({"input": [{"type": ["message"]}]}, "input[0].type", "invalid_type"),
    ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role", "invalid_type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 5}]}]},
     "input[0].content[0].text", "invalid_type"),
    ({"input": [{"role": "user", "content": [{"type": "hologram"}]}]},
     "input[0].content[0].type", "invalid_type"),
    ({"input": [{"role": "user", "content": [{**IMAGE, "size": 3}]}]},
     "input[0].content[0].size", "unknown_parameter"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]},
     "input[0].arguments", "invalid_type"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}",
                 "surprise": 1}]}, "input[0].surprise", "unknown_parameter"),
    ({"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": 5}]}]},
     "input[0].summary[0].text", "invalid_type"),
    ({"input": [{"role": "user", "content": [{**IMAGE, "image_url": None}]}]},
     "input[0].content[0]", "invalid_value"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "filename": "a"}]}]},
     "input[0].content[0]", "invalid_value"),
    ({"input": [{"type": "mcp_approval_response", "approval_request_id": "x", "approve": True},
                {"role": "user", "content": "x"}]},
     "input[0].approval_request_id", "approval_request_not_found"),
    ({"input": [USER, {**CALL, "call_id": "b"}, CALL, OUTPUT]}, "input[1].call_id",
     "missing_tool_output"),
    ({"input": [USER, OUTPUT, CALL]}, "input[1].call_id", "call_not_found"),
    ({"input": [USER, CALL, OUTPUT, OUTPUT]}, "input[3].call_id", "call_not_found"),
    ({"input": [USER, CALL, CALL, OUTPUT]}, "input[2].call_id", "duplicate_call"),
    ({"input": [USER, {"role": "user", "content": "a\0b"}]}, "input[1].content", "text_nul"),
    ({"tools": [{"type": "custom", "name": "p", "format": {"type": "grammar"}}]},
     "tools[0].format.syntax", "invalid_type"),
    ({"input": [{"type": "compaction", "encrypted_content": "x"}]},
     "input[0].encrypted_content", "unsupported"),
]  # fmt: skip


@pytest.fixture(scope="module")
def quiet() -> Generator[Door]:
    """A server whose model is never asked."""
    with Door(Scripted()) as door:
        yield door


@pytest.mark.parametrize(("body", "param", "code"), REFUSED, ids=lambda given: str(given)[:40])
def test_what_is_not_supported_is_refused_by_its_name(
    quiet: Door, body: dict[str, Any], param: str | None, code: str
) -> None:
    assert (400, param, code) == quiet.refused("responses", {"input": "Hi", **body})
    assert [] == list(quiet.store)


def test_what_is_not_there_is_not_found() -> None:
    with Door(Scripted()) as door:
        unknown = {"input": "Hi", "model": "nobody:knows"}
        assert (404, "model", "model_not_found") == door.refused("responses", unknown)
        assert 404 == door.refused("responses", {"input": "Hi", "conversation": "none"})[0]
        assert 404 == door.refused("responses/resp_x", None, "GET")[0]
        assert 404 == door.refused("models/nobody", None, "GET")[0]
        assert "stage:actor" in [m["id"] for m in door.good("GET", "models")["data"]]
        assert "stage" == door.good("GET", "models/stage:actor")["owned_by"]


def test_a_path_or_a_method_that_is_not_there_is_refused_in_openais_form(quiet: Door) -> None:
    for path in ("nothing", "responses/x/y", "models/a/b", "chat"):
        assert (404, None, "not_found") == quiet.refused(path, None, "GET")
    for method, path in (("PUT", "responses"), ("GET", "conversations"), ("DELETE", "models")):
        assert (405, None, "method_not_allowed") == quiet.refused(path, None, method)


def test_a_reference_may_leave_out_its_type(quiet: Door) -> None:
    wanted = (400, "input[0].id", "item_not_found")
    assert wanted == quiet.refused("responses", {"input": [{"id": "msg_x"}]})


def test_every_field_that_the_sdk_knows_of_an_item_may_be_sent() -> None:
    block, text = _OutputText.__struct_encode_fields__, ParsedResponseOutputText.model_fields
    assert {*text} - {"type"} <= {*block}
    for name, shape in _ITEM_TYPES.items():
        known = {*shape.__struct_encode_fields__}
        for kind in SDK_ITEMS[name]:
            fields = getattr(kind, "model_fields", None) or kind.__annotations__
            assert {each.removesuffix("_") for each in fields} <= known, kind


def test_a_parameter_without_an_effect_is_refused(quiet: Door) -> None:
    wanted = (400, "foo", "unknown_parameter")
    for path in ("responses/x", "responses/x/input_items", "conversations/x/items"):
        assert wanted == quiet.refused(f"{path}?include[]=a&foo=1", None, "GET")


def test_refusals_of_the_gate_have_openais_form_too() -> None:
    with Door(Scripted(), body=200) as door:
        assert (413, None, "request_too_large") == door.refused("responses", {"input": "x" * 300})
        door.ask.headers["authorization"] = "Bearer wrong"
        assert (401, None, "invalid_api_key") == door.refused("responses", {"input": "Hi"})


def test_steps_are_limited_here_as_elsewhere() -> None:
    with Door(Scripted(), steps=0) as door:
        assert (429, None, "rate_limit_exceeded") == door.refused("responses", {"input": "Hi"})
        assert [] == list(door.store)


def test_a_server_that_only_reads_answers_nothing_new() -> None:
    with Door(Scripted(), read_only=True) as door:
        assert 403 == door.refused("responses", {"input": "Hi"})[0]


# ── clients that send everything every time ─────────────────────────────────────────────────────


def test_a_client_may_send_the_whole_history_itself() -> None:
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather",
         "arguments": "{}", "status": "completed"},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}]},
        {"role": "user", "content": "Sure?"},
    ]  # fmt: skip
    with Door(Scripted(saying("Yes."))) as door:
        assert "Yes." == text_of(door.create(history, store=False))
        roles = [message["role"] for message in door.asked()]
        assert ["user", "assistant", "tool", "assistant", "user"] == roles[1:]


@pytest.mark.parametrize("parts", [5, [5], [["x", {}]], [[-1, {}]], [[1, []]], [[9, {}], [1, {}]]])
def test_reasoning_that_somebody_else_has_sealed_does_no_harm(parts: Any) -> None:  # noqa: ANN401 - JSON
    sealed = urlsafe_b64encode(json.dumps({"by": ["a", "b"], "parts": parts}).encode()).decode()
    summary = [{"type": "summary_text", "text": "Hm."}]
    reasoning = {"type": "reasoning", "summary": summary, "encrypted_content": sealed}
    said = {"role": "assistant", "content": "Yes."}
    with Door(Scripted(saying("Fine."))) as door:
        assert "Fine." == text_of(door.create([USER, reasoning, said, USER]))


def test_what_the_server_ran_may_be_sent_back_as_it_was_shown() -> None:
    answers = (calling(("calculate", {"expression": "6*7"})), saying("42."), saying("Yes."))
    with Door(Scripted(*answers)) as door:
        asked = {"role": "user", "content": "Six by seven?"}
        first = door.create([asked], tools=[HOSTED], store=False)
        tools = {"type": "mcp_list_tools", "id": "m", "server_label": "palaver", "tools": []}
        waiting = {"type": "mcp_approval_request", "id": "mcpr_x", "name": "calculate",
                   "arguments": "{}", "server_label": "palaver"}  # fmt: skip
        door.create([asked, tools, *first["output"], waiting, asked], store=False)
        roles = [message["role"] for message in door.asked()]
        assert ["user", "assistant", "tool", "assistant"] == roles[:4]
        assert "6*7 = 42" == door.asked()[2]["content"]


def test_a_choice_may_be_of_the_servers_tools() -> None:
    with Door(Scripted(saying("No."), saying("No."), saying("No."))) as door:
        actor: Any = door.app.service.models.get()
        choice: dict[str, Any] = {"type": "mcp", "server_label": "palaver"}
        door.create("Hi", tools=[FUNCTION, HOSTED], tool_choice=choice)
        assert ["calculate"] == [tool.name for tool in actor.asked[-1].tools]
        assert "required" == actor.asked[-1].options["tool_choice"]
        door.create("Hi", tools=[FUNCTION, HOSTED], tool_choice={**choice, "name": "calculate"})
        assert "calculate" == actor.asked[-1].options["tool_choice"]
        allowed = {"type": "allowed_tools", "mode": "required", "tools": [choice]}
        door.create("Hi", tools=[FUNCTION, HOSTED], tool_choice=allowed)
        assert ["calculate"] == [tool.name for tool in actor.asked[-1].tools]


def test_items_can_be_named_instead_of_sent() -> None:
    with Door(Scripted(saying("One."), saying("Two."))) as door:
        first = door.create("Hi")
        item = {"type": "item_reference", "id": first["output"][0]["id"]}
        door.create([{"role": "user", "content": "Hi"}, item, {"role": "user", "content": "And?"}])
        assert ["Hi", "One.", "And?"] == texts(door.asked())


def test_a_compacted_conversation_goes_on_from_its_summary() -> None:
    with Door(Scripted(saying("Tea."), saying("The user wants tea."), saying("Here."))) as door:
        first = door.create("I want tea.")
        model = {"model": "stage:actor"}
        body = {**model, "previous_response_id": first["id"]}
        compacted = door.good("POST", "responses/compact", body)
        assert "response.compaction" == compacted["object"]
        door.create([*compacted["output"], {"role": "user", "content": "Now?"}])
        assert "The user wants tea." in door.asked()[0]["content"]
        assert "Now?" == door.asked()[-1]["content"]
        assert (400, "model", "invalid_type") == door.refused("responses/compact", {"input": "x"})
