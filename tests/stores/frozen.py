"""One store with everything in it, for files that are kept: what an old schema wrote must stay.

`fill` leads a new store through a life in which everything happens at least once, always the same.
`contents` is all that can be read of a store, as JSON. What is under `data/` was written once, by
the code of its time, and is never written again:

    schema-N.db.gz   the SQLite file, schema N
    schema-N.sql     `pg_dump --inserts --schema=palaver` of the PostgreSQL database, schema N
    schema-N.json    the contents of both; not every schema has both
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from palaver.history import SUMMARY_OF
from palaver.messages import Message, parse_message, to_dict
from palaver.stores import Store
from palaver.stores.transfer import import_conversation
from palaver.stores.transfer.export import read_records
from palaver.testing.stores.suite import dump_history
from tests.history.samples import one, talk

if TYPE_CHECKING:
    from palaver.stores.records import Head

__all__ = ["DATA", "contents", "fill"]

DATA: Final = Path(__file__).parent / "data"
TOKENS = {"input": 10, "output": 2, "reasoning": 0, "cache": {"read": 3, "write": 0}}
SESSION = "0190163d-8694-739b-aea5-966c26f8ad91"


class _Ticking:
    """A clock that goes on by one with every look."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        self.now += 1
        return self.now


def _spoken(role: str, name: str, *parts: dict[str, Any], **fields: Any) -> Message:  # noqa: ANN401 - JSON
    ids = {"sessionID": SESSION, "messageID": "0190163d-8694-739b-aea5-966c26f8ad92"}
    content = [{"id": f"{name}-{number}", **ids, **part} for number, part in enumerate(parts)]
    return parse_message({"role": role, "id": name, "content": content, "timestamp": 77, **fields})


def fill(backend_store: Store) -> None:
    """Do everything that can be done, once."""
    store = Store(backend_store.backend, clock=(clock := _Ticking()))
    history = store.create(
        talk("s1 u2"), id="talk", title="Tea or coffee? ☕", tags=["kitchen", "茶"]
    )
    history.append(
        one("a3", 'Grüße, 喝茶吧 \U0001f375\n"quoted" \\ \x7f', metadata={"n": [1, None, 2.5]})
    )
    history.append(one("u4", timestamp=5), key="first key")
    history.append(
        _spoken(
            "assistant", "a5",
            {"type": "step-start", "snapshot": "s"},
            {"type": "reasoning", "text": "hm", "time": {"start": 1, "end": 2},
             "metadata": {"signature": "x"}},
            {"type": "text", "text": "I look.", "ignored": True},
            {"type": "tool-call", "callID": "c1", "tool": "look", "input": {"at": "kettle"},
             "raw": '{"at": "kettle"}'},
            {"type": "step-finish", "reason": "tool", "tokens": TOKENS, "cost": 0.25},
        )
    )  # fmt: skip
    state = {
        "status": "completed", "input": {"at": "kettle"}, "output": "it boils", "title": "look",
        "metadata": {}, "time": {"start": 1, "end": 4},
    }  # fmt: skip
    tool = _spoken("tool", "t6", {"type": "tool", "callID": "c1", "tool": "look", "state": state})
    history.extend([tool, one("a7"), one("u8")], key="second key")
    source = {"type": "file", "path": "a.md", "text": {"value": "v", "start": 0, "end": 1}}
    history.append(
        _spoken(
            "user", "u9",
            {"type": "file", "mime": "image/png", "url": "data:,x", "filename": "f",
             "source": source},
            {"type": "subtask", "prompt": "p", "description": "d", "agent": "a"},
            {"type": "agent", "name": "max"},
            {"type": "snapshot", "snapshot": "s"},
            {"type": "patch", "hash": "h", "files": ["a", "b"]},
            {"type": "retry", "attempt": 1, "error": {"e": 1}, "time": {"created": 3}},
            {"type": "compaction", "auto": True},
            {"type": "of-the-future", "what": {"is": ["this"]}},
        )
    )  # fmt: skip
    history.insert(1, talk("u10 a11"))
    history.replace(0, one("s12"))
    history.mark("a3", "pin")
    history.mark("u10", "later")
    history.unmark("u10", "later")
    history.set_team_task("Brew.")
    history.truncate(keep_last=3, role="user", others="keep")
    history.rollback(1)
    history.redo()
    history.undo()
    store.search("tea")  # the index has seen what is above, and not what is below
    fork = history.fork(id="fork")
    history.append(one("u13", "the parent goes on"))
    fork.append(one("a14", "a summary", metadata={SUMMARY_OF: ["u2"]}))
    fork.replace(1, one("u15"))
    deeper = fork.fork(at=1, id="deeper")
    deeper.append(one("u16"))
    history.merge(fork)
    history.filter(roles=["user", "assistant"], content_excludes=["says u8"])
    history.clear(keep_system_message=False)
    history.restore(10)
    history.append(one("u17", "to be erased: secret"))
    history.erase("u17")
    history.erase("u2")
    store.backend.put("talk", "draft", "d1", b"half a sen\0tence \xff")
    store.backend.put("talk", "ledger", "c1", json.dumps(state).encode())
    store.backend.put("fork", "intent", "名", b"")
    lease = store.lease("talk", "worker 1", seconds=5)
    clock()  # leases went by this clock when the first schema was kept
    store.get("talk").under(lease).append(one("a18"), key="third key")
    store.release(lease)
    store.lease("talk", "worker 2", seconds=7)
    clock()
    store.create(id="empty")
    store.create(talk("u19"), id="gone")
    snapshot = {
        "messages": [
            {"id": "msg-1", "content": "Hi", "extra": [1],
             "speaker": {"roleId": "u", "roleName": "U", "type": "human", "more": 1}},
            {"id": "msg-2", "content": "[NEXT: u] Hello",
             "routing": {"resolvedAddressees": [], "x": 1},
             "speaker": {"roleId": "max", "roleName": "Max", "type": "ai"}},
        ],
        "teamTask": "Greet.", "timestamp": 1_700_000_000_000, "version": 1,
    }  # fmt: skip
    import_conversation(store, io.BytesIO(json.dumps(snapshot).encode()), id="imported")
    store.describe("deeper", title=None, tags=["deep"])
    store.delete("gone")


def contents(store: Store) -> dict[str, Any]:
    """Everything that a store says it has."""
    return {head.id: _contents(store, head) for head in sorted(store, key=lambda head: head.id)}


def _contents(store: Store, head: Head) -> dict[str, Any]:
    backend = store.backend
    return {
        "title": head.title, "tags": list(head.tags), "created": head.created,
        "updated": head.updated, "parent": head.parent, "base": head.base, "origin": head.origin,
        "erased": head.erased,
        "records": [
            [kind, name, value.hex()] for kind, name, value in read_records(backend, head.id)
        ],
        "keys": {
            str(version): key for version, key in backend.keys(head.id, -1, head.version).items()
        },
        "journal": [
            [told.version, told.kind, told.at, told.first, told.count, dict(told.data)]
            for told in backend.journal(head.id, -1, 1_000)
        ],
        "replaces": [backend.replaced(head.id, place) for place in range(head.length)],
        **_brief(dump_history(store.get(head.id))),
        "log": to_dict(list(store.get(head.id).log)),
    }  # fmt: skip


def _brief(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The same with ids in the place of messages: the log spells each of them out once."""
    if isinstance(value, dict):
        spelled = "role" in value and "id" in value
        return value["id"] if spelled else {name: _brief(inner) for name, inner in value.items()}
    return [_brief(inner) for inner in value] if isinstance(value, list) else value
