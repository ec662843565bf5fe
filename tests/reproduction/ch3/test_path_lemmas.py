"""Small cases of the lemmas: closed forms and the printed statements that they refute."""

import numpy as np
import pytest

from reproduction.ch3_bisection import lemmas as path_lemmas


def test_lemma_4_closed_form():
    # M = I, z = ones in 100 dimensions: a = (1 - lambda) ones, so F_.3(a_.6) - F*_.3 = 100 (.3)^2 / 2 and g differs by
    # 30.
    found = path_lemmas.lemma_4(0)
    assert found["suboptimality"] == pytest.approx(4.5) and found["corrected"] == pytest.approx(9.0)
    assert (
        found["printed"] == pytest.approx(10 * 0.3 * 0.7)
        and found["printed"] < found["suboptimality"] < found["corrected"]
    )
    assert (found["norm_ratio"], found["printed_ratio"]) == (100, 10)


def test_g_at_zero_needs_a_large_gram_matrix():
    small, large = path_lemmas.g_at_zero(3, 0.1), path_lemmas.g_at_zero(3, 3.0)
    assert small["smallest"] < 1 < large["smallest"]
    assert small["g"] > small["bound"] and large["g"] <= large["bound"]
    # g(0) goes as 1/factor, the bound as factor
    assert small["g"] / large["g"] == pytest.approx(30) and large["bound"] / small["bound"] == pytest.approx(30)


@pytest.mark.parametrize("seed", [0, 1])
def test_lemmas_that_hold(seed):
    assert path_lemmas.linear_between_knots(seed) < 1e-10
    assert path_lemmas.equivalence(seed) < 1e-8


def test_change_of_g_across_a_knot_of_orthonormal_columns():
    # M = I: a_i = (z_i - lambda)_+ and g = sum_i (z_i - lambda)_+ with knots at z; around the smallest knot, 2, three
    # others are active, so that over a width w lambda_max = 10 w g changes by (3 + 1/2) 10 w; g(0) = 23
    z = np.array([10.0, 7.0, 4.0, 2.0])
    widths = (1e-2, 1e-5)
    expected = [3.5 * 10 * width / 23 for width in widths]
    assert path_lemmas.jumps_at_knots(np.eye(4), z, widths) == pytest.approx(expected, rel=1e-5)


def test_smooth_part_rises_while_the_composite_falls():
    found = path_lemmas.proximal_gradient(0)
    assert found["smooth_rises"] > 0.01 and found["composite_rises"] < 1e-10
    assert found["rate"] <= found["bound"] < 1


def test_basis_pursuit_fits_and_the_ball_does_not():
    pytest.importorskip("cvxpy")
    found = path_lemmas.basis_pursuit(0)
    assert found["pursuit_residual"] < 1e-6 < found["ball_residual"]
    assert found["ball_norm"] == pytest.approx(0.5 * found["pursuit_norm"], rel=1e-6)


def test_projection_share_is_a_positive_number():
    assert 0 < path_lemmas.projection_share(50, 30, repeats=2) < np.inf
