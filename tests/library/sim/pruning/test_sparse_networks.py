"""Shares of a network's weights: what is left, what is proved, and the network of every kind that they are taken of."""

import copy
import io
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from implicit_models.sim import (
    ByPosition,
    Cardinality,
    OptimalBrainSurgeon,
    Parallel,
    Refit,
    Share,
    SharedKernels,
    Tolerance,
    load_state,
    sparsify,
    sparsify_path,
)
from implicit_models.sim.pruning.layers import plan
from implicit_models.tracing.reading import read
from trained_networks import error, images, trained

QUIET = Parallel(progress=False)
FEW = SharedKernels(supports=OptimalBrainSurgeon(rounds=1, samples=60))


class Residual(nn.Module):
    """Two blocks, one with a projection, of which the second sum has a layer that only the shortcut reads."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.a, self.na = nn.Conv2d(6, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.b, self.nb = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.project = nn.Conv2d(6, 8, 1, stride=2)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        y = self.nb(self.b(F.relu(self.na(self.a(x)))))
        x = F.relu(y + self.project(x))
        return self.head(x.mean((2, 3)))


def zeros(network):
    return sum(
        int((m.weight == 0).sum()) for m in network.modules() if isinstance(m, (nn.Conv1d, nn.Conv2d, nn.Linear))
    )


def weights(network):
    return sum(m.weight.numel() for m in network.modules() if isinstance(m, (nn.Conv1d, nn.Conv2d, nn.Linear)))


@pytest.fixture(scope="module")
def residual():
    return trained(Residual(), (3, 9, 7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_weights_are_the_network_itself(residual, dtype):
    network, u = copy.deepcopy(residual).to(dtype), images().to(dtype)
    model = sparsify(network, u, Share(1.0), FEW, parallel=QUIET)
    v = images(seed=2).to(dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    with torch.no_grad():
        assert torch.allclose(model(v), network(v), rtol=0, atol=tolerance * float(network(v).abs().max()))
    assert model.report.share == 1.0 and model(v).dtype == dtype


@pytest.mark.parametrize("share", [0.7, 0.31, 0.05, 0.0])
def test_as_many_weights_are_left_as_asked_for(residual, share):
    model = sparsify(residual, images(), Share(share), FEW, parallel=QUIET)
    left = round(share * weights(residual))
    assert weights(residual) - zeros(model.dense()) == left == model.report.left
    assert sum(layer.left for layer in model.report.layers) == left
    assert np.isfinite(error(model, residual, images(seed=2)))


def test_more_weights_lose_less_and_several_shares_are_each_what_they_are_alone(residual):
    u, v = images(), images(seed=2)
    models = sparsify_path(residual, u, [Share(0.3), Share(0.8), Share(0.5)], FEW, parallel=QUIET, held_out=v)
    lost = [error(m, residual, v) for m in models]
    assert lost[1] < lost[2] < lost[0] < 1
    assert [m.report.held_out for m in models] == pytest.approx(lost, rel=1e-4)
    alone = sparsify(residual, u, Share(0.5), FEW, parallel=QUIET)
    with torch.no_grad():
        assert torch.equal(alone(v), models[2](v))


def test_it_is_far_better_than_magnitudes(residual):
    u, v = images(400), images(seed=2)
    magnitude = copy.deepcopy(residual)
    own = [m.weight for m in magnitude.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    least = torch.cat([w.detach().abs().flatten() for w in own]).kthvalue(round(0.6 * weights(residual))).values
    with torch.no_grad():
        for w in own:
            w[w.abs() <= least] = 0
    model = sparsify(residual, u, Share(0.4), FEW, parallel=QUIET)
    assert error(model, residual, v) < 0.5 * error(magnitude, residual, v)


def test_certificates_hold(residual):
    report = sparsify(residual, images(), Share(0.4), FEW, parallel=QUIET).report
    for layer in report.layers:
        assert layer.columns.sum() == layer.left and len(layer.columns) == len(layer.effect)
        assert (layer.bound <= layer.rise * (1 + 1e-9) + 1e-12).all() and layer.slope.max() < 1e-8
        assert (layer.loss >= 0).all() and 0 <= layer.proved <= 1
    text = report.text()
    assert "project" in text and "not proved" in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_a_dense_layer_of_one_row_block_is_ridge_regression():
    """One linear layer, all columns kept in the end: the closed form of ridge regression towards its own weights."""
    network = trained(nn.Sequential(nn.Linear(5, 3)), (5,))
    u = images(80, (5,)).double()
    network = network.double()
    how = OptimalBrainSurgeon(rounds=0, ridge=1e-2)
    model = sparsify(network, u, Share(9 / 15), SharedKernels(supports=how), parallel=QUIET)
    W = network[0].weight.detach().numpy()
    X = u.numpy() - u.numpy().mean(0)
    ridge = 1e-2 * (X**2).mean()
    H = X.T @ X / len(X) + ridge * np.eye(5)
    C = W @ (X.T @ X) / len(X) + ridge * W
    found = model.dense()[0].weight.detach().numpy()
    assert (found != 0).sum() == 9
    for w, c in zip(found, C, strict=True):
        S = np.flatnonzero(w)
        assert w[S] == pytest.approx(np.linalg.solve(H[np.ix_(S, S)], c[S]), rel=1e-9)
    z = network(u).detach().numpy()
    bias = z.mean(0) - found @ u.numpy().mean(0)
    assert model.dense()[0].bias.detach().numpy() == pytest.approx(bias, rel=1e-9)


def test_the_cheapest_layer_pays_by_its_effect():
    """Two linear maps side by side, whose errors count 100 to 1 in the output: the first keeps its weights."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(12, 4, bias=False), nn.Linear(12, 4, bias=False)

        def forward(self, x):
            return 10 * torch.tanh(0.01 * self.a(x)) + 0.1 * torch.tanh(0.01 * self.b(x))

    network = trained(Two(), (12,))
    report = sparsify(network, images(200, (12,)), Share(0.5), FEW, parallel=QUIET).report
    left = {layer.name: layer.left for layer in report.layers}
    assert left["a"] == 48 and left["b"] == 0
    equal = SharedKernels(supports=OptimalBrainSurgeon(rounds=0, effects=False))
    report = sparsify(network, images(200, (12,)), Share(0.5), equal, parallel=QUIET).report
    assert all(12 < layer.left < 36 for layer in report.layers)


NETWORKS = {
    "grouped": (
        nn.Sequential(nn.Conv2d(4, 8, 3, groups=2, padding=1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)),
        (4, 5, 7),
    ),
    "depthwise": (
        nn.Sequential(
            nn.Conv2d(3, 6, 1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU6(),
            nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 4, 1),
            nn.Flatten(),
            nn.LazyLinear(3),
        ),
        (3, 7, 5),
    ),
    "strided and dilated": (
        nn.Sequential(
            nn.Conv2d(2, 5, (3, 2), stride=(2, 1), dilation=(1, 2)), nn.LeakyReLU(0.1), nn.Flatten(), nn.LazyLinear(2)
        ),
        (2, 9, 8),
    ),
    "reflected": (
        nn.Sequential(
            nn.Conv2d(2, 5, 3, padding=1, padding_mode="reflect"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.LazyLinear(2),
        ),
        (2, 6, 6),
    ),
    "same": (nn.Sequential(nn.Conv1d(2, 5, 4, padding="same"), nn.Tanh(), nn.Flatten(), nn.LazyLinear(2)), (2, 9)),
    "dense": (
        nn.Sequential(
            nn.Linear(6, 9), nn.ReLU(), nn.BatchNorm1d(9), nn.Linear(9, 9, bias=False), nn.ReLU(), nn.Linear(9, 2)
        ),
        (6,),
    ),
    "one module": (nn.Linear(6, 3, bias=False), (6,)),
    "rows behind": (nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.Flatten(), nn.Linear(12, 2)), (3, 6)),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_networks_of_many_kinds(name, share):
    network, shape = copy.deepcopy(NETWORKS[name][0]), NETWORKS[name][1]
    network(torch.randn(2, *shape))  # gives lazy modules their shapes
    network = trained(network, shape)
    u, v = images(150, shape), images(60, shape, seed=5)
    model = sparsify(network, u, Share(share), FEW, parallel=QUIET)
    assert zeros(model.dense()) == weights(network) - round(share * weights(network))
    assert type(model.dense()) is type(network)
    assert error(model, network, v) < (1e-10 if share == 1 else 0.9)
    with torch.no_grad():
        assert torch.allclose(model.dense()(v), model(v))


def test_a_shortcut_is_made_good_by_the_larger_kernel(residual):
    """The projection, which only the shortcut reads, comes first, and the sum's last layer ends at the ReLU."""
    layers = {layer.name: layer for layer in plan(read(residual, (3, 9, 7))).layers}
    assert list(layers).index("project") < list(layers).index("b")
    assert [type(step).__name__ for step in layers["b"].chain] == ["Normalisation", "Sum"]
    assert layers["b"].one_sided and not layers["project"].one_sided and layers["project"].chain == ()
    assert layers["b"].bias == "nb.running_mean" and layers["project"].bias == "project.bias"


def test_targets_take_the_shortcut_off(residual):
    """With all weights of its last layer left, a block makes good what its projection lost: less is lost than with the
    teacher's own values as targets."""
    from implicit_models.sim.pruning.passes import run_pass

    u = images()
    planned = plan(read(residual, (3, 9, 7)))
    seen = {}

    def visit(k, layer, x, target):
        seen[layer.name] = [t.clone() for t in target(slice(0, 10))]
        weight = layer.kernels() * (0.0 if layer.name == "project" else 1.0)
        return layer.with_kernels(weight, np.zeros(layer.rows))

    run_pass(planned, u, visit)
    with torch.no_grad():
        x = F.relu(residual.norm(residual.first(u[:10])))
        p = residual.nb(residual.b(F.relu(residual.na(residual.a(x))))) + residual.project(x)
    factor, shift = residual.nb.weight / (residual.nb.running_var + residual.nb.eps).sqrt(), residual.nb.running_mean
    rest = residual.nb.bias - factor * shift  # the projection gives nothing now
    z, s = seen["b"]
    assert torch.allclose(s, rest[None, :, None].expand_as(s), atol=1e-5)
    assert torch.allclose(z, p.flatten(2) - rest[None, :, None], atol=1e-4)


def test_a_layer_without_effect_loses_all_its_weights():
    network = trained(Residual(), (3, 9, 7))
    with torch.no_grad():
        network.nb.weight.zero_()  # what b computes is multiplied by zero, and so all that only b reads
    model = sparsify(network, images(), Share(0.1), FEW, parallel=QUIET)
    left = {layer.name: layer.left for layer in model.report.layers}
    assert left["a"] == left["b"] == 0 < left["project"]
    assert error(model, network, images(seed=2)) < 0.05


def test_dead_channels_and_constant_pixels_lose_their_weights_first():
    network = trained(Residual(), (3, 9, 7))
    with torch.no_grad():
        network.norm.weight[2], network.norm.bias[2] = 0.0, -1.0  # never opens
    u = images()
    u[:, 1] = 0.5  # a constant plane
    model = sparsify(network, u, Share(0.6), FEW, parallel=QUIET)
    dense = model.dense()
    assert not dense.first.weight[2].any() and not dense.a.weight[:, 2].any() and not dense.project.weight[:, 2].any()
    v = images(seed=2)
    v[:, 1] = 0.5
    assert error(model, network, v) < 0.2


def test_fewer_samples_than_columns():
    network = trained(nn.Sequential(nn.Linear(40, 10), nn.ReLU(), nn.Linear(10, 3)), (40,))
    model = sparsify(network, images(12, (40,)), Share(0.5), FEW, parallel=QUIET)
    assert model.report.left == round(0.5 * 430)
    assert error(model, network, images(12, (40,))) < 0.05
    assert np.isfinite(error(model, network, images(50, (40,), seed=3)))


def test_weights_that_are_used_twice_stay_and_count():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.b(F.relu(self.a(F.relu(self.a(x)))))

    network = trained(Twice(), (6,))
    model = sparsify(network, images(50, (6,)), Share(0.85), FEW, parallel=QUIET)
    assert model.report.stays == {"a.weight": 36} and model.report.left == round(0.85 * 48)
    assert torch.equal(model.dense().a.weight, network.a.weight)
    with pytest.raises(ValueError, match="share 0.5 of 48 weights is less than the 36 that stay as they are: a.weight"):
        sparsify(network, images(50, (6,)), Share(0.5), FEW, parallel=QUIET)


def test_a_bias_that_is_used_twice_keeps_its_layers():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 5), nn.Linear(6, 5)
            self.b.bias = self.a.bias

        def forward(self, x):
            return self.a(x) - F.relu(self.b(x))

    network = trained(Tied(), (6,))
    assert dict(plan(read(network, (6,))).kept) == {"a.weight": 30, "b.weight": 30}


def test_the_head_stays_if_asked_for(residual):
    model = sparsify(residual, images(), Share(0.3), FEW, head=False, parallel=QUIET)
    assert torch.equal(model.dense().head.weight, residual.head.weight)
    assert model.report.stays == {"head.weight": 32} and model.report.left == round(0.3 * weights(residual))


def test_the_network_stays_as_it_was(residual):
    before = copy.deepcopy(residual.state_dict())
    sparsify(residual, images(), Share(0.3), FEW, parallel=QUIET)
    assert all(torch.equal(t, before[name]) for name, t in residual.state_dict().items())


def test_the_samples_stay_as_they_were_though_the_first_step_is_in_place():
    network = trained(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)), (8,))
    u, v = images(120, (8,)), images(150, (8,), seed=2)
    before, others = u.clone(), v.clone()
    model = sparsify(network, u, Share(0.5), FEW, parallel=QUIET, held_out=v)
    assert torch.equal(u, before) and torch.equal(v, others)
    with torch.no_grad():
        y, z = network(others.clone()), model(others.clone())
    assert model.report.held_out == pytest.approx(float(((y - z) ** 2).sum() / ((y - y.mean(0)) ** 2).sum()), rel=1e-4)


def multiplied_by_zero():
    """Of the first layer's six rows three are multiplied by 0 in the batch norm behind it."""
    network = trained(
        nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(54, 3)), (2, 5, 5)
    )
    with torch.no_grad():
        network[1].weight[:3] = 0.0
    return network


def test_rows_that_are_multiplied_by_zero_keep_the_networks_own_weights():
    network, u = multiplied_by_zero(), images(60, (2, 5, 5))
    whole = sparsify(network, u, Share(1.0), FEW, parallel=QUIET).dense().state_dict()
    assert all(torch.equal(t, whole[name]) for name, t in network.state_dict().items())
    model = sparsify(network, u, Share(0.9), FEW, head=False, parallel=QUIET)  # 27 of the 54 weights without effect go
    w, own = model.dense()[0].weight[:3], network[0].weight[:3]
    assert int((w != 0).sum()) == 27 and bool(((w == own) | (w == 0)).all())
    assert torch.equal(model.dense()[0].bias[:3], network[0].bias[:3])
    assert model.report.left == round(0.9 * 270) == 270 - zeros(model.dense())


def test_weights_that_were_zero_are_not_left():
    network = trained(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)), (8,))
    with torch.no_grad():
        network[0].weight[:, :3] = 0.0
        network[2].weight[0] = 0.0
    u = images(80, (8,))
    for share in (1.0, 0.7):  # of 60 weights 36 are not zero
        model = sparsify(network, u, Share(share), FEW, parallel=QUIET)
        assert model.report.left == 36 and [layer.left for layer in model.report.layers] == [30, 6]
        assert model.report.layers[1].columns.tolist() == [0, 6]
        assert all(torch.equal(t, network.state_dict()[name]) for name, t in model.dense().state_dict().items())
    alone = sparsify(network, u, Share(0.9), FEW, head=False, parallel=QUIET)
    assert alone.report.stays == {"2.weight": 12} and alone.report.left == 36
    network[0].weight.data.zero_()
    assert sparsify(network, u, Share(0.5), FEW, parallel=QUIET).report.layers[0].left == 0


def test_biases_are_added_where_weights_went_and_nowhere_else(tmp_path):
    layers = (nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 4, bias=False))
    network, u = trained(nn.Sequential(*layers), (8,)), images(100, (8,)).abs()
    whole = sparsify(network, u, Share(1.0), FEW, parallel=QUIET)
    assert set(whole.dense().state_dict()) == set(network.state_dict()) and whole.report.biases == {}
    with torch.no_grad():
        network[2].weight *= 1e4  # of its weights none goes, though it reads what is sparse
    half = sparsify(network, u, Share(0.9), SharedKernels(supports=OptimalBrainSurgeon(effects=False)), parallel=QUIET)
    assert half.report.layers[1].left == 64 and half.report.biases == {"0.bias": 16}
    assert "0.bias is new, 16 biases" in half.report.text()
    assert half.dense()[0].bias is not None and half.dense()[2].bias is None
    half.save(tmp_path / "half.npz")
    half.dense().load_state_dict(load_state(tmp_path / "half.npz"))
    with pytest.raises(RuntimeError, match="0.bias"):
        copy.deepcopy(network).load_state_dict(load_state(tmp_path / "half.npz"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_whole_network_is_proved_the_best(residual, dtype):
    network, u = copy.deepcopy(residual).to(dtype), images().to(dtype)
    report = sparsify(network, u, Share(1.0), FEW, parallel=QUIET).report
    assert [layer.proved for layer in report.layers] == [1.0] * 5
    half = sparsify(network, u, Share(0.5), FEW, parallel=QUIET).report
    assert all(layer.lost > 0 for layer in half.layers if layer.left < layer.weights)


def test_it_works_in_inference_mode_and_on_tensors_made_in_it():
    shape = (3, 9, 7)
    with torch.inference_mode():
        made, u, v = Residual().eval(), images(), images(seed=2)
    network, data = trained(Residual(), shape), images()
    wanted = sparsify(network, data, Share(0.5), FEW, parallel=QUIET, held_out=images(seed=2))
    with torch.inference_mode():
        inside = sparsify(network, u, Share(0.5), FEW, parallel=QUIET, held_out=v)
        assert torch.equal(inside(v), wanted(v)) and inside.report.held_out == wanted.report.held_out
    assert not any(t.is_inference() for t in inside.dense().state_dict().values())
    outside = sparsify(network, u, Share(0.5), FEW, parallel=QUIET, held_out=v)
    own = sparsify(made, data, Share(0.5), FEW, parallel=QUIET)
    with torch.inference_mode():
        assert torch.equal(outside(v), wanted(v))
        assert torch.equal(sparsify(made, u, Share(0.5), FEW, parallel=QUIET)(v), own(v))


@pytest.mark.parametrize(
    "choice",
    [{"cap": 4}, {"refit": None}, {"refit": Refit(ridge=0.1)}, {"min_active": 5.0}, {"tolerance": Tolerance()}],
)
def test_choices_of_the_path_are_refused_with_a_share(residual, choice):
    name, value = next(iter(choice.items()))
    tolerance = {"tolerance": choice.pop("tolerance")} if "tolerance" in choice else {}
    with pytest.raises(ValueError, match=re.escape(f"{name}={value!r} is of rows along the l1 path: Share(share=0.4)")):
        sparsify(residual, images(), Share(0.4), SharedKernels(**choice), **tolerance)
    with pytest.raises(ValueError, match=name):
        sparsify_path(residual, images(), [Share(0.4), Share(0.5)], SharedKernels(**choice), **tolerance)


def test_the_dense_module_is_an_ordinary_one(residual, tmp_path):
    v = images(seed=2)
    model = sparsify(residual, images(), Share(0.3), FEW, parallel=QUIET)
    again = Residual().eval()
    again.load_state_dict(model.dense().state_dict())
    with torch.no_grad():
        assert torch.equal(again(v), model(v))
        assert torch.equal(torch.fx.symbolic_trace(model.dense())(v), model(v))
    torch.save(model.dense(), io.BytesIO())
    assert "SparseNetwork" in repr(model)


def test_a_file_holds_what_is_left_and_numpy_reads_it(residual, tmp_path):
    import json
    import math

    big = trained(nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 10)), (100,))
    u = images(300, (100,))
    for share, most in ((0.3, 0.5), (0.05, 1 / 6)):
        model = sparsify(big, u, Share(share), FEW, parallel=QUIET)
        path = tmp_path / "small.npz"
        model.save(path)
        torch.save(model.dense().state_dict(), tmp_path / "dense.pt")
        assert path.stat().st_size < most * (tmp_path / "dense.pt").stat().st_size
    loaded = load_state(path)
    assert all(torch.equal(loaded[name], t) for name, t in model.dense().state_dict().items())
    f, at, used, state = np.load(path), 0, {}, {}
    bits = np.unpackbits(f["mask"]).astype(bool)
    for name, shape, dtype in json.loads(str(f["names"])):
        own = bits[at : at + math.prod(shape)]
        at += own.size
        begin = used.get(dtype, 0)
        used[dtype] = begin + own.sum()
        x = np.zeros(own.size, dtype)
        x[own] = f["values_" + dtype][begin : used[dtype]]
        state[name] = x.reshape(shape)
    assert all(np.array_equal(state[name], t.numpy()) for name, t in loaded.items())
    model = sparsify(residual, images(), Share(0.5), FEW, parallel=QUIET)  # integers among the buffers
    model.save(path)
    assert {n: t.dtype for n, t in load_state(path).items()} == {
        n: t.dtype for n, t in model.dense().state_dict().items()
    }
    (tmp_path / "other.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="no file of a sparse network"):
        load_state(tmp_path / "other.npz")


def test_a_killed_run_goes_on_where_it_stopped(residual, tmp_path, monkeypatch):
    from implicit_models.sim.pruning import recipe

    u, v = images(), images(seed=2)
    parallel = Parallel(resume=tmp_path, progress=False)
    real, calls = recipe._layer, []

    def stopping(*args, **kwargs):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(recipe, "_layer", stopping)
    with pytest.raises(KeyboardInterrupt):
        sparsify(residual, u, Share(0.4), FEW, parallel=parallel)
    model = sparsify(residual, u, Share(0.4), FEW, parallel=parallel)
    assert len(calls) == 1 + 10  # two passes of five layers, and the one that was stopped
    whole = sparsify(residual, u, Share(0.4), FEW, parallel=QUIET)
    with torch.no_grad():
        assert torch.equal(model(v), whole(v))
    calls.clear()
    sparsify(residual, u, Share(0.4), FEW, parallel=parallel)
    assert not calls
    with pytest.raises(ValueError, match="holds the finished rows of another problem"):
        sparsify(residual, v, Share(0.4), FEW, parallel=parallel)


def test_progress_is_shown(residual, capsys):
    sparsify(residual, images(), Share(0.4), FEW, parallel=Parallel(progress=True))
    assert "share 0.4: 11/11" in capsys.readouterr().err


def test_bad_input_is_refused(residual):
    u = images()
    for network in (copy.deepcopy(residual).train(),):
        with pytest.raises(ValueError, match="training mode"):
            sparsify(network, u, Share(0.4), FEW)
    broken = copy.deepcopy(residual)
    with torch.no_grad():
        broken.b.weight[1, 2, 0, 0] = float("nan")
    with pytest.raises(ValueError, match="b.weight"):
        sparsify(broken, u, Share(0.4), FEW)
    bad = u.clone()
    bad[7, 0, 1, 1] = float("inf")
    with pytest.raises(ValueError, match="sample 7"):
        sparsify(residual, bad, Share(0.4), FEW)
    with pytest.raises(ValueError, match="not for ByPosition"):
        sparsify(residual, u, Share(0.4), ByPosition())
    with pytest.raises(ValueError, match="states='student'"):
        sparsify(residual, u, Share(0.4), states="teacher")
    with pytest.raises(ValueError, match="must differ"):
        sparsify_path(residual, u, [Share(0.4), Share(0.4)])
    with pytest.raises(ValueError, match="of one kind"):
        sparsify_path(residual, u, [Share(0.4), Cardinality(0.4)])
    with pytest.raises(ValueError, match="no convolution or linear layer"):
        sparsify(nn.ReLU().eval(), torch.randn(10, 3), Share(0.5))
    with pytest.raises(ValueError, match="share must be at most 1, got 1.5"):
        Share(1.5)
    with pytest.raises(TypeError, match="supports must be OptimalBrainSurgeon"):
        SharedKernels(supports="obs")


@pytest.mark.parametrize(
    "choice", [{"ridge": 0.0}, {"closed": 1.5}, {"rounds": -1}, {"samples": 1}, {"positions": 0}, {"exchanges": -1}]
)
def test_choices_check_themselves(choice):
    with pytest.raises(ValueError, match=next(iter(choice))):
        OptimalBrainSurgeon(**choice)


def test_choices_of_other_types_are_refused():
    for choice in ({"rounds": 1.5}, {"effects": 1}, {"samples": True}):
        with pytest.raises(TypeError, match=next(iter(choice))):
            OptimalBrainSurgeon(**choice)
