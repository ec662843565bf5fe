"""Operators, windows and lines: against matrices, sums written out, and grids."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from implicit_models.activations import resolve_activation
from implicit_models.robustness.layered.lines import lines
from implicit_models.robustness.layered.operators import Convolution, Dense, Diagonal, Sparse
from implicit_models.robustness.layered.windows import single


def matrix_of(L):
    """(outputs, inputs), column by column."""
    return L.forward(torch.eye(L.inputs, dtype=torch.float64)).T


def convolution(rng, *, groups=1, stride=(1, 1), padding=(0, 0), dilation=(1, 1), size=(7, 8), kernel=(3, 2)):
    weight = torch.from_numpy(rng.normal(size=(4, 2 // groups, *kernel)))
    out = F.conv2d(torch.zeros(1, 2, *size, dtype=torch.float64), weight, None, stride, padding, dilation, groups)
    return Convolution(weight, (2, *size), tuple(out.shape[1:]), stride, padding, dilation, groups)


CONVOLUTIONS = [
    {},
    {"stride": (2, 3), "padding": (1, 1)},
    {"dilation": (2, 1), "padding": (2, 0)},
    {"groups": 2, "stride": (2, 2), "size": (6, 9)},
    {"kernel": (1, 1), "stride": (2, 2)},
    {"kernel": (7, 8)},
]


@pytest.mark.parametrize("kind", ["dense", "sparse", "diagonal", *range(len(CONVOLUTIONS))])
def test_transposes_and_absolute_values_are_those_of_the_matrix(kind):
    rng = np.random.default_rng(0)
    L = {
        "dense": lambda: Dense(torch.from_numpy(rng.normal(size=(4, 6)))),
        "sparse": lambda: Sparse(sp.random_array((9, 7), density=0.3, rng=rng, format="csr")),
        "diagonal": lambda: Diagonal(torch.from_numpy(rng.normal(size=5))),
    }.get(kind, lambda: convolution(rng, **CONVOLUTIONS[kind]))()
    M = matrix_of(L)
    assert M.shape == (L.outputs, L.inputs)
    x, y = (torch.from_numpy(rng.normal(size=(3, k))) for k in (L.inputs, L.outputs))
    torch.testing.assert_close(L.transposed(y), y @ M)
    torch.testing.assert_close(L.absolute(x.abs()), x.abs() @ M.abs().T)
    assert (L.row_sums >= M.abs().sum(1)).all()
    torch.testing.assert_close(L.row_sums, M.abs().sum(1))
    assert L.terms >= max((M != 0).sum(0).max(), (M != 0).sum(1).max())


@pytest.mark.parametrize("options", CONVOLUTIONS)
def test_windows_are_rows_of_the_matrix(options):
    rng = np.random.default_rng(1)
    L = convolution(rng, **options)
    M, every = matrix_of(L), torch.arange(L.outputs).reshape(1, -1)
    windows, entries = single(every, L.out_shape, torch.float64)
    torch.testing.assert_close(windows.scattered(entries)[0], torch.eye(L.outputs, dtype=torch.float64))
    back, entries = windows.carried(L, entries)
    torch.testing.assert_close(back.scattered(entries)[0], M)
    values = torch.from_numpy(rng.normal(size=(1, L.inputs)))
    torch.testing.assert_close((entries * back.gather(values)).sum(2), values @ M.T)
    at, more = back.carried(same(L.shape), 2 * entries)
    wider, sums = back.union(entries, at, more)
    torch.testing.assert_close(wider.scattered(sums)[0], 3 * M)


def same(shape):
    """A convolution that changes nothing but the size of the window: 3 x 3 with a one in the middle."""
    weight = torch.zeros(shape[0], 1, 3, 3, dtype=torch.float64)
    weight[:, 0, 1, 1] = 1
    return Convolution(weight, shape, shape, (1, 1), (1, 1), (1, 1), shape[0])


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(["relu", "leaky_relu(0.3)", "identity", "tanh", "sigmoid"]),
    low=st.floats(-30, 30),
    width=st.floats(0, 40),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_no_line_cuts_its_unit(name, low, width, dtype):
    act, high = resolve_activation(name, 1), low + width
    ends = (torch.tensor([[v]], dtype=torch.float64) for v in (low, high))
    line = lines(act, *ends, dtype)
    z = np.linspace(low, high, 4001)[:, None]
    z = np.clip(np.concatenate([z, [[0.0]]]) if low < 0 < high else z, low, high)
    x = act(z)
    room = 1e-15 * (1 + np.abs(z))  # of the evaluation here
    below, above = (
        slope.double().numpy() * z + at.double().numpy()
        for slope, at in ((line.low_slope, line.low_at), (line.high_slope, line.high_at))
    )
    assert (below <= x + room).all() and (x <= above + room).all()
    if name == "relu" and low < 0 < high and width > 1e-3:  # the chord
        assert float(line.high_slope) == pytest.approx(high / (high - low), rel=1e-6)


def test_the_line_of_a_maximum_reads_its_largest_entry():
    act = resolve_activation([("max_pool", 3)], 3)
    zl, zh = (torch.tensor([v], dtype=torch.float64) for v in ([0.0, 1.0, -1.0], [0.5, 2.0, 1.5]))
    line = lines(act, zl, zh, torch.float64)
    assert line.low_slope.tolist() == [[0, 1, 0]] and line.high_slope.tolist() == [[0, 0, 0]]
    assert line.high_at[0, 0] == 2.0
    sure = lines(act, zl, torch.tensor([[0.5, 2.0, 1.0]], dtype=torch.float64), torch.float64)
    assert sure.high_slope.tolist() == [[0, 1, 0]] and sure.high_at.tolist() == [[0, 0, 0]]
