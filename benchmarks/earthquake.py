"""The locator on synthetic and real picks, beside SciPy's least squares: `python -m benchmarks.earthquake [--quick]
--json FILE`.

One thread, CPU seconds. Synthetic: 20,016 events of the papers' mesh and depths, five stations at 0.25 to 20 degrees,
picks with 0.5 s of noise, located from P alone; the same with back-azimuths. SciPy solves the same least squares on the
same table, whose look-ups are kernels of ours, from the usual four starts an event (the earliest station; 10, 100, 300
and 600 km), without and with the analytic Jacobian; ours searches its grid and descends from eight starts. One descent
beside one of SciPy's is a ratio of its own.

S at half the stations: 2,000 events at 20 km with stations within 20 degrees, S times with the noise of P; the median
error of depth beside that of P alone. A blunder of 60 s in one of 8 picks within 20 degrees: the share located within
20 km. A catalogue: QuakeML of 10,000 events of 20 picks at stations of FDSN text, file to file in a process of its own;
6,400 and 800 events as a table of picks, whose times should grow as their numbers do.

Far errors: the share of events that the covariances themselves put beyond 50 km is what no unbiased locator falls
below, as far as the travel times are linear. It is printed beside the share measured, and a search with ten times the
starts says whether a better minimum was missed. It is about twice the 1 % that is the bar for P alone, so that this
check fails; with back-azimuths of 5 degrees the bar is met.

Real: the PDE event and the ISF event (ground truth to 5 km) that obspy's own tests carry, joined to the station list of
IMPLICIT_DATA.
"""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks import harness

EVENTS, NOISE_S, REACH_DEG = 20_016, 0.5, 20.0
FLOOR, GOAL = 40.0, 100.0
BARS = {"median_km": 7.0, "p95_km": 34.0, "over_50km": 0.01}
STARTS = (10.0, 100.0, 300.0, 600.0)  # depths of SciPy's starts
KM = math.pi / 180 * 6371.0
# Epicentre and depth of the catalogues: PDE's own location, and IASPEI's ground truth of 1967.
REAL = {
    "PDE 2012-01-01": ("io/pde/tests/data/mchedr.dat", 31.456, 138.072, 365.3),
    "GT5 1967-01-30": ("io/iaspei/tests/data/19670130012028.isf", 41.0502, 44.2685, 5.0),
}


def events(
    n: int,
    reach_deg: float,
    noise_s: float,
    noise_deg: float,
    table,
    *,
    half: bool = False,
    seed: int = 0,
    depth_km: float | None = None,
    stations: int = 5,
):
    """Samples of n random mesh points and depths, or one depth; half: of the learned locators' half of the globe."""
    from data_gen.earthquakes import make_samples, mesh

    rng = np.random.default_rng(seed)
    lat, lon = mesh(seed=seed)
    if half:
        inside = np.abs(np.mod(lon, 360) - 180) <= 90
        lat, lon = lat[inside], lon[inside]
    k = rng.integers(0, lat.size, n)
    depth = rng.integers(0, 695, n).astype(float) if depth_km is None else np.full(n, depth_km)
    noise = {"noise_s": noise_s, "noise_deg": noise_deg}
    return make_samples(lat[k], lon[k], depth, stations, max_dist_deg=reach_deg, **noise, table=table, seed=seed)


def geiger(data, table, *, baz_deg: float = 0.0, sigma_s: float = NOISE_S, starts: int | None = None, arrival_s=None):
    from implicit_models.seismology.event_data import Arrivals, BackAzimuths
    from implicit_models.seismology.geiger.events import STARTS, locate_events

    angles = {"back_azimuths": BackAzimuths(data.back_azimuth, baz_deg)} if baz_deg else {}
    return locate_events(
        Arrivals(data.station_lat, data.station_lon, data.arrival_s if arrival_s is None else arrival_s, sigma_s),
        table=table,
        geographic=False,
        starts=starts or STARTS,
        **angles,
    )


def errors(data, lat, lon, depth, origin_time) -> dict[str, float]:
    """Percentiles of the errors; an answer that is not finite counts as infinitely far."""
    from implicit_models.seismology.geodesy import distance_azimuths

    km = KM * distance_azimuths(np.clip(lat, -90, 90), lon, data.lat, data.lon)[0]
    km = np.where(np.isfinite(km), km, np.inf)
    z, t = np.abs(depth - data.depth_km), np.abs(origin_time)
    out = {f"p{q}_km" if q != 50 else "median_km": float(np.percentile(km, q)) for q in (50, 90, 95, 99)}
    return out | {
        "over_50km": float((km > 50).mean()),
        "median_depth_km": float(np.median(z)),
        "p95_depth_km": float(np.percentile(z, 95)),
        "median_time_s": float(np.median(t)),
        "p95_time_s": float(np.percentile(t, 95)),
    }


def calibration(data, found) -> dict[str, float]:
    """How often the 90 % ellipse holds the truth, and how many errors beyond 50 km the covariances announce."""
    from implicit_models.seismology.geodesy import distance_azimuths

    dist, azimuth, _ = distance_azimuths(found.lat, found.lon, data.lat, data.lon)
    x = KM * dist[:, None] * np.stack([np.cos(np.radians(azimuth)), np.sin(np.radians(azimuth))], axis=-1)
    C = found.covariance[:, :2, :2]
    resolved = np.isfinite(C).all(axis=(1, 2))
    inside = np.zeros(len(x), bool)
    inside[resolved] = np.einsum(
        "ni,ni->n", x[resolved], np.linalg.solve(C[resolved], x[resolved][..., None])[..., 0]
    ) < 2 * math.log(10)
    values = np.linalg.eigvalsh(C[resolved])
    draws = np.random.default_rng(0).normal(size=(2, 1500)) ** 2
    beyond = np.ones(len(x))
    beyond[resolved] = [float((v @ draws > 2500).mean()) for v in values]
    small = resolved.copy()
    small[resolved] = values[:, 1] * 2 * math.log(10) < 2500
    far = KM * dist > 50
    return {
        "coverage_90": float(inside.mean()),
        "predicted_over_50km": float(beyond.mean()),
        "share_small_ellipse": float(small.mean()),
        "over_50km_small_ellipse": float(far[small].mean()),
    }


def scipy_location(data, k: int, table, analytic: bool, starts: tuple[float, ...]) -> tuple[float, float, float, float]:
    """One event by scipy.optimize.least_squares on (north, east, depth, t0), the best from several depths."""
    from scipy.optimize import least_squares

    from implicit_models.seismology.geodesy import distance_azimuths

    lat, lon, t = data.station_lat[k], data.station_lon[k], data.arrival_s[k]
    first = int(np.argmin(t))
    lat0, lon0 = float(np.clip(lat[first] + 0.1, -89, 89)), lon[first] + 0.1
    shrink = math.cos(math.radians(lat0))

    def predicted(v):
        dist, azimuth, _ = distance_azimuths(float(np.clip(lat0 + v[0], -90, 90)), lon0 + v[1] / shrink, lat, lon)
        return table.lookup(v[2], dist), azimuth

    def residual(v):
        return (predicted(v)[0][0] + v[3] - t) / NOISE_S

    def jacobian(v):
        (_, down, along), azimuth = predicted(v)
        a = np.radians(azimuth)
        turn = math.cos(math.radians(lat0 + v[0])) / shrink
        return np.stack([-along * np.cos(a), -along * np.sin(a) * turn, down, np.ones_like(down)], axis=-1) / NOISE_S

    bounds, best = ([-90, -180, 0, -np.inf], [90, 180, 694, np.inf]), None
    for depth in starts:
        start = np.array([0.0, 0.0, depth, 0.0])
        start[3] = -float(np.median(NOISE_S * residual(start)))
        found = least_squares(
            residual, start, jac=jacobian if analytic else "2-point", bounds=bounds, x_scale=[1, 1, 50, 10]
        )
        best = found if best is None or found.cost < best.cost else best
    answer = best.x
    return lat0 + answer[0], (lon0 + answer[1] / shrink + 180) % 360 - 180, answer[2], answer[3]


def speed(data, table, quick: bool) -> tuple[dict, dict]:
    """CPU seconds an event, repeat by repeat: ours on all events, SciPy's on some; and SciPy's answers on these."""
    chosen = np.linspace(0, len(data) - 1, 10 if quick else 60).astype(int)
    peers = {"scipy": (False, STARTS), "scipy_analytic": (True, STARTS), "scipy_one_descent": (True, STARTS[2:3])}
    times: dict[str, list[float]] = {name: [] for name in ("ours", "our_descent", *peers)}
    answers = {}
    scipy_location(data, 0, table, False, STARTS)  # imports
    for _ in range(2 if quick else 5):
        seconds = []
        for starts in (8, 16):
            start = time.process_time()
            geiger(data, table, starts=starts)
            seconds.append((time.process_time() - start) / len(data))
        times["ours"].append(seconds[0])
        times["our_descent"].append((seconds[1] - seconds[0]) / 8)
        for name, (analytic, starts) in peers.items():
            start = time.process_time()
            answers[name] = np.array([scipy_location(data, k, table, analytic, starts) for k in chosen])
            times[name].append((time.process_time() - start) / chosen.size)
    return times, {"events": chosen, "answers": answers}


def with_s(n: int, phases) -> dict[str, float]:
    """Errors at 20 km depth from P alone, and with S at half of the stations."""
    from implicit_models.seismology.event_data import Arrivals
    from implicit_models.seismology.geiger.events import locate_events
    from implicit_models.seismology.geodesy import distance_azimuths

    data = events(n, REACH_DEG, NOISE_S, 0.0, phases.p, depth_km=20.0)
    half = data.station_lat.shape[1] // 2
    dist = distance_azimuths(data.lat[:, None], data.lon[:, None], data.station_lat, data.station_lon)[0][:, :half]
    s = phases.of("S").lookup(20.0, dist)[0] + np.random.default_rng(1).normal(0, NOISE_S, dist.shape)
    both = [np.c_[a, a[:, :half]] for a in (data.station_lat, data.station_lon)]
    names = np.c_[np.full(data.station_lat.shape, "P"), np.full(dist.shape, "S")]
    arrivals = Arrivals(*both, np.c_[data.arrival_s, s], NOISE_S, phase=names)
    alone = geiger(data, phases.p)
    found = locate_events(arrivals, table=phases, geographic=False)
    return {
        name: float(np.median(value))
        for name, value in (
            ("depth_km_p", np.abs(alone.depth_km - 20)),
            ("depth_km_p_s", np.abs(found.depth_km - 20)),
            ("epicentre_km_p", KM * distance_azimuths(data.lat, data.lon, alone.lat, alone.lon)[0]),
            ("epicentre_km_p_s", KM * distance_azimuths(data.lat, data.lon, found.lat, found.lon)[0]),
        )
    }


def blunders(n: int, table) -> dict[str, float]:
    """Share of events within 20 km of the truth with one pick of eight 60 s late or early, and without it."""
    from implicit_models.seismology.geodesy import distance_azimuths

    data = events(n, REACH_DEG, NOISE_S, 0.0, table, stations=8)
    rng = np.random.default_rng(2)
    late = data.arrival_s.copy()
    late[np.arange(n), rng.integers(0, 8, n)] += rng.choice([-60.0, 60.0], n)
    shares = {}
    for name, time_s in (("clean", data.arrival_s), ("blunder", late)):
        found = geiger(data, table, arrival_s=time_s)
        km = KM * distance_azimuths(data.lat, data.lon, found.lat, found.lon)[0]
        shares[name] = float((km <= 20).mean())
    return shares


def catalogue(n: int, phases) -> dict[str, float]:
    """CPU seconds of the command on a QuakeML file of n events of 20 picks, and of `locate` on tables of picks."""
    import resource
    import subprocess
    import sys
    import tempfile

    from implicit_models.seismology.geodesy import distance_azimuths, geographic_latitude
    from implicit_models.seismology.locate import locate
    from implicit_models.seismology.picks.files import read_picks

    rng = np.random.default_rng(0)
    lat, lon = np.degrees(np.arcsin(rng.uniform(-0.99, 0.99, 1500))), rng.uniform(-180, 180, 1500)
    namespaces = 'xmlns="http://quakeml.org/xmlns/bed/1.2" xmlns:q="http://quakeml.org/xmlns/quakeml/1.2"'
    with tempfile.TemporaryDirectory() as folder:
        picks, stations = Path(folder) / "picks.xml", Path(folder) / "stations.txt"
        rows = "".join(f"AA|S{k}|{a:.5f}|{b:.5f}|0.0|\n" for k, (a, b) in enumerate(zip(geographic_latitude(lat), lon)))
        stations.write_text("#Network|Station|Latitude|Longitude|Elevation|SiteName\n" + rows)
        with picks.open("w") as file:
            file.write(f'<q:quakeml {namespaces}><eventParameters publicID="smi:local/c">\n')
            for e in range(n):
                y, x, z = np.degrees(np.arcsin(rng.uniform(-0.95, 0.95))), rng.uniform(-180, 180), rng.uniform(0, 690)
                dist = distance_azimuths(y, x, lat, lon)[0]
                own = rng.choice(np.flatnonzero(dist < 60), 20, replace=False)
                times = 1.5e9 + 3600 * e + phases.p.lookup(z, dist[own])[0] + rng.normal(0, NOISE_S, 20)
                file.write(f'<event publicID="smi:local/event/{e}">')
                for k, moment in zip(own, np.round(1e6 * times).astype("datetime64[us]")):
                    file.write(
                        f'<pick publicID="smi:local/pick/{e}.{k}"><time><value>{moment}Z</value><uncertainty>0.5'
                        f'</uncertainty></time><waveformID networkCode="AA" stationCode="S{k}"/>'
                        "<phaseHint>P</phaseHint></pick>"
                    )
                file.write("</event>\n")
            file.write("</eventParameters></q:quakeml>\n")
        command = [sys.executable, "-m", "implicit_models.seismology.locate", picks, "--stations", stations]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, "--out", Path(folder) / "located.xml"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        table = read_picks(picks, stations=stations)
        few = table[table["event"].isin(table["event"].unique()[: n // 8])]
        spent = {}
        for name, part in (("few", few), ("many", table)):
            start = time.process_time()
            locate(part, table=phases.p)
            spent[name] = time.process_time() - start
    slope = math.log(spent["many"] / spent["few"]) / math.log(8)
    return {"events": n, "file_to_file_s": seconds, "table_s": spent["many"], "table_slope": slope}


def real_events(table) -> dict[str, dict]:
    """Distance to the catalogues' locations of the events in obspy's test data, and whether the ellipse covers it."""
    import obspy

    from implicit_models.seismology.geodesy import distance_azimuths, geocentric_latitude
    from implicit_models.seismology.locate import PRIOR_DOF, locate
    from implicit_models.seismology.picks.files import read_picks
    from implicit_models.seismology.uncertainty import ellipse_scale

    out = {}
    for name, (file, lat, lon, depth) in REAL.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picks = read_picks(Path(obspy.__file__).parent / file)
        start = time.process_time()
        (found,) = locate(picks, table=table)
        seconds = time.process_time() - start
        dist, azimuth, _ = distance_azimuths(geocentric_latitude(found.lat), found.lon, geocentric_latitude(lat), lon)
        x = KM * dist * np.array([math.cos(math.radians(azimuth)), math.sin(math.radians(azimuth))])
        size = float(x @ np.linalg.solve(found.covariance[:2, :2], x))
        out[name] = {
            "km": float(KM * dist),
            "depth_km": found.depth_km - depth,
            "depth_error_km": found.depth_error_km,
            "ellipse_km": [found.ellipse.semi_major_km, found.ellipse.semi_minor_km],
            "covered": bool(size <= ellipse_scale(0.9, found.dof, PRIOR_DOF)),
            "picks": int(found.residuals["used"].sum()),
            "rms_s": found.rms_s,
            "flags": list(found.flags),
            "ms": 1000 * seconds,
        }
    return out


def learned_rows(n: int, table) -> dict[str, dict]:
    """Geiger and the learned locators whose files exist, in the half of the globe that these know."""
    from implicit_models.seismology.learned import KINDS, LearnedLocator, default_file

    locators = {
        kind: LearnedLocator.load(default_file(kind), kind=kind) for kind in KINDS if default_file(kind).is_file()
    }
    rows = {}
    for label, reach, noise_s, noise_deg in (
        ("20 deg half, 0.5 s, 5 deg", 20.0, NOISE_S, 5.0),
        ("90 deg half, no noise", 90.0, 0.0, 0.0),
    ):
        data = events(n, reach, noise_s, noise_deg, table, half=True, seed=1)
        found = geiger(data, table, baz_deg=noise_deg or 1.0)
        rows[f"{label}: geiger"] = errors(data, found.lat, found.lon, found.depth_km, found.origin_time)
        for kind, locator in locators.items():
            if locator.encoding.n_stations != data.station_lat.shape[1] or locator.reach_deg < reach:
                continue
            lat, lon, depth, travel = locator.predict(
                data.station_lat, data.station_lon, data.delay_s, data.back_azimuth
            )
            rows[f"{label}: {kind}"] = errors(data, lat, lon, depth, data.arrival_s[:, 0] - travel)
    return rows


def run(quick: bool) -> harness.Report:
    from implicit_models.seismology.table.phases import build_phase_table
    from implicit_models.seismology.table.travel_times import build_p_table

    report, n = harness.Report(), 1000 if quick else EVENTS
    table = build_p_table(shadow="diffracted")
    data = events(n, REACH_DEG, NOISE_S, 0.0, table)
    geiger(data, table)  # compiles
    rows, calibrated = {}, {}
    cases = {"P": (data, {}), "P, no noise": (events(n, REACH_DEG, 0.0, 0.0, table), {})}
    for deg in (10.0, 5.0):
        cases[f"P and back-azimuths ({deg:g} deg)"] = (events(n, REACH_DEG, NOISE_S, deg, table), {"baz_deg": deg})
    for name, (sample, options) in cases.items():
        found = geiger(sample, table, **options)
        rows[f"20 deg: {name}"] = errors(sample, found.lat, found.lon, found.depth_km, found.origin_time)
        calibrated[name] = calibration(sample, found)
    few = min(n, 2000)
    part = events(few, REACH_DEG, NOISE_S, 0.0, table)
    usual, thorough = geiger(part, table), geiger(part, table, starts=80)
    missed = float((usual.chi2 > thorough.chi2 + 0.01).mean())
    times, peer = speed(data, table, quick)
    chosen = type(data)(*(getattr(data, name)[peer["events"]] for name in data.__dataclass_fields__))
    found = geiger(chosen, table)
    rows[f"20 deg: P, {len(chosen)} events"] = errors(chosen, found.lat, found.lon, found.depth_km, found.origin_time)
    for name, answers in peer["answers"].items():
        rows[f"the same: {name}"] = errors(chosen, *answers.T)
    rows |= learned_rows(n, table)
    header = ["case", "median km", "p90", "p95", "p99", "> 50 km", "depth km", "p95", "t0 s", "p95"]
    harness.print_table(header, [[name, *row.values()] for name, row in rows.items()])
    print()
    harness.print_table(
        ["case", "90 % ellipse holds", "> 50 km predicted", "ellipse < 50 km", "> 50 km among these"],
        [[name, *row.values()] for name, row in calibrated.items()],
    )
    report.ratios = {name: harness.ratio(times[name], times["ours"]) for name in ("scipy", "scipy_analytic")}
    report.ratios["scipy_one_descent"] = harness.ratio(times["scipy_one_descent"], times["our_descent"])
    micro = {
        name: {"median": 1e6 * float(np.median(v)), "min": 1e6 * min(v), "max": 1e6 * max(v)}
        for name, v in times.items()
    }
    print(
        "\nmicroseconds an event: "
        + ", ".join(f"{name} {v['median']:.3g} ({v['min']:.3g} to {v['max']:.3g})" for name, v in micro.items())
    )
    print(
        "ratios: "
        + ", ".join(f"{name} {v['median']:.3g} ({v['min']:.3g} to {v['max']:.3g})" for name, v in report.ratios.items())
        + f"; floor {FLOOR:g}, goal {GOAL:g}"
    )
    print(f"a better minimum with 80 starts: {missed:.2%} of {few} events")
    p_only = rows["20 deg: P"]
    predicted = calibrated["P"]["predicted_over_50km"]
    reason = (
        f", so that the bar of {BARS['over_50km']:.0%} cannot be reached without back-azimuths"
        if predicted > BARS["over_50km"]
        else ""
    )
    bound = calibrated["P, no noise"]["predicted_over_50km"]
    print(f"beyond 50 km from P alone: {p_only['over_50km']:.2%}; the covariances predict {predicted:.2%}{reason}")
    print(
        f"the covariances at the true places, which no unbiased locator falls below: {bound:.2%}; the geometry of these"
        f" stations {'does not allow' if bound > BARS['over_50km'] else 'allows'} {BARS['over_50km']:.0%}"
    )
    report.check(f"median at most {BARS['median_km']:g} km", p_only["median_km"] <= BARS["median_km"])
    report.check(f"p95 at most {BARS['p95_km']:g} km", p_only["p95_km"] <= BARS["p95_km"])
    # As the bar was set; it fails. Five P times 0.5 s off leave that many events undetermined: see the line above and
    # the next checks.
    report.check("at most 1 % beyond 50 km from P alone", p_only["over_50km"] <= BARS["over_50km"])
    report.check(
        "beyond 50 km at most 1.25 times what the covariances predict",
        p_only["over_50km"] <= 1.25 * predicted + (0.01 if quick else 0.0),
    )
    report.check(
        "at most 1 % beyond 50 km where the ellipse is smaller",
        calibrated["P"]["over_50km_small_ellipse"] <= BARS["over_50km"],
    )
    with_angles = rows["20 deg: P and back-azimuths (5 deg)"]
    report.check(
        "at most 1 % beyond 50 km with back-azimuths of 5 degrees", with_angles["over_50km"] <= BARS["over_50km"]
    )
    report.check("90 % ellipses hold .87 to .93", 0.87 <= calibrated["P"]["coverage_90"] <= 0.93)
    report.check("at most 1 % of the minima missed", missed <= 0.01)
    slowest = min(r["median"] for r in report.ratios.values())
    report.check(f"at least {FLOOR:g} times SciPy's least squares, with and without Jacobian", slowest >= FLOOR)
    phases = build_phase_table()
    shear, wild = with_s(min(n, 2000), phases), blunders(min(n, 2000), table)
    batch = catalogue(500 if quick else 10_000, phases)
    print(
        f"20 km deep, S at half the stations: median depth error {shear['depth_km_p_s']:.1f} km, from P alone"
        f" {shear['depth_km_p']:.1f} km; epicentre {shear['epicentre_km_p_s']:.1f} and {shear['epicentre_km_p']:.1f} km"
    )
    print(f"within 20 km: {wild['blunder']:.2%} with a blunder of 60 s in 8 picks, {wild['clean']:.2%} without")
    print(
        f"{batch['events']} events of 20 picks: {batch['file_to_file_s']:.1f} s of CPU from file to file; as a table"
        f" {batch['table_s']:.1f} s, exponent of the number of events {batch['table_slope']:.2f}"
    )
    report.check("S at half the stations halves the error of depth", shear["depth_km_p_s"] <= 0.5 * shear["depth_km_p"])
    report.check("95 % within 20 km with a blunder of 60 s among 8 picks", wild["blunder"] >= 0.95)
    report.check("10,000 events of 20 picks in at most 60 s from file to file", quick or batch["file_to_file_s"] <= 60)
    report.check("time of a table of picks grows as its events do", quick or batch["table_slope"] <= 1.15)
    report.details = {
        "with_s": shear,
        "blunders": wild,
        "catalogue": batch,
        "floor": FLOOR,
        "goal": GOAL,
        "goal_met": slowest >= GOAL,
        "events": n,
        "errors": rows,
        "calibration": calibrated,
        "microseconds": micro,
        "minima_missed": missed,
        "bound_over_50km": bound,
    }
    try:
        real = real_events(table)
    except (ImportError, FileNotFoundError) as error:
        report.details["real"] = f"not run: {error}"
        print(f"real events not run: {error}")
        return report
    for name, row in real.items():
        print(
            f"{name}: {row['km']:.1f} km and {row['depth_km']:+.1f} km in depth off the catalogue, 90 % ellipse"
            f" {row['ellipse_km'][0]:.1f} x {row['ellipse_km'][1]:.1f} km,"
            f" {'covered' if row['covered'] else 'not covered'}, {row['picks']} picks"
        )
    pde = real["PDE 2012-01-01"]
    report.check(
        "PDE event within 15 km and 10 km of depth, covered",
        pde["km"] <= 15 and abs(pde["depth_km"]) <= 10 and pde["covered"],
    )
    report.check("GT5 event covered", real["GT5 1967-01-30"]["covered"])
    report.details["real"] = real
    return report


if __name__ == "__main__":
    harness.main("earthquake", run)
