"""Bounds side by side: `python -m benchmarks.robustness [--quick] --json FILE`. One thread, CPU seconds.

    feed-forward   784-64-32-16-10 of Fashion-MNIST, radius .008, 1000 images: accuracy under projected gradient steps
                   less certified accuracy (dual, with branch and bound for what it leaves undecided); interval
                   arithmetic and auto_LiRPA beside it
    cyclic         implicit classifier, n = 64: what the dual gains on the interval, over what the triangle's linear
                   programmes (highspy, warm) gain with the same pre-activation bounds, and the time of both
    large batch    10,000 images: the interval against the model's own forward pass, and the dual
    fuzz           10^6 pairs of a random model and an input: inclusions of all methods
    sensitivity, training   see parts.robustness_sensitivity and parts.robustness_training

The dual relaxes as CROWN does, but chooses the lower line of each unit for each functional, and refines pre-activations
in a second and third pass: it is tighter than auto_LiRPA's CROWN by that.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from benchmarks import harness
from benchmarks.parts import robustness_cases, robustness_sensitivity, robustness_training
from implicit_models.robustness.attacks.options import PGD
from implicit_models.robustness.bounding.options import Dual

GAP_FLOOR, GAP_GOAL = 0.025, 0.015
SHARE_FLOOR, SHARE_GOAL, MARGINS = 0.99, 0.995, 0.95  # the goal is 1.00 to two digits
SPEED_FLOOR, SPEED_GOAL = 15.0, 40.0
FORWARD_FLOOR, FORWARD_GOAL = 12.0, 4.0
DUAL_FLOOR, DUAL_GOAL = 40.0, 15.0
SPLITS = 400
RADII = (0.004, 0.008, 0.016)


def feed_forward(report: harness.Report, quick: bool) -> list[list[object]]:
    from implicit_models.compose.interconnect import from_network
    from implicit_models.robustness.attacks.methods import attack
    from implicit_models.robustness.bound_methods import bounds
    from implicit_models.robustness.specification import margins

    _, _, network, U, y = robustness_cases.images(200 if quick else 1000)
    model, N, eps = from_network(network, U.shape[1], dtype=torch.float64), len(U), 0.008
    layers = robustness_cases.weights(network)
    clean = network(torch.from_numpy(U).float()).argmax(1).numpy() == y
    broken = attack(network, U, y, eps, PGD(steps=40, restarts=3), seed=0).success
    attacked = float((clean & ~broken).mean())
    spec, rows, certified = margins(y, 10), [], {}
    methods = {
        "interval": "interval",
        "dual without ascent": Dual(ascent_steps=0, early_stop=True),
        "dual": Dual(early_stop=True),
        f"dual, {SPLITS} nodes": Dual(early_stop=True, splits=SPLITS),
    }
    for name, method in methods.items():
        options = {"method": method, "sides": "lower" if isinstance(method, Dual) else "both"}
        bounds(model, U[:2], eps, spec=spec[:2], **options)
        start = time.process_time()
        found = bounds(model, U, eps, spec=spec, **options)
        certified[name] = (found.lb > 0).all(axis=1)
        rows.append([name, float(certified[name].mean()), 1e3 * (time.process_time() - start) / N])
    rows.append([f"projected gradient (clean {clean.mean():.3f})", attacked, ""])
    gap = attacked - float(certified[f"dual, {SPLITS} nodes"].mean())
    report.details["feed_forward"] = {
        "attacked": attacked,
        "clean": float(clean.mean()),
        "gap": gap,
        "floor": GAP_FLOOR,
        "goal": GAP_GOAL,
        "certified": {k: float(v.mean()) for k, v in certified.items()},
    }
    report.check(f"feed-forward: certified within {100 * GAP_FLOOR:g} points of the attack", gap <= GAP_FLOOR)
    report.check("feed-forward: no attacked sample certified", not any((v & broken).any() for v in certified.values()))
    _peers(report, model, layers, U[:100], eps, rows)
    return rows


def _peers(
    report: harness.Report, model: object, layers: list, U: np.ndarray, eps: float, rows: list[list[object]]
) -> None:
    """Widths of the logits beside interval arithmetic and auto_LiRPA, the same samples."""
    from implicit_models.robustness.bound_methods import bounds

    ours = {"interval": bounds(model, U, eps, method="interval"), "dual": bounds(model, U, eps, method="dual")}
    width = {name: float((b.ub - b.lb).mean()) for name, b in ours.items()}
    low, high = robustness_cases.interval_arithmetic(layers, U, eps)
    same = (
        np.abs(np.stack([ours["interval"].lb - low, ours["interval"].ub - high])).max()
        <= 1e-7 * np.abs(high - low).max()
    )
    report.check("feed-forward: the interval equals interval arithmetic", bool(same))
    peers = {"interval arithmetic": (low, high)}
    for method in ("IBP", "CROWN-IBP", "CROWN"):
        found = robustness_cases.auto_lirpa(layers, U, eps, method)
        if found is not None:
            peers[f"auto_LiRPA {method}"] = found
    width |= {name: float((h - l).mean()) for name, (l, h) in peers.items()}
    if "auto_LiRPA CROWN" in peers:
        tighter = ours["dual"].ub - ours["dual"].lb <= (peers["auto_LiRPA CROWN"][1] - peers["auto_LiRPA CROWN"][0]) * (
            1 + 1e-6
        )
        report.details["auto_lirpa"] = {"tighter_or_equal": float(tighter.mean())}
        report.check(
            "feed-forward: on the average tighter than auto_LiRPA's CROWN", width["dual"] <= width["auto_LiRPA CROWN"]
        )
    report.details["logit_widths"] = width
    rows += [[f"mean width of a logit: {name}", value, ""] for name, value in width.items()]


def against_programmes(report: harness.Report, quick: bool) -> list[list[object]]:
    from implicit_models.robustness.bound_methods import bounds
    from implicit_models.robustness.bounding.dual import dual_bounds
    from implicit_models.robustness.bounding.lp import lp_bounds
    from implicit_models.robustness.input_sets import Box
    from implicit_models.robustness.problem import problem
    from implicit_models.robustness.specification import margins, specification

    _, model, _, U, y = robustness_cases.images(8 if quick else 40)
    task, spec, rows, ratios, shares = problem(model), margins(y, 10), [], [], []
    for eps in RADII:
        inputs = Box(eps).around(U)
        start = bounds(task, U, eps, method="interval", spec=spec)
        refined = dual_bounds(
            task, inputs, specification(task, inputs, spec), start, Dual(ascent_steps=0), sides="lower"
        )
        clock = time.process_time()
        programme = lp_bounds(task, inputs, spec, relaxation="triangle", start=refined, sides="lower")
        theirs = time.process_time() - clock

        def function(inputs=inputs, start=start):
            return dual_bounds(task, inputs, specification(task, inputs, spec), start, sides="lower")

        found = function()
        ours = harness.seconds_of(function, clock=time.process_time)
        gain = programme.lb - start.lb
        share = ((found.lb - start.lb) / gain)[gain > 1e-6 * (1 + np.abs(programme.lb))]
        same = np.array_equal(found.zl, refined.zl) and np.array_equal(found.zh, refined.zh)
        report.check(f"cyclic, eps {eps}: the same pre-activation bounds", same)
        report.check(
            f"cyclic, eps {eps}: the dual within the programmes' optimum",
            bool((found.lb <= programme.lb + 1e-6 * (1 + np.abs(programme.lb))).all()),
        )
        ratios.append(theirs / ours)
        shares.append(share)
        rows.append(
            [
                f"eps {eps}",
                float(np.quantile(share, 1 - MARGINS)),
                float(share.min()),
                1e3 * ours / len(U),
                1e3 * theirs / len(U),
                theirs / ours,
            ]
        )
    fifth = float(np.quantile(np.concatenate(shares), 1 - MARGINS))
    report.ratios["highspy"] = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
    report.details["triangle"] = {
        "share_on_95_percent": fifth,
        "floor": SHARE_FLOOR,
        "goal": SHARE_GOAL,
        "speed_floor": SPEED_FLOOR,
        "speed_goal": SPEED_GOAL,
    }
    report.check(f"cyclic: {SHARE_FLOOR:g} of the programmes' gain on 95 % of margins", fifth >= SHARE_FLOOR)
    report.check(f"cyclic: {SPEED_FLOOR:g} times less time than highspy", statistics.median(ratios) >= SPEED_FLOOR)
    return rows


def large_batch(report: harness.Report, quick: bool) -> list[list[object]]:
    from implicit_models.robustness.bound_methods import bounds
    from implicit_models.robustness.specification import margins

    _, model, _, U, y = robustness_cases.images(1000 if quick else 10_000)
    single, spec, N = torch.from_numpy(U).float(), margins(y, 10), len(U)
    model.eval()

    def forward() -> None:
        with torch.no_grad():
            model(single)

    times = harness.interleaved(
        {"forward": forward, "interval": lambda: bounds(model, U, 0.008, method="interval")},
        3 if quick else 7,
        clock=time.process_time,
    )
    ratio = harness.ratio(times["interval"], times["forward"])
    report.ratios["forward_pass"] = {
        k: 1 / v for k, v in (("median", ratio["median"]), ("min", ratio["max"]), ("max", ratio["min"]))
    }
    report.check(f"interval: at most {FORWARD_FLOOR:g} times the forward pass", ratio["median"] <= FORWARD_FLOOR)
    rows = [
        ["forward pass, float32", min(times["forward"]), ""],
        ["interval", min(times["interval"]), f"{ratio['median']:.2g} x"],
    ]
    spent = {}
    for name, method in {"dual": Dual(), "dual, early stop": Dual(early_stop=True)}.items():
        start = time.process_time()
        found = bounds(model, U, 0.008, method=method, spec=spec, sides="lower")
        spent[name] = (time.process_time() - start) * 10_000 / N
        rows.append(
            [
                f"{name} (goal {DUAL_GOAL:g} s for 10,000)",
                spent[name],
                f"certified {(found.lb > 0).all(axis=1).mean():.3f}",
            ]
        )
    report.check(f"dual, 10,000 images, eps .008: at most {DUAL_FLOOR:g} s", spent["dual"] <= DUAL_FLOOR)
    report.details["large_batch"] = {
        "interval_over_forward": ratio,
        "forward_floor": FORWARD_FLOOR,
        "forward_goal": FORWARD_GOAL,
        "dual_seconds": spent,
        "dual_floor": DUAL_FLOOR,
        "dual_goal": DUAL_GOAL,
    }
    return rows


def run(quick: bool) -> harness.Report:
    report = harness.Report()

    def add(module) -> None:
        ratios, checks, rows = module.measure(quick)
        harness.print_table(module.HEADER, rows)
        print()
        report.ratios |= ratios
        report.checks |= {name: bool(value) for name, value in checks.items()}
        report.details[module.__name__.rpartition("_")[2]] = rows

    add(robustness_sensitivity)  # first: a process that starts from a large one counts its memory as its own
    parts = [
        (["784-64-32-16-10, eps .008", "certified", "ms a sample"], feed_forward),
        (["cyclic, n = 64", "95 % gain", "least gain", "dual ms", "highspy ms", "ratio"], against_programmes),
        ([f"{'1,000' if quick else '10,000'} images", "CPU s", ""], large_batch),
    ]
    for header, part in parts:
        harness.print_table(header, part(report, quick))
        print()
    count = robustness_cases.fuzz(60 if quick else 1000, 1000)
    print(f"{count['pairs']:,} pairs, {count['models']} models: {count}\n")
    for name in [k for k in count if k not in ("models", "pairs")]:
        report.check(f"fuzz: {name.replace('_', ' ')}: none", count[name] == 0)
    report.details["fuzz"] = count
    add(robustness_training)
    return report


if __name__ == "__main__":
    harness.main("robustness", run)
