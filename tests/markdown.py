"""The examples in a Markdown file, as the tests of the docs run them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]+ -->\s*\n)?^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```\s*$",
    re.MULTILINE | re.DOTALL,
)


FOREIGN = frozenset(
    f"docs/howto/{name}.md"
    for name in (
        "adk",
        "agent-framework",
        "claude-agent-sdk",
        "langchain",
        "langgraph",
        "llama-index",
        "openai-agents",
        "pydantic-ai",
        "strands",
        "workflow-nodes",
    )
)
"""Pages whose examples need another framework: they are run by `make compat`, beside it."""


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line its text starts on."""

    language: str
    code: str
    line: int


class Command(NamedTuple):
    """A command in a console block, and the output shown below it."""

    command: str
    output: str


def blocks(text: str) -> Iterator[Block]:
    r"""Yield the blocks to run: all but those below `<!-- not run: reason -->`.

    >>> [block.code for block in blocks("```python\n1 + 1\n```\n")]
    ['1 + 1\n']
    """
    for match in _BLOCK.finditer(text):
        if not match["skip"]:
            line = text.count("\n", 0, match.start("code")) + 1
            yield Block(match["language"], match["code"], line)


def commands(console: str) -> list[Command]:
    r"""Split a console block that starts with `$ palaver` into commands and outputs.

    >>> commands("$ palaver --version\npalaver ...\n")
    [Command(command='palaver --version', output='palaver ...')]
    >>> commands("$ make test\n")
    []
    """
    if not re.match(r"\$ palaver\b", console):
        return []
    chunks = re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]
    pairs = (chunk.partition("\n") for chunk in chunks)
    return [Command(command.strip(), output.rstrip()) for command, _, output in pairs]


def matches(shown: str, printed: str) -> bool:
    r"""Compare an output with the one shown, where `...` stands for anything.

    >>> matches("palaver ...", "palaver 0.1.0"), matches("one\n...", "two\nthree")
    (True, False)
    """
    pattern = ".*".join(re.escape(piece) for piece in trimmed(shown).split("..."))
    return re.fullmatch(pattern, trimmed(printed), re.DOTALL) is not None


def trimmed(text: str) -> str:
    """Drop the spaces that end lines, and the blank lines that end the text."""
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())
