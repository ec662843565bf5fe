"""One vocabulary of outcomes and one policy on failure."""

import json
import pickle
import warnings

import numpy as np
import pytest
import torch

from implicit_models.equilibrium import convergence
from implicit_models.equilibrium.settings import SolverSettings
from implicit_models.robustness.checking import certificate_fields
from implicit_models.sim.fit import fit_sim
from implicit_models.sim.solvers import budget
from implicit_models.status import ON_FAILURE, SOLVES, Status, check_on_failure, is_certified, report


def test_members_are_the_words_they_stand_for():
    assert Status.NOT_FINITE == "not_finite" and f"{Status.FISTA}" == "fista" and Status("slack") is Status.SLACK
    assert repr({Status.OPTIMAL}) == "{'optimal'}"
    stored = np.full(3, Status.INACCURATE)
    assert stored.dtype.kind == "U" and (stored == "inaccurate").all() and (stored == Status.INACCURATE).all()
    assert json.dumps({Status.OPTIMAL: Status.SAFE}) == '{"optimal": "safe"}'
    assert pickle.loads(pickle.dumps(Status.EMPTY)) is Status.EMPTY
    assert all(word == word.name.lower() for word in Status)


def test_what_counts_as_certified():
    proved = {"optimal", "fista", "empty", "certified", "safe", "unsafe"}
    assert {word for word in Status if word.certified} == proved
    found = is_certified(np.array([["optimal", "inaccurate"], ["unknown", "safe"]]))
    assert found.tolist() == [[True, False], [False, True]]


def test_every_member_is_explained():
    text = Status.__doc__.split("Rows of state-driven models:")[1]
    assert [word for word in Status if f"{word.name}: " not in text] == []


def test_codes_of_kernels_stand_for_words():
    names = ("CONVERGED", "MAX_ITER", "DIVERGED", "NOT_FINITE", "SINGULAR")
    assert [SOLVES[getattr(convergence, name)] for name in names] == [Status[name] for name in names]
    assert set(convergence.STATUS_TEXT) == set(range(len(SOLVES)))
    assert all(isinstance(word, Status) for word in budget.REASONS)
    assert budget.REASONS[budget.SATURATED] == Status.SATURATED and budget.REASONS[budget.EMPTY] == Status.EMPTY
    assert set(certificate_fields.STATUSES) <= set(Status)  # the checker says its words anew


@pytest.mark.parametrize("wrong", ["pass", None, 1, ["warn"]])
def test_a_policy_that_is_none_is_refused_wherever_it_is_given(wrong):
    with pytest.raises(ValueError, match="unknown on_failure .*; choose one of warn, raise, ignore"):
        check_on_failure(wrong)
    with pytest.raises(ValueError, match="unknown on_failure"):
        SolverSettings(on_failure=wrong)
    with pytest.raises(ValueError, match="unknown on_failure"):
        fit_sim(torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.zeros(3, 2), on_failure=wrong)


def test_a_failure_is_warned_of_raised_or_silent():
    assert ON_FAILURE == ("warn", "raise", "ignore")
    failure = convergence.NotConverged("it did not")
    with pytest.warns(convergence.NotConverged, match="it did not") as seen:
        report(failure, "warn")
    assert seen[0].filename == __file__
    with pytest.raises(convergence.NotConverged, match="it did not"):
        report(failure, "raise")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report(failure, "ignore")
