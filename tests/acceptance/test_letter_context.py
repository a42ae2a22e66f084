"""What a model may see, what it counts, and what an agent is shown: to the letter, from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver
from palaver import wire
from palaver.context import ContextManager
from palaver.history import History
from palaver.mcp.service import ConversationService
from palaver.messages import (
    Message,
    Speaker,
    assistant,
    new_id,
    system,
    text_part,
    user,
)
from palaver.messages.codec import to_content
from palaver.stores.transfer import read_snapshot, write_snapshot
from palaver.tokens import estimate, weigh

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stores import Store

SESSION, OWNER = new_id(), new_id()
HIDDEN = "HIDDEN"
MAX = Speaker("max", "Max", "ai")


@pytest.fixture
def store() -> Iterator[Store]:
    with palaver.open(":memory:") as opened:
        yield opened


def half_hidden(role: str = "user", text: str = HIDDEN) -> Message:
    """A message of two texts, of which one is for people only."""
    parts = (text_part(SESSION, OWNER, "seen"), text_part(SESSION, OWNER, text, ignored=True))
    return Message(role, parts, speaker=MAX if role == "assistant" else None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def hidden(text: str = HIDDEN) -> Message:
    return user([text_part(SESSION, OWNER, text, ignored=True)])


# ── what a model may see ────────────────────────────────────────────────────────────────────────


def test_a_message_says_what_of_it_a_model_may_see() -> None:
    """People see all text, a model what is not ignored; all that goes to a model asks here."""
    message = half_hidden()
    assert "seenHIDDEN" == message.text
    assert "seen" == message.sendable_text
    assert message.parts[:1] == message.sendable_parts
    assert ("", ()) == (hidden().sendable_text, hidden().sendable_parts)
    assert ("hi", ()) == (user("hi").sendable_text, user("hi").sendable_parts)


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini", "plain"])
@pytest.mark.parametrize("visibility", ["all", "addressed"])
def test_ignored_text_is_in_no_prompt(kind: str, visibility: palaver.context.Visibility) -> None:
    """Neither as a line of context nor as the current message, whatever the form."""
    context = ContextManager(
        History([half_hidden(), hidden(), half_hidden("assistant")]), visibility=visibility
    )
    prompt = context.prompt_for("sarah", kind)
    assert HIDDEN not in prompt.prompt
    assert 2 == prompt.prompt.count("seen")
    assert [True, False, True] == [entry.kept for entry in prompt.explain().entries]
    assert "no text" == prompt.explain().entries[1].reason


def test_an_ignored_message_is_not_the_current_one() -> None:
    """The newest message with something to see is."""
    context = ContextManager(History([user("first"), user("now"), hidden()]))
    assert "now" == context.context_for("max").current_message


def test_ignored_text_sets_no_team_task() -> None:
    """A team task goes to every agent, so text that no model may see can't set one."""
    context = ContextManager()
    context.add_message(half_hidden("assistant", "[TEAM_TASK: HIDDEN]"))
    assert context.team_task is None


@pytest.mark.parametrize("form", wire.FORMATS)
def test_ignored_text_is_in_no_request(form: str) -> None:
    """The system's, the user's and the assistant's, in every format."""
    history = [half_hidden("system"), half_hidden(), half_hidden("assistant"), user("Go on.")]
    request = wire.to(form, history)
    assert HIDDEN not in str(request.body)
    assert "seen" in str(request.body)


def test_ignored_text_is_not_counted() -> None:
    """What is not sent costs nothing."""
    assert weigh(user([text_part(SESSION, OWNER, "seen")]), estimate) == weigh(
        half_hidden(), estimate
    )


def test_an_assistant_that_reads_conversations_does_not_read_ignored_text(store: Store) -> None:
    """Not in a page of messages, not in one message, not in what a search found."""
    history = store.create()
    history.extend([half_hidden(), hidden("HIDDEN alone")])
    service = ConversationService(store)
    assert ["seen", ""] == [message.text for message in service.read(history.id).messages]
    assert "seen" == service.text(history.id, "0").text
    assert ["seen"] == [hit.snippet for hit in service.search(HIDDEN).hits]


def test_a_form_that_cannot_say_ignored_leaves_the_text_out() -> None:
    """Read back from there, it would be sent to models."""
    content, left_out = to_content(half_hidden())
    assert [{"type": "text", "text": "seen"}] == content
    assert [HIDDEN] == [getattr(part, "text", None) for part in left_out]
    snapshot = write_snapshot([half_hidden(), hidden()], team_task=None, timestamp=1)
    assert ["seen", ""] == [message.text for message in read_snapshot(snapshot).messages]


def test_generated_text_is_sent_and_an_erased_message_is_not() -> None:
    """`synthetic` only says who wrote it; of an erased message there is nothing to see."""
    made = user([text_part(SESSION, OWNER, "generated", synthetic=True)])
    history = History([system("Be brief."), user("secret"), assistant("Aha."), made])
    history.erase(1)
    for form in wire.FORMATS:
        assert "generated" in str(wire.to(form, history).body)
        assert "secret" not in str(wire.to(form, history).body)
    prompt = ContextManager(history).prompt_for("max").prompt
    assert "assistant: Aha.\n\ngenerated" == prompt
