"""Conversations out and in as files, from one format to another, and proof that one is whole."""

from __future__ import annotations

import re
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Annotated, Any, Final, Literal

from anyio import to_thread
from litestar import Request, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.response import Stream

from palaver import wire
from palaver.errors import AlreadyExists, ValidationError
from palaver.messages.codec import dump
from palaver.server.problems import Refusal
from palaver.server.service import Served
from palaver.server.shapes.carrying import (
    Conversion,
    Converted,
    Imported,
    ImportedOne,
    Proof,
    document_of,
)
from palaver.stores.snapshots import Form, export_conversation, import_conversation
from palaver.wire.conversions import converted
from palaver.wire.report import are_lost
from palaver.wire.target import Target
from palaver.wire.transcripts.files import NAMES, SNAPSHOTS, format_of, readings
from palaver.wire.transcripts.keeping import Transcript

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from palaver.stores import Store

__all__ = ["ROUTES"]

_IN_MEMORY: Final = 8 * 1024 * 1024
_CHUNK: Final = 256 * 1024
_SNAPSHOT: Final[dict[str, Form]] = {
    "palaver-2": "document",
    "jsonl": "lines",
    "palaver-1": "version-1",
}
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")

Out = Literal[
    "palaver-2", "jsonl", "palaver-1", "messages",
    "openai-chat", "openai-responses", "anthropic", "gemini",
]  # fmt: skip
In = Annotated[str | None, QueryParameter(name="format", max_length=40)]
Name = Annotated[str | None, QueryParameter(name="id", min_length=1, max_length=200)]


@get(
    "/conversations/{conversation:str}/export",
    sync_to_thread=True,
    media_type="application/octet-stream",
)
def export(
    service: Served,
    conversation: FromPath[str],
    form: Annotated[Out, QueryParameter(name="format")] = "palaver-2",
) -> Stream:
    """Give a conversation as a file.

    "palaver-2" and "jsonl" hold everything: every version, batch and mark. "palaver-1" holds what
    was said and the team task, "messages" the messages as they are now, the others a request of a
    provider.
    """
    spool: IO[bytes] = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed when it is sent
    try:
        _write(service.store, conversation, form, spool)
    except BaseException:
        spool.close()
        raise
    ending = "jsonl" if form == "jsonl" else "json"
    name = _ODD.sub("-", conversation).strip("-.")[:80] or "conversation"
    headers = {"Content-Disposition": f'attachment; filename="{name}.{ending}"'}
    return Stream(_sent(spool), media_type="application/octet-stream", headers=headers)


def _write(store: Store, conversation: str, form: Out, spool: IO[bytes]) -> None:
    if form in _SNAPSHOT:
        export_conversation(store, conversation, spool, form=_SNAPSHOT[form])
    elif form == "messages":
        spool.write(dump(store.get(conversation).messages))
    else:
        request = wire.to(form, store.get(conversation).view, Target(None, prefill=True))
        spool.write(dump(request.body))
    spool.seek(0)


async def _sent(spool: IO[bytes]) -> AsyncGenerator[bytes, None]:
    with spool:
        while chunk := await to_thread.run_sync(spool.read, _CHUNK):
            yield chunk


@post("/import", status_code=200, opt={"takes": "application/octet-stream"})
async def import_(
    request: Request[Any, Any, Any],
    service: Served,
    form: In = None,
    name: Name = None,
    missing: FromQuery[bool] = False,
) -> Imported:
    """Take the conversations of a file (the body) into the store, each whole or not at all.

    All of the file is checked first. Where one can't be stored, those before it are taken back,
    except those that somebody has changed or forked from meanwhile: the error names them. If the
    server is killed, what is there is whole, and the same file with `missing` brings in the rest.

    The file is of any form that an export has, a transcript of another tool, or requests to a
    provider; its content tells, unless `format` does. `missing` leaves out what is there already.
    """
    data = await request.body()
    return await to_thread.run_sync(_imported, service.store, data, form, name, missing)


def _imported(
    store: Store, data: bytes, form: str | None, name: str | None, missing: bool
) -> Imported:  # fmt: skip
    origin = _origin(data, form, "$.format")
    if origin in SNAPSHOTS:
        history = import_conversation(store, BytesIO(data), id=name)
        one = ImportedOne(id=history.id, title=history.title, length=len(history))
        return Imported(origin=origin, conversations=[one], known=[], report=[])
    transcript = Transcript(store, lambda: readings(data, origin), name)
    transcript.look()
    if transcript.unnamed:
        raise ValidationError("can't name several conversations", path="$.id", rule="import")
    if transcript.known and not missing:
        shown = ", ".join(map(repr, transcript.known[:5]))
        msg = f"the store has {shown} already: missing=true leaves out what is there"
        raise AlreadyExists(msg)
    if not transcript.known and not transcript.planned:
        why = f": {transcript.notes[0]}" if transcript.notes else ""
        raise ValidationError(f"nothing was said in it{why}", rule="import")
    transcript.keep()
    made = [
        ImportedOne(id=planned.id, title=planned.title, length=planned.size)
        for planned in transcript.planned
    ]
    return Imported(
        origin=origin, conversations=made, known=transcript.known, report=transcript.notes
    )


def _origin(data: bytes, form: str | None, path: str) -> str:
    """The format of some bytes; what nobody knows is refused."""
    if form is not None and form not in (*NAMES, *SNAPSHOTS, "messages"):
        raise ValidationError(f"must be one of {', '.join(NAMES)}", path=path, rule="format")
    origin = format_of(data, None if form in SNAPSHOTS else form)
    if origin is None:
        raise ValidationError("is in no format that palaver knows", rule="transcript.format")
    if form == "opencode-folder":
        raise ValidationError("is a folder, which is no file", path=path, rule="format")
    return origin


@post("/convert", sync_to_thread=True, status_code=200, opt={"reads": True})
def convert(data: JSONBody[Conversion]) -> Converted:
    """Write a conversation in another format; nothing is kept.

    `document` is a request, messages or a snapshot as JSON, or the text of a transcript. With
    `strict`, a loss is a refusal.
    """
    source = document_of(data.document)
    origin = _origin(source, data.from_, "$.from")
    found = [reading for reading in readings(source, origin) if reading.messages]
    if len(found) != 1:
        detail = f"must hold one conversation, and holds {len(found):,}"
        raise ValidationError(detail, path="$.document", rule="convert")
    made = converted(found[0], origin, data.to, data.model)
    if data.strict and are_lost(made.notes):
        first = next(note for note in made.notes if note.action == "lost")
        raise Refusal(422, f"{are_lost(made.notes)} lost: {first}", path="$.document")
    return Converted(origin=origin, document=made.result, notes=list(made.notes))


@get("/conversations/{conversation:str}/verify", sync_to_thread=True)
def verify(service: Served, conversation: FromPath[str]) -> Proof:
    """Walk through a conversation and say everything that is wrong with it."""
    service.store.keeper.head(conversation)
    problems = list(service.store.verify(conversation))
    notes = [] if problems else list(service.store.notes(conversation))
    return Proof(problems=problems, notes=notes, whole=not problems)


ROUTES: Final = [export, import_, convert, verify]
