"""Fits to other teachers: counts and agreement on small networks whose answers are known."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from reproduction.ch3_sim_fashion.teachers import predicted


def test_predicted_is_the_largest_output():
    network = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
    assert predicted(network, np.array([[2.0, 1.0], [1.0, 2.0], [-1.0, -1.0]])).tolist() == [0, 1, 2]
