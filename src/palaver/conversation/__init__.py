"""One step of a conversation: call a model, run tools, count tokens, survive a crash.

`Conversation` is the front door. It never decides to go on by itself: `run_until_answer` does, for
people without an engine.
"""

from __future__ import annotations

from palaver.conversation.compaction import ClearOutputs, DropOldest, Summarise, compact, compacting
from palaver.conversation.conversation import Conversation
from palaver.conversation.following import follow_events
from palaver.conversation.loop import run_until_answer
from palaver.conversation.models import model
from palaver.conversation.prices import Price, Prices
from palaver.conversation.recovery import Recovered
from palaver.conversation.running import Limits, Outcome
from palaver.conversation.steps import Step
from palaver.conversation.tools import Tool, Toolbox, ToolContext, ToolOutput, tool
from palaver.conversation.usage import Usage

__all__ = [
    "ClearOutputs",
    "Conversation",
    "DropOldest",
    "Limits",
    "Outcome",
    "Price",
    "Prices",
    "Recovered",
    "Step",
    "Summarise",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "Toolbox",
    "Usage",
    "compact",
    "compacting",
    "follow_events",
    "model",
    "run_until_answer",
    "tool",
]
