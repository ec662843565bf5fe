"""Profiles of a task: the sizes and budgets that "quick" and "full" stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def settings_of(profiles: Mapping[str, Mapping[str, Any]]) -> Callable[[str], dict[str, Any]]:
    """The function profile -> settings of a task, a fresh dictionary at every call.

    Args:
        profiles: name -> settings.

    Returns:
        A function that raises a ValueError for a profile that the task does not have, naming those that it has.
    """

    def settings(profile: str) -> dict[str, Any]:
        if profile not in profiles:
            raise ValueError(f"profile must be one of {', '.join(profiles)}; got {profile!r}")
        return dict(profiles[profile])

    return settings
