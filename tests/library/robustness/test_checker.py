"""The checker: what is proved passes, what was tampered with does not."""

import dataclasses
import functools
import subprocess
import sys

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.bounding import lp
from implicit_models.robustness.bounding.options import LP
from implicit_models.robustness.checking import outward
from implicit_models.robustness.checking.checker import check
from implicit_models.robustness.input_sets import Box, SparseBox
from implicit_models.robustness.problem import from_matrices

METHODS = ["norm", "box", "comparison", "metzler", "interval", "dual", LP("displayed"), LP("theorem7"), "lp"]


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
        wrap(A),
        wrap(rng.normal(size=(n, p))),
        wrap(rng.normal(size=(q, n))),
        wrap(rng.normal(size=(q, p))),
        activation,
        b=0.3 * rng.normal(size=n),
        d=rng.normal(size=q),
    )


def points(P, N=3, seed=1):
    return np.random.default_rng(seed).normal(size=(N, P.p))


def changed(cert, **fields):
    return dataclasses.replace(cert, **fields)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sets", [0.2, 0.0, SparseBox(np.array([0.3, 0, 0.1, 0.2]), 2)])
def test_bounds_pass_and_bounds_a_little_too_good_do_not(method, sets):
    P = model()
    found = bounds(P, points(P), sets, method=method)
    assert check(found.cert), check(found.cert).reason
    scale = 1e-9 * np.maximum(1, np.abs(found.lb))
    # each bound sits at the edge of what its evidence proves; states that have one radius for all are better known from
    # their pre-activations
    states = {} if method in ("norm", "comparison") else {"xl": found.xl + 1e-9, "xh": found.xh - 1e-9}
    for name, value in {
        "lb": found.lb + scale,
        "ub": found.ub - scale,
        "zl": found.zl + 1e-9,
        "zh": found.zh - 1e-9,
        **states,
    }.items():
        assert not check(changed(found.cert, **{name: value})), name
    better = found.lb.copy()
    better[1, 0] += 1e-6
    result = check(changed(found.cert, lb=better))
    assert list(result.samples) == [True, False, True] and "sample 1: a lower bound" in result.reason


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(
        [
            "relu",
            "leaky_relu(0.2)",
            "identity",
            "tanh",
            "sigmoid",
            (("relu", 3), ("softmax", 3)),
            (("max_pool", 3), ("tanh", 3)),
            (("product", 4), ("tanh", 2)),
        ]
    ),
    st.sampled_from([None, -1.7, "triangular"]),
    st.sampled_from(["interval", "dual"]),
    st.booleans(),
)
def test_every_kind_of_model(seed, activation, kind, method, sparse):
    blockwise = isinstance(activation, tuple)
    options = (
        {} if kind is None or blockwise else {"order": "triangular"} if kind == "triangular" else {"diagonal": kind}
    )
    if blockwise:  # block norms take the largest row of a block for every other block: at most four times .2
        options["radius"] = 0.2
    P = model(seed, activation=list(activation) if blockwise else activation, sparse=sparse, **options)
    found = bounds(P, points(P), 0.3, method=method)
    assert set(found.status) == {"certified"}
    result = check(found.cert)
    assert result, result.reason
    V = points(P)[:, None] + np.random.default_rng(seed).uniform(-0.3, 0.3, size=(3, 50, P.p))
    y = P.output(P.equilibrium(V.reshape(-1, P.p))[0], V.reshape(-1, P.p)).reshape(3, 50, -1)
    assert not check(changed(found.cert, lb=y.min(1) + 1e-6))  # no evidence can prove what is false


def test_multipliers_that_were_changed():
    P = model(2)
    found = bounds(P, points(P), 0.3, method="dual")
    lam = found.cert.lam_low + 0.05
    assert "a lower bound" in check(changed(found.cert, lam_low=lam)).reason
    stage = found.cert.stages[0]
    wrong = dataclasses.replace(stage, lam=stage.lam + 0.1)
    assert "stage 0" in check(changed(found.cert, stages=(wrong, *found.cert.stages[1:]))).reason
    tighter = dataclasses.replace(stage, zl=stage.zl + 1e-3)
    assert "stage 0" in check(changed(found.cert, stages=(tighter, *found.cert.stages[1:]))).reason


def test_refinement_without_its_multipliers_is_not_believed():
    P = model(2)
    found = bounds(P, points(P), 0.3, method="dual")
    result = check(changed(found.cert, stages=None))
    assert not result and "were not kept" in result.reason
    assert not check(changed(found.cert, stages=()))  # and bounds do not follow from the interval alone


def test_boxes_that_were_shrunk():
    P = model(3)
    found = bounds(P, points(P), 0.3, method="box")
    assert "not mapped into itself" in check(changed(found.cert, sigma=found.cert.sigma * 0.999)).reason
    assert not check(changed(found.cert, x0=found.cert.x0 + 1e-3))
    interval = bounds(P, points(P), 0.3, method="interval").cert
    middle = 0.5 * (interval.il + interval.ih)
    small = changed(interval, il=middle + 0.999 * (interval.il - middle), ih=middle + 0.999 * (interval.ih - middle))
    assert not check(small)
    assert not check(changed(interval, zl0=interval.zl0 + 1e-6))
    # F maps this small box outwards: started inside, an iterate is not sound
    P = from_matrices([[0.9]], [[1.0]], [[1.0]], None, "relu")
    honest = bounds(P, [[0.5]], 0.5, method="interval")
    assert honest.ub[0, 0] == pytest.approx(10.0)  # x = (0.9 x + u)_+ with u = 1
    inner = changed(
        honest.cert,
        il=np.zeros((1, 1)),
        ih=np.full((1, 1), 9.9),
        zh0=np.full((1, 1), 9.9),
        xh=np.full((1, 1), 9.9),
        zh=np.full((1, 1), 9.9),
        ub=np.full((1, 1), 9.9),
    )
    assert not check(inner)


def test_comparison_vectors_that_prove_nothing():
    P = model(4)
    cert = bounds(P, points(P), 0.3, method="box").cert
    assert "M s < s" in check(changed(cert, s=np.r_[100 * cert.s[0], cert.s[1:]])).reason
    assert "not positive" in check(changed(cert, s=-cert.s)).reason
    assert "no comparison vector" in check(changed(cert, s=None)).reason
    assert "no comparison vector" in check(changed(cert, s=None, kind="triangular")).reason  # A feeds back
    assert "proves nothing" in check(changed(cert, kind="none")).reason
    # a matrix with lambda_PF >= 1 has no vector at all
    grown = changed(cert, A=cert.A * 1.3)
    assert not check(grown)
    triangular = bounds(model(4, order="triangular"), points(P), 0.3, method="interval").cert
    assert check(changed(triangular, kind="triangular", s=None))


def test_an_optimum_that_is_reported_and_infeasible(monkeypatch):
    """An LP solver says "optimal" with an objective that no point of the relaxation has; bounds that took it are
    caught."""
    P = model(5)
    honest = bounds(P, points(P), 0.3, method="lp")
    minimise = lp.Programme.minimise
    reported = []

    def lie(self, w, v):
        found = minimise(self, w, v)
        reported.append(found.reported + 0.5)
        return lp.Solved(found.lam, found.u, found.reported + 0.5, True)

    monkeypatch.setattr(lp.Programme, "minimise", lie)
    found = bounds(P, points(P), 0.3, method="lp")
    np.testing.assert_allclose(found.lb, honest.lb, atol=1e-9)  # the report is not used
    claimed = np.reshape(reported, (3, 2, P.q))[:, 0] + P.d
    assert (claimed > honest.lb + 0.4).all()
    result = check(changed(found.cert, lb=claimed))
    assert not result and "a lower bound is not proved" in result.reason


def test_the_displayed_programme_needs_multipliers_that_are_not_negative():
    P = model(6)
    cert = bounds(P, points(P), 0.3, method=LP(relaxation="displayed")).cert
    lam = np.full_like(cert.lam_low, -0.3)  # z has no lower end: the infimum is -inf
    box = bounds(P, points(P), 0.3, method="box")
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
    result = check(changed(bounds(P, points(P), 0.1, method="dual").cert, **{field: value}))
    assert not result and words in result.reason


def test_neither_box_nor_interval():
    P = model(7)
    cert = bounds(P, points(P), 0.1, method="box").cert
    assert "neither a box nor an interval" in check(changed(cert, x0=None, sigma=None)).reason


def test_samples_without_a_claim_do_not_count():
    P = model(8)
    U = points(P)
    U[1] = np.nan
    found = bounds(P, U, 0.1, method="dual")
    result = check(found.cert)
    assert result and result.samples.all() and found.status[1] == "not_finite"
    assert "not finite has a claim" in check(changed(found.cert, status=np.full(3, "certified"))).reason


def test_no_solver_is_imported():
    code = (
        "import sys; import implicit_models.robustness.checking.checker;"
        " print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'scipy', 'numba', 'highspy'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["relu", "leaky_relu", "identity", "tanh", "sigmoid"]),
    st.floats(-4, 4),
    st.floats(-4, 4),
    st.floats(-3, 3),
    st.floats(0, 6),
)
def test_the_infimum_of_a_unit_is_below_a_fine_grid(name, mu, lam, zl, width):
    zh = zl + width
    z = np.append(np.linspace(zl, zh, 4001), np.clip(0.0, zl, zh))  # ends, kink and all between
    phi = {
        "relu": lambda t: np.maximum(t, 0),
        "leaky_relu": lambda t: np.where(t > 0, t, 0.2 * t),
        "identity": lambda t: t,
        "tanh": np.tanh,
        "sigmoid": lambda t: 1 / (1 + np.exp(-t)),
    }[name](z)
    exact = (mu * phi - lam * z).min()
    one = lambda v: np.full((1, 1), v)
    got = outward.infimum(((name, 0.2, 0, 1, 1),), one(mu), one(0.0), one(lam), one(zl), one(zh), one(-9.0), one(9.0))[
        0, 0
    ]
    assert got <= exact + 1e-15
    assert got >= exact - 1e-5 - 1e-12  # and no lower than the grid's own spacing explains


@functools.cache
def every_kind_of_certificate():
    """One with all fields set: both evidences, stages, multipliers of both sides, radii of their own."""
    P = model(9, activation=[("leaky_relu(0.2)", 3), ("relu", 3)])
    U, sigma = points(P), np.random.default_rng(2).uniform(0.1, 0.3, size=(3, 4))
    cert = bounds(P, U, Box(sigma), method="lp").cert
    box = bounds(P, U, Box(sigma), method="box").cert
    return changed(cert, x0=box.x0, sigma=box.sigma)


NUMBERS = [
    "A",
    "B",
    "C",
    "D",
    "b",
    "d",
    "s",
    "centre",
    "radius",
    "spec",
    "lb",
    "ub",
    "xl",
    "xh",
    "zl",
    "zh",
    "x0",
    "sigma",
    "il",
    "ih",
    "zl0",
    "zh0",
    "lam_low",
    "lam_high",
]
OTHERS = ["segments", "kind", "card", "method", "relaxation", "status", "stages"]
NONE_CLAIMS_LESS = {
    "ub",
    "lb",
    "card",
    "relaxation",
}  # None: no claim, or (card, of a larger set) the one that was checked
NONE_HAS_LESS = {"lam_low", "lam_high", "stages"}


def test_the_fields_that_are_tampered_with_are_all():
    assert {field.name for field in dataclasses.fields(every_kind_of_certificate())} == {*NUMBERS, *OTHERS}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_another_shape_type_or_value(name):
    cert = every_kind_of_certificate()
    assert check(cert), check(cert).reason
    v = getattr(cert, name)
    shapes = [
        v[..., :1],
        v[:1],
        v[None],
        np.concatenate([v, v]),
        v.ravel()[0],
        v.ravel()[:0],
        np.full(v.shape[:1] + (1,) * (v.ndim - 1), v.ravel()[0]),
    ]
    # a radius for all is a form of its own, of another set
    shapes = [w for w in shapes if np.shape(w) != v.shape and (name != "radius" or np.shape(w) != (4,))]
    types = [
        v.astype(str),
        v.astype(complex),
        v.astype(object),
        v > 0,
        v.tolist()[:1],
        [],
        "x",
        3,
        {},
        object(),
        lambda: 0,
        b"1",
        np.datetime64("2020"),
        float("nan"),
    ]
    for wrong in shapes + types + [np.longdouble(1) * v if np.longdouble(0).itemsize > 8 else "x"]:
        result = check(changed(cert, **{name: wrong}))
        assert not result and result.reason, (name, wrong)
    result = check(changed(cert, **{name: None}))
    assert bool(result) == (name in NONE_CLAIMS_LESS) or name in NONE_HAS_LESS, result.reason
    better = {
        "lb": 1e-6,
        "ub": -1e-6,
        "xl": 1e-6,
        "xh": -1e-6,
        "zl": 1e-6,
        "zh": -1e-6,
        "d": 1e-3,
        "sigma": -1.0,
        "il": 1e-3,
        "ih": -1e-3,
    }
    values = [np.full_like(v, np.nan), np.where(np.arange(v.size).reshape(v.shape) == v.size - 1, -np.inf, v)]
    if name in better:
        values.append(v + better[name])
    elif name in ("A", "B", "C", "D", "b", "centre", "spec", "radius"):
        values.append(3 * v + 1)
    elif name in ("x0", "zl0", "zh0", "s"):
        values.append(-10 * v)
    for wrong in values:
        with np.errstate(all="raise"):
            result = check(changed(cert, **{name: wrong}))
        vacuous = name in ("lam_low", "lam_high") or (
            name in ("lb", "xl", "zl", "il") and not np.isnan(wrong).any() and (wrong <= v).all()
        )
        assert vacuous or not result, (name, wrong)


@pytest.mark.parametrize(
    "name, values",
    [
        (
            "segments",
            [
                None,
                3,
                "x",
                (),
                (("relu", 0.0, 0, 6),),
                (("relu", 0.0, 0, 5, 1),),
                (("relu", 0.0, 0, 7, 1),),
                (("relu", 0.0, 1, 6, 1),),
                (("leaky_relu", 0.2, 0, 3, 1), ("relu", 0.0, 2, 6, 1)),
                (("leaky_relu", 0.2, 0, 3, 1), ("relu", 0.0, 4, 6, 1)),
                (("leaky_relu", 0.2, 0, 6, 1), ("relu", 0.0, 3, 6, 1)),
                (("relu", 0.5, 0, 6, 1),),
                (("relu", None, 0, 6, 1),),
                (("identity", 0.0, 0, 6, 1),),
                (("softmax", 0.0, 0, 6, 0),),
                (("softmax", 0.0, 0, 6, 4),),
                (("product", 0.0, 0, 6, 3),),
                (("relu", 0.0, 0, 6, 2),),
                (("relu", 0.0, 0.0, 6.0, 1),),
                (("relu", 0.0, False, 6, 1),),
                (([], 0.0, 0, 6, 1),),
                (("tanh", 0.0, 0, 6, 1),),
                *[
                    (("leaky_relu", s, 0, 3, 1), ("relu", 0.0, 3, 6, 1))
                    for s in (-0.1, 1.1, 1.9, 5.0, np.nan, np.inf, "0.2", True)
                ],
            ],
        ),
        ("kind", [None, 3, "", "none", [], np.array(["pf", "pf"])]),
        ("card", [-1, 5, 10**9, True, 1.0, "1", [], np.array([1, 2]), np.nan]),
        ("method", [None, 3, "x", [], np.array(["lp"])]),
        ("relaxation", [3, "x", [], "displayed", "theorem7", np.array(["triangle"])]),
        (
            "status",
            [
                None,
                "certified",
                ["certified"],
                np.array(["certified"]),
                np.array(["OK"] * 3),
                np.array([b"certified"] * 3),
                np.array([["certified"]] * 3),
                np.array(["failed"] * 3),
                3,
            ],
        ),
        ("stages", [3, "x", (None,), [1], ("stage",)]),
    ],
)
def test_what_is_no_number(name, values):
    cert = every_kind_of_certificate()
    for wrong in values:
        result = check(changed(cert, **{name: wrong}))
        assert not result and result.reason, wrong


@pytest.mark.parametrize("name", ["sample", "unit", "side", "lam", "zl", "zh"])
def test_stages_of_another_form(name):
    cert = every_kind_of_certificate()
    stage = cert.stages[0]
    v = getattr(stage, name)
    values = [
        None,
        3,
        "x",
        v[:1],
        v[..., None],
        np.concatenate([v, v]),
        v.astype(str),
        v.astype(object),
        v.astype(complex),
        v > 0,
    ]
    values += (
        [v.astype(float), v - 100, v + 100, 0 * v + 2**40 if v.dtype.itemsize > 4 else 3 + 0 * v]
        if name in ("sample", "unit", "side")
        else [v * np.nan]
    )
    for wrong in values:
        result = check(changed(cert, stages=(dataclasses.replace(stage, **{name: wrong}), *cert.stages[1:])))
        assert not result and result.reason, wrong


@pytest.mark.parametrize("nonsense", [None, 3, "x", [], {}, object(), np.zeros(3), type])
def test_nonsense_is_no_certificate(nonsense):
    assert "expected a BoundsCertificate" in check(nonsense).reason


def test_each_claim_counts_alone():
    P = from_matrices(np.zeros((2, 2)), np.eye(2), np.eye(2))  # y = u in [.9, 1.1]
    for method in ("interval", "dual", "box"):
        cert = bounds(P, [[1.0, 1.0]], 0.1, method=method).cert
        assert (
            check(changed(cert, lb=None))
            and check(changed(cert, ub=None))
            and check(changed(cert, lb=None, ub=None, spec=None))
        )
        for false in (
            {"lb": None, "ub": cert.ub - 1000},
            {"ub": None, "lb": cert.lb + 1000},
            {"spec": None, "lb": cert.lb + 1000},
            {"spec": None, "lb": None},
            {"spec": None, "ub": None, "lb": cert.lb[:, :1]},
        ):
            assert not check(changed(cert, **false))
        one = {name: getattr(cert, name)[:, :1] for name in ("lb", "ub", "xl", "xh", "zl", "zh")}
        for name, value in one.items():
            assert "must have shape" in check(changed(cert, **{name: value})).reason
        # a loose claim of one end makes no room at the other
        assert not check(changed(cert, zh=np.full((1, 2), 1e20), zl=cert.zl + 0.05))
        assert not check(changed(cert, xh=np.full((1, 2), 1e20), xl=cert.xl + 0.05))
        assert check(changed(cert, zh=np.full((1, 2), 1e20), xl=cert.xl - 1e20))


def test_slopes_that_are_steeper_than_the_lipschitz_constant():
    # x = s (x / 2 + u), u in [-1.1, -.9], s = 1.9: x = 38 u in [-41.8, -34.2], and a box of a map of slope 1 says
    # [-38.2, -37.8]
    cert = bounds(
        from_matrices([[0.5]], [[1.0]], [[1.0]], activation="leaky_relu(0.5)"), [[-1.0]], 0.1, method="box"
    ).cert
    one = lambda v: np.full((1, 1), v)
    claim = {
        "x0": one(-38.0),
        "sigma": one(0.2001),
        "xl": one(-38.3),
        "xh": one(-37.7),
        "zl": one(-20.3),
        "zh": one(-19.7),
        "lb": one(-38.3),
        "ub": one(-37.7),
    }
    assert not check(changed(cert, segments=(("leaky_relu", 1.9, 0, 1, 1),), **claim))


def test_sparse_matrices_of_another_form():
    P = model(3, sparse=True)
    cert = bounds(P, points(P), 0.1, method="dual").cert
    assert check(cert)
    for name in "ABCD":
        M = getattr(cert, name)
        assert check(changed(cert, **{name: M.toarray()}))
        wild = M.copy()
        wild.indices[0] = 10**6
        late = M.copy()
        late.indptr[-1] += 5
        for wrong in (wild, late, M.tocoo(), M.tolil(), M.astype(complex), M[:-1], M * np.nan):
            assert not check(changed(cert, **{name: wrong}))


@pytest.mark.parametrize("method", METHODS)
def test_a_sample_that_is_not_finite_among_radii_of_their_own(method):
    P = model(8)
    U = np.random.default_rng(0).uniform(0, 1, size=(3, 4))
    U[1, 2] = np.nan
    for sets in (Box(0.1, clip=(0, 1)), Box(np.full((3, 4), 0.1)), SparseBox(np.full((3, 4), 0.1), 2)):
        found = bounds(P, U, sets, method=method)
        result = check(found.cert)
        assert list(found.status) == ["certified", "not_finite", "certified"] and result, result.reason
    wrong = changed(found.cert, radius=np.where(np.arange(3)[:, None] == 0, np.nan, 0.1) + np.zeros(4))
    assert not check(wrong)


@pytest.mark.parametrize("method", ["norm", "box", "comparison", "metzler", "interval", "dual"])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "leaky_relu(0.1)", (("tanh", 4), ("sigmoid", 4))])
def test_models_of_every_size_pass(method, activation):
    activation = activation if isinstance(activation, str) else list(activation)
    for seed, size in enumerate(10.0 ** np.arange(-6, 2)):
        for eps, n in ((0.0, 1), (1e-3, 8), (0.5, 8)):
            rng = np.random.default_rng(seed)
            A = rng.normal(size=(n, n))
            A *= rng.choice([0.0, 0.8]) / np.abs(A).sum(1, keepdims=True)
            P = from_matrices(
                A, rng.normal(size=(n, 3)), rng.normal(size=(2, n)), activation=activation if n > 1 else "tanh"
            )
            found = bounds(P, size * rng.uniform(size=(2, 3)), eps * size, method=method)
            result = check(found.cert)
            assert set(found.status) == {"certified"} and result, (size, eps, n, result.reason)
            assert not check(changed(found.cert, lb=found.ub + 1e-6 * size))


def test_the_smallest_tanh_model():
    P = from_matrices([[0.0]], [[1.0]], [[1.0]], activation="tanh")
    found = bounds(P, [[0.01]], 0.0, method="dual")
    assert check(found.cert)
    assert found.lb[0, 0] <= 0.00999966667999946 <= found.ub[0, 0]  # tanh(.01) by its series x - x^3/3 + 2 x^5/15
    assert not check(changed(found.cert, lb=np.full((1, 1), 0.00999966667999946 + 1e-16)))


@pytest.mark.parametrize("method", ["box", "interval", "dual", "lp", LP("displayed"), LP("theorem7")])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("what", ["C", "D", "d"])
def test_functionals_whose_weights_cancel(method, own, what):
    rng = np.random.default_rng(0)
    near = 1e4 * (1 + 1e-9 * rng.random((2, 1)))
    C = near * np.ones((2, 3)) if what == "C" else 1e-6 * rng.random((2, 3))
    D = near * np.ones((2, 2)) if what == "D" else None
    P = from_matrices(0.1 * rng.random((3, 3)), rng.random((3, 2)), C, D, "relu", d=near[:, 0] if what == "d" else None)
    spec = np.array([[0.3, -0.3]])
    found = bounds(P, rng.random((2, 2)), 0.01, method=method, spec=np.tile(spec, (2, 1, 1)) if own else spec)
    result = check(found.cert)
    assert result, result.reason


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["tanh", "sigmoid"]),
    st.floats(-12, 1),
    st.floats(-1, 1),
    st.floats(0, 1),
    st.sampled_from([1.0, -1.0]),
    st.data(),
)
def test_the_infimum_of_a_small_unit_is_below_its_exact_value(name, exponent, low, width, mu, data):
    """In 60 digits: also where the flat point is next to zero and double precision cannot tell it from zero."""
    with mpmath.workdps(60):
        scale = 10.0**exponent
        zl, zh = scale * low, scale * (low + width)
        inside = zl + data.draw(st.floats(0, 1)) * (zh - zl)
        phi = mpmath.tanh if name == "tanh" else lambda t: 1 / (1 + mpmath.exp(-t))
        slope = lambda t: 1 - phi(t) ** 2 if name == "tanh" else phi(t) * (1 - phi(t))
        lam = float(mu * slope(mpmath.mpf(inside)))
        ratio = mpmath.mpf(lam) / mu
        top = 1 if name == "tanh" else mpmath.mpf(1) / 4
        points = [mpmath.mpf(zl), mpmath.mpf(zh)]
        if ratio <= top:
            root = (
                mpmath.atanh(mpmath.sqrt(1 - ratio)) if name == "tanh" else 2 * mpmath.atanh(mpmath.sqrt(1 - 4 * ratio))
            )
            points += [r for r in (root, -root) if zl <= r <= zh]
        exact = min(mu * phi(z) - lam * z for z in points)
        one = lambda v: np.full((1, 1), v)
        got = outward.infimum(
            ((name, 0.0, 0, 1, 1),), one(mu), one(0.0), one(lam), one(zl), one(zh), one(-1.0), one(1.0)
        )[0, 0]
        largest = max(abs(phi(mpmath.mpf(zl))), abs(phi(mpmath.mpf(zh))))
        assert got <= exact
        assert got >= exact - 60 * np.finfo(float).eps * (
            largest * max(1, abs(zl), abs(zh)) + abs(lam) * max(abs(zl), abs(zh))
        )
