"""Block diagrams of the papers, redrawn, and the structure of A of a residual network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

COLOURS = {"map": 0, "matrix": 7, "signal": -1}


def _box(
    axes, x: float, y: float, text: str, kind: str = "matrix", width: float = 1.0, height: float = 0.6
) -> tuple[float, float, float, float]:
    import seaborn
    from matplotlib.patches import FancyBboxPatch

    colour = seaborn.color_palette("colorblind")[COLOURS[kind]]
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0.02,rounding_size=0.08",
            facecolor=(*colour, 0.25),
            edgecolor=colour,
            linewidth=1.3,
        )
    )
    axes.text(x, y, text, ha="center", va="center", fontsize=9)
    return x, y, width / 2, height / 2


def _arrow(
    axes, start: tuple[float, float], end: tuple[float, float], text: str = "", bend: float = 0.0, above: float = 0.14
) -> None:
    from matplotlib.patches import FancyArrowPatch

    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=11,
            color="0.25",
            linewidth=1.1,
            connectionstyle=f"arc3,rad={bend}",
        )
    )
    if text:
        axes.text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + above, text, ha="center", fontsize=9)


def _axes(axes, width: float, height: float, title: str) -> None:
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title(title, fontsize="medium", loc="left")


def models_figure():
    """An implicit model, the cascade of two (Figure 2.2), and an implicit recurrent network (Figure 5.1)."""
    import matplotlib.pyplot as plt

    figure, (one, two, three) = plt.subplots(
        3, 1, figsize=(6.2, 6.6), gridspec_kw={"hspace": 0.25, "height_ratios": (1, 1, 1.1)}
    )
    _axes(one, 7.2, 2.2, "implicit model")
    _box(one, 3.2, 1.6, "φ", "map", 0.8)
    _box(one, 3.2, 0.6, "A   B\nC   D", width=1.4, height=0.9)
    _arrow(one, (0.6, 0.4), (2.5, 0.4), "u")
    _arrow(one, (3.9, 0.4), (6.2, 0.4), "ŷ = Cx + Du")
    one.plot([3.9, 4.6, 4.6, 3.65], [0.85, 0.85, 1.6, 1.6], color="0.25", linewidth=1.1)
    _arrow(one, (4.6, 1.6), (3.6, 1.6))
    one.text(4.72, 1.2, "z = Ax + Bu", fontsize=9, va="center")
    one.plot([2.8, 1.8, 1.8], [1.6, 1.6, 0.85], color="0.25", linewidth=1.1)
    _arrow(one, (1.8, 0.85), (2.5, 0.85))
    one.text(1.68, 1.25, "x", fontsize=9, ha="right")

    _axes(two, 7.2, 1.8, "cascade (read from left to right)")
    for x, k in ((2.2, 1), (4.9, 2)):
        _box(two, x, 0.7, f"A{k}  B{k}\nC{k}  D{k}".translate(str.maketrans("12", "₁₂")), width=1.3, height=0.9)
        _box(two, x, 1.5, f"φ{'₁₂'[k - 1]}", "map", 0.6, 0.4)
        _arrow(two, (x + 0.45, 1.15), (x + 0.32, 1.45), bend=0.3)
        _arrow(two, (x - 0.32, 1.45), (x - 0.45, 1.15), bend=0.3)
    _arrow(two, (0.4, 0.7), (1.55, 0.7), "u₁")
    _arrow(two, (2.85, 0.7), (4.25, 0.7), "ŷ₁ = u₂")
    _arrow(two, (5.55, 0.7), (6.8, 0.7), "ŷ₂")

    _axes(three, 7.2, 2.2, "recurrent network with an implicit cell")
    for k, x in enumerate((1.5, 3.6, 5.7)):
        label = ("t − 1", "t", "t + 1")[k]
        _box(three, x, 1.1, "implicit\nmodel", "map", 1.2, 0.8)
        _arrow(three, (x, 0.2), (x, 0.68))
        three.text(x + 0.12, 0.22, f"$u_{{{label}}}$".replace(" ", ""), fontsize=9)
        _arrow(three, (x, 1.52), (x, 2.05))
        three.text(x + 0.12, 1.85, f"$h_{{{label}}}$".replace(" ", ""), fontsize=9)
        _arrow(three, (x - 1.45 if k else 0.2, 1.1), (x - 0.62, 1.1))
    _arrow(three, (6.32, 1.1), (7.1, 1.1))
    return figure


def networks_figure():
    """A residual block (Figure 2.4), and state-driven modelling (Figure 3.1; SIM paper Figure 1)."""
    import matplotlib.pyplot as plt

    figure, (one, two) = plt.subplots(2, 1, figsize=(6.2, 4.6), gridspec_kw={"hspace": 0.3, "height_ratios": (1, 1.35)})
    _axes(one, 7.2, 1.8, "residual block")
    for x, text, kind in ((1.7, "W₁", "matrix"), (3.0, "φ₁", "map"), (4.3, "W₂", "matrix"), (6.1, "φ₂", "map")):
        _box(one, x, 0.6, text, kind, 0.7, 0.5)
    for a, b in (
        ((0.3, 0.6), (1.32, 0.6)),
        ((2.08, 0.6), (2.62, 0.6)),
        ((3.38, 0.6), (3.92, 0.6)),
        ((4.68, 0.6), (5.1, 0.6)),
        ((5.38, 0.6), (5.72, 0.6)),
        ((6.48, 0.6), (7.1, 0.6)),
    ):
        _arrow(one, a, b)
    one.text(0.4, 0.72, "u", fontsize=9)
    one.text(6.85, 0.72, "ŷ", fontsize=9)
    one.text(
        5.24,
        0.6,
        "+",
        ha="center",
        va="center",
        fontsize=12,
        bbox={"boxstyle": "circle", "facecolor": "white", "edgecolor": "0.25"},
    )
    one.plot([0.85, 0.85, 5.24], [0.6, 1.45, 1.45], color="0.25", linewidth=1.1)
    _arrow(one, (5.24, 1.45), (5.24, 0.84))

    _axes(two, 7.2, 2.5, "state-driven modelling")
    _box(two, 1.2, 1.9, "trained network", "map", 1.9)
    _box(two, 3.9, 1.9, "inputs U, outputs Ŷ\nstates X, pre-activations Z", width=2.75, height=0.8)
    _arrow(two, (2.18, 1.9), (2.5, 1.9))
    _box(two, 4.1, 0.55, "row by row:\nmin ½‖(A, B)(X, U) − Z‖² + penalty,  ‖A‖∞ ≤ κ", width=5.0, height=0.8)
    _arrow(two, (3.9, 1.46), (3.9, 1.0))
    _box(two, 6.3, 1.9, "implicit model\nA, B, C, D", "map", 1.55, 0.8)
    _arrow(two, (6.3, 1.0), (6.3, 1.46))
    return figure


def structure_figure(drawn: Mapping[str, Any], title: str):
    """Figure 2.5: where A of a 20-layer residual network is not zero, its blocks outlined.

    Args:
        drawn: from `measures.content_of`.
        title: of the axes.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm

    sizes, shown = drawn["sizes"], np.full((drawn["bins"], drawn["bins"]), np.nan)
    shown[drawn["row"], drawn["column"]] = drawn["share"]
    figure, axes = plt.subplots(figsize=(6.0, 5.6))
    n = sum(sizes) / 1000
    image = axes.imshow(
        shown,
        cmap="viridis",
        norm=LogNorm(vmin=np.nanmin(shown), vmax=np.nanmax(shown)),
        extent=(0, n, n, 0),
        interpolation="nearest",
    )
    ends = np.cumsum([0, *sizes]) / 1000
    for k in range(len(sizes)):
        axes.plot([ends[k], ends[k]], [0, ends[k]], color="0.75", linewidth=0.4)
        axes.plot([ends[k], n], [ends[k], ends[k]], color="0.75", linewidth=0.4)
    axes.grid(False)
    axes.set(
        xlabel="state that is read, thousands (later layers first)", ylabel="state that reads, thousands", title=title
    )
    axes.title.set_fontsize("medium")
    figure.colorbar(image, ax=axes, shrink=0.8, label="share of entries that are not zero")
    return figure


def structure_table(facts: Mapping[str, float], real: Mapping[str, float], image_size: int):
    """Facts of the matrix of Figure 2.5 (`structure_FACT`), and of the conversion of the trained network."""
    import pandas as pd

    found = {key.removeprefix("structure_"): value for key, value in facts.items()}
    rows = {
        "states": f"{found['states']:,}",
        "entries": f"{found['entries']:,.0f}",
        "share of a full A, %": f"{100 * found['share']:.3g}",
        "entries on or below the diagonal": f"{found['not_above']:.0f}",
        "entries beyond the layer before and the shortcut": f"{found['other_entries']:.0f}",
        "shortcut entries a row, at most": f"{found['largest_skips_a_row']:.0f}",
        "share equal along the diagonal, first stage": f"{found['toeplitz']:.3g}",
    }
    if real:
        rows["trained ResNet-20: largest difference of logits"] = f"{real['error']:.1e}"
        rows["classes changed"] = f"{real['classes_changed']:.0f} of {real['images']:.0f}"
    return pd.Series(rows, name=f"{image_size} x {image_size} images").to_frame()
