"""A Gram matrix is checked once, when it is built, and gives what the plain array gives."""

import numpy as np
import pytest

from implicit_models.sim import Gram, duality_gap, gram, path_rows, solve_rows


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return gram(rng.standard_normal((40, 70)), rng.standard_normal((40, 3)))


def test_gives_the_rows_of_the_plain_array(rows):
    G, C, zz = rows
    checked = Gram(G)
    one, other = (solve_rows(g, C, zz, kappa=0.3) for g in (G, checked))
    np.testing.assert_array_equal(one.A, other.A)
    np.testing.assert_array_equal(
        path_rows(G, C, zz, kappas=[0.1, 0.2]).at(0.1).A, path_rows(checked, C, zz, kappas=[0.1, 0.2]).at(0.1).A
    )
    np.testing.assert_array_equal(
        duality_gap(G, C, zz, one.A, kappa=0.3), duality_gap(checked, C, zz, one.A, kappa=0.3)
    )
    assert len(checked) == 70 and np.shares_memory(checked.matrix, G) and not checked.matrix.flags.writeable
    np.testing.assert_array_equal(np.asarray(checked), G)


def test_is_not_looked_at_again(rows, monkeypatch):
    from implicit_models.sim.solvers import gram as module

    checked = Gram(rows[0])
    monkeypatch.setattr(module, "checked_matrix", None)
    assert (solve_rows(checked, *rows[1:], kappa=0.3).status == "optimal").all()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda G: G.__setitem__((69, 3), np.nan), r"G\[69, 3\] = nan: the Gram matrix must be finite"),
        (lambda G: G.__setitem__((5, 5), -1.0), r"G\[5, 5\] = -1: a Gram matrix has no negative diagonal"),
        (lambda G: G.__setitem__((2, 68), G[2, 68] + 1e-3), "not symmetric"),
        (lambda G: (G.__setitem__((1, 66), 1e4), G.__setitem__((66, 1), 1e4)), r"G\[1, 66\] = 10000 .*no Gram matrix"),
    ],
)
def test_says_what_is_wrong(rows, change, message):
    G = rows[0].copy()
    change(G)
    with pytest.raises(ValueError, match=message):
        Gram(G)


def test_must_be_square():
    with pytest.raises(ValueError, match=r"G must be \(d, d\)"):
        Gram(np.ones((2, 3)))


def test_no_kernel_is_compiled_anew_for_arrays_that_cannot_be_written():
    from implicit_models.sim.solvers.row_kernels import solve_chunk

    M = np.random.default_rng(2).normal(size=(30, 6))
    G, C, zz = gram(M, M[:, :2] + 0.1)
    first = solve_rows(G, C, zz, kappa=0.5).A
    known = list(solve_chunk.signatures)
    for v in (G, C, zz):
        v.setflags(write=False)
    np.testing.assert_array_equal(solve_rows(Gram(G), C, zz, kappa=0.5).A, first)
    np.testing.assert_array_equal(solve_rows(G, C, zz, kappa=0.5).A, first)
    assert list(solve_chunk.signatures) == known
