"""The text task: sizes and counts, macro F1 against scikit-learn, networks that learn."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.text import topics as text
from data_gen.text.topics import topics
from reproduction.classifiers import newsgroups
from reproduction.core.scores import count_parameters


def test_network_and_linear_are_counted():
    built = {name: build() for name, (build, _) in newsgroups.models(0).items()}
    assert count_parameters(built["network"]) == 1000 * 64 + 64 + 64 * 32 + 32 + 32 * 20 + 20
    assert count_parameters(built["linear"]) == 1000 * 20 + 20 and list(newsgroups.LABELS) == list(built)


def test_profiles():
    quick, full = newsgroups.settings("quick"), newsgroups.settings("full")
    assert quick.keys() == full.keys() and len(full["seeds"]) == 5 and full["n_train"] is None
    quick["seeds"] = None
    assert newsgroups.settings("quick")["seeds"]
    with pytest.raises(ValueError, match="got 'slow'"):
        newsgroups.settings("slow")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_macro_f1_is_scikit_learns(pairs):
    from sklearn.metrics import f1_score

    labels, chosen = np.array(pairs).T
    expected = f1_score(labels, chosen, labels=range(4), average="macro", zero_division=0)
    assert newsgroups.macro_f1(labels, chosen, 4) == pytest.approx(expected, abs=1e-12)


def test_macro_f1_differs_from_accuracy_on_an_unbalanced_case():
    labels = np.array([0, 0, 0, 0, 1])
    # F1 of class 0 is 8/9, of class 1 it is 0.
    assert newsgroups.macro_f1(labels, np.zeros(5, int), 2) == pytest.approx(4 / 9)
    with pytest.raises(ValueError, match=r"\(5,\) and predictions \(4,\)"):
        newsgroups.macro_f1(labels, np.zeros(4, int), 2)
    with pytest.raises(ValueError, match="not within 0..0"):
        newsgroups.macro_f1(labels, labels, 1)


def test_stand_in_has_the_sizes_of_the_profile():
    data = newsgroups.data("quick", corpus="topics")
    chosen = newsgroups.settings("quick")
    assert data.u_train.shape == (chosen["n_train"], chosen["n_features"]) and len(data.test[0][1]) == chosen["n_test"]


def test_trained_once_and_better_than_chance(tmp_path, monkeypatch):
    monkeypatch.setenv("IMPLICIT_CACHE", str(tmp_path))
    posts = topics(0, n_features=100, n_classes=5, n_train=1000, n_test=500)
    first = newsgroups.trained(posts, 0, "quick", progress=False)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.pt")}
    again = newsgroups.trained(posts, 0, "quick", progress=False)
    assert len(files) == 2 and files == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.pt")}
    for name, (model, history) in first.items():
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again[name][0].parameters()))
        scores = newsgroups.scores(model, posts)
        assert scores["accuracy"] == history.evaluation[-1] and scores["accuracy"] > 0.5 and scores["f1"] > 0.45


def test_features_of_a_sentence_encoder_reach_the_network(monkeypatch):
    """An encoder of six numbers in place of a downloaded one: its width is the network's input."""

    def encode(texts):
        return np.array([[len(t), t.count("1"), t.count("2"), t.count("3"), 1, 0] for t in texts], np.float32)

    posts = {
        part: SimpleNamespace(
            texts=[f"{part} {k}" for k in range(3_000)], labels=[k % 2 for k in range(3_000)], groups=("a", "b")
        )
        for part in ("train", "test")
    }
    monkeypatch.setattr(text, "posts", lambda: (posts, "here"))
    monkeypatch.setitem(
        sys.modules,
        "sentence_transformers",
        SimpleNamespace(SentenceTransformer=lambda name: SimpleNamespace(encode=encode)),
    )
    data = newsgroups.data("quick", corpus="newsgroups", features="embeddings")
    assert data.u_train.shape == (2_000, 6) and data.meta["features"] == "embeddings"
    network = newsgroups.models(0, "quick", in_features=data.u_train.shape[1], n_classes=2)["network"][0]()
    assert network(torch.as_tensor(data.u_train[:3])).shape == (3, 2)
