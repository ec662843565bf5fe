"""Training loop: schedules, exact resume, divergence, histories; train-or-load."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from data_gen.synthetic.functions import identity
from implicit_models.layers import ImplicitModel
from reproduction.core.train import CheckpointError, History, Recipe, accuracy, evaluate, predict, train
from reproduction.models.linear import Linear
from reproduction.models.mlp import MLP
from reproduction.models.transformer import DepthwiseEncoder


def regression(n=60, p=4, q=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(n, p, generator=generator)
    return u, u @ torch.randn(p, q, generator=generator)


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_matches_a_plain_loop_with_torch_schedulers():
    """Against the unfused optimiser, torch's own cosine schedule and explicit batches."""
    u, y = regression()
    recipe = Recipe(epochs=5, batch_size=25, lr=0.02, clip=0.5, weight_decay=1e-3)
    model, plain = MLP((4, 6, 2), seed=1), MLP((4, 6, 2), seed=1)
    history = train(model, u, y, recipe=recipe, seed=9)
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.02, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=15)
    generator, losses = torch.Generator().manual_seed(9), []
    for _ in range(5):
        order, total = torch.randperm(60, generator=generator), 0.0
        for start in (0, 25, 50):
            chosen = order[start : start + 25]
            optimizer.zero_grad()
            loss = ((plain(u[chosen]) - y[chosen]) ** 2).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(chosen)
        losses.append(total / 60)
    assert history.loss == pytest.approx(losses, rel=1e-4)
    for name, value in weights(plain).items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-3, atol=1e-5)
    assert history.reason == "completed" and len(history.cpu_seconds) == 5
    assert history.iterations_mean == history.residual_max == []


def test_linear_identity_is_learnt_to_round_off():
    data = identity(2000, 500, shifts=(0, 200), seed=0)
    model = Linear(10, 10, seed=0)
    train(model, data.u_train, data.y_train, recipe=Recipe(epochs=20, batch_size=20), seed=0)
    errors = evaluate(model, data.test)
    assert errors[0] < 1e-8
    # Homogeneity: the error grows with the square of the half-width, up to sampling.
    assert errors[200] / errors[0] == pytest.approx((205 / 5) ** 2, rel=0.2)


@given(st.integers(1, 400), st.floats(1e-5, 1.0))
@settings(max_examples=30, deadline=None)
def test_cosine_starts_at_lr_ends_near_zero_and_falls(n_steps, lr):
    recipe = Recipe(epochs=1, lr=lr)
    rates = [recipe.learning_rate(step, n_steps) for step in range(n_steps)]
    assert rates[0] == pytest.approx(lr) and all(a > b for a, b in zip(rates, rates[1:]))
    assert rates[-1] <= lr * (1 - math.cos(math.pi / n_steps)) / 2 + 1e-12
    assert Recipe(epochs=1, lr=lr, schedule="constant").learning_rate(n_steps - 1, n_steps) == lr


class Interrupting:
    """Raises KeyboardInterrupt in the forward pass number `at`, in the middle of an epoch."""

    def __init__(self, model, at):
        self.calls, self.at = 0, at
        model.register_forward_pre_hook(self)

    def __call__(self, *_):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt


MODELS = {
    "implicit": lambda: ImplicitModel(4, 2, 5, seed=3),
    "mlp": lambda: MLP((4, 6, 2), seed=3),
    "dropout": lambda: DepthwiseEncoder(4, 2, n_heads=2, width=8, dropout=0.3, seed=3),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("at", [1, 24])
def test_interrupt_and_resume_end_with_the_same_bits(name, at, tmp_path):
    u, y = regression()
    settings_ = {"recipe": Recipe(epochs=5, batch_size=10), "seed": 4, "checkpoint_every": 3, "progress": False}
    whole = MODELS[name]()
    expected = train(whole, u, y, evaluate=lambda m: evaluate(m, {0: (u, y)}), **settings_)

    model = MODELS[name]()
    Interrupting(model, at)
    path = tmp_path / "run.pt"
    # `predict` forwards too, so the count covers evaluations: 6 + 1 forward passes an epoch.
    with pytest.raises(KeyboardInterrupt):
        train(model, u, y, checkpoint=path, evaluate=lambda m: evaluate(m, {0: (u, y)}), **settings_)
    again = MODELS[name]()
    train_again = train(again, u, y, checkpoint=path, evaluate=lambda m: evaluate(m, {0: (u, y)}), **settings_)
    assert same(weights(whole), weights(again))
    assert train_again.loss == expected.loss and train_again.evaluation == expected.evaluation
    assert train_again.reason == "completed" and len(train_again.seconds) == 5


def test_a_killed_run_resumes_from_its_last_checkpoint(tmp_path):
    u, y = regression()
    arguments = {"recipe": Recipe(epochs=7, batch_size=10), "seed": 4, "progress": False}
    whole = MODELS["mlp"]()
    train(whole, u, y, **arguments)
    killed, path = MODELS["mlp"](), tmp_path / "run.pt"

    class Killed(Exception):
        pass

    def stop_after(epochs):
        def count(model):
            count.n = getattr(count, "n", 0) + 1
            if count.n == epochs:
                raise Killed
            return 0.0

        return count

    with pytest.raises(Killed):  # not a KeyboardInterrupt: nothing is saved on the way out
        train(killed, u, y, checkpoint=path, checkpoint_every=2, evaluate=stop_after(5), **arguments)
    assert len(torch.load(path, weights_only=True)["history"]["loss"]) == 4
    resumed = MODELS["mlp"]()
    history = train(resumed, u, y, checkpoint=path, evaluate=lambda model: 0.0, **arguments)
    assert same(weights(whole), weights(resumed)) and len(history.loss) == 7
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]


def test_a_finished_checkpoint_is_loaded_not_trained(tmp_path):
    u, y = regression()
    arguments = {"recipe": Recipe(epochs=2, batch_size=10), "seed": 4, "checkpoint": tmp_path / "run.pt"}
    first, second = MODELS["mlp"](), MODELS["mlp"]()
    expected = train(first, u, y, **arguments)
    Interrupting(second, 1)
    history = train(second, u, y, **arguments)
    assert same(weights(first), weights(second)) and history == expected


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    u, y = regression()
    path, recipe = tmp_path / "run.pt", Recipe(epochs=1)
    train(MODELS["mlp"](), u, y, recipe=recipe, seed=4, checkpoint=path)
    others = {"seed": {"seed": 5}, "recipe": {"recipe": Recipe(epochs=2)}}
    for name, change in others.items():
        with pytest.raises(ValueError, match=f"another run: its {name}"):
            train(MODELS["mlp"](), u, y, **{"recipe": recipe, "seed": 4, "checkpoint": path, **change})
    with pytest.raises(ValueError, match="its data"):
        train(MODELS["mlp"](), u + 1, y, recipe=recipe, seed=4, checkpoint=path)
    with pytest.raises(ValueError, match="its model"):
        train(MLP((4, 7, 2)), u, y, recipe=recipe, seed=4, checkpoint=path)
    moved = MODELS["mlp"]()
    with torch.no_grad():
        next(moved.parameters()).add_(1e-3)
    with pytest.raises(ValueError, match="its initial weights"):
        train(moved, u, y, recipe=recipe, seed=4, checkpoint=path)
    with pytest.raises(ValueError, match="its loss"):
        loss = lambda model, u, y, share: (model(u) - y).abs().mean()
        train(MODELS["mlp"](), u, y, recipe=recipe, seed=4, loss=loss, checkpoint=path)


def test_a_damaged_checkpoint_is_named(tmp_path):
    u, y = regression()
    path = tmp_path / "run.pt"
    arguments = {"recipe": Recipe(epochs=1), "seed": 4, "checkpoint": path}
    train(MODELS["mlp"](), u, y, **arguments)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CheckpointError, match="run.pt cannot be read"):
        train(MODELS["mlp"](), u, y, **arguments)


def test_seed_decides_the_order_and_the_global_state_is_untouched():
    u, y = regression()
    before = torch.get_rng_state()
    runs = []
    for seed in (1, 1, 2):
        model = MODELS["dropout"]()
        train(model, u, y, recipe=Recipe(epochs=2, batch_size=10), seed=seed)
        runs.append(weights(model))
    assert torch.equal(before, torch.get_rng_state())
    assert same(runs[0], runs[1]) and not same(runs[0], runs[2])


def test_full_batch_and_indexed_batches_agree_with_the_shuffled_copy(monkeypatch):
    u, y = regression()
    one, other = MODELS["mlp"](), MODELS["mlp"]()
    train(one, u, y, recipe=Recipe(epochs=3, batch_size=7), seed=1)
    monkeypatch.setattr("reproduction.core.train.SHUFFLED_COPY_SIZE", 0)
    train(other, u, y, recipe=Recipe(epochs=3, batch_size=7), seed=1)
    assert same(weights(one), weights(other))
    full = [MODELS["mlp"]() for _ in range(2)]
    for model, seed in zip(full, (1, 2)):
        train(model, u, y, recipe=Recipe(epochs=3, batch_size=None), seed=seed)
    assert same(weights(full[0]), weights(full[1]))  # nothing to shuffle, nothing to drop


class Exploding(nn.Module):
    """Output u w, infinite from its sixth call on."""

    def __init__(self):
        super().__init__()
        self.w, self.calls = nn.Parameter(torch.ones(4, 2)), 0

    def forward(self, u):
        self.calls += 1
        return u @ self.w * (math.inf if self.calls > 5 else 1.0)


def test_divergence_names_epoch_and_step():
    u, y = regression()
    with pytest.raises(FloatingPointError, match="toy: diverged: the loss is (nan|inf) at epoch 2, step 3 of 3"):
        train(Exploding(), u, y, recipe=Recipe(epochs=4, batch_size=20), seed=0, label="toy")
    model = Exploding()
    history = train(model, u, y, recipe=Recipe(epochs=4, batch_size=20, on_nan="stop"), seed=0)
    assert history.reason.startswith("diverged") and "epoch 2, step 3" in history.reason
    assert len(history.loss) == 1 and torch.isfinite(model.w).all()


class Projected(nn.Linear):
    def project_(self):
        with torch.no_grad():
            self.weight.clamp_(-0.1, 0.1)


def test_every_submodule_is_projected_after_each_step():
    u, y = regression()
    model = nn.Sequential(Projected(4, 3, bias=False), nn.Linear(3, 2))
    train(model, u, y, recipe=Recipe(epochs=2), seed=0)
    assert model[0].weight.abs().max() <= 0.1 and model[1].weight.abs().max() > 0.1


def test_an_implicit_model_reports_its_equilibria_and_stays_projected():
    u, y = regression()
    model = ImplicitModel(4, 2, 5, kappa=0.6, tol=1e-5, seed=0)
    history = train(model, u, y, recipe=Recipe(epochs=3, batch_size=20), seed=0)
    assert model.A.abs().sum(1).max() <= 0.6 * (1 + 1e-6)
    for name in ("iterations_mean", "iterations_max", "residual_max"):
        assert len(getattr(history, name)) == 3
    assert all(1 <= mean <= most for mean, most in zip(history.iterations_mean, history.iterations_max))
    assert 0 < max(history.residual_max) <= 1e-5
    # Solved once for all samples, the untrained model needs what the first epoch of a tiny step reports.
    fresh, still = (ImplicitModel(4, 2, 5, kappa=0.6, tol=1e-5, seed=0) for _ in range(2))
    expected = fresh.equilibrium(u).n_iter.double()
    reported = train(still, u, y, recipe=Recipe(epochs=1, batch_size=20, lr=1e-12), seed=0)
    assert reported.iterations_mean[0] == pytest.approx(float(expected.mean()))
    assert reported.iterations_max[0] == int(expected.max())


def test_mode_is_restored_and_evaluation_does_not_leave_it_changed():
    u, y = regression()
    model = MODELS["dropout"]().eval()
    modes = []
    history = train(
        model, u, y, recipe=Recipe(epochs=2), seed=0, evaluate=lambda m: modes.append(m.training) or m.eval() and 1.5
    )
    assert not model.training and modes == [True, True] and history.evaluation == [1.5, 1.5]


def test_cross_entropy_separates_two_classes():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(100) % 2
    u = torch.randn(100, 3, generator=generator) + 6 * labels[:, None]
    model = MLP((3, 4, 2), seed=0)
    history = train(model, u, labels, recipe=Recipe(epochs=60, batch_size=20, loss="cross_entropy"), seed=0)
    assert history.loss[0] > 0.3 and accuracy(model, {0: (u.numpy(), labels.numpy())}) == {0: 1.0}


def test_evaluate_accumulates_in_float64_and_reports_infinities():
    model = nn.Identity()
    u = np.full((3000, 2), 1e25, np.float32)  # its square overflows float32
    y = np.zeros((3000, 2), np.float32)
    errors = evaluate(model, {"far": (u, y), 0: (y, y)}, batch_size=7)
    assert errors["far"] == pytest.approx(float(np.float32(1e25)) ** 2) and errors[0] == 0.0
    assert math.isinf(evaluate(model, {1: (u * np.float32(np.inf), y)})[1])
    with pytest.raises(ValueError, match=r"test\[0\]: outputs \(5, 2\), targets \(5, 1\)"):
        evaluate(model, {0: (u[:5], y[:5, :1])})


def test_predict_runs_in_evaluation_mode_and_in_order():
    model = MODELS["dropout"]()
    u, _ = regression(23)
    assert torch.equal(predict(model, u, batch_size=5), predict(model, u, batch_size=5)) and model.training
    torch.testing.assert_close(predict(model, u.numpy(), batch_size=5), model.eval()(u), rtol=1e-5, atol=1e-6)


def test_history_is_json():
    import json

    u, y = regression()
    history = train(MODELS["mlp"](), u, y, recipe=Recipe(epochs=2), seed=0)
    assert History(**json.loads(json.dumps(history.to_dict()))) == history


def test_progress_bar_is_silent_on_a_pipe(capsys):
    u, y = regression()
    train(MODELS["mlp"](), u, y, recipe=Recipe(epochs=2), seed=0, progress=True)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs = 0"),
        ({"lr": 0.0}, "lr = 0.0"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"schedule": "linear"}, "schedule = 'linear'"),
        ({"loss": "mae"}, "loss = 'mae'"),
        ({"clip": -1.0}, "clip = -1.0"),
        ({"on_nan": "ignore"}, "on_nan = 'ignore'"),
        ({"weight_decay": -0.1}, "weight_decay = -0.1"),
    ],
)
def test_bad_recipes_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**{"epochs": 1, **change})


def test_bad_data_is_named():
    u, y = regression()
    with pytest.raises(ValueError, match=r"inputs \(60, 4\) and targets \(59, 2\)"):
        train(MODELS["mlp"](), u, y[1:], recipe=Recipe(epochs=1), seed=0)
    with pytest.raises(ValueError, match="N >= 1"):
        train(MODELS["mlp"](), u[:0], y[:0], recipe=Recipe(epochs=1), seed=0)
    with pytest.raises(ValueError, match=r"predictions \(60, 2\) and targets \(60, 1\)"):
        train(MODELS["mlp"](), u, y[:, :1], recipe=Recipe(epochs=1), seed=0)
