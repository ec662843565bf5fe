"""Gradients through an equilibrium: the formula with the inverse, the adjoint equation, and what approximates them."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

from implicit_models.model import ImplicitModel
from reproduction.ch5_depth.compute import equilibria, matrices
from reproduction.ch5_depth.cost import with_settings

BACKWARDS = {
    "implicit": "adjoint equation",
    "jfb": "Jacobian-free",
    "phantom": "phantom, 5 damped steps",
    "unroll": "unrolled",
}


def gradient(
    model: ImplicitModel, u: Float[np.ndarray, "N p"], y: Float[np.ndarray, "N q"], backward: str
) -> Float[np.ndarray, "n n"]:
    """Gradient of the mean squared error with respect to A, in double precision, by one of the library's backward
    passes."""
    solver = "picard" if backward == "unroll" else model.settings.solver
    exact = {"tol": 1e-11, "max_iter": 5_000, "on_failure": "raise"}
    double = with_settings(model, backward=backward, solver=solver, **exact).double()
    loss = torch.nn.functional.mse_loss(double(torch.as_tensor(u).double()), torch.as_tensor(y).double())
    (found,) = torch.autograd.grad(loss, double.A)
    return found.numpy()


def dense_gradient(
    model: ImplicitModel, u: Float[np.ndarray, "N p"], y: Float[np.ndarray, "N q"], *, misread: bool = False
) -> Float[np.ndarray, "n n"]:
    """The same gradient by the papers' formula, one dense system a sample.

    Mathematics: with Phi the diagonal matrix of slopes at the equilibrium and g the gradient of the loss in x,
    dL/dA = sum v x', v = Phi (I - A' Phi)^-1 g.

    Args:
        model, u, y: ReLU model without biases, inputs, targets.
        misread: invert the inverse, as the sentence "the inversion of (I - Phi A)^-1" literally says.

    Source:
        Decugis et al. (2024), section 1.2; El Ghaoui et al. (2021), appendix G.
    """
    found = matrices(model)
    A, C, D = found["A"], found["C"], found["D"]
    u, y = np.asarray(u, np.float64), np.asarray(y, np.float64)
    x = equilibria(model, u)
    slopes = (x > 0).astype(float)
    g = 2 * (x @ C.T + u @ D.T - y) @ C / y.size
    systems = np.eye(len(A)) - A.T[None] * slopes[:, None, :]
    solved = (systems @ g[:, :, None] if misread else np.linalg.solve(systems, g[:, :, None]))[:, :, 0]
    return (slopes * solved).T @ x


def finite_differences(
    model: ImplicitModel,
    u: Float[np.ndarray, "N p"],
    y: Float[np.ndarray, "N q"],
    entries: list[tuple[int, int]],
    step: float = 1e-6,
) -> Float[np.ndarray, " k"]:
    """Central differences of the loss in some entries of A: a check that shares no code with any backward pass."""
    found = matrices(model)
    u, y = np.asarray(u, np.float64), np.asarray(y, np.float64)

    def loss(A: np.ndarray) -> float:
        moved = ImplicitModel.from_matrices(
            torch.as_tensor(A), torch.as_tensor(found["B"]), torch.as_tensor(found["C"])
        )
        x = equilibria(moved, u)
        return float(((x @ found["C"].T + u @ found["D"].T - y) ** 2).mean())

    out = []
    for i, j in entries:
        change = np.zeros_like(found["A"])
        change[i, j] = step
        out.append((loss(found["A"] + change) - loss(found["A"] - change)) / (2 * step))
    return np.array(out)


def agreement(found: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """Relative error |found - exact| / |exact| in the Frobenius norm, and the cosine of the angle between the two."""
    found, exact = np.ravel(found), np.ravel(exact)
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact)), float(
        found @ exact / (np.linalg.norm(found) * np.linalg.norm(exact))
    )
