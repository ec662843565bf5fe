"""The earthquake task: printed sizes, settings that mean what they say, and labels that keep their meaning in every
coordinate."""

import dataclasses

import numpy as np
import pytest

from implicit_models.seismology.encoding import Encoding
from reproduction.ch5_earthquake import controls, task
from reproduction.core.registry import ARCHITECTURES
from reproduction.core.scores import count_parameters


@pytest.fixture(scope="module")
def small():
    return {
        name: task.data(name, 3, "quick", n_train=400)
        for name in ("papers", "depth_time_given", "latitude", "anchor", "epicentre")
    }


def test_sizes_are_the_printed_ones():
    built = {name: count_parameters(build()) for name, (build, _) in task.models("papers", 0).items()}
    printed = {a.model: a.published for a in ARCHITECTURES if a.task == "earthquake"}
    assert built["eikonet"] == printed["EikoNet"] == 42_500
    # n^2 + n p + q n + q p with n = 190, p = 30, q = 4
    assert built["implicit"] == printed["implicit"] == 190 * 190 + 190 * 30 + 4 * 190 + 4 * 30 == 42_680
    assert (
        built["implicit_no_skip"] == 42_680 - 120 and built["eikonet_skip"] == 42_500 + 120 and built["linear"] == 124
    )
    assert built["implicit_bias"] == 42_680 + 190 + 4


def test_every_setting_has_models_of_its_sizes(small):
    for name, chosen in task.SETTINGS.items():
        models = task.models(name, 0, "quick")
        assert tuple(models) == chosen.models
        weights = models["implicit"][0]()
        assert weights.B.shape[1] == chosen.in_features and weights.C.shape[0] == len(chosen.outputs)
    given = small["depth_time_given"]
    assert given.u_train.shape == (400, 32) and given.y_train.shape == (400, 2)


def test_labels_are_one_truth_in_every_setting(small):
    papers, given = (small[name] for name in ("papers", "depth_time_given"))
    for k in (0, 4, 9):
        samples = papers.meta["samples"][k]
        np.testing.assert_allclose(90 * papers.test[k][1][:, 0] + 180, samples.lon % 360, atol=1e-4)
        np.testing.assert_array_equal(given.test[k][1], papers.test[k][1][:, 2:])
        np.testing.assert_array_equal(given.test[k][0], np.hstack([papers.test[k][0], papers.test[k][1][:, :2]]))


def test_restricted_latitudes(small):
    assert np.abs(90 * small["latitude"].y_train[:, 1]).max() <= 45 < np.abs(90 * small["papers"].y_train[:, 1]).max()
    assert np.abs(small["latitude"].meta["samples"][0].lat).max() > 45  # tested everywhere


def test_split_by_epicentre_shares_none(small):
    def places(samples):
        return set(zip(samples.lat.tolist(), samples.lon.tolist(), strict=True))

    assert not places(small["epicentre"].meta["samples"]["train"]) & places(small["epicentre"].meta["samples"][0])
    assert places(small["papers"].meta["samples"]["train"]) & places(small["papers"].meta["samples"][0])


def test_anchor_setting_is_relative(small):
    data = small["anchor"]
    encoding, samples = Encoding.from_dict(data.meta["encoding"]), data.meta["samples"][9]
    assert np.all(data.test[9][0][:, 0] == 0)  # the anchor's longitude
    wanted = (samples.lon - samples.anchor_lon + 180) % 360 - 180
    np.testing.assert_allclose(encoding.longitude_scale_deg * data.test[9][1][:, 0], wanted, atol=1e-4)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="setting must be one of papers.*got 'paper'"):
        task.data("paper", 0)
    with pytest.raises(ValueError, match="profile must be one of"):
        task.models("papers", 0, "slow")


def test_controls_without_biases_are_trained_as_the_others():
    trained, own = task.models("papers", 0, "quick"), controls.models("papers", 0, "quick")
    recipe = trained["eikonet"][1]
    assert tuple(own) == tuple(controls.LABELS)
    for name, (_, given) in own.items():
        assert given == (dataclasses.replace(recipe, epochs=12) if name == "eikonet_long" else recipe)
    assert [count_parameters(build()) for build, _ in own.values()] == [42_048, 42_168, 42_500]
    assert all(controls.models(name, 0) == {} for name in task.SETTINGS if name != "papers")
    with pytest.raises(ValueError, match="setting must be one of"):
        controls.models("paper", 0)
