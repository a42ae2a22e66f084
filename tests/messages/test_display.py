"""What notebooks, terminals and tracebacks show of palaver's values: short, whole, and harmless."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import palaver
from palaver import ContextManager, Conversation, History, Message, assistant, user
from palaver.conversation import RunResult, Step, ToolOutcome, Usage
from palaver.conversation.usage import NOTHING
from palaver.history.diff import compare
from palaver.messages import (
    complete,
    file_part,
    new_id,
    parse_part,
    pending,
    reasoning_part,
    start,
    text_part,
    tool_call_part,
    tool_part,
)
from palaver.stores.records import Hit
from palaver.tools import ToolOutput, tool
from tests.conversation.scripted import Scripted

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)> & \"'] [red]no[/red] \x1b[2J\x07"
NAME = "".join(filter(str.isprintable, HOSTILE))
ANN = {"roleId": "ann", "roleName": "Ann", "type": "human"}
ONE, TWO = new_id(), new_id()
LONG = "a line of text\n" * 80_000


def hostile_message() -> Message:
    """A message with the text in each of its fields that anyone sees."""
    state = complete(start(pending({"q": HOSTILE}, "")), HOSTILE, tool=NAME, title=HOSTILE)
    return Message(
        "user",
        (
            text_part(ONE, TWO, HOSTILE),
            reasoning_part(ONE, TWO, HOSTILE),
            tool_call_part(ONE, TWO, NAME, {"q": HOSTILE}),
            tool_part(ONE, TWO, "c1", NAME, state),
            file_part(ONE, TWO, "image/png", "data:image/png;base64,QUJD", filename=HOSTILE),
            parse_part({"type": NAME, "id": "x", "more": HOSTILE}),
        ),
        speaker=palaver.messages.Speaker("r1", "<b>Ann</b>", "human"),
    )


def prompt(history: History) -> Any:  # noqa: ANN401 - a Prompt
    """What an agent is given of a history."""
    context = ContextManager(history)
    context.add_message({"content": HOSTILE, "speaker": ANN})
    return context.prompt_for("bob", "claude")


def shown() -> dict[str, Any]:
    """What can be shown, each with the hostile text in it."""
    history = History([hostile_message()])
    changed = History([user("before"), user("stays")])
    old = changed.view
    changed.append(hostile_message())
    changed.truncate(remove_first=1)
    return {
        "message": hostile_message(),
        "view": history.view,
        "history": history,
        "diff": compare(old, changed.view),
        "prompt": prompt(History()),
        "answer": RunResult(hostile_message(), NOTHING),
    }


def test_a_notebook_shows_hostile_text_as_text() -> None:
    for kind, value in shown().items():
        html = value._repr_html_()
        assert "&lt;script&gt;alert(&#x27;x&#x27;)" in html, kind
        assert not [raw for raw in ("<script", "<img", "<b>", "\x1b", "\x07") if raw in html], kind
        assert html.count("<table") == html.count("</table>") == 1, kind


def test_rich_shows_hostile_text_as_text() -> None:
    for kind, value in shown().items():
        out = io.StringIO()
        Console(file=out, width=200, force_terminal=True).print(value)
        assert "[red]no[/red]" in out.getvalue(), kind
        assert not [raw for raw in ("\x1b[2J", "\x07") if raw in out.getvalue()], kind


def test_a_history_shows_its_two_ends_and_says_how_many_are_between() -> None:
    history = History([user(f"number {n}.") for n in range(20_000)])
    html = history._repr_html_()
    assert "number 0." in html
    assert "number 19999." in html
    assert "number 10000." not in html
    assert "19,970 more messages" in html
    assert len(html) < 20_000


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    html = user(LONG)._repr_html_()
    assert len(html) < 30_000
    assert "1,180,000 more characters" in html


def test_an_empty_history_and_no_difference_can_be_shown() -> None:
    history = History()
    for value in (history, compare(history.view, history.view), assistant("")):
        assert "<table" in value._repr_html_()
        Console(file=io.StringIO()).print(value)


def test_what_is_shown_needs_no_rich() -> None:
    program = (
        "import sys, palaver; palaver.user('x')._repr_html_(); assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# ── reprs ───────────────────────────────────────────────────────────────────────────────────────


def large() -> dict[str, Any]:
    """Values with a megabyte of text in them, or with 20,000 messages."""
    message = user(LONG)
    state = complete(start(pending({"q": LONG}, LONG)), LONG, tool="t")
    call = tool_call_part(ONE, TWO, "look", {"q": LONG})
    history = History([user("x")] * 20_000)
    store = palaver.open(":memory:")
    talk = Conversation(store, store.create([user("x")] * 20_000), model=Scripted())
    return {
        "message": message,
        "parts": user([text_part(ONE, TWO, LONG) for _ in range(50)]),
        "text part": text_part(ONE, TWO, LONG),
        "call": call,
        "result": tool_part(ONE, TWO, "c1", "look", state),
        "state": state,
        "unknown part": parse_part({"type": "new", "id": "x", "text": LONG}),
        "history": history,
        "view": history.view,
        "change": history.clear(),
        "state of a history": history.state,
        "diff": compare(History().view, History([message]).view),
        "step": Step(message, NOTHING, ()),
        "answer": RunResult(message, NOTHING),
        "outcome": ToolOutcome(call, state, message, LONG),
        "output": ToolOutput(LONG),
        "hit": Hit("c", 0, message, LONG),
        "store": store,
        "conversation": talk,
        "stored history": talk.history,
        "request": talk.request(Scripted()),
        "tools": palaver.Toolbox([tool(name="look", description=LONG)(print_nothing)]),
        "tool": tool(name="look", description=LONG)(print_nothing),
        "prompt": prompt(History([message])),
        "usage": Usage(),
    }


def print_nothing() -> None:
    """Do nothing."""


def test_a_repr_is_one_short_line() -> None:
    for kind, value in large().items():
        text = repr(value)
        assert len(text) <= 300, kind
        assert not [odd for odd in ("\n", "object at 0x") if odd in text], kind


def test_a_repr_says_what_matters() -> None:
    assert "Message('user', 'Tea?', id='m1')" == repr(user("Tea?", id="m1"))
    assert "<Store: sqlite>" != repr(palaver.open(":memory:")) == "<Store: memory>"
    assert "<Toolbox: print_nothing>" == repr(palaver.Toolbox([print_nothing]))


# ── pickling ────────────────────────────────────────────────────────────────────────────────────


def open_things() -> dict[str, Any]:
    """What holds files, connections, locks or functions."""
    store = palaver.open(":memory:")
    talk = Conversation(store, model="openai:gpt-5")
    return {
        "Store": store,
        "Conversation": talk,
        "StoredHistory": talk.history,
        "OpenAIChatModel": palaver.model("openai:gpt-5"),
        "RunStream": talk.stream("Tea?"),
        "LocalModel": palaver.model("local:smollm2"),
        "ContextManager": ContextManager(History()),
        "History": History([user("a")]),
        "View": History([user("a")]).view,
    }


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_can_not_be_pickled_says_what_to_do_instead(how: Callable[[Any], object]) -> None:
    for kind, thing in open_things().items():
        with pytest.raises(TypeError, match=rf"^an? {kind} can't be pickled or copied; .{{20}}"):
            how(thing)


@pytest.mark.parametrize("how", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy])  # noqa: S301 - our own
def test_values_can_be_pickled_and_copied(how: Callable[[Any], Any]) -> None:
    for value in (hostile_message(), palaver.Limits(steps=3), [user("x")]):
        assert value == how(value)
