"""Reading a torch network into the matrices of an implicit model.

The network's steps (`tracing`) are taken in order: a linear one multiplies a value, an activation makes new states of
it (`compose.values`). What each kind of step does is a function (assembly, step, values) -> value in `RULES`, here and
in `compose.spatial`.

Source:
    Tsai thesis (2024), sections 2.4 (composition) and 2.5, (2.9), (2.10) with l = 0, ..., L - 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import nn

from implicit_models.activations import Activation, Segment, resolve_activation
from implicit_models.compose import spatial
from implicit_models.compose.values import Assembly, Value, product_value, sum_value, wide
from implicit_models.matrices import scipy_csr
from implicit_models.model import ImplicitModel
from implicit_models.tracing import nodes as steps
from implicit_models.tracing.nodes import Graph, Node, numbers
from implicit_models.tracing.reading import read


def _linear(assembly: Assembly, node: steps.Linear, value: Value) -> Value:
    rows = math.prod(value.shape[:-1])
    W = sp.csr_array(numbers(node.weight))
    shift = None if node.bias is None else np.tile(numbers(node.bias), rows)
    return value.map(sp.kron(sp.eye_array(rows), W, format="csr") if rows != 1 else W, shift, node.shape)


def _scale(assembly: Assembly, node: steps.Scale, value: Value) -> Value:
    factor, shift = node.affine()
    if factor is not None:
        value = _scaled(value, factor)
    return value if shift is None else replace(value, c=value.c + shift.reshape(-1))


def _scaled(value: Value, factor: np.ndarray) -> Value:
    return value.map(sp.diags_array(factor.reshape(-1), format="csr"), None, value.shape)


def _activation(assembly: Assembly, node: steps.Activation, value: Value) -> Value:
    if node.map != "leaky_relu":
        return assembly.states(value, resolve_activation(node.map, node.size))
    slopes = node.slopes()
    if len(slopes) == 1:
        return assembly.states(value, resolve_activation(f"leaky_relu({slopes[0]!r})", node.size))
    each = node.size // len(slopes)
    segments = [Segment("leaky_relu", slope, i * each, (i + 1) * each, 1) for i, slope in enumerate(slopes)]
    return assembly.states(value, Activation(segments))


def _softmax(assembly: Assembly, node: steps.Softmax, value: Value) -> Value:
    """A block for each line along the axis."""
    moved = np.moveaxis(value.index, node.axis, -1)
    act = Activation([Segment("softmax", 0.0, 0, moved.size, value.shape[node.axis])])
    out = assembly.states(value.take(moved.reshape(-1)), act)
    place = np.empty(moved.size, np.int64)
    place[moved.reshape(-1)] = np.arange(moved.size)
    return out.take(place.reshape(value.shape))


def _sum(assembly: Assembly, node: steps.Sum, *values: Value) -> Value:
    parts = [v if c == 1 else _scaled(v, np.full(v.shape, c)) for c, v in zip(node.coefficients, values, strict=True)]
    out = parts[0]
    for part in parts[1:]:
        out = sum_value(out, part)
    return out


def _concat(assembly: Assembly, node: steps.Concat, *values: Value) -> Value:
    ends = np.cumsum([len(v.c) for v in values])
    index = np.concatenate([v.index + end - len(v.c) for v, end in zip(values, ends)], axis=node.axis)
    n = max(v.X.shape[1] for v in values)
    stacked = Value(
        sp.csr_array(sp.vstack([wide(v.X, n) for v in values], format="csr")),
        sp.csr_array(sp.vstack([v.U for v in values], format="csr")),
        np.concatenate([v.c for v in values]),
        (int(ends[-1]),),
    )
    return stacked.take(index)


def _equilibrium(assembly: Assembly, node: steps.Equilibrium, value: Value) -> Value:
    return implicit_value(assembly, node.model, value)


def implicit_value(assembly: Assembly, module: ImplicitModel, value: Value) -> Value:
    """The output of an implicit model whose input is a value."""
    A, B, C = (scipy_csr(M).astype(np.float64) for M in (module._feedback_matrix(), module.B, module.C))
    pre = value.map(B, None if module.b is None else numbers(module.b), (module.n_states,))
    out = assembly.states(pre, module.activation, A).map(
        C, None if module.d is None else numbers(module.d), (module.out_features,)
    )
    if module.D is None:
        return out
    return sum_value(out, value.map(scipy_csr(module.D).astype(np.float64), None, (module.out_features,)))


RULES: dict[type[Node], Callable[..., Any]] = {
    steps.Input: lambda assembly, node: assembly.input(node.shape),
    steps.Linear: _linear,
    steps.Convolution: spatial.convolution,
    steps.Normalisation: spatial.normalisation,
    steps.Scale: _scale,
    steps.Activation: _activation,
    steps.Softmax: _softmax,
    steps.Maximum: spatial.max_pool,
    steps.AdaptiveMaximum: spatial.max_pool,
    steps.Average: spatial.average_pool,
    steps.AdaptiveAverage: spatial.average_pool,
    steps.Mean: spatial.mean,
    steps.Sum: _sum,
    steps.Concat: _concat,
    steps.Reshape: lambda assembly, node, value: replace(value, shape=node.shape),
    steps.Take: lambda assembly, node, value: value.take(node.entries, node.fill),
    steps.Product: lambda assembly, node, first, second: product_value(assembly, first, second),
    steps.Equilibrium: _equilibrium,
}


def assembled(graph: Graph) -> tuple[Assembly, Value]:
    """The states of a network and its output value.

    Raises:
        ValueError: naming the product whose factors have no bound.
    """
    assembly = Assembly(graph.input.size)
    last = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    values: dict[str, Value] = {}
    for i, node in enumerate(graph.nodes):
        try:
            values[node.name] = RULES[type(node)](assembly, node, *(values[name] for name in node.inputs))
        except ValueError as error:
            raise ValueError(f"{node.where}: {error}") from error
        for name in node.inputs:
            if last[name] == i and name != graph.output:
                values.pop(name, None)
    return assembly, values[graph.output]


def assemble(network: nn.Module, shape: tuple[int, ...]) -> tuple[Assembly, Value]:
    """The states of a network in evaluation mode and its output value, of samples of a shape.

    Raises:
        TypeError, ValueError: as `tracing.reading.read` and `assembled`.
    """
    return assembled(read(network, shape))
