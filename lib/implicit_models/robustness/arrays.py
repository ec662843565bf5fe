"""What a caller passes as NumPy arrays in float64: torch tensors are detached, complex numbers refused; and counts."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

EPS = float(np.finfo(np.float64).eps)


def as_array(value: Any) -> np.ndarray:
    """The values of a torch tensor, without its gradient, or of anything else that NumPy takes."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = value.float() if value.dtype is torch.bfloat16 else value  # NumPy has no bfloat16; float32 holds it
    return np.asarray(value)


def real_array(name: str, value: Any) -> np.ndarray:
    """The values as float64.

    Raises:
        TypeError: naming the array for complex numbers, of which a conversion would drop a half.
    """
    value = as_array(value)
    if np.iscomplexobj(value):
        raise TypeError(f"{name} must be real numbers, got complex ones")
    return np.asarray(value, dtype=np.float64)


def own_array(name: str, value: Any, *, writeable: bool = True) -> np.ndarray:
    """The values as float64 in memory of their own, which no change of what was passed reaches.

    Raises:
        TypeError: as `real_array`, and naming the array for truth values, texts and other objects that are no numbers.
    """
    values = as_array(value)
    if values.dtype.kind not in "iufcO":
        raise TypeError(f"{name} must be numbers, got an array of {values.dtype}")
    if values.dtype == object:
        for entry in values.flat:
            check_number(name, entry)
    array = np.array(real_array(name, values), copy=True)
    array.flags.writeable = writeable
    return array


def check_number(name: str, value: Any) -> None:
    """Raises: TypeError for anything but a real number; an array or a tensor of one is one."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        good = value.ndim == 0 and as_array(value).dtype.kind in "iuf"
    else:
        good = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not good:
        raise TypeError(f"{name} must be a number, got {value!r}")


def chosen_rows(rows: Sequence[int] | np.ndarray | None, q: int) -> np.ndarray:
    """Indices of the outputs that are asked for, checked; all of them for None."""
    if rows is None:
        return np.arange(q)
    index = np.asarray(rows) if len(rows) else np.zeros(0, dtype=np.int64)
    if index.ndim != 1 or not np.issubdtype(index.dtype, np.integer):
        raise TypeError(f"rows must be a list of output indices, got {rows!r}")
    outside = index[(index < 0) | (index >= q)]
    if outside.size:
        raise ValueError(f"rows: output {int(outside[0])} is not one of the {q} outputs")
    return index.astype(np.int64)


def checked_count(name: str, value: Any, least: int = 0) -> None:
    """Raises: ValueError naming an argument that is not an int of at least `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        what = "a non-negative int" if least == 0 else f"an int of at least {least}"
        raise ValueError(f"{name} must be {what}, got {value!r}")
