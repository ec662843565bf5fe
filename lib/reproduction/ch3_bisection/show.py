"""Figures and tables of the notebook of bisection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.book.claims import published_value
from reproduction.book.results import summary
from reproduction.ch3_bisection.measures import EPSILONS, KNOT_WIDTHS, SCALES, UNIT_FACTORS, named
from reproduction.core.figures import described
from reproduction.core.plots import legend_below

LABELS = {
    "uniform": "20 Newsgroups, uniform",
    "theorem": "20 Newsgroups, Theorem 2.4",
    "fashion": "Fashion-MNIST, Theorem 2.4",
}
PUBLISHED = (0.1, 0.5, 0.99)  # radii of Table 3.3


def outer_labels(kappas: Sequence[float]) -> dict[str, str]:
    """Label of a run of Algorithm 1 -> its part of the keys."""
    ends = {"solved": "solved", "stopped": "stopped after 5 sweeps"}
    return {
        f"kappa {kappa:g}, {start}, inner loop {end}": named(f"{start}/{budget}/{kappa:g}")
        for kappa in kappas
        for budget, end in ends.items()
        for start in ("cold", "warm")
    }


def outer_figure(source: Mapping[str, Any]):
    """Figures 3.3 and 3.5: accuracy above, gap below, over outer iterations (a results file's content)."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 1, figsize=(6.4, 8.6), sharex=True)
    drawn = (("warm/solved", "-", "o"), ("warm/stopped", "--", "v"), ("cold/stopped", ":", "x"))
    for axes, key, label in zip(
        panels, ("accuracy", "gap"), ("test accuracy (%)", "median gap / (||z||²/2)"), strict=True
    ):
        for k, kappa in enumerate(source["values"]["kappas"]):
            for name, line, marker in drawn:
                values = np.abs(source["curves"][f"outer/{name}/{kappa:g}"][key])
                text = f"κ = {kappa:g}, {name.replace('/', ', ')}"
                axes.plot(range(1, len(values) + 1), values, line, marker=marker, color=f"C{k}", label=text)
        axes.set(ylabel=label)
    panels[1].set(xlabel="outer iteration", yscale="log")
    panels[0].set_title(f"20 Newsgroups, uniform scale ({described(source)})", fontsize="medium")
    legend_below(panels[1])
    return figure


def outer_remark(values: Mapping[str, Any]):
    """What recorded values say of the radii."""
    from IPython.display import Markdown

    share = summary([100 * one for one in values["solved_active_share"]])
    return Markdown(
        f"The accuracies at the end of the three radii differ by {values['solved_accuracy_over_kappas']:.2g} points in"
        f" this build, although the ball holds {share} % of the rows: in the uniform scale the states carry little, and"
        " outputs read the inputs directly. The gaps tell the radii apart, accuracy does not. One seed is drawn."
    )


def speed_table(kappas: Sequence[float]) -> dict[str, Any]:
    """Table 3.3 as arguments of `Results.rows`."""
    parts, texts = {}, {}
    for scale in SCALES:
        for kappa in kappas:
            label = f"{scale}, kappa {kappa:g}"
            parts[label] = named(f"{scale}_k{kappa:g}")
            known = published_value(named(f"ch3-t33-20news-k{kappa:g}")) if kappa in PUBLISHED else {}
            texts[label] = {
                "published, warm start": str(known.get("warm start", "")),
                "published, 30 %": str(known.get("30 % data", "")),
            }
    columns = {
        "solves, cold": "solves_{}",
        "solves, warm": "warm_solves_{}",
        "warm start, sweeps": "warm_gain_{}",
        "seconds": "warm_gain_seconds_{}",
        "other inner solver": "support_gain_{}",
        "30 % of data, sweeps": "data_epochs_{}",
        "30 %, on samples": "data_on_samples_{}",
        "and warm": "data_warm_on_samples_{}",
    }
    return {"parts": parts, "columns": columns, "texts": texts}


def defect_table(kappas: Sequence[float]) -> dict[str, Any]:
    """Defects of Algorithm 1 as printed, as arguments of `Results.rows`."""
    columns = {
        "median gap": "gap",
        "largest violation": "violation",
        "infeasible outputs, %": "infeasible",
        "rows without output": "no_output",
        "start, 2-norm over inf-norm": "start_ratio",
    }
    return {
        "parts": {
            f"{label}, kappa {kappa:g}": named(f"{scale}_k{kappa:g}")
            for scale, label in LABELS.items()
            for kappa in kappas
        },
        "columns": {label: f"printed_{key}_{{}}" for label, key in columns.items()},
    }


def unit_table(cases: Sequence[Mapping[str, float]]):
    """Solves and gap of one row in several units, from `measures.units_and_sweeps`."""
    import pandas as pd

    rows = {
        f"f = {factor}": {
            "solves": case["solves"],
            "log2(u/eps)": case["predicted"],
            "log2(1/eps)": case["published"],
            "gap": f"{case['gap']:.1e}",
        }
        for factor, case in zip(UNIT_FACTORS, cases, strict=True)
    }
    return pd.DataFrame(rows).T


def sweep_table(inner: Mapping[str, Sequence[float]], values: Mapping[str, Any]):
    """Sweeps at each accuracy, and the recorded power of log(1/eps)."""
    import pandas as pd

    rows = {}
    for name, counts in inner.items():
        rows[f"{name} start"] = {
            f"1e{int(np.log10(eps))}": int(count) for eps, count in zip(EPSILONS, counts, strict=True)
        } | {"power of log(1/eps)": f"{values[f'log_exponent_{name}']:.2f}"}
    return pd.DataFrame(rows).T


def lemma_table(values: Mapping[str, Any]):
    """What the lemmas measure, from the recorded values."""
    import pandas as pd

    third, fourth = (
        {key.removeprefix(start): value for key, value in values.items() if key.startswith(start)}
        for start in ("lemma_3_", "lemma_4_")
    )
    rows = {
        "Lemma 1: largest rise of g on a grid": f"{values['g_largest_rise']:.1e}",
        "g at and beyond lambda_max": f"{values['g_beyond_lambda_max']:.1e}",
        "second difference between knots": summary(values["g_second_difference"]),
        f"change of g across a knot within {KNOT_WIDTHS[0]:g} of lambda_max": summary(values["g_jump_wide"]),
        f"within {KNOT_WIDTHS[-1]:g}": summary(values["g_jump_narrow"]),
        "power of the width that fits (a jump: 0)": summary(values["g_jump_exponent"]),
        "g(0) over the printed bound, small M (refutes it)": f"{values['g_zero_over_bound_small']:.3g}",
        "the same with lambda_min(M'M) > m": f"{values['g_zero_over_bound_large']:.3g}",
        "Lemma 2: difference of the two solutions": summary(values["equivalence_error"]),
        "Lemma 3: rise of h alone (refutes it)": f"{third['smooth_rises']:.3g}",
        "rise of the composite": f"{third['composite_rises']:.1e}",
        "factor a step, and its bound": f"{third['rate']:.3f}, {third['bound']:.3f}",
        "Lemma 4: ||a||_1 / ||a||_inf of ones, and sqrt(n)": (
            f"{fourth['norm_ratio']:.0f}, {fourth['printed_ratio']:.0f}"
        ),
        "difference of values, and the printed bound": f"{fourth['values']:.3g}, {fourth['printed']:.3g}",
        "sub-optimality, and the corrected bound": f"{fourth['suboptimality']:.3g}, {fourth['corrected']:.3g}",
    }
    return pd.Series(rows, name="measured").to_frame()


def path_figure(source: Mapping[str, Any]):
    """The norm of the LASSO solution against lambda (a results file's content)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.2, 3.4))
    axes.plot(source["curves"]["g"]["share"], source["curves"]["g"]["norm"], "o-")
    axes.set(xlabel="λ / ||M'z||∞", ylabel="g(λ)", title=f"scale of Theorem 2.4 ({described(source)})")
    return figure


def other_table(values: Mapping[str, Any]):
    """What is recorded of projections, screening, basis pursuit and the two balls."""
    import pandas as pd

    residuals = f"{values['pursuit_residual']:.1e}, {values['ball_residual']:.2g}"
    rows = {
        "projection, % of one gradient, 500 x 896": f"{values['projection_share_m500_d896']:.2g}",
        "4000 x 896": f"{values['projection_share_m4000_d896']:.2g}",
        "coefficients certified zero by a sphere test, %": f"{values['screened_share']:.1f}",
        "of these non-zero in the solution": str(values["screened_wrong"]),
        "residual of basis pursuit and of the ball problem": residuals,
        "median objective / (||z||²/2), ball on (a, b) and on a": (
            f"{values['ball_row']:.3g}, {values['ball_state']:.3g}"
        ),
    }
    return pd.Series(rows, name="measured").to_frame()
