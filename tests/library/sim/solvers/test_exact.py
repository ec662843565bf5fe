"""Exact matching: closed forms, another formulation of the same problem, a certified gap, infeasible rows."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from implicit_models.sim.fit import fit_sim
from implicit_models.sim.network.scaling import scale_of
from implicit_models.sim.network.states import states
from implicit_models.sim.parallel.run import Parallel
from implicit_models.sim.problem import L1, Exact, NoPenalty, Perspective, Ridge
from implicit_models.sim.solvers.conic import exact_rows, orthonormal_equations
from implicit_models.sim.solvers.duality_gap import exact_dual_value


def _rows(M, Z, **options):
    return exact_rows(*orthonormal_equations(M, Z), **options)


def _data(m, d, r, seed=0, bound=0.8):
    """M (m, d) and Z = M A' with rows of A of l1 norm at most `bound`."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(r, d))
    A *= bound / np.abs(A).sum(1, keepdims=True)
    M = rng.normal(size=(m, d))
    return M, M @ A.T, A


def test_one_equation_by_hand():
    # a1 + 2 a2 = 1: least l1 puts all on a2; least squares is (1, 2)/5
    M, Z = np.array([[1.0, 2.0]]), np.array([[1.0]])
    l1 = _rows(M, Z, objective=L1(3.0))
    np.testing.assert_allclose(l1.A, [[0.0, 0.5]], atol=1e-7)
    np.testing.assert_allclose(_rows(M, Z, objective=Ridge()).A, [[0.2, 0.4]], atol=1e-7)
    assert l1.status.tolist() == ["optimal"] and abs(l1.gap[0]) < 1e-6
    # only a2 in a ball of .2: a1 = 1 - 2 x .2, and the multiplier prices it: 3 |a1| + 3 |a2| falls by 3 x 2 - 3 per
    # unit
    held = _rows(M, Z, objective=L1(3.0), kappa=0.2, ball_mask=np.array([False, True]))
    np.testing.assert_allclose(held.A, [[0.6, 0.2]], atol=1e-7)
    assert held.multiplier[0] == pytest.approx(3.0, abs=1e-5) and abs(held.gap[0]) < 1e-6


def test_perspective_beyond_the_knee_by_hand():
    # a = 2 alone: phi = alpha a^2 + eta above the knee sqrt(eta/alpha) = 1, 2 sqrt(alpha eta) |a| below
    above = _rows(np.eye(1), np.array([[2.0, 0.5]]), objective=Perspective(0.3, 0.3))
    np.testing.assert_allclose(above.A[:, 0], [2.0, 0.5], atol=1e-7)
    assert np.all(np.abs(above.gap) < 1e-6) and above.status.tolist() == ["optimal"] * 2


@given(seed=st.integers(0, 999), m=st.integers(1, 6), d=st.integers(7, 12))
@settings(deadline=None, max_examples=15)
def test_l1_agrees_with_a_linear_program(seed, m, d):
    M, Z, _ = _data(m, d, 2, seed)
    found = _rows(M, Z, objective=L1(0.7))
    for i in range(2):
        lp = scipy.optimize.linprog(np.full(2 * d, 0.7), A_eq=np.hstack([M, -M]), b_eq=Z[:, i])
        assert 0.7 * np.abs(found.A[i]).sum() == pytest.approx(
            lp.fun, rel=1e-6, abs=1e-7
        )  # a row of z may be nearly zero
    assert np.all(found.status == "optimal") and np.all(found.residual < 1e-7)
    assert np.all(found.gap >= -1e-9) and np.all(found.gap < 1e-6)


@pytest.mark.parametrize("objective", ["l1", "l2", "perspective", "none"])
@pytest.mark.parametrize("masked", [True, False])
def test_ball_and_gap_of_every_objective(objective, masked):
    M, Z, _ = _data(4, 9, 3)
    mask = np.arange(9) < 5 if masked else np.ones(9, dtype=bool)
    f = {"l1": L1(0.1), "l2": Ridge(0.02), "perspective": Perspective(0.02, 0.05), "none": NoPenalty()}[objective]
    free = _rows(M, Z, objective=f)
    kappa = 0.9 * np.abs(free.A[:, mask]).sum(1).max() if masked else 0.8
    found = _rows(M, Z, objective=f, kappa=kappa, ball_mask=mask)
    solved = found.status == "optimal"
    assert solved.sum() >= 2
    assert np.all(np.abs(found.A[solved][:, mask]).sum(1) <= kappa * (1 + 1e-6))
    np.testing.assert_allclose((M @ found.A[solved].T), Z[:, solved], atol=1e-6)
    assert np.all(found.gap[solved] >= -1e-7) and np.all(found.gap[solved] < 2e-6)
    for i in np.flatnonzero(solved):  # the same problem without the orthonormal basis, in one piece
        a, s, t = cp.Variable(9), cp.Variable(9), cp.Variable(9)
        cone = [cp.quad_over_lin(a[j], t[j]) <= s[j] for j in range(9)] + [t <= 1]
        f = {
            "l1": 0.1 * cp.norm1(a),
            "l2": 0.02 * cp.sum_squares(a),
            "none": cp.Constant(0.0),
            "perspective": 0.02 * cp.sum(s) + 0.05 * cp.sum(t),
        }[objective]
        problem = cp.Problem(
            cp.Minimize(f),
            [M @ a == Z[:, i], cp.norm1(a[mask]) <= kappa, *(cone if objective == "perspective" else [])],
        )
        want = problem.solve(solver="CLARABEL")
        x = np.abs(found.A[i])
        knee = np.sqrt(0.05 / 0.02)
        got = {
            "l1": 0.1 * x.sum(),
            "l2": 0.02 * (x**2).sum(),
            "none": 0.0,
            "perspective": np.where(x <= knee, 2 * np.sqrt(0.02 * 0.05) * x, 0.02 * x**2 + 0.05).sum(),
        }[objective]
        assert got == pytest.approx(want, rel=1e-5, abs=1e-7)


def test_gap_is_large_for_a_point_that_is_not_optimal():
    M, Z, A = _data(4, 9, 1)
    V, T, _ = orthonormal_equations(M, Z)
    rng = np.random.default_rng(0)
    mask = np.ones(9, dtype=bool)
    best = _rows(M, Z, objective=L1(0.1)).A[0]
    for f in (L1(0.1), Ridge(0.02), Perspective(0.02, 0.05), NoPenalty()):
        for _ in range(20):  # weak duality: no multiplier, however bad, exceeds the value of a feasible point
            y, mu = 10 * rng.normal(size=len(T[0])), abs(rng.normal())
            assert exact_dual_value(T[0], y, mu, V, mask, 0.8, f) <= f.value(A[0]) + 1e-12
    assert 0.1 * np.abs(A[0]).sum() > 0.1 * np.abs(best).sum() * 1.01


def test_infeasible_rows_say_so():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(12, 5))  # more samples than weights
    A = 0.1 * rng.normal(size=(3, 5))
    Z = M @ A.T
    Z[:, 1] += rng.normal(size=12)  # outside the range of M
    Z[0, 2] = np.nan
    found = _rows(M, Z, objective=L1(), kappa=np.abs(A).sum(1).max())
    assert found.status.tolist() == ["optimal", "infeasible", "not_finite"]
    np.testing.assert_allclose(found.A[0], A[0], atol=1e-8)
    assert np.isnan(found.A[1:]).all() and np.isnan(found.gap[1:]).all()
    tight = _rows(M, Z[:, :1], objective=L1(), kappa=0.9 * np.abs(A[0]).sum())
    assert tight.status.tolist() == ["infeasible"]


def test_redundant_and_zero_samples_change_nothing():
    M, Z, _ = _data(4, 9, 2)
    more = np.vstack([M, M[:2], np.zeros((1, 9)), M.sum(0, keepdims=True)])
    more_Z = np.vstack([Z, Z[:2], np.zeros((1, 2)), Z.sum(0, keepdims=True)])
    assert orthonormal_equations(more, more_Z).V.shape == (4, 9)
    np.testing.assert_allclose(_rows(more, more_Z, objective=Ridge()).A, _rows(M, Z, objective=Ridge()).A, atol=1e-7)


def test_zero_target_and_zeros_on_request():
    M, _, A = _data(5, 9, 1)
    A[0, 3:] = 0.0
    Z = np.hstack([M @ A.T, np.zeros((5, 1))])
    raw, cut = (_rows(M, Z, objective=L1(), exact=Exact(zero_below=z)) for z in (0.0, 1e-5))
    assert cut.status.tolist() == ["optimal"] * 2
    assert np.count_nonzero(cut.A[0]) < np.count_nonzero(raw.A[0]) == 9
    assert np.count_nonzero(cut.A[0]) <= 5  # a vertex of a linear program
    np.testing.assert_allclose(raw.A[1], 0.0, atol=1e-7)


def test_bad_arguments():
    with pytest.raises(ValueError, match="solver 'NO_SUCH' is not installed; cvxpy finds .*CLARABEL"):
        _rows(*_data(3, 5, 1)[:2], exact=Exact("NO_SUCH"))
    with pytest.raises(ValueError, match="zero_below must not be negative, got -1"):
        Exact(zero_below=-1.0)


def test_bad_matrices():
    with pytest.raises(ValueError, match=r"shapes \(3, 2\) and \(4, 1\)"):
        orthonormal_equations(np.ones((3, 2)), np.ones((4, 1)))
    M = np.ones((3, 2))
    M[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"\(2, 1\)"):
        orthonormal_equations(M, np.ones((3, 1)))


# ---------------------------------------------------------------- through fit_sim


def _network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize("scale", ["theorem", "uniform"])
def test_exact_fit_has_the_outputs_of_the_network(scale):
    net = _network()
    U = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    result = fit_sim(net, U, match=Exact(), scale=scale_of(states(net, U, dtype=torch.float64), scale, kappa=0.9))
    assert np.all(result.status == "optimal")  # in these units the network itself is feasible
    V = torch.randn(15, 6, generator=torch.Generator().manual_seed(2))
    net.double()
    np.testing.assert_allclose(
        result.predict(V), net(V.double()).detach().numpy(), atol=1e-6
    )  # more samples than weights: it is the network
    assert result.row_norms.max() <= 0.99 and result.model.certificate()


def test_exact_fit_of_few_samples_is_sparser_than_the_network_allows():
    net = _network()
    U = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    result = fit_sim(net, U, match=Exact(zero_below=1e-6))
    assert np.all(result.status == "optimal")
    np.testing.assert_allclose(result.predict(U), net.double()(U.double()).detach().numpy(), atol=1e-5)
    assert result.nnz <= 5 * 11 and result.objective == L1(1e-2) and result.matched == Exact(zero_below=1e-6)


def test_exact_fit_without_feedback():
    net = _network()
    V = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    result = fit_sim(net, V, objective=Ridge(), match=Exact(), feedback="strict_upper", kappa=5.0)
    assert np.all(result.status == "optimal") and result.A[:, :4].nnz == 0 and result.A[4:].nnz == 0
    np.testing.assert_allclose(result.predict(V), net.double()(V.double()).detach().numpy(), atol=1e-6)


def test_exact_fit_tells_infeasible_rows(tmp_path):
    net = _network()
    U = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    result = fit_sim(
        net, U, objective=Ridge(), match=Exact(), scale="theorem", kappa=0.3, parallel=Parallel(resume=tmp_path)
    )
    want = np.where(
        result.scale.s * 0.99 - 0.99 > 0.3 * result.scale.s, "infeasible", "optimal"
    )  # its row norms: .99 (1 - 1/s)
    assert (result.status[:9] == want).all() and "infeasible" in want and (result.status[9:] == "optimal").all()
    with pytest.raises(ValueError, match=r"rows have no values.*\(infeasible\)"):
        _ = result.model
    again = fit_sim(
        net, U, objective=Ridge(), match=Exact(), scale="theorem", kappa=0.3, parallel=Parallel(resume=tmp_path)
    )
    assert again.run.n_solved == 0
    np.testing.assert_array_equal(again.A.toarray(), result.A.toarray())
