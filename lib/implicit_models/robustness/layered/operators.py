"""Linear maps between the values of two layers: products with the map, its absolute values and its transpose.

An operator L takes rows of samples or functionals, x (B, n) -> x L' (B, m), and gives back y (B, m) -> y L (B, n). A
product is off by at most gamma_k = k u / (1 - k u) times the product of the absolute values, whatever the order of its
sums, u the unit roundoff and k the number of terms.

Source:
    Higham, Accuracy and Stability of Numerical Algorithms (2002), section 3.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

DENSE_SHARE = 0.1  # of nonzero entries, from which a dense product is the faster one


class Operator(Protocol):
    """A linear map of values with `inputs` entries to values with `outputs` entries."""

    @property
    def inputs(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    @property
    def terms(self) -> int:
        """Of the longest sum in a product with the map or its transpose."""

    @property
    def row_sums(self) -> Float[Tensor, " m"]:
        """Sums of absolute values of each row, rounded up."""

    def forward(self, x: Float[Tensor, "B n"]) -> Float[Tensor, "B m"]:
        """x L'."""

    def absolute(self, x: Float[Tensor, "B n"]) -> Float[Tensor, "B m"]:
        """x |L|'."""

    def transposed(self, y: Float[Tensor, "B m"]) -> Float[Tensor, "B n"]:
        """y L."""


def _up(sums: Tensor, terms: int) -> Tensor:
    return sums * (1 + (terms + 2) * torch.finfo(sums.dtype).eps)


class _Matrix:
    """Sizes of a map that is held as a matrix."""

    weight: Any

    @property
    def inputs(self) -> int:
        return self.weight.shape[1]

    @property
    def outputs(self) -> int:
        return self.weight.shape[0]


@dataclass(frozen=True, eq=False)
class Dense(_Matrix):
    """A matrix (m, n)."""

    weight: Float[Tensor, "m n"]

    @property
    def terms(self) -> int:
        return max(self.weight.shape)

    @cached_property
    def _size(self) -> Tensor:
        return self.weight.abs()

    @cached_property
    def row_sums(self) -> Tensor:
        return _up(self._size.sum(1), self.inputs)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T

    def absolute(self, x: Tensor) -> Tensor:
        return x @ self._size.T

    def transposed(self, y: Tensor) -> Tensor:
        return y @ self.weight


@dataclass(frozen=True, eq=False)
class Sparse(_Matrix):
    """A matrix (m, n) in compressed rows, float64 or float32."""

    weight: sp.csr_array

    @cached_property
    def terms(self) -> int:
        columns = np.bincount(self.weight.indices, minlength=1)
        return int(max(np.diff(self.weight.indptr).max(initial=1), columns.max(initial=1)))

    @cached_property
    def _size(self) -> sp.csr_array:
        return abs(self.weight)

    @cached_property
    def _back(self) -> sp.csr_array:
        return self.weight.T.tocsr()

    @cached_property
    def row_sums(self) -> Tensor:
        return _up(torch.from_numpy(np.asarray(self._size.sum(axis=1)).ravel()), self.terms)

    def forward(self, x: Tensor) -> Tensor:
        return _Product.apply(x, self.weight, self._back) if x.requires_grad else _product(self.weight, x)

    def absolute(self, x: Tensor) -> Tensor:
        return _product(self._size, x)

    def transposed(self, y: Tensor) -> Tensor:
        return _Product.apply(y, self._back, self.weight) if y.requires_grad else _product(self._back, y)


class _Product(torch.autograd.Function):
    """x M' where gradients are asked for: attacks and multipliers are raised by them, and SciPy knows none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, M: sp.csr_array, back: sp.csr_array) -> Tensor:
        ctx.back = back
        return _product(M, x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _product(ctx.back, gradient), None, None


def _product(M: sp.csr_array, x: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray((M @ np.ascontiguousarray(x.numpy().T)).T))


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution of one, two or three axes with padding by zeros; values are in the order channel, position.

    Attributes:
        weight: (channels out, channels in / groups, *kernel).
        shape, out_shape: (channels, *size) of an input and of an output.
        stride, padding, dilation: one number for each axis.
        groups: as torch's.
    """

    weight: Tensor
    shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @property
    def inputs(self) -> int:
        return math.prod(self.shape)

    @property
    def outputs(self) -> int:
        return math.prod(self.out_shape)

    @property
    def terms(self) -> int:
        taps = math.prod(self.weight.shape[2:])
        return taps * max(self.weight.shape[1], self.weight.shape[0] // self.groups)

    @cached_property
    def _size(self) -> Tensor:
        return self.weight.abs()

    @cached_property
    def row_sums(self) -> Tensor:
        ones = torch.ones(1, self.inputs, dtype=self.weight.dtype)
        return _up(self.absolute(ones)[0], self.terms)

    def _convolve(self, x: Tensor, weight: Tensor) -> Tensor:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[len(self.stride) - 1]
        out = convolve(x.reshape(-1, *self.shape), weight, None, self.stride, self.padding, self.dilation, self.groups)
        return out.reshape(len(x), -1)

    def forward(self, x: Tensor) -> Tensor:
        return self._convolve(x, self.weight)

    def absolute(self, x: Tensor) -> Tensor:
        return self._convolve(x, self._size)

    def transposed(self, y: Tensor) -> Tensor:
        back = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(self.stride) - 1]
        missing = tuple(
            size - ((out - 1) * s - 2 * p + d * (k - 1) + 1)
            for size, out, s, p, d, k in zip(
                self.shape[1:],
                self.out_shape[1:],
                self.stride,
                self.padding,
                self.dilation,
                self.weight.shape[2:],
                strict=True,
            )
        )
        y = y.reshape(-1, *self.out_shape)
        return back(y, self.weight, None, self.stride, self.padding, missing, self.groups, self.dilation).reshape(
            len(y), -1
        )


@dataclass(frozen=True, eq=False)
class Diagonal:
    """A factor for each entry, such as a normalisation with fixed statistics."""

    weight: Float[Tensor, " n"]

    @property
    def terms(self) -> int:
        return 1

    @property
    def inputs(self) -> int:
        return len(self.weight)

    @property
    def outputs(self) -> int:
        return len(self.weight)

    @property
    def row_sums(self) -> Tensor:
        return self.weight.abs()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight

    def absolute(self, x: Tensor) -> Tensor:
        return x * self.weight.abs()

    def transposed(self, y: Tensor) -> Tensor:
        return y * self.weight


def one_hot(which: Int64[Tensor, "N k"], size: int, dtype: torch.dtype) -> Float[Tensor, "N k size"]:
    """Unit vectors."""
    out = torch.zeros(*which.shape, size, dtype=dtype)
    return out.scatter_(-1, which.unsqueeze(-1), 1.0)


def of_matrix(M: sp.csr_array, dtype: torch.dtype) -> Operator:
    """The operator of a sparse matrix: dense where that is faster."""
    if M.nnz >= DENSE_SHARE * math.prod(M.shape) or M.nnz < 4096:
        return Dense(torch.from_numpy(M.toarray()).to(dtype))
    return Sparse(M.astype(np.float32 if dtype is torch.float32 else np.float64))
