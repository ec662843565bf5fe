"""Statements of the SIM paper about exact matching, scaling and counting, each reduced to numbers that can be
recomputed.

Source: SIM paper, section 3 and section 3.1.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from implicit_models.sim.fit import fit_sim
from implicit_models.sim.network.states import States, states
from implicit_models.sim.problem import L1, Exact, LeastSquares, Tolerance
from reproduction.ch3_sim_fashion.compute import dense_model
from reproduction.core.counts import parameters_shown


@torch.no_grad()
@parameters_shown()
def exact_match(found: States) -> dict[str, float]:
    """Rows that match states and outputs exactly (l1, kappa .99, Theorem 2.4's units), run on the samples they were
    fitted to.

    Returns:
        "state", "output": largest error relative to the largest state, output; "agree": share of equal predictions, per
        cent; "row_norm"; "unsolved" rows.
    """
    fit = fit_sim(found, match=Exact(), kappa=0.99, scale="theorem", feedback="full")
    unsolved = int((fit.status != "optimal").sum())
    if np.isnan(fit.row_norms).any():
        return {"state": np.nan, "output": np.nan, "agree": np.nan, "row_norm": np.nan, "unsolved": unsolved}
    model = dense_model(fit)
    u = torch.as_tensor(np.asarray(found.U)).double()
    x, y = model.equilibrium(u).x.numpy(), model(u).numpy()
    return {
        "state": float(np.abs(x - found.X).max() / np.abs(found.X).max()),
        "output": float(np.abs(y - found.Y).max() / np.abs(found.Y).max()),
        "agree": 100 * float((y.argmax(axis=1) == np.asarray(found.Y).argmax(axis=1)).mean()),
        "row_norm": float(fit.row_norms.max()),
        "unsolved": unsolved,
    }


def trivial_fit(found: States) -> dict[str, float]:
    """Rank of the inputs, and how well inputs and a constant alone (a = 0) explain the pre-activations.

    Returns:
        "rank" of U, "samples", "residual": largest ||U b - z|| / ||z|| over the states.
    """
    U = np.hstack([found.U, np.ones((found.n_samples, 1))]).astype(np.float64)
    Z = np.asarray(found.Z, dtype=np.float64)
    left = np.linalg.norm(U @ np.linalg.lstsq(U, Z, rcond=None)[0] - Z, axis=0) / np.linalg.norm(Z, axis=0)
    return {
        "rank": float(np.linalg.matrix_rank(U[:, :-1])),
        "samples": float(found.n_samples),
        "residual": float(left.max()),
    }


@torch.no_grad()
def divided(network: nn.Module, gamma: float = 1.01) -> tuple[nn.Module, float]:
    """The network with all weight matrices divided by gamma times the largest row sum, as printed (biases stay), and
    the divisor."""
    small = copy.deepcopy(network)
    weights = [p for p in small.parameters() if p.ndim >= 2]
    factor = gamma * max(float(w.abs().sum(dim=1).max()) for w in weights)
    for w in weights:
        w /= factor
    return small, factor


@torch.no_grad()
def scaling_effect(network: nn.Module, u: np.ndarray) -> dict[str, Any]:
    """What the division does to a trained network.

    Returns:
        "factor"; "largest" row norm after it; "agree", "agree_bias_free": share of equal predictions, per cent, of the
        network and of the network without its biases; "norms", "norms_before": mean state norm of each layer, first
        layer first.
    """
    bare = copy.deepcopy(network)
    for parameter in bare.parameters():
        if parameter.ndim < 2:
            parameter.zero_()
    out: dict[str, Any] = {}
    inputs = torch.as_tensor(u)
    for name, model in (("agree", network), ("agree_bias_free", bare)):
        # float64: the bias-free logits shrink by the factor's power of the depth
        model = copy.deepcopy(model).double()
        small, factor = divided(model)
        same = model(inputs.double()).argmax(dim=1) == small(inputs.double()).argmax(dim=1)
        out[name] = 100 * float(same.double().mean())
        if name == "agree_bias_free":
            out["logit_ratio"] = float(model(inputs.double()).abs().max() / small(inputs.double()).abs().max())
            out["depth"] = sum(p.ndim >= 2 for p in model.parameters())
            before, after = (states(m, inputs.double(), dtype=torch.float64) for m in (model, small))
        else:
            out["factor"] = factor
            out["largest"] = max(float(w.abs().sum(dim=1).max()) for w in small.parameters() if w.ndim >= 2)
    for key, found in (("norms_before", before), ("norms", after)):
        out[key] = [float(np.linalg.norm(found.X[:, b.states], axis=1).mean()) for b in reversed(found.blocks)]
    return out


def random_agreement(nets: int, seed: int, samples: int = 200) -> dict[str, float]:
    """Median share of equal predictions, per cent, over random three-layer networks after the division, without and
    with biases."""
    generator = torch.Generator().manual_seed(seed)
    out: dict[str, list[float]] = {"bias_free": [], "biased": []}
    for _ in range(nets):
        for name in out:
            layers: list[nn.Module] = []
            for a, b in ((10, 20), (20, 20), (20, 5)):
                layer = nn.Linear(a, b, bias=name == "biased").double()
                for parameter in layer.parameters():
                    parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                layers += [layer, nn.ReLU()]
            network = nn.Sequential(*layers[:-1])
            u = torch.randn(samples, 10, generator=generator, dtype=torch.float64)
            small, _ = divided(network)
            out[name].append(100 * float((network(u).argmax(1) == small(u).argmax(1)).double().mean()))
    return {name: float(np.median(values)) for name, values in out.items()}


def counts(n: int, p: int, q: int, m: int, seed: int) -> dict[str, int]:
    """Equations and unknowns of Y~ = M U~ for random data: as printed, as they are, and the rank of the linear map M ->
    M U~."""
    data = np.random.default_rng(seed).standard_normal((n + p, m))
    U = data[n:]
    return {
        "unknowns": (n + p) * (n + q),
        "printed": (n + p) * m,
        "equations": (n + q) * m,
        "rank": int(np.linalg.matrix_rank(np.kron(np.eye(n + q), data.T))),
        "rank_UtU": int(np.linalg.matrix_rank(U.T @ U)),
        "rank_UUt": int(np.linalg.matrix_rank(U @ U.T)),
    }


def joint_difference(seed: int, *, n: int = 5, p: int = 4, q: int = 3, m: int = 30) -> float:
    """Joint convex problem against the sum of its rows, relative difference of the optimal values, on random states.

    Raises:
        ImportError: without cvxpy.
    """
    try:
        import cvxpy as cp
    except ImportError:
        raise ImportError("the joint problem needs cvxpy: pip install 'implicit-models[sim]'") from None
    generator = np.random.default_rng(seed)
    U, Z, Y = (generator.standard_normal((m, k)) for k in (p, n, q))
    X = np.maximum(Z, 0)
    lam, beta, kappa = 0.1, 0.05, 0.6
    fit = fit_sim(
        States.from_arrays(X, Z, U, Y),
        objective=L1(beta),
        match=LeastSquares(lam, lam),
        kappa=kappa,
        scale="none",
        tolerance=Tolerance(1e-10, 1e-12),
    )
    A, B, b, C, D, d = (cp.Variable(shape) for shape in ((n, n), (n, p), n, (q, n), (q, p), q))
    matching = cp.sum_squares(Z - X @ A.T - U @ B.T - np.ones((m, 1)) @ cp.reshape(b, (1, n), order="C"))
    matching += cp.sum_squares(Y - X @ C.T - U @ D.T - np.ones((m, 1)) @ cp.reshape(d, (1, q), order="C"))
    penalty = sum(cp.sum(cp.abs(variable)) for variable in (A, B, b, C, D, d))
    problem = cp.Problem(cp.Minimize(lam * matching + beta * penalty), [cp.sum(cp.abs(A), axis=1) <= kappa])
    problem.solve(solver="CLARABEL")
    left = ((Z - X @ fit.A.toarray().T - U @ fit.B.toarray().T - fit.b) ** 2).sum()
    left += ((Y - X @ fit.C.toarray().T - U @ fit.D.toarray().T - fit.d) ** 2).sum()
    weights = sum(np.abs(M).sum() for M in (fit.A, fit.B, fit.C, fit.D, fit.b, fit.d))
    return abs(lam * left + beta * weights - problem.value) / problem.value


def norm_ratio(seed: int, *, vectors: int = 1000, dimension: int = 784) -> float:
    """Largest ||v||_inf / ||v||_p over random v and p in {1, 1.5, 2, 4}: at most 1 if every l_p ball lies in the l_inf
    ball."""
    v = np.random.default_rng(seed).standard_normal((vectors, dimension))
    return max(float((np.abs(v).max(axis=1) / np.linalg.norm(v, ord=p, axis=1)).max()) for p in (1, 1.5, 2, 4))
