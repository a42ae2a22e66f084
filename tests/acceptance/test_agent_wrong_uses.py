"""What a user reads who writes something wrong: a sentence that names the place and the cure.

Each program of `USES` is refused where the mistake is made: no model is asked, nothing is stored,
and no file is created.
"""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import ContextManager, Conversation, History, Limits, tool, user, wire
from palaver.conversation import ClearOutputs, DropOldest, ModelPrice, Summarise
from palaver.errors import PalaverError, StoreError, UnknownConversation, UnknownMessage
from palaver.errors import ValidationError as Invalid
from palaver.stores.transfer import export_conversation, import_conversation
from palaver.tools.approval import Decision
from palaver.wire.convert import export_as
from tests.conversation.scripted import Scripted
from tests.markdown import matches

# fmt: off
# Programs, the error that each ends in, and its text; `...` stands for anything.
USES: list[tuple[str, type[Exception], str]] = [
    ("Conversation(5)", Invalid,
     "$.store: must be a Store, not 5; palaver.open('chat.db') opens one [argument]"),
    ("Conversation(store, modle=model)", TypeError,
     "Conversation() got an unexpected keyword argument 'modle'; did you mean ..."),
    ('Conversation(store, system="Be brief.")', TypeError,
     "Conversation() got an unexpected ... a message: talk.add(system('…')). It takes ..."),
    ("Conversation(store, model=model, temperature=0)", TypeError,
     "Conversation() got an ... options go to the model, palaver.model(NAME, …), or to ask. ..."),
    ("Conversation(store, approve=print)", TypeError,
     "Conversation() got an unexpected keyword argument 'approve'; it goes to ask or stream. ..."),
    ('await talk.ask("Tea?", system="Be brief.")', TypeError,
     "ask() got an unexpected keyword argument 'system'; a system text is a message: ..."),
    ('await online.ask("Tea?", options={"extra": {"messages": []}})', Invalid,
     "$.options.extra.messages: holds the conversation, and can't be overridden; ... [option]"),
    ('palaver.model("anthropic:x", extra={"x": 1, "system": "Be brief."})', Invalid,
     "$.extra.system: holds the conversation, and can't be overridden; ... [option]"),
    ('Conversation(store, model="gpt-5")', Invalid,
     "$.model: 'gpt-5' names no model; expected PROVIDER:MODEL, as in openai:gpt-5; ..."),
    ('Conversation(store, model="opnai:gpt-5")', Invalid,
     "$.model: 'opnai:gpt-5' names no model; expected PROVIDER:MODEL, as in openai:gpt-5; ..."),
    ('Conversation(store, model="openai:")', Invalid,
     "$.model: 'openai:' names no model; expected PROVIDER:MODEL, as in openai:gpt-5; ..."),
    ("Conversation(store, model=5)", Invalid,
     '$.model: must be a model, such as model("openai:gpt-5"), ... tools), not 5 [model]'),
    ("Conversation(store, model=dict)", Invalid,
     "$.model: must be a model, such as ... not the class dict [model]"),
    ('Conversation(store, "no-such-id")', UnknownConversation,
     "no conversation has the id 'no-such-id'; leave ... or make it: store.create(id=…)"),
    ("Conversation(store, 7)", Invalid,
     "$.conversation: must be the id of a conversation of ... returns, not 7 [argument]"),
    ("Conversation(store, tools=weather)", Invalid,
     "$.tools: must be a list of tools and functions, ... tools=[…] [tool-definition]"),
    ('Conversation(store, tools="weather")', Invalid,
     "$.tools: must be a list of tools and functions, not 'weather' [tool-definition]"),
    ("Conversation(store, tools=[weather, weather])", Invalid,
     "$.tools: there are two tools named 'weather'; give one ... [tool-definition]"),
    ("Conversation(store, tools=[5])", Invalid,
     "$.tools[0]: must be a tool or a function, not 5 [tool-definition]"),
    ('Conversation(store, tools=[lambda city: "sun"])', Invalid,
     "$.name: a lambda has no name, and a tool needs one: ... …) [tool-definition]"),
    ('Conversation(store, tools=[weather("Oslo")])', Invalid,
     "$.tools[0]: must be a tool or a function, not 'sun in Oslo' [tool-definition]"),
    ("Conversation(store, budget=-1)", Invalid,
     "$.budget: must be a number from 0 on, not -1 [limit]"),
    ('Conversation(store, budget="5 $")', Invalid,
     "$.budget: must be a number from 0 on, not '5 $' [limit]"),
    ("Conversation(store, token_limit=1.5)", Invalid,
     "$.token_limit: must be a whole number from 0 on, not 1.5 [limit]"),
    ("Conversation(store, limits=Limits(steps=3))", Invalid,
     "$.limits: must be ToolLimits(…), not a Limits; Limits(…) of a run go to ask [argument]"),
    ('Conversation(store, prices={"openai:gpt-5": 1.25})', Invalid,
     "$.prices: must be Prices({NAME: ModelPrice(…)}), not a dict [argument]"),
    ('Conversation(store, on_tool_error="be brief")', Invalid,
     "$.on_tool_error: must be a plain function of a call ... not 'be brief' [argument]"),
    ('Conversation(store, on_tool_error=lambda error: "no")', Invalid,
     "$.on_tool_error: must be a plain function of a ... with 2 arguments [argument]"),
    ("Conversation(store, executor=lambda: None)", Invalid,
     "$.executor: must be an async function of a call ... with 2 arguments [argument]"),
    ('Conversation("mysql://me:secret@host/db")', StoreError,
     "there is no store for mysql:// addresses; expected a file, :memory: or ..."),
    ('Conversation("")', StoreError,
     "the path of a store is empty; give a file, or :memory:"),
    ('Conversation(Path("."))', StoreError,
     "... is a folder; a store needs a file of its own"),
    ('await talk.ask("")', Invalid,
     "$.message: is empty; give what the user says, as ... a question [empty-message]"),
    ('await talk.ask("  \\n")', Invalid,
     "$.message: is empty; give what the user says, as ... a question [empty-message]"),
    ("await talk.ask(5)", Invalid,
     "$.message: must be what the user says, as text or as a message, not 5 [argument]"),
    ('await talk.ask(["Tea?", "Coffee?"])', Invalid,
     "$.message: must be what the user says, as text or as a message, not a list [argument]"),
    ('await talk.ask({"content": "Tea?"})', Invalid,
     "$: Invalid message format: role and content are required [empty-message]"),
    ('await talk.ask({"role": "robot", "content": "Tea?"})', Invalid,
     "$.role: must be system, user, assistant or tool, not 'robot' [role]"),
    ('talk.stream("")', Invalid,
     "$.message: is empty; give what the user says, as ... a question [empty-message]"),
    ('talk.stream({"role": "user"})', Invalid,
     "$: Invalid message format: role and content are required [empty-message]"),
    ('talk.stream("Tea?", output=Forecast)', TypeError,
     "stream() got an unexpected keyword argument 'output'; it takes ..."),
    ('talk.ask_sync("Tea?")', RuntimeError,
     "ask_sync() would block the event loop that runs here; write `await talk.ask(…)`"),
    ('await talk.ask("Tea?", limit=Limits(steps=3))', TypeError,
     "ask() got an unexpected keyword argument 'limit'; did you mean 'limits'? It takes ..."),
    ('await talk.ask("Tea?", on_delta=print)', TypeError,
     "ask() got an unexpected keyword argument 'on_delta'; it takes ..."),
    ('await mute.ask("Tea?")', Invalid,
     "$.model: no model: give one to the run or to the conversation [no-model]"),
    ('await talk.ask("Tea?", model="claude")', Invalid,
     "$.model: 'claude' names no model; expected PROVIDER:MODEL, as in openai:gpt-5; ..."),
    ('await talk.ask("Tea?", tools=5)', Invalid,
     "$.tools: must be a list of tools and functions, not 5 [tool-definition]"),
    ("await palaver.run(store)", Invalid,
     "$.conversation: must be a Conversation, not a Store [argument]"),
    ("Limits(step=1)", TypeError,
     "Limits() got an unexpected keyword argument ... steps, tool_calls, total_tokens"),
    ("Limits(3)", TypeError,
     "Limits() takes keywords: steps, tool_calls, total_tokens, cost, seconds"),
    ("Limits(steps=0)", Invalid,
     "$.limits.steps: must be a whole number above 0, not 0 [limits]"),
    ("Limits(steps=2.5)", Invalid,
     "$.limits.steps: must be a whole number above 0, not 2.5 [limits]"),
    ("Limits(seconds=-1)", Invalid,
     "$.limits.seconds: must be a number above 0, not -1 [limits]"),
    ('Limits(cost=float("nan"))', Invalid,
     "$.limits.cost: must be a number above 0, not nan [limits]"),
    ("Limits(tool_calls=True)", Invalid,
     "$.limits.tool_calls: must be a whole number above 0, not True [limits]"),
    ('await talk.ask("Tea?", limits=3)', Invalid,
     "$.limits: must be Limits(…), not 3 [argument]"),
    ('await talk.ask("Tea?", limits={"steps": 3})', Invalid,
     "$.limits: must be Limits(…), not a dict [argument]"),
    ('await talk.ask("Tea?", limits=Limits(cost=0.05))', Invalid,
     "$.limits.cost: a cost of at most 0.05 can't be ... 'palaver[prices]' [no-price]"),
    ("@tool(need_approval=True)\ndef pay(amount: int) -> str: ...", TypeError,
     "tool() got an unexpected keyword argument ... name, needs_approval, timeout"),
    ('@tool(needs_approval="yes")\ndef pay(amount: int) -> str: ...', Invalid,
     "$.needs_approval: must be True, False or a plain ... of them, not 'yes' [argument]"),
    ("@tool(needs_approval=lambda: True)\ndef pay(amount: int) -> str: ...", Invalid,
     "$.needs_approval: must be True, False or a plain ... with 1 argument [argument]"),
    ('@tool(timeout="5 s")\ndef pay(amount: int) -> str: ...', Invalid,
     "$.timeout: must be a number from 0 on, not '5 s' [limit]"),
    ('@tool(name="")\ndef pay(amount: int) -> str: ...', Invalid,
     "$.name: must not be empty [schema]"),
    ('@tool("pay")\ndef pay(amount: int) -> str: ...', Invalid,
     "$.function: must be a function, not 'pay'; for a name write ... [tool-definition]"),
    ("@tool\ndef read(path: Path) -> str: ...", Invalid,
     "$.tools: read can't be a tool: its argument ... model instead [tool-definition]"),
    ("@tool\ndef read(done: Callable[[], None]) -> str: ...", Invalid,
     "$.tools: read can't be a tool: its argument ... model instead [tool-definition]"),
    ("@tool\ndef read(*paths: str) -> str: ...", Invalid,
     "$.tools: read can't be a tool: 'paths' is no ... *, ** and / [tool-definition]"),
    ('@tool\ndef read(path: "Pfad") -> str: ...', Invalid,
     "$.tools: read can't be a tool: its annotations ... not defined [tool-definition]"),
    ("@tool\ndef read(lines: list[Path]) -> str: ...", Invalid,
     "$.tools: read can't be a tool: its argument ... model instead [tool-definition]"),
    ('@tool\ndef read(path: str):\n    yield "line"', Invalid,
     "$.tools: read can't be a tool: a tool returns its ... not yield [tool-definition]"),
    ("class Shop:\n    @tool\n    def order(self, tea: str) -> str: ...", Invalid,
     "$.tools: order can't be a tool: it is a method, and no model ... [tool-definition]"),
    ('await talk.ask("Tea?", approve=True)', Invalid,
     "$.approve: must be a function that takes a call, not True [argument]"),
    ('await talk.ask("Tea?", approve=lambda: True)', Invalid,
     "$.approve: must be a function that takes a call, ... with 1 argument [argument]"),
    ('await talk.ask("Tea?", around=nothing)', Invalid,
     "$.around: must be an async function of a call, its ... with 3 arguments [argument]"),
    ('await talk.ask("Tea?", around=True)', Invalid,
     "$.around: must be an async function of a call, ... the call, not True [argument]"),
    ('await talk.ask("Tea?", key=5)', Invalid,
     "$.key: must be text, not a whole number [schema]"),
    ('await talk.ask("Tea?", key="")', Invalid,
     "$.key: must not be empty [schema]"),
    ('await talk.ask("Tea?", key="k" * 2_000)', Invalid,
     "$.key: is longer than 1024 characters [size]"),
    ('await online.ask("Tea?", options={"temprature": 0})', Invalid,
     "$.options.temprature: unknown option; known are ..."),
    ('await talk.ask("Tea?", options="temperature=0")', Invalid,
     "$.options: must be an object, such as {'temperature': 0}, not 'temperature=0' [argument]"),
    ('await talk.ask("Tea?", options=lambda: {})', Invalid,
     "$.options: must be a function of the last calls ... with 2 arguments [argument]"),
    ('await online.ask("Tea?", options={"tool_choice": "wether"})', Invalid,
     "$.options.tool_choice: 'wether' is not among the tools: weather [option]"),
    ('Decision("maybe")', Invalid,
     "$.verdict: must be approve, deny, edit or always, not 'maybe' [node-answer]"),
    ('Decision("edit")', Invalid,
     '$.arguments: is needed with "edit" [node-answer]'),
    ('await talk.ask("Tea?", output=object)', Invalid,
     "$.output: object can't be the type of an answer: ... or leave it out [output-type]"),
    ('await talk.ask("Tea?", output="Forecast")', Invalid,
     "$.output: must be a type, such as a dataclass or list[str], not 'Forecast' [output-type]"),
    ('await talk.ask("Tea?", output=Path)', Invalid,
     "$.output: Path can't be the type of an answer: ... or leave it out [output-type]"),
    ('await talk.ask("Tea?", output={"type": "object"})', Invalid,
     "$.output: must be a type, such as a dataclass or list[str], not a dict [output-type]"),
    ('await talk.ask("Tea?", output=Forecast("Oslo", 3))', Invalid,
     "$.output: must be a type, such as a dataclass or list[str], not a Forecast [output-type]"),
    ("palaver.open(5)", StoreError,
     "the address of a store must be text or a path, such as 'chat.db', not int"),
    ('palaver.open("redis://localhost")', StoreError,
     "there is no store for redis:// addresses; expected a file, :memory: or ..."),
    ('palaver.open("user:secret@host/db")', StoreError,
     "that looks like a misspelt address and not like a file; expected a file, :memory: or ..."),
    ('palaver.open("")', StoreError,
     "the path of a store is empty; give a file, or :memory:"),
    ('store.get("no-such-id")', UnknownConversation,
     "no conversation has the id 'no-such-id'"),
    ('store.create(["Tea?"])', Invalid,
     "$.messages[0]: must be a message, not text; write user('Tea?') [schema]"),
    ('store.create(id="")', Invalid,
     "$.id: must not be empty [schema]"),
    ("store.create(title=5)", Invalid,
     "$.title: must be text, not a whole number [schema]"),
    ("store.search(5)", Invalid,
     "$.words: must be text, not a whole number [schema]"),
    ('store.search("tea", limit="all")', Invalid,
     "$.limit: must be a whole number from 0 on, not 'all' [limit]"),
    ('history.append("Tea?")', Invalid,
     "$.messages[0]: must be a message, not text; write user('Tea?') [schema]"),
    ('history.append({"role": "user"})', Invalid,
     "$.messages[0].content: Invalid message format: role and content are required [message]"),
    ("history.truncate()", Invalid,
     "$: needs one of keepFirst, keepLast, removeFirst, removeLast, range [truncate]"),
    ("history.truncate(keep_first=-1)", Invalid,
     "$.keepFirst: must not be negative: -1 [operation]"),
    ('history.truncate(keep_last="2")', Invalid,
     "$.keepLast: must be a whole number, not '2' [operation]"),
    ('history.replace(99, user("Tea?"))', Invalid,
     "$.index: must be 0 to 1 here, not 99 [replace-index]"),
    ('history.insert(1.5, [user("Tea?")])', Invalid,
     "$.position: must be a whole number, not 1.5 [operation]"),
    ("history.rollback(99)", Invalid,
     "$.targetBatchIndex: must be a batch from 0 to 0, not 99 [unknown-batch]"),
    ("history.at(99)", Invalid,
     "$.version: must be a version from 0 to 0, not 99 [unknown-version]"),
    ('history.undo(expect="first")', Invalid,
     "$.expect: must be a version (an integer) or a collection of them, not 'first' [version]"),
    ('history.mark("no-such-id", "good")', UnknownMessage,
     "no message has the id 'no-such-id'"),
    ('history.filter(roles=["robot"])', Invalid,
     "$.roles[0]: must be system, user, assistant or tool, not 'robot' [role]"),
    ('user("a\\0b")', Invalid,
     "$.content: holds a NUL character at 1 [text.nul]"),
    ("user(5)", Invalid,
     "$.content: must be text or a list of parts, not a whole number [schema]"),
    ('user("Tea?", sepaker="Ann")', TypeError,
     "user() got an unexpected keyword argument ... routing, speaker, timestamp"),
    ("ContextManager(window=-1)", Invalid,
     "$.window: must be a whole number from 0 on, not -1 [schema]"),
    ('ContextManager([user("Tea?")])', Invalid,
     "$.history: must be a history, such as History() or store.create(), not a list [argument]"),
    ('ContextManager(max_bytes="1 KB")', Invalid,
     "$.maxBytes: must be a whole number from 0 on, not '1 KB' [schema]"),
    ('wire.to("openai", history)', Invalid,
     "$: no such format: 'openai'; there are openai-chat, ... anthropic, gemini [format]"),
    ('wire.to("anthropic", "Tea?")', Invalid,
     "$.messages: must be a history or a list of messages, not 'Tea?' [argument]"),
    ('palaver.load_team("no-such-team.yaml")', FileNotFoundError,
     "[Errno 2] No such file or directory: 'no-such-team.yaml'"),
    ('palaver.load_team("team.yaml")', Invalid,
     "$.members[0].nmae: line 3, column 5: no such field [team]"),
    ("palaver.Coordinator(None, store)", Invalid,
     "$.team: must be a Team, not None; load_team('team.yaml') reads one [argument]"),
    ('wire.to("anthropic", [{"role": "user", "content": "Tea?"}])', Invalid,
     "$.messages[0]: must be a Message, not a dict; ... a list of objects [argument]"),
    ('wire.from_("gemini", 5)', Invalid,
     "$: is no gemini request: it needs a list of contents [schema]"),
    ('await talk.stream("Tea?")', TypeError,
     "a stream is not awaited: write `async for event in talk.stream(…)`, or talk.ask"),
    ('for event in talk.stream("Tea?"): ...', TypeError,
     "a stream is read in an event loop: write `async for event in talk.stream(…)`"),
    ('Decision(verdict="deny", reasn="no")', TypeError,
     "Decision() got an unexpected keyword argument ... by, digest, reason, verdict"),
    ("ModelPrice(input=1, ouput=2)", TypeError,
     "ModelPrice() got an unexpected keyword argument ... input, output, reasoning"),
    ('await talk.run_tools("weather")', Invalid,
     "$.calls[0]: must be a ToolCallPart of step.calls, not 'weather' [argument]"),
    ("await talk.run_tools([], around=nothing)", Invalid,
     "$.around: must be an async function of a call, its ... with 3 arguments [argument]"),
    ('talk.add("Tea?")', Invalid,
     "$: Invalid message format: role and content ... write user('…') [empty-message]"),
    ("ContextManager(History(), windows=5)", Invalid,
     "$.windows: must be windows by the ids or types of agents, not 5 [argument]"),
    ('History(["Tea?"])', Invalid,
     "$.messages[0]: must be a message, not text; write user('Tea?') [schema]"),
    ("Conversation(store, on_tool_error=later)", Invalid,
     "$.on_tool_error: must be a plain function of a ... def, not async def [argument]"),
    ('await talk.ask("Tea?", options=later)', Invalid,
     "$.options: must be a function of the last calls ... def, not async def [argument]"),
    ("@tool(needs_approval=later)\ndef pay(amount: int) -> str: ...", Invalid,
     "$.needs_approval: must be True, False or a plain ... def, not async def [argument]"),
    ("Conversation(store, palaver.open(':memory:').create())", Invalid,
     "$.conversation: is of another store; give its own store, or the id of one of this store ..."),
    ("store.create(user('Tea?'))", Invalid,
     "$.messages: must be a list of messages, not a Message: write [user('…')] [operation]"),
    ("store.create('Tea?')", Invalid,
     "$.messages: must be a list of messages, not 'Tea?': write [user('…')] [operation]"),
    ("store.list(tag=5)", Invalid, "$.tag: must be text, not 5 [argument]"),
    ("store.list(without='old')", Invalid,
     "$.without: must be a list of tags, not 'old' [schema]"),
    ("list(store.each(without='old'))", Invalid,
     "$.without: must be a list of tags, not 'old' [schema]"),
    ("store.expire(timedelta(days=90), archive='no/old.jsonl')", Invalid,
     "$.archive: there is no folder 'no' to write 'old.jsonl' in; make it first [argument]"),
    ("history.price({'operation': 'CLEAR'}, tokens=5)", Invalid,
     "$.tokens: must be a function that returns the number of tokens ..., not 5 [argument]"),
    ("export_conversation(store, 'talk', 'talk.jsonl')", Invalid,
     "$.stream: must be a file of bytes, such as open(PATH, 'wb'), not 'talk.jsonl' [argument]"),
    ("export_as(store, 'talk', StringIO(), 'html')", Invalid,
     "$.stream: must be a file of bytes, such as open(PATH, 'wb'), not a StringIO [argument]"),
    ("import_conversation(store, 'talk.jsonl')", Invalid,
     "$.stream: must be a file of bytes, such as open(PATH, 'rb'), not 'talk.jsonl' [argument]"),
    ("import_conversation(store, StringIO('{}'))", Invalid,
     "$.stream: must be a file of bytes, such as open(PATH, 'rb'), not a StringIO [argument]"),
    ("Summarise(max_tokens=0)", Invalid,
     "$.max_tokens: must be a whole number from 1 on, not 0 [limit]"),
    ("Summarise(instructions='')", Invalid,
     "$.instructions: must be text that says how to sum up, not '' [argument]"),
    ("Summarise(keep_roles='system')", Invalid,
     "$.keep_roles: must be a set of roles, such as {'system'}, not 'system' [argument]"),
    ("DropOldest(keep_tokens=5, keep_roles={'robot'})", Invalid,
     "$.keep_roles: must be of system, user, assistant and tool, not 'robot' [argument]"),
    ("DropOldest(500)", TypeError, "DropOldest() takes keywords: keep_tokens, keep_roles, name"),
    ("ClearOutputs(protect_turn=5)", TypeError,
     "ClearOutputs() got an unexpected ... 'protect_turn'; did you mean 'protect_turns'? ..."),
    ("palaver.model('openai:gpt-5', temprature=0)", TypeError,
     "model() got an unexpected ... 'temprature'; did you mean 'temperature'? It takes ..."),
    ("palaver.open('no/chat.db')", StoreError,
     ".../no/chat.db can't be created: there is no folder ...; make it first"),
]
# fmt: on


@dataclass
class Forecast:
    city: str
    degrees: int


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sun in {city}"


def nothing() -> None:
    """Take nothing."""


async def later(*_: object) -> None:
    """Be awaited."""


def namespace(store: palaver.Store, model: Scripted) -> dict[str, Any]:
    """What the programs can name."""
    history = store.get("talk")
    real = palaver.model("openai:gpt-5", base_url="http://127.0.0.1:9", api_key="none")
    return {
        **{one.__name__: one for one in (Conversation, ContextManager, History, Limits, Decision)},
        **{one.__name__: one for one in (Forecast, ModelPrice, Path, later, nothing, tool, user)},
        **{one.__name__: one for one in (ClearOutputs, DropOldest, Summarise, StringIO, timedelta)},
        **{one.__name__: one for one in (export_as, export_conversation, import_conversation)},
        "weather": weather,
        "Callable": Callable,
        "palaver": palaver,
        "wire": wire,
        "store": store,
        "history": history,
        "model": model,
        "talk": Conversation(store, history, model=model, tools=[weather]),
        "mute": Conversation(store, history),
        "online": Conversation(store, history, model=real, tools=[weather]),
    }


async def read(code: str, names: dict[str, Any]) -> Exception | None:
    """Run a program; return what its user reads."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        found = eval(compile(code, "<a program>", "exec", flags=flags), names)  # noqa: S307 - ours
        if inspect.isawaitable(found):
            await found
    except Exception as error:  # noqa: BLE001 - whatever it is
        return error
    return None


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize(("code", "kind", "told"), USES, ids=[code[:60] for code, _, _ in USES])
async def test_a_wrong_use_is_told_where_it_is_made(
    code: str,
    kind: type[Exception],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.yaml").write_text("members:\n  - kind: model\n    nmae: Ann\n")
    model = Scripted()
    with palaver.open(":memory:") as store:
        store.create([user("a"), palaver.assistant("b")], id="talk")
        error = await read(code, namespace(store, model))
        assert error is not None, "no error"
        text = str(error)
        assert kind is type(error), text
        assert matches(told, text), text
        assert "\n" not in text
        assert 25 <= len(text) < 400
        assert "object at 0x" not in text
        assert isinstance(error, PalaverError | TypeError | RuntimeError | FileNotFoundError)
        assert [] == model.asked
        assert [("talk", 0)] == [(head.id, head.version) for head in store]
        assert {} == store.records("talk", "approval")
    assert ["team.yaml"] == os.listdir()  # noqa: PTH208 - a path's iterdir is for plain functions


def test_there_are_sixty_of_them_and_no_two_alike() -> None:
    assert 60 <= len({code for code, _, _ in USES}) == len(USES)
