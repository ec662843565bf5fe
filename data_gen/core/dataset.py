"""What every generator returns, and what it raises when public data cannot be had."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from implicit_models.summaries import array_text, summary


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training set and its test sets, one for each distribution shift.

    Args:
        u_train: inputs, (N, ...).
        y_train: targets, (N, ...); regression targets are floating, class labels int64.
        test: shift -> (u, y); the generator's docstring defines the shift. The key of a test set
            drawn from the training distribution is the shift that leaves it unchanged.
        meta: how the data came about: name, seed and whatever the generator drew or resolved.

    Raises:
        ValueError: inputs and targets differ in their number of samples, or a test set's
            samples have another shape than the training set's.
    """

    u_train: np.ndarray
    y_train: np.ndarray
    test: Mapping[Hashable, tuple[np.ndarray, np.ndarray]]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return summary(
            self,
            "u_train",
            "y_train",
            "meta",
            **{f"test[{shift!r}]": f"u {array_text(u)}; y {array_text(y)}" for shift, (u, y) in self.test.items()},
        )

    def __post_init__(self) -> None:
        for split, u, y in self.splits():
            if len(u) != len(y):
                raise ValueError(f"{split}: {len(u)} inputs {u.shape} but {len(y)} targets {y.shape}")
            if u.shape[1:] != self.u_train.shape[1:] or y.shape[1:] != self.y_train.shape[1:]:
                raise ValueError(
                    f"{split}: a sample has shapes {u.shape[1:]} -> {y.shape[1:]}, in training "
                    f"{self.u_train.shape[1:]} -> {self.y_train.shape[1:]}"
                )

    def splits(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yield (name, inputs, targets), the training set first."""
        yield "train", self.u_train, self.y_train
        for shift, (u, y) in self.test.items():
            yield f"test[{shift!r}]", u, y

    def checksum(self) -> str:
        """SHA-256 over names, dtypes, shapes and bytes of every array: equal data, equal checksum."""
        digest = hashlib.sha256()
        for split, *arrays in self.splits():
            for array in arrays:
                digest.update(f"{split} {array.dtype.str} {array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


class DatasetUnavailable(RuntimeError):
    """No source answered for a public data set.

    Args:
        name: the data set.
        attempts: (source, why it gave nothing), in the order tried.
        remedy: how a reader can provide the data.
    """

    def __init__(self, name: str, attempts: list[tuple[str, str]], remedy: str) -> None:
        self.name, self.attempts, self.remedy = name, list(attempts), remedy
        tried = "\n".join(f"  - {source}: {why}" for source, why in attempts)
        super().__init__(f"data set {name!r} is not available. Tried:\n{tried}\n{remedy}")

    def __reduce__(self):
        return type(self), (self.name, self.attempts, self.remedy)
