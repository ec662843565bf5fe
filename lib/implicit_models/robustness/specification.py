"""Linear functionals of the outputs and their bounds over boxes of states and sets of inputs.

A functional is s'y with y = C x + D u + d, hence w'x + v'u + const with w = C's, v = D's, const = s'd. Over |u - u0|
<= radius and xl <= x <= xh the parts of x and u are bounded apart; `bounds` of the interval and the box are exactly
that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from implicit_models.robustness.arrays import EPS, as_array, real_array
from implicit_models.robustness.input_sets import Uncertainty
from implicit_models.robustness.problem import Matrix, Problem
from implicit_models.robustness.products import row_product
from implicit_models.summaries import summary

_CHUNK = 128  # samples whose own rows v are held at once


def rounding_of(problem: Problem) -> float:
    """Share of the magnitude of its terms that is taken off a bound: what an evaluation needs, and one that checks it
    with all its errors.
    """
    return 4 * (problem.n + problem.p + problem.q + 40) * EPS


@dataclass(frozen=True, eq=False)
class Specification:
    """Functionals of one problem and their bounds; matrix (k, q), or (N, k, q) with rows of every sample's own; None:
    the outputs.
    """

    problem: Problem
    inputs: Uncertainty
    matrix: Float[np.ndarray, "*N k q"] | None

    def __repr__(self) -> str:
        return summary(self, "matrix", "k")

    @property
    def shared(self) -> bool:
        return self.matrix is None or self.matrix.ndim == 2

    @property
    def k(self) -> int:
        return self.problem.q if self.matrix is None else self.matrix.shape[-2]

    @cached_property
    def state(self) -> Float[np.ndarray, "*N k n"]:
        """w of every functional."""
        C = _dense(self.problem.C)
        return C if self.matrix is None else self.matrix @ C

    @cached_property
    def constant(self) -> Float[np.ndarray, "*N k"]:
        return self.problem.d if self.matrix is None else self.matrix @ self.problem.d

    @cached_property
    def constant_size(self) -> Float[np.ndarray, "*N k"]:
        """Sum of the sizes in s'd: scales its rounding also where the sum cancels."""
        return np.abs(self.problem.d) if self.matrix is None else np.abs(self.matrix) @ np.abs(self.problem.d)

    def sizes(self, largest: Float[np.ndarray, "N m"], M: Matrix) -> Float[np.ndarray, "N k"]:
        """|s|' |M| largest for M = C or D: scales the rounding of (s'M) x, that of s'M included, which may cancel."""
        outputs = row_product(largest, abs(M))
        if self.matrix is None:
            return outputs
        weights = np.abs(self.matrix)
        return row_product(outputs, weights) if self.shared else np.einsum("nkq,nq->nk", weights, outputs)

    def terms(self, largest: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N k"]:
        """|s|'(|C| largest + |D| (|u0| + radius) + |d|) for |x| <= largest: scales the rounding of a functional."""
        return self.sizes(largest, self.problem.C) + self.from_inputs[2] + self.constant_size

    @cached_property
    def skips(self) -> bool:
        """Whether the outputs read the inputs at all."""
        D = self.problem.D
        return bool(D.nnz) if sp.issparse(D) else bool(D.any())

    def inputs_of(self, start: int | np.integer, stop: int | np.integer) -> Float[np.ndarray, "*N k p"]:
        """v of every functional, for samples start..stop-1 where they have their own."""
        D = _dense(self.problem.D)
        if self.matrix is None:
            return D
        return self.matrix @ D if self.shared else self.matrix[start:stop] @ D

    @cached_property
    def from_inputs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """v'u0 + const, the support of v and |s|'|D| (|u0| + radius), which scales the rounding; each (N, k), or (k,)
        where shared.
        """
        inputs, N = self.inputs, len(self.inputs.centre)
        if not self.skips:
            zero = np.zeros(self.k)
            return np.broadcast_to(self.constant, (N, self.k)), zero, zero
        if self.shared:
            V = self.inputs_of(0, N)
            largest = np.maximum(inputs.centre.max(axis=1, initial=0.0), -inputs.centre.min(axis=1, initial=0.0))
            reach = largest + np.atleast_2d(inputs.radius).max(axis=1, initial=0.0)
            rows = np.abs(_dense(self.problem.D)).sum(axis=1)
            scale = reach[:, None] * (rows if self.matrix is None else np.abs(self.matrix) @ rows)
            return row_product(inputs.centre, V) + self.constant, inputs.support(V), scale
        middle, support = (np.empty((N, self.k)) for _ in range(2))
        for start in range(0, N, _CHUNK):
            at = slice(start, min(N, start + _CHUNK))
            V, part = self.inputs_of(at.start, at.stop), inputs.take(at)
            middle[at] = np.einsum("nkp,np->nk", V, part.centre)
            support[at] = part.support_each(V)
        return middle + self.constant, support, self.sizes(np.abs(inputs.centre) + inputs.radius, self.problem.D)

    def over_states(
        self, centre: Float[np.ndarray, "N n"], radius: Float[np.ndarray, "*N n"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bounds (N, k) of the functionals over |x - centre| <= radius and the set of inputs, with room for
        rounding.
        """
        W, (offset, support, _) = self.state, self.from_inputs
        if self.shared:
            middle, spread = row_product(centre, W), row_product(np.atleast_2d(radius), np.abs(W))
        else:
            middle = np.einsum("nkj,nj->nk", W, centre)
            spread = np.einsum("nkj,nj->nk", np.abs(W), np.broadcast_to(radius, centre.shape))
        slack = rounding_of(self.problem) * self.terms(np.abs(centre) + radius)
        spread = spread + support + slack
        return middle + offset - spread, middle + offset + spread


def _dense(M: Matrix) -> np.ndarray:
    return M.toarray() if sp.issparse(M) else M


def specification(problem: Problem, inputs: Uncertainty, spec: Any = None) -> Specification:
    """Checked functionals; rows of spec are weights of the outputs.

    Args:
        spec: (k, q) or (N, k, q), torch or NumPy; None for the outputs themselves.

    Raises:
        ValueError: naming the shape or the functional that does not fit, TypeError for complex numbers.
    """
    if inputs.centre.shape[1] != problem.p:
        shape = inputs.centre.shape
        raise ValueError(f"U must have {problem.p} columns, one per input of the model, got shape {shape}")
    if spec is None:
        return Specification(problem, inputs, None)
    spec = np.array(real_array("spec", spec))  # a copy: certificates hold it
    N = len(inputs.centre)
    if (
        spec.ndim not in (2, 3)
        or spec.shape[-1] != problem.q
        or not spec.shape[-2]
        or (spec.ndim == 3 and len(spec) != N)
    ):
        raise ValueError(f"spec must have shape (k, {problem.q}) or ({N}, k, {problem.q}), got {spec.shape}")
    wrong = np.argwhere(~np.isfinite(spec))
    if wrong.size:
        where = tuple(int(i) for i in wrong[0])
        raise ValueError(f"spec has {len(wrong)} values that are not finite, the first at index {where}: {spec[where]}")
    return Specification(problem, inputs, spec)


def margins(y: Any, q: int) -> Float[np.ndarray, "N k q"]:
    """Functionals y_label - y_j for the q - 1 other classes j of every sample, in increasing order: lower bounds > 0
    certify.

    Args:
        y: (N,) labels in [0, q).

    Raises:
        ValueError: naming the first label outside.
    """
    y = as_array(y)
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(f"y must be a vector of integer labels, got shape {y.shape} of {y.dtype}")
    wrong = np.flatnonzero((y < 0) | (y >= q))
    if wrong.size:
        raise ValueError(f"label {y[wrong[0]]} of sample {wrong[0]} is not one of the {q} classes")
    others = np.arange(q - 1)[None] + (np.arange(q - 1)[None] >= y[:, None])
    eye = np.eye(q)
    return eye[y][:, None] - eye[others]
