"""Small cases of the lemmas on the LASSO path, where the printed statements and the corrected ones part."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from implicit_models.sim.solvers.coordinate_descent import g, lambda_max, lasso
from implicit_models.sim.solvers.rows import solve_rows


def random_row(seed: int, m: int = 40, d: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """A dense random row problem M (m, d), z (m,)."""
    from data_gen.core.streams import stream

    rng = stream(seed, "row of a lemma")
    return rng.standard_normal((m, d)), rng.standard_normal(m)


def linear_between_knots(seed: int) -> float:
    """Largest second difference of g on three points of one support, over g(0): 0 for a piecewise linear g."""
    M, z = random_row(seed)
    G, c, zz = M.T @ M, M.T @ z, float(z @ z)
    worst, grid = 0.0, np.linspace(0.05, 0.95, 181) * lambda_max(c)
    solutions = [lasso(G, c, zz, lam).a for lam in grid]
    for left, middle, right in zip(solutions, solutions[1:], solutions[2:]):
        if (np.sign(left) == np.sign(right)).all() and (np.sign(left) == np.sign(middle)).all():
            second = np.abs(left).sum() - 2 * np.abs(middle).sum() + np.abs(right).sum()
            worst = max(worst, abs(float(second)))
    return worst / g(G, c, zz, 1e-6 * lambda_max(c))


def jumps_at_knots(M: np.ndarray, z: np.ndarray, widths: Sequence[float] = (1e-2, 1e-4, 1e-6, 1e-8)) -> list[float]:
    """Largest change of g across an interval of each width around a change of the support, over g(0+).

    The changes of the support are sought on a grid of lambda, and each is enclosed by bisection on the signs of the
    solution. A continuous g changes the less the narrower the interval is, one that jumps at a knot does not.

    Args:
        M, z: (m, d) and (m,), one row problem.
        widths: of the intervals, in units of lambda_max.

    Returns:
        One change a width.
    """
    G, c, zz = M.T @ M, M.T @ z, float(z @ z)
    top, changes = lambda_max(c), np.zeros(len(widths))
    base = g(G, c, zz, 1e-6 * top)
    for knot in _knots(G, c, zz, np.linspace(0.05, 0.95, 181) * top):
        for k, width in enumerate(widths):
            half = 0.5 * width * top
            changes[k] = max(changes[k], abs(g(G, c, zz, knot - half) - g(G, c, zz, knot + half)) / base)
    return changes.tolist()


def _knots(G: np.ndarray, c: np.ndarray, zz: float, grid: np.ndarray, rtol: float = 1e-12) -> list[float]:
    """One lambda for each step of the grid within which the signs of the LASSO solution change."""

    def signs(lam: float) -> np.ndarray:
        return np.sign(lasso(G, c, zz, lam).a)

    found, each = [], [signs(lam) for lam in grid]
    for left, right, before, after in zip(grid, grid[1:], each, each[1:]):
        if (before == after).all():
            continue
        while right - left > rtol * grid[-1]:
            middle = 0.5 * (left + right)
            left, right = (middle, right) if (signs(middle) == before).all() else (left, middle)
        found.append(0.5 * (left + right))
    return found


def g_at_zero(seed: int, factor: float) -> dict[str, float]:
    """g(0+) against ||M'z||_1 / m for M multiplied by a factor; the printed bound needs lambda_min(M'M) >= m."""
    M, z = random_row(seed)
    M = factor * M
    flat = np.linalg.lstsq(M, z, rcond=None)[0]
    return {
        "g": float(np.abs(flat).sum()),
        "bound": float(np.abs(M.T @ z).sum()) / len(z),
        "smallest": float(np.linalg.eigvalsh(M.T @ M)[0]) / len(z),
    }


def equivalence(seed: int) -> float:
    """Lemma 2: largest |a_P(kappa) - a_Q(lambda)| over radii within g's range, lambda being the ball's multiplier."""
    M, z = random_row(seed)
    G, c, zz = M.T @ M, M.T @ z, float(z @ z)
    top, worst = float(np.abs(np.linalg.lstsq(M, z, rcond=None)[0]).sum()), 0.0
    for share in (0.1, 0.4, 0.7, 0.95):
        rows = solve_rows(G, c[None], np.array([zz]), kappa=share * top, rtol=1e-12, atol=1e-14)
        worst = max(worst, float(np.abs(rows.A[0] - lasso(G, c, zz, float(rows.multiplier[0])).a).max()))
    return worst


def proximal_gradient(seed: int, share: float = 0.3, steps: int = 200) -> dict[str, float]:
    """Lemma 3: the composite objective falls at every step while the smooth part h alone may rise.

    Starts at the least-squares solution, where h is smallest. "rate" is the composite gap's mean factor a step,
    "bound" exp(-mu/L) with mu the smallest and L the largest eigenvalue of M'M.
    """
    M, z = random_row(seed)
    G, c, zz = M.T @ M, M.T @ z, float(z @ z)
    lam, values = share * lambda_max(c), np.linalg.eigvalsh(G)
    best = lasso(G, c, zz, lam).a

    def smooth(a: np.ndarray) -> float:
        return float(0.5 * (a @ G @ a - 2 * c @ a + zz))

    def composite(a: np.ndarray) -> float:
        return smooth(a) + lam * float(np.abs(a).sum())

    a, optimum = np.linalg.solve(G, c), composite(best)
    h, gaps = [smooth(a)], [composite(a) - optimum]
    for _ in range(steps):
        v = a + (c - G @ a) / values[-1]
        a = np.sign(v) * np.maximum(np.abs(v) - lam / values[-1], 0)
        h.append(smooth(a))
        gaps.append(composite(a) - optimum)
    live = [gap for gap in gaps if gap > 1e-10 * gaps[0]]
    return {
        "smooth_rises": float(max(np.diff(h))),
        "composite_rises": float(max(np.diff(gaps))),
        "rate": float((live[-1] / live[0]) ** (1 / (len(live) - 1))),
        "bound": float(np.exp(-values[0] / values[-1])),
    }


def lemma_4(seed: int, shares: tuple[float, float] = (0.3, 0.6)) -> dict[str, float]:
    """Lemma 4 on M = I, z = ones: the objective's difference, the printed bound and the corrected |l1 - l2| |g(l1) -
    g(l2)|.

    The first value is F_l1(a_l2) - min F_l1, "values" the difference |min F_l1 - min F_l2| that the proof bounds by the
    norm.
    """
    d = 100
    z = np.ones(d)
    first, second = shares
    a1, a2 = (np.maximum(z - lam, 0) for lam in shares)

    def objective(a: np.ndarray, lam: float) -> float:
        return float(0.5 * ((a - z) ** 2).sum() + lam * np.abs(a).sum())

    step = abs(first - second)
    return {
        "suboptimality": objective(a2, first) - objective(a1, first),
        "corrected": step * abs(float(a1.sum() - a2.sum())),
        "values": abs(objective(a1, first) - objective(a2, second)),
        "printed": float(np.sqrt(d)) * step * float(max(a1.max(), a2.max())),
        "norm_ratio": float(np.abs(z).sum() / np.abs(z).max()),
        "printed_ratio": float(np.sqrt(d)),
    }


def projection_share(m: int, d: int, repeats: int = 30) -> float:
    """Time of one projection onto the l1 ball in per cent of one gradient M'(M a - z); smallest times of several."""
    from data_gen.core.streams import stream

    rng = stream(0, "projection")
    M, z, a = rng.standard_normal((m, d)), rng.standard_normal(m), rng.standard_normal(d)
    times = {"gradient": np.inf, "projection": np.inf}
    for _ in range(repeats):
        clock = time.perf_counter()
        M.T @ (M @ a - z)
        times["gradient"] = min(times["gradient"], time.perf_counter() - clock)
        clock = time.perf_counter()
        size = np.sort(np.abs(a))[::-1]
        excess = (np.cumsum(size) - 1.0) / np.arange(1, d + 1)
        threshold = excess[np.flatnonzero(size > excess)[-1]]
        np.sign(a) * np.maximum(np.abs(a) - threshold, 0)
        times["projection"] = min(times["projection"], time.perf_counter() - clock)
    return 100 * times["projection"] / times["gradient"]


def basis_pursuit(seed: int) -> dict[str, float]:
    """The ball problem beside basis pursuit min ||a||_1, M a = z, on one under-determined row: norm and residual of
    both."""
    import cvxpy as cp

    M, z = random_row(seed, m=8, d=20)
    a = cp.Variable(20)
    cp.Problem(cp.Minimize(cp.norm1(a)), [M @ a == z]).solve(solver="CLARABEL")
    norm = float(np.abs(a.value).sum())
    rows = solve_rows(M.T @ M, (M.T @ z)[None], np.array([float(z @ z)]), kappa=0.5 * norm)
    return {
        "pursuit_norm": norm,
        "pursuit_residual": float(np.linalg.norm(M @ a.value - z)),
        "ball_norm": float(np.abs(rows.A[0]).sum()),
        "ball_residual": float(np.linalg.norm(M @ rows.A[0] - z)),
    }
