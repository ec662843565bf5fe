"""What the steps of the solvers cost: counts of operations times unit costs, by which "auto" chooses.

    Picard step   of the whole batch in BLAS:   call + N n^2 product + N n (touch + map)
    sweep         of the compiled kernel:       N n^2 sweep_product + N n (sweep_touch + map)
    linear solve  of one sample's s states:     s^3/3 factor + 2 s^2 sweep_product

Only ratios of them matter. The units are those that `python -m benchmarks.growth --units` printed on the machine named
in `MACHINE`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from implicit_models.activations import Activation

MACHINE = "AMD EPYC with AVX-512, one thread; torch 2.13 with MKL, numba 0.68"


@dataclass(frozen=True)
class Units:
    """Nanoseconds: of a call of torch; of a multiply-add in BLAS, in a sweep and in a factorisation; of the passes
    over one state beside the product in either; and of tanh or the logistic function."""

    call: float
    product: float
    touch: float
    sweep_product: float
    sweep_touch: float
    factor: float
    smooth: float


UNITS = {
    torch.float32: Units(4000.0, 0.0235, 0.15, 0.036, 1.1, 0.2, 0.5),
    torch.float64: Units(4000.0, 0.048, 0.3, 0.072, 2.2, 0.25, 1.5),
}
SWEEPS_PER_STEP = 0.5  # a sweep uses new values for half of the states: the error falls by about the square of a step's


def step_cost(n: int, N: int, dtype: torch.dtype, smooth: bool) -> float:
    """Nanoseconds of one Picard step of N samples."""
    u = UNITS[dtype]
    return 2 * u.call + N * n * (n * u.product + u.touch + (u.smooth if smooth else 0.0))


def sweep_cost(n: int, N: int, dtype: torch.dtype, smooth: bool) -> float:
    """Nanoseconds of one Gauss-Seidel sweep of N samples."""
    u = UNITS[dtype]
    return N * n * (n * u.sweep_product + u.sweep_touch + (u.smooth if smooth else 0.0))


def solve_cost(n: int, dtype: torch.dtype) -> float:
    """Nanoseconds of one linear solve with as many unknowns as states, for one sample."""
    u = UNITS[dtype]
    return n**3 / 3 * u.factor + 2 * n * n * u.sweep_product


def remaining(residual: float, tol: float, rate: float) -> float:
    """Steps until a residual that is multiplied by `rate` each time is at most tol; infinite for a rate of 1 or
    more."""
    if residual <= tol:
        return 0.0
    return math.inf if not 0 <= rate < 1 else math.log(tol / residual) / math.log(max(rate, 1e-30))


def smooth(act: Activation) -> bool:
    return not act.piecewise_linear
