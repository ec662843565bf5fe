"""Existence and uniqueness of x = phi(A x + b), decided exactly on small models.

For ReLU the equation is a linear complementarity problem, so that it has one solution for every b exactly when I - A is
a P-matrix: all its principal minors are positive. More generally, for entries that are ReLU or linear, when det(I - D
A) has one sign over all patterns D. These decisions use determinants alone: they are independent of the library's
certificates and solvers, which they judge.

Source: Tsai thesis (2024), sections 2.3 and 2.4; for P-matrices, Cottle, Pang and Stone, The Linear Complementarity
Problem (1992), Theorem 3.3.7.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float

from implicit_models.activations import resolve_activation
from implicit_models.equilibrium.solve import solve_equilibrium
from implicit_models.wellposed import certificate, perron_frobenius


def well_posed(A: Float[np.ndarray, "n n"], linear: Bool[np.ndarray, " n"] | None = None) -> bool:
    """Whether x = phi(A x + b) has exactly one solution for every b; phi is the identity where `linear`, ReLU
    elsewhere."""
    n = len(A)
    linear = np.zeros(n, bool) if linear is None else np.asarray(linear)
    free, signs = np.flatnonzero(~linear), set()
    for pattern in itertools.product((0.0, 1.0), repeat=free.size):
        D = np.ones(n)
        D[free] = pattern
        signs.add(np.sign(np.linalg.det(np.eye(n) - D[:, None] * A)))
    return len(signs) == 1 and 0.0 not in signs


def relu_solutions(A: Float[np.ndarray, "n n"], b: Float[np.ndarray, " n"]) -> list[np.ndarray]:
    """All solutions of x = relu(A x + b), by trying the 2^n patterns; for b in general position there are finitely
    many."""
    n, found = len(b), []
    for pattern in itertools.product((False, True), repeat=n):
        on = np.array(pattern)
        x = np.zeros(n)
        if on.any():
            M = np.eye(on.sum()) - A[np.ix_(on, on)]
            if abs(np.linalg.det(M)) < 1e-12:
                continue
            x[on] = np.linalg.solve(M, b[on])
        z = A @ x + b
        if (x[on] > 0).all() and (z[~on] <= 0).all():
            found.append(x)
    return found


def scalar_counts(slopes: Sequence[float], offsets: Sequence[float]) -> Float[np.ndarray, "slopes offsets"]:
    """Number of solutions of x = relu(a x + b) for each slope a and offset b."""
    return np.array(
        [[len(relu_solutions(np.array([[a]]), np.array([b]))) for b in offsets] for a in slopes], dtype=float
    )


def non_expansive_violations(activation: str, count: int, seed: int) -> int:
    """Random pairs with |phi(u) - phi(v)| > |u - v| (Definition 2)."""
    u, v = torch.as_tensor(np.random.default_rng(seed).normal(0, 3, (2, count, 1)))
    phi = resolve_activation(activation, 1)
    return int(((phi(u) - phi(v)).abs() > (u - v).abs() * (1 + 1e-12)).sum())


def softmax_constant(count: int, seed: int) -> dict[str, float]:
    """Largest l1 norm of the softmax Jacobian, diag(s) - s s', whose column sums are 2 s_j (1 - s_j): over random
    logits, and at two equal ones."""
    rng = np.random.default_rng(seed)
    largest = 0.0
    for _ in range(count):
        z = rng.normal(0, rng.uniform(0.1, 10), int(rng.integers(2, 9)))
        s = np.exp(z - z.max())
        s /= s.sum()
        largest = max(largest, float(np.abs(np.diag(s) - np.outer(s, s)).sum(0).max()))
    s = np.array([0.5, 0.5])
    return {"largest": largest, "attained": float(np.abs(np.diag(s) - np.outer(s, s)).sum(0).max())}


def strictly_triangular_counts(count: int, seed: int, n: int = 8) -> list[int]:
    """Solutions of x = sign(A x + b) among all sign vectors, for strictly upper-triangular A with large entries: the
    map need not be continuous."""
    rng = np.random.default_rng(seed)
    states = np.array(list(itertools.product((-1.0, 1.0), repeat=n)))
    counts = []
    for _ in range(count):
        A, b = np.triu(rng.normal(0, 10, (n, n)), 1), rng.normal(0, 10, n)
        counts.append(int((np.where(states @ A.T + b >= 0, 1.0, -1.0) == states).all(1).sum()))
    return counts


def picard_facts(
    count: int, seed: int, blocks: Sequence[tuple[str, int]] = (("relu", 3), ("softmax", 3), ("tanh", 2))
) -> dict[str, float]:
    """Theorem 1 and its proof on random models scaled to a Perron-Frobenius eigenvalue of .5 to .95.

    Returns:
        "disagreements": starts that do not end at the solution reached from 0; "step_violations" of the bound on
        successive differences, eta(x(t+1) - x(t)) <= N eta(x(t) - x(t-1)), eta the norms of the blocks; "rate_over_pf":
        largest rate of convergence over the eigenvalue; "iterations": median from 0 to a change of 3e-6.
    """
    rng = np.random.default_rng(seed)
    activation = list(blocks)
    act = resolve_activation(activation, sum(size for _, size in blocks))
    n, unit, gamma = act.n, np.asarray(act.unit), np.asarray(act.lipschitz)
    out, rates, steps = {"disagreements": 0, "step_violations": 0}, [], []
    for _ in range(count):
        A = rng.standard_normal((n, n))
        N = _block_norms(A, unit, gamma)
        eigenvalue = rng.uniform(0.5, 0.95)
        factor = eigenvalue / float(np.abs(np.linalg.eigvals(N)).max())
        A, N, b = A * factor, N * factor, rng.standard_normal(n)
        xs = [np.zeros(n)]
        for _ in range(3000):
            xs.append(act(torch.as_tensor(A @ xs[-1] + b)[None])[0].numpy())
            if np.abs(xs[-1] - xs[-2]).max() < 1e-14:
                break
        eta = [np.array([np.abs(d[unit == k]).max() for k in range(unit[-1] + 1)]) for d in np.diff(xs, axis=0)]
        out["step_violations"] += sum(
            int((new > N @ old * (1 + 1e-9) + 1e-14).any()) for old, new in zip(eta, eta[1:], strict=False)
        )
        sizes = np.array([d.max() for d in eta])
        steps.append(1 + int(np.argmax(sizes < 3e-6)))
        tail = sizes[sizes > 1e-12]
        if tail.size > 20:
            rates.append((tail[-1] / tail[-11]) ** 0.1 / eigenvalue)
        starts = torch.as_tensor(rng.normal(0, 20, (5, n)))
        ends = solve_equilibrium(
            torch.as_tensor(A),
            torch.as_tensor(b).expand(5, n).contiguous(),
            activation,
            solver="picard",
            tol=1e-13,
            max_iter=5000,
            x0=starts,
        ).x.numpy()
        out["disagreements"] += int((np.abs(ends - xs[-1]).max(1) > 1e-9).sum())
    return out | {"rate_over_pf": float(max(rates)), "iterations": float(np.median(steps))}


def _block_norms(A: np.ndarray, unit: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """N(A, gamma) of (2.6) with the infinity norm on every block, written out."""
    k = unit[-1] + 1
    return np.array(
        [
            [np.linalg.norm(gamma[unit == i][:, None] * A[np.ix_(unit == i, unit == j)], np.inf) for j in range(k)]
            for i in range(k)
        ]
    )


def triangular_facts(count: int, seed: int, n: int = 5) -> dict[str, float]:
    """ReLU and triangular A (Remark 3): the criterion diag(A) < 1, the recursion, and how far the PF condition falls
    short.

    Returns:
        "criterion_errors": cases in which diag(A) < 1 and uniqueness disagree; "recursion_error": largest difference
        from the only solution found by enumeration; "pf_misses": well-posed cases that the PF condition refuses;
        "certified": those that `certificate` accepts; "posed": well-posed cases.
    """
    rng = np.random.default_rng(seed)
    out = {"criterion_errors": 0, "recursion_error": 0.0, "pf_misses": 0, "certified": 0, "posed": 0}
    for _ in range(count):
        A, b = np.triu(rng.normal(0, 1.5, (n, n))), rng.normal(0, 1, n)
        A[np.diag_indices(n)] = rng.uniform(-3, 1.4, n)
        posed = bool((np.diag(A) < 1).all())
        out["criterion_errors"] += int(posed != well_posed(A))
        if not posed:
            continue
        out["posed"] += 1
        x = np.zeros(n)
        for i in reversed(range(n)):
            x[i] = max(0.0, b[i] + A[i, i + 1 :] @ x[i + 1 :]) / (1 - A[i, i])
        (only,) = relu_solutions(A, b)
        out["recursion_error"] = max(out["recursion_error"], float(np.abs(x - only).max()))
        out["pf_misses"] += int(perron_frobenius(A) >= 1)
        out["certified"] += int(bool(certificate(A)))
    return out


def block_facts(count: int, seed: int) -> dict[str, float]:
    """Theorems 2 and 3 for continuous maps: the whole against its diagonal blocks, upper and lower, ReLU alone and ReLU
    with linear blocks.

    Returns:
        "upper", "lower", "blockwise": disagreements; "posed": cases where the whole is well-posed; "permuted":
        disagreements after a permutation.
    """
    rng = np.random.default_rng(seed)
    out = dict.fromkeys(("upper", "lower", "blockwise", "posed", "permuted"), 0)
    for _ in range(count):
        first, second = rng.normal(0, 0.6, (3, 3)), rng.normal(0, 0.6, (2, 2))
        A = np.block([[first, rng.normal(0, 3, (3, 2))], [np.zeros((2, 3)), second]])
        parts = well_posed(first) and well_posed(second)
        out["upper"] += int(parts != well_posed(A))
        out["lower"] += int(parts != well_posed(A.T))
        out["posed"] += int(parts)
        linear = np.array([False, False, False, True, True])
        out["blockwise"] += int((well_posed(first) and well_posed(second, linear[3:])) != well_posed(A, linear))
        order = rng.permutation(5)
        out["permuted"] += int(parts != well_posed(A[np.ix_(order, order)]))
    return out


def permutation_counterexample() -> dict[str, int]:
    """diag(0, 2) with phi = (ReLU, zero map), and the swapped matrix with the same phi: solutions for b = (1, 1)."""
    counts = {}
    for name, A in (("given", np.diag([0.0, 2.0])), ("swapped", np.diag([2.0, 0.0]))):
        counts[name] = len(relu_solutions(A[:1, :1], np.ones(1)))  # x_2 = 0 always, and A is diagonal
    return counts


def only_if_counterexample(count: int, seed: int) -> dict[str, list[int]]:
    """Componentwise discontinuous maps for which [[1, 1], [0, 1]] is well-posed and neither diagonal entry is.

    With z = x + c, the equation x = phi(x + c) is h(z) = c for h(z) = z - phi(z). Take for x_2 the map whose h folds
    [2k, 2k + 2) onto [k, k + 1): two solutions, one unit apart, for every b_2. For x_1 take h that sends [k, k + 1) to
    [2k, 2k + 1): one solution if floor(c) is even, none otherwise. Of c = b_1 + x_2 for the two values of x_2, exactly
    one has an even floor: the whole has one solution for every b.

    Returns:
        solutions found by trial for random b: of the "whole", of "x_2", and of "x_1" alone.
    """
    rng, out = np.random.default_rng(seed), {"whole": [], "x_2": [], "x_1": []}
    for b1, b2 in rng.uniform(-50, 50, (count, 2)):
        second = _solutions(_folding, b2)
        out["x_2"].append(len(second))
        out["x_1"].append(len(_solutions(_spreading, b1)))
        out["whole"].append(sum(len(_solutions(_spreading, b1 + x)) for x in second))
    return out


def _solutions(phi: Callable[[np.ndarray], np.ndarray], c: float) -> Float[np.ndarray, " k"]:
    """All x with x = phi(x + c), for |c| < 110 and an h that keeps the fractional part, so that z = x + c has that of
    c.

    Tried are all such z with |z| < 250, and the points half-way between them, which solve nothing.
    """
    z = np.arange(-250, 250, 0.5) + c % 1
    x = z - c
    return x[np.abs(phi(z) - x) < 1e-9]


def _folding(z: np.ndarray) -> np.ndarray:
    """phi(z) = z - h(z), h folding [2k, 2k + 2) onto [k, k + 1)."""
    return z - (np.floor(z / 2) + z % 1)


def _spreading(z: np.ndarray) -> np.ndarray:
    """phi(z) = z - h(z), h sending [k, k + 1) to [2k, 2k + 1)."""
    return z - (2 * np.floor(z) + z % 1)


def share_certified(n: int, scales: Sequence[float], count: int, seed: int) -> dict[str, list[float]]:
    """Share of random A, entries N(0, (scale / sqrt n)^2), that are well-posed for ReLU, and that each sufficient
    condition proves so.

    Returns:
        "well-posed", "certificate" (PF, triangular or Metzler), "PF", "norm": one share a scale.
    """
    rng, out = np.random.default_rng(seed), {name: [] for name in ("well-posed", "certificate", "PF", "norm")}
    for scale in scales:
        matrices = rng.normal(0, scale / np.sqrt(n), (count, n, n))
        out["well-posed"].append(float(np.mean([well_posed(A) for A in matrices])))
        out["certificate"].append(float(np.mean([bool(certificate(A)) for A in matrices])))
        out["PF"].append(float(np.mean([perron_frobenius(A) < 1 for A in matrices])))
        out["norm"].append(float(np.mean(np.linalg.norm(matrices, np.inf, axis=(1, 2)) < 1)))
    return out
