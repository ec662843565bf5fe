"""What the tests of pruning share: networks with weights at random that fit their batch norms, images, and errors."""

import torch
from torch import nn


def trained(network, shape, seed=0):
    """Random weights, with statistics of batch norm that fit them."""
    torch.manual_seed(seed)
    for p in network.parameters():
        if p.ndim > 1:
            nn.init.normal_(p, std=(2 / p[0].numel()) ** 0.5)
        else:
            nn.init.uniform_(p, 0.2, 1.0)
    network.train()
    with torch.no_grad():
        for _ in range(30):
            network(torch.randn(60, *shape))
    return network.eval()


def images(m=120, shape=(3, 9, 7), seed=1):
    return torch.randn(m, *shape, generator=torch.Generator().manual_seed(seed))


def error(model, network, u):
    """Squared error of the outputs over their variance."""
    with torch.no_grad():
        y, z = network(u), model(u)
    return float(((y - z) ** 2).sum() / ((y - y.mean(0)) ** 2).sum())
