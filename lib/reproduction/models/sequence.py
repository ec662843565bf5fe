"""Recurrent networks with a linear head over sequences: the LSTM and the implicitRNN of the papers' tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.recurrent import ImplicitRNN
from reproduction.models.seeding import seeded

Output = Literal["last", "every", "every_class"]
OUTPUTS = ("last", "every", "every_class")


def as_sequences(sequences: Tensor | Sequence[Tensor], input_size: int = 1) -> Float[Tensor, "N T p"]:
    """Sequences of one length as one tensor (N, T, p).

    Args:
        sequences: (N, T, p); or (N, T) where p = 1; or a list of N tensors (T, p) or (T,).
        input_size: p.

    Raises:
        ValueError: lengths that differ, naming the first sequence that does; no step at all; another number of inputs a
            step.
        TypeError: neither a tensor nor a list of tensors.
    """
    if isinstance(sequences, (list, tuple)) and sequences and all(isinstance(item, Tensor) for item in sequences):
        lengths = [len(item) for item in sequences]
        for index, length in enumerate(lengths):
            if length != lengths[0]:
                raise ValueError(
                    f"sequence {index} has {length} steps, sequence 0 has {lengths[0]}: train on sequences of one"
                    " length, or group them by length"
                )
        sequences = torch.stack(list(sequences))
    if not isinstance(sequences, Tensor):
        raise TypeError(f"sequences must be a tensor (N, T, p) or a list of tensors, got {type(sequences).__name__}")
    if sequences.ndim == 2 and input_size == 1:
        sequences = sequences.unsqueeze(2)
    if sequences.ndim != 3 or sequences.shape[2] != input_size:
        raise ValueError(f"sequences must have shape (N, T, {input_size}), got {tuple(sequences.shape)}")
    if not sequences.shape[1]:
        raise ValueError(f"sequences of shape {tuple(sequences.shape)} have no step")
    return sequences


class RecurrentNetwork(nn.Module):
    """A recurrent core and a linear head: y_t = W h_t (+ b), at the last step or at every one.

    Args:
        core: module S (N, T, p) -> (H (N, T, hidden), anything).
        input_size, hidden_size, out_features: p, hidden, q.
        output: "last" gives (N, q); "every" (N, T, q), and (N, T) for q = 1; "every_class" (N, q, T), the layout in
            which cross-entropy takes labels (N, T).
        head_bias: whether the head has b.
        seed: of the head's initial weights.

    Raises:
        ValueError: an unknown output.
    """

    def __init__(
        self,
        core: nn.Module,
        input_size: int,
        hidden_size: int,
        out_features: int,
        *,
        output: Output,
        head_bias: bool,
        seed: int | None,
    ) -> None:
        super().__init__()
        if output not in OUTPUTS:
            raise ValueError(f"output must be one of {', '.join(OUTPUTS)}; got {output!r}")
        self.input_size, self.output = input_size, output
        self.core = core
        with seeded(seed):
            self.head = nn.Linear(hidden_size, out_features, bias=head_bias)

    def forward(self, sequences: Tensor | Sequence[Tensor]) -> Tensor:
        hidden = self.core(as_sequences(sequences, self.input_size))[0]
        if self.output == "last":
            return self.head(hidden[:, -1])
        return arranged(self.head(hidden), self.output)


def arranged(y: Float[Tensor, "N T q"], output: Output) -> Tensor:
    """Outputs of every step in the layout that `RecurrentNetwork` describes."""
    if output == "last":
        return y[:, -1]
    if output == "every_class":
        return y.transpose(1, 2)
    return y.squeeze(2) if y.shape[2] == 1 else y


class SequenceLSTM(RecurrentNetwork):
    """LSTM with one layer and a linear head.

    "1-18-18-1" of the papers is one input, 18 hidden units, one output.

    Args:
        hidden_size, out_features: hidden units, q.
        input_size: p.
        output, head_bias: see `RecurrentNetwork`.
        seed: of the initial weights.

    Source:
        Decugis et al. (2024), Table 4; Ganesh (2023), Table 1.
    """

    def __init__(
        self,
        hidden_size: int,
        out_features: int,
        *,
        input_size: int = 1,
        output: Output = "last",
        head_bias: bool = True,
        seed: int | None = None,
    ) -> None:
        with seeded(seed):
            core = nn.LSTM(input_size, hidden_size, batch_first=True)
        super().__init__(core, input_size, hidden_size, out_features, output=output, head_bias=head_bias, seed=seed)


class SequenceImplicitRNN(RecurrentNetwork):
    """ImplicitRNN with a linear head.

    u_t = (s_t, h_{t-1}), x_t = phi(A x_t + B u_t), h_t = C x_t + D u_t, h_0 = 0. Without a bias in the head the whole
    network is
    positively homogeneous: y(t s) = t y(s) for t >= 0.

    Args:
        n_states, hidden_size, out_features: n, hidden, q. "A 21 x 21, B 21 x 23, C 22 x 21, head 22-10" of the papers
            is (21, 22, 10).
        input_size: p.
        output, head_bias: see `RecurrentNetwork`.
        seed: of the initial weights.
        settings: of `implicit_models.recurrent.ImplicitRNN` (kappa, skip, bias, feedback, tol, ...).

    Source:
        Decugis et al. (2024), section 2.1 and Table 4; Ganesh (2023), Table 1.
    """

    def __init__(
        self,
        n_states: int,
        hidden_size: int,
        out_features: int,
        *,
        input_size: int = 1,
        output: Output = "last",
        head_bias: bool = True,
        seed: int | None = None,
        **settings: Any,
    ) -> None:
        core = ImplicitRNN(input_size, hidden_size, n_states, seed=seed, **settings)
        super().__init__(core, input_size, hidden_size, out_features, output=output, head_bias=head_bias, seed=seed)
