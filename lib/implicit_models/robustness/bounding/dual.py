"""The dual bound: implicit CROWN from the interval's pre-activations, refined, raised to the triangle relaxation's
optimum.

    1. zl, zh from the interval fixed point.
    2. `passes` times: lower and upper bounds of every non-linear unit's pre-activation z_i = A_i x + B_i u + b_i, by
       the adjoint fixed point.
    3. The functionals of the outputs, the same way, then ascent over the multipliers (ReLU, leaky ReLU and identity;
       boxes of inputs).

tanh and sigmoid take part in 1 to 3 by lines and exact infima, without the ascent; states of softmax and max-pool
blocks by their interval alone. A set of at most k moving inputs has its own support function and no ascent. All bounds
are intersected with the interval. Units that are linear over the set need no multiplier of their own, so that the work
grows with the others.

Source:
    Tsai thesis (2024), section 4.2.3, with the envelope that its relaxation lacks; Zhang et al., CROWN (2018); Wei &
    Kolter (2022).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from implicit_models.robustness.bounding import branching, dual_samples
from implicit_models.robustness.bounding.dual_kernels import Model, Record, Sets
from implicit_models.robustness.bounding.options import Dual
from implicit_models.robustness.bounding.relaxation_codes import unit_codes
from implicit_models.robustness.bounding.result import Bounds, finished
from implicit_models.robustness.checking.certificate import Stage
from implicit_models.robustness.input_sets import Uncertainty
from implicit_models.robustness.problem import Problem
from implicit_models.robustness.specification import Specification, rounding_of
from implicit_models.status import Status

ASCENT_STEPS = 20
KEEP_BYTES = 256 * 2**20  # multipliers kept for the checker, at most
DENSE_BYTES = 2**31
_DEFAULT = Dual()


def fits_dense(task: Problem) -> bool:
    """Whether dense A and B are small enough for the dual bound."""
    return (task.n + task.p) * task.n * 8 <= DENSE_BYTES


def dual_bounds(
    task: Problem,
    inputs: Uncertainty,
    functionals: Specification,
    start: Bounds,
    method: Dual = _DEFAULT,
    *,
    sides: str = "both",
    keep: bool | None = None,
) -> Bounds:
    """Dual bounds from those of the interval.

    Args:
        start: the interval's `Bounds`.
        method: its options; the certificate keeps the bound without branch and bound.
        sides: as in `bounds`.
        keep: whether the certificate holds the multipliers; None: if they take less than 256 MB.

    Raises:
        ValueError: for matrices too large to be dense.
    """
    passes, splits = int(method.passes), int(method.splits)
    n, p, N, k = task.n, task.p, len(inputs.centre), functionals.k
    if not fits_dense(task):
        size = f"{(n + p) * n * 8 / 2**30:.1f} GiB"
        raise ValueError(f"the dual bound works on dense A and B, which take {size} for n = {n}, p = {p}")
    A, B = (np.ascontiguousarray(M.toarray() if sp.issparse(M) else M) for M in (task.A, task.B))
    code, slope = unit_codes(task.activation)
    zl, zh, xl, xh, lower, upper = (np.array(v) for v in (start.zl, start.zh, start.xl, start.xh, start.lb, start.ub))
    ok = start.status == Status.CERTIFIED
    absolute = np.abs(B)
    reach = np.abs(inputs.centre).max(axis=1, initial=0.0)[:, None] * absolute.sum(axis=1) + inputs.support(B)
    largest = np.abs(np.stack([start.xl, start.xh, start.zl, start.zh])).max(axis=0)
    weight = reach + np.abs(task.b) + np.maximum(np.abs(zl), np.abs(zh)) + largest @ np.abs(A).T
    constant = np.array(np.broadcast_to(functionals.constant, (N, k)), order="C")
    extra = functionals.terms(largest)
    coefficient = rounding_of(task)
    nonlinear = np.isnan(zl) * 0 + ((zl < 0) & (zh > 0) | (code != 0))
    count = np.where(ok, 2 * nonlinear.sum(axis=1), 0)
    total, both = int(count.sum()) * passes, sides == "both"
    wanted = (total * n + (1 + both) * N * k * n + 2 * passes * N * n) * 8
    kept = wanted <= KEEP_BYTES if keep is None else keep
    lam_low, lam_high = (np.full((N if kept else 0, k, n), np.nan) for _ in range(2))
    stage_rows = total if kept else 0
    units, sides_of, turn = np.full(stage_rows, -1), np.zeros(stage_rows, np.int8), np.zeros(stage_rows, np.int8)
    lams = np.empty((stage_rows, n))
    first = np.zeros(N, np.int64)
    if kept and N:
        first[1:] = np.cumsum(count * passes)[:-1]
    stage_zl, stage_zh = (np.repeat(v[None], passes, 0) if kept else np.empty((passes, 0, n)) for v in (zl, zh))
    radius = np.ascontiguousarray(np.atleast_2d(inputs.radius))
    nodes, split = np.zeros((N, k), np.int64), lower.copy()
    own = not functionals.shared
    W = np.ascontiguousarray(functionals.state if own else functionals.state[None])
    steps = ASCENT_STEPS if method.ascent_steps is None else int(method.ascent_steps)
    model = Model(A, B, np.array(task.b), code, slope, coefficient)
    search = dual_samples.Search(passes, steps, bool(method.early_stop), both)
    chunk = max(1, min(N, 2**25 // max(1, k * p))) if own else max(N, 1)
    for begin in range(0, N, chunk):
        at = slice(begin, begin + chunk)
        V = functionals.inputs_of(begin, min(N, begin + chunk))
        V = np.ascontiguousarray(V if own else V[None])
        sets = Sets(  # type: ignore[call-arg]
            np.ascontiguousarray(inputs.centre[at]),
            radius if len(radius) == 1 else radius[at],
            -1 if inputs.card is None else inputs.card,
            *(v[at] for v in (zl, zh, xl, xh, weight, ok)),
            np.zeros((len(ok[at]), n), bool),
        )
        rows = dual_samples.Functionals(W[at] if own else W, V, constant[at], extra[at])
        low, high = (v[at] if kept else v for v in (lam_low, lam_high))
        record = Record(units, sides_of, turn, lams, first[at])
        evidence = dual_samples.Evidence(  # type: Any
            kept, low, high, record, *(v[:, at] for v in (stage_zl, stage_zh))
        )
        dual_samples.bound_samples(model, sets, rows, search, lower[at], upper[at], evidence)
        if splits:
            split[at] = lower[at]
            branching.branch_samples(model, sets, rows, steps, splits, split[at], nodes[at])
    if ok.any():
        low, high = task.activation.interval(zl[ok], np.maximum(zl[ok], zh[ok]))
        if not task.activation.piecewise_linear:  # maps that are evaluated with an error
            pad = 1e-12 * np.maximum(np.abs(low), np.abs(high))
            low, high = low - pad, high + pad
        xl[ok], xh[ok] = np.maximum(xl[ok], low), np.minimum(xh[ok], high)
    fields = {"xl": xl, "xh": xh, "zl": zl, "zh": zh, "lb": lower, "ub": upper}
    evidence: dict[str, Any] = {  # type: ignore[no-redef]
        name: getattr(start.cert, name) for name in ("il", "ih", "zl0", "zh0")
    }
    evidence["stages"] = None if passes else start.cert.stages
    if kept and passes:
        evidence["stages"] = _stages(count * passes, units, sides_of, turn, lams, stage_zl, stage_zh, passes)
    if kept:
        evidence |= {"lam_low": lam_low, "lam_high": lam_high if both else None}
    found = finished(task, inputs, functionals, start.status.copy(), "dual", fields, **evidence)
    return replace(found, lb=np.where((found.status == Status.CERTIFIED)[:, None], split, np.nan)) if splits else found


def _stages(counts, units, sides, turn, lams, stage_zl, stage_zh, passes) -> tuple[Stage, ...]:
    sample = np.repeat(np.arange(len(counts)), counts)
    out = []
    for k in range(passes):
        at = np.flatnonzero((units >= 0) & (turn == k))
        if at.size:
            out.append(Stage(sample[at], units[at], sides[at], lams[at], stage_zl[k], stage_zh[k]))
    return tuple(out)
