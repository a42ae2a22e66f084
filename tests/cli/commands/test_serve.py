"""`palaver serve`: what it says before it serves, and what it refuses."""

from __future__ import annotations

import json
import socket
import stat
import sys
import webbrowser
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from palaver import server
from palaver.cli.app import app
from palaver.cli.commands import serve as serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def asked() -> list[Any]:
    """What would have been served."""
    return []


@pytest.fixture
def serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[Any]
) -> Callable[..., Result]:
    """The command up to the moment in which it would serve."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("PALAVER_STORE", raising=False)

    def served(app: object, listening: socket.socket, on_ready: Callable[[], None]) -> None:
        asked.append((app, listening.getsockname()))
        on_ready()

    monkeypatch.setattr(server, "serve", served)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["serve", "--port", "0", *arguments])

    return run


def test_it_says_where_it_is_and_what_it_serves(
    serve: Callable[..., Result], asked: list[Any], tmp_path: Path
) -> None:
    said = serve()
    assert 0 == said.exit_code, said.output
    port = asked[0][1][1]
    token = (tmp_path / "palaver" / "token").read_text().strip()
    assert f"http://127.0.0.1:{port}/#token={token}" in said.output
    assert str(tmp_path / "palaver" / "palaver.db") in said.output
    assert 0o600 == stat.S_IMODE((tmp_path / "palaver" / "token").stat().st_mode)


def test_programs_are_told_in_json(
    serve: Callable[..., Result], asked: list[Any], tmp_path: Path
) -> None:
    token = tmp_path / "mine"
    said = serve("--json", "--store", ":memory:", "--token-file", str(token))
    found = json.loads(said.stdout)
    port = asked[0][1][1]
    assert (f"http://127.0.0.1:{port}", ":memory:") == (found["address"], found["store"])
    assert found["page"].endswith(token.read_text().strip())
    assert found["pid"] > 0


def test_its_settings_are_what_was_asked_for(
    serve: Callable[..., Result], asked: list[Any], tmp_path: Path
) -> None:
    team = tmp_path / "team.yaml"
    team.write_text("members: []")
    store = tmp_path / "s.db"
    serve("--store", str(store))
    assert asked[-1][0].service.settings.discover  # nobody else can reach it
    said = serve(
        "--read-only", "--store", str(store), "--allow-host", "a.example", "--allow-host",
        "b.example", "--model", "openai:x", "--tools", "math:sqrt", "--team", str(team),
        "--limit", "idle_seconds=2.5", "--limit", "requests=50",
    )  # fmt: skip
    assert 0 == said.exit_code, said.output
    settings = asked[-1][0].service.settings
    assert (True, ("a.example", "b.example"), "openai:x", str(team)) == (
        settings.read_only,
        settings.allow_hosts,
        settings.model,
        settings.team,
    )
    assert (2.5, 50) == (settings.idle_seconds, settings.requests)
    assert not settings.discover
    assert ["sqrt"] == [tool.__name__ for tool in settings.toolset]
    assert "(read-only)" in said.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "--allow-host"),  # noqa: S104 - it is refused
        (["--host", "192.0.2.1"], "--allow-host"),
        (["--allow-host", "a b"], "must be a name"),
        (["--allow-host", "a:80"], "no port"),
        (["--allow-host", ""], "must be a name"),
        (["--port", "70000"], "70000"),
        (["--tools", "nothing"], "MODULE:ATTR"),
        (["--tools", "no_such_module:x"], "no_such_module"),
        (["--team", "none.yaml"], "none.yaml"),
        (["--model", "nope"], "--model: 'nope' names no model; expected PROVIDER:MODEL"),
        (["--model", "nowhere:x"], "--model: 'nowhere:x' names no model"),
        (["--token-file", "no/such/token"], "there is no folder no/such"),
        (["--read-only", "--store", "none.db"], "there is no store"),
        (["--host", "no.such.host.invalid", "--allow-host", "x"], "there is no address"),
        (["--store", "tape://x"], "tape"),
        (["--limit", "idle_seconds=0"], "$.idle_seconds: must be a number from 0.001 on, not 0"),
        (["--limit", "requests=many"], "such as requests=200"),
        (["--limit", "token=1"], "'token' is no limit; the limits are body, rate"),
    ],
)
def test_what_is_wrong_is_said(
    serve: Callable[..., Result], asked: list[Any], arguments: list[str], words: str
) -> None:
    said = serve(*arguments)
    assert said.exit_code in {1, 2}
    assert words in said.output
    assert [] == asked


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "$: line 1, column 1: expected `object`, got `array`"),
        (
            "members: [{id: a, kind: human}, {id: b, kind: model, model: 'openai:x', tools: [x]}]",
            "$.members[1].tools[0]: there is no tool 'x'",
        ),
    ],
)
def test_a_team_that_can_not_be_served_is_said_in_a_line(
    tmp_path: Path, text: str, words: str
) -> None:
    team = tmp_path / "team.yaml"
    team.write_text(text)
    said = CliRunner().invoke(
        app,
        ["serve", "--port", "0", "--no-open", "--cold", "--store", ":memory:", "--team", str(team),
         "--token-file", str(tmp_path / "token")],
    )  # fmt: skip
    assert 1 == said.exit_code, said.output
    (line,) = said.stderr.splitlines()
    assert line.startswith(f"Error: {team}: {words}")


def test_a_port_that_is_taken_is_said(serve: Callable[..., Result]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        said = serve("--port", str(other.getsockname()[1]))
    assert 1 == said.exit_code
    assert "--port 0 takes any that is free" in said.output


def test_a_token_that_others_can_read_is_said(serve: Callable[..., Result], tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x" * 40)
    token.chmod(0o644)
    said = serve("--token-file", str(token))
    assert 1 == said.exit_code
    assert "others may read" in said.output


def test_the_page_is_opened_for_a_person(
    serve: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(serving, "is_terminal", lambda: True)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    serve("--no-open")
    assert [] == opened
    serve()
    serve()
    place = tmp_path / "palaver" / "open.html"
    assert [place.as_uri()] * 2 == opened
    assert "#token=" in place.read_text()
    assert 0o600 == stat.S_IMODE(place.stat().st_mode)


@pytest.mark.parametrize(
    ("host", "names", "expected"),
    [
        ("127.0.0.1", (), "http://127.0.0.1:7"),
        ("0.0.0.0", ("x",), "http://127.0.0.1:7"),  # noqa: S104 - not listened at
        ("::1", (), "http://[::1]:7"),
        ("192.0.2.1", ("a.example",), "http://a.example:7"),
    ],
)
def test_the_address_is_one_that_is_answered(
    host: str, names: tuple[str, ...], expected: str
) -> None:
    class Listening:
        def getsockname(self) -> tuple[str, int]:
            return host, 7

    assert expected == serving._address(Listening(), names)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_password_is_not_shown() -> None:
    shown = serving._without_password
    assert "postgresql://me:…@db:5/t?x=1" == shown("postgresql://me:secret@db:5/t?x=1")
    assert "postgresql://me@db/t" == shown("postgresql://me@db/t")
    assert "postgresql:///t?host=h" == shown("postgresql:///t?password=secret&host=h")
    assert "postgresql:///t" == shown("postgresql:///t?sslpassword=secret")
    assert "a.db" == shown("a.db")


@pytest.mark.parametrize(("missing", "said"), [("litestar", "palaver[server]"), ("other", "")])
def test_a_server_that_is_not_installed_is_said(
    monkeypatch: pytest.MonkeyPatch, missing: str, said: str
) -> None:
    class Gone:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "palaver.server":
                raise ImportError(name=missing)

    monkeypatch.delitem(sys.modules, "palaver.server")
    monkeypatch.delattr("palaver.server")
    monkeypatch.setattr(sys, "meta_path", [Gone(), *sys.meta_path])
    found = CliRunner().invoke(app, ["serve"])
    assert 1 == found.exit_code
    assert said in found.output
