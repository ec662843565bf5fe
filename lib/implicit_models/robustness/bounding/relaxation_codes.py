"""Codes of the maps for the dual kernels; softmax and max-pool states are free within their range."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64

from implicit_models.activations import Activation
from implicit_models.robustness.bounding.relaxation import FREE, PIECEWISE_LINEAR, SIGMOID, TANH

_CODES = {
    "relu": PIECEWISE_LINEAR,
    "leaky_relu": PIECEWISE_LINEAR,
    "identity": PIECEWISE_LINEAR,
    "tanh": TANH,
    "sigmoid": SIGMOID,
}


def unit_codes(activation: Activation) -> tuple[Int64[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """(code, slope on the negative side) of every state."""
    code, slope = np.empty(activation.n, np.int64), np.zeros(activation.n)
    for s in activation.segments:
        code[s.start : s.stop] = _CODES[s.name] if s.componentwise else FREE
        slope[s.start : s.stop] = s.slope if s.componentwise else 0.0
    return code, slope
