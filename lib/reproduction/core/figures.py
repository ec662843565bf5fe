"""Figures that are drawn more than once: from a notebook's own run, from a committed full run, for the README.

    python -m reproduction.core.figures

redraws the README's figure from results/ch5_identity.json.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from reproduction.book.graph import ROOT
from reproduction.core.plots import legend_below, spread_curves, use_style

IDENTITY_PAPER = ("implicit", "mlp", "mlp_10_9_9_10", "transformer")
IDENTITY_CONTROLS = ("implicit", "implicit_no_skip", "implicit_strict_upper", "linear", "mlp_bias_free", "mlp_skip")

ARITHMETIC_PAPER = ("implicit", "mlp", "nalu", "transformer_sequential", "transformer_depthwise")
ARITHMETIC_CONTROLS = IDENTITY_CONTROLS


def select(curves: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The named curves that there are, in this order."""
    return {name: curves[name] for name in names if name in curves}


def described(content: Mapping[str, Any]) -> str:
    """One line that says what a figure was drawn from."""
    return f"{content['profile']} profile, {len(content['seeds'])} seed{'s' if len(content['seeds']) > 1 else ''}"


def identity_figure(content: Mapping[str, Any]):
    """Test error against half-width: the papers' models above, the controls below (a results file's content)."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 1, figsize=(6.2, 9.6), sharex=True, gridspec_kw={"hspace": 0.55})
    half_widths = [5 + float(shift) for shift in content["values"]["shifts"]]
    for axes, names, title in zip(
        panels, (IDENTITY_PAPER, IDENTITY_CONTROLS), ("the papers' models", "controls"), strict=True
    ):
        spread_curves(
            axes,
            half_widths,
            select(content["curves"], names),
            xlabel="half-width of the test range U(-w, w)",
            ylabel="test MSE",
            xscale="log",
        )
        axes.set_title(f"{title} ({described(content)})", fontsize="medium")
        axes.tick_params(labelbottom=True)
        axes.axvline(5, color="0.4", linewidth=1, linestyle=":")
        legend_below(axes)
    return figure


def arithmetic_figure(content: Mapping[str, Any], group: str):
    """Test error against the width t, addition above subtraction (a results file's content).

    Args:
        content: values "t" and curves "operation/model".
        group: "paper" for the papers' models, "controls" for the implicit model among its controls.
    """
    import matplotlib.pyplot as plt

    names = {"paper": ARITHMETIC_PAPER, "controls": ARITHMETIC_CONTROLS}[group]
    figure, panels = plt.subplots(2, 1, figsize=(6.2, 9.2), sharex=True, sharey=True, gridspec_kw={"hspace": 0.36})
    for axes, operation in zip(panels, ("addition", "subtraction"), strict=True):
        curves = {name: content["curves"][f"{operation}/{name}"] for name in names}
        spread_curves(
            axes,
            content["values"]["t"],
            curves,
            xlabel="t: test inputs are U(-t/2, t/2)",
            ylabel="test MSE",
            xscale="log",
        )
        axes.set_title(f"{operation} ({described(content)})", fontsize="medium")
        axes.tick_params(labelbottom=True)
    low, high = panels[0].get_ylim()
    # NALU's errors span dozens of decades: beyond this the axes would show nothing else.
    panels[0].set_ylim(low, min(high, 1e20))
    legend_below(panels[1])
    return figure


def curves_figure(
    content: Mapping[str, Any],
    patterns: Sequence[str],
    titles: Sequence[str],
    *,
    ylabel: str,
    rename: Mapping[str, str] | None = None,
):
    """Curves against the training epoch, one panel a pattern.

    Args:
        content: a results file's content.
        patterns: keys of the curves with `{}` for the model's name.
        titles: of the panels.
        ylabel: with units.
        rename: model -> the name whose style it takes.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure, panels = plt.subplots(
        len(patterns), 1, figsize=(6.2, 4.6 * len(patterns)), sharex=True, squeeze=False, gridspec_kw={"hspace": 0.36}
    )
    for axes, pattern, title in zip(panels[:, 0], patterns, titles, strict=True):
        before, after = pattern.split("{}")
        for key, rows in content["curves"].items():
            name = key.removeprefix(before).removesuffix(after)
            if pattern.format(name) == key and "/" not in name and name in (*ARITHMETIC_PAPER, "linear", "mlp_relu"):
                # A diverged run stops early: shorter rows are filled up as not finite.
                longest = max(len(row) for row in rows)
                padded = [[float(v) for v in row] + [float("nan")] * (longest - len(row)) for row in rows]
                spread_curves(
                    axes,
                    list(range(1, longest + 1)),
                    {(rename or {}).get(name, name): padded},
                    xlabel="epoch",
                    ylabel=ylabel,
                )
        axes.set_title(f"{title} ({described(content)})", fontsize="medium")
        axes.tick_params(labelbottom=True)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(panels[-1, 0])
    return figure


def image_grid(images):
    """The first training image of each class in two rows, with the class names."""
    import matplotlib.pyplot as plt
    import numpy as np

    classes = images.meta["classes"]
    side = round(images.u_train.shape[1] ** 0.5)
    columns = -(-len(classes) // 2)
    figure, panels = plt.subplots(2, columns, figsize=(6.2, 3.2), squeeze=False)
    for label, axes in enumerate(panels.flat):
        axes.axis("off")
        if label < len(classes):
            first = int(np.flatnonzero(images.y_train == label)[0])
            axes.imshow(images.u_train[first].reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
            axes.set_title(str(classes[label]), fontsize="small")
    return figure


def readme_figure(content: Mapping[str, Any]):
    """The identity task in one panel: the papers' models and the controls that match them."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.6, 4.2))
    half_widths = [5 + float(shift) for shift in content["values"]["shifts"]]
    names = ("transformer", "mlp", "implicit", "mlp_bias_free", "linear")
    spread_curves(
        axes,
        half_widths,
        select(content["curves"], names),
        xlabel="half-width of the test range (training: 5)",
        ylabel="test MSE",
        xscale="log",
    )
    axes.set_title("identity task: claim and controls", fontsize="medium")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), borderaxespad=0)
    return figure


def main() -> int:
    """Redraw the README's figure from the committed full run."""
    from reproduction.book.results import RESULTS, load

    content = load(RESULTS / "ch5_identity.json")
    if content is None:
        print("results/ch5_identity.json does not exist yet: make book PROFILE=full")
        return 1
    use_style()
    readme_figure(content).savefig(ROOT / "book" / "_static" / "extrapolation.png", dpi=120)
    return 0


if __name__ == "__main__":
    sys.exit(main())
