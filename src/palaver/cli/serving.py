"""`palaver serve`: a store over HTTP, with the inspector page."""

from __future__ import annotations

import logging
import os
import webbrowser
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

import click

from palaver.cli.manners import Refused, json_option, on_terminal, say, styled
from palaver.cli.stored import opened, place_of, put_json, store_option

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator

__all__ = ["serve"]


@click.command(short_help="Serve a store over HTTP, with a page to look at it.")
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
    help="Where the token is kept; it is made at the first start.  [token, in your data folder]",
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
@click.option("--model", metavar="NAME", help="Who answers unless the page says otherwise.")
@click.option("--cold", is_flag=True, help="Load a model of this machine only when it is asked.")
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
    help="A team, for conversations that have none.",
)
@click.option("--seed", is_flag=True, help="Write a small example into the store, if it is empty.")
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
    """Serve the store over HTTP until Ctrl-C: an API, live events, and a page to look at it all.

    The address that is printed holds the token: whoever has it may do everything. Without it, or
    from another page, nothing is answered. Listening at another address than this machine's own
    needs --allow-host with the name it is asked under, and belongs behind TLS.
    """
    server = _server()
    _check_names(host, hosts, server.LOOPBACK)
    token = server.read_token(token_file or _folder() / "token")
    settings = server.Settings(
        token=token,
        allow_hosts=hosts,
        read_only=read_only,
        model=model,
        warm=not cold,
        toolset=tuple(_imported(place) for place in tools),
        team=team,
        **dict(server.read_limit(limit) for limit in limits),
    )
    with opened(address, make=not read_only) as store, server.bound(host, port) as listening:
        if seed and not read_only:
            server.sow(store)
        app = server.make_app(store, settings)
        url = _address(listening, hosts)
        _announce(url, token, place_of(address), as_json=as_json, read_only=read_only)
        if on_terminal() and not (no_open or as_json):
            _open(f"{url}/#token={quote(token)}")
        with _logged():
            server.serve(app, listening)
    if not as_json:
        click.echo("stopped", err=True)


@contextmanager
def _logged() -> Generator[None]:
    """Write what the server logs to standard error; refusals refer to it."""
    logger, handler = logging.getLogger("palaver.server"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _server() -> Any:  # noqa: ANN401 - a module
    try:
        from palaver.server import command  # noqa: PLC0415 - brings the whole server
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"litestar", "uvicorn"}:
            raise
        msg = "the server needs more packages: pip install 'palaver[server]'"
        raise Refused(msg) from None
    return command


def _check_names(host: str, hosts: tuple[str, ...], loopback: frozenset[str]) -> None:
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


def _folder() -> Path:
    """The user's data folder, where the token is."""
    folder = Path(place_of(None)).parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _imported(place: str) -> Any:  # noqa: ANN401 - whatever the module has
    from palaver.conversation.tools.gathering import imported  # noqa: PLC0415 - only if asked for

    try:
        return imported(place)
    except Exception as error:
        msg = f"--tools {place}: {error}"
        raise Refused(msg) from error


def _address(listening: socket.socket, hosts: tuple[str, ...]) -> str:
    """The address to open: this machine's own name, unless it listens elsewhere only."""
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
        put_json({"address": url, "page": page, "store": where, "pid": os.getpid()})
        return
    how = " (read-only)" if read_only else ""
    say(f"{styled('palaver', bold=True)} serves {styled(where)}{how}")
    say(f"open {styled(page, fg='cyan')}")
    say(styled("Ctrl-C stops it", dim=True))


def _without_password(place: str) -> str:
    """A store's address, fit to be shown.

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


def _open(page: str) -> None:
    """Open the page; by way of a file, since other users see what programs are started with."""
    place = _folder() / "open.html"
    place.unlink(missing_ok=True)
    with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={page}">')
    webbrowser.open(place.as_uri())
