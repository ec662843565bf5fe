"""Travel times of P, S and the depth phases pP and sP, from the same Earth model.

    P           the table of `travel_times`
    S           the first S, up to the end of the direct S
    Sg, Sn      names of the first S: while it stays in the crust, and once it has been in the mantle. One that is
                reported where the other comes first is another arrival, and is not used
    pP, sP      from the distance on at which they arrive without a gap, up to the core's shadow

`depth_phases` has the rays of the last two.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from implicit_models.seismology.table import depth_phases, ray_branches
from implicit_models.seismology.table.travel_times import PTable, build_p_table, cached, tabulated
from implicit_models.summaries import summary

PHASES = ("P", "S", "Sg", "Sn", "pP", "sP")
SHEAVES = ("P", "S", "pP", "sP")  # the second is `table.kernels.S_SHEAF`
SHEAF_OF = np.array([SHEAVES.index(name if name in SHEAVES else "S") for name in PHASES])
MOHO_KM = 35.0
NEVER = -1.0


@dataclass(frozen=True, eq=False)
class PhaseTable:
    """Travel times of the phases `PHASES`.

    Args:
        p: of P alone.
        depths_km: (Z,) of the source.
        dist_deg: (X,) degrees of arc.
        window: (F, Z, 2) first and last distance of every phase, degrees.
        model: name of the Earth model.
        arrays: what the kernels take, `table.kernels`.
    """

    p: PTable
    depths_km: Float[np.ndarray, " Z"]
    dist_deg: Float[np.ndarray, " X"]
    window: Float[np.ndarray, "F Z 2"]
    model: str
    arrays: tuple[np.ndarray, ...]

    def __repr__(self) -> str:
        return summary(self, "depths_km", "dist_deg", "model", phases=PHASES)

    @property
    def p_end_deg(self) -> np.ndarray:
        return self.p.p_end_deg

    def of(self, phase: str) -> PTable:
        """The table of one phase, which goes on beyond its window.

        Raises:
            ValueError: a phase that is not among `PHASES`.
        """
        if phase not in PHASES:
            raise ValueError(f"phase must be one of {', '.join(PHASES)}, got {phase!r}")
        grid, nodes, first, sheets, ends, _, sheaf = self.arrays
        s = sheaf[PHASES.index(phase)]
        own = (grid, nodes[s], first[s], sheets, ends[s])
        return PTable(nodes[s, :, :, 0], self.depths_km, self.dist_deg, ends[s], "diffracted", self.model, own)


def build_phase_table(
    depths_km: Sequence[float] | None = None,
    dist_deg: Sequence[float] | None = None,
    model: str = "ak135",
    *,
    progress: bool = True,
    cache: Path | str | bool | None = None,
) -> PhaseTable:
    """Travel times of all phases on an even grid; arguments and errors as in `build_p_table`.

    Source:
        Kennett, Engdahl & Buland (1995), ak135; Crotwell et al. (1999), TauP.
    """
    p = build_p_table(depths_km, dist_deg, model=model, shadow="diffracted", progress=progress, cache=cache)
    sheaves = [_as_arrays(p)]
    for name in SHEAVES[1:]:
        build = functools.partial(_tabulate, name, p, model, progress)
        sheaves.append(cached(name, model, p.depths_km, p.dist_deg, cache, build))
    first, count = [], 0
    for sheaf in sheaves:
        first.append(np.where(sheaf["first"] < 0, -1, sheaf["first"] + 16 * count).astype(np.int32))
        count += len(sheaf["sheets"])
    window = np.stack([_window(name, p, dict(zip(SHEAVES, sheaves))) for name in PHASES])
    stacked = (
        p.arrays[0],
        np.stack([sheaf["nodes"] for sheaf in sheaves]),
        np.stack(first),
        np.concatenate([sheaf["sheets"] for sheaf in sheaves]),
        np.stack([sheaf["p_end"] for sheaf in sheaves]),
        window,
        SHEAF_OF,
    )
    return PhaseTable(p, p.depths_km, p.dist_deg, window, model, stacked)


def p_alone(table: PTable | PhaseTable) -> tuple[np.ndarray, ...]:
    """`PhaseTable.arrays` of P alone, without a copy."""
    p = table.p if isinstance(table, PhaseTable) else table
    grid, nodes, first, sheets, ends = p.arrays
    window = np.stack([np.full(ends.size, NEVER), ends], axis=-1)[None]
    return grid, nodes[None], first[None], sheets, ends[None], window, np.zeros(1, np.int64)


def _as_arrays(p: PTable) -> dict[str, np.ndarray]:
    return dict(zip(("grid", "nodes", "first", "sheets", "p_end"), p.arrays))


def _tabulate(name: str, p: PTable, model: str, progress: bool) -> dict[str, np.ndarray]:
    medium, grid = ray_branches.earth(model, "S" if name == "S" else "P"), np.radians(p.dist_deg)
    if name == "S":
        times = lambda depth, above: ray_branches.branch_times(medium, depth, grid, above=above)
        crust = int(np.searchsorted(medium.boundaries(), MOHO_KM + 1e-6))  # branches that turn above the mantle

        def begins(branches: ray_branches.Branches, best: np.ndarray) -> float:
            mantle = np.flatnonzero(best >= crust)
            return (
                NEVER if not mantle.size or mantle[0] == 0 else float(p.dist_deg[mantle[0] - 1 : mantle[0] + 1].mean())
            )

    else:
        up = ray_branches.earth(model, "P" if name == "pP" else "S")
        times = lambda depth, above: depth_phases.reflected_times(medium, up, depth, grid, above=above)

        def begins(branches: ray_branches.Branches, best: np.ndarray) -> float:
            arrives = branches.reached.any(axis=0) | (grid > branches.end)
            gaps = np.flatnonzero(~arrives)
            return float(p.dist_deg[gaps[-1] + 1]) if gaps.size and gaps[-1] + 1 < grid.size else NEVER

    return tabulated(p.depths_km, p.dist_deg, medium, times, f"{model} {name}", progress, begins)


def _window(name: str, p: PTable, sheaves: dict[str, dict[str, np.ndarray]]) -> np.ndarray:
    """(Z, 2) distances between which a phase arrives."""
    begin = np.full(p.depths_km.size, NEVER)
    if name in ("S", "P"):
        return np.stack([begin, sheaves[name]["p_end"]], axis=-1)
    if name in ("Sg", "Sn"):
        end = sheaves["S"]["begin"]
        return np.stack([begin, end] if name == "Sg" else [end, sheaves["S"]["p_end"]], axis=-1)
    return np.stack([sheaves[name]["begin"], sheaves[name]["p_end"]], axis=-1)
