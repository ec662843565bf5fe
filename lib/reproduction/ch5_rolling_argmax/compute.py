"""What the notebook of the rolling argmax records: accuracies over scales, labels in the input, counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reproduction.ch5_rolling_argmax.study import (
    AccuracyStudy,
    accuracy_by_step,
    changed_by_scaling,
    given_label_facts,
    recursion_difference,
    run_accuracy_study,
)
from reproduction.ch5_rolling_average import task
from reproduction.core.budgets import budgets
from reproduction.core.registry import ARCHITECTURES

TASK = "reproduction.ch5_rolling_average.task"
WATCHED = ("implicit", "implicit_rnn", "lstm")  # scored after each epoch too
FACTORS = (10.0, 1e5)
LONG_SCALES = {"1": 1.0, "1e5": 1e5}


def trained(
    seeds: Sequence[int], profile: str, scales: Sequence[float] | None = None, epochs_scale: float = 1.0
) -> AccuracyStudy:
    """The papers' models and the controls; `scales` replaces the profile's. A long run resumes."""
    return run_accuracy_study(
        "rolling-argmax",
        lambda name, seed: task.argmax_data_of(name, seed, profile, scales),
        lambda seed: task.of_seed(task.argmax_models(seed, profile), seed, seeds, profile),
        seeds,
        epochs_scale=epochs_scale,
        evaluate_epochs=WATCHED,
        key_module=TASK if profile == "full" else None,
    )


def trained_longer(seeds: Sequence[int], profile: str, length: int, epochs_scale: float = 1.0) -> AccuracyStudy:
    """The recurrent networks on longer sequences, with one class a step."""
    return run_accuracy_study(
        f"rolling-argmax-{length}",
        lambda name, seed: task.argmax_data(seed, profile, list(LONG_SCALES.values()), length=length),
        lambda seed: task.long_models(seed, profile, length),
        list(seeds)[: task.settings(profile)["sequence_seeds"]],
        epochs_scale=epochs_scale,
        key_module=TASK if profile == "full" else None,
    )


def sizes_and_training(study: AccuracyStudy, profile: str) -> dict[str, Any]:
    """The scales, and of each model its budget (see `budgets`), `parameters_NAME` and, one a seed,
    `train_accuracy_NAME`."""
    recipes = {name: recipe for name, (_, recipe) in task.argmax_models(study.seeds[0], profile).items()}
    found: dict[str, Any] = {"scales": [float(scale) for scale in study.scales]}
    found |= budgets(study.histories, recipes, task.settings(profile)["n_train"])
    for name in study.accuracies:
        found[f"parameters_{name}"] = study.parameters[name]
        found[f"train_accuracy_{name}"] = study.train_accuracies[name]
    return found


def scaled_names(study: AccuracyStudy) -> list[str]:
    """Models whose input holds no labels, which scaling would scale too."""
    return [name for name in study.models if name not in task.LABELS_GIVEN]


def changes_by_scaling(study: AccuracyStudy, profile: str) -> dict[str, list[float]]:
    """Share of test sequences whose label changes when the sequence is multiplied: `changed_NAME_xFACTOR`."""
    found = {}
    for name in scaled_names(study):
        for factor in FACTORS:
            changed = []
            for seed, model in zip(study.trained[name], study.models[name], strict=True):
                u, _ = task.argmax_data(seed, profile, [1.0]).test[1.0]
                changed.append(changed_by_scaling(model, u, factor))
            found[f"changed_{name}_x{factor:g}"] = changed
    return found


def leads(study: AccuracyStudy) -> dict[str, Any]:
    """What the papers' sentences speak of, one value a seed.

    Returns:
        `accuracy_NAME_tSCALE`, `spread_over_scales_NAME`, and differences of accuracies, the smallest (of leads) or
        largest (of distances) over the scales beyond 1.
    """
    t = [float(scale) for scale in study.scales]
    beyond = [k for k, scale in enumerate(t) if scale > 1]
    accuracy = {name: np.array(rows) for name, rows in study.accuracies.items()}
    lstm, implicit_rnn = accuracy["lstm"], accuracy["implicit_rnn"]
    implicit = accuracy["implicit"][: len(lstm)]  # the seeds that trained recurrent models too
    transformers = np.stack([accuracy[name] for name in task.LABELS_GIVEN])
    baselines = np.concatenate([transformers, lstm[None]])
    found: dict[str, Any] = {}
    for name in accuracy:
        for scale in (1.0, *FACTORS):
            if scale in study.scales:
                found[f"accuracy_{name}_t{scale:g}"] = study.at(name, scale)
        found[f"spread_over_scales_{name}"] = accuracy[name].max(axis=1) - accuracy[name].min(axis=1)

    def least(difference):
        return difference[:, beyond].min(axis=1)

    def most(difference):
        return np.abs(difference)[:, beyond].max(axis=1)

    near = lstm[:, t.index(min(t))]
    return found | {
        "implicit_lead_over_best_baseline": least(implicit - baselines.max(axis=0)),
        "implicit_rnn_lead_over_best_baseline": least(implicit_rnn - baselines.max(axis=0)),
        "implicit_lead_over_transformers": least(implicit - transformers.max(axis=0)),
        "implicit_lead_over_masked_unmasked": least(implicit - transformers[:2].max(axis=0)),
        "masked_minus_unmasked": most(transformers[0] - transformers[1]),
        "transformers_lead_over_lstm": least(transformers.min(axis=0) - lstm),
        "implicit_rnn_minus_implicit": (implicit_rnn - implicit).min(axis=1),
        "no_pe_minus_other_transformers": least(transformers[2] - transformers[:2].max(axis=0)),
        "no_pe_off_90": most(transformers[2] - 0.9),
        "lstm_drop_points": near - least(lstm),
        "lstm_drop_share": 1 - least(lstm) / near,
        "linear_minus_implicit": np.median(accuracy["linear"] - accuracy["implicit"], axis=1),
        "mlp_bias_free_minus_implicit": np.median(accuracy["mlp_bias_free"] - accuracy["implicit"], axis=1),
    }


def given_labels(study: AccuracyStudy, profile: str) -> dict[str, Any]:
    """What transformers make of the labels in their input, at t = 1 ("near") and at the largest scale ("far").

    Returns:
        `copy_accuracy`, that of repeating the last label; `by_step_NAME_seed_SEED`; `NAME_FACT_near` and
        `NAME_FACT_far`, one a seed (facts of `given_label_facts`); the unmasked transformer's accuracy at inner steps
        and at the last one.
    """
    far, copying = max(float(scale) for scale in study.scales), []
    for seed in study.seeds:
        given = task.argmax_data(seed, profile, [1.0], given=True)
        copying.append(float((given.u_train[:, -1, 1] == given.y_train).mean()))
    found: dict[str, Any] = {"copy_accuracy": copying}
    for name in task.LABELS_GIVEN:
        for scale in (1.0, far):
            facts = []
            for seed, model in zip(study.trained[name], study.models[name], strict=True):
                u, labels = task.argmax_data(seed, profile, [scale], labels="every", given=True).test[scale]
                facts.append(given_label_facts(model, u, labels))
                if scale == 1.0:
                    found[f"by_step_{name}_seed_{seed}"] = accuracy_by_step(model, u, labels)
            place = "near" if scale == 1.0 else "far"
            found |= {f"{name}_{key}_{place}": [fact[key] for fact in facts] for key in facts[0]}
    by_step = [found[f"by_step_transformer_unmasked_seed_{seed}"] for seed in study.trained["lstm"]]
    found["unmasked_leak_inner"] = [float(np.mean(steps[1:-1])) for steps in by_step]
    return found | {"unmasked_leak_last": [steps[-1] for steps in by_step]}


def epochs(study: AccuracyStudy) -> tuple[dict[str, Any], dict[str, Any]]:
    """Accuracy during training, in and out of distribution.

    Returns:
        Values `epochs_gap_NAME`, the mean distance of the two, one a seed, where both scales are tested; curves
        `epochs/NAME/SCALE`.
    """
    values, curves = {}, {}
    tested = [scale for scale in (1.0, 10.0) if scale in study.scales]
    for name in WATCHED:
        histories = [np.array(history.evaluation) for history in study.histories[name]]
        at = {scale: [rows[:, study.scales.index(scale)] for rows in histories] for scale in tested}
        curves |= {f"epochs/{name}/{scale:g}": rows for scale, rows in at.items()}
        if len(tested) == 2:
            pairs = zip(at[1.0], at[10.0], strict=True)
            values[f"epochs_gap_{name}"] = [float(np.abs(near - ten).mean()) for near, ten in pairs]
    return values, curves


def longer_sequences(longer: AccuracyStudy, study: AccuracyStudy, profile: str) -> dict[str, Any]:
    """Accuracy on longer sequences, `long_NAME_tSCALE`, the implicitRNN's lead there, and how far the trained
    implicitRNNs are from the papers' recursion by hand, one value a seed."""
    found: dict[str, Any] = {}
    for name, accuracies in longer.accuracies.items():
        found |= {f"long_{name}_t{scale}": [row[at] for row in accuracies] for at, scale in enumerate(LONG_SCALES)}
    pairs = zip(longer.accuracies["implicit_rnn"], longer.accuracies["lstm"])
    u, _ = task.argmax_data(study.seeds[0], profile, [1.0]).test[1.0]
    return found | {
        "long_lead_over_lstm": [a[0] - b[0] for a, b in pairs],
        "recursion_difference": [recursion_difference(model, u[:100]) for model in study.models["implicit_rnn"]],
    }


def setup(study: AccuracyStudy, profile: str) -> dict[str, Any]:
    """Sizes and range of the data as drawn, shares of labels, and `count_MODEL` of printed architectures."""
    data = task.argmax_data(study.seeds[0], profile, [10.0])
    labels = np.bincount(data.y_train, minlength=10) / len(data.y_train)
    found = {
        "train_samples": len(data.u_train),
        "test_samples": len(data.test[10.0][0]),
        "sequence_length": data.u_train.shape[1],
        "train_largest": float(data.u_train.max()),
        "test_largest_t10": float(data.test[10.0][0].max()),
        "highest_scale": max(float(scale) for scale in study.scales),
        "most_common_label": float(labels.max()),
        "rarest_label": float(labels.min()),
    }
    printed = [a for a in ARCHITECTURES if a.task == "rolling argmax" and a.published is not None]
    return found | {f"count_{architecture.model}": architecture.counted for architecture in printed}
