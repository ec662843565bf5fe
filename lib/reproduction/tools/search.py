"""Hyper-parameter search: a grid for five tasks, judged by 5-fold cross-validation in distribution.

    python -m reproduction.tools.search            (make search)

No test set and no shifted data is looked at. Results go to results/search.json as they come, so that an interrupted
search goes on where it stopped.

Samples of identity, addition, rolling average and argmax are drawn independently, and so are their folds. Windows of
the spiky series overlap: their folds are blocks of the series, and training windows keep a distance from the held-out
block.

Not searched: the volatility task, the transformers of any task (too slow for a grid), and subtraction, which has
addition's inputs and sizes. They are trained with the settings of their task modules.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from data_gen.synthetic.functions import addition, identity
from data_gen.synthetic.rolling import rolling_argmax, rolling_average
from data_gen.synthetic.spiky import spiky
from reproduction.book.definitions import Ref
from reproduction.book.keys import content_key
from reproduction.book.results import RESULTS, load, save, summary
from reproduction.book.run import commit_holding, provenance
from reproduction.core.recipe import Recipe
from reproduction.core.scores import accuracy, evaluate
from reproduction.core.train import train
from reproduction.models.mlp import MLP

FOLDS = 5
EPOCHS = 30
N_TRAIN = 3_000
# Recurrent networks cost a step for each number of a sequence: fewer samples and epochs.
SEQUENCE_EPOCHS = 40
N_SEQUENCES = 2_000
RECIPES = {"lr": (0.003, 0.01, 0.03), "batch_size": (100, 500)}
KAPPAS = (0.5, 0.95)
# Task -> inputs p, outputs q, states n of the implicit model, hidden layers of the MLP, states and hidden size of the
# implicitRNN, hidden size of the LSTM.
SIZES: dict[str, dict[str, Any]] = {
    "identity": {"p": 10, "q": 10, "n": 4, "mlp": (10,)},
    "addition": {"p": 50, "q": 1, "n": 20, "mlp": (10, 10)},
    "rolling_average": {"p": 10, "q": 10, "n": 32, "lstm": 18},
    "rolling_argmax": {"p": 10, "q": 10, "n": 36, "rnn": (21, 22), "lstm": 21},
    "spiky": {"q": 1, "rnn": (20, 20), "lstm": 20},
}
SEQUENTIAL = ("implicit_rnn", "lstm")
LOOK_BACK, HORIZON = 10, 1
# Task whose samples are windows of one series, one point apart -> points of a window with its target.
SPANS = {"spiky": LOOK_BACK + HORIZON}
Candidate = tuple[str, str, dict[str, Any], Callable[[int], nn.Module], Recipe]


def candidates() -> Iterator[Candidate]:
    """All points of the grid: task, model, setting, constructor from a seed, recipe."""
    for task, (lr, batch_size) in itertools.product(SIZES, itertools.product(*RECIPES.values())):
        setting = {"lr": lr, "batch_size": batch_size}
        loss = "cross_entropy" if task == "rolling_argmax" else "mse"
        for model, extra, build in _models(task):
            sequential = model in SEQUENTIAL
            recipe = Recipe(
                epochs=SEQUENCE_EPOCHS if sequential else EPOCHS,
                lr=lr,
                batch_size=batch_size,
                loss=loss,
                clip=1.0 if sequential else None,
                on_nan="stop",
            )
            yield task, model, setting | extra, build, recipe


def _models(task: str) -> Iterator[tuple[str, dict[str, Any], Callable[[int], nn.Module]]]:
    from implicit_models.model import ImplicitModel
    from reproduction.models.sequence import SequenceImplicitRNN, SequenceLSTM

    sizes = SIZES[task]
    p, q = sizes.get("p"), sizes["q"]
    every = "every" if task == "rolling_average" else "last"
    if "n" in sizes:
        for kappa in KAPPAS:
            yield (
                "implicit",
                {"kappa": kappa},
                lambda seed, kappa=kappa: ImplicitModel(p, q, sizes["n"], kappa=kappa, seed=seed),
            )
    if "mlp" in sizes:
        yield "mlp", {}, lambda seed: MLP((p, *sizes["mlp"], q), seed=seed)
    if "rnn" in sizes:
        n, hidden = sizes["rnn"]
        yield "implicit_rnn", {"kappa": 0.95}, lambda seed: SequenceImplicitRNN(n, hidden, q, kappa=0.95, seed=seed)
    if "lstm" in sizes:
        # the average has one output at each of ten steps
        outputs = 1 if every == "every" else q
        yield "lstm", {}, lambda seed: SequenceLSTM(sizes["lstm"], outputs, output=every, seed=seed)


def training_data(task: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """In-distribution inputs and targets of a task; no test set is drawn beyond the generators' own, which is not
    looked at.

    Raises:
        ValueError: an unknown task.
    """
    match task:
        case "identity":
            data = identity(N_TRAIN, 1, shifts=[0], seed=seed)
        case "addition":
            data = addition(N_TRAIN, 1, t=[2.0], seed=seed)
        case "rolling_average":
            data = rolling_average(N_TRAIN, 1, shifts=[0.0], seed=seed)
        case "rolling_argmax":
            data = rolling_argmax(N_TRAIN, 1, scales=[1.0], seed=seed)
            return data.u_train, data.y_train[:, -1].copy()
        case "spiky":
            data = spiky(look_back=LOOK_BACK, horizon=HORIZON, scaling="standard", seed=seed)
        case _:
            raise ValueError(f"task must be one of {', '.join(SIZES)}; got {task!r}")
    return data.u_train, data.y_train


def split(n: int, seed: int, span: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Folds of n samples: (training, held-out) indices of each.

    Args:
        n: samples.
        seed: of the random folds.
        span: 0 where samples are independent: random folds. Else sample i is a window of the points i, ..., i + span -
            1 of a series: folds are blocks of consecutive windows, and the `span` windows next to a block on either
            side are not trained on, so that no point of a training window, input or target, is one of a held-out
            window.

    Raises:
        ValueError: fewer samples than folds, or so few that nothing is left to train on.
    """
    if n < FOLDS:
        raise ValueError(f"{n} samples cannot be split into {FOLDS} folds")
    order = np.arange(n) if span else np.random.default_rng(seed).permutation(n)
    folds = np.array_split(order, FOLDS)
    if not span:
        return [(np.concatenate(folds[:k] + folds[k + 1 :]), held_out) for k, held_out in enumerate(folds)]
    pairs = [(order[(order < block[0] - span) | (order > block[-1] + span)], block) for block in folds]
    if not all(len(rest) for rest, _ in pairs):
        raise ValueError(f"{n} windows of {span} points leave nothing to train on beside a held-out block")
    return pairs


def cross_validate(
    u: np.ndarray, y: np.ndarray, build: Callable[[int], nn.Module], recipe: Recipe, seed: int, span: int = 0
) -> list[float]:
    """Validation error of each fold: mean squared error, or share of wrong answers for cross-entropy.

    Args:
        u, y: in-distribution data, N samples in the first dimension.
        build: seed -> untrained model.
        recipe: of the training.
        seed: of folds, initial weights and shuffling.
        span: as in `split`.
    """
    errors = []
    for k, (rest, held_out) in enumerate(split(len(u), seed, span)):
        model = build(seed + k)
        train(model, u[rest], y[rest], recipe=recipe, seed=seed + k, progress=False)
        test = {0: (u[held_out], y[held_out])}
        errors.append(1 - accuracy(model, test)[0] if recipe.loss == "cross_entropy" else evaluate(model, test)[0])
    return errors


def main(arguments: list[str] | None = None) -> int:
    """Search the grid; prints a table sorted by error, best first."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.tools.search", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="stop after this many new points")
    parser.add_argument("--json", default=str(RESULTS / "search.json"))
    options = parser.parse_args(arguments)
    path = Path(options.json)
    parameters = {
        "seed": options.seed,
        "folds": FOLDS,
        "epochs": EPOCHS,
        "n_train": N_TRAIN,
        "sequence_epochs": SEQUENCE_EPOCHS,
        "n_sequences": N_SEQUENCES,
    }
    key = content_key(modules=["reproduction.tools.search"], parameters=parameters, data={}, lock=None)
    commit = commit_holding([Ref("reproduction.tools.search", None)])
    content = load(path)
    if content is not None and "points" not in content:
        parser.error(f"{path} holds something else than a search: give another file")
    if content is None or content["provenance"]["code_key"] != key:
        content = {"parameters": parameters, "points": []}
    done = {(p["task"], p["model"], str(p["setting"])) for p in content["points"]}
    data: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    grid = list(candidates())
    fresh = 0
    for number, (task, model, setting, build, recipe) in enumerate(grid, start=1):
        if (task, model, str(setting)) in done:
            continue
        if options.limit is not None and fresh >= options.limit:
            break
        if task not in data:
            data[task] = training_data(task, options.seed)
        u, y = data[task]
        if model in SEQUENTIAL:
            u, y = u[:N_SEQUENCES], y[:N_SEQUENCES]
        start, cpu = time.perf_counter(), time.process_time()
        errors = cross_validate(u, y, build, recipe, options.seed, SPANS.get(task, 0))
        fresh += 1
        content["points"].append(
            {
                "task": task,
                "model": model,
                "setting": setting,
                "errors": [str(e) if not np.isfinite(e) else e for e in errors],
                "cpu_seconds": round(time.process_time() - cpu, 2),
                "seconds": round(time.perf_counter() - start, 2),
            }
        )
        spent = {name: sum(point[name] for point in content["points"]) for name in ("seconds", "cpu_seconds")}
        content["provenance"] = provenance({"code_key": key, "data_key": "{}"}, commit=commit, **spent)
        save(path, content)
        print(
            f"[{number}/{len(grid)}] {task} {model} {setting}: {summary(content['points'][-1]['errors'])}", flush=True
        )
    ranked = sorted(
        content["points"], key=lambda p: (p["task"], p["model"], float(np.median([float(e) for e in p["errors"]])))
    )
    print("\nbest in distribution:")
    for (task, model), points in itertools.groupby(ranked, key=lambda p: (p["task"], p["model"])):
        best = next(iter(points))
        print(f"  {task:15} {model:12} {best['setting']}  {summary(best['errors'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
