"""S, Sg, Sn, pP and sP: their times beside TauPy's, where they arrive, and what they do for a location."""

import numpy as np
import pytest

from implicit_models.seismology.event_data import Arrivals, ModelError
from implicit_models.seismology.geiger.events import locate_events
from implicit_models.seismology.geodesy import destination, distance_azimuths
from implicit_models.seismology.locations import BEYOND, OUTLIER, USED
from implicit_models.seismology.table.phases import PHASES, build_phase_table

pytest.importorskip("obspy", reason="travel times need obspy's Earth models")

KM = np.pi / 180 * 6371.0
CRUST = (6371.0 - 35.0) / 3.85  # s/rad; an S of a larger ray parameter turns above the mantle


@pytest.fixture(scope="module")
def table():
    return build_phase_table(progress=False)


@pytest.fixture(scope="module")
def taupy():
    from obspy.taup import TauPyModel

    return TauPyModel("ak135")


@pytest.mark.parametrize(("phase", "names"), [("P", ["p", "P"]), ("S", ["s", "S"]), ("pP", ["pP"]), ("sP", ["sP"])])
def test_times_and_slopes_are_those_of_taupy(table, taupy, phase, names):
    rng = np.random.default_rng(0)
    window, own, seen = table.window[PHASES.index(phase)], table.of(phase), 0
    for depth, dist in zip(np.r_[rng.integers(1, 690, 12), [8.3, 26.4, 49.3]], np.r_[rng.uniform(1, 98, 12), 2, 24, 1]):
        begin, end = (np.interp(depth, table.depths_km, window[:, side]) for side in (0, 1))
        arrivals = taupy.get_travel_times(depth, dist, names)
        if not begin <= dist <= end:
            continue
        seen += 1
        T, Tz, Tx = own.lookup(depth, dist)
        assert T == pytest.approx(arrivals[0].time, abs=2e-3)
        assert Tx == pytest.approx(arrivals[0].ray_param_sec_degree, abs=2e-2)
        assert Tz == pytest.approx((own.lookup(depth + 0.01, dist)[0] - T) / 0.01, abs=2e-3)
    assert seen >= 8


def test_where_the_first_s_is_sg_and_where_sn(table, taupy):
    for depth in (0, 10, 25):
        crossing = table.window[PHASES.index("Sg"), depth, 1]
        assert crossing == table.window[PHASES.index("Sn"), depth, 0]
        for dist, crust in ((crossing - 0.3, True), (crossing + 0.3, False)):
            first = taupy.get_travel_times(depth, dist, ["s", "S"])[0]
            assert (first.name == "s" or first.ray_param > CRUST) == crust
    assert (table.window[PHASES.index("Sg"), 35:, 1] < 0).all()  # below the crust there is none


def test_a_depth_phase_arrives_without_a_gap_from_its_begin_on(table, taupy):
    for phase, depth in (("pP", 100), ("pP", 500), ("sP", 300)):
        begin, end = table.window[PHASES.index(phase), depth]
        for dist in np.linspace(begin, end - 0.3, 5):
            assert taupy.get_travel_times(depth, dist, [phase])
        assert not taupy.get_travel_times(depth, begin - 0.6, [phase])


def event(table, depth, dist, azimuth, phases, noise=0.0, seed=0):
    """Arrivals at stations around 20 N, 40 E on the sphere, one list of phases a station."""
    rng = np.random.default_rng(seed)
    lat, lon, _ = destination(20.0, 40.0, np.asarray(dist), np.asarray(azimuth))
    names = [name for own in phases for name in own]
    at = np.repeat(np.arange(len(dist)), [len(own) for own in phases])
    time = [float(table.of(name).lookup(depth, dist[k])[0]) + noise * rng.normal() for name, k in zip(names, at)]
    return Arrivals(lat[at][None], lon[at][None], np.array([time]), 0.3, phase=np.array([names]))


def off_km(found):
    return KM * distance_azimuths(found.lat[0], found.lon[0], 20.0, 40.0)[0]


def test_s_at_three_stations_gives_the_depth(table):
    arrivals = event(table, 20.0, [3.0, 4.5, 6.0], [0.0, 130.0, 250.0], [["P", "S"]] * 3)
    found = locate_events(arrivals, table=table, geographic=False)
    assert off_km(found) < 0.5 and found.depth_km[0] == pytest.approx(20, abs=0.5)
    assert (found.status == USED).all() and found.dof[0] == 2


def test_depth_phases_resolve_a_depth_that_p_alone_does_not(table):
    dist, azimuth = [35.0, 50.0, 62.0, 75.0, 80.0, 40.0], [0.0, 60.0, 120.0, 190.0, 250.0, 310.0]
    for phase in ("pP", "sP"):
        both = event(table, 20.0, dist, azimuth, [["P", phase]] * 3 + [["P"]] * 3, noise=0.3)
        alone = event(table, 20.0, dist, azimuth, [["P"]] * 6, noise=0.3)
        found, blind = (locate_events(a, table=table, geographic=False) for a in (both, alone))
        assert abs(found.depth_km[0] - 20) < 4 and found.covariance[0, 2, 2] < 0.02 * blind.covariance[0, 2, 2]


def test_p_alone_is_located_as_without_the_other_phases(table):
    arrivals = event(
        table, 100.0, [3.0, 8.0, 14.0, 20.0, 35.0], [0.0, 70.0, 140.0, 210.0, 280.0], [["P"]] * 5, noise=0.5
    )
    plain = Arrivals(arrivals.lat, arrivals.lon, arrivals.time, 0.3)
    one = locate_events(arrivals, table=table, geographic=False)
    two = locate_events(plain, table=table.p, geographic=False)
    assert (one.lat[0], one.lon[0], one.depth_km[0], one.chi2[0]) == (
        two.lat[0],
        two.lon[0],
        two.depth_km[0],
        two.chi2[0],
    )


def test_a_phase_that_is_not_first_there_is_left_out(table):
    """An Sg 5 degrees away comes 20 s after Sn, which a reader who took it for the first S would not notice."""
    dist, azimuth = [1.0, 1.2, 3.0, 4.0, 5.0], [0.0, 100.0, 180.0, 240.0, 300.0]
    right = event(table, 12.0, dist, azimuth, [["P", "Sg"], ["P", "Sg"], ["P", "Sn"], ["P"], ["P", "Sn"]])
    names, time = right.phase.copy(), right.time.copy()
    names[0, -1] = "Sg"
    wrong = Arrivals(right.lat, right.lon, time, 0.3, phase=names)
    found = locate_events(right, table=table, geographic=False)
    assert (found.status == USED).all() and off_km(found) < 0.5
    found = locate_events(wrong, table=table, geographic=False)
    assert found.status[0, -1] == BEYOND and (found.status[0, :-1] == USED).all() and off_km(found) < 0.5
    time[0, -1] += 20.0
    found = locate_events(wrong, table=table, geographic=False)
    assert found.status[0, -1] != USED and off_km(found) < 0.5


def test_a_blunder_among_p_and_s_is_set_aside(table):
    arrivals = event(table, 40.0, [3.0, 5.0, 8.0, 11.0, 6.0], [0.0, 70.0, 140.0, 210.0, 280.0], [["P", "S"]] * 5)
    arrivals.time[0, 3] += 40.0
    found = locate_events(arrivals, table=table, geographic=False)
    assert list(np.flatnonzero(found.status[0] == OUTLIER)) == [3] and off_km(found) < 0.5


def test_elevation_delays_an_s_by_its_own_velocity(table):
    arrivals = event(table, 60.0, [3.0, 5.0, 8.0, 11.0], [0.0, 90.0, 180.0, 270.0], [["P", "S"]] * 4)
    time, high = arrivals.time.copy(), np.zeros_like(arrivals.time)
    high[0, 1], time[0, 1] = 1730.0, time[0, 1] + 0.5
    found = locate_events(
        Arrivals(arrivals.lat, arrivals.lon, time, 0.3, elev_m=high, phase=arrivals.phase),
        table=table,
        geographic=False,
    )
    assert off_km(found) < 0.01 and found.rms_s[0] < 1e-3


def test_the_earth_errs_more_for_s(table):
    """chi-square with the model's error is that of standard deviations (0.3^2 + m^2) for P and (0.3^2 + (1.8 m)^2)."""
    arrivals = event(table, 40.0, [3.0, 5.0, 8.0, 11.0, 6.0], [0.0, 70.0, 140.0, 210.0, 280.0], [["P", "S"]] * 5, 0.5)
    found = locate_events(arrivals, table=table, geographic=False, model_error=ModelError(0.7), outliers=False)
    sigma = np.where(arrivals.phase == "S", np.hypot(0.3, 1.8 * 0.7), np.hypot(0.3, 0.7))
    assert found.chi2[0] == pytest.approx(np.sum((found.residual_s[0] / sigma[0]) ** 2), rel=1e-6)


def test_bad_phases_are_named(table):
    arrivals = event(table, 40.0, [3.0, 5.0, 8.0], [0.0, 120.0, 240.0], [["P", "S"]] * 3)
    with pytest.raises(ValueError, match=r"the picks have the phase S: a table of P has none"):
        locate_events(arrivals, table=table.p)
    names = arrivals.phase.astype(object)
    names[0, 2] = "PKP"
    for phase, said in (
        (names, "phase of event 0, station 2 must be one of P, S, Sg, Sn, pP, sP, got 'PKP'"),
        (names[:, :3], r"phase has shape \(1, 3\), time has \(1, 6\)"),
    ):
        with pytest.raises(ValueError, match=said):
            locate_events(Arrivals(arrivals.lat, arrivals.lon, arrivals.time, phase=phase), table=table)
    with pytest.raises(ValueError, match="phase must be one of P, S, .*, got 'ScS'"):
        table.of("ScS")
