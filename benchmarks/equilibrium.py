"""Equilibrium, forward and backward, beside torchdeq: `python -m benchmarks.equilibrium [--quick] --json FILE`.

One thread, CPU seconds, the two interleaved, eight problems. torchdeq runs its fixed_point_iter with implicit
differentiation to ||f(x) - x||_2 < 3e-6 per sample, absolute; ours asks for max|f(x) - x| <= 2e-7 max|x|, near what
float32 can hold. The errors of both are recomputed against float64: ours must not exceed theirs, where theirs is above
what rounding makes of the problem, 2 eps / (1 - kappa). "Flop floor": the multiply-adds of our own mean number of
iterations at the rate of a large sgemm measured in the same run.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import warnings

import torch

from benchmarks import harness

SHAPES = (
    (4, 1000, "random"),
    (20, 100, "random"),
    (20, 1000, "random"),
    (20, 100, "stiff"),
    (36, 500, "random"),
    (36, 500, "stiff"),
    (200, 100, "random"),
    (200, 1000, "random"),
)
KAPPA = 0.95
PEER_TOL, OUR_TOL, MAX_ITER = 3e-6, 2e-7, 600
FLOOR_MEAN, GOAL_MEAN, FLOOR_EACH, GOAL_EACH = 40.0, 60.0, 3.0, 5.0
FLOP_FLOOR_RATIO = 1.5
ROUNDING = 2 * torch.finfo(torch.float32).eps / (1 - KAPPA)  # relative error that float32 leaves

_MEMORY_PROBE = """
import resource, sys, torch
from implicit_models.equilibrium import equilibrium
torch.manual_seed(0)
A = torch.randn(64, 64); A = (.999 * A.abs() / A.abs().sum(1, keepdim=True)).requires_grad_()
b = torch.randn(20000, 64)
for max_iter in (2, int(sys.argv[1])):
    equilibrium(A, b, solver=sys.argv[2], max_iter=max_iter, tol=1e-12, on_failure="ignore").sum().backward()
    if max_iter == 2: before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def problem(n: int, N: int, kind: str, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A (n, n), b (N, n) and the cotangent g (N, n)."""
    from implicit_models.wellposed import project_rows

    generator = torch.Generator().manual_seed(seed + 7 * n + N)
    A = torch.randn(n, n, generator=generator)
    if kind == "stiff":
        A = KAPPA * A.abs() / A.abs().sum(1, keepdim=True)
    else:
        A = project_rows(A, KAPPA)
    return A, torch.randn(N, n, generator=generator), torch.randn(N, n, generator=generator)


def reference(A: torch.Tensor, b: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x and dL/dA in float64, by Picard until nothing changes."""
    A, b, g = A.double(), b.double(), g.double()
    x, v = torch.zeros_like(b), torch.zeros_like(b)
    for _ in range(20000):
        x, last = torch.relu(torch.addmm(b, x, A.t())), x
        if (x - last).abs().max() < 1e-14 * x.abs().max():
            break
    d = (x > 0).double()
    for _ in range(20000):
        v, last = d * torch.addmm(g, v, A), v
        if (v - last).abs().max() < 1e-14 * v.abs().max():
            break
    return x, v.t() @ x


SGEMM_SIZE = 512


def sgemm():
    """A large product: its rate is what the flop floor is counted in."""
    a, out = (
        torch.randn(SGEMM_SIZE, SGEMM_SIZE, generator=torch.Generator().manual_seed(0)),
        torch.empty(SGEMM_SIZE, SGEMM_SIZE),
    )
    return lambda: torch.mm(a, a, out=out)


def peer(max_iter: int, tol: float):
    """torchdeq's Picard iteration with implicit differentiation, to an absolute tolerance."""
    from torchdeq import get_deq

    warnings.filterwarnings("ignore", module="torchdeq")
    return get_deq(
        f_solver="fixed_point_iter",
        b_solver="fixed_point_iter",
        f_max_iter=max_iter,
        b_max_iter=max_iter,
        f_tol=tol,
        b_tol=tol,
        f_stop_mode="abs",
        b_stop_mode="abs",
        ift=True,
    )


def _iterations(A: torch.Tensor, b: torch.Tensor, g: torch.Tensor) -> tuple[str, float, float]:
    """Method chosen, and mean iterations per sample forward and backward."""
    from implicit_models.equilibrium import solve_equilibrium
    from implicit_models.equilibrium.kernels.gauss_seidel import gauss_seidel_adjoint

    found = solve_equilibrium(A, b, tol=OUR_TOL, max_iter=MAX_ITER, on_failure="ignore")
    slopes = (found.x > 0).to(A.dtype)
    n_iter = gauss_seidel_adjoint(A.numpy(), slopes.numpy(), g.numpy(), OUR_TOL, MAX_ITER)[2]
    return found.solver, float(found.n_iter.float().mean()), float(n_iter.mean())


def memory_growth(solver: str) -> float:
    """MiB by which the peak grows from 2 to 200 iterations, in a process of its own."""
    out = subprocess.run(
        [sys.executable, "-c", _MEMORY_PROBE, "200", solver], capture_output=True, text=True, check=True
    )
    before, after = map(int, out.stdout.split())
    return (after - before) / 1024


def run(quick: bool) -> harness.Report:
    from implicit_models.equilibrium import equilibrium

    report, rows, repeats = harness.Report(), [], 2 if quick else 7
    deq, floors, rate = peer(MAX_ITER, PEER_TOL), {}, 0.0
    shapes = {}
    for n, N, kind in SHAPES:
        name = f"n{n}_b{N}_{kind}"
        A, b, g = problem(n, N, kind)
        A, b = A.requires_grad_(), b.requires_grad_()
        x_exact, dA_exact = reference(A.detach(), b.detach(), g)

        def ours(A=A, b=b, g=g):
            A.grad = b.grad = None
            x = equilibrium(A, b, "relu", tol=OUR_TOL, max_iter=MAX_ITER, on_failure="ignore")
            x.backward(g)
            return x

        def theirs(A=A, b=b, g=g):
            A.grad = b.grad = None
            z, info = deq(lambda z: torch.relu(z @ A.t() + b), torch.zeros_like(b))
            z[-1].backward(g)
            return z[-1], info

        errors = {}
        for who, function in (("ours", ours), ("peer", lambda: theirs()[0])):
            x = function().detach()
            errors[who] = (
                float((x - x_exact).abs().max() / x_exact.abs().max()),
                float((A.grad - dA_exact).abs().max() / dA_exact.abs().max()),
            )
        peer_steps = int(theirs()[1]["nstep"].max())
        method, forward, backward = _iterations(A.detach(), b.detach(), g)
        times = harness.interleaved({"ours": ours, "peer": theirs, "sgemm": sgemm()}, repeats, clock=time.process_time)
        report.ratios[name] = found = harness.ratio(times["peer"], times["ours"])
        ms = {who: 1e3 * sorted(t)[len(t) // 2] for who, t in times.items()}
        work = (forward + backward) * n * n * N / SGEMM_SIZE**3  # in products of that size
        floors[name] = statistics.median(o / (work * s) for o, s in zip(times["ours"], times["sgemm"], strict=True))
        rate = max(rate, 2 * SGEMM_SIZE**3 / min(times["sgemm"]))
        shapes[name] = {
            "ours_ms": ms["ours"],
            "peer_ms": ms["peer"],
            "solver": method,
            "iterations": [forward, backward],
            "peer_iterations": peer_steps,
            "error_x": [errors["ours"][0], errors["peer"][0]],
            "error_dA": [errors["ours"][1], errors["peer"][1]],
            "time_over_flop_floor": floors[name],
        }
        report.check(f"{name}: at least {FLOOR_EACH:g} times torchdeq", found["median"] >= FLOOR_EACH)
        report.check(
            f"{name}: as accurate as torchdeq",
            all(o <= max(p, ROUNDING) for o, p in zip(errors["ours"], errors["peer"], strict=True)),
        )
        rows.append(
            [
                name,
                method,
                ms["ours"],
                f"{forward:.1f}+{backward:.1f}",
                ms["peer"],
                str(peer_steps),
                found["median"],
                found["min"],
                found["max"],
                *(f"{errors[who][k]:.0e}" for k in (0, 1) for who in ("ours", "peer")),
                floors[name],
            ]
        )
    mean = harness.geometric_mean([v["median"] for v in report.ratios.values()])
    least = min(v["median"] for v in report.ratios.values())
    harness.print_table(
        [
            "problem",
            "solver",
            "ours ms",
            "its",
            "torchdeq ms",
            "its",
            "ratio",
            "min",
            "max",
            "x ours",
            "x peer",
            "dA ours",
            "dA peer",
            "/ flop floor",
        ],
        rows,
    )
    print(
        f"geometric mean {mean:.3g} (floor {FLOOR_MEAN:g}, goal {GOAL_MEAN:g}); least {least:.3g} (floor"
        f" {FLOOR_EACH:g}, goal {GOAL_EACH:g}); sgemm {rate / 1e9:.0f} Gflop/s"
    )
    report.ratios["geometric_mean"] = {
        "median": mean,
        **{
            k: harness.geometric_mean([report.ratios[f"n{n}_b{N}_{kind}"][k] for n, N, kind in SHAPES])
            for k in ("min", "max")
        },
    }
    report.check(f"geometric mean at least {FLOOR_MEAN:g}", mean >= FLOOR_MEAN)
    large = {name: value for name, value in floors.items() if name.startswith("n200")}
    print(
        "time over flop floor at n = 200: "
        + ", ".join(f"{name} {value:.2f}" for name, value in large.items())
        + f" (goal {FLOP_FLOOR_RATIO:g})"
    )
    report.check(
        f"n = 200, largest batch: within {FLOP_FLOOR_RATIO:g} of the flop floor",
        large["n200_b1000_random"] <= FLOP_FLOOR_RATIO,
    )
    growth = {solver: memory_growth(solver) for solver in ("auto", "picard")}
    print(
        "peak memory growth from 2 to 200 iterations: "
        + ", ".join(f"{s} {m:.1f} MiB" for s, m in growth.items())
        + " (one state is 4.9 MiB)"
    )
    report.check("peak memory does not grow with the iterations", max(growth.values()) < 2 * 4.9)
    report.details = {
        "floor": {"geometric_mean": FLOOR_MEAN, "each": FLOOR_EACH, "flop_floor": FLOP_FLOOR_RATIO},
        "goal": {"geometric_mean": GOAL_MEAN, "each": GOAL_EACH, "flop_floor": FLOP_FLOOR_RATIO},
        "goals_met": {
            "geometric_mean": mean >= GOAL_MEAN,
            "each": least >= GOAL_EACH,
            "flop_floor": max(large.values()) <= FLOP_FLOOR_RATIO,
        },
        "sgemm_gflops": rate / 1e9,
        "shapes": shapes,
        "memory_growth_mib": growth,
    }
    return report


if __name__ == "__main__":
    harness.main("equilibrium", run)
