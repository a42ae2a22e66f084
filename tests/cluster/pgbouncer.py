"""PgBouncer in transaction mode, before a PostgreSQL server for tests."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from tests.stores.postgres_server import PORT

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.stores.postgres_server import Server

__all__ = ["pooling"]

CONNECTIONS = 12
"""To a database, shared by all clients."""


@contextmanager
def pooling(server: Server, mode: str = "transaction") -> Generator[Path]:
    """A pooler for as long as the block lasts; answers the folder of its socket."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/sbin")
    assert program, "the tests of poolers need PgBouncer: sudo apt-get install pgbouncer"
    folder = Path(tempfile.mkdtemp(prefix="palaver-pgbouncer-"))
    someone: dict[str, Any] = {}
    if not os.geteuid():  # it refuses to run as root
        nobody = pwd.getpwnam("nobody")
        someone = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    (folder / "settings.ini").write_text(
        "[databases]\n"
        f"* = host={server.folder} port={PORT} user=postgres\n"
        "[pgbouncer]\n"
        f"unix_socket_dir = {folder}\n"
        f"listen_port = {PORT}\n"
        "auth_type = any\n"
        f"pool_mode = {mode}\n"
        f"default_pool_size = {CONNECTIONS}\n"
        "max_client_conn = 500\n"
        "server_idle_timeout = 5\n"
    )
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [program, str(folder / "settings.ini")],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder, **someone,
        )  # fmt: skip
    try:
        _await(process, server.address("postgres", folder), folder / "log")
        yield folder
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _await(process: subprocess.Popen[Any], address: str, log: Path) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError:
            said = log.read_text("utf-8", "replace")
            assert process.poll() is None, f"PgBouncer ended: {said}"
            assert time.monotonic() < end, f"PgBouncer does not answer: {said}"
            time.sleep(0.02)
        else:
            return
