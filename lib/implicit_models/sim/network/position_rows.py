"""All rows of one block: positions in strips, each with one Gram matrix for all of its channels.

Columns and targets are centred (a bias is free) and brought to units: column j is divided by c_j, target i by t_i, and
the ball sum_j s_j |a_ij| <= kappa s_i in original weights reads ||a'||_1 <= kappa s_i / (t_i ref) with a'_j = a_ij c_j
/ t_i and c_j = s_j / ref.
Constant columns are zeros here, constant targets are left out: their rows have a bias alone.

A strip is a chunk for `parallel.run.map_chunks`: its solver reads nothing but the arrays, so that any backend gives the
same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float, Int

from implicit_models.sim.network.position_grams import (
    pair_products,
    plan_pairs,
    window_columns,
    window_gram,
    window_targets,
)
from implicit_models.sim.parallel.chunk_store import content_key
from implicit_models.sim.parallel.report import RunReport
from implicit_models.sim.parallel.run import Parallel, chunks_of, default_workers, map_chunks
from implicit_models.sim.problem import Budget, Tolerance
from implicit_models.sim.solvers.budget import REASONS, explained_by, refit_all, solve_position
from implicit_models.sim.solvers.refit import one_sided

STRIPS_A_WORKER = 2  # strips share the products at their seams: few of them waste little, several balance the work


@dataclass(frozen=True)
class BlockRows:
    """Coefficients of a block's rows at each of K budgets, in the units of the problem.

    For budget t: row (R,), column (nnz,), l1 and refit (nnz,) with pointer (R + 1,). gap, fit, fit_refit (R, K): the
        duality gap over 1/2 ||z||^2,
    R^2 of the l1 and the refitted row; violation (R, K) of the ball over its radius; reason (R, K), codes of
    `budget.REASONS`; shift (R, K), of the refitted row's bias, where it is not that of least squares.
    """

    pointer: list[Int[np.ndarray, " R_1"]]
    column: list[Int[np.ndarray, " nnz"]]
    l1: list[Float[np.ndarray, " nnz"]]
    refit: list[Float[np.ndarray, " nnz"]]
    gap: Float[np.ndarray, "R K"]
    fit: Float[np.ndarray, "R K"]
    fit_refit: Float[np.ndarray, "R K"]
    violation: Float[np.ndarray, "R K"]
    reason: Int[np.ndarray, "R K"]
    run: RunReport
    shift: Float[np.ndarray, "R K"] | None = None

    def status(self, t: int) -> dict[str, int]:
        """How many rows ended how."""
        return {
            name: n
            for name, n in zip(REASONS, np.bincount(self.reason[:, t], minlength=len(REASONS)).tolist(), strict=True)
            if n
        }


def solve_block(
    F: Float[np.ndarray, "c m"],
    start: Int[np.ndarray, " cells_1"],
    cells: Int[np.ndarray, "P k"],
    Z: Float[np.ndarray, "P r m"],
    radius: Float[np.ndarray, "P r"],
    budgets: Sequence[Budget],
    *,
    ridge: float,
    tolerance: Tolerance,
    cap: int | None,
    parallel: Parallel,
    level: Float[np.ndarray, "P r"] | None = None,
) -> BlockRows:
    """Rows of a block; `row` is position-major, p r + channel, and `column` a row of F.

    Args:
        F: columns in their units, start: first row of every cell and the end.
        cells: what each position reads, -1 behind.
        Z: targets in their units, radius: of the unit ball of every row.
        ridge: of the refit, relative to each column's squared norm.
        tolerance: of the certificate.
        cap: largest support of a row, or None.
        parallel: where the strips run.
        level: of the targets, in their units: then the refit is `one_sided`, for Z + level before ReLU.
    """
    P, r = Z.shape[:2]
    workers = parallel.workers or default_workers()
    size = max(1, -(-P // (STRIPS_A_WORKER * workers if parallel.backend != "serial" else 1)))
    arrays = {"F": F, "start": start, "cells": cells, "Z": Z, "radius": radius}
    if level is not None:
        arrays["level"] = level
    settings = (tuple(budgets), float(ridge), tolerance, cap)
    key = "" if parallel.resume is None else content_key(arrays, (settings, size))
    found, run = map_chunks(
        partial(solve_strip, budgets=budgets, ridge=ridge, tolerance=tolerance, cap=cap),
        chunks_of(0, P, size),
        arrays=arrays,
        parallel=parallel,
        key=key,
    )
    K = len(budgets)
    counts = [np.concatenate([f[f"count{t}"] for f in found]) for t in range(K)]
    join = lambda name: [np.concatenate([f[f"{name}{t}"] for f in found]) for t in range(K)]
    whole = {
        name: np.concatenate([f[name] for f in found]) for name in ("gap", "fit", "fit_refit", "violation", "reason")
    }
    pointer = [np.concatenate([[0], np.cumsum(c)]) for c in counts]
    shift = None if level is None else np.concatenate([f["shift"] for f in found])
    return BlockRows(pointer, join("column"), join("l1"), join("refit"), run=run, shift=shift, **whole)


def solve_strip(
    arrays: Mapping[str, np.ndarray],
    chunk: tuple[int, int],
    *,
    budgets: Sequence[Budget],
    ridge: float,
    tolerance: Tolerance,
    cap: int | None,
) -> dict[str, np.ndarray]:
    """The rows of the positions chunk[0] .. chunk[1] - 1."""
    F, start, Z, radius = arrays["F"], arrays["start"], arrays["Z"], arrays["radius"]
    a, b = chunk
    cells = arrays["cells"][a:b]
    plan = plan_pairs(cells, start)
    products = np.empty(plan.total)
    pair_products(F, start, plan.cell, plan.begin, plan.end, plan.offset, products)
    r, m, K = Z.shape[1], F.shape[1], len(budgets)
    most = max((int((start[c[c >= 0] + 1] - start[c[c >= 0]]).sum()) for c in cells), default=0)
    square = np.empty((most, most))
    per: dict[str, list] = {f"{name}{t}": [] for name in ("count", "column", "l1", "refit") for t in range(K)}
    level = arrays.get("level")
    for name in ("gap", "fit", "fit_refit", "violation", "reason", *(() if level is None else ("shift",))):
        per[name] = []
    for w in range(b - a):
        columns = window_columns(cells[w], start)
        d = len(columns)
        G = square if d == most else np.empty((d, d))
        window_gram(products, plan.offset, plan.begin, plan.end, start, cells[w], plan.block[w], plan.column[w], G)
        z = Z[a + w]
        C, zz = np.empty((r, d)), np.einsum("ij,ij->i", z, z)
        window_targets(F, start, cells[w], z, C)
        A, gap, violation, reason = solve_position(G, C, zz, m, budgets, radius[a + w], tolerance=tolerance, cap=cap)
        B, seen, seen_refit = np.zeros_like(A), np.empty((r, K)), np.empty((r, K))
        explained_by(G, C, A, seen)
        refit_all(G, C, A, ridge, B, seen_refit)
        if level is not None:
            M, shift = F[columns], np.empty((r, K))
            for t in range(K):
                B[:, t], shift[:, t], _ = one_sided(M, G, z, level[a + w], A[:, t], B[:, t], ridge)
            explained_by(G, C, B, seen_refit)
            seen_refit -= m * shift**2
            per["shift"].append(shift)
        safe = np.where(zz > 0, zz, 1.0)[:, None]
        per["gap"].append(gap / (0.5 * safe))
        per["violation"].append(violation / np.where(radius[a + w] > 0, radius[a + w], 1.0)[:, None])
        per["reason"].append(reason)
        for name, share in (("fit", seen), ("fit_refit", seen_refit)):
            per[name].append(np.where(zz[:, None] > 0, share / safe, 1.0))
        for t in range(K):
            i, j = np.nonzero(A[:, t])
            per[f"count{t}"].append(np.bincount(i, minlength=r))
            per[f"column{t}"].append(columns[j].astype(np.int32))
            per[f"l1{t}"].append(A[i, t, j])
            per[f"refit{t}"].append(B[i, t, j])
    return {name: np.concatenate(parts) for name, parts in per.items()}
