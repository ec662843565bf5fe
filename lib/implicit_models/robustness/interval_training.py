"""Training with interval bounds: output bounds of a box of inputs, differentiable, and the worst cross-entropy over
them.

For an implicit model the states of the box |u - u0| <= r are bounded by the interval fixed point, in the form of an
equilibrium of twice the states:

    (l, h) = phi(W (l, h) + (c - |B| r, c + |B| r)),   W = [A+, A-; A-, A+],   c = B u0 + b,

with A+ = max(A, 0), A- = min(A, 0) and A_ii on the own end of each state. |W| has the row norms of A, so that what
projects the model keeps this equation well-posed too; it is solved by the kernels of the layer and differentiated
implicitly. A stack of linear layers and non-decreasing activations is bounded layer by layer.

The margin of class y against j is bounded in one product, (C_y - C_j) x + (D_y - D_j) u, not as a difference of two
bounds; the exact worst-case cross-entropy over these margins is LSE_j(-margin_j), and the loss mixes it with that of
the samples themselves.

Source:
    interval bound propagation in training, Gowal et al., ICCV 2019; for implicit models, Wei & Kolter, ICLR 2022. Tsai
    thesis (2024), section 4.3, has the worst-case loss.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from implicit_models.equilibrium.implicit import equilibrium
from implicit_models.model import ImplicitModel
from implicit_models.robustness.input_sets import Box, check_radius, input_set
from implicit_models.robustness.problem import NotCertified

__all__ = ["interval_margins", "interval_training_loss", "ramp"]

_MONOTONE = (nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Identity, nn.Hardtanh, nn.ReLU6)
_SHAPES = (nn.Flatten, nn.Dropout)


def ramp(step: int, start: int, stop: int, first: float, last: float) -> float:
    """Linear schedule: `first` up to step `start`, `last` from step `stop` on.

    Raises:
        ValueError: if stop < start.
    """
    if stop < start:
        raise ValueError(f"a ramp must not stop before it starts, got {start} and {stop}")
    share = 1.0 if step >= stop else max(0.0, (step - start) / (stop - start))
    return first + (last - first) * share


def _doubled(A: Float[Tensor, "n n"]) -> Float[Tensor, "2*n 2*n"]:
    diagonal = torch.diag_embed(A.diagonal())
    own, other = (A - diagonal).clamp_min(0) + diagonal, (A - diagonal).clamp_max(0)
    return torch.cat([torch.cat([own, other], 1), torch.cat([other, own], 1)])


def _state_interval(model: ImplicitModel, U: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    if not model.activation.componentwise:
        raise TypeError(f"interval training is for componentwise maps, not for {model.activation!r}")
    if any(M.layout is not torch.strided for M in (model.A, model.B, model.C)):
        raise TypeError(
            "interval training is for the trained, dense matrices of a model; those of this one are sparse and constant"
        )
    A, n = model._feedback_matrix(), model.n_states
    if not bool(A.detach().abs().sum(1).amax() < 1) and not model.certificate():
        raise NotCertified(
            "the interval fixed point needs a well-posed model, and neither lambda_PF of |A| < 1 nor a signed diagonal"
            " proves it"
        )
    centre = U @ model.B.t() if model.b is None else torch.addmm(model.b, U, model.B.t())
    reach = radius @ model.B.abs().t()
    segments = [
        (f"{s.name}({s.slope})" if s.name == "leaky_relu" else s.name, s.stop - s.start)
        for s in model.activation.segments
    ]
    s = model.settings
    ends = equilibrium(
        _doubled(A),
        torch.cat([centre - reach, centre + reach], 1),
        segments * 2,
        tol=s.tol,
        tol_mode=s.tol_mode,
        max_iter=s.max_iter,
        on_failure=s.on_failure,
    )
    return ends[:, :n], ends[:, n:]


def _layers(network: nn.Module) -> list[Any]:
    parts = [m for m in network.modules() if not list(m.children())]
    for module in network.modules():
        if list(module.children()) and not isinstance(module, nn.Sequential) and module is not network:
            raise TypeError(
                f"interval training takes a stack of layers, and {type(module).__name__} is not an nn.Sequential"
            )
    for m in parts:
        if not isinstance(m, (nn.Linear, *_MONOTONE, *_SHAPES)):
            raise TypeError(
                f"interval training has no rule for {type(m).__name__}: it takes linear layers and non-decreasing"
                " activations"
            )
        if isinstance(m, nn.LeakyReLU) and m.negative_slope < 0:
            raise ValueError(f"LeakyReLU with slope {m.negative_slope} is not non-decreasing")
    if not parts or not isinstance(parts[-1], nn.Linear):
        raise TypeError("interval training takes a network that ends with a linear layer")
    return parts


def _network_interval(network: nn.Module, U: Tensor, radius: Tensor) -> tuple[Tensor, Tensor, nn.Linear]:
    """Interval of the input of the last linear layer, and that layer."""
    *hidden, last = _layers(network)
    middle, half = U, radius.expand_as(U)
    for layer in hidden:
        if isinstance(layer, nn.Linear):
            middle, half = layer(middle), half @ layer.weight.abs().t()
        elif isinstance(layer, _MONOTONE):
            low, high = layer(middle - half), layer(middle + half)
            middle, half = 0.5 * (low + high), 0.5 * (high - low)
        elif isinstance(layer, nn.Flatten):
            middle, half = layer(middle), layer(half)
        elif layer.training and layer.p > 0:
            raise ValueError("dropout is random in training mode: interval bounds of it mean nothing")
    return middle, half, last


def _difference(rows: Tensor, y: Tensor) -> Float[Tensor, "N q m"]:
    return rows[y][:, None] - rows[None]


def _bounded(rows: Tensor, y: Tensor, middle: Tensor, half: Tensor) -> Float[Tensor, "N q"]:
    """Lower bound of (rows_y - rows_j)'v for |v - middle| <= half."""
    nominal = middle @ rows.t()
    spread = torch.einsum("nqm,nm->nq", _difference(rows, y).abs(), half)
    return nominal.gather(1, y[:, None]) - nominal - spread


def interval_margins(
    model: nn.Module, U: Float[Tensor, "N p"], y: Int[Tensor, " N"], inputs: Box | float
) -> Float[Tensor, "N q"]:
    """Lower bounds of y_k - y_j, k = y the class of each sample, over a box around it: 0 at j = k; differentiable in
    the parameters.

    Args:
        model: `ImplicitModel`, dense and componentwise; or a stack of linear layers and non-decreasing activations that
            ends with a linear layer, also as a module around one nn.Sequential.
        U: (N, p).
        y: (N,) class indices.
        inputs: `Box(radius, clip)`, or the radius as a number; a sample may lie outside the range by less than the
            radius.

    Returns:
        (N, q) in the precision of the model; all positive but for j = k says that the class cannot change. Not verified
        for rounding: a certificate is `implicit_models.robustness.certify`'s.

    Raises:
        NotCertified, TypeError or ValueError: for a model or arguments that do not fit.

    Source:
        Gowal et al., ICCV 2019, section 3 (elision of the last layer); Wei & Kolter, ICLR 2022 (interval fixed point).
    """
    box = input_set(inputs, Box)
    if U.ndim != 2:
        raise ValueError(f"U must have shape (N, p), got {tuple(U.shape)}")
    if y.shape != U.shape[:1] or y.is_floating_point():
        raise ValueError(f"y must hold {U.shape[0]} class indices, got {y.dtype} of shape {tuple(y.shape)}")
    if isinstance(model, ImplicitModel) and (U.shape[1] != model.in_features or U.dtype != model.A.dtype):
        raise ValueError(
            f"U must be {model.A.dtype} of shape (N, {model.in_features}), got {U.dtype} of shape {tuple(U.shape)}"
        )
    outputs = model.out_features if isinstance(model, ImplicitModel) else _layers(model)[-1].out_features
    outside = torch.nonzero((y < 0) | (y >= outputs)).flatten()
    if len(outside):
        raise ValueError(f"sample {int(outside[0])} has class {int(y[outside[0]])}, but there are {outputs} outputs")
    check_radius(box.radius, *U.shape)
    radius = U.new_tensor(box.radius).expand(U.shape if box.radius.ndim == 2 else (1, U.shape[1])).contiguous()
    centre = U
    if box.clip is not None:
        low, high = (U - radius).clamp_min(box.clip[0]), (U + radius).clamp_max(box.clip[1])
        if bool((low > high).any()):
            raise ValueError(f"a sample lies farther than the radius outside the clip range {box.clip}")
        centre, radius = 0.5 * (low + high), 0.5 * (high - low)
    if not isinstance(model, ImplicitModel):
        middle, half, last = _network_interval(model, centre, radius)
        margin = _bounded(last.weight, y, middle, half)
        return margin if last.bias is None else margin + last.bias[y][:, None] - last.bias
    lower, upper = _state_interval(model, centre, radius)
    margin = _bounded(model.C, y, 0.5 * (lower + upper), 0.5 * (upper - lower))
    if model.D is not None:
        if len(radius) == 1:  # one radius for all samples: the spread of each pair of classes once
            pair = (model.D[:, None] - model.D[None]).abs() @ radius[0]
            nominal = centre @ model.D.t()
            margin = margin + nominal.gather(1, y[:, None]) - nominal - pair[y]
        else:
            margin = margin + _bounded(model.D, y, centre, radius)
    return margin if model.d is None else margin + model.d[y][:, None] - model.d


def interval_training_loss(
    model: nn.Module, U: Float[Tensor, "N p"], y: Int[Tensor, " N"], inputs: Box | float, *, clean: float = 0.0
) -> Float[Tensor, ""]:
    """Mean of clean * CE(y(u0)) + (1 - clean) * worst-case CE over the interval margins.

    Mathematics: the worst case over margins m_j >= interval_margins_j is LSE_j(-m_j), exact for a one-hot class.
    Args:
        as `interval_margins`
        clean: weight of the samples' own cross-entropy, in [0, 1].

    Returns:
        scalar tensor; project the model after each step as always.
    Raises:
        as `interval_margins`; ValueError for a weight outside [0, 1].

    Source:
        Gowal et al., ICCV 2019, (6) (mix and schedules); Tsai thesis (2024), section 4.3.
    """
    if not 0 <= clean <= 1:
        raise ValueError(f"clean must lie in [0, 1], got {clean}")
    loss = U.new_zeros(())
    if clean > 0:
        loss = loss + clean * nn.functional.cross_entropy(model(U), y)
    if clean < 1:
        loss = loss + (1 - clean) * torch.logsumexp(-interval_margins(model, U, y, inputs), 1).mean()
    return loss
