"""Certificates of a residual network without its matrices: intervals from layer to layer, and the sensitivity matrix.

For the box |u - u0| <= eps every linear map takes centre and radius to W m + b and |W| r, and a ReLU takes the ends.
The margin of the label against class j is a row of the last linear map, so that its own lower bound is taken, not the
difference of two bounds.

Source: Gowal et al. (2018) for interval propagation; Tsai thesis (2024), section 4.2 and Theorem 6 for the bound by S.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from reproduction.models.resnet20 import Block, ResNet20
from reproduction.resnet20.network import BATCH

Ends = tuple[Tensor, Tensor]  # centre and radius


def _affine(module: nn.Module, ends: Ends) -> Ends:
    """A convolution or a normalisation in evaluation mode."""
    centre, radius = ends
    if isinstance(module, nn.BatchNorm2d):
        scale = (module.weight / (module.running_var + module.eps).sqrt()).reshape(1, -1, 1, 1)
        return module(centre), radius * scale.abs()
    return module(centre), nn.functional.conv2d(radius, module.weight.abs(), None, module.stride, module.padding)


def _relu(ends: Ends) -> Ends:
    centre, radius = ends
    low, high = torch.relu(centre - radius), torch.relu(centre + radius)
    return (low + high) / 2, (high - low) / 2


def _block(block: Block, ends: Ends) -> Ends:
    inner = _affine(block.bn2, _affine(block.conv2, _relu(_affine(block.bn1, _affine(block.conv1, ends)))))
    side = block.side
    short = [nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, side, side)) if side else x for x in ends]
    return _relu((inner[0] + short[0], inner[1] + short[1]))


def interval_margins(
    network: nn.Sequential, u: Float[np.ndarray, "N p"], y: Int[np.ndarray, " N"], eps: Float[np.ndarray, " N"] | float
) -> tuple[np.ndarray, np.ndarray]:
    """(N,) lower bound of f_y - max_j f_j over the box of radius eps, and (N,) the largest half-width of a state, in
    float64."""
    exact = copy.deepcopy(network).double()
    net: ResNet20 = exact[1]
    radius = np.broadcast_to(np.asarray(eps, dtype=np.float64), (len(u),))
    margins, widths = [], []
    with torch.no_grad():
        for at in range(0, len(u), BATCH):
            part = slice(at, at + BATCH)
            images = exact[0](torch.from_numpy(np.asarray(u[part], dtype=np.float64)))
            width = torch.from_numpy(radius[part].copy())[:, None, None, None].expand_as(images)
            ends = _relu(
                _affine(net.bn1, _affine(net.conv1, ((images - net.mean) / net.deviation, width / net.deviation)))
            )
            widest = ends[1].flatten(1).amax(1)
            for block in (*net.layer1, *net.layer2, *net.layer3):
                ends = _block(block, ends)
                widest = torch.maximum(widest, ends[1].flatten(1).amax(1))
            centre, spread = (x.mean((2, 3)) for x in ends)
            labels = torch.from_numpy(np.asarray(y[part]))
            rows = net.linear.weight[labels][:, None] - net.linear.weight[None]
            shift = net.linear.bias[labels][:, None] - net.linear.bias[None]
            lower = torch.einsum("nkd,nd->nk", rows, centre) + shift - torch.einsum("nkd,nd->nk", rows.abs(), spread)
            margins.append(lower.scatter(1, labels[:, None], torch.inf).amin(1).numpy())
            widths.append(widest.numpy())
    return np.concatenate(margins), np.concatenate(widths)


def certified_radius(
    holds: Callable[[np.ndarray], np.ndarray], count: int, halvings: int, low: float = 1e-24, high: float = 1e-1
) -> Float[np.ndarray, " N"]:
    """(N,) largest radius that `holds` for each sample, by halving the range of its logarithm; 0 where it does not hold
    at `low`.

    Args:
        holds: (N,) radii -> (N,) truth values, true below some radius of each sample.
    """
    bottom, top = np.full(count, np.log10(low)), np.full(count, np.log10(high))
    never = ~holds(10**bottom)
    for _ in range(halvings):
        middle = (bottom + top) / 2
        good = holds(10**middle)
        bottom, top = np.where(good, middle, bottom), np.where(good, top, middle)
    return np.where(never, 0.0, 10**bottom)


def interval_radius(network: nn.Sequential, u: np.ndarray, y: np.ndarray, halvings: int) -> Float[np.ndarray, " N"]:
    """(N,) largest radius at which intervals certify the label of each sample."""
    return certified_radius(lambda eps: interval_margins(network, u, y, eps)[0] > 0, len(u), halvings)


def sensitivity_radius(
    network: nn.Sequential, u: np.ndarray, y: np.ndarray, S: Float[np.ndarray, "q p"]
) -> Float[np.ndarray, " N"]:
    """(N,) radius below which |f(v) - f(u)| <= S |v - u| certifies the label: min_j (f_y - f_j) / sum(S_y + S_j); 0 for
    samples that are wrong."""
    exact = copy.deepcopy(network).double()
    with torch.no_grad():
        f = torch.cat(
            [
                exact(torch.from_numpy(np.asarray(u[at : at + BATCH], dtype=np.float64)))
                for at in range(0, len(u), BATCH)
            ]
        ).numpy()
    gap = f[np.arange(len(u)), y][:, None] - f
    reach = S.sum(axis=1)
    ratio = gap / (reach[y][:, None] + reach)
    ratio[np.arange(len(u)), y] = np.inf
    return np.maximum(ratio.min(axis=1), 0.0)
