"""Values of a network under assembly: affine in the states and the input of one sample.

    value = X x + U u + c,    x the states so far: one for each component that an activation is applied to.

A rearrangement (slice, concatenation, padding) selects rows, a linear map multiplies, an activation makes new states.

Source:
    Tsai thesis (2024), sections 2.4 (composition) and 2.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from implicit_models.activations import Activation, Segment, resolve_activation

BOUNDED = {"tanh": 1.0, "sigmoid": 1.0, "softmax": 1.0, "product": 1.0}


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of one sample, X x + U u + c in row-major order; X (m, states so far), U (m, p), c (m,), float64."""

    X: sp.csr_array
    U: sp.csr_array
    c: np.ndarray
    shape: tuple[int, ...]

    @property
    def index(self) -> np.ndarray:
        """Row of each entry, in the tensor's shape."""
        return np.arange(len(self.c)).reshape(self.shape)

    def map(self, W: Any, shift: np.ndarray | None, shape: tuple[int, ...]) -> Value:
        """W value + shift."""
        c = W @ self.c
        return Value(sp.csr_array(W @ self.X), sp.csr_array(W @ self.U), c if shift is None else c + shift, shape)

    def take(self, index: np.ndarray, fill: float = 0.0) -> Value:
        """The tensor of the rows that `index` names; `fill` where it is negative."""
        flat = index.reshape(-1)
        if flat.size == len(self.c) and np.array_equal(flat, np.arange(flat.size)):
            return replace(self, shape=index.shape)
        there = np.flatnonzero(flat >= 0)
        W = sp.csr_array((np.ones(len(there)), (there, flat[there])), (flat.size, len(self.c)))
        return self.map(W, np.where(flat >= 0, 0.0, fill) if fill else None, index.shape)

    def at(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The value for states x (N, at least as many as X has columns) and inputs u (N, p)."""
        return (x[:, : self.X.shape[1]] @ self.X.T + u @ self.U.T + self.c).reshape(len(u), *self.shape)


@dataclass(eq=False)
class Assembly:
    """States in the order in which they are computed, with the rows of A, B, b that make them."""

    p: int
    n: int = 0
    rows: list[tuple[sp.csr_array, sp.csr_array, np.ndarray]] = field(default_factory=list)
    maps: list[Activation] = field(default_factory=list)
    _sizes: list[np.ndarray] = field(default_factory=list)

    def input(self, shape: tuple[int, ...]) -> Value:
        return Value(sp.csr_array((self.p, 0)), sp.eye_array(self.p, format="csr"), np.zeros(self.p), shape)

    def states(self, pre: Value, act: Activation, feedback: sp.csr_array | None = None) -> Value:
        """New states phi(pre + feedback x) and the value that reads them."""
        m = act.n
        own = sp.csr_array((m, m)) if feedback is None else feedback
        X = sp.hstack([wide(pre.X, self.n), own], format="csr")
        self.rows.append((X, pre.U, pre.c))
        self.maps.append(act)
        self.n += m
        select = sp.hstack([sp.csr_array((m, self.n - m)), sp.eye_array(m)], format="csr")
        return Value(select, sp.csr_array((m, self.p)), np.zeros(m), pre.shape)

    def sizes(self) -> np.ndarray:
        """(n,) bound of |x_j| for every input: 1 for the bounded maps, what the arguments allow for the others, else
        inf."""
        for (X, U, c), act in list(zip(self.rows, self.maps, strict=True))[len(self._sizes) :]:
            before = np.concatenate(
                [*self._sizes, np.full(act.n, np.inf)]
            )  # feedback of its own: only the map bounds it
            size = _reach(X, U, c, before)
            for s in act.segments:
                part = slice(s.start, s.stop)
                if s.name == "max_pool":
                    size[part] = np.repeat(size[part].reshape(-1, s.block).max(axis=1), s.block)
                elif s.name in ("sigmoid", "softmax"):  # not zero at zero: what the arguments allow says nothing
                    size[part] = np.inf
                size[part] = np.minimum(size[part], BOUNDED.get(s.name, np.inf))
            self._sizes.append(size)
        return np.concatenate(self._sizes) if self._sizes else np.zeros(0)

    def reach(self, value: Value) -> np.ndarray:
        """(m,) bound of |value| for every input."""
        return _reach(value.X, value.U, value.c, self.sizes())

    def matrices(self, value: Value) -> tuple[Any, Any, Any, Any, Any, Any, Activation]:
        """A, B, C, D, b, d and the activation, later states first: A is block upper triangular."""
        if not self.rows:  # an affine network: one state that stays 0, since a model has at least one
            self.states(
                Value(sp.csr_array((1, 0)), sp.csr_array((1, self.p)), np.zeros(1), (1,)),
                resolve_activation("identity", 1),
            )
        sizes = [act.n for act in self.maps]
        ends = np.cumsum(sizes)
        order = np.concatenate([np.arange(e - m, e) for m, e in zip(sizes[::-1], ends[::-1])])
        place = np.empty(self.n, np.int64)
        place[order] = np.arange(self.n)
        A = sp.vstack([self._moved(X, place) for X, _, _ in self.rows[::-1]], format="csr")
        B = sp.csr_array(sp.vstack([U for _, U, _ in self.rows[::-1]], format="csr"))
        b = np.concatenate([c for _, _, c in self.rows[::-1]])
        C = sp.csr_array(self._moved(value.X, place))
        D = value.U.copy()
        for M in (A, B, C, D):
            M.eliminate_zeros()
        return A, B, C, D, b, value.c, _joined(self.maps[::-1])

    def _moved(self, X: sp.csr_array, place: np.ndarray) -> sp.csr_array:
        """X with its columns in the order of the model."""
        out = sp.csr_array((X.data, place[X.indices], X.indptr), (X.shape[0], self.n))
        out.sort_indices()
        return out

    def run(self, u: np.ndarray) -> np.ndarray:
        """States (N, n) for inputs (N, p) of an assembly without feedback, in the order of computation."""
        x = np.zeros((len(u), 0))
        for (X, U, c), act in zip(self.rows, self.maps):
            x = np.hstack([x, act(x @ X[:, : x.shape[1]].T + u @ U.T + c)])
        return x


def _reach(X: sp.csr_array, U: sp.csr_array, c: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Bound of |X x + U u + c| for |x| <= sizes and any u: inf where the input, or a state without a bound, is read."""
    free = ~np.isfinite(sizes)
    out = abs(X) @ np.where(free, 0.0, sizes)[: X.shape[1]] + np.abs(c)
    reads = (abs(X) @ free[: X.shape[1]].astype(float) > 0) | (abs(U).sum(axis=1) > 0)
    return np.where(reads, np.inf, out)


def wide(X: sp.csr_array, n: int) -> sp.csr_array:
    """X with columns of zeros appended, n in all."""
    return sp.csr_array((X.data, X.indices, X.indptr), (X.shape[0], n))


def _joined(maps: Sequence[Activation]) -> Activation:
    segments: list[Segment] = []
    at = 0
    for act in maps:
        for s in act.segments:
            last = segments[-1] if segments else None
            stop = at + s.stop - s.start
            if last and (last.name, last.slope, last.block) == (s.name, s.slope, s.block):
                segments[-1] = replace(last, stop=stop)
            else:
                segments.append(Segment(s.name, s.slope, at, stop, s.block))
            at = stop
    return Activation(segments)


def sum_value(a: Value, b: Value) -> Value:
    """The sum of two values of one shape."""
    if a.shape != b.shape:
        raise ValueError(f"it adds values of shapes {a.shape} and {b.shape}")
    n = max(a.X.shape[1], b.X.shape[1])
    return Value(sp.csr_array(wide(a.X, n) + wide(b.X, n)), sp.csr_array(a.U + b.U), a.c + b.c, a.shape)


def product_value(assembly: Assembly, a: Value, b: Value) -> Value:
    """The entrywise product of two bounded values of one shape: states of the map `product`, in units of the bounds.

    Raises:
        ValueError: naming the factor that has no bound: its product is not Lipschitz.

    Source:
        Tsai thesis (2024), section 2.4, multiplicative connections.
    """
    if a.shape != b.shape:
        raise ValueError(f"it multiplies values of shapes {a.shape} and {b.shape}")
    reach = []
    for which, value in (("first", a), ("second", b)):
        size = assembly.reach(value)
        if not np.isfinite(size).all():
            raise ValueError(
                f"the {which} factor has no bound ({int((~np.isfinite(size)).sum())} of {size.size} entries), so that"
                " the product is not Lipschitz: pass it through tanh, sigmoid or softmax"
            )
        reach.append(np.where(size > 0, size, 1.0))
    m = len(a.c)
    first = sp.csr_array((1 / reach[0], (2 * np.arange(m), np.arange(m))), (2 * m, m))
    second = sp.csr_array((1 / reach[1], (2 * np.arange(m) + 1, np.arange(m))), (2 * m, m))
    pairs = sum_value(a.map(first, None, (2 * m,)), b.map(second, None, (2 * m,)))
    out = assembly.states(pairs, resolve_activation("product", 2 * m))
    return out.map(sp.csr_array((reach[0] * reach[1], (np.arange(m), 2 * np.arange(m))), (m, 2 * m)), None, a.shape)
