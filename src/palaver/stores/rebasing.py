"""What an edit meant: the view it would have made, had nothing come in between.

That view is one side of the three-way merge that brings the edit in among what came meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from palaver.history.frame import Frame
from palaver.history.plan import carried_out
from palaver.history.view import View
from palaver.stores.log import StoredLog

if TYPE_CHECKING:
    from palaver.history.log import Log
    from palaver.history.plan import Plan
    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Head

__all__ = ["meant_by"]


def meant_by(plan: Plan, seen: View, keeper: Keeper, head: Head) -> View:
    """The view that a plan makes of another, on the log as it was then."""
    stored = StoredLog(keeper, head)
    log = cast("Log", stored)
    first = stored.extend(plan.messages)
    stored.note_origins({first + new: old for new, old in plan.origins})
    rope = carried_out(plan, seen.rope, first, log)
    end = len(stored)
    frame = Frame(root=rope, start=end, marks=seen.mark_ropes, team_task=seen.team_task)
    return View(log, frame, end, seen.version)
