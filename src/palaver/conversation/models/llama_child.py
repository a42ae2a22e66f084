"""The process that a GGUF file runs in: native code that crashes takes this one with it, no other.

It is started as a script, loads `xllamacpp` and nothing of palaver, and speaks JSON lines:
questions come on standard input, pieces of answers go out where standard output was. It ends when
standard input does, or when its parent is gone, so nobody has to stop it.
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

__all__ = ["Llama", "Post", "load", "main", "talk"]

_WATCH_SECONDS = 1.0


class Llama(Protocol):
    """As much of `xllamacpp.Server` as is used."""

    def handle_chat_completions(
        self, request: Mapping[str, Any], callback: Callable[[Mapping[str, Any]], bool], /
    ) -> object:
        """Answer a question: each piece goes to the callback, which stops it by saying True."""
        ...


class Post:
    """Where lines go out; one at a time, whoever writes them."""

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


def talk(llama: Llama, questions: BinaryIO, post: Post) -> None:
    """Answer questions until there are no more; each in a thread, so that it can be called off."""
    called_off: set[int] = set()
    for line in questions:
        question = json.loads(line)
        number = question["number"]
        if "request" in question:
            work = (llama, number, question["request"], called_off, post)
            threading.Thread(target=_answer, args=work, daemon=True).start()
        else:
            called_off.add(number)


def _answer(
    llama: Llama, number: int, request: Mapping[str, Any], called_off: set[int], post: Post
) -> None:
    def heard(piece: Mapping[str, Any]) -> bool:
        if number not in called_off:
            post.put({"number": number, "event": piece})
        return number in called_off

    try:
        llama.handle_chat_completions(request, heard)
        post.put({"number": number, "done": True})
    except Exception as error:  # noqa: BLE001 - whatever it is, the other side has to know
        post.put({"number": number, "error": str(error)})


def load(settings: Mapping[str, Any]) -> tuple[Llama, dict[str, Any]]:
    """Load the file; also say how large the window really is."""
    xllamacpp: Any = importlib.import_module("xllamacpp")  # it takes its time, and has no types
    params: Any = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.n_ctx = settings["window"]
    params.n_parallel = 1
    params.verbosity = -1
    params.warmup = False
    params.fit_params = False
    params.hostnames = ["127.0.0.1"]
    params.api_keys = [settings["key"]]  # it listens on a port too, and nobody else shall use it
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
    """Load what the first line names, say so, and answer."""
    # native code prints where it likes; the lines keep a channel of their own
    post = Post(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        llama, about = load(json.loads(sys.stdin.buffer.readline()))
    except Exception as error:  # noqa: BLE001 - whatever it is, the other side has to know
        post.put({"failed": str(error)})
        return
    post.put({"ready": about})
    talk(llama, sys.stdin.buffer, post)
    os._exit(0)  # without waiting for threads that are still at an answer


if __name__ == "__main__":
    main()
