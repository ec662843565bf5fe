"""Hyper-parameter search: a grid, judged by 5-fold cross-validation in distribution.

    python -m reproduction.search            (make search)

No test set and no shifted data is looked at. Results go to results/search.json as they come, so that an interrupted
search goes on where it stopped.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch import nn

from data_gen.functions import addition, identity
from reproduction.baselines.mlp import MLP
from reproduction.content_key import content_key
from reproduction.evaluation import evaluate
from reproduction.execute import cpu_name
from reproduction.recipe import Recipe
from reproduction.results import RESULTS, load, save, summary
from reproduction.training import train

FOLDS = 5
EPOCHS = 30
N_TRAIN = 3_000
RECIPES = {"lr": (0.003, 0.01, 0.03), "batch_size": (100, 500)}
KAPPAS = (0.5, 0.95)


def candidates() -> Iterator[tuple[str, str, dict[str, Any], Callable[[int], nn.Module], Recipe]]:
    """All points of the grid: task, model, setting, constructor from a seed, recipe."""
    from implicit_models.model import ImplicitModel

    sizes = {"identity": (10, 10, 4), "addition": (50, 1, 20)}
    for (task, (p, q, n)), lr, batch_size in itertools.product(sizes.items(), *RECIPES.values()):
        recipe = Recipe(epochs=EPOCHS, lr=lr, batch_size=batch_size, on_nan="stop")
        setting = {"lr": lr, "batch_size": batch_size}
        for kappa in KAPPAS:
            yield (task, "implicit", setting | {"kappa": kappa},
                   lambda seed, p=p, q=q, n=n, kappa=kappa: ImplicitModel(p, q, n, kappa=kappa, seed=seed), recipe)
        hidden = (10,) if task == "identity" else (10, 10)
        yield task, "mlp", setting, lambda seed, p=p, q=q, hidden=hidden: MLP((p, *hidden, q), seed=seed), recipe


def cross_validate(u: np.ndarray, y: np.ndarray, build: Callable[[int], nn.Module], recipe: Recipe, seed: int) -> list[float]:
    """Validation MSE of each fold.

    Args:
        u, y: (N, p), (N, q) in-distribution data.
        build: seed -> untrained model.
        recipe: of the training.
        seed: of folds, initial weights and shuffling.
    """
    folds = np.array_split(np.random.default_rng(seed).permutation(len(u)), FOLDS)
    errors = []
    for k, held_out in enumerate(folds):
        rest = np.concatenate([fold for j, fold in enumerate(folds) if j != k])
        model = build(seed + k)
        train(model, u[rest], y[rest], recipe=recipe, seed=seed + k, progress=False)
        errors.append(evaluate(model, {0: (u[held_out], y[held_out])})[0])
    return errors


def main(arguments: list[str] | None = None) -> int:
    """Search the grid; prints a table sorted by error, best first."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.search", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="stop after this many new points")
    parser.add_argument("--json", default=str(RESULTS / "search.json"))
    options = parser.parse_args(arguments)
    from pathlib import Path

    path = Path(options.json)
    parameters = {"seed": options.seed, "folds": FOLDS, "epochs": EPOCHS, "n_train": N_TRAIN}
    key = content_key(modules=["reproduction.search"], parameters=parameters, data={}, lock=None)
    content = load(path)
    if content is not None and "points" not in content:
        parser.error(f"{path} holds something else than a search: give another file")
    if content is None or content["code_key"] != key:
        content = {"code_key": key, "parameters": parameters, "cpu": cpu_name(), "points": []}
    done = {(p["task"], p["model"], str(p["setting"])) for p in content["points"]}
    data = {"identity": identity(N_TRAIN, 1, shifts=[0], seed=options.seed), "addition": addition(N_TRAIN, 1, t=[2.0], seed=options.seed)}
    grid = list(candidates())
    fresh = 0
    for number, (task, model, setting, build, recipe) in enumerate(grid, start=1):
        if (task, model, str(setting)) in done:
            continue
        if options.limit is not None and fresh >= options.limit:
            break
        errors = cross_validate(data[task].u_train, data[task].y_train, build, recipe, options.seed)
        fresh += 1
        content["points"].append({"task": task, "model": model, "setting": setting, "errors": [str(e) if not np.isfinite(e) else e for e in errors]})
        save(path, content)
        print(f"[{number}/{len(grid)}] {task} {model} {setting}: {summary(content['points'][-1]['errors'])}", flush=True)
    ranked = sorted(content["points"], key=lambda p: (p["task"], p["model"], float(np.median([float(e) for e in p["errors"]]))))
    print("\nbest in distribution:")
    for (task, model), points in itertools.groupby(ranked, key=lambda p: (p["task"], p["model"])):
        best = next(iter(points))
        print(f"  {task:9} {model:9} {best['setting']}  {summary(best['errors'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
