"""Gemini generateContent (REST, camelCase): what the endpoint refuses in a request.

Turns are the user's or the model's; the first and the last are the user's, and no two of the
model's stand in a row. The turn after one with function calls has a response for each of them and
nothing else; a turn of the user's own words may follow that one. In the turn that is still open,
the first call of every step carries the thought signature it came with.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from palaver.testing.providers.gemini_parts import MODEL, SYSTEM, USER, tool
from palaver.testing.providers.naming import unique_names
from palaver.testing.providers.pairing import Pin, settle, unique_calls
from palaver.testing.providers.values import (
    Form,
    anything,
    at,
    items,
    kind,
    listing,
    look,
    string,
    word,
)
from palaver.testing.providers.whole import whole

if TYPE_CHECKING:
    from palaver.testing.providers.findings import Findings
    from palaver.testing.providers.values import Check

__all__ = ["check"]

LARGEST = 100 * 1024 * 1024
_VERSION = re.compile(r"gemini-(\d+)")
SIGNED = 3
"""From this version on, calls of the open turn carry signatures."""

ROLES: dict[str, Check] = {
    "user": Form({"role": anything, "parts": listing(USER, at_least=1)}),
    "model": Form({"role": anything, "parts": listing(MODEL, at_least=1)}),
}


def turn(found: Findings, path: str, value: object) -> None:
    """One turn, by its role."""
    role = word(value, "role")
    if not isinstance(value, dict):
        found.add(path, "shape", f"must be an object, not {kind(value)}")
    elif role not in ROLES:
        found.add(at(path, "role"), "role", "must be user or model")
    else:
        ROLES[role](found, path, value)


BODY = Form(
    {"contents": listing(turn, at_least=1)},
    {
        "systemInstruction": Form({"parts": listing(SYSTEM, at_least=1)}, {"role": string}),
        "tools": listing(tool),
        **dict.fromkeys(
            [
                "cachedContent",
                "generationConfig",
                "labels",
                "model",
                "safetySettings",
                "serviceTier",
                "store",
                "toolConfig",
            ],
            anything,
        ),
    },
)


def check(found: Findings, body: object) -> None:
    """Note everything that the endpoint would refuse."""
    whole(found, body, limit=LARGEST)
    BODY(found, "$", body)
    declared = (
        entry
        for path, value in items(look(body, "tools"), "tools")
        for entry in items(look(value, "functionDeclarations"), at(path, "functionDeclarations"))
    )
    unique_names(found, declared)
    contents = list(items(look(body, "contents"), "contents"))
    order(found, contents)
    pairs(found, contents)
    version = _VERSION.search(word(body, "model") or "")
    if version is None or int(version[1]) >= SIGNED:
        signatures(found, contents)


def parts_of(path: str, turn: object, field: str) -> list[tuple[str, object]]:
    """The parts of a turn that have this field."""
    return [
        (place, part)
        for place, part in items(look(turn, "parts"), at(path, "parts"))
        if look(part, field) is not None
    ]


def order(found: Findings, contents: list[tuple[str, object]]) -> None:
    """Who speaks when."""
    before: tuple[str | None, bool] = (None, False)
    for path, value in contents:
        role = word(value, "role")
        responses = parts_of(path, value, "functionResponse")
        apart = role == "user" and (before[1] or bool(responses))
        if role in ROLES and role == before[0] and not apart:
            found.add(path, "alternation", f"two turns in a row are the {role}'s")
        if responses and len(responses) < len(list(items(look(value, "parts"), ""))):
            found.add(path, "result-not-alone", "a turn of function responses has nothing else")
        before = (role, bool(responses))
    if contents and word(contents[0][1], "role") == "model":
        found.add(contents[0][0], "first-role", "the first turn must be the user's")
    if contents and word(contents[-1][1], "role") == "model":
        found.add(contents[-1][0], "last-role", "the request must end with a user turn")


def pairs(found: Findings, contents: list[tuple[str, object]]) -> None:
    """Hold the calls of each turn against the responses of the next."""
    turns = [
        (
            pins(parts_of(path, value, "functionCall"), "functionCall"),
            pins(parts_of(path, value, "functionResponse"), "functionResponse"),
            word(value, "role"),
        )
        for path, value in contents
    ]
    known: set[str] = set()
    for calls, _, _ in turns:
        known |= unique_calls(found, calls)
    waiting: list[Pin] = []
    for calls, responses, role in turns:
        settle(found, waiting, responses if role == "user" else (), known)
        waiting = calls if role == "model" else []
    settle(found, waiting, (), known)
    renamed(found, contents)


def pins(parts: list[tuple[str, object]], field: str) -> list[Pin]:
    """What calls and responses are matched by: the id, or else the name and its how-manieth."""
    counted: dict[str, int] = {}
    pins: list[Pin] = []
    for path, part in parts:
        name = word(part, field, "name") or ""
        key = word(part, field, "id")
        if not key:
            counted[name] = counted.get(name, 0) + 1
            key = f"{name}#{counted[name]}"
        pins.append(Pin(key, path))
    return pins


def renamed(found: Findings, contents: list[tuple[str, object]]) -> None:
    """A response has the name of the function that was called by its id."""
    names: dict[str, str | None] = {}
    for path, value in contents:
        for _, part in parts_of(path, value, "functionCall"):
            names[word(part, "functionCall", "id") or ""] = word(part, "functionCall", "name")
        for place, part in parts_of(path, value, "functionResponse"):
            key = word(part, "functionResponse", "id")
            if key and names.get(key, word(part, "functionResponse", "name")) != word(
                part, "functionResponse", "name"
            ):
                found.add(place, "tool-name", "the call with this id was of another function")


def signatures(found: Findings, contents: list[tuple[str, object]]) -> None:
    """Want a signature on the first call of every step since the user last spoke."""
    start = 0
    for place, (path, value) in enumerate(contents):
        if word(value, "role") == "user" and not parts_of(path, value, "functionResponse"):
            start = place
    for path, value in contents[start:]:
        calls = parts_of(path, value, "functionCall")
        if calls and not word(calls[0][1], "thoughtSignature"):
            found.add(calls[0][0], "missing-signature", "the call lacks its thoughtSignature")
