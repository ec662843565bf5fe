"""Worst-case losses over a box of outputs |v - y0| <= sigma.

    squared          max ||v - y||^2 = || |y0 - y| + sigma ||^2
    cross-entropy    max LSE(v) - y'v: convex, so that a corner of the box attains it

For a one-hot y = e_k the loss grows with every other output and falls with output k, so that the corner is known:

    exact    LSE(y0 + sigma - 2 sigma_k e_k) - y0_k + sigma_k
    box      LSE(y0 + sigma) - y'y0 + y'sigma                      raises output k in one term and lowers it in the
    other
    norm     LSE(y0 + s) - y'y0 + s_max, s = max sigma: with sigma_i = rho ||c_i||_1 at most L + 2 rho ||C||_inf

For soft targets output k goes up where its softmax stays above y_k and down where it stays below; corners over those
left are enumerated.

Source:
    Tsai thesis (2024), section 4.3 (squared, box and norm forms); the exact form for one-hot targets is not there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from implicit_models.robustness.arrays import as_array, real_array

LOSSES = ("squared", "cross_entropy")
BOUNDS = ("exact", "box", "norm")
MOST_UNDECIDED = 16  # outputs whose corners are enumerated, 2^16 of them


def worst_case_loss(
    y0: Float[Any, "N q"], sigma_y: Float[Any, "*N q"], y: Any, loss: str = "cross_entropy", bound: str = "exact"
) -> Float[np.ndarray, " N"]:
    """Largest loss of every sample over the box |v - y0| <= sigma_y, or an upper bound of it.

    Args:
        y0: (N, q) outputs at the centre: logits for "cross_entropy".
        sigma_y: (N, q), or (q,) for all samples: radii, not negative; S sigma_u, or half the width of output bounds
            around their middle.
        y: targets: (N, q); for "cross_entropy" rows of probabilities, or (N,) class indices.
        loss: "squared", the sum over outputs of squares; or "cross_entropy".
        bound: "exact"; "box" and "norm", the closed upper bounds for comparison (the same as "exact" for the squared
            loss with "box").

    Returns:
        (N,) float64; NaN for samples whose outputs, radii or targets are not finite.

    Raises:
        ValueError: for shapes, radii or targets that do not fit, or for soft targets with more than 16 outputs that may
            go either way.

    Source:
        Tsai thesis (2024), section 4.3.
    """
    if loss not in LOSSES or bound not in BOUNDS:
        raise ValueError(
            f"loss must be one of {', '.join(LOSSES)} and bound one of {', '.join(BOUNDS)}, got {loss!r} and {bound!r}"
        )
    y0, sigma, y = real_array("y0", y0), real_array("sigma_y", sigma_y), as_array(y)
    if y0.ndim != 2:
        raise ValueError(f"y0 must have shape (N, q), got {y0.shape}")
    N, q = y0.shape
    if sigma.shape not in ((q,), (N, q)):
        raise ValueError(f"sigma_y must have shape ({q},) or {(N, q)}, got {sigma.shape}")
    if np.any(sigma < 0):
        where = tuple(int(i) for i in np.argwhere(sigma < 0)[0])
        raise ValueError(f"a radius must not be negative, got sigma_y{list(where)} = {sigma[where]}")
    sigma = np.broadcast_to(sigma, (N, q))
    if bound == "norm":
        sigma = np.broadcast_to(sigma.max(axis=1, keepdims=True, initial=0.0), (N, q))
    fine = np.isfinite(y0).all(axis=1) & np.isfinite(sigma).all(axis=1)
    if loss == "squared":
        if y.shape != (N, q):
            raise ValueError(f"targets of the squared loss must have shape {(N, q)}, got {y.shape}")
        target = y.astype(np.float64)
        fine &= np.isfinite(target).all(axis=1)
    else:
        target = _probabilities(y, N, q)
    out = np.full(N, np.nan)
    if fine.any():  # the others stay NaN
        y0, sigma, target = y0[fine], sigma[fine], target[fine]
        if loss == "squared":
            out[fine] = ((np.abs(y0 - target) + sigma) ** 2).sum(axis=1)
        elif bound == "exact":
            out[fine] = _exact(y0, sigma, target)
        else:
            out[fine] = _lse_less(y0 + sigma, (target * (y0 - sigma)).sum(axis=1))
    return out


def _probabilities(y: np.ndarray, N: int, q: int) -> np.ndarray:
    if y.ndim == 1:
        if y.shape != (N,) or not np.issubdtype(y.dtype, np.integer):
            raise ValueError(f"class indices must be integers of shape ({N},), got {y.dtype} of shape {y.shape}")
        outside = np.flatnonzero((y < 0) | (y >= q))
        if outside.size:
            raise ValueError(f"sample {int(outside[0])} has class {int(y[outside[0]])}, but there are {q} outputs")
        return np.eye(q)[y]
    if y.shape != (N, q):
        raise ValueError(f"targets must be class indices ({N},) or probabilities {(N, q)}, got shape {y.shape}")
    y = y.astype(np.float64)
    wrong = np.flatnonzero((y < 0).any(axis=1) | ~(np.abs(y.sum(axis=1) - 1) <= 1e-6))
    if wrong.size:
        raise ValueError(f"the target of sample {int(wrong[0])} is not a distribution: {y[wrong[0]]}")
    return y


def _lse_less(v: np.ndarray, t: np.ndarray) -> np.ndarray:
    """LSE(v) - t of every row, accurate to rounding of the result also where it is close to zero: a confident sample
    has a small loss."""
    w = v - t[:, None]
    rows, top = np.arange(len(w)), w.argmax(axis=1)
    largest = w[rows, top]
    rest = np.exp(w - largest[:, None])
    rest[rows, top] = 0.0
    return largest + np.log1p(rest.sum(axis=1))


def _exact(y0: np.ndarray, sigma: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Largest LSE(v) - y'v over the corners that the sign of the gradient, softmax(v) - y, leaves open."""
    high, low = y0 + sigma, y0 - sigma
    up, down = np.empty(y0.shape, bool), np.empty(y0.shape, bool)
    for k in range(y0.shape[1]):  # softmax_k is smallest where only output k is low, largest where only it is high
        v = high.copy()
        v[:, k] = low[:, k]
        up[:, k] = softmax(v, axis=1)[:, k] >= target[:, k]
        v = low.copy()
        v[:, k] = high[:, k]
        down[:, k] = (softmax(v, axis=1)[:, k] <= target[:, k]) & ~up[:, k]
    # a one-hot target decides every output, whatever rounding says
    up |= target == 0
    down = (down & ~up) | (target == 1)
    up &= target != 1
    corner = np.where(down, low, high)
    value = _lse_less(corner, (target * corner).sum(axis=1))
    open_ = ~(up | down) & (sigma > 0)
    for i in np.flatnonzero(open_.any(axis=1)):
        free = np.flatnonzero(open_[i])
        if free.size > MOST_UNDECIDED:
            raise ValueError(
                f"sample {i} has {free.size} outputs that may go either way, more than {MOST_UNDECIDED}: use"
                " bound='box'"
            )
        bits = (np.arange(2**free.size)[:, None] >> np.arange(free.size)) & 1
        corners = np.repeat(corner[i : i + 1], bits.shape[0], axis=0)
        corners[:, free] = np.where(bits == 1, high[i, free], low[i, free])
        value[i] = _lse_less(corners, corners @ target[i]).max()
    return value
