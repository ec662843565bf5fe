"""The volatility task's models and forms: printed sizes, homogeneity of those without biases, and forms that mean what
they say."""

import numpy as np
import pytest
import torch

from data_gen.market.minutes import minute_market
from data_gen.market.volatility import to_variance
from reproduction.ch5_volatility import task
from reproduction.ch5_volatility.loss import RelativeRecipe
from reproduction.core.registry import ARCHITECTURES
from reproduction.core.scores import count_parameters, predict


@pytest.fixture(scope="module")
def bars():
    return minute_market(0, "2020-11-02", "2021-01-29")


def test_sizes_are_those_of_the_registry():
    built = {name: count_parameters(build()) for name, (build, _) in task.models("price", 0).items()}
    counted = {a.model: a.counted for a in ARCHITECTURES if a.task == "volatility"}
    assert {built["lstm"], built["implicit"], built["implicit_rnn"], built["mlp"]} == set(counted.values())
    assert built["transformer"] == 6218 and built["linear"] == 61


def test_every_form_trains_what_it_names():
    for name, form in task.FORMS.items():
        models = task.models(name, 1, "quick")
        assert tuple(models) == form.models
        assert all(isinstance(recipe, RelativeRecipe) == (form.loss == "mape") for _, recipe in models.values())
        assert not set(task.models(name, 1, "quick", sequential=False)) & set(task.SEQUENTIAL)


@pytest.mark.parametrize("name", ["mlp_bias_free", "implicit", "implicit_rnn", "neural_ode_bias_free"])
def test_models_without_biases_are_homogeneous_on_differences(name, bars):
    data = task.data("difference", 0, bars=bars, n_train=50)
    model = task.models("difference", 3)[name][0]().double()
    u = torch.as_tensor(data.u_train[:20]).double()
    torch.testing.assert_close(predict(model, 46.0 * u), 46.0 * predict(model, u), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["mlp", "lstm", "neural_ode"])
def test_the_others_are_not(name, bars):
    data = task.data("difference", 0, bars=bars, n_train=50)
    model = task.models("difference", 3)[name][0]().double()
    u = torch.as_tensor(data.u_train[:20]).double()
    far, near = predict(model, 46.0 * u), 46.0 * predict(model, u)
    assert (far - near).abs().max() > 0.1 * near.abs().max()


def test_forms_agree_on_the_truth(bars):
    variance = None
    for form in ("price", "raw", "price_sd", "difference"):
        data = task.data(form, 0, bars=bars, n_train=300)
        truth = to_variance(data.test[2021][1], data.meta)
        np.testing.assert_allclose(truth, data.meta["variance"][2021], rtol=2e-5, atol=1e-12)
        variance = data.meta["variance"]["train"] if variance is None else variance
        np.testing.assert_array_equal(variance, data.meta["variance"]["train"])  # the same draw in every form


def test_relative_loss_leaves_out_what_did_not_move(bars):
    import dataclasses

    vwap = bars.vwap.copy()
    vwap[bars.day == 3] = 2.0
    still = dataclasses.replace(bars, vwap=vwap)
    data = task.data("price_mape", 0, bars=still, n_train=600)
    assert data.meta["without_movement"] > 5 and data.meta["variance"]["train"].min() >= 1e-9
    assert (
        len(data.u_train) == len(data.meta["history"]["train"]) == 600 - data.meta["without_movement"]
        and (data.y_train > 0).all()
    )


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="form must be one of price"):
        task.models("returns", 0)
    with pytest.raises(ValueError, match="profile must be"):
        task.settings("huge")
