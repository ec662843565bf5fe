"""Models, peers and the fuzz test of `benchmarks.robustness`.

auto_LiRPA 0.3 asks for a torch older than 1.13 and does not import with a present one: it is measured where it is
installed without its requirements (`pip install --no-deps auto_LiRPA appdirs`), with the four names that torch and
NumPy have moved put back for it.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import torch
from torch import nn

from implicit_models.robustness.bounding.options import LP
from implicit_models.robustness.input_sets import Box

TOLERANCE = 1e-9  # of a sample, for the rounding of its own state


def images(n: int) -> tuple[Any, nn.Module, nn.Module, np.ndarray, np.ndarray]:
    """(data, implicit classifier n = 64, network 784-64-32-16-10, U, y): the trained classifiers of the full profile
    and n test images.
    """
    from reproduction.classifiers import fashion

    data = fashion.data("full")
    found = fashion.trained(data, 0, "full", progress=False)
    U, y = data.test[0]
    return data, found["implicit"][0], found["explicit"][0], np.asarray(U[:n], np.float64), np.asarray(y[:n])


def weights(network: nn.Module) -> list[tuple[np.ndarray, np.ndarray]]:
    layers = [m for m in network.modules() if isinstance(m, nn.Linear)]
    return [(m.weight.detach().double().numpy(), m.bias.detach().double().numpy()) for m in layers]


def interval_arithmetic(
    layers: list[tuple[np.ndarray, np.ndarray]], U: np.ndarray, eps: float
) -> tuple[np.ndarray, np.ndarray]:
    """Plain interval propagation of a ReLU network: bounds of the logits."""
    low, high = U - eps, U + eps
    for k, (W, b) in enumerate(layers):
        plus, minus = np.maximum(W, 0), np.minimum(W, 0)
        low, high = low @ plus.T + high @ minus.T + b, high @ plus.T + low @ minus.T + b
        if k < len(layers) - 1:
            low, high = np.maximum(low, 0), np.maximum(high, 0)
    return low, high


def auto_lirpa(
    layers: list[tuple[np.ndarray, np.ndarray]], U: np.ndarray, eps: float, method: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """Bounds of the logits by auto_LiRPA in double precision; None where it is not installed."""
    moved = types.ModuleType("numpy.lib.arraysetops")
    moved.isin = np.isin
    sys.modules.setdefault("numpy.lib.arraysetops", moved)
    import torch.onnx.symbolic_helper as symbolic

    if not hasattr(symbolic, "_set_opset_version"):
        from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

        symbolic._set_opset_version = lambda version: setattr(GLOBALS, "export_onnx_opset_version", version)
    if not hasattr(torch._C.Node, "__getitem__"):
        torch._C.Node.__getitem__ = lambda node, name: getattr(node, node.kindOf(name))(name)
    try:
        from auto_LiRPA import BoundedModule, BoundedTensor
        from auto_LiRPA.perturbations import PerturbationLpNorm
    except ImportError:
        return None
    parts: list[nn.Module] = []
    for W, b in layers:
        linear = nn.Linear(W.shape[1], W.shape[0]).double()
        linear.weight.data, linear.bias.data = torch.from_numpy(W), torch.from_numpy(b)
        parts += [linear, nn.ReLU()]
    network, u = nn.Sequential(*parts[:-1]), torch.from_numpy(U)
    bounded = BoundedModule(network, torch.zeros_like(u[:1]))
    low, high = bounded.compute_bounds(x=(BoundedTensor(u, PerturbationLpNorm(norm=np.inf, eps=eps)),), method=method)
    return low.detach().numpy(), high.detach().numpy()


def random_problem(rng: np.random.Generator, kind: str) -> Any:
    """A small well-posed model: "cyclic" (Perron-Frobenius), "triangular", "metzler" (A_ii below -1), "smooth" or
    "smooth loops" (tanh and sigmoid, A_ii down to -40).
    """
    from implicit_models.robustness.problem import from_matrices

    n, p, q = (int(rng.integers(1, m)) for m in (10, 6, 4))
    A = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.7)
    activation: Any = "relu" if rng.random() < 0.7 else "leaky_relu(0.2)"
    if kind == "triangular":
        A = np.triu(A, 1)
    else:
        radius = np.abs(np.linalg.eigvals(np.abs(A))).max()
        A *= rng.uniform(0.05, 0.97) / max(radius, 1e-3)
    if kind == "metzler":
        A *= 0.6
        A[np.diag_indices(n)] = rng.uniform(-4, 0.2, n)
    if kind == "smooth loops":  # inputs up to the middle of a loop's range, where its scalar equation is hardest
        A *= 0.6
        A[np.diag_indices(n)] = -np.exp(rng.uniform(-3, np.log(40), n))
        activation = [(str(rng.choice(["tanh", "sigmoid"])), 1) for _ in range(n)]
        return from_matrices(
            A, rng.normal(size=(n, p)), rng.normal(size=(q, n)), None, activation, b=np.diag(A) * rng.uniform(-1, 1, n)
        )
    if kind == "smooth":
        activation = [(str(rng.choice(["tanh", "sigmoid", "relu"])), 1) for _ in range(n)]
    return from_matrices(
        A,
        rng.normal(size=(n, p)),
        rng.normal(size=(q, n)),
        rng.normal(size=(q, p)) * (rng.random() < 0.5),
        activation,
        b=rng.normal(size=n),
        d=rng.normal(size=q),
    )


KINDS = ("cyclic", "triangular", "metzler", "smooth", "smooth loops")


def worst_inputs(found: Any, inputs_centre: np.ndarray, sigma: np.ndarray, task: Any) -> np.ndarray:
    """The corners that the multipliers of the dual bounds point to: what an attack would try first."""
    corners = []
    for sign, rows in ((-1, found.cert.lam_low), (1, found.cert.lam_high)):
        lam = np.nan_to_num(rows[0])
        corners.append(
            inputs_centre
            + sign * sigma * np.sign((task.D if sign < 0 else -task.D) + lam @ task.B) * (1 if sign < 0 else -1)
        )
    return np.concatenate(corners)


def fuzz(n_models: int, n_samples: int, seed: int = 0) -> dict[str, int]:
    """Counts: pairs of a model and an input, and those that lie outside a bound, or bounds outside those that should
    hold them.
    """
    from implicit_models.robustness.bound_methods import bounds
    from implicit_models.robustness.checking.checker import check

    rng = np.random.default_rng(seed)
    count = dict.fromkeys(
        (
            "models",
            "pairs",
            "sample_outside",
            "dual_outside_interval",
            "interval_outside_box",
            "triangle_outside_interval",
            "dual_beyond_triangle",
            "displayed_outside_box",
            "theorem7_outside_displayed",
            "unproved",
        ),
        0,
    )
    for k in range(n_models):
        kind = KINDS[k % len(KINDS)]
        task = random_problem(rng, kind)
        while not _certified(task):
            task = random_problem(rng, kind)
        p = task.p
        centre, sigma = rng.normal(size=(1, p)), rng.random(p) * (rng.random(p) < 0.9) * np.exp(rng.normal())
        box = "box" if task.certificate.kind == "pf" else "metzler"
        found = {name: bounds(task, centre, Box(sigma), method=name) for name in (box, "interval", "dual")}
        found["box"] = found.pop(box)
        if task.activation.piecewise_linear:
            found["triangle"] = bounds(task, centre, Box(sigma), method="lp")
            for relaxation in ("displayed", "theorem7"):
                found[relaxation] = bounds(task, centre, Box(sigma), method=LP(relaxation=relaxation))
        U = centre + sigma * rng.uniform(-1, 1, (n_samples, p))
        corners = rng.random(n_samples) < 0.5
        U[corners] = centre + sigma * np.sign(rng.normal(size=(int(corners.sum()), p)))
        attacks = worst_inputs(found["dual"], centre, sigma, task)
        U[: len(attacks)] = attacks[:n_samples]
        x, error = task.equilibrium(U)
        y = task.output(x, U)
        slack = TOLERANCE * (1 + np.abs(y)) + error @ np.abs(task.C).T
        count["models"] += 1
        count["pairs"] += n_samples
        for bound in found.values():
            inside = (y >= bound.lb - slack) & (y <= bound.ub + slack)
            count["sample_outside"] += int((~inside.all(axis=1)).sum())
        for inner, outer, name in (
            ("dual", "interval", "dual_outside_interval"),
            ("interval", "box", "interval_outside_box"),
            ("triangle", "interval", "triangle_outside_interval"),
            ("displayed", "box", "displayed_outside_box"),
            ("theorem7", "displayed", "theorem7_outside_displayed"),
            ("triangle", "dual", "dual_beyond_triangle"),
        ):
            if inner in found and outer in found:
                a, b = found[inner], found[outer]
                room = 1e-7 * (1 + np.abs(b.ub - b.lb) + np.abs(b.ub) + np.abs(b.lb))
                count[name] += int(((a.lb < b.lb - room) | (a.ub > b.ub + room)).sum())
        count["unproved"] += sum(not check(found[name].cert) for name in ("box", "interval", "dual"))
    return count


def _certified(task: Any) -> bool:
    from implicit_models.robustness.problem import NotCertified

    try:
        return bool(task.certificate)
    except NotCertified:
        return False
