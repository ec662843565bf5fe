"""Rows of a trained ResNet-20 that may use every state before them and the input: `python -m benchmarks.before
[--quick] --json FILE`.

    everywhere  all 172,032 rows, m = 2000 images, scale std, radius .99, certified on all of their columns (up to
    187,392) in double precision: on a
                graphics card, or on two threads, where it takes a quarter to half an hour. The bars, 10 s and 4 s, are
                for a card
    product     the peer of the whole: one double precision product of all targets and all columns, which one check of
                the optimality of all rows costs, timed on drawn blocks and scaled by its operations
    lars        the peer of a row: scikit-learn's lars_path on the same columns, rows drawn from three stages, m = 500,
        CPU seconds

Gaps of rows drawn at random are recomputed from the images: states of the network in double precision, all columns,
1/2||z - M a||^2 against the dual value of its residual. It needs the images and weights of IMPLICIT_DATA (or their
official homes).
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.scale import in_a_process, network_and_images

RADIUS, GAP = 0.99, 1e-12
SECONDS = (10.0, 4.0)  # floor and goal on a graphics card
THREADS = 2
CHECKED_ROWS = 36  # of all rows, drawn at random, two a block
BLOCKS, ROWS, PEERS = (2, 9, 17), 256, 4  # the stages that rows are drawn from, for a time a row and that of lars_path
PRODUCT_BLOCKS, PRODUCT_ROWS = (4, 11, 16), 256


def everywhere(m: int, checked: int, shrink: int = 1) -> dict[str, Any]:
    """Every row of the network: on the graphics card where there is one. shrink: of the images, for a trial."""
    import torch

    from implicit_models.sim.layerwise import sparsify
    from implicit_models.sim.network.column_store import Columns
    from implicit_models.sim.network.working_rows import solve_working
    from implicit_models.sim.parallel.run import SERIAL, Parallel
    from implicit_models.sim.problem import L1Ball, Tolerance
    from implicit_models.sim.row_models import WorkingSet

    torch.set_num_threads(1)
    network, u, *_ = network_and_images(m)
    network, u = network.double(), u.double()[:, :, ::shrink, ::shrink]  # rows are stored in the network's precision
    card = torch.cuda.is_available()
    rows, tolerance = WorkingSet(refit=None, device="cuda" if card else "cpu"), Tolerance(GAP, GAP)
    parallel = Parallel("threads", THREADS, progress=not card)
    few = np.random.default_rng(0).standard_normal((64, 20))  # loads the compiled kernels
    trial: dict[str, Any] = {"ridge": 0.1, "tolerance": tolerance, "cap": None, "parallel": SERIAL}
    solve_working(Columns.of(few, rows.device), few[None, :2], np.ones((1, 2)), [L1Ball(RADIUS)], **trial)
    start, spent = time.perf_counter(), time.process_time()
    model = sparsify(
        network, u, L1Ball(RADIUS), rows, states="teacher", head=False, tolerance=tolerance, parallel=parallel
    )
    seconds, spent, layers = time.perf_counter() - start, time.process_time() - spent, model.report.layers
    status: dict[str, int] = {}
    for layer in layers:
        for name, count in layer.status.items():
            status[name] = status.get(name, 0) + count
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform != "darwin" else 2**30)
    return {
        "device": torch.cuda.get_device_name() if card else f"{THREADS} threads",
        "card": card,
        "seconds": seconds,
        "cpu_seconds": spent,
        "parts": dict(model.report.seconds),
        "rows": sum(layer.rows for layer in layers),
        "gap": max(layer.gap for layer in layers),
        "violation": max(layer.violation for layer in layers),
        "status": status,
        "sparsity": model.report.sparsity_of_entries,
        "memory_gb": memory,
        "recomputed": recomputed(model, u, checked),
    }


def recomputed(model, u, checked: int) -> dict[str, float]:
    """Largest gap over 1/2||z||^2 and violation over the radius of rows drawn at random, on all columns, from the
    images alone."""
    import torch

    from implicit_models.sim.network.layers import INPUT

    layers, known, rng, gaps, excess = model.layers, {INPUT: u}, np.random.default_rng(1), [], []
    with torch.no_grad():
        for block, b in enumerate(layers.blocks):
            z = layers.affine(block, known)
            if block in model.fitted:
                sources = model.sources[block]
                mean = [known[s].flatten(1).mean(0).numpy() for s in sources]
                parts = [known[s].flatten(1).numpy() - mu for s, mu in zip(sources, mean)]
                square = [np.einsum("ij,ij->j", x, x) for x in parts]
                fourth = [np.einsum("ij,ij,ij,ij->j", x, x, x, x) for x in parts]
                unit = [np.sqrt(q / len(u)) for q in square]
                used = [(c > 1e-7 * np.abs(mu)) & (q * q >= 3 * f) for c, mu, q, f in zip(unit, mean, square, fourth)]
                at = np.cumsum([0, *(x.shape[1] for x in parts)])
                A = getattr(model, f"A{block}")
                for i in rng.choice(b.size, max(1, checked // len(model.fitted)), replace=False):
                    w = z.flatten(1)[:, i].numpy()
                    t = w.std()
                    if t < 1e-9:
                        continue
                    w = (w - w.mean()) / t
                    first, last = (int(A.crow_indices()[k]) for k in (i, i + 1))
                    whole = np.zeros(at[-1])
                    whole[A.col_indices()[first:last].numpy()] = A.values()[first:last].numpy()
                    pieces = [(x, c, on, whole[p:q] * c / t) for x, c, on, p, q in zip(parts, unit, used, at, at[1:])]
                    r = w - sum(x @ (a / np.where(on, c, 1.0)) for x, c, on, a in pieces)
                    lead = max(np.abs((x.T @ r) / np.where(on, c, np.inf)).max() for x, c, on, _ in pieces)
                    value = 0.5 * r @ r
                    gaps.append((value - (w @ r - value - RADIUS * lead)) / (0.5 * w @ w))
                    excess.append(max(0.0, sum(np.abs(a).sum() for *_, a in pieces) - RADIUS) / RADIUS)
            known[block] = layers.apply(block, z)
    return {"gap": float(max(gaps)), "violation": float(max(excess)), "rows": len(gaps)}


def drawn(m: int, blocks: tuple[int, ...], rows: int):
    """Columns, targets and radii of rows drawn from blocks: yields the columns, Z (P, r, m) and radius (P, r)."""
    import torch

    from implicit_models.sim.network.column_store import ColumnStore
    from implicit_models.sim.network.layers import INPUT, read_layers
    from implicit_models.sim.network.position_problem import working_problem

    network, u, *_ = network_and_images(m)
    layers, known, rng = read_layers(network, (3, 32, 32)), {INPUT: u}, np.random.default_rng(3)
    store = ColumnStore(sum(int(np.prod(layers.shape_of(k))) for k in range(INPUT, max(blocks))), m, min_active=3.0)
    store.append(u, None)
    with torch.no_grad():
        for block in range(max(blocks) + 1):
            z = layers.affine(block, known)
            if block in blocks:
                columns, problem = working_problem(layers, block, store, z, None)
                Z, radius = problem.arrays
                p = rng.choice(len(Z), max(1, rows // Z.shape[1]), replace=False)
                yield columns, np.ascontiguousarray(Z[p]), radius[p]
            known[block] = layers.apply(block, z)
            if block < max(blocks):
                store.append(known[block], None)


def product_seconds(m: int, blocks: tuple[int, ...]) -> dict[str, float]:
    """Seconds of one product of all targets and columns in double precision, on THREADS threads that scale ideally; and
    its operations a second."""
    from implicit_models.sim.network.layers import INPUT, read_layers

    rates = []
    for columns, Z, _ in drawn(m, blocks, PRODUCT_ROWS):
        F, z = columns.X.numpy(), Z.reshape(-1, m)
        z @ F[:1000].T
        start = time.process_time()
        z @ F.T
        rates.append(2 * len(z) * F.size / (time.process_time() - start))
    layers = read_layers(network_and_images(2)[0], (3, 32, 32))
    width, entries = int(np.prod((3, 32, 32))), 0
    for b in layers.blocks:
        entries += 0 if set(b.sources) == {INPUT} else b.size * width
        width += b.size
    return {
        "seconds": 2 * m * entries / statistics.median(rates) / THREADS,
        "flops": statistics.median(rates),
        "entries": entries,
    }


def beside_lars(m: int, blocks: tuple[int, ...], peers: int) -> dict[str, Any]:
    """CPU milliseconds a row, those of lars_path on the same columns, and the largest gap."""
    from sklearn.linear_model import lars_path

    from implicit_models.sim.network.working_rows import solve_working
    from implicit_models.sim.parallel.run import SERIAL
    from implicit_models.sim.problem import L1Ball, Tolerance

    found: dict[str, Any] = {
        "ms": [],
        "lars_ms": [],
        "columns": [],
        "gap": 0.0,
        "difference": 0.0,
        "compared": 0,
        "drawn": 0,
    }
    options: dict[str, Any] = {"ridge": 1e-3, "tolerance": Tolerance(GAP, GAP), "cap": None, "parallel": SERIAL}
    for columns, Z, radius in drawn(m, blocks, ROWS):
        F = columns.X.numpy()
        solve_working(columns.part(slice(64)), Z[:1], radius[:1], [L1Ball(0.1)], **options)
        start = time.process_time()
        rows = solve_working(columns, Z, radius, [L1Ball(RADIUS)], **options)
        found["ms"].append(1e3 * (time.process_time() - start) / Z.shape[0] / Z.shape[1])
        found["columns"].append(len(F))
        found["gap"] = max(found["gap"], float(rows.gap.max()))
        X, each, times = F.T, Z.reshape(-1, m), []
        for i in [i for i in range(len(each)) if each[i].any()][:peers]:
            steps = 2 * int(np.diff(rows.pointer[0])[i]) + 8
            start = time.process_time()
            _, _, path = lars_path(X, each[i], method="lasso", max_iter=steps, Gram=False)
            times.append(1e3 * (time.process_time() - start))
            norms = np.abs(path).sum(axis=0)
            at = int(np.searchsorted(norms, RADIUS))
            found["drawn"] += 1
            if at < len(norms):  # else the path stopped short of the radius
                found["compared"] += 1
                share = (RADIUS - norms[at - 1]) / (norms[at] - norms[at - 1])
                own = np.zeros(len(F))
                part = slice(rows.pointer[0][i], rows.pointer[0][i + 1])
                own[rows.column[0][part]] = rows.l1[0][part]
                theirs = path[:, at - 1] + share * (path[:, at] - path[:, at - 1])
                found["difference"] = max(found["difference"], float(np.abs(X @ (own - theirs)).max()))
        found["lars_ms"].append(statistics.median(times))
    return found


def run(quick: bool) -> harness.Report:
    report = harness.Report()
    m, small = (60, 60) if quick else (2000, 500)
    own = in_a_process("before", "everywhere", m, CHECKED_ROWS, 4 if quick else 1)
    report.check(
        f"every gap at most {GAP:g} of 1/2||z||^2, by the solver's own account",
        own["gap"] <= GAP and set(own["status"]) <= {"optimal", "empty"},
    )
    report.check(
        f"gap of {own['recomputed']['rows']} rows recomputed from the images at most {GAP:g} of 1/2||z||^2",
        own["recomputed"]["gap"] <= GAP,
    )
    report.check(f"their violation at most {GAP:g}", own["recomputed"]["violation"] <= GAP)
    if own["card"] and not quick:
        report.check(f"all rows: at most {SECONDS[0]:g} s on a card", own["seconds"] <= SECONDS[0])
    product = in_a_process("before", "product_seconds", m, PRODUCT_BLOCKS[:1] if quick else PRODUCT_BLOCKS)
    lars = in_a_process("before", "beside_lars", small, BLOCKS[:1] if quick else BLOCKS, 1 if quick else PEERS)
    if not own["card"]:
        name = "all rows, against one product of targets and columns in double precision, CPU seconds"
        report.ratios[name] = harness.ratio([product["seconds"] * THREADS], [own["cpu_seconds"]])
    report.ratios["CPU a row, against lars_path"] = harness.ratio(lars["lars_ms"], lars["ms"])
    report.check(f"every gap of the rows drawn at most {GAP:g} of 1/2||z||^2", lars["gap"] <= GAP)
    report.check(
        "the rows of lars_path, fitted values to 1e-6",
        lars["difference"] <= 1e-6 and lars["compared"] == lars["drawn"] > 0,
    )
    rows = [
        [
            f"all rows, {own['device']}",
            own["seconds"],
            *(f"{s:g}" if own["card"] else "" for s in SECONDS),
            own["memory_gb"],
            f"{own['gap']:.1e}",
        ]
    ]
    rows.append(["one double precision product", product["seconds"], "", "", "", ""])
    rows += [
        [f"a row, {d} columns, m = {small}", ms / 1e3, "", "", "", f"{lars['gap']:.1e}"]
        for d, ms in zip(lars["columns"], lars["ms"])
    ]
    harness.print_table(["case", "seconds", "floor", "goal", "GB", "gap"], rows)
    report.details = {"everywhere": own, "product": product, "lars": lars}
    return report


if __name__ == "__main__":
    harness.main("before", run)
