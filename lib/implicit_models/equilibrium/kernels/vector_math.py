"""tanh and the logistic function on whole vector registers."""

from __future__ import annotations

from implicit_models.kernels import kernel

from .simd import (
    VECTOR_BYTES,
    absolute,
    lanes,
    maximum,
    multiply_add,
    nearest_integer,
    power_of_two,
    spread,
    where_positive,
)

_LOG2_E = 1.4426950408889634
# ln 2 in two parts, the first with few bits, so that k ln 2 is subtracted without loss
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.4286068203094172e-06


@kernel
def _exponential_parts(like, u):
    """(s, p) with exp(u) = s (1 + p), s a power of two, for u <= 0; `like` points to the element type."""
    degree, floor = (13, -708.0) if lanes(like) * 8 == VECTOR_BYTES else (7, -87.0)
    u = maximum(spread(like, floor), u)
    k = nearest_integer(u * spread(like, _LOG2_E))
    r = multiply_add(k, spread(like, -_LN2_LOW), multiply_add(k, spread(like, -_LN2_HIGH), u))
    series = spread(like, 1.0)  # expm1(r) = r (1 + r/2 (1 + r/3 (1 + ...)))
    for j in range(degree, 1, -1):
        series = multiply_add(series, r * spread(like, 1.0 / j), spread(like, 1.0))
    return power_of_two(k), series * r


@kernel
def vector_tanh(like, v):
    """tanh(v) = -m / (2 + m) sign(v) with m = expm1(-2|v|), accurate near 0 too."""
    s, p = _exponential_parts(like, absolute(v) * spread(like, -2.0))
    m = multiply_add(s, p, s - spread(like, 1.0))
    value = m / (m + spread(like, 2.0))
    return where_positive(v, value * spread(like, -1.0), value)


@kernel
def vector_sigmoid(like, v):
    """1 / (1 + exp(-v)), from exp(-|v|) so that nothing overflows."""
    s, p = _exponential_parts(like, absolute(v) * spread(like, -1.0))
    e = multiply_add(s, p, s)
    one = spread(like, 1.0)
    return where_positive(v, one, e) / (one + e)
