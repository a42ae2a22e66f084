from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

import palaver
import palaver.cli
from palaver.cli import app as runtime
from palaver.cli.app import COMMANDS, app
from palaver.errors import PalaverError
from palaver.stores import open_store
from tests.cli.conftest import START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Palaver = Callable[..., subprocess.CompletedProcess[bytes]]

GOOD = b'{"role": "user", "content": "hi"}'
BAD = b'{"role": "robot", "content": "hi"}'


def test_version(palaver: Palaver) -> None:
    done = palaver("--version")
    assert (0, b"palaver 0.1.0\n", b"") == (done.returncode, done.stdout, done.stderr)


def test_python_m_palaver_is_the_command() -> None:
    command = [sys.executable, "-m", "palaver", "validate", "-"]
    done = subprocess.run(command, input=BAD, capture_output=True, check=False)
    assert (1, b"standard input: 1 checked, 1 error\n") == (
        done.returncode,
        done.stdout.splitlines(keepends=True)[-1],
    )


def test_version_loads_no_command_and_no_rich() -> None:
    code = "from palaver.cli import main; main(['--version']); import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert set() == loaded & {*COMMANDS.values(), "rich", "palaver.messages", "asyncio"}


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["validate", "--help"]])
def test_help(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert 0 == result.exit_code
    assert "Usage: palaver" in result.stdout


def test_every_command_is_there() -> None:
    listed = CliRunner().invoke(app, ["--help"]).stdout
    for name in COMMANDS:
        assert f"  {name} " in listed
        assert 0 == CliRunner().invoke(app, [name, "--help"]).exit_code


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], b"Usage: palaver"),
        (["fly"], b"palaver: No such command 'fly'"),
        (["validate"], b"palaver: Missing argument 'FILE'"),
        (["validate", "-", "--fly"], b"palaver: No such option"),
        (["validate", "no such file"], b"palaver: Invalid value for 'FILE': File 'no such file'"),
        (["validate", "."], b"is a directory"),
    ],
)
def test_wrong_usage_is_2(palaver: Palaver, arguments: list[str], text: bytes) -> None:
    done = palaver(*arguments)
    assert (2, b"") == (done.returncode, done.stdout)
    assert text in done.stderr
    if arguments:
        assert 1 == done.stderr.count(b"\n")


def test_a_command_that_was_nearly_right_is_named(palaver: Palaver) -> None:
    done = palaver("delte")
    assert b"No such command 'delte'. Did you mean 'delete'?" in done.stderr


def test_an_error_is_json_for_programs(palaver: Palaver, tmp_path: Path) -> None:
    store = str(tmp_path / "chat.db")
    assert 0 == palaver("append", "hi", "--new", "--store", store).returncode
    done = palaver("show", "nothing", "--store", store, "--json")
    assert (1, b"") == (done.returncode, done.stdout)
    words = "no conversation has an id that begins with 'nothing'"
    assert {"error": {"message": words}} == json.loads(done.stderr)


def test_status_and_streams_of_the_real_command(palaver: Palaver) -> None:
    done = palaver("validate", "-", given=GOOD)
    assert (0, b"standard input: 1 checked, all valid\n", b"") == (
        done.returncode,
        done.stdout,
        done.stderr,
    )
    done = palaver("validate", "-", "--json", given=BAD)
    assert (1, b"") == (done.returncode, done.stderr)
    assert "role" == json.loads(done.stdout)["errors"][0]["rule"]


def test_utf8_whatever_the_locale_says(palaver: Palaver) -> None:
    given = '{"role": "文", "content": "hi"}'.encode()
    done = palaver("validate", "-", given=given, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="")
    assert "'文'" in done.stdout.decode()


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    file.write_bytes((BAD + b"\n") * 20_000)
    process = subprocess.Popen(
        [sys.executable, "-c", START, "validate", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert b"" == process.stderr.read()
    process.stderr.close()
    assert runtime.PIPE_CLOSED == process.wait(60)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_one_to_nowhere(tmp_path: Path, closed: str) -> None:
    """A daemon or a cron job may start a command so."""
    store = str(tmp_path / "s.db")
    run = f'"$0" -c "$1" append --new hi --store "$2" {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", run, sys.executable, START, store], capture_output=True, check=False
    )
    assert (0, b"") == (done.returncode, done.stderr)
    with open_store(store) as opened:
        assert ["hi"] == [message.text for head in opened.each() for message in opened.get(head.id)]


def test_closed_standard_input_is_empty() -> None:
    run = f'"$0" -c "{START}" validate - <&-'
    done = subprocess.run(["/bin/sh", "-c", run, sys.executable], capture_output=True, check=False)
    assert (1, b"") == (done.returncode, done.stderr)
    assert done.stdout.startswith(b"standard input:1: $: is empty")


def test_ctrl_c_is_quiet() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START, "validate", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write((BAD + b"\n") * 2)
    process.stdin.flush()
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"standard input:1: ")  # it is at work
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (runtime.INTERRUPTED, b"") == (process.returncode, err)


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f469\U0001f3fd\u200d\U0001f4bb \U0001f469\u200d\U0001f467",  # pictures
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian: I want
        "\u0dc1\u0dca\u200d\u0dbb\u0dd3",  # Sinhala: Sri
        "Quoi\u202f? 20\u00a0\u20ac",  # French
        "\u3000\u4f60\u597d",  # a Chinese paragraph begins
    ],
)
def test_what_belongs_to_a_text_is_printed_as_it_is(text: str) -> None:
    assert text == runtime.printable(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\u202eb\u2066", "a\\u202eb\\u2066"),
        ("a\u200db \u0645\u200c \u200d\u0645", "a\\u200db \u0645\\u200c \\u200d\u0645"),
        ("\u0645\u200c\u200c\u0645", "\u0645\\u200c\\u200c\u0645"),
        ("a\nb\u2028c\u200b", "a\\nb\\u2028c\\u200b"),
    ],
)
def test_what_would_control_a_terminal_or_be_hidden_is_escaped(text: str, shown: str) -> None:
    assert shown == runtime.printable(text)


def on_a_terminal(**variables: str) -> bytes:
    """Run the command with a terminal as its standard output; answer what it showed."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    subprocess.run(
        [sys.executable, "-c", START, "validate", "-"],
        input=GOOD,
        stdout=theirs,
        check=True,
        env={**environment, "TERM": "xterm", **variables},
    )
    os.close(theirs)
    shown = os.read(ours, 4096)
    os.close(ours)
    return shown


def test_colour_is_for_terminals() -> None:
    assert b"\x1b[32m" in on_a_terminal()


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_turned_off(variables: dict[str, str]) -> None:
    assert b"standard input: 1 checked, all valid\r\n" == on_a_terminal(**variables)


NEEDS_EXTRA = "palaver: the command needs its extra: pip install 'palaver[cli]'\n"


def test_without_click_it_says_how_to_get_it() -> None:
    hide = "import sys; sys.modules['click'] = None; "
    done = subprocess.run(
        [sys.executable, "-c", hide + START, "--version"], capture_output=True, check=False
    )
    assert (2, b"", NEEDS_EXTRA.encode()) == (done.returncode, done.stdout, done.stderr)


def started_by(uv: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Start the command as uv would, without click: `uv` only prints how it was called."""
    uv.write_text('#!/bin/sh\necho "$@"\n')
    uv.chmod(0o755)
    hide = "import sys; sys.modules['click'] = None; "
    known = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    return subprocess.run(
        [sys.executable, "-c", hide + START, "serve", "--port", "0"],
        capture_output=True, check=False, text=True, env=known | {"UV": str(uv)} | variables,
    )  # fmt: skip


def test_uvx_fetches_what_the_command_needs(tmp_path: Path) -> None:
    done = started_by(tmp_path / "uv")
    whole = f"palaver[cli,local,server,team,tokens]=={palaver.__version__}"
    assert (0, f"tool run --from {whole} palaver serve --port 0\n") == (
        done.returncode,
        done.stdout,
    )
    assert f"palaver: fetching what the command needs: {whole}\n" == done.stderr


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "PALAVER_WITH_EXTRAS"])
def test_an_environment_of_the_users_own_is_left_alone(tmp_path: Path, variable: str) -> None:
    done = started_by(tmp_path / "uv", **{variable: "1"})
    assert (2, "", NEEDS_EXTRA) == (done.returncode, done.stdout, done.stderr)


def test_without_rich_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_given: object) -> int:
        raise ModuleNotFoundError(name="rich.progress")

    monkeypatch.setattr(runtime, "run", run)
    assert 2 == palaver.cli.main([])
    assert NEEDS_EXTRA == capsys.readouterr().err


def test_another_missing_module_is_not_blamed_on_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "palaver.cli.app", None)
    with pytest.raises(ModuleNotFoundError, match=r"palaver\.cli\.app"):
        palaver.cli.main([])


def failing(error: BaseException) -> click.Command:
    @click.group(cls=runtime.CommandGroup)
    def group() -> None:
        pass

    @group.command()
    def fail() -> None:
        raise error

    return group


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (PalaverError("no such thing"), 1, "palaver: no such thing\n"),
        (runtime.Refused("not this\none \x1b"), 1, "palaver: not this one \\x1b\n"),
        (OSError(5, "the disk is gone"), 1, "palaver: [Errno 5] the disk is gone\n"),
        (click.UsageError("not so"), 2, "palaver: not so (try 'palaver fail --help')\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_one_line_and_a_status(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status == runtime.run(failing(error), ["fail"])
    assert ("", said) == capsys.readouterr()


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        runtime.run(failing(ZeroDivisionError()), ["fail"])


def test_main_takes_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == palaver.cli.main(["--version"])
    assert f"palaver {palaver.__version__}\n" == capsys.readouterr().out


def test_shell_completion(palaver: Palaver) -> None:
    done = palaver(_PALAVER_COMPLETE="bash_source")
    assert 0 == done.returncode
    assert b"_palaver_completion" in done.stdout


def test_a_shell_completes_the_ids_of_conversations(palaver: Palaver, tmp_path: Path) -> None:
    with open_store(tmp_path / "chat.db") as store:
        for name in ("tea-1", "tea-2", "rum"):
            store.create(id=name, title=f"About {name}")
    where = {"PALAVER_STORE": str(tmp_path / "chat.db"), "_PALAVER_COMPLETE": "zsh_complete"}

    def offered(words: str, count: int, **variables: str) -> list[str]:
        given = {**where, "COMP_WORDS": words, "COMP_CWORD": str(count), **variables}
        lines = palaver(**given).stdout.decode().splitlines()
        return [f"{name}: {title}" for name, title in zip(lines[1::3], lines[2::3], strict=True)]

    assert ["tea-1: About tea-1", "tea-2: About tea-2"] == offered("palaver show te", 2)
    assert {"tea-1", "tea-2", "rum"} == {
        line.partition(":")[0] for line in offered("palaver export ", 2)
    }
    assert ["rum: About rum"] == offered("palaver search --conversation r", 3)
    elsewhere = tmp_path / "other.db"
    assert [] == offered(f"palaver show --store {elsewhere} te", 4)
    assert [] == offered("palaver show te", 2, PALAVER_STORE="mysql://me:secret@here/x")
    assert not elsewhere.exists()


def test_every_argument_that_is_a_conversation_is_completed() -> None:
    names = {"conversation", "conversations", "other", "into"}
    context = click.Context(app)
    found = 0
    commands = [app.get_command(context, name) for name in COMMANDS]
    for command in commands:
        assert command is not None
        if isinstance(command, click.Group):
            commands += command.commands.values()
        for one in command.params:
            if one.name in names:
                found += 1
                assert one._custom_shell_complete is not None, f"{command.name}: {one.name}"
    assert found > 20
