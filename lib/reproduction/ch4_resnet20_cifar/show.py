"""Figures of a network of colour images: rows of its sensitivity matrix, success of attacks, and attacked images with
the changed pixels marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from reproduction.book.claims import published_value
from reproduction.book.results import summary
from reproduction.ch4_attacks import show as attack_images
from reproduction.ch4_attacks.show import STYLES as SPARSE_STYLES
from reproduction.ch4_attacks.show import TITLES, with_marks, with_published
from reproduction.ch4_resnet20_cifar.packing import unpacked
from reproduction.core.figures import described
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


# label of a row -> key
MAPS = {
    "least correlation of two rows of S": "map_rows_least",
    "share of the rows that one map explains": "map_common",
    "airplane: with random weights": "map_first_with_untrained",
    "airplane: with the trained weights in random order": "map_first_with_shuffled",
    "airplane: rank correlation with the nearness to the middle": "map_centre",
    "mean |gradient|: least correlation of two classes": "map_gradients_least",
    "airplane: with the mean image of its class": "pixels_first_own",
    "airplane: with those of the other classes": "pixels_first_other",
    "airplane, remainder: with its own class": "map_first_remainder_own",
    "airplane, remainder: with the others": "map_first_remainder_other",
    "share of remainders that fit their own class best": "map_remainder_own_is_best",
    "points lost without the tenth with largest S": "pixels_top_loss",
    "points lost without a random tenth": "pixels_random_loss",
    "airplane: without the tenth with largest S": "pixels_first_top_loss",
    "airplane: without a random tenth": "pixels_first_random_loss",
}
RANKINGS = {
    "sensitivity": "sensitivity",
    "gradient": "gradient",
    "label gradient": "label_gradient",
    "random": "random",
    "jsma": "jsma",
}
KNOWING = {  # what a ranking knows -> column
    "row of S": "sensitivity",
    "mean row of S: no class": "any_row",
    "S of random weights: no training": "untrained",
    "disc in the middle: no network": "disc",
    "disc anywhere": "patch",
    "inputs at random": "random",
}


def note(net: Any, accuracy: Any) -> str:
    """What network and images these are, and its accuracy beside the published one.

    Args:
        net: with `banner` and `images`.
        accuracy: in per cent.
    """
    return (
        f"> {net.banner or net.images.meta['name']}: {len(net.images.test[0][1])} test images, accuracy"
        f" {summary(accuracy)} %; thesis: {published_value('ch4-cifar10-clean-accuracy')} %."
    )


def matrix_rows(image_size: int) -> dict[str, str]:
    """Label -> key of what the matrix is and how it is checked; a label without a key has its text elsewhere."""
    return {
        "states, inputs": "",
        "entries of the network's rows": "",
        "S": "",
        "CPU seconds, all rows": "matrix_cpu_seconds",
        "memory beyond the network, MB": "matrix_memory_mb",
        "columns against the absolute network, relative": "column_error",
        f"against the iteration, {image_size} x {image_size} images, relative": "exact_error",
        "states of that smaller model": "exact_states",
        "largest row sum of S": "row_sum",
        "largest share of the bound that a step along the gradient reaches": "moved_largest",
    }


def matrix_texts(values: Mapping[str, Any], S: Float[np.ndarray, "q p"]) -> dict[str, dict[str, str]]:
    """What stands beside the labels without a key in `matrix_rows`."""
    texts = {
        "states, inputs": f"{values['size_states']:,.0f}, {S.shape[1]:,}",
        "entries of the network's rows": f"{values['size_entries']:,.0f}",
        "S": f"{S.shape[0]} x {S.shape[1]}",
    }
    return {label: {"measured": text} for label, text in texts.items()}


def table_columns(shares: Sequence[float]) -> dict[tuple[str, str], str]:
    """Protocol and share -> keys of Table 4.1, a ranking for `{}`."""
    return {(protocol, f"{share:g} %"): f"{protocol}_{{}}_{share:g}" for protocol in TITLES for share in shares}


def knowing_columns() -> dict[str, str]:
    """Label of a ranking -> keys of its success with draws of [0, 1], a share for `{}`."""
    return {label: f"replace_{column}_{{}}" for label, column in KNOWING.items()}


def lead_columns(shares: Sequence[float], *, distances: bool) -> dict[str, str]:
    """Label -> keys, a protocol for `{}`: who leads, and, where that is known, how far the published columns are."""
    columns = {
        f"S less {other}, {share:g} %": f"{{}}_S_less_{other}_{share:g}"
        for other in ("gradient", "random")
        for share in shares
    }
    columns["rows in which S leads the gradient"] = "{}_rows_S_leads_gradient"
    for column in ("sensitivity", "gradient") if distances else ():
        columns[f"largest distance from the thesis, {column}"] = f"distance_{{}}_{column}"
    return columns


def region_rows(shares: Sequence[float]) -> dict[str, str]:
    """Label -> key: pixels that a choice reaches, distances from the published column of the gradient, clean error."""
    rows = {
        f"pixels reached by {shares[-1]:g} % of the inputs, {column}": f"pixels_reached_{column}_{shares[-1]:g}"
        for column in ("sensitivity", "gradient", "random", "disc", "patch")
    }
    for label, column in KNOWING.items():
        if column in ("any_row", "untrained", "disc"):
            key = f"distance_gradient_from_{column}"
            rows[f"largest distance of {label.partition(':')[0]} from the thesis' gradient"] = key
    rows["clean error, %"] = "clean_error"
    rows[f"row of {shares[0]:g} %, S, if samples that were wrong count, %"] = "wrong_counted"
    return rows


def certificate_rows(radius: float) -> dict[str, str]:
    """Label -> key of the certificates; half a grey level has its text elsewhere."""
    return {
        "largest certified radius, intervals: median": "radius_interval_median",
        "intervals: best image": "radius_interval_largest",
        "by S: median": "radius_sensitivity_median",
        "by S: best image": "radius_sensitivity_largest",
        "half a grey level": "",
        "rounding of an input near 1": "rounding",
        f"half-width of a state's interval at radius {radius:g}, largest": "interval_width",
    }


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

    Args:
        table: protocol -> column -> one list of rates a draw.
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


def maps_figure(source: Mapping[str, Any]):
    """The maps of a results file."""
    return sensitivity_maps(source["curves"]["maps"], f"rows of S ({described(source)})")


def share_figure(source: Mapping[str, Any], printed: Mapping[str, Mapping[str, Any]]):
    """Table 4.1 of a results file as curves, with the published columns.

    Args:
        source: its content.
        printed: share -> column and data set -> what the thesis prints.
    """
    given = [float(share) for share in source["values"]["shares"]]
    table = {protocol: dict(source["curves"]["table"][protocol]) for protocol in TITLES}
    table["sign"]["jsma"] = source["curves"]["table"]["jsma"]
    return share_curves(with_published(table, printed, "cifar10", given), given, described(source))


def dense_figure(source: Mapping[str, Any]):
    """Success of dense attacks in a results file against the radius."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    radius_curves(axes, source["curves"]["dense"], [float(value) for value in source["values"]["eps"]])
    axes.set_title(described(source), fontsize="medium")
    return figure


def pictures_figure(
    key: str,
    full: Mapping[str, Any] | None,
    content: Mapping[str, Any],
    classes: Sequence[Any],
    *,
    radius: bool = False,
):
    """Attacked images of the committed full run, else of this run; None where neither has any.

    Args:
        key: of the curve.
        full: content of the committed full run, None without one.
        content: of this run.
        classes: their names.
        radius: name the largest radius in the title.
    """
    source = full if full and full["curves"][key] else content
    if not source["curves"][key]:
        return None
    title = described(source)
    if radius:
        title = f"eps {max(float(value) for value in source['values']['eps']):g} ({title})"
    return attacked_images(source["curves"][key], [str(name) for name in classes], title)
