"""Controls for sparsity: counts, which weights stay, zeros that stay zeros, lasso rows against scikit-learn."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduction.core.pruning import Masked, lasso_rows, magnitude_prune, nonzeros, retrain, sparsity
from reproduction.core.recipe import Recipe
from reproduction.models.mlp import MLP


def weights(model):
    return {name: p.detach() for name, p in model.named_parameters() if p.ndim >= 2}


def test_sparsity_is_the_papers_definition():
    network = MLP((3, 2, 2), seed=0)  # 6 + 2 + 4 + 2 = 14
    assert nonzeros(network) == 14
    assert sparsity(7, network) == 50 and sparsity(0, network) == 100 and sparsity(21, network) == -50


def test_global_pruning_by_hand():
    network = MLP((2, 2, 1), seed=0)
    with torch.no_grad():
        network.layers[0].weight.copy_(torch.tensor([[5.0, -1.0], [2.0, 0.5]]))
        network.layers[2].weight.copy_(torch.tensor([[-3.0, 0.1]]))
    pruned, masks = magnitude_prune(network, 3)
    assert pruned.layers[0].weight.tolist() == [[5, 0], [2, 0]] and pruned.layers[2].weight.tolist() == [[-3, 0]]
    layered, _ = magnitude_prune(network, 3, scope="layer")  # 2 of 4 and 1 of 2
    assert layered.layers[0].weight.tolist() == [[5, 0], [2, 0]] and layered.layers[2].weight.tolist() == [[-3, 0]]
    layered, _ = magnitude_prune(network, 1, scope="layer")  # .67 and .33: the larger remainder
    assert layered.layers[0].weight.tolist() == [[5, 0], [0, 0]] and layered.layers[2].weight.tolist() == [[0, 0]]
    assert network.layers[0].weight[1, 1] == 0.5, "the original was changed"
    assert torch.equal(pruned.layers[0].bias, network.layers[0].bias)
    assert set(masks) == {"layers.0.weight", "layers.2.weight"}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 59), st.sampled_from(["global", "layer"]))
def test_exactly_keep_weights_stay_and_they_are_the_largest(keep, scope):
    network = MLP((5, 6, 4, 1), seed=1)  # 30 + 24 + 4 = 58 weights
    if keep > 58:
        with pytest.raises(ValueError, match="between 0 and the 58 weights, got 59"):
            magnitude_prune(network, keep, scope=scope)
        return
    pruned, masks = magnitude_prune(network, keep, scope=scope)
    assert sum(int(mask.sum()) for mask in masks.values()) == keep
    assert sum(int(torch.count_nonzero(w)) for w in weights(pruned).values()) == keep
    original = weights(network)
    groups = [list(original)] if scope == "global" else [[name] for name in original]
    for names in groups:
        kept = torch.cat([original[name][masks[name]].abs() for name in names])
        lost = torch.cat([original[name][~masks[name]].abs() for name in names])
        assert not len(kept) or not len(lost) or kept.min() >= lost.max()
    if scope == "layer":
        for name, weight in original.items():
            assert abs(int(masks[name].sum()) - keep * weight.numel() / 58) < 1


def test_ties_are_broken_by_position():
    network = MLP((4, 1), bias=False, seed=0)
    with torch.no_grad():
        network.layers[0].weight.fill_(1.0)
    assert magnitude_prune(network, 2)[0].layers[0].weight.tolist() == [[1, 1, 0, 0]]
    with pytest.raises(ValueError, match="got 'row'"):
        magnitude_prune(network, 2, scope="row")


def test_retraining_keeps_the_zeros_and_lowers_the_loss():
    rng = np.random.default_rng(0)
    u = rng.standard_normal((400, 10)).astype(np.float32)
    y = (u[:, :3].sum(axis=1) > 0).astype(np.int64)
    network = MLP((10, 16, 2), seed=0)
    pruned, masks = magnitude_prune(network, 60, scope="layer")
    before = {name: p.clone() for name, p in pruned.named_parameters()}
    recipe = Recipe(epochs=20, lr=0.02, batch_size=50, loss="cross_entropy")
    model, history = retrain(pruned, masks, u, y, recipe=recipe, seed=0)
    for name, mask in masks.items():
        weight = dict(model.named_parameters())[name]
        assert torch.all(weight[~mask] == 0) and not torch.equal(weight, before[name])
    assert history.loss[-1] < 0.5 * history.loss[0]
    assert all(torch.equal(p, before[name]) for name, p in pruned.named_parameters()), "the pruned model was changed"
    same, _ = retrain(pruned, masks, u, y, recipe=recipe, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), same.parameters()))


def test_bad_masks_are_named():
    network = MLP((3, 2), seed=0)
    with pytest.raises(KeyError, match="'w'"):
        Masked(network, {"w": torch.ones(2, 3, dtype=torch.bool)})
    with pytest.raises(ValueError, match=r"shape \(3, 2\), the parameter \(2, 3\)"):
        Masked(network, {"layers.0.weight": torch.ones(3, 2, dtype=torch.bool)})


def lasso_problem():
    rng = np.random.default_rng(2)
    M = rng.standard_normal((60, 12))
    Z = M[:, :3] @ rng.standard_normal((3, 4)) + 0.1 * rng.standard_normal((60, 4))
    return M, Z


def test_lasso_rows_are_scikit_learns():
    from sklearn.linear_model import Lasso

    M, Z = lasso_problem()
    A = lasso_rows(M.T @ M, Z.T @ M, (Z**2).sum(axis=0), beta=3.0, rtol=1e-10)
    for k in range(4):
        reference = Lasso(alpha=3.0 / 60, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(M, Z[:, k])
        np.testing.assert_allclose(A[k], reference.coef_, atol=1e-5)
    assert np.abs(A).sum(axis=1).max() > 1, "rows inside the unit ball could not show that there is no ball"


def test_lasso_rows_on_chosen_columns():
    from sklearn.linear_model import Lasso

    M, Z = lasso_problem()
    columns = np.arange(12) % 3 != 1
    A = lasso_rows(M.T @ M, Z.T @ M, (Z**2).sum(axis=0), beta=3.0, columns=columns, rtol=1e-10)
    assert np.all(A[:, ~columns] == 0)
    reference = Lasso(alpha=3.0 / 60, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(M[:, columns], Z[:, 0])
    np.testing.assert_allclose(A[0, columns], reference.coef_, atol=1e-5)
