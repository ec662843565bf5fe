"""Structured pruning of a trained network: budgets that a processor gains from.

    Channels(share)   whole channels go, and the network that is left is a smaller one
    TwoOfFour()       of every four weights two, the pattern of a processor's sparse units

Each is met on the Gram matrices of the network's own layers, as a `Share` of single weights is (see `layerwise`).

Source:
    this project; `pruning.channels` for the method.
"""

from __future__ import annotations

from typing import overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.sim.layerwise import _checked
from implicit_models.sim.parallel.run import THREADS
from implicit_models.sim.problem import require
from implicit_models.sim.pruning.channels.network import SmallerNetwork, smaller_network
from implicit_models.sim.pruning.channels.settings import Channels
from implicit_models.sim.pruning.network import SparseNetwork
from implicit_models.sim.pruning.patterns import TwoOfFour, two_of_four_network
from implicit_models.sim.pruning.settings import OptimalBrainSurgeon


@overload
def prune(
    network: nn.Module,
    data: Tensor,
    budget: Channels,
    supports: OptimalBrainSurgeon | None = None,
    *,
    held_out: Tensor | None = None,
) -> SmallerNetwork: ...
@overload
def prune(
    network: nn.Module,
    data: Tensor,
    budget: TwoOfFour,
    supports: OptimalBrainSurgeon | None = None,
    *,
    held_out: Tensor | None = None,
) -> SparseNetwork: ...
@torch.inference_mode(False)  # the effects of rows are gradients
def prune(
    network: nn.Module,
    data: Float[Tensor, "m ..."],
    budget: Channels | TwoOfFour,
    supports: OptimalBrainSurgeon | None = None,
    *,
    held_out: Float[Tensor, "k ..."] | None = None,
) -> SmallerNetwork | SparseNetwork:
    """A trained network that a processor is done with sooner, without labels and without training.

    Args:
        network: in evaluation mode; see `network.layers.read_layers` for what it may be made of. It is copied.
        data: (m, *input_shape) samples of the fit, of the network's dtype.
        budget: `Channels(share)`, of its multiplications, or `TwoOfFour()`.
        supports: how what goes is found and the rest refitted; exchanges are of single weights and do not count.
        held_out: other samples, for the share of the outputs' variance that is lost on them.

    Returns:
        for `Channels` a `SmallerNetwork`, whose `dense()` is an ordinary module with fewer channels; for `TwoOfFour` a
        `SparseNetwork`, whose `dense()` is the network itself with zeros in the pattern.

    Raises:
        TypeError, ValueError: naming the argument that is wrong, and as `sparsify`.

    Source:
        this project.
    """
    require("budget", budget, Channels, TwoOfFour)
    supports = OptimalBrainSurgeon() if supports is None else supports
    require("supports", supports, OptimalBrainSurgeon)
    graph = _checked(network, data, [], "student", held_out, THREADS)
    if isinstance(budget, TwoOfFour):
        return two_of_four_network(network, graph, data, supports, held_out)
    return smaller_network(network, graph, data, budget, supports, held_out)
