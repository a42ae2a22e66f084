"""What goes with the next step: files, the system prompt, parameters, and switches of tools."""

from __future__ import annotations

import base64
import json
import struct
import threading
import zlib
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from palaver.messages import FilePart, system, user
from palaver.wire import Target
from tests.conversation.scripted import saying
from tests.page.accessibility import violations

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from playwright.sync_api import Dialog, Locator, Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer


def png(width: int, height: int) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\x2f\x55\xc8" * width) * height
    pieces = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in pieces)


PICTURE = png(240, 160)
SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" onload="document.title=\'ran\'">'
    b'<script>document.title="ran"</script></svg>'
)
HTML = b'<img src=x onerror="document.title=\'ran\'"><script>document.title="ran"</script>'
GIVE = """([where, kind, files]) => {
  const given = new DataTransfer();
  for (const [name, type, text] of files) {
    const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    given.items.add(new File([bytes], name, { type }));
  }
  const target = document.querySelector(where);
  const how = { bubbles: true, cancelable: true };
  if (kind === "paste") {
    target.dispatchEvent(new ClipboardEvent("paste", { ...how, clipboardData: given }));
    return "";
  }
  target.dispatchEvent(new DragEvent("dragover", { ...how, dataTransfer: given }));
  const asked = document.body.dataset.dropping;
  target.dispatchEvent(new DragEvent("drop", { ...how, dataTransfer: given }));
  return asked;
}"""
"""Paste or drop files on an element, as a browser would; what the page said before the drop."""
ENTER_TWICE = """() => {
  for (let n = 0; n < 2; n += 1) {
    const how = { key: "Enter", bubbles: true, cancelable: true };
    document.getElementById("say").dispatchEvent(new KeyboardEvent("keydown", how));
  }
}"""


def give(page: Page, where: str, kind: str, *files: tuple[str, str, bytes]) -> str:
    listed = [(name, mime, base64.b64encode(data).decode()) for name, mime, data in files]
    asked: str = page.evaluate(GIVE, [where, kind, listed])
    return asked


def test_files_are_picked_pasted_and_dropped_and_are_sent_with_the_message(
    open_page: OpenPage, server: PageServer, tmp_path: Path
) -> None:
    server.store.create([user("Hello")], id="attach")
    gate = threading.Event()
    server.say([gate, *saying("A blue one.")])
    page = open_page("#/c/attach")
    box = page.locator("pv-composer")
    files = box.get_by_role("list", name="Attached files")
    path = tmp_path / "blue.png"
    path.write_bytes(PICTURE)
    with page.expect_file_chooser() as chooser:
        box.get_by_role("button", name="Attach files…").click()
    chooser.value.set_files(path)
    expect(files.get_by_role("listitem")).to_have_count(1)
    assert "" == give(page, "#say", "paste", ("notes.md", "", b"# Tea\n"))
    expect(files.get_by_role("listitem").nth(1)).to_contain_text("Sent as text")
    # what no transcript is belongs to the box wherever it is dropped
    assert "attach it" in give(page, "pv-thread", "drop", ("logo.png", "image/png", PICTURE))
    page_of_it = ("page.html", "text/html", HTML)
    assert "attach it" in give(page, "#say", "drop", ("x.svg", "image/svg+xml", SVG), page_of_it)
    expect(files.get_by_role("listitem")).to_have_count(5)
    expect(files.locator("img")).to_have_count(2)
    assert [] == violations(page, "pv-composer")
    files.get_by_role("button", name="Remove logo.png").focus()
    page.keyboard.press("Enter")
    expect(files.get_by_role("listitem")).to_have_count(4)
    expect(page.locator("#say")).to_be_focused()
    page.keyboard.type("Which colour?")
    page.evaluate(ENTER_TWICE)
    expect(page.locator("#say")).to_have_value("")
    expect(page.locator(".composer-note")).to_be_hidden()  # nothing is left to send afterwards
    gate.set()

    shown = page.locator("pv-message[data-index='1']")
    expect(page.locator("pv-message[data-index='2']")).to_contain_text("A blue one.")
    expect(page.locator("pv-attachments")).to_be_hidden()
    see_the_cards(page, shown)
    _, question, _ = server.store.get("attach")
    parts = [part for part in question.parts if isinstance(part, FilePart)]
    assert [
        ("blue.png", "image/png"),
        ("notes.md", "text/plain"),
        ("x.svg", "text/xml"),
        ("page.html", "text/html"),
    ] == [(part.filename, part.mime) for part in parts]
    assert all(part.url.startswith(f"data:{part.mime};base64,") for part in parts)
    asked = server.model.asked[0].body["messages"][-1]["content"]
    assert ["text", "image_url", "text", "text", "text"] == [block["type"] for block in asked]


def see_the_cards(page: Page, shown: Locator) -> None:
    """A picture as a thumbnail, text to unfold, each to be saved; nothing of it runs."""
    expect(shown.locator(".file")).to_have_count(4)
    picture = shown.locator("img")
    expect(picture).to_have_count(1)
    assert 240 == picture.evaluate("(img) => img.naturalWidth")
    shown.get_by_role("button", name="blue.png", exact=True).click()
    expect(shown.locator(".thumbnail")).to_have_attribute("aria-expanded", "true")
    shown.get_by_text("Text", exact=True).last.click()
    expect(shown.locator(".file").last).to_contain_text('<img src=x onerror="')
    with page.expect_download() as saved:
        shown.get_by_role("button", name="Save page.html").click()
    assert ("page.html", HTML) == (saved.value.suggested_filename, saved.value.path().read_bytes())
    assert "ran" not in page.title()
    assert [] == violations(page, "pv-thread")


def test_what_cannot_be_read_or_is_too_large_is_said_before_it_is_sent(
    open_page: OpenPage, server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.model, "target", Target(images=False, files=False))
    server.store.create([user("Hello")], id="unreadable")
    page = open_page("#/c/unreadable")
    give(page, "#say", "paste", ("blue.png", "image/png", PICTURE))
    files = page.get_by_role("list", name="Attached files")
    expect(files).to_contain_text("read it. It is stored with the message, and not sent.")
    assert [] == violations(page, "pv-composer")
    page.evaluate(
        """() => {
          const given = new DataTransfer();
          given.items.add(new File([new Uint8Array(5 * 1024 * 1024 + 1)], "huge.bin"));
          given.items.add(new File([], "empty.txt"));
          for (let n = 0; n < 12; n += 1) given.items.add(new File(["x"], `${n}.txt`));
          const how = { bubbles: true, clipboardData: given };
          document.getElementById("say").dispatchEvent(new ClipboardEvent("paste", how));
        }"""
    )
    said = page.locator("pv-attachments [role=alert]")
    expect(said).to_contain_text("“huge.bin” has 5.1 MB. A file may have 5 MB at most.")
    expect(said).to_contain_text("“empty.txt” is empty.")
    expect(said).to_contain_text("A message may have 10 files at most.")
    expect(files.get_by_role("listitem")).to_have_count(10)
    page.locator("pv-sidebar").get_by_role("button", name="New").click()
    expect(page.locator("pv-attachments")).to_be_hidden()  # they belong to their conversation
    page.go_back()
    expect(files.get_by_role("listitem")).to_have_count(10)
    server.say(saying("I see nothing."))
    page.locator("#say").press("Enter")  # said is said: it may be sent without a word
    expect(page.locator("pv-message[data-index='2']")).to_contain_text("I see nothing.")
    assert "not included" in json.dumps(server.model.asked[0].body)


def test_files_of_a_message_that_was_refused_stay_in_the_box(
    open_page: OpenPage, server: PageServer, expected: list[str]
) -> None:
    expected.append("503")
    server.store.create([user("Hello")], id="refused-files")
    page = open_page("#/c/refused-files")
    give(page, "#say", "paste", ("blue.png", "image/png", PICTURE))
    files = page.get_by_role("list", name="Attached files").get_by_role("listitem")
    expect(files).to_have_count(1)
    page.route("**/step", lambda route: route.fulfill(status=503, body="{}"))
    page.locator("#say").press("Enter")
    failed = page.locator("pv-failed-step")
    expect(failed).to_be_visible()
    expect(files).to_have_count(1)
    page.unroute("**/step")
    server.say(saying("A blue one."))
    failed.get_by_role("button", name="Retry").click()
    expect(page.locator("pv-message[data-index='2']")).to_contain_text("A blue one.")
    expect(page.locator("pv-message[data-index='1'] img")).to_have_count(1)
    expect(files).to_have_count(0)


def test_prompt_parameters_and_tools_of_a_conversation_by_the_keyboard(
    open_page: OpenPage, server: PageServer
) -> None:
    server.store.create([user("Hello")], id="tuned")
    page = open_page("#/c/tuned/request")
    opener = page.get_by_role("button", name="Prompt and parameters…")
    opener.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("textbox", name="System prompt")).to_be_focused()
    page.keyboard.type("Be brief.")
    page.keyboard.press("Tab")
    expect(dialog.get_by_role("spinbutton", name="Temperature")).to_be_focused()
    page.keyboard.type("0.4")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("250")
    page.keyboard.press("Tab")
    expect(dialog.get_by_role("combobox", name="Reasoning effort")).to_be_focused()
    page.keyboard.type("high")
    page.keyboard.press("Tab")
    expect(dialog.get_by_role("checkbox", name="current_time")).to_be_focused()
    page.keyboard.press("Space")
    assert [] == violations(page, "dialog")
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(opener).to_be_focused()

    first = page.locator("pv-message[data-index='0']")
    expect(first).to_contain_text("Be brief.")
    expect(page.get_by_role("button", name="Tools 3 of 4")).to_be_visible()
    tree = page.locator("pv-request .j-tree")
    expect(tree.locator("[data-path='$.temperature']")).to_contain_text("0.4")
    expect(tree.locator("[data-path='$.max_tokens']")).to_contain_text("250")
    expect(tree.locator("[data-path='$.effort']")).to_contain_text('"high"')
    expect(tree.locator("[data-path='$.tools']")).to_contain_text("calculate")
    expect(tree.locator("[data-path='$.tools']")).not_to_contain_text("current_time")
    server.say(saying("Yes."))
    page.locator("#say").fill("Tea?")
    page.locator("#say").press("Enter")
    expect(page.locator("pv-message[data-index='3']")).to_contain_text("Yes.")
    asked = server.model.asked[0]
    assert {"temperature": 0.4, "max_tokens": 250, "effort": "high"} == dict(asked.options)
    assert ["calculate", "roll_dice", "search_conversations"] == [one.name for one in asked.tools]
    assert "Be brief." == asked.body["messages"][0]["content"]


def test_a_dropped_transcript_is_imported_and_what_is_none_may_be_attached(
    open_page: OpenPage, server: PageServer, expected: list[str]
) -> None:
    expected.append("422")
    server.store.create([user("Hello")], id="dropped")
    page = open_page("#/c/dropped")
    assert "import it" in give(page, "pv-thread", "drop", ("list.txt", "text/plain", b"milk\n"))
    toast = page.locator(".toast.error")
    expect(toast).to_contain_text("“list.txt” could not be imported")
    toast.get_by_role("button", name="Attach it instead").click()
    expect(page.get_by_role("list", name="Attached files")).to_contain_text("list.txt")
    asked: list[str] = []

    def leave(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", leave)
    page.locator("#say").press("Shift+Enter")  # a browser asks only whom it has heard
    page.reload()
    assert ["beforeunload"] == asked
    talk = [{"role": "user", "content": "Fog?"}, {"role": "assistant", "content": "Tea."}]
    dropped = ("talk.json", "application/json", json.dumps(talk).encode())
    expect(page.locator("pv-message[data-index='0']")).to_contain_text("Hello")
    give(page, "pv-thread", "drop", dropped)
    expect(page.locator("pv-thread")).to_contain_text("Tea.")
    assert "dropped" not in page.url


def test_no_tool_is_suggested_that_the_conversation_has_switched_off(
    open_page: OpenPage, server: PageServer
) -> None:
    server.store.create(id="unsuggested")
    page = open_page("#/c/unsuggested")
    offered = page.locator("pv-suggestions button")
    expect(offered).to_have_count(3)
    server.ask("PATCH", "conversations/unsuggested", {"settings": {"tools": ["calculate"]}})
    expect(offered).to_have_count(2)
    server.ask("PATCH", "conversations/unsuggested", {"settings": {"tools": False}})
    expect(offered).to_have_count(1)
    opener = page.get_by_role("button", name="Prompt and parameters…")
    opener.click()
    page.get_by_role("dialog").get_by_role("checkbox", name="roll_dice").check()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(offered).to_have_count(2)
    settings = server.ask("GET", "conversations/unsuggested")["settings"]
    assert {"options": {}, "tools": ["roll_dice"]} == settings


def test_another_browser_has_them_and_the_prompt_is_an_edit(
    open_page: OpenPage, server: PageServer, expected: list[str]
) -> None:
    expected.append("412")
    server.store.create([user("Hello")], id="shared-settings")
    here = open_page("#/c/shared-settings", scheme="dark", language="zh-CN")
    there = open_page("#/c/shared-settings")
    options: dict[str, Any] = {"temperature": 1, "stop": ["###"]}
    settings = {"options": options, "tools": ["calculate"]}
    server.ask("PATCH", "conversations/shared-settings", {"settings": settings})
    tools = there.get_by_role("button", name="Tools 1 of 4")
    expect(tools).to_have_attribute("aria-pressed", "true")
    tools.click()
    expect(there.get_by_role("button", name="Tools", exact=True)).to_have_attribute(
        "aria-pressed", "false"
    )
    here.get_by_role("button", name="提示词与参数…").click()
    dialog = here.get_by_role("dialog")
    expect(dialog.get_by_role("checkbox", name="calculate")).not_to_be_checked()
    expect(dialog.get_by_role("spinbutton", name="温度")).to_have_value("1")
    assert [] == violations(here, "dialog")
    dialog.get_by_role("spinbutton", name="温度").fill("")
    dialog.get_by_role("textbox", name="系统提示词").fill("简短回答。")
    dialog.get_by_role("button", name="保存").click()
    expect(there.locator("pv-message[data-index='0']")).to_contain_text("简短回答。")
    kept = server.ask("GET", "conversations/shared-settings")["settings"]
    assert {"options": {"stop": ["###"]}, "tools": False} == kept  # what has no field is left alone

    opener = there.get_by_role("button", name="Prompt and parameters…")
    opener.click()
    prompt = there.get_by_role("dialog").get_by_role("textbox", name="System prompt")
    expect(prompt).to_have_value("简短回答。")
    prompt.fill("Be long.")
    save = there.get_by_role("dialog").get_by_role("button", name="Save")
    history = server.store.get("shared-settings")
    history.append(
        user("And I?")
    )  # such as the end of an answer: it has nothing to do with the prompt
    save.click()
    expect(there.locator("pv-message[data-index='0']")).to_contain_text("Be long.")
    expect(there.locator("pv-head")).to_contain_text("3 messages")

    opener.click()
    prompt.fill("Mine.")
    history.refresh()
    history.replace(0, system("Theirs."))
    save.click()
    told = there.get_by_role("dialog").get_by_role("alert")
    expect(told).to_contain_text("Somebody changed the prompt meanwhile. It says now: Theirs.")
    expect(prompt).to_have_value("Mine.")
    save.click()  # in full knowledge
    expect(there.locator("pv-message[data-index='0']")).to_contain_text("Mine.")
    there.get_by_role("button", name="Undo").click()
    expect(there.locator("pv-message[data-index='0']")).to_contain_text("Theirs.")
    opener.click()
    prompt.fill("")
    save.click()
    expect(there.locator("pv-head")).to_contain_text("2 messages")
