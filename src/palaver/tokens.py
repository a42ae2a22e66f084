"""Token counters: for texts, for messages and parts, and running totals over a log.

The exact counters come with the `tokens` extra and are loaded when they are first used. The
estimate needs nothing: it weighs the kinds of characters, as measured against an exact counter.
"""

from __future__ import annotations

import base64
import logging
import re
import threading
from array import array
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from palaver.errors import ValidationError
from palaver.messages.limits import MAX_INT
from palaver.messages.part_base import FilePart
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, ToolPart
from palaver.messages.tool_state import ToolCompleted, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.history import View
    from palaver.messages import Message
    from palaver.messages.parts import Part

__all__ = [
    "ENCODINGS",
    "RunningTotal",
    "TokenCounter",
    "Weights",
    "counter",
    "estimate",
    "is_exact",
    "weigh",
    "weigh_schema",
    "with_fallback",
]


TokenCounter: TypeAlias = Callable[[str], int]
"""A function that returns the number of tokens in a text."""

ENCODINGS: Final = ("o200k", "cl100k")
_log: Final = logging.getLogger("palaver.tokens")
_PIECE: Final = 32_768
"""Characters that are counted at once. A vocabulary takes more than proportional time and memory
for a long text, and no other thread runs meanwhile."""
_WORD: Final = re.compile(r"\S( )[A-Za-z]")
_CONTINUATION: Final = bytes(range(0x80, 0xC0))
_ASCII: Final = bytes(range(0xC2))
"""What is deleted so that the first byte of each character beyond ASCII is left."""
_NO_WORD: Final = re.compile(rb"[a-z]{16,}|[A-Z]{16,}")


def _run_bits() -> bytes:
    """Give each kind of character its bits; a run of capitals or of digits counts twice."""
    table = bytearray([0b10] * 256)  # signs
    kinds = {
        0b1: b"abcdefghijklmnopqrstuvwxyz" + bytes(range(0xC3, 0xCC)) + bytes(range(0xCE, 0xE2)),
        0b100: b"\r\n",
        0b11000: b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        0b1100000: b"0123456789",
        0: b" \t\v\f" + bytes(range(0xE3, 0x100)),  # no words: each character counts by itself
    }
    for bits, characters in kinds.items():
        for character in characters:
            table[character] = bits
    return bytes(table)


def _script_weights() -> bytes:
    """Give each first byte of UTF-8 what its character costs beyond 10, in hundredths."""
    table = bytearray(256)
    weights = {
        70: (*range(0xC2, 0xCE), 0xE2, 0xE3),  # accents, signs, arrows, boxes; kana
        20: range(0xCE, 0xD0),  # Greek
        8: range(0xD0, 0xE0),  # Cyrillic, Hebrew, Arabic
        25: range(0xE0, 0xE2),  # the scripts of India and of South East Asia
        90: range(0xE4, 0xEA),  # Chinese characters: one each
        65: range(0xEA, 0xEE),  # Hangul
        30: range(0xEE, 0xF0),  # full-width signs, variation selectors
        170: range(0xF0, 0x100),  # emoji
    }
    for weight, characters in weights.items():
        for character in characters:
            table[character] = weight
    return bytes(table)


_RUN_BITS: Final = _run_bits()
_DIGIT: Final = _RUN_BITS[ord("0") : ord("0") + 1]
_START: Final = [50 * bits.bit_count() for bits in _RUN_BITS]
"""What the beginning of a run costs, by the byte it begins with."""
_SCRIPT_WEIGHTS: Final = _script_weights()


def estimate(text: str) -> int:
    """Estimate the number of tokens in a text, from the kinds of its characters.

    The weights are measured against the encoding o200k: half a token for each run of small letters,
    signs or line breaks, one for each run of capitals or digits, a tenth for each character, 0.3
    for a digit, and more for characters beyond ASCII, up to one for a Chinese character and 1.8 for
    an emoji. A run of 16 letters or more is no word: there it is characters / 2.5.

    More text never has fewer tokens, and a text that is cut between words has no more tokens than
    its pieces together.

    >>> estimate("Is there any tea left?"), estimate("a" * 1_000), estimate("字" * 1_000)
    (7, 400, 1000)
    """
    data = text.encode(errors="surrogatepass")
    kinds = data.translate(_RUN_BITS, _CONTINUATION)
    bits = int.from_bytes(kinds, "little")
    same = bits & (bits << 8)  # what a character has in common with the one before it
    total = 50 * (bits ^ same).bit_count() + 10 * len(text) + 20 * kinds.count(_DIGIT)
    if len(data) != len(text):
        total += sum(data.translate(_SCRIPT_WEIGHTS, _ASCII))
    same &= same << 16
    same &= same << 32
    if same & (same << 64):  # there is a run of 16 of something
        total += sum(30 * len(run) - _START[run[0]] for run in _NO_WORD.findall(data))
    return -(-total // 100)


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that can be counted one by one.

    A piece ends before a word, where tokens end too, if a word starts in its last tenth. Otherwise
    the count may be about one token too high for each piece.
    """
    start = 0
    while len(text) - start > _PIECE:
        stop = start + _PIECE
        found = _WORD.search(text, stop - _PIECE // 10, stop)
        stop = stop if found is None else found.start(1)
        yield text[start:stop]
        start = stop
    yield text[start:] if start else text


def counter(name: str | None = None) -> TokenCounter:
    """Return the counter `o200k`, `cl100k` or `estimate`; without a name, the best available.

    >>> counter("estimate") is estimate
    True
    """
    if name == "estimate":
        return estimate
    if name is None:
        return _exact(ENCODINGS[0]) if is_exact() else estimate
    if name not in ENCODINGS:
        known = ", ".join((*ENCODINGS, "estimate"))
        raise ValidationError(f"no such counter: {name!r}; there are {known}", rule="token-counter")
    if not is_exact():
        detail = f"{name} needs a vocabulary: pip install 'palaver[tokens]'"
        raise ValidationError(detail, rule="token-counter")
    return _exact(name)


def with_fallback(count: TokenCounter) -> TokenCounter:
    """Return a counter that never fails.

    The estimate is used, with a warning in the log, where `count` raises an error or returns
    anything but a whole number from 0 on.

    >>> with_fallback(lambda text: 1 // 0)("ten letters")
    3
    """
    if count is estimate:
        return estimate

    def counted(text: str) -> int:
        try:
            found: object = count(text)
            if type(found) is int and 0 <= found <= MAX_INT:
                return found
            _log.warning("a token counter returned %r; using the estimate", found)
        except Exception:  # noqa: BLE001 - a step must not fail because of its counter
            _log.warning("counting tokens failed; using the estimate", exc_info=True)
        return estimate(text)

    return counted


@cache
def is_exact() -> bool:
    """Return whether an exact counter is installed."""
    import importlib.util  # noqa: PLC0415 - needed once, and rarely

    return importlib.util.find_spec("splintr") is not None


@cache
def _exact(name: str) -> TokenCounter:
    return _Exact(name).count


class _Exact:
    """A vocabulary that is loaded when it is first used, which takes a while."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._vocabulary: Any = None

    def count(self, text: str) -> int:
        vocabulary = self._vocabulary
        if vocabulary is None:
            vocabulary = self._load()
        return sum(len(vocabulary.encode_ordinary(piece)) for piece in _pieces(text))

    def _load(self) -> Any:  # noqa: ANN401 - the vocabulary's own type, loaded just now
        with self._lock:
            if self._vocabulary is None:
                from splintr import Tokenizer  # noqa: PLC0415 - takes a while

                self._vocabulary = Tokenizer.from_pretrained(f"{self._name}_base")
            return self._vocabulary


class Weights(Struct, frozen=True):
    """The number of tokens to count for what is not text."""

    message: int = 4
    call: int = 8
    image: int = 800
    file: int = 1_500
    cleared: int = 8


DEFAULT_WEIGHTS: Final = Weights()


def weigh(message: Message, count: TokenCounter, weights: Weights = DEFAULT_WEIGHTS) -> int:
    """Return the number of tokens that a message adds to a request.

    >>> from palaver.messages import user
    >>> from palaver.tokens import estimate
    >>> weigh(user("ten letters"), estimate)
    7
    """
    if isinstance(message.content, str):
        return weights.message + count(message.content)
    return weights.message + _sum(message.sendable_parts, count, weights)


def weigh_schema(schema: Any, count: TokenCounter) -> int:  # noqa: ANN401 - any JSON
    """Return the number of tokens of a tool's schema."""
    return count(msgspec.json.encode(schema).decode())


def _sum(parts: Iterable[Part], count: TokenCounter, weights: Weights) -> int:
    total = 0
    for part in parts:
        if isinstance(part, TextPart | ReasoningPart):
            total += count(part.text)
        elif isinstance(part, ToolCallPart):
            total += weights.call + count(part.tool) + count(part.raw)
        elif isinstance(part, ToolPart):
            total += weights.call + _result(part, count, weights)
        elif isinstance(part, FilePart):
            total += _file(part, count, weights)
    return total


def _result(part: ToolPart, count: TokenCounter, weights: Weights) -> int:
    state = part.state
    if isinstance(state, ToolError):
        return count(state.error)
    if not isinstance(state, ToolCompleted):  # pragma: no cover - a message has no open calls
        return 0
    if state.time.compacted is not None:
        return weights.cleared
    files = state.attachments or ()
    return count(state.output) + sum(_file(file, count, weights) for file in files)


def _file(part: FilePart, count: TokenCounter, weights: Weights) -> int:
    """Weigh a file; one of text that is stored by value is sent, and counted, as its text."""
    if part.mime.startswith("image/"):
        return weights.image
    head, comma, data = part.url.partition(",")
    if part.mime.startswith("text/") and comma and head.startswith("data:"):
        try:
            text = base64.b64decode(data) if head.endswith(";base64") else unquote_to_bytes(data)
            return count(text.decode())
        except ValueError:  # it is no base64, or no UTF-8
            return weights.file
    return weights.file


_UNKNOWN = -1
_ONE_UNKNOWN: Final = array("q", (_UNKNOWN,))
_GROUP: Final = 64
"""How many messages are read at once, from the newest on."""


class RunningTotal:
    """The token counts of one history's log.

    >>> from palaver.history import History
    >>> from palaver.messages import user
    >>> from palaver.tokens import RunningTotal, estimate
    >>> history, tally = History([user("one"), user("two")]), RunningTotal(estimate)
    >>> tally.total(history.view), tally.first_fitting(history.view, 6)
    (10, 1)
    """

    def __init__(self, count: TokenCounter, weights: Weights = DEFAULT_WEIGHTS) -> None:
        """Use this counter and these weights."""
        self._count = count
        self._weights = weights
        self._lock = threading.Lock()
        self._counts = array("q")
        self._sums = array("q", (0,))

    def total(self, view: View) -> int:
        """Return the number of tokens of a view."""
        with self._lock:
            total = 0
            for start, stop in view.ranges():
                self._sum_to(view, stop)
                total += self._sums[stop] - self._sums[start]
            return total

    def each(self, view: View) -> list[int]:
        """Return the number of tokens of each message of a view."""
        with self._lock:
            found: list[int] = []
            for start, stop in view.ranges():
                self._fill(view, start, stop)
                found.extend(self._counts[start:stop])
            return found

    def first_fitting(self, view: View, budget: int) -> int:
        """Return the lowest index from which all messages of a view fit in a budget.

        Only the messages that fit, and one more, are counted; they are read in groups.
        """
        with self._lock:
            index = len(view)
            for start, stop in reversed(list(view.ranges())):
                position = first = stop
                group: list[Message] = []
                self._extend(stop)
                counts = self._counts
                while position > start:
                    position -= 1
                    tokens = counts[position]
                    if tokens == _UNKNOWN:
                        if position < first:
                            first = max(start, position + 1 - _GROUP)
                            group = view.log.between(first, position + 1)
                        message = group[position - first]
                        tokens = counts[position] = weigh(message, self._count, self._weights)
                    budget -= tokens
                    if budget < 0:
                        return index
                    index -= 1
            return index

    def weigh(self, message: Message) -> int:
        """Return the number of tokens of a message that is not in the log yet."""
        return weigh(message, self._count, self._weights)

    def forget(self) -> None:
        """Drop all counts, because a message was erased."""
        with self._lock:
            self._counts = array("q")
            self._sums = array("q", (0,))

    def _extend(self, stop: int) -> None:
        if len(self._counts) < stop:
            self._counts.extend(_ONE_UNKNOWN * (stop - len(self._counts)))

    def _fill(self, view: View, start: int, stop: int) -> None:
        counts = self._counts
        self._extend(stop)
        while start < stop and counts[start] != _UNKNOWN:
            start += 1
        for position, message in enumerate(view.log.between(start, stop), start):
            if counts[position] == _UNKNOWN:
                counts[position] = weigh(message, self._count, self._weights)

    def _sum_to(self, view: View, stop: int) -> None:
        """Extend the running sums to a position."""
        known = len(self._sums) - 1
        if known < stop:
            self._fill(view, known, stop)
            more = accumulate(self._counts[known:stop], initial=self._sums[known])
            self._sums.extend(list(more)[1:])
