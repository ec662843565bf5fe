"""Whole stations leave: which columns are theirs, and in which order they go."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction.ch3_elimination.stations import columns_of, station_order


def rows():
    """Two rows over one state and three stations of six columns; norms 5, 2 and 3."""
    A = np.zeros((2, 19))
    A[0, 0] = 100.0
    A[0, 1], A[1, 6], A[0, 7], A[1, 18] = 3.0, 4.0, 2.0, -3.0
    return A


def test_stations_go_by_the_norm_of_their_columns():
    assert station_order("weights", rows(), 1, 0).tolist() == [1, 2, 0]


def test_stations_at_random_are_all_of_them_and_the_seed_decides():
    drawn = [station_order("random", np.zeros((1, 1 + 6 * 45)), 1, seed) for seed in (0, 0, 1)]
    assert sorted(drawn[0]) == list(range(45)) and np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_columns_of_a_station_lie_next_to_each_other():
    assert columns_of(np.array([2, 0])).tolist() == [12, 13, 14, 15, 16, 17, 0, 1, 2, 3, 4, 5]


def test_bad_orders_are_refused():
    with pytest.raises(ValueError, match="'size'"):
        station_order("size", rows(), 1, 0)
    with pytest.raises(ValueError, match="17 columns"):
        station_order("weights", rows(), 2, 0)
