"""What an agent sees: the window, markers, budgets, the form of the prompt, and why.

`ContextManager` is the front door, over any history. `strip_markers` and `find_markers` read what
team members write in brackets; an assembler of your own is a function from `Sections` to
`AssemblerOutput`.
"""

from __future__ import annotations

from palaver.context.assemblers import (
    ASSEMBLERS,
    Assembler,
    Layout,
    indented,
    normalize_agent_type,
)
from palaver.context.explaining import Comparison, Entry, Explanation, Part
from palaver.context.face import MAX_BYTES, MAX_TEAM_TASK_BYTES, WINDOW, ContextManager
from palaver.context.markers import (
    Marker,
    clean_whitespace,
    find_markers,
    strip_markers,
    team_task_in,
)
from palaver.context.names import addressees_text, fold_name
from palaver.context.prompts import Prompt
from palaver.context.sections import AssemblerInput, AssemblerOutput, ContextMessage, Sections
from palaver.context.sight import Visibility

__all__ = [
    "ASSEMBLERS",
    "MAX_BYTES",
    "MAX_TEAM_TASK_BYTES",
    "WINDOW",
    "Assembler",
    "AssemblerInput",
    "AssemblerOutput",
    "Comparison",
    "ContextManager",
    "ContextMessage",
    "Entry",
    "Explanation",
    "Layout",
    "Marker",
    "Part",
    "Prompt",
    "Sections",
    "Visibility",
    "addressees_text",
    "clean_whitespace",
    "find_markers",
    "fold_name",
    "indented",
    "normalize_agent_type",
    "strip_markers",
    "team_task_in",
]
