"""The files of the page, as they leave: read once, held in memory, known by what is in them.

A file has two addresses. `/page/DIGEST/scripts/app.js` is for browsers: the digest is of all files
together, so what is there never changes and is never asked for twice; modules import each other by
relative paths and so stay under one digest. `/page/scripts/app.js` is for people, and always means
the newest. The page itself, `/`, is `index.html` with the addresses of the first kind written in;
what a browser needs first it asks for at once and with few requests, since its style sheets leave
as one and each module that its scripts import is preloaded.

Whoever works on the page just loads it again: when `/` is asked for, files that changed on disk
are read anew, under a new digest. The files hold no data, so nobody has to show a token for one of
them; for an address at which there is none, the token is needed as everywhere.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import posixpath
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from palaver.server.problems import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Answer", "Page", "the_page"]

_FOLDER: Final = Path(__file__).with_name("page")
_INDEX: Final = "index.html"
_ADDRESS: Final = re.compile(r"/page/(?:([0-9a-f]{16})/)?(.+)")
_SHEETS: Final = re.compile(r'(?: *<link rel="stylesheet" href="/page/[^"]+" />\n)+')
_SHEET: Final = re.compile(r'href="/page/([^"]+)"')
_ALL_SHEETS: Final = "styles.css"
_SCRIPT: Final = re.compile(r'<script type="module" src="/page/([^"]+)">')
_IMPORT: Final = re.compile(r"""^(?:import|export)\b[^"';]*["'](\.[^"']+)["']""", re.MULTILINE)
_FOREVER: Final = b"public, max-age=31536000, immutable"
_ASK: Final = b"no-cache"
_TYPES: Final = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "json": b"application/json",
    "svg": b"image/svg+xml",
    "png": b"image/png",
    "woff2": b"font/woff2",
    "webmanifest": b"application/manifest+json",
}
"""What is served; a file of another kind is not of the page."""

_Headers = list[tuple[bytes, bytes]]
_Times = dict[str, tuple[int, int]]


class Answer(NamedTuple):
    """What is sent for a file."""

    status: int
    headers: _Headers
    body: bytes


class _File:
    """One file, plain and packed, each with its tag."""

    def __init__(self, data: bytes, kind: bytes) -> None:
        self.kind = kind
        self.plain = data, f'"{_hashed([data])}"'.encode()
        packed = gzip.compress(data, mtime=0)
        smaller = len(packed) < len(data)
        self.packed = (packed, f'"{_hashed([data])}-gzip"'.encode()) if smaller else None

    def answered(self, asked: Mapping[str, str], caching: bytes) -> Answer:
        packed = self.packed if _takes_gzip(asked.get("accept-encoding", "")) else None
        data, tag = packed or self.plain
        headers = [(b"etag", tag), (b"cache-control", caching), (b"vary", b"accept-encoding")]
        if tag.decode() in asked.get("if-none-match", ""):
            return Answer(304, headers, b"")
        headers += [(b"content-type", self.kind), (b"content-length", str(len(data)).encode())]
        if packed is not None:
            headers.append((b"content-encoding", b"gzip"))
        return Answer(200, headers, data)


class _Edition(NamedTuple):
    """All files at one time; `times` tell whether they are still the ones on disk."""

    digest: str
    front: _File
    files: dict[str, _File]
    times: _Times


class Page:
    """The files of a folder, by their addresses.

    >>> page = Page(_FOLDER)
    >>> answer = page.answer("GET", "/page/scripts/app.js", {})
    >>> answer.status, dict(answer.headers)[b"content-type"]
    (200, b'text/javascript; charset=utf-8')
    """

    def __init__(self, folder: Path) -> None:
        """Read everything."""
        self._folder = folder
        self._edition = _read(folder, _times(folder))

    def answer(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        """What is sent for an address; the request's `headers` have names in small letters."""
        if method not in {"GET", "HEAD"}:
            raise Refusal(405, "files are only read", headers={"Allow": "GET, HEAD"})
        if path == "/":
            self._look_again()
            found = self._edition.front.answered(headers, _ASK)
        else:
            found = self._file(path, headers)
        return found._replace(body=b"") if method == "HEAD" else found

    def has(self, path: str) -> bool:
        """Tell whether an address is that of a file; under any digest, as `answer` has it."""
        if not path.startswith("/page/"):
            return path == "/"
        parts = _ADDRESS.fullmatch(path)
        return parts is not None and parts[2] in self._edition.files

    def _file(self, path: str, headers: Mapping[str, str]) -> Answer:
        edition = self._edition
        parts = _ADDRESS.fullmatch(path)
        file = None if parts is None else edition.files.get(parts[2])
        if parts is None or file is None:
            raise Refusal(404, "there is no such file")
        # a page that was open before its server was renewed gets the new file, for this once
        return file.answered(headers, _FOREVER if parts[1] == edition.digest else _ASK)

    def _look_again(self) -> None:
        times = _times(self._folder)
        if times != self._edition.times:
            # an editor may be about to put a file back: then what is known serves once more
            with suppress(FileNotFoundError):
                self._edition = _read(self._folder, times)


@cache
def the_page() -> Page:
    """The page of this package; all servers of a process share it."""
    return Page(_FOLDER)


def _times(folder: Path) -> _Times:
    """Each file's time and size, by its path in the folder."""
    found: _Times = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.rpartition(".")[2] in _TYPES and not name.startswith("."):
                place = Path(root, name)
                seen = place.stat()
                found[place.relative_to(folder).as_posix()] = seen.st_mtime_ns, seen.st_size
    return found


def _read(folder: Path, times: _Times) -> _Edition:
    data = {name: folder.joinpath(name).read_bytes() for name in sorted(times)}
    digest = _hashed(piece for name in data for piece in (name.encode(), data[name]))
    text = data.pop(_INDEX).decode()
    sheets = _SHEETS.search(text)
    if sheets is not None:
        data[_ALL_SHEETS] = b"\n".join(data[name] for name in _SHEET.findall(sheets[0]))
        link = f'    <link rel="stylesheet" href="/page/{_ALL_SHEETS}" />\n'
        text = text.replace(sheets[0], link)
    modules = _imported(data, _SCRIPT.findall(text))
    preloads = [f'    <link rel="modulepreload" href="/page/{name}" />\n' for name in modules]
    text = text.replace("  </head>", f"{''.join(preloads)}  </head>")
    text = text.replace('"/page/', f'"/page/{digest}/')
    front = _File(text.encode(), _TYPES["html"])
    files = {name: _File(held, _TYPES[name.rpartition(".")[2]]) for name, held in data.items()}
    return _Edition(digest, front, files, times)


def _imported(data: Mapping[str, bytes], scripts: Iterable[str]) -> list[str]:
    """The modules that scripts import, and those that they import, each once."""
    found = dict.fromkeys(scripts)
    waiting = list(found)
    for name in waiting:
        for path in _IMPORT.findall(data[name].decode()):
            other = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            if other in data and other not in found:
                found[other] = None
                waiting.append(other)
    return waiting


def _hashed(pieces: Iterable[bytes]) -> str:
    whole = hashlib.sha256()
    for piece in pieces:
        whole.update(len(piece).to_bytes(8, "big") + piece)
    return whole.hexdigest()[:16]


def _takes_gzip(accepted: str) -> bool:
    """Tell whether an Accept-Encoding takes gzip: named, and not with a weight of nothing."""
    for one in accepted.lower().replace(" ", "").split(","):
        coding, _, weight = one.partition(";q=")
        if coding == "gzip":
            return not weight or weight.strip("0.") != ""
    return False
