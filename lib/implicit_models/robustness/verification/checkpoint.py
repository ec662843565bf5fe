"""The state of a search on disk, tied to its model and its property."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from implicit_models.robustness.layered.input_splits import InputSearch
from implicit_models.robustness.layered.unit_splits import UnitSearch
from implicit_models.robustness.problem import Problem

Search = InputSearch | UnitSearch
OWN = ("property", "model", "splits", "looked_at")


def digest(task: Problem) -> str:
    """Of everything that the outputs depend on."""
    found = hashlib.sha256(repr((task.activation.segments, task.n, task.p, task.q)).encode())
    for M in (task.A, task.B, task.C, task.D, task.b, task.d):
        M = sp.coo_array(np.atleast_2d(M) if isinstance(M, np.ndarray) else M)
        for part in (*M.coords, M.data):
            found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def save(search: Search, path: Path, nodes: int, model: str) -> None:
    """Write what `restored` needs, all or nothing.

    Args:
        search: between two steps.
        path: of the file.
        nodes: parts that were looked at.
        model: its digest.
    """
    own = {"property": _identity(search), "model": model, "splits": type(search).__name__, "looked_at": nodes}
    beside = path.with_name(f".{path.name}.{os.getpid()}.npz")
    np.savez(beside, **own, **search.state())  # type: ignore[arg-type]
    os.replace(beside, path)


def restored(search: Search, path: Path, model: str) -> int:
    """Go on from a file; the number of parts that were looked at.

    Raises:
        ValueError: for a file of another property, model or kind of splits, or that is none.
    """
    try:
        with np.load(path) as kept:
            found = dict(kept)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"the checkpoint {path} cannot be read: {error}") from error
    if missing := set(OWN) - found.keys():
        raise ValueError(f"the checkpoint {path} lacks {', '.join(sorted(missing))}")
    if not np.array_equal(found["property"], _identity(search)):
        raise ValueError(f"the checkpoint {path} is of another property")
    if found["model"] != model:
        raise ValueError(f"the checkpoint {path} is of another model")
    if found["splits"] != type(search).__name__:
        raise ValueError(f"the checkpoint {path} is of another kind of splits, {found['splits']}")
    search.restore({name: value for name, value in found.items() if name not in OWN})
    return int(found["looked_at"])


def _identity(search: Search) -> np.ndarray:
    wanted = search.wanted
    sizes = [len(part.b) for part in wanted.unsafe]
    return np.concatenate([wanted.lower, wanted.upper, sizes, *(v.ravel() for v in wanted.rows)])
