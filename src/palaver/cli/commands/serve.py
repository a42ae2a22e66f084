"""`palaver serve` and `palaver mcp`: serve a store over HTTP with a page, or over MCP to agents."""

from __future__ import annotations

import logging
import os
import webbrowser
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

import click

from palaver.cli.app import Refused, is_terminal, json_option, print_line, styled
from palaver.cli.options import import_tools, resolve_address, store_option, use_store
from palaver.cli.output import print_json
from palaver.errors import ToolUnreachable, ValidationError

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator

__all__ = ["mcp", "serve"]


@click.command(short_help="Serve a store over HTTP, with a page.")
@click.option("--host", default="127.0.0.1", help="The address to listen at.  [127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=7007,
    help="The port; 0 takes any that is free.  [7007]",
)
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file of the token; it is created at the first start.  [token, in your data folder]",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Another name this server is asked under; can be repeated.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Another limit than usual, such as idle_seconds=60; can be repeated.",
)
@click.option("--no-open", is_flag=True, help="Do not open the page in a browser.")
@click.option("--model", metavar="NAME", help="The model that answers by default.")
@click.option("--cold", is_flag=True, help="Load a local model only when it is first used.")
@click.option(
    "--tools",
    multiple=True,
    metavar="MODULE:ATTR",
    help="Functions, tools or an MCP server, from a Python module; can be repeated.",
)
@click.option(
    "--team",
    type=click.Path(exists=True, dir_okay=False, readable=True),
    metavar="FILE",
    help="A team file to serve.",
)
@click.option(
    "--seed", is_flag=True, help="Write example conversations into the store, if it is empty."
)
@store_option
@json_option
def serve(  # noqa: PLR0917 - one for each option
    host: str,
    port: int,
    token_file: Path | None,
    hosts: tuple[str, ...],
    limits: tuple[str, ...],
    model: str | None,
    tools: tuple[str, ...],
    team: str | None,
    address: str | None,
    *,
    read_only: bool,
    no_open: bool,
    cold: bool,
    seed: bool,
    as_json: bool,
) -> None:
    """Serve the store over HTTP until Ctrl-C: an API, live events, and a page.

    The address that is printed contains the token, which allows everything. Requests without it, or
    from another page, are refused. Listening at another address than loopback needs --allow-host
    with the host name that clients use, and belongs behind TLS.
    """
    server = _import_server()
    _check_hosts(host, hosts, server.LOOPBACK)
    _check_model(model)
    token = _read_token(server, token_file)
    settings = server.Settings(
        token=token,
        allow_hosts=hosts,
        read_only=read_only,
        model=model,
        warm=not cold,
        toolset=tuple(import_tools(place) for place in tools),
        team=team,
        discover=host in server.LOOPBACK and not hosts,
        **dict(server.read_limit(limit) for limit in limits),
    )
    with use_store(address, create=not read_only) as store, server.bind(host, port) as listening:
        if seed and not read_only:
            from palaver.server import demo  # noqa: PLC0415 - part of the server

            demo.seed(store)
        app = server.make_app(store, settings)
        url = _address(listening, hosts)

        def announce() -> None:
            _announce(url, token, resolve_address(address), as_json=as_json, read_only=read_only)
            if is_terminal() and not (no_open or as_json):
                _open_page(f"{url}/#token={quote(token)}")

        with _log_to_stderr():
            try:
                server.serve(app, listening, announce)
            except (ToolUnreachable, ValidationError) as error:
                msg = f"--tools: {error}"
                raise click.UsageError(msg) from error
    if not as_json:
        click.echo("stopped", err=True)


@contextmanager
def _log_to_stderr() -> Generator[None]:
    """Write the server's log to standard error; error responses refer to it."""
    logger, handler = logging.getLogger("palaver.server"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _import_server() -> Any:  # noqa: ANN401 - a module
    try:
        from palaver import server  # noqa: PLC0415 - brings the whole server
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"litestar", "uvicorn"}:
            raise
        msg = "the server needs more packages: pip install 'palaver[server]'"
        raise Refused(msg) from None
    return server


def _check_hosts(host: str, hosts: tuple[str, ...], loopback: frozenset[str]) -> None:
    if host not in loopback and not hosts:
        msg = (
            f"--host {host} can be reached from elsewhere: say with --allow-host under which name "
            "it is asked, and put TLS before it"
        )
        raise click.UsageError(msg)
    for name in hosts:
        if not name or not name.isascii() or set(name) & set("/:@ ") or not name.isprintable():
            msg = f"--allow-host {name!r} must be a name such as palaver.example.org, no port"
            raise click.UsageError(msg)


def _check_model(name: str | None) -> None:
    from palaver.models import check_model_name  # noqa: PLC0415 - part of the server

    try:
        if name is not None:
            check_model_name(name)
    except ValidationError as error:
        msg = f"--model: {error.detail}"
        raise click.UsageError(msg) from error


def _read_token(server: Any, file: Path | None) -> str:  # noqa: ANN401 - a module
    if file is not None and not file.parent.is_dir():
        folder = click.format_filename(file.parent)
        msg = f"--token-file: there is no folder {folder}; make it first"
        raise Refused(msg)
    token: str = server.read_token(file or _folder() / "token")
    return token


def _folder() -> Path:
    """The user's data folder, where the token is."""
    folder = Path(resolve_address(None)).parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _address(listening: socket.socket, hosts: tuple[str, ...]) -> str:
    """The URL to open: on this machine, unless the server listens elsewhere only."""
    host, port = listening.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - it is compared, not listened at
        host = "127.0.0.1"
    elif host not in {"127.0.0.1", "::1"}:
        host = hosts[0]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _announce(url: str, token: str, place: str, *, as_json: bool, read_only: bool) -> None:
    where = _without_password(place)
    page = f"{url}/#token={quote(token)}"
    if as_json:
        print_json({"address": url, "page": page, "store": where, "pid": os.getpid()})
        return
    how = " (read-only)" if read_only else ""
    print_line(f"{styled('palaver', bold=True)} serves {styled(where)}{how}")
    print_line(f"open {styled(page, fg='cyan')}")
    print_line(styled("Ctrl-C stops it", dim=True))


def _without_password(place: str) -> str:
    """A store's address without its password.

    >>> _without_password("postgresql://me:secret@db/talks")
    'postgresql://me:…@db/talks'
    """
    if "://" not in place:
        return click.format_filename(place)
    place, mark, query = place.partition("?")
    options = [option for option in query.split("&") if "pass" not in option.lower()]
    rest = mark * any(options) + "&".join(options)
    found = urlsplit(place)
    if found.password is None:
        return place + rest
    user, _, host = found.netloc.rpartition("@")
    return urlunsplit(found._replace(netloc=f"{user.partition(':')[0]}:…@{host}")) + rest


def _open_page(page: str) -> None:
    """Open the page through a file, since other users can see the arguments of programs."""
    path = _folder() / "open.html"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={page}">')
    webbrowser.open(path.as_uri())


@click.command(short_help="Serve conversations to agents over MCP.")
@click.option("--write", is_flag=True, help="Also offer tools that mark, fork, undo and roll back.")
@store_option
def mcp(address: str | None, *, write: bool) -> None:
    """Serve the conversations of a store to an agent, on standard input and output.

    An MCP client starts it: Claude Code, Codex, opencode and others. The agent can search, list,
    read and compare; only with --write can it change anything.
    """
    try:
        import anyio  # noqa: PLC0415 - only this command needs them

        from palaver.mcp.server import build, serve  # noqa: PLC0415 - the same
    except ImportError as error:
        msg = "this needs the MCP SDK: pip install 'palaver[mcp]'"
        raise Refused(msg) from error
    with use_store(address) as store:
        anyio.run(serve, build(store, write=write))
