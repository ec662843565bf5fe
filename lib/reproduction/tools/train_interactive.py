"""Weights and bounds behind the book's page that a reader moves: small models, trained here, written as JSON.

    python -m reproduction.tools.train_interactive

writes book/_static/interactive.json and the picture for readers without JavaScript. The task is the identity on four
numbers from U(-5, 5), and the page moves along one line of inputs, u = t v, so that every prediction is a curve. The
models are those of the identity page, smaller: the MLP that is as narrow as its input, as the papers' is, and one twice
as wide. The boxes are bounds of two states over |u - u0| <= eps by three methods of `implicit_models.robustness`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from implicit_models.model import ImplicitModel
from implicit_models.robustness import Box, bounds
from reproduction.book.graph import ROOT
from reproduction.core.recipe import Recipe
from reproduction.core.train import train
from reproduction.models.linear import Linear
from reproduction.models.mlp import MLP

STATIC = ROOT / "book" / "_static"
HALF_WIDTH = 5.0
KAPPAS = (0.3, 0.5, 0.8, 0.95)
INPUTS = 4
DIRECTION = (1.0, -0.6, 0.4, 0.8)
STATES = 6
SEED = 3
RECIPE = Recipe(epochs=100, lr=0.01, batch_size=64)
RADII = [round(0.05 * k, 2) for k in range(31)]
METHODS = ("box", "interval", "dual")


def rounded(tensor: Any, digits: int = 6) -> Any:
    """Numbers of an array as nested lists."""
    return np.round(np.asarray(tensor.detach() if isinstance(tensor, torch.Tensor) else tensor, float), digits).tolist()


def implicit_weights(model: ImplicitModel) -> dict[str, Any]:
    """Matrices of an implicit model."""
    return {name: rounded(getattr(model, name)) for name in "ABCD"}


def mlp_weights(model: MLP) -> list[dict[str, Any]]:
    """Weights and biases of a network, layer by layer."""
    layers = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
    return [{"W": rounded(m.weight), "b": rounded(m.bias) if m.bias is not None else None} for m in layers]


def trained() -> dict[str, Any]:
    """The models of the page, trained on the identity."""
    generator = torch.Generator().manual_seed(SEED)
    u = HALF_WIDTH * (2 * torch.rand(2000, INPUTS, generator=generator) - 1)
    built: dict[str, Any] = {
        **{f"implicit {kappa}": ImplicitModel(INPUTS, INPUTS, STATES, kappa=kappa, seed=SEED) for kappa in KAPPAS},
        "mlp": MLP((INPUTS, INPUTS, INPUTS), seed=SEED),
        "wide mlp": MLP((INPUTS, 2 * INPUTS, INPUTS), seed=SEED),
        "mlp without biases": MLP((INPUTS, 2 * INPUTS, INPUTS), bias=False, seed=SEED),
        "linear": Linear(INPUTS, INPUTS, bias=True, seed=SEED),
    }
    for model in built.values():
        train(model, u, u, recipe=RECIPE, seed=SEED, progress=False)
    return built


def bounded_states() -> dict[str, Any]:
    """Two states with feedback over boxes of two inputs: bounds by each method at each radius, and the matrices, from
    which the page computes states of its own."""
    generator = torch.Generator().manual_seed(1)
    model = ImplicitModel(2, 1, 2, kappa=0.8, seed=2, dtype=torch.float64)
    with torch.no_grad():
        model.A.copy_(torch.tensor([[0.1, -0.6], [0.55, 0.1]], dtype=torch.float64))
        model.B.copy_(torch.randn(2, 2, generator=generator, dtype=torch.float64))
    centre = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    boxes = {}
    for method in METHODS:
        found = [bounds(model, centre, Box(radius), method=method) for radius in RADII]
        boxes[method] = [[rounded(f.xl[0]), rounded(f.xh[0])] for f in found]
    return {"A": rounded(model.A), "B": rounded(model.B), "centre": rounded(centre[0]), "radii": RADII, "boxes": boxes}


def content() -> dict[str, Any]:
    """All that the page reads."""
    models = trained()
    return {
        "half_width": HALF_WIDTH,
        "direction": list(DIRECTION),
        "kappas": list(KAPPAS),
        "implicit": [implicit_weights(models[f"implicit {kappa}"]) for kappa in KAPPAS],
        "mlp": mlp_weights(models["mlp"]),
        "wide": mlp_weights(models["wide mlp"]),
        "bias_free": mlp_weights(models["mlp without biases"]),
        "linear": {"W": rounded(models["linear"].weight), "b": rounded(models["linear"].bias)},
        "bounds": bounded_states(),
    }


def draw(made: dict[str, Any], path: Path) -> None:
    """The page's first picture at a shift of 20, for readers without JavaScript."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from reproduction.core.plots import use_style

    use_style()
    t = np.linspace(-25, 25, 401)
    u = t[:, None] * np.asarray(DIRECTION)
    figure, axes = plt.subplots(figsize=(6.2, 4.2))
    axes.plot(t, implicit_output(made["implicit"][-1], u)[:, 0], label=f"implicit, kappa {KAPPAS[-1]}")
    axes.plot(t, mlp_output(made["mlp"], u)[:, 0], "--", label="MLP, as narrow as its input")
    axes.plot(t, mlp_output(made["wide"], u)[:, 0], "-.", label="MLP, twice as wide")
    axes.plot(t, (u @ np.asarray(made["linear"]["W"]).T)[:, 0] + made["linear"]["b"][0], ":", label="linear map")
    axes.axvspan(-HALF_WIDTH, HALF_WIDTH, alpha=0.12, color="grey", label="training range")
    axes.set(xlabel="position t on the line of inputs", ylabel="prediction of the first number")
    axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def implicit_output(weights: dict[str, Any], u: np.ndarray) -> np.ndarray:
    """Predictions (N, q) of an implicit model by two hundred plain iterations, as the page computes them."""
    A, B, C, D = (np.asarray(weights[name]) for name in "ABCD")
    x = np.zeros((len(u), len(A)))
    for _ in range(200):
        x = np.maximum(x @ A.T + u @ B.T, 0)
    return x @ C.T + u @ D.T


def mlp_output(layers: list[dict[str, Any]], u: np.ndarray) -> np.ndarray:
    """Predictions (N, q) of a network."""
    h = u
    for place, layer in enumerate(layers):
        h = h @ np.asarray(layer["W"]).T + (0 if layer["b"] is None else np.asarray(layer["b"]))
        h = np.maximum(h, 0) if place < len(layers) - 1 else h
    return h


def main() -> None:
    """Write weights and picture."""
    made = content()
    (STATIC / "interactive.json").write_text(json.dumps(made) + "\n", encoding="utf-8")
    draw(made, STATIC / "interactive.png")


if __name__ == "__main__":
    main()
