"""Figures and tables of the notebook of the trained classifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.classifiers import fashion
from reproduction.core.figures import described
from reproduction.core.plots import legend_below, spread_curves
from reproduction.core.recipe import History
from reproduction.implicit_fashion.compute import Trained


def seconds_texts(runs: Trained) -> dict[str, dict[str, str]]:
    """Label of each classifier -> CPU seconds of a training, mean over the seeds."""
    return {
        fashion.LABELS[name]: {"CPU seconds a run": f"{np.mean([sum(history.cpu_seconds) for _, history in made]):.1f}"}
        for name, made in runs.items()
    }


def accuracy_figure(source: Mapping[str, Any], names: Sequence[str], *, full: bool):
    """Test accuracy after each epoch.

    Args:
        source: a results file's content.
        names: of the classifiers.
        full: whether the source is the committed full run.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    known = [name for name in names if f"{name}/accuracy" in source["curves"]]
    curves = {name: source["curves"][f"{name}/accuracy"] for name in known}
    epochs = range(1, len(next(iter(curves.values()))[0]) + 1)
    spread_curves(axes, epochs, curves, xlabel="epoch", ylabel="test accuracy", yscale="linear")
    axes.set_title(f"Fashion-MNIST ({described(source)})" if full else described(source), fontsize="medium")
    legend_below(axes)
    return figure


def solver_figure(history: History):
    """Mean and largest solver iterations of each epoch of a training."""
    import matplotlib.pyplot as plt

    epochs = range(1, len(history.loss) + 1)
    figure, axes = plt.subplots(figsize=(6.2, 3.4))
    axes.plot(epochs, history.iterations_mean, "o-", label="mean")
    axes.plot(epochs, history.iterations_max, "v--", label="largest")
    axes.set(xlabel="epoch", ylabel="solver iterations", ylim=(0, None))
    legend_below(axes)
    return figure


def equilibrium_table(runs: Trained, facts: Mapping[str, Any]):
    """Certificate of the first implicit classifier, and how its equilibria were solved (`compute.solver_facts`)."""
    import pandas as pd

    certificate = runs["implicit"][0][0].certificate()
    rows = {
        "certificate": certificate.kind,
        "margin": f"{certificate.margin:.3g}",
        "||A||_inf": f"{facts['row_norm'][0]:.3g}",
        "largest residual": f"{facts['residual_max']:.1e}",
        "iterations, mean": f"{facts['iterations_test_mean']:.1f}",
        "all converged": str(facts["all_converged"]),
    }
    return pd.Series(rows, name="equilibria of the test images").to_frame()
