"""Figures of a network of colour images: rows of its sensitivity matrix, success of attacks, and attacked images with
the changed pixels marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from reproduction.ch4_attacks import show as attack_images
from reproduction.ch4_attacks.show import STYLES as SPARSE_STYLES
from reproduction.ch4_attacks.show import TITLES, with_marks
from reproduction.core.plots import legend_below

STYLES: dict[str, tuple[str, int, str, str]] = SPARSE_STYLES | {
    "untrained": ("S of random weights", 9, "^", "--"),
    "disc": ("nearest to the middle", 4, "v", "--"),
    "patch": ("a patch anywhere", 5, "P", "--"),
}
DENSE_STYLES: dict[str, tuple[str, int, str, str]] = {
    "pgd": ("PGD", 3, "o", "-"),
    "linearised": ("margin, linearised programme", 0, "s", "-"),
    "fgsm": ("FGSM", 1, "D", "-"),
    "discrepancy": ("squared discrepancy of the states", 2, "v", "-"),
    "signed_sensitivity": ("S with signs", 9, "^", "--"),
    "random": ("random signs", 7, "x", "--"),
}


def packed(values: Float[np.ndarray, " p"]) -> str:
    """Numbers in [0, 1] as text, two hexadecimal digits each: 1/255 exactly, one line of a results file."""
    return np.clip(np.round(255 * np.asarray(values, dtype=float)), 0, 255).astype(np.uint8).tobytes().hex()


def unpacked(text: str) -> Float[np.ndarray, " p"]:
    """The numbers of `packed`."""
    return np.frombuffer(bytes.fromhex(text), dtype=np.uint8) / 255


def colour_image(image: str, marked: Sequence[int] = ()) -> Float[np.ndarray, "H W 3"]:
    """A packed square image, a colour plane after the other, the marked pixels red; raises what `with_marks` does."""
    return with_marks(unpacked(image).reshape(3, -1), marked)


def sensitivity_maps(maps: Mapping[str, str], title: str, columns: int = 4):
    """Packed maps (C H W each, in units of its largest entry), summed over the colours, all on one scale from 0 to the
    largest sum."""
    import matplotlib.pyplot as plt

    rows = -(-len(maps) // columns)
    figure, panels = plt.subplots(rows, columns, figsize=(6.2, 0.5 + 1.75 * rows), squeeze=False)
    for axes in panels.flat:
        axes.axis("off")
    for axes, (name, text) in zip(panels.flat, maps.items(), strict=False):
        values = unpacked(text).reshape(3, -1).mean(axis=0)
        side = round(values.size**0.5)
        axes.imshow(values.reshape(side, side), cmap="cividis", vmin=0, vmax=1)
        axes.set_title(name, fontsize="small")
    figure.suptitle(title, fontsize="medium", y=0.97)
    return figure


def share_curves(table: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], shares: Sequence[float], note: str):
    """Success against the share of changed inputs, a panel for each protocol; medians over draws with their range.

    Args: table: protocol -> column -> one list of rates a draw.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(3, 1, figsize=(6.2, 10.2), sharex=True, sharey=True, gridspec_kw={"hspace": 0.22})
    handles: dict[str, Any] = {}
    for axes, (protocol, title) in zip(panels, TITLES.items(), strict=True):
        _curves(axes, shares, table[protocol], STYLES, handles)
        axes.set(xscale="log", ylim=(-3, 103), title=title, ylabel="success (%)")
        axes.title.set_fontsize("small")
        axes.set_xticks(list(shares), [f"{share:g}" for share in shares])
        axes.minorticks_off()
    panels[-1].set_xlabel("changed inputs (%)")
    figure.legend(handles.values(), handles.keys(), loc="lower center", bbox_to_anchor=(0.5, -0.04), ncols=2)
    figure.suptitle(note, fontsize="medium", y=0.93)
    return figure


def radius_curves(axes, rates: Mapping[str, Sequence[Sequence[float]]], epsilons: Sequence[float]) -> None:
    """Success of dense attacks against the radius."""
    _curves(axes, epsilons, rates, DENSE_STYLES, {})
    axes.set(xscale="log", ylim=(-3, 103), xlabel="radius of the box (pixel units of [0, 1])", ylabel="success (%)")
    axes.set_xticks(list(epsilons), [f"{eps:g}" for eps in epsilons])
    axes.minorticks_off()
    legend_below(axes)


def _curves(
    axes,
    x: Sequence[float],
    curves: Mapping[str, Sequence[Sequence[float]]],
    styles: Mapping[str, tuple[str, int, str, str]],
    handles: dict[str, Any],
) -> None:
    import seaborn

    palette = seaborn.color_palette("colorblind")
    for key, (label, colour, marker, line) in styles.items():
        if key in curves:
            draws = np.array([[float(value) for value in draw] for draw in curves[key]])
            middle = np.median(draws, axis=0)
            bars = np.abs(np.vstack([draws.min(axis=0), draws.max(axis=0)]) - middle)
            drawn = axes.errorbar(
                x,
                middle,
                yerr=bars,
                capsize=2,
                marker=marker,
                linestyle=line,
                color=palette[colour],
                linewidth=1.4,
                label=label,
            )
            handles.setdefault(label, drawn)


def attacked_images(samples: Sequence[Mapping[str, Any]], classes: Sequence[str], title: str):
    """As `attack_images.attacked_images`, of packed colour images."""
    return attack_images.attacked_images(samples, classes, title, draw=colour_image)
