"""The scale of the states, which gives the radius kappa its meaning.

A diagonal change of units x' = x / s, z' = z / s turns A into A' = S^-1 A S with S = diag(s). The ball ||a'_i||_1 <=
kappa then reads sum_j s_j |a_ij| <= kappa s_i in the original units, and |A| keeps its Perron-Frobenius eigenvalue: A'
inside the ball for some kappa < 1 proves A well-posed for every componentwise non-expansive map. Which networks lie in
the ball is decided by s alone, so that a kappa without its scale says nothing.

Source:
    SIM paper, Theorem 2.4 and section 3 (division by the largest row norm); Tsai thesis (2024), section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from implicit_models.activations import resolve_activation
from implicit_models.sim.network.states import States
from implicit_models.summaries import summary

SCALES = ("theorem", "std", "uniform", "none")


@dataclass(frozen=True)
class Scale:
    """Units s (n,) > 0 of the states, the name of the rule and a sentence for captions."""

    s: Float[np.ndarray, " n"]
    name: str
    description: str

    def __repr__(self) -> str:
        return summary(self)


class ScaledStates(NamedTuple):
    """X / s and Z / s (m, n), the units s (n,), and the sentence that says what they are."""

    X: Float[np.ndarray, "m n"]
    Z: Float[np.ndarray, "m n"]
    s: Float[np.ndarray, " n"]
    description: str

    def __repr__(self) -> str:
        return summary(self, *self._fields)


def _checked(s: np.ndarray, what: str) -> np.ndarray:
    bad = ~(np.isfinite(s) & (s > 0))
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise ValueError(f"{what} must be positive and finite, got {s[i]} for state {i}")
    return s


def theorem_scale(A: Any, kappa: float) -> Float[np.ndarray, " n"]:
    """s = (I - |A|/kappa)^-1 1: in these units ||A'||_inf <= kappa (1 - 1/max s).

    Args:
        A: (n, n) of the network, dense or sparse.
        kappa: above the Perron-Frobenius eigenvalue of |A|.

    Raises:
        ValueError: if it is not.

    Source:
        SIM paper, Theorem 2.4.
    """
    from implicit_models.perron import shifted_solve, square_matrix

    M = abs(square_matrix(A)) / kappa
    with np.errstate(all="ignore"):
        try:
            s = shifted_solve(M, 1.0)
        except (RuntimeError, np.linalg.LinAlgError):
            s = np.full(M.shape[0], np.nan)
        # s >= 1 with |A|/kappa s = s - 1 < s proves lambda_PF(|A|) < kappa
        proved = np.all(np.isfinite(s)) and np.all(s >= 1 - 1e-9)  # type: bool | np.bool_
        proved = proved and np.allclose(s - M @ s, 1.0, rtol=0, atol=1e-6 * np.max(s))
    if not proved:
        raise ValueError(
            f"Theorem 2.4 needs kappa above the Perron-Frobenius eigenvalue of |A|, which kappa = {kappa} is not"
        )
    return s


def standard_deviation(X: Float[np.ndarray, "m n"], samples_a_pass: int = 4096) -> Float[np.ndarray, " n"]:
    """Standard deviation of every column (divisor m), in two passes over the rows."""
    passes = range(0, X.shape[0], samples_a_pass)
    mean = sum(X[at : at + samples_a_pass].sum(0, dtype=np.float64) for at in passes) / X.shape[0]
    square = sum(((X[at : at + samples_a_pass] - mean) ** 2).sum(0) for at in passes)
    return np.sqrt(square / X.shape[0])


def _uniform(states: States, kappa: float) -> tuple[np.ndarray, float]:
    from implicit_models.model import ImplicitModel
    from implicit_models.sim.network.teacher import teacher_matrices

    if isinstance(states.network, ImplicitModel):
        raise ValueError(
            "scale 'uniform' needs a layered network, which an implicit model is not: use 'theorem' or 'std'"
        )
    t = teacher_matrices(states)
    norms = [abs(a).sum(1) + abs(b).sum(1) for a, b in ((t.A, t.B), (t.C, t.D))]
    g = float(max(v.max(initial=0.0) for v in norms)) / kappa
    if g == 0:
        raise ValueError("scale 'uniform' needs a network with a weight that is not zero")
    s = np.empty(states.n_states)
    for depth, block in enumerate(reversed(states.blocks), start=1):
        s[block.states] = g**depth
    return s, g


def scale_of(states: States, scale: Any, *, kappa: float = 0.99, A: Any = None) -> Scale:
    """Units of the states under one of the rules, or given ones.

    Mathematics:
        "theorem"  s = (I - |A|/kappa)^-1 1 of the network's own A: the network itself lies in the ball of radius kappa;
        "std"      s_j = standard deviation of state j, 1 where that is 0 (a dead or constant state);
        "uniform"  s_j = g^l for a state of layer l, g = max over all layers, the first and the last included, of
        ||W_l||_inf
                   divided by kappa: what dividing every weight matrix by g does to the states;
        "none"     s = 1;
        an array   s itself; and so a `Scale` that was found before.

    Args:
        states: of the network.
        kappa: of "theorem" and "uniform", in (0, inf).
        A: (n, n) of the network for "theorem"; read off the network behind the states if None.

    Returns:
        `Scale`.

    Raises:
        ValueError: for an unknown rule, units that are not positive, weights that cannot be had.

    Source:
        SIM paper, Theorem 2.4 and section 3.
    """
    n = states.n_states
    if isinstance(scale, Scale):
        scale_of(states, scale.s)  # its units are checked
        return scale
    if not isinstance(scale, str):
        s = np.array(scale.detach().cpu().numpy() if hasattr(scale, "detach") else scale, dtype=np.float64)
        if s.shape != (n,):
            raise ValueError(f"a scale has one unit per state, shape {(n,)}, got {s.shape}")
        return Scale(_checked(s, "a scale"), "given", "states in given units")
    if scale not in SCALES:
        raise ValueError(f"unknown scale {scale!r}; choose one of {', '.join(SCALES)} or an array of {n} units")
    if scale in ("theorem", "uniform") and not (np.isfinite(kappa) and kappa > 0):
        raise ValueError(f"the kappa of scale {scale!r} must be positive and finite, got {kappa}")
    if scale == "none":
        return Scale(np.ones(n), scale, "states in their own units")
    if scale == "std":
        s = standard_deviation(states.X)
        dead = s == 0
        s[dead] = 1.0
        text = "states in units of their standard deviation"
        if dead.any():
            text += f" ({int(dead.sum())} constant ones in their own)"
        return Scale(_checked(s, "a standard deviation"), scale, text)
    if scale == "theorem":
        if A is None:
            from implicit_models.sim.network.teacher import teacher_matrices

            A = teacher_matrices(states).A
        if A.shape != (n, n):
            raise ValueError(f"A must have shape {(n, n)}, one row and column per state, got {tuple(A.shape)}")
        A = A.detach().cpu().double().numpy() if hasattr(A, "detach") else A
        s = theorem_scale(sp.csr_array(A) if sp.issparse(A) else A, kappa)
        return Scale(s, scale, f"states in the units of Theorem 2.4 at kappa {kappa:g}")
    s, g = _uniform(states, kappa)
    return Scale(_checked(s, "a unit"), scale, f"weights divided by {g:.4g}, states of layer l by its power l")


def scale_states(states: States, scale: Any, *, kappa: float = 0.99, A: Any = None) -> ScaledStates:
    """States of the rescaled network: X / s and Z / s.

    Mathematics: x / s = phi(z / s) holds for positively homogeneous maps only, so only for these are the results the
    states of a network. (`fit_sim` returns to the original units, where no such property is needed.)

    Args:
        as in `scale_of`.

    Returns:
        `ScaledStates`, float64.

    Raises:
        ValueError: naming the block whose map is not positively homogeneous; see also `scale_of`.

    Source:
        SIM paper, Theorem 2.4 and section 3.
    """
    found = scale_of(states, scale, kappa=kappa, A=A)
    for block in states.blocks:
        act = resolve_activation(block.activation, block.stop - block.start)
        if not (act.homogeneous and act.componentwise) and np.any(found.s[block.states] != 1.0):
            raise ValueError(
                f"block {block.name!r} has the map {block.activation!r}, which is not positively homogeneous and"
                " componentwise: its scaled states are no states of a network; use scale='none'"
            )
    return ScaledStates(np.asarray(states.X) / found.s, np.asarray(states.Z) / found.s, found.s, found.description)
