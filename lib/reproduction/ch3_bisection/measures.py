"""What the notebook of bisection records: accuracies over outer iterations, ratios of work, defects, lemmas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_gen.core.dataset import Dataset
from implicit_models.sim.network.states import states
from implicit_models.sim.solvers.screening import screen
from reproduction.ch3_bisection import compute, lemmas
from reproduction.ch3_bisection.compute import BallRows
from reproduction.classifiers import fashion, newsgroups
from reproduction.core.budgets import training_budget
from reproduction.core.recipe import History
from reproduction.core.scores import accuracy_of
from reproduction.core.sparsity import part_of

Rows = Mapping[tuple[str, int], BallRows]  # (scale, seed) -> rows
SCALES = ("uniform", "theorem")  # of the 20 Newsgroups network
PASSED = ("theorem", "fashion")  # rows that one pass along the path solves
BUDGETS = {"solved": 3000, "stopped": 5}  # sweeps that a LASSO may take
UNIT_FACTORS = (1, 100, 10_000)
KNOT_WIDTHS = (1e-2, 1e-4, 1e-6, 1e-8)  # of intervals around a change of the support, in units of lambda_max
KNOT_SIZES = ((40, 12), (8, 20))  # samples and columns of the random rows
EPSILONS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


def named(key: str) -> str:
    """A key of a recorded value without points and slashes."""
    return key.replace("/", "_").replace(".", "p")


def each_of(found: Sequence[Mapping[str, Any]], pattern: str) -> dict[str, list[Any]]:
    """Quantities of several seeds, one list a key: `pattern` with `{}` for the name of the quantity."""
    return {pattern.format(key): [one[key] for one in found] for key in found[0]}


def trained_rows(posts: Dataset, images: Dataset, seeds: Sequence[int], profile: str) -> tuple[Rows, Rows, dict]:
    """Rows of the trained networks.

    Returns:
        Rows by scale ("uniform", "theorem"; "fashion" for those of 500 images) and seed; the first two from 30 % of the
        posts; and the values `accuracy_network`, `training_cpu_seconds`, and `trained_epochs_NETWORK` and
        `trained_updates_NETWORK` of both networks.
    """
    rows, parts, reached = {}, {}, []
    histories: dict[str, list[History]] = {"newsgroups": [], "fashion": []}
    for seed in seeds:
        network, history = newsgroups.trained(posts, seed, profile)["network"]
        image_network, image_history = fashion.trained(images, seed, profile)["explicit"]
        histories["newsgroups"].append(history)
        histories["fashion"].append(image_history)
        found = states(network.eval(), posts.u_train)
        for scale in SCALES:
            rows[scale, seed] = compute.ball_rows(found, scale)
            parts[scale, seed] = compute.ball_rows(found.take(part_of(posts, 0.3, seed)), scale)
        rows["fashion", seed] = compute.ball_rows(states(image_network.eval(), images.u_train[:500]), "theorem")
        reached.append(100 * accuracy_of(network, *posts.test[0]))
    seconds = sum(sum(history.cpu_seconds) for each in histories.values() for history in each)
    values = {"accuracy_network": (reached, "%"), "training_cpu_seconds": (seconds, "s")}
    recipes = {"newsgroups": newsgroups.training_recipe(profile), "fashion": fashion.models(0, profile)["explicit"][1]}
    for name, data in (("newsgroups", posts), ("fashion", images)):
        values |= training_budget(name, recipes[name], histories[name], len(data.y_train))
    return rows, parts, values


def outer_runs(
    rows: BallRows, posts: Dataset, kappas: Sequence[float], eps: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Algorithm 1 with cold and warm starts, its LASSO problems solved and stopped early.

    Returns:
        Values: for each START_BUDGET_KAPPA `final_accuracy_`, `final_gap_`, and the outer `iterations_` and the sweeps
        `epochs_` until the accuracy stays within one point of the last; `solved_accuracy_difference` between cold and
        warm, `solved_accuracy_over_kappas` and `solved_active_share` at the end. Curves: `outer/START/BUDGET/KAPPA`.
    """
    values: dict[str, Any] = {}
    curves = {}
    for kappa in kappas:
        for budget, sweeps in BUDGETS.items():
            for warm in (False, True):
                name = f"{'warm' if warm else 'cold'}/{budget}/{kappa:g}"
                curve = compute.outer_curve(
                    rows,
                    kappa=kappa,
                    eps=eps / 10,
                    warm=warm,
                    max_epochs=sweeps,
                    accuracy=lambda model: 100 * accuracy_of(model, *posts.test[0]),
                )
                curves[f"outer/{name}"] = curve
                reached, key = curve["accuracy"], named(name)
                near = next(t for t in range(len(reached)) if min(reached[t:]) >= reached[-1] - 1)
                values[f"final_accuracy_{key}"] = reached[-1], "%"
                values[f"final_gap_{key}"] = curve["gap"][-1]
                values[f"iterations_{key}"] = near + 1
                values[f"epochs_{key}"] = curve["epochs"][near]
    cold, warm = ([curves[f"outer/{w}/solved/{kappa:g}"] for kappa in kappas] for w in ("cold", "warm"))
    differences = [
        abs(a - b) for c, w in zip(cold, warm, strict=True) for a, b in zip(c["accuracy"], w["accuracy"], strict=True)
    ]
    values["solved_accuracy_difference"] = max(differences), "points"
    values["solved_accuracy_over_kappas"] = float(np.ptp([curve["accuracy"][-1] for curve in warm])), "points"
    values["solved_active_share"] = [curve["active"][-1] for curve in warm]
    return values, curves


def speed_ratios(rows: Rows, parts: Rows, seeds: Sequence[int], kappas: Sequence[float], n_rows: int) -> dict[str, Any]:
    """Table 3.3: work with a cold start over that with a warm one, and over that with 30 % of the data.

    Args:
        rows, parts: of all samples and of 30 %, as `trained_rows`.
        n_rows: rows drawn evenly.

    Returns:
        Quantities of `compute.speedups` as `QUANTITY_SCALE_kKAPPA`, one a seed; `warm_gain_average` and
        `support_gain_average`; `warm_gain_rise_SCALE` from the smallest to the largest radius; `saves_no_solve`.
    """
    shown = ("warm_gain", "support_gain", "warm_gain_seconds", "data_epochs", "data_seconds")
    shown += ("data_on_samples", "data_warm_on_samples", "solves", "warm_solves")
    values: dict[str, Any] = {}
    for scale in SCALES:
        chosen = np.linspace(0, len(rows[scale, seeds[0]].C) - 1, n_rows).astype(int)
        for kappa in kappas:
            found = [compute.speedups(rows[scale, seed], parts[scale, seed], chosen, kappa=kappa) for seed in seeds]
            every = each_of(found, "{}")
            values |= {f"{key}_{named(f'{scale}_k{kappa:g}')}": every[key] for key in shown}

    def of(key: str) -> list[list[float]]:
        return [values[f"{key}_{named(f'{scale}_k{kappa:g}')}"] for scale in SCALES for kappa in kappas]

    values["warm_gain_average"] = np.mean(of("warm_gain"), axis=0)
    values["support_gain_average"] = np.mean(of("support_gain"), axis=0)
    for scale in SCALES:
        first, last = (np.array(values[named(f"warm_gain_{scale}_k{kappa:g}")]) for kappa in (min(kappas), max(kappas)))
        values[f"warm_gain_rise_{scale}"] = last - first
    values["saves_no_solve"] = of("solves") == of("warm_solves")
    return values


def one_pass_ratios(rows: Rows, seeds: Sequence[int], kappas: Sequence[float]) -> dict[str, Any]:
    """Quantities of `compute.one_pass` as `QUANTITY_SCALE`, one a seed, for two rows of each scale in `PASSED`."""
    values: dict[str, Any] = {}
    for scale in PASSED:
        found = [
            compute.one_pass(rows[scale, seed], np.linspace(0, len(rows[scale, seed].C) - 1, 2).astype(int), kappas)
            for seed in seeds
        ]
        values |= each_of(found, f"{{}}_{scale}")
        values[f"one_pass_seconds_{scale}"] = values[f"one_pass_seconds_{scale}"], "s"
    return values


def printed_defects(rows: Rows, seeds: Sequence[int], kappas: Sequence[float], eps: float) -> dict[str, Any]:
    """Quantities of `compute.defects` as `printed_QUANTITY_SCALE_kKAPPA`, one a seed."""
    values: dict[str, Any] = {}
    for scale in (*SCALES, "fashion"):
        for kappa in kappas:
            name = named(f"{scale}_k{kappa:g}")
            values |= each_of(
                [compute.defects(rows[scale, seed], kappa, eps) for seed in seeds], f"printed_{{}}_{name}"
            )
            values[f"printed_infeasible_{name}"] = values[f"printed_infeasible_{name}"], "%"
    return values


def units_and_sweeps(rows: BallRows, kappa: float, eps: float) -> tuple[list[dict[str, float]], dict[str, list[float]]]:
    """The first row in the units of `UNIT_FACTORS`, and its sweeps at the relative accuracies `EPSILONS`."""
    row = rows.G, rows.C[0], float(rows.zz[0])
    cases = compute.unit_dependence(*row, kappa=kappa, factors=UNIT_FACTORS, eps=eps)
    return cases, compute.inner_work(*row, kappa=kappa, epsilons=EPSILONS)


def recorded_units(cases: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """`unit_solves_fF` and `unit_gap_fF`, `unit_solves_as_predicted` within one, and `unit_solves_published`."""
    values: dict[str, Any] = {}
    for factor, case in zip(UNIT_FACTORS, cases, strict=True):
        values[f"unit_solves_f{factor}"], values[f"unit_gap_f{factor}"] = case["solves"], case["gap"]
    values["unit_solves_as_predicted"] = all(abs(case["solves"] - case["predicted"]) <= 1 for case in cases)
    values["unit_solves_published"] = cases[0]["published"]
    return values


def recorded_sweeps(inner: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """`inner_epochs_START` at the smallest accuracy, `log_exponent_START`: the power of log(1/eps) that fits."""
    values = {}
    for name, counts in inner.items():
        values[f"inner_epochs_{name}"] = counts[-1]
        values[f"log_exponent_{name}"] = float(np.polyfit(np.log(-np.log(EPSILONS)), np.log(counts), 1)[0])
    return values


def lemma_values(path: Mapping[str, Any], images: BallRows, seeds: Sequence[int]) -> dict[str, Any]:
    """Lemmas 1 to 4 on random rows.

    Args:
        path: from `compute.path_function`.
        images: rows of the images' network, whose share of full rank is `rank_share`.

    Returns:
        `g_...` (Lemma 1), `equivalence_error` (2), `lemma_3_...` and `lemma_4_...`, and `rank_share`.
    """
    jumps = [  # of a row with fewer, and of one with more columns than samples
        np.max([lemmas.jumps_at_knots(*lemmas.random_row(seed, m, d), KNOT_WIDTHS) for m, d in KNOT_SIZES], axis=0)
        for seed in seeds
    ]
    small, large = (lemmas.g_at_zero(seeds[0], factor) for factor in (0.1, 3.0))
    values: dict[str, Any] = {
        "g_largest_rise": path["largest_rise"],
        "g_beyond_lambda_max": path["beyond"],
        "g_second_difference": [lemmas.linear_between_knots(seed) for seed in seeds],
        "g_jump_wide": [float(each[0]) for each in jumps],
        "g_jump_narrow": [float(each[-1]) for each in jumps],
        "g_jump_exponent": [float(np.polyfit(np.log(KNOT_WIDTHS), np.log(each), 1)[0]) for each in jumps],
        "g_zero_over_bound_small": small["g"] / small["bound"],
        "g_zero_over_bound_large": large["g"] / large["bound"],
        "equivalence_error": [lemmas.equivalence(seed) for seed in seeds],
    }
    values |= {f"lemma_3_{key}": value for key, value in lemmas.proximal_gradient(seeds[0]).items()}
    values |= {f"lemma_4_{key}": value for key, value in lemmas.lemma_4(seeds[0]).items()}
    values["rank_share"] = float(np.linalg.matrix_rank(images.G)) / len(images.G)
    return values


def other_methods(rows: BallRows, kappa: float, seed: int) -> dict[str, Any]:
    """What the choice of bisection leaves out.

    Returns:
        `projection_share_mM_dD` of a projection in the time of a gradient; `screened_share` of the coefficients, and
        `screened_wrong`, those that are not zero; `pursuit_...` and `ball_...` of basis pursuit; `ball_row` and
        `ball_state`, the objectives of the two balls.
    """
    values: dict[str, Any] = {
        f"projection_share_m{m}_d{d}": (lemmas.projection_share(m, d), "%") for m, d in ((500, 896), (4000, 896))
    }
    found = screen(rows.G, rows.C, rows.zz, kappa=kappa)
    values["screened_share"] = 100 * float(found.certified.mean()), "%"
    values["screened_wrong"] = int((found.certified & (found.A != 0)).sum())
    values |= lemmas.basis_pursuit(seed)
    return values | {f"ball_{key}": value for key, value in compute.ball_moved(rows, kappa).items()}


def start_sweeps(rows: BallRows, kappa: float, eps: float) -> dict[str, int]:
    """Sweeps of Algorithm 2 over the first 40 rows, `sweeps_START` with the starts of `compute.starts`."""
    found = compute.starts(rows, np.arange(min(40, len(rows.C))), kappa=kappa, eps=eps)
    return {f"sweeps_{key}": value for key, value in found.items()}
