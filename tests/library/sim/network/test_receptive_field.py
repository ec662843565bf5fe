"""What random stacks of affine steps read, never less than the Jacobian of the stack shows."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from implicit_models.sim.network.layers import INPUT, read_layers

C, SIDE = 4, 5
STEPS = {
    "conv": lambda seed: nn.Conv2d(C, C, 3, padding=1, bias=False),
    "grouped": lambda seed: nn.Conv2d(C, C, 3, padding=2, dilation=2, groups=2),
    "depthwise": lambda seed: nn.Conv2d(C, C, 3, padding=1, groups=C),
    "mirrored": lambda seed: nn.Conv2d(C, C, 3, padding=1, padding_mode=("reflect", "circular")[seed % 2]),
    "average": lambda seed: nn.AvgPool2d(3, 1, 1),
    "norm": lambda seed: nn.BatchNorm2d(C),
    "shift": lambda seed: Apply(lambda x: F.pad(x[:, :, 1:, :-1], (0, 1, 1, 0))),
    "swap": lambda seed: Apply(lambda x: torch.cat([x[:, 2:], x[:, :2]], 1)),
    "halves": lambda seed: Apply(lambda x: torch.cat([x.chunk(2, 1)[0], 2 * x.chunk(2, 1)[0]], 1)),
    "mean": lambda seed: Apply(lambda x: x + x.mean((2, 3), keepdim=True)),
    "turn": lambda seed: Apply(lambda x: x.transpose(2, 3)),
    "linear": lambda seed: nn.Linear(SIDE, SIDE),
    "half": lambda seed: Half(),
    "channels": lambda seed: Apply(lambda x: x.reshape(-1, 2, 2, SIDE, SIDE).transpose(1, 2).flatten(1, 2)),
}


class Apply(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


class Half(nn.Module):
    """A convolution of half of the channels."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(C // 2, C // 2, 1)

    def forward(self, x):
        kept, changed = x.chunk(2, dim=1)
        return torch.cat([kept, self.conv(changed)], dim=1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4), st.integers(0, 99))
def test_no_entry_is_missed(names, seed):
    torch.manual_seed(seed)
    stack = nn.Sequential(*(STEPS[name](seed) for name in names))
    layers = read_layers(nn.Sequential(stack, nn.Tanh(), nn.Flatten()).double().eval(), (C, SIDE, SIDE))
    u = torch.randn(1, C, SIDE, SIDE, dtype=torch.float64)
    J = torch.autograd.functional.jacobian(lambda x: layers.affine(0, {INPUT: x}), u)
    J = (J.reshape(C, SIDE * SIDE, C, SIDE * SIDE) != 0).numpy()
    b = layers.blocks[0]
    read = np.zeros(J.shape, bool)
    for c in range(C):
        channel = np.arange(C) if b.channel[INPUT] is None else b.channel[INPUT][c]
        for w, places in enumerate(b.sources[INPUT]):
            read[c, w][np.ix_(channel[channel >= 0], places[places >= 0])] = True
    assert (read >= J).all() and layers.entries(0) >= J.sum()
    if not {"channels", "halves", "half", "mean", "linear"} & set(names):
        assert layers.entries(0) == read.sum()
