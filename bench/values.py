"""Reading and writing messages, beside raw msgspec, bare structs and pydantic.

Every round reads a session that nobody has seen before, so that no cache of ids is warm. What is
compared must have come to the same JSON first.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from bench import models, rules, twins
from bench.corpus import session
from bench.harness import AtLeast, AtMost, Row, Run, against_floor, against_peer, timed
from palaver.messages import Message, dump, parse_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import TypeAdapter

__all__ = ["rows"]

_T = TypeVar("_T")
_COUNT: Final = 1_000
_SETS: Final = 10
_SAME: Final = "floor: raw msgspec on palaver's own structs"
_BARE: Final = "floor: the same shapes as structs that check nothing"
_TYPES: Final = "peer: pydantic models of the same shape, which check types only"
_RULES: Final = "peer: pydantic models of the same shape, with palaver's rules"


def rows(run: Run) -> Iterator[Row]:
    """Decode and encode a session of 1,000 messages."""
    rounds = run.rounds(30)
    texts = [session(_COUNT, seed) for seed in range(rounds)]
    same = msgspec.json.Decoder(list[Message])
    bare = msgspec.json.Decoder(list[twins.BareMessage])
    encoder = msgspec.json.Encoder()
    _check_equal_work(texts[0])
    took = timed(
        rounds,
        {
            "palaver": lambda number: parse_messages(texts[number]),
            "same": lambda number: same.decode(texts[number]),
            "bare": lambda number: bare.decode(texts[number]),
            "types": lambda number: models.MESSAGES.validate_json(texts[number]),
            "rules": lambda number: rules.MESSAGES.validate_json(texts[number]),
        },
        repeats=1,
    )
    yield from _compared("decode", took)

    some = texts[:_SETS]  # several, since where values happen to lie in memory matters here
    ours, plain = [parse_messages(text) for text in some], [bare.decode(text) for text in some]
    theirs = [models.MESSAGES.validate_json(text) for text in some]
    write = models.MESSAGES.dump_json
    took = timed(
        rounds,
        {
            "palaver": lambda number: dump(ours[number % len(some)]),
            "same": lambda number: encoder.encode(ours[number % len(some)]),
            "bare": lambda number: encoder.encode(plain[number % len(some)]),
            "types": lambda number: write(
                theirs[number % len(some)], by_alias=True, exclude_unset=True
            ),
        },
    )
    yield from _compared("encode", took)


def _compared(job: str, took: dict[str, float]) -> Iterator[Row]:
    name, own = f"{job} {_COUNT:,} messages", took["palaver"]
    yield against_floor(
        f"{name}, raw msgspec", own, took["same"], n=_COUNT, goal=AtMost(2), note=_SAME
    )
    yield against_floor(
        f"{name}, bare structs", own, took["bare"], n=_COUNT, goal=AtMost(2), note=_BARE
    )
    yield against_peer(
        f"{name}, pydantic", own, took["types"], n=_COUNT, goal=AtLeast(5), note=_TYPES
    )
    if "rules" in took:
        yield against_peer(
            f"{name}, pydantic with rules", own, took["rules"], n=_COUNT, goal=AtLeast(5),
            note=_RULES,
        )  # fmt: skip


def _check_equal_work(text: bytes) -> None:
    given = json.loads(text)
    bare = msgspec.json.decode(text, type=list[twins.BareMessage])
    assert given == _there_and_back(models.MESSAGES, text)
    assert given == _there_and_back(rules.MESSAGES, text)
    assert given == json.loads(dump(parse_messages(text)))
    assert given == json.loads(msgspec.json.encode(bare))


def _there_and_back(adapter: TypeAdapter[_T], text: bytes) -> object:
    read = adapter.validate_json(text)
    return json.loads(adapter.dump_json(read, by_alias=True, exclude_unset=True))
