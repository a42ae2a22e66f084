"""What a conversation costs by the judge of prompt caching: it knows the providers' rules only."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from bench.cache import NARROW, WIDE, Spent, judged, ours, pruned, trailing
from palaver.conversation import ClearOutputs, Conversation, Summarise, compact, tool
from palaver.errors import ValidationError
from palaver.messages import user
from palaver.models import model
from palaver.testing import CacheUsage, PromptCache, ProviderServer
from palaver.testing.servers import Answer, Call
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from palaver.stores import Store
    from palaver.testing.providers import FormatName

pytestmark = pytest.mark.anyio

SYSTEM = "You look things up before you answer, and say who measured it. " * 300
NAMES: dict[FormatName, str] = {
    "anthropic": "anthropic:claude-sonnet-4-5",
    "openai-chat": "openai:gpt-5.1",
    "openai-responses": "responses:gpt-5.1",
    "gemini": "gemini:gemini-3-pro",
}


@tool
def look_up(name: str) -> str:
    """Look up the value of a name."""
    return f"{name}: " + "the value is 42, measured twice. " * 60


def usages(form: FormatName, server: ProviderServer, name: str) -> list[CacheUsage]:
    """What the judge says of the requests that a server got, one every ten seconds."""
    cache = PromptCache(form, model=name.partition(":")[2])
    return [cache.request(each.body, at=10 * n) for n, each in enumerate(server.requests)]


@pytest.mark.parametrize("form", NAMES)
async def test_a_summary_is_read_from_the_cache_and_what_stays_is_still_cached(
    form: FormatName, store: Store
) -> None:
    calls = [Call("look_up", {"name": f"n{n}"}) for n in range(12)]
    script = [answer for n in range(4) for answer in (Answer("Hm.", calls=calls), f"It is {n}.")]
    with ProviderServer(form, [*script, Answer("They looked up n."), "Yes."]) as server:
        asked = model(NAMES[form], base_url=server.url, api_key="k")
        talk = Conversation(store, tools=[look_up], model=asked)
        talk.add({"role": "system", "content": SYSTEM})
        for number in range(4):
            await talk.ask(f"What is {number}?")
        done = await compact(talk, Summarise(keep_tokens=300))
        await talk.ask("And now?")
        await asked.close()
    found = usages(form, server, NAMES[form])
    summary, after = found[8], found[9]

    assert [] == server.failures
    assert done is not None
    assert "Sum up the conversation" in str(server.requests[8].body)
    assert summary.share >= 0.9
    assert after.read >= 0.95 * len(SYSTEM) / 4
    assert after.total < summary.total / 2
    assert all(each.read >= before.read for before, each in pairwise(found[:9]))


async def test_another_model_is_given_the_old_messages_alone(store: Store) -> None:
    answering = Scripted(calling(("look_up", {"name": "a"})), saying("It is 42."), name="one")
    talk = Conversation(store, tools=[look_up], model=answering)
    talk.add({"role": "system", "content": SYSTEM})
    await talk.ask("What is a?")
    await talk.ask("And b?", model=Scripted(saying("Also 42."), name="one"))
    other = Scripted(saying("They asked."), name="two")
    await compact(talk, Summarise(model=other, keep_tokens=10))

    (asked,) = other.asked
    assert () == asked.tools
    assert SYSTEM not in str(asked.body)


@pytest.mark.parametrize("window", [None, 100])
async def test_a_model_that_calls_a_tool_or_has_no_room_gets_the_old_messages_alone(
    store: Store, window: int | None
) -> None:
    answers = [saying("It is 42."), saying("Short.")]
    if window is None:
        answers.insert(1, calling(("look_up", {"name": "a"})))
    answering = Scripted(*answers)
    answering.window = window
    talk = Conversation(store, tools=[look_up], model=answering)
    talk.add({"role": "system", "content": SYSTEM})
    await talk.ask("What is a? " * 40)
    await compact(talk, Summarise(keep_tokens=5))

    tools = [len(each.tools) for each in answering.asked]
    assert ([1, 1, 0] if window is None else [1, 0]) == tools
    assert "Short." in [message.text for message in talk.messages]


async def test_a_summary_needs_a_model(store: Store) -> None:
    talk = Conversation(store)
    for _ in range(4):
        talk.add(user("words " * 40))
    with pytest.raises(ValidationError, match="no model: give one to Summarise or to the conv"):
        await compact(talk, Summarise(keep_tokens=50))


async def test_a_fork_shares_the_key_of_its_family_and_nobody_else_does(store: Store) -> None:
    talk = Conversation(store, model=Scripted(*[saying("Yes.")] * 3))
    await talk.ask("Tea?")
    fork = talk.history.fork()
    grandchild = fork.fork()
    scripted = Scripted(saying("Yes."), saying("No."))
    for history in (fork, grandchild):
        await Conversation(store, history, model=scripted).ask("More?")

    keys = {request.cache_key for request in scripted.asked}
    assert {talk.cache_key()} == keys
    assert talk.id not in talk.cache_key()
    assert talk.cache_key() != Conversation(store).cache_key()


async def test_a_small_output_far_before_the_others_is_not_worth_its_prefix(store: Store) -> None:
    talk = Conversation(store, tools=[look_up])
    small = Scripted(calling(("tiny", {})), saying("Noted. " * 2_000))
    large = Scripted(*[calling(("look_up", {"name": "a"}))] * 6, saying("Done."))

    @tool
    def tiny() -> str:
        """Return little."""
        return "little " * 12

    await talk.ask("First?", model=small, tools=[tiny])
    await talk.ask("Then?", model=large)
    strategy = ClearOutputs(protect_tokens=0, protect_turns=0, least_gain=1)
    done = await compact(talk, strategy)

    assert done is not None
    assert "cleared the outputs of 6 tool calls" == done.detail
    assert done.price.cache_tokens < done.before / 2


async def test_a_fork_from_before_finds_the_summary_still_cached(store: Store) -> None:
    calls = [Call("look_up", {"name": f"n{n}"}) for n in range(12)]
    turn = [Answer("Hm.", calls=calls), Answer("It is 42.")]
    script = [*turn, *turn, Answer("They looked up n. " * 40), *turn, *turn, Answer("No.")]
    with ProviderServer("anthropic", script) as server:
        asked = model(NAMES["anthropic"], base_url=server.url, api_key="k")
        talk = Conversation(store, tools=[look_up], model=asked)
        talk.add({"role": "system", "content": SYSTEM})
        for number in range(2):
            await talk.ask(f"What is {number}?")
        await compact(talk, Summarise(keep_tokens=0))
        version = talk.history.version
        for number in range(2):
            await talk.ask(f"And {number}?")
        fork = Conversation(store, talk.history.fork(at=version), tools=[look_up], model=asked)
        await fork.ask("Coffee?")
        await asked.close()
    found = usages("anthropic", server, NAMES["anthropic"])

    assert [] == server.failures
    assert found[-1].written < 50  # the question alone
    assert found[-1].read > (len(SYSTEM) + 18 * 40) / 4


def spent(talk: Any) -> dict[str, Spent]:  # noqa: ANN401 - a Talk
    """What the same conversation costs, palaver's way and the naive ones."""
    bodies = ours(talk)
    return {
        "palaver": judged(bodies),
        "trailing": judged(map(trailing, bodies)),
        "pruned": judged(map(pruned, bodies)),
    }


def test_everything_is_written_once_and_after_a_change_of_models_once_more() -> None:
    found = spent(WIDE._replace(turns=15))
    assert found["palaver"].factor < 2.5
    assert found["palaver"].uncached == 0
    for name in ("trailing", "pruned"):
        assert found["palaver"].written < found[name].written
        assert found["palaver"].cost < found[name].cost


@pytest.mark.faults
@pytest.mark.parametrize(("talk", "least"), [(NARROW, 1.5), (WIDE, 3)])
def test_a_hundred_turns_write_a_third_of_what_the_naive_ways_do(talk: Any, least: float) -> None:  # noqa: ANN401 - a Talk
    found = spent(talk)
    best = min(found["trailing"].factor, found["pruned"].factor)
    assert best / found["palaver"].factor >= least
