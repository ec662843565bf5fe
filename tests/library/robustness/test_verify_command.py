"""The command: what it prints, its exit status and its report, with a search whose answers are given."""

import json
import re
import sys
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from implicit_models.robustness.verify import main  # noqa: E402
from implicit_models.status import Status  # noqa: E402


@dataclass
class Answer:
    status: str
    witness: object = None
    reason: str = ""
    bound: float = 0.5
    seconds: float = 0.25
    nodes: int = 3


@pytest.fixture
def network(tmp_path):
    """y = (relu(x0 + x1), x0 - 2 x1)"""
    W, V = np.array([[1, 1, -1], [1, -2, 2]], np.float32), np.array([[1, 0], [0, 1], [0, -1]], np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["m"]), helper.make_node("Relu", ["m"], ["r"])]
        + [helper.make_node("MatMul", ["r", "V"], ["y"])],
        "made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(W, "W"), numpy_helper.from_array(V, "V")],
    )
    path = tmp_path / "made.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]).SerializeToString())
    return path


def conditions(folder, text, p=2):
    path = folder / "wanted.vnnlib"
    names = (
        "".join(f"(declare-const X_{i} Real)" for i in range(p)) + "(declare-const Y_0 Real)(declare-const Y_1 Real)"
    )
    path.write_text(names + text)
    return path


BOX = "(assert (<= 0 X_0 1)) (assert (<= 0 X_1 1))"
ONE = BOX + "(assert (>= Y_0 1.5))"
TWO = "(assert (<= 0 X_1 1)) (assert (or (<= 0 X_0 1) (<= 2 X_0 3))) (assert (>= Y_0 1.5))"


@pytest.fixture
def search(monkeypatch):
    """Answers of the search, taken one after the other, and what it was asked."""

    class Search:
        answers: list = []
        asked: list = []

        def verify(self, model, wanted, *, timeout=None, progress=False, checkpoint=None):
            self.asked.append((model, wanted, timeout))
            return self.answers[len(self.asked) - 1]

    given = Search()
    given.answers, given.asked = [], []
    module = ModuleType("search")
    module.verify_property = given.verify
    monkeypatch.setitem(sys.modules, "implicit_models.robustness.verification.search", module)
    return given


def run(capsys, *arguments):
    status = main([str(a) for a in arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_unsat(tmp_path, capsys, network, search):
    search.answers = [Answer(Status.SAFE)]
    report = tmp_path / "report.json"
    said = run(capsys, network, conditions(tmp_path, ONE), "--timeout", 100, "--json", report)
    assert said == (0, "unsat\n", "")
    ((model, wanted, timeout),) = search.asked
    assert (model.in_features, model.out_features, str(model.A.dtype)) == (2, 2, "torch.float64")
    assert wanted.upper.tolist() == [1.0, 1.0] and 0 < timeout < 100
    kept = json.loads(report.read_text())
    assert kept["answer"] == "unsat" and kept["witness"] is None and 0 < kept["seconds"] < 100
    assert kept["boxes"] == [{"status": "safe", "bound": 0.5, "nodes": 3, "seconds": 0.25, "reason": ""}]


def test_sat_prints_the_witness_as_the_competition_wants_it(tmp_path, capsys, network, search):
    search.answers = [Answer(Status.UNSAFE, np.array([0.75, 1.0]), bound=-np.inf)]
    report = tmp_path / "report.json"
    status, out, err = run(capsys, network, conditions(tmp_path, ONE), "--json", report)
    assert (status, err) == (1, "")
    assert out == "sat\n((X_0 0.75)\n(X_1 1.0)\n(Y_0 1.75)\n(Y_1 -1.25))\n"
    assert re.fullmatch(r"sat\n\((\([XY]_\d+ \S+\)\s?)+\)\n", out)
    kept = json.loads(report.read_text())
    assert kept["witness"] == {"input": [0.75, 1.0], "output": [1.75, -1.25]} and kept["boxes"][0]["bound"] is None


def test_a_witness_that_the_network_does_not_confirm_is_no_answer(tmp_path, capsys, network, search):
    for text, u in ((ONE, [0.5, 0.5]), (ONE, [1.0, 1.5]), (BOX + "(assert (< Y_0 0))", [0.0, 0.0])):
        search.answers, search.asked = [Answer(Status.UNSAFE, np.array(u))], []
        status, out, err = run(capsys, network, conditions(tmp_path, text))
        assert (status, out) == (3, "unknown\n") and "on the edge of the unsafe set" in err


@pytest.mark.parametrize(
    ("answers", "status", "first"),
    [
        ([Answer("safe"), Answer("safe")], 0, "unsat"),
        ([Answer("unknown"), Answer("unsafe", np.array([2.5, 0.5]))], 1, "sat"),
        ([Answer("unsafe", np.array([1.0, 0.75])), None], 1, "sat"),
        ([Answer("unknown", reason="timeout"), Answer("safe")], 4, "timeout"),
        ([Answer("safe"), Answer("unknown", reason="no margin")], 3, "unknown"),
        ([Answer("unknown", reason="no margin"), Answer("unknown", reason="timeout")], 4, "timeout"),
        ([Answer("unknown", reason="timeout"), Answer("unknown", reason="no margin")], 4, "timeout"),
    ],
)
def test_several_boxes(tmp_path, capsys, network, search, answers, status, first):
    search.answers = answers
    found, out, err = run(capsys, network, conditions(tmp_path, TWO))
    assert (found, out.split("\n")[0]) == (status, first)
    assert ("no margin" in err) == any(a is not None and a.reason == "no margin" for a in answers)


def test_time_that_ran_out_before_the_search(tmp_path, capsys, network, search):
    assert run(capsys, network, conditions(tmp_path, ONE), "--timeout", 1e-9) == (4, "timeout\n", "")
    assert not search.asked


def test_files_that_do_not_fit_or_cannot_be_read(tmp_path, capsys, network, search):
    good = conditions(tmp_path, ONE)
    cases = [
        ((network, tmp_path / "none.vnnlib"), "none.vnnlib"),
        ((tmp_path / "none.onnx", good), "none.onnx"),
        ((good, good), "is no ONNX file"),
    ]
    for files, words in cases:
        status, out, err = run(capsys, *files)
        assert (status, out) == (2, "") and words in err and "Traceback" not in err
    three = conditions(tmp_path, ONE + "(assert (<= 0 X_2 1))", p=3)
    status, out, err = run(capsys, network, three)
    assert (status, out) == (2, "") and "3 inputs and 2 outputs, the network has 2 and 2" in err
    for arguments in (("--timeout", 0), ("--timeout", "nan"), ("--json", tmp_path / "no" / "a.json")):
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in (network, good, *arguments)])
        assert stop.value.code == 2


@pytest.mark.parametrize(("least", "status", "first"), [(2.5, 0, "unsat"), (1.5, 1, "sat")])
def test_the_search_itself_decides_a_small_network(tmp_path, capsys, network, least, status, first):
    """The largest y_0 on the box is 2, at (1, 1)."""
    pytest.importorskip("implicit_models.robustness.verification.search", reason="there is no search to call")
    text = f"{BOX}(assert (>= Y_0 {least}))"
    found, out, _ = run(capsys, network, conditions(tmp_path, text), "--timeout", 100)
    assert (found, out.split("\n")[0]) == (status, first)
    if status:
        x0, x1, y0 = (float(re.search(rf"\({name} (\S+?)\)", out)[1]) for name in ("X_0", "X_1", "Y_0"))
        assert 0 <= x0 <= 1 and 0 <= x1 <= 1 and y0 >= least and y0 == pytest.approx(x0 + x1, abs=1e-12)


def test_a_failure_is_not_taken_for_a_witness(tmp_path, monkeypatch, capsys):
    from implicit_models.robustness import verify

    def failing(*args, **kwargs):
        raise RecursionError("too deep")

    monkeypatch.setattr(verify, "answered", failing)
    assert verify.main([str(tmp_path / "a.onnx"), str(tmp_path / "a.vnnlib")]) == 3
    printed = capsys.readouterr()
    assert printed.out == "unknown\n" and "RecursionError: too deep" in printed.err
