"""The volatility study: every model in every form, scored on both sides of January 2021 beside the controls."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import nn

from data_gen.core.dataset import Dataset
from data_gen.market.bars import check_bars
from data_gen.market.minute_bars import MinuteBars
from data_gen.market.volatility import samples, to_variance
from reproduction.ch5_volatility import task
from reproduction.ch5_volatility.scores import calibration, rolling_mean, scores
from reproduction.core.budgets import budgets
from reproduction.core.scores import predict
from reproduction.core.study import Study, run_study
from reproduction.models.har import controls, past_variances

KEY_MODULE = "reproduction.ch5_volatility.task"
SIDES = ("train", task.YEAR)
# Variance of the past hour, dollars^2: half decades.
EDGES = tuple(10.0**k for k in np.arange(-7, 1.01, 0.5))
FOLLOWED = ("linear", "mlp", "mlp_bias_free", "implicit", "implicit_rnn")
BUDGET_FORMS = ("price", "difference")
REAL_FILE, REAL_STOCK = "us_minute_bars.npz", "AMC"
CONTROL_LABELS = {
    "zero": "0",
    "mean": "training mean",
    "median": "training median",
    "least_mape_constant": "constant of least MAPE",
    "persistence": "persistence",
    "price_regression": "least squares on prices",
    "har": "HAR",
    "log_har": "log-HAR",
    "log_har_scaled": "log-HAR × factor of least MAPE",
}
Scores = dict[Any, dict[str, list[float]]]


@dataclass
class VolatilityStudy:
    """What was measured; lists run over the seeds, those of sequential models over the first `sequence_seeds` of them.

    Args:
        seeds: of market, drawn samples, weights and shuffling.
        scores: form (or "control") -> model -> side ("train" or 2021) -> score -> values.
        calibration: the same for models of `FOLLOWED` -> side -> one row a seed, over the bins of `EDGES`.
        daily: (form, model) or "actual" -> seed -> (sessions, 21-day means).
        studies: form -> the trainings.
        real: "persistence", "log-HAR" and form/model -> scores on real bars, none where there are no real bars.
    """

    seeds: Sequence[int]
    scores: dict[str, dict[str, Scores]] = field(default_factory=dict)
    calibration: dict[str, dict[str, dict[Any, list[list[float]]]]] = field(default_factory=dict)
    daily: dict[Any, dict[int, tuple[list, list[float]]]] = field(default_factory=dict)
    studies: dict[str, Study] = field(default_factory=dict)
    real: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all trainings."""
        return sum(study.cpu_seconds for study in self.studies.values())

    def score(self, form: str, model: str, side: Any, name: str) -> list[float]:
        """One score, a value a seed."""
        return self.scores[form][model][side][name]


@contextmanager
def flushed_subnormals() -> Iterator[None]:
    """Numbers below 1e-38 count as 0 in a with-block.

    A gradient that fades over sixty steps ends in subnormal numbers, on which a processor is a hundred times slower and
    no relative tolerance can be met.
    """
    supported = torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if supported:
            torch.set_flush_denormal(False)


def run_volatility(
    profile: str,
    seeds: Sequence[int],
    forms: Sequence[str] = tuple(task.FORMS),
    *,
    n_train: int | None = None,
    epochs_scale: float = 1.0,
    resume: bool = False,
    real: MinuteBars | None = None,
) -> VolatilityStudy:
    """Train and score everything.

    Args:
        profile, seeds: as `reproduction.ch5_volatility.task`.
        forms: keys of its `FORMS`.
        n_train: training samples, in place of the profile's.
        epochs_scale: multiplies the epochs.
        resume: keep trained models in the cache.
        real: bars on which persistence, log-HAR and the models of the form "difference" are scored too, as trained.
    """
    study, sequential = VolatilityStudy(list(seeds)), list(seeds)[: task.settings(profile)["sequence_seeds"]]
    for seed in seeds:
        add_controls(
            study, task.data("price", seed, profile, n_train=n_train), seed, task.settings(profile)["stride"], real
        )
    for form in forms:
        with flushed_subnormals():
            study.studies[form] = run_study(
                f"volatility-{form}",
                lambda seed, form=form: task.data(form, seed, profile, n_train=n_train),
                lambda seed, form=form: task.models(form, seed, profile, sequential=seed in sequential),
                seeds,
                epochs_scale=epochs_scale,
                key_module=KEY_MODULE if resume else None,
            )
            for place, seed in enumerate(seeds):
                data = task.data(form, seed, profile, n_train=n_train)
                for name, models in study.studies[form].models.items():
                    if place >= len(models):  # a sequential model
                        continue
                    add_model(study, form, name, models[place], data, seed)
                    if real is not None and form == "difference":
                        add_real(study, f"{form}/{name}", models[place], data, real)
    return study


def training_budgets(study: VolatilityStudy, profile: str, n_train: int | None = None) -> dict[str, Any]:
    """Budgets of the models of the papers' form and of the homogeneous one, see `budgets`: the model's name there is
    FORM_NAME.

    Args:
        study, profile, n_train: as for `run_volatility`.
    """
    found: dict[str, Any] = {}
    for form in (form for form in BUDGET_FORMS if form in study.studies):
        recipes = {f"{form}_{name}": recipe for name, (_, recipe) in task.models(form, study.seeds[0], profile).items()}
        histories = {f"{form}_{name}": runs for name, runs in study.studies[form].histories.items()}
        found |= budgets(histories, recipes, n_train or task.settings(profile)["n_train"])
    return found


def forecast(model: nn.Module, u: Float[np.ndarray, "N T"], meta: Mapping[str, Any]) -> Float[np.ndarray, " N"]:
    """A model's forecasts in dollars^2.

    Args:
        model: trained on a data set with this meta.
        u: inputs in its units.
        meta: of the data set.
    """
    return to_variance(predict(model, u).numpy(), meta)


def add_scores(
    store: dict[str, Scores], name: str, side: Any, value: Float[np.ndarray, " N"], variance: Float[np.ndarray, " N"]
) -> None:
    """Append the scores of one seed."""
    for score, number in scores(value, variance).items():
        store.setdefault(name, {}).setdefault(side, {}).setdefault(score, []).append(number)


def add_controls(study: VolatilityStudy, data: Dataset, seed: int, stride: int, real: MinuteBars | None = None) -> None:
    """Fit and score the controls of a seed, and follow the actual variance."""
    history, variance = data.meta["history"], data.meta["variance"]
    fitted = controls(history["train"], variance["train"])
    for name, control in fitted.items():
        for side in SIDES:
            add_scores(study.scores.setdefault("control", {}), name, side, control(history[side]), variance[side])
    every = samples(task.market(seed), task.LOOK_BACK, task.HORIZON, stride)
    follow(study, "actual", seed, every.date, every.variance)
    follow(study, ("control", "log_har"), seed, every.date, fitted["log_har"](every.past))
    if real is not None:
        past, coming = real_samples(real)
        for name, key in (("persistence", "persistence"), ("log_har", "log-HAR")):
            for score, number in scores(fitted[name](past), coming).items():
                study.real.setdefault(key, {}).setdefault(score, []).append(number)


def add_model(study: VolatilityStudy, form: str, name: str, model: nn.Module, data: Dataset, seed: int) -> None:
    """Score one trained model, and keep what its figures need."""
    inputs = {"train": data.u_train, task.YEAR: data.test[task.YEAR][0]}
    values = {side: forecast(model, inputs[side], data.meta) for side in SIDES}
    for side in SIDES:
        add_scores(study.scores.setdefault(form, {}), name, side, values[side], data.meta["variance"][side])
    if name not in FOLLOWED:
        return
    for side in SIDES:
        level = past_variances(data.meta["history"][side], (task.LOOK_BACK,))[:, 0]
        row = calibration(values[side], data.meta["variance"][side], level, EDGES)
        study.calibration.setdefault(form, {}).setdefault(name, {}).setdefault(side, []).append(row)
    date = np.concatenate([data.meta["date"][side] for side in SIDES])
    follow(study, (form, name), seed, date, np.concatenate([values[side] for side in SIDES]))


def follow(study: VolatilityStudy, key: Any, seed: int, date: np.ndarray, value: Float[np.ndarray, " N"]) -> None:
    """Keep the 21-day mean of a series of samples in order of time."""
    sessions, start = np.unique(date, return_index=True)
    study.daily.setdefault(key, {})[seed] = rolling_mean(
        dict(zip(sessions.tolist(), np.split(value, start[1:]), strict=True))
    )


def real_rows() -> tuple[Shaped[np.ndarray, " N"], dict[str, np.ndarray]] | None:
    """Times and columns of the stock's real bars, spring 2022, for `check_bars`; None where IMPLICIT_DATA has none."""
    folder = os.environ.get("IMPLICIT_DATA")
    path = Path(folder).expanduser() / REAL_FILE if folder else None
    if path is None or not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as archive:
        time = archive[f"{REAL_STOCK}_time"].astype(np.int64).astype("datetime64[s]")
        prices = archive[f"{REAL_STOCK}_ohlc"].astype(np.float64).T
        values = dict(zip(("open", "high", "low", "close"), prices, strict=True)) | {
            "volume": archive[f"{REAL_STOCK}_volume"]
        }
    return time, values


def real_bars() -> MinuteBars | None:
    """Real minute bars of the stock, spring 2022, where the folder IMPLICIT_DATA has them; None elsewhere."""
    rows = real_rows()
    return None if rows is None else check_bars(*rows, source=f"{REAL_STOCK}, spring 2022")[0]


def real_samples(bars: MinuteBars) -> tuple[Float[np.ndarray, "N T"], Float[np.ndarray, " N"]]:
    """Past prices and coming variances of real bars, whose targets do not overlap."""
    every = samples(bars, task.LOOK_BACK, task.HORIZON, task.HORIZON)
    return every.past, every.variance


def add_real(study: VolatilityStudy, key: str, model: nn.Module, data: Dataset, bars: MinuteBars) -> None:
    """Score a model of the form "difference" on real bars as it was trained on the market."""
    past, coming = real_samples(bars)
    u = (np.diff(past, axis=1) / data.meta["input_scale"]).astype(np.float32)
    for score, number in scores(forecast(model, u, data.meta), coming).items():
        study.real.setdefault(key, {}).setdefault(score, []).append(number)
