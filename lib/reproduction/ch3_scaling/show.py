"""Figures and tables of the notebook of scaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.book.results import numbers, summary
from reproduction.ch3_scaling.measures import Runs
from reproduction.core.figures import described
from reproduction.core.plots import legend_below

BACKENDS = ("serial", "threads", "processes", "ray")


def backend_table(runs: Runs, rows: Sequence[int], values: Mapping[str, Any]):
    """Seconds of each backend, from its runs and the recorded values."""
    import pandas as pd

    table = {}
    for backend in runs[0]:
        seconds = [run[backend]["rows"] for run in runs]
        table[backend] = {
            "start-up, s": summary(values[f"start_{backend}"]),
            **{f"{count} rows, s": summary([each[k] for each in seconds]) for k, count in enumerate(rows)},
            "rows a second": summary(values[f"rate_{backend}"]),
            "equals serial": str(values[f"equal_{backend}"]),
        }
    return pd.DataFrame(table).T


def speed_table(backends: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Speed-ups over serial, as arguments of `Results.rows`."""
    faster = [name for name in backends if name != "serial"]
    columns = {
        "cores available": "available_cores",
        "speed-up, rows alone": "speedup_{}",
        "over the cores available": "efficiency_{}",
        "with start-up": "speedup_with_start_{}",
        "pays from rows": "pays_from_{}",
    }
    never = {"pays from rows": "never"}
    texts = {name: never for name in faster if np.isinf(numbers(values[f"pays_from_{name}"])).all()}
    return {"parts": {name: name for name in faster}, "columns": columns, "texts": texts}


def backend_figure(source: Mapping[str, Any]):
    """Figure 5 (a results file's content)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.6))
    counts = source["values"]["row_counts"]
    for k, backend in enumerate([name for name in BACKENDS if f"rows/{name}" in source["curves"]]):
        seconds = np.array(source["curves"][f"rows/{backend}"], dtype=float)
        axes.plot(counts, np.median(seconds, axis=0), "osvD"[k] + "-", color=f"C{k}", label=backend)
        axes.fill_between(counts, seconds.min(axis=0), seconds.max(axis=0), color=f"C{k}", alpha=0.18, linewidth=0)
        if backend != "serial":
            axes.axhline(float(np.median(source["values"][f"start_{backend}"])), color=f"C{k}", linestyle=":")
    title = f"Fashion-MNIST, std scale ({described(source)})"
    axes.set(xlabel="rows", ylabel="seconds", xscale="log", yscale="log", title=title)
    axes.set_xticks(counts, [f"{count:g}" for count in counts])
    axes.minorticks_off()
    legend_below(axes)
    return figure


def chunk_table(seconds: Mapping[str, Sequence[float]], sizes: Sequence[int]):
    """Serial seconds by size of the chunks, from `measures.chunk_seconds`."""
    import pandas as pd

    labels = {"penalty": "penalty on every weight", "ball": "ball alone"}
    rows = {
        labels[name]: {f"chunks of {size}, s": f"{value:.3g}" for size, value in zip(sizes, each, strict=True)}
        for name, each in seconds.items()
    }
    return pd.DataFrame(rows).T


def storage_table(values: Mapping[str, Any]):
    """Bytes moved and bits stored, from the recorded values."""
    import pandas as pd

    keys = {
        "samples, one copy, bytes": "bytes_samples",
        "samples to every chunk, bytes": "bytes_every_chunk",
        "shared once, bytes": "bytes_shared",
        "ratio": "bytes_ratio",
        "A: index bits, as printed": "bits_printed",
        "A: index bits, needed": "bits_needed",
        "A: index bits, held by SciPy": "bits_held",
        "A: all bits with values": "bits_with_values",
        "A: bits when dense": "bits_dense",
    }
    rows = {label: f"{np.median(numbers(values[key])):,.1f}" for label, key in keys.items()}
    return pd.Series(rows, name="measured").to_frame()
