"""Sparse models of a trained ResNet-20 with a row for each position: the papers' literal method, the repairs one by
one, and what each costs.

Every measurement is a plain dictionary: accuracies and sparsities in per cent, R^2 in parts of one. Each is kept in the
content-keyed cache once it is done, so that a run that was cut off goes on behind the last one.

Source: Tsai thesis (2024), section 3.4, Tables 3.1, 3.2, Figure 3.6; SIM paper, section 4.1.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor, nn

from data_gen.core.sources import cache_dir
from data_gen.core.streams import stream
from implicit_models.sim.layerwise import sparsify, sparsify_path
from implicit_models.sim.network.layer_scales import layer_scales
from implicit_models.sim.network.layers import INPUT, NetworkLayers, read_layers
from implicit_models.sim.parallel.run import Parallel
from implicit_models.sim.problem import Budget, Cardinality, L1Ball, L1Penalty
from implicit_models.sim.row_models import ByPosition, Refit, RowModel, SharedKernels
from implicit_models.sim.sparse_model import SparseModel
from reproduction.book.keys import content_key
from reproduction.book.results import load, plain, save
from reproduction.ch3_resnet20_cifar.kernel_rows import own_kernels
from reproduction.core.counts import parameters_shown
from reproduction.core.scores import accuracy_of

BATCH = 200
KAPPAS = (0.005, 0.01, 0.05, 0.1, 0.5, 0.99)  # of Table 3.1
HELD_OUT = 100  # further training images, for the share of variance explained on them
# m, large_m: images of rows by position; kernel_m: of kernels. students, large, one_sided: budgets on the model's own
# states, (kind, value); the last two on large_m images, one_sided with refits of that name. effect: penalties shared
# out by the rows' effects, on large_m images, every seed.
BY_POSITION = ByPosition()
BUDGETS = {"kappa": L1Ball, "lam": L1Penalty, "keep": Cardinality}  # by their names in the profiles
PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": (0,),
        "m": 100,
        "tested": 100,
        "kappas": (0.05, 0.99),
        "theorem": (0.05,),
        "uniform": (0.01, 0.05),
        "balls": (0.05, 2.0),
        "kernel_matching": True,
        "students": (("keep", 0.05),),
        "large_m": 120,
        "large": (("lam", 0.25),),
        "one_sided": (("keep", 0.05),),
        "effect": (0.25,),
        "kernel_m": 40,
        "shares": (0.2,),
        "weights": (0.02,),
        "student_weights": (0.02,),
        "data": (20, 40),
        "row_data": (60,),
        "search_rows": 1,
        "search_m": 100,
        "radii": (0.5,),
        "iterations": 3,
    },
    "full": {
        "seeds": (0, 1, 2),
        "m": 500,
        "tested": 1000,
        "kappas": KAPPAS,
        "theorem": (0.005, 0.01, 0.05),
        "uniform": KAPPAS,
        "balls": (*KAPPAS, 2.0, 4.0),
        "kernel_matching": False,
        "students": (("kappa", 0.99), ("keep", 0.05), ("keep", 0.1), ("keep", 0.2), ("keep", 0.3)),
        "large_m": 2000,
        "large": (("keep", 0.1), ("keep", 0.2), ("lam", 0.02)),
        "one_sided": (("keep", 0.1), ("keep", 0.2), ("lam", 0.02)),
        "effect": (0.03, 0.045, 0.082, 0.2, 0.25),
        "kernel_m": 300,
        "shares": (0.05, 0.1, 0.2, 0.3, 0.5),
        "weights": (0.1, 0.02, 0.01, 0.005, 0.002),
        "student_weights": (0.05, 0.02, 0.01, 0.005),
        "data": (25, 50, 100, 1000),
        "row_data": (100, 2000),
        "search_rows": 2,
        "search_m": 1000,
        "radii": (0.1, 0.5, 0.99),
        "iterations": 21,
    },
}


@dataclass(frozen=True, eq=False)
class Task:
    """The network, its images and what names them: real ones, or a stand-in that only proves the machinery.

    images (N, 3, 32, 32), test images and labels; key of the data; banner: what a reader must know, empty for the real
    ones.
    """

    network: nn.Module
    images: Tensor
    test: Tensor
    labels: Tensor
    key: str
    banner: str = ""
    classes: int = 10

    @functools.cached_property
    def layers(self) -> NetworkLayers:
        return read_layers(self.network, tuple(self.images.shape[1:]))

    def first(self, tested: int) -> Task:
        """The same with the first so many test images."""
        return dataclasses.replace(self, test=self.test[:tested], labels=self.labels[:tested])

    def draw(self, m: int, seed: int) -> tuple[Tensor, Tensor]:
        """m training images, evenly drawn, the larger m of one seed containing the smaller; and `HELD_OUT` others."""
        if not 1 <= m <= len(self.images) - HELD_OUT:
            raise ValueError(f"m must be between 1 and {len(self.images) - HELD_OUT}, got {m}")
        order = torch.from_numpy(stream(seed, "images of the fit").permutation(len(self.images)))
        return self.images[order[:m]], self.images[order[len(order) - HELD_OUT :]]


def task() -> Task:
    """The published CIFAR-10 ResNet-20 and the 12,000 images; where they cannot be had, what stands in for them."""
    from data_gen.core.dataset import DatasetUnavailable
    from data_gen.images.cifar import SHAPE, cifar10, fingerprint
    from reproduction.models.resnet20 import published
    from reproduction.resnet20.network import stand_in

    try:
        network, data, key, banner = published(), cifar10(subset=True), fingerprint(True), ""
    except DatasetUnavailable as missing:
        flat, data = stand_in(n_test=400, n_train=1000)
        network, key = flat[1], data.meta["name"]
        banner = (
            f"{missing.name} cannot be had here (see IMPLICIT_DATA): a ResNet-20 with random weights, its last layer"
            " fitted to coloured patterns, proves the machinery and nothing else."
        )
    shaped = lambda u: torch.from_numpy(u).reshape(-1, *SHAPE)
    u, y = data.test[0]
    classes = len(data.meta["classes"])
    return Task(network, shaped(data.u_train), shaped(u), torch.from_numpy(y), key, banner, classes)


def accuracy(model: nn.Module, given: Task) -> float:
    """Test accuracy, per cent."""
    return 100 * accuracy_of(model, given.test, given.labels, batch_size=BATCH)


@torch.no_grad()
def accuracies(model: Any, given: Task) -> tuple[float, float]:
    """Test accuracies of a sparse model with the network's last layer and with the model's own, from one pass; per
    cent."""
    right = [0, 0]
    for at in range(0, len(given.test), BATCH):
        known, labels = model.states(given.test[at : at + BATCH]), given.labels[at : at + BATCH]
        for i, y in enumerate((model.layers.affine(None, known), model.output(known))):
            right[i] += int((y.argmax(1) == labels).sum())
    return 100 * right[0] / len(given.test), 100 * right[1] / len(given.test)


@functools.cache
def _code_key(module: str, data: str) -> str:
    return content_key(modules=[module], parameters={}, data={"images": data})


def stored(
    name: str, given: Task, settings: Mapping[str, Any], compute: Callable[[], Any], module: str = __name__
) -> Any:
    """What `compute` gives, from the cache where the code that `module` imports, the data and the settings are the
    same; its CPU seconds go to `SPENT`."""
    key = hashlib.sha256(
        f"{_code_key(module, given.key)} {len(given.test)} {json.dumps(plain(settings), sort_keys=True)}".encode()
    ).hexdigest()
    path = cache_dir() / "fits" / f"resnet20-{name}-{key[:20]}.json"
    with FileLock(path.with_suffix(".lock")):
        found = load(path)
        if found is None:
            start = time.process_time()
            value = compute()
            found = plain({"value": value, "cpu_seconds": time.process_time() - start})
            save(path, found)
    SPENT[path.name] = found["cpu_seconds"]
    return found["value"]


SPENT: dict[
    str, float
] = {}  # CPU seconds of every measurement that this process used, those read from the cache included


def summary_of(model: SparseModel, given: Task) -> dict[str, Any]:
    """Accuracies of a model ("accuracy" with the network's last layer, "head" with its own), sparsity in the three
    counts, and its rows layer by layer."""
    report, (own, head) = model.report, accuracies(model, given)
    status: dict[str, int] = {}
    for layer in report.layers:
        for name, count in layer.status.items():
            status[name] = status.get(name, 0) + count
    return {
        "accuracy": own,
        "head": head,
        "rows": 100 * report.sparsity_of_entries,
        "kernels": 100 * report.sparsity_of_parameters,
        "full": 100 * report.sparsity_of_full_matrix,
        "entries": report.entries,
        "numbers": report.parameters,
        "fit": [layer.fit for layer in report.layers],
        "held_out": [layer.held_out for layer in report.layers],
        "gap": max(layer.gap for layer in report.layers),
        "violation": max(layer.violation for layer in report.layers),
        "status": status,
    }


@parameters_shown()
def literal(given: Task, kappas: Sequence[float], *, m: int, seed: int, scale: str = "std") -> list[dict[str, Any]]:
    """The papers' method on the network's states, one entry a radius: {"l1", "refit"}, each a `summary_of`; the refit
    has a new last layer too.

    The rows are solved once: the second fit reads the first one's from a folder.
    """
    u, held_out = given.draw(m, seed)

    def compute() -> list[dict[str, Any]]:
        (cache_dir() / "fits").mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix="rows-", dir=cache_dir() / "fits")
        balls, parallel = [L1Ball(kappa) for kappa in sorted(kappas)], Parallel(resume=folder)
        common = {"states": "teacher", "held_out": held_out, "parallel": parallel}
        try:
            found = {}
            for name, refit in (("l1", None), ("refit", Refit())):
                rows = ByPosition(scale=scale, refit=refit)
                models = sparsify_path(given.network, u, balls, rows, head=refit is not None, **common)
                found[name] = [summary_of(model, given) for model in models]
            return [{name: each[t] for name, each in found.items()} for t in range(len(kappas))]
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return stored("literal", given, {"kappas": sorted(kappas), "m": m, "seed": seed, "scale": scale}, compute)


@parameters_shown()
def student(given: Task, budget: Budget, rows: RowModel = BY_POSITION, *, m: int, seed: int) -> dict[str, Any]:
    """Rows fitted layer by layer on the sparse model's own states, refitted, with a new last layer."""
    u, held_out = given.draw(m, seed)

    def compute() -> dict[str, Any]:
        model = sparsify(given.network, u, budget, rows, held_out=held_out, parallel=Parallel())
        return summary_of(model, given)

    return stored("student", given, {"budget": repr(budget), "rows": repr(rows), "m": m, "seed": seed}, compute)


@parameters_shown()
def matching(
    given: Task, *, m: int, seed: int, kappa: float, share: float, shared: bool = False, images: int = 200
) -> dict[str, dict[str, list[float]]]:
    """R^2 of every layer's pre-activations on test images, rows fed with the network's states ("forced") and with the
    model's own ("own").

    Returns:
        "l1" and "refit" (radius `kappa`, network's states), and "student" (`share` of the columns kept); shared:
        kernels, not rows by position.
    """
    u, _ = given.draw(m, seed)
    v = given.test[:images]

    def compute() -> dict[str, dict[str, list[float]]]:
        rows = SharedKernels if shared else ByPosition
        common = {"parallel": Parallel(), "head": False}
        ball = given.network, u, L1Ball(kappa)
        made = {
            "l1": lambda: sparsify(*ball, rows(refit=None), states="teacher", **common),
            "refit": lambda: sparsify(*ball, rows(), states="teacher", **common),
            "student": lambda: sparsify(given.network, u, Cardinality(share), rows(), **common),
        }
        return {name: layer_matching(make(), v) for name, make in made.items()}

    settings = {"m": m, "seed": seed, "kappa": kappa, "share": share, "shared": shared, "images": images}
    return stored("matching", given, settings, compute)


@torch.no_grad()
def layer_matching(model: SparseModel, v: Tensor) -> dict[str, list[float]]:
    """Share of the variance of each fitted block's pre-activations that the rows explain, fed with the network's states
    and with the model's own."""
    layers, teacher, own = model.layers, {INPUT: v}, {INPUT: v}
    found: dict[str, list[float]] = {"forced": [], "own": []}
    for block in range(len(layers.blocks)):
        z = layers.affine(block, teacher)
        if block in model.fitted:
            spread = float(((z - z.mean(0)) ** 2).sum(dtype=torch.float64))
            mine = {"forced": model.pre_activation(block, teacher), "own": model.pre_activation(block, own)}
            for name, each in mine.items():
                found[name].append(
                    1 - float(((each - z) ** 2).sum(dtype=torch.float64)) / spread if spread > 0 else float("nan")
                )
        else:
            mine = {"own": layers.affine(block, own)}
        teacher[block], own[block] = layers.apply(block, z), layers.apply(block, mine["own"])
    return found


@torch.no_grad()
def counts(given: Task) -> dict[str, float]:
    """Sizes of the network as an implicit model, and what the papers' sparsities leave of it in each count."""
    layers = given.layers
    own = sum(layers.entries(b) for b in range(len(layers.blocks)))
    numbers = sum(layers.kernel_weights(b) for b in range(len(layers.blocks)))
    n, p = layers.n_states, int(np.prod(layers.input_shape))
    parameters = sum(w.numel() for w in given.network.parameters())
    return {
        "states": n,
        "inputs": p,
        "parameters": parameters,
        "weights": sum(w.numel() for w in given.network.parameters() if w.ndim > 1),
        "kernel_weights": numbers,
        "row_entries": own,
        "full_entries": n * (n + p),
        "own_full_sparsity": 100 * (1 - own / (n * (n + p))),
        "left_at_41": 0.59 * (numbers + 640),
        "left_at_41_a_row": 0.59 * (numbers + 640) / n,
        "left_at_90_a_row": 0.099 * (numbers + 640) / n,
        "full_at_90_over_weights": 0.099 * n * (n + p) / numbers,
        "rows_over_kernels": own / numbers,
    }


@torch.no_grad()
def units(given: Task, m: int, seed: int) -> dict[str, Any]:
    """What the three scales do to the states: medians and largest s a layer, the uniform factor to its depth, and norms
    of the network's own rows.

    "norm" of a layer: median over its rows of the l1 norm of the entries on states, raw; "std_norm": in units of the
    states' deviations, which is the radius that holds the network itself.
    """
    layers = given.layers
    found: dict[str, Any] = {
        name: [float(np.median(s)) for s in layer_scales(layers, name)] for name in ("theorem", "uniform")
    }
    found["theorem_max"] = [float(s.max()) for s in layer_scales(layers, "theorem")]
    u, _ = given.draw(m, seed)
    raw, std, known = [], [], {INPUT: u}
    for block in range(len(layers.blocks)):
        z = torch.cat(
            [layers.affine(block, {k: v[at : at + BATCH] for k, v in known.items()}) for at in range(0, m, BATCH)]
        )
        reads = {k: known[k] for k in layers.blocks[block].sources}
        known[block] = layers.apply(block, z)
        if INPUT not in reads:
            absolute = _absolute_sum(layers, block, {k: torch.ones_like(v[:1]) for k, v in reads.items()})
            spread = _absolute_sum(layers, block, {k: v.std(0, correction=0)[None] for k, v in reads.items()})
            deviation = z.std(0, correction=0)[None]
            raw.append(float(absolute.median()))
            std.append(float((spread / deviation)[deviation > 1e-6].median()))
    return found | {"norm": raw, "std_norm": std}


def _absolute_sum(layers: NetworkLayers, block: int, known: Mapping[int, Tensor]) -> Tensor:
    kernels, _ = own_kernels(layers, block)
    out = 0
    for k, kernel in kernels.items():
        x, side = known[k], int(kernel.shape[2] ** 0.5)
        weight = torch.from_numpy(np.abs(kernel)).to(x.dtype).reshape(*kernel.shape[:2], side, side)
        out = out + nn.functional.conv2d(
            x, weight, stride=x.shape[2] // layers.blocks[block].shape[1], padding=side // 2
        )
    return out


def plateau(shares: Sequence[float], accuracies: Sequence[float], within: float = 1.0) -> float:
    """Smallest share from which on the accuracy stays within some points of the last one."""
    fine = np.abs(np.asarray(accuracies) - accuracies[-1]) <= within
    last_off = np.flatnonzero(~fine)
    return float(shares[0 if not len(last_off) else last_off[-1] + 1])
