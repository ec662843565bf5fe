"""One-shot pruning as others do it, on the layers and moments that the library's own pruning works on.

Each is given the number of weights that every layer keeps and goes through the network layer by layer on what the
pruned network computes. Targets are what the layer itself makes of these inputs ("own"), or the network's values
("teacher").

Source:
    Han et al. (2015), magnitudes; Evci et al. (2020), the Erdos-Renyi kernel; Sun et al. (2024), Wanda; Frantar and
    Alistarh (2022, 2023), exact elimination by layer and SparseGPT; Aghasi et al. (2017), Net-Trim.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from implicit_models.sim.problem import Cardinality, Tolerance
from implicit_models.sim.pruning.moments import Moments, moments
from implicit_models.sim.pruning.passes import run_pass
from implicit_models.sim.pruning.rows import rows_of
from implicit_models.sim.solvers.best_subset.backward import cheapest, kept_columns
from implicit_models.sim.solvers.budget import solve_position
from implicit_models.tracing.nodes import Normalisation

RIDGE, POSITIONS = 2e-3, 64  # as ours
BLOCK, DAMP = 128, 0.01  # of SparseGPT, as published


def uniform(plan, share: float) -> list[int]:
    return [round(share * layer.size) for layer in plan.layers]


def erdos_renyi(plan, share: float) -> list[int]:
    """Densities in proportion to (sum of a kernel's dimensions) / (their product), at most 1."""
    sizes = np.array([layer.size for layer in plan.layers], float)
    raw = np.array([sum(layer.node.weight.shape) / layer.size for layer in plan.layers])
    whole = np.zeros(len(sizes), bool)
    while True:
        rest = (share * sizes.sum() - sizes[whole].sum()) / (raw * sizes)[~whole].sum()
        density = np.where(whole, 1.0, rest * raw)
        if (density <= 1).all():
            return [int(n) for n in np.round(density * sizes)]
        whole |= density > 1


def magnitude_masks(plan, share: float, by_layer: bool) -> list[np.ndarray]:
    own = [np.abs(layer.kernels()) for layer in plan.layers]
    if by_layer:
        return [_largest(w, round(share * w.size)) for w in own]
    flat = _largest(np.concatenate([w.ravel() for w in own]), round(share * plan.weights))
    parts = np.split(flat, np.cumsum([w.size for w in own])[:-1])
    return [part.reshape(w.shape) for part, w in zip(parts, own, strict=True)]


def by_magnitude(plan, share: float) -> list[int]:
    """What magnitudes of the whole network leave each layer."""
    return [int(mask.sum()) for mask in magnitude_masks(plan, share, False)]


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    kept = np.zeros(values.size, bool)
    kept[np.argsort(-values.ravel(), kind="stable")[:count]] = True
    return kept.reshape(values.shape)


def masked(plan, masks: list[np.ndarray]) -> dict:
    """The network's own weights under masks, its biases as they are."""
    bias = lambda layer: None if layer.node.bias is None else layer.node.bias.double().numpy()
    return {
        layer.node.name: layer.with_kernels(layer.kernels() * mask, bias(layer))
        for layer, mask in zip(plan.layers, masks, strict=True)
    }


def repaired(plan, u, masks: list[np.ndarray]) -> dict:
    """The same, each bias bringing the mean of its row to that of the network's."""
    return _pass(plan, u, lambda k, layer, found: layer.rows_before() * masks[k], "teacher")


def measured_anew(plan, u, masks: list[np.ndarray]) -> dict:
    """The same, with the means and variances of batch norm measured on the pruned network."""

    def rows(k, layer, found):
        W, runs = layer.rows_before() * masks[k], layer.rows // layer.groups
        norm = _norm(layer)
        if norm is None or norm.weight is None:
            return W
        G = (
            np.repeat(found.G, runs, axis=0)
            if layer.groups > 1
            else np.broadcast_to(found.G, (len(W), *found.G.shape[1:]))
        )
        deviation = np.sqrt(np.einsum("ij,ijk,ik->i", W, G, W))
        wanted = np.abs(norm.weight.double().numpy())
        return W * (wanted / np.where(deviation > 0, deviation, np.inf))[:, None]

    return _pass(plan, u, rows, "norm")


def _norm(layer):
    return layer.chain[0] if layer.chain and isinstance(layer.chain[0], Normalisation) else None


def wanda(plan, u, kept: list[int]) -> dict:
    """|w| times the norm of its input, compared within a row; weights as they are."""

    def rows(k, layer, found):
        own, g = layer.rows_before(), layer.groups
        square = np.einsum("gjj->gj", found.G) + found.mean**2
        score = np.abs(own) * np.sqrt(np.repeat(square, len(own) // g, axis=0))
        each = np.full(len(own), kept[k] // len(own))
        each[: kept[k] - each.sum()] += 1
        return own * np.stack([_largest(s, n) for s, n in zip(score, each, strict=True)])

    return _pass(plan, u, rows, "own, its bias too")


def sparse_gpt(plan, u, kept: list[int], targets: str = "own") -> dict:
    """Columns in order, masks by blocks, by w^2 over the squared diagonal of the factor of the inverse; its updates."""

    def rows(k, layer, found):
        out = []
        for G, own in zip(found.G, np.split(layer.rows_before(), layer.groups), strict=True):
            W, d = own.copy(), own.shape[1]
            H = G + DAMP * np.mean(np.diag(G)) * np.eye(d)
            U = np.linalg.cholesky(np.linalg.inv(H)).T  # the inverse is U'U
            for a in range(0, d, BLOCK):
                b = min(d, a + BLOCK)
                score = W[:, a:b] ** 2 / np.diag(U)[a:b] ** 2
                mask = _largest(score, round(kept[k] / layer.size * score.size))
                errors = np.zeros((len(W), b - a))
                for j in range(a, b):
                    left = np.where(mask[:, j - a], W[:, j], 0.0)
                    errors[:, j - a] = (W[:, j] - left) / U[j, j]
                    W[:, j:b] -= errors[:, j - a, None] * U[j, j:b]
                    W[:, j] = left
                W[:, b:] -= errors @ U[a:b, b:]
            out.append(W)
        return np.concatenate(out)

    return _pass(plan, u, rows, targets)


def exact(plan, u, kept: list[int], targets: str) -> dict:
    """Exact elimination (optimal brain surgeon) of all rows of a layer, merged by loss, and least squares."""

    def rows(k, layer, found):
        problem = rows_of(layer, found, RIDGE)
        order, rise = problem.curves()
        return problem.least_squares(kept_columns(order, cheapest(rise, layer.size - kept[k])))

    return _pass(plan, u, rows, targets)


def net_trim(plan, u, share: float, targets: str = "own") -> dict:
    """The l1 path of every row to its share of the columns, and least squares on the support; no effects."""

    def rows(k, layer, found):
        problem = rows_of(layer, found, RIDGE)
        kept = []
        for H, run in zip(problem.H, problem.runs, strict=True):
            unit = np.sqrt(np.diag(H))
            G, C = H / unit[:, None] / unit, problem.C[run] / unit
            zz = np.maximum(found.zz[run], np.einsum("ij,ij->i", C, np.linalg.solve(G, C.T).T))
            options = {"tolerance": Tolerance(), "cap": None}
            A = solve_position(G, C, zz, 1, [Cardinality(share)], np.ones(len(C)), **options)[0][:, 0]
            kept.append(A != 0)
        return problem.least_squares(np.concatenate(kept))

    return _pass(plan, u, rows, targets)


def _pass(plan, u, rows: Callable[[int, object, Moments], np.ndarray], targets: str) -> dict:
    """One pass; rows: of a layer in units of its pre-activation, from its moments."""

    def visit(k, layer, x, target):
        found = moments(layer, x, target, POSITIONS, torch.Generator().manual_seed(k))
        own, each = layer.rows_before(), layer.rows // layer.groups
        mean = np.repeat(found.mean, each, axis=0)
        given = 0.0 if layer.node.bias is None else layer.factor * layer.node.bias.double().numpy()
        if targets == "norm" and _norm(layer) is not None:
            made = layer.factor * _norm(layer).mean.double().numpy()
            found = Moments(found.G, found.E, found.zz, found.mean, made, found.dead)
        elif targets != "teacher":
            made = np.einsum("ij,ij->i", own, mean) + given
            found = Moments(found.G, np.zeros_like(found.E), found.zz, found.mean, made, found.dead)
        W = rows(k, layer, found)
        bias = given + np.zeros(len(W)) if "bias" in targets else found.mean_z - np.einsum("ij,ij->i", W, mean)
        factor = np.where(layer.factor != 0, layer.factor, np.inf)
        return layer.with_kernels(W / factor[:, None], bias / factor)

    with torch.no_grad():
        return run_pass(plan, u, visit)
