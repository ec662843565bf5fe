"""A vanilla recurrent network unrolled over its sequence: a state for each hidden unit and step.

    h_t = phi(W_ih u_t + b_ih + W_hh h_{t-1} + b_hh),    h_0 = 0,    phi tanh or ReLU

Every step reads earlier ones only: A is block triangular, whatever W_hh is.

Source:
    Tsai thesis (2024), section 2.5 (recurrent networks among those that an implicit model represents).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import nn

from implicit_models.activations import resolve_activation
from implicit_models.compose.tensors import BATCH, concatenate, reshaped
from implicit_models.compose.values import Assembly, Value, double, sum_value


class LastStates(tuple):
    """h_n of a recurrent network, one value a layer and direction; `h[-1]` is a tensor (N, hidden)."""


def unrolled(assembly: Assembly, module: nn.RNN, value: Value, h0: object = None) -> tuple[Value, LastStates]:
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
        raise ValueError(f"it reads sequences (T, {module.input_size}), but its input has shape {value.shape}")
    directions, last = 2 if module.bidirectional else 1, []
    for layer in range(module.num_layers):
        runs = []
        for direction in range(directions):
            steps = _run(
                assembly, module, value, f"l{layer}{'_reverse' if direction else ''}", backwards=bool(direction)
            )
            last.append(steps[0 if direction else -1])
            runs.append(steps)
        each = [concatenate(assembly, parts, -1) for parts in zip(*runs, strict=True)]
        T, hidden = value.shape[0], directions * module.hidden_size
        value = reshaped(assembly, concatenate(assembly, each, -1), BATCH, T, hidden)
    return value, LastStates(last)


def _run(assembly: Assembly, module: nn.RNN, value: Value, name: str, *, backwards: bool) -> list[Value]:
    """States of one layer and direction, in the order of time."""
    numpy = lambda kind: double(getattr(module, f"{kind}_{name}"))
    W_in, W_back = (sp.csr_array(numpy(kind)) for kind in ("weight_ih", "weight_hh"))
    shift = numpy("bias_ih") + numpy("bias_hh") if module.bias else np.zeros(module.hidden_size)
    T, steps, h = value.shape[0], {}, None
    for t in range(T - 1, -1, -1) if backwards else range(T):
        pre = value.take(value.index[t]).map(W_in, shift, (module.hidden_size,))
        if h is not None:
            pre = sum_value(pre, h.map(W_back, None, (module.hidden_size,)))
        steps[t] = h = assembly.states(pre, resolve_activation(module.nonlinearity, module.hidden_size))
    return [steps[t] for t in range(T)]


MODULES: dict[type[nn.Module], Callable[..., Any]] = {nn.RNN: unrolled}
