"""The papers' Transformers on vectors: one token a vector, one token an entry, encoder-decoder."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from reproduction.models.seeding import seeded

# PyTorch's default width of the feed-forward block; it alone explains the papers' parameter counts.
DEFAULT_WIDTH = 2048


class DepthwiseEncoder(nn.Module):
    """One encoder layer that sees the whole vector as a single token, d_model = p.

    Attention over one token is the identity on values, so the layer is a residual MLP with layer
    normalisation: the output's scale is bounded whatever the input's.

    Args:
        in_features: p, the model's width.
        out_features: q of a linear head; None returns the layer's output, q = p.
        n_heads: a divisor of p.
        width: of the feed-forward block.
        dropout: in training (Decugis et al. (2024), A.1: 0.1).
        seed: of the initial weights.

    Raises:
        ValueError: n_heads does not divide p.

    Source:
        Ganesh (2023), Table 1: identity (p = 10, no head, 43,498 parameters) and "depth-wise encoder" (p = 50, q = 1,
        217,349).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int | None = None,
        *,
        n_heads: int = 1,
        width: int = DEFAULT_WIDTH,
        dropout: float = 0.1,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        with seeded(seed):
            self.encoder = _encoder_layer(in_features, n_heads, width, dropout)
            self.head = None if out_features is None else nn.Linear(in_features, out_features)

    def forward(self, u: Float[Tensor, "N p"]) -> Float[Tensor, "N q"]:
        token = self.encoder(u.unsqueeze(1)).squeeze(1)
        return token if self.head is None else self.head(token)


class SequentialEncoder(nn.Module):
    """One encoder layer that sees each entry as a token of width one, and a linear head over entries.

    With d_model = 1 the last layer normalisation acts on a single number: (z - mean) / deviation is
    0 for every z, so the output is the same for every input. The published model could therefore
    learn no more than the mean of the targets. `norm_first` normalises before each block instead,
    and leaves y linear in u.

    Args:
        in_features: p, the number of tokens.
        out_features: q of the head.
        width: of the feed-forward block.
        dropout: in training.
        norm_first: normalise before the blocks rather than after them.
        seed: of the initial weights.

    Source:
        Ganesh (2023), Table 1: "sequential encoder" (6,208 parameters; its ten heads cannot divide d_model = 1, one is
        used).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int = 1,
        *,
        width: int = DEFAULT_WIDTH,
        dropout: float = 0.1,
        norm_first: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        with seeded(seed):
            self.encoder = _encoder_layer(1, 1, width, dropout, norm_first)
            self.head = nn.Linear(in_features, out_features)

    def forward(self, u: Float[Tensor, "N p"]) -> Float[Tensor, "N q"]:
        return self.head(self.encoder(u.unsqueeze(2)).squeeze(2))


class EncoderDecoder(nn.Module):
    """One encoder and one decoder layer over a sequence of vectors, both reading the input.

    Args:
        d_model: width of a token.
        n_heads: a divisor of d_model.
        width: of the feed-forward blocks.
        expand: input width of a linear map to d_model; None where tokens already have that width.
        causal: hide later tokens from earlier ones.
        dropout: in training.
        seed: of the initial weights.

    Raises:
        ValueError: n_heads does not divide d_model.

    Source:
        Ganesh (2023), Table 1: "decoder" of the rolling argmax (d_model = 10, width 10, expand = 1, 1,920 parameters);
        Decugis et al. (2024), Table 4: identity, 10-10-5, five heads.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        width: int = DEFAULT_WIDTH,
        expand: int | None = None,
        causal: bool = False,
        dropout: float = 0.1,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        _check_heads(d_model, n_heads)
        self.causal = causal
        with seeded(seed):
            self.expand = None if expand is None else nn.Linear(expand, d_model)
            # PyTorch warns about nested tensors, which are not used here, unless its encoder is given.
            encoder = nn.TransformerEncoder(
                _encoder_layer(d_model, n_heads, width, dropout), 1, nn.LayerNorm(d_model), enable_nested_tensor=False
            )
            self.transformer = nn.Transformer(
                d_model, n_heads, 1, 1, width, dropout, custom_encoder=encoder, batch_first=True
            )

    def forward(self, sequence: Float[Tensor, "N T p"]) -> Float[Tensor, "N T d_model"]:
        tokens = sequence if self.expand is None else self.expand(sequence)
        mask = None
        if self.causal:
            mask = nn.Transformer.generate_square_subsequent_mask(
                tokens.shape[1], device=tokens.device, dtype=tokens.dtype
            )
        return self.transformer(tokens, tokens, src_mask=mask, tgt_mask=mask, memory_mask=mask)


def _encoder_layer(d_model: int, n_heads: int, width: int, dropout: float, norm_first: bool = False) -> nn.Module:
    _check_heads(d_model, n_heads)
    return nn.TransformerEncoderLayer(d_model, n_heads, width, dropout, batch_first=True, norm_first=norm_first)


def _check_heads(d_model: int, n_heads: int) -> None:
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model = {d_model}, got {n_heads}")
