"""Figures of the chapter on well-posedness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from implicit_models.wellposed import certificate
from reproduction.book.results import summary
from reproduction.ch2_wellposedness.compute import relu_solutions, well_posed
from reproduction.core.plots import legend_below

REGIONS = (
    "not well-posed",
    "well-posed, not certified",
    "Metzler or triangular certificate",
    "PF condition",
    r"$\|A\|_\infty < 1$",
)


def scalar_figure(left: float = 2.0, right: float = 0.5):
    """Figure 2.1: both sides of x = relu(a x + b) for a > 1 and a < 1, b = -1 and 1."""
    import matplotlib.pyplot as plt
    import seaborn

    palette = seaborn.color_palette("colorblind")
    figure, panels = plt.subplots(1, 2, figsize=(6.2, 3.2), sharey=True)
    x = np.linspace(-1, 3, 200)
    for axes, slope in zip(panels, (left, right), strict=True):
        axes.plot(x, x, color="0.4", linestyle=":", label="x")
        for b, colour, line in ((-1.0, palette[0], "-"), (1.0, palette[3], "--")):
            axes.plot(x, np.maximum(0, slope * x + b), color=colour, linestyle=line, label=f"(ax + b)$_+$, b = {b:g}")
            for solution in relu_solutions(np.array([[slope]]), np.array([b])):
                axes.plot(solution, solution, "o", color=colour, markersize=7)
        axes.set(xlabel="x", title=f"a = {slope:g}", ylim=(-0.3, 3))
    legend_below(panels[0], columns=1)
    return figure


def region(A: np.ndarray) -> int:
    """Index into REGIONS: the strongest condition that A meets."""
    if np.linalg.norm(A, np.inf) < 1:
        return 4
    found = certificate(A)
    if found:
        return 3 if found.kind == "pf" else 2
    return int(well_posed(A))


def regions_figure(points: int = 61):
    """Regions of the conditions for ReLU and A = [[a, b], [c, a]]: c = b, c = -b, and [a, 4; b, a]."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap

    families = (
        ("A = [a, b; b, a]", lambda a, b: [[a, b], [b, a]]),
        ("A = [a, b; −b, a]", lambda a, b: [[a, b], [-b, a]]),
        ("A = [a, 4; b, a]", lambda a, b: [[a, 4.0], [b, a]]),
    )
    colours = ListedColormap(["#d0d0d0", "#f2d9a6", "#9ecae1", "#4292c6", "#08519c"])
    figure, panels = plt.subplots(1, 3, figsize=(6.2, 3.0), sharey=True)
    values = np.linspace(-3, 3, points)
    for axes, (title, matrix) in zip(panels, families, strict=True):
        grid = np.array([[region(np.array(matrix(a, b))) for b in values] for a in values])
        image = axes.imshow(
            grid,
            origin="lower",
            extent=(-3, 3, -3, 3),
            cmap=colours,
            vmin=-0.5,
            vmax=4.5,
            interpolation="nearest",
            aspect="equal",
        )
        axes.set_title(title, fontsize="small")
        axes.set_xlabel("b")
        axes.grid(False)
    panels[0].set_ylabel("a, the diagonal")
    handles = [plt.Rectangle((0, 0), 1, 1, color=image.cmap(k)) for k in range(5)]
    figure.legend(
        handles, REGIONS, loc="upper center", bbox_to_anchor=(0.5, 0.1), ncols=2, frameon=False, fontsize="small"
    )
    return figure


def shares_figure(scales: Sequence[float], shares: dict[str, Sequence[float]], n: int):
    """Share of random matrices that each condition accepts, against their scale."""
    import matplotlib.pyplot as plt
    import seaborn

    palette = seaborn.color_palette("colorblind")
    figure, axes = plt.subplots(figsize=(6.2, 3.6))
    for (name, row), colour, marker, line in zip(
        shares.items(), (palette[7], palette[0], palette[2], palette[3]), "osD^", ("-", "-", "--", "-."), strict=True
    ):
        axes.plot(scales, [100 * v for v in row], marker=marker, linestyle=line, color=colour, label=name)
    axes.set(xlabel=rf"size of the entries times $\sqrt{{n}}$, n = {n}", ylabel="share of random A (%)", ylim=(-3, 103))
    legend_below(axes)
    return figure


# Model -> the recorded disagreements with the exact decision, and the recorded cases where it holds.
DISAGREEMENTS = {
    "triangular ReLU: diag(A) < 1": ("triangular_criterion_errors", "triangular_posed"),
    "block upper-triangular": ("block_upper", "block_posed"),
    "block lower-triangular": ("block_lower", "block_posed"),
    "blockwise maps (ReLU and linear)": ("block_blockwise", "block_posed"),
    "the same after a permutation": ("block_permuted", "block_posed"),
    "cascade": ("composition_cascade", "composition_posed"),
    "parallel": ("composition_parallel", "composition_posed"),
    "PF of compositions": ("composition_pf", "composition_below"),
}


def disagreement_table(values: Mapping[str, Any]):
    """Recorded disagreements of each criterion with the exact decision."""
    import pandas as pd

    rows = {
        label: {"disagreements": summary(values[errors]), "cases where it holds": summary(values[cases])}
        for label, (errors, cases) in DISAGREEMENTS.items()
    }
    return pd.DataFrame(rows).T


def scalar_table(slopes: Sequence[float], offsets: Sequence[float], counts: np.ndarray):
    """Numbers of solutions of the scalar equation by slope and offset."""
    import pandas as pd

    columns = [f"solutions, b = {b:g}" for b in offsets]
    return pd.DataFrame(counts.astype(int), index=pd.Index(slopes, name="slope a"), columns=columns)
