"""What a user would write in place of an equilibrium layer: a loop in torch, and one that JAX compiles.

Both take Picard steps for the whole batch until the largest change is at most tol times the largest state, forward and
for the adjoint v = phi'(z) (A' v + g), and return x and dL/dA = v' x, dL/db = v.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

Gradients = tuple[Tensor, Tensor, Tensor]
CHECK_EVERY = 3  # steps between two looks at the change, in torch
IN_PLACE = {"relu": torch.relu_, "tanh": torch.tanh_, "sigmoid": torch.sigmoid_}
SLOPES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: (x > 0).to(x.dtype),
    "tanh": lambda x: 1 - x * x,
    "sigmoid": lambda x: x * (1 - x),
}


def torch_loop(A: Tensor, b: Tensor, g: Tensor, activation: str, tol: float, max_iter: int) -> Gradients:
    """(x, dL/dA, dL/db) by Picard steps in place."""
    phi_ = IN_PLACE[activation]

    def iterate(offset: Tensor, M: Tensor, image_: Callable[[Tensor], Tensor]) -> Tensor:
        x, out = torch.zeros_like(offset), torch.empty_like(offset)
        for k in range(1, max_iter + 1):
            image_(torch.addmm(offset, x, M, out=out))
            x, out = out, x
            if k % CHECK_EVERY == 0 and out.sub_(x).abs_().max() <= tol * x.abs().max():
                break
        return x

    with torch.no_grad():
        x = iterate(b, A.t(), phi_)
        slopes = SLOPES[activation](x)
        v = iterate(g, A, lambda z: z.mul_(slopes))
        return x, v.t() @ x, v


@functools.cache
def _compiled(activation: str, max_iter: int):
    import jax
    import jax.numpy as jnp

    phi = {"relu": lambda z: jnp.maximum(z, 0), "tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid}[activation]
    slope = {"relu": lambda x: (x > 0).astype(x.dtype), "tanh": lambda x: 1 - x * x, "sigmoid": lambda x: x * (1 - x)}

    def iterate(step, start, tol):
        def going(state):
            x, last, k = state
            return (k < max_iter) & (jnp.abs(x - last).max() > tol * jnp.abs(x).max())

        return jax.lax.while_loop(going, lambda s: (step(s[0]), s[0], s[2] + 1), (step(start), start, 1))[0]

    @jax.jit
    def solve(A, b, g, tol):
        x = iterate(lambda x: phi(x @ A.T + b), jnp.zeros_like(b), tol)
        d = slope[activation](x)
        v = iterate(lambda v: d * (v @ A + g), jnp.zeros_like(g), tol)
        return x, v.T @ x, v

    return solve


def jax_loop(A: Tensor, b: Tensor, g: Tensor, activation: str, max_iter: int) -> Callable[[float], Gradients]:
    """tol -> (x, dL/dA, dL/db) of the compiled loop, its arrays brought to JAX beforehand."""
    import jax

    jax.config.update("jax_enable_x64", True)
    solve, arrays = _compiled(activation, max_iter), [jax.numpy.asarray(t.numpy()) for t in (A, b, g)]
    return lambda tol: jax.block_until_ready(solve(*arrays, A.numpy().dtype.type(tol)))
