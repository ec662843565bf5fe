"""FGSM in the SIM paper's protocol: closed forms of a linear model, masks, controls, implicit models."""

import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.layers import ImplicitModel
from reproduction.core.fgsm import attacked_batches, fgsm_accuracy, loss_gradient
from reproduction.models.mlp import MLP


class Linear(nn.Module):
    """Two classes, logits (0, w'u): the margin of label 1 falls by eps ||w_mask||_1 under attack."""

    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(torch.as_tensor(w))

    def forward(self, u):
        score = u @ self.w
        return torch.stack([torch.zeros_like(score), score], dim=1)


W = np.array([1.0, -2.0, 0.5, 3.0])


def samples(n=200):
    rng = np.random.default_rng(0)
    u = rng.standard_normal((n, 4))
    return u, (u @ W > 0).astype(np.int64)


def test_all_coordinates_of_a_linear_model_in_closed_form():
    u, y = samples()
    margins = np.abs(u @ W)
    for epsilon in (0.0, 0.05, 0.3):
        expected = (margins > epsilon * np.abs(W).sum()).mean()
        assert fgsm_accuracy(Linear(W), u, y, epsilon=epsilon, share=1.0) == pytest.approx(expected, abs=1e-12)
    assert expected < 0.7, "the largest attack must tell"


def test_half_the_coordinates_one_draw_a_batch():
    u, y = samples()
    seen = []
    start = 0
    for attacked, labels in attacked_batches(Linear(W), u, y, epsilon=0.1, seed=3, batch_size=64):
        step = attacked.numpy() - u[start : start + len(labels)]
        moved = np.abs(step) > 0
        assert np.all(moved == moved[0]) and moved[0].sum() == 2, "one mask of half the coordinates for the whole batch"
        # Away from the label: against w for label 1, along it for label 0.
        towards = np.where(labels.numpy() == 1, -1, 1)[:, None] * np.sign(W)
        np.testing.assert_allclose(step, 0.1 * np.where(moved, towards, 0), atol=1e-12)
        seen.append(tuple(moved[0]))
        start += len(labels)
    assert start == 200 and len(seen) == 4 and len(set(seen)) > 1, "the mask is drawn anew"
    again = torch.cat([a for a, _ in attacked_batches(Linear(W), u, y, epsilon=0.1, seed=3)])
    other = torch.cat([a for a, _ in attacked_batches(Linear(W), u, y, epsilon=0.1, seed=4)])
    assert torch.equal(again, torch.cat([a for a, _ in attacked_batches(Linear(W), u, y, epsilon=0.1, seed=3)]))
    assert not torch.equal(again, other)


def test_random_signs_share_the_masks_and_do_less_harm():
    u, y = samples()
    steps = {}
    for direction in ("gradient", "random"):
        batches = list(attacked_batches(Linear(W), u, y, epsilon=0.1, direction=direction))
        steps[direction] = torch.cat([a for a, _ in batches]).numpy() - u
    assert np.array_equal(steps["gradient"] != 0, steps["random"] != 0)
    signs = np.sign(steps["random"][steps["random"] != 0])
    assert abs(signs.mean()) < 0.2
    accuracy = {d: fgsm_accuracy(Linear(W), u, y, epsilon=0.3, share=1.0, direction=d) for d in steps}
    assert accuracy["gradient"] < accuracy["random"] - 0.1


def test_gradient_of_another_model():
    u, y = samples()
    # The source points the other way: what harms it helps the model.
    helped = fgsm_accuracy(Linear(W), u, y, epsilon=0.2, share=1.0, source=Linear(-W))
    assert helped == 1.0 > fgsm_accuracy(Linear(W), u, y, epsilon=0.2, share=1.0)


def test_clip_leaves_what_is_not_attacked():
    u, y = samples()
    attacked = torch.cat(
        [a for a, _ in attacked_batches(Linear(W), u, y, epsilon=0.1, clip=(0.0, 1.0), batch_size=200)]
    ).numpy()
    mask = torch.zeros(4).bool()
    mask[torch.randperm(4, generator=torch.Generator().manual_seed(0))[:2]] = True
    assert np.array_equal(attacked[:, ~mask.numpy()], u[:, ~mask.numpy()])
    assert attacked[:, mask.numpy()].min() >= 0 and attacked[:, mask.numpy()].max() <= 1


def test_a_samples_gradient_does_not_depend_on_its_batch():
    network = MLP((4, 8, 3), seed=0).double()
    u = torch.from_numpy(samples(10)[0])
    y = torch.arange(10) % 3
    together = loss_gradient(network, u, y)
    for k in range(10):
        torch.testing.assert_close(loss_gradient(network, u[k : k + 1], y[k : k + 1])[0], together[k])
    # Central differences, an independent source.
    h, numeric = 1e-6, torch.zeros(4, dtype=torch.double)
    for j in range(4):
        ends = [
            nn.functional.cross_entropy(network(u[:1] + s * h * torch.eye(4, dtype=torch.double)[j]), y[:1])
            for s in (1, -1)
        ]
        numeric[j] = (ends[0] - ends[1]).item() / (2 * h)
    torch.testing.assert_close(together[0], numeric, rtol=1e-5, atol=1e-8)


def test_modes_are_restored_and_dropout_is_off():
    network = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.9), nn.ReLU(), nn.Linear(8, 2))
    network[1].eval()
    u, y = samples(50)
    results = {fgsm_accuracy(network, u.astype(np.float32), y, epsilon=0.01) for _ in range(3)}
    assert len(results) == 1 and network.training and not network[1].training


@pytest.mark.parametrize("sparse", [False, True])
def test_implicit_form_of_a_network_is_attacked_alike(sparse):
    from scipy.sparse import csr_matrix

    network = MLP((4, 6, 3), seed=0).double()
    W0, b0, W1, b1 = (p.detach().numpy() for p in network.parameters())
    wrap = csr_matrix if sparse else np.asarray
    model = ImplicitModel.from_matrices(
        wrap(np.zeros((6, 6))), wrap(W0), wrap(W1), wrap(np.zeros((3, 4))), b=b0, d=b1, tol=1e-10
    )
    u, _ = samples(60)
    y = network(torch.from_numpy(u)).argmax(dim=1).numpy()
    for epsilon in (0.05, 0.3):
        assert fgsm_accuracy(model, u, y, epsilon=epsilon) == fgsm_accuracy(network, u, y, epsilon=epsilon)
    assert fgsm_accuracy(model, u, y, epsilon=0.3, share=1.0) < 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": -0.1}, "epsilon must not be negative, got -0.1"),
        ({"share": 1.5}, "got 1.5"),
        ({"direction": "up"}, "got 'up'"),
        ({"epsilon": float("nan")}, "got nan"),
    ],
)
def test_bad_settings_are_named(change, message):
    u, y = samples(5)
    with pytest.raises(ValueError, match=message):
        fgsm_accuracy(Linear(W), u, y, **{"epsilon": 0.1, **change})
    with pytest.raises(ValueError, match=r"\(5, 4\) and labels \(4,\)"):
        fgsm_accuracy(Linear(W), u, y[:4], epsilon=0.1)


def test_a_gradient_that_is_not_finite_names_the_sample():
    u, y = samples(70)
    u[66, 1] = np.nan
    with pytest.raises(ValueError, match="gradient of sample 66 is not finite"):
        fgsm_accuracy(Linear(W), u, y, epsilon=0.1)
