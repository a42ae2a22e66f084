from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

import palaver
from palaver.cli.app import COMMANDS, app
from palaver.messages import AssistantInfo, CacheCounts, TokenCounts, assistant, new_id, user
from palaver.messages.parts import retry_part
from palaver.server.demo import DemoClock, DemoUsage, MessageWriter
from tests.page.histories import called

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

    from palaver.stores import Store

    Run = Callable[..., Result]

OF_FILES = {"apply", "context", "convert", "doctor", "model", "schema", "validate"}
OF_PEOPLE = {"chat", "team"}
OF_PROGRAMS = {"mcp"}
OVER_A_STORE = sorted(set(COMMANDS) - OF_FILES - OF_PEOPLE - OF_PROGRAMS)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one conversation, `talk`, of three messages."""
    store = palaver.open(tmp_path / "chat.db")
    talk = [user("Tea or coffee?", id="a"), assistant("Tea.", id="b"), user("Hot?", id="c")]
    store.create(talk, id="talk", title="A talk", tags=["drinks"])
    return store


@pytest.fixture
def run(store: Store, tmp_path: Path) -> Run:
    """Run a command over the store."""

    def invoke(*arguments: str, given: str | bytes | None = None) -> Result:
        address = ["--store", str(tmp_path / "chat.db")]
        return CliRunner().invoke(app, [*arguments, *address], input=given)

    del store
    return invoke


def answer(result: Result) -> Any:  # noqa: ANN401 - JSON
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def said(store: Store, name: str = "talk") -> list[str]:
    return [message.text for message in store.get(name)]


def test_the_runs_of_a_conversation_are_shown_with_what_they_took(store: Store, run: Run) -> None:
    scribe, given = MessageWriter("ran", DemoClock()), {"q": "tea"}
    used = DemoUsage("openai", "gpt-6", (1_200, 30, 0), 0.0125)
    spent = TokenCounts(10, 5, 0, CacheCounts(900, 0))
    failed = AssistantInfo(finish="error", error={"message": "oops\x1b[31m"})
    again = [retry_part(new_id(), new_id(), 1, {"name": "Busy"})]
    store.create(
        [
            user("Tea?", timestamp=0),
            scribe.answer("", used, calls=[("one", "look", given), ("two", "look", given)]),
            scribe.result("one", "look", given, "no tea", failed=True),
            scribe.result("lost", "look", given, "tea"),
            assistant(again, info=failed),
            assistant("Yes.", info=AssistantInfo(tokens=spent, cost=0.5, cost_computed=True)),
        ],
        id="ran",
    )
    shown = run("show", "ran", "--runs").output.splitlines()
    assert shown[0].endswith("Tea?")
    assert [
        "     1    openai:gpt-6  1.3 s  1,200 in, 30 out  $0.0125",
        "     2      look  2.0 s  error  no tea",
        "            look  ? s  missing",
        "     4    answer  ? s  1 retried  failed  oops\\x1b[31m",
        "     5    answer  ? s  910 in, 5 out  900 cached  ≈ $0.5000",
        "     3      look  2.0 s  orphan",
    ] == shown[1:]
    page = answer(run("show", "ran", "--runs", "--json"))
    assert (6, "missing") == (page["length"], page["turns"][0]["steps"][0]["calls"][1]["status"])
    recent = answer(run("show", "ran", "--runs", "--recent", "1", "--json"))
    assert (5, True) == (recent["start"], recent["turns"][0]["partial"])


# ── which store, which conversation ─────────────────────────────────────────────────────────────


def test_the_default_is_a_file_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert 0 == CliRunner().invoke(app, ["append", "--new", "hello"]).exit_code
    file = tmp_path / "data" / "palaver" / "palaver.db"
    assert file.exists()
    assert 0o700 == file.parent.stat().st_mode & 0o777
    assert "hello" in CliRunner().invoke(app, ["search", "hello"]).stdout


def test_without_a_data_folder_it_is_below_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    CliRunner().invoke(app, ["append", "--new", "hello"])
    assert (tmp_path / ".local/share/palaver/palaver.db").exists()


def test_the_environment_names_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_STORE", str(tmp_path / "mine.db"))
    CliRunner().invoke(app, ["append", "--new", "hello"])
    assert (tmp_path / "mine.db").exists()


@pytest.mark.parametrize("command", ["list", "verify", "migrate"])
def test_reading_makes_no_store(command: str, tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    result = CliRunner().invoke(app, [command, "--store", str(file)])
    assert 1 == result.exit_code
    assert f"there is no store at {file}; `palaver append --new` and `palaver import` make one" in (
        result.stderr
    )
    assert not file.exists()


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database, and long enough to be sure of it" * 9, "utf-8")
    assert 1 == CliRunner().invoke(app, ["list", "--store", str(file)]).exit_code


@pytest.mark.parametrize("command", OVER_A_STORE)
def test_every_command_takes_a_store_and_answers_in_json(command: str) -> None:
    text = CliRunner().invoke(app, [command, "--help"]).stdout
    assert "--store" in text
    assert "--json" in text


def test_the_beginning_of_an_id_is_enough(run: Run, store: Store) -> None:
    store.create(id="other")
    assert "Tea." in run("show", "ta").stdout


def test_a_beginning_that_fits_several_is_refused(run: Run, store: Store) -> None:
    for number in range(7):
        store.create(id=f"tame-{number}")
    result = run("show", "ta")
    assert 1 == result.exit_code
    assert "beginning of several ids" in result.stderr
    assert "and more" in result.stderr
    assert 0 == run("show", "talk").exit_code


@pytest.mark.parametrize("name", ["nobody", ""])
def test_an_id_that_nobody_has_is_refused(run: Run, name: str) -> None:
    result = run("show", name)
    assert 1 == result.exit_code
    assert "no conversation has an id" in result.stderr


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


def create_later(store: Store) -> None:
    at = store.head("talk").updated + 1  # within a millisecond the order would be that of the ids
    store.with_clock(lambda: at).create(id="later")


def test_list(run: Run, store: Store) -> None:
    create_later(store)
    lines = run("list").stdout.splitlines()
    assert ["later", "talk"] == [line.split()[0] for line in lines]
    assert lines[1].endswith("3  A talk #drinks")
    tagged = answer(run("list", "--tag", "drinks", "--json"))["conversations"]
    assert ["talk"] == [one["id"] for one in tagged]


def test_list_goes_on_after_a_page(run: Run, store: Store) -> None:
    create_later(store)
    first = answer(run("list", "--limit", "1", "--json"))
    second = answer(run("list", "--limit", "1", "--after", first["next"], "--json"))
    assert ["later", "talk"] == [page["conversations"][0]["id"] for page in (first, second)]
    assert second["next"] is None
    assert first["next"] in run("list", "--limit", "1").stdout
    assert 2 == run("list", "--after", "nonsense").exit_code


def test_show(run: Run, store: Store) -> None:
    history = store.get("talk")
    history.mark(1, "good")
    history.set_team_task("Make tea")
    lines = run("show", "talk").stdout.splitlines()
    assert "talk  A talk  (version 2)" == lines[0]
    assert "team task  Make tea" == lines[1]
    assert lines[3].split()[:1] == ["1"]
    assert lines[3].endswith("assistant  Tea.  [good]")
    shown = answer(run("show", "talk", "--json"))
    assert {"good": ["b"]} == shown["marks"]
    assert ("Make tea", 2, 0) == (shown["teamTask"], shown["version"], shown["batchIndex"])


def test_show_shows_the_calls_beside_the_text(run: Run, store: Store) -> None:
    called(store, "called")
    lines = run("show", "called").stdout.splitlines()
    assert lines[3].endswith("Let me look. [tool-call clock {}]")
    assert "[tool clock completed 14:05, WEST." in lines[4]


def test_show_as_it_was_and_only_the_last(run: Run, store: Store) -> None:
    store.get("talk").clear()
    assert [] == answer(run("show", "talk", "--json"))["messages"]
    then = answer(run("show", "talk", "--at", "0", "--recent", "2", "--json"))
    assert ["b", "c"] == [message["id"] for message in then["messages"]]
    assert "     2  " in run("show", "talk", "--at", "0", "--recent", "1").stdout
    assert 1 == run("show", "talk", "--at", "9").exit_code


def test_a_message_can_not_steer_the_terminal(run: Run, store: Store) -> None:
    store.get("talk").append(user("\x1b[2Jgone"))
    assert "\\x1b[2Jgone" in run("show", "talk").stdout


def test_log(run: Run, store: Store) -> None:
    history = store.get("talk")
    history.append(user("more"))
    history.undo()
    versions = answer(run("log", "talk", "--json"))
    assert ["create", "append", "undo"] == [one["kind"] for one in versions]
    lines = run("log", "talk", "--recent", "2").stdout.splitlines()
    assert 2 == len(lines)
    assert lines[0].endswith("append  +1")


def test_search(run: Run, store: Store) -> None:
    store.create([user("coffee, please")], id="bar")
    everywhere = answer(run("search", "coffee", "--json"))
    assert {"talk", "bar"} == {hit["conversation"] for hit in everywhere}
    only = answer(run("search", "coffee", "--conversation", "bar", "--json"))
    assert ["coffee, please"] == [hit["snippet"] for hit in only]
    assert run("search", "tea", "coffee").stdout.startswith("talk  ")
    assert "" == run("search", "wine").stdout
    assert [0, True] == [
        everywhere[0]["index"],
        "not in the conversation" not in run("search", "tea").stdout,
    ]


def test_query_reads_a_stored_conversation(run: Run, store: Store) -> None:
    store.get("talk").mark(0, "good")
    found = answer(run("query", "--conversation", "talk", "--mark", "good", "--json"))
    assert ["a"] == [message["id"] for message in found]
    assert "1\n" == run("query", "--conversation", "talk", "--role", "assistant", "--count").stdout


@pytest.mark.parametrize(
    "options", [[], ["FILE", "--conversation", "talk"], ["FILE", "--mark", "m"]]
)
def test_query_is_of_a_file_or_a_conversation(run: Run, options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "messages.json"
    file.write_text("[]", "utf-8")
    given = [str(file) if option == "FILE" else option for option in options]
    assert 2 == run("query", *given).exit_code


# ── changing ────────────────────────────────────────────────────────────────────────────────────


def test_append(run: Run, store: Store) -> None:
    assert "talk: version 1, 1 message added\n" == run("append", "talk", "Yes.").stdout
    done = answer(run("append", "talk", "Good.", "--role", "assistant", "--json"))
    assert ("talk", 2, 1) == (done["conversation"], done["version"], len(done["messages"]))
    assert ["Yes.", "Good."] == said(store)[3:]
    assert "assistant" == store.get("talk")[-1].role


def test_append_from_standard_input(run: Run, store: Store) -> None:
    run("append", "talk", "-", given="Ä line\nand another\n")
    assert "Ä line\nand another" == said(store)[-1]
    assert 1 == run("append", "talk", "-", given=b"\xff").exit_code
    messages = json.dumps([{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}])
    run("append", "talk", "--messages", "-", given=messages)
    assert ["x", "y"] == said(store)[-2:]


@pytest.mark.parametrize("said", ["", "  ", "-"])
def test_nothing_can_be_appended_where_nothing_is_said(run: Run, store: Store, said: str) -> None:
    for command in (["append", "talk", said], ["append", "--new", said]):
        result = run(*command, given="\n")
        assert 1 == result.exit_code
        assert "$.content: is empty; give what is said" in result.output
    assert 3 == len(store.get("talk"))
    assert 1 == len(list(store))


def test_append_to_a_new_one(run: Run, store: Store) -> None:
    name = run("append", "--new", "hello", "--title", "New", "--tag", "t").stdout.strip()
    history = store.get(name)
    assert (["hello"], "New", ("t",)) == (said(store, name), history.title, history.tags)


def test_append_twice_with_a_key_is_once(run: Run, store: Store) -> None:
    for _ in range(2):
        assert 0 == run("append", "talk", "once", "--key", "k").exit_code
    assert 4 == len(store.get("talk"))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["talk"],
        ["--new"],
        ["--new", "talk", "hello"],
        ["--new", "hello", "--key", "k"],
        ["talk", "hello", "--title", "t"],
        ["talk", "hello", "--tag", "t"],
        ["talk", "hello", "--messages", "-"],
        ["talk", "hello", "--role", "robot"],
    ],
)
def test_append_says_how_it_is_used(run: Run, store: Store, arguments: list[str]) -> None:
    assert 2 == run("append", *arguments).exit_code
    assert ["talk"] == [head.id for head in store]


def test_edit(run: Run, store: Store, tmp_path: Path) -> None:
    keep = '{"operation": "TRUNCATE", "keepLast": 1}'
    assert "talk: version 1, 1 message, batch 1\n" == run("edit", "talk", "--op", keep).stdout
    file = tmp_path / "ops.json"
    file.write_text('[{"operation": "ROLLBACK", "targetBatchIndex": 0}, {"operation": "CLEAR"}]')
    done = answer(run("edit", "talk", "--ops", str(file), "--json"))
    assert (2, 1, 0) == (
        done["version"],
        done["affectedBatchIndex"],
        done["stats"]["totalMessages"],
    )
    assert 0 == run("edit", "talk", "--ops", "-", given="[]").exit_code
    assert 0 == len(store.get("talk"))


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        ('{"operation": "SHUFFLE"}', "$[0]: Unsupported operation type: SHUFFLE"),
        ('{"operation": "INSERT", "position": -1, "messages": []}', "$[0].position: "),
        (
            '{"operation": "REPLACE", "index": 9, "message": {"role": "user", "content": ""}}',
            "$[0].index: ",
        ),
        ("[]", "$[0]: must be an operation"),
        ("{", "is not JSON"),
    ],
)
def test_an_edit_that_is_refused_changes_nothing(
    run: Run, store: Store, operation: str, text: str
) -> None:
    result = run("edit", "talk", "--op", operation)
    assert 1 == result.exit_code
    assert text in result.stderr
    assert 0 == store.get("talk").version


def test_edits_before_the_refused_one_are_not_made(run: Run, store: Store) -> None:
    result = run("edit", "talk", "--op", '{"operation": "CLEAR"}', "--op",
                 '{"operation": "ROLLBACK", "targetBatchIndex": 7}')  # fmt: skip
    assert 1 == result.exit_code
    assert "$[1].targetBatchIndex: " in result.stderr
    assert 0 == store.get("talk").version


def test_a_price_changes_nothing(run: Run, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.tokens.is_exact", lambda: False)
    monkeypatch.setattr("palaver.cli.commands.edit.is_exact", lambda: False)
    keep = '{"operation": "TRUNCATE", "keepLast": 1}'
    price = answer(run("edit", "talk", "--op", keep, "--price", "--json"))
    assert (["a", "b"], 16, "estimated") == (
        price["removed"],
        price["tokensFreed"],
        price["tokens"],
    )
    assert "tokens freed          about 16" in run("edit", "talk", "--op", keep, "--price").stdout
    assert 0 == store.get("talk").version
    assert 2 == run("edit", "talk", "--op", keep, "--op", keep, "--price").exit_code
    assert 2 == run("edit", "talk").exit_code


def test_a_price_has_its_cost_in_money(run: Run) -> None:
    """By the usual prices of a model that is named; unknown where there are none."""
    keep = '{"operation": "TRUNCATE", "keepLast": 1}'
    priced = ("edit", "talk", "--op", keep, "--price")
    assert "unknown: no model was asked yet" in run(*priced).stdout
    unknown = run(*priced, "--model", "nobody:nothing").stdout
    assert "unknown: no price is known" in unknown
    told = run(*priced, "--model", "anthropic:claude-sonnet-4-5").stdout
    assert "cold (anthropic:claude-sonnet-4-5)" in told
    assert "it pays after         at once" in told
    assert "cost now              -$0.0001" in told
    cost = answer(run(*priced, "--model", "anthropic:claude-sonnet-4-5", "--json"))["cost"]
    assert ("cold", 0) == (cost["cache"], cost["paysAfter"])
    longer = (
        '{"operation": "INSERT", "position": 0, "messages": [{"role": "user", "content": "x"}]}'
    )
    told = run("edit", "talk", "--op", longer, "--price", "--model", "openai:gpt-4o").stdout
    assert "it pays after         never: later requests become no cheaper" in told
    assert 2 == run("edit", "talk", "--op", keep, "--model", "openai:gpt-4o").exit_code
    assert 2 == run(*priced, "--defer").exit_code


def test_an_edit_waits_is_listed_cancelled_and_applied(run: Run, store: Store) -> None:
    """Until it is applied, nothing changes."""
    keep = '{"operation": "TRUNCATE", "keepLast": 1}'
    assert "no edit waits" in run("deferred", "talk").stdout
    (made,) = answer(run("edit", "talk", "--op", keep, "--defer", "--json"))
    assert (2, "TRUNCATE") == (made["removedCount"], made["detail"])
    assert f"{made['id']}  TRUNCATE" in run("deferred", "talk").stdout
    assert 0 == store.get("talk").version
    assert 1 == run("edit", "talk", "--op", keep, "--defer").exit_code
    assert 2 == run("deferred", "talk", "--cancel", made["id"], "--apply").exit_code
    assert made["id"] in run("deferred", "talk", "--cancel", made["id"]).stdout
    assert 1 == run("deferred", "talk", "--cancel", made["id"]).exit_code
    run("edit", "talk", "--op", keep, "--defer")
    assert "version 1, 1 message" in run("deferred", "talk", "--apply").stdout
    assert [] == answer(run("deferred", "talk", "--json"))
    run("edit", "talk", "--op", '{"operation": "CLEAR"}', "--defer")
    run("undo", "talk")
    run("edit", "talk", "--op", '{"operation": "CLEAR"}')
    run("deferred", "talk", "--apply")
    assert "not applied: its messages are no longer" in run("deferred", "talk").stdout


def test_undo_redo_and_rollback(run: Run, store: Store) -> None:
    store.get("talk").clear()
    assert "version 2, 3 messages, batch 0" in run("undo", "talk").stdout
    assert 0 == answer(run("redo", "talk", "--json"))["stats"]["totalMessages"]
    assert "version 4, 3 messages, batch 0" in run("rollback", "talk", "0").stdout
    assert 1 == run("rollback", "talk", "9").exit_code
    result = run("undo", "talk")
    assert 0 == result.exit_code
    store.create(id="empty")
    assert "there is nothing to undo" in run("undo", "empty").stderr
    assert "there is nothing to redo" in run("redo", "empty").stderr


def test_fork_diff_and_merge(run: Run, store: Store) -> None:
    assert "side\n" == run("fork", "talk", "--id", "side").stdout
    run("append", "side", "Very hot.")
    assert "version 1, 4 messages" in run("merge", "talk", "side").stdout
    added = answer(run("diff", "talk", "--json"))["added"]
    assert ["Very hot."] == [entry["message"]["content"] for entry in added]
    assert run("diff", "talk", "1", "0").stdout.startswith("- ")
    early = answer(run("fork", "talk", "--at", "0", "--json"))
    assert ("talk", 0, 3) == (
        early["parent"],
        early["origin"],
        len(store.get(early["conversation"])),
    )
    assert 1 == run("merge", "side", early["conversation"]).exit_code


def test_a_merge_with_a_conflict_changes_nothing(run: Run, store: Store) -> None:
    fork = store.get("talk").fork(id="side")
    fork.replace(0, user("theirs"))
    store.get("talk").replace(0, user("ours"))
    result = run("merge", "talk", "side")
    assert 1 == result.exit_code
    assert "ours" == said(store)[0]


def test_mark(run: Run, store: Store) -> None:
    run("mark", "talk", "0", "good")
    run("mark", "talk", "b", "good")
    assert {"good": ["a", "b"]} == dict(store.get("talk").marks)
    assert "version 3" in run("mark", "talk", "a", "good", "--remove").stdout
    assert {"good": ["b"]} == dict(store.get("talk").marks)
    assert 1 == run("mark", "talk", "nobody", "good").exit_code
    assert 1 == run("mark", "talk", "99", "good").exit_code


# ── erasing ─────────────────────────────────────────────────────────────────────────────────────


def test_erase_asks_first(run: Run, store: Store) -> None:
    result = run("erase", "talk", "0", given="n\n")
    assert 1 == result.exit_code
    assert "Tea or coffee?" in result.stderr
    assert "nothing was erased" in result.stderr
    assert "Tea or coffee?" == said(store)[0]
    assert 1 == run("erase", "talk", "0", given="").exit_code
    assert "Tea or coffee?" == said(store)[0]
    done = run("erase", "talk", "0", given="y\n")
    assert (0, True) == (done.exit_code, "1 message erased in 1 place\n" in done.stdout)
    assert "" == said(store)[0]


def test_erase_with_nobody_to_ask_is_one_line_and_no_traceback(
    palaver: Callable[..., CompletedProcess[bytes]], store: Store, tmp_path: Path
) -> None:
    done = palaver("erase", "talk", "0", "--store", str(tmp_path / "chat.db"))
    assert 1 == done.returncode
    assert done.stderr.splitlines()[-1].endswith(b"nothing was erased")
    assert b"Traceback" not in done.stderr
    assert "Tea or coffee?" == said(store)[0]


def test_erase_without_asking(run: Run, store: Store) -> None:
    receipt = answer(run("erase", "talk", "b", "--yes", "--json"))
    assert ("b", 1) == (receipt["messageId"], receipt["places"])
    assert "out of reach" in run("erase", "talk", "a", "--yes").stdout
    assert ["", ""] == said(store)[:2]


def test_erase_says_what_it_took_from_beside_the_log(run: Run, store: Store) -> None:
    store.put_records("talk", [("prompt", "p1", b"user: Tea or coffee?")])
    assert "prompt p1 of talk" in run("erase", "talk", "a", "--yes").stdout


# ── making room ─────────────────────────────────────────────────────────────────────────────────


def test_prune(run: Run, store: Store) -> None:
    assert "talk: nothing to prune\n" == run("prune", "talk").stdout
    history = store.get("talk")
    history.append(user("With milk?", id="d"))
    history.undo()
    would = answer(run("prune", "talk", "--dry-run", "--json"))
    assert (["d"], False) == (would["messages"], would["done"])
    assert answer(run("prune", "talk", "--dry-run", "--undo", "1", "--json"))["messages"] == []
    assert "1 message (" in run("prune", "talk", "--dry-run").stdout
    refused = run("prune", "talk", given="n\n")
    assert (1, True) == (refused.exit_code, "nothing was pruned" in refused.stderr)
    assert "With milk?" == store.get("talk").at(1)[3].text
    done = answer(run("prune", "talk", "--yes", "--json"))
    assert {**would, "done": True} == done
    assert "" == store.get("talk").at(1)[3].text
    assert "whole\n" == run("verify").stdout


def test_prune_asks_first(run: Run, store: Store) -> None:
    history = store.get("talk")
    history.append(user("With milk?"))
    history.undo()
    done = run("prune", "talk", given="y\n")
    assert 0 == done.exit_code
    assert done.stdout.endswith(" pruned\n")


# ── proof ───────────────────────────────────────────────────────────────────────────────────────


def test_verify_notes_what_is_not_searched(run: Run, store: Store) -> None:
    store.create([user("tea " * 50_000)], id="long")
    assert 0 == run("search", "nothing").exit_code  # the index has come to it
    result = run("verify")
    note = "long: message 0: only its first 100,000 characters are searched"
    assert (0, f"note: {note}\nwhole\n") == (result.exit_code, result.stdout)
    assert [note] == answer(run("verify", "long", "--json"))["notes"]


def test_a_search_for_too_many_words_is_refused(run: Run, store: Store) -> None:
    store.create([user("tea")], id="short")
    assert 0 == run("search", *["tea"] * 10_000).exit_code
    result = run("search", *(f"w{number}" for number in range(10_000)))
    assert 1 == result.exit_code
    assert "has 10,000 words; a search takes at most 256" in result.stderr


def test_verify(run: Run, store: Store, tmp_path: Path) -> None:
    assert "whole\n" == run("verify").stdout
    assert {"problems": [], "notes": [], "whole": True} == answer(run("verify", "talk", "--json"))
    import apsw  # noqa: PLC0415 - only to do harm

    store.close()
    with apsw.Connection(str(tmp_path / "chat.db")) as damaging:
        damaging.execute("UPDATE messages SET body = replace(body, 'Tea.', 'Rum.')")
    damaging.close()
    result = run("verify")
    assert 1 == result.exit_code
    assert "1 problem\n" in result.stdout
    assert 1 == run("verify", "--json").exit_code


def test_migrate(run: Run) -> None:
    done = answer(run("migrate", "--json"))
    assert done["from"] == done["to"] > 0
    assert "the newest" in run("migrate").stdout


def test_migrate_says_from_where_to_where(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    file.touch()
    done = CliRunner().invoke(app, ["migrate", "--store", str(file)])
    assert "from version 0 to " in done.stdout


def test_paths_are_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(app, ["append", "--new", "x", "--store", "ä b.db"])
    assert Path("ä b.db").exists()


def test_delete_asks_first_and_says_what(run: Run, store: Store) -> None:
    result = run("delete", "talk", given="n\n")
    assert 1 == result.exit_code
    assert "A talk, 3 messages" in result.stderr
    assert "nothing was deleted" in result.stderr
    assert {"deleted": ["talk"]} == answer(run("delete", "talk", "talk", "--yes", "--json"))
    assert [] == list(store)


def test_what_was_forked_from_is_deleted_after_its_forks(run: Run, store: Store) -> None:
    store.get("talk").fork(id="other")
    result = run("delete", "talk", "--yes")
    assert (1, True) == (result.exit_code, "other" in result.stderr)
    assert "other: deleted\ntalk: deleted\n" == run("delete", "other", "talk", "--yes").stdout
