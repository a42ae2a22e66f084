"""A tool described by a JSON schema, run by any function of its arguments.

Arguments are checked against the schema before the function sees them (`checking`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from palaver.conversation.tools.calling import called
from palaver.conversation.tools.checking import check_arguments
from palaver.wire.tools import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from palaver.conversation.tools.base import ToolContext, ToolOutput

__all__ = ["SchemaTool"]


class SchemaTool:
    """A tool by its JSON schema.

    >>> weather = SchemaTool("weather", "The weather in a city.", {"type": "object"}, print)
    >>> weather.spec.name, weather.idempotent
    ('weather', False)
    """

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        function: Callable[[dict[str, Any]], Any],
        *,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Run `function` with the arguments as one object; it may be async."""
        self.spec = ToolSpec(name, description, parameters)
        self.idempotent = idempotent
        self.timeout = timeout
        self._function = function

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Check the arguments and run it."""
        check_arguments(self.spec.parameters, arguments)
        given: dict[str, Any] = msgspec.to_builtins(arguments)  # its own to change
        return await called(partial(self._function, given), context)
