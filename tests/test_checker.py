"""The checker: what is proved passes, what was tampered with does not."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.robustness import lp, outward
from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.checker import check
from implicit_models.robustness.problem import from_matrices

METHODS = [("norm", {}), ("box", {}), ("comparison", {}), ("metzler", {}), ("interval", {}), ("dual", {}),
           ("lp", {"relaxation": "displayed"}), ("lp", {"relaxation": "theorem7"}), ("lp", {})]  # fmt: skip


def model(seed=0, n=6, p=4, q=3, activation="relu", radius=0.8, diagonal=None, sparse=False, order="cyclic"):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n))
    A *= radius / np.abs(A).sum(1, keepdims=True)
    if diagonal is not None:
        A[np.arange(n), np.arange(n)] = diagonal
    if order == "triangular":
        A = np.triu(20 * A, 1)
    wrap = sp.csr_array if sparse else np.asarray
    return from_matrices(
        wrap(A), wrap(rng.normal(size=(n, p))), wrap(rng.normal(size=(q, n))), wrap(rng.normal(size=(q, p))), activation,
        b=0.3 * rng.normal(size=n), d=rng.normal(size=q),
    )  # fmt: skip


def points(P, N=3, seed=1):
    return np.random.default_rng(seed).normal(size=(N, P.p))


def changed(cert, **fields):
    return dataclasses.replace(cert, **fields)


@pytest.mark.parametrize("method, options", METHODS)
@pytest.mark.parametrize("sets", [{"eps": 0.2}, {"eps": 0.0}, {"sigma": np.array([0.3, 0, 0.1, 0.2]), "card": 2}])
def test_bounds_pass_and_bounds_a_little_too_good_do_not(method, options, sets):
    P = model()
    found = bounds(P, points(P), method=method, **sets, **options)
    assert check(found.cert), check(found.cert).reason
    scale = 1e-9 * np.maximum(1, np.abs(found.lb))
    # each bound sits at the edge of what its evidence proves; states that have one radius for all are better known from their pre-activations
    states = {} if method in ("norm", "comparison") else {"xl": found.xl + 1e-9, "xh": found.xh - 1e-9}
    for name, value in {"lb": found.lb + scale, "ub": found.ub - scale, "zl": found.zl + 1e-9, "zh": found.zh - 1e-9, **states}.items():
        assert not check(changed(found.cert, **{name: value})), name
    better = found.lb.copy()
    better[1, 0] += 1e-6
    result = check(changed(found.cert, lb=better))
    assert list(result.samples) == [True, False, True] and "sample 1: a lower bound" in result.reason


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["relu", "leaky_relu(0.2)", "identity", "tanh", "sigmoid", (("relu", 3), ("softmax", 3)), (("max_pool", 3), ("tanh", 3))]),
    st.sampled_from([None, -1.7, "triangular"]),
    st.sampled_from(["interval", "dual"]),
    st.booleans(),
)
def test_every_kind_of_model(seed, activation, kind, method, sparse):
    blockwise = isinstance(activation, tuple)
    options = {} if kind is None or blockwise else {"order": "triangular"} if kind == "triangular" else {"diagonal": kind}
    if blockwise:  # block norms take the largest row of a block for every other block: at most four times .2
        options["radius"] = 0.2
    P = model(seed, activation=list(activation) if blockwise else activation, sparse=sparse, **options)
    found = bounds(P, points(P), eps=0.3, method=method)
    assert set(found.status) == {"ok"}
    result = check(found.cert)
    assert result, result.reason
    V = points(P)[:, None] + np.random.default_rng(seed).uniform(-0.3, 0.3, size=(3, 50, P.p))
    y = P.output(P.equilibrium(V.reshape(-1, P.p))[0], V.reshape(-1, P.p)).reshape(3, 50, -1)
    assert not check(changed(found.cert, lb=y.min(1) + 1e-6))  # no evidence can prove what is false


def test_multipliers_that_were_changed():
    P = model(2)
    found = bounds(P, points(P), eps=0.3, method="dual")
    lam = found.cert.lam_low + 0.05
    assert "a lower bound" in check(changed(found.cert, lam_low=lam)).reason
    stage = found.cert.stages[0]
    wrong = dataclasses.replace(stage, lam=stage.lam + 0.1)
    assert "stage 0" in check(changed(found.cert, stages=(wrong, *found.cert.stages[1:]))).reason
    tighter = dataclasses.replace(stage, zl=stage.zl + 1e-3)
    assert "stage 0" in check(changed(found.cert, stages=(tighter, *found.cert.stages[1:]))).reason


def test_refinement_without_its_multipliers_is_not_believed():
    P = model(2)
    found = bounds(P, points(P), eps=0.3, method="dual")
    result = check(changed(found.cert, stages=None))
    assert not result and "were not kept" in result.reason
    assert not check(changed(found.cert, stages=()))  # and bounds do not follow from the interval alone


def test_boxes_that_were_shrunk():
    P = model(3)
    found = bounds(P, points(P), eps=0.3, method="box")
    assert "not mapped into itself" in check(changed(found.cert, sigma=found.cert.sigma * 0.999)).reason
    assert not check(changed(found.cert, x0=found.cert.x0 + 1e-3))
    interval = bounds(P, points(P), eps=0.3, method="interval").cert
    middle = 0.5 * (interval.il + interval.ih)
    small = changed(interval, il=middle + 0.999 * (interval.il - middle), ih=middle + 0.999 * (interval.ih - middle))
    assert not check(small)
    assert not check(changed(interval, zl0=interval.zl0 + 1e-6))
    # F maps this small box outwards: started inside, an iterate is not sound
    P = from_matrices([[0.9]], [[1.0]], [[1.0]], None, "relu")
    honest = bounds(P, [[0.5]], eps=0.5, method="interval")
    assert honest.ub[0, 0] == pytest.approx(10.0)  # x = (0.9 x + u)_+ with u = 1
    inner = changed(honest.cert, il=np.zeros((1, 1)), ih=np.full((1, 1), 9.9), zh0=np.full((1, 1), 9.9), xh=np.full((1, 1), 9.9), zh=np.full((1, 1), 9.9), ub=np.full((1, 1), 9.9))
    assert not check(inner)


def test_comparison_vectors_that_prove_nothing():
    P = model(4)
    cert = bounds(P, points(P), eps=0.3, method="box").cert
    assert "M s < s" in check(changed(cert, s=np.r_[100 * cert.s[0], cert.s[1:]])).reason
    assert "not positive" in check(changed(cert, s=-cert.s)).reason
    assert "no comparison vector" in check(changed(cert, s=None)).reason
    assert "no comparison vector" in check(changed(cert, s=None, kind="triangular")).reason  # A feeds back
    assert "proves nothing" in check(changed(cert, kind="none")).reason
    # a matrix with lambda_PF >= 1 has no vector at all
    grown = changed(cert, A=cert.A * 1.3)
    assert not check(grown)
    triangular = bounds(model(4, order="triangular"), points(P), eps=0.3, method="interval").cert
    assert check(changed(triangular, kind="triangular", s=None))


def test_an_optimum_that_is_reported_and_infeasible(monkeypatch):
    """An LP solver says "optimal" with an objective that no point of the relaxation has; bounds that took it are caught."""
    P = model(5)
    honest = bounds(P, points(P), eps=0.3, method="lp")
    minimise = lp.Programme.minimise
    reported = []

    def lie(self, w, v):
        found = minimise(self, w, v)
        reported.append(found.reported + 0.5)
        return lp.Solved(found.lam, found.u, found.reported + 0.5, True)

    monkeypatch.setattr(lp.Programme, "minimise", lie)
    found = bounds(P, points(P), eps=0.3, method="lp")
    np.testing.assert_allclose(found.lb, honest.lb, atol=1e-9)  # the report is not used
    claimed = np.reshape(reported, (3, 2, P.q))[:, 0] + P.d
    assert (claimed > honest.lb + 0.4).all()
    result = check(changed(found.cert, lb=claimed))
    assert not result and "a lower bound is not proved" in result.reason


def test_the_displayed_programme_needs_multipliers_that_are_not_negative():
    P = model(6)
    cert = bounds(P, points(P), eps=0.3, method="lp", relaxation="displayed").cert
    lam = np.full_like(cert.lam_low, -0.3)  # z has no lower end: the infimum is -inf
    box = bounds(P, points(P), eps=0.3, method="box")
    assert not check(changed(cert, lam_low=lam, lb=box.lb + 1e-3))
    assert check(changed(cert, lam_low=lam, lb=box.lb, ub=box.ub))


@pytest.mark.parametrize(
    "field, value, words",
    [
        ("A", np.full((6, 6), np.nan), "A has values that are not finite"),
        ("radius", -np.ones(4), "radius is negative"),
        ("xl", np.zeros((3, 2)), "malformed"),
        ("lam_low", np.zeros((3, 1, 1)), "malformed"),
        ("lb", np.full((3, 3), np.nan), "a lower bound"),
        ("segments", (("swish", 0.0, 0, 6, 1),), "unknown activation 'swish'"),
    ],
)
def test_what_is_malformed_is_false_with_its_reason(field, value, words):
    P = model(7)
    result = check(changed(bounds(P, points(P), eps=0.1, method="dual").cert, **{field: value}))
    assert not result and words in result.reason


def test_neither_box_nor_interval():
    P = model(7)
    cert = bounds(P, points(P), eps=0.1, method="box").cert
    assert "neither a box nor an interval" in check(changed(cert, x0=None, sigma=None)).reason


def test_samples_without_a_claim_do_not_count():
    P = model(8)
    U = points(P)
    U[1] = np.nan
    found = bounds(P, U, eps=0.1, method="dual")
    result = check(found.cert)
    assert result and result.samples.all() and found.status[1] == "not_finite"
    assert "not finite has a claim" in check(changed(found.cert, status=np.full(3, "ok"))).reason


def test_no_solver_is_imported():
    code = "import sys; import implicit_models.robustness.checker; print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'scipy', 'numba', 'highspy'}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["relu", "leaky_relu", "identity", "tanh", "sigmoid"]), st.floats(-4, 4), st.floats(-4, 4), st.floats(-3, 3), st.floats(0, 6))
def test_the_infimum_of_a_unit_is_below_a_fine_grid(name, mu, lam, zl, width):
    zh = zl + width
    z = np.append(np.linspace(zl, zh, 4001), np.clip(0.0, zl, zh))  # ends, kink and all between
    phi = {"relu": lambda t: np.maximum(t, 0), "leaky_relu": lambda t: np.where(t > 0, t, 0.2 * t), "identity": lambda t: t, "tanh": np.tanh,
           "sigmoid": lambda t: 1 / (1 + np.exp(-t))}[name](z)  # fmt: skip
    exact = (mu * phi - lam * z).min()
    one = lambda v: np.full((1, 1), v)  # noqa: E731
    got = outward.infimum(((name, 0.2, 0, 1, 1),), one(mu), one(0.0), one(lam), one(zl), one(zh), one(-9.0), one(9.0))[0, 0]
    assert got <= exact + 1e-15
    assert got >= exact - 1e-5 - 1e-12  # and no lower than the grid's own spacing explains
