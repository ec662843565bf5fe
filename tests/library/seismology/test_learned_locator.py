"""Learned locators behind the interface of `locate`: files, networks against torch, the choice of stations,
refusals."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from implicit_models import ImplicitModel
from implicit_models.seismology.encoding import Encoding
from implicit_models.seismology.geodesy import destination, geographic_latitude
from implicit_models.seismology.learned import REACH, LearnedLocator, default_file
from implicit_models.seismology.locate import locate, main
from implicit_models.seismology.table.travel_times import build_p_table

pytest.importorskip("obspy", reason="travel times need obspy's Earth models")

WIDTHS = (30, 32, 128, 128, 128, 32, 4)


def encoding(**options):
    return Encoding(n_stations=5, time_scale_s=800.0, **options)


def residual_mlp(seed=0, skip=True, **options):
    rng = np.random.default_rng(seed)
    layers = [(rng.normal(0, 0.1, (b, a)), rng.normal(0, 0.1, b)) for a, b in zip(WIDTHS[:-1], WIDTHS[1:])]
    return LearnedLocator.from_layers(
        layers, encoding(**options), skip=rng.normal(0, 0.1, (4, 30)) if skip else None, about={"seed": seed}
    )


def implicit(seed=0, n=12):
    model = ImplicitModel(30, 4, n, seed=seed).double()
    return model, LearnedLocator.from_matrices(model.A, model.B, model.C, model.D, encoding(), about={"states": n})


def oracle(place=(30.0, 140.0, 100.0), travel=300.0, **options):
    """A network that always answers one place: its biases alone."""
    code = encoding(**options)
    layers = [(np.zeros((b, a)), np.zeros(b)) for a, b in zip(WIDTHS[:-1], WIDTHS[1:])]
    answer = code.labels(*(np.array([value]) for value in (*place, travel)), anchor_lon=np.zeros(1))[0]
    layers[-1] = (np.zeros((4, 32)), answer)
    return LearnedLocator.from_layers(layers, code)


DIST = np.array([5.0, 11.0, 18.0, 27.0, 40.0, 55.0, 8.0])
AZIMUTH = np.array([0.0, 50.0, 130.0, 200.0, 250.0, 310.0, 90.0])


@pytest.fixture(scope="module")
def table():
    return build_p_table(shadow="diffracted", progress=False)


def picks(table, lat=30.0, lon=140.0, depth=100.0, origin=1e9):
    station_lat, station_lon, baz = destination(lat, lon, DIST, AZIMUTH)
    return pd.DataFrame(
        {
            "event": "e",
            "station": [f"S{k}" for k in range(7)],
            "lat": geographic_latitude(station_lat),
            "lon": station_lon,
            "elev_m": 0.0,
            "p_time": origin + table.lookup(depth, DIST)[0],
            "phase": "P",
            "sigma_s": np.nan,
            "baz": baz,
            "sigma_baz": np.nan,
            "row": np.arange(7) + 2,
            "flag": "",
        }
    )


def test_the_residual_mlp_is_that_of_torch():
    locator = residual_mlp()
    U = np.random.default_rng(1).normal(size=(9, 30))
    w = {name: torch.from_numpy(value) for name, value in locator.weights.items()}
    u, relu = torch.from_numpy(U), torch.relu
    linear = lambda x, k: torch.nn.functional.linear(x, w[f"W{k}"], w[f"b{k}"])
    h = relu(linear(relu(linear(u, 0)), 1))
    h = relu(h + linear(relu(linear(h, 2)), 3))
    y = linear(relu(linear(h, 4)), 5) + u @ w["D"].T
    np.testing.assert_allclose(locator.outputs(U), y.numpy(), atol=1e-12)


def test_the_implicit_locator_is_the_model():
    model, locator = implicit()
    U = np.random.default_rng(2).normal(size=(6, 30))
    x = np.zeros((6, 12))
    A, B, C, D = (locator.weights[name] for name in "ABCD")
    for _ in range(3000):
        x = np.maximum(x @ A.T + U @ B.T, 0)
    np.testing.assert_allclose(locator.outputs(U), x @ C.T + U @ D.T, atol=1e-6)
    np.testing.assert_allclose(locator.outputs(U), model(torch.from_numpy(U)).detach().numpy(), atol=1e-4)


@pytest.mark.parametrize(
    "make",
    [residual_mlp, lambda: residual_mlp(skip=False), lambda: implicit()[1], lambda: residual_mlp(longitude="anchor")],
)
def test_files(tmp_path, make):
    locator, path = make(), tmp_path / "folder" / "locator.npz"
    locator.save(path)
    found = LearnedLocator.load(path, kind=locator.kind)
    assert (
        found.encoding == locator.encoding
        and found.about == locator.about
        and found.weights.keys() == locator.weights.keys()
    )
    U = np.random.default_rng(3).normal(size=(2, 30))
    np.testing.assert_array_equal(found.outputs(U), locator.outputs(U))
    assert list(path.parent.iterdir()) == [path]
    other = {"implicit": "eikonet", "eikonet": "implicit"}[locator.kind]
    with pytest.raises(ValueError, match=f"holds a locator of kind '{locator.kind}', not '{other}'"):
        LearnedLocator.load(path, kind=other)


def test_missing_and_foreign_files(tmp_path, monkeypatch):
    monkeypatch.setenv("IMPLICIT_CACHE", str(tmp_path))
    assert default_file("implicit") == tmp_path / "locators" / "implicit.npz"
    with pytest.raises(FileNotFoundError, match="python -m reproduction.tools.train_locator"):
        LearnedLocator.load(default_file("implicit"))
    np.savez(tmp_path / "other.npz", A=np.ones(3))
    with pytest.raises(ValueError, match="is not a learned locator"):
        LearnedLocator.load(tmp_path / "other.npz")


def test_weights_are_checked():
    good = residual_mlp()
    with pytest.raises(ValueError, match="kind must be one of"):
        LearnedLocator("mlp", good.encoding, good.weights)
    with pytest.raises(ValueError, match=r"W2 must have shape \(128, 128\), got \(127, 128\)|W3 must have shape"):
        LearnedLocator("eikonet", good.encoding, dict(good.weights) | {"W2": np.zeros((127, 128))})
    with pytest.raises(ValueError, match="E must have shape None"):
        LearnedLocator("eikonet", good.encoding, dict(good.weights) | {"E": np.zeros(3)})
    with pytest.raises(ValueError, match=r"B must have shape \(12, 30\), got \(12, 29\)"):
        LearnedLocator("implicit", good.encoding, dict(implicit()[1].weights) | {"B": np.zeros((12, 29))})
    with pytest.raises(ValueError, match="b5 is not finite"):
        LearnedLocator("eikonet", good.encoding, dict(good.weights) | {"b5": np.full(4, np.nan)})


@pytest.mark.parametrize("longitude", ["absolute", "anchor"])
def test_a_right_answer_has_small_residuals(table, longitude):
    # The anchor is the first to pick, S0 at 5 degrees.
    sample = picks(table)
    travel = float(table.lookup(100.0, 5.0)[0])
    options = {"longitude": longitude}
    place = (30.0, 140.0 - (sample["lon"][0] if longitude == "anchor" else 0.0), 100.0)
    (found,) = locate(sample, method=oracle(place, travel, **options), table=table)
    assert found.method == "eikonet" and found.depth_km == pytest.approx(100) and found.lon == pytest.approx(140)
    assert found.lat == pytest.approx(float(geographic_latitude(30.0))) and found.origin_time == pytest.approx(
        1e9, abs=1e-4
    )
    np.testing.assert_allclose(found.residuals["residual_s"], 0, atol=1e-3)
    np.testing.assert_allclose(found.residuals["dist_deg"], DIST, atol=1e-6)
    assert np.isnan(found.covariance).all() and found.rms_s < 1e-3 and found.flags == ()


def test_the_choice_of_stations_is_open(table):
    (found,) = locate(picks(table), method=oracle(), table=table)
    used = list(found.residuals["station"][found.residuals["used"]])
    assert len(used) == 5 and "S0" in used and "S5" in used  # the first, and the farthest from it
    assert (
        found.notes[0].startswith("stations: S0, ")
        and "of 7" in found.notes[0]
        and "S0, the first to pick, is the anchor" in found.notes[0]
    )
    assert set(found.residuals["reason"]) == {"", "not among the 5 stations chosen"}
    assert found.notes[0] in found.report() and "nan" not in found.report()


def test_stations_stay_within_the_reach_of_training(table):
    near = oracle()
    near = LearnedLocator("eikonet", near.encoding, near.weights, {REACH: 20.0})
    (found,) = locate(picks(table), method=near, table=table)
    # Within 20 degrees of S0 are S1, S2, S6 and itself; the fifth nearest comes in too, and that is said.
    assert {"S0", "S1", "S2", "S6"} < set(found.residuals["station"][found.residuals["used"]])
    assert "extrapolated" in found.flags and "nearer stations" in found.report()
    far = LearnedLocator("eikonet", near.encoding, near.weights, {REACH: 60.0})
    assert locate(picks(table), method=far, table=table)[0].flags == ()


def test_stations_without_back_azimuths_are_passed_over_or_named(table):
    sample = picks(table)
    sample.loc[[1, 3], "baz"] = np.nan
    (found,) = locate(sample, method=oracle(), table=table)
    assert found.residuals["used"].sum() == 5 and set(found.residuals["reason"][[1, 3]]) == {"no back-azimuth"}
    sample.loc[[4], "baz"] = np.nan
    with pytest.raises(
        ValueError,
        match="event e: the eikonet locator needs 5 first P picks with back-azimuths and has 4; .*: S1, S3, S4$",
    ):
        locate(sample, method=oracle(), table=table)


def test_an_event_without_back_azimuths_does_not_stop_the_others(table):
    good, bad = picks(table), picks(table)
    bad["event"], bad["baz"] = "f", np.nan
    found, refused = locate(pd.concat([good, bad], ignore_index=True), method=oracle(), table=table)
    (alone,) = locate(good, method=oracle(), table=table)
    assert found.located and (found.lat, found.lon, found.depth_km) == (alone.lat, alone.lon, alone.depth_km)
    assert not refused.located and refused.event == "f" and not refused.residuals["used"].any()
    assert "Event f: not located" in refused.report() and "stations without a back-azimuth: S0, S1" in refused.report()


@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_a_file_that_was_cut_is_named(tmp_path, part, table, capsys):
    path = tmp_path / "cut.npz"
    implicit()[1].save(path)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(ValueError, match="cut.npz is not a learned locator"):
        LearnedLocator.load(path)
    assert (
        main([str(path), "--method", "implicit", "--model", str(path)]) == 2
        and "is not a learned locator" in capsys.readouterr().err
    )


def test_weights_that_are_not_real_and_notes_that_are_none():
    _, good = implicit()
    with pytest.raises(ValueError, match="weight A must be real numbers, got complex128"):
        LearnedLocator("implicit", good.encoding, {**good.weights, "A": good.weights["A"] * 1j})
    for about in ([1], {REACH: "far"}, {REACH: -1.0}, {REACH: math.nan}):
        with pytest.raises(ValueError, match="about must be a mapping"):
            LearnedLocator("implicit", good.encoding, good.weights, about)


def test_a_state_that_does_not_converge_is_no_answer(table):
    _, good = implicit()
    divergent = LearnedLocator(
        "implicit", good.encoding, {**good.weights, "A": 2 * np.eye(12), "B": np.abs(good.weights["B"])}
    )
    with pytest.warns(UserWarning, match="not solved"):
        assert np.isnan(divergent.outputs(np.ones((2, 30)))).all()
    with (
        pytest.warns(UserWarning, match="not solved"),
        pytest.raises(ValueError, match="event e: the implicit locator has no answer, .* converge"),
    ):
        locate(picks(table), method=divergent, table=table)


def test_a_depth_cannot_be_fixed(table):
    with pytest.raises(ValueError, match="fixed_depth_km = 10.0 is for the method 'geiger'"):
        locate(picks(table), method=oracle(), table=table, fixed_depth_km=10.0)


def test_elsewhere_than_it_was_trained_is_said(table):
    (found,) = locate(picks(table, lon=10.0), method=oracle((30.0, 10.0, 100.0)), table=table)
    assert "extrapolated" in found.flags and "trained on other longitudes" in found.report()


def test_an_impossible_answer_is_said_not_hidden(table):
    locator = oracle()
    weights = dict(locator.weights) | {"b5": np.array([0.0, 1.2, -1.5, 0.0])}
    (found,) = locate(picks(table), method=LearnedLocator("eikonet", locator.encoding, weights), table=table)
    assert "off_range" in found.flags and found.lat == 90 and found.depth_km < 0
    assert any("latitude 108.00" in note for note in found.notes) and math.isfinite(found.rms_s)


def test_the_command_and_the_figure(table, tmp_path, capsys):
    sample = picks(table)
    sample["p_epoch_s"] = sample["p_time"]
    csv, model = tmp_path / "picks.csv", tmp_path / "eikonet.npz"
    sample[["event", "station", "lat", "lon", "p_epoch_s", "baz"]].to_csv(csv, index=False)
    oracle().save(model)
    assert main([str(csv), "--method", "eikonet", "--model", str(model), "--map", str(tmp_path / "map.png")]) == 0
    assert "Event e (eikonet)" in capsys.readouterr().out and (tmp_path / "map.png").stat().st_size > 10_000
    sample[["event", "station", "lat", "lon", "p_epoch_s"]].to_csv(csv, index=False)
    assert main([str(csv), "--method", "eikonet", "--model", str(model)]) == 2
    assert "stations without a back-azimuth: S0, S1" in capsys.readouterr().err
