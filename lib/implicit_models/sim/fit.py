"""State-driven implicit modelling: a sparse, well-posed implicit model that reproduces the states of a trained network.

Source:
    SIM paper, section 3, (2), (4), (7), (11); Tsai thesis (2024), chapter 3.
"""

from __future__ import annotations

import functools
import numbers
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from implicit_models.sim.network.scaling import scale_of
from implicit_models.sim.network.states import States, states
from implicit_models.sim.parallel.chunk_store import Chunk, content_key, read_manifest
from implicit_models.sim.parallel.run import chunks_of, map_chunks
from implicit_models.sim.problem import row_problem
from implicit_models.sim.result import SIMResult, original_units
from implicit_models.status import Status, check_on_failure, report

OBJECTIVES = ("l1", "l2", "perspective", "none")
CHUNKS = 64  # the layout depends on the rows alone, and so do the bits of the result
CHUNK_ROWS = (16, 256)  # what rows share (columns outside the ball are eliminated once) is paid once a chunk


def row_weights(objective: str, lam: float, alpha: float, beta: float, eta: float) -> dict[str, float]:
    """The paper's lambda ||z - M a||^2 + f(a), divided by 2 lambda: the weights of f in row units.

    Args:
        objective: "l1" (f = beta ||a||_1) | "l2" (alpha ||a||^2) | "perspective" (alpha s + eta t) | "none".

    Returns:
        {"beta"}, {"ridge"} (of ridge/2 ||a||^2), {"alpha", "eta"} or nothing.

    Source:
        SIM paper, (4), (7), (11).
    """
    if objective == "l1":
        return {"beta": beta / (2 * lam)}
    if objective == "l2":
        return {"ridge": alpha / lam}
    return {"alpha": alpha / (2 * lam), "eta": eta / (2 * lam)} if objective == "perspective" else {}


def solve_chunk(
    arrays: Mapping[str, np.ndarray],
    chunk: Chunk,
    *,
    n_states: int,
    kappa: float,
    state: dict[str, float],
    output: dict[str, float],
    perspective: bool,
    rtol: float,
    atol: float,
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
    rows = solve(G, C, np.where(good, zz, 0.0), kappa=kappa, ball_mask=mask, rtol=rtol, atol=atol, **weights)
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
    weights = row_weights("perspective" if perspective else "l1", 0.1, 0.01, 0.01, 0.01)
    settings = {"state": weights, "output": weights, "perspective": perspective, "rtol": 1e-6, "atol": 1e-9}  # type: dict[str, Any]
    for chunk in ((0, 1), (1, 2)):
        solve_chunk(arrays, chunk, n_states=1, kappa=0.1, **settings)


def _positive(**values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{name} must be a number, got {value!r}")
        if not (np.isfinite(value) and value > 0):  # type: ignore[call-overload, operator]
            raise ValueError(f"{name} must be positive and finite, got {value}")


def first_columns(found: States, feedback: str) -> np.ndarray:
    """First column that each row may use: 0, or with "strict_upper" the first one after the row's own block.

    The columns are those of later layers first, so that what follows a block are the layers before it, inputs and bias.
    """
    first = np.zeros(found.n_states + found.Y.shape[1], dtype=np.int64)
    if feedback == "strict_upper":
        for block in found.blocks:
            first[block.states] = block.stop
    return first


def _layout(found: States, feedback: str, rows_per_chunk: int | None, resume: str | Path | None) -> list[Chunk]:
    """Chunks that hold rows of one kind (of one block with "strict_upper"); those of the first run if a folder holds
    some."""
    begun = None if resume is None else read_manifest(resume)
    n, r = found.n_states, found.n_states + found.Y.shape[1]
    parts = [(b.start, b.stop) for b in found.blocks] if feedback == "strict_upper" else [(0, n)]
    if rows_per_chunk is None:
        rows_per_chunk = int(np.clip(-(-r // CHUNKS), *CHUNK_ROWS))
        if begun is not None and begun["chunks"]:
            rows_per_chunk = max(b - a for a, b in begun["chunks"])
    if isinstance(rows_per_chunk, bool) or not isinstance(rows_per_chunk, int) or rows_per_chunk < 1:
        raise ValueError(f"rows_per_chunk must be a positive int, got {rows_per_chunk!r}")
    return [chunk for a, b in (*parts, (n, r)) for chunk in chunks_of(a, b, rows_per_chunk)]


def _exact_problem(found: States, bias: bool, s: np.ndarray, first: np.ndarray) -> dict[str, np.ndarray]:
    """Equations of the rows, for every first column that occurs."""
    from implicit_models.sim.solvers.exact import orthonormal_equations

    M = np.hstack([found.X / s, found.U, np.ones((found.n_samples, int(bias)))]).astype(np.float64)
    T = np.hstack([found.Z / s, found.Y]).astype(np.float64)
    arrays = {}  # type: dict[str, np.ndarray]
    for column in np.unique(first):
        equations = orthonormal_equations(M[:, column:], T)
        arrays |= {f"{name}_{column}": value for name, value in equations._asdict().items()}
    return arrays


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
    objective: str = "l1",
    kappa: float = 0.99,
    lambda1: float = 0.1,
    lambda2: float = 0.1,
    alpha: float = 1e-3,
    beta: float = 1e-2,
    eta: float | None = None,
    scale: Any = "theorem",
    scale_kappa: float = 0.99,
    ball: str = "state",
    feedback: str = "full",
    bias: bool = True,
    exact: bool = False,
    exact_solver: str = "CLARABEL",
    zero_below: float = 0.0,
    backend: str = "serial",
    workers: int | None = None,
    rows_per_chunk: int | None = None,
    resume: str | Path | None = None,
    address: str | None = None,
    start_method: str | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    on_failure: str = "warn",
    progress: bool | None = None,
) -> SIMResult:
    """Sparse implicit model whose rows reproduce the states and outputs of a trained network.

    Mathematics: in the units s of the states (x' = x / s, z' = z / s), row by row,
        min over (A', B', b)  lambda1 ||z'_i - A'_i x' - B'_i u - b_i||^2 + f(A'_i, B'_i, b_i)   s.t.  ||A'_i||_1 <=
        kappa,
        min over (C', D, d)   lambda2 ||y_k - C'_k x' - D_k u - d_k||^2 + f(C'_k, D_k, d_k),
    then A = S A' S^-1, B = S B', C = C' S^-1. f = beta ||.||_1 ("l1"), alpha ||.||_2^2 ("l2"), sum of alpha s + eta t
    with s t >= a^2, t <= 1 ("perspective"), 0 ("none"). kappa < 1 makes A well-posed whatever the units, and whatever
    f.

    Args:
        network, U: a trained network and its inputs (m, ...); or its `States`, found once for a sweep, and no U.
        objective, lambda1, lambda2, alpha, beta, eta: see above; eta = alpha if None.
        kappa: radius of the ball, at least 1 gives no certificate of its own.
        ball: "state": it holds A' only; "row": B' too.
        feedback: "full", as printed: every row may use every state, its own included. Where a state is active z_i =
            x_i, so that A_ii near kappa imitates a row cheaply; I - A is then nearly singular and the equilibrium far
            from the states matched. "strict_upper": the rows of a block use the layers before it, inputs and bias;
            needs a layered network, and A is well-posed for every kappa.
        scale, scale_kappa: units of the states, see `scale_of`: "theorem" | "std" | "uniform" | "none" | an array (n,).
        bias: fit b and d, weights of a constant input that the ball never holds.
        exact: match states and outputs exactly by a conic solver, `exact_solver`; f is all that is minimised.
            `zero_below`: see `exact_rows`.
        backend, workers, address, start_method, progress: see `map_chunks`.
        rows_per_chunk: 16 to 256, about 64 chunks, if None.
        resume: folder of finished rows; a run that was cut off goes on from there.
        rtol, atol: a row is solved when gap <= rtol f or gap <= atol 1/2 ||z||^2 (exact: see `exact_rows`).
        on_failure: "warn" | "raise" | "ignore" when rows end without a certificate.

    Returns:
        `SIMResult`; rows without a certificate say so in `status`.

    Warns:
        RowsNotCertified: naming the rows, or raises it.

    Raises:
        TypeError, ValueError: naming the argument, the sample or the shape that does not fit.

    Source:
        SIM paper, (2), (4), (7), (11) and Theorem 2.4; Tsai thesis (2024), section 3.1.
    """
    from implicit_models.model import ImplicitModel

    if objective not in OBJECTIVES:
        raise ValueError(f"unknown objective {objective!r}; choose one of {', '.join(OBJECTIVES)}")
    check_on_failure(on_failure)
    if ball not in ("state", "row"):
        raise ValueError(f"ball must be 'state' or 'row', got {ball!r}")
    if feedback not in ("full", "strict_upper"):
        raise ValueError(f"unknown feedback {feedback!r}; choose 'full' or 'strict_upper'")
    eta = alpha if eta is None else eta
    _positive(kappa=kappa, lambda1=lambda1, lambda2=lambda2, alpha=alpha, beta=beta, eta=eta, rtol=rtol, atol=atol)
    clock, timing = time.perf_counter(), {}

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
    problem = row_problem(found, bias=bias)
    lap("gram")
    units = scale_of(found, scale, kappa=scale_kappa)
    scaled = problem.scaled(units.s)
    lap("scale")
    mask = problem.in_ball(ball)
    if exact:
        from implicit_models.sim.solvers.exact import exact_chunk

        arrays = {**_exact_problem(found, bias, units.s, first), "mask": mask, "first": first}
        settings = {"objective": objective, "kappa": kappa, "alpha": alpha, "beta": beta, "eta": eta}  # type: dict[str, Any]
        settings |= {"solver": exact_solver, "rtol": rtol, "zero_below": zero_below}
        solver = functools.partial(exact_chunk, n_states=problem.n_states, settings=settings)
    else:
        arrays = {"G": scaled.G, "C": scaled.C, "zz": scaled.zz, "mask": mask, "first": first}
        settings = {"kappa": float(kappa), "rtol": rtol, "atol": atol, "perspective": objective == "perspective"}
        settings["state"] = row_weights(objective, lambda1, alpha, beta, eta)
        settings["output"] = row_weights(objective, lambda2, alpha, beta, eta)
        solver = functools.partial(solve_chunk, n_states=problem.n_states, **settings)
    lap("set-up")
    ready = None if exact else functools.partial(warm_up, objective == "perspective")
    chunks = _layout(found, feedback, rows_per_chunk, resume)
    key = "" if resume is None else content_key(arrays, (problem.n_states, sorted(settings.items()), exact))
    results, run = map_chunks(
        solver,
        chunks,
        arrays=arrays,
        backend=backend,
        workers=workers,
        resume=resume,
        key=key,
        address=address,
        start_method=start_method,
        warm_up=ready,
        progress=progress,
    )
    lap("rows")
    timing["start-up"] = run.start_s
    whole = {
        name: np.concatenate([r[name] for r in results]) for name in ("A", "multiplier", "gap", "n_steps", "status")
    }
    A, B, C, D, b, d = original_units(whole.pop("A"), problem, units.s)
    described = {"name": objective, "lambda1": lambda1, "lambda2": lambda2}
    terms = {"l1": {"beta": beta}, "l2": {"alpha": alpha}, "perspective": {"alpha": alpha, "eta": eta}, "none": {}}
    described |= terms[objective]
    if exact:
        described = {k: v for k, v in described.items() if not k.startswith("lambda")} | {"exact": True}
    fitted = SIMResult(
        A,
        B,
        C,
        D,
        b,
        d,
        objective=described,
        kappa=float(kappa),
        ball=ball,
        feedback=feedback,
        scale=units,
        states=found,
        timing=timing,
        run=run,
        **whole,
    )
    report_failed_rows(fitted, on_failure)
    return fitted
