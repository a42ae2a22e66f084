"""Check the programs of the docs with the type checkers, as a reader's own project would.

The Python blocks of README, the tutorial and the how-tos are checked with `mypy --strict` and with
basedpyright, page by page; an error names the page and its line. `PLANTED` is a program with a
mistake in every marked line: each checker has to find each of them, and nothing else, so that the
types of palaver's functions don't fade into `Any`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.markdown import FOREIGN, blocks  # noqa: E402 - beside this folder

PLANTED = '''\
from dataclasses import dataclass

import palaver
from palaver import Conversation, Limits, Message, tool, user


@tool
def weather(city: str, days: int = 1) -> str:
    """The weather of a city."""
    return f"sun in {city} for {days} days"


@tool(need_approval=True)  # wrong: the option is needs_approval
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"{amount} paid"


@dataclass
class Forecast:
    city: str


async def main() -> None:
    talk = Conversation("chat.db", model="openai:gpt-5", tools=[weather])
    Conversation("chat.db", modle="openai:gpt-5")  # wrong: the argument is model
    Conversation("chat.db", model=5)  # wrong: no model
    Conversation("chat.db", tools=weather)  # wrong: no list
    weather(5)  # wrong: a city is text
    weather(town="Oslo")  # wrong: the argument is city
    weather("Oslo").days  # wrong: the function returns text
    talk.ask("Tea?").text  # wrong: not awaited
    answer = await talk.ask("Tea?")
    answer.txt  # wrong: the attribute is text
    await talk.ask(5)  # wrong: no message
    await talk.ask("Tea?", limits=3)  # wrong: no Limits
    await talk.ask("Tea?", limit=Limits(steps=3))  # wrong: the argument is limits
    await talk.ask("Tea?", key=5)  # wrong: a key is text
    await talk.ask("Tea?", approve=True)  # wrong: no function
    await talk.ask("Tea?", options=["temperature"])  # wrong: no mapping
    forecast = await talk.ask("Oslo?", output=Forecast)
    forecast.town  # wrong: a Forecast has a city
    Limits(step=3)  # wrong: the limit is steps
    Limits(steps="3")  # wrong: no number
    await talk.stream("Tea?")  # wrong: a stream is not awaited
    for _ in talk.stream("Tea?"):  # wrong: a stream is read with async for
        pass
    talk.add(5)  # wrong: no message
    Message("robot", "beep")  # wrong: no such role
    user(5)  # wrong: no content
    with palaver.open("chat.db") as store:
        store.create("Tea?")  # wrong: no list of messages
        history = store.create([user("Tea?")])
        history.truncate(keep_first="1")  # wrong: no number
        for hit in store.search("tea"):
            hit.score  # wrong: a hit has no score
'''
_PYRIGHT = {
    "typeCheckingMode": "strict",
    "pythonVersion": "3.11",
    "enableTypeIgnoreComments": False,
    # what JSON holds is unknown, and that is the truth
    "reportUnknownArgumentType": False,
    "reportUnknownLambdaType": False,
    "reportUnknownMemberType": False,
    "reportUnknownVariableType": False,
    # a page shows a value by naming it, and uses `_repr_html_` as a notebook does
    "reportUnusedExpression": False,
    # a loop over two keys runs
    "reportPossiblyUnboundVariable": False,
    # that a generator's return type could be said more narrowly is no mistake
    "reportDeprecated": False,
    "reportPrivateUsage": False,
}
_MYPY_LINE = re.compile(r"([\w.]+\.py):(\d+): error: (.*)")


def main() -> int:
    """Print every problem; answer the exit status."""
    with tempfile.TemporaryDirectory(prefix="palaver-programs-") as name:
        folder = Path(name)
        count = write_programs(folder)
        (folder / "planted.py").write_text(PLANTED)
        found = {"mypy": set(mypy(folder)), "basedpyright": set(basedpyright(folder))}
    planted = {number for number, line in enumerate(PLANTED.splitlines(), 1) if "# wrong: " in line}
    problems: list[str] = []
    for checker, errors in found.items():
        seen = {line for page, line, _ in errors if page == "planted.py"}
        problems += [
            f"{checker}: {page}:{line}: {text}"
            for page, line, text in sorted(errors)
            if page != "planted.py" or line not in planted
        ]
        lines = PLANTED.splitlines()
        problems += [
            f"{checker} does not find: {lines[line - 1].strip()}" for line in planted - seen
        ]
    print(*problems, sep="\n", end="\n" if problems else "")
    summary = f"{count} pages, {len(planted)} planted mistakes"
    print(
        f"programs: {len(problems)} problems in {summary}" if problems else f"programs: {summary}"
    )
    return 1 if problems else 0


def write_programs(folder: Path) -> int:
    """Write the Python of each page as one file, each line where it is on the page."""
    pages = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *ROOT.glob("docs/howto/*.md")]
    count = 0
    for page in pages:
        if page.relative_to(ROOT).as_posix() in FOREIGN:
            continue
        program = ""
        for block in blocks(page.read_text("utf-8")):
            if block.language == "python":
                program += "\n" * (block.line - 1 - program.count("\n")) + block.code
        if program:
            count += 1
            (folder / f"{page.stem.replace('-', '_').lower()}.py").write_text(program)
    return count


def mypy(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the errors of `mypy --strict`: page, line, text."""
    names = [path.name for path in sorted(folder.glob("*.py"))]
    options = ["--strict", "--python-version=3.11", "--config-file=", "--follow-imports=silent"]
    cache = f"--cache-dir={ROOT / '.mypy_cache' / 'programs'}"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, cache, *names],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    for page, line, text in _MYPY_LINE.findall(done.stdout):
        yield page, int(line), text
    if done.stderr:
        yield "mypy", 0, done.stderr.strip()


def basedpyright(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the errors of basedpyright: page, line, text."""
    config = {**_PYRIGHT, "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", f"--pythonpath={sys.executable}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            text = one["message"].partition("\n")[0]
            yield Path(one["file"]).name, one["range"]["start"]["line"] + 1, text


if __name__ == "__main__":
    sys.exit(main())
