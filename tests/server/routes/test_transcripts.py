"""Transcripts of other programs over HTTP: listed unread, brought in by key; and the examples."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.server import Settings, demo, make_app
from tests.cli.commands.test_import_discover import home
from tests.server.client import ADDRESS, TOKEN, APIClient
from tests.transcripts.samples import sample
from tests.transcripts.test_discover import ROLLOUT, SESSION, put

if TYPE_CHECKING:
    from collections.abc import Generator

    from palaver.stores import Store

__all__ = ["home"]  # a fixture, found here by pytest


@pytest.fixture
def fresh() -> Generator[Store]:
    with palaver.open(":memory:") as opened:
        yield opened


@pytest.fixture
def near(fresh: Store, home: Path) -> Generator[APIClient]:
    """A client of a server that may look at the files of its machine."""
    del home
    app = make_app(fresh, Settings(token=TOKEN, rate=0, discover=True))
    with APIClient(app, base_url=ADDRESS) as asker:
        asker.headers["authorization"] = f"Bearer {TOKEN}"
        yield asker


def test_transcripts_are_listed_and_no_file_is_opened(
    near: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        pytest.fail(f"{path} was opened")

    assert near.good("GET", "info")["discovers"]
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        listed = near.good("GET", "transcripts")
    assert [] == listed["problems"]
    assert "Claude Code" == listed["programs"]["claude-code"]
    assert ["llm", "codex", "claude-code"] == [one["program"] for one in listed["transcripts"]]
    last = listed["transcripts"][-1]
    assert (f"-tea/{SESSION}", 1_000_000_000, False) == (
        last["name"], last["modified"], last["imported"]
    )  # fmt: skip
    assert last["size"] > 0
    assert last.get("title") is None
    titled = near.good("GET", "transcripts?titles=true")["transcripts"]
    assert "The loose lid" == titled[-1]["title"]


def test_what_is_chosen_is_brought_in_once(near: APIClient, fresh: Store) -> None:
    codex = near.good("GET", "transcripts")["transcripts"][1]
    (made,) = near.good("POST", "transcripts", {"keys": [codex["key"]]})["conversations"]
    assert ("created", ROLLOUT[-36:], 12, 12) == (
        made["action"], made["id"], made["length"], made["added"]
    )  # fmt: skip
    assert [ROLLOUT[-36:]] == [head.id for head in fresh]
    assert near.good("GET", "transcripts")["transcripts"][1]["imported"]
    (again,) = near.good("POST", "transcripts", {"keys": [codex["key"]]})["conversations"]
    assert "unchanged" == again["action"]


def test_only_what_is_listed_can_be_brought_in(near: APIClient) -> None:
    for key in ("../../etc/passwd", "/etc/passwd", "0" * 16):
        problem = near.refused("POST", "transcripts", {"keys": [key]})
        assert (404, "$.keys[0]") == (problem["status"], problem["path"])
    assert 422 == near.refused("POST", "transcripts", {"keys": []})["status"]


def test_a_server_that_others_can_reach_does_not_look(ask: APIClient, home: Path) -> None:
    del home
    assert not ask.good("GET", "info")["discovers"]
    assert 403 == ask.refused("GET", "transcripts")["status"]
    assert 403 == ask.refused("POST", "transcripts", {"keys": ["a"]})["status"]


def test_a_server_that_only_shows_brings_nothing_in(fresh: Store, home: Path) -> None:
    del home
    app = make_app(fresh, Settings(token=TOKEN, discover=True, read_only=True))
    with APIClient(app, base_url=ADDRESS) as asker:
        asker.headers["authorization"] = f"Bearer {TOKEN}"
        assert not asker.good("GET", "info")["discovers"]
        assert "read-only" in asker.refused("GET", "transcripts?titles=true")["detail"]
        assert 403 == asker.refused("POST", "transcripts", {"keys": ["a"]})["status"]
        assert 403 == asker.refused("POST", "examples")["status"]


def test_examples_go_into_an_empty_store(near: APIClient, fresh: Store) -> None:
    assert {"id": demo.START, "created": True} == near.good("POST", "examples")
    assert {"id": demo.START, "created": False} == near.good("POST", "examples")
    assert demo.TEAM in fresh
    for head in sorted(fresh, key=lambda head: head.parent is None):
        fresh.delete(head.id)
    near.begun("Mine")
    problem = near.refused("POST", "examples")
    assert (409, True) == (problem["status"], "empty" in problem["detail"])


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8 there")
def test_a_name_that_is_no_utf_8_is_listed_and_brought_in(near: APIClient, home: Path) -> None:
    name = os.fsdecode(b"tea-\xff.jsonl")
    put(home / ".claude/projects/-tea" / name, sample("claude-code.jsonl"))
    listed = near.good("GET", "transcripts?titles=true")["transcripts"]
    (one,) = [one for one in listed if one["name"] == "-tea/tea-\\udcff"]
    made = near.good("POST", "transcripts", {"keys": [one["key"]]})["conversations"]
    assert {"created"} == {each["action"] for each in made}
    again = near.good("POST", "transcripts", {"keys": [one["key"]]})["conversations"]
    assert {"unchanged"} == {each["action"] for each in again}
