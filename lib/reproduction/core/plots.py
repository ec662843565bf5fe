"""Figures: one look for the whole book, and the one plot that most of it needs, curves with their spread.

Colours are seaborn's colour-blind palette; a model keeps its colour, marker and line style on every figure, so that
nothing is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# name -> (label, colour index of the palette or -1 for black, marker, line style); implicit solid, controls dashed.
STYLES: dict[str, tuple[str, int, str, str]] = {
    "implicit": ("implicit", 0, "o", "-"),
    "implicit_no_skip": ("implicit, no D", 9, "s", "-"),
    "implicit_strict_upper": ("implicit, strictly triangular A", 4, "^", "-"),
    "linear": ("linear", 7, "x", "--"),
    "mlp": ("MLP", 3, "v", "-."),
    "mlp_10_9_9_10": ("MLP 10-9-9-10", 6, "<", "-."),
    "mlp_bias_free": ("MLP, no biases", 2, "D", "--"),
    "mlp_skip": ("MLP + skip", 1, "P", "--"),
    "explicit": ("network 784-64-32-16-10", 3, "v", "-."),
    "explicit_bias_free": ("network without biases", 2, "D", "--"),
    "explicit_skip": ("network with linear skip", 1, "P", "--"),
    "eikonet": ('residual MLP ("EikoNet")', 3, "v", "-."),
    "eikonet_skip": ("residual MLP + skip", 1, "P", "--"),
    "nalu": ("NALU", -1, "*", ":"),
    "transformer": ("transformer encoder", 5, "h", ":"),
    "transformer_sequential": ("transformer, sequential", 5, "h", ":"),
    "transformer_depthwise": ("transformer, depth-wise", 6, "H", ":"),
    "implicit_report": ("implicit, n = 200", 9, "p", "-"),
    "implicit_rnn": ("implicitRNN", 1, "d", "-"),
    "implicit_rnn_bias": ("implicitRNN, head with bias", 4, "P", "-"),
    "implicit_rnn_every": ("implicitRNN, every step taught", 9, "s", "-"),
    "lstm": ("LSTM", 3, ">", "-."),
    "lstm_every": ("LSTM, every step taught", 6, "<", "-."),
    "lstm_report": ("LSTM 100", 6, "<", "-."),
    "transformer_encoder_decoder": ("transformer encoder-decoder", 5, "h", ":"),
    "transformer_report": ("transformer encoder, one token", 4, "H", ":"),
    "transformer_masked": ("masked, labels given", 5, "h", ":"),
    "transformer_unmasked": ("unmasked, labels given", 3, "X", ":"),
    "transformer_no_pe": ("no positions, labels given", 2, "*", ":"),
    "transformer_leak_free": ("no labels given", 7, "1", "-."),
    "transformer_decoder": ("transformer decoder", 5, "h", ":"),
    "neural_ode": ("neural ODE", -1, "*", "-."),
    "neural_ode_bias_free": ("neural ODE, ReLU, no biases", 5, "X", "--"),
    "constant": ("constant", 7, "_", "--"),
    "persistence": ("persistence", -1, "|", "--"),
    "autoregression": ("linear autoregression", 2, "x", "--"),
}


def use_style() -> None:
    """Set the book's matplotlib parameters (call once in a notebook)."""
    import seaborn

    seaborn.set_theme(context="notebook", style="ticks", palette="colorblind", font_scale=0.9)
    import matplotlib
    import pandas

    pandas.set_option("display.max_colwidth", None)  # a note that is cut says nothing
    matplotlib.rcParams.update(
        {
            "figure.figsize": (6.2, 4.4),
            "figure.dpi": 144,
            "savefig.bbox": "tight",
            "figure.facecolor": "white",
            "axes.grid": True,
            "grid.alpha": 0.35,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "lines.markersize": 5,
            "lines.linewidth": 1.6,
            "legend.frameon": False,
            "legend.fontsize": "small",
        }
    )


def style_of(name: str, position: int = 0, styles: Mapping[str, tuple[str, int, str, str]] = STYLES) -> dict[str, Any]:
    """Matplotlib keywords of a model's line: label, colour, marker, line style.

    Args:
        position: decides the colour of a name without a style.
        styles: looks of curves that are no models of their own take the place of the models'.
    """
    import seaborn

    palette = seaborn.color_palette("colorblind")
    label, colour, marker, line = styles.get(name, (name.replace("_", " "), position % 10, "o", "-"))
    return {"label": label, "color": "0.1" if colour < 0 else palette[colour], "marker": marker, "linestyle": line}


def spread_curves(
    axes,
    x: Sequence[float],
    curves: Mapping[str, Sequence[Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    xscale: str = "linear",
    yscale: str = "log",
    limits: tuple[float, float] | None = None,
    styles: Mapping[str, tuple[str, int, str, str]] = STYLES,
) -> None:
    """Draw one curve a model: the median over seeds, and the band from the smallest to the largest seed.

    Args:
        axes: matplotlib axes.
        x: (k,) abscissae.
        curves: name -> (seeds, k) values; a seed that is not finite at a point is left out of the band there and marked
            by a cross at the top of the axes, so that a diverged run stays visible.
        xlabel, ylabel: labels with units.
        limits: range of the ordinate.
        styles: see `style_of`.

    Raises:
        ValueError: when a curve's length is not that of x, naming the model.
    """
    import numpy as np

    for position, (name, rows) in enumerate(curves.items()):
        values = np.array([[float(v) for v in row] for row in rows])
        if values.shape[1] != len(x):
            raise ValueError(f"curve {name!r} has {values.shape[1]} points, x has {len(x)}")
        finite = np.where(np.isfinite(values), values, np.nan)
        known = np.isfinite(finite).any(axis=0)
        style = style_of(name, position, styles)
        abscissa = np.asarray(x, dtype=float)[known]
        middle, low, high = (f(finite[:, known], axis=0) for f in (np.nanmedian, np.nanmin, np.nanmax))
        axes.plot(abscissa, middle, markevery=max(1, len(abscissa) // 12), **style)
        if len(rows) > 1:
            axes.fill_between(abscissa, low, high, color=style["color"], alpha=0.18, linewidth=0)
        lost = ~np.isfinite(values).all(axis=0)
        if lost.any():
            axes.plot(
                np.asarray(x)[lost],
                np.full(lost.sum(), 0.985),
                "x",
                color=style["color"],
                clip_on=False,
                transform=axes.get_xaxis_transform(),
            )
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale=xscale, yscale=yscale)
    if limits is not None:
        axes.set_ylim(*limits)


def legend_below(axes, columns: int = 2) -> None:
    """Put the legend under the axes, where it covers no curve and keeps the figure narrow enough for a phone."""
    height = axes.get_position().height * axes.figure.get_figheight()
    # 0.6 inches leave room for tick labels and the axis label, whatever the figure's height.
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.45, -0.6 / height), ncols=columns, borderaxespad=0, columnspacing=1.2
    )
