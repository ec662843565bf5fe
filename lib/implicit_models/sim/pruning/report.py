"""What a sparse network keeps, layer by layer, and what is proved of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from implicit_models.summaries import summary


@dataclass(frozen=True)
class PrunedLayer:
    """A layer of a sparse network. weights: of it; left: that are not zero in the network that came out.

    Of each row: columns, how many weights it has; effect, what a unit of its mean square error changes the outputs by;
    loss, the mean square of its least squares on its support, over that of the target; rise, what its support costs
    beyond all columns, computed from the weights anew; bound, what any support of that size costs at least; slope, the
    largest derivative left, relative, which is rounding at a minimum.
    """

    name: str
    weights: int
    left: int
    exchanges: int
    columns: Int[np.ndarray, " r"]
    effect: Float[np.ndarray, " r"]
    loss: Float[np.ndarray, " r"]
    rise: Float[np.ndarray, " r"]
    bound: Float[np.ndarray, " r"]
    slope: Float[np.ndarray, " r"]

    def __repr__(self) -> str:
        return summary(self, "name", "weights", "left", "share", "lost", "proved")

    @property
    def share(self) -> float:
        """Of its weights that are left."""
        return self.left / self.weights

    @property
    def lost(self) -> float:
        """Mean square that its supports change the outputs by, to first order, beyond all columns."""
        return float(self.effect @ self.rise)

    @property
    def proved(self) -> float:
        """Share of that which no supports of the same sizes can avoid; 1 where they are proved the best."""
        return 1.0 if self.lost <= 0 else min(1.0, float(self.effect @ self.bound) / self.lost)


@dataclass(frozen=True)
class PruningReport:
    """A sparse network. weights: of all convolutions and linear layers; left: that are not zero; stays: by name, those
    that were kept as they are; settings: how it was made; seconds: CPU seconds by part; held_out: mean square by which
    outputs on other samples differ from the network's, over their variance, None without any; biases: by name, those
    that layers without one were given, and how many they are.
    """

    layers: tuple[PrunedLayer, ...]
    weights: int
    left: int
    stays: Mapping[str, int]
    settings: Mapping[str, Any]
    seconds: Mapping[str, float] = field(default_factory=dict)
    held_out: float | None = None
    biases: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return summary(self, "layers", "weights", "left", "share", "stays", "settings", "seconds", "held_out", "biases")

    @property
    def share(self) -> float:
        """Of the weights that are left."""
        return self.left / self.weights

    @property
    def sparsity(self) -> float:
        """1 - share."""
        return 1 - self.share

    def text(self) -> str:
        """A line a layer, and what is proved."""
        width = max([len(layer.name) for layer in self.layers], default=0)
        lines = [f"{self.left} of {self.weights} weights, {100 * self.share:.1f} %"]
        for layer in self.layers:
            lines.append(
                f"{layer.name:{width}}  {layer.left:7d} of {layer.weights:7d}  {100 * layer.share:5.1f} %"
                f"  outputs change by {layer.lost:9.3g}, at least {layer.lost * layer.proved:9.3g}"
            )
        for name, size in self.stays.items():
            lines.append(f"{name} stays as it is, {size} weights")
        for name, size in self.biases.items():
            lines.append(f"{name} is new, {size} biases")
        worst = max([float(layer.slope.max(initial=0.0)) for layer in self.layers], default=0.0)
        lines += [
            f"proved: each row's loss, recomputed from its least squares (largest derivative left {worst:.1g})",
            "and to first order that no supports of these sizes change the outputs by less than the number at the end",
            "not proved: that these supports are the best",
        ]
        if self.held_out is not None:
            lines.append(f"outputs on other samples differ by {100 * self.held_out:.3g} % of their variance")
        return "\n".join(lines)
