"""The least value on a part of a box on which every unit has a sign: there the network is affine, and the least value
is that of a linear programme, whose dual gives the multipliers of the signs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int8
from scipy.optimize import linprog
from torch import Tensor

from implicit_models.activations import Segment
from implicit_models.robustness.layered.backward import Inputs
from implicit_models.robustness.layered.lines import PIECEWISE
from implicit_models.robustness.layered.network import Affine, LayeredNetwork, Units


@dataclass(frozen=True, eq=False)
class LeastOnPart:
    """The solution of the programme, up to the solver's accuracy.

    Attributes:
        input: (p,) where the largest row is least; None if the part is empty.
        weights: (k,) dual variables of the rows.
        beta: (n,) those of the signs, in the order of the layers.
    """

    input: Float[np.ndarray, " p"] | None
    weights: Float[np.ndarray, " k"]
    beta: Float[np.ndarray, " n"]


def segments_of(net: LayeredNetwork) -> list[Segment]:
    """The maps of all units, layer after layer."""
    return [s for value in net.values if isinstance(value, Units) for s in value.activation.segments]


def is_affine_on_parts(net: LayeredNetwork) -> bool:
    """Whether signs of all units leave an affine map."""
    return all(s.name in PIECEWISE for s in segments_of(net))


def least_on_part(
    net: LayeredNetwork,
    box: Inputs,
    signs: Int8[Tensor, " n"],
    slopes: Float[Tensor, " n"],
    rows: Float[np.ndarray, "k q"],
    right: Float[np.ndarray, " k"],
) -> LeastOnPart | None:
    r"""$\min_u \max_k\, (w_k' y(u) - b_k)$ over the inputs of a box at which the units have their signs.

    Args:
        net: with piecewise-linear units.
        box: of one sample.
        signs: of the units, in the order of the layers; 0 for those that the box decides.
        slopes: of the units on the part.
        rows, right: w and b.

    Returns:
        The solution; None where the solver has none.
    """
    centre, radius = box.centre[0].double(), box.radius[0].double()
    # the centre, and one step along each input: an affine map is known from these
    probes = torch.cat([centre[None], centre + torch.diag(radius)]).to(net.dtype)
    found: list[Tensor] = [probes]
    pre, begin = [], 0
    for value in net.values:
        if isinstance(value, Affine):
            found.append(net.affine(value, found))
            continue
        assert isinstance(value, Units)
        pre.append(found[value.of])
        found.append(found[value.of] * slopes[begin : begin + value.size])
        begin += value.size
    z, y = torch.cat(pre, 1).double().numpy(), found[-1].double().numpy()
    signed = np.flatnonzero(signs.numpy())
    s = signs.numpy()[signed].astype(float)
    values = y @ rows.T - right
    steps, own = (values[1:] - values[0]).T, -s[:, None] * (z[1:] - z[0]).T[signed]  # u = centre + radius v
    at = s * z[0, signed]
    beta = np.zeros(len(signs))
    solved = _least_largest(steps, -values[0], own, at)
    if solved is not None:
        v, weights, beta[signed] = solved
        return LeastOnPart((centre + radius * torch.from_numpy(v)).numpy(), weights, beta)
    # empty: an average of the signs' own sizes is negative throughout, and counts as much as the first row needs
    empty = _least_largest(own, at, own[:0], at[:0])
    if empty is None or not (gap := float((own @ empty[0] - at).max())) > 0:
        return None
    least = values[0, 0] - np.abs(steps[0]).sum()
    beta[signed] = empty[1] * 2 * (1 + abs(least)) / gap
    return LeastOnPart(None, np.eye(len(rows))[0], beta)


def _least_largest(
    M: np.ndarray, b: np.ndarray, A: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """v in [-1, 1] at which the largest of M v - b is least subject to A v <= c, with the dual variables of both; None
    where there is none."""
    k, p = M.shape
    # the solver's tolerances are absolute: rows get the size of one, those of the goal all by one factor
    whole = float(np.abs(np.column_stack([M, b])).max(initial=0.0)) or 1.0
    own = np.abs(np.column_stack([A, c])).max(axis=1, initial=0.0)
    own[own == 0] = 1.0
    rows = np.block([[M / whole, -np.ones((k, 1))], [A / own[:, None], np.zeros((len(A), 1))]])
    ends = np.concatenate([b / whole, c / own])
    found = linprog(np.append(np.zeros(p), 1.0), rows, ends, bounds=[(-1, 1)] * p + [(None, None)])
    if found.status:
        return None
    dual = np.maximum(-found.ineqlin.marginals, 0.0)
    return found.x[:-1], dual[:k], dual[k:] * whole / own
