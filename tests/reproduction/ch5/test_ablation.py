"""The four tasks in one form: sizes, matched weights, variants that differ in one thing, training end to end."""

import numpy as np
import pytest
import torch

from reproduction.ch5_depth import ablation
from reproduction.ch5_depth.compute import largest_row_norm
from reproduction.core.scores import count_parameters


@pytest.mark.parametrize(
    "name, count", [("addition", 1470), ("subtraction", 1470), ("argmax", 2116), ("average", 1764)]
)
def test_sizes_are_the_papers(name, count):
    task = ablation.task_of(name)
    assert ablation.weights(task.n, task.p, task.q, "full") == count
    assert count_parameters(ablation.build(name, "full", 0)) == count
    # the diagonal and what lies below it do not act
    strict, matched = (ablation.build(name, variant, 0) for variant in ("strict_upper", "strict_upper_matched"))
    acting = [count_parameters(model) - model.n_states * (model.n_states + 1) // 2 for model in (strict, matched)]
    assert acting == [ablation.weights(model.n_states, task.p, task.q, "strict_upper") for model in (strict, matched)]
    assert abs(acting[1] - count) < task.p + task.q + matched.n_states


@pytest.mark.parametrize("name", ablation.TASKS)
def test_data_fit_the_models(name):
    data, task = ablation.data(name, 3, "quick"), ablation.task_of(name)
    assert next(iter(data.test)) == task.train and data.u_train.shape[1] == task.p
    output = ablation.build(name, "full", 0)(torch.as_tensor(data.u_train[:5]))
    assert output.shape == (5, task.q)
    if name == "argmax":
        assert (data.y_train == data.u_train.argmax(axis=1)).all()
        assert data.test[100.0][0].max() > 90
    else:
        assert data.y_train.shape == (len(data.u_train), task.q)


def test_only_the_free_variant_leaves_the_ball():
    free, bound = ablation.build("addition", "strict_upper_free", 0), ablation.build("addition", "strict_upper", 0)
    for model in (free, bound):
        with torch.no_grad():
            model.A.add_(1.0)
        model.project_()
        assert not model.A.detach().tril().any()
    assert largest_row_norm(free) > 10 and largest_row_norm(bound) <= 0.95 + 1e-6
    assert free.certificate()  # every strictly triangular A is well-posed: its only eigenvalue is 0


def test_training_learns_and_double_precision_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("IMPLICIT_CACHE", str(tmp_path))
    options = {"epochs": 3, "keys": [2.0, 20.0]}
    run = ablation.run("addition", "linear", 7, "quick", **options)
    again = ablation.run("addition", "linear", 7, "quick", cached=True, **options)
    assert run.measured == again.measured and run.at(20.0) == run.measured[1]
    assert run.history.loss[-1] < run.history.loss[0]
    double = ablation.run(
        "addition", "full", 7, "quick", dtype="float64", epochs=1, keys=[2.0], after=("size", lambda m: m.n_states)
    )
    assert double.model.A.dtype == torch.float64 and double.history.evaluation == [20]
    with pytest.raises(KeyError, match="3"):
        run.at(3)


def test_settings_of_the_solver_are_part_of_the_cache_key():
    from implicit_models.model import ImplicitModel

    a, b = (ablation.solver_settings(ImplicitModel(2, 1, 3, tol=tol, seed=0)) for tol in (1e-3, 1e-6))
    assert a != b and ablation.solver_settings(torch.nn.Linear(2, 1)) == {}


@pytest.mark.parametrize(
    "call",
    [
        lambda: ablation.data("product", 0),
        lambda: ablation.build("addition", "lower", 0),
        lambda: ablation.settings("long"),
        lambda: ablation.run("addition", "full", 0, "quick", dtype="half"),
    ],
)
def test_unknown_names_are_refused(call):
    with pytest.raises(ValueError, match="must be"):
        call()


def test_argmax_is_measured_by_accuracy():
    data = ablation.data("argmax", 0, "quick", keys=[1.0, 5.0])
    identity = torch.nn.Identity()
    assert ablation.measure(identity, "argmax", data.test) == [1.0, 1.0]
    assert np.isclose(ablation.measure(lambda_zero(), "argmax", data.test)[0], (data.test[1.0][1] == 0).mean())


def lambda_zero():
    class Zero(torch.nn.Module):
        def forward(self, u):
            return torch.zeros(len(u), 10)

    return Zero()
