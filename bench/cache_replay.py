"""The ledger of the prompt cache on real transcripts, and cleanups that wait beside eager ones.

    python -m bench.cache_replay FOLDER [--most 34]

reads the Claude Code and Codex sessions (`*.jsonl`) under a folder of yours and prints two tables.
Nothing of them is stored. The first compares the ledger's causes with a reading of the usage that
knows nothing of the ledger: it looks only at the provider's figures, the times, the models and the
marks that the program itself left in its transcript. The second sends the same sessions to the
judge of `palaver.testing` three times: as they are, with old tool outputs cleared at once, and with
the same cleanups deferred until the cache breaks anyway.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import msgspec

from palaver import wire
from palaver.conversation import ClearOutputs, Conversation, compact, defer_compaction
from palaver.conversation.prompt_cache import (
    BlockHashes,
    CacheUse,
    Life,
    PromptPrefix,
    expect,
    last_request,
    life_of,
    tokens_kept,
)
from palaver.errors import CompactionRefused
from palaver.messages import CacheCounts, Message, ModelRef, TokenCounts, new_id
from palaver.messages.parts import text_part, tool_call_part, tool_part
from palaver.messages.tool_state import complete, pending, start
from palaver.stores import open_store
from palaver.testing import PromptCache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.messages import Part

__all__ = ["main"]

_LEAST_REQUESTS: Final = 20
_MOST: Final = 34
_MARKS: Final = ("compact_boundary", "microcompact_boundary")
_NO_LIFE: Final = Life(0, 0)
_LIFE_MS: Final = 300_000


class Record(NamedTuple):
    """A message of a transcript: its blocks as bytes, and as a provider's content."""

    role: str
    content: Any
    blocks: tuple[bytes, ...]


class Sent(NamedTuple):
    """A request of a transcript: when, to whom, what the provider reported, and what was sent."""

    at: int
    model: ModelRef
    form: str
    tokens: TokenCounts
    raw: dict[str, Any]
    records: tuple[Record, ...]
    compacted: bool


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1_000)


def read(path: Path) -> list[Sent]:
    """Return the requests of a session of either program; of any other file, none."""
    rows = list(_rows(path))
    if rows and rows[0].get("type") == "session_meta":
        return list(_codex(rows))
    return list(_claude_code(rows))


def _claude_code(rows: Sequence[dict[str, Any]]) -> Iterator[Sent]:
    """Yield the requests: what a request had in it is the chain of parents of its answer."""
    parents: dict[str, str | None] = {}
    records: dict[str, Record] = {}
    cleared: set[str] = set()
    seen: set[str] = set()
    last, compacted = None, False
    for row in rows:
        uuid, kind = row.get("uuid"), row.get("type")
        if row.get("isSidechain") or not isinstance(uuid, str) or uuid in parents:
            continue
        if row.get("isCompactSummary") or row.get("subtype") in _MARKS:
            compacted = True
            cleared.update(row.get("microcompactMetadata", {}).get("compactedToolIds", ()))
        parent = row.get("parentUuid", last)
        parents[uuid], last = parent, uuid
        message = row.get("message")
        if kind not in ("user", "assistant") or not isinstance(message, dict):
            continue
        records[uuid] = _record(kind, message.get("content"), cleared)
        usage, name = message.get("usage"), str(message.get("id"))
        model = str(message.get("model"))
        if kind != "assistant" or not usage or name in seen or model.startswith("<"):
            continue
        seen.add(name)
        chain = tuple(_clear(records[one], cleared) for one in _chain(parents, parent, records))
        cache = CacheCounts(
            usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
        )
        tokens = TokenCounts(usage.get("input_tokens") or 0, 0, 0, cache)
        ref = ModelRef("anthropic", model)
        yield Sent(_ms(row["timestamp"]), ref, "anthropic", tokens, usage, chain, compacted)
        compacted = False


def _chain(
    parents: dict[str, str | None], uuid: str | None, records: dict[str, Record]
) -> list[str]:
    found: list[str] = []
    passed: set[str] = set()
    while uuid is not None and uuid in parents and uuid not in passed:
        passed.add(uuid)
        if uuid in records:
            found.append(uuid)
        uuid = parents[uuid]
    return found[::-1]


def _record(role: str, content: Any, cleared: set[str]) -> Record:  # noqa: ANN401 - JSON
    return _clear(Record(role, content, ()), cleared)


def _clear(record: Record, cleared: set[str]) -> Record:
    """Return a record with the outputs left out that the program has cleared."""
    content = record.content
    parts = content if isinstance(content, list) else [content]
    if record.blocks and not any(_id(part) in cleared for part in parts):
        return record
    kept = [{**part, "content": "(cleared)"} if _id(part) in cleared else part for part in parts]
    return Record(record.role, kept, tuple(msgspec.json.encode((record.role, x)) for x in kept))


def _id(part: object) -> str | None:
    return part.get("tool_use_id") if isinstance(part, dict) else None


def _codex(rows: Sequence[dict[str, Any]]) -> Iterator[Sent]:
    """Yield the requests: the usage comes after each, with the items that were said by then."""
    items: list[Record] = []
    model, last, compacted = "", None, False
    for row in rows:
        payload = row.get("payload") or {}
        if row.get("type") == "turn_context":
            model = payload.get("model") or model
        elif row.get("type") == "compacted":
            compacted = True
            items = [
                _record("user", one, set())
                for one in payload.get("replacement_history") or [payload]
            ]
        elif row.get("type") == "response_item":
            items.append(_record("item", payload, set()))
        elif payload.get("type") == "token_count" and payload.get("info"):
            total, usage = payload["info"]["total_token_usage"], payload["info"]["last_token_usage"]
            if total == last or not usage.get("input_tokens"):
                continue
            last, read = total, usage.get("cached_input_tokens") or 0
            raw = {"input_tokens_details": {"cached_tokens": read}}
            tokens = TokenCounts(usage["input_tokens"] - read, 0, 0, CacheCounts(read))
            ref = ModelRef("openai", model)
            at = _ms(row["timestamp"])
            yield Sent(at, ref, "openai-responses", tokens, raw, tuple(items), compacted)
            compacted = False


# ── the ledger, and a reading of the usage that knows nothing of it ─────────────────────────────


def replay(requests: Sequence[Sent]) -> list[CacheUse]:
    """Return what the ledger says of each request."""
    known: list[PromptPrefix] = []
    marked: dict[ModelRef, bool] = {}
    found: list[CacheUse] = []
    for number, sent in enumerate(requests):
        marked = {model: was or sent.compacted for model, was in marked.items()}
        chain = BlockHashes().extend(block for record in sent.records for block in record.blocks)
        now = PromptPrefix(sent.model, sent.at, number, "", "", chain.marks(), 0, _NO_LIFE)
        why = "compaction" if marked.get(sent.model) else "edit"
        expectation = expect(known, chain, now, why=lambda why=why: why)  # type: ignore[misc]
        tokens = sent.tokens
        found.append(expectation.compare(tokens.cache.read, tokens.cache.write, tokens.prompt))
        before = last_request(known, sent.model)
        lived = None if before is None else before.life
        life = life_of(sent.form, sent.raw, last=lived, model=sent.model.model_id)
        now = msgspec.structs.replace(
            now, kept=tokens_kept(sent.form, tokens), life=life or _NO_LIFE, prompt=tokens.prompt
        )
        known = [one for one in known if one.model != sent.model] + [now]
        marked[sent.model] = False
    return found


def read_usage(requests: Sequence[Sent]) -> list[frozenset[str] | None]:
    """Return the causes that the figures of each request allow; None where nothing was paid twice.

    A request has broken the cache if it paid in full for much more than what is new in it.
    """
    found: list[frozenset[str] | None] = []
    last: dict[str, Sent] = {}
    previous: Sent | None = None
    floor, hour = 0, False
    for sent in requests:
        tokens, name = sent.tokens, sent.model.model_id
        before = last.get(name, previous)
        paid = tokens.input + tokens.cache.write
        created = sent.raw.get("cache_creation")
        found.append(None)
        if before is not None:
            new = max(0, tokens.prompt - before.tokens.prompt)
            cached = before.tokens.cache.read + before.tokens.cache.write
            cached = cached if sent.form == "anthropic" else before.tokens.prompt
            again = min(paid - new, cached - tokens.cache.read)
            if again > max(1_024, cached // 20):
                found[-1] = _allowed(before, sent, floor, life=3_600 if hour else 300)
        if isinstance(created, dict):
            hour = bool(created.get("ephemeral_1h_input_tokens")) or (
                hour and not created.get("ephemeral_5m_input_tokens")
            )
        if tokens.cache.read and (not floor or tokens.cache.read < floor):
            floor = tokens.cache.read
        last[name] = previous = sent
    return found


def _allowed(before: Sent, sent: Sent, floor: int, *, life: int) -> frozenset[str]:
    idle = (sent.at - before.at) / 1_000
    read, prompt = sent.tokens.cache.read, sent.tokens.prompt
    to_front = read <= floor * 1.2 or read < before.tokens.prompt // 4
    causes: set[str] = set()
    if sent.model != before.model:
        causes.add("model-changed")
    if idle >= life and to_front:
        causes.add("expiry")
    elif sent.compacted:
        causes.add("compaction")
    elif prompt < before.tokens.prompt - 1_024:
        causes.add("edit")  # what was sent has become shorter
    if not causes:  # nothing in the transcript tells: neither may the ledger
        causes.add("unknown")
    return frozenset(causes)


# ── cleanups at once, and cleanups that wait ────────────────────────────────────────────────────

_SYSTEM: Final = {"type": "text", "text": "you are a careful engineer. " * 2_000}
_PRICES: Final = (3.0, 0.3, 3.75)
"""Dollars for a million tokens: input, read from the cache, written to it."""
_CLEANUPS: Final = ((40_000, 20_000), (20_000, 10_000), (10_000, 5_000), (5_000, 1_000))
"""How many tokens of output stay, and how many must go for a cleanup to be worth it."""
_EPHEMERAL: Final = {"cache_control": {"type": "ephemeral"}}


def messages_of(record: Record, session: str) -> list[Message]:
    """Return a record of Claude Code as palaver's messages."""
    content = record.content
    parts = content if isinstance(content, list) else [content]
    name, said, results = new_id(), list["Part"](), list[Message]()
    for part in parts:
        if isinstance(part, str) and part.strip():
            said.append(text_part(session, name, part))
        elif not isinstance(part, dict):
            continue
        elif part.get("type") == "text" and str(part.get("text", "")).strip():
            said.append(text_part(session, name, part["text"]))
        elif part.get("type") == "tool_use":
            made: dict[str, Any] = part["input"] if isinstance(part.get("input"), dict) else {}
            said.append(
                tool_call_part(session, name, str(part["name"]), made, call_id=str(part["id"]))
            )
        elif part.get("type") == "tool_result":
            output = part.get("content")
            text = output if isinstance(output, str) else json.dumps(output)
            state = complete(start(pending({}, "{}")), text, tool="tool")
            own = new_id()
            result = tool_part(session, own, str(part["tool_use_id"]), "tool", state)
            results.append(Message("tool", (result,), id=own))
    role: Any = record.role
    return results + ([Message(role, tuple(said), id=name)] if said else [])


class Spent(NamedTuple):
    """The tokens of all requests of a session, and what they cost."""

    read: int = 0
    written: int = 0
    uncached: int = 0
    cleanups: int = 0

    @property
    def dollars(self) -> float:
        """What they cost."""
        fresh, read, write = _PRICES
        return (self.read * read + self.written * write + self.uncached * fresh) / 1_000_000


async def simulate(requests: Sequence[Sent], strategy: ClearOutputs, policy: str) -> Spent:
    """Send a session to the judge with a policy: none, eager or deferred."""
    judge, spent = PromptCache("anthropic"), Spent()
    session, done = new_id(), tuple[Record, ...]()
    with open_store(":memory:") as store:
        talk = Conversation(store, count=lambda text: len(text) // 4)
        converter, version = wire.converter("anthropic"), -1
        before: Sent | None = None
        for sent in requests:
            if sent.records[: len(done)] != done:  # a compaction or a rewind: all is new
                talk, done = Conversation(store, count=lambda text: len(text) // 4), ()
                version = -1
            for record in sent.records[len(done) :]:
                for message in messages_of(record, session):
                    talk.add(message)
            done = sent.records
            broken = before is None or sent.at - before.at >= _LIFE_MS or sent.model != before.model
            edited = await _clean(talk, strategy, policy, broken=broken)
            if edited or version < 0:
                converter = wire.converter("anthropic")
                version = 0
            converter.extend(talk.messages[version:])
            version = len(talk.messages)
            body = _marked(converter.request().body)
            used = judge.request(body, at=sent.at / 1_000, model=sent.model.model_id)
            spent = Spent(
                spent.read + used.read, spent.written + used.written,
                spent.uncached + used.uncached, spent.cleanups + edited,
            )  # fmt: skip
            before = sent
    return spent


async def _clean(talk: Conversation, strategy: ClearOutputs, policy: str, *, broken: bool) -> bool:
    if policy == "none":
        return False
    try:
        if policy == "eager":
            return await compact(talk, strategy) is not None
        await defer_compaction(talk, strategy)
    except CompactionRefused:
        pass
    return broken and bool(talk.apply_deferred())


def _marked(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request with breakpoints after the system text and at the last two user turns."""
    messages = list(body["messages"])
    turns = [index for index, one in enumerate(messages) if one["role"] == "user"]
    for index in turns[-2:]:
        content = messages[index]["content"]
        text = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks: list[dict[str, Any]] = [*text]
        blocks[-1] = {**blocks[-1], **_EPHEMERAL}
        messages[index] = {**messages[index], "content": blocks}
    return {**body, "system": [{**_SYSTEM, **_EPHEMERAL}], "messages": messages}


# ── tables ──────────────────────────────────────────────────────────────────────────────────────


def report_causes(sessions: Sequence[Sequence[Sent]]) -> str:
    """Return the first table: causes by the ledger, and which of them the usage allows."""
    right, wrong, total = Counter[str](), Counter[str](), 0
    missed = alarms = 0
    for requests in sessions:
        total += len(requests)
        for use, allowed in zip(replay(requests), read_usage(requests), strict=True):
            if allowed is None:
                alarms += use.cause is not None
            elif use.cause is None:
                missed += 1
            elif use.cause in allowed:
                right[use.cause] += 1
            else:
                wrong[f"{use.cause}, not {' or '.join(sorted(allowed))}"] += 1
    breaks = right.total() + wrong.total() + missed
    lines = [f"{len(sessions)} sessions, {total:,} requests, {breaks:,} breaks by the usage"]
    lines += [f"  {cause:16}{count:6,}" for cause, count in right.most_common()]
    lines += [f"  wrong: {text}: {count:,}" for text, count in wrong.most_common()]
    share = 100 * right.total() / max(1, breaks)
    lines.append(f"right: {right.total():,} of {breaks:,} ({share:.1f} %); missed: {missed:,}; ")
    lines.append(f"false alarms: {alarms:,} of {total - breaks:,} requests that broke nothing")
    return "\n".join(lines)


def report_cleanups(sessions: Sequence[Sequence[Sent]], strategy: ClearOutputs) -> str:
    """Return the second table: what the sessions cost under each policy, by the judge."""
    kept, gain = strategy.protect_tokens, strategy.least_gain
    lines = [f"clear outputs older than {kept:,} tokens, for a gain of {gain:,}"]
    base = 0.0
    for policy in ("none", "eager", "deferred"):
        found = [anyio.run(simulate, requests, strategy, policy) for requests in sessions]
        cost = sum(one.dollars for one in found)
        base = base or cost
        written, read = sum(one.written for one in found), sum(one.read for one in found)
        count = sum(one.cleanups for one in found)
        lines.append(
            f"  {policy:9}${cost:10,.2f}  {100 * (cost / max(base, 1e-9) - 1):+6.1f} %  "
            f"read {read:14,}  written {written:12,}  cleanups {count:4,}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Read a folder, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.cache_replay", description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder with sessions, *.jsonl")
    parser.add_argument("--most", type=int, default=_MOST, help="how many sessions, longest first")
    parser.add_argument("--causes-only", action="store_true", help="only the first table")
    chosen = parser.parse_args(arguments)
    found = [read(path) for path in sorted(chosen.folder.rglob("*.jsonl"))]
    found = [requests for requests in found if len(requests) >= _LEAST_REQUESTS]
    found.sort(key=len, reverse=True)
    codex = [one for one in found if one[0].form != "anthropic"]
    others = [one for one in found if one[0].form == "anthropic"]
    sessions = [*codex, *others][: chosen.most]
    if not sessions:
        print(
            f"no session of {_LEAST_REQUESTS} requests or more in {chosen.folder}", file=sys.stderr
        )
        return 1
    print(report_causes(sessions))
    if not chosen.causes_only:
        anthropic = [one for one in sessions if one[0].form == "anthropic"]
        for kept, gain in _CLEANUPS:
            strategy = ClearOutputs(protect_tokens=kept, least_gain=gain)
            print(report_cleanups(anthropic, strategy), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
