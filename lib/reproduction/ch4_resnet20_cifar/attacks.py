"""Sparse and dense attacks on a residual network, each gradient taken once: the protocols of `attack_table` at 3,072
inputs.

Rates are per cent of the samples that the network classifies right before the attack.

Source: Tsai thesis (2024), section 4.4, Table 4.1, Figures 4.5 and 4.6.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from implicit_models.robustness.attacks.gradient import input_gradient
from implicit_models.robustness.attacks.methods import attack
from implicit_models.robustness.attacks.options import PGD, AttackMethod
from implicit_models.robustness.attacks.sparse import scores
from implicit_models.robustness.input_sets import Box, Replace, SparseBox
from implicit_models.sim.network.layers import read_layers
from reproduction.ch4_attacks.compute import CLIP, COLUMNS, PROTOCOLS, pixels
from reproduction.ch4_resnet20_cifar.packing import packed
from reproduction.ch4_resnet20_cifar.sensitivity import distance_to_centre
from reproduction.resnet20.network import BATCH, classes_of

# Rankings that know less than the row of S, for "replace": none of them reads the sample.
CONTROLS = ("any_row", "untrained", "disc", "patch")


def rankings(
    network: nn.Module,
    u: Float[np.ndarray, "N p"],
    y: Int[np.ndarray, " N"],
    S: np.ndarray,
    untrained: np.ndarray,
    shape: tuple[int, int, int],
) -> dict[str, Float[np.ndarray, "N p"]]:
    """Scores of the inputs of each sample that do not depend on a draw.

    Args:
        S, untrained: (q, p) matrices of the network and of one with random weights.
        shape: (C, H, W) of an image.

    Returns:
        "sensitivity" S[y]; "gradient" |grad CE|; "label_gradient" |grad f_y|; "any_row", the mean row of S, which knows
        no class; "untrained", the other matrix' row; "disc", the nearness to the middle of the image, which knows no
        network.
    """
    N = len(u)
    return {
        "sensitivity": S[y],
        "gradient": scores(network, u, y, "gradient"),
        "label_gradient": scores(network, u, y, "label_gradient"),
        "any_row": np.broadcast_to(S.mean(axis=0), (N, S.shape[1])),
        "untrained": untrained[y],
        "disc": np.broadcast_to(-distance_to_centre(shape), (N, S.shape[1])),
    }


def patches(count: int, shape: tuple[int, int, int], seed: int) -> Float[np.ndarray, "N p"]:
    """Nearness to a pixel drawn for each sample, the image taken as a torus: regions as connected as the disc's,
    anywhere."""
    C, H, W = shape
    rows, columns = np.indices((H, W))
    at = np.random.default_rng([seed, 3]).integers((H, W), size=(count, 2))
    down, right = np.abs(rows - at[:, :1, None]), np.abs(columns - at[:, 1:, None])
    distance = np.hypot(np.minimum(down, H - down), np.minimum(right, W - right))
    return np.tile(-distance.reshape(count, -1), (1, C))


def share_table(
    network: nn.Module,
    u: np.ndarray,
    y: np.ndarray,
    shares: Sequence[float],
    seed: int,
    ranks: Mapping[str, np.ndarray],
    direction: np.ndarray,
    shape: tuple[int, int, int],
    *,
    same: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, Any]:
    """Success against the share of inputs, as `attack_table.share_table` has it, from gradients that are there already.

    Args:
        shares: per cent of the p inputs. seed: of the draws. ranks: of `rankings`. direction: (N, p) gradient of the
            cross-entropy.
        same: the protocol "sign" of another draw, whose columns but "random" are the same.
    Returns:
        {protocol: {column: rates}} with the columns of `attack_table.COLUMNS`, and of `CONTROLS` for "replace";
        "wrong": {column: per cent of all samples that are wrong after "replace"}; "regions": {column: mean number of
        pixels in which a colour changed} at each share.
    """
    u = np.asarray(u, dtype=np.float64)
    counts = [pixels(share, u.shape[1]) for share in shares]
    right = classes_of(network, u) == y
    table: dict[str, Any] = {protocol: {} for protocol in PROTOCOLS}
    table["wrong"], table["regions"] = {}, {}
    for protocol, of_few in PROTOCOLS.items():
        for column in (*COLUMNS, *(CONTROLS if protocol == "replace" else ())):
            if protocol == "sign" and same is not None and column != "random":
                table[protocol][column] = list(same[column])
                continue
            if column == "random":
                rank = np.random.default_rng(seed).random(u.shape)
            else:
                rank = patches(len(u), shape, seed) if column == "patch" else ranks[column]
            order = np.argsort(-rank, axis=1, kind="stable")[:, : max(counts)]
            rates, wrong, regions = [], [], []
            for k in counts:
                moved = _moved(u, order[:, :k], of_few(k), direction, seed)
                after = classes_of(network, moved) != y
                rates.append(100 * float((right & after).sum() / right.sum()) if right.any() else float("nan"))
                wrong.append(100 * float(after.mean()))
                regions.append(float((moved != u).reshape(len(u), shape[0], -1).any(axis=1).sum(axis=1).mean()))
            table[protocol][column] = rates
            if protocol == "replace":
                table["wrong"][column], table["regions"][column] = wrong, regions
    return table


def _moved(u: np.ndarray, top: np.ndarray, inputs: SparseBox | Replace, direction: np.ndarray, seed: int) -> np.ndarray:
    """`sparse_attacks.perturb` with the inputs ranked already: the chosen ones (N, k) become draws, or go to an end of
    the range along the direction."""
    out, rows = np.array(u), np.arange(len(u))[:, None]
    if isinstance(inputs, Replace):
        out[rows, top] = np.random.default_rng([seed, 1]).uniform(inputs.low, inputs.high, top.shape)
    else:
        out[rows, top] = np.clip(out[rows, top] + (CLIP[1] - CLIP[0]) * np.sign(direction[rows, top]), *CLIP)
    return out


def greedy_rates(network: nn.Module, u: np.ndarray, y: np.ndarray, counts: Sequence[int]) -> list[float]:
    """Success of JSMA, which takes one input after the other to 0 or 1, with at most each number of inputs."""
    right = classes_of(network, u) == y
    found = attack(network, u, y, PROTOCOLS["sign"](max(counts)), "jsma")
    return [100 * float((found.success & (found.changed <= k)).sum() / right.sum()) for k in counts]


def linear_network(network: nn.Module) -> nn.Module:
    """A copy with every ReLU replaced by the identity: its gradient is C (I - A)^-1 B + D with signs, the response with
    every unit active."""
    out = copy.deepcopy(network)
    for module in list(out.modules()):
        for name, part in module.named_children():
            if isinstance(part, nn.ReLU):
                setattr(module, name, nn.Identity())
    return out


def signed_sensitivity(network: nn.Module, u: np.ndarray, y: np.ndarray) -> Float[np.ndarray, "N p"]:
    """Row of the runner-up less row of the label in the signed matrix: `sparse_attacks.linear_direction` without the
    matrices."""
    linear, first = linear_network(network), torch.zeros(1, u.shape[1], requires_grad=True)
    with torch.enable_grad():
        out = linear(first)[0]
        rows = np.array([torch.autograd.grad(value, first, retain_graph=True)[0][0].numpy() for value in out])
    with torch.no_grad():
        found = torch.cat(
            [network(torch.from_numpy(u[at : at + BATCH]).float()) for at in range(0, len(u), BATCH)]
        ).numpy()
    found[np.arange(len(u)), y] = -np.inf
    return rows[found.argmax(axis=1)] - rows[y]


def linearised_programme(
    network: nn.Module, u: np.ndarray, y: np.ndarray, eps: float, clip: tuple[float, float] = CLIP
) -> Float[np.ndarray, "N p"]:
    """The margin's linear programme on the affine piece of each sample: for every class j min f_y - f_j over the box,
    in closed form.

    With the activations at the sample held, f is affine and the optimum is u + eps sign(grad (f_j - f_y)), cut to the
    range; of the nine the one with the least margin of the network itself is kept. For a radius so small that no unit
    changes its sign, this is the optimum over the triangles as well.
    """
    best, least = np.array(u, dtype=np.float64), np.full(len(u), np.inf)
    low, high = np.maximum(u - eps, clip[0]), np.minimum(u + eps, clip[1])
    for at in range(0, len(u), BATCH):
        part = slice(at, at + BATCH)
        v = torch.from_numpy(np.asarray(u[part])).float().requires_grad_()
        labels = torch.from_numpy(np.asarray(y[part]))
        with torch.enable_grad():
            f = network(v)
            for shift in range(1, f.shape[1]):
                other = (labels + shift) % f.shape[1]
                gap = f.gather(1, other[:, None]) - f.gather(1, labels[:, None])
                (g,) = torch.autograd.grad(gap.sum(), v, retain_graph=shift + 1 < f.shape[1])
                sign = g.numpy()
                moved = np.where(sign > 0, high[part], np.where(sign < 0, low[part], u[part]))
                with torch.no_grad():
                    out = network(torch.from_numpy(moved).float()).double()
                own = out.gather(1, labels[:, None])[:, 0]
                margin = (own - out.scatter(1, labels[:, None], -torch.inf).amax(1)).numpy()
                better = margin < least[part]
                best[part][better], least[part][better] = moved[better], margin[better]
    return best


def discrepancy_ascent(
    network: nn.Module, u: np.ndarray, eps: float, steps: int, seed: int, clip: tuple[float, float] = CLIP
) -> Float[np.ndarray, "N p"]:
    """Sign steps up sum_i (x_i - x0_i)^2 over all activations x: the thesis' objective on the network itself, not on a
    relaxation. No label enters.

    The gradient at the sample is zero, so that each path starts at random signs of half the radius; the point of
    largest sum is kept.
    """
    maps = [module for module in network.modules() if isinstance(module, nn.ReLU)]
    rng, out = np.random.default_rng([seed, 4]), np.array(u, dtype=np.float64)
    low, high = np.maximum(u - eps, clip[0]), np.minimum(u + eps, clip[1])
    for at in range(0, len(u), BATCH):
        part = slice(at, at + BATCH)
        seen: list[torch.Tensor] = []
        hooks = [
            module.register_forward_hook(lambda module, inputs, value, seen=seen: seen.append(value)) for module in maps
        ]
        try:
            with torch.no_grad():
                network(torch.from_numpy(np.asarray(u[part])).float())
            rest = [value.clone() for value in seen]
            v = np.clip(u[part] + 0.5 * eps * rng.choice([-1.0, 1.0], u[part].shape), low[part], high[part])
            best, largest = v, np.full(len(v), -np.inf)
            for size in (*np.linspace(0.5, 0.1, steps), None):
                seen.clear()
                w = torch.from_numpy(v).float().requires_grad_(size is not None)
                with torch.set_grad_enabled(size is not None):
                    network(w)
                    value = torch.stack(
                        [(a - b).square().flatten(1).sum(1) for a, b in zip(seen, rest, strict=True)]
                    ).sum(0)
                now = value.detach().double().numpy()
                best, largest = np.where((now > largest)[:, None], v, best), np.maximum(now, largest)
                if size is not None:
                    (g,) = torch.autograd.grad(value.sum(), w)
                    v = np.clip(v + float(size) * eps * np.sign(g.double().numpy()), low[part], high[part])
            out[part] = best
        finally:
            for hook in hooks:
                hook.remove()
    return out


def dense_attacks(steps: int, seed: int) -> dict[str, Callable[[nn.Module, np.ndarray, np.ndarray, float], np.ndarray]]:
    """Name -> (network, u, y, eps) -> attacked samples in the box of radius eps cut to [0, 1]."""

    def library(method: AttackMethod) -> Callable[..., np.ndarray]:
        return lambda network, u, y, eps: attack(network, u, y, Box(eps, CLIP), method, seed=seed).U_adv

    def signed(network: nn.Module, u: np.ndarray, y: np.ndarray, eps: float) -> np.ndarray:
        return np.clip(u + eps * np.sign(signed_sensitivity(network, u, y)), *CLIP)

    return {
        "random": library("random"),
        "signed_sensitivity": signed,
        "fgsm": library("fgsm"),
        "pgd": library(PGD(steps=steps, restarts=1)),
        "discrepancy": lambda network, u, y, eps: discrepancy_ascent(network, u, eps, steps, seed),
        "linearised": lambda network, u, y, eps: linearised_programme(network, u, y, eps),
    }


DRAWN = ("random", "discrepancy")  # dense attacks that begin at random signs


def dense_rates(
    network: nn.Module, u: np.ndarray, y: np.ndarray, epsilons: Sequence[float], steps: int, seeds: Sequence[int]
) -> dict[str, list[list[float]]]:
    """Success of every dense attack: name -> one list of rates a seed, one rate a radius; those without a random start
    have one list."""
    u = np.asarray(u, dtype=np.float64)
    right = classes_of(network, u) == y
    out: dict[str, list[list[float]]] = {}
    for seed in seeds:
        for name, make in dense_attacks(steps, seed).items():
            if name in DRAWN or name not in out:
                after = [classes_of(network, make(network, u, y, eps)) for eps in epsilons]
                out.setdefault(name, []).append(
                    [
                        100 * float((right & (seen != y)).sum() / right.sum()) if right.any() else float("nan")
                        for seen in after
                    ]
                )
    return out


def programme_size(network: nn.Module) -> dict[str, float]:
    """Of a linear programme over the whole network: "states", "variables" (states and inputs), "entries" of its
    rows."""
    layers = read_layers(network[1], network[0].unflattened_size)
    entries = sum(layers.entries(k) for k in range(len(layers.blocks)))
    return {
        "states": float(layers.n_states),
        "variables": float(layers.n_states + math.prod(layers.input_shape)),
        "entries": float(entries),
    }


def examples(
    network: nn.Module, u: np.ndarray, y: np.ndarray, made: Mapping[str, np.ndarray], wanted: int, sparse: Sequence[str]
) -> list[dict[str, Any]]:
    """The first samples that are right and that all attacks fool, as `attack_table.examples` gives them.

    Args:
        made: name -> (N, p) attacked samples.
        sparse: names whose changed pixels are marked.

    Returns:
        one entry a sample: "label" and "panels", each with "name", "image" (`packing.packed`), "predicted" and
        "marked", the pixels of which a colour changed.
    """
    u = np.asarray(u, dtype=np.float64)
    seen = {"clean": classes_of(network, u), **{name: classes_of(network, v) for name, v in made.items()}}
    good = (seen["clean"] == y) & np.logical_and.reduce([seen[name] != y for name in made])
    out = []
    for i in np.flatnonzero(good)[:wanted]:
        panels = []
        for name, v in {"clean": u, **made}.items():
            moved = (v[i] != u[i]).reshape(network[0].unflattened_size[0], -1).any(axis=0)
            marked = [int(j) for j in np.flatnonzero(moved)] if name in sparse else []
            panels.append({"name": name, "image": packed(v[i]), "predicted": int(seen[name][i]), "marked": marked})
        out.append({"label": int(y[i]), "panels": panels})
    return out


def cross_entropy_gradient(network: nn.Module, u: np.ndarray, y: np.ndarray) -> Float[np.ndarray, "N p"]:
    """(N, p) gradient whose signs the protocol "sign" follows."""
    parts = [input_gradient(network, u[at : at + BATCH], y[at : at + BATCH]) for at in range(0, len(u), BATCH)]
    return np.concatenate(parts)
