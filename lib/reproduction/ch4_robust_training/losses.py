"""Worst-case losses and penalties of the thesis, checked on random models and on trained ones.

Source: Tsai thesis (2024), section 4.2 (rho, (4.7)), section 4.3 ((4.9), worst-case loss).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp

from implicit_models.model import ImplicitModel
from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.losses import worst_case_loss
from implicit_models.robustness.penalties import convex_penalty, lipschitz_constant, sensitivity_norm
from implicit_models.robustness.sensitivity import sensitivity_matrix


def _random(rng: np.random.Generator, direct: bool = True) -> ImplicitModel:
    A = rng.standard_normal((8, 8))
    A *= rng.uniform(0.2, 0.95) / np.abs(A).sum(1).max()
    D = rng.standard_normal((4, 5)) if direct else None
    return ImplicitModel.from_matrices(A, rng.standard_normal((8, 5)), rng.standard_normal((4, 8)), D, tol=1e-10)


def penalty_facts(count: int, seed: int) -> dict[str, float]:
    """The three constants on random models, and convexity of the penalty on segments between them, B and C stretched in
    opposite ways.

    Returns:
        "violations" of |y(u) - y(v)| <= rho |u - v|, "order" of ||S|| <= rho <= penalty, "convexity"; "over_rho":
        median of penalty over rho; "sensitivity_over_rho": median; "equal": penalty over rho where ||B|| = ||C||;
        "nonconvex": violations of convexity by rho itself.
    """
    rng = np.random.default_rng(seed)
    out = dict.fromkeys(("violations", "order", "convexity", "nonconvex"), 0)
    over, below, equal = [], [], []
    for _ in range(count):
        m, other, mixed = (_random(rng) for _ in range(3))
        with torch.no_grad():
            s, rho, convex = (f(m).item() for f in (sensitivity_norm, lipschitz_constant, convex_penalty))
            u, v = torch.as_tensor(rng.standard_normal((2, 100, 5)))
            out["violations"] += int(((m(u) - m(v)).abs().amax(1) > rho * (u - v).abs().amax(1) * (1 + 1e-9)).sum())
            out["order"] += int(not s <= rho * (1 + 1e-12) <= convex * (1 + 2e-12))
            over.append(convex / rho)
            below.append(s / rho)
            t, stretch = rng.uniform(), rng.uniform(2, 5)
            for model, scale in (
                (m, stretch),
                (other, 1 / stretch),
            ):  # the same output, but for D: what makes a product of norms bend
                model.B.mul_(scale)
                model.C.div_(scale)
            rho, convex = lipschitz_constant(m).item(), convex_penalty(m).item()
            for own, x, y in zip(mixed.parameters(), m.parameters(), other.parameters(), strict=True):
                own.copy_(t * x + (1 - t) * y)
            out["convexity"] += int(
                convex_penalty(mixed).item() > (t * convex + (1 - t) * convex_penalty(other).item()) * (1 + 1e-12)
            )
            out["nonconvex"] += int(
                lipschitz_constant(mixed).item() > (t * rho + (1 - t) * lipschitz_constant(other).item()) * (1 + 1e-12)
            )
            m.C.mul_(m.B.abs().sum(1).max() / m.C.abs().sum(1).max())
            equal.append(convex_penalty(m).item() / lipschitz_constant(m).item())
    return out | {
        "over_rho": float(np.median(over)),
        "sensitivity_over_rho": float(np.median(below)),
        "equal": float(np.max(np.abs(equal))),
    }


def _corner_losses(y0: np.ndarray, sigma: np.ndarray, target: np.ndarray, loss: str) -> np.ndarray:
    corners = y0 + sigma * np.array(list(itertools.product([-1.0, 1.0], repeat=y0.size)))
    return ((corners - target) ** 2).sum(1) if loss == "squared" else logsumexp(corners, axis=1) - corners @ target


def enumeration_facts(count: int, seed: int) -> dict[str, float]:
    """Closed forms against all corners of the box, on random models whose output box is S sigma_u, or rho ||c_i|| for D
    = 0.

    Returns:
        "squared_error", "exact_error": largest difference, relative; "below": bounds of the thesis below the largest
        corner; "chain": violations of L <= L_wc <= L + 2 rho ||C||; "box_increase", "norm_increase": medians of the
        increases that they claim, over the exact one.
    """
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {"squared_error": 0.0, "exact_error": 0.0, "below": 0, "chain": 0}
    box_ratio, norm_ratio = [], []
    for _ in range(count):
        m, eps = _random(rng, direct=False), float(rng.uniform(0.005, 0.1))
        u = rng.standard_normal((1, 5))
        with torch.no_grad():
            y0 = 3 * m(torch.as_tensor(u)).numpy()
            A, B, C = (M.numpy() for M in (m.A, m.B, 3 * m.C))
        sigma = eps * 3 * sensitivity_matrix(m).S.sum(1)
        radius = eps * np.abs(B).sum(1).max() / (1 - np.abs(A).sum(1).max())  # (4.3)
        around = radius * np.abs(C).sum(1)
        k = int(y0.argmax())
        onehot, target = np.eye(4)[k], rng.standard_normal((1, 4))
        corners = _corner_losses(y0[0], sigma, onehot, "cross_entropy").max()
        wide = _corner_losses(y0[0], around, onehot, "cross_entropy").max()
        nominal = worst_case_loss(y0, 0 * sigma, [k])[0]
        exact, box = (worst_case_loss(y0, sigma, [k], bound=b)[0] for b in ("exact", "box"))
        norm = worst_case_loss(y0, around, [k], bound="box")[0]
        squared = worst_case_loss(y0, sigma, target, "squared")[0]
        out["squared_error"] = max(
            out["squared_error"], abs(squared / _corner_losses(y0[0], sigma, target[0], "squared").max() - 1)
        )
        out["exact_error"] = max(out["exact_error"], abs(exact - corners) / max(1.0, corners))
        out["below"] += int(box < corners - 1e-9) + int(norm < wide - 1e-9)
        out["chain"] += int(not nominal <= wide + 1e-12 <= nominal + 2 * radius * np.abs(C).sum(1).max() + 2e-12)
        with np.errstate(divide="ignore"):  # a loss so small that its exact increase rounds to 0 has an infinite ratio
            box_ratio.append(np.divide(box - nominal, exact - nominal))
            norm_ratio.append(np.divide(norm - nominal, exact - nominal))
    return out | {"box_increase": float(np.median(box_ratio)), "norm_increase": float(np.median(norm_ratio))}


def trained_facts(model: ImplicitModel, u: np.ndarray, labels: np.ndarray, eps: float) -> dict[str, float]:
    """Mean cross-entropy of a trained classifier: of the samples, and its worst case over boxes of outputs around them.

    Returns:
        "nominal"; for boxes from S ("s") and from the interval fixed point ("interval"): "_exact", "_box" (the thesis'
        bound), and "_ratio", the increase that the bound claims over the exact one.
    """
    with torch.no_grad():
        y0 = model(torch.as_tensor(u, dtype=model.A.dtype)).double().numpy()
    interval = bounds(model, u, eps, method="interval")
    boxes = {
        "s": (y0, eps * sensitivity_matrix(model).S.sum(1)),
        "interval": (0.5 * (interval.lb + interval.ub), 0.5 * (interval.ub - interval.lb)),
    }
    out = {"nominal": float(worst_case_loss(y0, np.zeros(y0.shape[1]), labels).mean())}
    for name, (centre, radius) in boxes.items():
        exact, box = (float(worst_case_loss(centre, radius, labels, bound=b).mean()) for b in ("exact", "box"))
        out |= {
            f"{name}_exact": exact,
            f"{name}_box": box,
            f"{name}_ratio": (box - out["nominal"]) / (exact - out["nominal"]),
        }
    return out
