"""What is asked, by its definition: penalties and their conjugates by brute force, budgets in order."""

import numpy as np
import pytest

from implicit_models.sim.problem import (
    L1,
    Cardinality,
    Exact,
    L1Ball,
    L1Penalty,
    LeastSquares,
    NoPenalty,
    Perspective,
    Ridge,
    Tolerance,
    check_budgets,
    terms,
)

GRID = np.linspace(-40, 40, 400_001)


@pytest.mark.parametrize("penalty", [L1(0.7), Ridge(0.3), Perspective(0.3, 0.2), NoPenalty()], ids=lambda f: f.name)
def test_conjugates_are_suprema(penalty):
    values = np.array([penalty.value(np.array([x])) for x in GRID[::100]])
    for h in (0.0, 0.1, 0.5, 0.69, 0.9, 2.0):
        best, found = (h * GRID[::100] - values).max(), float(penalty.conjugate(np.array(h)))
        if np.isinf(found):  # the supremum is at the end of the grid, however far that is
            assert best == pytest.approx(h * 40 - values[-1]) and best > 0
        else:
            assert found == pytest.approx(best, abs=1e-3)


def test_values_by_hand():
    a = np.array([0.5, 0.0, -2.0])
    assert L1(0.3).value(a) == pytest.approx(0.75) and Ridge(0.3).value(a) == pytest.approx(0.3 * 4.25)
    # the knee is 1: 2 sqrt(.04) .5 below it, .2 4 + .2 beyond
    assert Perspective(0.2).eta == 0.2 and Perspective(0.2).value(a) == pytest.approx(0.2 + 1.0)
    assert NoPenalty().value(a) == 0 and terms(L1(0.3)) == {"beta": 0.3} and terms(NoPenalty()) == {}
    assert terms(LeastSquares(0.1, 0.2)) == {"lambda1": 0.1, "lambda2": 0.2}
    assert terms(Exact()) == {"solver": "CLARABEL", "zero_below": 0.0}


def test_budgets_ascend_with_the_model():
    for small, large in (
        (L1Ball(0.1), L1Ball(np.inf)),
        (L1Penalty(0.5), L1Penalty(0.0)),
        (Cardinality(0.1), Cardinality(1.0)),
    ):
        assert small.size < large.size
        check_budgets([small, large])
    for budgets, error in (([], ValueError), ([0.3], TypeError), ([L1Ball(1.0), Cardinality(1.0)], ValueError)):
        with pytest.raises(error):
            check_budgets(budgets)


def test_choices_are_values():
    assert L1Ball(1.0) == L1Ball(1.0) != Cardinality(1.0) and len({Tolerance(), Tolerance(1e-6, 1e-9)}) == 1
    with pytest.raises(AttributeError):
        L1(0.1).beta = 0.2


def test_a_solver_is_a_name():
    with pytest.raises(TypeError, match="solver must be the name of a solver that cvxpy finds, got 5"):
        Exact(solver=5)
