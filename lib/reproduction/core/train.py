"""Training loop of every notebook: shuffled batches, projection, checkpoints that resume exactly."""

from __future__ import annotations

import functools
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from reproduction.core.recipe import History, Recipe
from reproduction.core.scores import accuracy, evaluate, predict

__all__ = ["CheckpointError", "History", "Recipe", "accuracy", "evaluate", "predict", "train"]

Loss = Callable[[nn.Module, Tensor, Tensor, float], Tensor]
LOSS_FUNCTIONS = {"mse": nn.functional.mse_loss, "cross_entropy": nn.functional.cross_entropy}
# Above this many numbers, a shuffled copy of the training set costs more than indexing batch by batch.
SHUFFLED_COPY_SIZE = 20_000_000


class CheckpointError(ValueError):
    """A checkpoint that this run cannot resume from."""


def train(
    model: nn.Module,
    u: Shaped[Tensor | np.ndarray, "N ..."],
    y: Shaped[Tensor | np.ndarray, "N ..."],
    *,
    recipe: Recipe,
    seed: int,
    loss: Loss | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_every: int = 10,
    evaluate: Callable[[nn.Module], Any] | None = None,
    progress: bool = True,
    label: str = "training",
) -> History:
    """Train a model in place, and project it after each step where it can (`project_`).

    The seed governs the shuffling and the dropout; the global random state is left as it was. With
    a checkpoint, an interrupted run (KeyboardInterrupt, or a killed process) goes on from the last
    whole epoch that was saved and ends with the same bits as an uninterrupted one; a finished one is
    loaded and not trained again.

    Args:
        model: any module u -> y; it is left in training mode as it came.
        u, y: inputs and targets, N samples in the first dimension.
        recipe: see `Recipe`.
        seed: of the order of samples and of what a step draws at random (dropout, starts of attacks); not of the
            model's initial weights.
        loss: (model, u, y, share of all steps that are done) -> loss of a batch, in place of the recipe's. It draws
            from torch's global generator, which has a stream of its own for the run's length.
        checkpoint: file to save to and to resume from.
        checkpoint_every: epochs between two saves; one more is made on an interrupt and at the end.
        evaluate: called with the model after each epoch; its result (of plain numbers and
            containers) goes to the history.
        progress: show a bar on a terminal; a pipe or file gets none.
        label: of the bar and of error messages.

    Returns:
        History of all epochs, those before a resume included.

    Raises:
        ValueError: u and y differ in length or are empty, or outputs and targets differ in shape.
        CheckpointError: the checkpoint is of another recipe, loss, seed, data or model, initial weights included, or
            cannot be read.
        FloatingPointError: the loss is not finite and recipe.on_nan is "raise"; names epoch and step.
    """
    u, y = torch.as_tensor(u), torch.as_tensor(y)
    if len(u) != len(y) or not len(u):
        raise ValueError(f"{label}: inputs {tuple(u.shape)} and targets {tuple(y.shape)} must pair N >= 1 samples")
    run = _Run(model, u, y, recipe, seed, loss)
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        run.begin = _digest(model.state_dict().values())
    if path is not None and path.exists():
        run.restore(_read(path), path)
    training = model.training
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(run.dropout_state)
        model.train()
        try:
            _epochs(run, path, checkpoint_every, evaluate, progress, label)
        finally:
            model.train(training)
    return run.history


def _epochs(run: _Run, path: Path | None, every: int, evaluate, progress: bool, label: str) -> None:
    from tqdm import tqdm

    first, last = len(run.history.loss), run.recipe.epochs
    if run.history.reason != "running":
        return
    saved = run.snapshot() if path is not None else None
    bar = tqdm(total=last, initial=first, desc=label, unit="epoch", disable=None if progress else True, leave=False)
    try:
        for epoch in range(first, last):
            stopped = run.epoch(epoch, label)
            if stopped:
                run.history.reason = stopped
                break
            if evaluate is not None:
                run.history.evaluation.append(evaluate(run.model))
                run.model.train()
            if epoch + 1 == last:
                run.history.reason = "completed"
            if path is not None:
                saved = run.snapshot()
                if (epoch + 1) % every == 0 and epoch + 1 < last:
                    _save(saved, path)
            bar.set_postfix_str(f"loss {run.history.loss[-1]:.3g}", refresh=False)
            bar.update()
    except KeyboardInterrupt:
        # The interrupt may have struck inside a step: only the last whole epoch is consistent.
        if path is not None:
            _save(saved, path)
        raise
    finally:
        bar.close()
    if path is not None:
        _save(run.snapshot(), path)


def _loss_of(recipe: Recipe, prediction: Tensor, y: Tensor, label: str) -> Tensor:
    if recipe.loss == "mse" and prediction.shape != y.shape:
        raise ValueError(f"{label}: predictions {tuple(prediction.shape)} and targets {tuple(y.shape)} differ in shape")
    return LOSS_FUNCTIONS[recipe.loss](prediction, y)


class _Run:
    """Everything that a resumed run must have as the interrupted one had it."""

    def __init__(self, model: nn.Module, u: Tensor, y: Tensor, recipe: Recipe, seed: int, loss: Loss | None) -> None:
        self.model, self.u, self.y, self.recipe, self.seed, self.loss = model, u, y, recipe, seed, loss
        self.history, self.begin = History(), ""
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        # The fused step has the least overhead, which dominates for models of a few hundred parameters.
        self.optimizer = torch.optim.Adam(self.parameters, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)
        self.shuffling = torch.Generator().manual_seed(seed)
        # Dropout draws from the global generator; it gets a stream of its own for the run's length.
        self.dropout_state = torch.Generator().manual_seed(seed + 1).get_state()
        self.projections = [module.project_ for module in model.modules() if hasattr(module, "project_")]
        self.implicit = [module for module in model.modules() if hasattr(module, "last_solve")]

    def epoch(self, epoch: int, label: str) -> str:
        """Run one epoch; return why training must stop, or ""."""
        recipe, model, optimizer = self.recipe, self.model, self.optimizer
        n = len(self.u)
        size = n if recipe.batch_size is None else min(recipe.batch_size, n)
        per_epoch = -(-n // size)
        (group,) = optimizer.param_groups
        batches = self._batches(size)
        solves = _SolveStatistics(self.implicit)
        total, wall, cpu = 0.0, time.perf_counter(), time.process_time()
        for index, (u, y) in enumerate(batches):
            step = epoch * per_epoch + index
            group["lr"] = recipe.learning_rate(step, recipe.epochs * per_epoch)
            optimizer.zero_grad(set_to_none=True)
            for parameter in self.parameters:
                parameter.grad = None
            if self.loss is None:
                loss = _loss_of(recipe, model(u), y, label)
            else:
                loss = self.loss(model, u, y, step / (recipe.epochs * per_epoch))
            value = loss.item()
            if not math.isfinite(value):
                reason = f"diverged: the loss is {value} at epoch {epoch + 1}, step {index + 1} of {per_epoch}"
                if recipe.on_nan == "raise":
                    raise FloatingPointError(f"{label}: {reason}; the learning rate is {group['lr']:.3g}")
                return reason
            solves.add()
            loss.backward()
            if recipe.clip is not None:
                nn.utils.clip_grad_norm_(self.parameters, recipe.clip)
            optimizer.step()
            for project in self.projections:
                project()
            total += value * len(u)
        history = self.history
        history.loss.append(total / n)
        history.learning_rate.append(group["lr"])
        history.seconds.append(time.perf_counter() - wall)
        history.cpu_seconds.append(time.process_time() - cpu)
        solves.record(history)
        return ""

    def _batches(self, size: int):
        n = len(self.u)
        if size == n:
            yield self.u, self.y
            return
        order = torch.randperm(n, generator=self.shuffling)
        if self.u.numel() <= SHUFFLED_COPY_SIZE:
            yield from zip(self.u[order].split(size), self.y[order].split(size))
        else:
            for chosen in order.split(size):
                yield self.u[chosen], self.y[chosen]

    @cached_property
    def data(self) -> str:
        return _digest((self.u, self.y))

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must share with the run that resumes from it."""
        return {
            "recipe": asdict(self.recipe),
            "loss": _described(self.loss),
            "seed": self.seed,
            "data": self.data,
            "model": repr(self.model),
            "initial weights": self.begin,
            "parameters": {name: list(value.shape) for name, value in self.model.state_dict().items()},
        }

    def snapshot(self) -> dict[str, Any]:
        return {
            "identity": self.identity(),
            "model": {name: value.detach().clone() for name, value in self.model.state_dict().items()},
            "optimizer": _cloned(self.optimizer.state_dict()),
            "shuffling": self.shuffling.get_state(),
            "dropout": torch.get_rng_state(),
            "history": _cloned(self.history.to_dict()),
        }

    def restore(self, saved: Mapping[str, Any], path: Path) -> None:
        own = self.identity()
        for name, value in saved["identity"].items():
            if value != own[name]:
                raise CheckpointError(f"checkpoint {path} is of another run: its {name} is {value}, here {own[name]}")
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.shuffling.set_state(saved["shuffling"])
        self.dropout_state = saved["dropout"]
        self.history = History(**saved["history"])


def _digest(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def _described(loss: Loss | None) -> str:
    """A loss by its name and the arguments that it is given in advance."""
    if isinstance(loss, functools.partial):
        return f"{_described(loss.func)}, {loss.args}, {loss.keywords}"
    return "" if loss is None else f"{loss.__module__}.{getattr(loss, '__qualname__', type(loss).__qualname__)}"


class _SolveStatistics:
    """Iterations and residuals of the equilibria of one epoch."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self.modules = modules
        self.n = self.iterations = self.most = 0
        self.residual = 0.0

    def add(self) -> None:
        for module in self.modules:
            solve = module.last_solve
            if solve is None:  # a loss of bounds alone solves nothing
                continue
            self.n += solve.n_iter.numel()
            self.iterations += int(solve.n_iter.sum())
            self.most = max(self.most, solve.max_iter)
            self.residual = max(self.residual, solve.max_residual)

    def record(self, history: History) -> None:
        if self.n:
            history.iterations_mean.append(self.iterations / self.n)
            history.iterations_max.append(self.most)
            history.residual_max.append(self.residual)


def _cloned(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: _cloned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cloned(item) for item in value)
    return value


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return torch.load(path, weights_only=True)
    except Exception as error:  # torch.load reports damage by many types, from EOFError to UnpicklingError
        raise CheckpointError(f"checkpoint {path} cannot be read ({type(error).__name__}); delete it") from error


def _save(state: Mapping[str, Any], path: Path) -> None:
    """Write beside the file and rename: a reader sees the old file or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    torch.save(state, partial)
    os.replace(partial, path)
