"""The layers of a network that was read into matrices: convolutions stay convolutions.

`from_network` leaves the steps of the network with its model. Dense layers, convolutions, normalisations and sums
become operators; whatever else is affine becomes the sparse matrix that `compose` makes of this step alone, and a step
with units its sparse matrix and these. Steps are used if they say what the matrices say, on probes.
"""

from __future__ import annotations

import math
import weakref

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from implicit_models.compose.network import RULES
from implicit_models.compose.values import Assembly, Value
from implicit_models.robustness.layered.network import Affine, LayeredNetwork, Units, of_problem
from implicit_models.robustness.layered.operators import Convolution, Dense, Diagonal, Operator, of_matrix
from implicit_models.robustness.problem import Problem
from implicit_models.robustness.specification import rounding_of
from implicit_models.tracing import nodes as steps
from implicit_models.tracing.nodes import Graph, Node

AGREE = 64  # roundoffs of the sizes of all terms, within which steps and matrices are one model
# A fixed point is no layer, and the factors of a product have their bounds in the whole network alone.
ALONE = (steps.Equilibrium, steps.Product)
_READ: weakref.WeakKeyDictionary[Problem, LayeredNetwork | None] = weakref.WeakKeyDictionary()


def layers_of(task: Problem) -> LayeredNetwork | None:
    """The layers of a model without feedback, as operators where its network is known and says the same, else from the
    matrices; None with feedback. Read once for each problem."""
    if task not in _READ:
        found = None if task.graph is None else of_graph(task.graph, task)
        _READ[task] = of_problem(task) if found is None else found
    return _READ[task]


def of_graph(graph: Graph, task: Problem, dtype: torch.dtype = torch.float64) -> LayeredNetwork | None:
    """The layers of a network; None where a step has no layer of its own, or where they are not those of the
    matrices.

    Args:
        graph: the steps.
        task: the matrices of the model.
        dtype: of the operators.
    """
    if any(isinstance(node, ALONE) for node in graph.nodes) or graph.input.size != task.p:
        return None
    net = LayeredNetwork(task.p, dtype, rounding_of(task))
    numbers: dict[str, int] = {graph.input.name: 0}
    shapes = {node.name: node.shape for node in graph.nodes}
    for node in graph.nodes[1:]:
        numbers[node.name] = _added(net, node, [numbers[k] for k in node.inputs], [shapes[k] for k in node.inputs])
    last = numbers[graph.output]
    if last == 0 or last != len(net.values) or isinstance(net.values[-1], Units):
        net.add(Affine(((last, None),), torch.zeros(net.size(last), dtype=dtype)))
    end = net.n
    for k in net.units():  # later states first
        value = net.values[k - 1]
        assert isinstance(value, Units)
        end -= value.size
        net.values[k - 1] = Units(value.of, value.activation, np.arange(end, end + value.size))
    return net if _agrees(net, task) else None


def _added(net: LayeredNetwork, node: Node, inputs: list[int], shapes: list[tuple[int, ...]]) -> int:
    if isinstance(node, steps.Reshape):
        return inputs[0]
    image = node.shape if len(node.shape) == 3 else None
    if isinstance(node, steps.Sum):
        parts: tuple[tuple[int, Operator | None], ...] = tuple(
            (k, None if c == 1 else Diagonal(torch.full((node.size,), float(c), dtype=net.dtype)))
            for k, c in zip(inputs, node.coefficients, strict=True)
        )
        return net.add(Affine(parts, torch.zeros(node.size, dtype=net.dtype), image))
    found = _operator(node, shapes[0], net.dtype) if len(inputs) == 1 else None
    if found is not None:
        return net.add(Affine(((inputs[0], found[0]),), found[1], image))
    if isinstance(node, steps.Activation):
        assembly, _ = _by_rule(node, shapes)
        z = inputs[0]
        if not z or isinstance(net.values[z - 1], Units):  # units read affine values
            z = net.add(Affine(((z, None),), torch.zeros(node.size, dtype=net.dtype), image))
        return net.add(Units(z, assembly.maps[0], np.zeros(node.size, np.int64)))
    assembly, value = _by_rule(node, shapes)
    for (X, U, c), activation in zip(assembly.rows, assembly.maps, strict=True):
        assert X.nnz == 0  # no step has two layers of units
        z = net.add(_split(net, U, c, inputs, shapes))
        units = net.add(Units(z, activation, np.zeros(activation.n, np.int64)))
        if value.U.nnz:
            raise ValueError(f"{node.where} has a path past its units")
        return net.add(Affine(((units, of_matrix(value.X, net.dtype)),), _tensor(value.c, net.dtype)))
    return net.add(_split(net, value.U, value.c, inputs, shapes))


def _by_rule(node: Node, shapes: list[tuple[int, ...]]) -> tuple[Assembly, Value]:
    """What `compose` makes of a step whose inputs are the input."""
    sizes = [math.prod(shape) for shape in shapes]
    assembly = Assembly(sum(sizes))
    whole = assembly.input((assembly.p,))
    ends = np.cumsum(sizes)
    values = [
        whole.take(np.arange(end - size, end).reshape(shape))
        for end, size, shape in zip(ends, sizes, shapes, strict=True)
    ]
    return assembly, RULES[type(node)](assembly, node, *values)


def _split(
    net: LayeredNetwork, U: sp.csr_array, c: np.ndarray, inputs: list[int], shapes: list[tuple[int, ...]]
) -> Affine:
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    columns = sp.csc_array(U)
    parts = [
        (k, sp.csr_array(columns[:, end - math.prod(shape) : end]))
        for k, end, shape in zip(inputs, ends, shapes, strict=True)
    ]
    return Affine(tuple((k, of_matrix(M, net.dtype)) for k, M in parts if M.nnz), _tensor(c, net.dtype))


def _operator(node: Node, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Operator, Tensor] | None:
    """Operator and constant of a step; None where it has none of its own."""
    if isinstance(node, steps.Linear) and len(shape) == 1:
        return Dense(node.weight.detach().to(dtype)), _bias(node.bias, 1, node.size, dtype)
    if isinstance(node, steps.Normalisation):
        factor, shift = node.affine()
        each = math.prod(shape[1:])
        return Diagonal(_tensor(np.repeat(factor, each), dtype)), _tensor(np.repeat(shift, each), dtype)
    if isinstance(node, steps.Scale):
        by, plus = node.affine()
        return (
            Diagonal(_tensor(np.ones(node.size) if by is None else by.reshape(-1), dtype)),
            _tensor(np.zeros(node.size) if plus is None else plus.reshape(-1), dtype),
        )
    if isinstance(node, steps.Convolution) and node.padding_mode == "zeros" and all(a == b for a, b in node.sides):
        padding = tuple(a for a, _ in node.sides)
        weight = node.weight.detach().to(dtype)
        operator = Convolution(weight, shape, node.shape, node.stride, padding, node.dilation, node.groups)
        return operator, _bias(node.bias, math.prod(node.shape[1:]), node.size, dtype)
    return None


def _bias(bias: Tensor | None, each: int, size: int, dtype: torch.dtype) -> Tensor:
    return torch.zeros(size, dtype=dtype) if bias is None else bias.detach().to(dtype).repeat_interleave(each)


def _tensor(array: np.ndarray, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float64)).to(dtype)


def _agrees(net: LayeredNetwork, task: Problem) -> bool:
    """Whether the pre-activations and outputs of any states and inputs are those of the matrices, on a probe."""
    if net.n != task.n or net.values[-1].size != task.q:
        return False
    rng = np.random.default_rng(0)
    x, u = rng.standard_normal(task.n), rng.standard_normal(task.p)
    wanted_z, wanted_y = task.A @ x + task.B @ u + task.b, task.C @ x + task.D @ u + task.d
    scale_z = abs(task.A) @ np.abs(x) + abs(task.B) @ np.abs(u) + np.abs(task.b)
    scale_y = abs(task.C) @ np.abs(x) + abs(task.D) @ np.abs(u) + np.abs(task.d)
    roundoff = AGREE * torch.finfo(net.dtype).eps
    found: list[Tensor] = [_tensor(u, net.dtype)[None]]
    for value in net.values:
        if isinstance(value, Units):
            z = found[value.of][0].double().numpy()
            if not (np.abs(z - wanted_z[value.states]) <= roundoff * scale_z[value.states]).all():
                return False
            found.append(_tensor(x[value.states], net.dtype)[None])
        else:
            found.append(net.affine(value, found))
    return bool((np.abs(found[-1][0].double().numpy() - wanted_y) <= roundoff * scale_y).all())
