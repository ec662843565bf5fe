"""What the notebook of scaling records: backends beside each other, chunks, bytes and bits, fits against an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.sim.fit import fit_sim
from implicit_models.sim.network.states import States
from implicit_models.sim.problem import L1, LeastSquares
from reproduction.ch3_scaling import compute
from reproduction.ch3_scaling.compute import BETA, RowSet
from reproduction.ch3_sim_fashion.compute import samples_of
from reproduction.classifiers import fashion

Runs = Sequence[Mapping[str, Mapping[str, Sequence[float]]]]  # `compute.compare_backends`, one a seed


@dataclass(frozen=True)
class Case:
    """Networks, one a seed, their states on some samples, and rows of these.

    Args:
        samples: how many.
    """

    images: Dataset
    seeds: Sequence[int]
    profile: str
    samples: int
    networks: Sequence[nn.Module]
    found: Sequence[States]
    sets: Sequence[RowSet]


def trained(images: Dataset, seeds: Sequence[int], profile: str, count: int) -> Case:
    """The case of trained networks, with `count` rows each."""
    samples = compute.PROFILES[profile]["samples"]
    networks = [fashion.trained(images, seed, profile)["explicit"][0].eval() for seed in seeds]
    found = [samples_of(n, images, samples, seed) for n, seed in zip(networks, seeds, strict=True)]
    sets = [compute.row_set(one, count, seed) for one, seed in zip(found, seeds, strict=True)]
    return Case(images, seeds, profile, samples, networks, found, sets)


def compared(case: Case, rows: Sequence[int], backends: Sequence[str], workers: int) -> tuple[Runs, list[float]]:
    """Backends beside each other on each seed's rows, and the cores that were available meanwhile, one a seed."""
    runs, cores = [], [compute.available_cores(workers)]
    repeats = compute.PROFILES[case.profile]["repeats"]
    for each in case.sets:
        runs.append(compute.compare_backends(each, rows, backends, workers=workers, repeats=repeats))
        cores.append(compute.available_cores(workers))
    compute.stop_ray()
    return runs, [(before + after) / 2 for before, after in zip(cores[:-1], cores[1:], strict=True)]


def backend_values(runs: Runs) -> dict[str, Any]:
    """`start_BACKEND`, `rows_BACKEND` and `rate_BACKEND` at the largest number of rows, and `equal_BACKEND`."""
    values: dict[str, Any] = {}
    for backend in runs[0]:
        each = [run[backend] for run in runs]
        # Ray runs already for the second seed: the first one's start-up is the real one
        start = [each[0]["start"][0]] if backend == "ray" else [run["start"][0] for run in each]
        values[f"start_{backend}"] = start, "s"
        values[f"rows_{backend}"] = [run["rows"][-1] for run in each], "s"
        values[f"rate_{backend}"] = [run["rate"][-1] for run in each], "rows/s"
        values[f"equal_{backend}"] = all(all(run["equal"]) for run in each)
    return values


def backend_curves(runs: Runs) -> dict[str, Any]:
    """`rows/BACKEND`: seconds at each number of rows, one list a seed."""
    return {f"rows/{backend}": [run[backend]["rows"] for run in runs] for backend in runs[0]}


def speed_ups(recorded: Mapping[str, Any], backends: Sequence[str], count: int) -> dict[str, Any]:
    """Backends over serial at the largest number of rows.

    Args:
        recorded: the values of `backend_values`, and `available_cores`.
        count: of the rows.

    Returns:
        `speedup_BACKEND`, `speedup_with_start_BACKEND`, `efficiency_BACKEND` (over the cores available), one a seed;
        `pays_from_BACKEND` rows; `total_BACKEND` seconds with start-up; `order_as_printed`.
    """
    values: dict[str, Any] = {}
    for backend in [name for name in backends if name != "serial"]:
        own, serial = (np.array(recorded[f"rows_{name}"]) for name in (backend, "serial"))
        start = np.median(recorded[f"start_{backend}"])
        saved = np.median((serial - own) / count)
        values[f"speedup_{backend}"] = (serial / own).tolist()
        values[f"speedup_with_start_{backend}"] = (serial / (own + start)).tolist()
        values[f"pays_from_{backend}"] = float(start / saved) if saved > 0 else float("inf"), "rows"
        values[f"efficiency_{backend}"] = (serial / own / np.array(recorded["available_cores"])).tolist()
    total = {b: float(np.median(recorded[f"rows_{b}"]) + np.median(recorded[f"start_{b}"])) for b in backends}
    values |= {f"total_{backend}": (seconds, "s") for backend, seconds in total.items()}
    known = {"processes", "ray", "serial"} <= set(total)
    values["order_as_printed"] = known and total["processes"] < total["ray"] < total["serial"]
    return values


def chunk_seconds(rows: RowSet, sizes: Sequence[int]) -> dict[str, list[float]]:
    """Serial seconds in chunks of several sizes, with a penalty on every weight ("penalty") and without ("ball")."""
    return {name: compute.chunk_costs(rows, sizes, beta) for name, beta in (("penalty", BETA), ("ball", 0.0))}


def storage(case: Case, runs: Runs) -> dict[str, Any]:
    """Bytes moved and bits stored.

    Returns:
        `bytes_...` of `compute.pickled` for the first seed, `bytes_returned` by processes; `bits_...` of
        `compute.index_bits`, one a seed; and `compute.pointer_check`.
    """
    moved = compute.pickled(case.sets[0])
    values: dict[str, Any] = {f"bytes_{key}": (moved[key], "bytes") for key in ("samples", "every_chunk", "shared")}
    values["bytes_ratio"] = moved["every_chunk"] / moved["shared"]
    if "processes" in runs[0]:
        values["bytes_returned"] = runs[0]["processes"]["returned"][-1], "bytes"
    fits = [fit_sim(found, objective=L1(0.01), match=LeastSquares(0.01, 0.01)) for found in case.found]
    bits = [compute.index_bits(fit.A) for fit in fits]
    values |= {f"bits_{key}": ([each[key] for each in bits], "bits") for key in bits[0]}
    return values | compute.pointer_check()


def epoch_values(case: Case) -> dict[str, Any]:
    """Quantities of `compute.epoch_against_fit`, one a seed, and the fits `..._over_epoch`."""
    images = case.images
    sizes = {"in_features": images.u_train.shape[1], "n_classes": len(images.meta["classes"])}
    each = []
    for network, seed in zip(case.networks, case.seeds, strict=True):
        build, recipe = fashion.models(seed, case.profile, **sizes)["implicit"]
        each.append(compute.epoch_against_fit(network, build, recipe, images, case.samples, seed=seed))
    values: dict[str, Any] = {
        key: ([one[key] for one in each], "%" if key.startswith("accuracy") else "s") for key in each[0]
    }
    for name in ("fit_small", "fit_all"):
        values[f"{name}_over_epoch"] = [one[name] / one["epoch"] for one in each]
    return values
