"""Fitted rows against the papers' problems solved as printed; units, counts, chunks, faulty data, memory."""

import re
import tracemalloc
import warnings

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from implicit_models import ImplicitModel
from implicit_models.sim import fit as module
from implicit_models.sim.fit import RowsNotCertified, fit_sim
from implicit_models.sim.network.normal_equations import row_problem
from implicit_models.sim.network.scaling import scale_of
from implicit_models.sim.network.states import States, states
from implicit_models.sim.network.teacher import teacher_matrices
from implicit_models.sim.parallel.run import Parallel
from implicit_models.sim.problem import L1, LeastSquares, NoPenalty, Perspective, Ridge, Tolerance
from implicit_models.sim.report import MoreParameters
from implicit_models.sim.result import nonzero_parameters
from implicit_models.sim.solvers.duality_gap import duality_gap


def _mlp(*sizes, seed=0, activation=nn.ReLU, bias=True):
    torch.manual_seed(seed)
    layers = []
    for k, (i, o) in enumerate(zip(sizes[:-1], sizes[1:])):
        layers += [nn.Linear(i, o, bias=bias)] + ([activation()] if k < len(sizes) - 2 else [])
    return nn.Sequential(*layers)


def _inputs(m, *shape, seed=1):
    return torch.randn(m, *shape, generator=torch.Generator().manual_seed(seed))


def penalty(name, alpha=1e-3, beta=1e-2, eta=None):
    return {"l1": L1(beta), "l2": Ridge(alpha), "perspective": Perspective(alpha, eta), "none": NoPenalty()}[name]


NET, U = _mlp(6, 5, 4, 3), _inputs(60, 6)


def _rows(result):
    """A', B', b rows and C', D, d rows in scaled units, (r, d)."""
    s = result.scale.s
    A, B, C, D = (M.toarray() for M in (result.A, result.B, result.C, result.D))
    top = np.hstack([A * s / s[:, None], B / s[:, None], (result.b / s)[:, None]])
    return np.vstack([top, np.hstack([C * s, D, result.d[:, None]])])


def _as_printed(M, z, lam, objective, alpha, beta, eta, kappa, n):
    """lambda ||z - M a||^2 + f(a) and, for kappa not None, ||a[:n]||_1 <= kappa, by cvxpy; the optimal value."""
    a, s, t = (cp.Variable(M.shape[1]) for _ in range(3))
    cone = (
        [cp.quad_over_lin(a[j], t[j]) <= s[j] for j in range(M.shape[1])] + [t <= 1]
        if objective == "perspective"
        else []
    )
    f = {
        "l1": beta * cp.norm1(a),
        "l2": alpha * cp.sum_squares(a),
        "none": cp.Constant(0.0),
        "perspective": alpha * cp.sum(s) + eta * cp.sum(t),
    }[objective]
    ball = [] if kappa is None else [cp.norm1(a[:n]) <= kappa]
    return cp.Problem(cp.Minimize(lam * cp.sum_squares(M @ a - z) + f), cone + ball).solve(solver="CLARABEL")


def _value(M, z, a, lam, objective, alpha, beta, eta):
    x = np.abs(a)
    f = {
        "l1": beta * x.sum(),
        "l2": alpha * (x**2).sum(),
        "none": 0.0,
        "perspective": np.where(x <= np.sqrt(eta / alpha), 2 * np.sqrt(alpha * eta) * x, alpha * x**2 + eta).sum(),
    }[objective]
    return lam * ((M @ a - z) ** 2).sum() + f


# ---------------------------------------------------------------- the papers' problem


@pytest.mark.parametrize("objective", ["l1", "l2", "perspective", "none"])
@pytest.mark.parametrize(("scale", "kappa"), [("theorem", 0.5), ("std", 0.99), ("none", 0.2)])
def test_rows_solve_the_printed_problem(objective, scale, kappa):
    weights = {"alpha": 0.02, "beta": 0.03, "eta": 0.002}
    result = fit_sim(
        NET,
        U,
        objective=penalty(objective, **weights),
        match=LeastSquares(0.3, 0.7),
        kappa=kappa,
        scale=scale,
        tolerance=Tolerance(1e-9, 1e-12),
    )
    assert not result.failed_rows.size and (objective == "perspective" or np.all(result.status == "optimal"))
    found, s, rows = result.states, result.scale.s, _rows(result)
    M = np.hstack([found.X / s, found.U, np.ones((60, 1))]).astype(float)
    T = np.hstack([found.Z / s, found.Y]).astype(float)
    for i in (0, 3, 8, 9, 11):
        lam, ball = (0.3, kappa) if i < 9 else (0.7, None)
        want = _as_printed(M, T[:, i], lam, objective, kappa=ball, n=9, **weights)
        assert _value(M, T[:, i], rows[i], lam, objective, **weights) == pytest.approx(want, rel=1e-6, abs=1e-7)
        assert ball is None or np.abs(rows[i, :9]).sum() <= kappa * (1 + 1e-9)
    np.testing.assert_allclose(result.row_norms, np.abs(rows[:9, :9]).sum(1), atol=1e-12)


def test_row_weights_are_the_printed_ones_over_twice_lambda():
    assert L1(0.01).row_weights(0.1) == {"beta": pytest.approx(0.05)}
    assert Ridge(0.01).row_weights(0.1) == {"ridge": pytest.approx(0.1)}  # ridge/2 ||a||^2
    assert Perspective(0.01, 0.02).row_weights(0.1) == {"alpha": pytest.approx(0.05), "eta": pytest.approx(0.1)}
    assert NoPenalty().row_weights(0.1) == {}


def test_a_perspective_without_a_price_is_ridge():
    """SIM paper (5) and (10) print eta = 0."""
    ridge, perspective = (fit_sim(NET, U, objective=f, scale="std") for f in (Ridge(0.02), Perspective(0.02, 0.0)))
    np.testing.assert_allclose(perspective.A.toarray(), ridge.A.toarray(), atol=1e-9)


def test_without_penalty_the_network_itself_is_found():
    net = _mlp(6, 5, 4, 3, seed=8).double()  # every state is active on some samples and at rest on others
    result = fit_sim(
        net, _inputs(200, 6), objective=NoPenalty(), scale="theorem", kappa=0.99, tolerance=Tolerance(1e-12, 1e-15)
    )
    t = teacher_matrices(result.states)  # 200 samples determine all weights, and the network lies in the ball
    for mine, theirs in zip((result.A, result.B, result.C, result.D), t[:4]):
        np.testing.assert_allclose(mine.toarray(), theirs.toarray(), atol=1e-5)
    np.testing.assert_allclose(result.b, t.b, atol=1e-5)
    V = _inputs(20, 6, seed=5)
    np.testing.assert_allclose(result.predict(V), net(V.double()).detach().numpy(), atol=1e-4)
    assert result.matching.max() < 1e-5


@pytest.mark.parametrize(
    ("objective", "scale", "kappa"), [("l1", "std", 2.0), ("none", "theorem", 0.99), ("perspective", "std", 0.7)]
)
def test_strict_upper_rows_use_earlier_layers_only(objective, scale, kappa, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ROWS", (3, 3))
    weights = {"alpha": 0.02, "beta": 0.03, "eta": 0.002}
    result = fit_sim(
        NET,
        U,
        objective=penalty(objective, **weights),
        kappa=kappa,
        scale=scale,
        feedback="strict_upper",
        tolerance=Tolerance(1e-9, 1e-12),
    )
    assert result.run.n_chunks == 2 + 2 + 1  # layers of 4 and 5 states, 3 outputs: no chunk holds two kinds
    A = result.A.toarray()
    assert np.all(A[:, :4] == 0) and np.all(A[4:] == 0) and np.any(A[:4, 4:] != 0)
    assert result.C[:, :4].nnz and result.model.certificate()  # triangular: well-posed for every kappa
    found, s, rows = result.states, result.scale.s, _rows(result)
    M = np.hstack([found.X / s, found.U, np.ones((60, 1))]).astype(float)
    T = np.hstack([found.Z / s, found.Y]).astype(float)
    for i, first, n in ((0, 4, 5), (3, 4, 5), (6, 9, 0), (10, 0, None)):
        ball = kappa if n else None
        want = _as_printed(M[:, first:], T[:, i], 0.1, objective, kappa=ball, n=n, **weights)
        assert _value(M, T[:, i], rows[i], 0.1, objective, **weights) == pytest.approx(want, rel=1e-6, abs=1e-7)


def test_rows_that_copy_their_own_state_match_the_states_and_lose_the_outputs():
    net, V = _mlp(6, 5, 4, 3, seed=8).double(), _inputs(300, 6)
    with torch.no_grad():
        net[0].bias.fill_(4.0)
        net[2].bias.fill_(4.0)  # all states active: z = x
    found, want = states(net, V), net(V.double()).detach().numpy()
    upper, full = (fit_sim(found, objective=L1(0.1), scale="std", feedback=f) for f in ("strict_upper", "full"))
    assert full.matching[:9].max() < 0.005 and upper.matching[:9].max() < 0.005
    assert (
        np.median(full.A.toarray().diagonal()) > 0.9
    )  # I - A is nearly singular: what little the rows miss is amplified
    error = [np.abs(r.predict(V) - want).max() / np.abs(want - want.mean(0)).max() for r in (upper, full)]
    assert error[0] < 0.05 and error[1] > 5 * error[0]


def test_strict_upper_needs_layers():
    teacher = ImplicitModel(4, 2, 6, seed=0)
    with pytest.raises(ValueError, match="needs layers"):
        fit_sim(teacher, _inputs(20, 4), scale="std", feedback="strict_upper")


@given(
    sizes=st.lists(st.integers(1, 6), min_size=3, max_size=5),
    seed=st.integers(0, 999),
    m=st.integers(1, 30),
    kappa=st.floats(0.05, 0.99),
    scale=st.sampled_from(["theorem", "std", "uniform", "none"]),
    objective=st.sampled_from(["l1", "l2", "none"]),
)
@settings(deadline=None, max_examples=25)
def test_every_fit_is_certified_and_well_posed(sizes, seed, m, kappa, scale, objective):
    result = fit_sim(
        _mlp(*sizes, seed=seed), _inputs(m, sizes[0], seed=seed), objective=penalty(objective), kappa=kappa, scale=scale
    )
    assert np.all(np.isin(result.status, ["optimal", "fista"]))
    assert result.row_norms.max() <= kappa * (1 + 1e-9)
    proof = result.model.certificate()
    assert proof and (proof.kind != "pf" or proof.lambda_pf <= kappa * (1 + 1e-6))
    problem, n = row_problem(result.states).scaled(result.scale.s), result.states.n_states
    rows, weights = _rows(result), penalty(objective).row_weights(0.1)
    for part, mask in ((slice(0, n), problem.in_ball("state")), (slice(n, None), np.zeros(problem.G.shape[0], bool))):
        data = problem.G, problem.C[part], problem.zz[part], rows[part]
        gap, _ = duality_gap(*data, kappa=kappa, ball_mask=mask, **weights)
        assert np.all(gap <= 2e-6 * problem.zz[part] + 1e-15)


# ---------------------------------------------------------------- units and counts


def test_model_is_sparse_and_reproduces_the_rows():
    result = fit_sim(NET, U, objective=L1(0.3))
    for name in "ABCD":
        M, kept = getattr(result.model, name), getattr(result, name)
        assert M.layout is torch.sparse_csr and M.dtype == torch.float64
        assert M.values().numel() == kept.nnz == np.count_nonzero(kept.toarray())
    x, u = result.states.X[:7].astype(float), result.states.U[:7].astype(float)
    y = x @ result.C.T.toarray() + u @ result.D.T.toarray() + result.d
    assert np.abs(y - result.states.Y[:7]).max() < 2
    want = np.zeros((7, 9))
    for _ in range(300):  # the model's own equilibrium, by hand
        want = np.maximum(want @ result.A.T.toarray() + u @ result.B.T.toarray() + result.b, 0)
    want = want @ result.C.T.toarray() + u @ result.D.T.toarray() + result.d
    np.testing.assert_allclose(result.predict(U[:7]), want, atol=1e-5)
    np.testing.assert_array_equal(result.predict(U, batch_size=7).shape, (60, 3))


def test_counts_and_sparsity():
    result = fit_sim(NET, U, objective=L1(0.3))
    by_hand = sum(np.count_nonzero(M.toarray()) for M in (result.A, result.B, result.C, result.D))
    by_hand += np.count_nonzero(result.b) + np.count_nonzero(result.d)
    parameters = 6 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3
    assert result.nnz == by_hand and result.full_matrix == 12 * 16 and nonzero_parameters(NET) == parameters
    assert result.sparsity_of_parameters == 1 - by_hand / parameters
    # nothing is shared in a fully connected network
    assert result.sparsity_of_entries == result.sparsity_of_parameters
    assert result.sparsity_of_full_matrix == 1 - by_hand / (12 * 16)
    with pytest.warns(MoreParameters, match=rf"non-zero parameters, the network {parameters}"):
        dense = fit_sim(NET, U, objective=Ridge())
    # the papers' count goes below zero: a dense row reads every state and input
    assert dense.sparsity_of_parameters < -1
    alone = fit_sim(States.from_arrays(*(getattr(result.states, k) for k in "XZUY")), scale="std")
    for name in ("sparsity_of_parameters", "sparsity_of_entries"):
        with pytest.raises(ValueError, match="no network is known"):
            getattr(alone, name)
    assert "sparsity of" not in alone.report() and alone.sparsity_of_full_matrix < 1


def test_parameters_that_are_zero_do_not_count():
    net = _mlp(6, 5, 3)
    with torch.no_grad():
        net[0].weight[0] = 0
    assert nonzero_parameters(net) == 6 * 5 - 6 + 5 + 5 * 3 + 3
    result = fit_sim(net, U)
    assert nonzero_parameters(result.model) == result.nnz  # sparse matrices of a model count as well


def test_scaled_problem_is_that_of_scaled_states():
    found = states(NET, U)
    s = np.linspace(0.01, 50, 9)
    mine = row_problem(found).scaled(s)
    other = row_problem(States.from_arrays(found.X / s, found.Z / s, found.U.astype(float), found.Y.astype(float)))
    for name in ("G", "C", "zz"):
        np.testing.assert_allclose(getattr(mine, name), getattr(other, name), rtol=1e-12, atol=1e-12)
    for unit in ("1e[+]200", "1e-200"):
        with pytest.raises(ValueError, match=f"state 2, {unit}, takes its sum of squares out"):
            row_problem(found).scaled(np.where(np.arange(9) == 2, float(unit.replace("[+]", "+")), 1.0))


def test_matching_is_the_relative_error_of_every_row():
    result = fit_sim(NET, U, objective=L1(0.1))
    s = result.states
    Z = s.X @ result.A.T.toarray() + s.U @ result.B.T.toarray() + result.b
    Y = s.X @ result.C.T.toarray() + s.U @ result.D.T.toarray() + result.d
    want = [np.linalg.norm(a - b, axis=0) / np.linalg.norm(b, axis=0) for a, b in ((Z, s.Z), (Y, s.Y))]
    np.testing.assert_allclose(result.matching, np.concatenate(want), rtol=1e-6)


def test_report_says_scale_certificate_and_counts():
    result = fit_sim(NET, U, scale="std")
    text = result.report()
    for part in (
        "objective l1",
        "beta 0.01",
        "kappa 0.99",
        "standard deviation",
        "9 state rows, 3 output rows",
        "12 optimal",
        "well-posed",
    ):
        assert part in text
    assert f"non-zeros {result.nnz} of 192" in text and f"{100 * result.sparsity_of_parameters:.1f} %" in text
    assert set(result.timing) == {"states", "gram", "scale", "set-up", "rows", "start-up"}


# ---------------------------------------------------------------- networks


def test_tanh_network_fits_in_any_units():
    net = _mlp(6, 5, 3, activation=nn.Tanh).double()
    result = fit_sim(
        net, _inputs(100, 6), objective=NoPenalty(), scale="std", kappa=0.9, tolerance=Tolerance(1e-10, 1e-13)
    )
    np.testing.assert_allclose(result.predict(_inputs(9, 6)), net(_inputs(9, 6).double()).detach().numpy(), atol=1e-3)
    assert result.model.certificate()


def test_convolutions_with_batch_norm():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.BatchNorm2d(2),
        nn.ReLU(),
        nn.Conv2d(2, 2, 2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(2, 3),
    )
    net[1].running_mean.normal_()
    V = _inputs(150, 1, 4, 4)
    net.train()
    result = fit_sim(net, V, objective=NoPenalty(), scale="theorem", tolerance=Tolerance(1e-10, 1e-13))
    assert net.training and result.states.blocks[1].shape == (2, 2, 2)
    np.testing.assert_allclose(result.predict(V), net.eval()(V).detach().numpy(), atol=1e-3)
    assert result.sparsity_of_entries != result.sparsity_of_parameters  # shared weights


def test_implicit_model_as_the_teacher():
    teacher = ImplicitModel(4, 2, 6, kappa=0.7, bias=True, tol=1e-10, seed=0).double()
    V = _inputs(120, 4).double()
    result = fit_sim(teacher, V, objective=NoPenalty(), scale="none", kappa=0.7, tolerance=Tolerance(1e-10, 1e-14))
    np.testing.assert_allclose(result.predict(V), teacher(V).detach().numpy(), atol=1e-4)


# ---------------------------------------------------------------- chunks, backends, resuming


def _equal(a, b):
    for name in "ABCD":
        np.testing.assert_array_equal(getattr(a, name).toarray(), getattr(b, name).toarray())
    for name in ("b", "d", "gap", "multiplier", "n_steps", "status"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("objective", ["l1", "none", "perspective"])
def test_rows_do_not_depend_on_chunks_or_backend(objective, monkeypatch):
    found, whole = states(NET, U), fit_sim(states(NET, U), objective=penalty(objective))
    monkeypatch.setattr(module, "CHUNK_ROWS", (4, 4))
    one = fit_sim(found, objective=penalty(objective))
    assert one.run.n_chunks == 4 and one.run.backend == "serial"  # rows 0-3, 4-7, 8 of the states, three outputs
    for backend in ("threads", "processes"):
        parallel = Parallel(backend, workers=2)
        _equal(one, fit_sim(found, objective=penalty(objective), parallel=parallel))
        with monkeypatch.context() as usual:
            usual.setattr(module, "CHUNK_ROWS", (16, 256))
            _equal(whole, fit_sim(found, objective=penalty(objective), parallel=parallel))
    for size in (1, 100):  # products of another shape round differently, that is all
        monkeypatch.setattr(module, "CHUNK_ROWS", (size, size))
        other = fit_sim(found, objective=penalty(objective))
        np.testing.assert_allclose(_rows(other), _rows(one), rtol=1e-6, atol=1e-8)
        assert other.run.n_chunks == (12 if size == 1 else 2)


def test_resume_through_fit(tmp_path, monkeypatch):
    found = states(NET, U)
    monkeypatch.setattr(module, "CHUNK_ROWS", (3, 3))
    first = fit_sim(found, parallel=Parallel(resume=tmp_path))
    monkeypatch.setattr(module, "CHUNK_ROWS", (16, 256))
    files = sorted(tmp_path.glob("rows-*.npz"))
    assert len(files) == 4
    files[1].unlink()
    again = fit_sim(found, parallel=Parallel("threads", workers=2, resume=tmp_path))  # in the chunks of the first run
    _equal(first, again)
    assert again.run.solved == [(3, 6)] and again.run.n_loaded == 3
    for change in (
        {"kappa": 0.5},
        {"objective": L1(0.02)},
        {"scale": "std"},
        {"objective": Ridge()},
        {"tolerance": Tolerance(1e-8)},
        {"match": LeastSquares(0.1, 0.2)},
    ):
        with pytest.raises(ValueError, match="another problem"):
            fit_sim(found, parallel=Parallel(resume=tmp_path), **change)
    with pytest.raises(ValueError, match="another problem"):
        fit_sim(NET, U[:59], parallel=Parallel(resume=tmp_path))


def test_states_are_reduced_once_for_a_sweep():
    found = states(NET, U)
    problem = row_problem(found)
    for kappa in (0.1, 0.5):
        assert fit_sim(found, kappa=kappa).states is found
    assert row_problem(found) is problem
    assert row_problem(found.take(slice(0, 30))) is not problem


# ---------------------------------------------------------------- faulty data


def _arrays(seed=0, m=40):
    rng = np.random.default_rng(seed)
    X, V = np.maximum(rng.normal(size=(m, 5)), 0), rng.normal(size=(m, 3))
    return {"X": X, "Z": rng.normal(size=(m, 5)), "U": V, "Y": rng.normal(size=(m, 2))}


@pytest.mark.parametrize("objective", ["l1", "perspective"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_costs_its_row_only(bad, objective, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ROWS", (4, 4))
    clean = _arrays()
    faulty = {k: v.copy() for k, v in clean.items()}
    faulty["Z"][7, 2], faulty["Y"][3, 1] = bad, bad
    options = {"objective": penalty(objective), "scale": "std"}
    whole = fit_sim(States.from_arrays(**clean), **options)
    with pytest.warns(
        RowsNotCertified, match=r"2 of 7 rows are not certified: row 2 \(not_finite, gap nan\), 6"
    ) as caught:
        part = fit_sim(States.from_arrays(**faulty), **options)
    assert caught[0].message.rows == (2, 6)
    with pytest.raises(RowsNotCertified):
        fit_sim(States.from_arrays(**faulty), on_failure="raise", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_sim(States.from_arrays(**faulty), on_failure="ignore", **options)
    assert part.status[[2, 6]].tolist() == ["not_finite"] * 2 and part.failed_rows.tolist() == [2, 6]
    keep = np.array([0, 1, 3, 4, 5])
    np.testing.assert_array_equal(part.A.toarray()[keep[:-1]], whole.A.toarray()[keep[:-1]])
    np.testing.assert_array_equal(part.C.toarray()[0], whole.C.toarray()[0])
    np.testing.assert_array_equal(part.gap[keep], whole.gap[keep])
    assert np.isnan(part.A.toarray()[2]).all() and np.isnan(part.b[2]) and np.isnan(part.gap[2])
    with pytest.raises(ValueError, match=re.escape("2 rows have no values, the first is row 2 (not_finite)")):
        _ = part.model
    assert "2 not_finite" in part.report()


@pytest.mark.parametrize(
    ("name", "text"), [("X", "X, state 4 is nan in sample 9"), ("U", "U, input 1 is nan in sample 9")]
)
def test_a_column_that_every_row_reads_must_be_finite(name, text):
    arrays = _arrays()
    arrays[name][9, 4 if name == "X" else 1] = np.nan
    with pytest.raises(ValueError, match=text):
        row_problem(States.from_arrays(**arrays), samples_a_pass=4)
    with pytest.raises(ValueError, match=text):
        fit_sim(States.from_arrays(**arrays), scale="std")


def test_dead_layer_and_constant_targets():
    net = _mlp(6, 5, 4, 3)
    with torch.no_grad():
        net[2].bias.fill_(-1e3)  # the second layer is dead: its states are zero, its pre-activations are not
    result = fit_sim(net, U, scale="std")
    assert np.all(result.status == "optimal") and (result.states.X[:, :4] == 0).all()
    assert result.A[:, :4].nnz == 0 and result.C[:, :4].nnz == 0  # a column of zeros gets no weight
    arrays = _arrays()
    arrays["Z"][:, 1] = 0.0
    arrays["X"][:, 1] = 0.0
    flat = fit_sim(States.from_arrays(**arrays), scale="std")
    assert flat.status[1] == "optimal" and flat.A[[1]].nnz == 0 and flat.b[1] == 0 and flat.matching[1] == 0


def test_single_precision_states_are_those_values_in_double():
    found = states(NET, U)
    wide = States.from_arrays(*(getattr(found, k).astype(np.float64) for k in "XZUY"))
    assert found.X.dtype == np.float32 and wide.X.dtype == np.float64
    single, double = fit_sim(found, scale="std"), fit_sim(wide, scale="std")
    assert np.all(single.status == "optimal") and single.A.nnz > 0 and single.A.dtype == np.float64
    for name in "ABCD":
        assert np.array_equal(getattr(single, name).toarray(), getattr(double, name).toarray()), name
    _equal(single, double)


# ---------------------------------------------------------------- memory


def test_memory_does_not_grow_with_the_samples(tmp_path):
    peaks = []
    for m in (8_000, 32_000):
        V = np.lib.format.open_memmap(tmp_path / f"U{m}.npy", mode="w+", dtype=np.float32, shape=(m, 100))
        for at in range(0, m, 1000):
            V[at : at + 1000] = np.random.default_rng(at).normal(size=(1000, 100))
        V.flush()
        del V
        V = np.load(tmp_path / f"U{m}.npy", mmap_mode="r")
        net = _mlp(100, 20, 10, 5)
        fit_sim(net, np.asarray(V[:50]))  # compilation apart
        tracemalloc.start()
        found = states(net, V, memory_budget=1, folder=tmp_path / f"s{m}")
        fit_sim(found, scale="std", kappa=0.3)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    whole = 32_000 * 131 * 8  # the matrix M in float64
    assert peaks[1] < 1.1 * peaks[0] and peaks[1] < whole / 2


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        (
            {"objective": "l1"},
            TypeError,
            r"must be L1\(...\), Ridge\(...\), Perspective\(...\) or NoPenalty\(...\), got 'l1'",
        ),
        ({"match": "exactly"}, TypeError, r"match must be LeastSquares\(...\) or Exact\(...\), got 'exactly'"),
        ({"tolerance": 1e-6}, TypeError, r"tolerance must be Tolerance\(...\), got 1e-06"),
        ({"parallel": "threads"}, TypeError, r"parallel must be Parallel\(...\), got 'threads'"),
        ({"kappa": 0.0}, ValueError, "kappa must be positive, got 0"),
        ({"kappa": np.nan}, ValueError, "kappa must be positive and finite, got nan"),
        ({"kappa": "1"}, TypeError, "kappa must be a number, got '1'"),
        ({"feedback": "none"}, ValueError, "unknown feedback"),
        ({"scale": "max"}, ValueError, "unknown scale"),
        ({"on_failure": "stop"}, ValueError, "unknown on_failure 'stop'; choose one of warn, raise, ignore"),
    ],
)
def test_bad_arguments(options, error, match):
    with pytest.raises(error, match=match):
        fit_sim(NET, U, **options)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: LeastSquares(lambda1=-1.0), ValueError, "lambda1 must be positive, got -1"),
        (lambda: Perspective(0.1, -1.0), ValueError, "eta must not be negative, got -1"),
        (lambda: L1(np.inf), ValueError, "beta must be finite, got inf"),
        (lambda: Ridge("1"), TypeError, "alpha must be a number, got '1'"),
        (lambda: Parallel("mpi"), ValueError, "unknown backend"),
        (lambda: Parallel(workers=0), ValueError, "workers"),
    ],
)
def test_choices_check_themselves(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_scale_that_was_found_before():
    found = states(NET, U)
    one, other = (fit_sim(found, scale=s) for s in ("theorem", scale_of(found, "theorem")))
    _equal(one, other)
    assert other.scale.name == "theorem"
    with pytest.raises(ValueError, match="a scale has one unit per state"):
        fit_sim(states(_mlp(6, 3, 3), U), scale=one.scale)


def test_network_and_inputs_go_together():
    with pytest.raises(TypeError, match="needs the inputs U"):
        fit_sim(NET)
    with pytest.raises(TypeError, match="either a network and U, or states"):
        fit_sim(states(NET, U), U)


def test_weights_that_leave_the_range_of_float64_are_an_error():
    from implicit_models.sim.result import original_units

    problem = row_problem(States.from_arrays(**_arrays()))
    rows = np.zeros((7, 9))
    rows[3, 1] = 1e-200
    s = np.ones(5)
    s[1] = 1e150  # a_31 = s_3 a'_31 / s_1
    with pytest.raises(ValueError, match="row 3 leaves the range of float64"):
        original_units(rows, problem, s)
    s[1] = 1e100
    A, *rest, b, d = original_units(rows, problem, s)
    assert A.nnz == 1 and A[3, 1] == pytest.approx(1e-300) and all(M.nnz == 0 for M in rest)
    assert b.shape == (5,) and d.shape == (2,)
