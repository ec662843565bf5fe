"""Dense and sparse CSR matrices behind one product, in the row-sample layout (a sample is a row)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn


def product(x: Tensor, M: Tensor, bias: Tensor | None = None) -> Tensor:
    """x M' + bias for a dense or sparse M; x (N, m), M (k, m), bias (k,) or (N, k)."""
    if M.layout is torch.strided:
        return x @ M.t() if bias is None else torch.addmm(bias, x, M.t())
    y = (M @ x.t()).t()  # a sparse matrix multiplies from the left
    return y if bias is None else y + bias


def transposed_product(v: Tensor, M: Tensor) -> Tensor:
    """v M for a dense or sparse M; v (N, k), M (k, m)."""
    return v @ M if M.layout is torch.strided else (M.t() @ v.t()).t()


def absolute(M: Tensor) -> Tensor:
    """|M| of a dense or sparse CSR matrix."""
    if M.layout is torch.strided:
        return M.abs()
    return torch.sparse_csr_tensor(M.crow_indices(), M.col_indices(), M.values().abs(), size=M.shape)


def check_finite(A: Tensor, name: str = "A") -> None:
    """Raise ValueError naming how many values of a dense or sparse matrix are NaN or infinite."""
    values = A if A.layout is torch.strided else A.values()
    # the sum is finite for all but pathological values: one pass, no mask
    if not bool(torch.isfinite(values.sum())) and not bool(torch.isfinite(values).all()):
        raise ValueError(
            f"{name} has values that are not finite: {int((~torch.isfinite(values)).sum())} of {values.numel()}"
        )


def check_network(network: nn.Module) -> None:
    """Check that a torch network can be read: its weights are finite, in single or double precision, and all in one.

    Raises:
        ValueError: naming the first parameter or buffer that is not finite, and how many of its values are not.
        TypeError: naming the first in half precision, or of another dtype than those before it.
    """
    first: tuple[str, torch.dtype] | None = None
    for name, t in (*network.named_parameters(), *network.named_buffers()):
        if not t.is_floating_point():
            continue
        if t.dtype in (torch.float16, torch.bfloat16):
            raise TypeError(
                f"{name} is {t.dtype}: half precision is too coarse to read a network in, convert it first,"
                " network.float()"
            )
        first = first or (name, t.dtype)
        if t.dtype != first[1]:
            raise TypeError(
                f"{name} is {t.dtype}, but {first[0]} is {first[1]}: convert the network first, network.float() or"
                " network.double()"
            )
        if t.layout in (torch.strided, torch.sparse_csr):
            check_finite(t.detach(), name)


def diagonal(M: Tensor) -> Tensor:
    """The diagonal of a square dense or sparse CSR matrix."""
    if M.layout is torch.strided:
        return M.diagonal()
    row = torch.repeat_interleave(torch.arange(M.shape[0], device=M.device), M.crow_indices().diff())
    on = row == M.col_indices()
    return M.values().new_zeros(M.shape[0]).index_add_(0, row[on], M.values()[on])


def csr_tensor(M: sp.csr_array, dtype: torch.dtype, device: torch.device) -> Tensor:
    """torch CSR tensor of a SciPy matrix (without torch's notice that the layout is in beta)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(M.indptr.astype(np.int64)),
            torch.from_numpy(M.indices.astype(np.int64)),
            torch.from_numpy(M.data).to(dtype),
            size=M.shape,
            dtype=dtype,
            device=device,
            check_invariants=True,
        )


def scipy_csr(A: Tensor) -> sp.csr_array:
    """SciPy matrix of a dense or sparse tensor, without stored zeros."""
    A = A.detach().cpu()
    if A.layout is torch.strided:
        return sp.csr_array(A.numpy())
    c = A.to_sparse_csr()
    out = sp.csr_array((c.values().numpy(), c.col_indices().numpy(), c.crow_indices().numpy()), tuple(c.shape)).copy()
    out.sum_duplicates()
    out.eliminate_zeros()
    return out


def as_tensor(name: str, M: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Dense or CSR tensor of a matrix given by torch, NumPy or SciPy.

    Raises:
        TypeError: naming the matrix, for another type, layout or dtype (dtype: the one it must have, if any).
    """
    if sp.issparse(M):
        M = sp.csr_array(M)
        if not np.issubdtype(M.dtype, np.floating):
            raise TypeError(f"{name} must have a floating dtype, got {M.dtype}")
        M = csr_tensor(M, torch.float32 if M.dtype == np.float32 else torch.float64, torch.device("cpu"))
    elif isinstance(M, np.ndarray):
        M = torch.from_numpy(np.ascontiguousarray(M))
    if not isinstance(M, Tensor):
        raise TypeError(
            f"{name} must be a torch tensor, a NumPy array or a SciPy sparse matrix, got {type(M).__name__}"
        )
    if not M.dtype.is_floating_point:
        raise TypeError(f"{name} must have a floating dtype, got {M.dtype}")
    if M.layout not in (torch.strided, torch.sparse_csr):
        raise TypeError(f"{name} must be dense or sparse CSR, got {M.layout}")
    if dtype is not None and M.dtype != dtype:
        raise TypeError(f"{name} is {M.dtype}, but A is {dtype}")
    return M.detach()
