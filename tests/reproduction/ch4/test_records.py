"""What the notebooks of chapter 4 record and show beside the thesis: data sets, distances, falls, gains."""

import numpy as np
import pytest

from reproduction.ch4_attacks import measures as attacked
from reproduction.ch4_attacks.show import thesis_columns, with_published
from reproduction.ch4_resnet20_cifar import measures as cifar
from reproduction.ch4_robust_training.measures import Study, box_shares, gains
from reproduction.ch4_sensitivity import images


def test_the_digits_stand_in_where_no_data_set_can_be_had(monkeypatch):
    there = {"fashion_mnist": "clothes", "digits": "digits"}
    monkeypatch.setattr(images, "images_of", lambda name, profile: there.get(name))
    assert images.available(["mnist", "fashion_mnist"], "quick") == {"fashion_mnist": "clothes"}
    assert images.available(["mnist"], "quick") == {"digits": "digits"}


def test_published_rows_stand_beside_their_share():
    printed = {"1": {"S mnist": 3.0, "gradient mnist": 4.0}}
    columns = [("mnist", "small", "1 %"), ("mnist", "small", "5 %"), ("digits", "small", "1 %")]
    found = thesis_columns(printed, "{}", columns)
    assert list(found["thesis, S"].values()) == [3.0, "none", "none"]
    assert found["thesis, gradient"][columns[0]] == 4.0
    table = {"replace": {"sensitivity": [[1.0]]}, "small": {}, "sign": {}}
    assert with_published(table, printed, "mnist", [1.0])["small"]["published_gradient"] == [[4.0]]
    assert with_published(table, printed, "mnist", [1.0, 5.0]) == table


def test_distances_are_of_medians_and_the_largest_over_the_rows():
    names = [*cifar.RANKED, *cifar.IGNORANT]
    rates = {
        f"{start}{protocol}_{name}_{share}": [0.0, 10.0, 90.0]
        for start in ("", "mnist_")
        for protocol in cifar.PROTOCOLS
        for name in names
        for share in (1, 10)
    }
    printed = {
        "1": {f"{key} {data}": 12.0 for key in ("S", "gradient") for data in ("mnist", "cifar10")},
        "10": {f"{key} {data}": 7.0 for key in ("S", "gradient") for data in ("mnist", "cifar10")},
    }
    assert set(attacked.distances(rates, printed, [1, 10]).values()) == {3.0}
    found = cifar.distances(rates, printed)
    assert set(found.values()) == {3.0} and len(found) == 3 * 2 + 3


def test_a_fall_is_found_and_small_draws_do_not_count():
    table = {"replace": {"S": [1.0, 5.0]}, "sign": {"S": [6.0, 4.0]}, "small": {"S": [9.0, 0.0]}}
    assert attacked.falls({"a": [table]}) == {"a_monotone": False, "a_largest_fall": 2.0}


def test_gains_are_seed_by_seed_at_the_largest_radius():
    names = ("plain", "weight_decay", "convex_penalty", "sensitivity", "adversarial", "interval")
    found = {
        (name, 0.0): [
            {"clean": 0.9, "attacked": [1.0, 0.5 + 0.01 * k], "certified": [1.0, 0.01 * k], "box": [1.0, 0.0]}
            for _ in range(2)
        ]
        for k, name in enumerate(names)
    }
    study = Study([0.1, 0.2], found, {}, {}, dict.fromkeys(names, 0.0))
    values = gains(study)
    assert values["interval_attacked_gain_over_plain"] == pytest.approx([5.0, 5.0])
    assert values["interval_certified_gain_over_weight_decay"] == pytest.approx([4.0, 4.0])
    assert values["interval_clean_gain_over_plain"] == [0.0, 0.0]
    assert values["plain_undecided"] == pytest.approx([50.0, 50.0])
    shares = box_shares(study)
    assert np.isnan(shares["plain_box_share"]).all() and shares["interval_box_share"] == [0.0, 0.0]
