"""Certified screening beside the conic dual of the MS report: `python -m benchmarks.screening [--quick] --json FILE`.

One thread, CPU seconds. Rows of a small network on Fashion-MNIST (m = 500, d = 896: states and pixels), kappa .3: ours
solves all rows by homotopy and tests the sphere around each, Gram product included, divided by their number; theirs is
the dual (4) of one row through CVXPY and Clarabel at its default tolerances, with the published rule, "both multipliers
non-zero", read at 1e-6 delta. Safety: every zero certified on 10,000 random rows is checked against coordinate descent,
another algorithm: the coefficient there, and the optimum without the certified columns.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch
from torch import nn

from benchmarks import harness
from implicit_models.sim.problem import Tolerance

FLOOR, GOAL = 100.0, 500.0
N_SAMPLES, KAPPA = 500, 0.3
RANDOM_ROWS, QUICK_ROWS, ROWS_A_DESIGN = 10_000, 1_000, 50
KINDS = ("gaussian", "correlated", "duplicate", "deficient", "zero columns", "states")
TIGHT = {"tolerance": Tolerance(1e-11, 1e-13)}
ACCURATE = 1e-9  # gap over ||z||^2 / 2 that a check must reach
NEGLIGIBLE = 1e-6  # |a_j| ||M_j|| / ||z|| below which a coefficient of coordinate descent is rounding


def network_rows(quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """M (m, d) and Z (m, r): states and pre-activations of 784-64-32-16-10 after a short training, scaled by Theorem
    2.4."""
    from data_gen import fashion_mnist
    from implicit_models.sim.network.scaling import scale_states
    from implicit_models.sim.network.states import states

    data = fashion_mnist(seed=0)
    u, y = torch.as_tensor(np.asarray(data.u_train, np.float32)), torch.as_tensor(np.asarray(data.y_train)).long()
    u = u.reshape(len(u), -1)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 10)
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=0.002)
    order = torch.Generator().manual_seed(0)
    for _ in range(1 if quick else 3):
        for batch in torch.randperm(len(u), generator=order).split(200):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(u[batch]), y[batch]).backward()
            optimiser.step()
    found = states(network, u[:N_SAMPLES])
    X, Z = scale_states(found, "theorem", kappa=0.99)[:2]
    return np.hstack([X, np.asarray(found.U, np.float64)]), np.asarray(Z, np.float64)


def random_design(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float, float, np.ndarray]:
    """M, Z, kappa, ridge and the ball of one random problem."""
    m, d = int(rng.integers(5, 60)), int(rng.integers(5, 60))
    M = rng.normal(size=(m, d)) * np.exp(rng.normal(size=d))
    if kind == "correlated":
        M += 5 * rng.normal(size=(m, 1))
    elif kind == "duplicate":
        M[:, d // 2 :] = M[:, : d - d // 2]
    elif kind == "deficient":
        few = max(1, min(m, d) // 3)
        M = M[:, :few] @ rng.normal(size=(few, d))
    elif kind == "zero columns":
        M[:, rng.random(d) < 0.3] = 0.0
    elif kind == "states":
        M = np.maximum(M, 0)
    Z = M @ (rng.normal(size=(d, ROWS_A_DESIGN)) * (rng.random((d, ROWS_A_DESIGN)) < 0.2)) + 0.3 * rng.normal(
        size=(m, ROWS_A_DESIGN)
    )
    ball = np.ones(d, bool) if rng.random() < 0.7 else np.arange(d) < max(2, d - 2)  # else with two free columns
    return M, Z, float(np.exp(rng.uniform(-2, 1.5))), float(rng.choice([0.0, 0.5])), ball


def safety(n_rows: int) -> dict[str, int]:
    """Counts over random rows: zeros certified, of how many, and how many were wrong."""
    from implicit_models.sim.solvers.bisection import solve_on_path
    from implicit_models.sim.solvers.screening import screen
    from implicit_models.sim.solvers.unpenalised import eliminate

    rng = np.random.default_rng(0)
    count = dict.fromkeys(
        ("rows", "tight_rows", "certified", "zeros", "false_coefficients", "false_optima", "unsolved"), 0
    )
    while count["rows"] < n_rows:
        M, Z, kappa, ridge, ball = random_design(KINDS[count["rows"] // ROWS_A_DESIGN % len(KINDS)], rng)
        G, C, zz = M.T @ M, Z.T @ M, (Z**2).sum(0)
        found = screen(G, C, zz, kappa=kappa, ridge=ridge, ball_mask=ball)
        if not ball.all():
            G, C, zz = eliminate(G, C, zz, ~ball, ridge).problem
        length = np.sqrt(np.diagonal(G))
        for i in range(ROWS_A_DESIGN):
            proved = found.certified[i][ball]
            row = solve_on_path(G, C[i], zz[i], kappa=kappa, ridge=ridge, method="newton", **TIGHT)
            kept = np.flatnonzero(~proved)
            left = solve_on_path(
                G[np.ix_(kept, kept)].copy(), C[i][kept], zz[i], kappa=kappa, ridge=ridge, method="newton", **TIGHT
            )
            value = [
                0.5 * (zz[i] - c @ x.a - x.a @ (c - H @ x.a - ridge * x.a))
                for x, c, H in ((row, C[i], G), (left, C[i][kept], G[np.ix_(kept, kept)]))
            ]
            count["rows"] += 1
            count["tight_rows"] += found.status[i] == "certified"
            count["certified"] += int(proved.sum())
            count["zeros"] += int((found.A[i][ball] == 0).sum()) if found.status[i] == "certified" else 0
            count["unsolved"] += max(row.gap, left.gap) > ACCURATE * 0.5 * zz[i]
            count["false_coefficients"] += int((proved & (np.abs(row.a) * length > NEGLIGIBLE * np.sqrt(zz[i]))).sum())
            count["false_optima"] += value[1] - value[0] > row.gap + left.gap + 1e-10 * zz[i]
    return {k: int(v) for k, v in count.items()}


def run(quick: bool) -> harness.Report:
    from implicit_models.sim.solvers.bisection import solve_on_path
    from implicit_models.sim.solvers.conic import elimination_dual
    from implicit_models.sim.solvers.screening import screen

    report = harness.Report()
    M, Z = network_rows(quick)
    gram = lambda: (M.T @ M, Z.T @ M)
    G, C = gram()
    zz = (Z**2).sum(0)
    live = np.flatnonzero(zz > 0)

    def everything() -> object:
        G, C = gram()
        return screen(G, C[live], zz[live], kappa=KAPPA)

    chosen = live[np.linspace(0, live.size - 1, 3 if quick else 12).astype(int)]
    everything()  # compiles
    lines, ratios = [], []
    count = {"zeros": 0, "certified": 0, "certified_wrong": 0, "published_wrong": 0, "published_missed": 0}
    for i in chosen:
        row = slice(i, i + 1)
        ours = harness.seconds_of(everything, clock=time.process_time) / live.size
        start = time.process_time()
        dual = elimination_dual(M, Z[:, i], kappa=KAPPA)
        theirs = time.process_time() - start
        found = screen(G, C[row], zz[row], kappa=KAPPA)
        check = solve_on_path(G, C[i], zz[i], kappa=KAPPA, method="newton", **TIGHT)
        active = np.abs(check.a) * np.sqrt(np.diagonal(G)) > NEGLIGIBLE * np.sqrt(zz[i])
        proved, published = found.certified[0], dual.eliminated()
        count["zeros"] += int((~active).sum())
        count["certified"] += int(proved.sum())
        count["certified_wrong"] += int((proved & active).sum())
        count["published_wrong"] += int((published & active).sum())
        count["published_missed"] += int((~published & ~active).sum())
        ratios.append(theirs / ours)
        lines.append(
            [
                str(i),
                1e3 * ours,
                1e3 * theirs,
                ratios[-1],
                f"{proved.sum()}/{(~active).sum()}",
                str((proved & active).sum()),
                f"{published.sum()}",
                str((published & active).sum()),
            ]
        )
    harness.print_table(
        ["row", "ours ms a row", "CVXPY ms", "ratio", "certified/zeros", "wrong", "published", "wrong"], lines
    )
    report.ratios = {"conic_dual": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}}
    n_rows = QUICK_ROWS if quick else RANDOM_ROWS
    random = safety(n_rows)
    print(
        f"{random['rows']} random rows, {random['tight_rows']} with a tight ball: {random['certified']} of"
        f" {random['zeros']} zeros certified, {random['false_coefficients']} wrong coefficients,"
        f" {random['false_optima']} changed optima, {random['unsolved']} without an accurate check"
    )
    print(f"median ratio {report.ratios['conic_dual']['median']:.3g} (floor {FLOOR:g}, goal {GOAL:g})")
    report.check(f"median at least {FLOOR:g} times the conic dual", report.ratios["conic_dual"]["median"] >= FLOOR)
    report.check("no false elimination on the network's rows", count["certified_wrong"] == 0)
    report.check(
        "no false elimination on random rows", random["false_coefficients"] == 0 and random["false_optima"] == 0
    )
    report.check("every random row checked to accuracy", random["unsolved"] == 0)
    report.check(
        "at least 95 % of the zeros certified",
        random["certified"] >= 0.95 * random["zeros"] and count["certified"] >= 0.95 * count["zeros"],
    )
    report.details = {
        "floor": FLOOR,
        "goal": GOAL,
        "goal_met": report.ratios["conic_dual"]["median"] >= GOAL,
        "network_rows": count | {"rows": len(lines)},
        "random_rows": random,
        "samples": N_SAMPLES,
        "columns": M.shape[1],
        "kappa": KAPPA,
    }
    return report


if __name__ == "__main__":
    harness.main("screening", run)
