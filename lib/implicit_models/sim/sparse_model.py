"""A network whose affine maps between activations are sparse rows: what `sparsify` returns.

    z_l = A_l (x_k)_{k read by l} + b_l,   x_l = phi_l(z_l),   y = head(last states)

A_l is CSR over the flattened blocks that l reads, side by side. Blocks that were not fitted, and the output, keep the
network's own maps. As one implicit model it is strictly block triangular, hence well-posed whatever the weights are.

Source:
    Tsai thesis (2024), sections 2.5 and 3.2.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.matrices import csr_tensor
from implicit_models.sim.network.layers import INPUT, NetworkLayers
from implicit_models.sim.report import SparsityReport
from implicit_models.summaries import summary


class SparseModel(nn.Module):
    """See the module. Inputs (N, *input_shape), outputs those of the network.

    Args:
        layers: of the network.
        rows: block -> (A (size, sum of the sources' sizes) CSR over channel-major states, b (size,)).
        sources: block -> the blocks that its rows read, ascending; those that the network reads there if it is not
            named.
        head: (features -> outputs) weight and bias of a final linear layer fitted anew, or None.
        report: what was fitted.
    """

    def __init__(
        self,
        layers: NetworkLayers,
        rows: Mapping[int, tuple[sp.csr_array, np.ndarray]],
        head: tuple[np.ndarray, np.ndarray] | None,
        report: SparsityReport,
        sources: Mapping[int, tuple[int, ...]] | None = None,
    ):
        super().__init__()
        self.layers, self.report = layers, report
        self.network = layers.traced
        for block, (A, b) in rows.items():
            self.register_buffer(f"A{block}", csr_tensor(A, layers.dtype, torch.device("cpu")))
            self.register_buffer(f"b{block}", torch.from_numpy(np.asarray(b)).to(layers.dtype))
        for name, value in zip(("head_weight", "head_bias"), head or (None, None), strict=True):
            self.register_buffer(name, None if value is None else torch.from_numpy(value).to(layers.dtype))
        self.fitted = tuple(sorted(rows))
        self.sources = {
            block: tuple(sorted((sources or {}).get(block, layers.blocks[block].sources))) for block in self.fitted
        }

    def __repr__(self) -> str:
        return summary(
            self,
            "network",
            "fitted",
            input_shape=self.layers.input_shape,
            dtype=str(self.dtype),
            entries=self.report.entries,
            sparsity_of_entries=self.report.sparsity_of_entries,
            sparsity_of_parameters=self.report.sparsity_of_parameters,
        )

    @property
    def dtype(self) -> torch.dtype:
        """Of its tensors now, and of its inputs: the network's until `double()` or `float()` changes it."""
        return next(
            (t.dtype for t in (*self.buffers(), *self.parameters()) if t.is_floating_point()), self.layers.dtype
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> SparseModel:
        # torch does not copy sparse storage
        for t in (*self._buffers.values(), *self._parameters.values()):
            if t is not None and t.layout is torch.sparse_csr:
                values = t.detach().clone()
                memo[id(t)] = nn.Parameter(values, t.requires_grad) if isinstance(t, nn.Parameter) else values
        memo[id(self.layers)] = self.layers.over(copy.deepcopy(self.layers.traced, memo))
        out = memo[id(self)] = type(self).__new__(type(self))
        out.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return out

    def forward(self, u: Float[Tensor, "N ..."]) -> Float[Tensor, "N q"]:
        """Outputs of the sparse model."""
        return self.output(self.states(u))

    def states(self, u: Float[Tensor, "N ..."]) -> dict[int, Tensor]:
        """block -> (N, *shape), and INPUT -> u.

        Raises:
            TypeError, ValueError: naming the shape or dtype that does not fit.
        """
        check_inputs(u, self.layers.input_shape, self.dtype)
        known = {INPUT: u}
        for block in range(len(self.layers.blocks)):
            z = self.pre_activation(block, known) if block in self.fitted else self.layers.affine(block, known)
            known[block] = self.layers.apply(block, z)
        return known

    def pre_activation(self, block: int, known: Mapping[int, Tensor]) -> Tensor:
        """z of a fitted block from the blocks that it reads."""
        A, shift = getattr(self, f"A{block}"), getattr(self, f"b{block}")
        return sparse_map(A, shift, [known[s] for s in self.sources[block]], self.layers.blocks[block].shape)

    def output(self, known: Mapping[int, Tensor]) -> Tensor:
        """Outputs from the states."""
        if self.head_weight is None:
            return self.layers.affine(None, known)
        return nn.functional.linear(
            self.layers.features(known),
            self.head_weight,  # type: ignore[arg-type]
            self.head_bias,  # type: ignore[arg-type]
        )


def sparse_map(A: Tensor, shift: Tensor, known: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
    """A x + shift for the flattened blocks side by side, (N, *shape)."""
    x = torch.cat([k.flatten(1) for k in known], dim=1)
    return ((A @ x.t()).t() + shift).reshape(len(x), *shape)


def ridge_head(
    features: Float[Tensor, "m f"], outputs: Float[Tensor, "m q"], ridge: float = 1e-3
) -> tuple[Float[np.ndarray, "q f"], Float[np.ndarray, " q"]]:
    """Weight and bias of the outputs by ridge regression on the features; the ridge is relative to each feature's
    variance."""
    X, Y = features.double().numpy(), outputs.double().numpy()
    mean, target = X.mean(0), Y.mean(0)
    X = X - mean
    G = X.T @ X
    square = np.diag(G)
    G = G + np.diag(np.where(square > 0, ridge * square, 1.0))  # a dead feature gets no weight
    W = np.linalg.solve(G, X.T @ (Y - target)).T
    return W, target - W @ mean


def check_inputs(u: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raises: TypeError for anything but a tensor of the dtype that the network has now, ValueError for samples of
    another shape."""
    if not isinstance(u, Tensor):
        raise TypeError(f"inputs must be a torch tensor, got {type(u).__name__}")
    if u.dtype != dtype:
        raise TypeError(
            f"inputs are {u.dtype}, the network is {dtype}: convert them (integers are not scaled silently)"
        )
    if tuple(u.shape[1:]) != shape:
        raise ValueError(f"samples must have shape {shape}, got {tuple(u.shape[1:])}")
