"""The modules that are read: one table for all readers of networks.

A rule is a function (builder, module, arguments) -> value. Modules that are made of these, with a forward that
torch.fx traces, are read through it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from implicit_models.model import ImplicitModel
from implicit_models.tracing import functions as f
from implicit_models.tracing import spatial
from implicit_models.tracing.builder import Builder, WrongShape
from implicit_models.tracing.nodes import Equilibrium, Node, Normalisation
from implicit_models.tracing.rearrangements import flat, same, unflattened
from implicit_models.tracing.recurrent import cell, unrolled

Rule = Callable[..., Any]


def _of(function: Rule, *names: str, **fixed: Any) -> Rule:
    """The rule of a module with a function's: its arguments are attributes of the module."""
    return lambda b, module, value: function(b, value, **{name: getattr(module, name) for name in names}, **fixed)


_CONVOLUTION = ("weight", "bias", "stride", "padding", "dilation", "groups", "padding_mode")
_MAX = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_MEAN = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")


def _normalisation(*ndims: int) -> Rule:
    def rule(b: Builder, module: Any, value: Node) -> Node:
        if module.running_mean is None:
            raise ValueError(
                "it has no running statistics (track_running_stats=False): its map depends on the whole batch"
            )
        if module.training:
            raise ValueError("it is in training mode, its map depends on the whole batch: call eval() first")
        if len(value.shape) - 1 not in ndims or value.shape[0] != module.num_features:
            raise WrongShape(f"it reads {module.num_features} channels first, but its input has shape {value.shape}")
        of = {"mean": module.running_mean, "variance": module.running_var, "weight": module.weight, "bias": module.bias}
        return b.add(Normalisation, [value], value.shape, eps=module.eps, **of)

    return rule


def _dropout(b: Builder, module: Any, value: Node) -> Node:
    if module.training and module.p > 0:
        raise ValueError("it is in training mode, its map is random: call eval() first")
    return value


def equilibrium(b: Builder, module: ImplicitModel, value: Node) -> Node:
    """An implicit model inside a network."""
    if value.shape != (module.in_features,):
        raise WrongShape(f"it reads {module.in_features} features, but its input has shape {value.shape}")
    return b.add(Equilibrium, [value], (module.out_features,), model=module)


MODULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _of(f.linear, "weight", "bias"),
    nn.Conv1d: _of(spatial.convolution, *_CONVOLUTION, ndim=1),
    nn.Conv2d: _of(spatial.convolution, *_CONVOLUTION, ndim=2),
    nn.BatchNorm1d: _normalisation(0, 1),
    nn.BatchNorm2d: _normalisation(2),
    nn.ReLU: _of(f.activation("relu")),
    nn.ReLU6: _of(f.relu6),
    nn.LeakyReLU: _of(f.leaky, "negative_slope"),
    nn.PReLU: _of(f.prelu, "weight"),
    nn.Tanh: _of(f.activation("tanh")),
    nn.Sigmoid: _of(f.activation("sigmoid")),
    nn.Softmax: _of(f.softmax, "dim"),
    nn.MaxPool1d: _of(spatial.max_pool, *_MAX, ndim=1),
    nn.MaxPool2d: _of(spatial.max_pool, *_MAX, ndim=2),
    nn.AvgPool1d: _of(spatial.average_pool, *_MEAN, ndim=1),
    nn.AvgPool2d: _of(spatial.average_pool, *_MEAN, "divisor_override", ndim=2),
    nn.AdaptiveAvgPool1d: _of(spatial.adaptive_average_pool, "output_size", ndim=1),
    nn.AdaptiveAvgPool2d: _of(spatial.adaptive_average_pool, "output_size", ndim=2),
    nn.AdaptiveMaxPool1d: _of(spatial.adaptive_max_pool, "output_size", "return_indices", ndim=1),
    nn.AdaptiveMaxPool2d: _of(spatial.adaptive_max_pool, "output_size", "return_indices", ndim=2),
    nn.Flatten: _of(flat, "start_dim", "end_dim"),
    nn.Unflatten: lambda b, module, value: unflattened(b, value, module.dim, module.unflattened_size),
    nn.Identity: _of(same),
    nn.Dropout: _dropout,
    nn.Dropout1d: _dropout,
    nn.Dropout2d: _dropout,
    nn.RNN: unrolled,
    nn.RNNCell: cell,
    ImplicitModel: equilibrium,
}
READ = ", ".join(sorted(kind.__name__ for kind in MODULES))
