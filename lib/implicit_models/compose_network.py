"""Reading a torch network into the matrices of an implicit model: every value is affine in the states and the input.

    value = X x + U u + c,    x the states so far: one for each component that an activation is applied to.

A linear module multiplies the value, an activation makes new states of it, a sum adds two values. What a module does is a function
(assembly, module, value) -> value in `MODULES`; functions and methods of tensors are in `FUNCTIONS` and `METHODS`. The network is traced by
torch.fx, so that whatever is composed of these is read, residual sums included.

Source: Tsai thesis (2024), sections 2.4 (composition) and 2.5, (2.9), (2.10) with l = 0, ..., L - 1.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import fx, nn

from implicit_models.activations import Activation, Segment, resolve_activation
from implicit_models.matrices import scipy_csr
from implicit_models.model import ImplicitModel


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of one sample, X x + U u + c in row-major order; X (m, states so far), U (m, p), c (m,), float64."""

    X: sp.csr_array
    U: sp.csr_array
    c: np.ndarray
    shape: tuple[int, ...]

    def map(self, W: Any, shift: np.ndarray | None, shape: tuple[int, ...]) -> Value:
        """W value + shift."""
        c = W @ self.c
        return Value(sp.csr_array(W @ self.X), sp.csr_array(W @ self.U), c if shift is None else c + shift, shape)

    def at(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The value for states x (N, at least as many as X has columns) and inputs u (N, p)."""
        return (x[:, : self.X.shape[1]] @ self.X.T + u @ self.U.T + self.c).reshape(len(u), *self.shape)


@dataclass(eq=False)
class Assembly:
    """States in the order in which they are computed, with the rows of A, B, b that make them."""

    p: int
    n: int = 0
    rows: list[tuple[sp.csr_array, sp.csr_array, np.ndarray]] = field(default_factory=list)
    maps: list[Activation] = field(default_factory=list)

    def input(self, shape: tuple[int, ...]) -> Value:
        return Value(sp.csr_array((self.p, 0)), sp.eye_array(self.p, format="csr"), np.zeros(self.p), shape)

    def states(self, pre: Value, act: Activation, feedback: sp.csr_array | None = None) -> Value:
        """New states phi(pre + feedback x) and the value that reads them."""
        m = act.n
        own = sp.csr_array((m, m)) if feedback is None else feedback
        X = sp.hstack([_wide(pre.X, self.n), own], format="csr")
        self.rows.append((X, pre.U, pre.c))
        self.maps.append(act)
        self.n += m
        select = sp.hstack([sp.csr_array((m, self.n - m)), sp.eye_array(m)], format="csr")
        return Value(select, sp.csr_array((m, self.p)), np.zeros(m), pre.shape)

    def matrices(self, value: Value) -> tuple[Any, ...]:
        """A, B, C, D, b, d and the activation, later states first: A is block upper triangular."""
        if not self.rows:  # an affine network: one state that stays 0, since a model has at least one
            self.states(Value(sp.csr_array((1, 0)), sp.csr_array((1, self.p)), np.zeros(1), (1,)), resolve_activation("identity", 1))
        sizes = [act.n for act in self.maps]
        ends = np.cumsum(sizes)
        order = np.concatenate([np.arange(e - m, e) for m, e in zip(sizes[::-1], ends[::-1])])
        A = sp.csr_array(sp.vstack([_wide(X, self.n) for X, _, _ in self.rows], format="csr")[order][:, order])
        B = sp.csr_array(sp.vstack([U for _, U, _ in self.rows], format="csr")[order])
        b = np.concatenate([c for _, _, c in self.rows])[order]
        C = sp.csr_array(_wide(value.X, self.n)[:, order])
        D = value.U.copy()
        for M in (A, B, C, D):
            M.eliminate_zeros()
        return A, B, C, D, b, value.c, _joined(self.maps[::-1])

    def run(self, u: np.ndarray) -> np.ndarray:
        """States (N, n) for inputs (N, p) of an assembly without feedback, in the order of computation."""
        x = np.zeros((len(u), 0))
        for (X, U, c), act in zip(self.rows, self.maps):
            x = np.hstack([x, act(x @ X[:, : x.shape[1]].T + u @ U.T + c)])
        return x


def _wide(X: sp.csr_array, n: int) -> sp.csr_array:
    return sp.csr_array((X.data, X.indices, X.indptr), (X.shape[0], n))


def _joined(maps: list[Activation]) -> Activation:
    segments, at = [], 0
    for act in maps:
        for s in act.segments:
            last = segments[-1] if segments else None
            stop = at + s.stop - s.start
            if last and (last.name, last.slope, last.block) == (s.name, s.slope, s.block):
                segments[-1] = replace(last, stop=stop)
            else:
                segments.append(Segment(s.name, s.slope, at, stop, s.block))
            at = stop
    return Activation(segments)


# Modules. A rule raises TypeError or ValueError; the tracer adds where.


def _linear(assembly: Assembly, module: nn.Linear, value: Value) -> Value:
    if not value.shape or value.shape[-1] != module.in_features:
        raise ValueError(f"it reads {module.in_features} features, but its input has shape {value.shape}")
    rows = math.prod(value.shape[:-1])
    W = sp.csr_array(_numpy(module.weight))
    shift = None if module.bias is None else np.tile(_numpy(module.bias), rows)
    return value.map(sp.kron(sp.eye_array(rows), W, format="csr") if rows != 1 else W, shift, (*value.shape[:-1], module.out_features))


def _flatten(assembly: Assembly, module: nn.Flatten, value: Value) -> Value:
    return _flat(value, module.start_dim, module.end_dim)


def _leaky(assembly: Assembly, module: nn.LeakyReLU, value: Value) -> Value:
    if not 0 <= module.negative_slope <= 1:
        raise ValueError(f"its slope {module.negative_slope} is not in [0, 1]")
    return _activate(f"leaky_relu({module.negative_slope!r})")(assembly, module, value)


def _activate(name: str) -> Callable[..., Value]:
    def rule(assembly: Assembly, module: Any, value: Value) -> Value:
        return assembly.states(value, resolve_activation(name, len(value.c)))

    return rule


def _same(assembly: Assembly, module: Any, value: Value) -> Value:
    return value


def implicit_value(assembly: Assembly, module: ImplicitModel, value: Value) -> Value:
    if value.shape != (module.in_features,):
        raise ValueError(f"it reads {module.in_features} features, but its input has shape {value.shape}")
    A, B, C = (scipy_csr(M).astype(np.float64) for M in (module._feedback_matrix(), module.B, module.C))
    pre = value.map(B, None if module.b is None else _numpy(module.b), (module.n_states,))
    out = assembly.states(pre, module.activation, A).map(C, None if module.d is None else _numpy(module.d), (module.out_features,))
    if module.D is None:
        return out
    return sum_value(out, value.map(scipy_csr(module.D).astype(np.float64), None, (module.out_features,)))


MODULES: dict[type[nn.Module], Callable[[Assembly, Any, Value], Value]] = {
    nn.Linear: _linear,
    nn.Flatten: _flatten,
    nn.ReLU: _activate("relu"),
    nn.LeakyReLU: _leaky,
    nn.Tanh: _activate("tanh"),
    nn.Sigmoid: _activate("sigmoid"),
    nn.Identity: _same,
    nn.Dropout: _same,
    ImplicitModel: implicit_value,
}


def sum_value(a: Value, b: Value) -> Value:
    """The sum of two values of one shape."""
    if a.shape != b.shape:
        raise ValueError(f"it adds values of shapes {a.shape} and {b.shape}")
    n = max(a.X.shape[1], b.X.shape[1])
    return Value(sp.csr_array(_wide(a.X, n) + _wide(b.X, n)), sp.csr_array(a.U + b.U), a.c + b.c, a.shape)


def _flat(value: Value, start: int = 0, end: int = -1) -> Value:
    """torch.flatten of a batch; dimension 0 is the sample."""
    ndim = len(value.shape) + 1
    start, end = start % ndim, end % ndim
    if start == 0:
        raise ValueError("it flattens the batch: start_dim must be 1 or more")
    middle = math.prod(value.shape[start - 1 : end])
    return replace(value, shape=(*value.shape[: start - 1], middle, *value.shape[end:]))


def _function_add(assembly: Assembly, a: Any, b: Any) -> Value:
    if not (isinstance(a, Value) and isinstance(b, Value)):
        raise TypeError("only sums of two tensors that depend on the input are read")
    return sum_value(a, b)


def _function(name: str) -> Callable[..., Value]:
    def rule(assembly: Assembly, value: Value, inplace: bool = False) -> Value:
        return assembly.states(value, resolve_activation(name, len(value.c)))

    return rule


FUNCTIONS: dict[Any, Callable[..., Value]] = {
    operator.add: _function_add,
    operator.iadd: _function_add,
    torch.add: _function_add,
    torch.relu: _function("relu"),
    nn.functional.relu: _function("relu"),
    torch.tanh: _function("tanh"),
    torch.sigmoid: _function("sigmoid"),
    torch.flatten: lambda assembly, value, start_dim=0, end_dim=-1: _flat(value, start_dim, end_dim),
}
METHODS: dict[str, Callable[..., Value]] = {
    "relu": _function("relu"),
    "tanh": _function("tanh"),
    "sigmoid": _function("sigmoid"),
    "flatten": lambda assembly, value, start_dim=0, end_dim=-1: _flat(value, start_dim, end_dim),
}


def _numpy(t: torch.Tensor) -> np.ndarray:
    return t.detach().cpu().double().numpy()


class Tracer(fx.Tracer):
    """torch.fx, with the modules that have a rule, and torch's own ones, taken whole."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
            return False
        return type(m) in MODULES or super().is_leaf_module(m, module_qualified_name)


def assemble(network: nn.Module, shape: tuple[int, ...]) -> tuple[Assembly, Value, fx.GraphModule | None, dict[str, Value]]:
    """The network's states and its output value; the traced graph and the value of every node, to compare them with.

    Raises: TypeError naming the module, by its path and type, or the function that has no rule; ValueError for shapes that do not fit.
    """
    assembly = Assembly(math.prod(shape))
    if type(network) in MODULES:
        return assembly, _apply(MODULES[type(network)], type(network).__name__, assembly, network, assembly.input(shape)), None, {}
    try:
        graph = Tracer().trace(network)
    except Exception as error:  # whatever the network's forward raises when it is given a symbol
        raise TypeError(f"{type(network).__name__} cannot be traced by torch.fx: {error}") from error
    traced = fx.GraphModule(network, graph)
    values: dict[str, Any] = {}
    for node in graph.nodes:
        known = fx.node.map_arg((node.args, node.kwargs), lambda n: values[n.name])
        args, kwargs = known
        if node.op == "placeholder":
            if values:
                raise TypeError(f"{type(network).__name__}.forward has a second argument, {node.target!r}: a model has one input")
            values[node.name] = assembly.input(shape)
        elif node.op == "call_module":
            module = network.get_submodule(node.target)
            where = f"module {node.target!r} ({type(module).__name__})"
            if type(module) not in MODULES:
                raise TypeError(f"{where} has no conversion; known are {', '.join(sorted(m.__name__ for m in MODULES))}")
            values[node.name] = _apply(MODULES[type(module)], where, assembly, module, *args, **kwargs)
        elif node.op in ("call_function", "call_method"):
            rule = (FUNCTIONS if node.op == "call_function" else METHODS).get(node.target)
            path = list(node.meta.get("nn_module_stack", {}).values())
            where = f"{getattr(node.target, '__name__', node.target)!s} in the forward of {_owner(path, network)}"
            if rule is None:
                raise TypeError(f"{where} has no conversion")
            values[node.name] = _apply(rule, where, assembly, *args, **kwargs)
        elif node.op == "output":
            (value,) = args
            if not isinstance(value, Value):
                raise TypeError(f"{type(network).__name__} must return one tensor that depends on the input, it returns {value!r}")
            return assembly, value, traced, values
        else:
            raise TypeError(f"{type(network).__name__} reads its attribute {node.target!r} in forward, which has no conversion")
    raise TypeError(f"{type(network).__name__} returns nothing")


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


def differing_node(traced: fx.GraphModule, values: dict[str, Value], assembly: Assembly, u: np.ndarray, shape: tuple[int, ...], tol: float) -> str | None:
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
