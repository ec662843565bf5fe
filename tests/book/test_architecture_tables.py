"""Tables of architectures and data: counts by hand, moments by closed forms, standings of made-up curves."""

import math

import pytest
import torch

from reproduction.ch5_architectures import compute as tables
from reproduction.core.registry import ARCHITECTURES


def test_keys_are_unique_names():
    keys = [tables.key_of(a) for a in ARCHITECTURES]
    assert len(set(keys)) == len(keys) and all(key.replace("_", "").isalnum() for key in keys)
    assert tables.key_of(tables.find("identity", "10-10-10")) == "identity_MLP_10_10_10"
    with pytest.raises(KeyError, match="10-10-11"):
        tables.find("identity", "10-10-11")


def test_uncounted_rows_by_hand():
    counts = {(a.task, a.model): a.counted for a in tables.UNCOUNTED}
    assert counts["arithmetic", "MLP"] == 50 * 10 + 10 + 10 * 10 + 10 + 10 + 1
    # one encoder layer (attention 440, feed-forward 220, norms 40) and one decoder layer (a second attention and norm),
    # two final norms
    assert counts["rolling average", "encoder-decoder"] == (440 + 220 + 40) + (880 + 220 + 60) + 40
    assert counts["rolling argmax", "encoder-decoder, masked"] == 1920
    assert (
        counts["spiky", "masked decoder"] == 43_529
        and counts["spiky", "LSTM"] == 1861
        and counts["spiky", "implicitRNN"] == 1661
    )
    assert counts["volatility", "linear regression"] == 61


def test_verdicts():
    assert tables.verdict(tables.find("identity", "10-10-10")) == "right"
    assert tables.verdict(tables.find("rolling average", "1-100-100-1")) == "of another model"
    assert tables.verdict(tables.find("rolling average", "one layer, 2 heads")) == "cannot be explained"
    assert tables.verdict(tables.find("volatility", "1-38-38-1")) == "no count printed"


def test_sizes_are_not_similar_everywhere():
    assert tables.size_ratio("identity") == pytest.approx(43_498 / 196)
    assert tables.size_ratio("rolling argmax") == pytest.approx(1920 / 1849)
    assert tables.size_ratio("volatility") < 1.1


def test_moments_are_those_of_the_distributions():
    table = tables.moments()
    expected = {
        "identity": (0, 5 / math.sqrt(3), 0, 45 / math.sqrt(3)),
        "arithmetic": (0, 1 / math.sqrt(3), 0, 50 / math.sqrt(3)),
        "rolling average": (3, 1, 53, 1),
        "rolling argmax": (0.5, 1 / math.sqrt(12), 50, 100 / math.sqrt(12)),
    }
    for task, (train_mean, train_sd, test_mean, test_sd) in expected.items():
        row = table[task]
        assert row["train_mean"] == pytest.approx(train_mean, abs=0.06) and row["train_sd"] == pytest.approx(
            train_sd, rel=0.02
        )
        assert row["test_mean"] == pytest.approx(test_mean, abs=0.9) and row["test_sd"] == pytest.approx(
            test_sd, rel=0.02
        )
        assert not tables.follows_definition(row)
    assert tables.follows_definition({"shift": 10.0, "mean_moved": 10.1, "sd_moved": 9.9})


def test_compute_is_no_size():
    assert tables.parameters_of_compute(6 * 175e9 * 3e11) == pytest.approx(175e9)
    with pytest.raises(ValueError, match="-1"):
        tables.parameters_of_compute(-1)


def test_transformer_settings_are_read_from_the_modules():
    layer = torch.nn.TransformerEncoderLayer(4, 1, 8, dropout=0.3, layer_norm_eps=1e-4)
    assert tables.transformer_settings(layer) == {"dropout": {0.3}, "eps": {1e-4}}


def test_standing_counts_points():
    curves = {"implicit": [[1.0, 3.0], [1.0, 3.0], [9.0, 3.0]], "mlp": [[2.0, 2.0]] * 3, "nalu": [["inf", "nan"]] * 3}
    assert tables.standing(curves, ["implicit"], ["mlp", "nalu", "lstm"]) == (1, 2)
    assert tables.standing(curves, ["implicit"], ["mlp"], higher=True) == (1, 2)
    assert tables.standing(curves, ["implicit"], ["nalu"]) == (2, 2)
    with pytest.raises(ValueError, match="implicit"):
        tables.standing({"mlp": [[1.0]]}, ["implicit"], ["mlp"])


def test_committed_identity_run_is_judged():
    from reproduction.book.results import RESULTS, load

    content = load(RESULTS / "ch5_identity.json")
    wins, points = tables.standing_of(content, "{}", "baselines")
    assert wins == points == len(content["values"]["shifts"])
    assert (
        tables.standing_of(content, "{}", "controls")[0] == 0
    )  # the linear map is below the implicit model everywhere


def test_a_run_with_one_number_a_seed_is_one_point():
    content = {
        "curves": {"other/lstm": [[0.0]]},
        "values": {"x/implicit_rnn_1": [1.0, 1.2], "x/lstm_1": [1.1, 1.3], "x/autoregression_1": [0.5, 0.5]},
    }
    assert tables.standing_of(content, "x/{}_1", "baselines") == (1, 1)
    assert tables.standing_of(content, "x/{}_1", "controls") == (0, 1)


def test_published_rows_of_a_task_and_seeds_that_all_models_have():
    content = {
        "curves": {},
        "values": {"v/implicit": [2.0, 2.0, 9.0, 9.0], "v/linear": [1.0, 1.0], "v/lstm": [3.0, 3.0]},
    }
    assert tables.standing_of(content, "v/{}", "baselines") == (
        1,
        1,
    )  # the implicit model's later seeds have no counterpart
    assert tables.standing_of(content, "v/{}", "baselines", task="volatility") == (0, 1)
    assert tables.standing_of(content, "v/{}", "baselines", task="identity") == (1, 1)


def test_figures_of_the_papers_that_speak_against_them():
    from reproduction.book.claims import published_value

    found = tables.own_figures_against(published_value)
    assert [row["where"].split(":")[0] for row in found] == [
        "report",
        "Table 5.3",
        "earthquake at k = 9",
        "earthquake at k = 9",
    ]
    better = {
        "ch5-quake-indist-loss": {"000 implicit": 1.0, "000 MLP": 2.0},
        "ch5-t53-spiky-implicitrnn": {"train": 1.0},
        "ch5-t53-spiky-lstm": {"train": 2.0},
        "ch5-quake-time-depth-k9": {"time": 0.0},
    }
    assert tables.own_figures_against(better.__getitem__) == []


def test_search_table_picks_the_best_median():
    points = [
        {"task": "a", "model": "m", "setting": {"lr": 0.01, "batch_size": 100}, "errors": [2.0, 2.0, 9.0]},
        {"task": "a", "model": "m", "setting": {"lr": 0.03, "batch_size": 100}, "errors": [1.0, 1.0, "inf"]},
    ]
    row = tables.search_table({"points": points})["a, m"]
    assert (
        row["best lr"] == 0.03
        and row["error at lr .01 / best"] == "2"
        and row["best setting"] == "lr 0.03, batch_size 100"
    )
