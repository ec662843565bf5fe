"""The small network of the tutorial, and a network of the reader's that a parameter names."""

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import fields

import pytest
import torch
from torch import nn

from implicit_models.sim.network.layers import read_layers
from reproduction.book.run import NOTEBOOKS
from reproduction.tutorial_sparsify.network import Task, named_task, small_network, task_of

OWN = """
import torch
from torch import nn


def make(seed):
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(90, 2, 4, 4, generator=generator)
    y = (u[:, 0].mean((1, 2)) > u[:, 1].mean((1, 2))).long()
    network = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(64, 2),
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(u), y).backward()
        optimizer.step()
    return network.eval(), (u[:60], y[:60]), (u[60:], y[60:])


def tuple_of_two(seed):
    return nn.Linear(2, 2), (torch.zeros(3, 2), torch.zeros(3))


def no_module(seed):
    return "network", (torch.zeros(3, 2), torch.zeros(3).long()), (torch.zeros(3, 2), torch.zeros(3).long())


def float_labels(seed):
    return nn.Linear(2, 2), (torch.zeros(3, 2), torch.zeros(3)), (torch.zeros(3, 2), torch.zeros(3).long())
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "readers_module.py").write_text(textwrap.dedent(OWN))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("readers_module", None)


@pytest.mark.parametrize("side", [8, 28])
def test_small_network_has_what_the_page_promises(side):
    network = small_network(side, 10, 0)
    kinds = {type(module) for module in network.modules()}
    assert {nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.AvgPool2d, nn.Linear} <= kinds and any(
        type(m).__name__ == "Residual" for m in network
    )
    assert network(torch.zeros(2, 1, side, side)).shape == (2, 10)
    layers = read_layers(network.eval(), (1, side, side))
    assert [b.activation for b in layers.blocks].count("max_pool") == 2 and len(layers.blocks) == 7
    again = small_network(side, 10, 0)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


def test_named_network(own):
    task = named_task("readers_module:make", 3)
    assert (
        task.u.shape == (60, 2, 4, 4) and task.y_test.shape == (30,) and "readers_module:make: 60 training" in task.note
    )
    assert {field.name for field in fields(Task)} >= {"network", "u", "y"} and task_of(
        "readers_module:make", 3, "quick"
    ).u.equal(task.u)


@pytest.mark.parametrize(
    "name, error, message",
    [
        ("readers_module", ValueError, "'module:function'"),
        (":make", ValueError, "'module:function'"),
        ("readers_module:absent", AttributeError, "absent"),
        ("no_such_module_here:make", ImportError, "no_such_module_here"),
        ("readers_module:tuple_of_two", TypeError, "returned tuple"),
        ("readers_module:no_module", TypeError, "torch module first, got str"),
        ("readers_module:float_labels", TypeError, "training samples and labels"),
    ],
)
def test_what_a_name_cannot_be(own, name, error, message):
    with pytest.raises(error, match=message):
        named_task(name, 0)


def test_the_page_runs_on_a_named_network_and_publishes_nothing_of_it(own, tmp_path):
    from reproduction.book.run import published

    command = [
        sys.executable,
        "-m",
        "papermill",
        str(NOTEBOOKS / "tutorial_sparsify.ipynb"),
        str(tmp_path / "out.ipynb"),
        "--no-progress-bar",
    ]
    for key, value in (("network", "readers_module:make"), ("shares", "[0.6, 0.5]"), ("m", "25"), ("seeds", "[3]")):
        command += ["-p", key, value]
    path = os.pathsep.join([str(own), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    notebook = json.loads((tmp_path / "out.ipynb").read_text())
    assert published(notebook)["values"] == {} and "readers_module:make" in published(notebook)["withheld"]
    text = json.dumps(notebook)
    assert "readers_module:make: 60 training and 30 test samples" in text and "call eval() first" in text
