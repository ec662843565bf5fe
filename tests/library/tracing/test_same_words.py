"""What cannot be read is named in the same words whoever reads it."""

import pytest
import torch
from torch import nn

from implicit_models.compose import from_network
from implicit_models.sim import Cardinality, sparsify, states


class Over(nn.Module):
    """A function of states."""

    def __init__(self, f):
        super().__init__()
        self.first, self.relu, self.last, self.f = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2), f

    def forward(self, x):
        return self.last(self.f(self.relu(self.first(x))))


UNREAD = {
    "module": nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.GELU()), nn.Linear(4, 2)),
    "function": Over(torch.exp),
    "quotient": Over(lambda x: 1 / (1 + x)),
    "branch": Over(lambda x: x if x.sum() > 0 else -x),
    "batch": Over(lambda x: x.flatten()),
    "concatenation": Over(lambda x: torch.cat([x, x], 0)),
    "shape": nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(3, 2)),
    "two inputs": nn.Bilinear(4, 4, 2),
    "dropout": Over(nn.functional.dropout),
    "hook": Over(lambda x: x),
}
UNREAD["hook"].last.register_forward_hook(lambda module, args, y: y + 1)
READERS = {
    "from_network": lambda network: from_network(network, 4),
    "sparsify": lambda network: sparsify(network, torch.randn(20, 4), Cardinality(0.5)),
    "states": lambda network: states(network, torch.randn(20, 4)),
}


@pytest.mark.parametrize("name", UNREAD)
def test_all_readers_say_the_same(name):
    """The kind of error and its words; sparsify and states put the shape of their data before a wrong one."""
    network, said = UNREAD[name].eval(), []
    for reader in READERS.values():
        with pytest.raises((TypeError, ValueError)) as raised:
            reader(network)
        assert isinstance(
            raised.value, TypeError if name in ("module", "function", "quotient", "branch") else Exception
        )
        said.append(str(raised.value))
    assert len(said[0]) > 30
    if name == "hook":  # differences on random inputs in single or double precision
        said = [words.partition("on random")[2] for words in said]
    assert all(words.endswith(said[0]) for words in said), said
