"""What is stored of a failure has no key in it, whoever quotes one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from palaver.conversation import Conversation
from palaver.errors import ToolFailed
from palaver.messages import dump, user
from tests.conversation.scripted import Scripted, saying
from tests.conversation.test_tool_calls import asked, open_calls, results

if TYPE_CHECKING:
    from palaver import Store

pytestmark = pytest.mark.anyio
KEY = "sk-proj-abcdefghijklmnop0123"


@pytest.mark.parametrize("kind", [ValueError, ToolFailed, SystemExit])
async def test_the_error_of_a_tool_is_stored_without_keys(
    store: Store, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "rosebud99")

    def shop() -> str:
        msg = f"401 for {KEY} at https://ann:rosebud99@shop.example/?token=0123456789"
        raise kind(msg)

    conversation = await asked(store, ("shop", {}), tools=[shop])
    (outcome,) = await conversation.run_tools(open_calls(conversation))
    ((_, status, text),) = results(conversation)
    meant = "SystemExit: the tool failed; the reason is in the program's log"
    if kind is not SystemExit:
        meant = "401 for [redacted] at https://ann:[redacted]@shop"
    assert ("error", True) == (status, meant in text)
    assert "401 for [redacted]" in outcome.traceback
    stored = b"".join(dump(message) for message in store.get(conversation.id).view)
    for secret in (KEY, "rosebud99", "0123456789"):
        assert secret.encode() not in stored
        assert secret not in outcome.text


async def test_the_error_of_a_provider_in_its_stream_is_stored_without_keys(store: Store) -> None:
    conversation = Conversation(store)
    conversation.add(user("Hi"))
    error = {"error": {"type": "invalid_request_error", "message": f"wrong key {KEY}"}}
    await conversation.step(Scripted([*saying("Well")[:1], error]))
    info = conversation.messages[-1].info
    assert "wrong key [redacted]" in str(info)
    assert KEY.encode() not in dump(conversation.messages[-1])
