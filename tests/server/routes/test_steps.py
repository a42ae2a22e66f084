"""Steps through HTTP: an answer streams in, is stopped, fails, is recovered, and never doubled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import palaver
from palaver.conversation import model as named_model
from palaver.conversation.store_access import DRAFT, STEP, StepIntent
from palaver.errors import Unavailable
from palaver.messages import ModelRef, assistant, dump, new_id
from palaver.server.services.steps import DraftBuffer, DraftPiece
from palaver.testing.servers import Answer, ProviderServer
from palaver.wire.reply import CallDelta, CallReady, CallStarted, Finished, TextDelta
from tests.conversation.scripted import Scripted, calling, saying
from tests.server.client import text_of
from tests.server.scripted_server import MODEL, ScriptedServer, wait_for

if TYPE_CHECKING:
    from pathlib import Path

HALF: list[Any] = [{"choices": [{"delta": {"content": "Half an "}}]}]


def test_words_are_said_and_answered() -> None:
    with ScriptedServer(Scripted(saying("Ye", "s."))) as stage:
        talk = stage.ask.begun()
        begun = stage.step(talk, "Tea?")
        assert 1 == begun["version"]
        assert ["Tea?", "Yes."] == stage.ask.texts(talk)
        assert {"running": False, "elsewhere": False} == stage.look(talk)
        names = {"conversation": talk, "step": begun["step"]}
        assert ("step.started", {**names, "model": MODEL}) == stage.told[0]
        assert ("step.ended", {**names, "outcome": "answered"}) == stage.told[-1]
        pieces = [data for name, data in stage.told if name == "step.delta"]
        assert "Yes." == "".join(piece["text"] for piece in pieces)
        assert [0] == [piece["start"] for piece in pieces[:1]]


def test_what_had_arrived_of_a_stopped_answer_is_kept() -> None:
    """CV-04: it is marked as interrupted."""
    with ScriptedServer(Scripted([*HALF, None], saying("Whole."))) as stage:
        talk = stage.ask.begun("Tea?")
        stage.ask.good("POST", f"conversations/{talk}/step", {})
        stage.arrived(talk, "Half an ")
        seen = stage.look(talk)
        assert (True, MODEL) == (seen["running"], seen["model"])
        assert seen["since"] > 0
        assert stage.ask.good("DELETE", f"conversations/{talk}/step") is None
        kept = stage.messages(talk)[-1]
        assert ("Half an ", "interrupted") == (text_of(kept), kept["info"]["finish"])
        assert ["stopped"] == stage.ended()
        stage.ask.good("DELETE", f"conversations/{talk}/step")  # there is nothing to stop
        stage.step(talk)
        assert ["Tea?", "Half an ", "Whole."] == stage.ask.texts(talk)


def test_a_second_tab_is_told_that_a_step_is_under_way() -> None:
    with ScriptedServer(Scripted([*HALF, None])) as stage:
        talk = stage.ask.begun()
        stage.ask.good("POST", f"conversations/{talk}/step", {"text": "Tea?"})
        refused = stage.ask.refused("POST", f"conversations/{talk}/step", {"text": "Rum?"})
        assert (409, "LeaseTaken") == (refused["status"], refused["name"])
        answer = stage.ask.post(f"/api/conversations/{talk}/step", json={"text": "Rum?"})
        assert answer.headers["retry-after"] == "1"
        assert ["Tea?"] == stage.ask.texts(talk)
        stage.arrived(talk, "Half an ")
        assert stage.look(talk) == stage.look(talk)  # both tabs see the same


def test_another_worker_at_the_conversation_is_respected() -> None:
    with ScriptedServer(Scripted()) as stage:
        talk = stage.ask.begun()
        lease = stage.store.lease(talk, "somebody else")
        refused = stage.ask.refused("POST", f"conversations/{talk}/step", {"text": "Tea?"})
        assert (409, []) == (refused["status"], stage.ask.texts(talk))
        stage.store.release(lease)
        assert not stage.look(talk)["running"]


def test_so_many_steps_at_once_and_no_more() -> None:
    with ScriptedServer(Scripted([None]), steps=1) as stage:
        first, second = stage.ask.begun("Tea?"), stage.ask.begun("Rum?")
        stage.ask.good("POST", f"conversations/{first}/step", {})
        answer = stage.ask.post(f"/api/conversations/{second}/step", json={})
        assert (429, "5") == (answer.status_code, answer.headers["retry-after"])


def test_a_model_that_fails_is_told_and_the_next_step_goes_well() -> None:
    failing: list[Any] = [*HALF, Unavailable("no room", provider="openai")]
    with ScriptedServer(Scripted(failing, saying("Yes."))) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Tea?")
        told = stage.told[-1][1]
        assert ("failed", "Unavailable") == (told["outcome"], told["error"]["name"])
        stage.step(talk)
        assert ["Tea?", "Half an ", "Yes."] == stage.ask.texts(talk)


def test_what_nobody_foresaw_is_told_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
    with ScriptedServer(Scripted([RuntimeError("a secret path")])) as stage:
        stage.step(stage.ask.begun("Tea?"))
        assert "the step failed; the log says more" == stage.told[-1][1]["error"]["message"]
    assert "a secret path" in caplog.text


@pytest.mark.parametrize(
    ("body", "status", "path"),
    [
        ({"text": ""}, 422, "$.text"),
        ({"text": 7}, 422, "$.text"),
        ({"txt": "Tea?"}, 422, "$.txt"),
        ({"model": "gpt-6"}, 422, "$.model"),
        ({"model": "local:/etc/passwd.gguf"}, 422, "$.model"),
        ({"model": "local:nobody"}, 422, "$.model"),
        ({"tools": ["no_such_tool"]}, 422, "$.tools[0]"),
        ({"tools": "all"}, 422, "$.tools"),
        ({"options": {"temprature": 1}}, 422, "$.options.temprature"),
        ({"options": {"tool_choice": "calculate"}}, 422, "$.options.tool_choice"),
        ({"text": "a\x00b"}, 422, "$.content"),
        ([], 422, "$"),
    ],
)
def test_a_wrong_step_is_refused_and_nothing_happens(
    stage: ScriptedServer, body: object, status: int, path: str
) -> None:
    talk = stage.ask.begun()
    refused = stage.ask.refused("POST", f"conversations/{talk}/step", body)
    assert (status, path) == (refused["status"], refused["path"])
    assert ([], False) == (stage.ask.texts(talk), stage.look(talk)["running"])


def test_a_conversation_that_is_not_there() -> None:
    with ScriptedServer(Scripted(), steps=1) as stage:
        for method in ("POST", "GET", "DELETE", "POST"):  # and no place is lost
            refused = stage.ask.refused(method, "conversations/none/step", {"text": "Tea?"})
            assert 404 == refused["status"]


def test_a_model_that_is_not_installed_is_a_refusal_that_says_how(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PALAVER_CACHE", str(tmp_path))
    with ScriptedServer(Scripted()) as stage:
        talk = stage.ask.begun()
        refused = stage.ask.refused(
            "POST", f"conversations/{talk}/step", {"text": "Tea?", "model": "local:smollm2"}
        )
        assert 409 == refused["status"]
        assert "palaver model install smollm2" in refused["detail"]
        assert [] == stage.ask.texts(talk)


def test_saying_it_again_after_a_lost_answer_doubles_nothing() -> None:
    with ScriptedServer(Scripted(saying("Yes."))) as stage:
        talk, key = stage.ask.begun(), {"Idempotency-Key": "k1"}
        path = f"conversations/{talk}/step"
        stage.ask.good("POST", path, {"text": "Tea?"}, headers=key)
        stage.over(talk)
        again = stage.ask.good("POST", path, {"text": "Tea?"}, headers=key)
        assert {"step": None, "version": 2} == again
        assert ["Tea?", "Yes."] == stage.ask.texts(talk)


def test_a_model_that_repeats_its_calls_is_asked_for_words() -> None:
    same = calling(("calculate", {"expression": "1 + 1"}))
    model = Scripted(same, same, saying("Two."))
    with ScriptedServer(model) as stage:
        talk = stage.ask.begun("1 + 1?")
        stage.step(talk, tools=["calculate"])
        choices = [ask.options.get("tool_choice") for ask in model.asked]
        assert [None, None, "none"] == choices
        assert [("completed", "1 + 1 = 2")] * 2 == stage.results(talk)
        assert "Two." == stage.ask.texts(talk)[-1]


def test_a_call_that_was_demanded_is_demanded_once() -> None:
    """Else the model could do nothing but call again, with other words each time."""
    one, two = (calling(("calculate", {"expression": f"{n} + 1"})) for n in range(2))
    model = Scripted(one, two, saying("Two."))
    with ScriptedServer(model) as stage:
        talk = stage.ask.begun("1 + 1?")
        stage.step(talk, tools=["calculate"], options={"tool_choice": "calculate", "max_tokens": 9})
        choices = [ask.options.get("tool_choice") for ask in model.asked]
        assert ["calculate", None, None] == choices
        assert {9} == {ask.options["max_tokens"] for ask in model.asked}
        assert "Two." == stage.ask.texts(talk)[-1]


def test_a_model_that_never_answers_is_stopped() -> None:
    answers = [calling(("calculate", {"expression": f"{n} + 1"})) for n in range(20)]
    with ScriptedServer(Scripted(*answers)) as stage:
        stage.step(stage.ask.begun("1 + 1?"), tools=True)
        assert "TooManySteps" == stage.told[-1][1]["error"]["name"]


def test_without_the_loop_the_calls_wait() -> None:
    with ScriptedServer(Scripted(calling(("calculate", {"expression": "1 + 1"})))) as stage:
        talk = stage.ask.begun("1 + 1?")
        stage.step(talk, tools=True, loop=False)
        assert (["calls"], 1) == (stage.ended(), len(stage.calls(talk)))


def test_calls_that_wait_run_before_the_model_is_asked() -> None:
    with ScriptedServer(
        Scripted(calling(("calculate", {"expression": "2"})), saying("Two."))
    ) as stage:
        talk = stage.ask.begun("1 + 1?")
        stage.step(talk, tools=True, loop=False)
        stage.step(talk, tools=True)
        assert [("completed", "2 = 2")] == stage.results(talk)


def test_stopping_the_server_keeps_what_had_arrived() -> None:
    with palaver.open(":memory:") as store:
        with ScriptedServer(Scripted([*HALF, None]), store=store) as stage:
            talk = stage.ask.begun("Tea?")
            stage.ask.good("POST", f"conversations/{talk}/step", {})
            stage.arrived(talk, "Half an ")
        assert ["Tea?", "Half an "] == [message.text for message in store.get(talk)]


def test_a_read_only_server_takes_no_step() -> None:
    with ScriptedServer(Scripted(), read_only=True) as stage:
        talk = stage.store.create().id
        assert 403 == stage.ask.refused("POST", f"conversations/{talk}/step", {})["status"]
        assert not stage.look(talk)["running"]


def test_to_stop_the_step_of_a_process_that_is_gone_settles_it() -> None:
    with ScriptedServer(Scripted()) as stage:
        talk = stage.ask.begun("Tea?")
        intent = StepIntent(new_id(), ModelRef("openai", "gpt-6"), 0, 1)
        stage.store.put_records(talk, [(STEP, intent.id, msgspec.json.encode(intent))])
        stage.store.put_records(talk, [(DRAFT, intent.id, dump(assistant("Half an ")))])
        lease = stage.store.lease(talk, "another process", seconds=60)
        refused = stage.ask.refused("DELETE", f"conversations/{talk}/step")
        assert (409, True) == (refused["status"], "another process" in refused["detail"])
        stage.store.release(lease)
        assert stage.ask.delete(f"/api/conversations/{talk}/step").is_success
        assert ["stopped"] == stage.ended()
        assert (["Tea?", "Half an "], False) == (stage.ask.texts(talk), stage.look(talk)["running"])


def test_a_step_of_another_process_can_be_seen_and_is_recovered_at_the_start() -> None:
    """CV-06: what a killed process has left behind is settled."""
    with palaver.open(":memory:") as store:
        talk = store.create([palaver.user("Tea?")]).id
        intent = StepIntent(new_id(), ModelRef("openai", "gpt-6"), 0, 1)
        store.put_records(talk, [(STEP, intent.id, msgspec.json.encode(intent))])
        with ScriptedServer(Scripted(), store=store, read_only=True) as stage:
            seen = stage.look(talk)
            assert {"text": "", "reasoning": "", "calls": [], "answer": 0} == seen["draft"]
            store.put_records(talk, [(DRAFT, intent.id, dump(assistant("Half an ")))])
            seen = stage.look(talk)
            assert (True, True, "openai:gpt-6") == (
                seen["running"],
                seen["elsewhere"],
                seen["model"],
            )
            assert "Half an " == seen["draft"]["text"]
        with ScriptedServer(Scripted(), store=store) as stage:
            wait_for(lambda: len(stage.messages(talk)) == 2)
            assert "interrupted" == stage.messages(talk)[-1]["info"]["finish"]


def test_what_can_not_be_recovered_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with palaver.open(":memory:") as store:
        talk = store.create().id
        store.put_records(talk, [("call", "c", b"not json")])
        with ScriptedServer(Scripted(), store=store):
            wait_for(lambda: "could not be recovered" in caplog.text)


def test_the_providers_own_sdk_streams_through() -> None:
    with ProviderServer("openai-chat", [Answer("Yes, please.", piece=3)]) as server:
        model = named_model("openai:gpt-6", base_url=server.url)
        with ScriptedServer(model) as stage:
            talk = stage.ask.begun()
            stage.step(talk, "Tea?")
            assert ["Tea?", "Yes, please."] == stage.ask.texts(talk)
            assert ["answered"] == stage.ended()


def test_the_embedded_model_answers() -> None:
    """No network, no key: what `palaver serve` offers first."""
    with ScriptedServer(Scripted(), model=None) as stage:
        talk = stage.ask.begun()
        asked = {"text": "Say hello.", "options": {"max_tokens": 8}}
        stage.ask.good("POST", f"conversations/{talk}/step", asked)
        wait_for(lambda: not stage.look(talk)["running"])
        assert ["answered"] == stage.ended()
        said = stage.messages(talk)[-1]
        assert ("assistant", "smollm2") == (said["role"], said["info"]["model"]["modelID"])
        assert said["content"]


def test_the_embedded_model_calls_what_it_is_told_to_and_answers_with_it() -> None:
    """As the page's suggestion asks it; what it fills in is its own."""
    with ScriptedServer(Scripted(), model=None) as stage:
        talk = stage.ask.begun()
        stage.step(
            talk,
            "What is 347 × 29? Use the calculator.",  # noqa: RUF001 - as people write it
            tools=["calculate"],
            options={"tool_choice": "calculate"},
        )
        assert [("completed", "347*29 = 10063")] == stage.results(talk)
        assert (["answered"], True) == (stage.ended(), "10063" in stage.ask.texts(talk)[-1])


# ── drafts ──────────────────────────────────────────────────────────────────────────────────────


def test_a_call_is_told_when_it_begins_and_as_it_grows() -> None:
    told: list[DraftPiece] = []
    incoming = DraftBuffer(told.append)
    incoming.add_delta(CallStarted(0, "c1", "calculate"))
    incoming.flush()
    incoming.add_delta(CallDelta(0, '{"a"'))
    incoming.add_delta(CallDelta(0, ":1}"))
    incoming.add_delta(CallReady(0, "c1", "calculate", '{"a":1}'))
    incoming.add_delta(CallReady(1, "c2", "roll", "{}"))
    incoming.add_delta(CallDelta(7, "of a call that nobody began"))
    incoming.add_delta(Finished("stop"))
    incoming.flush()
    assert [("calculate", "", 0), ("calculate", '{"a":1}', 0), ("roll", "{}", 0)] == [
        (piece.name, piece.text, piece.start) for piece in told
    ]
    assert ['{"a":1}', "{}"] == [call.text for call in incoming.draft.calls]


def test_many_pieces_are_told_as_few() -> None:
    """At most thirty times a second, whatever the model's pace."""
    words = [f"w{n} " for n in range(2_000)]
    with ScriptedServer(Scripted(saying(*words))) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Tea?")
        pieces = [data for name, data in stage.told if name == "step.delta"]
        assert "".join(words) == "".join(piece["text"] for piece in pieces)
        assert len(pieces) < 200
        ends = [piece["start"] + len(piece["text"]) for piece in pieces]
        assert [0, *ends[:-1]] == [piece["start"] for piece in pieces]


def test_thoughts_come_apart_from_words() -> None:
    thinking = Answer("Yes.", reasoning="Hm.")
    with ProviderServer("anthropic", [thinking]) as server:
        model = named_model("anthropic:claude", base_url=server.url, api_key="k")
        with ScriptedServer(model) as stage:
            stage.step(stage.ask.begun("Tea?"))
            pieces = [data for name, data in stage.told if name == "step.delta"]
            said = {piece["kind"]: piece["text"] for piece in pieces}
            assert {"reasoning": "Hm.", "text": "Yes."} == said


def test_a_draft_that_was_stored_is_begun_anew() -> None:
    told: list[DraftPiece] = []
    incoming = DraftBuffer(told.append)
    incoming.add_delta(TextDelta("one"))
    incoming.clear()
    incoming.add_delta(TextDelta("two"))
    incoming.flush()
    pieces = [(piece.text, piece.start, piece.answer) for piece in told]
    assert [("one", 0, 0), ("two", 0, 1)] == pieces
    assert "two" == json.loads(msgspec.json.encode(incoming.draft))["text"]
