"""What the sensitivity matrix of a residual network says: how it is computed at 188,416 states, what its rows show, and
what they do not.

Source: Tsai thesis (2024), Theorem 6, section 4.3, Figure 4.4 right.
"""

from __future__ import annotations

import copy
import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.compose.interconnect import from_network
from implicit_models.robustness.problem import problem
from implicit_models.robustness.sensitivity import sensitivity_matrix
from reproduction.ch4_sensitivity.compute import published_iteration, rank_correlation
from reproduction.resnet20.network import BATCH


def matrix_of(network: nn.Module, p: int) -> Float[np.ndarray, "q p"]:
    """S of a network on flat samples."""
    return sensitivity_matrix(network, input_shape=(p,)).S


def cost_of(call: Callable[[], Any], repeats: int = 3) -> dict[str, float]:
    """Least CPU time of a call over the repeats, seconds, and the largest growth of the process's memory in them, MB;
    NaN where the system does not tell.

    Free memory is given back and the high-water mark is reset before each call, so that the growth is the call's own.
    """
    seconds, growth = [], []
    for _ in range(repeats):
        before = _resident(reset=True)
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
        growth.append(_resident("VmHWM") - before)
    return {"cpu_seconds": min(seconds), "memory_mb": max(growth)}


def _resident(field: str = "VmRSS", *, reset: bool = False) -> float:
    try:
        if reset:
            ctypes.CDLL("libc.so.6").malloc_trim(
                0
            )  # else freed memory that the process still holds would hide the growth
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(field)) / 1000
    except (OSError, AttributeError, StopIteration):
        return float("nan")


def absolute_network(network: nn.Module) -> nn.Module:
    """A float64 copy whose convolutions, normalisations and linear layers have absolute weights, no shift, and whose
    activations are the identity.

    Its output at a deviation d >= 0 is S d: the same matrix by columns, where the library takes rows.
    """
    out = copy.deepcopy(network).double()
    for module in out.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.copy_(module.weight.abs())
            module.bias.zero_()
            module.running_mean.zero_()
        elif isinstance(module, (nn.Conv2d, nn.Linear)):
            module.weight.copy_(module.weight.abs())
            if module.bias is not None:
                module.bias.zero_()
        for name, part in module.named_children():
            if isinstance(part, nn.ReLU):
                setattr(module, name, nn.Identity())
        if hasattr(module, "mean") and hasattr(module, "deviation"):
            module.mean.zero_()
    return out


def column_error(network: nn.Module, S: Float[np.ndarray, "q p"], count: int, seed: int) -> float:
    """Largest difference of `count` random columns of S from the absolute network at unit vectors, relative to each
    entry."""
    columns = np.random.default_rng(seed).choice(S.shape[1], count, replace=False)
    with torch.no_grad():
        found = absolute_network(network)(torch.eye(S.shape[1], dtype=torch.float64)[columns]).numpy().T
    return float((np.abs(found - S[:, columns]) / S[:, columns]).max())


def exact_model_error(network: nn.Module, size: int) -> dict[str, float]:
    """The same weights on images of another size, small enough for all matrices: S against the published iteration on
    the exact implicit model.

    Returns:
        "states", "entries" of A, "steps" of the iteration, "error": largest difference relative to each entry.
    """
    plain = copy.deepcopy(network[1]).double()
    model = from_network(plain, (3, size, size), dtype=torch.float64)
    wanted, steps = published_iteration(problem(model))
    found = sensitivity_matrix(plain, input_shape=(3, size, size)).S
    return {
        "states": float(model.n_states),
        "entries": float(model.A._nnz()),
        "steps": float(steps),
        "error": float((np.abs(found - wanted) / wanted).max()),
    }


def distance_to_centre(shape: tuple[int, int, int]) -> Float[np.ndarray, " p"]:
    """(C H W,) distance of each pixel from the middle of the image, in pixels, the same in every colour plane."""
    C, H, W = shape
    rows, columns = np.indices((H, W))
    return np.tile(np.hypot(rows - (H - 1) / 2, columns - (W - 1) / 2).ravel(), C)


def gradient_maps(network: nn.Module, images: Dataset, count: int) -> Float[np.ndarray, "q p"]:
    """(q, p) mean of |gradient of output k| over the first `count` test images of class k that there are: maps that do
    look at images."""
    u, y = images.test[next(iter(images.test))]
    out = np.full((len(images.meta["classes"]), u.shape[1]), np.nan)
    for k in range(len(out)):
        own = torch.from_numpy(u[y == k][:count])
        if len(own):
            total = np.zeros(u.shape[1])
            for part in own.split(BATCH):
                v = part.requires_grad_()
                (g,) = torch.autograd.grad(network(v)[:, k].sum(), v)
                total += g.abs().double().sum(0).numpy()
            out[k] = total / len(own)
    return out


def map_facts(S: np.ndarray, others: dict[str, np.ndarray], images: Dataset, gradients: np.ndarray) -> dict[str, float]:
    """How alike the rows of S are, and like what else.

    Args:
        others: name -> (q, p) matrices of networks that learned nothing of these classes.
        gradients: of `gradient_maps`.

    Returns:
        "rows_least": least correlation of two rows; "common": share of the rows' variance about their means that one
        common map, each row's own multiple of it, explains; "first_with_<name>": correlation of the row of class 0 with
        that of each other network; "centre": rank correlation of that row with the nearness to the middle;
        "remainder_own", "remainder_other", "remainder_own_is_best": of what is left of each row, in units of its sum,
        less the mean row, with the mean image of the class less that of all; "first_remainder_own",
        "first_remainder_other" of class 0; "gradients_least": least correlation of two maps of gradients.
    """
    q = len(S)
    shares = S / S.sum(axis=1, keepdims=True)
    rows = np.corrcoef(shares)
    off = np.triu_indices(q, 1)
    centred = shares - shares.mean(axis=1, keepdims=True)
    values = np.linalg.svd(centred, compute_uv=False) ** 2
    means = np.array([images.u_train[images.y_train == k].mean(axis=0) for k in range(q)])
    table = np.corrcoef(np.vstack([shares - shares.mean(axis=0), means - means.mean(axis=0)]))[:q, q:]
    known = gradients[np.isfinite(gradients).all(axis=1)]
    maps = np.corrcoef(known) if len(known) > 1 else np.full((2, 2), np.nan)
    return {
        "rows_least": float(rows[off].min()),
        "common": float(values[0] / values.sum()),
        **{f"first_with_{name}": float(np.corrcoef(S[0], M[0])[0, 1]) for name, M in others.items()},
        "centre": rank_correlation(S[0], -distance_to_centre(images.meta["image_shape"])),
        "remainder_own": float(np.diag(table).mean()),
        "remainder_other": float(table[~np.eye(q, dtype=bool)].mean()),
        "remainder_own_is_best": float((table.argmax(axis=1) == np.arange(q)).mean()),
        "first_remainder_own": float(table[0, 0]),
        "first_remainder_other": float(table[0, 1:].mean()),
        "gradients_least": float(maps[np.triu_indices(len(maps), 1)].min()),
    }
