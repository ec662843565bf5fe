"""What the notebook of architectures records: counts, sizes, shifts, settings, and standings in the committed runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reproduction.ch5_architectures import compute
from reproduction.ch5_identity import models as identity_models
from reproduction.core.registry import ARCHITECTURES, Architecture
from reproduction.models.transformer import DepthwiseEncoder, EncoderDecoder, SequentialEncoder

# What the papers print with two sets of sizes -> task, sizes of report and workshop paper, of the extrapolation paper.
PAIRS = {
    "identity, MLP": ("identity", "10-10-10", "10-9-9-10"),
    "rolling average, LSTM": ("rolling average", "1-100-100-1", "1-18-18-1"),
    "rolling average, implicit": ("rolling average", "n = 200, p = q = 10", "n = 32, p = q = 10"),
    "rolling argmax, implicit": ("rolling argmax", "n = 33, p = q = 10", "n = 36, p = q = 10"),
    "rolling argmax, LSTM": ("rolling argmax", "1-19-19-10", "1-21-21-10"),
    "identity, encoder": ("identity", "one layer, one head", "10-10-5, 5 heads"),
}
# Group of rivals -> what it is to be the best of them.
STANDINGS = {"baselines": "best of the papers' models", "controls": "best with the controls"}


def listed() -> list[Architecture]:
    """All architectures, by task."""
    tasks = [architecture.task for architecture in ARCHITECTURES]
    return sorted((*ARCHITECTURES, *compute.UNCOUNTED), key=lambda architecture: tasks.index(architecture.task))


def counts() -> dict[str, Any]:
    """`count_ARCHITECTURE` and `explained_ARCHITECTURE`, or a text where there is none, and how many printed counts
    there are and are right."""
    found: dict[str, Any] = {}
    for architecture in listed():
        if architecture in ARCHITECTURES:
            key, counted, explained = compute.key_of(architecture), architecture.counted, architecture.explained
            found[f"count_{key}"] = "cannot be built" if counted is None else counted
            found[f"explained_{key}"] = "none" if explained is None else explained
    verdicts = [compute.verdict(architecture) for architecture in listed() if architecture.published is not None]
    return found | {"printed_counts": len(verdicts), "printed_counts_right": verdicts.count("right")}


def differences_of_papers() -> dict[str, bool]:
    """Whether the papers print different architectures under the same figures, for identity and rolling average."""
    differ = {
        name: compute.find(task, a).counted != compute.find(task, b).counted for name, (task, a, b) in PAIRS.items()
    }
    return {
        "identity_architectures_differ": differ["identity, MLP"] and differ["identity, encoder"],
        "average_architectures_differ": differ["rolling average, LSTM"] and differ["rolling average, implicit"],
    }


def size_ratios() -> dict[str, float]:
    """`size_ratio_TASK`, larger count over smaller, its extremes, and how many tasks compare models of similar size."""
    ratios = {task: compute.size_ratio(task) for task in compute.SIZES}
    found = {f"size_ratio_{task.replace(' ', '_')}": ratio for task, ratio in ratios.items()}
    return found | {
        "size_ratio_largest": max(ratios.values()),
        "size_ratio_smallest": min(ratios.values()),
        "tasks_of_similar_size": sum(ratio < 1.25 for ratio in ratios.values()),
        "tasks_compared": len(ratios),
    }


def shifts(moments: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, float]:
    """`mean_moved_TASK` and `sd_moved_TASK` of the first seed, and how often data follow the papers' definition.

    Args:
        moments: `compute.moments`, one a seed.
    """
    found: dict[str, float] = {
        f"{key}_{task.replace(' ', '_')}": row[key]
        for task, row in moments[0].items()
        for key in ("mean_moved", "sd_moved")
    }
    follows = sum(compute.follows_definition(row) for rows in moments for row in rows.values())
    return found | {"tasks_that_follow_the_definition": follows}


def settings(flops: float) -> dict[str, Any]:
    """Dropout and epsilon of the built transformers, the implicit model's activation, and the parameters of a model
    whose training takes so many operations."""
    models = (DepthwiseEncoder(10), SequentialEncoder(50), EncoderDecoder(10, 2, width=10, expand=1))
    found = [compute.transformer_settings(model) for model in models]
    parameters = compute.parameters_of_compute(flops)
    return {
        **{f"transformer_{key}": sorted(set().union(*(values[key] for values in found))) for key in ("dropout", "eps")},
        "implicit_activation": identity_models(0, "quick")["implicit"][0]().activation.segments[0].name,
        "parameters_of_quoted_size": parameters,
        "quoted_size_over_parameters": flops / parameters,
    }


def standings(contents: Mapping[str, Mapping[str, Any] | None]) -> dict[str, dict[str, tuple[int, int]]]:
    """On how many test sets the best implicit model beats all rivals, and of how many: group -> task -> both.

    Args:
        contents: of the committed runs, by task; None where there is none, which is left out.
    """
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for group in STANDINGS:
        found[group] = {}
        for task, content in contents.items():
            _, pattern, higher = compute.COMPARISONS[task]
            if content is not None:
                found[group][task] = compute.standing_of(content, pattern, group, higher=higher, task=task)
    return found


def shares(found: Mapping[str, Mapping[str, tuple[int, int]]], tasks: int) -> dict[str, Any]:
    """`points_against_GROUP`, `best_share_against_GROUP` in per cent, and how many of the tasks have not run.

    Args:
        found: from `standings`.
        tasks: number of all.
    """
    values: dict[str, Any] = {}
    for group, rows in found.items():
        wins, points = (sum(row[k] for row in rows.values()) for k in (0, 1))
        values[f"points_against_{group}"] = points
        values[f"best_share_against_{group}"] = 100 * wins / points if points else "no committed run", "%"
    return values | {"tasks_not_run": tasks - len(found["controls"])}


def searched(search: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Folds, points and models of the committed search, and how many are best at the published learning rate; with
    its table (`compute.search_table`)."""
    rows = compute.search_table(search) if search else {}
    best = sum(row["best lr"] == 0.01 for row in rows.values())
    values = {
        "search_folds": search["parameters"]["folds"] if search else "no committed search",
        "search_points": len(search["points"]) if search else 0,
        "search_models_best_at_published_lr": best if rows else "no committed search",
        "search_models": len(rows),
    }
    return values, rows
