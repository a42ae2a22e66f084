"""Making room: ordinary edits that keep what must stay, and refuse what does not help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from palaver.conversation import (
    ClearOutputs,
    Conversation,
    DropOldest,
    Summarise,
    auto_compact,
    compact,
)
from palaver.conversation.compaction import preview
from palaver.errors import CompactionRefused
from palaver.history import SUMMARY_OF
from palaver.messages import (
    AssistantInfo,
    Message,
    ToolCompleted,
    ToolPart,
    assistant,
    complete,
    new_id,
    pending,
    start,
    system,
    tool_call_part,
    tool_part,
    user,
)
from palaver.testing import check_request
from palaver.wire import to
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from palaver import Store
    from palaver.events import Event

pytestmark = pytest.mark.anyio
SESSION = new_id()


def turn(number: int, size: int = 100) -> list[Message]:
    """A user's question, a tool call with an output of this size, and an answer."""
    call = tool_call_part(SESSION, new_id(), "read", {}, call_id=f"c{number}")
    done = complete(start(pending({}, "")), "x" * size, tool="read")
    result = tool_part(SESSION, new_id(), f"c{number}", "read", done)
    return [
        user(f"question {number}"),
        assistant([call]),
        Message("tool", (result,)),
        assistant(f"answer {number}"),
    ]


def long_talk(store: Store, turns: int = 5, size: int = 100) -> Conversation:
    """A conversation of some turns, counted by characters."""
    conversation = Conversation(store, count=len)
    conversation.history.extend([system("be brief")])
    for number in range(turns):
        conversation.history.extend(turn(number, size))
    return conversation


def outputs(conversation: Conversation) -> list[bool]:
    """Which tool outputs are still there."""
    parts = [part for message in conversation.messages for part in message.parts]
    return [
        part.state.time.compacted is None
        for part in parts
        if isinstance(part, ToolPart) and isinstance(part.state, ToolCompleted)
    ]


def texts(conversation: Conversation) -> list[str]:
    """What is said, without calls and results."""
    return [message.text for message in conversation.messages if message.text]


async def test_old_outputs_are_cleared(store: Store) -> None:
    """CV-09: the newest tokens and the last two turns are protected; the calls stay."""
    conversation = long_talk(store)
    before = list(conversation.messages)
    done = await compact(conversation, ClearOutputs(protect_tokens=150, least_gain=50))

    assert done is not None
    assert [False, False, False, True, True] == outputs(conversation)
    assert done.saved > 200
    assert done.price.tokens_freed > 0
    assert "cleared the outputs of 3 tool calls" in done.detail
    assert () == check_request("anthropic", to("anthropic", conversation.messages).body)
    assert "output cleared" in str(to("openai-chat", conversation.messages).body)
    conversation.history.undo()
    assert before == list(conversation.messages)


async def test_a_small_gain_is_not_worth_it(store: Store) -> None:
    """CV-09: at least so many tokens to gain; nothing changes."""
    conversation = long_talk(store)
    version = conversation.history.version

    assert await compact(conversation, ClearOutputs()) is None
    assert version == conversation.history.version


async def test_the_oldest_turns_are_dropped_whole(store: Store) -> None:
    """CV-09: calls and results go together, the system's words and the last turn stay."""
    conversation = long_talk(store)
    await compact(conversation, DropOldest(keep_tokens=250))

    assert texts(conversation)[0] == "be brief"
    assert texts(conversation)[-2:] == ["question 4", "answer 4"]
    assert "question 0" not in texts(conversation)
    request = to("anthropic", conversation.messages)
    assert [] == [note for note in request.repairs if "result" in note.rule]


async def test_even_a_budget_of_nothing_leaves_the_last_turn(store: Store) -> None:
    """What the user just asked is never dropped."""
    conversation = long_talk(store)
    await compact(conversation, DropOldest(keep_tokens=0))

    assert ["be brief", "question 4", "answer 4"] == texts(conversation)


async def test_marked_messages_and_open_calls_stay(store: Store) -> None:
    """CV-09: carried verbatim."""
    conversation = long_talk(store, turns=3)
    conversation.history.mark(1, "pin")
    conversation.add(user("and now"))
    step = await conversation.step(Scripted(calling(("write", {"to": "file"}))))
    await compact(conversation, DropOldest(keep_tokens=0))

    assert ["be brief", "question 0", "and now"] == texts(conversation)
    assert step.message in list(conversation.messages)


async def test_the_roles_asked_for_stay(store: Store) -> None:
    """CV-09, S1 §3.2: what the user said, here; and the system's words no longer."""
    conversation = long_talk(store, turns=3)
    await compact(conversation, DropOldest(keep_tokens=0, keep_roles=frozenset({"user"})))

    assert ["question 0", "question 1", "question 2", "answer 2"] == texts(conversation)


async def test_a_summary_takes_the_place_of_what_it_sums_up(store: Store) -> None:
    """CV-09: written by a model; it names its sources, and the wire takes it."""
    conversation = long_talk(store)
    old = [message.id for message in conversation.messages][1:-4]
    events: list[Event] = []
    conversation.events.on("compaction.done", events.append)
    model = Scripted(saying("They talked."))
    done = await compact(conversation, Summarise(model=model, keep_tokens=160))

    assert done is not None
    assert ["be brief", "They talked.", "question 4", "answer 4"] == texts(conversation)
    summary = conversation.messages[2]
    assert old == summary.metadata[SUMMARY_OF]
    assert isinstance(summary.info, AssistantInfo)
    assert summary.info.summary is True
    assert (done.saved, done.version) == (events[0].data["saved"], events[0].version)
    assert "Sum up the conversation" in str(model.asked[0].body)
    assert () == check_request("anthropic", to("anthropic", conversation.messages).body)
    conversation.history.undo()
    assert "question 0" in texts(conversation)


@pytest.mark.parametrize(
    ("said", "why"),
    [("", "empty"), ("  \n", "empty"), ("x" * 2_000, "no shorter"), ("wrong", "check")],
)
async def test_a_bad_summary_is_refused(store: Store, said: str, why: str) -> None:
    """CV-09: nothing changes."""
    conversation = long_talk(store)
    before = conversation.history.version
    strategy = Summarise(
        model=Scripted(saying(said)),
        keep_tokens=160,
        check=lambda summary, old: summary != "wrong" and bool(old),
    )
    with pytest.raises(CompactionRefused, match=why):
        await compact(conversation, strategy)

    assert before == conversation.history.version


async def test_an_async_check_is_waited_for(store: Store) -> None:
    """A check may ask somebody else."""

    async def fine(summary: str, old: list[Message]) -> bool:
        return bool(summary and old)

    strategy = Summarise(model=Scripted(saying("short")), keep_tokens=160, check=fine)

    assert await compact(long_talk(store), strategy) is not None


async def test_nothing_runs_twice_on_the_same_state(store: Store) -> None:
    """CV-09: a second call finds nothing new to do, and no model is asked."""
    conversation = long_talk(store)
    model = Scripted(saying("They talked."))
    strategy = Summarise(model=model, keep_tokens=160)
    await compact(conversation, strategy)

    assert await compact(conversation, strategy) is None
    assert len(model.asked) == 1


async def test_a_handler_makes_room_before_the_question_goes_out(store: Store) -> None:
    """CV-08, CV-09: plugged in by the engine; the request is the shorter one already."""
    conversation = long_talk(store)
    conversation.token_limit = 300
    conversation.events.on(
        "tokens.exceeded", auto_compact(conversation, DropOldest(keep_tokens=200))
    )
    model = Scripted(saying("fine"))
    await conversation.step(model)

    assert "question 0" not in str(model.asked[0].body)
    assert texts(conversation)[-1] == "fine"


async def test_erasing_a_message_reaches_its_summary(store: Store) -> None:
    """HI-15: every summary made from it."""
    conversation = long_talk(store)
    first = conversation.messages[1].id
    await compact(conversation, Summarise(model=Scripted(saying("They talked.")), keep_tokens=160))
    conversation.history.restore(conversation.history.version - 1)
    conversation.history.erase(first)
    conversation.history.undo()

    assert "They talked." not in str([m.text for m in conversation.history.log])


async def test_a_preview_says_what_would_happen_and_changes_nothing(store: Store) -> None:
    """CV-09: and what does not help is refused before it is tried."""
    conversation = Conversation(store, store.create([user("word " * 50), user("last")]))
    before = list(conversation.messages)
    found = await preview(conversation, DropOldest(keep_tokens=10))
    assert found is not None
    assert ("drop-oldest", "dropped 1 messages", 0) == (
        found.strategy,
        found.plan.detail,
        found.version,
    )
    assert [before[0]] == list(found.price.removed)
    assert (before, 0) == (list(conversation.messages), conversation.history.version)
    done = await compact(conversation, DropOldest(keep_tokens=10))
    assert done is not None
    assert (found.before, found.after) == (done.before, done.after)
    assert await preview(conversation, DropOldest(keep_tokens=10)) is None
