"""The history of a conversation: an append-only log, views of it, and every operation on them.

`History` is the main class. Read `log` for what is stored, `rope` and `view` for what is selected,
`frame` for what makes a version, `plan` for what an operation does.
"""

from __future__ import annotations

from palaver.history.diff import Diff, DiffEntry
from palaver.history.erase import ERASED, SUMMARY_OF, Receipt
from palaver.history.frame import Expected, check_expected
from palaver.history.history import BaseHistory, History
from palaver.history.impact import Impact
from palaver.history.log import RoleIndex
from palaver.history.operations import (
    Append,
    Clear,
    Filter,
    Insert,
    Operation,
    Piece,
    Range,
    Replace,
    Rewrite,
    Rollback,
    Truncate,
    parse_operation,
    parse_operations,
)
from palaver.history.view import BatchSnapshot, MarkMap, Result, State, Stats, View

__all__ = [
    "ERASED",
    "SUMMARY_OF",
    "Append",
    "BaseHistory",
    "BatchSnapshot",
    "Clear",
    "Diff",
    "DiffEntry",
    "Expected",
    "Filter",
    "History",
    "Impact",
    "Insert",
    "MarkMap",
    "Operation",
    "Piece",
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
    "check_expected",
    "parse_operation",
    "parse_operations",
]
