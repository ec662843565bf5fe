"""What a bound is: lower and upper values with a status for each sample, and the certificate that proves them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from implicit_models.robustness.checking.certificate import BoundsCertificate
from implicit_models.robustness.input_sets import Uncertainty
from implicit_models.robustness.problem import Problem
from implicit_models.robustness.specification import Specification
from implicit_models.status import Status
from implicit_models.summaries import summary


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of a batch: xl <= x <= xh, zl <= z <= zh (N, n), lb <= spec y <= ub (N, k) for every u of each set.

    status (N,): CERTIFIED, NOT_FINITE (the sample is not) or FAILED (its bound could not be verified) of `Status`;
    bounds of the last two are NaN.
    cert: the `BoundsCertificate` that `check` verifies.
    """

    xl: Float[np.ndarray, "N n"]
    xh: Float[np.ndarray, "N n"]
    zl: Float[np.ndarray, "N n"]
    zh: Float[np.ndarray, "N n"]
    lb: Float[np.ndarray, "N k"]
    ub: Float[np.ndarray, "N k"]
    status: Shaped[np.ndarray, " N"]
    cert: BoundsCertificate

    def __repr__(self) -> str:
        return summary(self, "xl", "xh", "zl", "zh", "lb", "ub", "status", method=self.cert.method)


def statuses(inputs: Uncertainty, *arrays: np.ndarray) -> np.ndarray:
    """(N,) NOT_FINITE where the centre is not, FAILED where a bound is not, else CERTIFIED."""
    finite = np.isfinite(inputs.centre.sum(axis=1))
    for i in np.flatnonzero(~finite):  # a sum may overflow where the sample is finite
        finite[i] = np.isfinite(inputs.centre[i]).all()
    proved = np.ones(len(finite), dtype=bool)
    for array in arrays:
        proved &= np.isfinite(array).all(axis=1)
    return np.where(finite, np.where(proved, Status.CERTIFIED, Status.FAILED), Status.NOT_FINITE)


def finished(
    task: Problem,
    inputs: Uncertainty,
    functionals: Specification,
    status: np.ndarray,
    method: str,
    fields: dict,
    **evidence: Any,
) -> Bounds:
    """`Bounds` with its certificate; rows that are not CERTIFIED become NaN."""
    bad = status != Status.CERTIFIED
    if bad.any():
        fields = {name: np.where(bad[:, None], np.nan, value) for name, value in fields.items()}
    cert = BoundsCertificate.of(
        task, inputs, method=method, spec=_spec(functionals), status=status, **fields, **evidence
    )
    return Bounds(**fields, status=status, cert=cert)


def _spec(functionals: Specification) -> np.ndarray:
    return np.eye(functionals.problem.q) if functionals.matrix is None else functionals.matrix
