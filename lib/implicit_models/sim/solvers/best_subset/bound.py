"""What no support of a given size can better: a lower bound of best subset selection by one eigenvalue.

With w the minimiser on all columns, any x costs 1/2 (x - w)'H (x - w) more than it. For D > 0 diagonal with H >= lam D,

    1/2 (x - w)'H (x - w) >= lam/2 sum_j D_j (x_j - w_j)^2 >= lam/2 (sum of the d - k least D_j w_j^2)

for every x of at most k columns. Here D_j = 1 / (H^-1)_jj, the pivot of column j beside all others, and lam the least
eigenvalue of D^-1/2 H D^-1/2, so that the bound is exact where H is diagonal.

Source:
    the least-eigenvalue relaxation of subset selection (Natarajan 1995; Bertsimas, King and Mazumder 2016), scaled.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def least_rise(
    H: Float[np.ndarray, "d d"], C: Float[np.ndarray, "r d"], sizes: Int[np.ndarray, " r"]
) -> Float[np.ndarray, " r"]:
    """What 1/2 w'H w - c'w rises by at least, from its minimum on all columns, for any support of the size."""
    inverse = np.linalg.inv(H)
    pivot = 1 / np.diag(inverse)
    root = np.sqrt(pivot)
    least = max(0.0, float(np.linalg.eigvalsh(H / root[:, None] / root)[0]))
    cost = np.sort((C @ inverse) ** 2 * pivot, axis=1)
    below = np.hstack([np.zeros((len(C), 1)), np.cumsum(cost, axis=1)])
    return 0.5 * least * below[np.arange(len(C)), H.shape[0] - np.asarray(sizes)]
