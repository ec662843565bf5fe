"""The trained residual network, its stand-in, its controls, and verdicts in single precision."""

import os

import numpy as np
import pytest
import torch
from torch import nn

from reproduction.resnet20 import network as networks


def test_the_stand_in_classifies_its_patterns_and_says_what_it_is(tmp_path, monkeypatch):
    for name in ("IMPLICIT_DATA", "IMPLICIT_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("IMPLICIT_OFFLINE", "1")
    network, images, banner = networks.trained_network(30)
    assert "resnet20_cifar10 cannot be had" in banner and "stands in" in banner
    u, y = images.test[0]
    assert u.shape == (30, 3072) and u.dtype == np.float32 and 0 <= u.min() and u.max() <= 1
    assert (networks.classes_of(network, u) == y).mean() > 0.9 and set(y) == set(range(10))
    again, others = networks.stand_in(30)
    assert np.array_equal(others.test[0][0], u) and torch.equal(again[1].linear.weight, network[1].linear.weight)


@pytest.mark.skipif(not os.environ.get("IMPLICIT_DATA"), reason="needs the trained weights and images (IMPLICIT_DATA)")
def test_the_trained_network_on_a_mixed_part_of_the_test_images():
    network, images, banner = networks.trained_network(200)
    u, y = images.test[0]
    assert banner == "" and len(y) == 200 and np.bincount(y, minlength=10).min() >= 5
    assert (networks.classes_of(network, u) == y).mean() > 0.85
    assert not network.training and not any(t.requires_grad for t in network.parameters())


def test_random_weights_leave_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = (networks.random_network(seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one[1].conv1.weight, same[1].conv1.weight) and not torch.equal(
        one[1].conv1.weight, other[1].conv1.weight
    )


def test_shuffled_weights_are_the_same_numbers_elsewhere():
    network = networks.random_network(0)
    kept = {name: t.clone() for name, t in network.named_parameters()}
    mixed = networks.shuffled_network(network, 1)
    for name, t in mixed.named_parameters():
        assert torch.equal(t.flatten().sort().values, kept[name].flatten().sort().values), name
        assert torch.equal(network.get_parameter(name), kept[name])
        if t.ndim > 1:
            assert not torch.equal(t, kept[name]), name


def test_close_calls_are_decided_in_double_precision():
    network = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        network.weight.copy_(torch.eye(2))
    U = np.array([[0.1, 0.1 + 1e-9], [0.1 + 1e-9, 0.1], [0.3, 0.2]])
    assert network(torch.from_numpy(U).float())[0].argmax() == 0  # single precision does not see the difference
    assert networks.classes_of(network, U).tolist() == [1, 0, 0]
    assert networks.classes_of(network, U[:0]).shape == (0,)
