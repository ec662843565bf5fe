"""The study of robust training on a small problem: losses by hand, determinism, cache, and what is measured."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.robustness.penalties import convex_penalty, sensitivity_norm
from reproduction.ch4_robust_training.compute import (
    OBJECTIVES,
    Objective,
    attacked_batch,
    loss_of,
    measured,
    trained,
    untrained,
)
from reproduction.core import cache
from reproduction.core.train import train


@pytest.fixture(scope="module")
def images():
    """Three classes of 16 pixels that differ in four pixels each, with noise."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    u = 0.3 * rng.random((600, 16))
    for k in range(3):
        u[y == k, 4 * k : 4 * k + 4] += 0.5
    u, y = u.astype(np.float32), y.astype(np.int64)
    return Dataset(u_train=u[:400], y_train=y[:400], test={0: (u[400:], y[400:])}, meta={"classes": ("a", "b", "c")})


def small(seed=0):
    return untrained(seed, 16, 3)


def fit(model, u, y, objective, *, seed):
    loss = functools.partial(loss_of, objective)
    return train(model, u, y, recipe=objective.recipe, seed=seed, loss=loss, progress=False, label=objective.name)


def test_losses_are_what_they_say(images):
    model = small()
    u, y = torch.as_tensor(images.u_train[:50]), torch.as_tensor(images.y_train[:50])
    entropy = nn.functional.cross_entropy(model(u), y).item()
    penalty, norm = convex_penalty(model).item(), sensitivity_norm(model).item()

    def value(share=1.0, **options):
        return loss_of(Objective(**options), model, u, y, share).item()

    assert value(name="plain") == value(name="weight_decay", weight=0.1) == pytest.approx(entropy, rel=1e-6)
    assert value(name="convex_penalty", weight=0.5) == pytest.approx(entropy + 0.5 * penalty, rel=1e-6)
    assert value(name="sensitivity", weight=0.5) == pytest.approx(entropy + 0.5 * norm, rel=1e-6)
    assert value(name="interval", eps=0.1, share=0.0) == pytest.approx(
        entropy, rel=1e-6
    )  # the schedule starts from the samples themselves
    halfway, full = (value(name="interval", eps=0.1, share=s) for s in (0.125, 0.25))
    assert entropy < halfway < full == value(name="interval", eps=0.1, share=1.0)
    assert value(name="adversarial", eps=0.0) == pytest.approx(entropy, rel=1e-6)
    assert value(name="adversarial", eps=0.1) > entropy
    assert (
        Objective("weight_decay", weight=0.1).recipe.weight_decay == 0.1
        and Objective("sensitivity", weight=0.1).recipe.weight_decay == 0
    )


def test_attacked_batch_stays_in_its_box_and_raises_the_loss(images):
    model = small()
    fit(model, images.u_train, images.y_train, Objective("plain", epochs=3, batch_size=50), seed=0)
    u, y = torch.as_tensor(images.u_train[:100]), torch.as_tensor(images.y_train[:100])
    moved = attacked_batch(model, u, y, 0.05, 3)
    assert float((moved - u).abs().max()) <= 0.05 + 1e-6
    assert nn.functional.cross_entropy(model(moved), y) > nn.functional.cross_entropy(model(u), y)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_learns_and_repeats(images, name):
    objective = Objective(name, weight=1e-4, eps=0.02, epochs=3, batch_size=40)
    models = [small(), small()]
    histories = [fit(m, images.u_train, images.y_train, objective, seed=3) for m in models]
    assert histories[0].loss == histories[1].loss and histories[0].reason == "completed"
    assert all(
        torch.equal(a, b) for a, b in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True)
    )
    assert float(models[0].A.detach().abs().sum(1).max()) <= 0.95
    u, y = images.test[0]
    assert (models[0](torch.as_tensor(u)).argmax(1).numpy() == y).mean() > 0.9


def test_measured_bounds_are_nested_and_penalties_lower_their_constant(images):
    found = {}
    for name, weight in (("plain", 0.0), ("sensitivity", 0.01)):
        model = small()
        fit(model, images.u_train, images.y_train, Objective(name, weight=weight, epochs=8, batch_size=40), seed=0)
        found[name] = measured(model, images, (0.0, 0.05), n_samples=80)
    for result in found.values():
        for i in range(2):
            assert (
                result["box"][i]
                <= result["interval"][i]
                <= result["certified"][i]
                <= result["attacked"][i]
                <= result["clean"]
            )
        assert result["certified"][0] == result["clean"]  # a box of radius 0 is the sample
    assert found["sensitivity"]["sensitivity"] < 0.5 * found["plain"]["sensitivity"]
    assert found["plain"]["sensitivity"] <= found["plain"]["rho"] <= found["plain"]["convex_penalty"]


def test_cache_returns_the_same_model_without_training(images, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "cache_dir", lambda: tmp_path)
    objective = Objective("plain", epochs=1, batch_size=100)
    first, history = trained(images, objective, seed=0)
    monkeypatch.setattr(cache, "train", lambda *a, **k: pytest.fail("trained again"))
    again, read = trained(images, objective, seed=0)
    assert read.loss == history.loss
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True))
    with pytest.raises(pytest.fail.Exception):
        trained(images, Objective("plain", epochs=2, batch_size=100), seed=0)


def test_settings_and_divergence_are_named(images):
    for wrong in (
        {"name": "plane"},
        {"name": "plain", "weight": -1.0},
        {"name": "interval", "clean": 2.0},
        {"name": "interval", "eps": -1.0},
    ):
        with pytest.raises(ValueError, match=next(iter(set(wrong) - {"name"}), "name")):
            Objective(**wrong)
    broken = images.u_train.copy()
    broken[7] = np.nan
    with pytest.raises((FloatingPointError, ValueError), match="epoch 1|finite"):
        fit(small(), broken, images.y_train, Objective("plain", epochs=1), seed=0)
    with pytest.raises(ValueError, match="pair"):
        fit(small(), images.u_train, images.y_train[:-1], Objective("plain", epochs=1), seed=0)
