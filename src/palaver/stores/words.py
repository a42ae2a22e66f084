"""Words, for full-text search: what is indexed and how a query is read, the same in every store.

Chinese, Japanese and Korean are written without spaces, so there every character is a word and a
longer query is a phrase of them. Everything else goes by words as they stand.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from palaver.messages import ReasoningPart, TextPart, ToolCallPart, ToolPart

if TYPE_CHECKING:
    from palaver.messages import Message

__all__ = ["has", "indexed_text", "phrases", "snippet", "spaced"]

_CJK = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff\u3130-\u318f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
_ONE = re.compile(f"([{_CJK}])")
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
_QUERY = re.compile(r'"([^"]*)"|(\S+)')
_AROUND = 60


def indexed_text(message: Message) -> str:
    """Everything of a message that a search should find it by."""
    if isinstance(message.content, str):
        return message.content
    found: list[str] = []
    for part in message.content:
        if isinstance(part, TextPart | ReasoningPart):
            found.append(part.text)
        elif isinstance(part, ToolCallPart):
            found += (part.tool, part.raw)
        elif isinstance(part, ToolPart):
            found += (
                part.tool,
                getattr(part.state, "output", ""),
                getattr(part.state, "error", ""),
            )
    return "\n".join(found)


def spaced(text: str) -> str:
    """The text with every character that is a word by itself set apart.

    >>> spaced("喝tea吗")
    ' 喝 tea 吗 '
    """
    return _ONE.sub(r" \1 ", text)


def phrases(query: str) -> list[list[str]]:
    """What a query asks for: phrases of words, all of which must be there.

    >>> phrases('tea "hot water" 喝茶')
    [['tea'], ['hot', 'water'], ['喝', '茶']]
    """
    found = (_WORD.findall(quoted or plain) for quoted, plain in _QUERY.findall(query))
    return [words for words in found if words]


def has(text: str, wanted: list[list[str]]) -> bool:
    """Tell whether a text has all of some phrases, without regard to case.

    >>> has("We had tea at five.", phrases("TEA"))
    True
    """
    folded = text.casefold()
    if not all(word.casefold() in folded for phrase in wanted for word in phrase):
        return False
    words = _joined(_WORD.findall(text))
    return all(_joined(phrase) in words for phrase in wanted)


def _joined(words: list[str]) -> str:
    return "\0".join(["", *words, ""]).casefold()


def snippet(text: str, query: str) -> str:
    """A line of the text around the first word of a query.

    >>> snippet("We had tea at five.", "TEA")
    'We had tea at five.'
    """
    line = " ".join(text.split())
    words = phrases(query)
    place = line.casefold().find(words[0][0].casefold()) if words else -1
    start = max(place - _AROUND, 0)
    end = max(place, 0) + _AROUND * 2
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"
