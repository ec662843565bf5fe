"""Whether a comparison vector proves that the equilibrium exists, is unique and continuous in the input.

s > 0 with M s < s, rounding counted: M = |A|, or the matrix whose diagonal keeps its sign, times the Lipschitz
constants of the activation. Without feedback nothing is needed.

Source:
    Tsai thesis (2024), section 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from implicit_models.robustness.checking import outward
from implicit_models.robustness.checking.certificate import BoundsCertificate


def not_well_posed(c: BoundsCertificate) -> str:
    """Why the certificate's kind and comparison vector do not prove well-posedness; "" if they do."""
    n, signed = c.A.shape[0], c.kind != "pf"
    gamma, block = outward.lipschitz(c.segments, n), outward.blocks(c.segments, n)
    single, diagonal, absolute = ~outward.coupled(c.segments, n), c.A.diagonal(), abs(c.A)
    own = np.where(single & signed, gamma * diagonal, gamma * np.abs(diagonal))
    if np.any(single & (gamma * diagonal >= 1)):
        return "a state feeds back on itself with gamma A_ii of at least 1"
    if c.kind not in ("pf", "metzler", "triangular"):
        return f"a certificate of kind {c.kind!r} proves nothing"
    if c.s is None:
        return (
            ""
            if c.kind == "triangular" and _without_feedback(absolute, single, block)
            else "there is no comparison vector"
        )
    s = c.s
    if s.shape != (n,) or not np.all(s > 0) or not np.isfinite(s).all():
        return "the comparison vector is not positive"
    if np.any(np.diff(s)[np.diff(block) == 0] != 0):
        return "the comparison vector is not constant on a block"
    off = gamma * (absolute @ s) - gamma * np.abs(diagonal) * s
    error = outward.share(n + 4) * (gamma * (absolute @ s) + np.abs(own) * s)
    if not np.all(off + own * s + error < s):
        return "M s < s does not hold for the comparison vector"
    return ""


def _without_feedback(absolute: Any, single: np.ndarray, block: np.ndarray) -> bool:
    """Whether the states can be put in an order in which each block reads earlier ones alone."""
    left = np.ones(len(block))
    off = absolute != 0 if not hasattr(absolute, "toarray") else (absolute != 0).astype(float)
    loop = np.asarray(off.diagonal(), dtype=float) * single  # of single states, which has been looked at
    while left.any():
        reads = off @ left - loop * left
        free = np.bincount(block, weights=reads)[block] == 0
        if not np.any(free & (left > 0)):
            return False
        left[free] = 0.0
    return True
