"""The training command: its file holds the trained network, says what it was trained on, and locates."""

import numpy as np
import pytest

from implicit_models.seismology.encoding import Encoding
from implicit_models.seismology.learned import LearnedLocator
from reproduction.tools import train_locator as command


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(command.PROFILES, "quick", {"step_deg": 10.0, "depths": 12, "epochs": 4, "batch": 100})


@pytest.mark.parametrize("method", ["implicit", "eikonet"])
def test_the_file_holds_what_was_trained(method, tmp_path, capsys):
    path = tmp_path / f"{method}.npz"
    assert command.main(["--method", method, "--profile", "quick", "--seed", "3", "--out", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == str(path) and "in distribution: km_median" in printed
    locator = LearnedLocator.load(path, kind=method)
    assert (
        locator.about["stations within, degrees"] == 20
        and locator.about["noise of picks, s"] == 0.5
        and locator.about["seed"] == 3
    )
    assert locator.encoding.longitude == "anchor" and locator.encoding.n_stations == 5
    # the errors that the command measured on the network are those of the file's own answers
    data = command.regional_data("quick", 3)
    samples = data.meta["samples"][0]
    lat, lon, depth, time = locator.predict(
        samples.station_lat, samples.station_lon, samples.delay_s, samples.back_azimuth
    )
    said = locator.about["test"]["in distribution"]
    assert np.abs(depth - samples.depth_km).mean() == pytest.approx(said["depth_km"], abs=0.02)
    assert np.abs(time - samples.anchor_time_s).mean() == pytest.approx(said["time_s"], abs=0.02)
    # better than the middle of the range for every event
    assert np.abs(lat - samples.lat).mean() < 0.5 * np.abs(samples.lat).mean()
    assert np.all((lon >= -180) & (lon < 180))
    assert locator.about["samples"] == len(data.u_train) and locator.about["steps"] == 4 * -(-len(data.u_train) // 100)


def test_a_file_that_cannot_be_written_is_refused_before_the_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "train_locator", lambda *_: pytest.fail("it trained"))
    with pytest.raises(SystemExit):
        command.main(["--method", "implicit", "--out", str(tmp_path)])
    assert "is a folder" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        command.main(["--method", "implicit", "--out", str(tmp_path / "file" / "x.npz")])


def test_data_are_noisy_and_relative():
    data = command.regional_data("quick", 0)
    samples = data.meta["samples"]["train"]
    error = samples.arrival_s - samples.travel_time_s
    assert error.std() == pytest.approx(command.NOISE_S, rel=0.02) and samples.dist_deg.max() == command.MAX_DIST_DEG
    assert np.all(data.u_train[:, 0] == 0) and Encoding.from_dict(data.meta["encoding"]).longitude == "anchor"


def test_unknown_methods_and_profiles_are_refused():
    with pytest.raises(ValueError, match="method must be one of implicit, eikonet, got 'lstm'"):
        command.train_locator("lstm")
    with pytest.raises(ValueError, match="profile must be one of quick, full; got 'slow'"):
        command.train_locator("implicit", "slow")
