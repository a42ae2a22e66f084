"""What commands take: the store, the conversation, the message, and lists in JSON files.

A conversation is given by its id, or by the beginning of it if only one id begins so.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from palaver.cli.app import Refused, display_name, open_input, printable
from palaver.errors import ValidationError
from palaver.history import Append, Insert, Operation, Replace, parse_operations
from palaver.messages import Message, parse_messages
from palaver.messages.codec import MAX_DOCUMENT, load_json
from palaver.messages.decode import DUPLICATE_NAME
from palaver.stores import Key, open_store
from palaver.stores.open import check_address, database_path
from palaver.transcripts.readers import NAMES, format_of, why_unknown
from palaver.wire import Note, ParsedConversation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from palaver.messages import Message
    from palaver.stores import Cipher, Store, StoredHistory

__all__ = [
    "Originals",
    "choose_conversation",
    "complete_conversation",
    "conversation_argument",
    "conversation_option",
    "detect_format",
    "find_conversation",
    "from_option",
    "import_tools",
    "keys_from_environment",
    "open_source",
    "open_with_keys",
    "owner_option",
    "read_list",
    "read_message_ref",
    "resolve_address",
    "source_argument",
    "store_file",
    "store_option",
    "use_store",
]


_LISTED: Final = 5
_OFFERED: Final = 50
"""Ids that a shell offers."""
_Function = TypeVar("_Function", bound="Callable[..., Any]")


def store_option(function: _Function) -> _Function:
    """Add `--store`; open it with `use_store`."""
    return click.option(
        "--store",
        "address",
        envvar="PALAVER_STORE",
        metavar="FILE|URL",
        help="The store: a file or a URL.  [a file in your data folder]",
    )(function)


def owner_option(text: str) -> Callable[[_Function], _Function]:
    """Add `--owner`, with a text that says what it does."""
    return click.option("--owner", metavar="OWNER", help=text)


def import_tools(place: str) -> Any:  # noqa: ANN401 - whatever the module has
    """Import what `--tools module:attr` names; modules of the current folder are found too."""
    from palaver.tools.runner import import_object  # noqa: PLC0415 - loads the MCP client

    if not all(place.partition(":")):
        msg = f"--tools {place}: must be MODULE:ATTR, as in my_tools:weather"
        raise click.UsageError(msg)
    try:
        return import_object(place)
    except Exception as error:
        msg = f"--tools {place}: {type(error).__name__}: {error}"
        raise Refused(msg) from error


def resolve_address(address: str | None) -> str:
    """The address of the store: the given one, or the default file."""
    return str(_default_file()) if address is None else address


def store_file(where: str) -> Path | None:
    """The file of a store; None if it is not in a file."""
    return None if "://" in where or where == ":memory:" else Path(database_path(where))


def _default_file() -> Path:
    home = os.environ.get("XDG_DATA_HOME") or ""
    folder = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share"
    return folder / "palaver" / "palaver.db"


def keys_from_environment() -> list[Key]:
    """The keys in PALAVER_KEY and in the file PALAVER_KEY_FILE; the first one encrypts."""
    text = os.environ.get("PALAVER_KEY", "")
    file = os.environ.get("PALAVER_KEY_FILE")
    try:
        lines = Path(file).read_text("utf-8").splitlines() if file else []
    except (OSError, UnicodeError) as error:
        msg = f"PALAVER_KEY_FILE can't be read: {error}"
        raise Refused(msg) from None
    found = [*text.split(), *(line.strip() for line in lines)]
    secrets = [secret for secret in found if secret and not secret.startswith("#")]
    if not secrets:
        return []
    try:
        return [Key(secret) for secret in secrets]
    except ValidationError as error:
        msg = f"PALAVER_KEY or PALAVER_KEY_FILE has no key: it {error.detail}"
        raise Refused(msg) from None
    except ModuleNotFoundError as error:
        raise Refused(str(error)) from None


@contextmanager
def use_store(
    address: str | None, *, create: bool = False, keys: Sequence[Cipher] | None = None
) -> Generator[Store]:
    """Open the store; it is created only if `create` is set.

    The keys are those of the environment, unless others are given: an empty list is none.
    """
    where = resolve_address(address)
    check_address(where)  # a wrong address may hold a password, so it is not shown
    file = store_file(where)
    if file is not None and not file.exists():
        if not create:
            msg = (
                f"there is no store at {click.format_filename(where)}; "
                "`palaver append --new` and `palaver import` make one"
            )
            raise Refused(msg)
        if address is None:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_with_keys(where, keys) as store:
        yield store


def open_with_keys(address: str, keys: Sequence[Cipher] | None = None) -> Store:
    """Open a store with the keys of the environment, unless others are given."""
    return open_store(address, key=(keys_from_environment() if keys is None else keys) or None)


def complete_conversation(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the ids that a shell offers for the beginning of one, with their titles.

    Without a beginning, those that were changed last. A store that can't be read offers none.
    """
    del parameter
    address = context.params.get("address") or os.environ.get("PALAVER_STORE")
    try:
        with use_store(address) as store:
            if incomplete:
                heads = [store.head(name) for name in store.named(incomplete, limit=_OFFERED)]
            else:
                heads = list(store.list(limit=_OFFERED).conversations)
        return [CompletionItem(head.id, help=printable(head.title or "")) for head in heads]
    except Exception:  # noqa: BLE001 - a shell has no place for an error here
        return []


def conversation_argument(function: _Function) -> _Function:
    """Add the argument CONVERSATION; look it up with `find_conversation`."""
    return click.argument("conversation", shell_complete=complete_conversation)(function)


def find_conversation(store: Store, text: str) -> StoredHistory:
    """Find a conversation by its id, or by the beginning of it."""
    if text in store:
        return store.get(text)
    matching = store.named(text, limit=_LISTED + 1) if text else []
    if len(matching) == 1:
        return store.get(matching[0])
    if not matching:
        msg = f"no conversation has an id that begins with {text!r}"
        raise Refused(msg)
    shown = ", ".join(matching[:_LISTED])
    more = " and more" if len(matching) > _LISTED else ""
    msg = f"{text!r} is the beginning of several ids: {shown}{more}"
    raise Refused(msg)


def read_message_ref(text: str) -> int | str:
    """Read a reference to a message: a number is its index, anything else its id."""
    return int(text) if text.isdecimal() else text


class Originals:
    """The JSON that each message was read from.

    Decoding gives a message an id and a time if it has none; printing the original JSON leaves
    those out again.
    """

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        self._alive: list[Message] = []  # keeps `id(message)` valid

    def messages(self, raw: list[Any]) -> list[Message]:
        """Decode messages, and store the JSON of each."""
        messages = parse_messages(raw)
        self._store(messages, raw)
        return messages

    def operations(self, raw: list[Any]) -> list[Operation]:
        """Decode operations, and store the JSON of the messages in them."""
        operations = parse_operations(raw)
        for operation, given in zip(operations, raw, strict=True):
            if isinstance(operation, Append | Insert):
                self._store(operation.messages, given["messages"])
            elif isinstance(operation, Replace):
                self._store([operation.message], [given["message"]])
        return operations

    def _store(self, messages: Iterable[Message], raw: Iterable[Any]) -> None:
        for message, original in zip(messages, raw, strict=True):
            self._known[id(message)] = original
            self._alive.append(message)

    def json_of(self, message: Message) -> Any:  # noqa: ANN401 - a JSON object
        """The JSON that a message was read from."""
        return self._known[id(message)]


def read_list(file: str, what: str) -> list[Any]:
    """Read a list from FILE, a JSON array or JSON lines."""
    with open_input(file) as (stream, _):
        data = stream.read(MAX_DOCUMENT + 1)
    try:
        value = load_json(data)
    except ValidationError as error:
        lines = [line for line in data.splitlines() if line.strip()]
        is_document = len(lines) < 2 or data.lstrip()[:1] == b"["  # noqa: PLR2004 - one line
        if is_document or error.rule == DUPLICATE_NAME:
            raise _name_file(error, file) from None
        value = _read_lines(lines, file)
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
        value = value["messages"]
    if not isinstance(value, list):
        raise _name_file(ValidationError(f"must be a list of {what}"), file)
    return value


def _read_lines(lines: list[bytes], file: str) -> list[Any]:
    found: list[Any] = []
    for number, line in enumerate(lines):
        try:
            found.append(load_json(line))
        except ValidationError as error:
            raise _name_file(error.under(f"$[{number}]"), file) from None
    return found


def _name_file(error: ValidationError, file: str) -> ValidationError:
    return ValidationError(
        f"{error.detail} (in {display_name(file)})", path=error.path, rule=error.rule
    )


_MOST_SOURCES: Final = 20
_ANY: Final = 3
_NOT: Final = 4


# ── arguments ───────────────────────────────────────────────────────────────────────────────────


def source_argument(function: _Function) -> _Function:
    """Add the argument FILE, which may be a folder too; open it with `open_source`."""
    kind = click.Path(exists=True, readable=True, allow_dash=True)
    return click.argument("file", type=kind)(function)


def from_option(function: _Function) -> _Function:
    """Add `--from`: the format of FILE, if it is not to be detected."""
    return click.option(
        "--from",
        "named",
        type=click.Choice(NAMES),
        metavar="FORMAT",
        help=f"The format of FILE, if it is not to be detected: {', '.join(NAMES)}.",
    )(function)


def conversation_option(function: _Function) -> _Function:
    """Add `--conversation`: which one of those in FILE."""
    return click.option(
        "--conversation",
        "wanted",
        metavar="ID",
        help="Which conversation of FILE: its id, the beginning of it, or its number, from 1.",
    )(function)


# ── content ─────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def open_source(file: str) -> Generator[Path]:
    """Yield the path of FILE; input from a pipe is in a temporary file meanwhile."""
    path = Path(file)
    if file != "-" and (path.is_file() or path.is_dir()):
        yield path
        return
    with open_input(file) as (stream, _), tempfile.NamedTemporaryFile(prefix="palaver-") as copy:
        shutil.copyfileobj(stream, copy)
        copy.flush()
        yield Path(copy.name)


def detect_format(path: Path, named: str | None, file: str) -> str:
    """The format of a file; an unknown one is refused."""
    found = format_of(path, named)
    if found is None:
        why, may_be_named = why_unknown(path)
        words = "" if why.startswith("is ") else ":"
        hint = f"; if you know it, name it with --from: {', '.join(NAMES)}" if may_be_named else ""
        msg = f"{display_name(file)}{words} {why}{hint}"
        raise Refused(msg)
    return found


def choose_conversation(
    found: Iterable[ParsedConversation], wanted: str | None, file: str
) -> ParsedConversation:
    """The conversation that is wanted, or the only one.

    Notes about other lines of the file are included: they may belong to any conversation.
    """
    best: list[ParsedConversation] = []
    rank = _NOT
    labels: list[str] = []
    count = 0
    line_notes: list[Note] = []
    reasons: list[Note] = []
    for reading in found:
        line_notes += (note for note in reading.notes if note.where.startswith("line "))
        if not reading.messages:
            reasons += reading.notes[:1]
            continue
        count += 1
        if count <= _MOST_SOURCES:
            labels.append(_label(reading, count))
        match = _ANY if wanted is None else _match(reading, count, wanted)
        if match < rank:
            rank, best = match, []
        if match == rank < _NOT and len(best) < 2:  # noqa: PLR2004 - a second one is one too many
            best.append(reading)
    if len(best) == 1:
        mine = set(best[0].notes)
        others = tuple(note for note in line_notes if note not in mine)
        return ParsedConversation(best[0].messages, (*best[0].notes, *others), best[0].about)
    name = display_name(file)
    if not count:
        why = f": {reasons[0]}" if reasons else ""
        msg = f"nothing was said in {name}{why}"
        raise Refused(msg)
    more = f" and {count - _MOST_SOURCES:,} more" if count > _MOST_SOURCES else ""
    listed = f"{', '.join(labels)}{more}"
    if wanted is None:
        msg = f"{name} has {count:,} conversations: choose one with --conversation: {listed}"
    elif best:
        msg = f"{wanted!r} is the beginning of several ids in {name}: {listed}"
    else:
        msg = f"no conversation in {name} is {wanted!r}: there is {listed}"
    raise Refused(msg)


def _match(reading: ParsedConversation, number: int, wanted: str) -> int:
    """How a conversation matches: 0 by its id, 1 by its number, 2 by the beginning of its id."""
    name = str(reading.about.get("id", ""))
    if name == wanted:
        return 0
    if wanted == str(number):
        return 1
    return 2 if wanted and name.startswith(wanted) else _NOT


def _label(reading: ParsedConversation, number: int) -> str:
    about, size = reading.about, len(reading.messages)
    name = printable(str(about.get("id") or number))
    title = f"{printable(str(about['title']))[:60]!r}, " if about.get("title") else ""
    return f"{name} ({title}{size:,} message{'' if size == 1 else 's'})"
