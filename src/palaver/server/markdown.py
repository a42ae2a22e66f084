r"""Markdown as a small tree of known elements, from which the page builds its document.

A node is text, or a list of its kind, its attributes and its children: `["em", {}, ["so"]]`. The
kinds are those of `KINDS` and, inside `math`, of `MATH`; nothing else is ever in a tree, and no
attribute is markup. Nothing that was written is left out: HTML, comments, definitions of links and
addresses that are no link are text, and a formula that hides something is shown as its source.

A block at the top depends on nothing outside it. So while a text grows, all blocks but the last are
settled: whoever shows it sends the rest again, from `offset` on, and the last block is drawn anew.

The parser is pure Python, so it runs in a thread; its work is limited, and beyond the limits a text
has no tree, but a reason (`plain`) to show it as it is.

>>> render("Is *this* **it**?").blocks
[['p', {}, ['Is ', ['em', {}, ['this']], ' ', ['strong', {}, ['it']], '?']]]
>>> render("- a\n  - b\n\nand").offset
11
"""

from __future__ import annotations

import html
import re
import time
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from latex2mathml.converter import Converter
from markdown_it import MarkdownIt
from markdown_it.rules_block.table import escapedSplit, getLine, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from xml.etree.ElementTree import Element

    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

__all__ = ["KINDS", "LONGEST", "MATH", "SECONDS", "Reason", "Tree", "make_renderer", "render"]

LONGEST: Final = 100_000
"""A longer text has no tree."""
_DEEPEST: Final = 40
_MOST_NODES: Final = 20_000
SECONDS: Final = 1.0
"""How long a thread may be busy with a text, in its own time and not the clock's."""
_LONGEST_CODE: Final = 20_000
"""Longer code has no colours."""
_LONGEST_FORMULA: Final = 1_000
_MOST_LINES: Final = 100
"""How far the end of a formula is searched for, in lines."""

Reason = Literal["long", "deep", "large", "slow"]
"""Why a text has no tree: its length, its nesting, the size of the tree, or the time it takes."""

KINDS: Final = frozenset(
    ("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "pre", "table",
     "thead", "tbody", "tr", "th", "td", "em", "strong", "s", "code", "a", "image", "br", "note",
     "token", "math")
)  # fmt: skip
"""The elements of a tree."""

MATH: Final = {
    "math": frozenset(("display",)),
    **dict.fromkeys(
        ("mrow", "mi", "mn", "mtext", "msqrt", "mroot", "msub", "msup", "msubsup", "mmultiscripts",
         "mprescripts", "none", "mtr"),
        frozenset[str](),
    ),
    "mo": frozenset(
        ("stretchy", "fence", "form", "largeop", "movablelimits", "separator", "accent")
    ),
    "mfrac": frozenset(("linethickness",)),
    "munder": frozenset(("accentunder",)),
    "mover": frozenset(("accent",)),
    "munderover": frozenset(("accent", "accentunder")),
    "mstyle": frozenset(("displaystyle", "scriptlevel")),
    "mspace": frozenset(("width",)),
    "mtable": frozenset(("columnalign",)),
    "mtd": frozenset(("columnalign",)),
    "menclose": frozenset(("notation",)),
}  # fmt: skip
"""The elements of a formula and what they may say; any other element is a row of its children."""

_SAFE: Final = re.compile(r"(?:https?://|mailto:)\S", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"https?://[^\s<>\"'`\\^{|}]+", re.IGNORECASE)
_TRAILING: Final = ".,;:!?)]*_~"
_NOTE: Final = re.compile(r"\[\^([^\]\[\s^]{1,40})\](?!\()")
_LINE_END: Final = re.compile(r"\r\n?|\n")
_TASK: Final = re.compile(r"\[([ xX])\](?:\s|$)")
_LANGUAGES: Final = {
    "c": """
        c c++ c# cc cpp cs csharp css dart go golang h hpp java javascript js json json5
        jsonc jsx kotlin kt mjs php rs rust scala scss swift ts tsx typescript
    """,
    "hash": """
        awk bash cmake conf docker dockerfile elixir ex fish graphql ini jl julia make
        makefile nix perl pl powershell properties ps1 r rb ruby sh shell terraform tf toml
        yaml yml zsh
    """,
    "python": """
        gyp py pyi python python3 starlark
    """,
    "dashes": """
        ada elm haskell hs lua plsql postgresql psql sql sqlite
    """,
    "markup": """
        html svg vue xhtml xml
    """,
    "diff": """
        diff patch udiff
    """,
}
"""The languages that are coloured, by the way they write comments and strings."""
_FAMILIES: Final = {name: family for family, names in _LANGUAGES.items() for name in names.split()}
_STRINGS: Final = r""""(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?"""
_WORDS: Final = r"(?P<number>\b\d[\w.]*)|(?P<word>[^\W\d]\w*)(?P<call>(?=\())?"
_SYNTAX: Final = {
    "c": rf"(?P<comment>//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?)"
    rf"|(?P<string>{_STRINGS}|`(?:[^`\\]|\\.)*`?)|{_WORDS}",
    "hash": rf"(?P<comment>(?<!\S)\#[^\n]*)|(?P<string>{_STRINGS})|{_WORDS}",
    "python": r"(?P<comment>\#[^\n]*)"
    r"|(?P<string>(?:\b[bBfFrRuU]{1,2})?(?:"
    r"\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*(?:\"\"\")?|\'\'\'(?:[^\'\\]|\\.|\'(?!\'\'))*(?:\'\'\')?"
    rf"|{_STRINGS}))|(?P<name>(?<!\S)@[\w.]+)|{_WORDS}",
    "dashes": r"(?P<comment>--[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?)"
    rf"|(?P<string>{_STRINGS})|{_WORDS}",
    "markup": r"(?P<comment><!--(?:[^-]|-(?!->))*(?:-->)?)|(?P<keyword></?[\w:.-]+|/?>)"
    rf"|(?P<string>(?<==)(?:{_STRINGS}))|(?P<name>(?<=\s)[\w:.-]+(?==))",
    "diff": r"(?P<comment>^(?:@@|diff |index |---|\+\+\+)[^\n]*)"
    r"|(?P<inserted>^\+[^\n]*)|(?P<deleted>^-[^\n]*)",
}
"""One expression for each family. Where it can match, it matches in one way: no text is slow."""
_PATTERNS: Final = {
    name: re.compile(one, re.MULTILINE | re.DOTALL) for name, one in _SYNTAX.items()
}
_KEYWORDS: Final = {
    "c": """
        abstract as async await break case catch class const constructor continue crate data
        declare default defer delete do dyn echo else enum export extends extern final
        finally fn for foreach from fun func function go goto guard if impl implements
        import in init inline instanceof interface internal is let loop match mod module
        move mut namespace new object of open operator out override package private
        protected pub public range readonly ref return sealed select self static struct
        super suspend switch template this throw throws trait try type typedef typeof
        typename union unsafe use using val var virtual volatile when where while with yield
    """,
    "hash": """
        and begin break case continue def default do done elif else elsif end esac exit
        export fi for foreach from function if in local module next not or param pass
        readonly require rescue return set shift sub then unless until use using when while
        yield ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM LABEL RUN USER VOLUME WORKDIR
    """,
    "python": """
        and as assert async await break case class continue def del elif else except finally
        for from global if import in is lambda match nonlocal not or pass raise return try
        type while with yield
    """,
    "dashes": """
        add all alter and as asc begin between by case class commit create data delete desc
        distinct do drop else elseif end exists explain for foreign from full function group
        having if import in index inner insert instance into is join key left let like limit
        local module not of offset on or order outer primary references repeat return
        returning right rollback select set table then type union unique until update using
        values view when where while with
    """,
}
_CONSTANTS: Final = frozenset(
    ("true", "false", "null", "none", "nil", "undefined", "nan", "self", "this", "super")
)
_KNOWN: Final = {family: frozenset(names.split()) for family, names in _KEYWORDS.items()}
_HIDES: Final = re.compile(
    r"(?<!\\)%|\\(?:href|class|style|cssId|def|let|newcommand|renewcommand|label|require"
    r"|mathchoice|[hv]?phantom|(?:text|f)?color(?:box)?|unicode|verb|[hv]space|rule)(?![a-zA-Z])"
)
"""What hides or moves a part of a formula, or makes it grow without end."""
_LENGTH: Final = re.compile(r"[0-2](?:\.\d{1,3})?em")
_WORD: Final = re.compile(r"[a-z ]{1,60}|\d")
_INVISIBLE_OPERATORS: Final = dict.fromkeys(range(0x2061, 0x2065))
_THIN: Final = str.maketrans(dict.fromkeys("\u2003\u2004\u2005\u2006\u2009\u200a\u00a0\n\t", " "))


class Tree(NamedTuple):
    """A text as nodes, or the reason why it has none.

    The first `settled` blocks stay as they are, whatever is written after the text. `offset` is
    where the others begin, in UTF-16 units, as scripts count them.
    """

    blocks: list[Any]
    settled: int = 0
    offset: int = 0
    plain: Reason | None = None


class _RefusedError(Exception):
    """A text is too much; says in what way."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class _Budget:
    """What may still be spent on a text."""

    def __init__(self, seconds: float) -> None:
        self.nodes = _MOST_NODES
        self._until = time.thread_time() + seconds
        self._calls = 0

    def spend_time(self) -> None:
        """Look at the time, now and then."""
        self._calls += 1
        if self._calls % 64 == 0 and time.thread_time() > self._until:
            raise _RefusedError("slow")

    def spend_node(self) -> None:
        """Count a node of the tree."""
        self.nodes -= 1
        if self.nodes < 0:
            raise _RefusedError("large")
        self.spend_time()


def render(text: str, *, seconds: float = SECONDS) -> Tree:
    """The tree of a text; `seconds` is how long the thread may be busy with it at most."""
    if len(text) > LONGEST:
        return Tree([], plain="long")
    if seconds <= 0:
        return Tree([], plain="slow")
    budget = _Budget(seconds)
    try:
        return _build(_PARSER.parse(text, {"budget": budget}), text, budget)
    except _RefusedError as refused:
        return Tree([], plain=refused.reason)


def make_renderer(seconds: float) -> Callable[[str], list[Any] | None]:
    """A function from a text to its tree, or to None if it has none.

    All texts together take at most so many seconds; those after that have no tree.

    >>> make_renderer(9)("*so*"), make_renderer(0)("*so*")
    ([['p', {}, [['em', {}, ['so']]]]], None)
    """
    left = seconds

    def render_text(text: str) -> list[Any] | None:
        nonlocal left
        start = time.thread_time()
        tree = render(text, seconds=min(left, SECONDS))
        left -= time.thread_time() - start
        return None if tree.plain else tree.blocks

    return render_text


def _build(tokens: Sequence[Token], text: str, budget: _Budget) -> Tree:
    root = _Open("", {}, [])
    builder = _Builder(budget, root)
    starts: list[int] = []
    for token in tokens:
        if token.level == 0 and token.nesting >= 0 and token.map:
            starts.append(token.map[0])
        builder.add(token)
    settled = max(0, len(starts) - 1)
    offset = _offset_of_line(text, starts[-1]) if starts else 0
    return Tree(root.children, settled, offset)


def _offset_of_line(text: str, line: int) -> int:
    """Where a line begins, in UTF-16 units."""
    end = 0
    for _, found in zip(range(line), _LINE_END.finditer(text), strict=False):
        end = found.end()
    return end + sum(character > "\uffff" for character in text[:end])


# ── the rules that markdown-it has not ──────────────────────────────────────────────────────────


def _limit_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - a rule's form
    del start, end, silent
    state.env["budget"].spend_time()
    if state.level >= _DEEPEST:
        raise _RefusedError("deep")
    return False


def _limit_inline(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - a rule's form
    del silent
    state.env["budget"].spend_time()
    return False


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - a rule's form
    """A table all of whose cells have a column; the others would not be seen."""
    before = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    if silent:
        return True
    columns = sum(token.type == "th_open" for token in state.tokens[before:])
    for number in range(start + 2, state.line):
        line = getLine(state, number).strip().removeprefix("|")
        cells = escapedSplit(line)
        if len(cells) - (not cells[-1].strip()) > columns:
            del state.tokens[before:]
            state.line = start
            return False
    return True


def _math_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - a rule's form
    r"""A formula in lines of its own: `$$ … $$` or `\[ … \]`."""
    if state.is_code_block(start):
        return False
    opening = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]][:2]
    closing = {"$$": "$$", r"\[": r"\]"}.get(opening)
    if closing is None:
        return False
    lines: list[str] = []
    for number in range(start, min(end, start + _MOST_LINES)):
        state.env["budget"].spend_time()
        if state.sCount[number] < state.blkIndent:
            return False
        begin = state.bMarks[number] + state.tShift[number] + (2 if number == start else 0)
        lines.append(state.src[begin : state.eMarks[number]].rstrip())
        if lines[-1].endswith(closing):
            break
    else:
        return False
    if not silent:
        token = state.push("math_block", "math", 0)
        token.content = "\n".join(lines)[:-2].strip()
        token.markup = opening
        token.map = [start, start + len(lines)]
        state.line = start + len(lines)
    return True


def _math_inline(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - a rule's form
    r"""A formula in a line: `$…$`, `$$…$$`, `\(…\)` or `\[…\]`.

    A price is none: a dollar sign before a space, after a letter, or a closing one before a digit.
    """
    source, start = state.src, state.pos
    opening = next((one for one in ("$$", "$", r"\(", r"\[") if source.startswith(one, start)), "")
    if not opening or (opening == "$" and source[start - 1 : start].isalnum()):
        return False
    closing = {r"\(": r"\)", r"\[": r"\]"}.get(opening, opening)
    begin = start + len(opening)
    limit = min(state.posMax, begin + _LONGEST_FORMULA)
    end = source.find(closing, begin, limit)
    while opening[0] == "$" and end > 0 and source[end - 1] == "\\":
        end = source.find(closing, end + 1, limit)
    content = source[begin : max(end, begin)]
    if not content.strip():
        return False
    if opening == "$" and (content != content.strip() or source[end + 1 : end + 2].isdigit()):
        return False
    if not silent:
        token = state.push("math_inline", "math", 0)
        token.content = content
        token.markup = opening
    state.pos = end + len(closing)
    return True


def _note(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - a rule's form
    """The name of a footnote, in the text and before the footnote itself."""
    found = _NOTE.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        state.push("note", "", 0).content = found[1]
    state.pos = found.end()
    return True


class _Parser(MarkdownIt):
    """A parser to which an address that is not safe makes no link."""

    def validateLink(self, url: str) -> bool:  # noqa: N802 - markdown-it's
        return _SAFE.match(url) is not None


def _make_parser() -> MarkdownIt:
    parser = _Parser("commonmark", {"html": False, "maxNesting": 2 * _DEEPEST})
    parser.enable(["table", "strikethrough"])
    # what they define or hide would not be seen, and blocks would depend on one another
    parser.disable(["reference", "html_block", "html_inline"])
    parser.block.ruler.at("table", _table, {"alt": ["paragraph"]})
    parser.block.ruler.before("table", "limit", _limit_block)
    parser.block.ruler.before(
        "fence", "math_block", _math_block, {"alt": ["paragraph", "blockquote", "list"]}
    )
    parser.inline.ruler.before("text", "limit", _limit_inline)
    parser.inline.ruler.before("escape", "math_inline", _math_inline)
    parser.inline.ruler.before("link", "note", _note)
    return parser


# ── from tokens to nodes ────────────────────────────────────────────────────────────────────────


class _Open(NamedTuple):
    """An element that is not closed yet."""

    kind: str
    attributes: dict[str, Any]
    children: list[Any]


class _Builder:
    """Puts tokens into a tree, one after the other."""

    def __init__(self, budget: _Budget, root: _Open) -> None:
        self._budget = budget
        self._open = [root]
        self._links = 0

    def add(self, token: Token) -> None:
        """Add a token, and those inside it."""
        if token.type == "inline":
            for one in token.children or ():
                self.add(one)
        elif token.hidden:
            pass  # a paragraph in a list without blank lines
        elif token.nesting > 0:
            self._enter(token)
        elif token.nesting < 0:
            self._leave()
        else:
            self._add_leaf(token)

    def _add_leaf(self, token: Token) -> None:
        match token.type:
            case "text":
                self._add_text(token.content)
            case "softbreak":
                self._append("\n")
            case "hardbreak" | "hr":
                self._append_element(token.tag, {}, [])
            case "code_inline":
                self._append_element("code", {}, [token.content])
            case "fence" | "code_block":
                self._add_code(token.content, token.info)
            case "math_inline" | "math_block":
                self._add_formula(token)
            case "note":
                self._append_element("note", {}, [token.content])
            case _:  # an image
                alt = "".join(_list_texts(token.children or ()))
                source = str(token.attrs["src"])
                self._append_element("image", {"href": source, **_title_of(token)}, [alt])

    def _enter(self, token: Token) -> None:
        attributes: dict[str, Any] = {}
        match token.tag:
            case "a":
                self._links += 1
                attributes = {"href": str(token.attrs["href"]), **_title_of(token)}
            case "ol" if "start" in token.attrs:
                attributes = {"start": token.attrs["start"]}
            case "th" | "td" if "style" in token.attrs:
                attributes = {"align": str(token.attrs["style"]).removeprefix("text-align:")}
            case _:
                pass
        if len(self._open) > _DEEPEST:
            raise _RefusedError("deep")
        self._open.append(_Open(token.tag, attributes, []))

    def _leave(self) -> None:
        kind, attributes, children = self._open.pop()
        if kind == "a":
            self._links -= 1
        elif kind == "li":
            attributes = {**attributes, **_take_task(children)}
        self._append_element(kind, attributes, children)

    def _append(self, node: str | list[Any]) -> None:
        self._budget.spend_node()
        self._open[-1].children.append(node)

    def _append_element(self, kind: str, attributes: dict[str, Any], children: list[Any]) -> None:
        self._append([kind, attributes, children])

    def _add_text(self, text: str) -> None:
        """Add text, and a link for every address in it."""
        at = 0
        for found in () if self._links else _ADDRESS.finditer(text):
            address = found[0].rstrip(_TRAILING)
            if text[at : found.start()]:
                self._append(text[at : found.start()])
            self._append_element("a", {"href": address}, [address])
            at = found.start() + len(address)
        if text[at:]:
            self._append(text[at:])

    def _add_code(self, text: str, info: str) -> None:
        name = info.split(maxsplit=1)[0] if info.strip() else ""
        children: list[Any] = []
        for colour, piece in _colour(text.removesuffix("\n"), name.lower()):
            self._budget.spend_node()
            children.append(["token", {"colour": colour}, [piece]] if colour else piece)
        self._append_element("pre", {"language": info.strip()}, children)

    def _add_formula(self, token: Token) -> None:
        closing = {r"\(": r"\)", r"\[": r"\]"}.get(token.markup, token.markup)
        source = f"{token.markup}{token.content}{closing}"
        display = token.markup in {"$$", r"\["}
        block = token.type == "math_block"
        children = _convert_formula(token.content, display=display, budget=self._budget)
        if children is None:
            self._append_element("p", {}, [source]) if block else self._append(source)
            return
        attributes = {"source": source, "display": "block" if display else "inline"}
        self._append_element("math", attributes, children)


def _list_texts(tokens: Iterable[Token]) -> Iterator[str]:
    for token in tokens:
        if token.children:
            yield from _list_texts(token.children)
        else:
            yield token.content


def _title_of(token: Token) -> dict[str, str]:
    return {"title": str(token.attrs["title"])} if token.attrs.get("title") else {}


def _take_task(children: list[Any]) -> dict[str, bool]:
    """Take the box of a task off the beginning of an item."""
    inside = children
    if children and isinstance(children[0], list) and children[0][0] == "p":
        inside = children[0][2]
    found = _TASK.match(inside[0]) if inside and isinstance(inside[0], str) else None
    if found is None:
        return {}
    inside[0] = inside[0][found.end() :]
    return {"task": found[1] != " "}


# ── code ────────────────────────────────────────────────────────────────────────────────────────


def _colour(text: str, name: str) -> Iterator[tuple[str, str]]:
    """Code in pieces, each with the name of its colour, or none."""
    family = _FAMILIES.get(name)
    at = 0
    if family is not None and len(text) <= _LONGEST_CODE:
        for found in _PATTERNS[family].finditer(text):
            colour = _colour_of(found, family)
            if colour:
                if found.start() > at:
                    yield "", text[at : found.start()]
                yield colour, found[0]
                at = found.end()
    if text[at:]:
        yield "", text[at:]


def _colour_of(found: re.Match[str], family: str) -> str:
    kind = found.lastgroup or ""
    if kind not in {"word", "call"}:
        return kind
    word = found["word"]
    if word.lower() in _CONSTANTS:
        return "number"
    if (word.lower() if family == "dashes" else word) in _KNOWN[family]:
        return "keyword"
    return "name" if kind == "call" else ""


# ── formulas ────────────────────────────────────────────────────────────────────────────────────


def _convert_formula(source: str, *, display: bool, budget: _Budget) -> list[Any] | None:
    """The nodes of a formula; None for one that can't be read or would hide something."""
    if len(source) > _LONGEST_FORMULA or _HIDES.search(source):
        return None
    plain = source.translate(_THIN)
    if not plain.isprintable():
        return None
    for ours, theirs in (("aligned", "align*"), ("gathered", "gather*")):
        for word in (r"\begin", r"\end"):
            plain = plain.replace(f"{word}{{{ours}}}", f"{word}{{{theirs}}}")
    try:
        element = Converter(display="block" if display else "inline").convert_to_element(plain)
    except Exception:  # noqa: BLE001 - it raises whatever comes, a KeyError and a StopIteration too
        return None
    nodes = _list_nodes(element, 0, budget)
    return None if nodes is None else nodes[2]


def _list_nodes(element: Element, depth: int, budget: _Budget) -> list[Any] | None:
    if depth > _DEEPEST:
        return None
    budget.spend_node()
    kind = element.tag if element.tag in MATH else "mrow"
    attributes = {
        name: value
        for name, value in element.attrib.items()
        if name in MATH[kind] and (_WORD if name != "width" else _LENGTH).fullmatch(value)
    }
    children: list[Any] = []
    if text := html.unescape(element.text or ""):
        if not text.translate(_THIN).translate(_INVISIBLE_OPERATORS).isprintable():
            return None
        children.append(text)
    for one in element:
        node = _list_nodes(one, depth + 1, budget)
        if node is None:
            return None
        children.append(node)
    return [kind, attributes, children]


_PARSER: Final = _make_parser()
