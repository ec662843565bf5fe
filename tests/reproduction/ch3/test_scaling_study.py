"""Backends beside each other, bytes and bits: counts by hand; no timing is asserted."""

import numpy as np
import pytest
import scipy.sparse as sp

from data_gen.core.dataset import Dataset
from implicit_models.layers import ImplicitModel
from implicit_models.sim.network.states import states
from reproduction.ch3_scaling.compute import (
    available_cores,
    chunk_costs,
    compare_backends,
    epoch_against_fit,
    index_bits,
    pickled,
    pointer_check,
    row_set,
    run_rows,
)
from reproduction.core.recipe import Recipe
from reproduction.models.mlp import MLP


@pytest.fixture(scope="module")
def rows():
    u = np.random.default_rng(0).standard_normal((60, 8))
    return row_set(states(MLP((8, 6, 5, 3), seed=0), u.astype(np.float32)), 40, 0)


def test_rows_beyond_the_network_are_combinations_of_its_rows(rows):
    G, C = rows.arrays["G"], rows.arrays["C"]
    assert (
        G.shape == (20, 20) and C.shape == (40, 20) and np.flatnonzero(rows.arrays["mask"]).tolist() == list(range(11))
    )
    # eleven rows of its own: the combinations add no rank
    assert np.linalg.matrix_rank(C[:11]) == np.linalg.matrix_rank(C) <= 11
    assert np.allclose(G, rows.M.T @ rows.M)
    assert rows.first(3).arrays["C"].shape == (3, 20) and rows.first(3).arrays["G"] is G


def test_backends_return_the_same_weights(rows):
    found = compare_backends(rows, (5, 40), ("serial", "threads", "processes"), workers=2, repeats=1)
    for backend, values in found.items():
        assert values["equal"] == [1, 1] and len(values["rows"]) == 2 and len(values["start"]) == 1, backend
    assert found["serial"]["shared"] == [0, 0] and found["processes"]["shared"][1] > rows.arrays["G"].nbytes
    weights, _ = run_rows(rows, "serial", workers=1, chunk=7)
    assert np.abs(weights[:, :11]).sum(axis=1).max() <= 0.99 + 1e-9
    assert len(chunk_costs(rows, [4, 40], 0.0)) == 2


def test_index_bits_by_hand():
    # four non-zeros of (3, 5): pointers 0..4 need 3 bits each, four of them; printed 3 of 2 bits; columns 3 bits each
    bits = index_bits(
        sp.csr_array(
            (np.ones(4), np.array([0, 1, 4, 2], dtype=np.int32), np.array([0, 2, 2, 4], dtype=np.int32)), shape=(3, 5)
        )
    )
    assert bits == {
        "printed": 3 * 2 + 12,
        "needed": 4 * 3 + 12,
        "held": 32 * 8,
        "with_values": 32 * 8 + 64 * 4,
        "dense": 64 * 15,
    }
    assert pointer_check() == {"printed_pointer_bits": 0, "pointer_values": 2}
    assert index_bits(sp.csr_array((3, 5)))["printed"] == 0


def test_pickled_bytes(rows):
    moved = pickled(rows, chunk=16)
    assert moved["samples"] >= rows.M.nbytes and moved["every_chunk"] == 3 * moved["samples"]
    assert moved["shared"] == sum(a.nbytes for a in rows.arrays.values())


def test_available_cores_are_positive():
    assert available_cores(2, megabytes=1) > 0


def test_epoch_and_fits_reach_what_they_reach():
    generator = np.random.default_rng(0)
    u = generator.standard_normal((300, 8)).astype(np.float32)
    y = (u[:, 0] > 0).astype(np.int64)
    images = Dataset(u[:200], y[:200], {0: (u[200:], y[200:])}, {"classes": ["a", "b"]})
    recipe = Recipe(epochs=5, lr=0.01, batch_size=20, loss="cross_entropy")
    network = MLP((8, 6, 2), seed=0).eval()
    found = epoch_against_fit(network, lambda: ImplicitModel(8, 2, 5, kappa=0.9, seed=0), recipe, images, 50, seed=0)
    assert set(found) == {"epoch", "fit_small", "fit_all", "accuracy_epoch", "accuracy_fit_small", "accuracy_fit_all"}
    assert min(found.values()) >= 0 and found["accuracy_epoch"] > 60
