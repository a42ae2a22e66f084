"""Full-text search: what is indexed and how a query is parsed, the same in every store.

Chinese, Japanese and Korean are written without spaces, so there every character is a word and a
longer query is a phrase of them. All other text is split into words without regard to case, accents
and width (`fold`): "Café", "CAFE" and "cafe" followed by a combining accent are one word. Words are
found here and not by a database; databases get them as plain ASCII (`token`).

Everything here takes time and memory in proportion to the text, and the text has a limit: of a
message the first `MAX_TEXT` characters are searched, of a word the first `MAX_WORD` count, and a
query has no more than `MAX_QUERY_WORDS` different words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from unicodedata import normalize

from palaver.errors import ValidationError
from palaver.messages import ReasoningPart, TextPart, ToolCallPart, ToolPart
from palaver.stores.records import Hit, decode_body

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.messages import Message

__all__ = [
    "MAX_QUERY_WORDS",
    "MAX_TEXT",
    "MAX_WORD",
    "OUT_OF_MEMORY",
    "SEARCH_IS_OFF",
    "TRUNCATED",
    "UNREADABLE",
    "collect_hits",
    "fold",
    "indexed_text",
    "is_truncated",
    "matches",
    "parse_query",
    "snippet",
    "split_words",
    "token",
]

MAX_TEXT: Final = 100_000
"""Characters of a message that are searched."""

MAX_WORD: Final = 200
"""Characters of a word that are compared: longer words that begin alike are found alike."""

MAX_QUERY_WORDS: Final = 256
"""Words of a query, without repeated ones; every character counts where there are no spaces."""

TRUNCATED: Final = f"only its first {MAX_TEXT:,} characters are searched"
"""The note on a message with more text than that."""

UNREADABLE: Final = "it is not searched: it can't be read"
"""The note on a message that is damaged."""

OUT_OF_MEMORY: Final = "it is not searched: there was not enough memory to read it"
"""The note on a message that was too large to be indexed."""

SEARCH_IS_OFF: Final = (
    "search is off: the store is encrypted, and an index of its words would reveal them"
)
"""What a search in an encrypted store is refused with."""

_MAX_QUERY: Final = 1_000_000

_CJK = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff\u3130-\u318f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
# Signs that belong to the letter before them: vowels and the like in the scripts of India and
# Southeast Asia. `re` takes them for no part of a word.
_SIGNS = (
    "\u0900-\u0963\u0971-\u0df3\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece"
    "\u0f71-\u0f84\u0f90-\u0fbc\u102b-\u103e\u1056-\u109d\u17b4-\u17d3\u1a55-\u1a7f\u200d"
)
# Accents and points, which a search does not look at: Latin, Greek, Cyrillic, Hebrew, Arabic.
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640"
    "\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)
# Possessive: a match keeps no way back, so a word of any length takes no memory while it is found.
_WORD = re.compile(rf"[{_CJK}]|(?:[^\W{_CJK}]++|[{_SIGNS}]++)++")
# A text is normalised in pieces, because sorting the accents of one letter takes the square of
# their number. A piece ends before a character that never joins the one before it, if one is near.
_STARTERS = (
    "\x00-\x7f\u1100-\u115f\u3000-\u3020\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3"
    "\uff00-\uff60"
)
_PIECE = re.compile(rf"(?s:.{{1,1000}})[^{_STARTERS}]{{0,1000}}+")
_QUERY = re.compile(r'"([^"]*)"|(\S+)')
_SPOKEN = re.compile(r"\S+")
_AROUND: Final = 60


def indexed_text(message: Message) -> str:
    """Return what a message is found by: its text, calls and results, up to `MAX_TEXT` characters.

    >>> from palaver.messages import Message
    >>> len(indexed_text(Message("user", "tea " * 100_000)))
    100000
    """
    return _first_characters(message, MAX_TEXT)


def is_truncated(message: Message) -> bool:
    """Tell whether a message has more text than is searched."""
    return len(_first_characters(message, MAX_TEXT + 1)) > MAX_TEXT


def _first_characters(message: Message, length: int) -> str:
    """Return the first characters of a message's texts, one text on a line."""
    found: list[str] = []
    for text in _texts(message):
        found.append(text[:length])
        length -= len(text) + 1
        if length <= 0:
            break
    return "\n".join(found)


def _texts(message: Message) -> Iterator[str]:
    if isinstance(message.content, str):
        yield message.content
        return
    for part in message.content:
        if isinstance(part, TextPart | ReasoningPart):
            yield part.text
        elif isinstance(part, ToolCallPart):
            yield part.tool
            yield part.raw
        elif isinstance(part, ToolPart):
            yield part.tool
            yield getattr(part.state, "output", "")
            yield getattr(part.state, "error", "")


def fold(text: str) -> str:
    """Return the text as it is compared: without case, accents and width.

    >>> fold("CAFÉ"), fold("Straße")
    ('cafe', 'strasse')
    """
    if text.isascii():
        return text.lower()
    return "".join(map(_fold, _PIECE.findall(text)))


def _fold(text: str) -> str:
    apart = normalize("NFKD", normalize("NFKD", text).casefold())
    return normalize("NFC", _ACCENTS.sub("", apart))


def split_words(text: str) -> list[str]:
    """Split a text into words as they are compared; a long word is cut to `MAX_WORD` characters.

    >>> split_words("喝Tea吗?")
    ['喝', 'tea', '吗']
    """
    return _words(fold(text))


def _words(folded: str) -> list[str]:
    return [word[:MAX_WORD] for word in _WORD.findall(folded, 0, MAX_TEXT)]


def token(word: str) -> str:
    """Return a word as an index gets it: ASCII that every database takes for one word.

    >>> token("tea"), token("茶")
    ('tea', 'ue88cb6')
    """
    return word if word.isascii() and "_" not in word else f"u{word.encode().hex()}"


def parse_query(query: str) -> list[list[str]]:
    """Parse a query into different phrases of words, all of which a message must have.

    A query of more than `MAX_QUERY_WORDS` words raises `ValidationError`.

    >>> parse_query('Tea "hot water" 喝茶 TEA')
    [['tea'], ['hot', 'water'], ['喝', '茶']]
    """
    if len(query) > _MAX_QUERY:
        detail = f"has {len(query):,} characters; a search takes at most {_MAX_QUERY:,}"
        raise ValidationError(detail, path="$.words", rule="search.length")
    found = list(dict.fromkeys(_phrases(query)))
    count = sum(map(len, found))
    if count > MAX_QUERY_WORDS:
        detail = f"has {count:,} words; a search takes at most {MAX_QUERY_WORDS}: leave some out"
        raise ValidationError(detail, path="$.words", rule="search.words")
    return [list(words) for words in found]


def _phrases(query: str) -> Iterator[tuple[str, ...]]:
    for match in _QUERY.finditer(query):
        words = split_words(match[1] or match[2] or "")
        if words:
            yield tuple(words)


def matches(text: str, wanted: list[list[str]]) -> bool:
    """Tell whether a text has all of some phrases.

    >>> matches("We had tea at five.", parse_query("TEA"))
    True
    """
    folded = fold(text)
    if not all(word in folded for phrase in wanted for word in phrase):
        return False
    words = _joined(_words(folded))
    return all(_joined(phrase) in words for phrase in wanted)


def _joined(words: list[str]) -> str:
    return "\0".join(["", *words, ""])


def collect_hits(
    candidates: Iterable[tuple[str, int, str]], query: str, wanted: list[list[str]], limit: int
) -> list[Hit]:
    """Return the first messages that have all phrases of a query, at most `limit`.

    A candidate is a conversation, a position and a message's body; no more are read than needed.
    """
    hits: list[Hit] = []
    for conversation, position, body in candidates:
        message = decode_body(body)
        text = indexed_text(message)
        if matches(text, wanted):
            hits.append(Hit(conversation, position, message, snippet(text, query)))
            if len(hits) >= limit:
                break
    return hits


def snippet(text: str, query: str) -> str:
    """Return a line of the text around the first word of a query.

    >>> snippet("We had tea at five.", "TEA")
    'We had tea at five.'
    """
    line = " ".join(text.split())
    wanted = next(_phrases(query), None)
    found = -1 if wanted is None else _find(line, wanted[0])
    start = max(found - _AROUND, 0)
    end = max(found, 0) + _AROUND * 2
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _find(line: str, word: str) -> int:
    """Return the index of a word in a line; -1 where only the folded line has it."""
    found = line.lower().find(word)
    if found >= 0 and len(line.lower()) == len(line):
        return found
    return next((match.start() for match in _SPOKEN.finditer(line) if word in fold(match[0])), -1)
