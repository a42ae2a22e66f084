"""`palaver chat`: streaming answers, tools, commands, and an answer called off with Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import anyio
import pytest
from click.testing import CliRunner, Result

import palaver
from palaver.cli.app import app
from palaver.cli.commands.chat import ChatSession, Undecided, ask_about_call, read_answer
from palaver.conversation import Conversation
from palaver.conversation.store_access import OpenStep
from palaver.messages import new_id, tool_call_part, user
from palaver.testing.servers import Answer, Call, ProviderServer, Refusal
from palaver.wire import Target
from tests.cli.chat_tools import pay
from tests.cli.conftest import START
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from palaver.testing.servers import Scripted as Line

TOOLS = "tests.cli.chat_tools"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProviderServer]:
    """A model that says what it is told to; every request must be valid."""
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with ProviderServer("openai-chat") as running:
        yield running
    assert [] == running.failures


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "chat.db")


@pytest.fixture
def chat(server: ProviderServer, store: str) -> Callable[..., Result]:
    """Talk: the model's script, the lines a person writes, options of the command."""

    def run(script: list[Line], *lines: str, options: tuple[str, ...] = ()) -> Result:
        server.then(*script)
        arguments = ["chat", "--model", "openai:m", "--base-url", server.url, "--store", store]
        text = "".join(f"{line}\n" for line in lines)
        return CliRunner().invoke(app, [*arguments, *options], input=text, catch_exceptions=False)

    return run


def texts(store: str) -> list[str]:
    """What the only conversation of a store has."""
    with palaver.open(store) as opened:
        (head,) = opened
        return [message.text for message in opened.get(head.id).view]


def test_lines_are_questions_and_answers_are_printed_and_kept(
    chat: Callable[..., Result], store: str
) -> None:
    done = chat(["Hello\nyou\t!\x1b[31m", "Bye."], "hi", "", "  so long ", "//help yourself")

    assert 0 == done.exit_code
    assert "Hello\nyou\t!\\x1b[31m\nBye.\n/help yourself\n" == done.stdout
    assert re.fullmatch(r"[0-9a-f-]{36}: 6 messages\n", done.stderr)
    assert ["hi", "so long", "/help yourself"] == texts(store)[::2]
    assert "Bye." == texts(store)[3]


def test_an_answer_that_is_cut_off_or_empty_is_named(chat: Callable[..., Result]) -> None:
    found = chat(
        [Answer("Once upon", finish="length"), Answer(), "Yes."], "Tell me.", "Go on.", "?"
    )

    assert "Once upon" in found.stdout
    assert 1 == found.stderr.count("cut off: the model reached the most tokens that it may write")
    assert 1 == found.stderr.count("the model answered nothing (finish: stop)")


def test_tool_calls_are_shown_as_they_move(chat: Callable[..., Result], store: str) -> None:
    calls = (Call("weather", {"city": "Oslo"}), Call("fails"), Call("unknown"))
    script = [Answer("Let me see.", calls=calls), "It rains."]
    done = chat(script, "weather?", options=("--tools", f"{TOOLS}:every"))

    assert "Let me see.\nIt rains.\n" == done.stdout
    shown = done.stderr.splitlines()
    for line in (
        "[weather] pending",
        "[weather] running",
        "[weather] running: looking at Oslo",
        "[weather] completed: rain in Oslo",
        "[fails] error: ValueError: on fire",
        "[unknown] error: $: there is no tool 'unknown'; there are: fails, slow, weather [schema]",
    ):
        assert line in shown
    assert shown.index("[weather] pending") < shown.index("[weather] completed: rain in Oslo")
    assert 6 == len(texts(store))


@pytest.mark.parametrize("place", ["box", "table", "weather", "server", "every"])
def test_tools_come_in_many_shapes(
    chat: Callable[..., Result], server: ProviderServer, place: str
) -> None:
    chat(["ok"], "hi", options=("--tools", f"{TOOLS}:{place}"))

    offered = [tool["function"]["name"] for tool in server.requests[0].body["tools"]]
    assert "weather" in offered


def test_a_talk_goes_on_where_it_was(chat: Callable[..., Result], store: str) -> None:
    first = chat(["one"], "hi", options=("--system", "Be brief."))
    name = first.stderr[:36]
    chat(["two"], "again", options=("--conversation", name[:30]))

    assert ["Be brief.", "hi", "one", "again", "two"] == texts(store)


def test_going_back(chat: Callable[..., Result], store: str) -> None:
    done = chat(
        ["one", "two", "three"],
        "first",
        "second",
        "/undo 2",
        "/redo",
        "/undo",
        "/edit question",
        "/rollback 0",
        "/edit 1 uno",
    )

    assert "one\ntwo\n" == done.stdout[:8]
    lines = done.stdout.splitlines()[2:]
    assert ": version 6, 2 messages, batch 0" in lines[0]
    assert ": version 7, 3 messages, batch 0" in lines[1]
    assert ": version 8, 2 messages, batch 0" in lines[2]
    assert "three" == lines[3]
    assert ": version 12, 2 messages, batch 0" in lines[4]
    assert ["first", "uno"] == texts(store)


def test_an_edited_question_is_asked_again(
    chat: Callable[..., Result], server: ProviderServer, store: str
) -> None:
    chat(["one", "two", "three"], "first", "second", "/edit 0 other first")

    assert ["other first", "three"] == texts(store)
    assert [{"role": "user", "content": "other first"}] == server.requests[-1].body["messages"]


def test_tokens_context_and_marks(chat: Callable[..., Result], store: str) -> None:
    done = chat(["Yes."], "Tea?", "/tokens", "/context", "/mark keep", "/mark first 0", "/help")

    assert "last question  " in done.stdout
    assert ", 1 calls" in done.stdout
    assert re.search(r"^    0 +\d+  user       Tea\?$", done.stdout, re.MULTILINE)
    assert re.search(r"^    1 +\d+  assistant  Yes\.$", done.stdout, re.MULTILINE)
    for name in ("undo", "redo", "rollback", "edit", "tokens", "context", "compact", "fork"):
        assert f"\n/{name} " in done.stdout
    with palaver.open(store) as opened:
        history = opened.get(done.stderr[:36])
        assert ["Yes."] == [message.text for message in history.query(mark="keep")]
        assert ["Tea?"] == [message.text for message in history.query(mark="first")]


def test_what_had_to_be_repaired_is_in_the_context(chat: Callable[..., Result]) -> None:
    call = Answer(calls=(Call("weather", {"city": "Oslo"}),))
    lines = ("weather?", "/undo 2", "/context")
    done = chat([call, "It rains."], *lines, options=("--tools", f"{TOOLS}:weather"))

    assert done.stdout.splitlines()[-1].startswith("messages[1]: call 'call_1_0' of weather has no")


def test_making_room(chat: Callable[..., Result], store: str) -> None:
    long = "words " * 2_000
    done = chat(
        [long, "short", "What was said."],
        "tell me much",
        "tell me little",
        "/compact clear",
        "/compact",
        "/undo",
        "/compact drop",
        "/compact sideways",
    )

    assert "there is nothing to gain\n" in done.stdout
    assert re.search(r"summed up 2 messages: [\d,]+ tokens are now \d+; /undo", done.stdout)
    assert re.search(r"dropped 2 messages: [\d,]+ tokens are now \d+; /undo", done.stdout)
    assert "there is no way 'sideways' to make room" in done.stderr
    assert ["tell me little", "short"] == texts(store)
    assert 1 == done.exit_code


def test_a_fork_goes_its_own_way(chat: Callable[..., Result], store: str) -> None:
    done = chat(["one", "two", "three"], "first", "/fork", "second", "/fork 0", "third")

    found = [line[:36] for line in done.stdout.splitlines() if ": version" in line]
    assert 2 == len(set(found))
    with palaver.open(store) as opened:
        assert 3 == len(list(opened))
        second, third = (opened.get(name) for name in found)
        assert ["first", "one", "second", "two"] == [message.text for message in second.view]
        assert ["first", "one", "third", "three"] == [message.text for message in third.view]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/nothing", "there is no command /nothing; /help lists them"),
        ("/undo", "there is nothing to undo"),
        ("/undo x", "a number is wanted here, not 'x'"),
        ("/rollback", "a number is wanted here, not ''"),
        ("/rollback 7", "7"),
        ("/edit", "there is nothing to edit; it is written /edit [N] TEXT"),
        ("/edit 9 x", "there is no message 9: there are 0, the first is 0"),
        ("/mark x", "there is nothing to mark; it is written /mark NAME [N]"),
    ],
)
def test_a_command_that_can_not_be_is_refused_and_the_talk_goes_on(
    chat: Callable[..., Result], line: str, words: str
) -> None:
    done = chat(["still here"], line, "hi", "/quit", "never asked")

    assert words in done.stderr
    assert done.stdout.endswith("still here\n")
    assert 1 == done.exit_code


def test_a_model_that_fails_is_named_and_the_talk_goes_on(chat: Callable[..., Result]) -> None:
    done = chat([Refusal(401, "no such key"), "better"], "one", "two")

    assert "openai: no such key (status 401)\n" in done.stderr
    assert "better\n" == done.stdout
    assert 1 == done.exit_code


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--model", "nobody"), "'nobody' names no model"),
        (("--tools", "json"), "--tools json: must be MODULE:ATTR"),
        (("--tools", "json:nothing"), "--tools json:nothing: AttributeError"),
        (("--tools", "no.such:x"), "--tools no.such:x: ModuleNotFoundError"),
        (("--conversation", "nope"), "no conversation has an id that begins with 'nope'"),
    ],
)
def test_options_that_can_not_be_are_refused(
    store: str, options: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    base = () if "--model" in options else ("--model", "openai:m")
    done = CliRunner().invoke(app, ["chat", "--store", store, *base, *options])

    assert words in done.stderr
    assert done.exit_code in (1, 2)


def test_without_a_model_it_says_how_to_get_one(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAVER_CACHE", str(tmp_path))
    refused = CliRunner().invoke(app, ["chat", "--store", store])
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "smollm2.gguf").touch()
    taken = CliRunner().invoke(app, ["chat", "--store", store], input="/quit\n")

    assert 1 == refused.exit_code
    assert "palaver model install smollm2" in refused.stderr
    assert 0 == taken.exit_code


def test_what_a_crash_left_behind_is_told(chat: Callable[..., Result], store: str) -> None:
    """CV-06."""
    with palaver.open(store) as opened:
        conversation = Conversation(opened)
        conversation.add(user("hi"))
        begun = conversation._access.begin_step("openai-chat", Target())
        assert isinstance(begun, OpenStep)
        conversation._access.lease.release(begun.lease)
    done = chat(["yes"], "again?", options=("--conversation", conversation.id))

    assert "step: a model was asked and no answer had arrived; it may have been" in done.stderr


def test_an_answer_that_is_called_off_is_kept_as_far_as_it_came(
    chat: Callable[..., Result], store: str
) -> None:
    """CV-04."""

    def interrupting(_: object) -> Answer:
        threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
        return Answer("one two three four five six", piece=4, delay=0.3)

    done = chat([interrupting, "Fine."], "count", "and now?")

    assert "cancelled; what had arrived is stored\n" in done.stderr
    assert 0 == done.exit_code
    _, arrived, _, fine = texts(store)
    assert 0 < len(arrived) < len("one two three four five six")
    assert "Fine." == fine


def test_at_the_prompt_ctrl_c_says_how_to_leave(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["hi"])

    def typed(prompt: str) -> str:
        assert "> " == prompt
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    async def talked() -> bool:
        model = Scripted(saying("much ", "more"))
        model.window = 5
        with palaver.open(":memory:") as opened:
            talk = ChatSession(opened, None, model, [])
            talk.interactive = True
            return await talk.run()

    monkeypatch.setattr("builtins.input", typed)
    failed = anyio.run(talked)
    shown = capsys.readouterr()

    assert failed is False
    assert 2 == shown.err.count("Ctrl-D leaves\n")
    assert "much more\n" in shown.out
    assert "tokens, the limit is 4: /compact makes room" in shown.err


# ── approvals ───────────────────────────────────────────────────────────────────────────────────


def answers(*lines: str) -> Callable[[str], Awaitable[str]]:
    """Type these, one for each prompt; then the input ends."""
    left = list(lines)

    async def read(_: str) -> str:
        if not left:
            raise Undecided
        return left.pop(0)

    return read


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["Yes"], ("approve", "", None)),
        (["what?", "y"], ("approve", "", None)),
        (["n", "too dear"], ("deny", "too dear", None)),
        (["no", ""], ("deny", "", None)),
        (["c", '{"amount": 7}'], ("edit", "", {"amount": 7})),
        (
            ["c", "7", "c", '{"amount": "x"}', "change", '{"amount": 8}'],
            ("edit", "", {"amount": 8}),
        ),
    ],
)
def test_what_is_typed_becomes_a_decision(
    typed: list[str], expected: tuple[str, str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    call = tool_call_part(new_id(), new_id(), "pay", {"amount": 50})
    made = anyio.run(ask_about_call, call, {"pay": pay}, answers(*typed))
    assert expected == (made.verdict, made.reason, made.arguments)
    assert made.by
    shown = capsys.readouterr().err
    assert '[pay] asks to run with {"amount":50}' in shown
    assert ("must be a JSON object" in shown) == ("7" in typed)
    assert ("Expected `int`, got `str`" in shown) == ("7" in typed)


def test_a_line_of_the_terminal_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    source, sink = os.pipe()
    os.write(sink, b" yes \n")
    os.close(sink)
    with os.fdopen(source, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert "yes" == anyio.run(read_answer, "? ")
        with pytest.raises(Undecided):
            anyio.run(read_answer, "? ")


@pytest.mark.parametrize("typed", [["y"], []])
def test_a_chat_begins_with_the_call_that_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: list[str]
) -> None:
    def leave(_: str) -> str:
        raise EOFError

    async def talked() -> list[str]:
        with palaver.open(":memory:") as opened:
            model = Scripted(calling(("pay", {"amount": 50})), saying("Paid."))
            asked = Conversation(opened, model=model, tools=[pay])
            await asked.ask("Pay.")
            talk = ChatSession(opened, asked.history, model, [pay])
            talk.interactive = True
            assert not await talk.run()
            return [message.text for message in asked.messages][-1:]

    monkeypatch.setattr("builtins.input", leave)
    monkeypatch.setattr("palaver.cli.commands.chat.read_answer", answers(*typed))
    assert (["Paid."] if typed else [""]) == anyio.run(talked)
    shown = capsys.readouterr().err
    assert ("pay waits for an approval: you are asked again" in shown) == (not typed)


# ── a terminal ──────────────────────────────────────────────────────────────────────────────────


class Terminal:
    """The command in a terminal of its own, and what it shows."""

    def __init__(self, *arguments: str, command: tuple[str, ...] = ("chat",)) -> None:
        self.shown = ""
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, *command, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "OPENAI_API_KEY": "any", "TERM": "dumb"},
        )
        os.close(theirs)

    def until(self, words: str) -> None:
        """Wait until it shows something, and forget what came before."""
        end = time.monotonic() + 60
        while words not in self.shown:
            assert time.monotonic() < end, f"no {words!r} in {self.shown!r}"
            if select.select([self._ours], [], [], 0.2)[0]:
                self.shown += self._read()
        self.shown = self.shown.partition(words)[2]

    def _read(self) -> str:
        try:
            return os.read(self._ours, 4_096).decode()
        except OSError:  # the other end is closed
            return ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C, as a terminal sends it."""
        self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(server: ProviderServer, store: str) -> Iterator[Terminal]:
    base = ("--model", "openai:m", "--base-url", server.url, "--store", store)
    opened = Terminal(*base, "--tools", f"{TOOLS}:every")
    yield opened
    opened.close()


def test_ctrl_c_calls_the_answer_off_and_keeps_what_had_arrived(
    terminal: Terminal, server: ProviderServer, store: str
) -> None:
    """CV-04: in the stream, in a tool, at the prompt; then the talk goes on."""
    slow = Answer("one two three four five six", piece=4, delay=0.5)
    server.then(slow, Answer("Wait.", calls=(Call("slow"),)), "Fine.")
    terminal.until("> ")
    terminal.interrupt()
    terminal.until("Ctrl-D leaves")
    terminal.type("count\n")
    terminal.until("one two")
    terminal.interrupt()
    terminal.until("cancelled; what had arrived is stored")
    terminal.until("> ")
    terminal.type("take your time\n")
    terminal.until("[slow] running")
    terminal.interrupt()
    terminal.until("cancelled")
    terminal.type("and now?\n")
    terminal.until("Fine.")
    terminal.until("> ")
    terminal.type("\x04")
    terminal.until("messages")

    assert 0 == terminal.process.wait(20)
    asked, answered, again, waiting, result, last, fine = texts(store)
    assert ("count", "take your time", "Wait.") == (asked, again, waiting)
    assert answered.startswith("one two")
    assert len(answered) < len("one two three four five six")
    assert ("", "and now?", "Fine.") == (result, last, fine)
