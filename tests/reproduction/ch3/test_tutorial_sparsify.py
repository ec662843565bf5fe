"""What the tutorial measures: multiplications, bytes, peers with as many weights, and the page's numbers."""

import copy

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.sim import Share, sparsify
from implicit_models.sim.network.layers import read_layers
from reproduction.core.scores import accuracy_of
from reproduction.tutorial_sparsify import compute, measures, peers, show
from reproduction.tutorial_sparsify.network import Task, small_network

WEIGHTS = 144 + 2 * 16 * 16 * 9 + 32 * 16 * 9 + 32 * 32 * 9 + 32 * 3  # of the small network with three classes


@pytest.fixture(scope="module")
def task():
    network, generator = small_network(8, 3, 1), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, t in network.named_buffers():
            if name.endswith("running_mean"):
                t.normal_(generator=generator).mul_(0.1)
    network.eval()
    u = torch.rand(160, 1, 8, 8, generator=generator)
    with torch.no_grad():
        network[-1].bias.sub_(network(u).mean(0))  # else all samples are of one class
        y = network(u).argmax(1)
    assert y.bincount(minlength=3).min() > 20
    return Task(network, u[:100], y[:100], u[100:], y[100:])


@pytest.fixture(scope="module")
def found(task):
    return measures.found_of(task, [0.6, 0.2], 60)


def nonzero(network):
    return sum(int(w.count_nonzero()) for w in network.parameters() if w.ndim >= 2)


def test_accuracy_of_a_network_that_made_its_labels(task):
    assert compute.accuracy(task.network, task.u_test, task.y_test) == 100
    assert compute.accuracy(task.network, task.u_test, (task.y_test + 1) % 3) == 0


def test_multiplications_are_weights_times_positions():
    u = torch.rand(4, 3, 8, 6)
    network = nn.Sequential(nn.Conv2d(3, 5, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(60, 7))
    assert compute.multiplications(network, u) == 5 * 27 * 4 * 3 + 420
    with torch.no_grad():
        network[0].weight[1:] = 0
        network[3].weight[:, :50] = 0
    assert compute.multiplications(network, u) == 27 * 4 * 3 + 70
    depthwise = nn.Sequential(nn.Conv1d(6, 12, 3, groups=6))
    assert compute.multiplications(depthwise, torch.rand(2, 6, 10)) == 12 * 3 * 8
    assert not depthwise[0]._forward_hooks


def test_bytes_of_files_hold_the_values(task):
    values = 4 * sum(t.numel() for t in task.network.state_dict().values() if t.is_floating_point())
    assert values < compute.torch_bytes(task.network) < values + 20_000
    sparse = copy.deepcopy(task.network)
    with torch.no_grad():
        for weight in sparse.parameters():
            weight.zero_()
    assert compute.packed_bytes(sparse) < 0.1 * compute.packed_bytes(task.network)
    assert compute.torch_bytes(sparse) == compute.torch_bytes(task.network)


def test_times_are_by_name(task):
    times = compute.cpu_ms({"a": task.network, "b": nn.Flatten()}, task.u_test, repeats=2)
    assert set(times) == {"a", "b"} and min(times.values()) >= 0


def test_batch_norm_measured_anew_has_the_moments_of_the_samples():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5)).eval()
    u = torch.randn(400, 2, 5, 5) + 1
    before = copy.deepcopy(network.state_dict())
    norm = peers.measured_anew(network, u)[1]
    with torch.no_grad():
        parts = [network[0](part).double() for part in u.split(200)]
    mean = torch.stack([part.mean((0, 2, 3)) for part in parts]).mean(0)
    variance = torch.stack([part.transpose(0, 1).flatten(1).var(1) for part in parts]).mean(0)
    assert torch.allclose(norm.running_mean.double(), mean, atol=1e-6)
    assert torch.allclose(norm.running_var.double(), variance, rtol=1e-5)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


def test_no_batch_is_of_one_sample():
    network = nn.Sequential(nn.BatchNorm1d(3)).eval()
    assert peers.measured_anew(network, torch.rand(201, 3))[0].num_batches_tracked == 2


def test_magnitudes_leave_as_many_weights_and_norms_only_where_there_are_some(task):
    pruned = peers.by_magnitude(task.network, [500, 3000], task.u[:60])
    assert list(pruned) == ["magnitude", "magnitude_norm", "layer", "layer_norm"]
    assert all([nonzero(network) for network in networks] == [500, 3000] for networks in pruned.values())
    assert not any(module.training for networks in pruned.values() for n in networks for module in n.modules())
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 2)).eval()
    assert list(peers.by_magnitude(plain, [50], task.u[:60])) == ["magnitude", "layer"]


def test_all_models_keep_as_many_weights(task, found):
    assert set(found.models) == set(measures.NAMES) == set(show.STYLES) and found.cpu_seconds > 0
    for name, models in found.models.items():
        kept = [peers.stored(model) for model in models]
        wanted = [round(share * WEIGHTS) for share in (0.6, 0.2)]
        if name == "by_position":
            assert all(count > fair for count, fair in zip(kept, wanted, strict=True))
        elif name == "shared":  # whole columns, one of each of the 96 rows more at most; of a 1 x 1 map one in nine
            assert all(1000 < count <= fair + 96 for count, fair in zip(kept, wanted, strict=True))
        else:
            assert kept == wanted, name


def test_rows_leave_the_first_and_the_last_layer_whole(task):
    assert peers.whole_weights(read_layers(task.network, (1, 8, 8)), WEIGHTS) == (144 + 96, WEIGHTS - 240)


def test_rows_that_cannot_be_had_are_left_out(task):
    assert peers.l1_rows(task.network, [240], WEIGHTS, task.u[:30]) == {"shared": [None], "by_position": [None]}
    found = [{"share": [{"accuracy": 9.0, "stored": 5.0}], "shared": [None]}]
    assert measures.accuracy_values(found, [0.05]) == {"0.05_share": ([9.0], "%"), "stored_0.05_share": ([5.0], "%")}


def test_a_network_without_a_last_linear_layer_fits_no_head(task):
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten())
    assert not peers.ends_linear(read_layers(network.eval(), (1, 8, 8)))
    assert peers.ends_linear(read_layers(task.network, (1, 8, 8)))
    rows = peers.l1_rows(network, [100], 144, task.u[:60])["shared"][0]
    assert rows.head_weight is None and 100 <= peers.stored(rows) <= 103


def test_values_of_the_page(task, found):
    shares = [0.6, 0.2]
    values = measures.gain_values(task, found.models["share"], shares)
    assert values["weights"] == WEIGHTS and values["weights_0.2"] == round(0.2 * WEIGHTS)
    assert values["multiplications"] == 144 * 16 + 2 * 2304 * 16 + 4608 * 4 + 9216 + 96
    left = values["multiplications_0.2"] / values["multiplications"]
    assert values["multiplications_gone_0.2"][0] == pytest.approx(100 * (1 - left))
    assert values["packed_bytes_0.2"] < values["packed_bytes_0.6"] < values["packed_bytes"]
    assert values["times_smaller_0.2"] == values["torch_bytes"][0] / values["packed_bytes_0.2"][0]
    proved = measures.proved_values(found.models["share"], shares)
    assert proved["slope"] < 1e-8 and all(0 <= proved[f"proved_{share}"][0] <= 100 for share in shares)
    points = measures.points(task, found)
    first = found.models["share"][0]
    assert points["share"][0]["accuracy"] == 100 * accuracy_of(first, task.u_test, task.y_test)
    assert points["magnitude"][1]["stored"] == pytest.approx(20, abs=0.01)
    recorded = {key: value[0] for key, value in measures.accuracy_values([points], shares).items()}
    assert recorded["0.6_share"] == [points["share"][0]["accuracy"]]
    table = show.accuracy_table(recorded, shares)
    assert list(table.columns) == ["60 %", "20 %", "stored at 20 %"] and len(table) == len(show.STYLES)
    gains = show.gain_table({key: v[0] if isinstance(v, tuple) else v for key, v in values.items()}, shares)
    assert gains.loc["weights", "network"] == f"{WEIGHTS:,}" and list(gains.columns)[1:] == ["Share(0.6)", "Share(0.2)"]


def test_a_file_comes_back_into_another_of_the_networks(task, found):
    a, b = found.models["share"]
    assert compute.comes_back(b, a.dense(), task.u_test)
    assert compute.comes_back(b, copy.deepcopy(task.network), task.u_test)


def test_a_layer_without_bias_and_norm_is_loaded_into_dense():
    """What the page says of a layer that gets a bias."""
    network = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3)).eval()
    u = torch.rand(50, 6)
    sparse = sparsify(network, u, Share(0.5))
    assert compute.comes_back(sparse, sparse.dense(), u)
    with pytest.raises(RuntimeError, match="0.bias"):
        compute.comes_back(sparse, copy.deepcopy(network), u)


def test_refusals_are_texts_of_errors():
    assert compute.refusal(lambda: 1 / 0) == "ZeroDivisionError: division by zero"
    with pytest.raises(RuntimeError, match="nothing was refused"):
        compute.refusal(lambda: None)


def test_curves_are_medians_with_ranges():
    figure, axes = plt.subplots()
    values = {"accuracy": [93.0], "0.5_share": [90.0, 92.0, 91.0], "0.1_share": [60.0, 70.0, 62.0]}
    show.tradeoff(axes, values, [0.5, 0.1])
    assert len(axes.containers) == 1
    line = axes.containers[0].lines[0]
    assert np.allclose(line.get_xdata(), [10, 50]) and np.allclose(line.get_ydata(), [62, 91])
    plt.close(figure)
