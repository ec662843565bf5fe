"""Features and labels of the locators against numbers worked by hand, their inverse, and the hard places."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.seismology.encoding import Encoding


def test_features_by_hand():
    stations = np.array([[[45.0, -90.0]], [[180.0, -90.0]], [[0.0, -2.0]], [[0.0, -200.0]], [[90.0, 210.0]]])
    # The anchor, then the second station: lon, lat, z, p, sin, cos.
    wanted = [0, 0.5, 0, 0, 1, 0, 1, -1, -0.2, -0.25, -0.5, -np.sqrt(0.75)]
    np.testing.assert_allclose(Encoding(2, 800.0).encode(*stations), [wanted], atol=1e-15)
    five = Encoding(2, 800.0, "five").encode(*stations)
    np.testing.assert_allclose(five, [[0, 0.5, 0, 0, -0.5, 1, -1, -0.2, -0.25, 210 / 180 - 1]], atol=1e-15)


def test_labels_by_hand():
    Y = Encoding(5, 800.0).labels(*np.array([[30.0, -90.0], [90.0, -90.0], [0.0, 694.0], [400.0, 200.0]]))
    np.testing.assert_allclose(Y, [[-1, 1 / 3, -1, 0], [1, -1, 1, -0.5]], atol=1e-15)


def test_papers_counts_of_features():
    assert Encoding(5, 800.0).n_features == 30 and Encoding(45, 800.0).n_features == 270
    assert Encoding(5, 800.0, "five").n_features == 25


@pytest.mark.parametrize("k", range(1, 10))
def test_bands_lie_at_their_distance_from_the_training_half(k):
    east, west = np.array([90 - 10 * k, 100 - 10 * k]), np.array([-100 + 10 * k, -90 + 10 * k])
    lon = np.r_[east, west].astype(float)
    X = Encoding(1, 800.0).labels(0 * lon, lon, 0 * lon, 0 * lon)[:, 0]
    np.testing.assert_allclose(np.sort(np.abs(X[:2])), [1 + (k - 1) / 9, 1 + k / 9], atol=1e-12)
    # Greenwich is the one edge that both bands of k = 9 share: -2, so that X never reaches 2.
    edges = np.sort(np.abs(X[2:]))
    np.testing.assert_allclose(edges, [1 + (k - 1) / 9, 1 + k / 9], atol=1e-12)
    assert -2 <= X.min() and X.max() < 2


def test_wrap_at_greenwich_and_at_the_antimeridian():
    encoding, relative = Encoding(2, 800.0), Encoding(2, 800.0, longitude="anchor")
    lon = np.array([[0.0, -1e-300], [359.0, -1.0], [180.0, -180.0], [179.5, -179.5]])
    zero = np.zeros_like(lon)
    X = encoding.encode(zero, lon, 0.0, zero, zero)[:, [0, 6]]
    np.testing.assert_allclose(X, [[-2, -2], [179 / 90, 179 / 90], [0, 0], [-0.5 / 90, 0.5 / 90]], atol=1e-12)
    X = relative.encode(zero, lon, 0.0, zero, zero)[:, [0, 6]]
    np.testing.assert_allclose(X, [[0, 0], [0, 0], [0, 0], [0, 1 / 180]], atol=1e-12)
    Y = relative.labels(np.zeros(2), np.array([-179.5, 1.0]), *np.zeros((2, 2)), anchor_lon=np.array([179.5, -179.0]))
    np.testing.assert_allclose(Y[:, 0], [1 / 180, -1], atol=1e-12)  # 180 degrees apart: -1


def test_a_constant_depth_of_stations_is_zero():
    U = Encoding(3, 800.0).encode(
        np.zeros((4, 3)), np.zeros((4, 3)), np.zeros((4, 3)), np.zeros((4, 3)), np.zeros((4, 3))
    )
    assert np.isfinite(U).all() and not U[:, 2::6].any()


EVENTS = st.tuples(
    st.floats(-90, 90),
    st.floats(-180, 180, exclude_max=True),
    st.floats(0, 694),
    st.floats(0, 800),
    st.floats(-180, 180),
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["absolute", "anchor"]), st.lists(EVENTS, min_size=1, max_size=5))
def test_decoding_undoes_encoding(longitude, rows):
    lat, lon, depth, time, anchor = np.array(rows).T
    encoding = Encoding.from_dict(Encoding(5, 800.0, longitude=longitude).to_dict())
    Y = encoding.labels(lat, lon, depth, time, anchor)
    assert np.abs(Y[:, 1:]).max() <= 1 and np.abs(Y[:, 0]).max() <= (2 if longitude == "absolute" else 1)
    lat2, lon2, depth2, time2 = encoding.decode(Y, anchor)
    for found, wanted in ((lat2, lat), (depth2, depth), (time2, time)):
        np.testing.assert_allclose(found, wanted, atol=1e-9)
    assert (np.abs((lon2 - lon + 180) % 360 - 180) < 1e-9).all() and ((lon2 >= -180) & (lon2 < 180)).all()


@settings(max_examples=50, deadline=None)
@given(st.floats(-180, 180), st.integers(0, 2**31))
def test_relative_longitudes_do_not_see_a_turn_of_the_earth(turn, seed):
    rng = np.random.default_rng(seed)
    lat, lon = rng.uniform(-90, 90, (6, 5)), rng.uniform(-170, 170, (6, 5))
    rest = rng.uniform(0, 1, (6, 5))
    rest[:, 0] = 0
    encoding = Encoding(5, 800.0, longitude="anchor")
    one, other = (encoding.encode(lat, lon + shift, 0.0, rest, rest) for shift in (0.0, turn))
    difference = np.abs(one - other)
    # The longitude opposite to the anchor's may come out at either end.
    np.testing.assert_allclose(np.minimum(difference, np.abs(difference - 2)), 0, atol=1e-12)
    assert np.abs(Encoding(5, 800.0).encode(lat, lon, 0.0, rest, rest) - one).max() > 1e-3


def test_settings_survive_a_file(tmp_path):
    import json

    encoding = Encoding(45, 781.4, "five", "anchor", 600.0, 5.0, 120.0)
    path = tmp_path / "encoding.json"
    path.write_text(json.dumps(encoding.to_dict()))
    assert Encoding.from_dict(json.loads(path.read_text())) == encoding


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Encoding(0, 800.0), "n_stations must be at least 1, got 0"),
        (lambda: Encoding(5, 0.0), "time_scale_s must be positive and finite, got 0.0"),
        (
            lambda: Encoding(5, 800.0, station_depth_scale_km=0.0),
            "station_depth_scale_km must be positive and finite, got 0.0",
        ),
        (lambda: Encoding(5, 800.0, "seven"), "layout must be 'six' or 'five', got 'seven'"),
        (lambda: Encoding(5, 800.0, longitude="circular"), "got 'circular'"),
        (lambda: Encoding.from_dict({"n_stations": 5, "scale": 2}), r"unknown or missing: \['scale', 'time_scale_s'\]"),
        (lambda: Encoding(5, 800.0).encode(*[np.zeros((3, 4))] * 5), r"must have shape \(N, 5\), got \(3, 4\)"),
        (
            lambda: Encoding(2, 1.0).encode(*[np.zeros((3, 2))] * 4, np.zeros((2, 2))),
            r"must have shape \(3, 2\), got \(2, 2\)",
        ),
        (
            lambda: Encoding(2, 1.0).encode(*[np.zeros((2, 2))] * 4, [[0, 1], [np.nan, 0]]),
            r"back_azimuth .* got nan at \(1, 0\)",
        ),
        (lambda: Encoding(2, 1.0).encode(*[np.zeros((2, 2))] * 3, [[0, 1], [3, 0]], 0.0), r"p_delay_s\[1, 0\] is 3.0"),
        (lambda: Encoding(2, 1.0).labels([0.0], [np.inf], [0.0], [0.0]), r"lon must be finite, got inf at \(0,\)"),
        (lambda: Encoding(2, 1.0, longitude="anchor").labels(*[np.zeros(2)] * 4), "needs anchor_lon"),
        (lambda: Encoding(2, 1.0, longitude="anchor").decode(np.zeros((2, 4))), "needs anchor_lon"),
        (lambda: Encoding(2, 1.0).decode(np.zeros(4)), r"Y must have shape \(N, 4\), got \(4,\)"),
    ],
)
def test_bad_values_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
