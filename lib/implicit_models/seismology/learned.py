"""Locators that were learned: an implicit model, or the papers' residual MLP, behind the interface of `locate`.

Both map what S stations saw (`encoding`) to longitude, latitude, depth and the travel time to the anchor station. They
need a back-azimuth at every station, know the Earth only from their training data, and give no covariance.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from implicit_models.seismology.encoding import Encoding
from implicit_models.seismology.event_data import SURFACE_P_KM_S
from implicit_models.seismology.geodesy import distance_azimuths, geocentric_latitude, geographic_latitude
from implicit_models.seismology.location import Location
from implicit_models.seismology.picks.phase_names import phase_of
from implicit_models.seismology.table.travel_times import PTable, build_p_table, cache_dir
from implicit_models.seismology.uncertainty import Ellipse
from implicit_models.summaries import summary

if TYPE_CHECKING:
    import pandas

KINDS = ("implicit", "eikonet")
LAYERS = 6
REACH = "stations within, degrees"  # entry of `about`: how far from the source the stations of the training data were
NO_P = "a learned locator takes first P alone"  # why another phase is not used
NONE = Ellipse(math.nan, math.nan, math.nan, math.nan)


class NoAnswer(ValueError):
    """A learned locator cannot place this event; the message says why. Other events of the file are not concerned."""


def default_file(kind: str) -> Path:
    """Where the training command leaves the weights of a kind: locators/KIND.npz in the cache folder."""
    return cache_dir() / "locators" / f"{kind}.npz"


@dataclass(frozen=True, eq=False)
class LearnedLocator:
    """Weights and encoding of a learned locator.

    Args:
        kind: "implicit": y = C x + D u with x = relu(A x + B u), weights A (n, n), B (n, p), C (4, n), D (4, p);
            "eikonet": the residual MLP of six layers, weights W0..W5 and b0..b5, and D (4, p) if it has a linear skip.
        encoding: of inputs and outputs.
        weights: name -> array.
        about: plain values on the training, kept beside the weights.

    Raises:
        ValueError: an unknown kind, missing or additional weights, shapes that do not fit, weights that are no finite
            real numbers; an `about` that is no mapping, or whose distance of stations is no positive number.
    """

    kind: str
    encoding: Encoding
    weights: Mapping[str, np.ndarray]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return summary(self)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        reach = self.about.get(REACH, math.inf) if isinstance(self.about, Mapping) else None
        if not isinstance(reach, (int, float)) or not reach > 0:
            raise ValueError(
                f"about must be a mapping, and its {REACH!r}, if it has it, a positive number, got {self.about!r}"
            )
        for name, w in self.weights.items():
            if np.asarray(w).dtype.kind not in "fiu":
                raise ValueError(f"weight {name} must be real numbers, got {np.asarray(w).dtype}")
        object.__setattr__(self, "weights", {name: np.asarray(w, np.float64) for name, w in self.weights.items()})
        p = self.encoding.n_features
        if self.kind == "implicit":
            n = len(self.weights["A"]) if "A" in self.weights else 0
            wanted: dict[str, tuple[int, ...]] = {"A": (n, n), "B": (n, p), "C": (4, n), "D": (4, p)}
        else:
            sizes = [p, *(len(self.weights.get(f"W{k}", ())) for k in range(LAYERS - 1)), 4]
            wanted = {f"W{k}": (sizes[k + 1], sizes[k]) for k in range(LAYERS)} | {
                f"b{k}": (sizes[k + 1],) for k in range(LAYERS)
            }
            if "D" in self.weights:
                wanted["D"] = (4, p)
        got = {name: w.shape for name, w in self.weights.items()}
        if got != wanted:
            wrong = sorted(name for name in got.keys() | wanted.keys() if got.get(name) != wanted.get(name))
            raise ValueError(
                f"weights of a {self.kind} locator with {p} inputs: {wrong[0]} must have shape {wanted.get(wrong[0])},"
                f" got {got.get(wrong[0])}"
            )
        bad = [name for name, w in self.weights.items() if not np.isfinite(w).all()]
        if bad:
            raise ValueError(f"weight {bad[0]} is not finite")

    @classmethod
    def from_layers(
        cls,
        layers: Sequence[tuple[np.ndarray, np.ndarray]],
        encoding: Encoding,
        *,
        skip: np.ndarray | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> LearnedLocator:
        """A residual MLP from its layers [(W, b), ...] and its linear skip."""
        weights = {f"{name}{k}": w for k, layer in enumerate(layers) for name, w in zip("Wb", layer, strict=True)}
        return cls("eikonet", encoding, weights | ({} if skip is None else {"D": skip}), about or {})

    @classmethod
    def from_matrices(cls, A, B, C, D, encoding: Encoding, *, about: Mapping[str, Any] | None = None) -> LearnedLocator:
        """An implicit model with ReLU from its matrices (arrays or tensors)."""
        arrays = {
            name: np.asarray(getattr(w, "detach", lambda w=w: w)())
            for name, w in zip("ABCD", (A, B, C, D), strict=True)
        }
        return cls("implicit", encoding, arrays, about or {})

    def save(self, path: str | Path) -> None:
        """Write the file that `load` reads, whole or not at all."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                texts = {
                    "kind": self.kind,
                    "encoding": json.dumps(self.encoding.to_dict()),
                    "about": json.dumps(dict(self.about)),
                }
                arrays: dict[str, Any] = {name: np.array(text) for name, text in texts.items()} | dict(self.weights)
                np.savez(file, **arrays)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path, *, kind: str | None = None) -> LearnedLocator:
        """Read a locator.

        Args:
            path: file of `save`.
            kind: what it should be; None: whatever it is.

        Raises:
            FileNotFoundError: no such file; says how to make it.
            ValueError: not such a file, or of another kind.
        """
        path = Path(path)
        if not path.is_file():
            command = f"python -m reproduction.tools.train_locator --method {kind or '|'.join(KINDS)}"
            raise FileNotFoundError(f"no learned locator at {path}: `{command}` writes one, or name another file")
        try:
            with np.load(path, allow_pickle=False) as archive:
                content = {name: archive[name] for name in archive.files}
            texts = {name: str(content.pop(name)) for name in ("kind", "encoding", "about")}
            found = cls(
                texts["kind"], Encoding.from_dict(json.loads(texts["encoding"])), content, json.loads(texts["about"])
            )
        except (KeyError, ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} is not a learned locator: {error}") from error
        if kind is not None and found.kind != kind:
            raise ValueError(f"{path} holds a locator of kind {found.kind!r}, not {kind!r}")
        return found

    def outputs(self, U: Float[np.ndarray, "N p"]) -> Float[np.ndarray, "N 4"]:
        """The network itself, encoded inputs to encoded outputs; NaN, with a warning, where an implicit model's state
        does not converge."""
        U, w = np.asarray(U, np.float64), self.weights
        if self.kind == "eikonet":
            layer = lambda h, k: h @ w[f"W{k}"].T + w[f"b{k}"]
            relu = lambda h: np.maximum(h, 0)
            h = relu(layer(relu(layer(U, 0)), 1))
            h = relu(h + layer(relu(layer(h, 2)), 3))
            y = layer(relu(layer(h, 4)), 5)
            return y + U @ w["D"].T if "D" in w else y
        import torch

        from implicit_models.equilibrium.solve import solve_equilibrium

        found = solve_equilibrium(
            torch.from_numpy(w["A"]), torch.from_numpy(U @ w["B"].T), "relu", tol=1e-10, max_iter=2000
        )
        y = found.x.numpy() @ w["C"].T + U @ w["D"].T
        y[~found.converged.numpy()] = np.nan
        return y

    def predict(
        self,
        station_lat: Float[np.ndarray, "N S"],
        station_lon: Float[np.ndarray, "N S"],
        p_delay_s: Float[np.ndarray, "N S"],
        back_azimuth: Float[np.ndarray, "N S"],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Latitude, longitude (degrees), depth (km) of each event and the travel time to its anchor (s), on the sphere.

        Args:
            station_lat, station_lon: (N, S) degrees; latitudes geocentric; column 0 is the anchor.
            p_delay_s: arrivals after the anchor's.
            back_azimuth: degrees clockwise from north.

        Raises:
            ValueError: shapes that do not fit, or values that are not finite.
        """
        U = self.encoding.encode(station_lat, station_lon, 0.0, p_delay_s, back_azimuth)
        return self.encoding.decode(self.outputs(U), np.asarray(station_lon, np.float64)[:, 0])

    @property
    def reach_deg(self) -> float:
        """Largest distance of a station in the training data; inf if the file does not say."""
        return float(self.about.get(REACH, math.inf))

    def locate_picks(self, picks: pandas.DataFrame, *, table: PTable | None = None) -> Location:
        """Locate one event from as many of its picks as the network has stations.

        The first to pick is the anchor; then comes, again and again, the station farthest from those chosen, among
        those that are no farther from the anchor than training stations were from the source (`about`), as long as
        these are enough.

        Args:
            picks: of one event, from `read_picks`.
            table: for the residuals; None: the default Ak135 table.

        Raises:
            NoAnswer: too few picks with back-azimuths; names the stations without. Or the network's state does not
                converge.
        """
        others = [phase_of(phase) not in ("P", "") for phase in picks["phase"]]
        picks = picks.assign(flag=[flag or NO_P * other for flag, other in zip(picks["flag"], others)])
        usable = picks[picks["flag"] == ""]
        ready = usable[usable["baz"].notna()]
        wanted, event = self.encoding.n_stations, str(picks["event"].iloc[0])
        if len(ready) < wanted:
            without = ", ".join(usable["station"][usable["baz"].isna()]) or "none"
            raise NoAnswer(
                f"event {event}: the {self.kind} locator needs {wanted} first P picks with back-azimuths and has"
                f" {len(ready)}; stations without a back-azimuth: {without}"
            )
        clock = (usable["p_time"] - usable["elev_m"].fillna(0.0) / 1000 / SURFACE_P_KM_S).to_numpy(np.float64)
        lat, lon = geocentric_latitude(usable["lat"].to_numpy(np.float64)), usable["lon"].to_numpy(np.float64)
        chosen = _spread(lat, lon, clock, np.flatnonzero(usable["baz"].notna()), wanted, self.reach_deg)
        delay = clock[chosen] - clock[chosen[0]]
        answer = self.predict(
            lat[None, chosen], lon[None, chosen], delay[None], usable["baz"].to_numpy(np.float64)[None, chosen]
        )
        if not np.isfinite(answer).all():
            raise NoAnswer(
                f"event {event}: the {self.kind} locator has no answer, its state does not converge for these picks"
            )
        return self._location(
            picks, usable, chosen, lat, lon, clock, [float(value[0]) for value in answer], event, table
        )

    def _location(self, picks, usable, chosen, lat, lon, clock, answer, event: str, table: PTable | None) -> Location:
        from pandas import DataFrame

        found_lat, found_lon, depth, travel = answer
        names = list(usable["station"])
        notes = [
            f"stations: {', '.join(names[k] for k in chosen)} of {len(names)}; {names[chosen[0]]}, the first to pick,"
            " is the anchor, each other the farthest from those before it"
            + (f" (within {self.reach_deg:g} degrees)" if math.isfinite(self.reach_deg) else ""),
            "a learned locator gives no covariance",
        ]
        flags = []
        epicentre = min(max(found_lat, -90.0), 90.0)
        table = build_p_table(shadow="diffracted") if table is None else table
        within = min(max(depth, float(table.depths_km[0])), float(table.depths_km[-1]))
        if epicentre != found_lat or within != depth:
            flags.append("off_range")
            notes.append(
                f"the network's answer: latitude {found_lat:.2f}, depth {depth:.1f} km; residuals are those of"
                f" {epicentre:.2f}, {within:.1f} km"
            )
        origin = float(clock[chosen[0]] - travel)
        dist, azimuth, _ = distance_azimuths(epicentre, found_lon, lat, lon)
        residual = clock - origin - table.lookup(within, dist, on_shadow="nan")[0]
        elsewhere = (
            self.encoding.longitude == "absolute" and max(abs(x % 360 - 180) for x in (lon[chosen[0]], found_lon)) > 90
        )
        if elsewhere or dist[chosen].max() > self.reach_deg:
            flags.append("extrapolated")
        seen = np.sort(azimuth[chosen])
        rows, place = [], 0
        for row in _rows(picks):
            if not row["reason"]:
                row |= {
                    "dist_deg": dist[place],
                    "azimuth": azimuth[place],
                    "residual_s": residual[place],
                    "used": place in chosen,
                }
                if not row["used"]:
                    without = math.isnan(usable["baz"].iloc[place])
                    row["reason"] = "no back-azimuth" if without else f"not among the {len(chosen)} stations chosen"
                place += 1
            rows.append(row)
        return Location(
            event=event,
            lat=float(geographic_latitude(epicentre)),
            lon=found_lon,
            depth_km=depth,
            origin_time=origin,
            covariance=np.full((4, 4), np.nan),
            ellipse=NONE,
            rms_s=float(np.sqrt(np.mean(residual[chosen] ** 2))),
            chi2=math.nan,
            dof=0,
            azimuthal_gap=float(np.max(np.diff(np.r_[seen, seen[0] + 360]))),
            residuals=DataFrame(rows),
            flags=tuple(flags),
            method=self.kind,
            notes=tuple(notes),
        )

    def not_located(self, picks: pandas.DataFrame, why: NoAnswer) -> Location:
        """What stands for an event without an answer among those that have one: NaN, and the reason as a note."""
        from pandas import DataFrame

        return Location(
            event=str(picks["event"].iloc[0]),
            lat=math.nan,
            lon=math.nan,
            depth_km=math.nan,
            origin_time=math.nan,
            covariance=np.full((4, 4), np.nan),
            ellipse=NONE,
            rms_s=math.nan,
            chi2=math.nan,
            dof=0,
            azimuthal_gap=math.nan,
            residuals=DataFrame(_rows(picks)),
            flags=(),
            method=self.kind,
            notes=(str(why),),
        )


def _rows(picks: pandas.DataFrame) -> list[dict[str, Any]]:
    """The lines of `Location.residuals` before anything is known of them; "reason" is the flag of a pick that cannot be
    used."""
    unknown = dict.fromkeys(("dist_deg", "azimuth", "residual_s"), math.nan)
    return [
        {
            "station": p.station,
            "phase": p.phase,
            "row": p.row,
            "lat": p.lat,
            "lon": p.lon,
            **unknown,
            "sigma_s": p.sigma_s,
            "used": False,
            "reason": p.flag,
        }
        for p in picks.itertuples()
    ]


def _spread(lat, lon, clock, candidates: np.ndarray, wanted: int, reach_deg: float) -> list[int]:
    """Indices of the first pick, then of the candidates each farthest from those before."""
    chosen = [int(candidates[np.argmin(clock[candidates])])]
    away = distance_azimuths(lat[chosen[0]], lon[chosen[0]], lat[candidates], lon[candidates])[0]
    candidates = candidates[away <= max(reach_deg, np.partition(away, wanted - 1)[wanted - 1])]
    nearest = np.full(candidates.size, np.inf)
    while len(chosen) < wanted:
        nearest = np.minimum(
            nearest, distance_azimuths(lat[chosen[-1]], lon[chosen[-1]], lat[candidates], lon[candidates])[0]
        )
        nearest[np.isin(candidates, chosen)] = -1.0
        chosen.append(int(candidates[np.argmax(nearest)]))
    return chosen
