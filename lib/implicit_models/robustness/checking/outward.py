"""Arithmetic for the checker: sums of products with a bound of their rounding, maps and support functions with the
error on the safe side.

A sum of k products, in any order, is off by at most k u / (1 - k u) times the sum of their sizes, with u = eps / 2.
NumPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from implicit_models.robustness.checking.certificate_fields import BLOCKS, PIECEWISE_LINEAR, SMOOTH

EPS = float(np.finfo(np.float64).eps)
Segment = tuple[str, float, int, int, int]
LIPSCHITZ = {"sigmoid": 0.25, "softmax": 0.5, "product": 2.0}


def share(k: int) -> float:
    """Relative rounding of a sum of k products, and of two operations more."""
    return (0.5 * k + 1) * EPS * (1 + 1e-6)


def product(X: np.ndarray, M: Any) -> tuple[np.ndarray, np.ndarray]:
    """X M' and a bound of its error; M dense or CSR."""
    return X @ M.T, share(M.shape[1]) * (np.abs(X) @ abs(M).T)


def dense(M: Any) -> np.ndarray:
    return np.asarray(M.toarray() if hasattr(M, "toarray") else M, dtype=np.float64)


def support(V: np.ndarray, radius: np.ndarray, card: int | None) -> np.ndarray:
    """sup of v'(u - u0) for rows V (..., p), rounded up."""
    moved = np.abs(V) * radius
    if card is not None and card < V.shape[-1]:
        moved = np.partition(moved, -card, axis=-1)[..., -card:] if card else moved[..., :0]
    return moved.sum(axis=-1) * (1 + share(V.shape[-1]))


def lipschitz(segments: Sequence[Segment], n: int) -> np.ndarray:
    out = np.ones(n)
    for name, _, start, stop, _ in segments:
        out[start:stop] = LIPSCHITZ.get(name, 1.0)
    return out


def blocks(segments: Sequence[Segment], n: int) -> np.ndarray:
    """(n,) number of the block that holds each state: componentwise states are blocks of their own."""
    out, count = np.zeros(n, dtype=np.int64), 0
    for name, _, start, stop, size in segments:
        size = size if name in BLOCKS else 1
        out[start:stop] = count + np.arange(stop - start) // size
        count += (stop - start) // size
    return out


def coupled(segments: Sequence[Segment], n: int) -> np.ndarray:
    """(n,) whether a state belongs to a blockwise map."""
    out = np.zeros(n, dtype=bool)
    for name, _, start, stop, _ in segments:
        out[start:stop] = name in BLOCKS
    return out


def slopes(segments: Sequence[Segment], n: int) -> np.ndarray:
    """(n,) slope on the negative side of a piecewise-linear state, NaN for the others."""
    out = np.full(n, np.nan)
    for name, slope, start, stop, _ in segments:
        if name in PIECEWISE_LINEAR:
            out[start:stop] = {"relu": 0.0, "identity": 1.0}.get(name, slope)
    return out


def image(segments: Sequence[Segment], zl: np.ndarray, zh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Box that holds phi(z) for zl <= z <= zh, rounded outward; (N, n) each."""
    low, high = np.full_like(zl, np.nan), np.full_like(zh, np.nan)
    for name, slope, start, stop, size in segments:
        a, b = zl[:, start:stop], zh[:, start:stop]
        if name in PIECEWISE_LINEAR:
            slope = {"relu": 0.0, "identity": 1.0}.get(name, slope)
            exact = slope in (0.0, 1.0)
            low[:, start:stop] = np.where(a >= 0, a, slope * a if exact else np.nextafter(slope * a, -np.inf))
            high[:, start:stop] = np.where(b >= 0, b, slope * b if exact else np.nextafter(slope * b, np.inf))
        elif name in SMOOTH:
            for out, z, sign in ((low, a, -1), (high, b, 1)):
                # sigmoid is exp(-t): the rounding of t = log(1 + exp(-z)) is one of the value, relatively
                t = np.zeros_like(z) if name == "tanh" else np.logaddexp(0.0, -z)
                value = np.tanh(z) if name == "tanh" else np.exp(-t)
                out[:, start:stop] = value + sign * EPS * np.abs(value) * (2 + 3 * t)
        elif name == "max_pool":
            for out, z in ((low, a), (high, b)):
                top = np.zeros_like(z).reshape(len(z), -1, size)
                top[:, :, 0] = z.reshape(len(z), -1, size).max(axis=2)
                out[:, start:stop] = top.reshape(len(z), -1)
        elif name == "product":
            a, b = (np.clip(z, -1.0, 1.0).reshape(len(z), -1, size) for z in (a, b))
            ends = np.stack([x[:, :, 0] * y[:, :, 1] for x in (a, b) for y in (a, b)])
            for out, value, sign in ((low, ends.min(axis=0), -1), (high, ends.max(axis=0), 1)):
                whole = np.zeros_like(a)
                whole[:, :, 0] = np.nextafter(value, sign * np.inf)
                out[:, start:stop] = whole.reshape(len(a), -1)
        elif name == "softmax":
            for out, own, other, sign in ((low, a, b, -1), (high, b, a, 1)):
                own, other = (z.reshape(len(z), -1, size) for z in (own, other))
                value = np.empty_like(own)
                for i in range(size):
                    z = other.copy()
                    z[:, :, i] = own[:, :, i]
                    top = z.max(axis=2, keepdims=True)
                    shifted = np.exp(z - top)
                    value[:, :, i] = shifted[:, :, i] / shifted.sum(axis=2)
                    spread = np.abs(z - top).max(axis=2)
                    value[:, :, i] *= 1 + sign * (share(size) + 4 * EPS * spread)
                out[:, start:stop] = value.reshape(len(a), -1)
        else:
            raise ValueError(f"unknown activation {name!r}")
    return low, high


def infimum(
    segments: Sequence[Segment],
    mu: np.ndarray,
    mu_error: np.ndarray,
    lam: np.ndarray,
    zl: np.ndarray,
    zh: np.ndarray,
    xl: np.ndarray,
    xh: np.ndarray,
) -> np.ndarray:
    """Lower bound of min { mu phi(z) - lam z : zl <= z <= zh } of every unit, for each mu within its error; (K, n).

    The states of blockwise maps are anything between xl and xh, but for the maximum of a window, which is tied to z.
    """
    out = np.full_like(mu, np.nan)
    for name, slope, start, stop, block in segments:
        at = slice(start, stop)
        m, e, w, a, b = mu[:, at], mu_error[:, at], lam[:, at], zl[:, at], zh[:, at]
        size = np.maximum(np.abs(a), np.abs(b))
        if name in PIECEWISE_LINEAR:
            slope = {"relu": 0.0, "identity": 1.0}.get(name, slope)
            low, high = (np.where(z > 0, z, slope * z) for z in (a, b))
            least = np.minimum(m * low - w * a, m * high - w * b)
            least = np.where((a < 0) & (b > 0), np.minimum(least, 0.0), least)
            largest = np.maximum(np.abs(low), np.abs(high))
        elif name in SMOOTH:
            phi = np.tanh if name == "tanh" else (lambda z: np.exp(-np.logaddexp(0.0, -z)))
            least = np.minimum(m * phi(a) - w * a, m * phi(b) - w * b)
            with np.errstate(all="ignore"):
                ratio = w / m
                root = np.arccosh(1 / np.sqrt(ratio)) if name == "tanh" else 2 * np.arccosh(0.5 / np.sqrt(ratio))
                for z in (root, -root):  # where phi' = lam / mu
                    z = np.clip(z, a, b)
                    least = np.where(np.isfinite(z), np.minimum(least, m * phi(z) - w * z), least)
            # All errors are relative to |m| P, P the largest |phi| on [a, b], also for small z:
            # phi: tanh is exact to a few eps of its value. sigmoid = exp(-t) is to (2 + 3 t) eps of its own, and
            #   t exp(-t) <= max(1, t_b) P, as it grows until t = 1 and t_b = t(b) is the least t.
            # root r: lam / mu is off by at most 4 eps of itself, hence r by d = 4 eps / |tanh r| (half the angle:
            #   sigmoid). The slope of f = mu phi - lam z is zero at r, so that f grows by |f''| d^2 / 2
            #   <= 24 eps^2 |m / r| <= 6 eps |m r| where r^2 >= 4 eps. Where r^2 <= 8 eps, r may be lost: f rises (m >
            # 0)   only between -r and r, so that the least end is above f(-r) by |m| times the integral of
            #   phi'(s) - phi'(r) over [-r, r] at most, (4 / 3) |m| r^3 <= 11 eps |m r|, and |r| is about |tanh r| <= P.
            #   For sigmoid it is eps^1.5 |m|, with P >= 0.49.
            largest = np.maximum(np.abs(phi(a)), np.abs(phi(b)))
            far = 0.0 if name == "tanh" else 3 * np.logaddexp(0.0, -b)
            least = least - (16 + far) * EPS * np.abs(m) * largest
        else:
            least = np.minimum(m * xl[:, at], m * xh[:, at]) - np.maximum(w * a, w * b)
            largest = np.maximum(np.abs(xl[:, at]), np.abs(xh[:, at]))
        if name == "max_pool":
            least = np.maximum(least.reshape(len(m), -1, block).sum(axis=2), _of_maximum(m, w, a, b, block))
            whole = np.zeros((len(m), least.shape[1], block))
            whole[:, :, 0] = least - share(block) * np.abs(least)
            least = whole.reshape(m.shape)
            size = size * block
        out[:, at] = least - e * largest - 8 * EPS * (np.abs(m) * largest + np.abs(w) * size)
    return out


def _of_maximum(m: np.ndarray, w: np.ndarray, a: np.ndarray, b: np.ndarray, block: int) -> np.ndarray:
    """Lower bounds of m max z - w'z over a <= z <= b, one a block, but for rounding.

    For m and w that are not negative, w'z <= (sum w) max z, so that it is at least (m - sum w) max z. Where z_j can be
    exceeded by no other, the maximum is z_j.
    """
    m, w, a, b = (v.reshape(len(m), -1, block) for v in (m, w, a, b))
    mu, low, high = m[:, :, 0], a.max(axis=2), b.max(axis=2)
    apart = np.minimum(mu * low, mu * high) - np.maximum(w * a, w * b).sum(axis=2)
    rest = mu - w.sum(axis=2)
    together = np.where((mu >= 0) & (w >= 0).all(axis=2), np.minimum(rest * low, rest * high), -np.inf)
    best = a.argmax(axis=2)[:, :, None]
    others = b.copy()
    np.put_along_axis(others, best, -np.inf, axis=2)
    sure = np.take_along_axis(a, best, axis=2)[:, :, 0] >= others.max(axis=2, initial=-np.inf)
    shifted = -w
    np.put_along_axis(shifted, best, np.take_along_axis(shifted, best, axis=2) + mu[:, :, None], axis=2)
    together = np.maximum(together, apart)
    return np.maximum(together, np.where(sure, np.minimum(shifted * a, shifted * b).sum(axis=2), -np.inf))
