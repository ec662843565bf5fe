"""A grid of runs: parsed, resumed, tabulated; the runs themselves are made up."""

import json

import numpy as np
import pytest

from reproduction.book import sweep


def test_grid_is_read_with_its_types():
    grid = sweep.parse_grid('seeds=[[1],[2]] kappa = [.5, .9]  corpus=["a b", "c=d"]')
    assert grid == {"seeds": [[1], [2]], "kappa": [0.5, 0.9], "corpus": ["a b", "c=d"]}


@pytest.mark.parametrize("text", ["", "seeds", "seeds=1", "seeds=[]", "seeds=[x]", "seeds=[1] seeds=[2]"])
def test_what_is_no_grid_is_refused(text):
    with pytest.raises(ValueError, match="grid:"):
        sweep.parse_grid(text)


def test_points_are_all_combinations_with_keys_of_their_own():
    points = sweep.points_of("ch5_identity", "quick", {"seeds": [[1], [2]], "epochs_scale": [1, 2]})
    assert [dict(p.given) for p in points] == [{"seeds": [s], "epochs_scale": e} for s in (1, 2) for e in (1.0, 2.0)]
    assert len({p.key for p in points}) == 4
    assert len(sweep.points_of("ch5_identity", "quick", {"seeds": [[1], [1]]})) == 1
    with pytest.raises(ValueError, match="kappa"):
        sweep.points_of("ch5_identity", "quick", {"kappa": [0.5]})


def run(point):
    """Values that follow from the parameters; one point fails."""
    scale, seeds = point.given["epochs_scale"], point.given["seeds"]
    if seeds == [2] and scale == 2.0:
        raise RuntimeError("cell 3 raised")
    values = {"error": [scale * s for s in (1, 2, 4)], "name": "x", "flat": 7, "names": ["x", "y"], "map": {"a": 1}}
    return {"parameters": dict(point.given), "seconds": 0.0, "values": values, "units": {"error": "s"}, "withheld": ""}


def test_sweep_goes_on_after_a_failure_and_resumes(tmp_path, monkeypatch, capsys):
    calls = []

    def counted(point):
        calls.append(str(point))
        return run(point)

    inner = sweep.finished
    monkeypatch.setattr(sweep, "finished", lambda points, workers, address: inner(points, workers, address, counted))
    arguments = ["ch5_identity", "epochs_scale=[1.,2.] seeds=[[1],[2]]", "--out", str(tmp_path)]
    assert sweep.main(arguments) == 1
    assert len(calls) == 4 and "FAILED epochs_scale=2.0, seeds=[2]: cell 3 raised" in capsys.readouterr().out
    import pandas as pd

    frame = pd.read_csv(tmp_path / "table.csv")
    error = frame[frame["key"] == "error"].sort_values(["epochs_scale", "seeds"])
    assert error[["median", "min", "max", "n_values"]].to_numpy().tolist() == [[2, 1, 4, 3], [2, 1, 4, 3], [4, 2, 8, 3]]
    assert set(frame["key"]) == {"error", "flat"} and (tmp_path / "plot.png").stat().st_size > 0
    # The second call runs what is missing alone.
    assert sweep.main(arguments) == 1 and len(calls) == 5
    # A file that a kill left half written never has a point's name.
    assert all(json.loads(p.read_text())["values"] for p in (tmp_path / "points").glob("*.json"))


def test_picture_names_a_key_that_is_not_there():
    contents = [run(sweep.Point("n", "quick", {"epochs_scale": e, "seeds": [1]}, "k")) for e in (1.0, 2.0)]
    frame = sweep.table(contents)
    assert np.allclose(frame[frame["key"] == "error"]["median"], [2, 4])
    with pytest.raises(KeyError, match="'err'.*error"):
        sweep.figure(frame, {"epochs_scale": [1.0, 2.0], "seeds": [[1]]}, ["err"])


@pytest.mark.extended
def test_a_real_notebook_is_swept(tmp_path):
    arguments = ["ch2_wellposedness", "n=[4,5]", "--out", str(tmp_path), "--workers", "2"]
    assert sweep.main(arguments) == 0
    import pandas as pd

    frame = pd.read_csv(tmp_path / "table.csv")
    assert set(frame["n"]) == {4, 5} and (frame[frame["key"] == "cone_violations"]["median"] == 0).all()
