"""A layered model: values in the order in which they are computed, each an affine map of earlier ones or an activation.

    value 0 is the input;   affine  v = L_1 a_1 + L_2 a_2 + ... + c;   activation  x = phi(z)

`of_problem` reads the layers off the matrices of a block-triangular model: a layer is all states whose longest chain of
states before them has one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from implicit_models.activations import Activation
from implicit_models.equilibrium.triangular import _levels
from implicit_models.robustness.layered.operators import Dense, Operator, of_matrix

if TYPE_CHECKING:
    from implicit_models.robustness.problem import Problem

MAX_LAYERS = 200  # of more, a product for each is slower than what is done for models with feedback


@dataclass(frozen=True, eq=False)
class Affine:
    """The sum of operators on earlier values, and a constant.

    Attributes:
        parts: (number of the earlier value, operator); None for the identity.
        bias: (m,).
        shape: (C, H, W) of an image, else None.
    """

    parts: tuple[tuple[int, Operator | None], ...]
    bias: Float[Tensor, " m"]
    shape: tuple[int, ...] | None = None

    @property
    def size(self) -> int:
        return len(self.bias)

    @property
    def terms(self) -> int:
        """Length of the longest sum of a product, constants included."""
        return sum(1 if L is None else L.terms for _, L in self.parts) + 1


@dataclass(frozen=True, eq=False)
class Units:
    """An activation phi of the value number `of`.

    Attributes:
        activation: the map.
        states: the place of each unit among the states of the implicit model.
    """

    of: int
    activation: Activation
    states: Int64[np.ndarray, " m"]

    @property
    def size(self) -> int:
        return len(self.states)


Value = Affine | Units


@dataclass(eq=False)
class LayeredNetwork:
    """Values 1, 2, ... in order; the last one is the output.

    Attributes:
        p: number of inputs.
        values: value number k is values[k - 1].
        dtype: of all operators.
        rounding: share of the magnitude of a product that is taken off a bound, at least; see `backward`.
    """

    p: int
    dtype: torch.dtype
    rounding: float = 0.0
    values: list[Value] = field(default_factory=list)

    @property
    def n(self) -> int:
        """Number of states."""
        return sum(v.size for v in self.values if isinstance(v, Units))

    def size(self, number: int) -> int:
        return self.values[number - 1].size if number else self.p

    def add(self, value: Value) -> int:
        """Append a value and return its number."""
        self.values.append(value)
        return len(self.values)

    @cached_property
    def read_by_dense(self) -> set[int]:
        """Numbers of the values that a dense operator reads."""
        affine = (v for v in self.values if isinstance(v, Affine))
        return {k for v in affine for k, L in v.parts if isinstance(L, Dense)}

    def units(self) -> list[int]:
        """Numbers of the activations, in order."""
        return [k for k, v in enumerate(self.values, 1) if isinstance(v, Units)]

    def share(self, value: Affine) -> float:
        """Of the magnitude of the value's sums, what their rounding needs, in a product forth or back."""
        u = 0.5 * torch.finfo(self.dtype).eps
        k = value.terms + 8
        return max(self.rounding, k * u / (1 - k * u))

    def affine(self, value: Affine, found: Sequence[Tensor]) -> Float[Tensor, "N m"]:
        """An affine value of samples whose earlier values are known."""
        out = value.bias.expand(len(found[0]), -1)
        for k, L in value.parts:
            out = out + (found[k] if L is None else L.forward(found[k]))
        return out

    def run(self, u: Float[Tensor, "N p"]) -> Float[Tensor, "N q"]:
        """Outputs, without any bound."""
        found: list[Tensor] = [u.to(self.dtype)]
        for value in self.values:
            found.append(value.activation(found[value.of]) if isinstance(value, Units) else self.affine(value, found))
        return found[-1]


def of_problem(task: Problem, dtype: torch.dtype = torch.float64) -> LayeredNetwork | None:
    """The layers of a block-triangular model; None where a state feeds back, or where there are too many layers.

    Args:
        task: its matrices.
        dtype: of the operators.
    """
    from implicit_models.robustness.specification import rounding_of

    A = sp.csr_array(task.A)
    A.eliminate_zeros()
    if A.diagonal().any():
        return None
    level = _levels(task.activation.unit, A)
    if level is None or level.max(initial=0) >= MAX_LAYERS:
        return None
    B, C, D = (sp.csr_array(M) for M in (task.B, task.C, task.D))
    net = LayeredNetwork(task.p, dtype, rounding_of(task))
    layers: list[tuple[int, np.ndarray]] = []
    for depth in range(int(level.max(initial=-1)) + 1):
        states = np.flatnonzero(level == depth)
        z = net.add(_affine(net, layers, A[states], B[states], task.b[states]))
        layers.append((net.add(Units(z, task.activation.restrict(states), states)), states))
    net.add(_affine(net, layers, C, D, task.d))
    return net


def _affine(
    net: LayeredNetwork, layers: list[tuple[int, np.ndarray]], X: sp.csr_array, U: sp.csr_array, c: np.ndarray
) -> Affine:
    """X x + U u + c by the layers that x is made of."""
    parts = [(0, U), *((number, X[:, states]) for number, states in layers)]
    read = [(number, of_matrix(sp.csr_array(M), net.dtype)) for number, M in parts if M.count_nonzero()]
    return Affine(tuple(read), torch.from_numpy(c).to(net.dtype))
