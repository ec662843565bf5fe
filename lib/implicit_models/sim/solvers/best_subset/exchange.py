"""Exchanges of one kept for one removed column, the best one first, while the row's minimum falls.

With A the inverse of H on the kept columns S, w = A c_S, and for a column o that is not kept B_o = H_oS A, its
residual r_o = c_o - H_oS w and its pivot p_o = H_oo - B_o H_So: without column i of S residual and pivot are
r_o + w_i B_oi / A_ii and p_o + B_oi^2 / A_ii, so that the exchange of i for o lowers 1/2 w'H w - c'w by

    1/2 (r_o + w_i B_oi / A_ii)^2 / (p_o + B_oi^2 / A_ii) - 1/2 w_i^2 / A_ii.

A support that no exchange improves is a local minimum of best subset selection, no more.

Source:
    Miller (2002), Subset Selection in Regression, chapter 3, sequential replacement.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.cholesky import OPTIONS

MOST = 40  # exchanges a row
DECREASE = 1e-5  # of the row's minimum that an exchange has to bring
PIVOT = 1e-9  # of its own square that a column must keep beside the others


@kernel(**OPTIONS)
def exchange_rows(H, C, kept, most):
    """Exchange columns of all rows, in place of kept (r, d); returns how many exchanges were made in each row."""
    r, d = C.shape
    done = np.zeros(r, np.int64)
    for row in range(r):
        c, own = C[row], kept[row]
        k = own.sum()
        if k == 0 or k == d:
            continue
        S, rest = np.empty(k, np.int64), np.empty(d - k, np.int64)
        while done[row] < most:
            i = o = 0
            for j in range(d):
                if own[j]:
                    S[i] = j
                    i += 1
                else:
                    rest[o] = j
                    o += 1
            part, across, right = np.empty((k, k)), np.empty((d - k, k)), np.empty(k)
            for i in range(k):
                right[i] = c[S[i]]
                for j in range(k):
                    part[i, j] = H[S[i], S[j]]
            for o in range(d - k):
                for i in range(k):
                    across[o, i] = H[rest[o], S[i]]
            A = np.linalg.inv(part)
            w = A @ right
            B = across @ A
            minimum, best, out, into = 0.0, 0.0, -1, -1
            for i in range(k):
                minimum += 0.5 * w[i] * right[i]
            for o in range(d - k):
                residual, square = c[rest[o]], H[rest[o], rest[o]]
                pivot = square
                for i in range(k):
                    residual -= across[o, i] * w[i]
                    pivot -= across[o, i] * B[o, i]
                for i in range(k):
                    ratio = B[o, i] / A[i, i]
                    p = pivot + B[o, i] * ratio
                    if p > PIVOT * square:
                        q = residual + w[i] * ratio
                        gain = 0.5 * (q * q / p - w[i] * w[i] / A[i, i])
                        if gain > best:
                            best, out, into = gain, S[i], rest[o]
            if out < 0 or best <= DECREASE * abs(minimum):
                break
            own[out], own[into] = False, True
            done[row] += 1
    return done


def exchange(
    H: Float[np.ndarray, "d d"], C: Float[np.ndarray, "r d"], kept: Bool[np.ndarray, "r d"], most: int = MOST
) -> tuple[Bool[np.ndarray, "r d"], int]:
    """Supports of the same sizes after at most `most` exchanges a row, and the number of exchanges made."""
    better = np.ascontiguousarray(kept).copy()
    done = exchange_rows(np.ascontiguousarray(H), np.ascontiguousarray(C), better, most)
    return better, int(done.sum())
