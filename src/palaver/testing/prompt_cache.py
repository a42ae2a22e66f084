"""A judge of prompt caching: what a provider would read from its cache and write to it.

It knows the rules that the providers publish, and nothing of who wrote the request. It reads the
bytes: another order of keys is another prefix. Where a rule leaves room, the judge takes the poorer
answer. The rules, by the guides they are from (as of autumn 2026):

- Anthropic, "Prompt caching" and "Tool use with prompt caching": the prefix runs from tools over
  system text to messages. Entries are written at breakpoints only, at most four of them, those that
  live for an hour before those that live for five minutes. From each breakpoint the cache looks
  back over 20 blocks, the marked one among them. A use renews an entry. The minimum depends on the
  model; `tool_choice`, `thinking` and whether there are images belong to the messages' part.
- OpenAI, "Prompt caching": automatic from 1,024 tokens on. Before GPT-5.6 in steps of 128 tokens,
  for five minutes after the last use, or 24 hours on request. From GPT-5.6 on it is exactly at
  breakpoints, one of which OpenAI sets at the newest message of a user or a tool, for 30 minutes.
  Requests are routed by their beginning and `prompt_cache_key`: another key is another machine.
- Google, "Context caching": implicit from Gemini 2.5 on, above a minimum that depends on the model.
  How long it lives is not published; the judge says five minutes.

A token is four bytes of JSON here, and a file 1,500 tokens: rough, and the same for everyone.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from palaver.messages.limits import is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.testing.providers import FormatName

__all__ = ["CacheUsage", "PromptCache", "anthropic_breakpoints", "bills_cache_writes"]

_BYTES_PER_TOKEN: Final = 4
_FILE_TOKENS: Final = 1_500
_LONGEST_INLINE: Final = 8_000
_FILE_FIELDS: Final = frozenset(("data", "url", "file_data", "image_url"))

_LIVES: Final = {"5m": 300.0, "1h": 3_600.0}
_MOST_BREAKPOINTS: Final = 4
_LOOKBACK: Final = 20
_NO_BREAKPOINT: Final = frozenset(("thinking", "redacted_thinking"))
_ANTHROPIC_MINIMA: Final = (
    (re.compile(r"(opus|fable|mythos)-5"), 512),
    (re.compile(r"opus-4[-.]7"), 2_048),
    (re.compile(r"(opus-4[-.][56]|haiku-4[-.]5)"), 4_096),
    (re.compile(r"(3-haiku|3-5-haiku|haiku-3)"), 2_048),
)
_USUAL_MINIMUM: Final = 1_024

_STEP: Final = 128
_OPENAI_MINIMUM: Final = 1_024
_OPENAI_LIFE: Final = 300.0
_EXTENDED_LIFE: Final = 86_400.0
_BREAKPOINT_LIFE: Final = 1_800.0
_BREAKPOINTS_SEEN: Final = 80
_BREAKPOINTS_FROM: Final = (5, 6)
_GPT: Final = re.compile(r"gpt-(\d+)(?:\.(\d+))?")

_GEMINI: Final = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_GEMINI_MINIMA: Final = ((3.0, 4_096), (2.5, 2_048))
"""By the version from which on they hold; before the last there is no implicit cache."""
_GEMINI_LIFE: Final = 300.0


class CacheUsage(Struct, frozen=True):
    """The tokens of one request: read from the cache, written to it, and neither.

    `written_1h` is the part of `written` that lives for an hour. What a provider stores without
    billing it, as OpenAI did before GPT-5.6, is written as well.
    """

    read: int
    written: int
    uncached: int
    written_1h: int = 0

    @property
    def total(self) -> int:
        """All tokens of the request."""
        return self.read + self.written + self.uncached

    @property
    def share(self) -> float:
        """The part of the request that was read from the cache, from 0 to 1."""
        return self.read / self.total if self.total else 0.0


class _Entry(Struct):
    life: float
    used: float

    def is_live(self, at: float) -> bool:
        return at < self.used + self.life


class _Block(NamedTuple):
    """A piece of the prompt; `life` is that of the breakpoint it ends with, or 0."""

    data: bytes
    life: float = 0.0
    may_end: bool = False
    """Whether a breakpoint that the provider sets itself may stand after it."""


class _Position(NamedTuple):
    """A place where a prefix may end: what the prefix is, and its tokens."""

    key: bytes
    tokens: int


class _Plan(NamedTuple):
    """What a request looks for and leaves behind.

    Of each chain of positions the first live one is a hit. `writes` are positions with the lives of
    their entries. `renews_all` says that everything live on a chain counts as used.
    """

    positions: Sequence[_Position]
    chains: Sequence[Sequence[int]]
    writes: Sequence[tuple[int, float]]
    minimum: int
    total: int
    renews_all: bool = True


class PromptCache:
    """The prompt cache of one provider, for one account, by the provider's published rules.

    Requests come in the order of time; `at` is in seconds, from any beginning. A request to Gemini
    does not name its model, so it is given here or with the request.

    >>> cache = PromptCache("anthropic", model="claude-sonnet-4-5")
    >>> text = {"type": "text", "text": "a" * 8_000, "cache_control": {"type": "ephemeral"}}
    >>> body = {"system": [text], "messages": [{"role": "user", "content": "Hello"}]}
    >>> cache.request(body, at=0)
    CacheUsage(read=0, written=2008, uncached=9, written_1h=0)
    >>> cache.request(body, at=60)
    CacheUsage(read=2008, written=0, uncached=9, written_1h=0)
    """

    def __init__(self, form: FormatName, *, model: str = "") -> None:
        """Take the format of the requests, and the model of those that don't name one."""
        if form not in _PLANS:
            raise ValueError(f"unknown format {form!r}; known are {', '.join(_PLANS)}")
        self.format: FormatName = form
        self.model = model
        self._entries: dict[bytes, _Entry] = {}

    def request(
        self, body: Mapping[str, Any], *, at: float, model: str | None = None
    ) -> CacheUsage:
        """Return what the provider would report for a request at this time, and remember it.

        Raises `ValueError` for breakpoints that the provider refuses.
        """
        plan = _PLANS[self.format](body, model or str(body.get("model") or self.model))
        entries, positions = self._entries, plan.positions
        hits = set[int]()
        for chain in plan.chains:
            live = [index for index in chain if self._is_live(positions[index].key, at)]
            hits.update(live if plan.renews_all else live[:1])
        best = max(hits, default=-1)
        for index in hits:
            entries[positions[index].key].used = at
        read = positions[best].tokens if hits else 0
        ends = {read: 0.0}
        for index, life in plan.writes:
            position = positions[index]
            if index > best and position.tokens >= plan.minimum:
                entries[position.key] = _Entry(life, at)
                ends[position.tokens] = life
        end = max(ends)
        hour = max((tokens for tokens, life in ends.items() if life == _LIVES["1h"]), default=read)
        return CacheUsage(read, end - read, plan.total - end, hour - read)

    def _is_live(self, key: bytes, at: float) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.is_live(at)


# ── the rules of each provider ───────────────────────────────────────────────────────────────────


def _plan_anthropic(body: Mapping[str, Any], model: str) -> _Plan:
    problems = anthropic_breakpoints(body)
    if problems:
        raise ValueError(f"Anthropic would refuse the request: {problems[0]}")
    tools = list(_blocks(body.get("tools"), b"tool"))
    system = list(_blocks(body.get("system"), b"system"))
    said = [
        block
        for message in _elements(body.get("messages"))
        for block in _blocks(message.get("content"), str(message.get("role")).encode())
    ]
    automatic = body.get("cache_control")
    if is_object(automatic):
        _mark_last((said, system, tools), _life(automatic))
    minimum = next((n for found, n in _ANTHROPIC_MINIMA if found.search(model)), _USUAL_MINIMUM)
    fields = [body.get("tool_choice"), body.get("thinking"), _has_images(body)]
    parts = ((b"", tools), (b"", system), (_encode(fields), said))
    positions, total = _positions(model.encode(), parts)
    marked = [
        (index, block.life)
        for index, block in enumerate([*tools, *system, *said])
        if block.life > 0
    ]
    chains = [range(index, max(index - _LOOKBACK, -1), -1) for index, _ in marked]
    return _Plan(positions, chains, marked, minimum, total, renews_all=False)


def anthropic_breakpoints(body: Mapping[str, Any]) -> list[str]:
    """Return what Anthropic would refuse of the breakpoints in a request.

    >>> mark = {"cache_control": {"type": "ephemeral"}}
    >>> blocks = [{"type": "text", "text": text, **mark} for text in "abcde"]
    >>> anthropic_breakpoints({"messages": [{"role": "user", "content": blocks}]})
    ['5 blocks with cache_control; at most 4 are allowed']
    """
    problems, lives = list[str](), list[float]()
    contents = [body.get("tools"), body.get("system")]
    contents += [message.get("content") for message in _elements(body.get("messages"))]
    last: Mapping[str, Any] = {}
    for block in (block for content in contents for block in _elements(content)):
        last = block
        mark = block.get("cache_control")
        if not is_object(mark):
            continue
        lives.append(_life(mark))
        if block.get("type") in _NO_BREAKPOINT:
            problems.append(f"cache_control on a block of type {block['type']}")
        elif block.get("type") == "text" and not block.get("text"):
            problems.append("cache_control on an empty text")
    automatic = body.get("cache_control")
    if is_object(automatic):
        if not is_object(last.get("cache_control")):
            lives.append(_life(automatic))
        elif lives[-1] != _life(automatic):
            problems.append("cache_control of the request and of its last block have two lives")
    if len(lives) > _MOST_BREAKPOINTS:
        problems.append(f"{len(lives)} blocks with cache_control; at most 4 are allowed")
    if lives != sorted(lives, reverse=True):
        problems.append("a breakpoint for an hour comes after one for five minutes")
    return problems


def _plan_openai(body: Mapping[str, Any], model: str) -> _Plan:
    given = [body.get("tools"), body.get("response_format"), body.get("text")]
    blocks = [_Block(_encode(value)) for value in given if value is not None]
    blocks += _blocks(body.get("instructions"), b"system")
    said = body.get("messages") if "messages" in body else body.get("input")
    for element in (
        [{"role": "user", "content": said}] if isinstance(said, str) else _elements(said)
    ):
        blocks.append(_openai_block(element))
    salt = _encode([model, body.get("prompt_cache_key")])
    if not bills_cache_writes(model):
        return _plan_steps(body, salt, b"".join(block.data for block in blocks))
    positions, total = _positions(salt, ((b"", blocks),))
    options = body.get("prompt_cache_options")
    explicit = is_object(options) and options.get("mode") == "explicit"
    marked = [index for index, block in enumerate(blocks) if block.life]
    own = [] if explicit else [index for index, block in enumerate(blocks) if block.may_end]
    writes = [*marked[-_MOST_BREAKPOINTS + (not explicit) :], *own[-1:]]
    seen = sorted({*marked, *own}, reverse=True)[:_BREAKPOINTS_SEEN]
    lives = [(index, _BREAKPOINT_LIFE) for index in sorted(set(writes))]
    return _Plan(positions, [seen], lives, _OPENAI_MINIMUM, total)


def _plan_steps(body: Mapping[str, Any], salt: bytes, prompt: bytes) -> _Plan:
    """Plan for the models of OpenAI that cache in steps of 128 tokens."""
    life = _EXTENDED_LIFE if body.get("prompt_cache_retention") == "24h" else _OPENAI_LIFE
    size = _STEP * _BYTES_PER_TOKEN
    pieces = [_Block(prompt[end - size : end]) for end in range(size, len(prompt) + 1, size)]
    positions, _ = _positions(salt, ((b"", pieces),))
    skipped = _OPENAI_MINIMUM // _STEP - 1
    positions = positions[skipped:]
    steps = range(len(positions))
    return _Plan(positions, [steps], [(index, life) for index in steps], 0, _tokens(prompt))


def bills_cache_writes(model: str) -> bool:
    """Tell whether a model of OpenAI caches at breakpoints, and bills and reports what it writes.

    >>> bills_cache_writes("gpt-5.6-mini"), bills_cache_writes("gpt-5.1"), bills_cache_writes("o3")
    (True, False, False)
    """
    found = _GPT.search(model)
    return found is not None and (int(found[1]), int(found[2] or 0)) >= _BREAKPOINTS_FROM


def _plan_gemini(body: Mapping[str, Any], model: str) -> _Plan:
    named = (body.get("tools"), body.get("systemInstruction") or body.get("system_instruction"))
    blocks = [_Block(_encode(value)) for value in named if value is not None]
    for turn in _elements(body.get("contents")):
        blocks += _blocks(turn.get("parts"), str(turn.get("role")).encode())
    positions, total = _positions(model.encode(), ((_encode(body.get("toolConfig")), blocks),))
    found = _GEMINI.search(model)
    version = float(f"{found[1]}.{found[2] or 0}") if found else _GEMINI_MINIMA[0][0]
    minimum = next((n for first, n in _GEMINI_MINIMA if version >= first), None)
    if minimum is None:
        return _Plan(positions, (), (), 0, total)
    steps = range(len(positions))
    return _Plan(positions, [steps], [(index, _GEMINI_LIFE) for index in steps], minimum, total)


_PLANS: Final = {
    "openai-chat": _plan_openai,
    "openai-responses": _plan_openai,
    "anthropic": _plan_anthropic,
    "gemini": _plan_gemini,
}


# ── the bytes of a prompt ────────────────────────────────────────────────────────────────────────


def _positions(
    salt: bytes, parts: Sequence[tuple[bytes, Sequence[_Block]]]
) -> tuple[list[_Position], int]:
    """Return a position after every block, and the tokens of all. Each part has its own salt."""
    running, tokens, found = hashlib.blake2b(salt, digest_size=16), 0, list[_Position]()
    for more, blocks in parts:
        running.update(more)
        for block in blocks:
            running.update(len(block.data).to_bytes(8, "big") + block.data)
            tokens += _tokens(block.data)
            found.append(_Position(running.digest(), tokens))
    return found, tokens


def _blocks(content: object, role: bytes) -> Iterator[_Block]:
    """Yield the blocks of a content, each with whose it is; a text is a block of its own."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for block in _elements(content):
        mark = block.get("cache_control")
        yield _Block(
            role + _encode(_without(block, "cache_control")),
            _life(mark) if is_object(mark) else 0.0,
            block.get("type") not in _NO_BREAKPOINT and block.get("text") != "",
        )


def _openai_block(element: Mapping[str, Any]) -> _Block:
    """Return a message or an item; a text and a list of one text are the same."""
    content = element.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = list(_elements(content))
    marked = any("prompt_cache_breakpoint" in block for block in blocks)
    if blocks:
        plain = [_without(block, "prompt_cache_breakpoint") for block in blocks]
        element = {**element, "content": plain}
    mine = element.get("role") in ("user", "tool") or element.get("type") == "function_call_output"
    return _Block(_encode(element), _BREAKPOINT_LIFE if marked else 0.0, mine)


def _mark_last(groups: Sequence[list[_Block]], life: float) -> None:
    """Set the breakpoint of automatic caching: after the last block that may have one."""
    for blocks in groups:
        for index in range(len(blocks) - 1, -1, -1):
            if blocks[index].may_end:
                blocks[index] = blocks[index]._replace(life=life)
                return


def _elements(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if is_object(each)] if is_list(value) else []


def _without(block: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {key: value for key, value in block.items() if key != name} if name in block else block


def _life(mark: Mapping[str, Any]) -> float:
    return _LIVES.get(str(mark.get("ttl", "5m")), _LIVES["5m"])


def _has_images(body: Mapping[str, Any]) -> bool:
    blocks = [
        block
        for message in _elements(body.get("messages"))
        for block in _elements(message.get("content"))
    ]
    blocks += [inner for block in blocks for inner in _elements(block.get("content"))]
    return any(block.get("type") == "image" for block in blocks)


def _encode(value: object) -> bytes:
    return msgspec.json.encode(_with_short_files(value))


def _with_short_files(value: Any, name: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return JSON in which a file inside the request is as long as the tokens it counts for."""
    if isinstance(value, str):
        if name not in _FILE_FIELDS or len(value) <= _LONGEST_INLINE:
            return value
        digest = hashlib.blake2b(value.encode(), digest_size=32).hexdigest()
        return digest.ljust(_FILE_TOKENS * _BYTES_PER_TOKEN, ".")
    if is_object(value):
        return {key: _with_short_files(each, key) for key, each in value.items()}
    if is_list(value):
        return [_with_short_files(each, name) for each in value]
    return value


def _tokens(data: bytes) -> int:
    return -(-len(data) // _BYTES_PER_TOKEN)
