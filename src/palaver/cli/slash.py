"""The commands inside a talk: `/undo`, `/tokens` and the others. A new one is a function here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from palaver.cli.manners import Refused, say, styled
from palaver.cli.stored import describe_change, message_line, which
from palaver.conversation import ClearOutputs, DropOldest, Summarise, compact
from palaver.messages import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver.cli.talk import Talk
    from palaver.conversation.compaction import Strategy

__all__ = ["COMMANDS", "Command", "Leave"]

_KEEP: Final = 1_000
"""How many of the newest tokens `/compact` leaves as they are."""


class Leave(Exception):  # noqa: N818 - no error
    """The talk is over."""


class Command(NamedTuple):
    """A command: what it does, how it is written, what is said of it."""

    run: Callable[[Talk, str], Awaitable[None]]
    usage: str
    about: str


async def _help(talk: Talk, words: str) -> None:
    del talk, words
    for name, command in COMMANDS.items():
        usage = f"/{name} {command.usage}".strip()
        say(f"{styled(f'{usage:22}', bold=True)}{styled(command.about)}")
    say(styled("//words               say something that begins with /", dim=True))


async def _undo(talk: Talk, words: str) -> None:
    for _ in range(_number(words, 1)):
        talk.conversation.history.undo()
    _where(talk)


async def _redo(talk: Talk, words: str) -> None:
    for _ in range(_number(words, 1)):
        talk.conversation.history.redo()
    _where(talk)


async def _rollback(talk: Talk, words: str) -> None:
    talk.conversation.history.rollback(_number(words, None))
    _where(talk)


async def _edit(talk: Talk, words: str) -> None:
    first, _, rest = words.partition(" ")
    history = talk.conversation.history
    if first.isdecimal() and rest.strip():
        index, text = int(first), rest.strip()
    else:
        asked = [place for place, message in enumerate(history.view) if message.role == "user"]
        if not (asked and words):
            msg = "there is nothing to edit; it is written /edit [N] TEXT"
            raise Refused(msg)
        index, text = asked[-1], words
    if index >= len(history):
        msg = f"there is no message {index}: there are {len(history):,}, the first is 0"
        raise Refused(msg)
    role = history.view[index].role
    if role != "user":
        history.replace(index, Message(role, text))
        _where(talk)
        return
    history.truncate(keep_first=index)
    await talk.ask(text)


async def _tokens(talk: Talk, words: str) -> None:
    del words
    conversation = talk.conversation
    usage, window = conversation.usage, talk.model.window
    last, total = usage.last, usage.total
    rows = {
        "now": f"{conversation.tokens():,}" + (f" of {window:,}" if window else ""),
        "last question": f"{last.prompt:,} in, {last.completion:,} out" if last else "unknown",
        "all questions": f"{total.prompt:,} in, {total.completion:,} out, {usage.calls:,} calls",
        "cost": "unknown" if usage.cost is None else f"${usage.cost:.4f}",
    }
    for name, value in rows.items():
        say(f"{styled(f'{name:15}', bold=True)}{styled(value)}")


async def _context(talk: Talk, words: str) -> None:
    del words
    conversation = talk.conversation
    for index, message in enumerate(conversation.messages):
        count = f"{conversation.tally.weigh(message):>7,}  "
        say(message_line(message, timed=False, before=f"{index:>5}{count}"))
    for repair in conversation.request(talk.model).notes:
        say(styled(str(repair), fg="yellow"))


async def _compact(talk: Talk, words: str) -> None:
    strategies: dict[str, Strategy] = {
        "summarise": Summarise(model=talk.model, keep_tokens=_KEEP),
        "drop": DropOldest(keep_tokens=_KEEP),
        "clear": ClearOutputs(protect_tokens=_KEEP, least_gain=1),
    }
    strategy = strategies.get(words or "summarise")
    if strategy is None:
        msg = f"there is no way {words!r} to make room; there are: {', '.join(strategies)}"
        raise Refused(msg)
    done = await compact(talk.conversation, strategy)
    if done is None:
        say("there is nothing to gain")
    else:
        say(f"{done.detail}: {done.before:,} tokens are now {done.after:,}; /undo brings them back")


async def _fork(talk: Talk, words: str) -> None:
    at = _number(words, None) if words else None
    talk.go_on_with(talk.conversation.history.fork(at=at))
    _where(talk)


async def _mark(talk: Talk, words: str) -> None:
    name, _, place = words.partition(" ")
    history = talk.conversation.history
    if not (name and len(history)):
        msg = "there is nothing to mark; it is written /mark NAME [N]"
        raise Refused(msg)
    history.mark(which(place.strip()) if place.strip() else len(history) - 1, name)
    _where(talk)


async def _quit(talk: Talk, words: str) -> None:
    del talk, words
    raise Leave


def _number(words: str, default: int | None) -> int:
    if not words and default is not None:
        return default
    if not words.isdecimal():
        msg = f"a number is wanted here, not {words!r}"
        raise Refused(msg)
    return int(words)


def _where(talk: Talk) -> None:
    describe_change(talk.conversation.history, None, as_json=False)


COMMANDS: Final = {
    "undo": Command(_undo, "[N]", "reverse the last change, or the last N"),
    "redo": Command(_redo, "[N]", "bring back what was undone"),
    "rollback": Command(_rollback, "BATCH", "go back to a batch as it ended"),
    "edit": Command(_edit, "[N] TEXT", "change message N, or your last; a question is asked again"),
    "tokens": Command(_tokens, "", "how much there is, and what was used"),
    "context": Command(_context, "", "what the model is sent, with tokens"),
    "compact": Command(_compact, "[HOW]", "make room: summarise, drop or clear"),
    "fork": Command(_fork, "[VERSION]", "go another way from here, or from a version"),
    "mark": Command(_mark, "NAME [N]", "put a mark on message N, or on the last"),
    "help": Command(_help, "", "this list"),
    "quit": Command(_quit, "", "leave, as Ctrl-D does"),
}
"""Each command by its name, in the order of /help."""
