"""What a model writes, as Markdown: read, copied, while it grows, and when it means harm."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pytest
from playwright.sync_api import expect

from palaver.messages import parse_message
from tests.conversation.scripted import saying
from tests.page.accessibility import violations
from tests.page.conftest import NARROW, WIDE
from tests.page.hostile_markdown import HOSTILE

if TYPE_CHECKING:
    from typing import Literal

    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

ANSWER: Final = r"""# Result

It is **degraded**, see the [runbook](https://ops.example.com/run "Run") or <ops@example.com>.
A second line.[^1]

1. Look
   - closely
2. Drain

- [x] read the logs
- [ ] restart

> Only an operator.

| Service | Orders |
|:--|--:|
| checkout | 1,841 |

```python
@retry
def drain(queue):
    return "x" if queue else None, 1  # all
```

```diff
-old
+new
```

The rate is $\lambda = \frac{1}{n}$.

$$
W = \frac{1}{\mu - \lambda}
$$

![A chart](https://charts.example.com/q.png)

[^1]: this ends 🙂 here\.
"""
_SHAPE: Final = """(body) => {
  const shape = (node) => node.nodeType === Node.TEXT_NODE ? node.data
    : node.matches(".rest") ? [] : [node.localName, [...node.childNodes].flatMap(shape)];
  return JSON.stringify([...body.childNodes].flatMap(shape));
}"""
_FRAMES: Final = """(() => {
  const frames = (window.__frames = []);
  let last = performance.now();
  const next = (now) => { frames.push(now - last); last = now; requestAnimationFrame(next); };
  requestAnimationFrame(next);
})()"""


def told(server: PageServer, name: str, *texts: str, role: str = "assistant") -> str:
    """The place of a conversation with these messages."""
    if name not in server.store:
        history = server.store.create(id=name, title=name)
        history.extend(parse_message({"role": role, "content": text}) for text in texts)
    return f"#/c/{name}"


def test_an_answer_is_shown_as_markdown(open_page: OpenPage, server: PageServer) -> None:
    page = open_page(told(server, "markdown", ANSWER))
    body = page.locator(".markdown")
    for selector, text in {
        "h2.level-1": "Result",
        "strong": "degraded",
        "ol > li > ul > li": "closely",
        "blockquote": "Only an operator.",
        "th.to-right": "Orders",
        "td.to-right": "1,841",
        ".code-string": '"x"',
        ".code-deleted": "-old",
        "sup >> nth=0": "1",
        "math[display=block] mfrac mrow >> nth=1": "μ\u2212λ",
    }.items():
        expect(body.locator(selector).first).to_have_text(text)
    expect(page.get_by_role("checkbox", name="Not done")).to_be_disabled()
    expect(page.get_by_role("checkbox", name="Done", exact=True)).to_be_checked()
    expect(body.locator("img")).to_have_count(0)


def test_a_link_says_where_it_leads(open_page: OpenPage, server: PageServer) -> None:
    page = open_page(told(server, "markdown", ANSWER))
    body = page.locator(".markdown")
    link = body.get_by_role("link", name="runbook")
    expect(link).to_have_text("runbook (ops.example.com, “Run”)")
    expect(link).to_have_attribute("rel", "noreferrer noopener")
    expect(link).to_have_attribute("target", "_blank")
    picture = body.get_by_role("link", name="Picture: A chart")
    expect(picture).to_have_attribute("href", "https://charts.example.com/q.png")
    expect(body.get_by_role("link", name="ops@example.com")).to_have_attribute(
        "href", "mailto:ops@example.com"
    )


@pytest.mark.parametrize(
    ("scheme", "size", "language"),
    [("light", WIDE, "en-US"), ("dark", WIDE, "en-US"), ("dark", NARROW, "zh-CN")],
)
def test_everyone_can_read_it(
    open_page: OpenPage,
    server: PageServer,
    scheme: Literal["light", "dark"],
    size: tuple[int, int],
    language: str,
) -> None:
    place = told(server, "markdown", ANSWER)
    page = open_page(place, scheme=scheme, size=size, language=language)
    expect(page.locator(".code-comment").first).to_be_attached()
    assert [] == violations(page, ".markdown")
    wide, seen = page.locator(".scroller").evaluate("(one) => [one.scrollWidth, one.clientWidth]")
    assert wide <= seen


def test_the_source_is_one_key_away_and_stays_chosen(
    open_page: OpenPage, server: PageServer
) -> None:
    page = open_page(told(server, "toggled", "It is **bold**."))
    row = page.locator("pv-message")
    expect(row.locator("strong")).to_have_text("bold")
    row.hover()
    row.get_by_role("button", name="Show the source").click()
    expect(row).to_contain_text("It is **bold**.")
    page.reload()
    expect(row).to_contain_text("It is **bold**.")
    row.click()
    page.keyboard.press("v")
    expect(row.locator("strong")).to_have_text("bold")


def test_what_a_person_wrote_stays_as_it_is_unless_asked(
    open_page: OpenPage, server: PageServer
) -> None:
    page = open_page(told(server, "person", "Is *this*\nit?", role="user"))
    row = page.locator("pv-message")
    expect(row.locator(".text")).to_have_text("Is *this* it?")
    row.click()
    page.keyboard.press("v")
    expect(row.locator("em")).to_have_text("this")


def test_who_copies_gets_the_source(open_page: OpenPage, server: PageServer) -> None:
    page = open_page(told(server, "markdown", ANSWER))
    page.locator(".code-block").first.get_by_role("button", name="Copy").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("@retry\ndef drain(queue):\n    return")
    page.locator("p", has_text="The rate is").evaluate(
        "(one) => getSelection().selectAllChildren(one)"
    )
    page.keyboard.press("Control+c")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert r"The rate is $\lambda = \frac{1}{n}$." == copied.replace("\n", "")


def test_an_answer_that_grows_looks_as_it_will_when_it_is_stored(
    open_page: OpenPage, server: PageServer
) -> None:
    server.model.lines.clear()
    name = server.store.create(id="grows", title="grows").id
    page = open_page()
    page.evaluate("(name) => (location.hash = `#/c/${name}`)", name)
    half, whole = threading.Event(), threading.Event()
    words = saying(*(ANSWER[at : at + 7] for at in range(0, len(ANSWER), 7)))
    server.say([*words[:40], half, *words[40:-2], whole, *words[-2:]])
    server.ask("POST", f"conversations/{name}/step", {"text": "Go on"})
    draft = page.locator("pv-draft .markdown")
    expect(draft.locator("strong")).to_have_text("degraded")
    heading = draft.locator("h2").element_handle()
    half.set()
    expect(draft.locator("a.picture")).to_be_visible()
    expect(draft).to_contain_text("here.")  # no backslash: the last look has seen it
    assert heading.evaluate("(one) => one.isConnected")  # a settled block was drawn once
    late = open_page(f"#/c/{name}")
    expect(late.locator("pv-draft .markdown")).to_contain_text("here.")
    grown = draft.evaluate(_SHAPE)
    assert grown == late.locator("pv-draft .markdown").evaluate(_SHAPE)
    whole.set()
    stored = page.locator("pv-message[data-index='1'] .markdown")
    expect(stored).to_contain_text("here.")
    assert grown == stored.evaluate(_SHAPE)


_STRANGE: Final = """() => [...document.querySelectorAll(".prose *")].filter((one) =>
  one.matches("script, style, iframe, object, embed, img, form, maction, semantics, annotation-xml")
  || [...one.attributes].some(({ name }) => name.startsWith("on") || name === "style")
  || (one.hasAttribute("href") && one.localName !== "use" && !/^(https?|mailto):/.test(one.href))
).map((one) => one.outerHTML.slice(0, 200))"""


def read_through(page: Page, names: list[str]) -> None:
    """Look at every message; each is there to its end, or offers the rest."""
    page.keyboard.press("g")
    page.keyboard.press("g")
    for index, name in enumerate(names):
        page.keyboard.press("j")
        row = page.locator(f"pv-message[data-index='{index}']")
        expect(row).to_be_in_viewport()
        more = row.get_by_role("button", name="Show all")
        expect(row.get_by_text(f"end-of-{name}").or_(more).last).to_be_attached()
        assert [] == page.evaluate(_STRANGE)


def test_nothing_hostile_runs_or_is_fetched(open_page: OpenPage, server: PageServer) -> None:
    page = open_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    place = told(server, "hostile", *HOSTILE.values())
    page.evaluate("(place) => (location.hash = place)", place)
    page.wait_for_selector("pv-message .message-body")
    page.evaluate(_FRAMES)
    read_through(page, list(HOSTILE))
    assert page.evaluate("window.__pwned === undefined")
    assert [] == [url for url in asked if not url.startswith(server.address)]
    frames = sorted(page.evaluate("window.__frames"))
    print(f"p95 of {len(frames)} frames: {frames[len(frames) * 95 // 100]:.0f} ms")  # noqa: T201


def test_what_is_too_much_is_shown_as_it_was_written_with_the_reason(
    open_page: OpenPage, server: PageServer
) -> None:
    page = open_page(told(server, "deep", HOSTILE["quotes-1000-deep"]))
    expect(page.locator("pv-message")).to_contain_text("nested too deeply to be formatted")
    expect(page.locator("pv-message .text")).to_contain_text("> > > >")


def test_characters_that_can_not_be_seen_are_shown_in_every_construct(
    open_page: OpenPage, server: PageServer
) -> None:
    text = "# a\u202eb\n\n**c\u200bd** `e\u2066f` [g\u00adh](http://a.b)\n\n```py\n# i\u202ej\n```"
    page = open_page(told(server, "unseen-in-markdown", text))
    expect(page.locator(".markdown .unseen")).to_have_text(
        ["U+202E", "U+200B", "U+2066", "U+00AD", "U+202E"]
    )


def test_all_of_a_long_answer_is_shown_when_asked_for(
    open_page: OpenPage, server: PageServer
) -> None:
    page = open_page(told(server, "long-markdown", "a **b** c\n\n" * 2_000 + "the *end*"))
    expect(page.locator(".markdown em")).to_have_count(0)
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(".markdown em")).to_have_text("end")
    expect(page.locator(".markdown strong")).to_have_count(2_000)
