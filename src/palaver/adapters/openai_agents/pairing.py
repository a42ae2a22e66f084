"""Items that a provider takes, whatever was edited: every call with its output, in its place.

The rules are those of `palaver.wire`, kept item by item, so that what is not broken stays exactly
as it was. A call that was interrupted gets an output that says so; an output whose call is gone is
left out, and so are thoughts that lead to nothing. Calls at the very end may still be at work: they
are left to the SDK, which knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from palaver.wire.mending import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from palaver.adapters.openai_agents.items import Item

__all__ = ["last_of", "mended"]

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


def mended(items: list[Item], begins: Container[int] = ()) -> list[Item]:
    """The items as a provider takes them; the very same list where nothing is broken.

    `begins` are the places where messages begin: a new answer after a call ends the wait for it.

    >>> mended([{"type": "function_call_output", "call_id": "c1", "output": "4"}])
    []
    """
    return items if _is_sound(items, begins) else list(_Turns(items, begins).written())


def _is_sound(items: Iterable[Item], begins: Container[int]) -> bool:
    """Tell whether each output follows its call, with nothing of others in between."""
    waiting: dict[str, str] = {}
    thinks = answered = False
    for place, item in enumerate(items):
        kind = item.get("type")
        if kind in _ENDS:
            if thinks or waiting.pop(_key(item), None) != kind:
                return False
            answered = True
            continue
        if waiting and (answered or place in begins or _is_given(item)):
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
        for place, item in enumerate(items):
            self._take(item, begins=place in begins)

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


def last_of(items: Sequence[Item], count: int) -> list[Item]:
    """The last items of an answer, so that they can stand without those before them.

    OpenAI refuses the id of an item without the thought that led to it: words and calls go without
    their ids then, and what can't be without one stays out.

    >>> thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    >>> call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f"}
    >>> last_of([thought, call], 1)
    [{'type': 'function_call', 'call_id': 'c1', 'name': 'f'}]
    """
    cut, kept = items[: len(items) - count], list(items[len(items) - count :])
    if not any(item.get("type") == "reasoning" for item in cut):
        return kept
    found: list[Item] = []
    for place, item in enumerate(kept):
        kind = item.get("type")
        if kind == "reasoning":
            return found + kept[place:]
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
