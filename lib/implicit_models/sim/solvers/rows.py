"""The row problems of state-driven modelling, solved exactly and certified.

    min_a  1/2 ||M a - z||^2 + beta ||a||_1 + ridge/2 ||a||^2     s.t.  sum_{j in ball} |a_j| <= kappa

for every column z of Z, from G = M'M, c = M'z and z'z alone. The l1 norm of the whole penalised row is followed by
homotopy (`homotopy`, `long_step`); unpenalised columns outside the ball are first eliminated exactly (`free_columns`);
a row that ends without a certificate is followed again by the parametric active set of `perspective_path`, and if need
be goes to `fista`, which its status says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVarTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from implicit_models.sim.solvers.duality_gap import as_mask, certify, gap_and_objective, objective, row_values
from implicit_models.sim.solvers.fista import fista
from implicit_models.sim.solvers.gram import as_matrix
from implicit_models.sim.solvers.perspective_homotopy import follow_rows
from implicit_models.sim.solvers.row_kernels import FEW, Found, Problem, solve_chunk
from implicit_models.sim.solvers.unpenalised import eliminate
from implicit_models.summaries import summary

Arrays = TypeVarTuple("Arrays")
ROUNDS = 3  # of the parametric active set: a later one starts from an earlier one's end and removes its rounding
LENIENT, TINY = 1e-4, 1e-150  # room in the check of the data: relative, and for norms that underflow
NO_KNEE = 1e9  # beyond every coefficient: the perspective penalty is then the l1 norm
ROUNDOFF = 1e-14  # of ||z||^2, in a gap that is recomputed after elimination
VIOLATION = 1e-9  # of the ball, relative to kappa, that a certified row may have


@dataclass(frozen=True)
class Rows:
    """Solutions of r row problems.

    Attributes:
        A: (r, d) coefficients; exact zeros outside the support.
        multiplier: (r,) of the ball, mu >= 0: where it is positive, the norm over the ball is kappa.
        gap: (r,) duality gap, recomputed from A; the objective is at most this far from its minimum.
        n_steps: (r,) events of the path and exchanges of long steps, or iterations of the fallback.
        status: (r,) "optimal"; "fista", certified by the fallback; "inaccurate", without a certificate at the tolerance
            asked for (gap says how far); "not_finite", a NaN or infinity in the row's own data (its A is NaN).
    """

    A: Float[np.ndarray, "r d"]
    multiplier: Float[np.ndarray, " r"]
    gap: Float[np.ndarray, " r"]
    n_steps: Int[np.ndarray, " r"]
    status: np.ndarray

    def __repr__(self) -> str:
        return summary(self, "A", "support", "multiplier", "gap", "n_steps", "status")

    @property
    def support(self) -> Int[np.ndarray, " r"]:
        """Number of non-zero coefficients of each row."""
        return np.count_nonzero(self.A, axis=1)

    def __len__(self) -> int:
        return len(self.A)


def solve_rows(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    *,
    kappa: float | Float[np.ndarray, " r"],
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    beta: float | Float[np.ndarray, " r"] = 0.0,
    ridge: float = 0.0,
    rtol: float = 1e-6,
    atol: float = 1e-9,
) -> Rows:
    """Solve every row problem; see the module for the mathematics.

    A row is certified when gap <= rtol * objective or gap <= atol * 1/2||z||^2 (the second alone has a meaning where
    the optimum is zero) and its norm is at most kappa. Single-threaded, without the interpreter lock inside the
    kernels.

    Args:
        G, C, zz: (d, d), (r, d), (r,) from `gram`.
        kappa: radius of the ball, a number or one a row; inf for no ball.
        ball_mask: (d,) the columns in the ball; None for all, all False for no ball.
        beta: l1 penalty on every column, a number or one a row.
        ridge: l2 penalty.
        rtol, atol: tolerances of the certificate.

    Returns:
        Rows with A (r, d). Among several minimisers the one at the end of the l1 path.

    Raises:
        ValueError: shapes that do not fit; kappa, beta, ridge or a tolerance that is negative or NaN (with its row); G
            not finite, not symmetric or with a negative diagonal; an entry of G or C that no columns of such norms can
            have.

    Source:
        Tsai thesis (2024), P(kappa) of section 3.3 (ball_mask None) and (3.4) (ball on the states, beta of the l1
        objective over 2 lambda_1); SIM paper, (7), (11).
    """
    G, C, zz, kappa, *rest = check_problem(G, C, zz, kappa, ball_mask, beta, ridge, rtol, atol)
    return solve_radii(G, C, zz, kappa[:, None], *rest)[0]  # type: ignore[index]


def solve_radii(G, C, zz, kappas, ball, beta, ridge, rtol, slack) -> list[Rows]:
    """Checked problems at each radius kappas (r, K), ascending along K: one `Rows` a radius.

    slack (r,) is the absolute gap that is enough.
    """
    boundless = np.isinf(kappas[:, -1])
    if ball.any() and boundless.any():
        rest = solve_radii(G, *_pick(~boundless, C, zz, kappas), ball, beta[~boundless], ridge, rtol, slack[~boundless])
        own = G, *_pick(boundless, C, zz)
        tail = beta[boundless], ridge, rtol, slack[boundless]
        last = solve_radii(*own, kappas[boundless, -1:], np.zeros_like(ball), *tail)
        lower = solve_radii(*own, kappas[boundless, :-1], ball, *tail) if kappas.shape[1] > 1 else []
        return _merge(boundless, lower + last, rest)
    if not ball.all():
        # Columns outside the ball without a penalty, or a ball that is a point, are problems of another shape.
        for special, solve in (
            (beta == 0.0, _free),
            (ball.any() & (kappas == 0.0).any(axis=1) & (beta > 0.0), _pinned),
        ):
            if special.any():
                return _merge(
                    special,
                    solve(G, *_pick(special, C, zz, kappas), ball, beta[special], ridge, rtol, slack[special]),
                    solve_radii(G, *_pick(~special, C, zz, kappas), ball, beta[~special], ridge, rtol, slack[~special]),
                )
    r, d, K = len(C), len(G), kappas.shape[1]
    finite = np.isfinite(C).all(axis=1) & np.isfinite(zz)
    A, gap, value, violation = np.zeros((r, K, d)), np.full((r, K), np.nan), np.zeros((r, K)), np.zeros((r, K))
    multiplier, pieces = np.zeros((r, K)), np.zeros((r, K), np.int64)
    reason = np.where(finite[:, None], -1, 9) * np.ones((1, K), np.int64)
    radii = kappas if ball.any() else np.full_like(kappas, np.inf)
    room, cap = min(d, 256), 20 * d + 1000
    problem = Problem(G, C, zz, radii, beta, ball, ridge)
    found = Found(A, multiplier, gap, value, violation, pieces, reason)
    while r:
        stop = solve_chunk(problem, rtol, slack, FEW, room, cap, found)
        if stop == r:
            break
        room = min(d, 2 * room)
    settings = {"ball_mask": ball, "beta": beta, "ridge": ridge, "rtol": rtol, "slack": slack}
    return [
        _finished(
            G,
            C,
            zz,
            finite,
            radii[:, t],
            Rows(*(x[:, t].copy() for x in (A, multiplier, gap, pieces)), None),  # type: ignore[call-arg]
            value[:, t],
            violation[:, t],
            settings,
        )
        for t in range(K)
    ]


def _finished(G, C, zz, finite, kappa, rows: Rows, value, violation, settings) -> Rows:
    """Statuses; rows without a certificate go to the fallback."""
    A, multiplier, gap, steps = rows.A, rows.multiplier, rows.gap, rows.n_steps
    status = np.full(len(C), "optimal", dtype="<U10")
    for x in (A, gap, multiplier):
        x[~finite] = np.nan
    status[~finite] = "not_finite"

    good = _enough(gap, value, settings["rtol"], settings["slack"]) & (violation <= VIOLATION * kappa)
    todo = np.flatnonzero(finite & ~good)
    if len(todo):  # a slack ball of large radius has a better bound
        own = C[todo], zz[todo], A[todo], kappa[todo]  # type: Any
        bound, found = gap_and_objective(  # type: ignore[call-arg]
            G, *own, settings["ball_mask"], settings["beta"][todo], settings["ridge"]
        )
        better = bound < gap[todo]
        gap[todo[better]] = bound[better]
        todo = todo[
            ~(
                _enough(bound, found, settings["rtol"], settings["slack"][todo])
                & (violation[todo] <= VIOLATION * kappa[todo])
            )
        ]
    for attempt in (_followed, _iterated):
        if len(todo):
            own = {**settings, "beta": settings["beta"][todo], "slack": settings["slack"][todo]}
            enough = attempt((G, C[todo], zz[todo], kappa[todo]), own, rows, todo, status)
            todo = todo[~enough]
    status[todo] = "inaccurate"
    return Rows(A, multiplier, gap, steps, status)


def _followed(problem, settings, rows: Rows, todo, status) -> np.ndarray:
    """Rows with a penalty again, by the parametric active set; returns which are certified now.

    Where columns depend on each other, exchanges may go in circles however short the step is; the proximal term of that
    method gives each of its systems one solution.
    """
    G, C, zz, kappa = problem
    ball_mask, beta, ridge, rtol, slack = (settings[n] for n in ("ball_mask", "beta", "ridge", "rtol", "slack"))
    able = beta > 0.0 if ridge == 0.0 else np.zeros(len(todo), bool)
    enough = np.zeros(len(todo), bool)
    for i in np.flatnonzero(able):
        k = slice(i, i + 1)
        a, mu, pieces, reached = np.zeros((1, len(G))), np.zeros(1), np.zeros(1, np.int64), np.zeros(1, bool)
        for _ in range(ROUNDS):
            follow_rows(
                G,
                C[k],
                beta[i] / (2 * NO_KNEE),
                NO_KNEE,
                kappa[k],
                ball_mask,
                a,
                mu,
                40 * len(G) + 1000,
                pieces,
                reached,
            )
            norm = np.abs(a[0, ball_mask]).sum()
            if norm > kappa[i]:  # by rounding
                a[:, ball_mask] *= kappa[i] / norm
            gap = certify(G, C[k], zz[k], a, kappa=kappa[i], ball_mask=ball_mask, beta=beta[i])[0]
            rows.n_steps[todo[i]] += pieces[0]
            value = objective(G, C[k], zz[k], a, beta=beta[k], ridge=0.0)[0]
            enough[i] = _enough(gap, value, rtol, slack[i])
            if enough[i] or not reached[0]:
                break
        if enough[i] or gap < rows.gap[todo[i]] or not rows.gap[todo[i]] >= 0.0:
            rows.A[todo[i]], rows.multiplier[todo[i]], rows.gap[todo[i]] = a[0], mu[0], gap
    return enough


def _iterated(problem, settings, rows: Rows, todo, status) -> np.ndarray:
    """Rows by FISTA, the visible fallback; returns which are certified now."""
    G, C, zz, kappa = problem
    ball_mask, beta, ridge = settings["ball_mask"], settings["beta"], settings["ridge"]
    start = np.where((rows.gap[todo] < 0.5 * zz)[:, None], rows.A[todo], 0.0)
    A, rows.gap[todo], rows.n_steps[todo] = fista(G, C, zz, kappa=kappa, start=start, **settings)
    rows.A[todo] = A
    value = objective(G, C, zz, A, beta=beta, ridge=ridge)
    enough = _enough(rows.gap[todo], value, settings["rtol"], settings["slack"])
    status[todo[enough]] = "fista"
    r = C - A @ G - ridge * A
    inside = np.abs(r[:, ball_mask]).max(axis=1, initial=0.0)
    rows.multiplier[todo] = np.where(np.isfinite(kappa), np.maximum(inside - beta, 0.0), 0.0)
    return enough


def _free(G, C, zz, kappas, ball, beta, ridge, rtol, slack) -> list[Rows]:
    """No penalty: the columns outside the ball are eliminated, and what is left has its whole vector in the ball."""
    reduced = eliminate(G, C, zz, ~ball, ridge)
    inner = solve_radii(*reduced.problem, kappas, np.ones(ball.sum(), bool), beta, ridge, rtol, slack)
    result = []
    enough = np.maximum(slack, ROUNDOFF * zz)
    for kappa, rows in zip(kappas.T, inner, strict=True):
        # What the elimination dropped or blurred shows in the problem itself alone.
        A, status = reduced.recover(rows.A), rows.status.copy()
        radius = kappa if ball.any() else np.full(len(C), np.inf)
        gap, value = gap_and_objective(G, C, zz, A, radius, ball, beta, ridge, reduced.block)
        with np.errstate(invalid="ignore"):
            status[(status != "not_finite") & ~((gap <= rtol * value) | (gap <= enough))] = "inaccurate"
        result.append(Rows(A, rows.multiplier, gap, rows.n_steps, status))
    return result


def _pinned(G, C, zz, kappas, ball, beta, ridge, rtol, slack) -> list[Rows]:
    """Rows with radius 0 among theirs: there the ball's columns are zero and drop out; other radii as usual."""
    result = []
    off = np.flatnonzero(~ball)
    for t in range(kappas.shape[1]):
        zero = kappas[:, t] == 0.0
        column = kappas[zero, t : t + 1]
        part = solve_radii(
            G[np.ix_(off, off)],
            C[zero][:, off],
            zz[zero],
            column,
            np.zeros(len(off), bool),
            beta[zero],
            ridge,
            rtol,
            slack[zero],
        )[0]
        A = np.zeros((zero.sum(), len(G)))
        A[:, off] = part.A
        multiplier = np.maximum(np.abs((C[zero] - A @ G)[:, ball]).max(axis=1, initial=0.0) - beta[zero], 0.0)
        part = Rows(A, multiplier, part.gap, part.n_steps, part.status)
        rest = solve_radii(
            G, *_pick(~zero, C, zz), kappas[~zero, t : t + 1], ball, beta[~zero], ridge, rtol, slack[~zero]
        )[0]
        result += _merge(zero, [part], [rest])
    return result


def _enough(gap, value, rtol, slack):
    """Whether a gap certifies an objective `value`: relative to it, or below the absolute slack."""
    return (gap <= rtol * value) | (gap <= slack)


def _pick(rows: np.ndarray, *arrays: *Arrays) -> tuple[*Arrays]:
    return tuple(array[rows] for array in arrays)  # type: ignore[index]


def _merge(first: np.ndarray, one: list[Rows], other: list[Rows]) -> list[Rows]:
    """Rows of two groups in the order of the mask `first`, radius by radius."""
    order = np.argsort(np.concatenate([np.flatnonzero(first), np.flatnonzero(~first)]), kind="stable")
    names = ("A", "multiplier", "gap", "n_steps", "status")
    return [
        Rows(*(np.concatenate([getattr(a, n), getattr(b, n)])[order] for n in names))
        for a, b in zip(one, other, strict=True)
    ]


def check_problem(G, C, zz, kappa, ball_mask, beta, ridge, rtol, atol) -> Any:
    """Validated float64 arrays (G, C, zz, kappa (r,), ball, beta (r,), ridge, rtol, slack (r,)) of a set of row
    problems.

    Raises: as `solve_rows`.
    """
    G, C = as_matrix(G, "G"), as_matrix(C, "C")
    G, C = np.ascontiguousarray(G, np.float64), np.ascontiguousarray(C, np.float64)
    zz = np.ascontiguousarray(np.asarray(zz), np.float64)
    d, r = len(G), len(C)
    if G.shape != (d, d) or C.shape[1] != d or zz.shape != (r,):
        raise ValueError(f"G must be (d, d), C (r, d), zz (r,); got {G.shape}, {C.shape}, {zz.shape}")
    if not np.isfinite(G).all():
        i, j = np.argwhere(~np.isfinite(G))[0]
        raise ValueError(f"G[{i}, {j}] = {G[i, j]}: the Gram matrix must be finite")
    diagonal = np.diag(G)
    if (diagonal < 0.0).any():
        j = int(np.argmin(diagonal))
        raise ValueError(f"G[{j}, {j}] = {diagonal[j]:.6g}: a Gram matrix has no negative diagonal")
    worst = np.abs(G - G.T).max(initial=0.0)
    if worst > 1e-8 * diagonal.max(initial=0.0):
        raise ValueError(f"G is not symmetric: |G - G'| reaches {worst:.6g}")
    _check_products(G, C, zz, diagonal)
    ball = as_mask(ball_mask, d)
    kappa, beta = row_values(kappa, "kappa", r, np.inf), row_values(beta, "beta", r, np.finfo(float).max)
    for name, value in (("ridge", ridge), ("rtol", rtol), ("atol", atol)):
        if not 0.0 <= float(value) < np.inf:
            raise ValueError(f"{name} must be at least 0 and finite; got {value}")
    return G, C, zz, kappa, ball, beta, float(ridge), float(rtol), atol * 0.5 * np.where(np.isfinite(zz), zz, 0.0)


def _check_products(G, C, zz, diagonal) -> None:
    """|G_ij|^2 <= G_ii G_jj and c_j^2 <= G_jj z'z, with room for data that were summed in single precision."""
    if (zz < 0.0).any():
        i = int(np.flatnonzero(zz < 0.0)[0])
        raise ValueError(f"zz[{i}] = {zz[i]:.6g}: a squared norm is not negative")
    norm, target = np.sqrt(diagonal), np.sqrt(zz)
    room = LENIENT * norm.max(initial=0.0) + TINY
    bad = np.abs(G) > (1.0 + LENIENT) * norm[:, None] * norm + room * room
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise ValueError(
            f"G[{i}, {j}] = {G[i, j]:.6g} with G[{i}, {i}] = {diagonal[i]:.6g}, G[{j}, {j}] = {diagonal[j]:.6g}: no"
            " Gram matrix"
        )
    # Written so that a NaN in a row's own data passes: that row is reported by its status.
    bad = np.abs(C) > (1.0 + LENIENT) * target[:, None] * norm + room * (LENIENT * target[:, None] + TINY)
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise ValueError(
            f"C[{i}, {j}] = {C[i, j]:.6g} with G[{j}, {j}] = {diagonal[j]:.6g}, zz[{i}] = {zz[i]:.6g} (row {i}): no"
            " products of such columns"
        )
