"""The growth table has a row for every public operation, and the tool that makes it works."""

from __future__ import annotations

import inspect

import palaver
from palaver.history import History
from palaver.stores import Store, StoredHistory
from tools import growth

HOOKS = {"after_fork_in_child", "listen"}  # they do nothing on a history, whatever its size
SEQUENCE = {"__len__", "__getitem__", "__iter__", "__reversed__", "__contains__"}


def public(kind: type) -> set[str]:
    """The public methods and properties of a class, and those of a sequence."""
    return {
        name
        for name, member in inspect.getmembers(kind)
        if (
            not inspect.iscoroutinefunction(member)  # a twin is its method, in a thread
            and (not name.startswith("_") and name not in HOOKS)
        )
        or (name in SEQUENCE and hasattr(kind, name))
    }


def measured(*kinds: str) -> set[str]:
    return {one.name for one in growth.OPERATIONS if one.of in kinds}


def test_every_public_operation_has_a_row() -> None:
    assert set() == public(History) - measured("History")
    assert set() == public(StoredHistory) - measured("History", "StoredHistory")
    of_all = {"check_receipt", "decrypt", "distribute", "encrypt", "erase_owner", "examine",
              "expire", "secure_rows"}  # fmt: skip  # of the whole store, and seldom
    assert set() == public(Store) - measured("Store") - of_all


def test_every_size_can_be_built_and_is_asked_for() -> None:
    assert set(growth.SIZES) == {size for one in growth.OPERATIONS for size in one.sizes}
    for one in growth.OPERATIONS:
        assert set(one.linear) <= set(growth.SIZES)


def test_the_tool_measures_everything_and_makes_a_table() -> None:
    """At sizes at which nothing can be told about growth: only that everything can be done."""
    with growth.scratch() as folder:
        backends = growth._backends(growth.BACKENDS, folder, None)
        found = growth.measured(growth.OPERATIONS, backends, scale=0.003, repeats=1, attempts=1)
        rows = list(found)
    titles = {(one.of, one.title) for one in growth.OPERATIONS}
    assert titles == {(row.operation.of, row.operation.title) for row in rows}
    assert {"history", "memory", "sqlite"} == {row.backend for row in rows}
    assert all(row.small.steps > 0 for row in rows
               if row.backend == "sqlite" and row.operation.title == "append")  # fmt: skip
    text = growth.table(rows)
    assert 2 + len({(row.operation.of, row.operation.title, row.dimension) for row in rows}) == len(
        text.splitlines()
    )
    page = growth.written(f"# A page\n{growth.BEGIN}\nold\n{growth.END}\nThe rest.\n", text)
    assert "old" not in page
    assert text in page
    assert page.endswith("The rest.\n")


def test_what_grows_too_fast_is_told() -> None:
    """An operation that is said to be flat and is not."""
    slow = growth.Operation("History", "messages", lambda w: list(w.history), sizes=("messages",))
    (row,) = growth.measured(
        [slow], {"sqlite": lambda: palaver.open(":memory:")}, scale=0.5, repeats=3
    )
    assert not row.within
    assert "**exceeded**" in growth.table([row])
    assert "grows" in str(row)


def test_the_docs_have_the_table() -> None:
    page = growth.PAGE.read_text("utf-8")
    _, begun, rest = page.partition(growth.BEGIN)
    assert begun
    for one in growth.OPERATIONS:
        assert f"| `{one.of}.{one.title}` |" in rest
    assert "exceeded" not in rest.partition(growth.END)[0]
