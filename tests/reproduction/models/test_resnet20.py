"""The ResNet-20 of CIFAR-10: its sizes, its published accuracy, and its exact conversion to an implicit model."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from data_gen.images.cifar import SUBSET, WEIGHTS, cifar10
from implicit_models.compose.network import assemble
from reproduction.models.resnet20 import Block, ResNet20, published

DATA = os.environ.get("IMPLICIT_DATA")
needs_data = pytest.mark.skipif(
    not DATA or not all((Path(DATA) / name).is_file() for name in (SUBSET, WEIGHTS)),
    reason="IMPLICIT_DATA does not hold CIFAR-10 and its ResNet-20",
)


def test_sizes():
    network = ResNet20()
    assert sum(p.numel() for p in network.parameters()) == 269_722
    sizes = []
    for module in network.modules():
        if isinstance(module, torch.nn.ReLU):
            module.register_forward_hook(lambda m, i, o: sizes.append(o[0].numel()))
    with torch.no_grad():
        assert network.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    assert sizes == [16_384] * 7 + [8_192] * 6 + [4_096] * 6 and sum(sizes) == 188_416


def test_shortcut_is_option_a():
    block = Block(2, 6, 2).eval()
    with torch.no_grad():
        for p in block.parameters():
            p.zero_()
        x = torch.rand(1, 2, 4, 4)
        y = block(x)
    torch.testing.assert_close(y[:, 2:4], x[:, :, ::2, ::2])
    assert not y[:, :2].any() and not y[:, 4:].any()


@needs_data
@pytest.mark.extended
def test_published_accuracy_on_the_subset():
    data = cifar10(subset=True)
    u, y = data.test[0]
    with torch.no_grad():
        logits = published()(torch.from_numpy(u).reshape(-1, 3, 32, 32))
    assert float((logits.argmax(1).numpy() == y).mean()) == pytest.approx(0.9105, abs=1e-9)


@needs_data
def test_states_and_outputs_of_the_assembled_model():
    """The first block as matrices, in float64, against the network: the whole takes gigabytes and is done in the
    notebook."""
    network = published().double()
    part = torch.nn.Sequential(network.conv1, network.bn1, network.relu, network.layer1[0], torch.nn.Flatten())
    assembly, value, *_ = assemble(part, (3, 32, 32))
    u = np.random.default_rng(0).normal(size=(2, 3072))
    with torch.no_grad():
        wanted = part(torch.from_numpy(u).reshape(2, 3, 32, 32)).numpy()
    assert assembly.n == 3 * 16_384
    np.testing.assert_allclose(value.at(assembly.run(u), u), wanted, rtol=1e-10, atol=1e-10)
