"""How the supports of shared kernels are found, where a share of all weights is the budget."""

from __future__ import annotations

from dataclasses import dataclass

from implicit_models.sim.problem import number


@dataclass(frozen=True)
class OptimalBrainSurgeon:
    """Exact backward elimination of every row, shared out over the network by what the outputs lose.

    Args:
        ridge: pulls towards the network's own weights, relative to the mean square of a layer's columns.
        rounds: how often effects are measured anew on the sparse network; 0 keeps those of the network itself.
        exchanges: of a kept for a removed column after the elimination, at most, a row.
        closed: weight, in [0, 1], of errors that ReLU does not let through, in the refit of the supports; 1 for plain
            least squares.
        effects: whether a row counts by its effect on the outputs; otherwise all count alike.
        samples: at most, of the effects and of all passes but the last.
        positions: of an image at most, drawn anew for every batch, from which the moments of a layer are taken.
        refit_positions: of an image at most, drawn for the refit.

    Raises:
        TypeError, ValueError: naming the choice that is wrong.

    Source:
        Hassibi and Stork (1992); LeCun, Denker and Solla (1990) for effects.
    """

    ridge: float = 2e-3
    rounds: int = 3
    exchanges: int = 40
    closed: float = 0.1
    effects: bool = True
    samples: int = 500
    positions: int = 64
    refit_positions: int = 16

    def __post_init__(self) -> None:
        number("ridge", self.ridge)
        number("closed", self.closed, zero=True, largest=1.0, open_end=False)
        if not isinstance(self.effects, bool):
            raise TypeError(f"effects must be True or False, got {self.effects!r}")
        for name, least in (("rounds", 0), ("exchanges", 0), ("samples", 2), ("positions", 1), ("refit_positions", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an int, got {value!r}")
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
