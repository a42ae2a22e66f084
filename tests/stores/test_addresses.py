"""What is wrong with an address is said without the password in it."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import palaver
from palaver.cli.app import app
from palaver.errors import StoreError
from palaver.stores.opening import check_address
from tests.patience import within

if TYPE_CHECKING:
    from tests.stores.postgres import Server

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
