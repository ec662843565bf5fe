"""The earthquake half of the elimination study: 45 stations, a residual network as the teacher, features by hundreds or
thousands.

The teacher's states and its 270 inputs are the features; rows over all of them are fitted inside the unit ball,
features leave in an order, rows are fitted again, and the test error of what remains is measured. A teacher ten times
wider has 4,750 features; of its rows a sample is screened.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from data_gen.core.dataset import Dataset
from data_gen.core.streams import stream
from data_gen.earthquakes import make_samples, mesh
from implicit_models.model import ImplicitModel
from implicit_models.seismology.encoding import Encoding
from implicit_models.seismology.table.travel_times import build_p_table
from implicit_models.sim.network.states import States, states
from implicit_models.sim.network.teacher import teacher_matrices
from implicit_models.sim.solvers.elimination import eliminate
from implicit_models.sim.solvers.rows import solve_rows
from implicit_models.sim.solvers.screening import Screening
from reproduction.ch3_bisection.compute import BallRows
from reproduction.ch3_elimination.compute import ORDERS, feature_rows, removal_curve, removal_order
from reproduction.ch3_elimination.stations import station_curves
from reproduction.ch5_earthquake.task import KAPPA, N_STATES, TOLERANCE
from reproduction.core.profiles import settings_of
from reproduction.core.recipe import Recipe
from reproduction.core.scores import count_parameters, dtype_of, predict
from reproduction.core.sparse_states import refit_head
from reproduction.core.train import train
from reproduction.models.eikonet import WIDTHS, EikoNet

N_STATIONS, MAX_DIST_DEG, LR, BATCH = 45, 90.0, 0.003, 100
KEPT = ("mse", "head", "longitude_deg", "latitude_deg", "well_posed", "states_kept", "removed")
PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "n_depths": 60,
        "n_test": 300,
        "widths": (8, 24, 24, 24, 8),
        "epochs": 10,
        "factor": 2,
        "wide_epochs": 2,
        "n_rows": 6,
        "least_share": 0.3,
        "stations": (30, 40),
    },
    "full": {
        "n_depths": 695,
        "n_test": 2_000,
        "widths": WIDTHS,
        "epochs": 30,
        "factor": 10,
        "wide_epochs": 4,
        "n_rows": 4,
        "least_share": 0.6,
        "stations": (15, 30, 40),
    },
}
settings = settings_of(PROFILES)  # events, teachers and sampled rows of a profile
Matrix = Float[np.ndarray, "N q"]


@dataclass
class QuakeElimination:
    """One seed's measurements.

    Args:
        features, n_states, n_train: of the teacher of normal width and its training set.
        constant, teacher, implicit: test MSE of the training mean, of the teacher and of an implicit model trained
            alike.
        variance: mean variance of the test labels, the error of the best constant.
        train_teacher: MSE of the teacher on its training samples.
        certified: share of columns (%) certified in all rows; per_row: median share (%) certified in a row; wrong:
            certified, but used.
        slack: share of rows (%) whose solution lies inside the ball, where nothing is certified.
        curves: order -> share, mse (the teacher's read-out), head (one fitted to the teacher's outputs), states_kept,
            well_posed and mean errors in degrees.
        stations: order -> the same after the number of stations in "count" went, and "retrained", the MSE of a network
            trained on the rest.
        failed: rows without a certified solution, over all refits.
        seconds: CPU seconds of the trainings.
        epochs, updates: of every training.
    """

    features: int
    n_states: int
    n_train: int
    constant: float
    variance: float
    teacher: float
    implicit: float
    train_teacher: float
    certified: float = 0.0
    slack: float = 0.0
    per_row: float = 0.0
    wrong: int = 0
    curves: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    stations: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failed: int = 0
    seconds: float = 0.0
    epochs: int = 0
    updates: int = 0


def quake_data(seed: int, *, epicentres: int, n_depths: int, n_stations: int = N_STATIONS, n_test: int) -> Dataset:
    """Events at a few epicentres of the papers' training half, every depth; tested on events at the other epicentres of
    that half.

    Args:
        seed: of mesh, choice of epicentres, stations and test events.
        epicentres: in training, each at `n_depths` depths from 0 to 694 km.
        n_stations: within 90 degrees, drawn anew for every event; the first is the anchor.
        n_test: test events.

    Raises:
        ValueError: more epicentres than the half has, but one.
    """
    table = build_p_table()
    lat, lon = mesh(seed=seed)
    inside = stream(seed, "epicentres").permutation(np.flatnonzero((lon > 90) & (lon < 270)))
    if not 1 <= epicentres < len(inside):
        raise ValueError(f"epicentres must be 1 to {len(inside) - 1}, got {epicentres}")
    depths = table.depths_km[np.round(np.linspace(0, len(table.depths_km) - 1, n_depths)).astype(int)]
    rng = stream(seed, "test events")
    drawn = rng.choice(inside[epicentres:], n_test), rng.choice(table.depths_km, n_test)
    events = {"train": (np.repeat(inside[:epicentres], n_depths), np.tile(depths, epicentres)), "test": drawn}
    near = table.dist_deg <= MAX_DIST_DEG
    encoding = Encoding(n_stations, float(table.times[:, near].max()))
    sides = {
        name: (
            make_samples(
                lat[cell], lon[cell], depth, n_stations, max_dist_deg=MAX_DIST_DEG, table=table, seed=seed, name=name
            ).encode(encoding)
        )
        for name, (cell, depth) in events.items()
    }
    return Dataset(
        *sides["train"],
        {0: sides["test"]},
        {"name": "earthquake elimination", "seed": seed, "encoding": encoding.to_dict()},
    )


def teacher(data: Dataset, seed: int, *, epochs: int, widths: Sequence[int], factor: int = 1) -> tuple[EikoNet, float]:
    """The residual network trained on a data set, and the CPU seconds.

    Args:
        data, seed: trained on, and of weights and shuffling.
        epochs: of Adam in batches of 100.
        widths, factor: of the hidden layers, and what multiplies them.
    """
    model = EikoNet(data.u_train.shape[1], data.y_train.shape[1], widths=tuple(factor * w for w in widths), seed=seed)
    history = train(
        model,
        data.u_train,
        data.y_train,
        recipe=Recipe(epochs=epochs, lr=LR / factor, batch_size=BATCH),
        seed=seed,
        progress=False,
    )
    return model.eval(), sum(history.cpu_seconds)


def implicit_baseline(data: Dataset, seed: int, *, epochs: int) -> tuple[float, float]:
    """Test MSE of the papers' implicit model with 270 inputs trained on the same events, and the CPU seconds."""
    model = ImplicitModel(data.u_train.shape[1], data.y_train.shape[1], N_STATES, kappa=KAPPA, tol=TOLERANCE, seed=seed)
    history = train(
        model,
        data.u_train,
        data.y_train,
        recipe=Recipe(epochs=epochs, lr=LR, batch_size=BATCH),
        seed=seed,
        progress=False,
    )
    u, y = data.test[0]
    return mse(predict(model, u), y), sum(history.cpu_seconds)


def mse(prediction: Any, y: Matrix) -> float:
    """Mean squared error in float64."""
    return float(np.mean((np.asarray(prediction, np.float64) - y) ** 2))


def normal_width(
    data: Dataset, seed: int, profile: str, *, kappa: float, input_factor: float, shares: Sequence[float]
) -> QuakeElimination:
    """Elimination from the teacher of printed widths.

    Args:
        data: of 45 stations.
        seed: of the teachers and of the random order.
        profile: decides the teacher's width and epochs.
        kappa: radius of the ball of every row.
        input_factor: of the units, see `reproduction.ch3_elimination.compute.units_of`.
        shares: of the features, removed; the first is 0.
    """
    chosen = settings(profile)
    network, seconds = teacher(data, seed, epochs=chosen["epochs"], widths=chosen["widths"])
    other, more = implicit_baseline(data, seed, epochs=chosen["epochs"])
    u, (u_test, y_test) = data.u_train, data.test[0]
    found = states(network, u)
    rows = feature_rows(found, input_factor)
    mean = data.y_train.astype(np.float64).mean(axis=0)
    out = QuakeElimination(
        len(rows.G),
        found.n_states,
        len(u),
        constant=mse(mean, y_test),
        variance=float(y_test.astype(np.float64).var(axis=0).mean()),
        teacher=mse(predict(network, u_test), y_test),
        implicit=other,
        train_teacher=mse(predict(network, u), data.y_train),
        seconds=seconds + more,
        epochs=chosen["epochs"],
        updates=chosen["epochs"] * math.ceil(len(u) / BATCH),
    )
    whole = eliminate(rows.G, rows.C, rows.zz, kappa=kappa, n_remove=out.features)
    count_certified(out, whole.screening)

    def scores(model: Any) -> dict[str, float]:
        own, head = (
            predict(model, torch.as_tensor(u_test).to(dtype_of(model))).numpy(),
            refit_head(model, u, found.Y, u_test),
        )
        degrees = 90.0 * np.abs(own - y_test).mean(axis=0)
        return {
            "mse": mse(own, y_test),
            "head": mse(head, y_test),
            "longitude_deg": float(degrees[0]),
            "latitude_deg": float(degrees[1]),
            "well_posed": float(model.certificate().kind != "none"),
        }

    first: dict[str, list[float]] = {}
    for order in ORDERS:
        # Nothing removed is one model, whatever the order.
        swept = [s for s in shares if s > 0] if first else shares
        curve = removal_curve(rows, removal_order(order, whole, seed), swept, kappa=kappa, scores=scores)
        first = first or {key: values[:1] for key, values in curve.items()}
        if len(swept) < len(shares):
            curve = {key: first[key] + values for key, values in curve.items()}
        out.failed += int(sum(curve["failed"]))
        out.curves[order] = {"share": [100 * s for s in shares], **{key: curve[key] for key in KEPT}}

    def retrained(columns: np.ndarray) -> float:
        part = Dataset(u[:, columns], data.y_train, {0: (u_test[:, columns], y_test)}, data.meta)
        alone, spent = teacher(part, seed, epochs=chosen["epochs"], widths=chosen["widths"])
        out.seconds += spent
        return mse(predict(alone, part.test[0][0]), y_test)

    counts, A = chosen["stations"], whole.screening.A
    found_after = station_curves(rows, A, counts, kappa=kappa, seed=seed, scores=scores, retrained=retrained)
    for name, curve in found_after.items():
        out.failed += int(sum(curve["failed"]))
        out.stations[name] = {"count": list(counts), **{key: curve[key] for key in (*KEPT, "retrained")}}
    return out


def count_certified(out: QuakeElimination | SampledRows, screening: Screening) -> None:
    """Write into `out` the share of columns that a pass certified in all rows, the median in one, and certified ones in
    use."""
    live = screening.status == "certified"
    out.slack = 100 * float(np.mean(screening.status == "slack"))
    out.certified = 100 * float(screening.removable.mean())
    out.per_row = float(100 * np.median(screening.certified[live].mean(axis=1))) if live.any() else 0.0
    out.wrong = int((screening.certified & (np.abs(screening.A) > 1e-12)).sum())


@dataclass
class SampledRows:
    """Rows of a wide teacher: what is certified, and what removal costs the fit of a row.

    Args:
        features, parameters: of the teacher; n_rows of its rows are solved.
        certified, slack, per_row, wrong: as in `QuakeElimination`, over the sampled rows.
        residual: order -> median over rows of ||Mw - z||^2 / ||z||^2 at each share removed.
        seconds_a_row: of the screening pass, at the network's own rows where the ball holds them, else at rows solved
            for.
    """

    features: int
    parameters: int
    n_rows: int
    share: list[float]
    certified: float = 0.0
    slack: float = 0.0
    per_row: float = 0.0
    wrong: int = 0
    residual: dict[str, list[float]] = field(default_factory=dict)
    seconds_a_row: float = 0.0
    seconds: float = 0.0


def sampled(found: States, input_factor: float, n_rows: int, seed: int) -> tuple[BallRows, Float[np.ndarray, "r d"]]:
    """The problem of `n_rows` rows drawn at random, over all features, and the network's own rows, which solve it where
    they lie inside the ball."""
    rows = feature_rows(found, input_factor)
    drawn = np.sort(stream(seed, "sampled rows").choice(len(rows.C), min(n_rows, len(rows.C)), replace=False))
    network, unit = teacher_matrices(found), rows.units[drawn, None]
    own = np.hstack([network.A[drawn].toarray() * rows.units / unit, network.B[drawn].toarray() / unit])
    return BallRows(rows.G, np.ascontiguousarray(rows.C[drawn]), rows.zz[drawn], found, rows.units, rows.reduced), own


def wide(
    data: Dataset, seed: int, profile: str, *, kappa: float, input_factor: float, shares: Sequence[float]
) -> SampledRows:
    """The same for a wider teacher, on sampled rows; arguments as `normal_width`."""
    chosen = settings(profile)
    network, trained = teacher(
        data, seed, epochs=chosen["wide_epochs"], widths=chosen["widths"], factor=chosen["factor"]
    )
    rows, own = sampled(states(network, data.u_train), input_factor, chosen["n_rows"], seed)
    d = len(rows.G)
    # A row over thousands of features takes minutes, and seconds where few are left.
    shown = [0.0, *(100 * s for s in shares if s >= chosen["least_share"])]
    out = SampledRows(d, count_parameters(network), len(rows.C), shown, seconds=trained)
    clock = time.process_time()
    whole = eliminate(
        rows.G, rows.C, rows.zz, kappa=kappa, n_remove=d, A=own if np.abs(own).sum(axis=1).max() <= kappa else None
    )
    out.seconds_a_row = (time.process_time() - clock) / len(rows.C)
    count_certified(out, whole.screening)
    first = relative_residuals(rows.G, rows.C, rows.zz, whole.screening.A)
    for order in ORDERS:
        sequence = removal_order(order, whole, seed)
        out.residual[order] = [first]
        for share in out.share[1:]:
            kept = np.setdiff1d(np.arange(d), sequence[: int(round(share / 100 * d))])
            G, C = np.ascontiguousarray(rows.G[np.ix_(kept, kept)]), np.ascontiguousarray(rows.C[:, kept])
            A = solve_rows(G, C, rows.zz, kappa=kappa, rtol=1e-4).A
            out.residual[order].append(relative_residuals(G, C, rows.zz, A))
    return out


def relative_residuals(G: np.ndarray, C: np.ndarray, zz: np.ndarray, A: np.ndarray) -> float:
    """Median over rows of ||M a - z||^2 / ||z||^2."""
    square = zz - 2 * np.einsum("ij,ij->i", A, C) + np.einsum("ij,ij->i", A @ G, A)
    return float(np.median(np.maximum(square, 0.0) / zz))
