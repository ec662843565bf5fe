"""Kernels for all positions: the network's own are its own, problems agree with plain least squares, models with the
library's, counts with brute force."""

import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.sim.layerwise import sparsify
from implicit_models.sim.network.layers import INPUT, read_layers
from implicit_models.sim.network.shared_problem import shared_problem
from implicit_models.sim.problem import Cardinality
from implicit_models.sim.row_models import SharedKernels
from reproduction.ch3_resnet20_cifar import kernel_rows as k
from reproduction.models.resnet20 import Block


class Small(nn.Module):
    """Two stages as a ResNet-20 has them: a shortcut of equal size, and one that halves the image and pads channels."""

    def __init__(self):
        super().__init__()
        self.conv1, self.relu = nn.Conv2d(3, 4, 3, 1, 1), nn.ReLU()
        self.one, self.two = Block(4, 4, 1), Block(4, 8, 2)
        self.linear = nn.Linear(8, 5)

    def forward(self, u):
        return self.linear(self.two(self.one(self.relu(self.conv1(u)))).mean((2, 3)))


@pytest.fixture(scope="module")
def network():
    generator = torch.Generator().manual_seed(3)
    model = Small().double().eval().requires_grad_(False)
    for p in model.parameters():
        p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64) * (0.4 if p.ndim > 1 else 0.2))
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
        if name.endswith("running_var"):
            buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
    return model


@pytest.fixture(scope="module")
def layers(network):
    return read_layers(network, (3, 8, 8))


@pytest.fixture(scope="module")
def images():
    return torch.rand(30, 3, 8, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def test_own_kernels_are_the_folded_weights(network, layers):
    block = network.two
    for number, conv, norm in ((3, block.conv1, block.bn1), (4, block.conv2, block.bn2)):
        kernels, bias = k.own_kernels(layers, number)
        factor = (norm.weight / torch.sqrt(norm.running_var + norm.eps)).numpy()
        before = number - 1
        wanted = (conv.weight.flatten(2) * torch.from_numpy(factor)[:, None, None]).numpy()
        assert kernels[before] == pytest.approx(wanted, abs=1e-12)
        assert bias == pytest.approx((norm.bias - norm.running_mean * torch.from_numpy(factor)).numpy(), abs=1e-12)
    # Option A: channel c of the shortcut comes from channel c - 2, the first and last two from none.
    assert k.own_kernels(layers, 4)[0][2][:, :, 0] == pytest.approx(np.eye(8, 4, -2), abs=1e-12)


def test_model_of_the_own_kernels_is_the_network(network, layers, images):
    model = k.KernelModel(layers)
    for block in range(1, len(layers.blocks)):
        model.set(block, *k.own_kernels(layers, block))
    assert (model(images) - network(images)).abs().max() < 1e-10
    own = {
        "numbers": sum(layers.kernel_weights(b) for b in range(5)),
        "entries": sum(layers.entries(b) for b in range(5)),
    }
    shortcuts = {"numbers": 4 + 4, "entries": 4 * 64 + 4 * 16}  # one weight a channel that has a source
    assert model.counts()["entries"] == own["entries"]
    assert model.counts()["numbers"] == own["numbers"] + shortcuts["numbers"]


def test_problem_is_that_of_the_windows(layers, images):
    """Columns gathered pixel by pixel, a least-squares solution by numpy."""
    known, targets = {INPUT: images}, {}
    for block in range(len(layers.blocks)):
        targets[block] = layers.affine(block, known)
        known[block] = layers.apply(block, targets[block])
    problem = shared_problem(layers, 4, layers.blocks[4].sources, known, targets[4])
    x, skip, z = known[3].numpy(), known[2].numpy(), targets[4].numpy()
    rows, goal = [], []
    for n in range(len(x)):
        padded = np.pad(x[n], ((0, 0), (1, 1), (1, 1)))
        for i in range(4):
            for j in range(4):
                rows.append(
                    np.concatenate(
                        [skip[n][:, 2 * i, 2 * j], padded[:, i : i + 3, j : j + 3].transpose(1, 2, 0).reshape(-1)]
                    )
                )
                goal.append(z[n][:, i, j])
    M, Z = np.array(rows), np.array(goal)
    assert list(problem.source[:4]) == [2] * 4 and len(problem.G) == 4 + 72
    M, Z = M - M.mean(0), Z - Z.mean(0)
    live = M.std(0) > 1e-9
    M[:, live] /= M[:, live].std(0)
    assert problem.G == pytest.approx(M.T @ M * np.outer(live, live), abs=1e-7 * len(M))
    assert problem.C == pytest.approx((Z / Z.std(0)).T @ M * live, abs=1e-7 * len(M))
    assert problem.zz == pytest.approx(len(M))
    rng = np.random.default_rng(0)
    support = rng.random(problem.C.shape) < 0.3
    A = k.restricted(problem, support, ridge=0.0)
    on = np.flatnonzero(support[2] & live)
    assert A[2, on] == pytest.approx(np.linalg.lstsq(M[:, on], Z[:, 2] / Z[:, 2].std(), rcond=None)[0], abs=1e-6)
    assert not A[~support].any()
    rest = Z / Z.std(0) - M @ A.T
    weight = Z.std(0) ** 2
    assert problem.explained(A) == pytest.approx(
        1 - float(((rest**2).sum(0) * weight).sum() / ((Z**2).sum())), abs=1e-8
    )
    assert problem.rows(problem.kernels(A)[0]) == pytest.approx(A, abs=1e-12)


def test_a_column_that_is_constant_where_it_is_read_is_dead(layers, images):
    """The shortcut reads every second pixel: a channel that varies between them only is a constant column, whatever its
    mean over all pixels is."""
    known, targets = {INPUT: images}, {}
    for block in range(len(layers.blocks)):
        targets[block] = layers.apply(block, layers.affine(block, known))
        known[block] = targets[block].clone()
    known[2][:, 1] = 0.0
    known[2][:, 1, 1::2, 1::2] = torch.rand(
        len(images), 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    for dtype in (torch.float64, torch.float32):
        problem = shared_problem(
            layers,
            4,
            layers.blocks[4].sources,
            {s: v.to(dtype) for s, v in known.items()},
            layers.affine(4, known).to(dtype),
        )
        assert problem.G[1, 1] == 0 and np.abs(problem.G).max() <= problem.count * (1 + 1e-5)
        assert np.linalg.eigvalsh(problem.G)[0] > -1e-4 * problem.count


def test_fit_on_all_columns_is_the_network(network, layers, images):
    model, fit = k.fit_kernels(layers, images, lambda block, p: k.restricted(p, np.ones(p.C.shape, bool), ridge=1e-12))
    assert min(fit.values()) > 1 - 1e-8
    assert (model(images) - network(images)).abs().max() < 1e-4 * network(images).abs().max()


def test_student_reads_its_own_states(network, layers, images):
    """The second fit of a model whose first block is broken is no longer that of the network's states."""
    seen = {}
    for student in (False, True):
        problems = {}

        def solve(block, problem, problems=problems):
            problems[block] = problem
            return np.zeros(problem.C.shape) if block == 1 else k.restricted(problem, np.ones(problem.C.shape, bool))

        k.fit_kernels(layers, images, solve, student=student)
        seen[student] = problems
    assert seen[True][1].G == pytest.approx(seen[False][1].G)
    # Rows of zeros make block 1 constant: what block 2 reads of it in the middle of its windows does not vary, and at
    # their borders it is 0 or that constant.
    middle = (seen[True][2].source == 1) & (seen[True][2].tap == 4)
    assert not np.diag(seen[True][2].G)[middle].any() and np.diag(seen[False][2].G)[middle].any()


def test_refit_of_the_library_s_support_is_the_library_s_model(network, layers, images):
    """The same kernels from `sparsify` with shared kernels: supports, weights and outputs."""
    theirs = sparsify(network, images, Cardinality(0.25), SharedKernels(min_active=0.0), head=False)
    supports = {}
    for block in theirs.fitted:
        A = getattr(theirs, f"A{block}").to_dense().numpy()
        b = layers.blocks[block]
        w = b.positions // 2 + 1 if len(b.shape) < 2 else (b.shape[1] // 2) * b.shape[2] + b.shape[2] // 2
        offsets, at = {}, 0
        for s in sorted(b.sources):
            offsets[s], at = at, at + int(np.prod(layers.shape_of(s)))
        mask = {
            s: np.stack(
                [
                    np.stack(
                        [
                            A[
                                np.arange(b.channels) * b.positions + w,
                                offsets[s] + c * int(np.prod(layers.shape_of(s)[1:])) + p,
                            ]
                            for p in index[w]
                        ],
                        1,
                    )
                    for c in range(layers.shape_of(s)[0])
                ],
                1,
            )
            != 0
            for s, index in b.sources.items()
        }
        supports[block] = mask
    model, _ = k.fit_kernels(
        layers,
        images,
        lambda block, p: k.restricted(p, p.rows({s: v.astype(float) for s, v in supports[block].items()}) != 0),
    )
    assert (model(images) - theirs(images)).abs().max() < 1e-6 * theirs(images).abs().max()
    assert model.counts()["entries"] == theirs.report.entries
    assert model.counts()["numbers"] == theirs.report.parameters


def test_largest_keeps_the_first_of_equals():
    mask = k.largest(np.array([[3.0, -3.0], [1.0, 3.0]]), 0.5)
    assert mask.tolist() == [[True, True], [False, False]]
    assert k.largest(np.zeros(5), 0.0).sum() == 0


def test_head_is_ridge_regression(network, layers, images):
    from sklearn.linear_model import Ridge

    model = k.KernelModel(layers)
    weight, bias = k.fitted_head(model, images, network(images), ridge=0.0)
    X = layers.features(model.states(images)).numpy()
    fit = Ridge(alpha=1e-12).fit(X, network(images).numpy())
    assert (images.new_tensor(X) @ weight.t() + bias - network(images)).abs().max() < 1e-6
    assert np.abs(fit.predict(X) - (X @ weight.numpy().T + bias.numpy())).max() < 1e-6
    # A feature that does not vary gets no weight.
    dead = Small().double().eval().requires_grad_(False)
    dead.load_state_dict(network.state_dict())
    dead.two.bn2.weight[0], dead.two.bn2.bias[0] = 0.0, -100.0
    weight, _ = k.fitted_head(k.KernelModel(read_layers(dead, (3, 8, 8))), images, network(images))
    assert not weight[:, 0].any() and weight[:, 1:].any()


def test_a_window_that_is_no_square_is_refused(layers):
    with pytest.raises(ValueError, match="window of 6 taps"):
        k.KernelModel(layers).set(1, {0: np.zeros((4, 4, 6))}, np.zeros(4))
