"""Matrices of a trained network written as an implicit model, read off by one pass per state and input."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float

from implicit_models.matrices import scipy_csr
from implicit_models.sim.network.layers import INPUT
from implicit_models.sim.network.states import States, layers_of
from implicit_models.summaries import summary

LARGEST = 20_000  # states and inputs: one pass each


class TeacherMatrices(NamedTuple):
    """z = A x + B u + b, y = C x + D u + d of the network itself: CSR (n, n), (n, p), (q, n), (q, p), and (n,),
    (q,)."""

    A: sp.csr_array
    B: sp.csr_array
    C: sp.csr_array
    D: sp.csr_array
    b: Float[np.ndarray, " n"]
    d: Float[np.ndarray, " q"]

    def __repr__(self) -> str:
        return summary(self, *self._fields)


def teacher_matrices(states: States, *, batch_size: int = 256) -> TeacherMatrices:
    """A, B, C, D, b, d of the network behind the states, in the order of their columns.

    Mathematics: with the activations replaced by given states the network is affine in (x, u); its value at a unit
    vector less its value at the origin is a column. Weight sharing, residual sums and batch norm need no case of their
    own.

    Args:
        states: from `states(network, U)`.
        batch_size: unit vectors a pass, in float64 on a copy of the network.

    Raises:
        ValueError: if the states know no network, or have more than 20,000 states and inputs.

    Source:
        SIM paper, (1) and the example after it.
    """
    from implicit_models.model import ImplicitModel

    network = states.network
    if network is None:
        raise ValueError("these states come from matrices, not from a network: its weights are unknown")
    if "teacher" in states._memo:
        return states._memo["teacher"]
    n, p, q = states.n_states, states.U.shape[1], states.Y.shape[1]
    if isinstance(network, ImplicitModel):
        A, B, C = (scipy_csr(M).astype(np.float64) for M in (network._feedback_matrix(), network.B, network.C))
        D = sp.csr_array((q, p)) if network.D is None else scipy_csr(network.D).astype(np.float64)
        b, d = (
            np.zeros(k) if v is None else v.detach().cpu().double().numpy() for v, k in ((network.b, n), (network.d, q))
        )
        states._memo["teacher"] = TeacherMatrices(A, B, C, D, b, d)
        return states._memo["teacher"]
    if n + p > LARGEST:
        raise ValueError(
            f"the matrices take a pass per state and input, {n} + {p} > {LARGEST}: pass what you need of them"
        )
    layers = layers_of(network, states.input_shape, torch.float64)
    ends = np.cumsum([0, *(b.size for b in layers.blocks[::-1])])  # the last block first
    states_of, outputs_of = [], []

    def evaluate(unit: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        t = torch.from_numpy(unit)
        known = {INPUT: t[:, n:].reshape(-1, *states.input_shape)}
        for k, b in enumerate(layers.blocks):
            place = len(layers.blocks) - 1 - k
            known[k] = t[:, ends[place] : ends[place + 1]].reshape(-1, *b.shape)
        z = [layers.affine(k, known).reshape(len(t), -1) for k in range(len(layers.blocks))]
        return torch.cat(z[::-1], 1), layers.affine(None, known).reshape(len(t), -1)

    with torch.no_grad():
        z0, y0 = evaluate(np.zeros((2, n + p)))  # two rows: a batch of one may take another path through the products
        for at in range(0, n + p, batch_size):
            unit = np.zeros((max(2, min(batch_size, n + p - at)), n + p))
            k = np.arange(min(batch_size, n + p - at))
            unit[k, at + k] = 1.0
            z, y = evaluate(unit)
            states_of.append(sp.csr_array((z - z0[:1]).numpy()[: k.size]))
            outputs_of.append(sp.csr_array((y - y0[:1]).numpy()[: k.size]))
    AB, CD = (sp.csr_array(sp.vstack(parts).T) for parts in (states_of, outputs_of))
    out = TeacherMatrices(AB[:, :n], AB[:, n:], CD[:, :n], CD[:, n:], z0[0].numpy().copy(), y0[0].numpy().copy())
    states._memo["teacher"] = out
    return out
