"""Geiger's method: derivatives, TauPy's own arrivals, SciPy, covariances, coverage, and every way in which picks can be
bad."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares

from implicit_models.seismology.event_data import Arrivals, BackAzimuths, DepthRange, ModelError
from implicit_models.seismology.geiger import kernels
from implicit_models.seismology.geiger.events import locate_events
from implicit_models.seismology.geodesy import destination, distance_azimuths, geocentric_latitude
from implicit_models.seismology.locations import ABSENT, BEYOND, OUTLIER, USED
from implicit_models.seismology.table.phases import p_alone
from implicit_models.seismology.table.travel_times import build_p_table
from implicit_models.seismology.uncertainty import covariances, ellipse_of

pytest.importorskip("obspy", reason="travel times need obspy's Earth models")

KM = math.pi / 180 * 6371.0


@pytest.fixture(scope="module")
def table():
    return build_p_table(shadow="diffracted", progress=False)


@pytest.fixture(scope="module")
def taupy():
    from obspy.taup import TauPyModel

    model = TauPyModel("ak135")

    def first(depth, dist, phases=("p", "P")):
        return min(arrival.time for arrival in model.get_travel_times(depth, dist, list(phases)))

    return first


def unit(lat, lon):
    a, b = np.radians(lat), np.radians(lon)
    return np.stack([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)], axis=-1)


def around(lat, lon, dist, azimuth):
    station_lat, station_lon, _ = destination(lat, lon, np.asarray(dist, float), np.asarray(azimuth, float))
    return station_lat, station_lon


def events(table, n, reach, seed, stations=5, noise=0.0):
    rng = np.random.default_rng(seed)
    lat, lon, depth = np.degrees(np.arcsin(rng.uniform(-1, 1, n))), rng.uniform(-180, 180, n), rng.uniform(0, 690, n)
    dist, azimuth = rng.uniform(0.25, reach, (n, stations)), rng.uniform(0, 360, (n, stations))
    station_lat, station_lon, baz = destination(lat[:, None], lon[:, None], dist, azimuth)
    time = table.lookup(depth[:, None], dist)[0] + noise * rng.normal(size=dist.shape)
    return {"lat": lat, "lon": lon, "depth": depth, "baz": baz, "stations": (station_lat, station_lon, time)}


def off_km(found, lat, lon):
    return KM * distance_azimuths(found.lat, found.lon, lat, lon)[0]


# The derivatives


@pytest.mark.parametrize("lat", [0.0, 47.3, -89.999, 90.0])
def test_gradient_of_chi_square_by_differences(table, lat):
    rng = np.random.default_rng(3)
    station_lat, station_lon = around(lat, 20.0, rng.uniform(2, 60, 7), rng.uniform(0, 360, 7))
    u, z, place = unit(lat, 20.0), 123.4, unit(station_lat, station_lon)
    time, weight = rng.uniform(200, 260, 7), rng.uniform(0.5, 2, 7)
    baz, baz_weight = rng.uniform(-3, 3, 7), np.where(rng.random(7) < 0.7, rng.uniform(5, 20, 7), 0.0)
    phases = p_alone(table)
    picks = kernels.Picks(place, time, weight, baz, baz_weight, np.zeros(7, np.int64))
    system = kernels.system_of(7)
    north, east, g = system.north, system.east, system.g

    def chi2(at, depth):
        return kernels.normal_equations(at, depth, picks, phases, kernels.system_of(7))[0]

    kernels.normal_equations(u, z, picks, phases, system)
    reached, step = np.empty(3), 1e-6
    for axis, (a, b) in enumerate(((step, 0.0), (0.0, step))):
        sides = []
        for sign in (1, -1):
            kernels.move(u, north, east, sign * a, sign * b, reached)
            sides.append(chi2(reached.copy(), z))
        assert (sides[0] - sides[1]) / (2 * step) == pytest.approx(-2 * g[axis], rel=1e-5, abs=1e-2)
    assert (chi2(u, z + 1e-4) - chi2(u, z - 1e-4)) / 2e-4 == pytest.approx(-2 * g[2], rel=1e-5, abs=1e-4)


@pytest.mark.parametrize(("depth", "dist"), [(0.0, 5.1), (33.3, 17.2), (400.5, 44.4), (693.2, 80.3)])
def test_jacobian_by_differences(table, depth, dist):
    lat, lon = 35.0, 179.9
    station_lat, station_lon = around(lat, lon, np.full(6, dist), np.arange(6) * 60.0)
    u, place = unit(lat, lon), unit(station_lat, station_lon)
    system, none = kernels.system_of(6), np.zeros(6)
    picks = kernels.Picks(place, none, none, none, none, np.zeros(6, np.int64))
    kernels.jacobian(u, depth, picks, p_alone(table), system)
    J = system.J
    step = 1e-5
    for axis, moved in enumerate(((lat + step, lon), (lat, lon + step / math.cos(math.radians(lat))))):
        before = 2 * np.array([lat, lon]) - moved
        times = [table.lookup(depth, distance_azimuths(*p, station_lat, station_lon)[0])[0] for p in (moved, before)]
        np.testing.assert_allclose(J[:, axis], (times[0] - times[1]) / np.radians(2 * step), rtol=1e-4, atol=2e-2)
    if depth:
        times = [table.lookup(depth + s, np.full(6, dist))[0] for s in (1e-3, -1e-3)]
        np.testing.assert_allclose(J[:, 2], (times[0] - times[1]) / 2e-3, rtol=1e-4, atol=1e-5)


# Against other computations


# Within 5 degrees all five can see Pn only, one straight line in distance, which says nothing about depth.
@pytest.mark.parametrize(("reach", "depths"), [(5.0, 0.97), (20.0, 0.99), (90.0, 0.99)])
def test_noise_free_picks_give_the_source(table, reach, depths):
    case = events(table, 600, reach, seed=1)
    found = locate_events(Arrivals(*case["stations"]), table=table, geographic=False)
    assert (off_km(found, case["lat"], case["lon"]) < 1).mean() >= 0.99
    assert (np.abs(found.depth_km - case["depth"]) < 1).mean() >= depths
    assert (np.abs(found.origin_time) < 0.1).mean() >= depths


def test_arrivals_from_taupy_on_the_ellipsoid(taupy):
    """Nothing of ours makes the picks: TauPy's times, geocentric latitudes by their definition, obspy's great
    circles."""
    from obspy.geodetics import locations2degrees

    lat, lon, depth, origin = 38.3, 142.4, 29.0, 1.3e9
    station_lat = np.array([36.1, 43.0, 47.0, 24.9, 35.6, 13.6, 52.9])
    station_lon = np.array([140.1, 141.3, 142.7, 121.5, 126.9, 144.9, 158.7])
    elev = np.array([700.0, 0.0, 100.0, 50.0, 1200.0, 150.0, 3000.0])
    flattening = 1 / 298.257223563
    centric = lambda a: np.degrees(np.arctan((1 - flattening) ** 2 * np.tan(np.radians(a))))
    time = [
        origin + taupy(depth, locations2degrees(centric(lat), lon, centric(a), b)) + e / 5800
        for a, b, e in zip(station_lat, station_lon, elev)
    ]
    found = locate_events(Arrivals(station_lat[None], station_lon[None], np.array([time]), 0.1, elev_m=elev[None]))
    assert off_km(found, lat, lon)[0] < 0.5 and abs(found.lat[0] - lat) < 0.005
    assert found.depth_km[0] == pytest.approx(depth, abs=0.5) and found.origin_time[0] == pytest.approx(
        origin, abs=0.05
    )
    assert found.rms_s[0] < 0.01


def scipy_minimum(table, station_lat, station_lon, time, sigma, lat, lon, depth):
    def residual(v):
        dist = distance_azimuths(np.clip(v[0], -90, 90), v[1], station_lat, station_lon)[0]
        return (time - v[3] - table.lookup(v[2], dist)[0]) / sigma

    bounds = ([-90, -1000, 0, -np.inf], [90, 1000, 694, np.inf])
    start = [lat, lon, min(max(depth, 1.0), 690.0), 0.0]
    return least_squares(residual, start, bounds=bounds, x_scale=[1, 1, 50, 10], xtol=1e-12, ftol=1e-12, gtol=1e-12)


def test_single_events_agree_with_scipy(table):
    case = events(table, 12, 20.0, seed=5, noise=0.5)
    station_lat, station_lon, time = case["stations"]
    found = locate_events(Arrivals(station_lat, station_lon, time, 0.5), table=table, geographic=False)
    agree = 0
    for k in range(12):
        best = min(
            (
                scipy_minimum(table, station_lat[k], station_lon[k], time[k], 0.5, case["lat"][k], case["lon"][k], z)
                for z in (case["depth"][k], 50, 500)
            ),
            key=lambda s: s.cost,
        )
        assert found.chi2[k] <= 2 * best.cost * (1 + 1e-3) + 1e-3  # ours has more starts and 6 km more of depth
        if abs(found.chi2[k] - 2 * best.cost) < 1e-5:
            agree += 1
            # Along a flat valley a chi-square equal to 1e-5 leaves some metres open.
            assert KM * distance_azimuths(found.lat[k], found.lon[k], best.x[0], best.x[1])[0] < 0.5
            assert found.depth_km[k] == pytest.approx(best.x[2], abs=1.0)
    assert agree >= 9


def test_chi_square_and_residuals_are_those_of_the_answer(table):
    case = events(table, 20, 30.0, seed=2, stations=6, noise=0.5)
    station_lat, station_lon, time = case["stations"]
    sigma = np.random.default_rng(0).uniform(0.3, 0.9, time.shape)
    found = locate_events(
        Arrivals(station_lat, station_lon, time, sigma),
        depth=DepthRange(bounds=(0, 690)),
        model_error=ModelError(0.4),
        table=table,
        geographic=False,
        outliers=False,
    )
    dist, azimuth, _ = distance_azimuths(found.lat[:, None], found.lon[:, None], station_lat, station_lon)
    residual = time - found.origin_time[:, None] - table.lookup(found.depth_km[:, None], dist)[0]
    np.testing.assert_allclose(found.residual_s, residual, atol=1e-6)
    np.testing.assert_allclose(found.chi2, (residual**2 / (sigma**2 + 0.16)).sum(1), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.dist_deg, dist, atol=1e-9)
    np.testing.assert_allclose((found.azimuth - azimuth + 180) % 360, 180, atol=1e-6)
    ordered = np.sort(azimuth, axis=1)
    np.testing.assert_allclose(found.azimuthal_gap, np.diff(np.c_[ordered, ordered[:, 0] + 360]).max(1), atol=1e-6)


def test_covariance_by_its_definition(table):
    case = events(table, 5, 30.0, seed=4, stations=8, noise=0.3)
    station_lat, station_lon, time = case["stations"]
    spread, length = 0.7, 10.0
    found = locate_events(
        Arrivals(station_lat, station_lon, time, 0.3),
        depth=DepthRange(bounds=(0, 690)),
        model_error=ModelError(spread, range_deg=length),
        table=table,
        geographic=False,
        outliers=False,
    )
    plain = locate_events(
        Arrivals(station_lat, station_lon, time, 0.3),
        depth=DepthRange(bounds=(0, 690)),
        model_error=ModelError(spread),
        table=table,
        geographic=False,
        outliers=False,
    )
    variance = 0.3**2 + spread**2
    for k in range(5):
        dist, azimuth, _ = distance_azimuths(found.lat[k], found.lon[k], station_lat[k], station_lon[k])
        _, down, along = table.lookup(found.depth_km[k], dist)
        a = np.radians(azimuth)
        J = np.stack([-along / KM * np.cos(a), -along / KM * np.sin(a), down, np.ones(8)], axis=-1)
        prior = np.diag([0, 0, 12 / 690**2, 0])
        B = np.linalg.inv(J.T @ J / variance + prior)
        np.testing.assert_allclose(plain.covariance[k], B, rtol=1e-5, atol=1e-8)
        apart = distance_azimuths(station_lat[k][:, None], station_lon[k][:, None], station_lat[k], station_lon[k])[0]
        S = spread**2 * np.exp(-apart / length)
        np.fill_diagonal(S, variance)
        wide = B @ (J.T @ S @ J / variance**2 + prior) @ B
        wanted = wide if np.linalg.det(wide[:2, :2]) > np.linalg.det(B[:2, :2]) else B
        np.testing.assert_allclose(found.covariance[k], wanted, rtol=1e-5, atol=1e-8)


def test_ellipse_of_a_known_matrix():
    c, s = math.cos(math.radians(30)), math.sin(math.radians(30))
    turn = np.array([[c, -s], [s, c]])  # columns: the long axis at azimuth 30, the short one across
    C = np.zeros((4, 4))
    C[:2, :2] = turn @ np.diag([25.0, 4.0]) @ turn.T
    found = ellipse_of(C, confidence=0.9)
    scale = math.sqrt(2 * math.log(10))  # chi-square of two degrees of freedom in closed form
    assert (found.semi_major_km, found.semi_minor_km, found.azimuth) == pytest.approx((5 * scale, 2 * scale, 30))
    # With K = 0 and two degrees of freedom F_q(2, 2) = q / (1 - q).
    assert ellipse_of(C, dof=2, prior_dof=0).semi_major_km == pytest.approx(5 * math.sqrt(2 * 9))
    with pytest.raises(ValueError, match="between 0 and 1"):
        ellipse_of(C, confidence=1.0)


def test_scaling_by_residuals():
    information = np.array([np.diag([1.0, 2.0, 3.0, 4.0])])
    free = covariances(information, information, np.array([30.0]), np.array([6]), math.inf, np.array([np.inf]))
    scaled = covariances(information, information, np.array([30.0]), np.array([6]), 8.0, np.array([np.inf]))
    np.testing.assert_allclose(free[0], np.diag([1, 1 / 2, 1 / 3, 1 / 4]))
    np.testing.assert_allclose(scaled[0], free[0] * 38 / 14)


def test_ellipses_hold_the_truth_as_often_as_they_say(table):
    case = events(table, 2500, 20.0, seed=6, noise=0.5)
    found = locate_events(Arrivals(*case["stations"], 0.5), table=table, geographic=False)
    dist, azimuth, _ = distance_azimuths(found.lat, found.lon, case["lat"], case["lon"])
    x = KM * dist[:, None] * np.stack([np.cos(np.radians(azimuth)), np.sin(np.radians(azimuth))], axis=-1)
    inside = np.einsum(
        "ni,ni->n", x, np.linalg.solve(found.covariance[:, :2, :2], x[..., None])[..., 0]
    ) < 2 * math.log(10)
    assert 0.87 <= inside.mean() <= 0.93
    assert np.median(KM * dist) < 7 and np.percentile(KM * dist, 95) < 34


def test_every_event_gets_a_location(table):
    # Large errors can put the best fit far away, where no pick is a direct P: that is flagged, not lost.
    case = events(table, 2000, 20.0, seed=8, noise=4.0)
    found = locate_events(Arrivals(*case["stations"], 4.0), table=table, geographic=False)
    assert np.isfinite(found.lat).all() and not found.flags["too_few"].any()
    assert (found.flags["diffracted"] <= (found.dist_deg.max(axis=1) > 95)).all()


def test_back_azimuths_are_data(table):
    case = events(table, 300, 20.0, seed=8, noise=2.0)
    baz = case["baz"] + np.random.default_rng(0).normal(0, 2, case["baz"].shape)
    blind = off_km(
        locate_events(Arrivals(*case["stations"], 2.0), table=table, geographic=False), case["lat"], case["lon"]
    )
    seeing = off_km(
        locate_events(
            Arrivals(*case["stations"], 2.0), back_azimuths=BackAzimuths(baz, 2.0), table=table, geographic=False
        ),
        case["lat"],
        case["lon"],
    )
    assert np.median(seeing) < 0.8 * np.median(blind) and np.percentile(seeing, 95) < 0.5 * np.percentile(blind, 95)


@pytest.mark.parametrize("wrong", [[2], [0, 5]])
def test_a_back_azimuth_that_points_away_is_left_out(table, wrong):
    station_lat, station_lon, time = network(table)
    baz = distance_azimuths(12.0, 80.0, station_lat, station_lon)[2]
    baz[0, wrong] += 180.0
    found = locate_events(
        Arrivals(station_lat, station_lon, time, 0.5),
        back_azimuths=BackAzimuths(baz % 360, 5.0),
        table=table,
        geographic=False,
    )
    assert list(np.flatnonzero(~found.baz_used[0])) == wrong and found.flags["back_azimuths"][0]
    assert (found.status[0] == USED).all() and off_km(found, 12.0, 80.0)[0] < 0.1
    right = distance_azimuths(12.0, 80.0, station_lat, station_lon)[2]
    assert locate_events(
        Arrivals(station_lat, station_lon, time, 0.5),
        back_azimuths=BackAzimuths(right, 5.0),
        table=table,
        geographic=False,
    ).baz_used.all()


def test_two_stations_with_back_azimuths(table):
    station_lat, station_lon = around(10.0, 20.0, [6.0, 9.0], [30.0, 150.0])
    dist, _, baz = distance_azimuths(10.0, 20.0, station_lat, station_lon)
    time = table.lookup(50.0, dist)[0]
    found = locate_events(
        Arrivals(station_lat[None], station_lon[None], time[None], 0.1),
        back_azimuths=BackAzimuths(baz[None], 1.0),
        table=table,
        geographic=False,
    )
    assert off_km(found, 10.0, 20.0)[0] < 1 and not found.flags["too_few"][0]


# Symmetries


@settings(max_examples=15, deadline=None)
@given(turn=st.floats(-360, 360), later=st.floats(-1e5, 1e9), seed=st.integers(0, 1000))
def test_turning_the_earth_and_the_clock(table, turn, later, seed):
    case = events(table, 1, 25.0, seed=seed, stations=6)
    station_lat, station_lon, time = case["stations"]
    one = locate_events(Arrivals(station_lat, station_lon, time), table=table)
    two = locate_events(Arrivals(station_lat, station_lon + turn, time + later), table=table)
    if one.chi2[0] < 1e-6 and not one.flags["ambiguous"][0]:
        assert KM * distance_azimuths(one.lat, one.lon + turn, two.lat, two.lon)[0][0] < 0.2
        assert two.origin_time[0] - later == pytest.approx(one.origin_time[0], abs=0.01)
    assert -180 <= two.lon[0] < 180


def test_a_batch_is_its_events_one_by_one(table):
    case = events(table, 6, 20.0, seed=9, stations=7, noise=0.5)
    station_lat, station_lon, time = (a.copy() for a in case["stations"])
    time[0, 4:] = time[3, 2] = np.nan
    station_lat[0, 5] = np.nan  # where there is no pick nothing else is asked for
    whole = locate_events(Arrivals(station_lat, station_lon, time), table=table)
    assert (whole.status[0, 4:] == ABSENT).all() and whole.dof[0] == 0 and np.isnan(whole.residual_s[0, 4:]).all()
    for k in range(6):
        alone = locate_events(Arrivals(station_lat[k : k + 1], station_lon[k : k + 1], time[k : k + 1]), table=table)
        assert (alone.lat[0], alone.lon[0], alone.depth_km[0], alone.chi2[0]) == (
            whole.lat[k],
            whole.lon[k],
            whole.depth_km[k],
            whole.chi2[k],
        )


# Hard cases


@pytest.mark.parametrize(("lat", "lon"), [(5.0, 179.99), (-40.0, -179.999), (89.9, 0.0), (-90.0, 0.0), (90.0, 123.0)])
def test_antimeridian_and_poles(table, lat, lon):
    station_lat, station_lon = around(lat, lon, [3.0, 7.0, 11.0, 15.0, 8.0], [10.0, 80.0, 150.0, 220.0, 300.0])
    time = table.lookup(80.0, distance_azimuths(lat, lon, station_lat, station_lon)[0])[0]
    found = locate_events(Arrivals(station_lat[None], station_lon[None], time[None]), table=table, geographic=False)
    assert off_km(found, lat, lon)[0] < 0.1 and found.depth_km[0] == pytest.approx(80, abs=0.1)
    assert -180 <= found.lon[0] < 180 and np.isfinite(found.covariance).all()


def test_a_station_at_a_pole_with_its_back_azimuth(table):
    station_lat, station_lon = np.array([90.0, 80.0, 75.0, 84.0]), np.array([40.0, 10.0, 60.0, -30.0])
    dist, _, baz = distance_azimuths(78.0, 15.0, station_lat, station_lon)
    # At the pole "north" is the frame of longitude 0: there the meridian towards the source has azimuth 180 -
    # longitude.
    baz[0] = 180.0 - 15.0
    time = table.lookup(20.0, dist)[0]
    found = locate_events(
        Arrivals(station_lat[None], station_lon[None], time[None]),
        back_azimuths=BackAzimuths(baz[None], 1.0),
        table=table,
        geographic=False,
    )
    assert off_km(found, 78.0, 15.0)[0] < 0.5 and found.chi2[0] < 1e-3


def test_a_source_at_the_surface(table):
    station_lat, station_lon = around(
        -20.0, 30.0, [0.5, 2.0, 5.0, 9.0, 4.0, 14.0], [0.0, 60.0, 130.0, 200.0, 270.0, 320.0]
    )
    time = table.lookup(0.0, distance_azimuths(-20.0, 30.0, station_lat, station_lon)[0])[0]
    found = locate_events(Arrivals(station_lat[None], station_lon[None], time[None]), table=table, geographic=False)
    assert off_km(found, -20.0, 30.0)[0] < 0.5 and 0 <= found.depth_km[0] < 1
    early = locate_events(
        Arrivals(station_lat[None], station_lon[None], (time - [3.0, 0, 0, 0, 0, 0])[None]),
        table=table,
        geographic=False,
        outliers=False,
    )
    assert early.depth_km[0] >= 0  # no depth above the surface, whatever the picks want


def test_the_deepest_source_is_flagged(table, taupy):
    dist = np.array([3.0, 12.0, 25.0, 40.0, 18.0, 33.0])
    station_lat, station_lon = around(-18.0, -178.0, dist, [0.0, 60.0, 130.0, 200.0, 270.0, 320.0])
    time = np.array([taupy(700.0, d) for d in dist])
    found = locate_events(
        Arrivals(station_lat[None], station_lon[None], time[None], 0.2), table=table, geographic=False
    )
    assert found.depth_km[0] == pytest.approx(700, abs=1.5) and off_km(found, -18.0, -178.0)[0] < 1
    assert found.flags["depth_extrapolated"][0] and found.depth_km[0] <= 700
    deeper = locate_events(
        Arrivals(station_lat[None], station_lon[None], (time - 0.05 * np.arange(6))[None], 0.2),
        depth=DepthRange(bounds=(0, 650)),
        table=table,
        geographic=False,
    )
    assert deeper.depth_km[0] == 650 and deeper.flags["depth_at_bound"][0]


def test_three_stations_fix_the_depth(table):
    station_lat, station_lon = around(50.0, 10.0, [3.0, 4.0, 5.0], [10.0, 130.0, 250.0])
    time = table.lookup(10.0, distance_azimuths(50.0, 10.0, station_lat, station_lon)[0])[0]
    found = locate_events(Arrivals(station_lat[None], station_lon[None], time[None]), table=table, geographic=False)
    assert found.flags["depth_fixed"][0] and found.depth_km[0] == 10 and found.dof[0] == 0
    assert off_km(found, 50.0, 10.0)[0] < 0.5
    assert found.covariance[0, 2, 2] == 0 and found.covariance[0, 0, 0] > 0
    asked = locate_events(
        Arrivals(station_lat[None], station_lon[None], time[None]),
        depth=DepthRange(default_km=33.0),
        table=table,
        geographic=False,
    )
    assert asked.depth_km[0] == 33 and "depth_fixed" in asked.flags_of(0)


def test_two_stations_are_too_few(table):
    found = locate_events(Arrivals(*np.array([[[1.0, 2, 3]], [[1.0, 5, 3]], [[10.0, 20, np.nan]]])), table=table)
    assert found.flags_of(0) == ("too_few",) and np.isnan(found.lat[0]) and np.isnan(found.covariance[0]).all()


def test_three_stations_at_two_places_locate_nothing(table):
    found = locate_events(Arrivals(*np.array([[[1.0, 1, 3]], [[5.0, 5, 9]], [[30.0, 30, 40]]])), table=table)
    assert found.flags["unresolved"][0] and found.ellipse(0).semi_major_km > 2000


def test_all_stations_on_one_side(table):
    station_lat, station_lon = around(0.0, 0.0, [8.0, 9.0, 11.0, 14.0, 17.0], [70.0, 80.0, 88.0, 95.0, 105.0])
    time = table.lookup(100.0, distance_azimuths(0.0, 0.0, station_lat, station_lon)[0])[0]
    found = locate_events(Arrivals(station_lat[None], station_lon[None], time[None]), table=table, geographic=False)
    assert found.flags["gap"][0] and found.azimuthal_gap[0] == pytest.approx(325, abs=1)
    surrounded = events(table, 1, 20.0, seed=0, stations=12)
    assert not locate_events(Arrivals(*surrounded["stations"]), table=table, geographic=False).flags["gap"][0]


NET = (
    np.array([4.0, 12.0, 20.0, 31.0, 45.0, 58.0, 70.0, 26.0]),
    np.array([10.0, 70.0, 130.0, 190.0, 250.0, 300.0, 340.0, 100.0]),
)


def network(table, extra_dist=(), extra_azimuth=(), depth=60.0, lat=12.0, lon=80.0):
    dist, azimuth = np.r_[NET[0], extra_dist], np.r_[NET[1], extra_azimuth]
    station_lat, station_lon = around(lat, lon, dist, azimuth)
    return station_lat[None], station_lon[None], table.lookup(depth, dist)[0][None]


def test_a_pick_beyond_the_direct_p_is_refused(table, taupy):
    station_lat, station_lon, time = network(table, [105.0, 98.0], [20.0, 200.0])
    found = locate_events(Arrivals(station_lat, station_lon, time), table=table, geographic=False)
    assert list(found.status[0]) == [USED] * 8 + [BEYOND, USED] and found.flags["beyond_p"][0]
    assert 97 < found.p_end_deg[0] < 100 and off_km(found, 12.0, 80.0)[0] < 0.1 and found.dof[0] == 5
    assert np.isfinite(found.residual_s[0, 8])  # shown, not used


@pytest.mark.parametrize("dist", [125.0, 150.0, 165.0])
def test_pkp_labelled_p_is_not_averaged(table, taupy, dist):
    station_lat, station_lon, time = network(table, [dist], [222.0])
    time[0, 8] = taupy(60.0, dist, ("PKP", "PKIKP", "PKiKP"))
    found = locate_events(Arrivals(station_lat, station_lon, time), table=table, geographic=False)
    assert (
        off_km(found, 12.0, 80.0)[0] < 0.1
        and list(found.status[0, :8]) == [USED] * 8
        and found.status[0, 8] in (OUTLIER, BEYOND)
    )


@pytest.mark.parametrize("wrong", [[0], [3], [7], [1, 4], [0, 6]])
def test_s_labelled_p_is_not_averaged(table, taupy, wrong):
    station_lat, station_lon, time = network(table)
    for k in wrong:
        time[0, k] = taupy(60.0, NET[0][k], ("s", "S"))
    found = locate_events(Arrivals(station_lat, station_lon, time, 0.5), table=table, geographic=False)
    assert sorted(np.flatnonzero(found.status[0] == OUTLIER)) == wrong and found.flags["outliers"][0]
    assert off_km(found, 12.0, 80.0)[0] < 0.1 and found.depth_km[0] == pytest.approx(60, abs=0.1)
    averaged = locate_events(
        Arrivals(station_lat, station_lon, time, 0.5), table=table, geographic=False, outliers=False
    )
    assert (averaged.status[0] == USED).all() and averaged.flags["poor_fit"][0]


def test_a_pick_long_before_all_others(table):
    station_lat, station_lon, time = network(table)
    time[0, 5] = -900.0
    found = locate_events(Arrivals(station_lat, station_lon, time), table=table, geographic=False)
    assert list(np.flatnonzero(found.status[0])) == [5] and off_km(found, 12.0, 80.0)[0] < 0.1


def test_noise_is_no_outlier(table):
    case = events(table, 300, 30.0, seed=11, stations=12, noise=0.5)
    found = locate_events(Arrivals(*case["stations"], 0.5), table=table, geographic=False)
    # 3.5 standard deviations: one pick in 2,000.
    assert (found.status == OUTLIER).mean() < 0.004


def test_with_five_picks_nothing_tells_which_is_wrong(table):
    station_lat, station_lon, time = (a[:, :5].copy() for a in network(table))
    time[0, 2] += 40.0
    found = locate_events(Arrivals(station_lat, station_lon, time), table=table, geographic=False)
    assert (found.status[0] == USED).all() and (found.flags["poor_fit"][0] or off_km(found, 12.0, 80.0)[0] > 1)


def test_a_mirror_image_is_reported(table):
    # On a line of stations, left and right fit alike.
    station_lat, station_lon = np.zeros(5), np.array([0.0, 3.0, 6.0, 9.0, 12.0])
    time = table.lookup(30.0, distance_azimuths(4.0, 5.0, station_lat, station_lon)[0])[0]
    found = locate_events(Arrivals(station_lat[None], station_lon[None], time[None]), table=table, geographic=False)
    assert found.flags["ambiguous"][0]
    places = sorted(
        [(round(found.lat[0], 2), round(found.lon[0], 2)), (round(found.other[0, 0], 2), round(found.other[0, 1], 2))]
    )
    assert places == [(-4.0, 5.0), (4.0, 5.0)]


def test_elevation_delays_the_pick(table):
    station_lat, station_lon, time = network(table)
    high = np.zeros_like(time)
    high[0, 3], time[0, 3] = 2900.0, time[0, 3] + 0.5
    found = locate_events(Arrivals(station_lat, station_lon, time, elev_m=high), table=table, geographic=False)
    assert off_km(found, 12.0, 80.0)[0] < 0.01 and found.rms_s[0] < 1e-4


def test_geographic_latitudes_in_and_out(table):
    sphere = network(table, lat=float(geocentric_latitude(45.0)))
    station_lat = np.degrees(np.arctan(np.tan(np.radians(sphere[0])) / (1 - 1 / 298.257223563) ** 2))
    found = locate_events(Arrivals(station_lat, *sphere[1:]), table=table)
    assert found.lat[0] == pytest.approx(45.0, abs=1e-4)


def test_a_fixed_depth(table):
    station_lat, station_lon, time = network(table)
    found = locate_events(
        Arrivals(station_lat, station_lon, time), depth=DepthRange(fixed_km=60.0), table=table, geographic=False
    )
    assert found.depth_km[0] == 60 and found.dof[0] == 5 and off_km(found, 12.0, 80.0)[0] < 0.01
    assert found.covariance[0, 2, 2] == 0 and not found.flags["depth_fixed"][0]


@pytest.mark.parametrize("bounds", [(0.0, 50.0), (200.0, 300.0), (650.0, 700.0)])
@pytest.mark.parametrize("outliers", [False, True])
def test_the_depth_stays_in_its_bounds(table, bounds, outliers):
    case = events(table, 40, 30.0, seed=21, stations=7)
    options = {"table": table, "geographic": False, "outliers": outliers}
    found = locate_events(Arrivals(*case["stations"], 0.5), depth=DepthRange(bounds, default_km=bounds[0]), **options)
    assert (found.depth_km >= bounds[0]).all() and (found.depth_km <= bounds[1]).all()
    outside = (case["depth"] < bounds[0] - 5) | (case["depth"] > bounds[1] + 5)
    assert outside.sum() > 20 and found.flags["depth_at_bound"][outside].mean() > 0.5
    if not outliers:  # no depth within the bounds fits better
        for depth in np.linspace(*bounds, 3):
            fixed = locate_events(Arrivals(*case["stations"], 0.5), depth=DepthRange(fixed_km=depth), **options)
            assert (found.chi2 <= fixed.chi2 * 1.01 + 0.05).mean() > 0.9


def with_value(array, value):
    array = np.array(array, float)
    array[0, 1] = value
    return array


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lat": 91.0}, r"lat of event 0, station 1 must be in \[-90, 90\] degrees, got 91"),
        ({"lat": np.nan}, "lat of event 0, station 1"),
        ({"lon": np.inf}, "lon of event 0, station 1 must be finite"),
        ({"time": np.inf}, "time of event 0, station 1 must be finite, or NaN"),
        ({"sigma_s": 0.0}, "sigma_s of event 0, station 1 must be positive, got 0"),
        ({"sigma_s": np.nan}, "sigma_s of event 0, station 1"),
        ({"elev_m": np.nan}, "elev_m of event 0, station 1"),
        ({"baz": np.inf}, "baz of event 0, station 1"),
    ],
)
def test_bad_values_are_named(table, change, said):
    ((name, value),) = change.items()
    station_lat, station_lon, time = network(table)
    arrays = {
        "lat": station_lat,
        "lon": station_lon,
        "time": time,
        "sigma_s": np.ones_like(time),
        "elev_m": np.zeros_like(time),
        "baz": np.ones_like(time),
    }
    arrays[name] = with_value(arrays[name], value)
    angles = arrays.pop("baz")
    with pytest.raises(ValueError, match=said):
        locate_events(Arrivals(**arrays), back_azimuths=BackAzimuths(angles), table=table)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (lambda: {"depth": DepthRange((0, 800))}, "bounds must be two depths"),
        (lambda: {"depth": DepthRange((300, 100))}, "bounds must be two depths"),
        (lambda: {"depth": DepthRange(fixed_km=701.0)}, "fixed_km = 701"),
        (lambda: {"model_error": ModelError(-1.0)}, "sigma_s of the model's error must be 0 or more"),
        (lambda: {"prior_dof": -1.0}, "prior_dof must be 0 or more"),
        (lambda: {"starts": 0}, "starts must be a whole number of at least 1, got 0"),
        (lambda: {"starts": 1.5}, "starts must be a whole number of at least 1, got 1.5"),
        (lambda: {"sigma_s": np.ones(3)}, r"sigma_s has shape \(3,\), time has \(1, 8\)"),
    ],
)
def test_bad_options_are_named(table, options, said):
    with pytest.raises(ValueError, match=said):
        given = options()
        sigma_s = given.pop("sigma_s", 0.5)
        locate_events(Arrivals(*network(table), sigma_s), table=table, **given)


def test_a_table_too_small_is_refused(table):
    small = build_p_table(
        np.arange(0, 301, 100.0), np.arange(0, 91, 1.0), shadow="diffracted", cache=False, progress=False
    )
    with pytest.raises(ValueError, match=r"0\.\.700 km need a table.*0\.\.300 km and 0\.\.90 degrees"):
        locate_events(Arrivals(*network(table)), table=small)
