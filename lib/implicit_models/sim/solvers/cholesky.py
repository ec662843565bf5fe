"""Cholesky factor of a growing and shrinking submatrix of the Gram matrix, one column at a time.

R is upper triangular and row-major: R[:k, :k]' R[:k, :k] = G[active, active] + ridge I. A join appends a column (k^2
flops) and a leave deletes one by Givens rotations (3 k^2 at most); every inner loop runs along a row of R. With the
factor goes u = R^-T s for the signed penalties s of the active columns: a join extends it, and a leave rotates it like
the factor.
"""

from __future__ import annotations

import numpy as np

from implicit_models.kernels import kernel

OPTIONS = {"fastmath": {"contract", "reassoc", "nsz", "arcp"}}
LEAN = {**OPTIONS, "borrows": True}
PIVOT = 1e-12  # a join with a relative pivot below this is linearly dependent on the active columns


@kernel(**LEAN)
def forward(R, k, x):
    """x = R^-T x in place; four rows of R a pass over what remains of x."""
    i = 0
    while i + 4 <= k:
        R0, R1, R2, R3 = R[i], R[i + 1], R[i + 2], R[i + 3]
        x0 = x[i] / R0[i]
        x1 = (x[i + 1] - x0 * R0[i + 1]) / R1[i + 1]
        x2 = (x[i + 2] - x0 * R0[i + 2] - x1 * R1[i + 2]) / R2[i + 2]
        x3 = (x[i + 3] - x0 * R0[i + 3] - x1 * R1[i + 3] - x2 * R2[i + 3]) / R3[i + 3]
        x[i], x[i + 1], x[i + 2], x[i + 3] = x0, x1, x2, x3
        for q in range(i + 4, k):
            x[q] -= (x0 * R0[q] + x1 * R1[q]) + (x2 * R2[q] + x3 * R3[q])
        i += 4
    while i < k:
        Ri = R[i]
        x0 = x[i] / Ri[i]
        x[i] = x0
        for q in range(i + 1, k):
            x[q] -= x0 * Ri[q]
        i += 1


@kernel(**LEAN)
def backward(R, k, u, w):
    """w = R^-1 u; four rows of R a pass over what is known of w."""
    i = k
    while i >= 4:
        i -= 4
        R0, R1, R2, R3 = R[i], R[i + 1], R[i + 2], R[i + 3]
        t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
        for q in range(i + 4, k):
            wq = w[q]
            t0 += R0[q] * wq
            t1 += R1[q] * wq
            t2 += R2[q] * wq
            t3 += R3[q] * wq
        w3 = (u[i + 3] - t3) / R3[i + 3]
        w2 = (u[i + 2] - t2 - R2[i + 3] * w3) / R2[i + 2]
        w1 = (u[i + 1] - t1 - R1[i + 2] * w2 - R1[i + 3] * w3) / R1[i + 1]
        w0 = (u[i] - t0 - R0[i + 1] * w1 - R0[i + 2] * w2 - R0[i + 3] * w3) / R0[i]
        w[i], w[i + 1], w[i + 2], w[i + 3] = w0, w1, w2, w3
    while i > 0:
        i -= 1
        Ri = R[i]
        t = u[i]
        for q in range(i + 1, k):
            t -= Ri[q] * w[q]
        w[i] = t / Ri[i]


@kernel(**LEAN)
def append(R, k, G, active, j, ridge, x):
    """Add column j; returns False, with R unchanged, when it depends linearly on the active ones. x is scratch."""
    g = G[j]
    for i in range(k):
        x[i] = g[active[i]]
    forward(R, k, x)
    pivot = g[j] + ridge
    for i in range(k):
        pivot -= x[i] * x[i]
    if not pivot > PIVOT * (g[j] + ridge):
        return False
    for i in range(k):
        R[i, k] = x[i]
    R[k, k] = np.sqrt(pivot)
    active[k] = j
    return True


@kernel(**LEAN)
def extend(R, k, s, u):
    """The last entry of u = R^-T s after a join, with s = s_k of the new column; R has k columns."""
    t = s
    for i in range(k - 1):
        t -= R[i, k - 1] * u[i]
    u[k - 1] = t / R[k - 1, k - 1]


@kernel(**LEAN)
def delete(R, k, active, p, u):
    """Remove the p-th active column; u = R^-T s follows."""
    for i in range(p + 1):
        Ri = R[i]
        for q in range(p, k - 1):
            Ri[q] = Ri[q + 1]
    for i in range(p, k - 1):
        active[i] = active[i + 1]
        top, low = R[i], R[i + 1]
        # Row i is shortened already; row i + 1 still stands one column to the right.
        x, y = top[i], low[i + 1]
        h = np.sqrt(x * x + y * y)
        c, s = x / h, y / h
        top[i] = h
        for q in range(i + 1, k - 1):
            x, y = top[q], low[q + 1]
            top[q] = c * x + s * y
            low[q] = c * y - s * x
        x, y = u[i], u[i + 1]
        u[i] = c * x + s * y
        u[i + 1] = c * y - s * x
