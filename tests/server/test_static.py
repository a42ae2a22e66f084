"""The page's files: at addresses that never change what they mean, packed, and loaded at once."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

import pytest

from palaver.server.errors import RequestRefused
from palaver.server.static import PageFiles, page_files
from tests.server.client import ADDRESS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.client import APIClient

INDEX = """<html>
  <head>
    <link rel="stylesheet" href="/page/styles/all.css" />
    <link rel="stylesheet" href="/page/styles/few.css" />
    <script type="module" src="/page/scripts/app.js"></script>
  </head>
</html>
"""
APP = """/** @typedef {import("./never.js").Never} Never */
import "./first.js";
import { one,
  two } from './deep/second.js';
export * from "./gone.js";
const late = () => import("./late.js");
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small page."""
    files = {
        "index.html": INDEX,
        "styles/all.css": "p { color: red }" * 100,
        "styles/few.css": "a {}",
        "scripts/app.js": APP,
        "scripts/first.js": 'import "./deep/second.js";',
        "scripts/deep/second.js": 'import "../first.js";',
        "scripts/late.js": "",
        "scripts/notes.txt": "not of the page",
        "scripts/.hidden.js": "",
        ".git/config.json": "{}",
    }
    for name, text in files.items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
    return tmp_path


def written(page: PageFiles) -> str:
    return page.respond("GET", "/", {}).body.decode()


def digest(page: PageFiles) -> str:
    return str(re.findall(r"/page/([0-9a-f]{16})/", written(page))[0])


# ── through the server ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/page/scripts/core/api.js", "text/javascript; charset=utf-8"),
        ("/page/styles/base.css", "text/css; charset=utf-8"),
        ("/page/icons/icons.svg", "image/svg+xml"),
        ("/page/scripts/locales/en/shell.json", "application/json"),
    ],
)
def test_the_page_is_served(ask: APIClient, path: str, kind: str) -> None:
    answer = ask.get(path, headers={"authorization": ""})
    assert (200, kind) == (answer.status_code, answer.headers["content-type"])
    assert "no-cache" == answer.headers["cache-control"]
    again = ask.get(path, headers={"if-none-match": answer.headers["etag"]})
    assert (304, b"") == (again.status_code, again.content)


def test_everything_the_page_names_is_there_and_stays(ask: APIClient) -> None:
    names = re.findall(r'"(/page/[^"]+)"', ask.get("/").text)
    assert len(names) > 40
    for name in names:
        answer = ask.get(name, headers={"authorization": ""})
        caching = answer.headers["cache-control"]
        assert (200, "public, max-age=31536000, immutable") == (answer.status_code, caching)


@pytest.mark.parametrize(
    "path",
    ["/page/none.js", "/page/scripts", "/page/scripts/../../app.py", "/page/.hidden.js", "/none",
     "/page/0123456789abcdef/none.js", "/page", "/page/index.html"],
)  # fmt: skip
def test_nothing_else_is_served(ask: APIClient, path: str) -> None:
    answer = ask.get(path)
    kind = answer.headers["content-type"]
    assert (404, "application/problem+json") == (answer.status_code, kind)
    assert 401 == ask.get(path, headers={"authorization": ""}).status_code


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page/%2e%2e/app.py", "/page/..%2fsettings.py", "/page/scripts%5capi.js",
     "/page//etc/passwd.json", "/page/%00.js"],
)  # fmt: skip
def test_odd_addresses_are_refused(ask: APIClient, path: str) -> None:
    answer = ask.get(path)
    kind = answer.headers["content-type"]
    assert (400, "application/problem+json") == (answer.status_code, kind)


@pytest.mark.parametrize("path", ["/", "/page/scripts/app.js"])
def test_files_pass_the_gate_like_everything_else(ask: APIClient, path: str) -> None:
    assert 421 == ask.get(path, headers={"host": "evil.example"}).status_code
    assert 403 == ask.get(path, headers={"origin": "http://evil.example"}).status_code
    assert 405 == ask.post(path, headers={"origin": ADDRESS}).status_code


# ── by itself ───────────────────────────────────────────────────────────────────────────────────


def test_a_module_is_preloaded_once_and_only_if_it_is_imported_at_once(folder: Path) -> None:
    loaded = re.findall(
        r'rel="modulepreload" href="/page/[^/]+/([^"]+)"', written(PageFiles(folder))
    )
    assert ["scripts/app.js", "scripts/first.js", "scripts/deep/second.js"] == loaded


def test_the_style_sheets_leave_as_one_in_their_order(folder: Path) -> None:
    page = PageFiles(folder)
    assert 1 == written(page).count('rel="stylesheet"')
    assert f'href="/page/{digest(page)}/styles.css"' in written(page)
    joined = page.respond("GET", "/page/styles.css", {}).body
    assert b"p { color: red }" * 100 + b"\na {}" == joined


def test_no_style_sheet_names_another_file() -> None:
    """It could not be found from where all of them leave as one."""
    sheets = page_files().respond("GET", "/page/styles.css", {}).body.decode()
    assert "url(" not in sheets
    assert "@import" not in sheets


def test_a_page_may_have_no_style(folder: Path) -> None:
    (folder / "index.html").write_text("<html></html>", "utf-8")
    assert "<html></html>" == written(PageFiles(folder))


def test_only_an_address_of_this_edition_may_be_kept_for_ever(folder: Path) -> None:
    page = PageFiles(folder)
    addresses = {
        f"/page/{digest(page)}/scripts/app.js": b"public, max-age=31536000, immutable",
        "/page/0123456789abcdef/scripts/app.js": b"no-cache",
        "/page/scripts/app.js": b"no-cache",
    }
    for address, caching in addresses.items():
        answer = page.respond("GET", address, {})
        assert (APP.encode(), caching) == (answer.body, dict(answer.headers)[b"cache-control"])


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [("gzip, deflate, br", True), ("br;q=1.0, gzip;q=0.8", True), ("GZIP", True), ("", False),
     ("identity", False), ("gzip;q=0", False), ("br, gzip; q=0.0", False), ("x-gzip", False)],
)  # fmt: skip
def test_a_file_is_packed_for_whoever_takes_it(folder: Path, accepted: str, packed: bool) -> None:  # noqa: FBT001 - a parameter
    answer = PageFiles(folder).respond("GET", "/page/styles/all.css", {"accept-encoding": accepted})
    headers = dict(answer.headers)
    assert packed is (headers.get(b"content-encoding") == b"gzip")
    assert b"p { color: red }" * 100 == (gzip.decompress(answer.body) if packed else answer.body)
    assert str(len(answer.body)).encode() == headers[b"content-length"]
    assert b"accept-encoding" == headers[b"vary"]


def test_packed_and_plain_have_tags_of_their_own(folder: Path) -> None:
    page, address = PageFiles(folder), "/page/styles/all.css"
    plain = dict(page.respond("GET", address, {}).headers)[b"etag"].decode()
    taking = {"accept-encoding": "gzip"}
    packed = dict(page.respond("GET", address, taking).headers)[b"etag"].decode()
    assert plain != packed
    assert 304 == page.respond("GET", address, {**taking, "if-none-match": packed}).status
    assert 304 == page.respond("GET", address, {"if-none-match": f'"x", W/{plain}'}).status
    assert 200 == page.respond("GET", address, {"if-none-match": packed}).status


def test_what_packing_would_make_larger_is_left_plain(folder: Path) -> None:
    answer = PageFiles(folder).respond("GET", "/page/scripts/first.js", {"accept-encoding": "gzip"})
    assert b'import "./deep/second.js";' == answer.body


def test_a_changed_file_is_seen_when_the_page_is_loaded_again(folder: Path) -> None:
    page = PageFiles(folder)
    before = digest(page)
    (folder / "scripts/first.js").write_text("changed()", "utf-8")
    held = page.respond("GET", f"/page/{before}/scripts/first.js", {})
    assert b"changed()" != held.body  # an edition is whole: nothing of it changes by itself
    after = digest(page)
    assert before != after
    assert b"changed()" == page.respond("GET", f"/page/{after}/scripts/first.js", {}).body


def test_a_file_that_is_away_for_a_moment_breaks_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PageFiles(folder)
    before = digest(page)
    (folder / "styles/all.css").write_text("p {}", "utf-8")
    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.read_bytes", _away)
        assert before == digest(page)
    assert before != digest(page)


def _away(path: Path) -> bytes:
    raise FileNotFoundError(path)


def test_a_head_is_an_answer_without_its_body(folder: Path) -> None:
    page = PageFiles(folder)
    whole, head = (page.respond(method, "/page/scripts/app.js", {}) for method in ("GET", "HEAD"))
    assert (whole.status, whole.headers, b"") == head


def test_files_are_only_read(folder: Path) -> None:
    with pytest.raises(RequestRefused, match="only be read"):
        PageFiles(folder).respond("POST", "/", {})
