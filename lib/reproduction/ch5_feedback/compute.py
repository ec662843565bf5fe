"""Feedback: which weights carry it, what its absence costs, and what else the ablation changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from implicit_models.model import ImplicitModel
from reproduction.core.study import loglog_slope

# Variants with a single change each: feedback, the norm constraint, the number of states.
ABLATION = ("full", "strict_upper", "strict_upper_free", "strict_upper_matched")


def loops(adjacency: np.ndarray) -> bool:
    """Whether a state can reach itself along the non-zero entries of A, in any number of iterations."""
    reach = np.asarray(adjacency, dtype=bool).astype(int)
    power = reach.copy()
    for _ in range(len(reach)):
        if np.trace(power) > 0:
            return True
        power = ((power @ reach) > 0).astype(int)
    return False


def feedback_entries(n: int) -> list[tuple[int, int]]:
    """Entries that close a loop when they join a strictly upper triangular A whose other entries are not zero.

    Source: Tsai thesis (2024), (5.1), where these are the stars.
    """
    upper = np.triu(np.ones((n, n), dtype=bool), 1)
    found = []
    for i in range(n):
        for j in range(n):
            if not upper[i, j]:
                with_entry = upper.copy()
                with_entry[i, j] = True
                if loops(with_entry):
                    found.append((i, j))
    return found


def advantage(full: Sequence[float], ablated: Sequence[float], measure: str) -> list[float]:
    """Seed by seed what feedback gains: error ratio ablated / full, or accuracy full - ablated in percentage points.

    Raises:
        ValueError: a measure other than "test MSE" and "accuracy".
    """
    if measure not in ("test MSE", "accuracy"):
        raise ValueError(f"measure must be 'test MSE' or 'accuracy', got {measure!r}")
    pairs = zip(full, ablated, strict=True)
    return [100 * (a - b) if measure == "accuracy" else b / a for a, b in pairs]


def growth(keys: Sequence[float], errors: Sequence[Sequence[float]], least: float) -> list[float]:
    """Slope of log error against log key, one a seed, over the keys from `least` on."""
    chosen = [k for k, key in enumerate(keys) if key >= least]
    return [loglog_slope([keys[k] for k in chosen], [row[k] for k in chosen])[0] for row in errors]


def largest_row_norm(model: ImplicitModel) -> float:
    """||A||_inf: what the norm constraint bounds."""
    return float(np.linalg.norm(model.A.detach().numpy(), np.inf))


def verdicts(advantages: Mapping[str, Sequence[float]]) -> dict[str, int]:
    """Number of seeds, over each task, in which the model with feedback is the better one.

    The advantage is a difference of accuracies on "argmax", elsewhere a ratio of errors.
    """
    return {name: sum(v > (0 if name == "argmax" else 1) for v in values) for name, values in advantages.items()}
