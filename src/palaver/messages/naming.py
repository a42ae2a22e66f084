"""How Python's names become the documents' JSON names: camelCase, with ID in capitals."""

from __future__ import annotations

__all__ = ["json_name"]


def json_name(name: str) -> str:
    """The JSON name of a field.

    >>> json_name("session_id"), json_name("cost_computed"), json_name("id")
    ('sessionID', 'costComputed', 'id')
    """
    first, *rest = name.split("_")
    return first + "".join("ID" if word == "id" else word.capitalize() for word in rest)
