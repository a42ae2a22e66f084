"""Row security: a connection of one owner sees and changes nothing of another's.

The policies are in `row_security.sql`. They go by the setting `palaver.owner`, which every
transaction of a store that was opened with an owner sets for itself, so that it works through a
pooler that gives each transaction another connection. Without the policies nothing is different:
no statement is slower, and no setting is made.

It keeps programs from mistakes, and SQL that was smuggled in from others' rows as long as it can't
make the setting itself. A client that runs any SQL it likes can: then the first policy has to go by
the role. A superuser, a role with BYPASSRLS, and whoever may alter the tables, are not bound.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

from palaver.errors import StoreError
from palaver.stores.postgres.connections import STATEMENTS

if TYPE_CHECKING:
    from palaver.stores.postgres.connections import TimedConnection

__all__ = ["check_security", "secure_rows"]

_POLICIES: Final = "row_security.sql"
_LISTED: Final = 5


def check_security(connection: TimedConnection, owner: str | None) -> bool:
    """Return whether row security is on; `StoreError` where it does not fit the owner."""
    on, binds, role = connection.execute(STATEMENTS["row_security"]).fetchone() or (False,) * 3
    if owner is not None and not on:
        msg = (
            "the store has no row security, so an owner would see everything; "
            "`palaver migrate --row-security` turns it on"
        )
        raise StoreError(msg)
    if owner is not None and not binds:
        msg = (
            f"the role {role} is not bound by row security, so an owner would see everything; "
            "open the store as a role that is no superuser and has no BYPASSRLS"
        )
        raise StoreError(msg)
    if owner is None and binds:
        msg = (
            f"the store has row security, which binds the role {role}: open it with an owner, or "
            "as a role with BYPASSRLS"
        )
        raise StoreError(msg)
    return bool(on)


def secure_rows(connection: TimedConnection, *, on: bool) -> None:
    """Make the policies, or drop them; inside a transaction."""
    if on:
        rows = connection.execute(STATEMENTS["unowned"]).fetchall()
        if rows:
            shown = ", ".join(repr(name) for (name,) in rows[:_LISTED])
            more = " and others" if len(rows) > _LISTED else ""
            msg = (
                f"{shown}{more} would be out of sight: without an owner, or forked from another "
                "owner's conversation; give each an owner, and a family one (`set_owner`)"
            )
            raise StoreError(msg)
    for name in ("policies", "secured_tables"):
        for (statement,) in connection.execute(STATEMENTS[name]).fetchall():
            connection.execute(statement.encode())
    if on:
        folder = resources.files("palaver.stores.postgres")
        connection.execute(folder.joinpath(_POLICIES).read_bytes())
