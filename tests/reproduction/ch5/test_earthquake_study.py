"""The earthquake study: scores against values worked out by hand, the turn of the globe, records and figures of a small
run."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.earthquakes import make_samples
from implicit_models.seismology.encoding import Encoding
from reproduction.book.results import Results, numbers
from reproduction.ch5_earthquake import compute as study
from reproduction.ch5_earthquake import maps as earthquake_maps
from reproduction.ch5_earthquake import show as earthquake_figures
from reproduction.ch5_earthquake import tables as earthquake_tables
from reproduction.ch5_earthquake import task
from reproduction.models.linear import Linear

KM = 6371.0 * np.pi / 180.0


def events(lat, lon, depth, n=5, seed=0):
    return make_samples(
        np.asarray(lat, float), np.asarray(lon, float), np.asarray(depth, float), n, max_dist_deg=5, seed=seed
    )


def meta_of(samples, longitude="absolute", k=0):
    encoding = Encoding(5, 80.0, longitude=longitude)
    return {"encoding": encoding.to_dict(), "samples": {k: samples}}, samples.encode(encoding)


def test_scores_are_the_errors_that_were_put_in():
    """On the equator one degree of longitude and one of latitude are each 111.19 km; 90, 90, 347 and 40 are the labels'
    units."""
    samples = events([0.0] * 4, [170.0, 175.0, -175.0, -170.0], [10, 200, 400, 600])
    meta, (_, y) = meta_of(samples)
    moved = y.astype(np.float64)
    moved[:, 0] += np.array([1, -1, 1, 0]) / 90
    moved[:, 1] += np.array([0, 0, 0, 2]) / 90
    moved[:, 2] += 34.7 / 347
    moved[:, 3] -= 3.0 / 40
    found = study.location_scores(moved, y, "papers", meta, 0)
    assert found["longitude_deg"] == pytest.approx(0.75, abs=1e-4) == found["longitude_circular_deg"]
    assert found["latitude_deg"] == pytest.approx(0.5, abs=1e-4)
    assert found["depth_km"] == pytest.approx(34.7, abs=1e-3) and found["time_s"] == pytest.approx(3.0, abs=1e-4)
    assert found["km_median"] == pytest.approx(KM, rel=1e-4) and found["far"] == 100
    wanted = (3 / 90**2 / 4 + 4 / 90**2 / 4 + 0.1**2 + 0.075**2) / 4
    assert found["mse"] == pytest.approx(wanted, rel=1e-4)
    assert found["mse"] == pytest.approx(np.mean([found[f"mse_{name}"] for name in task.OUTPUTS]))
    assert found["mse_latitude_inside"] == found["mse_latitude"] and np.isnan(found["mse_latitude_outside"])


def test_the_circle_forgives_the_jump_and_the_line_does_not():
    samples = events([0.0, 0.0], [-1.0, 1.0], [100, 100])  # 359 and 1 degrees on the line
    meta, (_, y) = meta_of(samples)
    outputs = y[::-1].copy()  # each takes the other's place: 2 degrees away
    outputs[:, 1:] = y[:, 1:]
    found = study.location_scores(outputs, y, "papers", meta, 0)
    assert found["longitude_deg"] == pytest.approx(358, abs=1e-3) and found["longitude_circular_deg"] == pytest.approx(
        2, abs=1e-3
    )
    assert found["km_median"] == pytest.approx(2 * KM, rel=1e-4)


def test_unbroken_samples_do_not_straddle_the_start_of_the_line():
    samples = events([0.0, 0.0, 0.0], [0.01, 90.0, 179.99], [10, 10, 10], n=40)
    assert study.unbroken(samples).tolist() == [False, True, True]


def test_known_labels_need_no_longitude():
    samples = events([10.0, -60.0], [100.0, 120.0], [50, 300])
    meta, (_, y) = meta_of(samples)
    found = study.location_scores(y[:, 2:] + np.array([0.1, 0.0]), y[:, 2:], "depth_time", meta, 0)
    assert set(found) == {"mse", "mse_depth", "mse_time", "depth_km", "time_s"} and found["depth_km"] == pytest.approx(
        34.7, abs=1e-3
    )


@settings(max_examples=20, deadline=None)
@given(turn=st.floats(-720, 720), lat=st.floats(-85, 85), lon=st.floats(-180, 179), seed=st.integers(0, 99))
def test_relative_longitudes_do_not_feel_a_turn_of_the_globe(turn, lat, lon, seed):
    samples = events([lat], [lon], [100], seed=seed)
    # a step of float32 near 1, and 1e-9 of rounding of longitudes over 180, unless a difference lies at the wrap itself
    assert study.turned_difference(samples, turn, Encoding(5, 80.0)) < 1e-6


def test_absolute_longitudes_do_feel_it():
    samples = events([0.0], [100.0], [100])
    turned = dataclasses.replace(samples, lon=samples.lon + 30, station_lon=samples.station_lon + 30)
    before, after = (part.encode(Encoding(5, 80.0)) for part in (samples, turned))
    np.testing.assert_allclose(after[0], study.shifted(before[0], 30 / 90), atol=1e-6)
    assert after[1][0, 0] - before[1][0, 0] == pytest.approx(30 / 90, abs=1e-6)


def test_response_of_a_linear_map_is_its_sum_of_weights():
    model = Linear(30, 4, seed=0)
    u = np.random.default_rng(0).normal(size=(50, 30)).astype(np.float32)
    assert study.longitude_response(model, u, 0.5) == pytest.approx(float(model.weight[0, ::6].sum()), abs=1e-5)


@pytest.mark.extended
def test_geiger_finds_noise_free_events_and_is_disturbed_by_noise():
    encoding = Encoding(5, 80.0)
    rng = np.random.default_rng(3)
    samples = events(
        rng.uniform(-60, 60, 60), rng.uniform(-180, 180, 60), rng.integers(5, 600, 60).astype(float), seed=1
    )
    exact = study.geiger_scores(samples, 0.0, encoding)
    assert exact["km_median"] < 0.5 and exact["km_p90"] < 1 and exact["mse"] < 1e-3
    noisy = dataclasses.replace(
        samples, arrival_s=samples.arrival_s + 0.5 * rng.standard_normal(samples.arrival_s.shape)
    )
    assert 2 < study.geiger_scores(noisy, 0.5, encoding)["km_median"] < 30


def test_cut_keeps_every_field():
    samples = events([1, 2, 3], [4, 5, 6], [7, 8, 9])
    part = study.cut(samples, 2)
    assert len(part) == 2
    for each in dataclasses.fields(samples):
        np.testing.assert_array_equal(getattr(part, each.name), getattr(samples, each.name)[:2])


@pytest.fixture(scope="module")
def small():
    return study.run_earthquake(
        "quick",
        [5],
        ["papers", "anchor", "depth_time", "latitude"],
        n_train=1500,
        epochs_scale=0.25,
        events=20,
        noises=[0.0],
    )


def test_a_small_run_scores_what_its_models_say(small):
    data, model = task.data("papers", 5, "quick", n_train=1500), small.models["papers"]["linear"][0]
    u, y = data.test[4]
    direct = float(((u @ model.weight.detach().numpy().T + model.bias.detach().numpy() - y) ** 2).mean())
    assert small.score("papers", "linear", "mse", 4) == [pytest.approx(direct, rel=1e-4)]
    assert (
        small.sizes["papers"]["train"] == 1500 and small.steps["papers"]["linear"] == 6
    )  # one epoch of batches of 250
    assert set(small.located) == {(name, 0.0, k) for name in ("geiger", *study.LABELS) for k in (0, 9)}
    assert small.turned < 1e-6


@pytest.mark.extended
def test_records_say_what_the_scores_say(small):
    results = Results("ch5_earthquake", profile="quick", seeds=[5])
    values, curves = earthquake_tables.study_values(small)
    results.record_all(values | earthquake_tables.claim_values(small))
    results.record_curves(curves)
    gains = [
        small.score("papers", "eikonet", "mse", k)[0] - small.score("papers", "implicit", "mse", k)[0]
        for k in study.SIDES
    ]
    assert [numbers(results.values[f"gain_{k}"])[0] for k in study.SIDES] == pytest.approx(gains)
    crossing = numbers(results.values["crossover"])[0]
    assert crossing == next((k for k in study.SIDES if all(g > 0 for g in gains[k:])), 10)
    nearest = [
        small.score("papers", "eikonet_bias_free_skip", "mse_unbroken", k)[0]
        - small.score("papers", "implicit", "mse_unbroken", k)[0]
        for k in study.SIDES
    ]
    assert abs(numbers(results.values["bias_free_skip_minus_implicit"])[0]) == pytest.approx(
        max(abs(d) for d in nearest)
    )
    two_pass = numbers(results.values["two_pass_depth_time_implicit_depth_km_9"])[0]
    assert two_pass == pytest.approx(
        small.score("papers", "implicit", "depth_km", 9)[0] - small.score("depth_time", "implicit", "depth_km", 9)[0]
    )
    results.record_all(earthquake_tables.conflict_table()[0])
    assert results.values["depth_409_scaled"] == pytest.approx(409 / 347) and results.values[
        "depth_409_least_mse"
    ] == pytest.approx((409 / 347) ** 2 / 4)
    assert results.values["published_mlp_minus_implicit"] == pytest.approx(-0.25e-3)
    values, counts = earthquake_tables.count_table()
    results.record_all(values)
    assert (
        results.values["count_samples"] == 900_720 == 1296 * 695
        and results.values["count_printed_pairs_times_depths"] == 900_025
    )
    assert results.values["count_train"] == 720_576 and results.values["count_band"] == 20_016
    assert results.values["count_named"] == 25 and results.values["count_features"] == 30
    assert (results.values["count_eikonet_270"], results.values["count_implicit_270"]) == (50_180, 89_240)
    assert len(counts) == 8
    tables = [
        earthquake_tables.error_table(small, "papers", 9),
        earthquake_tables.error_table(small, "depth_time", 0),
        earthquake_tables.setting_table(small),
        earthquake_tables.claim_table(results.values),
        earthquake_tables.two_pass_table(small),
        earthquake_tables.latitude_table(small),
        earthquake_tables.located_table(small)[1],
        earthquake_tables.turn_table(small)[1],
    ]
    assert all(len(table) for table in tables)
    import matplotlib.pyplot as plt

    content = results.content()
    figure = earthquake_figures.error_figure(content)
    drawn = {line.get_label(): line.get_ydata() for line in figure.axes[0].get_lines()}
    np.testing.assert_allclose(drawn["implicit"], small.scores["papers"]["implicit"]["mse"][0])
    for draw in (
        earthquake_figures.bias_figure,
        earthquake_figures.label_figure,
        earthquake_figures.setting_figure,
        earthquake_figures.longitude_figure,
        earthquake_figures.depth_time_figure,
    ):
        assert draw(content).axes
    plt.close("all")


@pytest.mark.parametrize(
    "k, west, east", [(1, (80, 90), (-90, -80)), (3, (60, 70), (-70, -60)), (9, (0, 10), (-10, 0))]
)
def test_bands_are_the_printed_ones(k, west, east):
    assert earthquake_maps.bands_of(k) == (west, east)


def test_the_figure_of_a_sample_draws_directions_and_delays():
    import matplotlib.pyplot as plt

    drawn = events([12.0] * 30, [140.0] * 30, [120.0] * 30)
    k = earthquake_maps.clearest(drawn.station_lat, drawn.station_lon)
    figure = earthquake_maps.setup_figure(
        drawn.station_lat[k],
        drawn.station_lon[k],
        drawn.delay_s[k],
        drawn.back_azimuth[k],
        (12.0, 140.0, 120.0),
        0,
        drawn.anchor_time_s[k],
    )
    axes = figure.axes[0]
    x, y = np.concatenate([np.array(line.get_data()) for line in axes.get_lines() if line.get_marker() == "^"], axis=1)
    np.testing.assert_allclose(np.sort(np.hypot(x, y)), np.sort(drawn.dist_deg[k]), atol=1e-9)
    # at the sites of the stations, a back-azimuth differs from the direction on the map by the convergence of meridians
    # only
    assert sum("θ" in text.get_text() for text in axes.texts) == 5
    assert axes.get_xlim()[1] > drawn.dist_deg[k].max()
    plt.close("all")
