"""Bounds on parts of a set on which some states have a sign: what the checker proves of each by its multipliers.

The bounds of pre-activations of the whole set hold on every part; a state with a sign has zl >= 0 or zh <= 0 besides.
Where the bounds contradict the signs the part is empty, and any bound holds: what is evaluated is then one of them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int8

from implicit_models.robustness.checking import outward
from implicit_models.robustness.checking.certificate import BoundsCertificate, in_form
from implicit_models.robustness.checking.checker import evidence


def lower_bounds_with_signs(
    certificate: BoundsCertificate,
    signs: Int8[np.ndarray, "L n"],
    weights: Float[np.ndarray, "L k"],
    multipliers: Float[np.ndarray, "L n"],
) -> Float[np.ndarray, " L"]:
    """Lower bounds of combinations of the functionals on parts of the only set of a certificate, with all rounding.

    Args:
        certificate: of one sample, with a shared spec; its own claims are checked as well.
        signs: s_i z_i >= 0 on the part, 0 for any.
        weights: of the rows of the spec in what is bounded on each part.
        multipliers: any numbers.

    Returns:
        the bounds, -inf where nothing is proved.

    Raises:
        ValueError: for shapes that do not fit, or signs other than -1, 0 and 1.
    """
    found = evidence(certificate)
    if found is None:
        return np.full(len(signs), -np.inf)
    c, L = in_form(certificate), len(signs)
    if c.spec is None or c.spec.ndim != 2 or found.N != 1:
        raise ValueError("parts are those of one set, with one spec")
    if signs.shape != (L, found.n) or multipliers.shape != (L, found.n) or weights.shape != (L, len(c.spec)):
        raise ValueError(f"signs and multipliers must have shape {(L, found.n)}, weights {(L, len(c.spec))}")
    if not np.isin(signs, (-1, 0, 1)).all():
        raise ValueError("a sign is -1, 0 or 1")
    single = ~outward.coupled(c.segments, found.n)
    zl, zh = (np.repeat(v, L, axis=0) for v in (found.zl, found.zh))
    zl = np.where((signs > 0) & single, np.maximum(zl, 0.0), zl)
    zh = np.where((signs < 0) & single, np.minimum(zh, 0.0), zh)
    empty = (zl > zh).any(axis=1)
    zl, zh = np.minimum(zl, zh), np.maximum(zl, zh)
    low, high = outward.image(c.segments, zl, zh)
    xl, xh = (np.repeat(v, L, axis=0) for v in (found.xl, found.xh))
    found.zl, found.zh = zl, zh
    # blockwise maps keep what is known of their states
    found.xl = np.where(single, low, np.maximum(low, xl))
    found.xh = np.where(single, high, np.minimum(high, xh))
    for name in ("radius", "u0", "size_u"):
        setattr(found, name, np.repeat(getattr(found, name), L, axis=0))
    C, D = outward.dense(c.C), outward.dense(c.D)
    rows, rows_error = outward.product(weights, c.spec.T)
    W, W_error = outward.product(rows, C.T)
    V, V_error = outward.product(rows, D.T)
    W_error, V_error = W_error + rows_error @ np.abs(C), V_error + rows_error @ np.abs(D)
    slack = (outward.share(len(c.d)) * np.abs(rows) + rows_error) @ np.abs(c.d) * (1 + outward.share(len(c.d)))
    with np.errstate(all="ignore"):
        lower = found.rows(W, W_error, V, V_error, rows @ c.d, multipliers, np.arange(L)) - slack
    return np.where(empty, np.inf, np.where(np.isfinite(lower), lower, -np.inf))
