"""What is left of a network that lost channels, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from implicit_models.summaries import summary


@dataclass(frozen=True)
class CutLayer:
    """A layer of a smaller network.

    rows, columns: that it has left and had, each a pair; multiplications: of a sample, left and before. lost: mean
    square that the errors of its rows, after least squares on its columns, change the outputs by, to first order, 0
    where it is as it was. slope: the largest derivative left, relative, which is rounding at a minimum.
    """

    name: str
    rows: tuple[int, int]
    columns: tuple[int, int]
    multiplications: tuple[int, int]
    lost: float
    slope: float

    def __repr__(self) -> str:
        return summary(self, "name", "rows", "columns", "multiplications", "lost")


@dataclass(frozen=True)
class ChannelReport:
    """A network with fewer channels.

    multiplications, weights: of convolutions and linear layers, left and before, each a pair; settings: how it was
    made; seconds: CPU seconds by part; held_out: mean square by which outputs on other samples differ from the
    network's, over their variance, None without any; biases: by name, those that layers without one were given.
    """

    layers: tuple[CutLayer, ...]
    multiplications: tuple[int, int]
    weights: tuple[int, int]
    settings: Mapping[str, Any]
    seconds: Mapping[str, float]
    held_out: float | None
    biases: Mapping[str, int]

    def __repr__(self) -> str:
        return summary(self, "layers", "multiplications", "weights", "settings", "seconds", "held_out", "biases")

    @property
    def share(self) -> float:
        """Of the multiplications that are left."""
        return self.multiplications[0] / self.multiplications[1]

    def text(self) -> str:
        """A line a layer, and what is proved."""
        width = max([len(layer.name) for layer in self.layers], default=0)
        (left, before), (weights, all_weights) = self.multiplications, self.weights
        lines = [
            f"{left} of {before} multiplications, {100 * self.share:.1f} %;"
            f" {weights} of {all_weights} weights, {100 * weights / all_weights:.1f} %"
        ]
        for layer in self.layers:
            (rows, all_rows), (columns, all_columns) = layer.rows, layer.columns
            lines.append(
                f"{layer.name:{width}}  {rows:4d} of {all_rows:4d} rows, {columns:5d} of {all_columns:5d} columns,"
                f" {100 * layer.multiplications[0] / max(1, layer.multiplications[1]):5.1f} %,"
                f" outputs change by {layer.lost:9.3g}"
            )
        for name, size in self.biases.items():
            lines.append(f"{name} is new, {size} biases")
        worst = max([layer.slope for layer in self.layers], default=0.0)
        lines += [
            f"proved: each layer's loss, recomputed from its least squares (largest derivative left {worst:.1g})",
            "not proved: that these channels are the best to lose",
        ]
        if self.held_out is not None:
            lines.append(f"outputs on other samples differ by {100 * self.held_out:.3g} % of their variance")
        return "\n".join(lines)
