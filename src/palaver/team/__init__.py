"""A team at work: humans, models and programs in one conversation, one turn after the other.

`load_team` reads a team file, `Coordinator` runs the team over a store.
"""

from __future__ import annotations

from palaver.team.coordinator import Coordinator, Floor
from palaver.team.profiles import PROFILES, Profile
from palaver.team.reading import load_team, read_team
from palaver.team.roster import Command, Human, Limits, Member, ModelMember, Team
from palaver.team.routing import Call, Route, read_route
from palaver.team.schema import SCHEMA, schema
from palaver.team.state import State, Turn

__all__ = [
    "PROFILES",
    "SCHEMA",
    "Call",
    "Command",
    "Coordinator",
    "Floor",
    "Human",
    "Limits",
    "Member",
    "ModelMember",
    "Profile",
    "Route",
    "State",
    "Team",
    "Turn",
    "load_team",
    "read_route",
    "read_team",
    "schema",
]
