"""The state of a call of `geiger.locate_events`: solve, leave picks out, solve again.

The normal equations of an event stand in `kernels.py`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.kernels import kernel
from implicit_models.seismology.event_data import DepthRange, EventData, ModelError
from implicit_models.seismology.geiger.kernels import (
    DEGREE,
    Picks,
    angle_between,
    copy,
    normal_equations,
    picks_between,
    system_of,
)
from implicit_models.seismology.geiger.outliers import CUT, LEAST_PICKS, robust_locate
from implicit_models.seismology.geiger.starts import DEPTHS, DEPTHS_WITH_S, POINTS, RINGS, all_chord_times, locate_many
from implicit_models.seismology.geodesy import geographic_latitude
from implicit_models.seismology.locations import (
    ABSENT,
    BEYOND,
    CLOSE_CHI2,
    OUTLIER,
    UNRESOLVED_KM,
    USED,
    VAGUE_DEPTH_KM,
    Locations,
)
from implicit_models.seismology.table.kernels import S_SHEAF, SHEAR_ERROR, outside_window
from implicit_models.seismology.table.phases import PhaseTable, p_alone
from implicit_models.seismology.table.travel_times import PTable
from implicit_models.seismology.uncertainty import covariances

RADIUS_KM = 6371.0
STEPS = 40  # of a descent
ROUNDS = 8  # of leaving out and taking back


class Fit:
    """State of one call: solutions, and which picks are used."""

    def __init__(
        self, data: EventData, table: PTable | PhaseTable, depth: DepthRange, model_error: ModelError, starts: int
    ) -> None:
        self.data, self.table, self.starts = data, table, starts
        self.phases = table.arrays if isinstance(table, PhaseTable) else p_alone(table)
        self.model = model_error.sigma_s**2, model_error.range_deg * DEGREE
        low, high = self.low, self.high = float(depth.bounds[0]), float(depth.bounds[1])
        self.depths = np.unique(
            np.clip(DEPTHS_WITH_S if isinstance(table, PhaseTable) else DEPTHS, low, high)
        )  # a start outside the bounds may fit better than all within, and stay
        self.rows = all_chord_times(self.phases, self.depths)
        self.fixed, self.default = depth.fixed_km, depth.default_km
        n, picks = data.n_events, data.time.size
        self.event = np.repeat(np.arange(n), np.diff(data.begin))
        self.state = np.full(picks, USED, np.int8)
        self.out, self.other = np.full((n, 7), np.nan), np.full((n, 6), np.nan)
        self.lowest, self.highest = np.full(n, low), np.full(n, high)
        self.located = np.zeros(n, bool)
        self.n_data = np.zeros(n, np.int64)
        self.information, self.scatter = np.full((n, 4, 4), np.nan), np.full((n, 4, 4), np.nan)
        self.gap, self.p_end = np.full(n, np.nan), np.full(n, np.nan)
        self.residual, self.dist, self.azimuth = (np.full(picks, np.nan) for _ in range(3))
        self.beyond = np.zeros(picks, bool)
        self.baz_used, self.baz_size = data.baz_weight > 0, np.full(picks, np.nan)

    def solve(self, events: np.ndarray) -> None:
        """Locate these events from their used picks."""
        data = self.data
        used = self.state == USED
        times = np.bincount(self.event[used], minlength=data.n_events)
        angles = np.bincount(self.event[used & self.baz_used], minlength=data.n_events)
        self.n_data[events] = (times + angles)[events]
        self.located[events] = ((times + angles >= 3) & ((times >= 3) | (angles >= 2)))[events]
        few = times + angles < 4
        depth = (
            np.where(few, self.default, math.nan) if self.fixed is None else np.full(data.n_events, float(self.fixed))
        )
        free = np.isnan(depth)
        self.lowest[events] = np.where(free, self.low, depth)[events]
        self.highest[events] = np.where(free, self.high, depth)[events]
        self.out[events], self.other[events] = np.nan, np.nan
        go = events[self.located[events]]
        if go.size == 0:
            return
        chosen, begin = _picks_of(data.begin, go)
        weight = np.where(used, data.weight, 0.0)[chosen]
        baz_weight = np.where(used & self.baz_used, data.baz_weight, 0.0)[chosen]
        out, other = np.empty((go.size, 7)), np.empty((go.size, 6))
        picks = Picks(data.place[chosen], data.time[chosen], weight, data.baz[chosen], baz_weight, data.phase[chosen])
        locate_many(
            begin,
            picks,
            self.phases,
            self.rows,
            RINGS,
            POINTS,
            self.depths,
            self.starts,
            self.lowest[go],
            self.highest[go],
            STEPS,
            out,
            other,
        )
        self.out[go], self.other[go] = out, other
        information, scatter = np.empty((go.size, 4, 4)), np.empty((go.size, 4, 4))
        gap, p_end = np.empty(go.size), np.empty(go.size)
        residual, dist, azimuth = (np.empty(chosen.size) for _ in range(3))
        beyond = np.empty(chosen.size, bool)
        found = Described(information, scatter, gap, p_end, residual, dist, azimuth, beyond)
        _describe(begin, picks, self.phases, self.table.p_end_deg, *self.model, out, found)
        self.information[go], self.scatter[go], self.gap[go], self.p_end[go] = information, scatter, gap, p_end
        self.residual[chosen], self.dist[chosen], self.azimuth[chosen], self.beyond[chosen] = (
            residual,
            dist,
            azimuth,
            beyond,
        )
        place, u = data.place[chosen], np.repeat(out[:, :3], np.diff(begin), axis=0)
        self.baz_size[chosen] = np.abs(_baz_residuals(u, place, data.baz[chosen])) * np.sqrt(data.baz_weight[chosen])

    def leave_out(self, outliers: bool) -> None:
        """Refuse picks beyond the direct P and set outliers aside, until nothing changes."""
        from scipy.stats import chi2

        data, n = self.data, self.data.n_events
        events, robust_tries = np.flatnonzero(self.located), np.zeros(n, np.int64)
        size_of, returned = np.sqrt(data.weight), data.phase == 0
        for _ in range(ROUNDS):
            if events.size == 0:
                return
            before, angles_before = self.state.copy(), self.baz_used.copy()
            current = np.zeros(n, bool)
            current[events] = True
            suspect = np.zeros(n, bool)
            if outliers:
                used = (self.state == USED) & current[self.event]
                worst = np.zeros(n)
                np.maximum.at(worst, self.event[used], (np.abs(self.residual) * size_of)[used])
                bad = (worst > CUT) | (self.out[:, 5] > chi2.ppf(0.999, np.maximum(self.n_data - 4, 1)))
                enough = np.bincount(self.event[self.state != BEYOND], minlength=n) >= LEAST_PICKS
                suspect = current & enough & bad & (robust_tries < 2)
                robust_tries[suspect] += 1
                known = np.bincount(self.event[self.state == OUTLIER], minlength=n) > 0
                for k in np.flatnonzero(suspect | (current & enough & known & ~bad)):
                    self._set_aside(int(k), not bad[k])
            # Where the direct P ends is known once the location is.
            if outliers:
                self._set_angles_aside(current & ~suspect)
            refused = self.beyond & (current & ~suspect)[self.event] & (self.state != BEYOND)
            # An Sg, an Sn or a depth phase may come back once, when the location moves; a P stays out.
            again = (self.state == BEYOND) & ~self.beyond & ~returned & (current & ~suspect)[self.event]
            self.state[again], returned[again] = USED, True
            left = np.bincount(self.event[(self.state == USED) & ~refused], minlength=n)
            self.state[refused & (left >= 3)[self.event]] = BEYOND
            events = np.union1d(
                self.event[(self.state != before) | (self.baz_used != angles_before)], np.flatnonzero(suspect)
            )
            self.solve(events)

    def _set_aside(self, k: int, settled: bool) -> None:
        data = self.data
        rows = slice(data.begin[k], data.begin[k + 1])
        state = self.state[rows]
        allowed = state != BEYOND
        if settled:  # the fit is good: outliers that it predicts come back
            size = np.abs(self.residual[rows]) * np.sqrt(data.weight[rows])
        else:
            size = np.empty(state.size)
            free = self.lowest[k] < self.highest[k]
            depths = self.depths if free else self.lowest[k : k + 1]
            rows_of = self.rows if free else all_chord_times(self.phases, depths)
            robust_locate(
                Picks(
                    data.place[rows],
                    data.time[rows],
                    np.where(allowed, data.weight[rows], 0.0),
                    data.baz[rows],
                    np.zeros(state.size),
                    data.phase[rows],
                ),
                self.phases,
                rows_of,
                RINGS,
                POINTS,
                depths,
                self.lowest[k],
                self.highest[k],
                size,
            )
            size = np.abs(size)
        fits = allowed & (size <= CUT)
        if fits.sum() >= LEAST_PICKS - 1:  # otherwise nothing tells which picks are right
            state[allowed] = np.where(fits[allowed], USED, OUTLIER)

    def _set_angles_aside(self, events: np.ndarray) -> None:
        """Of these events' back-azimuths leave out the one that fits worst, and take back those that fit."""
        mine = events[self.event] & (self.data.baz_weight > 0) & (self.state == USED)
        self.baz_used[mine & (self.baz_size <= CUT)] = True
        worst = np.zeros(self.data.n_events)
        candidates = mine & self.baz_used & (self.n_data > 4)[self.event]
        np.maximum.at(worst, self.event[candidates], self.baz_size[candidates])
        self.baz_used[candidates & (self.baz_size > CUT) & (self.baz_size == worst[self.event])] = False

    def finished(self, prior_dof: float, geographic: bool) -> Locations:
        from scipy.stats import chi2

        data, out = self.data, self.out
        n, shape = data.n_events, data.shape
        lat, lon = _degrees(out[:, :3], geographic)
        other_lat, other_lon = _degrees(self.other[:, :3], geographic)
        fixed = self.lowest == self.highest
        dof = self.n_data - np.where(fixed, 3, 4)
        used = self.state == USED
        squares = np.bincount(self.event[used], self.residual[used] ** 2, n)
        rms = np.sqrt(squares / np.maximum(np.bincount(self.event[used], minlength=n), 1))
        rms[~self.located] = np.nan
        C = covariances(
            self.information, self.scatter, out[:, 5], dof, prior_dof, np.where(fixed, 0.0, self.high - self.low)
        )
        C[~self.located] = np.nan
        depth, misfit = out[:, 3], out[:, 5]
        some = lambda code: np.bincount(self.event[self.state == code], minlength=n) > 0
        close = self.other[:, 5] - misfit < CLOSE_CHI2
        with np.errstate(invalid="ignore"):
            major = np.sqrt(np.maximum(C[:, 0, 0] + C[:, 1, 1], 0)) * math.sqrt(CLOSE_CHI2)
            flags = {
                "too_few": ~self.located,
                "depth_fixed": self.located & fixed & (self.fixed is None),
                "depth_at_bound": ~fixed & ((depth <= self.low) | (depth >= self.high)),
                "depth_extrapolated": depth > self.table.depths_km[-1],
                "depth_vague": C[:, 2, 2] > VAGUE_DEPTH_KM**2,
                "gap": self.gap > 180,
                "outliers": some(OUTLIER),
                "beyond_p": some(BEYOND),
                "back_azimuths": np.bincount(self.event[used & (data.baz_weight > 0) & ~self.baz_used], minlength=n)
                > 0,
                "diffracted": np.bincount(self.event[used & self.beyond], minlength=n) > 0,
                "poor_fit": (dof > 0) & (misfit > chi2.ppf(0.999, np.maximum(dof, 1))),
                "ambiguous": close,
                "unresolved": self.located & ~(major < UNRESOLVED_KM),
            }
        status = np.full(shape, ABSENT, np.int8)
        status.reshape(-1)[data.cell] = self.state
        angles = np.zeros(shape, bool)
        angles.reshape(-1)[data.cell] = used & self.baz_used
        table = [np.full(shape, np.nan) for _ in range(3)]
        for whole, part in zip(table, (self.residual, self.dist, self.azimuth), strict=True):
            whole.reshape(-1)[data.cell] = part
        other = np.c_[other_lat, other_lon, self.other[:, 3], self.other[:, 4] + data.reference, self.other[:, 5]]
        other[~np.isfinite(self.other[:, 5])] = np.nan
        return Locations(
            lat=lat,
            lon=lon,
            depth_km=depth,
            origin_time=out[:, 4] + data.reference,
            covariance=C,
            chi2=misfit,
            dof=dof,
            rms_s=rms,
            azimuthal_gap=self.gap,
            status=status,
            baz_used=angles,
            residual_s=table[0],
            dist_deg=table[1],
            azimuth=table[2],
            p_end_deg=self.p_end,
            flags=flags,
            other=other,
            prior_dof=prior_dof,
        )


def _picks_of(begin: np.ndarray, events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of these events' picks one after the other, and where each event begins in them."""
    counts = begin[events + 1] - begin[events]
    own = np.r_[0, np.cumsum(counts)]
    return np.arange(own[-1]) + np.repeat(begin[events] - own[:-1], counts), own


def _degrees(u: np.ndarray, geographic: bool) -> tuple[np.ndarray, np.ndarray]:
    lat = np.degrees(np.arctan2(u[:, 2], np.hypot(u[:, 0], u[:, 1])))
    lon = np.degrees(np.arctan2(u[:, 1], u[:, 0]))
    lon[lon >= 180.0] = -180.0
    return (geographic_latitude(lat) if geographic else lat), lon


def _baz_residuals(u: np.ndarray, s: np.ndarray, baz: np.ndarray) -> np.ndarray:
    """`geiger.kernels.baz_residual` of many picks."""
    across = np.hypot(s[:, 0], s[:, 1])
    pole = across < 1e-12
    scale = np.where(pole, 1.0, across)
    p = np.where(pole, u[:, 1], (s[:, 0] * u[:, 1] - s[:, 1] * u[:, 0]) / scale)
    q = across * u[:, 2] - s[:, 2] * (s[:, 0] * u[:, 0] + s[:, 1] * u[:, 1]) / scale
    q = np.where(pole, -np.sign(s[:, 2]) * u[:, 0], q)
    return (baz - np.arctan2(p, q) + np.pi) % (2 * np.pi) - np.pi


class Described(NamedTuple):
    """What `_describe` finds: information J'W J and scatter J'W S W J in km and s, azimuthal gaps, distances at which
    the direct P ends; per pick residual (s), distance and azimuth (degrees), and whether it is in the shadow."""

    information: Float[np.ndarray, "N 4 4"]
    scatter: Float[np.ndarray, "N 4 4"]
    gap: Float[np.ndarray, " N"]
    p_end: Float[np.ndarray, " N"]
    residual: Float[np.ndarray, " S"]
    dist: Float[np.ndarray, " S"]
    azimuth: Float[np.ndarray, " S"]
    beyond: Bool[np.ndarray, " S"]


@kernel
def _describe(begin, picks, phases, p_end_deg, model_variance, model_range, out, found):
    """Fill `found` for events located at out (N, 7)."""
    place, weight = picks.place, picks.weight
    information, scatter, gap, p_end = found.information, found.scatter, found.gap, found.p_end
    residual, dist, azimuth, beyond = found.residual, found.dist, found.azimuth, found.beyond
    deepest = p_end_deg.size - 1
    for e in range(begin.size - 1):
        a, b = begin[e], begin[e + 1]
        u, z, t0 = out[e, :3], out[e, 3], out[e, 4]
        own, system = picks_between(picks, a, b), system_of(b - a)
        north, east, H, J, r = system.north, system.east, system.H, system.J, system.r
        # Back-azimuths enter the epicentre's block; for the times the origin time is kept as an unknown.
        normal_equations(u, z, own, phases, system)
        angles = H.copy()
        times = Picks(own.place, own.time, own.weight, own.baz, np.zeros(b - a), own.phase)
        normal_equations(u, z, times, phases, system)
        rows = np.ones((b - a, 4))
        for i in range(b - a):
            rows[i, 0], rows[i, 1], rows[i, 2] = J[i, 0] / RADIUS_KM, J[i, 1] / RADIUS_KM, J[i, 2]
        information[e] = 0.0
        for i in range(b - a):
            for k in range(4):
                for m in range(4):
                    information[e, k, m] += weight[a + i] * rows[i, k] * rows[i, m]
        for k in range(2):
            for m in range(2):
                information[e, k, m] += (angles[k, m] - H[k, m]) / RADIUS_KM**2
        for k in range(4):
            copy(information[e, k], scatter[e, k])
        if model_variance > 0 and model_range > 0:
            size = np.ones(b - a)
            for i in range(b - a):
                if phases[6][own.phase[i]] == S_SHEAF:
                    size[i] = SHEAR_ERROR
            for i in range(b - a):
                for j in range(i):
                    shared = weight[a + i] * weight[a + j] * model_variance * size[i] * size[j]
                    if shared > 0:
                        shared *= math.exp(-angle_between(place[a + i], place[a + j]) / model_range)
                        for k in range(4):
                            for m in range(4):
                                scatter[e, k, m] += shared * (rows[i, k] * rows[j, m] + rows[j, k] * rows[i, m])
        seen, used = np.empty(b - a), 0
        for i in range(b - a):
            s = place[a + i]
            residual[a + i] = r[i] - t0
            dist[a + i] = angle_between(u, s) / DEGREE
            turn = math.atan2(
                s[0] * east[0] + s[1] * east[1] + s[2] * east[2], s[0] * north[0] + s[1] * north[1] + s[2] * north[2]
            )
            azimuth[a + i] = (turn / DEGREE) % 360.0
            beyond[a + i] = outside_window(phases, own.phase[i], z, dist[a + i])
            if weight[a + i] > 0:
                at = used  # in ascending order
                while at > 0 and seen[at - 1] > azimuth[a + i]:
                    seen[at] = seen[at - 1]
                    at -= 1
                seen[at] = azimuth[a + i]
                used += 1
        widest = 360.0 - seen[used - 1] + seen[0]
        for i in range(1, used):
            widest = max(widest, seen[i] - seen[i - 1])
        gap[e] = widest
        f = (z - phases[0][0]) / phases[0][1]
        i = min(max(int(f), 0), deepest - 1)
        p_end[e] = p_end_deg[i] + (f - i) * (p_end_deg[i + 1] - p_end_deg[i])
