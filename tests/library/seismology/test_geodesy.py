"""Directions on the sphere against vectors in 50 digits, closed forms at the hard places, and properties."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.seismology.geodesy import destination, distance_azimuths, geocentric_latitude, geographic_latitude

LATITUDES = st.floats(-90, 90)
LONGITUDES = st.floats(-180, 180, exclude_max=True)


def circle(angle):
    """Smallest absolute value of an angle in degrees."""
    return abs((angle + 180) % 360 - 180)


def in_fifty_digits(lat1, lon1, lat2, lon2):
    """Distance and azimuths from cross products of unit vectors."""
    with mp.workdps(50):

        def frame(lat, lon):
            a, o = mp.radians(mp.mpf(float(lat))), mp.radians(mp.mpf(float(lon)))
            r = [mp.cos(a) * mp.cos(o), mp.cos(a) * mp.sin(o), mp.sin(a)]
            return r, [-mp.sin(a) * mp.cos(o), -mp.sin(a) * mp.sin(o), mp.cos(a)], [-mp.sin(o), mp.cos(o), mp.mpf(0)]

        def dot(a, b):
            return mp.fsum(x * y for x, y in zip(a, b, strict=True))

        (r1, n1, e1), (r2, n2, e2) = frame(lat1, lon1), frame(lat2, lon2)
        normal = [r1[1] * r2[2] - r1[2] * r2[1], r1[2] * r2[0] - r1[0] * r2[2], r1[0] * r2[1] - r1[1] * r2[0]]
        sides = (mp.sqrt(dot(normal, normal)), dot(r1, r2)), (dot(r2, e1), dot(r2, n1)), (dot(r1, e2), dot(r1, n2))
        return [float(mp.degrees(mp.atan2(*side))) for side in sides]


@pytest.mark.parametrize("spread", [1e-9, 1e-6, 1e-3, 1.0, 60.0])
@pytest.mark.parametrize("antipodal", [False, True])
def test_distances_and_azimuths_in_fifty_digits(spread, antipodal):
    rng = np.random.default_rng(3)
    lat1, lon1 = rng.uniform(-89, 89, 40), rng.uniform(-180, 180, 40)
    lat2, lon2 = np.clip(lat1 + rng.normal(0, spread, 40), -90, 90), lon1 + rng.normal(0, spread, 40)
    if antipodal:
        lat2, lon2 = -lat2, lon2 + 180
    found = distance_azimuths(lat1, lon1, lat2, lon2)
    # Next to the antipode the rounding of the longitudes themselves turns the azimuth by 1e-14 / distance.
    allowed = 1e-9 + 1e-11 / spread if antipodal else 1e-9
    for k in range(40):
        wanted = in_fifty_digits(lat1[k], lon1[k], lat2[k], lon2[k])
        assert found[0][k] == pytest.approx(wanted[0], abs=1e-12)
        if not antipodal:  # tiny distances keep their relative accuracy
            assert found[0][k] == pytest.approx(wanted[0], rel=1e-9)
        assert circle(found[1][k] - wanted[1]) < allowed and circle(found[2][k] - wanted[2]) < allowed


@settings(max_examples=200, deadline=None)
@given(LATITUDES, LONGITUDES, st.floats(0, 180), st.floats(0, 360))
def test_the_way_there_is_the_way_back(lat, lon, dist, azimuth):
    lat2, lon2, back = destination(lat, lon, dist, azimuth)
    assert -90 <= lat2 <= 90 and -180 <= lon2 < 180 and 0 <= back < 360
    assert distance_azimuths(lat, lon, lat2, lon2)[0] == pytest.approx(dist, abs=1e-9)
    lat3, lon3, _ = destination(lat2, lon2, dist, back)
    assert distance_azimuths(lat, lon, lat3, lon3)[0] < 1e-9


@settings(max_examples=200, deadline=None)
@given(LATITUDES, LONGITUDES, LATITUDES, LONGITUDES)
def test_symmetry_and_range(lat1, lon1, lat2, lon2):
    dist, there, back = distance_azimuths(lat1, lon1, lat2, lon2)
    assert 0 <= dist <= 180 and 0 <= there < 360 and 0 <= back < 360
    swapped = distance_azimuths(lat2, lon2, lat1, lon1)
    assert swapped[0] == pytest.approx(dist, abs=1e-12)
    if dist < 179.999:
        assert circle(swapped[1] - back) < 1e-9 and circle(swapped[2] - there) < 1e-9
    # Clairaut: sin(azimuth) cos(latitude) is the same along a great circle, with the opposite sign on the way back.
    at_1 = math.sin(math.radians(there)) * math.cos(math.radians(lat1))
    at_2 = math.sin(math.radians(back)) * math.cos(math.radians(lat2))
    if 1e-3 < dist < 179.999:
        assert at_1 == pytest.approx(-at_2, abs=1e-9)


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ((0, 0, 90, 90), (0, 90, 270)),
        ((0, 0, 30, 0), (30, 0, 180)),
        ((90, 0, 10, 180), (80, 0, 0)),  # from the pole down the meridian of its longitude
        ((90, 0, 10, 90), (80, 90, 0)),
        ((-90, 30, 10, 0), (-80, 30, 180)),
        ((80, 0, 20, 0), (80, -180, 0)),  # over the pole
        ((80, 0, 10, 0), (90, 0, 180)),  # onto it
        ((0, 179, 2, 90), (0, -179, 270)),  # over the antimeridian
        ((0, -179, 2, 270), (0, 179, 90)),
        ((0, 90, 90, 90), (0, -180, 270)),  # onto it: -180, not 180
        ((10, 20, 0, 77), (10, 20, 257)),
        ((45, 10, 180, 123), (-45, -170, None)),
        ((10, 380, 5, 0), (15, 20, 180)),
    ],
)
def test_hard_places(start, wanted):
    lat, lon, back = destination(*start)
    assert lat == pytest.approx(wanted[0], abs=1e-9)
    if abs(lat) < 89.999:
        assert circle(lon - wanted[1]) < 1e-9 and -180 <= lon < 180
    if wanted[2] is not None:
        # At a pole the direction back depends on the longitude reported there: their sum does not.
        turn = lon - wanted[1] if lat > 89.999 else 0.0
        assert circle(back - turn - wanted[2]) < 1e-9 or circle(back + turn - wanted[2]) < 1e-9


def test_coincident_points_and_scalars():
    assert distance_azimuths(12.5, -180.0, 12.5, 180.0) == (0.0, 0.0, 0.0)
    assert all(np.ndim(value) == 0 for value in destination(1, 2, 3, 4))
    dist, *_ = distance_azimuths(np.zeros((3, 1)), 0.0, 0.0, np.arange(4.0))
    np.testing.assert_allclose(dist, np.tile(np.arange(4.0), (3, 1)), atol=1e-12)
    assert distance_azimuths(np.empty(0), 0, 0, 0)[0].shape == (0,)
    assert np.isnan(destination(np.nan, 0, 1, 0)[0]) and np.isnan(distance_azimuths(0, np.nan, 1, 0)[0])


def test_geocentric_latitudes():
    # Torge & Mueller, Geodesy: the difference is largest near 45 degrees, 11.55 minutes of arc for WGS84.
    lat = np.linspace(-90, 90, 3601)
    difference = lat - geocentric_latitude(lat)
    assert np.abs(difference).max() * 60 == pytest.approx(11.545, abs=5e-3)
    assert lat[difference.argmax()] == pytest.approx(45.1, abs=0.1)
    # From the ellipse itself: a point has geographic latitude phi and height 0.
    phi, f = math.radians(52.2), 1 / 298.257223563
    n = 1 / math.sqrt(1 - f * (2 - f) * math.sin(phi) ** 2)
    wanted = math.degrees(math.atan2(n * (1 - f) ** 2 * math.sin(phi), n * math.cos(phi)))
    assert geocentric_latitude(52.2) == pytest.approx(wanted, abs=1e-12)
    np.testing.assert_allclose(geographic_latitude(geocentric_latitude(lat)), lat, atol=1e-12)
    assert list(geocentric_latitude(np.array([-90.0, 0.0, 90.0]))) == [-90, 0, 90]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: destination(90.1, 0, 1, 0), r"\[-90, 90\] degrees, got 90.1$"),
        (lambda: distance_azimuths([0, 1], 0, [[0, 0], [0, -91]], 0), r"got -91.0 at \(1, 1\)"),
        (lambda: geocentric_latitude([0, 95]), r"got 95.0 at \(1,\)"),
        (lambda: geographic_latitude(-90.5), "got -90.5"),
    ],
)
def test_latitudes_beyond_a_pole_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
