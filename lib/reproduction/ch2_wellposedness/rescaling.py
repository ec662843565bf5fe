"""Perron-Frobenius scalings, compositions and printed forms of networks, checked on small models.

Source: SIM paper, Theorem 2.4 and Appendix A; Tsai thesis (2024), sections 2.4 and 2.5, section 4.2.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.linalg import norm

from implicit_models.compose.interconnect import cascade, parallel
from implicit_models.equilibrium.solve import solve_equilibrium
from implicit_models.model import ImplicitModel
from implicit_models.wellposed import perron_frobenius, rescale
from reproduction.ch2_wellposedness.compute import well_posed


def collatz_wielandt(count: int, seed: int, n: int = 6) -> dict[str, float]:
    """The eigenvalue as the infimum of ||diag(s) |A| diag(s)^-1||_inf over s > 0, on random A.

    Returns:
        "above_norm": cases with the eigenvalue above ||A||; "below": random scalings that go below it; "attained":
        largest relative distance at the inverse of the eigenvector, where the infimum is a minimum.
    """
    rng = np.random.default_rng(seed)
    out = {"above_norm": 0, "below": 0, "attained": 0.0}
    for _ in range(count):
        A = rng.standard_normal((n, n))
        values, vectors = np.linalg.eig(np.abs(A))
        radius, v = float(np.abs(values).max()), np.abs(vectors[:, np.argmax(values.real)].real)
        out["above_norm"] += int(radius > norm(A, np.inf) * (1 + 1e-12))
        for s in np.exp(rng.normal(0, 1, (20, n))):
            out["below"] += int(norm(s[:, None] * A / s, np.inf) < radius * (1 - 1e-12))
        out["attained"] = max(out["attained"], float(abs(norm(A * v / v[:, None], np.inf) / radius - 1)))
    return out


def printed_scaling(count: int, seed: int, n: int = 5) -> dict[str, float | list[float]]:
    """Both orientations of the scaling s = (I - |A|)^-1 1 of Theorem 2.4's proof, on random triangular A and on [[0,
    10], [0, 0]].

    Returns:
        "printed_fails": share of random A with ||S A S^-1|| >= 1 for S = diag(s), as printed; "inverse_fails": the same
        for S^-1 A S, whose norm is 1 - 1/max s; "formula": largest difference from that; "example_printed",
        "example_inverse"; "eigen_misfit": median relative distance of |A| s from a multiple of s.
    """
    rng = np.random.default_rng(seed)

    def both(A: np.ndarray) -> tuple[float, float, np.ndarray]:
        s = np.linalg.solve(np.eye(len(A)) - np.abs(A), np.ones(len(A)))
        return float(norm(s[:, None] * A / s, np.inf)), float(norm(A * s / s[:, None], np.inf)), s

    printed, inverse, formula, misfit = [], [], 0.0, []
    for _ in range(count):
        A = np.triu(rng.normal(0, rng.uniform(0.01, 1), (n, n)), 1)
        A[np.diag_indices(n)] = rng.uniform(-0.9, 0.9, n)
        one, other, s = both(A)
        printed.append(one >= 1)
        inverse.append(other >= 1)
        formula = max(formula, float(abs(other - (1 - 1 / s.max()))))
        image = np.abs(A) @ s
        misfit.append(float(norm(image - s * (image @ s) / (s @ s)) / norm(image)))
    one, other, _ = both(np.array([[0.0, 10.0], [0.0, 0.0]]))
    return {
        "printed_fails": float(np.mean(printed)),
        "inverse_fails": float(np.mean(inverse)),
        "formula": formula,
        "example_printed": one,
        "example_inverse": other,
        "eigen_misfit": float(np.median(misfit)),
    }


def rescaled_outputs(activation: str, count: int, seed: int, n: int = 6) -> dict[str, float]:
    """Models with an eigenvalue below 1 and a norm above, beside their rescaled twins.

    Returns:
        "norm": largest norm of the twins' A; "output": largest change of an output, relative to the largest;
        "conjugated": the same when the twin's activation is s^-1 phi(s .), entry by entry, which is again a CONE map.
    """
    rng = np.random.default_rng(seed)
    phi = {"relu": lambda z: np.maximum(z, 0), "tanh": np.tanh}[activation]
    out = {"norm": 0.0, "output": 0.0, "conjugated": 0.0}

    def outputs(A, B, C, u, act):
        x = np.zeros((len(u), n))
        for _ in range(4000):
            x, last = act(x @ A.T + u @ B.T), x
            if np.abs(x - last).max() < 1e-14:
                break
        return x @ C.T

    for _ in range(count):
        A, B, C = (
            rng.normal(0, 1, (n, n)) * np.exp(rng.normal(0, 1, (n, 1))),
            rng.standard_normal((n, 3)),
            rng.standard_normal((2, n)),
        )
        A *= 0.8 / perron_frobenius(A)
        u = rng.standard_normal((20, 3))
        A2, B2, C2, s = rescale(A, B, C)
        out["norm"] = max(out["norm"], float(norm(A2, np.inf)))
        y = outputs(A, B, C, u, phi)
        for name, act in (("output", phi), ("conjugated", lambda z, s=s: phi(z * s) / s)):
            out[name] = max(out[name], float(np.abs(outputs(A2, B2, C2, u, act) - y).max() / np.abs(y).max()))
    return out


def composition_facts(count: int, seed: int) -> dict[str, int]:
    """Cascades and parallel connections of random ReLU models: well-posedness and the PF condition of the whole against
    the parts.

    Returns:
        "cascade", "parallel": disagreements on well-posedness; "pf": on the eigenvalue being below 1; "posed", "below":
        cases where it holds.
    """
    rng = np.random.default_rng(seed)
    out = dict.fromkeys(("cascade", "parallel", "pf", "posed", "below"), 0)
    for _ in range(count):
        parts = [
            ImplicitModel.from_matrices(
                rng.normal(0, 0.6, (2, 2)),
                rng.standard_normal((2, 2)),
                rng.standard_normal((2, 2)),
                rng.standard_normal((2, 2)),
            )
            for _ in range(2)
        ]
        matrices = [m.A.detach().numpy() for m in parts]
        posed, below = all(map(well_posed, matrices)), all(perron_frobenius(A) < 1 for A in matrices)
        out["posed"] += int(posed)
        out["below"] += int(below)
        for name, whole in (("cascade", cascade(*parts)), ("parallel", parallel(*parts))):
            A = whole.A.detach().to_dense().numpy()
            out[name] += int(posed != well_posed(A))
            out["pf"] += int(below != (perron_frobenius(A) < 1))
    return out


def printed_network_form(seed: int) -> dict[str, float]:
    """A network 3-4-5-2 with tanh, ReLU and sigmoid layers in the form (2.9), read with phi's blocks as printed and in
    the order of the state.

    Returns:
        largest difference from the forward pass: "state_order", phi = (phi_{L-1}, ..., phi_0), and "shifted", each
        block given its successor's map.
    """
    rng = np.random.default_rng(seed)
    W = [rng.standard_normal(shape) for shape in ((4, 3), (5, 4), (3, 5), (2, 3))]
    maps, sizes = ["tanh", "relu", "sigmoid"], [4, 5, 3]
    u = rng.standard_normal((50, 3))
    numeric = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0), "sigmoid": lambda z: 1 / (1 + np.exp(-z))}
    x = u
    for weight, name in zip(W, maps, strict=False):
        x = numeric[name](x @ weight.T)
    expected = x @ W[-1].T
    A, B = np.zeros((12, 12)), np.zeros((12, 3))
    A[:3, 3:8], A[3:8, 8:], B[8:] = W[2], W[1], W[0]  # the state is (x_3, x_2, x_1)
    C = np.hstack([W[3], np.zeros((2, 9))])
    out = {}
    for name, order in (("state_order", [2, 1, 0]), ("shifted", [0, 2, 1])):
        activation = [(maps[i], size) for i, size in zip(order, reversed(sizes), strict=True)]
        found = solve_equilibrium(torch.as_tensor(A), torch.as_tensor(u @ B.T), activation, tol=1e-12)
        out[name] = float(np.abs(found.x.numpy() @ C.T - expected).max())
    return out


def printed_max_pool(seed: int) -> dict[str, int]:
    """Max-pooling of four blocks of four: which output entries answer to a change inside one block.

    Returns:
        "printed": entries outside the perturbed block that change when phi lists all maxima first, as printed;
        "own_block": the same when each maximum stays in its block.
    """
    z = np.random.default_rng(seed).normal(0, 1, (4, 4))
    changed = z.copy()
    changed[2] += 10.0

    def printed(v):
        return np.concatenate([v.max(1), np.zeros(12)])

    def own_block(v):
        return np.concatenate([[row.max(), 0, 0, 0] for row in v])

    inside = np.repeat(np.arange(4) == 2, 4)
    return {
        name: int(((phi(z) != phi(changed)) & ~inside).sum())
        for name, phi in (("printed", printed), ("own_block", own_block))
    }


def picard_at_norm_one(steps: int) -> Float[np.ndarray, " steps"]:
    """States of x <- relu(x + 1) from 0: kappa = 1 is not enough, the equation x = relu(x + 1) has no solution."""
    x, states = 0.0, []
    for _ in range(steps):
        x = max(0.0, x + 1.0)
        states.append(x)
    return np.array(states)
