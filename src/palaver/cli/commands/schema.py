"""`palaver schema`: print the JSON Schema of team files or of node settings."""

from __future__ import annotations

import json
from typing import get_args

import click

from palaver.nodes import schema as nodes_schema
from palaver.nodes.results import NodeKind
from palaver.team import schema as team_schema

__all__ = ["schema"]


@click.command(short_help="Print the JSON Schema of team files or of node settings.")
@click.argument("what", type=click.Choice(["nodes", "team"]))
@click.option("--node", type=click.Choice(get_args(NodeKind)), help="Of one node's settings only.")
def schema(what: str, node: NodeKind | None) -> None:
    """Print the JSON Schema of WHAT: the settings of workflow nodes, or a team file."""
    if what == "team" and node is not None:
        raise click.UsageError("--node goes with nodes")
    made = team_schema() if what == "team" else nodes_schema(node)
    click.echo(json.dumps(made, indent=2, ensure_ascii=False))
