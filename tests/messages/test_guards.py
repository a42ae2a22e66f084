from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

from palaver import messages
from tests.messages.strategies import PARTS
from tests.profiles import at_least

if TYPE_CHECKING:
    from collections.abc import Callable

GUARDS: dict[str, Callable[[object], bool]] = {
    kind: getattr(messages, f"is_{kind.replace('-', '_')}_part") for kind in PARTS
}


@pytest.mark.parametrize("kind", PARTS)
def test_exactly_one_guard_knows_each_part(kind: str) -> None:
    @at_least(20)
    @given(PARTS[kind])
    def check(part: Any) -> None:  # noqa: ANN401 - any part
        assert [kind] == [name for name, guard in GUARDS.items() if guard(part)]

    check()


@pytest.mark.parametrize("value", [None, "text", {"type": "text"}, 5])
def test_no_guard_knows_anything_else(value: object) -> None:
    assert not any(guard(value) for guard in GUARDS.values())
