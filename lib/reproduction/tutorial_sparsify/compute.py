"""What a share of a network's weights gains: multiplications, bytes of a file, time; and how often it is right.

Accuracies and shares are in per cent.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from implicit_models.sim.pruning.files import load_state, save_state
from implicit_models.sim.pruning.network import SparseNetwork
from reproduction.core.scores import accuracy_of

BATCH = 200
WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


def accuracy(model: nn.Module, u: Tensor, y: Tensor) -> float:
    """Per cent of the samples that a model classifies right."""
    return 100 * accuracy_of(model, u, y, batch_size=BATCH)


def multiplications(network: nn.Module, u: Tensor) -> int:
    """Multiplications of a sample by weights that are not zero, in its convolutions and linear layers: the weights of a
    row at every position where it is evaluated, the margin of zeros included.

    Args:
        network: of torch's own modules; called once.
        u: (N, ...) samples, of which the first is used.
    """
    total = 0

    def count(module: nn.Module, _: Any, y: Tensor) -> None:
        nonlocal total
        assert isinstance(module.weight, Tensor)
        each = y.numel() // len(module.weight)  # evaluations of a row
        total += each * int(module.weight.count_nonzero())

    handles = [m.register_forward_hook(count) for m in network.modules() if isinstance(m, WEIGHTED)]
    try:
        with torch.no_grad():
            network(u[:1])
    finally:
        for handle in handles:
            handle.remove()
    return total


def file_bytes(write: Callable[[Path], Any]) -> int:
    """Bytes of the file that a function writes to the path it is given."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        write(path)
        return os.path.getsize(path)


def torch_bytes(network: nn.Module) -> int:
    """Bytes of `torch.save` of its state."""
    return file_bytes(lambda path: torch.save(network.state_dict(), path))


def packed_bytes(network: nn.Module) -> int:
    """Bytes of its state as `SparseNetwork.save` writes it: the values that are not zero and a bit an entry."""
    return file_bytes(lambda path: save_state(network.state_dict(), path))


def cpu_ms(models: dict[str, nn.Module], u: Tensor, repeats: int = 9) -> dict[str, float]:
    """Least CPU time of a sample in a batch of 200 on one thread, milliseconds, by name; the models take turns."""
    part, taken = u[:BATCH], {name: float("inf") for name in models}
    with torch.no_grad():
        for model in models.values():
            model(part)
        for _ in range(repeats):
            for name, model in models.items():
                begin = time.process_time()
                model(part)
                taken[name] = min(taken[name], time.process_time() - begin)
    return {name: 1000 * seconds / len(part) for name, seconds in taken.items()}


def comes_back(sparse: SparseNetwork, other: nn.Module, u: Tensor) -> bool:
    """Whether a file of a sparse network, read into another network of the kind it was made of, has its outputs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.npz"
        sparse.save(path)
        other.load_state_dict(load_state(path))
    with torch.no_grad():
        return torch.equal(other(u[:BATCH]), sparse(u[:BATCH]))


def refusal(call: Callable[[], Any]) -> str:
    """The error that a call ends with, as Python prints it.

    Raises:
        RuntimeError where it does not end with one.
    """
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise RuntimeError("nothing was refused")
