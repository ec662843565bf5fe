"""The interval fixed point: the tightest box that one application of x = phi(A x + B u + b) maps into itself.

With centre m = (l + h)/2 and radius w = (h - l)/2 of the states, c = B u0 + b and r_i = sup |B_i (u - u0)|,

    zl, zh = A m + c -/+ (|A| w + r),    l, h = phi(zl), phi(zh).

For non-decreasing maps (l, h) is the equilibrium of a model with twice the states, feedback [A+, A-; A-, A+] and the
comparison matrix of A, so that it is solved by the same kernels. A_ii acts on the own end of each state, as z_i =
rest_i + A_ii phi(z_i) has one solution, which grows with rest_i: this is what makes A_ii < -1 welcome and is tighter
than interval arithmetic wherever A_ii < 0. The solution is made sound by a verified
inclusion: with s >= M s + 1, (l - t s, h + t s) is mapped into itself once t exceeds what the residual and its
rounding need. It lies inside the box of `box` up to 1e-9 of the largest |x|, what the solver leaves and t makes room
for, and equals interval bound propagation on feed-forward networks. Softmax and max-pool blocks iterate from that
box.

Source:
    Tsai thesis (2024), section 4.2, has the box only; interval fixed points: Wei & Kolter, ICLR 2022; Jafarpour et al.,
    L4DC 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float

from implicit_models.activations import Activation
from implicit_models.equilibrium import compiled
from implicit_models.equilibrium.convergence import CONVERGED
from implicit_models.equilibrium.solve import solve_equilibrium
from implicit_models.robustness.arrays import EPS
from implicit_models.robustness.bounding.box import input_reach, state_box, with_signed_diagonal
from implicit_models.robustness.checking.certificate_fields import PIECEWISE_LINEAR
from implicit_models.robustness.input_sets import Uncertainty
from implicit_models.robustness.problem import Problem, _torch
from implicit_models.robustness.products import row_product
from implicit_models.robustness.specification import rounding_of
from implicit_models.summaries import summary

_TOL, _SWEEPS, _MAX_ITER = 1e-10, 60, 2000
_ROOT_STEPS = 200  # of the scalar roots; about 60 are taken at A_ii = -3000
_BLOCK_SWEEPS = 500
_CHUNK = 512  # samples whose arrays stay in the cache


@dataclass(frozen=True, eq=False)
class StateInterval:
    """l <= x <= h and zl <= z <= zh for every u of the set, (N, n); NaN for samples that are not finite, infinite
    where unverified.
    """

    l: Float[np.ndarray, "N n"]
    h: Float[np.ndarray, "N n"]
    zl: Float[np.ndarray, "N n"]
    zh: Float[np.ndarray, "N n"]

    def __repr__(self) -> str:
        return summary(self)


def doubled(problem: Problem) -> tuple[object, Activation]:
    """Feedback [A+, A-; A-, A+] of the states (l, h), A_ii on their own end, with its activation."""
    A, act = problem.A, problem.activation
    diagonal = A.diagonal()
    if sp.issparse(A):
        off = (A - sp.diags_array(diagonal)).tocsr()
        own, other = (off.maximum(0) + sp.diags_array(diagonal)).tocsr(), off.minimum(0).tocsr()
        W = sp.block_array([[own, other], [other, own]], format="csr")
        W.eliminate_zeros()
    else:
        off = A - np.diag(diagonal)
        own, other = np.maximum(off, 0) + np.diag(diagonal), np.minimum(off, 0)
        W = np.block([[own, other], [other, own]])
    n = act.n
    shifted = [type(s)(s.name, s.slope, s.start + n, s.stop + n, s.block) for s in act.segments]
    return W, Activation([*act.segments, *shifted]) if len(act.segments) > 1 else _one_map(act)


def _one_map(act: Activation) -> Activation:
    s = act.segments[0]
    return Activation([type(s)(s.name, s.slope, 0, 2 * s.stop, s.block)])


def state_interval(problem: Problem, inputs: Uncertainty) -> StateInterval:
    """Interval bounds of states and pre-activations, verified.

    Source:
        interval fixed points, Wei & Kolter (2022) and Jafarpour et al. (2022); compare Tsai thesis (2024), Theorem 6.
    """
    N, n, act = len(inputs.centre), problem.n, problem.activation
    shape = np.empty((4, N, n))
    signed = with_signed_diagonal(problem) if act.componentwise else problem
    reach, s = input_reach(problem, inputs), signed.deviation(np.ones(n))
    model = doubled(problem) if act.componentwise else None
    if model is not None:
        model = (_torch(model[0]), model[1])
    weight = np.asarray(abs(problem.B).sum(axis=1)).ravel()
    for start in range(0, N, _CHUNK):
        at = slice(start, start + _CHUNK)
        shape[:, at] = _verified(problem, inputs.take(at), reach if reach.ndim == 1 else reach[at], s, weight, model)
    return StateInterval(*shape)


def _verified(
    problem: Problem, inputs: Uncertainty, reach: np.ndarray, s: np.ndarray, weight: np.ndarray, model: Any
) -> tuple[np.ndarray, ...]:
    """(l, h, zl, zh) of a few samples; s >= M s + 1, weight the row sums of |B|."""
    n, act, A = problem.n, problem.activation, problem.A
    c = row_product(inputs.centre, problem.B, problem.b)
    size = np.abs(inputs.centre).max(axis=1, initial=0.0)[:, None] * weight + np.abs(problem.b) + reach
    rounding = rounding_of(problem)
    finite = np.isfinite(size).all(axis=1)
    if act.componentwise:
        ends = np.concatenate([c - reach, c + reach], axis=1)
        found = _solved(*model, torch.from_numpy(ends)).numpy()  # type: ignore[call-arg]
        l, h = np.minimum(found[:, :n], found[:, n:]), np.maximum(found[:, :n], found[:, n:])
    else:
        l, h = _from_the_box(problem, inputs, c, reach)
    # how far F leaves (l, h), the rounding of that evaluation included
    diagonal = A.diagonal() if act.componentwise else np.zeros(n)
    absolute = abs(A)
    with np.errstate(invalid="ignore"):
        rest = _rest(A, absolute, diagonal, c, reach, l, h)
        slack = rounding * (
            row_product(np.maximum(np.abs(l), np.abs(h)), absolute) + size + np.maximum(np.abs(l), np.abs(h))
        )
        Fl, Fh = _image(act, _roots(act, diagonal, rest[0], -1), _roots(act, diagonal, rest[1], 1))
        leaves = np.maximum(np.maximum(l - Fl, Fh - h), 0.0) + 4 * slack
        loop = 1 + act.lipschitz * np.maximum(0.0, -diagonal)
        t = (leaves * loop).max(axis=1, initial=0.0)[:, None] * (1 + 1e-6)
        l, h = l - t * s, h + t * s
        rest = _rest(A, absolute, diagonal, c, reach, l, h)
        slack = slack + rounding * t * (np.asarray(absolute.sum(axis=1)).ravel() + 1) * s.max(initial=0.0)
        zl, zh = _roots(act, diagonal, rest[0] - slack, -1), _roots(act, diagonal, rest[1] + slack, 1)
        low, high = _image(act, zl, zh)
        outside = finite & ~((low >= l) & (high <= h)).all(axis=1)
    for array, end in ((l, -np.inf), (h, np.inf), (zl, -np.inf), (zh, np.inf)):
        array[outside] = end
    for array in (l, h, zl, zh):
        array[~finite] = np.nan
    return l, h, zl, zh


def _solved(W: torch.Tensor, act: Activation, ends: torch.Tensor) -> torch.Tensor:
    """Equilibria of the doubled model; the inclusion is verified later, so that no residual is needed here."""
    if not compiled.supports(W, act):
        return solve_equilibrium(W, ends, act, tol=_TOL, max_iter=_MAX_ITER, on_failure="ignore").x
    x, _, _, status = compiled.solve("gauss_seidel", W, ends, act, None, _TOL, True, _SWEEPS)
    slow = torch.nonzero((status != CONVERGED) & torch.isfinite(ends).all(dim=1)).flatten()
    if slow.numel():
        x[slow] = solve_equilibrium(W, ends[slow], act, tol=_TOL, max_iter=_MAX_ITER, on_failure="ignore").x
    return x


def _rest(A, absolute, diagonal, c, reach, l, h):
    """Ends of sum_{j != i} A_ij x_j + c -/+ reach over l <= x <= h; all j where the diagonal is taken as zero."""
    middle, radius = 0.5 * (l + h), 0.5 * (h - l)
    centre = row_product(middle, A) + c
    spread = row_product(radius, absolute) + reach
    if diagonal.any():
        centre, spread = centre - diagonal * middle, spread - np.abs(diagonal) * radius
    return centre - spread, centre + spread


def _roots(act: Activation, diagonal: np.ndarray, rest: np.ndarray, side: int) -> np.ndarray:
    """The root of z = rest + A_ii phi(z), moved outward: at most the root for side -1, at least for +1.

    f(z) = z - a phi(z) - rest has f' >= m with m = 1 for a <= 0 and m = 1 - a gamma for 0 < a gamma < 1, so that the
    root is within |f(z)| / m of any z: the end is moved by that and the rounding of f, whatever the iteration reached.
    Piecewise-linear maps have the root in closed form, to rounding, which the caller's slack holds.
    """
    if not diagonal.any():
        return rest
    z = rest.copy()
    for s in act.segments:
        at = slice(s.start, s.stop)
        a, r = diagonal[at], rest[:, at]
        if s.name in PIECEWISE_LINEAR:
            z[:, at] = np.where(r > 0, r / (1 - a), r / (1 - s.slope * a))
        elif a.any():
            phi = act.restrict(np.arange(s.start, s.stop))
            x = _scalar_root(phi, a, r)
            term = a * phi(x)
            error = 4 * EPS * (np.abs(x) + 2 * np.abs(term) + np.abs(r))
            least = 1 - np.maximum(a, 0.0) * act.lipschitz[at]
            moved = x + side * (np.abs(x - term - r) + error) / least * (1 + 4 * EPS)
            z[:, at] = np.where(a == 0, r, moved)  # a state without a loop has no equation to solve
    return z


def _scalar_root(phi: Activation, a: np.ndarray, r: np.ndarray) -> np.ndarray:
    """z = r + a phi(z) for |phi| <= 1: Newton inside a bracket, which is halved instead where a step does not halve."""
    low, high = r - np.abs(a), r + np.abs(a)
    x, last, moving = r.copy(), 2 * np.abs(a) + np.zeros_like(r), np.isfinite(r)
    for _ in range(_ROOT_STEPS):
        value = x - a * phi(x) - r  # increasing in x
        high, low = np.where(value > 0, x, high), np.where(value > 0, low, x)
        step = x - value / (1 - a * phi.derivative(x))
        # a step that is not half of the one before may go round in circles: f bends both ways
        good = (step >= low) & (step <= high) & (np.abs(step - x) <= 0.5 * last)
        step = np.where(good, step, 0.5 * (low + high))
        last = np.abs(step - x)
        x = np.where(moving, step, x)  # one that is done stays, so that no root depends on its batch
        moving &= last > 2 * EPS * (np.abs(x) + np.abs(r))
        if not moving.any():
            break
    return x


def _image(act: Activation, zl: np.ndarray, zh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if act.componentwise:
        return act(zl), act(zh)
    finite = np.isfinite(zl).all(axis=1) & np.isfinite(zh).all(axis=1)
    low, high = np.full_like(zl, np.nan), np.full_like(zh, np.nan)
    low[finite], high[finite] = act.interval(zl[finite], zh[finite])
    return low, high


def _from_the_box(
    problem: Problem, inputs: Uncertainty, c: np.ndarray, reach: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Iterates of F from the box: each is sound and inside the one before, since F maps the box into itself."""
    box = state_box(problem, inputs, "box" if problem.certificate.kind == "pf" else "metzler")
    l, h = box.x0 - box.sigma, box.x0 + box.sigma
    for _ in range(_BLOCK_SWEEPS):
        zl, zh = _rest(problem.A, abs(problem.A), np.zeros(problem.n), c, reach, l, h)
        low, high = _image(problem.activation, zl, zh)
        low, high = np.maximum(l, low), np.minimum(h, high)
        with np.errstate(invalid="ignore"):
            still = np.nanmax(np.maximum(low - l, h - high), initial=0.0) > 1e-13 * np.nanmax(np.abs(high), initial=1.0)
        l, h = low, high
        if not still:
            break
    return l, h
