"""What notebooks record, from studies whose numbers are chosen by hand."""

import pytest
import torch

from reproduction import ch5_identity as identity
from reproduction.ch5_arithmetic import compute as arithmetic
from reproduction.ch5_depth.trainings import failures
from reproduction.ch5_feedback import compute as feedback
from reproduction.ch5_rolling_argmax.compute import leads
from reproduction.ch5_rolling_argmax.study import AccuracyStudy
from reproduction.ch5_rolling_average import task as rolling
from reproduction.ch5_spiky.measures import recorded_errors
from reproduction.core.recipe import History
from reproduction.core.study import Study
from reproduction.models.linear import Linear


def test_the_sentences_of_the_identity_task_are_ratios_seed_by_seed():
    errors = {
        "implicit": [[1.0, 2.0], [4.0, 8.0]],
        "mlp": [[10.0, 40.0], [8.0, 80.0]],
        "mlp_10_9_9_10": [[3.0, 30.0], [40.0, 80.0]],
        "transformer": [[50.0, 50.0], [50.0, 50.0]],
        "linear": [[2.0, 1.0], [4.0, 16.0]],
        "mlp_bias_free": [[9.0, 9.0], [9.0, 9.0]],
    }
    found = identity.sentences(Study([0, 1], errors=errors, shifts=[0, 200]), "quick")
    assert found["implicit_max_mse_to_shift_25"] == [1.0, 4.0]
    assert found["mse_mlp_shift_200"] == [40.0, 80.0] and "mse_mlp_shift_40" not in found
    assert found["mse_ratio_mlp_205"] == [20.0, 10.0] and found["mse_ratio_linear_205"] == [0.5, 2.0]
    assert found["lowest_ratio_of_baselines"] == [3.0, 2.0] and found["lowest_ratio_of_controls"] == [0.5, 1.0]
    assert (found["lowest_shift"], found["highest_shift"]) == (0, 200)


def test_the_error_of_a_linear_map_grows_as_the_square_and_that_of_the_identity_does_not():
    exact = Linear(identity.DIM, identity.DIM, seed=0)
    with torch.no_grad():
        for weight in exact.parameters():
            weight.copy_(torch.eye(identity.DIM))
    study = Study([0], models={"linear": [Linear(identity.DIM, identity.DIM, seed=0)], "exact": [exact]})
    found = identity.growth(study, "quick")
    for shift in identity.FAR:
        assert found[f"growth_linear_{shift}"] == pytest.approx([((5 + shift) / 5) ** 2])
        assert found[f"growth_exact_{shift}"] == "no error to grow"


def test_leads_are_the_smallest_over_the_scales_beyond_one():
    names = ("implicit", "implicit_rnn", "lstm", "linear", "mlp_bias_free", *rolling.LABELS_GIVEN)
    errors = {name: [[0.5, 0.5, 0.5]] for name in names}
    errors["implicit"], errors["lstm"] = [[0.9, 0.8, 0.7], [0.1, 0.1, 0.1]], [[0.9, 0.6, 0.3]]
    errors["linear"] = errors["mlp_bias_free"] = [[0.9, 0.9, 0.9], [0.2, 0.2, 0.2]]
    errors["transformer_no_pe"] = [[0.1, 0.55, 0.4]]
    found = leads(AccuracyStudy([0, 1], errors=errors, shifts=[1.0, 10.0, 1e5]))
    assert found["implicit_lead_over_best_baseline"] == pytest.approx([0.2])  # .8 - .6 and .7 - .5
    assert found["implicit_lead_over_transformers"] == pytest.approx([0.2])  # .8 - .55 and .7 - .5
    assert found["no_pe_minus_other_transformers"] == pytest.approx([-0.1])
    assert found["lstm_drop_points"] == pytest.approx([0.6]) and found["lstm_drop_share"] == pytest.approx([2 / 3])
    assert found["linear_minus_implicit"] == pytest.approx([0.1, 0.1])
    assert found["accuracy_lstm_t10"] == [0.6] and found["spread_over_scales_lstm"] == pytest.approx([0.6])


def test_a_quadratic_error_has_slope_two_beyond_the_training_range():
    t = [2.0, 10.0, 100.0, 1e5]
    errors = {"linear": [[9.0, *(value**2 for value in t[1:])]], "constant": [[1.0] * 4]}
    found = arithmetic.slopes({"addition": Study([0], errors=errors, shifts=t)})
    assert found["addition_slope_linear"] == pytest.approx([2.0])
    assert found["addition_line_r2_linear"] == pytest.approx([1.0])
    assert arithmetic.slopes({"addition": Study([0], errors={"linear": [[1.0, 2.0]]}, shifts=t[:2])}) == {}


def test_leads_in_arithmetic_are_over_the_papers_range_and_over_what_a_seed_trained():
    models = ("implicit", "linear", *arithmetic.PAPER)
    errors = {name: [[8.0, 8.0, 8.0], [8.0, 8.0, 8.0]] for name in models}
    errors["implicit"] = [[1.0, 2.0, 4.0], [2.0, 2.0, 2.0]]
    errors["nalu"] = [[0.5, float("inf"), float("nan")], [6.0, 90.0, 80.0]]
    errors["transformer_depthwise"] = [[9.0, 5.0, 9.0]]  # trained by the first seed alone
    fits = {name: [row[0] for row in rows] for name, rows in errors.items()}
    done = {"nalu": [History(reason="diverged"), History(reason="completed")]}
    study = Study([0, 1], errors=errors, train_errors=fits, histories=done, shifts=[2.0, 10.0, 1e5])
    found = arithmetic.sentences("addition", study)
    assert list(found["addition_lowest_ratio_of_baselines"]) == [0.5, 3.0]
    assert list(found["addition_lowest_ratio_beyond_training"]) == [2.0, 4.0]  # 8 / 4, below 5 / 2; 8 / 2
    assert list(found["addition_nalu_over_worst_other"]) == [float("inf"), 10.0]
    assert found["addition_lowest_train_ratio"] == [0.5, 3.0]
    assert found["addition_transformer_train_ratio"] == [8.0, 4.0]
    assert found["addition_nalu_diverged_in_training"] == [1.0, 0.0]


def history(counts, residuals):
    return History(iterations_max=counts, residual_max=residuals)


def test_failures_are_shares_of_epochs_and_their_extremes():
    good, half = history([10, 25], [1e-7, 1e-7]), history([300, 40], [1e-3, 1e-7])
    bad = history([300, 300], [1e-3, 1e-3])
    made = {"addition": [half, good], "subtraction": [bad, good], "addition_table": [bad, bad]}
    found = failures({(name, dtype): runs for dtype in ("float32", "float64") for name, runs in made.items()})
    assert found["addition_failed_epochs_float32"] == ([50.0, 0.0], "%")
    assert found["addition_largest_iterations_float64"] == [300, 25]
    assert found["addition_epochs_over_20"] == ([100.0, 50.0], "%")
    assert found["failed_epochs_float64"] == ([100.0], "%") and found["failed_epochs_both"] == ([50.0, 0.0], "%")


def test_what_feedback_gains_far_away():
    class Run:
        def __init__(self, value):
            self.value = value

        def at(self, key):
            return self.value

    made = {}
    for name in feedback.ablation.TASKS:
        unit = 0.01 if name == "argmax" else 1.0
        for variant, values in dict.fromkeys(feedback.VARIANTS, (3, 4)).items():
            made[name, variant] = [Run(unit * value) for value in values]
    made["addition", "strict_upper"] = [Run(6.0), Run(2.0)]
    made["argmax", "strict_upper"] = [Run(0.01), Run(0.03)]
    found = feedback.far_from_training(made, 100.0, 2)
    assert found["addition_gain_over_strict_upper"] == ([2.0, 0.5], "")
    values, unit = found["argmax_gain_over_strict_upper"]
    assert values == pytest.approx([2.0, 1.0]) and unit == "points"
    assert found["argmax_full_far"] == (pytest.approx([3.0, 4.0]), "%")
    assert found["argmax_seeds_where_feedback_helps"] == (2, "of 2 seeds")
    assert found["tasks_where_feedback_helps"] == 1 and found["tasks_where_every_seed_helps"] == 1


def test_recorded_errors_have_the_unit_of_their_scale():
    values = {"z-score units": [1.0], "[0, 1] units": [0.1]}
    found = recorded_errors({"sd .5": {"lstm": values}, "no noise": {"lstm": values}})
    assert found == {
        "sd .5/lstm": ([1.0], "z-score units"),
        "unit_lstm": ([0.1], "[0, 1] units"),
        "no noise/lstm": ([1.0], "z-score units"),
    }
