"""What a caller passes as NumPy arrays in float64: torch tensors are detached, complex numbers refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

EPS = float(np.finfo(np.float64).eps)


def as_array(value: Any) -> np.ndarray:
    """The values of a torch tensor, without its gradient, or of anything else that NumPy takes."""
    return np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value)


def real_array(name: str, value: Any) -> np.ndarray:
    """The values as float64.

    Raises: TypeError naming the array for complex numbers, of which a conversion would drop a half.
    """
    value = as_array(value)
    if np.iscomplexobj(value):
        raise TypeError(f"{name} must be real numbers, got complex ones")
    return np.asarray(value, dtype=np.float64)
