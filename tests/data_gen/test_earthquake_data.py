"""Synthetic earthquakes: the papers' counts, bands, geometry and times from independent sources, splits, noise."""

import numpy as np
import pytest

from data_gen import earthquake
from data_gen.earthquakes import make_samples, mesh
from implicit_models.seismology.encoding import Encoding
from implicit_models.seismology.table.travel_times import build_p_table

pytest.importorskip("obspy", reason="travel times need obspy's Earth models")


@pytest.fixture(scope="module")
def data():
    return earthquake(n_train=4_000, n_test=500, seed=3)


@pytest.fixture(scope="module")
def whole():
    return earthquake(depths=25, seed=0)


def circle(angle):
    return np.abs((angle + 180) % 360 - 180)


def test_papers_counts():
    data = earthquake(seed=0)
    assert data.u_train.shape == (720_576, 30) and data.y_train.shape == (720_576, 4)
    assert len(data.u_train) + len(data.test[0][0]) == 900_720 == 1_296 * 695
    assert {k: len(u) for k, (u, _) in data.test.items()} == {0: 180_144, **dict.fromkeys(range(1, 10), 20_016)}
    assert data.u_train.dtype == data.y_train.dtype == np.float32
    assert np.abs(data.y_train).max() <= 1 and np.abs(data.u_train[:, 1::6]).max() <= 1
    truth = data.meta["samples"]["train"]
    assert len(np.unique(truth.lat)) == 1_296 and len(np.unique(truth.depth_km)) == 695


def test_training_half_and_bands(whole):
    X = whole.y_train[:, 0]
    assert -1 <= X.min() < -0.99 and 0.99 < X.max() <= 1
    for k in range(1, 10):
        x, sample = np.abs(whole.test[k][1][:, 0]), whole.meta["samples"][k]
        assert 1 + (k - 1) / 9 <= x.min() and x.max() <= 1 + k / 9
        lon = sample.lon
        east, west = (lon > 90 - 10 * k) & (lon < 100 - 10 * k), (lon > -100 + 10 * k) & (lon < -90 + 10 * k)
        assert (east ^ west).all() and 0.3 < east.mean() < 0.7


def test_one_epicentre_in_each_cell():
    lat, lon = mesh(seed=5)
    assert lat.shape == (2_592,) and np.abs(lat).max() < 90 and 0 < lon.min() and lon.max() < 360
    cells = np.unique(np.floor((lat + 90) / 5) * 72 + np.floor(lon / 5))
    np.testing.assert_array_equal(cells, np.arange(2_592))
    offset = np.stack([lat % 5, lon % 5]) / 5
    # Uniform: mean 1/2 and variance 1/12 of 5,184 draws.
    assert offset.mean() == pytest.approx(0.5, abs=4 / np.sqrt(12 * offset.size))
    assert offset.var() == pytest.approx(1 / 12, rel=0.06)
    assert not np.array_equal(lat, mesh(seed=6)[0])


def test_geometry_agrees_with_obspy(data):
    """On a sphere obspy's geodesics are great circles."""
    from obspy.geodetics import gps2dist_azimuth

    sample = data.meta["samples"]["train"]
    for i in range(0, 4_000, 97):
        for s in range(5):
            place = sample.lat[i], sample.lon[i], sample.station_lat[i, s], sample.station_lon[i, s]
            metres, _, back = gps2dist_azimuth(*place, a=6371e3, f=0.0)
            assert metres / (6371e3 * np.pi / 180) == pytest.approx(sample.dist_deg[i, s], abs=1e-6)
            assert circle(back - sample.back_azimuth[i, s]) < 1e-5


def test_times_agree_with_taupy(data):
    from obspy.taup import TauPyModel

    model, sample = TauPyModel("ak135"), data.meta["samples"][0]
    for i in range(0, 500, 50):
        arrivals = model.get_travel_times(sample.depth_km[i], sample.dist_deg[i, 2], ["p", "P"])
        assert sample.travel_time_s[i, 2] == pytest.approx(min(a.time for a in arrivals), abs=2e-3)


def test_features_are_the_encoded_samples(data):
    sample, encoding = data.meta["samples"][4], Encoding.from_dict(data.meta["encoding"])
    u, y = data.test[4]
    np.testing.assert_allclose(
        u[:, 3::6], (sample.travel_time_s - sample.travel_time_s[:, :1]) / encoding.time_scale_s, atol=1e-6
    )
    np.testing.assert_allclose(
        np.arctan2(u[:, 4::6], u[:, 5::6]) % (2 * np.pi), np.radians(sample.back_azimuth), atol=1e-5
    )
    assert not u[:, 2::6].any() and not u[:, 3].any()
    lat, lon, depth, time = encoding.decode(y)
    np.testing.assert_allclose(lat, sample.lat, atol=1e-4)
    assert circle(lon - sample.lon).max() < 1e-4
    np.testing.assert_allclose(depth, sample.depth_km, atol=1e-3)
    np.testing.assert_allclose(time, sample.travel_time_s[:, 0], atol=1e-3)
    assert sample.anchor == 0 and np.array_equal(sample.anchor_time_s, sample.travel_time_s[:, 0])


def test_stations_are_uniform_in_distance_and_direction(data):
    from implicit_models.seismology.geodesy import distance_azimuths

    sample = data.meta["samples"]["train"]
    dist = sample.dist_deg.ravel()
    assert dist.min() == 0.25 and dist.max() == 90 and np.array_equal(dist * 4, np.round(dist * 4))
    assert dist.mean() == pytest.approx(45.125, abs=4 * 26 / np.sqrt(dist.size))
    found, azimuth, _ = distance_azimuths(
        sample.lat[:, None], sample.lon[:, None], sample.station_lat, sample.station_lon
    )
    np.testing.assert_allclose(found, sample.dist_deg, atol=1e-9)
    counts = np.histogram(azimuth, 36, (0, 360))[0]
    assert (
        counts.sum() == dist.size and ((counts - dist.size / 36) ** 2 / (dist.size / 36)).sum() < 67
    )  # chi2(35), p = 0.001


def test_longitudes_of_stations_wrap_in_the_far_band(whole):
    sample = whole.meta["samples"][9]
    X = whole.test[9][0][:, 0::6]
    assert -2 <= X.min() < -1.99 and 1.99 < X.max() < 2
    turned = np.mod(sample.station_lon, 360)
    np.testing.assert_allclose(X, (turned - 180) / 90, atol=1e-6)
    # Stations on the other side of Greenwich than their event lie far from it in X, near to it on the globe.
    apart = np.abs(X - whole.test[9][1][:, :1])
    near = sample.dist_deg < 10
    assert (apart[near] > 3).any()
    low = near & (np.abs(sample.lat) < 60)[:, None]
    assert circle(sample.station_lon - sample.lon[:, None])[low].max() < 21


def test_splits():
    by_sample, by_epicentre = (earthquake(depths=20, split=split, seed=1) for split in ("sample", "epicentre"))

    def events(data, key):
        sample = data.meta["samples"][key]
        return {(lat, lon, z) for lat, lon, z in zip(sample.lat, sample.lon, sample.depth_km, strict=True)}

    for data in (by_sample, by_epicentre):
        train, test = events(data, "train"), events(data, 0)
        assert not train & test and len(train | test) == 1_296 * 20
        assert len(events(data, 3)) == len(data.test[3][0])  # without replacement
    places = [{event[:2] for event in events(by_epicentre, key)} for key in ("train", 0)]
    assert not places[0] & places[1] and len(places[1]) == 259 and len(places[0]) == 1_037
    shared = [{event[:2] for event in events(by_sample, key)} for key in ("train", 0)]
    assert len(shared[0] & shared[1]) > 1_200


def test_smaller_sets_are_the_beginning_of_larger_ones(data):
    small = earthquake(n_train=100, n_test=7, bands=(9, 2), seed=3)
    np.testing.assert_array_equal(small.u_train, data.u_train[:100])
    assert set(small.test) == {0, 2, 9}
    for k, (u, y) in small.test.items():
        np.testing.assert_array_equal(u, data.test[k][0][:7])
        np.testing.assert_array_equal(y, data.test[k][1][:7])
    assert small.checksum() != earthquake(n_train=100, n_test=7, bands=(9, 2), seed=4).checksum()
    many = earthquake(n_train=30_000, n_test=1, bands=(), seed=3)  # more than one chunk
    np.testing.assert_array_equal(many.u_train[:4_000], data.u_train)


def test_forty_five_stations():
    data = earthquake(45, n_train=50, n_test=20, bands=(1,), seed=0)
    assert data.u_train.shape == (50, 270) and data.test[1][0].shape == (20, 270)


def test_layout_and_relative_longitude():
    data = earthquake(layout="five", longitude="anchor", n_train=300, n_test=200, seed=2)
    assert data.u_train.shape == (300, 25) and not data.u_train[:, 0].any()
    assert max(np.abs(y[:, 0]).max() for _, _, y in data.splits()) <= 1
    sample, encoding = data.meta["samples"][9], Encoding.from_dict(data.meta["encoding"])
    lon = encoding.decode(data.test[9][1], sample.anchor_lon)[1]
    assert circle(lon - sample.lon).max() < 1e-4


def test_noise_is_that_of_picks_and_directions_only():
    lat, lon = mesh(seed=0)
    quiet = make_samples(lat, lon, np.full(2_592, 100.0), seed=9)
    noisy = make_samples(lat, lon, np.full(2_592, 100.0), noise_s=0.5, noise_deg=4.0, seed=9)
    for field in ("station_lat", "station_lon", "dist_deg", "travel_time_s"):
        np.testing.assert_array_equal(getattr(quiet, field), getattr(noisy, field))
    picks = noisy.arrival_s - quiet.travel_time_s
    turned = (noisy.back_azimuth - quiet.back_azimuth + 180) % 360 - 180
    n = picks.size
    assert picks.std() == pytest.approx(0.5, rel=4 / np.sqrt(2 * n)) and turned.std() == pytest.approx(
        4.0, rel=4 / np.sqrt(2 * n)
    )
    assert abs(np.corrcoef(picks.ravel(), turned.ravel())[0, 1]) < 4 / np.sqrt(n)
    assert (noisy.back_azimuth >= 0).all() and (noisy.back_azimuth < 360).all()
    np.testing.assert_allclose(noisy.delay_s, noisy.arrival_s - noisy.arrival_s[:, :1])
    assert np.array_equal(noisy.anchor_time_s, quiet.travel_time_s[:, 0])  # the label stays exact


@pytest.mark.parametrize(
    ("lat", "lon"), [(90.0, 0.0), (-90.0, 120.0), (89.9999, 179.9999), (0.0, -180.0), (12.0, 540.0)]
)
def test_events_at_poles_and_on_the_antimeridian(lat, lon):
    from implicit_models.seismology.geodesy import distance_azimuths

    n = 200
    sample = make_samples(np.full(n, lat), np.full(n, lon), np.zeros(n), 4, seed=1)
    assert np.isfinite(sample.travel_time_s).all() and (sample.lon >= -180).all() and (sample.lon < 180).all()
    assert (
        (np.abs(sample.station_lat) <= 90).all()
        and (sample.station_lon >= -180).all()
        and (sample.station_lon < 180).all()
    )
    dist, _, back = distance_azimuths(sample.lat[:, None], sample.lon[:, None], sample.station_lat, sample.station_lon)
    np.testing.assert_allclose(dist, sample.dist_deg, atol=1e-9)
    assert circle(back - sample.back_azimuth).max() < 1e-8


def test_depths_are_whole_kilometres_of_the_table():
    assert list(earthquake(depths=2, n_train=1, n_test=1, bands=(), seed=0).meta["depths_km"]) == [0, 694]
    assert list(earthquake(depths=[5, 600], n_train=1, n_test=1, bands=(), seed=0).meta["depths_km"]) == [5, 600]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"step_deg": 4.0}, "step_deg must divide 10 degrees, the width of a band, got 4.0"),
        ({"step_deg": 0.0}, "got 0.0"),
        ({"bands": (0,)}, "bands are numbered 1 to 9, got 0"),
        ({"split": "time"}, "split must be 'sample' or 'epicentre', got 'time'"),
        ({"depths": 0}, "depths must be 1 to 695 whole km"),
        ({"depths": [0.5]}, "depth_km must be one of the table's, 0 to 694 in steps of 1 km, got 0.5 at index 0"),
        (
            {"max_dist_deg": 98.0},
            "max_dist_deg = 98.0 is in the core's shadow: P ends at 96.92 degrees for deep events",
        ),
        ({"min_dist_deg": 0.0}, "0 < min_dist_deg <= max_dist_deg, got 0.0 and 90.0"),
        ({"min_dist_deg": 1.05, "max_dist_deg": 1.1}, "no distance of the table lies in 1.05 to 1.1 degrees"),
        ({"noise_s": -1.0}, "noise_s must be a finite standard deviation of at least 0, got -1.0"),
        ({"noise_deg": float("nan")}, "noise_deg must be a finite"),
        ({"n_stations": 0}, "n_stations must be at least 1, got 0"),
        ({"layout": "seven"}, "layout must be"),
        ({"n_train": 10_000_000}, "train has 720576 samples, 10000000 are wanted"),
        ({"n_train": 1, "n_test": 30_000}, r"test\[1\] has 20016 samples, 30000 are wanted"),
        ({"seed": -1}, "seed must be non-negative, got -1"),
        ({"step_deg": float("inf")}, "step_deg must divide 10 degrees, the width of a band, got inf"),
        ({"step_deg": 1e12}, "step_deg must divide 10 degrees, the width of a band, got 1000000000000.0"),
        ({"step_deg": 1e-320}, "step_deg must divide 10 degrees"),
        ({"layout": ["six"]}, r"layout must be 'six' or 'five', got \['six'\]"),
        ({"longitude": None}, "longitude must be 'absolute' or 'anchor', got None"),
        ({"depths": "5"}, "depths must be a number or a list of km, got '5'"),
        ({"depths": [5.0, float("inf")]}, "got inf at index 1"),
        ({"depths": [float("nan")]}, "got nan at index 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        earthquake(**{"n_train": 1, "n_test": 1, "seed": 0, **arguments})


@pytest.mark.parametrize(
    "arguments", [{"bands": [2.0]}, {"n_test": 5.0}, {"n_train": True}, {"n_stations": 2.5}, {"n_stations": True}]
)
def test_counts_are_whole_numbers(arguments):
    with pytest.raises(TypeError, match=f"must be an integer, got {next(iter(np.ravel(*arguments.values())))}"):
        earthquake(**{"n_train": 1, "n_test": 1, "seed": 0, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_stations": "5"}, "n_stations must be an integer, got '5'"),
        ({"n_train": "5"}, "n_train must be an integer, got '5'"),
        ({"n_stations": "5", "depths": [0.5]}, "n_stations must be an integer, got '5'"),
        ({"min_dist_deg": "1"}, "min_dist_deg must be a number, got '1'"),
        ({"max_dist_deg": None}, "max_dist_deg must be a number, got None"),
        ({"step_deg": "5"}, "step_deg must be a number, got '5'"),
        ({"noise_s": "1"}, "noise_s must be a number, got '1'"),
        ({"noise_deg": [1.0, 2.0]}, r"noise_deg must be a number, got \[1.0, 2.0\]"),
        ({"depths": ["a"]}, r"depths must be numbers, got \['a'\]"),
        ({"depths": {5, 6}}, r"depths must be numbers, got \{5, 6\}"),
        ({"bands": 3}, "bands must be a list of 1 to 9, got 3"),
        ({"bands": iter((1, 2))}, "bands must be a list of 1 to 9, got <tuple_iterator"),
        ({"seed": "0"}, "seed must be an integer, got '0'"),
    ],
)
def test_arguments_of_another_kind_are_named(arguments, message):
    with pytest.raises(TypeError, match=message):
        earthquake(**{"n_train": 1, "n_test": 1, "seed": 0, **arguments})


@pytest.mark.parametrize(
    ("depths", "named"),
    [
        ([5, 10, 5], "5.0 and 5.0"),
        ([5.0, 5.0000001], "5.0 and 5.0000001"),
        ([7, 5.0000001, 600, 4.9999999], "5.0000001 and 4.9999999"),
    ],
)
def test_a_depth_is_given_once(depths, named):
    with pytest.raises(ValueError, match=f"depths must differ by a row of the travel-time table, got {named} km"):
        earthquake(depths=depths, n_train=1, n_test=1, seed=0)


def test_vectors_of_events_must_agree():
    with pytest.raises(ValueError, match=r"vectors of one length, got \(2,\), \(2,\), \(3,\)"):
        make_samples([0, 1], [0, 1], [0, 1, 2], seed=0)
    with pytest.raises(ValueError, match="latitude lies in"):
        make_samples([91.0], [0.0], [0.0], seed=0)
    with pytest.raises(TypeError, match="n_stations must be an integer, got 2.5"):
        make_samples([0.0], [0.0], [0.0], 2.5, seed=0)
    with pytest.raises(TypeError, match="n_stations must be an integer, got '5'"):
        make_samples(["a"], [0.0], [0.0], "5", seed=0)
    with pytest.raises(TypeError, match=r"lat must be numbers, got \['a'\]"):
        make_samples(["a"], [0.0], [0.0], seed=0)
    assert len(make_samples(*np.empty((3, 0)), seed=0, table=build_p_table())) == 0
