"""Travel times of the first P arrival on a grid of depths and distances, with their slopes, and their interpolation.

First arrivals only: p and P, which end at 97 to 100 degrees, and the wave that the core diffracts beyond. Core phases
(PKP) never enter a P table. What a lookup does in the shadow is chosen when the table is built:

    "refuse"      distances beyond the last P are an error (or NaN on request)
    "diffracted"  Pdiff goes on with the slowness of the ray that grazes the core, up to 180 degrees

`ray_branches` has the rays, `table_kernels` the interpolation.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from implicit_models.seismology.table import kernels as table_kernels
from implicit_models.seismology.table import ray_branches
from implicit_models.summaries import summary

PHASES = ("p", "P", "Pdiff")
_DEGREE = np.pi / 180
_ARRAYS = ("grid", "nodes", "first", "sheets", "p_end")


@dataclass(frozen=True, eq=False)
class PTable:
    """Travel times of the first P arrival.

    Args:
        times: (Z, X) s; NaN beyond the last P where the shadow is refused.
        depths_km: (Z,) of the source.
        dist_deg: (X,) degrees of arc between the source and a receiver on the surface.
        p_end_deg: (Z,) the last distance that a direct P reaches.
        shadow: "refuse" or "diffracted".
        model: name of the Earth model.
        arrays: what the kernels of `table_kernels` take; they never refuse.
    """

    times: Float[np.ndarray, "Z X"]
    depths_km: Float[np.ndarray, " Z"]
    dist_deg: Float[np.ndarray, " X"]
    p_end_deg: Float[np.ndarray, " Z"]
    shadow: Literal["refuse", "diffracted"]
    model: str
    arrays: tuple[np.ndarray, ...]

    def __repr__(self) -> str:
        return summary(self, "times", "depths_km", "dist_deg", "p_end_deg", "shadow", "model")

    def lookup(
        self,
        depth_km: Float[np.ndarray, " ..."] | float,
        dist_deg: Float[np.ndarray, " ..."] | float,
        *,
        on_shadow: Literal["raise", "nan"] = "raise",
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Travel time and its slopes.

        Args:
            depth_km: of the source.
            dist_deg: to the receiver; both broadcast.
            on_shadow: what a table that refuses the shadow does there: an error, or NaN in all three results.

        Returns:
            T in s, dT/dz in s/km, dT/dDelta in s/degree; scalars for scalars.

        Raises:
            ValueError: a value off the grid, not a number, or in a refused shadow; names it and its index.
        """
        if on_shadow not in ("raise", "nan"):
            raise ValueError(f"on_shadow must be 'raise' or 'nan', got {on_shadow!r}")
        depth, dist = np.broadcast_arrays(np.asarray(depth_km, np.float64), np.asarray(dist_deg, np.float64))
        flat_depth, flat_dist = np.ascontiguousarray(depth).reshape(-1), np.ascontiguousarray(dist).reshape(-1)
        out = np.empty((3, flat_depth.size))
        if table_kernels.lookup_many(self.arrays, flat_depth, flat_dist, self.shadow == "refuse", *out):
            self._explain(flat_depth, flat_dist, out[0], dist.shape, on_shadow)
        T, by_depth, by_distance = (part.reshape(dist.shape)[()] for part in out)
        return T, by_depth, by_distance

    def _explain(self, depth, dist, T, shape, on_shadow) -> None:
        on_depths = (depth >= self.depths_km[0]) & (depth <= self.depths_km[-1])
        off = np.flatnonzero(~(on_depths & (dist >= self.dist_deg[0]) & (dist <= self.dist_deg[-1])))
        at = int(off[0]) if off.size else int(np.flatnonzero(np.isnan(T))[0])
        where = f" at {tuple(int(i) for i in np.unravel_index(at, shape))}" if shape else ""
        if off.size:
            raise ValueError(
                f"depth {depth[at]:g} km and distance {dist[at]:g} degrees{where} are off the table: "
                f"depths {self.depths_km[0]:g} to {self.depths_km[-1]:g} km, "
                f"distances {self.dist_deg[0]:g} to {self.dist_deg[-1]:g} degrees"
            )
        if on_shadow == "raise":
            end = np.interp(depth[at], self.depths_km, self.p_end_deg)
            raise ValueError(
                f"distance {dist[at]:g} degrees{where} lies in the core's shadow: from {depth[at]:g} km depth P ends at"
                f" {end:.2f} degrees; a table built with shadow='diffracted' goes on with Pdiff"
            )


def build_p_table(
    depths_km: Sequence[float] | None = None,
    dist_deg: Sequence[float] | None = None,
    phases: Sequence[str] = PHASES,
    model: str = "ak135",
    *,
    shadow: Literal["refuse", "diffracted"] = "refuse",
    progress: bool = True,
    cache: Path | str | bool | None = None,
) -> PTable:
    """Travel times of the first P arrival on an even grid.

    Args:
        depths_km: evenly spaced, from 0 km at the least to above the core; 0, 1, ..., 694 by default.
        dist_deg: evenly spaced, within 0 to 180; 0, 0.25, ..., 180 by default.
        phases: "p", "P" and, unless the shadow is refused, "Pdiff".
        model: of obspy: "ak135", "iasp91", ...
        shadow: what lookups beyond the last P do.
        progress: a bar (with tqdm) or a line on a terminal.
        cache: folder of tables built before; None: that of IMPLICIT_CACHE, or ~/.cache/implicit-models; False: none. A
            file is named after all that determines its content, and is written whole or not at all.

    Returns:
        PTable.

    Raises:
        ValueError: a grid that is not even or leaves the mantle, unknown phases, a shadow policy that contradicts them,
            an Earth model with zones where rays cannot turn.
        ModuleNotFoundError: obspy is missing.

    Source:
        Kennett, Engdahl & Buland (1995), ak135; Buland & Chapman (1983), layers v = A r^B; Crotwell et al. (1999),
        TauP.
    """
    depths = _even("depths_km", np.arange(695.0) if depths_km is None else depths_km)
    dists = _even("dist_deg", np.arange(721) * 0.25 if dist_deg is None else dist_deg)
    _check_settings(depths, dists, phases, shadow)
    arrays = cached("p", model, depths, dists, cache, lambda: _build(depths, dists, model, progress))
    times = arrays["nodes"][:, :, 0].copy()
    if shadow == "refuse":
        times[dists[None, :] > arrays["p_end"][:, None]] = np.nan
    return PTable(times, depths, dists, arrays["p_end"], shadow, model, tuple(arrays[name] for name in _ARRAYS))


def cache_dir() -> Path:
    """Folder for what can be made again: IMPLICIT_CACHE, or ~/.cache/implicit-models."""
    named = os.environ.get("IMPLICIT_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "implicit-models"


def cached(
    name: str,
    model: str,
    depths: np.ndarray,
    dists: np.ndarray,
    cache: Path | str | bool | None,
    build: Callable[[], dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """The arrays of a table that was built before, or those of `build`, which are kept; `cache` as in
    `build_p_table`."""
    if cache is None or cache is True:
        cache = cache_dir() / "travel_times"
    folder = None if cache is False else Path(cache)
    path = None if folder is None else folder / f"{name}-{model}-{_content_key(depths, dists, model)}.npz"
    arrays = _load(path)
    if arrays is None:
        arrays = build()
        if path is not None:
            _save(path, arrays)
    return arrays


def _even(name: str, given: Sequence[float] | np.ndarray) -> np.ndarray:
    values = np.asarray(given, np.float64)
    if values.ndim != 1 or values.size < 2:
        raise ValueError(f"{name} needs two or more values in one dimension, got shape {values.shape}")
    step = (values[-1] - values[0]) / (values.size - 1)
    even = values[0] + step * np.arange(values.size)
    wrong = np.flatnonzero(~(np.abs(values - even) <= 1e-9 * max(1.0, np.abs(values[-1]))))
    if not step > 0 or wrong.size:
        at = int(wrong[0]) if wrong.size else 1
        raise ValueError(f"{name} must rise in even steps of {step:g}, got {values[at]:g} at index {at}")
    return values


def _check_settings(depths, dists, phases, shadow) -> None:
    if depths[0] < 0:
        raise ValueError(f"depths_km must start at 0 or below the surface, got {depths[0]:g}")
    if dists[0] < 0 or dists[-1] > 180:
        raise ValueError(f"dist_deg must lie in 0 to 180 degrees, got {dists[0]:g} to {dists[-1]:g}")
    if shadow not in ("refuse", "diffracted"):
        raise ValueError(f"shadow must be 'refuse' or 'diffracted', got {shadow!r}")
    unknown = sorted(set(phases) - set(PHASES))
    if unknown or not {"p", "P"} <= set(phases):
        raise ValueError(
            f"a table of first P arrivals has the phases 'p', 'P' and perhaps 'Pdiff', got {tuple(phases)}"
        )
    if shadow == "diffracted" and "Pdiff" not in phases:
        raise ValueError(f"shadow='diffracted' needs the phase 'Pdiff', got {tuple(phases)}")


def _content_key(depths: np.ndarray, dists: np.ndarray, model: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        obspy = version("obspy")
    except PackageNotFoundError:
        obspy = None
    digest = hashlib.sha256(json.dumps([model, obspy]).encode())
    for name in ("depth_phases.py", "phases.py", "ray_branches.py", "travel_times.py"):
        digest.update(Path(__file__).with_name(name).read_bytes())
    for values in (depths, dists):
        digest.update(np.int64(values.size).tobytes() + values.tobytes())
    return digest.hexdigest()[:32]


def _load(path: Path | None) -> dict[str, np.ndarray] | None:
    if path is None or not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
            return arrays if set(_ARRAYS) <= set(arrays) else None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        warnings.warn(f"{path} is damaged ({type(error).__name__}: {error}); it is built again", stacklevel=3)
        return None


def _save(path: Path, arrays: dict[str, Any]) -> None:
    part = path.with_name(f"{path.stem}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                np.savez(file, **arrays)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(f"the travel times could not be kept in {path}: {error}", stacklevel=3)


def _build(depths: np.ndarray, dists: np.ndarray, model: str, progress: bool) -> dict[str, np.ndarray]:
    medium, grid = ray_branches.earth(model), dists * _DEGREE
    times = lambda depth, above: ray_branches.branch_times(medium, depth, grid, above=above)
    return tabulated(depths, dists, medium, times, f"{model} P", progress)


def tabulated(
    depths: np.ndarray,
    dists: np.ndarray,
    medium: ray_branches.Medium,
    times: Callable[[float, bool], ray_branches.Branches],
    what: str,
    progress: bool,
    begins: Callable[[ray_branches.Branches, np.ndarray], float] | None = None,
) -> dict[str, np.ndarray]:
    """The arrays of a table.

    Args:
        depths, dists: of its grid, km and degrees.
        medium: its boundaries and its core.
        times: (depth, whether a source on a boundary lies above it) -> Branches.
        what: model and phase, for messages.
        progress: whether to report.
        begins: (branches, (X,) the first of them) -> a distance in degrees that is kept for each depth, as `begin`.

    Raises:
        ValueError: depths in the core; a distance at which nothing arrives.
    """
    deepest = medium.radius - medium.bottom
    if depths[-1] >= deepest:
        raise ValueError(f"depths_km must stay above the core at {deepest:g} km, got {depths[-1]:g}")
    shape = (len(depths), len(dists))
    nodes, p_end, begin = np.empty((*shape, 3)), np.empty(len(depths)), np.empty(len(depths))
    first, sheets, count = np.full((shape[0] - 1, shape[1] - 1), -1, np.int32), [], 0
    boundaries, columns = medium.boundaries(), np.arange(shape[1])
    upper = None  # the row above, seen from below
    for i, depth in enumerate(_reported(depths, progress)):
        on_boundary = i > 0 and bool(np.any(np.abs(boundaries - depth) < 1e-9))
        lower = times(depth, on_boundary)
        if upper is not None and upper.own == lower.own:
            # dT/dz jumps at a boundary: nodes have that of the deeper side, the cells above it surfaces of their own.
            for j, surfaces in _surfaces(upper, lower, every=on_boundary):
                first[i - 1, j] = 16 * count + len(surfaces)
                sheets.append(surfaces)
                count += len(surfaces)
        upper = times(depth, False) if on_boundary else lower
        best = upper.first_arrival()
        for part, values in enumerate((upper.T, upper.P * _DEGREE, upper.Z)):
            nodes[i, :, part] = values[best, columns]
        p_end[i] = upper.end / _DEGREE
        if begins is not None:
            begin[i] = begins(upper, best)
        if not np.isfinite(nodes[i]).all():
            j = int(np.flatnonzero(~np.isfinite(nodes[i]).all(axis=1))[0])
            raise ValueError(f"model {what} has no arrival at {dists[j]:g} degrees from {depth:g} km depth")
    steps = [depths[0], (depths[-1] - depths[0]) / (shape[0] - 1), dists[0], (dists[-1] - dists[0]) / (shape[1] - 1)]
    kept = np.concatenate(sheets) if sheets else np.zeros((0, 4, 3))
    found = {"grid": np.array(steps), "nodes": nodes, "first": first, "sheets": kept, "p_end": p_end}
    return found if begins is None else found | {"begin": begin}


def _reported(depths: np.ndarray, progress: bool) -> Iterable[float]:
    """The depths, with a bar on a terminal; a line there where tqdm is missing."""
    if not progress:
        return depths
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        if sys.stderr.isatty():
            print(f"travel times of {len(depths)} depths, some seconds", file=sys.stderr)
        return depths
    return tqdm(depths, desc="travel times", unit="depth", disable=None, leave=False)


def _surfaces(upper: ray_branches.Branches, lower: ray_branches.Branches, every: bool):
    """(column, surfaces (n, 4, 3)) of the cells whose corners belong to several branches, or of every cell.

    A branch between those of the corners may be first inside the cell.
    """
    rows = (upper, lower)
    codes = np.stack([row.first_arrival() for row in rows])
    mixed = np.flatnonzero((codes[:, :-1] != codes[0, 1:]).any(axis=0) | (codes[1, 1:] != codes[0, 1:]))
    found = []
    for j in range(codes.shape[1] - 1) if every else mixed:
        corners = [(row, x, row.T[code[x], x]) for row, code in zip(rows, codes, strict=True) for x in (j, j + 1)]
        # The tangent that stands in for a branch where it does not arrive must not come first there.
        surfaces = [
            [(max(row.T[k, x], first), row.P[k, x] * _DEGREE, row.Z[k, x]) for row, x, first in corners]
            for k in range(codes[:, j : j + 2].min(), codes[:, j : j + 2].max() + 1)
            if k in codes[:, j : j + 2] or all(row.reached[k, j : j + 2].all() for row in rows)
        ]
        found.append((j, np.array(surfaces)))
    return found
