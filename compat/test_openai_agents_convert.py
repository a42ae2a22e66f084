"""Items of the SDK come back exactly as they were added, and always such as a provider takes."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from agents import Agent
from agents.memory import SQLiteSession
from agents.run import CallModelData, ModelInputData
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

import palaver
from palaver.adapters.openai_agents import PalaverSession, convert, repair_input
from palaver.adapters.openai_agents.convert import (
    METADATA_KEY,
    encode_difference,
    from_any_items,
    from_plain_items,
    read_stored,
    repair_items,
    to_items,
)
from palaver.errors import ValidationError
from palaver.messages import (
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    assistant,
    completed,
    dump,
    fail,
    failed,
    parse_message,
    pending,
    reasoning_part,
    start,
    text_part,
    tool_call_part,
    tool_part,
    user,
)
from palaver.messages.ids import NIL_ID, new_id
from palaver.messages.tool_state import CompletedTime
from palaver.stores import StoredHistory
from palaver.testing.providers import check_request
from palaver.wire.openai_responses.request import write_plain_answer
from palaver.wire.pairing import INTERRUPTED
from palaver.wire.round_trip import fingerprint
from tests.profiles import at_least

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS = st.integers(0, 10**9)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


def said(number: int, text: str, **fields: Any) -> dict[str, Any]:
    block = {"type": "output_text", "text": text, "annotations": [], **fields}
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
            "content": [block]}  # fmt: skip


def thought(number: int, *texts: str, **fields: Any) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": f"rs_{number}", "summary": summary, **fields}


def called(number: int, arguments: str = "{}", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}",
            "name": "weather", "arguments": arguments, **fields}  # fmt: skip


def gave(number: int, output: object = "21") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": output}


@st.composite
def turns(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """What a run adds: a question, then answers with or without calls, then the last word."""
    number = draw(NUMBERS)
    image = {"type": "input_image", "detail": "low", "image_url": "data:image/png;base64,iVBORw0="}
    asked: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"role": "user", "content": draw(WORDS)},
                {"role": "user", "content": [{"type": "input_text", "text": "Look:"}, image]},
                {"type": "message", "role": "developer", "content": draw(WORDS)},
            ]
        )
    )
    batches: list[list[dict[str, Any]]] = [[asked]]
    for step in range(draw(st.integers(0, 2))):
        name = number * 10 + step
        answer = [thought(name, *draw(st.lists(WORDS, max_size=2)), content=[])] * draw(
            st.integers(0, 1)
        )
        if draw(st.booleans()):
            answer.append(said(name, draw(WORDS) or "so", logprobs=[]))
        names = [name * 10 + place for place in range(draw(st.integers(1, 3)))]
        arguments = st.sampled_from(["{}", '{"city": "Rome"}', '{"city":"Rome"}', "not json", ""])
        answer += [called(place, draw(arguments), status="completed") for place in names]
        outputs = [
            gave(place, draw(WORDS | st.just([image]))) for place in draw(st.permutations(names))
        ]
        batches += [answer + outputs] if draw(st.booleans()) else [answer, outputs]
    ends = [
        said(number, draw(WORDS) or "end", logprobs=[]),
        {"role": "assistant", "content": "end"},
    ]
    batches.append([draw(st.sampled_from(ends))])
    return batches


@at_least(40, in_faults=5_000)
@given(st.lists(turns(), max_size=4), st.integers(1, 12))
def test_what_was_added_comes_back(talk: list[list[list[Any]]], limit: int) -> None:
    """As from the SDK's own session, all of it and item by item, whatever the batches were."""

    async def both() -> None:
        ours, theirs = PalaverSession(palaver.open(":memory:"), "talk"), SQLiteSession("talk")
        for batch in (batch for batches in talk for batch in batches):
            await ours.add_items(batch)
            await theirs.add_items(batch)
        stored: list[Any] = [*await theirs.get_items()]
        assert stored == await ours.get_items()
        fresh = PalaverSession(ours.history)
        assert stored == await fresh.get_items()
        assert await theirs.get_items(limit) == await fresh.get_items(limit)
        assert repair_items(stored) == stored
        while (item := await theirs.pop_item()) is not None:
            assert item == await ours.pop_item()
        assert await ours.pop_item() is None
        theirs.close()

    asyncio.run(both())


ORPHANS: list[list[dict[str, Any]]] = [
    [gave(1)],
    [called(1), {"role": "user", "content": "Tea?"}, gave(1)],
    [called(1), {"role": "user", "content": "Tea?"}],
    [called(1), gave(1), gave(1)],
    [gave(1), called(1)],
    [thought(1), {"role": "user", "content": "Tea?"}],
    [{"role": "user", "content": "Tea?"}, thought(1)],
    [called(1), {**gave(1), "type": "custom_tool_call_output"}],
    [{"type": "shell_call_output", "call_id": "c1", "output": []}],
]


@pytest.mark.parametrize("items", ORPHANS)
@pytest.mark.parametrize("limit", [None, 1, 2])
def test_what_has_no_partner_comes_back_too(items: list[Any], limit: int | None) -> None:
    """A session stores; what a provider would refuse is repaired in the request."""

    async def talk() -> None:
        session = PalaverSession(palaver.open(":memory:"), "talk")
        await session.add_items(items)
        fresh = PalaverSession(session.history)
        for each in (session, fresh):
            assert items[-(limit or len(items)) :] == await each.get_items(limit)
        for item in reversed(items):
            assert item == await fresh.pop_item()
        assert await fresh.pop_item() is None

    asyncio.run(talk())


@at_least(40, in_faults=5_000)
@given(st.lists(turns(), min_size=1, max_size=3), st.data())
def test_there_are_as_many_items_as_can_be_popped(
    talk: list[list[list[Any]]], data: st.DataObject
) -> None:
    """Whatever was edited: an item that is shown can be popped, and one that is not can't."""

    async def edit_and_pop() -> None:
        session = PalaverSession(palaver.open(":memory:"), "talk")
        for batch in (batch for batches in talk for batch in batches):
            await session.add_items(batch)
        history = session.history
        length = len(history.view)
        left = sorted(data.draw(st.sets(st.integers(0, length - 1))))
        history.rewrite([range(index, index + 1) for index in left])
        if left:
            history.replace(len(left) - 1, assistant(data.draw(WORDS)))
        items = await session.get_items()
        for item in reversed(items):
            assert item == await session.pop_item()
        assert await session.pop_item() is None
        assert [] == await session.get_items()

    asyncio.run(edit_and_pop())


def spelled(messages: Any) -> list[tuple[str, Any]]:
    """Messages and their items, without what is new every time: ids and times."""
    return [
        (
            re.sub(rb'"[0-9a-f]{8}-[0-9a-f-]{27}"|\b\d{13}\b', b"0", dump(message)).decode(),
            theirs,
        )
        for message, theirs in messages
    ]


PLAIN: list[dict[str, Any]] = [
    {"role": "user", "content": "Tea?"},
    {"type": "message", "role": "user", "content": "Tea?"},
    thought(1, content=[], status=None),
    said(1, "Hm.", logprobs=[]),
    called(1, '{"city": "Rome"}', status="completed"),
    called(2),
    gave(1),
    {**gave(2), "id": "fco_1"},
    {"role": "system", "content": "Be brief."},
    said(2, ""),
]


@at_least(40, in_faults=5_000)
@given(st.lists(turns(), min_size=1, max_size=3), st.lists(st.sampled_from(PLAIN), max_size=8))
def test_reading_without_detours_comes_to_the_same(
    talk: list[list[list[Any]]], mixed: list[Any]
) -> None:
    for batch in [mixed, *(batch for batches in talk for batch in batches)]:
        quick = from_plain_items(batch, NIL_ID, lambda: {"call_9": "rain"})
        if quick is not None:
            assert spelled(from_any_items(batch, NIL_ID, {"call_9": "rain"})) == spelled(quick)


@at_least(40, in_faults=5_000)
@given(st.lists(st.sampled_from(PLAIN), min_size=1, max_size=8), st.text(max_size=20))
def test_what_is_read_without_detours_is_as_valid_as_what_checks_itself(
    items: list[Any], text: str
) -> None:
    items = [{**item, "content": text} if "role" in item and "id" not in item else item
             for item in items]  # fmt: skip
    items = [{**item, "output": text} if "output" in item else item for item in items]
    for message, _ in from_plain_items(items, NIL_ID) or ():
        assert type(message) is Message
        assert message == parse_message(dump(message))
        assert set(map(type, message.parts)) <= {ReasoningPart, TextPart, ToolCallPart, ToolPart}
        for part in message.parts:
            assert isinstance(part, UnknownPart) or part == replace(part)  # which checks itself


EDITS: list[dict[str, Any]] = [
    {}, {}, {}, {"id": "x"}, {"id": "rs_0"}, {"id": "msg_0"}, {"id": "fc_0"}, {"after": "rs_9"},
    {"phase": "commentary"}, {"refusal": True}, {"custom": True}, {"bare": True}, {"text": "Hm."},
    {"text": ""}, {"ignored": True}, {"raw": "[1]"}, {"raw": ""}, {"raw": '{"a": 1'},
    {"call_id": "call_0"}, {"call_id": "c" * 80}, {"tool": "a b"},
]  # fmt: skip


@st.composite
def answer_parts(draw: st.DrawFn) -> list[Any]:
    """Parts of an answer as the SDK's items give them, one of them perhaps edited."""
    owner, made, after = new_id(), list[Any](), dict[str, str]()
    kinds = draw(st.lists(st.sampled_from(["rs", "msg", "fc"]), min_size=1, max_size=4))
    edited, edit = draw(st.integers(0, len(kinds) - 1)), draw(st.sampled_from(EDITS))
    for number, kind in enumerate(kinds):
        fields: dict[str, Any] = {
            "id": f"{kind}_{number}", **({} if kind == "rs" else after), "bare": False,
            "text": "" if kind == "rs" else "Hm.", "ignored": None, "raw": '{"a": 1}',
            "call_id": f"call_{number}", "tool": "rain", **(edit if number == edited else {}),
        }  # fmt: skip
        names = ("id", "after", "phase", "refusal", "custom")
        stored = {name: fields[name] for name in names if name in fields}
        metadata = {} if fields["bare"] else {"openai": stored}
        if kind == "rs":
            after = {"after": fields["id"]}
            part: Any = reasoning_part(NIL_ID, owner, fields["text"], start=1, metadata=metadata)
        elif kind == "msg":
            part = text_part(NIL_ID, owner, fields["text"], metadata=metadata,
                             ignored=fields["ignored"])  # fmt: skip
        else:
            part = tool_call_part(NIL_ID, owner, fields["tool"], {}, call_id=fields["call_id"],
                                  raw=fields["raw"], metadata=metadata)  # fmt: skip
        made.append(part)
    return made


@at_least(400, in_faults=5_000)
@given(answer_parts())
def test_writing_without_detours_comes_to_the_same(parts: list[Any]) -> None:
    message = assistant(parts)
    quick = write_plain_answer(message.parts)
    if quick is not None:
        with mock.patch.object(convert, "write_plain_answer", return_value=None):
            assert to_items(message) == quick
            assert fingerprint(to_items(message)) == fingerprint(quick)


@at_least(400, in_faults=5_000)
@given(answer_parts())
def test_what_is_stored_becomes_the_items_of_its_message(parts: list[Any]) -> None:
    message = assistant(parts)
    items = to_items(message)
    extra = encode_difference(items, [[[0, "status"], "incomplete"], [[0, "logprobs"], []]])
    is_plain = write_plain_answer(message.parts) is not None
    for each in (message, replace(message, metadata={METADATA_KEY: extra, "other": [1]})):
        found = read_stored(dump([each]).decode())
        assert [to_items(each)] == found or (found is None and not is_plain)


@at_least(40, in_faults=5_000)
@given(st.lists(turns(), min_size=1, max_size=3), st.lists(st.sampled_from(PLAIN), max_size=8))
def test_so_does_what_the_sdk_adds(talk: list[list[list[Any]]], mixed: list[Any]) -> None:
    for batch in [mixed, *(batch for batches in talk for batch in batches)]:
        messages = [message for message, _ in from_any_items(batch, NIL_ID, {})]
        for message in messages:
            assert read_stored(dump([message]).decode()) in (None, [to_items(message)])
        if from_plain_items(batch, NIL_ID) is not None:
            assert [*map(to_items, messages)] == read_stored(dump(messages).decode())


DONE = completed({}, "21", "weather", {}, 1, 2)


def result(state: Any, call_id: str = "call_1") -> ToolPart:
    return tool_part(NIL_ID, NIL_ID, call_id, "weather", state)


UNUSUAL: list[object] = [
    b"[", b"{}", b'[{"role": "robot", "content": ""}]', b'[{"role": "user"}]',
    b'[{"sealed": "AAAA", "role": "user", "id": "m1", "timestamp": 5}]',
    b'[{"role": "user", "content": [{"type": "hologram"}]}]',
    [user([text_part(NIL_ID, NIL_ID, "Tea?")])],
    [Message("tool", (result(failed({}, "no", 1, 2)),))],
    [Message("tool", (result(DONE, "a b"),))],
    [Message("tool", (result(replace(DONE, time=CompletedTime(1, 2, 3))),))],
    [Message("tool", (result(DONE), result(DONE, "call_2")))],
]  # fmt: skip


@pytest.mark.parametrize("stored", UNUSUAL)
def test_what_is_unusual_is_left_to_the_messages(stored: object) -> None:
    text = stored if isinstance(stored, bytes) else dump(stored)
    assert read_stored(text.decode()) is None


def test_an_erased_message_has_no_items() -> None:
    gone = Message("user", "", metadata={"palaver.erased": 5})
    assert [[]] == read_stored(dump([gone]).decode()) == [to_items(gone)]


@pytest.mark.parametrize(
    "steps",
    [
        [[[0, "content", "text"], "x"]],  # in what is no object
        [[[5, "status"], "x"]],  # of an item that is not there
        [[[0, "status"], "x"], [[0, "no", "such"], 1]],  # the first would do
        [[[], "x"]],
        "status",
    ],
)
def test_a_difference_that_does_not_fit_is_left_out_whole(steps: Any) -> None:
    ours: list[dict[str, Any]] = [{"role": "user", "content": "Tea?"}]
    forged = user("Tea?", metadata={METADATA_KEY: encode_difference(ours, steps)})
    assert ours == to_items(forged)


def test_each_reader_has_items_of_its_own() -> None:
    """What is added to them are new lists every time."""
    (message, _), *_ = from_any_items([said(1, "Hm.", logprobs=[])], NIL_ID, {})
    (first,), (second,) = to_items(message), to_items(message)
    first["content"][0]["logprobs"].append("changed")
    assert [] == second["content"][0]["logprobs"]


def test_ids_that_stand_twice_are_written_with_care() -> None:
    first = tool_call_part(NIL_ID, new_id(), "rain", {}, call_id="call_1", raw="{}",
                           metadata={"openai": {"id": "fc_1"}})  # fmt: skip
    other = replace(first, id=new_id(), call_id="call_2", metadata={"openai": {"id": "fc_2"}})
    assert write_plain_answer((first, other)) is not None
    assert write_plain_answer((first, replace(other, call_id="call_1"))) is None
    assert write_plain_answer((first, replace(other, metadata=first.metadata))) is None


def test_what_the_sdk_writes_needs_no_detour() -> None:
    quick = from_plain_items(PLAIN, NIL_ID)
    assert quick is not None
    assert spelled(from_any_items(PLAIN, NIL_ID, {})) == spelled(quick)
    assert PLAIN == [item for message, _ in quick for item in to_items(message)]
    answers = [message.parts for message, _ in quick if message.role == "assistant"]
    assert all(map(write_plain_answer, answers))
    found = from_plain_items([gave(9)], NIL_ID, lambda: {"call_9": "rain"}) or []
    assert ["rain"] == [getattr(part, "tool", "") for part in found[0][0].parts]


@pytest.mark.parametrize(
    "items",
    [
        ["Tea?"],
        [{"role": "developer", "content": "Tea?"}],
        [{"role": "user", "content": [{"type": "input_text", "text": "Tea?"}]}],
        [thought(1)],
        [thought(1), called(1), thought(2)],
        [thought(1, "Hm."), called(1)],
        [thought(1, encrypted_content="x"), called(1)],
        [said(1, "Hm."), said(1, "Hm.")],
        [{**said(1, "Hm."), "status": "incomplete"}],
        [{**said(1, "Hm."), "content": []}],
        [{**said(1, "Hm."), "content": [{"type": "refusal", "refusal": "No."}]}],
        [{**said(1, "Hm."), "id": "__fake_id__"}],
        [{**called(1), "name": "a b"}],
        [{**called(1), "name": 5}],
        [called(1, "not json")],
        [called(1, "[]")],
        [called(1), {**called(2), "call_id": "call_1"}],
        [{**called(1), "namespace": "tools"}],
        [gave(1, "")],
        [gave(1, [])],
        [{**gave(1), "call_id": "c" * 80}],
        [{"type": "web_search_call", "id": "ws_1"}],
        [{"role": "user", "content": "Tea\0?"}],
        [{"role": "user", "content": "Tea\ud800?"}],
        [{"role": "user", "content": "Tea?", "note": "\0"}],
        [called(1, '{"city": "Ro\\u0000me"}')],
        [gave(1, "4\0")],
        [{"role": "user", "content": "Tea?", "asked": object()}],
    ],
)
def test_what_is_unusual_is_read_with_care(items: list[Any]) -> None:
    assert from_plain_items(items, NIL_ID) is None


ODD: list[dict[str, Any]] = [
    {"type": "item_reference", "id": "msg_1"},
    {"id": "msg_1"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
    {"type": "computer_call", "id": "cu_1", "call_id": "c1", "action": {}, "status": "completed"},
    {"type": "shell_call_output", "call_id": "c1", "output": []},
    {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"},
    {"type": "something new", "deep": {"er": [1, 2.5, None, True]}},
    {"role": "assistant", "content": []},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "type": "message"},
    {"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]},
    {"role": "critic", "content": "Hm."},
    {"type": "custom_tool_call", "call_id": "c9", "name": "sql", "input": "SELECT 1"},
    {"type": "function_call", "call_id": "c" * 80, "name": "a b", "arguments": "{}"},
    {"id": "__fake_id__", "type": "message", "role": "assistant", "status": "completed",
     "content": [{"type": "output_text", "text": "Hi", "annotations": []}]},
]  # fmt: skip


@pytest.mark.parametrize("item", ODD)
def test_odd_items_are_kept_whole(item: Any) -> None:
    session = PalaverSession(palaver.open(":memory:"), "talk")
    asyncio.run(session.add_items([item]))
    (message,) = session.history.view
    assert [item] == to_items(message)
    assert item == asyncio.run(session.pop_item())


def test_what_a_store_refuses_is_replaced() -> None:
    """A stray byte in a tool's output does not end a run; what is no item does."""
    session = PalaverSession(palaver.open(":memory:"), "talk")
    asyncio.run(session.add_items([{"role": "user", "content": "a\0b\ud800"}]))
    assert "a\ufffdb\ufffd" == session.history.view[0].text
    no_item: list[Any] = ["Tea?"]
    with pytest.raises(ValidationError, match="must be an object"):
        asyncio.run(session.add_items(no_item))


def test_what_was_edited_is_written_anew() -> None:
    session = PalaverSession(palaver.open(":memory:"), "talk")
    answer: Any = said(1, "Sunny.", logprobs=[])
    asyncio.run(session.add_items([answer]))
    history = session.history
    old = history.view[0]
    history.replace(0, replace(old, content=(text_part(NIL_ID, NIL_ID, "Rain."),)))
    assert METADATA_KEY in history.view[0].metadata
    assert [{"role": "assistant", "content": "Rain."}] == asyncio.run(session.get_items())
    history.erase(0)
    assert [] == asyncio.run(session.get_items())
    asked: Any = {"role": "user", "content": "Tea?", "type": "message"}
    asyncio.run(session.add_items([asked]))
    history = session.history
    history.replace(1, replace(history.view[1], content="Rum?"))
    assert [{"role": "user", "content": "Rum?"}] == asyncio.run(session.get_items())


def test_an_answer_of_palaver_is_popped_item_by_item() -> None:
    apart = {"openai": {"apart": True}}
    said_apart = [text_part(NIL_ID, NIL_ID, word, metadata=apart) for word in "ab"]
    call = tool_call_part(NIL_ID, NIL_ID, "weather", {}, call_id="c1")
    store = palaver.open(":memory:")
    session = PalaverSession(store.create([assistant([*said_apart, call])]))
    popped: Any = asyncio.run(session.pop_item())
    assert "c1" == popped["call_id"]
    assert ["a", "b"] == [message.text for message in session.history.view]
    session.history.undo()
    assert 1 == len(session.history.view)


def test_metadata_of_a_stranger_is_not_used() -> None:
    items = [{"role": "user", "content": "Tea?"}]
    mine = fingerprint(items)
    for kept in ("x", "0 []", 5, ["x"], f"{mine} {{", f"{mine} [[[],5]]", f"{mine} [[[0],5]]"):
        assert items == to_items(user("Tea?", metadata={METADATA_KEY: kept}))


def test_results_of_palaver_are_outputs() -> None:
    """A failed call, and two results in one message."""
    running = start(pending({}, ""), at=1)
    parts = [
        tool_part(NIL_ID, NIL_ID, f"c{n}", "weather", fail(running, f"no {n}", at=2)) for n in "12"
    ]
    found = to_items(Message("tool", tuple(parts)))
    assert [("c1", "no 1"), ("c2", "no 2")] == [(i["call_id"], i["output"]) for i in found]
    assert [found[0]] == to_items(Message("tool", (parts[0],)))
    stranger = UnknownPart({"type": "elsewhere", "id": "u1"})
    assert [] == to_items(Message("assistant", (stranger,)))


def test_calls_get_their_outputs_and_outputs_their_calls() -> None:
    ask: dict[str, Any] = {"role": "user", "content": "Tea?"}
    words: dict[str, Any] = {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": INTERRUPTED,
    }
    shell = {"type": "shell_call", "call_id": "c5", "action": {"commands": ["ls"]}}
    for rest, whole in (
        ([called(1), ask], [called(1), words, ask]),
        ([called(1), ask, gave(1)], [called(1), gave(1), ask]),
        ([called(1), called(2), gave(1), said(1, "so"), gave(2)],
         [called(1), called(2), gave(1), gave(2), said(1, "so")]),
        ([gave(1), ask], [ask]),
        ([called(1), gave(1), gave(1)], [called(1), gave(1)]),
        ([called(1), called(1), gave(1)], [called(1), called(1), gave(1)]),
        ([thought(1), ask], [ask]),
        ([ask, thought(1)], [ask]),
        ([thought(1), shell, ask], [ask]),
        ([called(1), {**gave(1), "type": "custom_tool_call_output"}], [called(1), gave(1)]),
    ):  # fmt: skip
        assert [ask, *whole] == repair_items([ask, *rest])
    assert [ask, called(1)] == repair_items([gave(9), ask, called(1)])  # it may still be at work
    for whole in (
        [ask, called(1)],
        [ask, called(1), said(1, "so")],
        [thought(1), thought(2), called(1)],
    ):
        assert whole is repair_items(whole)


def test_an_answer_cut_in_two_goes_without_its_ids() -> None:
    """OpenAI refuses an id without the reasoning that led to it, which may be what was cut."""
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    shell: dict[str, Any] = {"type": "shell_call", "call_id": "c5", "action": {"commands": ["ls"]}}
    ran: dict[str, Any] = {"type": "shell_call_output", "call_id": "c5", "output": []}
    summary = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
    bare = called(1)
    del bare["id"]
    so = {"role": "assistant", "content": "so"}
    goes_on = [gave(1), thought(2), called(2), gave(2)]
    for cut, whole in (
        ([search, said(1, "so"), called(1), *goes_on], [so, bare, *goes_on]),
        ([called(1), *goes_on], [bare, *goes_on]),
        ([{**shell, "id": "sh_1"}, ran], [shell, ran]),
        ([summary, called(1), gave(1)], [summary, bare, gave(1)]),
    ):
        assert whole == repair_items(cut)
    for whole in ([bare, *goes_on], [so], [thought(1), called(1), gave(1)]):
        assert whole is repair_items(whole)
    refused = {"type": "message", "role": "assistant", "id": "msg_1",
               "content": [{"type": "refusal", "refusal": "No."}]}  # fmt: skip
    assert [{"role": "assistant", "content": "No."}] == repair_items([refused])
    assert [so] == repair_items([{**so, "id": "msg_1"}])


@at_least(40, in_faults=5_000)
@given(st.lists(turns(), min_size=1, max_size=3), st.data())
def test_whatever_is_taken_out_the_rest_is_valid(
    talk: list[list[list[Any]]], data: st.DataObject
) -> None:
    ids = [item["id"] for batches in talk for batch in batches for item in batch if "id" in item]
    assume(len(ids) == len(set(ids)))  # OpenAI gives an id once, and refuses it twice
    session = PalaverSession(palaver.open(":memory:"), "talk")
    for batch in (batch for batches in talk for batch in batches):
        asyncio.run(session.add_items(batch))
    history = session.history
    length = len(history.view)
    kept = data.draw(st.sets(st.integers(0, length - 1)))
    history.rewrite([range(index, index + 1) for index in sorted(kept)])
    limit = data.draw(st.none() | st.integers(1, 8))
    shown: list[Any] = [*asyncio.run(session.get_items(limit))]
    items: list[Any] = [*shown, {"role": "user", "content": "And now?"}]
    repaired: Any = repair_items([*items])
    valid = ModelInputData(repaired, "Be brief.")
    given_data: Any = CallModelData(ModelInputData(items, "Be brief."), Agent(name="Ada"), None)
    assert valid == repair_input(given_data)
    problems = check_request("openai-responses", {"model": "m", "input": valid.input})
    assert [] == [str(each) for each in problems if "must not be empty" not in str(each)], items


def test_a_request_that_is_valid_is_left_alone() -> None:
    asked: Any = {"role": "user", "content": "Tea?"}
    data = CallModelData(ModelInputData([asked], "Be brief."), Agent[Any](name="Ada"), None)
    assert data.model_data is repair_input(data)


def compact(
    session: PalaverSession, limit: int, start: int, is_expired: Callable[[Any], bool] | None = None
) -> bool:
    """Do what the SDK's compaction does with a session's snapshot."""

    async def replace_end() -> bool:
        snapshot = await session._get_compaction_snapshot(limit, prune_prefix=is_expired)
        assert snapshot is not None
        assert snapshot.items == await session.get_items(limit)
        assert snapshot.complete == (len(await session.get_items()) <= limit)
        summary: Any = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
        return await snapshot.replace_suffix(start, [summary])

    return asyncio.run(replace_end())


def test_the_sdk_compacts_the_end_of_a_history() -> None:
    """In one change, which can be undone; a part of an answer stays where it was."""
    ask: Any = {"role": "user", "content": "Tea?"}
    talk: list[Any] = [ask, thought(1), said(1, "Hm."), called(1), gave(1), said(2, "so")]
    session = PalaverSession(palaver.open(":memory:"), "talk")
    asyncio.run(session.add_items(talk))
    assert compact(session, 4, 1)
    types = [item.get("type") for item in asyncio.run(session.get_items())]
    assert [None, "reasoning", "message", "compaction"] == types
    session.history.undo()
    assert talk == asyncio.run(session.get_items())
    assert compact(session, 9, 3, lambda item: item == ask)
    types = [item.get("type") for item in asyncio.run(session.get_items())]
    assert ["reasoning", "message", "compaction"] == types
    assert compact(session, 3, 2, lambda _: False)
    assert not compact(session, 3, 3)
    assert not compact(PalaverSession(palaver.open(":memory:"), "new"), 3, 0)


def test_a_history_that_has_changed_meanwhile_is_not_compacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask: Any = {"role": "user", "content": "Tea?"}
    store = palaver.open(":memory:")
    session = PalaverSession(store, "talk")

    async def both() -> None:
        await session.add_items([ask])
        snapshot = await session._get_compaction_snapshot(5)
        assert snapshot is not None
        await session.add_items([ask, ask])
        assert not await snapshot.replace_suffix(0, [{"role": "user", "content": "Rum?"}])
        assert [ask] * 3 == await session.get_items()
        snapshot = await session._get_compaction_snapshot(5)
        assert snapshot is not None
        history = StoredHistory.rewrite
        with monkeypatch.context() as patched:
            other = PalaverSession(store, "talk")

            def late(self: StoredHistory, *args: Any, **fields: Any) -> Any:
                other._add([ask])
                return history(self, *args, **fields)

            patched.setattr(StoredHistory, "rewrite", late)
            assert not await snapshot.replace_suffix(0, [{"role": "user", "content": "Rum?"}])
        assert [ask] * 4 == await session.get_items()

    class Changed(PalaverSession):
        async def add_items(self, items: list[Any]) -> None:
            await super().add_items([*items, ask])

    asyncio.run(both())
    changed = Changed(session.history)
    assert asyncio.run(changed._get_compaction_snapshot(5)) is None


def test_ignored_text_does_not_reach_the_model() -> None:
    parts = [text_part(NIL_ID, NIL_ID, "seen"), text_part(NIL_ID, NIL_ID, "HIDDEN", ignored=True)]
    for made in (user(parts), assistant(parts)):
        written = str(to_items(made))
        assert "seen" in written
        assert "HIDDEN" not in written
    assert [] == to_items(user(parts[1:]))


@pytest.mark.parametrize("name", ["call_1__thought__" + "Q" * 1500, "call\n1"])
def test_ids_that_no_message_can_have(name: str) -> None:
    """Gateways put signatures into the ids of calls: the run goes on, and the items keep them."""
    call = {"type": "function_call", "call_id": name, "id": name, "name": "weather",
            "arguments": "{}", "status": "completed"}  # fmt: skip
    output = {"type": "function_call_output", "call_id": name, "output": "sun"}
    with palaver.open(":memory:") as store:
        session = PalaverSession(store, "talk")
        items: list[Any] = [{"role": "user", "content": "Tea?"}, call, output]
        for item in items:
            asyncio.run(session.add_items([item]))
        assert [call, output] == asyncio.run(PalaverSession(store, "talk").get_items(2))
        asked, answered = store.get("talk")[1:]
        assert isinstance(asked.parts[0], ToolCallPart)
        assert isinstance(answered.parts[0], ToolPart)
        assert ("weather", asked.parts[0].call_id) == (
            answered.parts[0].tool,
            answered.parts[0].call_id,
        )
        assert output == asyncio.run(session.pop_item())


@pytest.mark.parametrize("given", ["chat.db", None, 7])
def test_a_session_takes_a_store(given: Any) -> None:
    """What is no store is refused where it is given."""
    with pytest.raises(ValidationError, match=r"\$\.store: must be a Store"):
        PalaverSession(given, "talk")
