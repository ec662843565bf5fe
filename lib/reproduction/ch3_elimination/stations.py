"""Whole stations leave the earthquake problem: the columns of a station go together, as a locator that does without
its observations needs.

Source:
    Ganesh MS report (2023), section 5.2: the aim of the experiment is to locate with the few stations that matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from data_gen.core.streams import stream
from reproduction.ch3_bisection.compute import BallRows
from reproduction.ch3_elimination.compute import removal_curve

FEATURES = 6  # of a station, in columns next to each other
STATION_ORDERS = ("weights", "random")


def station_order(name: str, A: Float[np.ndarray, "r d"], n_states: int, seed: int) -> Int[np.ndarray, " stations"]:
    """Stations in the order in which they go: smallest norm of their columns over all rows first, or at random.

    Args:
        name: of `STATION_ORDERS`.
        A: rows over states, then the stations' columns.
        n_states: columns of the states, which stay.
        seed: of the random order.

    Raises:
        ValueError: naming the order that is unknown, or columns that are no whole number of stations.
    """
    if (A.shape[1] - n_states) % FEATURES:
        raise ValueError(f"{A.shape[1] - n_states} columns of inputs are no whole number of stations of {FEATURES}")
    blocks = A[:, n_states:].reshape(len(A), -1, FEATURES)
    if name == "weights":
        return np.argsort(np.sqrt((blocks**2).sum(axis=(0, 2))), kind="stable")
    if name == "random":
        return stream(seed, "order of stations").permutation(blocks.shape[1])
    raise ValueError(f"an order of stations is one of {STATION_ORDERS}, got {name!r}")


def columns_of(stations: Int[np.ndarray, " s"]) -> Int[np.ndarray, " c"]:
    """Input columns of stations, in the order of the stations."""
    return (FEATURES * np.asarray(stations)[:, None] + np.arange(FEATURES)).ravel()


def station_curves(
    rows: BallRows,
    A: Float[np.ndarray, "r d"],
    counts: Sequence[int],
    *,
    kappa: float,
    seed: int,
    scores: Callable[[Any], Mapping[str, float]],
    retrained: Callable[[np.ndarray], float],
) -> dict[str, dict[str, list[float]]]:
    """Models refitted after stations went.

    Args:
        rows, A: the problem, and its solution with all features.
        counts: of stations removed.
        kappa, scores: as `removal_curve`.
        seed: of the random order.
        retrained: input columns that are kept -> test error of a network trained on these alone, the control.

    Returns:
        order -> the lists of `removal_curve`, and "retrained".
    """
    n, out = len(rows.C), {}
    for name in STATION_ORDERS:
        order = station_order(name, A, n, seed)
        shares = [FEATURES * count / len(rows.G) for count in counts]
        columns = n + columns_of(order)
        curve = removal_curve(rows, columns, shares, kappa=kappa, scores=scores)
        curve["retrained"] = [retrained(np.sort(columns_of(order[count:]))) for count in counts]
        out[name] = curve
    return out
