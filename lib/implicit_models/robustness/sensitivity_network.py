"""The sensitivity matrix of a torch network from its own forward pass, without the n x n matrix.

A deviation of the input moves through the network by the absolute values of its weights: linear layers and convolutions
become |W|, a normalisation in evaluation mode |weight| / sqrt(variance + eps), an activation its Lipschitz constant,
differences of branches sums; biases and constants drop out. That network of non-negative maps is linear, and the rows
of S are its vector-Jacobian products with the unit vectors. It is |C| (I - |A|)^-1 |B| + |D| for the network written as
an implicit model with one state an activation, where each linear part between activations is one matrix, its batch
normalisation folded; two dense layers in a row count as |W2| |W1|, which is at least |W2 W1|.

The network's forward is run as it is on a tensor type that replaces each operation; one that has no such rule is
refused, with its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from implicit_models.matrices import check_network
from implicit_models.robustness.arrays import chosen_rows

CHUNK = 32  # rows of S in one pass: what bounds the memory of the activations

Rule = Callable[..., Any]


class _Deviation(Tensor):
    """A bound of how far an intermediate result moves."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        rule = RULES.get(func)
        if rule is None:
            name = getattr(func, "__name__", str(func))
            raise ValueError(  # a TypeError would reach Python's operators as 'not implemented', without its text
                f"no rule for {name} in a sensitivity matrix: the network may use linear layers, convolutions,"
                " normalisations in evaluation mode, average pooling, relu, leaky_relu, hardtanh, tanh, sigmoid, sums,"
                " products with constants, and changes of shape"
            )
        with torch._C.DisableTorchFunctionSubclass():
            out = rule(func, *args, **(kwargs or {}))
        return _tracked(out)


def _tracked(out: Any) -> Any:
    if isinstance(out, Tensor):
        return out.as_subclass(_Deviation)
    return tuple(_tracked(part) for part in out) if type(out) in (tuple, list) else out


def _positive(constant: Any, like: Tensor) -> Any:
    """|constant| in the precision of the deviation."""
    return constant.detach().abs().to(like.dtype) if isinstance(constant, Tensor) else abs(constant)


def _as_it_is(func, *args, **kwargs):
    return func(*args, **kwargs)


def _scaled_by(gamma: float) -> Rule:
    return lambda func, x, *args, **kwargs: x * gamma


def _leaky_relu(func, x, negative_slope=0.01, inplace=False):
    if not abs(negative_slope) <= 1:
        raise ValueError(f"leaky_relu has slope {negative_slope}, beyond [-1, 1]")
    return x * 1.0


def _weighted(func, x, weight, bias=None, *args, **kwargs):
    if isinstance(weight, _Deviation):
        raise ValueError(f"{func.__name__} with weights that depend on the input has no sensitivity matrix")
    return func(x, _positive(weight, x), None, *args, **kwargs)


def _matmul(func, x, y):
    if isinstance(x, _Deviation) and isinstance(y, _Deviation):
        raise ValueError("a product of two results that depend on the input has no sensitivity matrix")
    return torch.matmul(
        *(v if isinstance(v, _Deviation) else _positive(v, x if isinstance(x, _Deviation) else y) for v in (x, y))
    )


def _batch_norm(func, x, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    if training or running_var is None:
        raise ValueError("batch normalisation mixes the samples of a batch in training mode: call network.eval() first")
    scale = 1 / (running_var.to(x.dtype) + eps).sqrt()
    scale = scale if weight is None else scale * _positive(weight, x)
    return x * scale.reshape(1, -1, *[1] * (x.ndim - 2))


def _dropout(func, x, p=0.5, training=True, inplace=False):
    if training and p > 0:
        raise ValueError("dropout is random in training mode: call network.eval() first")
    return x * 1.0


def _sum(func, x, y, *, alpha=1):
    if not isinstance(x, _Deviation):
        return torch.zeros_like(x, dtype=y.dtype) + abs(alpha) * y if isinstance(x, Tensor) else abs(alpha) * y
    if not isinstance(y, _Deviation):
        return x + torch.zeros_like(y, dtype=x.dtype) if isinstance(y, Tensor) else x * 1.0
    return x + abs(alpha) * y


def _multiple(func, x, y):
    if isinstance(x, _Deviation) and isinstance(y, _Deviation):
        raise ValueError("a product of two results that depend on the input has no sensitivity matrix")
    return x * _positive(y, x) if isinstance(x, _Deviation) else _positive(x, y) * y


def _quotient(func, x, y):
    if isinstance(y, _Deviation):
        raise ValueError("a division by a result that depends on the input has no sensitivity matrix")
    return x / _positive(y, x)


def _pad(func, x, pad, mode="constant", value=None):
    return F.pad(x, pad, mode) if mode != "constant" else F.pad(x, pad)


RULES: dict[Any, Rule] = {}
for _rule, _functions in (
    (
        _as_it_is,
        (
            Tensor.flatten,
            torch.flatten,
            Tensor.reshape,
            torch.reshape,
            Tensor.view,
            Tensor.unflatten,
            Tensor.permute,
            torch.permute,
            Tensor.transpose,
            torch.transpose,
            Tensor.t,
            torch.t,
            Tensor.squeeze,
            torch.squeeze,
            Tensor.unsqueeze,
            torch.unsqueeze,
            Tensor.contiguous,
            Tensor.clone,
            Tensor.mean,
            torch.mean,
            Tensor.sum,
            torch.sum,
            torch.cat,
            torch.stack,
            Tensor.__getitem__,
            Tensor.size,
            Tensor.dim,
            Tensor.numel,
            Tensor.shape.__get__,  # type: ignore[attr-defined]
            Tensor.ndim.__get__,  # type: ignore[attr-defined]
            Tensor.device.__get__,
            Tensor.dtype.__get__,  # type: ignore[attr-defined]
            Tensor.chunk,
            torch.chunk,
            Tensor.split,
            torch.split,
            F.avg_pool1d,
            F.avg_pool2d,
            F.avg_pool3d,
            F.adaptive_avg_pool1d,
            F.adaptive_avg_pool2d,
            F.adaptive_avg_pool3d,
            Tensor.__len__,
            Tensor.expand,
            Tensor.movedim,
            torch.movedim,
        ),
    ),
    (
        _scaled_by(1.0),
        (
            F.relu,
            torch.relu,
            torch.relu_,
            Tensor.relu,
            Tensor.relu_,
            F.relu6,
            F.hardtanh,
            torch.tanh,
            Tensor.tanh,
            F.tanh,
            torch.neg,
            Tensor.neg,
            Tensor.__neg__,
        ),
    ),
    (_scaled_by(0.25), (torch.sigmoid, Tensor.sigmoid, F.sigmoid)),
    (_leaky_relu, (F.leaky_relu,)),
    (_weighted, (F.linear, torch.conv1d, torch.conv2d, torch.conv3d, F.conv1d, F.conv2d, F.conv3d)),
    (_matmul, (torch.matmul, Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__)),
    (_batch_norm, (F.batch_norm,)),
    (_dropout, (F.dropout,)),
    (
        _sum,
        (
            torch.add,
            Tensor.add,
            Tensor.add_,
            Tensor.__add__,
            Tensor.__radd__,
            Tensor.__iadd__,
            torch.sub,
            Tensor.sub,
            Tensor.sub_,
            Tensor.__sub__,
            Tensor.__rsub__,
            Tensor.__isub__,
        ),
    ),
    (_multiple, (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, Tensor.__imul__)),
    (_quotient, (torch.div, Tensor.div, Tensor.__truediv__, Tensor.__itruediv__)),
    (_pad, (F.pad,)),
):
    RULES.update(dict.fromkeys(_functions, _rule))
RULES[Tensor.__rmatmul__] = lambda func, x, y: _matmul(func, y, x)


def _shape(network: nn.Module, input_shape: Sequence[int] | None) -> tuple[int, ...]:
    if input_shape is not None:
        shape = tuple(int(k) for k in ([input_shape] if isinstance(input_shape, int) else input_shape))
        if not shape or min(shape) < 1:
            raise ValueError(f"input_shape must be the shape of one sample, got {input_shape!r}")
        return shape
    for module in network.modules():
        if isinstance(module, nn.Linear):
            return (module.in_features,)
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            break
    raise ValueError("input_shape is needed: the network does not begin with a linear layer, so its inputs are unknown")


def network_sensitivity(
    network: nn.Module, rows: Sequence[int] | np.ndarray | None = None, input_shape: Sequence[int] | None = None
) -> Float[np.ndarray, "q p"]:
    """S (q, p) of a torch network in evaluation mode, float64; the inputs of a sample are flattened.

    Args:
        network; rows of S wanted, None for all; input_shape of one sample, None for a network that begins with a linear
            layer.

    Raises:
        ValueError: for a network in training mode whose layers depend on it, for an operation that has no rule, and
            naming a parameter that is not finite.
        TypeError: for other outputs, and naming a parameter in half precision or of another dtype than the rest.
    """
    check_network(network)
    shape = _shape(network, input_shape)
    first = next(network.parameters(), torch.zeros(()))

    def outputs(count: int) -> tuple[Tensor, Tensor]:
        u = torch.zeros(count, *shape, dtype=torch.float64, device=first.device, requires_grad=True)
        y = network(u.as_subclass(_Deviation))
        if not isinstance(y, Tensor) or y.shape[:1] != (count,):
            raise TypeError(f"the network must return one tensor with a row for each sample, got {type(y).__name__}")
        return u, y.as_subclass(Tensor).flatten(1)

    with torch.no_grad():
        q = outputs(1)[1].shape[1]
    index = chosen_rows(rows, q)
    S = np.empty((index.size, math.prod(shape)))
    with torch.enable_grad():
        for start in range(0, index.size, CHUNK):
            part = index[start : start + CHUNK]
            u, y = outputs(part.size)
            (gradient,) = torch.autograd.grad(y[torch.arange(part.size), torch.from_numpy(part)].sum(), u)
            S[start : start + part.size] = gradient.flatten(1).cpu().numpy()
    return S
