"""Hypothesis profiles, chosen with HYPOTHESIS_PROFILE; `repeatable` unless said otherwise."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.faults.summary import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]  # a hook, found here by pytest

settings.register_profile(
    "repeatable",  # the same examples every time, so that a red run is red again
    derandomize=True,
    print_blob=True,
    deadline=None,
)
settings.register_profile("explore", print_blob=True, deadline=None)
settings.register_profile(
    "faults",
    max_examples=20_000,
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
