"""Rows that may use any of very many columns, each on a working set of its own, certified on all of them.

No Gram matrix of d columns is formed. A row starts with the columns most correlated with its target, is solved exactly
there, and its residual is then compared with every column. With r = z - M a, in the ball ||a||_1 <= kappa the duality
gap is

    kappa max_j |m_j'r| - a'M'r,

and with a penalty beta, for s = min(1, beta / max_j |m_j'r|), it is 1/2 ||r||^2 + beta ||a||_1 - (s z'r - s^2/2
||r||^2). A row whose gap is above the tolerance takes in the columns with the largest correlations and is solved again;
the objective never rises. All columns are read in low precision; the maximum is that of double precision (see
`low_precision`).

Source:
    Tsai thesis (2024), (3.4), where a state may use all states before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from jaxtyping import Float

from implicit_models.kernels import kernel
from implicit_models.sim.network.column_store import Columns
from implicit_models.sim.network.low_precision import Rounded
from implicit_models.sim.network.position_rows import BlockRows
from implicit_models.sim.network.working_set import DeviceColumns, HostColumns, Scores
from implicit_models.sim.parallel.chunk_store import content_key
from implicit_models.sim.parallel.run import THREADS, Parallel, chunks_of, default_workers, map_chunks
from implicit_models.sim.problem import Budget, L1Ball, Tolerance
from implicit_models.sim.solvers.budget import EMPTY, INACCURATE, NOT_FINITE, OPTIMAL, SATURATED, refit, solve_position
from implicit_models.sim.solvers.cholesky import OPTIONS
from implicit_models.sim.solvers.duality_gap import gap_from_correlations, is_certified
from implicit_models.sim.solvers.rows import VIOLATION

FIRST, MORE, MOST = 64, 32, 1024  # columns of a working set at first, added by a round, and at most
GRAMS = 2**26  # entries of the Gram matrices that are held at a time
FIELDS = ("gap", "fit", "fit_refit", "violation", "reason")


def solve_working(
    columns: Columns,
    Z: Float[np.ndarray, "P r m"],
    radius: Float[np.ndarray, "P r"],
    budgets: Sequence[Budget],
    *,
    ridge: float,
    tolerance: Tolerance,
    cap: int | None,
    parallel: Parallel = THREADS,
) -> BlockRows:
    """Rows of a block over all columns; other arguments and result as `position_rows.solve_block`, for one set of
    columns and a radius or a penalty.

    Args:
        columns: where they lie says who compares: in memory, the workers of `parallel`; on a graphics card, the card,
            which takes all rows in turn.
    """
    workers = parallel.workers or default_workers()
    R = Z.shape[0] * Z.shape[1]
    alone = not columns.on_host or parallel.backend == "serial"
    size = R if alone and parallel.resume is None else max(1, -(-R // (4 * workers)))
    arrays = {"Z": Z.reshape(R, -1), "radius": radius.reshape(R)}
    settings = (tuple(budgets), float(ridge), tolerance, cap)
    key = "" if parallel.resume is None else content_key(arrays, (settings, size, "working", columns.content()))
    device = None if columns.on_host else DeviceColumns(columns)
    if device is None:
        arrays |= {"F": columns.X.numpy(), **Rounded.of(columns.values, columns.lost, columns.norm)._asdict()}
    found, run = map_chunks(
        partial(solve_part, budgets=budgets, ridge=ridge, tolerance=tolerance, cap=cap, device=device),
        chunks_of(0, R, size),
        arrays=arrays,
        parallel=parallel.alone() if alone else parallel,
        key=key,
    )
    K = len(budgets)
    join = lambda name: [np.concatenate([f[f"{name}{t}"] for f in found]) for t in range(K)]
    pointer = [np.concatenate([[0], np.cumsum(c)]) for c in join("count")]
    whole = {name: np.concatenate([f[name] for f in found]) for name in FIELDS}
    return BlockRows(pointer, join("column"), join("l1"), join("refit"), run=run, **whole)


def solve_part(
    arrays: Mapping[str, np.ndarray],
    chunk: tuple[int, int],
    *,
    budgets: Sequence[Budget],
    ridge: float,
    tolerance: Tolerance,
    cap: int | None,
    device: DeviceColumns | None,
) -> dict[str, np.ndarray]:
    """The rows chunk[0] .. chunk[1] - 1, in batches, at every value of the budget; device: the columns, where they are
    not in memory."""
    Z, radius, K = arrays["Z"], arrays["radius"], len(budgets)
    columns = device or HostColumns(arrays["F"], Rounded(*(arrays[name] for name in Rounded._fields)))
    n = chunk[1] - chunk[0]
    whole: dict[str, np.ndarray] = {name: np.zeros((n, K)) for name in FIELDS[:-1]} | {
        "reason": np.full((n, K), EMPTY, np.int8)
    }
    per: dict[str, list[np.ndarray]] = {
        f"{name}{t}": [] for name in ("count", "column", "l1", "refit") for t in range(K)
    }
    for at in range(0, n, columns.size):
        part = slice(at, min(at + columns.size, n))
        z, scale = Z[chunk[0] :][part], radius[chunk[0] :][part]
        zz = np.einsum("bm,bm->b", z, z)
        for t, budget in enumerate(budgets):
            one = _solve_batch(columns, z, zz, scale, budget, ridge, tolerance, cap)
            for name in FIELDS:
                whole[name][part, t] = one[name]
            for name in ("count", "column", "l1", "refit"):
                per[f"{name}{t}"].append(one[name])
    return whole | {name: np.concatenate(parts) for name, parts in per.items()}


def _solve_batch(
    columns, z, zz, scale, budget: Budget, ridge: float, tolerance: Tolerance, cap: int | None
) -> dict[str, np.ndarray]:
    """One budget for rows z (b, m)."""
    b, d = len(z), len(columns.X)
    kept: dict[str, np.ndarray] = {
        "gap": np.zeros(b),
        "fit": np.ones(b),
        "fit_refit": np.ones(b),
        "violation": np.zeros(b),
        "reason": np.full(b, EMPTY, np.int8),
    }
    kept["reason"][~np.isfinite(zz)] = NOT_FINITE
    entries: list[tuple[np.ndarray, ...]] = [
        (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    ]  # row, column, l1, refit
    todo = np.flatnonzero((zz > 0) & np.isfinite(zz))
    if not bool((columns.norm > 0).any()):  # no column varies: zeros, as in `solve_position`
        kept["fit"][todo] = kept["fit_refit"][todo] = 0.0
        todo = todo[:0]
    k = min(d, FIRST)
    W = columns.proposed(z[todo], k) if len(todo) and d else np.zeros((0, 0), np.int64)
    while len(todo) and d:
        a, violation, reason, again, explained = _on_sets(
            columns, z[todo], zz[todo], W, scale[todo], budget, ridge, tolerance, cap
        )
        more = min(d, k + MORE)
        seen = columns.scores(z[todo], W, a, more)
        gap, value = _gap(budget, scale[todo], a, seen, z.shape[1], reason == SATURATED)
        good = is_certified(gap, value, zz[todo], tolerance)
        last = good | (k >= min(d, MOST))
        row = todo[last]
        kept["reason"][row] = np.where(good, reason, INACCURATE)[last]
        kept["gap"][row] = np.where(kept["reason"][row] == SATURATED, np.nan, gap[last] / (0.5 * zz[row]))
        kept["violation"][row] = violation[last]
        kept["fit"][row], kept["fit_refit"][row] = 1 - seen.square[last] / zz[row], explained[last] / zz[row]
        i, j = np.nonzero(a[last])
        entries.append((row[i], W[last][i, j], a[last][i, j], again[last][i, j]))
        on = ~last
        W = joined(W[on], a[on], seen.best[on])
        todo, k = todo[on], more
    row, column, l1, refitted = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    order = np.lexsort((column, row))
    found = {"column": column[order].astype(np.int32), "l1": l1[order], "refit": refitted[order]}
    return kept | found | {"count": np.bincount(row, minlength=b)}


def _on_sets(
    columns, z, zz, W, scale, budget: Budget, ridge: float, tolerance: Tolerance, cap: int | None
) -> tuple[np.ndarray, ...]:
    """Rows on their working sets W (b, k): coefficients, relative violation, reason, and the refit on the support with
    what it explains.

    In slices, so that the Gram matrices (k, k) of a slice's rows take GRAMS values at most. Rows above the cap, and
    those that the path alone does not certify, are solved one by one.
    """
    m, slack = z.shape[1], 0.5 * tolerance.atol * zz
    if isinstance(budget, L1Ball):
        kappas, beta = float(budget.radius) * scale, 0.0
    else:
        kappas, beta = np.full(len(z), np.inf), budget.lam * m  # type: ignore[union-attr]
    unit = np.where(np.isfinite(kappas), kappas, 1.0)
    parts, size = [], max(1, GRAMS // W.shape[1] ** 2)
    for at in range(0, len(z), size):
        part = slice(at, at + size)
        own = columns.products(z[part], W[part])
        a, gap, value, violation, again, explained = columns.solved(
            own, zz[part], kappas[part], beta, ridge, tolerance.rtol, slack[part]
        )
        violation /= unit[part]
        fits = is_certified(gap, value, zz[part], tolerance) & (violation <= VIOLATION)
        if cap is not None:
            fits &= np.count_nonzero(a, axis=1) <= cap
        reason = np.where(fits, OPTIMAL, -1)
        for i in np.flatnonzero(~fits):
            G, c = columns.one(own, i)
            A, _, over, why = solve_position(
                G, c[None], zz[part][i : i + 1], m, [budget], scale[part][i : i + 1], tolerance=tolerance, cap=cap
            )
            a[i], violation[i], reason[i] = A[0, 0], over[0, 0] / unit[part][i], why[0, 0]
            explained[i] = refit(G, c, a[i], ridge, again[i])
        parts.append((a, violation, reason, again, explained))
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


@kernel(**OPTIONS)
def joined(W, a, best):
    """Each row's support and the columns proposed, every one once, -1 behind; best ascends in every row."""
    b, k = W.shape
    width, most = best.shape[1], 0
    for i in range(b):
        most = max(most, (a[i] != 0.0).sum())
    out = np.full((b, width + most), -1, np.int64)
    for i in range(b):
        n = width
        out[i, :n] = best[i]
        for j in range(k):
            if a[i, j] != 0.0:
                at = np.searchsorted(best[i], W[i, j])
                if at == width or best[i, at] != W[i, j]:
                    out[i, n] = W[i, j]
                    n += 1
    return out


def _gap(
    budget: Budget, scale: np.ndarray, a: np.ndarray, seen: Scores, m: int, saturated: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Duality gap and objective on all columns; of a saturated row, which is a point of the path before the budget,
    those of its own ball.

    The dual is at least 0, whatever the radius: r = 0 is feasible.
    """
    norm = np.abs(a).sum(axis=1)
    own = gap_from_correlations(norm, seen, kappa=norm)
    if isinstance(budget, L1Ball):
        kappa = float(budget.radius) * scale  # without a ball, the least squares solution is in its own
        found = gap_from_correlations(norm, seen, kappa=np.where(np.isfinite(kappa), kappa, norm))
    else:
        found = gap_from_correlations(norm, seen, beta=budget.lam * m)  # type: ignore[union-attr]
    value = np.where(saturated, own[1], found[1])
    return np.minimum(np.where(saturated, own[0], found[0]), value), value
