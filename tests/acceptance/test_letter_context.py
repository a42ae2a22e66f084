"""What a model may see, what it counts, and what an agent is shown: to the letter, from outside."""

from __future__ import annotations

import base64
import inspect
import json
import random
import re
import tracemalloc
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import palaver
from palaver import wire
from palaver.cli.app import app
from palaver.context import AssemblerOutput, ContextManager
from palaver.errors import DoesNotFit, ValidationError
from palaver.history import History
from palaver.mcp.service import ConversationService
from palaver.messages import (
    Message,
    Speaker,
    assistant,
    new_id,
    system,
    text_part,
    user,
)
from palaver.messages.codec import to_content
from palaver.stores.transfer import read_snapshot, write_snapshot
from palaver.tokens import counter, estimate, weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.stores import Store

SESSION, OWNER = new_id(), new_id()
HIDDEN = "HIDDEN"
MAX = Speaker("max", "Max", "ai")


@pytest.fixture
def store() -> Iterator[Store]:
    with palaver.open(":memory:") as opened:
        yield opened


def half_hidden(role: str = "user", text: str = HIDDEN) -> Message:
    """A message of two texts, of which one is for people only."""
    parts = (text_part(SESSION, OWNER, "seen"), text_part(SESSION, OWNER, text, ignored=True))
    return Message(role, parts, speaker=MAX if role == "assistant" else None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def hidden(text: str = HIDDEN) -> Message:
    return user([text_part(SESSION, OWNER, text, ignored=True)])


# ── what a model may see ────────────────────────────────────────────────────────────────────────


def test_a_message_says_what_of_it_a_model_may_see() -> None:
    """People see all text, a model what is not ignored; all that goes to a model asks here."""
    message = half_hidden()
    assert "seenHIDDEN" == message.text
    assert "seen" == message.sendable_text
    assert message.parts[:1] == message.sendable_parts
    assert ("", ()) == (hidden().sendable_text, hidden().sendable_parts)
    assert ("hi", ()) == (user("hi").sendable_text, user("hi").sendable_parts)


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini", "plain"])
@pytest.mark.parametrize("visibility", ["all", "addressed"])
def test_ignored_text_is_in_no_prompt(kind: str, visibility: palaver.context.Visibility) -> None:
    """Neither as a line of context nor as the current message, whatever the form."""
    context = ContextManager(
        History([half_hidden(), hidden(), half_hidden("assistant")]), visibility=visibility
    )
    prompt = context.prompt_for("sarah", kind)
    assert HIDDEN not in prompt.prompt
    assert 2 == prompt.prompt.count("seen")
    assert [True, False, True] == [entry.kept for entry in prompt.explain().entries]
    assert "no text" == prompt.explain().entries[1].reason


def test_an_ignored_message_is_not_the_current_one() -> None:
    """The newest message with something to see is."""
    context = ContextManager(History([user("first"), user("now"), hidden()]))
    assert "now" == context.context_for("max").current_message


def test_ignored_text_sets_no_team_task() -> None:
    """A team task goes to every agent, so text that no model may see can't set one."""
    context = ContextManager()
    context.add_message(half_hidden("assistant", "[TEAM_TASK: HIDDEN]"))
    assert context.team_task is None


@pytest.mark.parametrize("form", wire.FORMATS)
def test_ignored_text_is_in_no_request(form: str) -> None:
    """The system's, the user's and the assistant's, in every format."""
    history = [half_hidden("system"), half_hidden(), half_hidden("assistant"), user("Go on.")]
    request = wire.to(form, history)
    assert HIDDEN not in str(request.body)
    assert "seen" in str(request.body)


def test_ignored_text_is_not_counted() -> None:
    """What is not sent costs nothing."""
    assert weigh(user([text_part(SESSION, OWNER, "seen")]), estimate) == weigh(
        half_hidden(), estimate
    )


def test_an_assistant_that_reads_conversations_does_not_read_ignored_text(store: Store) -> None:
    """Not in a page of messages, not in one message, not in what a search found."""
    history = store.create()
    history.extend([half_hidden(), hidden("HIDDEN alone")])
    service = ConversationService(store)
    assert ["seen", ""] == [message.text for message in service.read(history.id).messages]
    assert "seen" == service.text(history.id, "0").text
    assert ["seen"] == [hit.snippet for hit in service.search(HIDDEN).hits]


def test_a_form_that_cannot_say_ignored_leaves_the_text_out() -> None:
    """Read back from there, it would be sent to models."""
    content, left_out = to_content(half_hidden())
    assert [{"type": "text", "text": "seen"}] == content
    assert [HIDDEN] == [getattr(part, "text", None) for part in left_out]
    snapshot = write_snapshot([half_hidden(), hidden()], team_task=None, timestamp=1)
    assert ["seen", ""] == [message.text for message in read_snapshot(snapshot).messages]


def test_generated_text_is_sent_and_an_erased_message_is_not() -> None:
    """`synthetic` only says who wrote it; of an erased message there is nothing to see."""
    made = user([text_part(SESSION, OWNER, "generated", synthetic=True)])
    history = History([system("Be brief."), user("secret"), assistant("Aha."), made])
    history.erase(1)
    for form in wire.FORMATS:
        assert "generated" in str(wire.to(form, history).body)
        assert "secret" not in str(wire.to(form, history).body)
    prompt = ContextManager(history).prompt_for("max").prompt
    assert "assistant: Aha.\n\ngenerated" == prompt


# ── one counter ─────────────────────────────────────────────────────────────────────────────────


def _random() -> random.Random:
    return random.Random(17)  # noqa: S311 - the same texts every time


def _uuids(rnd: random.Random) -> str:
    return "\n".join(str(uuid.UUID(int=rnd.getrandbits(128), version=4)) for _ in range(50))


def _log_lines(rnd: random.Random) -> str:
    return "\n".join(
        f"2026-11-16T09:{rnd.randrange(60):02}:{rnd.randrange(60):02}.{rnd.randrange(1000):03}Z "
        f"{rnd.choice(['INFO', 'WARN', 'ERROR'])} [worker-{rnd.randrange(20)}] app.store: "
        f"request completed in {rnd.randrange(5000)} ms status={rnd.choice([200, 404, 500])}"
        for _ in range(60)
    )


def _json(rnd: random.Random) -> str:
    rows = [
        {"id": rnd.randrange(10**6), "name": "Ada Smith", "active": True, "tags": ["new", "vip"],
         "score": round(rnd.random() * 100, 2), "address": {"city": "Oslo", "zipCode": "0150"}}
        for _ in range(20)
    ]  # fmt: skip
    return json.dumps(rows)


def _paths(rnd: random.Random) -> str:
    names = [
        "src",
        "palaver",
        "stores",
        "sqlite",
        "backend.py",
        "tests",
        "usr",
        "lib",
        "python3.11",
    ]
    return "\n".join("/" + "/".join(rnd.sample(names, 5)) for _ in range(60))


ENGLISH = """\
The meeting was moved to Thursday, because two of the engineers who had written the parser were
still travelling. Nobody minded: there was enough left to do, and the tests that failed last week
had to be understood before anything else could be changed.
"""
GERMAN = """\
Die Besprechung wurde auf Donnerstag verschoben, weil zwei der Ingenieure, die den Parser
geschrieben hatten, noch unterwegs waren. Es störte niemanden: Es gab genug zu tun, und die
Prüfungen der letzten Woche mussten zuerst verstanden werden.
"""
CHINESE = """\
会议改到了星期四，因为编写解析器的两位工程师还在路上。没有人介意，还有很多事情要做，
而且上周失败的测试必须先弄明白，然后才能修改别的东西。
"""  # noqa: RUF001 - as people write it
JAPANESE = """\
会議は木曜日に変更されました。パーサーを書いた二人のエンジニアがまだ出張中だったからです。
誰も気にしませんでした。先週失敗したテストをまず理解する必要がありました。
"""
RUSSIAN = """\
Встречу перенесли на четверг, потому что два инженера, которые написали парсер,
ещё были в дороге. Никто не возражал: работы хватало, и тесты прошлой недели
нужно было сначала понять.
"""
ARABIC = """\
تم تأجيل الاجتماع إلى يوم الخميس لأن اثنين من المهندسين الذين كتبوا المحلل كانا
لا يزالان في السفر. لم يمانع أحد، فقد كان هناك ما يكفي من العمل، وكان يجب فهم
الاختبارات أولا.
"""
TEXTS: dict[str, Callable[[random.Random], str]] = {
    "English": lambda _: ENGLISH,
    "German": lambda _: GERMAN,
    "Chinese": lambda _: CHINESE,
    "Japanese": lambda _: JAPANESE,
    "Russian": lambda _: RUSSIAN,
    "Arabic": lambda _: ARABIC,
    "Python": lambda _: inspect.getsource(palaver.tokens),
    "JSON": _json,
    "UUIDs": _uuids,
    "base64": lambda rnd: base64.b64encode(rnd.randbytes(2_000)).decode(),
    "hex": lambda rnd: "\n".join(rnd.randbytes(32).hex() for _ in range(30)),
    "emoji": lambda rnd: "".join(rnd.choices("😀😂🤣😊🥰🙏👍🎉🔥💯🚀🌍🍕🐶💡📦🔧🧠🦀🇩🇪", k=400)),
    "log lines": _log_lines,
    "paths": _paths,
}


@pytest.mark.parametrize("kind", TEXTS)
def test_the_estimate_is_near_the_true_count(kind: str) -> None:
    """Within 0.8 and 1.3 of o200k; Chinese characters count one each, which is a little more."""
    text = TEXTS[kind](_random())
    ratio = estimate(text) / counter("o200k")(text)
    assert 0.8 <= ratio <= (1.4 if kind == "Chinese" else 1.3), ratio


@given(one=st.text(), other=st.text() | st.text("abXY1", min_size=10))
def test_an_estimate_grows_with_the_text_and_not_by_cutting_it(one: str, other: str) -> None:
    """So a running total of pieces is never below that of the joined text."""
    assert max(estimate(one), estimate(other)) <= estimate(one + other)
    assert estimate(f"{one} {other}") <= estimate(f"{one} ") + estimate(other)


def test_the_price_of_an_edit_is_counted_like_everything_else(tmp_path: Path) -> None:
    """1,000 Chinese characters are about as many tokens, at the command as in the library."""
    address = str(tmp_path / "chat.db")
    messages = [user("字" * 1_000), user("bye")]
    with palaver.open(address) as opened:
        opened.create(messages, id="talk")
    keep = '{"operation": "TRUNCATE", "keepLast": 1}'
    arguments = ["edit", "talk", "--store", address, "--op", keep, "--price"]
    priced = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert weigh(messages[0], counter()) == priced["tokensFreed"]
    assert weigh(messages[0], counter()) > 900
    assert "exact" == priced["tokens"]
    assert "tokens freed          1,0" in CliRunner().invoke(app, arguments).stdout


# ── what the documents wanted next ──────────────────────────────────────────────────────────────

ADA = {"roleId": "u-1", "roleName": "Ada Lovelace", "type": "human"}
ROBOT = {"roleId": "max", "roleName": "Max", "type": "ai"}


def said(content: str, speaker: dict[str, str] = ADA) -> dict[str, Any]:
    return {"content": content, "speaker": speaker}


def team_of(*words: str, **options: Any) -> ContextManager:  # noqa: ANN401 - ContextManager's own
    context = ContextManager(**options)
    for index, word in enumerate(words):
        context.add_message(said(word, ROBOT if index % 2 else ADA))
    return context


@pytest.mark.parametrize("name", ["u-1", "U1", "Ada Lovelace", "ada-lovelace"])
def test_messages_are_found_by_their_sender(name: str) -> None:
    """By id or name, however it is spelled; beside the other conditions."""
    history = team_of("one", "two", "three", "four", "five").history
    history.append(user("nobody's"))
    assert ["one", "three", "five"] == [found.text for found in history.query(speaker=name)]
    assert ["five"] == [found.text for found in history.query(speaker=name, recent=1)]
    assert [] == history.query(speaker=name, role="assistant")
    assert 3 == history.count(speaker=name)
    assert 2 == history.view.count(speaker="max")


def test_messages_are_found_by_their_sender_at_the_command(tmp_path: Path) -> None:
    """`palaver query --speaker`, of a file and of a stored conversation."""
    address = str(tmp_path / "chat.db")
    with palaver.open(address) as opened:
        opened.create(team_of("one", "two", "three").messages, id="talk")
    arguments = ["query", "--conversation", "talk", "--store", address, "--speaker", "MAX"]
    (found,) = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert "two" == found["content"]


def test_a_context_has_at_most_so_many_messages() -> None:
    """The oldest leave the view; the log has them, and each removal can be undone."""
    context = team_of("one", "two", "three", "four", max_messages=2)
    assert ["three", "four"] == [message.text for message in context.messages]
    assert ["one", "two", "three", "four"] == [message.text for message in context.history.log]
    assert "msg-5" == context.handle(context.add_message(said("five")))
    context.history.undo()
    assert ["three", "four", "five"] == [message.text for message in context.messages]


def test_a_limit_on_messages_leaves_the_system_messages() -> None:
    """They are not part of the talk; the limit holds for an imported snapshot too."""
    context = ContextManager(History([system("Be brief.")]), max_messages=2)
    heard: list[str] = []
    context.events.on("history.edited", lambda event: heard.append(str(event.data["operation"])))
    for word in ("one", "two", "three"):
        context.add_message(said(word))
    assert ["Be brief.", "three"] == [message.text for message in context.messages]
    assert ["TRUNCATE", "TRUNCATE"] == heard
    context.import_snapshot(team_of("a", "b", "c").export_snapshot())
    assert ["b", "c"] == [message.text for message in context.messages]


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "5"])
def test_a_limit_on_messages_is_a_number_from_one_on(wrong: Any) -> None:  # noqa: ANN401 - wrong
    with pytest.raises(ValidationError, match=r"\$\.maxMessages: must be a whole number from 1 on"):
        ContextManager(max_messages=wrong)


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini", "plain"])
@pytest.mark.parametrize("max_bytes", [400, 10_000])
@pytest.mark.parametrize("window", [0, 1, 3, 1_000])
def test_a_prompt_can_be_streamed(kind: str, max_bytes: int, window: int) -> None:
    """Line by line; together it is the prompt."""
    context = team_of(*(f"{number} bottles\nof beer" for number in range(40)), max_bytes=max_bytes)
    context.set_team_task("Sing.")
    options: dict[str, Any] = {"window": window, "system_instruction": "Be brief."}
    pieces = list(context.stream_for("sarah", kind, **options))
    prompt = context.prompt_for("sarah", kind, **options)
    assert prompt.prompt == "".join(pieces)
    assert len(pieces) >= len(prompt.input.context_messages) if max_bytes > 1_000 else pieces


def test_a_streamed_prompt_is_never_in_memory_as_a_whole() -> None:
    """However many lines it has, one at a time is written."""
    talk = [user(f"{number} " + "x" * 20_000) for number in range(400)]
    context = ContextManager(History(talk), window=10_000, max_bytes=2**30)
    tracemalloc.start()
    length = sum(map(len, context.stream_for("max")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert length > 400 * 20_000
    assert peak < length / 20, peak


def test_an_assembler_of_ones_own_streams_its_prompt_as_one_piece() -> None:
    context = team_of(
        "one", "two", assemblers={"mine": lambda given: AssemblerOutput(given.current)}
    )
    assert ["two"] == list(context.stream_for("max", "mine"))


def test_a_prompt_that_does_not_fit_is_refused_before_it_streams() -> None:
    with pytest.raises(DoesNotFit):
        team_of("x" * 100, max_bytes=50).stream_for("max")


def test_assemble_takes_the_json_of_its_input() -> None:
    """As the documents write it: `to` may be missing, and so may the optional fields."""
    context = ContextManager()
    given: dict[str, Any] = {
        "contextMessages": [{"from": "User", "content": "Hi"}],
        "currentMessage": "Hello!",
        "teamTask": None,
        "maxBytes": 1_000,
    }
    expected = "[CONTEXT]\n- User -> all: Hi\n\n[MESSAGE]\nHello!"
    assert expected == context.assemble("claude", given).prompt
    assert expected == context.assemble("claude", json.dumps(given)).prompt
    complete = given | {"systemInstruction": "Be brief.", "instructionFileText": None}
    assert "Be brief." == context.assemble("claude", complete).system_flag
    talk = team_of("one", "two")
    shown = talk.context_for("max")
    assert talk.assemble("codex", shown) == talk.assemble("codex", shown.to_dict())


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"contextMessages": [{"from": 5, "content": "Hi"}]}, r"\$\.contextMessages\[0\]\.from"),
        ({"currentMessage": None}, r"\$\.currentMessage"),
        ({"maxBytes": "5"}, r"\$\.maxBytes"),
        ({"maxBytes": -1}, r"\$\.maxBytes"),
        ({"shoe": 44}, "shoe"),
    ],
)
def test_a_wrong_input_of_assemble_is_refused_with_its_field(
    changes: dict[str, Any], path: str
) -> None:
    given = {
        "contextMessages": [],
        "currentMessage": "",
        "teamTask": None,
        "maxBytes": 9,
        **changes,
    }
    with pytest.raises(ValidationError, match=path):
        ContextManager().assemble("claude", given)
    with pytest.raises(ValidationError, match="must be"):
        ContextManager().assemble("claude", cast("Any", 5))


@pytest.mark.parametrize(
    "count", [lambda _: 1 // 0, lambda _: None, lambda _: 2.5, lambda _: -1, lambda _: True]
)
def test_a_counter_that_fails_is_replaced_by_the_estimate(
    count: Any,  # noqa: ANN401 - no counter
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a prompt's budget, in what explains it, and in `assemble`."""
    words = ["one two three"] * 9
    right, wrong = (
        team_of(*words, window=9, max_tokens=20, count=each) for each in (estimate, count)
    )
    assert right.prompt_for("max").prompt == wrong.prompt_for("max").prompt
    expected = right.prompt_for("max").explain().tokens
    assert expected == wrong.prompt_for("max").explain().tokens
    given = right.context_for("max", window=9)
    assert right.assemble("plain", given) == wrong.assemble("plain", given)
    assert "using the estimate" in caplog.text


def test_an_unknown_type_of_agent_is_warned_about_at_the_command(tmp_path: Path) -> None:
    """On standard error, once; the prompt is on standard output as ever."""
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(team_of("one", "two").export_snapshot()))
    arguments = ["context", str(file), "--agent", "max", "--json", "--explain"]
    fine, odd = (
        CliRunner().invoke(app, [*arguments, "--type", kind]) for kind in ("plain", "robot")
    )
    assert "" == fine.stderr
    assert 1 == odd.stderr.count('Unknown agentType "robot"')
    assert json.loads(fine.stdout)["prompt"] == json.loads(odd.stdout)["prompt"]


# ── where the documents are found ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
@pytest.mark.parametrize(
    "name",
    [
        "消息数组重构设计方案",
        "消息类型分离管理设计方案",
        "ContextManager 详细设计",
        "R-005 P0-2: 消息结构 Part 抽象功能设计",
        "conversation.ts - 对话管理器逻辑设计",
    ],
)
def test_a_document_is_found_from_the_readme_by_its_own_name(readme: str, name: str) -> None:
    """It leads to the part of the design map that is about it."""
    root = Path(__file__).parents[2]
    link = rf"\[{re.escape(name)}\]\((docs/design-map\.md#[^)]+)\)"
    (target,) = re.findall(link, (root / readme).read_text("utf-8"))
    headings = re.findall(
        r"^### (.*)$", (root / "docs/design-map.md").read_text("utf-8"), re.MULTILINE
    )
    anchors = [re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings]
    assert name in headings[anchors.index(target.partition("#")[2])]


def test_nothing_in_the_design_map_is_still_to_come() -> None:
    root = Path(__file__).parents[2]
    assert "not yet" not in (root / "docs/design-map.md").read_text("utf-8")
