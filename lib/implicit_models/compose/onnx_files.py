"""Networks in files of the Open Neural Network Exchange (ONNX) as torch networks and as implicit models.

The nodes of the file become modules and functions of torch that `tracing` reads; what depends on no input, arithmetic
with shapes among it, is computed by the evaluator of the package `onnx`. The network is what the file says for one
sample.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx

from implicit_models.compose.interconnect import from_network
from implicit_models.compose.onnx_builder import NetworkBuilder, Operation, Value, of_sample
from implicit_models.compose.onnx_operators import OPERATORS
from implicit_models.model import ImplicitModel

RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


def network_from_onnx(path: str | Path, input_shape: Sequence[int] | None = None) -> fx.GraphModule:
    """The network of an ONNX file, of torch's functions and modules, in evaluation mode.

    The first axis of the input is the batch if it has size 1 or no fixed size; an input of one axis has no batch. Clip
    is written in ReLUs, h - relu(h - l - relu(x - l)).

    Args:
        path: of the file, or of its gzip, with one input and one output. Operators: `onnx_operators.OPERATORS`.
        input_shape: of a sample, without the batch, if the file leaves it open.

    Returns:
        network (N, *S) -> (N, q) with the file's dtype, whose attribute `input_shape` is S. Outputs of several axes are
        flattened row by row.

    Raises:
        ImportError: without the package onnx.
        OSError: for a file that cannot be read.
        TypeError: naming the node and its operator, if that has no conversion, and inputs of other types than single
            and double precision.
        ValueError: for what is no ONNX file, for several inputs or outputs, naming an axis of the input without a size,
            and naming the node whose attributes, inputs or shapes have no conversion.

    Source:
        Open Neural Network Exchange, Operators and IR (onnx.ai/onnx).
    """
    return _read(path, input_shape)[0]


def _read(path: str | Path, input_shape: Sequence[int] | None) -> tuple[fx.GraphModule, torch.dtype]:
    """The network of a file, and the type of its numbers."""
    model = _loaded(path)
    graph = model.graph
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
    if opset is None:
        raise ValueError(f"{path} does not say which version of ONNX's operators it uses")
    newest = _onnx().defs.onnx_opset_version()
    if opset > newest:
        raise ValueError(f"{path} uses version {opset} of ONNX's operators, the installed package knows {newest}")
    if graph.sparse_initializer:
        raise ValueError(f"{path} has sparse constants, which have no conversion")
    values: dict[str, Value | np.ndarray] = {t.name: _onnx().numpy_helper.to_array(t) for t in graph.initializer}
    inputs = [i for i in graph.input if i.name not in values]
    for what, found in (("inputs", inputs), ("outputs", graph.output)):
        if len(found) != 1:
            raise ValueError(f"{path} has {len(found)} {what}, {[f.name for f in found]}: a model has one")
    shape = _input_shape(path, inputs[0], input_shape)
    builder = NetworkBuilder(_dtype(path, inputs[0]))
    values[inputs[0].name] = builder.input(shape)
    readers = Counter([name for node in graph.node for name in node.input] + [graph.output[0].name])
    unread: dict[str, str] = {}
    for node in graph.node:
        label = f"node {node.name!r}" if node.name else f"the node that makes {node.output[0]!r}"
        where = f"{path}: {label} ({node.op_type})"
        try:
            _convert(builder, node, opset, model.opset_import, values, readers, unread)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{where}: {error}") from error
        except (RuntimeError, IndexError, KeyError) as error:  # of torch, and of onnx's evaluator
            raise ValueError(f"{where}: {error}") from error
    out = _value_of(graph.output[0].name, values, unread)
    if not isinstance(out, Value):
        raise ValueError(f"{path}: the output {graph.output[0].name!r} does not depend on the input")
    network = builder.finish(out)
    network.input_shape = of_sample(shape)  # type: ignore[assignment]  # what a caller goes on with
    return network, builder.dtype


def from_onnx(
    path: str | Path, input_shape: Sequence[int] | None = None, *, dtype: torch.dtype | None = None, **settings: Any
) -> ImplicitModel:
    """The implicit model of the network in an ONNX file.

    Args:
        path: of the file.
        input_shape: of a sample, if the file leaves it open.
        dtype: of the matrices; the file's if None.
        settings: of the solver, as in `from_network`.

    Returns:
        model (N, p) -> (N, q); inputs and outputs are flattened row by row.

    Raises:
        ImportError, OSError, TypeError, ValueError: as `network_from_onnx` and `from_network`.
    """
    network, own = _read(path, input_shape)
    shape: Any = network.input_shape
    return from_network(network, shape, dtype=dtype or own, **settings)


def _onnx() -> Any:
    try:
        import onnx
        import onnx.reference
    except ImportError as error:
        raise ImportError("ONNX files need onnx: pip install 'implicit-models[onnx]'", name="onnx") from error
    return onnx


def _loaded(path: str | Path) -> Any:
    onnx, path = _onnx(), Path(path)
    data = path.read_bytes()
    try:
        if data[:2] == b"\x1f\x8b":
            model = onnx.load_model_from_string(gzip.decompress(data))
        else:
            model = onnx.load(path)
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise ValueError(f"{path} is no gzip: {error}") from error
        raise
    except Exception as error:  # of the parser of the format, which has classes of its own
        raise ValueError(f"{path} is no ONNX file: {error}") from error
    if not model.graph.node:
        raise ValueError(f"{path} holds no network")
    return model


def _dtype(path: str | Path, given: Any) -> torch.dtype:
    onnx = _onnx()
    kind = given.type.tensor_type.elem_type
    types = {onnx.TensorProto.FLOAT: torch.float32, onnx.TensorProto.DOUBLE: torch.float64}
    if kind not in types:
        name = onnx.TensorProto.DataType.Name(kind)
        raise TypeError(f"{path}: the input {given.name!r} is {name}, only FLOAT and DOUBLE are read")
    return types[kind]


def _input_shape(path: str | Path, given: Any, wanted: Sequence[int] | None) -> tuple[int, ...]:
    """ONNX's shape of one sample, with the batch where there is one."""
    if not given.type.tensor_type.HasField("shape"):
        if wanted is None:
            raise ValueError(f"{path}: the input {given.name!r} has no shape: pass input_shape")
        return (1, *wanted)
    dims = given.type.tensor_type.shape.dim
    sizes = [d.dim_value if d.dim_value > 0 else None for d in dims]
    batch = len(sizes) > 1 and sizes[0] in (None, 1)
    sample = sizes[1:] if batch else sizes
    if wanted is not None:
        if len(wanted) != len(sample) or any(s not in (None, w) for s, w in zip(sample, wanted)):
            raise ValueError(f"{path} reads samples of shape {_words(sample)}, not {tuple(wanted)}")
        sample = [int(s) for s in wanted]
    if None in sample:
        axis = sample.index(None) + batch
        name = dims[axis].dim_param
        raise ValueError(
            f"{path}: axis {axis}{f' ({name})' if name else ''} of the input {given.name!r} has no fixed size: pass"
            " input_shape"
        )
    shape = (1, *sample) if batch else tuple(sample)
    return tuple(int(s) for s in shape if s is not None)


def _words(sizes: Sequence[int | None]) -> str:
    return f"({', '.join('?' if s is None else str(s) for s in sizes)})"


def _value_of(name: str, values: dict[str, Value | np.ndarray], unread: dict[str, str]) -> Value | np.ndarray | None:
    """Raises: ValueError for a name that stands for nothing that is read."""
    if not name:
        return None
    if name in unread:
        raise ValueError(f"it reads {name!r}, {unread[name]}, which has no conversion")
    if name not in values:
        raise ValueError(f"it reads {name!r}, which no earlier node makes")
    return values[name]


def _convert(
    builder: NetworkBuilder,
    node: Any,
    opset: int,
    opsets: Any,
    values: dict[str, Value | np.ndarray],
    readers: Counter[str],
    unread: dict[str, str],
) -> None:
    """The values of a node of the file."""
    onnx = _onnx()
    if node.domain not in ("", "ai.onnx"):
        raise TypeError(f"operators of {node.domain!r} have no conversion")
    operands = [_value_of(name, values, unread) for name in node.input]
    if not any(isinstance(o, Value) for o in operands) and node.op_type not in RANDOM and not _has_graph(node):
        for name, array in zip(node.output, _evaluated(node, operands, opsets), strict=True):
            values[name] = array
        return
    if node.op_type not in OPERATORS:
        raise TypeError(f"this operator has no conversion; known are {', '.join(sorted(OPERATORS))}")
    attributes = {a.name: _plain(onnx.helper.get_attribute_value(a)) for a in node.attribute}
    shared = Counter(v.node.name for v in values.values() if isinstance(v, Value))
    alone = frozenset(
        i
        for i, (name, v) in enumerate(zip(node.input, operands))
        if isinstance(v, Value) and readers[name] == 1 and shared[v.node.name] == 1
    )
    operation = Operation(node.op_type, opset, attributes, tuple(node.output), alone)
    builder.at(node.name or node.output[0])
    made = OPERATORS[node.op_type](builder, operation, *operands)
    if attributes:
        raise ValueError(f"its attributes {attributes} have no conversion in version {opset} of the operators")
    each = made if isinstance(made, tuple) else (made,)
    values.update(zip(node.output, each))
    for name in node.output[len(each) :]:
        unread[name] = f"another output of {node.op_type} {node.name!r} than the first"


def _plain(attribute: Any) -> Any:
    return attribute.decode() if isinstance(attribute, bytes) else attribute


def _has_graph(node: Any) -> bool:
    return any(a.HasField("g") or a.graphs for a in node.attribute)


def _evaluated(node: Any, operands: Sequence[Any], opsets: Any) -> list[np.ndarray]:
    """What a node makes of constants."""
    onnx = _onnx()
    names = [name for name in node.input if name]
    kinds = onnx.helper.make_empty_tensor_value_info
    graph = onnx.helper.make_graph([node], "constant", [kinds(n) for n in names], [kinds(n) for n in node.output])
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    given = {name: array for name, array in zip(node.input, operands, strict=True) if name}
    return [np.asarray(array) for array in onnx.reference.ReferenceEvaluator(model).run(None, given)]
