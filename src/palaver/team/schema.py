"""The JSON Schema of a team file, made from the values themselves so that both say the same.

`python -m palaver.team.schema > src/palaver/team/schema.json` writes it again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from palaver.team.roster import Team

__all__ = ["SCHEMA", "schema"]

SCHEMA: Final = Path(__file__).with_name("schema.json")
"""The file that is shipped, for editors and other programs."""


def schema() -> dict[str, Any]:
    """The schema as JSON-ready data.

    >>> schema()["$defs"]["Team"]["required"]
    ['members']
    """
    made: dict[str, Any] = msgspec.json.schema(Team)
    for definition in made["$defs"].values():
        summary = definition["description"].split("\n\n")[0]
        definition["description"] = " ".join(summary.split())
    made["$defs"]["Team"]["properties"]["members"]["minItems"] = 2
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


if __name__ == "__main__":  # pragma: no cover - run by hand, and checked by a test
    json.dump(schema(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
