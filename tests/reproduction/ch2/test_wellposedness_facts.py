"""Exact decisions on small models, against closed forms and each other."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction.ch2_wellposedness import compute as facts
from reproduction.ch2_wellposedness import rescaling as scaling
from reproduction.ch2_wellposedness.show import REGIONS, region


@pytest.mark.parametrize(("slope", "expected"), [(2.0, [2, 0]), (0.5, [1, 1]), (-4.0, [1, 1]), (1.0, [1, 0])])
def test_scalar_counts_are_those_of_figure_2_1(slope, expected):
    assert facts.scalar_counts([slope], [-1.0, 1.0])[0].tolist() == expected


def test_exact_decision_on_matrices_decided_by_hand():
    assert facts.well_posed(np.array([[-5.0]])) and not facts.well_posed(np.array([[1.0]]))
    assert facts.well_posed(np.array([[0.0, 9.0], [-9.0, 0.0]]))  # det(I - A) = 82, diagonal minors 1
    assert not facts.well_posed(np.array([[0.0, 2.0], [2.0, 0.0]]))  # det(I - A) = -3
    # a linear entry has no off state: x = 2 x + b alone has one solution, with ReLU it has two or none
    assert facts.well_posed(np.array([[2.0]]), np.array([True])) and not facts.well_posed(np.array([[2.0]]))


@pytest.mark.parametrize("seed", range(4))
def test_exact_decision_agrees_with_counting_solutions(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(0, 1.2, (3, 3))
    counts = {len(facts.relu_solutions(A, b)) for b in rng.normal(0, 1, (300, 3))}
    assert (counts == {1}) == facts.well_posed(A)


def test_maps_and_softmax():
    assert facts.non_expansive_violations("relu", 200, 0) == 0
    assert facts.non_expansive_violations("leaky_relu(1.0)", 200, 0) == 0
    constant = facts.softmax_constant(200, 0)
    assert constant["attained"] == 0.5 and 0.49 < constant["largest"] <= 0.5


def test_theorem_1_holds_and_its_bound_is_not_vacuous():
    found = facts.picard_facts(8, 0, [("relu", 1)] * 6)
    assert found["disagreements"] == found["step_violations"] == 0
    assert 0.2 < found["rate_over_pf"] <= 1 + 1e-6 and found["iterations"] > 5
    # the same count sees a violation when the norm matrix is too small
    assert facts._block_norms(np.array([[0.0, -3.0], [1.0, 2.0]]), np.array([0, 0]), np.array([1.0, 0.5])).tolist() == [
        [3.0]
    ]


def test_triangular_and_block_theorems():
    triangular = facts.triangular_facts(40, 0)
    assert triangular["criterion_errors"] == 0 and triangular["recursion_error"] < 1e-10
    assert 0 < triangular["pf_misses"] <= triangular["posed"] == triangular["certified"]
    blocks = facts.block_facts(40, 0)
    assert [blocks[k] for k in ("upper", "lower", "blockwise", "permuted")] == [0] * 4 and 0 < blocks["posed"] < 40


def test_counterexamples():
    found = facts.only_if_counterexample(200, 0)
    assert set(found["whole"]) == {1} and set(found["x_2"]) == {2} and set(found["x_1"]) == {0, 1}
    assert facts.permutation_counterexample() == {"given": 1, "swapped": 0}
    assert set(facts.strictly_triangular_counts(10, 0, n=5)) == {1}


def test_shares_are_ordered():
    shares = facts.share_certified(3, [0.3, 1.0], 30, 0)
    for best, good, worse in zip(shares["well-posed"], shares["certificate"], shares["PF"], strict=True):
        assert best >= good >= worse
    assert shares["PF"][0] >= shares["norm"][0] > 0


def test_scaling_of_theorem_2_4_in_both_orientations():
    found = scaling.printed_scaling(50, 0)
    assert found["example_printed"] == pytest.approx(110) and found["example_inverse"] == pytest.approx(10 / 11)
    assert (
        found["printed_fails"] > 0.5
        and found["inverse_fails"] == 0
        and found["formula"] < 1e-12
        and found["eigen_misfit"] > 1e-3
    )
    infimum = scaling.collatz_wielandt(10, 0)
    assert infimum["above_norm"] == infimum["below"] == 0 and infimum["attained"] < 1e-12


def test_twins_need_homogeneity():
    relu, tanh = (scaling.rescaled_outputs(name, 3, 0) for name in ("relu", "tanh"))
    assert relu["norm"] < 1 and relu["output"] < 1e-12 and tanh["conjugated"] < 1e-12 and tanh["output"] > 0.1


def test_compositions_and_printed_forms():
    found = scaling.composition_facts(30, 0)
    assert found["cascade"] == found["parallel"] == found["pf"] == 0 and 0 < found["below"] < 30
    form = scaling.printed_network_form(0)
    assert form["state_order"] < 1e-12 and form["shifted"] > 0.01
    assert scaling.printed_max_pool(0) == {"printed": 1, "own_block": 0}
    assert scaling.picard_at_norm_one(4).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("A", "name"),
    [
        ([[0.2, 0.2], [0.2, 0.2]], 4),
        ([[0.0, 4.0], [0.1, 0.0]], 3),
        ([[-3.0, 1.0], [1.0, -3.0]], 2),
        ([[0.0, 3.0], [-3.0, 0.0]], 1),
        ([[2.0, 0.0], [0.0, 0.0]], 0),
    ],
)
def test_regions(A, name):
    assert region(np.array(A)) == name < len(REGIONS)
