"""What an agent sees: the window, markers, budgets, the form of the prompt, and why.

`ContextManager` works out prompts over any history. `find_markers` and `strip_markers` read what
team members write in brackets. An assembler of your own is a function from `Sections` to
`AssemblerOutput`.
"""

from __future__ import annotations

from palaver.context.assemblers import (
    ASSEMBLERS,
    Assembler,
    AssemblerInput,
    AssemblerOutput,
    ContextMessage,
    Layout,
    Sections,
    indent,
    normalize_agent_type,
)
from palaver.context.explain import (
    ExplanationEntry,
    PromptComparison,
    PromptExplanation,
    PromptPart,
)
from palaver.context.manager import (
    MAX_BYTES,
    MAX_TEAM_TASK_BYTES,
    WINDOW,
    ContextManager,
    Prompt,
)
from palaver.context.markers import (
    Marker,
    clean_whitespace,
    find_markers,
    find_team_task,
    strip_markers,
)
from palaver.context.visibility import Visibility, format_addressees
from palaver.messages.message import fold_name

__all__ = [
    "ASSEMBLERS",
    "MAX_BYTES",
    "MAX_TEAM_TASK_BYTES",
    "WINDOW",
    "Assembler",
    "AssemblerInput",
    "AssemblerOutput",
    "ContextManager",
    "ContextMessage",
    "ExplanationEntry",
    "Layout",
    "Marker",
    "Prompt",
    "PromptComparison",
    "PromptExplanation",
    "PromptPart",
    "Sections",
    "Visibility",
    "clean_whitespace",
    "find_markers",
    "find_team_task",
    "fold_name",
    "format_addressees",
    "indent",
    "normalize_agent_type",
    "strip_markers",
]
