"""The history of a conversation: an append-only log, views of it, and every operation on them.

`History` is the front door. Read `log` for what is kept, `rope` and `view` for what is selected,
`frame` for what makes a version, `plan` for what an operation does.
"""

from __future__ import annotations

from palaver.history.diff import Diff, Entry
from palaver.history.erasing import ERASED, SUMMARY_OF, Receipt
from palaver.history.history import History
from palaver.history.operations import (
    Append,
    Clear,
    Filter,
    Insert,
    Operation,
    Range,
    Replace,
    Rollback,
    Truncate,
    parse_operation,
    parse_operations,
)
from palaver.history.pricing import Price
from palaver.history.results import BatchSnapshot, MarkMap, Result, State, Stats
from palaver.history.rewriting import Piece, Rewrite
from palaver.history.roles import RoleIndex
from palaver.history.view import View

__all__ = [
    "ERASED",
    "SUMMARY_OF",
    "Append",
    "BatchSnapshot",
    "Clear",
    "Diff",
    "Entry",
    "Filter",
    "History",
    "Insert",
    "MarkMap",
    "Operation",
    "Piece",
    "Price",
    "Range",
    "Receipt",
    "Replace",
    "Result",
    "Rewrite",
    "RoleIndex",
    "Rollback",
    "State",
    "Stats",
    "Truncate",
    "View",
    "parse_operation",
    "parse_operations",
]
