"""Build the documentation as a site that can be searched, also without a network.

    python -m tools.site [--serve]

The pages of `docs/` and the Markdown files beside it become one folder of pages, which Zensical
makes a site of: English at the root, Chinese under `zh/`. A link that leads nowhere fails the
build. Links to other files of the project become plain text, since the site does not have them.
`llms.txt` lists every page with its first sentence, for programs that read documentation.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main"]

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = ROOT / "build"
BESIDE: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""The pages that are beside `docs/` in the project, and in it on the site."""
CONFIGS: Final = {"en": "zensical.toml", "zh": "zensical.zh.toml"}

_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"^```.*?^```\s*$", re.MULTILINE | re.DOTALL)
_WRAPPED: Final = re.compile(r"(?<=[\u3000-\u303f\uff00-\uffef])\n *(?![\s|#>*<-]|\d+\.|```)")
_ELSEWHERE: Final = ("http:", "https:", "mailto:")


def main(arguments: list[str] | None = None) -> int:
    """Build the site; return the exit status."""
    parser = argparse.ArgumentParser(prog="site", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--serve", action="store_true", help="serve it on this machine afterwards")
    options = parser.parse_args(arguments)
    print(f"site: {len(stage(BUILD / 'pages'))} pages")
    shutil.rmtree(BUILD / "site", ignore_errors=True)
    for language, config in CONFIGS.items():
        print(f"site: {language}", flush=True)
        command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
        done = subprocess.run([*command, "--config-file", str(ROOT / config)], check=False)
        if done.returncode:
            return done.returncode
    if not options.serve:
        print("site: it is in build/site; to read and search it here: python -m tools.site --serve")
        return 0
    handler = partial(SimpleHTTPRequestHandler, directory=str(BUILD / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, suppress(KeyboardInterrupt):
        print(f"site: http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)", flush=True)
        server.serve_forever()
    return 0


def stage(folder: Path) -> list[Path]:
    """Copy all pages into a folder for each language, with links as they are there."""
    shutil.rmtree(folder, ignore_errors=True)
    places = {path: folder / "en" / place for path, place in english()}
    places |= {path: folder / "zh" / place for path, place in chinese()}
    for path, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = relink(path, place, places)
            place.write_text(unwrap(text) if language_of(place) == "zh" else text, "utf-8")
        else:
            shutil.copyfile(path, place)
    pages = [place for place in places.values() if place.suffix == ".md"]
    (folder / "en" / "llms.txt").write_text(llms(folder / "en"), "utf-8")
    return pages


def english() -> Iterator[tuple[Path, str]]:
    """Yield the files of the English site, each with its place on it."""
    yield ROOT / "README.md", "index.md"
    for name in BESIDE:
        yield ROOT / name, name.lower()
    for path in sorted((ROOT / "docs").rglob("*")):
        place = path.relative_to(ROOT / "docs")
        if path.is_file() and place.parts[0] != "zh":
            yield path, {"index.md": "pages.md"}.get(str(place), str(place))


def chinese() -> Iterator[tuple[Path, str]]:
    """Yield the files of the Chinese site, each with its place on it."""
    yield ROOT / "README.zh-CN.md", "index.md"
    for path in sorted((ROOT / "docs" / "zh").rglob("*.md")):
        yield path, str(path.relative_to(ROOT / "docs" / "zh"))


def relink(path: Path, place: Path, places: dict[Path, Path]) -> str:
    """Return a page with its links as they are on the site."""

    def link(found: re.Match[str]) -> str:
        image, text, target, anchor = found.groups()
        if target.startswith(_ELSEWHERE):
            return found[0]
        wanted = (path.parent / target).resolve()
        there = places.get(wanted) or places.get(wanted / "README.md")
        if there is None:
            return text
        if language_of(there) != language_of(place):
            steps = os.path.relpath(site_path(there), site_path(place).parent)
            address = re.sub(r"\.md$", ".html", steps)
            return f"{image}[{text}]({address}{anchor or ''})"
        return f"{image}[{text}]({os.path.relpath(there, place.parent)}{anchor or ''})"

    return _LINK.sub(link, path.read_text("utf-8"))


def unwrap(text: str) -> str:
    """Join the lines of a paragraph that break after a full-width mark; code stays as it is."""
    pieces = _FENCE.split(text)
    fences = _FENCE.findall(text)
    joined = [_WRAPPED.sub("", piece) for piece in pieces]
    return "".join(piece + fence for piece, fence in zip(joined, [*fences, ""], strict=True))


def language_of(place: Path) -> str:
    """Return the language of a staged page."""
    return place.relative_to(BUILD / "pages").parts[0]


def site_path(place: Path) -> Path:
    """Return where a staged page is on the site.

    The Chinese pages are in a folder of their own; the README of a folder is its index.
    """
    language, *rest = place.relative_to(BUILD / "pages").parts
    if rest[-1] == "README.md":
        rest[-1] = "index.md"
    return Path(*([] if language == "en" else [language]), *rest)


def llms(folder: Path) -> str:
    """List the pages of a folder for programs: title, address, first sentence."""
    lines = ["# palaver", "", "> The conversation-state engine for LLM agents.", ""]
    for page in sorted(folder.rglob("*.md")):
        title, sentence = first_lines(page.read_text("utf-8"))
        address = page.relative_to(folder).with_suffix(".html")
        lines.append(f"- [{title}]({address}){f': {sentence}' if sentence else ''}")
    return "\n".join(lines) + "\n"


def first_lines(text: str) -> tuple[str, str]:
    """Return a page's title, and the first sentence of its first paragraph."""
    title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), "")
    for block in _FENCE.sub("", text).split("\n\n")[1:]:
        if block.strip() and not block.lstrip().startswith(("#", "|", ">", "-", "!", "[", "<")):
            words = _LINK.sub(r"\2", " ".join(block.split()))
            return title, words.split(". ")[0].rstrip(".:") + "."
    return title, ""


if __name__ == "__main__":
    sys.exit(main())
