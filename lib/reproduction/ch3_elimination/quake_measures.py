"""What the notebook of elimination records of its earthquakes, and how much of the way to guessing images lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reproduction.ch3_elimination.compute import ORDERS
from reproduction.ch3_elimination.earthquakes import N_STATIONS, QuakeElimination, SampledRows
from reproduction.models.eikonet import WIDTHS


def lost_of_images(values: Mapping[str, Any]) -> dict[str, Any]:
    """`fashion_lost_90`: per cent of the way to guessing that removal of 90 % takes, where that was measured."""
    if "head_wide_correlation_90" not in values:
        return {}
    whole, part = (values[f"head_wide_correlation_{share}"] for share in ("0", "90"))
    return {"fashion_lost_90": ([100 * (a - b) / (a - 10) for a, b in zip(whole, part, strict=True)], "%")}


def quake_values(
    each: Sequence[QuakeElimination], sampled_rows: Sequence[SampledRows], epicentres: int
) -> dict[str, Any]:
    """Values of the earthquake half.

    Returns:
        `quake_QUANTITY` of the trained models and the certificates, `quake_rise_QUANTITY_ORDER_SHARE` and
        `quake_lost_ORDER_SHARE` (of the way to the best constant), `quake_stations_rise_QUANTITY_ORDER_COUNT` after
        whole stations went, `quake_trained_epochs` and `quake_trained_updates`, and `quake_rows_QUANTITY` of the wide
        teacher.
    """
    first = each[0]
    values: dict[str, Any] = {
        "quake_features": first.features,
        "quake_features_of_the_stated_net": 6 * N_STATIONS + sum(WIDTHS),
        "quake_features_of_one_ten_times_wider": 6 * N_STATIONS + 10 * sum(WIDTHS),
        "quake_sources": first.n_train,
        "quake_sources_stated": epicentres * 695,
        "quake_wrong": sum(e.wrong for e in each) + sum(r.wrong for r in sampled_rows),
        "quake_failed_rows": sum(e.failed for e in each),
    }
    for key in ("constant", "variance", "teacher", "implicit", "train_teacher"):
        values[f"quake_{key}"] = [getattr(e, key) for e in each]
    for key in ("certified", "slack", "per_row"):
        values[f"quake_{key}"] = [getattr(e, key) for e in each], "%"
    seconds = sum(e.seconds for e in each) + sum(r.seconds for r in sampled_rows)
    values["quake_training_cpu_seconds"] = seconds, "s"
    for order in ORDERS:
        curves = [e.curves[order] for e in each]
        for at, share in enumerate(first.curves[order]["share"]):
            for key in ("mse", "head", "longitude_deg", "latitude_deg"):
                rise = [curve[key][at] - curve[key][0] for curve in curves]
                values[f"quake_rise_{key}_{order}_{share:g}"] = rise, "°" if key.endswith("deg") else ""
            lost = [100 * (c["mse"][at] - c["mse"][0]) / (e.variance - c["mse"][0]) for e, c in zip(each, curves)]
            values[f"quake_lost_{order}_{share:g}"] = lost, "%"
    values |= station_rises(each)
    values["quake_trained_epochs"], values["quake_trained_updates"] = first.epochs, first.updates
    unremoved, every = [e.curves[ORDERS[0]] for e in each], [c for e in each for c in e.curves.values()]
    values["quake_mse_without_removal"] = [curve["mse"][0] for curve in unremoved]
    values["quake_well_posed_without_removal"] = all(curve["well_posed"][0] > 0 for curve in unremoved)
    values["quake_not_well_posed"] = sum(w == 0 for curve in every for w in curve["well_posed"])
    values["quake_rows_features"] = sampled_rows[0].features
    values["quake_rows_slack"] = [r.slack for r in sampled_rows], "%"
    values["quake_rows_certified"] = [r.certified for r in sampled_rows], "%"
    values["quake_rows_seconds"] = [r.seconds_a_row for r in sampled_rows], "s"
    return values


def quake_curves(each: Sequence[QuakeElimination], sampled_rows: Sequence[SampledRows]) -> dict[str, Any]:
    """Seed by seed, removal curves `quake/ORDER`, and residuals of the wide teacher's rows `quake_rows/ORDER`."""
    curves = {f"quake/{order}": [e.curves[order] for e in each] for order in ORDERS}
    return curves | {f"quake_rows/{order}": [r.residual[order] for r in sampled_rows] for order in ORDERS}


def station_rises(each: Sequence[QuakeElimination]) -> dict[str, list[float]]:
    """`quake_stations_rise_QUANTITY_ORDER_COUNT`: MSE after whole stations went less that before, one a seed.

    QUANTITY is "mse" with the network's read-out, "head" with one fitted anew, and "retrained", a network trained on
    the stations that are left less the one trained on all.
    """
    values = {}
    for order, curve in each[0].stations.items():
        for at, count in enumerate(curve["count"]):
            for key in ("mse", "head", "retrained"):
                before = [e.teacher if key == "retrained" else e.curves[ORDERS[0]][key][0] for e in each]
                after = [e.stations[order][key][at] for e in each]
                rise = [b - a for a, b in zip(before, after, strict=True)]
                values[f"quake_stations_rise_{key}_{order}_{count:g}"] = rise
    return values
