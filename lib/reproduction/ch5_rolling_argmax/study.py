"""Studies of the rolling argmax: accuracy at the last step, for every model, seed and scale."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from data_gen.core.dataset import Dataset
from reproduction.core.scores import count_parameters, predict, share_right
from reproduction.core.study import Models, Study, fitted, scaled
from reproduction.models.decoders import SequenceTransformer, decoded
from reproduction.models.sequence import SequenceImplicitRNN


@dataclass
class AccuracyStudy(Study):
    """A study of classifiers: what `Study` holds as errors are shares of sequences whose last label is right.

    Args:
        trained: model -> seeds that trained it; `seeds` are all.
    """

    trained: dict[str, list[int]] = field(default_factory=dict)

    @property
    def accuracies(self) -> dict[str, list[list[float]]]:
        """model -> (seeds, scales)."""
        return self.errors

    @property
    def train_accuracies(self) -> dict[str, list[float]]:
        """model -> accuracy on the training set after training."""
        return self.train_errors

    @property
    def scales(self) -> list[float]:
        """Keys of the test sets, in order."""
        return self.shifts


def last_step_accuracy(
    scores: Float[Tensor, "N C"] | Float[Tensor, "N C T"], labels: Int[np.ndarray, " N"] | Int[np.ndarray, "N T"]
) -> float:
    """Share of sequences whose largest score at the last step is the last label's.

    Args:
        scores: (N, C) of the last step, or (N, C, T) of every step.
        labels: (N,) or (N, T).
    """
    labels = torch.as_tensor(labels)
    last, truth = scores[..., -1] if scores.ndim == 3 else scores, labels[:, -1] if labels.ndim == 2 else labels
    return share_right(last, truth)


def last_step_accuracies(
    model: nn.Module, test: Mapping[Hashable, tuple[Shaped[np.ndarray, "N ..."], np.ndarray]]
) -> dict[Hashable, float]:
    """`last_step_accuracy` of a model on each test set."""
    return {scale: last_step_accuracy(predict(model, u), labels) for scale, (u, labels) in test.items()}


def run_accuracy_study(
    name: str,
    data_of: Callable[[str, int], Dataset],
    models_of: Callable[[int], Models],
    seeds: Sequence[int],
    *,
    epochs_scale: float = 1.0,
    key_module: str | None = None,
    evaluate_epochs: Sequence[str] = (),
) -> AccuracyStudy:
    """Train and score every model for every seed.

    Args:
        name: of the study, for progress bars and cache files.
        data_of: (model's name, seed) -> data set with class labels.
        models_of: seed -> name -> (constructor, recipe).
        seeds: one run each.
        epochs_scale: multiplies every recipe's epochs.
        key_module: module that defines the models; with it, trained models are kept in the content-keyed cache.
        evaluate_epochs: models that are scored on the test sets after each epoch too (`History.evaluation`).
    """
    study = AccuracyStudy(list(seeds))
    for seed in seeds:
        for model_name, (build, recipe) in models_of(seed).items():
            data, recipe = data_of(model_name, seed), scaled(recipe, epochs_scale)
            study.shifts = list(data.test)
            label, after = f"{name}-{model_name}-{seed}", None
            if model_name in evaluate_epochs:
                after = lambda model, test=data.test: list(last_step_accuracies(model, test).values())
            model, history = fitted(
                label,
                build,
                data,
                recipe,
                seed,
                key_module=key_module,
                parameters={"evaluate_epochs": after is not None},
                evaluate=after,
            )
            study.accuracies.setdefault(model_name, []).append(list(last_step_accuracies(model, data.test).values()))
            study.train_accuracies.setdefault(model_name, []).append(
                last_step_accuracy(predict(model, data.u_train), data.y_train)
            )
            study.histories.setdefault(model_name, []).append(history)
            study.models.setdefault(model_name, []).append(model)
            study.trained.setdefault(model_name, []).append(seed)
            study.parameters[model_name] = count_parameters(model)
    return study


def changed_by_scaling(model: nn.Module, u: Float[np.ndarray, "N T"], t: float) -> float:
    """Share of sequences whose last label changes when the sequence is multiplied by t, in double precision.

    0 for every positively homogeneous model.
    """
    double = copy.deepcopy(model).double()
    inputs = torch.as_tensor(u).double()
    one, many = (
        scores[..., -1] if scores.ndim == 3 else scores
        for scores in (predict(double, inputs), predict(double, t * inputs))
    )
    return (one.argmax(dim=1) != many.argmax(dim=1)).double().mean().item()


def accuracy_by_step(model: nn.Module, u: Shaped[np.ndarray, "N T ..."], labels: Int[np.ndarray, "N T"]) -> list[float]:
    """Share of right labels at each step, for a model that returns scores (N, C, T)."""
    return (predict(model, u).argmax(dim=1) == torch.as_tensor(labels)).double().mean(dim=0).tolist()


def given_label_facts(
    model: SequenceTransformer, u: Float[np.ndarray, "N T 2"], labels: Int[np.ndarray, "N T"]
) -> dict[str, float]:
    """What a transformer makes of the labels in its input, at the last step.

    Args:
        model: with decoder="labels".
        u: numbers beside the true labels of the step before.
        labels: of every step.

    Returns:
        "given", accuracy with the true labels given; "copied", share of answers equal to the last label given; "alone",
        accuracy when it is given its own answers instead.
    """
    answers, truth = predict(model, u)[..., -1].argmax(dim=1), torch.as_tensor(labels)[:, -1]
    previous, own = torch.as_tensor(u)[:, -1, 1].long(), decoded(model, torch.as_tensor(u)[..., 0])[:, -1]
    return {
        "given": (answers == truth).double().mean().item(),
        "copied": (answers == previous).double().mean().item(),
        "alone": (own == truth).double().mean().item(),
    }


@torch.no_grad()
def recursion_difference(model: SequenceImplicitRNN, u: Float[np.ndarray, "N T"], *, sweeps: int = 3000) -> float:
    """Largest difference, relative to the largest hidden state, between a network's hidden states and the papers'
    recursion by hand.

    x_t = relu(A x_t + B [s_t, h_{t-1}]) by plain fixed-point iteration, h_t = C x_t + D [s_t, h_{t-1}], h_0 = 0, in
    double precision.
    """
    core, S = copy.deepcopy(model.core).double(), torch.as_tensor(u).double()
    found = core(S.unsqueeze(2))[0]
    h, worst = S.new_zeros(len(S), core.hidden_size), 0.0
    for t in range(S.shape[1]):
        inputs = torch.cat([S[:, t : t + 1], h], dim=1)
        x = S.new_zeros(len(S), core.cell.n_states)
        for _ in range(sweeps):
            new = torch.relu(x @ core.cell.A.T + inputs @ core.cell.B.T)
            moved, x = float((new - x).abs().max()), new
            if moved <= 1e-13 * float(x.abs().max()):
                break
        h = x @ core.cell.C.T + inputs @ core.cell.D.T
        worst = max(worst, float((h - found[:, t]).abs().max()))
    return worst / float(found.abs().max())
