"""Markdown as a tree: every construct, nothing that is left out, and limits for everything."""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.server import markdown
from palaver.server.markdown import KINDS, LONGEST, MATH, render
from palaver.server.routes import messages
from tests.page.hostile_markdown import HOSTILE
from tests.page.server import running_server
from tests.profiles import at_least

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stores import Store
    from tests.server.client import APIClient

SIMPLE = {
    "a **b** *c* ~~d~~ `e`": [
        ["p", {}, ["a ", ["strong", {}, ["b"]], " ", ["em", {}, ["c"]], " ", ["s", {}, ["d"]], " ",
                   ["code", {}, ["e"]]]],
    ],
    "## a": [["h2", {}, ["a"]]],
    "a\nb  \nc": [["p", {}, ["a", "\n", "b", ["br", {}, []], "c"]]],
    "3. a\n4. b": [["ol", {"start": 3}, [["li", {}, ["a"]], ["li", {}, ["b"]]]]],
    "- [ ] a\n- [X] b": [
        ["ul", {}, [["li", {"task": False}, ["a"]], ["li", {"task": True}, ["b"]]]],
    ],
    "- [x] a\n\n- **b**": [
        ["ul", {}, [["li", {"task": True}, [["p", {}, ["a"]]]],
                    ["li", {}, [["p", {}, [["strong", {}, ["b"]]]]]]]],
    ],
    "> a\n\n---": [["blockquote", {}, [["p", {}, ["a"]]]], ["hr", {}, []]],
    "|a|b|\n|-|:-:|\n|c|d|": [
        ["table", {}, [
            ["thead", {}, [["tr", {}, [["th", {}, ["a"]], ["th", {"align": "center"}, ["b"]]]]]],
            ["tbody", {}, [["tr", {}, [["td", {}, ["c"]], ["td", {"align": "center"}, ["d"]]]]]],
        ]],
    ],
    "|a|\n|-|\n|b\\|c|\nd": [
        ["table", {}, [
            ["thead", {}, [["tr", {}, [["th", {}, ["a"]]]]]],
            ["tbody", {}, [["tr", {}, [["td", {}, ["b|c"]]]], ["tr", {}, [["td", {}, ["d"]]]]]],
        ]],
    ],
    "[a](http://b.c 'd')": [["p", {}, [["a", {"href": "http://b.c", "title": "d"}, ["a"]]]]],
    "see https://a.b/c?d=e.": [
        ["p", {}, ["see ", ["a", {"href": "https://a.b/c?d=e"}, ["https://a.b/c?d=e"]], "."]],
    ],
    "<a@b.c>": [["p", {}, [["a", {"href": "mailto:a@b.c"}, ["a@b.c"]]]]],
    "[http://a.b](http://c.d)": [["p", {}, [["a", {"href": "http://c.d"}, ["http://a.b"]]]]],
    "![a *b*](http://c.d/e.png)": [["p", {}, [["image", {"href": "http://c.d/e.png"}, ["a b"]]]]],
    "a[^1]\n\n[^1]: b": [
        ["p", {}, ["a", ["note", {}, ["1"]]]], ["p", {}, [["note", {}, ["1"]], ": b"]],
    ],
    "```\na\n```": [["pre", {"language": ""}, ["a"]]],
    "    a": [["pre", {"language": ""}, ["a"]]],
    "```sh\n```": [["pre", {"language": "sh"}, []]],
    "```js\nreturn 1 // a": [
        ["pre", {"language": "js"}, [["token", {"colour": "keyword"}, ["return"]], " ",
                                     ["token", {"colour": "number"}, ["1"]], " ",
                                     ["token", {"colour": "comment"}, ["// a"]]]],
    ],
    "```sql\nSELECT f(a, NULL)\n```": [
        ["pre", {"language": "sql"}, [["token", {"colour": "keyword"}, ["SELECT"]], " ",
                                      ["token", {"colour": "name"}, ["f"]], "(a, ",
                                      ["token", {"colour": "number"}, ["NULL"]], ")"]],
    ],
    "a $x$": [
        ["p", {}, [
            "a ",
            ["math", {"source": "$x$", "display": "inline"}, [["mrow", {}, [["mi", {}, ["x"]]]]]],
        ]],
    ],
    "\\(y\\)": [
        ["p", {}, [
            ["math", {"source": r"\(y\)", "display": "inline"},
             [["mrow", {}, [["mi", {}, ["y"]]]]]],
        ]],
    ],
    "$$\nx\n$$": [
        ["math", {"source": "$$x$$", "display": "block"}, [["mrow", {}, [["mi", {}, ["x"]]]]]],
    ],
}  # fmt: skip


@pytest.mark.parametrize(("text", "blocks"), SIMPLE.items())
def test_every_construct_has_its_elements(text: str, blocks: list[Any]) -> None:
    assert blocks == render(text).blocks


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 to $10.", "US$5 and $ 6 $", "$a$1", "$$", "\\[ a", "\\[\na\n\nb", "- \\[\n\na",
        "[a](javascript:b)", "![a](data:image/png;base64,b)", "[a](b.md)", "[^a](b)", "[^ a]",
        "<b>c</b> <!-- d -->", "[a]: http:b 'c'", "$a % b$", "$\\href{a}{b}$", "$a\u202eb$",
        "$\\phantom{a}$", "$\\unicode{x202e}$", "$" + "{" * 60 + "a" + "}" * 60 + "$", "$\\frac$",
        "|a|b|\n|-|-|\n|1|2|hidden|",
        "$" + "a" * 1_001 + "$", "$a\\$ b",
    ],
)  # fmt: skip
def test_what_is_no_element_stays_text(text: str) -> None:
    written = re.sub(r"\\(?=[\[$]( |\n))|^- ", "", text)
    assert written == "\n\n".join(text_of(block) for block in render(text).blocks)


def test_lines_of_a_formula_are_aligned() -> None:
    (formula,) = render(r"\[\begin{aligned}a&=b\\&=c\,d\end{aligned}\]").blocks
    assert {"mtable", "mtr", "mtd", "mspace"} < {kind for kind, _ in elements(formula)}


def test_a_formula_in_a_list_ends_with_its_item() -> None:
    assert "math" not in str(render("- $$\n  a\n\nb\n$$").blocks)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_tree_has_known_elements_alone(name: str) -> None:
    check(render(HOSTILE[name]).blocks)


TEXTS = st.text(alphabet="ab *_`~[]()<>!#-+|\\$^{}&;:/\"'=\n\t1.>\u202e", max_size=200)
BLOCKS = st.sampled_from(
    ["# a\n", "- b\n", "  - c\n", "1. d\n", "> e\n", "```py\nf\n", "```\n", "\n", "|g|h|\n|-|-|\n",
     "|i|j|\n", "$$\nx\n$$\n", "k *l* 🙂", "m\r\n", "---\n", "===\n", "    n\n", "[^1]: o\n",
     "\\[\n"]
)  # fmt: skip


@given(TEXTS)
@at_least(100)
def test_no_text_breaks_it(text: str) -> None:
    check(render(text).blocks)


@given(st.lists(BLOCKS, max_size=30), st.lists(st.integers(0, 200), max_size=8))
@at_least(100)
def test_a_text_that_grows_ends_as_the_whole_text(pieces: list[str], cuts: list[int]) -> None:
    """Who looks at every stage sees in the end what somebody sees who looks once."""
    text = "".join(pieces)
    drawn: list[Any] = []
    settled = offset = 0
    for cut in [*sorted(cuts), len(text)]:
        tree = render(from_unit(text[:cut], offset))
        drawn[settled:] = tree.blocks
        settled += tree.settled
        offset += tree.offset
    assert render(text).blocks == drawn


@given(st.sampled_from(sorted(markdown._FAMILIES)), TEXTS)
@at_least(100)
def test_coloured_code_is_the_same_code(language: str, text: str) -> None:
    assert text == "".join(piece for _, piece in markdown._colour(text, language))


LIMITS = {
    "long": "a" * (LONGEST + 1),
    "deep": "> " * 100 + "a",
    "large": "`a` " * 11_000,
    "slow": "[" * 5_000,
}


@pytest.mark.parametrize(("reason", "text"), LIMITS.items())
def test_beyond_a_limit_there_is_a_reason_and_no_tree(reason: str, text: str) -> None:
    seconds = 0.001 if reason == "slow" else 600  # tracing for coverage is slow too
    assert ([], 0, 0, reason) == render(text, seconds=seconds)


def test_emphasis_is_not_nested_without_end() -> None:
    assert "deep" == render("*a **b " * 100 + "c** d*" * 100, seconds=600).plain


def test_texts_are_parsed_in_order(ask: APIClient) -> None:
    found = ask.good("POST", "markdown", {"texts": ["a\n\nb", "", "> " * 100]})
    assert [2, 0, 0] == [len(one["blocks"]) for one in found]
    assert [1, 3, None] == [found[0]["settled"], found[0]["offset"], found[0]["plain"]]
    assert "deep" == found[2]["plain"]
    assert 422 == ask.refused("POST", "markdown", {"texts": ["a"] * 501})["status"]


def test_a_request_has_a_limit_of_its_own(ask: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_MARKDOWN_SECONDS", 0.0)
    assert ["slow"] == [one["plain"] for one in ask.good("POST", "markdown", {"texts": ["a"]})]


def test_others_are_answered_meanwhile(store: Store) -> None:
    with running_server(store) as server:
        found: list[Any] = []
        body = {"texts": ["[" * 10_000]}
        parsing = threading.Thread(
            target=lambda: found.append(server.client.post("markdown", json=body, timeout=60))
        )
        parsing.start()
        answered = 0
        while parsing.is_alive():
            server.ask("GET", "health")
            answered += 1
        parsing.join()
        assert 200 == found[0].status_code
        assert 5 < answered


def text_of(node: str | list[Any]) -> str:
    """The text of a node."""
    return node if isinstance(node, str) else "".join(map(text_of, node[2]))


def elements(node: str | list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every element of a tree: its kind and its attributes."""
    if isinstance(node, str):
        return
    kind, attributes, children = node
    yield kind, attributes
    for child in children:
        yield from elements(child)


def check(blocks: list[Any]) -> None:
    """Nothing but known elements, and no attribute but those that they have."""
    known = {"a": {"href", "title"}, "image": {"href", "title"}, "ol": {"start"}, "li": {"task"},
             "pre": {"language"}, "token": {"colour"}, "math": {"source", "display"},
             "th": {"align"}, "td": {"align"}}  # fmt: skip
    for kind, attributes in elements(["", {}, blocks]):
        allowed = known.get(kind) if kind in KINDS or not kind else MATH[kind]
        assert attributes.keys() <= (allowed or set())
        address = attributes.get("href", "http://")
        assert address.lower().startswith(("http://", "https://", "mailto:"))
    json.dumps(blocks)


def from_unit(text: str, offset: int) -> str:
    """What follows an offset that a script counted."""
    return text.encode("utf-16-le")[2 * offset :].decode("utf-16-le")
