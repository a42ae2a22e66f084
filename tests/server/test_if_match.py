"""If-Match on every route that changes a conversation: one change after a version, 412 for others.

The routes are those of the API's own description, so that a new one can't be forgotten.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

import palaver
from palaver.conversation.deferred import DeferredEdit
from palaver.errors import UnknownConversation
from palaver.server.demo import DemoClock, DemoUsage, MessageWriter
from palaver.server.openapi import openapi_document
from palaver.testing.stores.suite import dump_history
from tests.conversation.scripted import Scripted, calling, saying
from tests.server.routes.test_teams import ROSTER
from tests.server.scripted_server import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping

    from httpx import Response

    from palaver.messages import Message
    from palaver.models.base import ModelRequest
    from palaver.stores import Store
    from tests.stores.postgres_server import Server

_AT_ONCE: Final = 6
_PATIENCE: Final = 60
_ROOT: Final = "/api/conversations/{conversation}"
_SEARCH: Final = ("search_conversations", {"words": "tea"})
_READS: Final = {("post", f"{_ROOT}/query"), ("post", f"{_ROOT}/price")}
"""They are no GET, for they take a body, and change nothing."""


class Obliging(Scripted):
    """Calls a tool where it has some, and says yes where it has none."""

    async def stream(self, ask: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        for event in calling(_SEARCH) if ask.tools else saying("Yes."):
            yield event


class Route(NamedTuple):
    """How a route is asked for, so that it has something to change.

    `makes` is how many versions come of it, however many ask with one stamp; a model may add its
    answers. Where `alone`, all but one of those who ask are refused; `busy` are those that may also
    be refused because a step is under way (409), and whose work goes on after the answer. `late` is
    what those may be answered who come after the one that did it.
    """

    body: Any = None
    more: str = ""
    prepare: Callable[[ScriptedServer], str] | None = None
    makes: int = 1
    answers: int = 0
    alone: bool = True
    busy: bool = False
    late: int = 412


def _begun(stage: ScriptedServer) -> str:
    """A conversation with a mark, a batch and something to prune, and a message to redo."""
    history = stage.store.create([palaver.user("one"), palaver.user("two"), palaver.user("three")])
    history.mark(0, "old")
    history.truncate(keep_last=2)
    history.append(palaver.user("undone"))
    history.undo()
    return history.id


def _with_fork(stage: ScriptedServer) -> str:
    """The fork whose changes are brought in is called like the conversation, and `-fork`."""
    name = _begun(stage)
    stage.store.get(name).fork(id=f"{name}-fork").append(palaver.user("elsewhere"))
    return name


def _with_outputs(stage: ScriptedServer) -> str:
    scribe, used = (
        MessageWriter("talk", DemoClock()),
        DemoUsage("openai", "gpt-6", (10, 5, 0), 0.01),
    )
    messages: list[Message] = []
    for turn in range(4):
        messages += [
            scribe.say("user", f"question {turn}"),
            scribe.answer("Let me see.", used, calls=[(f"call_{turn}", "look", {"q": "tea"})]),
            scribe.result(f"call_{turn}", "look", {"q": "tea"}, "a long story about tea " * 60),
            scribe.answer(f"answer {turn}", used),
        ]
    return stage.store.create(messages).id


def _with_call(stage: ScriptedServer) -> str:
    name = stage.ask.begun("Look it up.")
    stage.step(name, tools=True)
    return name


def _with_deferred(stage: ScriptedServer) -> str:
    """An edit that waits, called `waiting`."""
    name = _begun(stage)
    edit = DeferredEdit("waiting", 0, 1, "tidy up", ((0, 1),))
    stage.store.put_records(name, [edit.record()])
    return name


def _with_result(stage: ScriptedServer) -> str:
    """A call has run, and its tool was approved for the whole conversation."""
    name = _with_call(stage)
    digest = _digest(stage, name)
    body = {"action": "run", "always": True, "digest": digest, "loop": False}
    stage.ask.good("POST", f"conversations/{name}/calls/call_0", body)
    stage.over(name)
    return name


def _with_team(stage: ScriptedServer) -> str:
    name = stage.ask.begun("Good morning.")
    stage.ask.good("PUT", f"conversations/{name}/team", {"document": ROSTER})
    return name


ROUTES: Final[dict[tuple[str, str], Route]] = {
    ("patch", ""): Route({"title": "new", "tags": ["new"]}, makes=0, alone=False),
    ("delete", ""): Route(),
    ("post", "/messages"): Route({"messages": [{"role": "user", "content": "new"}]}),
    ("post", "/operations"): Route(
        {
            "operation": {
                "operation": "REPLACE",
                "index": 0,
                "message": {"role": "user", "content": "n"},
            }
        }
    ),
    ("post", "/deferred"): Route(
        {"operation": {"operation": "TRUNCATE", "keepLast": 1}}, makes=0, alone=False, late=409
    ),
    ("delete", "/deferred/{edit}"): Route(
        more="/deferred/waiting", prepare=_with_deferred, makes=0, alone=False, late=404
    ),
    ("post", "/erase"): Route({"message": 0}),
    ("post", "/prune"): Route({}),
    ("post", "/undo"): Route({}),
    ("post", "/redo"): Route({}),
    ("post", "/rollback"): Route({"batch": 0}),
    ("post", "/restore"): Route({"version": 0}),
    ("post", "/fork"): Route({}, makes=0, alone=False),
    ("post", "/merge"): Route({"other": "{name}-fork"}, prepare=_with_fork),
    ("put", "/marks/{name}"): Route({"message": 0}, more="/marks/new"),
    ("delete", "/marks/{name}"): Route(more="/marks/old?message=msg-1"),
    ("post", "/step"): Route({"text": "new", "tools": False}, answers=1, busy=True),
    ("delete", "/step"): Route(makes=0, alone=False),
    ("post", "/calls/{call}"): Route(
        {"action": "deny", "digest": "{digest}", "loop": False},
        "/calls/call_0",
        _with_call,
        alone=False,
        busy=True,
    ),
    ("post", "/calls/{call}/rerun"): Route(
        {"loop": False}, "/calls/call_0/rerun", _with_result, makes=2, busy=True
    ),
    ("delete", "/allowed/{tool}"): Route(
        more="/allowed/search_conversations", prepare=_with_result, makes=0, alone=False
    ),
    ("post", "/compact"): Route(
        {"kind": "clear-outputs", "protectTokens": 0}, prepare=_with_outputs, busy=True
    ),
    ("put", "/team"): Route({"document": ROSTER}, prepare=_with_team, makes=0, alone=False),
    ("post", "/team/say"): Route({"text": "new"}, prepare=_with_team),
    ("post", "/team/run"): Route(prepare=_with_team, makes=0, alone=False, busy=True),
    ("post", "/team/pause"): Route(prepare=_with_team, makes=0, alone=False),
    ("post", "/team/resume"): Route(prepare=_with_team, makes=0, alone=False),
    ("post", "/team/cancel"): Route(prepare=_with_team, makes=0, alone=False),
}
"""Every route that changes a conversation."""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def stages(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[list[ScriptedServer]]:
    """Two servers of one store."""
    if request.param == "sqlite":
        yield from _serving(str(tmp_path_factory.mktemp("match") / "chat.db"))
    else:
        server: Server = request.getfixturevalue("postgres_server")
        with server.database() as address:
            yield from _serving(address)


def _serving(address: str) -> Generator[list[ScriptedServer]]:
    with (
        palaver.open(address) as one,
        palaver.open(address) as other,
        ScriptedServer(Obliging(), store=one, steps=50) as first,
        ScriptedServer(Obliging(), store=other, steps=50) as second,
    ):
        yield [first, second]


def ask(
    stage: ScriptedServer, which: tuple[str, str], name: str, stamp: str, **headers: str
) -> Response:
    """Ask for a route, with a stamp."""
    route = ROUTES[which]
    text = json.dumps(route.body).replace("{name}", name)
    if "{digest}" in text:
        text = text.replace("{digest}", _digest(stage, name))
    return stage.ask.request(
        which[0].upper(),
        f"/api/conversations/{name}{route.more or which[1]}",
        json=json.loads(text),
        headers={"if-match": stamp, **headers},
    )


def _digest(stage: ScriptedServer, name: str) -> str:
    """The digest of the call that waits; any other where none does."""
    answer = stage.ask.request("GET", f"/api/conversations/{name}/calls")
    calls = answer.json().get("items") or [{}]
    return str(calls[0].get("digest", "0" * 64))


def _prepared(stage: ScriptedServer, which: tuple[str, str]) -> tuple[str, int]:
    name = (ROUTES[which].prepare or _begun)(stage)
    return name, stage.store.get(name).version


def _seen(store: Store, name: str) -> object:
    """All there is of a conversation: its content, its labels, its relatives, its records."""
    try:
        history, backend = store.get(name), store.backend
    except UnknownConversation:
        return None
    records = {kind: backend.records(name, kind) for kind in backend.kinds(name)}
    return dump_history(history), history.title, history.tags, backend.family(name), records


def test_every_route_that_changes_a_conversation_takes_a_stamp() -> None:
    """Each is tried below, says that it takes If-Match, and that it may answer 412."""
    described = json.loads(openapi_document())["paths"]
    found = {
        (method, path): operation
        for path, operations in described.items()
        for method, operation in operations.items()
        if path.startswith(_ROOT) and method != "get"
    }
    assert _READS <= found.keys()
    assert {(method, _ROOT + more) for method, more in ROUTES} == found.keys() - _READS
    for which in found.keys() - _READS:
        names = [parameter["name"] for parameter in found[which].get("parameters", [])]
        assert ("If-Match" in names, "412" in found[which]["responses"]) == (True, True), which


@pytest.mark.parametrize("which", ROUTES, ids=" ".join)
def test_a_stamp_of_another_version_is_refused_and_nothing_changes(
    stages: list[ScriptedServer], which: tuple[str, str]
) -> None:
    stage = stages[0]
    name, version = _prepared(stage, which)
    stages[1].store.get(name).set_team_task("another")
    before = _seen(stage.store, name)
    for stamp in (f'"{version}"', f'W/"{version + 1}"', f'"{version}", "{version + 2}"', '"new"'):
        answer = ask(stage, which, name, stamp)
        assert 412 == answer.status_code, answer.text
        problem = answer.json()
        assert ("VersionMismatch", version + 1) == (problem["name"], problem["version"])
        assert before == _seen(stage.store, name)
    assert 422 == ask(stage, which, name, "new").status_code
    assert before == _seen(stage.store, name)


@pytest.mark.parametrize("which", ROUTES, ids=" ".join)
def test_of_many_requests_with_one_stamp_one_is_made(
    stages: list[ScriptedServer], which: tuple[str, str]
) -> None:
    """At the same time, through two servers; where no version is made, all may be."""
    route = ROUTES[which]
    name, version = _prepared(stages[0], which)
    start = Barrier(_AT_ONCE)

    def asked(number: int) -> int:
        start.wait(_PATIENCE)
        return ask(stages[number % 2], which, name, f'"{version}"').status_code

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        statuses = sorted(pool.map(asked, range(_AT_ONCE)))
    made = [status for status in statuses if status < 300]
    refused = (
        {412, route.late}
        | ({409} if route.busy else set())
        | ({404} if which == ("delete", "") else set())
    )
    assert {*statuses[len(made) :]} <= refused, statuses
    assert made
    if route.alone:
        assert 1 == len(made), statuses
    if which == ("delete", ""):
        assert name not in stages[0].store
        return
    for stage in stages if route.busy else ():
        stage.over(name)
    changes = [told.kind for told in stages[0].store.journal(name, version, 100)]
    assert route.makes <= len(changes) <= route.makes + route.answers, changes
    assert [message.text for message in stages[0].store.get(name).log].count("new") <= 1
    assert [] == list(stages[0].store.verify(name))


KEYED: Final = [("post", "/messages"), ("post", "/fork"), ("post", "/step"), ("post", "/team/say")]


def test_every_keyed_route_is_tried_again_below() -> None:
    described = json.loads(openapi_document())["paths"]
    keyed = {
        (method, path)
        for path, operations in described.items()
        for method, operation in operations.items()
        if any(one["name"] == "Idempotency-Key" for one in operation.get("parameters", []))
    }
    assert {(method, _ROOT + more) for method, more in KEYED} == keyed - {
        ("post", "/api/conversations")
    }


@pytest.mark.parametrize("which", KEYED, ids=" ".join)
def test_a_change_that_was_made_under_its_key_is_answered_again(
    stages: list[ScriptedServer], which: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry with the stamp of the first time is no 412, though there is a newer version now."""
    stage, other = stages
    name, version = _prepared(stage, which)
    if which[1] == "/fork":
        monkeypatch.setitem(ROUTES, which, Route({"id": f"{name}-twin"}, makes=0, alone=False))
    stamp = f'"{version}"'
    first = ask(stage, which, name, stamp, **{"idempotency-key": "k"})
    assert first.is_success, first.text
    if which[1] == "/step":
        stage.over(name)
    stage.store.get(name).set_team_task("another")
    before = _seen(stage.store, name)
    for server in (stage, other):
        again = ask(server, which, name, stamp, **{"idempotency-key": "k"})
        assert first.status_code == again.status_code, again.text
        told, once = again.json(), first.json()
        for same in ("items", "message", "id", "origin"):
            assert once.get(same) == told.get(same)
        assert before == _seen(stage.store, name)
    assert 412 == ask(stage, which, name, stamp, **{"idempotency-key": "k2"}).status_code
    assert before == _seen(stage.store, name)


def test_a_precondition_does_not_hide_that_there_is_nothing(stages: list[ScriptedServer]) -> None:
    """RFC 9110, 13.2.1: what would be refused without If-Match is refused so with it."""
    for which in ROUTES:
        if which != ("delete", "/step"):
            assert 404 == ask(stages[0], which, "nowhere", '"1"').status_code, which
