"""Multi-layer perceptrons with the papers' activations, with or without biases and a linear skip."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from reproduction.models.seeding import seeded

# The fifteen activations of Ganesh (2023), A.2, in its order: name -> layer for a number of channels.
# "multiprelu" is read as a PReLU with one slope a channel.
PAPER_ACTIVATIONS: dict[str, Callable[[int], nn.Module]] = {
    "hardtanh": lambda channels: nn.Hardtanh(),
    "sigmoid": lambda channels: nn.Sigmoid(),
    "relu6": lambda channels: nn.ReLU6(),
    "tanh": lambda channels: nn.Tanh(),
    "tanhshrink": lambda channels: nn.Tanhshrink(),
    "hardshrink": lambda channels: nn.Hardshrink(),
    "leakyrelu": lambda channels: nn.LeakyReLU(),
    "softshrink": lambda channels: nn.Softshrink(),
    "softsign": lambda channels: nn.Softsign(),
    "relu": lambda channels: nn.ReLU(),
    "prelu": lambda channels: nn.PReLU(),
    "multiprelu": lambda channels: nn.PReLU(channels),
    "softplus": lambda channels: nn.Softplus(),
    "elu": lambda channels: nn.ELU(),
    "selu": lambda channels: nn.SELU(),
}
# Table 5.1 has a row for the log-sigmoid, which is not among the fifteen.
ACTIVATIONS = {**PAPER_ACTIVATIONS, "log_sigmoid": lambda channels: nn.LogSigmoid()}


class MLP(nn.Module):
    """Feed-forward network h_l = phi(W_l h_{l-1} + b_l), linear at the end, plus W_skip u if asked for.

    Args:
        sizes: widths from input to output, (p, ..., q); "10-10-10" of the papers is (10, 10, 10),
            one hidden layer of ten.
        activation: a name in `ACTIVATIONS`.
        bias: whether the layers have biases. Without, and with ReLU, y(t u) = t y(u) for t >= 0.
        skip: whether a linear map from input to output is added, with a bias if `bias`.
        seed: of the initial weights (PyTorch's own for linear layers).

    Raises:
        ValueError: an unknown activation, fewer than two sizes, or a size below 1.

    Source:
        Ganesh (2023), Table 1 and A.2; Decugis et al. (2024), Table 4.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        activation: str = "relu",
        *,
        bias: bool = True,
        skip: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {activation!r}")
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(f"sizes needs at least an input and an output, all positive; got {tuple(sizes)}")
        with seeded(seed):
            layers: list[nn.Module] = []
            for depth, (inputs, outputs) in enumerate(zip(sizes[:-1], sizes[1:])):
                if depth:
                    layers.append(ACTIVATIONS[activation](inputs))
                layers.append(nn.Linear(inputs, outputs, bias=bias))
            self.layers = nn.Sequential(*layers)
            self.skip = nn.Linear(sizes[0], sizes[-1], bias=bias) if skip else None

    def forward(self, u: Float[Tensor, "N p"]) -> Float[Tensor, "N q"]:
        y = self.layers(u)
        return y if self.skip is None else y + self.skip(u)
