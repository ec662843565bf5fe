"""Transformers over sequences: encoder-decoder with or without the papers' labels in its input, and decoder alone."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from reproduction.models.seeding import seeded
from reproduction.models.sequence import OUTPUTS, Output, arranged, as_sequences
from reproduction.models.transformer import DEFAULT_WIDTH, DepthwiseEncoder, EncoderDecoder

# Stands for the label before the first step.
START = -1


def positional_encoding(length: int, d_model: int) -> Float[Tensor, "T d"]:
    """Sinusoidal positions: entry 2i of position t is sin(t / 10000^(2i/d)), entry 2i + 1 the cosine.

    Args:
        length: T.
        d_model: d.

    Source:
        Vaswani et al. (2017), Attention Is All You Need, section 3.5.
    """
    angle = torch.arange(length).unsqueeze(1) * torch.exp(-math.log(1e4) * torch.arange(0, d_model, 2) / d_model)
    encoding = torch.zeros(length, d_model)
    encoding[:, 0::2] = torch.sin(angle)
    encoding[:, 1::2] = torch.cos(angle)[:, : d_model // 2]
    return encoding


def with_previous_labels(
    u: Float[Tensor | np.ndarray, "N T"], labels: Int[Tensor | np.ndarray, "N T"]
) -> Float[Tensor, "N T 2"]:
    """Each step's input beside the label of the step before, `START` at the first: the papers' right-shifted targets.

    Args:
        u: inputs.
        labels: of every step.

    Source:
        Tsai thesis (2024), section 5.3; Decugis et al. (2024), section 3.1.
    """
    u, labels = torch.as_tensor(u), torch.as_tensor(labels)
    if u.shape != labels.shape or u.ndim != 2:
        raise ValueError(f"inputs {tuple(u.shape)} and labels {tuple(labels.shape)} must both be (N, T)")
    shifted = torch.full_like(labels, START)
    shifted[:, 1:] = labels[:, :-1]
    return torch.stack([u, shifted.to(u.dtype)], dim=2)


def causal_mask(tokens: Float[Tensor, "N T d"]) -> Float[Tensor, "T T"]:
    """0 where a step may look, -inf at later steps."""
    return nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device, dtype=tokens.dtype)


class SequenceTransformer(nn.Module):
    """One encoder and one decoder layer over a sequence of numbers.

    The encoder reads the numbers, each mapped linearly to d_model. What the decoder reads is the point:

        "labels"  the true labels of the steps before, one-hot, as the papers do for the rolling argmax. Copying the
        last of
                  them is right whenever the newest number is not the largest: 1 - 1/T of the time. Unmasked, it sees
                      the labels
                  of later steps too, from which all but the last answer can be read.
        "inputs"  the numbers again: nothing is given away.

    Args:
        d_model, n_heads, width: of both layers. With decoder="labels", labels are below d_model.
        out_features: q of a linear head; None: the decoder's d_model outputs are the scores.
        decoder: see above. With "labels" an input has two channels, as `with_previous_labels` makes them.
        masked: hide later steps from earlier ones, in the encoder and in both attentions of the decoder.
        positions: add sinusoidal positions to what encoder and decoder read. Unmasked and without them, no order of the
            inputs is seen.
        output: layout of the outputs, see `reproduction.models.sequence.RecurrentNetwork`.
        dropout: in training.
        seed: of the initial weights.

    Raises:
        ValueError: an unknown option, or n_heads that do not divide d_model.

    Source:
        Decugis et al. (2024), Table 4 (rolling argmax: d_model = width = 10, two heads, 1,920 parameters; rolling
        average: five heads); Tsai thesis (2024), section 5.3.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        width: int,
        out_features: int | None = None,
        decoder: Literal["labels", "inputs"] = "inputs",
        masked: bool = True,
        positions: bool = True,
        output: Output = "every",
        dropout: float = 0.1,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if decoder not in ("labels", "inputs"):
            raise ValueError(f"decoder must be 'labels' or 'inputs', got {decoder!r}")
        if output not in OUTPUTS:
            raise ValueError(f"output must be one of {', '.join(OUTPUTS)}; got {output!r}")
        self.d_model, self.decoder, self.masked, self.positions, self.output = (
            d_model,
            decoder,
            masked,
            positions,
            output,
        )
        self.core = EncoderDecoder(d_model, n_heads, width=width, expand=1, causal=masked, dropout=dropout, seed=seed)
        with seeded(seed):
            self.head = None if out_features is None else nn.Linear(d_model, out_features)

    def forward(self, sequence: Float[Tensor, "N T"] | Float[Tensor, "N T p"]) -> Tensor:
        sequence = as_sequences(sequence, 2 if self.decoder == "labels" else 1)
        source = self.core.expand(sequence[..., :1])
        target = source if self.decoder == "inputs" else self._one_hot(sequence[..., 1])
        if self.positions:
            encoding = positional_encoding(sequence.shape[1], self.d_model).to(source)
            source, target = source + encoding, target + encoding
        mask = causal_mask(source) if self.masked else None
        y = self.core.transformer(source, target, src_mask=mask, tgt_mask=mask, memory_mask=mask)
        return arranged(y if self.head is None else self.head(y), self.output)

    def _one_hot(self, labels: Float[Tensor, "N T"]) -> Float[Tensor, "N T d"]:
        wrong = (labels < START) | (labels >= self.d_model) | (labels != labels.round())
        if wrong.any():
            raise ValueError(
                f"label {float(labels[wrong][0]):g} is neither a class below {self.d_model} nor START = {START}"
            )
        # START has no entry equal to it, so it becomes the zero vector.
        return (labels.unsqueeze(2) == torch.arange(self.d_model, device=labels.device)).to(labels.dtype)

    def extra_repr(self) -> str:
        return f"decoder={self.decoder!r}, masked={self.masked}, positions={self.positions}, output={self.output!r}"


@torch.no_grad()
def decoded(model: SequenceTransformer, u: Float[Tensor, "N T"]) -> Int[Tensor, "N T"]:
    """Labels of every step when the decoder is fed its own answers instead of the true ones, in evaluation mode.

    Steps still to come hold `START`.

    Args:
        model: with decoder="labels" and output="every_class".
        u: inputs.

    Raises:
        ValueError: a model with another decoder or output.
    """
    if model.decoder != "labels" or model.output != "every_class":
        raise ValueError(
            f"decoded wants decoder='labels' and output='every_class', got {model.decoder!r} and {model.output!r}"
        )
    training = model.training
    model.eval()
    try:
        u = torch.as_tensor(u)
        labels = torch.full(u.shape, START, dtype=torch.int64, device=u.device)
        for t in range(u.shape[1]):
            labels[:, t] = model(with_previous_labels(u, labels))[:, :, t].argmax(dim=1)
        return labels
    finally:
        model.train(training)


class DecoderOnly(nn.Module):
    """A linear map to d_model with sinusoidal positions, one masked self-attention layer, and a linear head.

    Args:
        d_model, n_heads, width: of the layer.
        out_features: q.
        output: layout of the outputs, see `reproduction.models.sequence.RecurrentNetwork`.
        dropout: in training.
        seed: of the initial weights.

    Raises:
        ValueError: an unknown output, or n_heads that do not divide d_model.

    Source:
        Decugis et al. (2024), Table 4 (spiky series: d_model = 10, two heads, width 2048); Ganesh (2023), Table 1
        (43,529 parameters).
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        out_features: int = 1,
        *,
        width: int = DEFAULT_WIDTH,
        output: Output = "last",
        dropout: float = 0.1,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if output not in OUTPUTS:
            raise ValueError(f"output must be one of {', '.join(OUTPUTS)}; got {output!r}")
        self.d_model, self.output = d_model, output
        self.layer = DepthwiseEncoder(d_model, n_heads=n_heads, width=width, dropout=dropout, seed=seed).encoder
        with seeded(seed):
            self.expand = nn.Linear(1, d_model)
            self.head = nn.Linear(d_model, out_features)

    def forward(self, sequence: Float[Tensor, "N T"] | Float[Tensor, "N T 1"]) -> Tensor:
        tokens = self.expand(as_sequences(sequence))
        tokens = tokens + positional_encoding(tokens.shape[1], self.d_model).to(tokens)
        hidden = self.layer(tokens, src_mask=causal_mask(tokens), is_causal=True)
        if self.output == "last":
            return self.head(hidden[:, -1])
        return arranged(self.head(hidden), self.output)

    def extra_repr(self) -> str:
        return f"output={self.output!r}"
