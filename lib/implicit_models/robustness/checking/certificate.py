"""Bounds of a batch with all that proves them: what is claimed, and the evidence that `checker` evaluates anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from implicit_models.robustness.checking import certificate_fields
from implicit_models.summaries import summary


@dataclass(frozen=True, eq=False)
class Stage:
    """Pre-activation bounds made tighter by dual rows, all of which use the bounds before the stage.

    sample, unit, side (K,): side -1 for a lower bound of z_unit, +1 for an upper one, whose lam belongs to the row of
    -z_unit. lam (K, n). zl, zh (N, n): the bounds after the stage; those of units that are not listed stay.
    """

    sample: np.ndarray
    unit: np.ndarray
    side: np.ndarray
    lam: Float[np.ndarray, "K n"]
    zl: Float[np.ndarray, "N n"]
    zh: Float[np.ndarray, "N n"]

    def __repr__(self) -> str:
        return summary(self)


@dataclass(frozen=True, eq=False)
class BoundsCertificate:
    """Bounds of a batch with all that proves them: the model, the set, comparison vector, boxes and dual rows.

    A, B, C, D dense or CSR, b, d; segments: (name, slope, start, stop, block) of the activation; kind and s of
    well-posedness; centre, radius, card of the set. Claims: lb <= spec y <= ub (ub None: no claim), xl <= x <= xh, zl
    <= z <= zh for the samples of status "certified".
    Evidence: x0, sigma (box); il, ih, zl0, zh0 (interval and its pre-activations); stages (None: refined, but rows not
        kept); lam_low,
    lam_high (N, k, n): rows for spec and for -spec, NaN where a bound comes from the interval or the box alone.
    """

    A: Any
    B: Any
    C: Any
    D: Any
    b: np.ndarray
    d: np.ndarray
    segments: tuple[tuple[str, float, int, int, int], ...]
    kind: str
    s: np.ndarray | None
    centre: np.ndarray
    radius: np.ndarray
    card: int | None
    method: str
    relaxation: str | None = None
    spec: np.ndarray | None = None
    lb: np.ndarray | None = None
    ub: np.ndarray | None = None
    status: Any = None
    xl: np.ndarray | None = None
    xh: np.ndarray | None = None
    zl: np.ndarray | None = None
    zh: np.ndarray | None = None
    x0: np.ndarray | None = None
    sigma: np.ndarray | None = None
    il: np.ndarray | None = None
    ih: np.ndarray | None = None
    zl0: np.ndarray | None = None
    zh0: np.ndarray | None = None
    stages: tuple[Stage, ...] | None = ()
    lam_low: np.ndarray | None = None
    lam_high: np.ndarray | None = None

    def __repr__(self) -> str:
        return summary(self, "A", "B", "C", "D", "segments", "kind", "centre", "radius", "method", "status", "stages")

    @classmethod
    def of(cls, problem: Any, inputs: Any, **fields: Any) -> BoundsCertificate:
        """Certificate of a `Problem` and an `Uncertainty`; fields: the rest."""
        segments = tuple((s.name, s.slope, s.start, s.stop, s.block) for s in problem.activation.segments)
        model = {name: getattr(problem, name) for name in "ABCDbd"}
        return cls(
            **model,
            segments=segments,
            kind=problem.certificate.kind,
            s=problem.certificate.s,
            centre=inputs.centre,
            radius=inputs.radius,
            card=inputs.card,
            **fields,
        )


def in_form(certificate: Any) -> BoundsCertificate:
    """The certificate with its arrays in float64, of exactly the shapes they must have.

    Raises:
        Malformed, or whatever nonsense raises.
    """
    if not isinstance(certificate, BoundsCertificate):
        raise certificate_fields.Malformed(f"expected a BoundsCertificate, got {type(certificate).__name__}")
    stages = certificate.stages
    if stages is not None:
        if not isinstance(stages, (tuple, list)) or not all(isinstance(stage, Stage) for stage in stages):
            raise certificate_fields.Malformed("stages must be None or a tuple of Stage")
        N, n = np.shape(certificate.centre)[0], certificate.A.shape[0]
        stages = tuple(Stage(**certificate_fields.stage_fields(stage, N, n)) for stage in stages)
    return replace(certificate, stages=stages, **certificate_fields.fields(certificate))
