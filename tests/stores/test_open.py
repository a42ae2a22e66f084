"""Opening a store: which paths can be files, and errors that show no password."""

from __future__ import annotations

import logging
import os
import socket
import stat
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import palaver
from palaver.cli.app import app
from palaver.errors import StoreError
from palaver.stores.open import check_address
from tests.history.samples import line, talk
from tests.patience import within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stores.postgres_server import Server


SECRET = "hunter2x"  # noqa: S105 - nobody's
PIECES = ("hunter2x", "hunt", "er2x")  # a password with a character in it that cuts it in two

MALFORMED = [
    # a password with characters that were not percent-encoded
    "postgresql://me:hunt@er2x@localhost/talks",
    "postgresql://me:hunt/er2x@localhost/talks",
    "postgresql://me:hunt?er2x@localhost/talks",
    "postgresql://me:hunt:er2x@localhost:x/talks",
    "postgresql://me:hunt%er2x@localhost/talks",
    "postgresql://me:hunt[er2x@localhost]/talks",
    "postgresql://me:12/hunter2x@localhost/talks",
    "postgresql://me:12?hunter2x@localhost/talks",
    "postgresql://me:hunt er2x@local host:port/talks",
    "postgresql://me:hunter2x\0@localhost:1/talks",
    "postgresql://me:hunter2x\udc80@localhost:1/talks",
    "postgresql://me:hunter2x\n@localhost:1/talks",
    # other parts that are wrong
    "postgresql://me:hunter2x@localhost:port/talks",
    "postgresql://me:hunter2x@localhost:99999999/talks",
    "postgresql://me:hunter2x@localhost:1/talks?unknown=1",
    "postgresql://me:hunter2x@localhost:1/talks?sslmode",
    "postgresql://me:hunter2x@localhost:1/talks?sslmode=odd",
    "postgresql://me:hunter2x@localhost:1/talks?connect_timeout=odd",
    "postgresql://me:hunter2x@[::1/talks",
    "postgresql://me:hunter2x@/talks?host=%zz",
    "postgresql://localhost:1/talks?password=hunter2x&password",
    "postgresql://localhost:1/talks?pasword=hunter2x",
    "postgresql://localhost:1/talks?password=hunt%zzer2x",
    "postgresql://localhost:1/talks?options=%00&password=hunter2x",
    # another scheme, or none
    "mysql://me:hunter2x@localhost/talks",
    "postgresq://me:hunter2x@localhost/talks",
    "me:hunter2x://localhost/talks",
    "postgresql+psycopg://me:hunter2x@localhost/talks",
    # taken for a file
    "postgresql:/me:hunter2x@localhost/talks",
    "postgresql:me:hunter2x@localhost/talks",
    "postgresql//me:hunter2x@localhost/talks",
    "//me:hunter2x@localhost/talks",
    "me:hunter2x@localhost/talks",
    "me:hunter2x@localhost",
    "host=localhost user=me password=hunter2x dbname=talks",
    "dbname = talks password = 'hunter2x'",
    Path("postgresql://me:hunter2x@localhost/talks"),
    # nobody there
    "postgresql://me:hunter2x@localhost:1/talks",
    "postgresql://me:hunter2x@nobody.invalid/talks",
    "postgresql://me:hunter2x@/talks?host=/nowhere",
]


def assert_hidden(text: str) -> None:
    for piece in PIECES:
        assert piece not in text


def everything(error: BaseException) -> str:
    """All that a program or a log may show of an error."""
    return "\n".join([str(error), repr(error), *traceback.format_exception(error)])


@pytest.mark.parametrize("address", MALFORMED, ids=range(len(MALFORMED)))
def test_no_error_shows_a_password(
    address: str | Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    with within(60), pytest.raises(StoreError) as caught:
        palaver.open(address)
    frames = everything(caught.value).splitlines()
    assert_hidden("\n".join(line for line in frames if "test_addresses.py" not in line))
    assert_hidden(caplog.text)
    assert [] == list(tmp_path.iterdir())  # and no file has it for a name


@pytest.mark.parametrize(
    "command",
    [["list", "--store"], ["verify", "--store"], ["serve", "--store"],
     ["copy", "--store", "here.db"]],
)  # fmt: skip
@pytest.mark.parametrize(
    "address",
    [
        "postgresql:/me:hunter2x@localhost/talks",
        "me:hunter2x@localhost/talks",
        "postgresql://me:hunt/er2x@localhost/talks",
        "postgresql://me:hunter2x@localhost:1/talks",
    ],
)
def test_no_command_shows_a_password(
    address: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    palaver.open("here.db").close()
    answer = CliRunner().invoke(app, [*command, address])
    assert 1 == answer.exit_code
    assert "here.db" not in answer.output
    assert_hidden(answer.output)


def test_a_refused_login_shows_no_password(postgres_server: Server) -> None:
    name = postgres_server.address("nowhere").replace("postgres@", f"nobody:{SECRET}@")
    with pytest.raises(StoreError, match=r"nowhere|nobody") as caught:
        palaver.open(name)
    assert_hidden(everything(caught.value))


@pytest.mark.parametrize(
    "address",
    ["chat.db", "./a:b@c.db", "/data/a:b@c.db", r"C:\me@home\chat.db", "C:/me@home/chat.db",
     "a@b.db", "10:30.db", ":memory:", "postgres.db", "passwords.db",
     "postgresql://me:hunter2x@localhost/talks"],
)  # fmt: skip
def test_files_and_addresses_are_taken_as_they_are(address: str) -> None:
    check_address(address)


NOT_UTF8 = os.fsdecode(b"caf\xe9.db")
REFUSED = {
    "": "is empty",
    "a\0b.db": "can't have a NUL",
    NOT_UTF8: "is not UTF-8",
    "/dev/null": "is a device",
    "/dev/zero": "is a device",
    "/dev/null/chat.db": "Not a directory",
    ".": "is a folder",
    "folder": "is a folder",
    "folder/": "is a folder",
    "new/": "is a folder",
    "missing/chat.db": "there is no folder",
    "pipe": "is a named pipe",
    "socket": "is a socket",
    "loop": "Too many levels of symbolic links",
    "x" * 300: "File name too long",
    "/".join(["x" * 100] * 9): "bytes, and SQLite takes",
    "~": "is a folder",
    "~/": "is a folder",
    "file:chat.db": "there is no store for file: addresses; give the path",
    "file:chat.db?mode=memory": "there is no store for file: addresses",
    "file:///tmp/chat.db": "there is no store for file:// addresses",
    "sqlite:chat.db": "there is no store for sqlite: addresses",
    "sqlite:///chat.db": "there is no store for sqlite:// addresses",
    "postgresql:chat": "expected a file, :memory: or postgresql://",
    "postgres:chat": "expected a file, :memory: or postgresql://",
}
TAKEN = {
    "chat.db": "chat.db",
    "with space.db": "with space.db",
    "what?.db": "what?.db",
    "what?mode=memory": "what?mode=memory",
    "100%.db": "100%.db",
    "%41.db": "%41.db",
    "a#b.db": "a#b.db",
    "c:d.db": "c:d.db",
    "käse 🧀.db": "käse 🧀.db",
    "-n.db": "-n.db",
    "~chat.db": "~chat.db",
    "~/home.db": "folder/home.db",
    "./../here/up.db": "up.db",
    "link.db": "folder/linked.db",
    "y" * 200: "y" * 200,
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to be in, with things in it that are no stores."""
    place = tmp_path / "here"
    (place / "folder").mkdir(parents=True)
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(place / "folder"))
    os.mkfifo(place / "pipe")
    (place / "loop").symlink_to("loop")
    (place / "link.db").symlink_to("folder/linked.db")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        yield place


def files(place: Path) -> list[str]:
    """Everything below a folder, by its name, and what of it is empty."""
    return sorted(f"{file.relative_to(place)}" for file in place.rglob("*"))


@pytest.mark.parametrize("name", REFUSED, ids=ascii)
def test_what_can_be_no_file_is_refused_and_makes_nothing(here: Path, name: str) -> None:
    before = files(here)
    addresses: list[Any] = [name]
    if name and "://" not in name and not name.endswith("/"):
        addresses.append(Path(name))
    for address in addresses:
        with pytest.raises(StoreError) as caught:
            palaver.open(address)
        assert REFUSED[name] in str(caught.value)
        str(caught.value).encode()  # it can be shown everywhere
    assert before == files(here)


@pytest.mark.parametrize("name", [name for name in REFUSED if "\0" not in name], ids=ascii)
def test_the_command_refuses_it_too(here: Path, name: str) -> None:
    before = files(here)
    for command in (["append", "--new", "hello"], ["list"], ["verify"]):
        result = CliRunner().invoke(app, [*command, f"--store={name}"])
        assert 1 == result.exit_code, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert REFUSED[name] in result.stderr or "there is no store at" in result.stderr
    assert 0 == CliRunner().invoke(app, ["append", "--new", "hello", "--store=real.db"]).exit_code
    before = sorted([*before, "real.db"])
    result = CliRunner().invoke(app, ["copy", "--store=real.db", "--", name])
    assert 1 == result.exit_code, result.output
    assert REFUSED[name] in result.stderr
    assert before == files(here)


@pytest.mark.parametrize("name", TAKEN)
def test_every_other_name_is_that_files(here: Path, name: str) -> None:
    for address in (name, Path(name)):
        with palaver.open(address) as store:
            if "talk" not in store:
                store.create(talk("u1 a2"), id="talk")
    file = here / TAKEN[name]
    assert stat.S_ISREG(file.stat().st_mode)
    assert 0 < file.stat().st_size
    made = {*files(here)} - {"folder", "link.db", "loop", "pipe", "socket"}
    assert {TAKEN[name]} == made
    result = CliRunner().invoke(app, ["list", f"--store={name}"])
    assert 0 == result.exit_code, result.output
    assert "talk" in result.stdout
    with palaver.open(file) as store:
        assert "u1 a2" == line(store.get("talk"))


@pytest.mark.parametrize("address", [None, 7, b"chat.db", ["chat.db"], object()])
def test_an_address_is_text_or_a_path(here: Path, address: Any) -> None:  # noqa: ANN401 - anything
    before = files(here)
    with pytest.raises(StoreError, match=r"must be text or a path, such as .chat.db., not"):
        palaver.open(address)
    assert before == files(here)


def test_a_path_of_bytes_is_refused(here: Path) -> None:
    class Bytes:
        def __fspath__(self) -> bytes:
            return b"chat.db"

    before = files(here)
    with pytest.raises(StoreError, match=r"must be text or a path, such as .chat.db., not bytes"):
        palaver.open(Bytes())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert before == files(here)


def test_an_empty_variable_names_no_store(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_STORE", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(here / "data"))
    assert 0 == CliRunner().invoke(app, ["append", "--new", "hello"]).exit_code
    assert (here / "data" / "palaver" / "palaver.db").exists()
