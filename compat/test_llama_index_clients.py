"""LlamaIndex's own clients over palaver's memory, before servers that refuse what is invalid.

Those of OpenAI and Anthropic need older SDKs than other frameworks do, and are not among them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from google.genai.types import HttpOptions
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.llms.google_genai import GoogleGenAI
from msgspec.structs import replace

from compat.foreign_histories import NOT_SENT, PNG, SAID, said_by_all
from compat.test_repair import EDITS
from palaver.adapters.llama_index import PalaverMemory
from palaver.messages import assistant, new_id, user
from palaver.testing.servers import Answer, Call, ProviderServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores import Store, StoredHistory
    from palaver.testing.providers import FormatName

CLIENTS: dict[FormatName, Callable[[str], Any]] = {
    "gemini": lambda url: GoogleGenAI(
        model="gemini-3-pro", api_key="any", http_options=HttpOptions(base_url=url),
        context_window=100_000, max_tokens=1_000,
    ),
}  # fmt: skip
OWN_REASONING = {"gemini": "MQ=="}
"""What a provider wants back of its own answer, by format."""


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: 21 degrees and sunny"


def ask_twice(
    store: Store,
    form: FormatName,
    edit: Callable[[StoredHistory], object] = lambda _: None,
    *,
    streaming: bool = False,
) -> str:
    """Ask two questions with a tool call in the first; return the body of the last request."""

    def ask(url: str, question: str) -> str:
        who: Any = FunctionAgent(
            llm=CLIENTS[form](url), tools=[FunctionTool.from_defaults(weather)],
            system_prompt="Be brief.", streaming=streaming,
        )  # fmt: skip

        async def go() -> str:
            return str(await who.run(user_msg=question, memory=PalaverMemory(store, "talk")))

        return asyncio.run(go())

    call = Answer("", "My thought.", calls=(Call("weather", {"city": "Rome"}, id="r1"),))
    with ProviderServer(form, [call, "Sunny.", "I said so."]) as server:
        assert "Sunny." == ask(server.url, "Weather?")
        edit(store.get("talk"))
        assert "I said so." == ask(server.url, "And what did you say?")
        assert [] == server.failures
        assert "I said so." == store.get("talk")[-1].text
        assert [] == list(store.verify())
        return str(server.requests[-1].body)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("form", CLIENTS)
def test_the_model_is_sent_everything_once_and_its_own_reasoning(
    here: Store, form: FormatName, *, streaming: bool
) -> None:
    last = ask_twice(here, form, streaming=streaming)
    for said in ("'Weather?'", "21 degrees and sunny", "'Sunny.'", "'And what did you say?'"):
        assert 1 == last.count(said), (said, last)
    assert OWN_REASONING[form] in last
    roles = [message.role for message in here.get("talk")]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


@pytest.mark.parametrize("form", CLIENTS)
def test_what_others_wrote_is_sent_without_their_reasoning(here: Store, form: FormatName) -> None:
    here.create(id="talk").extend(said_by_all())
    last = ask_twice(here, form)
    assert [] == [(said, last.count(said)) for said in SAID if last.count(said) != 1]
    same = str.maketrans("-_", "+/")  # base64 has two alphabets
    assert 2 == last.translate(same).count(PNG)  # of the user, and of a tool
    assert [] == [thought for thought in NOT_SENT if thought in last.replace("My thought.", "")]


def without_the_call(history: StoredHistory) -> None:
    """Leave a text of the answer that made a call, and what else LlamaIndex had stored with it."""
    history.replace(1, replace(history[1], content="Wait.", id=new_id()))


MORE_EDITS: dict[str, Callable[[StoredHistory], Any]] = {
    **EDITS,
    "a question before the result": lambda history: history.insert(2, [user("Well?")]),
    "no call": without_the_call,
    "an answer without words": lambda history: history.replace(3, assistant("")),
    "rolled back": lambda history: history.undo(),
}


@pytest.mark.parametrize("edit", MORE_EDITS.values(), ids=MORE_EDITS.keys())
def test_whatever_was_edited_the_strictest_provider_takes_the_next_request(
    here: Store, edit: Callable[[StoredHistory], Any]
) -> None:
    last = ask_twice(here, "gemini", edit)
    if edit is without_the_call:
        assert "Wait." in last
        assert "Rome" not in last
