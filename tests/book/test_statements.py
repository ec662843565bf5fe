"""Sentences of README and pages that say how an experiment came out, and that no claim covers: held against the
committed full runs, with the conditions of claims (a name is the median over seeds, with _min and _max)."""

from reproduction.book.conditions import evaluate, names_of
from reproduction.book.results import RESULTS, load

SHARES = ("0p1", "0p2", "0p3", "0p5")
# notebook, name=key of each value, condition
STATEMENTS = [
    # README's figure: the linear model and the MLP without biases stay below the implicit model, the MLP far above.
    ("ch5_identity", "a=mse_ratio_linear_205 b=mse_ratio_mlp_bias_free_205", "a < 1 and b < 1"),
    ("ch5_identity", "a=mse_ratio_mlp_205", "a_min > 1e3"),
    # Depth: the count grows with the shift under the absolute tolerance only.
    *[
        ("ch5_identity", " ".join(f"i{s}=iterations_{kind}_shift_{s}" for s in (0, 40, 200)), condition)
        for kind, condition in (
            ("absolute", "i0 < i40 < i200"),
            ("relative", "i40 < 1.1 * i0 and i200 < 1.1 * i0 and i0 < 1.1 * i40 and i0 < 1.1 * i200"),
        )
    ],
    # Homogeneous models grow with the square of the half-width, others faster.
    *[
        ("ch5_identity", f"a=growth_{model}_40", "abs(a_min / 81 - 1) < 1e-3 and abs(a_max / 81 - 1) < 1e-3")
        for model in ("implicit", "implicit_no_skip", "implicit_strict_upper", "mlp_bias_free")
    ],
    *[
        ("ch5_identity", f"a=growth_{model}_40", "a_min > 100")
        for model in ("mlp", "mlp_10_9_9_10", "mlp_skip", "transformer")
    ],
    *[
        ("ch5_arithmetic", f"a={operation}_slope_{model}", "abs(a - 2) < 0.15")
        for operation in ("addition", "subtraction")
        for model in ("implicit", "implicit_no_skip", "implicit_strict_upper", "linear", "mlp_bias_free")
    ],
    ("ch5_arithmetic", "a=addition_linear_over_implicit b=subtraction_linear_over_implicit", "a < 1e-2 and b < 1e-2"),
    ("ch5_arithmetic", "a=sequential_output_spread", "a < 1e-4"),
    ("implicit_fashion", "a=accuracy_implicit b=accuracy_linear", "a_min >= 0.86 and a > b"),
    ("implicit_fashion", "a=all_converged", "a == True"),
    # Depth: the law is met without a fit; triangular models have bounded depth, smaller balls less.
    *[
        ("ch5_depth", f"d={name}_scaling_difference g={name}_growth_relative u={name}_untrained_growth", condition)
        for name in ("addition", "subtraction", "argmax")
        for condition in ("d_max == 0 and g_max < 1.02 and u_min > 1.2",)
    ],
    *[
        ("ch5_depth", f"a={name}_strict_upper_iterations_farthest", f"a_max <= {n + 1}")
        for name, n in (("addition", 20), ("subtraction", 20), ("argmax", 36), ("average", 32))
    ],
    ("ch5_depth", "q=argmax_kappa_half_quality r=argmax_kappa_half_depth_ratio", "q_min > 0.99 and r_min > 2"),
    *[
        ("ch5_depth", f"a={name}_count_follows_difficulty", "abs(a) < 0.5")
        for name in ("addition", "subtraction", "argmax", "average")
    ],
    (
        "ch5_depth",
        "s=addition_table_failed_epochs_float32 d=addition_table_failed_epochs_float64",
        "s > 33 and s_min > d_max == 0",
    ),
    ("ch5_depth", "e=gradient_error_implicit_trained j=gradient_error_jfb_trained", "e_max < 1e-5 < j_min"),
    ("ch5_depth", "j=backward_jfb_over_implicit p=backward_phantom_over_implicit", "j < 2 and p < 2"),
    ("ch5_depth", "b=bytes_implicit m=memory_unrolled_over_implicit", "b_min == b_max == 80 and m_min > 10"),
    # Feedback is crucial nowhere, and the linear map is far below every implicit model.
    ("ch5_feedback", "a=tasks_where_every_seed_helps b=argmax_gain_over_strict_upper", "a == 0 and b < 0.5"),
    *[
        ("ch5_feedback", f"g={name}_gain_over_strict_upper s={name}_slope_full", "0.8 < g < 1.25 and abs(s - 2) < 0.06")
        for name in ("addition", "subtraction")
    ],
    *[
        ("ch5_feedback", f"a={name}_linear_far b={name}_full_far", "a_max < 1e-3 * b_min")
        for name in ("addition", "subtraction", "average")
    ],
    # Tutorial: ahead of pruning and of shared kernels with as many weights; smaller in a file; no faster.
    *[
        ("tutorial_sparsify", f"a={share}_share b={share}_magnitude_norm c={share}_shared", "a_min > b_max and a > c")
        for share in ("0.3", "0.2", "0.1", "0.05")
    ],
    ("tutorial_sparsify", "s=ms_0.05 n=ms r=times_smaller_0.1", "0.8 < s / n < 1.25 and r > 5"),
    # Rows of S of the residual network: one map whatever the class and the weights; the gradient leads in every row.
    ("ch4_resnet20_cifar", "m=map_rows_least r=moved_largest", "m_min > 0.99999 and r < 1e-15"),
    ("ch4_resnet20_cifar", "u=map_first_with_untrained s=map_first_with_shuffled", "u_min > 0.95 and s_min > 0.95"),
    ("ch4_resnet20_cifar", "a=pixels_top_loss b=pixels_random_loss", "a_max < b_min"),
    *[
        (
            "ch4_resnet20_cifar",
            f"l={protocol}_rows_S_leads_gradient a={protocol}_S_less_random_10 b={protocol}_S_less_random_20"
            f" c={protocol}_S_less_random_30",
            "l == 0 and a_max < -10 and b_max < -10 and c_max < -10",
        )
        for protocol in ("replace", "small", "sign")
    ],
    (
        "ch4_resnet20_cifar",
        "s=radius_sensitivity_largest i=radius_interval_largest t=matrix_cpu_seconds m=matrix_memory_mb",
        "s < i < 1e-12 and t < 0.3 and m < 1000",
    ),
    # Sparsity of the residual network reproduces and accuracy does not; controls have the same repairs.
    ("ch3_resnet20_cifar", "a=network_radius_std", "a > 3 * 0.99"),
    ("ch3_resnet20_cifar", "a=uniform_l1_drop_k0p99 b=uniform_l1_rows_k0p99", "a < 1 and b < 5"),
    ("ch3_resnet20_cifar", "a=match_l1_forced_median b=match_l1_own_median", "a_min > 0.4 and b_max < 0.2"),
    *[
        ("ch3_resnet20_cifar", f"a=magnitude_refit_accuracy_{s} b=path_kernels_accuracy_{s}", "a > b - 2")
        for s in SHARES
    ],
    ("ch3_resnet20_cifar", "a=path_kernels_accuracy_0p05 b=magnitude_refit_accuracy_0p05", "a > b + 5"),
    *[
        (
            "ch3_resnet20_cifar",
            f"r=random_refit_accuracy_{s} p=magnitude_accuracy_{s} m=magnitude_refit_accuracy_{s}",
            "r < m - 20 and p < m - 20",
        )
        for s in SHARES[:2]
    ],
    ("ch3_resnet20_cifar", "a=drop_perspective_1 b=drop_perspective_student_1", "a > 10 * b"),
    ("ch3_resnet20_cifar", "a=one_point_perspective_student b=one_point_perspective", "a_min > b_max"),
    ("ch3_resnet20_cifar", "a=plateau_kernels b=all_images", "a < 2 and b == 20"),
    # The implicit model's lead: not the equilibrium's, and far out a linear path's; controls have the first seed, whose
    # lead is the largest.
    ("ch5_earthquake", "a=mse_papers_implicit_0 b=mse_papers_eikonet_0", "a_max < b_min"),
    ("ch5_earthquake", "a=mse_papers_implicit_0 b=mse_papers_eikonet_long_0", "a_max < b_min"),
    ("ch5_earthquake", "a=gain_unbroken_of_implicit_strict_upper b=gain_unbroken_9", "a_min > 0.9 * b_max"),
    ("ch5_earthquake", "a=gain_unbroken_of_implicit_no_skip b=gain_unbroken_9", "a_min > 0.9 * b_max"),
    ("ch5_earthquake", "a=gain_unbroken_of_eikonet_bias_free_skip b=gain_unbroken_9", "a_min > 0.9 * b_max"),
    ("ch5_earthquake", "a=gain_unbroken_of_linear b=gain_unbroken_9", "a_min > 0.75 * b_max"),
    ("ch5_earthquake", "a=gain_unbroken_of_implicit_bias b=gain_unbroken_9", "a_max < 0.25 * b_max"),
    ("ch5_earthquake", "a=gain_anchor_9", "a_min > -0.005 and a_max < 0.005"),
    (
        "ch5_earthquake",
        "a=two_pass_depth_time_given_implicit_depth_km_9 b=two_pass_depth_time_given_implicit_time_s_9",
        "a_max < 0 > b_max",
    ),
    # Removal from an exact fit: at random the network's read-out runs away, one fitted anew does not.
    ("ch3_elimination", "a=quake_rise_mse_random_90 b=quake_rise_head_random_90", "a_min > 10 and -0.05 < b_min"),
    ("ch3_elimination", "b=quake_rise_head_random_90", "b_max < 0.05"),
]


def test_statements_of_pages_follow_from_the_committed_runs():
    wrong = []
    for notebook, keys, condition in STATEMENTS:
        measure = {"keys": dict(pair.split("=", 1) for pair in keys.split())}
        names = names_of(measure, load(RESULTS / f"{notebook}.json")["values"])
        if names is None or not evaluate(condition, names):
            wrong.append(f"{notebook}: {condition} with {names or keys}")
    assert not wrong, "\n".join(wrong)
