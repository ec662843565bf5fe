"""What the steps of the solvers cost: counts of operations times unit costs, by which "auto" chooses.

    Picard step   of the whole batch in BLAS:   2 call + N n^2 product + N n (touch + smooth)
    sweeps        of the compiled kernel:       call + n^2 pack + N n load, once, and then each
                                                N n^2 sweep_product + N n (sweep_touch + sweep_smooth)
    linear solve  of one sample's n states:     n^3/3 factor + 2 n^2 sweep_product

Only ratios of them matter. `python -m benchmarks.step_costs` prints times of a sweep and of a product a state and
sample, and what a call of sweeps takes once, for some sizes; it fits nothing. product, sweep_product, sweep_touch and
sweep_smooth were set by hand to agree with such times on the machine that `MACHINE` names. The rest are estimates that
nothing here measures apart: call, load and pack (what a call takes once is their sum), touch and smooth (outside the
product in BLAS), factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from implicit_models.activations import Activation

MACHINE = "AMD EPYC with AVX-512, one thread; torch 2.13 with MKL, numba 0.68"


@dataclass(frozen=True)
class Units:
    """Nanoseconds.

    call: of an operation of torch or a kernel. product, sweep_product, factor: of a multiply-add in BLAS, in a sweep
    and in a factorisation. touch, sweep_touch: of what is done to a state beside that; smooth, sweep_smooth: of tanh
    or the logistic function. load, pack: of a state brought into a sweep's blocks and back, of an entry of A.
    """

    call: float
    product: float
    touch: float
    smooth: float
    sweep_product: float
    sweep_touch: float
    sweep_smooth: float
    load: float
    pack: float
    factor: float


UNITS = {
    torch.float32: Units(2000.0, 0.0225, 0.2, 0.45, 0.02, 0.5, 1.35, 2.3, 1.5, 0.2),
    torch.float64: Units(2000.0, 0.048, 0.3, 1.4, 0.0415, 0.7, 4.0, 2.3, 1.6, 0.25),
}
SWEEPS_PER_STEP = 0.75  # sweeps use new values for half of the states; from 0.5 (A of one sign) to 0.9 (random A)
# What a random A takes: a first step needs no product, a last sweep tells the residual
FEW_STEPS, FEW_SWEEPS = 5, 5


def step_cost(n: int, N: int, dtype: torch.dtype, smooth: bool) -> float:
    """Nanoseconds of one Picard step of N samples."""
    u = UNITS[dtype]
    return 2 * u.call + N * n * (n * u.product + u.touch + (u.smooth if smooth else 0.0))


def sweep_cost(n: int, N: int, dtype: torch.dtype, smooth: bool) -> float:
    """Nanoseconds of one Gauss-Seidel sweep of N samples."""
    u = UNITS[dtype]
    return N * n * (n * u.sweep_product + u.sweep_touch + (u.sweep_smooth if smooth else 0.0))


def sweeps_cost(n: int, N: int, dtype: torch.dtype, smooth: bool, sweeps: float) -> float:
    """Nanoseconds of so many sweeps, the one that tells the residual and what comes before them."""
    u = UNITS[dtype]
    return 3 * u.call + n * n * u.pack + N * n * u.load + (sweeps + 1) * sweep_cost(n, N, dtype, smooth)


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
