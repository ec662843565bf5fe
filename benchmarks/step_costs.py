"""Times of the steps that `implicit_models.equilibrium.costs` counts: `python -m benchmarks.step_costs`.

Nanoseconds per state and sample of a sweep and of a product in BLAS, and what a call of sweeps takes once. Run with one
thread.
"""

from __future__ import annotations

import statistics
import time
from functools import partial

import numpy as np
import torch

from benchmarks import harness
from implicit_models.equilibrium.kernels.gauss_seidel import gauss_seidel

SIZES = ((8, 32), (8, 256), (64, 32), (64, 256), (128, 256), (256, 256), (512, 256))
NO_TOLERANCE, SWEEPS = 1e-30, (1, 9)


def main() -> None:
    rows = []
    for dtype in (torch.float32, torch.float64):
        for n, N in SIZES:
            generator = torch.Generator().manual_seed(0)
            A, b = (torch.rand(s, n, generator=generator, dtype=torch.float64).to(dtype) for s in (n, N))
            A, out = 0.999 * A / A.sum(1, keepdim=True), torch.empty_like(b)
            for code, name in ((0, "relu"), (1, "tanh")):
                codes, param = np.full(n, code, np.int8), np.zeros(n, b.numpy().dtype)
                arguments = A.numpy(), b.numpy(), codes, param, None, NO_TOLERANCE, True
                functions = {str(k): partial(gauss_seidel, *arguments, k) for k in SWEEPS}
                functions["addmm"] = partial(torch.addmm, b, b, A.t(), out=out)
                times = harness.interleaved(functions, 5, clock=time.process_time)
                one, nine, product = (1e9 * statistics.median(t) for t in times.values())
                sweep = (nine - one) / (SWEEPS[1] - SWEEPS[0])
                rows.append([str(dtype), str(n), str(N), name, sweep / (N * n), one - 2 * sweep, product / (N * n)])
    harness.print_table(["dtype", "n", "N", "map", "sweep ns", "once ns", "product ns"], rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
