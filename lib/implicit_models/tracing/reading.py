"""A torch network read into a graph of typed steps.

The network is traced by torch.fx, so that whatever is composed of the modules and functions with a rule is read,
residual sums included. A module or function without a rule is named, and so is the line that stops the trace.

Source:
    Tsai thesis (2024), section 2.5.
"""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from implicit_models.matrices import check_network
from implicit_models.tracing import rearrangements
from implicit_models.tracing.builder import BATCH, Builder
from implicit_models.tracing.functions import FUNCTIONS, IN_PLACE, METHODS
from implicit_models.tracing.modules import MODULES, READ
from implicit_models.tracing.nodes import Graph, Input, Node, attribute
from implicit_models.tracing.reparametrisation import plain_copy

TRIED = 3  # samples that the steps are compared with the network on


def _changing(function: Callable[..., Any]) -> Callable[..., fx.Proxy]:
    return lambda self, other: self.tracer.create_proxy("call_function", function, (self, other), {})


class _Symbol(fx.Proxy):
    """A symbol that records sums and products in place as such."""

    __iadd__ = _changing(operator.iadd)
    __isub__ = _changing(operator.isub)
    __imul__ = _changing(operator.imul)
    __itruediv__ = _changing(operator.itruediv)


class Tracer(fx.Tracer):
    """torch.fx, with the modules that have a rule, and torch's own ones, taken whole."""

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Symbol(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
            return False
        return type(m) in MODULES or super().is_leaf_module(m, module_qualified_name)


@torch.inference_mode(False)  # the copy is for gradients too
def read(
    network: nn.Module, input_shape: tuple[int, ...], *, dtype: torch.dtype | None = None, whole_relu6: bool = False
) -> Graph:
    """The steps of a network in evaluation mode, in order of execution.

    Pruned, weight-normed and spectrally normed weights are read as what they are at present. What a forward changes in
    place is a new value. The steps are compared with the network on random inputs.

    Args:
        network: modules of `tracing.modules.MODULES`, nested in any module whose forward torch.fx traces, with the
            functions and methods of `tracing.functions`. It is copied.
        input_shape: of a sample, (C, *S) or (F,).
        dtype: of the copy; the network's own if None.
        whole_relu6: ReLU6 is one map, "relu6", instead of two ReLUs.

    Returns:
        `Graph`.

    Raises:
        TypeError: naming the module, by its path and type, or the function that has no rule, and the line of a forward
            that cannot be traced.
        ValueError: for a module in training mode whose map depends on it, for a parameter that is not finite, and if
            the steps do not make the network's outputs, naming the first that does not.
        WrongShape: for samples of a shape that a module does not take.
    """
    if not isinstance(network, nn.Module):
        raise TypeError(f"network must be a torch module, got {type(network).__name__}")
    check_network(network)
    title = type(network).__name__
    own = plain_copy(network).cpu().requires_grad_(False)
    own = own if dtype is None else own.to(dtype)
    alone = type(own) in MODULES
    traced = _traced(nn.Sequential(own) if alone else own, title)
    tensors = {id(t): name for name, t in (*traced.named_parameters(), *traced.named_buffers())}
    used = next((t.dtype for t in (*own.parameters(), *own.buffers()) if t.is_floating_point()), None)
    used = used or dtype or torch.get_default_dtype()
    builder = Builder(tensors | {id(m): name for name, m in traced.named_modules()}, used, whole_relu6)
    values: dict[str, Any] = {}
    for node in traced.graph.nodes:
        args, kwargs = _by_position(*fx.node.map_arg((node.args, node.kwargs), lambda n: values[n.name]))
        if node.op == "placeholder":
            if values:
                raise TypeError(f"{title}.forward has a second argument, {node.target!r}: a model has one input")
            builder.at(node.name, "", "the input")
            values[node.name] = builder.add(Input, [], input_shape)
        elif node.op == "get_attr":
            values[node.name] = _constant(traced, node.target, title)
        elif node.op == "output":
            (value,) = args
            if not isinstance(value, Node):
                raise TypeError(f"{title} must return one tensor that depends on the input, it returns {_words(value)}")
            graph = Graph(traced, tuple(builder.nodes), value.name, used)
            places = {name: v.name for name, v in values.items() if isinstance(v, Node)}
            _compare(graph, own, places)
            return graph
        elif _constant_alone(args, kwargs):
            values[node.name] = _computed(traced, node, args, kwargs)
        else:
            rule, path, where = _rule(traced, node, args, title if alone else "", network)
            builder.at(node.name, path, where)
            try:
                values[node.name] = rule(builder, *args, **kwargs)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{where}: {error}") from error
            if _in_place(traced, node) and isinstance(args[0], Node):
                for name in [name for name, v in values.items() if v is args[0]]:
                    values[name] = values[node.name]
    raise TypeError(f"{title} returns nothing")


def _traced(network: nn.Module, title: str) -> fx.GraphModule:
    """Raises: TypeError naming the line of the forward that stops the trace."""
    try:
        return fx.GraphModule(network, Tracer().trace(network))
    except Exception as error:  # whatever the network's forward raises when it is given a symbol
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/torch/" not in f.filename]
        last = frames[-1] if len(frames) > 1 else None
        line = f" at line {last.lineno} of {last.filename}, `{last.line}`" if last is not None else ""
        raise TypeError(
            f"{title} cannot be traced by torch.fx: {error}{line}. The forward is run once on a symbol in place of the"
            " data: write it without branches and loops that depend on values, sizes as x.shape[0] instead of len(x),"
            " and tensors of zeros as x.new_zeros(x.shape[0], k) instead of torch.zeros"
        ) from error


def _rule(
    traced: fx.GraphModule, node: fx.Node, args: tuple, alone: str, network: nn.Module
) -> tuple[Callable[..., Any], str, str]:
    """The rule of a node of the trace, the path of its module, and what it is in words.

    Raises:
        TypeError: where there is none.
    """
    if node.op == "call_module":
        path = str(node.target)
        module = traced.get_submodule(path)
        where = alone or f"module {path!r} ({type(module).__name__})"
        if type(module) not in MODULES:
            raise TypeError(f"{where} has no conversion; known are {READ}")
        rule = MODULES[type(module)]
        return (lambda b, *args, **kwargs: rule(b, module, *args, **kwargs)), path, where
    stack = list(node.meta.get("nn_module_stack", {}).values())
    owner = f"{stack[-1][0]!r} ({getattr(stack[-1][1], '__name__', stack[-1][1])})" if stack else type(network).__name__
    where = f"{getattr(node.target, '__name__', node.target)!s} in the forward of {owner}"
    if getattr(node.target, "__module__", None) == "_operator" and rearrangements.all_sizes(args):
        return rearrangements.of_sizes(node.target), "", where  # type: ignore[arg-type]
    table: Mapping[Any, Any] = FUNCTIONS if node.op == "call_function" else METHODS
    if node.op not in ("call_function", "call_method") or node.target not in table:
        raise TypeError(f"{where} has no conversion")
    return table[node.target], "", where


def _by_position(args: tuple, kwargs: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Arguments that torch calls `input` and `other` come first: the rules have names of their own for them."""
    rest = dict(kwargs)
    for place, name in enumerate(("input", "other")):
        if name in rest and len(args) == place:
            args = (*args, rest.pop(name))
    return args, rest


def _constant(network: nn.Module, path: str, title: str) -> Tensor:
    """A parameter or buffer that the forward reads by itself.

    Raises:
        TypeError: for any other attribute.
    """
    found = attribute(network, path)
    if not isinstance(found, Tensor):
        raise TypeError(f"{title} reads its attribute {path!r} in forward, which has no conversion")
    return found


def _leaves(*values: Any) -> list[Any]:
    """What nested arguments hold."""
    out: list[Any] = []
    for value in values:
        if isinstance(value, (tuple, list)):
            out += _leaves(*value)
        elif isinstance(value, dict):
            out += _leaves(*value.values())
        else:
            out.append(value)
    return out


def _constant_alone(args: tuple, kwargs: Mapping[str, Any]) -> bool:
    """Whether arguments are constants, of which one is a tensor."""
    leaves = _leaves(args, dict(kwargs))
    return any(isinstance(v, Tensor) for v in leaves) and not any(
        isinstance(v, Node) or (isinstance(v, str) and v == BATCH) for v in leaves
    )


def _computed(traced: fx.GraphModule, node: fx.Node, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    """The value of a step that reads constants alone."""
    with torch.no_grad():
        if node.op == "call_module":
            return traced.get_submodule(str(node.target))(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _words(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, (tuple, list, dict)) else repr(value)


def _in_place(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Whether the network goes on with the result where it named the argument."""
    if node.op == "call_module":
        return bool(getattr(traced.get_submodule(str(node.target)), "inplace", False))
    if node.op == "call_method":
        return str(node.target).endswith("_")
    return node.target in IN_PLACE or node.kwargs.get("inplace") is True  # torch.fx records it by name


def _compare(graph: Graph, network: nn.Module, places: Mapping[str, str]) -> None:
    """Raises: ValueError where the steps do not make the network's outputs of random inputs."""
    u = torch.randn(TRIED, *graph.input.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u = u.to(graph.dtype)
    title = type(network).__name__
    with torch.no_grad():
        y, mine = network(u.clone()), graph.values(u)
    out = mine[graph.output]
    if len(y) != TRIED:
        raise ValueError(f"{title} makes {len(y)} outputs of {TRIED} samples: the batch must stay dimension 0")
    if not _equal(out, y, graph.dtype):
        where = _first_difference(graph, u, mine, places)
        raise ValueError(
            f"the model differs from {title} by {float((out - y).abs().max()):.3g} on random inputs, its forward does"
            " more than its types say: it is random, changes in place a view of what it reads again, or has hooks"
            + (f"; first at {where}" if where else "")
        )


def _equal(a: Tensor, b: Tensor, dtype: torch.dtype) -> bool:
    tol = 1e3 * torch.finfo(dtype).eps
    there = b[torch.isfinite(b)]
    size = float(there.abs().max()) if len(there) else 1.0
    return a.shape == b.shape and torch.allclose(a, b, rtol=tol, atol=tol * size, equal_nan=True)


def _first_difference(graph: Graph, u: Tensor, mine: Mapping[str, Tensor], places: Mapping[str, str]) -> str | None:
    """The first step of the trace whose value is another one."""

    class Compare(fx.Interpreter):
        found: str | None = None

        def run_node(self, n: fx.Node) -> Any:
            out = super().run_node(n)
            if self.found is None and n.name in places and n.op != "placeholder" and isinstance(out, Tensor):
                if not _equal(mine[places[n.name]], out, graph.dtype):
                    self.found = f"{n.op.removeprefix('call_')} {n.target!r}"
            return out

    compare = Compare(graph.traced)
    with torch.no_grad():
        compare.run(u.clone())
    return compare.found
