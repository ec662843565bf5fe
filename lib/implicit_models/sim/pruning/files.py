"""Parameters of a sparse network in a small file: the values that are not zero, and a bit an entry that says which.

The file is a NumPy archive, compressed, of

    names     the entries of the state, a JSON list of [name, shape, dtype]
    mask      their bits, entry after entry in C order, as numpy.packbits packs them
    values_D  the values of all entries of dtype D, in the same order

so that NumPy alone reads it back:

    f = numpy.load(path); bits = numpy.unpackbits(f["mask"]).astype(bool); at, used = 0, {}
    for name, shape, dtype in json.loads(str(f["names"])):
        own = bits[at : at + math.prod(shape)]; at += own.size; begin = used.get(dtype, 0)
        used[dtype] = begin + own.sum(); x = numpy.zeros(own.size, dtype)
        x[own] = f["values_" + dtype][begin : used[dtype]]; state[name] = x.reshape(shape)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


def save_state(state: Mapping[str, Tensor], path: str | Path) -> None:
    """Write the tensors of a state to a file, `path` as it is given."""
    names, bits, values = [], [], {}  # type: list[list[object]], list[np.ndarray], dict[str, list[np.ndarray]]
    for name, tensor in state.items():
        flat = tensor.detach().cpu().numpy().reshape(-1)
        names.append([name, list(tensor.shape), str(flat.dtype)])
        bits.append(flat != 0)
        values.setdefault(str(flat.dtype), []).append(flat[flat != 0])
    mask = np.packbits(np.concatenate(bits)) if bits else np.zeros(0, np.uint8)
    parts = {f"values_{dtype}": np.concatenate(each) for dtype, each in values.items()}
    with open(path, "wb") as file:
        np.savez_compressed(file, names=np.array(json.dumps(names)), mask=mask, **parts)  # type: ignore[arg-type]


def load_state(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a file that `SparseNetwork.save` wrote, dense: what `load_state_dict` of `dense()` takes.

    That of the network that was given refuses them where layers got biases (`report.biases`) or weights were computed
    from others.

    Raises:
        ValueError: for a file that is none of these.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            stored = {name: file[name] for name in file.files}
        names = json.loads(str(stored["names"]))
        bits = np.unpackbits(stored["mask"]).astype(bool)
    except (ValueError, KeyError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path} is no file of a sparse network: {error}") from error
    state, at, used = {}, 0, {}  # type: dict[str, Tensor], int, dict[str, int]
    for name, shape, dtype in names:
        own = bits[at : at + math.prod(shape)]
        begin = used.get(dtype, 0)
        at, used[dtype] = at + own.size, begin + int(own.sum())
        flat = np.zeros(own.size, dtype)
        flat[own] = stored[f"values_{dtype}"][begin : used[dtype]]
        state[name] = torch.from_numpy(flat.reshape(shape))
    return state
