"""Shapes that signatures state are checked in these tests: what conftest installs sees a wrong one."""

import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError, jaxtyped

import shape_checks
from implicit_models.equilibrium.kernels import blocks
from implicit_models.layers import ImplicitModel


@jaxtyped(typechecker=shape_checks.checked)
def cut(x: Float[np.ndarray, "n m"], y: Float[np.ndarray, " m"], size: int) -> Float[np.ndarray, " n"]:
    if size < 0:
        raise ValueError("a size is positive")
    return (x @ y)[:size]


def test_a_call_that_succeeds_has_the_stated_shapes():
    x = np.ones((3, 2))
    assert cut(x, np.ones(2), 3).tolist() == [2, 2, 2]
    with pytest.raises(TypeCheckError):
        cut(x, np.ones(2), 2)
    with pytest.raises(TypeCheckError):
        cut(x.astype(int), np.ones(2), 3)


def test_a_call_that_refuses_its_arguments_raises_its_own_error():
    with pytest.raises(ValueError, match="a size is positive"):
        cut(np.ones(3), np.ones(2), -1)


@pytest.mark.skipif(not shape_checks.installed, reason="CHECK_SHAPES=0: shapes of arrays are not checked")
def test_packages_are_checked_and_compiled_functions_left_alone():
    assert hasattr(ImplicitModel.forward, "__wrapped__")
    assert not hasattr(blocks.multiply_panel.py_func, "__wrapped__")
