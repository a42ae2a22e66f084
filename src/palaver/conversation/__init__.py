"""One step of a conversation: call a model, run tools, count tokens, survive a crash.

`Conversation` is the main class: `ask` and `stream` drive it to an answer, `step` is one step.
"""

from __future__ import annotations

from palaver.conversation.compaction import (
    ClearOutputs,
    DropOldest,
    Summarise,
    auto_compact,
    compact,
    defer_compaction,
)
from palaver.conversation.conversation import Conversation
from palaver.conversation.deferred import DeferredEdit
from palaver.conversation.feed import follow_events
from palaver.conversation.prompt_cache import CacheUse
from palaver.conversation.recovery import Recovered
from palaver.conversation.run import (
    Approve,
    Limits,
    RunEvent,
    RunResult,
    RunStream,
    run_until_answer,
)
from palaver.conversation.step import Step, ToolOutcome
from palaver.conversation.usage import EditCost, ModelPrice, PricedEdit, Prices, Usage
from palaver.models import model
from palaver.tools import Tool, Toolbox, ToolContext, ToolOutput, tool
from palaver.tools.approval import Decision
from palaver.tools.runner import ToolLimits
from palaver.wire.reply import (
    CallDelta,
    CallReady,
    CallStarted,
    Failed,
    Finished,
    ReasoningDelta,
    TextDelta,
    UsageDelta,
)

__all__ = [
    "Approve",
    "CacheUse",
    "CallDelta",
    "CallReady",
    "CallStarted",
    "ClearOutputs",
    "Conversation",
    "Decision",
    "DeferredEdit",
    "DropOldest",
    "EditCost",
    "Failed",
    "Finished",
    "Limits",
    "ModelPrice",
    "PricedEdit",
    "Prices",
    "ReasoningDelta",
    "Recovered",
    "RunEvent",
    "RunResult",
    "RunStream",
    "Step",
    "Summarise",
    "TextDelta",
    "Tool",
    "ToolContext",
    "ToolLimits",
    "ToolOutcome",
    "ToolOutput",
    "Toolbox",
    "Usage",
    "UsageDelta",
    "auto_compact",
    "compact",
    "defer_compaction",
    "follow_events",
    "model",
    "run_until_answer",
    "tool",
]
