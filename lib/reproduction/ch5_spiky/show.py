"""Tables of the notebook of the spiky series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reproduction.book.results import summary
from reproduction.ch5_spiky import task
from reproduction.core.study import Study, ratio


def error_table(found: Mapping[str, Mapping[str, Mapping[str, list[float]]]]):
    """Errors by reading and forecast (reading -> `measures.errors`), in both units."""
    import pandas as pd

    rows = [
        {"reading": variant, "forecast": task.LABELS.get(name, "unforeseeable")}
        | {unit: summary(errors) for unit, errors in values.items()}
        for variant, forecasts in found.items()
        for name, values in forecasts.items()
    ]
    return pd.DataFrame(rows).set_index(["reading", "forecast"])


def early_table(values: Mapping[str, Any], early: Study, published: Mapping[str, Mapping[str, float]]):
    """Published errors, the epoch nearest to them, and the errors then and in the end.

    Args:
        values: recorded ones.
        early: networks that were evaluated after each epoch.
        published: network -> its "train" and "test" error.
    """
    import pandas as pd

    rows = {}
    for name, histories in early.histories.items():
        best = [int(epoch) - 1 for epoch in values[f"closest_epoch_{name}"]]
        rows[task.LABELS[name]] = {
            "published train / test": f"{published[name]['train']} / {published[name]['test']}",
            "nearest epoch": summary(values[f"closest_epoch_{name}"]),
            "train then": summary([history.loss[k] for history, k in zip(histories, best)]),
            "test then": summary([history.evaluation[k][0] for history, k in zip(histories, best)]),
            "trained well, test": summary(values[f"unit_{name}"]),
        }
    return pd.DataFrame(rows).T


def ratio_table(studies: Mapping[str, Study]):
    """Errors of LSTM and transformer over those of the implicitRNN, by reading."""
    import pandas as pd

    rows = {
        variant: {
            f"{task.LABELS[name]} / implicitRNN": summary(ratio(source.at(name, 0), source.at("implicit_rnn", 0)))
            for name in ("lstm", "transformer_decoder")
            if name in source.errors
        }
        for variant, source in studies.items()
    }
    return pd.DataFrame(rows).T.fillna("not trained").rename_axis("ratio of test errors")
