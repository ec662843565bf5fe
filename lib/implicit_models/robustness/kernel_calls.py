"""One small call of every kernel of this folder, which compiles it."""

from __future__ import annotations

import numpy as np


def call_all() -> None:
    """Bound a toy network, with branch and bound, and one without feedback."""
    from implicit_models.robustness.bound_methods import bounds
    from implicit_models.robustness.bounding.options import Dual
    from implicit_models.robustness.problem import from_matrices

    toy = from_matrices([[0.0, 0.5], [0.5, 0.0]], np.eye(2), [[1.0, -1.0]])
    bounds(toy, np.zeros((1, 2)), 1.0, method=Dual(splits=2))
    layered = from_matrices([[0.0, 0.5], [0.0, 0.0]], np.eye(2), [[1.0, -1.0]], activation="tanh")
    bounds(layered, np.zeros((1, 2)), 1.0)
