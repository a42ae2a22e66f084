"""Files in a step: stored by value, of the type that they are, within limits, read or not read."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from palaver.conversation import model as named_model
from palaver.server.services.attachments import MAX_FILE, MAX_FILES
from palaver.testing.servers import Answer, ProviderServer
from palaver.wire import Target
from tests.conversation.scripted import Scripted, saying
from tests.server.scripted_server import ScriptedServer

if TYPE_CHECKING:
    from tests.server.client import APIClient

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
PDF = b"%PDF-1.7\n" + bytes(20)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def attached(data: bytes, filename: str, mime: str = "") -> dict[str, Any]:
    """A file as a page sends it."""
    return {"data": base64.b64encode(data).decode(), "filename": filename, "mime": mime}


def test_a_file_is_stored_with_its_message_and_sent_to_the_model() -> None:
    with ProviderServer("openai-chat", [Answer("A cup."), Answer("Two.")]) as server:
        model = named_model("openai:gpt-6", base_url=server.url)
        with ScriptedServer(model) as stage:
            talk = stage.ask.begun(id="tea")  # a name of one's own
            files = [attached(PNG, "cup.png", "image/png"), attached(b"milk\n", "list.txt")]
            begun = stage.step(talk, "What is it?", files=files)
            assert 1 == begun["version"]
            question, answer = stage.messages(talk)
            text, picture, notes = question["content"]
            assert ("What is it?", "A cup.") == (text["text"], answer["content"][1]["text"])
            url = f"data:image/png;base64,{files[0]['data']}"
            assert ("file", "image/png", "cup.png", url) == tuple(
                picture[name] for name in ("type", "mime", "filename", "url")
            )
            assert ("text/plain", "list.txt") == (notes["mime"], notes["filename"])
            assert {question["id"]} == {part["messageID"] for part in question["content"]}
            stage.step(talk, files=files[:1])  # without a word
            assert ["file"] == [part["type"] for part in stage.messages(talk)[2]["content"]]
            shown = stage.ask.good("GET", f"conversations/{talk}/request")
            (note,) = shown["notes"]
            assert ("repaired", "a file that is taken as text only") == (
                note["action"],
                note["why"],
            )
            assert [] == shown["problems"]  # nothing is wrong with such a history
            said = server.requests[0].body["messages"][0]["content"]
            assert [
                {"type": "text", "text": "What is it?"},
                {"type": "image_url", "image_url": {"url": url}},
                {"type": "text", "text": "milk\n"},
            ] == said


@pytest.mark.parametrize(
    ("data", "filename", "given", "mime"),
    [
        (PNG, "a.png", "image/png", "image/png"),
        (PNG, "a.jpg", "image/jpeg", "image/png"),  # a name is no proof
        (b"\xff\xd8\xff\xe0rest", "a", "", "image/jpeg"),
        (b"GIF87a..", "a.gif", "", "image/gif"),
        (b"GIF89a..", "a.gif", "image/gif", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "a.webp", "image/webp", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", "a.wav", "audio/wav", "audio/wav"),
        (b"not a picture \xff", "a.png", "image/png", "application/octet-stream"),
        (PDF, "a.pdf", "application/pdf", "application/pdf"),
        (SVG, "a.svg", "image/svg+xml", "text/xml"),
        (b"<p onclick=x>", "a.html", "text/html", "text/html"),
        (b"print(1)", "a.py", "text/x-python", "text/plain"),
        (b"let x = 1;", "a.ts", "video/mp2t", "text/plain"),
        (b"a: 1", "a.yaml", "", "text/plain"),
        (b'{"a": 1}', "a.json", "Application/JSON; charset=utf-8", "application/json"),
        (b"caf\xe9", "a.csv", "text/csv", "text/csv"),
        (b"PK\x03\x04\0\0\xff", "a.zip", "application/zip", "application/zip"),
        (b"\0\0\xff", "a", "no type", "application/octet-stream"),
    ],
)
def test_its_type_is_what_its_bytes_are(
    stage: ScriptedServer, data: bytes, filename: str, given: str, mime: str
) -> None:
    body = {"files": [attached(data, filename, given)]}
    (item,) = stage.ask.good("POST", "files", body)["items"]
    assert (mime, len(data)) == (item["mime"], item["size"])


def test_what_a_model_cannot_read_is_said_before_it_is_sent() -> None:
    actor = Scripted(saying("I see nothing."))
    files = [
        attached(PNG, "cup.png"),
        attached(PDF, "cup.pdf"),
        attached(SVG, "cup.svg", "image/svg+xml"),
        attached(b"milk", "list.txt"),
        attached(b"PK\x03\x04\0\xff", "all.zip", "application/zip"),
        attached(b"caf\xe9", "menu.csv", "text/csv"),
    ]
    reads = ["file", "file", "text", "text", "nothing", "nothing"]
    with ScriptedServer(actor) as stage:
        report = stage.ask.good("POST", "files", {"files": files})
        assert reads == [item["reads"] for item in report["items"]]
        actor.target = Target(images=False, files=False)
        blind = stage.ask.good("POST", "files", {"files": files, "model": "stage:actor"})
        assert ["nothing"] * 6 == [item["reads"] for item in blind["items"]]
        talk = stage.ask.begun()
        stage.step(talk, "Look.", files=files[:1])  # it was said: it is stored all the same
        shown = stage.ask.good("GET", f"conversations/{talk}/request")
        assert "unsupported" in {note["action"] for note in shown["notes"]}
        unknown = stage.ask.refused("POST", "files", {"files": [], "model": "nobody"})
        assert (422, "$.model") == (unknown["status"], unknown["path"])


@pytest.mark.parametrize(
    ("files", "path", "words"),
    [
        ([attached(bytes(MAX_FILE + 1), "big.bin")], "$.files[0]", "“big.bin” has 5.1 MB"),
        ([attached(PNG, "a.png"), attached(b"", "b.txt")], "$.files[1]", "“b.txt” is empty"),
        ([attached(b"x", "a.txt")] * (MAX_FILES + 1), "$.files", "length <= 10"),
        ([attached(b"x", "a\0b.txt")], "$.files[0].filename", ""),
        ([attached(b"x", "")], "$.files[0].filename", ""),
        ([{"filename": "a.txt", "data": "no base64!"}], "$.files[0].data", "base64"),
        ([{"filename": "a.txt", "url": "https://example.org/a"}], "$.files[0]", ""),
    ],
)
def test_what_is_too_large_or_no_file_is_refused_in_clear_words(
    stage: ScriptedServer, files: object, path: str, words: str
) -> None:
    talk = stage.ask.begun()
    refused = stage.ask.refused("POST", f"conversations/{talk}/step", {"files": files})
    assert 422 == refused["status"]
    assert refused["path"].startswith(path), refused
    assert words in refused["detail"]
    assert [] == stage.messages(talk)


def test_the_limits_are_told(ask: APIClient) -> None:
    limits = ask.good("GET", "info")["limits"]
    assert (MAX_FILE, MAX_FILES) == (limits["file"], limits["files"])


def test_with_a_key_a_file_is_added_once() -> None:
    with ScriptedServer(Scripted(saying("Yes."))) as stage:
        talk = stage.ask.begun()
        body = {"files": [attached(PNG, "cup.png")]}
        for _ in range(2):
            path = f"conversations/{talk}/step"
            stage.ask.good("POST", path, body, headers={"Idempotency-Key": "once"})
            stage.over(talk)
        assert ["user", "assistant"] == [one["role"] for one in stage.messages(talk)]
