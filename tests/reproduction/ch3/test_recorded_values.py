"""What the notebooks of chapter 3 read off their measurements, on small cases by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from reproduction.ch3_bisection import measures as bisection
from reproduction.ch3_elimination import measures as elimination
from reproduction.ch3_elimination import quake_measures
from reproduction.ch3_newsgroups import measures as newsgroups
from reproduction.ch3_perspective import measures as perspective
from reproduction.ch3_resnet20_cifar import measures as resnet
from reproduction.ch3_resnet20_cifar import measures_of_work as work
from reproduction.ch3_scaling import measures as scaling
from reproduction.ch3_sim_fashion import measures as attacks


def test_bisection_reads_powers_and_units():
    squares = [math.log(1 / eps) ** 2 for eps in bisection.EPSILONS]
    values = bisection.recorded_sweeps({"cold": squares})
    assert values["log_exponent_cold"] == pytest.approx(2)
    assert values["inner_epochs_cold"] == pytest.approx((6 * math.log(10)) ** 2)
    cases = [{"solves": n, "predicted": p, "published": 7.0, "gap": 0.5} for n, p in ((5, 5), (9, 8), (12, 12))]
    values = bisection.recorded_units(cases)
    assert values["unit_solves_f100"] == 9 and values["unit_solves_as_predicted"] is True
    cases[0]["predicted"] = 3
    assert bisection.recorded_units(cases)["unit_solves_as_predicted"] is False
    assert bisection.named("warm/solved/0.5") == "warm_solved_0p5"


def test_attacks_orders_and_best_points():
    def fit(sparsity, near, far):
        return {"sparsity": sparsity, "at_0.004": near, "at_0.008": far}

    points = {("t2", 300): fit([40, 50], [70, 71], [60, 61]), ("t2", 100): fit([60, 55], [65, 72], [50, 40])}
    teacher = [{"at_0.004": 68, "at_0.008": 55}, {"at_0.004": 70, "at_0.008": 45}]
    values = attacks.table_orders(points, teacher)
    assert values["t2_sparser_with_fewer"] is True
    assert values["t2_at_0.004_rises_with_samples"] is False and values["t2_at_0.008_rises_with_samples"] is True
    assert values["t2_median_at_0.004_rises_with_samples"] is True
    assert values["worst_gain_at_0.008"] == ([-5, -5], "points")
    assert values["best_gain_at_0.004"] == ([2, 2], "points")
    curve = dict.fromkeys(attacks.SHOWN, [1, 2, 3]) | {"at_0.008": [5, 9, 7], "sparsity": [10, 20, 30]}
    best = attacks.best_points({"l1": [curve]})
    assert best["l1"]["sparsity"] == [20] and best["l1"]["at_0.008"] == [9]
    assert attacks.recorded_best(best) == {"best_l1_sparsity": [20], "best_l1_clean": [2], "best_l1_at_0.008": [9]}


def test_elimination_drops_counts_and_times():
    def curve(accuracy, seconds):
        return {
            "share": [0.0, 50.0, 90.0],
            "accuracy": accuracy,
            "head": [80.0, 79.0, 70.0],
            "states_kept": [9, 5, 1],
            "seconds": seconds,
            "failed": [0, 1, 0],
        }

    curves = {("wide", order): [curve([82.0, 81.0, 60.0], [4.0, 1.0, 0.5])] for order in ("correlation", "random")}
    values = elimination.drops(curves)
    assert values["drop_accuracy_90"] == ([22.0], "points") and values["drop_random_head_50"] == ([1.0], "points")
    assert "drop_head_95" not in values
    assert elimination.states_kept(curves)["states_kept_wide_random_90"] == [1]
    assert "states_kept_wide_random_0" not in elimination.states_kept(curves)
    values = elimination.times(curves, {"wide": [{"seconds": 8.0}]})
    assert values["refit_time_wide_90"] == [0.125] and values["screening_time_wide"] == [2.0]
    values, recorded = elimination.recorded_removal(curves)
    assert values["accuracy_wide_correlation_90"] == ([60.0], "%") and values["failed_rows"] == 2
    assert list(recorded) == ["removal/wide/correlation", "removal/wide/random"]
    lost = quake_measures.lost_of_images({"head_wide_correlation_0": [90.0], "head_wide_correlation_90": [50.0]})
    assert lost == {"fashion_lost_90": ([50.0], "%")} and quake_measures.lost_of_images({}) == {}


def test_text_classifier_sizes_and_plateaus():
    sim = [
        {"sparsity": [-5.0, 80.0, 40.0], "drop": [1.0, 6.0, 2.0]},
        {"sparsity": [5.0, 70.0, 30.0], "drop": [1.0] * 3},
    ]
    first = {"sparsity": [-5.0, 80.0, 40.0], "drop": [1.0, 6.0, 2.0]}
    sim = [first, {"sparsity": [5.0, 70.0, 30.0], "drop": [1.0] * 3}]
    kappas = [0.99, 0.05, 0.5]
    assert newsgroups.smaller(sim, kappas) == [1, 2]  # in the order of the radii
    pruned = [{"drop": [10.0, 20.0]}, {"drop": [30.0, 40.0]}]
    curves = {"sim": sim} | dict.fromkeys(newsgroups.PRUNED, pruned)
    values = newsgroups.pruned_drops(curves, kappas)
    assert values["magnitude_drop_k0p05"] == [10.0, 30.0] and values["magnitude_layer_drop_k0p5"] == [20.0, 40.0]
    assert newsgroups.best_values(sim, [1, 2], kappas)["best_sparse_drop"] == ([2.0, 1.0], "points")
    assert newsgroups.best_values(sim, [], kappas) == {}
    parts = {"0.05": [[60.0, 79.5, 80.0]], "0.1": [[79.5, 79.8, 80.0]], "dense": [[40.0, 50.0, 85.0]]}
    values = newsgroups.part_values(parts, [1.0, 0.1, 0.5])
    assert values["plateau_k0p05"] == ([50.0], "%") and values["plateau_dense"] == ([100.0], "%")
    assert values["plateau_all"] == ([50.0], "%") and values["share_gain_dense"] == ([45.0], "points")


def test_perspective_supports_and_shares():
    one = {"sparsity": [10.0, 50.0], "drop": [0.0, 4.0], "A": [3, 2], "B": [5, 4]}
    other = one | {"drop": [1.0, 5.0]}
    values = perspective.support_values({("uniform", "l1"): [one], ("uniform", "perspective"): [other]})
    assert values["same_support_uniform_perspective"] is True
    assert values["difference_uniform_perspective"] == ([pytest.approx(1.0)], "points")
    parts = {("sparsity", "l1", 0.03): [[60.0, 40.0]], ("sparsity", "perspective", 0.03): [[64.0, 64.0]]}
    values = perspective.part_values(parts | {("drop", "l1", 0.03): [[-9.0, -9.0]]})
    assert values["sparsity_falls_with_samples_l1_w0p03"] is True
    assert values["sparsity_falls_with_samples_perspective_w0p03"] is False
    assert values["sparsity_above_l1_perspective_w0p03"][0].tolist() == [14.0]
    assert values["least_sparsity"] == (40.0, "%")
    assert perspective.small_share([1.0, 0.05, 0.15, 0.3]) == 0.15 and perspective.small_share([0.5, 0.3]) == 0.3


def test_scaling_speed_ups():
    recorded = {"rows_serial": [8.0], "rows_threads": [4.0], "rows_ray": [10.0], "available_cores": [2.0]}
    recorded |= {"start_serial": [0.0], "start_threads": [1.0], "start_ray": [5.0]}
    values = scaling.speed_ups(recorded, ["serial", "threads", "ray"], 16)
    assert values["speedup_threads"] == [2.0] and values["efficiency_threads"] == [1.0]
    assert values["speedup_with_start_threads"] == [1.6]
    assert values["pays_from_threads"] == (4.0, "rows") and values["pays_from_ray"] == (math.inf, "rows")
    assert values["total_ray"] == (15.0, "s") and values["order_as_printed"] is False


def test_resnet_best_settings_and_curves():
    def point(rows, accuracy, head):
        return {"rows": rows, "accuracy": accuracy, "head": head}

    points = {
        "rows, by effect, lam 0.2": [point(90.0, 50.0, 70.0)],
        "rows, keep 0.1": [point(88.0, 60.0, 55.0)],
        "rows, keep 0.5": [point(50.0, 91.8, 91.0)],
    }
    values = resnet.best_values(points, 92.0)
    assert values["best_at_ninety"] == (70.0, "%") and values["best_effect_at_ninety"] == (70.0, "%")
    assert values["best_alike_at_ninety"] == (60.0, "%") and values["loss_at_ninety"] == (22.0, "points")
    assert values["half_a_point_rows"] == (50.0, "%")
    assert math.isnan(resnet.best_values({"rows, by effect": [point(90.0, 1.0, 2.0)]}, 92.0)["best_alike_at_ninety"][0])
    values = {f"std_l1_{key}_k{k}": [v, v + 1] for key, v in (("rows", 1), ("kernels", 2), ("head", 3)) for k in "12"}
    assert resnet.radius_curves(values, "std", [1, 2], "l1", "head")[1] == {
        "rows": [2, 2],
        "kernels": [3, 3],
        "accuracy": [4, 4],
    }


def test_resnet_parts_of_the_data():
    case = SimpleNamespace(base=90.0, given=SimpleNamespace(images=np.zeros(1000)))
    images = {"refit": [100, 500], "kernels": [50, 100, 900], "rows": []}
    lines = {"refit/0.05": [10.0, 12.0], "kernels": [80.0, 90.5, 91.0], "sparsity": [30.0, 40.0, 50.0], "rows": []}
    values = work.data_values(case, {"images": images, "lines": lines})
    assert values["plateau_kernels"] == (0.2, "% of the training images")  # 100 of 50,000
    assert values["data_gain_k0p05"] == (2.0, "points") and math.isnan(values["rows_gain"][0])
    assert values["small_data_no_drop"] == (40.0, "%")  # 900 images are more than a fifth
