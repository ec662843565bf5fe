"""What the volatility chapter records and tabulates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from data_gen.market.minute_bars import MinuteBars
from data_gen.market.stylised_facts import stylised_facts
from data_gen.market.volatility import samples
from reproduction.book.claims import CLAIMS, read_yaml
from reproduction.book.results import summary
from reproduction.ch5_volatility import task
from reproduction.ch5_volatility.compute import CONTROL_LABELS, EDGES, SIDES, VolatilityStudy
from reproduction.ch5_volatility.scores import SCORE_LABELS
from reproduction.core.scores import predict
from reproduction.models.har import past_variances
from reproduction.models.transformer import SequentialEncoder

# The scores that a reader needs first, and the others.
SHOWN = ("mape", "log_r2", "mean_ratio")
OTHERS = ("median_ape", "qlike", "rmse", "not_positive")
SHORT = {"price": "measured", "raw": "unscaled", "price_sd": "deviation as target", "price_mape": "MAPE as loss"}
FACT_PERIODS = {
    "late 2021": ("2021-10-01", "2021-12-31"),
    "2018": ("2018-01-01", "2018-12-31"),
    "late 2020": ("2020-07-01", "2020-12-31"),
}
# Every fourth session is enough for a line that averages over 21 of them.
THINNED = 4
# The papers' order of the rows of their table, best first.
PUBLISHED_ORDER = ("implicit", "mlp", "linear", "lstm", "transformer")


def published_values() -> dict[str, dict[str, float]]:
    """Published MAPE, model -> {"train", "test"}; the implicit row stands for both implicit models, as the papers leave
    open which it is."""
    rows = {claim["id"]: claim["published"] for claim in read_yaml(CLAIMS)}  # one reading: the file is long
    found = {name: dict(rows[f"ch5-t53-amc-{name}"]) for name in PUBLISHED_ORDER}
    return found | {"implicit_rnn": found["implicit"]}


def study_values(study: VolatilityStudy) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scores and sizes, and the curves of calibration and of followed series, as figures and claims read them."""
    found: dict[str, Any] = {}
    curves: dict[str, Any] = {}
    for form, models in study.scores.items():
        for name, sides in models.items():
            for side, values in sides.items():
                for score, numbers in values.items():
                    found[f"{score}_{form}_{name}_{side}"] = numbers, "$²" if score == "rmse" else ""
    found["level_edges"] = EDGES
    for form, models in study.calibration.items():
        for name, sides in models.items():
            for side, rows in sides.items():
                curves[f"calibration/{form}/{name}/{side}"] = rows
    for key, seeds in study.daily.items():
        for seed, (sessions, values) in seeds.items():
            curve = {"date": [str(day) for day in sessions[::THINNED]], "value": values[::THINNED]}
            if key == "actual":
                curves[f"actual/{seed}"] = curve
            elif seed == study.seeds[0]:
                curves[f"follow/{'/'.join(key)}"] = curve
    for name, values in study.real.items():
        for score, numbers in values.items():
            found[f"real_{score}_{name.replace('/', '_').replace('-', '_')}"] = numbers
    for form, trained in study.studies.items():
        for name, histories in trained.histories.items():
            found[f"diverged_{form}_{name}"] = [float(history.reason != "completed") for history in histories]
    for name, count in study.studies.get("price", next(iter(study.studies.values()))).parameters.items():
        found[f"parameters_{name}"] = count
    found["training_cpu_seconds"] = study.cpu_seconds, "s"
    return found, curves


def score_table(study: VolatilityStudy, group: str, shown: Sequence[str] = SHOWN):
    """Scores of one form, or of the controls, in training and in 2021: a DataFrame of texts.

    Args:
        study: what was measured.
        group: key of `FORMS`, or "control"; a form's table holds the forecasts 0, training mean and log-HAR too.
        shown: names of scores.
    """
    import pandas as pd

    labels = CONTROL_LABELS if group == "control" else task.LABELS
    rows = {labels[name]: study.scores[group][name] for name in study.scores[group]}
    if group != "control":
        rows |= {
            f"control: {CONTROL_LABELS[name]}": study.scores["control"][name] for name in ("zero", "mean", "log_har")
        }
    return pd.DataFrame(
        {
            label: {
                f"{SCORE_LABELS[score]}, {_side(side)}": summary(sides[side][score], 2)
                for score in shown
                for side in SIDES
            }
            for label, sides in rows.items()
        }
    ).T


def year_table(seeds: Sequence[int]):
    """Price, volume and ten-minute variance of each year of the markets.

    Args:
        seeds: of the markets.

    Returns:
        Values "mean_variance_YEAR", "median_variance_YEAR", "jump_mean" and "jump_median" (2021 over the training
        years), "jump_mean_2020" (2021 over 2020), and the dates and lengths that define the task; and a table.
    """
    found: dict[str, Any] = {}
    import pandas as pd

    rows: dict[int, dict[str, list[float]]] = {}
    jump: dict[str, list[float]] = {"mean": [], "median": [], "mean_2020": []}
    levels, carried, zero = [], [], []
    for seed in seeds:
        bars = task.market(seed)
        every = samples(bars, task.LOOK_BACK, task.HORIZON, task.HORIZON)
        variance = every.variance
        year = every.date.astype("datetime64[Y]").astype(int) + 1970
        all_years = bars.date.astype("datetime64[Y]").astype(int) + 1970
        for each in np.unique(year).tolist():
            row = rows.setdefault(
                each,
                {"mean price ($)": [], "shares a day (M)": [], "mean variance ($²)": [], "median variance ($²)": []},
            )
            of_year = all_years == each
            row["mean price ($)"].append(float(bars.close[of_year].mean()))
            row["shares a day (M)"].append(float(bars.volume[of_year].sum() / len(np.unique(bars.day[of_year])) / 1e6))
            row["mean variance ($²)"].append(float(variance[year == each].mean()))
            row["median variance ($²)"].append(float(np.median(variance[year == each])))
        train = year < task.YEAR
        jump["mean"].append(float(variance[~train].mean() / variance[train].mean()))
        jump["median"].append(float(np.median(variance[~train]) / np.median(variance[train])))
        jump["mean_2020"].append(float(variance[~train].mean() / variance[year == task.YEAR - 1].mean()))
        levels.append(float(np.quantile(past_variances(every[train].past, (task.LOOK_BACK,)), 0.99)))
        carried.append(float(1 - bars.traded[all_years < task.YEAR].mean()))
        zero.append(float(np.mean(variance[train] < 1e-9)))
        last = tuple(str(end(every.date[side])) for side in (train, ~train) for end in (np.min, np.max))
    for each, row in rows.items():
        found[f"mean_variance_{each}"] = row["mean variance ($²)"], "$²"
        found[f"median_variance_{each}"] = row["median variance ($²)"], "$²"
        found[f"mean_price_{each}"] = row["mean price ($)"], "$"
    for name, values in jump.items():
        found[f"jump_{name}"] = values
    found["train_level_99"] = levels, "$²"
    found["minutes_without_trade"] = carried
    found["windows_without_movement"] = zero
    for name, day in zip(("train_first", "train_last", "test_first", "test_last"), last, strict=True):
        found[name] = day
    found["look_back"] = task.LOOK_BACK, "min"
    found["horizon"] = task.HORIZON, "min"
    return found, pd.DataFrame(
        {year: {name: summary(values) for name, values in row.items()} for year, row in rows.items()}
    ).T


def facts_table(seed: int, real: MinuteBars | None):
    """Stylised facts of three periods of the market and, where there are any, of real bars: values
    `fact/PERIOD/FACT`, and a table."""
    found: dict[str, Any] = {}
    import pandas as pd

    bars = task.market(seed)
    columns = {} if real is None else {"real, spring 2022": stylised_facts(real)}
    columns |= {f"synthetic, {label}": stylised_facts(bars.between(*period)) for label, period in FACT_PERIODS.items()}
    for label, facts in columns.items():
        for fact, value in facts.items():
            found[f"fact/{label}/{fact}"] = value
    return found, pd.DataFrame(
        {
            label: {fact: f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}" for fact, value in facts.items()}
            for label, facts in columns.items()
        }
    )


def published_table(study: VolatilityStudy, published: Mapping[str, Mapping[str, float]]):
    """Table 5.3, AMC columns, beside the MAPE measured in the papers' form and in three that differ from it in one
    choice.

    Args:
        study: what was measured.
        published: as `published_values`.
    """
    import pandas as pd

    rows = {}
    for side in SIDES:
        for name in task.PAPER:
            row = {"published": f"{published[name]['train' if side == 'train' else 'test']:g}"}
            for form, label in SHORT.items():
                sides = study.scores.get(form, {}).get(name)
                row[label] = "" if sides is None else summary(sides[side]["mape"], 2)
            rows[_side(side), task.LABELS[name]] = row
        for name in ("zero", "mean"):
            label = f"control: {CONTROL_LABELS[name]}"
            rows[_side(side), label] = {SHORT["price"]: summary(study.score("control", name, side, "mape"), 2)}
    return pd.DataFrame.from_dict(rows, orient="index").fillna("")


def claim_values(study: VolatilityStudy, published: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Seed by seed, what the papers' sentences about Table 5.3 need, in the papers' form, and the published
    values.

    Args:
        study: what was measured.
        published: as `published_values`.
    """
    found: dict[str, Any] = {}
    test = {name: study.score("price", name, task.YEAR, "mape") for name in task.PAPER}
    train = {name: study.score("price", name, "train", "mape") for name in task.PAPER}
    seeds = range(min(map(len, test.values())))
    baselines = ("mlp", "linear", "lstm", "transformer")
    for name in ("implicit", "implicit_rnn"):
        found[f"best_baseline_over_{name}"] = [min(test[b][k] for b in baselines) / test[name][k] for k in seeds]
        found[f"best_baseline_over_{name}_train"] = [
            min(train[b][k] for b in baselines) / train[name][k] for k in seeds
        ]
    free = study.score("price", "mlp_bias_free", task.YEAR, "mape")
    found["mlp_bias_free_over_implicit"] = [free[k] / test["implicit"][k] for k in seeds]
    order = [" < ".join(sorted(PUBLISHED_ORDER, key=lambda name: test[name][k])) for k in seeds]
    found["order_in_2021"] = "; ".join(order)
    found["order_as_published"] = [float(o == " < ".join(PUBLISHED_ORDER)) for o in order]
    found["implicit_first"] = [
        float(min(test["implicit"][k], test["implicit_rnn"][k]) < min(test[b][k] for b in baselines)) for k in seeds
    ]
    five = ("implicit", *baselines)
    rmse = {name: [study.score("price", name, side, "rmse") for side in SIDES] for name in five}
    found["models_with_lower_mape_in_2021"] = [sum(test[n][k] < train[n][k] for n in five) for k in seeds]
    found["models_with_higher_rmse_in_2021"] = [sum(rmse[n][1][k] > rmse[n][0][k] for n in five) for k in seeds]
    found["mape_of_zero"] = study.score("control", "zero", task.YEAR, "mape")
    for name, row in published.items():
        found[f"published_{name}_train"] = row["train"]
        found[f"published_{name}_{task.YEAR}"] = row["test"]
    found["published_below_zero_forecast"] = sum(row["test"] < 1 or row["train"] < 1 for row in published.values())
    quotients = {name: published[name]["test"] / published["implicit"]["test"] for name in baselines}
    for name, value in quotients.items():
        found[f"published_quotient_{name}"] = value
    found["published_train_quotient_mlp"] = published["mlp"]["train"] / published["implicit"]["train"]
    best = [max(study.score("price", n, task.YEAR, "log_r2")[k] for n in task.PAPER) for k in seeds]
    found["best_log_r2_in_the_papers_form"] = best
    if "difference" in study.scores:
        free = ("mlp_bias_free", "implicit", "implicit_rnn")
        found["lowest_log_r2_of_homogeneous_models"] = [
            min(study.score("difference", n, task.YEAR, "log_r2")[k] for n in free) for k in seeds
        ]
        found["log_har_minus_best_homogeneous"] = [
            study.score("control", "log_har", task.YEAR, "log_r2")[k]
            - max(study.score("difference", n, task.YEAR, "log_r2")[k] for n in free)
            for k in seeds
        ]
    found["mean_forecast_in_the_papers_form"] = study.score("price", "implicit", task.YEAR, "mean_ratio")
    return found


def transformer_defect(study: VolatilityStudy, seed: int):
    """Spread of a transformer's outputs over inputs of very different size: as trained, fresh, and with the
    normalisation put first.

    For the last, the departure from linearity, |f(a + b) - f(a) - f(b) + f(0)| / spread, is measured too.
    """
    found: dict[str, Any] = {}
    import pandas as pd

    rng = np.random.default_rng(seed)
    u = torch.as_tensor(rng.normal(0, 10.0 ** rng.uniform(-1, 2, (80, 1)), (80, task.LOOK_BACK)).astype(np.float32))
    models = {
        "fresh": SequentialEncoder(task.LOOK_BACK, seed=seed),
        "norm first": SequentialEncoder(task.LOOK_BACK, norm_first=True, seed=seed),
    }
    trained = study.studies["price"].models.get("transformer")
    if trained:
        models = {"as trained": trained[0]} | models
    rows = {}
    for name, model in models.items():
        double = model.double().eval()
        a, b, zero = (x.double() for x in (u[:40], u[40:], torch.zeros_like(u[:40])))
        f = [predict(double, x) for x in (a + b, a, b, zero)]
        spread = float(torch.cat(f[1:3]).std())
        bent = float((f[0] - f[1] - f[2] + f[3]).abs().max())
        model.float()
        rows[name] = {
            "standard deviation of the output": f"{spread:.2g}",
            "departure from linearity": "" if not spread else f"{bent / spread:.1g}",
        }
        found[f"transformer_spread_{name.replace(' ', '_')}"] = spread
        found[f"transformer_bent_{name.replace(' ', '_')}"] = bent / spread if spread else math.nan
    return found, pd.DataFrame(rows).T


def real_table(study: VolatilityStudy):
    """Scores on real bars of what was fitted to the market, or None without such bars."""
    import pandas as pd

    if not study.real:
        return None
    labels = {f"difference/{name}": f"{label}, differences" for name, label in task.LABELS.items()}
    return pd.DataFrame(
        {
            labels.get(name, name): {
                SCORE_LABELS[score]: summary(values[score], 2)
                for score in ("mape", "median_ape", "log_r2", "qlike", "mean_ratio")
            }
            for name, values in study.real.items()
        }
    ).T


def homogeneity_table(study: VolatilityStudy, profile: str, factor: float = 50.0, n_train: int | None = None):
    """Mean |y(t u) - t y(u)| over mean t |y(u)|, form "difference", in double precision: zero for models without
    biases."""
    found: dict[str, Any] = {}
    import pandas as pd

    rows: dict[str, list[float]] = {}
    for place, seed in enumerate(study.seeds):
        u = torch.as_tensor(task.data("difference", seed, profile, n_train=n_train).u_train[:200]).double()
        for name, models in study.studies["difference"].models.items():
            if place >= len(models):
                continue
            double: Any = models[place].double()
            near, far = predict(double, u), predict(double, factor * u)
            rows.setdefault(name, []).append(float((far - factor * near).abs().mean() / (factor * near.abs().mean())))
            models[place].float()
    for name, values in rows.items():
        found[f"homogeneity_{name}"] = values
    return found, pd.DataFrame(
        {
            task.LABELS[name]: {f"mean |y({factor:g}u) − {factor:g}y(u)| / mean |{factor:g}y(u)|": summary(values, 2)}
            for name, values in rows.items()
        }
    ).T


def _side(side: Any) -> str:
    return "training" if side == "train" else str(side)
