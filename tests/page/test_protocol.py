"""What the page and the server agree on: the file of event names and fields is the server's own."""

from __future__ import annotations

from tools import protocol


def test_the_events_and_fields_are_those_of_the_server() -> None:
    """A stale file is written again by `python -m tools.protocol`."""
    for path, text in protocol.files().items():
        assert text == path.read_text("utf-8"), f"{path.name} is stale: python -m tools.protocol"


def test_events_of_the_store_and_of_the_server_are_both_listed() -> None:
    script = next(text for path, text in protocol.files().items() if path.suffix == ".js")
    for name in ("message.added", "tool.progress", "step.delta", "conversation.deleted"):
        assert f'"{name}"' in script
