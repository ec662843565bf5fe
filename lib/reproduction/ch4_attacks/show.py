"""Figures of attacked images, the changed pixels marked, and of success against the share of changed pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from data_gen.images.vision import CLASSES
from reproduction.ch4_attacks.measures import MOVED
from reproduction.core.figures import described

RED = (0.84, 0.15, 0.16)
# column -> (label, colour of the colour-blind palette, marker, line): controls dashed, published dotted.
STYLES: dict[str, tuple[str, int, str, str]] = {
    "sensitivity": ("row of S", 0, "o", "-"),
    "gradient": ("|gradient of the loss|", 1, "s", "-"),
    "jsma": ("JSMA", 2, "D", "-"),
    "random": ("pixels at random", 7, "x", "--"),
    "published_sensitivity": ("thesis, S", 0, "1", ":"),
    "published_gradient": ("thesis, gradient", 1, "2", ":"),
}
TITLES = {"replace": "U[0, 1]", "small": "U[0, 0.1]", "sign": "to 0 or 1 by sign"}

SURROGATES = {  # what ranks -> part of the key
    "own": "own",
    "surrogate": "surrogate",
    "any row": "any_row",
    "untrained": "untrained",
    "own gradient": "own_gradient",
    "surrogate gradient": "surrogate_gradient",
    "spread": "spread",
    "random": "random",
}
COSTS = {
    "S, once for the model": "matrix",
    "ranking a thousand samples by S": "sensitivity",
    "by the gradient": "gradient",
    "JSMA, a tenth of the pixels": "jsma",
}
DISCREPANCY = {
    "programme less trivial sum, relative": "discrepancy_gap",
    "x0 + sigma against A x + B u + b, random u: worst, relative": "discrepancy_violation",
    "inputs that follow the tie, %": "discrepancy_tied",
    "change of the sum with the tie, relative": "discrepancy_tied_gap",
    "few pixels, programme less trivial sum, relative": "discrepancy_few_gap",
}


def programme_rows(
    dense: Sequence[str], eps: Sequence[float], sparse: Sequence[str], counts: Sequence[int]
) -> dict[str, str]:
    """Label -> part of the key: facts of the programme as displayed, dense attacks by radius, sparse ones by count."""
    rows = dict(DISCREPANCY)
    for method in dense:
        rows |= {f"{method.replace('_', ' ')}, eps {radius:g}": f"dense_{method}_{radius:g}" for radius in eps}
    for method in sparse:
        rows |= {f"{method.replace('_', ' ')}, {k} pixels": f"sparse_{method}_{k}" for k in counts}
    for method in MOVED:
        rows |= {
            f"{words}, {method.replace('_', ' ')}, {k} pixels": f"sparse_{key}_{method}_{k}"
            for key, words in (("changed", "pixels changed"), ("moved", "states moved, relative"))
            for k in counts
        }
    return rows


def thesis_columns(
    printed: Mapping[str, Mapping[str, Any]], dataset: str, columns: Sequence[Any]
) -> dict[str, dict[Any, Any]]:
    """The two published columns of Table 4.1 beside measured ones.

    Args:
        printed: share -> column and data set -> what the thesis prints.
        dataset: with `{}` where the first entry of a column's label stands: "{}", or one name for all.
        columns: labels, the last entry the share and " %".
    """
    return {
        f"thesis, {key}": {
            label: printed.get(label[-1].removesuffix(" %"), {}).get(f"{key} {dataset.format(label[0])}", "none")
            for label in columns
        }
        for key in ("S", "gradient")
    }


def protocol_rows(names: Sequence[str], protocols: Sequence[str], share: float) -> dict[str, str]:
    """Label -> key: distances of each protocol from the published columns, and what the table's first row says."""
    rows = {
        f"largest distance from the published column, {protocol}: {key}": f"distance_{protocol}_{column}"
        for protocol in protocols
        for column, key in (("sensitivity", "S"), ("gradient", "gradient"))
    }
    for name in names:
        rows[f"{name}: {share:g} % of the inputs, in pixels"] = f"{name}_first_row_pixels"
        rows[f"{name}: clean error of the attacked samples, %"] = f"{name}_clean_error"
        rows[f"{name}: first row of S if wrong samples count, %"] = f"{name}_wrong_counted"
    return rows


def with_published(
    table: Mapping[str, Mapping[str, Any]], printed: Mapping[str, Mapping[str, Any]], name: str, shares: Sequence[float]
) -> dict[str, Any]:
    """The curves of a data set with the published columns, where the thesis prints a row for every share."""
    out = {protocol: dict(columns) for protocol, columns in table.items()}
    if all(f"{share:g}" in printed for share in shares):
        for protocol in ("replace", "small"):
            for column, key in (("sensitivity", "S"), ("gradient", "gradient")):
                row = [printed[f"{share:g}"][f"{key} {name}"] for share in shares]
                out[protocol][f"published_{column}"] = [row]
    return out


def share_figure(
    source: Mapping[str, Any], names: Sequence[str], shares: Sequence[float], printed: Mapping[str, Mapping[str, Any]]
):
    """Table 4.1 of a results file as curves.

    Args:
        source: its content.
        names: the data sets to show, as far as there are curves.
        shares: where it has no values.
        printed: share -> column and data set -> what the thesis prints.
    """
    given = [float(share) for share in source["values"]["shares"]] if source["values"] else shares
    drawn = {name: source["curves"][f"table/{name}"] for name in names if f"table/{name}" in source["curves"]}
    if "mnist" in drawn:
        drawn["mnist"] = with_published(drawn["mnist"], printed, "mnist", given)
    return success_against_share(drawn, given, described(source))


def examples_figure(key: str, full: Mapping[str, Any] | None, content: Mapping[str, Any], dataset: str, name: str = ""):
    """Attacked images of the committed full run, else of this run; None where neither has any.

    Args:
        key: of the curve.
        full: content of the committed full run, None without one.
        content: of this run.
        dataset: whose classes are named.
        name: before the note in the title.
    """
    source = full if full and full["curves"].get(key) else content
    shown, note = source["curves"][key], described(source)
    return attacked_images(shown, CLASSES[dataset], f"{name} ({note})" if name else note) if shown else None


def with_marks(
    image: Float[np.ndarray, "*c p"] | Sequence[float], marked: Sequence[int]
) -> Float[np.ndarray, "side side 3"]:
    """A square image, grey (p,) or of colour planes (3, p), the marked pixels red.

    Raises:
        ValueError for an image that is not square.
    """
    planes = np.atleast_2d(np.clip(np.asarray(image, dtype=float), 0, 1))
    side = round(planes.shape[1] ** 0.5)
    if side * side != planes.shape[1]:
        raise ValueError(f"an image must be square, got {planes.shape[1]} pixels")
    colours = np.broadcast_to(planes, (3, side * side)).T.copy()
    colours[list(marked)] = RED
    return colours.reshape(side, side, 3)


def attacked_images(
    samples: Sequence[Mapping[str, Any]],
    classes: Sequence[str],
    title: str,
    *,
    draw: Callable[[Any, Sequence[int]], Float[np.ndarray, "H W 3"]] = with_marks,
):
    """One row a panel, one column a sample: the image, below it what the network says. A sparse attack is shown with
    and without marks.

    Args:
        draw: (a panel's "image", marked pixels) -> what is shown.

    Raises:
        ValueError without any sample.
    """
    import matplotlib.pyplot as plt

    if not samples:
        raise ValueError("no sample to show")
    rows = []
    for k, panel in enumerate(samples[0]["panels"]):
        rows.append((k, panel["name"], False))
        if any(sample["panels"][k]["marked"] for sample in samples):
            rows.append((k, f"{panel['name']}, marked", True))
    columns = len(samples)
    figure, axes = plt.subplots(
        len(rows), columns, figsize=(6.2, 0.5 + 1.45 * len(rows) * min(1.0, 5 / columns)), squeeze=False
    )
    for line, (k, name, marks) in zip(axes, rows, strict=True):
        for position, (panel_axes, sample) in enumerate(zip(line, samples, strict=True)):
            panel = sample["panels"][k]
            panel_axes.imshow(draw(panel["image"], panel["marked"] if marks else []))
            panel_axes.set(xticks=[], yticks=[])
            panel_axes.grid(False)
            wrong = panel["predicted"] != sample["label"]
            panel_axes.set_xlabel(
                str(classes[panel["predicted"]]), color=RED if wrong else "black", fontsize="small", labelpad=2
            )
            if position == 0:
                panel_axes.set_ylabel(name.replace(", ", ",\n"), fontsize="small")
    figure.suptitle(title, fontsize="medium", y=0.94)
    return figure


def success_against_share(
    tables: Mapping[str, Mapping[str, Mapping[str, Sequence[Sequence[float]]]]], shares: Sequence[float], note: str
):
    """Rows of panels: protocols; columns: data sets; medians over seeds with their range, success in per cent.

    Args:
        tables: data set -> protocol -> column -> one list of rates a seed.
    """
    import matplotlib.pyplot as plt
    import seaborn

    palette = seaborn.color_palette("colorblind")
    figure, panels = plt.subplots(
        len(TITLES),
        len(tables),
        figsize=(6.6, 8.2),
        squeeze=False,
        sharex=True,
        sharey=True,
        gridspec_kw={"hspace": 0.3},
    )
    handles: dict[str, Any] = {}
    for column, (name, table) in enumerate(tables.items()):
        for axes, (protocol, title) in zip(panels[:, column], TITLES.items(), strict=True):
            for key, (label, colour, marker, line) in STYLES.items():
                if key not in table.get(protocol, {}):
                    continue
                seeds = np.array([[float(value) for value in seed] for seed in table[protocol][key]])
                middle = np.median(seeds, axis=0)
                bars = np.abs(np.vstack([seeds.min(axis=0), seeds.max(axis=0)]) - middle)
                drawn = axes.errorbar(
                    shares,
                    middle,
                    yerr=bars,
                    capsize=2,
                    marker=marker,
                    linestyle=line,
                    color=palette[colour],
                    linewidth=1.4,
                )
                handles.setdefault(label, drawn)
            axes.set(xscale="log", ylim=(-3, 103), title=f"{name}: {title}")
            axes.title.set_fontsize("small")
            axes.set_xticks(list(shares), [f"{share:g}" for share in shares], fontsize="x-small")
            axes.minorticks_off()
    for axes in panels[-1]:
        axes.set_xlabel("changed pixels (%)")
    for axes in panels[:, 0]:
        axes.set_ylabel("success (%)")
    figure.legend(handles.values(), handles.keys(), loc="lower center", bbox_to_anchor=(0.5, -0.06), ncols=3)
    figure.suptitle(note, fontsize="medium", y=0.95)
    return figure
