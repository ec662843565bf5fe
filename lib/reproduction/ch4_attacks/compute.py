"""Sparse and dense attacks on classifiers of images: the protocols that Table 4.1 leaves open, linear programmes,
transfer.

Rates are per cent of the samples that the network classifies right before the attack: a sample that is wrong already is
no success.

Source: Tsai thesis (2024), section 4.4, Table 4.1, Figures 4.5 to 4.7.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.compose.interconnect import from_network
from implicit_models.robustness.attacks.gradient import logits
from implicit_models.robustness.attacks.methods import Attack, attack
from implicit_models.robustness.attacks.options import JSMA, AttackMethod, LPAttack, Sensitivity
from implicit_models.robustness.attacks.sparse import perturb, scores
from implicit_models.robustness.input_sets import Box, Replace, SparseBox
from implicit_models.robustness.problem import Problem, problem
from implicit_models.robustness.sensitivity import sensitivity_matrix
from reproduction.classifiers import fashion
from reproduction.core.cache import train_or_load
from reproduction.core.scores import accuracy

SHARES = (0.1, 1.0, 10.0, 20.0, 30.0)  # per cent of the inputs, the rows of Table 4.1
CLIP = (0.0, 1.0)
# What happens to the k chosen pixels: uniform draws of a range, or the step to 0 or 1 along the sign of the
# cross-entropy's gradient.
PROTOCOLS: dict[str, Callable[[int], SparseBox | Replace]] = {
    "replace": lambda k: Replace(0.0, 1.0, k),
    "small": lambda k: Replace(0.0, 0.1, k),
    "sign": lambda k: SparseBox(np.inf, k, CLIP),
}
COLUMNS = ("sensitivity", "gradient", "label_gradient", "random")
PROFILES: dict[str, dict[str, Any]] = {
    "quick": {"seeds": (0,), "samples": 400, "programmes": 6, "examples": 150},
    "full": {"seeds": (0, 1, 2), "samples": 1200, "programmes": 36, "examples": 300},
}


def pixels(share: float, p: int) -> int:
    """Number of inputs that a share in per cent stands for, at least one."""
    if not 0 <= share <= 100:
        raise ValueError(f"a share must lie between 0 and 100 per cent, got {share}")
    return max(1, round(share / 100 * p))


def rate(found: Attack, right: np.ndarray) -> float:
    """Successes over the samples that were right before, per cent; NaN without any."""
    return 100 * float(found.success.sum() / right.sum()) if right.any() else float("nan")


def is_right(model: nn.Module, u: Float[np.ndarray, "N p"], y: Int[np.ndarray, " N"]) -> np.ndarray:
    """(N,) which samples the network classifies right, in float64."""
    return logits(model, np.asarray(u, dtype=np.float64)).argmax(axis=1) == y


def classified_right(model: nn.Module, images: Dataset, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` test images that the network classifies right, in float64, and their labels."""
    u, y = images.test[next(iter(images.test))]
    head = slice(None, 4 * count)  # enough of them for an accuracy above a quarter
    chosen = np.flatnonzero(is_right(model, u[head], y[head]))[:count]
    return np.asarray(u[chosen], dtype=np.float64), y[chosen]


def deep_network(images: Dataset, seed: int, profile: str) -> nn.Module:
    """784-64-32-16-10 with the recipe of the Fashion-MNIST classifiers, on any images."""
    if images.meta["name"] == "fashion_mnist":
        return fashion.trained(images, seed, profile, progress=False)["explicit"][0].eval()
    build, recipe = fashion.models(
        seed, profile, in_features=images.u_train.shape[1], n_classes=len(images.meta["classes"])
    )["explicit"]
    model, _ = train_or_load(
        f"{images.meta['name']}-explicit-{profile}",
        build=build,
        data=images,
        recipe=recipe,
        seed=seed,
        key_modules=fashion.KEY_MODULES["explicit"],
        evaluate=lambda m: accuracy(m, images.test)[0],
        progress=False,
    )
    return model.eval()


def as_problem(model: nn.Module) -> Problem:
    """The matrices of an implicit model or of a feed-forward network."""
    return problem(model if hasattr(model, "n_states") else from_network(model))


def share_table(
    model: nn.Module, u: np.ndarray, y: np.ndarray, shares: Sequence[float], seed: int, *, sensitivity: Any = None
) -> dict[str, Any]:
    """Success against the share of pixels, for every protocol and ranking.

    Returns:
        {protocol: {column: rates}}, columns of `COLUMNS`, and "jsma" of the protocol "sign"; "wrong": {column: per cent
        of all samples that are misclassified after "replace", those that were so before among them}.
    """
    u, p = np.asarray(u, dtype=np.float64), u.shape[1]
    right, counts = is_right(model, u, y), [pixels(share, u.shape[1]) for share in shares]
    S = sensitivity_matrix(model).S if sensitivity is None else sensitivity
    table: dict[str, Any] = {protocol: {} for protocol in PROTOCOLS}
    table["wrong"] = {}
    for protocol, of_few in PROTOCOLS.items():
        for column in COLUMNS:
            method = Sensitivity(S) if column == "sensitivity" else column
            found = [attack(model, u, y, of_few(k), method, seed=seed) for k in counts]
            table[protocol][column] = [rate(one, right) for one in found]
            if protocol == "replace":
                table["wrong"][column] = [100 * float(1 - is_right(model, one.U_adv, y).mean()) for one in found]
    # greedy and nested: the pixels that a sample needed tell its success at every k
    found = attack(model, u, y, PROTOCOLS["sign"](min(p, max(counts))), "jsma")
    table["sign"]["jsma"] = [100 * float((found.success & (found.changed <= k)).sum() / right.sum()) for k in counts]
    return table


def transfer_table(
    model: nn.Module,
    surrogate: nn.Module,
    untrained: nn.Module,
    images: Dataset,
    u: np.ndarray,
    y: np.ndarray,
    shares: Sequence[float],
    seed: int,
) -> dict[str, list[float]]:
    """Success of "replace" where the ranking comes from elsewhere: nothing of the network under attack is used but for
    "own" and "own_gradient".

    Returns:
        rates of rankings by S of the network itself ("own"), of the surrogate, of a mean row of the surrogate's S
        ("any_row": no label), of the network before training ("untrained"); by |grad CE| of the network
        ("own_gradient") and of the surrogate ("surrogate_gradient"); by the standard deviation of each pixel over the
        training images ("spread": no network); and at random.
    """
    u, right = np.asarray(u, dtype=np.float64), is_right(model, u, y)
    S, other, before = (sensitivity_matrix(net).S for net in (model, surrogate, untrained))
    rank: dict[str, np.ndarray] = {
        "own": S[y],
        "surrogate": other[y],
        "any_row": np.tile(other.mean(axis=0), (len(u), 1)),
        "untrained": before[y],
        "own_gradient": scores(model, u, y, "gradient"),
        "surrogate_gradient": scores(surrogate, u, y, "gradient"),
        "spread": np.tile(np.std(images.u_train, axis=0), (len(u), 1)),
        "random": scores(model, u, y, "random", seed=seed),
    }
    out: dict[str, list[float]] = {name: [] for name in rank}
    for name, score in rank.items():
        for share in shares:
            moved = perturb(u, score, PROTOCOLS["replace"](pixels(share, u.shape[1])), seed=seed)
            out[name].append(100 * float((right & ~is_right(model, moved, y)).sum() / right.sum()))
    return out


DENSE: dict[str, AttackMethod] = {
    "random": "random",
    "sensitivity": "sensitivity",
    "fgsm": "fgsm",
    "pgd": "pgd",
    "lp_discrepancy": LPAttack("discrepancy", "displayed"),
    "lp_discrepancy_theorem7": LPAttack("discrepancy", "theorem7"),
    "lp_margin_displayed": LPAttack("margin", "displayed"),
    "lp_margin": LPAttack("margin", "triangle"),
}
SPARSE: dict[str, AttackMethod] = {
    "random": "random",
    "sensitivity": "sensitivity",
    "gradient": "gradient",
    "jsma_papernot": JSMA(saliency="papernot", pairs=True),
    "jsma": "jsma",
    "lp_discrepancy": LPAttack("discrepancy", "displayed"),
    "lp_discrepancy_theorem7": LPAttack("discrepancy", "theorem7"),
    "lp_margin": LPAttack("margin", "triangle"),
}


def dense_rates(
    task: Problem, u: np.ndarray, y: np.ndarray, epsilons: Sequence[float], seed: int
) -> dict[str, list[float]]:
    """Success of every attack of `DENSE` on samples that are right, one rate a radius."""
    return {
        name: [100 * float(attack(task, u, y, Box(eps, CLIP), method, seed=seed).success.mean()) for eps in epsilons]
        for name, method in DENSE.items()
    }


def sparse_attacks(
    task: Problem, u: np.ndarray, y: np.ndarray, counts: Sequence[int], seed: int
) -> dict[str, dict[str, list[float]]]:
    """Every attack of `SPARSE`, whose k pixels go to 0 or 1, at every k.

    Returns:
        "rate": attack -> success in per cent; "changed": attack -> median number of pixels that changed; "moved":
        attack -> median of ||x - x0|| / ||x0||, how far the states went, whose square the thesis' programme maximises.
    """
    few, x0 = PROTOCOLS["sign"], task.equilibrium(u)[0]
    size = np.linalg.norm(x0, axis=1)
    out: dict[str, dict[str, list[float]]] = {"rate": {}, "changed": {}, "moved": {}}
    for name, method in SPARSE.items():
        for k in counts:
            found = attack(task, u, y, few(k), method, seed=seed)
            x = task.equilibrium(found.U_adv)[0]
            out["rate"].setdefault(name, []).append(100 * float(found.success.mean()))
            out["changed"].setdefault(name, []).append(float(np.median(found.changed)))
            out["moved"].setdefault(name, []).append(float(np.median(np.linalg.norm(x - x0, axis=1) / size)))
    return out


def seconds_per_thousand(call: Callable[[], Any], samples: int, repeats: int = 3) -> float:
    """Least CPU time of a call over the repeats, for a thousand samples."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return 1000 * min(taken) / samples


def costs(model: nn.Module, u: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """CPU seconds of ranking the inputs of a thousand samples, and of the matrix once.

    Returns:
        "matrix" (once), "sensitivity", "gradient" (rankings), "jsma" (the attack with a tenth of the pixels).
    """
    u, S = np.asarray(u, dtype=np.float64), sensitivity_matrix(model).S
    return {
        "matrix": seconds_per_thousand(lambda: sensitivity_matrix(model), 1000),
        "sensitivity": seconds_per_thousand(lambda: scores(model, u, y, "sensitivity", sensitivity=S), len(u)),
        "gradient": seconds_per_thousand(lambda: scores(model, u, y, "gradient"), len(u)),
        "jsma": seconds_per_thousand(
            lambda: attack(model, u, y, PROTOCOLS["sign"](pixels(10, u.shape[1])), "jsma"), len(u), 1
        ),
    }


def examples(
    model: Any,
    u: np.ndarray,
    y: np.ndarray,
    attacks: Mapping[str, tuple[Any, AttackMethod]],
    wanted: int,
    needed: Sequence[str],
) -> list[dict[str, Any]]:
    """The first samples on which all `needed` attacks succeed, with what each attack makes of them.

    Args:
        attacks: name -> set of inputs and method.

    Returns:
        one entry a sample: "label" and "panels", each with "name", "image" (three decimals), "predicted", and "marked":
        the pixels that a sparse attack changed, none for a dense one.
    """
    u = np.asarray(u, dtype=np.float64)
    found = {name: attack(model, u, y, *one) for name, one in attacks.items()}
    good = np.logical_and.reduce([found[name].success for name in needed])
    network = model if isinstance(model, nn.Module) else None
    out = []
    for i in np.flatnonzero(good)[:wanted]:
        panels = [{"name": "clean", "image": np.round(u[i], 3), "predicted": int(y[i]), "marked": []}]
        for name, one in found.items():
            v = one.U_adv[i]
            marked = np.flatnonzero(v != u[i]) if isinstance(attacks[name][0], (SparseBox, Replace)) else []
            panels.append(
                {
                    "name": name,
                    "image": np.round(v, 3),
                    "predicted": _predicted(model, network, v),
                    "marked": [int(j) for j in marked],
                }
            )
        out.append({"label": int(y[i]), "panels": panels})
    return out


def _predicted(model: Any, network: nn.Module | None, v: np.ndarray) -> int:
    if network is not None:
        return int(logits(network, v[None])[0].argmax())
    return int(model.output(model.equilibrium(v[None])[0], v[None])[0].argmax())
