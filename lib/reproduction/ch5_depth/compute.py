"""Depth of an implicit model: what a stopping rule counts, the law that the count follows, and what training makes of
it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import spearmanr
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.model import ImplicitModel
from implicit_models.wellposed import perron_frobenius
from reproduction.ch5_arithmetic import task as arithmetic
from reproduction.ch5_depth import ablation
from reproduction.core.recipe import History

# The papers' stopping rule: largest change of an entry below 3e-6, whatever the size of the state.
PAPER_TOLERANCE = 3e-6
# Residual of the relative rule that stands beside it.
RELATIVE_TOLERANCE = 1e-6
# Share of the epochs, the last ones, over which the depth should stand still.
LAST_SHARE = 0.2


def matrices(model: ImplicitModel) -> dict[str, np.ndarray]:
    """A, B, C, D of a model without biases, in double precision (D of zeros where there is no skip).

    Raises:
        ValueError: the model has biases or another activation than ReLU: the laws of this module would not hold.
    """
    if model.b is not None or model.d is not None:
        raise ValueError("the model has biases; its states are not homogeneous in the input")
    if [segment.name for segment in model.activation.segments] != ["relu"]:
        raise ValueError(f"activation must be relu, got {model.activation}")
    found = {name: getattr(model, name).detach().double().numpy() for name in ("A", "B", "C")}
    found["D"] = (
        np.zeros((model.out_features, model.in_features)) if model.D is None else model.D.detach().double().numpy()
    )
    return found


def counts(
    model: ImplicitModel,
    u: Float[np.ndarray, "N p"],
    *,
    tol: float = PAPER_TOLERANCE,
    relative: bool = False,
    max_iter: int = 5_000,
) -> Int[np.ndarray, " N"]:
    """Picard iterations from x = 0 until the change of a sample is below the tolerance, each counted singly.

    Mathematics: the smallest k with max|x_k - x_{k-1}| < tol, divided by max|x_k| in relative mode; x_k = relu(A
        x_{k-1} + B u).
    In double precision: in single precision the rounding of states beyond about 10 is itself of the order of 3e-6.

    Args:
        model: without biases.
        u: (N, p) inputs.
        tol, relative: the rule.
        max_iter: cap; a sample that reaches it is given max_iter + 1, so that no cap passes for a count.

    Returns:
        (N,) iterations.

    Source:
        Decugis et al. (2024), section 1.2.
    """
    weights = matrices(model)
    A, b = weights["A"], np.asarray(u, dtype=np.float64) @ weights["B"].T
    found = np.full(len(b), max_iter + 1)
    alive = np.arange(len(b))
    x = np.zeros_like(b)
    for k in range(1, max_iter + 1):
        image = np.maximum(x @ A.T + b, 0)
        change = np.abs(image - x).max(axis=1, initial=0)
        bound = tol * np.abs(image).max(axis=1, initial=0) if relative else tol
        # a state that is zero and stays so has no scale: it has converged in either mode
        done = (change < bound) | (change == 0)
        found[alive[done]] = k
        if done.all():
            break
        alive, b, x = alive[~done], b[~done], image[~done]
    return found


def equilibria(model: ImplicitModel, u: Float[np.ndarray, "N p"], *, steps: int = 4_000) -> Float[np.ndarray, "N n"]:
    """States to double precision, by Picard's iteration until no entry moves by more than 1e-14 of the largest."""
    found = matrices(model)
    b = np.asarray(u, dtype=np.float64) @ found["B"].T
    x = np.zeros_like(b)
    for _ in range(steps):
        image = np.maximum(x @ found["A"].T + b, 0)
        moved, x = np.abs(image - x).max(initial=0), image
        if moved <= 1e-14 * np.abs(x).max(initial=0):
            break
    return x


def active_radius(model: ImplicitModel, u: Float[np.ndarray, "N p"]) -> Float[np.ndarray, " N"]:
    """Spectral radius of A on the active set of each sample: the factor by which the residual falls in the end.

    Mathematics: once the pattern of positive states is the equilibrium's, x_{k+1} - x_k = P A (x_k - x_{k-1}) with P
    the projection on that pattern; rho is the spectral radius of P A P.
    """
    A = matrices(model)["A"]
    active = equilibria(model, u) > 0
    patterns, which = np.unique(active, axis=0, return_inverse=True)
    radii = [np.abs(np.linalg.eigvals(A[np.ix_(pattern, pattern)])).max(initial=0.0) for pattern in patterns]
    return np.array(radii)[which.reshape(-1)]


def slope_of_law(radius: float) -> float:
    """Iterations that one unit of ln t costs under an absolute tolerance, 1 / -ln rho; 0 for a nilpotent matrix."""
    if not 0 <= radius < 1:
        raise ValueError(f"the radius must lie in [0, 1), got {radius}")
    return 0.0 if radius < 1e-12 else 1 / -math.log(radius)


def depth_law(
    model: ImplicitModel,
    inputs: Sequence[Float[np.ndarray, "N p"]],
    sizes: Sequence[float],
    *,
    tol: float = PAPER_TOLERANCE,
) -> dict[str, Any]:
    """Measured and predicted growth of the iterations with the size of the inputs.

    Args:
        model: without biases.
        inputs: test inputs, one array a size; the first are those of the training distribution.
        sizes: relative sizes, the first 1, increasing.
        tol: of the absolute rule.

    Returns:
        absolute, absolute_largest, relative: mean (largest) iterations at each size; slope: of the mean absolute count
        against ln size, by least squares; predicted: mean over samples of 1/-ln rho; bound: 1/-ln lambda_PF(|A|);
        radius: mean rho; law: the predicted line through the first count.
    """
    absolute = [counts(model, u, tol=tol) for u in inputs]
    relative = [counts(model, u, tol=RELATIVE_TOLERANCE, relative=True) for u in inputs]
    mean = [float(c.mean()) for c in absolute]
    radii = active_radius(model, inputs[0])
    predicted = float(np.mean([slope_of_law(radius) for radius in radii]))
    logs = np.log(np.asarray(sizes, dtype=float))
    return {
        "absolute": mean,
        "absolute_largest": [int(c.max()) for c in absolute],
        "relative": [float(c.mean()) for c in relative],
        "slope": float(np.polyfit(logs, mean, 1)[0]) if len(sizes) > 1 else math.nan,
        "predicted": predicted,
        "bound": slope_of_law(perron_frobenius(matrices(model)["A"])),
        "radius": float(radii.mean()),
        "law": [mean[0] + predicted * (log - logs[0]) for log in logs],
    }


def growing_inputs(
    name: str, test: Mapping[float, tuple[np.ndarray, np.ndarray]], samples: int = 300
) -> tuple[list[float], list[np.ndarray], list[float]]:
    """Test keys of a task, the inputs at each, and their size relative to the training distribution's.

    For the average the size is that of the mean, (3 + s) / 3; its inputs are N(3 + s, 1) and no multiples of one
    another.

    Args:
        name: of the task.
        test: its test sets, key -> (inputs, targets), the first of the training distribution.
        samples: of each.
    """
    keys = [float(key) for key in test]
    if name == "average":
        return keys, [u[:samples] for u, _ in test.values()], [(3 + key) / 3 for key in keys]
    u = next(iter(test.values()))[0][:samples].astype(np.float64)
    return keys, [key / keys[0] * u for key in keys], [key / keys[0] for key in keys]


def scaling_difference(model: ImplicitModel, u: Float[np.ndarray, "N p"], power: int = 17) -> int:
    """Largest difference of the counts at 2^power u with tolerance eps and at u with tolerance eps / 2^power: 0 by
    homogeneity.

    A power of two scales floating-point numbers exactly, so that not even rounding can make a difference.
    """
    t = 2.0**power
    return int(np.abs(counts(model, t * np.asarray(u, np.float64)) - counts(model, u, tol=PAPER_TOLERANCE / t)).max())


def during_training(name: str, seed: int, profile: str, samples: int = 300) -> tuple[str, Callable[[nn.Module], Any]]:
    """What `ablation.run` calls after each epoch: measure in distribution, and mean and largest iterations.

    Returns:
        label and function of the model -> [measure, mean iterations, largest iterations], absolute tolerance.
    """
    key = ablation.task_of(name).train
    u, y = ablation.data(name, seed, profile, [key]).test[key]
    u, y = u[:samples], y[:samples]

    def look(model: nn.Module) -> list[float]:
        model.eval()
        found = counts(model, u)
        return [ablation.measure(model, name, {key: (u, y)})[0], float(found.mean()), int(found.max())]

    return f"depth of {samples} samples", look


def column(history: History, k: int) -> list[float]:
    """One column of what `during_training` noted: 0 the measure, 1 mean iterations, 2 largest iterations."""
    return [float(row[k]) for row in history.evaluation]


def settled(values: Sequence[float]) -> float:
    """Range of the values over the last epochs, `LAST_SHARE` of all and at least two, divided by the last value."""
    tail = list(values)[-max(2, round(LAST_SHARE * len(values))) :]
    return (max(tail) - min(tail)) / tail[-1] if tail[-1] else math.inf


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation; NaN where one of the two is constant."""
    return float(spearmanr(a, b).statistic) if np.ptp(a) > 0 and np.ptp(b) > 0 else math.nan


def difficulty(model: ImplicitModel, name: str, u: Float[np.ndarray, "N p"], y: np.ndarray) -> Float[np.ndarray, " N"]:
    """How hard a sample is, whatever its size: the model's error over max|u|, or for the argmax how near the two
    largest inputs are.

    Args:
        model, name: trained model and its task.
        u, y: (N, p) inputs and targets.
    """
    u = np.asarray(u, dtype=np.float64)
    if name == "argmax":
        ordered = np.sort(u, axis=1)
        return ordered[:, -2] / ordered[:, -1]
    found = matrices(model)
    output = equilibria(model, u) @ found["C"].T + u @ found["D"].T
    return np.sqrt(((output - y) ** 2).mean(axis=1)) / np.abs(u).max(axis=1)


def count_follows_difficulty(model: ImplicitModel, name: str, u: Float[np.ndarray, "N p"], y: np.ndarray) -> float:
    """Rank correlation, over samples, of the iterations under a relative tolerance and the sample's difficulty."""
    return rank_correlation(counts(model, u, tol=RELATIVE_TOLERANCE, relative=True), difficulty(model, name, u, y))


def failed_epochs(history: History, tol: float = PAPER_TOLERANCE) -> float:
    """Share of the epochs in which the forward pass of some sample ended above the tolerance, in per cent."""
    return 100 * float(np.mean([not residual <= tol for residual in history.residual_max]))


def epochs_over(history: History, limit: int) -> float:
    """Share of the epochs in which some sample took more than `limit` iterations, in per cent."""
    return 100 * float(np.mean([count > limit for count in history.iterations_max]))


def papers_solver(sizes: tuple[int, int, int], seed: int, max_iter: int) -> ImplicitModel:
    """An implicit model with the papers' solver: Picard, absolute tolerance 3e-6, a cap on the iterations.

    Args:
        sizes: (p, q, n).
        seed: of the initial weights.
        max_iter: cap; a sample that reaches it is left as it is.
    """
    return ImplicitModel(
        *sizes,
        kappa=ablation.KAPPA,
        seed=seed,
        solver="picard",
        tol=PAPER_TOLERANCE,
        tol_mode="absolute",
        max_iter=max_iter,
        on_failure="ignore",
    )


def arithmetic_settings(profile: str, seed: int) -> dict[str, tuple[str, tuple[int, int, int], Dataset]]:
    """The arithmetic trainings of the papers: label -> task, sizes (p, q, n), data.

    Addition and subtraction of 50 entries from U(-1, 1) with 20 states, and addition of 100 entries from U(1, 2) with
    50 states (the report's Figure 10 and Table 5.2 of the thesis), whose states are larger.
    """
    made = {
        name: (name, (50, 1, 20), ablation.data(name, seed, profile, [2.0])) for name in ("addition", "subtraction")
    }
    table = arithmetic.table_data("addition", seed, profile)
    return made | {"addition_table": ("addition", (arithmetic.TABLE_DIM, 1, arithmetic.TABLE_N_STATES), table)}


def untrained(name: str, seed: int) -> ImplicitModel:
    """A control that knows nothing of the task: random weights with every row of A on the sphere of radius kappa."""
    model = copy.deepcopy(ablation.build(name, "full", seed))
    with torch.no_grad():
        model.A.mul_(ablation.KAPPA / model.A.abs().sum(dim=1, keepdim=True))
    return model


def largest_row_norm(model: ImplicitModel) -> float:
    """||A||_inf: what the norm constraint bounds."""
    return float(np.linalg.norm(model.A.detach().numpy(), np.inf))
