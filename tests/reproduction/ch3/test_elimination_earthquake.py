"""The earthquake half of the elimination study: data, the printed counts, and removal that a direct computation
confirms."""

import numpy as np
import pytest

from data_gen.earthquakes import mesh
from implicit_models.seismology.encoding import Encoding
from implicit_models.sim.network.states import states
from reproduction.book.results import Results, numbers
from reproduction.ch3_elimination import earthquakes as quake
from reproduction.ch3_elimination import quake_measures, show
from reproduction.core.scores import count_parameters


@pytest.fixture(scope="module")
def data():
    return quake.quake_data(4, epicentres=3, n_depths=160, n_test=80)


@pytest.fixture(scope="module")
def both(data):
    options = {"kappa": 1.0, "input_factor": 30.0, "shares": [0.0, 0.5, 0.9]}
    return quake.normal_width(data, 4, "quick", **options), quake.wide(data, 4, "quick", **options)


def test_data_have_the_epicentres_and_depths_that_were_asked_for(data):
    assert data.u_train.shape == (480, 270) and data.test[0][0].shape == (80, 270)
    encoding = Encoding.from_dict(data.meta["encoding"])
    _, lon, depth, _ = encoding.decode(data.y_train)
    assert len(np.unique(np.round(lon, 3))) == 3 and len(np.unique(np.round(depth, 2))) == 160
    assert np.abs(data.y_train).max() <= 1 and np.abs(data.test[0][1][:, 0]).max() <= 1
    lat, all_lon = mesh(seed=4)
    assert ((all_lon > 90) & (all_lon < 270)).sum() == 1296
    # no test source at a training epicentre
    trained = set(np.round(data.y_train[:, 0], 5).tolist())
    assert not trained & set(np.round(data.test[0][1][:, 0], 5).tolist())


def test_too_many_epicentres_are_refused():
    with pytest.raises(ValueError, match="epicentres must be 1 to 1295, got 1296"):
        quake.quake_data(0, epicentres=1296, n_depths=2, n_test=2)


def test_features_of_the_stated_net_and_of_one_ten_times_wider():
    # 45 stations x 6, and the widths 32-128-128-128-32
    assert 6 * quake.N_STATIONS + sum(quake.WIDTHS) == 718 and 6 * quake.N_STATIONS + 10 * sum(quake.WIDTHS) == 4750


def test_without_removal_the_model_is_the_teacher(both):
    normal, _ = both
    for order in quake.ORDERS:
        assert normal.curves[order]["mse"][0] == pytest.approx(normal.teacher, rel=1e-3)
        assert normal.curves[order]["states_kept"][0] == normal.n_states
        assert normal.curves[order]["removed"] == [0, round(0.5 * normal.features), round(0.9 * normal.features)]
    assert normal.features == 270 + normal.n_states and normal.failed == 0 and normal.wrong == 0
    assert normal.slack == 100 and normal.certified == 0  # the ball of radius 1 holds the network's own rows


def test_constants_are_those_of_the_labels(data, both):
    y = data.test[0][1].astype(np.float64)
    assert both[0].variance == pytest.approx(np.mean([np.var(y[:, k]) for k in range(4)]))
    assert both[0].constant == pytest.approx(np.mean((y - data.y_train.astype(np.float64).mean(axis=0)) ** 2))
    assert both[0].constant >= both[0].variance


def test_sampled_rows_are_rows_of_the_whole_problem(data):
    network, _ = quake.teacher(data, 0, epochs=1, widths=(4, 6, 6, 6, 4))
    found = states(network, data.u_train)
    (part, own), whole = quake.sampled(found, 30.0, 5, 0), quake.feature_rows(found, 30.0)
    at = [int(np.flatnonzero(np.all(whole.C == row, axis=1))[0]) for row in part.C]
    assert len(set(at)) == 5 and np.array_equal(part.zz, whole.zz[at]) and np.array_equal(part.G, whole.G)
    # the network's own rows fit their targets without error
    assert quake.relative_residuals(part.G, part.C, part.zz, own) < 1e-9


def test_residual_is_that_of_least_squares_on_the_samples():
    rng = np.random.default_rng(0)
    M, A = rng.normal(size=(30, 4)), rng.normal(size=(3, 4))
    Z = rng.normal(size=(30, 3))
    wanted = np.median(((M @ A.T - Z) ** 2).sum(axis=0) / (Z**2).sum(axis=0))
    assert quake.relative_residuals(M.T @ M, Z.T @ M, (Z**2).sum(axis=0), A) == pytest.approx(wanted)


def test_removal_costs_a_wide_row_its_fit(both):
    _, rows = both
    widths = np.array(quake.settings("quick")["widths"]) * quake.settings("quick")["factor"]
    assert rows.features == 270 + widths.sum() and rows.share == [0, 50, 90]
    for order in quake.ORDERS:
        assert (
            rows.residual[order][0] < 1e-6
            and rows.residual[order][0] <= rows.residual[order][1] <= rows.residual[order][2] <= 1
        )
    assert rows.parameters == count_parameters(quake.EikoNet(270, 4, widths=widths))


def test_records(both):
    results = Results("ch3_elimination", profile="quick", seeds=[4])
    results.record_all(quake_measures.quake_values([both[0]], [both[1]], 3))
    results.record_curves(quake_measures.quake_curves([both[0]], [both[1]]))
    assert (
        results.values["quake_features_of_the_stated_net"] == 718
        and results.values["quake_features_of_one_ten_times_wider"] == 4750
    )
    assert results.values["quake_sources"] == 480 and results.values["quake_sources_stated"] == 3 * 695
    curve = both[0].curves["random"]["mse"]
    assert numbers(results.values["quake_rise_mse_random_90"]) == [pytest.approx(curve[2] - curve[0])]
    assert numbers(results.values["quake_lost_random_90"]) == [
        pytest.approx(100 * (curve[2] - curve[0]) / (both[0].variance - curve[0]))
    ]
    assert (
        len(show.baseline_table([both[0]])) == 5
        and show.quake_removal_table([both[0]]).shape == (3, 3)
        and show.rows_table([both[1]]).shape == (3, 3)
    )
    figure = show.quake_figure(results.content())
    lines = [container.lines[0] for container in figure.axes[0].containers]
    np.testing.assert_allclose(lines[2].get_ydata(), curve)
