"""Travel times and synthetic earthquakes beside their peers: `python -m benchmarks.travel_times [--quick] --json FILE`.

One thread, CPU seconds, kernels compiled before.

    build      695 depths x 721 distances; TauPy calls node by node (a sample of nodes, scaled up), and obspy's phases
               p, P, Pdiff computed once for each depth without any interpolation (a sample of depths, scaled up)
    lookup     time and both slopes of random points; scipy's RectBivariateSpline and RegularGridInterpolator on the
    same
               nodes give the time alone, TauPy answers a sample of the points
    errors     against TauPy at random nodes and at random points, for ours and for scipy's interpolations of our nodes;
               against chords within the crust's upper layer
    generator  five-station samples; the same draws in NumPy, formula by formula, must give the same stations
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np

from benchmarks import harness

RADIUS = 6371.0
# name: (floor, goal)
RATES = {
    "lookups a second": (5e6, 1e7),
    "samples a second, raw": (75_000.0, 150_000.0),
    "samples a second, encoded": (75_000.0, 150_000.0),
}
LIMITS = {
    "build, seconds": (60.0, 1.0),
    "error at nodes, s": (2e-3, 1e-3),
    "error of near-source chords, s": (1e-3, 1e-4),
    "error between nodes, s": (0.02, 0.005),
}
RATIOS = {
    "build: TauPy calls": (100.0, 10_000.0),
    "build: obspy's phases": (5.0, 20.0),
    "lookup: RectBivariateSpline, linear": (1.0, 3.0),
    "lookup: RectBivariateSpline, cubic": (1.0, 3.0),
    "lookup: RegularGridInterpolator, linear": (0.8, 1.2),
    "lookup: TauPy calls": (1e4, 1e5),
    "generator: NumPy": (1.0, 2.0),
}


def cpu(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def first_arrivals(model, depth: np.ndarray, dist: np.ndarray) -> np.ndarray:
    """TauPy's earliest of p, P and Pdiff."""
    calls = (model.get_travel_times(z, x, ["p", "P", "Pdiff"]) for z, x in zip(depth, dist, strict=True))
    return np.array([min((arrival.time for arrival in arrivals), default=np.nan) for arrivals in calls])


def phases_of(model, depth: float) -> None:
    from obspy.taup.seismic_phase import SeismicPhase

    corrected = model.model.depth_correct(depth)
    for name in ("p", "P", "Pdiff"):
        SeismicPhase(name, corrected, 0.0)


def numpy_stations(lat, lon, depth, table, seed, low, high, n_stations=5):
    """The generator's draws by whole-array formulas: latitude, longitude, back-azimuth, travel time."""
    from data_gen.core.streams import stream

    drawn = stream(seed, "samples stations").random((len(lat), n_stations, 2))
    column = low + (drawn[..., 0] * (high + 1 - low)).astype(np.int64)
    a, d, z = np.radians(lat)[:, None], np.radians(table.dist_deg[column]), 2 * np.pi * drawn[..., 1]
    sa, ca, sd, cd, sz, cz = np.sin(a), np.cos(a), np.sin(d), np.cos(d), np.sin(z), np.cos(z)
    sine = np.clip(sa * cd + ca * sd * cz, -1, 1)
    station_lon = lon[:, None] + np.degrees(np.arctan2(sz * sd * ca, cd - sa * sine))
    back = np.degrees(np.arctan2(-sz * ca, sa * sd - ca * cd * cz)) % 360
    times = table.times[depth.astype(np.int64)[:, None], column]
    return np.degrees(np.arcsin(sine)), (station_lon + 180) % 360 - 180, back, times


def run(quick: bool) -> harness.Report:
    from obspy.taup import TauPyModel
    from scipy.interpolate import RectBivariateSpline, RegularGridInterpolator

    from data_gen.earthquakes import make_samples, mesh
    from implicit_models.seismology.encoding import Encoding
    from implicit_models.seismology.table.travel_times import build_p_table

    warnings.filterwarnings("ignore")
    report, repeats = harness.Report(), 3 if quick else 7
    rng, rows = np.random.default_rng(0), []

    def summary(values) -> dict[str, float]:
        return {"median": statistics.median(values), "min": min(values), "max": max(values)}

    def record(name: str, values, targets: dict, larger: bool) -> None:
        found, (floor, goal) = summary(values), targets[name]
        report.ratios[name] = found
        passed = found["median"] >= floor if larger else found["median"] <= floor
        report.check(f"{name} {'>=' if larger else '<='} {floor:g}", passed)
        rows.append([name, found["median"], found["min"], found["max"], floor, goal])

    def build():
        return build_p_table(shadow="diffracted", cache=False, progress=False)

    table = build()
    n_calls = 40 if quick else 400
    node_z, node_x = rng.integers(0, 695, n_calls), rng.integers(0, 601, n_calls)  # TauPy's Pdiff ends near 158 degrees
    point_z, reach = rng.uniform(0, 694, n_calls), np.where(rng.random(n_calls) < 0.5, 30, 150)
    point_x = rng.uniform(0, 1, n_calls) * reach

    built = [cpu(build) for _ in range(repeats)]
    record("build, seconds", built, LIMITS, larger=False)
    model = TauPyModel("ak135", cache=False)  # a depth that it kept would cost nothing
    phases = statistics.fmean(cpu(lambda z=z: phases_of(model, z)) for z in table.depths_km[:: 140 if quick else 35])
    record("build: obspy's phases", [phases * len(table.depths_km) / seconds for seconds in built], RATIOS, larger=True)
    model = TauPyModel("ak135")
    start = time.process_time()
    at_nodes = first_arrivals(model, table.depths_km[node_z], table.dist_deg[node_x])
    call = (time.process_time() - start) / n_calls
    record("build: TauPy calls", [call * table.times.size / seconds for seconds in built], RATIOS, larger=True)

    cells = table.depths_km, table.dist_deg
    grid = RegularGridInterpolator(cells, table.times)
    splines = {
        "RectBivariateSpline, linear": RectBivariateSpline(*cells, table.times, kx=1, ky=1).ev,
        "RectBivariateSpline, cubic": RectBivariateSpline(*cells, table.times, kx=3, ky=3).ev,
        "RegularGridInterpolator, linear": lambda z, x: grid(np.stack([z, x], axis=-1)),
    }
    n = 100_000 if quick else 1_000_000
    z, x = rng.uniform(0, 694, n), rng.uniform(0, 90, n)
    finders = {"ours": lambda: table.lookup(z, x), **{name: lambda f=f: f(z, x) for name, f in splines.items()}}
    looked = harness.interleaved(finders, repeats, clock=time.process_time)
    record("lookups a second", [n / seconds for seconds in looked["ours"]], RATES, larger=True)
    for name in splines:
        record(f"lookup: {name}", harness.ratio(looked[name], looked["ours"]).values(), RATIOS, larger=True)
    record("lookup: TauPy calls", [call * n / seconds for seconds in looked["ours"]], RATIOS, larger=True)

    at_points = first_arrivals(model, point_z, point_x)
    errors = {"nodes": np.abs(table.times[node_z, node_x] - at_nodes)}
    errors["points"] = np.abs(table.lookup(point_z, point_x)[0] - at_points)
    errors |= {f"points, {name}": np.abs(f(point_z, point_x) - at_points) for name, f in splines.items()}
    record("error at nodes, s", [float(errors["nodes"].max())], LIMITS, larger=False)
    record("error between nodes, s", [float(errors["points"].max())], LIMITS, larger=False)
    r, angle = RADIUS - rng.uniform(0, 19, 20_000), rng.uniform(0, 0.1, 20_000)
    chord = np.sqrt((RADIUS - r) ** 2 + 4 * RADIUS * r * np.sin(np.radians(angle) / 2) ** 2) / 5.8
    off = np.abs(table.lookup(RADIUS - r, angle)[0] - chord)
    record("error of near-source chords, s", [float(off.max())], LIMITS, larger=False)

    lat, lon = mesh(seed=0)
    inside = (lon > 90) & (lon < 270)
    lat, lon, depth = np.repeat(lat[inside], 695), np.repeat(lon[inside], 695), np.tile(np.arange(695.0), inside.sum())
    if quick:
        lat, lon, depth = lat[::9], lon[::9], depth[::9]
    encoding = Encoding(5, float(table.times[0, 360]))
    makers = {
        "raw": lambda: make_samples(lat, lon, depth, table=table, seed=0),
        "encoded": lambda: make_samples(lat, lon, depth, table=table, seed=0).encode(encoding),
        "NumPy": lambda: numpy_stations(lat, lon, depth, table, 0, 1, 360),
    }
    made = harness.interleaved(makers, repeats, clock=time.process_time)
    for name in ("raw", "encoded"):
        record(f"samples a second, {name}", [len(lat) / seconds for seconds in made[name]], RATES, larger=True)
    record("generator: NumPy", harness.ratio(made["NumPy"], made["raw"]).values(), RATIOS, larger=True)
    samples = makers["raw"]()
    station_lat, station_lon, back, times = makers["NumPy"]()
    turned = np.abs((samples.back_azimuth - back + 180) % 360 - 180)
    # arcsin loses half its digits at the poles; there the directions are the formulas' noise.
    calm = np.abs(samples.station_lat) < 89.9
    same = np.abs(samples.station_lat - station_lat)[calm].max() < 1e-7 and turned[calm].max() < 1e-6
    east = np.abs((samples.station_lon - station_lon + 180) % 360 - 180)[calm].max() < 1e-6
    agree = bool(same and east and np.array_equal(times, samples.travel_time_s))
    report.check("NumPy's formulas give the same stations and times", agree)

    harness.print_table(["", "median", "min", "max", "floor", "goal"], rows)
    print()
    table_rows = [[name, *np.percentile(value, (50, 99)), value.max()] for name, value in errors.items()]
    harness.print_table(["error against TauPy, s", "median", "p99", "max"], table_rows)
    report.details["errors_s"] = {name: {"median": a, "p99": b, "max": float(c)} for name, a, b, c in table_rows}
    report.details["samples"] = {
        "taupy calls": n_calls,
        "lookups": n,
        "events": len(lat),
        "surfaces": int(len(table.arrays[3])),
    }
    return report


if __name__ == "__main__":
    harness.main("travel_times", run)
