"""ResNet-20 for 32 x 32 images with parameter-free shortcuts, and its published CIFAR-10 weights.

Three stages of three blocks with 16, 32 and 64 channels; where the size halves the shortcut takes every second pixel
and pads the new channels with zeros, half on each side (option A). 19 ReLU layers of 188,416 states in all, 269,722
parameters.

Source: He et al. (2016), section 4.2; Idelbayev (2018), pytorch_resnet_cifar10, for names and weights.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """relu(x_s + conv2(relu(conv1(x)))), batch norm after each convolution, x_s the shortcut."""

    def __init__(self, channels: int, out: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.side = (out - channels) // 2

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        if self.side:
            x = pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.side, self.side))
        return self.relu2(y + x)


class ResNet20(nn.Module):
    """Images (N, 3, 32, 32) in [0, 1] -> logits (N, 10); the normalisation by ImageNet's mean and deviation is part of
    it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).reshape(3, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(DEVIATION).reshape(3, 1, 1), persistent=False)
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        widths = (16, 16, 32, 64)
        for stage in (1, 2, 3):
            inside, out = widths[stage - 1], widths[stage]
            first = Block(inside, out, 1 if stage == 1 else 2)
            setattr(self, f"layer{stage}", nn.Sequential(first, *(Block(out, out, 1) for _ in range(2))))
        self.linear = nn.Linear(64, 10)

    def forward(self, images: Float[Tensor, "N 3 h w"]) -> Float[Tensor, "N q"]:
        x = self.relu(self.bn1(self.conv1((images - self.mean) / self.deviation)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


def published() -> ResNet20:
    """The network with its published weights, in evaluation mode.

    Raises:
        DatasetUnavailable where no source has them.
    """
    from data_gen.images.cifar import resnet20_weights

    network = ResNet20()
    found = {name: torch.from_numpy(np.array(array)) for name, array in resnet20_weights()[0].items()}
    missing, unexpected = network.load_state_dict(found, strict=False)
    wrong = [name for name in (*missing, *unexpected) if not name.endswith("num_batches_tracked")]
    if wrong:
        raise ValueError(f"the weights do not fit the network: {', '.join(wrong[:4])}")
    return network.eval().requires_grad_(False)
