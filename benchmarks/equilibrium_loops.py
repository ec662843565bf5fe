"""Equilibrium beside the loops that a user would write: `python -m benchmarks.equilibrium_loops [--quick] --json FILE`.

Forward and backward, one thread, CPU seconds, interleaved. Peers (`equilibrium_peers`): Picard steps in place in torch,
and a while loop that JAX compiles (extra: bench), both with implicit differentiation. Ours runs as it comes, solver
"auto" at the default tolerance. Each peer stops at the loosest tolerance that reaches our errors of x and of dL/dA,
recomputed against double precision; errors below 8 eps count as 8 eps, since no tolerance of single precision resolves
them. A peer that reaches them at no tolerance is left out, and said. A is Gaussian with rows of norm kappa, a Gaussian
whose rows were projected (as training leaves them), or not negative.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks import harness
from benchmarks.parts.equilibrium_peers import jax_loop, torch_loop

KINDS = ("gaussian", "projected", "positive")
FLOOR, GOAL = 1.0, 1.5
MAX_ITER, SLOWEST = 3000, 20.0  # SLOWEST: a tolerance is given up when a peer needs so many times our time
EXACT = 1e-15


def cases(quick: bool) -> list[tuple[str, str, int, int, float, torch.dtype]]:
    """(activation, kind, n, N, kappa, dtype)."""
    single, double = torch.float32, torch.float64
    if quick:
        return [("relu", "gaussian", 64, 256, 0.95, single), ("tanh", "gaussian", 64, 256, 0.95, double)]
    found = [("relu", kind, n, 256, 0.95, single) for kind in KINDS for n in (8, 64, 128, 256, 512, 1024)]
    found += [(act, kind, n, 256, 0.95, single) for act in ("tanh", "sigmoid") for kind in KINDS for n in (8, 64, 256)]
    found += [("relu", kind, 64, N, 0.95, single) for kind in KINDS for N in (32, 2048)]
    found += [("relu", kind, 64, 256, kappa, single) for kind in KINDS for kappa in (0.5, 0.99, 0.999)]
    return found + [("relu", kind, n, 256, 0.95, double) for kind in KINDS for n in (64, 256)]


def problem(kind: str, n: int, N: int, kappa: float, dtype: torch.dtype, seed: int = 0) -> list[torch.Tensor]:
    """A (n, n), b (N, n) and the cotangent g (N, n)."""
    from implicit_models.wellposed import project_rows

    generator = torch.Generator().manual_seed(seed + 7 * n + N)
    A, b, g = (torch.randn(s, n, generator=generator, dtype=torch.float64) for s in (n, N, N))
    size = A.abs().sum(1, keepdim=True)
    made = {"gaussian": kappa * A / size, "projected": project_rows(A, kappa), "positive": kappa * A.abs() / size}
    return [t.to(dtype) for t in (made[kind], b, g)]


def loosest(
    run: Callable[[float], tuple], errors: Callable, wanted: tuple[float, float], seconds: float
) -> float | None:
    """Largest tolerance, half a decade apart, at which the errors are at most the wanted ones; None where none is."""
    for k in range(4, 31):
        start = time.process_time()
        found = errors(*run(10 ** (-k / 2))[:2])
        if all(e <= w for e, w in zip(found, wanted, strict=True)):
            return 10 ** (-k / 2)
        if k > 4 and time.process_time() - start > SLOWEST * seconds:
            return None
    return None


def relative(found, exact: torch.Tensor) -> float:
    """Largest error over the largest value."""
    return float((torch.as_tensor(found).double() - exact).abs().max() / exact.abs().max())


def one_case(activation: str, kind: str, n: int, N: int, kappa: float, dtype: torch.dtype, repeats: int, use_jax: bool):
    """Times of ours and of each peer that reaches our errors, and the errors."""
    from implicit_models.equilibrium import equilibrium

    A, b, g = problem(kind, n, N, kappa, dtype)
    x_exact, dA_exact, _ = torch_loop(A.double(), b.double(), g.double(), activation, EXACT, 40_000)

    def errors(x, dA) -> tuple[float, float]:
        return relative(x, x_exact), relative(dA, dA_exact)

    ours_A, ours_b = A.clone().requires_grad_(), b.clone().requires_grad_()

    def ours():
        ours_A.grad = ours_b.grad = None
        x = equilibrium(ours_A, ours_b, activation, on_failure="ignore")
        x.backward(g)
        return x

    error = errors(ours().detach(), ours_A.grad)
    wanted = tuple(max(e * 1.05, 8 * torch.finfo(dtype).eps) for e in error)
    seconds = max(harness.seconds_of(ours, clock=time.process_time), 1e-3)
    peers: dict[str, Callable] = {"torch": lambda tol: torch_loop(A, b, g, activation, tol, MAX_ITER)}
    if use_jax:
        solve = jax_loop(A, b, g, activation, MAX_ITER)
        solve(0.1)  # compiled
        peers["jax"] = lambda tol: tuple(np.array(part) for part in solve(tol))
    functions: dict[str, Callable] = {"ours": ours}
    for name, run in peers.items():
        tol = loosest(run, errors, wanted, seconds)
        if tol is not None:
            functions[name] = (lambda tol=tol: solve(tol)) if name == "jax" else (lambda tol=tol, run=run: run(tol))
    return harness.interleaved(functions, repeats, clock=time.process_time), error


def run(quick: bool) -> harness.Report:
    report, rows, repeats = harness.Report(), [], 3 if quick else 5
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    try:
        import jax  # noqa: F401

        use_jax = True
    except ImportError:
        use_jax = False
        print("JAX is not installed (extra: bench): its loop is left out")
    report.details["jax"] = use_jax
    best: dict[str, dict[str, float]] = {}
    errors_of: dict[str, list[float]] = {}
    for activation, kind, n, N, kappa, dtype in cases(quick):
        name = f"{activation} {kind} n{n} N{N} kappa{kappa:g} {str(dtype).removeprefix('torch.')}"
        times, error = one_case(activation, kind, n, N, kappa, dtype, repeats, use_jax)
        errors_of[name] = list(error)
        found = {peer: harness.ratio(times[peer], times["ours"]) for peer in times if peer != "ours"}
        report.ratios |= {f"{name}: {peer}": ratio for peer, ratio in found.items()}
        if found:
            best[name] = min(found.values(), key=lambda ratio: ratio["median"])
        ms = 1e3 * sorted(times["ours"])[repeats // 2]
        cells = [f"{r['median']:.2f} ({r['min']:.2f}-{r['max']:.2f})" for r in found.values()]
        missing = ", ".join(sorted({"torch", "jax"} - set(found) - (set() if use_jax else {"jax"})))
        rows.append([name, ms, ", ".join(f"{p} {c}" for p, c in zip(found, cells)), missing])
    harness.print_table(["problem", "ours ms", "peer's time over ours, median (min-max)", "not as exact"], rows)
    summary = {k: harness.geometric_mean([ratio[k] for ratio in best.values()]) for k in ("median", "min", "max")}
    least = min(best, key=lambda name: best[name]["median"])
    print(
        f"beside the better peer: geometric mean {summary['median']:.2f}, least {best[least]['median']:.2f} ({least})"
    )
    report.ratios["geometric mean beside the better peer"] = summary
    report.ratios["least beside the better peer"] = best[least]
    for name, ratio in best.items():
        report.check(f"{name}: at least {FLOOR:g} beside the better peer", ratio["median"] >= FLOOR)
    report.details |= {"floor": FLOOR, "goal": GOAL, "errors of x and dA": errors_of}
    return report


if __name__ == "__main__":
    harness.main("equilibrium_loops", run)
