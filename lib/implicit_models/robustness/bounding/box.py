"""Boxes around the state of the centre: the norm, componentwise and comparison-vector bounds.

For u in the set, e = |x(u) - x(u0)| meets (I - M) e <= gamma r with r_i = sup |B_i (u - u0)| and the comparison matrix
M: block norms gamma_i |A_ij| (CONE: single states), with gamma_i A_ii signed on the diagonal for "metzler". With t =
gamma r,

    norm         (4.3), (4.4): sigma = w max(t / w) / (1 - rho), rho = max(M w / w)
                 with w = 1 where the row sums of M are below 1, else (I - M)^-1 1
    box          Theorems 5, 6: sigma = (I - M)^-1 t
    comparison   sigma = s max(t),  s = (I - M)^-1 1: one vector for all sets
    metzler      box with the signed diagonal: slopes d in [0, gamma] give
                 e_i <= d / (1 - d A_ii) (...), largest at d = gamma

Source:
    Tsai thesis (2024), (4.3), (4.4), Theorems 5 and 6; Metzler's form is not there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from implicit_models.robustness.arrays import EPS
from implicit_models.robustness.checking.certificate_fields import BOX_METHODS as METHODS
from implicit_models.robustness.input_sets import Uncertainty
from implicit_models.robustness.problem import NotCertified, Problem
from implicit_models.robustness.products import row_product
from implicit_models.robustness.specification import rounding_of
from implicit_models.summaries import summary


@dataclass(frozen=True, eq=False)
class StateBox:
    """|x - x0| <= sigma and |z - z0| <= spread for every u of the set: x0, z0, sigma, spread (N, n).

    error (N, n) is the part of sigma that comes from x0 being an approximate state.
    """

    x0: Float[np.ndarray, "N n"]
    sigma: Float[np.ndarray, "N n"]
    z0: Float[np.ndarray, "N n"]
    spread: Float[np.ndarray, "N n"]
    error: Float[np.ndarray, "N n"]

    def __repr__(self) -> str:
        return summary(self)


def input_reach(problem: Problem, inputs: Uncertainty) -> Float[np.ndarray, "*N n"]:
    """r_i = sup |B_i (u - u0)|: (n,) for a shared radius, else (N, n)."""
    return inputs.support(problem.B)


def with_signed_diagonal(problem: Problem) -> Problem:
    """The same problem with gamma_i A_ii signed on the diagonal of its comparison matrix, as a Metzler certificate has
    it.
    """
    if problem.certificate.kind != "pf":
        return problem
    signed = replace(problem)
    signed.__dict__["certificate"] = replace(problem.certificate, kind="metzler")  # |A| s < s implies it
    return signed


def state_deviation(problem: Problem, inputs: Uncertainty, method: str = "box") -> Float[np.ndarray, "*N n"]:
    """sigma >= |x(u) - x(u0)| for every u of the set, verified: (n,) for a shared radius, else (N, n); infinite where
    unverified.

    Args:
        method: "norm" | "box" | "comparison" | "metzler".

    Raises:
        NotCertified: where the method needs lambda_PF < 1 and the model has only a signed certificate.
        ValueError: for another name.

    Source:
        Tsai thesis (2024), (4.3), (4.4), Theorems 5 and 6.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    found = problem.certificate
    if method == "metzler":
        problem = with_signed_diagonal(problem)
    elif found.kind != "pf":
        raise NotCertified(
            f"method {method!r} needs lambda_PF of |A| below 1, and it is {found.lambda_pf:.6g}: the model is "
            'well-posed by its signed diagonal only, so use "metzler" (or "interval", "dual")'
        )
    gamma = problem.activation.lipschitz
    reach = gamma * input_reach(problem, inputs)
    if problem.certificate.kind == "pf":
        loop = np.ones(problem.n)
    else:  # `deviation` makes room for residuals, which a change of the input does not need
        loop = 1 + gamma * np.maximum(0.0, -problem.A.diagonal())
    if method in ("box", "metzler"):
        return problem.deviation(reach / loop)
    s = problem.deviation(1 / loop)
    if method == "comparison":
        return reach.max(axis=-1, keepdims=True, initial=0.0) * s * (1 + 4 * EPS)
    M = abs(problem.comparison)
    unit = problem.activation.unit
    sums = np.asarray(M.sum(axis=1)).ravel()[unit]
    if sums.max(initial=0.0) < 1 - 1e-9:
        w, rho = np.ones(problem.n), sums.max(initial=0.0)
    else:
        first = np.flatnonzero(np.r_[True, np.diff(unit) > 0])
        vectors = [s] if found.s is None else [s, found.s]  # the second one keeps its digits without feedback
        with np.errstate(invalid="ignore"):
            ratios = [float(np.max((M @ v[first])[unit] / v)) for v in vectors]
        rho = min(ratios)
        w = vectors[ratios.index(rho)]
    rho = rho * (1 + 4 * (problem.n + 2) * EPS)
    if not rho < 1:
        return np.full_like(reach, np.inf)
    return w * ((reach / w).max(axis=-1, keepdims=True, initial=0.0) / (1 - rho)) * (1 + 8 * EPS)


def state_box(problem: Problem, inputs: Uncertainty, method: str = "box") -> StateBox:
    """Box of states and pre-activations around the equilibrium of every centre; rows of centres that are not finite
    are NaN.
    """
    deviation = state_deviation(problem, inputs, method)
    x0, error = problem.equilibrium(inputs.centre)
    sigma = deviation + error
    A, B = abs(problem.A), abs(problem.B)
    z0 = row_product(x0, problem.A) + row_product(inputs.centre, problem.B, problem.b)
    spread = row_product(sigma, A) + input_reach(problem, inputs)
    size = row_product(np.abs(x0), A) + row_product(np.abs(inputs.centre), B, np.abs(problem.b)) + spread
    spread = spread + rounding_of(problem) * size
    return StateBox(x0, sigma, z0, spread, error)
