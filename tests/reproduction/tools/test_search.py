"""The search looks at in-distribution folds only, ranks by them, and resumes."""

import dataclasses

import numpy as np
import pytest

from reproduction.book.results import load
from reproduction.core.recipe import Recipe
from reproduction.models.linear import Linear
from reproduction.tools import search


def test_folds_are_disjoint_and_cover_the_data(monkeypatch):
    seen = []
    monkeypatch.setattr(search, "train", lambda model, u, y, **options: seen.append(u[:, 0]))
    monkeypatch.setattr(search, "evaluate", lambda model, test: {0: test[0][0][:, 0]})
    u = np.arange(23.0, dtype=np.float32)[:, None]
    held_out = search.cross_validate(u, u, lambda seed: None, Recipe(epochs=1), 0)
    assert sorted(np.concatenate(held_out)) == list(range(23))
    for trained, held in zip(seen, held_out, strict=True):
        assert not set(trained) & set(held) and len(trained) + len(held) == 23


@pytest.mark.parametrize("task", search.SIZES)
def test_windows_of_a_series_are_not_trained_on_beside_the_held_out_block(task, tmp_path, monkeypatch):
    """A series whose value is its place, so that windows tell which points they hold; run as `main` runs it."""
    span = 11 if task == "spiky" else 1
    places = np.lib.stride_tricks.sliding_window_view(np.arange(300.0), span)
    monkeypatch.setattr(search, "training_data", lambda name, seed: (places, places))
    monkeypatch.setattr(
        search, "candidates", lambda: iter([(task, "implicit", {}, lambda seed: None, Recipe(epochs=1))])
    )
    trained, held_out = [], []
    monkeypatch.setattr(search, "train", lambda model, u, y, **options: trained.append(u))
    monkeypatch.setattr(search, "evaluate", lambda model, test: held_out.append(test[0][0]) or {0: 0.0})
    search.main(["--json", str(tmp_path / "search.json")])
    assert sorted(np.concatenate(held_out)[:, -1]) == sorted(places[:, -1])
    for u, held in zip(trained, held_out, strict=True):
        assert not set(u.ravel()) & set(held.ravel())
        apart = [k for k in range(1, len(held)) if held[k, -1] != held[k - 1, -1] + 1]
        assert bool(apart) == (task != "spiky")  # independent samples are drawn, windows are a block
        assert len(u) >= len(places) - len(held) - 2 * 11


def test_a_window_and_its_target_are_consecutive_points():
    u, y = search.training_data("spiky", 0)
    points = np.hstack([u, y])
    assert points.shape[1] == search.SPANS["spiky"] == 11
    assert all(np.array_equal(points[k:, 0], points[: len(points) - k, k]) for k in range(1, 11))


@pytest.mark.parametrize(("n", "span"), [(4, 0), (20, 11)])
def test_too_few_samples_are_refused(n, span):
    with pytest.raises(ValueError, match=f"{n} "):
        search.split(n, 0, span)


def test_validation_error_of_a_linear_target_goes_to_zero():
    rng = np.random.default_rng(0)
    u = rng.standard_normal((200, 3)).astype(np.float32)
    y = u @ np.array([[1.0], [2.0], [3.0]], dtype=np.float32)
    errors = search.cross_validate(
        u, y, lambda seed: Linear(3, 1, seed=seed), Recipe(epochs=60, lr=0.05, batch_size=20), 0
    )
    assert max(errors) < 1e-4
    far = search.cross_validate(u, y, lambda seed: Linear(3, 1, seed=seed), Recipe(epochs=1, lr=1e-4), 0)
    assert min(far) > 1


def test_interrupted_search_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(search, "EPOCHS", 1)
    monkeypatch.setattr(search, "N_TRAIN", 60)
    path = tmp_path / "search.json"
    search.main(["--json", str(path), "--limit", "2"])
    first = load(path)["points"]
    search.main(["--json", str(path), "--limit", "1"])
    points = load(path)["points"]
    assert len(first) == 2 and points[:2] == first and len(points) == 3
    assert all(len(point["errors"]) == search.FOLDS for point in points)
    assert "best in distribution" in capsys.readouterr().out
    made = load(path)["provenance"]
    assert (
        made["cpu_seconds"] == round(sum(point["cpu_seconds"] for point in points), 1)
        and made["code_key"]
        and made["versions"]["torch"]
    )
    monkeypatch.setattr(search, "EPOCHS", 2)  # another search: what was found before does not count
    search.main(["--json", str(path), "--limit", "1"])
    assert len(load(path)["points"]) == 1


def test_grid_covers_every_task_and_model_once():
    grid = list(search.candidates())
    points = [(task, model, str(setting)) for task, model, setting, *_ in grid]
    assert len(set(points)) == len(points)
    models = {task: {model for other, model, *_ in grid if other == task} for task in search.SIZES}
    assert models == {
        "identity": {"implicit", "mlp"},
        "addition": {"implicit", "mlp"},
        "rolling_average": {"implicit", "lstm"},
        "rolling_argmax": {"implicit", "implicit_rnn", "lstm"},
        "spiky": {"implicit_rnn", "lstm"},
    }
    assert all(
        0.01 in {setting["lr"] for task, model, setting, *_ in grid if model == name}
        for name in ("implicit", "mlp", "lstm", "implicit_rnn")
    )


@pytest.mark.parametrize("task", search.SIZES)
def test_every_model_fits_its_data(task, monkeypatch):
    """One step of every model on every task; the argmax is judged by its share of wrong answers."""
    monkeypatch.setattr(search, "N_TRAIN", 20)
    u, y = search.training_data(task, 0)
    n = 60 if task == "spiky" else 20
    u, y = u[:n], y[:n]
    seen = set()
    for name, model, _, build, recipe in search.candidates():
        if name == task and model not in seen:
            seen.add(model)
            errors = search.cross_validate(
                u, y, build, dataclasses.replace(recipe, epochs=1), 0, search.SPANS.get(task, 0)
            )
            assert len(errors) == search.FOLDS and np.isfinite(errors).all()
            assert task != "rolling_argmax" or max(errors) <= 1


def test_unknown_task_is_refused():
    with pytest.raises(ValueError, match="product"):
        search.training_data("product", 0)


def test_a_file_of_another_kind_is_left_alone(tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"values": {}}')
    with pytest.raises(SystemExit):
        search.main(["--json", str(path)])
    assert path.read_text() == '{"values": {}}'
