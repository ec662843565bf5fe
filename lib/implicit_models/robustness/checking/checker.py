"""A stand-alone check of bounds: NumPy only, every inequality with its rounding on the safe side, no code of the
solvers.

What a certificate claims, and why it follows:

    well-posed      s > 0 with M s < s (or no feedback): the equilibrium x(u) exists, is unique and continuous in u
    box             M sigma + gamma |B| radius + residual(x0) <= sigma: then |x(u) - x0| <= sigma
    interval        F([il, ih]) inside [il, ih]: a fixed point lies inside (Brouwer), and there is only one
    dual            for any lambda, with mu = w + A' lambda,
                    w'x + v'u >= sum_i min_{z in [zl_i, zh_i]} (mu_i phi(z) - lambda_i z) + (v + B'lambda)'u0 - support
                    + b'lambda

Source:
    Tsai thesis (2024), Theorems 5 to 7 (corrected: the upper envelope makes every lambda finite).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from implicit_models.robustness.checking import outward
from implicit_models.robustness.checking.certificate import BoundsCertificate, Stage, in_form
from implicit_models.robustness.checking.well_posed import not_well_posed
from implicit_models.summaries import summary

EPS = outward.EPS
CHUNK = 2048  # multipliers of a stage evaluated together


@dataclass(frozen=True, eq=False)
class CheckResult:
    """True if every claim is proved. samples (N,): which ones are (True for those that claim nothing); reason: the
    first failure, "" without one."""

    samples: np.ndarray
    reason: str

    def __repr__(self) -> str:
        return summary(self, "samples", proved=not self.reason, reason=self.reason or "none")

    def __bool__(self) -> bool:
        return not self.reason


def check(certificate: BoundsCertificate) -> CheckResult:
    """Whether all bounds of a certificate follow from its evidence, each inequality evaluated anew with its rounding.

    Args:
        certificate: as `bounds(...).cert` has it. States and pre-activations may be stated to the last digit; bounds
            lb, ub must hold with all errors.

    Returns:
        `CheckResult`; False, with the reason, for anything that is not proved, also for evidence that is missing or has
        the wrong shape, and for what is no certificate at all: nothing raises. samples is then all False, or empty
        where their number is not known.

    Source:
        see the module.
    """
    try:
        with np.errstate(all="ignore"):  # whatever overflows is not proved, also where the caller lets NumPy raise
            return _Check(in_form(certificate)).run()
    except Exception as error:  # any object may be in any field
        centre = getattr(certificate, "centre", None)
        N = len(centre) if isinstance(centre, np.ndarray) and centre.ndim else 0
        return CheckResult(np.zeros(N, dtype=bool), f"the certificate is malformed: {error}")


def evidence(certificate: BoundsCertificate) -> _Check | None:
    """What a certificate proves of states and pre-activations; None unless all that it claims is proved."""
    try:
        with np.errstate(all="ignore"):
            found = _Check(in_form(certificate))
            return found if found.run() and found.claims.all() else None
    except Exception:  # any object may be in any field
        return None


class _Check:
    def __init__(self, cert: BoundsCertificate):
        self.cert = c = cert
        self.n, self.p, self.N = c.A.shape[0], c.B.shape[1], len(c.centre)
        self.claims = c.status == "certified"
        self.proved, self.reason = np.ones(self.N, dtype=bool), ""
        self.u0 = np.where(self.claims[:, None], c.centre, 0.0)
        # a sample without a claim has no set: its radius may be NaN
        radius = c.radius if c.radius.ndim == 1 else np.where(self.claims[:, None], c.radius, 0.0)
        self.radius = np.broadcast_to(radius, (self.N, self.p))
        self.size_u = np.abs(self.u0) + self.radius
        self.gamma, self.block = outward.lipschitz(c.segments, self.n), outward.blocks(c.segments, self.n)
        self.single = ~outward.coupled(c.segments, self.n)
        self.centre_box: tuple[np.ndarray, np.ndarray] | None = None
        self.diagonal, self.absolute = c.A.diagonal(), abs(c.A)

    def fail(self, good: np.ndarray, what: str) -> None:
        """Samples whose inequalities (N, ...) do not all hold are not proved; NaN does not hold."""
        bad = self.claims & ~good.all(axis=1)
        if bad.any() and not self.reason:
            self.reason = f"sample {int(np.flatnonzero(bad)[0])}: {what}"
        self.proved &= ~bad

    def result(self) -> CheckResult:
        return CheckResult(self.proved | ~self.claims, self.reason)

    def run(self) -> CheckResult:
        c = self.cert
        self.reason = self.data() or not_well_posed(c)
        if self.reason:
            return CheckResult(~self.claims, self.reason)
        # sup |B_i (u - u0)|, one product where the radius is shared
        if c.card is None:
            self.reach = (
                self.radius @ abs(c.B).T * (1 + outward.share(self.p))
                if np.ndim(c.radius) == 2
                else np.broadcast_to((abs(c.B) @ c.radius) * (1 + outward.share(self.p)), (self.N, self.n))
            )
        else:
            B = outward.dense(c.B)
            rows = c.radius[None] if c.radius.ndim == 1 else self.radius
            reach = np.array([outward.support(B, r, c.card) for r in rows]).reshape(-1, self.n)
            self.reach = np.broadcast_to(reach, (self.N, self.n))
        self.pre, self.pre_error = outward.product(self.u0, c.B)
        self.pre, self.pre_error = self.pre + c.b, self.pre_error + outward.share(self.p) * np.abs(c.b)
        sets = []
        if c.x0 is not None:
            sets.append(self.box())
        if c.il is not None:
            sets.append(self.interval())
        if not sets:
            self.fail(np.zeros((self.N, 1), dtype=bool), "there is neither a box nor an interval")
            return self.result()
        self.xl, self.xh = (f([s[k] for s in sets], axis=0) for f, k in ((np.max, 0), (np.min, 1)))
        self.zl, self.zh = (f([s[k] for s in sets], axis=0) for f, k in ((np.max, 2), (np.min, 3)))
        if c.stages is None:
            self.fail(
                np.zeros((self.N, 1), dtype=bool),
                "the multipliers of the refined pre-activations were not kept: certify fewer samples at a time",
            )
            return self.result()
        for number, stage in enumerate(c.stages):
            self.stage(number, stage)
        self.states()
        self.outputs()
        return self.result()

    def data(self) -> str:
        c = self.cert
        finite = all(np.isfinite(v).all() for v in (c.b, c.d, self.radius))
        if not finite or np.any(self.radius < 0):
            return "b, d or the radii are not finite numbers, or a radius is negative"
        if not np.isfinite(c.centre[self.claims]).all():
            return "a sample that is not finite has a claim"
        return ""

    def box(self) -> tuple[np.ndarray, ...]:
        """|x - x0| <= sigma, and what it says about z."""
        c, n = self.cert, self.n
        x0, sigma = (np.where(self.claims[:, None], v, 0.0) for v in (c.x0, c.sigma))  # type: ignore[arg-type]
        Ax, Ax_error = outward.product(x0, c.A)
        z, z_error = Ax + self.pre, Ax_error + self.pre_error
        low, high = outward.image(c.segments, z - z_error, z + z_error)
        residual = np.maximum(np.maximum(x0 - low, high - x0), 0.0) * (1 + EPS)
        whole = self.blockwise(sigma)
        spread = whole @ self.absolute.T
        fits = np.zeros((self.N, 1), dtype=bool)
        # |A| s < s proves the signed comparison too, whose diagonal is smaller and whose residual counts more: either
        # will do
        for signed in (self.single, np.zeros_like(self.single))[: 2 if c.kind == "pf" else 1]:
            loop = np.where(signed, 1 + self.gamma * np.maximum(0.0, -self.diagonal), 1.0)
            own = np.where(
                signed, self.gamma * (self.diagonal - np.abs(self.diagonal)) * sigma, 0.0
            )  # in place of |A_ii|, which spread holds
            need = self.gamma * (spread + self.reach) + own + residual * loop
            need += outward.share(n + 3) * (self.gamma * spread + np.abs(own)) + 3 * EPS * (
                self.gamma * self.reach + residual * loop
            )
            fits |= (sigma >= self.blockwise(need)).all(axis=1, keepdims=True)
        self.fail(fits, "the box is not mapped into itself: M sigma + |B| radius exceeds sigma")
        self.fail(sigma >= 0, "the box has a negative radius")
        reach = spread + self.reach
        error = z_error + outward.share(n + 2) * reach + EPS * np.abs(z)
        self.centre_box = x0, sigma
        return x0 - sigma, x0 + sigma, z - reach - error, z + reach + error

    def blockwise(self, v: np.ndarray) -> np.ndarray:
        """The largest entry of its block in place of each."""
        if self.block[-1] + 1 == self.n:
            return v
        starts = np.flatnonzero(np.r_[True, np.diff(self.block) > 0])
        return np.maximum.reduceat(v, starts, axis=1)[:, self.block]

    def interval(self) -> tuple[np.ndarray, ...]:
        """The box [il, ih] is mapped into itself; A_ii acts on the end of its own state, by the root of z = rest + A_ii
        phi(z)."""
        c = self.cert
        il, ih, zl, zh = (
            np.where(self.claims[:, None], v, 0.0)  # type: ignore[arg-type]
            for v in (c.il, c.ih, c.zl0, c.zh0)
        )
        a = np.where(self.single, self.diagonal, 0.0)
        plus, minus = 0.5 * (c.A + self.absolute), 0.5 * (self.absolute - c.A)
        up, down = np.maximum(a, 0), np.maximum(-a, 0)
        rest_l = il @ plus.T - ih @ minus.T - (up * il - down * ih) + self.pre - self.reach
        rest_h = ih @ plus.T - il @ minus.T - (up * ih - down * il) + self.pre + self.reach
        largest = np.maximum(np.abs(il), np.abs(ih))
        low, high = outward.image(c.segments, zl, zh)
        error = self.pre_error + outward.share(self.n + 4) * (
            2 * largest @ self.absolute.T + np.abs(self.pre) + self.reach
        )
        error += 4 * EPS * np.abs(a) * np.maximum(np.abs(low), np.abs(high))
        # phi(zl) from below for a > 0, from above for a < 0, so that a phi(zl) is not overrated; likewise at zh
        ends = (outward.image(c.segments, z, z) if a.any() else (z, z) for z in (zl, zh))
        (l_low, l_high), (h_low, h_high) = ends
        self.fail(il <= ih, "the interval is empty")
        self.fail(
            rest_l + np.where(a > 0, a * l_low, a * l_high) - error >= zl,
            "a lower pre-activation of the interval is not proved",
        )
        self.fail(
            rest_h + np.where(a > 0, a * h_high, a * h_low) + error <= zh,
            "an upper pre-activation of the interval is not proved",
        )
        self.fail((il <= low) & (high <= ih), "the interval is not mapped into itself")
        return il, ih, zl, zh

    def rows(self, W, W_error, V, V_error, const, lam, at) -> np.ndarray:
        """Lower bounds of W x + V u + const (K rows; at (K,): their samples) for the multipliers lam, rounding
        deducted."""
        c = self.cert
        magnitude = np.abs(lam)
        mu, q = W + lam @ c.A, V + lam @ c.B
        mu_error = W_error + outward.share(self.n) * (np.abs(W) + magnitude @ self.absolute)
        q_error = V_error + outward.share(self.n) * (np.abs(V) + magnitude @ abs(c.B))
        terms = outward.infimum(c.segments, mu, mu_error, lam, self.zl[at], self.zh[at], self.xl[at], self.xh[at])
        return self.total(terms, q, q_error, lam, const, at)

    def total(self, terms, q, q_error, lam, const, at) -> np.ndarray:
        c = self.cert
        moved = np.abs(q) * self.radius[at]
        if c.card is not None and c.card < self.p:
            moved = np.partition(moved, -c.card, axis=1)[:, -c.card :] if c.card else moved[:, :0]
        inner, bias = q * self.u0[at], lam * c.b
        value = terms.sum(axis=1) + inner.sum(axis=1) - moved.sum(axis=1) + bias.sum(axis=1) + const
        size = (
            np.abs(terms).sum(axis=1)
            + np.abs(inner).sum(axis=1)
            + moved.sum(axis=1)
            + np.abs(bias).sum(axis=1)
            + np.abs(const)
        )
        return value - (q_error * self.size_u[at]).sum(axis=1) - outward.share(self.n + self.p + 6) * size

    def stage(self, number: int, stage: Stage) -> None:
        c, zl, zh = self.cert, self.zl.copy(), self.zh.copy()
        A, B = outward.dense(c.A), outward.dense(c.B)
        for start in range(0, len(stage.sample), CHUNK):
            i, unit, side, lam = (v[start : start + CHUNK] for v in (stage.sample, stage.unit, stage.side, stage.lam))
            sign = -np.sign(side).astype(float)  # z_unit from below for side -1, -z_unit from below for +1
            zero = np.zeros(1)
            found = self.rows(sign[:, None] * A[unit], zero, sign[:, None] * B[unit], zero, sign * c.b[unit], lam, i)
            found = np.where(np.isfinite(found), found, -np.inf)
            np.maximum.at(zl, (i[sign > 0], unit[sign > 0]), found[sign > 0])
            np.minimum.at(zh, (i[sign < 0], unit[sign < 0]), -found[sign < 0])
        claimed = tuple(np.where(self.claims[:, None], v, 0.0) for v in (stage.zl, stage.zh))
        good = (claimed[0] <= zl) & (zh <= claimed[1])
        self.fail(good | ~self.claims[:, None], f"a pre-activation of stage {number} is not proved by its multipliers")
        self.zl, self.zh = np.minimum(zl, claimed[0]), np.maximum(zh, claimed[1])
        low, high = outward.image(c.segments, self.zl, self.zh)
        self.xl, self.xh = np.maximum(self.xl, low), np.minimum(self.xh, high)

    def states(self) -> None:
        """Claims of z and x, up to a few digits in the last place of each itself: another that is large gives no
        room."""
        c = self.cert
        digits = lambda v: 2 * EPS * (1 + (c.x0 is not None)) * np.abs(v)
        self.fail((c.zl - digits(c.zl) <= self.zl) & (self.zh <= c.zh + digits(c.zh)), "a pre-activation is not proved")
        low, high = outward.image(c.segments, *(np.where(self.claims[:, None], v, 0.0) for v in (self.zl, self.zh)))
        low, high = np.maximum(self.xl, low), np.minimum(self.xh, high)
        good = (c.xl - 4 * EPS * np.abs(c.xl) <= low) & (  # type: ignore[operator, arg-type]
            high <= c.xh + 4 * EPS * np.abs(c.xh)  # type: ignore[operator, arg-type]
        )
        self.fail(good, "a state is not proved")

    def outputs(self) -> None:
        c = self.cert
        if c.spec is None:  # then there is no lb and no ub either
            return
        C, D, spec = outward.dense(c.C), outward.dense(c.D), c.spec
        for sign, claimed, lam, name in ((1.0, c.lb, c.lam_low, "lower"), (-1.0, c.ub, c.lam_high, "upper")):
            if claimed is None:
                continue
            good = np.zeros((self.N, spec.shape[-2]), dtype=bool)
            for i in np.flatnonzero(self.claims):
                rows = sign * (spec if spec.ndim == 2 else spec[i])
                W, W_error = outward.product(rows, C.T)
                V, V_error = outward.product(rows, D.T)
                const = rows @ c.d
                slack = outward.share(len(c.d)) * (np.abs(rows) @ np.abs(c.d))
                at = np.full(len(rows), i)
                found = self.plain(W, W_error, V, V_error, const, at)
                if lam is not None:
                    known = np.isfinite(lam[i]).all(axis=1)
                    if known.any():
                        part = (v[known] for v in (W, W_error, V, V_error, const, lam[i], at))
                        rows_of = self.relaxed if c.method == "lp" and c.relaxation != "triangle" else self.rows
                        found[known] = np.fmax(found[known], rows_of(*part))
                good[i] = claimed[i] * sign <= found - slack
            self.fail(good, f"a {name} bound is not proved")

    def plain(self, W, W_error, V, V_error, const, at) -> np.ndarray:
        """Lower bounds from the boxes of states and inputs alone."""
        low, high = (v[at] for v in (self.xl, self.xh))
        largest = np.maximum(np.abs(low), np.abs(high))
        terms = np.minimum(W * low, W * high) - (W_error + 4 * EPS * np.abs(W)) * largest
        found = self.total(terms, V, V_error, np.zeros_like(W), const, at)
        if self.centre_box is not None:  # around the centre: its rounding is that of sigma, not of x0
            x0, sigma = (v[at] for v in self.centre_box)
            terms = W * x0 - np.abs(W) * sigma - (W_error + 4 * EPS * np.abs(W)) * (np.abs(x0) + sigma)
            found = np.fmax(found, self.total(terms, V, V_error, np.zeros_like(W), const, at))
        return found

    def relaxed(self, W, W_error, V, V_error, const, lam, at) -> np.ndarray:
        """The same as `rows` for the units of the displayed programme and of the true bidual, which have the box
        only."""
        c = self.cert
        slope = outward.slopes(c.segments, self.n)
        if np.isnan(slope).any():
            raise ValueError("the programmes are for piecewise-linear maps")
        x0, sigma = (v[at] for v in self.centre_box)  # type: ignore[union-attr]
        error = 4 * EPS * (np.abs(x0) + sigma)
        low = np.where(slope > 0, x0 - sigma - error, np.maximum(x0 - sigma - error, 0.0))
        high = np.maximum(x0 + sigma + error, low)
        back = lambda x: np.where(x > 0, x, np.divide(x, slope, out=np.zeros_like(x), where=slope > 0))
        mu, q = W + lam @ c.A, V + lam @ c.B
        mu_error = W_error + outward.share(self.n) * (np.abs(W) + np.abs(lam) @ self.absolute)
        q_error = V_error + outward.share(self.n) * (np.abs(V) + np.abs(lam) @ abs(c.B))
        ends = [mu * x - lam * back(x) for x in (low, high)]
        terms = np.minimum(*ends)
        terms = np.where((low <= 0) & (high >= 0), np.minimum(terms, 0.0), terms)
        largest = np.maximum(np.abs(low), np.abs(high))
        terms = (
            terms
            - mu_error * largest
            - 8 * EPS * (np.abs(mu) * largest + np.abs(lam) * np.maximum(np.abs(back(low)), np.abs(back(high))))
        )
        endless = np.full_like(low, c.relaxation == "displayed", dtype=bool) | ((slope == 0) & (low <= 0))
        terms = np.where(endless & (lam < 0), -np.inf, terms)  # z has no lower end there
        with np.errstate(invalid="ignore"):
            found = self.total(terms, q, q_error, lam, const, at)
        return np.where(np.isfinite(found), found, -np.inf)
