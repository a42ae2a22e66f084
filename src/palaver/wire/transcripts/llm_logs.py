"""Conversations of simonw's llm, from its `logs.db`: a row for each call of a model.

A row has the prompt and the answer, and what belongs to it stands in other tables: attachments,
fragments, tool calls, and the results that came in with the prompt. Newer releases keep messages
instead (see `llm_threads`); both may be in one file, and a thread stands for the conversation of
its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages.message import Message
from palaver.wire.report import Reading
from palaver.wire.transcripts.building import Call, Conversation
from palaver.wire.transcripts.databases import open_database, text_of
from palaver.wire.transcripts.fields import milliseconds, name_in, parsed_input
from palaver.wire.transcripts.gathering import Notes
from palaver.wire.transcripts.llm_rows import attached, info_of, metadata_of
from palaver.wire.transcripts.llm_threads import read_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from palaver.wire.transcripts.building import Sheet
    from palaver.wire.transcripts.databases import Database

__all__ = ["TABLES", "THREADS", "read"]

TABLES: Final = ("conversations", "responses")
THREADS: Final = ("threads", "turns", "messages", "parts")
_RESPONSE: Final = (
    "id", "model", "resolved_model", "prompt", "system", "response", "reasoning", "options_json",
    "schema_id", "duration_ms", "datetime_utc", "input_tokens", "output_tokens", "token_details",
)  # fmt: skip
"""Everything but `prompt_json` and `response_json`, which say the same in the provider's words."""


def read(source: bytes | Path) -> Iterator[Reading]:
    """Read every conversation of a `logs.db`."""
    with open_database(source, Notes()) as database:
        threads: set[str] = set()
        if database.has(*TABLES):
            if database.has(*THREADS):
                tipped = database.rows("threads", ("id",), "where tip_message_hash is not null")
                threads = {text_of(row["id"]) for row in tipped}
            yield from _Responses(database).readings(threads)
        if database.has(*THREADS):
            yield from read_threads(database)
        if database.notes.all():  # damage that no conversation could tell
            yield Reading((), database.notes.all())


class _Responses:
    """The older tables, with the places of what has no index."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.calls = database.places("tool_calls", "response_id")
        self.results = database.places("tool_results", "response_id")

    def readings(self, elsewhere: set[str]) -> Iterator[Reading]:
        """One reading a conversation; those that are `elsewhere` too are left to the other side."""
        places = self.database.places("responses", "conversation_id", "datetime_utc")
        alone = places.pop("", [])
        for row in self.database.rows("conversations", ("id", "name", "model"), "order by rowid"):
            name = text_of(row["id"])
            mine = places.pop(name, [])
            if name in elsewhere:
                self.database.notes.passed_over(
                    f"conversation {name}", "responses", "the thread of this id says the same"
                )
                continue
            about = {"id": name, "title": text_of(row["name"]), "model": text_of(row["model"])}
            yield self._reading(name, mine, about)
        for name, mine in places.items():  # of conversations that are not there
            yield self._reading(name, mine, {"id": name})
        for place in alone:
            yield self._reading(None, [place], {})

    def _reading(self, name: str | None, places: list[int], about: Mapping[str, Any]) -> Reading:
        notes = self.database.notes
        talk = Conversation(name)
        shape = _Talk(talk, self.database)
        for place in places:
            row = self.database.at("responses", place, _RESPONSE)
            response = text_of(row["id"])
            try:
                shape.answer(row, self.results.get(response, []), self.calls.get(response, []))
            except ValidationError as error:
                notes.lost(f"response {response}", "transcript.damaged", str(error))
        made = {"created": talk.messages[0].timestamp} if talk.messages else {}
        known = {key: item for key, item in {**about, **made}.items() if item}
        self.database.notes = Notes()
        return Reading(tuple(talk.messages), notes.all(), known)


class _Talk:
    """A conversation, put together row by row."""

    def __init__(self, talk: Conversation, database: Database) -> None:
        self.talk = talk
        self.database = database
        self.system = ""
        self.open: dict[str, str] = {}

    def answer(self, row: Mapping[str, Any], results: list[int], calls: list[int]) -> None:
        """Add what one call of a model was given and gave."""
        talk, response = self.talk, text_of(row["id"])
        at = talk.at(milliseconds(text_of(row["datetime_utc"])))
        system = self._joined("system_fragments", response, text_of(row["system"]), "\n\n")
        if system and system != self.system:
            self.system = system
            name = talk.new_id(None, f"{response} system")
            talk.messages.append(Message("system", system, id=name, timestamp=at))
        for place in results:
            self._result(place, response, at)
        self._prompt(row, response, at)
        name = talk.new_id(response or None, f"{response} answer")
        sheet = talk.sheet(name)
        if thought := text_of(row["reasoning"]):
            sheet.reasoning(thought, at)
        if said := text_of(row["response"]):
            sheet.text(said)
        for index, place in enumerate(calls):
            self._call(place, f"{response}-{index}", sheet, at)
        talk.messages.append(
            Message(
                "assistant",
                sheet.content if sheet.parts else "",
                id=name,
                timestamp=at,
                info=info_of(row, at),
                metadata=metadata_of(row),
            )
        )

    def _prompt(self, row: Mapping[str, Any], response: str, at: int) -> None:
        text = self._joined("prompt_fragments", response, text_of(row["prompt"]), "\n")
        name = self.talk.new_id(None, f"{response} prompt")
        sheet = self.talk.sheet(name)
        if text:
            sheet.text(text)
        for file in attached(self.database, "prompt_attachments", "response_id", response):
            sheet.file(*file)
        if sheet.parts:
            self.talk.messages.append(Message("user", sheet.content, id=name, timestamp=at))

    def _joined(self, table: str, response: str, text: str, between: str) -> str:
        """A text with the fragments that stood before it."""
        database, mine = self.database, 'where response_id = ? order by "order"'
        rows = (
            database.rows(table, ("fragment_id",), mine, (response,)) if table in database else ()
        )
        ids = [row["fragment_id"] for row in rows]
        found = [database.rows("fragments", ("content",), "where id = ?", (name,)) for name in ids]
        pieces = [text_of(row["content"]) for rows in found for row in rows]
        if between == "\n\n":  # around a system text llm takes off what is blank
            return between.join(piece for item in (*pieces, text) if (piece := item.strip()))
        return between.join([*pieces, text] if text else pieces)

    def _call(self, place: int, usual: str, sheet: Sheet, at: int) -> None:
        row = self.database.at("tool_calls", place, ("name", "arguments", "tool_call_id"))
        tool, raw = name_in(row, "name") or "unknown", text_of(row["arguments"])
        call_id = name_in(row, "tool_call_id") or usual
        call = Call(tool, parsed_input(raw), raw, at)
        self.talk.calls[call_id] = call
        self.open[call_id] = tool
        sheet.call(call_id, call)

    def _result(self, place: int, response: str, at: int) -> None:
        columns = ("id", "name", "output", "tool_call_id", "exception")
        row = self.database.at("tool_results", place, columns)
        tool, output = name_in(row, "name"), text_of(row["output"])
        call_id = name_in(row, "tool_call_id") or next(
            (call for call, name in self.open.items() if name == tool), f"{response}-result-{place}"
        )
        self.open.pop(call_id, None)
        problem = text_of(row["exception"])
        name = self.talk.new_id(None, f"{response} result {place}")
        files = attached(self.database, "tool_results_attachments", "tool_result_id", row["id"])
        made = self.talk.result(
            call_id,
            output or problem,
            name,
            at,
            is_error=bool(problem),
            tool=tool,
            files=[file[:2] for file in files],
            metadata={"llm": {"exception": problem}} if problem else {},
        )
        self.talk.messages.append(made)
