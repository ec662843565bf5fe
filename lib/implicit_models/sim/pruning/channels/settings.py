"""A budget of whole channels."""

from __future__ import annotations

from dataclasses import dataclass

from implicit_models.sim.problem import number


@dataclass(frozen=True)
class Channels:
    """At most a share of a network's multiplications, by the removal of whole channels: share in (0, 1].

    multiple: of which the number of channels that are left is one, in every set of channels that loses some. Compiled
    convolutions work on blocks of channels, and 17 may take as long as 24.
    """

    share: float
    multiple: int = 4

    def __post_init__(self) -> None:
        number("share", self.share, largest=1.0, open_end=False)
        if isinstance(self.multiple, bool) or not isinstance(self.multiple, int):
            raise TypeError(f"multiple must be an int, got {self.multiple!r}")
        if self.multiple < 1:
            raise ValueError(f"multiple must be at least 1, got {self.multiple}")
