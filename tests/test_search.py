"""The search looks at in-distribution folds only, ranks by them, and resumes."""

import numpy as np

from reproduction import search
from reproduction.baselines.linear import Linear
from reproduction.recipe import Recipe
from reproduction.results import load


def test_folds_are_disjoint_and_cover_the_data(monkeypatch):
    seen = []
    monkeypatch.setattr(search, "train", lambda model, u, y, **options: seen.append(u[:, 0]))
    monkeypatch.setattr(search, "evaluate", lambda model, test: {0: test[0][0][:, 0]})
    u = np.arange(23.0, dtype=np.float32)[:, None]
    held_out = search.cross_validate(u, u, lambda seed: None, Recipe(epochs=1), 0)
    assert sorted(np.concatenate(held_out)) == list(range(23))
    for trained, held in zip(seen, held_out, strict=True):
        assert not set(trained) & set(held) and len(trained) + len(held) == 23


def test_validation_error_of_a_linear_target_goes_to_zero():
    rng = np.random.default_rng(0)
    u = rng.standard_normal((200, 3)).astype(np.float32)
    y = u @ np.array([[1.0], [2.0], [3.0]], dtype=np.float32)
    errors = search.cross_validate(u, y, lambda seed: Linear(3, 1, seed=seed), Recipe(epochs=60, lr=0.05, batch_size=20), 0)
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
