"""What the earthquake chapter records and tabulates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from data_gen.earthquakes import mesh
from implicit_models.model import ImplicitModel
from reproduction.book.claims import published_value
from reproduction.book.results import summary
from reproduction.ch5_earthquake import task
from reproduction.ch5_earthquake.compute import LABELS, SCORE_UNITS, SIDES, TURN_DEG, EarthquakeStudy
from reproduction.core.scores import count_parameters
from reproduction.models.eikonet import EikoNet

SCORE_LABELS = {
    "km_median": "epicentre, median (km)",
    "km_p90": "90 % (km)",
    "km_p95": "95 % (km)",
    "far": "over 50 km (%)",
    "longitude_deg": "longitude, on the line (°)",
    "longitude_circular_deg": "round the circle (°)",
    "longitude_unbroken_deg": "away from the jump (°)",
    "latitude_deg": "latitude (°)",
    "depth_km": "depth (km)",
    "time_s": "time (s)",
}
ELIMINATION_STATIONS = 45
DEPTH_SPAN_KM = 694.0


def study_values(study: EarthquakeStudy) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scores in distribution and at k = 9, sizes and what the trainings took; and the curves of every score against
    k."""
    found: dict[str, Any] = {}
    curves: dict[str, Any] = {}
    for setting, models in study.scores.items():
        for name, scores in models.items():
            for score, rows in scores.items():
                curves[f"{score}/{setting}/{name}"] = rows
                for k in (0, 9) if setting == "papers" or score == "mse" else ():
                    found[f"{score}_{setting}_{name}_{k}"] = (
                        study.score(setting, name, score, k),
                        SCORE_UNITS.get(score, ""),
                    )
        for name, sizes in study.sizes[setting].items():
            found[f"size_{setting}_{name}"] = sizes
        for name, runs in study.histories[setting].items():
            found[f"epochs_{setting}_{name}"] = len(runs[0].loss)
            found[f"steps_{setting}_{name}"] = study.steps[setting][name]
            found[f"cpu_seconds_{setting}_{name}"] = [sum(run.cpu_seconds) for run in runs], "s"
            curves[f"loss/{setting}/{name}"] = [run.loss for run in runs]
    for name, count in study.parameters.get("papers", {}).items():
        found[f"parameters_{name}"] = count
    found["sources_outside_printed_bands"] = study.misplaced
    found["training_cpu_seconds"] = study.cpu_seconds, "s"
    return found, curves


def claim_values(study: EarthquakeStudy) -> dict[str, Any]:
    """What the statements of the papers are judged by: differences of residual MLP and implicit model, seed by
    seed, over the seeds for which both were trained."""
    found: dict[str, Any] = {}
    if "papers" not in study.scores:
        return {}

    def difference(
        score: str, k: int, first: str = "eikonet", second: str = "implicit", setting: str = "papers"
    ) -> list[float]:
        return differences(study, (setting, first, score, k), (setting, second, score, k))

    for k in SIDES:
        found[f"gain_{k}"] = difference("mse", k)
    crossing, grows = [], []
    for place in range(len(study.seeds)):
        gains = [difference("mse", k)[place] for k in SIDES]
        crossing.append(next((k for k in SIDES if all(g > 0 for g in gains[SIDES.index(k) :])), 10))
        grows.append(100 * float(np.mean(np.diff(gains[1:]) > 0)))
    found["crossover"] = crossing
    found["gain_rises"] = grows, "% of the eight steps from k = 1 to 9"
    for score in ("longitude_deg", "longitude_circular_deg", "latitude_deg"):
        found[f"gain_{score}"] = difference(score, 9), "°"
    found["loss_depth_km"] = difference("depth_km", 9, "implicit", "eikonet"), "km"
    found["loss_time_s"] = difference("time_s", 9, "implicit", "eikonet"), "s"
    for output in task.OUTPUTS:
        ahead = [median(difference(f"mse_{output}", k)) > 0 for k in task.BANDS]
        found[f"implicit_leads_{output}"] = 100 * float(np.mean(ahead)), "% of the bands"
    found["gain_without_longitude"] = [
        sum(difference(f"mse_{output}", 9)[place] for output in task.OUTPUTS if output != "longitude")
        / len(task.OUTPUTS)
        for place in range(len(study.seeds))
    ]
    found["gain_unbroken_9"] = difference("mse_unbroken", 9)
    found["gain_unbroken_longitude_deg"] = difference("longitude_unbroken_deg", 9), "°"
    if "eikonet_bias_free_skip" in study.scores["papers"]:
        # How far the control without biases is from the implicit model, a difference of losses as the papers' gain is:
        # largest over the factors.
        pairs = [difference("mse_unbroken", k, "eikonet_bias_free_skip") for k in SIDES]
        found["bias_free_skip_minus_implicit"] = [max(row, key=abs) for row in zip(*pairs, strict=True)]
        for name in (model for model in LABELS if model not in task.PAPER):
            found[f"gain_unbroken_of_{name}"] = difference("mse_unbroken", 9, "eikonet", name)
    for name in ("papers", "anchor", "wide", "epicentre"):
        if name in study.scores:
            if name != "papers":
                found[f"gain_{name}_9"] = difference("mse", 9, setting=name)
            for model in task.PAPER:
                far, near = study.score(name, model, "mse", 9), study.score(name, model, "mse", 0)
                found[f"growth_{name}_{model}"] = [a / b for a, b in zip(far, near, strict=True)]
    return found | hypothesis_values(study)


def differences(
    study: EarthquakeStudy, first: tuple[str, str, str, int], second: tuple[str, str, str, int]
) -> list[float]:
    """One score less another, each given as setting, model, name and factor, seed by seed: over the first seeds, for
    which both were trained."""
    return [a - b for a, b in zip(study.score(*first), study.score(*second), strict=False)]


def hypothesis_values(study: EarthquakeStudy) -> dict[str, Any]:
    """What two passes and a restricted latitude change, both against training on everything; positive is
    better."""
    found: dict[str, Any] = {}
    for name in ("depth_time", "depth_time_given"):
        for model in study.scores.get(name, ()):
            for score in ("depth_km", "time_s"):
                for k in (0, 9):
                    gains = differences(study, ("papers", model, score, k), (name, model, score, k))
                    found[f"two_pass_{name}_{model}_{score}_{k}"] = gains, SCORE_UNITS[score]
    if "latitude" in study.scores:
        for setting in ("papers", "latitude"):
            for k in (0, 9):
                score = "mse_latitude_outside", k
                found[f"latitude_gain_{setting}_{k}"] = differences(
                    study, (setting, "eikonet", *score), (setting, "implicit", *score)
                )
    return found


def error_table(study: EarthquakeStudy, setting: str, k: int):
    """Errors in physical units of a setting's models at one factor: a DataFrame of texts."""
    import pandas as pd

    models = study.scores[setting]
    known = [score for score in SCORE_LABELS if score in next(iter(models.values()))]
    return pd.DataFrame(
        {
            LABELS[name]: (
                {"test MSE": summary(study.score(setting, name, "mse", k), 2)}
                | {
                    "MSE away from the jump": (
                        summary(study.score(setting, name, "mse_unbroken", k), 2)
                        if "mse_unbroken" in models[name]
                        else ""
                    )
                }
                | {SCORE_LABELS[score]: summary(study.score(setting, name, score, k), 2) for score in known}
            )
            for name in models
        }
    ).T


def setting_table(study: EarthquakeStudy, shown: Sequence[int] = (0, 1, 5, 9)):
    """Test MSE of every setting and model at some factors, with samples, epochs, steps and CPU seconds."""
    import pandas as pd

    return pd.DataFrame(
        {
            (task.SETTINGS[setting].label, LABELS[name]): {
                "training samples": f"{study.sizes[setting]['train']:,}",
                "seeds": f"{len(study.histories[setting][name])}",
                "epochs": f"{len(study.histories[setting][name][0].loss)}",
                "steps": f"{study.steps[setting][name]:,}",
                "CPU s a run": f"{np.mean([sum(run.cpu_seconds) for run in study.histories[setting][name]]):.0f}",
                **{
                    ("in distribution" if k == 0 else f"k = {k}"): summary(study.score(setting, name, "mse", k), 2)
                    for k in shown
                },
            }
            for setting in task.SETTINGS
            if setting in study.scores
            for name in study.scores[setting]
        }
    ).T


def claim_table(values: Mapping[str, Any]):
    """Published statements about k = 9 and the losses beside what was measured and recorded."""
    import pandas as pd

    loss, degrees, worse = (
        published_value("ch5-quake-indist-loss"),
        published_value("ch5-quake-degrees-k9"),
        published_value("ch5-quake-time-depth-k9"),
    )
    rows = {
        "in distribution, residual MLP": (f"{loss['000 MLP']:g}", "mse_papers_eikonet_0"),
        "in distribution, implicit": (f"{loss['000 implicit']:g}", "mse_papers_implicit_0"),
        "implicit ahead from k =": (str(published_value("ch5-quake-crossover-k2")), "crossover"),
        "k = 9: MSE lower by": (f"{published_value('ch5-quake-gain-k9'):g}", "gain_9"),
        "the same, source and stations on one side of the jump": ("", "gain_unbroken_9"),
        "k = 9: longitude better by (°, line)": (str(degrees["longitude, deg"]), "gain_longitude_deg"),
        "k = 9: the same round the circle (°)": ("", "gain_longitude_circular_deg"),
        "k = 9: latitude better by (°)": (str(degrees["latitude, deg"]), "gain_latitude_deg"),
        "k = 9: depth worse by (km)": (str(worse["depth, km"]), "loss_depth_km"),
        "k = 9: time worse by (s)": (str(worse["time, s"]), "loss_time_s"),
    }
    return pd.DataFrame(
        {row: {"published": text, "measured": summary(values[key], 2)} for row, (text, key) in rows.items()}
    ).T


def count_table():
    """The printed counts beside what they follow from: values `count_NAME`, and a table."""
    found: dict[str, Any] = {}
    import pandas as pd

    samples, sizes = (
        published_value("ch5-quake-samples"),
        {"train": published_value("ch5-quake-train-size"), "test": published_value("ch5-quake-test-size")},
    )
    lat, lon = mesh(seed=0)
    pairs, band = int(((lon > 90) & (lon < 270)).sum()), int((abs(lon - 180) > 170).sum())
    depths, stations, named = samples["depths"], task.N_STATIONS, 5
    counts = {
        f"{name}_{p}": count_parameters(build())
        for p in (6 * stations, 6 * ELIMINATION_STATIONS)
        for name, build in (
            ("eikonet", lambda p=p: EikoNet(p, 4)),
            ("implicit", lambda p=p: ImplicitModel(p, 4, task.N_STATES, seed=0)),
        )
    }
    for key, value in {
        "samples": pairs * depths,
        "pairs": pairs,
        "train": pairs * depths * 4 // 5,
        "band": band * depths // 5,
        "printed_pairs_times_depths": samples["source pairs"] * depths,
        "named": named * stations,
        "features": 6 * stations,
        **counts,
    }.items():
        found[f"count_{key}"] = value
    inputs, others = 6 * stations, 6 * ELIMINATION_STATIONS
    rows = {
        "samples of the training half": (
            f"{samples['samples']:,}",
            f"{pairs:,} cells of a 5° mesh × {depths} depths = {pairs * depths:,}",
        ),
        "source pairs": (
            f"{samples['source pairs']:,}",
            f"{samples['source pairs']:,} × {depths} = {samples['source pairs'] * depths:,}: one pair is missing",
        ),
        "training samples": (f"{sizes['train']:,}", f"80 % of {pairs * depths:,} = {pairs * depths * 4 // 5:,}"),
        "samples of a pair of bands": (
            f"{sizes['test']:,}",
            f"{band} cells × {depths} depths = {band * depths:,}; 20 % of them = {band * depths // 5:,}",
        ),
        "features": (
            f"{published_value('ch5-quake-30-features')}",
            f"x, y, z, p, θ of {stations} stations: {named * stations}; with sin θ and cos θ for θ: {inputs}",
        ),
        "inputs of both models": (
            f"{others}",
            f"{ELIMINATION_STATIONS} stations × 6, those of the elimination experiment",
        ),
        "parameters, residual MLP": (
            f"{published_value('ch5-params-quake-eikonet'):,}",
            f"{inputs} inputs: {counts[f'eikonet_{inputs}']:,}; {others}: {counts[f'eikonet_{others}']:,}",
        ),
        "parameters, implicit": (
            f"{published_value('ch5-params-quake-implicit'):,}",
            f"{inputs} inputs: {counts[f'implicit_{inputs}']:,}; {others}: {counts[f'implicit_{others}']:,}",
        ),
    }
    return found, pd.DataFrame(
        {row: {"printed": printed, "follows from": how} for row, (printed, how) in rows.items()}
    ).T


def conflict_table():
    """The printed results against one another: which model leads in distribution, and what 409 km mean for the loss;
    values, and a table."""
    found: dict[str, Any] = {}
    import pandas as pd

    loss, worse = published_value("ch5-quake-indist-loss"), published_value("ch5-quake-time-depth-k9")
    gain = published_value("ch5-quake-gain-k9")
    span = DEPTH_SPAN_KM
    scaled = worse["depth, km"] / (span / 2)
    least = scaled**2 / len(task.OUTPUTS)
    found["published_mlp_minus_implicit"] = loss["000 MLP"] - loss["000 implicit"]
    improvement = published_value("ch5-quake-indist-improvement")
    found["published_improvement"] = improvement
    found["depth_409_scaled"] = scaled
    found["depth_409_least_mse"] = least
    rows = {
        "report: loss of MLP minus loss of implicit model": (
            f"{loss['000 MLP'] - loss['000 implicit']:+.2e}: the MLP is ahead"
        ),
        "paper and thesis: improvement of the implicit model": (f"{improvement:+.2e}: the implicit model is ahead"),
        "both: implicit model overtakes by k =": f"{published_value('ch5-quake-crossover-k2')}: it was behind",
        f"{worse['depth, km']} km on labels that span {span:.0f} km": f"{scaled:.2f} scaled units",
        "least mean square of four labels with that mean error in one": f"{least:.3f}",
        "net gain at the same k": f"{gain:g}",
    }
    return found, pd.Series(rows, name="value").to_frame()


def turn_table(study: EarthquakeStudy):
    """How the models of the papers' setting answer a turn of the globe, and what the turn does to relative longitudes;
    values, and a table."""
    found: dict[str, Any] = {}
    import pandas as pd

    found["turn"] = TURN_DEG, "°"
    found["turned_relative"] = study.turned
    for name, values in study.responses.items():
        found[f"turn_response_{name}"] = values
    rows = {
        LABELS[name]: {"change of the predicted longitude over the turn": summary(values)}
        for name, values in study.responses.items()
    }
    return found, pd.DataFrame(
        rows
        | {"relative inputs and labels": {"change of the predicted longitude over the turn": f"{study.turned:.1g}"}}
    ).T


def two_pass_table(study: EarthquakeStudy):
    """Errors of depth and time, all four labels asked or these two alone."""
    import pandas as pd

    return pd.DataFrame(
        {
            (task.SETTINGS[name].label if name != "papers" else "all four labels", LABELS[model]): {
                f"{label}, {'in distribution' if k == 0 else f'k = {k}'}": summary(study.score(name, model, score, k))
                for score, label in (("depth_km", "depth (km)"), ("time_s", "time (s)"))
                for k in (0, 9)
            }
            for name in ("papers", "depth_time", "depth_time_given")
            for model in task.PAPER
            if model in study.scores.get(name, {})
        }
    ).T


def latitude_table(study: EarthquakeStudy):
    """Errors of the latitude of sources up to 45 degrees from the equator and beyond, trained on all sources or on the
    former."""
    import pandas as pd

    rows = {}
    for setting in ("papers", "latitude"):
        for model in task.PAPER if setting in study.scores else ():
            row = rows.setdefault(
                (task.SETTINGS[setting].label if setting != "papers" else "sources at all latitudes", LABELS[model]), {}
            )
            for side in ("inside", "outside"):
                for k in (0, 9):
                    values = study.score(setting, model, f"mse_latitude_{side}", k)
                    row[
                        f"MSE {'up to' if side == 'inside' else 'beyond'} 45°,"
                        f" {'in distribution' if k == 0 else f'k = {k}'}"
                    ] = summary(values, 2)
    return pd.DataFrame(rows).T


def located_table(study: EarthquakeStudy):
    """Geiger's method and the models on the same events: values `located_SCORE_MODEL_NOISE_K`, and a table."""
    found: dict[str, Any] = {}
    import pandas as pd

    rows = {}
    for (name, noise_s, k), scores in study.located.items():
        label = "Geiger's method" if name == "geiger" else LABELS[name]
        for score, values in scores.items():
            found[f"located_{score}_{name}_{noise_s:g}_{k}"] = values, SCORE_UNITS.get(score, "")
        if name in ("geiger", *task.PAPER, "linear"):
            rows["in distribution" if k == 0 else f"k = {k}", f"{noise_s:g} s", label] = {
                "test MSE": summary(scores["mse"], 2),
                **{SCORE_LABELS[s]: summary(scores[s], 2) for s in scores if s != "mse"},
            }
    return found, pd.DataFrame(rows).T.rename_axis(["test events", "noise of picks", ""])
