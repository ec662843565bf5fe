"""The row problems of state-driven modelling, solved exactly and certified.

    min_a  1/2 ||M a - z||^2 + beta ||a||_1 + ridge/2 ||a||^2     s.t.  sum_{j in ball} |a_j| <= kappa

for every column z of Z, from G = M'M, c = M'z and z'z alone. The l1 norm of the whole penalised row is followed by
homotopy (`homotopy`, `active_set`); unpenalised columns outside the ball are first eliminated exactly (`unpenalised`);
a row that ends without a certificate is followed again by the parametric active set of `perspective_homotopy`, and if
need be goes to `fista`, which its status says. The l1 norm of a row grows along its path: the one to the largest radius
passes every smaller one, and a sweep over radii is one pass (`path_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVarTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from implicit_models.sim.problem import Tolerance
from implicit_models.sim.solvers.duality_gap import gap_and_objective, is_certified
from implicit_models.sim.solvers.fista import NO_KNEE, fista, into_ball
from implicit_models.sim.solvers.gram import Gram, check_problem
from implicit_models.sim.solvers.perspective_homotopy import follow_rows
from implicit_models.sim.solvers.row_kernels import FEW, Found, Problem, solve_chunk
from implicit_models.sim.solvers.unpenalised import eliminate
from implicit_models.status import Status
from implicit_models.summaries import summary

Arrays = TypeVarTuple("Arrays")
ROUNDS = 3  # of the parametric active set: a later one starts from an earlier one's end and removes its rounding
ROUNDOFF = 1e-14  # of ||z||^2, in a gap that is recomputed after elimination
SETTINGS = ("ball_mask", "beta", "ridge", "whole", "tolerance")  # of a row, for its fallbacks
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


@dataclass(frozen=True)
class Path:
    """Row problems solved at K radii.

    Attributes:
        kappas: (K,) ascending.
        rows: K `Rows`, one a radius.
    """

    kappas: Float[np.ndarray, " K"]
    rows: tuple[Rows, ...]

    def __repr__(self) -> str:
        return summary(self, "kappas", "rows", status=np.concatenate([rows.status for rows in self.rows]))

    def at(self, kappa: float) -> Rows:
        """The rows at one of the radii of the sweep.

        Raises:
            KeyError: naming the radii there are.
        """
        found = np.flatnonzero(self.kappas == kappa)
        if len(found) == 0:
            raise KeyError(f"no solution at kappa = {kappa}; the sweep has {self.kappas.tolist()}")
        return self.rows[found[0]]


def solve_rows(
    G: Float[np.ndarray, "d d"] | Gram,
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
        G, C, zz: (d, d), (r, d), (r,) from `gram`; a `Gram` in place of G is not checked again.
        kappa: radius of the ball, a number or one a row; inf for no ball.
        ball_mask: (d,) the columns in the ball; None for all, all False for no ball.
        beta: l1 penalty on every column, a number or one a row.
        ridge: l2 penalty.
        rtol, atol: tolerances of the certificate.

    Returns:
        Rows with A (r, d). Among several minimisers the one at the end of the l1 path.

    Raises:
        TypeError: arrays that do not hold real numbers; kappa, beta, ridge or a tolerance that is no number.
        ValueError: shapes that do not fit; kappa, beta, ridge or a tolerance that is negative or NaN (with its row); G
            not finite, not symmetric or with a negative diagonal; an entry of G or C that no columns of such norms can
            have.

    Source:
        Tsai thesis (2024), P(kappa) of section 3.3 (ball_mask None) and (3.4) (ball on the states, beta of the l1
        objective over 2 lambda_1); SIM paper, (7), (11).
    """
    G, C, zz, kappa, *rest = check_problem(G, C, zz, kappa, ball_mask, beta, ridge, rtol, atol)
    return solve_radii(G, C, zz, kappa[:, None], *rest)[0]  # type: ignore[index]


def path_rows(
    G: Float[np.ndarray, "d d"] | Gram,
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    *,
    kappas: Float[np.ndarray, " K"] | Sequence[float],
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    beta: float | Float[np.ndarray, " r"] = 0.0,
    ridge: float = 0.0,
    rtol: float = 1e-6,
    atol: float = 1e-9,
) -> Path:
    """`solve_rows` at every radius, for little more than the time of the largest.

    Args:
        kappas: (K,) radii, any order, no two equal.
        Others as in `solve_rows`.

    Returns:
        Path, its radii ascending; each solution carries its own certificate.

    Raises:
        ValueError: as `solve_rows`, and for radii that are empty, negative, NaN or repeated.

    Source:
        Tsai thesis (2024), Lemma 1 of section 3.3 (g is monotone and piecewise linear).
    """
    radii = np.sort(np.asarray(kappas, dtype=np.float64).ravel())
    if len(radii) == 0 or not (radii >= 0.0).all() or (np.diff(radii) == 0.0).any():
        raise ValueError(f"kappas must be distinct and at least 0; got {np.asarray(kappas).tolist()}")
    G, C, zz, _, *rest = check_problem(G, C, zz, 0.0, ball_mask, beta, ridge, rtol, atol)
    return Path(radii, tuple(solve_radii(G, C, zz, np.tile(radii, (len(C), 1)), *rest)))


def solve_radii(G, C, zz, kappas, ball, beta, ridge, tolerance: Tolerance, whole) -> list[Rows]:
    """Checked problems at each radius kappas (r, K), ascending along K: one `Rows` a radius.

    whole (r,): the squared norms that the tolerance refers to, those before columns were eliminated.
    """
    boundless = np.isinf(kappas[:, -1])
    if ball.any() and boundless.any():
        rest = solve_radii(
            G, *_pick(~boundless, C, zz, kappas), ball, beta[~boundless], ridge, tolerance, whole[~boundless]
        )
        own = G, *_pick(boundless, C, zz)
        tail = beta[boundless], ridge, tolerance, whole[boundless]
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
                    solve(G, *_pick(special, C, zz, kappas), ball, beta[special], ridge, tolerance, whole[special]),
                    solve_radii(
                        G, *_pick(~special, C, zz, kappas), ball, beta[~special], ridge, tolerance, whole[~special]
                    ),
                )
    r, d, K = len(C), len(G), kappas.shape[1]
    finite = np.isfinite(C).all(axis=1) & np.isfinite(zz)
    A, gap, value, violation = np.zeros((r, K, d)), np.full((r, K), np.nan), np.zeros((r, K)), np.zeros((r, K))
    multiplier, pieces = np.zeros((r, K)), np.zeros((r, K), np.int64)
    reason = np.where(finite[:, None], -1, 9) * np.ones((1, K), np.int64)
    radii = kappas if ball.any() else np.full_like(kappas, np.inf)
    room, cap, slack = min(d, 256), 20 * d + 1000, tolerance.atol * 0.5 * whole
    problem = Problem(G, C, zz, radii, beta, ball, ridge)
    found = Found(A, multiplier, gap, value, violation, pieces, reason)
    while r:
        stop = solve_chunk(problem, tolerance.rtol, slack, FEW, room, cap, found)
        if stop == r:
            break
        room = min(d, 2 * room)
    settings = {"ball_mask": ball, "beta": beta, "ridge": ridge, "tolerance": tolerance, "whole": whole}
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
    status = np.full(len(C), Status.OPTIMAL, dtype="<U10")
    for x in (A, gap, multiplier):
        x[~finite] = np.nan
    status[~finite] = Status.NOT_FINITE

    good = is_certified(gap, value, settings["whole"], settings["tolerance"]) & (violation <= VIOLATION * kappa)
    todo = np.flatnonzero(finite & ~good)
    if len(todo):  # a slack ball of large radius has a better bound
        own: Any = C[todo], zz[todo], A[todo], kappa[todo]
        bound, found = gap_and_objective(  # type: ignore[call-arg]
            G, *own, settings["ball_mask"], settings["beta"][todo], settings["ridge"]
        )
        better = bound < gap[todo]
        gap[todo[better]] = bound[better]
        todo = todo[
            ~(
                is_certified(bound, found, settings["whole"][todo], settings["tolerance"])
                & (violation[todo] <= VIOLATION * kappa[todo])
            )
        ]
    for attempt in (_followed, _iterated):
        if len(todo):
            own = {**settings, "beta": settings["beta"][todo], "whole": settings["whole"][todo]}
            enough = attempt((G, C[todo], zz[todo], kappa[todo]), own, rows, todo, status)
            todo = todo[~enough]
    status[todo] = Status.INACCURATE
    return Rows(A, multiplier, gap, steps, status)


def _followed(problem, settings, rows: Rows, todo, status) -> np.ndarray:
    """Rows with a penalty again, by the parametric active set; returns which are certified now.

    Where columns depend on each other, exchanges may go in circles however short the step is; the proximal term of that
    method gives each of its systems one solution.
    """
    G, C, zz, kappa = problem
    ball_mask, beta, ridge, whole, tolerance = (settings[n] for n in SETTINGS)
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
            (gap,), (value,) = gap_and_objective(G, C[k], zz[k], a, kappa[k], ball_mask, beta[k], 0.0)
            rows.n_steps[todo[i]] += pieces[0]
            enough[i] = is_certified(gap, value, whole[i], tolerance)
            if enough[i] or not reached[0]:
                break
        if enough[i] or gap < rows.gap[todo[i]] or not rows.gap[todo[i]] >= 0.0:
            rows.A[todo[i]], rows.multiplier[todo[i]], rows.gap[todo[i]] = a[0], mu[0], gap
    return enough


def _iterated(problem, settings, rows: Rows, todo, status) -> np.ndarray:
    """Rows by FISTA, the visible fallback; returns which are certified now."""
    G, C, zz, kappa = problem
    ball_mask, beta, ridge, whole, tolerance = (settings[n] for n in SETTINGS)
    A, mu = np.where((rows.gap[todo] < 0.5 * zz)[:, None], rows.A[todo], 0.0), np.zeros(len(todo))
    into_ball(A, kappa, ball_mask)

    def judge(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gap, value = gap_and_objective(G, C[at], zz[at], A[at], kappa[at], ball_mask, beta[at], ridge)
        return gap, is_certified(gap, value, whole[at], tolerance)

    first, before = A.copy(), judge(np.arange(len(todo)))[0]
    smooth = G + ridge * np.eye(len(G))
    gap, enough, steps = fista(smooth, C, beta / (2 * NO_KNEE), NO_KNEE, kappa, ball_mask, A, mu, judge)
    worse = ~enough & (before <= gap)
    A[worse], gap[worse] = first[worse], before[worse]
    rows.A[todo], rows.gap[todo], rows.n_steps[todo] = A, gap, steps
    status[todo[enough]] = Status.FISTA
    r = C - A @ G - ridge * A
    inside = np.abs(r[:, ball_mask]).max(axis=1, initial=0.0)
    rows.multiplier[todo] = np.where(np.isfinite(kappa), np.maximum(inside - beta, 0.0), 0.0)
    return enough


def _free(G, C, zz, kappas, ball, beta, ridge, tolerance, whole) -> list[Rows]:
    """No penalty: the columns outside the ball are eliminated, and what is left has its whole vector in the ball."""
    reduced = eliminate(G, C, zz, ~ball, ridge)
    inner = solve_radii(*reduced.problem, kappas, np.ones(ball.sum(), bool), beta, ridge, tolerance, whole)
    result = []
    lenient = Tolerance(tolerance.rtol, max(tolerance.atol, 2 * ROUNDOFF))
    for kappa, rows in zip(kappas.T, inner, strict=True):
        # What the elimination dropped or blurred shows in the problem itself alone.
        A, status = reduced.recover(rows.A), rows.status.copy()
        radius = kappa if ball.any() else np.full(len(C), np.inf)
        gap, value = gap_and_objective(G, C, zz, A, radius, ball, beta, ridge, reduced.block)
        status[(status != Status.NOT_FINITE) & ~is_certified(gap, value, whole, lenient)] = Status.INACCURATE
        result.append(Rows(A, rows.multiplier, gap, rows.n_steps, status))
    return result


def _pinned(G, C, zz, kappas, ball, beta, ridge, tolerance, whole) -> list[Rows]:
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
            tolerance,
            whole[zero],
        )[0]
        A = np.zeros((zero.sum(), len(G)))
        A[:, off] = part.A
        multiplier = np.maximum(np.abs((C[zero] - A @ G)[:, ball]).max(axis=1, initial=0.0) - beta[zero], 0.0)
        part = Rows(A, multiplier, part.gap, part.n_steps, part.status)
        rest = solve_radii(
            G, *_pick(~zero, C, zz), kappas[~zero, t : t + 1], ball, beta[~zero], ridge, tolerance, whole[~zero]
        )[0]
        result += _merge(zero, [part], [rest])
    return result


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
