"""The child process that runs a GGUF file, so that a crash in native code ends only this process.

It is started as a script, imports `xllamacpp` and nothing of palaver, and speaks JSON lines:
requests arrive on standard input, pieces of answers leave on the original standard output. It ends
when standard input is closed or when its parent ends.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["LineWriter", "Llama", "load", "main", "serve"]

_WATCH_SECONDS = 1.0


class Llama(Protocol):
    """The part of `xllamacpp.Server` that is used."""

    def handle_chat_completions(
        self, request: Mapping[str, Any], callback: Callable[[Mapping[str, Any]], bool], /
    ) -> object:
        """Answer a request; each piece goes to the callback, which returns True to stop."""
        ...


class LineWriter:
    """Writes JSON lines to a stream, one at a time, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        """Take the stream."""
        self._stream = stream
        self._lock = threading.Lock()

    def put(self, line: Mapping[str, Any]) -> None:
        """Write a line."""
        data = json.dumps(line).encode() + b"\n"
        with self._lock:
            self._stream.write(data)
            self._stream.flush()


def serve(llama: Llama, requests: BinaryIO, writer: LineWriter) -> None:
    """Answer requests until input ends; each in a thread, so that it can be cancelled."""
    cancelled: set[int] = set()
    for line in requests:
        message = json.loads(line)
        number = message["number"]
        if "request" in message:
            work = (llama, number, message["request"], cancelled, writer)
            threading.Thread(target=_answer, args=work, daemon=True).start()
        else:
            cancelled.add(number)


def _answer(
    llama: Llama, number: int, request: Mapping[str, Any], cancelled: set[int], writer: LineWriter
) -> None:
    def forward(piece: Mapping[str, Any]) -> bool:
        if number not in cancelled:
            writer.put({"number": number, "event": piece})
        return number in cancelled

    try:
        llama.handle_chat_completions(request, forward)
        writer.put({"number": number, "done": True})
    except Exception as error:  # noqa: BLE001 - every failure is reported to the parent
        writer.put({"number": number, "error": str(error)})


def load(settings: Mapping[str, Any]) -> tuple[Llama, dict[str, Any]]:
    """Load the file; return the server and the actual window."""
    xllamacpp: Any = importlib.import_module("xllamacpp")  # slow to import, and untyped
    params: Any = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.n_ctx = settings["window"]
    params.n_parallel = 1
    params.verbosity = -1
    params.warmup = False
    params.fit_params = False
    params.hostnames = ["127.0.0.1"]
    params.api_keys = [settings["key"]]  # it also listens on a port, which nobody else may use
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    server: Any = xllamacpp.Server(params)
    return server, {"window": _window(server.listening_address, settings["key"])}


def _window(address: str, key: str) -> int:
    headers = {"authorization": f"Bearer {key}"}
    asked = urllib.request.Request(f"{address}/v1/models", headers=headers)  # noqa: S310 - its own
    with urllib.request.urlopen(asked) as answer:  # noqa: S310 - the same
        return int(json.load(answer)["data"][0]["meta"]["n_ctx"])


def _end_with_parent() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(0)


def main() -> None:
    """Load the file that the first line names, report it, and answer requests."""
    # native code prints to standard output, so the lines get a descriptor of their own
    writer = LineWriter(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        llama, about = load(json.loads(sys.stdin.buffer.readline()))
    except Exception as error:  # noqa: BLE001 - every failure is reported to the parent
        writer.put({"failed": str(error)})
        return
    writer.put({"ready": about})
    serve(llama, sys.stdin.buffer, writer)
    os._exit(0)  # without waiting for threads that still answer


if __name__ == "__main__":
    main()
