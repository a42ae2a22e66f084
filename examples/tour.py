"""A short tour of palaver: real calls and what they really answer. Run it by itself.

Each stop is a function that yields what to show: a line of code, and what came of it.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from palaver.errors import Conflict, InvalidStateTransition, PalaverError
from palaver.history import BaseHistory, History, Truncate
from palaver.messages import (
    Message,
    ToolCompleted,
    assistant,
    complete,
    dump,
    fold,
    new_id,
    parse_message,
    pending,
    start,
    text_part,
    tool_call_part,
    tool_part,
    user,
)
from palaver.messages.foreign import parse_export, write_export
from palaver.messages.parts import is_tool_part
from palaver.messages.validation import validate_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Shown = tuple[str, object]


def a_message() -> Iterator[Shown]:
    """A message is checked when it is made, and never changes after."""
    message = user("How high is Mont Blanc?", id="m1", timestamp=1_760_000_000_000)
    yield 'message = user("How high is Mont Blanc?")', f"{message.role}: {message.text}"
    yield "dump(message)", dump(message).decode()
    yield "parse_message(dump(message)) == message", parse_message(dump(message)) == message


def a_refused_message() -> Iterator[Shown]:
    """What is wrong is refused at the door, with its place and its rule."""
    for code, bad in (
        ("a role that nobody has", {"role": "robot", "content": "beep"}),
        ("a character that no database keeps", {"role": "user", "content": "a\0b"}),
        ("a part that belongs nowhere", {"role": "user", "content": [{"type": "snapshot"}]}),
    ):
        yield code, validate_message(bad).problems[0]


def a_tool_call() -> Iterator[Shown]:
    """A tool call moves through its states; each step is a new value."""
    asked = pending({"peak": "Mont Blanc"}, '{"peak": "Mont Blanc"}')
    running = start(asked, title="looking it up", at=1_000)
    done = complete(running, "4,806 m", tool="height", at=1_420)
    yield "asked.status, running.status, done.status", (asked.status, running.status, done.status)
    yield "done.time.end - done.time.start", done.time.end - running.time.start
    yield "start(running) is running", start(running) is running
    try:
        start(done)
    except InvalidStateTransition as error:
        yield "start(done)", error


def an_answer() -> Iterator[Shown]:
    """An answer, its tool call and the result are three values; folded, they are one turn."""
    session, first, second = new_id(), new_id(), new_id()
    call = tool_call_part(session, first, "height", {"peak": "Mont Blanc"}, call_id="call_1")
    state = complete(start(pending({}, "{}")), "4,806 m", tool="height")
    messages = [
        assistant([text_part(session, first, "Let me see."), call], id=first),
        Message("tool", (tool_part(session, second, "call_1", "height", state),), id=second),
    ]
    yield "[message.role for message in messages]", [message.role for message in messages]
    (turn,) = fold(messages)
    yield "(turn,) = fold(messages); turn.info.role", turn.info.role
    yield "[part.type for part in turn.parts]", [part.type for part in turn.parts]


def an_export() -> Iterator[Shown]:
    """What another program exported is read, ids, odd fields and all, and written back the same."""
    ids = {"sessionID": "ses_01", "messageID": "msg_01"}
    done = {"status": "completed", "input": {}, "output": "", "title": "ls", "metadata": {}}
    done["time"] = {"start": 5, "end": 9}
    theirs: dict[str, Any] = {
        "info": {"id": "ses_01", "title": "An empty folder", "version": "1.0"},
        "messages": [
            {
                "info": {"id": "msg_01", "sessionID": "ses_01", "role": "assistant",
                         "time": {"created": 5}, "mode": "build"},
                "parts": [{"id": "prt_01", **ids, "type": "tool", "callID": "c", "tool": "ls",
                           "state": done}],
            }
        ],
    }  # fmt: skip
    export = parse_export(json.dumps(theirs))
    part = export.turns[0].parts[0]
    if is_tool_part(part) and isinstance(part.state, ToolCompleted):
        yield "part.state.output  # empty where it came from", part.state.output
    yield "write_export(export) == theirs", write_export(export) == theirs


def a_history() -> Iterator[Shown]:
    """A history is a log and a view of it: an edit copies nothing, and every state is kept."""
    history = History([user("one"), assistant("two"), user("three"), assistant("four")])
    history.truncate(keep_last=2)
    yield "history.truncate(keep_last=2); texts(history)", _texts(history)
    yield "history.batch_snapshot(0).description", _description(history)
    history.rollback(0)
    yield "history.rollback(0); texts(history)", _texts(history)
    history.redo()
    yield "history.redo(); texts(history)", _texts(history)
    yield "texts(history.at(0))", _texts(history.at(0))


def a_price() -> Iterator[Shown]:
    """What an edit would take away is known before it happens."""
    history = History([user("a long question " * 20), assistant("an answer"), user("and now?")])
    price = history.price(Truncate(keep_last=1), tokens=lambda message: len(message.text) // 4)
    yield "price.tokens_freed, price.cache_tokens", (price.tokens_freed, price.cache_tokens)
    yield "len(history)  # nothing happened yet", len(history)


def a_fork() -> Iterator[Shown]:
    """A fork goes its own way for free, and comes home; who touched the same thing is told."""
    history = History([user("one"), assistant("two")])
    fork = history.fork()
    fork.append(user("tried out there"))
    history.append(user("said here"))
    history.merge(fork)
    yield "history.merge(fork); texts(history)", _texts(history)
    history.replace(0, user("ONE"))
    fork.replace(0, user("uno"))
    try:
        history.merge(fork)
    except Conflict as error:
        yield "both replaced the first message", str(error).split(":")[0].split()[0] + " conflict"


def a_question() -> Iterator[Shown]:
    """Where each role speaks is known: nothing is searched, however long the talk."""
    history = History(user(f"question {n}") if n % 3 else assistant(f"answer {n}")
                      for n in range(100_000))  # fmt: skip
    yield 'texts(history.recent(2, role="assistant"))', _texts(history.recent(2, role="assistant"))
    yield 'history.count(role="user")', history.count(role="user")


def _texts(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


def _description(history: BaseHistory) -> str | None:
    snapshot = history.batch_snapshot(0)
    return snapshot.description if snapshot else None


STOPS: tuple[Callable[[], Iterator[Shown]], ...] = (
    a_message,
    a_refused_message,
    a_tool_call,
    an_answer,
    an_export,
    a_history,
    a_price,
    a_fork,
    a_question,
)


def main() -> None:
    """Take every stop in order."""
    logging.getLogger("palaver").addHandler(logging.NullHandler())  # the tour shows the errors
    show = _printer()
    for number, stop in enumerate(STOPS, 1):
        show_stop(stop, show, f"{number}. ")
    show("\nNext: README.md, and `palaver --help` for files of your own.", "")


def show_stop(
    stop: Callable[[], Iterator[Shown]], show: Callable[[str, str], None], number: str = ""
) -> None:
    """Show one stop: what it is about, and each line of code with what came of it."""
    show(f"\n{number}{stop.__doc__}\n", "bold")
    for code, answer in stop():
        show(f"   {code}", "cyan")
        show(f"   → {answer}", "red" if isinstance(answer, PalaverError) else "green")


def _printer() -> Callable[[str, str], None]:
    """Colour, where there is a terminal and rich; else the text as it is."""
    try:
        from rich.console import Console  # noqa: PLC0415 - it may not be there
    except ModuleNotFoundError:
        return lambda text, _style: print(text)
    console = Console(highlight=False, soft_wrap=True)
    return lambda text, style: console.print(text, style=style, markup=False, emoji=False)


if __name__ == "__main__":
    main()
