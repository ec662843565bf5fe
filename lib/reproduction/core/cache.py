"""Trained networks that several notebooks share: trained once, then read from a content-keyed cache."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import nn

from data_gen.core.dataset import Dataset
from data_gen.core.sources import cache_dir
from reproduction.book.keys import content_key
from reproduction.core.train import CheckpointError, History, Loss, Recipe, train


def train_or_load(
    name: str,
    *,
    build: Callable[[], nn.Module],
    data: Dataset,
    recipe: Recipe,
    seed: int,
    key_modules: Sequence[str],
    parameters: Mapping[str, Any] | None = None,
    loss: Loss | None = None,
    evaluate: Callable[[nn.Module], Any] | None = None,
    progress: bool = True,
) -> tuple[nn.Module, History]:
    """Return a trained model and its history, from the cache where the same training was done before.

    "The same" means equal code (the import closure of `key_modules` and of the training loop), data,
    recipe, seed, built model (its printed form and initial weights) and parameters. Two processes
    that ask at once train once: the other waits. An interrupted training resumes.

    Args:
        name: of the network, for the file and the progress bar.
        build: makes the untrained model, the same each time.
        data: trained on (u_train, y_train).
        recipe, seed: as for `train`.
        key_modules: first-party modules that define the model.
        parameters: further settings that the model depends on, JSON-serialisable.
        loss: as for `train`; what it depends on goes into `parameters`, and its module into `key_modules`.
        evaluate: as for `train`; not part of the key. A network that was cached without one is trained again.
        progress: show a bar on a terminal while training.

    Returns:
        The model in training mode, with the trained weights, and the history.

    Raises:
        FloatingPointError: training diverged, see `train`; nothing is cached.
    """
    model = build()
    key = content_key(
        modules=sorted({*key_modules, "reproduction.core.train"}),
        parameters={
            "name": name,
            "seed": seed,
            "recipe": asdict(recipe),
            "model": repr(model),
            "weights": _digest(_packed(model, None)),
            **(parameters or {}),
        },
        data={"train": data.checksum()},
    )
    path = cache_dir() / "models" / f"{name}-{key[:20]}.pt"
    with FileLock(path.with_suffix(".lock")):
        history = _load(model, path)
        if history is not None and evaluate is not None and not history.evaluation:
            model, history = build(), None  # it was trained without being watched
        if history is None:
            checkpoint = path.with_suffix(".checkpoint")
            arguments: dict[str, Any] = {"recipe": recipe, "seed": seed, "loss": loss, "evaluate": evaluate}
            arguments |= {"progress": progress, "label": name}
            try:
                history = train(model, data.u_train, data.y_train, checkpoint=checkpoint, **arguments)
            except CheckpointError as error:
                warnings.warn(f"{error}: {name} is trained from the start", stacklevel=2)
                checkpoint.unlink()
                model = build()
                history = train(model, data.u_train, data.y_train, checkpoint=checkpoint, **arguments)
            _store(model, history, path)
            checkpoint.unlink()
    return model, history


def _packed(model: nn.Module, history: History | None) -> bytes:
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "history": history and history.to_dict()}, buffer)
    return buffer.getvalue()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _store(model: nn.Module, history: History, path: Path) -> None:
    content = _packed(model, history)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(bytes.fromhex(_digest(content)) + content)
    os.replace(partial, path)


def _load(model: nn.Module, path: Path) -> History | None:
    """Fill the model from a cache file; None, with a warning if it is damaged, where there is none."""
    if not path.exists():
        return None
    stored = path.read_bytes()
    checksum, content = stored[:32], stored[32:]
    if bytes.fromhex(_digest(content)) != checksum:
        warnings.warn(f"{path} is damaged (wrong checksum); the network is trained again", stacklevel=3)
        return None
    saved = torch.load(io.BytesIO(content), weights_only=True)
    model.load_state_dict(saved["model"])
    return History(**saved["history"])
