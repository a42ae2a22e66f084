"""What the benchmarks read and write: a made-up, but lifelike, session of an agent with tools.

The same seed gives the same bytes, on every machine. A sixth of the texts are Chinese or have an
emoji, since a check that is quick on ASCII only would look better here than it is.
"""

from __future__ import annotations

import json
import random
import uuid
from typing import Any, Final

__all__ = ["session"]

_PROSE: Final = (
    "the file has a function that reads every line and keeps what it finds in a table so we can "
    "look it up later without reading again but the test fails when the folder is empty because "
    "nobody opened it first"
)
_WORDS: Final = tuple(_PROSE.split())
_HANZI: Final = "我们先读这个文件再看测试为什么失败然后修好它并写一条新的测试"


class _Author:
    """Makes one message after the other."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a repeatable corpus, not a secret
        self._time = 1_760_000_000_000
        self._session = self._uuid()

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _now(self) -> int:
        self._time += self._random.randrange(20, 4_000)
        return self._time

    def _text(self, low: int, high: int) -> str:
        count = self._random.randrange(low, high)
        draw = self._random.randrange(12)
        if draw == 0:
            return "".join(self._random.choices(_HANZI, k=count * 2))
        return " ".join(self._random.choices(_WORDS, k=count)) + (" 🙂" if draw == 1 else "")

    def _part(self, message_id: str, kind: str, **fields: object) -> dict[str, Any]:
        ids = {"id": self._uuid(), "sessionID": self._session, "messageID": message_id}
        return {"type": kind, **ids, **fields}

    def _tokens(self) -> dict[str, Any]:
        cache = {"read": self._random.randrange(20_000), "write": self._random.randrange(900)}
        drawn = self._random.randrange
        return {"input": drawn(9_000), "output": drawn(900), "reasoning": 0, "cache": cache}

    def _input(self) -> dict[str, Any]:
        where = f"src/{self._random.choice(_WORDS)}/{self._random.choice(_WORDS)}.py"
        found: dict[str, Any] = {"path": where, "offset": self._random.randrange(500)}
        if self._random.randrange(4) == 0:  # now and then an input that holds lists and objects
            found["edits"] = [{"line": 3, "text": self._text(5, 20)}, {"line": 9, "text": ""}]
        return found

    def question(self) -> dict[str, Any]:
        """A user's message: plain text, or one text part."""
        name = self._uuid()
        text = self._text(10, 60)
        plain = self._random.randrange(2)
        content = text if plain else [self._part(name, "text", text=text)]
        return {"role": "user", "content": content, "id": name, "timestamp": self._now()}

    def answer(self, call: dict[str, Any] | None) -> dict[str, Any]:
        """An assistant's message: a step with text and perhaps a tool call."""
        name = self._uuid()
        parts = [self._part(name, "step-start"), self._part(name, "text", text=self._text(30, 200))]
        if call is not None:
            raw = json.dumps(call["input"], separators=(",", ":"), ensure_ascii=False)
            parts.append(self._part(name, "tool-call", **call, raw=raw))
        reason = "stop" if call is None else "tool-calls"
        cost = self._random.randrange(1, 900) / 10_000
        parts.append(
            self._part(name, "step-finish", reason=reason, tokens=self._tokens(), cost=cost)
        )
        return {"role": "assistant", "content": parts, "id": name, "timestamp": self._now()}

    def call(self) -> dict[str, Any]:
        """What a model asks a tool for."""
        tool = self._random.choice(("read", "bash", "edit", "grep"))
        call_id = f"call_{self._random.getrandbits(64):016x}"
        return {"callID": call_id, "tool": tool, "input": self._input()}

    def result(self, call: dict[str, Any]) -> dict[str, Any]:
        """A tool's message: what became of the call."""
        name = self._uuid()
        start = self._now()
        state = {
            "status": "completed",
            "input": call["input"],
            "output": self._text(20, 400),
            "title": call["tool"],
            "metadata": {"exit": 0, "truncated": False},
            "time": {"start": start, "end": start + self._random.randrange(2_000)},
        }
        names = {"callID": call["callID"], "tool": call["tool"]}
        parts = [self._part(name, "tool", **names, state=state)]
        return {"role": "tool", "content": parts, "id": name, "timestamp": self._now()}


def session(count: int, seed: int = 7) -> bytes:
    """So many messages as a JSON list: question, answer with a call, result, answer, and again."""
    author = _Author(seed)
    messages: list[dict[str, Any]] = []
    while len(messages) < count:
        call = author.call()
        messages += [author.question(), author.answer(call)]
        messages += [author.result(call), author.answer(None)]
    text = json.dumps(messages[:count], separators=(",", ":"), ensure_ascii=False)
    return text.encode()
