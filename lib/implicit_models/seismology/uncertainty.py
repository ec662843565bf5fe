"""Covariance of a location, and its confidence ellipse.

With J the derivatives of the predicted data by (north km, east km, depth km, t0 s), W the weights that the fit used and
S the data's covariance, that of the location is

    C = s^2 B (J'W S W J + P) B,     B = (J'W J + P)^-1,     s^2 = (K + chi^2) / (K + n - 4).

Picks err independently, S = W^-1 and C = s^2 B; the Earth model errs alike at neighbouring stations, which adds m^2
exp(-d_ij / L) to S off its diagonal: more stations in one place do not make the location better. An error shared by all
stations only delays the origin time, so that the shared part can also narrow the ellipse; the wider of the two is
taken. P holds what is known without data: a depth in [a, b] has at most the variance (b - a)^2 / 12. K says how many
observations the variances given are worth: infinite, they are right and s = 1; finite, the residuals' size has a say
(Jordan & Sverdrup). The ellipse of the epicentre at confidence q is x'C^-1 x <= 2 F_q(2, K + n - 4), which for infinite
K is chi^2_q(2).

Source:
    Jordan & Sverdrup (1981), Bull. Seism. Soc. Am. 71, 1105-1130; Flinn (1965); correlated errors, Bondar & McLaughlin
    (2009), Bull. Seism. Soc. Am. 99, 172-193.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class Ellipse:
    """Confidence ellipse of an epicentre: half axes in km, azimuth of the long one in degrees from north, [0, 180)."""

    semi_major_km: float
    semi_minor_km: float
    azimuth: float
    confidence: float


def covariances(
    information: Float[np.ndarray, "N 4 4"],
    scatter: Float[np.ndarray, "N 4 4"],
    chi2: Float[np.ndarray, " N"],
    dof: Int[np.ndarray, " N"],
    prior_dof: float,
    depth_range: Float[np.ndarray, " N"],
) -> Float[np.ndarray, "N 4 4"]:
    """Covariance in (north km, east km, depth km, t0 s); see the module.

    Args:
        information, scatter: J'W J and J'W S W J.
        chi2, dof: of the fit; dof = n - 4, or n - 3 where the depth is fixed, and may be 0 or less.
        prior_dof: K.
        depth_range: b - a in km; 0 where the depth is fixed, whose row and column are then 0.

    Returns:
        (N, 4, 4); inf on the diagonal of an event whose data do not determine it.
    """
    matrix, middle = np.array(information, np.float64), np.array(scatter, np.float64)
    fixed = depth_range == 0
    for part in (matrix, middle):
        part[:, 2, 2] += 12.0 / np.where(fixed, 1.0, depth_range) ** 2
        part[fixed, 2, :] = part[fixed, :, 2] = 0.0
        part[fixed, 2, 2] = 1.0
    broken = ~np.isfinite(matrix).all(axis=(1, 2))
    matrix[broken] = middle[broken] = np.eye(4)
    # Scaled to a unit diagonal: the units of the four unknowns differ.
    length = np.sqrt(np.maximum(np.einsum("nii->ni", matrix), 1e-300))
    scaled = matrix / (length[:, :, None] * length[:, None, :])
    broken |= np.linalg.eigvalsh(scaled)[:, 0] < 1e-11
    scaled[broken] = np.eye(4)
    C = np.linalg.inv(scaled) / (length[:, :, None] * length[:, None, :])
    other = C @ middle @ C
    wider = np.linalg.det(other[:, :2, :2]) > np.linalg.det(C[:, :2, :2])
    C[wider] = other[wider]
    if math.isfinite(prior_dof):
        C *= ((prior_dof + chi2) / (prior_dof + np.maximum(dof, 0)))[:, None, None]
    C[fixed, 2, :] = C[fixed, :, 2] = 0.0
    C[broken] = np.diag([np.inf] * 4)
    return C


@functools.lru_cache(maxsize=1024)
def ellipse_scale(confidence: float, dof: float, prior_dof: float) -> float:
    """x'C^-1 x at the ellipse; both degrees of freedom as in `covariances`."""
    from scipy.stats import chi2, f

    total = prior_dof + max(dof, 0)
    return float(chi2.ppf(confidence, 2) if math.isinf(total) else 2 * f.ppf(confidence, 2, total))


def ellipse_of(
    covariance: Float[np.ndarray, "4 4"], *, confidence: float = 0.9, dof: float = 0, prior_dof: float = math.inf
) -> Ellipse:
    """Ellipse of the epicentre from the covariance's first two rows.

    Raises:
        ValueError: a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    C = np.asarray(covariance, np.float64)[:2, :2]
    if not np.isfinite(C).all():
        return Ellipse(math.inf, math.inf, 0.0, confidence)
    values, vectors = np.linalg.eigh(C)
    axes = np.sqrt(np.maximum(values, 0) * ellipse_scale(confidence, dof, prior_dof))
    north, east = vectors[:, 1]
    return Ellipse(float(axes[1]), float(axes[0]), float(math.degrees(math.atan2(east, north)) % 180), confidence)
