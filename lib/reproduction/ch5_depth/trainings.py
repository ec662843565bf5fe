"""What the notebook of depth records of trainings: failures of the papers' solver, backward passes, memory, time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from implicit_models.model import ImplicitModel
from reproduction.ch5_depth import ablation, cost, gradients
from reproduction.ch5_depth import compute as depth
from reproduction.ch5_depth.measures import Made, Runs
from reproduction.core.recipe import History
from reproduction.models.mlp import MLP

PRECISIONS = {"float32": "single", "float64": "double"}
SETTINGS = ("addition", "subtraction", "addition_table")
LIMITS = (20, 30, 50)  # caps that are asked after
DEPTHS = (1, 2, 4, 8, 16, 32, 64)  # layers of explicit networks whose memory is counted
KINDS = {**gradients.BACKWARDS, "misread": "the inverse inverted", "difference": "central differences"}
STATES = ("trained", "untrained")
SOLVERS = ("picard", "auto")
Histories = dict[tuple[str, str], list[History]]  # (setting, precision) -> one history a seed


def papers_trainings(runs: Runs, cap: int) -> Histories:
    """Trainings with the papers' solver, of five seeds at most, three of the larger setting.

    Args:
        cap: iterations that the solver is allowed.
    """
    made: Histories = {}
    made_for = {seed: depth.arithmetic_settings(runs.profile, seed) for seed in runs.seeds[:5]}
    epochs = ablation.settings(runs.profile)["failing_epochs"]
    for dtype in PRECISIONS:
        for seed, trained_on in made_for.items():
            asked = [label for label in trained_on if label != "addition_table" or seed in runs.seeds[:3]]
            for label in asked:
                name, sizes, data = trained_on[label]
                run = runs.run(
                    name,
                    f"papers_solver_{label}_{dtype}",
                    seed,
                    dtype=dtype,
                    epochs=epochs,
                    dataset=data,
                    build_model=lambda sizes=sizes, seed=seed: depth.papers_solver(sizes, seed, cap),
                )
                made.setdefault((label, dtype), []).append(run.history)
    return made


def failures(histories: Histories) -> dict[str, Any]:
    """How often the papers' solver fails, one value a seed.

    Returns:
        `SETTING_failed_epochs_PRECISION` in per cent, `SETTING_largest_iterations_PRECISION`,
        `SETTING_epochs_over_LIMIT` in per cent (in single precision), the largest share by precision, and the share of
        both operations.
    """
    found: dict[str, Any] = {}
    for (label, dtype), made in histories.items():
        found[f"{label}_failed_epochs_{dtype}"] = [depth.failed_epochs(history) for history in made], "%"
        found[f"{label}_largest_iterations_{dtype}"] = [max(history.iterations_max) for history in made]
        for limit in LIMITS if dtype == "float32" else ():
            found[f"{label}_epochs_over_{limit}"] = [depth.epochs_over(history, limit) for history in made], "%"
    for dtype in PRECISIONS:
        shares = [found[f"{label}_failed_epochs_{dtype}"][0] for label in SETTINGS]
        found[f"failed_epochs_{dtype}"] = [max(map(max, shares))], "%"
    both = zip(*(found[f"{name}_failed_epochs_float32"][0] for name in SETTINGS[:2]))
    found["failed_epochs_both"] = [min(pair) for pair in both], "%"
    return found


def gradient_agreement(made: Made, runs: Runs) -> dict[str, list[float]]:
    """Gradients of trained and untrained models of the addition against the dense formula, one value a seed.

    Returns:
        `gradient_error_KIND_STATE` (relative) and `gradient_cosine_KIND_STATE`, see `KINDS` and `STATES`.
    """
    errors: dict[str, list[float]] = {}
    cosines: dict[str, list[float]] = {}
    for seed, run in zip(runs.seeds, made["addition", "full"], strict=True):
        data = ablation.data("addition", seed, runs.profile, [2.0])
        sample = data.u_train[:200], data.y_train[:200]
        for state, model in zip(STATES, (run.model, depth.untrained("addition", seed)), strict=True):
            exact = gradients.dense_gradient(model, *sample)
            size = np.abs(exact)
            entries = [tuple(pair) for pair in np.argwhere(size > np.quantile(size, 0.9))[:6]]
            differences = gradients.finite_differences(model, *sample, entries)
            ratios = differences / np.array([exact[i, j] for i, j in entries])
            errors.setdefault(f"gradient_error_difference_{state}", []).append(float(np.abs(ratios - 1).max()))
            found = {backward: gradients.gradient(model, *sample, backward) for backward in gradients.BACKWARDS}
            found["misread"] = gradients.dense_gradient(model, *sample, misread=True)
            for kind, gradient in found.items():
                error, cosine = gradients.agreement(gradient, exact)
                errors.setdefault(f"gradient_error_{kind}_{state}", []).append(error)
                cosines.setdefault(f"gradient_cosine_{kind}_{state}", []).append(cosine)
    return errors | cosines


def backward_trainings(runs: Runs) -> dict[str, list[ablation.Run]]:
    """Trainings of the addition by backward pass, of five seeds at most, three unrolled."""
    task = ablation.TASKS["addition"]
    made: dict[str, list[ablation.Run]] = {}
    for backward in gradients.BACKWARDS:
        for seed in runs.seeds[: 3 if backward == "unroll" else 5]:

            def build(seed: int = seed, backward: str = backward) -> ImplicitModel:
                options = {"kappa": ablation.KAPPA, "seed": seed, "backward": backward, "on_failure": "ignore"}
                return ImplicitModel(task.p, task.q, task.n, **options)

            run = runs.run("addition", f"backward_{backward}", seed, keys=[2.0, 10.0], build_model=build)
            made.setdefault(backward, []).append(run)
    return made


def backward_errors(made: dict[str, list[ablation.Run]]) -> dict[str, Any]:
    """What each backward pass trains, one value a seed: `backward_KIND_train_mse`, `..._mse_t10`, `..._seconds`, and
    of the approximate ones `..._over_implicit`."""
    found: dict[str, Any] = {}
    for backward, runs in made.items():
        found[f"backward_{backward}_train_mse"] = [run.trained for run in runs]
        found[f"backward_{backward}_mse_t10"] = [run.at(10.0) for run in runs]
        found[f"backward_{backward}_seconds"] = [cost.seconds_an_epoch(run.history) for run in runs], "s"
    for backward in ("jfb", "phantom", "unroll"):
        pairs = zip(found[f"backward_{backward}_mse_t10"], found["backward_implicit_mse_t10"], strict=False)
        found[f"backward_{backward}_over_implicit"] = [a / b for a, b in pairs]
    return found


def memory(made: Made, runs: Runs) -> dict[str, Any]:
    """Bytes that a forward pass keeps for its backward pass, one value a seed.

    Returns:
        `bytes_KIND`, ratios of unrolled and of an MLP to the implicit model, and the layers of an explicit network
        that keeps as much.
    """
    kept: dict[str, list[float]] = {}
    for seed, run in zip(runs.seeds, made["addition", "full"], strict=True):
        u = torch.as_tensor(ablation.data("addition", seed, runs.profile, [2.0]).u_train[:500])
        for key, value in cost.memory_table(run.model, u, DEPTHS, seed).items():
            kept.setdefault(key, []).append(value)
        kept.setdefault("mlp", []).append(cost.kept_bytes(MLP((50, 10, 10, 1), seed=seed), u) / len(u))
    found: dict[str, Any] = {
        f"bytes_{key}": (values[0] if key.startswith("explicit") else values, "bytes a sample")
        for key, values in kept.items()
    }
    implicit = kept["implicit"]
    deep = [d for d in DEPTHS if kept[f"explicit_{d}"][0] >= implicit[0]]
    return found | {
        "memory_unrolled_over_implicit": [a / b for a, b in zip(kept["unrolled"], implicit)],
        "memory_mlp_over_implicit": [a / b for a, b in zip(kept["mlp"], implicit)],
        "memory_layers_of_equal_memory": (*deep, "more than 64")[0],
    }


def timed(runs: Runs, kappas: Sequence[float]) -> tuple[dict[str, Any], dict[str, Any], list[History]]:
    """CPU seconds of an epoch of the addition, for norm balls from small to large and for an MLP, of three seeds.

    Returns:
        Values `seconds_SOLVER` in the largest ball, `time_follows_iterations_SOLVER`, `time_SOLVER_over_mlp`; curves
        `time/SOLVER/iterations` and `time/SOLVER/seconds`; the histories.
    """
    task, values, curves, histories = ablation.TASKS["addition"], {}, {}, []
    epochs = ablation.settings(runs.profile)["timing_epochs"]
    short = {"epochs": epochs, "epochs_scale": 1.0, "keys": [2.0], "cached": False}
    for solver in SOLVERS:
        found: dict[str, list[list[float]]] = {"iterations": [], "seconds": []}
        for seed in runs.seeds[:3]:
            made = []
            for kappa in kappas:

                def build(kappa: float = kappa, seed: int = seed, solver: str = solver) -> ImplicitModel:
                    options = {"kappa": kappa, "seed": seed, "solver": solver, "on_failure": "ignore"}
                    return ImplicitModel(task.p, task.q, task.n, **options)

                made.append(runs.run("addition", f"timing_{solver}", seed, **short, build_model=build).history)
            histories += made
            found["iterations"].append([float(np.median(history.iterations_mean)) for history in made])
            found["seconds"].append([cost.seconds_an_epoch(history) for history in made])
        curves |= {f"time/{solver}/{kind}": rows for kind, rows in found.items()}
        values[f"seconds_{solver}"] = [row[-1] for row in found["seconds"]], "s"
        pairs = zip(found["iterations"], found["seconds"])
        values[f"time_follows_iterations_{solver}"] = [depth.rank_correlation(a, b) for a, b in pairs]
    mlps = [
        runs.run("addition", "timing_mlp", seed, **short, build_model=lambda seed=seed: MLP((50, 10, 10, 1), seed=seed))
        for seed in runs.seeds[:3]
    ]
    histories += [run.history for run in mlps]
    values["seconds_mlp"] = [cost.seconds_an_epoch(run.history) for run in mlps], "s"
    for solver in SOLVERS:
        pairs = zip(values[f"seconds_{solver}"][0], values["seconds_mlp"][0])
        values[f"time_{solver}_over_mlp"] = [a / b for a, b in pairs]
    return values, curves, histories
