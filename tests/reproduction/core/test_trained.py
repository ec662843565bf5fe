"""Train-or-load: one training for one content, whatever asks and whatever was interrupted."""

import os
import subprocess
import sys

import pytest
import torch

from data_gen.synthetic.functions import identity
from reproduction.core.cache import train_or_load
from reproduction.core.train import Recipe, train
from reproduction.models.mlp import MLP

RECIPE = Recipe(epochs=3, batch_size=20)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("IMPLICIT_CACHE", str(tmp_path))
    return tmp_path / "models"


class Counter:
    """Builds the model, and counts how many forward passes its copies have made."""

    def __init__(self, hidden=6, seed=1):
        self.hidden, self.seed, self.n_forward, self.fail_at = hidden, seed, 0, None

    def __call__(self):
        model = MLP((4, self.hidden, 4), seed=self.seed)
        model.register_forward_pre_hook(self.count)
        return model

    def count(self, *_):
        self.n_forward += 1
        if self.n_forward == self.fail_at:
            raise KeyboardInterrupt


def run(build, **change):
    arguments = {
        "build": build,
        "data": identity(60, 5, dim=4, shifts=(0,), seed=0),
        "recipe": RECIPE,
        "seed": 2,
        "key_modules": ["reproduction.models.mlp"],
    }
    return train_or_load("toy", **{**arguments, **change})


def same(one, other):
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_the_second_request_is_read_and_equals_a_plain_training(cache):
    build, data = Counter(), identity(60, 5, dim=4, shifts=(0,), seed=0)
    first, history = run(build)
    assert build.n_forward == 9
    second, again = run(build)
    assert build.n_forward == 9 and same(first, second) and history == again
    plain = MLP((4, 6, 4), seed=1)
    train(plain, data.u_train, data.y_train, recipe=RECIPE, seed=2)
    assert same(plain, second)
    assert {path.suffix for path in cache.iterdir()} == {".pt", ".lock"}


def test_a_network_that_was_not_watched_is_trained_again_when_it_is_to_be(cache):
    build = Counter()
    first, _ = run(build)
    second, history = run(build, evaluate=lambda model: 1.0)
    assert build.n_forward == 18 and same(first, second) and history.evaluation == [1.0] * 3
    assert run(build, evaluate=lambda model: 1.0)[1].evaluation == [1.0] * 3 and build.n_forward == 18


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 3},
        {"recipe": Recipe(epochs=3, batch_size=30)},
        {"build": Counter(hidden=7)},
        {"build": Counter(seed=8)},
        {"data": identity(60, 5, dim=4, shifts=(0,), seed=1)},
        {"parameters": {"kappa": 0.5}},
        {"key_modules": ["reproduction.models.nalu"]},
    ],
    ids=["seed", "recipe", "size", "initial weights", "data", "parameters", "code"],
)
def test_any_other_content_is_trained_anew(cache, change):
    run(Counter())
    run(**{"build": Counter(), **change})
    assert len(list(cache.glob("*.pt"))) == 2


def test_a_damaged_cache_file_is_trained_again_with_a_warning(cache):
    first, _ = run(Counter())
    (path,) = cache.glob("*.pt")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    build = Counter()
    with pytest.warns(UserWarning, match="damaged"):
        second, _ = run(build)
    assert build.n_forward == 9 and same(first, second)
    path.write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        run(Counter())


def test_an_interrupted_training_resumes(cache):
    expected, _ = run(Counter())
    for path in cache.glob("*.pt"):
        path.unlink()
    build = Counter()
    build.fail_at = 8
    with pytest.raises(KeyboardInterrupt):
        run(build)
    assert [path.suffix for path in cache.iterdir() if path.suffix != ".lock"] == [".checkpoint"]
    build.fail_at, build.n_forward = None, 0
    resumed, history = run(build)
    assert build.n_forward == 3 and same(expected, resumed) and len(history.loss) == 3


def test_a_damaged_checkpoint_is_dropped_with_a_warning(cache):
    expected, _ = run(Counter())
    (path,) = cache.glob("*.pt")
    path.rename(path.with_suffix(".checkpoint"))
    with pytest.warns(UserWarning, match="trained from the start"):
        model, _ = run(Counter())
    assert same(expected, model)


@pytest.mark.extended
def test_two_processes_train_once(cache, tmp_path):
    program = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_trained import Counter, run
build = Counter()
run(build)
print(build.n_forward)
"""
    children = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(2)
    ]
    counts = sorted(int(child.communicate(timeout=120)[0]) for child in children)
    assert counts == [0, 9]
