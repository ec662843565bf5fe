"""The repr of a result fits a screen and says shapes, ranges and outcomes, whatever the size of its arrays."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models import ImplicitModel, robustness, seismology, sim
from implicit_models.summaries import COLUMNS, LINES, array_text, summary, value_text


def _network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 3)).eval()


@pytest.fixture(scope="module")
def results():
    """Results of every kind, with arrays that a plain repr would print for pages."""
    U = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(200, dtype=torch.int64)
    model, network = ImplicitModel(4, 3, 60, seed=0), _network()
    equilibrium = model.equilibrium(U)
    rng = np.random.default_rng(0)
    G, C, zz = sim.gram(rng.standard_normal((90, 40)), rng.standard_normal((90, 70)))
    rows, path = sim.solve_rows(G, C, zz, kappa=0.5), sim.path_rows(G, C, zz, kappas=np.linspace(0.1, 1, 10))
    screening = sim.screen(G, C, zz, kappa=0.5)
    elimination = sim.eliminate(G, C, zz, n_remove=5, kappa=0.5)
    states, fitted = sim.states(network, U), sim.fit_sim(network, U)
    sparse = sim.sparsify(network, U, sim.L1Ball(0.9))
    bounds = robustness.bounds(model, U[:20], 0.1)
    certified = robustness.certify(model, U[:20], y[:20], 0.1)
    dataset = Dataset(
        rng.standard_normal((300, 5)),
        rng.standard_normal(300),
        {k: (np.zeros((50, 5)), np.ones(50)) for k in range(40)},
        {"name": "drawn", "seed": 0},
    )
    return {
        "equilibrium": (equilibrium, ["float32 (200, 60), ", "int32 (200,), ", "reason", "converged"]),
        "statistics": (model.last_solve, ["n_failed", "float32 (200,)"]),
        "certificate": (model.certificate(), ["kind", "pf", "float64 (60,)"]),
        "rows": (rows, ["float64 (70, 40)", "70 optimal"]),
        "path": (path, ["float64 (10,), 0.1 to 1", "700 optimal"]),
        "states": (states, ["float32 (200, 70)", "Sequential, "]),
        "fit": (
            fitted,
            ["csr float64 (70, 70)", "73 optimal", "kappa", "sparsity_of_parameters", "sparsity_of_entries"],
        ),
        "run": (fitted.run, ["n_restarts"]),
        "scale": (fitted.scale, ["float64 (70,)"]),
        "screening": (screening, ["bool (70, 40)", "radius"]),
        "elimination": (elimination, ["kept", "int64 (35,)"]),
        "sparse": (sparse, ["GraphModule", "sparsity_of_entries", "sparsity_of_parameters"]),
        "report": (sparse.report, ["sparsity_of_entries", "sparsity_of_parameters", "sparsity_of_full_matrix"]),
        "layer": (sparse.report.layers[0], ["gap", "fit"]),
        "bounds": (bounds, ["float64 (20, 60)", "20 certified", "dual"]),
        "bounds certificate": (bounds.cert, ["kind", "pf", "float64 (20, 4)"]),
        "check": (robustness.check(bounds.cert), ["bool (20,), 20 true", "proved"]),
        "certification": (certified, ["safe", "certified_accuracy"]),
        "attack": (robustness.attack(model, U[:20], y[:20], 0.1), ["float64 (20, 4)", "bool (20,)"]),
        "sensitivity": (robustness.sensitivity_matrix(model), ["float64 (3, 4)", "residual"]),
        "problem": (robustness.Problem(*(np.eye(50),) * 4, np.zeros(50), np.zeros(50), model.activation), ["(50, 50)"]),
        "encoding": (seismology.Encoding(5, 1000.0), ["n_stations", "longitude"]),
        "dataset": (dataset, ["float64 (300, 5)", "name drawn", "test[0]", "more"]),
    }


def test_every_result_fits_a_screen_and_says_what_it_is(results):
    for name, (result, expected) in results.items():
        lines = repr(result).splitlines()
        assert lines[0] == type(result).__name__, name
        assert 1 < len(lines) <= LINES and max(map(len, lines)) <= COLUMNS, (name, repr(result))
        for words in expected:
            assert words in repr(result), (name, words, repr(result))


def test_results_of_seismology_fit_a_screen():
    from implicit_models.seismology.locations import Locations

    by_event = np.linspace(-3, 8, 500)
    shapes = {"covariance": (500, 4, 4), "status": (500, 30), "baz_used": (500, 30), "residual_s": (500, 30)}
    fields = {f.name: np.zeros(shapes[f.name]) if f.name in shapes else by_event for f in dataclasses.fields(Locations)}
    located = Locations(**(fields | {"flags": {"ambiguous": by_event > 0, "few": by_event > 9}, "prior_dof": 1.0}))
    grid = np.linspace(0, 700, 36)
    table = seismology.PTable(np.zeros((36, 96)), grid, np.arange(96.0), grid, "refuse", "ak135", ())
    for result, expected in (
        (located, ["float64 (500,), -3 to 8", f"ambiguous {(by_event > 0).sum()}"]),
        (table, ["float64 (36, 96)", "ak135"]),
    ):
        lines = repr(result).splitlines()
        assert lines[0] == type(result).__name__ and len(lines) <= LINES and max(map(len, lines)) <= COLUMNS
        assert all(words in repr(result) for words in expected)
    assert "few" not in repr(located)  # a flag that no event has


def test_the_text_of_an_array():
    M = np.array([[1.5, np.nan], [-2.0, np.inf]])
    assert array_text(M) == "float64 (2, 2), -2 to inf, 1 NaN"
    assert array_text(torch.from_numpy(M)) == "float64 (2, 2), -2 to inf, 1 NaN"
    assert array_text(np.full(3, np.nan)) == "float64 (3,), 3 NaN"
    assert array_text(np.zeros((0, 4))) == "float64 (0, 4)"
    assert array_text(np.array([True, False, True])) == "bool (3,), 2 true"
    assert array_text(np.array([3, -7])) == "int64 (2,), -7 to 3"
    assert array_text(np.array(["ok", "failed", "ok"])) == "text (3,): 2 ok, 1 failed"
    assert array_text(np.array(list("abcdefgh"))) == "text (8,): 1 a, 1 b, 1 c, 1 d, 1 e, 1 f, …"
    assert array_text(np.array(["2020-01-02", "2019-05-06"], "datetime64[D]")).endswith("2019-05-06 to 2020-01-02")
    assert array_text(sp.csr_array(np.diag([2.0, 5.0]))) == "csr float64 (2, 2), 2 stored, 2 to 5"
    assert array_text(torch.eye(2).to_sparse_csr()) == "csr float32 (2, 2), 2 stored, 1 to 1"
    assert array_text(torch.tensor([1.0, 2.0]).bfloat16()) == "bfloat16 (2,), 1 to 2"
    assert array_text(torch.zeros(2, requires_grad=True)) == "float32 (2,), 0 to 0"
    assert array_text(torch.zeros(2, 3, device="meta")) == "float32 (2, 3) on meta"
    assert array_text(np.broadcast_to(np.float32(1), (10**5, 10**5))).endswith("range not read")


def test_values_that_are_no_arrays():
    assert value_text({"a": 1, "b": 0.25}) == "a 1, b 0.25"
    assert (
        value_text(()) == "none" and value_text((1, "x")) == "1, x" and value_text([None, {}]) == "2 of NoneType, dict"
    )
    assert value_text(None) == "None" and value_text("two\nlines") == "two lines"
    assert value_text(nn.Linear(3, 2)) == "Linear, 8 parameters"


def test_long_lines_and_many_fields_are_cut_and_said_to_be():
    wide = dataclasses.make_dataclass("Wide", [(f"field{i}", str) for i in range(30)])
    lines = summary(wide(*["x" * 500] * 30)).splitlines()
    assert len(lines) == LINES and lines[-1] == "  … 20 more"
    assert all(len(line) == COLUMNS and line.endswith("…") for line in lines[1:-1])
