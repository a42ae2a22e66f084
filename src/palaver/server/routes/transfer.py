"""Transfer: export and import conversations as files, convert between formats, and verify.

Transcripts of other programs on the server's machine are listed and brought in where the server
was started for that: under a key that the list gives them, never by a path.
"""

from __future__ import annotations

import re
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from anyio import to_thread
from litestar import Request, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.response import Stream
from msgspec import Meta, Raw, field
from msgspec.structs import replace

from palaver.errors import AlreadyExists, ValidationError
from palaver.server import demo
from palaver.server.errors import RequestRefused
from palaver.server.markdown import make_renderer
from palaver.server.requests import Shape
from palaver.server.security import check_segment
from palaver.server.services import ServiceDependency
from palaver.server.services.conversations import display_name
from palaver.stores.transfer import Form, import_conversation
from palaver.transcripts.discover import MAX_FOUND, PROGRAMS, discover, title_of
from palaver.transcripts.follow import bring_in, is_brought_in
from palaver.transcripts.importer import TranscriptImport
from palaver.transcripts.readers import NAMES, SNAPSHOTS, format_of, read_file, why_unknown
from palaver.wire import Note
from palaver.wire.convert import convert as convert_document
from palaver.wire.convert import export_as
from palaver.wire.notes import count_losses

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from palaver.server.services import Service
    from palaver.stores import Store
    from palaver.transcripts.discover import FoundTranscript
    from palaver.transcripts.follow import BroughtIn

__all__ = ["ROUTES"]

_IN_MEMORY: Final = 8 * 1024 * 1024
_RENDER_SECONDS: Final = 10.0
"""How long a thread is busy with the Markdown of an export; what is left then stays as written."""
_CHUNK: Final = 256 * 1024
_SNAPSHOT: Final[dict[str, Form]] = {
    "palaver-2": "document",
    "jsonl": "lines",
    "palaver-1": "version-1",
}
_ENDINGS: Final = {"jsonl": "jsonl", "markdown": "md", "html": "html"}
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")

_ConvertFormat = Literal["openai-chat", "openai-responses", "anthropic", "gemini", "palaver"]
_ExportFormat = Literal[
    "palaver-2", "jsonl", "palaver-1", "messages", "markdown", "html",
    "openai-chat", "openai-responses", "anthropic", "gemini",
]  # fmt: skip
_ImportFormat = Annotated[str | None, QueryParameter(name="format", max_length=40)]
_Id = Annotated[str | None, QueryParameter(name="id", min_length=1, max_length=200)]
_Owner = Annotated[str | None, QueryParameter(min_length=1, max_length=200)]
_FileName = Annotated[str | None, QueryParameter(max_length=500)]


class VerifyResult(Shape, frozen=True):
    """Everything that is wrong; `notes` says which messages a search does not find."""

    problems: list[str]
    notes: list[str]
    whole: bool


class ImportedConversation(Shape, frozen=True):
    """A conversation that was imported."""

    id: str
    title: str | None
    length: int


class ImportResult(Shape, frozen=True):
    """What was imported, what was there already, and what could not be converted."""

    origin: str = field(name="from")
    conversations: list[ImportedConversation]
    known: list[str]
    report: list[Note]


class ConvertRequest(Shape, frozen=True):
    """A document to convert to another format; a text is read as a transcript."""

    to: _ConvertFormat
    document: Annotated[Raw, Meta(extra_json_schema={"type": ["object", "array", "string"]})]
    from_: Annotated[str, Meta(max_length=40)] | None = field(default=None, name="from")
    model: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    strict: bool = False


class ConvertResult(Shape, frozen=True):
    """The converted document, and everything that was repaired or lost."""

    origin: str = field(name="from")
    document: Any
    notes: list[Note]


class TranscriptInfo(Shape, frozen=True):
    """A transcript on the server's machine; `imported` says that the store has all of it.

    `modified` is in milliseconds since 1970. `title` is there where titles were asked for.
    """

    key: str
    program: str
    name: str
    size: int
    modified: int
    imported: bool
    title: str | None = None


class TranscriptList(Shape, frozen=True):
    """Transcripts, the one that was written last first; what could not be looked at."""

    programs: dict[str, str]
    transcripts: list[TranscriptInfo]
    problems: list[str]


class BringInRequest(Shape, frozen=True):
    """The keys of the transcripts to bring in."""

    keys: Annotated[list[Annotated[str, Meta(max_length=40)]], Meta(min_length=1, max_length=100)]


class BroughtInConversation(Shape, frozen=True):
    """What came of a conversation of a transcript, or of a file that could not be read."""

    action: Literal["created", "appended", "replaced", "unchanged", "kept", "busy", "failed"]
    id: str | None
    title: str | None
    length: int
    added: int
    detail: str
    lost: int


class BringInResult(Shape, frozen=True):
    """What came of each conversation."""

    conversations: list[BroughtInConversation]


class ExamplesResult(Shape, frozen=True):
    """The conversation to begin with; `created` says whether the examples were written now."""

    id: str
    created: bool


@get(
    "/conversations/{conversation:str}/export",
    sync_to_thread=True,
    media_type="application/octet-stream",
)
def export(
    service: ServiceDependency,
    conversation: FromPath[str],
    form: Annotated[_ExportFormat, QueryParameter(name="format")] = "palaver-2",
) -> Stream:
    """Export a conversation as a file.

    "palaver-2" and "jsonl" hold everything: every version, batch and mark. "palaver-1" holds the
    messages and the team task, "messages" the messages as they are now, "markdown" and "html" the
    same for people, and the others a request for a provider.
    """
    spool: IO[bytes] = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed when it has been sent
    try:
        render = make_renderer(_RENDER_SECONDS)
        export_as(service.store, conversation, spool, _SNAPSHOT.get(form, form), render=render)
        spool.seek(0)
    except BaseException:
        spool.close()
        raise
    ending = _ENDINGS.get(form, "json")
    name = _UNSAFE.sub("-", conversation).strip("-.")[:80] or "conversation"
    headers = {"Content-Disposition": f'attachment; filename="{name}.{ending}"'}
    return Stream(_read_chunks(spool), media_type="application/octet-stream", headers=headers)


async def _read_chunks(spool: IO[bytes]) -> AsyncGenerator[bytes, None]:
    with spool:
        while chunk := await to_thread.run_sync(spool.read, _CHUNK):
            yield chunk


@post("/import", status_code=200, opt={"takes": "application/octet-stream"})
async def import_(
    request: Request[Any, Any, Any],
    service: ServiceDependency,
    form: _ImportFormat = None,
    name: _Id = None,
    missing: FromQuery[bool] = False,
    file: _FileName = None,
    owner: _Owner = None,
) -> ImportResult:
    """Import the conversations of a file (the body), each completely or not at all.

    The whole file is checked first. If a conversation can't be stored, those before it are removed
    again, except those that were changed or forked meanwhile: the error names them. If the server
    is killed, what is stored is complete, and the same file with `missing` imports the rest.

    The file has any format that an export has, or is a transcript of another tool, or requests to
    a provider; the format is detected unless `format` names it. `missing` skips conversations that
    are there already. They belong to the `owner`, or to whom the file says. A conversation without
    a title in which no user wrote is called after the `file`.
    """
    if name is not None:
        check_segment(name, "$.id")
    data = await request.body()
    found = await to_thread.run_sync(_import, service.store, data, form, name, missing, owner)
    return await to_thread.run_sync(_name_after, service.store, found, file)


def _name_after(store: Store, found: ImportResult, file: str | None) -> ImportResult:
    """Add what the conversations are called; one without a name is named after the file."""
    named: list[ImportedConversation] = []
    for one in found.conversations:
        head = store.head(one.id)
        name = display_name(store, head)
        if name is None and file:
            name = file.rpartition("/")[2].partition(".")[0] or file
            store.describe(one.id, title=name, tags=head.tags)
        named.append(replace(one, title=name))
    return replace(found, conversations=named)


def _import(
    store: Store, data: bytes, form: str | None, name: str | None, missing: bool, owner: str | None
) -> ImportResult:  # fmt: skip
    origin = _detect_format(data, form, "$.format")
    if origin in SNAPSHOTS:
        history = import_conversation(store, BytesIO(data), id=name, owner=owner)
        one = ImportedConversation(id=history.id, title=history.title, length=len(history))
        return ImportResult(origin=origin, conversations=[one], known=[], report=[])
    transcript = TranscriptImport(store, lambda: read_file(data, origin), name, owner=owner)
    transcript.plan()
    if transcript.unnamed:
        raise ValidationError("can't name several conversations", path="$.id", rule="import")
    if transcript.known and not missing:
        shown = ", ".join(map(repr, transcript.known[:5]))
        msg = f"the store has {shown} already: missing=true leaves out what is there"
        raise AlreadyExists(msg)
    if not transcript.known and not transcript.planned:
        why = f": {transcript.notes[0]}" if transcript.notes else ""
        raise ValidationError(f"nothing was said in it{why}", rule="import")
    transcript.run()
    made = [
        ImportedConversation(id=planned.id, title=planned.title, length=planned.size)
        for planned in transcript.planned
    ]
    return ImportResult(
        origin=origin, conversations=made, known=transcript.known, report=transcript.notes
    )


def _detect_format(data: bytes, form: str | None, path: str) -> str:
    """The format of some bytes; an unknown one is refused."""
    if form is not None and form not in (*NAMES, *SNAPSHOTS, "messages"):
        raise ValidationError(f"must be one of {', '.join(NAMES)}", path=path, rule="format")
    origin = format_of(data, None if form in SNAPSHOTS else form)
    if origin is None:
        raise ValidationError(why_unknown(data)[0], rule="transcript.format")
    if form == "opencode-folder":
        raise ValidationError("is a folder, which is no file", path=path, rule="format")
    return origin


@post("/convert", sync_to_thread=True, status_code=200, opt={"reads": True})
def convert(data: JSONBody[ConvertRequest]) -> ConvertResult:
    """Convert a conversation to another format; nothing is stored.

    `document` is a request, messages or a snapshot as JSON, or the text of a transcript. With
    `strict`, a conversion that loses something is refused.
    """
    source = _read_document(data.document)
    origin = _detect_format(source, data.from_, "$.from")
    found = [reading for reading in read_file(source, origin) if reading.messages]
    if len(found) != 1:
        detail = f"must hold one conversation, and holds {len(found):,}"
        raise ValidationError(detail, path="$.document", rule="convert")
    made = convert_document(found[0], origin, data.to, data.model)
    if data.strict and count_losses(made.notes):
        first = next(note for note in made.notes if note.action == "lost")
        raise RequestRefused(422, f"{count_losses(made.notes)} lost: {first}", path="$.document")
    return ConvertResult(origin=origin, document=made.result, notes=list(made.notes))


@get("/conversations/{conversation:str}/verify", sync_to_thread=True)
def verify(service: ServiceDependency, conversation: FromPath[str]) -> VerifyResult:
    """Verify a conversation: report everything that is wrong with it."""
    service.store.head(conversation)
    problems = list(service.store.verify(conversation))
    notes = [] if problems else list(service.store.notes(conversation))
    return VerifyResult(problems=problems, notes=notes, whole=not problems)


def _read_document(given: Raw) -> bytes:
    """The bytes of a document: JSON unchanged, or the text that a JSON string holds.

    >>> _read_document(Raw(b'"one line"'))
    b'one line'
    """
    data = bytes(given)
    return msgspec.json.decode(data, type=str).encode() if data.startswith(b'"') else data


@get("/transcripts", sync_to_thread=True)
def list_transcripts(service: ServiceDependency, titles: FromQuery[bool] = False) -> TranscriptList:
    """List the transcripts of other programs on the server's machine.

    Names, sizes and dates are looked at, and no file is opened; with `titles` the beginning of each
    is read. The server allows it only where it listens on loopback and is not read-only.
    """
    found, problems = _discover(service)
    listed = [
        TranscriptInfo(
            key=each.key,
            program=each.program,
            name=each.name,
            size=each.size,
            modified=each.modified,
            imported=service.brought_in.get(each.key) == (each.size, each.modified)
            or is_brought_in(service.store, each),
            title=title_of(each) if titles else None,
        )
        for each in reversed(found[-MAX_FOUND:])
    ]
    return TranscriptList(programs=dict(PROGRAMS), transcripts=listed, problems=problems)


@post("/transcripts", sync_to_thread=True, status_code=200)
def bring_in_transcripts(
    service: ServiceDependency, data: JSONBody[BringInRequest]
) -> BringInResult:
    """Bring in transcripts of the list; what the store has is stored once, what is new is added."""
    by_key = {each.key: each for each in _discover(service)[0]}
    for index, key in enumerate(data.keys):
        if key not in by_key:
            detail = "is no transcript that is there now: list them again"
            raise RequestRefused(404, detail, path=f"$.keys[{index}]")
    results: list[BroughtInConversation] = []
    for key in data.keys:
        found = by_key[key]
        mine = [_describe(result) for result in bring_in(service.store, found)]
        if not any(result.action in {"busy", "failed"} for result in mine):
            service.brought_in[key] = (found.size, found.modified)
        results += mine
    return BringInResult(conversations=results)


def _describe(result: BroughtIn) -> BroughtInConversation:
    return BroughtInConversation(
        action=result.action,
        id=result.conversation,
        title=result.title,
        length=result.messages,
        added=result.added,
        detail=result.detail,
        lost=count_losses(result.notes),
    )


def _discover(service: Service) -> tuple[list[FoundTranscript], list[str]]:
    settings = service.settings
    if not settings.discover or settings.read_only:
        why = "it is read-only" if settings.read_only else "it is not on loopback"
        detail = f"this server does not look at the files of its machine: {why}"
        raise RequestRefused(403, detail)
    return discover()


@post("/examples", sync_to_thread=True, status_code=200)
def write_examples(service: ServiceDependency) -> ExamplesResult:
    """Write the example conversations into the store, if it is empty."""
    created = demo.seed(service.store)
    if not created and demo.START not in service.store:
        raise RequestRefused(409, "the store has conversations: examples go into an empty one")
    return ExamplesResult(id=demo.START, created=created)


ROUTES: Final = [
    export, import_, convert, verify, list_transcripts, bring_in_transcripts, write_examples,
]  # fmt: skip
