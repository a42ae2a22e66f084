"""A GGUF file at work in a process of its own, started when it is first asked.

Lines of JSON go in and out through pipes, so no port and no HTTP client is needed, and the end of
either process is seen by the other at once. A crash in native code is an error here and no more;
the next question starts a new process.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import secrets
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ModelError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Engine", "Pieces"]

_CHILD: Final = Path(__file__).with_name("llama_child.py")
_PATIENCE: Final = 5.0
_PROVIDER: Final = "local"

Pieces = queue.SimpleQueue[dict[str, Any] | None]
"""What comes of a question, line by line; None when no more can come."""


class Engine:
    """A process with a model in it. Safe for threads."""

    def __init__(self, path: Path, *, window: int, threads: int) -> None:
        """Nothing is started yet."""
        self.path = path
        self.window = window
        self._threads = threads
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._loading: _Running | None = None

    def start(self) -> None:
        """Load the model, if it is not loaded; wait until it is."""
        self._started()

    def ask(self, request: Mapping[str, Any]) -> tuple[int, Pieces]:
        """Ask; the answer comes through the queue."""
        return self._started().ask(request)

    def call_off(self, number: int, pieces: Pieces) -> None:
        """Stop an answer; who waits at its queue waits no longer."""
        pieces.put(None)
        running = self._running
        if running is not None:
            running.call_off(number)

    def close(self) -> None:
        """End the process, also one that still loads; a later question starts a new one."""
        loading = self._loading
        if loading is not None:
            loading.kill()
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            running.stop()

    def _started(self) -> _Running:
        with self._lock:
            running = self._running
            if running is None or not running.alive:
                if running is not None:
                    running.stop()
                self._loading = running = _Running()
                try:
                    self.window = running.load(self.path, self.window, self._threads)
                finally:
                    self._loading = None
                self._running = running
            return running


class _Mail:
    """Who waits for what; once the process has ended, nobody waits any more."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: dict[int, Pieces] = {}
        self.ended = False

    def hear(self, lines: Iterable[bytes]) -> None:
        """Bring each line to whoever waits for it; when there are no more, tell them all."""
        try:
            for line in lines:
                told = json.loads(line)
                number, last = told["number"], "event" not in told
                with self.lock:
                    pieces = self.waiting.pop(number, None) if last else self.waiting.get(number)
                if pieces is not None:
                    pieces.put(told)
        except (OSError, ValueError):
            pass  # the process was ended in the middle of a line
        with self.lock:
            self.ended = True
            for pieces in self.waiting.values():
                pieces.put(None)
            self.waiting.clear()


class _Running:
    def __init__(self) -> None:
        self._owner = os.getpid()
        self._numbers = itertools.count(1)
        self._mail = _Mail()
        self._process = subprocess.Popen(  # noqa: S603 - this Python, and a file of ours
            [sys.executable, "-P", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us; we say what is to be called off
        )
        # at the latest when Python ends
        self.stop = weakref.finalize(self, _stop, self._process)

    def load(self, path: Path, window: int, threads: int) -> int:
        """Load a file, and wait until it is; how many tokens it really holds."""
        found = self._load({"path": str(path), "window": window, "threads": threads})
        threading.Thread(
            target=self._mail.hear, args=(self._process.stdout,), name="local model", daemon=True
        ).start()
        return found

    def kill(self) -> None:
        """End it at once: while it loads it listens to nobody."""
        self._process.kill()

    @property
    def alive(self) -> bool:
        # after a fork the process is the parent's, and so are its pipes
        return not self._mail.ended and self._owner == os.getpid()

    def ask(self, request: Mapping[str, Any]) -> tuple[int, Pieces]:
        number, pieces = next(self._numbers), Pieces()
        with self._mail.lock:
            if self._mail.ended or not self._put({"number": number, "request": request}):
                pieces.put(None)
            else:
                self._mail.waiting[number] = pieces
        return number, pieces

    def call_off(self, number: int) -> None:
        with self._mail.lock:
            if self._mail.waiting.pop(number, None) is not None:
                self._put({"number": number})

    def _load(self, settings: Mapping[str, Any]) -> int:
        self._put({**settings, "key": secrets.token_hex(16)})
        line = self._process.stdout.readline() if self._process.stdout else b""
        if not line:
            self.stop()
            raise Unavailable("the model's process ended while it loaded", provider=_PROVIDER)
        told = json.loads(line)
        if "failed" in told:
            self.stop()
            detail = f"{settings['path']} can't be loaded: {told['failed']}"
            raise ModelError(detail, provider=_PROVIDER)
        return int(told["ready"]["window"])

    def _put(self, line: Mapping[str, Any]) -> bool:
        """Write a line; tell whether there is still somebody to read it."""
        stdin = self._process.stdin
        try:
            if stdin is None or stdin.closed:
                return False
            stdin.write(json.dumps(line).encode() + b"\n")
            stdin.flush()
        except OSError:
            return False
        return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):  # it has ended already, with something unread
            process.stdin.close()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
