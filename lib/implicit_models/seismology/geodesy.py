"""Directions and distances on the sphere, and geocentric latitudes.

With r the unit vector of a point, n its north, e its east, a great circle that leaves at azimuth a (degrees clockwise
from north) runs through

    r(d) = cos d r + sin d (cos a n + sin a e).

Both directions are computed from such components by atan2 only: neither arccos nor arcsin, whose derivatives are
infinite at their ends, so that tiny distances, antipodes and poles keep their digits. All angles are in degrees; the
scalar kernels are for other kernels, the other functions take arrays that broadcast.

At a pole the azimuth is that of the given longitude's meridian: from latitude 90 and longitude 0, azimuth 180 runs down
the meridian of longitude 0. Coincident points have azimuth 0.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from implicit_models.kernels import kernel

FLATTENING = 1 / 298.257223563  # WGS84
_SQUASH = (1 - FLATTENING) ** 2
_DEGREE = math.pi / 180


@kernel
def wrapped(lon):
    """The longitude in [-180, 180)."""
    if not -180.0 <= lon < 180.0:
        lon = lon - 360.0 * np.floor((lon + 180.0) / 360.0)
        if lon >= 180.0 or lon < -180.0:  # the subtraction rounded onto the end
            lon = -180.0
    return lon


@kernel
def _compass(angle):
    """Radians to degrees in [0, 360)."""
    angle /= _DEGREE
    if angle < 0:
        angle += 360.0
    return 0.0 if angle >= 360.0 else angle


@kernel
def _direction(east, north):
    return _compass(math.atan2(east + 0.0, north + 0.0))  # -0.0 would turn the zero vector round


@kernel
def _reach(sa, ca, dist, azimuth):
    """Opposite and adjacent sides of the three angles, latitude, longitude gained, back-azimuth; sa, ca of the
    latitude."""
    d, z = dist * _DEGREE, azimuth * _DEGREE
    sd, cd, sz, cz = math.sin(d), math.cos(d), math.sin(z), math.cos(z)
    # Axes: through the meridian of the start, 90 degrees east of it, the pole.
    x, y, up = ca * cd - sa * sd * cz, sd * sz, sa * cd + ca * sd * cz
    across = math.sqrt(x * x + y * y)
    if across > 0:
        cos_turn, sin_turn = x / across, y / across
    else:
        cos_turn, sin_turn = 1.0, 0.0
    # The direction back is -dr/dd; its components along the east and the north of the point reached.
    bx, by, bup = sd * ca + cd * sa * cz, -cd * sz, sd * sa - cd * ca * cz
    east = by * cos_turn - bx * sin_turn
    north = across * bup - up * (bx * cos_turn + by * sin_turn)
    return up, across, y, x, east + 0.0, north + 0.0


@kernel
def distance_azimuths_of(lat1, lon1, lat2, lon2):
    """(distance, azimuth at 1 towards 2, azimuth at 2 towards 1) of one pair; all in degrees."""
    turn = wrapped(lon2 - lon1) * _DEGREE
    a, b = lat1 * _DEGREE, lat2 * _DEGREE
    sa, ca, sb, cb = math.sin(a), math.cos(a), math.sin(b), math.cos(b)
    st, ct = math.sin(turn), math.cos(turn)
    # cos a sin b - sin a cos b cos t loses its digits where it is small: between neighbours and between antipodes.
    if ct > 0:
        half = math.sin(0.5 * turn) ** 2
        slant = math.sin((lat2 - lat1) * _DEGREE)
        north1, north2 = slant + 2 * sa * cb * half, -slant + 2 * sb * ca * half
    else:
        half = math.cos(0.5 * turn) ** 2
        slant = math.sin((lat2 + lat1) * _DEGREE)
        north1, north2 = slant - 2 * sa * cb * half, slant - 2 * sb * ca * half
    dist = math.atan2(math.hypot(cb * st, north1), sa * sb + ca * cb * ct) / _DEGREE
    return dist, _direction(cb * st, north1), _direction(-ca * st, north2)


@kernel
def _sides(lat, dist, azimuth, opposite, adjacent):
    last, sa, ca = math.nan, math.nan, math.nan
    for k in range(lat.size):
        if lat[k] != last:  # stations of one event follow each other
            last, sa, ca = lat[k], math.sin(lat[k] * _DEGREE), math.cos(lat[k] * _DEGREE)
        sides = _reach(sa, ca, dist[k], azimuth[k])
        for angle in range(3):
            opposite[angle, k], adjacent[angle, k] = sides[2 * angle], sides[2 * angle + 1]


@kernel
def _in_degrees(lon, out):
    for k in range(lon.size):
        out[0, k] /= _DEGREE
        out[1, k] = wrapped(lon[k] + out[1, k] / _DEGREE)
        out[2, k] = _compass(out[2, k])


def _destinations(lat, lon, dist, azimuth, out):
    opposite, adjacent = np.empty(out.shape), np.empty(out.shape)
    _sides(lat, dist, azimuth, opposite, adjacent)
    np.arctan2(opposite, adjacent, out=out)  # vectorised by NumPy: the larger part of the work otherwise
    _in_degrees(lon, out)


@kernel
def _distances(lat1, lon1, lat2, lon2, out):
    for k in range(lat1.size):
        out[0, k], out[1, k], out[2, k] = distance_azimuths_of(lat1[k], lon1[k], lat2[k], lon2[k])


def destination(
    lat: Float[np.ndarray, " ..."] | float,
    lon: Float[np.ndarray, " ..."] | float,
    dist_deg: Float[np.ndarray, " ..."] | float,
    azimuth: Float[np.ndarray, " ..."] | float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The point at a distance along an azimuth, and the direction back.

    Args:
        lat, lon: of the start, degrees.
        dist_deg: along the great circle, degrees of arc.
        azimuth: at the start, degrees clockwise from north.

    Returns:
        Latitude, longitude in [-180, 180), and the azimuth at the point reached towards the start, in [0, 360). Scalars
        for scalars. NaN gives NaN.

    Raises:
        ValueError: a latitude beyond a pole, with its index.
    """
    return _over_arrays(_destinations, (0,), lat, lon, dist_deg, azimuth)


def distance_azimuths(
    lat1: Float[np.ndarray, " ..."] | float,
    lon1: Float[np.ndarray, " ..."] | float,
    lat2: Float[np.ndarray, " ..."] | float,
    lon2: Float[np.ndarray, " ..."] | float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Great-circle distance between two points, and the azimuths at both ends.

    Args:
        lat1, lon1, lat2, lon2: degrees; longitudes in any turn.

    Returns:
        Distance in degrees of arc, azimuth at 1 towards 2, azimuth at 2 towards 1, both in [0, 360). Scalars for
        scalars.

    Raises:
        ValueError: a latitude beyond a pole, with its index.
    """
    return _over_arrays(_distances, (0, 2), lat1, lon1, lat2, lon2)


def _over_arrays(kernel, latitudes: tuple[int, ...], *values):
    arrays = np.broadcast_arrays(*(np.asarray(value, np.float64) for value in values))
    shape = arrays[0].shape
    flat = [np.ascontiguousarray(array).reshape(-1) for array in arrays]
    for which in latitudes:
        _check_latitude(flat[which], shape)
    out = np.empty((3, flat[0].size))
    kernel(*flat, out)
    return tuple(part.reshape(shape)[()] for part in out)


def _check_latitude(lat: np.ndarray, shape: tuple[int, ...]) -> None:
    beyond = np.flatnonzero(np.abs(lat) > 90)
    if beyond.size:
        where = f" at {tuple(int(i) for i in np.unravel_index(beyond[0], shape))}" if shape else ""
        raise ValueError(f"a latitude lies in [-90, 90] degrees, got {lat[beyond[0]]}{where}")


def geocentric_latitude(lat: Float[np.ndarray, " ..."] | float) -> np.ndarray:
    """Angle at the Earth's centre: tan(geocentric) = (1 - f)^2 tan(geographic), f of WGS84; degrees.

    Raises:
        ValueError: a latitude beyond a pole, with its index.
    """
    return _scaled_tangent(lat, _SQUASH)


def geographic_latitude(lat: Float[np.ndarray, " ..."] | float) -> np.ndarray:
    """Inverse of `geocentric_latitude`: the latitude of maps; degrees.

    Raises:
        ValueError: a latitude beyond a pole, with its index.
    """
    return _scaled_tangent(lat, 1 / _SQUASH)


def _scaled_tangent(lat, factor: float) -> np.ndarray:
    lat = np.asarray(lat, np.float64)
    _check_latitude(lat.reshape(-1), lat.shape)
    # A pole is a pole: the rounded cosine of 90 degrees is not zero, but the result rounds to 90 again.
    angle = lat * _DEGREE
    return (np.arctan2(factor * np.sin(angle), np.cos(angle)) / _DEGREE)[()]
