"""The form of a certificate: types, exact shapes and values of all its fields, before any inequality is looked at.

NumPy broadcasts, wraps negative indices and rounds long doubles without a word, each of which would let a certificate
say something else than what is checked. Here every array becomes float64 of exactly one shape, or the certificate is
refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

PIECEWISE_LINEAR, SMOOTH, BLOCKS = (
    ("relu", "leaky_relu", "identity"),
    ("tanh", "sigmoid"),
    ("softmax", "max_pool", "product"),
)
BOX_METHODS = ("norm", "box", "comparison", "metzler")
METHODS = (*BOX_METHODS, "interval", "dual", "lp")
RELAXATIONS = ("displayed", "theorem7", "triangle")
STATUSES = ("certified", "not_finite", "failed")  # of `implicit_models.status`, said anew: nothing is imported here
CLAIMS = ("lb", "ub", "xl", "xh", "zl", "zh")
EVIDENCE = (("x0", "sigma"), ("il", "ih", "zl0", "zh0"))  # all of a group, or none


class Malformed(ValueError):
    """A field that does not have the form it must have."""


def array(name: str, value: Any, *shapes: tuple[int, ...]) -> np.ndarray:
    """The value as float64, if that is exact and it has one of the shapes.

    Raises:
        Malformed.
    """
    value = np.asarray(value)
    if value.dtype.kind not in "fiu" or not np.can_cast(value.dtype, np.float64, "safe"):
        raise Malformed(f"{name} must hold numbers that are float64, got {value.dtype}")
    if value.shape not in shapes:
        raise Malformed(f"{name} must have shape {' or '.join(map(str, shapes))}, got {value.shape}")
    if value.dtype.kind in "iu" and value.size and (value.max() > 2**53 or value.min() < -(2**53)):
        raise Malformed(f"{name} has integers that float64 does not hold")
    return np.asarray(value, dtype=np.float64)


def integers(name: str, value: Any, size: int, low: int, high: int) -> np.ndarray:
    """(size,) integers in [low, high).

    Raises:
        Malformed.
    """
    value = np.asarray(value)
    if value.dtype.kind not in "iu" or value.shape != (size,) or np.any(value < low) or np.any(value >= high):
        raise Malformed(f"{name} must be {size} integers from {low} to {high - 1}")
    return value.astype(np.int64)


def matrix(name: str, M: Any) -> Any:
    """A dense or compressed sparse matrix in float64, its values finite.

    Raises:
        Malformed.
    """
    if not hasattr(M, "toarray"):
        if np.ndim(M) != 2:
            raise Malformed(f"{name} must be a matrix")
        M = values = array(name, M, np.shape(M))
    else:
        if getattr(M, "format", None) not in ("csr", "csc") or len(M.shape) != 2:
            raise Malformed(f"{name} must be dense or CSR")
        major, minor = M.shape if M.format == "csr" else M.shape[::-1]
        ends = integers(name, M.indptr, major + 1, 0, len(M.data) + 1)
        if ends[0] != 0 or np.any(np.diff(ends) < 0):
            raise Malformed(f"{name} has row pointers that do not grow from 0")
        integers(name, M.indices[: ends[-1]], int(ends[-1]), 0, minor)
        values = array(name, M.data, np.shape(M.data))
        M = M.astype(np.float64)
    if not np.isfinite(values).all():
        raise Malformed(f"{name} has values that are not finite")
    return M


def is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def segments(value: Any, n: int) -> tuple:
    """The maps, if each state has exactly one, with a slope between 0 and 1.

    Steeper negative sides would need another Lipschitz constant, falling ones another image.

    Raises:
        Malformed.
    """
    if not isinstance(value, (tuple, list)) or any(not isinstance(s, (tuple, list)) or len(s) != 5 for s in value):
        raise Malformed("segments must be (name, slope, start, stop, block) each")
    at = 0
    for name, slope, start, stop, block in value:
        if not isinstance(name, str) or name not in PIECEWISE_LINEAR + SMOOTH + BLOCKS:
            raise Malformed(f"unknown activation {name!r}")
        if not (is_int(start) and is_int(stop) and is_int(block)) or start != at or stop <= start:
            raise Malformed("segments must cover every state once, in order")
        if isinstance(slope, bool) or not isinstance(slope, (int, float, np.integer, np.floating)):
            raise Malformed(f"the slope of {name} must be a number, got {type(slope).__name__}")
        if not {"relu": slope == 0, "identity": slope == 1, "leaky_relu": 0 <= slope <= 1}.get(name, True):
            raise Malformed(f"{name} has no slope {slope!r}: it must be between 0 and 1")
        if block < 1 or (stop - start) % block or (name not in BLOCKS and block != 1):
            raise Malformed(f"blocks of size {block} do not divide {stop - start} states of {name}")
        if name == "product" and block != 2:
            raise Malformed(f"a product has blocks of 2 states, got {block}")
        at = stop
    if at != n:
        raise Malformed(f"segments must cover every state once: they end at {at} of {n}")
    return tuple((name, float(slope), int(a), int(b), int(block)) for name, slope, a, b, block in value)


def stage_fields(stage: Any, N: int, n: int) -> dict[str, np.ndarray]:
    """The fields of a stage in their form; Raises: Malformed."""
    K = len(stage.sample)
    side = integers("side of a stage", stage.side, K, -1, 2)
    if np.any(side == 0):
        raise Malformed("side of a stage must be -1 or +1")
    return {
        "sample": integers("sample of a stage", stage.sample, K, 0, N),
        "unit": integers("unit of a stage", stage.unit, K, 0, n),
        "side": side,
        "lam": array("lam of a stage", stage.lam, (K, n)),
        "zl": array("zl of a stage", stage.zl, (N, n)),
        "zh": array("zh of a stage", stage.zh, (N, n)),
    }


def fields(c: Any) -> dict[str, Any]:
    """All fields of a certificate but its stages, in their form.

    Raises:
        Malformed, naming the first that is not; anything else that a nonsensical object raises.
    """
    out = {name: matrix(name, getattr(c, name)) for name in "ABCD"}
    n, p, q = out["A"].shape[0], out["B"].shape[1], out["C"].shape[0]
    for name, shape in (("A", (n, n)), ("B", (n, p)), ("C", (q, n)), ("D", (q, p))):
        if out[name].shape != shape:
            raise Malformed(f"{name} must have shape {shape}, got {out[name].shape}")
    out |= {"b": array("b", c.b, (n,)), "d": array("d", c.d, (q,)), "segments": segments(c.segments, n)}
    if not isinstance(c.kind, str):
        raise Malformed("kind must be a word")
    out["s"] = None if c.s is None else array("s", c.s, (n,))
    if np.ndim(c.centre) != 2:
        raise Malformed("centre must be a matrix")
    N = len(c.centre)
    out |= {"centre": array("centre", c.centre, (N, p)), "radius": array("radius", c.radius, (p,), (N, p))}
    if c.card is not None and not (is_int(c.card) and 0 <= c.card <= p):
        raise Malformed(f"card must be None or an int from 0 to {p}, got {c.card!r}")
    if not isinstance(c.method, str) or c.method not in METHODS:
        raise Malformed(f"unknown method {c.method!r}")
    if c.relaxation is not None and not (isinstance(c.relaxation, str) and c.relaxation in RELAXATIONS):
        raise Malformed(f"unknown relaxation {c.relaxation!r}")
    status = np.asarray(c.status)
    if status.dtype.kind != "U" or status.shape != (N,) or not np.isin(status, STATUSES).all():
        raise Malformed(f"status must be one of {', '.join(STATUSES)} for each of {N} samples")
    out["status"] = status
    out |= {name: array(name, getattr(c, name), (N, n)) for name in ("xl", "xh", "zl", "zh")}
    for group in EVIDENCE:
        given = [name for name in group if getattr(c, name) is not None]
        if given and len(given) < len(group):
            raise Malformed(f"{', '.join(group)} belong together, and only {', '.join(given)} are there")
        out |= {name: array(name, getattr(c, name), (N, n)) for name in given}
    out |= _functionals(c, N, n, q)
    for name in CLAIMS:
        if out.get(name) is not None and not np.isnan(out[name][status != "certified"]).all():
            raise Malformed(f"{name} has bounds of a sample that is not certified")
    return out


def _functionals(c: Any, N: int, n: int, q: int) -> dict[str, Any]:
    if c.spec is None:
        if c.lb is not None or c.ub is not None:
            raise Malformed("there are bounds lb or ub, and no spec that says of what")
        return {"lam_low": None, "lam_high": None}
    if np.ndim(c.spec) not in (2, 3):
        raise Malformed("spec must have two or three axes")
    k = np.shape(c.spec)[-2]
    out = {"spec": array("spec", c.spec, (k, q), (N, k, q))}
    if not np.isfinite(out["spec"]).all():
        raise Malformed("spec has values that are not finite")
    shapes = {"lb": (N, k), "ub": (N, k), "lam_low": (N, k, n), "lam_high": (N, k, n)}
    return out | {name: array(name, getattr(c, name), s) for name, s in shapes.items() if getattr(c, name) is not None}
