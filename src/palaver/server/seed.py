"""A small example store, sown on the first start: one conversation for each thing worth seeing.

It is written through the library's own front door, so it is an ordinary store: batches, versions,
a fork, marks, a team. Nothing is sown where anything is kept already.
"""

# ruff: noqa: RUF001 - one of the examples is in Chinese

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.server.planting import Clock, Scribe, Used
from palaver.server.teams import TAG, keep_roster
from palaver.stores.store import Store
from palaver.team import State, read_route, read_team

if TYPE_CHECKING:
    from palaver.messages import Message, Role
    from palaver.stores.history import StoredHistory
    from palaver.team import Team

__all__ = ["BROKEN", "FORK", "START", "TEA", "TEAM", "TRIP", "sow"]

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


def sow(store: Store) -> bool:
    """Write the example into a store, if it is empty; tell whether it was.

    >>> import palaver
    >>> store = palaver.open(":memory:")
    >>> sow(store), sow(store)
    (True, False)
    >>> [head.title for head in store][0]
    'Start here'
    """
    if store.list(limit=1).conversations:
        return False
    clock = Clock()
    sown = Store(store.keeper, clock=clock)
    _broken(sown, clock)
    _tea(sown, clock)
    _team(sown, clock)
    _trip(sown, clock)
    _start(sown, clock)
    return True


def _start(store: Store, clock: Clock) -> None:
    """An empty conversation, with a system message that even a very small model can follow.

    The page offers what to ask in it, and has a guide through the rest of the example.
    """
    scribe = Scribe(START, clock)
    words = "You are a helpful AI assistant. Answer in one short sentence."
    store.create([scribe.say("system", words)], id=START, title="Start here")


# ── the trip: reasoning, two calls at once, a file, costs; then edits, a rollback and a fork ────


def _trip(store: Store, clock: Clock) -> None:
    scribe = Scribe(TRIP, clock)
    history = store.create(
        [*_question(scribe), *_look_up(scribe), *_plan(scribe)],
        id=TRIP,
        title="Three days in Lisbon",
        tags=("example",),
    )
    history.mark(5, "plan")
    planned = history.version
    _change_of_mind(history, scribe)
    _cheaper(store, history.fork(at=planned, id=FORK), Scribe(FORK, clock))


def _question(scribe: Scribe) -> list[Message]:
    asked = "Three days in Lisbon, coming from Porto. Here is the part of the map I like."
    return [
        scribe.say("system", "You plan short trips. Be practical, and say what things cost."),
        scribe.show(asked, "image/png", _MAP, "lisbon.png"),
    ]


def _look_up(scribe: Scribe) -> list[Message]:
    """Two calls in one answer; one of them fails."""
    weather, trains = {"city": "Lisbon", "days": 3}, {"from": "Porto", "to": "Lisbon"}
    forecast = "Mon 15°C, sunny. Tue 14°C, rain. Wed 16°C, sunny."
    late = "the timetable did not answer in time"
    return [
        scribe.answer(
            "I will look up the weather and the trains.",
            Used("anthropic", _SONNET, (412, 96, 58), 0.0035),
            thought="They come from Porto, so the train is likely. The weather decides between "
            "museums and walks. Both can be looked up at the same time.",
            calls=[("call_weather", "weather", weather), ("call_trains", "trains", trains)],
        ),
        scribe.result("call_weather", "weather", weather, forecast),
        scribe.result("call_trains", "trains", trains, late, failed=True),
    ]


def _plan(scribe: Scribe) -> list[Message]:
    return [
        scribe.answer(
            "Monday and Wednesday are dry: walk in Alfama on Monday and take the ferry on "
            "Wednesday. Keep Tuesday for the Gulbenkian Museum. I could not reach the "
            "timetable, so check the trains yourself: they take about three hours.",
            Used("anthropic", _SONNET, (655, 88, 0), 0.0033),
        ),
        scribe.say("user", "What would the three days cost for two people?"),
        scribe.answer(
            "About 420 euros: 120 for the trains, 200 for two nights, 100 for the rest.",
            Used("anthropic", _SONNET, (771, 42, 0), 0.0029),
        ),
    ]


def _change_of_mind(history: StoredHistory, scribe: Scribe) -> None:
    """One traveller and not two; a diet that is taken back; and on it goes."""
    history.replace(6, scribe.say("user", "What would the three days cost for one person?"))
    history.truncate(remove_last=1)
    history.append(
        scribe.answer(
            "About 250 euros: 60 for the trains, 140 for two nights, 50 for the rest.",
            Used("anthropic", _SONNET, (771, 40, 0), 0.0029),
        )
    )
    history.insert(1, [scribe.say("system", "The traveller does not eat meat.")])
    history.rollback(2)
    history.append(scribe.say("user", "And in February?"))
    history.mark(6, "budget")


def _cheaper(store: Store, fork: StoredHistory, scribe: Scribe) -> None:
    """The same plan, from before the change of mind, with less money."""
    fork.append(scribe.say("user", "We have only 200 euros. What can we leave out?"))
    fork.append(
        scribe.answer(
            "One night instead of two, and a picnic by the river: then 190 euros are enough.",
            Used("openai", _LUNA, (820, 35, 0), 0.0004),
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


def _team(store: Store, clock: Clock) -> None:
    """Three members, who calls whom, and a member who sees only what concerns it."""
    scribe, team = Scribe(TEAM, clock), read_team(msgspec.json.encode(_ROSTER).decode())
    history = store.create(id=TEAM, title="A small review team", tags=("example", TAG))
    keep_roster(store, TEAM, msgspec.json.encode(_ROSTER))
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
        history.append(_spoken(scribe, team, who, text))
    store.keeper.keep(TEAM, [State().handed("ada", "called").record()])


def _spoken(scribe: Scribe, team: Team, who: str, text: str) -> Message:
    member = team.find(who)
    assert member is not None  # noqa: S101 - the roster above has everybody
    role: Role = "user" if member in team.humans else "assistant"
    route = read_route(text, member, team).kept()
    return scribe.say(role, text, speaker=member.speaker, routing=route)


# ── and two more ────────────────────────────────────────────────────────────────────────────────


def _broken(store: Store, clock: Clock) -> None:
    """What an import may bring: no provider would take it as it is."""
    scribe = Scribe(BROKEN, clock)
    given = {"path": "notes.txt"}
    signed = {"anthropic": {"signature": "c2lnbmVkIGJ5IGFub3RoZXIgbW9kZWw="}}
    store.create(
        [
            scribe.result(
                "call_lost", "read_file", given, "Whose result is this? Its call is gone."
            ),
            scribe.say("user", "Please read my notes and tell me what is still open."),
            scribe.answer(
                "I will read them.",
                Used("anthropic", "claude-opus-5-5", (120, 30, 20), 0.002),
                thought="The notes are in notes.txt. Only the model that thought this may have it "
                "back, because it signed it.",
                signed=signed,
                calls=[("call_open", "read_file", given)],
            ),
            scribe.say("user", "Are you still there? The call above never got its result."),
            scribe.answer(
                "Yes. I could not read the file, so I can't tell yet.",
                Used("openai", _LUNA, (180, 18, 0), 0.0002),
            ),
        ],
        id=BROKEN,
        title="A broken history",
        tags=("example",),
    )


def _tea(store: Store, clock: Clock) -> None:
    """A short talk in Chinese."""
    scribe = Scribe(TEA, clock)
    store.create(
        [
            scribe.say("system", "你是一位懂茶的朋友，回答简短、亲切。"),
            scribe.say("user", "朋友送了我一饼普洱茶，应该怎么泡？"),
            scribe.answer(
                "取七克左右，用沸水。第一泡只洗茶，五秒就倒掉；之后每泡十到十五秒，慢慢加长。",
                Used("anthropic", _SONNET, (64, 58, 0), 0.0011),
            ),
            scribe.say("user", "剩下的茶要怎么存放？"),
            scribe.answer(
                "放在干燥、通风、没有异味的地方，不要进冰箱。普洱会随着时间变得更醇。",
                Used("anthropic", _SONNET, (138, 49, 0), 0.0012),
            ),
        ],
        id=TEA,
        title="一壶茶",
        tags=("example",),
    )
