"""States of a trained network: what state-driven implicit modelling imitates.

The states of L activation calls are stacked with the last one on top, x = (x_L, ..., x_1), so that a feed-forward
network has a strictly upper block-triangular A. z is the argument of the activation: a batch norm before it, in eval
mode, is an affine map of its own and lies inside z, with the same values as when it is folded into the preceding layer.

Source:
    SIM paper, section 3, (1) to (2); Tsai thesis (2024), section 3.1.
"""

from __future__ import annotations

import copy
import math
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.matrices import check_network
from implicit_models.sim.network.layers import INPUT, NetworkLayers, blocks_of
from implicit_models.summaries import summary
from implicit_models.tracing.builder import WrongShape
from implicit_models.tracing.nodes import Activation
from implicit_models.tracing.reading import read
from implicit_models.tracing.reparametrisation import plain_copy

MEMORY_BUDGET = 2**30


@dataclass(frozen=True)
class Block:
    """The states start..stop-1 of one call of an activation; shape is that of a sample's value, before flattening."""

    name: str
    activation: str
    start: int
    stop: int
    shape: tuple[int, ...]

    @property
    def states(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True)
class States:
    """Post-activation states, pre-activations, inputs and outputs of m samples; row k is sample k.

    X, Z: (m, n); U: (m, p); Y: (m, q); arrays or memory maps. blocks: the calls, last one first, in the order of the
        columns
    of X. network: where they come from, None for matrices of the user's own. folder: that of the memory maps, if any.
    """

    X: Float[np.ndarray, "m n"]
    Z: Float[np.ndarray, "m n"]
    U: Float[np.ndarray, "m p"]
    Y: Float[np.ndarray, "m q"]
    blocks: tuple[Block, ...]
    network: nn.Module | None = None
    folder: Path | None = None
    input_shape: tuple[int, ...] = ()
    _keep: Any = field(default=None, repr=False, compare=False)  # a temporary folder lives as long as the maps in it
    _memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        return summary(self, "X", "Z", "U", "Y", "blocks", "network", "folder", "input_shape")

    def __post_init__(self) -> None:
        for name in ("X", "Z", "U", "Y"):
            M = getattr(self, name)
            if not isinstance(M, np.ndarray) or M.ndim != 2 or not np.issubdtype(M.dtype, np.floating):
                raise TypeError(f"{name} must be a floating NumPy array with a row per sample, got {_describe(M)}")
            if M.shape[0] != self.X.shape[0]:
                raise ValueError(
                    f"{name} has {M.shape[0]} samples, X has {self.X.shape[0]}: shapes {M.shape} and {self.X.shape}"
                )
        if self.Z.shape != self.X.shape:
            raise ValueError(f"Z must have the shape of X, {self.X.shape}, got {self.Z.shape}")
        if 0 in self.X.shape:
            raise ValueError(f"X must hold at least one sample and one state, got shape {self.X.shape}")
        ends = [0, *(b.stop for b in self.blocks)]
        if [b.start for b in self.blocks] != ends[:-1] or ends[-1] != self.X.shape[1]:
            raise ValueError(f"the blocks must cover the {self.X.shape[1]} states in order, got {self.blocks}")

    @classmethod
    def from_arrays(cls, X: Any, Z: Any, U: Any, Y: Any, activation: str | list[tuple[str, int]] = "relu") -> States:
        """States given as matrices, torch or NumPy, one sample a row; activation as in `implicit_models.activations`.

        Raises:
            TypeError, ValueError: naming the matrix and both shapes where the samples disagree.
        """
        X, Z, U, Y = (M.detach().cpu().numpy() if isinstance(M, Tensor) else M for M in (X, Z, U, Y))
        n = X.shape[1] if isinstance(X, np.ndarray) and X.ndim == 2 else 0
        parts = [(activation, n)] if isinstance(activation, str) else activation
        blocks, at = [], 0
        for k, (name, size) in enumerate(parts):
            blocks.append(Block(f"block {k}", name, at, at + size, (size,)))
            at += size
        return cls(X, Z, U, Y, tuple(blocks))

    @property
    def n_samples(self) -> int:
        return self.X.shape[0]

    @property
    def n_states(self) -> int:
        return self.X.shape[1]

    @property
    def activation(self) -> list[tuple[str, int]]:
        """(name, size) of every block, in the order of the states."""
        return [(b.activation, b.stop - b.start) for b in self.blocks]

    @property
    def layers(self) -> dict[str, slice]:
        """Name of a block -> its states."""
        return {b.name: b.states for b in self.blocks}

    def take(self, samples: Any) -> States:
        """The states of some samples (an index array, a mask or a slice), copied."""
        parts = {name: np.array(getattr(self, name)[samples]) for name in ("X", "Z", "U", "Y")}  # type: dict[str, Any]
        return replace(self, **parts, folder=None, _keep=None, _memo={})


def _describe(M: Any) -> str:
    return f"{type(M).__name__} {M.dtype} of shape {tuple(M.shape)}" if hasattr(M, "shape") else type(M).__name__


def _inputs(U: Any) -> np.ndarray | Tensor:
    if not isinstance(U, (np.ndarray, Tensor)):
        raise TypeError(f"U must be a torch tensor or a NumPy array, got {type(U).__name__}")
    floating = U.dtype.is_floating_point if isinstance(U, Tensor) else np.issubdtype(U.dtype, np.floating)
    if not floating:
        raise TypeError(f"U must have a floating dtype, got {U.dtype}")
    if U.ndim < 2 or 0 in U.shape:
        raise ValueError(f"U must have shape (m, ...) with at least one sample and one feature, got {tuple(U.shape)}")
    return U.detach() if isinstance(U, Tensor) else U


class _Store:
    """Growing (m, k) matrices: in memory, or memory maps in a folder."""

    def __init__(self, m: int, folder: Path | None):
        self.m, self.folder, self.arrays = m, folder, {}  # type: int, Path | None, dict[str, Any]

    def write(self, name: str, at: int, rows: np.ndarray) -> None:
        if name not in self.arrays:
            shape = (self.m, rows.shape[1])
            if self.folder is None:
                self.arrays[name] = np.empty(shape, rows.dtype)
            else:
                path = self.folder / f"{name}.npy"
                self.arrays[name] = np.lib.format.open_memmap(path, mode="w+", dtype=rows.dtype, shape=shape)
        self.arrays[name][at : at + len(rows)] = rows

    def finished(self, name: str) -> np.ndarray:
        if self.folder is None:
            return self.arrays[name]
        self.arrays.pop(name).flush()
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")


def _implicit_states(model: Any, u: Tensor, at: int) -> tuple[Tensor, Tensor, Tensor]:
    """X, Z = A X + B U + b and Y of an implicit model."""
    from implicit_models.matrices import product

    found = model.equilibrium(u)
    if not bool(found.converged.all()):
        k = int(torch.nonzero(~found.converged)[0])
        raise ValueError(
            f"sample {at + k} has no equilibrium (residual {float(found.residual[k]):.3g}): {found.reason}"
        )
    z = product(found.x, model._feedback_matrix(), product(u, model.B, model.b))
    return found.x, z, model._read_out(found.x, u)


def _implicit_blocks(model: Any) -> tuple[Block, ...]:
    out = []
    for k, s in enumerate(model.activation.segments):
        name = f"leaky_relu({s.slope!r})" if s.name == "leaky_relu" else s.name
        label = f"state[{k}]" if len(model.activation.segments) > 1 else "state"
        out.append(Block(label, name, s.start, s.stop, (s.stop - s.start,)))
    return tuple(out)


def layers_of(network: nn.Module, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> NetworkLayers:
    """The layers of a copy of a network in evaluation mode, whose blocks are states with a map of `activations`.

    Raises:
        TypeError, ValueError: as `tracing.reading.read`; naming what is no state of such a map.
    """
    own = plain_copy(network).eval()
    layers = blocks_of(read(own, shape, dtype=dtype))
    for b in layers.blocks:
        if b.derived and not (b.activation == "softmax" and len(b.shape) == 1):
            where, what = layers.graph[b.node].where, b.activation.replace("_", "-")
            raise TypeError(
                f"{where}: a {what} of shape {b.shape} is no map of single states, nor one softmax of a sample: read"
                " are ReLU, ReLU6, leaky ReLU, PReLU, tanh, sigmoid and softmax; `sparsify` keeps others as they are"
            )
    if not layers.blocks:
        raise ValueError(f"{type(network).__name__} has no activation: it has no states")
    return layers


def _layer_blocks(layers: NetworkLayers) -> tuple[Block, ...]:
    """The blocks of the states, the last call of an activation first: a module called again is path[0], path[1], ..."""
    labels = [layers.graph[b.node].path or b.node for b in layers.blocks]
    count: dict[str, int] = {}
    parts: list[list[tuple[str, str, tuple[int, ...]]]] = []
    for label, b in zip(labels, layers.blocks, strict=True):
        k = count.get(label, 0)
        count[label] = k + 1
        name, node = f"{label}[{k}]" if labels.count(label) > 1 else label, layers.graph[b.node]
        named = [(name, b.activation, b.shape)]
        if isinstance(node, Activation) and b.activation == "prelu":  # a map for each channel
            named = [
                (f"{name}.{c}", f"leaky_relu({slope!r})", (1, *b.shape[1:])) for c, slope in enumerate(node.slopes())
            ]
        parts.append(named)
    out, at = [], 0
    for named in reversed(parts):
        for name, activation, shape in named:
            size = math.prod(shape)
            out.append(Block(name, activation, at, at + size, shape))
            at += size
    return tuple(out)


def states(
    network: nn.Module,
    U: Any,
    *,
    batch_size: int = 512,
    memory_budget: int = MEMORY_BUDGET,
    folder: str | Path | None = None,
    dtype: torch.dtype | None = None,
) -> States:
    """States of a trained network on the inputs U, from one pass in eval mode.

    Mathematics: X holds x = phi(z) of every activation call, Z its argument, so that with the network's own matrices
    z = A x + B u + b and y = C x + D u + d for every sample. An implicit model gives its equilibrium.

    Args:
        network: of what `tracing.reading.read` takes, with ReLU, ReLU6 (two blocks a call), leaky ReLU, PReLU (a block
            for each slope), tanh, sigmoid, one softmax of a sample, RNNCell, as modules or functions, one block per
            call, and affine in between; or an `ImplicitModel`. Its modes, hooks and weights are left as they were.
        U: (m, ...) torch or NumPy, floating; cast to the dtype and device of the network batch by batch.
        batch_size: samples a pass.
        memory_budget: bytes of X, Z and Y above which they become .npy memory maps.
        folder: of the memory maps, made if need be; a temporary one, deleted with the result, if None.
        dtype: torch.float64 runs a double precision copy of a float32 network, as exact matching needs; None: its own.

    Returns:
        `States`, in the dtype of the pass.

    Raises:
        ValueError: for a network without activations, for a NaN or infinite value in U (naming the sample), for inputs
            of a shape that the network does not take, for an implicit model without equilibrium.
        TypeError: naming the module or function that is not read, and the line of a forward that cannot be traced; for
            other inputs.

    Source:
        SIM paper, section 3; Tsai thesis (2024), section 3.1.
    """
    from implicit_models.model import ImplicitModel
    from implicit_models.recurrent import ImplicitRNN

    if not isinstance(network, nn.Module):
        raise TypeError(f"network must be a torch module, got {type(network).__name__}")
    if isinstance(network, ImplicitRNN):
        raise TypeError(
            "an ImplicitRNN has a state per time step: call its cell, an ImplicitModel, on the inputs of the steps"
        )
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size must be a positive int, got {batch_size!r}")
    U = _inputs(U)
    m, implicit = U.shape[0], isinstance(network, ImplicitModel)
    like = next((p for p in (*network.parameters(), *network.buffers()) if p.is_floating_point()), torch.empty(0))
    store, keep = None, None  # type: Any, Any
    if implicit:
        check_network(network)
        model = network if dtype is None else copy.deepcopy(network).to(dtype)
        blocks, run = _implicit_blocks(network), lambda u, at: _implicit_states(model, u, at)
    else:
        try:
            layers = layers_of(network, tuple(U.shape[1:]), dtype)
        except WrongShape as error:
            raise ValueError(f"{type(network).__name__} takes no inputs of shape {tuple(U.shape)}: {error}") from error
        blocks, there = _layer_blocks(layers), layers.on(str(like.device))
        run = lambda u, at: _layer_states(there, u)
    with torch.no_grad():
        for at in range(0, m, batch_size):
            part = U[at : at + batch_size]
            part = torch.from_numpy(np.array(part)) if isinstance(U, np.ndarray) else part
            u = part.to(device=like.device, dtype=dtype or like.dtype)
            finite = torch.isfinite(u).flatten(1).all(1)
            if not bool(finite.all()):
                raise ValueError(f"U has a value that is not finite in sample {at + int(torch.nonzero(~finite)[0])}")
            X, Z, Y = run(u, at)
            if store is None:
                if m * (2 * X.shape[1] + Y.shape[1]) * X.element_size() > memory_budget:
                    if folder is None:
                        keep = tempfile.TemporaryDirectory(prefix="states-")
                        folder = keep.name
                    folder = Path(folder)
                    folder.mkdir(parents=True, exist_ok=True)
                else:
                    folder = None
                store = _Store(m, folder)
            for name, rows in (("X", X), ("Z", Z), ("Y", Y)):
                store.write(name, at, rows.detach().cpu().numpy())
    flat = (U.cpu().numpy() if isinstance(U, Tensor) else U).reshape(m, -1)
    X, Z, Y = (store.finished(name) for name in ("X", "Z", "Y"))
    return States(X, Z, flat, Y, blocks, network, folder, tuple(U.shape[1:]), keep)  # type: ignore[arg-type]


def _layer_states(layers: NetworkLayers, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """X, Z and Y of a batch, the last block first."""
    known, z = {INPUT: u}, []
    for block in range(len(layers.blocks)):
        z.append(layers.affine(block, known))
        known[block] = layers.apply(block, z[-1])
    y = layers.affine(None, known)
    beside = lambda parts: torch.cat([t.reshape(len(u), -1) for t in parts], dim=1)
    return beside([known[k] for k in range(len(z) - 1, -1, -1)]), beside(z[::-1]), y.reshape(len(u), -1)
