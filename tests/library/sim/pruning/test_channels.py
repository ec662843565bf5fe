"""Networks with fewer channels: what goes together, what is left, and that the smaller module computes it."""

import copy
import functools
import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from implicit_models.sim import Channels, OptimalBrainSurgeon, Share, SmallerNetwork, load_state, prune
from implicit_models.sim.pruning.channels.allocation import costs_of, shared_out
from implicit_models.sim.pruning.channels.network import cuttable
from implicit_models.sim.pruning.channels.recipe import cut_channels, masked_steps
from implicit_models.sim.pruning.layers import plan
from implicit_models.sim.solvers.best_subset.groups import Grouped, eliminate_groups
from implicit_models.tracing.reading import read
from trained_networks import error, trained
from trained_networks import images as of_shape

images = functools.partial(of_shape, shape=(3, 8, 8))
FEW = OptimalBrainSurgeon(rounds=1, samples=60)


class Padded(nn.Module):
    """Two stages, whose shortcut pads new channels with zeros, and a block whose two layers only meet in it."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.a, self.na = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.b, self.nb = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.c, self.nc = nn.Conv2d(6, 10, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(10)
        self.d, self.nd = nn.Conv2d(10, 10, 3, padding=1, bias=False), nn.BatchNorm2d(10)
        self.head = nn.Linear(10, 4)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + x)
        y = self.nd(self.d(F.relu(self.nc(self.c(x)))))
        x = F.relu(y + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2)))
        return self.head(x.mean((2, 3)))


class Kinds(nn.Module):
    """A depthwise layer, a concatenation, a view of a fixed size, and layers with biases of their own."""

    def __init__(self):
        super().__init__()
        self.a, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.point, self.other = nn.Conv2d(8, 6, 1), nn.Conv2d(3, 4, 1)
        self.one, self.two = nn.Linear(10 * 4, 12), nn.Linear(12, 3)

    def forward(self, x):
        y = F.relu(self.point(F.relu(self.deep(F.relu(self.a(x))))))
        z = torch.cat([y, F.relu(self.other(x))], 1)
        z = F.max_pool2d(z, 3).view(x.size(0), 40)
        return self.two(F.relu(self.one(z)))


def counted(network, u):
    """Multiplications of a sample, by hooks on the modules that run."""
    total, handles = [], []

    def hook(module, args, out):
        total.append(out[0].numel() * module.weight[0].numel())

    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            handles.append(module.register_forward_hook(hook))
    with torch.no_grad():
        network(u[:1])
    for handle in handles:
        handle.remove()
    return sum(total)


@pytest.fixture(scope="module")
def padded():
    return trained(Padded(), (3, 8, 8))


def test_elimination_of_groups_is_what_brute_force_finds():
    rng = np.random.default_rng(0)
    groups = np.arange(12).reshape(4, 3)
    problems = []
    for r in (5, 2):
        X = rng.standard_normal((40, 12)) @ rng.standard_normal((12, 12))
        H = X.T @ X / 40 + 0.1 * np.eye(12)
        problems.append(Grouped(H, rng.standard_normal((r, 12)), rng.random(r), groups[:, rng.permutation(3)]))
    extra = np.array([0.0, 0.3, 0.1, 0.2])

    def loss(left):
        S = np.sort(groups[left].ravel())
        total = 0.0
        for p in problems:
            for c, e in zip(p.C, p.weight, strict=True):
                total -= 0.5 * e * (c[S] @ np.linalg.solve(p.H[np.ix_(S, S)], c[S]) if S.size else 0.0)
        return total

    order, rise = eliminate_groups(problems, extra)
    left = [0, 1, 2, 3]
    for goes, by in zip(order, rise, strict=True):
        costs = {g: loss([i for i in left if i != g]) - loss(left) + extra[g] for g in left}
        assert goes == min(costs, key=costs.get) and by == pytest.approx(costs[goes], rel=1e-8)
        left.remove(goes)
    with pytest.raises(ValueError, match="one number of groups"):
        eliminate_groups(problems, extra[:3])


def test_channels_of_a_stream_go_from_all_that_write_and_read_them(padded):
    planned = plan(read(padded, (3, 8, 8)))
    names = [layer.name for layer in planned.layers]
    spaces = {tuple(sorted(names[k] for k in s.rows)): s for s in cuttable(planned, images(3)).spaces}
    assert set(spaces) == {("b", "first"), ("a",), ("c",), ("d",)}
    stream = spaces["b", "first"]
    assert {names[k] for k in stream.columns} == {"a", "c"} and [names[k] for k in stream.fed] == ["d"]
    assert stream.fed[names.index("d")][:, 0].tolist() == [2, 3, 4, 5, 6, 7]
    assert stream.columns[names.index("a")].shape == (6, 9)


@pytest.mark.parametrize("share", [0.7, 0.45])
@pytest.mark.parametrize(("kind", "dtype"), [(Padded, torch.float32), (Padded, torch.float64), (Kinds, torch.float32)])
def test_the_smaller_network_computes_what_the_network_with_zeros_does(kind, dtype, share):
    network = trained(kind(), (3, 8, 8)).to(dtype)
    u, v = images(), images(40, seed=2)
    planned = plan(read(network, (3, 8, 8)))
    labels = cuttable(planned, u[:3].to(dtype))
    found = cut_channels(planned, labels, u.to(dtype), Channels(share, 2), FEW)
    steps = masked_steps(planned, labels, found)
    values = {steps[0].name: v.to(dtype)}
    for step in steps[1:]:
        values[step.name] = step.run(*(values[name] for name in step.inputs))
    wanted = values[planned.graph.output]
    small = prune(network, u.to(dtype), Channels(share, 2), FEW)
    with torch.no_grad():
        got = small(v.to(dtype))
    assert got.dtype == dtype
    assert torch.allclose(
        got, wanted, rtol=0, atol=(1e-5 if dtype == torch.float32 else 1e-12) * float(wanted.abs().max())
    )
    # multiplications, counted by hooks on both
    assert small.report.multiplications == (counted(small.dense(), u.to(dtype)), counted(network, u.to(dtype)))
    assert small.report.share <= share
    sizes = {name: m.weight.shape[:2] for name, m in small.dense().named_modules() if hasattr(m, "weight")}
    assert any(sizes[name] != m.weight.shape[:2] for name, m in network.named_modules() if name in sizes)
    weights = sum(m.weight.numel() for m in small.dense().modules() if isinstance(m, (nn.Conv2d, nn.Linear)))
    assert small.report.weights[0] == weights
    assert np.isfinite(error(small, network, v.to(dtype)))


def test_all_multiplications_are_the_network_itself(padded):
    small = prune(padded, images(), Channels(1.0), FEW, held_out=images(seed=2))
    assert isinstance(small, SmallerNetwork) and small.report.share == 1.0 and small.report.held_out < 1e-10
    assert all(torch.equal(t, small.dense().state_dict()[name]) for name, t in padded.state_dict().items())


def test_more_multiplications_lose_less(padded):
    u, v = images(300), images(300, seed=2)
    lost = {share: error(prune(padded, u, Channels(share, 1), FEW), padded, v) for share in (0.8, 0.5, 0.3)}
    assert lost[0.8] < lost[0.5] < lost[0.3] < 1


def test_a_channel_that_nothing_needs_goes_first():
    network = trained(Padded(), (3, 8, 8))
    with torch.no_grad():
        network.b.weight[:, 3] = 0  # nothing reads channel 3 of a
        network.d.weight[:, 7] = 0
    planned = plan(read(network, (3, 8, 8)))
    labels = cuttable(planned, images(3))
    found = cut_channels(planned, labels, images(), Channels(0.9, 1), FEW)
    fitted = {layer.name: own for layer, own in zip(planned.layers, found.layers, strict=True)}
    assert np.flatnonzero(~fitted["a"].kept_rows).tolist() == [3]
    assert np.flatnonzero(~fitted["c"].kept_rows).tolist() == [7]
    small = prune(network, images(), Channels(0.9, 1), FEW)
    assert error(small, network, images(seed=2)) < 1e-3


def test_the_allocation_meets_its_budget_with_the_multiples_asked_for(padded):
    planned = plan(read(padded, (3, 8, 8)))
    spaces = cuttable(planned, images(3)).spaces
    costs = costs_of(planned, spaces)
    none = np.zeros(len(spaces), np.int64)
    assert costs.of(none) == counted(padded, images())
    rng = np.random.default_rng(0)
    rises = [np.sort(rng.random(len(space))) for space in spaces]
    for share, multiple in itertools.product((0.9, 0.5, 0.2), (1, 2)):
        removed = shared_out(rises, costs, share * costs.of(none), multiple)
        assert costs.of(removed) <= share * costs.of(none)
        assert all((len(s) - n) % multiple == 0 and n < len(s) for s, n in zip(spaces, removed, strict=True))
        for s, count in enumerate(removed):  # nothing that fits was left out
            if count:
                more = removed.copy()
                more[s] = max(0, count - multiple) if (len(spaces[s]) - count + multiple) <= len(spaces[s]) else 0
                assert costs.of(more) > share * costs.of(none)
    with pytest.raises(ValueError, match="cannot be reached with channels in multiples of 4: the least is"):
        shared_out(rises, costs, 0.01 * costs.of(none), 4)


def test_the_dense_module_is_an_ordinary_one(padded, tmp_path):
    v = images(20, seed=2)
    small = prune(padded, images(), Channels(0.5, 2), FEW)
    again = copy.deepcopy(small.dense())
    with torch.no_grad():
        for p in again.parameters():
            p.zero_()
        again.load_state_dict(small.dense().state_dict())
        wanted = small(v)
        assert torch.equal(again(v), wanted)
        assert torch.equal(torch.fx.symbolic_trace(small.dense())(v), wanted)
        small.save(tmp_path / "small.npz")
        again.load_state_dict(load_state(tmp_path / "small.npz"))
        assert torch.equal(again(v), wanted)
        torch.save(small.dense(), tmp_path / "small.pt")
        loaded = torch.load(tmp_path / "small.pt", weights_only=False)
        assert torch.equal(loaded(v), wanted)
        exported = torch.export.export(small.dense(), (v,)).module()
        assert torch.allclose(exported(v), wanted, rtol=0, atol=1e-6)
        compiled = torch.compile(small.dense(), backend="aot_eager")
        assert torch.allclose(compiled(v), wanted, rtol=0, atol=1e-6)
    assert "SmallerNetwork" in repr(small) and "not proved" in small.report.text()
    assert all(len(line) <= 120 for line in small.report.text().splitlines())


def test_onnx_holds_the_smaller_network(padded, tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    v = images(5, seed=2)
    small = prune(padded, images(), Channels(0.5, 2), FEW)
    torch.onnx.export(small.dense(), (v,), tmp_path / "small.onnx", dynamo=False, input_names=["u"])
    found = ReferenceEvaluator(onnx.load(tmp_path / "small.onnx")).run(None, {"u": v.numpy()})[0]
    assert np.allclose(found, small(v).detach().numpy(), atol=1e-5)


def test_bad_input_is_refused(padded):
    u = images()
    with pytest.raises(TypeError, match="budget must be"):
        prune(padded, u, Share(0.5))
    with pytest.raises(ValueError, match="share must be"):
        Channels(0.0)
    with pytest.raises(ValueError, match="multiple must be at least 1, got 0"):
        Channels(0.5, 0)
    with pytest.raises(TypeError, match="multiple must be an int"):
        Channels(0.5, 2.0)
    with pytest.raises(ValueError, match="cannot be reached"):
        prune(padded, u, Channels(0.001), FEW)
    with pytest.raises(ValueError, match="training mode"):
        prune(copy.deepcopy(padded).train(), u, Channels(0.5))
    with pytest.raises(ValueError, match="no channel that could be removed"):
        prune(nn.Sequential(nn.Linear(4, 2)).eval(), torch.randn(20, 4), Channels(0.5))
