"""Tables of the notebook of architectures."""

from __future__ import annotations

from collections.abc import Mapping

from reproduction.ch5_architectures import compute
from reproduction.ch5_architectures.measures import PAIRS, STANDINGS, listed


def text(count: int | None) -> str:
    """A count with separators, empty where there is none."""
    return "" if count is None else f"{count:,}"


def count_table():
    """All architectures with their printed, counted and explained numbers of parameters and a verdict."""
    import pandas as pd

    rows = [
        {
            "task": architecture.task,
            "model": architecture.model,
            "as described": architecture.described,
            "printed": text(architecture.published),
            "counted": text(architecture.counted),
            "explained": text(architecture.explained),
            "verdict": compute.verdict(architecture),
            "note": architecture.note,
        }
        for architecture in listed()
    ]
    return pd.DataFrame(rows).set_index(["task", "model"])


def pair_table():
    """Counts of both sets of sizes that papers print under the same figures."""
    import pandas as pd

    rows = {
        name: {
            "report, workshop paper": text(compute.find(task, a).counted),
            "extrapolation paper": text(compute.find(task, b).counted),
        }
        for name, (task, a, b) in PAIRS.items()
    }
    return pd.DataFrame(rows).T


def size_table():
    """Counts of implicit model and largest baseline by task, and larger over smaller."""
    import pandas as pd

    rows = {
        task: {
            "implicit": text(compute.find(task, a).counted),
            "largest baseline": text(compute.find(task, b).counted),
            "ratio": f"{compute.size_ratio(task):.3g}",
        }
        for task, (a, b) in compute.SIZES.items()
    }
    return pd.DataFrame(rows).T


def moment_table(moments: Mapping[str, Mapping[str, float]]):
    """Mean and deviation in training and test by task (`compute.moments`)."""
    import pandas as pd

    rows = {
        task: {
            "shift": f"{row['shift']:g}",
            "training mean, sd": f"{row['train_mean']:.2f}, {row['train_sd']:.2f}",
            "test mean, sd": f"{row['test_mean']:.2f}, {row['test_sd']:.2f}",
            "mean moved by": f"{row['mean_moved']:.2f}",
            "sd moved by": f"{row['sd_moved']:.2f}",
        }
        for task, row in moments.items()
    }
    return pd.DataFrame(rows).T


def standing_table(found: Mapping[str, Mapping[str, tuple[int, int]]]):
    """On how many test sets the implicit model is best, by task and group of rivals (`measures.standings`)."""
    import pandas as pd

    rows = {}
    for task in compute.COMPARISONS:
        rows[task] = {STANDINGS["baselines"]: "no committed run", STANDINGS["controls"]: ""}
        for group, standings in found.items():
            if task in standings:
                wins, points = standings[task]
                rows[task][STANDINGS[group]] = f"{wins} of {points} test sets"
    return pd.DataFrame(rows).T
