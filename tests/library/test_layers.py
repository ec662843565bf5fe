"""Implicit layers as ordinary modules: values by hand, constraints kept, state, copies, devices of failure."""

import copy
import dataclasses
import gc
import inspect
import io
import pickle
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from implicit_models import ImplicitModel, ImplicitRNN, NotConverged, solve_equilibrium
from implicit_models.activations import resolve_activation
from implicit_models.equilibrium.convergence import report_failure
from implicit_models.equilibrium.settings import SolverOptions, SolverSettings


def _by_hand(model, U, steps=400):
    """y of a model by plain Picard steps in NumPy, float64."""
    A, B, C = (M.detach().double().numpy() for M in (model.A, model.B, model.C))
    U = U.detach().double().numpy()
    b = 0 if model.b is None else model.b.detach().double().numpy()
    X = np.zeros((len(U), len(A)))
    for _ in range(steps):
        X = np.maximum(X @ A.T + U @ B.T + b, 0)
    y = X @ C.T + (0 if model.D is None else U @ model.D.detach().double().numpy().T)
    return y + (0 if model.d is None else model.d.detach().double().numpy())


def _inputs(N, p, seed=0, dtype=torch.float32):
    return torch.randn(N, p, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# ---------------------------------------------------------------- values and construction


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("feedback", ["full", "strict_upper"])
def test_forward_matches_numpy(skip, bias, feedback):
    model = ImplicitModel(4, 3, 9, skip=skip, bias=bias, feedback=feedback, seed=1)
    with torch.no_grad():
        for v in (model.b, model.d):
            if v is not None:
                v.normal_(generator=torch.Generator().manual_seed(2))
    U = _inputs(6, 4)
    np.testing.assert_allclose(model(U).detach(), _by_hand(model, U), rtol=1e-5, atol=1e-6)
    assert (model.D is None) == (not skip) and (model.b is None) == (model.d is None) == (not bias)
    expected = 9 * 9 + 9 * 4 + 3 * 9 + (12 if skip else 0) + (12 if bias else 0)
    assert sum(p.numel() for p in model.parameters()) == expected


def test_published_parameter_counts():
    # Tsai (2024), identity: R^10 -> R^10, n = 4: 196 parameters; rolling argmax and others follow the same rule
    assert sum(p.numel() for p in ImplicitModel(10, 10, 4).parameters()) == 196
    # spiky and volatility implicitRNN cells: A, B over [s, h], C, D
    rnn = ImplicitRNN(1, 22, 21)
    assert sum(p.numel() for p in rnn.parameters()) == 21 * 21 + 21 * 23 + 22 * 21 + 22 * 23


def test_initial_matrices_are_normal_over_n_then_projected():
    model = ImplicitModel(200, 50, 100, seed=0)
    for M in (model.B, model.C, model.D):
        assert float(M.detach().std()) == pytest.approx(0.01, rel=0.05)
    raw = torch.randn(100, 100, generator=torch.Generator().manual_seed(0)) / 100
    inside = raw.abs().sum(1) <= 0.95
    assert inside.any() and torch.equal(model.A.detach()[inside], raw[inside])
    assert (model.A.detach().abs().sum(1) <= 0.95).all()


def test_seed_is_local_and_reproducible():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    a, b, c = (ImplicitModel(3, 2, 5, seed=s) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    fresh = ImplicitModel(3, 2, 5), ImplicitModel(3, 2, 5)
    assert torch.equal(a.A, b.A) and not torch.equal(a.A, c.A) and not torch.equal(fresh[0].B, fresh[1].B)


def test_mixed_activation_and_certificate():
    model = ImplicitModel(3, 2, 6, activation=[("relu", 2), ("softmax", 3), ("tanh", 1)], seed=0)
    result = model.equilibrium(_inputs(4, 3))
    assert result.converged.all()
    np.testing.assert_allclose(result.x[:, 2:5].sum(1).detach(), np.ones(4), rtol=1e-6)
    assert model.certificate().kind == "pf"


def test_equilibrium_and_warm_start():
    model = ImplicitModel(3, 2, 12, seed=0, solver="gauss_seidel").double()
    U = _inputs(5, 3, dtype=torch.float64)
    result = model.equilibrium(U)
    torch.testing.assert_close(model(U), result.x @ model.C.t() + U @ model.D.t())
    again = model.equilibrium(U, x0=result.x.detach())
    assert (again.n_iter <= 1).all() and result.n_iter.max() > 1


@settings(max_examples=10, deadline=None)
@given(st.floats(0.01, 1e4), st.integers(0, 1000))
def test_bias_free_relu_model_is_homogeneous(t, seed):
    model = ImplicitModel(3, 2, 7, seed=seed).double()
    U = _inputs(5, 3, seed, torch.float64)
    torch.testing.assert_close(model(t * U), t * model(U), rtol=1e-4, atol=1e-5 * t)


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_training_with_the_hook_keeps_the_constraint_and_learns(optimiser):
    model = ImplicitModel(3, 3, 6, seed=0)
    U = _inputs(64, 3)
    opt = optimiser(model.parameters(), lr=0.05)
    handle = model.project_after(opt)
    losses = []
    for _ in range(60):
        opt.zero_grad()
        loss = ((model(U) - U) ** 2).mean()
        loss.backward()
        opt.step()
        losses.append(float(loss.detach()))
        assert (model.A.detach().abs().sum(1) <= 0.95).all()
    assert losses[-1] < 0.3 * losses[0]
    handle.remove()
    with torch.no_grad():
        model.A.fill_(1.0)
    model(U[:0]).sum().backward()
    opt.step()
    assert model.A.detach().abs().sum(1).max() > 0.95  # the hook is gone
    assert model.project_() is model and (model.A.detach().abs().sum(1) <= 0.95).all()


def test_strict_upper_stays_strict_upper_under_any_optimiser():
    model = ImplicitModel(3, 2, 5, feedback="strict_upper", seed=0)
    opt = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(5):
        opt.zero_grad()
        model(_inputs(8, 3)).pow(2).sum().backward()
        assert not model.A.grad.tril().any() and model.A.grad.any()
        opt.step()
        assert not model.A.detach().tril().any()
    assert model.certificate().kind == "pf" and model.certificate().lambda_pf == 0
    state = model.state_dict()
    state["A"] = torch.ones(5, 5)
    with pytest.raises(ValueError, match="on or below the diagonal"):
        model.load_state_dict(state)


def test_gradients_exist_in_eval_mode_and_for_the_input():
    model = ImplicitModel(3, 2, 5, seed=0).eval()
    U = _inputs(4, 3).requires_grad_()
    model(U).sum().backward()
    assert U.grad.any() and model.A.grad is not None


def test_model_gradient_matches_finite_differences():
    model = ImplicitModel(2, 2, 4, seed=3, bias=True, tol=1e-13, activation="tanh").double()
    U = _inputs(3, 2, dtype=torch.float64).requires_grad_()
    names = [n for n, _ in model.named_parameters()]
    f = lambda U, *ps: torch.func.functional_call(model, dict(zip(names, ps, strict=True)), (U,))
    assert torch.autograd.gradcheck(f, (U, *[p.detach().clone().requires_grad_() for p in model.parameters()]))


def test_shared_layer_in_a_loop_and_in_sequential():
    layer = ImplicitModel(3, 3, 5, seed=0).double()
    U = _inputs(4, 3, dtype=torch.float64)
    y = U
    for _ in range(3):
        y = layer(y)
    y.pow(2).sum().backward()
    loop = layer.A.grad.clone()
    layer.zero_grad()
    nn.Sequential(layer, layer, layer)(U).pow(2).sum().backward()
    assert torch.equal(layer.A.grad, loop)
    eps = 1e-6  # one entry by central differences, through all three uses
    values = []
    for sign in (1, -1):
        moved = copy.deepcopy(layer)
        with torch.no_grad():
            moved.A[1, 2] += sign * eps
        moved.settings = ImplicitModel(1, 1, 1, tol=1e-13).settings
        values.append(float(moved(moved(moved(U))).pow(2).sum().detach()))
    assert float(loop[1, 2]) == pytest.approx((values[0] - values[1]) / (2 * eps), rel=1e-4, abs=1e-7)


def test_two_models_keep_their_own_settings():
    tight = ImplicitModel(3, 2, 20, seed=0, tol=1e-6, solver="picard")
    loose = ImplicitModel(3, 2, 20, seed=0, tol=1e-2, solver="picard", backward="jfb", max_iter=7)
    U = _inputs(4, 3)
    for _ in range(2):
        tight(U), loose(U)
        assert tight.last_solve.max_residual <= 1e-6 < loose.last_solve.max_residual <= 1e-2
        assert tight.last_solve.mean_iter > loose.last_solve.mean_iter
    assert tight.settings.backward == "implicit" and loose.settings.max_iter == 7


def test_statistics_hold_no_graph_and_stay_out_of_the_state():
    model = ImplicitModel(3, 2, 5, seed=0)
    assert model.last_solve is None
    y = model(_inputs(4, 3))
    ref = weakref.ref(y)
    stats = model.last_solve
    assert stats.n_iter.shape == (4,) and stats.converged.all() and stats.n_failed == 0
    assert not stats.residual.requires_grad
    del y
    gc.collect()
    assert ref() is None
    assert set(model.state_dict()) == {"A", "B", "C", "D"}
    model(_inputs(0, 3))
    assert model.last_solve.mean_iter == 0 and model.last_solve.max_residual == 0


# ---------------------------------------------------------------- module mechanics


@pytest.mark.parametrize("sparse", [False, True])
def test_copies_pickles_and_state_dicts(sparse):
    if sparse:
        rng = np.random.default_rng(0)
        mats = [rng.standard_normal(s) for s in ((5, 5), (5, 3), (2, 5), (2, 3))]
        mats[0] = np.triu(mats[0], 1)
        model = ImplicitModel.from_matrices(*(sp.csr_array(M) for M in mats), kappa=0.5)
    else:
        model = ImplicitModel(3, 2, 5, seed=0, bias=True).double()
    U = _inputs(4, 3, dtype=torch.float64)
    y = model(U)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(nn.Sequential(model))):
        assert torch.equal(twin(U), y)
    other = copy.deepcopy(model)
    if not sparse:
        with torch.no_grad():
            other.A.zero_()
    other.load_state_dict(torch.load(buffer))
    assert torch.equal(other(U), y)
    assert model.float()(U.float()).dtype == torch.float32
    torch.testing.assert_close(model(U.float()).double(), y, rtol=1e-4, atol=1e-5)


def test_moves_with_the_module():
    model = ImplicitModel(3, 2, 5, seed=0).to(torch.float64)
    assert model(_inputs(2, 3, dtype=torch.float64)).dtype == torch.float64
    assert ImplicitModel(3, 2, 5).to("meta").A.device.type == "meta"


# ---------------------------------------------------------------- given matrices


def test_from_matrices_copies_and_never_projects():
    A = np.triu(np.full((3, 3), 4.0), 1)
    model = ImplicitModel.from_matrices(A, np.eye(3), np.eye(3), np.zeros((3, 3)))
    A[0, 1] = 9
    assert float(model.A[0, 1].detach()) == 4
    y = model(torch.tensor([[1.0, 1.0, 1.0]], dtype=torch.float64))
    np.testing.assert_allclose(y.detach(), [[1 + 4 * 5 + 4 * 1, 5, 1]])  # x3 = 1, x2 = 1 + 4, x1 = 1 + 4 x2 + 4 x3
    assert model.certificate().kind in ("pf", "triangular")


@pytest.mark.parametrize("kind", ["csr", "scipy", "mixed"])
def test_sparse_matrices_are_buffers_and_give_the_dense_answer(kind):
    rng = np.random.default_rng(1)
    A, B, C, D = (
        np.triu(rng.standard_normal((6, 6)), 1),
        rng.standard_normal((6, 3)),
        rng.standard_normal((2, 6)),
        rng.standard_normal((2, 3)),
    )
    b, d = rng.standard_normal(6), rng.standard_normal(2)
    to = {"csr": lambda M: torch.from_numpy(M).to_sparse_csr(), "scipy": sp.csr_matrix, "mixed": lambda M: M}[kind]
    sparse = ImplicitModel.from_matrices(sp.csr_array(A) if kind == "mixed" else to(A), to(B), to(C), to(D), b=b, d=d)
    dense = ImplicitModel.from_matrices(A, B, C, D, b=b, d=d, tol=1e-13)
    U = _inputs(5, 3, dtype=torch.float64).requires_grad_()
    torch.testing.assert_close(sparse(U), dense(U), rtol=1e-10, atol=1e-10)
    assert sparse.last_solve.solver == "triangular"
    found = [torch.autograd.grad(m(U).pow(2).sum(), U)[0] for m in (sparse, dense)]
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
    names = {n for n, _ in sparse.named_parameters()}
    assert names == ({"b", "d"} if kind != "mixed" else {"B", "C", "D", "b", "d"})
    with pytest.raises(TypeError, match="never projected"):
        sparse.project_()
    plan = sparse._plan
    sparse(U)
    assert sparse._plan is plan  # found once


def test_sparse_matrix_with_feedback_is_solved_by_picard():
    A = np.array([[0.0, 0.5], [0.4, 0.0]])
    model = ImplicitModel.from_matrices(sp.csr_array(A), sp.csr_array(np.eye(2)), sp.csr_array(np.eye(2)), tol=1e-12)
    y = model(torch.tensor([[1.0, 1.0]], dtype=torch.float64))
    np.testing.assert_allclose(y, [np.linalg.solve(np.eye(2) - A, np.ones(2))], rtol=1e-10)
    assert model.last_solve.solver == "picard"


# ---------------------------------------------------------------- recurrent


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_rnn_is_its_cell_in_a_loop(skip, bias):
    rnn = ImplicitRNN(2, 3, 6, skip=skip, bias=bias, seed=0).double()
    if bias:
        with torch.no_grad():
            rnn.cell.b.fill_(0.3), rnn.cell.d.fill_(-0.2)
    S = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y, h = rnn(S)
    state = torch.zeros(4, 3, dtype=torch.float64)
    for t in range(5):
        state = torch.from_numpy(_by_hand(rnn.cell, torch.cat([S[:, t], state], 1)))
        torch.testing.assert_close(Y[:, t].detach(), state, rtol=1e-5, atol=1e-6)
    assert torch.equal(h, Y[:, -1]) and (rnn.input_size, rnn.hidden_size) == (2, 3)
    # a sequence in two pieces
    first, h1 = rnn(S[:, :2])
    second, h2 = rnn(S[:, 2:], h1)
    torch.testing.assert_close(torch.cat([first, second], 1), Y)
    assert rnn.cell.last_solve.n_iter.shape == (4,) and rnn.cell.last_solve.converged.all()


def test_rnn_gradient_matches_finite_differences():
    rnn = ImplicitRNN(1, 2, 3, seed=1, bias=True, tol=1e-13, activation="tanh").double()
    S = torch.randn(2, 3, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    names = [n for n, _ in rnn.named_parameters()]
    f = lambda S, *ps: torch.func.functional_call(rnn, dict(zip(names, ps, strict=True)), (S,))[0]
    assert torch.autograd.gradcheck(f, (S, *[p.detach().clone().requires_grad_() for p in rnn.parameters()]))


def test_rnn_edges_copies_and_sparse():
    rnn = ImplicitRNN(2, 3, 4, seed=0)
    Y, h = rnn(torch.zeros(5, 0, 2))
    assert Y.shape == (5, 0, 3) and torch.equal(h, torch.zeros(5, 3))
    assert rnn(torch.zeros(0, 4, 2))[0].shape == (0, 4, 3)
    S = torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(copy.deepcopy(rnn)(S)[0], rnn(S)[0])
    given = [M.detach().numpy() for M in (rnn.cell.A, rnn.cell.B, rnn.cell.C, rnn.cell.D)]
    torch.testing.assert_close(ImplicitRNN.from_cell(ImplicitModel.from_matrices(*given))(S)[0], rnn(S)[0])
    sparse = ImplicitRNN.from_cell(ImplicitModel.from_matrices(*(sp.csr_array(M) for M in given)))
    torch.testing.assert_close(sparse(S)[0], rnn(S)[0].detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="a cell is an ImplicitModel, got Linear"):
        ImplicitRNN.from_cell(nn.Linear(3, 2))
    with pytest.raises(ValueError, match="reads input and hidden"):
        ImplicitRNN.from_cell(ImplicitModel.from_matrices(np.eye(2) * 0.1, np.ones((2, 3)), np.ones((3, 2))))


# ---------------------------------------------------------------- failure and bad input


def test_failures_are_reported_by_the_model_with_its_own_policy():
    A = np.array([[1.5, 0.2], [0.1, 1.2]])
    mats = (A, np.eye(2), np.eye(2), np.zeros((2, 2)))
    U = torch.ones(3, 2, dtype=torch.float64)
    with pytest.warns(NotConverged, match="no certificate"):
        ImplicitModel.from_matrices(*mats)(U)
    strict = ImplicitModel.from_matrices(*mats, on_failure="raise")
    with pytest.raises(NotConverged, match="3 of 3 samples"):
        strict(U)
    bad = _inputs(3, 2)
    bad[1, 0] = float("nan")
    model = ImplicitModel(2, 2, 4, seed=0)
    with pytest.warns(NotConverged, match="sample 1"):
        y = model(bad)
    clean = bad.clone()
    clean[1] = 0
    assert torch.equal(y[[0, 2]], model(clean)[[0, 2]]) and y[1].isnan().all()
    assert model.last_solve.n_failed == 0


def _message(A, activation, residual, status=1, **settings):
    s = SolverSettings(**settings)
    with pytest.raises(NotConverged) as failure:
        report_failure(
            "equilibrium",
            A,
            resolve_activation(activation, len(A)),
            torch.tensor([status]),
            torch.tensor([residual]),
            tol=s.tol,
            relative=s.relative,
            max_iter=s.max_iter,
            on_failure="raise",
            settings=s,
        )
    return str(failure.value)


@pytest.mark.parametrize(
    "A", [torch.full((4, 4), 0.24), torch.tensor([[0.5, 3.0], [0.0, 0.5]])]
)  # contraction, certified
def test_the_advice_of_a_failure_can_be_followed(A):
    named = []
    for activation in ("relu", "tanh", "sigmoid", "softmax"):
        for matrix in (A, A.to_sparse_csr(), A.bfloat16()):
            for solver in ("auto", "picard", "anderson"):
                text = _message(matrix, activation, 0.3, solver=solver)
                assert "solver='auto'" not in text or solver != "auto"
                if "solver='newton'" in text:
                    named.append((activation, matrix.layout, matrix.dtype))
                    solve_equilibrium(matrix, torch.ones(1, len(A)), activation, solver="newton")  # runs
    assert set(named) == {("relu", torch.strided, torch.float32)}
    assert "newton" not in _message(A, "relu", 0.3, backward="unroll") and "newton" not in _message(
        A, "relu", 0.3, solver="newton"
    )
    assert "auto" in _message(A, "relu", 0.3, solver="picard")


def test_a_failure_that_rounding_explains_says_so():
    A = torch.full((100, 100), 0.009)
    text = _message(A, "relu", 2e-6)
    assert (
        "rounding: a residual of 2.0e-06 is within n eps = 1.2e-05 of float32" in text and "raise max_iter" not in text
    )
    assert "rounding" not in _message(A, "relu", 2e-5) and "rounding" not in _message(A, "relu", 2e-6, status=2)
    assert "below what float32 resolves" in _message(A, "relu", 2e-6, tol=1e-9)


@pytest.mark.parametrize("backward", [False, True])
def test_warnings_point_at_the_line_that_called_the_model(backward, monkeypatch):
    monkeypatch.setattr(ImplicitModel, "forward", inspect.unwrap(ImplicitModel.forward))  # shape checks are frames too
    A = torch.full((4, 4), 0.2499)
    model = ImplicitModel.from_matrices(A, torch.eye(4), torch.eye(4), solver="picard", max_iter=1, tol=1e-5)
    if not backward:
        with pytest.warns(NotConverged, match="equilibrium") as caught:
            nn.Sequential(model)(torch.ones(1, 4))
    else:
        with pytest.warns(NotConverged):
            y = model(torch.ones(1, 4))
        with pytest.warns(NotConverged, match="gradient") as caught:
            y.sum().backward()
    assert {w.filename for w in caught} == {__file__}


@pytest.mark.parametrize("backward", ["implicit", "jfb", "phantom", "unroll"])
def test_autocast_leaves_the_layer_in_its_own_precision(backward):
    model, rnn = ImplicitModel(3, 2, 6, bias=True, seed=0, backward=backward), ImplicitRNN(3, 2, 6, seed=0)
    U, S = _inputs(5, 3).bfloat16(), _inputs(10, 3).reshape(2, 5, 3)
    y, x, (h, _) = model(U.float()), model.equilibrium(U.float()).x, rnn(S)
    y.square().sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(U)  # the output of a layer before it
        assert found.dtype == torch.float32 and torch.equal(found, y)
        assert torch.equal(model.equilibrium(U, torch.zeros(5, 6)).x, x) and torch.equal(rnn(S)[0], h)
        assert torch.is_autocast_enabled("cpu")
        with pytest.raises(TypeError, match="int64"):
            model(torch.zeros(2, 3, dtype=torch.int64))
    found.square().sum().backward()
    for p, g in zip(model.parameters(), expected, strict=True):
        assert torch.equal(p.grad, g)


def test_projecting_between_forward_and_backward_is_an_error():
    model = ImplicitModel(3, 2, 6, activation="tanh", seed=0)
    with torch.no_grad():
        model.A.copy_(torch.full((6, 6), 0.16))
    loss = model(_inputs(4, 3)).sum()
    model.project_()  # the row sums were .96
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "match"),
    [
        ((3, 2, 5), {"kappa": 1.0}, ValueError, r"kappa must lie in \(0, 1\), got 1.0"),
        ((3, 2, 5), {"kappa": 0.0}, ValueError, "kappa"),
        ((3, 2, 5), {"kappa": -0.5}, ValueError, "kappa"),
        ((3, 2, 5), {"kappa": "0.9"}, TypeError, "kappa"),
        ((3, 2, 5), {"kappa": float("nan")}, ValueError, "kappa"),
        ((0, 2, 5), {}, ValueError, "in_features must be at least 1, got 0"),
        ((3, -2, 5), {}, ValueError, "out_features"),
        ((3, 2, 5.0), {}, TypeError, "n_states"),
        ((3, 2, 5), {"activation": "swish"}, ValueError, "unknown activation 'swish'"),
        ((3, 2, 5), {"activation": [("relu", 4)]}, ValueError, "cover 4 states"),
        ((3, 2, 5), {"solver": "broyden"}, ValueError, "unknown solver 'broyden'"),
        ((3, 2, 5), {"backward": "ift"}, ValueError, "unknown backward 'ift'"),
        ((3, 2, 5), {"feedback": "upper"}, ValueError, "unknown feedback 'upper'"),
        ((3, 2, 5), {"tol_mode": "mixed"}, ValueError, "unknown tol_mode 'mixed'"),
        ((3, 2, 5), {"activation": [("relu", [5])]}, TypeError, r"activation segment 'relu' must be an int, got \[5\]"),
        ((3, 2, 5), {"activation": [(["relu"], 5)]}, TypeError, "an activation is a name, got"),
        ((3, 2, 5), {"tol": [1e-6]}, TypeError, r"tol must be a number, got \[1e-06\]"),
        ((3, 2, 5), {"seed": -1}, ValueError, "seed"),
        ((3, 2, 5), {"seed": 1.5}, TypeError, "seed"),
        ((3, 2, 5), {"bias": "no"}, TypeError, "bias must be True or False, got 'no'"),
        ((3, 2, 5), {"skip": 1}, TypeError, "skip must be True or False, got 1"),
        ((3, 2, 5), {"skip": None}, TypeError, "skip must be True or False, got None"),
    ],
)
def test_constructor_names_what_is_wrong(arguments, options, error, match):
    with pytest.raises(error, match=match):
        ImplicitModel(*arguments, **options)


def test_flags_may_be_those_of_numpy():
    model = ImplicitModel(3, 2, 5, bias=np.bool_(False), skip=np.bool_(True), seed=0)
    assert model.b is None and model.D is not None


def test_inputs_are_checked():
    model, rnn = ImplicitModel(3, 2, 5, seed=0), ImplicitRNN(2, 3, 4, seed=0)
    for call, error, match in (
        (lambda: model(torch.tensor(1.0)), ValueError, r"\(\*, in_features\).*\(\)"),
        (lambda: model(torch.zeros(2, 4)), ValueError, r"3 columns.*\(2, 4\)"),
        (lambda: model(torch.zeros(2, 3, dtype=torch.int64)), TypeError, "int64"),
        (lambda: model(torch.zeros(2, 3, dtype=torch.float64)), TypeError, "float64"),
        (lambda: model(np.zeros((2, 3))), TypeError, "ndarray"),
        (lambda: model.equilibrium(torch.zeros(2, 3), x0=torch.zeros(2, 4)), ValueError, r"x0.*\(2, 5\).*\(2, 4\)"),
        (lambda: rnn(torch.zeros(2)), ValueError, r"\(N, T, input_size\).*\(2,\)"),
        (lambda: rnn(torch.zeros(2, 3, 5)), ValueError, r"2 inputs per step.*\(2, 3, 5\)"),
        (lambda: rnn(torch.zeros(2, 3, 2), torch.zeros(1, 3)), ValueError, r"h0.*\(2, 3\).*\(1, 3\)"),
        (lambda: model.project_after(torch.optim.SGD(rnn.parameters(), lr=1)), ValueError, "does not hold"),
    ):
        with pytest.raises(error, match=match):
            call()


@pytest.mark.parametrize(
    ("shapes", "error", "match"),
    [
        (((2, 3), (2, 1), (1, 2), (1, 1)), ValueError, r"A must be a square.*\(2, 3\)"),
        (((2, 2), (3, 1), (1, 2), (1, 1)), ValueError, r"B must have 2 rows.*\(3, 1\)"),
        (((2, 2), (2, 1), (1, 3), (1, 1)), ValueError, r"C must have 2 columns.*\(1, 3\)"),
        (((2, 2), (2, 1), (1, 2), (2, 1)), ValueError, r"D must have shape \(1, 1\), got \(2, 1\)"),
    ],
)
def test_given_matrices_are_checked(shapes, error, match):
    with pytest.raises(error, match=match):
        ImplicitModel.from_matrices(*(np.zeros(s) for s in shapes))


def test_given_dtypes_layouts_and_options_are_checked():
    eye = np.eye(2)
    with pytest.raises(TypeError, match="A must have a floating dtype, got torch.int64"):
        ImplicitModel.from_matrices(np.eye(2, dtype=int), eye, eye)
    with pytest.raises(TypeError, match="B is torch.float32, but A is torch.float64"):
        ImplicitModel.from_matrices(eye, eye.astype(np.float32), eye)
    with pytest.raises(TypeError, match="list"):
        ImplicitModel.from_matrices([[1.0]], eye, eye)
    with pytest.raises(TypeError, match="sparse_coo"):
        ImplicitModel.from_matrices(torch.eye(2).to_sparse(), torch.eye(2), torch.eye(2))
    with pytest.raises(ValueError, match=r"A\[1, 0\] = 0.5 is on or below"):
        ImplicitModel.from_matrices(np.array([[0, 1], [0.5, 0]]), eye, eye, feedback="strict_upper")
    with pytest.raises(
        TypeError, match="from_matrices got an unexpected argument kapa; .*solver, tol, tol_mode, max_iter"
    ):
        ImplicitModel.from_matrices(eye, eye, eye, kapa=0.5)
    for kind in (ImplicitModel, ImplicitRNN):
        with pytest.raises(TypeError, match="ImplicitModel got an unexpected argument tolerance; .*solver, tol"):
            kind(3, 2, 5, tolerance=1e-3)


def test_keywords_of_a_model_are_the_fields_of_its_settings():
    fields = {field.name: field.type for field in dataclasses.fields(SolverSettings)}
    assert SolverOptions.__annotations__.keys() == fields.keys()
    chosen = dict(zip(fields, ("picard", 1e-3, "absolute", 9, "jfb", "raise"), strict=True))
    assert ImplicitModel(3, 2, 5, **chosen).settings == SolverSettings(**chosen) != ImplicitModel(3, 2, 5).settings
