"""Recorded values: JSON in and out without loss, written in one step."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduction.book.results import Results, load, numbers, plain, save, summary


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(st.floats() | st.integers(-(10**9), 10**9), lambda inner: st.lists(inner, max_size=4), max_leaves=8)
)
def test_numbers_survive_json(value):
    back = numbers(json.loads(json.dumps(plain(value), allow_nan=False)))
    assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(back, numbers(value), strict=True))


def test_arrays_and_scalars_have_a_plain_form():
    import torch

    assert plain({"a": np.float32(0.5), 3: np.arange(2), "t": torch.tensor([1.0, math.inf])}) == {
        "a": 0.5,
        "3": [0, 1],
        "t": [1.0, "inf"],
    }
    with pytest.raises(TypeError, match="object"):
        plain({"x": object()})


def test_summary_is_median_and_range():
    assert summary([3.0, 1.0, 2.0]) == "2 [1, 3]"
    assert summary(4) == "4"
    assert summary([1.0, "inf", 2.0]) == "2 [1, inf]"
    assert summary("relu6") == "relu6"


def test_a_key_is_recorded_once():
    results = Results("n", "quick", [0])
    results.record("a", 1)
    with pytest.raises(ValueError, match="'a'"):
        results.record("a", 2)
    results.record_curve("c", [1])
    with pytest.raises(ValueError, match="'c'"):
        results.record_curve("c", [1])


def test_several_values_are_recorded_in_one_call():
    results = Results("n", "quick", [0])
    results.record_all({"a": 1, "b": ([2.0, 3.0], "s"), "c": (4, 5)}, "m")
    results.record_curves({"k": [1], "l": {"x": (2,)}})
    assert results.values == {"a": 1, "b": [2.0, 3.0], "c": [4, 5]}
    assert results.units == {"a": "m", "b": "s", "c": "m"}
    assert results.curves == {"k": [1], "l": {"x": [2]}}
    with pytest.raises(ValueError, match="'b'"):
        results.record_all({"b": 1})
    results.record_all({"two texts": ("x", "y")})
    assert results.values["two texts"] == ["x", "y"]
    with pytest.raises(TypeError, match="two keys of a mapping have one text"):
        results.record("lost", {1: "a", "1": "b"})


def test_rows_are_recorded_values_by_row_and_column():
    results = Results("n", "quick", [0, 1])
    results.record_all({"mse_a": [1.0, 3.0], "mse_b": 0.123456, "size_b": 7})
    table = results.rows(
        {"A": "a", "B": "b"},
        {"error": "mse_{}", "size": "size_{}"},
        corner="model",
        texts={"exact": {"error": "none"}},
        digits=5,
    )
    assert table.index.tolist() == ["A", "B", "exact"] and table.index.name == "model"
    assert table["error"].tolist() == ["2 [1, 3]", "0.12346", "none"]
    assert table["size"].tolist() == ["", "7", ""]
    levels = results.rows({("A", "x"): "a", ("B", "y"): "b"}, {"error": "mse_{}"}, corner=("model", "of"))
    assert list(levels.index.names) == ["model", "of"] and levels.loc[("B", "y"), "error"] == "0.123"
    empty = results.rows({}, {"error": "mse_{}"}, corner=("model", "of"))
    assert empty.empty and list(empty.columns) == ["error"]
    with pytest.raises(KeyError, match="'time_{}' for a, b"):
        results.rows({"A": "a", "B": "b"}, {"time": "time_{}"})


def test_save_and_load(tmp_path):
    path = tmp_path / "deep" / "r.json"
    save(path, {"a": 1})
    save(path, {"a": 2})
    assert load(path) == {"a": 2}
    assert [p.name for p in path.parent.iterdir()] == ["r.json"]
    assert load(tmp_path / "none.json") is None
    path.write_text("[1]")
    with pytest.raises(ValueError, match="r.json.*list"):
        load(path)
    path.write_text("{")
    with pytest.raises(ValueError, match="r.json"):
        load(path)
    with pytest.raises(ValueError):
        save(path, {"a": math.nan})
