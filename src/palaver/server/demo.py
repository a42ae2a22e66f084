"""The demo: example conversations that are written into an empty store at the first start.

They are written through the public API, so the store is an ordinary one, with batches, versions, a
fork, marks and a team. Ids and times follow from names and from a clock that ticks, so they are the
same on every machine, and docs and tests can refer to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.messages import (
    AssistantInfo,
    CacheCounts,
    FilePart,
    Message,
    ModelRef,
    ReasoningPart,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolPart,
    complete,
    fail,
    pending,
    start,
)
from palaver.messages.ids import derive_id, uuid_for
from palaver.messages.parts import StepFinishPart, TextTime
from palaver.server.services.teams import TEAM_TAG, store_roster
from palaver.team import TeamState, read_route, read_team

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.messages import Part, Role
    from palaver.stores import Store, StoredHistory
    from palaver.team import Team

__all__ = [
    "BROKEN",
    "FORK",
    "START",
    "TEA",
    "TEAM",
    "TRIP",
    "DemoClock",
    "DemoUsage",
    "MessageWriter",
    "seed",
]

# ruff: noqa: RUF001 - one of the examples is in Chinese

START: Final = "start-here"
TRIP: Final = "trip-to-lisbon"
FORK: Final = "trip-to-lisbon-for-less"
TEAM: Final = "review-team"
BROKEN: Final = "broken-history"
TEA: Final = "yi-hu-cha"

_SONNET: Final = "claude-sonnet-5-5"
_LUNA: Final = "gpt-6-luna"
_MAP: Final = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAADAAAAAgCAMAAABjCgsuAAAAD1BMVEXs4s2Wvtywzpb6+vbAOSv0PJn3AAAAZElE"
    "QVR42u3TywqAIBBA0Xn9/zdHBirOS1spdVeBc0iTAMzYeXY7C3CN7jirSXqa3hJRL7YFIrIERIrw7kF/pQRANz8H"
    "9E2bZ+DF4DP/A7ZSgEMxQB3Yis3hCsZ3YVC4+IO34AJn+wQp9rfhQQAAAABJRU5ErkJggg=="
)
"""A small picture of streets by a river, 48 by 32."""


def seed(store: Store) -> bool:
    """Write the examples into a store, if it is empty; tell whether it was.

    >>> import palaver
    >>> store = palaver.open(":memory:")
    >>> seed(store), seed(store)
    (True, False)
    >>> [head.title for head in store][0]
    'Start here'
    """
    if store.list(limit=1).conversations:
        return False
    clock = DemoClock()
    demo = store.with_clock(clock)
    _broken(demo, clock)
    _tea(demo, clock)
    _team(demo, clock)
    _trip(demo, clock)
    _start(demo, clock)
    return True


def _start(store: Store, clock: DemoClock) -> None:
    """An empty conversation that has a past, so that its history shows what a history is.

    A question was asked, its answer edited, and all of it left again. The system message is one
    that even a very small model can follow. The page suggests questions for it, and guides through
    the other examples.
    """
    writer = MessageWriter(START, clock)
    words = "You are a helpful AI assistant. Answer in one short sentence."
    history = store.create([writer.say("system", words)], id=START, title="Start here")
    beginning = history.version
    history.append(writer.say("user", "What is snow?"))
    history.append(writer.say("assistant", "Snow is frozen rain."))
    history.replace(2, writer.say("assistant", "Snow is water that froze in a cloud."))
    history.restore(beginning)


# ── the trip: reasoning, two calls at once, a file, costs; then edits, a rollback and a fork ────


def _trip(store: Store, clock: DemoClock) -> None:
    writer = MessageWriter(TRIP, clock)
    history = store.create(
        [*_question(writer), *_look_up(writer), *_plan(writer)],
        id=TRIP,
        title="Three days in Lisbon",
        tags=("example",),
    )
    history.mark(5, "plan")
    planned = history.version
    _edit_trip(history, writer)
    _fork_trip(store, history.fork(at=planned, id=FORK), MessageWriter(FORK, clock))


def _question(writer: MessageWriter) -> list[Message]:
    asked = "Three days in Lisbon, coming from Porto. Here is the part of the map I like."
    return [
        writer.say("system", "You plan short trips. Be practical, and say what things cost."),
        writer.show(asked, "image/png", _MAP, "lisbon.png"),
    ]


def _look_up(writer: MessageWriter) -> list[Message]:
    """Two calls in one answer; one of them fails."""
    weather, trains = {"city": "Lisbon", "days": 3}, {"from": "Porto", "to": "Lisbon"}
    forecast = "Mon 15°C, sunny. Tue 14°C, rain. Wed 16°C, sunny."
    late = "the timetable did not answer in time"
    return [
        writer.answer(
            "I will look up the weather and the trains.",
            DemoUsage("anthropic", _SONNET, (412, 96, 58), 0.0035),
            reasoning="They come from Porto, so the train is likely. The weather decides between "
            "museums and walks. Both can be looked up at the same time.",
            calls=[("call_weather", "weather", weather), ("call_trains", "trains", trains)],
        ),
        writer.result("call_weather", "weather", weather, forecast),
        writer.result("call_trains", "trains", trains, late, failed=True),
    ]


def _plan(writer: MessageWriter) -> list[Message]:
    return [
        writer.answer(
            "Monday and Wednesday are dry: walk in Alfama on Monday and take the ferry on "
            "Wednesday. Keep Tuesday for the Gulbenkian Museum. I could not reach the "
            "timetable, so check the trains yourself: they take about three hours.",
            DemoUsage("anthropic", _SONNET, (655, 88, 0), 0.0033),
        ),
        writer.say("user", "What would the three days cost for two people?"),
        writer.answer(
            "About 420 euros: 120 for the trains, 200 for two nights, 100 for the rest.",
            DemoUsage("anthropic", _SONNET, (771, 42, 0), 0.0029),
        ),
    ]


def _edit_trip(history: StoredHistory, writer: MessageWriter) -> None:
    """A replaced question, an insert that is rolled back, and further messages."""
    history.replace(6, writer.say("user", "What would the three days cost for one person?"))
    history.truncate(remove_last=1)
    history.append(
        writer.answer(
            "About 250 euros: 60 for the trains, 140 for two nights, 50 for the rest.",
            DemoUsage("anthropic", _SONNET, (771, 40, 0), 0.0029),
        )
    )
    history.insert(1, [writer.say("system", "The traveller does not eat meat.")])
    history.rollback(2)
    history.append(writer.say("user", "And in February?"))
    history.mark(6, "budget")


def _fork_trip(store: Store, fork: StoredHistory, writer: MessageWriter) -> None:
    """A fork from before those edits, with another question."""
    fork.append(writer.say("user", "We have only 200 euros. What can we leave out?"))
    fork.append(
        writer.answer(
            "One night instead of two, and a picnic by the river: then 190 euros are enough.",
            DemoUsage("openai", _LUNA, (820, 35, 0), 0.0004),
        )
    )
    store.describe(FORK, title="Three days in Lisbon, for less", tags=("example",))


# ── the team ────────────────────────────────────────────────────────────────────────────────────


_ROSTER: Final[dict[str, Any]] = {
    "name": "A small review team",
    "task": "Decide whether the release goes out on Friday.",
    "default": "writer",
    "members": [
        {"kind": "human", "id": "ada", "name": "Ada"},
        {
            "kind": "model",
            "id": "writer",
            "name": "Writer",
            "model": "local:smollm2",
            "system": "You write short release notes. Answer in two sentences.",
            "window": 4,
        },
        {
            "kind": "model",
            "id": "critic",
            "name": "Critic",
            "model": "local:smollm2",
            "system": "You look for what is missing. Answer in two sentences.",
            "window": 3,
            "visibility": "addressed",
        },
    ],
}


def _team(store: Store, clock: DemoClock) -> None:
    """Three members who address each other; one of them sees only what is addressed to it."""
    writer, team = MessageWriter(TEAM, clock), read_team(msgspec.json.encode(_ROSTER).decode())
    history = store.create(id=TEAM, title="A small review team", tags=("example", TEAM_TAG))
    store_roster(store, TEAM, msgspec.json.encode(_ROSTER))
    history.set_team_task(team.task)
    for who, text in (
        ("ada", "The tests are green. What do we tell people? [NEXT: writer]"),
        ("writer", "Draft: undo is faster, and forks keep their marks. [NEXT: critic!P1]"),
        ("critic", "You forgot that old files are migrated when they are opened. [NEXT: writer]"),
        (
            "writer",
            "Added: files of the last release are migrated when they are opened. [NEXT: ada]",
        ),
        ("ada", "Good. Is anything risky? [NEXT: critic]"),
        ("critic", "The migration: say that a copy is kept beside the file. [NEXT: ada]"),
        ("ada", "Then say so. Are the docs ready? [NEXT: writer]"),
        ("writer", "Yes: the page about migration names the copy now. [NEXT: critic]"),
        ("critic", "Then nothing is missing. Friday it is. [NEXT: ada]"),
    ):
        history.append(_team_message(writer, team, who, text))
    store.put_records(TEAM, [TeamState().hand_to("ada", "called").record()])


def _team_message(writer: MessageWriter, team: Team, who: str, text: str) -> Message:
    member = team.find(who)
    assert member is not None  # noqa: S101 - the roster above has everybody
    role: Role = "user" if member in team.humans else "assistant"
    route = read_route(text, member, team).to_routing()
    return writer.say(role, text, speaker=member.speaker, routing=route)


# ── and two more ────────────────────────────────────────────────────────────────────────────────


def _broken(store: Store, clock: DemoClock) -> None:
    """A history as an import may bring it: no provider accepts it unchanged."""
    writer = MessageWriter(BROKEN, clock)
    given = {"path": "notes.txt"}
    signed = {"anthropic": {"signature": "c2lnbmVkIGJ5IGFub3RoZXIgbW9kZWw="}}
    store.create(
        [
            writer.result(
                "call_lost", "read_file", given, "Whose result is this? Its call is gone."
            ),
            writer.say("user", "Please read my notes and tell me what is still open."),
            writer.answer(
                "I will read them.",
                DemoUsage("anthropic", "claude-opus-5-5", (120, 30, 20), 0.002),
                reasoning="The notes are in notes.txt. Only the model that thought this may have "
                "it back, because it signed it.",
                signed=signed,
                calls=[("call_open", "read_file", given)],
            ),
            writer.say("user", "Are you still there? The call above never got its result."),
            writer.answer(
                "Yes. I could not read the file, so I can't tell yet.",
                DemoUsage("openai", _LUNA, (180, 18, 0), 0.0002),
            ),
        ],
        id=BROKEN,
        title="A broken history",
        tags=("example",),
    )


def _tea(store: Store, clock: DemoClock) -> None:
    """A short conversation in Chinese."""
    writer = MessageWriter(TEA, clock)
    store.create(
        [
            writer.say("system", "你是一位懂茶的朋友，回答简短、亲切。"),
            writer.say("user", "朋友送了我一饼普洱茶，应该怎么泡？"),
            writer.answer(
                "取七克左右，用沸水。第一泡只洗茶，五秒就倒掉；之后每泡十到十五秒，慢慢加长。",
                DemoUsage("anthropic", _SONNET, (64, 58, 0), 0.0011),
            ),
            writer.say("user", "剩下的茶要怎么存放？"),
            writer.answer(
                "放在干燥、通风、没有异味的地方，不要进冰箱。普洱会随着时间变得更醇。",
                DemoUsage("anthropic", _SONNET, (138, 49, 0), 0.0012),
            ),
        ],
        id=TEA,
        title="一壶茶",
        tags=("example",),
    )


_START_TIME: Final = 1_767_603_600_000
"""Monday, 5 January 2026, 9:00 UTC: the time of the first message."""
_TICK: Final = 7_000
_SECOND: Final = 1_000


class DemoClock:
    """A clock that moves on by seven seconds with every call.

    >>> clock = DemoClock()
    >>> first = clock()
    >>> clock() - first
    7000
    """

    def __init__(self) -> None:
        """Start on a Monday morning."""
        self.now = _START_TIME

    def __call__(self) -> int:
        """The time, in milliseconds."""
        self.now += _TICK
        return self.now


class DemoUsage:
    """The model of an answer, its tokens and its cost."""

    def __init__(
        self, provider: str, model: str, counts: tuple[int, int, int], cost: float
    ) -> None:
        """Take the tokens (input, output, reasoning) and the cost in dollars."""
        self.model = ModelRef(provider, model)
        self.tokens = TokenCounts(*counts, CacheCounts())
        self.cost = cost


class MessageWriter:
    """Creates the messages of one conversation."""

    def __init__(self, conversation: str, clock: DemoClock) -> None:
        """Take the id of the conversation."""
        self._conversation = conversation
        self._session = uuid_for(conversation)
        self._clock = clock
        self._count = 0

    def say(self, role: Role, text: str, **fields: Any) -> Message:  # noqa: ANN401 - Message's own
        """A message with plain text."""
        return Message(role, text, id=self._next(), timestamp=self._clock(), **fields)

    def show(self, text: str, mime: str, url: str, filename: str) -> Message:
        """A user's message with a file."""
        message = self._next()
        words = TextPart(**self._ids(message, "text"), text=text)
        file = FilePart(**self._ids(message, "file"), mime=mime, url=url, filename=filename)
        return Message("user", (words, file), id=message, timestamp=self._clock())

    def answer(
        self,
        text: str,
        usage: DemoUsage,
        *,
        reasoning: str = "",
        signed: dict[str, Any] | None = None,
        calls: Sequence[tuple[str, str, dict[str, Any]]] = (),
    ) -> Message:
        """An answer: reasoning, text and calls (id, tool, input), with its usage."""
        message, at = self._next(), self._clock()
        took = 900 + 4 * _SECOND * bool(reasoning) + 12 * usage.tokens.output
        parts: list[Part] = []
        if reasoning:
            parts.append(
                ReasoningPart(
                    **self._ids(message, "thought"),
                    text=reasoning,
                    time=TextTime(at - 4 * _SECOND, at - 2 * _SECOND),
                    metadata=signed or {},
                )
            )
        if text:
            parts.append(TextPart(**self._ids(message, "text"), text=text))
        for call_id, tool, given in calls:
            raw = _json(given)
            ids = self._ids(message, call_id)
            parts.append(ToolCallPart(**ids, call_id=call_id, tool=tool, input=given, raw=raw))
        why = "tool-calls" if calls else "stop"
        finish = self._ids(message, "finish")
        parts.append(StepFinishPart(**finish, reason=why, tokens=usage.tokens, cost=usage.cost))
        info = AssistantInfo(
            model=usage.model, cost=usage.cost, tokens=usage.tokens, completed=at, finish=why
        )
        return Message("assistant", tuple(parts), id=message, timestamp=at - took, info=info)

    def result(
        self, call_id: str, tool: str, given: dict[str, Any], output: str, *, failed: bool = False
    ) -> Message:
        """The result of a call."""
        message, at = self._next(), self._clock()
        running = start(pending(given, _json(given)), at=at - 2 * _SECOND)
        state = (
            fail(running, output, at=at) if failed else complete(running, output, tool=tool, at=at)
        )
        part = ToolPart(**self._ids(message, "state"), call_id=call_id, tool=tool, state=state)
        return Message("tool", (part,), id=message, timestamp=at)

    def _next(self) -> str:
        self._count += 1
        return derive_id(self._conversation, f"message {self._count}")

    def _ids(self, message: str, what: str) -> dict[str, Any]:
        part = derive_id(message, what)
        return {"id": part, "session_id": self._session, "message_id": message}


def _json(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
