"""Tasks: parameter counts against the registry, models of each profile, data of each setting."""

import numpy as np
import pytest
import torch

from data_gen.core.dataset import Dataset
from reproduction import ch5_identity as identity
from reproduction.ch5_arithmetic import task as arithmetic
from reproduction.classifiers import fashion
from reproduction.core.recipe import Recipe
from reproduction.core.registry import ARCHITECTURES
from reproduction.core.scores import count_parameters
from reproduction.core.train import accuracy, evaluate, train

# Formulas, independent of the modules that the registry builds.


def implicit(n, p, q):
    return n * n + n * p + q * n + q * p


def mlp(*sizes):
    return sum(p * q + q for p, q in zip(sizes[:-1], sizes[1:]))


def lstm(hidden, out):
    return 4 * (hidden + hidden**2 + 2 * hidden) + hidden * out + out


def encoder(d, width):
    return 4 * d * d + 4 * d + 2 * d * width + width + d + 4 * d


def decoder(d, width):
    return 8 * d * d + 8 * d + 2 * d * width + width + d + 6 * d


# (task, model, described) -> (printed, described count, count of the explanation)
COUNTS = {
    ("identity", "MLP", "10-10-10"): (220, mlp(10, 10, 10), None),
    ("identity", "MLP", "10-9-9-10"): (None, mlp(10, 9, 9, 10), None),
    ("identity", "implicit", "n = 4, p = q = 10"): (196, implicit(4, 10, 10), None),
    ("identity", "encoder", "one layer, one head"): (43_498, encoder(10, 2048), None),
    ("identity", "encoder-decoder", "10-10-5, 5 heads"): (None, encoder(10, 10) + decoder(10, 10) + 40, None),
    ("arithmetic", "MLP", "50-10-10-1"): (1497, 631, 1497),
    ("arithmetic", "NALU", "50-10-10-1"): (1530, 1830, 1530),
    ("arithmetic", "implicit", "n = 20, p = 50, q = 1"): (7650, 1470, 7650),
    ("arithmetic", "sequential encoder", "one layer, 10 heads"): (6208, None, encoder(1, 2048) + 51),
    ("arithmetic", "sequential encoder", "one layer, 10 heads, width 50"): (None, None, None),
    ("arithmetic", "depth-wise encoder", "one layer, one head"): (217_349, encoder(50, 2048) + 51, None),
    ("arithmetic", "depth-wise encoder", "one layer, one head, width 500"): (None, 61_001, None),
    ("rolling average", "LSTM", "1-100-100-1"): (42_210, lstm(100, 1), lstm(100, 10)),
    ("rolling average", "LSTM", "1-18-18-1"): (None, lstm(18, 1), None),
    ("rolling average", "implicit", "n = 200, p = q = 10"): (44_100, implicit(200, 10, 10), None),
    ("rolling average", "implicit", "n = 32, p = q = 10"): (None, 1764, None),
    ("rolling average", "encoder", "one layer, 2 heads"): (42_210, None, None),
    ("rolling argmax", "LSTM", "1-19-19-10"): (1872, lstm(19, 10), None),
    ("rolling argmax", "LSTM", "1-21-21-10"): (None, 2236, None),
    ("rolling argmax", "implicit", "n = 33, p = q = 10"): (1849, implicit(33, 10, 10), None),
    ("rolling argmax", "implicit", "n = 36, p = q = 10"): (None, 2116, None),
    ("rolling argmax", "implicitRNN", "n = 18, p = 23, q = 22, head 22-10"): (1870, implicit(18, 23, 22) + 230, None),
    ("rolling argmax", "implicitRNN", "n = 21, p = 23, q = 22, head 22-10"): (None, implicit(21, 23, 22) + 230, None),
    ("rolling argmax", "decoder", "one layer, 2 heads"): (1920, encoder(10, 10) + decoder(10, 10) + 60, None),
    ("spiky", "LSTM", "1-20-20-1"): (1861, lstm(20, 1), None),
    ("spiky", "implicitRNN", "n = 20, p = 21, q = 20, head 20-1"): (1661, implicit(20, 21, 20) + 21, None),
    ("spiky", "masked decoder", "one layer, 10 heads (2 in the extrapolation paper)"): (
        43_529,
        encoder(10, 2048) + 31,
        None,
    ),
    ("volatility", "LSTM", "1-38-38-1"): (None, 6271, None),
    ("volatility", "implicit", "n = 53, p = 60, q = 1"): (None, 6102, None),
    ("volatility", "implicitRNN", "n = 37, p = 41, q = 40, head 40-1"): (None, implicit(37, 41, 40) + 41, None),
    ("volatility", "MLP", "60-50-27-27-27-10-1"): (None, 6230, None),
    ("earthquake", "EikoNet", "270-32-128-128-128-32-4"): (42_500, 50_180, 42_500),
    ("earthquake", "implicit", "n = 190, p = 270, q = 4"): (42_680, 89_240, 42_680),
}


def test_every_printed_architecture_is_counted():
    counted = {(a.task, a.model, a.described): (a.published, a.counted, a.explained) for a in ARCHITECTURES}
    assert counted == COUNTS


def test_every_wrong_count_has_a_reason():
    wrong = {(a.task, a.model) for a in ARCHITECTURES if a.right is False}
    assert wrong == {
        ("arithmetic", "MLP"),
        ("arithmetic", "NALU"),
        ("arithmetic", "implicit"),
        ("arithmetic", "sequential encoder"),
        ("rolling average", "LSTM"),
        ("rolling average", "encoder"),
        ("earthquake", "EikoNet"),
        ("earthquake", "implicit"),
    }
    for a in ARCHITECTURES:
        assert a.source and (a.right is not False or a.note)
        assert a.explanation is None or a.explained == a.published


IDENTITY_COUNTS = {
    "implicit": 196,
    "implicit_no_skip": 96,
    "implicit_strict_upper": 196,
    "linear": 100,
    "mlp": 220,
    "mlp_10_9_9_10": 289,
    "mlp_bias_free": 400,
    "mlp_skip": 330,
    "transformer": 43_498,
}
ARITHMETIC_COUNTS = {
    "implicit": 1470,
    "implicit_no_skip": 1420,
    "implicit_strict_upper": 1470,
    "linear": 50,
    "mlp": 631,
    "mlp_bias_free": 610,
    "mlp_skip": 682,
    "nalu": 1830,
    "transformer_sequential": 6208,
    "transformer_depthwise": 217_349,
}


@pytest.mark.parametrize(("task", "counts"), [(identity, IDENTITY_COUNTS), (arithmetic, ARITHMETIC_COUNTS)])
def test_models_are_named_counted_and_seeded(task, counts):
    models = task.models(3)
    assert {name: count_parameters(build()) for name, (build, _) in models.items()} == counts
    assert list(task.LABELS) == list(counts)
    for name, (build, recipe) in models.items():
        assert isinstance(recipe, Recipe)
        one, same, other = build(), build(), task.models(4)[name][0]()
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters()))
        assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters()))


def test_strictly_triangular_feedback():
    for task in (identity, arithmetic):
        A = task.models(0)["implicit_strict_upper"][0]().A
        assert torch.equal(A, A.triu(1)) and A.abs().sum() > 0


@pytest.mark.parametrize("task", [identity, arithmetic, fashion])
def test_profiles(task):
    quick, full = task.settings("quick"), task.settings("full")
    assert quick.keys() == full.keys()
    quick["seeds"] = None  # a fresh dictionary each time
    assert task.settings("quick")["seeds"] and len(full["seeds"]) == 5
    with pytest.raises(ValueError, match="got 'slow'"):
        task.settings("slow")


@pytest.mark.parametrize("task", [identity, arithmetic])
def test_quick_is_an_order_of_magnitude_cheaper(task):
    def steps(profile):
        n = task.settings(profile)["n_train"]
        return {name: recipe.epochs * n / recipe.batch_size for name, (_, recipe) in task.models(0, profile).items()}

    quick, full = steps("quick"), steps("full")
    assert all(quick[name] <= full[name] / 10 for name in full)


def test_activation_models_are_the_rows_of_the_table():
    models = identity.activation_models(0)
    assert len(models) == 16 and {"relu", "log_sigmoid", "multiprelu"} <= models.keys()
    names = {name: type(build().layers[1]).__name__ for name, (build, _) in models.items()}
    assert names["relu6"] == "ReLU6" and names["softsign"] == "Softsign" and names["log_sigmoid"] == "LogSigmoid"
    assert count_parameters(models["relu"][0]()) == 220


def test_table_5_2_models_and_data():
    models = arithmetic.table_models(0)
    assert count_parameters(models["implicit"][0]()) == 7650
    assert len([name for name in models if name.startswith("mlp_")]) == 15  # of Ganesh (2023), A.2
    assert type(models["mlp_relu6"][0]().layers[1]).__name__ == "ReLU6"
    data = arithmetic.table_data("subtraction", 0, "quick")
    ((u, _),) = data.test.values()
    assert data.u_train.shape[1] == 100 and 1 <= data.u_train.min() and data.u_train.max() <= 2 <= u.min()


def test_data_follow_profile_and_overrides():
    data = identity.data(1, "quick", shifts=[5, 50])
    assert list(data.test) == [5, 50] and data.u_train.shape == (identity.settings("quick")["n_train"], 10)
    data = arithmetic.data("addition", 1, "quick", t=[3.0])
    assert list(data.test) == [3.0] and data.meta["weights"] is not None
    hidden = arithmetic.data("subtraction", 1, "quick", indices="per_sample")
    assert hidden.meta["weights"] is None and hidden.meta["floor"]["train"] > 1
    with pytest.raises(ValueError, match="got 'product'"):
        arithmetic.data("product", 0)


def test_implicit_model_learns_the_identity_and_stays_homogeneous():
    data = identity.data(0, "quick", shifts=[0, 200])
    build, recipe = identity.models(0, "quick")["implicit"]
    model = build()
    history = train(model, data.u_train, data.y_train, recipe=recipe, seed=0)
    errors = evaluate(model, data.test)
    assert errors[0] < 0.1 and history.reason == "completed"
    u = torch.from_numpy(data.test[0][0][:50]).double()
    exact = type(model).from_matrices(*(M.detach().double() for M in (model.A, model.B, model.C, model.D)), tol=1e-12)
    torch.testing.assert_close(exact(41 * u), 41 * exact(u), rtol=1e-8, atol=1e-8)


def toy_images(n=300, p=12, classes=4):
    rng = np.random.default_rng(0)
    centres = rng.random((classes, p))
    y = rng.integers(0, classes, 2 * n)
    u = (centres[y] + 0.05 * rng.standard_normal((2 * n, p))).astype(np.float32)
    meta = {"name": "toy", "classes": tuple("abcd")}
    return Dataset(u[:n], y[:n], {0: (u[n:], y[n:])}, meta)


def test_fashion_models_fit_the_data_given():
    models = fashion.models(0, "quick", in_features=784)
    assert count_parameters(models["explicit"][0]()) == mlp(784, 64, 32, 16, 10)
    n = fashion.N_STATES
    assert count_parameters(models["implicit"][0]()) == implicit(n, 784, 10)
    toy = toy_images()
    makers = (fashion.models, fashion.control_models)
    built = {maker: maker(0, "quick", in_features=12, n_classes=4) for maker in makers}
    assert [name for models in built.values() for name in models] == list(fashion.LABELS)
    for name, (build, recipe) in [item for models in built.values() for item in models.items()]:
        model = build()
        train(model, toy.u_train, toy.y_train, recipe=Recipe(**{**recipe.__dict__, "epochs": 40, "lr": 0.02}), seed=0)
        assert accuracy(model, toy.test)[0] > 0.95, name


def test_fashion_networks_are_trained_once(tmp_path, monkeypatch):
    monkeypatch.setenv("IMPLICIT_CACHE", str(tmp_path))
    toy = toy_images()
    first = fashion.trained(toy, 0, "quick")
    assert set(first) == {"implicit", "explicit"}
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.pt")}
    again = fashion.trained(toy, 0, "quick")
    assert len(files) == 2 and files == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.pt")}
    for name, (model, history) in first.items():
        assert history == again[name][1]
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again[name][0].parameters()))
