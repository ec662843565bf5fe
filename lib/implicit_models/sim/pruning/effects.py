"""What an error of a layer's row does to the outputs.

With g = d(s'y) / dp of an output s'y with random signs s, the effect of row i of a layer is

    c_i = E sum over positions of g^2,

and errors e_i of the rows, mean squares over samples and positions, change the outputs by sum_i c_i e_i in mean square,
to first order and as far as they do not correlate between rows and positions.

Source:
    this project; the quadratic form is that of optimal brain damage (LeCun, Denker, Solla 1990), on states instead of
    weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.sim.pruning.layers import Layer
from implicit_models.tracing.nodes import Node

DRAWS, BATCH = 2, 50  # combinations of the outputs a sample; samples a pass


@torch.inference_mode(False)
@torch.enable_grad()
def effects(
    steps: Sequence[Node], output: str, layers: Sequence[Layer], u: Float[Tensor, "m ..."], seed: int = 0
) -> list[Float[np.ndarray, " r"]]:
    """c of every layer (r,), for a network given as its steps.

    Raises:
        ValueError: where the outputs are not finite.
    """
    generator = torch.Generator().manual_seed(seed)
    ends = [layer.end for layer in layers]
    total = [torch.zeros(layer.rows, dtype=torch.float64) for layer in layers]
    for at in range(0, len(u), BATCH):
        values: dict[str, Tensor] = {steps[0].name: u[at : at + BATCH].clone()}
        for step in steps[1:]:
            value = step.run(*(values[name] for name in step.inputs))
            if step.name in ends and not value.requires_grad:
                value = value.clone().requires_grad_()
            values[step.name] = value
        y = values[output]
        if not bool(torch.isfinite(y).all()):
            raise ValueError("effects of rows: the outputs are not finite")
        for draw in range(DRAWS):
            signs = (2 * torch.randint(0, 2, y.shape, generator=generator) - 1).to(y)
            goals = [values[end] for end in ends]
            if not y.requires_grad:
                break
            found = torch.autograd.grad((signs * y).sum(), goals, retain_graph=draw + 1 < DRAWS, allow_unused=True)
            for layer, sums, slope in zip(layers, total, found, strict=True):
                if slope is not None:
                    sums += (layer.by_row(slope).double() ** 2).sum((0, 2))
    return [sums.numpy() / (DRAWS * len(u)) for sums in total]
