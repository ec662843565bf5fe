"""State-driven implicit modelling: a sparse, well-posed implicit model that reproduces the states of a trained network.

Source:
    SIM paper, section 3, (2), (4), (7), (11); Tsai thesis (2024), chapter 3.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from implicit_models.sim.network.normal_equations import row_problem
from implicit_models.sim.network.scaling import scale_of
from implicit_models.sim.network.states import States, states
from implicit_models.sim.parallel.chunk_store import Chunk, content_key, read_manifest
from implicit_models.sim.parallel.run import SERIAL, Parallel, chunks_of, map_chunks
from implicit_models.sim.problem import (
    L1,
    Exact,
    LeastSquares,
    NoPenalty,
    Objective,
    Perspective,
    Ridge,
    Tolerance,
    number,
    require,
)
from implicit_models.sim.report import MoreParameters
from implicit_models.sim.result import SIMResult, nonzero_parameters, original_units
from implicit_models.status import Status, check_on_failure, report

LEAST_L1, IN_THE_MEAN, TOLERANCE = L1(), LeastSquares(), Tolerance()
CHUNKS = 64  # the layout depends on the rows alone, and so do the bits of the result
CHUNK_ROWS = (16, 256)  # what rows share (columns outside the ball are eliminated once) is paid once a chunk


def solve_chunk(
    arrays: Mapping[str, np.ndarray],
    chunk: Chunk,
    *,
    n_states: int,
    kappa: float,
    state: dict[str, float],
    output: dict[str, float],
    perspective: bool,
    tolerance: Tolerance,
) -> dict[str, np.ndarray]:
    """The rows start..stop-1 of a problem {"G", "C", "zz", "mask", "first"}, for `map_chunks`; rows from n_states on
    have no ball.

    first (r,): the first column that a row may use, the same for all rows of the chunk; the weights before it are zero.
    A row whose C or zz is not finite is NaN with status "not_finite"; it is not shown to the solver.
    """
    start, stop = chunk
    first = int(arrays["first"][start])
    if perspective:
        from implicit_models.sim.solvers.perspective import solve_perspective_rows as solve
    else:
        from implicit_models.sim.solvers.rows import solve_rows as solve  # type: ignore[assignment]
    C, zz = arrays["C"][start:stop], arrays["zz"][start:stop]
    mask, weights = arrays["mask"][first:], state
    if start >= n_states:
        mask, weights = np.zeros_like(mask), output
    good = np.isfinite(zz) & np.isfinite(C).all(1)
    G = arrays["G"] if first == 0 else np.ascontiguousarray(arrays["G"][first:, first:])
    # zeros, not a shorter batch: the others keep their bits
    C = np.ascontiguousarray(np.where(good[:, None], C, 0.0)[:, first:])
    options = {  # type: dict[str, Any]
        "kappa": kappa,
        "ball_mask": mask,
        "rtol": tolerance.rtol,
        "atol": tolerance.atol,
    } | weights
    rows = solve(G, C, np.where(good, zz, 0.0), **options)
    A = np.zeros((stop - start, arrays["C"].shape[1]))
    A[:, first:] = rows.A
    out = {"A": A, "status": np.array(rows.status).astype("<U12"), "n_steps": np.array(rows.n_steps)}
    out |= {name: np.array(getattr(rows, name), dtype=np.float64) for name in ("multiplier", "gap")}
    for name, lost in (
        ("A", np.nan),
        ("multiplier", np.nan),
        ("gap", np.nan),
        ("n_steps", 0),
        ("status", Status.NOT_FINITE),
    ):
        out[name][~good] = lost
    return out


def warm_up(perspective: bool) -> None:
    """Load, or compile, the kernels of the rows: a state row and an output row of two weights."""
    arrays = {"G": np.eye(2), "C": np.ones((2, 2)), "zz": np.full(2, 2.0)}
    arrays |= {"mask": np.array([True, False]), "first": np.zeros(2, dtype=np.int64)}
    weights = (Perspective(0.01, 0.01) if perspective else L1(0.01)).row_weights(0.1)
    settings = {  # type: dict[str, Any]
        "state": weights,
        "output": weights,
        "perspective": perspective,
        "tolerance": Tolerance(),
    }
    for chunk in ((0, 1), (1, 2)):
        solve_chunk(arrays, chunk, n_states=1, kappa=0.1, **settings)


def first_columns(found: States, feedback: str) -> np.ndarray:
    """First column that each row may use: 0, or with "strict_upper" the first one after the row's own block.

    The columns are those of later layers first, so that what follows a block are the layers before it, inputs and bias.
    """
    first = np.zeros(found.n_states + found.Y.shape[1], dtype=np.int64)
    if feedback == "strict_upper":
        for block in found.blocks:
            first[block.states] = block.stop
    return first


def _layout(found: States, feedback: str, resume: str | Path | None) -> list[Chunk]:
    """Chunks that hold rows of one kind (of one block with "strict_upper"); those of the first run if a folder holds
    some."""
    begun = None if resume is None else read_manifest(resume)
    n, r = found.n_states, found.n_states + found.Y.shape[1]
    parts = [(b.start, b.stop) for b in found.blocks] if feedback == "strict_upper" else [(0, n)]
    rows_a_chunk = int(np.clip(-(-r // CHUNKS), *CHUNK_ROWS))
    if begun is not None and begun["chunks"]:
        rows_a_chunk = max(b - a for a, b in begun["chunks"])
    return [chunk for a, b in (*parts, (n, r)) for chunk in chunks_of(a, b, rows_a_chunk)]


def _exact_problem(found: States, s: np.ndarray, first: np.ndarray) -> dict[str, np.ndarray]:
    """Equations of the rows, for every first column that occurs."""
    from implicit_models.sim.solvers.conic import orthonormal_equations

    M = np.hstack([found.X / s, found.U, np.ones((found.n_samples, 1))]).astype(np.float64)
    T = np.hstack([found.Z / s, found.Y]).astype(np.float64)
    arrays = {}  # type: dict[str, np.ndarray]
    for column in np.unique(first):
        equations = orthonormal_equations(M[:, column:], T)
        arrays |= {f"{name}_{column}": value for name, value in equations._asdict().items()}
    return arrays


class _Problem(NamedTuple):
    """Rows for `map_chunks`: the solver of a chunk, what its key is made of besides the arrays, and what loads it."""

    arrays: dict[str, np.ndarray]
    solver: Any
    settings: dict[str, Any]
    warm_up: Any


def _exact(found: States, units: np.ndarray, first: np.ndarray, objective, kappa, exact, tolerance) -> _Problem:
    """Rows that match the states exactly."""
    from implicit_models.sim.solvers.conic import exact_chunk

    arrays = {**_exact_problem(found, units, first), "mask": row_problem(found).in_ball("state"), "first": first}
    settings = {"objective": objective, "kappa": float(kappa), "exact": exact, "rtol": tolerance.rtol}
    return _Problem(arrays, functools.partial(exact_chunk, n_states=found.n_states, settings=settings), settings, None)


def _least_squares(found: States, units: np.ndarray, first: np.ndarray, objective, kappa, match, tolerance) -> _Problem:
    """Rows that match the states in the mean."""
    problem = row_problem(found).scaled(units)
    mask = problem.in_ball("state")
    arrays = {"G": problem.G, "C": problem.C, "zz": problem.zz, "mask": mask, "first": first}
    perspective = isinstance(objective, Perspective)
    settings = {
        "kappa": float(kappa),
        "state": objective.row_weights(match.lambda1),
        "output": objective.row_weights(match.lambda2),
        "perspective": perspective,
        "tolerance": tolerance,
    }
    solver = functools.partial(solve_chunk, n_states=found.n_states, **settings)
    return _Problem(arrays, solver, settings, functools.partial(warm_up, perspective))


class RowsNotCertified(UserWarning, RuntimeError):
    """Rows of a fit that ended without a certificate; `rows` holds their indices, n_states and above are outputs."""

    def __init__(self, message: str, rows: tuple[int, ...] = ()):
        super().__init__(message)
        self.rows = rows


def report_failed_rows(fitted: SIMResult, on_failure: str) -> None:
    """Warn of rows without a certificate, or raise.

    Args:
        fitted: the fit.
        on_failure: "warn" | "raise" | "ignore".
    """
    lost = fitted.failed_rows
    if not lost.size or on_failure == "ignore":
        return
    named = ", ".join(f"{i} ({fitted.status[i]}, gap {fitted.gap[i]:.2g})" for i in lost[:5])
    message = f"{lost.size} of {len(fitted.status)} rows are not certified: row {named}" + (
        ", ..." if lost.size > 5 else ""
    )
    failure = RowsNotCertified(
        f"{message}; rows of status not_finite or infeasible have no values", tuple(int(i) for i in lost)
    )
    report(failure, on_failure, stacklevel=3)


def fit_sim(
    network: nn.Module | States,
    U: Any = None,
    *,
    objective: Objective = LEAST_L1,
    match: LeastSquares | Exact = IN_THE_MEAN,
    kappa: float = 0.99,
    scale: Any = "theorem",
    feedback: str = "full",
    tolerance: Tolerance = TOLERANCE,
    parallel: Parallel = SERIAL,
    on_failure: str = "warn",
) -> SIMResult:
    """Sparse implicit model whose rows reproduce the states and outputs of a trained network.

    Mathematics: in the units s of the states (x' = x / s, z' = z / s), row by row,
        min over (A', B', b)  lambda1 ||z'_i - A'_i x' - B'_i u - b_i||^2 + f(A'_i, B'_i, b_i)   s.t.  ||A'_i||_1 <=
        kappa,
        min over (C', D, d)   lambda2 ||y_k - C'_k x' - D_k u - d_k||^2 + f(C'_k, D_k, d_k),
    then A = S A' S^-1, B = S B', C = C' S^-1. kappa < 1 makes A well-posed whatever the units, and whatever f.

    Args:
        network, U: a trained network and its inputs (m, ...); or its `States`, found once for a sweep, and no U.
        objective: f: `L1`, `Ridge`, `Perspective` or `NoPenalty`.
        match: `LeastSquares(lambda1, lambda2)`, see above, or `Exact()`: states and outputs are matched exactly, and f
            is all that is minimised.
        kappa: radius of the ball, at least 1 gives no certificate of its own.
        scale: units of the states, see `scale_of`: "theorem" | "std" | "uniform" | "none" | an array (n,) | a `Scale`.
        feedback: "full", as printed: every row may use every state, its own included. Where a state is active z_i =
            x_i, so that A_ii near kappa imitates a row cheaply; I - A is then nearly singular and the equilibrium far
            from the states matched. "strict_upper": the rows of a block use the layers before it, inputs and bias;
            needs a layered network, and A is well-posed for every kappa.
        tolerance: of a row's certificate (exact: see `exact_rows`).
        parallel: where rows are solved; its folder `resume` holds finished rows, and a run that was cut off goes on
            from there.
        on_failure: "warn" | "raise" | "ignore" when rows end without a certificate.

    Returns:
        `SIMResult`; rows without a certificate say so in `status`.

    Warns:
        RowsNotCertified: naming the rows, or raises it.
        MoreParameters: where the model has more non-zero parameters than the network.

    Raises:
        TypeError, ValueError: naming the argument, the sample or the shape that does not fit.

    Source:
        SIM paper, (2), (4), (7), (11) and Theorem 2.4; Tsai thesis (2024), section 3.1.
    """
    from implicit_models.model import ImplicitModel

    require("objective", objective, L1, Ridge, Perspective, NoPenalty)
    require("match", match, LeastSquares, Exact)
    require("tolerance", tolerance, Tolerance)
    require("parallel", parallel, Parallel)
    check_on_failure(on_failure)
    if feedback not in ("full", "strict_upper"):
        raise ValueError(f"unknown feedback {feedback!r}; choose 'full' or 'strict_upper'")
    number("kappa", kappa)
    exact, clock, timing = isinstance(match, Exact), time.perf_counter(), {}

    def lap(name: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        timing[name], clock = now - clock, now

    if isinstance(network, States):
        if U is not None:
            raise TypeError("states hold their inputs already: pass either a network and U, or states")
        found = network
    else:
        if U is None:
            raise TypeError("fit_sim needs the inputs U of the network")
        found = states(network, U, dtype=torch.float64 if exact else None)
    lap("states")
    if feedback == "strict_upper" and isinstance(found.network, ImplicitModel):
        raise ValueError("feedback='strict_upper' needs layers; those of an implicit model may all feed each other")
    first = first_columns(found, feedback)
    problem = row_problem(found)
    lap("gram")
    units = scale_of(found, scale)
    lap("scale")
    rows = (_exact if exact else _least_squares)(found, units.s, first, objective, kappa, match, tolerance)
    lap("set-up")
    resume = parallel.resume
    key = "" if resume is None else content_key(rows.arrays, (problem.n_states, sorted(rows.settings.items()), exact))
    chunks = _layout(found, feedback, resume)
    results, run = map_chunks(rows.solver, chunks, arrays=rows.arrays, parallel=parallel, key=key, warm_up=rows.warm_up)
    lap("rows")
    timing["start-up"] = run.start_s
    whole = {
        name: np.concatenate([r[name] for r in results]) for name in ("A", "multiplier", "gap", "n_steps", "status")
    }
    A, B, C, D, b, d = original_units(whole.pop("A"), problem, units.s)
    fitted = SIMResult(
        A,
        B,
        C,
        D,
        b,
        d,
        objective=objective,
        matched=match,
        kappa=float(kappa),
        feedback=feedback,
        scale=units,
        states=found,
        timing=timing,
        run=run,
        **whole,
    )
    report_failed_rows(fitted, on_failure)
    if found.network is not None and fitted.sparsity_of_parameters < 0:
        more = fitted.nnz, nonzero_parameters(found.network)
        warnings.warn(MoreParameters("the fit has {} non-zero parameters, the network {}".format(*more)), stacklevel=2)
    return fitted
