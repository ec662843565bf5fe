"""What the notebook of well-posedness records: the facts of `compute` and `rescaling`, one value a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from implicit_models.activations import resolve_activation
from reproduction.ch2_wellposedness import compute, rescaling
from reproduction.core.study import over_seeds

SLOPES, OFFSETS = (-3.0, 0.5, 0.99, 1.01, 2.0), (-1.0, 1.0)
MAPS = ("relu", "leaky_relu(0.3)", "tanh", "sigmoid")
SCALES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)  # of random matrices, largest norm


def scalar(counts: np.ndarray) -> dict[str, Any]:
    """Solutions of the scalar equation by slope and sign of b, and what Picard's iteration does at slope 1.

    Args:
        counts: (slopes, offsets) of `SLOPES` and `OFFSETS`.
    """
    steep, flat = np.array(SLOPES) > 1, np.array(SLOPES) < 1
    states = rescaling.picard_at_norm_one(1000)
    return {
        "solutions_steep_negative_b": list(counts[steep, 0]),
        "solutions_steep_positive_b": list(counts[steep, 1]),
        "solutions_flat": list(counts[flat].ravel()),
        "picard_growth_at_norm_one": float(states[-1] - states[-2]),
        "picard_state_at_norm_one": float(states[-1]),
        "solutions_at_norm_one": float(compute.scalar_counts([1.0], [1.0])[0, 0]),
    }


def cone(count: int, seeds: Sequence[int]) -> dict[str, list[int]]:
    """Map -> pairs of arguments that move apart, one number a seed."""
    return {name: [compute.non_expansive_violations(name, 50 * count, seed) for seed in seeds] for name in MAPS}


def maps(violations: dict[str, list[int]], count: int, seeds: Sequence[int]) -> dict[str, Any]:
    """All violations of `cone`, the constant of softmax `softmax_FACT`, and ReLU's states of -1 and -2."""
    relu = resolve_activation("relu", 2)(torch.tensor([[-1.0, -2.0]]))[0]
    return {
        "cone_violations": int(sum(map(sum, violations.values()))),
        **over_seeds("softmax", lambda seed: compute.softmax_constant(count, seed), seeds),
        "relu_states_of_minus_one_and_minus_two": relu.tolist(),
    }


def picard(count: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Facts of Picard's iteration `picard_FACT`, of ReLU alone, and solutions of strictly triangular sign models."""
    stiff = [compute.picard_facts(count, seed, blocks=[("relu", 1)] * 8) for seed in seeds]
    signs = [compute.strictly_triangular_counts(count, seed) for seed in seeds]
    return {
        **over_seeds("picard", lambda seed: compute.picard_facts(count, seed), seeds),
        "relu_picard_iterations": [one["iterations"] for one in stiff],
        "relu_rate_over_pf": [one["rate_over_pf"] for one in stiff],
        "relu_picard_failures": [one["disagreements"] + one["step_violations"] for one in stiff],
        "strictly_triangular_solutions_min": [min(one) for one in signs],
        "strictly_triangular_solutions_max": [max(one) for one in signs],
    }


def triangular(count: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Facts of triangular, block-triangular and composed models, and shares of the posed ones that the PF condition
    refuses and that the library's certificate accepts."""
    found = over_seeds("triangular", lambda seed: compute.triangular_facts(count, seed), seeds)
    posed = found["triangular_posed"]
    return {
        **found,
        **over_seeds("block", lambda seed: compute.block_facts(count, seed), seeds),
        **over_seeds("composition", lambda seed: rescaling.composition_facts(count, seed), seeds),
        "pf_refusal_share": [a / b for a, b in zip(found["triangular_pf_misses"], posed)],
        "library_certificate_share": [a / b for a, b in zip(found["triangular_certified"], posed)],
    }


def counterexamples(count: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Numbers of solutions of the discontinuous counterexample, whole and parts, and of the permuted map."""
    gap = [compute.only_if_counterexample(count, seed) for seed in seeds]
    permuted = compute.permutation_counterexample()
    jumps = {part: sorted({value for one in gap for value in one[part]}) for part in ("whole", "x_2", "x_1")}
    return {f"jump_solutions_{part}": values for part, values in jumps.items()} | {
        "permutation_given": permuted["given"],
        "permutation_swapped": permuted["swapped"],
    }


def shares(n: int, count: int, seeds: Sequence[int]) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Shares of random matrices that each condition accepts: values at the second scale, one a seed, and the mean
    over seeds at all scales, by condition."""
    found = [compute.share_certified(n, SCALES, count, seed) for seed in seeds]
    values: dict[str, Any] = {"share_scales": SCALES, "share_states": n}
    values |= {f"share_at_half_{name}": [one[name][1] for one in found] for name in found[0]}
    values["certificate_minus_pf_at_half"] = [one["certificate"][1] - one["PF"][1] for one in found]
    return values, {name: np.mean([one[name] for one in found], axis=0).tolist() for name in found[0]}


def rescaled(count: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Facts of rescaling: `infimum_FACT`, `scaling_FACT`, `twin_MAP_FACT`, and the two forms of the example."""
    scaling = over_seeds("scaling", lambda seed: rescaling.printed_scaling(count, seed), seeds)
    twins: dict[str, Any] = {}
    for name in ("relu", "tanh"):

        def outputs(seed: int, name: str = name) -> dict[str, float]:
            return rescaling.rescaled_outputs(name, min(count, 40), seed)

        twins |= over_seeds(f"twin_{name}", outputs, seeds)
    return {
        **over_seeds("infimum", lambda seed: rescaling.collatz_wielandt(count, seed), seeds),
        **scaling,
        **twins,
        **{f"scaling_example_{name}_value": scaling[f"scaling_example_{name}"][0] for name in ("printed", "inverse")},
    }


def printed_forms(seeds: Sequence[int]) -> dict[str, Any]:
    """Facts of the printed forms: `network_form_FACT` and `max_pool_FACT`."""
    return {
        **over_seeds("network_form", rescaling.printed_network_form, seeds),
        **over_seeds("max_pool", rescaling.printed_max_pool, seeds),
    }
