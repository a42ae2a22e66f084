"""Documents for people: everything that was said is in them, and nothing in them runs."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.errors import ValidationError
from palaver.messages import new_id, parse_message
from palaver.server.markdown import make_renderer
from palaver.stores.transfer.documents import write_html
from palaver.wire.convert import export_as
from tests.page import samples
from tests.page.hostile_markdown import HOSTILE

if TYPE_CHECKING:
    from palaver.stores import Store

_ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "a", "article",
    "header", "div", "pre", "details", "summary", "figure", "img", "figcaption", "ul", "ol", "li",
    "blockquote", "em", "strong", "s", "code", "table", "thead", "tbody", "tr", "th", "td", "hr",
    "br", "sup", "h4", "h5", "h6",
}  # fmt: skip
_ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "src", "alt", "rel",
    "start",
}  # fmt: skip


@pytest.fixture
def store() -> Store:
    return palaver.open(":memory:")


def document(store: Store, name: str, form: str) -> str:
    file = io.BytesIO()
    assert () == export_as(store, name, file, form)
    return file.getvalue().decode()


class Reader(HTMLParser):
    """The elements and attributes of a document, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_markdown_has_everything_that_was_said(store: Store) -> None:
    text = document(store, samples.rich(store), "markdown")
    assert text.startswith("# Deploy at dawn\n\n9 messages, version 2\n\n## 1. System\n")
    for said in (
        "> The health endpoint answers first; logs only if it does not.",
        '**Call of http\\_get**\n\n```json\n{\n  "path": "/health",',
        '**Result of http\\_get**\n\n```\n{\n  "status": "degraded"',
        "*File: file:///tmp/trace.log (text/plain)*",
        "```python\ndef drain(queue):",
        "*Picture: dashboard.png*",
        "**Error of drain\\_queue**\n\n```\npermission denied: drain needs an operator\n```",
        "claude-sonnet-5-5",
        "#decision",
        "*2,228 tokens in, 119 out · $0.0042*",
        "*Compacted*",
        "*Interrupted: this is what had arrived*",
        "*Tried again, attempt 2: overloaded*",
        "**Task for reader: Logs**\n\n```\nRead the logs\n```",
        "worker.py\nqueue.py",
        "*Snapshot a81f*",
        "*Calls reader*",
        "**Part of an unknown type: hologram**",
    ):
        assert said in text
    team = document(store, samples.team_talk(store), "markdown")
    assert "## 2. Planner → coder, critic\n" in team


def test_code_in_markdown_can_not_leave_its_fence(store: Store) -> None:
    part = {"type": "tool", "id": new_id(), "sessionID": new_id(), "messageID": new_id(),
            "callID": "c", "tool": "read", "state": {"status": "completed", "input": {},
            "output": "a\n`````\n# not a heading", "title": "", "metadata": {},
            "time": {"start": 1, "end": 2}}}  # fmt: skip
    history = store.create([parse_message({"role": "tool", "content": [part]})])
    assert "\n``````\na\n`````\n# not a heading\n``````\n" in document(
        store, history.id, "markdown"
    )


def test_what_models_do_not_see_and_what_was_erased_says_so(store: Store) -> None:
    note = {"type": "text", "id": new_id(), "sessionID": new_id(), "messageID": new_id(),
            "text": "An aside.", "ignored": True}  # fmt: skip
    compacted = {"type": "compaction", "id": new_id(), "sessionID": new_id(),
                 "messageID": new_id(), "auto": False}  # fmt: skip
    history = store.create(
        [
            palaver.user("\n  The door code\nis 4711 "),
            parse_message(
                {
                    "role": "assistant",
                    "content": [note, compacted],
                    "info": {"role": "assistant", "error": {"name": "Overloaded"}},
                }
            ),
        ]
    )
    text = document(store, history.id, "markdown")
    assert text.startswith("# The door code\n")
    assert "**Not sent to models**\n\nAn aside.\n" in text
    assert "*Compacted by hand*" in text
    assert '**Error**\n\n```json\n{\n  "name": "Overloaded"' in text
    history.erase(history[0].id)
    text = document(store, history.id, "markdown")
    assert text.startswith("# Conversation\n")
    assert "4711" not in text
    assert "*Erased: only its place is left*" in text


@pytest.mark.parametrize("make", [samples.mischief, samples.rich])
def test_html_is_one_file_in_which_nothing_runs(store: Store, make: Any) -> None:  # noqa: ANN401 - a sample
    name = make(store)
    text = document(store, name, "html")
    found = Reader()
    found.feed(text)
    assert found.tags <= _ALLOWED
    assert {key for key, _ in found.attributes} <= _ATTRIBUTES
    for key, value in found.attributes:
        if key == "href":
            assert (value or "").startswith("#m")
        if key == "src":
            assert (value or "").startswith("data:image/png;base64,")
    assert "default-src 'none'" in text
    for message in store.get(name):
        for said in (message.text, *(getattr(part, "text", "") for part in message.parts)):
            assert said in found.text


def test_markdown_in_an_answer_is_formatted_and_nothing_of_it_runs(store: Store) -> None:
    short = {name: text for name, text in HOSTILE.items() if len(text) < 2_000}
    answers = [palaver.assistant(text) for text in short.values()]
    nice = (
        "# Plan\n\n- [x] *one*\n- [ ] **two**\n\n3. three\n4. four\n\n> quoted `code`\n\n"
        "| a | b |\n|---|--:|\n| 1 | ~~2~~ |\n\n[tea](https://example.org/tea) [^1]  \n$x^2$\n\n"
        "---\n"
        "```python\nprint('<tea>')\n```\n![kettle](https://example.org/k.png)\n"
    )
    history = store.create([palaver.user("**asked**"), palaver.assistant(nice), *answers])
    file = io.BytesIO()
    export_as(store, history.id, file, "html", render=make_renderer(60))
    text = file.getvalue().decode()
    for made in (
        "**asked**",
        "<h3>Plan</h3>",
        "<li>☑ <em>one</em></li>",
        "<li>☐ <strong>two</strong></li>",
        '<ol start="3">',
        "<blockquote><p>quoted <code>code</code></p></blockquote>",
        '<td class="right"><s>2</s></td>',
        '" rel="noreferrer noopener">tea</a> (https://example.org/tea)',
        "<code>$x^2$</code>",
        "<pre>print(&#x27;&lt;tea&gt;&#x27;)</pre>",
        ">Picture: kettle</a>",
    ):
        assert made in text
    found = Reader()
    found.feed(text)
    assert found.tags <= _ALLOWED
    assert {key for key, _ in found.attributes} <= _ATTRIBUTES
    for key, value in found.attributes:
        assert key != "href" or re.match(r"#m\d+\Z|https?://|mailto:", value or "")
    assert all(f"end-of-{name}" in found.text for name in short)


def test_a_tree_makes_no_other_links_and_elements_than_those_that_are_known(store: Store) -> None:
    history = store.create([palaver.assistant("go")])
    odd = [["a", {"href": "javascript:x()"}, ["go"]], ["script", {"src": "x"}, ["<b>"]]]
    file = io.BytesIO()
    write_html(history.view, file, render=lambda _: odd)
    assert b'<div class="formatted">go (javascript:x())&lt;b&gt;</div>' in file.getvalue()


def test_an_unknown_format_is_refused_with_those_that_are_known(store: Store) -> None:
    name = store.create().id
    with pytest.raises(ValidationError, match=r"must be one of lines, .*gemini, not 'tape'"):
        export_as(store, name, io.BytesIO(), "tape")
