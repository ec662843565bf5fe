"""A network that pruning leaves, with its report: what the sparse and the smaller one have in common."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.sim.pruning.files import save_state
from implicit_models.summaries import summary


class PrunedNetwork(nn.Module):
    """A network in a module of its own, which `dense` gives back. Inputs and outputs are those of the network.

    Args:
        network: what is left.
        report: what that is, and what is proved.
    """

    def __init__(self, network: nn.Module, report: Any):
        super().__init__()
        self.network, self.report = network, report

    def __repr__(self) -> str:
        return summary(self, "network", "report")

    def forward(self, u: Float[Tensor, "N ..."]) -> Tensor:
        """Outputs of the network that is left."""
        return self.network(u)

    def dense(self) -> nn.Module:
        """A copy of the network that is left as an ordinary module: for state_dict, torch.compile, export and
        everything else that takes a module, without this library."""
        return copy.deepcopy(self.network)

    def save(self, path: str | Path) -> None:
        """Write its parameters and buffers, without their zeros; see `pruning.files`. `load_state` reads them for
        `dense()`."""
        save_state(self.network.state_dict(), path)
