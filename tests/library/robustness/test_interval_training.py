"""Interval margins against sampling, corners, another implementation and finite differences; a small training that
certifies."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from implicit_models.layers import ImplicitModel
from implicit_models.robustness import NotCertified, bounds, worst_case_loss
from implicit_models.robustness.input_sets import Box, SparseBox
from implicit_models.robustness.interval_training import interval_margins, interval_training_loss, ramp


def model(seed, n=8, p=4, q=3, norm=0.9, **options):
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=g)
    A = draw(n, n)
    A *= norm / A.abs().sum(1).max()
    options = {"b": draw(n), "d": draw(q), "D": draw(q, p), "tol": 1e-12, **options}
    return ImplicitModel.from_matrices(A, draw(n, p), draw(q, n), **options)


def samples(seed, p=4, q=3, N=5):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(N, p, dtype=torch.float64, generator=g), torch.randint(q, (N,), generator=g)


def gaps(m, u, y):
    out = m(u)
    return out.gather(1, y[:, None]) - out


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from(["relu", "tanh", "leaky_relu(0.1)", "sigmoid"]),
    st.floats(0, 0.5),
    st.sampled_from([None, (0.0, 1.0)]),
)
def test_margins_are_below_every_corner_and_sample(seed, activation, eps, clip):
    m = model(seed, activation=activation)
    u, y = samples(seed)
    bound = interval_margins(m, u, y, Box(eps, clip))
    moves = [torch.tensor(s, dtype=torch.float64) for s in itertools.product([-1.0, 1.0], repeat=4)]
    moves += list(2 * torch.rand(20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) - 1)
    for move in moves:
        moved = u + eps * move
        assert (gaps(m, moved if clip is None else moved.clamp(*clip), y) >= bound - 1e-9).all()
    assert float(bound.gather(1, y[:, None]).detach().abs().max()) < 1e-12


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31))
def test_without_a_radius_the_margins_are_those_of_the_samples(seed):
    m = model(seed)
    u, y = samples(seed)
    torch.testing.assert_close(interval_margins(m, u, y, 0.0), gaps(m, u, y), rtol=1e-9, atol=1e-9)
    expected = nn.functional.cross_entropy(m(u), y)
    for clean in (0.0, 0.3, 1.0):
        assert float(interval_training_loss(m, u, y, 0.0, clean=clean)) == pytest.approx(float(expected), rel=1e-8)


def test_interval_by_iteration():
    """The same end points from plain Picard steps of interval arithmetic, with a diagonal that feeds on its own end."""
    m = model(3)
    u, y = samples(3)
    A, B, b = m.A.detach(), m.B.detach(), m.b.detach()
    off = A - torch.diag(A.diagonal())
    c, r = u @ B.t() + b, 0.1 * B.abs().sum(1)
    low, high = torch.relu(c - r), torch.relu(c + r)
    for _ in range(2000):
        positive, negative = off.clamp_min(0), off.clamp_max(0)
        low, high = (
            torch.relu(low @ positive.t() + high @ negative.t() + A.diagonal() * low + c - r),
            torch.relu(high @ positive.t() + low @ negative.t() + A.diagonal() * high + c + r),
        )
    C, D, d = m.C.detach(), m.D.detach(), m.d.detach()
    for i in range(len(u)):
        for j in range(3):
            row, direct = C[y[i]] - C[j], D[y[i]] - D[j]
            expected = (
                row.clamp_min(0) @ low[i]
                + row.clamp_max(0) @ high[i]
                + direct @ u[i]
                - 0.1 * direct.abs().sum()
                + d[y[i]]
                - d[j]
            )
            assert float(interval_margins(m, u, y, 0.1)[i, j]) == pytest.approx(float(expected), abs=1e-9)


def test_loss_is_the_worst_case_over_the_margins():
    m = model(4)
    u, y = samples(4)
    margin = interval_margins(m, u, y, 0.2).detach().numpy()
    # outputs -margin_j with output y fixed at 0: the exact worst case of a box whose lower end nobody needs
    expected = worst_case_loss(-margin, np.zeros_like(margin), y).mean()
    assert float(interval_training_loss(m, u, y, 0.2)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("options", [{}, {"activation": "tanh"}, {"feedback": "full", "D": None, "b": None, "d": None}])
@pytest.mark.parametrize("clip", [None, (0.0, 1.0)])
def test_gradients_are_those_of_finite_differences(options, clip):
    m = model(5, **options)
    u, y = samples(5)
    interval_training_loss(m, u, y, Box(0.1, clip), clean=0.3).backward()
    for parameter in m.parameters():
        direction, h = (
            torch.randn(parameter.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
            1e-6,
        )
        values = []
        for step in (h, -2 * h):
            with torch.no_grad():
                parameter.add_(step * direction)
                values.append(float(interval_training_loss(m, u, y, Box(0.1, clip), clean=0.3)))
        with torch.no_grad():
            parameter.add_(h * direction)
        assert (values[0] - values[1]) / (2 * h) == pytest.approx(
            float((parameter.grad * direction).sum()), rel=1e-4, abs=1e-6
        )


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def test_network_margins_are_those_of_the_implicit_form():
    net = network()
    u, y = samples(0)
    first, second, last = (layer for layer in net if isinstance(layer, nn.Linear))
    A = torch.zeros(11, 11, dtype=torch.float64)
    A[6:, :6] = second.weight.detach()
    same = ImplicitModel.from_matrices(
        A,
        torch.cat([first.weight.detach(), torch.zeros(5, 4, dtype=torch.float64)]),
        torch.cat([torch.zeros(3, 6, dtype=torch.float64), last.weight.detach()], 1),
        activation=[("relu", 6), ("tanh", 5)],
        b=torch.cat([first.bias, second.bias]).detach(),
        d=last.bias.detach(),
        tol=1e-13,
    )
    for clip in (None, (0.0, 1.0)):
        torch.testing.assert_close(
            interval_margins(net, u, y, Box(0.1, clip)),
            interval_margins(same, u, y, Box(0.1, clip)),
            rtol=1e-9,
            atol=1e-9,
        )
    wrapped = nn.Module()
    wrapped.add_module("layers", net)
    torch.testing.assert_close(interval_margins(wrapped, u, y, 0.1), interval_margins(net, u, y, 0.1))


def test_training_makes_a_model_certifiable():
    """Two classes apart by .6 in one coordinate and noise in the others: robust training certifies what plain training
    does not."""
    g = torch.Generator().manual_seed(0)
    y = torch.randint(2, (400,), generator=g)
    u = torch.rand(400, 6, generator=g)
    u[:, 0] = 0.2 + 0.6 * y
    u[:, 1:] += 0.05 * (2 * y[:, None] - 1)  # a weak cue that large weights would use
    certified = {}
    for name in ("plain", "interval"):
        m = ImplicitModel(6, 2, 8, bias=True, seed=0)
        optimiser = torch.optim.Adam(m.parameters(), 0.02)
        for step in range(150):
            optimiser.zero_grad()
            eps = ramp(step, 20, 100, 0.0, 0.2)
            loss = interval_training_loss(m, u, y, eps, clean=1.0 if name == "plain" else 0.1)
            loss.backward()
            optimiser.step()
            m.project_()
        margin = interval_margins(m, u, y, 0.2)
        margin[torch.arange(400), y] = 1
        certified[name] = float((margin > 0).all(1).float().mean())
        assert (m(u).argmax(1) == y).float().mean() > 0.99
    assert certified["interval"] > 0.95 > certified["plain"]


def test_ramp():
    assert [ramp(s, 10, 20, 0.0, 1.0) for s in (0, 10, 15, 20, 30)] == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert ramp(5, 5, 5, 0.0, 2.0) == 2.0
    with pytest.raises(ValueError, match="stop"):
        ramp(0, 3, 2, 0.0, 1.0)


def test_a_diagonal_below_minus_one_agrees_with_the_verified_interval():
    A = torch.tensor([[-3.0, 0.5], [0.4, -2.0]], dtype=torch.float64)
    g = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=g)
    m = ImplicitModel.from_matrices(
        A, draw(2, 4), draw(3, 2), draw(3, 4), b=torch.ones(2, dtype=torch.float64), tol=1e-12
    )
    u, y = samples(1)
    eye = np.eye(3)
    verified = bounds(m, u, 0.1, method="interval", spec=np.stack([eye[k] - eye for k in y])).lb
    np.testing.assert_allclose(interval_margins(m, u, y, 0.1).detach(), verified, atol=1e-9)
    interval_training_loss(m, u, y, 0.1).backward()
    assert torch.isfinite(m.A.grad).all() and float(m.A.grad.abs().max()) > 0


@pytest.mark.filterwarnings("ignore::implicit_models.equilibrium.convergence.NotConverged")
def test_a_nan_a_single_sample_and_a_single_class():
    m = model(6)
    u, y = samples(6)
    broken = u.clone()
    broken[1] = float("nan")
    found, clean = interval_margins(m, broken, y, 0.1), interval_margins(m, u, y, 0.1)
    assert found[1].isnan().all() and torch.equal(found[[0, 2, 3, 4]], clean[[0, 2, 3, 4]])
    torch.testing.assert_close(interval_margins(m, u[2:3], y[2:3], 0.1), clean[2:3], rtol=1e-9, atol=1e-9)
    assert interval_margins(m, u[:0], y[:0], 0.1).shape == (0, 3)
    single = model(6, q=1)
    assert float(interval_margins(single, u, torch.zeros_like(y), 0.1).detach().abs().max()) == 0
    assert float(interval_training_loss(single, u, torch.zeros_like(y), 0.1)) == 0


def test_bad_models_and_arguments_are_named():
    m, (u, y) = model(0), samples(0)
    with pytest.raises(ValueError, match="not negative, got -0.1"):
        interval_margins(m, u, y, -0.1)
    with pytest.raises(ValueError, match=r"radius must be a number or have shape \(4,\) or .*got \(3,\)"):
        interval_margins(m, u, y, Box(np.zeros(3)))
    with pytest.raises(TypeError, match="inputs must be a Box, .*got SparseBox"):
        interval_margins(m, u, y, SparseBox(0.1, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="class indices"):
        interval_margins(m, u, y.double(), 0.1)
    with pytest.raises(ValueError, match="sample 0 has class 3"):
        interval_margins(m, u, torch.full_like(y, 3), 0.1)
    with pytest.raises(ValueError, match="float64 of shape"):
        interval_margins(m, u.float(), y, 0.1)
    with pytest.raises(ValueError, match="clip range"):
        interval_margins(m, u + 5, y, Box(0.1, (0, 1)))
    with pytest.raises(ValueError, match="clean"):
        interval_training_loss(m, u, y, 0.1, clean=2.0)
    with pytest.raises(TypeError, match="softmax"):
        interval_margins(model(0, activation="softmax"), u, y, 0.1)
    with pytest.raises(NotCertified):
        interval_margins(model(0, norm=3.0), u, y, 0.1)
    with pytest.raises(TypeError, match="Conv1d"):
        interval_margins(nn.Sequential(nn.Conv1d(1, 1, 1), nn.Linear(4, 3)), u, y, 0.1)
    with pytest.raises(TypeError, match="ends with a linear layer"):
        interval_margins(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), u, y, 0.1)
