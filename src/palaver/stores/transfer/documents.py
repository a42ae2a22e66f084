"""A conversation as a document for people: Markdown, or one HTML file.

Both are written from the same blocks: text, reasoning, code and lines. Nothing of a message is left
out but the data of files that can't be shown. The HTML has its style inside and no script, and
fetches nothing: a policy in it forbids both, and all text is escaped.
"""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from palaver.history.erase import ERASED
from palaver.messages import to_dict
from palaver.messages.limits import EMPTY
from palaver.messages.message import AssistantInfo
from palaver.messages.part_base import FilePart
from palaver.messages.parts import (
    AgentPart,
    CompactionPart,
    PatchPart,
    ReasoningPart,
    RetryPart,
    SnapshotPart,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolCallPart,
    ToolPart,
)
from palaver.messages.tool_state import ToolCompleted, ToolError
from palaver.stores.annotations import HIGHEST_SCORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from palaver.history import View
    from palaver.messages import Message, Part
    from palaver.stores.annotations import Annotation

__all__ = ["Render", "first_line", "write_html", "write_markdown"]

_PAGE: Final = 500
_LONGEST_NAME: Final = 80
_LOOKED_AT: Final = 20
"""How many messages are looked at for the first line of a user."""
_FENCES: Final = re.compile(r"`+")
_PICTURE: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*\Z")
"""The pictures that are part of the file; everything else is named and not shown."""
_SAFE: Final = re.compile(r"(?:https?://|mailto:)\S+\Z", re.IGNORECASE)
"""The addresses that may become links."""
_SAME: Final = frozenset(
    ("p", "ul", "blockquote", "em", "strong", "s", "code", "pre", "table", "thead", "tbody", "tr")
)
"""The elements of a tree that are the same in HTML."""
_HEADINGS: Final = {"h1": 3, "h2": 4, "h3": 5, "h4": 6, "h5": 6, "h6": 6}
"""A heading of an answer stands below that of its message."""
_ROLES: Final = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}

Render: TypeAlias = "Callable[[str], Sequence[Any] | None]"
_Kind: TypeAlias = Literal["text", "reasoning", "code", "line", "picture", "note"]


class _Block(NamedTuple):
    """A piece of a message; `title` is a line of plain text above it, `language` that of code."""

    kind: _Kind
    text: str
    title: str = ""
    language: str = ""


def write_markdown(
    view: View,
    stream: IO[bytes],
    *,
    title: str | None = None,
    annotations: Mapping[str, Annotation] = EMPTY,
) -> None:
    r"""Write a view as Markdown, with the annotations of its messages by their ids.

    >>> import io
    >>> from palaver.history import History
    >>> from palaver.messages import user
    >>> file = io.BytesIO()
    >>> write_markdown(History([user("Tea?", timestamp=0)]).view, file, title="Tea")
    >>> print(file.getvalue().decode())
    # Tea
    <BLANKLINE>
    1 message, version 0
    <BLANKLINE>
    ## 1. User
    <BLANKLINE>
    1970-01-01 00:00 UTC
    <BLANKLINE>
    Tea?
    <BLANKLINE>
    """
    stream.write(f"# {_one_line(_title(view, title))}\n\n{_size(view)}\n".encode())
    for index, message in _each(view):
        heading = f"\n## {index + 1}. {_one_line(_who(message))}\n\n{_facts(view, message)}\n"
        stream.write(
            (heading + "".join(map(_markdown_block, _blocks(message, annotations)))).encode()
        )


def write_html(
    view: View,
    stream: IO[bytes],
    *,
    title: str | None = None,
    annotations: Mapping[str, Annotation] = EMPTY,
    render: Render | None = None,
) -> None:
    """Write a view as one HTML file that needs nothing else.

    `render` gives the tree of a text in Markdown (see `palaver.server.markdown`), or None for one
    that is shown as it was written; without it all are. Models write Markdown, people do not.

    >>> import io
    >>> from palaver.history import History
    >>> from palaver.messages import user
    >>> file = io.BytesIO()
    >>> write_html(History([user("<b>Tea?</b>")]).view, file)
    >>> b"&lt;b&gt;Tea?&lt;/b&gt;" in file.getvalue()
    True
    """
    name = html.escape(_title(view, title))
    stream.write(_HTML_HEAD.format(title=name, size=_size(view), style=_STYLE).encode())
    for index, message in _each(view):
        tree = render if message.role == "assistant" else None
        body = "".join(_html_block(one, tree) for one in _blocks(message, annotations))
        stream.write(
            f'<article id="m{index + 1}" class="{message.role}">\n'
            f"<header><h2>{html.escape(_who(message))}</h2>"
            f"<p>{html.escape(_facts(view, message))} · "
            f'<a href="#m{index + 1}">{index + 1}</a></p></header>\n{body}</article>\n'.encode()
        )
    stream.write(b"</main>\n</body>\n</html>\n")


# ── what both show ──────────────────────────────────────────────────────────────────────────────


def _each(view: View) -> Iterator[tuple[int, Message]]:
    """Every message with its index, read in pages."""
    for start in range(0, len(view), _PAGE):
        yield from enumerate(view[start : start + _PAGE], start)


def first_line(messages: Iterable[Message]) -> str | None:
    r"""The first line that a user wrote: what a conversation without a title is called.

    >>> from palaver.messages import system, user
    >>> first_line([system("Be brief."), user("  Tea,  or coffee?\nMilk?")])
    'Tea, or coffee?'
    """
    texts = (message.text.strip() for message in messages if message.role == "user")
    text = next(filter(None, texts), None)
    return None if text is None else " ".join(text.splitlines()[0].split())[:_LONGEST_NAME]


def _title(view: View, title: str | None) -> str:
    return title or first_line(view[:_LOOKED_AT]) or "Conversation"


def _size(view: View) -> str:
    return f"{len(view):,} message{'' if len(view) == 1 else 's'}, version {view.version:,}"


def _who(message: Message) -> str:
    """The speaker, or the role, and to whom it is addressed."""
    name = message.speaker.role_name if message.speaker else _ROLES[message.role]
    to = f" → {', '.join(message.addressees)}" if message.addressees else ""
    return f"{name}{to}"


def _facts(view: View, message: Message) -> str:
    """The time, the model and the marks, in a line."""
    at = datetime.fromtimestamp(min(message.timestamp, _LATEST) / 1000, UTC)
    model = getattr(message.info, "model", None)
    marks = [f"#{name}" for name in view.marks_of(message)] if view.frame.marks else []
    facts = [f"{at:%Y-%m-%d %H:%M} UTC", *([model.model_id] if model else []), *marks]
    return " · ".join(map(_one_line, facts))


_LATEST: Final = 253_402_300_799_000
"""The last moment that a calendar has, in milliseconds."""


def _blocks(message: Message, annotations: Mapping[str, Annotation]) -> Iterator[_Block]:
    yield from _content_blocks(message)
    info = message.info
    if isinstance(info, AssistantInfo) and info.finish == "interrupted":
        yield _Block("line", "Interrupted: this is what had arrived")
    if isinstance(info, AssistantInfo) and info.error is not None:
        yield _Block("code", _json(info.error), "Error", "json")
    found = annotations.get(message.id)
    if found is not None:
        score = "" if found.score is None else f" ({found.score} of {HIGHEST_SCORE})"
        yield _Block("note", found.note, f"Note{score}" if found.note else f"Score{score}")


def _content_blocks(message: Message) -> Iterator[_Block]:
    if ERASED in message.metadata:
        yield _Block("line", "Erased: only its place is left")
        return
    if isinstance(message.content, str):
        yield _Block("text", message.content)
        return
    for part in message.parts:
        yield from _part_blocks(part)


def _part_blocks(part: Part) -> Iterator[_Block]:
    if isinstance(part, TextPart):
        yield _Block("text", part.text, "Not sent to models" if part.ignored else "")
    elif isinstance(part, ReasoningPart):
        yield _Block("reasoning", part.text, "Reasoning")
    elif isinstance(part, ToolCallPart):
        yield _Block("code", _json(part.input), f"Call of {part.tool}", "json")
    elif isinstance(part, ToolPart):
        yield from _result_blocks(part)
    elif isinstance(part, FilePart):
        yield _file_block(part)
    elif isinstance(part, SubtaskPart):
        yield _Block("code", part.prompt, f"Task for {part.agent}: {part.description}")
    elif isinstance(part, StepFinishPart):
        used = part.tokens
        cost = "" if part.cost is None else f" · ${part.cost:.4f}"
        given = used.input + used.cache.read + used.cache.write
        yield _Block("line", f"{given:,} tokens in, {used.output + used.reasoning:,} out{cost}")
    elif not isinstance(part, StepStartPart):
        yield _other_block(part)


def _other_block(part: Part) -> _Block:
    if isinstance(part, CompactionPart):
        return _Block("line", "Compacted" if part.auto else "Compacted by hand")
    if isinstance(part, RetryPart):
        return _Block(
            "line", f"Tried again, attempt {part.attempt}: {part.error.get('message', '')}"
        )
    if isinstance(part, AgentPart):
        return _Block("line", f"Calls {part.name}")
    if isinstance(part, PatchPart):
        return _Block("code", "\n".join(part.files), f"Files changed ({part.hash})")
    if isinstance(part, SnapshotPart):
        return _Block("line", f"Snapshot {part.snapshot}")
    return _Block("code", _json(to_dict(part)), f"Part of an unknown type: {part.type}", "json")


def _result_blocks(part: ToolPart) -> Iterator[_Block]:
    state = part.state
    if isinstance(state, ToolError):
        yield _Block("code", state.error, f"Error of {part.tool}")
    elif isinstance(state, ToolCompleted):  # an open call is never in a message
        yield _Block("code", state.output, f"Result of {part.tool}")
        for file in state.attachments or ():
            yield _file_block(file)


def _file_block(part: FilePart) -> _Block:
    name = part.filename or ("" if part.url.startswith("data:") else part.url) or "file"
    if _PICTURE.match(part.url):
        return _Block("picture", part.url, name)
    return _Block("line", f"File: {name} ({part.mime})")


def _json(value: Any) -> str:  # noqa: ANN401 - JSON
    return msgspec.json.format(msgspec.json.encode(to_dict(value)), indent=2).decode()


def _one_line(text: str) -> str:
    return " ".join(text.split())


# ── Markdown ────────────────────────────────────────────────────────────────────────────────────


def _markdown_block(block: _Block) -> str:
    title = f"\n**{_plain(block.title)}**\n" if block.title else ""
    if block.kind == "code":
        fence = "`" * max(3, 1 + max(map(len, _FENCES.findall(block.text)), default=0))
        return f"{title}\n{fence}{block.language}\n{block.text}\n{fence}\n"
    if block.kind in {"reasoning", "note"}:
        quoted = "\n".join(f"> {line}".rstrip() for line in block.text.splitlines())
        return f"{title}\n{quoted}\n"
    if block.kind == "picture":
        return f"\n*{_plain(f'Picture: {block.title}')}*\n"
    if block.kind == "line":
        return f"\n*{_plain(block.text)}*\n"
    return f"{title}\n{block.text.rstrip()}\n"


def _plain(text: str) -> str:
    """A line in which nothing is markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", _one_line(text))


# ── HTML ────────────────────────────────────────────────────────────────────────────────────────


def _html_block(block: _Block, render: Render | None) -> str:
    nodes = render(block.text) if render is not None and block.kind == "text" else None
    text, title = html.escape(block.text), html.escape(block.title)
    heading = f"<h3>{title}</h3>\n" if block.title else ""
    if block.kind == "code":
        return f"{heading}<pre>{text}</pre>\n"
    if block.kind == "reasoning":
        return f'<details><summary>{title}</summary><div class="text">{text}</div></details>\n'
    if block.kind == "picture":
        return (
            f'<figure><img src="{text}" alt="{title}"><figcaption>{title}</figcaption></figure>\n'
        )
    if not block.text:
        return heading
    if nodes is not None:
        return f'{heading}<div class="formatted">{_tree_html(nodes)}</div>\n'
    return f'{heading}<div class="{block.kind}">{text}</div>\n'


def _tree_html(nodes: Iterable[Any]) -> str:
    return "".join(html.escape(one) if isinstance(one, str) else _element(*one) for one in nodes)


def _element(kind: str, attributes: Mapping[str, Any], children: list[Any]) -> str:
    """An element of a tree; of a kind that is not known, only the text."""
    inner = _tree_html(children)
    if kind in _SAME:
        return f"<{kind}>{inner}</{kind}>"
    if kind in _HEADINGS:
        return f"<h{_HEADINGS[kind]}>{inner}</h{_HEADINGS[kind]}>"
    make = _MADE.get(kind)
    return inner if make is None else make(attributes, inner)


def _list(attributes: Mapping[str, Any], inner: str) -> str:
    start = attributes.get("start")
    return f'<ol start="{start}">{inner}</ol>' if type(start) is int else f"<ol>{inner}</ol>"


def _item(attributes: Mapping[str, Any], inner: str) -> str:
    task = "" if "task" not in attributes else "☑ " if attributes["task"] else "☐ "
    return f"<li>{task}{inner}</li>"


def _cell(kind: str, attributes: Mapping[str, Any], inner: str) -> str:
    align = attributes.get("align")
    side = f' class="{align}"' if align in {"left", "center", "right"} else ""
    return f"<{kind}{side}>{inner}</{kind}>"


def _link(address: str, inner: str, *, picture: bool) -> str:
    """A link that says where it leads; a picture is one too, since nothing is fetched."""
    shown = html.escape(address)
    label = f"Picture: {inner}" if picture else inner
    if not _SAFE.match(address):
        return f"{label} ({shown})"
    where = "" if inner == shown else f" ({shown})"
    return f'<a href="{shown}" rel="noreferrer noopener">{label}</a>{where}'


_MADE: Final[Mapping[str, Callable[[Mapping[str, Any], str], str]]] = {
    "hr": lambda _, __: "<hr>",
    "br": lambda _, __: "<br>",
    "ol": _list,
    "li": _item,
    "th": partial(_cell, "th"),
    "td": partial(_cell, "td"),
    "a": lambda given, inner: _link(str(given["href"]), inner, picture=False),
    "image": lambda given, inner: _link(str(given["href"]), inner, picture=True),
    "math": lambda given, _: f"<code>{html.escape(str(given['source']))}</code>",
    "note": lambda _, inner: f"<sup>{inner}</sup>",
}


_HTML_HEAD: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" \
content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p class="line">{size}</p>
"""
_STYLE: Final = """
:root { color-scheme: light dark; }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif;
  background: light-dark(#fff, #1b1d21); color: light-dark(#1d2025, #e7e9ec); }
main { max-width: 46rem; margin: 0 auto; padding: 2rem 1rem; }
article { padding: 1rem 0; border-top: 1px solid light-dark(#e2e2dd, #2f333a); }
header { display: flex; flex-wrap: wrap; gap: 0 1rem; align-items: baseline; }
h2, h3 { margin: 0; font-size: 1rem; }
h3 { margin-top: .75rem; font-size: .875rem; }
header p, .line, figcaption, summary { margin: 0; font-size: .8125rem;
  color: light-dark(#5c636e, #a3aab5); }
a { color: inherit; }
.system h2 { color: light-dark(#6d5aa8, #b7a6ee); }
.user h2 { color: light-dark(#2f55c8, #9db4ff); }
.assistant h2 { color: light-dark(#1a7350, #6fd0a5); }
.tool h2 { color: light-dark(#8a5a00, #e5b562); }
.note { margin-top: .25rem; padding-left: .75rem; white-space: pre-wrap; overflow-wrap: anywhere;
  border-left: 3px solid light-dark(#8a5a00, #e5b562); }
.text { margin-top: .5rem; white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; }
.formatted { overflow-wrap: anywhere; unicode-bidi: isolate; }
.formatted > :first-child { margin-top: .5rem; }
.formatted > :last-child { margin-bottom: 0; }
blockquote { margin: .5rem 0; padding-left: .75rem; border-left: 3px solid currentColor; }
table { border-collapse: collapse; }
th, td { padding: .25rem .5rem; border: 1px solid light-dark(#e2e2dd, #2f333a); text-align: left; }
.center { text-align: center; }
.right { text-align: right; }
pre { margin: .25rem 0 0; padding: .75rem; border-radius: 6px; white-space: pre-wrap;
  overflow-wrap: anywhere; background: light-dark(#f0f0ed, #24272c); }
details { margin-top: .5rem; }
summary { cursor: pointer; }
figure { margin: .5rem 0 0; }
img { max-width: 100%; }
"""
