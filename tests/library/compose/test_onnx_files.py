"""ONNX files as networks, against onnx's own evaluator of one sample at a time."""

import gzip
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from implicit_models.compose import from_network, from_onnx, network_from_onnx  # noqa: E402

RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.standard_normal(shape)


def node(kind, inputs, outputs="y", **attributes):
    name = attributes.pop("name", f"a {kind}")
    return helper.make_node(kind, inputs.split(",") if inputs else [], outputs.split(","), name=name, **attributes)


def file_of(folder, nodes, shape, constants=None, *, opset=17, outputs=("y",), kind=TensorProto.DOUBLE, extra=()):
    """A file with the input x."""
    nodes = [nodes] if not isinstance(nodes, list) else nodes
    given = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info("x", kind, shape), *extra],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
        given,
    )
    path = folder / "made.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def assert_agrees(path, shape, *, model=True, tol=1e-12, of=None):
    """The network, and the implicit model, make what onnx's evaluator, or `of`, makes of each sample."""
    network = network_from_onnx(path)
    u = np.random.default_rng(1).standard_normal((4, *network.input_shape))
    reference = ReferenceEvaluator(str(path))
    whole = [1 if isinstance(s, str) or s is None else s for s in shape]
    of = of or (lambda sample: reference.run(None, {"x": sample})[0])
    wanted = np.stack([of(sample.reshape(whole)).reshape(-1) for sample in u])
    y = network(torch.from_numpy(u))
    assert tuple(y.shape) == wanted.shape
    np.testing.assert_allclose(y.numpy(), wanted, rtol=tol, atol=tol)
    if model:
        made = from_onnx(path)
        np.testing.assert_allclose(made(torch.from_numpy(u).flatten(1)).numpy(), wanted, rtol=1e-9, atol=1e-9)
    return network


I64 = lambda *n: np.array(n, dtype=np.int64)

# name -> (node, shape of the input, constants, version of the operators)
CASES = {
    "gemm": (node("Gemm", "x,W,c", transB=1, alpha=0.5, beta=2.0), [1, 3], {"W": numbers(4, 3), "c": numbers(4)}, 17),
    "gemm row": (node("Gemm", "x,W,c"), [1, 3], {"W": numbers(3, 4), "c": numbers(1, 4)}, 17),
    "gemm one": (node("Gemm", "x,W,c"), ["N", 3], {"W": numbers(3, 4), "c": numbers(1)}, 11),
    "gemm without c": (node("Gemm", "x,W"), [1, 3], {"W": numbers(3, 4)}, 11),
    "gemm of samples": (node("Gemm", "x,W,c"), [2, 3], {"W": numbers(3, 4), "c": numbers(2, 1)}, 17),
    "gemm transA": (node("Gemm", "x,W", transA=1), [2, 3], {"W": numbers(2, 4)}, 17),
    "gemm left": (node("Gemm", "W,x,c", alpha=3.0), [2, 3], {"W": numbers(4, 2), "c": numbers(3)}, 17),
    "gemm left transB": (node("Gemm", "W,x", transB=1), [1, 3], {"W": numbers(4, 3)}, 17),
    "matmul": (node("MatMul", "x,W"), [1, 2, 3], {"W": numbers(3, 4)}, 17),
    "matmul stack": (node("MatMul", "x,W"), [1, 3], {"W": numbers(1, 3, 4)}, 17),
    "matmul of a vector": (node("MatMul", "x,W"), [3], {"W": numbers(3, 4)}, 17),
    "matmul with a vector": (node("MatMul", "x,W"), [1, 2, 3], {"W": numbers(3)}, 17),
    "matmul left": (node("MatMul", "W,x"), [1, 3, 2], {"W": numbers(4, 3)}, 17),
    "matmul left of one": (node("MatMul", "W,x"), [1, 1, 2], {"W": numbers(1, 1)}, 17),
    "matmul left over the batch": (node("MatMul", "W,x"), [1, 3], {"W": numbers(2, 1)}, 17),
    "matmul left of a vector": (node("MatMul", "W,x"), [3], {"W": numbers(4, 3)}, 17),
    "matmul row left": (node("MatMul", "W,x"), [1, 3, 2], {"W": numbers(3)}, 17),
    "add": (node("Add", "x,c"), [1, 2, 3], {"c": numbers(3)}, 17),
    "add column": (node("Add", "c,x"), [1, 2, 3], {"c": numbers(2, 1)}, 17),
    "add wider": (node("Add", "x,c"), [1, 3], {"c": numbers(4, 1)}, 17),
    "add more axes": (node("Add", "x,c"), [1, 3], {"c": numbers(2, 1, 3)}, 17),
    "add to a vector": (node("Add", "x,c"), [3], {"c": numbers(1, 3)}, 17),
    "sub": (node("Sub", "x,c"), [1, 2, 3], {"c": numbers(1, 2, 3)}, 7),
    "sub from": (node("Sub", "c,x"), [1, 2, 3], {"c": numbers(2, 3)}, 17),
    "sub from a number": (node("Sub", "c,x"), [1, 3], {"c": np.array(1.5)}, 17),
    "mul": (node("Mul", "x,c"), [1, 2, 3], {"c": numbers(2, 1)}, 17),
    "mul number": (node("Mul", "c,x"), [1, 3], {"c": np.array([2.5])}, 17),
    "div": (node("Div", "x,c"), [1, 2, 3], {"c": numbers(3)}, 17),
    "neg": (node("Neg", "x"), [1, 3], {}, 17),
    "sum": (node("Sum", "x,c,x"), [1, 3], {"c": numbers(3)}, 17),
    "sum of one": (node("Sum", "x"), [1, 3], {}, 17),
    "broadcast": ([node("ReduceMean", "x", "m", axes=[2]), node("Sub", "x,m")], [1, 2, 3], {}, 17),
    "broadcast rank": (
        [node("ReduceMean", "x", "m", axes=[0, 2], keepdims=0), node("Squeeze", "x,zero", "z"), node("Sub", "z,m")],
        [1, 3, 3],
        {"zero": I64(0)},
        17,
    ),
    "relu": (node("Relu", "x"), [1, 3], {}, 6),
    "leaky": (node("LeakyRelu", "x", alpha=0.2), [1, 3], {}, 17),
    "leaky default": (node("LeakyRelu", "x"), [1, 3], {}, 17),
    "prelu": (node("PRelu", "x,s"), [1, 2, 3, 2], {"s": np.array([0.1, 0.7]).reshape(2, 1, 1)}, 17),
    "prelu one": (node("PRelu", "x,s"), [1, 2, 3], {"s": np.array([0.3])}, 17),
    "prelu last axis": (node("PRelu", "x,s"), [1, 3, 2], {"s": np.array([0.1, 0.7])}, 17),
    "prelu square": (node("PRelu", "x,s"), [1, 2, 2], {"s": np.array([0.1, 0.7])}, 17),
    "prelu each": (node("PRelu", "x,s"), [2, 3], {"s": RNG.random((2, 3))}, 17),
    "clip": (node("Clip", "x,l,h"), [1, 9], {"l": np.array(-0.4), "h": np.array(0.7)}, 13),
    "clip below": (node("Clip", "x,l"), [1, 9], {"l": np.array(0.2)}, 13),
    "clip above": (node("Clip", "x,,h"), [1, 9], {"h": np.array(0.2)}, 13),
    "clip nothing": ([node("Clip", "x", "z"), node("Neg", "z")], [1, 3], {}, 13),
    "tanh": (node("Tanh", "x"), [1, 3], {}, 17),
    "sigmoid": (node("Sigmoid", "x"), [2, 3], {}, 17),
    "softmax": (node("Softmax", "x"), [1, 2, 3], {}, 13),
    "softmax axis": (node("Softmax", "x", axis=1), [1, 2, 3], {}, 17),
    "softmax batch": (node("Softmax", "x", axis=0), [1, 3], {}, 17),
    "softmax first": (node("Softmax", "x", axis=0), [2, 3], {}, 17),
    "flatten": (node("Flatten", "x"), [1, 2, 3], {}, 17),
    "flatten all": (node("Flatten", "x", axis=0), [1, 2, 3], {}, 17),
    "flatten negative": (
        [node("Flatten", "x", "z", axis=-1), node("MatMul", "W,z")],
        [1, 2, 3],
        {"W": numbers(4, 2)},
        17,
    ),
    "reshape": (
        [node("Reshape", "x,s", "z"), node("Add", "z,c")],
        [1, 6],
        {"s": I64(0, 3, -1), "c": numbers(3, 2)},
        17,
    ),
    "reshape without batch": (
        [node("Reshape", "x,s", "z"), node("MatMul", "z,W")],
        [1, 6],
        {"s": I64(-1), "W": numbers(6, 2)},
        17,
    ),
    "reshape batch": (
        [node("Reshape", "x,s", "z"), node("MatMul", "z,W")],
        ["N", 6],
        {"s": I64(2, 3), "W": numbers(3, 2)},
        17,
    ),
    "transpose": (node("Transpose", "x", perm=[0, 2, 1]), [1, 2, 3], {}, 17),
    "transpose batch": (node("Transpose", "x", perm=[2, 0, 1]), [1, 2, 3], {}, 17),
    "transpose default": (node("Transpose", "x"), [2, 3], {}, 17),
    "transpose of one": (node("Transpose", "x"), [1, 1, 3], {}, 17),
    "concat": (node("Concat", "x,x", axis=2), [1, 2, 3], {}, 17),
    "concat batch": (node("Concat", "x,x", axis=0), [1, 2], {}, 17),
    "concat negative": (node("Concat", "x,x", axis=-1), [1, 2], {}, 17),
    "concat constants": (
        node("Concat", "c,x,d,x", axis=1),
        [1, 2, 3],
        {"c": numbers(1, 1, 3), "d": numbers(1, 2, 3)},
        17,
    ),
    "concat constants batch": (node("Concat", "c,x", axis=0), [1, 3], {"c": numbers(2, 3)}, 17),
    "concat constants one": (node("Concat", "c,x", axis=1), [1, 3], {"c": numbers(1, 1)}, 17),
    "identity": ([node("Identity", "x", "z"), node("Dropout", "z")], [1, 3], {}, 17),
    "dropout 6": (node("Dropout", "x", ratio=0.3), [1, 3], {}, 7),
    "dropout 13": (node("Dropout", "x,r,t"), [1, 3], {"r": np.float32(0.3), "t": np.array(False)}, 13),
    "cast": (node("Cast", "x", to=TensorProto.DOUBLE), [1, 3], {}, 17),
    "pad": (node("Pad", "x,p,v"), [1, 2, 3], {"p": I64(0, 1, 0, 0, 0, 2), "v": np.array(0.5)}, 17),
    "pad batch": (node("Pad", "x,p"), [1, 2], {"p": I64(1, 0, 0, 1)}, 17),
    "pad axes": (node("Pad", "x,p,,a"), [1, 2, 3], {"p": I64(1, 2), "a": I64(-1)}, 18),
    "slice": (node("Slice", "x,s,e,a"), [1, 4, 5], {"s": I64(1, -3), "e": I64(9, 5), "a": I64(1, 2)}, 17),
    "slice steps": (
        node("Slice", "x,s,e,a,t"),
        [1, 4, 5],
        {"s": I64(0, -1), "e": I64(9, -99), "a": I64(1, -1), "t": I64(2, -2)},
        17,
    ),
    "slice batch": (node("Slice", "x,s,e"), [1, 4], {"s": I64(0), "e": I64(1)}, 17),
    "slice first": (node("Slice", "x,s,e"), [3, 4], {"s": I64(1), "e": I64(3)}, 17),
    "split": ([node("Split", "x,s", "p,q", axis=1), node("Sub", "q,p")], [1, 4], {"s": I64(2, 2)}, 13),
    "split equal": ([node("Split", "x", "p,q", axis=-1), node("Add", "p,q")], [1, 2, 4], {}, 13),
    "split 18": ([node("Split", "x", "p,q", axis=1, num_outputs=2), node("Concat", "q,p", axis=1)], [1, 5], {}, 18),
    "squeeze": (node("Squeeze", "x,a"), [1, 1, 3], {"a": I64(1)}, 13),
    "squeeze all": ([node("Squeeze", "x", "z"), node("Add", "z,c")], [1, 1, 3], {"c": numbers(3)}, 13),
    "unsqueeze": (
        [node("Unsqueeze", "x,a", "z"), node("Add", "z,c")],
        [1, 3],
        {"a": I64(1, -1), "c": numbers(2, 1, 1)},
        13,
    ),
    "unsqueeze front": (
        [node("Unsqueeze", "x,a", "z"), node("MatMul", "z,W")],
        [3],
        {"a": I64(0), "W": numbers(3, 2)},
        13,
    ),
    "gather": (node("Gather", "x,i", axis=1), [1, 4, 2], {"i": I64(3, 0, -1)}, 17),
    "gather one": (node("Gather", "x,i", axis=2), [1, 4, 2], {"i": np.array(1)}, 17),
    "gather table": (node("Gather", "x,i", axis=1), [1, 4, 2], {"i": I64(3, 0, 1, 1).reshape(2, 2)}, 17),
    "gather batch": ([node("Gather", "x,i", "z"), node("Add", "z,c")], [1, 4], {"i": np.array(0), "c": numbers(4)}, 17),
    "mean": (node("ReduceMean", "x", axes=[1, -1], keepdims=0), [1, 2, 3, 2], {}, 13),
    "mean 18": (node("ReduceMean", "x,a"), [1, 2, 3], {"a": I64(2)}, 18),
    "mean of all": (node("ReduceMean", "x", keepdims=0), [1, 2, 3], {}, 13),
    "mean batch": (node("ReduceMean", "x", axes=[0], keepdims=0), [1, 2, 3], {}, 13),
    "reduce sum": (node("ReduceSum", "x,a", keepdims=0), [1, 2, 3], {"a": I64(1)}, 13),
    "reduce sum noop": (node("ReduceSum", "x", noop_with_empty_axes=1), [1, 2, 3], {}, 13),
    "convolution": (
        node("Conv", "x,W,b", pads=[1, 0, 1, 0], strides=[2, 1]),
        [1, 2, 5, 4],
        {"W": numbers(3, 2, 3, 2), "b": numbers(3)},
        17,
    ),
    "convolution uneven": (node("Conv", "x,W", pads=[0, 1, 1, 2]), [1, 2, 5, 4], {"W": numbers(3, 2, 3, 3)}, 17),
    "convolution groups": (
        node("Conv", "x,W", group=2, dilations=[2, 1], kernel_shape=[2, 2]),
        [1, 4, 5, 4],
        {"W": numbers(6, 2, 2, 2)},
        11,
    ),
    "convolution same upper": (
        node("Conv", "x,W", auto_pad="SAME_UPPER", strides=[2, 2]),
        [1, 1, 6, 5],
        {"W": numbers(2, 1, 3, 2)},
        17,
    ),
    "convolution same lower": (
        node("Conv", "x,W", auto_pad="SAME_LOWER"),
        [1, 1, 6, 5],
        {"W": numbers(2, 1, 2, 3)},
        17,
    ),
    "convolution valid": (node("Conv", "x,W", auto_pad="VALID"), [1, 1, 6, 5], {"W": numbers(2, 1, 2, 3)}, 17),
    "convolution 1d": (
        node("Conv", "x,W,b", pads=[1, 2], strides=[2]),
        [1, 2, 7],
        {"W": numbers(3, 2, 3), "b": numbers(3)},
        17,
    ),
    "maximum": (node("MaxPool", "x", kernel_shape=[2, 3], pads=[1, 1, 1, 1]), [1, 2, 4, 5], {}, 12),
    "maximum ceil": (node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), [1, 1, 5, 3], {}, 12),
    "maximum uneven": (
        node("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 1], pads=[0, 0, 2, 1]),
        [1, 2, 5, 4],
        {},
        12,
    ),
    "maximum same": (
        node("MaxPool", "x", kernel_shape=[3, 2], auto_pad="SAME_UPPER", strides=[2, 2]),
        [1, 1, 4, 5],
        {},
        12,
    ),
    "maximum 1d": (node("MaxPool", "x", kernel_shape=[3], strides=[2], pads=[2, 0]), [1, 2, 6], {}, 12),
    "average": (node("AveragePool", "x", kernel_shape=[2, 3], strides=[2, 1]), [1, 2, 4, 5], {}, 11),
    "average pads": (node("AveragePool", "x", kernel_shape=[2, 3], pads=[1, 1, 1, 1]), [1, 2, 4, 5], {}, 11),
    "average counts": (
        node("AveragePool", "x", kernel_shape=[2, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        [1, 2, 4, 5],
        {},
        11,
    ),
    "average uneven": (node("AveragePool", "x", kernel_shape=[3, 2], pads=[0, 1, 2, 0]), [1, 2, 5, 4], {}, 11),
    "average uneven counts": (
        node("AveragePool", "x", kernel_shape=[3, 2], pads=[0, 1, 2, 0], count_include_pad=1),
        [1, 2, 5, 4],
        {},
        11,
    ),
    "average 1d": (node("AveragePool", "x", kernel_shape=[3], strides=[2], pads=[0, 1]), [1, 2, 6], {}, 11),
    "global average": (node("GlobalAveragePool", "x"), [1, 2, 3, 4], {}, 17),
    "global maximum": (node("GlobalMaxPool", "x"), [1, 2, 3, 4], {}, 17),
    "normalisation": (
        node("BatchNormalization", "x,s,b,m,v", epsilon=1e-3),
        [1, 2, 3, 2],
        {"s": numbers(2), "b": numbers(2), "m": numbers(2), "v": 0.5 + RNG.random(2)},
        15,
    ),
    "normalisation of features": (
        node("BatchNormalization", "x,s,b,m,v"),
        [1, 2],
        {"s": numbers(2), "b": numbers(2), "m": numbers(2), "v": 0.5 + RNG.random(2)},
        15,
    ),
    "product": ([node("Tanh", "x", "t"), node("Sigmoid", "x", "s"), node("Mul", "t,s")], [1, 3], {}, 17),
    "matmul of values": (
        [node("Tanh", "x", "t"), node("Transpose", "t", "r", perm=[0, 2, 1]), node("MatMul", "t,r")],
        [1, 3, 2],
        {},
        17,
    ),
    "shapes": (
        [
            node("Shape", "x", "s"),
            node("Gather", "s,first", "n"),
            node("Constant", "", "minus", value_ints=[-1]),
            node("Concat", "n,minus", "target", axis=0),
            node("Reshape", "x,target", "flat"),
            node("ConstantOfShape", "n", "zero", value=numpy_helper.from_array(np.array([0.25]))),
            node("Add", "flat,zero"),
        ],
        ["batch", 2, 3],
        {"first": I64(0)},
        17,
    ),
    "shared product": (
        [node("MatMul", "x,W", "m"), node("Add", "m,c", "a"), node("Sub", "a,m")],
        [1, 3],
        {"W": numbers(3, 4), "c": numbers(4)},
        17,
    ),
    "product by another name": (
        [
            node("MatMul", "x,W", "m"),
            node("Identity", "m", "i"),
            node("Add", "i,c", "a"),
            node("Concat", "a,m", axis=1),
        ],
        [1, 3],
        {"W": numbers(3, 4), "c": numbers(4)},
        17,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_say_what_onnx_says(tmp_path, name):
    nodes, shape, constants, opset = CASES[name]
    path = file_of(tmp_path, nodes, shape, constants, opset=opset)
    assert_agrees(path, shape, tol=1e-12)


@pytest.mark.parametrize(
    ("nodes", "shape", "wanted"),
    [
        (node("Clip", "x", min=-0.5, max=0.25), [1, 4], lambda x: np.clip(x, -0.5, 0.25)),
        (node("Clip", "x", min=0.0, max=6.0), [1, 4], lambda x: np.clip(x, 0, 6)),
        (node("Clip", "x", min=0.0), [1, 4], lambda x: np.maximum(x, 0)),
        (node("Softmax", "x"), [1, 2, 3], lambda x: np.exp(x) / np.exp(x).sum()),
        (node("Squeeze", "x", axes=[1]), [1, 1, 3], lambda x: x[0]),
        (node("Unsqueeze", "x", axes=[0, 2]), [1, 3], lambda x: x),
        (node("Slice", "x", axes=[1], starts=[1], ends=[3]), [1, 4], lambda x: x[1:3]),
        (node("Pad", "x", pads=[0, 1, 0, 2], value=0.5), [1, 2], lambda x: np.pad(x, (1, 2), constant_values=0.5)),
        ([node("Split", "x", "p,q", axis=1, split=[1, 3]), node("Identity", "q")], [1, 4], lambda x: x[1:]),
        (node("Pad", "x", pads=[0, -1, 0, 2]), [1, 3], lambda x: np.pad(x[1:], (0, 2))),
        (node("GlobalMaxPool", "x"), [1, 2, 5], lambda x: x.max(axis=-1)),
        (node("ReduceSum", "x", axes=[2], keepdims=0), [1, 2, 3], lambda x: x.sum(axis=-1)),
    ],
)
def test_operators_of_version_8_have_attributes(tmp_path, nodes, shape, wanted):
    network = network_from_onnx(file_of(tmp_path, nodes, shape, opset=8))
    u = 4 * np.random.default_rng(1).standard_normal((5, *network.input_shape))
    y = network(torch.from_numpy(u)).numpy()
    for sample, found in zip(u, y):
        np.testing.assert_allclose(found, np.reshape(wanted(sample), -1), atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_convolutions_and_pooling_of_any_padding(tmp_path_factory, data):
    sizes, kernel = (
        data.draw(st.tuples(st.integers(low, high), st.integers(low, high))) for low, high in ((3, 7), (1, 3))
    )
    strides = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    pads = [data.draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
    kind = data.draw(st.sampled_from(["Conv", "MaxPool", "AveragePool"]))
    rest, constants, inputs = {}, {}, "x"
    if kind == "Conv":
        rest["dilations"] = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
        constants["W"], inputs = np.random.default_rng(3).standard_normal((2, 2, *kernel)), "x,W"
    elif kind == "AveragePool":
        rest["count_include_pad"] = data.draw(st.integers(0, 1))
    if all(s <= k for s, k in zip(strides, kernel)) and data.draw(st.booleans()):  # the evaluator crops otherwise
        rest["auto_pad"] = data.draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    else:
        rest["pads"] = pads
    each = node(kind, inputs, kernel_shape=kernel, strides=strides, **rest)
    shape = [1, 2, *sizes]
    path = file_of(tmp_path_factory.mktemp("windows"), each, shape, constants, opset=12)
    try:
        network_from_onnx(path)
    except ValueError as error:
        assert "larger than" in str(error) or "Kernel size" in str(error)
        return
    # the evaluator loses windows of a maximum that is padded unevenly
    by_hand = lambda x: maxima(x, kernel, strides, padding_of(rest, sizes, kernel, strides))
    assert_agrees(path, shape, model=False, of=by_hand if kind == "MaxPool" else None)


def padding_of(rest, sizes, kernel, strides):
    """Entries before and behind each axis, as the standard's table of auto_pad has them."""
    name = rest.get("auto_pad")
    if name is None:
        return list(zip(rest["pads"][:2], rest["pads"][2:], strict=True))
    total = [0 if name == "VALID" else max(0, (-(-n // s) - 1) * s + k - n) for n, k, s in zip(sizes, kernel, strides)]
    less = [t // 2 for t in total]
    return [(t - l, l) if name == "SAME_LOWER" else (l, t - l) for t, l in zip(total, less)]


def maxima(x, kernel, strides, sides):
    padded = np.pad(x, [(0, 0), (0, 0), *sides], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(2, 3))
    return windows[:, :, :: strides[0], :: strides[1]].max(axis=(4, 5))


def small(folder, **more):
    nodes = [node("MatMul", "x,W", "m"), node("Add", "m,c", "a"), node("Relu", "a", "r"), node("Gemm", "r,V")]
    constants = {"W": numbers(3, 4), "c": numbers(4), "V": numbers(4, 2)}
    return file_of(folder, nodes, ["N", 3], constants, **more)


def test_a_product_and_a_row_are_one_linear_layer(tmp_path):
    network = assert_agrees(small(tmp_path), ["N", 3])
    assert [type(m).__name__ for m in network.children()] == ["Linear", "ReLU", "Linear"]
    assert not network.training and network.input_shape == (3,)


def test_a_network_of_an_image_file_goes_through_from_network(tmp_path):
    nodes = [
        node("Conv", "x,W", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "p", "f"),
        node("Gemm", "f,V"),
    ]
    path = file_of(tmp_path, nodes, [1, 2, 4, 4], {"W": numbers(3, 2, 3, 3), "V": numbers(12, 5)})
    network = network_from_onnx(path)
    model = from_network(network, network.input_shape)
    u = torch.randn(6, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wanted = ReferenceEvaluator(str(path)).run(None, {"x": u[:1].reshape(1, 2, 4, 4).numpy()})[0]
    np.testing.assert_allclose(model(u)[:1].numpy(), wanted, atol=1e-9)
    assert model.steps is not None


def test_reading_leaves_torch_s_seed_alone_and_files_may_be_zipped(tmp_path):
    path = small(tmp_path)
    torch.manual_seed(5)
    wanted = torch.randn(3)
    torch.manual_seed(5)
    network = network_from_onnx(path)
    assert torch.equal(torch.randn(3), wanted)
    zipped = tmp_path / "made.onnx.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    u = torch.ones(1, 3, dtype=torch.float64)
    assert torch.equal(network_from_onnx(zipped)(u), network(u))


def test_open_axes_need_a_shape(tmp_path):
    path = file_of(tmp_path, node("Relu", "x"), ["N", 2, "width"])
    with pytest.raises(ValueError, match=r"axis 2 \(width\) of the input 'x'.*pass input_shape"):
        network_from_onnx(path)
    assert network_from_onnx(path, (2, 5)).input_shape == (2, 5)
    with pytest.raises(ValueError, match=r"samples of shape \(2, \?\), not \(3, 5\)"):
        network_from_onnx(path, (3, 5))
    with pytest.raises(ValueError, match=r"samples of shape \(2, \?\), not \(10,\)"):
        network_from_onnx(path, (10,))
    path = file_of(tmp_path, node("Relu", "x"), ["features"])
    with pytest.raises(ValueError, match=r"axis 0 \(features\)"):
        network_from_onnx(path)
    path = file_of(tmp_path, node("Relu", "x"), None)
    with pytest.raises(ValueError, match="has no shape"):
        network_from_onnx(path)
    assert network_from_onnx(path, (4,)).input_shape == (4,)


@pytest.mark.parametrize(
    ("nodes", "shape", "constants", "error", "match"),
    [
        (node("Erf", "x", name="odd"), [1, 3], {}, TypeError, r"node 'odd' \(Erf\): this operator has no conversion"),
        (node("Erf", "x", name=""), [1, 3], {}, TypeError, r"the node that makes 'y' \(Erf\)"),
        (node("Relu", "x", domain="com.some"), [1, 3], {}, TypeError, "operators of 'com.some'"),
        (node("Relu", "x", depth=2), [1, 3], {}, ValueError, r"'a Relu' \(Relu\): its attributes .*depth"),
        (node("Relu", "z"), [1, 3], {}, ValueError, "reads 'z', which no earlier node makes"),
        (node("Div", "c,x"), [1, 3], {"c": numbers(3)}, ValueError, "divides by what depends on the input"),
        (node("Div", "x,c"), [1, 3], {"c": np.zeros(3)}, ValueError, "divides by zero"),
        (node("Add", "x,c"), [1, 3], {"c": numbers(2)}, ValueError, "a Add.*shape mismatch"),
        (node("MatMul", "x,W"), [1, 3], {"W": numbers(2, 2)}, ValueError, r"a MatMul"),
        (node("MatMul", "x,W"), [2, 1, 3], {"W": numbers(2, 3, 2)}, ValueError, "several matrices"),
        (node("Reshape", "x,s"), [1, 6], {"s": I64(1, 4)}, ValueError, r"shape \(1, 6\) does not reshape to \(1, 4\)"),
        (node("Gather", "x,i", axis=1), [1, 3], {"i": I64(3)}, ValueError, "index 3 is outside of axis 1"),
        (node("Gather", "c,x"), [1, 3], {"c": numbers(3)}, ValueError, "data must depend on the network's input"),
        (node("Reshape", "x,x"), [1, 3], {}, ValueError, "its shape must be a constant"),
        (node("Cast", "x", to=TensorProto.INT64), [1, 3], {}, ValueError, "rounds to int64"),
        (node("Pad", "x,p", mode="reflect"), [1, 3], {"p": I64(0, 1, 0, 1)}, ValueError, "mode 'reflect'"),
        (node("Squeeze", "x,a"), [1, 3], {"a": I64(1)}, ValueError, "not all of size 1"),
        (node("Squeeze", "x,a"), [1, 3], {"a": I64(4)}, ValueError, "axis 4 is not there"),
        (node("Conv", "x,W"), [1, 1, 4, 4, 4], {"W": numbers(1, 1, 2, 2, 2)}, ValueError, "of no convolution"),
        (node("Conv", "x,W"), [2, 4, 4], {"W": numbers(1, 2, 2, 2)}, ValueError, r"shape \(1, C, H, W\)"),
        (node("Conv", "x,W"), [1, 3, 4, 4], {"W": numbers(1, 2, 2, 2)}, ValueError, "channels"),
        (node("Dropout", "x,r,t"), [1, 3], {"r": np.float32(0.5), "t": np.array(True)}, ValueError, "training mode"),
        (node("RandomNormalLike", "x"), [1, 3], {}, TypeError, "no conversion"),
        ([node("RandomNormal", "", "n", shape=[3]), node("Add", "x,n")], [1, 3], {}, TypeError, "RandomNormal"),
        (
            [node("MaxPool", "x", "m,places", kernel_shape=[2]), node("Cast", "places", to=TensorProto.DOUBLE)],
            [1, 1, 4],
            {},
            ValueError,
            r"reads 'places', another output of MaxPool 'a MaxPool'",
        ),
        (node("ConstantOfShape", "s"), [1, 3], {"s": I64(2)}, ValueError, "'y' does not depend on the input"),
    ],
)
def test_what_has_no_conversion_names_the_node(tmp_path, nodes, shape, constants, error, match):
    with pytest.raises(error, match=match):
        network_from_onnx(file_of(tmp_path, nodes, shape, constants))


def test_files_that_are_no_single_network(tmp_path):
    more = helper.make_tensor_value_info("z", TensorProto.DOUBLE, [1, 3])
    with pytest.raises(ValueError, match=r"2 inputs, \['x', 'z'\]"):
        network_from_onnx(file_of(tmp_path, node("Add", "x,z"), [1, 3], extra=[more]))
    two = [node("Relu", "x"), node("Neg", "x", "z")]
    with pytest.raises(ValueError, match=r"2 outputs, \['y', 'z'\]"):
        network_from_onnx(file_of(tmp_path, two, [1, 3], outputs=("y", "z")))
    with pytest.raises(TypeError, match="the input 'x' is INT64"):
        network_from_onnx(file_of(tmp_path, node("Relu", "x"), [1, 3], kind=TensorProto.INT64))
    with pytest.raises(ValueError, match="version 999"):
        network_from_onnx(file_of(tmp_path, node("Relu", "x"), [1, 3], opset=999))
    with pytest.raises(FileNotFoundError):
        network_from_onnx(tmp_path / "none.onnx")
    for content in (b"", b"no network at all", b"\x1f\x8b no gzip"):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(ValueError, match="bad.onnx"):
            network_from_onnx(tmp_path / "bad.onnx")


def test_without_onnx_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    path = small(tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'implicit-models\[onnx\]'"):
        network_from_onnx(path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_file_of_torch_s_exporter(tmp_path):
    """Its older exporter serialises by itself; the newer one needs onnxscript."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3, padding=1),
        torch.nn.BatchNorm2d(3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(12, 5),
        torch.nn.LeakyReLU(0.1),
        torch.nn.Linear(5, 2),
    ).eval()
    path = tmp_path / "torch.onnx"
    try:
        torch.onnx.export(
            net,
            torch.zeros(1, 1, 4, 4),
            str(path),
            dynamo=False,
            dynamic_axes={"input": {0: "N"}},
            input_names=["input"],
        )
    except ModuleNotFoundError as error:
        pytest.skip(f"torch's exporter needs {error.name}")
    u = torch.randn(5, 1, 4, 4)
    with torch.no_grad():
        torch.testing.assert_close(network_from_onnx(path)(u), net(u), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape"), [("ACASXU_run2a_3_3_batch_2000.onnx", (1, 1, 5)), ("mnist-net_256x2.onnx", (784, 1))]
)
def test_networks_of_vnn_comp(name, shape):
    path = Path(os.environ.get("IMPLICIT_DATA") or "none") / "vnncomp" / name
    if not path.is_file():
        pytest.skip("IMPLICIT_DATA names no folder with networks of VNN-COMP")
    network, model = network_from_onnx(path), from_onnx(path, dtype=torch.float64)
    assert network.input_shape == shape
    u = np.random.default_rng(0).random((4, *shape), dtype=np.float32)
    reference = ReferenceEvaluator(str(path))
    wanted = np.concatenate([reference.run(None, {reference.input_names[-1]: x[None]})[0] for x in u])
    y = model(torch.from_numpy(u).flatten(1).double()).numpy()
    np.testing.assert_allclose(network(torch.from_numpy(u)).numpy(), wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-6)
