"""Products, feedback loops, and the certificates that compositions inherit from their parts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from implicit_models.compose import interconnect as compose
from implicit_models.compose.certificate import gain
from implicit_models.equilibrium.settings import SolverSettings
from implicit_models.layers import ImplicitModel

TIGHT = {"tol": 1e-12, "max_iter": 20_000}


def part(p, q, n, seed, *, radius=0.5, gain_of=1.0, activation="relu", skip=True):
    """A model with lambda_PF(|A|) = radius and weights of the other matrices scaled by `gain_of`."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n))
    A *= radius / np.abs(np.linalg.eigvals(np.abs(A))).max()
    B, C, D = (
        rng.normal(size=(n, p)) * gain_of / n,
        rng.normal(size=(q, n)) / n,
        rng.normal(size=(q, p)) * gain_of / p / 4 if skip else None,
    )
    return ImplicitModel.from_matrices(A, B, C, D, activation, b=rng.normal(size=n), d=rng.normal(size=q), **TIGHT)


def holds(model):
    """Whether the proof is one: M s <= (1 - margin) s, by a dense product of ours."""
    proof, A = (
        model.proof,
        model.A.to_dense().detach().numpy() if model.A.layout is not torch.strided else model.A.detach().numpy(),
    )
    M = model.activation.lipschitz[:, None] * np.abs(A)
    if proof.kind != "pf":
        single = np.bincount(model.activation.unit)[model.activation.unit] == 1
        M[np.diag_indices(len(M))] = np.where(single, model.activation.lipschitz * np.diag(A), np.diag(M))
    sums = M @ proof.s
    unit = model.activation.unit
    worst = np.array([sums[unit == unit[i]].max() for i in range(len(sums))])
    return bool(
        (proof.s > 0).all() and (worst <= (1 - proof.margin) * proof.s * (1 + 1e-12)).all() and proof.margin > 0
    )


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["cascade", "parallel", "add", "multiply"]),
    st.floats(0.05, 0.99),
    st.floats(0.05, 0.99),
)
def test_parts_prove_the_whole(seed, kind, one, two):
    tanh = "tanh" if kind == "multiply" else "relu"
    f = part(3, 3, 5, seed, radius=one, activation=tanh, gain_of=100.0, skip=kind != "multiply")
    g = part(3, 3, 4, seed + 1, radius=two, activation=tanh, skip=kind != "multiply")
    whole = getattr(compose, kind)(f, g)
    assert whole.proof.kind == "pf" and holds(whole)
    exact = np.abs(np.linalg.eigvals(np.abs(whole.A.detach().numpy()))).max()
    assert exact <= whole.proof.lambda_pf * (1 + 1e-6)


def test_a_part_without_proof_leaves_none():
    loose = ImplicitModel.from_matrices(np.array([[0.8, 0.9], [0.9, 0.8]]), np.ones((2, 3)), np.ones((1, 2)))
    assert compose.cascade(part(2, 3, 4, 0), loose).proof.kind == "none"


def test_signed_and_triangular_parts():
    metzler = ImplicitModel.from_matrices(np.array([[-3.0, 0.5], [0.5, 0.2]]), np.ones((2, 3)), np.ones((3, 2)))
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    for f, g, kind in (
        (metzler, part(3, 2, 4, 1), "metzler"),
        (part(2, 3, 4, 2), metzler, "metzler"),
        (part(2, 3, 4, 3), network, "pf"),
    ):
        whole = compose.cascade(f, g)
        assert whole.proof.kind == kind and holds(whole)


def test_multiply_is_the_product_and_its_constant_holds():
    f, g = part(4, 3, 6, 0, activation="tanh", skip=False), part(4, 3, 5, 1, activation="sigmoid", skip=False)
    whole = compose.multiply(f, g, **TIGHT)
    rng = np.random.default_rng(2)
    u, v = (torch.from_numpy(rng.normal(size=(4000, 4)) * 3) for _ in range(2))
    v[2000:] = u[2000:] + 1e-3 * torch.from_numpy(rng.normal(size=(2000, 4)))
    with torch.no_grad():
        y, z = whole(u), whole(v)
        torch.testing.assert_close(y, f(u) * g(u), rtol=1e-9, atol=1e-10)
    ratio = ((y - z).abs() / (u - v).abs().amax(1, keepdim=True)).amax(0).numpy()
    assert (ratio <= whole.lipschitz).all() and (ratio > 0.001 * whole.lipschitz).all()


def test_constant_of_the_thesis():
    """phi_1 = tanh (bound 1, slope 1) times phi_2 = 3 sigmoid (bound 3, slope 3/4): max{3, 3/4} in the l1 norm of (u_1,
    u_2)."""
    select = lambda k: np.eye(2)[k : k + 1]
    f = ImplicitModel.from_matrices(np.zeros((1, 1)), select(0), np.ones((1, 1)), activation="tanh")
    g = ImplicitModel.from_matrices(np.zeros((1, 1)), select(1), 3 * np.ones((1, 1)), activation="sigmoid")
    whole = compose.multiply(f, g, **TIGHT)
    assert whole.lipschitz.tolist() == [3 * 1 + 1 * 0.75]  # infinity norm: the sum of the two
    u, v = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 20_000, 2)) * 4)
    with torch.no_grad():
        change = (whole(u) - whole(v)).abs()[:, 0]
    assert (change <= 3 * (u - v).abs().sum(1) + 1e-12).all()
    steep = torch.tensor([[0.0, 30.0], [1e-4, 30.0]], dtype=torch.float64)
    with torch.no_grad():
        assert float((whole(steep[1:]) - whole(steep[:1])) / 1e-4) == pytest.approx(
            3, rel=1e-4
        )  # reached where the sigmoid is 1


def test_products_without_bounds_are_refused():
    bounded, free = part(3, 2, 4, 0, activation="tanh", skip=False), part(3, 2, 4, 1)
    with pytest.raises(ValueError, match="second factor has no bound .2 of 2 entries."):
        compose.multiply(bounded, free)
    with pytest.raises(ValueError, match="f has 2 outputs, g has 3"):
        compose.multiply(bounded, part(3, 3, 4, 1))


@pytest.mark.parametrize("skips", [(True, True), (True, False), (False, False)])
def test_feedback_closes_the_loop(skips):
    f, g = part(3, 2, 6, 0, gain_of=0.5, skip=skips[0]), part(2, 3, 5, 1, gain_of=0.5, skip=skips[1])
    loop = compose.feedback(f, g, **TIGHT)
    u = torch.from_numpy(np.random.default_rng(3).normal(size=(20, 3)))
    with torch.no_grad():
        y = loop(u)
        torch.testing.assert_close(y, f(u + g(y)), rtol=1e-8, atol=1e-9)
    assert loop.proof.kind == "pf" and holds(loop) and loop.proof.lambda_pf <= 1 - loop.proof.margin + 1e-15
    assert loop.certificate().kind == "pf"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 40.0))
def test_small_gain_decides(seed, strength):
    f, g = part(2, 3, 4, seed, gain_of=strength), part(3, 2, 4, seed + 1, gain_of=1.0)
    loop = compose.feedback(f, g)
    small = np.abs(np.linalg.eigvals(gain(g) @ gain(f))).max()
    assert bool(loop.proof) == (small < 1) or abs(small - 1) < 1e-2
    if loop.proof:
        assert holds(loop)


def test_gain_bounds_the_outputs():
    model = part(3, 2, 6, 5, radius=0.8)
    u, v = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 5000, 3)))
    with torch.no_grad():
        change = (model(u) - model(v)).abs().numpy()
    assert (change <= (u - v).abs().numpy() @ gain(model).T + 1e-9).all()
    assert gain(part(2, 2, 1, 0, radius=0.0)).shape == (2, 2)


def test_loops_that_cannot_close():
    one = ImplicitModel.from_matrices(np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)), np.array([[2.0]]))
    half = ImplicitModel.from_matrices(np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)), np.array([[0.5]]))
    with pytest.raises(ValueError, match=r"D_g D_f close a loop without a unique solution"):
        compose.feedback(one, half)
    with pytest.raises(ValueError, match="f maps 3 to 2, g maps 3 to 2: the loop does not close"):
        compose.feedback(part(3, 2, 4, 0), part(3, 2, 4, 1))


BLOCKS = [("tanh", 2), ("softmax", 2), ("max_pool", 2), ("product", 2)]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["softmax", "max_pool", "product", "relu", BLOCKS]),
    st.sampled_from([0.0, 0.5, 0.95]),
)
def test_gain_bounds_the_outputs_of_blocks(seed, activation, rows):
    """Where the input moves a state of a block through another one's argument."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(8, 8))
    A *= rows / np.abs(A).sum(1).max() / (2 if activation != "relu" else 1)
    if activation == "relu" and seed % 2:
        A -= 3 * np.eye(8)  # no bounded inverse of I - |A|, and well-posed all the same
    B, C = rng.normal(size=(8, 3)) * (rng.random((8, 3)) < 0.4), rng.normal(size=(2, 8)) * (rng.random((2, 8)) < 0.5)
    model = ImplicitModel.from_matrices(A, B, C, None, activation, **TIGHT)
    u = torch.from_numpy(rng.normal(size=(200, 3)))
    v = u + torch.from_numpy(rng.normal(size=(200, 3)) * (rng.random((200, 3)) < 0.5))
    with torch.no_grad():
        change = (model(u) - model(v)).abs().numpy()
    assert (gain(model) >= 0).all() and (change <= (u - v).abs().numpy() @ gain(model).T + 1e-9).all()


@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
def test_a_bound_of_the_argument_is_none_of_a_map_that_is_not_zero_at_zero(activation):
    """sigmoid(z) is 1/2 where |z| <= 1/100: a factor cut to 1/100 would be another function."""
    small = compose.from_network(
        nn.Sequential(
            nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.Sigmoid() if activation == "sigmoid" else nn.Softmax(1)
        ).double()
    )
    with torch.no_grad():
        small.A.values().mul_(1e-2)
        small.b.zero_()
    one = part(2, 2, 4, 0, radius=0.0, activation="tanh", skip=False)
    u = torch.from_numpy(np.random.default_rng(0).normal(size=(300, 2)))
    product = compose.multiply(small, one)
    with torch.no_grad():
        torch.testing.assert_close(product(u), small(u) * one(u))
        change, distance = (
            (product(u[:150]) - product(u[150:])).abs().numpy(),
            (u[:150] - u[150:]).abs().max(1).values.numpy(),
        )
    assert (change <= product.lipschitz * distance[:, None]).all()


def test_a_part_without_a_bound_of_its_gain_has_an_infinite_constant():
    free = ImplicitModel.from_matrices(np.array([[0.0, 2.0], [2.0, 0.0]]), np.eye(2), np.eye(2), None, "tanh")
    product = compose.multiply(free, part(2, 2, 4, 0, activation="tanh", skip=False))
    assert not free.certificate() and np.isinf(product.lipschitz).all()


JOINS = {
    "cascade": lambda f, g, **settings: compose.cascade(f, g, **settings),
    "parallel": lambda f, g, **settings: compose.parallel(f, g, **settings),
    "add": lambda f, g, **settings: compose.add(f, g, **settings),
    "multiply": lambda f, g, **settings: compose.multiply(f, g, **settings),
    "feedback": lambda f, g, **settings: compose.feedback(f, g, **settings),
    "from_network": lambda f, g, **settings: compose.from_network(nn.Sequential(f, nn.ReLU(), g), 3, **settings),
}


def bounded(**settings):
    n = np.full((3, 3), 0.05)
    return ImplicitModel.from_matrices(n, np.eye(3), n, activation="tanh", **settings)


@pytest.mark.parametrize("join", JOINS)
def test_a_composition_takes_the_settings_of_its_parts(join):
    join = JOINS[join]
    own = {"tol": 1e-12, "tol_mode": "absolute", "on_failure": "raise", "solver": "picard", "max_iter": 900}
    own["backward"] = "unroll"
    assert join(bounded(), bounded()).settings == SolverSettings()  # parts of defaults, as without parts
    assert join(bounded(**own), bounded(**own)).settings == SolverSettings(**own)
    # what is given wins, one by one
    whole = join(bounded(**own), bounded(**own), tol=1e-3, on_failure="ignore")
    assert whole.settings == SolverSettings(**{**own, "tol": 1e-3, "on_failure": "ignore"})
    # the stricter of two, in either order
    mixed = {"tol": 1e-12, "tol_mode": "absolute", "on_failure": "raise", "max_iter": 900}
    other = {"tol": 1e-4, "solver": "anderson", "on_failure": "ignore", "max_iter": 20}
    for f, g in ((own, other), (other, own)):
        assert join(bounded(**f), bounded(**g)).settings == SolverSettings(**mixed)


def test_warning_is_stricter_than_silence_and_three_parts_count():
    quiet = bounded(on_failure="ignore")
    assert compose.add(quiet, bounded()).settings.on_failure == "warn"
    three = nn.Sequential(quiet, bounded(tol=1e-9), bounded(max_iter=7))
    assert compose.from_network(three, 3).settings == SolverSettings(tol=1e-9)
    network = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).double()  # has no settings: those of the other part count
    loose = bounded(tol=1e-3, max_iter=20)
    assert compose.cascade(network, loose).settings == SolverSettings(tol=1e-3, max_iter=20)


def test_a_given_solver_or_backward_pass_frees_the_other_from_unrolling():
    unrolled, newton = bounded(backward="unroll", solver="picard"), bounded(solver="newton")
    given = compose.add(unrolled, unrolled, solver="newton").settings
    assert (given.solver, given.backward) == ("newton", "implicit")
    given = compose.add(newton, newton, backward="unroll").settings
    assert (given.solver, given.backward) == ("auto", "unroll")
    with pytest.raises(ValueError, match="solver must be auto or picard, got 'newton'"):
        compose.add(newton, newton, backward="unroll", solver="newton")
    with pytest.raises(TypeError, match="unexpected argument tolerance"):
        compose.add(newton, newton, tolerance=1)


@pytest.mark.parametrize("join", JOINS)
def test_a_compiled_solver_of_the_parts_is_taken_where_it_serves_the_whole(join):
    f, u = bounded(solver="gauss_seidel"), torch.randn(4, 3, dtype=torch.float64)
    whole = JOINS[join](f, f)
    served = join not in ("multiply", "from_network")  # blocks of two states, sparse matrices
    assert whole.settings.solver == ("gauss_seidel" if served else "auto")
    assert whole(u.repeat(1, whole.in_features // 3)).isfinite().all()
    network = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).double()  # is read into sparse matrices
    assert compose.cascade(f, network).settings.solver == "auto"
    with pytest.raises(ValueError, match="solver 'gauss_seidel' is compiled for dense"):  # what is given is not changed
        compose.cascade(f, network, solver="gauss_seidel")(u)
