"""What the notebook of networks records: the facts of `compute`, one value a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reproduction.ch2_networks import compute
from reproduction.core.study import over_seeds

ARCHITECTURES = ("convolutional", "recurrent", "attention", "residual")
WIDTHS = (784, 64, 32, 16, 10)  # of the network whose free entries are counted


def joined(count: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Facts of cascades, products and biases over `count` random models: `cascade_FACT`, `product_FACT`,
    `bias_FACT`."""
    return {
        **over_seeds("cascade", lambda seed: compute.cascade_facts(count, seed), seeds),
        **over_seeds("product", lambda seed: compute.product_facts(count, seed), seeds),
        **over_seeds("bias", lambda seed: compute.bias_facts(count, seed), seeds),
    }


def dense(count: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Facts of dense networks `dense_FACT`, the share of tanh networks that scaling changes, and free entries."""
    sizes = compute.parameter_counts(WIDTHS)
    return {
        **over_seeds("dense", lambda seed: compute.dense_facts(count, seed), seeds),
        "tanh_outputs_changed": [compute.scaling_of_tanh(count, seed) for seed in seeds],
        "parameters_implicit": sizes["implicit"],
        "parameters_network": sizes["network"],
    }


def images(count: int, seeds: Sequence[int], converted: np.ndarray) -> dict[str, Any]:
    """Difference of the converted convolution from the printed matrix, and `pooling_FACT`."""
    return {
        "convolution_error": float(np.abs(converted - compute.printed_convolution()).max()),
        **over_seeds("pooling", lambda seed: compute.pooling_facts(count, seed), seeds),
    }


def layered(count: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Differences of converted networks from the networks: `residual_FACT`, `architecture_NAME`, and the largest."""
    errors = over_seeds("architecture", lambda seed: compute.architecture_errors(count, seed), seeds)
    largest = [max(values) for values in zip(*(errors[f"architecture_{name}"] for name in ARCHITECTURES))]
    return {
        **over_seeds("residual", lambda seed: compute.residual_facts(count, seed), seeds),
        **errors,
        "architecture_largest": largest,
    }


def structure(image_size: int, seed: int) -> tuple[dict[str, float], dict[str, Any]]:
    """The matrix A of a 20-layer residual network: values `structure_FACT`, and what its picture is drawn from."""
    A, blocks, facts = compute.network_structure(image_size, seed)
    values = {f"structure_{key}": value for key, value in facts.items()}
    return values | {"structure_states": A.shape[0]}, content_of(compute.structure_of(A, 200), blocks)


def content_of(tiles: np.ndarray, sizes: Sequence[int]) -> dict[str, Any]:
    """What a results file keeps of the structure: the tiles that are not empty, and the sizes of the blocks."""
    row, column = np.nonzero(tiles)
    share = [float(f"{v:.3g}") for v in tiles[row, column]]
    return {
        "bins": len(tiles),
        "row": row.tolist(),
        "column": column.tolist(),
        "share": share,
        "sizes": [int(s) for s in sizes],
    }
