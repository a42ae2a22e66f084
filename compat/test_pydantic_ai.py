"""A conversation of palaver as Pydantic AI's history: in real runs, and message by message."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    CompactionPart,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.openai import OpenAIResponsesModelSettings
from pydantic_ai.usage import RequestUsage

import palaver
from compat.pydantic_agent import agent, ask, main
from palaver.adapters.pydantic_ai import METADATA_KEY, REQUEST_KEY, load, save, to_request_parts
from palaver.history import History
from palaver.messages import (
    Message,
    assistant,
    fail,
    file_part,
    pending,
    start,
    text_part,
    tool_call_part,
    tool_part,
    user,
)
from palaver.messages.ids import NIL_ID
from palaver.messages.parts import compaction_part
from palaver.testing.servers import Answer, Call, ProviderServer, Scripted
from palaver.wire.round_trip import fingerprint
from tests.profiles import at_least

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_ai import Agent

    from palaver.stores import StoredHistory
    from palaver.stores.store import Store
    from palaver.testing.providers import FormatName

OPENAI = ("openai-responses", "openai-chat")
NURSERY = multiprocessing.get_context("forkserver")
NURSERY.set_forkserver_preload(["compat.pydantic_agent", "compat.openai_agents"])


def looks(city: str, form: str = "openai-responses") -> Answer:
    """A call, and in the format that takes thoughts back the thought that led to it."""
    thought = f"They want {city}." if form == "openai-responses" else ""
    return Answer("Let me see.", reasoning=thought, calls=(Call("weather", {"city": city}),))


def sent(server: ProviderServer) -> str:
    body = server.requests[-1].body
    return json.dumps(body.get("input", body.get("messages")))


def as_json(messages: list[ModelMessage]) -> list[Any]:
    dumped: list[Any] = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return dumped


def contents(message: ModelMessage) -> list[Any]:
    return [getattr(part, "content", None) for part in message.parts]


# ── real runs ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", OPENAI)
def test_an_agent_with_tools_talks_over_several_turns(store: Store, form: FormatName) -> None:
    """Each turn sees the ones before; palaver has the roles, the calls and the words of it."""
    history = store.create(id="talk")
    rome, oslo = looks("Rome", form), looks("Oslo", form)
    script: list[Scripted] = [rome, "Sunny in Rome.", oslo, "Sunny in Oslo.", "Rain.", "Sun."]
    with ProviderServer(form, script) as server, asyncio.Runner() as runner:
        ada = agent(server.url, form)
        said = [runner.run(ask(ada, f"Weather in {city}?", history)) for city in ("Rome", "Oslo")]
        assert ["Sunny in Rome.", "Sunny in Oslo."] == said
        assert "Sunny in Rome." in sent(server)
        turn = ["user", "assistant", "tool", "assistant"]
        assert turn * 2 == [message.role for message in history.view]
        assert {"talk"} == {hit.conversation for hit in store.search("degrees Oslo")}

        before = as_json(load(history))
        other = store.get("talk")
        other.replace(3, assistant("Rain in Rome."))
        other.rewrite([range(1), range(2, len(other.view))])  # a result without its call
        assert "Rain." == runner.run(ask(ada, "And now?", history))
        assert "Sunny in Rome." not in sent(server)
        assert "Rain in Rome." in sent(server)
        for _ in range(3):
            history.undo()
        assert before == as_json(load(history))
        assert "Sun." == runner.run(ask(ada, "And now?", history))
        assert "Sunny in Rome." in sent(server)
    assert [] == server.failures


@pytest.mark.parametrize("form", OPENAI)
def test_a_new_prompt_may_follow_a_call_that_lost_its_result(
    store: Store, form: FormatName
) -> None:
    history = store.create(id="talk")
    script: list[Scripted] = [looks("Rome", form), "Sunny.", "Well.", "Sunny again."]
    with ProviderServer(form, script) as server, asyncio.Runner() as runner:
        ada = agent(server.url, form)
        runner.run(ask(ada, "Weather in Rome?", history))
        history.truncate(keep_first=2)
        assert "Well." == runner.run(ask(ada, "And now?", history))
        assert "interrupted" in sent(server)
        history.undo()
        assert "Sunny again." == runner.run(ask(ada, None, history))
        assert "21 degrees" in sent(server)
    assert [] == server.failures


EDITS: dict[str, tuple[Callable[[StoredHistory], object], str | None, list[str]]] = {
    "the question": (
        lambda history: history.replace(0, user("Weather in Oslo?")),
        None,
        ["Weather in Oslo?", "Let me see.", "21 degrees", "Sunny in Rome."],
    ),
    "the call and its result": (
        lambda history: history.rewrite([range(1), range(3, 4)]),
        None,
        ["Weather in Rome?", "Sunny in Rome."],
    ),
    "the last answer": (
        lambda history: history.replace(3, assistant("Rain in Rome.")),
        "resp_1",
        ["21 degrees", "Rain in Rome."],
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_seen_also_where_the_provider_keeps_the_conversation(
    store: Store, edit: str
) -> None:
    """The provider has what nobody edited; all that stands from the edit on is sent."""
    history = store.create(id="talk")
    script: list[Scripted] = [looks("Rome"), "Sunny in Rome.", "Yes.", "Well."]
    change, chained_to, expected = EDITS[edit]

    async def ask_on(who: Agent[None, str], words: str) -> None:
        chained = OpenAIResponsesModelSettings(openai_previous_response_id="auto")
        result = await who.run(words, message_history=load(history), model_settings=chained)
        save(history, result.new_messages())

    with ProviderServer("openai-responses", script) as server, asyncio.Runner() as runner:
        ada = agent(server.url, "openai-responses")
        runner.run(ask_on(ada, "Weather in Rome?"))
        runner.run(ask_on(ada, "Really?"))
        unedited = server.requests[-1].body
        assert ("resp_2", 1) == (unedited["previous_response_id"], len(unedited["input"]))
        history.undo()
        change(history)
        runner.run(ask_on(ada, "And now?"))
        assert chained_to == server.requests[-1].body.get("previous_response_id")
        texts = ("Weather in Rome?", "Weather in Oslo?", "Let me see.", "21 degrees",
                 "Sunny in Rome.", "Rain in Rome.", "Really?")  # fmt: skip
        assert expected == [text for text in texts if text in sent(server)]
    assert [] == server.failures


@pytest.mark.parametrize("when", ["tool", "answer"])
def test_a_killed_run_is_taken_up_again(address: str, when: str) -> None:
    """Saved step by step, it goes on where it was killed: the call runs, the answer comes."""
    form: FormatName = "openai-responses"
    with ProviderServer(form, [looks("Rome"), "Sunny in Rome."]) as server:
        child = NURSERY.Process(target=main, args=(address, server.url, form, when))
        child.start()
        child.join(120)
        assert -9 == child.exitcode
        with palaver.open(address) as store, asyncio.Runner() as runner:
            history = store.get("talk")
            assert ["user", "assistant"] == [message.role for message in history.view]
            assert "Sunny in Rome." == runner.run(ask(agent(server.url, form), None, history))
            roles = ["user", "assistant", "tool", "assistant"]
            assert roles == [message.role for message in history.view]
            assert [] == list(store.verify())
    assert [] == server.failures


def test_two_workers_lose_nothing(address: str) -> None:
    with palaver.open(address) as first, palaver.open(address) as second:
        one = first.create(id="talk")
        other = second.get("talk")
        for number in range(10):
            save(one, [ModelRequest.user_text_prompt(f"a {number}")])
            save(other, [ModelRequest.user_text_prompt(f"b {number}")])
        texts = [message.text for message in first.get("talk").view]
    assert [f"{name} {number}" for number in range(10) for name in "ab"] == texts


# ── message by message ──────────────────────────────────────────────────────────────────────────

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
NAMES = st.text("abcdef_", min_size=1, max_size=8)
IDS = st.uuids().map(str)
TIMES = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
ARGS = st.dictionaries(NAMES, JSON, max_size=3)
DETAILS = st.none() | ARGS
USER = st.lists(
    WORDS
    | st.builds(ImageUrl, url=st.just("https://example.org/a.png"))
    | st.builds(DocumentUrl, url=st.just("https://example.org/a.pdf"), vendor_metadata=DETAILS)
    | st.builds(BinaryContent, data=st.binary(min_size=1), media_type=st.just("image/png"))
    | st.builds(CachePoint),
    max_size=4,
)
GIVEN: st.SearchStrategy[Any] = (
    st.builds(SystemPromptPart, content=WORDS, timestamp=TIMES, dynamic_ref=st.none() | NAMES)
    | st.builds(UserPromptPart, content=WORDS | USER, timestamp=TIMES)
    | st.builds(
        ToolReturnPart, tool_name=NAMES, content=JSON, tool_call_id=IDS, timestamp=TIMES,
        metadata=JSON, outcome=st.sampled_from(["success", "failed", "denied", "retried"]),
    )
    | st.builds(
        RetryFeedbackPart, content=WORDS, timestamp=TIMES,
        retry=st.just(RetryInfo(cause="no_output")),
    )
)  # fmt: skip
ANSWERED: st.SearchStrategy[Any] = (
    st.builds(TextPart, content=WORDS, id=st.none() | IDS, provider_details=DETAILS)
    | st.builds(
        ThinkingPart, content=WORDS, id=st.none() | IDS, signature=st.none() | WORDS,
        provider_name=st.sampled_from([None, "anthropic"]), provider_details=DETAILS,
    )
    | st.builds(ToolCallPart, tool_name=NAMES, tool_call_id=IDS, provider_details=DETAILS,
                args=st.none() | ARGS | st.sampled_from(['{"a": 1}', '{"a":1}', "not json", ""]))
    | st.builds(NativeToolCallPart, tool_name=NAMES, args=ARGS, tool_call_id=IDS,
                provider_name=st.just("openai"))
    | st.builds(NativeToolReturnPart, tool_name=NAMES, content=JSON, tool_call_id=IDS,
                timestamp=TIMES, provider_name=st.just("openai"))
)  # fmt: skip
USAGE = st.builds(
    RequestUsage, input_tokens=st.integers(0, 100), output_tokens=st.integers(0, 100),
    cache_read_tokens=st.integers(0, 50), details=st.dictionaries(NAMES, st.integers(0, 9)),
)  # fmt: skip
REQUESTS = st.builds(
    ModelRequest, parts=st.lists(GIVEN, max_size=4), timestamp=st.none() | TIMES,
    instructions=st.none() | WORDS, run_id=st.none() | IDS, metadata=DETAILS,
    state=st.sampled_from(["complete", "interrupted"]),
)  # fmt: skip
RESPONSES = st.builds(
    ModelResponse, parts=st.lists(ANSWERED, max_size=4), usage=USAGE, timestamp=TIMES,
    model_name=st.none() | NAMES, provider_name=st.none() | NAMES, run_id=st.none() | IDS,
    finish_reason=st.sampled_from([None, "stop", "tool_call"]), metadata=DETAILS,
    provider_details=DETAILS, provider_response_id=st.none() | IDS,
)  # fmt: skip


@at_least(60, in_faults=5_000)
@given(st.lists(REQUESTS | RESPONSES, max_size=6))
def test_what_was_saved_is_loaded(messages: list[ModelMessage]) -> None:
    """As JSON, to the letter, and then again: nothing is added a second time."""
    stored = as_json(ModelMessagesTypeAdapter.validate_python(as_json(messages)))
    store = palaver.open(":memory:")
    history = store.create(id="talk")
    save(history, messages)
    found = load(store.get("talk"), resuming=True)
    unique = [message for place, message in enumerate(stored) if message not in stored[:place]]
    if len(unique) == len(stored):
        assert stored == as_json(found)
    assert [] == save(history, messages)
    assert [] == save(history, found)
    more: list[ModelMessage] = [ModelRequest.user_text_prompt("And now?")]
    assert ["And now?"] == [message.text for message in save(history, [*found, *more])]


def test_an_answer_carries_its_model_and_what_it_used() -> None:
    history = History()
    usage = RequestUsage(input_tokens=10, cache_read_tokens=4, output_tokens=5)
    save(
        history,
        [ModelResponse([TextPart("Hi")], usage=usage, model_name="m", finish_reason="stop")],
    )
    info: Any = history.view[0].info
    assert ("m", "stop") == (info.model.model_id, info.finish)
    assert (6, 4, 5) == (info.tokens.input, info.tokens.cache.read, info.tokens.output)


def test_what_was_edited_is_written_anew() -> None:
    history = History()
    save(
        history,
        [ModelRequest([UserPromptPart("Tea?"), UserPromptPart("Now?")], instructions="Be.")],
    )
    old = history.view[0]
    history.replace(0, replace(old, content="Rum?"))
    assert {METADATA_KEY, REQUEST_KEY} == {*history.view[0].metadata}
    (request,) = load(history)
    assert ["Rum?", "Now?"] == contents(request)
    assert "Be." == getattr(request, "instructions", None)
    history.replace(0, user("Gin?"))
    (request,) = load(history)
    assert ["Gin?", "Now?"] == contents(request)
    history.erase(0)
    assert 1 == len(load(history)[0].parts)


@pytest.mark.parametrize("edit", [
    lambda history: history.replace(3, assistant("No, rum.")),
    lambda history: history.replace(2, user("Rum?")),
    lambda history: history.append(user("And rum?")),
    lambda history: history.append(assistant("Rum.")),
    lambda history: history.insert(3, [user("Rum?")]),
    lambda history: [history.replace(3, assistant("Rum.")), history.replace(2, user("Rum?"))],
    lambda history: [history.erase(3), history.replace(2, user("Rum?"))],
    lambda history: history.truncate(keep_first=1),
    lambda history: history.rewrite([user("Rum?"), assistant("Rum.")]),
])  # fmt: skip
def test_what_was_edited_is_not_saved_again(store: Store, edit: Any) -> None:
    """A run's `all_messages` begin with what was loaded, as it was edited at the end."""
    history = store.create(id="talk")
    for said in ("Tea?", "Coffee?"):
        save(history, [ModelRequest.user_text_prompt(said), ModelResponse([TextPart("Yes.")])])
    edit(history)
    before = [message.text for message in history]
    messages = [*load(history), ModelRequest.user_text_prompt("Now?")]
    assert ["Now?"] == [message.text for message in save(history, messages)]
    messages.append(ModelResponse([TextPart("Now.")]))
    assert ["Now."] == [message.text for message in save(history, messages)]
    assert [*before, "Now?", "Now."] == [message.text for message in history]
    assert [] == save(history, load(history))


def test_a_conversation_of_palaver_is_shown_too() -> None:
    """Messages that Pydantic AI never saw: files, failed calls, a system message."""
    image = file_part(NIL_ID, NIL_ID, "image/png", "data:image/png;base64,iVBORw0=")
    linked = file_part(NIL_ID, NIL_ID, "audio/mpeg", "https://example.org/a.mp3")
    paper = file_part(NIL_ID, NIL_ID, "application/pdf", "https://example.org/a.pdf")
    history = History([
        palaver.system("Be brief."),
        user([text_part(NIL_ID, NIL_ID, "Look:"), image, linked, paper]),
        assistant("Nice."), user("Bye."),
    ])  # fmt: skip
    request, answer, bye = load(history)
    kinds = [str(getattr(item, "kind", item)) for item in contents(request)[1]]
    assert ["Look:", "binary", "audio-url", "document-url"] == kinds
    assert (["Nice."], ["Bye."]) == (contents(answer), contents(bye))
    assert [] == save(history, [request, answer, bye])


def test_metadata_of_a_stranger_is_not_used() -> None:
    mine = fingerprint(to_request_parts(user("Tea?", timestamp=5)))
    for broken in ("{", "[[[], 5]]", "5"):
        told = {METADATA_KEY: f"{mine} {broken}"}
        (request,) = load(History([user("Tea?", timestamp=5, metadata=told)]))
        assert ["Tea?"] == contents(request)
    for kept in (
        {METADATA_KEY: "0 []"},
        {METADATA_KEY: 5},
        {METADATA_KEY: "x", REQUEST_KEY: "{"},
        {REQUEST_KEY: "[]"},
    ):
        (request,) = load(History([user("Tea?", metadata=kept)]))
        assert ["Tea?"] == contents(request)


def test_parts_without_words_are_kept_whole() -> None:
    """What palaver has no words for; and an answer that said nothing."""
    unknown = ModelRequest([CompactionPart(content=None), UserPromptPart("Tea?")])
    silent = ModelResponse([])
    history = History()
    save(history, [unknown, silent])
    assert as_json([unknown, silent]) == as_json(load(history))
    assert ["system", "user", "assistant"] == [message.role for message in history.view]


def test_a_failed_call_of_palaver_says_so() -> None:
    running = start(pending({}, ""), at=1)
    call = tool_call_part(NIL_ID, NIL_ID, "weather", {}, call_id="c1")
    failed = tool_part(NIL_ID, NIL_ID, "c1", "weather", fail(running, "no network", at=2))
    history = History([user("Rome?"), assistant([call]), Message("tool", (failed,))])
    *_, request = load(history)
    (part,) = request.parts
    assert ("no network", "failed") == (contents(request)[0], getattr(part, "outcome", None))


@pytest.mark.parametrize("refused", ["\0", "\ud800"], ids=ascii)
def test_what_a_store_refuses_is_replaced(here: Store, refused: str) -> None:
    """Also in what a tool returned, such as the name of a file that is not UTF-8."""
    history = here.create()
    asked = ModelRequest.user_text_prompt(f"a{refused}b")
    called = ModelResponse([ToolCallPart("ls", {"of": refused}, "c1")])
    found = ModelRequest([ToolReturnPart("ls", {"names": [f"{refused}.txt"]}, "c1")])
    turn: list[ModelMessage] = [asked, called, found, ModelResponse([TextPart(f"one{refused}")])]
    assert 4 == len(save(history, turn))
    assert [] == save(history, turn)
    assert [] == save(history, load(history))
    assert ["a\ufffdb", "", "", "one\ufffd"] == [message.text for message in history.view]


def test_ignored_text_does_not_reach_the_model() -> None:
    """The system's, the user's and the assistant's; of a message of nothing else there is none."""
    parts = (text_part(NIL_ID, NIL_ID, "seen"), text_part(NIL_ID, NIL_ID, "no", ignored=True))
    history = History(
        [Message("system", parts), user(parts), assistant(parts), user(parts[1:]), user("Tea?")]
    )
    found = load(history)
    assert [["seen", ["seen"]], ["seen"], ["Tea?"]] == list(map(contents, found))


def test_a_part_that_stands_for_text_is_that_text() -> None:
    """What a compaction asks for is what the other providers are asked."""
    (request,) = load(History([user([compaction_part(NIL_ID, NIL_ID, auto=True)])]))
    assert [["What did we do so far?"]] == contents(request)
