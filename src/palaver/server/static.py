"""The static files of the page: read once, held in memory, addressed by a digest of their content.

A file has two addresses. `/page/DIGEST/scripts/app.js` is for browsers: the digest covers all files
together, so the content at that address never changes and is cached for good; modules import each
other by relative paths and so stay under one digest. `/page/scripts/app.js` is for people and is
always the newest. The page itself, `/`, is `index.html` with addresses of the first kind. It needs
few requests: its style sheets are sent as one file, and the modules of its scripts are preloaded.

Files that changed on disk are read again, under a new digest, when `/` is requested. The files hold
no data, so they need no token; a path without a file needs one like every other path.
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

from palaver.server.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["FileResponse", "PageFiles", "page_files"]

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
"""The types that are served; files of other types are not part of the page."""

_Headers = list[tuple[bytes, bytes]]
_Times = dict[str, tuple[int, int]]


class FileResponse(NamedTuple):
    """The response for a file."""

    status: int
    headers: _Headers
    body: bytes


class _File:
    """One file, plain and compressed, each with its ETag."""

    def __init__(self, data: bytes, kind: bytes) -> None:
        self.kind = kind
        self.plain = data, f'"{_hash([data])}"'.encode()
        compressed = gzip.compress(data, mtime=0)
        smaller = len(compressed) < len(data)
        self.compressed = (compressed, f'"{_hash([data])}-gzip"'.encode()) if smaller else None

    def respond(self, request: Mapping[str, str], caching: bytes) -> FileResponse:
        compressed = self.compressed if _accepts_gzip(request.get("accept-encoding", "")) else None
        data, tag = compressed or self.plain
        headers = [(b"etag", tag), (b"cache-control", caching), (b"vary", b"accept-encoding")]
        if tag.decode() in request.get("if-none-match", ""):
            return FileResponse(304, headers, b"")
        headers += [(b"content-type", self.kind), (b"content-length", str(len(data)).encode())]
        if compressed is not None:
            headers.append((b"content-encoding", b"gzip"))
        return FileResponse(200, headers, data)


class _Build(NamedTuple):
    """All files as read at one time; `times` tells whether they changed on disk."""

    digest: str
    front: _File
    files: dict[str, _File]
    times: _Times


class PageFiles:
    """The files of a folder, by their addresses.

    >>> files = PageFiles(_FOLDER)
    >>> response = files.respond("GET", "/page/styles.css", {})
    >>> response.status, dict(response.headers)[b"content-type"]
    (200, b'text/css; charset=utf-8')
    """

    def __init__(self, folder: Path) -> None:
        """Read all files."""
        self._folder = folder
        self._build = _read(folder, _times(folder))

    def respond(self, method: str, path: str, headers: Mapping[str, str]) -> FileResponse:
        """The response for a path; the request's `headers` have lower-case names."""
        if method not in {"GET", "HEAD"}:
            raise RequestRefused(405, "files can only be read", headers={"Allow": "GET, HEAD"})
        if path == "/":
            self._reload()
            found = self._build.front.respond(headers, _ASK)
        else:
            found = self._file(path, headers)
        return found._replace(body=b"") if method == "HEAD" else found

    def has(self, path: str) -> bool:
        """Tell whether a path is that of a file, under any digest."""
        if not path.startswith("/page/"):
            return path == "/"
        parts = _ADDRESS.fullmatch(path)
        return parts is not None and parts[2] in self._build.files

    def _file(self, path: str, headers: Mapping[str, str]) -> FileResponse:
        build = self._build
        parts = _ADDRESS.fullmatch(path)
        file = None if parts is None else build.files.get(parts[2])
        if parts is None or file is None:
            raise RequestRefused(404, "there is no such file")
        # a page that was open before its server was updated gets the new file, uncached
        return file.respond(headers, _FOREVER if parts[1] == build.digest else _ASK)

    def _reload(self) -> None:
        times = _times(self._folder)
        if times != self._build.times:
            # an editor may be replacing a file: then the files in memory are served once more
            with suppress(FileNotFoundError):
                self._build = _read(self._folder, times)


@cache
def page_files() -> PageFiles:
    """The files of this package's page; all servers of a process share them."""
    return PageFiles(_FOLDER)


def _times(folder: Path) -> _Times:
    """The time and size of each file, by its path in the folder."""
    found: _Times = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.rpartition(".")[2] in _TYPES and not name.startswith("."):
                place = Path(root, name)
                seen = place.stat()
                found[place.relative_to(folder).as_posix()] = seen.st_mtime_ns, seen.st_size
    return found


def _read(folder: Path, times: _Times) -> _Build:
    data = {name: folder.joinpath(name).read_bytes() for name in sorted(times)}
    digest = _hash(piece for name in data for piece in (name.encode(), data[name]))
    text = data.pop(_INDEX).decode()
    sheets = _SHEETS.search(text)
    if sheets is not None:
        data[_ALL_SHEETS] = b"\n".join(data[name] for name in _SHEET.findall(sheets[0]))
        link = f'    <link rel="stylesheet" href="/page/{_ALL_SHEETS}" />\n'
        text = text.replace(sheets[0], link)
    modules = _list_modules(data, _SCRIPT.findall(text))
    preloads = [f'    <link rel="modulepreload" href="/page/{name}" />\n' for name in modules]
    text = text.replace("  </head>", f"{''.join(preloads)}  </head>")
    text = text.replace('"/page/', f'"/page/{digest}/')
    front = _File(text.encode(), _TYPES["html"])
    files = {name: _File(held, _TYPES[name.rpartition(".")[2]]) for name, held in data.items()}
    return _Build(digest, front, files, times)


def _list_modules(data: Mapping[str, bytes], scripts: Iterable[str]) -> list[str]:
    """List the modules that scripts import, directly and indirectly, each once."""
    found = dict.fromkeys(scripts)
    waiting = list(found)
    for name in waiting:
        for path in _IMPORT.findall(data[name].decode()):
            other = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            if other in data and other not in found:
                found[other] = None
                waiting.append(other)
    return waiting


def _hash(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "big") + piece)
    return digest.hexdigest()[:16]


def _accepts_gzip(accepted: str) -> bool:
    """Tell whether an Accept-Encoding allows gzip: it is named, and its weight is not 0."""
    for one in accepted.lower().replace(" ", "").split(","):
        coding, _, weight = one.partition(";q=")
        if coding == "gzip":
            return not weight or weight.strip("0.") != ""
    return False
