"""States of a trained network: what state-driven implicit modelling imitates.

The states of L activation calls are stacked with the last one on top, x = (x_L, ..., x_1), so that a feed-forward
network has a strictly upper block-triangular A. z is the argument of the activation: a batch norm before it, in eval
mode, is an affine map of its own and lies inside z, with the same values as when it is folded into the preceding layer.

Source:
    SIM paper, section 3, (1) to (2); Tsai thesis (2024), section 3.1.
"""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.sim.network.recording import activation_modules, evaluation_mode, hooked, output_of, require_affine
from implicit_models.summaries import summary

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


class _Recorder:
    """One forward pass per batch; the calls must be those of the first batch."""

    def __init__(self, network: nn.Module):
        self.network, self.calls = network, None  # type: nn.Module, Any

    def __call__(self, u: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        calls, x, z = [], [], []

        def seen(path: str, name: str, before: Tensor, after: Tensor) -> None:
            if before.ndim < 2 or before.shape[0] != u.shape[0]:
                shape = tuple(before.shape)
                raise ValueError(
                    f"activation {path!r} got shape {shape}: its first axis must be the {u.shape[0]} samples"
                )
            if name == "softmax" and before.ndim != 2:
                raise ValueError(f"softmax {path!r} got shape {tuple(before.shape)}: a sample may have one block only")
            calls.append((path, name, tuple(before.shape[1:])))
            z.append(before.reshape(u.shape[0], -1))
            x.append(after.detach().clone().reshape(u.shape[0], -1))

        with hooked(self.network, seen):
            try:
                y = output_of(self.network, u.clone())  # the network may write to its input
            except RuntimeError as e:
                if "shape" not in str(e) and "size" not in str(e):
                    raise
                raise ValueError(f"{type(self.network).__name__} takes no inputs of shape {tuple(u.shape)}: {e}") from e
        if not calls:
            raise ValueError(
                f"no activation module of {type(self.network).__name__} ran: a functional activation cannot be hooked"
            )
        if self.calls is None:
            self.calls = calls
        elif calls != self.calls:
            raise ValueError(
                f"the activations that run depend on the data: {len(self.calls)} calls at first, now {len(calls)}"
            )
        return x, z, y

    def blocks(self) -> tuple[Block, ...]:
        times = {path: sum(call[0] == path for call in self.calls) for path, _, _ in self.calls}
        count, named = dict.fromkeys(times, 0), []
        for path, name, shape in self.calls:
            named.append((f"{path}[{count[path]}]" if times[path] > 1 else path, name, shape))
            count[path] += 1
        out, at = [], 0
        for label, name, shape in reversed(named):
            size = int(np.prod(shape))
            out.append(Block(label, name, at, at + size, shape))
            at += size
        return tuple(out)


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


def states(
    network: nn.Module,
    U: Any,
    *,
    batch_size: int = 512,
    memory_budget: int = MEMORY_BUDGET,
    folder: str | Path | None = None,
    dtype: torch.dtype | None = None,
    check: bool = True,
) -> States:
    """States of a trained network on the inputs U, from one pass in eval mode.

    Mathematics: X holds x = phi(z) of every activation call, Z its argument, so that with the network's own matrices
    z = A x + B u + b and y = C x + D u + d for every sample. An implicit model gives its equilibrium.

    Args:
        network: any module whose activations are nn.ReLU, nn.LeakyReLU, nn.PReLU (one slope), nn.Tanh, nn.Sigmoid,
            nn.Softmax or nn.RNNCell modules, one block per call; or an `ImplicitModel`. Its modes, hooks and weights
            are left as they were.
        U: (m, ...) torch or NumPy, floating; cast to the dtype and device of the network batch by batch.
        batch_size: samples a pass.
        memory_budget: bytes of X, Z and Y above which they become .npy memory maps.
        folder: of the memory maps, made if need be; a temporary one, deleted with the result, if None.
        dtype: torch.float64 runs a double precision copy of a float32 network, as exact matching needs; None: its own.
        check: verify on every sample that the network is affine between its activations, at the cost of a second pass.

    Returns:
        `States`, in the dtype of the pass.

    Raises:
        ValueError: for a network without activation modules, for a nonlinearity that the hooks do not see, for a NaN or
            infinite value in U (naming the sample), for an implicit model without equilibrium.
        TypeError: for other inputs.

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
    if not implicit:
        activation_modules(network)
    run = network if dtype is None else copy.deepcopy(network).to(dtype)
    like = next((p for p in (*run.parameters(), *run.buffers()) if p.is_floating_point()), torch.empty(0))
    recorder, store, keep = _Recorder(run), None, None  # type: _Recorder, Any, Any
    with evaluation_mode(run):
        for at in range(0, m, batch_size):
            part = U[at : at + batch_size]
            part = torch.from_numpy(np.array(part)) if isinstance(U, np.ndarray) else part
            u = part.to(device=like.device, dtype=like.dtype)
            finite = torch.isfinite(u).flatten(1).all(1)
            if not bool(finite.all()):
                raise ValueError(f"U has a value that is not finite in sample {at + int(torch.nonzero(~finite)[0])}")
            if implicit:
                X, Z, Y = _implicit_states(run, u, at)
            else:
                x, z, y = recorder(u)
                if check:
                    names = [f"the argument of activation {b.name!r}" for b in reversed(recorder.blocks())]
                    require_affine(run, u, x, z, y, names)
                X, Z, Y = torch.cat(x[::-1], 1), torch.cat(z[::-1], 1), y
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
    blocks = _implicit_blocks(network) if implicit else recorder.blocks()
    X, Z, Y = (store.finished(name) for name in ("X", "Z", "Y"))
    return States(X, Z, flat, Y, blocks, network, folder, tuple(U.shape[1:]), keep)  # type: ignore[arg-type]
