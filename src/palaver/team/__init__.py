"""Teams: humans, models and programs in one conversation, one turn after the other.

`load_team` reads a team file, and `Coordinator` runs the team over a store.
"""

from __future__ import annotations

from palaver.team.config import (
    PROFILES,
    SCHEMA,
    CommandMember,
    Human,
    Member,
    ModelMember,
    Profile,
    Team,
    TeamLimits,
    load_team,
    read_team,
    schema,
)
from palaver.team.coordinator import Coordinator, HumanTurn
from palaver.team.routing import Route, TurnRequest, read_route
from palaver.team.state import TeamState, TeamTurn

__all__ = [
    "PROFILES",
    "SCHEMA",
    "CommandMember",
    "Coordinator",
    "Human",
    "HumanTurn",
    "Member",
    "ModelMember",
    "Profile",
    "Route",
    "Team",
    "TeamLimits",
    "TeamState",
    "TeamTurn",
    "TurnRequest",
    "load_team",
    "read_route",
    "read_team",
    "schema",
]
