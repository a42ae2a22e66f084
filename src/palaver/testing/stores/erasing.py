"""An erasure reaches what lies beside the log, and every handle that can know of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from palaver.messages import parse_message
from palaver.testing.stores.expecting import expect, one
from palaver.testing.stores.expecting import said as talk
from palaver.testing.stores.running import Checks

if TYPE_CHECKING:
    from palaver.testing.stores.running import Trial

__all__ = ["CHECKS"]

CHECKS = Checks()

_SAID: Final = "The door code\nis four seven one one."


@CHECKS
def an_erasure_takes_the_records_that_give_it_away(trial: Trial) -> None:
    """Drafts, prompts and calls that repeat or name it go, in all relatives; others stay."""
    call = {"type": "tool_use", "tool_use": {"id": "call-7", "name": "open", "input": {"n": 1}}}
    parent = trial.store.create([one("u1", _SAID), one("u2")])
    parent.append(parse_message({"role": "assistant", "content": [call], "id": "a3"}))
    fork = parent.fork()
    stranger = trial.store.create([one("u1", _SAID)])
    keeper = trial.store.keeper
    repeats = json.dumps({"prompt": ["- u: " + _SAID.replace("\n", "\n  ")]})
    for history in (parent, fork, stranger):
        keeper.put(history.id, "draft", "copied", _SAID.encode())
        keeper.put(history.id, "draft", "other", b"The door is open, u12.")
        keeper.put(history.id, "prompt", "p1", repeats.encode())
        keeper.put(history.id, "prompt", "p2", b'{"messages": ["u1", "u2"]}')
        keeper.put(history.id, "ledger", "call-7", b"\xff\x00")
        keeper.put(history.id, "ledger", "call-8", b'{"after": "call-7"}')
    receipt = parent.erase("u1")
    gone = [("draft", "copied"), ("prompt", "p1"), ("prompt", "p2")]
    expect({(h.id, *which) for h in (parent, fork) for which in gone}, {*receipt.records},
           "the receipt")  # fmt: skip
    receipt = fork.erase("a3")
    calls = [("ledger", "call-7"), ("ledger", "call-8")]
    expect({(h.id, *which) for h in (parent, fork) for which in calls}, {*receipt.records},
           "the receipt for a call")  # fmt: skip
    for store in trial.now_and_later():
        for history in (parent, fork):
            expect(["draft"], store.keeper.kinds(history.id), "kinds of records left")
            expect(["other"], list(store.keeper.records(history.id, "draft")), "drafts left")
        expect(["draft", "ledger", "prompt"], store.keeper.kinds(stranger.id), "the stranger's")
        expect([], list(store.verify(parent.id)), "problems")


@CHECKS
def a_handle_on_the_same_store_shows_nothing_erased(trial: Trial) -> None:
    """Whoever reads through the same open store sees it at once, forks and views too."""
    mine = trial.store.create(talk("u1 a2"))
    some = trial.store.get(mine.id), mine.fork(), trial.store.get(mine.id).view
    others = trial.store.get(mine.id), mine.fork(), trial.store.get(mine.id).view
    for seen in (*some, *others):
        expect(["says u1", "says a2"], [m.text for m in seen], "what they read")
    mine.erase(0)
    for seen in some:
        expect("", seen[0].text, "what they see")
    for seen in others:
        expect(["", "says a2"], [m.text for m in seen], "all that they see")
