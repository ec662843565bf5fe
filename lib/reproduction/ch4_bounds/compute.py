"""Bounds of trained classifiers side by side, and the statements of section 4.2 of the thesis on random models.

Accuracies are in per cent; widths are relative to what an attack reaches, so that 1 is the least possible.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from data_gen.core.streams import stream
from implicit_models.compose.interconnect import from_network
from implicit_models.robustness.attacks.methods import attack
from implicit_models.robustness.attacks.options import PGD
from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.bounding.box import state_box
from implicit_models.robustness.bounding.options import LP, BoundMethod, Dual
from implicit_models.robustness.bounding.result import Bounds
from implicit_models.robustness.input_sets import Box, SparseBox
from implicit_models.robustness.problem import Problem, from_matrices, problem
from implicit_models.robustness.specification import margins

PROFILES = {
    "quick": {"seeds": (0,), "samples": 60, "programmes": 4, "models": 40, "programme_models": 4},
    "full": {"seeds": (0, 1, 2), "samples": 500, "programmes": 20, "models": 600, "programme_models": 60},
}
METHODS: dict[str, BoundMethod] = {
    "norm": "norm",
    "box": "box",
    "comparison": "comparison",
    "interval": "interval",
    "dual_once": Dual(passes=0, ascent_steps=0),
    "dual": Dual(),
}
PROGRAMMES = {name: LP(name) for name in ("displayed", "theorem7", "triangle")}


def as_problem(network: nn.Module, in_features: int) -> Problem:
    """A trained classifier in float64: an `ImplicitModel` as it is, a torch network through `from_network`."""
    from implicit_models.model import ImplicitModel

    return problem(
        network
        if isinstance(network, ImplicitModel)
        else from_network(network.eval(), in_features, dtype=torch.float64)
    )


def of_states(task: Problem, which: Sequence[int]) -> Problem:
    """The same model with some states as its outputs."""
    return from_matrices(task.A, task.B, np.eye(task.n)[list(which)], None, task.activation, b=task.b)


def margin_bounds(
    task: Problem, U: np.ndarray, y: np.ndarray, eps: float, method: BoundMethod
) -> tuple[np.ndarray, float]:
    """(N,) smallest lower bound of the margins of each label, and CPU seconds a sample."""
    sides = "lower" if isinstance(method, (Dual, LP)) else "both"
    start = time.process_time()
    found = bounds(task, U, eps, method=method, sides=sides, spec=margins(y, task.q))
    return found.lb.min(axis=1), (time.process_time() - start) / len(U)


def certified_curve(
    task: Problem, U: np.ndarray, y: np.ndarray, epsilons: Sequence[float], method: BoundMethod
) -> tuple[list[float], float]:
    """Certified accuracy in per cent for each radius, and CPU seconds a sample at the first one."""
    rates, seconds = [], 0.0
    for k, eps in enumerate(epsilons):
        lowest, each = margin_bounds(task, U, y, eps, method)
        rates.append(100 * float((lowest > 0).mean()))
        seconds = each if k == 0 else seconds
    return rates, seconds


def attacked_curve(
    network: nn.Module, U: np.ndarray, y: np.ndarray, epsilons: Sequence[float], *, steps: int = 30, seed: int = 0
) -> list[float]:
    """Accuracy in per cent that projected gradient steps leave: no certified accuracy can exceed it."""
    right = predicted(network, U) == y
    return [
        100 * float((right & ~attack(network, U, y, eps, PGD(steps=steps, restarts=1), seed=seed).success).mean())
        for eps in epsilons
    ]


def predicted(network: nn.Module, U: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return network(torch.from_numpy(np.asarray(U, np.float32))).argmax(dim=1).numpy()


def attained_widths(task: Problem, U: np.ndarray, eps: float, steps: int = 20) -> np.ndarray:
    """(N, q) largest less smallest value of each output that projected sign steps reach, each from the sample."""
    from implicit_models.model import ImplicitModel

    dense = [M if isinstance(M, np.ndarray) else M.toarray() for M in (task.A, task.B, task.C, task.D)]
    model = ImplicitModel.from_matrices(*dense, task.activation, b=task.b, d=task.d, tol=1e-10, on_failure="ignore")
    centre = torch.from_numpy(np.asarray(U, np.float64))
    widths = np.zeros((len(U), task.q))
    for j in range(task.q):
        ends = []
        for sign in (1.0, -1.0):
            u, best = centre.clone(), None
            for _ in range(steps + 1):
                u.requires_grad_(True)
                value = sign * model(u)[:, j]
                (g,) = torch.autograd.grad(value.sum(), u)
                value, u = value.detach(), u.detach()
                best = value if best is None else torch.maximum(best, value)
                u = centre + (u - centre + 2.5 * eps / steps * g.sign()).clamp(-eps, eps)
            ends.append(best.numpy())
        widths[:, j] = ends[0] + ends[1]
    return widths


def relative_widths(task: Problem, U: np.ndarray, eps: float, attained: np.ndarray, method: BoundMethod) -> np.ndarray:
    """(N, q) width of the bounds of the outputs over the attained one."""
    found = bounds(task, U, eps, method=method)
    return (found.ub - found.lb) / attained


def two_states(
    task: Problem, u: np.ndarray, eps: float, which: Sequence[int], samples: int, seed: int
) -> dict[str, Any]:
    """Rectangles (2, 2) [lower, upper] of two states of one sample by every method, and the states of random corners of
    the box.

    Each method bounds the two states as outputs; "displayed", "theorem7", "triangle" are linear programmes.
    """
    reduced, u = of_states(task, which), np.atleast_2d(u)
    found: dict[str, Any] = {}
    for name, method in (METHODS | PROGRAMMES).items():
        one: Bounds = bounds(reduced, u, eps, method=method)
        found[name] = np.stack([one.lb[0], one.ub[0]]).tolist()
    rng = stream(seed, "corners")
    moved = u + eps * np.sign(rng.standard_normal((samples, u.shape[1])))
    found["reached"] = reduced.equilibrium(moved)[0][:, list(which)].tolist()
    return found


def moving_states(task: Problem, u: np.ndarray, eps: float) -> tuple[int, int]:
    """The two states of a sample with the widest dual bounds: those that change most in the box."""
    found = bounds(of_states(task, range(task.n)), np.atleast_2d(u), eps, method="dual")
    first, second = np.argsort(-(found.ub - found.lb)[0])[:2]
    return int(first), int(second)


def area(rectangle: Sequence[Sequence[float]]) -> float:
    low, high = np.asarray(rectangle)
    return float(np.prod(high - low))


def random_model(rng: np.random.Generator, *, blocks: bool = False, triangular: bool = False) -> Problem:
    """A small well-posed model with ||A||_inf < 1; blocks: softmax and max-pool beside ReLU."""
    n, p, q = (int(rng.integers(*sizes)) for sizes in ((4, 9), (2, 6), (1, 4)))
    A = rng.normal(size=(n, n)) if not triangular else np.triu(rng.normal(size=(n, n)), 1)
    A *= rng.uniform(0.1, 0.95) / max(np.abs(A).sum(axis=1).max(), 1e-12)
    kind: Any = [("softmax", 2), ("max_pool", 2), ("relu", n - 4)][: 3 if n > 4 else 2] if blocks else "relu"
    return from_matrices(
        A,
        rng.normal(size=(n, p)),
        rng.normal(size=(q, n)),
        rng.normal(size=(q, p)),
        kind,
        b=rng.normal(size=n),
        d=rng.normal(size=q),
    )


def norm_facts(count: int, seed: int) -> dict[str, float]:
    """Violations of the norm, box and Lipschitz bounds of section 4.2 by pairs of inputs, and how often one bound
    leaves another."""
    rng = stream(seed, "norm facts")
    found = dict.fromkeys(
        ("norm", "norm_card", "box", "box_card", "blocks", "lipschitz", "box_outside_norm", "iteration"), 0.0
    )
    for k in range(count):
        task = random_model(rng, triangular=k % 3 == 0)
        sigma, u0 = rng.uniform(0, 0.5, task.p), rng.normal(size=(1, task.p))
        sigma[0] = 0.0 if k % 4 == 0 else sigma[0]
        card = int(rng.integers(1, task.p))
        x0 = task.equilibrium(u0)[0][0]
        moves = rng.uniform(-1, 1, (20, task.p)) * sigma
        few = moves * (rng.permuted(np.tile(np.arange(task.p), (20, 1)), axis=1) < card)
        gap = {"": np.abs(task.equilibrium(u0 + moves)[0] - x0), "_card": np.abs(task.equilibrium(u0 + few)[0] - x0)}
        rho = np.abs(task.A).sum(axis=1).max()
        reach = {"": np.abs(task.B) @ sigma, "_card": np.sort(np.abs(task.B) * sigma, axis=1)[:, -card:].sum(axis=1)}
        for tag in ("", "_card"):
            ball = reach[tag].max() / (1 - rho)
            box = np.linalg.solve(np.eye(task.n) - np.abs(task.A), reach[tag])
            found[f"norm{tag}"] += int((gap[tag] > ball + 1e-9).any())
            found[f"box{tag}"] += int((gap[tag] > box + 1e-9).any())
            found["box_outside_norm"] += int((box > ball + 1e-9).any())
            ours = state_box(task, (SparseBox(sigma, card) if tag else Box(sigma)).around(u0)).sigma[0]
            iterated = np.zeros(task.n)
            for _ in range(2000):
                iterated = np.abs(task.A) @ iterated + reach[tag]
            found["iteration"] = max(found["iteration"], float(np.abs(iterated - ours).max() / max(ours.max(), 1e-12)))
        pair = rng.normal(size=(2, task.p))
        lipschitz = np.abs(task.B).sum(1).max() * np.abs(task.C).sum(1).max() / (1 - rho) + np.abs(task.D).sum(1).max()
        y = task.output(task.equilibrium(pair)[0], pair)
        found["lipschitz"] += int(np.abs(y[0] - y[1]).max() > lipschitz * np.abs(pair[0] - pair[1]).max() + 1e-9)
        blocky = random_model(rng, blocks=True)
        u = rng.normal(size=(1, blocky.p))
        width = rng.uniform(0, 0.5, blocky.p)
        centre = blocky.equilibrium(u)[0]
        moved = blocky.equilibrium(u + rng.uniform(-1, 1, (20, blocky.p)) * width)[0]
        found["blocks"] += int((np.abs(moved - centre) > state_box(blocky, Box(width).around(u)).sigma + 1e-9).any())
    return found


def support_facts(count: int, seed: int) -> dict[str, float]:
    """Support functions of the two sets against all corners of the hull of the set, relative error."""
    rng = stream(seed, "support")
    found = {"box": 0.0, "card": 0.0}
    for _ in range(count):
        p = int(rng.integers(2, 7))
        card, sigma, b, u0 = int(rng.integers(1, p)), rng.uniform(0, 1, p), rng.normal(size=p), rng.normal(size=p)
        signs = np.array(np.meshgrid(*[[-1.0, 0.0, 1.0]] * p)).reshape(p, -1).T
        for name, corners in (("box", signs), ("card", signs[(signs != 0).sum(axis=1) <= card])):
            brute = (corners * sigma) @ b
            inputs = SparseBox(sigma, card) if name == "card" else Box(sigma)
            value = inputs.around(u0[None]).support(b[None])[0]
            found[name] = max(found[name], float(abs(brute.max() - value)))
    return found


def programme_facts(count: int, seed: int) -> dict[str, float]:
    """The displayed programme, Theorem 7's and the triangle on random ReLU models, objective c'x over the states.

    "displayed_is_box": largest relative difference of the displayed upper bound and c'(x0 + sigma) for c >= 0;
    "improves_lower": share of models in which it improves a lower bound; "theorem7_below_displayed": share in which the
    true bidual is tighter from above; "outside": states found outside a bound; "triangle_wider": triangle bounds
    outside the interval's; "box_inside_interval": models in which the interval bound leaves the box; "trivial_sum":
    bidual above the sum of separate maxima.
    """
    rng = stream(seed, "programmes")
    keys = (
        "displayed_is_box",
        "improves_lower",
        "theorem7_below_displayed",
        "outside",
        "triangle_wider",
        "interval_outside_box",
        "trivial_sum",
        "card_outside",
    )
    found = dict.fromkeys(keys, 0.0)
    for k in range(count):
        base = random_model(rng, triangular=k % 2 == 0)
        c = rng.uniform(0, 1, base.n)
        task = from_matrices(base.A, base.B, np.stack([c, rng.normal(size=base.n)]), None, "relu", b=base.b)
        u, eps = rng.normal(size=(1, task.p)), float(rng.uniform(0.05, 0.5))
        box = state_box(task, Box(eps).around(u))
        top = float(c @ (box.x0 + box.sigma)[0])
        each = {
            name: bounds(task, u, eps, method=method)
            for name, method in (METHODS | PROGRAMMES).items()
            if name != "dual_once"
        }
        found["displayed_is_box"] = max(
            found["displayed_is_box"], abs(each["displayed"].ub[0, 0] - top) / max(1.0, abs(top))
        )
        slack = 1e-7 * max(1.0, abs(top))
        found["improves_lower"] += (each["displayed"].lb[0, 0] > each["box"].lb[0, 0] + slack) / count
        found["theorem7_below_displayed"] += (each["theorem7"].ub[0, 0] < each["displayed"].ub[0, 0] - slack) / count
        found["trivial_sum"] += int(each["theorem7"].ub[0, 0] > top + slack)
        found["interval_outside_box"] += int(
            (each["interval"].lb < each["box"].lb - slack).any() or (each["interval"].ub > each["box"].ub + slack).any()
        )
        found["triangle_wider"] += int(
            (each["triangle"].lb < each["interval"].lb - slack).any()
            or (each["triangle"].ub > each["interval"].ub + slack).any()
        )
        moved = u + eps * rng.uniform(-1, 1, (40, task.p))
        y = task.output(task.equilibrium(moved)[0], moved)
        found["outside"] += sum(int((y < one.lb - slack).any() or (y > one.ub + slack).any()) for one in each.values())
        card = int(rng.integers(1, task.p))
        few = u + eps * rng.uniform(-1, 1, (40, task.p)) * (
            rng.permuted(np.tile(np.arange(task.p), (40, 1)), axis=1) < card
        )
        y, one = (
            task.output(task.equilibrium(few)[0], few),
            bounds(task, u, SparseBox(eps, card), method=PROGRAMMES["displayed"]),
        )
        found["card_outside"] += int((y < one.lb - slack).any() or (y > one.ub + slack).any())
    return found


def envelope_facts(task: Problem, u: np.ndarray, eps: float) -> dict[str, float]:
    """Mean width of the states' bounds with the envelope (triangle) and without (Theorem 7), over those of the
    interval."""
    reduced = of_states(task, range(min(task.n, 16)))
    width = {}
    for name, method in ({"interval": METHODS["interval"]} | PROGRAMMES).items():
        one = bounds(reduced, u, eps, method=method)
        width[name] = float((one.ub - one.lb).mean())
    return {name: width[name] / width["interval"] for name in PROGRAMMES}
