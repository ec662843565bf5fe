"""Activations of a torch network seen through hooks: read at every call, or replaced by given states.

A network whose activation modules are pulled out is an affine map from (x, u) to (z, y): its pre-activations and
outputs, given its post-activations and inputs. Reading the modules gives X and Z; replacing what they return evaluates
the affine map at states of one's choice, which checks that it is affine and reads off its matrices.

Source:
    SIM paper, section 2 (states of a network as an implicit model).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from implicit_models.matrices import check_network

# Modules that are neither affine nor a map of `implicit_models.activations`: named in the message of a failed check.
SUSPECTS = (
    nn.RNNBase,
    nn.LSTMCell,
    nn.GRUCell,
    nn.MultiheadAttention,
    nn.GELU,
    nn.SiLU,
    nn.ELU,
    nn.SELU,
    nn.Softplus,
    nn.Hardtanh,
    nn.Softsign,
    nn.Mish,
    nn.LogSoftmax,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
)


def activation_name(module: nn.Module) -> str | None:
    """Name of the module's map in `implicit_models.activations`; None if it is no activation of that list."""
    if isinstance(module, nn.ReLU):
        return "relu"
    if isinstance(module, nn.LeakyReLU):
        return f"leaky_relu({module.negative_slope!r})"
    if isinstance(module, nn.PReLU) and module.num_parameters == 1:
        return f"leaky_relu({float(module.weight.detach())!r})"
    if isinstance(module, nn.RNNCell):
        return module.nonlinearity
    for kind, name in ((nn.Tanh, "tanh"), (nn.Sigmoid, "sigmoid"), (nn.Softmax, "softmax")):
        if isinstance(module, kind):
            return name
    return None


def activation_modules(network: nn.Module) -> list[tuple[str, nn.Module, str]]:
    """(path, module, map) of every activation of the network, each module once.

    Raises:
        ValueError: if there is none.
    """
    found = [
        (path, module, name)
        for path, module in network.named_modules()
        if (name := activation_name(module)) is not None
    ]
    if not found:
        raise ValueError(
            f"{type(network).__name__} has no activation module (nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid,"
            " nn.Softmax, nn.RNNCell): a functional activation such as torch.relu cannot be hooked, make it a module"
        )
    return found


def _pre_activation(module: nn.Module, args: tuple[Any, ...]) -> Tensor:
    """The argument of the map, copied: the map may work in place."""
    if not isinstance(module, nn.RNNCell):
        return args[0].detach().clone()
    h = args[1] if len(args) > 1 and args[1] is not None else args[0].new_zeros(len(args[0]), module.hidden_size)
    return F.linear(args[0], module.weight_ih, module.bias_ih) + F.linear(h, module.weight_hh, module.bias_hh)


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Eval mode without gradient; every module gets its own mode back, also after an exception."""
    check_network(network)
    modes = [(module, module.training) for module in network.modules()]
    try:
        network.eval()
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def hooked(network: nn.Module, seen: Callable[[str, str, Tensor, Tensor], Tensor | None]) -> Iterator[None]:
    """Call seen(path, map, z, x) at every call of an activation; a tensor it returns takes the place of x.

    The hooks are removed on leaving, also after an exception.
    """
    handles, waiting = [], {}

    def before(module: nn.Module, args: tuple[Any, ...]) -> None:
        waiting[module] = _pre_activation(module, args)

    def after(path: str, name: str) -> Callable[..., Tensor | None]:
        def hook(module: nn.Module, args: tuple[Any, ...], x: Tensor) -> Tensor | None:
            replaced = seen(path, name, waiting.pop(module), x)
            if replaced is None:
                return None
            replaced = replaced.reshape(x.shape).to(x.dtype)
            if getattr(module, "inplace", False):  # the network may go on with the argument instead of the result
                x.copy_(replaced)
                return x
            return replaced

        return hook

    try:
        for path, module, name in activation_modules(network):
            handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after(path, name))]
        yield
    finally:
        for handle in handles:
            handle.remove()


def output_of(network: nn.Module, u: Tensor) -> Tensor:
    """Output flattened to (N, q).

    Raises:
        TypeError, ValueError: for an output that is no tensor with a row per sample.
    """
    y = network(u)
    if not isinstance(y, Tensor):
        raise TypeError(
            f"{type(network).__name__} must return a tensor, got {type(y).__name__}: wrap it in a module that does"
        )
    if y.ndim < 1 or y.shape[0] != u.shape[0]:
        shapes = f"input {tuple(u.shape)}, output {tuple(y.shape)}"
        raise ValueError(f"{type(network).__name__} must return one row per sample: {shapes}")
    return y.reshape(u.shape[0], -1)


def forced(network: nn.Module, u: Tensor, x: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """The affine map: pre-activations (one (N, size) block a call) and output (N, q) when call k of an activation
    returns x[k].

    Args:
        u (N, ...) inputs
        x: one (N, size) block for every call, in the order of the calls. Call it in `evaluation_mode`.
    """
    z: list[Tensor] = []

    def seen(path: str, name: str, before: Tensor, after: Tensor) -> Tensor:
        z.append(before.reshape(u.shape[0], -1))
        return x[len(z) - 1]

    with hooked(network, seen):
        y = output_of(network, u)
    return z, y


def require_affine(
    network: nn.Module, u: Tensor, x: list[Tensor], z: list[Tensor], y: Tensor, names: list[str]
) -> None:
    """Check on neighbouring samples that the network between its activations is affine.

    Mathematics: the map F with (z, y) = F(x, u) is affine only if F at 3/2 of one sample less 1/2 of the next is the
    same combination of their (z, y), up to rounding. Rounding is that of the terms, which may cancel in (z, y): their
    size is seen from F at 0 and at (x, u) with signs changed at random.

    Raises:
        ValueError: naming the first block or the output that disagrees, and the modules that may be the cause.
    """
    mix = lambda t: 1.5 * t - 0.5 * t.roll(1, 0)
    if u.shape[0] < 2:  # one sample is combined with the origin; the sign matters, a ReLU scales with positive factors
        mix = lambda t: -0.5 * t
        z0, y0 = forced(network, torch.zeros_like(u), [torch.zeros_like(t) for t in x])
        z_mixed, y_mixed = [1.5 * b - 0.5 * a for a, b in zip(z, z0, strict=True)], 1.5 * y0 - 0.5 * y
    else:
        z_mixed, y_mixed = [mix(t) for t in z], mix(y)
    z_found, y_found = forced(network, mix(u), [mix(t) for t in x])
    generator = torch.Generator().manual_seed(0)
    flip = lambda t: t * (2 * torch.randint(0, 2, t.shape, generator=generator) - 1).to(t)
    probes = [forced(network, probe(u), [probe(t) for t in x]) for probe in (torch.zeros_like, flip)]
    sizes = zip(*([*z_, y_] for z_, y_ in probes), strict=True)
    for name, wanted, found, probed in zip(
        [*names, "the output"], [*z_mixed, y_mixed], [*z_found, y_found], sizes, strict=True
    ):
        finite = torch.isfinite(wanted)
        size = wanted[finite].abs().max() if bool(finite.any()) else wanted.new_zeros(())
        size = sum((t[torch.isfinite(t)].abs().max() for t in probed if bool(torch.isfinite(t).any())), size)
        if bool(((found - wanted)[finite].abs() > 1e3 * torch.finfo(wanted.dtype).eps * (1 + size)).any()):
            suspects = [
                f"{path} ({type(m).__name__})" for path, m in network.named_modules() if isinstance(m, SUSPECTS)
            ]
            cause = ", ".join(suspects[:4]) or "a functional activation or pooling such as torch.relu"
            raise ValueError(
                f"{name} is not an affine function of the recorded states and the inputs, so the network has a"
                f" nonlinearity that no hook sees, possibly {cause}; make every activation one of nn.ReLU,"
                " nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softmax, nn.RNNCell, or pass check=False to imitate the"
                " network with the recorded states alone"
            )
