"""Vanilla recurrent networks unrolled over their sequence, and single cells.

    h_t = phi(W_ih u_t + b_ih + W_hh h_{t-1} + b_hh),    h_0 = 0 or what the network gives,    phi tanh or ReLU

Source:
    Tsai thesis (2024), section 2.5 (recurrent networks among those that an implicit model represents).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from implicit_models.tracing.builder import Builder, WrongShape
from implicit_models.tracing.functions import activation, linear
from implicit_models.tracing.nodes import Node
from implicit_models.tracing.rearrangements import concatenated


class LastStates(tuple):
    """h_n of a recurrent network, one value a layer and direction; `h[-1]` is a tensor (N, hidden)."""


def cell(b: Builder, module: nn.RNNCell, value: Node, hx: Any = None) -> Node:
    """One step of a cell. Raises: WrongShape for other shapes."""
    if value.shape != (module.input_size,):
        raise WrongShape(f"it reads {module.input_size} features, but its input has shape {value.shape}")
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return _step(b, [getattr(module, n) for n in names], value, hx, module.nonlinearity)


def _step(b: Builder, of: list[Any], value: Node, h: Any, nonlinearity: str) -> Node:
    W_in, W_back, shift, shift_back = of
    pre = linear(b, value, W_in, shift)
    if isinstance(h, Node):
        pre = b.sum([pre, linear(b, h, W_back, shift_back)])
    else:
        constant = h @ W_back.t().to(h) if isinstance(h, Tensor) and bool(h.any()) else None
        for c in (shift_back, constant):
            pre = pre if c is None else b.scale(pre, shift=c)
    return activation(nonlinearity)(b, pre)


def unrolled(b: Builder, module: nn.RNN, value: Node, h0: object = None) -> tuple[Node, LastStates]:
    """The output of every step and the last states of every layer.

    Raises:
        ValueError: unless the module is batch first and its input (T, features)
        TypeError: for a given initial state.
    """
    if h0 is not None:
        raise TypeError("an initial state that the network computes has no conversion")
    if not module.batch_first:
        raise ValueError("it must be batch_first: dimension 0 of a network's tensors is the batch")
    if len(value.shape) != 2 or value.shape[1] != module.input_size:
        raise WrongShape(f"it reads sequences (T, {module.input_size}), but its input has shape {value.shape}")
    directions, last = 2 if module.bidirectional else 1, []
    for layer in range(module.num_layers):
        runs = []
        for direction in range(directions):
            suffix = f"l{layer}{'_reverse' if direction else ''}"
            steps = _run(b, module, value, suffix, backwards=bool(direction))
            last.append(steps[0 if direction else -1])
            runs.append(steps)
        each = [concatenated(b, parts, -1) for parts in zip(*runs, strict=True)]
        value = b.reshape(concatenated(b, each, -1), (value.shape[0], directions * module.hidden_size))
    return value, LastStates(last)


def _run(b: Builder, module: nn.RNN, value: Node, suffix: str, *, backwards: bool) -> list[Node]:
    """States of one layer and direction, in the order of time."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    of = [getattr(module, f"{n}_{suffix}") if module.bias or n.startswith("weight") else None for n in names]
    T, steps, h = value.shape[0], {}, None  # type: int, dict[int, Node], Node | None
    for t in range(T - 1, -1, -1) if backwards else range(T):
        steps[t] = h = _step(b, of, b.take(value, value.index[t]), h, module.nonlinearity)
    return [steps[t] for t in range(T)]
