"""The papers' tables of architectures and data sets, rebuilt and measured, and where each model stands in the committed
runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from data_gen.synthetic.functions import addition, identity
from data_gen.synthetic.rolling import rolling_argmax, rolling_average
from reproduction.book.results import numbers
from reproduction.core.registry import ARCHITECTURES, SOURCES, Architecture
from reproduction.models.linear import Linear
from reproduction.models.sequence import SequenceImplicitRNN, SequenceLSTM
from reproduction.models.transformer import DepthwiseEncoder, EncoderDecoder, SequentialEncoder

TABLE_4 = SOURCES["extrapolation"]

# Rows of the extrapolation paper's Table 4 (the thesis' Table 5.5) that print no count and are not in the registry.
UNCOUNTED: tuple[Architecture, ...] = (
    Architecture("arithmetic", "MLP", "50-10-10-1, no count", TABLE_4, None, ARCHITECTURES[5].build),
    Architecture(
        "rolling average",
        "encoder-decoder",
        "10-10-5-10, 5 heads",
        TABLE_4,
        None,
        lambda: EncoderDecoder(10, 5, width=10),
        "four sizes for a model that has two (d_model, feed-forward width): both taken as 10",
    ),
    Architecture(
        "rolling argmax",
        "encoder-decoder, masked",
        "2 heads, width 10",
        TABLE_4,
        None,
        lambda: EncoderDecoder(10, 2, width=10, expand=1, causal=True),
        "the mask has no weights: masked, unmasked and without positions are one count",
    ),
    Architecture(
        "spiky",
        "masked decoder",
        "1-10 map, one layer, 2 heads, width 2048, 10-1 map",
        TABLE_4,
        None,
        lambda: nn.ModuleList([nn.Linear(1, 10), DepthwiseEncoder(10, n_heads=2), nn.Linear(10, 1)]),
        "10 heads in the report: the count does not tell them apart",
    ),
    Architecture("spiky", "LSTM", "1-20-20-1", TABLE_4, None, lambda: SequenceLSTM(20, 1, seed=0)),
    Architecture(
        "spiky",
        "implicitRNN",
        "n = 20, p = 21, q = 20, head 20-1",
        TABLE_4,
        None,
        lambda: SequenceImplicitRNN(20, 20, 1, seed=0),
    ),
    Architecture("volatility", "linear regression", "60-1", TABLE_4, None, lambda: Linear(60, 1, bias=True, seed=0)),
    Architecture(
        "volatility",
        "sequential encoder",
        "1 head, width 2048, head 60-1",
        TABLE_4,
        None,
        lambda: SequentialEncoder(60),
        "d_model not stated: one feature a token, as in the arithmetic task, gives a constant output",
    ),
)

# Task -> (implicit model, largest explicit baseline) of one paper: what "similar parameter counts" compares.
SIZES = {
    "identity": ("n = 4, p = q = 10", "one layer, one head"),
    "arithmetic": ("n = 20, p = 50, q = 1", "one layer, one head"),
    "rolling average": ("n = 200, p = q = 10", "1-100-100-1"),
    "rolling argmax": ("n = 33, p = q = 10", "one layer, 2 heads"),
    "spiky": ("n = 20, p = 21, q = 20, head 20-1", "one layer, 10 heads (2 in the extrapolation paper)"),
    "volatility": ("n = 53, p = 60, q = 1", "1-38-38-1"),
    "earthquake": ("n = 190, p = 270, q = 4", "270-32-128-128-128-32-4"),
}


def find(task: str, described: str) -> Architecture:
    """A row of the registry.

    Raises:
        KeyError: when there is none.
    """
    for architecture in ARCHITECTURES:
        if (architecture.task, architecture.described) == (task, described):
            return architecture
    raise KeyError(f"no architecture {described!r} of task {task!r}")


def key_of(architecture: Architecture) -> str:
    """Name under which a row's count is recorded: task, model and sizes."""
    text = f"{architecture.task} {architecture.model} {architecture.described}"
    return "".join(c if c.isalnum() else "_" for c in text).replace("__", "_").replace("__", "_").strip("_")


def verdict(architecture: Architecture) -> str:
    """One word on a printed count: right, of another model, cannot be built, or nothing printed."""
    if architecture.published is None:
        return "no count printed"
    if architecture.right:
        return "right"
    if architecture.explained == architecture.published:
        return "of another model"
    return "cannot be explained" if architecture.counted is None else "wrong"


def size_ratio(task: str) -> float:
    """Larger count over smaller, of the implicit model and the largest baseline of the same paper, as described."""
    counts = [find(task, described).counted for described in SIZES[task]]
    return max(counts) / min(counts)


def moments(seed: int = 0, n: int = 3_000) -> dict[str, dict[str, float]]:
    """Mean and deviation of the inputs of each generator, in training and at the papers' middle shift.

    Returns:
        task -> shift, train_mean, train_sd, test_mean, test_sd, mean_moved, sd_moved.

    Source:
        Decugis et al. (2024), Table 3, and section 2.1 for the definition P(mu + kappa, sigma + kappa).
    """
    made = {
        "identity": (identity(n, n, shifts=[40], seed=seed), 40),
        "arithmetic": (addition(n, n, t=[100.0], seed=seed), 100.0),
        "rolling average": (rolling_average(n, n, shifts=[50.0], seed=seed), 50.0),
        "rolling argmax": (rolling_argmax(n, n, scales=[100.0], seed=seed), 100.0),
    }
    table = {}
    for task, (data, key) in made.items():
        train, test = data.u_train.astype(float), data.test[key][0].astype(float)
        table[task] = {
            "shift": float(key),
            "train_mean": float(train.mean()),
            "train_sd": float(train.std()),
            "test_mean": float(test.mean()),
            "test_sd": float(test.std()),
            "mean_moved": float(test.mean() - train.mean()),
            "sd_moved": float(test.std() - train.std()),
        }
    return table


def follows_definition(row: Mapping[str, float], tolerance: float = 0.05) -> bool:
    """Whether mean and deviation both move by the shift, as the papers' definition says."""
    return all(abs(row[key] - row["shift"]) <= tolerance * row["shift"] for key in ("mean_moved", "sd_moved"))


def parameters_of_compute(flops: float, tokens: float = 3e11) -> float:
    """Parameters of a language model whose training took so many operations, by C = 6 N D for D tokens.

    Source:
        Kaplan et al. (2020), section 2.1; 3e11 tokens are those of Brown et al. (2020), Table 2.1.
    """
    if not (flops > 0 and tokens > 0 and math.isfinite(flops)):
        raise ValueError(f"flops and tokens must be positive, got {flops} and {tokens}")
    return flops / (6 * tokens)


def transformer_settings(model: nn.Module) -> dict[str, set[float]]:
    """Dropout probabilities and epsilons of layer normalisation that a built transformer holds."""
    return {
        "dropout": {module.p for module in model.modules() if isinstance(module, nn.Dropout)},
        "eps": {module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)},
    }


def standing(
    curves: Mapping[str, Sequence[Sequence[Any]]],
    implicit: Sequence[str],
    others: Sequence[str],
    *,
    higher: bool = False,
) -> tuple[int, int]:
    """Test points at which an implicit model's median beats every other model's, and the number of points.

    Medians are over the seeds that all these models have, the first ones.

    Args:
        curves: model -> (seeds, points) values, as a results file holds them.
        implicit: names of implicit models; the best of them counts.
        others: names of the models to beat; those absent are passed over.
        higher: whether larger values are better.

    Raises:
        ValueError: no implicit or no other model among the curves.
    """
    sign = -1.0 if higher else 1.0
    seeds = min((len(curves[name]) for name in (*implicit, *others) if name in curves), default=0)

    def medians(name: str) -> list[float]:
        rows = np.array(
            [
                [sign * value if math.isfinite(value) else math.inf for value in numbers(row)]
                for row in curves[name][:seeds]
            ]
        )
        return [statistics.median(column) for column in rows.T]

    own, rivals = ([medians(name) for name in names if name in curves] for names in (implicit, others))
    if not own or not rivals:
        raise ValueError(f"no implicit or no other model among {', '.join(curves)}")
    points = len(own[0])
    return sum(min(row[k] for row in own) < min(row[k] for row in rivals) for k in range(points)), points


# Task -> notebook whose committed run judges it, pattern of a model's curve or value, whether larger is better.
COMPARISONS: dict[str, tuple[str, str, bool]] = {
    "identity": ("ch5_identity", "{}", False),
    "addition": ("ch5_arithmetic", "addition/{}", False),
    "subtraction": ("ch5_arithmetic", "subtraction/{}", False),
    "rolling average": ("ch5_rolling_average", "{}", False),
    "rolling argmax": ("ch5_rolling_argmax", "{}", True),
    "spiky series": ("ch5_spiky", "sd .5/{}", False),
    "volatility": ("ch5_volatility", "mape_price_{}_2021", False),
}
IMPLICIT = ("implicit", "implicit_rnn", "implicit_report")
BASELINES = (
    "mlp",
    "mlp_10_9_9_10",
    "nalu",
    "lstm",
    "lstm_report",
    "transformer",
    "transformer_report",
    "transformer_sequential",
    "transformer_depthwise",
    "transformer_masked",
    "transformer_unmasked",
    "transformer_no_pe",
    "transformer_decoder",
    "transformer_encoder_decoder",
)
# Task -> models that are a control elsewhere and a published row there.
ALSO_PUBLISHED = {"volatility": ("linear",)}
CONTROLS = ("linear", "mlp_bias_free", "mlp_skip", "autoregression")


def standing_of(
    content: Mapping[str, Any], pattern: str, group: str, *, higher: bool = False, task: str = ""
) -> tuple[int, int]:
    """`standing` of the implicit models in a committed run.

    Args:
        content: a results file's content.
        pattern: of the name of a model's curve, or of its value where a run records one number a seed.
        group: "baselines" for the papers' models, "controls" for the controls too.
        higher: whether larger values are better.
        task: of `COMPARISONS`; some controls are published rows of a task.
    """
    others = BASELINES + (ALSO_PUBLISHED.get(task, ()) if group == "baselines" else CONTROLS)
    curves = {}
    for name in (*IMPLICIT, *others):
        key = pattern.format(name)
        if key in content["curves"]:
            curves[name] = content["curves"][key]
        elif key in content["values"]:
            curves[name] = [[value] for value in numbers(content["values"][key])]
    return standing(curves, IMPLICIT, others, higher=higher)


def own_figures_against(published) -> list[dict[str, str]]:
    """Published figures in which the implicit model is not the best, read from the claims.

    Args:
        published: claim id -> published value, as `reproduction.book.claims.published_value`.
    """
    loss = published("ch5-quake-indist-loss")
    implicit, lstm = published("ch5-t53-spiky-implicitrnn"), published("ch5-t53-spiky-lstm")
    worse = published("ch5-quake-time-depth-k9")
    found = []
    if loss["000 implicit"] > loss["000 MLP"]:
        found.append(
            {
                "where": "report: earthquake, in distribution",
                "implicit": f"{loss['000 implicit']:g}",
                "baseline": f"{loss['000 MLP']:g}",
            }
        )
    if implicit["train"] > lstm["train"]:
        found.append(
            {
                "where": "Table 5.3: spiky series, training",
                "implicit": f"{implicit['train']:g}",
                "baseline": f"{lstm['train']:g} (LSTM)",
            }
        )
    for name, value in worse.items():
        if value > 0:
            found.append({"where": f"earthquake at k = 9: {name}", "implicit": f"{value:g} worse", "baseline": "0"})
    return found


def search_table(search: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Best point of each task and model of a hyper-parameter search, beside the best with learning rate .01.

    Args:
        search: content of results/search.json.

    Returns:
        "task, model" -> setting, best lr, median validation error, ratio of the error at lr .01 to it.
    """
    table: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[tuple[float, dict[str, Any]]]] = {}
    for point in search["points"]:
        error = statistics.median(value if math.isfinite(value) else math.inf for value in numbers(point["errors"]))
        groups.setdefault(f"{point['task']}, {point['model']}", []).append((error, point["setting"]))
    for name, points in groups.items():
        error, setting = min(points, key=lambda point: point[0])
        fixed = min((value for value, other in points if other.get("lr") == 0.01), default=math.nan)
        table[name] = {
            "best setting": ", ".join(f"{key} {value:g}" for key, value in setting.items()),
            "best lr": setting.get("lr"),
            "validation error": f"{error:.3g}",
            "error at lr .01 / best": f"{fixed / error:.3g}" if error else "nan",
            "points": len(points),
        }
    return table
