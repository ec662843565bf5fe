"""Reading a torch network into the matrices of an implicit model.

A linear module multiplies a value, an activation makes new states of it (`compose.values`). What a module does is a
function (assembly, module, value) -> value in `MODULES`, here and in `compose.spatial` and `compose.recurrent`;
functions and methods of tensors are in `compose.tensors`. The network is traced by torch.fx, so that whatever is
composed of these is read, residual sums included.

Source:
    Tsai thesis (2024), sections 2.4 (composition) and 2.5, (2.9), (2.10) with l = 0, ..., L - 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import fx, nn

from implicit_models.compose import recurrent as compose_recurrent
from implicit_models.compose import spatial as compose_spatial
from implicit_models.compose import tensors as compose_tensors
from implicit_models.compose.tensors import activation, flat, softmax, unflattened
from implicit_models.compose.values import Assembly, Value, double, sum_value
from implicit_models.matrices import scipy_csr
from implicit_models.model import ImplicitModel


def _linear(assembly: Assembly, module: nn.Linear, value: Value) -> Value:
    if not value.shape or value.shape[-1] != module.in_features:
        raise ValueError(f"it reads {module.in_features} features, but its input has shape {value.shape}")
    rows = math.prod(value.shape[:-1])
    W = sp.csr_array(double(module.weight))
    shift = None if module.bias is None else np.tile(double(module.bias), rows)
    return value.map(
        sp.kron(sp.eye_array(rows), W, format="csr") if rows != 1 else W,
        shift,
        (*value.shape[:-1], module.out_features),
    )


def _leaky(assembly: Assembly, module: nn.LeakyReLU, value: Value) -> Value:
    if not 0 <= module.negative_slope <= 1:
        raise ValueError(f"its slope {module.negative_slope} is not in [0, 1]")
    return activation(f"leaky_relu({module.negative_slope!r})")(assembly, value)


def _of_value(rule: Callable[..., Value]) -> Callable[[Assembly, Any, Value], Value]:
    return lambda assembly, module, value: rule(assembly, value)


def implicit_value(assembly: Assembly, module: ImplicitModel, value: Value) -> Value:
    if value.shape != (module.in_features,):
        raise ValueError(f"it reads {module.in_features} features, but its input has shape {value.shape}")
    A, B, C = (scipy_csr(M).astype(np.float64) for M in (module._feedback_matrix(), module.B, module.C))
    pre = value.map(B, None if module.b is None else double(module.b), (module.n_states,))
    out = assembly.states(pre, module.activation, A).map(
        C, None if module.d is None else double(module.d), (module.out_features,)
    )
    if module.D is None:
        return out
    return sum_value(out, value.map(scipy_csr(module.D).astype(np.float64), None, (module.out_features,)))


_same = _of_value(compose_tensors.same)
MODULES: dict[type[nn.Module], Callable[..., Any]] = {
    nn.Linear: _linear,
    nn.Flatten: lambda assembly, module, value: flat(value, module.start_dim, module.end_dim),
    nn.Unflatten: lambda assembly, module, value: unflattened(value, module.dim, module.unflattened_size),
    nn.ReLU: _of_value(activation("relu")),
    nn.LeakyReLU: _leaky,
    nn.Tanh: _of_value(activation("tanh")),
    nn.Sigmoid: _of_value(activation("sigmoid")),
    nn.Softmax: lambda assembly, module, value: softmax(assembly, value, module.dim),
    nn.Identity: _same,
    nn.Dropout: _same,
    nn.Dropout1d: _same,
    nn.Dropout2d: _same,
    ImplicitModel: implicit_value,
    **compose_spatial.MODULES,
    **compose_recurrent.MODULES,
}
FUNCTIONS: dict[Any, Callable[..., Any]] = {**compose_tensors.FUNCTIONS, **compose_spatial.FUNCTIONS}
METHODS: dict[str, Callable[..., Any]] = compose_tensors.METHODS


class Tracer(fx.Tracer):
    """torch.fx, with the modules that have a rule, and torch's own ones, taken whole."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
            return False
        return type(m) in MODULES or super().is_leaf_module(m, module_qualified_name)


def assemble(
    network: nn.Module, shape: tuple[int, ...]
) -> tuple[Assembly, Value, fx.GraphModule | None, dict[str, Value]]:
    """The network's states and its output value; the traced graph and the value of every node, to compare them with.

    Raises:
        TypeError: naming the module, by its path and type, or the function that has no rule.
        ValueError: for shapes that do not fit.
    """
    assembly = Assembly(math.prod(shape))
    if type(network) in MODULES:
        return (
            assembly,
            _apply(MODULES[type(network)], type(network).__name__, assembly, network, assembly.input(shape)),
            None,
            {},
        )
    try:
        graph = Tracer().trace(network)
    except Exception as error:  # whatever the network's forward raises when it is given a symbol
        raise TypeError(f"{type(network).__name__} cannot be traced by torch.fx: {error}") from error
    traced = fx.GraphModule(network, graph)
    values: dict[str, Any] = {}
    for node in graph.nodes:
        args, kwargs = _by_position(*fx.node.map_arg((node.args, node.kwargs), lambda n: values[n.name]))
        if node.op == "placeholder":
            if values:
                raise TypeError(
                    f"{type(network).__name__}.forward has a second argument, {node.target!r}: a model has one input"
                )
            values[node.name] = assembly.input(shape)
        elif node.op == "call_module":
            module = network.get_submodule(node.target)
            where = f"module {node.target!r} ({type(module).__name__})"
            if type(module) not in MODULES:
                raise TypeError(
                    f"{where} has no conversion; known are {', '.join(sorted(m.__name__ for m in MODULES))}"
                )
            values[node.name] = _apply(MODULES[type(module)], where, assembly, module, *args, **kwargs)
        elif node.op in ("call_function", "call_method"):
            rule = (FUNCTIONS if node.op == "call_function" else METHODS).get(node.target)
            path = list(node.meta.get("nn_module_stack", {}).values())
            where = f"{getattr(node.target, '__name__', node.target)!s} in the forward of {_owner(path, network)}"
            if getattr(node.target, "__module__", None) == "_operator" and compose_tensors.all_sizes(args):
                rule = compose_tensors.of_sizes(node.target)
            elif rule is None:
                raise TypeError(f"{where} has no conversion")
            values[node.name] = _apply(rule, where, assembly, *args, **kwargs)
        elif node.op == "output":
            (value,) = args
            if not isinstance(value, Value):
                raise TypeError(
                    f"{type(network).__name__} must return one tensor that depends on the input, it returns {value!r}"
                )
            return assembly, value, traced, values
        elif node.op == "get_attr":
            values[node.name] = _attribute(network, node.target)
        else:
            raise TypeError(f"{node.op} in the forward of {type(network).__name__} has no conversion")
    raise TypeError(f"{type(network).__name__} returns nothing")


def _by_position(args: tuple, kwargs: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Arguments that torch calls `input` and `other` come first: the rules have names of their own for them."""
    rest = dict(kwargs)
    for place, name in enumerate(("input", "other")):
        if name in rest and len(args) == place:
            args = (*args, rest.pop(name))
    return args, rest


def _attribute(network: nn.Module, path: str) -> torch.Tensor:
    """A parameter or buffer that the forward reads by itself: a constant.

    Raises:
        TypeError: for any other attribute.
    """
    *modules, name = path.split(".")
    found = getattr(network.get_submodule(".".join(modules)), name)
    if not isinstance(found, torch.Tensor):
        raise TypeError(f"{type(network).__name__} reads its attribute {path!r} in forward, which has no conversion")
    return found


def _owner(path: list, network: nn.Module) -> str:
    if not path:
        return type(network).__name__
    name, kind = path[-1]
    return f"{name!r} ({getattr(kind, '__name__', kind)})"


def _apply(rule: Callable[..., Value], where: str, *args: Any, **kwargs: Any) -> Value:
    try:
        return rule(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from error


def differing_node(
    traced: fx.GraphModule,
    values: dict[str, Value],
    assembly: Assembly,
    u: np.ndarray,
    shape: tuple[int, ...],
    tol: float,
) -> str | None:
    """Name of the first node whose value is not the one assembled."""
    x = assembly.run(u)

    class Compare(fx.Interpreter):
        found: str | None = None

        def run_node(self, node: fx.Node) -> Any:
            out = super().run_node(node)
            if self.found is None and isinstance(values.get(node.name), Value) and node.op != "placeholder":
                mine = values[node.name].at(x, u)
                if mine.shape != tuple(out.shape) or not np.allclose(mine, out.detach().numpy(), rtol=tol, atol=tol):
                    self.found = f"{node.op.removeprefix('call_')} {node.target!r}"
            return out

    compare = Compare(traced)
    compare.run(torch.from_numpy(u).reshape(len(u), *shape))
    return compare.found
