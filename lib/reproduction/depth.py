"""Depth of an implicit model: the fixed-point iterations that a tolerance costs, as the papers count them."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

from implicit_models.equilibrium.solve import solve_equilibrium
from implicit_models.model import ImplicitModel

# The papers' stopping rule: the largest change of an entry below 3e-6.
PAPER_TOLERANCE = 3e-6


@torch.no_grad()
def picard_iterations(
    model: ImplicitModel, u: Float[np.ndarray, "N p"], *, tol: float = PAPER_TOLERANCE, tol_mode: str = "absolute", max_iter: int = 2000
) -> np.ndarray:
    """Picard iterations from x = 0 until the residual of each sample is below the tolerance.

    Computed in float64: in float32 an absolute tolerance of 3e-6 is below round-off as soon as states exceed about 50, and
    the count would only show the cap.

    Args:
        model: trained implicit model with dense A.
        u: (N, p) inputs.
        tol, tol_mode: "absolute" as in the papers, or "relative" to the sample's largest state.
        max_iter: cap.

    Returns:
        (N,) iterations.
    """
    parameters = {name: value.detach().double() for name, value in model.named_parameters()}
    b = torch.as_tensor(u).double() @ parameters["B"].T
    if "b" in parameters:
        b = b + parameters["b"]
    result = solve_equilibrium(model.A.detach().double(), b, "relu", solver="picard", tol=tol, tol_mode=tol_mode, max_iter=max_iter)
    return result.n_iter.numpy()
