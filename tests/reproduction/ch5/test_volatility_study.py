"""The volatility study on a small budget: what is scored, recorded, tabulated and drawn."""

import numpy as np
import pytest
import torch

from data_gen.market.minutes import minute_market
from reproduction.book.results import Results
from reproduction.ch5_volatility import show as volatility_figures
from reproduction.ch5_volatility import tables as volatility_tables
from reproduction.ch5_volatility import task
from reproduction.ch5_volatility.compute import (
    SIDES,
    VolatilityStudy,
    flushed_subnormals,
    follow,
    real_samples,
    run_volatility,
)
from reproduction.ch5_volatility.scores import SCORE_LABELS


@pytest.fixture(scope="module")
def real():
    return minute_market(9, "2021-10-01", "2021-11-30")


@pytest.fixture(scope="module")
def study(real):
    return run_volatility("quick", [5], ["price", "difference"], n_train=300, epochs_scale=0.1, real=real)


@pytest.fixture(scope="module")
def results(study):
    results = Results("ch5_volatility", profile="quick", seeds=[5])
    values, curves = volatility_tables.study_values(study)
    results.record_all(volatility_tables.year_table([5])[0] | values)
    results.record_curves(curves)
    results.record_all(volatility_tables.claim_values(study, volatility_tables.published_values()))
    return results


def test_everything_is_scored_on_both_sides(study):
    assert set(study.scores) == {"control", "price", "difference"}
    for group, names in (("price", task.FORMS["price"].models), ("difference", task.FORMS["difference"].models)):
        assert set(study.scores[group]) == set(names)
    for models in study.scores.values():
        for sides in models.values():
            assert set(sides) == set(SIDES) and all(
                set(values) == set(SCORE_LABELS) and len(values["mape"]) == 1 for values in sides.values()
            )


def test_controls_are_what_they_say(study):
    for side in SIDES:
        assert study.score("control", "zero", side, "mape") == [1.0] and study.score(
            "control", "zero", side, "not_positive"
        ) == [1.0]
    assert study.score("control", "mean", "train", "mean_ratio")[0] == pytest.approx(1)
    assert study.score("control", "mean", 2021, "mean_ratio")[0] < 0.1  # the jump


def test_log_har_carries_over_and_prices_do_not(study):
    assert study.score("control", "log_har", 2021, "log_r2")[0] > 0.5
    assert study.score("control", "price_regression", 2021, "log_r2")[0] < 0


def test_records_hold_what_figures_and_claims_read(results):
    values = results.values
    assert (
        values["train_first"] == "2015-02-02"
        and values["train_last"] == "2020-12-31"
        and values["test_last"] == "2021-12-31"
    )
    assert values["look_back"] == 60 and values["horizon"] == 10 and values["mape_of_zero"] == [1.0]
    assert values["published_below_zero_forecast"] == 0
    assert values["published_quotient_mlp"] == pytest.approx(2.87 / 1.71) and values[
        "published_train_quotient_mlp"
    ] == pytest.approx(5.51 / 2.61)
    assert len(values["order_in_2021"].split(" < ")) == 5 and 10 < values["jump_mean"][0] < 400
    assert 0 <= values["models_with_lower_mape_in_2021"][0] <= 5


def test_tables_and_figures(study, results):
    assert "control: 0" in volatility_tables.score_table(study, "price").index
    table = volatility_tables.published_table(study, volatility_tables.published_values())
    assert (
        table.loc[("2021", "MLP"), "published"] == "2.87" and table.loc[("training", "control: 0"), "measured"] == "1"
    )
    assert table.loc[("2021", "MLP"), "unscaled"] == ""
    assert len(volatility_tables.real_table(study)) == 2 + len(task.FORMS["difference"].models)
    import matplotlib.pyplot as plt

    content = results.content()
    for draw in (
        volatility_figures.jump_figure,
        volatility_figures.table_figure,
        volatility_figures.forms_figure,
        volatility_figures.follow_figure,
        volatility_figures.calibration_figure,
    ):
        figure = draw(content)
        assert all(axes.lines for axes in figure.axes)
        plt.close(figure)


def test_a_transformer_of_width_one_is_a_constant(study):
    values, _ = volatility_tables.transformer_defect(study, 5)
    assert values["transformer_spread_as_trained"] < 1e-12 and values["transformer_spread_fresh"] < 1e-12
    assert values["transformer_spread_norm_first"] > 0.1 and values["transformer_bent_norm_first"] < 1e-9


def test_homogeneity_of_trained_models(study):
    values, _ = volatility_tables.homogeneity_table(study, "quick", n_train=300)
    for name in ("mlp_bias_free", "implicit", "implicit_rnn", "neural_ode_bias_free"):
        assert values[f"homogeneity_{name}"][0] < 1e-6, name
    assert values["homogeneity_lstm"][0] > 0.1


def test_facts_with_and_without_real_bars(real):
    values, with_real = volatility_tables.facts_table(5, real)
    assert with_real.shape[1] == 4 and volatility_tables.facts_table(5, None)[1].shape[1] == 3
    assert "fact/real, spring 2022/share of r = 0" in values


def test_real_samples_do_not_overlap(real):
    past, coming = real_samples(real)
    assert past.shape[1] == 60 and len(past) == len(coming)
    first = real.windows(70, 10)
    assert np.diff(real.position[first]).min() == 10


def test_followed_series_are_daily_means():
    study = VolatilityStudy([0])
    days = np.array(["2021-01-04", "2021-01-04", "2021-01-05"], dtype="datetime64[D]")
    follow(study, "actual", 0, days, np.array([1.0, 3.0, 5.0]))
    sessions, values = study.daily["actual"][0]
    assert [str(day) for day in sessions] == ["2021-01-04", "2021-01-05"] and values == [2.0, 3.5]


def test_subnormals_are_flushed_inside_the_block_only():
    tiny = torch.tensor([1e-40])
    with flushed_subnormals():
        inside = (tiny * 1.0).item()
    assert inside == 0 and (tiny * 1.0).item() > 0
