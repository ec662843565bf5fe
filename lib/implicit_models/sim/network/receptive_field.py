"""What a value of a traced network reads: the receptive field of its positions.

An entry counts as read where the operation can use it, also where its weight happens to be zero. A `Reach` holds, for
every block of states that a value depends on, the positions that each of its own positions reads and the channels that
each of its channels reads. `MODULES` and `FUNCTIONS` hold the rules by which a module or a function of tensors makes a
new `Reach` of those of its arguments. An operation on states that has no rule is refused with a TypeError; sizes,
attributes and constants depend on no state and need none.

Source:
    Tsai thesis (2024), section 2.5 (convolutions, pooling, residual sums).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from implicit_models.tracing.windows import padding_sides, tuple_of, windows

NOT_READ = "it is not read: see the modules that read_layers names"


@dataclass(frozen=True)
class Reach:
    """What a value of the trace reads: its shape (C, *S) or (F,), block -> (P, k) positions, and block -> its channels
    (see `Block`).

    flat: of a value that was flattened, what it read before, since a flat value has one position that reads all.
    """

    shape: tuple[int, ...]
    reads: Mapping[int, np.ndarray]
    channel: Mapping[int, np.ndarray | None]
    flat: Reach | None = None

    def entries(self, block: int, channels: int) -> int:
        """Pairs of an entry of the value and an entry of a block, of so many channels, that it reads."""
        if self.flat is not None:
            return self.flat.entries(block, channels)
        channel, inside = self.channel[block], int((self.reads[block] >= 0).sum())
        return inside * (self.shape[0] * channels if channel is None else int((channel >= 0).sum()))

    @classmethod
    def of_block(cls, block: int, shape: tuple[int, ...]) -> Reach:
        return cls(shape, {block: np.arange(math.prod(shape[1:]))[:, None]}, {block: np.arange(shape[0])[:, None]})

    def mixed(self, groups: int = 1, channels: int = 1) -> Reach:
        """The same positions behind a map that mixes the channels, or those of each of several groups."""
        if groups == 1:
            return Reach(self.shape, self.reads, dict.fromkeys(self.reads))
        each = {
            k: None if c is None else np.repeat(union(c.reshape(groups, -1)), channels // groups, axis=0)
            for k, c in self.channel.items()
        }
        return Reach((channels, *self.shape[1:]), self.reads, each)

    @property
    def places(self) -> np.ndarray:
        return np.arange(math.prod(self.shape[1:])).reshape(1, *self.shape[1:])

    def at(self, index: np.ndarray, shape: tuple[int, ...]) -> Reach:
        """The value whose position w reads the union of the present positions index[w], -1 for none."""
        out = {}
        for block, reads in self.reads.items():
            wide = np.vstack([reads, np.full((1, reads.shape[1]), -1)])[index]  # -1 is the last row
            out[block] = _distinct(wide.reshape(len(index), -1))
        return Reach(shape, out, self.channel)


def _channels(read: list[Any], channels: int) -> np.ndarray | None:
    """The channels that a sum reads of one block; a single one is spread over all."""
    if any(c is None for c in read):
        return None
    wide = [np.broadcast_to(c, (channels, c.shape[1])) if len(c) == 1 else c for c in read]
    return wide[0] if len(wide) == 1 else union(np.hstack(wide))


def _distinct(reads: np.ndarray) -> np.ndarray:
    """Each row's entries once; in their order where none repeats, so that column t is the same tap of every window."""
    ordered = np.sort(reads, axis=1)
    return union(reads) if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any() else reads


def union(reads: np.ndarray) -> np.ndarray:
    """Each row's entries once, ascending, -1 behind them; as narrow as the widest row allows."""
    ordered = np.sort(reads, axis=1)
    again = np.zeros(ordered.shape, bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    ordered = np.where(again, -1, ordered)
    there = ordered >= 0
    width = max(1, int(there.sum(axis=1).max(initial=0)))
    order = np.argsort(~there, axis=1, kind="stable")[:, :width]
    return np.take_along_axis(ordered, order, axis=1)


def _windows(module: Any, reach: Reach, ndim: int) -> Reach:
    """What windows read; beyond the border there is nothing, whatever fills it."""
    if len(reach.shape) != ndim + 1:
        raise ValueError(f"it reads samples with {ndim} axes behind the channels, got shape {reach.shape}")
    kernel = tuple_of(module.kernel_size, ndim)
    stride = tuple_of(module.stride if module.stride is not None else module.kernel_size, ndim)
    dilation = tuple_of(getattr(module, "dilation", 1), ndim)
    if getattr(module, "ceil_mode", False) or getattr(module, "padding_mode", "zeros") != "zeros":
        raise TypeError("only floor mode and padding with zeros are read")
    index = np.pad(reach.places, [(0, 0), *padding_sides(module.padding, kernel, dilation)], constant_values=-1)
    seen = windows(index, kernel, stride, dilation)[0]
    shape = seen.shape[:ndim]
    return reach.at(seen.reshape(math.prod(shape), -1), (reach.shape[0], *shape))


def pooled(module: Any, reach: Reach) -> Reach:
    """What the windows of a pooling layer read."""
    return _windows(module, reach, 1 if isinstance(module, (nn.MaxPool1d, nn.AvgPool1d)) else 2)


def _whole(reach: Reach, shape: tuple[int, ...]) -> Reach:
    """All positions at once: a flattened value, or a mean over them (whose channels stay apart)."""
    out = reach.at(np.arange(math.prod(reach.shape[1:]))[None, :], shape)
    return out if shape[0] == reach.shape[0] else out.mixed()


def _convolution(module: Any, reach: Reach, shape: tuple[int, ...]) -> Reach:
    return _windows(module, reach, len(module.kernel_size)).mixed(module.groups, module.out_channels)


def _adaptive(module: Any, reach: Reach, shape: tuple[int, ...]) -> Reach:
    if math.prod(shape[1:]) != 1:
        raise TypeError(NOT_READ)
    return _whole(reach, shape)


def _linear(module: Any, reach: Reach, shape: tuple[int, ...]) -> Reach:
    if len(reach.shape) != 1:
        raise TypeError(NOT_READ)
    return reach.mixed()


def _flat(module: Any, reach: Reach, shape: tuple[int, ...]) -> Reach:
    if len(shape) != 1:
        dims = "" if module is None else f" (start_dim={module.start_dim}, end_dim={module.end_dim})"
        raise TypeError(
            f"it is not read: it makes shape {shape} of samples of shape {reach.shape}{dims}; read is what flattens"
            " them whole (start_dim=1, end_dim=-1)"
        )
    return replace(_whole(reach, shape), flat=reach) if len(reach.shape) > 1 else reach


def _normalisation(module: Any, reach: Reach, shape: tuple[int, ...]) -> Reach:
    if module.running_mean is None:
        raise ValueError("it has no running statistics (track_running_stats=False): its map depends on the whole batch")
    return reach


MODULES: dict[type[nn.Module], Callable[..., Reach]] = {
    **dict.fromkeys((nn.Conv1d, nn.Conv2d), _convolution),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d), lambda module, reach, shape: pooled(module, reach)),
    **dict.fromkeys((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d), _adaptive),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d), _normalisation),
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Identity), lambda module, reach, shape: reach),
    nn.Flatten: _flat,
    nn.Linear: _linear,
}


def first_operand(args: tuple, kwargs: Mapping[str, Any]) -> Any:
    return args[0] if args else kwargs.get("input")


def _same(shape: tuple[int, ...], args: tuple, kwargs: Mapping[str, Any]) -> Reach:
    (reach,) = _operands(args, kwargs)
    return reach


def _sum(shape: tuple[int, ...], args: tuple, kwargs: Mapping[str, Any]) -> Reach:
    reaches = _operands(args, kwargs)
    if len(reaches) == 1:  # with a constant
        return reaches[0]
    a, b = reaches
    if a.flat is not None or b.flat is not None:
        raise TypeError("values are added that were flattened: add them before")
    if a.shape[1:] != b.shape[1:]:
        raise TypeError(f"values of shapes {a.shape} and {b.shape} are added: only equal positions are read")
    joined = {k: _distinct(np.hstack([r.reads[k] for r in (a, b) if k in r.reads])) for k in {**a.reads, **b.reads}}
    return Reach(
        shape, joined, {k: _channels([r.channel[k] for r in (a, b) if k in r.reads], shape[0]) for k in joined}
    )


def _factor(shape: tuple[int, ...], args: tuple, kwargs: Mapping[str, Any]) -> Reach:
    reaches = _operands(args, kwargs)
    if len(reaches) > 1:
        raise TypeError("a product of two values is not affine")
    return reaches[0]


def _quotient(shape: tuple[int, ...], args: tuple, kwargs: Mapping[str, Any]) -> Reach:
    reach = _factor(shape, args, kwargs)
    if reach is not first_operand(args, kwargs):
        raise TypeError("a quotient by a value is not affine")
    return reach


def _dropout(shape: tuple[int, ...], args: tuple, kwargs: Mapping[str, Any]) -> Reach:
    if kwargs.get("training", args[2] if len(args) > 2 else True):
        raise ValueError("dropout with training=True is random: pass training=self.training")
    return first_operand(args, kwargs)


def _reshaped(shape: tuple[int, ...], args: tuple, kwargs: Mapping[str, Any]) -> Reach:
    return _flat(None, first_operand(args, kwargs), shape)


def _pooled_to_one(shape: tuple[int, ...], args: tuple, kwargs: Mapping[str, Any]) -> Reach:
    return _adaptive(None, first_operand(args, kwargs), shape)


def _mean(shape: tuple[int, ...], args: tuple, kwargs: Mapping[str, Any]) -> Reach:
    reach = first_operand(args, kwargs)
    ndim, dims = len(reach.shape) + 1, kwargs.get("dim", args[1] if len(args) > 1 else None)
    dims = (dims,) if isinstance(dims, int) else dims
    if dims is None or ndim < 3 or {d % ndim for d in dims} != set(range(2, ndim)):
        raise TypeError(f"means are read over all positions, dimensions {tuple(range(2, ndim))}, got {dims}")
    return _whole(reach, shape)


def _slice(shape: tuple[int, ...], args: tuple, kwargs: Mapping[str, Any]) -> Reach:
    reach, key = args
    key = key if isinstance(key, tuple) else (key,)
    if not all(isinstance(k, slice) for k in key) or key[0] != slice(None) or (len(key) > 1 and key[1] != slice(None)):
        raise TypeError("only slices of positions are read")
    return reach.at(reach.places[(slice(None), *key[2:])].reshape(-1)[:, None], shape)


def _padded(shape: tuple[int, ...], args: tuple, kwargs: Mapping[str, Any]) -> Reach:
    reach = first_operand(args, kwargs)
    pads = list(args[1] if len(args) > 1 else kwargs["pad"])
    mode = kwargs.get("mode", args[2] if len(args) > 2 else "constant")
    sides = [(pads[i], pads[i + 1]) for i in range(0, len(pads), 2)][::-1]
    sides = [(0, 0)] * (len(reach.shape) - len(sides)) + sides
    if mode != "constant" or min(min(s) for s in sides) < 0:
        raise TypeError("only padding with a constant is read")
    out = reach.at(np.pad(reach.places, [(0, 0), *sides[1:]], constant_values=-1).reshape(-1)[:, None], shape)
    return Reach(
        shape,
        out.reads,
        {k: None if c is None else np.pad(c, [sides[0], (0, 0)], constant_values=-1) for k, c in out.channel.items()},
    )


def _operands(args: tuple, kwargs: Mapping[str, Any]) -> list[Reach]:
    return [a for a in (*args, *kwargs.values()) if isinstance(a, Reach)]


SUMS = ("add", "iadd", "sub", "isub", "add_", "sub_")
QUOTIENTS = ("truediv", "itruediv", "div", "div_")
FACTORS = ("mul", "imul", "mul_", "neg", *QUOTIENTS)
FUNCTIONS: dict[str, Callable[..., Reach]] = {
    **dict.fromkeys(SUMS, _sum),
    **dict.fromkeys(FACTORS, _factor),
    **dict.fromkeys(QUOTIENTS, _quotient),
    **dict.fromkeys(("contiguous", "clone"), _same),
    **dict.fromkeys(("flatten", "view", "reshape"), _reshaped),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d"), _pooled_to_one),
    "dropout": _dropout,
    "mean": _mean,
    "getitem": _slice,
    "pad": _padded,
}


def reach_of(module: nn.Module | None, name: str, args: tuple, kwargs: Mapping[str, Any], shape: Any) -> Any:
    """What the value of an affine node reads: the rule of its module, or of its function or method `name`; sizes and
    constants pass as None.

    Raises:
        TypeError: where it is not read, and where a value is spread over positions or channels that it does not have.
    """
    if module is None and (name in ("size", "getattr") or not _operands(args, kwargs)):
        return None
    rule = FUNCTIONS.get(name) if module is None else MODULES.get(type(module))
    if rule is None:
        raise TypeError(NOT_READ)
    found = rule(shape, args, kwargs) if module is None else rule(module, first_operand(args, kwargs), shape)
    positions, channels = math.prod(shape[1:]), {len(c) for c in found.channel.values() if c is not None}
    if any(len(reads) != positions for reads in found.reads.values()) or not channels <= {shape[0]}:
        raise TypeError(
            f"it makes a value of shape {shape} of positions or channels in another number: only equal ones are read"
        )
    return Reach(shape, found.reads, found.channel, found.flat)
