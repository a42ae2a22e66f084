"""`palaver chat`: a conversation with a model, in a terminal or line by line through a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import click

from palaver.cli.manners import REFUSED, Refused
from palaver.cli.stored import found, opened, store_option
from palaver.conversation.models import catalog
from palaver.conversation.models import model as named_model

if TYPE_CHECKING:
    from palaver.conversation.models.base import Model
    from palaver.stores import Store

__all__ = ["chat"]

_DEFAULT = "smollm2"


@click.command(short_help="Talk with a model.")
@click.option(
    "--model",
    "name",
    envvar="PALAVER_MODEL",
    metavar="NAME",
    help="Who answers, such as anthropic:claude-… or local:/path/file.gguf.  [local:smollm2]",
)
@click.option("--base-url", metavar="URL", help="The address of a server that speaks its protocol.")
@click.option(
    "--tools",
    multiple=True,
    metavar="MODULE:ATTR",
    help="Functions, tools or an MCP server, from a Python module; can be repeated.",
)
@click.option("--system", metavar="TEXT", help="What a new conversation begins with.")
@click.option("--conversation", metavar="ID", help="Go on with this one.  [a new one]")
@store_option
@click.pass_context
def chat(
    context: click.Context,
    /,
    *,
    name: str | None,
    base_url: str | None,
    tools: tuple[str, ...],
    system: str | None,
    conversation: str | None,
    address: str | None,
) -> None:
    """Talk with a model. Each line is a question; a line that begins with / is a command, and
    /help lists them.

    Ctrl-C calls an answer off and keeps what had arrived, Ctrl-D leaves. Everything is kept in the
    store. Answers go to standard output, all else to standard error.
    """  # noqa: D205 - the help text of the command
    model = _model(name, base_url)
    given = [_imported(place) for place in tools]
    with opened(address, make=True) as store:
        failed = anyio.run(_talk, store, conversation, model, given, system)
    context.exit(REFUSED if failed else 0)


async def _talk(
    store: Store, name: str | None, model: Model, given: list[object], system: str | None
) -> bool:
    from palaver.cli.talk import Talk  # noqa: PLC0415 - brings the whole conversation
    from palaver.conversation.tools.gathering import entered  # noqa: PLC0415 - the same

    history = None if name is None else found(store, name)
    try:
        async with entered(given) as tools:
            talk = Talk(store, history, model, tools, system=system)
            return await talk.run()
    finally:
        await model.close()


def _model(name: str | None, base_url: str | None) -> Model:
    if name is None:
        if _DEFAULT not in catalog.installed():
            msg = (
                f"there is no model yet: palaver model install {_DEFAULT} fetches a small one, "
                "--model names another"
            )
            raise Refused(msg)
        name = f"local:{_DEFAULT}"
    return named_model(name, **({} if base_url is None else {"base_url": base_url}))


def _imported(place: str) -> Any:  # noqa: ANN401 - whatever the module has
    """What stands at `module:attr`; modules of the current folder are found too."""
    from palaver.conversation.tools.gathering import imported  # noqa: PLC0415 - as below

    if not all(place.partition(":")):
        msg = f"--tools {place}: must be MODULE:ATTR, as in my_tools:weather"
        raise click.UsageError(msg)
    try:
        return imported(place)
    except Exception as error:
        msg = f"--tools {place}: {type(error).__name__}: {error}"
        raise Refused(msg) from error
