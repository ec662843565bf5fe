"""`bounds`: refusals, statuses, shapes, and the chain of inclusions between its methods."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models import ImplicitModel
from implicit_models.robustness import bound_methods
from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.bounding.options import LP, Dual
from implicit_models.robustness.checking.certificate_fields import METHODS
from implicit_models.robustness.checking.checker import check
from implicit_models.robustness.input_sets import Box, Replace, SparseBox
from implicit_models.robustness.problem import NotCertified, from_matrices
from implicit_models.robustness.products import row_product
from implicit_models.robustness.specification import margins
from test_box import cyclic


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"method": "crown"}, ValueError, "crown"),
        ({"method": Dual}, TypeError, r"a name, Dual\(\.\.\.\) or LP"),
        ({"sides": "upper"}, ValueError, "upper"),
        ({"inputs": None}, TypeError, "inputs must be a Box or a SparseBox, .* got NoneType"),
        ({"inputs": np.full(4, 0.1)}, TypeError, "got ndarray"),
        ({"inputs": Replace(0, 1, 2)}, TypeError, "got Replace"),
        ({"inputs": SparseBox(0.1, 2, (-1, 1))}, ValueError, r"clip=\(-1, 1\) and k=2 do not go together"),
        ({"spec": np.ones((2, 5))}, ValueError, r"\(2, 5\)"),
        ({"spec": np.ones((4, 2, 3))}, ValueError, r"\(4, 2, 3\)"),
        ({"spec": [[1.0, np.inf, 0.0]]}, ValueError, "not finite"),
        ({"spec": [[1.0, 1j, 0.0]]}, TypeError, "spec must be real"),
        ({"spec": torch.zeros(1, 3, dtype=torch.complex64)}, TypeError, "spec must be real"),
    ],
)
def test_refusals(options, error, words):
    with pytest.raises(error, match=words):
        bounds(cyclic(0), np.zeros((3, 4)), **{"inputs": 0.1, **options})


@pytest.mark.parametrize(
    "kind, options, words",
    [
        (LP, {"relaxation": "square"}, "square"),
        (LP, {"passes": -1}, "-1"),
        *((LP, {"relaxation": r, "passes": 1}, f"passes=1 .*{r!r}") for r in ("displayed", "theorem7")),
        *(
            (Dual, {name: value}, f"{name} must be .*{value}")
            for name in ("passes", "ascent_steps", "splits")
            for value in (-3, 1.9, "4", True)
        ),
        (Dual, {"splits": None}, "splits must be .*None"),
        (Dual, {"early_stop": 1}, "early_stop must be .*1"),
    ],
)
def test_options_are_checked_where_they_are_made(kind, options, words):
    with pytest.raises(ValueError, match=words):
        kind(**options)


def test_no_option_is_ignored():
    task, U = cyclic(0), np.zeros((1, 4))
    for method in METHODS:
        if method in ("dual", "lp"):
            assert bounds(task, U, 0.1, method=method, sides="lower").status[0] == "certified"
        else:
            with pytest.raises(ValueError, match=f"sides='lower' .*{method!r}"):
                bounds(task, U, 0.1, method=method, sides="lower")
    for method in (
        Dual(passes=2),
        Dual(ascent_steps=4),
        Dual(early_stop=True),
        Dual(splits=5),
        LP("displayed"),
        LP(passes=2),
    ):
        assert bounds(task, U, 0.1, method=method).status[0] == "certified"


def test_integers_of_numpy_are_counts():
    task, U = cyclic(0), np.zeros((1, 4))
    plain = bounds(task, U, 0.1, method=Dual(passes=2, ascent_steps=4, splits=3, early_stop=True))
    found = bounds(
        task, U, 0.1, method=Dual(passes=np.int64(2), ascent_steps=np.int32(4), splits=np.int8(3), early_stop=np.True_)
    )
    assert np.array_equal(found.lb, plain.lb)


@pytest.mark.parametrize("U", [np.zeros((1, 4)) + 1j, torch.zeros(1, 4, dtype=torch.complex64), [[1j, 0.0, 0.0, 0.0]]])
def test_complex_inputs_keep_no_half_of_themselves(U):
    with pytest.raises(TypeError, match="complex"):
        bounds(cyclic(0), U, 0.1)


def test_wrong_models_and_inputs():
    with pytest.raises(TypeError, match="Linear"):
        bounds(torch.nn.Linear(3, 2), np.zeros((1, 3)), 0.1)
    with pytest.raises(ValueError, match=r"\(1, 3\)"):
        bounds(cyclic(0), np.zeros((1, 3)), 0.1)
    with pytest.raises(NotCertified):
        bounds(from_matrices([[0.0, 1.1], [1.1, 0.0]], np.eye(2), np.eye(2)), np.zeros((1, 2)), 0.1)


def test_margins():
    np.testing.assert_array_equal(margins([1], 3)[0], [[-1, 1, 0], [0, 1, -1]])
    assert margins([0, 0], 1).shape == (2, 0, 1)
    with pytest.raises(ValueError, match="label 3 of sample 1"):
        margins([0, 3], 3)
    with pytest.raises(ValueError, match="integer"):
        margins([0.5], 3)


def test_row_products_do_not_depend_on_the_batch():
    rng = np.random.default_rng(0)
    X, M = rng.normal(size=(333, 57)), rng.normal(size=(11, 57))
    whole = row_product(X, M)
    np.testing.assert_allclose(whole, X @ M.T, atol=1e-12)
    for rows in (rng.permutation(333)[:200], [5], np.arange(130, 333)):
        assert np.array_equal(row_product(X[rows], M), whole[rows])


def test_takes_models_tensors_and_every_method():
    model = ImplicitModel(5, 3, 7, seed=0, bias=True)
    U = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    y = model(U).detach().double().numpy()
    for method in METHODS:
        found = bounds(model, U, 0.05, method=method)
        assert (
            found.lb.dtype == np.float64
            and found.xl.shape == (3, 7)
            and found.lb.shape == (3, 3)
            and list(found.status) == ["certified"] * 3
        )
        assert (found.lb <= y + 1e-4).all() and (found.ub >= y - 1e-4).all()
        assert (found.ub > found.lb).all() and found.cert.method == method


def test_a_sample_that_fails_leaves_the_others(monkeypatch):
    task, U = cyclic(1), np.random.default_rng(1).normal(size=(4, 4))
    whole = bounds(task, U, 0.1, method="dual")
    honest = bound_methods.state_interval

    def failing(*arguments):
        found = honest(*arguments)
        for name in ("l", "h", "zl", "zh"):
            getattr(found, name)[2] = np.inf  # as where the inclusion is not verified
        return found

    monkeypatch.setattr(bound_methods, "state_interval", failing)
    part = bounds(task, U, 0.1, method="dual")
    assert list(part.status) == ["certified", "certified", "failed", "certified"]
    rows = [0, 1, 3]
    assert np.array_equal(part.lb[rows], whole.lb[rows]) and np.isnan(part.lb[2]).all() and np.isnan(part.xh[2]).all()


def test_clip_is_explicit():
    task = from_matrices([[0.0]], [[1.0]], [[1.0]])
    free, clipped = (bounds(task, [[0.95]], Box(0.1, clip=clip), method="dual") for clip in (None, (0, 1)))
    np.testing.assert_allclose(
        [free.lb[0, 0], free.ub[0, 0], clipped.lb[0, 0], clipped.ub[0, 0]], [0.85, 1.05, 0.85, 1.0], atol=1e-9
    )
    with pytest.raises(ValueError, match="sample 0"):
        bounds(task, [[1.5]], Box(0.1, clip=(0, 1)), method="interval")


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6))
def test_chain_of_inclusions(seed):
    rng = np.random.default_rng(seed)
    task = cyclic(
        seed,
        n=int(rng.integers(1, 9)),
        p=int(rng.integers(1, 6)),
        radius=float(rng.uniform(0.05, 0.97)),
        bias=bool(rng.integers(2)),
    )
    p = task.p
    centre, sigma = rng.normal(size=(2, p)), rng.random(p) * (rng.random(p) < 0.8)
    found = {m: bounds(task, centre, Box(sigma), method=m) for m in ("box", "interval", "dual")}
    found["triangle"] = bounds(task, centre, Box(sigma), method="lp")
    found["displayed"], found["theorem7"] = (
        bounds(task, centre, Box(sigma), method=LP(relaxation=r)) for r in ("displayed", "theorem7")
    )
    for inner, outer in (
        ("dual", "interval"),
        ("interval", "box"),
        ("triangle", "interval"),
        ("theorem7", "displayed"),
        ("displayed", "box"),
    ):
        slack = 1e-6 * (1 + np.abs(found[outer].ub - found[outer].lb))
        assert (found[inner].lb >= found[outer].lb - slack).all(), (inner, outer)
        assert (found[inner].ub <= found[outer].ub + slack).all(), (inner, outer)
    for i in range(2):
        U = centre[i] + sigma * rng.uniform(-1, 1, (200, p)).round(int(rng.integers(0, 3)))
        x, error = task.equilibrium(U)
        y = task.output(x, U)
        for name, bound in found.items():
            assert (y >= bound.lb[i] - 1e-9 - 30 * error.max()).all() and (
                y <= bound.ub[i] + 1e-9 + 30 * error.max()
            ).all(), name
    for name in ("box", "interval", "dual", "triangle"):
        assert check(found[name].cert), (name, check(found[name].cert).reason)
