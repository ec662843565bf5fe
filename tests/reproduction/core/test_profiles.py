"""Settings of a profile are a copy, and an unknown profile is refused by name."""

import pytest

from reproduction.core.profiles import settings_of


def test_settings_are_a_fresh_copy_and_unknown_profiles_are_named():
    settings = settings_of({"quick": {"epochs": 1}, "full": {"epochs": 9}})
    settings("quick")["epochs"] = 5
    assert settings("quick") == {"epochs": 1} and settings("full") == {"epochs": 9}
    with pytest.raises(ValueError, match="profile must be one of quick, full; got 'fast'"):
        settings("fast")
