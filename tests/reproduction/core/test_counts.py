"""What a study shows itself is not warned of; other warnings are."""

import warnings

import pytest

from implicit_models.sim.report import MoreParameters
from reproduction.core.counts import parameters_shown


@parameters_shown()
def study(warning):
    warnings.warn(warning, stacklevel=2)
    return 3


def test_only_the_count_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert study(MoreParameters("60 parameters, the network 5")) == 3
        with pytest.raises(UserWarning, match="another"):
            study(UserWarning("another"))
        with pytest.raises(MoreParameters):  # outside of it
            warnings.warn(MoreParameters("60 parameters, the network 5"), stacklevel=2)
