"""Products whose rows do not depend on the batch they stand in."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

_CHUNK = 128  # samples of one product: a matrix product of fixed size treats all its rows alike


def row_product(
    X: Float[np.ndarray, "N m"], M: np.ndarray | sp.csr_array, bias: Float[np.ndarray, " k"] | None = None
) -> Float[np.ndarray, "N k"]:
    """X M' + bias, bit for bit the same for a sample alone and in any batch."""
    if sp.issparse(M):
        out = np.ascontiguousarray((M @ X.T).T)
    else:
        out, M = np.empty((X.shape[0], M.shape[0])), np.ascontiguousarray(M)
        for start in range(0, X.shape[0], _CHUNK):
            part = X[start : start + _CHUNK]
            if len(part) == _CHUNK:
                np.dot(part, M.T, out=out[start : start + _CHUNK])
            else:
                padded = np.zeros((_CHUNK, X.shape[1]))
                padded[: len(part)] = part
                out[start:] = (padded @ M.T)[: len(part)]
    if bias is not None and bias.any():
        out += bias
    return out
