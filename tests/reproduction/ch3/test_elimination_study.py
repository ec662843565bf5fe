"""Elimination on the rows of a small network: certificates against the exact solution, orders, the conic dual."""

import numpy as np
import pytest

from implicit_models.sim.network.states import states
from implicit_models.sim.solvers.elimination import eliminate
from reproduction.ch3_elimination import compute as study
from reproduction.models.mlp import MLP


@pytest.fixture(scope="module")
def rows():
    u = np.random.default_rng(0).standard_normal((300, 30)).astype(np.float32)
    u[:, -5:] *= 1e-3  # inputs that no row is likely to use
    return study.feature_rows(states(MLP((30, 6, 4, 3), seed=1).eval(), u), 1.0)


def test_units_are_a_multiple(rows):
    np.testing.assert_allclose(study.units_of(rows.found, 5.0), 5 * study.units_of(rows.found, 1.0))


def test_certificates(rows):
    found = study.certificate_counts(rows, 0.2, 10)
    assert found["wrong"] == 0 and found["second_pass"] == 0 and found["value_change"] < 1e-8
    assert found["inputs_out"] >= 1 and found["certified"] <= found["zeros"]
    assert found["elimination"].certified == found["states_out"] + found["inputs_out"]


def test_orders_are_permutations(rows):
    whole = eliminate(rows.G, rows.C, rows.zz, kappa=0.2, n_remove=len(rows.G))
    for name in study.ORDERS:
        assert sorted(study.removal_order(name, whole, 3)) == list(range(len(rows.G)))
    with pytest.raises(ValueError, match="alphabet"):
        study.removal_order("alphabet", whole, 0)
    np.testing.assert_array_equal(study.removal_order("random", whole, 3), study.removal_order("random", whole, 3))


def test_removing_what_is_certified_changes_nothing(rows):
    whole = eliminate(rows.G, rows.C, rows.zz, kappa=0.2, n_remove=len(rows.G))
    share = whole.certified / len(rows.G)
    curve = study.removal_curve(
        rows, whole.removed, [0.0, share, 0.95], kappa=0.2, scores=lambda m: {"norm": float(m.A.detach().abs().sum())}
    )
    assert curve["removed"] == [0, whole.certified, round(0.95 * len(rows.G))] and curve["failed"] == [0, 0, 0]
    assert curve["norm"][1] == pytest.approx(curve["norm"][0], rel=1e-2) and len(curve["seconds"]) == 3
    assert curve["states_kept"][0] == 10 and curve["states_kept"][2] <= 2


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_conic_dual_agrees_and_its_rule_depends_on_the_threshold():
    pytest.importorskip("cvxpy")
    rng = np.random.default_rng(0)
    M, z = rng.standard_normal((40, 15)), rng.standard_normal((40, 1))
    found = study.conic_rows(M, z, kappa=0.2, ridges=[0.0, 1.0], thresholds=[1e-12, 1e-3, 0.9])
    for entry in found:
        assert entry["difference"] < 1e-6 and entry["used"] > 0
        assert entry["wrong"] == sorted(entry["wrong"], reverse=True) and entry["missed"] == sorted(entry["missed"])
        # with the threshold near delta nothing goes; between, the exact support stays
        assert entry["wrong"][1:] == [0, 0] and entry["missed"][2] == 15 - entry["used"]
