"""Attacks against closed forms and brute force; what they return lies in the sets and is counted as documented."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from implicit_models.compose import interconnect as compose
from implicit_models.layers import ImplicitModel
from implicit_models.robustness.attacks import gradient as gradient_attacks
from implicit_models.robustness.attacks import methods as attacks
from implicit_models.robustness.attacks import sparse as sparse_attacks
from implicit_models.robustness.attacks.methods import attack
from implicit_models.robustness.attacks.options import JSMA, PGD, LPAttack, Sensitivity
from implicit_models.robustness.input_sets import Box, Replace, SparseBox
from implicit_models.robustness.problem import from_matrices, problem
from implicit_models.robustness.sensitivity import sensitivity_matrix
from implicit_models.robustness.specification import margins
from reproduction.models.seeding import seeded

DENSE = ("fgsm", "pgd", "sensitivity", "random", "lp")
SPARSE = ("jsma", "sensitivity", "gradient", "label_gradient", "random", "lp")


def linear(weight, bias=0.0):
    """y = (w'u + bias, 0): every attack has a closed form."""
    w = np.asarray(weight, dtype=float)
    return from_matrices(
        np.zeros((len(w),) * 2), np.eye(len(w)), np.vstack([w, 0 * w]), None, "identity", d=[bias, 0.0]
    )


def cyclic(seed=0, n=8, p=6, q=4, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n))
    A *= 0.8 / np.abs(A).sum(1, keepdims=True)
    matrices = A, rng.normal(size=(n, p)), rng.normal(size=(q, n)), rng.normal(size=(q, p))
    return ImplicitModel.from_matrices(
        *(torch.from_numpy(M).to(dtype) for M in matrices), b=torch.from_numpy(0.3 * rng.normal(size=n)).to(dtype)
    )


def right(model, U):
    P = problem(model)
    return P.output(P.equilibrium(U)[0], U).argmax(axis=1)


@pytest.mark.parametrize("method", ["fgsm", "pgd", "sensitivity", "lp"])
def test_dense_attacks_of_a_linear_classifier_are_optimal(method):
    # the best of |du| <= eps is -eps sign(w): success exactly where w'u < eps |w|_1
    w = np.array([1.0, -2.0, 0.5])
    U = np.random.default_rng(0).uniform(0, 1, size=(30, 3))
    found = attack(linear(w), U, np.zeros(30, dtype=int), 0.1, method)
    before = U @ w
    np.testing.assert_array_equal(found.success, (before > 0) & (before < 0.35))
    moved = found.U_adv - U
    if method != "lp":  # a point of the programme is a corner too, where one succeeds or not
        expected = np.broadcast_to(-0.1 * np.sign(w), moved[before > 0.35].shape)
        np.testing.assert_allclose(moved[before > 0.35], expected, atol=1e-12)
    assert (found.changed[before > 0.35] == 3).all()


@pytest.mark.parametrize("method", ["fgsm", "pgd", "sensitivity", "lp"])
def test_dense_attacks_of_samples_at_the_edge_of_the_clip_range_are_optimal(method):
    # one side of the box is cut off at an input of 0 or 1; the other side is as long as without a range
    w, eps = np.array([1.0, -2.0, 0.5]), 0.2
    U = np.random.default_rng(1).choice([0.0, 0.5, 1.0], size=(40, 3))
    end = np.where(w > 0, np.maximum(U - eps, 0.0), np.minimum(U + eps, 1.0))
    y = (U @ w < 0).astype(int)
    found = attack(linear(w), U, y, Box(eps, clip=(0, 1)), method)
    right = y == 0
    np.testing.assert_array_equal(found.success[right], (end[right] @ w < 0))
    if method in ("fgsm", "sensitivity"):
        np.testing.assert_allclose(found.U_adv[right & (U @ w > 0)], end[right & (U @ w > 0)], atol=1e-15)


def test_random_signs_go_to_the_ends_of_a_clipped_box():
    U = np.array([[0.0, 0.5, 1.0, 0.1]] * 200)
    found = attack(linear(np.ones(4), bias=9.0), U, np.zeros(200, int), Box(0.2, clip=(0, 1)), "random", seed=3).U_adv
    for j, ends in enumerate([(0.0, 0.2), (0.3, 0.7), (0.8, 1.0), (0.0, 0.3)]):
        np.testing.assert_allclose(np.unique(found[:, j]), ends, atol=1e-15)


@pytest.mark.parametrize("method", ["fgsm", "pgd", "random", "sensitivity", "lp"])
def test_attacked_inputs_are_inside_any_clip_range_exactly(method):
    rng = np.random.default_rng(0)
    model = linear(np.array([1.0, -0.7, 0.4]))
    for _ in range(10):
        low, high = np.sort(rng.normal(size=2))
        U = rng.uniform(low, high, size=(60, 3))
        how = PGD(steps=3, restarts=2) if method == "pgd" else method
        found = attack(model, U, (U @ np.array([1.0, -0.7, 0.4]) < 0).astype(int), Box(0.3, clip=(low, high)), how)
        assert found.U_adv.min() >= low and found.U_adv.max() <= high


def test_sets_are_checked_when_there_is_one_class_or_no_sample():
    one = ImplicitModel.from_matrices(torch.zeros(1, 1), torch.zeros(1, 2), torch.zeros(1, 1), torch.ones(1, 2))
    with pytest.raises(ValueError, match="a radius must be a finite number that is not negative, got -5"):
        attack(one, np.zeros((2, 2)), np.zeros(2, int), -5, "fgsm")


@pytest.mark.parametrize("method", ["jsma", JSMA(pairs=True), "gradient", "label_gradient", "sensitivity", "lp"])
def test_sparse_attacks_of_a_linear_classifier_take_the_largest_weights(method):
    w = np.array([1.0, -3.0, 0.5, 2.0])
    U = np.full((1, 4), 0.5) + np.array([[0.2, 0, 0, 0.3]])
    found = attack(linear(w, bias=5.0), U, np.array([0]), SparseBox(0.2, 2), method)
    np.testing.assert_allclose(found.U_adv - U, [[0, 0.2, 0, -0.2]], atol=1e-12)
    assert found.changed[0] == 2 and not found.success[0]


def test_room_in_the_clip_range_decides_which_inputs_are_taken():
    # input 3 has the larger weight and no room to fall: the others gain more
    w, U = np.array([1.0, 0.9, 3.0]), np.array([[0.8, 0.9, 0.05]])
    for method in ("jsma", "lp"):
        found = attack(linear(w, bias=5.0), U, np.array([0]), SparseBox(np.inf, 2, clip=(0, 1)), method)
        np.testing.assert_allclose(found.U_adv, [[0.0, 0.0, 0.05]], atol=1e-9)


def test_the_signed_response_of_a_linear_model():
    # with identity maps the response is exact: (C_j - C_y)(I - A)^-1 B + D_j - D_y
    rng = np.random.default_rng(1)
    A = 0.1 * rng.normal(size=(4, 4))
    P = from_matrices(A, rng.normal(size=(4, 3)), rng.normal(size=(2, 4)), rng.normal(size=(2, 3)), "identity")
    U = rng.normal(size=(5, 3))
    y = right(P, U)
    got = sparse_attacks.linear_direction(P, U, y)
    step = 1e-6 * np.eye(3)
    slope = lambda u: (
        (P.output(P.equilibrium(u + step)[0], u + step) - P.output(P.equilibrium(u[None])[0], u[None])) / 1e-6
    )
    for i in range(5):
        G = slope(U[i])
        np.testing.assert_allclose(got[i], G[:, 1 - y[i]] - G[:, y[i]], atol=1e-5)


def test_pgd_reaches_the_best_corner_and_beats_one_step():
    model = cyclic(2, p=5)
    U = np.random.default_rng(2).normal(size=(30, 5))
    y = right(model, U)
    corners = np.array(list(itertools.product([-0.3, 0.3], repeat=5)))
    possible = np.array([(right(model, u + corners) != label).any() for u, label in zip(U, y)])
    found = {m: attack(model, U, y, 0.3, m) for m in ("fgsm", "pgd", "lp", "random")}
    assert found["pgd"].success.sum() >= possible.sum() - 1 > found["random"].success.sum()
    assert not np.any(found["fgsm"].success & ~found["pgd"].success)
    assert found["lp"].success.sum() >= found["fgsm"].success.sum()


def test_pgd_returns_its_best_point():
    model = cyclic(3)
    U = np.random.default_rng(3).normal(size=(20, 6))
    y = right(model, U)
    P = problem(model)
    box = Box(0.05).around(U)
    worst = lambda V: np.einsum("nkq,nq->nk", margins(y, 4), P.output(P.equilibrium(V)[0], V)).min(axis=1)
    few, more = (worst(gradient_attacks.pgd(model, U, y, box, PGD(steps=s, restarts=r))) for s, r in ((1, 1), (30, 3)))
    assert (more <= few + 1e-9).all() and (few <= worst(U) + 1e-9).all()
    again = gradient_attacks.pgd(model, U, y, box, PGD(steps=5, restarts=2), seed=4)
    np.testing.assert_array_equal(again, gradient_attacks.pgd(model, U, y, box, PGD(steps=5, restarts=2), seed=4))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(DENSE), st.floats(0, 0.5), st.sampled_from([None, (-0.5, 0.5)]))
def test_dense_attacks_stay_in_their_sets(seed, method, eps, clip):
    model = cyclic(seed)
    U = np.random.default_rng(seed).uniform(-0.5, 0.5, size=(5, 6))
    y = right(model, U)
    y[0] = (y[0] + 1) % 4
    found = attack(model, U, y, Box(eps, clip=clip), PGD(steps=5, restarts=2) if method == "pgd" else method)
    assert (np.abs(found.U_adv - U) <= eps + 1e-15).all()
    if clip:
        assert (found.U_adv >= -0.5).all() and (found.U_adv <= 0.5).all()
    wrong = right(model, found.U_adv) != y
    assert not found.success[0]  # it was wrong before
    np.testing.assert_array_equal(found.success[1:], wrong[1:])
    np.testing.assert_array_equal(found.changed, (found.U_adv != U).sum(axis=1))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(SPARSE), st.integers(0, 6), st.sampled_from([0.3, np.inf]))
def test_sparse_attacks_change_at_most_k_inputs(seed, method, k, eps):
    model = cyclic(seed)
    U = np.random.default_rng(seed).uniform(0, 1, size=(4, 6))
    y = right(model, U)
    found = attack(model, U, y, SparseBox(eps, k, clip=(0, 1)), method, seed=seed)
    assert (found.changed <= k).all()
    assert (found.U_adv >= 0).all() and (found.U_adv <= 1).all() and (np.abs(found.U_adv - U) <= eps + 1e-15).all()
    np.testing.assert_array_equal(found.success, right(model, found.U_adv) != y)


def test_jsma_finds_the_best_pairs_of_brute_force_on_a_smooth_model():
    w = np.random.default_rng(4).normal(size=8)
    U = np.random.default_rng(5).uniform(size=(1, 8))
    best = min(
        w @ np.where(np.isin(np.arange(8), c), np.where(w > 0, 0, 1), U[0]) for c in itertools.combinations(range(8), 4)
    )  # every choice of four, each at its better end
    for how in (JSMA(), JSMA(pairs=True)):
        found = attack(linear(w, bias=20.0), U, np.array([0]), SparseBox(np.inf, 4, clip=(0, 1)), how)
        assert found.U_adv[0] @ w == pytest.approx(best)


@pytest.mark.parametrize("pairs", [False, True])
def test_papernots_saliency(pairs):
    # increases where the target's output grows and the others' fall, decreases the other way round, one or two inputs a
    # step
    C = np.array([[2.0, -1.0, 0.5, 0.1], [-1.0, 1.5, 0.2, -0.4]])
    P = from_matrices(np.zeros((4, 4)), np.eye(4), C, None, "identity", d=[9.0, 0.0])
    found = attack(
        P,
        np.full((1, 4), 0.5),
        np.array([0]),
        SparseBox(np.inf, 2, clip=(0, 1)),
        JSMA(saliency="papernot", pairs=pairs),
    )
    moved = found.U_adv[0] - 0.5
    # singly: -a o is 2, 1.5, none (equal signs), .04 for inputs 0 to 3. A pair moves one way: falls of 0 and 3 give 2.1
    # * 1.4, of 0 and 2 2.5 * .8
    assert list(moved) == ([-0.5, 0.0, 0.0, -0.5] if pairs else [-0.5, 0.5, 0.0, 0.0])


def test_random_values_follow_the_protocol():
    model = cyclic(6)
    U = np.random.default_rng(6).uniform(0.5, 1, size=(50, 6))
    y = right(model, U)
    S = np.random.default_rng(7).random((4, 6))
    found = attack(model, U, y, Replace(0, 0.1, 2), Sensitivity(S))
    top = np.argsort(-S[y], axis=1)[:, :2]
    rows = np.arange(50)[:, None]
    assert ((found.U_adv[rows, top] >= 0) & (found.U_adv[rows, top] <= 0.1)).all() and (found.changed == 2).all()
    control = [attack(model, U, y, Replace(0, 1, 2), "random", seed=s).U_adv for s in (0, 0, 1)]
    np.testing.assert_array_equal(control[0], control[1])
    assert not np.array_equal(control[0], control[2])
    chosen = (control[0] != U).sum(axis=0)
    assert chosen.min() > 0 and chosen.sum() == 100  # every input is drawn


def test_the_sensitivity_matrix_is_computed_where_it_is_not_given():
    model = cyclic(8)
    P = problem(model)
    S = np.abs(P.C) @ np.linalg.inv(np.eye(P.n) - np.abs(P.A)) @ np.abs(P.B) + np.abs(P.D)
    U = np.random.default_rng(8).uniform(size=(10, 6))
    y = right(model, U)
    one, two, three = (
        attack(model, U, y, SparseBox(0.3, 2), Sensitivity(s)) for s in (None, S, sensitivity_matrix(model))
    )
    np.testing.assert_array_equal(one.U_adv, two.U_adv)
    np.testing.assert_array_equal(one.U_adv, three.U_adv)


def test_a_sensitivity_matrix_is_a_copy_that_nobody_changes():
    S = np.random.default_rng(7).random((4, 6))
    how = Sensitivity(S)
    before = S.copy()
    S[:] = -1.0
    np.testing.assert_array_equal(how.matrix, before)
    with pytest.raises(ValueError, match="read-only"):
        how.matrix[0, 0] = 1.0
    for wrong in (np.full((4, 6), True), np.full((4, 6), "1")):
        with pytest.raises(TypeError, match="matrix of Sensitivity.* must be numbers, got an array of"):
            Sensitivity(wrong)


@pytest.mark.parametrize("seed", [-1, 1.5, True, None])
def test_a_seed_that_is_none_is_named(seed):
    for inputs, method in ((0.1, "pgd"), (0.1, "fgsm"), (SparseBox(0.1, 2), "random")):
        with pytest.raises(ValueError, match=f"seed must be a non-negative int, got {seed}"):
            attack(cyclic(), np.zeros((2, 6)), np.zeros(2, dtype=int), inputs, method, seed=seed)


def test_inputs_in_bfloat16_are_attacked_as_the_numbers_that_they_are():
    U = torch.rand(5, 6, generator=torch.Generator().manual_seed(0)).bfloat16()
    y = np.zeros(5, dtype=int)
    found, same = (attack(cyclic(), V, y, 0.1, "fgsm") for V in (U, U.double().numpy()))
    np.testing.assert_array_equal(found.U_adv, same.U_adv)


def test_the_displayed_discrepancy_says_nothing_about_the_input():
    # its optimum is the box's own corner, x0 + sigma, feasible with any u of the set
    from implicit_models.robustness.bounding.lp import Programme, batch_units

    model = cyclic(9)
    P = problem(model)
    U = np.random.default_rng(9).normal(size=(1, 6))
    inputs = Box(0.2).around(U)
    start = sparse_attacks._start(P, inputs, "displayed")
    units = batch_units(P, start, "displayed", 0)
    programme = Programme(P, inputs)
    programme.set_sample(0, units)
    x0 = P.equilibrium(U)[0][0]
    w = -((units.xh - x0) ** 2 - (units.xl - x0) ** 2) / (units.xh - units.xl)
    best = programme.minimise(w, np.zeros(6))
    assert best.reported == pytest.approx(w @ units.xh)
    for u in (U[0], U[0] + 0.2, U[0] - 0.2):
        assert (units.xh - P.A @ units.xh - P.B @ u - P.b >= -1e-9).all()


def test_torch_networks_and_single_precision():
    with seeded(0):
        network = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Dropout(0.5), nn.Linear(10, 3)).train()
    U = torch.rand(40, 6, generator=torch.Generator().manual_seed(0))
    y = network.eval()(U).argmax(1)
    network.train()
    found = attack(network, U, y, Box(0.3, clip=(0, 1)), "pgd")
    assert network.training and found.success.any() and found.U_adv.dtype == np.float64
    converted = attack(compose.from_network(network.eval()), U, y, Box(0.3, clip=(0, 1)), "pgd")
    assert abs(int(converted.success.sum()) - int(found.success.sum())) <= 1
    exact = network.eval().double()(torch.from_numpy(found.U_adv)).argmax(1)
    np.testing.assert_array_equal(found.success, (exact != y).numpy())
    with pytest.raises(TypeError, match="from_network"):
        attack(network, U, y, 0.2, "lp")


def test_implicit_gradient_is_that_of_the_equilibrium():
    model = cyclic(10)
    U = np.random.default_rng(10).normal(size=(4, 6))
    y = right(model, U)
    P = problem(model)
    G = gradient_attacks.input_gradient(model, U, y, "label")
    for j in range(6):
        step = 1e-6 * np.eye(6)[j]
        up, down = (P.output(P.equilibrium(V)[0], V)[np.arange(4), y] for V in (U + step, U - step))
        np.testing.assert_allclose(G[:, j], (up - down) / 2e-6, atol=1e-4)


def test_samples_that_are_not_finite_stay_and_leave_the_others():
    model = cyclic(11)
    U = np.random.default_rng(11).normal(size=(5, 6))
    y = right(model, U)
    clean = attack(model, U, y, 0.3, "fgsm")
    U[3, 0] = np.nan
    found = attack(model, U, y, 0.3, "fgsm")
    assert np.isnan(found.U_adv[3, 0]) and not found.success[3] and found.changed[3] == 0
    np.testing.assert_allclose(found.U_adv[[0, 1, 2, 4]], clean.U_adv[[0, 1, 2, 4]])


def test_one_class_and_no_sample():
    P = from_matrices(np.zeros((2, 2)), np.eye(2), np.ones((1, 2)))
    assert not attack(P, np.ones((3, 2)), np.zeros(3, dtype=int), 0.5, "pgd").success.any()
    assert attack(cyclic(), np.zeros((0, 6)), np.zeros(0, dtype=int), 0.5, "pgd").U_adv.shape == (0, 6)


@pytest.mark.parametrize(
    "inputs, method, words",
    [
        (lambda: 0.1, "magic", "unknown method 'magic'"),
        (lambda: 0.1, "jsma", r"give a SparseBox\(radius, k\), got Box\(radius=0.1\)"),
        (lambda: SparseBox(0.1, 3), "pgd", "changes all inputs"),
        (lambda: -0.1, "pgd", "not negative, got -0.1"),
        (lambda: np.inf, "pgd", "finite number that is not negative, got inf"),
        (lambda: SparseBox(np.inf, 2), "jsma", "with a clip range may have an infinite one"),
        (lambda: SparseBox(0.1, 7), "gradient", "between 0 and p = 6, got 7"),
        (lambda: SparseBox(0.1, -1), "gradient", "k must be a non-negative int, got -1"),
        (lambda: SparseBox(0.1, 2, (1, 0)), "gradient", "low < high"),
        (lambda: Box(np.full(5, 0.1)), "fgsm", r"shape \(6,\) or \(2, 6\), got \(5,\)"),
        (lambda: Replace(0, 1, 2), "pgd", "changes all inputs"),
        (lambda: Replace(0, 1, 2), "jsma", "that a score ranks first"),
        (lambda: Replace(0, 1, 7), "random", "between 0 and p = 6, got 7"),
        (lambda: Replace(1, 0, 2), "gradient", "low <= high"),
        (lambda: 0.1, lambda: PGD(steps=0), "at least 1"),
        (lambda: 0.1, lambda: PGD(restarts=2.5), "restarts must be .*2.5"),
        (lambda: 0.1, lambda: PGD(step_size=-1), "step_size must be positive, got -1"),
        (lambda: 0.1, lambda: PGD(loss="hinge"), "loss must be"),
        (lambda: SparseBox(0.1, 2), lambda: JSMA(saliency="x"), "saliency must be"),
        (lambda: 0.1, lambda: LPAttack(objective="x"), "objective must be"),
        (lambda: 0.1, lambda: LPAttack(relaxation="x"), "unknown relaxation 'x'"),
        (lambda: 0.1, lambda: LPAttack(targets=-1), "targets must be .*-1"),
        (
            lambda: SparseBox(0.1, 2),
            lambda: Sensitivity(np.ones((4, 5))),
            r"shape \(4, 6\), one row per class, got \(4, 5\)",
        ),
        (lambda: SparseBox(0.1, 2), lambda: Sensitivity(np.ones((3, 6))), r"shape \(4, 6\), .* got \(3, 6\)"),
        (lambda: SparseBox(0.1, 2), lambda: Sensitivity(np.ones((5, 6))), r"shape \(4, 6\), .* got \(5, 6\)"),
        (lambda: SparseBox(0.1, 2), lambda: Sensitivity(np.ones(6)), r"shape \(q, p\), got \(6,\)"),
        (
            lambda: SparseBox(0.1, 2),
            lambda: Sensitivity(np.full((4, 6), np.nan)),
            r"shape \(4, 6\), is NaN .* \(0, 0\)",
        ),
        (lambda: 0.1, lambda: Sensitivity(np.ones((4, 6))), "would be ignored"),
    ],
)
def test_what_does_not_fit_is_named(inputs, method, words):
    with pytest.raises(ValueError, match=words):
        how = method if isinstance(method, str) else method()
        attack(cyclic(), np.zeros((2, 6)), np.zeros(2, dtype=int), inputs(), how)


@pytest.mark.parametrize("inputs", [None, "0.1", np.full(6, 0.1), True, (0.1, 2)])
def test_what_is_no_set_of_inputs_is_refused(inputs):
    with pytest.raises(TypeError, match="a Box or a SparseBox or a Replace, or the radius of a Box as a number, got"):
        attack(cyclic(), np.zeros((2, 6)), np.zeros(2, dtype=int), inputs)


def test_radii_of_every_input_bound_each_move():
    radius = np.array([[0.0, 0.1, 0.2], [0.3, 0.0, 0.1]])
    w, U = np.array([1.0, -2.0, 3.0]), np.full((2, 3), 0.5)
    signs = -np.sign(w)
    for method in ("fgsm", PGD(steps=30, restarts=1)):
        found = attack(linear(w, bias=5.0), U, np.zeros(2, int), Box(radius), method)
        np.testing.assert_allclose(found.U_adv - U, radius * signs, atol=1e-12)
    for method in ("jsma", "gradient"):  # the ranking by the gradient knows no radius
        found = attack(linear(w, bias=5.0), U, np.zeros(2, int), SparseBox(radius, 3), method)
        np.testing.assert_allclose(found.U_adv - U, radius * signs, atol=1e-12)
    U[0] = np.nan  # the radii that are left are those of the other sample
    found = attack(linear(w, bias=5.0), U, np.zeros(2, int), Box(radius), "fgsm")
    np.testing.assert_allclose(found.U_adv[1] - U[1], radius[1] * signs, atol=1e-12)


def test_an_input_without_gradient_stays_where_any_move_is_allowed():
    w, U = np.array([0.0, 2.0]), np.array([[0.4, 0.5]])
    found = attack(linear(w, bias=5.0), U, np.array([0]), SparseBox(np.inf, 2, clip=(0, 1)), "gradient")
    np.testing.assert_array_equal(found.U_adv, [[0.4, 0.0]])


def test_labels_and_shapes():
    with pytest.raises(ValueError, match="label 4 of sample 1"):
        attack(cyclic(), np.zeros((2, 6)), np.array([0, 4]), 0.1)
    with pytest.raises(ValueError, match="integer labels"):
        attack(cyclic(), np.zeros((2, 6)), np.array([0.0, 1.0]), 0.1)
    with pytest.raises(TypeError, match=r"a name or one of PGD\(\.\.\.\).*, got <class"):
        attack(cyclic(), np.zeros((2, 6)), np.array([0, 1]), SparseBox(0.1, 1), JSMA)
    with pytest.raises(TypeError, match="torch module or a Problem, got str"):
        attack("model", np.zeros((2, 6)), np.array([0, 1]), 0.1)


def test_an_attack_that_leaves_its_set_is_an_error(monkeypatch):
    monkeypatch.setattr(attacks, "fgsm", lambda model, U, y, inputs: U + 0.2)
    with pytest.raises(RuntimeError, match="left its set at sample 0"):
        attack(cyclic(), np.zeros((2, 6)), np.array([0, 1]), 0.1, "fgsm")
