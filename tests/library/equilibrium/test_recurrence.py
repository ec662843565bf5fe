"""The compiled recurrence: against a cell called step by step, finite differences and closed forms; then the hard
cases."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.equilibrium import recurrence as module
from implicit_models.equilibrium.convergence import NotConverged
from implicit_models.layers import ImplicitModel, ImplicitRNN


def rnn(p, h, n, *, seed=0, scale=0.6, dtype=torch.float64, **options):
    """A cell with matrices of size `scale`, projected, to be solved to rounding."""
    model = ImplicitRNN(p, h, n, seed=seed, **{"tol": 1e-12, **options}).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for M in model.parameters():
            M.copy_(scale * torch.randn(M.shape, generator=generator, dtype=dtype) / M.shape[-1] ** 0.5)
    model.cell.project_()
    return model


def step_by_step(model, S, h0=None):
    """The same with one `ImplicitModel` a step: Picard, no compiled call."""
    cell = ImplicitModel.from_matrices(
        model.cell.A.detach(),
        model.cell.B.detach(),
        model.cell.C.detach(),
        None if model.cell.D is None else model.cell.D.detach(),
        model.cell.activation,
        b=model.cell.b if model.cell.b is None else model.cell.b.detach(),
        d=model.cell.d if model.cell.d is None else model.cell.d.detach(),
        solver="picard",
        tol=1e-13,
        max_iter=3000,
    )
    for M in cell.parameters():
        M.requires_grad_(True)
    h = S.new_zeros(len(S), model.hidden_size) if h0 is None else h0
    out = []
    for t in range(S.shape[1]):
        h = cell(torch.cat([S[:, t], h], dim=1))
        out.append(h)
    return torch.stack(out, dim=1), dict(cell.named_parameters())


@pytest.mark.parametrize(
    ("activation", "options", "N"),
    [
        ("relu", {"bias": True}, 5),
        ("tanh", {"skip": False}, 70),
        ([("relu", 3), ("sigmoid", 4), ("leaky_relu(0.3)", 2)], {"bias": True}, 33),
        ("relu", {"feedback": "strict_upper", "bias": True}, 17),
        ("identity", {}, 1),
    ],
)
def test_equals_the_cell_step_by_step(activation, options, N):
    model = rnn(3, 5, 9, activation=activation, **options)
    generator = torch.Generator().manual_seed(1)
    S, h0, w = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((N, 6, 3), (N, 5), (N, 6, 5))
    )
    S.requires_grad_(), h0.requires_grad_()
    Y, last = model(S, h0)
    assert model.cell.last_solve.solver == "gauss_seidel" and torch.equal(last, Y[:, -1])
    ours = torch.autograd.grad((Y * w).sum() + last.square().sum(), [*model.parameters(), S, h0])
    expected, named = step_by_step(model, S, h0)
    reference = torch.autograd.grad((expected * w).sum() + expected[:, -1].square().sum(), [*named.values(), S, h0])
    torch.testing.assert_close(Y, expected, rtol=1e-9, atol=1e-10)
    for (name, _), one, other in zip([*named.items(), ("S", 0), ("h0", 0)], ours, reference, strict=True):
        if name == "A" and model.cell.feedback == "strict_upper":
            other = other.triu(1)
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9, msg=name)


def test_gradient_by_finite_differences():
    model = rnn(2, 3, 6, activation="tanh", bias=True, seed=3)
    S = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64, requires_grad=True)
    named = list(model.cell.named_parameters())

    def run(S, *values):
        for (name, _), value in zip(named, values, strict=True):
            delattr(model.cell, name)
            setattr(model.cell, name, value)
        return model(S)[0]

    assert torch.autograd.gradcheck(run, (S, *(v.detach().requires_grad_() for _, v in named)), eps=1e-6, atol=1e-7)


def test_linear_cell_in_closed_form():
    """phi the identity: x = (I - A)^-1 B u, so that h_t = K u_t with K = C (I - A)^-1 B + D."""
    model = rnn(2, 2, 4, activation="identity")
    A, B, C, D = (M.detach().numpy() for M in (model.cell.A, model.cell.B, model.cell.C, model.cell.D))
    K = C @ np.linalg.solve(np.eye(4) - A, B) + D
    S = np.random.default_rng(0).normal(size=(3, 4, 2))
    h, expected = np.zeros((3, 2)), []
    for t in range(4):
        h = np.hstack([S[:, t], h]) @ K.T
        expected.append(h)
    np.testing.assert_allclose(model(torch.from_numpy(S))[0].detach().numpy(), np.stack(expected, axis=1), atol=1e-11)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 13), st.integers(1, 7), st.booleans(), st.integers(0, 99))
def test_any_size_and_any_row_of_a_batch(N, T, n, h, single, seed):
    """Padding of lanes, rows and columns changes nothing; a sequence alone is the same, bit for bit, as in its
    batch."""
    dtype = torch.float32 if single else torch.float64
    model = rnn(2, h, n, seed=seed, dtype=dtype, tol=1e-6 if single else 1e-12, bias=True)
    S = torch.randn(N, T, 2, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    with torch.no_grad():
        Y = model(S)[0]
        expected = step_by_step(model.double(), S.double())[0].detach()
        model.to(dtype)
        one = model(S[N // 2 : N // 2 + 1])[0]
    torch.testing.assert_close(Y.double(), expected, rtol=1e-4 if single else 1e-9, atol=1e-4 if single else 1e-10)
    assert torch.equal(one[0], Y[N // 2])


def test_length_one_is_the_layer():
    model = rnn(3, 2, 5)
    S = torch.randn(7, 1, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    cell = model.cell
    layer = ImplicitModel.from_matrices(*(M.detach() for M in (cell.A, cell.B, cell.C, cell.D)), tol=1e-13)
    expected = layer(torch.cat([S[:, 0], S.new_zeros(7, 2)], dim=1))
    torch.testing.assert_close(model(S)[0][:, 0], expected, rtol=1e-10, atol=1e-11)


def test_a_nan_stays_in_its_sequence_and_in_the_future():
    model = rnn(2, 3, 6, on_failure="ignore")
    S = torch.randn(9, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    bad = S.clone()
    bad[4, 2, 1] = float("nan")
    bad[6, 0, 0] = float("inf")
    good, found = model(S)[0], model(bad)[0]
    others = [i for i in range(9) if i not in (4, 6)]
    assert torch.equal(found[others], good[others]) and torch.equal(found[4, :2], good[4, :2])
    assert found[4, 2:].isnan().all() and found[6].isnan().all()
    assert model.cell.last_solve.status.tolist() == [0, 0, 0, 0, 3, 0, 3, 0, 0]
    clean = torch.autograd.grad(good[others].sum(), model.parameters())
    masked = torch.autograd.grad(found[others].sum(), model.parameters())
    for one, other in zip(clean, masked, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_failure_is_reported():
    """x = relu(x + 1) has no solution."""
    model = ImplicitRNN.from_cell(
        ImplicitModel.from_matrices(np.eye(1), np.ones((1, 2)), np.ones((1, 1)), on_failure="raise")
    )
    with pytest.raises(NotConverged, match="recurrence"):
        model(torch.ones(3, 2, 1, dtype=torch.float64))


def test_matrix_that_is_not_finite_is_named():
    model = rnn(1, 2, 3)
    with torch.no_grad():
        model.cell.C[0, 0] = float("nan")
    with pytest.raises(ValueError, match="C has values that are not finite: 1 of 6"):
        model(torch.ones(2, 3, 1, dtype=torch.float64))


def test_sequences_of_unequal_lengths_are_refused():
    model = rnn(1, 2, 3)
    with pytest.raises(TypeError, match="S must be a torch tensor, got list"):
        model([torch.ones(3, 1), torch.ones(4, 1)])
    with pytest.raises(ValueError, match="1 inputs per step"):
        model(torch.ones(2, 3, 4, dtype=torch.float64))


def test_second_derivative_is_refused():
    model = rnn(1, 2, 3)
    S = torch.ones(2, 3, 1, dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(model(S)[0].sum(), S, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiable once"):
        g.sum().backward()


@pytest.mark.parametrize(
    "options",
    [{"solver": "picard"}, {"backward": "jfb"}, {"activation": [("relu", 3), ("softmax", 3)]}],
    ids=lambda o: next(iter(o)),
)
def test_what_it_does_not_serve_goes_step_by_step(options, monkeypatch):
    monkeypatch.setattr("implicit_models.recurrent.recurrence", lambda *a: pytest.fail("compiled call"))
    model = rnn(2, 2, 6, **options)
    S = torch.randn(3, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(S)[0], step_by_step(model, S)[0], rtol=1e-8, atol=1e-9)


def test_threads_change_nothing(monkeypatch):
    model = rnn(2, 3, 8)
    S = torch.randn(150, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alone = model(S)[0]
    monkeypatch.setattr(module, "WORK_PER_THREAD", 1)
    monkeypatch.setattr(module.torch, "get_num_threads", lambda: 3)
    assert torch.equal(model(S)[0], alone)


def test_a_gradient_that_fades_out_of_range_is_zero_and_costs_nothing():
    """Through 60 steps a gradient shrinks below the smallest float32: no relative tolerance can be met there."""
    model = rnn(1, 8, 7, scale=0.2, dtype=torch.float32, tol=1e-6)
    S = torch.randn(20, 60, 1, generator=torch.Generator().manual_seed(0), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotConverged)
        (faded,) = torch.autograd.grad(model(S)[1].sum(), S)
    double = ImplicitRNN(1, 8, 7, tol=1e-12, seed=0).double()
    double.load_state_dict(model.state_dict())
    exact_S = S.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(double(exact_S)[1].sum(), exact_S)
    size = exact.abs().amax(dim=(0, 2))
    assert size[0] < 1e-40 < 1e-3 < size[-1]
    held = size > 1e-25
    torch.testing.assert_close(faded[:, held].double(), exact[:, held], rtol=1e-3, atol=1e-27)
    assert not faded[:, size < 1e-32].any()
