"""The process a model runs in, seen from inside, with a stand-in for the native code."""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from palaver.models import llama_child
from palaver.models.llama_child import LineWriter, load, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest


class Stand:
    """Answers with what it is told to, and stops when it is told to."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.stopped = threading.Event()

    def handle_chat_completions(
        self, request: Mapping[str, Any], callback: Callable[[Mapping[str, Any]], bool], /
    ) -> object:
        if "raise" in request:
            raise ValueError(request["raise"])
        for piece in request["pieces"]:
            callback({"piece": piece})
        if request.get("wait"):
            while not callback({"piece": "more"}):
                time.sleep(0.001)
            self.stopped.set()
        return None


def lines(out: io.BytesIO) -> list[Any]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def wait_for(out: io.BytesIO, count: int) -> list[Any]:
    deadline = time.monotonic() + 60
    while len(found := lines(out)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


def asked(*questions: object) -> io.BytesIO:
    return io.BytesIO(b"".join(json.dumps(question).encode() + b"\n" for question in questions))


def test_pieces_go_out_with_the_number_of_their_question() -> None:
    out = io.BytesIO()
    serve(Stand(), asked({"number": 7, "request": {"pieces": ["a", "b"]}}), LineWriter(out))
    assert [
        {"number": 7, "event": {"piece": "a"}},
        {"number": 7, "event": {"piece": "b"}},
        {"number": 7, "done": True},
    ] == wait_for(out, 3)


def test_an_error_goes_out_as_one() -> None:
    out = io.BytesIO()
    serve(Stand(), asked({"number": 1, "request": {"raise": "odd"}}), LineWriter(out))
    assert [{"number": 1, "error": "odd"}] == wait_for(out, 1)


def test_an_answer_that_is_called_off_stops() -> None:
    out, stand = io.BytesIO(), Stand()
    serve(
        stand,
        asked({"number": 1, "request": {"pieces": [], "wait": True}}, {"number": 1}),
        LineWriter(out),
    )
    assert stand.stopped.wait(20)


def test_a_file_is_loaded_as_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Params(SimpleNamespace):
        def __init__(self) -> None:
            super().__init__(
                model=SimpleNamespace(),
                cpuparams=SimpleNamespace(),
                cpuparams_batch=SimpleNamespace(),
            )

    def server(params: object) -> SimpleNamespace:
        made.append(params)
        return SimpleNamespace(listening_address="http://127.0.0.1:1")

    fake = SimpleNamespace(CommonParams=Params, Server=server)
    monkeypatch.setitem(sys.modules, "xllamacpp", fake)
    monkeypatch.setattr(llama_child, "_window", lambda address, key: len(address + key))
    settings = {"path": "/x.gguf", "window": 99, "threads": 3, "key": "k"}
    _, about = load(settings)
    [params] = made
    assert ("/x.gguf", 99, 3, ["127.0.0.1"], ["k"]) == (
        params.model.path,
        params.n_ctx,
        params.cpuparams.n_threads,
        params.hostnames,
        params.api_keys,
    )
    assert {"window": 19} == about
