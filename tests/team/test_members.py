"""Programs as members: what they get, what becomes of what they say, and that nothing is left."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from palaver.context import AssemblerOutput
from palaver.errors import ArgumentTooLong, MemberFailed
from palaver.stores.holders import process_mark
from palaver.team import PROFILES, CommandMember
from palaver.team.processes import (
    LONGEST_ARGUMENT,
    kill_orphan,
    run_command_member,
    run_program,
)
from tests.team.members import is_at_work, python, shell

if TYPE_CHECKING:
    from palaver.messages import Message

pytestmark = pytest.mark.anyio
HERE = Path.cwd()
SHOW = "import sys, os; print(sys.argv[1:], os.getcwd(), os.environ.get('TEA'), sys.stdin.read())"


async def answer(
    member: CommandMember, prompt: str = "Hi", *, system: str | None = None, folder: Path = HERE
) -> Message:
    heard: list[str] = []
    return await run_command_member(member, AssemblerOutput(prompt, system), folder, heard.append)


async def test_the_prompt_comes_on_standard_input_in_its_folder_with_its_environment(
    tmp_path: Path,
) -> None:
    """TM-04."""
    (tmp_path / "sub").mkdir()
    member = python("max", SHOW, cwd="sub", env={"TEA": "green"})
    said = (await answer(member, "Hi; $(rm -rf x)", folder=tmp_path)).text
    assert f"[] {tmp_path / 'sub'} green Hi; $(rm -rf x)" == said


async def test_the_environment_is_inherited_only_where_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only what is named of it, and a few basic variables."""
    monkeypatch.setenv("TEA", "black")
    assert " None " in (await answer(python("max", SHOW))).text
    assert " black " in (await answer(python("max", SHOW, pass_env=["TEA"]))).text
    assert " black " in (await answer(python("max", SHOW, pass_env=["TE*"]))).text
    assert " None " in (await answer(python("max", SHOW, inherit_env=False))).text


async def test_no_program_gets_a_key_that_the_team_file_does_not_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("OPENAI_API_KEY", "PALAVER_TOKEN", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "ANYTHING")
    for name in names:
        monkeypatch.setenv(name, f"secret of {name}")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:hunter22@proxy:3128")
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    got = json.loads((await answer(python("max", show))).text)
    assert set() == {*names, "HTTPS_PROXY"} & set(got)
    assert ("C.UTF-8", "http://proxy:3128") == (got["LC_ALL"], got["http_proxy"])
    assert (os.environ["PATH"], os.environ["HOME"]) == (got["PATH"], got["HOME"])
    named = json.loads((await answer(python("max", show, pass_env=["OPENAI_API_KEY"]))).text)
    assert {"OPENAI_API_KEY"} == set(names) & set(named)
    heard: list[str] = []
    await run_program([sys.executable, "-c", show], "", max_output=100_000, on_text=heard.append)
    assert set() == set(names) & set(json.loads("".join(heard)))


async def test_profiles_find_the_login_of_their_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/somewhere")
    show = [sys.executable, "-c", "import os; print(os.environ.get('CLAUDE_CONFIG_DIR'))"]
    for profile, expected in (("claude", "/somewhere"), ("codex", "None")):
        member = CommandMember(id="max", profile=profile, argv=show)
        assert expected == (await answer(member)).text


async def test_a_failure_quotes_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "opensesame")
    code = "echo wrong key sk-proj-abcdefghijklmnop of opensesame >&2; exit 3"
    with pytest.raises(MemberFailed) as failed:
        await answer(shell("max", code))
    assert "exit status 3\nwrong key [redacted] of [redacted]" == str(failed.value)


async def test_a_prompt_longer_than_any_argument_arrives_whole() -> None:
    prompt = "x" * 768 * 1024
    member = python("max", "import sys; print(len(sys.stdin.read()))")
    assert str(len(prompt)) == (await answer(member, prompt)).text


async def test_a_program_need_not_read_its_prompt() -> None:
    assert "Yes." == (await answer(shell("max", "echo Yes."), "x" * 768 * 1024)).text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("echo oh dear >&2; exit 3", "exit status 3\noh dear"),
        ("echo on stdout; exit 1", "exit status 1\non stdout"),
        ("kill -9 $$", "ended by SIGKILL"),
        ("kill -40 $$", "ended by signal 40"),
        ("exit 0", "it said nothing"),
        ("cat", "it said nothing\nHi"),
    ],
)
async def test_a_failure_says_what_the_program_said(code: str, expected: str) -> None:
    with pytest.raises(MemberFailed) as failed:
        await answer(shell("max", code))
    assert expected == str(failed.value)


@pytest.mark.parametrize("argv", [["/no/such/program"], ["no\0name"]])
async def test_a_program_that_is_not_there_is_a_failure(argv: list[str]) -> None:
    with pytest.raises(MemberFailed, match="can't be started"):
        await answer(CommandMember(id="max", argv=argv))


async def test_output_beyond_the_limit_is_counted_and_not_kept() -> None:
    member = python("max", "print('x' * 300_000)", max_output=1_000)
    message = await answer(member)
    assert ("x" * 1_000, 299_001) == (message.text, message.metadata["team"]["leftOut"])


async def test_of_many_errors_the_last_are_kept() -> None:
    code = "import sys; sys.stderr.write('x' * 100_000 + 'the end'); sys.exit(1)"
    with pytest.raises(MemberFailed, match=r"exit status 1\nx+the end$"):
        await answer(python("max", code))


async def test_broken_letters_are_replaced() -> None:
    assert "caf\ufffd" == (await answer(shell("max", r"printf 'caf\351'"))).text


async def test_text_is_reported_as_it_comes(tmp_path: Path) -> None:
    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)
        (tmp_path / str(len(heard))).touch()

    wait = f"while ! test -e {tmp_path}/%d; do sleep 0.01; done"
    code = f"printf Hi; {wait % 1}; printf ' One'; {wait % 2}; printf ' Two'"
    result = await run_program(["sh", "-c", code], "", max_output=99, on_text=hear)
    assert (["Hi", " One", " Two"], "Hi One Two") == (heard, result.output)


async def test_what_a_program_started_ends_with_it(tmp_path: Path) -> None:
    """A grandchild that holds the output open neither holds up the turn nor lives on."""
    pid = tmp_path / "pid"
    started = time.monotonic()
    assert "Yes." == (await answer(shell("max", f"sleep 60 & echo $! > {pid}; echo Yes."))).text
    assert time.monotonic() - started < 30
    assert await gone(int(pid.read_text("utf-8")))


async def test_one_that_is_called_off_is_ended_even_if_it_will_not_be(tmp_path: Path) -> None:
    """Asked first, then made to: with everything it started."""
    pid = tmp_path / "pid"
    stubborn = f"trap '' TERM; sleep 60 & echo $! > {pid}; wait; sleep 60"

    async def call_off(scope: anyio.CancelScope) -> None:
        while not (pid.exists() and pid.read_text("utf-8").strip()):  # noqa: ASYNC110
            await anyio.sleep(0.01)
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(call_off, group.cancel_scope)
        await answer(shell("max", stubborn))
    assert group.cancel_scope.cancelled_caught
    assert await gone(int(pid.read_text("utf-8")))


async def gone(pid: int) -> bool:
    for _ in range(3_000):
        if not is_at_work(pid):
            return True
        await anyio.sleep(0.02)
    return False


# ── system text ─────────────────────────────────────────────────────────────────────────────────

FLAGGED = [sys.executable, "-ISc", "import sys; print(sys.argv[1], open(sys.argv[2]).read()[:9])"]
COUNTED = [sys.executable, "-ISc", "import sys; print(sys.argv[1], len(sys.argv[2]))"]


async def test_system_text_goes_by_its_flag() -> None:
    member = CommandMember(id="max", argv=COUNTED, system_flag="--system")
    assert "--system 5" == (await answer(member, system="Be ki")).text
    whole = "x" * LONGEST_ARGUMENT
    assert f"--system {LONGEST_ARGUMENT}" == (await answer(member, system=whole)).text


async def test_system_text_too_long_for_an_argument_goes_by_file() -> None:
    """TM-04."""
    member = CommandMember(
        id="max", argv=FLAGGED, system_flag="--system", system_file_flag="--file"
    )
    assert "--file xxxxxxxxx" == (await answer(member, system="x" * (LONGEST_ARGUMENT + 1))).text
    only = CommandMember(id="max", argv=FLAGGED, system_file_flag="--file")
    assert "--file Be brief." == (await answer(only, system="Be brief.")).text


async def test_where_no_file_is_taken_it_is_an_error_of_its_own() -> None:
    member = CommandMember(id="max", argv=COUNTED, system_flag="--system")
    with pytest.raises(ArgumentTooLong, match="131,072 bytes, an argument holds 131,071"):
        await answer(member, system="x" * (LONGEST_ARGUMENT + 1))


def test_the_profiles_are_those_of_the_programs() -> None:
    """Checked by hand against their help; a change here wants another look at it."""
    known = {name: CommandMember(id="a", profile=name).known for name in PROFILES}
    assert ("claude", "-p", "--output-format", "text") == known["claude"].argv
    assert ("codex", "exec", "--skip-git-repo-check", "--color", "never", "-") == known[
        "codex"
    ].argv
    assert ("gemini", "--output-format", "text") == known["gemini"].argv
    assert ["claude-code", "openai-codex", "google-gemini"] == [p.format for p in known.values()]
    assert ("--append-system-prompt", "--append-system-prompt-file") == (
        known["claude"].system_flag,
        known["claude"].system_file_flag,
    )
    moved = CommandMember(
        id="a", profile="claude", argv=["npx", "claude", "-p"], args=["--model", "x"]
    )
    assert ("npx", "claude", "-p", "--model", "x") == moved.known.argv
    assert "--append-system-prompt" == moved.known.system_flag


# ── leftovers ───────────────────────────────────────────────────────────────────────────────────


async def test_only_the_very_same_program_is_ended() -> None:
    process = await anyio.open_process(["sleep", "60"], start_new_session=True)
    mark = process_mark(process.pid)
    assert mark is not None
    boot, pid, began = mark.split("/")
    assert not kill_orphan(f"{boot}/{pid}/{int(began) + 1}")
    assert not kill_orphan(f"another/{pid}/{began}")
    assert process.returncode is None
    assert kill_orphan(mark)
    assert -9 == await process.wait()
    assert not kill_orphan(mark)
    await process.aclose()


def test_a_process_that_is_not_there_has_no_mark() -> None:
    assert process_mark(2**22 + 1) is None
    assert process_mark(os.getpid()) == process_mark(os.getpid())
