"""The session of the OpenAI Agents SDK: a conversation in a store.

The SDK appends the items of a turn, reads the items before it, and removes its last items when it
tries again. Each is one access to the store from a worker thread: a write runs to its end even if
the task is cancelled, a read is abandoned. What is removed only leaves the view, and
`history.undo()` restores it. Items are repaired when they are read: each call has its output, as
providers demand, whatever was edited.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import msgspec
from agents.memory.session_settings import (
    SessionSettings,
    coerce_session_settings,
    resolve_session_limit,
)

from palaver.adapters.openai_agents.convert import from_items, to_items
from palaver.errors import Conflict, UnknownConversation
from palaver.messages.ids import uuid_for
from palaver.messages.limits import is_object
from palaver.messages.parts import ToolCallPart
from palaver.stores import StoredHistory
from palaver.wire.pairing import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from agents import TResponseInputItem

    from palaver.adapters.openai_agents.convert import Item
    from palaver.history.view import View
    from palaver.messages.message import Message
    from palaver.stores.store import Store

__all__ = ["PalaverSession", "last_items", "repair_items", "run_cancellable", "run_to_end"]


_log = logging.getLogger("palaver.adapters.openai_agents")
_MAX_ENCODED: Final = 20_000
"""So many messages are encoded as items; then it begins anew."""
_MAX_LOOKBACK: Final = 200
"""How many messages are searched for the call of an output that comes in a later batch."""


class _EncodedItems(NamedTuple):
    """The items of a message as JSON text without the brackets, and their number."""

    message: Message
    text: bytes
    size: int

    def items(self) -> list[Item]:
        """Decode the items, as new objects every time."""
        return _decode(self.text)


def _decode(text: bytes) -> list[Item]:
    return cast("list[Item]", msgspec.json.decode(b"[%b]" % text))


class PalaverSession:
    """A conversation as a session of the OpenAI Agents SDK.

    The conversation is created with the first items. `session_settings` limits how many items a
    run is shown, as everywhere in the SDK.

    >>> import asyncio, palaver
    >>> store = palaver.open(":memory:")
    >>> session = PalaverSession(store, "talk-1")
    >>> asyncio.run(session.add_items([{"role": "user", "content": "Tea?"}]))
    >>> asyncio.run(session.get_items())
    [{'role': 'user', 'content': 'Tea?'}]
    >>> store.get("talk-1")[0].text
    'Tea?'
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        store: Store | StoredHistory,
        session_id: str | None = None,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        """Take a store and the id of a conversation, which may be new; or a stored history."""
        self._store = None if isinstance(store, StoredHistory) else store
        self._history = store if isinstance(store, StoredHistory) else None
        if self._history is not None and session_id in (None, self._history.id):
            session_id = self._history.id
        elif self._history is not None or not session_id:
            given = "another id than its history's" if self._history is not None else "no id"
            raise ValueError(f"a session needs the id of its conversation: it was given {given}")
        self.session_id = session_id
        self.session_settings = (
            SessionSettings()
            if session_settings is None
            else coerce_session_settings(session_settings)
        )
        self._lock = threading.Lock()
        self._encoded: dict[str, _EncodedItems] = {}

    @property
    def history(self) -> StoredHistory:
        """The conversation, to read and to edit; it is created if it does not exist."""
        with self._lock:
            return self._open() or self._begin()

    # ── what the SDK calls ──────────────────────────────────────────────────────────────────────

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the last items, or all, in order: as they were added, or as they were edited.

        The items are always valid for a provider: calls and outputs that an edit or the limit has
        separated are repaired.
        """
        wanted = resolve_session_limit(limit, self.session_settings)
        found = await run_cancellable(lambda: self._get(wanted))
        return cast("list[TResponseInputItem]", found)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end, in one change."""
        if items:
            await run_to_end(lambda: self._add(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item from the view and return it, or None if there is none."""
        return cast("TResponseInputItem | None", await run_to_end(self._pop))

    async def clear_session(self) -> None:
        """Remove everything from the view, system messages too; `history.undo()` restores it."""
        await run_to_end(self._clear)

    # ── one access to the store each ────────────────────────────────────────────────────────────

    def _open(self) -> StoredHistory | None:
        if self._history is None and self._store is not None:
            try:
                self._history = self._store.get(self.session_id)
            except UnknownConversation:
                return None
        elif self._history is not None:
            self._history.refresh()
        return self._history

    def _begin(self) -> StoredHistory:
        assert self._store is not None  # noqa: S101 - without a store there is a history
        key = f"openai-agents {self.session_id}"  # for processes that create it at the same time
        self._history = self._store.create(id=self.session_id, key=key)
        return self._history

    def _get(self, limit: int | None) -> list[Item]:
        with self._lock:
            history = self._open()
            if history is None or limit == 0:
                return []
            return self._last(history.view, limit)

    def _last(self, view: View, limit: int | None) -> list[Item]:
        """Return the last items of a view, repaired; a message gives none, one or several."""
        left = limit if limit is not None and limit > 0 else sys.maxsize
        first: list[Item] = []
        found: list[bytes] = []
        counts: list[int] = []
        stop = len(view)
        while stop and left:
            start = max(stop - left, 0)
            for message in reversed(view[start:stop]):
                written = self._items(message)
                if written.size > left:
                    first, left = last_items(written.items(), left), 0
                    break
                if written.size:
                    found.append(written.text)
                    counts.append(written.size)
                    left -= written.size
                    if not left:
                        break
            stop = start
        begins = {*accumulate(reversed(counts), initial=len(first))}
        items = first + _decode(b",".join(reversed(found)))
        valid = repair_items(items, begins)
        if valid is not items:
            _log.info("%s: %d items became %d valid ones", self.session_id, len(items), len(valid))
        return valid

    def _items(self, message: Message) -> _EncodedItems:
        encoded = self._encoded.get(message.id)
        if encoded is None or encoded.message is not message:
            encoded = self._encode(message, to_items(message))
        return encoded

    def _encode(self, message: Message, items: Sequence[Any]) -> _EncodedItems:
        """Cache the items of a message as text, since each caller gets objects of its own."""
        if len(self._encoded) >= _MAX_ENCODED:
            self._encoded.clear()
        text = msgspec.json.encode(items)[1:-1]
        encoded = self._encoded[message.id] = _EncodedItems(message, text, len(items))
        return encoded

    def _add(self, items: Sequence[Any]) -> None:
        with self._lock:
            history = self._history or self._open() or self._begin()
            new = from_items(items, uuid_for(history.id), _earlier_tools(items, history))
            if len(new) == 1:
                history.append(new[0][0])
            else:
                history.extend([message for message, _ in new])
            for message, theirs in new:
                self._encode(message, theirs)

    def _pop(self) -> Item | None:
        with self._lock:
            history = self._open()
            while history is not None and len(history.view):
                view = history.view
                last = len(view) - 1
                message = view[last]
                items = self._items(message).items()
                kept = [each for each, _ in from_items(items[:-1], uuid_for(history.id))]
                try:
                    _replace_last(history, last, kept)
                except Conflict:
                    continue  # another worker removed a part of the same answer
                if items and message in history.at(history.version - 1):
                    return items[-1]  # nobody else removed it meanwhile
                history.refresh()
            return None

    def _clear(self) -> None:
        with self._lock:
            history = self._open()
            if history is not None and len(history.view):
                history.clear(keep_system_message=False)


def _replace_last(history: StoredHistory, last: int, kept: list[Message]) -> None:
    """Replace the last message by what is left of it, in one edit."""
    if not kept:
        history.truncate(remove_last=1)
    elif len(kept) == 1:
        history.replace(last, kept[0])
    else:
        history.rewrite([range(last), *kept], reason="POP")


def _earlier_tools(items: Sequence[Any], history: StoredHistory) -> dict[str, str]:
    """Return the tools of earlier calls that these items have outputs of, by call id."""
    made, asked = set[str](), set[str]()
    for item in filter(is_object, items):
        if item.get("type") == "function_call":
            made.add(str(item.get("call_id")))
        elif item.get("type") == "function_call_output":
            asked.add(str(item.get("call_id")))
    asked -= made
    if not asked:
        return {}
    return {
        part.call_id: part.tool
        for message in history.view.recent(_MAX_LOOKBACK, role="assistant")
        for part in message.parts
        if isinstance(part, ToolCallPart) and part.call_id in asked
    }


_T = TypeVar("_T")


@cache
def _pool() -> ThreadPoolExecutor:
    """The worker threads; the loop's default executor would cost two more futures per call."""
    return ThreadPoolExecutor(thread_name_prefix="palaver-openai-agents")


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads don't survive a fork


class _Uncancellable(asyncio.Future[Any]):
    """A future that ignores cancellation: a cancelled task learns of it when the work is done."""

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - the signature of Future
        """Ignore the cancellation."""
        return False


async def run_cancellable(work: Callable[[], _T]) -> _T:
    """Run some work on a worker thread; it is abandoned when the task is cancelled."""
    return await _run(work, asyncio.get_running_loop().create_future())


async def run_to_end(work: Callable[[], _T]) -> _T:
    """Run some work on a worker thread to its end, even if the task is cancelled."""
    return await _run(work, _Uncancellable(loop=asyncio.get_running_loop()))


async def _run(work: Callable[[], _T], done: asyncio.Future[Any]) -> _T:
    loop = done.get_loop()

    def report(outcome: tuple[Any, BaseException | None]) -> None:
        if not done.done():
            done.set_result(outcome)

    def run_and_report() -> None:
        try:
            outcome: Any = work(), None
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(report, outcome)

    _pool().submit(run_and_report)
    value, error = await done
    if error is not None:
        try:
            raise error
        finally:
            error = None  # it holds this frame
    return value  # type: ignore[no-any-return]


_OUTPUTS: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
}
"""The calls that are answered by whoever runs the agent, and what they are answered with."""
_ENDS: Final = frozenset(_OUTPUTS.values())
_IN_WORDS: Final = frozenset(("function_call", "custom_tool_call"))
"""Those whose output may be a text."""


def repair_items(items: list[Item], begins: Container[int] = ()) -> list[Item]:
    """The items as a provider takes them; the very same list where nothing is broken.

    `begins` are the indexes at which messages begin: a new answer ends the wait for an output.

    >>> repair_items([{"type": "function_call_output", "call_id": "c1", "output": "4"}])
    []
    """
    return items if _is_sound(items, begins) else list(_Turns(items, begins).written())


def _is_sound(items: Iterable[Item], begins: Container[int]) -> bool:
    """Tell whether each output follows its call, with nothing of others in between."""
    waiting: dict[str, str] = {}
    thinks = answered = False
    for index, item in enumerate(items):
        kind = item.get("type")
        if kind in _ENDS:
            if thinks or waiting.pop(_key(item), None) != kind:
                return False
            answered = True
            continue
        if waiting and (answered or index in begins or _is_given(item)):
            return False
        answered = False
        if kind == "reasoning":
            thinks = True
        elif thinks and _is_given(item):
            return False
        else:
            thinks = False
            if kind in _OUTPUTS:
                if _key(item) in waiting:
                    return False
                waiting[_key(item)] = _OUTPUTS[kind]
    return not thinks


def _is_given(item: Item) -> bool:
    """Tell whether an item is something that no model made."""
    return item.get("role") in ("user", "system", "developer")


def _key(item: Item) -> str:
    return str(item.get("call_id") or item.get("id"))


class _Turn:
    """What a model made in one go, with the outputs of its calls; or one item of somebody else."""

    def __init__(self, *, made: bool) -> None:
        self.made = made
        self.items: list[Item] = []
        self.outputs: dict[str, Item] = {}
        self.calls = 0


class _Turns:
    """The items in turns, each output with the newest call of its id."""

    def __init__(self, items: Iterable[Item], begins: Container[int]) -> None:
        self._turns: list[_Turn] = []
        self._waiting: dict[str, tuple[_Turn, str]] = {}
        for index, item in enumerate(items):
            self._take(item, begins=index in begins)

    def _take(self, item: Item, *, begins: bool) -> None:
        kind = item.get("type")
        if kind in _ENDS:
            turn, wanted = self._waiting.pop(_key(item), (None, ""))
            if turn is not None:
                turn.outputs[_key(item)] = item if kind == wanted else {**item, "type": wanted}
            return
        made = not _is_given(item)
        last = self._turns[-1] if self._turns else None
        if last is None or not (made and last.made) or last.outputs or (begins and last.calls):
            last = _Turn(made=made)
            self._turns.append(last)
        last.items.append(item)
        if kind in _OUTPUTS:
            last.calls += 1
            self._waiting[_key(item)] = (last, _OUTPUTS[kind])

    def written(self) -> Iterable[Item]:
        """All of it, in order."""
        for turn in self._turns:
            outputs = turn.outputs
            ends = turn is self._turns[-1]
            items: list[Item] = []
            for item in turn.items:
                kind = str(item.get("type"))
                if kind in _OUTPUTS and _key(item) not in outputs and not ends:
                    if kind not in _IN_WORDS:
                        continue
                    outputs[_key(item)] = {
                        "type": _OUTPUTS[kind], "call_id": _key(item), "output": INTERRUPTED
                    }  # fmt: skip
                items.append(item)
            while items and items[-1].get("type") == "reasoning":
                items.pop()
            yield from items
            yield from outputs.values()


def last_items(items: Sequence[Item], count: int) -> list[Item]:
    """The last items of an answer, so that they can stand without those before them.

    OpenAI refuses the id of an item without the reasoning that led to it: text and calls go without
    their ids then, and what can't be without one stays out.

    >>> thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    >>> call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f"}
    >>> last_items([thought, call], 1)
    [{'type': 'function_call', 'call_id': 'c1', 'name': 'f'}]
    """
    cut, kept = items[: len(items) - count], list(items[len(items) - count :])
    if not any(item.get("type") == "reasoning" for item in cut):
        return kept
    found: list[Item] = []
    for index, item in enumerate(kept):
        kind = item.get("type")
        if kind == "reasoning":
            return found + kept[index:]
        if item.get("role") == "assistant":
            found.append({"role": "assistant", "content": _text(item)})
        elif kind in _IN_WORDS:
            found.append({name: value for name, value in item.items() if name != "id"})
    return found


def _text(item: Item) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(str(block.get("text") or block.get("refusal") or "") for block in blocks)
