"""The example store: small, whole, the same everywhere, and never sown twice."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import palaver
from palaver.messages import FilePart, ReasoningPart, ToolCallPart, ToolPart
from palaver.server import demo
from tests.conversation.scripted import Scripted
from tests.server.scripted_server import ScriptedServer

if TYPE_CHECKING:
    from palaver.stores import Store


def sown() -> Store:
    store = palaver.open(":memory:")
    assert demo.seed(store)
    return store


def test_it_is_sown_once_and_only_into_an_empty_store() -> None:
    with palaver.open(":memory:") as store:
        store.create([palaver.user("mine")])
        assert not demo.seed(store)
        assert 1 == len(list(store))
    with sown() as store:
        assert not demo.seed(store)


def test_it_is_whole_and_the_same_everywhere() -> None:
    with sown() as one, sown() as other:
        assert [] == list(one.verify())
        ids = [head.id for head in one]
        assert [demo.START, demo.FORK, demo.TRIP, demo.TEAM, demo.TEA, demo.BROKEN] == ids
        assert list(one) == list(other)
        for name in ids:
            assert one.get(name).messages == other.get(name).messages


def test_the_page_knows_its_conversations_by_their_names() -> None:
    scripts = (Path(demo.__file__).parent / "page" / "scripts").rglob("*.js")
    text = "\n".join(script.read_text("utf-8") for script in scripts)
    assert f'START = "{demo.START}"' in text
    assert f'TEAM = "{demo.TEAM}"' in text


def test_the_trip_has_everything_worth_seeing() -> None:
    with sown() as store:
        history = store.get(demo.TRIP)
        parts = [part for message in history for part in message.parts]
        kinds = (ReasoningPart, FilePart, ToolCallPart, ToolPart)
        assert [1, 1, 2, 2] == [sum(isinstance(part, kind) for part in parts) for kind in kinds]
        states = [part.state.status for part in parts if isinstance(part, ToolPart)]
        assert ["completed", "error"] == states
        assert {"plan", "budget"} == set(history.view.marks)
        assert 3 == history.batch_index + 1
        told = [change.kind for change in store.follow(demo.TRIP, after=-1, seconds=0)]
        assert {"replace", "truncate", "insert", "rollback", "mark"} <= set(told)
        assert (demo.TRIP, 1) == store.get(demo.FORK).origin
        (picture,) = (part.url for part in parts if isinstance(part, FilePart))
        assert base64.b64decode(picture.partition(",")[2]).startswith(b"\x89PNG")


def test_the_page_can_show_all_of_it() -> None:
    with ScriptedServer(Scripted()) as stage:
        demo.seed(stage.store)
        for head in stage.ask.good("GET", "conversations")["items"]:
            for what in ("messages", "versions", "tokens", "request", "team", "calls", "step"):
                stage.ask.good("GET", f"conversations/{head['id']}/{what}")
        found = stage.ask.good("GET", f"conversations/{demo.TEAM}/team")
        assert ("ada", 3, 9) == (
            found["state"]["floor"],
            len(found["members"]),
            sum(pair["count"] for pair in found["spoke"]),
        )
        text = json.dumps(stage.messages(demo.TEA), ensure_ascii=False)
        assert "普洱茶" in text
