"""The prompt cache: what a provider was expected to have of a request, what it read, and why less.

A provider keeps the beginning of a request for a while, and reads it from its cache if the next
request begins with the same bytes. Each answer is stored with what was expected of that, what the
provider reported, and the cause where it read less (`CacheUse`, in the answer's metadata). The
beginning of the last request of each model is stored as a chain of hashes, one for each block of
content, thinned out towards the front: no text, and never more than a few kilobytes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palaver.messages import ModelRef
from palaver.messages.decode import decode
from palaver.messages.limits import EMPTY, is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from palaver.messages import Message, TokenCounts
    from palaver.stores.records import Record
    from palaver.wire import Request, ToolSpec

__all__ = [
    "BREAKS", "CACHE", "PROMPT_CACHE", "BlockHashes", "CacheUse", "Cause", "Expectation", "Life",
    "PromptPrefix", "RequestStart", "cache_data", "cache_use_of", "digest", "expect",
    "last_request", "life_of", "options_digest", "read_prefixes", "reports_cache", "tokens_kept",
    "tools_digest",
]  # fmt: skip

Cause: TypeAlias = Literal[
    "edit", "compaction", "tools-changed", "model-changed", "options-changed", "expiry", "fork",
    "unknown",
]  # fmt: skip
"""Why a provider read less from its cache than it was expected to."""
CACHE: Final = "cache"
"""The kind of record that holds the beginning of a model's last request."""
PROMPT_CACHE: Final = "promptCache"
"""The key in an answer's metadata that holds its `CacheUse`."""
BREAKS: Final[Mapping[str, Cause]] = {"compact": "compaction"}
"""The kinds of changes that have a cause of their own; any other change of what was sent is an
edit."""
_HASH_BYTES: Final = 8
_DENSE: Final = 8
"""How many hashes are stored before the distance between them doubles."""
_MAX_PREFIXES: Final = 4
"""Of how many models the last request is remembered."""
_LEAST_LOSS: Final = 1_024
_LEAST_SHARE: Final = 0.05
"""A break is a loss of more tokens than this, and of a larger part of what was expected: providers
count in blocks, and the boundary between two requests moves a little."""
_NOT_SENT: Final = frozenset(
    (
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "stop",
        "timeout",
        "retries",
        "service_tier",
    )
)
"""The options that change no byte of a prompt."""
_log: Final = logging.getLogger("palaver.conversation")


class Life(Struct, frozen=True):
    """How many seconds after its last use a cache is surely there, and surely gone."""

    sure: int
    gone: int


class CacheUse(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """How much of one request was expected from the provider's cache, and how much was read.

    `expected` is what the cache held after the last request, `shared` the part of it that this
    request begins with. `read` and `written` are the provider's figures, None if it gave none. A
    `cause` is set where clearly less was read than expected: `lost` tokens. `idle` is how many
    seconds have passed since the last request.
    """

    expected: int
    shared: int
    read: int | None = None
    written: int | None = None
    lost: int = 0
    cause: Cause | None = None
    idle: int | None = None


class PromptPrefix(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The beginning of the last request to a model, as hashes, and what is cached of it.

    `marks` are blocks by their index, the hash of everything up to them, and the bytes up to there;
    the last one ends the request. `kept` are the tokens that the provider has in its cache since,
    of a `prompt` of so many.
    """

    model: ModelRef
    at: int
    version: int
    tools: str
    options: str
    marks: tuple[tuple[int, str, int], ...]
    kept: int
    life: Life
    prompt: int = 0

    @property
    def size(self) -> int:
        """How many bytes the request had."""
        return self.marks[-1][2] if self.marks else 0

    def shared_size(self, chain: BlockHashes) -> int:
        """Return how many of its bytes another request begins with: a lower bound."""
        shared = 0
        for index, value, size in self.marks:
            if chain.at(index) != value:
                break
            shared = size
        return shared

    def record(self) -> Record:
        """Return the record that stores it."""
        return (CACHE, _name(self.model), msgspec.json.encode(self))


class BlockHashes:
    """The hashes of a request's blocks, each of everything up to it; only new blocks are hashed."""

    def __init__(self) -> None:
        """Start without blocks."""
        self._source: list[Any] | None = None
        self._start = b""
        self._elements = 0
        self._shared: tuple[list[bytes], list[int]] = ([], [])
        self._hashes: list[bytes] = []
        self._sizes: list[int] = []
        self._base = 0

    def update(self, request: Request, tools: bytes = b"") -> BlockHashes:
        """Hash a request; what an earlier one began with is not hashed again."""
        elements, length, tail = request.parts
        start = b"\n".join((tools, msgspec.json.encode(request.head)))
        hashes, sizes = self._shared
        if self._source is not elements or self._start != start or length < self._elements:
            hashes.clear()
            sizes.clear()
            self._elements = 0
            self._source, self._start = elements, start
            _extend(hashes, sizes, [tools, msgspec.json.encode(request.head)])
        _extend(hashes, sizes, _blocks(elements[self._elements : length]))
        self._elements, self._base = length, len(hashes)
        self._hashes, self._sizes = hashes[-1:], sizes[-1:]
        _extend(self._hashes, self._sizes, _blocks(tail))
        return self

    def extend(self, blocks: Iterable[bytes]) -> BlockHashes:
        """Add blocks that were encoded already, for requests that palaver did not write."""
        hashes, sizes = self._shared
        _extend(hashes, sizes, blocks)
        self._base, self._hashes, self._sizes = len(hashes), hashes[-1:], sizes[-1:]
        return self

    def __len__(self) -> int:
        """Return how many blocks there are."""
        return self._base + max(0, len(self._hashes) - 1)

    def at(self, index: int) -> str | None:
        """Return the hash of everything up to a block; None beyond the last one."""
        if index < self._base:
            return self._shared[0][index].hex()
        own = index - self._base + 1
        return self._hashes[own].hex() if own < len(self._hashes) else None

    def _size(self, index: int) -> int:
        if index < self._base:
            return self._shared[1][index]
        return self._sizes[index - self._base + 1]

    def marks(self) -> tuple[tuple[int, str, int], ...]:
        """Return some of the blocks: all at the end, and fewer and fewer towards the front."""
        found, index, step = list[int](), len(self) - 1, 1
        while index > 0:
            found.append(index)
            if len(found) % _DENSE == 0:
                step *= 2
            index -= step
        if len(self):
            found.append(0)
        return tuple((index, self.at(index) or "", self._size(index)) for index in reversed(found))


class Expectation(Struct, frozen=True):
    """What is expected of the cache before a request is sent.

    `changed` is what is known to differ from the last request, if anything is; `prompt` are the
    tokens that the last request had.
    """

    expected: int = 0
    shared: int = 0
    changed: Cause | None = None
    idle: int | None = None
    life: Life | None = None
    is_fork: bool = False
    prompt: int = 0

    def compare(self, read: int | None, written: int | None, prompt: int = 0) -> CacheUse:
        """Return what became of the expectation, by the provider's figures for the request."""
        lost = max(0, self.expected - (read or 0))
        if read is None or lost <= max(_LEAST_LOSS, self.expected * _LEAST_SHARE):
            lost, cause = 0, None
        else:
            cause = self._cause(read, prompt)
        return CacheUse(self.expected, self.shared, read, written, lost, cause, self.idle)

    def _cause(self, read: int, prompt: int) -> Cause:
        idle, is_old = self.idle or 0, read <= self.expected / 2
        if self.life is not None and idle >= self.life.gone and is_old:
            return "expiry"
        if self.changed is not None:
            return self.changed
        if self.life is not None and idle >= self.life.sure and is_old:
            return "expiry"
        if self.is_fork:
            return "fork"
        # the same was sent, and the provider counted less: it left something out by itself
        return "edit" if 0 < prompt < self.prompt - _LEAST_LOSS else "unknown"


def expect(
    prefixes: Iterable[PromptPrefix],
    chain: BlockHashes,
    now: PromptPrefix,
    *,
    why: Callable[[], Cause],
    is_fork: bool = False,
) -> Expectation:
    """Return what a request may read from the cache, by what was sent before.

    `why` says what changed the messages; it is called only if they have changed.
    """
    known = sorted(prefixes, key=lambda prefix: prefix.at)
    if not known:
        return Expectation()
    last = last_request(known, now.model)
    if last is None:
        last = known[-1]
        idle = max(0, now.at - last.at) // 1000
        return Expectation(last.kept, 0, "model-changed", idle, last.life, is_fork, last.prompt)
    size = last.shared_size(chain)
    whole = bool(last.size) and size >= last.size
    changed: Cause | None = None
    if last.tools != now.tools:
        changed = "tools-changed"
    elif not whole:
        changed = "fork" if is_fork else why()
    elif last.options != now.options:
        changed = "options-changed"
    shared = last.kept if whole else last.kept * size // max(1, last.size)
    idle = max(0, now.at - last.at) // 1000
    return Expectation(last.kept, shared, changed, idle, last.life, is_fork, last.prompt)


class RequestStart(Struct, frozen=True):
    """The beginning of a request, and what is expected of the cache before the answer is there.

    `known` are the beginnings of earlier requests.
    """

    form: str
    prefix: PromptPrefix
    expectation: Expectation
    known: list[PromptPrefix]
    options: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        request: Request,
        chain: BlockHashes,
        tools: Sequence[ToolSpec],
        options: Mapping[str, Any],
        known: list[PromptPrefix],
        *,
        model: ModelRef,
        at: int,
        version: int,
        is_fork: bool,
        why: Callable[[], Cause],
    ) -> RequestStart:
        """Hash a request with a chain, which has hashed the earlier ones, and compare it."""
        encoded = _tools_bytes(tools)
        chain.update(request, encoded)
        hashes = tools_digest(tools), options_digest(options)
        prefix = PromptPrefix(model, at, version, *hashes, chain.marks(), 0, Life(0, 0))
        found = expect(known, chain, prefix, why=why, is_fork=is_fork)
        return cls(request.format, prefix, found, known, options)

    def settle(self, message: Message, tokens: TokenCounts) -> tuple[Message, list[Record]]:
        """Return the answer with its `CacheUse`, and the records that remember the request.

        A provider that says nothing of a cache is not compared.
        """
        raw: Mapping[str, Any] = message.metadata.get("usage") or EMPTY
        last = last_request(self.known, self.prefix.model)
        before, name = None if last is None else last.life, self.prefix.model.model_id
        life = life_of(self.form, raw, self.options, before, name)
        if life is None or not reports_cache(self.form, tokens, raw):
            return message, []
        cache, prompt = tokens.cache, tokens.prompt
        use = self.expectation.compare(cache.read, cache.write, prompt)
        metadata = {**message.metadata, PROMPT_CACHE: msgspec.to_builtins(use)}
        kept = tokens_kept(self.form, tokens)
        prefix = replace(self.prefix, kept=kept, life=life, prompt=prompt)
        return replace(message, metadata=metadata), _prefix_records(prefix, self.known)


def read_prefixes(records: Mapping[str, bytes]) -> list[PromptPrefix]:
    """Read what is known of earlier requests; what can't be read is left out and logged."""
    found: list[PromptPrefix] = []
    for value in records.values():
        try:
            found.append(decode(value, PromptPrefix))
        except msgspec.DecodeError:
            _log.warning("what was sent before can't be read, and is not compared", exc_info=True)
    return found


def _prefix_records(prefix: PromptPrefix, known: Sequence[PromptPrefix]) -> list[Record]:
    """Return the records that remember a request, and forget those of too many other models."""
    others = sorted((one for one in known if one.model != prefix.model), key=lambda one: one.at)
    old = others[: max(0, len(others) - _MAX_PREFIXES + 1)]
    return [prefix.record(), *((CACHE, _name(one.model), None) for one in old)]


def cache_use_of(message: Message) -> CacheUse | None:
    """Return what an answer says of the cache; None if it says nothing."""
    value = message.metadata.get(PROMPT_CACHE)
    try:
        return None if value is None else msgspec.convert(value, CacheUse)
    except msgspec.ValidationError:  # somebody else's key
        return None


def cache_data(message: Message, use: CacheUse) -> dict[str, Any]:
    """Return the data of the event of an answer's `CacheUse`."""
    return {"message": message.id, **msgspec.to_builtins(use)}


def digest(value: object) -> str:
    """Return a short hash of anything that JSON can say."""
    encoded = msgspec.json.encode(value, order="sorted")
    return blake2b(encoded, digest_size=_HASH_BYTES).hexdigest()


def tools_digest(tools: Sequence[ToolSpec]) -> str:
    """Return a hash of the tools of a request."""
    return digest(_tools_bytes(tools).decode())


def last_request(prefixes: Iterable[PromptPrefix], model: ModelRef | None) -> PromptPrefix | None:
    """Return the last request to a model; None if there was none.

    Without a model, it is the last request to any.
    """
    found = [one for one in prefixes if model is None or one.model == model]
    return max(found, key=lambda one: one.at, default=None)


def _tools_bytes(tools: Sequence[ToolSpec]) -> bytes:
    """Return the tools of a request as they stand before its first message, by their names."""
    ordered = sorted(tools, key=lambda spec: spec.name)
    return msgspec.json.encode([[spec.name, spec.description, spec.schema] for spec in ordered])


def options_digest(options: Mapping[str, Any]) -> str:
    """Return a hash of those options that a prompt depends on."""
    return digest({name: value for name, value in options.items() if name not in _NOT_SENT})


# ── the rules of the providers ──────────────────────────────────────────────────────────────────

_LIVES: Final[Mapping[str, Life]] = {
    "anthropic": Life(300, 300),
    "openai-chat": Life(300, 3_600),
    "openai-responses": Life(300, 3_600),
    "gemini": Life(300, 86_400),  # not published
}
_HOUR: Final = Life(3_600, 3_600)
_DAY: Final = Life(3_600, 86_400)
_HALF_AN_HOUR: Final = Life(1_800, 1_800)
_HALF_AN_HOUR_FROM: Final = (5, 6)
_GPT: Final = re.compile(r"gpt-(\d+)(?:\.(\d+))?")
_MINIMUM: Final[Mapping[str, tuple[int, int]]] = {
    "openai-chat": (1_024, 128), "openai-responses": (1_024, 128), "gemini": (4_096, 1),
}  # fmt: skip
"""From how many tokens on a prompt is cached, and in steps of how many."""
_FIELDS: Final = ("prompt_tokens_details", "input_tokens_details")


def life_of(
    form: str,
    raw: Mapping[str, Any],
    options: Mapping[str, Any] = EMPTY,
    last: Life | None = None,
    model: str = "",
) -> Life | None:
    """Return how long a provider keeps what it cached; None for a format without a cache.

    `raw` is its usage, as it came; `last` is the life of what it had cached before.

    >>> life_of("anthropic", {"cache_creation": {"ephemeral_1h_input_tokens": 9_000}}).gone
    3600
    """
    created = raw.get("cache_creation")
    if form == "anthropic" and is_object(created):
        if created.get("ephemeral_1h_input_tokens"):
            return _HOUR
        if not created.get("ephemeral_5m_input_tokens") and last is not None:
            return last  # nothing was written: what was read lives on as before
    if options.get("prompt_cache_retention") == "24h":
        return _DAY
    found = _GPT.match(model) if form.startswith("openai") else None
    if found is not None and (int(found[1]), int(found[2] or 0)) >= _HALF_AN_HOUR_FROM:
        return _HALF_AN_HOUR
    return _LIVES.get(form)


def tokens_kept(form: str, tokens: TokenCounts) -> int:
    """Return how many tokens of a request are in the provider's cache after it.

    >>> from palaver.messages import CacheCounts, TokenCounts
    >>> tokens_kept("anthropic", TokenCounts(50, 9, 0, CacheCounts(read=9_000, write=700)))
    9700
    >>> tokens_kept("openai-responses", TokenCounts(1_500, 9, 0, CacheCounts()))
    1408
    """
    if tokens.cache.write or form not in _MINIMUM:
        return tokens.cache.read + tokens.cache.write
    least, step = _MINIMUM[form]
    return tokens.prompt // step * step if tokens.prompt >= least else 0


def reports_cache(form: str, tokens: TokenCounts, raw: Mapping[str, Any]) -> bool:
    """Tell whether a provider says how much it read from a cache, be it nothing."""
    if tokens.cache.read or tokens.cache.write:
        return True
    if form == "anthropic":
        return "cache_read_input_tokens" in raw
    if form == "gemini":  # it leaves out a figure of zero
        return bool(raw)
    details = next((raw[name] for name in _FIELDS if is_object(raw.get(name))), EMPTY)
    return details.get("cached_tokens") is not None


# ── blocks ──────────────────────────────────────────────────────────────────────────────────────


def _extend(hashes: list[bytes], sizes: list[int], blocks: Iterable[bytes]) -> None:
    last, size = hashes[-1] if hashes else b"", sizes[-1] if sizes else 0
    for block in blocks:
        last = blake2b(last + block, digest_size=_HASH_BYTES).digest()
        size += len(block)
        hashes.append(last)
        sizes.append(size)


def _blocks(elements: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield the blocks of elements as bytes, without the breakpoints, which may move."""
    encode = msgspec.json.encode
    for element in elements:
        role, rest = element.get("role", ""), dict[str, Any]()
        content: Any = None
        for name, value in element.items():
            if name in ("content", "parts") and (isinstance(value, str) or is_list(value)):
                content = value
            elif name not in ("role", "cache_control"):
                rest[name] = value
        for block in [content] if isinstance(content, str) else content or ():
            yield encode((role, _plain(block)))
        if rest:
            yield encode((role, rest))


def _plain(block: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a block as it is hashed: a text alone is the same as a block with that text."""
    if not is_object(block):
        return block
    kept = {name: value for name, value in block.items() if name != "cache_control"}
    if kept.keys() <= {"type", "text"} and isinstance(kept.get("text"), str):
        return kept["text"]
    return kept


def _name(model: ModelRef) -> str:
    return digest([model.provider_id, model.model_id])
