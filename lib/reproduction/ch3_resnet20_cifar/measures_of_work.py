"""What the ResNet-20 notebook records of penalties, of parts of the data, and of the work of bisection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from implicit_models.sim.problem import Cardinality
from reproduction.book.claims import published_value
from reproduction.ch3_resnet20_cifar import compute, kernels, search
from reproduction.ch3_resnet20_cifar.measures import Case, Point
from reproduction.ch3_resnet20_cifar.tables import curve_of, drop_at, key_of

Penalised = Mapping[str, Sequence[Sequence[Point]]]  # name -> points over the weights, a list a seed
OBJECTIVES = ("l1", "perspective", "perspective_small", "perspective_student")
WHOLE = 50_000 / 100  # training images of CIFAR-10 in one per cent


def weights_of(case: Case, name: str, weights: Sequence[float]) -> Sequence[float]:
    """The weights of an objective's sweep: the profile's on the model's own states."""
    return case.chosen["student_weights"] if name.endswith("student") else weights


def penalised(case: Case, weights: Sequence[float], knee: float) -> dict[str, list[list[Point]]]:
    """Kernels under the l1 norm and under its perspective form with knee 1 and another, on the network's states, and
    with knee 1 refitted on the model's own."""
    first = case.seeds[:1]
    kinds = {
        "l1": ("l1", 1.0, first),
        "perspective": ("perspective", 1.0, case.seeds),
        "perspective_small": ("perspective", knee, first),
        "perspective_student": ("perspective", 1.0, case.seeds),
    }
    return {
        name: [
            [
                kernels.penalised(
                    case.given, weight, objective, m=case.kernel_m, seed=seed, knee=at, student=name.endswith("student")
                )
                for weight in weights_of(case, name, weights)
            ]
            for seed in seeds
        ]
        for name, (objective, at, seeds) in kinds.items()
    }


def penalty_values(fits: Penalised, base: float) -> dict[str, Any]:
    """What the penalties reach, one value a seed.

    Returns:
        `penalised_failed` rows; `no_drop_NAME`, `one_point_NAME` and `gain_NAME`, the largest sparsity with no drop,
        one of a point, a gain; `drop_NAME_NUMBER` at the sparsities of Table 1; `perspective_against_l1`.
    """
    values: dict[str, Any] = {
        "penalised_failed": sum(p["failed"] for each in fits.values() for seed in each for p in seed)
    }
    for name, each in fits.items():
        for key, lost in (("no_drop", 0.0), ("one_point", 1.0), ("gain", -1e-9)):
            values[f"{key}_{name}"] = [kernels.reached(seed, base, lost) for seed in each], "%"
        for number in (1, 2):
            at = published_value(f"sim-t1-sim-{number}")["sparsity, %"]
            values[f"drop_{name}_{number}"] = [drop_at(seed, base, at) for seed in each], "points"
    pairs = zip(fits["l1"][0], fits["perspective"][0], strict=True)
    values["perspective_against_l1"] = max(abs(a["accuracy"] - b["accuracy"]) for a, b in pairs), "points"
    return values


def penalty_curves(fits: Penalised) -> dict[str, Any]:
    """`penalty/NAME`: one curve a seed."""
    return {f"penalty/{name}": [curve_of(seed, "accuracy") for seed in each] for name, each in fits.items()}


def data_lines(case: Case, kappas: Sequence[float]) -> dict[str, dict[str, list[Any]]]:
    """Accuracy against the number of images of the fit, first seed.

    Returns:
        "images": of each kind of fit; "lines": accuracy of "refit/KAPPA" (rows on the network's states), "rows" (on
        the model's own) and "kernels", and the "sparsity" of the last.
    """
    given, chosen, seed, m = case.given, case.chosen, case.seeds[0], case.m
    drawn = (min(kappas, key=lambda k: abs(k - 0.05)), max(kappas))
    images: dict[str, list[Any]] = {"refit": [], "kernels": []}
    lines: dict[str, list[Any]] = {f"refit/{kappa:g}": [] for kappa in drawn}
    for n in sorted({*chosen["row_data"], m}):
        fitted_at = list(kappas) if n == m else sorted({float(name.split("/")[1]) for name in lines})
        sweep = compute.literal(given, fitted_at, m=n, seed=seed)
        images["refit"].append(n)
        for name, line in lines.items():
            line.append(sweep[fitted_at.index(float(name.split("/")[1]))]["refit"]["head"])
    weight = min(chosen["student_weights"], key=lambda w: abs(w - 0.01))
    lines |= {"kernels": [], "sparsity": []}
    for n in sorted({*chosen["data"], case.kernel_m}):
        one = kernels.penalised(given, weight, "perspective", m=n, seed=seed, student=True)
        images["kernels"].append(n)
        lines["kernels"].append(one["accuracy"])
        lines["sparsity"].append(one["kernels"])
    fitted = ("keep", 0.2) in (*chosen["students"], *chosen["large"])
    images["rows"] = [m, chosen["large_m"]] if fitted else []
    lines["rows"] = [compute.student(given, Cardinality(0.2), m=n, seed=seed)["head"] for n in images["rows"]]
    return {"images": images, "lines": lines}


def data_values(case: Case, data: Mapping[str, Mapping[str, Sequence[Any]]]) -> dict[str, Any]:
    """What parts of the data reach.

    Returns:
        `plateau_kernels` and `all_images` in per cent of the training images, `rows_gain`, `data_gain_kKAPPA`, and
        `small_data_no_drop`, the sparsity that a fifth of the images reaches without loss.
    """
    images, lines = data["images"], data["lines"]
    rows, percent = lines["rows"], "% of the training images"
    values: dict[str, Any] = {
        "plateau_kernels": (compute.plateau(images["kernels"], lines["kernels"]) / WHOLE, percent),
        "all_images": (len(case.given.images) / WHOLE, percent),
        "rows_gain": (rows[-1] - rows[0] if len(rows) > 1 else float("nan"), "points"),
    }
    for name, line in lines.items():
        if name.startswith("refit/"):
            values[f"data_gain_k{key_of(float(name.split('/')[1]))}"] = line[-1] - line[0], "points"
    few = 0.2 * len(case.given.images)
    fits = zip(images["kernels"], lines["sparsity"], lines["kernels"], strict=True)
    fine = [sparsity for n, sparsity, accuracy in fits if n <= few and accuracy >= case.base]
    return values | {"small_data_no_drop": (max(fine, default=float("-inf")), "%")}


def speed_values(case: Case) -> dict[str, Any]:
    """Table 3.3: quantities of `search.speedups` as `QUANTITY_kKAPPA`, one a seed, and `warm_gain_rise`."""
    chosen = case.chosen
    values: dict[str, Any] = {}
    for kappa in chosen["radii"]:
        each = [
            search.speedups(case.given, kappa, m=chosen["search_m"], count=chosen["search_rows"], seed=seed)
            for seed in case.seeds
        ]
        values |= {f"{key}_k{key_of(kappa)}": [one[key] for one in each] for key in each[0]}
    first, last = (values[f"warm_gain_k{key_of(end(chosen['radii']))}"] for end in (min, max))
    return values | {"warm_gain_rise": [b - a for a, b in zip(first, last, strict=True)]}


def iterates(case: Case) -> dict[str, dict[str, list[float]]]:
    """`search.iterates` of the first seed: "cold/KAPPA" and "warm/KAPPA"."""
    options = {"m": min(case.kernel_m, 200), "seed": case.seeds[0], "iterations": case.chosen["iterations"]}
    return {
        f"{'warm' if warm else 'cold'}/{kappa:g}": search.iterates(case.given, kappa, warm=warm, **options)
        for kappa in case.chosen["radii"]
        for warm in (False, True)
    }


def iterate_key(name: str) -> str:
    """A run of `iterates` in a key."""
    return name.replace("/", "_k").replace(".", "p")


def iterate_values(case: Case, runs: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """`final_accuracy_RUN`, `iterations_RUN` and `sweeps_RUN` until within a point of it; `radii`."""
    values: dict[str, Any] = {}
    for name, run in runs.items():
        at, sweeps = search.reached_at(run)
        values[f"final_accuracy_{iterate_key(name)}"] = run["accuracy"][-1], "%"
        values[f"iterations_{iterate_key(name)}"], values[f"sweeps_{iterate_key(name)}"] = at, sweeps
    return values | {"radii": list(case.chosen["radii"])}
