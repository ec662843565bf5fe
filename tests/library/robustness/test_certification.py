"""Verdicts against brute force and closed forms; each answer carries its proof."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from torch import nn

from implicit_models.compose import interconnect as compose
from implicit_models.layers import ImplicitModel
from implicit_models.robustness import bound_methods, certification
from implicit_models.robustness.attacks.options import PGD
from implicit_models.robustness.bounding import dual
from implicit_models.robustness.bounding.options import Dual
from implicit_models.robustness.certification import certify
from implicit_models.robustness.checking.checker import check
from implicit_models.robustness.input_sets import Box, SparseBox
from implicit_models.robustness.problem import NotCertified, from_matrices
from reproduction.models.seeding import seeded


def linear(weight, bias=0.0):
    """y = (w'u + bias, 0) through a state that is u itself: margins in closed form."""
    w = np.atleast_2d(np.asarray(weight, dtype=float))
    p = w.shape[1]
    return from_matrices(np.zeros((p, p)), np.eye(p), np.vstack([w, np.zeros((1, p))]), None, "identity", d=[bias, 0.0])


def cyclic(seed=0, n=8, p=5, q=4, radius=0.8, activation="relu"):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n))
    A *= radius / np.abs(A).sum(1, keepdims=True)
    return from_matrices(
        A,
        rng.normal(size=(n, p)),
        rng.normal(size=(q, n)),
        rng.normal(size=(q, p)),
        activation,
        b=0.3 * rng.normal(size=n),
    )


def labels(P, U):
    return P.output(P.equilibrium(U)[0], U).argmax(axis=1)


@pytest.mark.parametrize("method", ["box", "interval", "dual", "lp"])
def test_closed_form_of_a_linear_classifier(method):
    # class 0 wins for w'u > 0; over |du| <= eps the margin is w'u - eps |w|_1
    P = linear([1.0, -2.0])
    U = np.array([[1.0, 0.0], [0.4, 0.0], [0.2, 0.0]])
    found = certify(P, U, np.zeros(3, dtype=int), 0.1, method=method)
    np.testing.assert_allclose(found.margin, U[:, 0] - 0.3, atol=1e-9)
    assert list(found.status) == ["safe", "safe", "unsafe"]
    assert P.output(P.equilibrium(found.witness[2:])[0], found.witness[2:])[0, 0] < 0
    assert (np.abs(found.witness[2] - U[2]) <= 0.1 + 1e-15).all() and np.isnan(found.witness[:2]).all()
    assert found.certified_accuracy == pytest.approx(2 / 3)


def test_a_margin_of_zero_is_neither_safe_nor_unsafe():
    found = certify(linear([1.0, 1.0]), np.array([[0.1, 0.1]]), np.array([0]), 0.1)
    assert list(found.status) == ["unknown"] and abs(found.margin[0]) < 1e-12


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 10**6),
    st.floats(0.0, 0.4),
    st.sampled_from(["relu", "leaky_relu(0.2)", "tanh"]),
    st.sampled_from([None, 2]),
)
def test_verdicts_hold_for_every_input_that_is_tried(seed, eps, activation, card):
    P = cyclic(seed, activation=activation)
    rng = np.random.default_rng(seed)
    U = rng.normal(size=(6, P.p))
    y = labels(P, U)
    y[0] = (y[0] + 1) % P.q  # misclassified as it stands
    found = certify(P, U, y, Box(eps) if card is None else SparseBox(eps, card), search=PGD(steps=10))
    assert found.status[0] == "unsafe"
    moves = rng.choice([-1, 1, 0.4], size=(200, 6, P.p)) * eps
    if card:
        for move in moves.reshape(-1, P.p):
            move[rng.permutation(P.p)[card:]] = 0
    V = (U + moves).reshape(-1, P.p)
    right = (labels(P, V).reshape(200, 6) == y).all(axis=0)
    assert not np.any((found.status == "safe") & ~right)
    unsafe = found.status == "unsafe"
    assert (labels(P, found.witness[unsafe]) != y[unsafe]).all()
    assert (np.abs(found.witness[unsafe] - U[unsafe]) <= eps + 1e-12).all()
    if card:
        assert ((found.witness[unsafe] != U[unsafe]).sum(axis=1) <= card).all()
    assert check(found.bounds.cert)
    assert ((found.margin > 0) == (found.status == "safe")).all()


def test_a_witness_between_the_bounds_and_the_sample():
    P = cyclic(3)
    U = np.random.default_rng(3).normal(size=(40, P.p))
    y = labels(P, U)
    sure, searched = (certify(P, U, y, 0.3, search=search) for search in (None, PGD()))
    decided = [set(np.flatnonzero(c.status == "unsafe")) for c in (sure, searched)]
    assert decided[0] and decided[0] <= decided[1]  # what the multipliers point to is tried without any step
    assert (sure.status == "safe").sum() == (searched.status == "safe").sum()
    corners = np.stack(np.meshgrid(*[[-0.3, 0.3]] * P.p), axis=-1).reshape(-1, P.p)
    wrong = np.array([(labels(P, u + corners) != label).any() for u, label in zip(U, y)])
    assert not np.any(wrong & (searched.status != "unsafe"))  # no corner does better than the search
    assert (searched.status == "unknown").sum() < (sure.status == "unknown").sum()


def test_the_box_cut_to_a_range():
    P = linear([1.0, 0.0])
    U = np.array([[0.05, 0.5]])
    assert certify(P, U, np.array([0]), 0.1).status[0] == "unsafe"
    found = certify(P, U, np.array([0]), Box(0.1, clip=(0.01, 1.0)))
    assert found.status[0] == "safe" and found.margin[0] == pytest.approx(0.01)


def test_no_radius_is_the_prediction_itself():
    P = cyclic(4)
    U = np.random.default_rng(4).normal(size=(10, P.p))
    out = P.output(P.equilibrium(U)[0], U)
    found = certify(P, U, np.zeros(10, dtype=int), 0.0)
    best = out[:, 0] - out[:, 1:].max(axis=1)
    np.testing.assert_allclose(found.margin, best, atol=1e-9)
    assert list(found.status) == ["safe" if m > 0 else "unsafe" for m in best]


def test_one_class_is_safe():
    P = from_matrices(np.zeros((2, 2)), np.eye(2), np.ones((1, 2)))
    found = certify(P, np.array([[1.0, 2.0], [np.nan, 0.0]]), np.zeros(2, dtype=int), 0.5)
    assert list(found.status) == ["safe", "unknown"] and np.isinf(found.margin[0]) and np.isnan(found.margin[1])


def test_a_sample_that_is_not_finite_is_unknown_and_leaves_the_others():
    P = cyclic(5)
    U = np.random.default_rng(5).normal(size=(5, P.p))
    y = labels(P, U)
    clean = certify(P, U, y, 0.1)
    U[2, 1] = np.nan
    found = certify(P, U, y, 0.1)
    others = [0, 1, 3, 4]
    assert found.status[2] == "unknown" and np.isnan(found.margin[2])
    np.testing.assert_array_equal(found.margin[others], clean.margin[others])
    assert (found.status[others] == clean.status[others]).all()


@pytest.mark.parametrize("failure", ["failed", "nan"])
def test_a_sample_whose_bound_fails_is_unknown_and_leaves_the_others(monkeypatch, failure):
    P = cyclic(5)
    U = np.random.default_rng(5).normal(size=(3, P.p))
    y = labels(P, U)
    clean = certify(P, U, y, 1e-6)
    assert set(clean.status) == {"safe"}
    real = dual.dual_bounds

    def broken(*args, **kwargs):
        found = real(*args, **kwargs)
        if failure == "failed":
            found.status[1] = "failed"
        found.lb[1] = np.nan
        return found

    monkeypatch.setattr(dual, "dual_bounds", broken)
    found = certify(P, U, y, 1e-6)
    assert list(found.status) == ["safe", "unknown", "safe"] and np.isnan(found.margin[1])
    np.testing.assert_array_equal(found.margin[[0, 2]], clean.margin[[0, 2]])


def test_batch_of_one():
    P = cyclic(6)
    U = np.random.default_rng(6).normal(size=(4, P.p))
    y = labels(P, U)
    whole = certify(P, U, y, 0.1)
    for i in range(4):
        one = certify(P, U[[i]], y[[i]], 0.1)
        assert one.status[0] == whole.status[i] and one.margin[0] == whole.margin[i]


def test_edge_of_well_posedness_and_negative_loops():
    rng = np.random.default_rng(7)
    A = np.abs(rng.normal(size=(6, 6)))
    A *= 0.999 / np.abs(np.linalg.eigvals(A)).max()
    P = from_matrices(A, 1e-3 * rng.normal(size=(6, 3)), rng.normal(size=(2, 6)), None, "relu", d=[0.1, 0.0])
    U = rng.normal(size=(5, 3))
    found = certify(P, U, labels(P, U), 1e-6)
    assert P.certificate.kind == "pf" and set(found.status) == {"safe"} and check(found.bounds.cert)
    loops = from_matrices(
        np.array([[-3.0, 0.5], [0.5, -2.0]]),
        rng.normal(size=(2, 3)),
        rng.normal(size=(2, 2)),
        None,
        "relu",
        d=[0.1, 0.0],
    )
    found = certify(loops, U, labels(loops, U), 1e-3)
    assert loops.certificate.kind == "metzler" and "safe" in found.status and check(found.bounds.cert)


def test_a_model_that_is_not_well_posed_is_refused_with_the_reason():
    P = from_matrices(np.array([[0.8, 0.9], [0.9, 0.8]]), np.eye(2), np.eye(2))
    with pytest.raises(NotCertified, match="lambda_PF of |A| is 1.7"):
        certify(P, np.zeros((1, 2)), np.array([0]), 0.1)


def test_torch_models_in_single_precision():
    model = ImplicitModel(5, 3, 10, seed=0, bias=True)
    with seeded(0):
        network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    U = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    for m in (model, compose.from_network(network)):
        y = m(U).argmax(1)
        mode = m.training
        found = certify(m, U, y, 0.3)
        assert m.training == mode and set(found.status) <= {"safe", "unsafe", "unknown"}
        unsafe = found.status == "unsafe"
        assert unsafe.any() and check(found.bounds.cert)
        again = m.double()(torch.from_numpy(found.witness[unsafe])).argmax(1)
        assert (again != y[torch.from_numpy(unsafe)]).all()


@pytest.mark.parametrize(
    "y, options, words",
    [
        (np.array([0, 4]), {}, "label 4 of sample 1"),
        (np.array([0]), {}, "one label for each of 2 samples"),
        (np.array([0, 1]), {"inputs": SparseBox(0.1, 2, (-1, 1))}, "do not go together"),
        (np.array([0, 1]), {"method": "magic"}, "unknown method 'magic'"),
    ],
)
def test_what_does_not_fit_is_named(y, options, words):
    P = cyclic(8)
    with pytest.raises(ValueError, match=words):
        certify(P, np.zeros((2, P.p)), y, **{"inputs": 0.1, **options})


@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"search": "pgd"}, TypeError, r"search must be PGD\(\.\.\.\) or None, got 'pgd'"),
        ({"search": PGD}, TypeError, "search must be PGD"),
        ({"seed": -1}, ValueError, "seed .*-1"),
        ({"method": "magic"}, ValueError, "unknown method 'magic'"),
        ({"method": Dual}, TypeError, "method must be a name"),
        ({"tries": 4}, TypeError, "tries"),
        ({"inputs": -0.1}, ValueError, "-0.1"),
        ({"inputs": None}, TypeError, "got NoneType"),
        ({"U": np.zeros((2, 9))}, ValueError, r"\(2, 9\)"),
        ({"U": np.zeros((2, 5)) * 1j}, TypeError, "complex"),
    ],
)
def test_arguments_are_looked_at_whatever_the_samples_are(q, options, error, words):
    """Also where every sample is safe at once, and for a single class."""
    P = from_matrices(np.zeros((5, 5)), np.eye(5), np.zeros((q, 5)), None, "relu", d=np.arange(q)[::-1])
    arguments = {"U": np.zeros((2, 5)), "inputs": 0.1}
    assert set(certify(P, y=np.zeros(2, dtype=int), **arguments).status) == {"safe"}
    with pytest.raises(error, match=words):
        certify(P, y=np.zeros(2, dtype=int), **{**arguments, **options})


def test_a_huge_sample_leaves_the_test_of_the_others(monkeypatch):
    """A witness must lie in its own set: the rounding that is allowed is that of the sample, not of the batch."""
    P = linear([1.0, 0.0])
    U = np.array([[0.2, 0.0], [1e16, 0.0]])
    outside = U - np.array([[0.3, 0.0], [0.0, 0.0]])

    def far(model, candidates, y, inputs, how, **settings):
        return outside[np.isin(U[:, 0], candidates[:, 0])]

    monkeypatch.setattr(certification, "pgd", far)
    monkeypatch.setattr(certification, "bounds", lambda *a, **k: undecided(bound_methods.bounds(*a, **k)))
    found = certify(P, U, np.array([0, 0]), 0.1)
    assert found.status[0] == "unknown" and np.isnan(found.witness[0]).all()


def undecided(found):
    found.lb[:] = np.minimum(found.lb, -1.0)
    return found


@pytest.mark.parametrize("card", [None, 1])
def test_witnesses_lie_inside_the_set_and_its_range_exactly(card):
    rng = np.random.default_rng(11)
    P = linear([1.0, -1.0, 0.5], -0.2)
    U = rng.uniform(0.1, 0.7, (200, 3)).round(3)
    y, clip = labels(P, U), (0.1, 0.7) if card is None else None
    sets = Box(0.1, clip) if card is None else SparseBox(0.1, card)
    found = certify(P, U, y, sets)
    W = found.witness[found.status == "unsafe"]
    inputs = sets.around(U[found.status == "unsafe"])
    assert len(W) > 10 and (W >= inputs.lower).all() and (W <= inputs.upper).all()
    if clip is not None:
        assert (W >= clip[0]).all() and (W <= clip[1]).all()


def test_a_strong_loop_of_tanh_is_not_certified_wrongly():
    """x = tanh(-22.5 x - 21.17 + du): class 0 has the output x < 0, and the bound says so."""
    P = from_matrices([[-22.5]], [[1.0]], [[1.0], [0.0]], activation="tanh")
    x = brentq(lambda x: x - np.tanh(-22.5 * x - 21.17), -1, 1)
    assert x == pytest.approx(-0.8798, abs=1e-4)
    found = certify(P, [[-21.17]], np.array([0]), 1e-4)
    assert found.status[0] == "unsafe" and found.margin[0] == pytest.approx(x, abs=1e-4)
    assert certify(P, [[-21.17]], np.array([1]), 1e-4).status[0] == "safe"


def test_branch_and_bound_decides_more_and_nothing_wrongly():
    P = cyclic(3)
    U = np.random.default_rng(3).normal(size=(40, P.p))
    y = labels(P, U)
    plain, split = certify(P, U, y, 0.3), certify(P, U, y, 0.3, method=Dual(splits=200))
    unknown = plain.status == "unknown"
    assert unknown.any() and (split.status[~unknown] == plain.status[~unknown]).all()
    assert (split.status == "unknown").sum() < unknown.sum()
    V = (U[unknown] + np.random.default_rng(0).uniform(-0.3, 0.3, size=(3000, int(unknown.sum()), P.p))).reshape(
        -1, P.p
    )
    right = (labels(P, V).reshape(3000, -1) == y[unknown]).all(axis=0)
    assert not np.any((split.status[unknown] == "safe") & ~right)
    assert ((split.margin > 0) == (split.status == "safe")).all()


def test_bounds_are_those_of_the_chosen_method():
    P = cyclic(9)
    U = np.random.default_rng(9).normal(size=(5, P.p))
    y = labels(P, U)
    margins = {m: certify(P, U, y, 0.1, method=m).margin for m in ("box", "interval", "dual")}
    assert (margins["box"] <= margins["interval"]).all() and (margins["interval"] <= margins["dual"]).all()
    spec = bound_methods.bounds(P, U, 0.1, method="interval", spec=certify(P, U, y, 0.1).bounds.cert.spec)
    np.testing.assert_array_equal(spec.lb.min(axis=1), margins["interval"])


def test_no_samples_have_no_accuracy_and_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = certify(cyclic(), np.zeros((0, 5)), np.zeros(0, dtype=int), 0.1)
        assert np.isnan(found.certified_accuracy) and "accuracy" in repr(found)


def test_a_radius_that_changes_afterwards_decides_nothing():
    P, U, radius = cyclic(), np.random.default_rng(0).normal(size=(6, 5)), np.full(5, 0.01)
    box, y = Box(radius), labels(P, U)
    before = certify(P, U, y, box)
    radius[:] = -0.5
    after = certify(P, U, y, box)
    np.testing.assert_array_equal(before.margin, after.margin)


def test_samples_in_bfloat16_have_the_verdicts_of_their_numbers():
    P, U = cyclic(), torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    exact = U.double().numpy()
    found, same = (certify(P, V, labels(P, exact), 0.01) for V in (U, exact))
    np.testing.assert_array_equal(found.margin, same.margin)
