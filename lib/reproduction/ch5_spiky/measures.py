"""What the notebook of the spiky series records: errors of networks and controls, ratios, forecasts that are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_gen.core.dataset import Dataset
from data_gen.synthetic.spiky import spike
from reproduction.ch5_spiky import task
from reproduction.ch5_spiky.compute import (
    closest_epoch,
    control_forecasts,
    floor,
    in_raw_units,
    resemblance,
    split_error,
    stretch,
    unit_factors,
)
from reproduction.core.scores import count_parameters, predict
from reproduction.core.study import Study, ratio, run_study
from reproduction.models.decoders import DecoderOnly

Published = Mapping[str, Mapping[str, float]]  # network -> its "train" and "test" error
UNITS = ("z-score units", "[0, 1] units")


@dataclass(frozen=True)
class Runs:
    """Seeds and budget of a notebook's run.

    Args:
        seeds: of the controls.
        profile: decides sizes and epochs.
        epochs_scale: multiplies the epochs of every training.
    """

    seeds: Sequence[int]
    profile: str
    epochs_scale: float = 1.0

    @property
    def taught(self) -> list[int]:
        """Seeds of the networks, which are fewer."""
        return list(self.seeds)[: task.settings(self.profile)["network_seeds"]]

    def data(self, seed: int, variant: str = task.DEFAULT_VARIANT, **options: Any) -> Dataset:
        """Windows of one seed, see `task.data`."""
        return task.data(seed, self.profile, variant, **options)

    def study(
        self, name: str, data: Callable[[int], Dataset], models: Callable[[int], Mapping[str, Any]], **options: Any
    ) -> Study:
        """A study of the networks; a long run resumes."""
        key_module = "reproduction.ch5_spiky.task" if self.profile == "full" else None
        given = {"epochs_scale": self.epochs_scale, "key_module": key_module} | options
        return run_study(f"spiky-{name}", data, models, self.taught, **given)


def trained(runs: Runs, variant: str) -> Study:
    """The networks of one reading, trained well on z-scores."""
    return runs.study(
        variant, lambda seed: runs.data(seed, variant), lambda seed: task.models(seed, runs.profile, variant)
    )


def trained_early(runs: Runs) -> Study:
    """The networks on the [0, 1] scale, looked at after each of their first epochs."""
    return runs.study(
        "early",
        lambda seed: runs.data(seed, scaling="unit"),
        lambda seed: task.early_models(seed, runs.profile),
        evaluate_epochs=True,
    )


def trained_briefly(runs: Runs, epochs: int) -> Study:
    """The networks on the [0, 1] scale after a given number of epochs."""
    return runs.study(
        "brief",
        lambda seed: runs.data(seed, scaling="unit"),
        lambda seed: task.early_models(seed, runs.profile, epochs),
        epochs_scale=1.0,
    )


def forecasts_of(runs: Runs, study: Study, seed: int, data: Dataset) -> dict[str, np.ndarray]:
    """Test forecasts of the controls, and of the networks where the seed has trained some."""
    found = {name: pair[1] for name, pair in control_forecasts(data).items()}
    if seed in runs.taught:
        place = runs.taught.index(seed)
        found |= {name: predict(models[place], data.test[0][0]).numpy() for name, models in study.models.items()}
    return found


def errors(runs: Runs, variant: str, study: Study) -> dict[str, dict[str, list[float]]]:
    """Test errors of one reading: forecast, or "floor" for what cannot be foreseen -> unit (`UNITS`) -> one a seed."""
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in (*task.LABELS, "floor")}
    for seed in runs.seeds:
        data = runs.data(seed, variant)
        factor = unit_factors(data)["unit"]
        inside, y = data.meta["target_spiky"]["test"], data.test[0][1]
        pairs["floor"].append((floor(data, **task.VARIANTS[variant])["all"], factor))
        for name, forecast in forecasts_of(runs, study, seed, data).items():
            pairs[name].append((split_error(forecast, y, inside)["all"], factor))
    return {
        name: dict(zip(UNITS, ([error for error, _ in found], [error * factor for error, factor in found])))
        for name, found in pairs.items()
        if found
    }


def recorded_errors(found: Mapping[str, Mapping[str, Mapping[str, list[float]]]]) -> dict[str, tuple[Any, str]]:
    """`READING/FORECAST` in z-score units, and `unit_FORECAST` in [0, 1] units of the main reading."""
    standard, unit = UNITS
    recorded: dict[str, tuple[Any, str]] = {}
    for variant, forecasts in found.items():
        for name, values in forecasts.items():
            recorded[f"{variant}/{name}"] = values[standard], standard
            if variant == task.DEFAULT_VARIANT:
                recorded[f"unit_{name}"] = values[unit], unit
    return recorded


def split_errors(runs: Runs, study: Study) -> dict[str, list[float]]:
    """The main reading inside and outside of spikes, one value a seed.

    Returns:
        `floor_PART` of what cannot be foreseen, and `inside_FORECAST`, `outside_FORECAST` (errors),
        `magnitude_FORECAST`, `correlation_FORECAST`.
    """
    split: dict[str, list[float]] = {}
    for seed in runs.seeds:
        data = runs.data(seed)
        inside, y = data.meta["target_spiky"]["test"], data.test[0][1]
        for name, value in floor(data, **task.VARIANTS[task.DEFAULT_VARIANT]).items():
            split.setdefault(f"floor_{name}", []).append(value)
        for name, forecast in forecasts_of(runs, study, seed, data).items():
            for key, value in (split_error(forecast, y, inside) | resemblance(forecast, y, inside)).items():
                if key != "all":
                    split.setdefault(f"{key}_{name}", []).append(value)
    return split


def early_curves(early: Study) -> dict[str, list[list[float]]]:
    """Seed by seed, the test error after each epoch `early/NAME`, and the training loss of each `early_loss/NAME`."""
    curves = {}
    for name, histories in early.histories.items():
        curves[f"early/{name}"] = [[error[0] for error in history.evaluation] for history in histories]
        curves[f"early_loss/{name}"] = [history.loss for history in histories]
    return curves


def early_errors(early: Study, well: Study, published: Published) -> dict[str, list[float]]:
    """The first epoch of each network beside its errors when trained well, and the epoch nearest to published errors.

    Returns:
        `first_test_NAME`, `first_loss_NAME`, their ratio `early_test_over_loss_NAME`, `trained_test_over_train_NAME`,
        `closest_epoch_NAME` and `closest_factor_NAME`, one value a seed.
    """
    found = {}
    curves = early_curves(early)
    for name in early.histories:
        test, loss = curves[f"early/{name}"], curves[f"early_loss/{name}"]
        closest = [closest_epoch(losses, row, published[name]) for losses, row in zip(loss, test)]
        found[f"first_test_{name}"] = [row[0] for row in test]
        found[f"first_loss_{name}"] = [losses[0] for losses in loss]
        found[f"early_test_over_loss_{name}"] = [row[0] / losses[0] for row, losses in zip(test, loss)]
        found[f"trained_test_over_train_{name}"] = ratio(well.at(name, 0), well.train_errors[name])
        found[f"closest_epoch_{name}"] = [epoch for epoch, _ in closest]
        found[f"closest_factor_{name}"] = [factor for _, factor in closest]
    return found


def ratios(runs: Runs, studies: Mapping[str, Study], early: Study, main: Mapping[str, Any]) -> dict[str, Any]:
    """Ratios of errors, one a seed.

    Args:
        studies: reading -> networks trained well.
        early: from `trained_early`.
        main: `errors` of the main reading.

    Returns:
        LSTM and transformer over implicitRNN, trained well and early; the extremes of the first over all readings;
        autoregression over implicitRNN, and that over what cannot be foreseen.
    """
    well = {name: studies[task.DEFAULT_VARIANT].at(name, 0) for name in task.NETWORKS}
    last = {name: [history.evaluation[-1][0] for history in early.histories[name]] for name in task.NETWORKS}
    found: dict[str, Any] = {}
    for key, source in (("trained", well), ("early", last)):
        for name in ("lstm", "transformer_decoder"):
            found[f"{name}_over_implicit_rnn_{key}"] = ratio(source[name], source["implicit_rnn"])
    every = [ratio(study.at("lstm", 0), study.at("implicit_rnn", 0)) for study in studies.values()]
    linear, least = (main[name][UNITS[0]][: len(runs.taught)] for name in ("autoregression", "floor"))
    return found | {
        "lstm_over_implicit_rnn_largest": float(np.max(every)),
        "lstm_over_implicit_rnn_smallest": float(np.min(every)),
        "ar_over_implicit_rnn": ratio(linear, well["implicit_rnn"]),
        "implicit_rnn_over_floor": ratio(well["implicit_rnn"], least),
    }


def published_ratios(published: Published, main: Mapping[str, Any]) -> dict[str, Any]:
    """Published errors over those of constant and persistence on the [0, 1] scale (`errors` of the main reading), and
    over each other."""
    tested = {name: errors["test"] for name, errors in published.items()}

    def over(name: str, control: str) -> list[float]:
        return [tested[name] / value for value in main[control][UNITS[1]]]

    return {
        "published_constant_ratio_lstm": over("lstm", "constant"),
        "published_constant_ratio_transformer": over("transformer_decoder", "constant"),
        "published_persistence_ratio_implicit_rnn": over("implicit_rnn", "persistence"),
        "published_lstm_over_implicit_rnn": tested["lstm"] / tested["implicit_rnn"],
        "published_transformer_over_implicit_rnn": tested["transformer_decoder"] / tested["implicit_rnn"],
    }


def forecasts(runs: Runs, well: Study, brief: Study, drawn: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Forecasts in the units of the series by networks trained well and briefly.

    Args:
        well, brief: the networks, on z-scores and on the [0, 1] scale.
        drawn: points of the curves.

    Returns:
        Values `KIND_magnitude_NAME`, `KIND_correlation_NAME`, one a seed; curves `forecast/KIND/NAME` and
        `forecast/series` of the first seed.
    """
    values, curves = {}, {}
    where = stretch(runs.data(runs.taught[0]), drawn)
    for kind, source, scaling in (("trained", well, "standard"), ("brief", brief, "unit")):
        for name in task.NETWORKS:
            found = []
            for seed, model in zip(runs.taught, source.models[name], strict=True):
                data = runs.data(seed, scaling=scaling)
                forecast = in_raw_units(predict(model, data.test[0][0]).numpy(), data.meta)
                series = in_raw_units(data.test[0][1], data.meta)
                found.append(resemblance(forecast, series, data.meta["target_spiky"]["test"]))
                if seed == runs.taught[0]:
                    curves[f"forecast/{kind}/{name}"] = np.round(forecast[where, 0], 3)
            for key in ("magnitude", "correlation"):
                values[f"{kind}_{key}_{name}"] = [value[key] for value in found]
    data = runs.data(runs.taught[0])
    linear = control_forecasts(data)["autoregression"][1]
    curves["forecast/series"] = np.round(in_raw_units(data.test[0][1], data.meta)[where, 0], 3)
    curves["forecast/trained/autoregression"] = np.round(in_raw_units(linear, data.meta)[where, 0], 3)
    return values, curves


def long_windows(runs: Runs, variants: Sequence[str]) -> tuple[dict[str, Any], float]:
    """Errors with windows of sixty points, one a seed: `window60/READING/FORECAST`, and the CPU seconds of training."""
    found, seconds = {}, []
    for variant in variants:

        def data_of(seed, variant=variant):
            return runs.data(seed, variant, window=task.LONG_WINDOW)

        source = runs.study(f"60-{variant}", data_of, lambda seed: task.long_models(seed, runs.profile))
        seconds.append(source.cpu_seconds)
        linear = []
        for data in map(data_of, runs.seeds):
            linear.append(float(np.mean((control_forecasts(data)["autoregression"][1] - data.test[0][1]) ** 2)))
        found |= {f"window60/{variant}/{name}": source.at(name, 0) for name in source.errors}
        found[f"window60/{variant}/autoregression"] = linear
    return found, sum(seconds)


def other_scales(runs: Runs) -> tuple[dict[str, Any], float]:
    """Errors, in z-score units, of networks trained on other scales, one a seed: `trained_SCALE/NAME`, and the CPU
    seconds of training."""
    found, seconds = {}, []
    for scaling in ("raw", "unit"):

        def data_of(seed, scaling=scaling):
            return runs.data(seed, scaling=scaling)

        source = runs.study(scaling, data_of, lambda seed: task.recurrent_models(seed, runs.profile))
        seconds.append(source.cpu_seconds)
        for name in source.errors:
            factors = [unit_factors(data_of(seed))["standard"] for seed in runs.taught]
            found[f"trained_{scaling}/{name}"] = [error * factor for error, factor in zip(source.at(name, 0), factors)]
    return found, sum(seconds)


def setup(runs: Runs, study: Study) -> dict[str, float]:
    """Sizes of the parts, shares of spiky points, facts of the raw series, and numbers of parameters."""
    data, settings = runs.data(runs.seeds[0]), task.settings(runs.profile)
    series, spiky, n_train = data.meta["series"], data.meta["spiky"], settings["n_train"]
    share_train, share_test = spiky[:n_train].mean(), spiky[n_train:].mean()
    found = {
        "train_points": n_train,
        "test_points": settings["n_test"],
        "train_spikes": settings["n_spikes"],
        "test_spikes": settings["n_spikes_test"],
        "share_train": share_train,
        "share_test": share_test,
        "spike_maximum": spike(np.linspace(0, 2 * np.pi, 1_000_001)).max(),
        "series_maximum": np.abs(series[spiky]).max(),
        "raw_variance": series[:n_train].var(),
        "raw_range": np.ptp(series[:n_train]),
        "noise_raw_sd_.25": 0.25**2 * (1 - share_test),
        "noise_raw_sd_.5": 0.5**2 * (1 - share_test),
    }
    found = {key: float(value) for key, value in found.items()}
    found |= {f"parameters_{name}": count for name, count in study.parameters.items()}
    # The papers print both numbers of heads; the count is the same.
    return found | {f"count_heads_{heads}": count_parameters(DecoderOnly(10, heads, seed=0)) for heads in (2, 10)}
