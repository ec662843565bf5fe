"""What a share of the weights is compared with at as many weights: magnitude pruning, and the papers' rows.

All have the same samples and no labels, and no gradient step is taken.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from implicit_models.sim.layerwise import sparsify_path
from implicit_models.sim.network.layers import INPUT, NetworkLayers, read_layers
from implicit_models.sim.problem import Cardinality
from implicit_models.sim.row_models import ByPosition, SharedKernels
from implicit_models.sim.sparse_model import SparseModel
from reproduction.core.counts import parameters_shown
from reproduction.core.pruning import magnitude_prune
from reproduction.tutorial_sparsify.compute import BATCH

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
ROWS = {"shared": SharedKernels(), "by_position": ByPosition()}


def has_batch_norm(network: nn.Module) -> bool:
    """Whether its means and variances can be measured anew."""
    return any(isinstance(module, NORMS) and module.track_running_stats for module in network.modules())


def measured_anew(network: nn.Module, u: Tensor) -> nn.Module:
    """A copy whose batch norms have the means and variances of the samples (m, ...), over equal batches of at most
    200."""
    out = copy.deepcopy(network).eval()
    for module in out.modules():
        if isinstance(module, NORMS) and module.track_running_stats:
            module.reset_running_stats()
            module.momentum = None  # the mean over all batches
            module.train()
    with torch.no_grad():
        for part in u.tensor_split(math.ceil(len(u) / BATCH)):
            out(part)
    return out.eval()


def by_magnitude(network: nn.Module, kept: Sequence[int], u: Tensor) -> dict[str, list[nn.Module]]:
    """The largest weights, of the network ("magnitude") or of each layer ("layer"); with "_norm", its batch norms
    measured anew.

    Args:
        kept: weights that are left, a network each.
        u: (m, ...) samples.
    """
    out: dict[str, list[nn.Module]] = {}
    for name, scope in (("magnitude", "global"), ("layer", "layer")):
        out[name] = [magnitude_prune(network, count, scope=scope)[0].eval() for count in kept]  # type: ignore[arg-type]
        if has_batch_norm(network):
            out[f"{name}_norm"] = [measured_anew(pruned, u) for pruned in out[name]]
    return out


def whole_weights(layers: NetworkLayers, weights: int) -> tuple[int, int]:
    """Weights that the papers' rows leave as they are, the layers on the input and the last one, and the others.

    Args:
        weights: of all convolutions and linear layers.
    """
    sources = SharedKernels().sources(layers)
    fitted = sum(
        layers.kernel_weights(k)
        for k, block in enumerate(layers.blocks)
        if not block.derived and any(source != INPUT for source in sources[k])
    )
    return weights - fitted, fitted


@parameters_shown()
def l1_rows(network: nn.Module, kept: Sequence[int], weights: int, u: Tensor) -> dict[str, list[SparseModel | None]]:
    """The papers' rows with as many weights, one row for all positions ("shared") or one at each ("by_position").

    Every row has the same share of its columns, such that a kernel a channel makes `kept` with the layers that stay
    whole; rows of their own multiply as often and store more. None where those layers alone are as many.

    Args:
        kept: weights that are left, a model each; weights: of the network.
        u: (m, ...) samples.
    """
    layers = read_layers(network, tuple(u.shape[1:]))
    whole, fitted = whole_weights(layers, weights)
    shares = [(count - whole) / fitted if fitted else 0.0 for count in kept]
    possible = [Cardinality(share) for share in shares if 0 < share <= 1]
    head = ends_linear(layers)
    out: dict[str, list[SparseModel | None]] = {}
    for name, rows in ROWS.items():
        found = iter(sparsify_path(network, u, possible, rows, head=head) if possible else [])
        out[name] = [next(found) if 0 < share <= 1 else None for share in shares]
    return out


def ends_linear(layers: NetworkLayers) -> bool:
    """Whether there is a last layer to fit anew."""
    try:
        layers.head()
    except TypeError:
        return False
    return True


def stored(model: nn.Module) -> int:
    """Numbers that a model keeps as weights: of its rows, once where positions share them, and of its layers."""
    if not isinstance(model, SparseModel):
        return sum(int(weight.count_nonzero()) for weight in model.parameters() if weight.ndim >= 2)
    head = model.head_weight
    return model.report.parameters + (0 if head is None else head.numel())
