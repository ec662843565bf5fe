"""Train a locator for regional use and write the file that `implicit_models.seismology.locate --method
implicit|eikonet` reads.

    python -m reproduction.tools.train_locator --method implicit|eikonet [--profile quick|full] [--seed 0] [--out FILE]

Five stations within 20 degrees of the source, anywhere on the globe's training half; longitudes relative to the anchor,
in which the 1-D Earth is the same at every longitude, so that the locator serves all of them; picks with normal errors
of .5 s and back-azimuths with errors of 5 degrees. The file says all this.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from data_gen.core.dataset import Dataset
from data_gen.earthquakes import earthquake
from implicit_models.seismology.encoding import Encoding
from implicit_models.seismology.learned import KINDS, LearnedLocator, default_file
from reproduction.ch5_earthquake import task
from reproduction.ch5_earthquake.compute import location_scores
from reproduction.core.profiles import settings_of
from reproduction.core.scores import predict
from reproduction.core.train import Recipe, train

MAX_DIST_DEG, NOISE_S, NOISE_DEG = 20.0, 0.5, 5.0
SETTING = "anchor"
PROFILES: dict[str, dict[str, Any]] = {
    "quick": {"step_deg": 10.0, "depths": 70, "epochs": 2, "batch": 250},
    "full": {"step_deg": 5.0, "depths": 695, "epochs": 6, "batch": 500},
}
settings = settings_of(PROFILES)


def regional_data(profile: str, seed: int) -> Dataset:
    """Data set of the regional locators; test 0 is in distribution, the bands lie outside the training half."""
    chosen = settings(profile)
    return earthquake(
        task.N_STATIONS,
        max_dist_deg=MAX_DIST_DEG,
        step_deg=chosen["step_deg"],
        depths=chosen["depths"],
        noise_s=NOISE_S,
        noise_deg=NOISE_DEG,
        longitude=SETTING,
        bands=task.BANDS,
        seed=seed,
    )


def train_locator(method: str, profile: str = "full", seed: int = 0, *, progress: bool = True) -> LearnedLocator:
    """A trained locator.

    Args:
        method: "implicit" or "eikonet".
        profile: decides the mesh, the depths and the epochs.
        seed: of data, weights and shuffling.
        progress: whether a terminal gets a bar.

    Raises:
        ValueError: another method or profile.
    """
    if method not in KINDS:
        raise ValueError(f"method must be one of {', '.join(KINDS)}, got {method!r}")
    chosen, data = settings(profile), regional_data(profile, seed)
    build, recipe = task.models(SETTING, seed, "full")[method]
    recipe = Recipe(epochs=chosen["epochs"], lr=recipe.lr, batch_size=chosen["batch"])
    model = build()
    train(model, data.u_train, data.y_train, recipe=recipe, seed=seed, progress=progress, label=f"{method} locator")
    model.eval()
    encoding = Encoding.from_dict(data.meta["encoding"])
    about = {
        "trained on": "Ak135, 1-D Earth, synthetic events from 90 E over 180 to 90 W",
        "stations within, degrees": MAX_DIST_DEG,
        "noise of picks, s": NOISE_S,
        "noise of back-azimuths, degrees": NOISE_DEG,
        "longitude": "relative to the anchor",
        "samples": len(data.u_train),
        "batch": recipe.batch_size,
        "steps": recipe.epochs * -(-len(data.u_train) // recipe.batch_size),
        "profile": profile,
        "seed": seed,
        "test": tested(model, data),
    }
    if method == "implicit":
        return LearnedLocator.from_matrices(model.A, model.B, model.C, model.D, encoding, about=about)
    layers = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in model.layers]
    return LearnedLocator.from_layers(layers, encoding, about=about)


def tested(model: torch.nn.Module, data: Dataset) -> dict[str, dict[str, float]]:
    """Errors in distribution and at k = 9, of events with the noise of training."""
    shown = ("km_median", "km_p95", "far", "depth_km", "time_s")
    found = {}
    for k in (0, task.BANDS[-1]):
        u, y = data.test[k]
        scores = location_scores(
            predict(model, torch.as_tensor(u), batch_size=4000).double().numpy(), y, SETTING, data.meta, k
        )
        found["in distribution" if k == 0 else f"k = {k}"] = {name: round(scores[name], 2) for name in shown}
    return found


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduction.tools.train_locator", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--method", choices=KINDS, required=True)
    parser.add_argument("--profile", choices=tuple(PROFILES), default="full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file to write; default: where the locator looks for it")
    options = parser.parse_args(arguments)
    path = options.out or default_file(options.method)
    if path.is_dir():
        parser.error(f"--out {path} is a folder")
    path.parent.mkdir(parents=True, exist_ok=True)  # before the training, not after it
    locator = train_locator(options.method, options.profile, options.seed)
    locator.save(path)
    for side, scores in locator.about["test"].items():
        print(f"{side}: " + ", ".join(f"{name} {value:g}" for name, value in scores.items()))
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
