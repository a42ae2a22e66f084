"""Text to a number of tokens: exact where a vocabulary is installed, else by letters.

The exact counters come with the `tokens` extra and are loaded when they are first used. The
estimate needs nothing: characters / 2.5, and one for each character of Chinese, Japanese or Korean.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, TypeAlias

from palaver.errors import ValidationError

__all__ = ["ENCODINGS", "Counter", "counter", "estimate", "is_exact", "sure"]

Counter: TypeAlias = Callable[[str], int]
"""Anything that tells how many tokens a text has."""

ENCODINGS: Final = ("o200k", "cl100k")
_log: Final = logging.getLogger("palaver.tokens")
_PER_TOKEN: Final = 2.5
_PIECE: Final = 32_768
"""Characters that are counted at once: a long text takes a vocabulary more than its share of time
and memory, and no other thread runs meanwhile."""
_WORD: Final = re.compile(r"\S( )[A-Za-z]")
_WIDE: Final = re.compile(
    "[\u1100-\u11ff\u2e80-\u303f\u3040-\u30ff\u3100-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffff]"
)


def estimate(text: str) -> int:
    """How many tokens a text has, about.

    >>> estimate("a" * 1_000), estimate("字" * 1_000), estimate("")
    (400, 1000, 0)
    """
    wide = 0 if text.isascii() else sum(len(_WIDE.findall(piece)) for piece in _pieces(text))
    return wide + math.ceil((len(text) - wide) / _PER_TOKEN)


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces that can be counted one by one.

    They end before a word, where tokens end too, if there is one in their last tenth. A text
    without such places may count for a token or so more with each piece.
    """
    start = 0
    while len(text) - start > _PIECE:
        stop = start + _PIECE
        found = _WORD.search(text, stop - _PIECE // 10, stop)
        stop = stop if found is None else found.start(1)
        yield text[start:stop]
        start = stop
    yield text[start:] if start else text


def counter(name: str | None = None) -> Counter:
    """The counter of this name: `o200k`, `cl100k`, `estimate`; the best there is without one.

    >>> counter("estimate") is estimate
    True
    """
    if name == "estimate":
        return estimate
    if name is None:
        return _exact(ENCODINGS[0]) if is_exact() else estimate
    if name not in ENCODINGS:
        known = ", ".join((*ENCODINGS, "estimate"))
        raise ValidationError(f"no such counter: {name!r}; there are {known}", rule="CV-07")
    if not is_exact():
        detail = f"{name} needs a vocabulary: pip install 'palaver[tokens]'"
        raise ValidationError(detail, rule="CV-07")
    return _exact(name)


def sure(count: Counter) -> Counter:
    """A counter that always answers: where the one given fails, the estimate takes over.

    >>> sure(lambda text: 1 // 0)("ten letters")
    5
    """
    if count is estimate:
        return estimate

    def counted(text: str) -> int:
        try:
            return count(text)
        except Exception:  # noqa: BLE001 - whatever it is, a step must not fail for it
            _log.warning("counting tokens failed: it is estimated", exc_info=True)
            return estimate(text)

    return counted


@cache
def is_exact() -> bool:
    """Tell whether an exact counter can be had."""
    import importlib.util  # noqa: PLC0415 - asked once, and rarely

    return importlib.util.find_spec("splintr") is not None


@cache
def _exact(name: str) -> Counter:
    return _Exact(name).count


class _Exact:
    """A vocabulary that is loaded when something is first counted; loading takes a while."""

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
