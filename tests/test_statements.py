"""Sentences of README and pages that say how an experiment came out, held against the committed runs."""

from statistics import median

import pytest

from reproduction.results import RESULTS, load, numbers


@pytest.fixture(scope="module")
def identity():
    return load(RESULTS / "ch5_identity.json")["values"]


@pytest.fixture(scope="module")
def arithmetic():
    return load(RESULTS / "ch5_arithmetic.json")["values"]


@pytest.fixture(scope="module")
def fashion():
    return load(RESULTS / "implicit_fashion.json")["values"]


def test_readme_figure(identity):
    """The linear model and the bias-free MLP stay below the implicit model, the MLP is orders of magnitude above."""
    assert median(numbers(identity["mse_ratio_linear_205"])) < 1 and median(numbers(identity["mse_ratio_mlp_bias_free_205"])) < 1
    assert min(numbers(identity["mse_ratio_mlp_205"])) > 1e3


def test_depth_follows_the_tolerance(identity):
    """The count grows with the shift under the absolute tolerance only."""
    absolute = [median(numbers(identity[f"iterations_absolute_shift_{s}"])) for s in (0, 40, 200)]
    relative = [median(numbers(identity[f"iterations_relative_shift_{s}"])) for s in (0, 40, 200)]
    assert absolute[0] < absolute[1] < absolute[2]
    assert max(relative) < 1.1 * min(relative)


def test_homogeneous_models_grow_with_the_square(identity):
    for model in ("implicit", "implicit_no_skip", "implicit_strict_upper", "mlp_bias_free"):
        assert numbers(identity[f"growth_{model}_40"]) == pytest.approx([81] * len(identity[f"growth_{model}_40"]), rel=1e-3), model
    for model in ("mlp", "mlp_10_9_9_10", "mlp_skip", "transformer"):
        assert min(numbers(identity[f"growth_{model}_40"])) > 100, model


def test_slopes_are_two_for_bias_free_models(arithmetic):
    for operation in ("addition", "subtraction"):
        for model in ("implicit", "implicit_no_skip", "implicit_strict_upper", "linear", "mlp_bias_free"):
            assert median(numbers(arithmetic[f"{operation}_slope_{model}"])) == pytest.approx(2, abs=0.15), (operation, model)
        assert median(numbers(arithmetic[f"{operation}_linear_over_implicit"])) < 1e-2


def test_sequential_encoder_is_a_constant(arithmetic):
    assert arithmetic["sequential_output_spread"] < 1e-4


def test_classifiers_reach_their_bar(fashion):
    assert min(numbers(fashion["accuracy_implicit"])) >= 0.86
    assert median(numbers(fashion["accuracy_implicit"])) > median(numbers(fashion["accuracy_linear"]))
    assert fashion["all_converged"] is True


@pytest.fixture(scope="module")
def resnet():
    return load(RESULTS / "ch3_resnet20_cifar.json")["values"]


def middle(values, key):
    return median(numbers(values[key]))


def test_resnet_sparsity_reproduces_and_accuracy_does_not(resnet):
    """In deviations the sparsities are near the printed ones and every literal model is at chance; the uniform scale ends at the network."""
    from reproduction.resnet_tables import published_row

    for kappa, key in ((0.005, "0p005"), (0.01, "0p01"), (0.05, "0p05"), (0.1, "0p1"), (0.5, "0p5"), (0.99, "0p99")):
        assert abs(middle(resnet, f"std_l1_rows_k{key}") - published_row(kappa)["sparsity, %"]) < 5
        assert max(numbers(resnet[f"std_l1_accuracy_k{key}"])) < 15
    assert middle(resnet, "network_radius_std") > 3 * 0.99
    assert resnet["uniform_rises"] is True and middle(resnet, "uniform_l1_drop_k0p99") < 1 and middle(resnet, "uniform_l1_rows_k0p99") < 5
    assert resnet["uncertified"] == 0 and resnet["network_accuracy"] == pytest.approx(91.05)


def test_resnet_matching_is_not_running(resnet):
    assert resnet["match_l1_forced_median"] > 0.4 and resnet["match_l1_own_median"] < 0.2
    assert resnet["match_student_own_median"] > 0.6


def test_resnet_controls_have_the_same_repairs(resnet):
    """Magnitudes with least squares on own states hold against the path down to a tenth of the weights, not below; random supports do not."""
    for share in ("0p1", "0p2", "0p3", "0p5"):
        assert middle(resnet, f"magnitude_refit_accuracy_{share}") > middle(resnet, f"path_kernels_accuracy_{share}") - 2, share
    assert middle(resnet, "path_kernels_accuracy_0p05") > middle(resnet, "magnitude_refit_accuracy_0p05") + 5
    for share in ("0p1", "0p2"):
        assert middle(resnet, f"random_refit_accuracy_{share}") < middle(resnet, f"magnitude_refit_accuracy_{share}") - 20
        assert middle(resnet, f"magnitude_accuracy_{share}") < middle(resnet, f"magnitude_refit_accuracy_{share}") - 20


def test_resnet_penalties_need_the_repairs(resnet):
    """The literal fits lose far more than those refitted on the model's own states; at knee 1 the perspective is l1."""
    assert middle(resnet, "drop_perspective_1") > 10 * middle(resnet, "drop_perspective_student_1")
    assert middle(resnet, "drop_perspective_2") > middle(resnet, "drop_perspective_student_2")
    assert min(numbers(resnet["one_point_perspective_student"])) > max(numbers(resnet["one_point_perspective"]))
    assert middle(resnet, "perspective_against_l1") < 0.5 and resnet["penalty_decades_uniform"] > 30


def test_resnet_kernels_need_few_images(resnet):
    assert middle(resnet, "plateau_kernels") < 2 and middle(resnet, "all_images") == 20
