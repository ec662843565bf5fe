"""The elastic net and unfinished rows against small problems that are solved by hand or by another solver."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction.ch3_elimination.elastic import WEIGHTS, gains, unfinished


def problem(seed: int, m: int = 60, d: int = 12, rows: int = 4):
    rng = np.random.default_rng(seed)
    M, Z = rng.normal(size=(m, d)), rng.normal(size=(m, rows))
    return M.T @ M, Z.T @ M, (Z**2).sum(axis=0)


@pytest.mark.parametrize("seed", [0, 1])
def test_what_the_dual_proves_is_zero_in_the_solution_of_another_solver(seed):
    cp = pytest.importorskip("cvxpy")
    G, C, zz = problem(seed)
    used = []
    for c, square in zip(C, zz, strict=True):
        a = cp.Variable(len(G))
        value = 0.5 * cp.quad_form(a, cp.psd_wrap(G)) - c @ a + 0.5 * square
        cp.Problem(cp.Minimize(value), [cp.norm1(a) <= 0.2]).solve(solver="CLARABEL")
        used.append(np.abs(a.value) > 1e-6)
    zeros = int((~np.array(used)).sum())
    few, many = unfinished(G, C, zz, kappa=0.2, steps=(2, 3000))
    # at the end every zero of these well-conditioned rows is proved, and none besides
    assert many["dual_share"] == 100 and many["gap"] < 1e-9 and zeros > 0
    assert few["dual_wrong"] == many["dual_wrong"] == many["primal_wrong"] == 0
    assert few["dual_share"] < 100 and few["gap"] > many["gap"]


def test_a_row_with_one_column_needs_one_step():
    # min 1/2 (2 a - z)^2 over |a| <= .5 with z = 8 is a = .5, where the constraint is active: no zero, no proof
    (found,) = unfinished(np.array([[4.0]]), np.array([[16.0]]), np.array([64.0]), kappa=0.5, steps=(50,))
    assert found["primal_wrong"] == found["dual_wrong"] == found["dual_only"] == 0 and found["gap"] < 1e-12


def fit(accuracy, held_out, used):
    return {
        "accuracy": accuracy,
        "head": accuracy,
        "accuracy_held_out": held_out,
        "head_held_out": held_out,
        "used": used,
    }


def test_images_held_out_choose_the_weight_and_counts_the_lasso():
    assert len(WEIGHTS) == 3
    fits = [fit(70, 70, 100), fit(80, 75, 150), fit(78, 76, 210), fit(74, 0, 140), fit(77, 0, 200)]
    found = gains(fits)
    # the second weight is chosen although the first is better on the test images; 200 is nearest to its 210
    assert found["gain_accuracy"] == 8 and found["equal_accuracy"] == 1
    assert found["used_head"] == 210 and found["equal_used_head"] == 200
